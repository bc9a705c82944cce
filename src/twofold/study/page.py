"""Write the page of a study: tables over seeds, with intervals, and the scale of what is finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold._files import replacing
from twofold.bench.results import Results
from twofold.bench.text import scale
from twofold.report import charts
from twofold.report.document import Cell, Document, Figure, Number, Part, Section, Table
from twofold.report.page import page
from twofold.study.folder import Told, counts, results, told_of
from twofold.study.spec import Layout, Study, command, listed
from twofold.study.tables import Value, values

REPORT, PAGE = "report.md", "report.html"
DRAWN = 20  # lines of a table that is drawn too
LEGEND = (
    "Mean ± standard deviation over seeds [95 % interval of the mean over resampled test images]. Rates in percent, "
    "areas under risk curves x1000."
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
    found = results(study, out) if found is None else found
    told = _told(study, Path(out))
    parts = [f"# {study.title}", study.source, _scale(study, told), *_sets(study, told, Path(out))]
    parts += [table(study, found), _cells(study, told)]
    parts.append(f"Made by `{command(study)}`; every number is in `results.csv`.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _told(study: Study, out: Path) -> dict[str, Told]:
    """Collect what is known of each finished cell."""
    return {cell.name: one for cell in study.cells() if (one := told_of(study, cell, out)) is not None}


def _scale(study: Study, told: Mapping[str, Told]) -> str:
    cells = study.cells()
    images = sorted({one["images"] for one in told.values()})
    epochs = sorted({one["epochs"] for one in told.values()})
    parts = [f"{len(told)} of {len(cells)} cells are finished", study.model, f"seeds {listed(_seeds(study, told))}"]
    parts += [f"{' or '.join(f'{n:,}' for n in images)} training images"] if images else []
    parts += [f"epochs {' or '.join(map(str, epochs))}"] if epochs else []
    parts += [f"{sum(one['minutes'] for one in told.values()) / 60:.1f} hours so far"] if told else []
    return "Scale: " + "; ".join(parts) + "."


def _seeds(study: Study, told: Mapping[str, Told]) -> Sequence[int]:
    """List the seeds of finished cells; before there are any, all."""
    return sorted({cell.seed for cell in study.cells() if cell.name in told}) or study.seeds


def _sets(study: Study, told: Mapping[str, Told], out: Path) -> list[str]:
    """Say how many images of each data set were seen."""
    lines = []
    for on in study.benchmarks:
        first = next((cell.name for cell in study.cells() if cell.benchmark == on and cell.name in told), None)
        seen = {} if first is None else counts(told[first], out / "runs" / first)
        if seen:
            lines.append(f"Images of {on.name}: {', '.join(f'{name} {count:,}' for name, count in seen.items())}.")
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
    parts = [text for title, grid in _grids(study, found).items() for text in (f"## {title}", grid.markdown())]
    return "\n\n".join([*parts, LEGEND] if parts else [])


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
    found = results(study, out) if found is None else found
    told = _told(study, Path(out))
    grids = _grids(study, found)
    sections = [Section(f"table-{i}", title, grid.parts(f"table-{i}")) for i, (title, grid) in enumerate(grids.items())]
    facts = Table("rows", "What each row is and what it cost", ROWS, tuple(_facts(study, told)), heads=2)
    about = _scale(study, told), *_sets(study, told, Path(out)), LEGEND
    sections.append(Section("scale", "Scale", (*about, facts)))
    sections.append(Section("source", "Where this comes from", (f"Made by {command(study)}.", study.source)))
    done = f"{len(told)} of {len(study.cells())}", "cells finished", f"seeds {listed(_seeds(study, told))}"
    return Document(study.title, study.source, (done,), tuple(sections))


def _grids(study: Study, found: Results) -> dict[str, _Grid]:
    """Build the tables that have a value, by title."""
    every = values(study, found)
    grids = {}
    for on in study.benchmarks:
        for layout in study.tables:
            some = [one for one in every if (one.benchmark, one.table) == (on.name, layout.title)]
            if some:
                title = layout.title + (f" ({on.name})" if len(study.benchmarks) > 1 else "")
                grids[title] = _Grid.of(layout, some)
    return grids


@dataclass(frozen=True)
class _Grid:
    """Hold a table of the report, whatever its format: headings, lines of values, gains on the baseline, notes."""

    heads: tuple[str, ...]
    lines: Mapping[str, tuple[Value | None, ...]]
    gain: str | None  # heading of what is gained
    gains: Mapping[str, float]  # gain of each line over the baseline, in percent
    notes: tuple[str, ...]

    @classmethod
    def of(cls, layout: Layout, some: Sequence[Value]) -> _Grid:
        heads = tuple(f"{c[0]} {c[1]}" + (f", {c[3]}" if len(c) == 4 else "") for c in layout.columns)
        lines, notes = {}, []
        for row, line in dict.fromkeys((one.row, one.line) for one in some):
            own = [one for one in some if (one.row, one.line) == (row, line)]
            label = row + (f", {line}" if line else "")
            lines[label] = tuple(_at(own, column) for column in layout.columns)
            notes += [f"{label}: {own[0].chosen} was best on validation data"] if own[0].chosen != row else []
        most = max(len(one.seeds) for one in some)
        few = dict.fromkeys(f"{one.row} has {len(one.seeds)}" for one in some if len(one.seeds) < most)
        notes += [f"not all seeds are finished: {', '.join(few)} of {most}"] if few else []
        if layout.baseline is None:
            return cls(heads, lines, None, {}, tuple(notes))
        base = _baseline(layout, some)
        gain = f"{layout.columns[0][0]} better than {', '.join(layout.baseline)} by %"
        gains = {label: _gain(cells[0], base) for label, cells in lines.items()}
        return cls(heads, lines, gain, gains, tuple(notes))

    def markdown(self) -> str:
        heads = [*self.heads, *([] if self.gain is None else [self.gain])]
        lines = ["| recipe |" + "".join(f" {_shown(head)} |" for head in heads), "|---|" + "---:|" * len(heads)]
        for label, cells in self.lines.items():
            texts = ["–" if one is None else str(one) for one in cells]
            texts += [] if self.gain is None else [str(Number(self.gains[label], digits=2))]
            lines.append(f"| {_shown(label)} |" + "".join(f" {text} |" for text in texts))
        notes = ["", *(f"- {_shown(note)}" for note in self.notes)] if self.notes else []
        return "\n".join(lines + notes)

    def parts(self, key: str) -> tuple[Part, ...]:
        """Build the table for a document, and a drawing of each column where there are not too many lines."""
        columns = [[one for one in column if one is not None] for column in zip(*self.lines.values(), strict=True)]
        best = [min(column, key=lambda one: one.loss, default=None) for column in columns]
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (
                label,
                *(_number(one, strong=one is not None and one is lead) for one, lead in zip(cells, best, strict=True)),
                *([] if self.gain is None else [Number(self.gains[label], digits=2)]),
            )
            for label, cells in self.lines.items()
        )
        caption = "Mean ± standard deviation over seeds [95 % interval over test images]; bold is best of its column"
        heads = ("recipe", *self.heads, *([] if self.gain is None else [self.gain]))
        drawn = [place for place, column in enumerate(columns) if column and len(self.lines) <= DRAWN]
        figures = [self._figure(f"{key}-{place}", place) for place in drawn]
        return Table(key, caption, heads, rows, notes=self.notes), *figures

    def _figure(self, key: str, place: int) -> Figure:
        drawn = {label: cells[place] for label, cells in self.lines.items()}
        known = {label: one for label, one in drawn.items() if one is not None}
        first = next(iter(known.values()))
        factor, unit = scale(first.metric)
        numbers = [_number(one) for one in known.values()]
        means, lows, highs = ([factor * getattr(one, name) for one in numbers] for name in ("value", "low", "high"))
        title = self.heads[place] + (f" ({unit})" if unit else "")
        about = f"{self.heads[place]} of {len(known)} rows of the study"
        return Figure(
            key,
            title,
            f"Mean over seeds with its 95 % interval over test images; {first.better} is better.",
            charts.interval_rows(list(known), np.array(means), np.array(lows), np.array(highs), title, about),
            ("recipe", "mean", "low", "high"),
            tuple(zip(known, means, lows, highs, strict=True)),
        )


def _number(one: Value | None, *, strong: bool = False) -> Number:
    if one is None:
        return Number(math.nan)
    low, high, spread = (math.nan if x is None else x for x in (one.low, one.high, one.spread))
    return Number(one.mean, low, high, scale(one.metric)[0], 2, strong, spread)


def _shown(label: str) -> str:
    """Escape a label for a cell of Markdown, where | would end it."""
    return label.replace("|", "\\|")


def _at(own: Sequence[Value], column: Sequence[str]) -> Value | None:
    """Find the value of a line in a column."""
    return next(
        (
            one
            for one in own
            if (one.metric, one.shift, one.protocol) == tuple(column[:3])
            and one.method == (column[3] if len(column) == 4 else one.line)
        ),
        None,
    )


def _baseline(layout: Layout, some: Sequence[Value]) -> Value | None:
    """Find the value that the first column is compared with."""
    if layout.baseline is None:
        return None
    row, name = layout.baseline
    return _at([one for one in some if one.row == row], (*layout.columns[0][:3], name))


def _gain(one: Value | None, base: Value | None) -> float:
    """Compute how much better a value is than the base, in percent of the base; NaN where either is missing."""
    if one is None or base is None or base.mean == 0:
        return math.nan
    return 100 * (base.loss - one.loss) / base.mean


ROWS = ("row", "recipe", "starts from", "images", "epochs", "updates", "weights averaged", "minutes a cell", "finished")


def _facts(study: Study, told: Mapping[str, Told]) -> Iterator[tuple[str, ...]]:
    """List what each row is and what it cost."""
    for row in study.rows:
        cells = [cell for cell in study.cells() if cell.row.name == row.name]
        own = [told[cell.name] for cell in cells if cell.name in told]
        facts = ["–"] * 5
        if own:
            first = own[0]
            facts = [f"{first['images']:,}", str(first["epochs"]), f"{first['steps']:,}", f"{first['window']:.0f}"]
            facts.append(f"{np.mean([one['minutes'] for one in own]):.1f}")
        yield row.name, row.text, row.checkpoint or "", *facts, f"{len(own)} of {len(cells)}"


def _cells(study: Study, told: Mapping[str, Told]) -> str:
    head = ["| " + " | ".join(ROWS) + " |", "|---|---|---|---:|---:|---:|---:|---:|---:|"]
    lines = [
        f"| {name} | `{text}` | {f'`{start}`' if start else ''} | {' | '.join(facts)} |"
        for name, text, start, *facts in _facts(study, told)
    ]
    return "## Scale of each row\n\n" + "\n".join(head + lines)


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
    for name, text in ((REPORT, report(study, out, found)), (PAGE, page(document(study, out, found)))):
        with replacing(out / name) as file:
            file.write(text.encode())
