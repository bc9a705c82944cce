"""Detection: separate two groups by one confidence, such as correct from incorrect predictions, or ID from OOD inputs.

``truth`` is True for the safe class (correct, or ID), which should have the higher confidence. With P and Q the
number of safe and unsafe samples, and :math:`P_t, Q_t` those with conf >= the t-th distinct confidence:
true-positive rate :math:`P_t / P`, false-positive rate :math:`Q_t / Q`. With one class only these metrics have no
value and raise ``UndefinedMetric``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from twofold import _checks
from twofold._checks import Array, ArrayLike, NaNPolicy
from twofold.errors import InvalidInput, UndefinedMetric, UnfitData
from twofold.metrics._registry import register_metric
from twofold.metrics._sweep import Sweep, truth_sweep, truth_weighted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import PrecisionRecallDisplay, RocDisplay
    from twofold.plot.themes import ThemeName

__all__ = [
    "PrecisionRecallCurve",
    "RocCurve",
    "aupr",
    "aupr_unsafe",
    "auroc",
    "autc",
    "average_precision",
    "average_precision_unsafe",
    "detection_error",
    "fpr95",
    "fpr95_unsafe",
    "fpr_at_tpr",
    "precision_recall_curve",
    "roc_curve",
]

Positive = Literal["safe", "unsafe"]

_HENDRYCKS = "Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136"


def _both(s: Sweep, name: str) -> tuple[float, float]:
    safe, unsafe = float(s.right[-1]), float(s.loss[-1])
    if safe == 0 or unsafe == 0:
        missing = "safe (True)" if safe == 0 else "unsafe (False)"
        raise UndefinedMetric(f"{name} compares two classes, and there is no {missing} sample")
    return safe, unsafe


def _auroc(s: Sweep) -> float:
    from twofold._kernels import trapezoid

    safe, unsafe = _both(s, "auroc")
    # an unsafe sample is beaten by the safe ones above it and by half of those tied with it
    return float(trapezoid(s.loss, s.right)) / (safe * unsafe)


@register_metric(
    "auroc",
    task="detection",
    better="higher",
    bounds=(0, 1),
    formula=r"P(g_+ > g_-) + \tfrac12 P(g_+ = g_-)",
    reference=_HENDRYCKS,
    sweep=_auroc,
    weighted=truth_weighted(_auroc),
)
def auroc(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    r"""Compute the area under the ROC curve: the chance that a safe sample is trusted more than an unsafe one.

    For one random sample of each class, with ties counted half:

    .. math:: P(g_+ > g_-) + \tfrac12 P(g_+ = g_-)

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1]; higher is better, and 0.5 is chance.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, or if ``conf`` holds NaN and ``nan="error"``.

    Notes
    -----
    The value does not depend on the share of safe samples.

    References
    ----------
    Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136.

    Examples
    --------
    >>> auroc([True, False, True, False], [0.9, 0.8, 0.4, 0.3])
    0.75
    """
    return _auroc(truth_sweep(truth, conf, nan=nan))


def _turned(s: Sweep) -> Sweep:
    """Return the sweep of -conf with the classes swapped: what is at or below each level, least confident first."""
    accepted = s.total - np.concatenate(([0.0], s.accepted[:-1]))
    right = s.right[-1] - np.concatenate(([0.0], s.right[:-1]))
    return Sweep(s.level[:0], accepted[::-1], right[::-1], accepted[::-1])


def _average_precision(s: Sweep, *, positive: bool = True) -> float:
    from twofold._kernels import ratio_sum, ratio_sum_upward

    safe, unsafe = _both(s, "average_precision")
    if positive:
        return float(ratio_sum(s.right, s.right, s.accepted)) / safe
    return float(ratio_sum_upward(s.loss, s.accepted)) / unsafe


@register_metric(
    "average_precision",
    task="detection",
    better="higher",
    bounds=(0, 1),
    formula=r"\sum_t (r_t - r_{t-1})\, p_t",
    reference=_HENDRYCKS,
    sweep=_average_precision,
    weighted=truth_weighted(_average_precision),
)
def average_precision(truth: ArrayLike, conf: ArrayLike, *, positive: bool = True, nan: NaNPolicy = "error") -> float:
    r"""Compute the average precision: the mean, over positives, of the precision at each one's threshold.

    .. math:: \sum_t (r_t - r_{t-1})\, p_t

    with recall r and precision p at each distinct confidence.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    positive : bool, default=True
        Which value of ``truth`` is the positive class. False makes the unsafe class the positive one, found from the
        least confident end; use it to measure how well failures or OOD samples are found.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The average precision, in (0, 1]; higher is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` or ``positive`` is not boolean, or if ``conf`` holds NaN and
        ``nan="error"``.

    Notes
    -----
    There is no interpolation, and tied samples enter together. The value depends on the share of positives, so it is
    not comparable across data sets.

    References
    ----------
    Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136.

    Examples
    --------
    >>> round(average_precision([True, False, True], [0.9, 0.5, 0.1]), 4)
    0.8333
    >>> average_precision([True, False, True], [0.9, 0.5, 0.1], positive=False)
    0.5
    """
    if positive not in (True, False):
        raise InvalidInput(
            f"positive must be True (the safe class is positive) or False (the unsafe class is), got {positive!r}"
        )
    return _average_precision(truth_sweep(truth, conf, nan=nan), positive=bool(positive))


def _average_precision_unsafe(s: Sweep) -> float:
    return _average_precision(s, positive=False)


@register_metric(
    "average_precision_unsafe",
    task="detection",
    better="higher",
    bounds=(0, 1),
    formula=r"\sum_t (r_t - r_{t-1})\, p_t \text{ of } -g \text{ with the unsafe class positive}",
    reference=_HENDRYCKS,
    sweep=_average_precision_unsafe,
    weighted=truth_weighted(_average_precision_unsafe),
)
def average_precision_unsafe(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    """Compute the average precision with the unsafe class as the positive one (AP-error, AUPR-out by steps).

    :func:`average_precision` with ``positive=False``, under its own name for tables.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The average precision, in (0, 1]; higher is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, or if ``conf`` holds NaN and ``nan="error"``.

    References
    ----------
    Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136.

    Examples
    --------
    >>> round(average_precision_unsafe([True, False, True], [0.9, 0.5, 0.1]), 4)
    0.5
    """
    return average_precision(truth, conf, positive=False, nan=nan)


def _aupr(s: Sweep, *, positive: Positive = "safe") -> float:
    safe, _ = _both(s, "aupr")
    if positive == "unsafe":
        return _aupr(_turned(s))
    recall = np.concatenate(([0.0], s.right / safe))
    precision = np.concatenate(([1.0], s.right / s.accepted))
    return float(np.diff(recall) @ (precision[1:] + precision[:-1])) / 2.0


@register_metric(
    "aupr",
    task="detection",
    better="higher",
    bounds=(0, 1),
    formula=r"\sum_t (r_t - r_{t-1})\, (p_t + p_{t-1}) / 2",
    reference="Yang et al. (OpenOOD), NeurIPS 2022, arXiv:2210.07242",
    sweep=_aupr,
    weighted=truth_weighted(_aupr),
)
def aupr(truth: ArrayLike, conf: ArrayLike, *, positive: Positive = "safe", nan: NaNPolicy = "error") -> float:
    r"""Compute the area under the precision-recall curve by trapezoids, as OpenOOD reports it (AUPR-in and AUPR-out).

    .. math:: \sum_t (r_t - r_{t-1}) \frac{p_t + p_{t-1}}{2}, \qquad (r_0, p_0) = (0, 1)

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    positive : {"safe", "unsafe"}, default="safe"
        The positive class: ``"safe"`` is AUPR-in, ``"unsafe"`` is AUPR-out.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1]; higher is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, if ``conf`` holds NaN and ``nan="error"``, or if
        ``positive`` is neither ``"safe"`` nor ``"unsafe"``.

    Notes
    -----
    Straight lines in precision-recall space are slightly optimistic: prefer :func:`average_precision`.

    References
    ----------
    Yang et al. (OpenOOD), NeurIPS 2022, arXiv:2210.07242.

    Examples
    --------
    >>> round(aupr([True, False, True], [0.9, 0.5, 0.1]), 4)
    0.7917
    """
    _checks.choice(positive, "positive", ("safe", "unsafe"))
    return _aupr(truth_sweep(truth, conf, nan=nan), positive=positive)


def _aupr_unsafe(s: Sweep) -> float:
    return _aupr(s, positive="unsafe")


@register_metric(
    "aupr_unsafe",
    task="detection",
    better="higher",
    bounds=(0, 1),
    formula=r"\sum_t (r_t - r_{t-1})\, (p_t + p_{t-1}) / 2 \text{ of } -g \text{ with the unsafe class positive}",
    reference="Yang et al. (OpenOOD), NeurIPS 2022, arXiv:2210.07242",
    sweep=_aupr_unsafe,
    weighted=truth_weighted(_aupr_unsafe),
)
def aupr_unsafe(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    """Compute the AUPR by trapezoids with the unsafe class as the positive one (OpenOOD's AUPR-out).

    :func:`aupr` with ``positive="unsafe"``, under its own name for tables.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1]; higher is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, or if ``conf`` holds NaN and ``nan="error"``.

    References
    ----------
    Yang et al. (OpenOOD), NeurIPS 2022, arXiv:2210.07242.

    Examples
    --------
    >>> round(aupr_unsafe([True, False, True], [0.9, 0.5, 0.1]), 4)
    0.25
    """
    return aupr(truth, conf, positive="unsafe", nan=nan)


def _fpr_at_tpr(s: Sweep, *, tpr: float = 0.95, positive: Positive = "safe") -> float:
    safe, unsafe = _both(s, "fpr_at_tpr")
    if positive == "safe":
        first = int(np.searchsorted(s.right, tpr * safe * (1.0 - 1e-12)))  # the loop below settles rounding
        while s.right[first] / safe < tpr:
            first += 1
        return float(s.loss[first] / unsafe)
    # samples at or above level t are accepted; the last t that accepts few enough unsafe ones flags fewest safe ones
    last = int(np.searchsorted(s.loss, (1.0 - tpr) * unsafe * (1.0 + 1e-12) + 1e-9, side="right")) - 1
    while last >= 0 and (unsafe - s.loss[last]) / unsafe < tpr:
        last -= 1
    return float((safe - s.right[last]) / safe) if last >= 0 else 1.0


@register_metric(
    "fpr_at_tpr",
    task="detection",
    better="lower",
    bounds=(0, 1),
    formula=r"Q_t / Q \text{ at the first } t \text{ with } P_t / P \ge \mathrm{tpr}",
    reference=_HENDRYCKS,
    sweep=_fpr_at_tpr,
    weighted=truth_weighted(_fpr_at_tpr),
)
def fpr_at_tpr(
    truth: ArrayLike,
    conf: ArrayLike,
    tpr: float = 0.95,
    *,
    positive: Positive = "safe",
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the false-positive rate at the first threshold whose true-positive rate is at least ``tpr``.

    .. math:: \frac{Q_t}{Q} \quad \text{at the first } t \text{ with } \frac{P_t}{P} \ge \mathrm{tpr}

    for P safe and Q unsafe samples, of which :math:`P_t` and :math:`Q_t` are accepted at the t-th distinct confidence.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    tpr : float, default=0.95
        Least true-positive rate, in (0, 1].
    positive : {"safe", "unsafe"}, default="safe"
        The positive class. ``"safe"``: the share of unsafe samples accepted when at least ``tpr`` of the safe ones are.
        ``"unsafe"``, the convention of OpenOOD: the share of safe samples flagged when at least ``tpr`` of the unsafe
        ones are.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The false-positive rate, in [0, 1]; lower is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, if ``conf`` holds NaN and ``nan="error"``, if
        ``tpr`` is outside (0, 1], or if ``positive`` is neither ``"safe"`` nor ``"unsafe"``.

    Notes
    -----
    There is no tolerance and no interpolation; tied samples are accepted together.

    References
    ----------
    Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136.

    Examples
    --------
    >>> fpr_at_tpr([True, True, False, False], [0.9, 0.5, 0.6, 0.1])
    0.5
    >>> fpr_at_tpr([True, True, False, False], [0.9, 0.5, 0.6, 0.1], 0.5)
    0.0
    """
    rate = _checks.number(tpr, "tpr", 0.0, 1.0, open_low=True)
    _checks.choice(positive, "positive", ("safe", "unsafe"))
    return _fpr_at_tpr(truth_sweep(truth, conf, nan=nan), tpr=rate, positive=positive)


def _fpr95_unsafe(s: Sweep) -> float:
    return _fpr_at_tpr(s, positive="unsafe")


@register_metric(
    "fpr95",
    task="detection",
    better="lower",
    bounds=(0, 1),
    formula=r"\mathrm{FPR\ at\ TPR\ 0.95,\ safe\ class\ positive}",
    reference=_HENDRYCKS,
    sweep=_fpr_at_tpr,
    weighted=truth_weighted(_fpr_at_tpr),
)
def fpr95(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    """Compute the share of unsafe samples accepted when at least 95 % of the safe ones are.

    :func:`fpr_at_tpr` with ``tpr=0.95`` and the safe class as the positive one.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The false-positive rate, in [0, 1]; lower is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, or if ``conf`` holds NaN and ``nan="error"``.

    References
    ----------
    Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136.

    Examples
    --------
    >>> fpr95([True, True, False, False], [0.9, 0.5, 0.6, 0.1])
    0.5
    """
    return fpr_at_tpr(truth, conf, 0.95, nan=nan)


@register_metric(
    "fpr95_unsafe",
    task="detection",
    better="lower",
    bounds=(0, 1),
    formula=r"\mathrm{FPR\ at\ TPR\ 0.95,\ unsafe\ class\ positive}",
    reference="Yang et al. (OpenOOD), NeurIPS 2022, arXiv:2210.07242",
    sweep=_fpr95_unsafe,
    weighted=truth_weighted(_fpr95_unsafe),
)
def fpr95_unsafe(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    """Compute the share of safe samples flagged when at least 95 % of the unsafe ones are (OpenOOD's FPR@95).

    :func:`fpr_at_tpr` with ``tpr=0.95`` and the unsafe class as the positive one.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The false-positive rate, in [0, 1]; lower is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, or if ``conf`` holds NaN and ``nan="error"``.

    References
    ----------
    Yang et al. (OpenOOD), NeurIPS 2022, arXiv:2210.07242.

    Examples
    --------
    >>> fpr95_unsafe([True, True, False, False], [0.9, 0.5, 0.6, 0.1])
    0.5
    """
    return fpr_at_tpr(truth, conf, 0.95, positive="unsafe", nan=nan)


def _detection_error(s: Sweep) -> float:
    safe, unsafe = _both(s, "detection_error")
    return min(0.5, float((s.loss / unsafe + 1.0 - s.right / safe).min()) / 2.0)


@register_metric(
    "detection_error",
    task="detection",
    better="lower",
    bounds=(0, 0.5),
    formula=r"\min_t \tfrac12 (\mathrm{FPR}_t + \mathrm{FNR}_t)",
    reference="Liang, Li, Srikant (ODIN), ICLR 2018, arXiv:1706.02690",
    sweep=_detection_error,
    weighted=truth_weighted(_detection_error),
)
def detection_error(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    r"""Compute the least chance of a wrong decision over all thresholds when both classes are equally likely.

    .. math:: \min_t \tfrac12 (\mathrm{FPR}_t + \mathrm{FNR}_t)

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each sample; the safe class should have the higher values. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The error, in [0, 0.5]; lower is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, or all are unsafe.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, or if ``conf`` holds NaN and ``nan="error"``.

    Notes
    -----
    Accepting nothing is one of the thresholds, so the error never exceeds 0.5.

    References
    ----------
    Liang, Li, Srikant (ODIN), ICLR 2018, arXiv:1706.02690.

    Examples
    --------
    >>> detection_error([True, True, False, False], [0.9, 0.5, 0.6, 0.1])
    0.25
    """
    return _detection_error(truth_sweep(truth, conf, nan=nan))


@register_metric(
    "autc",
    task="detection",
    better="lower",
    bounds=(0, 1),
    formula=r"\tfrac12 (\overline{s_-} + 1 - \overline{s_+}) \text{ of min-max scaled scores}",
    reference="Humblot-Renaux, Escalera, Moeslund, CVPR 2023, arXiv:2306.14658",
)
def autc(truth: ArrayLike, conf: ArrayLike) -> float:
    r"""Compute the area under the threshold curve: how wide the choice of a good threshold is.

    .. math:: \tfrac12 \int_0^1 \mathrm{FPR}(\tau) + \mathrm{FNR}(\tau)\, d\tau
              = \tfrac12 \left(\overline{s_-} + 1 - \overline{s_+}\right)

    on scores scaled to [0, 1] by the smallest and largest of the set.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or in-distribution), False for the unsafe class, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Finite confidence of each sample; the safe class should have the higher values.

    Returns
    -------
    float
        The area, in [0, 1]; lower is better.

    Raises
    ------
    UndefinedMetric
        If all samples are safe, all are unsafe, or all confidences are equal.
    UnfitData
        If a confidence is infinite.
    InvalidInput
        If the arrays differ in length, if ``truth`` is not boolean, or if ``conf`` holds NaN.

    Notes
    -----
    Unlike every other metric here it depends on the scale of the score, not on ranks alone, and one outlier moves it.

    References
    ----------
    Humblot-Renaux, Escalera, Moeslund, CVPR 2023, arXiv:2306.14658.

    Examples
    --------
    >>> autc([True, True, False], [1.0, 0.5, 0.0])
    0.125
    """
    score: Array = _checks.confidence(conf)
    safe = _checks.mask(truth, "truth")
    _checks.same_rows(truth=safe, conf=score)
    if not np.isfinite(score).all():
        raise UnfitData(f"autc needs finite confidences, got {score[~np.isfinite(score)][0]}")
    if score.min() == score.max() or safe.all() or not safe.any():
        raise UndefinedMetric("autc needs both classes and at least two distinct confidences")
    score = score / np.abs(score).max()  # so that no range overflows
    scaled = (score - score.min()) / (score.max() - score.min())
    return float(scaled[~safe].mean() + 1.0 - scaled[safe].mean()) / 2.0


@dataclass(frozen=True, eq=False)
class RocCurve:
    """Hold the attainable points of a ROC curve, from accepting nothing to accepting everything.

    Attributes
    ----------
    threshold : ndarray of shape (n_thresholds,)
        The distinct confidences, decreasing, after +inf, at which nothing is accepted.
    fpr : ndarray of shape (n_thresholds,)
        Share of unsafe samples with ``conf >= threshold``.
    tpr : ndarray of shape (n_thresholds,)
        Share of safe samples with ``conf >= threshold``.
    """

    threshold: Array
    fpr: Array
    tpr: Array

    def plot(self, ax: Axes | None = None, *, name: str | None = None, theme: ThemeName | None = None) -> RocDisplay:
        """Draw the share of safe samples accepted over that of unsafe ones.

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
        RocDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import RocDisplay

        return RocDisplay.from_curve(self, name=name).plot(ax, theme=theme)


def roc_curve(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> RocCurve:
    """Compute the ROC curve: the share of safe samples accepted over that of unsafe ones, at each threshold.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or ID), as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence; higher is safer to accept.
    nan : {"error", "reject"}, default="error"
        Whether NaN in ``conf`` is an error or ranks lowest.

    Returns
    -------
    RocCurve
        ``threshold``, ``fpr`` and ``tpr``; tied samples are accepted together.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, or hold NaN or impossible values.
    UndefinedMetric
        If one of the two classes is missing.

    Examples
    --------
    >>> curve = roc_curve([True, False, True], [0.9, 0.5, 0.4])
    >>> curve.fpr, curve.tpr
    (array([0., 0., 1., 1.]), array([0. , 0.5, 0.5, 1. ]))
    """
    sweep = truth_sweep(truth, conf, nan=nan)
    safe, unsafe = _both(sweep, "roc_curve")
    levels = np.unique(_checks.confidence(conf, nan=nan))[::-1]
    return RocCurve(
        threshold=np.concatenate([[np.inf], levels]),
        fpr=np.concatenate([[0.0], sweep.loss / unsafe]),
        tpr=np.concatenate([[0.0], sweep.right / safe]),
    )


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """Hold the attainable points of a precision-recall curve, from the surest positives to all samples.

    Attributes
    ----------
    threshold : ndarray of shape (n_thresholds,)
        The distinct confidences in the order in which samples are called positive: decreasing for the safe class,
        increasing for the unsafe class.
    precision : ndarray of shape (n_thresholds,)
        Share of positives among the samples up to each threshold.
    recall : ndarray of shape (n_thresholds,)
        Share of the positives that is found, rising to 1.
    positive : {"safe", "unsafe"}
        The class that is found.
    """

    threshold: Array
    precision: Array
    recall: Array
    positive: Positive

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, theme: ThemeName | None = None
    ) -> PrecisionRecallDisplay:
        """Draw precision over recall.

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
        PrecisionRecallDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import PrecisionRecallDisplay

        return PrecisionRecallDisplay.from_curve(self, name=name).plot(ax, theme=theme)


def precision_recall_curve(
    truth: ArrayLike, conf: ArrayLike, *, positive: Positive = "safe", nan: NaNPolicy = "error"
) -> PrecisionRecallCurve:
    """Compute precision and recall at each threshold.

    Parameters
    ----------
    truth : array-like of shape (n_samples,)
        True for the safe class (correct, or ID), as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence; higher is safer to accept.
    positive : {"safe", "unsafe"}, default="safe"
        The class to find: safe samples from the most confident end, or unsafe ones from the least confident end.
    nan : {"error", "reject"}, default="error"
        Whether NaN in ``conf`` is an error or ranks lowest.

    Returns
    -------
    PrecisionRecallCurve
        ``threshold``, ``precision`` and ``recall``; tied samples enter together. The mean precision over steps of
        recall is :func:`average_precision`.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, or ``positive`` is unknown.
    UndefinedMetric
        If one of the two classes is missing.

    Examples
    --------
    >>> curve = precision_recall_curve([True, False, True], [0.9, 0.5, 0.4])
    >>> curve.recall, curve.precision.round(3)
    (array([0.5, 0.5, 1. ]), array([1.   , 0.5  , 0.667]))
    """
    _checks.choice(positive, "positive", ("safe", "unsafe"))
    sweep = truth_sweep(truth, conf, nan=nan)
    _both(sweep, "precision_recall_curve")
    threshold = np.unique(_checks.confidence(conf, nan=nan))[::-1]
    if positive == "unsafe":
        sweep, threshold = _turned(sweep), threshold[::-1]
    return PrecisionRecallCurve(threshold, sweep.right / sweep.accepted, sweep.right / sweep.right[-1], positive)
