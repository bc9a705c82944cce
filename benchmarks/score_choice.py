"""What the cells of ``which_score.py`` say: gains, regret, rules of choice, and whether the default pair should change.

Reads ``results/which_score.csv`` and ``results/which_score_choices.csv`` only; ``findings.py`` writes the pages. Intervals are
percentiles of draws of networks and unknown sets. With n networks the draws are widened by sqrt(n / (n - 1)) and by Student's
t over the normal quantile, because percentiles of so few networks would be too narrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from drawn_gains import DRAWS, SEED, Gain, simultaneous_low
from network_cells import CellValue, NetworkCells, Row, read_csv
from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold.typing import Array

CELLS, CHOICES = "which_score.csv", "which_score_choices.csv"
KEYS = ("network", "modality", "quantity", "chosen_on", "judged_on")
USUAL_RULE, ALL_RULE, ORACLE = "recommend, usual scores", "recommend, all scores", "best pair with hindsight"
RULES = (USUAL_RULE, ALL_RULE, ORACLE)
ELSEWHERE = "best fixed choice on the other networks"
BASE, DEFAULT = DEFAULT_ID, f"{DEFAULT_ID} + {DEFAULT_OOD}"
WITH_FEATURES = "msp + knn"  # what wrap may take where there are features and training rows, but no unknown inputs
SLACK = 0.001  # by which the regret of a default may exceed that of msp + energy in a modality


@dataclass(frozen=True)
class Regret:
    """Hold how a choice of scores compares with msp where it is worse.

    Parameters
    ----------
    share : float
        Share of the cells in which it is worse.
    mean, worst : float
        Mean and largest loss of F1; a cell in which it is better loses nothing.
    networks : int
        Number of networks that have what it needs.
    """

    share: float
    mean: float
    worst: float
    networks: int


@dataclass(frozen=True)
class Candidate:
    """Hold a pair that may become the default.

    Parameters
    ----------
    name : str
        The pair.
    gain : Gain
        Its gain over the default.
    low : float
        Lower limit of the gain, simultaneously over all candidates.
    over_msp : Gain
        Its gain over msp.
    larger_regret : list of str
        Modalities in which its regret is larger than that of the default.
    """

    name: str
    gain: Gain
    low: float
    over_msp: Gain
    larger_regret: list[str]

    @property
    def passes(self) -> bool:
        """Whether the pair meets all conditions."""
        return self.low > 0 and self.over_msp.low > 0 and not self.larger_regret


@dataclass(frozen=True, eq=False)
class Table:
    """Hold the cells of all networks, and compare choices of scores over them.

    Parameters
    ----------
    rows : list of dict
        One row for each cell, with a value for each choice of scores.
    choices : list of dict
        What the rules of choice took and reached.
    """

    rows: list[dict[str, str]]
    choices: list[dict[str, str]]

    @classmethod
    def read(cls, folder: Path) -> Table:
        """Read the two files of cells."""
        return cls(read_csv(folder / CELLS), read_csv(folder / CHOICES))

    # --- networks, sets and scores ---

    @cached_property
    def networks(self) -> dict[str, str]:
        """The modality of each network."""
        return {row["network"]: row["modality"] for row in self.rows}

    @cached_property
    def columns(self) -> list[str]:
        """The names of single scores and pairs."""
        return [name for name in self.rows[0] if name not in (*KEYS, "command")]

    @cached_property
    def sets(self) -> list[str]:
        """The unknown sets of networks that have several, so that thresholds come from another set."""
        names: dict[str, None] = {}
        for row in self.rows:
            if row["quantity"] == "f1" and row["chosen_on"] != row["judged_on"]:
                names[row["judged_on"]] = None
        return list(names)

    @cached_property
    def set_counts(self) -> dict[str, int]:
        """The number of unknown sets of each network."""
        pairs = {(row["network"], row["judged_on"]) for row in self.cells("ds_f1")}
        counts = dict.fromkeys(self.networks, 0)
        for network, _ in pairs:
            counts[network] += 1
        return counts

    @cached_property
    def logits_alone(self) -> list[str]:
        """Scores that need logits alone: those of the network without training rows and features."""
        row = next(row for row in self.cells("f1") if row["network"].startswith("imagenet"))
        return [name for name in self.columns if row[name] and " + " not in name]

    def cells(self, quantity: str) -> list[dict[str, str]]:
        """List the cells of a quantity on unknown sets."""
        return [row for row in self.rows if row["quantity"] == quantity and row["judged_on"] != "test"]

    # --- gains ---

    def over(self, quantity: str, name: str, other: str) -> Gain:
        """Compute how much better one choice of scores is than another; a lower DS-AURC is better."""
        sign = -1.0 if "aurc" in quantity else 1.0

        def better(row: Row) -> float | None:
            if not row[name] or not row[other]:
                return None
            return sign * (float(row[name]) - float(row[other]))

        return self.gain(quantity, better)

    def gain(self, quantity: str, value: CellValue) -> Gain:
        """Average a value over the cells of a network, then over networks.

        A draw takes networks and unknown sets with replacement. The cells of a network with several sets are weighted
        by how often their sets were drawn.
        """
        network_draws, _ = self.drawn
        means = []
        total = np.zeros(DRAWS)
        weighted_sum = np.zeros(DRAWS)
        for index, network in enumerate(self.networks):
            cells = self.network_cells.get((quantity, network))
            if cells is None:
                continue
            average = cells.average(value)
            if average is None:
                continue
            weight = network_draws[:, index] * average.has_cell
            means.append(average.mean)
            total += weight
            weighted_sum += weight * average.drawn
        mean = float(np.mean(means))
        drawn = np.divide(weighted_sum, total, out=np.full(DRAWS, mean), where=total > 0)
        return Gain.of_few(mean, drawn, len(means))

    @cached_property
    def drawn(self) -> tuple[Array, Array]:
        """How often each network and each unknown set is in each draw; networks and sets are drawn independently."""
        rng = np.random.default_rng(SEED)
        networks = rng.multinomial(len(self.networks), np.full(len(self.networks), 1 / len(self.networks)), DRAWS)
        sets = rng.multinomial(len(self.sets), np.full(len(self.sets), 1 / len(self.sets)), DRAWS)
        return networks.astype(float), sets.astype(float)

    @cached_property
    def network_cells(self) -> dict[tuple[str, str], NetworkCells]:
        """The cells of unknown sets by quantity and network."""
        grouped: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            if row["judged_on"] != "test":
                grouped.setdefault((row["quantity"], row["network"]), []).append(row)
        cells = {}
        for key, rows in grouped.items():
            cells[key] = NetworkCells(rows, np.array([self._weight(row) for row in rows]))
        return cells

    def _weight(self, row: Row) -> Array:
        """Return how often the sets of a cell are in each draw; always once for the only set of a network."""
        _, set_draws = self.drawn
        chosen, judged = row["chosen_on"], row["judged_on"]
        if chosen == judged or self.set_counts[row["network"]] == 1:
            return np.ones(DRAWS)
        weight = set_draws[:, self.sets.index(judged)]
        if chosen:
            weight = weight * set_draws[:, self.sets.index(chosen)]
        return weight

    # --- regret ---

    def regret(self, name: str, modality: str | None = None) -> Regret | None:
        """Compute how often and by how much a choice is worse than msp, on sets that did not choose its thresholds.

        None if no network, or none of a modality, has what the choice needs.
        """
        losses: dict[str, list[float]] = {}
        for row in self.cells("f1"):
            if row[name] and modality in (None, row["modality"]):
                loss = float(row[BASE]) - float(row[name])
                losses.setdefault(row["network"], []).append(loss)
        if not losses:
            return None
        shares, means = [], []
        worst = 0.0
        for by_cell in losses.values():
            regrets = np.maximum(by_cell, 0.0)
            shares.append(np.mean(regrets > 0))
            means.append(np.mean(regrets))
            worst = max(worst, *by_cell)
        return Regret(float(np.mean(shares)), float(np.mean(means)), worst, len(losses))

    # --- rules of choice ---

    def rule(self, rule: str) -> CellValue:
        """Return the function that computes what a rule, or a fixed choice of scores, gains over msp in a cell."""

        def gained(row: Row) -> float | None:
            base = float(row[BASE])
            if rule in RULES:
                return self.chosen_f1[rule, row["network"], row["chosen_on"], row["judged_on"]] - base
            name = self.best_elsewhere[row["network"]] if rule == ELSEWHERE else rule
            if not row[name]:
                return None
            return float(row[name]) - base

        return gained

    @cached_property
    def chosen_f1(self) -> dict[tuple[str, str, str, str], float]:
        """The F1 that each rule reaches, by rule, network, choosing and judging set; several splits are averaged."""
        values: dict[tuple[str, str, str, str], list[float]] = {}
        for row in self.choices:
            key = (row["rule"], row["network"], row["chosen_on"], row["judged_on"])
            values.setdefault(key, []).append(float(row["f1"]))
        return {key: float(np.mean(by_split)) for key, by_split in values.items()}

    @cached_property
    def best_elsewhere(self) -> dict[str, str]:
        """For each network, the choice with the best mean F1 on the other networks, among those that it has itself."""
        best = {}
        for network in self.networks:
            gains: dict[str, list[float]] = {column: [] for column in self.mean_f1[network]}
            for other, means in self.mean_f1.items():
                if other == network:
                    continue
                for column, mean in means.items():
                    if column in gains:
                        gains[column].append(mean - means[BASE])
            best[network] = best_mean(gains)
        return best

    @cached_property
    def mean_f1(self) -> dict[str, dict[str, float]]:
        """The mean F1 of each network and choice of scores over its cells."""
        means = {}
        for network in self.networks:
            rows = [row for row in self.cells("f1") if row["network"] == network]
            means[network] = column_means(rows, self.columns)
        return means

    # --- the default ---

    def candidates(self, *, logits: bool, default: str = DEFAULT) -> list[Candidate]:
        """Judge msp with every second score of a kind by the rule of the default, best first."""
        names, gains = [], []
        for name in self.columns:
            second = name.removeprefix(f"{BASE} + ")
            needs_logits = second in self.logits_alone
            if second != name and name != default and needs_logits == logits:
                names.append(name)
                gains.append(self.over("f1", name, default))
        candidates = []
        for name, gain, low in zip(names, gains, simultaneous_low(gains), strict=True):
            over_msp = self.over("f1", name, BASE)
            candidates.append(Candidate(name, gain, low, over_msp, self.larger_regret(name, default)))
        return sorted(candidates, key=lambda candidate: -candidate.gain.value)

    def larger_regret(self, name: str, default: str) -> list[str]:
        """List the modalities in which a pair has a larger mean regret than the default."""
        modalities = []
        for modality in dict.fromkeys(self.networks.values()):
            own, usual = self.regret(name, modality), self.regret(default, modality)
            if own is not None and usual is not None and own.mean > usual.mean + SLACK:
                modalities.append(modality)
        return modalities


def best_mean(gains: Mapping[str, Sequence[float]]) -> str:
    """Find the choice with the largest mean gain, the first of several; one without gains is left out."""
    means = {}
    for column, by_network in gains.items():
        if by_network:
            means[column] = np.mean(by_network)
    return max(means, key=means.__getitem__)


def column_means(rows: Sequence[Row], columns: Sequence[str]) -> dict[str, float]:
    """Average each column over the cells that have it."""
    means = {}
    for column in columns:
        values = [float(row[column]) for row in rows if row[column]]
        if values:
            means[column] = float(np.mean(values))
    return means
