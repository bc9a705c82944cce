r"""Scores from several stochastic passes, or from the members of an ensemble, alike.

Notation: :math:`p_s` the probabilities of pass s, :math:`\bar p` their mean, :math:`\bar z` the mean logits. All need
only the running means that :class:`~twofold.outputs.Passes` keeps. They judge the averaged prediction, the argmax of
:math:`\bar p` (``Outputs.averaged()``), so that the accuracy gained by averaging counts.
"""

from __future__ import annotations

import numpy as np

from twofold._checks import Array
from twofold._math import Floats
from twofold.outputs import Passes
from twofold.steps import register_score

_GAL = "Gal & Ghahramani, ICML 2016, arXiv:1506.02142"
_ENSEMBLE = "Lakshminarayanan, Pritzel, Blundell, NeurIPS 2017, arXiv:1612.01474"


def means(passes: Floats | Passes) -> Passes:
    """The running means, computed where all passes were kept."""
    return passes if isinstance(passes, Passes) else Passes.from_logits(passes)


def _entropy(prob: Floats) -> Array:
    """Entropy of each row of probabilities, in nats."""
    p = np.asarray(prob, dtype=np.float64)
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(axis=1)


@register_score("mc_msp", paper=f"{_GAL}; {_ENSEMBLE}", aliases=("mcd_msr",), judges="passes", cost="C")
def mc_msp(passes: Floats | Passes) -> Array:
    r"""Maximum of the mean probabilities, as log-odds.

    .. math:: s = \log \bar p_{\hat y} - \log \sum_{k \ne \hat y} \bar p_k

    Adding up the other classes keeps confident samples apart. +inf where they have no probability left.

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
    r"""Maximum of the mean logits: :math:`\max_k \bar z_k`.

    >>> mc_mls(np.array([[[2.0, 0.0]], [[0.0, 1.0]]]))
    array([1.])
    """
    return np.asarray(means(passes).mean_logits, dtype=np.float64).max(axis=1)


@register_score("mc_entropy", paper=_GAL, aliases=("mcd_pe",), judges="passes", cost="C")
def mc_entropy(passes: Floats | Passes) -> Array:
    r"""Negative entropy of the mean probabilities: :math:`-H(\bar p)`.

    >>> mc_entropy(np.log(np.array([[[0.9, 0.1]], [[0.1, 0.9]]]))).round(6)
    array([-0.693147])
    """
    return -_entropy(means(passes).mean_prob)


@register_score("mc_expected_entropy", paper=_GAL, aliases=("mcd_ee",), judges="passes", cost="1")
def mc_expected_entropy(passes: Floats | Passes) -> Array:
    r"""Negative mean of the entropies of the passes: :math:`-\frac1S \sum_s H(p_s)`; doubt within passes.

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
    r"""Negative mutual information between prediction and pass: how much the passes disagree.

    .. math:: s = -\left[ H(\bar p) - \frac1S \sum_s H(p_s) \right]

    At most 0; rounding that would make it positive is cut off.

    >>> mc_mutual_information(np.log(np.array([[[0.5, 0.5]], [[0.5, 0.5]]]))) + 0.0
    array([0.])
    """
    held = means(passes)
    expected: Array = np.asarray(held.mean_entropy, dtype=np.float64)
    return np.minimum(expected - _entropy(held.mean_prob), 0.0)


@register_score("mc_std", paper=_GAL, aliases=("softmax_variance",), judges="passes", cost="C")
def mc_std(passes: Floats | Passes) -> Array:
    r"""Negative spread of the probabilities over passes, averaged over classes.

    .. math:: s = -\frac1C \sum_k \mathrm{std}_s(p_{sk})

    >>> mc_std(np.log(np.array([[[0.9, 0.1]], [[0.7, 0.3]]]))).round(6)
    array([-0.1])
    """
    return -np.asarray(means(passes).prob_std, dtype=np.float64).mean(axis=1)
