"""What the cells of ``which_score.py`` say: gains, regret, rules of choice, and whether the default pair should change.

Reads ``results/which_score.csv`` and ``results/which_score_choices.csv`` only; ``findings.py`` writes the pages. Intervals are
percentiles of draws of networks and unknown sets. With n networks the draws are spread by sqrt(n / (n - 1)) and by Student's
t over the normal quantile: percentiles of so few networks would be too narrow.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.stats import norm, t

from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold.typing import Array

CELLS, CHOICES = "which_score.csv", "which_score_choices.csv"
KEYS = ("network", "modality", "quantity", "chosen_on", "judged_on")
USUAL_RULE, ALL_RULE, ORACLE = "recommend, usual scores", "recommend, all scores", "best pair with hindsight"
RULES = (USUAL_RULE, ALL_RULE, ORACLE)
BASE, DEFAULT = DEFAULT_ID, f"{DEFAULT_ID} + {DEFAULT_OOD}"
WITH_FEATURES = "msp + knn"  # what wrap may take where there are features and training rows, but no unknown inputs
DRAWS, LEVEL, SEED = 4000, 0.95, 0
SLACK = 0.001  # by which the regret of a default may exceed that of msp + energy in a modality


@dataclass(frozen=True)
class Gain:
    """Hold a mean with its 95 % interval over networks and unknown sets, and the draws behind it."""

    value: float
    low: float
    high: float
    draws: Array

    @classmethod
    def of(cls, value: float, draws: Array) -> Gain:
        """Take the interval from quantiles of the draws."""
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(draws, (tail, 1 - tail))
        return cls(value, float(low), float(high), draws)

    @classmethod
    def of_few(cls, value: float, draws: Array, units: int) -> Gain:
        """Spread draws of a few units, as the mean of so few varies more than its draws do."""
        return cls.of(value, value + widening(units) * (draws - value))

    @property
    def p(self) -> float:
        """The two-sided p-value of zero: twice the share of draws on its other side, at least one draw."""
        below = (1 + np.sum(self.draws <= 0)) / (1 + len(self.draws))
        above = (1 + np.sum(self.draws >= 0)) / (1 + len(self.draws))
        return float(min(1.0, 2 * min(below, above)))


@dataclass(frozen=True, eq=False)
class Table:
    """Hold the cells of all networks: one row a cell, one value for each choice of scores."""

    rows: list[dict[str, str]]
    choices: list[dict[str, str]]

    @classmethod
    def read(cls, folder: Path) -> Table:
        """Read the two files of cells."""
        return cls(read_csv(folder / CELLS), read_csv(folder / CHOICES))

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
        """The unknown sets of networks that have several."""
        found = [row["judged_on"] for row in self.rows if row["quantity"] == "f1" and self.several(row)]
        return list(dict.fromkeys(found))

    @staticmethod
    def several(row: Mapping[str, str]) -> bool:
        """Tell whether the thresholds of a cell come from another unknown set."""
        return row["chosen_on"] != row["judged_on"]

    @cached_property
    def drawn(self) -> tuple[Array, Array]:
        """How often each network and each unknown set is in each draw; networks and sets are drawn independently."""
        rng = np.random.default_rng(SEED)
        networks = rng.multinomial(len(self.networks), np.full(len(self.networks), 1 / len(self.networks)), DRAWS)
        sets = rng.multinomial(len(self.sets), np.full(len(self.sets), 1 / len(self.sets)), DRAWS)
        return networks.astype(float), sets.astype(float)

    def cells(self, quantity: str) -> list[dict[str, str]]:
        """List the cells of a quantity on unknown sets."""
        return [row for row in self.rows if row["quantity"] == quantity and row["judged_on"] != "test"]

    def gain(self, quantity: str, value: Callable[[Mapping[str, str]], float | None]) -> Gain:
        """Average a value of the cells: over the cells of a network, then over networks; None leaves a cell out.

        A draw takes networks and unknown sets with replacement. The cells of a network with several sets are weighted
        by how often their sets were drawn.
        """
        network_draws, _ = self.drawn
        means, drawn_means, weights = [], [], []
        for i, network in enumerate(self.networks):
            rows, every_weight = self.weighted_cells(quantity, network)
            found = [value(row) for row in rows]
            kept = [place for place, one in enumerate(found) if one is not None]
            if not kept:
                continue
            own = np.array([found[place] for place in kept], dtype=float)
            weight = every_weight if len(kept) == len(rows) else every_weight[kept]
            total = weight.sum(axis=0)
            drawn = np.divide(own @ weight, total, out=np.zeros(DRAWS), where=total > 0)
            means.append(float(own.mean()))
            drawn_means.append(drawn)
            weights.append(network_draws[:, i] * (total > 0))
        total = np.sum(weights, axis=0)
        drawn = np.sum(np.array(weights) * np.array(drawn_means), axis=0)
        mean = float(np.mean(means))
        return Gain.of_few(mean, np.divide(drawn, total, out=np.full(DRAWS, mean), where=total > 0), len(means))

    def weighted_cells(self, quantity: str, network: str) -> tuple[list[dict[str, str]], Array]:
        """Return the cells of a network, and how often the sets of each are in each draw."""
        key = (quantity, network)
        if key not in self._weighted:
            rows = [row for row in self.cells(quantity) if row["network"] == network]
            self._weighted[key] = rows, np.array([self._weight(row) for row in rows])
        return self._weighted[key]

    @cached_property
    def _weighted(self) -> dict[tuple[str, str], tuple[list[dict[str, str]], Array]]:
        return {}

    def _weight(self, row: Mapping[str, str]) -> Array:
        """Return how often the sets of a cell are in each draw; always once for the only set of a network."""
        _, set_draws = self.drawn
        judged = row["judged_on"]
        if row["chosen_on"] == judged or self._only_set(row["network"]):
            return np.ones(DRAWS)
        if not row["chosen_on"]:
            return set_draws[:, self.sets.index(judged)]
        return set_draws[:, self.sets.index(row["chosen_on"])] * set_draws[:, self.sets.index(judged)]

    def _only_set(self, network: str) -> bool:
        return self.set_counts[network] == 1

    @cached_property
    def set_counts(self) -> dict[str, int]:
        """The number of unknown sets of each network."""
        found: dict[str, set[str]] = {name: set() for name in self.networks}
        for row in self.cells("ds_f1"):
            found[row["network"]].add(row["judged_on"])
        return {name: len(sets) for name, sets in found.items()}

    def over(self, quantity: str, name: str, other: str) -> Gain:
        """Compute how much better one choice of scores is than another; a lower DS-AURC is better."""
        sign = -1.0 if "aurc" in quantity else 1.0

        def better(row: Mapping[str, str]) -> float | None:
            if not row[name] or not row[other]:
                return None
            return sign * (float(row[name]) - float(row[other]))

        return self.gain(quantity, better)

    def regret(self, name: str, modality: str | None = None) -> Regret | None:
        """Compute how often and by how much a choice is worse than msp, on sets that did not choose its thresholds."""
        by_network: dict[str, list[float]] = {}
        for row in self.cells("f1"):
            if row[name] and modality in (None, row["modality"]):
                lost = float(row[BASE]) - float(row[name])
                by_network.setdefault(row["network"], []).append(lost)
        if not by_network:
            return None
        shares, losses = [], []
        for lost in by_network.values():
            shares.append(float(np.mean([one > 0 for one in lost])))
            losses.append(float(np.mean([max(one, 0.0) for one in lost])))
        worst = max(max(lost) for lost in by_network.values())
        return Regret(float(np.mean(shares)), float(np.mean(losses)), max(worst, 0.0), len(by_network))

    # --- rules of choice ---

    @cached_property
    def chosen(self) -> dict[tuple[str, str, str, str], dict[str, float]]:
        """What each rule reaches, by rule, network, choosing and judging set; several splits are averaged."""
        found: dict[tuple[str, str, str, str], dict[str, list[float]]] = {}
        for row in self.choices:
            key = (row["rule"], row["network"], row["chosen_on"], row["judged_on"])
            values = found.setdefault(key, {"f1": [], "ds_f1": [], "ds_aurc": []})
            for name, own in values.items():
                own.append(float(row[name]))
        return {key: {name: float(np.mean(own)) for name, own in values.items()} for key, values in found.items()}

    def rule(self, rule: str) -> Callable[[Mapping[str, str]], float | None]:
        """Return what a rule gains over msp in a cell."""
        fixed = self.best_elsewhere

        def gained(row: Mapping[str, str]) -> float | None:
            base = float(row[BASE])
            if rule in RULES:
                return self.chosen[rule, row["network"], row["chosen_on"], row["judged_on"]]["f1"] - base
            name = fixed[row["network"]] if rule == ELSEWHERE else rule
            return float(row[name]) - base if row[name] else None

        return gained

    @cached_property
    def best_elsewhere(self) -> dict[str, str]:
        """The pair with the best mean F1 on the other networks, for each network; it must have what the pair needs."""
        means = self.mean_f1
        found = {}
        for network in self.networks:
            others = [name for name in self.networks if name != network]
            scores = {}
            for column in self.columns:
                if column not in means[network]:
                    continue
                own = [means[name][column] - means[name][BASE] for name in others if column in means[name]]
                if own:
                    scores[column] = float(np.mean(own))
            found[network] = max(scores, key=scores.__getitem__)
        return found

    @cached_property
    def mean_f1(self) -> dict[str, dict[str, float]]:
        """The mean F1 of each network and choice of scores over its cells."""
        found: dict[str, dict[str, list[float]]] = {name: {} for name in self.networks}
        for row in self.cells("f1"):
            for column in self.columns:
                if row[column]:
                    found[row["network"]].setdefault(column, []).append(float(row[column]))
        return {name: {column: float(np.mean(own)) for column, own in one.items()} for name, one in found.items()}

    # --- the default ---

    @cached_property
    def logits_alone(self) -> list[str]:
        """Scores of logits alone: those of the network without training rows and features."""
        without = next(name for name in self.networks if name.startswith("imagenet"))
        row = next(row for row in self.rows if row["network"] == without and row["quantity"] == "f1")
        return [name for name in self.columns if row[name] and " + " not in name]

    def candidates(self, *, logits: bool, default: str = DEFAULT) -> list[Candidate]:
        """Judge msp with every second score of a kind by the rule of the default, best first."""
        names = []
        for name in self.columns:
            second = name.removeprefix("msp + ")
            if name.startswith("msp + ") and name != default and (second in self.logits_alone) == logits:
                names.append(name)
        gains = {name: self.over("f1", name, default) for name in names}
        lowest = simultaneous_low(list(gains.values()))
        found = []
        for name, low in zip(names, lowest, strict=True):
            over_msp = self.over("f1", name, BASE)
            found.append(Candidate(name, gains[name], low, over_msp, self.larger_regret(name, default)))
        return sorted(found, key=lambda one: -one.gain.value)

    def larger_regret(self, name: str, default: str) -> list[str]:
        """List the modalities in which a pair has a larger mean regret than the default."""
        found = []
        for modality in dict.fromkeys(self.networks.values()):
            own, usual = self.regret(name, modality), self.regret(default, modality)
            if own is not None and usual is not None and own.mean > usual.mean + SLACK:
                found.append(modality)
        return found


def widening(units: int) -> float:
    """Compute by how much draws of a few units are too narrow; one unit has no spread of its own."""
    if units < 2:
        return 1.0
    quantile = (1 + LEVEL) / 2
    return float(np.sqrt(units / (units - 1)) * t.ppf(quantile, units - 1) / norm.ppf(quantile))


ELSEWHERE = "best fixed choice on the other networks"


@dataclass(frozen=True)
class Regret:
    """Hold how a choice of scores compares with msp where it is worse."""

    share: float
    mean: float
    worst: float
    networks: int


@dataclass(frozen=True)
class Candidate:
    """Hold a pair that may become the default: gains over the default and over msp, and where its regret is larger."""

    name: str
    gain: Gain
    low: float  # of the gain, simultaneously over all candidates
    over_msp: Gain
    larger_regret: list[str]

    @property
    def passes(self) -> bool:
        """Whether the pair meets all conditions."""
        return self.low > 0 and self.over_msp.low > 0 and not self.larger_regret


def simultaneous_low(gains: list[Gain]) -> list[float]:
    """Compute lower limits that hold for all gains together: the largest studentised deviation over them decides."""
    draws = np.array([gain.draws for gain in gains])
    values = np.array([gain.value for gain in gains])
    spread = draws.std(axis=1)
    spread[spread == 0] = np.inf
    deviation = np.abs(draws - values[:, None]) / spread[:, None]
    factor = float(np.quantile(deviation.max(axis=0), LEVEL))
    finite = np.where(np.isinf(spread), 0.0, spread)
    return [float(low) for low in values - factor * finite]


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
