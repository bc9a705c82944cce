"""The committed cells of the studies of SURE+: its radius, and its comparisons with rivals.

Reads ``results/studies``. Trials choose the radius of SURE+ and the learning rates of its rivals; the comparisons take
what they chose.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from network_cells import Row, read_csv
from twofold import study
from twofold.study import Study, StudyCell, StudyRow

SWEPT = {"sure_plus": "SURE+", "sure_fsam": "SURE+ without RegPixMix"}
TRIALS = ("sure_plus_trials", "sure_plus_tuned", "trials")  # folder, study, preset
PRINTED, PRINTED_PLAIN = "sure_plus-5", "basic-4"  # SURE+ with the printed radius, cross-entropy with the printed rate
LABELS = {PRINTED: "sure_plus with rho = 0.2", PRINTED_PLAIN: "basic with lr = 0.1"}
FASTER = "sure_plus_lr"  # SURE+ with larger learning rates, beyond the trials that every recipe has


@dataclass(frozen=True)
class Measure:
    """Describe a column of the tables: a metric of msp, or of msp with a second score.

    Parameters
    ----------
    title : str
        Head of the column.
    metric, shift, protocol : str
        Metric, the data that it is measured on, and the protocol.
    second : str
        The second score; empty for msp alone.
    factor : float
        What values are multiplied with.
    """

    title: str
    metric: str
    shift: str
    protocol: str
    second: str
    factor: float


ACCURACY = Measure("accuracy", "accuracy", "test", "fd_shifts", "", 100)
AURC = Measure("AURC", "aurc", "test", "fd_shifts", "", 1000)
NEAR = Measure("DS-F1 near", "ds_f1", "near", "joint", "knn", 100)
FAR = Measure("DS-F1 far", "ds_f1", "far", "joint", "knn", 100)
MEASURES = (ACCURACY, AURC, NEAR, FAR)
CHOICE = Measure("AURC, validation", "aurc", "validation", "fd_shifts", "", 1000)  # the lowest is chosen


@dataclass(frozen=True)
class Comparison:
    """Describe a comparison of recipes: its cells, and which of them it is about.

    Parameters
    ----------
    title : str
        What is compared.
    folder : str
        Where its cells are below ``results/studies``.
    study : str
        Name of the study.
    preset : str or None
        Preset of the study.
    families : tuple of str
        Families of rows; of each, the row that the trials choose.
    beside : tuple of str
        Rows beside them.
    seeds : tuple of int, optional
        Seeds that are compared; by default those of the study.
    """

    title: str
    folder: str
    study: str
    preset: str | None
    families: tuple[str, ...]
    beside: tuple[str, ...] = ()
    seeds: tuple[int, ...] | None = None


LONGER = Comparison(
    "The comparison after 40 epochs",
    "sure_plus_tuned",
    "sure_plus_tuned",
    None,
    ("basic", "mixup", "regmixup", "cutmix", "sure", "sure_plus"),
    (PRINTED, PRINTED_PLAIN),
)
SINGLE = Comparison(
    "Single precision in place of bfloat16",
    "sure_plus_float32",
    "sure_plus_tuned",
    "float32",
    (),
    (PRINTED_PLAIN,),
    (0,),
)
FINE_TUNING = Comparison(
    "Fine-tuning a real network (as in Table 4)",
    "sure_plus_finetune",
    "sure_plus_finetune",
    None,
    ("basic", "regmixup", "sure", "sure_plus", "sure_plus_relative"),
)
LONGEST = Comparison(
    "100 epochs", "sure_plus_converged", "sure_plus_tuned", "converged", ("basic", "regmixup", "sure_plus")
)
COMPARISONS = (LONGER, SINGLE, FINE_TUNING, LONGEST)


@dataclass(frozen=True, eq=False)
class Cells:
    """Hold a study and the cells of it that are committed."""

    study: Study
    folder: Path

    @cached_property
    def minutes(self) -> dict[str, float]:
        """The minutes of every finished cell."""
        file = self.folder / "cells.json"
        if not file.exists():
            return {}
        content = json.loads(file.read_text(encoding="utf-8"))["content"]
        return {name: float(cell["minutes"]) for name, cell in content.items()}

    @cached_property
    def rows(self) -> list[Row]:
        """The results of the finished cells."""
        file = self.folder / "results.csv"
        return list(read_csv(file)) if file.exists() else []

    def values(self, recipe: str, measure: Measure, benchmark: str | None = None) -> dict[int, float]:
        """Return a measure of a row of the study by seed; on one benchmark where it is named."""
        wanted = (recipe, "msp", measure.second, measure.metric, measure.shift, measure.protocol)
        found = {}
        for row in self.rows:
            if benchmark not in (None, row.get("benchmark")):
                continue
            about = (row["recipe"], row["score"], row["pair"], row["metric"], row["shift"], row["protocol"])
            if about == wanted and row["value"]:
                found[int(row["seed"])] = measure.factor * float(row["value"])
        return found

    def mean(self, recipe: str, measure: Measure, benchmark: str | None = None) -> float | None:
        """Average a measure of a row of the study over seeds; on one benchmark where it is named."""
        found = self.values(recipe, measure, benchmark)
        return float(np.mean(list(found.values()))) if found else None

    def validation(self, recipe: str) -> float | None:
        """Return the AURC on validation images of the seed that chooses."""
        found = self.values(recipe, CHOICE)
        tuning = [found[seed] for seed in self.study.tuning_seeds if seed in found]
        return float(np.mean(tuning)) if tuning else None

    def cells_of(self, recipe: str, benchmark: str | None = None) -> list[str]:
        """List the finished cells of a row of the study; on one benchmark where it is named."""
        found = []
        for cell in self.study.cells():
            is_asked = cell.row.name == recipe and benchmark in (None, cell.benchmark.name)
            if is_asked and cell.name in self.minutes:
                found.append(cell.name)
        return found

    def chosen(self, family: str) -> str | None:
        """Return the finished row of a family with the lowest AURC on validation images."""
        found = {}
        for row in self.study.rows:
            value = self.validation(row.name)
            if row.family == family and value is not None:
                found[row.name] = value
        return min(found, key=found.__getitem__) if found else None

    def has_trials(self, family: str) -> bool:
        """Tell whether a family has several rows, of which validation images choose one."""
        return sum(row.family == family for row in self.study.rows) > 1

    def is_complete(self, family: str) -> bool:
        """Tell whether every trial of a family has a finished cell."""
        return all(self.cells_of(row.name) for row in self.study.rows if row.family == family)


def opened(root: Path, folder: str, name: str, preset: str | None = None) -> Cells:
    """Open the committed cells of a study."""
    return Cells(study.load(name, preset=preset, check=False), root / "results" / "studies" / folder)


def opened_trials(root: Path) -> Cells:
    """Open the committed trials, which choose the radius and the learning rates."""
    return opened(root, *TRIALS)


def chosen_by_trials(trials: Cells, family: str) -> str | None:
    """Return the row that the trials of a family choose, its only row where it has none, or None before all are done."""
    if not trials.has_trials(family):
        return next(row.name for row in trials.study.rows if row.family == family)
    return trials.chosen(family) if trials.is_complete(family) else None


def open_comparison(root: Path, comparison: Comparison) -> Cells:
    """Open the committed cells of a comparison."""
    return opened(root, comparison.folder, comparison.study, comparison.preset)


def compared_rows(cells: Cells, trials: Cells, comparison: Comparison) -> list[str]:
    """List the rows of a comparison: of each family the one that trials choose, and rows beside them."""
    wanted = []
    for family in comparison.families:
        own = [row.name for row in cells.study.rows if row.family == family]
        chosen: str | None = own[0]
        if len(own) > 1:
            chosen = chosen_by_trials(trials, family)
        if chosen is not None:
            wanted.append(chosen)
    if comparison.families and not wanted:
        return []
    return [*wanted, *comparison.beside]


def recipe_of(row: StudyRow) -> str:
    """Name the recipe of a row without its settings."""
    return row.recipe.partition("(")[0]


def setting(row: StudyRow) -> str:
    """Name what a trial sets: the radius, the learning rate, or both."""
    settings = dict(row.settings)
    words = []
    given = re.search(r"\((.+)\)", row.recipe)
    if given is not None:
        words.append(given[1].replace("rho_relative=True", "rho relative to the weights").replace("=", " = "))
    if "lr" in settings:
        words.append(f"lr = {settings['lr']}")
    return ", ".join(words) or "as printed"


def label_of(row: StudyRow) -> str:
    """Name a row by recipe and setting."""
    if setting(row) == "as printed":
        return recipe_of(row)
    return f"{recipe_of(row)}, {setting(row)}"


def title_of(cell: StudyCell) -> str:
    """Name what a cell trains, by recipe, setting and benchmark, without its seed."""
    words = recipe_of(cell.row)
    if setting(cell.row) != "as printed":
        words += f" ({setting(cell.row)})"
    if not cell.name.startswith(cell.row.name):  # a study of several benchmarks
        words += f" on {cell.benchmark.name}"
    return words
