r"""Scores from several stochastic passes, or from the members of an ensemble.

Notation: :math:`p_s` the probabilities of pass s, :math:`\bar p` their mean, :math:`\bar z` the mean logits. All need
only the running means that :class:`~twofold.outputs.Passes` keeps. They judge the averaged prediction, the argmax of
:math:`\bar p` (``Outputs.averaged()``), so that the accuracy gained by averaging counts.
"""

from __future__ import annotations

import numpy as np

from twofold.outputs import Passes
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats

_GAL = "Gal & Ghahramani, ICML 2016, arXiv:1506.02142"
_ENSEMBLE = "Lakshminarayanan, Pritzel, Blundell, NeurIPS 2017, arXiv:1612.01474"


def means(passes: Floats | Passes) -> Passes:
    """Return the running means of the passes, computing them where the logits of all passes are stored.

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    Passes
        ``passes`` itself if it is one, else the means of its logits.

    Examples
    --------
    >>> means(np.array([[[2.0, 0.0]], [[0.0, 1.0]]])).mean_logits
    array([[1. , 0.5]])
    """
    return passes if isinstance(passes, Passes) else Passes.from_logits(passes)


def _entropy(prob: Floats) -> Array:
    """Compute the entropy of each row of probabilities, in nats."""
    p = np.asarray(prob, dtype=np.float64)
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(axis=1)


@register_score("mc_msp", paper=f"{_GAL}; {_ENSEMBLE}", aliases=("mcd_msr",), judges="passes", cost="C")
def mc_msp(passes: Floats | Passes) -> Array:
    r"""Score by the maximum of the mean probabilities, as log-odds.

    .. math:: s = \log \bar p_{\hat y} - \log \sum_{k \ne \hat y} \bar p_k

    The sum over the other classes keeps confident samples distinct.

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    The score is +inf where the other classes have no probability left.

    References
    ----------
    Gal & Ghahramani, ICML 2016, arXiv:1506.02142; Lakshminarayanan, Pritzel, Blundell, NeurIPS 2017, arXiv:1612.01474.

    Examples
    --------
    >>> mc_msp(np.log(np.array([[[0.9, 0.1]], [[0.7, 0.3]]]))).round(6)
    array([1.386294])
    """
    p = np.array(means(passes).mean_prob, dtype=np.float64)
    rows, top = np.arange(len(p)), p.argmax(axis=1)
    best = p[rows, top].copy()
    p[rows, top] = 0.0
    with np.errstate(divide="ignore"):
        return np.log(best) - np.log(p.sum(axis=1))


@register_score("mc_mls", paper=_GAL, aliases=("mcd_mls",), judges="passes", cost="C")
def mc_mls(passes: Floats | Passes) -> Array:
    r"""Score by the maximum of the mean logits.

    .. math:: s = \max_k \bar z_k

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    References
    ----------
    Gal & Ghahramani, ICML 2016, arXiv:1506.02142.

    Examples
    --------
    >>> mc_mls(np.array([[[2.0, 0.0]], [[0.0, 1.0]]]))
    array([1.])
    """
    return np.asarray(means(passes).mean_logits, dtype=np.float64).max(axis=1)


@register_score("mc_entropy", paper=_GAL, aliases=("mcd_pe",), judges="passes", cost="C")
def mc_entropy(passes: Floats | Passes) -> Array:
    r"""Score by the negative entropy of the mean probabilities.

    .. math:: s = -H(\bar p)

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    References
    ----------
    Gal & Ghahramani, ICML 2016, arXiv:1506.02142.

    Examples
    --------
    >>> mc_entropy(np.log(np.array([[[0.9, 0.1]], [[0.1, 0.9]]]))).round(6)
    array([-0.693147])
    """
    return -_entropy(means(passes).mean_prob)


@register_score("mc_expected_entropy", paper=_GAL, aliases=("mcd_ee",), judges="passes", cost="1")
def mc_expected_entropy(passes: Floats | Passes) -> Array:
    r"""Score by the negative mean entropy of the passes.

    .. math:: s = -\frac1S \sum_s H(p_s)

    It measures the uncertainty within the passes, not their disagreement.

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    References
    ----------
    Gal & Ghahramani, ICML 2016, arXiv:1506.02142.

    Examples
    --------
    >>> mc_expected_entropy(np.log(np.array([[[0.5, 0.5]], [[0.5, 0.5]]]))).round(6)
    array([-0.693147])
    """
    return -np.asarray(means(passes).mean_entropy, dtype=np.float64)


@register_score(
    "mc_mutual_information",
    paper="Houlsby et al., 2011, arXiv:1112.5745",
    aliases=("mcd_mi", "bald"),
    judges="passes",
    cost="C",
)
def mc_mutual_information(passes: Floats | Passes) -> Array:
    r"""Score by the negative mutual information between prediction and pass: how much the passes disagree.

    .. math:: s = -\left[ H(\bar p) - \frac1S \sum_s H(p_s) \right]

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    At most 0; positive values, which only rounding can cause, are set to 0.

    References
    ----------
    Houlsby et al., 2011, arXiv:1112.5745.

    Examples
    --------
    >>> mc_mutual_information(np.log(np.array([[[0.5, 0.5]], [[0.5, 0.5]]]))) + 0.0
    array([0.])
    """
    held = means(passes)
    expected: Array = np.asarray(held.mean_entropy, dtype=np.float64)
    return np.minimum(expected - _entropy(held.mean_prob), 0.0)


@register_score("mc_std", paper=_GAL, aliases=("softmax_variance",), judges="passes", cost="C")
def mc_std(passes: Floats | Passes) -> Array:
    r"""Score by the negative standard deviation of the probabilities over passes, averaged over classes.

    .. math:: s = -\frac1C \sum_k \mathrm{std}_s(p_{sk})

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    References
    ----------
    Gal & Ghahramani, ICML 2016, arXiv:1506.02142.

    Examples
    --------
    >>> mc_std(np.log(np.array([[[0.9, 0.1]], [[0.7, 0.3]]]))).round(6)
    array([-0.1])
    """
    return -np.asarray(means(passes).prob_std, dtype=np.float64).mean(axis=1)
