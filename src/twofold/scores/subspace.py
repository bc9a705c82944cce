r"""Scores from the part of a feature outside the subspace that the training features fill, linear or by a kernel.

Notation: h features, :math:`\mu` and :math:`\Sigma` mean and covariance of the training features, W and b the head,
z logits, P the leading directions (orthonormal columns), R the remaining ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from twofold import _checks
from twofold._math import TINY, logsumexp, squared_distances, unit
from twofold.errors import InvalidInput
from twofold.outputs import Head
from twofold.scores._fitting.moments import blocks, moments
from twofold.scores._fitting.shared import once
from twofold.scores._fitting.spaces import (
    Spaces,
    check_means,
    check_offsets,
    class_spaces,
    dimension,
    global_space,
    groups,
    mapped_spaces,
    offsets_of,
    over_classes,
)
from twofold.scores.distance import RAW
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, StepHooks, state

EXACT_ROWS = 5000  # training rows up to which exact kernel PCA is allowed
KINDS = ("global", "class", "class_pred")
Kind = Literal["global", "class", "class_pred"]


# The residual of ViM


def residual_space(features: Floats, weight: Floats, bias: Floats, dim: int | None = None) -> tuple[Array, Array]:
    """Compute the origin and the residual directions of ViM.

    The origin is :math:`u = -W^+ b`, where the bias is cancelled. The residual directions are all but the leading
    eigenvectors of the second moment of the features about u. The eigenvectors are computed once and reused by later
    calls with the same arrays.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features, of width 2 or more.
    weight : ndarray of shape (n_classes, n_features)
        Weights of the head.
    bias : ndarray of shape (n_classes,)
        Bias of the head.
    dim : int, optional
        Number of leading directions to leave out. By default 1000 from a width of 2048 on, 512 from 768 on, and half
        the width below.

    Returns
    -------
    origin : ndarray of shape (n_features,)
        The point u.
    basis : ndarray of shape (n_features, n_residual)
        Orthonormal residual directions in columns; at least ``n_features - dim``.

    Raises
    ------
    InvalidInput
        If the features have width 1, or ``dim`` is below 1 or leaves no direction.

    Notes
    -----
    Directions that the training features do not fill are residual, whatever ``dim``.

    Examples
    --------
    >>> h = np.array([[2.0, 1.0], [2.0, -1.0]])
    >>> origin, basis = residual_space(h, np.eye(2), np.zeros(2))
    >>> np.abs(basis)
    array([[0.],
           [1.]])
    """
    width = int(features.shape[1])
    if width < 2:
        raise InvalidInput("a residual needs features of width 2 or more, got width 1")
    kept = _usual_dimension(width) if dim is None else _checks.whole(dim, "dim", 1)
    if kept >= width:
        raise InvalidInput(f"dim must be at most {width - 1} for features of width {width}, got {kept}; none is left")
    origin, values, vectors = _about_origin(features, weight, bias)
    return origin, np.ascontiguousarray(vectors[:, dimension(values, 0.0, 1.0, kept) :])


def _usual_dimension(width: int) -> int:
    """Return the number of leading directions that the authors leave out of features of this width."""
    if width >= 2048:
        return 1000
    if width >= 768:
        return 512
    return width // 2


@once
def _about_origin(features: Floats, weight: Floats, bias: Floats) -> tuple[Array, Array, Array]:
    """Compute the origin, and the eigenvalues and eigenvectors of the second moment about it, largest first."""
    w, b = np.asarray(weight, dtype=np.float64), np.asarray(bias, dtype=np.float64)
    # singular values below the precision of stored weights count as zero; heads whose rows sum to zero are common
    origin = -np.linalg.pinv(w, rcond=float(np.finfo(np.float32).eps)) @ b
    known = moments(features)
    away = known.mean - origin
    values, vectors = np.linalg.eigh(known.covariance + np.outer(away, away))
    return origin, values[::-1], vectors[:, ::-1]


def residual_norm(features: Floats, origin: Array, basis: Array) -> Array:
    r"""Compute the length of each feature, seen from the origin, along the residual directions.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features to measure.
    origin : ndarray of shape (n_features,)
        The origin that :func:`residual_space` returns.
    basis : ndarray of shape (n_features, n_residual)
        The residual directions that :func:`residual_space` returns.

    Returns
    -------
    ndarray of shape (n_samples,)
        :math:`\lVert R^T (h - u) \rVert` of each feature.

    Examples
    --------
    >>> residual_norm(np.array([[3.0, 4.0]]), np.zeros(2), np.array([[0.0], [1.0]]))
    array([4.])
    """
    return np.asarray(np.linalg.norm((np.asarray(features, dtype=np.float64) - origin) @ basis, axis=1))


@register_score(
    "vim", paper="Wang et al., CVPR 2022, arXiv:2203.10807", cost="D(D-d) + C", grid={"dim": (256, 1000)}, project=()
)
@dataclass(frozen=True, eq=False)
class Vim:
    r"""Score by the energy of the logits, reduced by a virtual logit made of the residual of the feature.

    .. math:: s = \log \sum_k e^{z_k} - \alpha \lVert R^T (h - u) \rVert, \quad
              \alpha = \frac{\sum_i \max_k z_{ik}}{\sum_i \lVert R^T (h_i - u) \rVert}

    over the training rows i, with :math:`u = -W^+ b` the point where the bias is cancelled and R all but the ``dim``
    leading eigenvectors of the second moment of the features about u.

    Parameters
    ----------
    dim : int, optional
        Number of leading directions to leave out. None is the authors' rule: 1000 from a width of 2048 on, 512 from 768
        on, half the width below.

    Attributes
    ----------
    origin : ndarray of shape (n_features,)
        The point u; learnt by ``fit``.
    basis : ndarray of shape (n_features, n_residual)
        Residual directions R in columns; learnt by ``fit``.
    alpha : ndarray of shape ()
        Scale of the virtual logit; learnt by ``fit``.

    Notes
    -----
    Papers disagree on ``dim``, and some centre the features on their mean instead of u.

    References
    ----------
    Wang et al., CVPR 2022, arXiv:2203.10807.

    Examples
    --------
    >>> h, head = np.array([[2.0, 1.0], [2.0, -1.0]]), Head(np.eye(2))
    >>> Vim().fit(h, h, head).score(h, h).round(6)
    array([0.313262, 0.048587])
    """

    dim: int | None = None
    origin: Array = state("D")
    basis: Array = state("D R")  # (D, D - dim)
    alpha: Array = state("")

    def fit(self, features: Floats, logits: Floats, head: Head) -> Self:
        """Find the residual directions, then the scale of the virtual logit in a second pass.

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
        Vim
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``dim`` leaves no direction, the training features have no residual, or their mean maximum logit is not
            positive.
        """
        origin, basis = residual_space(features, head.weight, head.bias, self.dim)
        length = size = top = 0.0
        for h, z in blocks(features, logits):
            length += residual_norm(h, origin, basis).sum()
            size += np.linalg.norm(h - origin, axis=1).sum()
            top += z.max(axis=1).sum()
        if top <= 0:
            raise InvalidInput(
                f"vim scales by the mean maximum logit of train, which must be positive, got {top / len(features):g}; "
                "use residual or energy for such logits"
            )
        if length <= 1e-10 * size:
            raise InvalidInput(
                f"the training features have no residual outside {features.shape[1] - basis.shape[1]} directions, so "
                "vim has no scale; pass a smaller dim, or use energy"
            )
        return replace(self, origin=origin, basis=basis, alpha=np.array(top / length))

    def score(self, features: Floats, logits: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        return logsumexp(logits) - self.alpha * residual_norm(features, self.origin, self.basis)


@register_score(
    "residual",
    paper="Wang et al., CVPR 2022, arXiv:2203.10807",
    cost="D(D-d)",
    grid={"dim": (256, 512, 1000)},
    project=(),
)
@dataclass(frozen=True, eq=False)
class Residual:
    r"""Score by the negative residual of the feature, the part of ViM that does not use the logits.

    .. math:: s = -\lVert R^T (h - u) \rVert

    with u and R as in ``vim``. The best value is zero.

    Parameters
    ----------
    dim : int, optional
        Number of leading directions to leave out; None is the rule of ``vim``.

    Attributes
    ----------
    origin : ndarray of shape (n_features,)
        The point u; learnt by ``fit``.
    basis : ndarray of shape (n_features, n_residual)
        Residual directions R in columns; learnt by ``fit``.

    Notes
    -----
    The directions are fitted on the training set; OpenOOD fits them on validation data.

    References
    ----------
    Wang et al., CVPR 2022, arXiv:2203.10807.

    Examples
    --------
    >>> h = np.array([[2.0, 1.0], [2.0, -1.0]])
    >>> Residual().fit(h, Head(np.eye(2))).score(np.array([[5.0, 3.0]]))
    array([-3.])
    """

    dim: int | None = None
    origin: Array = state("D")
    basis: Array = state("D R")  # (D, D - dim)

    def fit(self, features: Floats, head: Head) -> Self:
        """Find the residual directions.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        Residual
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If the features have width 1, or ``dim`` is below 1 or leaves no direction.
        """
        origin, basis = residual_space(features, head.weight, head.bias, self.dim)
        return replace(self, origin=origin, basis=basis)

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
        return -residual_norm(features, self.origin, self.basis)


# Reconstruction errors


def _with_norms(features: Floats, layers: Mapping[str, Floats] | None) -> tuple[Floats, bool]:
    """Return the features whose norms are meaningful, and whether they are the raw ones of a cosine head."""
    if layers is None or layers.get(RAW) is None:
        return features, False
    return layers[RAW], True


def _as_fitted(features: Floats, layers: Mapping[str, Floats] | None, raw: Array, name: str) -> Array:
    """Return the kind of features that was fitted, raw or normalised, in float64."""
    if not raw:
        return np.asarray(features, dtype=np.float64)
    chosen, is_raw = _with_norms(features, layers)
    if not is_raw:
        raise InvalidInput(f"{name} was fitted on layers[{RAW!r}], and these outputs have none; extract it here too")
    return np.asarray(chosen, dtype=np.float64)


def _require_labels(labels: Labels | None, name: str, kind: str) -> Labels:
    """Return the labels, or raise that a kind by class needs them."""
    if labels is None:
        raise InvalidInput(f"{name}(kind={kind!r}) needs labels, and the train outputs have none")
    return labels


@register_score(
    "pca_error",
    paper="Guan et al., ICCV 2023",
    cost="Dk (times C for class)",
    grid={"kind": KINDS, "variance": (0.8, 0.9, 0.95, 0.99)},
    project=(),
)
@dataclass(frozen=True, eq=False)
class PcaError(StepHooks):
    r"""Score by the negative share of a feature that principal components do not reconstruct.

    .. math:: s = -r, \quad r = \frac{\lVert (I - P P^T)(h - \mu) \rVert}{\lVert h \rVert}

    with P leading eigenvectors of :math:`\Sigma`; at least one direction is left out.

    Parameters
    ----------
    kind : {"global", "class", "class_pred"}, default="global"
        ``"global"`` fits one subspace to all training rows. ``"class"`` fits a mean and eigenvectors to each class and
        takes the smallest error; ``"class_pred"`` takes the error of the predicted class.
    variance : float, default=0.9
        Keep the fewest eigenvectors that explain this share of the variance, in (0, 1].
    components : int, optional
        Keep this many leading eigenvectors instead; fewer than the features.
    fused : bool, default=False
        Score by :math:`(1 - r) \log \sum_k e^{z_k}`, which is meant for energies above zero; the authors clip the
        features as ``react`` does before it.

    Attributes
    ----------
    means : ndarray of shape (n_classes, n_features) or (1, n_features)
        Mean of each subspace, NaN for a class without training rows; learnt by ``fit``.
    bases : ndarray of shape (n_directions, n_features)
        Principal directions of all subspaces, one after the other; learnt by ``fit``.
    offsets : ndarray of shape (n_subspaces + 1,)
        First row of each subspace in ``bases``, and the end; learnt by ``fit``.
    raw : ndarray of shape (), bool
        Whether ``layers["penultimate/raw"]`` was fitted; set by ``fit``.

    Notes
    -----
    Some papers print the norm of the reconstruction as the denominator; here it is always :math:`\lVert h \rVert` (at
    least 1e-12, so that a feature of zeros ranks last). Classes without training rows are skipped. Raw features of a
    cosine head are read from ``layers["penultimate/raw"]`` where present.

    References
    ----------
    Guan et al., ICCV 2023.

    Examples
    --------
    >>> h = np.array([[3.0, 1.0], [1.0, 1.0]])
    >>> PcaError().fit(h, h).score(np.array([[3.0, 4.0]]), np.zeros((1, 2)), np.array([0]))
    array([-0.6])
    """

    kind: Kind = "global"
    variance: float = 0.9
    components: int | None = None
    fused: bool = False
    means: Array = state("C D", nan=True)  # or (1, D) with one subspace
    bases: Array = state("K D")
    offsets: Labels = state("C+1", kind="integer")
    raw: Array = state("", kind="bool")  # whether raw features were fitted

    def fit(
        self,
        features: Floats,
        logits: Floats,
        labels: Labels | None = None,
        layers: Mapping[str, Floats] | None = None,
    ) -> Self:
        """Compute the principal components of all training rows or of each class.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.
        labels : ndarray of shape (n_samples,), optional
            Training labels; rows labelled -1 are ignored. Required unless ``kind="global"``.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        PcaError
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or labels are missing or all -1 with a ``kind`` by class.
        """
        _checks.choice(self.kind, "kind", KINDS)
        share = _checks.number(self.variance, "variance", 0.0, 1.0, open_low=True)
        chosen, raw = _with_norms(features, layers)
        count = None if self.components is None else _checks.whole(self.components, "components", 1)
        if count is not None and count >= chosen.shape[1]:
            raise InvalidInput(
                f"components must be at most {chosen.shape[1] - 1} for features of width {chosen.shape[1]}, got {count}"
            )
        if self.kind == "global":
            mean, basis = global_space(chosen, share, count)
            spaces = Spaces(mean[None], basis, np.array([0, len(basis)]))
        else:
            truth = _require_labels(labels, "pca_error", self.kind)
            spaces = class_spaces(chosen, truth, int(np.shape(logits)[1]), share, count)
        return replace(self, **spaces.leaving_one()._asdict(), raw=np.array(raw))

    def check_state(self) -> None:
        """Check that there is one subspace for each class.

        Raises
        ------
        InvalidInput
            If the means, or the offsets into the bases, are inconsistent.
        """
        check_means(self.means)
        check_offsets(self.offsets, len(self.bases), "bases")

    def score(
        self, features: Floats, logits: Floats, predictions: Labels, layers: Mapping[str, Floats] | None = None
    ) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples; used with ``fused=True``.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample; used with ``kind="class_pred"``.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If raw features were fitted and are missing here, or, with ``kind="class_pred"``, a predicted class had no
            training row.
        """
        h = _as_fitted(features, layers, self.raw, "pca_error")
        spaces = Spaces(self.means, self.bases, self.offsets)
        chosen = np.asarray(predictions) if self.kind == "class_pred" else None
        error = over_classes(spaces.error, h, spaces.known, chosen, 'pca_error(kind="class_pred")')
        share = error / np.maximum(np.linalg.norm(h, axis=1), TINY)
        if self.fused:
            return (1.0 - share) * logsumexp(logits)
        return -share


@register_score(
    "kpca_error",
    paper="Fang et al., NeurIPS 2024, arXiv:2402.02949; 2025, arXiv:2505.15284",
    cost="MD + Mk",
    grid={"map": ("cosine", "fourier"), "variance": (0.5, 0.7, 0.8, 0.85, 0.9, 0.99)},
    project=(),
)
@dataclass(frozen=True, eq=False)
class KernelPcaError(StepHooks):
    r"""Score by the negative error of reconstructing a unit feature by principal components after a map.

    .. math:: s = -\lVert (I - U U^T)(\phi(\hat h) - \mu_\phi) \rVert, \quad \hat h = h / \lVert h \rVert

    with U the fewest principal directions of :math:`\phi` over the training set that explain a share ``variance``.
    Maps:

    - ``cosine``: :math:`\phi(\hat h) = \hat h` (CoP).
    - ``fourier``: ``width`` random Fourier features :math:`\sqrt{2/M} \cos(\Omega \hat h + \beta)` of the Gaussian
      kernel :math:`k(a, b) = e^{-\gamma \lVert a - b \rVert^2}` (CoRP), drawn with ``seed``.
    - ``nystroem``: :math:`K_{LL}^{-1/2} k(L, \hat h)` with ``landmarks`` L, the training rows of the lowest :math:`\log
      \sum_k e^{z_k}`; eigenvalues of :math:`K_{LL}` are at least 1e-8 of the largest.
    - ``exact``: centred kernel PCA itself, for at most 5000 training rows.

    Parameters
    ----------
    map : {"cosine", "fourier", "nystroem", "exact"}, default="cosine"
        The map :math:`\phi`, see above.
    kind : {"global", "class", "class_pred"}, default="global"
        One subspace, the smallest error over the subspaces of the classes, or the error of the predicted class, as in
        ``pca_error``.
    variance : float, optional
        Share of the variance to explain, in (0, 1]; by default 0.85 with ``cosine`` and 0.8 with the other maps.
    gamma : float, default=2.0
        Width parameter of the Gaussian kernel, above 0; larger is narrower.
    width : int, default=2048
        Number of random Fourier features, at least 2; used with ``fourier``.
    landmarks : int, default=2048
        Number of landmarks, at least 2; used with ``nystroem``.
    normalised : bool, default=False
        Divide the squared error by :math:`\lVert \phi \rVert` (of the centred :math:`\phi` with ``exact``), as some
        papers print it.
    seed : int, default=0
        Seed of the random Fourier features.

    Attributes
    ----------
    points : ndarray of shape (n_points, n_features) or None
        Frequencies, landmarks, or with ``exact`` the unit training rows by class; learnt by ``fit``.
    mixing : ndarray of shape (n_points,) or (n_points, n_points), or None
        Phases, :math:`K_{LL}^{-1/2}`, or with ``exact`` the mean kernel of each row with its class; learnt by ``fit``.
    means : ndarray of shape (n_subspaces, n_mapped) or None
        Mean of :math:`\phi` in each subspace, NaN for a class without training rows; learnt by ``fit`` unless
        ``exact``.
    bases : ndarray of shape (n_directions, n_mapped)
        Principal directions of all subspaces, one after the other, or with ``exact`` the weights of the training rows
        in the directions of their class; learnt by ``fit``.
    offsets : ndarray of shape (n_subspaces + 1,)
        First row of each subspace in ``bases``, and the end; learnt by ``fit``.

    Notes
    -----
    The defaults are the authors' settings for CIFAR-10; for ImageNet they keep 99% with ``cosine``, or 50% with gamma 3
    and width 4096. A feature of zeros stays zero.

    References
    ----------
    Fang et al., NeurIPS 2024, arXiv:2402.02949; 2025, arXiv:2505.15284.

    Examples
    --------
    >>> h = np.array([[1.0, 0.0], [0.0, 3.0]])
    >>> KernelPcaError().fit(h, np.zeros((2, 2))).score(np.array([[5.0, 5.0]]), np.array([0])).round(6)
    array([-0.292893])
    """

    map: Literal["cosine", "fourier", "nystroem", "exact"] = "cosine"
    kind: Kind = "global"
    variance: float | None = None
    gamma: float = 2.0
    width: int = 2048
    landmarks: int = 2048
    normalised: bool = False
    seed: int = 0
    # points: frequencies (M, D), landmarks (L, D), or exact: the training rows (N, D) by class
    points: Array = state("M D", optional=True)
    # mixing: phases (M,), K_LL^-1/2 (L, L), or exact: mean kernel of each row with its class (N,)
    mixing: Array = state("M|M M", optional=True)
    means: Array = state("C W", optional=True, nan=True)  # or (1, M) with one subspace; not for exact
    bases: Array = state("K W")  # directions, or exact: (N, k) weights of the rows in those of their class
    offsets: Labels = state("C+1", kind="integer")  # first row of each class in bases

    def fit(self, features: Floats, logits: Floats, labels: Labels | None = None) -> Self:
        """Fit the map, then the principal components of the mapped features.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; ``nystroem`` chooses its landmarks by them, and ``kind`` by class reads the number of
            classes.
        labels : ndarray of shape (n_samples,), optional
            Training labels; rows labelled -1 are ignored. Required unless ``kind="global"``.

        Returns
        -------
        KernelPcaError
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, ``map="exact"`` has more than 5000 training rows, or labels are missing or all
            -1 with a ``kind`` by class.
        """
        _checks.choice(self.map, "map", ("cosine", "fourier", "nystroem", "exact"))
        _checks.choice(self.kind, "kind", KINDS)
        share = self._explained_share()
        _checks.number(self.gamma, "gamma", 0.0, np.inf, open_low=True, open_high=True)
        if self.kind == "global":
            truth, classes = np.zeros(len(features), np.int64), 1
        else:
            truth, classes = _require_labels(labels, "kpca_error", self.kind), int(np.shape(logits)[1])
        if self.map == "exact":
            return self._fit_exact(features, truth, classes, share)
        mapping = self
        if self.map == "fourier":
            mapping = self._draw_frequencies(int(features.shape[1]))
        elif self.map == "nystroem":
            mapping = self._choose_landmarks(features, logits)
        spaces = mapped_spaces(features, truth, classes, mapping._phi, share)
        return replace(mapping, **spaces.leaving_one()._asdict())

    def _explained_share(self) -> float:
        """Return the share of the variance to explain: ``variance``, or its default for the map."""
        if self.variance is not None:
            return _checks.number(self.variance, "variance", 0.0, 1.0, open_low=True)
        if self.map == "cosine":
            return 0.85
        return 0.8

    def check_state(self) -> None:
        """Check that the map has the arrays it needs, and that there is one subspace for each class.

        Raises
        ------
        InvalidInput
            If an array is missing, or its shape does not fit the others.
        """
        check_offsets(self.offsets, len(self.bases), "bases")
        if self.map != "cosine":
            self._check_points()
        if self.map == "exact":
            if len(self.points) != len(self.bases):
                raise InvalidInput("points and bases must have equally many rows")
            return
        if self.means is None:
            raise InvalidInput(f'means is missing, which map="{self.map}" needs')
        check_means(self.means)
        if self.map != "cosine" and len(self.points) != self.means.shape[1]:
            raise InvalidInput(f"points has {len(self.points)} rows, but the means {self.means.shape[1]} columns")

    def _check_points(self) -> None:
        """Check the arrays of a map that has points."""
        if self.points is None:
            raise InvalidInput(f'points is missing, which map="{self.map}" needs')
        dimensions = 2 if self.map == "nystroem" else 1
        if self.mixing is None or self.mixing.ndim != dimensions:
            raise InvalidInput(f'mixing does not fit map="{self.map}"')

    def score(self, features: Floats, predictions: Labels) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample; used with ``kind="class_pred"``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If ``kind="class_pred"`` and a predicted class had no training row.
        """
        h = np.asarray(features, dtype=np.float64)
        chosen = np.asarray(predictions) if self.kind == "class_pred" else None
        name = 'kpca_error(kind="class_pred")'
        if self.map == "exact":
            return -over_classes(self._exact_error, unit(h), np.diff(self.offsets) > 0, chosen, name)
        phi = self._phi(h)
        spaces = Spaces(self.means, self.bases, self.offsets)
        error = over_classes(spaces.error, phi, spaces.known, chosen, name)
        if self.normalised:
            return -(error**2) / np.maximum(np.linalg.norm(phi, axis=1), TINY)
        return -error

    def _phi(self, rows: Array) -> Array:
        """Apply the explicit map to features."""
        h = unit(rows)
        if self.map == "cosine":
            return h
        if self.map == "fourier":
            return np.sqrt(2.0 / len(self.points)) * np.cos(h @ self.points.T + self.mixing)
        return self._kernel(h, self.points) @ self.mixing

    def _kernel(self, a: Array, b: Array) -> Array:
        return np.exp(-self.gamma * squared_distances(a, b))

    def _draw_frequencies(self, features: int) -> Self:
        """Draw the frequencies and phases of the random Fourier features."""
        rng = np.random.default_rng(_checks.whole(self.seed, "seed", 0))
        width = _checks.whole(self.width, "width", 2)
        points = rng.normal(scale=np.sqrt(2.0 * self.gamma), size=(width, features))
        return replace(self, points=points, mixing=rng.uniform(0.0, 2.0 * np.pi, size=width))

    def _choose_landmarks(self, features: Floats, logits: Floats) -> Self:
        """Choose the least certain training rows as landmarks, and compute the inverse root of their kernel matrix."""
        count = _checks.whole(self.landmarks, "landmarks", 2)
        energy = np.concatenate([logsumexp(z) for (z,) in blocks(logits)])
        rows = np.sort(np.argsort(energy, kind="stable")[:count])
        points = unit(np.asarray(features[rows], dtype=np.float64))
        values, vectors = np.linalg.eigh(self._kernel(points, points))
        scaled = vectors / np.sqrt(np.maximum(values, 1e-8 * values[-1]))
        return replace(self, points=points, mixing=scaled @ vectors.T)

    def _fit_exact(self, features: Floats, labels: Labels, classes: int, share: float) -> Self:
        """Fit centred kernel PCA to each class; scoring needs only the kernel against the rows of that class."""
        if len(features) > EXACT_ROWS:
            raise InvalidInput(
                f'map="exact" takes at most {EXACT_ROWS} training rows, got {len(features)}; '
                'use map="nystroem" or map="fourier", or fit on fewer rows'
            )
        points_of, levels, weights_of = [], [], []
        counts = np.zeros(classes, np.int64)
        for c, rows in groups(labels, classes):
            points = unit(np.asarray(features[rows], dtype=np.float64))
            kernel = self._kernel(points, points)
            level = kernel.mean(axis=1)
            values, vectors = np.linalg.eigh(kernel - level[:, None] - level + level.mean())
            kept = dimension(values[::-1], TINY * len(rows), share)
            # a unit direction of the feature space is the sum of centred rows by these weights
            weights_of.append(vectors[:, ::-1][:, :kept] / np.sqrt(values[::-1][:kept]))
            points_of.append(points)
            levels.append(level)
            counts[c] = len(rows)
        most = max(weights.shape[1] for weights in weights_of)
        bases = np.zeros((counts.sum(), most))
        first = 0
        for weights in weights_of:
            bases[first : first + len(weights), : weights.shape[1]] = weights
            first += len(weights)
        return replace(
            self,
            points=np.concatenate(points_of),
            mixing=np.concatenate(levels),
            bases=bases,
            offsets=offsets_of(counts),
        )

    def _exact_error(self, rows: Array, c: int) -> Array:
        """Compute the norm of the unexplained part, or with ``normalised`` its square over the norm of the whole."""
        mine = slice(self.offsets[c], self.offsets[c + 1])
        level = self.mixing[mine]
        kernel = self._kernel(rows, self.points[mine])
        near = kernel.mean(axis=1)
        square = np.maximum(1.0 - 2.0 * near + level.mean(), 0.0)
        coordinates = (kernel - near[:, None] - level + level.mean()) @ self.bases[mine]
        left = np.maximum(square - (coordinates**2).sum(axis=1), 0.0)
        if self.normalised:
            return left / np.maximum(np.sqrt(square), TINY)
        return np.sqrt(left)


@register_score("neco", paper="Ammar et al., ICLR 2024, arXiv:2310.06823", cost="Dd + C", project=())
@dataclass(frozen=True, eq=False)
class Neco:
    r"""Score by the share of a feature in the leading principal components, times the maximum logit.

    .. math:: s = \frac{\lVert P^T \tilde h \rVert}{\lVert \tilde h \rVert} \max_k z_k, \quad
              \tilde h_j = \frac{h_j - \mu_j}{\sigma_j}

    with P the ``dim`` leading principal directions of the standardised training features.

    Parameters
    ----------
    dim : int, optional
        Number of directions, fewer than the units that vary; by default one fewer than the classes.
    standardise : bool, default=True
        Standardise the features; False takes :math:`\tilde h = h` and the principal directions of the plain features,
        as some papers print it.
    scale_by_logit : bool, default=True
        Multiply by the maximum logit; False returns the share alone, as the authors do for ResNets.
    denominator : {"standardised", "raw"}, default="standardised"
        Divide by :math:`\lVert \tilde h \rVert`, or by :math:`\lVert h \rVert` as the authors do for DeiT and Swin.

    Attributes
    ----------
    mean : ndarray of shape (n_features,)
        Mean training feature, or zeros with ``standardise=False``; learnt by ``fit``.
    scale : ndarray of shape (n_features,)
        One over the standard deviation, 0 for units that do not vary, or ones with ``standardise=False``; learnt by
        ``fit``.
    basis : ndarray of shape (dim, n_features)
        Principal directions; learnt by ``fit``.
    raw : ndarray of shape (), bool
        Whether ``layers["penultimate/raw"]`` was fitted; set by ``fit``.

    Notes
    -----
    Units that do not vary in the training set are left out. A maximum logit that is not positive is the score itself,
    so that a larger share never ranks lower. The mean feature itself has share 0. Raw features of a cosine head are
    read from ``layers["penultimate/raw"]`` where present.

    References
    ----------
    Ammar et al., ICLR 2024, arXiv:2310.06823.

    Examples
    --------
    >>> h = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> fitted = Neco(standardise=False).fit(h, np.zeros((4, 2)))
    >>> fitted.score(np.array([[3.0, 4.0]]), np.array([[2.0, 1.0]])).round(6)
    array([1.2])
    """

    dim: int | None = None
    standardise: bool = True
    scale_by_logit: bool = True
    denominator: Literal["standardised", "raw"] = "standardised"
    mean: Array = state("D")
    scale: Array = state("D")  # 1 / standard deviation, 0 for units that do not vary
    basis: Array = state("R D")  # (dim, D)
    raw: Array = state("", kind="bool")  # whether raw features were fitted

    def fit(self, features: Floats, logits: Floats, layers: Mapping[str, Floats] | None = None) -> Self:
        """Compute the means, standard deviations and principal directions of the features.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        Neco
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``denominator`` is unknown, fewer than two units vary, or ``dim`` is out of range.
        """
        _checks.choice(self.denominator, "denominator", ("standardised", "raw"))
        chosen, raw = _with_norms(features, layers)
        known = moments(chosen)
        covariance = known.covariance
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        live = deviation > 1e-10 * np.abs(known.mean)
        units = int(live.sum())
        if units < 2:
            raise InvalidInput(f"neco needs at least 2 features that vary over train, got {units}")
        if self.dim is None:
            dim = max(1, min(np.shape(logits)[1] - 1, units - 1))
        else:
            dim = _checks.whole(self.dim, "dim", 1)
        if dim >= units:
            raise InvalidInput(f"dim must be at most {units - 1} for {units} features that vary over train, got {dim}")
        if not self.standardise:
            basis = global_space(chosen, 1.0, dim)[1]
            width = len(deviation)
            return replace(self, mean=np.zeros(width), scale=np.ones(width), basis=basis, raw=np.array(raw))
        scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=live)
        values, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
        basis = np.ascontiguousarray(vectors[:, ::-1][:, : dimension(values[::-1], 0.0, 1.0, dim)].T)
        return replace(self, mean=known.mean, scale=scale, basis=basis, raw=np.array(raw))

    def score(self, features: Floats, logits: Floats, layers: Mapping[str, Floats] | None = None) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples; used with ``scale_by_logit=True``.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; ``"penultimate/raw"``, the features before a cosine head normalised them, is read
            if present.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If raw features were fitted and are missing here.
        """
        h = _as_fitted(features, layers, self.raw, "neco")
        standard = (h - self.mean) * self.scale
        divided_by = h if self.denominator == "raw" else standard
        whole = np.linalg.norm(divided_by, axis=1)
        share = np.linalg.norm(standard @ self.basis.T, axis=1) / np.maximum(whole, TINY)
        if not self.scale_by_logit:
            return np.asarray(share)
        top = np.asarray(logits, dtype=np.float64).max(axis=1)
        return np.where(top > 0, share * top, top)
