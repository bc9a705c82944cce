"""Losses of unit vectors around a prototype of each class, and how prototypes follow them (CIDER)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from twofold import _checks
from twofold._math import TINY
from twofold.errors import InvalidInput

COMPACTNESS_BASE = 0.07  # what the released code divides the temperature by in either loss
DISPERSION_BASE = 0.1


def move_prototypes(prototypes: Tensor, units: Tensor, labels: Tensor, momentum: float = 0.95) -> Tensor:
    r"""Move each prototype towards the unit vectors of its class, row by row.

    .. math:: m_y \leftarrow \frac{a m_y + (1 - a) u}{\lVert a m_y + (1 - a) u \rVert}

    Parameters
    ----------
    prototypes : Tensor of shape (C, D), float
        Prototypes of length one.
    units : Tensor of shape (N, D), float
        Unit vectors, in the order in which they count.
    labels : Tensor of shape (N,), int64
        Class of each vector, from 0 to C - 1.
    momentum : float, default=0.95
        Share a of a prototype that each row leaves, from 0 to 1; 0.95 in CIDER, 0.5 on CIFAR-100.

    Returns
    -------
    Tensor of shape (C, D)
        The moved prototypes; gradients flow to ``units`` and ``prototypes``, which stay as they are.

    Raises
    ------
    InvalidInput
        If shapes do not fit together, or the momentum is out of range.

    Notes
    -----
    Rows of different classes do not touch each other, so the first rows of all classes are taken together, then the
    second ones, and so on: as many steps as the largest class has rows.

    References
    ----------
    Ming et al., ICLR 2023, arXiv:2203.04450.

    Examples
    --------
    >>> prototypes = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> moved = move_prototypes(prototypes, torch.tensor([[0.0, 1.0]]), torch.tensor([0]), momentum=0.5)
    >>> [[round(value, 4) for value in row] for row in moved.tolist()]
    [[0.7071, 0.7071], [0.0, 1.0]]
    """
    share = _checks.number(momentum, "momentum", 0.0, 1.0)
    _check_vectors(units, prototypes)
    _check_labels(labels, units)
    order = torch.argsort(labels, stable=True)
    counts = torch.bincount(labels, minlength=len(prototypes))
    first = counts.cumsum(0) - counts  # where the rows of each class begin in that order
    moved = prototypes
    for turn in range(int(counts.max()) if len(labels) else 0):
        classes = torch.nonzero(counts > turn).flatten()
        rows = order[first[classes] + turn]
        mixed = share * moved[classes] + (1.0 - share) * units[rows]
        moved = moved.index_copy(0, classes, functional.normalize(mixed, dim=1, eps=TINY))
    return moved


def compactness(units: Tensor, prototypes: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    r"""Compute how far unit vectors are from the prototypes of their classes (CIDER).

    .. math:: L = -\frac{\tau}{0.07} \frac{1}{N} \sum_i \log \frac{\exp(u_i \cdot m_{y_i} / \tau)}
              {\sum_c \exp(u_i \cdot m_c / \tau)}

    Parameters
    ----------
    units : Tensor of shape (N, D), float
        Unit vectors, at least one.
    prototypes : Tensor of shape (C, D), float
        Prototypes of length one.
    labels : Tensor of shape (N,), int64
        Class of each vector, from 0 to C - 1.
    temperature : float, default=0.1
        Temperature :math:`\tau`, above 0.

    Returns
    -------
    Tensor of shape ()
        The loss.

    Raises
    ------
    InvalidInput
        If shapes do not fit together, or the temperature is out of range.

    Notes
    -----
    The factor is that of the released code: with the default temperature the cross-entropy weighs 1.43.

    References
    ----------
    Ming et al., ICLR 2023, arXiv:2203.04450.

    Examples
    --------
    >>> prototypes = torch.eye(2)
    >>> round(float(compactness(prototypes, prototypes, torch.tensor([0, 1]), temperature=1.0)), 4)
    4.4752
    """
    tau = _check_temperature(temperature)
    _check_vectors(units, prototypes)
    _check_labels(labels, units)
    cross_entropy = functional.cross_entropy(units @ prototypes.T / tau, labels)
    return tau / COMPACTNESS_BASE * cross_entropy


def dispersion(prototypes: Tensor, temperature: float = 0.1) -> Tensor:
    r"""Compute how near prototypes are to each other (CIDER).

    .. math:: L = \frac{\tau}{0.1} \frac{1}{C} \sum_i \log \frac{1}{C - 1} \sum_{j \ne i} \exp(m_i \cdot m_j / \tau)

    Parameters
    ----------
    prototypes : Tensor of shape (C, D), float
        Prototypes of length one, at least two.
    temperature : float, default=0.1
        Temperature :math:`\tau`, above 0.

    Returns
    -------
    Tensor of shape ()
        The loss, from -10 for two opposite prototypes to 10 for equal ones.

    Raises
    ------
    InvalidInput
        If there are fewer than two prototypes, or the temperature is out of range.

    References
    ----------
    Ming et al., ICLR 2023, arXiv:2203.04450.

    Examples
    --------
    >>> opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> round(float(dispersion(opposite)), 4), round(float(dispersion(opposite.abs())), 4)
    (-10.0, 10.0)
    """
    tau = _check_temperature(temperature)
    count = len(prototypes)
    if prototypes.ndim != 2 or count < 2:
        raise InvalidInput(f"prototypes must be (C, D) with C at least 2, got {tuple(prototypes.shape)}")
    cosines = prototypes @ prototypes.T / tau
    itself = torch.eye(count, dtype=torch.bool, device=prototypes.device)
    others = cosines.masked_fill(itself, -math.inf).logsumexp(dim=1) - math.log(count - 1)
    return tau / DISPERSION_BASE * others.mean()


def _check_temperature(temperature: float) -> float:
    return _checks.number(temperature, "temperature", 0.0, math.inf, open_low=True, open_high=True)


def _check_vectors(units: Tensor, prototypes: Tensor) -> None:
    """Raise InvalidInput unless vectors and prototypes are rows of one length."""
    if units.ndim != 2 or prototypes.ndim != 2 or units.shape[1] != prototypes.shape[1]:
        raise InvalidInput(
            "units and prototypes must be (N, D) and (C, D) with the same D, "
            f"got {tuple(units.shape)} and {tuple(prototypes.shape)}"
        )


def _check_labels(labels: Tensor, units: Tensor) -> None:
    """Raise InvalidInput unless there is a label for each vector."""
    if labels.ndim != 1 or labels.dtype != torch.int64 or len(labels) != len(units):
        raise InvalidInput(
            f"labels must be int64 of shape ({len(units)},), got {labels.dtype} of {tuple(labels.shape)}"
        )
