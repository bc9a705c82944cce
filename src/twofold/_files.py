"""Writing files whole or not at all, and through no link; digests by which damage is noticed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from twofold._checks import AnyArray
from twofold.errors import RunError, TwofoldError

if sys.platform != "win32":
    import fcntl

# absent on Windows, where opening cannot distinguish a link from a file, and text files are translated
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe must not wait for its other end


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file whole or not at all: a temporary neighbour, fsync, rename, fsync of the folder.

    Any number of threads and processes may write the same path at once: each has its own temporary file, and
    the last rename wins. Temporary files of writers that were killed are removed on the way. A link at ``path`` is
    replaced, not followed.

    Parameters
    ----------
    path : Path
        The file to write; its folder must exist.

    Yields
    ------
    BinaryIO
        The temporary file, opened for writing.

    Raises
    ------
    OSError
        If the file cannot be written; it names ``path``, and what was there before is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name) / "page.html"
    >>> with replacing(target) as file:
    ...     _ = file.write(b"<p>whole")
    >>> target.read_bytes()
    b'<p>whole'
    >>> folder.cleanup()
    """
    with naming(path):
        remove_leftovers(path)
        temporary, handle = _create_temporary(path)
        try:
            with open(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if os.name == "posix":
                    os.replace(temporary, path)  # while the lock still tells others that the file is in use
            if os.name != "posix":
                os.replace(temporary, path)  # elsewhere an open file cannot be renamed
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the system name the file that was to be written, and not a temporary one or none."""
    try:
        yield
    except TwofoldError:
        raise
    except OSError as error:
        named = error.filename
        if error.errno is None or (named is not None and not is_temporary(Path(os.fsdecode(named)).name, path.name)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def remove_leftovers(path: Path) -> None:
    """Delete the temporary files that killed writers of ``path`` left beside it; those in use stay.

    Parameters
    ----------
    path : Path
        The file that :func:`replacing` was to write.
    """
    if sys.platform == "win32":
        return  # no lock tells there which are in use
    with suppress(OSError):  # a folder that cannot be listed or changed, or has no locks, keeps its leftovers
        for name in os.listdir(path.parent):
            if is_temporary(name, path.name):
                _remove_unused(path.with_name(name))


def is_temporary(name: str, target: str | None = None) -> bool:
    """Tell whether a file name is one that :func:`replacing` gives to a temporary file.

    Parameters
    ----------
    name : str
        The name, without its folder.
    target : str, optional
        The name of the file to be written; by default any.

    Examples
    --------
    >>> is_temporary(".gate.json.4711.0123456789abcdef.tmp", "gate.json"), is_temporary("gate.json")
    (True, False)
    """
    stem = ".+" if target is None else re.escape(target)
    return re.fullmatch(rf"\.{stem}\.[0-9]+(\.[0-9a-f]{{16}})?\.tmp", name, re.DOTALL) is not None


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file ``path``: alone, or shared with other readers. A process that dies releases it.

    Threads of one process exclude each other as processes do. On Windows nothing is locked, and one writer at a time
    is the user's care.

    Parameters
    ----------
    path : Path
        The lock file; it is created where it is missing. It stays empty, and stays behind: deleting it would let a
        third process lock another file of the same name.
    shared : bool, default=False
        Whether others may hold it, shared, at the same time.

    Raises
    ------
    RunError
        If ``path`` is a link, a folder or anything else but a file.
    """
    handle = open_plain(path, os.O_RDWR | os.O_CREAT)
    try:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_plain(path: Path, flags: int) -> int:
    """Open a separate file for writing: no link, no pipe or device, and under one name only.

    Parameters
    ----------
    path : Path
        The file.
    flags : int
        Flags of :func:`os.open`; those that keep it from following links and from waiting are added. ``O_TRUNC``
        must not be among them: it would empty the file before it is looked at.

    Returns
    -------
    int
        The file descriptor.

    Raises
    ------
    RunError
        If ``path`` is something else; nothing is changed then.
    """
    with suppress(FileNotFoundError):
        _check_plain(path, os.lstat(path))  # before opening, which can trigger a device
    handle = os.open(path, flags | NO_FOLLOW | NO_WAIT | BINARY, 0o666)
    try:
        _check_plain(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading, and raise at a pipe or device, which could hold the reader for ever.

    Parameters
    ----------
    path : Path
        The file, or a link to one.

    Raises
    ------
    RunError
        If ``path`` is not a regular file.
    OSError
        If it is missing or cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | NO_WAIT | BINARY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise RunError(f"{path} is not a regular file; a pipe, device or folder holds no data of twofold")
    except BaseException:
        os.close(handle)
        raise
    return open(handle, "rb")


def read_regular(path: Path) -> bytes:
    """Read a file whole; a folder, device or pipe, which might never end, is a RunError.

    Parameters
    ----------
    path : Path
        The file, or a link to one.
    """
    with open_regular(path) as file:
        return file.read()


def sync_folder(path: Path) -> None:
    """Make renames and deletions in a folder survive a power cut."""
    if os.name != "posix":
        return  # a folder cannot be opened elsewhere
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def arrays_digest(arrays: Mapping[str, AnyArray], texts: Mapping[str, str]) -> str:
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


def sort_header(content: bytes) -> bytes:
    """Put the metadata of a safetensors file in order, so that equal contents are equal bytes.

    The library writes metadata in an order that differs from call to call.

    Parameters
    ----------
    content : bytes
        What ``safetensors.numpy.save`` or ``safetensors.torch.save`` returned.

    Returns
    -------
    bytes
        The same file with sorted metadata.
    """
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    ordered = {"__metadata__": dict(sorted(metadata.items())), **header}
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
    padded = text.ljust(-(-len(text) // 8) * 8)  # tensors begin at a multiple of eight bytes
    return len(padded).to_bytes(8, "little") + padded + content[8 + length :]


def _check_plain(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise RunError(f"{path} is a link; twofold writes to no file through a link, delete it")
    if not stat.S_ISREG(found.st_mode):
        raise RunError(f"{path} is not a regular file; twofold would write there, delete it")
    if found.st_nlink > 1:
        raise RunError(f"{path} is one of {found.st_nlink} names of the same file; writing would change them all")


def _create_temporary(path: Path) -> tuple[Path, int]:
    """Create a neighbour of ``path`` under a name nobody has, and lock it as long as it is open."""
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | BINARY, 0o666)
        except FileExistsError:
            continue
        try:
            held = _lock_at_once(handle)
        except OSError:
            return temporary, handle  # a file system without locks: nobody else can lock and delete it either
        if held and os.fstat(handle).st_nlink > 0:
            return temporary, handle
        os.close(handle)  # another writer took it for a leftover before it was locked


def _remove_unused(temporary: Path) -> None:
    """Delete a temporary file unless its writer, who keeps it locked, is alive."""
    try:
        handle = os.open(temporary, os.O_RDONLY | NO_FOLLOW | NO_WAIT | BINARY)
    except OSError:
        return  # gone, or nothing that replacing() made
    try:
        if _lock_at_once(handle):
            temporary.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _lock_at_once(handle: int) -> bool:
    """Lock an open file without waiting; False if another holds it, OSError where there are no locks."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def json_with_digest(content: object, *, kind: str, version: int) -> bytes:
    """Write plain values as JSON with a format, a version and, last, the SHA-256 of all that.

    Parameters
    ----------
    content : dict, list, str, number or None
        What JSON can hold.
    kind : str
        What kind of file it is.
    version : int
        Of the format; it grows when the content changes in a way that older code cannot read.

    Returns
    -------
    bytes
        The file, which :func:`parse_json_with_digest` reads.
    """
    whole = {"format": kind, "version": version, "content": content}
    digest = hashlib.sha256(json.dumps(whole).encode()).hexdigest()
    return json.dumps({**whole, "sha256": digest}, indent=1).encode() + b"\n"


def parse_json_with_digest(raw: bytes, path: Path, *, kind: str, version: int, remedy: str) -> Any:
    """Read what :func:`json_with_digest` wrote; anything else is an error.

    Parameters
    ----------
    raw : bytes
        The file.
    path : Path
        Its name, for errors.
    kind, version : str, int
        What it must be.
    remedy : str
        What to do where it cannot be read, the end of the message.

    Returns
    -------
    object
        The content.

    Raises
    ------
    RunError
        If the file is damaged, of another format or version, or has no digest.

    Examples
    --------
    >>> raw = json_with_digest({"a": [1, 2]}, kind="example", version=1)
    >>> parse_json_with_digest(raw, Path("a.json"), kind="example", version=1, remedy="write it again")
    {'a': [1, 2]}
    """
    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: not complete JSON; {remedy}") from error
    if not isinstance(whole, dict) or "sha256" not in whole:
        raise RunError(f"{path} has no digest, as an older format had none; {remedy}")
    if whole.get("format") != kind:
        raise RunError(f"{path} has another format than {kind}; {remedy}")
    if whole.get("version") != version:
        raise RunError(f"{path} has another format version than {version}, which this twofold reads; {remedy}")
    if set(whole) != {"format", "version", "content", "sha256"} or raw != json_with_digest(
        whole["content"], kind=kind, version=version
    ):
        raise RunError(f"{path} is damaged or was edited: its SHA-256 does not fit; {remedy}")
    return whole["content"]
