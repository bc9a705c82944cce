"""The journal of a data set that is written in blocks: its plan, the rows that are on disk, and its final name."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from twofold._files import naming, open_plain, replacing
from twofold._json import check_count, check_table, check_text
from twofold.run._manifest import file_names, parse_tensor
from twofold.run._tensors import Tensor


@dataclass(frozen=True)
class WritePlan:
    """Record as the first line of a journal what is to be written."""

    role: str
    rows: int
    pass_count: int | None
    tensors: dict[str, Tensor]  # with the shape of one row

    def differences(self, other: WritePlan) -> list[str]:
        """Say in which settings and tensors another plan differs from this one."""
        found = []
        for key in ("role", "rows", "pass_count"):
            before, after = getattr(self, key), getattr(other, key)
            if before != after:
                found.append(f"{key} was {before}, now {after}")
        for name in sorted(self.tensors.keys() | other.tensors.keys()):
            before, after = self.tensors.get(name), other.tensors.get(name)
            if before != after:
                found.append(f"{name} was {_format_tensor(before)}, now {_format_tensor(after)}")
        return found


@dataclass(frozen=True)
class Span:
    """Record in a journal that these rows are written."""

    start: int
    stop: int


@dataclass(frozen=True)
class Target:
    """Record as the last line of a journal the name to which the complete file is renamed."""

    target: str


Entry = WritePlan | Span | Target


@dataclass(frozen=True)
class Journal:
    """Read and append to the journal of one data set."""

    path: Path
    name: str  # of the data set
    rows: int

    def start(self, plan: WritePlan) -> None:
        """Create the journal with its plan."""
        with replacing(self.path) as file:
            file.write(_encode_line(plan))

    def append(self, entry: Span | Target) -> None:
        """Add a line, and return once it is on disk."""
        line = _encode_line(entry)
        handle = open_plain(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            with naming(self.path):
                if os.write(handle, line) != len(line):  # one call: lines of several processes do not mix
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
        finally:
            os.close(handle)

    def read(self) -> list[Entry]:
        """Read the plan and what follows it; nothing if there is no journal, or not even its plan is complete.

        Raises ValueError or RecursionError if the lines are not those of this class.
        """
        lines = _read_lines(self.path)
        entries: list[Entry] = []
        for line in lines:
            entries.append(self._parse_entry(line) if entries else _parse_plan(line))
        return entries

    def _parse_entry(self, line: object) -> Span | Target:
        """Parse a line after the plan: rows that are written, or the final name of the file."""
        if "target" in check_table(line, "a line"):
            target = check_table(line, "a line", ("target",))["target"]
            names = file_names(self.name)
            if target not in names:
                raise ValueError(f"target must be {' or '.join(names)}, got {target!r:.80}")
            return Target(str(target))
        span = check_table(line, "a line", ("start", "stop"))
        start = check_count(span["start"], "start", 0)
        stop = check_count(span["stop"], "stop", 1)
        if not start < stop <= self.rows:
            raise ValueError(f"rows {start}:{stop} are not among {self.rows}")
        return Span(start, stop)


def _parse_plan(line: object) -> WritePlan:
    """Parse the first line of a journal."""
    plan = check_table(line, "its first line", ("role", "rows", "pass_count", "tensors"))
    tensors = {}
    for name, described in check_table(plan["tensors"], "tensors").items():
        tensors[name] = parse_tensor(described, f"{name!r:.80}")
    pass_count = None
    if plan["pass_count"] is not None:
        pass_count = check_count(plan["pass_count"], "pass_count", 1)
    return WritePlan(check_text(plan["role"], "role"), check_count(plan["rows"], "rows", 1), pass_count, tensors)


def _format_tensor(tensor: Tensor | None) -> str:
    return "None" if tensor is None else str([tensor.code, list(tensor.shape)])


def _encode_line(entry: Entry) -> bytes:
    # the newline in front ends a line torn by a power cut; the checksum shows which lines are complete
    body = json.dumps(dataclasses.asdict(entry)).encode()
    return b"\n%08x %s\n" % (zlib.crc32(body), body)


def _read_lines(path: Path) -> list[object]:
    """Read the complete lines of a journal; torn lines are skipped, and a missing journal has none."""
    try:
        with open(open_plain(path, os.O_RDWR), "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return []
    lines: list[object] = []
    for line in raw.split(b"\n"):
        crc, _, body = line.partition(b" ")
        if body and crc == b"%08x" % zlib.crc32(body):
            lines.append(check_table(json.loads(body), "a line"))
    return lines
