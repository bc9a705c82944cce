"""Fewer rows of results: means over seeds, and the runs that validation data choose."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from twofold.bench.protocols import Choice, select
from twofold.bench.rows import (
    COLUMNS,
    VALIDATION,
    ResultRow,
    better_of,
    describe_conflict,
    group_rows,
    is_missing,
    measured_rows,
    method,
    read_column,
)
from twofold.errors import InvalidInput, UndefinedMetric

SAME_EXPERIMENT = ("benchmark", "model", "recipe", "score", "pair", "shift", "role", "protocol", "metric", "better")
"""Columns in which rows agree that differ by their seed alone."""

COMPETITION = ("benchmark", "model", "seed", "protocol", "score", "pair")
"""Columns in which rows agree whose runs compete."""


def average_seeds(group: Sequence[ResultRow]) -> dict[str, object]:
    """Average the rows of several seeds.

    Parameters
    ----------
    group : sequence of mapping
        Rows that agree in ``SAME_EXPERIMENT``.

    Returns
    -------
    dict
        One row. ``value`` is the mean, ``low`` and ``high`` are one standard deviation (n - 1) away from it, None for
        one seed; ``reason`` lists the seeds.

    Raises
    ------
    InvalidInput
        If two rows have the same seed.

    Notes
    -----
    The mean is NaN where a seed has no value.
    """
    ordered = sorted(group, key=lambda row: (row["seed"] is not None, row["seed"]))
    _check_seeds(ordered)
    values = [_value_or_nan(row) for row in ordered]
    mean = float(np.mean(values))
    low, high = None, None
    if len(values) > 1 and not math.isnan(mean):
        deviation = float(np.std(values, ddof=1))
        low, high = mean - deviation, mean + deviation
    runs = filter(None, read_column(ordered, "run"))
    return {
        **_shared_columns(ordered),
        "seed": None,
        "run": ", ".join(runs) or None,
        "value": mean,
        "low": low,
        "high": high,
        "level": None,
        "resamples": None,
        "reason": _describe_seeds(ordered),
    }


def _value_or_nan(row: ResultRow) -> float:
    if row["value"] is None:
        return math.nan
    return float(row["value"])


def _check_seeds(ordered: Sequence[ResultRow]) -> None:
    """Raise if two rows, sorted by seed, have the same seed."""
    for one, other in pairwise(ordered):
        if one["seed"] == other["seed"]:
            where = f"for seed {one['seed']} of {method(one)}, {one['shift']}, {one['metric']}"
            raise InvalidInput(f"{describe_conflict(one, other)} {where}")


def _shared_columns(rows: Sequence[ResultRow]) -> dict[str, object]:
    """Keep the values in which all rows agree, and None elsewhere."""
    shared: dict[str, object] = {}
    for column in COLUMNS:
        values = set(read_column(rows, column))
        shared[column] = None
        if len(values) == 1:
            shared[column] = values.pop()
    return shared


def _describe_seeds(rows: Sequence[ResultRow]) -> str:
    seeds = ", ".join(map(str, read_column(rows, "seed")))
    without_value = [str(row["seed"]) for row in rows if is_missing(row["value"])]
    if without_value:
        return f"no value for seeds {', '.join(without_value)} of {seeds}"
    if len(rows) > 1:
        return f"mean and standard deviation of seeds {seeds}"
    return f"seed {seeds} alone"


# --- the choice among runs ------------------------------------------------------------------------------------------


def select_runs(rows: Sequence[ResultRow], metric: str | None = None) -> list[ResultRow]:
    """Keep, for each score, protocol and seed, the rows of the run that is best on validation data.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of several runs.
    metric : str, optional
        Metric of the validation rows that decides; None where they have only one.

    Returns
    -------
    list of mapping
        The rows of the chosen runs, whose ``reason`` names the choice, or one row where no run has a validation value;
        then rows without a score of the runs that are kept.

    Raises
    ------
    InvalidInput
        If several runs compete and none has a validation row, or validation rows have several metrics and ``metric`` is
        None.
    """
    of_scores = [row for row in rows if row["score"] is not None]
    competitions = group_rows(of_scores, COMPETITION)
    kept: list[ResultRow] = []
    for identity, members in competitions.items():
        single_score = competitions.get((*identity[:-1], None), [])  # a pair may follow its first score
        kept += _select_run(members, single_score, metric)
    runs = set(read_column(kept, "run"))
    kept += [row for row in rows if row["score"] is None and row["run"] in runs]
    return kept


def _select_run(
    members: Sequence[ResultRow], single_score: Sequence[ResultRow], metric: str | None
) -> Sequence[ResultRow]:
    """Keep the rows of the best run for one score, or all where there is no choice."""
    runs = list(dict.fromkeys(read_column(members, "run")))
    if len(runs) == 1:
        return members
    name = method(members[0])
    validated = _validation_rows(members, metric) or _validation_rows(single_score, metric)
    if not validated:
        if all(map(is_missing, read_column(members, "value"))):
            return members
        wanted = f"shift {VALIDATION!r}"
        if metric is not None:
            wanted += f" and metric {metric!r}"
        raise InvalidInput(
            f"{name} has {len(runs)} runs to choose from ({', '.join(map(str, runs))}) and no row with {wanted}; "
            "filter(run=...) picks one by hand"
        )
    choice = _choose(name, validated)
    if choice is None:
        return [_row_without_choice(members[0])]
    return [_explain_choice(row, choice) for row in members if row["run"] == choice.run]


def _validation_rows(rows: Iterable[ResultRow], metric: str | None) -> list[ResultRow]:
    validated = [row for row in measured_rows(rows) if row["shift"] == VALIDATION]
    if metric is None:
        return validated
    return [row for row in validated if row["metric"] == metric]


def _choose(name: str, validated: Sequence[ResultRow]) -> Choice | None:
    """Choose the run with the best validation value; None where no run has one."""
    metrics = set(read_column(validated, "metric"))
    if len(metrics) > 1:
        raise InvalidInput(f"validation rows of {name} have several metrics; give metric= one of {', '.join(metrics)}")
    values = {str(row["run"]): _value_or_nan(row) for row in validated}
    try:
        return select({name: values}, better_of(validated))[name]
    except UndefinedMetric:
        return None


def _explain_choice(row: ResultRow, choice: Choice) -> ResultRow:
    if is_missing(row["value"]):
        return row
    candidates = ", ".join(f"{run} {value:.5g}" for run, value in choice.candidates)
    return MappingProxyType({**row, "reason": f"run {choice.run} chosen on validation data: {candidates}"})


def _row_without_choice(member: ResultRow) -> ResultRow:
    row: dict[str, object] = dict.fromkeys(COLUMNS)
    for column in (*COMPETITION, "version"):
        row[column] = member[column]
    row["value"] = math.nan
    row["reason"] = "no run could be chosen: none has a value on validation data"
    return MappingProxyType(row)
