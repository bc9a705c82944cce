"""Build the report on benchmark results: who leads, who is statistically tied with the leaders, and on what data."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twofold.bench.clique_maps import CliqueMap, clique_map
from twofold.bench.compare import Comparison, compare
from twofold.bench.results import Results
from twofold.bench.rows import ResultRow, better_of, finest, is_missing, method
from twofold.bench.text import MAIN_METRICS, coverage_of, scale
from twofold.errors import InvalidInput
from twofold.report import charts
from twofold.report.commands import place, report_command
from twofold.report.document import Cell, Document, Figure, Number, Part, Section, Table, count, listed
from twofold.report.material import Done

PLACE = ("benchmark", "model", "recipe", "seed", "run", "shift")  # what a value of a method is of
BASE = "msp"  # what improvements are measured against
METHODS = 40  # rows of a table
BOXES = 12  # largest number of boxes in a plot


def document(results: Results, source: str, done: Done = lambda _: None, command: str | None = None) -> Document:
    """Build the whole report on results, with a section for each protocol.

    Parameters
    ----------
    results : Results
        The results.
    source : str
        Where they come from, for the text.
    done : callable, optional
        Called with the name of each finished step.
    command : str, optional
        Command line to show as the one that makes the page.

    Returns
    -------
    Document
        The report.

    Raises
    ------
    InvalidInput
        If no row has a value.
    """
    measured = [row for row in results.rows if row["metric"] is not None and not is_missing(row["value"])]
    if not measured:
        raise InvalidInput(f"{source} holds no values; the column reason says why")
    protocols = list(dict.fromkeys(row["protocol"] for row in measured))
    compared = {protocol: _compared(results, protocol, measured) for protocol in protocols}
    done("comparing")
    names = [one.methods for one in compared.values()]
    models = {row["model"] for row in measured if row["model"]}
    sections = [_verdict(compared)]
    for protocol, one in compared.items():
        sections.append(_protocol(results, protocol, one))
        done(f"protocol {protocol}")
    sections += [_gaps(results), _provenance(results, source, compared, command)]
    methods = len({name for several in names for name in several})
    sets = len({row["shift"] for row in measured})
    return Document(
        title="Which scores can be trusted?",
        subtitle=f"{count(methods, 'method')} on {count(sets, 'data set or group', 'data sets and groups')} of "
        f"{count(max(len(models), 1), 'architecture')}, from {source}.",
        tiles=_tiles(compared, measured),
        sections=tuple(sections),
    )


class _Found:
    """Hold one protocol: its main metric, its values, and the comparison of methods where possible."""

    def __init__(self, protocol: str | None, metric: str, rows: Sequence[ResultRow]) -> None:
        self.protocol, self.metric, self.rows = protocol, metric, rows
        self.better = better_of(rows)
        self.factor, self.unit = scale(metric)
        several: dict[str, dict[tuple[Any, ...], float]] = {}
        for row in rows:
            several.setdefault(method(row), {})[tuple(row[column] for column in PLACE)] = float(row["value"])
        sets = [frozenset(places) for places in several.values()]
        usual = max(sets, key=lambda places: (sets.count(places), len(places)))
        sign = -1.0 if self.better == "higher" else 1.0
        self.complete = {name for name, places in several.items() if usual <= places.keys()}
        self.means = {  # over the same places, where a method has them all
            name: float(np.mean([v for p, v in places.items() if name not in self.complete or p in usual]))
            for name, places in several.items()
        }
        order = sorted(several, key=lambda name: (name not in self.complete, sign * self.means[name], name))
        self.methods = tuple(order)
        self.base = next((name for name in (BASE, f"{BASE} + {BASE}") if name in several), "")
        self.comparison: Comparison | None = None
        self.map: CliqueMap | None = None
        self.reason = ""  # why methods are not compared
        self.map_reason = ""  # why groups are not compared

    @property
    def title(self) -> str:
        """The metric with its unit."""
        return f"{self.metric} ({self.unit})" if self.unit else self.metric

    @property
    def name(self) -> str:
        """The protocol as a heading."""
        return self.protocol or "all results"

    def number(self, value: float, low: float = math.nan, high: float = math.nan, *, strong: bool = False) -> Number:
        """Format a value of the metric as it is printed."""
        return Number(value, low, high, self.factor, 2 if self.factor > 1 else 4, strong)


def _compared(results: Results, protocol: str | None, measured: Sequence[ResultRow]) -> _Found:
    own = [row for row in measured if row["protocol"] == protocol and row["score"] is not None]
    have = list(dict.fromkeys(row["metric"] for row in own))
    metric = next(name for name in (*MAIN_METRICS.get(str(protocol), ("aurc",)), *have) if name in have)
    found = _Found(protocol, metric, finest(row for row in own if row["metric"] == metric))
    try:
        found.comparison = compare(results, metric, protocol=protocol)
    except InvalidInput as error:
        found.reason = str(error)
        return found
    try:
        found.map = clique_map(results, metric, protocol=protocol)
    except InvalidInput as error:
        found.map_reason = str(error)
    return found


def _tiles(compared: Mapping[str | None, _Found], measured: Sequence[ResultRow]) -> tuple[tuple[str, str, str], ...]:
    tiles = [(f"{len(measured):,}", "values", f"{len(compared)} protocol{'s' if len(compared) > 1 else ''}")]
    for one in list(compared.values())[:4]:
        best = one.methods[0]
        tiles.append((best, f"leads {one.name}", f"{one.title} {one.number(one.means[best])}"))
    return tuple(tiles)


def _verdict(compared: Mapping[str | None, _Found]) -> Section:
    parts: list[Part] = []
    doubts: dict[str, list[str]] = {}  # protocols by what is said of them
    for one in compared.values():
        best, c = one.methods[0], one.comparison
        told = f"{one.name}: {best} has the best mean {one.title}, {one.number(one.means[best])}"
        if one.base and best != one.base:
            gain = _gain(one.means[best], one.means[one.base], one.better)
            told += f", {gain:.1f} % better than {BASE} ({one.number(one.means[one.base])})"
        if c is None:
            parts.append(f"{told}. Methods were not compared: {one.reason}.")
            continue
        if not c.omnibus:
            parts.append(f"{told}. Friedman's test finds no difference between any of the {len(c.methods)} methods.")
        else:
            others = [name for name in c.top if name != c.methods[0]]
            rest = f"is statistically tied with {listed(others)}" if others else "stands alone at the top"
            parts.append(f"{told}. By ranks, {c.methods[0]} leads and {rest} ({count(len(c.blocks), 'block')}).")
        for text in c.warnings:
            doubts.setdefault(text, []).append(one.name)
    if doubts:
        told_once = tuple((f"{', '.join(names)}: {text}.",) for text, names in doubts.items())
        parts.append(Table("cautions", "What stands against these numbers", ("caution",), told_once))
    return Section("verdict", "The verdict", tuple(parts))


def _gain(value: float, base: float, better: str) -> float:
    """Compute the improvement over the base in percent of its value, or of its distance where lower is better."""
    return 100.0 * (value - base if better == "higher" else base - value) / abs(base) if base else math.nan


def _protocol(results: Results, protocol: str | None, one: _Found) -> Section:
    key = "".join(c if c.isalnum() else "-" for c in one.name)
    parts: list[Part] = [_table(one, key)]
    if one.comparison is not None:
        c = one.comparison
        rule = f"{c.test} with Holm's correction at {c.alpha:g}"
        top, groups = (c.top, c.cliques) if c.omnibus else ((), ())
        about = f"Mean ranks of {len(c.methods)} methods under {one.name}"
        svg = charts.rank_rows(c.methods, c.mean_ranks, groups, top, about)
        caption = f"Bars join methods that cannot be told apart ({rule})."
        rows = tuple(zip(c.methods, c.mean_ranks.tolist(), strict=True))
        parts.append(Figure(f"ranks-{key}", "Ranks and cliques", caption, svg, ("method", "mean rank"), rows, True))
    if one.map is not None:
        parts.append(_map(one.map, one, key))
        parts += [f"Not in “Who leads where”: {dropped}." for dropped in one.map.dropped_groups]
    elif one.comparison is not None:
        parts.append(f"“Who leads where” is not drawn: {one.map_reason}.")
    parts += _improvement(one, key)
    parts += _boxes(one, key)
    if one.reason:
        parts.append(f"No ranks are drawn: {one.reason}.")
    return Section(f"protocol-{key}", f"Protocol {one.name}", tuple(parts))


def _table(one: _Found, key: str) -> Table:
    shifts = list(dict.fromkeys(str(row["shift"]) for row in one.rows))
    cells: dict[tuple[str, str], list[ResultRow]] = {}
    for row in one.rows:
        cells.setdefault((method(row), str(row["shift"])), []).append(row)
    lead = {shift: _lead(one, [v for (_, s), v in cells.items() if s == shift]) for shift in shifts}
    rows = []
    for name in one.methods[:METHODS]:
        line: list[Cell] = [name, one.number(one.means[name], strong=name == one.methods[0])]
        for shift in shifts:
            several = cells.get((name, shift), [])
            if not several:
                line.append(Number(math.nan))
                continue
            mean = float(np.mean([row["value"] for row in several]))
            single = several[0] if len(several) == 1 and several[0]["low"] is not None else None
            span = (single["low"], single["high"]) if single is not None else ()
            line.append(one.number(mean, *span, strong=mean == lead[shift]))
        rows.append(tuple(line))
    more = len(one.methods) - METHODS
    notes = [f"{count(more, 'more method')} below these."] if more > 0 else []
    of = coverage_of(one.metric, one.protocol)
    caption = f"{one.title}, {one.better} is better{of}; bold is best of its column, and means are over runs"
    return Table(f"values-{key}", caption, ("method", "mean", *shifts), tuple(rows), 1, tuple(notes))


def _lead(one: _Found, several: Sequence[Sequence[ResultRow]]) -> float:
    means = [float(np.mean([row["value"] for row in rows])) for rows in several]
    return max(means) if one.better == "higher" else min(means)


def _map(table: CliqueMap, one: _Found, key: str) -> Figure:
    columns = [f"{name} ({n})" for name, n in zip(table.columns, table.blocks, strict=True)]
    some = slice(0, METHODS)
    about = f"Which of {len(table.rows)} methods lead which group under {one.name}"
    svg = charts.member_map(table.rows[some], columns, table.member[some], table.judged[some], about)
    rows = tuple(
        (name, group, "leads" if table.member[i, j] else "compared" if table.judged[i, j] else "not compared")
        for i, name in enumerate(table.rows)
        for j, group in enumerate(table.columns)
    )
    caption = "A dot: in the top clique of the group. A ring: compared, and not in it. The number counts blocks."
    return Figure(f"map-{key}", "Who leads where", caption, svg, ("method", "group", "place"), rows, True)


def _improvement(one: _Found, key: str) -> list[Part]:
    if not one.base or len(one.means) < 2:
        return [f"There is no {BASE} here to measure improvement against."]
    base = one.means[one.base]
    # a mean over fewer, perhaps easier, data sets and networks is not an improvement
    everywhere = [name for name in one.means if name != one.base and {name, one.base} <= one.complete]
    gains = {name: _gain(one.means[name], base, one.better) for name in everywhere}
    if not gains:
        return [f"No method is measured wherever {BASE} is, so there is no improvement to show."]
    names = sorted(gains, key=lambda name: -gains[name])[:METHODS]
    about = f"Improvement of {len(names)} methods over {BASE}"
    label = f"improvement of {one.metric} over {BASE}, %"
    svg = charts.bar_rows(names, np.array([gains[name] for name in names]), label, about)
    left = len(one.means) - 1 - len(everywhere)
    caption = f"Of the mean {one.metric}, in percent of that of {BASE}."
    caption += f" Left out: {count(left, 'method')} without a value for each of these." if left else ""
    rows = tuple((name, gains[name]) for name in names)
    return [Figure(f"improvement-{key}", f"Improvement over {BASE}", caption, svg, ("method", "improvement %"), rows)]


def _boxes(one: _Found, key: str) -> list[Part]:
    """Draw the leading method and the plain one by architecture."""
    groups: dict[str, list[float]] = {}
    shown = [name for name in dict.fromkeys((one.methods[0], one.base)) if name in one.means]
    for row in one.rows:
        if method(row) in shown:
            groups.setdefault(f"{method(row)}, {row['model'] or 'model'}", []).append(one.factor * float(row["value"]))
    boxes = [(name, np.array(values)) for name, values in sorted(groups.items())][:BOXES]
    if not boxes:
        return []
    svg = charts.box_rows(boxes, one.title, f"{one.title} of {listed(shown)} by architecture")
    rows = tuple((name, value) for name, values in boxes for value in values.tolist())
    caption = f"Values of {listed(shown)} over data sets and runs: quartiles, median and extremes."
    return [Figure(f"boxes-{key}", "By architecture", caption, svg, ("method and model", one.title), rows)]


def _gaps(results: Results) -> Section:
    """List what has no value, and why."""
    reasons: dict[str, int] = {}
    for row in results.rows:
        if is_missing(row["value"]) and row["reason"]:
            what = method(row) if row["score"] is not None else str(row["shift"] or row["run"] or "")
            reasons[f"{what}: {row['reason']}"] = reasons.get(f"{what}: {row['reason']}", 0) + 1
    if not reasons:
        return Section("missing", "What is missing", ("Nothing: every score has a value on every data set.",))
    rows = tuple((why, n) for why, n in sorted(reasons.items(), key=lambda item: -item[1])[:METHODS])
    return Section("missing", "What is missing", (Table("missing", "Why values are missing", ("what", "rows"), rows),))


def _provenance(results: Results, source: str, compared: Mapping[str | None, _Found], command: str | None) -> Section:
    from twofold import __version__

    def told(column: str) -> str:
        found = dict.fromkeys(str(row[column]) for row in results.rows if row[column] is not None)
        return listed(list(found), 8) or "–"

    facts = {
        "source": source,
        "rows": f"{len(results):,}",
        "report made with": f"twofold {__version__}",
    }
    facts |= {name: told(name) for name in ("benchmark", "model", "recipe", "seed", "run", "version", "command")}
    tables = [Table("facts", "Provenance", ("what", "value"), tuple(facts.items()))]
    if Path(source).exists():
        commands = _commands(results, source, compared, command)
        tables.append(Table("commands", "Commands", ("command", "gives"), tuple(commands)))
    return Section("provenance", "Where this comes from", tuple(tables))


def _commands(
    results: Results, source: str, compared: Mapping[str | None, _Found], command: str | None
) -> list[tuple[str, str]]:
    """List the commands that reproduce the numbers of the page; those without output are left out."""
    from twofold.bench.published import agreement, counterparts

    commands = [(command or report_command(source), "this page")]
    for protocol, one in compared.items():
        if one.comparison is not None:
            chosen = "" if protocol is None else f" --protocol {shlex.quote(protocol)}"
            asked = f"twofold compare {place(source)} --metric {shlex.quote(one.metric)}{chosen}"
            commands.append((asked, f"ranks, tests and cliques of {one.metric} under {one.name}"))
    benchmarks = dict.fromkeys(row["benchmark"] for row in results.rows if row["benchmark"])
    published = dict.fromkeys(name for benchmark in benchmarks for name in counterparts(benchmark))
    if any(agreement(results.to_dicts(), name) for name in published):
        commands.append((f"twofold bench check {place(source)}", "agreement with published numbers"))
    return commands
