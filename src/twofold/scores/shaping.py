r"""Transforms that shape features by what is learnt about their entries: OptFS, and AdaSCALE by a perturbed input.

Notation: h features, W and b the head, z logits, :math:`\hat y` the predicted class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from twofold import _checks
from twofold._math import TINY
from twofold.errors import InvalidInput
from twofold.outputs import Head
from twofold.scores._fitting.moments import blocks, percentile
from twofold.scores.registry import register_transform
from twofold.typing import Array, Changes, Floats, Labels, StepHooks, state

PERTURBED = "penultimate/perturbed"
"""Name of the recorded layer with the features of the perturbed input."""

CLIP = 50.0  # bound of the exponent, as in ``scale``
SCALE = 1000.0  # length of the shaping function of OptFS


@register_transform("optfs", paper="Zhao et al., ICLR 2024, arXiv:2402.00865", cost="D log B + CD")
@dataclass(frozen=True, eq=False)
class OptFS(StepHooks):
    r"""Multiply each feature entry by a factor that depends on its size, chosen to raise the training logits most.

    .. math:: h'_j = \theta_{m(h_j)} h_j, \qquad \theta = 1000 \frac{I}{\lVert I \rVert_2}, \qquad
              I_m = \mathrm{mean}_i \sum_{j : h_{ij} \in \text{bin } m} W_{\hat y_i j} h_{ij}

    with even bins from the 0.1 % to the 99.9 % quantile of all training entries; entries outside become 0.

    Parameters
    ----------
    bins : int, default=100
        Number of bins.

    Attributes
    ----------
    edges : ndarray of shape (bins + 1,)
        Edges of the bins, each closed on the left; learnt by ``fit``.
    factors : ndarray of shape (bins,)
        Factor :math:`\theta` of each bin; learnt by ``fit``.

    Notes
    -----
    The authors score by :math:`w_{\hat y} \cdot h'`; others by ``optfs|energy``, which at this scale is nearly
    the same.

    References
    ----------
    Zhao et al., ICLR 2024, arXiv:2402.00865.

    Examples
    --------
    >>> h = np.array([[0.0, 1.0], [2.0, 3.0]])
    >>> fitted = OptFS(bins=2).fit(h, np.array([1, 1]), Head(np.eye(2)))
    >>> fitted.apply(np.array([[1.0, 2.0]]), Head(np.eye(2)))["features"].round(3)
    array([[1000.,    0.]])
    """

    bins: int = 100
    edges: Array = state("B+1")
    factors: Array = state("B")

    def fit(self, features: Floats, predictions: Labels, head: Head) -> Self:
        """Find the bins, and the contribution of each to the logits of the predicted classes.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        OptFS
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``bins`` is not a whole number of at least 1, or the features do not vary.
        """
        bins = _checks.whole(self.bins, "bins", 1)
        low, high = percentile(features, 0.1), percentile(features, 99.9)
        if not low < high:
            raise InvalidInput("optfs: the training features do not vary; use other features")
        edges: Array = low + (high - low) / bins * np.arange(bins + 1.0)
        weight, chosen = np.asarray(head.weight, dtype=np.float64), np.asarray(predictions)
        total, first = np.zeros(bins), 0
        for (h,) in blocks(features):
            product = weight[chosen[first : first + len(h)]] * h
            places = np.searchsorted(edges, h, side="right")  # 0 below the first bin, bins + 1 above the last
            total += np.bincount(places.ravel(), product.ravel(), minlength=bins + 2)[1:-1]
            first += len(h)
        importance = total / len(features)
        factors = SCALE * importance / max(float(np.linalg.norm(importance)), TINY)
        return replace(self, edges=edges, factors=factors)

    def check_state(self) -> None:
        """Check that the edges ascend.

        Raises
        ------
        InvalidInput
            If they do not.
        """
        if len(self.edges) < 2 or (np.diff(self.edges) <= 0).any():
            raise InvalidInput("edges must ascend, with at least two of them")

    def apply(self, features: Floats, head: Head) -> Changes:
        """Shape the features, and pass them through the head.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features to transform.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        dict
            The shaped ``"features"`` and their ``"logits"``.
        """
        h = np.asarray(features, dtype=np.float64)
        factors = np.concatenate([[0.0], self.factors, [0.0]])
        shaped = factors[np.searchsorted(self.edges, h, side="right")] * h
        return {"features": shaped, "logits": head.logits(shaped)}


@register_transform(
    "adascale",
    paper="Regmi, 2025, arXiv:2503.08023",
    cost="D log D",
    grid={"low": (60.0, 65.0, 70.0, 75.0, 80.0), "high": (80.0, 85.0, 90.0, 95.0, 99.0)},
)
@dataclass(frozen=True, eq=False)
class AdaScale(StepHooks):
    r"""Scale features or logits as ``scale`` and ``lts`` do, less where a small change of the input moves the feature.

    .. math:: Q = \lambda \sum_{j \in \text{top } a} |h_j - h'_j| + \sum_{j \in \text{top } b} \max(h'_j, 0), \qquad
              P = \text{low} + (1 - F(Q)) (\text{high} - \text{low})

    .. math:: r = \frac{\sum_j \max(h_j, 0)}{\sum_{j \in \text{top } k} \max(h_j, 0)}, \qquad
              k = D - \mathrm{round}(D P / 100), \qquad z' = e^r (z - b) + b \; (\text{a}), \quad r^2 z \; (\text{l})

    with :math:`h'` the feature of the perturbed input, the top entries those of the largest :math:`h_j`, and F the
    empirical distribution of Q on the validation set.

    Parameters
    ----------
    kind : {"a", "l"}, default="a"
        ``"a"`` scales features and logits by :math:`e^r`, ``"l"`` the logits by :math:`r^2`.
    low : float, default=60.0
        Percentile of inputs whose feature moves most, in [0, 100).
    high : float, default=85.0
        Percentile of inputs whose feature moves least, from ``low`` to below 100. The authors tune this one.
    shift : float, default=1.0
        Percentage of the entries, the top a, whose change is measured; at least one entry.
    perturbed : float, default=5.0
        Percentage of the entries, the top b, of the perturbed feature that are added; at least one entry.
    weight : float, default=10.0
        Weight :math:`\lambda` of the change.

    Attributes
    ----------
    typical : ndarray of shape (n_samples,)
        Q of the validation rows, ascending; learnt by ``fit``.

    Notes
    -----
    Extraction records :math:`h'` as ``layers["penultimate/perturbed"]`` with ``--adascale``. With ``low`` equal to
    ``high`` and no negative features this is ``scale`` or ``lts``. r is clipped at 50; rows whose kept sum is not
    positive are not rescaled. Among equal entries the first count as the largest.

    The paper calls a ``k1`` and b ``k2``; OpenOOD exchanges the two names.

    References
    ----------
    Regmi, 2025, arXiv:2503.08023.

    Examples
    --------
    >>> h = np.array([[1.0, 2.0, 0.5, 0.0]])
    >>> fitted = AdaScale(low=50, high=50).fit(h, {"penultimate/perturbed": h})
    >>> changed = fitted.apply(h, np.array([[3.0]]), Head(np.ones((1, 4))), {"penultimate/perturbed": h})
    >>> round(float(np.log(changed["features"][0, 0])), 8)
    1.16666667
    """

    kind: Literal["a", "l"] = "a"
    low: float = 60.0
    high: float = 85.0
    shift: float = 1.0
    perturbed: float = 5.0
    weight: float = 10.0
    typical: Array = state("V")

    def fit(self, val_features: Floats, val_layers: Mapping[str, Floats]) -> Self:
        """Compute how far the features of the validation set move.

        Parameters
        ----------
        val_features : ndarray of shape (n_samples, n_features)
            Validation features.
        val_layers : mapping of str to ndarray
            Recorded layers of the validation set, among them ``"penultimate/perturbed"``.

        Returns
        -------
        AdaScale
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or the perturbed features are not recorded.
        """
        _checks.choice(self.kind, "kind", ("a", "l"))
        low = _checks.number(self.low, "low", 0.0, 100.0, open_high=True)
        _checks.number(self.high, "high", low, 100.0, open_high=True)
        for name in ("shift", "perturbed"):
            _checks.number(getattr(self, name), name, 0.0, 100.0)
        _checks.number(self.weight, "weight", 0.0, np.inf, open_high=True)
        moved = _perturbed_features(val_layers, val_features)
        parts = [self._movement(h, after) for h, after in blocks(val_features, moved)]
        return replace(self, typical=np.sort(np.concatenate(parts)))

    def check_state(self) -> None:
        """Check that the movements ascend.

        Raises
        ------
        InvalidInput
            If they do not, or there is none.
        """
        if not len(self.typical) or (np.diff(self.typical) < 0).any():
            raise InvalidInput("typical must ascend, with at least one value")

    def apply(self, features: Floats, logits: Floats, head: Head, layers: Mapping[str, Floats]) -> Changes:
        """Scale features and logits, each row by its own percentile.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features to transform.
        logits : ndarray of shape (n_samples, n_classes)
            Logits to transform.
        head : Head
            Last linear layer of the classifier.
        layers : mapping of str to ndarray
            Recorded layers, among them ``"penultimate/perturbed"``.

        Returns
        -------
        dict
            The scaled ``"features"`` and their ``"logits"``; with ``kind="l"`` the scaled ``"logits"``, and ``"head"``
            None, as no head fits them.

        Raises
        ------
        InvalidInput
            If the perturbed features are not recorded.
        """
        h, z = np.asarray(features, dtype=np.float64), np.asarray(logits, dtype=np.float64)
        moved = np.asarray(_perturbed_features(layers, features), dtype=np.float64)
        below = np.searchsorted(self.typical, self._movement(h, moved), side="right") / len(self.typical)
        percentiles = self.low + (1.0 - below) * (self.high - self.low)
        total, kept = _sum_top(np.maximum(h, 0.0), percentiles)
        has_sum = kept > 0
        if self.kind == "l":
            ratio = np.divide(total, kept, out=np.ones_like(total), where=has_sum)
            return {"logits": np.minimum(ratio, CLIP)[:, None] ** 2 * z, "head": None}
        ratio = np.divide(total, kept, out=np.zeros_like(total), where=has_sum)
        factor = np.exp(np.minimum(ratio, CLIP))[:, None]
        bias = np.asarray(head.bias, dtype=np.float64)
        return {"features": h * factor, "logits": factor * (z - bias) + bias}

    def _movement(self, h: Array, moved: Array) -> Array:
        """Compute how far the largest entries of each row move, plus what they become."""
        width = h.shape[1]
        changed = max(1, int(width * self.shift / 100.0))
        added = max(1, int(width * self.perturbed / 100.0))
        order = np.argsort(-h, axis=1, kind="stable")
        change = np.take_along_axis(np.abs(h - moved), order[:, :changed], axis=1).sum(axis=1)
        rest = np.take_along_axis(np.maximum(moved, 0.0), order[:, :added], axis=1).sum(axis=1)
        return self.weight * change + rest


def _perturbed_features(layers: Mapping[str, Floats], features: Floats) -> Floats:
    """Return the features of the perturbed inputs, or raise an error that says how to record them."""
    if PERTURBED not in layers:
        raise InvalidInput(f"adascale needs layers[{PERTURBED!r}]; record it with: extract --adascale")
    if layers[PERTURBED].shape != features.shape:
        raise InvalidInput(
            f"layers[{PERTURBED!r}] has shape {layers[PERTURBED].shape}, and the features {features.shape}"
        )
    return layers[PERTURBED]


def _sum_top(features: Array, percentiles: Array) -> tuple[Array, Array]:
    """Return the sum of each row, and that of its largest entries above a percentile of its own."""
    width = features.shape[1]
    count = np.maximum(1, width - np.rint(width * percentiles / 100.0).astype(np.int64))
    sums = np.cumsum(-np.sort(-features, axis=1), axis=1)
    return features.sum(axis=1), sums[np.arange(len(features)), count - 1]
