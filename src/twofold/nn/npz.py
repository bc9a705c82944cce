"""Read the arrays of .npz files one at a time, in memory bounded by what the file declares and can hold."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._files import NPZ_DAMAGE
from twofold.errors import InvalidInput, UnknownName

AnyArray: TypeAlias = npt.NDArray[np.generic]

LARGEST_RATIO = 1032  # of deflated data: no stream expands further
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class NpzArchive:
    """Hold the path of an .npz file and the names of its arrays; each array is read when it is asked for.

    Build one with :meth:`open`.

    Parameters
    ----------
    path : Path
        The file.
    names : tuple of str
        Names of its arrays, in stored order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/set.npz", labels=[1, 2])
    ...     archive = NpzArchive.open(Path(folder) / "set.npz")
    ...     archive.names, archive.read("labels")
    (('labels',), array([1, 2]))
    """

    path: Path
    names: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> NpzArchive:
        """List the arrays of a file.

        Parameters
        ----------
        path : Path
            The .npz file.

        Returns
        -------
        NpzArchive
            The archive; no array is read yet.

        Raises
        ------
        InvalidInput
            If the file cannot be opened or is not an .npz file.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.namelist()
        except (zipfile.BadZipFile, OSError) as error:
            raise InvalidInput(f"{path} is not an .npz file, or is truncated: {error}") from error
        return cls(path, tuple(member.removesuffix(".npy") for member in members if member.endswith(".npy")))

    def read(self, name: str) -> AnyArray:
        """Read one array.

        Parameters
        ----------
        name : str
            Name of the array.

        Returns
        -------
        ndarray
            The array.

        Raises
        ------
        UnknownName
            If the file holds no such array; the message suggests the nearest names.
        InvalidInput
            If the array is damaged, holds Python objects, does not fit into memory, or has another size than its
            header declares.

        Notes
        -----
        Sizes are compared before memory is allocated: a small file cannot take all memory by declaring a large array.
        """
        if name not in self.names:
            raise UnknownName.of(f"array in {self.path}", name, self.names)
        try:
            with zipfile.ZipFile(self.path) as archive:
                member = archive.getinfo(f"{name}.npy")
                _check_ratio(member)
                with archive.open(member) as stream:
                    _check_declared_size(stream, member.file_size)
                with archive.open(member) as stream:
                    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
        except (*NPZ_DAMAGE, OSError) as error:
            raise InvalidInput(f"{self.path}: array {name!r} cannot be read: {error}") from error


def _check_ratio(member: zipfile.ZipInfo) -> None:
    """Raise if a member cannot have the size that the archive declares for it."""
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: LARGEST_RATIO}
    if member.compress_type not in ratios:
        raise ValueError("it is compressed by another method than np.savez and np.savez_compressed use")
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
