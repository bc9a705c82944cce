"""Store on disk what a benchmark has computed; each entry knows what it was computed from.

An entry is one safetensors file: arrays by name, a key for each of them (a digest of all that the array depends on:
data, settings, code), and a digest of the arrays. A damaged file counts as missing. One process writes.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from twofold._checks import Array
from twofold._files import arrays_digest, replacing
from twofold.errors import RunError

FORMAT = "twofold cell 2"


def digest(*parts: Any) -> str:
    """Compute a short digest of plain values.

    Parameters
    ----------
    *parts : Any
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
def code(*modules: str) -> str:
    """Compute a digest of the source of modules and folders of the package, so that a change of code is noticed.

    Parameters
    ----------
    *modules : str
        Paths inside the package, such as ``"metrics"`` or ``"stats/table.py"``.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    hashed = hashlib.sha256()
    for module in modules:
        place = files("twofold").joinpath(*module.split("/"))
        found = sorted(place.rglob("*.py")) if place.is_dir() else [place]  # type: ignore[attr-defined]
        for file in found:
            hashed.update(file.read_bytes())
    return hashed.hexdigest()[:32]


@cache
def code_of(*makers: Any) -> str:
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
            parts.append(repr((maker.__qualname__, getattr(function, "__code__", None) and function.__code__.co_code)))
    return digest(parts)


@dataclass(frozen=True, eq=False)
class Entry:
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
        >>> Entry({"a": np.zeros(1)}, {"a": "old"}).current({"a": "new"})
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
        The folder; it is created if it does not exist.

    Raises
    ------
    RunError
        If the folder cannot be created.
    """

    folder: Path

    def __post_init__(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.folder} cannot be written to ({error.strerror}); choose another folder") from error

    def read(self, name: str) -> Entry:
        """Read an entry.

        Parameters
        ----------
        name : str
            Name of the entry.

        Returns
        -------
        Entry
            The entry, empty if there is none or it is damaged.
        """
        from safetensors import SafetensorError, safe_open

        path = self.folder / f"{name}.safetensors"
        try:
            with safe_open(path, framework="numpy") as file:
                told = file.metadata() or {}
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            digest = told.pop("sha256", None)
            if told.get("format") != FORMAT or digest != arrays_digest(arrays, told):
                return Entry()
            about = json.loads(told["about"])
            keys, facts = dict(about["keys"]), dict(about["facts"])
        except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError, RecursionError):
            return Entry()
        return Entry(arrays, keys, facts)

    def write(self, name: str, entry: Entry) -> None:
        """Replace an entry, whole or not at all.

        Parameters
        ----------
        name : str
            Name of the entry.
        entry : Entry
            What to store.

        Raises
        ------
        RunError
            If the folder cannot be written to.
        """
        from safetensors.numpy import save

        about = json.dumps({"keys": dict(entry.keys), "facts": dict(entry.facts)}, sort_keys=True)
        arrays = {key: np.ascontiguousarray(array) for key, array in entry.arrays.items()}
        told = {"format": FORMAT, "about": about}
        told["sha256"] = arrays_digest(arrays, told)
        try:
            with replacing(self.folder / f"{name}.safetensors") as file:
                file.write(save(arrays, metadata=told))
        except OSError as error:
            raise RunError(
                f"{self.folder} cannot be written to ({error.strerror}); what was finished before is kept, the same "
                "command goes on from there"
            ) from error
