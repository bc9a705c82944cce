"""Count what a confidence accepts down to each of some thresholds, for risk-coverage curves of any number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold import _checks
from twofold._checks import Array, NaNPolicy
from twofold.logs.cells import count_cells
from twofold.logs.columns import choose_columns, plain_columns
from twofold.logs.tables import open_table


@dataclass(frozen=True, eq=False)
class AcceptedCounts:
    """Hold the rows that are accepted at each of some thresholds, most confident first.

    Parameters
    ----------
    threshold : ndarray of shape (n_thresholds,)
        Thresholds, falling; a row is accepted if its confidence is at least as high.
    right, wrong, outside : ndarray of shape (n_thresholds,)
        Accepted correct, wrong and OOD rows. The last threshold accepts all rows.
    """

    threshold: Array
    right: Array
    wrong: Array
    outside: Array

    @property
    def coverage(self) -> Array:
        """Accepted ID rows as a share of all ID rows; NaN if there are none."""
        known = self.right + self.wrong
        with np.errstate(invalid="ignore"):
            return np.asarray(known / known[-1])

    @property
    def risk(self) -> Array:
        """Wrong and OOD rows as a share of the accepted rows."""
        failed = self.wrong + self.outside
        return np.asarray(failed / (self.right + failed))


def count_accepted(
    table: Any,
    *,
    correct: Any = None,
    conf: Any = None,
    is_id: Any = None,
    where: Any = None,
    nan: NaNPolicy = "error",
    cells: int = 512,
    memory: str | None = None,
    threads: int | None = None,
) -> AcceptedCounts:
    """Count the accepted rows at thresholds of about equal mass, without sorting.

    Parameters
    ----------
    table : path, glob, sequence of paths, or table
        As in :func:`twofold.logs.evaluate`.
    correct, conf, is_id, where : str or narwhals.Expr, optional
        Columns or expressions, as in :func:`twofold.logs.evaluate`.
    nan : {"error", "reject"}, default="error"
        Whether a null or NaN confidence is an error or is ranked lowest.
    cells : int, default=512
        Largest number of thresholds.
    memory, threads : optional
        Limits of the embedded DuckDB.

    Returns
    -------
    AcceptedCounts
        Exact counts at each threshold.

    Raises
    ------
    InvalidInput
        If the table cannot be read, or rows are not valid.
    UnknownName
        If a column does not exist.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"correct": [True, True, False], "conf": [0.9, 0.8, 0.3]})
    >>> accepted = count_accepted(table)
    >>> accepted.threshold.tolist(), accepted.risk.round(3).tolist()
    ([0.9, 0.8, 0.3], [0.0, 0.0, 0.333])
    """
    _checks.whole(cells, "cells", 2)
    with open_table(table, memory=memory, threads=threads) as opened:
        columns = choose_columns(opened, correct=correct, conf=conf, is_id=is_id, where=where, nan=nan)
        plain = plain_columns(columns) if opened.engine != "memory" else None
        counted = count_cells(columns, plain, cells)
    falling = counted.summary._falling(1.0)
    return AcceptedCounts(falling.low, np.cumsum(falling.right), np.cumsum(falling.wrong), np.cumsum(falling.outside))
