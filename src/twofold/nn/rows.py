"""Image data sets as rows: what every data set can do, and how rows are selected and drawn.

Row i is the same image whenever it is read, so a pass over the data can be cut, shared and resumed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._checks import Labels, Mask, whole
from twofold.errors import InvalidInput

Pixels: TypeAlias = npt.NDArray[np.uint8]
Ids: TypeAlias = npt.NDArray[np.int64 | np.str_]
RowSelection: TypeAlias = slice | Sequence[int] | Labels | Mask


class ImageRows(Protocol):
    """Define a data set of images: a length, labels and ids by row, and images that are read when they are needed.

    :class:`twofold.nn.data.Images` and :class:`twofold.nn.corruptions.Corrupted` are such data sets.
    """

    @property
    def name(self) -> str:
        """What the data set is called in messages and reports."""
        ...

    @property
    def labels(self) -> Labels:
        """Class numbers of shape (N,), -1 where a row has no class."""
        ...

    @property
    def ids(self) -> Ids:
        """Stable names of the rows, of shape (N,)."""
        ...

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes by number, if they are known."""
        ...

    def __len__(self) -> int: ...

    def read(self, rows: RowSelection) -> Pixels:
        """Read the images of some rows.

        Parameters
        ----------
        rows : slice, sequence of int, or mask of shape (N,)
            Which rows.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The images.
        """
        ...


def draw_rows(count: int, n: int, *, seed: int) -> Labels:
    """Draw row numbers without replacement.

    Parameters
    ----------
    count : int
        Number of rows there are.
    n : int
        Number of rows to draw, at most ``count``.
    seed : int
        Seed of the draw.

    Returns
    -------
    ndarray of int64, shape (n,)
        Row numbers, sorted.

    Raises
    ------
    InvalidInput
        If ``n`` is below 1 or above ``count``.

    Examples
    --------
    >>> draw_rows(3, 3, seed=0)
    array([0, 1, 2])
    """
    if whole(n, "sample", 1) > count:
        raise InvalidInput(f"sample={n} is more than the {count} rows there are")
    return np.sort(np.random.default_rng(seed).choice(count, n, replace=False))
