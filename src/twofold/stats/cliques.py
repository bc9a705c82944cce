"""Groups of methods that the data cannot tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold._checks import Array, ArrayLike, Mask, choice, number
from twofold.errors import MissingExtra
from twofold.stats.doubts import doubts, voice
from twofold.stats.table import Better, ranked
from twofold.stats.tests import Friedman, Pairwise, compare, omnibus


@dataclass(frozen=True, eq=False)
class Cliques:
    """What :func:`cliques` found: maximal groups, best first; ``omnibus``: did Friedman's test reject?"""

    groups: tuple[tuple[str, ...], ...]
    top: tuple[str, ...]
    names: tuple[str, ...]
    mean_ranks: Array
    pairwise: Pairwise
    friedman: Friedman
    alpha: float
    omnibus: bool


def cliques(
    table: ArrayLike,
    *,
    test: str = "conover_t",
    alpha: float = 0.05,
    better: Better = "higher",
    names: Sequence[str] | None = None,
) -> Cliques:
    r"""Maximal groups of methods no two of which differ: maximal cliques of the indifference graph.

    .. math:: i \sim j \iff \tilde p_{ij} \ge \alpha

    with the Holm-adjusted p of ``test``: ``conover_t`` (or ``conover_holm``), ``rank_z`` or ``wilcoxon``. If
    the omnibus test (Friedman's exact test in small tables, else Iman and Davenport's F) does not reject at
    ``alpha`` there is one group of all methods, and ``omnibus`` is False. Groups are ordered by their best mean
    rank, then the lower mean of mean ranks, then the larger group, then names; ``top`` is the first. Inside a
    group methods go by mean rank, then name.

    ``conover_t`` and ``rank_z`` share one standard error, so p falls with the gap in mean rank and Holm keeps
    that order: the graph is a unit-interval graph, its maximal cliques are runs in the order of mean ranks,
    and the top group is "the best, and everything not different from it". ``wilcoxon`` has no such order; its
    cliques are listed by networkx (``pip install "twofold[stats]"``), and the top is unique only by the rules
    above.

    >>> table = [[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]]
    >>> result = cliques(table, names=["A", "B", "C"])
    >>> result.groups, result.top
    ((('C', 'B'), ('A',)), ('C', 'B'))
    """
    kind = choice(test, "test", ("conover_t", "conover_holm", "rank_z", "wilcoxon"))
    kind = "conover_t" if kind == "conover_holm" else kind
    alpha = number(alpha, "alpha", 0, 1, open_low=True, open_high=True)
    search = list_cliques if kind == "wilcoxon" else runs
    if kind == "wilcoxon":
        _networkx()
    data = ranked(table, better, names)
    overall, pairs = omnibus(data), compare(kind, data)
    rejected = overall.decisive_p < alpha
    alike = pairs.p >= alpha if rejected else np.ones_like(pairs.p, dtype=bool)
    order = sorted(range(len(data.names)), key=lambda j: (data.sums[j], data.names[j]))
    place = {j: position for position, j in enumerate(order)}
    found = [sorted(group, key=place.__getitem__) for group in (search if rejected else runs)(alike, order)]

    def quality(group: list[int]) -> tuple[float, float, int, tuple[str, ...]]:
        mean = round(float(data.mean_ranks[group].mean()), 12)
        return data.mean_ranks[group[0]], mean, -len(group), tuple(data.names[j] for j in group)

    groups = tuple(tuple(data.names[j] for j in group) for group in sorted(found, key=quality))
    voice(doubts(data, weak=kind == "conover_t"))
    return Cliques(groups, groups[0], data.names, data.mean_ranks, pairs, overall, alpha, rejected)


def runs(alike: Mask, order: Sequence[int]) -> list[list[int]]:
    """Maximal cliques of a unit-interval graph: from each method the furthest run not inside an earlier one.

    >>> runs(np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool), [0, 1, 2])
    [[0, 1], [1, 2]]
    """
    found, reached = [], 0
    for start, method in enumerate(order):
        end = start + 1
        while end < len(order) and alike[method, order[end]]:
            end += 1
        if end > reached:
            found.append(list(order[start:end]))
            reached = end
    return found


def list_cliques(alike: Mask, order: Sequence[int]) -> list[list[int]]:
    """Maximal cliques of any graph, by Bron and Kerbosch's algorithm with pivots."""
    networkx = _networkx()
    graph = networkx.Graph()
    graph.add_nodes_from(order)
    graph.add_edges_from((int(i), int(j)) for i, j in np.argwhere(np.triu(alike, 1)))
    return [list(group) for group in networkx.find_cliques(graph)]


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise MissingExtra('cliques with test="wilcoxon" need networkx: pip install "twofold[stats]"') from error
    return networkx
