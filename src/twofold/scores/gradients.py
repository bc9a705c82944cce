r"""Scores from gradients of a loss by the weights of the head or by class prototypes, all in closed form.

With logits :math:`z = W h + b`, the gradient of any loss by W is the product :math:`\delta h^T` with
:math:`\delta = \partial L / \partial z`, so its norms factorise and no automatic differentiation is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from twofold import _checks
from twofold._math import TINY, log_softmax, softmax
from twofold.errors import InvalidInput
from twofold.scores._fitting.moments import blocks
from twofold.scores._fitting.moments import moments as moments_of
from twofold.scores._fitting.spaces import dimension
from twofold.scores.nearest import nearest_rows
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, Mask, StepHooks, array_setting, state


@register_score(
    "graduncertainty",
    paper="Lee & AlRegib, ICIP 2020, arXiv:2008.08030",
    aliases=("gradient_uncertainty",),
    cost="C + D",
)
def graduncertainty(features: Floats, logits: Floats) -> Array:
    r"""Score by the squared norm of the gradient of the head for a label that names every class.

    .. math:: s = \lVert C p - 1 \rVert_2^2 \, (\lVert h \rVert_2^2 + 1)

    the squared norm of the gradient of :math:`-\sum_k \log p_k` by weights and bias; at least 0.

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

    Notes
    -----
    The authors train a classifier on the norms of all layers with OOD data; this scalar is how pytorch-ood reads it.
    That library clamps the loss of confident rows, which gives them wrong, small values; the gradient here is exact.

    References
    ----------
    Lee & AlRegib, ICIP 2020, arXiv:2008.08030.

    Examples
    --------
    >>> graduncertainty(np.array([[1.0, 2.0]]), np.log(np.array([[0.75, 0.25]]))).round(6)
    array([3.])
    """
    h = np.asarray(features, dtype=np.float64)
    p = softmax(logits)
    delta = p.shape[1] * p - 1.0
    return (delta**2).sum(axis=1) * ((h**2).sum(axis=1) + 1.0)


@register_score("gradorth", paper="Behpour et al., NeurIPS 2023, arXiv:2308.00310", cost="Dk + C")
@dataclass(frozen=True, eq=False)
class GradOrth:
    r"""Score by the norm of the gradient of the head within the main directions of the training features.

    .. math:: s = \lVert p - 1/C \rVert_2 \, \lVert V^T h \rVert_2

    with V the fewest right singular vectors of the training features, not centred, that hold a share ``variance`` of
    the squared singular values.

    Parameters
    ----------
    variance : float, default=0.97
        Share of the squared singular values to keep, in (0, 1].

    Attributes
    ----------
    basis : ndarray of shape (n_features, n_directions)
        The directions V; learnt by ``fit``.

    Notes
    -----
    The authors published no code; the share and the uniform target are how others read them.

    References
    ----------
    Behpour et al., NeurIPS 2023, arXiv:2308.00310.

    Examples
    --------
    >>> fitted = GradOrth().fit(np.array([[3.0, 0.0], [4.0, 0.1]]))
    >>> fitted.score(np.array([[2.0, 5.0]]), np.array([[9.0, -9.0]])).round(2)
    array([1.47])
    """

    variance: float = 0.97
    basis: Array = state("D R")

    def fit(self, features: Floats) -> Self:
        """Find the main directions of the features about the origin.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.

        Returns
        -------
        GradOrth
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``variance`` is outside (0, 1], or all features are 0.
        """
        share = _checks.number(self.variance, "variance", 0.0, 1.0, open_low=True)
        found = moments_of(features)
        second = found.covariance + np.outer(found.mean, found.mean)
        values, vectors = np.linalg.eigh(second)
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        count = dimension(values, 0.0, share)
        if count == 0:
            raise InvalidInput("gradorth: the training features are all 0; use other features")
        return replace(self, basis=vectors[:, :count])

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
        p = softmax(logits)
        inside = np.asarray(features, dtype=np.float64) @ self.basis
        return np.linalg.norm(p - 1.0 / p.shape[1], axis=1) * np.linalg.norm(inside, axis=1)


@register_score("grood", paper="ElAraby et al., 2023, arXiv:2312.14427", cost="CD + ND")
@dataclass(frozen=True, eq=False)
class Grood(StepHooks):
    r"""Score by how close the gradient by an OOD prototype is to that of a training row.

    .. math:: s = -\min_i \lVert g - g_i \rVert^2, \qquad g = q_o \frac{h - o}{\lVert h - o \rVert}, \qquad
              q = \mathrm{softmax}(-\lVert h - P_1 \rVert, \dots, -\lVert h - P_C \rVert, -\lVert h - o \rVert)

    with :math:`P_c` the class means, o the OOD prototype and :math:`g_i` the gradients of correctly classified training
    rows. g is the gradient of the cross-entropy of q by o, whatever class is predicted.

    Parameters
    ----------
    prototype : {"mean"} or ndarray of shape (n_features,), default="mean"
        The OOD prototype o: the mean of the class means, or a vector, such as the mean feature of noise images. A
        vector from OOD inputs tunes the score on them.

    Attributes
    ----------
    classes : ndarray of shape (n_prototypes, n_features)
        Means of the classes that have training rows; learnt by ``fit``.
    outlier : ndarray of shape (n_features,)
        The OOD prototype; learnt by ``fit``.
    bank : ndarray of shape (n_rows, n_features)
        Gradients of the correctly classified training rows; stored by ``fit``.

    Notes
    -----
    Squared distances are small, about 1e-6; they are computed from differences in float64. OpenOOD averages OOD
    validation features for o, computes one backward pass per row, and declares a number of neighbours that it never
    uses.

    References
    ----------
    ElAraby et al., 2023, arXiv:2312.14427.

    Examples
    --------
    >>> h = np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> fitted = Grood().fit(h, np.array([0, 1]), np.array([0, 1]))
    >>> fitted.score(np.array([[2.0, 0.0], [0.5, 0.5]])).round(4) + 0.0
    array([ 0.   , -0.332])
    """

    prototype: str | Array = array_setting("D", default="mean")
    classes: Array = state("P D")
    outlier: Array = state("D")
    bank: Array = state("M D")

    def fit(self, features: Floats, labels: Labels, predictions: Labels) -> Self:
        """Compute the prototypes, and store the gradients of correctly classified training rows.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 are ignored.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows.

        Returns
        -------
        Grood
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If no training row is classified correctly, or ``prototype`` is neither ``"mean"`` nor a vector of the
            features' size.
        """
        truth = np.asarray(labels)
        correct: Mask = truth == np.asarray(predictions)
        if not correct.any():
            raise InvalidInput("grood needs correctly classified training rows, and there are none")
        found = moments_of(features, labels, int(truth.max()) + 1)
        classes = found.class_means[found.present]
        fitted = replace(self, classes=classes, outlier=self._choose_outlier(classes))
        gradients = [fitted._gradients(h) for (h,) in blocks(features)]
        return replace(fitted, bank=np.concatenate(gradients)[correct])

    def _choose_outlier(self, classes: Array) -> Array:
        """Return the OOD prototype that ``prototype`` names."""
        if isinstance(self.prototype, str):
            _checks.choice(self.prototype, "prototype", ("mean",))
            return np.asarray(classes.mean(axis=0))
        outlier = np.asarray(_checks.floats(self.prototype, "prototype"), dtype=np.float64)
        if len(outlier) != classes.shape[1]:
            raise InvalidInput(f"grood: prototype has {len(outlier)} values, and the features have {classes.shape[1]}")
        return outlier

    def check_state(self) -> None:
        """Check that there are gradients and prototypes.

        Raises
        ------
        InvalidInput
            If the bank or the classes are empty.
        """
        if not len(self.bank) or not len(self.classes):
            raise InvalidInput("bank and classes must have at least one row")

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
        gradients = self._gradients(np.asarray(features, dtype=np.float64))
        nearest = nearest_rows(self.bank, gradients)
        return -((gradients - self.bank[nearest]) ** 2).sum(axis=1)

    def _gradients(self, h: Array) -> Array:
        """Compute the gradient by the OOD prototype for each row."""
        away = h - self.outlier
        distance = np.linalg.norm(away, axis=1)
        to_classes = np.stack([np.linalg.norm(h - mean, axis=1) for mean in self.classes], axis=1)
        log_q = log_softmax(-np.column_stack([to_classes, distance]))
        return (np.exp(log_q[:, -1]) / np.maximum(distance, TINY))[:, None] * away
