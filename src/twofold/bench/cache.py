"""Store on disk what a benchmark has computed; each entry knows what it was computed from.

An entry is one safetensors file: arrays by name, a key for each of them (a digest of all that the array depends on:
data, settings, code), and a digest of the arrays. A damaged file counts as missing. One process writes.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from twofold._checks import Array
from twofold._files import arrays_digest, replacing, sort_header
from twofold.errors import RunError

FORMAT = "twofold cell 2"


def digest(*parts: object) -> str:
    """Compute a short digest of plain values.

    Parameters
    ----------
    *parts : object
        Numbers, text, and lists and mappings of them.

    Returns
    -------
    str
        32 hexadecimal digits; the order of keys in mappings does not matter.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def source_digest(*modules: str) -> str:
    """Compute a digest of the source of modules and folders of the package, so that a change of code is noticed.

    Parameters
    ----------
    *modules : str
        Paths inside the package, such as ``"metrics"`` or ``"bench/protocols.py"``.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    root = Path(str(files("twofold")))
    hashed = hashlib.sha256()
    for module in modules:
        path = root.joinpath(*module.split("/"))
        sources = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for source in sources:
            hashed.update(source.read_bytes())
    return hashed.hexdigest()[:32]


@cache
def definition_digest(*makers: Callable[..., object]) -> str:
    """Compute a digest of the source of functions and classes, also of those that a user registered.

    Parameters
    ----------
    *makers : callable
        Functions and classes.

    Returns
    -------
    str
        32 hexadecimal digits. The source is that of the whole module; without a source file, the compiled code counts.
    """
    parts = []
    for maker in makers:
        try:
            parts.append(inspect.getsource(inspect.getmodule(maker) or maker))
        except (OSError, TypeError):  # typed at a prompt: what it was compiled to
            function = getattr(maker, "score", maker)
            compiled = getattr(function, "__code__", None)
            parts.append(repr((maker.__qualname__, compiled and compiled.co_code)))
    return digest(parts)


@dataclass(frozen=True, eq=False)
class CacheEntry:
    """Hold arrays with the key of each, and plain facts about them.

    Parameters
    ----------
    arrays : mapping of str to ndarray, default={}
        Arrays by name.
    keys : mapping of str to str, default={}
        Digest of what each array depends on.
    facts : mapping, default={}
        Plain values.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def current(self, keys: Mapping[str, str]) -> dict[str, Array]:
        """Select the arrays whose stored key is still valid.

        Parameters
        ----------
        keys : mapping of str to str
            Current key by name of the array.

        Returns
        -------
        dict of str to ndarray
            The arrays whose key equals the stored one.

        Examples
        --------
        >>> CacheEntry({"a": np.zeros(1)}, {"a": "old"}).current({"a": "new"})
        {}
        """
        found = {}
        for name, key in keys.items():
            if self.keys.get(name) == key and name in self.arrays:
                found[name] = self.arrays[name]
        return found


@dataclass(frozen=True)
class Cache:
    """Store entries in a folder.

    Parameters
    ----------
    folder : Path
        The folder, which must exist; :meth:`open` creates it.
    """

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> Cache:
        """Create the folder if it does not exist.

        Parameters
        ----------
        folder : Path
            The folder.

        Returns
        -------
        Cache
            The entries in it.

        Raises
        ------
        RunError
            If the folder cannot be created.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{folder} cannot be written to ({error.strerror}); choose another folder") from error
        return cls(folder)

    def read(self, name: str) -> CacheEntry:
        """Read an entry.

        Parameters
        ----------
        name : str
            Name of the entry.

        Returns
        -------
        CacheEntry
            The entry, empty if there is none or it is damaged.
        """
        from safetensors import SafetensorError, safe_open

        path = self.folder / f"{name}.safetensors"
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            stored_digest = metadata.pop("sha256", None)
            if metadata.get("format") != FORMAT or stored_digest != arrays_digest(arrays, metadata):
                return CacheEntry()
            about = json.loads(metadata["about"])
            keys, facts = dict(about["keys"]), dict(about["facts"])
        except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError):
            return CacheEntry()
        return CacheEntry(arrays, keys, facts)

    def write(self, name: str, entry: CacheEntry) -> None:
        """Replace an entry, whole or not at all.

        Parameters
        ----------
        name : str
            Name of the entry.
        entry : CacheEntry
            What to store.

        Raises
        ------
        RunError
            If the folder cannot be written to.
        """
        from safetensors.numpy import save

        about = json.dumps({"keys": dict(entry.keys), "facts": dict(entry.facts)}, sort_keys=True)
        arrays = {key: np.ascontiguousarray(array) for key, array in entry.arrays.items()}
        metadata = {"format": FORMAT, "about": about}
        metadata["sha256"] = arrays_digest(arrays, metadata)
        try:
            with replacing(self.folder / f"{name}.safetensors") as file:
                file.write(sort_header(save(arrays, metadata=metadata)))
        except OSError as error:
            raise RunError(
                f"{self.folder} cannot be written to ({error.strerror}); finished work is kept: run the same command "
                "again to resume"
            ) from error
