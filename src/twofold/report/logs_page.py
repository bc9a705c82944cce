"""The report on a table of logged predictions, from counts alone: the page stays small however many rows there are."""

from __future__ import annotations

import glob
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold.bench.text import decimals, scale, title
from twofold.errors import InvalidInput
from twofold.plot.curves import oracle_curve
from twofold.report.commands import Command, commands_table, page_command, quote_path
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
from twofold.report.measure import exact_share
from twofold.report.options import ReportOptions
from twofold.report.svg import Plot, clip_text, round_values
from twofold.report.verdict import DEFINITION, FEW_KNOWN, FEW_WRONG

if TYPE_CHECKING:
    from twofold.logs import GroupedEvaluation, TableEvaluation
    from twofold.logs.curves import AcceptedCounts

POINTS = 200  # of the curve
MOST_GROUPS = 100  # rows of the table of groups
LONGEST_NAME = 80  # of a group
RISKS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # for which a threshold is looked up
COLUMNS = ("correct", "conf", "is_id", "conf_ood", "by", "where")
"""Columns of a table that may be named, as in :func:`twofold.logs.evaluate`."""


def is_log(path: str | Path) -> bool:
    """Check whether a path names logged predictions: a table that holds no results, or a pattern of files.

    Parameters
    ----------
    path : str or Path
        A path or a pattern.

    Returns
    -------
    bool
        Whether :func:`logs_document` reads it.
    """
    from twofold.logs.tables import has_table_name

    if not os.path.lexists(path):
        return glob.has_magic(str(path))
    return Path(path).is_file() and has_table_name(path) and not holds_results(Path(path))


def holds_results(path: Path) -> bool:
    """Check whether a path is a folder or a file of benchmark results.

    Parameters
    ----------
    path : Path
        A folder or file.

    Returns
    -------
    bool
        Whether there are results, by the names of the columns.
    """
    from twofold.bench.storage import CSV, read_columns

    if path.is_dir():
        return (path / CSV).is_file()
    return path.suffix in (".csv", ".parquet") and {"metric", "value"} <= set(read_columns(path))


def logs_document(sources: Sequence[str | Path], options: ReportOptions) -> Document:
    """Build the whole report on logged predictions.

    Parameters
    ----------
    sources : sequence of str or Path
        Files, folders or patterns that make one table.
    options : ReportOptions
        The options of the report.

    Returns
    -------
    Document
        The report.

    Raises
    ------
    InvalidInput
        If the table cannot be read, rows are not valid, or the name of a column setting is not known.
    UnknownName
        If a column does not exist.
    """
    from twofold import logs
    from twofold.logs.curves import count_accepted
    from twofold.logs.expressions import split_names

    settings: dict[str, Any] = dict(check_columns(options.columns or {}))
    tables = [str(source) for source in sources]
    by = settings.pop("by", None)
    second = settings.pop("conf_ood", None)
    accepted = count_accepted(tables, **settings, cells=POINTS)
    options.done("counting")
    whole = logs.evaluate(tables, **settings, conf_ood=second, resamples=options.resamples, seed=options.seed)
    assert isinstance(whole, logs.TableEvaluation)  # without by there is one
    options.done("metrics")
    groups = None
    if by is not None:
        groups = logs.evaluate(tables, **settings, conf_ood=second, by=split_names(by))
        options.done("groups")
    sections = [_verdict_section(whole, accepted), _curve_section(whole, accepted), _metrics_section(whole)]
    if isinstance(groups, logs.GroupedEvaluation):
        sections.append(_groups_section(groups))
    sections.append(_provenance_section(tables, whole, options))
    subtitle = f"{format_count(whole.n, 'logged prediction')}, from {join_words(tables, 3)}."
    return Document("How far can these predictions be trusted?", subtitle, _tiles(whole), tuple(sections))


def check_columns(columns: Mapping[str, str]) -> dict[str, str]:
    """Check the names of column settings.

    Parameters
    ----------
    columns : mapping of str to str
        Columns or expressions by what they are.

    Returns
    -------
    dict of str to str
        A copy.

    Raises
    ------
    InvalidInput
        If a name is not one of ``COLUMNS``.

    Examples
    --------
    >>> check_columns({"conf": "msp"})
    {'conf': 'msp'}
    """
    for name in columns:
        if name not in COLUMNS:
            raise InvalidInput(f"columns may name {', '.join(COLUMNS)}, got {name!r}")
    return dict(columns)


def _tiles(whole: TableEvaluation) -> tuple[Tile, ...]:
    tiles = [Tile(f"{whole.n:,}", "predictions", f"{whole.n_id:,} known, {whole.n_ood:,} unknown inputs")]
    meanings = {
        "accuracy": "of known inputs are classified correctly",
        "auroc": "AUROC: how well the confidence ranks correct above wrong",
        "ds_f1": "F1 at the best pair of thresholds",
    }
    for name, meaning in meanings.items():
        if name in whole and name not in whole.reasons:
            number = _number(whole, name)
            tiles.append(Tile(f"{number} %", meaning, f"95 %: {number.span}" if number.span else ""))
    return tuple(tiles)


def _number(result: TableEvaluation, name: str) -> Number:
    low = high = math.nan
    if name in result.intervals:
        low, high = result.intervals[name].low, result.intervals[name].high
    return Number(result[name], low, high, scale(name)[0], decimals(name))


# --- the verdict ----------------------------------------------------------------------------------------------------


def _verdict_section(whole: TableEvaluation, accepted: AcceptedCounts) -> Section:
    parts: list[Part] = []
    if whole.n_id:
        parts.append(_describe_accuracy(accepted))
    if whole.n_ood:
        parts.append(
            f"{format_count(whole.n_ood, 'row')} of {whole.n:,} ({whole.n_ood / whole.n:.1%}) are unknown inputs. "
            f"{DEFINITION}"
        )
    parts += _describe_ranking(whole)
    if whole.n_id:
        parts.append(_describe_half(accepted))
        parts.append(_thresholds_table(accepted))
    cautions = tuple((text,) for text in _list_cautions(whole, accepted))
    parts.append(ReportTable("cautions", "What these numbers do not guarantee", ("caution",), cautions))
    return Section("verdict", "The verdict", tuple(parts))


def _describe_accuracy(accepted: AcceptedCounts) -> str:
    right, wrong = accepted.right[-1], accepted.wrong[-1]
    known = right + wrong
    odds = ""
    if 0 < wrong <= known / 2:
        odds = f", so about 1 prediction in {known / wrong:.0f} is wrong"
    accuracy = exact_share(int(right), int(known))
    return f"Of {format_count(int(known), 'known input')}, {accuracy} % are classified correctly{odds}."


def _describe_ranking(whole: TableEvaluation) -> list[Part]:
    """Say whether the confidence tells correct predictions from failures."""
    if "auroc" in whole.reasons:
        return [f"Whether the confidence ranks well cannot be said: {whole.reasons['auroc']}."]
    interval = whole.intervals["auroc"]
    text = f"A correct prediction has a higher confidence than a failure in {100 * whole['auroc']:.1f} % of all pairs"
    if interval.low > 0.5:
        return [f"{text}: the confidence tells them apart better than chance."]
    if interval.high < 0.5:
        return [f"{text}: worse than chance. Higher must mean safer; perhaps its sign is wrong."]
    return [f"{text}, which is not significantly better than chance."]


def _describe_half(accepted: AcceptedCounts) -> str:
    """Compare the risk of all rows with that of the more confident half of the known ones."""
    place = int(np.argmax(accepted.coverage >= 0.5))
    return (
        f"Of everything accepted without a threshold, {100 * accepted.risk[-1]:.2f} % is wrong. With a threshold that "
        f"accepts the most confident {100 * accepted.coverage[place]:.1f} % of known inputs, it is "
        f"{100 * accepted.risk[place]:.2f} %."
    )


def _thresholds_table(accepted: AcceptedCounts) -> ReportTable:
    """Look up the threshold of largest coverage for each of some risks."""
    rows: list[tuple[TableCell, ...]] = []
    for risk in RISKS:
        kept = np.flatnonzero((accepted.risk <= risk) & (accepted.coverage > 0))
        limit = Number(risk, factor=100)
        if len(kept) == 0:
            rows.append((limit, Number(math.nan), Number(math.nan), "no threshold of those counted"))
            continue
        last = int(kept[-1])
        threshold = "accept all" if last == len(accepted.risk) - 1 else repr(float(accepted.threshold[last]))
        coverage = Number(float(accepted.coverage[last]), factor=100)
        rows.append((limit, coverage, Number(float(accepted.risk[last]), factor=100, digits=2), threshold))
    columns = ("risk at most %", "known inputs accepted %", "risk %", "confidence at least")
    note = f"Of up to {POINTS} thresholds of about equal mass; counts at each are exact."
    return ReportTable("thresholds", "Largest coverage for a risk, on these rows", columns, tuple(rows), notes=(note,))


def _list_cautions(whole: TableEvaluation, accepted: AcceptedCounts) -> list[str]:
    cautions = [
        "The thresholds were read off the rows shown, so expect somewhat more risk on new ones; twofold gate fit "
        "chooses thresholds with a guarantee.",
        "Intervals take the rows as independent; repeated users, scenes or hours make them too narrow.",
    ]
    wrong = int(accepted.wrong[-1])
    if whole.n_id < FEW_KNOWN or wrong < FEW_WRONG:
        cautions.append(
            f"There are only {format_count(whole.n_id, 'known input')} with {format_count(wrong, 'mistake')}: look at "
            "the intervals rather than the digits."
        )
    if not whole.n_ood:
        cautions.append("No row is marked as an unknown input, so this page says nothing about them.")
    return cautions


# --- curve and tables -----------------------------------------------------------------------------------------------


def _curve_section(whole: TableEvaluation, accepted: AcceptedCounts) -> Section:
    heading = "How much risk for how much coverage"
    if not whole.n_id:
        return Section("risk-coverage", heading, ("There are no known inputs, so there is no coverage to draw.",))
    some = accepted.coverage > 0
    coverage, risk = accepted.coverage[some], accepted.risk[some]
    oracle = oracle_curve(float(accepted.right[-1] / (accepted.right[-1] + accepted.wrong[-1])))
    highest = max(0.02, risk[coverage > 0.05].max(initial=0.0), oracle.y.max())
    axes = ("share of known inputs accepted", "risk: failures among accepted")
    plot = Plot((0, 1), (0, min(1.0, 1.05 * float(highest))), *axes, "Risk over coverage of the logged confidence")
    plot.line(coverage, np.minimum(risk, plot.y[1]), "k0", "confidence")
    plot.line(oracle.x, oracle.y, "k2", oracle.name)
    rows: list[tuple[str | float, ...]] = []
    for name, x, y in (("confidence", coverage, risk), (oracle.name, oracle.x, oracle.y)):
        rows += [(name, *point) for point in zip(round_values(x), round_values(y), strict=True)]
    caption = (
        "Lower is better. The oracle rejects every failure before any correct prediction: no score can do better. "
        f"The line joins {format_count(len(coverage), 'threshold')} at which rows were counted."
    )
    columns = ("curve", "coverage", "risk")
    figure = Figure("risk-coverage", "Risk over coverage", caption, plot.svg(), columns, tuple(rows))
    return Section("risk-coverage", heading, (figure,))


def _metrics_section(whole: TableEvaluation) -> Section:
    rows: list[tuple[TableCell, ...]] = []
    notes = []
    for name in whole:
        rows.append((title(name), _number(whole, name), whole.better[name]))
        if name in whole.reasons:
            notes.append(f"{name}: {whole.reasons[name]}")
        elif name in whole.bounds and not whole.bounds[name].exact:
            bound = whole.bounds[name]
            notes.append(f"{name}: the exact value is in [{bound.low:.6f}, {bound.high:.6f}]")
    if whole.nan_rejected:
        notes.append(f"{format_count(whole.nan_rejected, 'row')} without a confidence ranked lowest")
    caption = "Metrics of all rows, with 95 % bootstrap intervals"
    table = ReportTable("metrics", caption, ("metric", "value", "better"), tuple(rows), notes=tuple(notes))
    return Section("metrics", "Metrics", (table,))


def _groups_section(groups: GroupedEvaluation) -> Section:
    from twofold.logs.results import one_line

    listed = sorted(groups.items(), key=lambda item: -item[1].n)[:MOST_GROUPS]
    names = list(listed[0][1])
    rows: list[tuple[TableCell, ...]] = []
    for key, result in listed:
        values = key if len(groups.by) > 1 else (key,)
        heads = [clip_text(one_line(value), LONGEST_NAME) for value in values]
        rows.append((*heads, result.n, *(_number(result, name) for name in names)))
    notes = ["Groups have no intervals here: small ones vary by chance. A dash: the metric is undefined there."]
    if len(groups) > MOST_GROUPS:
        notes.append(f"The {MOST_GROUPS} largest of {len(groups):,} groups are shown.")
    columns = (*(clip_text(name, LONGEST_NAME) for name in groups.by), "rows", *map(title, names))
    caption = "Metrics by group, largest group first"
    table = ReportTable("groups", caption, columns, tuple(rows), heads=len(groups.by), notes=tuple(notes))
    return Section("groups", "Groups", (_describe_worst(listed, groups), table))


def _describe_worst(listed: Sequence[tuple[object, TableEvaluation]], groups: GroupedEvaluation) -> str:
    """Name the group in which most predictions on known inputs are wrong."""
    from twofold.logs.results import one_line

    large = [item for item in listed if item[1].n_id >= FEW_KNOWN / 10]
    start = f"There are {format_count(len(groups), 'group')}."
    if len(large) < 2:
        return start
    key, worst = min(large, key=lambda item: item[1]["accuracy"])
    values = key if isinstance(key, tuple) else (key,)
    name = clip_text(", ".join(one_line(value) for value in values), LONGEST_NAME)
    return (
        f"{start} Of those shown with {FEW_KNOWN // 10} known inputs or more, {name} has the lowest accuracy: "
        f"{100 * worst['accuracy']:.1f} %."
    )


# --- provenance -----------------------------------------------------------------------------------------------------


def _provenance_section(tables: Sequence[str], whole: TableEvaluation, options: ReportOptions) -> Section:
    from twofold import __version__

    facts = {"source": join_words(tables, 8), "rows": f"{whole.n:,}", "report made with": f"twofold {__version__}"}
    for name, expression in (options.columns or {}).items():
        facts[name] = expression
    words = ["twofold logs evaluate", *map(quote_path, tables)]
    by = ""
    for name, expression in (options.columns or {}).items():
        if name == "by":
            by = f"--by {shlex.quote(expression)}"
        else:
            words.append(f"--{name.replace('_', '-')} {shlex.quote(expression)}")
    line = " ".join(words)
    intervals = f"--intervals --resamples {options.resamples} --seed {options.seed}"
    commands = [page_command(tables, options), Command(f"{line} {intervals}", "the metrics of all rows")]
    if by:
        commands.append(Command(f"{line} {by}", "the metrics of the groups"))
    table = ReportTable("facts", "Provenance", ("what", "value"), tuple(facts.items()))
    return Section("provenance", "Where this comes from", (table, commands_table(commands)))
