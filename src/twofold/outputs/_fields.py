"""The fields of outputs: their names, and the check of the content of each array."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from twofold._checks import AnyArray, ArrayLike, dims, finite, floats, plain
from twofold._checks import labels as class_labels
from twofold._math import Floats
from twofold.errors import InvalidInput
from twofold.outputs._memory import is_tensor, read_only

FieldValues: TypeAlias = dict[str, Any]  # fields of outputs by name: arrays, mappings of arrays, a Head, names

FINE, COARSE = 1e-3, 1e-2  # tolerances of comparisons in usual and in half precision
NAMES = ("ids", "groups")  # integers or strings that identify a row or its group
ARRAYS = ("logits", "labels", "features", "predictions", *NAMES, "passes")
FIELDS = (*ARRAYS, "layers", "learned", "head", "class_names")
PASS_ARRAYS = ("mean_prob", "mean_logits", "mean_entropy", "prob_std")
KNOWN_KEYS = (
    *ARRAYS,
    "layers/NAME",
    "learned/NAME",
    *(f"passes.{name}" for name in PASS_ARRAYS),
    "passes.count",
)


def check_rows(name: str, value: ArrayLike, *, classes: int | None = None, label: str | None = None) -> AnyArray:
    """Validate the content of one array of :meth:`Outputs.flat`.

    Parameters
    ----------
    name : str
        Name of the array, which decides dtype and number of dimensions.
    value : array-like
        The array, with rows first.
    classes : int, optional
        Number of classes; labels and predictions must lie below it.
    label : str, optional
        How messages call the array; by default ``name``.

    Returns
    -------
    ndarray
        A read-only view: int64 for labels and predictions, int64 or bytes for ids and groups, otherwise floats.

    Raises
    ------
    InvalidInput
        If shape or dtype are wrong, or a value is not allowed: not finite (NaN for ``learned/NAME``), or not a class.

    Examples
    --------
    >>> check_rows("labels", [0, 1, -1], classes=2)
    array([ 0,  1, -1])
    """
    if label is None:
        label = name
    if name == "labels":
        return read_only(class_labels(value, label, classes=classes))
    if name == "predictions":
        return read_only(class_labels(value, label, classes=classes, ood=False))
    if name in NAMES:
        return read_only(_encode_names(value, label))
    if name.startswith("learned/"):
        array = check_floats(value, label, 1)
        if np.isnan(array).any():  # infinite confidences are legal
            row = int(np.isnan(array).argmax())
            raise InvalidInput(f"{label} must not be NaN, got NaN in row {row}; fix the confidence that made it")
        return read_only(array)
    axes = {"passes": 3, "passes.mean_entropy": 1}.get(name, 2)
    array = check_floats(value, label, axes)
    finite(array, label)
    return read_only(array)


def check_floats(value: ArrayLike, name: str, ndim: int) -> Floats:
    """Convert to floats in their own precision; long doubles become float64, and bytes are in native order."""
    array = floats(value, name, ndim=ndim)
    kind = array.dtype.newbyteorder("=")
    if kind.itemsize > 8:
        kind = np.dtype(np.float64)
    return array.astype(kind, copy=False)


def _encode_names(value: ArrayLike, name: str) -> AnyArray:
    """Convert integers to int64, and strings to UTF-8 bytes, so that files hold them without Python objects."""
    array = plain(value, name) if is_tensor(value) else np.asarray(value)
    is_text = array.dtype.kind == "T"  # NumPy's variable-width strings
    if array.dtype.kind == "O":
        is_text = all(isinstance(item, str) for item in array.flat)
    if is_text:
        array = array.astype(str)
    dims(array, name, 1)
    if array.dtype.kind not in "iuU":
        odd = next((x for x in array if not isinstance(x, str)), None)
        raise InvalidInput(f"{name} must be integers or strings, all of one kind, got {odd!r} (dtype {array.dtype})")
    if array.dtype.kind != "U":
        if (array >= 2**63).any():
            raise InvalidInput(f"{name} must be integers below 2^63, or strings, got {array.max()}")
        return array.astype(np.int64)
    try:
        return np.char.encode(array, "utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{name} must be text that UTF-8 can hold ({error.reason})") from error


def decode_names(stored: AnyArray | None, name: str) -> AnyArray | None:
    """Decode stored ids or groups to int64 or str."""
    if stored is None or stored.dtype.kind != "S":
        return stored
    try:
        return read_only(np.char.decode(stored, "utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} must be UTF-8 text ({error}); the file that holds them is damaged") from error


def check_probabilities(value: ArrayLike) -> Floats:
    """Check that every row is a distribution over classes; half precision becomes float32."""
    tolerance = COARSE if is_half(value) else FINE
    array = plain(value, "probs")
    has_one_column = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    if has_one_column and array.size:
        raise InvalidInput(
            f"probs must be (N, C), one column per class, got shape {array.shape}; "
            "for two classes pass np.column_stack([1 - p, p])"
        )
    probs = check_floats(array, "probs", 2)
    if probs.dtype.itemsize < 4:
        probs = probs.astype(np.float32)
    finite(probs, "probs")
    low, high = float(probs.min()), float(probs.max())
    if low < 0 or high > 1 + tolerance:
        raise InvalidInput(f"probs must be in [0, 1], got values from {low:g} to {high:g}; pass logits as logits")
    total = probs.sum(axis=1, dtype=np.float64)
    off = np.abs(total - 1)
    if off.max() > tolerance:
        row = int((off > tolerance).argmax())
        raise InvalidInput(
            f"every row of probs must sum to 1, got {total[row]:g} in row {row}; give every class a column, "
            "or pass logits as logits"
        )
    return probs


def is_half(value: object) -> bool:
    """Check whether a value was passed in half precision.

    Validation turns bfloat16 into float32, so this looks at the original value.

    Parameters
    ----------
    value : object
        An array, tensor or :class:`Head`.

    Returns
    -------
    bool
        True for float16 and bfloat16, and for a head that was built from them.

    Examples
    --------
    >>> is_half(np.zeros(2, np.float16)), is_half(np.zeros(2))
    (True, False)
    """
    was_half = bool(getattr(value, "_half", False))
    return was_half or str(getattr(value, "dtype", "")).endswith("float16")
