"""The page of a study: tables over seeds, with intervals, and the scale of what is finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twofold._files import replacing
from twofold.bench.benchmark import Benchmark
from twofold.bench.protocols import select
from twofold.bench.results import VALIDATION, Results, better_of, key_of, method, missing, scale
from twofold.errors import UndefinedMetric
from twofold.report import charts
from twofold.report.document import Document, Figure, Number, Part, Section, Table
from twofold.report.page import page
from twofold.study.folder import Told, counts, results, told_of
from twofold.study.spec import Layout, Study, command, listed

REPORT, PAGE = "report.md", "report.html"
LEVEL = 0.95
DRAWN = 20  # lines of a table that is drawn too
LEGEND = (
    "Mean ± standard deviation over seeds [95 % interval of the mean over resampled test images]. Rates in percent, "
    "areas under risk curves x1000."
)


@dataclass(frozen=True)
class Value:
    """A number of a table: mean and standard deviation over seeds, and the interval of the mean over test images."""

    benchmark: str
    table: str
    row: str
    chosen: str
    line: str  # the score or pair of the line; empty where every column has its own
    method: str
    metric: str
    shift: str
    protocol: str
    mean: float
    spread: float | None
    low: float | None
    high: float | None
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        factor, _ = scale(self.metric)
        text = f"{factor * self.mean:.2f}"
        if self.spread is not None:
            text += f" ± {factor * self.spread:.2f}"
        if self.low is not None and self.high is not None:
            text += f" [{factor * self.low:.2f}, {factor * self.high:.2f}]"
        return text


def values(study: Study, found: Results) -> list[Value]:
    """The numbers of all tables, of finished cells; of a family of rows, those of the best on validation data."""
    return [one for on in study.benchmarks for table in study.tables for one in _values(study, found, on, table)]


def _values(study: Study, found: Results, on: Benchmark, table: Layout) -> Iterator[Value]:
    groups: dict[tuple[Any, ...], list[Told]] = {}
    for row in found.rows:
        if row["benchmark"] == on.name and row["metric"] is not None and not missing(row["value"]):
            place = row["recipe"], method(row), row["protocol"], row["shift"], row["metric"]
            groups.setdefault(place, []).append(row)
    for family in dict.fromkeys(row.family for row in study.rows):
        members = [row.name for row in study.rows if row.family == family]
        for line in _lines(groups, members, table):
            chosen = _chosen(groups, members, table, line)
            for metric, shift, protocol, *fixed in table.columns:
                name = fixed[0] if fixed else line
                rows = groups.get((chosen, name, protocol, shift, metric))
                if rows is not None:
                    about = on.name, table.title, family, chosen, line, name, metric, shift, protocol
                    yield Value(*about, *_over_seeds(rows, found))


def _lines(groups: Mapping[tuple[Any, ...], Any], members: Sequence[str], table: Layout) -> list[str]:
    """The scores and pairs that make lines of a table for a family of rows; one line where every column has its own."""
    if all(len(column) == 4 for column in table.columns):
        return [""]
    free = {tuple(column[:3]) for column in table.columns if len(column) == 3}
    return list(dict.fromkeys(g[1] for g in groups if g[0] in members and (g[4], g[3], g[2]) in free))


def _chosen(groups: Mapping[tuple[Any, ...], list[Told]], members: Sequence[str], table: Layout, name: str) -> str:
    """The row of a family with the best mean on validation data, by the rule of the protocol of the first column."""
    _, _, protocol, *fixed = table.columns[0]
    score = (fixed[0] if fixed else name).split(" + ")[0]
    judged = {}
    for place, rows in groups.items():
        if place[0] in members and place[1:4] == (score, protocol, VALIDATION):
            judged[place[0]] = (float(np.mean([row["value"] for row in rows])), better_of(rows))
    if not judged:
        return members[0]
    better: Any = next(iter(judged.values()))[1]
    try:
        return select({score: {row: value for row, (value, _) in judged.items()}}, better)[score].run
    except UndefinedMetric:
        return members[0]


def _over_seeds(
    rows: Sequence[Told], found: Results
) -> tuple[float, float | None, float | None, float | None, tuple[int, ...]]:
    """Mean, standard deviation over seeds, limits of the mean over resamples of the test images, seeds."""
    numbers = [row["value"] for row in rows]
    drawn = [found.replicates[key_of(row)] for row in rows if key_of(row) in found.replicates]
    low = high = None
    if len(drawn) == len(rows) and len({len(one) for one in drawn}) == 1:
        tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        mean = np.mean(drawn, axis=0)
        if not np.isnan(mean).all():
            low, high = (float(x) for x in np.nanquantile(mean, tails))
    spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None
    return float(np.mean(numbers)), spread, low, high, tuple(sorted(row["seed"] for row in rows))


def report(study: Study, out: str | Path, found: Results | None = None) -> str:
    """The page of a study in Markdown: the tables of what is finished, and the scale of it."""
    found = results(study, out) if found is None else found
    told = _told(study, Path(out))
    parts = [f"# {study.title}", study.source, _scale(study, told), *_sets(study, told, Path(out))]
    parts += [table(study, found), _cells(study, told)]
    parts.append(f"Made by `{command(study)}`; every number is in `results.csv`.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _told(study: Study, out: Path) -> dict[str, Told]:
    """What is known of each finished cell."""
    return {cell.name: one for cell in study.cells() if (one := told_of(study, cell, out)) is not None}


def _scale(study: Study, told: Mapping[str, Told]) -> str:
    cells = study.cells()
    images = sorted({one["images"] for one in told.values()})
    epochs = sorted({one["epochs"] for one in told.values()})
    seeds = sorted({cell.seed for cell in cells if cell.name in told})
    parts = [f"{len(told)} of {len(cells)} cells are finished", study.model, f"seeds {listed(seeds or study.seeds)}"]
    parts += [f"{' or '.join(f'{n:,}' for n in images)} training images"] if images else []
    parts += [f"epochs {' or '.join(map(str, epochs))}"] if epochs else []
    parts += [f"{sum(one['minutes'] for one in told.values()) / 60:.1f} hours so far"] if told else []
    return "Scale: " + "; ".join(parts) + "."


def _sets(study: Study, told: Mapping[str, Told], out: Path) -> list[str]:
    """How many images of each data set were seen."""
    lines = []
    for on in study.benchmarks:
        first = next((cell.name for cell in study.cells() if cell.benchmark == on and cell.name in told), None)
        seen = {} if first is None else counts(told[first], out / "runs" / first)
        if seen:
            lines.append(f"Images of {on.name}: {', '.join(f'{name} {count:,}' for name, count in seen.items())}.")
    return lines


def table(study: Study, found: Results) -> str:
    """All tables in Markdown: mean ± standard deviation over seeds [95 % interval over test images]."""
    every = values(study, found)
    parts = []
    for on in study.benchmarks:
        for layout in study.tables:
            some = [one for one in every if (one.benchmark, one.table) == (on.name, layout.title)]
            if some:
                parts += [f"## {_title(study, on, layout)}", _Grid.of(layout, some).markdown()]
    return "\n\n".join([*parts, LEGEND] if parts else [])


def _title(study: Study, on: Benchmark, layout: Layout) -> str:
    return layout.title + (f" ({on.name})" if len(study.benchmarks) > 1 else "")


def document(study: Study, out: str | Path, found: Results | None = None) -> Document:
    """The page of a study with drawings, as :func:`twofold.report.report` writes it in any form."""
    found = results(study, out) if found is None else found
    told = _told(study, Path(out))
    every = values(study, found)
    sections = []
    for on in study.benchmarks:
        for place, layout in enumerate(study.tables):
            some = [one for one in every if (one.benchmark, one.table) == (on.name, layout.title)]
            if some:
                title, key = _title(study, on, layout), f"{on.name}-{place}"
                sections.append(Section(key, title, tuple(_Grid.of(layout, some).parts(key))))
    facts = Table("rows", "What each row is and what it cost", ROWS, tuple(map(tuple, _facts(study, told))), heads=2)
    about = [_scale(study, told), *_sets(study, told, Path(out)), LEGEND]
    sections.append(Section("scale", "Scale", (*about, facts)))
    sections.append(Section("source", "Where this comes from", (f"Made by {command(study)}.", study.source)))
    seeds = sorted({seed for one in every for seed in one.seeds})
    tiles = ((f"{len(told)} of {len(study.cells())}", "cells finished", f"seeds {listed(seeds)}"),) if told else ()
    return Document(study.title, study.source, tiles, tuple(sections))


@dataclass(frozen=True)
class _Grid:
    """A table of the report, whatever its form: headings, lines of values, what each gains on the baseline, notes."""

    heads: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Value | None, ...]], ...]
    gains: tuple[float | None, ...] | None  # of each line, in percent; None where nothing is compared with
    notes: tuple[str, ...]

    @classmethod
    def of(cls, layout: Layout, some: Sequence[Value]) -> _Grid:
        heads = [f"{c[0]} {c[1]}" + (f", {c[3]}" if len(c) == 4 else "") for c in layout.columns]
        base = _baseline(layout, some)
        lines, notes = [], []
        for row, line in dict.fromkeys((one.row, one.line) for one in some):
            own = [one for one in some if (one.row, one.line) == (row, line)]
            label = row + (f", {line}" if line else "")
            lines.append((label, tuple(_at(own, column) for column in layout.columns)))
            notes += [f"{label}: {own[0].chosen} was best on validation data"] if own[0].chosen != row else []
        most = max(len(one.seeds) for one in some)
        few = dict.fromkeys(f"{one.row} has {len(one.seeds)}" for one in some if len(one.seeds) < most)
        notes += [f"not all seeds are finished: {', '.join(few)} of {most}"] if few else []
        gains = None
        if layout.baseline is not None:
            heads.append(f"{layout.columns[0][0]} better than {', '.join(layout.baseline)} by %")
            gains = tuple(None if base is None else _gain(cells[0], base) for _, cells in lines)
        return cls(tuple(heads), tuple(lines), gains, tuple(notes))

    def markdown(self) -> str:
        head = ["| recipe |" + "".join(f" {_shown(h)} |" for h in self.heads), "|---|" + "---:|" * len(self.heads)]
        body = []
        for place, (label, cells) in enumerate(self.lines):
            texts = ["–" if one is None else str(one) for one in cells]
            if self.gains is not None:
                gain = self.gains[place]
                texts.append("–" if gain is None else f"{gain:.2f}")
            body.append(f"| {_shown(label)} |" + "".join(f" {text} |" for text in texts))
        notes = ["", *(f"- {_shown(note)}" for note in self.notes)] if self.notes else []
        return "\n".join([*head, *body, *notes])

    def parts(self, key: str) -> list[Part]:
        """The table for a document, and a drawing of each column where there are not too many lines."""
        best = [_best([cells[place] for _, cells in self.lines]) for place in range(len(self.lines[0][1]))]
        rows = []
        for place, (label, cells) in enumerate(self.lines):
            row: list[Number | str] = [label]
            row += [_number(one, strong=one is not None and one is best[i]) for i, one in enumerate(cells)]
            gain = None if self.gains is None else self.gains[place]
            row += [] if self.gains is None else [Number(math.nan if gain is None else gain, digits=2)]
            rows.append(tuple(row))
        caption = "Mean ± standard deviation over seeds [95 % interval over test images]; bold is best of its column"
        made: list[Part] = [Table(key, caption, ("recipe", *self.heads), tuple(rows), notes=self.notes)]
        if len(self.lines) <= DRAWN:
            made += [self._figure(key, place) for place, one in enumerate(best) if one is not None]
        return made

    def _figure(self, key: str, place: int) -> Figure:
        drawn = [(label, cells[place]) for label, cells in self.lines if cells[place] is not None]
        numbers = [_number(one) for _, one in drawn]
        values, lows, highs = (
            np.array([one.factor * getattr(one, name) for one in numbers]) for name in ("value", "low", "high")
        )
        head, unit = self.heads[place], scale(drawn[0][1].metric)[1]  # type: ignore[union-attr]
        better = better_of([{"metric": drawn[0][1].metric, "better": None}])  # type: ignore[union-attr]
        names = [label for label, _ in drawn]
        title = head + (f" ({unit})" if unit else "")
        rows = tuple(zip(names, values.tolist(), lows.tolist(), highs.tolist(), strict=True))
        return Figure(
            f"{key}-{place}",
            title,
            f"Mean over seeds with its 95 % interval over test images; {better} is better.",
            charts.interval_rows(names, values, lows, highs, title, f"{head} of {len(names)} rows of the study"),
            ("recipe", "mean", "low", "high"),
            rows,
        )


def _number(one: Value | None, *, strong: bool = False) -> Number:
    if one is None:
        return Number(math.nan)
    low, high, spread = (math.nan if x is None else x for x in (one.low, one.high, one.spread))
    return Number(one.mean, low, high, scale(one.metric)[0], 2, strong, spread)


def _best(column: Sequence[Value | None]) -> Value | None:
    """The value of a column with the best mean."""
    known = [one for one in column if one is not None]
    return min(known, key=lambda one: _sign(one) * one.mean, default=None)


def _gain(first: Value | None, base: float) -> float | None:
    return None if first is None else 100 * (base - first.mean) / base * _sign(first)


def _shown(label: str) -> str:
    """A label in a cell of Markdown, where | would end it."""
    return label.replace("|", "\\|")


def _at(own: Sequence[Value], column: Sequence[str]) -> Value | None:
    """The value of a line in a column."""
    return next(
        (
            one
            for one in own
            if (one.metric, one.shift, one.protocol) == tuple(column[:3])
            and one.method == (column[3] if len(column) == 4 else one.line)
        ),
        None,
    )


def _baseline(layout: Layout, some: Sequence[Value]) -> float | None:
    """What the first column is compared with."""
    if layout.baseline is None:
        return None
    row, name = layout.baseline
    column = (*layout.columns[0][:3], name)
    found = _at([one for one in some if one.row == row], column)
    return None if found is None or found.mean == 0 else found.mean


def _sign(one: Value) -> int:
    return -1 if better_of([{"metric": one.metric, "better": None}]) == "higher" else 1


ROWS = ("row", "recipe", "starts from", "images", "epochs", "updates", "weights averaged", "minutes a cell", "finished")


def _facts(study: Study, told: Mapping[str, Told]) -> Iterator[list[str]]:
    """What each row is and what it cost."""
    for row in study.rows:
        cells = [cell for cell in study.cells() if cell.row.name == row.name]
        own = [told[cell.name] for cell in cells if cell.name in told]
        facts = ["–"] * 5
        if own:
            first = own[0]
            facts = [f"{first['images']:,}", str(first["epochs"]), f"{first['steps']:,}", f"{first['window']:.0f}"]
            facts.append(f"{np.mean([one['minutes'] for one in own]):.1f}")
        yield [row.name, row.text, row.checkpoint or "", *facts, f"{len(own)} of {len(cells)}"]


def _cells(study: Study, told: Mapping[str, Told]) -> str:
    head = ["| " + " | ".join(ROWS) + " |", "|---|---|---|---:|---:|---:|---:|---:|---:|"]
    lines = [
        f"| {name} | `{text}` | {f'`{start}`' if start else ''} | {' | '.join(facts)} |"
        for name, text, start, *facts in _facts(study, told)
    ]
    return "## Scale of each row\n\n" + "\n".join(head + lines)


def publish(study: Study, out: Path) -> None:
    """Write results and page of what is finished."""
    found = results(study, out)
    if found.rows:
        found.save(out)
    for name, text in ((REPORT, report(study, out, found)), (PAGE, page(document(study, out, found)))):
        with replacing(out / name) as file:
            file.write(text.encode())
