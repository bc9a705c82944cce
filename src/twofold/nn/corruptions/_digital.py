"""Digital: contrast, elastic transform, pixelation and JPEG."""

from __future__ import annotations

import io

import numpy as np

from twofold.nn.corruptions._blur import gaussian_operator
from twofold.nn.corruptions._pixels import Border, Bytes, DrawBits, Single, Whole, bounce, mirror, truncate
from twofold.nn.corruptions._random import to_uniform


def contrast(x: Bytes, share: float, draw: DrawBits) -> Bytes:
    """Shrink the distance from the mean colour of the image."""
    rows = x.sum(axis=1, dtype=np.uint32, keepdims=True)
    mean = rows.sum(axis=2, dtype=np.int64, keepdims=True) / (x.shape[1] * x.shape[2])
    values = x * np.float64(share)
    values += (1 - share) * mean
    return truncate(values)


def elastic_transform(x: Bytes, setting: tuple[float, float, float], draw: DrawBits) -> Bytes:
    """Move three points at random and follow with an affine map; then displace by smoothed noise."""
    strength, sigma, reach = setting
    n, height, width, _ = x.shape
    random = to_uniform(draw(6 + 2 * height * width)) * 2 - 1
    centre = np.array([width // 2, height // 2])
    arm = min(height, width) // 3
    points = centre + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + reach * random[:, :6].reshape(n, 3, 2).astype(np.float64)
    ones = np.ones((n, 3, 1))
    targets = np.broadcast_to(points, (n, 3, 2)).astype(float)
    back = np.linalg.solve(np.concatenate([moved, ones], axis=2), targets)
    across = np.arange(width, dtype=np.float32)
    down = np.arange(height, dtype=np.float32)[:, None]
    turn = back.astype(np.float32)[..., None, None]
    xs = turn[:, 0, 0] * across + turn[:, 1, 0] * down + turn[:, 2, 0]
    ys = turn[:, 0, 1] * across + turn[:, 1, 1] * down + turn[:, 2, 1]
    values = np.zeros((n, height, width, 4), dtype=np.float32)  # a fourth channel: 16 bytes a pixel are read faster
    values[..., :3] = x
    values = _interpolate(values, ys, xs, bounce)
    if strength > 0:
        noise = strength * random[:, 6:].reshape(n, 2, height, width)
        taps = int(3 * sigma + 0.5)
        vertical = gaussian_operator(height, sigma, taps, mirror).astype(np.float32)
        sideways = gaussian_operator(width, sigma, taps, mirror).astype(np.float32)
        shift = vertical @ noise @ sideways.T
        values = _interpolate(values, down + shift[:, 1], across + shift[:, 0], mirror)
    return truncate(values)[..., :3]


def _interpolate(values: Single, ys: Single, xs: Single, border: Border) -> Single:
    """Interpolate each image bilinearly at its own positions."""
    n, height, width, channels = values.shape
    flat = values.reshape(-1, channels)
    base = np.arange(n)[:, None, None] * (height * width)
    rows, part_y = _find_neighbours(ys, height, border)
    columns, part_x = _find_neighbours(xs, width, border)

    def blend_row(row: Whole) -> Single:
        """Interpolate along one of the two rows of pixels around each position."""
        start = base + row * width
        left = flat.take(start + columns[0], axis=0, mode="clip")
        right = flat.take(start + columns[1], axis=0, mode="clip")
        return _blend(left, right, part_x)

    upper, lower = blend_row(rows[0]), blend_row(rows[1])
    return _blend(upper, lower, part_y)


def _find_neighbours(at: Single, size: int, border: Border) -> tuple[tuple[Whole, Whole], Single]:
    """Find the pixels before and after each position, folded back at the border, and how far between them it lies."""
    low = np.floor(at)
    whole = low.astype(np.int64)
    start = int(whole.min())
    folded = border(np.arange(start, int(whole.max()) + 2), size)
    whole -= start
    before, after = folded.take(whole, mode="clip"), folded[1:].take(whole, mode="clip")
    return (before, after), (at - low)[..., None]


def _blend(one: Single, other: Single, share: Single) -> Single:
    """Interpolate from one array to the other; the second argument is overwritten."""
    other -= one
    other *= share
    other += one
    return other


def pixelate(x: Bytes, share: float, draw: DrawBits) -> Bytes:
    """Shrink and enlarge with Pillow's box filter; all images are stacked into one tall or one wide image."""
    _, height, width, _ = x.shape
    small = _resize_heights(_resize_widths(x, int(width * share)), int(height * share))
    return _resize_heights(_resize_widths(small, width), height)


def _resize_widths(x: Bytes, size: int) -> Bytes:
    from PIL import Image

    n, height, width, _ = x.shape
    tall = Image.fromarray(x.reshape(n * height, width, 3))
    return np.asarray(tall.resize((size, n * height), Image.Resampling.BOX)).reshape(n, height, size, 3)


def _resize_heights(x: Bytes, size: int) -> Bytes:
    from PIL import Image

    n, height, width, _ = x.shape
    wide = Image.fromarray(np.ascontiguousarray(x.transpose(1, 0, 2, 3)).reshape(height, n * width, 3))
    resized = np.asarray(wide.resize((n * width, size), Image.Resampling.BOX))
    return np.ascontiguousarray(resized.reshape(size, n, width, 3).transpose(1, 0, 2, 3))


def jpeg_compression(x: Bytes, quality: int, draw: DrawBits) -> Bytes:
    """Write as JPEG and read back, through Pillow."""
    from PIL import Image

    result = np.empty_like(x)
    for index, image in enumerate(x):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        result[index] = np.asarray(Image.open(file))
    return result
