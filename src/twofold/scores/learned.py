r"""Confidences that a network learnt to give, or that extraction computed, and the evidence of evidential networks.

The first read ``learned``, one value a row by name; which names there are depends on the model. All judge the
prediction of the logits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from twofold import _checks
from twofold._checks import Array
from twofold._math import Floats, log_softmax
from twofold.errors import InvalidInput
from twofold.steps import register_score

Learned = Mapping[str, Floats]

CLIP = 10.0  # of the logits, before evidence is made of them
_GAMBLERS = "Liu et al., NeurIPS 2019, arXiv:1907.00208"
_EDL = "Sensoy, Kaplan, Kandemir, NeurIPS 2018, arXiv:1806.01768"


def _value(score: str, learned: Learned, name: str) -> Array:
    """A learned output in float64, or an error that says what there is."""
    if name not in learned:
        there = f"learned {', '.join(map(repr, sorted(learned)))} only" if learned else "no learned outputs"
        raise InvalidInput(f"{score} needs learned[{name!r}]; these outputs have {there}")
    return np.array(learned[name], dtype=np.float64)


def _reservation(score: str, learned: Learned) -> Array:
    r = _value(score, learned, "reservation")
    bad = (r < 0) | (r > 1)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(
            f"learned['reservation'] must be a probability in [0, 1], got {r[row]:g} in row {row}; "
            "it is the last of the C + 1 softmax outputs, not its logit"
        )
    return r


@register_score("confidnet", paper="Corbière et al., NeurIPS 2019, arXiv:1910.04851", cost="1", project=())
def confidnet(learned: Learned) -> Array:
    r"""The probability of the true class as a second network predicts it.

    .. math:: s = \sigma(g(h)) \approx p_y

    as extraction stored it in ``learned["confidnet"]``.

    >>> confidnet({"confidnet": np.array([0.9, 0.2])})
    array([0.9, 0.2])
    """
    return _value("confidnet", learned, "confidnet")


@register_score("devries", paper="DeVries & Taylor, 2018, arXiv:1802.04865", cost="1", project=())
def devries(learned: Learned) -> Array:
    r"""The confidence branch of a network that could ask for hints while it was trained.

    .. math:: s = \sigma(w^T h + v)

    as extraction stored it in ``learned["devries"]``; no hints are given when scoring.

    >>> devries({"devries": np.array([0.9, 0.2])})
    array([0.9, 0.2])
    """
    return _value("devries", learned, "devries")


@register_score("gambler", paper=_GAMBLERS, aliases=("deep_gamblers",), cost="1", project=())
def gambler(learned: Learned) -> Array:
    r"""One minus the share that a gambler keeps back.

    .. math:: s = 1 - p_{C+1}

    with :math:`p_{C+1}` the last of the C + 1 softmax outputs, ``learned["reservation"]``.

    >>> gambler({"reservation": np.array([0.25, 0.5])})
    array([0.75, 0.5 ])
    """
    return 1.0 - _reservation("gambler", learned)


@register_score("gambler_margin", paper=_GAMBLERS, cost="C", project=())
def gambler_margin(learned: Learned, logits: Floats, *, reward: float = 2.2) -> Array:
    r"""What a gambler wins on the best class, less what it keeps back.

    .. math:: s = o \max_{k \le C} p_k - p_{C+1}, \qquad p_k = (1 - p_{C+1}) \, \mathrm{softmax}(z)_k

    with p the softmax over all C + 1 outputs: the logits hold the C classes alone, so their softmax is scaled by what
    is not kept back (``learned["reservation"]``). Positive where the paper's rule accepts. ``reward`` is o, that of
    training; the papers use 2.2, 3, 6 and 10.

    >>> gambler_margin({"reservation": np.array([0.2])}, np.log(np.array([[0.75, 0.25]]))).round(6)
    array([1.12])
    """
    o = _checks.number(reward, "reward", 1.0, np.inf, open_high=True)
    r = _reservation("gambler_margin", learned)
    return o * np.exp(log_softmax(logits).max(axis=1)) * (1.0 - r) - r


@register_score("odin", paper="Liang, Li, Srikant, ICLR 2018, arXiv:1706.02690", cost="1", project=())
def odin(learned: Learned) -> Array:
    r"""Softmax probability at a high temperature of an input moved towards its predicted class.

    .. math:: \tilde x = x - \epsilon \, \mathrm{sign}(\nabla_x \mathrm{CE}(z / T, \hat y)), \qquad
              s = \max_k \tilde z_k - T \log \sum_k e^{\tilde z_k / T}

    with :math:`\tilde z` the logits of :math:`\tilde x`. It needs gradients, so extraction computes it and stores it in
    ``learned["odin"]``, as T times the log of the probability: at T = 1000 all probabilities are near 1/C, and their
    digits would not tell the rows apart.

    >>> odin({"odin": np.array([-2300.0, -2302.0])})
    array([-2300., -2302.])
    """
    return _value("odin", learned, "odin")


@register_score("rankfeat", paper="Song, Sebe, Wang, NeurIPS 2022, arXiv:2209.08590", cost="1", project=())
def rankfeat(learned: Learned) -> Array:
    r"""Energy of the network without the leading singular triple of its last feature maps.

    .. math:: s = \log \sum_k e^{\bar z_k}, \qquad F \to F - \sigma_1 u_1 v_1^T

    with :math:`\bar z` the mean of the logits after such a change in each of the last two stages. It needs the rest of
    the network, so extraction computes it and stores it in ``learned["rankfeat"]``.

    >>> rankfeat({"rankfeat": np.array([7.5, 3.0])})
    array([7.5, 3. ])
    """
    return _value("rankfeat", learned, "rankfeat")


@register_score("mds_perturbed", paper="Lee et al., NeurIPS 2018, arXiv:1807.03888", cost="1", project=())
def mds_perturbed(learned: Learned) -> Array:
    r"""Mahalanobis score of an input moved towards its nearest class.

    .. math:: \tilde x = x - \epsilon \, \mathrm{sign}\!\left(\nabla_x \tfrac12 M_{\hat c}(x)\right), \qquad
              s = -\min_c M_c(\tilde x)

    with :math:`M_c` the squared Mahalanobis distance to class c and :math:`\hat c` the nearest. It needs gradients, so
    extraction computes it and stores it in ``learned["mds_perturbed"]``.

    >>> mds_perturbed({"mds_perturbed": np.array([-3.0, -80.0])})
    array([ -3., -80.])
    """
    return _value("mds_perturbed", learned, "mds_perturbed")


def _evidence(logits: Floats) -> Array:
    """Parameters a of the Dirichlet distribution that evidential logits stand for."""
    return np.exp(np.clip(np.asarray(logits, dtype=np.float64), -CLIP, CLIP)) + 1.0


@register_score("edl_max", paper=_EDL, cost="C")
def edl_max(logits: Floats) -> Array:
    r"""Largest mean probability of the Dirichlet distribution of an evidential network.

    .. math:: s = \max_k \frac{a_k}{\sum_j a_j}, \qquad a_k = 1 + e^{\min(\max(z_k, -10), 10)}

    from 1/C. Evidence is at most :math:`e^{10}`, so that s stays well below 1 and the rows apart; logits beyond 10 are
    worth no more than 10. For networks trained that way: of others it is no probability.

    >>> edl_max(np.log(np.array([[7.0, 1.0]])))
    array([0.8])
    """
    a = _evidence(logits)
    return a.max(axis=1) / a.sum(axis=1)


@register_score("edl_vacuity", paper=_EDL, cost="C")
def edl_vacuity(logits: Floats) -> Array:
    r"""Negative vacuity of an evidential network: how little evidence it has for any class.

    .. math:: s = -\frac{C}{\sum_k a_k}, \qquad a_k = 1 + e^{\min(\max(z_k, -10), 10)}

    from nearly -1 (no evidence) towards 0.

    >>> edl_vacuity(np.log(np.array([[7.0, 1.0]])))
    array([-0.2])
    """
    a = _evidence(logits)
    return -a.shape[1] / a.sum(axis=1)
