"""Compute the numbers of a study's tables: means over seeds, with the interval over test images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold.bench.catalogue import Benchmark
from twofold.bench.protocols import select
from twofold.bench.results import Results
from twofold.bench.rows import VALIDATION, better_of, is_missing, key_of, method
from twofold.bench.text import scale
from twofold.errors import UndefinedMetric
from twofold.study.folder import Told
from twofold.study.spec import Layout, Study

LEVEL = 0.95


@dataclass(frozen=True)
class Value:
    """Hold a number of a table: mean and standard deviation over seeds, and the interval of the mean over test images.

    Parameters
    ----------
    benchmark : str
        The benchmark.
    table : str
        Title of the table.
    row : str
        Row of the table: the family of rows.
    chosen : str
        The row of the family that was chosen on validation data.
    line : str
        The score or pair of the line; empty where every column has its own.
    method : str
        The score or pair of the number.
    metric, shift, protocol : str
        What was measured, on which data, under which protocol.
    mean : float
        Mean over seeds.
    spread : float or None
        Standard deviation over seeds.
    low, high : float or None
        Interval of the mean over test images.
    seeds : tuple of int
        The seeds.
    """

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

    @property
    def better(self) -> str:
        """Whether higher or lower values are better, as ``"higher"`` or ``"lower"``."""
        return better_of([{"metric": self.metric, "better": None}])

    @property
    def loss(self) -> float:
        """The mean, negated where higher is better."""
        return -self.mean if self.better == "higher" else self.mean

    def __str__(self) -> str:
        factor, _ = scale(self.metric)
        text = f"{factor * self.mean:.2f}"
        if self.spread is not None:
            text += f" ± {factor * self.spread:.2f}"
        if self.low is not None and self.high is not None:
            text += f" [{factor * self.low:.2f}, {factor * self.high:.2f}]"
        return text


def values(study: Study, found: Results) -> list[Value]:
    """Compute the numbers of all tables from finished cells.

    Of a family of rows, the numbers are those of the row that is best on validation data.

    Parameters
    ----------
    study : Study
        The study.
    found : Results
        Its results.

    Returns
    -------
    list of Value
        By benchmark, then table.
    """
    return [one for on in study.benchmarks for table in study.tables for one in _values(study, found, on, table)]


def _values(study: Study, found: Results, on: Benchmark, table: Layout) -> Iterator[Value]:
    groups: dict[tuple[Any, ...], list[Told]] = {}
    for row in found.rows:
        if row["benchmark"] == on.name and row["metric"] is not None and not is_missing(row["value"]):
            place = row["recipe"], method(row), row["protocol"], row["shift"], row["metric"]
            groups.setdefault(place, []).append(row)
    for family in dict.fromkeys(row.family for row in study.rows):
        members = [row.name for row in study.rows if row.family == family]
        for line in _lines(groups, members, table):
            chosen = _chosen(groups, members, table, line, study.tuning_seeds)
            for metric, shift, protocol, *fixed in table.columns:
                name = fixed[0] if fixed else line
                rows = groups.get((chosen, name, protocol, shift, metric))
                if rows is not None:
                    about = on.name, table.title, family, chosen, line, name, metric, shift, protocol
                    yield Value(*about, *_over_seeds(rows, found))


def _lines(groups: Mapping[tuple[Any, ...], Any], members: Sequence[str], table: Layout) -> list[str]:
    """List the scores and pairs that make lines for a family of rows; one line where every column has its own."""
    if all(len(column) == 4 for column in table.columns):
        return [""]
    free = {tuple(column[:3]) for column in table.columns if len(column) == 3}
    return list(dict.fromkeys(g[1] for g in groups if g[0] in members and (g[4], g[3], g[2]) in free))


def _chosen(
    groups: Mapping[tuple[Any, ...], list[Told]],
    members: Sequence[str],
    table: Layout,
    name: str,
    seeds: Sequence[int],
) -> str:
    """Choose the row of a family with the best mean on validation data, by the rule of the first column's protocol.

    Only the values of ``seeds`` count, so that more seeds of the chosen row do not change the choice.
    """
    _, _, protocol, *fixed = table.columns[0]
    score = (fixed[0] if fixed else name).split(" + ")[0]
    judged = {}
    for place, rows in groups.items():
        if place[0] not in members or place[1:4] != (score, protocol, VALIDATION):
            continue
        numbers = [row["value"] for row in rows if row["seed"] in seeds]
        if numbers:
            judged[place[0]] = (float(np.mean(numbers)), better_of(rows))
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
    """Compute mean, standard deviation over seeds, limits of the mean over resamples of the test images, and seeds."""
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
