r"""Numerically safe primitives, written once and used everywhere.

SciPy has most of these, but importing ``scipy.special`` alone costs more than all of twofold's own import.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from twofold._checks import Array

Floats = npt.NDArray[np.floating[Any]]

TINY = 1e-12
"""Floor of a norm, a scale or a probability before it divides or its logarithm is taken."""

SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
"""Smallest positive float64 of full precision, which stands for positive numbers too small to hold."""


def logsumexp(logits: Floats, axis: int = -1) -> Array:
    r"""Compute :math:`\log \sum_k \exp z_k` with the maximum subtracted first, in float64.

    >>> float(logsumexp(np.array([1000.0, 1000.0])).round(4))
    1000.6931
    """
    z = np.asarray(logits, dtype=np.float64)
    top = z.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(z - top).sum(axis=axis)) + top.squeeze(axis))


def log_softmax(logits: Floats) -> Array:
    r"""Compute :math:`\log p_k = z_k - \mathrm{LSE}(z)` over the last axis, in float64."""
    z = np.asarray(logits, dtype=np.float64)
    z = z - z.max(axis=-1, keepdims=True)  # first, so that huge logits lose no digits
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def softmax(logits: Floats) -> Array:
    """Compute probabilities over the last axis, in float64."""
    return np.asarray(np.exp(log_softmax(logits)))


def log_odds(logits: Floats, predictions: npt.NDArray[np.integer[Any]] | None = None) -> Array:
    r"""Compute the log-odds of the predicted class: :math:`m = z_{\hat y} - \mathrm{LSE}_{k \ne \hat y}(z_k)`.

    Ranks exactly like the maximum softmax probability, :math:`p_{\hat y} = 1/(1+e^{-m})`, but never saturates:
    float32 softmax is exactly 1 once the margin passes 16.64, and such samples tie.
    One class alone gives +inf.

    >>> log_odds(np.array([[2.0, 1.0, 0.1]])).round(8)
    array([0.65884613])
    """
    z = np.asarray(logits, dtype=np.float64)
    z = z - z.max(axis=1, keepdims=True)  # first, so that huge logits lose no digits
    rows = np.arange(len(z))
    chosen = z.argmax(axis=1) if predictions is None else predictions
    top = z[rows, chosen].copy()
    z[rows, chosen] = -np.inf
    return top - logsumexp(z)


def sigmoid(x: Array) -> Array:
    """Compute the logistic function without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def harmonic(x: npt.ArrayLike) -> Array:
    r"""Compute harmonic numbers :math:`H_x = \psi(x+1) + \gamma` for any real :math:`x \ge 0`, to machine precision.

    Asymptotic series from 32 on; below, 32 steps of :math:`H_x = H_{x+1} - 1/(x+1)` lead there.

    >>> harmonic(np.array([0, 1, 2, 4, 0.5])).round(4)
    array([0.    , 1.    , 1.5   , 2.0833, 0.6137])
    """
    values = np.asarray(x, dtype=np.float64)
    small = values < 32
    y = np.where(small, values + 32, values)
    i2 = 1.0 / (y * y)
    result = np.log(y) + np.euler_gamma + 0.5 / y - i2 * (1 / 12 - i2 * (1 / 120 - i2 * (1 / 252 - i2 / 240)))
    if small.any():
        steps = (1.0 / (values[small][..., None] + np.arange(32, 0, -1))).sum(axis=-1)
        result = np.array(result)
        result[small] -= steps
    return np.asarray(result)


def log_factorial(x: npt.ArrayLike) -> Array:
    r"""Compute :math:`\ln \Gamma(x+1)`.

    >>> log_factorial(np.array([0.0, 3.0])).round(4)
    array([0.    , 1.7918])
    """
    from scipy.special import gammaln

    return np.asarray(gammaln(np.asarray(x, dtype=np.float64) + 1.0))


def unit(rows: Floats) -> Array:
    """Scale rows to length 1; rows of zeros stay.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8], [0. , 0. ]])
    """
    h = np.asarray(rows, dtype=np.float64)
    return h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), TINY)


def squared_distances(points: Array, centres: Array) -> Array:
    """Compute squared distances (N, C) by one matrix product, never below zero.

    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[25., 1.]])
    """
    gap = points @ (-2.0 * centres.T)
    gap += np.einsum("nd,nd->n", centres, centres)
    gap += np.einsum("nd,nd->n", points, points)[:, None]
    return np.maximum(gap, 0.0, out=gap)
