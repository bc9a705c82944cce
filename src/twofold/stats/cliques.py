"""Find groups of methods that are not significantly different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold._checks import Array, ArrayLike, Mask, choice, number
from twofold.errors import MissingExtra
from twofold.stats.rank_tests import Friedman, Pairwise, compare, omnibus
from twofold.stats.table import Better, RankedTable, rank_table
from twofold.stats.table_checks import find_doubts, warn_doubts


@dataclass(frozen=True, eq=False)
class Cliques:
    """Hold the groups that :func:`cliques` found.

    Parameters
    ----------
    groups : tuple of tuples of str
        Maximal groups of methods that are not significantly different, best first.
    top : tuple of str
        The best group, ``groups[0]``.
    names : tuple of str
        All methods, in the order of the columns.
    mean_ranks : array of shape (n_methods,)
        Mean rank of every method, 1 the best.
    pairwise : Pairwise
        The pairwise test on which the groups rest.
    friedman : Friedman
        The omnibus test.
    alpha : float
        Level of both tests.
    omnibus : bool
        Whether the omnibus test rejected; if not, there is one group of all methods.

    Examples
    --------
    >>> result = cliques([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]], names="ABC")
    >>> result.top, result.omnibus, result.mean_ranks.round(2)
    (('C', 'B'), True, array([3.  , 1.67, 1.33]))
    """

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
    r"""Find the maximal groups of methods of which no two differ significantly.

    They are the maximal cliques of the indifference graph,

    .. math:: i \sim j \iff \tilde p_{ij} \ge \alpha

    with the Holm-adjusted p of ``test``.

    Parameters
    ----------
    table : array-like of shape (n_blocks, n_methods)
        Results; at least two blocks (rows) and two methods. The columns of a DataFrame name the methods.
    test : {"conover_t", "conover_holm", "rank_z", "wilcoxon"}, default="conover_t"
        The pairwise test; ``conover_holm`` is another name of ``conover_t``. Choose ``wilcoxon`` where the pool holds
        many weak methods.
    alpha : float, default=0.05
        Level of the omnibus and the pairwise tests, between 0 and 1 (both excluded).
    better : {"higher", "lower"}, default="higher"
        Which values are better.
    names : sequence of str, optional
        Names of the methods. By default the columns of a DataFrame, or 0, 1, ...

    Returns
    -------
    Cliques
        The groups, best first, and the tests behind them.

    Raises
    ------
    InvalidInput
        If the table is too small, holds NaN or infinities, names do not fit, or a setting is out of range.
    MissingExtra
        If ``test="wilcoxon"`` and networkx is not installed (``pip install "twofold[stats]"``).

    Notes
    -----
    If the omnibus test (Friedman's exact test in small tables, else Iman and Davenport's F) does not reject at
    ``alpha``, there is one group of all methods, and ``omnibus`` is False. Groups are ordered by their best mean rank,
    then the lower mean of mean ranks, then the larger group, then names; ``top`` is the first. Inside a group methods
    are ordered by mean rank, then name. A ``DoubtfulTable`` warning says where the table violates the assumptions of
    the test.

    ``conover_t`` and ``rank_z`` share one standard error, so p falls with the gap in mean rank and Holm keeps that
    order: the graph is a unit-interval graph, its maximal cliques are runs in the order of mean ranks, and the top
    group is "the best, and everything not different from it". ``wilcoxon`` has no such order; its cliques are listed by
    networkx, and the top is unique only by the rules above.

    Examples
    --------
    >>> table = [[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]]
    >>> result = cliques(table, names=["A", "B", "C"])
    >>> result.groups, result.top
    ((('C', 'B'), ('A',)), ('C', 'B'))
    """
    kind = choice(test, "test", ("conover_t", "conover_holm", "rank_z", "wilcoxon"))
    if kind == "conover_holm":
        kind = "conover_t"
    alpha = number(alpha, "alpha", 0, 1, open_low=True, open_high=True)
    if kind == "wilcoxon":
        _import_networkx()  # before the tests, which take longer
    data = rank_table(table, better, names)
    overall, pairs = omnibus(data), compare(kind, data)
    rejected = overall.decisive_p < alpha
    order = sorted(range(len(data.names)), key=lambda j: (data.sums[j], data.names[j]))
    if not rejected:
        found = [order]
    elif kind == "wilcoxon":
        found = list_cliques(pairs.p >= alpha, order)
    else:
        found = runs(pairs.p >= alpha, order)

    def quality(group: list[int]) -> tuple[float, float, int, tuple[str, ...]]:
        mean = round(float(data.mean_ranks[group].mean()), 12)
        return data.mean_ranks[group[0]], mean, -len(group), _names(data, group)

    ordered = [sorted(group, key=order.index) for group in found]
    groups = tuple(_names(data, group) for group in sorted(ordered, key=quality))
    warn_doubts(find_doubts(data, weak=kind == "conover_t"))
    return Cliques(groups, groups[0], data.names, data.mean_ranks, pairs, overall, alpha, rejected)


def _names(data: RankedTable, group: Sequence[int]) -> tuple[str, ...]:
    return tuple(data.names[j] for j in group)


def runs(alike: Mask, order: Sequence[int]) -> list[list[int]]:
    """List the maximal cliques of a unit-interval graph: from each method the furthest run not inside an earlier one.

    Parameters
    ----------
    alike : array of bool, shape (n_methods, n_methods)
        Whether two methods are joined by an edge.
    order : sequence of int
        The methods in the order of mean ranks, best first.

    Returns
    -------
    list of list of int
        The cliques, each in ``order``.

    Examples
    --------
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
    """List the maximal cliques of any graph, by Bron and Kerbosch's algorithm with pivots.

    Parameters
    ----------
    alike : array of bool, shape (n_methods, n_methods)
        Whether two methods are joined by an edge; symmetric.
    order : sequence of int
        The methods.

    Returns
    -------
    list of list of int
        The cliques, in no particular order.

    Raises
    ------
    MissingExtra
        If networkx is not installed.
    """
    networkx = _import_networkx()
    graph = networkx.Graph()
    graph.add_nodes_from(order)
    graph.add_edges_from(np.argwhere(np.triu(alike, 1)).tolist())
    return list(map(list, networkx.find_cliques(graph)))


def _import_networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise MissingExtra('cliques with test="wilcoxon" need networkx: pip install "twofold[stats]"') from error
    return networkx
