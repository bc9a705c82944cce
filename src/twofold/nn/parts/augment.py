"""Augmentations of whole batches: uint8 images (N, H, W, 3) in, the same out, before any normalisation.

Every function takes the images and ``index``, the number of each sample in its data set. What happens to a sample
depends on its pixels, its index, the epoch and the seed alone, so batches of any size and order, in any process, give
the same bytes. The draws of a sample are those of NumPy's Philox generator::

    np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, index, STREAMS[name], view])).random(count)

Operations compute what Pillow computes, with its rounding, in compiled code; after a rotation or a resize single pixels
may be one grey level off, where Pillow's sines or its order of rows and columns differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike
from twofold.errors import InvalidInput, UnknownName

Pixels: TypeAlias = npt.NDArray[np.uint8]
Index: TypeAlias = npt.NDArray[np.uint64]

# in the order of their numbers in the kernels
OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "colour",
    "contrast",
    "brightness",
    "sharpness",
)
HUE = len(OPERATIONS)
STREAMS = {
    name: number
    for number, name in enumerate(
        (
            "padded_crop",
            "flip",
            "cutout",
            "rotation",
            "resized_crop",
            "colour_jitter",
            "random_operation",
            "augmix",
            "pixmix",
            "mixup",
            "cutmix",
        )
    )
}
TRIES = 10  # boxes that a random-resized crop draws before it takes the centre


# --- the door -------------------------------------------------------------------------------------------------------


def batch(images: ArrayLike) -> Pixels:
    """Images as one C-contiguous, writable uint8 array (N, H, W, 3), copied only where they are not."""
    array = _checks.plain(images, "images")
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or 0 in array.shape[1:3]:
        raise InvalidInput(
            f"images must be uint8 of shape (N, H, W, 3), before normalisation, got {array.dtype} of {array.shape}"
        )
    return np.require(array, requirements=["C", "W"])


def sample_index(index: ArrayLike, rows: int) -> Index:
    """Numbers of the samples in their data set, one for each image."""
    array = _checks.plain(index, "index")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInput(f"index must be integers (N,), got {array.dtype} of shape {array.shape}")
    if len(array) != rows:
        raise InvalidInput(f"index has {len(array)} rows but images has {rows}")
    if array.dtype.kind == "i" and (array < 0).any():
        row = int((array < 0).argmax())
        raise InvalidInput(f"index must be the samples' numbers in the data set, 0 or more, got {array[row]}")
    return np.ascontiguousarray(array, dtype=np.uint64)


def uniforms(index: Index, count: int, *, name: str, seed: int, epoch: int, view: int = 0) -> Array:
    """``count`` numbers in [0, 1) for each sample, those of its own stream."""
    from twofold.nn.parts._image_kernels import fill_uniforms

    result = np.empty((len(index), count), dtype=np.float64)
    key = (word(seed, "seed"), word(epoch, "epoch"))
    fill_uniforms(index, *key, np.uint64(STREAMS[name]), word(view, "view"), result)
    return result


def word(value: int, name: str) -> np.uint64:
    """A part of a generator's key or counter: a whole number of 64 bits."""
    number = _checks.whole(value, name, 0)
    if number >= 1 << 64:
        raise InvalidInput(f"{name} must be below 2^64, got {number}")
    return np.uint64(number)


def operation_codes(operations: Sequence[str]) -> npt.NDArray[np.int64]:
    """Numbers of named operations."""
    if isinstance(operations, str) or not operations:
        raise InvalidInput(f"operations must be a list with at least one name, got {operations!r}")
    for name in operations:
        if name not in OPERATIONS:
            raise UnknownName.of("operation", str(name), OPERATIONS)
    return np.array([OPERATIONS.index(name) for name in operations], dtype=np.int64)


def severity_of(value: float) -> float:
    """A severity, at which levels are drawn from U(0.1, severity)."""
    return _checks.number(value, "severity", 0.1, 10.0)


def _colour_of(fill: int | Sequence[int]) -> Pixels:
    values = np.broadcast_to(np.asarray(fill), 3) if np.ndim(fill) == 0 or len(np.atleast_1d(fill)) == 3 else None
    if values is None or values.dtype.kind not in "iu" or (values < 0).any() or (values > 255).any():
        raise InvalidInput(f"fill must be one or three integers in 0..255, got {fill!r}")
    return np.array(values, dtype=np.uint8)


# --- base augmentations ---------------------------------------------------------------------------------------------


def padded_crop(
    images: ArrayLike,
    index: ArrayLike,
    *,
    padding: int = 4,
    fill: int | Sequence[int] = 0,
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """A random window of the image's own size, after ``padding`` pixels of ``fill`` are put around it.

    >>> one = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    >>> bool((padded_crop(one, [0], padding=0) == one).all())
    True
    """
    from twofold.nn.parts._image_kernels import shift

    x = batch(images)
    pad = _checks.whole(padding, "padding", 0)
    draws = uniforms(sample_index(index, len(x)), 2, name="padded_crop", seed=seed, epoch=epoch)
    moves = (draws * (2 * pad + 1)).astype(np.int64) - pad
    result = np.empty_like(x)
    shift(x, np.ascontiguousarray(moves[:, 0]), np.ascontiguousarray(moves[:, 1]), _colour_of(fill), result)
    return result


def flip(images: ArrayLike, index: ArrayLike, *, chance: float = 0.5, seed: int = 0, epoch: int = 0) -> Pixels:
    """Left and right exchanged with probability ``chance``."""
    x = batch(images)
    likely = _checks.number(chance, "chance", 0.0, 1.0)
    chosen = uniforms(sample_index(index, len(x)), 1, name="flip", seed=seed, epoch=epoch)[:, 0] < likely
    result = x.copy()
    result[chosen] = x[chosen, :, ::-1]
    return result


def cutout(
    images: ArrayLike,
    index: ArrayLike,
    *,
    side: int = 16,
    chance: float = 1.0,
    fill: int | Sequence[int] = 0,
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """A square with its centre anywhere in the image, cut at the border, filled with one colour.

    DeVries and Taylor, 2017, arXiv:1708.04552, whose zeros come after normalisation: ``fill`` the mean colour for that.
    FD-Shifts cuts 16 of 32 pixels in half of the images (``chance=0.5``).
    """
    x = batch(images)
    edge = _checks.whole(side, "side", 1)
    likely = _checks.number(chance, "chance", 0.0, 1.0)
    draws = uniforms(sample_index(index, len(x)), 3, name="cutout", seed=seed, epoch=epoch)
    covered = []
    for axis in (1, 2):
        start = (draws[:, axis] * x.shape[axis]).astype(np.int64) - edge // 2
        place = np.arange(x.shape[axis])
        covered.append((place >= start[:, None]) & (place < start[:, None] + edge))
    hole = covered[0][:, :, None] & covered[1][:, None, :] & (draws[:, 0] < likely)[:, None, None]
    return np.where(hole[..., None], _colour_of(fill), x)


def rotation(images: ArrayLike, index: ArrayLike, *, degrees: float = 15.0, seed: int = 0, epoch: int = 0) -> Pixels:
    """A turn about the centre by an angle of U(-degrees, degrees), bilinear, black outside."""
    x = batch(images)
    most = _checks.number(degrees, "degrees", 0.0, 180.0)
    draws = uniforms(sample_index(index, len(x)), 1, name="rotation", seed=seed, epoch=epoch)
    return operate(x, "rotate", (2 * draws[:, 0] - 1) * most)


def resized_crop(
    images: ArrayLike,
    index: ArrayLike,
    *,
    size: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """A box of random area (``scale``, uniform) and aspect (``ratio``, log-uniform), resized to ``size`` squared.

    Bilinear and antialiased, as Pillow does it. A box that does not fit is drawn again, up to ten times; after
    that the largest centred box of allowed aspect is taken, as torchvision does.
    """
    from twofold.nn.parts._image_kernels import resize_crops

    x = batch(images)
    side = _checks.whole(size, "size", 1)
    low, high = _span(scale, "scale", 1.0)
    narrow, wide = _span(ratio, "ratio", np.inf)
    draws = uniforms(sample_index(index, len(x)), 2 * TRIES + 2, name="resized_crop", seed=seed, epoch=epoch)
    height, width = x.shape[1:3]
    area = height * width * (low + (high - low) * draws[:, :TRIES])
    aspect = np.exp(np.log(narrow) + (np.log(wide) - np.log(narrow)) * draws[:, TRIES : 2 * TRIES])
    widths, heights = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first, found = fits.argmax(axis=1)[:, None], fits.any(axis=1)
    inner = _centre_box(height, width, narrow, wide)
    h = np.where(found, np.take_along_axis(heights, first, axis=1)[:, 0], inner[0]).astype(np.int64)
    w = np.where(found, np.take_along_axis(widths, first, axis=1)[:, 0], inner[1]).astype(np.int64)
    top = np.where(found, draws[:, -2] * (height - h + 1), (height - h) // 2).astype(np.int64)
    left = np.where(found, draws[:, -1] * (width - w + 1), (width - w) // 2).astype(np.int64)
    result = np.empty((len(x), side, side, 3), dtype=np.uint8)
    resize_crops(x, top, left, h, w, result)
    return result


def _span(value: tuple[float, float], name: str, high: float) -> tuple[float, float]:
    try:
        first, last = value
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be two numbers, got {value!r}") from error
    low = _checks.number(first, f"{name}[0]", 0.0, high, open_low=True, open_high=high == np.inf)
    return low, _checks.number(last, f"{name}[1]", low, high, open_high=high == np.inf)


def _centre_box(height: int, width: int, narrow: float, wide: float) -> tuple[int, int]:
    if width / height < narrow:
        return max(round(width / narrow), 1), width
    if width / height > wide:
        return height, max(round(height * wide), 1)
    return height, width


def colour_jitter(
    images: ArrayLike,
    index: ArrayLike,
    *,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    hue: float = 0.0,
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """Brightness, contrast and saturation by factors of U(max(0, 1 - v), 1 + v), hue turned by U(-v, v), in any order.

    The rule of torchvision on Pillow images; ``hue`` is a share of the circle, at most 0.5.
    """
    from twofold.nn.parts._image_kernels import operate_all

    x = batch(images)
    given = {"brightness": brightness, "contrast": contrast, "colour": saturation}
    reach = [_checks.number(v, k, 0.0, np.inf, open_high=True) for k, v in given.items()]
    turn = _checks.number(hue, "hue", 0.0, 0.5)
    draws = uniforms(sample_index(index, len(x)), 8, name="colour_jitter", seed=seed, epoch=epoch)
    low = np.array([*(max(0.0, 1.0 - v) for v in reach), -turn])
    amounts = low + (np.array([*(1.0 + v for v in reach), turn]) - low) * draws[:, :4]
    codes = np.array([*operation_codes(list(given)), HUE])
    codes[np.array([*reach, turn]) == 0] = -1
    order = np.argsort(draws[:, 4:], axis=1, kind="stable")
    result = x
    for k in range(4):
        some = order[:, k]
        source, result = result, np.empty_like(x)
        operate_all(source, codes[some], np.take_along_axis(amounts, some[:, None], axis=1)[:, 0], result)
    return result


# --- the operations of AugMix and PixMix ----------------------------------------------------------------------------


def operate(images: ArrayLike, name: str, amount: Any = 0.0) -> Pixels:
    """One of ``OPERATIONS`` on every image, by an amount for all or for each.

    The amount is what Pillow takes: bits kept (posterize), degrees (rotate), threshold (solarize), input pixels per row
    or column (shear), input pixels (translate), factor (colour, contrast, brightness, sharpness); autocontrast and
    equalize take none.

    >>> operate(np.full((1, 1, 1, 3), 200, np.uint8), "solarize", 128).ravel()
    array([55, 55, 55], dtype=uint8)
    """
    from twofold.nn.parts._image_kernels import operate_all

    x = batch(images)
    (code,) = operation_codes([name])
    amounts = _checks.plain(amount, "amount").astype(np.float64)
    if amounts.shape not in ((), (len(x),)):
        raise InvalidInput(f"amount must be one number or one for each of {len(x)} images, got shape {amounts.shape}")
    _checks.finite(np.atleast_1d(amounts), "amount")
    if name == "posterize" and ((amounts < 0) | (amounts > 8)).any():
        raise InvalidInput("amount of posterize must be 0 to 8 bits")
    result = np.empty_like(x)
    operate_all(x, np.full(len(x), code), np.array(np.broadcast_to(amounts, len(x))), result)
    return result


def random_operation(
    images: ArrayLike,
    index: ArrayLike,
    *,
    severity: float = 3.0,
    operations: Sequence[str] = OPERATIONS,
    seed: int = 0,
    epoch: int = 0,
    view: int = 0,
) -> Pixels:
    """One operation for each image, drawn uniformly, at a level l of U(0.1, severity).

    Posterize keeps 4 - int(0.4 l) bits; rotate by ±int(3 l) degrees; solarize from 256 - int(25.6 l); shear by ±0.03 l;
    translate by ±int(side/3 · l/10) pixels; colour, contrast, brightness and sharpness by 0.1 + 0.18 l. The scale of
    AugMix (Hendrycks et al., ICLR 2020, arXiv:1912.02781).
    """
    from twofold.nn.parts._image_kernels import operate_all_drawn

    x = batch(images)
    codes, strength = operation_codes(operations), severity_of(severity)
    draws = uniforms(sample_index(index, len(x)), 3, name="random_operation", seed=seed, epoch=epoch, view=view)
    result = np.empty_like(x)
    operate_all_drawn(x, codes, strength, draws, result)
    return result
