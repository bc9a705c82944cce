"""The finished cells of a study, as ``results/studies`` keeps them, and what is compared on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from study_catalogue import KEPT, has_kept_cells, load_study
from sure_plus_cells import chosen_by_trials, opened_trials
from timing import RESULTS
from twofold import metrics
from twofold import study as studies
from twofold.bench.results import Results
from twofold.bench.rows import ResultRow, key_of, method
from twofold.study import Study
from twofold.typing import Array

CHOSEN_BY_TRIALS = ("sure_plus_tuned", "sure_plus_converged")  # studies whose rows those of sure_plus_trials choose

RunKey: TypeAlias = tuple[str, int]  # benchmark and seed


class Column(NamedTuple):
    """Name a column of the tables.

    Parameters
    ----------
    metric, shift, protocol : str
        What is measured, on which data, under which protocol.
    """

    metric: str
    shift: str
    protocol: str

    @property
    def higher_is_better(self) -> bool:
        """Whether larger values of the metric are better."""
        return metrics.info(self.metric).better == "higher"

    @property
    def sign(self) -> int:
        """The factor that makes larger values better: -1 where lower is better."""
        return 1 if self.higher_is_better else -1


ACCURACY = Column("accuracy", "test", "fd_shifts")
AURC = Column("aurc", "test", "fd_shifts")


class Contender(NamedTuple):
    """Name a row of a study and the method that judges its networks.

    Parameters
    ----------
    row : str
        Row or family of rows.
    method : str
        A score, or a pair such as ``"msp + knn"``.
    """

    row: str
    method: str


@dataclass(frozen=True)
class FinishedCells:
    """Hold the finished cells of a study.

    Parameters
    ----------
    name : str
        Folder of the cells in ``results/studies``.
    study : Study
        The study.
    results : Results
        What is kept of the cells.
    chosen : dict of (str, str) to str
        Row that validation data chose, by family and method.
    """

    name: str
    study: Study
    results: Results
    chosen: dict[tuple[str, str], str]

    @classmethod
    def open(cls, name: str) -> FinishedCells | None:
        """Open the cells of a study; None where no cell is kept."""
        if not has_kept_cells(name):
            return None
        study = load_study(name)
        results = studies.results(study, KEPT / name)
        chosen = {}
        for value in studies.values(study, results):
            chosen[value.row, value.method] = value.chosen
        if name in CHOSEN_BY_TRIALS:
            chosen = choose_by_trials(chosen)
        return cls(name, study, results, chosen)

    def on_benchmark(self, name: str | None) -> FinishedCells:
        """Keep the cells on one benchmark; all of them for None."""
        if name is None:
            return self
        return replace(self, results=self.results.filter(benchmark=name))

    def rows(self, contender: Contender, column: Column) -> dict[RunKey, ResultRow]:
        """Return the results of a contender in a column, by benchmark and seed."""
        recipe = self.chosen.get(contender, contender.row)
        metric, shift, protocol = column
        results = self.results.filter(recipe=recipe, metric=metric, shift=shift, protocol=protocol)
        selected = {}
        for row in results.rows:
            if method(row) == contender.method and not np.isnan(row["value"]):
                selected[row["benchmark"], row["seed"]] = row
        return selected

    def mean(self, contender: Contender, column: Column, runs: Iterable[RunKey] | None = None) -> float:
        """Average a column over benchmarks and seeds, or over some of them; NaN where there are none."""
        rows = self.rows(contender, column)
        if runs is None:
            runs = rows
        values = [rows[run]["value"] for run in runs]
        if not values:
            return float("nan")
        return float(np.mean(values))

    def replicates(self, row: ResultRow) -> Array:
        """Return the values of a row over resampled test images."""
        return np.asarray(self.results.replicates[key_of(row)])


def choose_by_trials(chosen: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the rows that the trials choose, by family and method; an empty name where trials are missing."""
    trials = opened_trials(RESULTS.parent)
    row_of_family: dict[str, str] = {}
    by_trials = {}
    for family, method_name in chosen:
        if family not in row_of_family:
            row_of_family[family] = chosen_by_trials(trials, family) or ""
        by_trials[family, method_name] = row_of_family[family]
    return by_trials
