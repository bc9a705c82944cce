r"""Transforms from outputs to outputs. They change logits and features, never the prediction that is judged.

Each returns the changed fields by name; one that changes logits also returns the matching head, or drops it (None).
Notation: h features, W and b the head, z = W h + b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from twofold import _checks
from twofold._math import SMALLEST_NORMAL, TINY, unit
from twofold.errors import InvalidInput
from twofold.metrics.scaling import TemperatureScaling
from twofold.outputs import Head, Passes
from twofold.scores._fitting.moments import moments, percentile
from twofold.scores._fitting.spaces import UNFILTERED, Spaces, check_means, check_offsets, class_spaces, global_space
from twofold.scores.distance import raw_features
from twofold.scores.registry import PROJECTIONS, register_transform
from twofold.typing import Array, Changes, Floats, Labels, StepHooks, state

COARSE = 1e-2  # tolerance of unit vectors in half precision
CLIP = 50.0  # bound of the exponent in ash and scale: e^50 is far beyond any useful factor


@register_transform("temperature", paper="Guo et al., ICML 2017, arXiv:1706.04599", aliases=("temp",), cost="C")
@dataclass(frozen=True, eq=False)
class Temperature(StepHooks):
    """Divide the logits by a temperature, and scale the head alike.

    .. math:: z' = z / T

    Parameters
    ----------
    value : float, optional
        The temperature T, above 0. By default it minimises the NLL of the validation set (of the training set without
        validation outputs), a convex problem in 1/T.

    Attributes
    ----------
    fitted : ndarray of shape ()
        The temperature T; set by ``fit``.

    Notes
    -----
    Rows labelled -1 are left out of the fit.

    References
    ----------
    Guo et al., ICML 2017, arXiv:1706.04599.

    Examples
    --------
    >>> fitted = Temperature(value=2.0).fit(np.eye(2), np.array([0, 1]))
    >>> fitted.apply(np.array([[2.0, 1.0]]))["logits"]
    array([[1. , 0.5]])
    """

    value: float | None = None
    fitted: Array = state("")  # the temperature

    def fit(self, val_logits: Floats, val_labels: Labels) -> Self:
        """Take the temperature from ``value``, or find the best one.

        Parameters
        ----------
        val_logits : ndarray of shape (n_samples, n_classes)
            Validation logits.
        val_labels : ndarray of shape (n_samples,)
            Validation labels; rows labelled -1 are ignored.

        Returns
        -------
        Temperature
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``value`` is not above 0; without ``value``, if no row has a label or no finite temperature minimises the
            NLL.
        """
        if self.value is not None:
            return replace(self, fitted=np.array(_checks.number(self.value, "value", 0.0, np.inf, open_low=True)))
        known = np.asarray(val_labels) >= 0
        return replace(self, fitted=np.array(TemperatureScaling.fit(val_labels[known], val_logits[known]).value))

    def check_state(self) -> None:
        """Check that the temperature is above 0.

        Raises
        ------
        InvalidInput
            If it is not.
        """
        _checks.number(float(self.fitted), "the temperature", 0.0, np.inf, open_low=True)

    def apply(self, logits: Floats, head: Head | None = None) -> Changes:
        """Divide the logits and the head by the temperature.

        Parameters
        ----------
        logits : ndarray of shape (n_samples, n_classes)
            Logits to transform.
        head : Head, optional
            Last linear layer of the classifier.

        Returns
        -------
        dict
            ``"logits"``, and ``"head"`` (None without a head).
        """
        t = float(self.fitted)
        changes: Changes = {"logits": np.asarray(logits, dtype=np.float64) / t, "head": None}
        if head is not None:
            changes["head"] = Head(np.asarray(head.weight) / t, np.asarray(head.bias) / t)
        return changes


@register_transform(
    "react",
    paper="Sun, Guo, Li, NeurIPS 2021, arXiv:2111.12797",
    cost="CD",
    grid={"percentile": (85.0, 90.0, 95.0, 99.0)},
)
@dataclass(frozen=True, eq=False)
class ReAct:
    r"""Clip features from above at a percentile of all training feature entries, or at a constant.

    .. math:: h' = \min(h, c)

    Parameters
    ----------
    percentile : float, default=90.0
        The percentile of all entries at which to clip, in [0, 100]; lower values clip more. 90 is the method's on
        ImageNet; OpenOOD and SURE+ choose among 85, 90, 95 and 99, and FD-Shifts has 99.
    constant : float, optional
        The limit itself, instead of a percentile. The unknown-detection benchmark chooses among 1 to 10: 7 on CIFAR,
        2 on ImageNet.

    Attributes
    ----------
    limit : ndarray of shape ()
        The limit c; learnt by ``fit``.

    Notes
    -----
    Meant for non-negative features; with signed ones (transformers) it rarely helps.

    References
    ----------
    Sun, Guo, Li, NeurIPS 2021, arXiv:2111.12797.

    Examples
    --------
    >>> features = np.array([[0.0, 1.0], [2.0, 3.0]])
    >>> ReAct(percentile=50).fit(features).apply(features, Head(np.eye(2)))["features"]
    array([[0. , 1. ],
           [1.5, 1.5]])
    """

    percentile: float = 90.0
    constant: float | None = None
    limit: Array = state("")

    def fit(self, features: Floats) -> Self:
        """Compute the percentile over samples and channels together, unless the limit is given.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.

        Returns
        -------
        ReAct
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``percentile`` is outside [0, 100], or ``constant`` is not a finite number.
        """
        q = _checks.number(self.percentile, "percentile", 0.0, 100.0)
        if self.constant is not None:
            limit = _checks.number(self.constant, "constant", -np.inf, np.inf, open_low=True, open_high=True)
            return replace(self, limit=np.array(limit))
        return replace(self, limit=np.array(percentile(features, q)))

    def apply(self, features: Floats, head: Head) -> Changes:
        """Clip the features, and pass them through the head.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features to transform.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        dict
            The clipped ``"features"`` and their ``"logits"``.
        """
        clipped = np.minimum(np.asarray(features, dtype=np.float64), self.limit)
        return {"features": clipped, "logits": head.logits(clipped)}


@register_transform(
    "dice",
    paper="Sun & Li, ECCV 2022, arXiv:2111.09805",
    cost="CD",
    grid={"percentile": (10.0, 30.0, 50.0, 70.0, 90.0)},
)
@dataclass(frozen=True, eq=False)
class Dice:
    r"""Keep the head's weights only where they contribute most.

    .. math:: W'_{kj} = W_{kj} [W_{kj} \mu_j > \text{the } q\text{-th percentile of all } W_{kj} \mu_j]

    with :math:`\mu` the mean training feature; the bias stays.

    Parameters
    ----------
    percentile : float, default=90.0
        Percentile q of the contributions, in [0, 100]; weights that contribute no more are set to 0. The authors use 90
        on CIFAR, 70 on ImageNet.

    Attributes
    ----------
    weight : ndarray of shape (n_classes, n_features)
        The masked weights :math:`W'`; learnt by ``fit``.

    References
    ----------
    Sun & Li, ECCV 2022, arXiv:2111.09805.

    Examples
    --------
    >>> dice = Dice(percentile=50).fit(np.array([[1.0, 2.0]]), Head(np.array([[1.0, 1.0], [0.0, 3.0]])))
    >>> dice.weight
    array([[0., 1.],
           [0., 3.]])
    """

    percentile: float = 90.0
    weight: Array = state("C D")

    def fit(self, features: Floats, head: Head) -> Self:
        """Mask the weights of the head by their contributions to the training rows.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        Dice
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``percentile`` is outside [0, 100].
        """
        q = _checks.number(self.percentile, "percentile", 0.0, 100.0)
        weight = np.asarray(head.weight, dtype=np.float64)
        contribution = weight * moments(features).mean
        return replace(self, weight=np.where(contribution > np.percentile(contribution, q), weight, 0.0))

    def apply(self, features: Floats, head: Head) -> Changes:
        """Pass the features through the masked head.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features to transform.
        head : Head
            Last linear layer of the classifier.

        Returns
        -------
        dict
            The new ``"logits"`` and the masked ``"head"``.
        """
        masked = Head(self.weight, np.asarray(head.bias, dtype=np.float64))
        return {"logits": masked.logits(features), "head": masked}


def _top(features: Array, percentile: float) -> tuple[int, Array]:
    """Return how many of the largest entries of each row are kept, and the least of them."""
    q = _checks.number(percentile, "percentile", 0.0, 100.0, open_high=True)
    width = features.shape[1]
    k = max(1, width - round(width * q / 100.0))
    return k, np.partition(features, width - k, axis=1)[:, width - k]


def _sum_largest(features: Array, percentile: float) -> tuple[Array, Array]:
    """Return the sum of each row, and that of its largest entries."""
    k, least = _top(features, percentile)
    above = features > least[:, None]
    kept = np.where(above, features, 0.0).sum(axis=1) + least * (k - above.sum(axis=1))
    return features.sum(axis=1), kept


def _factor(total: Array, kept: Array) -> Array:
    """Compute e^(total / kept), clipped; rows whose kept sum is not positive are not rescaled."""
    ratio = np.divide(total, kept, out=np.zeros_like(total), where=kept > 0)
    return np.exp(np.clip(ratio, -CLIP, CLIP))


SHAPED = (65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0)


@register_transform(
    "ash", paper="Djurisic et al., ICLR 2023, arXiv:2209.09858", cost="D log D + CD", grid={"percentile": SHAPED}
)
def ash(features: Floats, head: Head, *, kind: Literal["s", "b", "p"] = "s", percentile: float = 90.0) -> Changes:
    r"""Prune features to their largest entries, and rescale what is left.

    With :math:`s_1` the sum of a row, k = D - round(D q / 100) >= 1 kept entries and :math:`s_2` their sum, :math:`h'`
    is zero outside the kept entries, and there it is

    .. math:: h' = h \; (\text{p}), \qquad h' = s_1 / k \; (\text{b}), \qquad h' = e^{s_1 / s_2} h \; (\text{s})

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features to transform.
    head : Head
        Last linear layer of the classifier.
    kind : {"s", "b", "p"}, default="s"
        ``"p"`` keeps the entries, ``"b"`` sets each to :math:`s_1 / k`, ``"s"`` multiplies them by :math:`e^{s_1 /
        s_2}`.
    percentile : float, default=90.0
        Percentage q of the entries of each row to prune, in [0, 100).

    Returns
    -------
    dict
        The shaped ``"features"`` and their ``"logits"``.

    Raises
    ------
    InvalidInput
        If ``kind`` is unknown, or ``percentile`` is outside [0, 100).

    Notes
    -----
    Meant for non-negative features; rows with :math:`s_2 \le 0` are not rescaled. The exponent is clipped at 50. Among
    equal entries, the first are kept.

    References
    ----------
    Djurisic et al., ICLR 2023, arXiv:2209.09858.

    Examples
    --------
    >>> ash(np.array([[1.0, 2.0, 0.5, 0.0]]), Head(np.eye(4)), kind="b", percentile=50)["features"]
    array([[1.75, 1.75, 0.  , 0.  ]])
    """
    _checks.choice(kind, "kind", ("s", "b", "p"))
    h = np.asarray(features, dtype=np.float64)
    k, least = _top(h, percentile)
    above, equal = h > least[:, None], h == least[:, None]
    room = k - above.sum(axis=1)
    mask = above | (equal & (np.cumsum(equal, axis=1) <= room[:, None]))  # the first of equal entries are kept
    total = h.sum(axis=1)
    if kind == "b":
        shaped = np.where(mask, total[:, None] / k, 0.0)
    else:
        shaped = np.where(mask, h, 0.0)
        if kind == "s":
            shaped *= _factor(total, shaped.sum(axis=1))[:, None]
    return {"features": shaped, "logits": head.logits(shaped)}


@register_transform("scale", paper="Xu et al., ICLR 2024, arXiv:2310.00227", cost="D + C", grid={"percentile": SHAPED})
def scale(features: Floats, logits: Floats, head: Head, *, percentile: float = 85.0) -> Changes:
    r"""Multiply features by a factor that grows with the weight of small entries; nothing is pruned.

    .. math:: h' = e^r h, \qquad r = s_1 / s_2

    with :math:`s_1` the sum of a row and :math:`s_2` that of its largest entries, as in ``ash``. So :math:`z' = e^r (z
    - b) + b`, and no second matrix product is needed.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features to transform.
    logits : ndarray of shape (n_samples, n_classes)
        Logits to transform.
    head : Head
        Last linear layer of the classifier.
    percentile : float, default=85.0
        Percentage of the entries of each row to leave out of :math:`s_2`, in [0, 100).

    Returns
    -------
    dict
        The scaled ``"features"`` and their ``"logits"``.

    Raises
    ------
    InvalidInput
        If ``percentile`` is outside [0, 100).

    Notes
    -----
    r is clipped at 50; rows whose kept sum is not positive are not rescaled.

    References
    ----------
    Xu et al., ICLR 2024, arXiv:2310.00227.

    Examples
    --------
    >>> changed = scale(np.array([[1.0, 2.0, 0.5, 0.0]]), np.array([[3.0]]), Head(np.ones((1, 4))), percentile=50)
    >>> round(float(np.log(changed["features"][0, 0])), 8)
    1.16666667
    """
    h = np.asarray(features, dtype=np.float64)
    factor = _factor(*_sum_largest(h, percentile))[:, None]
    bias = np.asarray(head.bias, dtype=np.float64)
    return {"features": h * factor, "logits": factor * (np.asarray(logits, dtype=np.float64) - bias) + bias}


@register_transform(
    "lts", paper="Djurisic, Liu, Nikolic, 2024, arXiv:2409.01175", cost="D + C", grid={"percentile": SHAPED}
)
def lts(features: Floats, logits: Floats, *, percentile: float = 95.0) -> Changes:
    r"""Multiply logits by a factor that grows with the weight of small entries of the feature.

    .. math:: z' = r^2 z, \qquad r = s_1 / s_2

    with :math:`s_1` and :math:`s_2` as in ``ash``, negative entries counted as 0.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features from which the factor is computed; they stay unchanged.
    logits : ndarray of shape (n_samples, n_classes)
        Logits to transform.
    percentile : float, default=95.0
        Percentage of the entries of each row to leave out of :math:`s_2`, in [0, 100). The authors keep the top 5 %.

    Returns
    -------
    dict
        The scaled ``"logits"``, and ``"head"`` None, as no head fits them.

    Raises
    ------
    InvalidInput
        If ``percentile`` is outside [0, 100).

    Notes
    -----
    Rows without a positive entry are not rescaled. A library once divided by the factor, which reverses the method.

    References
    ----------
    Djurisic, Liu, Nikolic, 2024, arXiv:2409.01175.

    Examples
    --------
    >>> lts(np.array([[1.0, 2.0, 0.5, 0.0]]), np.array([[1.0, 2.0]]), percentile=50)["logits"].round(6)
    array([[1.361111, 2.722222]])
    """
    h = np.maximum(np.asarray(features, dtype=np.float64), 0.0)
    total, kept = _sum_largest(h, percentile)
    factor = np.divide(total, kept, out=np.ones_like(total), where=kept > 0)[:, None] ** 2
    return {"logits": factor * np.asarray(logits, dtype=np.float64), "head": None}


@register_transform(
    "vra",
    paper="Xu et al., NeurIPS 2023, arXiv:2302.11716",
    cost="CD",
    grid={"low": (50.0, 60.0, 65.0, 70.0), "high": (80.0, 85.0, 90.0, 95.0, 99.0), "gain": (0.0, 0.2, 0.4, 0.6)},
)
@dataclass(frozen=True, eq=False)
class Vra:
    r"""Set features to 0 below one percentile of all training feature entries, and clip them above another.

    .. math:: h' = 0 \text{ if } h < \alpha, \quad h + \gamma \text{ if } \alpha \le h \le \beta, \quad
              \beta \text{ if } h > \beta

    Parameters
    ----------
    low : float, default=60.0
        Percentile that gives :math:`\alpha`, in [0, 100].
    high : float, default=95.0
        Percentile that gives :math:`\beta`, from ``low`` to 100.
    gain : float, default=0.0
        The constant :math:`\gamma`, at least 0, added in between; the authors' VRA+ uses 0.2 to 0.7.

    Attributes
    ----------
    limits : ndarray of shape (2,)
        The limits :math:`\alpha` and :math:`\beta`; learnt by ``fit``.

    Notes
    -----
    OpenOOD raises low entries to :math:`\alpha` instead, and another library takes percentiles by unit; these are other
    transforms.

    References
    ----------
    Xu et al., NeurIPS 2023, arXiv:2302.11716.

    Examples
    --------
    >>> features = np.array([[0.0, 1.0], [2.0, 3.0]])
    >>> Vra(low=34, high=67).fit(features).apply(features, Head(np.eye(2)))["features"].round(2)
    array([[0.  , 0.  ],
           [2.  , 2.01]])
    """

    low: float = 60.0
    high: float = 95.0
    gain: float = 0.0
    limits: Array = state("2")

    def fit(self, features: Floats) -> Self:
        """Compute both percentiles over samples and channels together.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.

        Returns
        -------
        Vra
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range.
        """
        low = _checks.number(self.low, "low", 0.0, 100.0)
        high = _checks.number(self.high, "high", low, 100.0)
        _checks.number(self.gain, "gain", 0.0, np.inf, open_high=True)
        return replace(self, limits=np.array([percentile(features, low), percentile(features, high)]))

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
        low, high = self.limits
        shaped = np.where(h < low, 0.0, np.where(h > high, high, h + self.gain))
        return {"features": shaped, "logits": head.logits(shaped)}


@register_transform(
    "project",
    paper="Claros Olivares & Brockmeier, A Systematic Analysis of OOD Detection, 2025",
    cost="CD, with features D^2",
    grid={"kind": PROJECTIONS, "variance": (0.8, 0.9, 0.95, 0.99)},
)
@dataclass(frozen=True, eq=False)
class Project(StepHooks):
    r"""Filter features by the principal subspace of the training features, of all of them or of each class.

    .. math:: \hat h = P P^T (h - \mu) + \mu

    with the fewest eigenvectors P that explain a share ``variance``.

    Parameters
    ----------
    kind : {"global", "class", "class_pred", "class_avg"}, default="global"
        ``"global"`` uses one subspace, ``"class"`` computes logit c with the subspace and mean of class c,
        ``"class_pred"`` uses those of the predicted class, and ``"class_avg"`` the mean over classes.
    variance : float, default=0.9
        Share of the variance to explain, in (0, 1].

    Attributes
    ----------
    weight : ndarray of shape (n_classes, n_features)
        Weights of the head that filters and classifies unfiltered features; learnt by ``fit``.
    bias : ndarray of shape (n_classes,)
        Bias of that head; learnt by ``fit``.
    filter : ndarray of shape (n_features, n_features) or None
        The filter, for ``global`` and ``class_avg``; learnt by ``fit``.
    offset : ndarray of shape (n_features,) or None
        What is added to the filtered feature, for ``global`` and ``class_avg``; learnt by ``fit``.
    means : ndarray of shape (n_classes, n_features) or None
        Class means, NaN for a class without training rows, for ``class`` and ``class_pred``; learnt by ``fit``.
    bases : ndarray of shape (n_directions, n_features) or None
        Principal directions of the classes, one after the other, for ``class`` and ``class_pred``; learnt by ``fit``.
    offsets : ndarray of shape (n_classes + 1,) or None
        First row of each class in ``bases``, and the end; learnt by ``fit``.

    Notes
    -----
    All kinds but ``class_pred`` are a linear head on the features as they are, so scores of logits cost one more head;
    the features themselves are filtered only where a later step needs them. Before ``fdbd``, ``class_pred`` measures
    from the mean of the predicted class.

    Classes without training rows keep their own logit, are left out of the mean, and are an error where they are
    predicted (``class_pred``).

    References
    ----------
    Claros Olivares & Brockmeier, A Systematic Analysis of OOD Detection, 2025.

    Examples
    --------
    >>> h = np.array([[0.0, 0.0], [4.0, 0.1], [0.0, 0.1], [4.0, 0.0]])
    >>> Project().fit(h, Head(np.eye(2))).apply(np.array([[1.0, 5.0]]), Head(np.eye(2)), [0])["features"].round(2)
    array([[1.  , 0.05]])
    """

    kind: Literal["global", "class", "class_pred", "class_avg"] = "global"
    variance: float = 0.9
    weight: Array = state("C D")  # of the head that filters and classifies unfiltered features
    bias: Array = state("C")
    filter: Array = state("D D", optional=True)  # for global and class_avg
    offset: Array = state("D", optional=True)
    means: Array = state("C D", optional=True, nan=True)  # for class and class_pred
    bases: Array = state("K D", optional=True)
    offsets: Labels = state("C+1", kind="integer", optional=True)

    def fit(self, features: Floats, head: Head, labels: Labels | None = None) -> Self:
        """Find the subspaces, and the head that filters by them.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        head : Head
            Last linear layer of the classifier.
        labels : ndarray of shape (n_samples,), optional
            Training labels; rows labelled -1 are ignored. Required unless ``kind="global"``.

        Returns
        -------
        Project
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or labels are missing or all -1 with a ``kind`` by class.
        """
        _checks.choice(self.kind, "kind", PROJECTIONS)
        share = _checks.number(self.variance, "variance", 0.0, 1.0, open_low=True)
        w, b = np.asarray(head.weight, dtype=np.float64), np.asarray(head.bias, dtype=np.float64)
        if self.kind == "global":
            mean, basis = global_space(features, share)
            within = basis.T @ basis
            return self._linear(w, b, within, mean - within @ mean)
        if labels is None:
            raise InvalidInput(f"project(kind={self.kind!r}) needs labels, and the train outputs have none")
        spaces = class_spaces(features, labels, len(w), share)
        if self.kind == "class_avg":
            known = spaces.present
            within, rest = np.zeros((w.shape[1], w.shape[1])), np.zeros(w.shape[1])
            for c in known:
                own = spaces.basis(c).T @ spaces.basis(c)
                within += own / len(known)
                rest += (spaces.means[c] - own @ spaces.means[c]) / len(known)
            return self._linear(w, b, within, rest)
        weight, bias = w.copy(), b.copy()
        for c in spaces.present:
            weight[c] = spaces.basis(c).T @ (spaces.basis(c) @ w[c])
            bias[c] = b[c] + (w[c] - weight[c]) @ spaces.means[c]
        means, bases, offsets = spaces
        return replace(self, weight=weight, bias=bias, means=means, bases=bases, offsets=offsets)

    def check_state(self) -> None:
        """Check that the arrays are those of ``kind``.

        Raises
        ------
        InvalidInput
            If an array is missing or inconsistent.
        """
        by_class = _checks.choice(self.kind, "kind", PROJECTIONS) in ("class", "class_pred")
        needed = ("means", "bases", "offsets") if by_class else ("filter", "offset")
        for name in needed:
            if getattr(self, name) is None:
                raise InvalidInput(f"{name} is missing, which kind={self.kind!r} needs")
        if by_class:
            check_means(self.means)
            check_offsets(self.offsets, len(self.bases), "bases")

    def _linear(self, w: Array, b: Array, within: Array, offset: Array) -> Self:
        return replace(self, weight=w @ within, bias=b + w @ offset, filter=within, offset=offset)

    def apply(
        self, features: Floats, head: Head, predictions: Labels, layers: Mapping[str, Floats] | None = None
    ) -> Changes:
        """Filter the features and the logits.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features to transform.
        head : Head
            Last linear layer of the classifier.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample; used with ``kind="class_pred"``.
        layers : mapping of str to ndarray, optional
            Recorded layers by name; values for later steps, such as the unfiltered features, are added to a copy.

        Returns
        -------
        dict
            The changed fields: always ``"logits"``, and depending on ``kind`` also ``"features"``, ``"head"`` and
            ``"layers"``.

        Raises
        ------
        InvalidInput
            If ``kind="class_pred"`` and a predicted class had no training row.
        """
        h = np.asarray(features, dtype=np.float64)
        if self.kind == "class_pred":
            filtered, away = self._filter_by_prediction(h, np.asarray(predictions))
            changed = {**(layers or {}), "project/away": away[:, None], UNFILTERED: h}
            return {"features": filtered, "logits": head.logits(filtered), "layers": changed}
        if self.kind == "class":
            changed = {**(layers or {}), **self._cosines(h, head)}
            return {**self._filter_logits(h), "layers": changed}
        logits = self._filter_logits(h)["logits"]
        changed = {**(layers or {}), UNFILTERED: h}
        return {"features": h @ self.filter + self.offset, "logits": logits, "layers": changed}

    def apply_wanted(self, wanted: frozenset[str], arrays: Mapping[str, Any]) -> Changes | None:
        """Filter only the logits, by one linear head, if no later step reads features.

        Parameters
        ----------
        wanted : frozenset of str
            Fields that later steps read.
        arrays : mapping of str to object
            Arguments of :meth:`apply`, by name.

        Returns
        -------
        dict or None
            The changed ``"logits"`` and ``"head"``; None where features are read too, and with ``kind="class_pred"``,
            which is not a linear head.
        """
        if "features" in wanted or self.kind == "class_pred":
            return None
        return self._filter_logits(np.asarray(arrays["features"], dtype=np.float64))

    def _filter_logits(self, h: Array) -> Changes:
        """Compute the filtered logits and the head that gives them from unfiltered features."""
        head = Head(self.weight, self.bias)
        return {"logits": head.logits(h), "head": head}

    def _spaces(self) -> Spaces:
        return Spaces(self.means, self.bases, self.offsets)

    def _filter_by_prediction(self, h: Array, chosen: Labels) -> tuple[Array, Array]:
        """Filter the features by the space of their predicted class, and compute their distance from its mean."""
        spaces = self._spaces()
        lost = ~spaces.known[chosen]
        if lost.any():
            raise InvalidInput(
                f"project(kind='class_pred'): class {chosen[lost][0]} is predicted, and had no training row"
            )
        filtered, away = np.empty_like(h), np.empty(len(h))
        for c in np.unique(chosen).tolist():
            mine = chosen == c
            inside = (h[mine] - spaces.means[c]) @ spaces.basis(c).T
            filtered[mine] = inside @ spaces.basis(c) + spaces.means[c]
            away[mine] = np.linalg.norm(inside, axis=1)
        return filtered, away

    def _cosines(self, h: Array, head: Head) -> dict[str, Array]:
        """Compute the cosines of the feature filtered by each class with the head's row and the mean of that class."""
        spaces, w = self._spaces(), np.asarray(head.weight, dtype=np.float64)
        by_weight, by_mean = np.full((2, len(h), len(w)), -1.0)
        for c in spaces.present:
            basis, mean = spaces.basis(c), spaces.means[c]
            inside = (h - mean) @ basis.T
            square = (inside**2).sum(axis=1) + 2.0 * inside @ (basis @ mean) + mean @ mean
            length = np.sqrt(np.maximum(square, TINY))
            by_weight[:, c] = (inside @ (basis @ w[c]) + w[c] @ mean) / (length * max(np.linalg.norm(w[c]), TINY))
            by_mean[:, c] = (inside @ (basis @ mean) + mean @ mean) / (length * max(np.linalg.norm(mean), TINY))
        return {"project/cosine_weight": by_weight, "project/cosine_mean": by_mean}


@register_transform(
    "average", paper="Lakshminarayanan et al., NeurIPS 2017, arXiv:1612.01474", judges="passes", cost="C"
)
def average(passes: Floats | Passes) -> Changes:
    r"""Replace the logits by those of the averaged passes.

    .. math:: z' = \log \bar p

    so that ``average|gini`` is any score of probabilities on their mean (``energy`` of it is always 0). The chain
    judges the averaged prediction.

    Parameters
    ----------
    passes : Passes or ndarray of shape (n_passes, n_samples, n_classes)
        Running means over the passes, or the logits of every pass.

    Returns
    -------
    dict
        The new ``"logits"``, and ``"head"`` None, as the head no longer fits.

    Notes
    -----
    Probabilities of 0 become the smallest positive normal float.

    References
    ----------
    Lakshminarayanan et al., NeurIPS 2017, arXiv:1612.01474.

    Examples
    --------
    >>> average(np.log(np.array([[[0.9, 0.1]], [[0.7, 0.3]]])))["logits"].round(6)
    array([[-0.223144, -1.609438]])
    """
    held = passes if isinstance(passes, Passes) else Passes.from_logits(passes)
    p = np.asarray(held.mean_prob, dtype=np.float64)
    return {"logits": np.log(np.maximum(p, SMALLEST_NORMAL)), "head": None}


@register_transform("raw", paper="Regmi et al., CVPR Workshops 2024, arXiv:2305.17797", cost="CD")
def raw(
    features: Floats, head: Head | None = None, layers: Mapping[str, Floats] | None = None, *, scale: float = 1.0
) -> Changes:
    r"""Replace features of length one by those of the network, and pass them through the head.

    .. math:: h' = \lambda h_{\text{raw}}, \qquad z' = W h' + b

    T2FNorm trains :math:`W' h / (\tau \lVert h \rVert) + b` and scores by :math:`W' h / \tau + b`, so ``raw|msp`` is
    its score. CIDER's is ``raw|knn(k=50)``: the neighbours of the feature before the projection.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Features to transform.
    head : Head, optional
        Last linear layer.
    layers : mapping of str to ndarray, optional
        Recorded layers by name; ``"penultimate/raw"`` holds the features before the head scaled them to length one.
    scale : float, default=1.0
        What raw features are multiplied by, above 0. The temperature of T2FNorm's head gives :math:`W' h + b`, as it
        scores on ImageNet.

    Returns
    -------
    dict
        The new ``"features"``, with the new ``"logits"``, or with ``"head"`` None.

    Notes
    -----
    Where no raw features are recorded, those of the head are the network's own, and taken as they are. Where the
    features are not the raw ones at length one, as with CIDER's projection, the logits stay and the head is dropped.

    References
    ----------
    Regmi et al., CVPR Workshops 2024, arXiv:2305.17797.

    Examples
    --------
    >>> changed = raw(np.array([[0.6, 0.8]]), Head(np.eye(2)), {"penultimate/raw": np.array([[3.0, 4.0]])})
    >>> changed["features"], changed["logits"]
    (array([[3., 4.]]), array([[3., 4.]]))
    """
    _checks.number(scale, "scale", 0.0, np.inf, open_low=True, open_high=True)
    found = raw_features(features, layers)
    h = np.asarray(found, dtype=np.float64) * scale
    is_same_direction = found is features or _have_same_direction(found, features)
    if head is None or not is_same_direction:
        return {"features": h, "head": None}
    return {"features": h, "logits": head.logits(h)}


def _have_same_direction(raw_rows: Floats, features: Floats) -> bool:
    """Check whether features are raw ones at length one, on at most 256 evenly spaced rows."""
    if raw_rows.shape != features.shape:
        return False
    some = slice(None, None, max(1, len(features) // 256))
    expected = unit(np.asarray(raw_rows[some], dtype=np.float64))
    return bool(np.abs(expected - features[some]).max(initial=0.0) <= COARSE)
