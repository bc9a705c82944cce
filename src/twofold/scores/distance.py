r"""Scores from distances and angles between a feature and the classes of the training set.

Notation: h features, :math:`\mu_c` and :math:`\mu` class means and mean of the training features, W and b the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from twofold import _checks
from twofold._math import TINY, log_softmax, squared_distances, unit
from twofold.errors import InvalidInput
from twofold.outputs import Head
from twofold.scores._fitting.moments import mean_feature, whiten_rows, whitening
from twofold.scores._fitting.moments import moments as moments_of
from twofold.scores._fitting.spaces import UNFILTERED, check_means
from twofold.scores.registry import PROJECTIONS, register_score
from twofold.typing import Array, Floats, Labels, StepHooks, state

RAW = "penultimate/raw"  # features before a cosine head normalised them


@register_score(
    "mds",
    paper="Lee et al., NeurIPS 2018, arXiv:1807.03888",
    aliases=("maha", "mahalanobis"),
    cost="D^2 + CD",
    grid={"covariance": ("within", "total"), "nearest": (True, False)},
)
@dataclass(frozen=True, eq=False)
class Mahalanobis(StepHooks):
    r"""Score by the negative squared Mahalanobis distance to the nearest class mean under one shared covariance.

    .. math:: s = -\min_c (h - \mu_c)^T \Sigma^{-1} (h - \mu_c)

    Features are whitened once, so scoring is one D x D product and one distance table.

    Parameters
    ----------
    covariance : {"within", "total"}, default="within"
        ``"within"`` pools the deviations from the class means, ``"total"`` those from the overall mean, as FD-Shifts
        does.
    nearest : bool, default=True
        Measure to the nearest class mean; False measures to the mean of the predicted class.

    Attributes
    ----------
    whiten : ndarray of shape (n_features, n_directions)
        Matrix that whitens the features; learnt by ``fit``.
    centres : ndarray of shape (n_classes, n_directions)
        Whitened class means, NaN for a class without training rows; learnt by ``fit``.

    Notes
    -----
    Directions without variance are ignored; classes without training rows are skipped.

    References
    ----------
    Lee et al., NeurIPS 2018, arXiv:1807.03888.

    Examples
    --------
    >>> h = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    >>> Mahalanobis(covariance="total").fit(h, np.array([0, 1, 0, 1]), np.zeros((4, 2))).score(h, np.zeros(4, int))
    array([-1., -1., -1., -1.])
    """

    covariance: Literal["within", "total"] = "within"
    nearest: bool = True
    whiten: Array = state("D R")
    centres: Array = state("C R", nan=True)  # whitened class means; NaN where a class has no row

    def fit(self, features: Floats, labels: Labels, logits: Floats) -> Self:
        """Estimate the class means and the shared covariance.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.

        Returns
        -------
        Mahalanobis
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``covariance`` is unknown, the features do not vary, or every label is -1.
        """
        _checks.choice(self.covariance, "covariance", ("within", "total"))
        moments = moments_of(features, labels, np.shape(logits)[1])
        whiten = whitening(moments.within if self.covariance == "within" else moments.covariance, moments.floor)
        centres = np.where(moments.present[:, None], moments.class_means @ whiten, np.nan)
        return replace(self, whiten=whiten, centres=centres)

    def check_state(self) -> None:
        """Check that at least one class has a mean to measure from.

        Raises
        ------
        InvalidInput
            If no class has a mean, or a mean is partly NaN.
        """
        check_means(self.centres)

    def score(self, features: Floats, predictions: Labels) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample; used with ``nearest=False``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If ``nearest=False`` and a predicted class had no training row.
        """
        h = whiten_rows(np.asarray(features, dtype=np.float64), self.whiten)
        known = ~np.isnan(self.centres[:, 0])
        if self.nearest:
            return -squared_distances(h, self.centres[known]).min(axis=1)
        chosen = np.asarray(predictions)
        if not known[chosen].all():
            raise InvalidInput(
                f"mds(nearest=False): class {chosen[~known[chosen]][0]} is predicted, and had no training row"
            )
        return -((h - self.centres[chosen]) ** 2).sum(axis=1)


@register_score("rmds", paper="Ren et al., 2021, arXiv:2106.09022", aliases=("relative_mahalanobis",), cost="D^2 + CD")
@dataclass(frozen=True, eq=False)
class RelativeMahalanobis:
    r"""Score by the negative Mahalanobis distance to the nearest class, relative to that to the whole training set.

    .. math:: s = -\min_c \left[ (h - \mu_c)^T \Sigma_w^{-1} (h - \mu_c) - (h - \mu)^T \Sigma_t^{-1} (h - \mu) \right]

    with :math:`\Sigma_w` the covariance within classes and :math:`\Sigma_t` that of all training features. There are no
    settings.

    Attributes
    ----------
    whiten : ndarray of shape (n_features, n_directions)
        Matrix that whitens the covariance within classes; learnt by ``fit``.
    centres : ndarray of shape (n_present_classes, n_directions)
        Whitened means of the classes with training rows; learnt by ``fit``.
    whiten_all : ndarray of shape (n_features, n_directions_all)
        Matrix that whitens the covariance of all rows; learnt by ``fit``.
    centre : ndarray of shape (1, n_directions_all)
        Whitened mean of all rows; learnt by ``fit``.

    Notes
    -----
    The distances are squared, as in a ratio of densities. Invertible linear maps of the features leave the score
    unchanged.

    References
    ----------
    Ren et al., 2021, arXiv:2106.09022.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> h, y = np.repeat(np.eye(2) * 4, 20, axis=0) + rng.normal(size=(40, 2)), np.repeat([0, 1], 20)
    >>> fitted = RelativeMahalanobis().fit(h, y, np.zeros((40, 2)))
    >>> bool(fitted.score(np.array([[4.0, 0.0]])) > fitted.score(np.array([[2.0, 2.0]])))
    True
    """

    whiten: Array = state("D R")  # whitens the covariance within classes
    centres: Array = state("C R")  # whitened means of the classes with rows
    whiten_all: Array = state("D S")  # whitens the covariance of all rows
    centre: Array = state("1 S")

    def fit(self, features: Floats, labels: Labels, logits: Floats) -> Self:
        """Estimate the class means and both covariances in one pass.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.

        Returns
        -------
        RelativeMahalanobis
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If the features do not vary, or every label is -1.
        """
        moments = moments_of(features, labels, np.shape(logits)[1])
        whiten, overall = whitening(moments.within, moments.floor), whitening(moments.covariance, moments.floor)
        centres = moments.class_means[moments.present] @ whiten
        return replace(self, whiten=whiten, centres=centres, whiten_all=overall, centre=moments.mean[None] @ overall)

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
        nearest = squared_distances(whiten_rows(h, self.whiten), self.centres).min(axis=1)
        return squared_distances(whiten_rows(h, self.whiten_all), self.centre)[:, 0] - nearest


@register_score(
    "she",
    paper="Zhang et al., ICLR 2023, openreview:KkazG4lgKL",
    cost="D",
    grid={"kind": ("inner", "cosine", "euclidean")},
)
@dataclass(frozen=True, eq=False)
class She:
    r"""Score by the similarity of the feature to the stored pattern of the predicted class.

    .. math:: s = \langle h, m_{\hat y} \rangle

    with :math:`m_c` the mean feature of the correctly predicted training samples of class c.

    Parameters
    ----------
    kind : {"inner", "cosine", "euclidean"}, default="inner"
        Similarity: the inner product, the cosine, or the negative Euclidean distance.

    Attributes
    ----------
    patterns : ndarray of shape (n_classes, n_features)
        Stored pattern of each class; learnt by ``fit``.

    Notes
    -----
    A class without correct predictions uses the mean of all its training rows; a class without training rows uses the
    mean of all rows.

    References
    ----------
    Zhang et al., ICLR 2023.

    Examples
    --------
    >>> h = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> She().fit(h, np.array([0, 1]), np.array([0, 1]), np.zeros((2, 2))).score(h, np.array([0, 1]))
    array([1., 4.])
    """

    kind: Literal["inner", "cosine", "euclidean"] = "inner"
    patterns: Array = state("C D")

    def fit(self, features: Floats, labels: Labels, predictions: Labels, logits: Floats) -> Self:
        """Average the features of the correctly predicted training samples of each class.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.

        Returns
        -------
        She
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``kind`` is unknown, or every label is -1.
        """
        _checks.choice(self.kind, "kind", ("inner", "cosine", "euclidean"))
        truth = np.asarray(labels)
        everything = moments_of(features, labels, np.shape(logits)[1])
        right = np.where(truth == np.asarray(predictions), truth, -1)
        patterns = everything.class_means
        if (right >= 0).any():
            good = moments_of(features, right, np.shape(logits)[1])
            patterns = np.where(good.present[:, None], good.class_means, patterns)
        return replace(self, patterns=patterns)

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
        h, pattern = np.asarray(features, dtype=np.float64), self.patterns[np.asarray(predictions)]
        if self.kind == "euclidean":
            return -np.linalg.norm(h - pattern, axis=1)
        if self.kind == "cosine":
            h, pattern = unit(h), unit(pattern)
        return np.einsum("nd,nd->n", h, pattern)


@register_score("cosine_weight", paper="Ngoc-Hieu et al., 2023", aliases=("ctm",), cost="CD", project=PROJECTIONS)
def cosine_weight(features: Floats, head: Head, layers: Mapping[str, Floats] | None = None) -> Array:
    r"""Score by the largest cosine between the feature and a row of the head.

    .. math:: s = \max_k \cos(w_k, h)

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features of the samples to score.
    head : Head
        Last linear layer of the classifier.
    layers : mapping of str to ndarray, optional
        Recorded layers by name; ``"project/cosine_weight"``, which ``project(kind="class")`` writes, replaces the
        cosines.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    After ``project(kind="class")`` the feature filtered by class k is compared with row k.

    References
    ----------
    Ngoc-Hieu et al., 2023.

    Examples
    --------
    >>> cosine_weight(np.array([[3.0, 4.0]]), Head(np.eye(2)))
    array([0.8])
    """
    if layers and "project/cosine_weight" in layers:
        return np.asarray(layers["project/cosine_weight"], dtype=np.float64).max(axis=1)
    h, w = np.asarray(features, dtype=np.float64), np.asarray(head.weight, dtype=np.float64)
    return (unit(h) @ unit(w).T).max(axis=1)


@register_score("cosine_mean", paper="Ngoc-Hieu et al., 2023", aliases=("ctm_mean",), cost="CD", project=PROJECTIONS)
@dataclass(frozen=True, eq=False)
class CosineMean:
    r"""Score by the largest cosine between the feature and a class mean.

    .. math:: s = \max_c \cos(\mu_c, h)

    Parameters
    ----------
    unfiltered : bool, default=False
        Behind ``project``, compare the filtered feature with the means of the unfiltered training features, as the
        stratified study prints it; by default both are filtered.

    Attributes
    ----------
    directions : ndarray of shape (n_present_classes, n_features)
        Unit means of the classes with training rows; learnt by ``fit``.

    Notes
    -----
    The features are averaged as they are, and the means are normalised afterwards. After ``project(kind="class")`` the
    feature filtered by class c is compared with the mean of class c.

    References
    ----------
    Ngoc-Hieu et al., 2023.

    Examples
    --------
    >>> h = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> CosineMean().fit(h, np.array([0, 1]), np.zeros((2, 2))).score(np.array([[3.0, 4.0]]))
    array([0.8])
    """

    unfiltered: bool = False
    directions: Array = state("C D")  # unit means of the classes with rows

    def fit(self, features: Floats, labels: Labels, logits: Floats, layers: Mapping[str, Floats] | None = None) -> Self:
        """Compute the direction of each class mean.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; with ``unfiltered=True``, the means are those of ``"project/unfiltered"``, which
            ``project`` writes.

        Returns
        -------
        CosineMean
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If every label is -1.
        """
        averaged = features
        if self.unfiltered and layers and UNFILTERED in layers:
            averaged = layers[UNFILTERED]
        moments = moments_of(averaged, labels, np.shape(logits)[1])
        return replace(self, directions=unit(moments.class_means[moments.present]))

    def score(self, features: Floats, layers: Mapping[str, Floats] | None = None) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"project/cosine_mean"``, which ``project(kind="class")`` writes, replaces the
            cosines.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        if layers and "project/cosine_mean" in layers:
            return np.asarray(layers["project/cosine_mean"], dtype=np.float64).max(axis=1)
        return (unit(np.asarray(features, dtype=np.float64)) @ self.directions.T).max(axis=1)


@register_score("fdbd", paper="Liu & Qin, ICML 2024, arXiv:2312.11536", cost="C + D", grid={"center": (True, False)})
@dataclass(frozen=True, eq=False)
class DecisionBoundary:
    r"""Score by the mean distance to the other classes' decision boundaries, relative to that from the centre.

    .. math:: s = \frac{1}{\lVert h - \mu \rVert} \cdot \frac{1}{C - 1} \sum_{k \ne \hat y}
              \frac{z_{\hat y} - z_k}{\lVert w_{\hat y} - w_k \rVert}

    The numerators are gaps of logits, so only a C x C table of norms is needed.

    Parameters
    ----------
    center : bool, default=True
        Divide by the distance from the training mean; False divides by :math:`\lVert h \rVert`.
    absolute : bool, default=False
        Take the gaps of logits without their sign, as the stratified study prints it. Gaps are negative only behind a
        transform that changes the order of the logits, such as ``project``.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        Mean training feature, or zeros with ``center=False``; learnt by ``fit``.
    inverse : ndarray of shape (n_classes, n_classes)
        :math:`1 / \lVert w_i - w_j \rVert`, 0 for equal rows of the head; learnt by ``fit``.

    Notes
    -----
    Classes with equal rows in the head have no boundary between them and are left out of the mean.

    References
    ----------
    Liu & Qin, ICML 2024, arXiv:2312.11536.

    Examples
    --------
    >>> z, h, head = np.array([[3.0, 1.0]]), np.array([[3.0, 1.0]]), Head(np.eye(2))
    >>> DecisionBoundary(center=False).fit(h, head).score(h, z, np.array([0])).round(6)
    array([0.447214])
    """

    center: bool = True
    absolute: bool = False
    mean: Array = state("D")
    inverse: Array = state("C C")  # 1 / ||w_i - w_j||, 0 where that is 0

    def fit(self, features: Floats, head: Head) -> Self:
        """Compute the mean feature and the distances between the rows of the head.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        DecisionBoundary
            A fitted copy; this object stays unchanged.
        """
        w = np.asarray(head.weight, dtype=np.float64)
        apart = np.stack([np.linalg.norm(w - row, axis=1) for row in w])
        inverse = np.divide(1.0, apart, out=np.zeros_like(apart), where=apart > TINY)
        mean = mean_feature(features) if self.center else np.zeros(w.shape[1])
        return replace(self, mean=mean, inverse=inverse)

    def score(
        self,
        features: Floats,
        logits: Floats,
        predictions: Labels,
        layers: Mapping[str, Floats] | None = None,
    ) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; with ``center=True``, ``"project/away"`` replaces the distance from the mean.
            ``project(kind="class_pred")`` writes it.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        h, z = np.asarray(features, dtype=np.float64), np.asarray(logits, dtype=np.float64)
        chosen = np.asarray(predictions)
        weight = self.inverse[chosen]
        gaps = (z[np.arange(len(z)), chosen][:, None] - z) * weight
        if self.absolute:
            gaps = np.abs(gaps)
        others = np.maximum((weight > 0).sum(axis=1), 1)
        away = np.linalg.norm(h - self.mean, axis=1)
        if self.center and layers and "project/away" in layers:
            away = np.asarray(layers["project/away"], dtype=np.float64)[:, 0]
        return gaps.sum(axis=1) / others / np.maximum(away, TINY)


@register_score("gradnorm", paper="Huang, Geng, Li, NeurIPS 2021, arXiv:2110.00218", cost="C + D")
def gradnorm(features: Floats, logits: Floats, layers: Mapping[str, Floats] | None = None) -> Array:
    r"""Score by the L1 norm of the last layer's gradient of the divergence from the uniform distribution.

    .. math:: s = \lVert h \rVert_1 \sum_k \left| p_k - \tfrac1C \right|

    The gradient is that with respect to the weights of the last layer. This is its closed form; no gradient is
    computed.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features of the samples to score.
    logits : ndarray of shape (n_samples, n_classes)
        Logits of the samples to score.
    layers : mapping of str to ndarray, optional
        Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read if
        present.

    Returns
    -------
    ndarray of shape (n_samples,)
        Confidence of each sample; higher is safer to accept.

    Notes
    -----
    The authors' value is C times this one. With a cosine head, the norm is that of ``layers["penultimate/raw"]``.

    References
    ----------
    Huang, Geng, Li, NeurIPS 2021, arXiv:2110.00218.

    Examples
    --------
    >>> gradnorm(np.array([[1.0, 2.0, 0.5, 0.0]]), np.array([[2.0, 1.0, 0.1]])).round(8)
    array([2.27967464])
    """
    p = np.exp(log_softmax(logits))
    return _length(features, layers) * np.abs(p - 1.0 / p.shape[1]).sum(axis=1)


@register_score(
    "nci",
    paper="Liu & Qin, CVPR 2025, arXiv:2311.01479",
    cost="D",
    grid={"alpha": (0.0001, 0.001, 0.01, 0.1)},
)
@dataclass(frozen=True, eq=False)
class NeuralCollapse:
    r"""Score by how closely the feature aligns with the head's row of the predicted class, and by its norm.

    .. math:: s = \frac{\langle w_{\hat y}, h - \mu \rangle}{\lVert h - \mu \rVert_2} + \alpha \lVert h \rVert_1

    Parameters
    ----------
    alpha : float, default=0.0001
        Weight of the norm, at least 0; tune it on validation data.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        Mean training feature; learnt by ``fit``.
    weight : ndarray of shape (n_classes, n_features)
        Weights of the head; stored by ``fit``.

    Notes
    -----
    With a cosine head, the norm is that of ``layers["penultimate/raw"]``.

    References
    ----------
    Liu & Qin, CVPR 2025, arXiv:2311.01479.

    Examples
    --------
    >>> h, head = np.array([[1.0, 0.0], [3.0, 0.0]]), Head(np.eye(2))
    >>> NeuralCollapse(alpha=0.5).fit(h, head).score(np.array([[5.0, 4.0]]), np.array([0]))
    array([5.1])
    """

    alpha: float = 0.0001
    mean: Array = state("D")
    weight: Array = state("C D")

    def fit(self, features: Floats, head: Head) -> Self:
        """Compute the mean feature and store the weights of the head.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        NeuralCollapse
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``alpha`` is negative or not finite.
        """
        _checks.number(self.alpha, "alpha", 0.0, np.inf, open_high=True)
        return replace(self, mean=moments_of(features).mean, weight=np.asarray(head.weight, dtype=np.float64))

    def score(self, features: Floats, predictions: Labels, layers: Mapping[str, Floats] | None = None) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        away = np.asarray(features, dtype=np.float64) - self.mean
        along = np.einsum("nd,nd->n", self.weight[np.asarray(predictions)], away)
        return along / np.maximum(np.linalg.norm(away, axis=1), TINY) + self.alpha * _length(features, layers)


def _length(features: Floats, layers: Mapping[str, Floats] | None) -> Array:
    """Compute the L1 norm of the features, or of those before a cosine head normalised them."""
    return np.asarray(np.abs(np.asarray(raw_features(features, layers), dtype=np.float64)).sum(axis=1))


def raw_features(features: Floats, layers: Mapping[str, Floats] | None) -> Floats:
    """Return the features as they were before a cosine head normalised them.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features, returned if there are no raw ones.
    layers : mapping of str to ndarray or None
        Recorded layers by name; ``"penultimate/raw"`` holds the raw features.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        ``layers["penultimate/raw"]`` if present, else ``features``.

    Examples
    --------
    >>> raw_features(np.array([[0.6, 0.8]]), {"penultimate/raw": np.array([[3.0, 4.0]])})
    array([[3., 4.]])
    """
    return (layers or {}).get(RAW, features)
