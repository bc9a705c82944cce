"""Writing files so that a killed process never leaves half of one, and digests by which damage is noticed."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from twofold.errors import RunError

if sys.platform != "win32":
    import fcntl


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file whole or not at all: a temporary neighbour, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames and deletions in a folder survive a power cut."""
    if os.name != "posix":
        return  # a folder cannot be opened elsewhere
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def arrays_digest(arrays: Mapping[str, npt.NDArray[Any]], texts: Mapping[str, str]) -> str:
    """Compute the SHA-256 of named arrays and texts, whatever their order.

    Names, dtypes, shapes and bytes of the arrays all count, each preceded by its length, so that no two different
    contents are hashed as the same bytes.

    Parameters
    ----------
    arrays : mapping from str to ndarray
        Plain arrays of numbers.
    texts : mapping from str to str
        Further fields of the file, such as its format and settings.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> one = arrays_digest({"a": np.zeros((2, 3))}, {"format": "x"})
    >>> other = arrays_digest({"a": np.zeros((3, 2))}, {"format": "x"})
    >>> len(one), one == other
    (64, False)
    """
    hashed = hashlib.sha256()

    def add(part: bytes) -> None:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)

    for name in sorted(texts):
        add(name.encode())
        add(texts[name].encode())
    add(b"arrays")
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        add(name.encode())
        add(f"{array.dtype.str} {arrays[name].shape}".encode())
        add(array.tobytes())
    return hashed.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which is created if absent; a process that dies lets go.

    Parameters
    ----------
    path : Path
        The lock file. It stays empty, and stays behind: deleting it would let a third process lock another file of
        the same name.

    Raises
    ------
    RunError
        If ``path`` is a symbolic link or not a regular file.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():
        raise RunError(f"{path} is a symbolic link, and locks follow none; delete it")
    handle = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise RunError(f"{path} is not a regular file; delete it")
        if sys.platform != "win32":  # elsewhere, take care that one process writes at a time
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_regular(path: Path) -> bytes:
    """Read a file whole; a folder, device or pipe, which might never end, is a RunError."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise RunError(f"{path} is not a regular file")
        return file.read()
