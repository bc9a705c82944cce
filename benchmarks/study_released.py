"""DS-F1 and DS-AURC of the study of SURE+, exact and by the grid of the released code.

The numbers of a cell are measured from its outputs when it is trained, and kept in ``results/studies``; a section of the
page compares them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import spearmanr

from network_cells import read_csv
from study_catalogue import KEPT
from tables import markdown
from twofold import metrics
from twofold import study as studies
from twofold._math import sigmoid
from twofold.bench import runner
from twofold.bench.confidences import Confidences
from twofold.bench.text import scale
from twofold.run import Run
from twofold.study import Study, StudyCell
from twofold.typing import Array

Form: TypeAlias = Literal["exact", "published"]  # method of a metric, and column of the file

FILE = KEPT / "sure_plus" / "published.csv"
COLUMNS = ("cell", "recipe", "seed", "pair", "shift", "metric", "exact", "published")
METRICS = {"ds_f1": "DS-F1", "ds_aurc": "DS-AURC"}
FORMS: tuple[Form, ...] = ("exact", "published")
SECOND_SCORES = ("msp", "klm", "knn", "energy")

SETS = {"near": ("cifar100",), "far": ("svhn", "textures", "mnist"), "mnist": ("mnist",)}
COMPARED = (  # pair of scores, and group of sets
    ("msp + msp", "near"),
    ("msp + msp", "far"),
    ("msp + knn", "near"),
    ("msp + knn", "far"),
    ("msp + klm", "mnist"),
)


# --- measurement ----------------------------------------------------------------------------------------------------


def add_released_metrics(study: Study, work: Path) -> None:
    """Add the metrics of every finished cell whose outputs are in a folder to the kept ones."""
    rows: list[dict[str, str]] = []
    if FILE.exists():
        rows += read_csv(FILE)
    known = {row["cell"] for row in rows}
    finished = studies.finished(study, work)
    for cell in study.cells():
        run = work / "runs" / cell.name
        if cell.name not in known and cell.name in finished and run.is_dir():
            rows += measure_cell(cell, Run.open(run), work / "judged" / cell.name)
    order = [cell.name for cell in study.cells()]
    rows.sort(key=lambda row: order.index(row["cell"]))
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def measure_cell(cell: StudyCell, run: Run, judged: Path) -> Iterator[dict[str, str]]:
    """Yield both metrics of a cell for every pair of scores and unknown set.

    Parameters
    ----------
    cell : StudyCell
        The cell.
    run : Run
        Its outputs.
    judged : Path
        Folder of its results, where confidences are stored.
    """
    confidences = runner.confidences(cell.benchmark, run, judged, "joint")
    test = run["test"]
    unknown_sets = cell.benchmark.names("near") + cell.benchmark.names("far")
    for second in SECOND_SCORES:
        for shift in unknown_sets:
            unknown = np.zeros(len(run[shift]), bool)
            is_id = np.concatenate([np.ones(len(test), bool), unknown])
            correct = np.concatenate([test.correct, unknown])
            conf_id = join_sets(confidences, "msp", shift)
            conf_ood = join_sets(confidences, second, shift)
            for metric in METRICS:
                row = {
                    "cell": cell.name,
                    "recipe": cell.row.name,
                    "seed": str(cell.seed),
                    "pair": f"msp + {second}",
                    "shift": shift,
                    "metric": metric,
                }
                for form in FORMS:
                    row[form] = repr(joint_metric(metric, correct, conf_id, conf_ood, is_id, form))
                yield row


def join_sets(confidences: Mapping[str, Confidences], score: str, shift: str) -> Array:
    """Join the confidences of the test set and of an unknown set; those of msp become probabilities."""
    by_set = confidences[score].conf
    conf = np.concatenate([by_set["test"], by_set[shift]])
    if score == "msp":
        return sigmoid(conf)
    return conf


def joint_metric(metric: str, correct: Array, conf_id: Array, conf_ood: Array, is_id: Array, form: Form) -> float:
    """Compute DS-F1 or DS-AURC, exact or as published."""
    if metric == "ds_f1":
        return float(metrics.ds_f1(correct, conf_id, conf_ood, is_id, method=form).value)
    return float(metrics.ds_aurc(correct, conf_id, conf_ood, is_id, method=form))


# --- page -----------------------------------------------------------------------------------------------------------


def released_section() -> list[str]:
    """Compare both forms of the metrics, and the order of recipes by either; nothing where no cell is kept."""
    if not FILE.exists():
        return []
    rows = read_csv(FILE)
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    parts = [
        "## The DS metrics, exact and as released",
        "The released code searches thresholds on a fixed grid, after scaling the second score by the extremes of the test "
        "data, and takes the least risk in each of 100 bins of coverage. The tables show means over sets and seeds: DS-F1 "
        "in percent, DS-AURC x1000.",
    ]
    agreements = []
    for pair, group in COMPARED:
        means = recipe_means(rows, recipes, pair, group)
        parts += [f"### {pair}, {group}", recipe_table(recipes, means)]
        for metric in METRICS:
            agreement = compare_orders(metric, recipes, means[metric, "exact"], means[metric, "published"])
            agreements.append([f"{metric}, {pair}, {group}", *agreement])
    head = ("column", "largest difference", "correlation of ranks", "best, exact", "best, released")
    return [*parts, "### Do both rank the recipes in the same order?", markdown(head, agreements)]


def recipe_means(
    rows: Sequence[Mapping[str, str]], recipes: Sequence[str], pair: str, group: str
) -> dict[tuple[str, Form], Array]:
    """Average both forms of both metrics over sets and seeds.

    Parameters
    ----------
    rows : sequence of mapping
        Lines of the file.
    recipes : sequence of str
        Recipes, in the order of the averages.
    pair : str
        Pair of scores.
    group : str
        Group of unknown sets, a key of ``SETS``.

    Returns
    -------
    dict of (str, str) to ndarray
        An average for each recipe in the unit of the tables, by metric and form.
    """
    means: dict[tuple[str, Form], Array] = {}
    for metric in METRICS:
        factor, _ = scale(metric)
        selected = []
        for row in rows:
            if (row["pair"], row["metric"]) == (pair, metric) and row["shift"] in SETS[group]:
                selected.append(row)
        for form in FORMS:
            averages = []
            for recipe in recipes:
                values = [float(row[form]) for row in selected if row["recipe"] == recipe]
                averages.append(factor * np.mean(values))
            means[metric, form] = np.array(averages)
    return means


def recipe_table(recipes: Sequence[str], means: Mapping[tuple[str, Form], Array]) -> str:
    """Write both forms of both metrics of every recipe."""
    head = ["recipe"]
    for title in METRICS.values():
        head += [f"{title} exact", "released"]
    lines = []
    for place, recipe in enumerate(recipes):
        numbers = [f"{column[place]:.2f}" for column in means.values()]
        lines.append([recipe, *numbers])
    return markdown(head, lines)


def compare_orders(metric: str, recipes: Sequence[str], exact: Array, released: Array) -> list[str]:
    """Write the largest difference between both forms, the correlation of their ranks, and the best recipe of each."""
    correlation = float("nan")
    if len(recipes) > 2:
        correlation = spearmanr(exact, released).statistic
    largest = np.abs(exact - released).max()
    best = [best_recipe(metric, recipes, values) for values in (exact, released)]
    return [f"{largest:.2f}", f"{correlation:.2f}", *best]


def best_recipe(metric: str, recipes: Sequence[str], values: Array) -> str:
    """Return the recipe with the best value of a metric."""
    if metrics.info(metric).better == "higher":
        return recipes[int(values.argmax())]
    return recipes[int(values.argmin())]
