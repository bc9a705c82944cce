r"""Metrics of both failures at once: accept where the ID score *and* the OOD score are high enough.

For thresholds :math:`(\tau_{id}, \tau_{ood})` the accepted set is
:math:`A = \{i : s_{id}(i) \ge \tau_{id},\ s_{ood}(i) \ge \tau_{ood}\}`. Its true accepts TA are the ID samples that are
predicted correctly; everything else in A is a false accept. With k accepted ID samples of :math:`n_{ID}`:

* precision :math:`TA/|A|`, recall :math:`TA/n_{ID}`, so :math:`F_1 = 2\,TA / (|A| + n_{ID})`;
* ID coverage :math:`k / n_{ID}`, selective risk :math:`1 - TA/|A|`.

The exact methods search **every** pair of thresholds, ties included; they depend on ranks alone and are symmetric in
the two scores. Raising a threshold to the lowest accepted ID score keeps k and TA and can only drop OOD samples, so
thresholds at ID scores suffice (at scores of correct predictions, for F1).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Mask, NaNPolicy
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.metrics import _grid
from twofold.metrics._registry import register_metric
from twofold.metrics._samples import Samples
from twofold.metrics._sweep import Sweep, Weighted, Weights, sweep, sweep_weighted
from twofold.metrics.operating_points import DoublePoint, Method, OperatingPoint
from twofold.metrics.selective import _aurc, _aurc_weighted, aurc

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import F1SurfaceDisplay, RiskCoverageDisplay
    from twofold.plot.themes import ThemeName

__all__ = [
    "DoubleCurve",
    "Surface",
    "aurc_id",
    "ds_aurc",
    "ds_f1",
    "ds_risk_coverage_curve",
    "f1",
    "f1_surface",
]

_PAPER = "From Misclassifications to Outliers, arXiv:2603.03903"


@dataclass(frozen=True, eq=False)
class DoubleCurve:
    r"""Hold the least risk at each ID coverage level and a pair of thresholds that attains it.

    The levels are :math:`k / n_{ID}` for :math:`k = 1, \dots, n_{ID}`.

    Parameters
    ----------
    coverage : array of shape (n_id,)
        ID coverage, rising to 1.
    risk : array of shape (n_id,)
        Least selective risk at each level.
    tau_id : array of shape (n_id,)
        Threshold on ``conf_id`` of the pair that attains the risk.
    tau_ood : array of shape (n_id,)
        Threshold on ``conf_ood`` of that pair.
    monotone : bool
        Whether a level may use pairs that accept more ID samples than it asks for.

    Notes
    -----
    Ties can leave a level that no pair attains exactly; it repeats the next attained level. In a ``monotone`` curve
    every level takes the best one at or above it.

    Examples
    --------
    >>> curve = ds_risk_coverage_curve([1, 0, 0], [0.9, 0.5, 0.7], [3.0, 2.0, 1.0], [1, 1, 0])
    >>> curve.coverage, curve.risk
    (array([0.5, 1. ]), array([0. , 0.5]))
    """

    coverage: Array
    risk: Array
    tau_id: Array
    tau_ood: Array
    monotone: bool

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, theme: ThemeName | None = None
    ) -> RiskCoverageDisplay:
        """Draw the least risk over ID coverage.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        name : str, optional
            Name in the legend.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        RiskCoverageDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import RiskCoverageDisplay

        return RiskCoverageDisplay.from_curve(self, name=name).plot(ax, theme=theme)


@dataclass(frozen=True, eq=False)
class Surface:
    """Hold F1, risk and ID coverage over a grid of threshold pairs.

    Parameters
    ----------
    tau_id : array of shape (n_rows,)
        Thresholds on ``conf_id``, rising; one for each row.
    tau_ood : array of shape (n_columns,)
        Thresholds on ``conf_ood``, rising; one for each column.
    f1 : array of shape (n_rows, n_columns)
        F1 of accepting correct predictions.
    risk : array of shape (n_rows, n_columns)
        Selective risk; 0 where nothing is accepted.
    coverage : array of shape (n_rows, n_columns)
        Share of the ID samples that is accepted.

    Examples
    --------
    >>> f1_surface([1, 0], [0.9, 0.5], [1.0, 2.0], grid=2).coverage
    array([[1. , 0.5],
           [0.5, 0. ]])
    """

    tau_id: Array
    tau_ood: Array
    f1: Array
    risk: Array
    coverage: Array

    def plot(
        self,
        ax: Axes | None = None,
        *,
        quantity: Literal["f1", "risk", "coverage"] = "f1",
        theme: ThemeName | None = None,
    ) -> F1SurfaceDisplay:
        """Draw F1, risk or coverage over both thresholds.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        quantity : {"f1", "risk", "coverage"}, default="f1"
            What the colours show.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        F1SurfaceDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import F1SurfaceDisplay

        return F1SurfaceDisplay.from_surface(self, quantity=quantity).plot(ax, theme=theme)


def _method(method: str) -> None:
    _checks.choice(method, "method", ("exact", "grid", "published"))


# One score


def _f1_point(s: Sweep) -> tuple[int, float]:
    f1 = 2.0 * s.right / (s.accepted + s.known[-1])
    best = int(np.argmax(f1))  # the first maximiser accepts fewest
    return best, float(f1[best])


def _f1(s: Sweep) -> float:
    if s.known[-1] == 0:
        raise UndefinedMetric("f1 needs at least one ID sample")
    return _f1_point(s)[1]


@register_metric(
    "f1",
    task="joint",
    better="higher",
    bounds=(0, 1),
    formula=r"\max_\tau 2\,TA / (|A| + n_{ID})",
    reference=_PAPER,
    sweep=_f1,
    weighted=sweep_weighted(_f1),
)
def f1(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    method: Method = "exact",
    thresholds: int = 1000,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> OperatingPoint:
    r"""Compute the best F1 of accepting correct predictions with one threshold, over every threshold.

    .. math:: \max_\tau \frac{2\,TA(\tau)}{|A(\tau)| + n_{ID}}

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.
    method : {"exact", "grid", "published"}, default="exact"
        Which thresholds to search, as in :func:`ds_f1`. Keep ``exact``, except to reproduce printed numbers.
    thresholds : int, default=1000
        Number of quantile thresholds of ``method="grid"``, at least 2; other methods ignore it.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1). Each OOD sample then weighs
        share / (1 - share) * n_ID / n_OOD. By default every sample weighs 1.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    OperatingPoint
        The best F1 as ``value``, its ``threshold``, and what the threshold accepts.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, ``correct`` is True on an OOD sample, or a
        setting is out of range. ``ood_share`` needs ``is_id``. ``method="published"`` has no ``ood_share`` and needs
        scores that are finite in single precision.
    UnfitData
        If there is no ID sample, or no OOD sample to apply ``ood_share`` to.

    Notes
    -----
    Among maximising thresholds the one that accepts fewest is returned; it is the confidence of a correct prediction.
    Without any correct prediction the value is 0 and the threshold is ``inf``.

    References
    ----------
    From Misclassifications to Outliers (SURE+), arXiv:2603.03903.

    Examples
    --------
    >>> f1([True, True, False, False], [0.9, 0.6, 0.5, 0.7], [True, True, True, False]).value
    0.6666666666666666
    """
    _method(method)
    if method != "exact":
        data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf=conf)
        point, (threshold,) = data.best_on_grid(method, thresholds)
        return OperatingPoint(threshold=threshold, method=method, **point)
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf=conf)
    s = sweep(data.correct, data.confs[0], is_id=data.is_id, ood_share=data.share, levels=True)
    best, value = _f1_point(s)
    if value == 0.0:
        return OperatingPoint(threshold=np.inf, method=method, **data.point(0.0, 0.0, 0.0))
    outside = float(s.accepted[best] - s.known[best])
    point = data.point(float(s.right[best]), float(s.known[best]), outside)
    return OperatingPoint(threshold=float(s.level[best]), method=method, **point)


@register_metric(
    "aurc_id",
    task="joint",
    coverage="id",
    better="lower",
    bounds=(0, 1),
    formula=r"\frac{1}{n_{ID}}\sum_{i \in ID} R(g_i)",
    reference=_PAPER,
    sweep=lambda s: _aurc(s, coverage="id"),
    weighted=partial(_aurc_weighted, coverage="id"),
)
def aurc_id(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the AURC of one score over ID coverage, with accepted OOD samples as failures.

    .. math:: \frac{1}{n_{ID}} \sum_{i \in ID} R(g_i)

    where :math:`R(g_i)` is the selective risk of accepting every sample, ID or OOD, at least as confident as sample i
    (Eq. 4-6 of the SURE+ paper). It equals ``aurc(..., coverage="id")`` and is the single-score value that DS-AURC,
    :func:`ds_aurc`, improves on.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
        sample weighs 1.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    float
        The area, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If the arrays do not fit together, hold NaN, ``correct`` is True on an OOD sample, or ``ood_share`` is out of
        range or lacks ``is_id``.
    UnfitData
        If there is no ID sample, or no OOD sample to apply ``ood_share`` to.

    Notes
    -----
    Tied confidences are accepted together and share one risk, so the order of samples does not matter.

    References
    ----------
    From Misclassifications to Outliers (SURE+), arXiv:2603.03903.

    Examples
    --------
    >>> aurc_id([True, False], [0.9, 0.8], [True, False])
    0.0
    """
    return aurc(correct, conf, is_id=is_id, ood_share=ood_share, coverage="id", nan=nan)


# Two scores, exactly


@dataclass(frozen=True, eq=False)
class _Plane:
    """Hold samples in rank space: columns are levels of conf_id, rows levels of conf_ood, both most confident first.

    A sample sits at the highest threshold it passes on each axis; samples below every threshold are dropped.
    Sorted by row, then column and kind, so that nothing depends on the order of samples.
    """

    tau_id: Array
    tau_ood: Array
    starts: npt.NDArray[np.int64]  # samples of row r are starts[r] to starts[r + 1]
    columns: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.int8]
    samples: npt.NDArray[np.int64]  # where each came from

    @classmethod
    def of(cls, data: Samples, thresholds_at: Mask) -> _Plane:
        """Place samples on the plane whose thresholds are the scores of ``thresholds_at``; metrics differ in it."""
        from twofold._kernels import OUTSIDE, RIGHT, WRONG, order_samples

        both = ((conf, thresholds_at) for conf in data.confs)
        if len(data.correct) < _LINES:
            (tau_id, column), (tau_ood, row) = (_levels(*one) for one in both)
        else:
            with ThreadPoolExecutor(2) as pool:  # sorting releases the GIL
                (tau_id, column), (tau_ood, row) = pool.map(lambda one: _levels(*one), both)
        keep = np.flatnonzero((column < len(tau_id)) & (row < len(tau_ood)))
        kind = np.where(data.correct, RIGHT, np.where(data.is_id, WRONG, OUTSIDE))[keep]
        row, place = row[keep], column[keep] * 4 + kind
        starts, by_place = np.zeros(len(tau_ood) + 1, np.int64), np.zeros(4 * len(tau_id) + 1, np.int64)
        order = np.empty(len(keep), np.int64)
        order_samples(row, place, starts, by_place, order)
        place = place[order]
        columns, kinds = (place // 4).astype(np.int32), (place % 4).astype(np.int8)
        return cls(tau_id, tau_ood, starts, columns, kinds, keep[order])

    def points(self, weights: Weights | None) -> tuple[Any, ...]:
        """Return what the kernels take: the samples, repeated ``weights`` times, and the number of columns."""
        counts = np.ones(len(self.samples), np.uint8) if weights is None else weights[self.samples]
        return self.starts, self.columns, self.kinds, counts, len(self.tau_id)


def _levels(conf: Array, at: Mask) -> tuple[Array, npt.NDArray[np.int32]]:
    """Return the distinct values of conf[at], decreasing, and for each sample the first of them that it reaches."""
    from twofold._kernels import assign_levels

    thresholds = np.empty(int(np.count_nonzero(at)))
    level = np.empty(len(conf), np.int32)
    count = assign_levels(conf, at, np.argsort(conf), level, thresholds)
    return thresholds[:count], level


def _best_pair(data: Samples, plane: _Plane, weights: Weights | None = None) -> tuple[int, int, int, int, int]:
    """Find the pair with the best F1: its TA, accepted ID and OOD samples, column and row."""
    from twofold._kernels import OUTSIDE, RIGHT, best_pair

    starts, columns, kinds, counts, levels = plane.points(weights)
    rows = len(starts) - 1
    row = np.repeat(np.arange(rows), np.diff(starts))
    mass = counts * np.where(kinds == OUTSIDE, data.weight, 1.0)
    hits = np.where(kinds == RIGHT, counts, 0)
    # one threshold alone, on either axis, gives a first ratio and, by 2 TA / (TA + n_ID) >= F1, the least number of
    # correct predictions that any better pair accepts; thresholds too high to accept that many are skipped
    right, ratio = [], (0.0, 1.0)
    for place, size in ((columns, levels), (row, rows)):
        found = np.cumsum(np.bincount(place, hits, size))
        total = np.cumsum(np.bincount(place, mass, size)) + data.inside
        best = int(np.argmax(found / total))
        ratio = max(ratio, (float(found[best]), float(total[best])), key=lambda pair: pair[0] / pair[1])
        right.append(found)
    need = ratio[0] * data.inside / (ratio[1] - ratio[0]) * (1.0 - 1e-9)
    first_column, first_row = (int(np.searchsorted(found, need)) for found in right)
    columns = np.maximum(columns - first_column, 0)
    tree = np.empty((2 << (levels - first_column - 1).bit_length(), 7), np.int32)
    found = best_pair(starts, columns, kinds, counts, first_row, float(data.inside), data.weight, *ratio, tree)
    hit, known, outside, column, place = (int(x) for x in found)
    return hit, known, outside, column + first_column, place


def _ds_f1_weighted(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
    method: Method = "exact",
) -> Weighted | None:
    if method != "exact":
        return None
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf_id=conf_id, conf_ood=conf_ood)
    plane = _Plane.of(data, data.correct)

    def value(weights: Weights) -> float:
        drawn = data.resample(weights)
        if not drawn.right:
            return 0.0
        right, known, outside, _, _ = _best_pair(drawn, plane, weights)
        return drawn.point(right, known, drawn.weight * outside)["value"]

    return value


@register_metric(
    "ds_f1",
    task="joint",
    better="higher",
    bounds=(0, 1),
    formula=r"\max_{\tau_{id}, \tau_{ood}} 2\,TA / (|A| + n_{ID})",
    reference=_PAPER,
    weighted=_ds_f1_weighted,
)
def ds_f1(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    method: Method = "exact",
    thresholds: int = 1000,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> DoublePoint:
    r"""Compute the best F1 of accepting correct predictions with two thresholds (DS-F1).

    .. math:: \max_{\tau_{id}, \tau_{ood}} \frac{2\,TA}{|A| + n_{ID}}

    The maximum of Eq. 3 of the SURE+ paper, with the precision of its Eq. 2. It is never below :func:`f1` of either
    score.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf_id : array-like of float, shape (n_samples,)
        Confidence against misclassification, higher is safer to accept. Infinities are allowed.
    conf_ood : array-like of float, shape (n_samples,)
        Confidence against OOD inputs, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.
    method : {"exact", "grid", "published"}, default="exact"
        ``exact`` searches every pair of thresholds. ``grid`` searches all pairs of quantiles. ``published`` follows the
        released code and serves only to reproduce printed numbers.
    thresholds : int, default=1000
        Number of quantiles per axis of ``method="grid"``, at least 2; other methods ignore it.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1). Each OOD sample then weighs
        share / (1 - share) * n_ID / n_OOD. By default every sample weighs 1.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    DoublePoint
        The best F1 as ``value``, its thresholds ``tau_id`` and ``tau_ood``, and what the pair accepts.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, ``correct`` is True on an OOD sample, or a
        setting is out of range. ``ood_share`` needs ``is_id``. ``method="published"`` has no ``ood_share`` and needs
        scores that are finite in single precision.
    UnfitData
        If there is no ID sample, or no OOD sample to apply ``ood_share`` to.

    Notes
    -----
    ``exact`` is the maximum over every pair, ties included, found by Dinkelbach's iteration in O(n log n) a step. Among
    maximising pairs the one that accepts fewest is returned, then the one with the largest ``tau_id``, then the largest
    ``tau_ood``. If no ID sample is predicted correctly the value is 0 and both thresholds are ``inf``.

    ``grid`` is the paper's Algorithm 1 with the precision of Eq. 2: line 13 of the algorithm divides by the accepted ID
    samples, which would ignore OOD. ``published`` is the protocol of the released code: a linear 1001 x 1001 grid in
    single precision, with the OOD score min-max scaled over the test samples and the ID score as it is; the returned
    thresholds are in those units. It is neither symmetric in the scores nor invariant to increasing maps of them.

    References
    ----------
    From Misclassifications to Outliers (SURE+), arXiv:2603.03903.

    Examples
    --------
    >>> correct = [1, 1, 1, 0, 1, 0, 0, 0, 0]
    >>> is_id = [1, 1, 1, 1, 1, 1, 0, 0, 0]
    >>> conf_id = [0.95, 0.9, 0.8, 0.7, 0.6, 0.4, 0.85, 0.55, 0.3]
    >>> conf_ood = [5, 1, 4, 3, 2, -1, 0, 2.5, -2]
    >>> best = ds_f1(correct, conf_id, conf_ood, is_id)
    >>> round(best.value, 6), best.tau_id, best.tau_ood, best.true_accept, best.accepted
    (0.727273, 0.6, 1.0, 4.0, 5.0)
    """
    _method(method)
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf_id=conf_id, conf_ood=conf_ood)
    if method != "exact":
        point, (tau_id, tau_ood) = data.best_on_grid(method, thresholds)
        return DoublePoint(tau_id=tau_id, tau_ood=tau_ood, method=method, **point)
    if not data.right:
        return DoublePoint(tau_id=np.inf, tau_ood=np.inf, method=method, **data.point(0.0, 0.0, 0.0))
    plane = _Plane.of(data, data.correct)
    right, known, outside, column, row = _best_pair(data, plane)
    point = data.point(right, known, data.weight * outside)
    return DoublePoint(tau_id=float(plane.tau_id[column]), tau_ood=float(plane.tau_ood[row]), method=method, **point)


_SLICES = 4  # for large sets; fixed, so that the result does not depend on the machine
_LINES = 1 << 17  # samples to sort, or rows and columns of cells, from which threads are worth their start
_LEAF = 64  # side of the cells whose pairs are all tried; 16 to 128 are equally good
_SEED_ROWS = 16  # rows walked in full first, so that the bounds bite from the start

_Cells = npt.NDArray[np.int32]  # first column and row of each cell; right, ID and OOD samples before both
_Pairs = npt.NDArray[np.int32]  # column and row of a pair for each number of ID samples


def _envelope(data: Samples, plane: _Plane, weights: Weights | None = None) -> tuple[Array, _Pairs]:
    """Find the best TA / accepted for each number k of accepted ID samples (-1: no pair has exactly k) and its pair.

    The plane of all pairs is one cell at first. Cells that may improve a level are cut into four, until they are small
    enough to try every pair; the others are dropped.
    """
    from twofold.metrics._envelope_kernels import order_by_column, refine_envelope, seed_envelope, share_best

    bests = np.full((_SLICES, data.inside + 1), -1.0)
    pairs = np.full((_SLICES, data.inside + 1, 2), -1, np.int32)
    starts, columns, kinds, counts, levels = plane.points(weights)
    scratch = np.zeros((3, levels), np.int32)
    seed_envelope(starts, columns, kinds, counts, levels, data.weight, _SEED_ROWS, *scratch, bests[0], pairs[0])
    column_starts, rows = np.zeros(levels + 1, np.int64), np.empty_like(columns)
    row_sums, column_sums = np.zeros((2, len(columns) + 1, 3), np.int32)
    order_by_column(starts, columns, kinds, counts, column_starts, rows, row_sums, column_sums)
    row_lines = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    column_lines = np.repeat(np.arange(levels, dtype=np.int32), np.diff(column_starts))
    by_row, by_column = (starts, row_lines, columns, row_sums), (column_starts, column_lines, rows, column_sums)

    def refine(cells: _Cells, size: int, best: Array, pair: _Pairs) -> _Cells:
        children = np.empty((4 * len(cells), 5), np.int32)
        found = refine_envelope(by_row, by_column, kinds, counts, data.weight, cells, size, _LEAF, best, pair, children)
        return children[:found]

    size = max(_LEAF, 1 << (max(levels, len(starts) - 1) - 1).bit_length())
    cells = np.zeros((1, 5), np.int32)
    while len(cells):
        if len(cells) * size < _LINES:
            cells = refine(cells, size, bests[0], pairs[0])
            bests[1:], pairs[1:] = bests[0], pairs[0]
        else:
            by_level = cells[np.argsort(cells[:, 3], kind="stable")]  # a slice then raises and reads the same levels
            slices = np.array_split(by_level, _SLICES)
            tasks = [(own, size, bests[i], pairs[i]) for i, own in enumerate(slices)]
            with ThreadPoolExecutor(min(_SLICES, os.cpu_count() or 1)) as pool:
                cells = np.concatenate(list(pool.map(lambda task: refine(*task), tasks)))
            share_best(bests, pairs)
        size //= 2
    return bests[0, 1:], pairs[0, 1:]


def _source(best: Array, monotone: bool) -> npt.NDArray[np.int64]:
    """Find the level whose pair serves each level: the next attained one, or the best at or above it."""
    attained = np.flatnonzero(best >= 0)
    if monotone:  # of equals the nearest
        rising = best[attained][::-1]
        record = np.maximum.accumulate(rising)
        newest = np.maximum.accumulate(np.where(rising >= record, np.arange(len(rising)), 0))
        attained_or_better = attained[::-1][newest][::-1]
    else:
        attained_or_better = attained
    return np.asarray(attained_or_better[np.searchsorted(attained, np.arange(len(best)))])


def _ds_aurc_weighted(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    monotone: bool = False,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
    method: Method = "exact",
) -> Weighted | None:
    if method != "exact":
        return None
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf_id=conf_id, conf_ood=conf_ood)
    plane = _Plane.of(data, data.is_id)

    def value(weights: Weights) -> float:
        best, _ = _envelope(data.resample(weights), plane, weights)
        return float(1.0 - best[_source(best, monotone)].mean())

    return value


def ds_risk_coverage_curve(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    monotone: bool = False,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> DoubleCurve:
    """Compute the least selective risk at every ID coverage over all pairs of thresholds, and a pair that attains it.

    The curve is exact, and :func:`ds_aurc` is the mean of its ``risk``.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf_id : array-like of float, shape (n_samples,)
        Confidence against misclassification, higher is safer to accept. Infinities are allowed.
    conf_ood : array-like of float, shape (n_samples,)
        Confidence against OOD inputs, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.
    monotone : bool, default=False
        Take at each level the least risk among pairs that accept at least as many ID samples, so that risk never falls
        as coverage grows.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
        sample weighs 1.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    DoubleCurve
        Coverage, risk and thresholds, one entry for each number of accepted ID samples from 1 to all.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, ``correct`` is True on an OOD sample, or
        ``ood_share`` is out of range or lacks ``is_id``.
    UnfitData
        If there is no ID sample, or no OOD sample to apply ``ood_share`` to.

    Notes
    -----
    A level that no pair attains exactly, because of ties, repeats the next attained one.

    References
    ----------
    From Misclassifications to Outliers (SURE+), arXiv:2603.03903.

    Examples
    --------
    >>> curve = ds_risk_coverage_curve([1, 0, 0], [0.9, 0.5, 0.7], [3.0, 2.0, 1.0], [1, 1, 0])
    >>> curve.risk, curve.tau_ood
    (array([0. , 0.5]), array([3., 2.]))
    """
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf_id=conf_id, conf_ood=conf_ood)
    plane = _Plane.of(data, data.is_id)
    best, pair = _envelope(data, plane)
    source = _source(best, monotone)
    return DoubleCurve(
        coverage=np.arange(1, data.inside + 1) / data.inside,
        risk=1.0 - best[source],
        tau_id=plane.tau_id[pair[source, 0]],
        tau_ood=plane.tau_ood[pair[source, 1]],
        monotone=bool(monotone),
    )


@register_metric(
    "ds_aurc",
    task="joint",
    coverage="id",
    better="lower",
    bounds=(0, 1),
    formula=r"\frac{1}{n_{ID}}\sum_k \min \{1 - TA/|A| : |A \cap ID| = k\}",
    reference=_PAPER,
    weighted=_ds_aurc_weighted,
)
def ds_aurc(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    method: Method = "exact",
    thresholds: int = 1000,
    bins: int = 100,
    monotone: bool = False,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the area under the least risk that two thresholds can reach at each ID coverage (DS-AURC).

    .. math:: \frac{1}{n_{ID}} \sum_{k=1}^{n_{ID}} \min_{\tau_{id}, \tau_{ood}}
              \left\{ 1 - \frac{TA}{|A|} : |A \cap ID| = k \right\}

    Eq. 8 of the SURE+ paper with the minimum as its aggregation.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf_id : array-like of float, shape (n_samples,)
        Confidence against misclassification, higher is safer to accept. Infinities are allowed.
    conf_ood : array-like of float, shape (n_samples,)
        Confidence against OOD inputs, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.
    method : {"exact", "grid", "published"}, default="exact"
        ``exact`` considers every pair of thresholds. ``grid`` is meant for millions of rows. ``published`` follows the
        released code and serves only to reproduce printed numbers.
    thresholds : int, default=1000
        Number of quantiles per axis of ``method="grid"``, at least 2; other methods ignore it.
    bins : int, default=100
        Number of coverage bins of ``method="grid"``, at least 1; other methods ignore it.
    monotone : bool, default=False
        Take the least risk over pairs that accept *at least* k ID samples; only with ``method="exact"``. That value
        never exceeds the ID-coverage AURC, :func:`aurc_id`, of either score, ties or not.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
        sample weighs 1.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    float
        The area, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, ``correct`` is True on an OOD sample, a setting
        is out of range, or ``monotone`` is combined with a grid. ``ood_share`` needs ``is_id``. ``method="published"``
        has no ``ood_share`` and needs scores that are finite in single precision.
    UnfitData
        If there is no ID sample, or no OOD sample to apply ``ood_share`` to.

    Notes
    -----
    A level that no pair attains exactly, because of ties, takes the risk of the next attained one.

    ``exact`` considers all pairs and skips squares of them that cannot improve any level. Its time grows like n log n
    where the risk at a fixed coverage has a clear minimum (``docs/mathematics.md`` says why, and
    ``benchmarks/double_score.py`` measures it) and is at worst quadratic; its memory is linear in n. ``grid`` is the
    paper's Algorithm 2 with quantile thresholds and the least risk in each coverage bin, which is biased low by about
    half a bin. ``published`` uses the grid described in :func:`ds_f1`, with its 100 bins and its integration over bin
    centres.

    References
    ----------
    From Misclassifications to Outliers (SURE+), arXiv:2603.03903.

    Examples
    --------
    >>> correct = [1, 1, 1, 0, 1, 0, 0, 0, 0]
    >>> is_id = [1, 1, 1, 1, 1, 1, 0, 0, 0]
    >>> conf_id = [0.95, 0.9, 0.8, 0.7, 0.6, 0.4, 0.85, 0.55, 0.3]
    >>> conf_ood = [5, 1, 4, 3, 2, -1, 0, 2.5, -2]
    >>> round(ds_aurc(correct, conf_id, conf_ood, is_id), 6)
    0.158333
    """
    _method(method)
    if method == "exact":
        curve = ds_risk_coverage_curve(
            correct, conf_id, conf_ood, is_id, monotone=monotone, ood_share=ood_share, nan=nan
        )
        return float(curve.risk.mean())
    if monotone:
        raise InvalidInput("monotone is a form of the exact method; the grids have coverage bins")
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf_id=conf_id, conf_ood=conf_ood)
    table = data.grid(method, thresholds)
    if method == "published":
        return _grid.published_area(table, data.inside)
    return _grid.binned_area(table, data.inside, _checks.whole(bins, "bins", 1))


def f1_surface(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    grid: int = 256,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> Surface:
    """Compute F1, risk and ID coverage over a grid of quantile thresholds, for plotting.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf_id : array-like of float, shape (n_samples,)
        Confidence against misclassification, higher is safer to accept. Infinities are allowed.
    conf_ood : array-like of float, shape (n_samples,)
        Confidence against OOD inputs, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.
    grid : int, default=256
        Number of quantile thresholds per axis, at least 2.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1); OOD samples are reweighted to it. By default every
        sample weighs 1.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    Surface
        The thresholds and three tables, rows for ``tau_id`` and columns for ``tau_ood``.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, ``correct`` is True on an OOD sample, ``grid`` is
        below 2, or ``ood_share`` is out of range or lacks ``is_id``.
    UnfitData
        If there is no ID sample, or no OOD sample to apply ``ood_share`` to.

    Notes
    -----
    Ties can leave fewer than ``grid`` distinct thresholds. Where nothing is accepted the risk is 0.

    Examples
    --------
    >>> f1_surface([1, 0], [0.9, 0.5], [1.0, 2.0], grid=2).f1.round(3)
    array([[0.5  , 0.   ],
           [0.667, 0.   ]])
    """
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf_id=conf_id, conf_ood=conf_ood)
    table = data.grid("grid", grid)
    total = table.total
    risk = np.where(total > 0, 1.0 - table.right / np.where(total > 0, total, 1.0), 0.0)
    score = 2.0 * table.right / (total + data.inside)
    tau_id, tau_ood = table.thresholds
    return Surface(tau_id, tau_ood, score, risk, table.known / data.inside)
