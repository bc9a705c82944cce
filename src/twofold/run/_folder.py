"""The folder of a run: its manifest, read as it is now and changed under a lock."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from twofold._files import is_temporary, locked, open_regular, replacing
from twofold.errors import Damaged, InvalidInput, RunError, UnknownName
from twofold.outputs import AnyArray, Head, build_unchecked, check_head_shape
from twofold.run._manifest import (
    HEAD,
    Manifest,
    StoredSet,
    check_set_name,
    decode_manifest,
    encode_manifest,
    file_names,
)
from twofold.run._tensors import StoredFile, map_tensors, write_tensors

MANIFEST, LOCK = "run.json", "run.lock"
MANIFEST_BYTES = 100_000_000  # a larger file is not a manifest
PATIENCE = 5.0  # seconds for which a reader retries while other processes change what it reads
FRESH = 100_000_000  # nanoseconds: two versions of a file so young may share inode, size and time stamp

Found = TypeVar("Found")


class Stamp(NamedTuple):
    """Tell versions of a file apart without reading it."""

    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        """Take the stamp of a file that was looked up."""
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)


class RunFolder:
    """Read and change what is in the folder of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last_read: tuple[Stamp, Manifest] | None = None
        self._checked: set[str] = set()  # digests of files whose labels and predictions name classes of the run

    # Reading

    def manifest(self) -> Manifest:
        """Return the manifest as it is on disk now; it is parsed again only when another process changed it."""
        path = self.path / MANIFEST
        try:
            if self._last_read is not None:
                stamp, manifest = self._last_read
                if stamp == Stamp.of(path.stat()):
                    return manifest
            with open_regular(path) as file:
                found = os.fstat(file.fileno())
                raw = file.read(MANIFEST_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunError(f"{self.path} is not a run: it {self._what_is_missing()}") from error
        if len(raw) > MANIFEST_BYTES:
            raise RunError(
                f"{path} has more than {MANIFEST_BYTES} bytes, so Run did not write it; restore it from a copy"
            )
        manifest = decode_manifest(raw, path)
        is_fresh = time.time_ns() - found.st_mtime_ns < FRESH
        self._last_read = None if is_fresh else (Stamp.of(found), manifest)
        return manifest

    def forget(self) -> None:
        """Read and check everything again from now on."""
        self._last_read = None
        self._checked.clear()

    def _what_is_missing(self) -> str:
        """Say why there is no manifest, and what to do."""
        if self.path.suffix == ".npz" and self.path.is_file():
            return (
                "is an npz file; put it into one: "
                "Run.create(path, model=...).add(name, Outputs.from_npz(file), role=role)"
            )
        if self.path.is_dir():
            problem = "has no run.json"
        elif self.path.exists():
            problem = "is not a folder"
        else:
            problem = "is missing"
        return f"{problem}; make one with Run.create(path, model=...)"

    def head(self, stored: StoredFile) -> Head:
        """Map the last linear layer."""
        return build_unchecked(Head, map_tensors(self.path, stored))

    def read_settled(self, name: str, read: Callable[[Manifest, StoredSet], Found]) -> Found:
        """Read a data set, and again while another process replaces it, for at most PATIENCE seconds."""
        deadline = None
        while True:
            manifest = self.manifest()
            if name not in manifest.data:
                raise UnknownName.of("data set", str(name), manifest.data or ["(none yet)"])
            entry = manifest.data[name]
            problem = None
            try:
                found = read(manifest, entry)
            except RunError as error:
                problem = error
            is_settled = self.manifest().data.get(name) == entry
            now = time.monotonic()
            deadline = now + PATIENCE if deadline is None else deadline
            if is_settled or now > deadline:
                if problem is not None:
                    raise problem
                return found

    def check_classes(self, manifest: Manifest, entry: StoredSet, arrays: Mapping[str, AnyArray]) -> None:
        """Raise unless labels and predictions name classes of the run; each file is looked at once."""
        if entry.stored.sha256 in self._checked:
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
        self._checked.add(entry.stored.sha256)

    # Writing

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock of the run: exclusive to change it, shared to write blocks. A killed process releases it."""
        with locked(self.path / LOCK, shared=shared):
            if not shared:
                self._last_read = None  # another process may have changed the manifest
                self._sweep()
            yield

    def _sweep(self) -> None:
        """Delete what killed writers left; only the holder of the lock writes such files."""
        for name in os.listdir(self.path):
            is_ours = name.startswith(f".{MANIFEST}.") or ".safetensors." in name
            if is_ours and is_temporary(name):
                (self.path / name).unlink(missing_ok=True)

    def save(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        raw = encode_manifest(manifest)
        decode_manifest(raw, self.path / MANIFEST)  # what is written can be opened again
        with replacing(self.path / MANIFEST) as file:
            file.write(raw)
        self._last_read = None

    def save_data_set(self, manifest: Manifest, name: str, entry: StoredSet) -> None:
        """Add a data set to the manifest, and delete the file of the one that it replaces."""
        old = manifest.data.get(name)
        self.save(dataclasses.replace(manifest, data={**manifest.data, name: entry}))
        if old is not None:
            (self.path / old.stored.file).unlink(missing_ok=True)

    def check_new_name(self, manifest: Manifest, name: str, *, replace: bool) -> None:
        """Raise unless a data set of this name may be written."""
        check_set_name(name)
        for other in manifest.data:
            if other == name and not replace:
                raise RunError(
                    f"{self.path} already holds a data set {name!r}; pass replace=True to overwrite it, "
                    "or choose another name"
                )
            if other != name and other.lower() == name.lower():
                raise RunError(
                    f"{self.path} already holds {other!r}, which differs from {name!r} in case only; "
                    "some file systems cannot tell them apart, choose another name"
                )

    def add_classes(
        self, manifest: Manifest, name: str, classes: int, class_names: tuple[str, ...] | None = None
    ) -> Manifest:
        """Return the manifest with the classes of the first data set that has them; all later ones must agree."""
        if manifest.classes not in (None, classes):
            raise InvalidInput(
                f"{name!r} has {classes} classes but this run has {manifest.classes}; a run holds one model"
            )
        if class_names is not None and manifest.class_names not in (None, class_names):
            raise InvalidInput(f"{name!r} has other class_names than this run; a run holds one model")
        return dataclasses.replace(manifest, classes=classes, class_names=manifest.class_names or class_names)

    def add_head(self, manifest: Manifest, head: Head | None) -> Manifest:
        """Return the manifest with this head, written to its file if the run has none yet."""
        if head is None:
            return manifest
        if manifest.head is not None:
            if not self.head(manifest.head).same_as(head):
                raise InvalidInput("head differs from the head of this run; a run holds one model, make another run")
            return manifest
        check_head_shape(head, manifest.classes or len(head.bias), None)
        with replacing(self.path / HEAD) as file:
            stored = write_tensors(file, HEAD, {"weight": head.weight, "bias": head.bias})
        return dataclasses.replace(manifest, head=stored, classes=len(head.bias))

    def free_file(self, manifest: Manifest, name: str) -> Path:
        """Choose the file of a data set: never the one that the manifest names now, which has to stay intact."""
        plain, other = file_names(name)
        entry = manifest.data.get(name)
        is_taken = entry is not None and entry.stored.file == plain
        return self.path / (other if is_taken else plain)
