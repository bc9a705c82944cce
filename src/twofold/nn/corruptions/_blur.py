"""Blur: defocus, glass, motion and zoom."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold.nn.corruptions._pixels import Border, Bytes, DrawBits, Single, Whole, bounce, clamp, truncate
from twofold.nn.corruptions._random import to_uniform

SparseMatrix: TypeAlias = Any  # scipy.sparse has no types


def defocus_blur(x: Bytes, setting: tuple[float, float], draw: DrawBits) -> Bytes:
    """Correlate with a disk; pixels of equal weight are added up first, exactly, in whole numbers."""
    kernel = _make_disk(*setting)
    reach = len(kernel) // 2
    _, height, width, _ = x.shape
    kind = np.uint16 if kernel.size * 255 < 2**16 else np.uint32
    wide = x.take(bounce(np.arange(-reach, height + reach), height), axis=1).astype(kind)
    wide = wide.take(bounce(np.arange(-reach, width + reach), width), axis=2)
    values = np.zeros(x.shape)
    for weight in np.unique(kernel[kernel > 0]):
        total = np.zeros(x.shape, dtype=kind)
        for dy, dx in np.argwhere(kernel == weight):
            total += wide[:, dy : dy + height, dx : dx + width]
        values += total * weight
    return truncate(values)


@lru_cache(maxsize=10)
def _make_disk(radius: float, sigma: float) -> npt.NDArray[np.float64]:
    """Make a disk on the pixel grid, its edge smoothed by 3 (from radius 9 on: 5) taps of a Gaussian.

    The original smooths on a grid that ends at radius 8 and 10, where mirrored borders add weight: these two disks
    brighten the image by about a hundredth, here as there.
    """
    reach, taps = 8, 1
    if radius > 8:
        reach, taps = int(radius), 2
    across = np.arange(-reach, reach + 1)
    disk = (across[:, None] ** 2 + across**2 <= radius**2).astype(np.float64)
    smooth = gaussian_operator(len(across), sigma, taps, bounce)
    kernel = smooth @ (disk / disk.sum()) @ smooth.T
    used = np.abs(across)[(kernel > 1e-12).any(axis=0)].max()
    kernel = kernel[reach - used : reach + used + 1, reach - used : reach + used + 1]
    return np.where(kernel > 1e-12, kernel.round(15), 0)


def gaussian_operator(size: int, sigma: float, reach: int, border: Border) -> npt.NDArray[np.float64]:
    """Build the matrix of a Gaussian filter of ``2 reach + 1`` taps along an axis of ``size`` pixels."""
    taps = np.arange(-reach, reach + 1)
    weights = (taps == 0).astype(np.float64)
    if sigma > 0:
        weights = np.exp(-0.5 * (taps / sigma) ** 2)
    matrix = np.zeros((size, size))
    own = np.arange(size)[:, None]
    np.add.at(matrix, (own, border(own + taps, size)), weights / weights.sum())
    return matrix


def glass_blur(x: Bytes, setting: tuple[float, int, int], draw: DrawBits) -> Bytes:
    """Blur, let every pixel copy a near one, blur again."""
    sigma, reach, passes = setting
    n, height, width, _ = x.shape
    ys, xs = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    own = np.arange(height * width).reshape(height, width)
    inner = own[ys, xs]
    words = draw(passes * inner.size).reshape(n, passes, *inner.shape)
    draws = (words.astype(np.int64) * (4 * reach * reach)) >> 16
    offsets = (np.arange(2 * reach)[:, None] - reach) * width + np.arange(2 * reach) - reach
    base = np.arange(n)[:, None, None] * (height * width)
    source = np.broadcast_to(own + base, (n, height, width))
    for step in range(passes):
        near = np.broadcast_to(own + base, (n, height, width)).copy()
        near[:, ys, xs] += offsets.ravel().take(draws[:, step])
        source = source.ravel().take(follow_copies(near.reshape(-1))).reshape(n, height, width)
    soft = truncate(gaussian_blur(x, sigma))
    mixed = soft.reshape(-1, 3).take(source.ravel(), axis=0).reshape(x.shape)
    return truncate(gaussian_blur(mixed, sigma))


def follow_copies(near: Whole) -> Whole:
    """Find where each pixel's value comes from when all copy in turn, last pixel first.

    A pixel that copies a later one gets what that one has already copied; such chains are followed by doubling.
    """
    chained = near > np.arange(len(near))
    while chained.any():
        near, chained = np.where(chained, near[near], near), chained & chained[near]
    return near


def gaussian_blur(x: Bytes, sigma: float) -> Single:
    """Apply a Gaussian filter of four sigmas, border pixels repeated."""
    values = x.astype(np.float32)
    reach = int(4 * sigma + 0.5)
    weights = np.exp(-0.5 * (np.arange(reach + 1) / sigma) ** 2)
    weights /= 2 * weights.sum() - weights[0]
    if reach == 0:
        return values
    for axis in (1, 2):
        size = x.shape[axis]
        wide = values.take(clamp(np.arange(-reach, size + reach), size), axis=axis)
        along = [slice(None)] * 4
        values *= np.float32(weights[0])
        for k in range(1, reach + 1):
            along[axis] = slice(reach - k, reach - k + size)
            pair = wide[tuple(along)].copy()
            along[axis] = slice(reach + k, reach + k + size)
            pair += wide[tuple(along)]
            pair *= np.float32(weights[k])
            values += pair
    return values


def motion_blur(x: Bytes, setting: tuple[int, float], draw: DrawBits) -> Bytes:
    """Smear along a direction within 45 degrees of the horizontal."""
    values = smear(x, *setting, to_uniform(draw(1))[:, 0] * 90.0 - 45.0)
    values += np.float32(0.5)  # ImageMagick rounds
    return truncate(values)


def smear(x: Bytes, radius: int, sigma: float, degrees: Single) -> Single:
    """Apply ImageMagick's motion blur: a one-sided Gaussian along a line of pixels, border pixels repeated.

    Images whose lines visit the same pixels are smeared together.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    weights /= weights.sum()
    steps, weights = steps[weights > 1e-5], weights[weights > 1e-5]
    turn = np.deg2rad(degrees.astype(np.float64))[:, None]
    down = np.ceil(steps * np.sin(turn) - 0.5)
    across = np.ceil(steps * np.cos(turn) - 0.5)
    path = np.concatenate([down, across], axis=1).astype(np.int64)
    order = np.lexsort(path.T[::-1])
    is_new_path = (np.diff(path[order], axis=0) != 0).any(axis=1)
    changes = np.flatnonzero(is_new_path) + 1
    starts, ends = [0, *changes], [*changes, len(order)]
    result = np.empty(x.shape, dtype=np.float32)
    for start, end in zip(starts, ends, strict=True):
        group = order[start:end]
        dys, dxs = path[group[0]].reshape(2, -1)
        result[group] = _sum_shifted(x[group], dys, dxs, weights / weights.sum())
    return result


def _sum_shifted(x: Bytes, dys: Whole, dxs: Whole, weights: npt.NDArray[np.float64]) -> Single:
    """Sum shifted copies with weights."""
    _, height, width, _ = x.shape
    top, left = dys.min(), dxs.min()
    wide = x.take(clamp(np.arange(top, height + dys.max()), height), axis=1)
    wide = wide.take(clamp(np.arange(left, width + dxs.max()), width), axis=2).astype(np.float32)
    total = np.zeros(x.shape, dtype=np.float32)
    for dy, dx, weight in zip(dys - top, dxs - left, weights.astype(np.float32), strict=True):
        total += weight * wide[:, dy : dy + height, dx : dx + width]
    return total


def zoom_blur(x: Bytes, setting: tuple[float, float], draw: DrawBits) -> Bytes:
    """Average the image and enlarged copies of its middle, by one sparse matrix."""
    end, step = setting
    zooms = tuple(np.arange(1, end, step).tolist())
    operator = zoom_operator(x.shape[1], x.shape[2], (1.0, *zooms))
    return truncate(apply_operator(operator, x.astype(np.float32)))


def apply_operator(operator: SparseMatrix, values: Single) -> Single:
    """Apply a sparse matrix over pixels to every image and channel."""
    n, height, width, channels = values.shape
    columns = np.ascontiguousarray(values.transpose(1, 2, 0, 3)).reshape(height * width, n * channels)
    result = (operator @ columns).reshape(height, width, n, channels)
    return np.ascontiguousarray(result.transpose(2, 0, 1, 3))


@lru_cache(maxsize=10)
def zoom_operator(height: int, width: int, zooms: tuple[float, ...]) -> SparseMatrix:
    """Build the matrix that averages zooms about the middle, from pixels to pixels."""
    from scipy import sparse

    matrices = [sparse.kron(_zoom_axis(height, zoom), _zoom_axis(width, zoom), format="csr") for zoom in zooms]
    return (sum(matrices) / len(zooms)).astype(np.float32)


def _zoom_axis(size: int, zoom: float) -> SparseMatrix:
    """Build the linear interpolation that enlarges the middle of an axis, corners aligned, cropped to the old size."""
    from scipy import sparse

    kept = int(np.ceil(size / zoom))
    made = round(kept * zoom)
    at = (np.arange(size) + (made - size) // 2) * ((kept - 1) / max(1, made - 1))
    low = np.minimum(at.astype(np.int64), kept - 2)
    part = at - low
    start = (size - kept) // 2
    rows = np.repeat(np.arange(size), 2)
    columns = np.stack([low, low + 1], axis=1).ravel() + start
    weights = np.stack([1 - part, part], axis=1).ravel()
    return sparse.csr_array((weights, (rows, columns)), shape=(size, size))
