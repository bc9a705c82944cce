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
from typing import Any, Literal

import numpy as np

from twofold import _checks, _math
from twofold._checks import Array, ArrayLike, NaNPolicy
from twofold.errors import InvalidInput, UndefinedMetric, UnfitData
from twofold.metrics import _grid
from twofold.metrics._registry import register_metric
from twofold.metrics._samples import Samples
from twofold.metrics._sweep import MeanRisk, SortedRows, Sweep, Weighted, sweep, sweep_weighted

__all__ = [
    "achievable_aurc",
    "augrc",
    "aurc",
    "eaugrc",
    "eaurc",
    "naurc",
]

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
    "listing",
    "grid",
    "published",
    "fd_shifts",
    "torch_uncertainty",
]

_ZHOU = "Zhou et al., ICML 2025, arXiv:2410.15361"
_GEIFMAN = "Geifman, Uziel, El-Yaniv, ICLR 2019, arXiv:1805.08206"
_FD_SHIFTS = "Jaeger et al., ICLR 2023, arXiv:2211.15259"
TRAUB = "Traub et al., NeurIPS 2024, arXiv:2407.01032"


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


ESTIMATORS: dict[str, Callable[[Sweep], float]] = {
    "empirical": _empirical,
    "log": lambda s: _rank_weighted(s, _log_weight),
    "sele": lambda s: _rank_weighted(s, _sele_weight),
    "2sele": lambda s: 2.0 * _rank_weighted(s, _sele_weight),
    "self_excluded": lambda s: _empirical(s) - s.mean_loss / s.total,
    "expected": lambda s: _rank_weighted(s, _expected_weight),
    "trapezoid": _trapezoid,
    "continuous": _continuous,
}


PEERS = ("fd_shifts", "torch_uncertainty")
"""Estimators that other libraries compute, for those who must match their numbers."""


def _aurc(s: Sweep, *, coverage: Coverage = "all", estimator: Estimator = "empirical") -> float:
    if coverage == "id":
        return s.mean(over=s.known)
    return ESTIMATORS[estimator](s)


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
    return MeanRisk(SortedRows(right, conf, inside, None), only_id=coverage == "id")


_sweep_weighted_aurc = sweep_weighted(_aurc, estimator=tuple(ESTIMATORS))


def check_convention(coverage: str, estimator: str, is_id: ArrayLike | None, *, loss: bool = False) -> None:
    """Raise unless the settings of an AURC go together.

    Parameters
    ----------
    coverage : str
        Whose coverage the risk is averaged over.
    estimator : str
        Name of the rule.
    is_id : array-like of bool, shape (n_samples,), or None
        True for ID samples.
    loss : bool, default=False
        Whether losses were passed.

    Raises
    ------
    InvalidInput
        If a setting is unknown, or two do not go together.
    UnfitData
        If ``coverage="id"`` and there is no ID sample.
    """
    _checks.choice(coverage, "coverage", ("all", "id"))
    _checks.choice(estimator, "estimator", (*ESTIMATORS, "listing", "grid", "published", *PEERS))
    if coverage == "id" and estimator not in ("empirical", "grid", "published"):
        raise InvalidInput(f'coverage="id" is defined for empirical, grid and published, not for {estimator!r}')
    if coverage == "all" and estimator in ("grid", "published"):
        raise InvalidInput(f'estimator={estimator!r} counts ID coverage; pass coverage="id"')
    if coverage == "id" and is_id is not None and not _checks.mask(is_id, "is_id").any():
        raise UnfitData('coverage="id" needs at least one ID sample; is_id is False everywhere')
    if loss and estimator in ("grid", "published"):
        raise InvalidInput(f"estimator={estimator!r} is defined for correct and wrong predictions only; leave loss out")


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

    Tied confidences share one risk, so the order of samples never matters (but for ``listing``). ``estimator`` chooses
    the rule:

    ================= =========================================================================================
    ``empirical``     the mean above (Eq. 10 of Zhou et al.)
    ``expected``      mean over random orders of tied samples: weights :math:`H_n - H_{i-1}` at position i
    ``log``           weights :math:`-\ln(1 - r/(n+1))` of the ascending rank r (Eq. 18)
    ``sele, 2sele``   weights :math:`r/n` and :math:`2r/n` (lower bound; no bound in general)
    ``self_excluded`` ``empirical`` minus mean(loss)/n: a sample does not vouch for itself; least bias at small n
    ``trapezoid``     the FD-Shifts rule: straight lines between distinct thresholds, flat to coverage 0
    ``continuous``    the exact integral where risk is linear in accepted loss between thresholds
    ``listing``       Listing 1 of FD-Shifts as printed, to match its numbers; see Notes
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
        not go together: ``coverage="id"`` needs ``empirical``, ``grid`` or ``published``; ``grid`` and ``published``
        need ``coverage="id"`` and take no ``loss``; ``published``, ``listing`` and ``torch_uncertainty`` take no
        ``ood_share``; ``published`` needs finite confidences.
    UnfitData
        If there is no ID sample for ``coverage="id"``, or if ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    State the estimator with every number. ``trapezoid`` rewards ties: between two thresholds the true risk lies above
    the chord.

    ``listing`` draws trapezoids too, but reads the risk after the first member of a tie group instead of the last, and
    leaves out the stretch from the most confident sample to coverage 0. Its value depends on the order of tied
    samples: here they are removed in the order of the rows, as ``np.argsort(conf, kind="stable")`` gives it.

    ``fd_shifts`` is what that library computes today, ``trapezoid`` (it prints 1,000 times the value).
    ``torch_uncertainty`` draws trapezoids between the n single samples from coverage 1/n to 1 and divides by 1 - 1/n;
    tied samples are taken in the order of the rows.

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
    >>> round(aurc(correct, conf, estimator="listing"), 4)
    0.1458

    The last sample is OOD, and half of the inputs in deployment will be:

    >>> round(aurc(correct, conf, is_id=[True, True, True, False], ood_share=0.5), 4)
    0.4444
    """
    check_convention(coverage, estimator, is_id, loss=loss is not None)
    if estimator in ("grid", "published"):
        return _grid_aurc(correct, conf, is_id, ood_share, estimator, thresholds, bins, nan)
    if estimator == "listing":
        return _listing_aurc(correct, conf, is_id, loss, ood_share, nan)
    if estimator in PEERS:
        return _peer_aurc(correct, conf, is_id, loss, ood_share, estimator, nan)
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
    data = Samples.check(correct, is_id, ood_share=ood_share, nan=nan, conf=conf)
    table = data.grid(estimator, thresholds)
    if estimator == "published":
        return _grid.published_area(table, data.inside)
    return _grid.binned_area(table, data.inside, _checks.whole(bins, "bins", 1))


def _listing_aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike | None,
    loss: ArrayLike | None,
    ood_share: float | None,
    nan: NaNPolicy,
) -> float:
    """Compute Listing 1 of FD-Shifts: remove the least confident first, with a point after a tie's first member."""
    if ood_share is not None:
        raise InvalidInput('estimator="listing" counts every sample once; leave ood_share out')
    conf = _checks.confidence(conf, nan=nan)
    right, _ = _checks.joint(correct, is_id, conf=conf)
    losses = (~right).astype(np.float64) if loss is None else _checks.losses(loss)
    _checks.same_rows(loss=losses, conf=conf)
    n = len(conf)
    order = np.argsort(conf, kind="stable")
    removed = np.cumsum(losses[order])
    is_first = np.ones(n, bool)
    is_first[1:] = conf[order][1:] != conf[order][:-1]
    points = np.flatnonzero(is_first[:-1])  # the most confident sample is never removed
    risks = (removed[-1] - removed[points]) / (n - 1 - points)
    risks = np.concatenate(([removed[-1] / n], risks))
    steps = np.diff(points, prepend=-1)
    left = n - 2 - points[-1] if len(points) else 0  # members of the last tie group but its first
    if left > 0:
        risks = np.append(risks, risks[-1])
        steps = np.append(steps, left)
    return float((risks[1:] + risks[:-1]) @ steps) / (2.0 * n)


def _peer_aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike | None,
    loss: ArrayLike | None,
    ood_share: float | None,
    estimator: str,
    nan: NaNPolicy,
) -> float:
    """Compute the AURC as another library does."""
    if estimator == "fd_shifts":
        return _trapezoid(sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan))
    if ood_share is not None:
        raise InvalidInput('estimator="torch_uncertainty" counts every sample once; leave ood_share out')
    conf = _checks.confidence(conf, nan=nan)
    right, _ = _checks.joint(correct, is_id, conf=conf)
    losses = (~right).astype(np.float64) if loss is None else _checks.losses(loss)
    _checks.same_rows(loss=losses, conf=conf)
    return _area_between_samples(losses[np.argsort(-conf, kind="stable")])


def _area_between_samples(losses: Array) -> float:
    """Compute the area under the risks of the first 1, 2, ..., n samples, as if it reached from coverage 0 to 1."""
    n = len(losses)
    if n < 2:
        raise UndefinedMetric("torch_uncertainty has no area under the risk of one sample; use more samples")
    risks = np.cumsum(losses) / np.arange(1, n + 1)
    return float((risks[1:] + risks[:-1]).sum()) / (2.0 * n) / (1.0 - 1.0 / n)


def _peer_optimum(correct: ArrayLike, estimator: str) -> float:
    """Return the AURC that a perfect ranking has by the rule of another library."""
    wrong = ~_checks.mask(correct, "correct")
    if estimator == "torch_uncertainty":
        return _area_between_samples(np.sort(wrong.astype(np.float64)))
    error = float(wrong.mean())
    return error + (1.0 - error) * float(np.log(1.0 - error + np.finfo(np.float64).eps))


# Excess and normalised areas


def _optimum(s: Sweep, *, coverage: Coverage = "all", estimator: Estimator = "empirical") -> float:
    """Return the AURC of the perfect ranking of the same samples, without ties."""
    if s.atoms is not None:
        present = np.where(s.atoms.weight > 0, s.atoms.times, 0)
        loss, weight = np.repeat(s.atoms.loss, present), np.repeat(s.atoms.weight, present)
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
    n_right, n_wrong = round(right), round(wrong)
    n_ood = round(outside / s.weight) if s.weight else 0
    failures = np.sort(np.repeat([1.0, s.weight], [n_wrong, n_ood]))  # by weight, lighter ones first
    loss = np.repeat([0.0, 1.0], [n_right, n_wrong + n_ood])
    weight = np.concatenate((np.ones(n_right), failures))
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
    weighted=sweep_weighted(_eaurc, estimator=tuple(ESTIMATORS)),
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
        Rule of :func:`aurc` for both areas, except ``listing``, ``grid`` and ``published``, which have no exact
        optimum.
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
        If the arrays or ``ood_share`` are invalid as in :func:`aurc`, if ``estimator`` is ``listing``, ``grid`` or
        ``published``, or if ``coverage="id"`` comes with ``loss``, with an estimator other than ``empirical``, or
        without any ID sample.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    Notes
    -----
    The optimum is the exact finite-n one, so a perfect strict ranking has 0 (up to rounding); the usual
    :math:`e + (1-e)\ln(1-e)` with error rate e is its limit and leaves an offset. With ``loss`` the optimum ranks by
    rising loss. ``fd_shifts`` subtracts this limit, ``torch_uncertainty`` its own area of a perfect ranking; both take
    0/1 losses only. The optimum has no ties and, with ``ood_share``, puts lighter failures first, which is best for
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
    check_convention(coverage, estimator, is_id)
    if estimator in PEERS:
        if loss is not None or ood_share is not None:
            raise InvalidInput(f"eaurc(estimator={estimator!r}) takes neither loss nor ood_share; leave them out")
        return _peer_aurc(correct, conf, is_id, None, None, estimator, nan) - _peer_optimum(correct, estimator)
    _check_has_optimum(estimator)
    _check_optimum_is_known(loss, coverage)
    s = sweep(correct, conf, is_id=is_id, loss=loss, ood_share=ood_share, nan=nan)
    return _eaurc(s, coverage=coverage, estimator=estimator)


def _check_has_optimum(estimator: str) -> None:
    if estimator in ("listing", "grid", "published", *PEERS):
        raise InvalidInput(f"estimator={estimator!r} has no exact optimum to compare with; use empirical")


def _check_optimum_is_known(loss: ArrayLike | None, coverage: str) -> None:
    if loss is not None and coverage == "id":
        raise InvalidInput('the perfect ranking under coverage="id" is known for correct and wrong predictions only')


def _naurc(s: Sweep, *, coverage: Coverage = "all", estimator: Estimator = "empirical") -> float:
    if s.atoms is None:
        varied = 0 < s.loss[-1] < s.accepted[-1]
    else:
        present = s.atoms.loss[(s.atoms.weight > 0) & (s.atoms.times > 0)]
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
    weighted=sweep_weighted(_naurc, estimator=tuple(ESTIMATORS)),
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
        Rule of :func:`aurc` for both areas, except ``listing``, ``grid`` and ``published``, which have no exact
        optimum.
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
    check_convention(coverage, estimator, is_id)
    _check_has_optimum(estimator)
    _check_optimum_is_known(loss, coverage)
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
    reference=TRAUB,
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
    reference=TRAUB,
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
    reference=TRAUB,
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
