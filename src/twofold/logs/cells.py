"""Count rows in cells of a confidence, in one scan without sorting, and bound every metric by the counts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold._checks import AnyArray, Array, Mask
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.logs import _duckdb, _memory
from twofold.logs.columns import ChosenColumns, count_groups, plain_columns
from twofold.logs.groups import CountedGroups
from twofold.logs.ordered import CHANGED, HIDDEN_NAN, TPR, Counts
from twofold.logs.tables import LogTable
from twofold.metrics import Bounded, ScoreSummary, info
from twofold.metrics._axis import choose_cuts
from twofold.metrics._sweep import Sweep
from twofold.metrics.streams import _pairs

SAMPLE = 1 << 18  # rows from which cuts are chosen
CELLS_OF_ALL = 1 << 22  # of all groups of a table together
ROWS_OF_STEP = 2048  # for which cells are looked up at once
WORKERS = os.cpu_count() or 1  # threads that count
SLICES = 16  # of the range of the cuts for each cut, by which cells are looked up

Batches = Iterator[dict[str, AnyArray]]
Fold = Callable[[Batches], tuple[AnyArray, ...]]

BOUNDED = (
    "accuracy",
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "average_precision",
    "average_precision_unsafe",
    "fpr95",
    "fpr95_unsafe",
    "aurc_id",
    "f1",
    "auroc_ood",
)
"""Metrics that counts in cells bound."""


@dataclass(frozen=True, eq=False)
class Cuts:
    """Hold the cuts of one confidence, and a table by which the cell of a value is found.

    Parameters
    ----------
    edges : ndarray of shape (n_cuts,)
        Cuts, ascending.
    guide : ndarray of int
        For each slice of equal width the cuts below it, and at the end all cuts.
    low, scale : float
        Where the first slice starts, and slices per unit.
    """

    edges: Array
    guide: npt.NDArray[np.int32]
    low: float
    scale: float

    @classmethod
    def of(cls, sample: Array, cells: int) -> Cuts:
        """Cut at quantiles of a sample.

        Parameters
        ----------
        sample : ndarray of shape (n,)
            Confidences without NaN.
        cells : int
            Largest number of cells.

        Returns
        -------
        Cuts
            The cuts.
        """
        values, mass = np.unique(sample + 0.0, return_counts=True)
        edges = np.empty(0)
        if len(values):
            edges = choose_cuts(values, mass, cells)
        return cls.at(edges)

    @classmethod
    def at(cls, edges: Array) -> Cuts:
        """Use these cuts.

        Parameters
        ----------
        edges : ndarray of shape (n_cuts,)
            Cuts, ascending.

        Returns
        -------
        Cuts
            The cuts, with their table.
        """
        from twofold.logs._kernels import make_guide

        finite = edges[np.isfinite(edges)]
        slices = SLICES * (len(edges) + 1)
        low, scale = 0.0, 0.0
        if len(finite) > 1:
            low = float(finite[0])
            with np.errstate(over="ignore"):
                width = float(finite[-1]) - low
            if 0.0 < width < math.inf:
                scale = min(slices / width, np.finfo(np.float64).max)
        guide = np.empty(slices + 1, np.int32)
        make_guide(edges, low, scale, guide)
        return cls(edges, guide, low, scale)

    def ends(self, filled: Mask) -> tuple[Array, Array]:
        """Return the smallest and the largest value that each cell can hold.

        Parameters
        ----------
        filled : ndarray of bool, shape (n_cuts + 1,)
            Whether each cell has rows.

        Returns
        -------
        tuple of two ndarrays
            The ends, equal where a cell holds one value; inf and -inf for a cell without rows.
        """
        low = np.concatenate(([-np.inf], self.edges))
        with np.errstate(over="ignore", under="ignore"):  # beside the largest float and beside 0
            high = np.concatenate((np.nextafter(self.edges, -np.inf), [np.inf]))
        return np.where(filled, low, np.inf), np.where(filled, high, -np.inf)

    def summary(self, counts: Counts) -> ScoreSummary:
        """Return the summary of counted rows.

        Parameters
        ----------
        counts : ndarray of int, shape (n_cuts + 1, 3)
            Correct, wrong and OOD rows per cell.

        Returns
        -------
        ScoreSummary
            The summary.
        """
        least, largest = self.ends(np.asarray(counts.any(axis=1)))
        return ScoreSummary.from_counts(self.edges, least, largest, counts)

    @property
    def lookup(self) -> tuple[Any, ...]:
        """What the kernels take."""
        return self.edges, self.guide, self.low, self.scale


def fold(
    plain: LogTable, columns: tuple[str, ...], function: Fold, *, groups: CountedGroups | None = None, workers: int = 1
) -> list[tuple[AnyArray, ...]]:
    """Apply a function to all rows in any order, where the engine has them.

    Parameters
    ----------
    plain : LogTable
        A table of plain columns.
    columns : tuple of str
        The columns.
    function : callable
        Takes an iterator of batches, and returns a tuple of arrays.
    groups : CountedGroups, optional
        The groups; batches then also have ``code``, the place of each row's group.
    workers : int, default=1
        Threads that share the batches of DuckDB; which batches a thread gets is left to chance.

    Returns
    -------
    list of tuple of ndarray
        The results: one for each thread of DuckDB, and for each partition of Dask and Spark.
    """
    if plain.engine == "duckdb":
        return _duckdb.fold(plain, columns, function, groups, workers)
    if plain.engine == "dask":
        from twofold.logs import _dask

        return _dask.fold(plain, columns, function, groups)
    from twofold.logs import _spark

    return _spark.fold(plain, columns, function, groups)


def sample_rows(plain: LogTable, columns: tuple[str, ...]) -> tuple[Array, ...]:
    """Take evenly spaced rows of a table, without those in which a column is NaN.

    Parameters
    ----------
    plain : LogTable
        A table of plain columns.
    columns : tuple of str
        The columns.

    Returns
    -------
    tuple of ndarray
        The sampled columns.
    """
    parts = fold(plain, columns, _Sampler(columns))
    rows = np.concatenate([part[0] for part in parts], axis=1)
    return tuple(rows[:, ~np.isnan(rows).any(axis=0)])


@dataclass(frozen=True)
class _Sampler:
    """Take at most ``2 * SAMPLE`` evenly spaced rows of batches."""

    columns: tuple[str, ...]

    def __call__(self, batches: Batches) -> tuple[AnyArray, ...]:
        stride, kept = 1, 0
        held = [np.empty((len(self.columns), 0))]
        for batch in batches:
            part = np.stack([batch[name][::stride] for name in self.columns])
            held.append(part)
            kept += part.shape[1]
            if kept > 2 * SAMPLE:
                held = [np.concatenate(held, axis=1)[:, ::2]]
                kept = held[0].shape[1]
                stride *= 2
        return (np.concatenate(held, axis=1),)


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Hold the counts of a scan.

    Parameters
    ----------
    summary : ScoreSummary
        Correct, wrong and OOD rows per cell.
    missing : int
        Rows with a missing confidence.
    """

    summary: ScoreSummary
    missing: int

    @property
    def kinds(self) -> tuple[int, int, int]:
        """Correct, wrong and OOD rows."""
        return self.summary._kinds


def count_cells(columns: ChosenColumns, plain: LogTable | None, bins: int) -> CellCounts:
    """Count the rows of a table in cells whose cuts are quantiles of a sample.

    Parameters
    ----------
    columns : ChosenColumns
        The chosen columns.
    plain : LogTable or None
        What :func:`~twofold.logs.columns.plain_columns` made of them; None for a table in memory.
    bins : int
        Largest number of cells.

    Returns
    -------
    CellCounts
        The counts.

    Raises
    ------
    InvalidInput
        If rows are not valid.
    """
    if plain is None:
        arrays, _ = _memory.read_arrays(columns)
        missing = int(np.isnan(np.asarray(arrays["conf"], np.float64)).sum())
        summary = ScoreSummary(bins).update(**arrays, nan=columns.nan)
        return CellCounts(summary, missing)
    checked = _with_invalid_rows(plain)
    cuts = Cuts.of(sample_rows(checked, ("conf",))[0], bins)
    parts = fold(checked, ("conf", "kind"), _CellCounter(cuts), workers=WORKERS)
    counts = np.sum([part[0] for part in parts], axis=0)[0]
    missing, invalid = (int(total) for total in np.sum([part[1] for part in parts], axis=0))
    if invalid or not counts.any() or (missing and columns.nan != "reject"):
        count_groups(plain, columns)  # raises, and says how many rows are wrong in which way
        raise InvalidInput(HIDDEN_NAN)
    return CellCounts(cuts.summary(counts), missing)


def count_cells_by_group(columns: ChosenColumns, bins: int) -> tuple[CountedGroups, list[ScoreSummary]]:
    """Count the rows of each group in cells whose cuts, the same for all groups, are quantiles of a sample.

    Many groups have fewer cells each, so that all together have at most ``CELLS_OF_ALL``.

    Parameters
    ----------
    columns : ChosenColumns
        The chosen columns, with groups.
    bins : int
        Largest number of cells of a group.

    Returns
    -------
    groups : CountedGroups
        The groups.
    summaries : list of ScoreSummary
        Correct, wrong and OOD rows per cell, for each group.

    Raises
    ------
    InvalidInput
        If rows are not valid, or the table changed.
    """
    plain = plain_columns(columns)
    groups = count_groups(plain, columns)  # raises where rows are not valid
    counter = _CellCounter.of(sample_rows(plain, ("conf",))[0], bins, len(groups.keys))
    parts = fold(plain, ("conf", "kind"), counter, groups=groups, workers=WORKERS)
    counts = np.sum([part[0] for part in parts], axis=0)
    if not np.array_equal(counts.sum(axis=1), groups.totals):
        raise InvalidInput(CHANGED)
    return groups, [counter.cuts.summary(own) for own in counts]


def count_rows_by_group(conf: Array, kind: AnyArray, code: AnyArray, groups: int, bins: int) -> list[ScoreSummary]:
    """Count rows in memory as :func:`count_cells_by_group` counts those of a table.

    Parameters
    ----------
    conf : ndarray of float64, shape (n,)
        The confidence, without NaN.
    kind : ndarray of int8, shape (n,)
        0 for correct, 1 for wrong and 3 for OOD rows.
    code : ndarray of int, shape (n,)
        The group of each row.
    groups : int
        Number of groups.
    bins : int
        Largest number of cells of a group.

    Returns
    -------
    list of ScoreSummary
        Correct, wrong and OOD rows per cell, for each group.
    """
    stride = max(1, len(conf) // SAMPLE)
    counter = _CellCounter.of(conf[::stride], bins, groups)
    counts, _ = counter(iter([{"conf": conf, "kind": kind, "code": code}]))
    return [counter.cuts.summary(own) for own in counts]


@dataclass(frozen=True)
class _CellCounter:
    """Count the rows of batches by group and cell, and missing and invalid rows."""

    cuts: Cuts
    groups: int = 1

    @classmethod
    def of(cls, sample: Array, bins: int, groups: int) -> _CellCounter:
        """Choose cuts for many groups, which share the memory."""
        return cls(Cuts.of(sample, max(2, min(bins, CELLS_OF_ALL // groups))), groups)

    def __call__(self, batches: Batches) -> tuple[AnyArray, ...]:
        from twofold._kernels import OUTSIDE, RIGHT, WRONG
        from twofold.logs._kernels import count_cells

        cells = len(self.cuts.edges) + 1
        counts = np.zeros((self.groups, cells, 4), np.int64)
        short = np.zeros(counts.size, np.uint32)  # half the memory, which the processor reads faster
        room = np.empty(ROWS_OF_STEP, np.int64)
        one_group = np.empty(0, np.int64)
        bad = np.zeros(2, np.int64)
        rows = 0
        for batch in batches:
            rows += len(batch["kind"])
            if rows >= 1 << 32:
                counts += short.reshape(counts.shape)
                short[:] = 0
                rows = len(batch["kind"])
            code = batch.get("code", one_group)
            bad += count_cells(batch["conf"], batch["kind"], code, *self.cuts.lookup, room, short)
        counts += short.reshape(counts.shape)
        return counts[:, :, [RIGHT, WRONG, OUTSIDE]], bad


def _with_invalid_rows(plain: LogTable) -> LogTable:
    """Mark rows that are not valid by a negative kind."""
    import narwhals as nw

    invalid = nw.col("bad_correct") | nw.col("bad_is_id") | nw.col("bad_pair") | nw.col("bad_conf")
    kind = nw.when(invalid).then(nw.lit(-1, nw.Int8())).otherwise(nw.col("kind")).cast(nw.Int8())
    value = nw.col("conf").fill_null(float("nan"))
    return plain.select(conf=value, kind=kind)


# Bounds of metrics


def summary_values(
    summary: ScoreSummary, names: tuple[str, ...], share: float | None
) -> tuple[dict[str, float], dict[str, str], dict[str, Bounded]]:
    """Bound metrics by the counts of cells.

    Parameters
    ----------
    summary : ScoreSummary
        The counts.
    names : tuple of str
        Metrics, of ``BOUNDED``.
    share : float or None
        Share of OOD samples expected in deployment.

    Returns
    -------
    values : dict of str to float
        Estimates; NaN where a metric is undefined.
    reasons : dict of str to str
        Why a metric is undefined.
    bounds : dict of str to Bounded
        The intervals that contain the exact values.
    """
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    bounds: dict[str, Bounded] = {}
    for name in names:
        try:
            bound = _bound(name, summary, share)
        except UndefinedMetric as error:
            values[name], reasons[name] = math.nan, str(error)
            continue
        values[name] = bound.value
        bounds[name] = bound
    return values, reasons, bounds


def _bound(name: str, summary: ScoreSummary, share: float | None) -> Bounded:
    """Bound one metric."""
    direct: dict[str, Callable[[], Bounded]] = {
        "aurc": lambda: summary.aurc(ood_share=share),
        "aurc_id": lambda: summary.aurc(coverage="id", ood_share=share),
        "augrc": lambda: summary.augrc(ood_share=share),
        "f1": lambda: summary.f1(ood_share=share),
        "auroc_ood": summary.auroc_ood,
    }
    if name in direct:
        return direct[name]()
    known, weight, _ = summary._weights(name, share)
    cells = _Falling.of(summary, weight)
    tied = cells.sweep(known, weight)
    form = info(name).sweep
    if form is None:
        raise UndefinedMetric(f"{name} has no form on counts")
    value = form(tied)  # raises where the metric has no value
    if name == "accuracy":
        return Bounded(value, value, value)
    if name == "eaurc":
        area = summary.aurc(ood_share=share)
        optimum = info("aurc").sweep(tied) - value  # type: ignore[misc]  # aurc has that form
        return Bounded(area.value - optimum, area.low - optimum, area.high - optimum)
    if name == "auroc":
        return _pairs(cells.right, cells.failed, cells.mixed, name, ("right", "failed"))
    low, high = _LIMITS[name](cells)
    return Bounded(min(max(value, low), high), low, high)


@dataclass(frozen=True, eq=False)
class _Falling:
    """Hold the cells that weigh something, most confident first: correct samples and failures of each."""

    right: Array
    failed: Array
    wrong: Array
    outside: Array
    mixed: AnyArray

    @classmethod
    def of(cls, summary: ScoreSummary, weight: float) -> _Falling:
        cells = summary._falling(weight)
        return cls(cells.right, cells.failed, cells.wrong, cells.outside, cells.mixed)

    def sweep(self, known: float, weight: float) -> Sweep:
        """Make the sweep in which the samples of a cell are tied."""
        right = np.cumsum(self.right)
        loss = np.cumsum(self.failed)
        inside = right + np.cumsum(self.wrong)
        return Sweep(np.empty(0), right + loss, loss, inside, weight, right)

    def reversed(self) -> _Falling:
        """Return the cells from the other end, with failures in the place of correct samples."""
        return _Falling(self.failed[::-1], self.right[::-1], self.right[::-1], 0 * self.right, self.mixed[::-1])


def _before(steps: Array) -> Array:
    return np.concatenate(([0.0], np.cumsum(steps)[:-1]))


def _precision_limits(cells: _Falling) -> tuple[float, float]:
    """Bound the average precision.

    In a cell with c correct samples and failures of weight f, after R correct ones among accepted weight N, the
    precision at a correct sample is largest with all c tied on top, (R + c) / (N + c), and least where they come one
    by one behind all failures: there it is at least the integral of (R + x) / (N + f + x) for x from 0 to c.
    """
    c, f = cells.right, cells.failed
    r, n = _before(c), _before(c + f)
    tie = c * (r + c) / (n + c + f)
    high = c * np.divide(r + c, n + c, out=np.zeros_like(c), where=n + c > 0)
    start = n + f
    grown = np.divide(c, start, out=np.zeros_like(c), where=start > 0)
    low = c - (start - r) * np.log1p(grown)
    total = float(c.sum())
    least = float(np.where(cells.mixed, low, tie).sum()) / total
    most = float(np.where(cells.mixed, high, tie).sum()) / total
    return max(least, 0.0), min(most, 1.0)


def _precision_unsafe_limits(cells: _Falling) -> tuple[float, float]:
    return _precision_limits(cells.reversed())


def _fpr_limits(cells: _Falling) -> tuple[float, float]:
    """Bound the failures accepted where the share of correct samples first reaches 95 %: that is inside one cell."""
    right, failed = np.cumsum(cells.right), np.cumsum(cells.failed)
    reached = int(np.argmax(right / right[-1] >= TPR))
    high = float(failed[reached])
    low = high
    if cells.mixed[reached]:
        low = high - float(cells.failed[reached])
    return low / float(failed[-1]), high / float(failed[-1])


def _fpr_unsafe_limits(cells: _Falling) -> tuple[float, float]:
    """Bound the correct samples rejected at the last level that rejects 95 % of the failures."""
    right, failed = np.cumsum(cells.right), np.cumsum(cells.failed)
    total = float(right[-1])
    enough = (failed[-1] - failed) / failed[-1] >= TPR
    if enough.all():
        return 0.0, 0.0
    first = int(np.argmin(enough))
    kept = float(right[first] - cells.right[first])
    most = kept
    if cells.mixed[first]:
        most = float(right[first])
    return (total - most) / total, (total - kept) / total


_LIMITS: dict[str, Callable[[_Falling], tuple[float, float]]] = {
    "average_precision": _precision_limits,
    "average_precision_unsafe": _precision_unsafe_limits,
    "fpr95": _fpr_limits,
    "fpr95_unsafe": _fpr_unsafe_limits,
}
