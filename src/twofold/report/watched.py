"""Read what a live page shows: saved monitors, and logs of decisions that grow while one looks.

A log is a CSV file with a header, a file with a JSON object on each line, or a Parquet file, and has a column
``verdict``; the columns id, time, label, prediction, conf_id and conf_ood are shown where there are some. Only what was
added since the last look is read; Parquet files do not grow, and are read again where they were replaced. Files are
untrusted: links and pipes are not followed, and lines that cannot be read are counted.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold._csv import unescape_cell
from twofold._files import is_temporary, open_regular
from twofold.errors import InvalidInput, MissingExtra, TwofoldError
from twofold.gate import Gate, Monitor
from twofold.gate.schema import VERDICTS

LOG_SUFFIXES = (".csv", ".jsonl")
SHOWN = ("id", "input", "time", "label", "prediction", "verdict", "conf_id", "conf_ood")
RECENT = 20  # decisions that are shown
MOST_FILES = 50
MOST_BYTES = 1 << 25  # that are read at once
MOST_MONITOR_BYTES = 1 << 22
MOST_ROWS = 5_000_000  # of a Parquet file
ROWS_AT_ONCE = 50_000
LONGEST_LINE = 1 << 16
BLOCK = 50  # decisions after which the rates are recorded


@dataclass(eq=False)
class WatchedStream:
    """Hold one monitor or log as it was last seen.

    Parameters
    ----------
    name : str
        Name of the file.
    monitor : Monitor
        Its counts and their history.
    has_promise : bool
        Whether the monitor knows which rates validation promised; without, there is no alarm statistic.
    recent : deque of dict
        The last decisions, texts by column.
    skipped : int, default=0
        Lines that could not be read.
    """

    name: str
    monitor: Monitor
    has_promise: bool
    recent: deque[dict[str, str]] = field(default_factory=lambda: deque(maxlen=RECENT))
    skipped: int = 0


@dataclass(eq=False)
class _LogReader:
    """Read a growing log from where the last look ended."""

    path: Path
    stream: WatchedStream
    columns: list[str] | None = None
    offset: int = 0

    def read_on(self) -> None:
        """Count the decisions that were added, whole lines only."""
        with open_regular(self.path) as file:
            file.seek(self.offset)
            while added := file.read(MOST_BYTES):
                end = added.rfind(b"\n") + 1
                if not end and len(added) == MOST_BYTES:
                    raise InvalidInput("it has no line ends; it is not a log of decisions")
                self._read_lines(added[:end])
                self.offset += end
                file.seek(self.offset)
                if len(added) < MOST_BYTES:
                    break

    def _read_lines(self, content: bytes) -> None:
        rows = []
        for line in content.splitlines():
            row = self._parse(line)
            if row is not None:
                rows.append(row)
        self._count(rows)

    def _parse(self, line: bytes) -> dict[str, str] | None:
        """Read one line; the header of a CSV file gives no row."""
        if not line.strip():
            return None
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError("a line is too long")
            text = line.decode("utf-8-sig" if self.columns is None else "utf-8")
            if self.path.suffix == ".jsonl":
                content = json.loads(text)
                row = {str(key): str(value) for key, value in content.items()}
            else:
                cells = [unescape_cell(cell) for cell in next(csv.reader([text]))]
                if self.columns is None:
                    self.columns = cells
                    return None
                row = dict(zip(self.columns, cells, strict=True))
            if row.get("verdict") not in VERDICTS:
                raise ValueError("no verdict")
        except (ValueError, AttributeError, RecursionError, csv.Error):
            self.stream.skipped += 1
            return None
        return row

    def _count(self, rows: list[dict[str, str]]) -> None:
        block = max(BLOCK, len(rows) // 500)
        for start in range(0, len(rows), block):
            self.stream.monitor.update([row["verdict"] for row in rows[start : start + block]])
        self.stream.recent.extend({key: row[key] for key in SHOWN if key in row} for row in rows[-RECENT:])


def _count_parquet(path: Path, stream: WatchedStream) -> None:
    """Count the decisions of a whole Parquet file, in its order."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra('Parquet files need pyarrow: pip install "twofold[logs]"') from error
    try:
        with open_regular(path) as opened, pq.ParquetFile(opened) as file:
            names = set(file.schema_arrow.names)
            rows = file.metadata.num_rows
            if "verdict" not in names:
                raise InvalidInput("it has no column verdict; it is not a log of decisions")
            if rows > MOST_ROWS:
                raise InvalidInput(f"it has {rows:,} rows, which is too many here; replay it with twofold logs watch")
            columns = [name for name in SHOWN if name in names]
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                _count_batch(batch, stream, max(BLOCK, rows // 500))
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"it is not a Parquet file, or damaged: {error}") from error


def _count_batch(batch: Any, stream: WatchedStream, block: int) -> None:
    """Count the verdicts of some rows, and keep the last rows as text."""
    found = batch.column("verdict").to_pylist()
    verdicts = [verdict for verdict in found if verdict in VERDICTS]
    stream.skipped += len(found) - len(verdicts)
    for start in range(0, len(verdicts), block):
        stream.monitor.update(verdicts[start : start + block])
    for row in batch.slice(max(0, len(found) - RECENT)).to_pylist():
        if row["verdict"] in VERDICTS:
            stream.recent.append({name: str(value) for name, value in row.items() if value is not None})


class WatchedFolder:
    """Follow the monitors and logs of a folder, or one file.

    Parameters
    ----------
    path : str or Path
        A folder, a saved monitor or a log.
    gate : Gate, optional
        The gate that makes the decisions; logs are then compared with the rates that its validation promised.

    Raises
    ------
    InvalidInput
        If there is no such file or folder.
    """

    def __init__(self, path: str | Path, *, gate: Gate | None = None) -> None:
        self.path = Path(path)
        self.gate = gate
        self._readers: dict[Path, _LogReader] = {}
        self._tables: dict[Path, tuple[tuple[int, int], WatchedStream]] = {}
        if not self.path.exists():
            raise InvalidInput(f"there is no file or folder {self.path}; give a saved monitor, a log or their folder")

    def look(self) -> tuple[list[WatchedStream], dict[str, str]]:
        """Read what is new.

        Returns
        -------
        streams : list of WatchedStream
            Monitors and logs by name.
        problems : dict of str to str
            Why a file is not shown, by its name.
        """
        streams, problems = [], {}
        files = self._files()
        for path in files[:MOST_FILES]:
            try:
                streams.append(self._read(path))
            except (TwofoldError, OSError) as error:
                problems[path.name] = str(error).replace(str(path), path.name)
        if len(files) > MOST_FILES:
            problems["further files"] = f"{len(files) - MOST_FILES} more files are not shown; watch a smaller folder"
        return streams, problems

    def _files(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        found = []
        for path in sorted(self.path.iterdir()):
            if path.suffix in (".json", ".parquet", *LOG_SUFFIXES) and not is_temporary(path.name):
                found.append(path)
        return found

    def _read(self, path: Path) -> WatchedStream:
        if path.is_symlink():
            raise InvalidInput("it is a link; links are not followed")
        if path.suffix in LOG_SUFFIXES:
            return self._read_log(path)
        if path.suffix == ".parquet":
            return self._read_parquet(path)
        if path.stat().st_size > MOST_MONITOR_BYTES:
            raise InvalidInput("it is too large for a saved monitor")
        return WatchedStream(path.name, Monitor.load(path), has_promise=True)

    def _read_log(self, path: Path) -> WatchedStream:
        reader = self._readers.get(path)
        if reader is None or path.stat().st_size < reader.offset:  # new, or begun again
            reader = _LogReader(path, WatchedStream(path.name, self._new_monitor(), self.gate is not None))
            self._readers[path] = reader
        reader.read_on()
        return reader.stream

    def _read_parquet(self, path: Path) -> WatchedStream:
        status = path.stat()
        stamp = status.st_size, status.st_mtime_ns
        if path not in self._tables or self._tables[path][0] != stamp:  # new, or replaced
            stream = WatchedStream(path.name, self._new_monitor(), self.gate is not None)
            _count_parquet(path, stream)
            self._tables[path] = stamp, stream
        return self._tables[path][1]

    def _new_monitor(self) -> Monitor:
        if self.gate is not None:
            return self.gate.monitor()
        return Monitor(low=(0.0, 0.0, 0.0), high=(1.0, 1.0, 1.0), false_alarms=0.01)


def columns_of(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """List the columns that some rows have, in the order in which they are shown.

    Parameters
    ----------
    rows : iterable of mapping
        Decisions.

    Returns
    -------
    list of str
        Names of columns.

    Examples
    --------
    >>> columns_of([{"verdict": "accept", "time": "12:00"}])
    ['time', 'verdict']
    """
    present: set[str] = set()
    for row in rows:
        present |= row.keys()
    return [name for name in SHOWN if name in present]
