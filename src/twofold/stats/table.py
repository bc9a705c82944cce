"""A table of results, blocks in rows and methods in columns, as every rank test takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from twofold._checks import Array, ArrayLike, choice, floats
from twofold.errors import InvalidInput

Better: TypeAlias = Literal["higher", "lower"]


@dataclass(frozen=True, eq=False)
class Table:
    """A validated table: values, mid-ranks inside each block and the names of the methods."""

    values: Array
    ranks: Array
    names: tuple[str, ...]

    @property
    def sums(self) -> Array:
        """Rank sums, exact: they are multiples of one half."""
        return np.asarray(self.ranks.sum(axis=0))

    @property
    def mean_ranks(self) -> Array:
        """Mean rank of every method."""
        return self.sums / len(self.ranks)


def ranked(table: ArrayLike, better: Better, names: Sequence[str] | None) -> Table:
    """The door for tables: any 2-D array-like, or a DataFrame whose columns name the methods."""
    from scipy.stats import rankdata

    choice(better, "better", ("higher", "lower"))
    columns = getattr(table, "columns", None) if names is None else names
    values = np.ascontiguousarray(floats(table, "table", ndim=2), dtype=np.float64)
    blocks, methods = values.shape
    if blocks < 2 or methods < 2:
        raise InvalidInput(
            f"table must have at least 2 blocks (rows) and 2 methods (columns), got shape {values.shape}"
        )
    labels = tuple(str(c) for c in (range(methods) if columns is None else columns))
    if len(labels) != methods or len(set(labels)) != methods:
        raise InvalidInput(f"names must be {methods} different names, one per column, got {labels}")
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise InvalidInput(
            f"table must be finite, got {values[row, column]} in row {row}, column {labels[column]!r} "
            f"({len(bad)} such values); drop the block or the method"
        )
    ranks = np.asarray(rankdata(-values if better == "higher" else values, axis=1), dtype=np.float64)
    return Table(values, ranks, labels)
