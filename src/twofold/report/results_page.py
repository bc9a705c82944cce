"""The report on benchmark results: who leads, who is statistically tied with the leaders, and on what data."""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twofold.bench.clique_maps import CliqueMap, clique_map
from twofold.bench.compare import Comparison, compare
from twofold.bench.results import Results
from twofold.bench.rows import ResultRow, better_of, finest, is_missing, method, valued_rows
from twofold.bench.text import MAIN_METRICS, coverage_of, decimals, scale, title
from twofold.errors import InvalidInput
from twofold.report import charts
from twofold.report.commands import Command, commands_table, quote_path, report_command
from twofold.report.document import (
    Document,
    Figure,
    Number,
    Part,
    ReportTable,
    Section,
    TableCell,
    Tile,
    format_count,
    join_words,
)
from twofold.report.options import ReportOptions

PLACE = ("benchmark", "model", "recipe", "seed", "run", "shift")  # columns that say what a value of a method is of
BASE = "msp"  # what improvements are measured against
MOST_METHODS = 40  # rows of a table
MOST_BOXES = 12  # boxes of a plot
MOST_TILES = 4  # protocols that are named at the top


def results_document(results: Results, source: str, options: ReportOptions) -> Document:
    """Build the whole report on results, with a section for each protocol.

    Parameters
    ----------
    results : Results
        The results.
    source : str
        Where they come from, for the text.
    options : ReportOptions
        The options of the report.

    Returns
    -------
    Document
        The report.

    Raises
    ------
    InvalidInput
        If no row has a value.
    """
    measured = valued_rows(results.rows)
    if not measured:
        raise InvalidInput(f"{source} holds no values; the column reason says why")
    protocols = _distinct(measured, "protocol")
    summaries = [_summarise_protocol(results, protocol, measured) for protocol in protocols]
    options.done("comparing")
    sections = [_verdict_section(summaries)]
    for summary in summaries:
        sections.append(_protocol_section(summary))
        options.done(f"protocol {summary.protocol}")
    sections += [_missing_section(results), _provenance_section(results, source, summaries, options.command)]
    return Document(
        title="Which scores can be trusted?",
        subtitle=_subtitle(summaries, measured, source),
        tiles=_tiles(summaries, measured),
        sections=tuple(sections),
    )


def _distinct(rows: Sequence[ResultRow], column: str) -> list[Any]:
    """List the different values of a column, in the order in which they first appear."""
    return list(dict.fromkeys(row[column] for row in rows))


def _subtitle(summaries: Sequence[_ProtocolSummary], measured: Sequence[ResultRow], source: str) -> str:
    methods: set[str] = set()
    for summary in summaries:
        methods.update(summary.methods)
    sets, models = _distinct(measured, "shift"), list(filter(None, _distinct(measured, "model")))
    return (
        f"{format_count(len(methods), 'method')} on "
        f"{format_count(len(sets), 'data set or group', 'data sets and groups')} of "
        f"{format_count(max(len(models), 1), 'architecture')}, from {source}."
    )


def _tiles(summaries: Sequence[_ProtocolSummary], measured: Sequence[ResultRow]) -> tuple[Tile, ...]:
    tiles = [Tile(f"{len(measured):,}", "values", format_count(len(summaries), "protocol"))]
    for summary in summaries[:MOST_TILES]:
        best = summary.methods[0]
        detail = f"{summary.metric_title} {summary.number(summary.means[best])}"
        tiles.append(Tile(best, f"leads {summary.name}", detail))
    return tuple(tiles)


# --- one protocol ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ProtocolSummary:
    """Hold what the page says of one protocol: its main metric, its methods, and their comparison where possible.

    Parameters
    ----------
    protocol : str or None
        The protocol.
    metric : str
        Its main metric.
    rows : sequence of mapping
        The rows of that metric, without averages.
    methods : tuple of str
        Methods, best first; those that lack a value come last.
    means : mapping of str to float
        Mean of each method, over the same places where a method has them all.
    complete : frozenset of str
        Methods that have a value wherever most methods have one.
    baseline : str
        The plain method; empty where there is none.
    comparison : Comparison, optional
        Ranks and tests.
    why_not_compared : str, default=""
        Why there is no comparison.
    cliques : CliqueMap, optional
        Top cliques by group.
    why_no_cliques : str, default=""
        Why groups are not compared.
    """

    protocol: str | None
    metric: str
    rows: Sequence[ResultRow]
    methods: tuple[str, ...]
    means: Mapping[str, float]
    complete: frozenset[str]
    baseline: str
    comparison: Comparison | None = None
    why_not_compared: str = ""
    cliques: CliqueMap | None = None
    why_no_cliques: str = ""

    @property
    def name(self) -> str:
        """The protocol as a heading."""
        return self.protocol or "all results"

    @property
    def key(self) -> str:
        """The protocol as part of an identifier."""
        return re.sub(r"[\W_]", "-", self.name)

    @property
    def better(self) -> str:
        """Whether higher or lower values are better."""
        return better_of(self.rows)

    @property
    def factor(self) -> int:
        """Factor of printed values, such as 100 for percent."""
        return scale(self.metric)[0]

    @property
    def metric_title(self) -> str:
        """The metric with its unit."""
        return title(self.metric)

    def number(self, value: float, low: float = math.nan, high: float = math.nan, *, strong: bool = False) -> Number:
        """Make a number of a table from a value of the metric.

        Parameters
        ----------
        value : float
            The value.
        low, high : float, default=NaN
            Limits of its interval.
        strong : bool, default=False
            Whether to print the number in bold.

        Returns
        -------
        Number
            The number, as the metric is usually printed.
        """
        return Number(value, low, high, self.factor, decimals(self.metric), strong)

    def gain(self, name: str) -> float:
        """Compute how much better a method is than the plain one, in percent of the mean of the plain one.

        Parameters
        ----------
        name : str
            The method.

        Returns
        -------
        float
            Positive where the method is better; NaN where the plain one has the mean 0.
        """
        base = self.means[self.baseline]
        if not base:
            return math.nan
        if self.better == "higher":
            return 100.0 * (self.means[name] - base) / abs(base)
        return 100.0 * (base - self.means[name]) / abs(base)


def _summarise_protocol(results: Results, protocol: str | None, measured: Sequence[ResultRow]) -> _ProtocolSummary:
    """Rank the methods of one protocol by the mean of its main metric, and compare them where possible.

    Parameters
    ----------
    results : Results
        The results.
    protocol : str or None
        The protocol.
    measured : sequence of mapping
        The rows of the results that have a value.

    Returns
    -------
    _ProtocolSummary
        What the page says of the protocol.
    """
    own = [row for row in measured if row["protocol"] == protocol and row["score"] is not None]
    metric = _main_metric(protocol, own)
    rows = finest(row for row in own if row["metric"] == metric)
    values: dict[str, dict[tuple[object, ...], float]] = defaultdict(dict)  # by method and place
    for row in rows:
        place = tuple(row[column] for column in PLACE)
        values[method(row)][place] = float(row["value"])
    usual = _usual_places(values)
    complete = set()
    means = {}
    for name, places in values.items():
        counted = list(places.values())
        if usual <= places.keys():
            complete.add(name)
            counted = [places[place] for place in places if place in usual]
        means[name] = float(np.mean(counted))
    methods = _sort_methods(means, complete, better_of(rows))
    baseline = ""
    for name in (f"{BASE} + {BASE}", BASE):
        if name in values:
            baseline = name
    comparison, why_not_compared = None, ""
    cliques, why_no_cliques = None, ""
    try:
        comparison = compare(results, metric, protocol=protocol)
    except InvalidInput as error:
        why_not_compared = str(error)
    if comparison is not None:
        try:
            cliques = clique_map(results, metric, protocol=protocol)
        except InvalidInput as error:
            why_no_cliques = str(error)
    return _ProtocolSummary(
        protocol=protocol,
        metric=metric,
        rows=rows,
        methods=tuple(methods),
        means=means,
        complete=frozenset(complete),
        baseline=baseline,
        comparison=comparison,
        why_not_compared=why_not_compared,
        cliques=cliques,
        why_no_cliques=why_no_cliques,
    )


def _sort_methods(means: Mapping[str, float], complete: Collection[str], better: str) -> list[str]:
    """Sort methods by their means, best first; those that lack a value come last, equal ones by name."""

    def rank(name: str) -> tuple[bool, float, str]:
        mean = means[name]
        if better == "higher":
            mean = -mean
        return name not in complete, mean, name

    return sorted(means, key=rank)


def _main_metric(protocol: str | None, rows: Sequence[ResultRow]) -> str:
    """Choose the metric of a protocol that was measured: its main one, else the first."""
    present = _distinct(rows, "metric")
    for metric in MAIN_METRICS.get(str(protocol), ("aurc",)):
        if metric in present:
            return metric
    return present[0]


def _usual_places(values: Mapping[str, Mapping[tuple[object, ...], float]]) -> frozenset[tuple[object, ...]]:
    """Find the set of places that most methods have values for; of several, the largest."""
    sets = [frozenset(places) for places in values.values()]
    return max(sets, key=lambda places: (sets.count(places), len(places)))


# --- the verdict ----------------------------------------------------------------------------------------------------


def _verdict_section(summaries: Sequence[_ProtocolSummary]) -> Section:
    parts: list[Part] = list(map(_describe_leader, summaries))
    protocols: dict[str, list[str]] = defaultdict(list)  # by warning
    for summary in summaries:
        if summary.comparison is not None:
            for warning in summary.comparison.warnings:
                protocols[warning].append(summary.name)
    if protocols:
        cautions = []
        for warning, names in protocols.items():
            cautions.append((f"{', '.join(names)}: {warning}.",))
        parts.append(ReportTable("cautions", "What these numbers do not guarantee", ("caution",), tuple(cautions)))
    return Section("verdict", "The verdict", tuple(parts))


def _describe_leader(summary: _ProtocolSummary) -> str:
    best, baseline, comparison = summary.methods[0], summary.baseline, summary.comparison
    text = f"{summary.name}: {best} has the best mean {summary.metric_title}, {summary.number(summary.means[best])}"
    if baseline and best != baseline:
        base = summary.number(summary.means[baseline])
        text += f", {summary.gain(best):.1f} % better than {BASE} ({base})"
    if comparison is None:
        return f"{text}. Methods were not compared: {summary.why_not_compared}."
    if not comparison.omnibus:
        count = len(comparison.methods)
        return f"{text}. Friedman's test finds no difference between any of the {count} methods."
    leader = comparison.methods[0]
    others = [name for name in comparison.top if name != leader]
    standing = "stands alone at the top"
    if others:
        standing = f"is statistically tied with {join_words(others)}"
    return f"{text}. By ranks, {leader} leads and {standing} ({format_count(len(comparison.blocks), 'block')})."


# --- tables and figures of a protocol -------------------------------------------------------------------------------


def _protocol_section(summary: _ProtocolSummary) -> Section:
    parts: list[Part] = [_values_table(summary)]
    if summary.comparison is not None:
        parts.append(_ranks_figure(summary, summary.comparison))
    if summary.cliques is not None:
        parts.append(_cliques_figure(summary, summary.cliques))
        for dropped in summary.cliques.dropped_groups:
            parts.append(f"Not in “Who leads where”: {dropped}.")
    elif summary.comparison is not None:
        parts.append(f"“Who leads where” is not drawn: {summary.why_no_cliques}.")
    parts.append(_improvement_part(summary))
    parts += _box_figures(summary)
    if summary.why_not_compared:
        parts.append(f"No ranks are drawn: {summary.why_not_compared}.")
    return Section(f"protocol-{summary.key}", f"Protocol {summary.name}", tuple(parts))


def _values_table(summary: _ProtocolSummary) -> ReportTable:
    """Tabulate the mean of each method, and its values by data set; the best of each column is bold."""
    shifts = list(map(str, _distinct(summary.rows, "shift")))
    cells: dict[str, dict[str, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))  # by shift and method
    for row in summary.rows:
        cells[str(row["shift"])][method(row)].append(row)
    pick = max if summary.better == "higher" else min
    best = {shift: pick(map(_mean_value, cells[shift].values())) for shift in shifts}
    lines = []
    for name in summary.methods[:MOST_METHODS]:
        is_leader = name == summary.methods[0]
        line: list[TableCell] = [name, summary.number(summary.means[name], strong=is_leader)]
        for shift in shifts:
            line.append(_value_cell(summary, cells[shift][name], best[shift]))
        lines.append(tuple(line))
    notes: tuple[str, ...] = ()
    if len(summary.methods) > MOST_METHODS:
        notes = (f"{format_count(len(summary.methods) - MOST_METHODS, 'more method')} below these.",)
    coverage = coverage_of(summary.metric, summary.protocol)
    caption = (
        f"{summary.metric_title}, {summary.better} is better{coverage}; values are means over runs, and the best of "
        "each column is bold"
    )
    return ReportTable(f"values-{summary.key}", caption, ("method", "mean", *shifts), tuple(lines), notes=notes)


def _mean_value(rows: Sequence[ResultRow]) -> float:
    return float(np.mean([row["value"] for row in rows]))


def _value_cell(summary: _ProtocolSummary, rows: Sequence[ResultRow], best: float) -> Number:
    """Make the cell of a method on a data set: the mean over runs; the interval where there is one run."""
    if not rows:
        return Number(math.nan)
    mean = _mean_value(rows)
    low = high = math.nan
    if len(rows) == 1 and rows[0]["low"] is not None:
        low, high = rows[0]["low"], rows[0]["high"]
    return summary.number(mean, low, high, strong=mean == best)


def _ranks_figure(summary: _ProtocolSummary, comparison: Comparison) -> Figure:
    top: tuple[str, ...] = ()
    cliques: tuple[tuple[str, ...], ...] = ()
    if comparison.omnibus:
        top, cliques = comparison.top, comparison.cliques
    about = f"Mean ranks of {len(comparison.methods)} methods under {summary.name}"
    svg = charts.rank_rows(comparison.methods, comparison.mean_ranks, cliques, top, about)
    rule = f"{comparison.test} with Holm's correction at {comparison.alpha:g}"
    caption = f"Bars join statistically tied methods ({rule})."
    rows = tuple(zip(comparison.methods, comparison.mean_ranks.tolist(), strict=True))
    key = f"ranks-{summary.key}"
    return Figure(key, "Ranks and cliques", caption, svg, ("method", "mean rank"), rows, wide=True)


def _cliques_figure(summary: _ProtocolSummary, cliques: CliqueMap) -> Figure:
    columns = [f"{name} ({blocks})" for name, blocks in zip(cliques.columns, cliques.blocks, strict=True)]
    some = slice(0, MOST_METHODS)
    about = f"Which of {len(cliques.rows)} methods lead which group under {summary.name}"
    svg = charts.member_map(cliques.rows[some], columns, cliques.member[some], cliques.judged[some], about)
    rows = []
    for i, name in enumerate(cliques.rows):
        for j, group in enumerate(cliques.columns):
            place = "not compared"
            if cliques.member[i, j]:
                place = "leads"
            elif cliques.judged[i, j]:
                place = "compared"
            rows.append((name, group, place))
    caption = "A dot: in the top clique of the group. A ring: compared, but not in it. Numbers count blocks."
    key = f"map-{summary.key}"
    return Figure(key, "Who leads where", caption, svg, ("method", "group", "place"), tuple(rows), wide=True)


def _improvement_part(summary: _ProtocolSummary) -> Part:
    """Draw how much better each method is than the plain one.

    Methods that lack a value are left out: a mean over fewer, perhaps easier, data sets is not an improvement.
    """
    baseline = summary.baseline
    if not baseline or len(summary.means) < 2:
        return f"There is no {BASE} here to compare with."
    gains = {}
    if baseline in summary.complete:
        for name in summary.means:
            if name in summary.complete and name != baseline:
                gains[name] = summary.gain(name)
    if not gains:
        return f"No method is measured wherever {BASE} is, so there is no improvement to show."
    shown = dict(sorted(gains.items(), key=lambda item: -item[1])[:MOST_METHODS])
    about = f"Improvement of {len(shown)} methods over {BASE}"
    svg = charts.bar_rows(shown, f"improvement of {summary.metric} over {BASE}, %", about)
    caption = f"Improvement of the mean {summary.metric}, in percent of that of {BASE}."
    left_out = len(summary.means) - 1 - len(gains)
    if left_out:
        caption += f" Left out: {format_count(left_out, 'method')} without a value on every data set and run."
    key, heading = f"improvement-{summary.key}", f"Improvement over {BASE}"
    return Figure(key, heading, caption, svg, ("method", "improvement %"), tuple(shown.items()))


def _box_figures(summary: _ProtocolSummary) -> list[Part]:
    """Draw the leading method and the plain one by architecture."""
    shown = list(dict.fromkeys(filter(None, (summary.methods[0], summary.baseline))))
    groups: dict[str, list[float]] = defaultdict(list)
    for row in summary.rows:
        if method(row) in shown:
            groups[f"{method(row)}, {row['model'] or 'model'}"].append(summary.factor * float(row["value"]))
    if not groups:
        return []
    boxes = [(name, np.array(groups[name])) for name in sorted(groups)[:MOST_BOXES]]
    metric = summary.metric_title
    svg = charts.box_rows(boxes, metric, f"{metric} of {join_words(shown)} by architecture")
    rows = []
    for name, values in boxes:
        for value in values.tolist():
            rows.append((name, value))
    caption = f"Values of {join_words(shown)} over data sets and runs: quartiles, median and extremes."
    return [Figure(f"boxes-{summary.key}", "By architecture", caption, svg, ("method and model", metric), tuple(rows))]


# --- what is missing, and where the numbers come from ---------------------------------------------------------------


def _missing_section(results: Results) -> Section:
    """List what has no value, and why."""
    counts: dict[str, int] = defaultdict(int)
    for row in results.rows:
        if is_missing(row["value"]) and row["reason"]:
            what = str(row["shift"] or row["run"] or "")
            if row["score"] is not None:
                what = method(row)
            counts[f"{what}: {row['reason']}"] += 1
    heading = "What is missing"
    if not counts:
        return Section("missing", heading, ("Nothing: every score has a value on every data set.",))
    most_first = sorted(counts.items(), key=lambda item: -item[1])
    table = ReportTable("missing", "Why values are missing", ("what", "rows"), tuple(most_first[:MOST_METHODS]))
    return Section("missing", heading, (table,))


def _provenance_section(
    results: Results, source: str, summaries: Sequence[_ProtocolSummary], command: str | None
) -> Section:
    from twofold import __version__

    facts = {"source": source, "rows": f"{len(results):,}", "report made with": f"twofold {__version__}"}
    for column in ("benchmark", "model", "recipe", "seed", "run", "version", "command"):
        values = [str(value) for value in _distinct(results.rows, column) if value is not None]
        facts[column] = join_words(values, 8) or "–"
    tables = [ReportTable("facts", "Provenance", ("what", "value"), tuple(facts.items()))]
    if Path(source).exists():
        commands = _list_commands(results, source, summaries, command)
        tables.append(commands_table(commands))
    return Section("provenance", "Where this comes from", tuple(tables))


def _list_commands(
    results: Results, source: str, summaries: Sequence[_ProtocolSummary], command: str | None
) -> list[Command]:
    """List the commands that reproduce the numbers of the page; those without output are left out."""
    from twofold.bench.agreement import agreement, counterparts

    commands = [Command(command or report_command(source), "this page")]
    for summary in summaries:
        if summary.comparison is None:
            continue
        line = f"twofold compare {quote_path(source)} --metric {shlex.quote(summary.metric)}"
        if summary.protocol is not None:
            line += f" --protocol {shlex.quote(summary.protocol)}"
        commands.append(Command(line, f"ranks, tests and cliques of {summary.metric} under {summary.name}"))
    published: dict[str, None] = {}
    for benchmark in filter(None, _distinct(results.rows, "benchmark")):
        published |= dict.fromkeys(counterparts(benchmark))
    if any(agreement(results.to_dicts(), name) for name in published):
        commands.append(Command(f"twofold bench check {quote_path(source)}", "agreement with published numbers"))
    return commands
