"""What the page of the study of SURE+ has beyond its claims: the order of recipes in the paper, here, and by each metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from study_catalogue import kept_records
from study_cells import ACCURACY, AURC, Column, Contender, FinishedCells
from study_released import released_section
from study_sure_plus import DOUBLE
from tables import markdown
from twofold.bench.published import anchors

LEAST_RECIPES = 5  # for a correlation over recipes
SECOND_SCORES = ("knn", "klm", "vim", "sirc", "mds", "openmax")  # of the pairs in Table 3
AVERAGED = ("sure_ema", "sure_fsam", "sure_plus")  # how recipes begin that average weights exponentially

SINGLE_TASKS = (  # columns of one task, and the score that judges
    (ACCURACY, "msp"),
    (AURC, "msp"),
    (Column("auroc_ood", "near", "openood"), "msp"),
    (Column("auroc_ood", "far", "openood"), "msp"),
    (Column("auroc_ood", "mnist", "openood"), "klm"),
)
JOINT_TASKS = (  # columns of both tasks, and the pair that judges
    (Column("ds_f1", "near", "joint"), DOUBLE),
    (Column("ds_f1", "far", "joint"), DOUBLE),
    (Column("ds_f1", "mnist", "joint"), "msp + klm"),
    (Column("ds_aurc", "near", "joint"), DOUBLE),
    (Column("ds_aurc", "far", "joint"), DOUBLE),
    (Column("ds_aurc", "mnist", "joint"), "msp + klm"),
)


def sure_plus_study_sections(cells: FinishedCells) -> list[str]:
    """Write the sections of the page."""
    return [*window_words(), *paper_order(cells), *single_task_order(cells), *released_section()]


def window_words() -> list[str]:
    """Say over how many updates weights are averaged in so short a training."""
    windows = []
    steps = []
    for name, record in kept_records("sure_plus").items():
        if name.startswith(AVERAGED):
            windows.append(record["window"])
            steps.append(record["steps"])
    if not windows:
        return []
    return [
        f"At the end of these trainings, the moving average of the weights of SURE+ spans about {np.mean(windows):.0f} of the "
        f"{steps[0]} updates. With the paper's settings it would span about 5,000 of 78,000."
    ]


def paper_order(cells: FinishedCells) -> list[str]:
    """Compare the order of recipes with that of the paper, for every pair of scores."""
    lines = []
    for metric in ("ds_f1", "ds_aurc"):
        for shift in ("near", "far"):
            for second in SECOND_SCORES:
                column = Column(metric, shift, "joint")
                numbers, printed_numbers = shared_numbers(cells, column, second)
                if len(numbers) >= LEAST_RECIPES:
                    correlation = spearmanr(printed_numbers, numbers).statistic
                    lines.append([f"{metric} {shift}, msp + {second}", f"{correlation:.2f}", len(numbers)])
    return [
        "## Are the recipes in the same order as in the paper?",
        "Spearman's correlation over recipes between the paper's Table 3 (CIFAR-100, ResNet-18, 200 epochs) and our table.",
        markdown(("column", "correlation", "recipes"), lines),
    ]


def shared_numbers(cells: FinishedCells, column: Column, second: str) -> tuple[list[float], list[float]]:
    """Return our numbers and those of the paper for the recipes that have both."""
    wanted = (column.metric, column.shift, "msp", second)
    numbers = []
    printed_numbers = []
    for anchor in anchors(paper="sure_plus", table="3", benchmark="openood-cifar100"):
        if (anchor.metric, anchor.shift, anchor.score, anchor.pair) != wanted:
            continue
        mean = cells.mean(Contender(anchor.recipe, f"msp + {second}"), column)
        if not np.isnan(mean):
            numbers.append(mean)
            printed_numbers.append(anchor.value)
    return numbers, printed_numbers


def single_task_order(cells: FinishedCells) -> list[str]:
    """Compare the order of recipes by the metrics of one task with the order by the joint metrics."""
    recipes = [row.name for row in cells.study.rows]
    joint_gains = []
    for column, method_name in JOINT_TASKS:
        joint_gains.append(recipe_gains(cells, recipes, column, method_name))
    lines = []
    for column, method_name in SINGLE_TASKS:
        own_gains = recipe_gains(cells, recipes, column, method_name)
        line = [title(column, method_name)]
        for gains in joint_gains:
            line.append(f"{spearmanr(own_gains, gains).statistic:.2f}")
        lines.append(line)
    head = ["single task"]
    for column, method_name in JOINT_TASKS:
        head.append(title(column, method_name))
    return [
        "## Do single-task metrics rank the recipes like the joint metrics?",
        f"Spearman's correlation over the {len(recipes)} recipes; 1 means the same order. Figure 1a is about two of them, plain "
        "training and CutMix: see its lines above.",
        markdown(head, lines),
    ]


def recipe_gains(cells: FinishedCells, recipes: Sequence[str], column: Column, method_name: str) -> list[float]:
    """Return the mean of every recipe in a column, negated where lower is better."""
    return [column.sign * cells.mean(Contender(recipe, method_name), column) for recipe in recipes]


def title(column: Column, method_name: str) -> str:
    """Name a column and the method that judges."""
    return f"{column.metric} {column.shift}, {method_name}"
