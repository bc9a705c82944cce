"""What the page of SURE+ has beyond its claims: the tests of its loops, and the studies of its radius and of longer training.

Reads the committed cells below ``results/studies``; what is not finished is reported as missing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from score_choice import read_csv
from tables import markdown
from twofold import study
from twofold.plot.themes import COLOURS
from twofold.study import Study, StudyRow

Row = Mapping[str, str]

LOOPS = "tests/nn/test_independent_loops.py"
FAITHFUL = (  # what is compared with a plain reference, and the test that does it
    ("SURE+: F-SAM on clean, mixed and textured images, exponential average", LOOPS, "sure_plus(decay=0.9, ramp=5)"),
    ("SURE: SAM, CRL, cosine head (CSC), average of the last epochs", LOOPS, "sure"),
    ("CRL", LOOPS, "crl"),
    ("F-SAM, step by step", "tests/nn/test_sharpness.py", "test_fsam_follows_its_definition"),
    ("SAM, step by step", "tests/nn/test_sharpness.py", "test_sam_follows_its_definition"),
    ("RegMixup: its images", "tests/nn/test_mixing.py", "test_mixup_is_its_equation"),
    ("RegMixup: its loss", "tests/nn/test_losses.py", "test_mixed_cross_entropy_is_that_of_the_mixed_label"),
    ("PixMix", "tests/nn/test_pixmix.py", "test_equals_one_by_one"),
    ("Exponential average (EMA)", "tests/nn/test_averaging.py", "test_ema_is_its_closed_form"),
    (
        "Statistics of batch norm estimated again",
        "tests/nn/test_averaging.py",
        "test_rebn_gives_the_statistics_of_a_full_pass",
    ),
)
MEASURES = (  # head, metric, shift, protocol, second score, factor
    ("accuracy", "accuracy", "test", "fd_shifts", "", 100),
    ("AURC", "aurc", "test", "fd_shifts", "", 1000),
    ("DS-F1 near", "ds_f1", "near", "joint", "knn", 100),
    ("DS-F1 far", "ds_f1", "far", "joint", "knn", 100),
)
CHOICE = ("aurc", "validation", "fd_shifts", "")
SWEPT = {"sure_plus": "SURE+", "sure_fsam": "SURE+ without RegPixMix"}
TRIALS = ("sure_plus_trials", "sure_plus_tuned", "trials")  # folder, study, preset
PRINTED = "sure_plus-5"  # the row of SURE+ with the printed radius
LATER = (  # title, folder, study, preset
    ("The comparison after 40 epochs", "sure_plus_tuned", "sure_plus_tuned", None),
    ("Single precision in place of bfloat16", "sure_plus_float32", "sure_plus_tuned", "float32"),
    ("Fine-tuning a real network (as in Table 4)", "sure_plus_finetune", "sure_plus_finetune", None),
    ("100 epochs", "sure_plus_converged", "sure_plus_tuned", "converged"),
)


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

    def mean(
        self, recipe: str, metric: str, shift: str, protocol: str, pair: str, seeds: Sequence[int] | None = None
    ) -> float | None:
        """Average a number of msp, or of msp with a second score, over seeds (all, or those named) and benchmarks."""
        found = []
        for row in self.rows:
            if seeds and int(row["seed"]) not in seeds:
                continue
            about = (row["recipe"], row["score"], row["pair"], row["metric"], row["shift"], row["protocol"])
            if about == (recipe, "msp", pair, metric, shift, protocol) and row["value"]:
                found.append(float(row["value"]))
        return float(np.mean(found)) if found else None

    def cells_of(self, recipe: str) -> list[str]:
        """List the finished cells of a row of the study."""
        return [cell.name for cell in self.study.cells() if cell.row.name == recipe and cell.name in self.minutes]

    def chosen(self, family: str) -> str | None:
        """Return the finished row of a family with the lowest AURC on validation images."""
        found = {}
        for row in self.study.rows:
            value = self.mean(row.name, *CHOICE, seeds=self.study.tuning_seeds)
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


def sure_plus_sections(root: Path) -> list[str]:
    """Write the sections of the page."""
    return [*faithful(root), *radius(root), *longer(root)]


def faithful(root: Path) -> list[str]:
    """Name the tests that compare our training with plain loops; a test that is not there ends the script."""
    rows = []
    for what, file, test in FAITHFUL:
        text = (root / file).read_text(encoding="utf-8")
        if file == LOOPS:
            is_there = f'"{test}":' in text
            named = f"{file}::test_weights_are_those_of_an_independent_loop[{test}]"
        else:
            is_there = re.search(rf"^def {test}\(", text, re.MULTILINE) is not None
            named = f"{file}::{test}"
        if not is_there:
            sys.exit(f"there is no test {named}")
        rows.append([what, f"`{named}`"])
    return [
        "## Is our SURE+ the paper's SURE+?",
        "It does not rest on accuracy: whole trainings end with the weights of loops that were written from the paper in plain PyTorch, and a "
        "weight of a loss that is changed by 5 % shows. Every part is compared with its definition as well.",
        markdown(["what is compared", "test"], rows),
    ]


def opened_trials(root: Path) -> Cells:
    """Open the committed trials, which choose the radius and the learning rates."""
    return opened(root, *TRIALS)


def radius(root: Path) -> list[str]:
    """Show every trial of the radius and of the learning rates of the rivals, finished or not."""
    cells = opened_trials(root)
    epochs = dict(cells.study.settings)["epochs"]
    parts = [
        "## The radius",
        "The printed rho = 0.2 is a length, and the weights here are shorter than those of the paper. SURE+ and its step "
        f"before RegPixMix (`sure_fsam`) therefore try six radii, plain training and RegMixup six learning rates. Each trial trains for {epochs} "
        "epochs with one seed, and the AURC of validation images chooses. The table has every trial; "
        "DS-F1 is that of msp + knn. Minutes are those of a cell on one core, which other work shared.",
    ]
    rows: list[list[str]] = []
    missing: dict[str, list[str]] = {}
    for one in cells.study.rows:
        if not cells.has_trials(one.family):
            continue
        done = cells.cells_of(one.name)
        if not done:
            missing.setdefault(one.family, []).append(setting(one))
            continue
        first = shown(cells.mean(one.name, *CHOICE), 1000)
        mark = ""
        if cells.chosen(one.family) == one.name:
            mark = " (chosen)" if cells.is_complete(one.family) else " (chosen so far)"
        rows.append([one.family, setting(one) + mark, first, *measured(cells, one.name), minutes_of(cells, done)])
    head = ["recipe", "setting", "AURC, validation", *(measure[0] for measure in MEASURES), "minutes"]
    if rows:
        parts.append(markdown(head, rows))
    left = sum(len(settings) for settings in missing.values())
    parts.append(f"{len(rows)} of {len(rows) + left} trials are finished." + sweep_words(cells))
    if missing:
        parts.append("Missing:")
        parts.append("\n".join(f"- {family}: {'; '.join(settings)}" for family, settings in missing.items()))
    if any(cells.chosen(family) for family in SWEPT):
        parts.append("![The radius of SURE+](sure_plus_radius.png)")
    return parts


def setting(row: StudyRow) -> str:
    """Name what a trial sets: the radius, or the learning rate."""
    settings = dict(row.settings)
    given = re.search(r"\((.+)\)", row.recipe)
    if given is not None:
        return given[1].replace("rho_relative=True", "rho relative to the weights").replace("=", " = ")
    return f"lr = {settings['lr']}" if "lr" in settings else "as printed"


def sweep_words(cells: Cells) -> str:
    """Say which radius validation images choose, once all are tried."""
    words = ""
    for family, title in SWEPT.items():
        if cells.is_complete(family):
            best = next(row for row in cells.study.rows if row.name == cells.chosen(family))
            words += f" {title}: validation images choose {setting(best)}."
    return words


def longer(root: Path) -> list[str]:
    """Show the longer comparisons as far as their cells are there."""
    trials = opened_trials(root)
    parts = ["## Longer training, precision and fine-tuning"]
    for title, folder, name, preset in LATER:
        cells = opened(root, folder, name, preset)
        parts += [f"### {title}", state(cells)]
        rows = list(finished_rows(cells, trials))
        if rows:
            head = ["recipe", "setting", "seeds", *(measure[0] for measure in MEASURES), "minutes of a cell"]
            parts.append(markdown(head, rows))
    return parts


def state(cells: Cells) -> str:
    """Say how many cells are finished, and how to go on."""
    done = len(cells.minutes)
    command = study.command(cells.study)
    if not done:
        return f"No cell is finished: missing. `{command}` runs them."
    cells_are = "cell is" if done == 1 else "cells are"
    return f"{done} {cells_are} finished; recipes and seeds that the table lacks are missing. `{command}` runs them."


def chosen_by_trials(trials: Cells, family: str) -> str | None:
    """Return the row that the trials of a family choose, its only row where it has none, or None before all are done."""
    if not trials.has_trials(family):
        return next(row.name for row in trials.study.rows if row.family == family)
    return trials.chosen(family) if trials.is_complete(family) else None


def finished_rows(cells: Cells, trials: Cells) -> Iterator[list[str]]:
    """Write every row that has a finished cell, and mark those that the trials chose."""
    families = {row.family for row in trials.study.rows}
    for row in cells.study.rows:
        done = cells.cells_of(row.name)
        if not done:
            continue
        mark = ""
        if cells.has_trials(row.family) and row.family in families:
            mark = " (chosen)" if chosen_by_trials(trials, row.family) == row.name else ""
        yield [row.family, setting(row) + mark, str(len(done)), *measured(cells, row.name), minutes_of(cells, done)]


def measured(cells: Cells, name: str) -> list[str]:
    """Write the measures of a row of the study."""
    return [shown(cells.mean(name, *measure[1:5]), measure[5]) for measure in MEASURES]


def minutes_of(cells: Cells, done: list[str]) -> str:
    """Write the minutes of each cell."""
    return ", ".join(f"{cells.minutes[name]:.0f}" for name in done)


def shown(value: float | None, factor: float) -> str:
    """Write a number, or a dash where there is none."""
    return "–" if value is None else f"{factor * value:.2f}"


def sweep_figure(root: Path) -> list[Path]:
    """Draw DS-F1 and the AURC of validation images against the radius, as far as trials are finished."""
    cells = opened_trials(root)
    if not any(cells.chosen(family) for family in SWEPT):
        return []
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
    measures = (("AURC, validation (x1000)", *CHOICE, 1000), *((f"{m[0]} (%)", *m[1:]) for m in MEASURES[2:]))
    for axes, (title, metric, shift, protocol, pair, factor) in zip(panels, measures, strict=True):
        for colour, (family, label) in zip(COLOURS, SWEPT.items(), strict=False):
            places, values = [], []
            for row in cells.study.rows:
                value = cells.mean(row.name, metric, shift, protocol, pair)
                if row.family == family and value is not None:
                    places.append(setting(row).removeprefix("rho ").removeprefix("= ").removesuffix(" to the weights"))
                    values.append(factor * value)
            axes.plot(places, values, "o-", color=colour, label=label)
        best = cells.chosen("basic")
        if best is not None:
            plain = cells.mean(best, metric, shift, protocol, pair)
            axes.axhline(
                factor * float(plain or 0), color="black", linewidth=0.8, linestyle="--", label="plain training"
            )
        axes.set_title(title, fontsize=9)
        axes.tick_params(axis="x", labelrotation=40, labelsize=7)
    panels[0].legend(fontsize=7)
    path = root / "docs" / "findings" / "sure_plus_radius.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return [path]
