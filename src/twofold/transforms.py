r"""Transforms: outputs in, outputs out. They change logits and features, never the prediction that is judged.

Each returns the changed fields by name; one that changes logits also returns the matching head, or drops it (None).
Notation: h features, W and b the head, z = W h + b.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from twofold import _checks
from twofold._checks import Array, Labels
from twofold._math import Floats
from twofold.errors import InvalidInput
from twofold.metrics.calibration import TemperatureScaling
from twofold.outputs import Head, Passes
from twofold.steps import register_transform, state

Changes = dict[str, Any]
CLIP = 50.0  # of the exponent in ash and scale: e^50 is far beyond any useful factor


@register_transform("temperature", paper="Guo et al., ICML 2017, arXiv:1706.04599", aliases=("temp",), cost="C")
@dataclass(frozen=True, eq=False)
class Temperature:
    r"""Logits divided by a temperature, with the head scaled alike.

    .. math:: z' = z / T

    T is ``value``, or, if that is None, the minimiser of the validation NLL (of train without validation outputs), a
    convex problem in 1/T. Rows labelled -1 are left out of the fit.

    >>> fitted = Temperature(value=2.0).fit(np.eye(2), np.array([0, 1]))
    >>> fitted.apply(np.array([[2.0, 1.0]]))["logits"]
    array([[1. , 0.5]])
    """

    value: float | None = None
    fitted: Array = state()  # (), the temperature

    def fit(self, val_logits: Floats, val_labels: Labels) -> Self:
        """Take the given temperature, or find the best one."""
        if self.value is not None:
            return replace(self, fitted=np.array(_checks.number(self.value, "value", 0.0, np.inf, open_low=True)))
        known = np.asarray(val_labels) >= 0
        return replace(self, fitted=np.array(TemperatureScaling.fit(val_labels[known], val_logits[known]).value))

    def apply(self, logits: Floats, head: Head | None = None) -> Changes:
        """Divide logits and head."""
        t = float(self.fitted)
        changed = None if head is None else Head(np.asarray(head.weight) / t, np.asarray(head.bias) / t)
        return {"logits": np.asarray(logits, dtype=np.float64) / t, "head": changed}


@register_transform("react", paper="Sun, Guo, Li, NeurIPS 2021, arXiv:2111.12797", cost="CD")
@dataclass(frozen=True, eq=False)
class ReAct:
    r"""Features clipped from above at a percentile of all training feature entries.

    .. math:: h' = \min(h, c)

    Meant for non-negative features; with signed ones (transformers) it rarely helps.

    >>> features = np.array([[0.0, 1.0], [2.0, 3.0]])
    >>> ReAct(percentile=50).fit(features).apply(features, Head(np.eye(2)))["features"]
    array([[0. , 1. ],
           [1.5, 1.5]])
    """

    percentile: float = 90.0
    limit: Array = state()  # ()

    def fit(self, features: Floats) -> Self:
        """The percentile over samples and channels together."""
        q = _checks.number(self.percentile, "percentile", 0.0, 100.0)
        return replace(self, limit=np.array(np.percentile(np.asarray(features, dtype=np.float64), q)))

    def apply(self, features: Floats, head: Head) -> Changes:
        """Clip, and pass through the head."""
        clipped = np.minimum(np.asarray(features, dtype=np.float64), self.limit)
        return {"features": clipped, "logits": head.logits(clipped)}


@register_transform("dice", paper="Sun & Li, ECCV 2022, arXiv:2111.09805", cost="CD")
@dataclass(frozen=True, eq=False)
class Dice:
    r"""Head weights kept only where they contribute most.

    .. math:: W'_{kj} = W_{kj} [W_{kj} \mu_j > \text{the } q\text{-th percentile of all } W_{kj} \mu_j]

    with :math:`\mu` the mean training feature; the bias stays. The authors use q = 90 on CIFAR, 70 on ImageNet.

    >>> dice = Dice(percentile=50).fit(np.array([[1.0, 2.0]]), Head(np.array([[1.0, 1.0], [0.0, 3.0]])))
    >>> dice.weight
    array([[0., 1.],
           [0., 3.]])
    """

    percentile: float = 90.0
    weight: Array = state()  # (C, D)

    def fit(self, features: Floats, head: Head) -> Self:
        """Mask the head."""
        q = _checks.number(self.percentile, "percentile", 0.0, 100.0)
        weight = np.asarray(head.weight, dtype=np.float64)
        contribution = weight * np.asarray(features, dtype=np.float64).mean(axis=0)
        return replace(self, weight=np.where(contribution > np.percentile(contribution, q), weight, 0.0))

    def apply(self, features: Floats, head: Head) -> Changes:
        """Pass the features through the masked head."""
        masked = Head(self.weight, np.asarray(head.bias, dtype=np.float64))
        return {"logits": masked.logits(features), "head": masked}


def _kept(features: Array, percentile: float) -> tuple[Array, Array, Array, int]:
    """Mask of the k largest entries of each row, sums over all and over the kept, and k."""
    q = _checks.number(percentile, "percentile", 0.0, 100.0, open_high=True)
    width = features.shape[1]
    k = width - round(width * q / 100.0)
    if k < 1:
        raise InvalidInput(f"percentile={percentile} leaves none of {width} features; choose a lower one")
    order = np.argsort(-features, axis=1, kind="stable")[:, :k]
    mask = np.zeros(features.shape, bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask, features.sum(axis=1), np.where(mask, features, 0.0).sum(axis=1), k


def _factor(total: Array, kept: Array) -> Array:
    """e^(total / kept), clipped; rows whose kept sum is not positive are left alone."""
    ratio = np.divide(total, kept, out=np.zeros_like(total), where=kept > 0)
    return np.exp(np.clip(ratio, -CLIP, CLIP))


@register_transform("ash", paper="Djurisic et al., ICLR 2023, arXiv:2209.09858", cost="D log D + CD")
def ash(features: Floats, head: Head, *, kind: Literal["s", "b", "p"] = "s", percentile: float = 90.0) -> Changes:
    r"""Features pruned to their largest entries, and what is left rescaled.

    With :math:`s_1` the sum of a row, k = D - round(D q / 100) kept entries and :math:`s_2` their sum: ``p`` keeps
    them, ``b`` sets each to :math:`s_1 / k`, ``s`` multiplies them by :math:`e^{s_1 / s_2}`. Meant for non-negative
    features; rows with :math:`s_2 \le 0` are not rescaled.

    >>> ash(np.array([[1.0, 2.0, 0.5, 0.0]]), Head(np.eye(4)), kind="b", percentile=50)["features"]
    array([[1.75, 1.75, 0.  , 0.  ]])
    """
    _checks.choice(kind, "kind", ("s", "b", "p"))
    h = np.asarray(features, dtype=np.float64)
    mask, total, kept, k = _kept(h, percentile)
    if kind == "b":
        shaped = np.where(mask, total[:, None] / k, 0.0)
    else:
        shaped = np.where(mask, h, 0.0) * (_factor(total, kept)[:, None] if kind == "s" else 1.0)
    return {"features": shaped, "logits": head.logits(shaped)}


@register_transform("scale", paper="Xu et al., ICLR 2024, arXiv:2310.00227", cost="D + C")
def scale(features: Floats, logits: Floats, head: Head, *, percentile: float = 85.0) -> Changes:
    r"""Features multiplied by a factor that grows with the weight of small entries; nothing is pruned.

    .. math:: h' = e^r h, \qquad r = s_1 / s_2

    with :math:`s_1` the sum of a row and :math:`s_2` that of its largest entries, as in ``ash``. So
    :math:`z' = e^r (z - b) + b`, and no second matrix product is needed. r is clipped at 50; rows whose kept sum is not
    positive are not rescaled.

    >>> changed = scale(np.array([[1.0, 2.0, 0.5, 0.0]]), np.array([[3.0]]), Head(np.ones((1, 4))), percentile=50)
    >>> round(float(np.log(changed["features"][0, 0])), 8)
    1.16666667
    """
    h = np.asarray(features, dtype=np.float64)
    _, total, kept, _ = _kept(h, percentile)
    factor = _factor(total, kept)[:, None]
    bias = np.asarray(head.bias, dtype=np.float64)
    return {"features": h * factor, "logits": factor * (np.asarray(logits, dtype=np.float64) - bias) + bias}


@register_transform(
    "average", paper="Lakshminarayanan et al., NeurIPS 2017, arXiv:1612.01474", judges="passes", cost="C"
)
def average(passes: Floats | Passes) -> Changes:
    r"""Logits of the averaged passes.

    .. math:: z' = \log \bar p

    so that ``average|gini`` is any score of probabilities on their mean (``energy`` of it is always 0). Probabilities
    of 0 become the smallest positive float. The head no longer fits and is dropped; the chain judges the averaged
    prediction.

    >>> average(np.log(np.array([[[0.9, 0.1]], [[0.7, 0.3]]])))["logits"].round(6)
    array([[-0.223144, -1.609438]])
    """
    held = passes if isinstance(passes, Passes) else Passes.from_logits(passes)
    p = np.asarray(held.mean_prob, dtype=np.float64)
    return {"logits": np.log(np.maximum(p, np.finfo(np.float64).tiny)), "head": None}
