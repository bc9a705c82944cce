"""Validate every array and setting that a caller passes, once, and convert arrays to plain NumPy.

Accepted are NumPy arrays, lists, pandas objects, torch tensors (any dtype, device, with or without gradient)
and anything with ``__array__``. Inputs are never written to.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Iterable
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold.errors import InvalidInput, RejectedNaN, UnknownName

Array: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
AnyArray: TypeAlias = npt.NDArray[Any]  # of any dtype
Integers: TypeAlias = npt.NDArray[np.integer[Any]]  # of any width
ArrayLike: TypeAlias = npt.ArrayLike  # NumPy, list, pandas, torch, anything with __array__
NaNPolicy: TypeAlias = Literal["error", "reject"]


def plain(value: ArrayLike, name: str) -> AnyArray:
    """Turn any array-like into a NumPy array without copying where possible; torch is never imported."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = _from_torch(value, name)
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        row = int(np.argwhere(np.ma.getmaskarray(value))[0][0])
        raise InvalidInput(f"{name} has a masked value in row {row}; fill or drop masked rows first")
    try:
        array = np.asarray(value)
    except OverflowError as error:
        raise InvalidInput(_BEYOND.format(name=name)) from error
    except ValueError as error:
        raise InvalidInput(f"{name} must be a rectangular array, got rows of different lengths") from error
    if array.dtype == object:
        array = _from_objects(array, name)
    if array.dtype.name == "bfloat16" or array.dtype.name.startswith("float8_"):  # ml_dtypes, as jax gives them
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} must hold numbers, got dtype {array.dtype}")
    return array


_BEYOND = "{name} holds integers beyond the range of float64 (or of 2^53 and more); rank or scale them first"


def _from_torch(tensor: Any, name: str) -> AnyArray:
    """Convert a tensor to a NumPy array; raise if it has no values or is stored in another form."""
    if tensor.is_sparse or str(tensor.layout) != "torch.strided":
        raise InvalidInput(f"{name} is a sparse tensor ({tensor.layout}); pass {name}.to_dense()")
    if tensor.is_meta:
        raise InvalidInput(f"{name} is a tensor on the device meta, which holds no values; compute it on a real device")
    if tensor.is_quantized:
        raise InvalidInput(f"{name} is a quantised tensor ({tensor.dtype}); pass {name}.dequantize()")
    plain_tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype).removeprefix("torch.").startswith(("bfloat16", "float8_")):  # NumPy has neither
        plain_tensor = plain_tensor.float()
    try:
        array: AnyArray = plain_tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise InvalidInput(
            f"{name} must hold numbers of a type that NumPy has, got a tensor of {tensor.dtype}"
        ) from error
    return array


def _from_objects(array: AnyArray, name: str) -> AnyArray:
    """Convert objects, as which pandas' nullable columns arrive: missing values become NaN, and text is an error."""
    values = list(array.flat)
    if all(isinstance(value, bool | np.bool_) for value in values):
        return array.astype(bool)
    numbers = np.empty(len(values))
    for place, value in enumerate(values):
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            numbers[place] = np.nan
            continue
        if isinstance(value, int) and abs(value) >= 2**53:
            raise InvalidInput(_BEYOND.format(name=name))
        if not isinstance(value, Real | np.bool_):
            raise InvalidInput(f"{name} must hold numbers, got {type(value).__name__} objects")
        try:
            numbers[place] = float(value)
        except OverflowError as error:
            raise InvalidInput(_BEYOND.format(name=name)) from error
    return numbers.reshape(array.shape)


def dims(array: AnyArray, name: str, ndim: int, *, empty: bool = False) -> None:
    """Raise unless ``array`` has ``ndim`` dimensions and, by default, at least one element."""
    if array.ndim != ndim:
        shapes = {1: "one-dimensional (N,)", 2: "two-dimensional (N, K)", 3: "three-dimensional (M, N, C)"}
        raise InvalidInput(f"{name} must be {shapes[ndim]}, got shape {array.shape}")
    if not empty and array.size == 0:
        raise InvalidInput(f"{name} is empty (shape {array.shape}); at least one row is needed")


def floats(value: ArrayLike, name: str, *, ndim: int = 1) -> npt.NDArray[np.floating[Any]]:
    """Validate a float array of ``ndim`` dimensions and keep its precision; integers become float64."""
    array = plain(value, name)
    if array.dtype.kind == "b":
        raise InvalidInput(f"{name} must be floats, got booleans; pass the scores themselves, not a comparison")
    dims(array, name, ndim)
    if array.dtype.kind == "f":
        return array
    if array.dtype.itemsize == 8 and (np.abs(array.astype(np.float64)) >= 2.0**53).any():
        raise InvalidInput(f"{name} holds integers of 2^53 or more, which float64 cannot hold exactly; rank them first")
    return array.astype(np.float64)


def finite(array: AnyArray, name: str) -> None:
    """Raise, naming the first row, if any element is NaN or infinite."""
    # the sum is not finite as soon as one element is not; the scan is needed only then (or on overflow)
    with np.errstate(invalid="ignore", over="ignore"):
        if np.isfinite(array.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(array)
    if bad.any():
        where = np.argwhere(bad)[0]
        row = int(where[0])
        value = array[tuple(where)]
        raise InvalidInput(f"{name} must be finite, got {value} in row {row} ({int(bad.sum())} such values)")


def confidence(value: ArrayLike, name: str = "conf", *, nan: NaNPolicy | None = None) -> Array:
    """Validate a confidence as C-contiguous float64; infinities are allowed, NaN is an error or is ranked lowest.

    ``nan`` is the caller's argument of that name, which the message mentions; None where the caller has none.
    """
    array = np.ascontiguousarray(floats(value, name), dtype=np.float64)
    if nan is not None:
        choice(nan, "nan", ("error", "reject"))
    missing = np.isnan(array)
    if missing.any():
        count, first = int(missing.sum()), int(missing.argmax())
        if nan != "reject":
            remedy = "fix the score"
            if nan == "error":
                remedy += ', or pass nan="reject" to rank such rows lowest'
            raise InvalidInput(f"{name} has NaN in row {first} ({count} of {array.size} rows); {remedy}")
        warnings.warn(f"{name}: {count} of {array.size} rows are NaN and are ranked lowest", RejectedNaN, stacklevel=3)
        array = np.where(missing, -np.inf, array)
    return array


def mask(value: ArrayLike, name: str) -> Mask:
    """Validate a boolean array; 0/1 numbers are accepted, so that a loss or label passed by mistake is an error."""
    array = plain(value, name)
    dims(array, name, 1)
    if array.dtype.kind != "b":
        bad = (array != 0) & (array != 1)
        if bad.any():
            row = int(bad.argmax())
            raise InvalidInput(f"{name} must be booleans or 0/1, got {array[row]} in row {row}")
        array = array.astype(bool)
    return np.ascontiguousarray(array)


def labels(value: ArrayLike, name: str = "labels", *, classes: int | None = None, ood: bool = True) -> Labels:
    """Validate integer class labels in [0, classes), and -1 for "no class of this model" where ``ood`` allows it."""
    array = plain(value, name)
    dims(array, name, 1)
    if array.dtype.kind == "b":
        raise InvalidInput(f"{name} must be integer class labels, got booleans")
    if array.dtype.kind == "f":
        fractional = ~np.isfinite(array) | (array != np.floor(array))
        if fractional.any():
            row = int(fractional.argmax())
            raise InvalidInput(f"{name} must be integer class labels, got {array[row]} in row {row}")
    lowest, note = 0, ""
    if ood:
        lowest, note = -1, " (-1 means no class of this model)"
    limit, span = 2**63, f">= {lowest}"
    if classes is not None:
        limit, span = classes, f"[{lowest}, {classes})"
    outside = (array < lowest) | (array >= limit)  # before the cast, which would wrap large numbers to negative ones
    if outside.any():
        row = int(outside.argmax())
        raise InvalidInput(f"{name} must be in {span}{note}, got {_format_label(array[row])} in row {row}")
    return array.astype(np.int64)


def _format_label(number: float) -> str:
    """Write a label; floats that are whole numbers without their point."""
    if abs(number) < 2**63:
        return str(int(number))
    return str(number)


def losses(value: ArrayLike, name: str = "loss") -> Array:
    """Validate losses of samples: finite float64."""
    array = np.ascontiguousarray(floats(value, name), dtype=np.float64)
    finite(array, name)
    return array


def same_rows(**arrays: AnyArray | None) -> int:
    """Raise unless all given arrays have the same number of rows; return that number.

    >>> same_rows(conf=np.zeros(3), loss=None, correct=np.ones(3))
    3
    """
    first, rows = "", -1
    for name, array in arrays.items():
        if array is None:
            continue
        if rows < 0:
            first, rows = name, len(array)
        elif len(array) != rows:
            raise InvalidInput(f"{name} has {len(array)} rows but {first} has {rows}")
    return rows


def choice(value: object, name: str, options: Iterable[str]) -> str:
    """Raise unless ``value`` is one of ``options``; the message suggests the nearest."""
    options = tuple(options)
    if value not in options:
        raise InvalidInput(f"{name}: {UnknownName.of('choice', str(value), options)}")
    return str(value)


def number(
    value: object, name: str, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> float:
    """Validate a real setting inside an interval.

    >>> number(0.95, "tpr", 0, 1)
    0.95
    """
    if isinstance(value, str):
        raise InvalidInput(f"{name} must be a number, got {value!r}")
    try:
        result = float(value)  # type: ignore[arg-type]  # whatever float() takes, NumPy scalars and tensors included
    except OverflowError as error:
        raise InvalidInput(f"{name} must be a number that float64 can hold, got a larger integer") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be a number, got {value!r}") from error
    is_inside = low <= result <= high  # False for NaN
    left, right = "[", "]"
    if open_low:
        is_inside = is_inside and result > low
        left = "("
    if open_high:
        is_inside = is_inside and result < high
        right = ")"
    if not is_inside:
        raise InvalidInput(f"{name} must be in {left}{low:g}, {high:g}{right}, got {value!r}")
    return result


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names as a tuple; a text is one name."""
    if isinstance(names, str):
        return (names,)
    return tuple(names)


def whole(value: object, name: str, low: int) -> int:
    """Validate an integer setting of at least ``low``."""
    try:
        result = operator.index(value)  # type: ignore[arg-type]  # a TypeError is what we look for
    except TypeError:
        result = low - 1
    if isinstance(value, bool) or result < low:
        raise InvalidInput(f"{name} must be a whole number of at least {low}, got {value!r}")
    return result


def joint(correct: ArrayLike, is_id: ArrayLike | None, **confidences: AnyArray | None) -> tuple[Mask, Mask | None]:
    """Validate ``correct`` and ``is_id`` as masks as long as the confidences; no OOD row may be correct."""
    right = mask(correct, "correct")
    inside = None
    if is_id is not None:
        inside = mask(is_id, "is_id")
    same_rows(correct=right, is_id=inside, **confidences)
    if inside is not None and (right & ~inside).any():
        row = int((right & ~inside).argmax())
        raise InvalidInput(
            f"correct must be False on OOD samples, got True in row {row} where is_id is False; "
            "no prediction is correct for an input of no known class"
        )
    return right, inside
