"""Validate a table of results, blocks in rows and methods in columns, as every rank test takes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from twofold._checks import Array, ArrayLike, choice, floats
from twofold.errors import InvalidInput

Better: TypeAlias = Literal["higher", "lower"]


@dataclass(frozen=True, eq=False)
class RankedTable:
    """Hold a validated table of results; :func:`rank_table` makes it.

    Parameters
    ----------
    values : array of shape (n_blocks, n_methods)
        The results, finite.
    ranks : array of shape (n_blocks, n_methods)
        Ranks of the methods inside each block, 1 the best; ties share the mid-rank.
    names : tuple of str
        Names of the methods, all different.

    Examples
    --------
    >>> rank_table([[0.9, 0.8], [0.7, 0.7]], "higher", ["a", "b"]).ranks
    array([[1. , 2. ],
           [1.5, 1.5]])
    """

    values: Array
    ranks: Array
    names: tuple[str, ...]

    @property
    def sums(self) -> Array:
        """Rank sum of every method, exact because ranks are multiples of one half."""
        return np.asarray(self.ranks.sum(axis=0))

    @property
    def mean_ranks(self) -> Array:
        """Mean rank of every method."""
        return self.sums / len(self.ranks)


def rank_table(table: ArrayLike, better: Better, names: Sequence[str] | None) -> RankedTable:
    """Validate a table of results and rank the methods inside each block.

    Parameters
    ----------
    table : array-like of shape (n_blocks, n_methods)
        Results; at least two blocks and two methods. The columns of a DataFrame name the methods.
    better : {"higher", "lower"}
        Which values are better.
    names : sequence of str or None
        Names of the methods. None takes the columns of a DataFrame, or 0, 1, ...

    Returns
    -------
    RankedTable
        Values, ranks and names.

    Raises
    ------
    InvalidInput
        If ``table`` is not two-dimensional, has fewer than two rows or columns, or holds NaN or infinities, if names do
        not fit or repeat, or if ``better`` is unknown.

    Examples
    --------
    >>> rank_table([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], "lower", None).mean_ranks
    array([2., 2., 2.])
    """
    from scipy.stats import rankdata

    choice(better, "better", ("higher", "lower"))
    columns: Iterable[object] | None = names
    if columns is None:
        columns = getattr(table, "columns", None)
    values = np.ascontiguousarray(floats(table, "table", ndim=2), dtype=np.float64)
    blocks, methods = values.shape
    if blocks < 2 or methods < 2:
        raise InvalidInput(
            f"table must have at least 2 blocks (rows) and 2 methods (columns), got shape {values.shape}"
        )
    if columns is None:
        columns = range(methods)
    labels = tuple(map(str, columns))
    if len(labels) != methods or len(set(labels)) != methods:
        raise InvalidInput(f"names must be {methods} different names, one per column, got {labels}")
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0].tolist()
        raise InvalidInput(
            f"table must be finite, got {values[row, column]} in row {row}, column {labels[column]!r} "
            f"({len(bad)} such values); drop the block or the method"
        )
    rising = -values if better == "higher" else values
    ranks = np.asarray(rankdata(rising, axis=1), dtype=np.float64)
    return RankedTable(values, ranks, labels)
