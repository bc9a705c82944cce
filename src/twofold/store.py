"""A run: the outputs of one model on several data sets, in a folder.

    runs/resnet18-s0/
      run.json                 manifest: format, provenance, and of every file role, shapes, dtypes, SHA-256
      head.safetensors         the last linear layer, once per run
      test.safetensors         one file per data set; rows are the first axis of every tensor
      train.safetensors.part   a data set that is still being written in blocks, and
      train.safetensors.journal  which of its blocks are finished
      run.lock                 held while the manifest changes

A file counts once the manifest names it, and the manifest changes by one rename: whatever dies at whatever
moment, the last good state is what a reader finds. Files are mapped into memory, never read whole.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from twofold._checks import ArrayLike, choice, whole
from twofold._files import is_temporary, locked, replacing, sync_folder
from twofold.errors import Damaged, InvalidInput, RunError, UnknownName
from twofold.outputs import (
    KNOWN_KEYS,
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

ROLES = ("train", "val", "test", "shift", "near", "mid", "far", "ood_val")
FORMAT, VERSION = "twofold-run", 1
MANIFEST, LOCK, HEAD = "run.json", "run.lock", "head.safetensors"
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
    """The outputs of one model by data set, with roles and provenance, in a folder.

    Made by ``create`` or ``open``.

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
        """Start a run in a new folder; further keywords are kept as provenance and must fit in JSON."""
        names = None if class_names is None else tuple(class_names)
        if names is not None and (isinstance(class_names, str) or not all(isinstance(n, str) for n in names)):
            raise InvalidInput(f"class_names must be a list of strings, got {class_names!r}")
        origin = {"model": model, "command": command, "seed": seed, **provenance, "versions": _versions()}
        for key, value in origin.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise InvalidInput(f"{key} must fit in JSON, got {value!r}; pass plain numbers and text") from error
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
        """Open an existing run; only the manifest is read."""
        run = cls(path)
        run._manifest()
        return run

    def add(self, name: str, outputs: Outputs, *, role: str, replace: bool = False) -> None:
        """Write one data set, whole or not at all; ``replace=True`` puts it in the place of another."""
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
        """Write one data set in blocks of rows, in any order, from any process, and over several attempts.

        ``fields`` gives each array its dtype and the shape of one row: ``{"logits": ("float32", (10,)),
        "labels": ("int64", ()), "layers/block3/mean": ("float16", (256,)), "ids": ("S24", ())}``; passes are
        rows first, (M, C). String ids take a width in bytes, means of passes (``passes.mean_prob`` ...) take
        ``pass_count``. Calling this again with the same arguments resumes an unfinished data set.
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
        manifest = self._manifest()
        if name not in manifest.data:
            raise UnknownName.of("data set", str(name), manifest.data or ["(none yet)"])
        entry = manifest.data[name]
        arrays = _map_file(self.path, entry.stored)
        if "ids" in arrays and arrays["ids"].dtype == np.uint8:
            arrays["ids"] = arrays["ids"].view(f"S{arrays['ids'].shape[1]}")[:, 0]
        head = self._head(manifest.head) if entry.uses_head and manifest.head is not None else None
        return assemble(arrays, head, manifest.class_names, entry.pass_count)

    def __contains__(self, name: object) -> bool:
        return name in self._manifest().data

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self, role: str | None = None) -> list[str]:
        """The data sets, or those of one role, in the order they were added."""
        if role is not None:
            choice(role, "role", ROLES)
        return [name for name, entry in self._manifest().data.items() if role in (None, entry.role)]

    @property
    def roles(self) -> dict[str, str]:
        """The role of each data set."""
        return {name: entry.role for name, entry in self._manifest().data.items()}

    @property
    def head(self) -> Head | None:
        """The last linear layer of the model, if the run has it."""
        stored = self._manifest().head
        return None if stored is None else self._head(stored)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, if the run has them."""
        return self._manifest().class_names

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the run comes from: model, command, seed, versions and what else was given to ``create``."""
        return MappingProxyType(self._manifest().provenance)

    def digests(self) -> dict[str, str]:
        """SHA-256 of each data set as it is stored, and of the head under that name; nothing is read but run.json."""
        manifest = self._manifest()
        found = {name: entry.stored.sha256 for name, entry in manifest.data.items()}
        return found if manifest.head is None else {**found, "head": manifest.head.sha256}

    def verify(self) -> None:
        """Read every byte and raise Damaged, listing every damaged file, unless all is as it was written."""
        self._seen = None
        manifest = self._manifest()
        files = [entry.stored for entry in manifest.data.values()]
        if manifest.head is not None:
            files.append(manifest.head)
        problems = []
        for stored in files:
            try:
                _check_file(self.path, stored)
            except RunError as error:
                problems.append(str(error))
        if problems:
            raise Damaged("; ".join(problems))

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {', '.join(self.names()) or 'empty'})"

    def _head(self, stored: _File) -> Head:
        return trusted(Head, _map_file(self.path, stored))

    def _manifest(self) -> _Manifest:
        """The manifest as it is on disk now; parsed again only when another process changed it."""
        path = self.path / MANIFEST
        try:
            stat = path.stat()
            stamp = stat.st_ino, stat.st_mtime_ns, stat.st_size
            if self._seen is None or self._seen[0] != stamp:
                self._seen = stamp, _parse(path.read_bytes(), path)
        except (FileNotFoundError, NotADirectoryError) as error:
            what = "has no run.json" if self.path.is_dir() else "is no folder" if self.path.exists() else "is missing"
            raise RunError(f"{self.path} is no run: it {what}; make one with Run.create(path, model=...)") from error
        return self._seen[1]

    def _save(self, manifest: _Manifest) -> None:
        with replacing(self.path / MANIFEST) as file:
            file.write(_encode(_as_json(manifest)))
        self._seen = None

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the run: alone to change it, shared to write blocks. A process that dies lets go."""
        with locked(self.path / LOCK, shared=shared):
            if not shared:
                self._seen = None  # another process may have been faster
                self._sweep()
            yield

    def _sweep(self) -> None:
        """Delete what killed writers left; only the holder of the lock writes such files."""
        for name in os.listdir(self.path):
            written_here = name.startswith(f".{MANIFEST}.") or ".safetensors." in name
            if written_here and is_temporary(name):
                (self.path / name).unlink(missing_ok=True)

    def _check_name(self, manifest: _Manifest, name: str, overwrite: bool) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[1-5])?", name):
            raise InvalidInput(
                f"name must be letters, digits, '.', '_' or '-' and not begin with a dot, got {name!r}; "
                "it becomes a file name. A level of corruption, /1 to /5, may follow"
            )
        if name.lower() == "head":
            raise InvalidInput("name must not be 'head'; that file holds the last linear layer")
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
        """The manifest with the classes of the first data set that tells them; all later ones must agree."""
        if manifest.classes not in (None, classes):
            raise InvalidInput(
                f"{name!r} has {classes} classes but this run has {manifest.classes}; a run holds one model"
            )
        if class_names is not None and manifest.class_names not in (None, class_names):
            raise InvalidInput(f"{name!r} has other class_names than this run; a run holds one model")
        return dataclasses.replace(manifest, classes=classes, class_names=manifest.class_names or class_names)

    def _with_head(self, manifest: _Manifest, head: Head | None) -> _Manifest:
        """The manifest with this head, written to its file if the run has none yet."""
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
        """Where a data set goes: never the file that the manifest names now, which has to stay good."""
        plain, other = f"{_stem(name)}.safetensors", f"{_stem(name)}~.safetensors"
        entry = manifest.data.get(name)
        return self.path / (other if entry is not None and entry.stored.file == plain else plain)

    def _enter(self, manifest: _Manifest, name: str, entry: _DataSet) -> None:
        old = manifest.data.get(name)
        self._save(dataclasses.replace(manifest, data={**manifest.data, name: entry}))
        if old is not None:
            (self.path / old.stored.file).unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Writer:
    """Writes one data set of a run in blocks; made by :meth:`Run.writer`.

    It holds no open file, so it can be sent to other processes. Leaving the ``with`` block closes it; leaving
    by an exception keeps what was written, for another attempt.
    """

    run: Run
    name: str
    role: str
    rows: int
    tensors: Tensors
    pass_count: int | None
    replace: bool

    def write(self, start: int, /, **arrays: ArrayLike) -> None:
        """Write every field for the rows from ``start`` on; when it returns, they survive whatever comes."""
        start = whole(start, "start", 0)
        block, count = self._check(start, arrays)
        header, offsets, _ = _layout(self.tensors, _note(self.pass_count))
        # close() takes the lock alone, so no block lands in a closed file
        with self.run._locked(shared=True):
            self._check_open()
            with open(self._part, "r+b") as file:
                for name, array in block.items():
                    file.seek(len(header) + offsets[name] + start * (array.nbytes // count))
                    file.write(np.ascontiguousarray(array).data)
                file.flush()
                os.fsync(file.fileno())
            # only now that the rows are on disk may the journal say so
            self._append({"start": start, "stop": start + count})

    def finished(self) -> list[tuple[int, int]]:
        """The ranges [start, stop) of rows that are written, merged and in order."""
        merged: list[tuple[int, int]] = []
        spans = [(line["start"], line["stop"]) for line in self._journal() if "start" in line]
        for start, stop in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        return merged

    def missing(self) -> list[tuple[int, int]]:
        """The ranges [start, stop) of rows that are still to be written."""
        edges = [0, *(edge for span in self.finished() for edge in span), self.rows]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]

    def close(self) -> None:
        """Enter the data set in the run; an error while rows are missing. Closing twice does nothing."""
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
        """Hash the complete file and give it its final name."""
        with open(self._part, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        stored = _File(self._part.name, size, digest, self.tensors)
        if manifest.head is not None and "features" in self.tensors:
            # blocks were checked against the head, each in its precision, if the run had one by then
            arrays = _map_file(self.run.path, stored)
            check_head(arrays["logits"], arrays["features"], self.run._head(manifest.head), half=True)
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
        plan = {
            "role": self.role,
            "rows": self.rows,
            "pass_count": self.pass_count,
            "tensors": {name: [code, list(shape[1:])] for name, (code, shape) in self.tensors.items()},
        }
        header, _, size = _layout(self.tensors, _note(self.pass_count))
        started = [line for line in _read_journal(self._log) if "tensors" in line]
        if started:
            self._check_plan(started[0], plan)
            self._undo_rename(manifest)
            if self._part.exists() and self._part.stat().st_size == size:
                return
        # in this order: a journal must never stand beside rows that it has not seen written
        self._log.unlink(missing_ok=True)
        sync_folder(self.run.path)
        with open(self._part, "wb") as file:
            file.write(header)
            file.truncate(size)
            file.flush()
            os.fsync(file.fileno())
        with replacing(self._log) as file:
            file.write(_journal_line(plan))

    def _undo_rename(self, manifest: _Manifest) -> None:
        """Take back the last step of a close() that died before the manifest named its file."""
        entry = manifest.data.get(self.name)
        for line in _read_journal(self._log):
            if "target" in line and (entry is None or entry.stored.file != line["target"]):
                target = self.run.path / line["target"]
                if target.exists() and not self._part.exists():
                    os.replace(target, self._part)

    def _check_plan(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        differing = [key for key in ("role", "rows", "pass_count") if old[key] != new[key]]
        for name in sorted(old["tensors"].keys() | new["tensors"].keys()):
            if old["tensors"].get(name) != new["tensors"].get(name):
                differing.append(name)
        if differing:
            flat_old, flat_new = old | old["tensors"], new | new["tensors"]
            what = "; ".join(f"{key} was {flat_old.get(key)}, now {flat_new.get(key)}" for key in differing)
            raise RunError(
                f"an unfinished {self.name!r} has another layout ({what}); resume with the same arguments, "
                f"or delete {self._part.name} and {self._log.name} to start afresh"
            )

    def _journal(self) -> list[dict[str, Any]]:
        self._check_open()
        return _read_journal(self._log)

    def _check_open(self) -> None:
        if not self._log.exists():
            raise RunError(f"{self.name!r} is no longer open: it was closed or deleted; call run.writer again")

    def _append(self, line: dict[str, Any]) -> None:
        handle = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, _journal_line(line))  # one call: lines of several processes do not mix
            os.fsync(handle)
        finally:
            os.close(handle)

    def _check(self, start: int, arrays: dict[str, ArrayLike]) -> tuple[dict[str, AnyArray], int]:
        """The block as it goes to disk, and its number of rows."""
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


def _stem(name: str) -> str:
    """The file of a data set, without its ending; ``corruption/3`` is in no folder of its own."""
    return name.replace("/", "@")


def _versions() -> dict[str, str]:
    from twofold import __version__

    return {"twofold": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _note(pass_count: int | None) -> dict[str, str]:
    """Metadata of a safetensors file: what its tensors alone do not tell."""
    return {} if pass_count is None else {"pass_count": str(pass_count)}


def _rows_first(outputs: Outputs) -> dict[str, AnyArray]:
    """The arrays of outputs as a file holds them: string ids as padded UTF-8 bytes."""
    arrays = outputs.flat()
    if "ids" in arrays and arrays["ids"].dtype.kind == "S":
        arrays["ids"] = _bytes_of(arrays["ids"])
    return arrays


def _bytes_of(ids: AnyArray) -> AnyArray:
    ids = np.ascontiguousarray(ids, dtype=f"S{max(1, ids.dtype.itemsize)}")
    return ids.view(np.uint8).reshape(len(ids), ids.dtype.itemsize)


def _tensors_of(
    fields: Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]], rows: int, pass_count: int | None
) -> Tensors:
    """Check the fields of a writer, and give every one the dtype and shape it has on disk."""
    if "logits" not in fields:
        raise InvalidInput(f"fields must hold logits, got {', '.join(fields) or 'nothing'}")
    tensors: Tensors = {}
    for name, (dtype, shape) in fields.items():
        known = name in KNOWN_KEYS or re.fullmatch(r"(layers|learned)/.+", name)
        if not known or name == "passes.count":
            raise InvalidInput(f"fields: {UnknownName.of('field', name, set(KNOWN_KEYS) - {'passes.count'})}")
        kind, width = np.dtype(dtype), tuple(whole(k, f"fields[{name!r}]", 1) for k in shape)
        if name == "ids" and kind.kind == "S" and kind.itemsize:
            kind, width = np.dtype(np.uint8), (kind.itemsize, *width)
        integer = name in ("labels", "predictions") or (name == "ids" and kind != np.uint8)
        legal = (np.int64,) if integer else (np.uint8,) if name == "ids" else (np.float16, np.float32, np.float64)
        if kind not in legal:
            want = "int64 or S<bytes>" if name == "ids" else " or ".join(np.dtype(k).name for k in legal)
            raise InvalidInput(f"fields[{name!r}] must have dtype {want}, got {np.dtype(dtype)}")
        if len(width) != _row_dims(name, kind):
            raise InvalidInput(f"fields[{name!r}] must give the shape of one row, got {tuple(shape)}")
        tensors[name] = CODES[kind], (rows, *width)
    _check_passes(tensors, pass_count)
    return tensors


def _row_dims(name: str, kind: np.dtype[Any]) -> int:
    if name in ("labels", "predictions", "passes.mean_entropy") or name.startswith("learned/"):
        return 0
    if name == "ids":
        return int(kind == np.uint8)
    return 2 if name == "passes" else 1


def _check_passes(tensors: Tensors, pass_count: int | None) -> None:
    """Raise unless means of passes are complete, counted, and of the classes of the logits."""
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
    """One field of a block in the declared dtype; what does not fit is an error."""
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


def _layout(tensors: Tensors, note: Mapping[str, str]) -> tuple[bytes, dict[str, int], int]:
    """The header of a safetensors file, where each tensor begins behind it, and the size of the file."""
    # the format allows no holes, and the widest dtypes first keep every tensor aligned without any
    order = sorted(tensors, key=lambda name: (-DTYPES[tensors[name][0]].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(note)} if note else {}
    offsets, end = {}, 0
    for name in order:
        code, shape = tensors[name]
        offsets[name], end = end, end + DTYPES[code].itemsize * int(np.prod(shape, dtype=object))
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offsets[name], end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, offsets, 8 + len(text) + end


def _write_file(file: BinaryIO, name: str, arrays: Mapping[str, AnyArray], note: Mapping[str, str]) -> _File:
    """Write arrays as safetensors, a block at a time, and tell what was written."""
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
    """The tensors of a file as views of one memory map; only the header is read."""
    path = folder / stored.file
    start, entries = _read_header(path, stored)
    memory = np.memmap(path, dtype=np.uint8, mode="r")
    views = {}
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        flat = np.asarray(memory[start + begin : start + end])
        views[name] = flat.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return views


def _read_header(path: Path, stored: _File) -> tuple[int, dict[str, Any]]:
    """Where the data of a file begin, and its entries; an error unless the manifest says the same."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= size else b""
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing, though run.json names it; restore it or write it again") from error
    if size != stored.bytes:
        raise RunError(f"{path} has {size} bytes, expected {stored.bytes}; it is damaged, write it again")
    try:
        entries = json.loads(text)
        entries.pop("__metadata__", None)
        found = {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in entries.items()}
        _, offsets, _ = _layout(stored.tensors, {})
        placed = {name: entry["data_offsets"][0] for name, entry in entries.items()}
        good = found == stored.tensors and placed == offsets
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise RunError(f"{path} has a damaged header; write it again") from error
    if not good:
        raise RunError(f"{path} does not hold the tensors that run.json lists; it is damaged, write it again")
    return 8 + length, entries


def _check_file(folder: Path, stored: _File) -> None:
    path = folder / stored.file
    _read_header(path, stored)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != stored.sha256:
        raise RunError(f"{path} is damaged: its SHA-256 is not the one in run.json; restore it or write it again")


def _as_json(manifest: _Manifest) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(manifest)}


def _encode(content: dict[str, Any]) -> bytes:
    """The bytes of run.json: the content and, last, its own SHA-256."""
    checksum = hashlib.sha256(json.dumps(content, allow_nan=False).encode()).hexdigest()
    return json.dumps({**content, "checksum": checksum}, allow_nan=False, indent=1).encode() + b"\n"


def _parse(raw: bytes, path: Path) -> _Manifest:
    """The manifest in the bytes of run.json; anything but what :func:`_encode` makes is an error."""
    try:
        content = json.loads(raw)
    except ValueError as error:
        raise RunError(f"{path} is damaged: no complete JSON ({error}); restore it from a copy") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RunError(f"{path} is no manifest of a twofold run; choose a folder made by Run.create")
    if content.get("version") != VERSION:
        raise RunError(
            f"{path} has format version {content.get('version')!r}, this twofold reads {VERSION}; "
            "a newer twofold may have written it, update with: pip install -U twofold"
        )
    checksum = content.pop("checksum", None)
    try:
        intact = raw == _encode(content) and checksum is not None
    except ValueError:
        intact = False
    if not intact:
        raise RunError(f"{path} is damaged or was edited: its checksum does not fit; restore it from a copy")
    del content["format"], content["version"]
    try:
        return _manifest_of(content)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} has an unexpected structure ({error}); it was not written by Run") from error


def _manifest_of(content: dict[str, Any]) -> _Manifest:
    data = {name: _DataSet(**{**entry, "stored": _file_of(entry["stored"])}) for name, entry in content["data"].items()}
    head = None if content["head"] is None else _file_of(content["head"])
    names = None if content["class_names"] is None else tuple(content["class_names"])
    return _Manifest(**{**content, "data": data, "head": head, "class_names": names})


def _file_of(content: dict[str, Any]) -> _File:
    # a manifest from elsewhere must not lead outside its own folder
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._@~-]*\.safetensors", content["file"]):
        raise ValueError(f"unsafe file name {content['file']!r}")
    tensors = {name: (code, tuple(shape)) for name, (code, shape) in content["tensors"].items()}
    return _File(**{**content, "tensors": tensors})


def _journal_line(content: dict[str, Any]) -> bytes:
    # the newline in front ends whatever a power cut tore, the checksum tells torn lines from whole ones
    body = json.dumps(content).encode()
    return b"\n%08x %s\n" % (zlib.crc32(body), body)


def _read_journal(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal; torn ones are passed over, and a journal that is not there has none."""
    lines: list[dict[str, Any]] = []
    if not path.exists():
        return lines
    for line in path.read_bytes().split(b"\n"):
        crc, _, body = line.partition(b" ")
        if body and crc == b"%08x" % zlib.crc32(body):
            lines.append(json.loads(body))
    return lines
