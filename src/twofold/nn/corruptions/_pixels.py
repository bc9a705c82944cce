"""Types of pixel arrays, truncation to 8 bits, and what lies beyond the border."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Single: TypeAlias = npt.NDArray[np.float32]
Words: TypeAlias = npt.NDArray[np.uint16]
Whole: TypeAlias = npt.NDArray[np.int64]
DrawBits: TypeAlias = Callable[[int], Words]  # takes a count, returns that many 16-bit numbers for each row
Border: TypeAlias = Callable[[Whole, int], Whole]  # takes positions and a size, returns positions inside


def truncate(values: npt.NDArray[np.floating]) -> Bytes:
    """Truncate values to 8 bits; the argument is overwritten."""
    float_error = 2.0**-12 if values.dtype == np.float32 else 2.0**-30  # above that of sums up to 255
    values += float_error
    np.clip(values, 0, 255, out=values)
    return values.astype(np.uint8)


def clamp(index: Whole, size: int) -> Whole:
    """Repeat the border pixel beyond the border."""
    return index.clip(0, size - 1)


def mirror(index: Whole, size: int) -> Whole:
    """Reflect positions beyond the border, counting the border pixel twice."""
    folded = index % (2 * size)
    return np.minimum(folded, 2 * size - 1 - folded)


def bounce(index: Whole, size: int) -> Whole:
    """Reflect positions beyond the border, counting the border pixel once."""
    folded = index % (2 * size - 2)
    return np.minimum(folded, 2 * size - 2 - folded)
