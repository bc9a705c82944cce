r"""Distances and angles between a feature and what training knows of the classes.

Notation: h features, :math:`\mu_c` and :math:`\mu` class means and mean of the training features, W and b the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from twofold import _checks
from twofold._checks import Array, Labels
from twofold._math import Floats, log_softmax, squared_distances, unit
from twofold._statistics.moments import moments as moments_of
from twofold._statistics.moments import whitened, whitening
from twofold._statistics.spaces import check_means
from twofold.errors import InvalidInput
from twofold.outputs import Head
from twofold.steps import PROJECTIONS, register_score, state

TINY = 1e-12
RAW = "penultimate/raw"  # features before a cosine head made them unit vectors


@register_score(
    "mds",
    paper="Lee et al., NeurIPS 2018, arXiv:1807.03888",
    aliases=("maha", "mahalanobis"),
    cost="D^2 + CD",
    grid={"covariance": ("within", "total"), "nearest": (True, False)},
)
@dataclass(frozen=True, eq=False)
class Mahalanobis:
    r"""Negative squared Mahalanobis distance to the nearest class mean under one shared covariance.

    .. math:: s = -\min_c (h - \mu_c)^T \Sigma^{-1} (h - \mu_c)

    ``covariance="within"`` pools the deviations from the class means, ``"total"`` those from the overall mean (as
    FD-Shifts does); ``nearest=False`` takes the predicted class. Features are whitened once, so scoring is one D x D
    product and one distance table. Directions without variance are ignored; classes without training rows are skipped.

    >>> h = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    >>> Mahalanobis(covariance="total").fit(h, np.array([0, 1, 0, 1]), np.zeros((4, 2))).score(h, np.zeros(4, int))
    array([-1., -1., -1., -1.])
    """

    covariance: Literal["within", "total"] = "within"
    nearest: bool = True
    whiten: Array = state("D R")
    centres: Array = state("C R", nan=True)  # whitened class means; NaN where a class has no row

    def fit(self, features: Floats, labels: Labels, logits: Floats) -> Self:
        """Class means and shared covariance; the logits tell how many classes there are."""
        _checks.choice(self.covariance, "covariance", ("within", "total"))
        moments = moments_of(features, labels, np.shape(logits)[1])
        whiten = whitening(moments.within if self.covariance == "within" else moments.covariance, moments.floor)
        centres = np.where(moments.present[:, None], moments.class_means @ whiten, np.nan)
        return replace(self, whiten=whiten, centres=centres)

    def check_state(self) -> None:
        """Raise unless the class means can be measured from."""
        check_means(self.centres)

    def score(self, features: Floats, predictions: Labels) -> Array:
        """Confidence of each row."""
        h = whitened(np.asarray(features, dtype=np.float64), self.whiten)
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
    r"""Mahalanobis distance to the nearest class, less that to the training set as a whole.

    .. math:: s = -\min_c \left[ (h - \mu_c)^T \Sigma_w^{-1} (h - \mu_c) - (h - \mu)^T \Sigma_t^{-1} (h - \mu) \right]

    Squared distances, as in a ratio of densities. Unchanged by invertible linear maps of the features.

    >>> rng = np.random.default_rng(0)
    >>> h, y = np.repeat(np.eye(2) * 4, 20, axis=0) + rng.normal(size=(40, 2)), np.repeat([0, 1], 20)
    >>> fitted = RelativeMahalanobis().fit(h, y, np.zeros((40, 2)))
    >>> bool(fitted.score(np.array([[4.0, 0.0]])) > fitted.score(np.array([[2.0, 2.0]])))
    True
    """

    whiten: Array = state("D R")  # within classes
    centres: Array = state("K R")  # whitened means of the classes with rows
    whiten_all: Array = state("D S")  # of the whole
    centre: Array = state("1 S")

    def fit(self, features: Floats, labels: Labels, logits: Floats) -> Self:
        """Both covariances from one pass."""
        moments = moments_of(features, labels, np.shape(logits)[1])
        whiten, overall = whitening(moments.within, moments.floor), whitening(moments.covariance, moments.floor)
        centres = moments.class_means[moments.present] @ whiten
        return replace(self, whiten=whiten, centres=centres, whiten_all=overall, centre=moments.mean[None] @ overall)

    def score(self, features: Floats) -> Array:
        """Confidence of each row."""
        h = np.asarray(features, dtype=np.float64)
        nearest = squared_distances(whitened(h, self.whiten), self.centres).min(axis=1)
        return squared_distances(whitened(h, self.whiten_all), self.centre)[:, 0] - nearest


@register_score("she", paper="Zhang et al., ICLR 2023", cost="D", grid={"kind": ("inner", "cosine", "euclidean")})
@dataclass(frozen=True, eq=False)
class She:
    r"""Likeness to the stored pattern of the predicted class.

    .. math:: s = \langle h, m_{\hat y} \rangle

    with :math:`m_c` the mean feature of the right training answers of class c (all its rows if none is right, the mean
    of all rows if it has none). ``kind``: ``inner`` product, ``cosine``, or negative ``euclidean`` distance.

    >>> h = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> She().fit(h, np.array([0, 1]), np.array([0, 1]), np.zeros((2, 2))).score(h, np.array([0, 1]))
    array([1., 4.])
    """

    kind: Literal["inner", "cosine", "euclidean"] = "inner"
    patterns: Array = state("C D")

    def fit(self, features: Floats, labels: Labels, predictions: Labels, logits: Floats) -> Self:
        """Mean features of right answers."""
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
        """Confidence of each row."""
        h, pattern = np.asarray(features, dtype=np.float64), self.patterns[np.asarray(predictions)]
        if self.kind == "euclidean":
            return -np.linalg.norm(h - pattern, axis=1)
        if self.kind == "cosine":
            h, pattern = unit(h), unit(pattern)
        return np.einsum("nd,nd->n", h, pattern)


@register_score("cosine_weight", paper="Ngoc-Hieu et al., 2023", aliases=("ctm",), cost="CD", project=PROJECTIONS)
def cosine_weight(features: Floats, head: Head, layers: Mapping[str, Floats] | None = None) -> Array:
    r"""Largest cosine between the feature and a row of the head: :math:`\max_k \cos(w_k, h)`.

    Behind ``project(kind="class")`` the feature filtered by class k meets row k.

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
    r"""Largest cosine between the feature and a class mean: :math:`\max_c \cos(\mu_c, h)`.

    Means are taken of the features as they are, and then normalised. Behind ``project(kind="class")`` the feature
    filtered by class c meets the mean of class c.

    >>> h = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> CosineMean().fit(h, np.array([0, 1]), np.zeros((2, 2))).score(np.array([[3.0, 4.0]]))
    array([0.8])
    """

    directions: Array = state("K D")  # unit means of the classes with rows

    def fit(self, features: Floats, labels: Labels, logits: Floats) -> Self:
        """Class means."""
        moments = moments_of(features, labels, np.shape(logits)[1])
        return replace(self, directions=unit(moments.class_means[moments.present]))

    def score(self, features: Floats, layers: Mapping[str, Floats] | None = None) -> Array:
        """Confidence of each row."""
        if layers and "project/cosine_mean" in layers:
            return np.asarray(layers["project/cosine_mean"], dtype=np.float64).max(axis=1)
        return (unit(np.asarray(features, dtype=np.float64)) @ self.directions.T).max(axis=1)


@register_score("fdbd", paper="Liu & Qin, ICML 2024, arXiv:2312.11536", cost="C + D", grid={"center": (True, False)})
@dataclass(frozen=True, eq=False)
class DecisionBoundary:
    r"""Mean distance to the decision boundaries of the other classes, relative to the distance from the centre.

    .. math:: s = \frac{1}{\lVert h - \mu \rVert} \cdot \frac{1}{C - 1} \sum_{k \ne \hat y}
              \frac{z_{\hat y} - z_k}{\lVert w_{\hat y} - w_k \rVert}

    The numerators are gaps of logits, so only a C x C table of norms is needed. ``center=False`` divides by
    :math:`\lVert h \rVert`. Classes with equal rows in the head have no boundary between them and are left out.

    >>> z, h, head = np.array([[3.0, 1.0]]), np.array([[3.0, 1.0]]), Head(np.eye(2))
    >>> DecisionBoundary(center=False).fit(h, head).score(h, z, np.array([0])).round(6)
    array([0.447214])
    """

    center: bool = True
    mean: Array = state("D")
    inverse: Array = state("C C")  # 1 / ||w_i - w_j||, 0 where that is 0

    def fit(self, features: Floats, head: Head) -> Self:
        """Mean feature and distances between rows of the head."""
        w = np.asarray(head.weight, dtype=np.float64)
        apart = np.stack([np.linalg.norm(w - row, axis=1) for row in w])
        inverse = np.divide(1.0, apart, out=np.zeros_like(apart), where=apart > TINY)
        mean = moments_of(features).mean if self.center else np.zeros(w.shape[1])
        return replace(self, mean=mean, inverse=inverse)

    def score(
        self,
        features: Floats,
        logits: Floats,
        predictions: Labels,
        layers: Mapping[str, Floats] | None = None,
    ) -> Array:
        """Confidence of each row."""
        h, z = np.asarray(features, dtype=np.float64), np.asarray(logits, dtype=np.float64)
        chosen = np.asarray(predictions)
        weight = self.inverse[chosen]
        gaps = (z[np.arange(len(z)), chosen][:, None] - z) * weight
        others = np.maximum((weight > 0).sum(axis=1), 1)
        away = np.linalg.norm(h - self.mean, axis=1)
        if self.center and layers and "project/away" in layers:
            away = np.asarray(layers["project/away"], dtype=np.float64)[:, 0]
        return gaps.sum(axis=1) / others / np.maximum(away, TINY)


@register_score("gradnorm", paper="Huang, Geng, Li, NeurIPS 2021, arXiv:2110.00218", cost="C + D")
def gradnorm(features: Floats, logits: Floats, layers: Mapping[str, Floats] | None = None) -> Array:
    r"""L1 norm of the gradient, by the last layer's weights, of the divergence from the uniform distribution.

    .. math:: s = \lVert h \rVert_1 \sum_k \left| p_k - \tfrac1C \right|

    The closed form; no gradient is taken. The authors' value is C times this. With a cosine head the length is that of
    ``layers["penultimate/raw"]``.

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
    r"""How closely the centred feature points along the head's row of the prediction, and how long the feature is.

    .. math:: s = \frac{\langle w_{\hat y}, h - \mu \rangle}{\lVert h - \mu \rVert_2} + \alpha \lVert h \rVert_1

    With a cosine head the length is that of ``layers["penultimate/raw"]``.

    >>> h, head = np.array([[1.0, 0.0], [3.0, 0.0]]), Head(np.eye(2))
    >>> NeuralCollapse(alpha=0.5).fit(h, head).score(np.array([[5.0, 4.0]]), np.array([0]))
    array([5.1])
    """

    alpha: float = 0.0001
    mean: Array = state("D")
    weight: Array = state("C D")

    def fit(self, features: Floats, head: Head) -> Self:
        """Mean feature."""
        _checks.number(self.alpha, "alpha", 0.0, np.inf, open_high=True)
        return replace(self, mean=moments_of(features).mean, weight=np.asarray(head.weight, dtype=np.float64))

    def score(self, features: Floats, predictions: Labels, layers: Mapping[str, Floats] | None = None) -> Array:
        """Confidence of each row."""
        away = np.asarray(features, dtype=np.float64) - self.mean
        along = np.einsum("nd,nd->n", self.weight[np.asarray(predictions)], away)
        return along / np.maximum(np.linalg.norm(away, axis=1), TINY) + self.alpha * _length(features, layers)


def _length(features: Floats, layers: Mapping[str, Floats] | None) -> Array:
    """L1 norm of the features, or of those before a cosine head made them unit vectors."""
    return np.asarray(np.abs(np.asarray(raw_features(features, layers), dtype=np.float64)).sum(axis=1))


def raw_features(features: Floats, layers: Mapping[str, Floats] | None) -> Floats:
    """Features with their own length, where a cosine head took it away."""
    return (layers or {}).get(RAW, features)
