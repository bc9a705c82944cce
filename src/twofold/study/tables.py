"""Compute the numbers of a study's tables: means over seeds, with the interval over test images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from twofold.bench.protocols import select
from twofold.bench.results import Results
from twofold.bench.rows import VALIDATION, ResultRow, better_of, is_missing, key_of, method
from twofold.bench.text import scale
from twofold.errors import UndefinedMetric
from twofold.stats.table import Better
from twofold.study.spec import Study, StudyTable

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
    line: str
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
        """The direction in which values of the metric get better.

        Returns
        -------
        str
            ``"higher"`` or ``"lower"``.
        """
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
    every: list[Value] = []
    for benchmark in study.benchmarks:
        groups = _group_by_place(found, benchmark.name)
        for table in study.tables:
            for family in study.families:
                every += _family_values(study, found, benchmark.name, groups, table, family)
    return every


class _Place(NamedTuple):
    """Locate the seeds of a number in the results."""

    recipe: str
    method: str
    protocol: str
    shift: str
    metric: str


_Groups: TypeAlias = Mapping[_Place, Sequence[ResultRow]]


def _group_by_place(found: Results, benchmark: str) -> _Groups:
    """Collect the rows of a benchmark that have a value, the seeds of a number together."""
    groups: dict[_Place, list[ResultRow]] = {}
    for row in found.rows:
        if row["benchmark"] != benchmark or row["metric"] is None or is_missing(row["value"]):
            continue
        place = _Place(row["recipe"], method(row), row["protocol"], row["shift"], row["metric"])
        groups.setdefault(place, []).append(row)
    return groups


def _family_values(
    study: Study, found: Results, benchmark: str, groups: _Groups, table: StudyTable, family: str
) -> Iterator[Value]:
    """Compute the numbers of a family of rows in one table."""
    members = [row.name for row in study.rows if row.family == family]
    for line in _lines(groups, members, table):
        chosen = _choose_row(groups, members, table, line, study.tuning_seeds)
        for column in table.columns:
            name = line if column.method is None else column.method
            rows = groups.get(_Place(chosen, name, column.protocol, column.shift, column.metric))
            if rows is None:
                continue
            numbers = [row["value"] for row in rows]
            low, high = _interval(rows, found)
            yield Value(
                benchmark=benchmark,
                table=table.title,
                row=family,
                chosen=chosen,
                line=line,
                method=name,
                metric=column.metric,
                shift=column.shift,
                protocol=column.protocol,
                mean=float(np.mean(numbers)),
                spread=float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None,
                low=low,
                high=high,
                seeds=tuple(sorted(row["seed"] for row in rows)),
            )


def _lines(groups: _Groups, members: Sequence[str], table: StudyTable) -> list[str]:
    """List the scores and pairs that make lines for a family of rows; one line where every column has its own."""
    free = {column.place for column in table.columns if column.method is None}
    if not free:
        return [""]
    lines: dict[str, None] = {}
    for place in groups:
        if place.recipe in members and (place.metric, place.shift, place.protocol) in free:
            lines[place.method] = None
    return list(lines)


def _choose_row(groups: _Groups, members: Sequence[str], table: StudyTable, line: str, seeds: Sequence[int]) -> str:
    """Choose the row of a family with the best mean on validation data, by the rule of the first column's protocol.

    Only the values of ``seeds`` count, so that more seeds of the chosen row do not change the choice.
    """
    first = table.columns[0]
    score = (first.method or line).split(" + ")[0]
    means: dict[str, float] = {}
    better: Better = "lower"
    for place, rows in groups.items():
        if place.recipe not in members or (place.method, place.protocol) != (score, first.protocol):
            continue
        numbers = [row["value"] for row in rows if row["seed"] in seeds]
        if place.shift == VALIDATION and numbers:
            if not means:
                better = better_of(rows)
            means[place.recipe] = float(np.mean(numbers))
    if not means:
        return members[0]
    try:
        return select({score: means}, better)[score].run
    except UndefinedMetric:
        return members[0]


def _interval(rows: Sequence[ResultRow], found: Results) -> tuple[float | None, float | None]:
    """Compute the limits of the mean over seeds from the replicates of test images, where all seeds have them."""
    replicates = []
    for row in rows:
        own = found.replicates.get(key_of(row))
        if own is None:
            return None, None
        replicates.append(own)
    if len(set(map(len, replicates))) > 1:
        return None, None
    means = np.mean(replicates, axis=0)
    if np.isnan(means).all():
        return None, None
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
