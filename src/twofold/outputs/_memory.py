"""Passes over large arrays: blocks of rows, memory maps, read-only views, instances built without a scan."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from twofold._checks import AnyArray, plain
from twofold.errors import InvalidInput

Made = TypeVar("Made")

BLOCK_BYTES = 1 << 24  # internal passes over large arrays hold about this much at a time


def row_slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """Split rows into slices of about ``BLOCK_BYTES`` (16 MiB).

    Parameters
    ----------
    rows : int
        Number of rows.
    row_bytes : int
        Bytes of one row.

    Returns
    -------
    iterator of slice
        Slices in order, of at least one row each.

    Examples
    --------
    >>> list(row_slices(5, BLOCK_BYTES // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def release(array: AnyArray) -> None:
    """Return the pages of a read-only memory map to the operating system; they are read again when needed.

    The system would do so under memory pressure. Until then a pass over a 10 GB file looks like 10 GB of memory.

    Parameters
    ----------
    array : ndarray
        Any array; nothing happens unless it is a view of a memory map opened with mode ``"r"``, where ``madvise``
        exists.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    memory: object = owner.base
    is_unchanged = getattr(owner, "mode", None) == "r"  # any other mode may hold changes that exist in memory alone
    if isinstance(memory, mmap.mmap) and is_unchanged and hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)


def read_only(array: AnyArray) -> AnyArray:
    """Return a view of the array through which it cannot be changed."""
    view = array.view()
    view.flags.writeable = False
    return view


def build_unchecked(kind: type[Made], fields: Mapping[str, object]) -> Made:
    """Create an instance of a frozen class from fields that were validated before, without calling its constructor.

    Parameters
    ----------
    kind : type
        The class.
    fields : mapping of str to object
        Values by attribute name.

    Returns
    -------
    object
        An instance of ``kind``.
    """
    made = object.__new__(kind)
    vars(made).update(fields)
    return made


def evenly_spaced_rows(rows: int, most: int) -> npt.NDArray[np.int64]:
    """Choose at most ``most`` of the rows, the first and the last among them."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.int64))


def is_tensor(value: object) -> bool:
    """Check whether a value is a tensor of torch, which NumPy cannot always convert by itself."""
    return hasattr(value, "detach")


def check_index(index: object, rows: int) -> slice | AnyArray:
    """Turn a row number, slice, boolean mask or integer array into an index for NumPy that is never empty."""
    nothing = f"the index selects none of the {rows} rows; outputs have at least one"
    if isinstance(index, slice):
        if not len(range(*index.indices(rows))):
            raise InvalidInput(nothing)
        return index
    if is_tensor(index):
        chosen = plain(index, "index")  # type: ignore[arg-type]  # a tensor is an array-like
    else:
        chosen = np.asarray(index)
    if chosen.ndim == 0 and chosen.dtype.kind in "iu":
        chosen = chosen[None]
    is_mask = chosen.dtype.kind == "b"
    if chosen.size == 0 or (is_mask and not chosen.any()):
        raise InvalidInput(nothing)
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise InvalidInput(
            f"index must be a row number, slice, boolean mask or array of row numbers, got {index!r:.80}"
        )
    if is_mask and len(chosen) != rows:
        raise InvalidInput(f"the boolean index has {len(chosen)} values but there are {rows} rows")
    if not is_mask:
        for row in (chosen.max(), chosen.min()):
            if not -rows <= row < rows:
                raise InvalidInput(f"row {row} is out of range; there are {rows} rows")
    return chosen
