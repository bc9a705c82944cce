"""Compute what two confidences add: DS-F1, exact by refinement, and DS-AURC, exact for few rows and bounded for many.

DS-F1: one scan counts the rows on a grid of cells of both confidences. A pair of thresholds inside a cell accepts at
most the correct rows of the corner after the cell and at least the failures of the corner before it, which bounds its
F1. Only cells whose bound is above the best corner can hold a better pair, so that only the rows that such thresholds
tell apart are read. Where they are too many, their region is cut into finer cells first.

DS-AURC: pairs that accept *at least* k ID rows are bounded by the same counts (``ds_aurc_monotone``). Pairs that accept
*exactly* k (``ds_aurc``) are among them, so the lower bound is shared. The upper bound needs ID rows of distinct
confidences: see :func:`_area_limit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twofold._checks import AnyArray, Array
from twofold.errors import UndefinedMetric, UnfitData
from twofold.logs.cells import WORKERS, Batches, Cuts, fold, sample_rows
from twofold.logs.ordered import Counts
from twofold.logs.tables import LogTable
from twofold.metrics import Bounded, PairSummary
from twofold.metrics._samples import Samples
from twofold.metrics.joint import _best_pair, _Plane
from twofold.metrics.operating_points import ood_weight
from twofold.metrics.streams import _corners

PAIR_METRICS = ("ds_f1", "ds_aurc", "ds_aurc_monotone")
COLUMNS = ("conf", "conf_ood", "kind")
CELLS = 512  # of each confidence
ROWS_AT_ONCE = 1_000_000  # that are read to settle the best pair
ROWS_AT_MOST = 20_000_000  # that are read where finer cells do not help
ROWS_OF_AREA = 200_000  # of which DS-AURC is exact: it takes a second or two
PASSES = 8  # most scans of finer cells

TIED = "ID rows share confidences, so that counts do not tell which numbers of them are attained; see ds_aurc_monotone"
NO_ID = "is_id is False everywhere; joint metrics need at least one ID sample"


@dataclass(frozen=True)
class PairPart:
    """Hold what two confidences add to an evaluation.

    Parameters
    ----------
    values : dict of str to float
        Values by metric, NaN where one is undefined.
    reasons : dict of str to str
        Why a metric is undefined.
    bounds : dict of str to Bounded
        The intervals that contain the exact values of metrics that are not exact.
    """

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, Bounded] = field(default_factory=dict)

    def undefine(self, names: Iterable[str], reason: str) -> None:
        """Say why metrics are undefined.

        Parameters
        ----------
        names : iterable of str
            The metrics; those of one confidence are passed over.
        reason : str
            Why.
        """
        for name in names:
            if name in PAIR_METRICS:
                self.values[name], self.reasons[name] = math.nan, reason

    def bound(self, name: str, bounded: Bounded) -> None:
        """Add a metric with its interval.

        Parameters
        ----------
        name : str
            The metric.
        bounded : Bounded
            The interval; a single point counts as exact.
        """
        self.values[name] = bounded.value
        if not bounded.exact:
            self.bounds[name] = bounded


def pair_values(kind: AnyArray, conf: Array, conf_ood: Array, names: tuple[str, ...], share: float | None) -> PairPart:
    """Compute the metrics of two confidences of rows in memory.

    Parameters
    ----------
    kind : ndarray of int8, shape (n,)
        0 for correct, 1 for wrong and 3 for OOD rows.
    conf, conf_ood : ndarray of float64, shape (n,)
        The confidences.
    names : tuple of str
        The metrics that are wanted.
    share : float or None
        Share of OOD samples expected in deployment.

    Returns
    -------
    PairPart
        The metrics.
    """
    from twofold import metrics

    right, known = kind == 0, kind != 3
    part = PairPart()
    try:
        if "ds_f1" in names:
            part.values["ds_f1"] = metrics.ds_f1(right, conf, conf_ood, known, ood_share=share).value
        if not _wants_area(names):
            return part
        if len(kind) > ROWS_OF_AREA:
            summary = PairSummary(CELLS).update(right, conf, conf_ood, known)
            untied = _is_untied(conf[known]) or _is_untied(conf_ood[known])
            _bound_areas(part, summary, names, share, untied)
            return part
        curve = metrics.ds_risk_coverage_curve(right, conf, conf_ood, known, ood_share=share)
        if "ds_aurc" in names:
            part.values["ds_aurc"] = float(curve.risk.mean())
        if "ds_aurc_monotone" in names:
            least_from_here_on = np.minimum.accumulate(curve.risk[::-1])
            part.values["ds_aurc_monotone"] = float(least_from_here_on.mean())
    except UndefinedMetric as error:
        part.undefine(names, str(error))
    return part


def _wants_area(names: tuple[str, ...]) -> bool:
    return "ds_aurc" in names or "ds_aurc_monotone" in names


def _is_untied(conf: Array) -> bool:
    """Check whether all confidences differ."""
    return len(np.unique(conf)) == len(conf)


def _bound_areas(
    part: PairPart, summary: PairSummary, names: tuple[str, ...], share: float | None, untied: bool
) -> None:
    """Add the bounds of both forms of DS-AURC; ``untied`` says that ID rows differ in one of the confidences."""
    monotone = summary.ds_aurc(ood_share=share)
    if "ds_aurc_monotone" in names:
        part.bound("ds_aurc_monotone", monotone)
    if "ds_aurc" not in names:
        return
    if summary.exact:
        part.bound("ds_aurc", summary.ds_aurc(monotone=False, ood_share=share))
        return
    if not untied:
        part.undefine(["ds_aurc"], TIED)
        return
    high = max(_area_limit(summary, share), monotone.value)
    part.bound("ds_aurc", Bounded(monotone.value, monotone.low, high))


def _area_limit(summary: PairSummary, share: float | None) -> float:
    """Bound DS-AURC from above, for ID rows that differ in one confidence.

    A corner of cells accepts K ID rows and failures of weight F, of which OOD rows weigh O. Raising the threshold of
    the confidence without ties rejects ID rows one by one, so that every k <= K is attained by a pair that accepts no
    more failures: the least risk at exactly k ID rows is at most F / (k + O).
    """
    from twofold.logs._kernels import sum_level_limits

    right, wrong, outside = (float(total) for total in summary._counts.sum(axis=(0, 1)))
    known = right + wrong
    weight = ood_weight(share, known, outside) if share is not None else 1.0
    at = _corners(summary._axes, summary._counts, weight)
    order = np.argsort(-at.known.ravel(), kind="stable")
    limits = sum_level_limits(at.known.ravel()[order], at.failed.ravel()[order], weight * at.outside.ravel()[order])
    return float(limits / known)


def refine_pairs(plain: LogTable, total: Counts, names: tuple[str, ...], share: float | None, untied: bool) -> PairPart:
    """Compute the metrics of two confidences of a table.

    Parameters
    ----------
    plain : LogTable
        Columns ``kind``, ``conf`` and ``conf_ood``.
    total : ndarray of int, shape (3,)
        Correct, wrong and OOD rows.
    names : tuple of str
        The metrics that are wanted.
    share : float or None
        Share of OOD samples expected in deployment.
    untied : bool
        Whether all ID rows differ in one of the confidences.

    Returns
    -------
    PairPart
        The metrics.
    """
    part = PairPart()
    if not any(name in names for name in PAIR_METRICS):
        return part
    if total[0] + total[1] == 0:
        part.undefine(names, NO_ID)
        return part
    if total.sum() <= ROWS_AT_ONCE:
        rows = _read_all(plain)
        return pair_values(rows["kind"], rows["conf"], rows["conf_ood"], names, share)
    sampled = sample_rows(plain, ("conf", "conf_ood"))
    cuts = Cuts.of(sampled[0], CELLS), Cuts.of(sampled[1], CELLS)
    grid = _Grid.count(plain, cuts)
    if _wants_area(names):
        _bound_areas(part, grid.summary, names, share, untied)
    if "ds_f1" in names:
        part.bound("ds_f1", _refine_f1(plain, grid, sampled, total, share))
    return part


def _read_all(plain: LogTable) -> dict[str, AnyArray]:
    parts = fold(plain, COLUMNS, _join_batches)
    columns = {}
    for place, name in enumerate(COLUMNS):
        columns[name] = np.concatenate([part[place] for part in parts])
    return columns


def _join_batches(batches: Batches) -> tuple[AnyArray, ...]:
    held = [(np.empty(0), np.empty(0), np.empty(0, np.int8))]
    for batch in batches:
        held.append((batch["conf"], batch["conf_ood"], batch["kind"]))
    return tuple(np.concatenate(column) for column in zip(*held, strict=True))


@dataclass(frozen=True, eq=False)
class _Grid:
    """Hold the counts of a table on a grid of cells."""

    cuts: tuple[Cuts, Cuts]
    counts: Counts
    ends: list[Array]

    @classmethod
    def count(cls, plain: LogTable, cuts: tuple[Cuts, Cuts]) -> _Grid:
        """Count the rows in one scan."""
        first, second = (len(one.edges) + 1 for one in cuts)
        parts = fold(plain, COLUMNS, _PairCounter(cuts), workers=WORKERS)
        counts = np.sum([part[0] for part in parts], axis=0)
        ends = np.empty((4, max(first, second)))
        ends[0::2] = np.min([part[1][0::2] for part in parts], axis=0)
        ends[1::2] = np.max([part[1][1::2] for part in parts], axis=0)
        return cls(cuts, counts, [ends[0, :first], ends[1, :first], ends[2, :second], ends[3, :second]])

    @property
    def summary(self) -> PairSummary:
        return PairSummary.from_counts((self.cuts[0].edges, self.cuts[1].edges), self.ends, self.counts)


@dataclass(frozen=True)
class _PairCounter:
    """Count the rows of batches on a grid of cells, with the ends of the cells of each axis."""

    cuts: tuple[Cuts, Cuts]

    def __call__(self, batches: Batches) -> tuple[AnyArray, ...]:
        from twofold.logs._kernels import count_pairs

        id_cuts, ood_cuts = self.cuts
        first, second = len(id_cuts.edges) + 1, len(ood_cuts.edges) + 1
        counts = np.zeros((first, second, 3), np.int64)
        ends = np.empty((4, max(first, second)))
        ends[0::2], ends[1::2] = np.inf, -np.inf
        for batch in batches:
            count_pairs(
                batch["conf"], batch["conf_ood"], batch["kind"], *id_cuts.lookup, *ood_cuts.lookup, counts, ends
            )
        return counts, ends


@dataclass(frozen=True)
class _Region:
    """Hold the box of confidences in which a better pair of thresholds may lie: low <= tau < high on each axis."""

    low_id: float
    high_id: float
    low_ood: float
    high_ood: float
    rows: int  # that thresholds in the box tell apart


def _refine_f1(plain: LogTable, grid: _Grid, sampled: tuple[Array, ...], total: Counts, share: float | None) -> Bounded:
    """Find the best F1 over all pairs of thresholds."""
    best = grid.summary.ds_f1(ood_share=share)
    rows = int(total.sum())
    for _ in range(PASSES):
        region = _find_region(grid, best.value, total, share)
        if region is None:
            return Bounded(best.value, best.value, best.value)
        no_smaller = region.rows > 0.9 * rows  # finer cells no longer help
        if region.rows <= ROWS_AT_ONCE or (no_smaller and region.rows <= ROWS_AT_MOST):
            value = max(best.value, _best_inside(plain, grid, region, total, share))
            return Bounded(value, value, value)
        if no_smaller:
            break
        rows = region.rows
        grid = _Grid.count(plain, _cut_finer(sampled, region))
        found = grid.summary.ds_f1(ood_share=share)
        value = max(best.value, found.value)
        best = Bounded(value, value, max(value, min(best.high, found.high)))
    return best


def _find_region(grid: _Grid, best: float, total: Counts, share: float | None) -> _Region | None:
    """Find the box of all cells whose bound is above the best value; None if there is no such cell."""
    summary = grid.summary
    inside = float(total[0] + total[1])
    weight = ood_weight(share, inside, float(total[2])) if share is not None else 1.0
    at = _corners(summary._axes, summary._counts, weight)
    bound = 2.0 * at.right / (at.right + at.least_failed + inside)
    i, j = np.nonzero(bound > best * (1.0 + 1e-15))
    if len(i) == 0:
        return None
    edges_id, edges_ood = grid.cuts[0].edges, grid.cuts[1].edges
    low_id, high_id = _box(edges_id, at.tau_id[i.max()], at.tau_id[i.min()])
    low_ood, high_ood = _box(edges_ood, at.tau_ood[j.max()], at.tau_ood[j.min()])
    first = np.searchsorted(edges_id, [low_id, high_id], side="right")
    second = np.searchsorted(edges_ood, [low_ood, high_ood], side="right")
    reached = grid.counts[first[0] :, second[0] :].sum()
    above = grid.counts[_top(first[1], high_id) :, _top(second[1], high_ood) :].sum()
    return _Region(low_id, high_id, low_ood, high_ood, int(reached - above))


def _box(edges: Array, lowest: float, highest: float) -> tuple[float, float]:
    """Return the cuts around the cells of two values; -inf and inf where there is none."""
    below = int(np.searchsorted(edges, lowest, side="right"))
    above = int(np.searchsorted(edges, highest, side="right"))
    low = float(edges[below - 1]) if below else -math.inf
    high = float(edges[above]) if above < len(edges) else math.inf
    return low, high


def _top(cell: Any, high: float) -> int:
    """Return the first cell above a box; none is above inf."""
    return int(cell) if high < math.inf else 1 << 62


def _cut_finer(sampled: tuple[Array, ...], region: _Region) -> tuple[Cuts, Cuts]:
    """Spend all cells on the box."""
    finer = []
    boxes = ((region.low_id, region.high_id), (region.low_ood, region.high_ood))
    for values, (low, high) in zip(sampled, boxes, strict=True):
        inside = Cuts.of(values[(values >= low) & (values < high)], CELLS - 2)
        limits = [limit for limit in (low, high) if math.isfinite(limit)]
        finer.append(Cuts.at(np.unique(np.concatenate((inside.edges, limits)))))
    return finer[0], finer[1]


def _best_inside(plain: LogTable, grid: _Grid, region: _Region, total: Counts, share: float | None) -> float:
    """Find the best F1 over the thresholds of the box, from the rows that they tell apart.

    Rows above the box on one axis are accepted there by every threshold of the box, so their confidence is as good as
    inf; rows above it on both axes are counted, and stand as three samples with these counts.
    """
    import narwhals as nw

    conf, conf_ood = nw.col("conf"), nw.col("conf_ood")
    near = (conf >= region.low_id) & (conf_ood >= region.low_ood)
    if math.isfinite(region.high_id) and math.isfinite(region.high_ood):
        near = near & ((conf < region.high_id) | (conf_ood < region.high_ood))
    part = LogTable(plain.frame.filter(near), plain.engine, plain.names, plain.files)
    rows = _read_all(part)
    first = np.where(rows["conf"] >= region.high_id, np.inf, rows["conf"])
    second = np.where(rows["conf_ood"] >= region.high_ood, np.inf, rows["conf_ood"])
    top_id = int(np.searchsorted(grid.cuts[0].edges, region.high_id, side="right"))
    top_ood = int(np.searchsorted(grid.cuts[1].edges, region.high_ood, side="right"))
    above = grid.counts[_top(top_id, region.high_id) :, _top(top_ood, region.high_ood) :].sum(axis=(0, 1))
    filled = np.flatnonzero(above)
    kind = np.concatenate((rows["kind"], np.array([0, 1, 3])[filled]))
    counts = np.concatenate((np.ones(len(first), np.int32), above[filled].astype(np.int32)))
    far = np.full(len(filled), np.inf)
    right = kind == 0
    if not right.any():
        return 0.0
    data = Samples(
        correct=right,
        is_id=kind != 3,
        confs=(np.concatenate((first, far)), np.concatenate((second, far))),
        inside=int(total[0] + total[1]),
        right=int(total[0]),
        outside=int(total[2]),
        share=share,
    )
    try:
        hit, known, outside, _, _ = _best_pair(data, _Plane.of(data, right), counts)
    except UnfitData:
        return 0.0
    return data.point(hit, known, data.weight * outside)["value"]
