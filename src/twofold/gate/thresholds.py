"""Choose the thresholds of a gate by point estimates: the best over all pairs of thresholds, exactly.

Accept where ``conf_id >= tau_id`` and ``conf_ood >= tau_ood``. An OOD sample has the weight that follows from
``ood_share``. The pairs found here are confidences of samples; :func:`clear_of_samples` moves them into the gaps
between samples, so that rounding in another runtime changes no verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twofold import metrics
from twofold._checks import Array, Mask
from twofold.errors import Infeasible
from twofold.metrics.joint import DoubleCurve
from twofold.metrics.operating_points import ood_weight

SLACK = 1e-12  # a risk above the requested one by rounding alone is allowed


class Thresholds(NamedTuple):
    """Hold the two thresholds of a gate.

    Parameters
    ----------
    tau_id : float
        Threshold of the ID score.
    tau_ood : float
        Threshold of the OOD score.
    """

    tau_id: float
    tau_ood: float


class Costs(NamedTuple):
    """Hold the costs of failures and rejections; accepting a correct label is free.

    Parameters
    ----------
    wrong : float
        Cost of accepting a wrong label.
    ood : float
        Cost of accepting an OOD input.
    reject : float
        Cost of rejecting any input.
    """

    wrong: float
    ood: float
    reject: float


@dataclass(frozen=True, eq=False)
class ScoredSamples:
    """Hold labelled samples with both confidences.

    Parameters
    ----------
    correct : ndarray of shape (n_samples,)
        True where the prediction is correct; False on every OOD sample.
    is_id : ndarray of shape (n_samples,)
        True for ID samples.
    conf_id : ndarray of shape (n_samples,)
        Confidence that the label is correct.
    conf_ood : ndarray of shape (n_samples,)
        Confidence that the input is in-distribution; for a gate of one score the same value everywhere.
    share : float, optional
        OOD share that is expected in deployment; None for that of the samples.
    groups : ndarray of shape (n_samples,), optional
        Groups of dependent rows, numbered 0, 1, ...; None where all rows are independent.
    """

    correct: Mask
    is_id: Mask
    conf_id: Array
    conf_ood: Array
    share: float | None = None
    groups: npt.NDArray[np.int64] | None = None

    def __getitem__(self, rows: np.ndarray) -> ScoredSamples:
        """Select some of the rows; their groups are renumbered."""
        groups = None
        if self.groups is not None:
            _, groups = np.unique(self.groups[rows], return_inverse=True)
        return ScoredSamples(
            correct=self.correct[rows],
            is_id=self.is_id[rows],
            conf_id=self.conf_id[rows],
            conf_ood=self.conf_ood[rows],
            share=self.share,
            groups=groups,
        )

    @property
    def known(self) -> Mask | None:
        """``is_id`` as the metrics take it: None where all samples are ID and no share is set."""
        if self.share is None and self.is_id.all():
            return None
        return self.is_id

    @property
    def weight(self) -> float:
        """Weight of one OOD sample."""
        return ood_weight(self.share, int(self.is_id.sum()), int((~self.is_id).sum()))

    def curve(self) -> DoubleCurve:
        """Compute the least risk at every ID coverage, over all pairs of thresholds.

        Returns
        -------
        DoubleCurve
            Risk, coverage and thresholds at each ID coverage.
        """
        return metrics.ds_risk_coverage_curve(
            self.correct, self.conf_id, self.conf_ood, self.known, ood_share=self.share
        )


def between_neighbours(tau: float, conf: Array) -> float:
    r"""Move a threshold down to the middle of the gap below it, where no confidence lies.

    Let :math:`t` be the threshold, :math:`u` the least confidence with :math:`u \ge t`, and :math:`l` the largest with
    :math:`l < t`. Every :math:`t'` with :math:`l < t' \le u` accepts the same samples, because :math:`c \ge t'
    \iff c \ge u \iff c \ge t` for each confidence c: none lies between l and u. So whatever is counted on these samples
    (coverage, risk, F1, cost, verdicts) is the same at :math:`t' = (l + u) / 2`, and what was best or feasible on them
    stays so. What changes is the distance to the nearest sample: half the gap instead of 0.

    This holds for numbers *of these samples*. A risk guaranteed by testing separate samples is another matter; see
    :mod:`twofold.gate.guarantee`.

    Parameters
    ----------
    tau : float
        The threshold.
    conf : ndarray of shape (n_samples,)
        The confidences it was chosen on.

    Returns
    -------
    float
        The middle of the gap. Below the least confidence there is no gap, so the threshold goes down by half the
        distance between the two least. It stays as it is where it is infinite, where it accepts nothing, where there is
        only one value, and where no number lies between the two neighbours.

    Examples
    --------
    >>> between_neighbours(0.75, np.array([0.25, 0.75, 1.0]))
    0.5
    >>> between_neighbours(0.25, np.array([0.25, 0.75, 1.0]))
    0.0
    """
    levels = np.unique(conf[np.isfinite(conf)])
    at = int(np.searchsorted(levels, tau))
    if not np.isfinite(tau) or at == len(levels):
        return tau
    return min(tau, float(gap_middles(levels)[at]))


def gap_middles(levels: Array) -> Array:
    """Return the middle of the gap below each of some increasing numbers; see :func:`between_neighbours`.

    Parameters
    ----------
    levels : ndarray of shape (n_levels,)
        Finite numbers, strictly increasing.

    Returns
    -------
    ndarray of shape (n_levels,)
        Middles of the gaps; the first lies half the first gap below the least number. A single number, and one without
        room below it, stays as it is.

    Examples
    --------
    >>> gap_middles(np.array([0.25, 0.75, 1.0]))
    array([0.   , 0.5  , 0.875])
    """
    if len(levels) < 2:
        return levels
    with np.errstate(over="ignore"):
        lower = np.append(levels[0] - (levels[1] - levels[0]), levels[:-1])
    middle = lower / 2.0 + levels / 2.0  # halves first: the sum of two large numbers may be infinite
    between = np.isfinite(middle) & (lower < middle) & (middle <= levels)
    return np.where(between, middle, levels)


def lower_threshold(conf: Array, keep: float) -> float:
    """Find the largest threshold that at least this share of confidences reaches.

    Parameters
    ----------
    conf : ndarray of shape (N,)
        Confidences.
    keep : float
        The share, in (0, 1].

    Returns
    -------
    float
        One of the confidences.

    Examples
    --------
    >>> lower_threshold(np.array([0.1, 0.4, 0.2, 0.3]), 0.75)
    0.2
    """
    fewest = max(1, math.ceil(keep * len(conf) * (1.0 - 1e-12)))
    return float(np.sort(conf)[::-1][fewest - 1])


def clear_of_samples(pair: Thresholds, data: ScoredSamples) -> Thresholds:
    """Move both thresholds between neighbouring confidences; see :func:`between_neighbours`.

    Parameters
    ----------
    pair : Thresholds
        Thresholds that were chosen on ``data``.
    data : ScoredSamples
        Samples with both confidences.

    Returns
    -------
    Thresholds
        Thresholds that accept the same samples, away from all of them.
    """
    return Thresholds(between_neighbours(pair.tau_id, data.conf_id), between_neighbours(pair.tau_ood, data.conf_ood))


def best_f1(data: ScoredSamples) -> Thresholds:
    """Choose the pair with the best DS-F1.

    Parameters
    ----------
    data : ScoredSamples
        Labelled samples with both confidences.

    Returns
    -------
    Thresholds
        Thresholds of the exact maximum (:func:`twofold.metrics.ds_f1`).

    Examples
    --------
    >>> correct, is_id = np.array([True, True, False]), np.array([True, True, False])
    >>> best_f1(ScoredSamples(correct, is_id, conf_id=np.array([0.9, 0.8, 0.7]), conf_ood=np.array([3.0, 2.0, 1.0])))
    Thresholds(tau_id=0.8, tau_ood=2.0)
    """
    best = metrics.ds_f1(data.correct, data.conf_id, data.conf_ood, data.known, ood_share=data.share)
    return Thresholds(best.tau_id, best.tau_ood)


def most_coverage(data: ScoredSamples, risk: float) -> Thresholds:
    """Choose the pair with the largest ID coverage among those whose selective risk is at most ``risk``.

    Parameters
    ----------
    data : ScoredSamples
        Labelled samples with both confidences.
    risk : float
        Largest selective risk; differences by rounding alone (1e-12) are allowed.

    Returns
    -------
    Thresholds
        The thresholds.

    Raises
    ------
    Infeasible
        If no pair has such a risk; its ``best`` holds the least ``risk`` and its ``coverage``.

    Examples
    --------
    >>> correct, is_id = np.array([True, True, False]), np.array([True, True, True])
    >>> most_coverage(ScoredSamples(correct, is_id, conf_id=np.array([0.9, 0.8, 0.7]), conf_ood=np.zeros(3)), 0.0)
    Thresholds(tau_id=0.8, tau_ood=0.0)
    """
    curve = data.curve()
    feasible = np.flatnonzero(curve.risk <= risk + SLACK)
    if not len(feasible):
        least = float(curve.risk.min())
        at = float(curve.coverage[np.flatnonzero(curve.risk == least)[-1]])
        raise Infeasible(
            f"no pair of thresholds has a risk of at most {risk:g} on these validation data; "
            f"the least is {least:.4g}, at an ID coverage of {at:.4g}: ask for that, or for other scores",
            {"risk": least, "coverage": at},
        )
    best = feasible[-1]
    return Thresholds(float(curve.tau_id[best]), float(curve.tau_ood[best]))


def least_risk(data: ScoredSamples, coverage: float) -> Thresholds:
    """Choose the pair with the least risk among those that accept at least this share of the ID samples.

    Parameters
    ----------
    data : ScoredSamples
        Labelled samples with both confidences.
    coverage : float
        Least ID coverage, in (0, 1].

    Returns
    -------
    Thresholds
        The thresholds; of equal risks those with the largest coverage.
    """
    curve = data.curve()
    fewest = int(np.ceil(coverage * len(curve.risk) * (1.0 - SLACK)))  # ID samples to accept
    start = max(fewest - 1, 0)
    tail = curve.risk[start:]
    best = start + int(np.flatnonzero(tail <= tail.min() + SLACK)[-1])
    return Thresholds(float(curve.tau_id[best]), float(curve.tau_ood[best]))


def least_cost(data: ScoredSamples, costs: Costs) -> Thresholds:
    """Choose the pair with the least expected cost.

    Accepting a sample saves the cost of its rejection and pays for its failure, so the best pair has the largest sum
    over accepted samples: a sweep over ``conf_ood`` that keeps the largest prefix sum over ``conf_id`` up to date.

    Parameters
    ----------
    data : ScoredSamples
        Labelled samples with both confidences.
    costs : Costs
        Costs of failures and rejections.

    Returns
    -------
    Thresholds
        The thresholds; of equal costs a pair of high thresholds, and +inf where no sample is worth accepting.

    Examples
    --------
    >>> correct, is_id = np.array([True, True, False]), np.array([True, True, True])
    >>> data = ScoredSamples(correct, is_id, conf_id=np.array([0.9, 0.8, 0.7]), conf_ood=np.zeros(3))
    >>> least_cost(data, Costs(wrong=5.0, ood=5.0, reject=1.0))
    Thresholds(tau_id=0.8, tau_ood=0.0)
    """
    weight = np.ones(len(data.is_id))
    if not data.is_id.all():
        weight[~data.is_id] = data.weight
    paid = np.where(data.correct, 0.0, np.where(data.is_id, costs.wrong, costs.ood))
    gain = weight * (costs.reject - paid)
    levels_id, column = np.unique(-data.conf_id, return_inverse=True)
    levels_ood, row = np.unique(-data.conf_ood, return_inverse=True)
    order = np.argsort(row, kind="stable")  # from the largest conf_ood to the least
    ends = np.append(np.flatnonzero(np.diff(row[order])), len(order) - 1)
    # gains by level of conf_id, in blocks, so that a new sample changes the sums of one block alone
    size = max(1, int(np.sqrt(len(levels_id))))
    blocks = -(-len(levels_id) // size)
    cells = np.zeros((blocks, size))
    total, top = np.zeros(blocks), np.zeros(blocks)
    best, found, start = SLACK, Thresholds(np.inf, np.inf), 0
    for end in ends:
        rows = order[start : end + 1]
        start = end + 1
        np.add.at(cells, (column[rows] // size, column[rows] % size), gain[rows])
        for block in np.unique(column[rows] // size):
            sums = np.cumsum(cells[block])
            total[block], top[block] = sums[-1], sums.max()
        reach = np.cumsum(total) - total + top  # largest prefix sum that ends in each block
        block = int(reach.argmax())
        if reach[block] > best * (1.0 + SLACK):
            best = float(reach[block])
            place = min(block * size + int(np.cumsum(cells[block]).argmax()), len(levels_id) - 1)
            found = Thresholds(float(-levels_id[place]), float(-levels_ood[row[rows[0]]]))
    return found
