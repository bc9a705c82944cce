"""Claims of the FD-Shifts paper on scores across shifts, decided from cells of ``which_score.py`` and ``real_bench.py``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, spearmanr

from claims import Claim
from drawn_gains import DRAWS, SEED, Gain, minus, negated, over_units, together
from gain_claims import judge_gain
from intervals import show_gain
from network_cells import CellValue, Row, read_csv
from score_cells import COMMAND, cifar_networks, is_cifar, single_scores
from score_choice import BASE, Table
from timing import RESULTS
from twofold.typing import Array

PLACES = 3  # that a rank moves where a choice matters
CLOSE = 0.8  # rank correlation of two orders that hardly differ


def shift_claims() -> Iterator[Claim]:
    """Decide the claims on scores across shifts."""
    table = Table.read(RESULTS)
    benchmark = read_csv(RESULTS / "real_bench.csv")
    areas = read_areas(table, benchmark)
    yield no_score_wins(areas)
    yield no_score_beats_softmax(areas)
    yield mistakes_move_ranks(table)
    yield aurc_and_auroc_differ(table, benchmark)


def no_score_wins(areas: Areas) -> Claim:
    """Decide whether even the best score on average has more AURC than the best score of each shift."""
    excess = areas.values - areas.values.min(axis=1, keepdims=True)
    least = float(excess.mean(axis=0).min())
    drawn_least = (areas.weights @ excess).min(axis=1)
    gain = Gain.of_few(least, drawn_least, areas.networks)
    winners = set(areas.values.argmin(axis=1).tolist())
    return decide(
        "No score wins under all shifts",
        gain,
        factor=1000,
        printed_at="Table 1",
        printed="no score does",
        ours=f"{len(winners)} different scores are best somewhere; the best on average has {show_gain(gain, factor=1000)} more "
        "AURC than the best of each shift",
        unit="AURC, x1000",
        scale=areas.scale,
    )


def no_score_beats_softmax(areas: Areas) -> Claim:
    """Decide whether the AURC of the best other score exceeds that of msp; the interval holds for all scores together."""
    msp = areas.values[:, areas.scores.index(BASE)]
    gaps: dict[str, Gain] = {}
    for score, values in zip(areas.scores, areas.values.T, strict=True):
        if score != BASE:
            gap = values - msp
            gaps[score] = Gain.of_few(float(gap.mean()), areas.weights @ gap, areas.networks)
    names = list(gaps)
    best = min(names, key=lambda score: gaps[score].value)
    gain = together(list(gaps.values()), names.index(best))
    return decide(
        "No score beats the softmax across shifts",
        gain,
        factor=1000,
        printed_at="Table 1",
        printed="no score does",
        ours=f"AURC of {best}, the best other score, less that of msp: {show_gain(gain, factor=1000)}",
        unit="AURC, x1000",
        scale=areas.scale,
    )


def mistakes_move_ranks(table: Table) -> Claim:
    """Decide whether removing mistakes changes some rank of AUROC by more than the margin in an average cell."""
    moved = table.gain("auroc_ood", change_of_ranks(table))
    return decide(
        f"Removing wrong predictions on known inputs moves ranks of scores by more than {PLACES} places",
        minus(moved, PLACES),
        factor=1,
        printed_at="Table 13",
        printed="it changes ranks",
        ours=f"largest change in a cell {show_gain(moved, factor=1)} places",
        unit="places",
        scale=f"5 CIFAR networks, {len(table.sets)} unknown sets",
    )


def aurc_and_auroc_differ(table: Table, benchmark: Sequence[Row]) -> Claim:
    """Decide whether the rank correlation of AURC and the AUROC of failures is below the margin."""
    correlations = []
    for network in cifar_networks(table):
        for shift in ("test", "corruption"):
            correlations.append(rank_correlation(benchmark, network, shift))
    agreement = over_units(correlations)
    return decide(
        "AURC and the AUROC of failures rank the scores of one classifier differently",
        minus(negated(agreement), -CLOSE),
        factor=1,
        printed_at="Table 12",
        printed="they differ",
        ours=f"rank correlation {show_gain(agreement, factor=1)}; different classifiers would be needed",
        unit="0.8 less the correlation",
        scale="5 CIFAR networks, test data and corruption",
    )


def decide(claim: str, gain: Gain, **options: str | float) -> Claim:
    """Make a claim of the paper."""
    return judge_gain("fd_shifts", claim, gain, command=COMMAND, **options)


# --- AURC by network and shift --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Areas:
    """Hold the AURC of every score in every cell, a cell being a network and a shift.

    Parameters
    ----------
    scores : list of str
        The scores that every cell has.
    values : array of shape (n_cells, n_scores)
        AURC.
    weights : array of shape (n_draws, n_cells)
        Weight of each cell in each draw of networks and shifts.
    networks : int
        Number of networks.
    """

    scores: list[str]
    values: Array
    weights: Array
    networks: int

    @property
    def scale(self) -> str:
        """The material, in words."""
        return f"{len(self.scores)} scores, 5 CIFAR networks, test data, corruption and unknown sets"


def read_areas(table: Table, benchmark: Sequence[Row]) -> Areas:
    """Collect AURC by cell; that under corruption is from the table of the benchmark."""
    by_cell: dict[tuple[str, str], dict[str, float]] = {}
    for row in table.rows:
        if row["quantity"] == "aurc" and is_cifar(row):
            by_cell[row["network"], row["judged_on"]] = single_scores(row)
    networks = cifar_networks(table)
    for network in networks:
        by_cell[network, "corruption"] = values_by_score(benchmark, network, "aurc", "corruption")
    shared = set.intersection(*map(set, by_cell.values()))
    scores = sorted(shared)
    values = []
    for by_score in by_cell.values():
        values.append(in_order(by_score, scores))
    return Areas(scores, np.array(values), cell_draws(list(by_cell)), len(networks))


def in_order(by_score: Mapping[str, float], scores: Iterable[str]) -> Array:
    """Return the values of some scores as an array."""
    return np.array([by_score[score] for score in scores])


def cell_draws(cells: Sequence[tuple[str, str]]) -> Array:
    """Draw networks and shifts independently, and return the weight of each cell in each draw.

    A draw that misses every cell weights all cells alike.
    """
    rng = np.random.default_rng(SEED)
    weights = np.ones((DRAWS, len(cells)))
    for labels in zip(*cells, strict=True):  # the networks of the cells, then their shifts
        names = sorted(set(labels))
        counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)
        columns = [names.index(label) for label in labels]
        weights *= counts[:, columns]
    total = weights.sum(axis=1, keepdims=True)
    is_empty = total == 0
    return np.where(is_empty, 1.0, weights) / np.where(is_empty, len(cells), total)


# --- ranks ----------------------------------------------------------------------------------------------------------


def change_of_ranks(table: Table) -> CellValue:
    """Return the function that finds the largest change of a score's rank in a cell if mistakes are removed."""
    without_mistakes = {}
    for row in table.cells("auroc_ood of correct predictions"):
        without_mistakes[row["network"], row["judged_on"]] = single_scores(row)

    def largest_change(row: Row) -> float | None:
        if not is_cifar(row):
            return None
        before = single_scores(row)
        after = without_mistakes[row["network"], row["judged_on"]]
        ranks_before = rankdata(-in_order(before, before))
        ranks_after = rankdata(-in_order(after, before))
        return float(np.abs(ranks_before - ranks_after).max())

    return largest_change


def rank_correlation(benchmark: Sequence[Row], network: str, shift: str) -> float:
    """Compute Spearman's correlation, over scores, of AURC and the negative AUROC of failures."""
    aurc = values_by_score(benchmark, network, "aurc", shift)
    auroc = values_by_score(benchmark, network, "auroc", shift)
    scores = sorted(aurc)
    return float(spearmanr(in_order(aurc, scores), -in_order(auroc, scores)).statistic)


def values_by_score(benchmark: Sequence[Row], network: str, metric: str, shift: str) -> dict[str, float]:
    """Return the values of a metric of single scores under the protocol of the paper, by score."""
    wanted = (network, metric, shift, "", "fd_shifts")
    values = {}
    for row in benchmark:
        if (row["run"], row["metric"], row["shift"], row["pair"], row["protocol"]) == wanted:
            values[row["score"]] = float(row["value"])
    return values
