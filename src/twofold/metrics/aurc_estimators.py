"""Describe the AURC estimators themselves: the weights they give to ranks, their errors, and AURC over draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twofold import _checks, _math
from twofold._checks import Array, ArrayLike, NaNPolicy
from twofold.errors import InvalidInput
from twofold.metrics._sweep import sweep
from twofold.metrics.selective import ESTIMATORS, Coverage, Estimator, aurc, check_convention

__all__ = [
    "ExpectedAURC",
    "aurc_standard_error",
    "aurc_weight_bias",
    "aurc_weight_mse",
    "aurc_weights",
    "expected_aurc",
]


def aurc_weights(n: int, estimator: Estimator = "empirical") -> Array:
    r"""Compute the weight that an AURC estimator gives to each rank.

    .. math:: \mathrm{AURC} = \frac1n \sum_i w(r_i)\, l_i

    over ascending ranks r = 1..n without ties.

    Parameters
    ----------
    n : int
        Number of samples, at least 1.
    estimator : str, default="empirical"
        A rule of :func:`aurc` other than ``listing``, ``grid`` and ``published``.

    Returns
    -------
    ndarray of shape (n,)
        The weights; index 0 is the least confident sample.

    Raises
    ------
    InvalidInput
        If ``n`` is not a whole number of at least 1, or ``estimator`` is unknown, ``listing``, ``grid`` or
        ``published``.

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
    _checks.choice(estimator, "estimator", ESTIMATORS)
    i = np.arange(1, n + 1, dtype=np.float64)  # position, most confident first
    if estimator in ("empirical", "expected", "self_excluded"):
        weight = np.cumsum(1.0 / i[::-1])[::-1]
        if estimator == "self_excluded":
            weight = weight - 1.0 / n
    elif estimator == "log":
        weight = np.log((n + 1) / i)
    elif estimator in ("sele", "2sele"):
        weight = (n + 1 - i) / n
        if estimator == "2sele":
            weight = 2.0 * weight
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
    outside = (b < 0) | (b >= 1)
    if outside.any():
        raise InvalidInput(f"beta must be in [0, 1), got {b[outside][0]}")
    _checks.choice(estimator, "estimator", ("empirical", "expected", "self_excluded", "sele", "2sele", "log"))
    if estimator in ("empirical", "expected", "self_excluded"):
        k = np.arange(1, n)
        head = (b[:, None] ** k / k).sum(axis=1)
        own = 0.0 if estimator == "self_excluded" else 1.0 / n  # what a sample adds to its own weight
        return np.asarray(own + np.log1p(-b) + head)
    if estimator in ("sele", "2sele"):
        factor = 2.0 if estimator == "2sele" else 1.0
        return np.asarray(factor * (b + (1.0 - b) / n) + np.log1p(-b))
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
        A rule of :func:`aurc` other than ``listing``, ``grid`` and ``published``.

    Returns
    -------
    ndarray of shape (n,)
        The errors; index 0 is the least confident sample.

    Raises
    ------
    InvalidInput
        If ``n`` is not a whole number of at least 1, or ``estimator`` is unknown, ``listing``, ``grid`` or
        ``published``.

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
        If arrays differ in length or hold values that are not allowed, or if ``correct`` is True on an OOD sample.
    UnfitData
        If ``coverage="id"`` and there is no ID sample.

    Notes
    -----
    Do not trust it below a thousand samples or with few failures, where nominal 95 % intervals cover clearly less; use
    :func:`twofold.stats.bootstrap` instead.

    Examples
    --------
    >>> round(aurc_standard_error([True, False, True, False], [0.9, 0.8, 0.7, 0.1]), 4)
    0.2954
    """
    check_convention(coverage, "empirical", is_id)
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

    def aurc_of(z: Array, name: str) -> float:
        correct = (z.argmax(axis=1) == truth) & (truth >= 0)
        conf = _checks.confidence(score(z), name)
        return aurc(correct, conf, estimator=estimator)

    values = np.empty(len(logits))
    log_probabilities = np.empty(logits.shape)
    for draw, z in enumerate(logits):
        values[draw] = aurc_of(np.asarray(z, dtype=np.float64), f"score of draw {draw}")
        log_probabilities[draw] = _math.log_softmax(z)
    mean_logits = _math.logsumexp(log_probabilities, axis=0) - np.log(len(logits))
    averaged = aurc_of(mean_logits, "score of the averaged prediction")
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return ExpectedAURC(float(values.mean()), std, values, averaged)
