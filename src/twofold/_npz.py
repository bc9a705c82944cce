"""Read npz files in memory that is bounded by what they declare, can hold, and the machine has."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from twofold._checks import AnyArray
from twofold._files import open_regular
from twofold.errors import InvalidInput

# what NumPy and zipfile raise for npz files that are damaged or forged
NPZ_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, TypeError, LookupError, AttributeError),
    *(NotImplementedError, RuntimeError, OverflowError, MemoryError),
)
LARGEST_RATIO = 1032  # of deflated data: no stream expands further
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path) -> dict[str, AnyArray]:
    """Read the arrays of an npz file by key, and raise at anything else; nothing is unpickled.

    Parameters
    ----------
    path : Path
        The file, or a link to one.

    Returns
    -------
    dict from str to ndarray
        Every array of the file.

    Raises
    ------
    InvalidInput
        If the file is damaged, is not an npz file, holds Python objects, or unpacks to more than the machine's memory.
    OSError
        If it is missing or cannot be opened.
    """
    with open_regular(path) as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InvalidInput(f"{path} holds a single array, not an npz archive; write it with np.savez")
            assert archive.zip is not None  # it is until the archive is closed
            check_archive(archive.zip, path)
            arrays = dict(archive)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, OSError) as error:
            raise InvalidInput(f"{path} is damaged or not an npz file ({error}); write it again") from error
        except MemoryError as error:
            raise InvalidInput(f"{path} holds an array that does not fit into memory, or is damaged") from error
        except (*NPZ_DAMAGE, SyntaxError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"{path} must be an npz file of plain arrays, and it is not, or holds Python objects; "
                "write it with np.savez from numbers and strings"
            ) from error
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InvalidInput(f"{path} holds {key!r:.80}, which is not an array; write it with np.savez")
    return arrays


def check_archive(archive: zipfile.ZipFile, path: object) -> None:
    """Raise InvalidInput if reading all arrays would take more memory than the file can hold or the machine has."""
    total = 0
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        try:
            check_member(archive, member)
        except ValueError as error:
            raise InvalidInput(f"{path} is damaged: array {name!r:.80} cannot be read: {error}") from error
        total += member.file_size
    memory = find_memory()
    if memory is not None and total > memory:
        raise InvalidInput(
            f"{path} unpacks to {total:,} bytes, and this machine has {memory:,} bytes of memory; write fewer rows "
            "into one file"
        )


def check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError unless a member can have the size that the archive and its own header declare.

    Nothing but the header is read: a small file cannot take all memory by declaring a large array.
    """
    _check_ratio(member)
    if not member.filename.endswith(".npy"):
        return
    with archive.open(member) as stream:
        _check_declared_size(stream, member.file_size)


def _check_ratio(member: zipfile.ZipInfo) -> None:
    """Raise if a member cannot have the size that the archive declares for it."""
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: LARGEST_RATIO}
    if member.compress_type not in ratios:
        raise NotImplementedError("it is compressed by another method than np.savez and np.savez_compressed use")
    if member.file_size > ratios[member.compress_type] * member.compress_size:
        raise ValueError(
            f"the archive declares {member.file_size:,} bytes, which {member.compress_size:,} stored bytes cannot hold"
        )


def _check_declared_size(stream: IO[bytes], size: int) -> None:
    """Raise unless shape and dtype in the header of an array need just the bytes that follow it."""
    version = np.lib.format.read_magic(stream)
    if version not in HEADER_READERS:
        raise ValueError(f"its header has the unknown version {version}")
    shape, _, dtype = HEADER_READERS[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    declared = dtype.itemsize
    for length in shape:
        declared *= int(length)
    available = size - stream.tell()
    if declared != available:
        raise ValueError(f"its header declares {declared:,} bytes, the archive holds {available:,}")


def find_memory() -> int | None:
    """Find the bytes of memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no such function on Windows, no such name elsewhere
        return None
