"""Areas under curves of accuracy against rejection, by the names and conventions of the literature on language models.

Each is another reading of the risk-coverage curve: ``auarc`` is 1 minus :func:`aurc`, ``prr`` is 1 minus :func:`naurc`,
and ``aurac`` averages the accuracy at twenty shares of answered questions.
"""

from __future__ import annotations

import numpy as np

from twofold._checks import ArrayLike, NaNPolicy
from twofold.metrics._registry import register_metric
from twofold.metrics._sweep import Sweep, sweep, sweep_weighted
from twofold.metrics.selective import _aurc, _naurc

__all__ = ["auarc", "aurac", "prr"]

SHARES = np.linspace(0.1, 1.0, 20)  # of the questions that are answered


def _auarc(s: Sweep) -> float:
    return 1.0 - _aurc(s)


@register_metric(
    "auarc",
    task="selective",
    coverage="all",
    better="higher",
    bounds=(0, 1),
    formula=r"1 - \mathrm{AURC}",
    reference="Nadeem, Zucker, Hanczar, MLSB 2009",
    sweep=_auarc,
    weighted=sweep_weighted(_auarc),
)
def auarc(correct: ArrayLike, conf: ArrayLike, *, loss: ArrayLike | None = None, nan: NaNPolicy = "error") -> float:
    r"""Compute the area under the accuracy-rejection curve.

    .. math:: \mathrm{AUARC} = 1 - \mathrm{AURC} = \frac1n \sum_i (1 - R_{t(i)})

    the mean over samples of the accuracy among all that are at least as confident.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each answer is correct, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each answer; higher is safer to accept. Negate an uncertainty such as the semantic entropy.
    loss : array-like of shape (n_samples,), default=None
        Loss of each answer, for graded answers: 1 minus their quality. By default the 0/1 loss of ``correct``.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a warning.

    Returns
    -------
    float
        The area, in [0, 1] for 0/1 losses; higher is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length or hold values that are not allowed.

    Notes
    -----
    Without ties this is the mean accuracy of the 1, 2, ..., n most confident answers, as Lin et al. compute it; tied
    answers are accepted together, so their order does not matter.

    References
    ----------
    Nadeem, Zucker, Hanczar, MLSB 2009; Lin, Trivedi, Sun, TMLR 2024, arXiv:2305.19187.

    Examples
    --------
    >>> round(auarc([True, False, True, False], [0.9, 0.8, 0.7, 0.1]), 4)
    0.6667
    """
    return _auarc(sweep(correct, conf, loss=loss, nan=nan))


def _aurac(s: Sweep) -> float:
    last = np.floor(SHARES * (s.total - 1.0) + 1e-9)  # place of the quantile among the sorted samples
    groups = np.searchsorted(s.accepted, last + 0.5)
    accuracy = 1.0 - s.risk[groups]
    return float((SHARES[1] - SHARES[0]) * accuracy.sum())


@register_metric(
    "aurac",
    task="selective",
    better="higher",
    bounds=(0, 18 / 19),
    formula=r"\Delta q \sum_q \mathrm{acc}(q), \quad q = 0.1, \dots, 1",
    reference="Farquhar et al., Nature 2024",
    sweep=_aurac,
)
def aurac(correct: ArrayLike, conf: ArrayLike, *, loss: ArrayLike | None = None, nan: NaNPolicy = "error") -> float:
    r"""Compute the area under the rejection-accuracy curve at twenty shares of answered questions.

    .. math:: \mathrm{AURAC} = \Delta q \sum_{q} \mathrm{acc}(q), \qquad q \in \{0.1, \dots, 1\},
              \quad \Delta q = 0.9 / 19

    with acc(q) the accuracy of the answers that are at least as confident as the q-quantile, most confident first.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each answer is correct, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each answer; higher is safer to accept. Negate an uncertainty such as the semantic entropy.
    loss : array-like of shape (n_samples,), default=None
        Loss of each answer, for graded answers: 1 minus their quality. By default the 0/1 loss of ``correct``.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a warning.

    Returns
    -------
    float
        The area; at most 18/19, because 20 heights of width 0.9/19 are summed. Higher is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length or hold values that are not allowed.

    Notes
    -----
    The convention of the code for semantic entropy, for comparison with its printed numbers; :func:`auarc` uses every
    threshold and lies in [0, 1]. The quantile is NumPy's, of which only the place among the sorted samples matters.

    References
    ----------
    Farquhar et al., Nature 2024.

    Examples
    --------
    >>> round(aurac([True, True, True, True], [0.9, 0.8, 0.7, 0.1]), 4)
    0.9474
    """
    return _aurac(sweep(correct, conf, loss=loss, nan=nan))


def _prr(s: Sweep) -> float:
    return 1.0 - _naurc(s)


@register_metric(
    "prr",
    task="selective",
    coverage="all",
    better="higher",
    bounds=(-np.inf, 1),
    formula=r"(\bar l - \mathrm{AURC}) / (\bar l - \mathrm{AURC}^*)",
    reference="Malinin & Gales, ICLR 2021, arXiv:2002.07650",
    sweep=_prr,
    weighted=sweep_weighted(_prr),
)
def prr(correct: ArrayLike, conf: ArrayLike, *, loss: ArrayLike | None = None, nan: NaNPolicy = "error") -> float:
    r"""Compute the prediction rejection ratio: how much of a perfect ranking's gain over a random one is reached.

    .. math:: \mathrm{PRR} = \frac{\bar l - \mathrm{AURC}}{\bar l - \mathrm{AURC}^*}

    with :math:`\bar l` the mean loss, the AURC of a random ranking, and :math:`\mathrm{AURC}^*` that of a perfect one.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each answer is correct, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each answer; higher is safer to accept. Negate an uncertainty such as the semantic entropy.
    loss : array-like of shape (n_samples,), default=None
        Loss of each answer, for graded answers: 1 minus their quality. By default the 0/1 loss of ``correct``.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a warning.

    Returns
    -------
    float
        The ratio: 1 for a perfect ranking, 0 for one as good as random, negative for a worse one.

    Raises
    ------
    InvalidInput
        If the arrays differ in length or hold values that are not allowed.
    UndefinedMetric
        If all losses are equal.

    Notes
    -----
    This is 1 minus :func:`naurc`: rejected answers are left out, the convention of LM-Polygraph without a largest
    rejection rate. Malinin and Gales replace rejected answers by correct ones instead; for answers that are right or
    wrong that ratio is 2 :func:`auroc` - 1.

    References
    ----------
    Malinin & Gales, ICLR 2021, arXiv:2002.07650; Vashurin et al., TACL 2025, arXiv:2406.15627.

    Examples
    --------
    >>> round(prr([True, True, False], [0.9, 0.8, 0.1]), 12)
    1.0
    """
    return _prr(sweep(correct, conf, loss=loss, nan=nan))
