"""Statistics of the stratified study on real classifiers: means by distance, gains of projections, cliques."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from intervals import Gain, student
from stratified_cells import ID_SET, PLAIN, Cell, printed_specs
from twofold.bench.clique_maps import CliqueMap, clique_map
from twofold.bench.pools import TABLE_3
from twofold.bench.results import Results

PROJECTED = ("global", "class", "class_pred", "class_avg")
GROUPS = ("id", "near", "mid", "far")


class Study:
    """Hold the cells with the groups of sets, and compute the means that claims are about.

    Parameters
    ----------
    cells : sequence of Cell
        The cells of all networks.
    groups : mapping
        Group of each set, by benchmark and set.
    """

    def __init__(self, cells: Sequence[Cell], groups: Mapping[tuple[str, str], str]) -> None:
        self.cells = list(cells)
        self.groups = groups
        self._by_network: dict[str, list[Cell]] = {}
        for cell in cells:
            self._by_network.setdefault(cell.network, []).append(cell)
        self.networks = list(self._by_network)

    def group(self, cell: Cell) -> str:
        """Look up the group of the set of a cell."""
        return self.groups[cell.benchmark, cell.set]

    # --- difficulty and families ---

    def auroc(self, network: str, group: str, scores: Collection[str] | None = None) -> float:
        """Average the AUROC of plain scores, all unless some are named, over the sets of a group."""
        by_set: dict[str, list[float]] = {}
        for cell in self._by_network[network]:
            if cell.projection != PLAIN or self.group(cell) != group:
                continue
            if scores is None or cell.score in scores:
                by_set.setdefault(cell.set, []).append(cell.auroc)
        return average_sets(by_set)

    def mean_auroc(self, group: str, scores: Collection[str] | None = None) -> float:
        """Average the AUROC of plain scores over networks."""
        return float(np.mean([self.auroc(network, group, scores) for network in self.networks]))

    def step(self, nearer: str, farther: str) -> Gain:
        """Compute how much easier the farther group is."""
        differences = []
        for network in self.networks:
            differences.append(self.auroc(network, farther) - self.auroc(network, nearer))
        return student(differences)

    def lead(self, group: str, ahead: Collection[str], behind: Collection[str]) -> list[float]:
        """Compute the lead of some scores over others in a group, for each network."""
        leads = []
        for network in self.networks:
            leads.append(self.auroc(network, group, ahead) - self.auroc(network, group, behind))
        return leads

    def regrets(self) -> list[float]:
        """Compute for each network how far from the best the most even score is at its worst distance."""
        regrets = []
        for network in self.networks:
            table = self._auroc_table(network)
            behind = table.max(axis=0) - table
            worst = behind.max(axis=1)
            regrets.append(float(worst.min()))
        return regrets

    def _auroc_table(self, network: str) -> np.ndarray:
        """Average AUROC by score, with or without projection, and group."""
        by_score: dict[tuple[str, str], dict[str, list[float]]] = {}
        for cell in self._by_network[network]:
            by_group = by_score.setdefault((cell.score, cell.projection), {})
            by_group.setdefault(self.group(cell), []).append(cell.auroc)
        rows = []
        for by_group in by_score.values():
            rows.append([np.mean(by_group[group]) for group in GROUPS])
        return np.array(rows)

    # --- projections ---

    def gains(self, scores: Collection[str], projection: str, *, on_id: bool = False) -> list[float]:
        """Average the gains of a projection over some scores for each network, on unknown sets or on ID."""
        gains = []
        for network in self.networks:
            by_set: dict[str, list[float]] = {}
            for cell in self._by_network[network]:
                is_wanted = cell.projection == projection and cell.score in scores and (cell.set == ID_SET) == on_id
                if is_wanted and cell.gain is not None:
                    by_set.setdefault(cell.set, []).append(cell.gain)
            gains.append(average_sets(by_set))
        return gains

    # --- cliques ---

    def result_rows(self) -> tuple[dict[str, object], ...]:
        """Write the cells as rows of results, for maps of cliques."""
        specs = printed_specs()
        rows = []
        for cell in self.cells:
            group = self.group(cell)
            shared = {
                "benchmark": cell.benchmark,
                "model": cell.network,
                "run": cell.network,
                "score": specs[cell.score, cell.projection],
                "shift": cell.set,
                "role": "iid" if group == "id" else group,
                "protocol": "stratified",
                "better": "lower",
            }
            rows.append({**shared, "metric": "augrc", "value": cell.augrc})
            rows.append({**shared, "metric": "aurc", "value": cell.aurc})
        return tuple(Results.of(rows).rows)

    def cliques(self) -> tuple[CliqueMap, CliqueMap]:
        """Map the top cliques as printed, and ours."""
        results = Results.of(self.result_rows())
        by = ("benchmark", "role")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            printed = clique_map(results, ("aurc", "augrc"), protocol="stratified", test="rank_z", by=by)
            ours = clique_map(results, "augrc", protocol="stratified", test="conover_t", by=by)
        return printed, ours


def average_sets(by_set: Mapping[str, Sequence[float]]) -> float:
    """Average values over the scores of each set first, then over sets."""
    return float(np.mean([np.mean(values) for values in by_set.values()]))


def plain_titles() -> list[str]:
    """List the scores of Table 3 that have a plain form."""
    return [row.title for row in TABLE_3 if not row.by_kind]


def scores_with(projection: str) -> list[str]:
    """List the scores that have a plain form and a projection."""
    return [score for score, column in projected_pairs() if column == projection]


def projected_pairs() -> list[tuple[str, str]]:
    """List the pairs of score and projection that have a plain form, in the order of the table."""
    pairs = []
    for row in TABLE_3:
        if row.by_kind:
            continue
        for projection in row.projections:
            pairs.append((row.title, projection))
    return pairs


def nth_best(by_score: Mapping[str, Sequence[Gain]], n: int) -> tuple[str, Gain]:
    """Find the n-th best score, each taken with its best projection.

    The lower ends of the intervals are ordered by themselves, and so are the upper ends.

    Parameters
    ----------
    by_score : mapping
        Gains of the projections of each score.
    n : int
        The place, from 1.

    Returns
    -------
    tuple of str and Gain
        The score, and the gain at that place.
    """
    best = {}
    lows, highs = [], []
    for score, gains in by_score.items():
        best[score] = max(gains, key=lambda gain: gain.value)
        lows.append(max(gain.low for gain in gains))
        highs.append(max(gain.high for gain in gains))
    score = sorted(best, key=lambda score: -best[score].value)[n - 1]
    low = sorted(lows, reverse=True)[n - 1]
    high = sorted(highs, reverse=True)[n - 1]
    return score, Gain(best[score].value, low, high, best[score].p)


def clique_sizes(table: CliqueMap) -> dict[str, int]:
    """Count the members of the top clique of each group."""
    return dict(zip(table.columns, table.member.sum(axis=0).tolist(), strict=True))
