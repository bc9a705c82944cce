"""Replay the monitor of a gate over a log: verdicts are counted per window of time, and an alarm says when rates left.

The alarm is that of :mod:`twofold.gate.monitor`: a false one is raised in at most a share ``false_alarms`` of all logs,
however long they are and however often one looks.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold._files import read_regular, replacing
from twofold._json import check_table, check_text, decode_json, encode_json
from twofold._notebook import MOST_ROWS, NotebookTable, card
from twofold.errors import InvalidInput, MissingExtra
from twofold.gate import Gate, Monitor
from twofold.gate.schema import VERDICTS, parse_monitor
from twofold.logs.columns import as_expression, default_column, engine_errors, keep_rows, read_rows
from twofold.logs.results import plain_value
from twofold.logs.tables import LogTable, open_table
from twofold.logs.verdicts import verdict_expressions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT, VERSION = "twofold-watch", 1
_EVERY = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d|mo|y)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Window:
    """Hold one window of time: its verdicts, and what the monitor says after it.

    Parameters
    ----------
    start : datetime or date
        When the window starts.
    accept, unsure, unknown : int
        Number of each verdict.
    log_e : float
        Natural logarithm of the e-value of all verdicts until the end of the window.
    alarm : bool
        Whether an alarm is or was raised.
    """

    start: datetime | date
    accept: int
    unsure: int
    unknown: int
    log_e: float
    alarm: bool


@dataclass(frozen=True, eq=False, repr=False)
class Watch:
    """Hold the replay of a monitor over a log.

    Parameters
    ----------
    monitor : Monitor
        The monitor after the last window.
    windows : list of Window
        The windows of this replay, in order of time.
    every : str
        Length of a window.
    resumed : Monitor
        The monitor before the last window, from which a later replay resumes.
    """

    monitor: Monitor
    windows: list[Window]
    every: str
    resumed: Monitor

    @property
    def alarm(self) -> bool:
        """Whether an alarm was raised."""
        return self.monitor.alarm

    @property
    def first_alarm(self) -> datetime | date | None:
        """Start of the first window of this replay at whose end there is an alarm; None if there is none."""
        for window in self.windows:
            if window.alarm:
                return window.start
        return None

    def to_dict(self) -> dict[str, Any]:
        """Convert the replay to plain values.

        Returns
        -------
        dict
            ``alarm``, ``first_alarm``, ``false_alarms``, ``n``, ``rates``, ``log_e`` and the ``windows``.
        """
        return {
            "alarm": self.alarm,
            "first_alarm": self.first_alarm,
            "false_alarms": self.monitor.false_alarms,
            "every": self.every,
            "n": self.monitor.n,
            "rates": self.monitor.rates,
            "log_e": self.monitor.log_e if self.monitor.n else None,
            "windows": [dataclasses.asdict(window) for window in self.windows],
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Convert the replay to strict JSON.

        Parameters
        ----------
        indent : int or None, default=2
            Spaces of indentation per level; None writes one line.

        Returns
        -------
        str
            The content of :meth:`to_dict`.
        """
        return json.dumps(plain_value(self.to_dict()), indent=indent)

    def __str__(self) -> str:
        rates = ", ".join(f"{name} {rate:.4f}" for name, rate in self.monitor.rates.items())
        state = "no alarm"
        if self.alarm:
            state = "alarm" if self.first_alarm is None else f"alarm since the window of {self.first_alarm}"
        head = f"{self.monitor.n} verdicts in windows of {self.every}: {rates}"
        return f"{head}\n{state} (false alarms in at most {self.monitor.false_alarms:g} of all logs)"

    def __repr__(self) -> str:
        state = "alarm" if self.alarm else "no alarm"
        return f"Watch({self.monitor.n} verdicts in {len(self.windows)} windows of {self.every}: {state})"

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = []
        for window in self.windows[-MOST_ROWS:]:
            rows.append((str(window.start), window.accept, window.unsure, window.unknown, window.log_e, window.alarm))
        head = ("window", "accept", "unsure", "unknown", "log e", "alarm")
        state = "alarm" if self.alarm else "no alarm"
        facts = {
            "every": self.every,
            "first alarm": self.first_alarm,
            "false alarms at most": self.monitor.false_alarms,
        }
        return card(f"{self.monitor.n:,} verdicts: {state}", facts, NotebookTable(head, rows, total=len(self.windows)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state from which a later replay over a longer log resumes, atomically.

        It is the state before the last window, which may still grow and is counted again.

        Parameters
        ----------
        path : path-like
            The JSON file to write; an existing file is replaced.

        Raises
        ------
        InvalidInput
            If no window was counted.
        """
        if not self.windows:
            raise InvalidInput("there is no window to resume from; save after a replay that counted rows")
        state = {name: getattr(self.resumed, name) for name in self.resumed.__dataclass_fields__}
        start = self.windows[-1].start.isoformat()
        content = {"format": FORMAT, "version": VERSION, "every": self.every, "from": start, "monitor": state}
        with replacing(Path(path)) as file:
            file.write(encode_json(content))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the rate of each verdict by window, and where the alarm was raised.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib axes
            The axes.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise MissingExtra('plot needs matplotlib: pip install "twofold[plot]"') from error

        if ax is None:
            _, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
        starts: list[Any] = [window.start for window in self.windows]
        colours = {"accept": "#0072b2", "unsure": "#e69f00", "unknown": "#d55e00"}
        for place, name in enumerate(VERDICTS):
            rates = []
            for window in self.windows:
                counts = (window.accept, window.unsure, window.unknown)
                rates.append(counts[place] / max(sum(counts), 1))
            ax.plot(starts, rates, label=name, color=colours[name], marker="." if len(starts) < 60 else None)
            ax.axhspan(self.monitor.low[place], self.monitor.high[place], color=colours[name], alpha=0.12, lw=0)
        if self.first_alarm is not None:
            alarm: Any = self.first_alarm
            ax.axvline(alarm, color="black", linestyle="--", label="alarm")
        ax.set_ylim(0, 1)
        ax.set_ylabel("share of verdicts")
        ax.set_title(f"Windows of {self.every}; bands: rates that validation leaves possible", fontsize=10)
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        for label in ax.get_xticklabels():
            label.set(rotation=30, ha="right")
        return ax


def watch(
    gate: Gate,
    table: Any,
    *,
    time: Any = None,
    every: str = "1d",
    verdict: Any = None,
    conf_id: Any = None,
    conf_ood: Any = None,
    where: Any = None,
    resume: str | os.PathLike[str] | None = None,
    false_alarms: float = 0.01,
    ood_share: float | None = None,
    memory: str | None = None,
    threads: int | None = None,
) -> Watch:
    """Replay the monitor of a gate over a log, window by window.

    Parameters
    ----------
    gate : Gate
        The gate.
    table : path, glob, sequence of paths, or table
        As for :func:`twofold.logs.evaluate`.
    time : str or narwhals.Expr, optional
        Column of times or dates; by default ``time``.
    every : str, default="1d"
        Length of a window: a number and s, m, h, d, mo or y.
    verdict : str or narwhals.Expr, optional
        Column of logged verdicts (accept, unsure or unknown). By default they are made from the confidences.
    conf_id, conf_ood : str or narwhals.Expr, optional
        The confidences, in the units of the scores of the gate; by default the columns ``conf_id`` (or ``conf``) and
        ``conf_ood``.
    where : str or narwhals.Expr, optional
        Rows to keep.
    resume : path, optional
        What :meth:`Watch.save` wrote: earlier windows are not counted again. ``every`` must be the same.
    false_alarms : float, default=0.01
        Largest share of logs with a false alarm; of a resumed replay, that of the first.
    ood_share : float, optional
        Expected OOD prevalence, by default that of the gate.
    memory : str, optional
        Most memory of the embedded DuckDB; for files.
    threads : int, optional
        Threads of the embedded DuckDB; for files.

    Returns
    -------
    Watch
        The windows, the monitor after them, and whether and when an alarm was raised.

    Raises
    ------
    InvalidInput
        If the table cannot be read, times are missing or not times, a verdict is not one of the three, or what to
        resume is not of this gate.

    Examples
    --------
    >>> import pyarrow as pa
    >>> gate = Gate.fit_confidences([True] * 90 + [False] * 10, [0.9] * 90 + [0.3] * 10)
    >>> days = [datetime(2026, 1, 1)] * 100 + [datetime(2026, 1, 2)] * 100
    >>> table = pa.table({"time": days, "conf_id": [0.9] * 90 + [0.3] * 110})
    >>> replay = watch(gate, table)
    >>> replay.alarm, replay.first_alarm
    (True, datetime.datetime(2026, 1, 2, 0, 0))
    """
    _parse_every(every)
    monitor = gate.monitor(false_alarms=false_alarms, ood_share=ood_share)
    since = None
    if resume is not None:
        monitor, since = _load(Path(resume), monitor, every)
    with open_table(table, memory=memory, threads=threads) as opened:
        rows = _count_windows(gate, keep_rows(opened, where), time, every, verdict, conf_id, conf_ood)
    windows = []
    before = copy.deepcopy(monitor)
    for row in rows:
        if since is not None and row["start"].isoformat() < since:
            continue
        before = copy.deepcopy(monitor)
        counts = (row["accept"], row["unsure"], row["unknown"])
        monitor.update_counts(*counts)
        windows.append(Window(row["start"], *counts, monitor.log_e, monitor.alarm))
    return Watch(monitor, windows, every, before)


def _count_windows(
    gate: Gate, table: LogTable, time: Any, every: str, verdict: Any, conf_id: Any, conf_ood: Any
) -> list[dict[str, Any]]:
    """Count the verdicts of each window in one scan; windows come in order of time."""
    import narwhals as nw

    if time is None:
        time = default_column(table, "time", ("time",))
    if verdict is None:
        said = verdict_expressions(gate, table, conf_id, conf_ood)["verdict"]
    else:
        said = as_expression(table, verdict, "verdict")
    with engine_errors():
        raw = table.select(time=as_expression(table, time, "time"), verdict=said)
        dtype = raw.frame.collect_schema()["time"]
    if not isinstance(dtype, nw.Datetime | nw.Date):
        raise InvalidInput(f"time must hold times or dates, got {dtype}; if it holds text, write timestamp({time})")
    count, unit = _parse_every(every)
    rows = _count_short_windows(raw, unit)
    missing = sum(row["missing"] for row in rows)
    if missing:
        raise InvalidInput(f"time is null in {missing} rows; leave them out with where=")
    odd = sum(row["odd"] for row in rows)
    if odd:
        raise InvalidInput(f"verdicts must be {', '.join(VERDICTS)}, and {odd} rows hold something else")
    return _join_windows(rows, count, unit)


def _count_short_windows(raw: LogTable, unit: str) -> list[dict[str, Any]]:
    """Count the verdicts of each unit of time, rows without a time, and rows with another verdict."""
    import narwhals as nw

    short = unit if unit in _SECONDS else "d"  # not every engine has longer windows; they are joined afterwards
    verdict = nw.col("verdict")
    columns = {
        "start": nw.col("time").dt.truncate(f"1{short}"),
        "missing": nw.col("time").is_null().cast(nw.Int64()),
        "odd": (~verdict.is_in(VERDICTS)).fill_null(True).cast(nw.Int64()),
    }
    for name in VERDICTS:
        columns[name] = (verdict == name).fill_null(False).cast(nw.Int64())
    counted_names = ("missing", "odd", *VERDICTS)
    with engine_errors():
        numbers = raw.select(**columns).frame
        sums = [nw.col(name).sum().alias(f"s_{name}") for name in counted_names]
        counted = numbers.group_by("start").agg(*sums)
    rows = []
    for found in read_rows(counted):
        row = {"start": found["start"]}
        for name in counted_names:
            row[name] = int(found[f"s_{name}"] or 0)
        rows.append(row)
    return rows


def _parse_every(every: str) -> tuple[int, str]:
    """Split the length of a window into a number and a unit."""
    match = _EVERY.fullmatch(every) if isinstance(every, str) else None
    if match is None:
        raise InvalidInput(f"every must be a number and s, m, h, d, mo or y, such as '1h', got {every!r}")
    return int(match[1]), match[2]


def _join_windows(rows: list[dict[str, Any]], count: int, unit: str) -> list[dict[str, Any]]:
    """Join windows of one unit into windows of several, in order of time."""
    joined: dict[Any, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["start"]):
        start = _window_start(row["start"], count, unit)
        window = joined.setdefault(start, {"start": start} | dict.fromkeys(VERDICTS, 0))
        for name in VERDICTS:
            window[name] += row[name]
    return list(joined.values())


def _window_start(start: Any, count: int, unit: str) -> Any:
    """Return the start of the window of several units that begins at a multiple of its length from 1970 on."""
    if count == 1 and unit in _SECONDS:
        return start
    if unit in _SECONDS:
        epoch = type(start)(1970, 1, 1)
        if isinstance(start, datetime) and start.tzinfo is not None:
            epoch = epoch.replace(tzinfo=start.tzinfo)
        length = timedelta(seconds=count * _SECONDS[unit])
        return start - (start - epoch) % length
    months = (start.year - 1970) * 12 + start.month - 1
    months -= months % (count if unit == "mo" else 12 * count)
    return start.replace(year=1970 + months // 12, month=months % 12 + 1, day=1)


def _load(path: Path, expected: Monitor, every: str) -> tuple[Monitor, str]:
    """Read what Watch.save wrote: the monitor, and the start of the first window to count."""
    again = "write it again with Watch.save"
    try:
        raw = read_regular(path)
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist; write it with Watch.save") from error
    content = decode_json(
        raw, path, kind="a saved watch", form=FORMAT, version=VERSION, again=again, error=InvalidInput
    )
    try:
        parts = check_table(content, "the watch", ("every", "from", "monitor"))
        saved_every = check_text(parts["every"], "every")
        since = check_text(parts["from"], "from")
        datetime.fromisoformat(since)
        monitor = Monitor(**vars(parse_monitor(parts["monitor"])))
    except (ValueError, ArithmeticError) as error:
        raise InvalidInput(f"{path} does not hold the state of a watch ({error}); {again}") from error
    if saved_every != every:
        raise InvalidInput(f"{path} was counted in windows of {saved_every}, and every is {every}; use the same")
    if (monitor.low, monitor.high) != (expected.low, expected.high):
        raise InvalidInput(f"{path} is of another gate, OOD share or false-alarm rate; start a new watch")
    return monitor, since
