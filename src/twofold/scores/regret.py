r"""Score from the regret of a last layer relative to one that was also trained on the test input and its label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from twofold._math import log_softmax, logsumexp, unit
from twofold.outputs import Head
from twofold.scores._fitting.moments import blocks
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, state


def regret(log_p: Floats, t: Array) -> Array:
    r"""Compute the regret of probabilities for inputs that could change the last layer to a degree t.

    .. math:: \Gamma = \frac{1}{\log C} \log \sum_k \frac{p_k}{p_k + p_k^t (1 - p_k)}

    from 0 at t = 0, where the input changes nothing, upwards.

    Parameters
    ----------
    log_p : ndarray of shape (n_samples, n_classes)
        Logarithms of the probabilities p.
    t : ndarray of shape (n_samples,)
        How far each input could change the last layer, from 0 (not at all) to 1 (training says nothing about it).

    Returns
    -------
    ndarray of shape (n_samples,)
        Regrets; lower is safer.

    Notes
    -----
    The sum is computed as its excess over 1, whose terms are all positive, so that confident predictions keep their
    digits. A single class has regret 0.

    Examples
    --------
    >>> p = np.array([[0.6590011389, 0.2424329707, 0.0985658904]])
    >>> regret(np.log(p), np.array([0.3])).round(8)
    array([0.16209465])
    """
    logs = np.asarray(log_p, dtype=np.float64)
    rows, top = np.arange(len(logs)), logs.argmax(axis=1)
    others = logs.copy()
    others[rows, top] = -np.inf
    rest = np.log1p(-np.minimum(np.exp(others), 0.5))  # log(1 - p); only the top class can exceed one half
    rest[rows, top] = np.minimum(logsumexp(others), 0.0)
    power = np.asarray(t, dtype=np.float64)[:, None] * logs
    share = -np.logaddexp(0.0, power - logs + rest)  # log of each term of the sum
    excess = np.exp(share + rest) * -np.expm1(power)
    return np.log1p(excess.sum(axis=1)) / np.log(max(logs.shape[1], 2))


@register_score("pnml", paper="Bibas, Feder, Hassner, NeurIPS 2021, arXiv:2110.09246", cost="D^2 + CD")
@dataclass(frozen=True, eq=False)
class Pnml:
    r"""Score by the negative regret of predictive normalised maximum likelihood for the last layer.

    .. math:: s = -\frac{1}{\log C} \log \sum_k \frac{p_k}{p_k + p_k^t (1 - p_k)}, \quad
              t = \max\left( a^T (I - A^+ A) a, \frac{a^T A^+ a}{1 + a^T A^+ a} \right)

    with :math:`a = (1, h / \lVert h \rVert)` and :math:`A = \sum_i a_i a_i^T` over the training set.

    Parameters
    ----------
    unit : bool, default=True
        Take p as the softmax of the head on the unit feature, as in the authors' code; False takes that of the logits.

    Attributes
    ----------
    whiten : ndarray of shape (n_features + 1, n_seen)
        Matrix whose product with its transpose is :math:`A^+`; learnt by ``fit``.
    null : ndarray of shape (n_features + 1, n_unseen)
        Directions without training data; learnt by ``fit``.

    Notes
    -----
    t is cut at 1, where nothing is known of the input. Eigenvalues of A below 1e-10 of the largest count as zero. A
    single class has score 0.

    References
    ----------
    Bibas, Feder, Hassner, NeurIPS 2021, arXiv:2110.09246.

    Examples
    --------
    >>> h, head = np.array([[1.0, 0.0], [0.0, 1.0]]), Head(np.eye(2))
    >>> Pnml().fit(h).score(h, h, head).round(6)
    array([-0.233534, -0.233534])
    """

    unit: bool = True
    whiten: Array = state("D R")  # W W^T is the pseudo-inverse of A
    null: Array = state("D S")  # directions without training data

    def fit(self, features: Floats) -> Self:
        """Compute the second moment of the unit features and its eigenvectors in one pass.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.

        Returns
        -------
        Pnml
            A fitted copy; this object stays unchanged.
        """
        width = features.shape[1] + 1
        total = np.zeros((width, width))
        for (h,) in blocks(features):
            a = _augmented(h)
            total += a.T @ a
        values, vectors = np.linalg.eigh(total)
        seen = values > 1e-10 * values[-1]
        return replace(self, whiten=vectors[:, seen] / np.sqrt(values[seen]), null=vectors[:, ~seen])

    def score(self, features: Floats, logits: Floats, head: Head) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples; used with ``unit=False``.
        head : Head
            Last linear layer of the classifier; used with ``unit=True``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        a = _augmented(np.asarray(features, dtype=np.float64))
        known = ((a @ self.whiten) ** 2).sum(axis=1)
        t = np.maximum(((a @ self.null) ** 2).sum(axis=1), known / (1.0 + known))
        z = head.logits(a[:, 1:]) if self.unit else logits
        return -regret(log_softmax(z), np.minimum(t, 1.0))


def _augmented(rows: Array) -> Array:
    return np.hstack([np.ones((len(rows), 1)), unit(rows)])
