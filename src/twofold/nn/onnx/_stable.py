"""Numerically stable building blocks, made of operators that ONNX has."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from twofold._math import TINY


def to_tensor(array: npt.ArrayLike) -> Tensor:
    """Copy an array to a float64 tensor."""
    return torch.from_numpy(np.array(array, dtype=np.float64))


def log1p(x: Tensor) -> Tensor:
    """Compute log(1 + x) by its rounded sum, whose error cancels (Kahan): ONNX has no such operator."""
    u = 1.0 + x
    is_zero = u == 1.0
    return torch.where(is_zero, x, torch.log(u) * x / torch.where(is_zero, 1.0, u - 1.0))


def expm1(x: Tensor) -> Tensor:
    """Compute exp(x) - 1 for x at most 0, in the same way as :func:`log1p`."""
    u = torch.exp(x)
    is_zero, is_minus_one = u == 1.0, u < 1e-17
    log_u = torch.log(torch.where(is_zero | is_minus_one, 2.0, u))
    inside = (u - 1.0) * x / torch.where(is_zero | is_minus_one, 1.0, log_u)
    return torch.where(is_zero, x, torch.where(is_minus_one, -1.0, inside))


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + exp(x))."""
    return torch.clamp(x, min=0.0) + log1p(torch.exp(-x.abs()))


def take_columns(z: Tensor, columns: Tensor) -> Tensor:
    """Return one entry of each row."""
    return z.gather(1, columns[:, None])[:, 0]


def mask_columns(z: Tensor, columns: Tensor, value: float = -math.inf) -> Tensor:
    """Replace one entry of each row."""
    return torch.where(torch.arange(width_of(z)) == columns[:, None], value, z)


def width_of(table: Tensor) -> int:
    """Return the number of columns as a plain number, also during tracing."""
    return int(table.shape[1])


def norms(rows: Tensor) -> Tensor:
    """Compute the Euclidean norm of each row."""
    return (rows * rows).sum(dim=1).sqrt()


def unit_rows(rows: Tensor) -> Tensor:
    """Scale each row to norm 1."""
    return rows / norms(rows)[:, None].clamp(min=TINY)


def squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    """Compute the squared distance of every point from every centre."""
    products = points @ (-2.0 * centres.T)
    squares = products + (centres * centres).sum(dim=1) + (points * points).sum(dim=1, keepdim=True)
    return squares.clamp(min=0.0)


def log_probabilities(z: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log p and log(1 - p)."""
    log_p = functional.log_softmax(z, dim=1)
    top = log_p.argmax(dim=1)
    others = mask_columns(log_p, top)
    is_top = torch.arange(width_of(z)) == top[:, None]
    log_miss_of_top = others.logsumexp(dim=1, keepdim=True)
    log_miss_of_others = log1p(-torch.exp(others))
    return log_p, torch.where(is_top, log_miss_of_top, log_miss_of_others)


def gini_impurity(z: Tensor) -> Tensor:
    """Compute the sum over classes of p (1 - p)."""
    log_p, log_miss = log_probabilities(z)
    return torch.exp(log_p + log_miss).sum(dim=1)
