"""Resample counts in cells of equal mass, for intervals of metrics of any number of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from twofold import _checks
from twofold.errors import UndefinedMetric
from twofold.logs.ordered import Counts, weigh_ood
from twofold.metrics import info
from twofold.metrics._sweep import Sweep
from twofold.metrics.evaluate import STANDARD_WITH_ID
from twofold.stats import Interval

CELLS = 4096  # of a table
CELLS_OF_GROUP = 512  # of each of many groups


def cell_intervals(
    cells: Counts, values: Mapping[str, float], *, share: float | None, n: int, level: float, seed: int
) -> dict[str, Interval]:
    """Compute percentile intervals by resampling counts.

    The rows of a cell are taken as tied, which moves a metric a little. The same move is made by every resample, so the
    resampled values are shifted by the distance of the exact value from that of the cells.

    Parameters
    ----------
    cells : ndarray of int, shape (n_cells, 3)
        Correct, wrong and OOD rows, most confident cell first.
    values : mapping of str to float
        Exact values by metric; those that have no form on counts are left out.
    share : float or None
        Share of OOD samples expected in deployment.
    n : int
        Number of resamples.
    level : float
        Level of the intervals.
    seed : int
        Seed of the resamples.

    Returns
    -------
    dict of str to Interval
        Intervals by metric.

    Examples
    --------
    >>> cells = np.array([[9, 1, 0], [5, 5, 0]])
    >>> cell_intervals(cells, {"accuracy": 0.7}, share=None, n=200, level=0.95, seed=0)["accuracy"].high <= 1
    True
    """
    _checks.number(level, "level", 0, 1, open_low=True, open_high=True)
    names = [name for name in values if not math.isnan(values[name]) and _has_form(name)]
    used = cells[cells.sum(axis=1) > 0]
    start = _values(used, names, share)
    generator = np.random.default_rng(seed)
    replicates: dict[str, list[float]] = {name: [] for name in names}
    known, outside = used[:, :2].ravel(), used[:, 2]
    drawn = np.empty_like(used)
    for _ in range(n):
        drawn[:, :2] = _draw(generator, known).reshape(-1, 2)
        drawn[:, 2] = _draw(generator, outside)
        for name, value in _values(drawn, names, share).items():
            replicates[name].append(value + values[name] - start[name])
    tail = (1.0 - level) / 2.0
    intervals = {}
    for name in names:
        low, high = _percentiles(np.array(replicates[name]), tail)
        intervals[name] = Interval(values[name], low, high, level, n, "percentile", seed)
    return intervals


def _has_form(name: str) -> bool:
    return name != "ds_aurc_monotone" and info(name).sweep is not None


def _percentiles(values: np.ndarray, tail: float) -> tuple[float, float]:
    defined = values[~np.isnan(values)]
    if len(defined) == 0:
        return math.nan, math.nan
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


def _draw(generator: np.random.Generator, counts: Counts) -> Counts:
    """Draw as many rows as there are, with replacement."""
    total = int(counts.sum())
    if total == 0:
        return counts
    return generator.multinomial(total, counts / total)


def _values(cells: Counts, names: list[str], share: float | None) -> dict[str, float]:
    """Compute metrics of counts, the rows of a cell taken as tied."""
    right, wrong, outside = np.cumsum(cells, axis=0).T.astype(np.float64)
    known = right + wrong
    weight = weigh_ood(share, cells.sum(axis=0))
    accepted = known + weight * outside
    filled = np.diff(accepted, prepend=0.0) > 0
    failures = Sweep(
        np.empty(0), accepted[filled], (wrong + weight * outside)[filled], known[filled], weight, right[filled]
    )
    everything = known + outside
    some = np.diff(everything, prepend=0.0) > 0
    id_against_ood = Sweep(np.empty(0), everything[some], outside[some], everything[some])
    values = {}
    for name in names:
        record = info(name)
        source = id_against_ood if name in STANDARD_WITH_ID and record.task == "ood" else failures
        try:
            values[name] = record.sweep(source) if record.sweep is not None else math.nan
        except UndefinedMetric:
            values[name] = math.nan
    return values
