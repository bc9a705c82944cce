"""The last linear layer of a classifier, and the check that it gives the logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twofold._checks import AnyArray, Array, ArrayLike, finite
from twofold._math import Floats
from twofold._notebook import card
from twofold.errors import InvalidInput
from twofold.outputs._fields import COARSE, FINE, check_floats, is_half
from twofold.outputs._memory import evenly_spaced_rows, read_only, release, row_slices

LAW_ROWS = 256  # rows on which features @ weight.T + bias is compared with the logits


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Head:
    """Hold the last linear layer of a classifier: ``logits = features @ weight.T + bias``.

    Parameters
    ----------
    weight : array-like of shape (C, D)
        Weight as ``torch.nn.Linear`` keeps it: one row per class, one column per feature.
    bias : array-like of shape (C,), optional
        Bias of each class; without it zeros are used.

    Raises
    ------
    InvalidInput
        If a value is not finite, or ``bias`` does not have one value per row of ``weight``.

    Examples
    --------
    >>> head = Head(weight=[[1.0, 0.0], [0.0, 2.0]], bias=[0.5, 0.0])
    >>> head.logits(np.array([[3.0, 1.0]]))
    array([[3.5, 2. ]])
    """

    weight: Floats
    bias: Floats

    def __init__(self, weight: ArrayLike, bias: ArrayLike | None = None) -> None:
        weights = check_floats(weight, "head.weight", 2)
        finite(weights, "head.weight")
        if bias is None:
            biases = np.zeros(len(weights), weights.dtype)
        else:
            biases = check_floats(bias, "head.bias", 1)
        finite(biases, "head.bias")
        if len(biases) != len(weights):
            raise InvalidInput(
                f"head.bias has {len(biases)} values but head.weight has {len(weights)} rows (shape {weights.shape}); "
                "weight is (C, D) and bias (C,), one row and one value per class"
            )
        half = is_half(weight) or is_half(bias)
        # a frozen dataclass refuses assignment, so fields are set through vars()
        vars(self).update(weight=read_only(weights), bias=read_only(biases), _half=half)

    def logits(self, features: Floats) -> Array:
        """Compute ``features @ weight.T + bias`` in float64, a block of rows at a time.

        Parameters
        ----------
        features : ndarray of shape (N, D)
            Input of the layer, in any float precision; memory-mapped arrays are read block by block.

        Returns
        -------
        ndarray of shape (N, C)
            The logits, float64.

        Examples
        --------
        >>> Head(weight=[[1.0, 0.0], [0.0, 2.0]]).logits(np.array([[3.0, 1.0]]))
        array([[3., 2.]])
        """
        weight, bias = self.weight.astype(np.float64).T, self.bias.astype(np.float64)
        result = np.empty((len(features), len(bias)))
        for rows in row_slices(len(features), 8 * features.shape[1]):
            np.matmul(features[rows].astype(np.float64), weight, out=result[rows])
            release(features)
        result += bias
        return result

    def __repr__(self) -> str:
        classes, columns = self.weight.shape
        return f"Head({classes} classes, {columns} features)"

    def _repr_html_(self) -> str:
        classes, columns = self.weight.shape
        return card("Head", {"classes": classes, "features": columns, "type": str(self.weight.dtype)})

    def same_as(self, other: Head) -> bool:
        """Check whether both heads hold the same numbers.

        Parameters
        ----------
        other : Head
            The head to compare with.

        Returns
        -------
        bool
            True if weights and biases are equal element by element, whatever their precision.

        Examples
        --------
        >>> Head(weight=[[1.0, 0.0]]).same_as(Head(weight=[[1.0, 0.0]], bias=[0.0]))
        True
        """
        return np.array_equal(self.weight, other.weight) and np.array_equal(self.bias, other.bias)


def check_head(
    logits: AnyArray, features: AnyArray, head: Head, *, half: bool = False, where: str = "features"
) -> None:
    """Raise unless ``features @ head.weight.T + head.bias`` gives the logits on 256 evenly spaced rows.

    Parameters
    ----------
    logits : ndarray of shape (N, C)
        Logits of the model.
    features : ndarray of shape (N, D)
        Input of the last linear layer.
    head : Head
        The last linear layer.
    half : bool, default=False
        Use the tolerance of half precision (1e-2 instead of 1e-3, relative to ``max(1, max|logit|)``) even where the
        dtypes do not show it, such as for bfloat16 stored as float32.
    where : str, default="features"
        How the message calls the features.

    Raises
    ------
    InvalidInput
        If a logit differs by more than the tolerance; the message names the row.

    Examples
    --------
    >>> check_head(np.eye(2), np.eye(2), Head(np.eye(2)))
    """
    is_coarse = half or is_half(logits) or is_half(features) or is_half(head)
    tolerance = COARSE if is_coarse else FINE
    gap, row = measure_head_gap(logits, features, head)
    if gap > tolerance:
        raise InvalidInput(
            f"{where} @ head.weight.T + head.bias must equal logits to {tolerance:g} of max(1, max|logit|), "
            f"got a relative difference of {gap:.3g} in row {row}; features must be the exact input of the "
            "model's last linear layer (after pooling, activation and normalisation, dropout off), for the "
            "same rows in the same order, and head its weight and bias; pass head=None if there is none"
        )


def check_head_shape(head: Head, classes: int, columns: int | None) -> None:
    """Raise unless the head gives ``classes`` logits from features of ``columns`` columns.

    Parameters
    ----------
    head : Head
        The last linear layer.
    classes : int
        Number of classes.
    columns : int or None
        Number of features; None if it is not known.

    Raises
    ------
    InvalidInput
        If the shape of the weight does not fit; the message says if it looks transposed.

    Examples
    --------
    >>> check_head_shape(Head(np.zeros((10, 512))), 10, 512)
    """
    shape = head.weight.shape
    hint = ""
    if shape != (classes, columns) and shape == (columns, classes):
        hint = "; it looks transposed, pass Head(weight.T, bias)"
    if shape[0] != classes:
        raise InvalidInput(
            f"head.weight must be (C, D), one row per class, got shape {shape} for {classes} classes{hint}"
        )
    if columns is not None and shape[1] != columns:
        raise InvalidInput(
            f"head.weight must be (C, D), one column per feature, got shape {shape} "
            f"but features has {columns} columns{hint}"
        )


def measure_head_gap(logits: AnyArray, features: AnyArray, head: Head) -> tuple[float, int]:
    """Return the largest difference relative to max(1, max|logit|) on 256 evenly spaced rows, and its row.

    Parameters
    ----------
    logits : ndarray of shape (N, C)
        Logits of the model.
    features : ndarray of shape (N, D)
        Input of the last linear layer.
    head : Head
        The last linear layer.

    Returns
    -------
    gap : float
        Largest difference between the logits and ``head.logits(features)``, relative to ``max(1, max|logit|)``.
    row : int
        Row in which it is found.
    """
    rows = evenly_spaced_rows(len(logits), LAW_ROWS)
    expected = logits[rows].astype(np.float64)
    differences = np.abs(head.logits(features[rows]) - expected).max(axis=1)
    worst = int(differences.argmax())
    scale = max(1.0, np.abs(expected).max())
    return float(differences[worst] / scale), int(rows[worst])
