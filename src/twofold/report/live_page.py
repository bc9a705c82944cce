"""A page on a gate in deployment: rates, alarm statistic and recent verdicts; served on this machine, or written."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from threading import Lock
from typing import Any

import numpy as np

from twofold._files import replacing
from twofold.errors import InvalidInput, RunError
from twofold.gate.schema import VERDICTS
from twofold.plot.monitors import LOWEST
from twofold.report.html import read_static
from twofold.report.svg import Plot
from twofold.report.watched import WatchedFolder, WatchedStream, columns_of
from twofold.typing import Array

LOOPBACK = "127.0.0.1"
STYLES = {"accept": "k2", "unsure": "k1", "unknown": "k0"}
SERVED = "Served on this machine alone; nothing is sent anywhere."
STANDS_ALONE = "This file stands alone: it shows what was there when it was written, and loads nothing."
MEANINGS = {"accept": "accepted", "unsure": "unsure", "unknown": "unknown"}
WORDS = {
    "accepted": "Every score of the gate reaches its threshold, so that the label is used.",
    "unsure": "The score against mistakes is below its threshold: the label may be wrong.",
    "unknown": "The score against unknown inputs is below its threshold: the input may belong to none of the classes.",
    "promised": "The rates that the validation data of the gate leave possible; tinted in the drawing.",
    "alarm statistic": "Evidence that the rates have left what was promised, as the logarithm of an e-value. An alarm "
    "is raised at the limit, and stays. Few deployments whose rates are as promised ever reach it.",
}
MOST_LETTERS = 80  # of a recent decision's cell
LONG_NUMBER = re.compile(r"-?\d+\.\d{6,}(e[-+]?\d+)?")  # more digits than one reads


def format_live_page(folder: WatchedFolder, *, live: bool) -> str:
    """Format the page as HTML.

    Parameters
    ----------
    folder : WatchedFolder
        What is watched.
    live : bool
        Whether the page asks the server for news every two seconds; False for a page that stands alone.

    Returns
    -------
    str
        The page. Every text from a file is escaped.
    """
    from twofold import __version__

    if live:
        script = read_static("live.js")
        connect = "'self'"
        where = SERVED
    else:
        script = read_static("still.js")
        connect = "'none'"
        where = STANDS_ALONE
    name = folder.path.name or str(folder.path)
    template = Template(read_static("live.html"))
    return template.substitute(
        digest=_script_digest(script),
        connect=connect,
        version=escape(__version__),
        name=escape(name),
        style=read_static("page.css"),
        chart_style=read_static("chart.css"),
        body=format_live_body(folder),
        where=where,
        script=script,
    )


def _script_digest(script: str) -> str:
    """Hash a script as a content security policy names it, so that the browser runs this one alone."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def format_live_body(folder: WatchedFolder) -> str:
    """Format what changes: a section for each monitor and log.

    Parameters
    ----------
    folder : WatchedFolder
        What is watched; it is looked at now.

    Returns
    -------
    str
        HTML.
    """
    streams, problems = folder.look()
    parts = []
    for number, stream in enumerate(streams):
        parts.append(_format_stream(stream, f"stream-{number}"))
    if streams:
        parts.append(_format_words())
    else:
        parts.append("<p>There is no saved monitor and no log here yet.</p>")
    parts.append(_format_problems(problems))
    return "".join(parts)


def _format_words() -> str:
    """Explain the words of the page."""
    entries = []
    for word, meaning in WORDS.items():
        entries.append(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>")
    heading = '<h2 id="words">Words of this page</h2>'
    return f'<section aria-labelledby="words">{heading}<dl class="glossary">{"".join(entries)}</dl></section>'


def _format_problems(problems: Mapping[str, str]) -> str:
    """List the files that are not shown, and why."""
    if not problems:
        return ""
    items = []
    for name, reason in problems.items():
        items.append(f"<li>{escape(name)}: {escape(reason)}</li>")
    return f'<div class="cautions"><strong>Not shown</strong><ul>{"".join(items)}</ul></div>'


def _format_stream(stream: WatchedStream, key: str) -> str:
    """Format the section of a monitor or log: rates, drawings and recent decisions."""
    parts = [
        f'<h2 id="{key}">{escape(stream.name)}</h2>',
        _format_tiles(stream),
        _format_figures(stream),
        _format_recent(stream),
    ]
    if stream.skipped:
        parts.append(f"<p>{stream.skipped:,} lines could not be read.</p>")
    style = ""
    if stream.monitor.alarm:
        style = ' class="alarm"'
    return f'<section{style} aria-labelledby="{key}">{"".join(parts)}</section>'


def _format_tiles(stream: WatchedStream) -> str:
    """Format the number of inputs with the state of the alarm, then the rate of each verdict."""
    monitor = stream.monitor
    tiles = [_format_tile(f"{monitor.n:,}", "inputs", _alarm_state(stream))]
    for name, low, high in zip(VERDICTS, monitor.low, monitor.high, strict=True):
        promise = ""
        if stream.has_promise:
            promise = f"promised {100 * low:.1f} to {100 * high:.1f} %"
        tiles.append(_format_tile(_format_rate(monitor.rates[name]), MEANINGS[name], promise))
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _format_tile(value: str, meaning: str, note: str) -> str:
    return f"<li><b>{value}</b><span>{meaning}</span><small>{escape(note)}</small></li>"


def _alarm_state(stream: WatchedStream) -> str:
    """Say whether there is an alarm, or why there is none."""
    if not stream.has_promise:
        return "Rates only: pass --gate to compare them with what validation promised."
    if stream.monitor.alarm:
        return "ALARM: the rates have left what validation promised."
    return "No alarm."


def _format_rate(rate: float) -> str:
    """Format a rate in percent; a dash before the first input."""
    if math.isnan(rate):
        return "–"
    return f"{100 * rate:.1f} %"


def _format_figures(stream: WatchedStream) -> str:
    """Draw the rates, and the alarm statistic where something is promised."""
    figures = f"<figure>{_rates_svg(stream)}</figure>"
    if stream.has_promise:
        figures += f"<figure>{_statistic_svg(stream)}</figure>"
    return f'<div class="figures">{figures}</div>'


def _inputs_seen(stream: WatchedStream) -> tuple[Array, float]:
    """Return the number of inputs at each entry of the monitor's log, and the right end of the axis."""
    seen = np.array([line["n"] for line in stream.monitor.log], dtype=np.float64)
    last = 1.0
    if len(seen):
        last = float(seen[-1])
    return seen, last


def _rates_svg(stream: WatchedStream) -> str:
    """Draw the rate of each verdict over the inputs seen, with the promised range behind it."""
    monitor = stream.monitor
    seen, last = _inputs_seen(stream)
    rates = {
        "accept": [line["accept"] for line in monitor.log],
        "unsure": [line["unsure"] for line in monitor.log],
        "unknown": [line["unknown"] for line in monitor.log],
    }
    plot = Plot((0, last), (0, 1), "inputs seen", "share of verdicts", f"Rates of verdicts in {stream.name}")
    for name, low, high in zip(rates, monitor.low, monitor.high, strict=True):
        if stream.has_promise:
            plot.band(low, high, STYLES[name])
        plot.line(seen, rates[name], STYLES[name], name)
    return plot.svg()


def _statistic_svg(stream: WatchedStream) -> str:
    """Draw the alarm statistic over the inputs seen, with the limit at which an alarm is raised."""
    monitor = stream.monitor
    seen, last = _inputs_seen(stream)
    limit = math.log(2.0 / monitor.false_alarms)
    log_e = [line["log_e"] for line in monitor.log]
    highest_drawn = 4 * limit
    values = np.clip(log_e, LOWEST, highest_drawn)
    legend = "alarm statistic"
    if max(log_e, default=0.0) > highest_drawn:
        legend = f"alarm statistic, drawn up to {highest_drawn:.1f}"
    low = min(0.0, float(values.min(initial=0.0)))
    high = max(1.1 * limit, float(values.max(initial=0.0)))
    plot = Plot((0, last), (low, high), "inputs seen", "log e-value", f"Alarm statistic of {stream.name}")
    plot.line(seen, values, "k0", legend)
    plot.line([0, last], [limit, limit], "k1", "limit")
    return plot.svg()


def _format_recent(stream: WatchedStream) -> str:
    """Format the last decisions, newest first."""
    rows = list(reversed(stream.recent))
    if not rows:
        return ""
    columns = columns_of(rows)
    heads = []
    for name in columns:
        heads.append(f'<th scope="col" class="name">{escape(name)}</th>')
    lines = []
    for row in rows:
        cells = [_format_cell(row.get(name, "")) for name in columns]
        lines.append(f'<tr class="{escape(row["verdict"])}">{"".join(cells)}</tr>')
    head = f"<caption>Recent decisions</caption><thead><tr>{''.join(heads)}</tr></thead>"
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'


def _format_cell(text: str) -> str:
    """Format a value of a log; a long number is rounded, and is shown in full as a tooltip."""
    tooltip = ""
    if LONG_NUMBER.fullmatch(text):
        tooltip = f' title="{escape(text)}"'
        text = f"{float(text):.6g}"
    return f'<td class="text"{tooltip}>{escape(text[:MOST_LETTERS])}</td>'


def export_live_page(folder: WatchedFolder, path: str | Path) -> Path:
    """Write the page as one file that stands alone.

    Parameters
    ----------
    folder : WatchedFolder
        What is watched.
    path : str or Path
        File to write; it is replaced if it exists.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    RunError
        If the file cannot be written; it is then unchanged.
    """
    target = Path(path)
    try:
        with replacing(target) as file:
            file.write(format_live_page(folder, live=False).encode())
    except OSError as error:
        raise RunError(f"{target} cannot be written ({error.strerror}); nothing was changed") from error
    return target


# --- the server -----------------------------------------------------------------------------------------------------


class LiveServer(ThreadingHTTPServer):
    """Serve the page of a folder to browsers on this machine, and to nobody else.

    Parameters
    ----------
    folder : WatchedFolder
        What is watched.
    port : int, default=0
        The port; 0 takes a free one.

    Raises
    ------
    InvalidInput
        If the port is in use.
    """

    daemon_threads = True

    def __init__(self, folder: WatchedFolder, *, port: int = 0) -> None:
        self.folder = folder
        self.lock = Lock()  # one look at a time
        try:
            super().__init__((LOOPBACK, port), _LiveHandler)
        except OSError as error:
            raise InvalidInput(f"port {port} cannot be used ({error.strerror}); choose another one") from error

    @property
    def url(self) -> str:
        """Address of the page.

        Returns
        -------
        str
            On the loopback interface.
        """
        return f"http://{LOOPBACK}:{self.server_address[1]}/"

    def is_own_host(self, host: str | None) -> bool:
        """Check the Host header, so that no page of another site reaches this one through a name of its own.

        Parameters
        ----------
        host : str or None
            The header.

        Returns
        -------
        bool
            Whether it names this server.
        """
        port = self.server_address[1]
        return host in (f"{LOOPBACK}:{port}", f"localhost:{port}")


class _LiveHandler(BaseHTTPRequestHandler):
    """Answer two addresses: the page, and its changing part."""

    server_version = "twofold"
    sys_version = ""
    timeout = 10
    server: LiveServer

    def do_GET(self) -> None:
        """Answer a request."""
        if not self.server.is_own_host(self.headers.get("Host")):
            self._answer(403, "This page is served to its own address alone.\n", "text/plain")
        elif self.path == "/":
            self._answer(200, self._look(format_page=True), "text/html")
        elif self.path == "/body":
            self._answer(200, self._look(format_page=False), "text/html")
        else:
            self._answer(404, "There is nothing here.\n", "text/plain")

    def _look(self, *, format_page: bool) -> str:
        """Look at the folder while no other request does, and format the page or its changing part."""
        with self.server.lock:
            if format_page:
                return format_live_page(self.server.folder, live=True)
            return format_live_body(self.server.folder)

    def _answer(self, status: int, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Print nothing: requests are of no interest."""


def describe_streams(streams: Sequence[WatchedStream], problems: Mapping[str, str]) -> dict[str, object]:
    """Convert what was seen to plain values for JSON.

    Parameters
    ----------
    streams : sequence of WatchedStream
        Monitors and logs.
    problems : mapping of str to str
        Files that are not shown, and why.

    Returns
    -------
    dict
        Counts, rates and alarms by file, and the problems.
    """
    described: dict[str, object] = {}
    for stream in streams:
        described[stream.name] = _describe_stream(stream)
    return {"streams": described, "problems": dict(problems)}


def _describe_stream(stream: WatchedStream) -> dict[str, object]:
    """Convert a monitor or log to plain values; a rate before the first input is None."""
    monitor = stream.monitor
    rates: dict[str, float | None] = {}
    for name, rate in monitor.rates.items():
        rates[name] = None if math.isnan(rate) else rate
    alarm = None
    if stream.has_promise:
        alarm = monitor.alarm
    return {
        "n": monitor.n,
        "counts": dict(zip(VERDICTS, monitor.counts, strict=True)),
        "rates": rates,
        "alarm": alarm,
        "skipped": stream.skipped,
    }
