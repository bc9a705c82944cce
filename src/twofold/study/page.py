"""Write the page of a study: tables over seeds, with intervals, and the scale of what is finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from twofold._files import replacing
from twofold.bench.results import Results
from twofold.bench.text import scale
from twofold.report import charts
from twofold.report.document import Document, Figure, Number, Part, ReportTable, Section, TableCell, Tile
from twofold.report.html import format_html
from twofold.study.folder import CellRecord, count_images, read_records, results
from twofold.study.parse import command
from twofold.study.spec import Study, StudyTable, TableColumn, join_names
from twofold.study.tables import Value, values

REPORT, PAGE = "report.md", "report.html"
MOST_DRAWN = 20  # a table with more lines than this is not drawn
MISSING = "–"
LEGEND = (
    "Mean ± standard deviation over seeds [95 % interval of the mean over resampled test images]. Rates in percent, "
    "areas under risk curves x1000."
)
FACTS = (
    *("row", "recipe", "starts from", "images", "epochs", "updates", "weights averaged", "minutes per cell"),
    "finished",
)


def report(study: Study, out: str | Path, found: Results | None = None) -> str:
    """Format the page of a study as Markdown: the tables of what is finished, and the scale of it.

    Parameters
    ----------
    study : Study
        The study.
    out : str or Path
        Its folder.
    found : Results, optional
        Its results; by default they are read from the folder.

    Returns
    -------
    str
        Markdown.
    """
    if found is None:
        found = results(study, out)
    records = read_records(study, Path(out))
    parts = [f"# {study.title}", study.source, _describe_scale(study, records)]
    parts += _describe_sets(study, records, Path(out))
    parts += [table(study, found), _facts_markdown(study, records)]
    parts.append(f"Made by `{command(study)}`; every number is in `results.csv`.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _describe_scale(study: Study, records: Mapping[str, CellRecord]) -> str:
    """Say how much is finished, and at which scale."""
    parts = [f"{len(records)} of {len(study.cells())} cells are finished", study.model]
    parts.append(f"seeds {join_names(_finished_seeds(study, records))}")
    if records:
        images, epochs, minutes = set(), set(), 0.0
        for record in records.values():
            images.add(record["images"])
            epochs.add(record["epochs"])
            minutes += record["minutes"]
        image_counts = " or ".join(f"{count:,}" for count in sorted(images))
        epoch_counts = " or ".join(map(str, sorted(epochs)))
        parts.append(f"{image_counts} training images")
        parts.append(f"epochs {epoch_counts}")
        parts.append(f"{minutes / 60:.1f} hours so far")
    return "Scale: " + "; ".join(parts) + "."


def _finished_seeds(study: Study, records: Mapping[str, CellRecord]) -> Sequence[int]:
    """List the seeds of finished cells; before there are any, all."""
    return sorted({cell.seed for cell in study.cells() if cell.name in records}) or study.seeds


def _describe_sets(study: Study, records: Mapping[str, CellRecord], out: Path) -> list[str]:
    """Say how many images of each data set the first finished cell of each benchmark saw."""
    counts: dict[str, dict[str, int]] = {}
    for cell in study.cells():
        if cell.name in records and cell.benchmark.name not in counts:
            counts[cell.benchmark.name] = count_images(records[cell.name], out / "runs" / cell.name)
    lines = []
    for benchmark in study.benchmarks:
        images = counts.get(benchmark.name)
        if images:
            every = [f"{name} {count:,}" for name, count in images.items()]
            lines.append(f"Images of {benchmark.name}: {', '.join(every)}.")
    return lines


def table(study: Study, found: Results) -> str:
    """Format all tables as Markdown: mean ± standard deviation over seeds [95 % interval over test images].

    Parameters
    ----------
    study : Study
        The study.
    found : Results
        Its results.

    Returns
    -------
    str
        Tables and legend; empty where nothing is finished.
    """
    parts = []
    for title, grid in _grids(study, found).items():
        parts += [f"## {title}", grid.markdown()]
    if parts:
        parts.append(LEGEND)
    return "\n\n".join(parts)


def document(study: Study, out: str | Path, found: Results | None = None) -> Document:
    """Build the page of a study with drawings, which :func:`twofold.report.report` writes in any format.

    Parameters
    ----------
    study : Study
        The study.
    out : str or Path
        Its folder.
    found : Results, optional
        Its results; by default they are read from the folder.

    Returns
    -------
    Document
        The page.
    """
    if found is None:
        found = results(study, out)
    records = read_records(study, Path(out))
    sections = []
    for place, (title, grid) in enumerate(_grids(study, found).items()):
        key = f"table-{place}"
        sections.append(Section(key, title, grid.parts(key)))
    scale_text = _describe_scale(study, records), *_describe_sets(study, records, Path(out)), LEGEND
    facts = ReportTable("rows", "What each row is and what it cost", FACTS, tuple(_facts(study, records)), heads=2)
    sections.append(Section("scale", "Scale", (*scale_text, facts)))
    sections.append(Section("source", "Where this comes from", (f"Made by {command(study)}.", study.source)))
    count = f"{len(records)} of {len(study.cells())}"
    tile = Tile(count, "cells finished", f"seeds {join_names(_finished_seeds(study, records))}")
    return Document(study.title, study.source, (tile,), tuple(sections))


def _grids(study: Study, found: Results) -> dict[str, _Grid]:
    """Build the tables that have a value, by title."""
    by_table: dict[tuple[str, str], list[Value]] = {}
    for value in values(study, found):
        by_table.setdefault((value.benchmark, value.table), []).append(value)
    grids = {}
    for benchmark in study.benchmarks:
        for layout in study.tables:
            own = by_table.get((benchmark.name, layout.title))
            if own is None:
                continue
            title = layout.title
            if len(study.benchmarks) > 1:
                title += f" ({benchmark.name})"
            grids[title] = _Grid.of(layout, own)
    return grids


@dataclass(frozen=True)
class _Grid:
    """Hold a table of the report, whatever its format."""

    heads: tuple[str, ...]
    lines: Mapping[str, tuple[Value | None, ...]]
    gain_head: str | None  # heading of the column that compares with the baseline
    gains: Mapping[str, float]  # gain of each line over the baseline, in percent
    notes: tuple[str, ...]

    @classmethod
    def of(cls, layout: StudyTable, own: Sequence[Value]) -> _Grid:
        """Arrange the values of one table."""
        by_line: dict[str, list[Value]] = {}
        for value in own:
            label = ", ".join(filter(None, (value.row, value.line)))
            by_line.setdefault(label, []).append(value)
        lines, notes = {}, []
        for label, several in by_line.items():
            lines[label] = tuple(_find_value(several, column) for column in layout.columns)
            first = several[0]
            if first.chosen != first.row:
                notes.append(f"{label}: {first.chosen} was best on validation data")
        notes += _note_missing_seeds(own)
        heads = tuple(column.heading for column in layout.columns)
        if layout.baseline is None:
            return cls(heads, lines, gain_head=None, gains={}, notes=tuple(notes))
        base = _find_baseline(layout, own)
        gain_head = f"{layout.columns[0].metric} better than {layout.baseline.row}, {layout.baseline.method} by %"
        gains = {label: _gain(cells[0], base) for label, cells in lines.items()}
        return cls(heads, lines, gain_head, gains, tuple(notes))

    @property
    def all_heads(self) -> tuple[str, ...]:
        """The headings of the columns, that of the gain last where there is one."""
        if self.gain_head is None:
            return self.heads
        return *self.heads, self.gain_head

    def markdown(self) -> str:
        """Format the table and its notes as Markdown."""
        lines = [_markdown_line(["recipe", *self.all_heads]), "|---|" + "---:|" * len(self.all_heads)]
        for label, cells in self.lines.items():
            texts = [str(value or MISSING) for value in cells]
            if self.gain_head is not None:
                texts.append(str(Number(self.gains[label], digits=2)))
            lines.append(_markdown_line([label, *texts]))
        if self.notes:
            lines.append("")
        for note in self.notes:
            lines.append(f"- {_escape_bars(note)}")
        return "\n".join(lines)

    def parts(self, key: str) -> tuple[Part, ...]:
        """Build the table for a document, and a drawing of each column where there are not too many lines."""
        columns, best = [], []
        for place in range(len(self.heads)):
            column = self._column(place)
            columns.append(column)
            best.append(min(column.values(), key=lambda value: value.loss, default=None))
        rows: list[tuple[TableCell, ...]] = []
        for label, cells in self.lines.items():
            row: list[TableCell] = [label]
            for value, leader in zip(cells, best, strict=True):
                row.append(_number(value, strong=value is not None and value is leader))
            if self.gain_head is not None:
                row.append(Number(self.gains[label], digits=2))
            rows.append(tuple(row))
        caption = "Mean ± standard deviation over seeds [95 % interval over test images]; bold is best of its column"
        parts: list[Part] = [ReportTable(key, caption, ("recipe", *self.all_heads), tuple(rows), notes=self.notes)]
        if len(self.lines) <= MOST_DRAWN:
            for place, column in enumerate(columns):
                if column:
                    parts.append(_figure(f"{key}-{place}", self.heads[place], column))
        return tuple(parts)

    def _column(self, place: int) -> dict[str, Value]:
        """Collect the values of a column by label, without those that are missing."""
        column = {}
        for label, cells in self.lines.items():
            value = cells[place]
            if value is not None:
                column[label] = value
        return column


def _note_missing_seeds(own: Sequence[Value]) -> list[str]:
    """Name the rows of a table with fewer seeds than others."""
    most = max(len(value.seeds) for value in own)
    few: dict[str, None] = {}
    for value in own:
        if len(value.seeds) < most:
            few[f"{value.row} has {len(value.seeds)}"] = None
    if not few:
        return []
    return [f"not all seeds are finished: {', '.join(few)} of {most}"]


def _figure(key: str, head: str, column: Mapping[str, Value]) -> Figure:
    """Draw the values of a column with their intervals."""
    first = next(iter(column.values()))
    factor, unit = scale(first.metric)
    means, lows, highs = [], [], []
    for value in column.values():
        number = _number(value)
        means.append(factor * number.value)
        lows.append(factor * number.low)
        highs.append(factor * number.high)
    title = head
    if unit:
        title = f"{head} ({unit})"
    about = f"{head} of {len(column)} rows of the study"
    return Figure(
        key,
        title,
        f"Mean over seeds with its 95 % interval over test images; {first.better} is better.",
        charts.interval_rows(list(column), np.array(means), np.array(lows), np.array(highs), title, about),
        ("recipe", "mean", "low", "high"),
        tuple(zip(column, means, lows, highs, strict=True)),
    )


def _number(value: Value | None, *, strong: bool = False) -> Number:
    """Make a number of the page; what is missing prints as a dash."""
    if value is None:
        return Number(math.nan)
    return Number(
        value.mean,
        low=_nan_for_none(value.low),
        high=_nan_for_none(value.high),
        factor=scale(value.metric)[0],
        digits=2,
        strong=strong,
        spread=_nan_for_none(value.spread),
    )


def _nan_for_none(number: float | None) -> float:
    if number is None:
        return math.nan
    return number


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escape_bars, cells)) + " |"


def _escape_bars(text: str) -> str:
    """Escape a text for a cell of Markdown, where | would end it."""
    return text.replace("|", "\\|")


def _find_value(own: Sequence[Value], column: TableColumn) -> Value | None:
    """Find the value of a line in a column."""
    for value in own:
        method = column.method
        if method is None:  # a line for each method
            method = value.line
        if (value.metric, value.shift, value.protocol) == column.place and value.method == method:
            return value
    return None


def _find_baseline(layout: StudyTable, own: Sequence[Value]) -> Value | None:
    """Find the value that the first column is compared with."""
    if layout.baseline is None:
        return None
    of_row = [value for value in own if value.row == layout.baseline.row]
    return _find_value(of_row, replace(layout.columns[0], method=layout.baseline.method))


def _gain(value: Value | None, base: Value | None) -> float:
    """Compute how much better a value is than the base, in percent of the base; NaN where either is missing."""
    if value is None or base is None or base.mean == 0:
        return math.nan
    return 100 * (base.loss - value.loss) / base.mean


def _facts(study: Study, records: Mapping[str, CellRecord]) -> Iterator[tuple[str, ...]]:
    """List what each row is and what it cost."""
    for row in study.rows:
        cells = 0
        own = []
        for cell in study.cells():
            if cell.row.name == row.name:
                cells += 1
                if cell.name in records:
                    own.append(records[cell.name])
        facts = [MISSING] * 5
        if own:
            first = own[0]
            minutes = np.mean([record["minutes"] for record in own])
            facts = [
                f"{first['images']:,}",
                f"{first['epochs']}",
                f"{first['steps']:,}",
                f"{first['window']:.0f}",
                f"{minutes:.1f}",
            ]
        yield row.name, row.text, row.checkpoint or "", *facts, f"{len(own)} of {cells}"


def _facts_markdown(study: Study, records: Mapping[str, CellRecord]) -> str:
    lines = [_markdown_line(FACTS), "|---|---|---|---:|---:|---:|---:|---:|---:|"]
    for name, text, start, *facts in _facts(study, records):
        start_code = ""
        if start:
            start_code = f"`{start}`"
        lines.append(_markdown_line([name, f"`{text}`", start_code, *facts]))
    return "## Scale of each row\n\n" + "\n".join(lines)


def publish(study: Study, out: Path) -> None:
    """Write the results and the page (Markdown and HTML) of what is finished into the folder of a study.

    Parameters
    ----------
    study : Study
        The study.
    out : Path
        Its folder.
    """
    found = results(study, out)
    if found.rows:
        found.save(out)
    pages = {REPORT: report(study, out, found), PAGE: format_html(document(study, out, found))}
    for name, text in pages.items():
        with replacing(out / name) as file:
            file.write(text.encode())
