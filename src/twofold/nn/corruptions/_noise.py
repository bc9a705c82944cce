"""Noise: gaussian, shot and impulse."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from twofold.nn.corruptions._pixels import Bytes, DrawBits
from twofold.nn.corruptions._random import normal_quantiles


def gaussian_noise(x: Bytes, sigma: float, draw: DrawBits) -> Bytes:
    """Add normal noise: pixels are whole numbers, so the noise may be floored to whole numbers before it is added."""
    table = np.floor(255 * sigma * normal_quantiles()).astype(np.int16)
    values = table.take(draw(x[0].size), mode="clip").reshape(x.shape)
    values += x
    return values.clip(0, 255, out=values).astype(np.uint8)


def shot_noise(x: Bytes, photons: int, draw: DrawBits) -> Bytes:
    """Count photons: Poisson noise, looked up by grey value and quantile."""
    index = draw(x[0].size).reshape(x.shape).astype(np.uint32)
    index |= x.astype(np.uint32) << 16
    return _poisson_table(photons).take(index, mode="clip")


@lru_cache(maxsize=2)  # 16 MiB each
def _poisson_table(photons: int) -> Bytes:
    """Make the table of noisy values by grey value (high bits) and 16-bit quantile (low bits)."""
    from scipy.special import pdtr

    counts = np.arange(photons + 1)
    shown = (counts / photons * 255).astype(np.uint8)
    below = pdtr(counts[:-1], (np.arange(256) / 255 * photons)[:, None])
    ends = np.rint(below * 2**16).astype(np.int64)
    widths = np.diff(ends, axis=1, prepend=0, append=2**16)  # counts beyond those of white are shown as white
    return np.repeat(np.tile(shown, 256), widths.ravel())


def impulse_noise(x: Bytes, amount: float, draw: DrawBits) -> Bytes:
    """Turn a share of all values to 0 or 255, half and half."""
    words = np.ascontiguousarray(draw(x[0].size)).ravel()
    result = x.copy()
    hit = np.flatnonzero(words < round(amount * 2**16))
    is_white = words[hit] < round(amount * 2**15)
    result.reshape(-1)[hit] = np.where(is_white, 255, 0)
    return result
