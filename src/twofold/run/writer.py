"""Define the writer of one data set: blocks of rows, in any order, from any process, over several attempts."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from twofold._checks import ArrayLike, whole
from twofold._files import naming, open_plain, sync_folder
from twofold.errors import InvalidInput, RunError
from twofold.outputs import AnyArray, check_head, check_head_shape, check_rows, is_half
from twofold.run._folder import RunFolder
from twofold.run._journal import Entry, Journal, Span, Target, WritePlan
from twofold.run._manifest import Manifest, StoredSet, file_stem
from twofold.run._tensors import FileLayout, StoredFile, Tensor, Tensors, encode_rows, lay_out, map_tensors


@dataclass(frozen=True, eq=False)
class Writer:
    """Write one data set of a run in blocks of rows; created by :meth:`Run.writer`.

    It holds no open file, so it can be sent to other processes. Leaving the ``with`` block closes it; leaving it by an
    exception keeps what was written, for another attempt.

    Parameters
    ----------
    folder : RunFolder
        Folder of the run that will hold the data set.
    name : str
        Name of the data set.
    role : str
        What the data set is used for.
    rows : int
        Number of rows of the complete data set.
    tensors : dict of str to Tensor
        Safetensors dtype and shape of each array on disk.
    pass_count : int or None
        Number of passes behind stored averages.
    replace : bool
        Whether closing overwrites a data set of the same name.
    """

    folder: RunFolder
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
        block = self._check_block(start, arrays)
        rows = len(block["logits"])
        layout = lay_out(self.tensors, self.pass_count)
        # close() holds the lock exclusively, so no block lands in a closed file
        with self.folder.locked(shared=True):
            self._check_open()
            with naming(self._part), open(open_plain(self._part, os.O_RDWR), "r+b") as file:
                for name, array in block.items():
                    row_bytes = array.nbytes // rows
                    file.seek(layout.starts[name] + start * row_bytes)
                    file.write(np.ascontiguousarray(array).data)
                file.flush()
                os.fsync(file.fileno())
            # only now that the rows are on disk may the journal say so
            self._journal.append(Span(start, start + rows))

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
        >>> from twofold.run import Run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, model="resnet18")
        ...     writer = run.writer("test", role="test", rows=4, fields={"logits": ("float32", (2,))})
        ...     writer.write(2, logits=np.eye(2))
        ...     writer.finished(), writer.missing()
        ([(2, 4)], [(0, 2)])
        """
        self._check_open()
        spans = []
        for entry in self._read_journal():
            if isinstance(entry, Span):
                spans.append((entry.start, entry.stop))
        return _merge_spans(spans)

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
        gaps = []
        reached = 0
        for start, stop in self.finished():
            if reached < start:
                gaps.append((reached, start))
            reached = stop
        if reached < self.rows:
            gaps.append((reached, self.rows))
        return gaps

    def close(self) -> None:
        """Add the complete data set to the run. Closing twice does nothing.

        Raises
        ------
        RunError
            If rows are missing, or the run already holds the name and ``replace`` is False.
        InvalidInput
            If logits and features do not fit the head of the run, or the classes are not those of the run.
        """
        folder = self.folder
        with folder.locked():
            manifest = folder.manifest()
            if not self._journal.path.exists() and self.name in manifest.data:
                return
            self._undo_rename(manifest)
            self._check_complete()
            folder.check_new_name(manifest, self.name, replace=self.replace)
            manifest = folder.add_classes(manifest, self.name, self._classes)
            stored = self._seal(manifest, folder.free_file(manifest, self.name))
            uses_head = manifest.head is not None and "features" in self.tensors
            entry = StoredSet(self.role, self.rows, uses_head, self.pass_count, stored)
            folder.save_data_set(manifest, self.name, entry)
            self._journal.path.unlink()

    def _check_complete(self) -> None:
        missing = self.missing()
        if missing:
            spans = ", ".join(f"{start}:{stop}" for start, stop in missing[:5])
            if len(missing) > 5:
                spans += ", ..."
            raise RunError(
                f"{self.name!r} is not complete: rows {spans} of {self.rows} are missing; write them, "
                "or call run.writer again with the same arguments to resume later"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def _seal(self, manifest: Manifest, target: Path) -> StoredFile:
        """Hash the complete file and rename it to its final name."""
        with open(open_plain(self._part, os.O_RDWR), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        stored = StoredFile(self._part.name, size, digest, self.tensors)
        arrays = map_tensors(self.folder.path, stored)
        if manifest.head is not None and "features" in self.tensors:
            # blocks were checked against the head, each in its precision, if the run had one by then
            head = self.folder.head(manifest.head)
            check_head_shape(head, self._classes, self.tensors["features"].columns)
            check_head(arrays["logits"], arrays["features"], head, half=True)
        del arrays
        self._journal.append(Target(target.name))
        os.replace(self._part, target)
        sync_folder(self.folder.path)
        return dataclasses.replace(stored, file=target.name)

    @property
    def _classes(self) -> int:
        return self.tensors["logits"].columns

    @property
    def _part(self) -> Path:
        return self.folder.path / f"{file_stem(self.name)}.safetensors.part"

    @property
    def _journal(self) -> Journal:
        path = self.folder.path / f"{file_stem(self.name)}.safetensors.journal"
        return Journal(path, self.name, self.rows)

    def _start(self, manifest: Manifest) -> None:
        """Resume an unfinished data set of the same layout, or start a new one; :meth:`Run.writer` holds the lock."""
        row_tensors = {name: Tensor(code, shape[1:]) for name, (code, shape) in self.tensors.items()}
        plan = WritePlan(self.role, self.rows, self.pass_count, row_tensors)
        layout = lay_out(self.tensors, self.pass_count)
        entries = self._read_journal()
        if entries:
            self._check_plan(entries[0], plan)
            self._undo_rename(manifest)
            if self._has_part(layout):
                return
        # in this order: a journal must never exist beside a file whose rows it did not record
        self._journal.path.unlink(missing_ok=True)
        self._part.unlink(missing_ok=True)  # whatever it is: a link is not followed
        sync_folder(self.folder.path)
        created = open_plain(self._part, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        with naming(self._part), open(created, "wb") as file:
            file.write(layout.header)
            file.truncate(layout.size)
            file.flush()
            os.fsync(file.fileno())
        self._journal.start(plan)

    def _has_part(self, layout: FileLayout) -> bool:
        """Check whether the file of an unfinished data set exists, as this writer would have created it."""
        try:
            with open(open_plain(self._part, os.O_RDWR), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                return size == layout.size and file.read(len(layout.header)) == layout.header
        except FileNotFoundError:
            return False

    def _undo_rename(self, manifest: Manifest) -> None:
        """Undo the last step of a close() that was killed before the manifest named its file."""
        entry = manifest.data.get(self.name)
        for line in self._read_journal():
            if isinstance(line, Target) and (entry is None or entry.stored.file != line.target):
                target = self.folder.path / line.target
                if _is_plain(target) and not os.path.lexists(self._part):
                    os.replace(target, self._part)

    def _check_plan(self, first: Entry, plan: WritePlan) -> None:
        assert isinstance(first, WritePlan)  # as Journal.read promises
        differences = first.differences(plan)
        if differences:
            raise RunError(
                f"an unfinished {self.name!r} has another layout ({'; '.join(differences)}); resume with the same "
                f"arguments, or delete {self._part.name} and {self._journal.path.name} to start afresh"
            )

    def _read_journal(self) -> list[Entry]:
        """Read the journal, the plan first; empty if there is none, or if not even its plan is complete."""
        journal = self._journal
        try:
            return journal.read()
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{journal.path} was not written by Run ({error}); "
                f"delete {self._part.name} and {journal.path.name} to start afresh"
            ) from error

    def _check_open(self) -> None:
        if not self._journal.path.exists():
            raise RunError(f"{self.name!r} is no longer open: it was closed or deleted; call run.writer again")

    def _check_block(self, start: int, arrays: dict[str, ArrayLike]) -> dict[str, AnyArray]:
        """Validate a block, and return its arrays as they are stored."""
        if arrays.keys() != self.tensors.keys():
            odd = sorted(arrays.keys() ^ self.tensors.keys())
            raise InvalidInput(
                f"write needs exactly the fields {', '.join(sorted(self.tensors))}; "
                f"missing or not declared: {', '.join(odd)}"
            )
        where = f" (block from row {start})"
        block = {}
        for name, value in arrays.items():
            array = check_rows(name, value, classes=self._classes, label=name + where)
            block[name] = encode_rows(array, name + where, self.tensors[name])
        count = len(block["logits"])
        for name, array in block.items():
            if len(array) != count:
                raise InvalidInput(f"{name}{where} has {len(array)} rows but logits has {count}")
        if start + count > self.rows:
            raise InvalidInput(f"rows {start}:{start + count} do not fit; {self.name!r} has {self.rows} rows")
        stored_head = self.folder.manifest().head
        if stored_head is not None and "features" in block:
            head = self.folder.head(stored_head)
            half = is_half(arrays["logits"]) or is_half(arrays["features"])
            check_head(block["logits"], block["features"], head, half=half, where="features" + where)
        return block


def _merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges [start, stop) and join those that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            begin, end = merged.pop()
            merged.append((begin, max(stop, end)))
        else:
            merged.append((start, stop))
    return merged


def _is_plain(path: Path) -> bool:
    """Check whether the path is a regular file, and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
