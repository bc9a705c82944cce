"""Transforms of outputs, as in :mod:`twofold.scores.transforms`."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from twofold.nn.onnx._stable import to_tensor, unit_rows, width_of
from twofold.nn.onnx.steps import TRANSFORMS, FittedStep, TensorOutputs, register

CLIP = 50.0  # bound of the exponent in ash and scale, as in twofold.scores.transforms


@register(TRANSFORMS, "temperature")
def _temperature(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    temperature = float(step.fitted)
    weight = None if outputs.weight is None else outputs.weight / temperature
    bias = None if outputs.bias is None else outputs.bias / temperature
    return replace(outputs, logits=outputs.logits / temperature, weight=weight, bias=bias)


@register(TRANSFORMS, "react")
def _react(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    return outputs.with_features(outputs.features.clamp(max=float(step.limit)))


@register(TRANSFORMS, "vra")
def _vra(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    low, high = step.limits.tolist()
    features = outputs.features
    not_low = torch.where(features > high, high, features + step.gain)
    return outputs.with_features(torch.where(features < low, 0.0, not_low))


@register(TRANSFORMS, "dice")
def _dice(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    return replace(outputs, weight=to_tensor(step.weight)).with_features(outputs.features)


def _count_kept(features: Tensor, percentile: float) -> int:
    """Count the entries of a row above a percentile, at least one."""
    width = width_of(features)
    return max(1, width - round(width * percentile / 100.0))


def _sum_largest(features: Tensor, percentile: float) -> Tensor:
    """Sum the entries of each row above a percentile."""
    return features.topk(_count_kept(features, percentile), dim=1).values.sum(dim=1)


def _exp_ratio(total: Tensor, kept: Tensor) -> Tensor:
    """Compute the factor of ash and scale: exp of the sum of all entries over that of the kept ones."""
    ratio = torch.where(kept > 0, total / torch.where(kept > 0, kept, 1.0), 0.0)
    return torch.exp(ratio.clamp(-CLIP, CLIP))[:, None]


@register(TRANSFORMS, "ash")
def _ash(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    features = outputs.features
    count = _count_kept(features, step.percentile)
    least = features.topk(count, dim=1).values[:, count - 1 : count]
    is_equal = (features == least).double()
    room = count - (features > least).double().sum(dim=1, keepdim=True)
    is_first_equal = (is_equal > 0) & (is_equal.cumsum(dim=1) <= room)
    is_kept = (features > least) | is_first_equal
    total = features.sum(dim=1)
    if step.kind == "b":
        return outputs.with_features(torch.where(is_kept, total[:, None] / count, 0.0))
    shaped = torch.where(is_kept, features, 0.0)
    if step.kind == "s":
        shaped = shaped * _exp_ratio(total, shaped.sum(dim=1))
    return outputs.with_features(shaped)


@register(TRANSFORMS, "scale")
def _scale(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    factor = _exp_ratio(outputs.features.sum(dim=1), _sum_largest(outputs.features, step.percentile))
    bias = 0.0 if outputs.bias is None else outputs.bias
    return replace(outputs, features=outputs.features * factor, logits=factor * (outputs.logits - bias) + bias)


@register(TRANSFORMS, "lts")
def _lts(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    positive = outputs.features.clamp(min=0.0)
    kept = _sum_largest(positive, step.percentile)
    ratio = torch.where(kept > 0, positive.sum(dim=1) / torch.where(kept > 0, kept, 1.0), 1.0)
    factor = ratio[:, None] ** 2
    return replace(outputs, logits=factor * outputs.logits, weight=None, bias=None)


@register(TRANSFORMS, "project")
def _project(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    weight, bias = to_tensor(step.weight), to_tensor(step.bias)
    logits = outputs.features @ weight.T + bias
    if step.kind == "class":
        return replace(outputs, logits=logits, weight=weight, bias=bias)
    features = outputs.features @ to_tensor(step.filter) + to_tensor(step.offset)
    return replace(outputs, features=features, logits=logits)


@register(TRANSFORMS, "raw")
def _raw(step: FittedStep, outputs: TensorOutputs) -> TensorOutputs:
    scaled = outputs.raw * step.scale
    if outputs.weight is None or not _have_same_direction(outputs.raw, outputs.features):
        return replace(outputs, features=scaled, weight=None, bias=None)
    return outputs.with_features(scaled)


def _have_same_direction(raw: Tensor, features: Tensor) -> bool:
    """Check on the example of the tracer whether features are raw ones, as they are or at length one."""
    if raw.shape != features.shape:
        return False
    return bool(torch.allclose(raw, features) or torch.allclose(unit_rows(raw), features, atol=1e-2))
