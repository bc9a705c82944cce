"""Trace the risk-coverage curve, read operating points off it, and integrate a window of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twofold import _checks
from twofold._checks import Array, ArrayLike, NaNPolicy
from twofold.errors import InvalidInput
from twofold.metrics._sweep import sweep
from twofold.metrics.selective import Coverage, check_convention

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import RiskCoverageDisplay
    from twofold.plot.themes import ThemeName

__all__ = [
    "RiskCoverageCurve",
    "coverage_at_risk",
    "partial_aurc",
    "risk_at_coverage",
    "risk_coverage_curve",
]


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Hold the attainable operating points, from least to full coverage: accept where conf >= threshold.

    Attributes
    ----------
    threshold : ndarray of shape (n_thresholds,)
        The distinct confidences, decreasing.
    coverage : ndarray of shape (n_thresholds,)
        Accepted share of the samples that ``counts`` names.
    risk : ndarray of shape (n_thresholds,)
        Selective risk: mean loss of the accepted samples.
    generalised_risk : ndarray of shape (n_thresholds,)
        Loss of the accepted samples divided by the number (weight) of all samples.
    counts : {"all", "id"}
        Whether ``coverage`` counts all samples or ID samples only.
    """

    threshold: Array
    coverage: Array
    risk: Array
    generalised_risk: Array
    counts: Coverage

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, theme: ThemeName | None = None
    ) -> RiskCoverageDisplay:
        """Draw risk over coverage.

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


def risk_coverage_curve(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    coverage: Coverage = "all",
    nan: NaNPolicy = "error",
) -> RiskCoverageCurve:
    """Compute selective risk and coverage at every distinct confidence.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    is_id : array-like of shape (n_samples,), default=None
        True for in-distribution samples; the others are OOD, and accepting one is a failure. By default all samples are
        in-distribution.
    loss : array-like of shape (n_samples,), default=None
        Finite loss of each sample, used as it is, also on OOD samples. By default the 0/1 loss of ``correct``. Pass it
        when mistakes differ in severity.
    ood_share : float, default=None
        OOD prevalence expected in deployment, in [0, 1): OOD samples are reweighted to this share of all samples. Needs
        ``is_id``. By default every sample has weight 1. Set it when the test set has more or fewer OOD samples than
        deployment will have.
    coverage : {"all", "id"}, default="all"
        Whether coverage counts all samples or ID samples only.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    RiskCoverageCurve
        Thresholds, coverage, risk and generalised risk, from least to full coverage.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, if ``correct`` is True on an OOD sample, or if
        ``ood_share`` is outside [0, 1) or comes without ``is_id``.
    UnfitData
        If there is no ID sample for ``coverage="id"``, or if ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    With ``coverage="id"`` coverage is the accepted share of the ID samples; thresholds above every ID sample then have
    coverage 0.

    Examples
    --------
    >>> curve = risk_coverage_curve([True, False, True], [0.9, 0.5, 0.1])
    >>> curve.coverage.round(3)
    array([0.333, 0.667, 1.   ])
    >>> curve.risk.round(3)
    array([0.   , 0.5  , 0.333])
    """
    check_convention(coverage, "empirical", is_id)
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan, levels=True)
    covered = s.known / s.known[-1] if coverage == "id" else s.accepted / s.total
    return RiskCoverageCurve(s.level, covered, s.risk, s.loss / s.total, coverage)


def risk_at_coverage(
    correct: ArrayLike,
    conf: ArrayLike,
    coverage: float,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    """Compute the selective risk at the smallest attained coverage of at least ``coverage``.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    coverage : float
        Least share of all samples to accept, in [0, 1].
    is_id : array-like of shape (n_samples,), default=None
        True for in-distribution samples; the others are OOD, and accepting one is a failure. By default all samples are
        in-distribution.
    loss : array-like of shape (n_samples,), default=None
        Finite loss of each sample, used as it is, also on OOD samples. By default the 0/1 loss of ``correct``. Pass it
        when mistakes differ in severity.
    ood_share : float, default=None
        OOD prevalence expected in deployment, in [0, 1): OOD samples are reweighted to this share of all samples. Needs
        ``is_id``. By default every sample has weight 1. Set it when the test set has more or fewer OOD samples than
        deployment will have.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        Mean loss of the accepted samples.

    Raises
    ------
    InvalidInput
        If ``coverage`` is outside [0, 1], or if the arrays or ``ood_share`` are invalid as in :func:`augrc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    Ties can make the requested coverage unattainable; then more is accepted, never less.

    Examples
    --------
    >>> risk_at_coverage([True, False, True, False], [0.9, 0.8, 0.8, 0.1], 0.5)
    0.3333333333333333
    """
    wanted = _checks.number(coverage, "coverage", 0.0, 1.0)
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan)
    first = int(np.searchsorted(s.accepted, wanted * s.total * (1.0 - 1e-12)))
    return float(s.risk[min(first, len(s.risk) - 1)])


def coverage_at_risk(
    correct: ArrayLike,
    conf: ArrayLike,
    risk: float,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    """Compute the largest attained coverage whose selective risk is at most ``risk``; 0.0 if there is none.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    risk : float
        Largest selective risk to tolerate, in the units of the loss.
    is_id : array-like of shape (n_samples,), default=None
        True for in-distribution samples; the others are OOD, and accepting one is a failure. By default all samples are
        in-distribution.
    loss : array-like of shape (n_samples,), default=None
        Finite loss of each sample, used as it is, also on OOD samples. By default the 0/1 loss of ``correct``. Pass it
        when mistakes differ in severity.
    ood_share : float, default=None
        OOD prevalence expected in deployment, in [0, 1): OOD samples are reweighted to this share of all samples. Needs
        ``is_id``. By default every sample has weight 1. Set it when the test set has more or fewer OOD samples than
        deployment will have.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        Accepted share of all samples, in [0, 1]; higher is better.

    Raises
    ------
    InvalidInput
        If ``risk`` is not a number, or if the arrays or ``ood_share`` are invalid as in :func:`augrc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    Where the risk of the whole set is low enough the result is 1.0; some other libraries return NaN there.

    Examples
    --------
    >>> coverage_at_risk([True, False, True, False], [0.9, 0.8, 0.7, 0.1], 0.4)
    0.75
    >>> coverage_at_risk([False, True], [0.9, 0.8], 0.1)
    0.0
    """
    limit = _checks.number(risk, "risk", -np.inf, np.inf)
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan)
    good = np.flatnonzero(s.risk <= limit)
    return float(s.accepted[good[-1]] / s.total) if len(good) else 0.0


def partial_aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    low: float = 0.0,
    high: float = 1.0,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the part of the ``empirical`` AURC that lies between two coverages.

    .. math:: \int_{low}^{high} R(u)\,du

    with :math:`R(u)` the risk at the smallest attained coverage of at least u.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    low : float, default=0.0
        Coverage of all samples at which the window starts, in [0, 1].
    high : float, default=1.0
        Coverage of all samples at which the window ends, in [0, 1] and above ``low``.
    is_id : array-like of shape (n_samples,), default=None
        True for in-distribution samples; the others are OOD, and accepting one is a failure. By default all samples are
        in-distribution.
    loss : array-like of shape (n_samples,), default=None
        Finite loss of each sample, used as it is, also on OOD samples. By default the 0/1 loss of ``correct``. Pass it
        when mistakes differ in severity.
    ood_share : float, default=None
        OOD prevalence expected in deployment, in [0, 1): OOD samples are reweighted to this share of all samples. Needs
        ``is_id``. By default every sample has weight 1. Set it when the test set has more or fewer OOD samples than
        deployment will have.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area over the window; lower is better.

    Raises
    ------
    InvalidInput
        If ``low`` and ``high`` are outside [0, 1] or ``low`` is not below ``high``, or if the arrays or ``ood_share``
        are invalid as in :func:`augrc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    Neighbouring windows add up, and the window [0, 1] is the whole AURC. Divide by ``high - low`` for the mean risk in
    the window.

    Examples
    --------
    >>> from twofold.metrics import aurc
    >>> correct, conf = [True, False, True, False], [0.9, 0.8, 0.7, 0.1]
    >>> partial_aurc(correct, conf, high=0.6) + partial_aurc(correct, conf, low=0.6) - aurc(correct, conf)
    0.0
    """
    low, high = _checks.number(low, "low", 0.0, 1.0), _checks.number(high, "high", 0.0, 1.0)
    if low >= high:
        raise InvalidInput(f"low must be below high, got low={low} and high={high}")
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan)
    ends = s.accepted / s.total
    starts = np.concatenate(([0.0], ends[:-1]))
    width = np.clip(np.minimum(ends, high) - np.maximum(starts, low), 0.0, None)
    return float(width @ s.risk)
