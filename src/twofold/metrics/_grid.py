"""Threshold grids: the paper's quantile grid, and the linear grid of its released code.

Both count what each threshold (pair) accepts by a histogram and reverse cumulative sums, so the cost is that of
the grid plus one look at every sample. They exist for millions of rows and to reproduce printed numbers; the
exact methods need no grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold._checks import Array, Mask
from twofold.metrics.operating_points import quantile_thresholds

PUBLISHED_THRESHOLDS = 1001
PUBLISHED_BINS = 100
EPS = 1e-12  # the released code adds it to every denominator


@dataclass(frozen=True, eq=False)
class Accepted:
    """Hold counts at every threshold (one score) or pair of thresholds (two scores; ID score first)."""

    thresholds: tuple[Array, ...]
    right: Array
    known: Array
    outside: Array  # weighted OOD count

    @property
    def total(self) -> Array:
        """Accepted weight."""
        return np.asarray(self.known + self.outside)


def accepted(
    confs: tuple[Array, ...], thresholds: tuple[Array, ...], correct: Mask, is_id: Mask, weight: float
) -> Accepted:
    """Count right, ID and OOD samples with ``conf >= threshold`` on every axis."""
    shape = tuple(len(t) + 1 for t in thresholds)
    cells = np.ravel_multi_index(
        [np.searchsorted(t, c, side="right") for c, t in zip(confs, thresholds, strict=True)], shape
    )

    def count(kind: Mask) -> Array:
        table = np.bincount(cells[kind], minlength=int(np.prod(shape))).reshape(shape)
        for axis in range(len(shape)):
            table = np.flip(np.cumsum(np.flip(table, axis), axis=axis), axis)
        return table[(slice(1, None),) * len(shape)].astype(np.float64)

    return Accepted(thresholds, count(correct), count(is_id), weight * count(~is_id))


def linear_thresholds() -> Array:
    """Return 0, 0.001, ..., 1 in single precision, as released."""
    return np.linspace(0.0, 1.0, PUBLISHED_THRESHOLDS, dtype=np.float32).astype(np.float64)


def single_precision(conf: Array) -> Array:
    """Return the score as released for the ID axis: raw, in single precision."""
    with np.errstate(over="ignore"):
        return conf.astype(np.float32).astype(np.float64)


def min_max(conf: Array) -> Array:
    """Scale a score to [0, 1] over the pooled test samples, in single precision, as released for the OOD axis."""
    score = conf.astype(np.float32)
    low, high = score.min(), score.max()
    return ((score - low) / (high - low + np.float32(EPS))).astype(np.float64)


class DoubleHistogram:
    """Compute DS-F1 and DS-AURC of resamples over a grid of quantile thresholds, in a few milliseconds each.

    Values are centred: a resample is worth what it is on the grid, plus the exact value of all rows, less their value
    on the grid. With at most ``thresholds`` distinct scores on each axis that is exact.
    """

    def __init__(self, correct: Mask, conf_id: Array, conf_ood: Array, is_id: Mask, thresholds: int = 512) -> None:
        from twofold._kernels import OUTSIDE, RIGHT, WRONG

        axes = [quantile_thresholds(conf, thresholds) for conf in (conf_id, conf_ood)]
        self.cells = [
            (np.searchsorted(axis, conf, side="right") - 1).astype(np.int32)
            for axis, conf in zip(axes, (conf_id, conf_ood), strict=True)
        ]
        self.kinds = np.where(correct, RIGHT, np.where(is_id, WRONG, OUTSIDE)).astype(np.uint8)
        self.table = np.empty((3, len(axes[0]), len(axes[1])), np.int32)
        self.start = self.on_grid(np.ones(len(correct), np.uint8))

    def on_grid(self, weights: npt.NDArray[np.uint8]) -> dict[str, float]:
        """Compute DS-F1 and DS-AURC over pairs of the grid, with row i counted ``weights[i]`` times."""
        from twofold._kernels import double_histogram

        least = np.empty(int(weights.sum()) + 1)
        best, area = double_histogram(*self.cells, self.kinds, weights, self.table, least)
        return {"ds_f1": best, "ds_aurc": area}

    def centred(self, weights: npt.NDArray[np.uint8], exact: Mapping[str, float]) -> dict[str, float]:
        """Compute both metrics of a resample, given those of all rows."""
        drawn = self.on_grid(weights)
        return {name: exact[name] + drawn[name] - self.start[name] for name in exact}


def published_f1(table: Accepted, inside: float) -> Array:
    """Compute F1 at every threshold with the released code's guarded denominators."""
    precision = table.right / (table.total + EPS)
    recall = table.right / (inside + EPS)
    return np.asarray(2.0 * precision * recall / (precision + recall + EPS))


def binned_area(table: Accepted, inside: int, bins: int) -> float:
    """Average over ``bins`` coverage bins (j/K, (j+1)/K] the least risk in the bin.

    A bin without points takes the next one to the right; thresholds that accept no ID sample are in no bin.
    """
    some = table.known > 0
    known = table.known[some].astype(np.int64)
    risk = 1.0 - table.right[some] / table.total[some]
    least = _least(risk, (known * bins - 1) // inside, bins)
    return float(_fill_from_right(least, 1.0).mean())


def published_area(table: Accepted, inside: int) -> float:
    """Integrate as released: half-open bins, empty accept set at risk 1, trapezoid over bin centres only."""
    risk = 1.0 - table.right / (table.total + EPS)
    place = table.known.astype(np.int64) * PUBLISHED_BINS // inside
    least = _least(risk.ravel(), place.ravel(), PUBLISHED_BINS)
    filled = _fill_from_right(least, 1.0)
    return float(np.sum((filled[1:] + filled[:-1]) / 2.0) / PUBLISHED_BINS)


def _least(risk: Array, place: npt.NDArray[np.int64], bins: int) -> Array:
    least = np.full(bins, np.inf)
    inside = place < bins
    np.minimum.at(least, place[inside], risk[inside])
    return least


def _fill_from_right(values: Array, last: float) -> Array:
    """Replace inf by the next finite value to the right, or by ``last``.

    >>> _fill_from_right(np.array([np.inf, 0.2, np.inf]), 1.0)
    array([0.2, 0.2, 1. ])
    """
    filled = np.append(values, last)
    index = np.where(np.isfinite(filled), np.arange(len(filled)), len(values))
    return np.asarray(filled[np.minimum.accumulate(index[::-1])[::-1]][:-1])
