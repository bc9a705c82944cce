"""Scores of logits, as in :mod:`twofold.scores.logits`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from twofold._math import TINY
from twofold.nn.onnx._stable import (
    expm1,
    gini_impurity,
    log1p,
    log_probabilities,
    mask_columns,
    take_columns,
    to_tensor,
    width_of,
)
from twofold.nn.onnx.steps import SCORES, FittedStep, TensorOutputs, register

NEARLY = 1.0 - 1e-16  # largest probability below 1


@register(SCORES, "msp")
def _msp(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    """Compute the log-odds of the predicted class, or of the one with the largest logit."""
    chosen = outputs.predictions
    if step.of == "largest":
        chosen = outputs.logits.argmax(dim=1)
    return log_odds(outputs.logits, chosen)


def log_odds(logits: Tensor, chosen: Tensor) -> Tensor:
    """Compute the log-odds of the chosen class of each row."""
    others = mask_columns(logits, chosen)
    return take_columns(logits, chosen) - others.logsumexp(dim=1)


@register(SCORES, "mls")
def _mls(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return outputs.logits.amax(dim=1)


@register(SCORES, "maxlogit_pnorm")
def _maxlogit_pnorm(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    z = outputs.logits - outputs.logits.mean(dim=1, keepdim=True)
    top = z.amax(dim=1)
    if step.p == 0:
        return top
    largest = z.abs().amax(dim=1)
    are_equal = largest <= TINY
    scale = torch.where(are_equal, 1.0, largest)
    powers = (z / scale[:, None]).abs() ** float(step.p)
    norm = scale * powers.sum(dim=1) ** (1.0 / step.p)
    return torch.where(are_equal, 0.0, top / torch.where(are_equal, 1.0, norm))


@register(SCORES, "margin")
def _margin(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    first, second = outputs.logits.topk(2, dim=1).values.unbind(dim=1)
    return torch.exp(first - outputs.logits.logsumexp(dim=1)) * -expm1(second - first)


@register(SCORES, "entropy")
def entropy(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    """Compute the negative entropy; the term of the top class does not lose its digits."""
    log_p = functional.log_softmax(outputs.logits, dim=1)
    top = log_p.argmax(dim=1)
    others = mask_columns(torch.exp(log_p), top, 0.0)
    top_p = torch.exp(take_columns(log_p, top))
    log_top_p = log1p(-others.sum(dim=1).clamp(max=NEARLY))
    return (others * log_p).sum(dim=1) + top_p * log_top_p


@register(SCORES, "gini")
def _gini(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return -gini_impurity(outputs.logits)


@register(SCORES, "collision")
def _collision(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return log1p(-gini_impurity(outputs.logits).clamp(max=NEARLY))


@register(SCORES, "energy")
def _energy(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    z = outputs.logits / step.temperature
    if step.weights is not None:
        z = z + to_tensor(np.log(step.weights))
    return step.temperature * z.logsumexp(dim=1)


@register(SCORES, "gen")
def _gen(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    log_p, log_miss = log_probabilities(outputs.logits)
    product = log_p + log_miss
    if step.top < width_of(product):
        product = product.gather(1, log_p.topk(step.top, dim=1).indices)
    return -torch.exp(step.gamma * product).sum(dim=1)


@register(SCORES, "renyi")
def _renyi(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    log_p = functional.log_softmax(outputs.logits, dim=1)
    if step.top is not None and step.top < width_of(log_p):
        log_p = log_p.topk(step.top, dim=1).values
    if abs(step.alpha - 1.0) < 1e-6:
        return (torch.exp(log_p) * log_p).sum(dim=1)
    return (step.alpha * log_p).logsumexp(dim=1) / (step.alpha - 1.0)


@register(SCORES, "guessing")
def _guessing(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    classes = width_of(outputs.logits)
    log_p = functional.log_softmax(outputs.logits, dim=1).topk(classes, dim=1).values
    guesses = torch.arange(1, classes + 1).double()
    return -(torch.exp(log_p) * guesses).sum(dim=1)


@register(SCORES, "klm")
def _klm(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    log_p = functional.log_softmax(outputs.logits, dim=1)
    p = torch.exp(log_p)
    divergence = (p * log_p).sum(dim=1, keepdim=True) - p @ to_tensor(step.log_typical).T
    return -divergence.amin(dim=1)


def _dirichlet(step: FittedStep, logits: Tensor) -> Tensor:
    """Compute the parameters of the Dirichlet distribution that evidential logits stand for."""
    if step.evidence == "relu":
        return logits.relu() + 1.0
    if step.evidence == "softplus":
        # softplus, which ONNX Runtime has in single precision only
        return logits.relu() + torch.log(1.0 + torch.exp(-logits.abs())) + 1.0
    return torch.exp(logits.clamp(-10.0, 10.0)) + 1.0


@register(SCORES, "edl_max")
def _edl_max(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    alpha = _dirichlet(step, outputs.logits)
    return alpha.amax(dim=1) / alpha.sum(dim=1)


@register(SCORES, "edl_vacuity")
def _edl_vacuity(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    alpha = _dirichlet(step, outputs.logits)
    return -width_of(outputs.logits) / alpha.sum(dim=1)
