r"""Scores from the single entries of a feature: errors against the predicted class, states of neurons, histograms.

Notation: h features, :math:`\mu_c` the mean feature of the training rows predicted as c, W and b the head, p the
probabilities of C classes, :math:`\hat y` the predicted class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._math import TINY, log_softmax, logsumexp, sigmoid, softmax
from twofold.errors import InvalidInput
from twofold.outputs import Head
from twofold.scores._fitting.moments import blocks
from twofold.scores._fitting.moments import moments as moments_of
from twofold.scores._fitting.shared import once
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, StepHooks, array_setting, state

Base = Literal["energy", "msp", "mls", "gen"]

ENTRIES = 2**22  # perturbed logits held at a time
FLOOR = 1e-3  # share of the mean base score below which cadref counts it as this share
GAMMA = 0.1  # exponent of the base "gen"
FEATURE_EPSILON, LOGIT_EPSILON = 0.01, 0.025  # added to the histograms of features and of perturbed logits


# Class-aware reference errors


@once
def _means_by_prediction(features: Floats, predictions: Labels, labels: Labels | None, classes: int) -> Array:
    """Compute the mean feature of the rows predicted as each class, else of its labelled rows, else of all."""
    predicted = moments_of(features, predictions, classes)
    means = predicted.class_means
    if labels is None or predicted.present.all():
        return means
    labelled = moments_of(features, labels, classes)
    return np.where(predicted.present[:, None], means, labelled.class_means)


@register_score("caref", paper="Ling et al., CVPR 2025, arXiv:2503.00325", cost="D")
@dataclass(frozen=True, eq=False)
class Caref:
    r"""Score by the negative error of a feature against the mean of its predicted class, relative to its size.

    .. math:: s = -\frac{\lVert h - \mu_{\hat y} \rVert_1}{\lVert h \rVert_1}

    with :math:`\mu_c` the mean of the training rows predicted as c, right or wrong.

    Attributes
    ----------
    means : ndarray of shape (n_classes, n_features)
        The means; learnt by ``fit``.

    Notes
    -----
    A class that is never predicted on the training set has the mean of the rows labelled so, or of all rows. The
    authors' code has NaN there.

    References
    ----------
    Ling et al., CVPR 2025, arXiv:2503.00325.

    Examples
    --------
    >>> h = np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> Caref().fit(h, np.array([0, 1]), h).score(np.array([[1.0, 1.0]]), np.array([0]))
    array([-1.])
    """

    means: Array = state("C D")

    def fit(self, features: Floats, predictions: Labels, logits: Floats, labels: Labels | None = None) -> Self:
        """Compute the mean feature of the rows predicted as each class.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.
        labels : ndarray of shape (n_samples,), optional
            Training labels, for classes that are never predicted.

        Returns
        -------
        Caref
            A fitted copy; this object stays unchanged.
        """
        return replace(self, means=_means_by_prediction(features, predictions, labels, np.shape(logits)[1]))

    def score(self, features: Floats, predictions: Labels) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        h = np.asarray(features, dtype=np.float64)
        away = h - self.means[np.asarray(predictions)]
        return -np.abs(away).sum(axis=1) / _size(h)


def _size(h: Array) -> Array:
    """Compute the sum of the absolute entries of each row, never 0."""
    return np.maximum(np.abs(h).sum(axis=1), TINY)


@register_score(
    "cadref",
    paper="Ling et al., CVPR 2025, arXiv:2503.00325",
    cost="C + D",
    grid={"base": ("energy", "msp", "mls", "gen")},
)
@dataclass(frozen=True, eq=False)
class Cadref(StepHooks):
    r"""Score by the error against the mean of the predicted class, its parts that raise the logit weighted by doubt.

    .. math:: s = -\left( \frac{e^+}{S(z)} + \frac{e^-}{\bar S} \right), \qquad
              e^\pm = \frac{1}{\lVert h \rVert_1} \sum_j \max(\pm \sigma_j (h - \mu_{\hat y})_j, 0), \qquad
              \sigma = \mathrm{sign}(w_{\hat y})

    with S a score of the logits, :math:`\bar S` its mean over the training set, and :math:`\mu_c` as in ``caref``.

    Parameters
    ----------
    base : {"energy", "msp", "mls", "gen"}, default="energy"
        The score S: the negative free energy, the largest probability, the largest logit, or the reciprocal of the
        generalised entropy, :math:`1 / \sum [p (1 - p)]^{0.1}` over the :math:`\max(10, \lfloor C / 10 \rfloor)` most
        probable classes.

    Attributes
    ----------
    means : ndarray of shape (n_classes, n_features)
        Mean feature of the training rows predicted as each class; learnt by ``fit``.
    level : ndarray of shape ()
        Mean :math:`\bar S`, with the shift; learnt by ``fit``.
    shift : ndarray of shape ()
        Constant that makes S positive on the training set; learnt by ``fit``.

    Notes
    -----
    Entries where the head's weight is 0 count in neither part. Where S is not positive on all training rows, a constant
    (``shift``) is added, since the error would change its sign; when scoring, S is at least a thousandth of its mean.

    References
    ----------
    Ling et al., CVPR 2025, arXiv:2503.00325.

    Examples
    --------
    >>> head, h = Head(np.eye(2)), np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> fitted = Cadref(base="mls").fit(h, np.array([0, 1]), h)
    >>> fitted.score(np.array([[3.0, 1.0]]), np.array([[3.0, 1.0]]), np.array([0]), head).round(4)
    array([-0.0833])
    """

    base: Base = "energy"
    means: Array = state("C D")
    level: Array = state("")
    shift: Array = state("")

    def fit(self, features: Floats, predictions: Labels, logits: Floats, labels: Labels | None = None) -> Self:
        """Compute the mean features, and the mean of the base score.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits.
        labels : ndarray of shape (n_samples,), optional
            Training labels, for classes that are never predicted.

        Returns
        -------
        Cadref
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``base`` is unknown.
        """
        means = _means_by_prediction(features, predictions, labels, np.shape(logits)[1])
        value = _base_score(logits, self.base)
        shift = 0.0
        if value.min() <= 0:
            shift = max(0.01 * float(value.std()) - float(value.min()), TINY)
        return replace(self, means=means, level=np.array(value.mean() + shift), shift=np.array(shift))

    def check_state(self) -> None:
        """Check that the mean of the base score is positive.

        Raises
        ------
        InvalidInput
            If it is not, or ``base`` is unknown.
        """
        _checks.choice(self.base, "base", ("energy", "msp", "mls", "gen"))
        if not self.level > 0:
            raise InvalidInput(f"level must be above 0, got {self.level}")

    def score(self, features: Floats, logits: Floats, predictions: Labels, head: Head) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        h, chosen = np.asarray(features, dtype=np.float64), np.asarray(predictions)
        away = h - self.means[chosen]
        away *= np.sign(np.asarray(head.weight))[chosen]
        size = _size(h)
        raising = np.maximum(away, 0.0).sum(axis=1) / size
        lowering = np.maximum(-away, 0.0).sum(axis=1) / size
        value = np.maximum(_base_score(logits, self.base) + self.shift, FLOOR * self.level)
        return -(raising / value + lowering / self.level)


def _base_score(logits: Floats, base: str) -> Array:
    """Compute the score of the logits that cadref divides by."""
    _checks.choice(base, "base", ("energy", "msp", "mls", "gen"))
    z = np.asarray(logits, dtype=np.float64)
    if base == "energy":
        return logsumexp(z)
    if base == "mls":
        return np.asarray(z.max(axis=1))
    p = softmax(z)
    if base == "msp":
        return np.asarray(p.max(axis=1))
    top = min(max(10, p.shape[1] // 10), p.shape[1])
    largest = np.partition(p, p.shape[1] - top, axis=1)[:, -top:]
    return 1.0 / np.maximum(((largest * (1.0 - largest)) ** GAMMA).sum(axis=1), TINY)


# Neuron activation coverage


@register_score(
    "nac",
    paper="Liu et al., ICLR 2024, arXiv:2306.02879",
    aliases=("nac_ue",),
    cost="CD",
    grid={"alpha": (0.1, 1.0, 10.0, 100.0, 1000.0, 3000.0), "bins": (50, 500), "full": (10, 50, 500)},
)
@dataclass(frozen=True, eq=False)
class NeuronCoverage(StepHooks):
    r"""Score by how often the states of the neurons occurred on the training set.

    .. math:: s = \frac1D \sum_j \min\!\left( \frac{n_j[\mathrm{bin}(a_j)]}{\text{full}}, 1 \right), \qquad
              a_j = \sigma\!\left( \alpha \, h_j \sum_k W_{kj} (p_k - 1/C) \right)

    with :math:`n_j` the histogram of the states :math:`a_j` of neuron j on the training set; from 0 to 1. The sum over
    k is the gradient of :math:`-\frac1C \sum_k \log p_k` by :math:`h_j`.

    Parameters
    ----------
    alpha : float, default=100.0
        Steepness of the states, above 0. It must suit the size of the features, so tune it: the authors take 100 and 50
        on CIFAR and 3000 on ImageNet, and 1 is better than 100 on some networks.
    bins : int, default=50
        Number of edges of the histograms, even and at least 4. Bins are fine around one half and coarse at 0 and 1.
    full : float, default=50
        Count of training rows from which a state counts as covered, above 0. It is a count, so it depends on the number
        of training rows; the authors use 1,000 rows.

    Attributes
    ----------
    counts : ndarray of shape (n_features, bins - 1)
        Histogram of each neuron; learnt by ``fit``.

    Notes
    -----
    Only the penultimate layer is used, where the gradient has this closed form; it is the smallest setting of the
    authors. pytorch-ood has other bins, fine at 0 and 1, which rank differently. Ties are common.

    References
    ----------
    Liu et al., ICLR 2024, arXiv:2306.02879.

    Examples
    --------
    >>> head, h = Head(np.eye(2)), np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> fitted = NeuronCoverage(full=1).fit(h, h, head)
    >>> fitted.score(np.array([[2.0, 0.0], [-3.0, -1.0]]), np.array([[2.0, 0.0], [-3.0, -1.0]]), head)
    array([1. , 0.5])
    """

    alpha: float = 100.0
    bins: int = 50
    full: float = 50
    counts: Labels = state("D B", kind="integer")

    def fit(self, features: Floats, logits: Floats, head: Head) -> Self:
        """Count the states of each neuron.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        NeuronCoverage
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range.
        """
        _checks.number(self.alpha, "alpha", 0.0, np.inf, open_low=True, open_high=True)
        _checks.number(self.full, "full", 0.0, np.inf, open_low=True, open_high=True)
        if _checks.whole(self.bins, "bins", 4) % 2:
            raise InvalidInput(f"nac(bins={self.bins}): bins must be even")
        width = features.shape[1]
        counts = np.zeros((width, self.bins - 1), np.int64)
        first_bin = np.arange(width) * (self.bins - 1)
        for h, z in blocks(features, logits):
            places = self._bins_of(h, z, head) + first_bin
            counts += np.bincount(places.ravel(), minlength=counts.size).reshape(counts.shape)
        return replace(self, counts=counts)

    def check_state(self) -> None:
        """Check that the histograms have the bins of the settings.

        Raises
        ------
        InvalidInput
            If they do not.
        """
        if self.counts.shape[1] != self.bins - 1 or (self.counts < 0).any():
            raise InvalidInput(f"counts must have {self.bins - 1} columns for bins={self.bins}, none below 0")

    def score(self, features: Floats, logits: Floats, head: Head) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        places = self._bins_of(np.asarray(features, dtype=np.float64), logits, head)
        covered = np.minimum(self.counts / self.full, 1.0)
        return covered[np.arange(len(covered)), places].mean(axis=1)

    def _bins_of(self, h: Array, logits: Floats, head: Head) -> Labels:
        """Return the bin of the state of each neuron."""
        p = softmax(logits)
        gradient = (p - 1.0 / p.shape[1]) @ np.asarray(head.weight, dtype=np.float64)
        states = sigmoid(self.alpha * h * gradient)
        return np.searchsorted(coverage_edges(self.bins), states, side="right") - 1


def coverage_edges(bins: int) -> Array:
    r"""Return the edges of the bins of neuron activation coverage: fine around one half, coarse at 0 and 1.

    .. math:: x_i = \log u_i / \log 1000, \qquad u \text{ evenly from } 1 \text{ to } \sqrt{1000}

    below one half, and mirrored above it; the last two edges are 1.01 and 1.2, so that no state lies beyond them.

    Parameters
    ----------
    bins : int
        Number of edges, even and at least 4.

    Returns
    -------
    ndarray of shape (bins,)
        Edges, ascending.

    Examples
    --------
    >>> coverage_edges(6).round(3)
    array([0.   , 0.404, 0.5  , 0.596, 1.01 , 1.2  ])
    """
    points = np.linspace(1.0, np.sqrt(1000.0), bins // 2)
    lower = np.log(points[:-1]) / np.log(1000.0)  # the last point would be one half
    upper = 1.0 - lower[::-1]
    upper[-1] += 0.01
    return np.concatenate([lower, [0.5], upper, [1.2]])


# WeiPer


@register_score(
    "weiper",
    paper="Granz, Heurich, Landgraf, NeurIPS 2024, arXiv:2405.17164",
    cost="RCD",
    grid={"kind": ("msp", "kld"), "delta": (1.8, 2.0, 2.2, 2.4)},
)
@dataclass(frozen=True, eq=False)
class WeiPer(StepHooks):
    r"""Score by the mean probability over randomly perturbed heads, or by histograms of features and perturbed logits.

    .. math:: \tilde w_{rk} = w_k + \delta \lVert w_k \rVert \frac{\epsilon_{rk}}{\lVert \epsilon_{rk} \rVert}, \qquad
              s_{\text{msp}} = \frac1R \sum_r \max_k \mathrm{softmax}(\tilde W_r h + b)_k

    .. math:: s_{\text{kld}} = -J_{0.01}(\bar a, a) - \lambda_1 J_{0.025}(\bar w, w) + \lambda_2 s_{\text{msp}}

    with a and w the histograms of the features and of the perturbed logits of the sample, smoothed, :math:`\bar a` and
    :math:`\bar w` their means over the training set, and J the symmetric Kullback-Leibler divergence after adding a
    constant.

    Parameters
    ----------
    kind : {"msp", "kld"}, default="msp"
        Which of the two. The authors prefer ``"kld"``, chosen on OOD data; with few features it is poor.
    repeats : int, default=100
        Number R of perturbed heads.
    delta : float, default=1.8
        Length of the perturbation relative to the weights, at least 0.
    bins : int, default=100
        Bins of the histograms; used with ``kind="kld"``, as are the settings below.
    smooth : int, default=4
        Length of the moving average over the histogram of the features.
    smooth_perturbed : int, default=15
        Length of that over the histogram of the perturbed logits.
    weight : float, default=2.5
        The weight :math:`\lambda_1`.
    msp_weight : float, default=0.1
        The weight :math:`\lambda_2`.
    noise : ndarray of shape (n_repeats, n_classes, n_features), optional
        Unit directions :math:`\epsilon`, taken as they are; by default drawn with ``seed``.
    seed : int, default=0
        Seed of the draw.

    Attributes
    ----------
    weights : ndarray of shape (n_repeats, n_classes, n_features)
        Perturbed weights; drawn by ``fit``.
    bias : ndarray of shape (n_classes,)
        Bias of the head; stored by ``fit``.
    ranges : ndarray of shape (2, 2) or None
        Lowest and highest training feature, and perturbed training logit; learnt by ``fit``.
    typical : ndarray of shape (2, n_bins) or None
        Mean histograms of the training features and of their perturbed logits; learnt by ``fit``.

    Notes
    -----
    The heads are drawn once, when fitting. The authors' code draws others for every batch, so that its scores change
    from call to call. Values beyond the training range are dropped from a histogram and still count in its denominator.
    The perturbed weights take 8 R C D bytes.

    References
    ----------
    Granz, Heurich, Landgraf, NeurIPS 2024, arXiv:2405.17164.

    Examples
    --------
    >>> fitted = WeiPer(noise=np.array([[[1.0, 0.0], [0.0, 1.0]]]), delta=1.0).fit(Head(np.eye(2)))
    >>> fitted.score(np.array([[1.0, 0.0]])).round(6)
    array([0.880797])
    """

    kind: Literal["msp", "kld"] = "msp"
    repeats: int = 100
    delta: float = 1.8
    bins: int = 100
    smooth: int = 4
    smooth_perturbed: int = 15
    weight: float = 2.5
    msp_weight: float = 0.1
    noise: Array | None = array_setting("R C D")
    seed: int = 0
    weights: Array = state("R C D")
    bias: Array = state("C")
    ranges: Array = state("2 2", optional=True)
    typical: Array = state("2 B", optional=True)

    def unused_arguments(self) -> tuple[str, ...]:
        """Return the parameters of ``fit`` that these settings do not need: features, unless histograms are compared.

        Returns
        -------
        tuple of str
            Names of parameters.
        """
        return () if self.kind == "kld" else ("features",)

    def fit(self, head: Head, features: Floats | None = None) -> Self:
        """Draw the perturbed heads and, with ``kind="kld"``, compute the histograms.

        Parameters
        ----------
        head : Head
            Last linear layer of the classifier.
        features : ndarray of shape (n_samples, n_features), optional
            Training features; required with ``kind="kld"``.

        Returns
        -------
        WeiPer
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, ``noise`` does not fit the head, or features are missing.
        """
        self._check_settings()
        weight = np.asarray(head.weight, dtype=np.float64)
        noise = self._directions(weight)
        length = np.linalg.norm(weight, axis=1, keepdims=True)
        weights = weight + self.delta * length * noise
        fitted = replace(self, weights=weights, bias=np.asarray(head.bias, dtype=np.float64))
        if self.kind == "msp":
            return fitted
        if features is None:
            raise InvalidInput("weiper(kind='kld') compares histograms of features, and the train outputs have none")
        fitted = replace(fitted, ranges=fitted._find_ranges(features))
        return replace(fitted, typical=fitted._mean_histograms(features))

    def _check_settings(self) -> None:
        """Raise if a setting is out of range."""
        _checks.choice(self.kind, "kind", ("msp", "kld"))
        _checks.number(self.delta, "delta", 0.0, np.inf, open_high=True)
        for name in ("repeats", "bins", "smooth", "smooth_perturbed"):
            _checks.whole(getattr(self, name), name, 1)
        for name in ("weight", "msp_weight"):
            _checks.number(getattr(self, name), name, 0.0, np.inf, open_high=True)

    def _directions(self, weight: Array) -> Array:
        """Return the unit directions of the perturbations: those of ``noise``, or drawn."""
        if self.noise is not None:
            noise = np.asarray(_checks.floats(self.noise, "noise", ndim=3), dtype=np.float64)
            if noise.shape[1:] != weight.shape:
                raise InvalidInput(f"weiper: noise has shape {noise.shape}, and the head (R, {weight.shape})")
            return noise
        drawn = np.random.default_rng(self.seed).normal(size=(self.repeats, *weight.shape))
        return drawn / np.linalg.norm(drawn, axis=2, keepdims=True)

    def check_state(self) -> None:
        """Check that histograms are there where they are compared.

        Raises
        ------
        InvalidInput
            If they are missing or of another size, or a setting is out of range.
        """
        self._check_settings()
        if not self.weights.size:
            raise InvalidInput("weights must not be empty")
        if self.kind == "msp":
            return
        if self.ranges is None or self.typical is None or self.typical.shape[1] != self.bins:
            raise InvalidInput(f"ranges and histograms of {self.bins} bins are missing, which kind='kld' needs")
        if (self.ranges[:, 0] >= self.ranges[:, 1]).any() or (self.typical < 0).any():
            raise InvalidInput("ranges must ascend, and histograms must not be negative")

    def score(self, features: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        h = np.asarray(features, dtype=np.float64)
        total = np.zeros(len(h))
        counts = np.zeros((len(h), self.bins))
        for z in self._perturbed_logits(h):
            total += np.exp(log_softmax(z).max(axis=2)).sum(axis=1)
            if self.kind == "kld":
                counts += _row_histograms(z.reshape(len(h), -1), self.ranges[1], self.bins)
        mean_msp = total / len(self.weights)
        if self.kind == "msp":
            return mean_msp
        own = _row_histograms(h, self.ranges[0], self.bins) / h.shape[1]
        perturbed = counts / (len(self.weights) * len(self.bias))
        feature_part = _divergence(self.typical[0], _smooth(own, self.smooth), FEATURE_EPSILON)
        logit_part = _divergence(self.typical[1], _smooth(perturbed, self.smooth_perturbed), LOGIT_EPSILON)
        return -(feature_part + self.weight * logit_part - self.msp_weight * mean_msp)

    def _perturbed_logits(self, h: Array) -> Iterator[Array]:
        """Compute the logits (N, r, C) of all rows by some of the perturbed heads at a time."""
        repeats, classes, width = self.weights.shape
        step = max(1, ENTRIES // (len(h) * classes))
        for first in range(0, repeats, step):
            some = self.weights[first : first + step]
            z = h @ some.reshape(-1, width).T
            yield z.reshape(len(h), len(some), classes) + self.bias

    def _find_ranges(self, features: Floats) -> Array:
        """Find the lowest and highest training feature and perturbed training logit."""
        low, high = np.full(2, np.inf), np.full(2, -np.inf)
        for (h,) in blocks(features):
            low[0], high[0] = min(low[0], h.min()), max(high[0], h.max())
            for z in self._perturbed_logits(h):
                low[1], high[1] = min(low[1], z.min()), max(high[1], z.max())
        return np.stack([low, high + 1e-8], axis=1)

    def _mean_histograms(self, features: Floats) -> Array:
        """Compute the mean histograms of the training rows, not smoothed."""
        counts = np.zeros((2, self.bins))
        for (h,) in blocks(features):
            counts[0] += _row_histograms(h, self.ranges[0], self.bins).sum(axis=0)
            for z in self._perturbed_logits(h):
                counts[1] += _row_histograms(z.reshape(len(h), -1), self.ranges[1], self.bins).sum(axis=0)
        values = np.array([[features.shape[1]], [len(self.weights) * len(self.bias)]])
        return counts / (len(features) * values)


def _row_histograms(values: Array, limits: Array, bins: int) -> Array:
    """Count the values of each row in even bins; those outside the limits are left out."""
    low, high = limits
    places = np.floor((values - low) * (bins / (high - low)))
    inside = (values >= low) & (values < high)
    places = np.where(inside, np.minimum(places, bins - 1), bins).astype(np.int64)  # one more bin for those outside
    places += np.arange(len(values))[:, None] * (bins + 1)
    counts = np.bincount(places.ravel(), minlength=len(values) * (bins + 1))
    return counts.reshape(len(values), bins + 1)[:, :bins].astype(np.float64)


def _smooth(histograms: Array, length: int) -> Array:
    """Average over neighbouring bins, the end bins repeated; an even length takes one more to the right."""
    left, right = (length - 1) // 2, length // 2
    padded = np.pad(histograms, ((0, 0), (left, right)), mode="edge")
    windows: npt.NDArray[np.float64] = np.lib.stride_tricks.sliding_window_view(padded, length, axis=1)
    return np.asarray(windows.mean(axis=2))


def _divergence(typical: Array, histograms: Array, epsilon: float) -> Array:
    """Compute the symmetric Kullback-Leibler divergence of each histogram from the typical one."""
    p, q = typical + epsilon, histograms + epsilon
    p = p / p.sum()
    q = q / q.sum(axis=1, keepdims=True)
    return ((p - q) * (np.log(p) - np.log(q))).sum(axis=1)
