"""Store the outputs of one model on several data sets in a folder, called a run.

    runs/resnet18-s0/
      run.json                 manifest: format, provenance, and of every file role, shapes, dtypes, SHA-256
      head.safetensors         the last linear layer, once per run
      test.safetensors         one file per data set; rows are the first axis of every tensor
      train.safetensors.part   a data set that is still being written in blocks, and
      train.safetensors.journal  which of its blocks are finished
      run.lock                 held while the manifest changes

A file counts once the manifest names it, and the manifest changes by one rename. Whenever a process is killed, readers
find the last complete state. Files are mapped into memory, never read whole.

A run may come from an untrusted source. Manifest and journal are checked against everything that ``Run`` itself would
write, so they cannot name a file outside the folder, and nothing is ever written through a link.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import math
import os
import platform
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import numpy as np
import numpy.typing as npt

from twofold._checks import ArrayLike, choice, whole
from twofold._files import is_temporary, locked, naming, open_plain, open_regular, replacing, sync_folder
from twofold._json import decode_json, encode_json
from twofold.errors import Damaged, InvalidInput, RunError, UnknownName
from twofold.outputs import (
    KNOWN_KEYS,
    NAMES,
    PASS_ARRAYS,
    AnyArray,
    Head,
    Outputs,
    assemble,
    check_head,
    check_head_shape,
    check_rows,
    is_half,
    release,
    row_slices,
    trusted,
)
from twofold.roles import ROLES

FORMAT, VERSION = "twofold-run", 1
MANIFEST, LOCK, HEAD = "run.json", "run.lock", "head.safetensors"
PATIENCE = 5.0  # seconds for which a reader retries while other processes change what it reads
MANIFEST_BYTES = HEADER_BYTES = 100_000_000  # limit of safetensors itself; a larger file is not a manifest or header
DEPTH = 32  # maximum nesting of lists and dictionaries in provenance
FRESH = 100_000_000  # nanoseconds: two versions of a file so young may share inode, size and time stamp
ALIGNMENT = 64  # of the first byte after a safetensors header: a cache line, and more than any dtype needs
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}

Tensors = dict[str, tuple[str, tuple[int, ...]]]  # name -> safetensors dtype and shape
Found = TypeVar("Found")


@dataclass(frozen=True)
class _File:
    """A safetensors file as the manifest knows it."""

    file: str
    bytes: int
    sha256: str
    tensors: Tensors


@dataclass(frozen=True)
class _DataSet:
    """One data set of the manifest."""

    role: str
    rows: int
    uses_head: bool
    pass_count: int | None
    stored: _File


@dataclass(frozen=True)
class _Manifest:
    """The content of run.json, without its format marks and checksum."""

    provenance: dict[str, Any]
    classes: int | None
    class_names: tuple[str, ...] | None
    head: _File | None
    data: dict[str, _DataSet]


class Run:
    """Store the outputs of one model by data set, with roles and provenance, in a folder.

    Use :meth:`create` for a new run and :meth:`open` for an existing one. ``run[name]`` gives the :class:`Outputs` of a
    data set as memory-mapped arrays, ``name in run`` tests for one, and iteration gives the names.

    Parameters
    ----------
    path : str or path-like
        The folder. The constructor does not touch it; :meth:`create` and :meth:`open` do.

    Attributes
    ----------
    path : Path
        The folder.

    Raises
    ------
    UnknownName
        By ``run[name]``, if there is no such data set.
    RunError
        By any access, if the run or one of its files is missing or damaged.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = Run.create(f"{folder.name}/resnet18-s0", model="resnet18", seed=0)
    >>> run.add("cifar10-test", Outputs([[2.0, 0.0], [0.0, 1.0]], labels=[0, 0]), role="test")
    >>> run["cifar10-test"].correct, run.names(role="test")
    (array([ True, False]), ['cifar10-test'])
    >>> run.verify()
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._seen: tuple[tuple[int, int, int], _Manifest] | None = None
        self._right: set[str] = set()  # digests of files whose labels were checked

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str,
        class_names: Sequence[str] | None = None,
        head: Head | None = None,
        command: str | None = None,
        seed: int | None = None,
        **provenance: Any,
    ) -> Run:
        """Create a run in a new folder.

        Parameters
        ----------
        path : str or path-like
            The folder. It is created if it is missing, and must not hold a run yet.
        model : str
            Name of the model.
        class_names : list of str, optional
            Names of the classes, in the order of the logits.
        head : Head, optional
            The last linear layer; by default that of the first data set that has one.
        command : str, optional
            The command that produces the run.
        seed : int, optional
            Training seed of the model, a 64-bit integer.
        **provenance
            Anything else to record about the run. Values must fit in JSON: numbers, text, lists and dictionaries,
            nested at most 32 deep. ``recipe`` must be text.

        Returns
        -------
        Run
            The new run, without data sets.

        Raises
        ------
        InvalidInput
            If an argument cannot be stored.
        RunError
            If ``path`` is a file, or the folder already holds a run.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(f"{folder}/resnet18-s0", model="resnet18", seed=0, recipe="sure_plus")
        ...     run.provenance["recipe"], run.names()
        ('sure_plus', [])
        """
        names = None if class_names is None else tuple(class_names)
        if isinstance(class_names, str) or (names is not None and not _all_text(names)):
            raise InvalidInput(f"class_names must be a list of strings, got {class_names!r}")
        origin = {"model": model, "command": command, "seed": seed, **provenance, "versions": _versions()}
        for key, value in origin.items():
            try:
                json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
                _check_depth(value, key)
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidInput(f"{key} must fit in JSON, got {value!r:.80}; pass plain numbers and text") from error
        try:
            _check_provenance(origin)
        except ValueError as error:
            raise InvalidInput(str(error)) from error
        run = cls(path)
        if run.path.exists() and not run.path.is_dir():
            raise RunError(f"{run.path} is a file; a run needs a folder of its own")
        run.path.mkdir(parents=True, exist_ok=True)
        with run._locked():
            if (run.path / MANIFEST).exists():
                raise RunError(f"{run.path} already holds a run; open it with Run.open, or choose another folder")
            manifest = _Manifest(origin, None if names is None else len(names), names, None, {})
            run._save(run._with_head(manifest, head))
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """Open an existing run.

        The manifest is checked against everything that ``Run`` would write, and the labels and predictions of every
        data set against the classes. The other arrays are not read.

        Parameters
        ----------
        path : str or path-like
            The folder of the run.

        Returns
        -------
        Run
            The run. Missing or damaged files are reported when they are read; :meth:`verify` reads all of them.

        Raises
        ------
        RunError
            If there is no run, its manifest is damaged or forged, or labels lie outside the classes.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Run.create(folder, model="resnet18")
        ...     Run.open(folder).provenance["model"]
        'resnet18'
        """
        run = cls(path)
        for name in run.names():
            run._check_labels(name)
        return run

    def add(self, name: str, outputs: Outputs, *, role: str, replace: bool = False) -> None:
        """Write one data set in a single step, atomically.

        Parameters
        ----------
        name : str
            Name of the data set: letters, digits, ``.``, ``_`` or ``-``, not starting with a dot; ``/1`` to ``/5`` may
            follow for a level of corruption. ``head`` is reserved.
        outputs : Outputs
            The arrays. Predictions are stored with them. Classes, class names and head must agree with those of the
            run; the first data set that has them sets them.
        role : {"train", "val", "test", "shift", "near", "mid", "far", "ood_val"}
            What the data set is used for.
        replace : bool, default=False
            Overwrite a data set of the same name. Readers see the old one until the new one is complete.

        Raises
        ------
        InvalidInput
            If name, role or outputs are not valid, or the outputs belong to another model.
        RunError
            If the run already holds this name (or one that differs in case only), or cannot be read.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18")
        ...     run.add("cifar10-test", Outputs([[2.0, 0.0]], labels=[0]), role="test")
        ...     run.roles
        {'cifar10-test': 'test'}
        """
        if not isinstance(outputs, Outputs):
            raise InvalidInput(f"outputs must be Outputs(logits, ...), got {type(outputs).__name__}")
        choice(role, "role", ROLES)
        _ = outputs.predictions  # stored, so that no reader has to go through the logits for them
        with self._locked():
            manifest = self._manifest()
            self._check_name(manifest, name, replace)
            manifest = self._with_classes(manifest, name, outputs.classes, outputs.class_names)
            manifest = self._with_head(manifest, outputs.head)
            target = self._free_file(manifest, name)
            with replacing(target) as file:
                stored = _write_file(file, target.name, _rows_first(outputs), _note(outputs.pass_count))
            uses_head = outputs.head is not None
            self._enter(manifest, name, _DataSet(role, len(outputs), uses_head, outputs.pass_count, stored))

    def writer(
        self,
        name: str,
        *,
        role: str,
        rows: int,
        fields: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]],
        pass_count: int | None = None,
        replace: bool = False,
    ) -> Writer:
        """Open a writer of one data set: blocks of rows, in any order, from any process, over several attempts.

        Calling this again with the same arguments resumes an unfinished data set.

        Parameters
        ----------
        name : str
            Name of the data set, as in :meth:`add`.
        role : {"train", "val", "test", "shift", "near", "mid", "far", "ood_val"}
            What the data set is used for.
        rows : int
            Number of rows of the complete data set.
        fields : mapping of str to (dtype, shape of one row)
            Every array to store, such as ``{"logits": ("float32", (10,)), "labels": ("int64", ()),
            "layers/block3/mean": ("float16", (256,)), "ids": ("S24", ())}``. ``logits`` is required. Passes are rows
            first, (M, C). String ids and groups take a width in bytes.
        pass_count : int, optional
            Number of passes behind the averages ``passes.mean_prob`` and so on; required with them, an error without
            them.
        replace : bool, default=False
            Overwrite a data set of the same name when the writer is closed.

        Returns
        -------
        Writer
            Writes the blocks; use it in a ``with`` statement, or call :meth:`Writer.close`.

        Raises
        ------
        InvalidInput
            If an argument is not valid, or does not fit the classes or the head of the run.
        RunError
            If the run already holds this name and ``replace`` is False, or an unfinished data set of this name has
            another layout.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18")
        ...     with run.writer("test", role="test", rows=4, fields={"logits": ("float32", (2,))}) as writer:
        ...         writer.write(2, logits=np.eye(2))
        ...         missing = writer.missing()
        ...         writer.write(0, logits=np.eye(2))
        ...     missing, run["test"]
        ([(0, 2)], Outputs(4 rows, 2 classes))
        """
        choice(role, "role", ROLES)
        rows = whole(rows, "rows", 1)
        tensors = _tensors_of(fields, rows, pass_count)
        writer = Writer(self, name, role, rows, tensors, pass_count, replace)
        with self._locked():
            manifest = self._manifest()
            self._check_name(manifest, name, replace)
            self._with_classes(manifest, name, tensors["logits"][1][1], None)
            if manifest.head is not None and "features" in tensors:
                check_head_shape(self._head(manifest.head), tensors["logits"][1][1], tensors["features"][1][1])
            writer._begin(manifest)
        return writer

    def __getitem__(self, name: str) -> Outputs:
        def read(manifest: _Manifest, entry: _DataSet) -> Outputs:
            arrays = _map_file(self.path, entry.stored)
            self._check_classes(manifest, entry, arrays)
            for key in NAMES:
                if key in arrays and arrays[key].dtype == np.uint8:
                    arrays[key] = arrays[key].view(f"S{arrays[key].shape[1]}")[:, 0]
            head = self._head(manifest.head) if entry.uses_head and manifest.head is not None else None
            return assemble(arrays, head, manifest.class_names, entry.pass_count)

        return self._read_settled(name, read)

    def __contains__(self, name: object) -> bool:
        return name in self._manifest().data

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self, role: str | None = None) -> list[str]:
        """List the data sets, or those of one role, in the order in which they were added.

        Parameters
        ----------
        role : str, optional
            One of :data:`twofold.roles.ROLES`; by default all data sets are listed.

        Returns
        -------
        list of str
            Names of data sets.

        Raises
        ------
        InvalidInput
            If ``role`` is not a role.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18")
        ...     run.add("cifar10", Outputs([[2.0, 0.0]], labels=[0]), role="test")
        ...     run.add("svhn", Outputs([[0.1, 0.0]], labels=[-1]), role="far")
        ...     run.names(), run.names("far")
        (['cifar10', 'svhn'], ['svhn'])
        """
        if role is not None:
            choice(role, "role", ROLES)
        return [name for name, entry in self._manifest().data.items() if role in (None, entry.role)]

    @property
    def roles(self) -> dict[str, str]:
        """Role of each data set, by name."""
        return {name: entry.role for name, entry in self._manifest().data.items()}

    @property
    def head(self) -> Head | None:
        """Last linear layer of the model, or None if the run has none."""
        stored = self._manifest().head
        return None if stored is None else self._head(stored)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, or None if the run has none."""
        return self._manifest().class_names

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the run comes from: model, command, seed, versions and whatever else was passed to :meth:`create`."""
        return MappingProxyType(self._manifest().provenance)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each stored data set, and of the head under the name ``head``; only run.json is read.

        Returns
        -------
        dict of str to str
            Hexadecimal digests by name.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18", head=Head([[1.0, 0.0], [0.0, 1.0]]))
        ...     {name: len(digest) for name, digest in run.digests().items()}
        {'head': 64}
        """
        manifest = self._manifest()
        found = {name: entry.stored.sha256 for name, entry in manifest.data.items()}
        return found if manifest.head is None else {**found, "head": manifest.head.sha256}

    def verify(self) -> None:
        """Read every byte of the run and raise unless all files are as they were written.

        Raises
        ------
        Damaged
            If a file is missing or damaged, or labels lie outside the classes; the message lists every such file.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18")
        ...     run.add("test", Outputs([[2.0, 0.0]]), role="test")
        ...     _ = (run.path / "test.safetensors").write_bytes(b"")
        ...     try:
        ...         run.verify()
        ...     except Damaged as error:
        ...         print("test.safetensors has 0 bytes" in str(error))
        True
        """
        self._seen = None
        self._right.clear()
        problems = []
        for name in self.names():
            try:
                self._read_settled(name, lambda manifest, entry: _check_file(self.path, entry.stored))
                self._check_labels(name, strict=True)
            except RunError as error:
                problems.append(str(error))
        head = self._manifest().head
        if head is not None:
            try:
                _check_file(self.path, head)
            except RunError as error:
                problems.append(str(error))
        if problems:
            raise Damaged("; ".join(problems))

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {', '.join(self.names()) or 'empty'})"

    def _head(self, stored: _File) -> Head:
        return trusted(Head, _map_file(self.path, stored))

    def _manifest(self) -> _Manifest:
        """Return the manifest as it is on disk now; it is parsed again only when another process changed it."""
        path = self.path / MANIFEST
        try:
            if self._seen is not None and self._seen[0] == _stamp(path.stat()):
                return self._seen[1]
            with open_regular(path) as file:
                found = os.fstat(file.fileno())
                raw = file.read(MANIFEST_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunError(f"{self.path} is no run: it {self._what_is_missing()}") from error
        if len(raw) > MANIFEST_BYTES:
            raise RunError(
                f"{path} has more than {MANIFEST_BYTES} bytes, so Run did not write it; restore it from a copy"
            )
        manifest = _parse(raw, path)
        is_fresh = time.time_ns() - found.st_mtime_ns < FRESH
        self._seen = None if is_fresh else (_stamp(found), manifest)
        return manifest

    def _what_is_missing(self) -> str:
        """Say why there is no manifest, and what to do."""
        if self.path.suffix == ".npz" and self.path.is_file():
            return (
                "is an npz file; put it into one: "
                "Run.create(path, model=...).add(name, Outputs.from_npz(file), role=role)"
            )
        make = "make one with Run.create(path, model=...)"
        if self.path.is_dir():
            return f"has no run.json; {make}"
        return f"is no folder; {make}" if self.path.exists() else f"is missing; {make}"

    def _read_settled(self, name: str, read: Callable[[_Manifest, _DataSet], Found]) -> Found:
        """Read a data set, and again while another process replaces it, for at most PATIENCE seconds."""
        deadline = None
        while True:
            manifest = self._manifest()
            if name not in manifest.data:
                raise UnknownName.of("data set", str(name), manifest.data or ["(none yet)"])
            entry = manifest.data[name]
            problem = None
            try:
                found = read(manifest, entry)
            except RunError as error:
                problem = error
            is_settled = self._manifest().data.get(name) == entry
            now = time.monotonic()
            deadline = now + PATIENCE if deadline is None else deadline
            if is_settled or now > deadline:
                if problem is not None:
                    raise problem
                return found

    def _check_labels(self, name: str, *, strict: bool = False) -> None:
        """Raise if labels or predictions of a data set lie outside the classes; damaged files only if ``strict``."""

        def check(manifest: _Manifest, entry: _DataSet) -> None:
            try:
                arrays = _map_file(self.path, entry.stored)
            except RunError:
                if strict:
                    raise
                return
            self._check_classes(manifest, entry, arrays)

        self._read_settled(name, check)

    def _check_classes(self, manifest: _Manifest, entry: _DataSet, arrays: Mapping[str, AnyArray]) -> None:
        """Raise unless labels and predictions name classes of the run; each file is looked at once."""
        if entry.stored.sha256 in self._right:
            return
        for name, lowest in (("labels", -1), ("predictions", 0)):
            if name not in arrays:
                continue
            outside = (arrays[name] < lowest) | (arrays[name] >= manifest.classes)
            if outside.any():
                row = int(outside.argmax())
                raise Damaged(
                    f"{self.path / entry.stored.file} has {name} outside the {manifest.classes} classes of the run: "
                    f"{arrays[name][row]} in row {row}; it is damaged, write it again"
                )
        self._right.add(entry.stored.sha256)

    def _save(self, manifest: _Manifest) -> None:
        _parse(_encode(manifest), self.path / MANIFEST)  # what is written can be opened again
        with replacing(self.path / MANIFEST) as file:
            file.write(_encode(manifest))
        self._seen = None

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock of the run: exclusive to change it, shared to write blocks. A killed process releases it."""
        with locked(self.path / LOCK, shared=shared):
            if not shared:
                self._seen = None  # another process may have changed the manifest
                self._sweep()
            yield

    def _sweep(self) -> None:
        """Delete what killed writers left; only the holder of the lock writes such files."""
        for name in os.listdir(self.path):
            written_here = name.startswith(f".{MANIFEST}.") or ".safetensors." in name
            if written_here and is_temporary(name):
                (self.path / name).unlink(missing_ok=True)

    def _check_name(self, manifest: _Manifest, name: str, overwrite: bool) -> None:
        _check_set_name(name)
        for other in manifest.data:
            if other == name and not overwrite:
                raise RunError(
                    f"{self.path} already holds a data set {name!r}; pass replace=True to overwrite it, "
                    "or choose another name"
                )
            if other != name and other.lower() == name.lower():
                raise RunError(
                    f"{self.path} already holds {other!r}, which differs from {name!r} in case only; "
                    "some file systems cannot tell them apart, choose another name"
                )

    def _with_classes(
        self, manifest: _Manifest, name: str, classes: int, class_names: tuple[str, ...] | None
    ) -> _Manifest:
        """Return the manifest with the classes of the first data set that has them; all later ones must agree."""
        if manifest.classes not in (None, classes):
            raise InvalidInput(
                f"{name!r} has {classes} classes but this run has {manifest.classes}; a run holds one model"
            )
        if class_names is not None and manifest.class_names not in (None, class_names):
            raise InvalidInput(f"{name!r} has other class_names than this run; a run holds one model")
        return dataclasses.replace(manifest, classes=classes, class_names=manifest.class_names or class_names)

    def _with_head(self, manifest: _Manifest, head: Head | None) -> _Manifest:
        """Return the manifest with this head, written to its file if the run has none yet."""
        if head is None:
            return manifest
        if manifest.head is not None:
            if not self._head(manifest.head).same_as(head):
                raise InvalidInput("head differs from the head of this run; a run holds one model, make another run")
            return manifest
        check_head_shape(head, manifest.classes or len(head.bias), None)
        with replacing(self.path / HEAD) as file:
            stored = _write_file(file, HEAD, {"weight": head.weight, "bias": head.bias}, {})
        return dataclasses.replace(manifest, head=stored, classes=len(head.bias))

    def _free_file(self, manifest: _Manifest, name: str) -> Path:
        """Choose the file of a data set: never the one that the manifest names now, which has to stay intact."""
        plain, other = _file_names(name)
        entry = manifest.data.get(name)
        return self.path / (other if entry is not None and entry.stored.file == plain else plain)

    def _enter(self, manifest: _Manifest, name: str, entry: _DataSet) -> None:
        old = manifest.data.get(name)
        self._save(dataclasses.replace(manifest, data={**manifest.data, name: entry}))
        if old is not None:
            (self.path / old.stored.file).unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Writer:
    """Write one data set of a run in blocks of rows; created by :meth:`Run.writer`.

    It holds no open file, so it can be sent to other processes. Leaving the ``with`` block closes it; leaving it by an
    exception keeps what was written, for another attempt.

    Parameters
    ----------
    run : Run
        The run that will hold the data set.
    name : str
        Name of the data set.
    role : str
        What the data set is used for.
    rows : int
        Number of rows of the complete data set.
    tensors : dict of str to (str, tuple of int)
        Safetensors dtype and shape of each array on disk.
    pass_count : int or None
        Number of passes behind stored averages.
    replace : bool
        Whether closing overwrites a data set of the same name.
    """

    run: Run
    name: str
    role: str
    rows: int
    tensors: Tensors
    pass_count: int | None
    replace: bool

    def write(self, start: int, /, **arrays: ArrayLike) -> None:
        """Write all fields for the rows from ``start`` on, and return once they are safely on disk.

        Rows may be written in any order and again. Several processes may write different rows at the same time.

        Parameters
        ----------
        start : int
            First row of the block.
        **arrays : array-like
            Every declared field by name (``**{"layers/block3/mean": ...}`` where the name is not an identifier), all
            with the same number of rows.

        Raises
        ------
        InvalidInput
            If a field is missing or was not declared, does not fit its declared dtype or shape, rows lie outside the
            data set, or logits and features do not fit the head of the run.
        RunError
            If the data set was closed or deleted.
        """
        start = whole(start, "start", 0)
        block, count = self._check(start, arrays)
        header, offsets, _ = _layout(self.tensors, _note(self.pass_count))
        # close() holds the lock exclusively, so no block lands in a closed file
        with self.run._locked(shared=True):
            self._check_open()
            with naming(self._part), open(open_plain(self._part, os.O_RDWR), "r+b") as file:
                for name, array in block.items():
                    file.seek(len(header) + offsets[name] + start * (array.nbytes // count))
                    file.write(np.ascontiguousarray(array).data)
                file.flush()
                os.fsync(file.fileno())
            # only now that the rows are on disk may the journal say so
            self._append({"start": start, "stop": start + count})

    def finished(self) -> list[tuple[int, int]]:
        """List the ranges [start, stop) of rows that are written, merged and in order.

        Returns
        -------
        list of (int, int)
            Start and stop of each range.

        Raises
        ------
        RunError
            If the data set was closed or deleted, or its journal is damaged.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18")
        ...     writer = run.writer("test", role="test", rows=4, fields={"logits": ("float32", (2,))})
        ...     writer.write(2, logits=np.eye(2))
        ...     writer.finished(), writer.missing()
        ([(2, 4)], [(0, 2)])
        """
        merged: list[tuple[int, int]] = []
        self._check_open()
        spans = [line for line in self._journal() if isinstance(line, _Span)]
        for start, stop in sorted((span.start, span.stop) for span in spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        return merged

    def missing(self) -> list[tuple[int, int]]:
        """List the ranges [start, stop) of rows that are still to be written.

        Returns
        -------
        list of (int, int)
            Start and stop of each range; empty once all rows are written.

        Raises
        ------
        RunError
            If the data set was closed or deleted, or its journal is damaged.
        """
        edges = [0, *(edge for span in self.finished() for edge in span), self.rows]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]

    def close(self) -> None:
        """Add the complete data set to the run. Closing twice does nothing.

        Raises
        ------
        RunError
            If rows are missing, or the run already holds the name and ``replace`` is False.
        InvalidInput
            If logits and features do not fit the head of the run, or the classes are not those of the run.
        """
        with self.run._locked():
            manifest = self.run._manifest()
            if not self._log.exists() and self.name in manifest.data:
                return
            self._undo_rename(manifest)
            missing = self.missing()
            if missing:
                spans = ", ".join(f"{a}:{b}" for a, b in missing[:5]) + (", ..." if len(missing) > 5 else "")
                raise RunError(
                    f"{self.name!r} is not complete: rows {spans} of {self.rows} are missing; write them, "
                    "or call run.writer again with the same arguments to resume later"
                )
            self.run._check_name(manifest, self.name, self.replace)
            manifest = self.run._with_classes(manifest, self.name, self._classes, None)
            stored = self._seal(manifest, self.run._free_file(manifest, self.name))
            uses_head = manifest.head is not None and "features" in self.tensors
            entry = _DataSet(self.role, self.rows, uses_head, self.pass_count, stored)
            self.run._enter(manifest, self.name, entry)
            self._log.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def _seal(self, manifest: _Manifest, target: Path) -> _File:
        """Hash the complete file and rename it to its final name."""
        with open(open_plain(self._part, os.O_RDWR), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        stored = _File(self._part.name, size, digest, self.tensors)
        arrays = _map_file(self.run.path, stored)
        if manifest.head is not None and "features" in self.tensors:
            # blocks were checked against the head, each in its precision, if the run had one by then
            head = self.run._head(manifest.head)
            check_head_shape(head, self._classes, self.tensors["features"][1][1])
            check_head(arrays["logits"], arrays["features"], head, half=True)
        del arrays
        self._append({"target": target.name})
        os.replace(self._part, target)
        sync_folder(self.run.path)
        return dataclasses.replace(stored, file=target.name)

    @property
    def _classes(self) -> int:
        return self.tensors["logits"][1][1]

    @property
    def _part(self) -> Path:
        return self.run.path / f"{_stem(self.name)}.safetensors.part"

    @property
    def _log(self) -> Path:
        return self.run.path / f"{_stem(self.name)}.safetensors.journal"

    def _begin(self, manifest: _Manifest) -> None:
        """Resume an unfinished data set of the same layout, or start a new one; called under the lock."""
        plan = _Plan(self.role, self.rows, self.pass_count, _row_shapes(self.tensors))
        header, _, size = _layout(self.tensors, _note(self.pass_count))
        journal = self._journal()
        if journal:
            first = journal[0]
            assert isinstance(first, _Plan)
            self._check_plan(first, plan)
            self._undo_rename(manifest)
            if self._is_begun(header, size):
                return
        # in this order: a journal must never exist beside a file whose rows it did not record
        self._log.unlink(missing_ok=True)
        self._part.unlink(missing_ok=True)  # whatever it is: a link is not followed
        sync_folder(self.run.path)
        created = open_plain(self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with naming(self._part), open(created, "wb") as file:
            file.write(header)
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())
        with replacing(self._log) as file:
            file.write(_journal_line(dataclasses.asdict(plan)))

    def _is_begun(self, header: bytes, size: int) -> bool:
        """Check whether the file of an unfinished data set exists, as this writer would have created it."""
        try:
            with open(open_plain(self._part, os.O_RDWR), "rb") as file:
                return os.fstat(file.fileno()).st_size == size and file.read(len(header)) == header
        except FileNotFoundError:
            return False

    def _undo_rename(self, manifest: _Manifest) -> None:
        """Undo the last step of a close() that was killed before the manifest named its file."""
        entry = manifest.data.get(self.name)
        for line in self._journal():
            if isinstance(line, _Target) and (entry is None or entry.stored.file != line.target):
                target = self.run.path / line.target
                if _is_plain(target) and not os.path.lexists(self._part):
                    os.replace(target, self._part)

    def _check_plan(self, old: _Plan, new: _Plan) -> None:
        differing = []
        for key in ("role", "rows", "pass_count"):
            if getattr(old, key) != getattr(new, key):
                differing.append(f"{key} was {getattr(old, key)}, now {getattr(new, key)}")
        for name in sorted(old.tensors.keys() | new.tensors.keys()):
            if old.tensors.get(name) != new.tensors.get(name):
                differing.append(f"{name} was {old.tensors.get(name)}, now {new.tensors.get(name)}")
        if differing:
            raise RunError(
                f"an unfinished {self.name!r} has another layout ({'; '.join(differing)}); resume with the same "
                f"arguments, or delete {self._part.name} and {self._log.name} to start afresh"
            )

    def _journal(self) -> list[_Plan | _Span | _Target]:
        """Read the journal, the plan first; empty if there is none, or if not even its plan is complete."""
        try:
            lines = _read_journal(self._log)
            if not lines:
                return []
            return [_plan_of(lines[0]), *(self._entry_of(line) for line in lines[1:])]
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{self._log} was not written by Run ({error}); "
                f"delete {self._part.name} and {self._log.name} to start afresh"
            ) from error

    def _entry_of(self, line: dict[str, Any]) -> _Span | _Target:
        """Parse a line of the journal after its plan: rows that are written, or the final name of the file."""
        if "target" in line:
            target = _table(line, "a line", ("target",))["target"]
            if target not in _file_names(self.name):
                raise ValueError(f"target must be {' or '.join(_file_names(self.name))}, got {target!r:.80}")
            return _Target(target)
        span = _table(line, "a line", ("start", "stop"))
        start, stop = _count(span["start"], "start", 0), _count(span["stop"], "stop", 1)
        if not start < stop <= self.rows:
            raise ValueError(f"rows {start}:{stop} are not among {self.rows}")
        return _Span(start, stop)

    def _check_open(self) -> None:
        if not self._log.exists():
            raise RunError(f"{self.name!r} is no longer open: it was closed or deleted; call run.writer again")

    def _append(self, line: dict[str, Any]) -> None:
        handle = open_plain(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            data = _journal_line(line)
            with naming(self._log):
                if os.write(handle, data) != len(data):  # one call: lines of several processes do not mix
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
        finally:
            os.close(handle)

    def _check(self, start: int, arrays: dict[str, ArrayLike]) -> tuple[dict[str, AnyArray], int]:
        """Validate a block; return its arrays as they are stored, and its number of rows."""
        if arrays.keys() != self.tensors.keys():
            odd = sorted(arrays.keys() ^ self.tensors.keys())
            raise InvalidInput(
                f"write needs exactly the fields {', '.join(sorted(self.tensors))}; "
                f"{', '.join(odd)} {'is' if len(odd) == 1 else 'are'} missing or not declared"
            )
        where = f" (block from row {start})"
        block = {}
        for name, value in arrays.items():
            array = check_rows(name, value, classes=self._classes, label=name + where)
            block[name] = _as_stored(array, name + where, *self.tensors[name])
        count = len(block["logits"])
        for name, array in block.items():
            if len(array) != count:
                raise InvalidInput(f"{name}{where} has {len(array)} rows but logits has {count}")
        if start + count > self.rows:
            raise InvalidInput(f"rows {start}:{start + count} do not fit; {self.name!r} has {self.rows} rows")
        head = self.run.head
        if head is not None and "features" in block:
            half = is_half(arrays["logits"]) or is_half(arrays["features"])
            check_head(block["logits"], block["features"], head, half=half, where="features" + where)
        return block, count


@dataclass(frozen=True)
class _Plan:
    """Record as the first line of a journal what is to be written."""

    role: str
    rows: int
    pass_count: int | None
    tensors: dict[str, list[Any]]  # name -> dtype and shape of a row, as JSON has them


@dataclass(frozen=True)
class _Span:
    """Record in a journal that these rows are written."""

    start: int
    stop: int


@dataclass(frozen=True)
class _Target:
    """Record as the last line of a journal the name to which the complete file is renamed."""

    target: str


def _stem(name: str) -> str:
    """Return the file name of a data set without its extension; ``corruption/3`` gets no folder of its own."""
    return name.replace("/", "@")


def _file_names(name: str) -> tuple[str, str]:
    """Return the two files that a data set may be in: each new version of it takes the one that is free."""
    return f"{_stem(name)}.safetensors", f"{_stem(name)}~.safetensors"


def _row_shapes(tensors: Tensors) -> dict[str, list[Any]]:
    """Return dtype and shape of a row of each tensor, as a journal holds them."""
    shapes = {}
    for name, (code, shape) in tensors.items():
        shapes[name] = [code, list(shape[1:])]
    return shapes


def _check_set_name(name: str) -> None:
    """Raise unless this is a valid name of a data set."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[1-5])?", name):
        raise InvalidInput(
            f"name must be letters, digits, '.', '_' or '-' and not begin with a dot, got {name!r:.80}; "
            "it becomes a file name. A level of corruption, /1 to /5, may follow"
        )
    if name.lower() == "head":
        raise InvalidInput("name must not be 'head'; that file holds the last linear layer")


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _is_plain(path: Path) -> bool:
    """Check whether the path is a regular file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _versions() -> dict[str, str]:
    from twofold import __version__

    return {"twofold": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _note(pass_count: int | None) -> dict[str, str]:
    """Return the metadata of a safetensors file: what its tensors alone do not show."""
    return {} if pass_count is None else {"pass_count": str(pass_count)}


def _rows_first(outputs: Outputs) -> dict[str, AnyArray]:
    """Return the arrays of outputs as a file holds them, with string ids and groups as padded UTF-8 bytes."""
    arrays = outputs.flat()
    for key in NAMES:
        if key in arrays and arrays[key].dtype.kind == "S":
            arrays[key] = _bytes_of(arrays[key])
    return arrays


def _bytes_of(ids: AnyArray) -> AnyArray:
    ids = np.ascontiguousarray(ids, dtype=f"S{max(1, ids.dtype.itemsize)}")
    return ids.view(np.uint8).reshape(len(ids), ids.dtype.itemsize)


def _tensors_of(
    fields: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]], rows: int, pass_count: int | None
) -> Tensors:
    """Validate the fields of a writer, and return the dtype and shape that each has on disk."""
    if "logits" not in fields:
        raise InvalidInput(f"fields must hold logits, got {', '.join(fields) or 'nothing'}")
    tensors: Tensors = {}
    for name, (dtype, shape) in fields.items():
        known = name in KNOWN_KEYS or re.fullmatch(r"(layers|learned)/.+", name, re.DOTALL)
        if not known or name == "passes.count":
            raise InvalidInput(f"fields: {UnknownName.of('field', name, set(KNOWN_KEYS) - {'passes.count'})}")
        try:
            kind = np.dtype(dtype)
        except TypeError as error:
            raise InvalidInput(f"fields[{name!r}] must have a dtype of NumPy, got {dtype!r:.80}") from error
        width = tuple(whole(k, f"fields[{name!r}]", 1) for k in shape)
        if name in NAMES and kind.kind == "S" and kind.itemsize:
            kind, width = np.dtype(np.uint8), (kind.itemsize, *width)
        integer = name in ("labels", "predictions") or (name in NAMES and kind != np.uint8)
        legal = (np.int64,) if integer else (np.uint8,) if name in NAMES else (np.float16, np.float32, np.float64)
        if kind not in legal:
            want = "int64 or S<bytes>" if name in NAMES else " or ".join(np.dtype(k).name for k in legal)
            raise InvalidInput(f"fields[{name!r}] must have dtype {want}, got {np.dtype(dtype)}")
        if len(width) != _row_dims(name, kind):
            raise InvalidInput(f"fields[{name!r}] must give the shape of one row, got {tuple(shape)}")
        tensors[name] = CODES[kind], (rows, *width)
    _check_passes(tensors, pass_count)
    return tensors


def _row_dims(name: str, kind: np.dtype[Any]) -> int:
    if name in ("labels", "predictions", "passes.mean_entropy") or name.startswith("learned/"):
        return 0
    if name in NAMES:
        return int(kind == np.uint8)
    return 2 if name == "passes" else 1


def _check_passes(tensors: Tensors, pass_count: int | None) -> None:
    """Raise unless averages of passes are complete, counted, and have the classes of the logits."""
    means = {f"passes.{name}" for name in PASS_ARRAYS}
    given = means & tensors.keys()
    if given and (given != means or pass_count is None or "passes" in tensors):
        raise InvalidInput(
            f"fields: means of passes need all of {', '.join(sorted(means))}, pass_count=, and no passes, "
            f"got {', '.join(sorted(given))} and pass_count={pass_count}"
        )
    if pass_count is not None:
        whole(pass_count, "pass_count", 1)
        if not given:
            raise InvalidInput("pass_count goes with means of passes, and fields hold none; leave it out")
    classes = tensors["logits"][1][-1]
    for name in ("passes", "passes.mean_prob", "passes.mean_logits", "passes.prob_std"):
        if name in tensors and tensors[name][1][-1] != classes:
            raise InvalidInput(f"fields[{name!r}] has {tensors[name][1][-1]} classes but logits has {classes}")


def _as_stored(array: AnyArray, label: str, code: str, shape: tuple[int, ...]) -> AnyArray:
    """Convert one field of a block to the declared dtype; values that do not fit are an error."""
    if code == "U8":
        if array.dtype.kind != "S" or array.dtype.itemsize > shape[1]:
            raise InvalidInput(f"{label} must be strings of at most {shape[1]} bytes, got {array.dtype}")
        return _bytes_of(array.astype(f"S{shape[1]}"))
    if array.dtype.kind == "S":
        raise InvalidInput(f"{label} was declared int64 but holds strings; declare it as S<bytes>")
    if array.shape[1:] != shape[1:]:
        raise InvalidInput(f"{label} must have rows of shape {shape[1:]}, got {array.shape[1:]}")
    if array.dtype == DTYPES[code]:
        return array
    with np.errstate(over="ignore"):
        stored = array.astype(DTYPES[code])
    overflow = np.isinf(stored) & np.isfinite(array)
    if overflow.any():
        row = int(np.argwhere(overflow)[0][0])
        raise InvalidInput(f"{label} does not fit {DTYPES[code]} in row {row}; declare a wider dtype")
    return stored


def _entries(tensors: Tensors) -> tuple[dict[str, Any], dict[str, tuple[int, int]], int]:
    """Return the safetensors header entries, start and end of each tensor behind the header, and the last end."""
    # the format allows no holes, and the widest dtypes first keep every tensor aligned without any
    order = sorted(tensors, key=lambda name: (-DTYPES[tensors[name][0]].itemsize, name))
    header: dict[str, Any] = {}
    places, end = {}, 0
    for name in order:
        code, shape = tensors[name]
        begin, end = end, end + DTYPES[code].itemsize * math.prod(shape)
        places[name] = begin, end
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [begin, end]}
    return header, places, end


def _layout(tensors: Tensors, note: Mapping[str, str]) -> tuple[bytes, dict[str, int], int]:
    """Return the header of a safetensors file, where each tensor begins behind it, and the size of the file."""
    header, places, end = _entries(tensors)
    content = {"__metadata__": dict(note), **header} if note else header
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    offsets = {name: begin for name, (begin, _) in places.items()}
    return len(text).to_bytes(8, "little") + text, offsets, 8 + len(text) + end


def _write_file(file: BinaryIO, name: str, arrays: Mapping[str, AnyArray], note: Mapping[str, str]) -> _File:
    """Write arrays as safetensors, a block at a time, and return the description of the file."""
    tensors: Tensors = {key: (CODES[array.dtype], array.shape) for key, array in arrays.items()}
    header, offsets, size = _layout(tensors, note)
    digest = hashlib.sha256(header)
    file.write(header)
    for key in sorted(offsets, key=offsets.__getitem__):
        array = arrays[key]
        for rows in row_slices(len(array), array.nbytes // len(array)):
            data = np.ascontiguousarray(array[rows]).data
            digest.update(data)
            file.write(data)
            release(array)
    return _File(name, size, digest.hexdigest(), tensors)


def _map_file(folder: Path, stored: _File) -> dict[str, AnyArray]:
    """Map the tensors of a file as views of one memory map; only the header is read."""
    with _open_file(folder, stored) as file:
        start, places = _check_header(file, folder / stored.file, stored)
        memory = np.memmap(file, dtype=np.uint8, mode="r")
    views = {}
    for name, (begin, end) in places.items():
        code, shape = stored.tensors[name]
        flat = np.asarray(memory[start + begin : start + end])
        views[name] = flat.view(DTYPES[code]).reshape(shape)
    return views


def _open_file(folder: Path, stored: _File) -> BufferedReader:
    path = folder / stored.file
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing, though run.json names it; restore it or write it again") from error


def _check_header(file: BinaryIO, path: Path, stored: _File) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return where the data of a file and each tensor in it begin; raise unless header and manifest agree."""
    size = os.fstat(file.fileno()).st_size
    if size != stored.bytes:
        raise RunError(f"{path} has {size} bytes, expected {stored.bytes}; it is damaged, write it again")
    length = int.from_bytes(file.read(8), "little")
    try:
        header = json.loads(file.read(length) if length <= min(size, HEADER_BYTES) else b"")
        header.pop("__metadata__", None)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise RunError(f"{path} has a damaged header; write it again") from error
    expected, places, end = _entries(stored.tensors)
    if header != expected or size != 8 + length + end:
        raise RunError(f"{path} does not hold the tensors that run.json lists; it is damaged, write it again")
    return 8 + length, places


def _check_file(folder: Path, stored: _File) -> None:
    path = folder / stored.file
    with _open_file(folder, stored) as file:
        _check_header(file, path, stored)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != stored.sha256:
        raise RunError(f"{path} is damaged: its SHA-256 is not the one in run.json; restore it or write it again")


def _encode(manifest: _Manifest) -> bytes:
    """Encode a manifest as the bytes of run.json."""
    return encode_json({"format": FORMAT, "version": VERSION, **dataclasses.asdict(manifest)})


def _parse(raw: bytes, path: Path) -> _Manifest:
    """Parse the bytes of run.json; raise unless :class:`Run` could have written them."""
    content = decode_json(
        raw, path, kind="a manifest of a twofold run", form=FORMAT, version=VERSION, again="restore it from a copy"
    )
    try:
        json.dumps(content, ensure_ascii=False).encode()  # no half of a surrogate pair in any text
        return _manifest_of(content)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} was not written by Run: {error}; restore it from a copy") from error


def _manifest_of(content: dict[str, Any]) -> _Manifest:
    """Check the content of run.json against everything that ``Run`` would write; ValueError names what is wrong."""
    _table(content, "run.json", ("provenance", "classes", "class_names", "head", "data"))
    provenance = _table(content["provenance"], "provenance")
    for key, value in provenance.items():
        _check_depth(value, f"{key!r:.80} of provenance")
    _check_provenance(provenance)
    classes = None if content["classes"] is None else _count(content["classes"], "classes", 1)
    names = _class_names_of(content["class_names"], classes)
    head = None if content["head"] is None else _head_of(content["head"], classes)
    data = {}
    for name, entry in _table(content["data"], "data").items():
        _check_set_name(name)
        data[name] = _data_set_of(entry, name, classes, head)
    if len({name.lower() for name in data}) < len(data):
        raise ValueError("data has names that differ in case only")
    return _Manifest(provenance, classes, names, head, data)


def _check_provenance(provenance: Mapping[str, Any]) -> None:
    """Raise ValueError unless the entries that other code relies on have the right type."""
    _text(provenance.get("model"), "model")
    for key in ("command", "recipe"):
        if provenance.get(key) is not None:
            _text(provenance[key], key)
    seed = provenance.get("seed")
    if seed is not None and (type(seed) is not int or abs(seed) >= 2**63):
        raise ValueError(f"seed must be a whole number of 64 bits, got {seed!r:.80}")
    for key, value in _table(provenance.get("versions"), "versions").items():
        _text(value, f"versions[{key!r}]")


def _class_names_of(content: Any, classes: int | None) -> tuple[str, ...] | None:
    if content is None:
        return None
    if not isinstance(content, list) or not _all_text(content):
        raise ValueError(f"class_names must be a list of texts, got {content!r:.80}")
    if len(content) != classes:
        raise ValueError(f"class_names has {len(content)} names for {classes} classes")
    return tuple(content)


def _all_text(values: Sequence[object]) -> bool:
    """Check whether the sequence is not empty, and holds only text that a file can store."""
    try:
        return len(values) > 0 and all(isinstance(v, str) and v.encode() is not None for v in values)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _head_of(content: Any, classes: int | None) -> _File:
    stored = _file_of(content, "head", (HEAD,))
    shapes = {name: shape for name, (_, shape) in stored.tensors.items()}
    kinds = {DTYPES[code].kind for code, _ in stored.tensors.values()}
    weight = shapes.get("weight", ())
    if shapes.keys() != {"weight", "bias"} or len(weight) != 2 or shapes["bias"] != weight[:1] or kinds != {"f"}:
        raise ValueError(f"head must hold weight (C, D) and bias (C,), floats, got {stored.tensors!r:.80}")
    if weight[0] != classes:
        raise ValueError(f"head has {weight[0]} rows for {classes} classes")
    _check_size(stored, {}, "head")
    return stored


def _data_set_of(content: Any, name: str, classes: int | None, head: _File | None) -> _DataSet:
    entry = _table(content, f"data[{name!r}]", ("role", "rows", "uses_head", "pass_count", "stored"))
    role = _text(entry["role"], f"role of {name}")
    choice(role, f"role of {name}", ROLES)
    rows = _count(entry["rows"], f"rows of {name}", 1)
    pass_count = None if entry["pass_count"] is None else _count(entry["pass_count"], f"pass_count of {name}", 1)
    stored = _file_of(entry["stored"], f"data[{name!r}]", _file_names(name))
    _check_tensors(stored.tensors, rows, pass_count, name)
    _check_size(stored, _note(pass_count), name)
    if stored.tensors["logits"][1][1] != classes:
        raise ValueError(f"logits of {name} have {stored.tensors['logits'][1][1]} columns for {classes} classes")
    uses_head = entry["uses_head"]
    if not isinstance(uses_head, bool) or (uses_head and head is None):
        raise ValueError(f"uses_head of {name} must be true or false, and false without a head, got {uses_head!r:.80}")
    if uses_head and head is not None and "features" in stored.tensors:
        columns, expected = stored.tensors["features"][1][1], head.tensors["weight"][1][1]
        if columns != expected:
            raise ValueError(f"features of {name} have {columns} columns, and the head takes {expected}")
    return _DataSet(role, rows, uses_head, pass_count, stored)


def _file_of(content: Any, where: str, names: Sequence[str]) -> _File:
    # a manifest from elsewhere must not lead outside its own folder, nor to the file of something else in it
    entry = _table(content, where, ("file", "bytes", "sha256", "tensors"))
    file = _text(entry["file"], f"file of {where}")
    if file not in names:
        raise ValueError(f"file of {where} must be {' or '.join(names)}, got {file!r:.80}")
    digest = _text(entry["sha256"], f"sha256 of {where}")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"sha256 of {where} must be 64 hexadecimal digits, got {digest!r:.80}")
    tensors: Tensors = {}
    for name, described in _table(entry["tensors"], f"tensors of {where}").items():
        tensors[name] = _tensor_of(described, f"{name!r:.80} of {where}")
    return _File(file, _count(entry["bytes"], f"bytes of {where}", 8), digest, tensors)


def _tensor_of(content: Any, where: str) -> tuple[str, tuple[int, ...]]:
    """Parse the dtype and shape of a tensor: ["F32", [100, 10]]."""
    is_pair = isinstance(content, list) and len(content) == 2
    if not is_pair or not isinstance(content[0], str) or content[0] not in DTYPES or not isinstance(content[1], list):
        raise ValueError(f"{where} must be a dtype and a shape, got {content!r:.80}")
    return content[0], tuple(_count(k, f"the shape of {where}", 1) for k in content[1])


def _check_tensors(tensors: Tensors, rows: int, pass_count: int | None, name: str) -> None:
    """Raise unless a writer could have been created with these tensors."""
    fields: dict[str, tuple[str, tuple[int, ...]]] = {}
    for key, (code, shape) in tensors.items():
        if len(shape) == 0 or shape[0] != rows:
            raise ValueError(f"{key!r:.80} of {name} has shape {shape} for {rows} rows")
        is_text = key in NAMES and code == "U8" and len(shape) == 2
        fields[key] = (f"S{shape[1]}", ()) if is_text else (DTYPES[code].str, shape[1:])
    if _tensors_of(fields, rows, pass_count) != tensors:
        raise ValueError(f"tensors of {name} are not as Run stores them")


def _check_size(stored: _File, note: Mapping[str, str], where: str) -> None:
    _, _, size = _layout(stored.tensors, note)
    if stored.bytes != size:
        raise ValueError(f"the tensors of {where} make a file of {size} bytes, not of {stored.bytes}")


def _table(content: Any, where: str, keys: Sequence[str] | None = None) -> dict[str, Any]:
    """Check that the content is a JSON object with exactly these keys (by default any), and return it."""
    if not isinstance(content, dict):
        raise ValueError(f"{where} must be a table, got {content!r:.80}")
    if keys is not None and content.keys() != set(keys):
        odd = min(content.keys() ^ set(keys))
        raise ValueError(f"{where} must have the keys {', '.join(keys)}; {odd!r:.80} is missing or too much")
    return content


def _text(content: Any, where: str) -> str:
    if not isinstance(content, str):
        raise ValueError(f"{where} must be text, got {content!r:.80}")
    return content


def _count(content: Any, where: str, low: int) -> int:
    if type(content) is not int or content < low:  # no booleans
        raise ValueError(f"{where} must be a whole number of at least {low}, got {content!r:.80}")
    return content


def _check_depth(content: Any, where: str) -> None:
    """Raise ValueError if lists and tables are nested so deeply that printing them could fail."""
    level = [content]
    for _ in range(DEPTH):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                deeper.extend(value.values())
            elif isinstance(value, list | tuple):
                deeper.extend(value)
        level = deeper
    if level:
        raise ValueError(f"{where} must be nested at most {DEPTH} deep")


def _plan_of(line: dict[str, Any]) -> _Plan:
    """Parse the first line of a journal."""
    plan = _table(line, "its first line", ("role", "rows", "pass_count", "tensors"))
    tensors = {}
    for name, described in _table(plan["tensors"], "tensors").items():
        code, shape = _tensor_of(described, f"{name!r:.80}")
        tensors[name] = [code, list(shape)]
    pass_count = None if plan["pass_count"] is None else _count(plan["pass_count"], "pass_count", 1)
    return _Plan(_text(plan["role"], "role"), _count(plan["rows"], "rows", 1), pass_count, tensors)


def _journal_line(content: dict[str, Any]) -> bytes:
    # the newline in front ends a line torn by a power cut; the checksum shows which lines are complete
    body = json.dumps(content).encode()
    return b"\n%08x %s\n" % (zlib.crc32(body), body)


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines of a journal; torn lines are skipped, and a missing journal has none."""
    try:
        with open(open_plain(path, os.O_RDWR), "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return []
    lines: list[dict[str, Any]] = []
    for line in raw.split(b"\n"):
        crc, _, body = line.partition(b" ")
        if body and crc == b"%08x" % zlib.crc32(body):
            lines.append(_table(json.loads(body), "a line"))
    return lines
