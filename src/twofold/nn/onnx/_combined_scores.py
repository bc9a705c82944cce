"""Scores that a network learnt, and combinations of scores."""

from __future__ import annotations

import torch
from torch import Tensor

from twofold.errors import InvalidInput
from twofold.nn.onnx._feature_scores import residual
from twofold.nn.onnx._logit_scores import entropy, log_odds
from twofold.nn.onnx._stable import softplus, to_tensor
from twofold.nn.onnx.steps import SCORES, FittedStep, TensorOutputs, register, run_chain


def _read_learned(name: str, outputs: TensorOutputs) -> Tensor:
    if name not in outputs.learned:
        raise InvalidInput(f"the gate reads learned[{name!r}], and this model gives no such value; it is another model")
    return outputs.learned[name]


@register(SCORES, "confidnet")
def _confidnet(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return _read_learned("confidnet", outputs)


@register(SCORES, "devries")
def _devries(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return _read_learned("devries", outputs)


@register(SCORES, "gambler")
def _gambler(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return 1.0 - _read_learned("reservation", outputs)


def _second_score(name: str, step: FittedStep, outputs: TensorOutputs) -> Tensor:
    """Compute one of the scores by which SIRC changes the first: a norm, or the residual."""
    if name == "residual" and step.mean is not None:  # as published
        return (outputs.features - to_tensor(step.mean)).abs().sum(dim=1)
    if name == "norm" or step.origin is None:
        return outputs.raw.abs().sum(dim=1)
    return residual(step, outputs)


@register(SCORES, "sirc")
def _sirc(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    if step.s1 == "msp":
        result = softplus(log_odds(outputs.logits, outputs.predictions))
    else:
        result = -torch.log((-entropy(step, outputs)).clamp(min=1e-300))
    for name, low, slope in zip(step.seconds, step.low.tolist(), step.slope.tolist(), strict=True):
        value = _second_score(name, step, outputs)
        result = result - softplus(-slope * (value - low))
    return result


def _standard_scores(step: FittedStep, outputs: TensorOutputs) -> list[Tensor]:
    """Compute the scores that are combined, each standardised by its training values."""
    scores = []
    for chain, centre, spread in zip(step.chains, step.centre.tolist(), step.spread.tolist(), strict=True):
        scores.append((run_chain(chain, outputs) - centre) / spread)
    return scores


@register(SCORES, "sum")
def _sum(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    scores = _standard_scores(step, outputs)
    weights = [1.0] * len(scores) if step.weights is None else step.weights
    weighted = [weight * score for weight, score in zip(weights, scores, strict=True)]
    return torch.stack(weighted).sum(dim=0)


@register(SCORES, "product")
def _product(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    penalties = [softplus(-score) for score in _standard_scores(step, outputs)]
    return -torch.stack(penalties).sum(dim=0)
