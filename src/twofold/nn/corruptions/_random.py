"""Random numbers that depend on the seed and the global row of an image alone."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from twofold.nn.corruptions._pixels import DrawBits, Single, Whole, Words


def make_draw(key: npt.NDArray[np.uint64], rows: Whole) -> DrawBits:
    """Make a function that draws 16-bit numbers for each global row, from the row's own stretch of the stream."""

    def draw(count: int) -> Words:
        blocks = -(-count // 16)  # Philox counts blocks of four 64-bit words
        words = np.empty((len(rows), 4 * blocks), dtype="<u8")
        gaps = np.flatnonzero(np.diff(rows) != 1) + 1  # rows in sequence share one stretch
        starts, ends = [0, *gaps], [*gaps, len(rows)]
        for start, end in zip(starts, ends, strict=True):
            stream = np.random.Philox(key=key, counter=int(rows[start]) * blocks)
            words[start:end] = stream.random_raw((end - start) * 4 * blocks).reshape(end - start, -1)
        return words.view("<u2")[:, :count]

    return draw


def to_uniform(words: Words) -> Single:
    """Turn 16-bit numbers into numbers in (0, 1): the middles of 65,536 equal steps."""
    return (words + np.float32(0.5)) * np.float32(2**-16)


@lru_cache(maxsize=1)
def normal_quantiles() -> npt.NDArray[np.float64]:
    """Return the 65,536 quantiles of the normal distribution that 16-bit numbers represent."""
    from scipy.special import ndtri

    return ndtri((np.arange(65536) + 0.5) / 65536)
