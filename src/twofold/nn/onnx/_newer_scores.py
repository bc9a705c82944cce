"""Scores of :mod:`twofold.scores.activations`, ``gradients`` and ``zero_shot``."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from twofold._math import TINY, unit
from twofold.nn.onnx._stable import norms, softplus, squared_distances, to_tensor, unit_rows, width_of
from twofold.nn.onnx.steps import SCORES, FittedStep, TensorOutputs, register
from twofold.scores.activations import FLOOR, GAMMA
from twofold.scores.zero_shot import group_negatives


@register(SCORES, "joint_energy")
def _joint_energy(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return softplus(outputs.logits).sum(dim=1)


def _size(features: Tensor) -> Tensor:
    """Compute the sum of the absolute entries of each row, never 0."""
    return features.abs().sum(dim=1).clamp(min=TINY)


@register(SCORES, "caref")
def _caref(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    away = outputs.features - to_tensor(step.means)[outputs.predictions]
    return -away.abs().sum(dim=1) / _size(outputs.features)


def _base_score(logits: Tensor, base: str) -> Tensor:
    """Compute the score of the logits that cadref divides by."""
    if base == "energy":
        return logits.logsumexp(dim=1)
    if base == "mls":
        return logits.amax(dim=1)
    p = functional.softmax(logits, dim=1)
    if base == "msp":
        return p.amax(dim=1)
    classes = width_of(p)
    largest = p.topk(min(max(10, classes // 10), classes), dim=1).values
    return 1.0 / ((largest * (1.0 - largest)) ** GAMMA).sum(dim=1).clamp(min=TINY)


@register(SCORES, "cadref")
def _cadref(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    assert outputs.weight is not None
    away = outputs.features - to_tensor(step.means)[outputs.predictions]
    away = away * outputs.weight.sign()[outputs.predictions]
    size = _size(outputs.features)
    raising = away.clamp(min=0.0).sum(dim=1) / size
    lowering = (-away).clamp(min=0.0).sum(dim=1) / size
    level = float(step.level)
    value = (_base_score(outputs.logits, step.base) + float(step.shift)).clamp(min=FLOOR * level)
    return -(raising / value + lowering / level)


@register(SCORES, "weiper")
def _weiper(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    repeats, classes, width = step.weights.shape
    logits = outputs.features @ to_tensor(step.weights.reshape(-1, width)).T
    logits = logits.reshape(-1, repeats, classes) + to_tensor(step.bias)
    return functional.softmax(logits, dim=2).amax(dim=2).mean(dim=1)


@register(SCORES, "graduncertainty")
def _graduncertainty(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    p = functional.softmax(outputs.logits, dim=1)
    delta = width_of(p) * p - 1.0
    return (delta * delta).sum(dim=1) * ((outputs.features * outputs.features).sum(dim=1) + 1.0)


@register(SCORES, "gradorth")
def _gradorth(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    p = functional.softmax(outputs.logits, dim=1)
    return norms(p - 1.0 / width_of(p)) * norms(outputs.features @ to_tensor(step.basis))


@register(SCORES, "grood")
def _grood(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    away = outputs.features - to_tensor(step.outlier)
    distance = norms(away)
    to_classes = [norms(outputs.features - to_tensor(mean)) for mean in step.classes]
    q = functional.softmax(-torch.stack([*to_classes, distance], dim=1), dim=1)[:, -1]
    gradients = (q / distance.clamp(min=TINY))[:, None] * away
    bank = to_tensor(step.bank)
    nearest = bank[squared_distances(gradients, bank).argmin(dim=1)]
    difference = gradients - nearest
    return -(difference * difference).sum(dim=1)


def _class_rows(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    """Return the unit embeddings of the classes: those given, or the rows of the head."""
    if step.text is not None:
        return to_tensor(unit(step.text))
    assert outputs.weight is not None
    return unit_rows(outputs.weight)


@register(SCORES, "mcm")
def _mcm(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    cosines = unit_rows(outputs.features) @ _class_rows(step, outputs).T
    return functional.softmax(cosines / step.temperature, dim=1).amax(dim=1)


@register(SCORES, "neglabel")
def _neglabel(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    images = unit_rows(outputs.features)
    known = (images @ _class_rows(step, outputs).T / step.temperature).logsumexp(dim=1)
    negatives = group_negatives(step.negatives, step.groups, step.seed, width_of(images))
    cosines = images @ to_tensor(negatives.reshape(-1, negatives.shape[2])).T
    by_group = cosines.reshape(-1, negatives.shape[0], negatives.shape[1])
    unknown = (by_group / step.temperature).logsumexp(dim=2)
    shares = -softplus(unknown - known[:, None])
    return shares.logsumexp(dim=1) - math.log(len(negatives))
