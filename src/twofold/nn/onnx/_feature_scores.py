"""Scores of features, as in :mod:`twofold.scores.distance`, ``neighbours`` and ``subspace``."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from twofold._math import TINY
from twofold.nn.onnx._stable import norms, squared_distances, take_columns, to_tensor, unit_rows, width_of
from twofold.nn.onnx.steps import SCORES, FittedStep, TensorOutputs, register


@register(SCORES, "mds")
def _mds(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    whitened = outputs.features @ to_tensor(step.whiten)
    if step.nearest:
        has_rows = ~np.isnan(step.centres[:, 0])
        return -squared_distances(whitened, to_tensor(step.centres[has_rows])).amin(dim=1)
    own_centre = to_tensor(step.centres)[outputs.predictions]
    return -((whitened - own_centre) ** 2).sum(dim=1)


@register(SCORES, "rmds")
def _rmds(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    by_class = squared_distances(outputs.features @ to_tensor(step.whiten), to_tensor(step.centres))
    to_all = squared_distances(outputs.features @ to_tensor(step.whiten_all), to_tensor(step.centre))
    return to_all[:, 0] - by_class.amin(dim=1)


@register(SCORES, "she")
def _she(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    pattern = to_tensor(step.patterns)
    if step.kind == "euclidean":
        return -norms(outputs.features - pattern[outputs.predictions])
    if step.kind == "cosine":
        return (unit_rows(outputs.features) * unit_rows(pattern)[outputs.predictions]).sum(dim=1)
    return (outputs.features * pattern[outputs.predictions]).sum(dim=1)


@register(SCORES, "cosine_weight")
def _cosine_weight(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    assert outputs.weight is not None
    return (unit_rows(outputs.features) @ unit_rows(outputs.weight).T).amax(dim=1)


@register(SCORES, "cosine_mean")
def _cosine_mean(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return (unit_rows(outputs.features) @ to_tensor(step.directions).T).amax(dim=1)


@register(SCORES, "fdbd")
def _fdbd(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    top = take_columns(outputs.logits, outputs.predictions)
    inverse = to_tensor(step.inverse)[outputs.predictions]
    distances = (top[:, None] - outputs.logits) * inverse
    if step.absolute:
        distances = distances.abs()
    boundaries = to_tensor(np.maximum((step.inverse > 0).sum(axis=1), 1))[outputs.predictions]
    from_mean = norms(outputs.features - to_tensor(step.mean)).clamp(min=TINY)
    return distances.sum(dim=1) / boundaries / from_mean


@register(SCORES, "gradnorm")
def _gradnorm(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    p = functional.softmax(outputs.logits, dim=1)
    return outputs.raw.abs().sum(dim=1) * (p - 1.0 / width_of(p)).abs().sum(dim=1)


@register(SCORES, "nci")
def _nci(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    centred = outputs.features - to_tensor(step.mean)
    along = (to_tensor(step.weight)[outputs.predictions] * centred).sum(dim=1)
    return along / norms(centred).clamp(min=TINY) + step.alpha * outputs.raw.abs().sum(dim=1)


@register(SCORES, "residual")
def residual(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    """Compute the negative norm of the feature outside the principal subspace."""
    return -norms((outputs.features - to_tensor(step.origin)) @ to_tensor(step.basis))


@register(SCORES, "vim")
def _vim(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    return outputs.logits.logsumexp(dim=1) + float(step.alpha) * residual(step, outputs)


@register(SCORES, "neco")
def _neco(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    features = outputs.raw if step.raw else outputs.features
    standard = (features - to_tensor(step.mean)) * to_tensor(step.scale)
    whole = norms(features if step.denominator == "raw" else standard)
    share = norms(standard @ to_tensor(step.basis).T) / whole.clamp(min=TINY)
    if not step.scale_by_logit:
        return share
    top = outputs.logits.amax(dim=1)
    return torch.where(top > 0, share * top, top)


def _norm_outside(rows: Tensor, basis: Tensor) -> Tensor:
    """Compute the norm of what a subspace leaves of each row."""
    inside = (rows @ basis.T) @ basis
    return norms(rows - inside)


@register(SCORES, "pca_error")
def _pca_error(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    features = outputs.raw if step.raw else outputs.features
    error = _norm_outside(features - to_tensor(step.means[0]), to_tensor(step.bases))
    share = error / norms(features).clamp(min=TINY)
    if step.fused:
        return (1.0 - share) * outputs.logits.logsumexp(dim=1)
    return -share


@register(SCORES, "kpca_error")
def _kpca_error(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    phi = unit_rows(outputs.features)
    if step.map == "fourier":
        waves = torch.cos(phi @ to_tensor(step.points).T + to_tensor(step.mixing))
        phi = math.sqrt(2.0 / len(step.points)) * waves
    elif step.map == "nystroem":
        kernel = torch.exp(-step.gamma * squared_distances(phi, to_tensor(step.points)))
        phi = kernel @ to_tensor(step.mixing)
    error = _norm_outside(phi - to_tensor(step.means[0]), to_tensor(step.bases))
    if step.normalised:
        return -(error * error) / norms(phi).clamp(min=TINY)
    return -error


@register(SCORES, "knn")
def _knn(step: FittedStep, outputs: TensorOutputs) -> Tensor:
    cosines = unit_rows(outputs.features) @ to_tensor(step.bank).T
    nearest = cosines.topk(step.rank, dim=1).values[:, step.rank - 1]
    return 2.0 * nearest - 2.0
