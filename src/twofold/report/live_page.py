"""A page on a gate in deployment: rates, alarm statistic and recent verdicts; served on this machine, or written."""

from __future__ import annotations

import base64
import hashlib
import math
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

LOOPBACK = "127.0.0.1"
STYLES = {"accept": "k2", "unsure": "k1", "unknown": "k0"}
SERVED = "Served on this machine alone; nothing is sent anywhere."
STANDS_ALONE = "This file stands alone: it shows what was there when it was written, and loads nothing."
MEANINGS = {"accept": "accepted", "unsure": "unsure", "unknown": "unknown"}


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

    script = read_static("live.js") if live else read_static("still.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(read_static("live.html")).substitute(
        digest=f"sha256-{digest}",
        connect="'self'" if live else "'none'",
        version=escape(__version__),
        name=escape(folder.path.name or str(folder.path)),
        style=read_static("page.css"),
        chart_style=read_static("chart.css"),
        body=format_live_body(folder),
        where=SERVED if live else STANDS_ALONE,
        script=script,
    )


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
    if not parts:
        parts.append("<p>There is no saved monitor and no log here yet.</p>")
    return "".join(parts) + _format_problems(problems)


def _format_problems(problems: Mapping[str, str]) -> str:
    if not problems:
        return ""
    items = [f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in problems.items()]
    return f'<div class="cautions"><strong>Not shown</strong><ul>{"".join(items)}</ul></div>'


def _format_stream(stream: WatchedStream, key: str) -> str:
    monitor = stream.monitor
    state = "ALARM: the rates have left what validation promised." if monitor.alarm else "No alarm."
    if not stream.has_promise:
        state = "Rates only: pass --gate to compare them with what validation promised."
    tiles = [f"<li><b>{monitor.n:,}</b><span>inputs</span><small>{escape(state)}</small></li>"]
    for name, low, high in zip(VERDICTS, monitor.low, monitor.high, strict=True):
        rate = monitor.rates[name]
        shown = "–" if math.isnan(rate) else f"{100 * rate:.1f} %"
        promise = f"promised {100 * low:.1f} to {100 * high:.1f} %" if stream.has_promise else ""
        tiles.append(f"<li><b>{shown}</b><span>{MEANINGS[name]}</span><small>{promise}</small></li>")
    figures = [_rates_svg(stream)]
    if stream.has_promise:
        figures.append(_statistic_svg(stream))
    drawn = "".join(f"<figure>{svg}</figure>" for svg in figures)
    skipped = f"<p>{stream.skipped:,} lines could not be read.</p>" if stream.skipped else ""
    alarm = ' class="alarm"' if monitor.alarm else ""
    return (
        f'<section{alarm} aria-labelledby="{key}"><h2 id="{key}">{escape(stream.name)}</h2>'
        f'<ul class="tiles">{"".join(tiles)}</ul><div class="figures">{drawn}</div>'
        f"{_format_recent(stream)}{skipped}</section>"
    )


def _rates_svg(stream: WatchedStream) -> str:
    log = stream.monitor.log
    n = np.array([line["n"] for line in log], dtype=np.float64)
    last = float(n[-1]) if len(n) else 1.0
    plot = Plot((0, last), (0, 1), "inputs seen", "share of verdicts", f"Rates of verdicts in {stream.name}")
    rates = {
        "accept": [line["accept"] for line in log],
        "unsure": [line["unsure"] for line in log],
        "unknown": [line["unknown"] for line in log],
    }
    for (name, values), low, high in zip(rates.items(), stream.monitor.low, stream.monitor.high, strict=True):
        if stream.has_promise:
            plot.band(low, high, STYLES[name])
        plot.line(n, values, STYLES[name], name)
    return plot.svg()


def _statistic_svg(stream: WatchedStream) -> str:
    monitor = stream.monitor
    limit = math.log(2.0 / monitor.false_alarms)
    n = np.array([line["n"] for line in monitor.log], dtype=np.float64)
    values = np.clip([line["log_e"] for line in monitor.log], LOWEST, 4 * limit)
    last = float(n[-1]) if len(n) else 1.0
    low = min(0.0, float(values.min(initial=0.0)))
    high = max(1.1 * limit, float(values.max(initial=0.0)))
    plot = Plot((0, last), (low, high), "inputs seen", "log e-value", f"Alarm statistic of {stream.name}")
    plot.line(n, values, "k0", "alarm statistic")
    plot.line([0, last], [limit, limit], "k1", "limit")
    return plot.svg()


def _format_recent(stream: WatchedStream) -> str:
    """Format the last decisions, newest first."""
    rows = list(reversed(stream.recent))
    if not rows:
        return ""
    columns = columns_of(rows)
    heads = "".join(f'<th scope="col" class="name">{escape(name)}</th>' for name in columns)
    lines = []
    for row in rows:
        cells = "".join(f'<td class="text">{escape(row.get(name, "")[:80])}</td>' for name in columns)
        lines.append(f'<tr class="{escape(row["verdict"])}">{cells}</tr>')
    head = f"<caption>Recent decisions</caption><thead><tr>{heads}</tr></thead>"
    return f'<div class="scroll" tabindex="0"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'


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
            with self.server.lock:
                page = format_live_page(self.server.folder, live=True)
            self._answer(200, page, "text/html")
        elif self.path == "/body":
            with self.server.lock:
                body = format_live_body(self.server.folder)
            self._answer(200, body, "text/html")
        else:
            self._answer(404, "There is nothing here.\n", "text/plain")

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
        monitor = stream.monitor
        rates = {name: None if math.isnan(rate) else rate for name, rate in monitor.rates.items()}
        counts = dict(zip(VERDICTS, monitor.counts, strict=True))
        alarm = monitor.alarm if stream.has_promise else None
        described[stream.name] = {
            "n": monitor.n,
            "counts": counts,
            "rates": rates,
            "alarm": alarm,
            "skipped": stream.skipped,
        }
    return {"streams": described, "problems": dict(problems)}
