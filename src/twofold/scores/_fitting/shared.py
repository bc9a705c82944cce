"""What several scores need of one training set is computed once and shared.

Fits receive the very arrays that :class:`~twofold.outputs.Outputs` holds, so a result is remembered by the identity of
its arrays for as long as they live: fitting forty scores on one set reads it a handful of times. Only read-only arrays
are remembered (those of outputs are); anything else is computed anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def once(function: Callable[..., T]) -> Callable[..., T]:
    """Remember the result for each set of array arguments, and forget it with the arrays.

    The result must not be, or be a view of, one of the arguments.

    >>> calls = []
    >>> total = once(lambda a: calls.append(1) or a.sum())
    >>> a = np.arange(3.0)
    >>> a.flags.writeable = False
    >>> float(total(a)), float(total(a)), len(calls)
    (3.0, 3.0, 1)
    """
    known: dict[tuple[Any, ...], T] = {}
    lock = RLock()

    @wraps(function)
    def remembered(*args: Any) -> T:
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        if any(a.flags.writeable for a in arrays):
            return function(*args)
        key = tuple(("array", id(a)) if isinstance(a, np.ndarray) else (type(a), a) for a in args)
        with lock:
            if key not in known:
                known[key] = function(*args)
                for array in arrays:
                    weakref.finalize(array, known.pop, key, None)
            return known[key]

    return remembered
