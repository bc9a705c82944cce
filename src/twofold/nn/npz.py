"""Read the arrays of .npz files one at a time, in memory bounded by what the file declares and can hold."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._npz import NPZ_DAMAGE, check_member
from twofold.errors import InvalidInput, UnknownName

AnyArray: TypeAlias = npt.NDArray[np.generic]


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
                check_member(archive, member)
                with archive.open(member) as stream:
                    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
        except (*NPZ_DAMAGE, OSError) as error:
            raise InvalidInput(f"{self.path}: array {name!r} cannot be read: {error}") from error
