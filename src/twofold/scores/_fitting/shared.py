"""Share what several scores compute from one training set.

Fits receive the very arrays that :class:`~twofold.outputs.Outputs` holds, so a result is remembered by the identity of
its arrays for as long as they live: fitting forty scores on one set reads it a handful of times. Only read-only arrays
are remembered (those of outputs are); anything else is computed again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar

import numpy as np

from twofold.scores._fitting.summary import Summary

P = ParamSpec("P")
T = TypeVar("T")


def once(function: Callable[P, T]) -> Callable[P, T]:
    """Remember the result for each set of array arguments, and forget it with the arrays.

    Parameters
    ----------
    function : callable
        A function of arrays and hashable values, all passed by position. Its result must not be, or be a view of, one
        of its arguments.

    Returns
    -------
    callable
        The same function; it computes again where an array is writeable.

    Examples
    --------
    >>> calls = []
    >>> total = once(lambda a: calls.append(1) or a.sum())
    >>> a = np.arange(3.0)
    >>> a.flags.writeable = False
    >>> float(total(a)), float(total(a)), len(calls)
    (3.0, 3.0, 1)
    """
    known: dict[tuple[Hashable, ...], T] = {}
    lock = RLock()

    @wraps(function)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> T:
        arrays = [value for value in args if isinstance(value, np.ndarray)]
        is_summary = any(isinstance(value, Summary) for value in args)
        if kwargs or is_summary or any(array.flags.writeable for array in arrays):
            return function(*args, **kwargs)
        key = tuple(map(_identify, args))
        with lock:
            if key not in known:
                known[key] = function(*args, **kwargs)
                for array in arrays:
                    weakref.finalize(array, known.pop, key, None)
            return known[key]

    return remembered


def _identify(value: object) -> Hashable:
    """Return what distinguishes an argument: the identity of an array, or type and value."""
    if isinstance(value, np.ndarray):
        return "array", id(value)
    return type(value), value
