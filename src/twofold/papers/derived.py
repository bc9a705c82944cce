"""What tables print and no benchmark measures: ranks, the best of several runs, and the rounding of the softmax.

Each function takes what the steps of a plan left and returns further rows of results, under the metric that the printed
table has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold import metrics
from twofold.bench.published import anchors, classifier_of, printed_label
from twofold.bench.rows import ResultRow, is_missing, registered_direction
from twofold.papers.material import Material
from twofold.run import Run
from twofold.typing import Array

Derivation: TypeAlias = Callable[[Material], list[ResultRow]]

DERIVATIONS: dict[str, Derivation] = {}
"""Functions that derive rows of results, by the name by which plans call them."""

RANKED = ("aurc", "auroc")
ORIGINAL = "fd_shifts_original"
PRECISIONS: dict[str, type[np.floating]] = {"16bit": np.float16, "32bit": np.float32, "64bit": np.float64}


def register_derivation(name: str) -> Callable[[Derivation], Derivation]:
    """Register a function that derives rows.

    Parameters
    ----------
    name : str
        The name by which plans call it.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.
    """

    def register(function: Derivation) -> Derivation:
        DERIVATIONS[name] = function
        return function

    return register


class _Column(NamedTuple):
    """Name a column of ranks: the scores of one classifier on one shift."""

    benchmark: str
    classifier: str
    protocol: str
    shift: str
    metric: str


@register_derivation("ranks")
def derive_ranks(material: Material) -> list[ResultRow]:
    """Rank the scores that FD-Shifts prints by AURC and by AUROC, for each shift and kind of network.

    Parameters
    ----------
    material : Material
        Results of benchmarks; values of several seeds count by their mean.

    Returns
    -------
    list of mapping
        Rows with ``aurc_rank``, ``auroc_rank`` and, of the protocol that counts mistakes on known classes as correct,
        ``auroc_rank_original``. 1 is best, and equal means share the better rank.
    """
    printed = set()
    for anchor in anchors(paper="fd_shifts", table="1"):
        printed.add((printed_label(anchor, "classifier"), anchor.score, anchor.recipe))
    columns: dict[_Column, dict[tuple[str, str], list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
    for row in material.rows:
        classifier = classifier_of(row["model"])
        method = (row["score"], row["recipe"])
        if row["metric"] not in RANKED or row["pair"] or (classifier, *method) not in printed:
            continue
        if not is_missing(row["value"]):
            column = _Column(row["benchmark"], classifier, row["protocol"], row["shift"], row["metric"])
            columns[column][method].append(row)
    derived: list[ResultRow] = []
    for column, methods in columns.items():
        means = {method: float(np.mean([row["value"] for row in rows])) for method, rows in methods.items()}
        for method, rank in _rank(means, column.metric).items():
            derived.append(_rank_row(methods[method][0], rank))
    return derived


def _rank(means: dict[tuple[str, str], float], metric: str) -> dict[tuple[str, str], int]:
    """Rank means, 1 for the best; equal ones share the better rank."""
    sign = 1.0 if registered_direction(metric) == "lower" else -1.0
    ranks = {}
    for method, mean in means.items():
        better = [other for other in means.values() if sign * other < sign * mean]
        ranks[method] = 1 + len(better)
    return ranks


def _rank_row(row: ResultRow, rank: int) -> ResultRow:
    name = f"{row['metric']}_rank"
    if row["protocol"] == ORIGINAL:
        name += "_original"
    return {**row, "metric": name, "protocol": "fd_shifts", "value": float(rank), "low": None, "high": None}


@register_derivation("best_run")
def derive_best_run(material: Material) -> list[ResultRow]:
    """Copy the results of the run with the best accuracy, under the recipe ``basic_best``.

    Parameters
    ----------
    material : Material
        Results of benchmarks over several seeds.

    Returns
    -------
    list of mapping
        The results of one run of each benchmark.
    """
    accuracy: dict[str, dict[str, float]] = defaultdict(dict)
    for row in material.rows:
        if row["metric"] == "accuracy" and row["role"] == "iid":
            accuracy[row["benchmark"]][row["run"]] = row["value"]
    copied: list[ResultRow] = []
    for benchmark, by_run in accuracy.items():
        best = max(by_run, key=by_run.__getitem__)
        for row in material.rows:
            if row["benchmark"] == benchmark and row["run"] == best:
                copied.append({**row, "recipe": "basic_best"})
    return copied


@register_derivation("precision")
def derive_precision(material: Material) -> list[ResultRow]:
    """Compute how often the softmax rounds to one in 16, 32 and 64 bits, and AURC and AUROC of its maximum.

    Parameters
    ----------
    material : Material
        Results of benchmarks, and the runs that they judge.

    Returns
    -------
    list of mapping
        Rows of the test set with ``round_to_one_16bit``, which pools all data sets but those of training and
        validation, ``aurc_16bit``, ``auroc_16bit``, and so on.
    """
    of_run: dict[str, ResultRow] = {}
    for row in material.rows:
        if row["score"] == "msp" and row["metric"] == "accuracy" and row["role"] == "iid":
            of_run.setdefault(row["run"], row)
    derived: list[ResultRow] = []
    for path in material.runs:
        if path.name in of_run:
            for metric, value in _measure_precision(Run.open(path)).items():
                derived.append({**of_run[path.name], "metric": metric, "value": value, "low": None, "high": None})
    return derived


def _measure_precision(run: Run) -> dict[str, float]:
    """Compute the metrics of all precisions on one run."""
    [test] = run.names("test")
    pooled = [name for name in run.names() if name not in (*run.names("train"), *run.names("val"))]
    correct = np.asarray(run[test].correct)
    found = {}
    for name, precision in PRECISIONS.items():
        ones = np.concatenate([_largest_softmax(run[one].logits, precision) == 1 for one in pooled])
        conf = _largest_softmax(run[test].logits, precision)
        found[f"round_to_one_{name}"] = float(ones.mean())
        found[f"aurc_{name}"] = metrics.aurc(correct, conf)
        found[f"auroc_{name}"] = metrics.auroc(correct, conf)
    return found


def _largest_softmax(logits: npt.ArrayLike, precision: type[np.floating]) -> Array:
    """Compute the largest softmax probability, every operation in the given precision."""
    rounded = np.asarray(logits).astype(precision)
    powers = np.exp(rounded - rounded.max(axis=1, keepdims=True))
    largest = powers.max(axis=1) / powers.sum(axis=1, dtype=precision)
    return largest.astype(np.float64)


def derive(names: Iterable[str], material: Material) -> list[ResultRow]:
    """Derive rows by several functions.

    Parameters
    ----------
    names : iterable of str
        Names in :data:`DERIVATIONS`.
    material : Material
        What the steps left.

    Returns
    -------
    list of mapping
        The derived rows.
    """
    rows: list[ResultRow] = []
    for name in names:
        rows += DERIVATIONS[name](material)
    return rows
