"""Define the run: the outputs of one model by data set, with roles and provenance."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from twofold._checks import choice, whole
from twofold._files import replacing
from twofold._notebook import NotebookTable, card
from twofold.errors import Damaged, InvalidInput, RunError
from twofold.outputs import Head, Outputs, assemble, check_head_shape
from twofold.roles import ROLES
from twofold.run._folder import MANIFEST, RunFolder
from twofold.run._manifest import Manifest, StoredSet, check_depth, check_provenance, is_text_list
from twofold.run._tensors import (
    Fields,
    check_fields,
    check_file,
    decode_strings,
    encode_outputs,
    map_tensors,
    write_tensors,
)
from twofold.run.writer import Writer

SHOWN_IN_REPR = 6  # data sets


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
        self._folder = RunFolder(self.path)

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
        origin = {"model": model, "command": command, "seed": seed, **provenance, "versions": _versions()}
        _check_origin(origin)
        names = None if class_names is None else _check_class_names(class_names)
        run = cls(path)
        if run.path.exists() and not run.path.is_dir():
            raise RunError(f"{run.path} is a file; a run needs its own folder")
        run.path.mkdir(parents=True, exist_ok=True)
        with run._folder.locked():
            if (run.path / MANIFEST).exists():
                raise RunError(f"{run.path} already holds a run; open it with Run.open, or choose another folder")
            manifest = Manifest(origin, None if names is None else len(names), names, head=None, data={})
            run._folder.save(run._folder.add_head(manifest, head))
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
        folder = self._folder
        with folder.locked():
            manifest = folder.manifest()
            folder.check_new_name(manifest, name, replace=replace)
            manifest = folder.add_classes(manifest, name, outputs.classes, outputs.class_names)
            manifest = folder.add_head(manifest, outputs.head)
            target = folder.free_file(manifest, name)
            with replacing(target) as file:
                stored = write_tensors(file, target.name, encode_outputs(outputs), outputs.pass_count)
            uses_head = outputs.head is not None
            entry = StoredSet(role, len(outputs), uses_head, outputs.pass_count, stored)
            folder.save_data_set(manifest, name, entry)

    def writer(
        self,
        name: str,
        *,
        role: str,
        rows: int,
        fields: Fields,
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
        tensors = check_fields(fields, rows, pass_count)
        folder = self._folder
        writer = Writer(folder, name, role, rows, tensors, pass_count, replace)
        with folder.locked():
            manifest = folder.manifest()
            folder.check_new_name(manifest, name, replace=replace)
            folder.add_classes(manifest, name, tensors["logits"].columns)
            if manifest.head is not None and "features" in tensors:
                head = folder.head(manifest.head)
                check_head_shape(head, tensors["logits"].columns, tensors["features"].columns)
            writer._start(manifest)
        return writer

    def __getitem__(self, name: str) -> Outputs:
        def read(manifest: Manifest, entry: StoredSet) -> Outputs:
            arrays = map_tensors(self.path, entry.stored)
            self._folder.check_classes(manifest, entry, arrays)
            decode_strings(arrays)
            head = None
            if entry.uses_head and manifest.head is not None:
                head = self._folder.head(manifest.head)
            return assemble(arrays, head, manifest.class_names, entry.pass_count)

        return self._folder.read_settled(name, read)

    def __contains__(self, name: object) -> bool:
        return name in self._folder.manifest().data

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self, role: str | Iterable[str] | None = None) -> list[str]:
        """List the data sets, or those of some roles, in the order in which they were added.

        Parameters
        ----------
        role : str or iterable of str, optional
            Roles of :data:`twofold.roles.ROLES`; data sets are listed role by role. By default all are listed.

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
        ...     run.names(), run.names("far"), run.names(["far", "test"])
        (['cifar10', 'svhn'], ['svhn'], ['svhn', 'cifar10'])
        """
        if role is None:
            return list(self.roles)
        if not isinstance(role, str):
            found: list[str] = []
            for one in role:
                found += self.names(one)
            return found
        choice(role, "role", ROLES)
        return [name for name, own_role in self.roles.items() if own_role == role]

    @property
    def roles(self) -> dict[str, str]:
        """Role of each data set.

        Returns
        -------
        dict of str to str
            Roles by name, in the order in which the data sets were added.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18")
        ...     run.add("svhn", Outputs([[0.1, 0.0]], labels=[-1]), role="far")
        ...     run.roles
        {'svhn': 'far'}
        """
        return {name: entry.role for name, entry in self._folder.manifest().data.items()}

    @property
    def head(self) -> Head | None:
        """Last linear layer of the model, or None if the run has none."""
        stored = self._folder.manifest().head
        return None if stored is None else self._folder.head(stored)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, or None if the run has none."""
        return self._folder.manifest().class_names

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the run comes from.

        Returns
        -------
        mapping of str to object
            ``model``, ``command``, ``seed``, ``versions`` and whatever else was passed to :meth:`create`; read-only.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Run.create(folder, model="resnet18", seed=3).provenance["seed"]
        3
        """
        return MappingProxyType(self._folder.manifest().provenance)

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
        manifest = self._folder.manifest()
        digests = {name: entry.stored.sha256 for name, entry in manifest.data.items()}
        if manifest.head is not None:
            digests["head"] = manifest.head.sha256
        return digests

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
        self._folder.forget()
        problems = []
        for name in self.names():
            try:
                self._folder.read_settled(name, lambda manifest, entry: check_file(self.path, entry.stored))
                self._check_labels(name, strict=True)
            except RunError as error:
                problems.append(str(error))
        head = self._folder.manifest().head
        if head is not None:
            try:
                check_file(self.path, head)
            except RunError as error:
                problems.append(str(error))
        if problems:
            raise Damaged("; ".join(problems))

    def __repr__(self) -> str:
        names = self.names()
        shown = ", ".join(names[:SHOWN_IN_REPR]) or "empty"
        if len(names) > SHOWN_IN_REPR:
            shown += f" and {len(names) - SHOWN_IN_REPR} more"
        return f"Run({str(self.path)!r}: {shown})"

    def _repr_html_(self) -> str:
        manifest = self._folder.manifest()
        rows = [(name, one.role, one.rows) for name, one in manifest.data.items()]
        facts = {"folder": str(self.path), "classes": manifest.classes}
        for name in ("model", "recipe", "seed"):
            facts[name] = manifest.provenance.get(name)
        return card("Run", facts, NotebookTable(("data set", "role", "rows"), rows))

    def _check_labels(self, name: str, *, strict: bool = False) -> None:
        """Raise if labels or predictions of a data set lie outside the classes; damaged files only if ``strict``."""

        def check(manifest: Manifest, entry: StoredSet) -> None:
            try:
                arrays = map_tensors(self.path, entry.stored)
            except RunError:
                if strict:
                    raise
                return
            self._folder.check_classes(manifest, entry, arrays)

        self._folder.read_settled(name, check)


def _check_class_names(class_names: Sequence[str]) -> tuple[str, ...]:
    names = tuple(class_names)
    if isinstance(class_names, str) or not is_text_list(names):
        raise InvalidInput(f"class_names must be a list of strings, got {class_names!r}")
    return names


def _check_origin(origin: Mapping[str, object]) -> None:
    """Raise unless run.json can hold what is to be recorded about a run."""
    for key, value in origin.items():
        try:
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
            check_depth(value, key)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"{key} must fit in JSON, got {value!r:.80}; pass plain numbers and text") from error
    try:
        check_provenance(origin)
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def _versions() -> dict[str, str]:
    from twofold import __version__

    return {"twofold": __version__, "python": platform.python_version(), "numpy": np.__version__}
