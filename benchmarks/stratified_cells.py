"""Cells of the stratified study on real classifiers: every score with every projection, on every set of every network.

``stratified.py`` computes and writes them. Groups of sets are read from ``results/strata.csv``.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from script import announce

import numpy as np

from intervals import Placements, delong, place
from strata import OTHERS, natural_sets, read_distances
from timing import RESULTS
from twofold import metrics
from twofold.bench.catalogue import load
from twofold.bench.pools import TABLE_3
from twofold.roles import OOD_TEST
from twofold.typing import Array

CELLS = RESULTS / "stratified.csv"
PLAIN = "none"
ID_SET = "test"
FDBD = "fdbd(center=True, absolute=True)"  # of its projected cells, so that they differ by the projection alone
NUMBERS = ("auroc", "augrc", "aurc", "gain", "low", "high", "p")


@dataclass(frozen=True)
class Cell:
    """Hold one score on one set of one network.

    Parameters
    ----------
    network, set : str
        The block; the set ``test`` is ID.
    score : str
        Row of Table 3.
    projection : str
        Column of Table 3.
    auroc, augrc, aurc : float
        Values of the block.
    gain, low, high, p : float or None
        Gain in AUROC over the plain score with its 95 % interval over images; None for the plain score itself.
    """

    network: str
    set: str
    score: str
    projection: str
    auroc: float
    augrc: float
    aurc: float
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def benchmark(self) -> str:
        """The benchmark of the network."""
        return self.network.partition("-")[0] + "-real"


# --- computing ------------------------------------------------------------------------------------------------------


def compute_cells(work: Path) -> list[Cell]:
    """Score every network, and judge every score on every set; confidences are kept in the folder `work`."""
    from real_runs import NETWORKS, extract
    from twofold.bench import runner

    runs = extract(NETWORKS, work)
    specs = printed_specs()
    specs["fDBD", PLAIN] = FDBD
    cells = []
    for network in NETWORKS:
        announce(f"{len(specs)} scores of {network.name}")
        run = runs[network.name]
        benchmark = natural_sets(load(network.benchmark))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = work / "stratified" / network.name
            scored = runner.confidences(benchmark, run, folder, "stratified", list(specs.values()))
        conf = {}
        for form, spec in specs.items():
            if not scored[spec].reason:
                conf[form] = scored[spec].conf
        correct = np.asarray(run[ID_SET].correct)
        for dataset in benchmark.sets:
            if dataset.role in ("test", *OOD_TEST):
                cells += judge_block(network.name, dataset.name, correct, conf)
    return cells


def printed_specs() -> dict[tuple[str, str], str]:
    """Return the scores of Table 3 in their printed forms, by row and column."""
    specs = {}
    for row in TABLE_3:
        for column in row.columns:
            specs[row.title, column] = row.spec(column, "printed")
    return specs


def judge_block(
    network: str, name: str, correct: Array, conf: Mapping[tuple[str, str], Mapping[str, Array]]
) -> Iterable[Cell]:
    """Yield every score on one set of a network.

    Parameters
    ----------
    network, name : str
        The block. On the ID set failures are wrong predictions, on another set all of its rows.
    correct : array of shape (n_test,)
        Correct predictions on the ID set, which stand against the failures.
    conf : mapping
        Confidences by score and projection, then by set. The first projection of a score is taken as its plain form.
    """
    plain: dict[str, Placements] = {}
    for (score, projection), by_set in conf.items():
        trusted = by_set[ID_SET][correct]
        failures = by_set[ID_SET][~correct] if name == ID_SET else by_set[name]
        placements = place(trusted, failures)
        both = np.concatenate([trusted, failures])
        is_correct = np.arange(len(both)) < len(trusted)
        cell = Cell(
            network,
            name,
            score,
            projection,
            auroc=placements.auroc,
            augrc=metrics.augrc(is_correct, both),
            aurc=metrics.aurc(is_correct, both),
        )
        if score in plain:
            gain = delong(placements, plain[score])
            cell = replace(cell, gain=gain.value, low=gain.low, high=gain.high, p=gain.p)
        else:
            plain[score] = placements
        yield cell


# --- files ----------------------------------------------------------------------------------------------------------


def write_cells(cells: Sequence[Cell], path: Path) -> None:
    """Write a line for each cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["network", "set", "score", "projection", *NUMBERS])
        for cell in cells:
            numbers = []
            for name in NUMBERS:
                value = getattr(cell, name)
                numbers.append("" if value is None else f"{value:.5g}")
            table.writerow([cell.network, cell.set, cell.score, cell.projection, *numbers])


def read_cells(path: Path) -> list[Cell]:
    """Read the committed cells."""
    cells = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = {}
            for name in NUMBERS:
                numbers[name] = float(row[name]) if row[name] else None
            cells.append(Cell(row["network"], row["set"], row["score"], row["projection"], **numbers))
    return cells


def group_sets(embedding: str | None) -> dict[tuple[str, str], str]:
    """Read the group of each set by benchmark and name; None takes the embedding by a CIFAR network."""
    groups = {}
    for row in read_distances():
        wanted = embedding or OTHERS[row.benchmark].title
        if row.embedding == wanted:
            groups[row.benchmark, row.set] = row.group
    return groups
