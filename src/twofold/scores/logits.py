r"""Scores from logits alone. Notation: z logits, p = softmax(z), p_(1) >= p_(2) >= ..., C classes.

All are computed in float64 from logits, never from rounded probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from twofold import _checks
from twofold._checks import Mask
from twofold._math import TINY, log_odds, log_softmax, logsumexp, sigmoid
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.scores._fitting.moments import blocks
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, StepHooks, state


@register_score(
    "msp",
    paper="Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136",
    aliases=("msr", "mcp"),
    cost="C",
    probabilities=True,
    closed_form="log_odds",
)
def msp(logits: Floats, predictions: Labels, *, of: Literal["predicted", "largest"] = "predicted") -> Array:
    r"""Score by the maximum softmax probability, as the log-odds of the predicted class.

    .. math:: s = z_{\hat y} - \log \sum_{k \ne \hat y} e^{z_k}

    Ranks exactly like :math:`p_{\hat y}` but never saturates. The probability itself is :math:`1 / (1 + e^{-s})`.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.
    predictions : ndarray of shape (n_samples,)
        Predicted class of each sample.
    of : {"predicted", "largest"}, default="predicted"
        Whose probability it is: that of the predicted class, or the largest one. They differ only behind a transform
        that changes the order of the logits, such as ``project``; the stratified study takes the largest there.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Raises
    ------
    InvalidInput
        If ``of`` is neither of the two.

    Notes
    -----
    With a single class the prediction is certain: +inf.

    References
    ----------
    Hendrycks & Gimpel, ICLR 2017, arXiv:1610.02136.

    Examples
    --------
    >>> msp(np.array([[2.0, 1.0, 0.1]]), np.array([0])).round(8)
    array([0.65884613])
    >>> msp(np.array([[2.0, 1.0, 0.1]]), np.array([1]), of="largest").round(8)
    array([0.65884613])
    """
    if _checks.choice(of, "of", ("predicted", "largest")) == "largest":
        return log_odds(logits, np.argmax(logits, axis=1))
    return log_odds(logits, predictions)


@register_score(
    "mls", paper="Hendrycks et al., ICML 2022, arXiv:1911.11132", aliases=("max_logit", "maxlogit"), cost="C"
)
def mls(logits: Floats) -> Array:
    r"""Score by the maximum logit.

    .. math:: s = \max_k z_k

    Unlike probabilities, it changes when a constant is added to all logits.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    References
    ----------
    Hendrycks et al., ICML 2022, arXiv:1911.11132.

    Examples
    --------
    >>> mls(np.array([[2.0, 1.0, 0.1]]))
    array([2.])
    """
    return np.asarray(logits, dtype=np.float64).max(axis=1)


@register_score(
    "maxlogit_pnorm",
    paper="Cattelan & Silva, UAI 2024, arXiv:2305.15508",
    cost="C",
    grid={"p": (0, 1, 2, 3, 4, 5, 6, 7, 8)},
)
def maxlogit_pnorm(logits: Floats, *, p: float = 2.0) -> Array:
    r"""Score by the maximum of the centred logits over their p-norm.

    .. math:: s = \frac{\max_k (z_k - \bar z)}{\lVert z - \bar z \rVert_p}

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.
    p : float, default=2.0
        Order of the norm, at least 0; 0 does not divide. The authors choose p in 0..8 by validation AURC.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Raises
    ------
    InvalidInput
        If ``p`` is negative or not finite.

    Notes
    -----
    Shifting and scaling the logits leaves the score unchanged (with p = 0, shifting only). Equal logits have score 0.
    Some papers print the norm of the logits as they are, or compute the norm of the probabilities, which are other
    scores.

    References
    ----------
    Cattelan & Silva, UAI 2024, arXiv:2305.15508.

    Examples
    --------
    >>> maxlogit_pnorm(np.array([[2.0, 1.0, 0.1]]), p=5).round(8)
    array([0.88527901])
    """
    power = _checks.number(p, "p", 0.0, np.inf, open_high=True)
    z = np.asarray(logits, dtype=np.float64)
    z = z - z.mean(axis=1, keepdims=True)
    top = z.max(axis=1)
    if power == 0:
        return top
    scale = np.abs(z).max(axis=1)
    equal = scale <= TINY
    scale = np.where(equal, 1.0, scale)  # divided out first, so that no power overflows
    norm = scale * (np.abs(z / scale[:, None]) ** power).sum(axis=1) ** (1.0 / power)
    return np.where(equal, 0.0, top / np.where(equal, 1.0, norm))


@register_score(
    "margin", paper="Scheffer, Decomain, Wrobel, IDA 2001, doi:10.1007/3-540-44816-0_31", cost="C", probabilities=True
)
def margin(logits: Floats) -> Array:
    """Score by the softmax margin, the lead of the most likely class over the second.

    .. math:: s = p_{(1)} - p_{(2)} = p_{(1)} (1 - e^{z_{(2)} - z_{(1)}})

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    In [0, 1]; a single class has margin 1.

    References
    ----------
    Scheffer, Decomain, Wrobel, IDA 2001.

    Examples
    --------
    >>> margin(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([0.41656817])
    """
    z = np.asarray(logits, dtype=np.float64)
    if z.shape[1] == 1:
        return np.ones(len(z))
    second, first = np.partition(z, -2, axis=1)[:, -2:].T
    return np.exp(first - logsumexp(z)) * -np.expm1(second - first)


@register_score(
    "entropy",
    paper="Chow, IEEE Trans. Inf. Theory 1970, doi:10.1109/TIT.1970.1054406",
    aliases=("pe", "predictive_entropy"),
    cost="C",
    probabilities=True,
)
def entropy(logits: Floats) -> Array:
    r"""Score by the negative entropy of the softmax.

    .. math:: s = \sum_k p_k \log p_k

    from :math:`-\log C` to 0.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    References
    ----------
    Chow, IEEE Trans. Inf. Theory 1970.

    Examples
    --------
    >>> entropy(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([-0.84673818])
    """
    log_p = log_softmax(logits)
    # compute the top term from log1p of the others, so that confident samples keep their digits
    top = log_p.argmax(axis=1)
    rows = np.arange(len(log_p))
    others = log_p.copy()
    others[rows, top] = -np.inf
    p = np.exp(others)
    rest = np.where(p > 0, p * np.where(np.isfinite(others), others, 0.0), 0.0).sum(axis=1)
    return rest + np.exp(log_p[rows, top]) * np.log1p(-np.minimum(p.sum(axis=1), 1.0 - 1e-16))


@register_score(
    "gini",
    paper="Granese et al. (DOCTOR), NeurIPS 2021, arXiv:2106.02395",
    aliases=("doctor",),
    cost="C",
    probabilities=True,
)
def gini(logits: Floats) -> Array:
    r"""Score by the negative Gini impurity of the softmax.

    .. math:: s = \sum_k p_k^2 - 1

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    DOCTOR-alpha, ``collision`` and ``gen(gamma=1)`` over all classes rank the same.

    References
    ----------
    Granese et al. (DOCTOR), NeurIPS 2021, arXiv:2106.02395.

    Examples
    --------
    >>> gini(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([-0.49722852])
    """
    p, miss = _probabilities(logits)
    return -(p * miss).sum(axis=1)  # 1 - sum p^2 = sum p (1 - p), without cancellation


@register_score(
    "energy",
    paper="Liu et al., NeurIPS 2020, arXiv:2010.03759",
    aliases=("ebo",),
    cost="C",
    closed_form="log_sum_exp",
)
def energy(logits: Floats, *, temperature: float = 1.0, weights: tuple[float, ...] | None = None) -> Array:
    r"""Score by the negative free energy of the logits.

    .. math:: s = T \log \sum_k w_k e^{z_k / T}

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.
    temperature : float, default=1.0
        The temperature T, above 0; the score ranks like the maximum logit as :math:`T \to 0`.
    weights : tuple of float, optional
        One weight :math:`w_k` for each class, none negative, as learnt with the classifier (VOS, arXiv:2202.01197); by
        default all 1.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Raises
    ------
    InvalidInput
        If ``temperature`` is not positive and finite, or ``weights`` are not one finite, non-negative number for each
        class, at least one of them positive.

    Notes
    -----
    Unlike probabilities, it changes when a constant is added to all logits.

    References
    ----------
    Liu et al., NeurIPS 2020, arXiv:2010.03759.

    Examples
    --------
    >>> energy(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([2.41703002])
    """
    t = _checks.number(temperature, "temperature", 0.0, np.inf, open_low=True, open_high=True)
    z = np.asarray(logits, dtype=np.float64) / t
    if weights is None:
        return t * logsumexp(z)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != z.shape[1:] or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise InvalidInput(f"weights must be {z.shape[1]} numbers, one for each class, none negative, got {weights!r}")
    return t * logsumexp(z[:, w > 0] + np.log(w[w > 0]))


@register_score("joint_energy", paper="Wang et al., NeurIPS 2021, arXiv:2109.14162", cost="C")
def joint_energy(logits: Floats) -> Array:
    r"""Score by the sum of the energies of the single classes, for heads with one sigmoid per class.

    .. math:: s = \sum_k \log(1 + e^{z_k})

    above 0.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    Meant for networks that may name several classes at once. After training with a softmax the logits of the other
    classes carry little, and the score is poor.

    References
    ----------
    Wang et al., NeurIPS 2021, arXiv:2109.14162.

    Examples
    --------
    >>> joint_energy(np.array([[0.0, 0.0], [2.0, -1.0]])).round(4)
    array([1.3863, 2.4402])
    """
    z = np.asarray(logits, dtype=np.float64)
    return np.logaddexp(0.0, z).sum(axis=1)


@register_score(
    "gen",
    paper="Liu, Lochman, Zach, CVPR 2023, openreview:Sie7oeTABS",
    cost="C log C",
    probabilities=True,
    grid={"gamma": (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0), "top": (10, 50, 100, 200, 500, 1000)},
)
def gen(logits: Floats, *, gamma: float = 0.1, top: int = 100) -> Array:
    r"""Score by the negative generalised entropy of the largest probabilities.

    .. math:: s = -\sum_{k \le M} [p_{(k)} (1 - p_{(k)})]^\gamma

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.
    gamma : float, default=0.1
        The exponent, above 0; smaller values give more weight to small probabilities.
    top : int, default=100
        The number M of largest probabilities to sum; all classes if there are fewer.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Raises
    ------
    InvalidInput
        If ``gamma`` is not positive and finite, or ``top`` is not a whole number of at least 1.

    Notes
    -----
    The product is raised to the power as a whole; one paper prints it otherwise.

    References
    ----------
    Liu, Lochman, Zach, CVPR 2023.

    Examples
    --------
    >>> gen(np.array([[2.0, 1.0, 0.1]])).round(8), gen(np.array([[2.0, 1.0, 0.1]]), top=2).round(8)
    (array([-2.4904266]), array([-1.7054331]))
    """
    g = _checks.number(gamma, "gamma", 0.0, np.inf, open_low=True, open_high=True)
    log_p, log_miss = _log_probabilities(logits)
    keep = _largest(log_p, top)
    log_product = np.take_along_axis(log_p + log_miss, keep, axis=1)
    return -np.exp(g * log_product).sum(axis=1)


@register_score(
    "renyi",
    paper="Rényi, Berkeley Symposium 1961",
    aliases=("ren",),
    cost="C log C",
    probabilities=True,
    grid={"alpha": (0.1, 0.3, 0.5, 0.7, 0.9), "top": (10, 50, 100, 200, 500, 1000)},
)
def renyi(logits: Floats, *, alpha: float = 0.5, top: int | None = None) -> Array:
    r"""Score by the negative Rényi entropy of the largest probabilities.

    .. math:: s = -\frac{1}{1 - \alpha} \log \sum_{k \le M} p_{(k)}^\alpha

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.
    alpha : float, default=0.5
        Order of the entropy, above 0; 2 is the collision entropy, and within 1e-6 of 1 it is the Shannon limit.
    top : int, optional
        The number M of largest probabilities to sum; by default all classes.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Raises
    ------
    InvalidInput
        If ``alpha`` is not positive and finite, or ``top`` is not a whole number of at least 1.

    References
    ----------
    Rényi, Berkeley Symposium 1961.

    Examples
    --------
    >>> renyi(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([-0.96252469])
    """
    a = _checks.number(alpha, "alpha", 0.0, np.inf, open_low=True, open_high=True)
    log_p = log_softmax(logits)
    kept = np.take_along_axis(log_p, _largest(log_p, top), axis=1)
    if abs(a - 1.0) < 1e-6:
        return (np.exp(kept) * kept).sum(axis=1)
    return logsumexp(a * kept) / (a - 1.0)


@register_score("collision", paper="Rényi, Berkeley Symposium 1961", aliases=("pce",), cost="C", probabilities=True)
def collision(logits: Floats) -> Array:
    r"""Score by the negative collision entropy of the softmax.

    .. math:: s = \log \sum_k p_k^2

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    Ranks like ``gini``.

    References
    ----------
    Rényi, Berkeley Symposium 1961.

    Examples
    --------
    >>> collision(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([-0.68761952])
    """
    p, miss = _probabilities(logits)
    return np.log1p(-np.minimum((p * miss).sum(axis=1), 1.0 - 1e-16))


@register_score("guessing", paper="Massey, ISIT 1994", aliases=("ge",), cost="C log C", probabilities=True)
def guessing(logits: Floats) -> Array:
    r"""Score by the negative expected number of guesses, most likely class first.

    .. math:: s = -\sum_k k\, p_{(k)}

    from -(C + 1)/2 to -1.

    Parameters
    ----------
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    References
    ----------
    Massey, ISIT 1994.

    Examples
    --------
    >>> guessing(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([-1.43956475])
    """
    log_p = np.sort(log_softmax(logits), axis=1)[:, ::-1]
    return -(np.exp(log_p) * np.arange(1, log_p.shape[1] + 1)).sum(axis=1)


@register_score(
    "klm",
    paper="Hendrycks et al., ICML 2022, arXiv:1911.11132",
    aliases=("kl_matching",),
    cost="C^2",
    probabilities=True,
)
@dataclass(frozen=True, eq=False)
class KLMatching:
    r"""Score by the negative divergence from the closest typical prediction of a class.

    .. math:: s = -\min_k \mathrm{KL}(p \,\Vert\, d_k), \qquad
              d_k = \text{mean of } p \text{ over samples predicted as } k

    The divergence takes one matrix product: :math:`\sum_j p_j \log p_j - p \cdot \log d^T`. There are no settings.

    Attributes
    ----------
    log_typical : ndarray of shape (n_predicted_classes, n_classes)
        Logarithm of the mean probabilities of each class that was predicted; learnt by ``fit``.

    Notes
    -----
    Fitted on validation outputs, or on the training outputs without them. Classes that are never predicted are skipped;
    d is floored at 1e-12 and renormalised.

    References
    ----------
    Hendrycks et al., ICML 2022, arXiv:1911.11132.

    Examples
    --------
    >>> z = np.log(np.array([[0.8, 0.2], [0.3, 0.7]]))
    >>> KLMatching().fit(z, np.array([0, 1])).score(z).round(8)
    array([-0., -0.])
    """

    log_typical: Array = state("K C")  # one row per class that was predicted

    def fit(self, val_logits: Floats, val_predictions: Labels) -> Self:
        """Average the probabilities of each predicted class.

        Parameters
        ----------
        val_logits : ndarray of shape (n_samples, n_classes)
            Validation logits.
        val_predictions : ndarray of shape (n_samples,)
            Predicted classes of the validation rows.

        Returns
        -------
        KLMatching
            A fitted copy; this object stays unchanged.
        """
        classes, place = np.unique(val_predictions, return_inverse=True)
        typical = np.zeros((len(classes), val_logits.shape[1]))
        first = 0
        for (z,) in blocks(val_logits):
            np.add.at(typical, place[first : first + len(z)], np.exp(log_softmax(z)))
            first += len(z)
        typical = np.maximum(typical / np.bincount(place)[:, None], TINY)
        return replace(self, log_typical=np.log(typical / typical.sum(axis=1, keepdims=True)))

    def score(self, logits: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        log_p = log_softmax(logits)
        p = np.exp(log_p)
        own = (p * log_p).sum(axis=1)
        return -(own[:, None] - p @ self.log_typical.T).min(axis=1)


def probability(outputs: Outputs) -> Array:
    """Compute the softmax probability of the predicted class, for calibration metrics; rank by ``msp`` instead.

    Parameters
    ----------
    outputs : Outputs
        Outputs with logits; the probability is that of ``outputs.predictions``.

    Returns
    -------
    ndarray of shape (n_samples,)
        Probabilities in [0, 1].

    Examples
    --------
    >>> probability(Outputs([[2.0, 1.0, 0.1]])).round(8)
    array([0.65900114])
    """
    return sigmoid(log_odds(outputs.logits, outputs.predictions))


def _probabilities(logits: Floats) -> tuple[Array, Array]:
    """Compute p and 1 - p, both to full relative precision."""
    log_p, log_miss = _log_probabilities(logits)
    return np.exp(log_p), np.exp(log_miss)


def _log_probabilities(logits: Floats) -> tuple[Array, Array]:
    """Compute log p and log(1 - p); for the top class the latter comes from the sum of the others."""
    log_p = log_softmax(logits)
    rows, top = np.arange(len(log_p)), log_p.argmax(axis=1)
    others = log_p.copy()
    others[rows, top] = -np.inf
    log_miss = np.log1p(-np.exp(others))  # at most one half
    log_miss[rows, top] = logsumexp(others)
    return log_p, log_miss


def _largest(log_p: Array, top: int | None) -> Labels:
    """Return the columns of the ``top`` largest entries of each row."""
    classes = log_p.shape[1]
    count = classes if top is None else _checks.whole(top, "top", 1)
    if count >= classes:
        return np.broadcast_to(np.arange(classes), log_p.shape)
    return np.argpartition(-log_p, count - 1, axis=1)[:, :count]


@register_score(
    "openmax",
    paper="Bendale & Boult, CVPR 2016, arXiv:1511.06233",
    cost="C^2",
    grid={"alpha": (1, 3, 5, 10), "tail": (5, 10, 20, 40)},
)
@dataclass(frozen=True, eq=False)
class OpenMax(StepHooks):
    r"""Score by the negative probability of the unknown class after revising the top logits by Weibull tails.

    For class c, :math:`m_c` is the mean logit vector of its correctly predicted training samples, and a Weibull
    distribution is fitted to their ``tail`` largest distances to it (shifted so that the smallest is 1, as the
    reference library does). The i-th of the ``alpha`` largest logits is shrunk by :math:`1 - \omega_i F_c(d(z, m_c))`,
    with :math:`\omega_i = (\alpha + 1 - i) / \alpha` by default; what they lose is the logit of the unknown class. The
    prediction that is judged stays that of the logits; :meth:`is_unknown` says where the unknown class would win.

    Parameters
    ----------
    alpha : int, default=3
        Number of top logits to revise, at least 1; at most all classes are.
    tail : int, default=20
        Number of largest distances to fit each Weibull distribution to, at least 2.
    distance : {"euclidean", "cosine", "both"}, default="euclidean"
        Distance d: Euclidean as in OpenOOD and SURE+, one minus the cosine, or ``distance_weight`` times the first plus
        the second, as in OpenMax's code and the unknown-detection benchmark.
    distance_weight : float, default=0.005
        Weight of the Euclidean distance with ``distance="both"``: 5e-3 in the code of the unknown-detection benchmark,
        5e-4 in its text.
    omega : float, optional
        The same share :math:`\omega` for all revised logits, in [0, 1]; the unknown-detection code has 0.5 on CIFAR.

    Attributes
    ----------
    means : ndarray of shape (n_classes, n_classes)
        Mean logits of each class; learnt by ``fit``.
    weibulls : ndarray of shape (n_classes, 3)
        Shape, scale and smallest tail distance of each class; the shape is 0 for a class that is skipped. Learnt by
        ``fit``.

    Notes
    -----
    The unknown-detection benchmark has ``openmax(alpha=1, tail=2, distance='both')`` and counts the prediction
    "unknown" as an error: its correct predictions are ``(predictions == labels) & ~fitted.is_unknown(logits)``.

    A class with fewer correct predictions than the tail uses all it has; with fewer than 2, all its labelled samples;
    with fewer than 2 of those it is skipped.

    pytorch-ood 0.4 ranks differently with equal ``alpha`` and ``tail``: it takes all labelled samples, where the
    paper's Algorithm 1 takes those that are classified correctly, and shifts the tail by 10,000 instead of 1, which
    makes the Weibull a Gumbel law (shapes of some thousands). With these two changed it agrees with this score. It also
    assigns distance 0 to classes that nothing in the batch is predicted as, so that its scores depend on the batch.

    References
    ----------
    Bendale & Boult, CVPR 2016, arXiv:1511.06233.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z, y = 4 * np.eye(3)[[0, 1, 2] * 20] + rng.normal(size=(60, 3)), np.array([0, 1, 2] * 20)
    >>> fitted = OpenMax().fit(z, y, z.argmax(axis=1))
    >>> bool(fitted.score(np.array([[4.0, 0, 0]])) > fitted.score(np.array([[40.0, 40, 40]])))
    True
    """

    alpha: int = 3
    tail: int = 20
    distance: Literal["euclidean", "cosine", "both"] = "euclidean"
    distance_weight: float = 0.005
    omega: float | None = None
    means: Array = state("C C")
    weibulls: Array = state("C 3")  # shape, scale, smallest tail distance; shape 0 where a class is skipped

    def fit(self, logits: Floats, labels: Labels, predictions: Labels) -> Self:
        """Compute the class means and fit the Weibull tails.

        Parameters
        ----------
        logits : ndarray of shape (n_samples, n_classes)
            Training logits.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows.

        Returns
        -------
        OpenMax
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or no class has two labelled training samples.
        """
        tail = _checks.whole(self.tail, "tail", 2)
        self._check_settings()
        classes = logits.shape[1]
        means, weibulls = np.zeros((classes, classes)), np.zeros((classes, 3))
        for c in range(classes):
            rows = np.flatnonzero((labels == c) & (predictions == c))
            if len(rows) < 2:
                rows = np.flatnonzero(labels == c)
            if len(rows) < 2:
                continue
            z = np.asarray(logits[rows], dtype=np.float64)
            means[c] = z.mean(axis=0)
            far = np.sort(self._distances(z, means[c]))[-tail:]
            weibulls[c] = *_weibull(far - far[0] + 1.0), far[0]
        if not weibulls[:, 0].any():
            raise InvalidInput("openmax needs a class with at least two labelled training samples, and found none")
        return replace(self, means=means, weibulls=weibulls)

    def check_state(self) -> None:
        """Check that the shapes and scales of the tails are not negative.

        Raises
        ------
        InvalidInput
            If one of them is negative, or a setting is out of range.
        """
        self._check_settings()
        if (self.weibulls < 0).any():
            raise InvalidInput("weibulls must not be negative")

    def score(self, logits: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        revised, unknown = self._revise(logits)
        return -np.exp(unknown - np.logaddexp(unknown, logsumexp(revised)))

    def is_unknown(self, logits: Floats) -> Mask:
        """Say where the unknown class has a larger probability than every known one.

        Parameters
        ----------
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples.

        Returns
        -------
        ndarray of bool, shape (n_samples,)
            True where OpenMax predicts "unknown".

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> z, y = 4 * np.eye(3)[[0, 1, 2] * 20] + rng.normal(size=(60, 3)), np.array([0, 1, 2] * 20)
        >>> fitted = OpenMax().fit(z, y, z.argmax(axis=1))
        >>> fitted.is_unknown(np.array([[4.0, 0, 0], [40.0, 40, 40]]))
        array([False,  True])
        """
        revised, unknown = self._revise(logits)
        return unknown > revised.max(axis=1)

    def _check_settings(self) -> None:
        """Raise an error if a setting is out of range."""
        _checks.whole(self.alpha, "alpha", 1)
        _checks.choice(self.distance, "distance", ("euclidean", "cosine", "both"))
        _checks.number(self.distance_weight, "distance_weight", 0.0, np.inf, open_high=True)
        if self.omega is not None:
            _checks.number(self.omega, "omega", 0.0, 1.0)

    def _distances(self, z: Array, mean: Array) -> Array:
        """Compute the distances of logits from mean logits, over the last axis."""
        euclidean = np.linalg.norm(z - mean, axis=-1)
        if self.distance == "euclidean":
            return euclidean
        lengths = np.linalg.norm(z, axis=-1) * np.linalg.norm(mean, axis=-1)
        cosine = 1.0 - (z * mean).sum(axis=-1) / np.maximum(lengths, TINY)
        if self.distance == "cosine":
            return cosine
        return self.distance_weight * euclidean + cosine

    def _revise(self, logits: Floats) -> tuple[Array, Array]:
        """Compute the revised logits, and the logit of the unknown class."""
        z = np.asarray(logits, dtype=np.float64)
        alpha = min(self.alpha, z.shape[1])
        order = np.argsort(-z, axis=1, kind="stable")[:, :alpha]
        shape, scale, least = self.weibulls.T
        # the distance to every class by one product would cancel; only the top alpha are needed
        away = self._distances(z[:, None], self.means[order])
        shifted = np.maximum(away - least[order] + 1.0, 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            cdf = -np.expm1(-((shifted / np.where(scale > 0, scale, 1.0)[order]) ** shape[order]))
        cdf = np.where(shape[order] > 0, cdf, 0.0)
        share = (alpha - np.arange(alpha)) / alpha
        if self.omega is not None:
            share = np.full(alpha, self.omega)
        lost = np.take_along_axis(z, order, axis=1) * share * cdf
        revised = z.copy()
        np.put_along_axis(revised, order, np.take_along_axis(z, order, axis=1) - lost, axis=1)
        return revised, lost.sum(axis=1)


def _weibull(x: Array) -> tuple[float, float]:
    """Fit shape and scale of a two-parameter Weibull by maximum likelihood, with Newton on the profile equation."""
    log_x = np.log(x)
    if np.ptp(log_x) < 1e-9:  # all distances are equal: a steep Weibull approximates a step
        return 1e3, float(x[0])
    k = 1.2 / max(float(np.std(log_x)), 1e-6)
    for _ in range(100):
        w = np.exp(k * (log_x - log_x.max()))
        mean = float((w * log_x).sum() / w.sum())
        variance = float((w * log_x**2).sum() / w.sum()) - mean**2
        gap = mean - 1.0 / k - float(log_x.mean())
        step = gap / (variance + 1.0 / k**2)
        k = max(k - step, k / 10)
        if abs(step) < 1e-12 * k:
            break
    top = float(log_x.max())
    return float(k), float(np.exp(top + np.log(np.mean(np.exp(k * (log_x - top)))) / k))
