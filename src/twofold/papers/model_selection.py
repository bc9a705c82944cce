"""Choose among trainings of one kind on validation data: with or without dropout, and by which reward.

FD-Shifts does so score by score. Jaeger et al., ICLR 2023, arXiv:2211.15259, Appendix E.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from twofold.bench.rows import VALIDATION, ResultRow, better_of, is_missing


class _Chooser(NamedTuple):
    """Name the score that chooses among the trainings of a recipe."""

    benchmark: str
    recipe: str
    score: str
    protocol: str


def choose_trainings(rows: Iterable[ResultRow], recipes: Mapping[str, str]) -> list[ResultRow]:
    """Keep, of the trainings of one recipe, for each score the one that is best on validation data.

    Parameters
    ----------
    rows : iterable of mapping
        Tidy results of a study, whose column ``recipe`` names the row of the study.
    recipes : mapping of str to str
        The recipe of each row of the study, by the name of the row.

    Returns
    -------
    list of mapping
        The results of the chosen trainings, with the recipe in the column ``recipe``.

    Notes
    -----
    The mean over seeds decides, by the metric that the protocol chooses settings by. Where no training has a value on
    validation data, the first is kept.
    """
    groups: dict[_Chooser, dict[str, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        recipe = recipes[row["recipe"]]
        chooser = _Chooser(row["benchmark"], recipe, row["score"], row["protocol"])
        groups[chooser][row["recipe"]].append(row)
    kept: list[ResultRow] = []
    for chooser, trainings in groups.items():
        name = _best_training(trainings)
        kept += [{**row, "recipe": chooser.recipe} for row in trainings[name]]
    return kept


def _best_training(trainings: Mapping[str, list[ResultRow]]) -> str:
    """Find the training with the best mean on validation data."""
    losses: dict[str, float] = {}
    for name, rows in trainings.items():
        own = [row for row in rows if row["shift"] == VALIDATION and not is_missing(row["value"])]
        if not own:
            continue
        mean = float(np.mean([row["value"] for row in own]))
        losses[name] = mean if better_of(own) == "lower" else -mean
    if not losses:
        return next(iter(trainings))
    return min(losses, key=losses.__getitem__)
