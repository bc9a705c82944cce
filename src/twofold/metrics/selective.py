"""Selective classification: the risk that remains when only the most confident predictions are accepted.

Accept where conf >= threshold. Over all thresholds, with :math:`n` samples, losses :math:`l_i`, and
:math:`N_t, L_t` the number and the loss of the samples accepted at the t-th distinct confidence:

* coverage :math:`N_t / n`, selective risk :math:`R_t = L_t / N_t`, generalised risk :math:`G_t = L_t / n`;
* AURC integrates :math:`R` over coverage, AUGRC integrates :math:`G`.

``correct`` says which predictions are correct (the 0/1 loss); ``loss`` replaces it by any loss. With ``is_id`` every
OOD sample is a failure. ``ood_share`` reweights OOD samples to the prevalence expected in deployment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from twofold import _checks, _math
from twofold._checks import Array, ArrayLike, NaNPolicy
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.metrics import _grid
from twofold.metrics._registry import register_metric
from twofold.metrics._samples import Samples
from twofold.metrics._sweep import CountedRows, MeanRisk, Sweep, Weighted, sweep, sweep_weighted

Coverage = Literal["all", "id"]
Estimator = Literal[
    "empirical",
    "log",
    "sele",
    "2sele",
    "self_excluded",
    "expected",
    "trapezoid",
    "continuous",
    "grid",
    "published",
]

_ZHOU = "Zhou et al., ICML 2025, arXiv:2410.15361"
_GEIFMAN = "Geifman, Uziel, El-Yaniv, ICLR 2019, arXiv:1805.08206"
_FD_SHIFTS = "Jaeger et al., ICLR 2023, arXiv:2211.15259"
_TRAUB = "Traub et al., NeurIPS 2024, arXiv:2407.01032"


# The eight estimators, each a function of the sweep


def _empirical(s: Sweep) -> float:
    return s.mean_risk


def _rank_weighted(s: Sweep, weight: Callable[[Array, Array, float], Array]) -> float:
    """Return (1/n) sum of loss times the mean of ``weight`` over the positions a+1..b that a tie group fills."""
    before = s.accepted - s.mass
    return float(np.diff(s.loss, prepend=0.0) @ weight(before, s.accepted, s.total)) / s.total


def _expected_weight(a: Array, b: Array, n: float) -> Array:
    # position i weighs H_n - H_{i-1}, and H_0 + ... + H_{m-1} = m (H_m - 1)
    return np.asarray(_math.harmonic(n) - (b * (_math.harmonic(b) - 1) - a * (_math.harmonic(a) - 1)) / (b - a))


def _log_weight(a: Array, b: Array, n: float) -> Array:
    return np.asarray(np.log(n + 1) - (_math.log_factorial(b) - _math.log_factorial(a)) / (b - a))


def _sele_weight(a: Array, b: Array, n: float) -> Array:
    return (n - (a + b - 1) / 2) / n


def _trapezoid(s: Sweep) -> float:
    before = np.concatenate((s.risk[:1], s.risk[:-1]))  # flat to coverage 0
    return float(s.mass @ (s.risk + before)) / (2.0 * s.total)


def _continuous(s: Sweep) -> float:
    c0, c1, e0, e1 = s.accepted[:-1], s.accepted[1:], s.loss[:-1], s.loss[1:]
    segments = (e1 - e0) + (e0 * c1 - e1 * c0) / (c1 - c0) * np.log(c1 / c0)
    return float(s.loss[0] + segments.sum()) / s.total


_ESTIMATORS: dict[str, Callable[[Sweep], float]] = {
    "empirical": _empirical,
    "log": lambda s: _rank_weighted(s, _log_weight),
    "sele": lambda s: _rank_weighted(s, _sele_weight),
    "2sele": lambda s: 2.0 * _rank_weighted(s, _sele_weight),
    "self_excluded": lambda s: _empirical(s) - s.mean_loss / s.total,
    "expected": lambda s: _rank_weighted(s, _expected_weight),
    "trapezoid": _trapezoid,
    "continuous": _continuous,
}


def _aurc(s: Sweep, *, coverage: Coverage = "all", estimator: Estimator = "empirical") -> float:
    if coverage == "id":
        return s.mean(over=s.known)
    return _ESTIMATORS[estimator](s)


def _aurc_weighted(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike | None = None,
    *,
    coverage: Coverage = "all",
    estimator: Estimator = "empirical",
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
    **named: Any,
) -> Weighted | None:
    """Prepare AURC for resampling: the plain empirical AURC has its own kernels, other conventions use the sweep."""
    if named or estimator != "empirical" or ood_share is not None:
        named |= {"coverage": coverage, "estimator": estimator, "ood_share": ood_share, "nan": nan}
        return _sweep_weighted_aurc(correct, conf, is_id, **named)
    conf = _checks.confidence(conf, nan=nan)
    right, inside = _checks.joint(correct, is_id, conf=conf)
    return MeanRisk(CountedRows(right, conf, inside, None), only_id=coverage == "id")


_sweep_weighted_aurc = sweep_weighted(_aurc, estimator=tuple(_ESTIMATORS))


def _check_convention(coverage: str, estimator: str, is_id: ArrayLike | None, *, loss: bool = False) -> None:
    _checks.choice(coverage, "coverage", ("all", "id"))
    _checks.choice(estimator, "estimator", (*_ESTIMATORS, "grid", "published"))
    if coverage == "id" and estimator not in ("empirical", "grid", "published"):
        raise InvalidInput(f'coverage="id" is defined for empirical, grid and published, not for {estimator!r}')
    if coverage == "all" and estimator in ("grid", "published"):
        raise InvalidInput(f'estimator={estimator!r} counts ID coverage; pass coverage="id"')
    if coverage == "id" and is_id is not None and not _checks.mask(is_id, "is_id").any():
        raise InvalidInput('coverage="id" needs at least one ID sample; is_id is False everywhere')
    if loss and estimator in ("grid", "published"):
        raise InvalidInput(f"estimator={estimator!r} is defined for right and wrong answers only; leave loss out")


@register_metric(
    "aurc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 1),
    formula=r"\frac{1}{n}\sum_i R(g_i)",
    reference=f"{_GEIFMAN}; {_ZHOU}; {_FD_SHIFTS}",
    sweep=_aurc,
    weighted=_aurc_weighted,
)
def aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    coverage: Coverage = "all",
    estimator: Estimator = "empirical",
    thresholds: int = 1000,
    bins: int = 100,
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the area under the risk-coverage curve (AURC).

    .. math:: \mathrm{AURC} = \frac{1}{n} \sum_i R(g_i), \qquad
              R(\tau) = \frac{\sum_j l_j [g_j \ge \tau]}{\sum_j [g_j \ge \tau]}

    Tied confidences share one risk, so the order of samples never matters. ``estimator`` chooses the rule:

    ================= =========================================================================================
    ``empirical``     the mean above (Eq. 10 of Zhou et al.)
    ``expected``      mean over random orders of tied samples: weights :math:`H_n - H_{i-1}` at position i
    ``log``           weights :math:`-\ln(1 - r/(n+1))` of the ascending rank r (Eq. 18)
    ``sele, 2sele``   weights :math:`r/n` and :math:`2r/n` (lower bound; no bound in general)
    ``self_excluded`` ``empirical`` minus mean(loss)/n: a sample does not vouch for itself; least bias at small n
    ``trapezoid``     the FD-Shifts rule: straight lines between distinct thresholds, flat to coverage 0
    ``continuous``    the exact integral where risk is linear in accepted loss between thresholds
    ================= =========================================================================================

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
        Whose coverage the risk is averaged over: all samples, or ID samples only (see Notes).
    estimator : str, default="empirical"
        One of the rules above; with ``coverage="id"`` one of ``empirical``, ``grid`` and ``published``. Change it to
        compare with published numbers that follow another rule.
    thresholds : int, default=1000
        Number of quantile thresholds of ``grid``, at least 2; other estimators ignore it.
    bins : int, default=100
        Number of coverage bins of ``grid``; other estimators ignore it.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1] for 0/1 losses; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, if ``correct`` is True on an OOD sample, if
        ``ood_share`` is outside [0, 1) or comes without ``is_id``, or if ``estimator``, ``coverage`` and ``loss`` do
        not go together: ``coverage="id"`` needs ``empirical``, ``grid`` or ``published`` and at least one ID sample;
        ``grid`` and ``published`` need ``coverage="id"`` and take no ``loss``; ``published`` takes no ``ood_share``
        and needs finite confidences.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    State the estimator with every number. ``trapezoid`` rewards ties: between two thresholds the true risk lies above
    the chord.

    ``coverage="id"`` is the AURC of the SURE+ paper (its Eq. 4-6): the mean over ID samples of the risk at each one's
    own threshold, with accepted OOD samples counted as failures. There ``estimator`` may also be ``grid`` (quantile
    ``thresholds`` and coverage ``bins``) or ``published`` (the linear grid of the released code).

    References
    ----------
    Geifman, Uziel, El-Yaniv, ICLR 2019, arXiv:1805.08206; Zhou et al., ICML 2025, arXiv:2410.15361 (estimators);
    Jaeger et al., ICLR 2023, arXiv:2211.15259 (FD-Shifts); From Misclassifications to Outliers (SURE+),
    arXiv:2603.03903.

    Examples
    --------
    >>> conf, correct = [0.9, 0.8, 0.8, 0.1], [True, False, True, False]
    >>> round(aurc(correct, conf), 4)
    0.2917
    >>> round(aurc(correct, conf, estimator="trapezoid"), 4)
    0.1875
    >>> round(aurc(correct, conf, estimator="expected"), 7)
    0.2708333

    The last sample is OOD, and half of the inputs in deployment will be:

    >>> round(aurc(correct, conf, is_id=[True, True, True, False], ood_share=0.5), 4)
    0.4444
    """
    _check_convention(coverage, estimator, is_id, loss=loss is not None)
    if estimator in ("grid", "published"):
        return _grid_aurc(correct, conf, is_id, ood_share, estimator, thresholds, bins, nan)
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan)
    return _aurc(s, coverage=coverage, estimator=estimator)


def _grid_aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike | None,
    ood_share: float | None,
    estimator: str,
    thresholds: int,
    bins: int,
    nan: NaNPolicy,
) -> float:
    data = Samples.enter(correct, is_id, ood_share=ood_share, nan=nan, conf=conf)
    table = data.grid(estimator, thresholds)
    if estimator == "published":
        return _grid.published_area(table, data.inside)
    return _grid.binned_area(table, data.inside, _checks.whole(bins, "bins", 1))


# Excess and normalised areas


def _optimum(s: Sweep, *, coverage: Coverage = "all", estimator: Estimator = "empirical") -> float:
    """Return the AURC of the perfect ranking of the same samples, without ties."""
    if s.atoms is not None:
        loss, weight = (np.repeat(a, np.where(s.atoms[1] > 0, s.atoms[2], 0)) for a in s.atoms[:2])
        rising = np.lexsort((weight, loss))
        return _aurc(_ranked(loss[rising], weight[rising]), estimator=estimator)
    right, wrong = float(s.right[-1]), float(s.known[-1] - s.right[-1])
    outside = s.total - float(s.known[-1])
    if coverage == "id":
        return (wrong - right * _harmonic_gap(right, wrong)) / (right + wrong)
    if estimator == "empirical":
        # failures last, lighter ones first; a run of m atoms of weight a after weight x has the sum
        # of a (x + a j)/(right + x + a j), that is a m - right (H_{m+z} - H_z) with z = (right + x)/a
        area, before = 0.0, 0.0
        for mass, atom in sorted(((wrong, 1.0), (outside, s.weight)), key=lambda part: part[1]):
            if mass > 0:
                area += mass - right * _harmonic_gap((right + before) / atom, mass / atom)
                before += mass
        return area / s.total
    atoms = [(0.0, 1.0)] * round(right) + sorted(
        [(1.0, 1.0)] * round(wrong) + [(1.0, s.weight)] * (round(outside / s.weight) if s.weight else 0)
    )
    loss, weight = np.array(atoms).T
    return _aurc(_ranked(loss, weight), estimator=estimator)


def _harmonic_gap(start: float, steps: float) -> float:
    """Return the difference of harmonic numbers H_{start+steps} - H_start."""
    high, low = _math.harmonic(np.array([start + steps, start]))
    return float(high - low)


def _ranked(loss: Array, weight: Array) -> Sweep:
    """Return the sweep of samples in this order, most confident first, all confidences distinct."""
    accepted = np.cumsum(weight)
    return Sweep(-np.arange(len(loss), dtype=np.float64), accepted, np.cumsum(weight * loss), accepted)


def _eaurc(s: Sweep, *, coverage: Coverage = "all", estimator: Estimator = "empirical") -> float:
    return _aurc(s, coverage=coverage, estimator=estimator) - _optimum(s, coverage=coverage, estimator=estimator)


@register_metric(
    "eaurc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 1),
    formula=r"\mathrm{AURC} - \mathrm{AURC}^*",
    reference=_GEIFMAN,
    sweep=_eaurc,
    weighted=sweep_weighted(_eaurc, estimator=tuple(_ESTIMATORS)),
)
def eaurc(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    coverage: Coverage = "all",
    estimator: Estimator = "empirical",
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the excess AURC: what the ranking loses against a perfect ranking of the same predictions.

    .. math:: \mathrm{AURC} - \mathrm{AURC}^*, \qquad
              \mathrm{AURC}^* = \frac{1}{n} \sum_{j=1}^{F} \frac{j}{n - F + j} \text{ for F failures}

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
        Whose coverage the risk is averaged over; ``"id"`` as in :func:`aurc`, for the 0/1 loss only.
    estimator : str, default="empirical"
        Rule of :func:`aurc` for both areas, except ``grid`` and ``published``, which have no exact optimum.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The excess, in [0, 1] for 0/1 losses (see Notes for ``trapezoid``); lower is better.

    Raises
    ------
    InvalidInput
        If the arrays or ``ood_share`` are invalid as in :func:`aurc`, if ``estimator`` is ``grid`` or ``published``, or
        if ``coverage="id"`` comes with ``loss``, with an estimator other than ``empirical``, or without any ID sample.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    The optimum is the exact finite-n one, so a perfect strict ranking has 0 (up to rounding); the usual
    :math:`e + (1-e)\ln(1-e)` with error rate e is its limit and leaves an offset. With ``loss`` the optimum ranks by
    rising loss. The optimum has no ties and, with ``ood_share``, puts lighter failures first, which is best for
    ``empirical``; ``trapezoid``, which rewards ties, can go below it.

    References
    ----------
    Geifman, Uziel, El-Yaniv, ICLR 2019, arXiv:1805.08206.

    Examples
    --------
    >>> round(eaurc([True, True, False], [0.9, 0.8, 0.1]), 12)
    0.0
    >>> round(eaurc([True, False, True], [0.9, 0.8, 0.1]), 4)
    0.1667
    """
    _check_convention(coverage, estimator, is_id)
    _refuse_grid(estimator)
    _refuse_loss_with_id(loss, coverage)
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan)
    return _eaurc(s, coverage=coverage, estimator=estimator)


def _refuse_grid(estimator: str) -> None:
    if estimator in ("grid", "published"):
        raise InvalidInput(f"estimator={estimator!r} has no exact optimum to compare with; use empirical")


def _refuse_loss_with_id(loss: ArrayLike | None, coverage: str) -> None:
    if loss is not None and coverage == "id":
        raise InvalidInput('the perfect ranking under coverage="id" is known for right and wrong answers only')


def _naurc(s: Sweep, *, coverage: Coverage = "all", estimator: Estimator = "empirical") -> float:
    if s.atoms is None:
        varied = 0 < s.loss[-1] < s.accepted[-1]
    else:
        present = s.atoms[0][(s.atoms[1] > 0) & (s.atoms[2] > 0)]
        varied = present.min() < present.max()
    if not varied:
        raise UndefinedMetric("naurc: all losses are equal, so every ranking is as good as any other")
    best = _optimum(s, coverage=coverage, estimator=estimator)
    return (_aurc(s, coverage=coverage, estimator=estimator) - best) / (s.mean_loss - best)


@register_metric(
    "naurc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, np.inf),
    formula=r"(\mathrm{AURC} - \mathrm{AURC}^*) / (\bar l - \mathrm{AURC}^*)",
    reference="Cattelan & Silva, UAI 2024, arXiv:2305.15508",
    sweep=_naurc,
    weighted=sweep_weighted(_naurc, estimator=tuple(_ESTIMATORS)),
)
def naurc(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    coverage: Coverage = "all",
    estimator: Estimator = "empirical",
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the AURC scaled so that a perfect ranking has 0 and a random one has 1; worse than random exceeds 1.

    .. math:: \frac{\mathrm{AURC} - \mathrm{AURC}^*}{\bar l - \mathrm{AURC}^*}

    with the optimum :math:`\mathrm{AURC}^*` of :func:`eaurc` and the mean loss :math:`\bar l`.

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
        Whose coverage the risk is averaged over; ``"id"`` as in :func:`aurc`, for the 0/1 loss only.
    estimator : str, default="empirical"
        Rule of :func:`aurc` for both areas, except ``grid`` and ``published``, which have no exact optimum.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The normalised area; lower is better.

    Raises
    ------
    UndefinedMetric
        If all losses are equal, so that every ranking is as good as any other.
    InvalidInput
        If the arguments are invalid as in :func:`eaurc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    References
    ----------
    Cattelan & Silva, UAI 2024, arXiv:2305.15508.

    Examples
    --------
    >>> round(naurc([True, True, False], [0.9, 0.8, 0.1]), 12)
    0.0
    >>> round(naurc([True, False, True], [0.9, 0.8, 0.1]), 12)
    0.75
    """
    _check_convention(coverage, estimator, is_id)
    _refuse_grid(estimator)
    _refuse_loss_with_id(loss, coverage)
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan)
    return _naurc(s, coverage=coverage, estimator=estimator)


# AUGRC


def _augrc(s: Sweep) -> float:
    # the mid-rank minus a half is the mean of the accepted weight before and after the tie group
    from twofold._kernels import trapezoid

    return float(s.loss[-1] - trapezoid(s.loss, s.accepted) / s.total) / s.total


@register_metric(
    "augrc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 0.5),
    formula=r"\frac{1}{n}\sum_i l_i \left(1 - \frac{\mathrm{rank}_i - 1/2}{n}\right)",
    reference=_TRAUB,
    sweep=_augrc,
    weighted=sweep_weighted(_augrc),
)
def augrc(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the area under the generalised-risk-coverage curve: the mean risk of a silent failure.

    The mean is taken over all coverages:

    .. math:: \frac{1}{n} \sum_i l_i \left(1 - \frac{\mathrm{rank}_i - \frac12}{n}\right)

    with mid-ranks, 1 = most confident.

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
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 0.5] for 0/1 losses; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, if ``correct`` is True on an OOD sample, or if
        ``ood_share`` is outside [0, 1) or comes without ``is_id``.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    Exact for finite n and under ties, where it equals the mean over random tie orders. For 0/1 losses with accuracy a
    and error rate e it is :math:`(1 - \mathrm{AUROC}) a e + e^2/2`, between :math:`e^2/2` and :math:`e - e^2/2`.

    References
    ----------
    Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> augrc([True, False, True, False], [0.9, 0.8, 0.8, 0.1])
    0.15625
    """
    return _augrc(sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan))


def _eaugrc(s: Sweep) -> float:
    return _augrc(s) - s.mean_loss**2 / 2.0


@register_metric(
    "eaugrc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 0.25),
    formula=r"\mathrm{AUGRC} - e^2/2",
    reference=_TRAUB,
    sweep=_eaugrc,
    weighted=sweep_weighted(_eaugrc),
)
def eaugrc(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    r"""Compute the excess AUGRC, which is 0 for a perfect ranking.

    .. math:: \mathrm{AUGRC} - \frac{e^2}{2} = (1 - \mathrm{AUROC})\, a e

    with accuracy a and error rate e.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    is_id : array-like of shape (n_samples,), default=None
        True for in-distribution samples; the others are OOD, and accepting one is a failure. By default all samples are
        in-distribution.
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
        The excess, in [0, 0.25]; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, if ``correct`` is True on an OOD sample, or if
        ``ood_share`` is outside [0, 1) or comes without ``is_id``.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    References
    ----------
    Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> eaugrc([True, False], [0.9, 0.8])
    0.0
    >>> eaugrc([False, True], [0.9, 0.8])
    0.25
    """
    return _eaugrc(sweep(correct, conf, is_id=is_id, ood_share=ood_share, nan=nan))


# Curves and operating points


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
        If arrays differ in length or hold values that are not allowed, if ``correct`` is True on an OOD sample, if
        ``ood_share`` is outside [0, 1) or comes without ``is_id``, or if ``coverage="id"`` finds no ID sample.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

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
    _check_convention(coverage, "empirical", is_id)
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


def _achievable(s: Sweep) -> float:
    """Return ``continuous`` on the lower convex hull of accepted loss against accepted weight, (0, 0) included."""
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for x, y in zip(s.accepted.tolist(), s.loss.tolist(), strict=True):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    accepted, loss = np.array(hull[1:]).T
    return _continuous(Sweep(accepted, accepted, loss, accepted))


@register_metric(
    "achievable_aurc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 1),
    formula=r"\mathrm{AURC\ of\ the\ convex\ hull\ of\ } (N_t, L_t)",
    reference=_TRAUB,
    sweep=_achievable,
    weighted=sweep_weighted(_achievable),
)
def achievable_aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    """Compute the AURC of the convex hull, which a user reaches by choosing at random between the good thresholds.

    Points above the lower convex hull of (accepted, accepted loss) are never worth using.

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
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1] for 0/1 losses; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, if ``correct`` is True on an OOD sample, or if
        ``ood_share`` is outside [0, 1) or comes without ``is_id``.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    Integrated like the estimator ``continuous`` of :func:`aurc`, which it never exceeds.

    References
    ----------
    Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> achievable_aurc([False, True], [0.9, 0.1]) == aurc([True, False], [0.5, 0.5], estimator="continuous")
    True
    """
    return _achievable(sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan))


# One score judged on both kinds of failure, with costs


def _costs(correct: ArrayLike, is_id: ArrayLike, ood_cost: float) -> Array:
    right, known = _checks.mask(correct, "correct"), _checks.mask(is_id, "is_id")
    _checks.same_rows(correct=right, is_id=known)
    cost = _checks.number(ood_cost, "ood_cost", 0.0, np.inf, open_high=True)
    return np.where(known, (~right).astype(np.float64), cost)


@register_metric(
    "joint_aurc",
    task="joint",
    coverage="all",
    better="lower",
    bounds=(0, np.inf),
    formula=r"\mathrm{AURC\ with\ loss\ } [\mathrm{wrong}] + c\,[\mathrm{OOD}]",
    reference="Xia & Bouganis, ACCV 2022, arXiv:2207.07506",
)
def joint_aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike,
    *,
    ood_cost: float = 1.0,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    """Compute the AURC of one score on ID and OOD samples together, with a cost for accepted OOD samples.

    :func:`aurc` with loss 1 for a mistake and ``ood_cost`` for an OOD sample; coverage counts all samples.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    is_id : array-like of shape (n_samples,)
        True for in-distribution samples; the others are OOD.
    ood_cost : float, default=1.0
        Cost of an accepted OOD sample, in mistakes; finite and not negative. Raise it when accepting an OOD input
        is worse than a misclassification.
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
        The area; lower is better. It can exceed 1 where ``ood_cost`` does.

    Raises
    ------
    InvalidInput
        If ``ood_cost`` is negative or infinite, or if the arrays or ``ood_share`` are invalid as in :func:`augrc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    References
    ----------
    Xia & Bouganis, ACCV 2022, arXiv:2207.07506.

    Examples
    --------
    >>> round(joint_aurc([True, False, False], [0.9, 0.5, 0.1], [True, True, False], ood_cost=2.0), 4)
    0.5
    """
    cost = _costs(correct, is_id, ood_cost)
    return aurc(correct, conf, is_id=is_id, loss=cost, ood_share=ood_share, nan=nan)


@register_metric(
    "joint_augrc",
    task="joint",
    coverage="all",
    better="lower",
    bounds=(0, np.inf),
    formula=r"\mathrm{AUGRC\ with\ loss\ } [\mathrm{wrong}] + c\,[\mathrm{OOD}]",
    reference=f"Xia & Bouganis, ACCV 2022, arXiv:2207.07506; {_TRAUB}",
)
def joint_augrc(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike,
    *,
    ood_cost: float = 1.0,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    """Compute the AUGRC of one score on ID and OOD samples together, with a cost for accepted OOD samples.

    :func:`augrc` with loss 1 for a mistake and ``ood_cost`` for an OOD sample; coverage counts all samples.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    is_id : array-like of shape (n_samples,)
        True for in-distribution samples; the others are OOD.
    ood_cost : float, default=1.0
        Cost of an accepted OOD sample, in mistakes; finite and not negative. Raise it when accepting an OOD input
        is worse than a misclassification.
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
        The area; lower is better.

    Raises
    ------
    InvalidInput
        If ``ood_cost`` is negative or infinite, or if the arrays or ``ood_share`` are invalid as in :func:`augrc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    References
    ----------
    Xia & Bouganis, ACCV 2022, arXiv:2207.07506; Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> round(joint_augrc([True, False, False], [0.9, 0.5, 0.1], [True, True, False], ood_cost=2.0), 4)
    0.2778
    """
    cost = _costs(correct, is_id, ood_cost)
    return augrc(correct, conf, is_id=is_id, loss=cost, ood_share=ood_share, nan=nan)


# Equal weight for every class


def _by_class(labels: ArrayLike, correct: ArrayLike, conf: ArrayLike, nan: NaNPolicy) -> tuple[Array, Array, Array]:
    conf = _checks.confidence(conf, nan=nan)
    wrong = (~_checks.mask(correct, "correct")).astype(np.float64)
    group = _checks.labels(labels, ood=False)
    _checks.same_rows(labels=group, correct=wrong, conf=conf)
    return np.unique(group, return_inverse=True)[1].astype(np.int64), wrong, conf


@register_metric(
    "balanced_augrc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 1),
    formula=r"\mathrm{AUGRC\ with\ losses\ } l_i\, n / (K n_{y_i})",
    reference=_TRAUB,
)
def balanced_augrc(labels: ArrayLike, correct: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    """Compute the AUGRC with equal weight for every class.

    The loss of a sample of class y is weighted by :math:`n / (K n_y)` for the K classes present.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        True class of each sample, an integer of at least 0.
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, such as a label of -1 (OOD).

    Notes
    -----
    Equals :func:`augrc` when all classes have equally many samples.

    References
    ----------
    Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> round(balanced_augrc([0, 0, 1], [True, False, False], [0.9, 0.5, 0.1]), 6)
    0.208333
    """
    group, wrong, conf = _by_class(labels, correct, conf, nan)
    size = np.bincount(group)
    return augrc(wrong == 0, conf, loss=wrong * len(group) / (len(size) * size[group]))


@register_metric(
    "balanced_aurc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 1),
    formula=r"\frac{1}{n}\sum_i \frac{1}{K}\sum_c R_c(g_i)",
    reference=_TRAUB,
)
def balanced_aurc(labels: ArrayLike, correct: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    r"""Compute the AURC with equal weight for every class: the selective risk is the mean of the class-wise ones.

    .. math:: \frac{1}{n} \sum_i \frac{1}{K} \sum_c R_c(g_i)

    over the K classes present.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        True class of each sample, an integer of at least 0.
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, such as a label of -1 (OOD).

    Notes
    -----
    A class with nothing accepted has risk 0. Ties as in :func:`aurc`.

    References
    ----------
    Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> balanced_aurc([0, 1], [True, False], [0.9, 0.1])
    0.25
    """
    group, wrong, conf = _by_class(labels, correct, conf, nan)
    # the risk of class c changes at its own levels only: sum it times the samples that fall before its next level
    level, place = np.unique(-conf, return_inverse=True)
    reached = np.concatenate(([0], np.cumsum(np.bincount(place, minlength=len(level)))))  # samples before level t
    order = np.lexsort((place, group))
    group, place, wrong = group[order], place[order], wrong[order]
    last = np.append((group[1:] != group[:-1]) | (place[1:] != place[:-1]), True)  # last row of its class and level
    first_row = np.concatenate(([0], np.cumsum(np.bincount(group))))[:-1]
    running = np.cumsum(wrong)
    before = running[first_row] - wrong[first_row]
    risk = (running - before[group]) / (np.arange(len(group)) - first_row[group] + 1)
    group, place, risk = group[last], place[last], risk[last]
    next_level = np.append(np.where(group[1:] == group[:-1], place[1:], len(level)), len(level))
    return float(risk @ (reached[next_level] - reached[place])) / (len(order) * len(first_row))


# Properties of the estimators themselves


def aurc_weights(n: int, estimator: Estimator = "empirical") -> Array:
    r"""Compute the weight that an AURC estimator gives to each rank.

    .. math:: \mathrm{AURC} = \frac1n \sum_i w(r_i)\, l_i

    over ascending ranks r = 1..n without ties.

    Parameters
    ----------
    n : int
        Number of samples, at least 1.
    estimator : str, default="empirical"
        A rule of :func:`aurc` other than ``grid`` and ``published``.

    Returns
    -------
    ndarray of shape (n,)
        The weights; index 0 is the least confident sample.

    Raises
    ------
    InvalidInput
        If ``n`` is not a whole number of at least 1, or ``estimator`` is unknown, ``grid`` or ``published``.

    Notes
    -----
    Mean weights: 1 for ``empirical`` and ``continuous``, below 1 for ``log``, about 1/2 for ``sele``.

    References
    ----------
    Zhou et al., ICML 2025, arXiv:2410.15361.

    Examples
    --------
    >>> aurc_weights(4).round(4)
    array([0.25  , 0.5833, 1.0833, 2.0833])
    """
    n = _checks.whole(n, "n", 1)
    _checks.choice(estimator, "estimator", _ESTIMATORS)
    i = np.arange(1, n + 1, dtype=np.float64)  # position, most confident first
    if estimator in ("empirical", "expected", "self_excluded"):
        weight = np.cumsum(1.0 / i[::-1])[::-1] - (1.0 / n if estimator == "self_excluded" else 0.0)
    elif estimator == "log":
        weight = np.log((n + 1) / i)
    elif estimator in ("sele", "2sele"):
        weight = (n + 1 - i) / n * (2.0 if estimator == "2sele" else 1.0)
    elif estimator == "trapezoid":
        share = np.ones(n)
        share[0] += 0.5
        share[-1] -= 0.5
        weight = np.cumsum((share / i)[::-1])[::-1]
    else:
        previous = np.maximum(i - 1.0, 1.0)
        weight = 1.0 + np.log(n / i) - (i - 1.0) * np.log(i / previous)
    return weight[::-1].copy()


def aurc_weight_bias(beta: ArrayLike, n: int, estimator: Estimator = "empirical") -> Array:
    r"""Compute the bias of the weight of a sample whose confidence is the beta-quantile of the population.

    The population weight is :math:`-\ln(1-\beta)`; the rank r of the sample among n has
    :math:`r - 1 \sim \mathrm{Bin}(n-1, \beta)`.

    Parameters
    ----------
    beta : array-like of shape (n_quantiles,)
        Quantiles of the confidence in the population, in [0, 1).
    n : int
        Number of samples, at least 1.
    estimator : str, default="empirical"
        One of ``empirical``, ``expected``, ``self_excluded``, ``sele``, ``2sele`` and ``log``.

    Returns
    -------
    ndarray of shape (n_quantiles,)
        Expected weight minus population weight.

    Raises
    ------
    InvalidInput
        If ``beta`` has a value outside [0, 1), ``n`` is not a whole number of at least 1, or ``estimator`` is another.

    Notes
    -----
    Closed forms: ``empirical`` :math:`\frac1n - \sum_{k \ge n} \beta^k / k` (0 on average over beta), ``sele``
    :math:`\beta + (1-\beta)/n + \ln(1-\beta)`; the others follow, ``log`` by the binomial sum.

    References
    ----------
    Zhou et al., ICML 2025, arXiv:2410.15361 (Prop. 3.3, 3.4 and A.2).

    Examples
    --------
    >>> aurc_weight_bias([0.5], 4).round(4)
    array([0.2235])
    """
    b = np.asarray(_checks.floats(beta, "beta"), dtype=np.float64)
    n = _checks.whole(n, "n", 1)
    if (b < 0).any() or (b >= 1).any():
        raise InvalidInput(f"beta must be in [0, 1), got {b[(b < 0) | (b >= 1)][0]}")
    _checks.choice(estimator, "estimator", ("empirical", "expected", "self_excluded", "sele", "2sele", "log"))
    if estimator in ("empirical", "expected", "self_excluded"):
        k = np.arange(1, n)
        head = (b[:, None] ** k / k).sum(axis=1)
        return np.asarray((0.0 if estimator == "self_excluded" else 1.0 / n) + np.log1p(-b) + head)
    if estimator in ("sele", "2sele"):
        return np.asarray((2.0 if estimator == "2sele" else 1.0) * (b + (1.0 - b) / n) + np.log1p(-b))
    from scipy.stats import binom

    chance = binom.pmf(np.arange(n), n - 1, b[:, None])
    return np.asarray(chance @ aurc_weights(n, "log") + np.log1p(-b))


def aurc_weight_mse(n: int, estimator: Estimator = "empirical") -> Array:
    r"""Compute the mean squared error of each rank's weight, given the rank (ascending, r = 1..n).

    Given the rank, beta is Beta(r, n-r+1): its weight has mean :math:`H_n - H_{n-r}` and variance
    :math:`\sum_{k=n+1-r}^{n} k^{-2}`.

    Parameters
    ----------
    n : int
        Number of samples, at least 1.
    estimator : str, default="empirical"
        A rule of :func:`aurc` other than ``grid`` and ``published``.

    Returns
    -------
    ndarray of shape (n,)
        The errors; index 0 is the least confident sample.

    Raises
    ------
    InvalidInput
        If ``n`` is not a whole number of at least 1, or ``estimator`` is unknown, ``grid`` or ``published``.

    Notes
    -----
    ``empirical`` has that variance as its error, :math:`H_n/n` on average; any other weight adds the square of its
    distance from the mean.

    References
    ----------
    Zhou et al., ICML 2025, arXiv:2410.15361 (Prop. 3.5 and A.3).

    Examples
    --------
    >>> round(float(aurc_weight_mse(4).mean()), 6), round(float(_math.harmonic(4.0)) / 4, 6)
    (0.520833, 0.520833)
    """
    n = _checks.whole(n, "n", 1)
    variance = np.cumsum(1.0 / np.arange(n, 0, -1, dtype=np.float64) ** 2)
    return np.asarray(variance + (aurc_weights(n, estimator) - aurc_weights(n)) ** 2)


def aurc_standard_error(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    coverage: Coverage = "all",
    nan: NaNPolicy = "error",
) -> float:
    r"""Estimate the standard error of the ``empirical`` AURC by its influence function.

    .. math:: \mathrm{IF}_i = R(g_i) - \mathrm{AURC} + \sum_{t: v_t \le g_i} \frac{c_t}{N_t} (l_i - R_t), \qquad
              \mathrm{se}^2 = \frac{1}{n^2} \sum_i \mathrm{IF}_i^2

    over tie groups t of value :math:`v_t` with :math:`c_t` samples.

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
    coverage : {"all", "id"}, default="all"
        Whose coverage the risk is averaged over, as in :func:`aurc`.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The standard error, in the units of the loss.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, if ``correct`` is True on an OOD sample, or if
        ``coverage="id"`` finds no ID sample.

    Notes
    -----
    Do not trust it below a thousand samples or with few failures, where nominal 95 % intervals cover clearly less; use
    :func:`twofold.stats.bootstrap` instead.

    Examples
    --------
    >>> round(aurc_standard_error([True, False, True, False], [0.9, 0.8, 0.7, 0.1]), 4)
    0.2954
    """
    _check_convention(coverage, "empirical", is_id)
    conf = _checks.confidence(conf, nan=nan)
    right, inside = _checks.joint(correct, is_id, conf=conf)
    s = sweep(right, conf, is_id=inside, loss=loss, levels=True)
    cost = (~right).astype(np.float64) if loss is None else _checks.losses(loss)
    outer = s.known if coverage == "id" else s.accepted  # cumulative weights over which the risk is averaged
    counted = np.ones(len(conf)) if inside is None or coverage == "all" else inside.astype(np.float64)
    share = np.diff(outer, prepend=0.0) / outer[-1]
    per_loss = np.cumsum((share * s.total / s.accepted)[::-1])[::-1]  # over groups at or below g_i
    per_risk = np.cumsum((share * s.total / s.accepted * s.risk)[::-1])[::-1]
    place = np.searchsorted(-s.level, -conf)
    area = float(share @ s.risk)
    influence = counted * (s.total / outer[-1]) * (s.risk[place] - area) + per_loss[place] * cost - per_risk[place]
    return float(np.sqrt((influence**2).sum()) / len(conf))


@dataclass(frozen=True, eq=False)
class ExpectedAURC:
    """Hold the AURC over stochastic passes: each draw judged on its own predictions, beside the averaged prediction.

    Attributes
    ----------
    mean : float
        Mean of ``values``.
    std : float
        Standard deviation over draws, with ``ddof=1``; NaN for a single draw.
    values : ndarray of shape (n_draws,)
        One AURC per draw.
    averaged : float
        AURC of the mean probabilities.
    """

    mean: float
    std: float
    values: Array
    averaged: float


def expected_aurc(
    labels: ArrayLike,
    passes: ArrayLike,
    score: Callable[[Array], ArrayLike] = _math.log_odds,
    *,
    estimator: Estimator = "empirical",
) -> ExpectedAURC:
    r"""Compute the mean over stochastic draws of each draw's own AURC, beside the AURC of the averaged prediction.

    The averaged prediction has logits :math:`\log \bar p` with :math:`\bar p` the mean probabilities.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class of each sample; -1 marks an OOD sample, on which every prediction is a failure.
    passes : array-like of shape (n_draws, n_samples, n_classes)
        Logits of the dropout passes or ensemble members.
    score : callable, default=log-odds of the predicted class
        Maps logits of shape (n_samples, n_classes) to a confidence of shape (n_samples,), higher is safer.
    estimator : str, default="empirical"
        A rule of :func:`aurc` other than ``grid`` and ``published``.

    Returns
    -------
    ExpectedAURC
        ``mean``, ``std`` and ``values`` over draws, and ``averaged`` for the mean probabilities.

    Raises
    ------
    InvalidInput
        If ``passes`` is not three-dimensional, differs from ``labels`` in the number of samples, or gives NaN
        confidences, if a label is not a class or -1, or if ``estimator`` is unknown, ``grid`` or ``published``.

    Examples
    --------
    >>> draws = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [3.0, 0.0]]])
    >>> result = expected_aurc([0, 1], draws)
    >>> result.values, result.mean, result.averaged
    (array([0.  , 0.75]), 0.375, 0.25)
    """
    logits = _checks.floats(passes, "passes", ndim=3)
    truth = _checks.labels(labels, classes=logits.shape[2])
    if logits.shape[1] != len(truth):
        raise InvalidInput(f"passes has {logits.shape[1]} rows (its second axis) but labels has {len(truth)}")

    def judged(z: Array) -> float:
        right = (z.argmax(axis=1) == truth) & (truth >= 0)
        return aurc(right, score(z), estimator=estimator)

    values = np.array([judged(np.asarray(z, dtype=np.float64)) for z in logits])
    mean_logits = _math.logsumexp(np.stack([_math.log_softmax(z) for z in logits]), axis=0) - np.log(len(logits))
    spread = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    return ExpectedAURC(float(values.mean()), spread, values, judged(mean_logits))
