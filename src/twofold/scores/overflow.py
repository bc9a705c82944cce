"""One clear error where the values of the inputs are too large to square, in place of infinities and NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from twofold.errors import InvalidInput, TwofoldError
from twofold.outputs import Outputs

R = TypeVar("R")
HUGE = 1e16  # beyond this, squares and products of features may leave float32, and further on float64


def guard_overflow(name: str, arrays: Mapping[str, object], compute: Callable[[], R]) -> R:
    """Compute, and turn an overflow into one error where the input values are huge.

    Parameters
    ----------
    name : str
        Name of the step, for the error.
    arrays : mapping of str to object
        What the computation reads.
    compute : callable
        The computation; it is repeated without the guard if it overflows on ordinary values.

    Returns
    -------
    object
        What ``compute`` returns.

    Raises
    ------
    InvalidInput
        If the computation fails, and an array holds values whose squares overflow.

    Examples
    --------
    >>> guard_overflow("norm", {"features": np.ones(2)}, lambda: "computed")
    'computed'
    """
    try:
        with np.errstate(over="raise", invalid="raise"):
            return compute()
    except (FloatingPointError, np.linalg.LinAlgError, ValueError) as error:
        if isinstance(error, TwofoldError):
            raise
        reject_huge(name, arrays.values())
        if not isinstance(error, FloatingPointError):
            raise
    return compute()  # the inputs are ordinary: compute again, with the warnings of the step itself


def reject_huge(name: str, values: Iterable[object]) -> None:
    """Raise if arrays hold numbers whose squares cannot be computed.

    Parameters
    ----------
    name : str
        Name of the step, for the error.
    values : iterable of object
        Arrays, mappings of arrays, and outputs; anything else is ignored.

    Raises
    ------
    InvalidInput
        If a value exceeds 1e16.
    """
    for value in values:
        if isinstance(value, Outputs):
            reject_huge(name, [value.logits, value.features, value.layers])
        elif isinstance(value, Mapping):
            reject_huge(name, value.values())
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
            largest = max(float(value.max()), -float(value.min()))
            if largest > HUGE:
                raise InvalidInput(
                    f"{name} cannot be computed: it was given values up to {largest:.3g}, whose squares overflow; "
                    "scale the features down, the same for all data sets"
                )
