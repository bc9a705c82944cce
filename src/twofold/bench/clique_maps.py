"""Maps of leading methods: the top clique of every group of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from twofold._checks import Mask, as_names, choice, number
from twofold.bench.blocks import (
    Block,
    BlockTable,
    Dropped,
    check_block_columns,
    constant_columns,
    format_label,
    join_metrics,
    sort_key,
)
from twofold.bench.compare import TESTS, Comparison, compare_blocks
from twofold.bench.results import Results
from twofold.errors import InvalidInput, TooFewBlocks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import CliqueDisplay
    from twofold.plot.themes import ThemeName

GROUP = ("benchmark", "model", "role")  # a column of the map: source, backbone, distance
ROLES_BY_DISTANCE = ("iid", "shift", "corruption", "near", "mid", "far", "new")


@dataclass(frozen=True, eq=False)
class CliqueMap:
    """Hold which methods are in the top clique of which group of blocks.

    Methods that lead in most of the groups whose Friedman test rejects come first.

    Parameters
    ----------
    metric : str
        The metric compared by.
    protocol : str or None
        The protocol it was measured under.
    test : str
        Test of pairs.
    alpha : float
        Level of the tests.
    rows : tuple of str
        Methods.
    columns : tuple of str
        Groups of blocks.
    member : ndarray of bool, shape (n_methods, n_groups)
        Whether the method is in the top clique of the group.
    judged : ndarray of bool, shape (n_methods, n_groups)
        Whether the method was compared in the group.
    blocks : tuple of int
        Number of blocks of each group.
    omnibus : tuple of bool
        Whether Friedman's test rejects in each group; where it does not, all methods of the group are one clique.
    dropped : tuple of Dropped, default=()
        What was left out.
    """

    metric: str
    protocol: str | None
    test: str
    alpha: float
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    member: Mask
    judged: Mask
    blocks: tuple[int, ...]
    omnibus: tuple[bool, ...]
    dropped: tuple[Dropped, ...] = ()

    @property
    def dropped_groups(self) -> tuple[Dropped, ...]:
        """The groups that could not be compared, with the reason.

        Returns
        -------
        tuple of Dropped
            Those of kind ``"group"``.
        """
        return _select_groups(self.dropped)

    def plot(self, ax: Axes | None = None, *, theme: ThemeName | None = None) -> CliqueDisplay:
        """Draw a dot where a method is in the top clique of a group.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        CliqueDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import CliqueDisplay

        return CliqueDisplay.from_map(self).plot(ax, theme=theme)

    def to_dict(self) -> dict[str, object]:
        """Convert the map to plain values for JSON.

        Returns
        -------
        dict
            Settings, methods, and the top clique of each group.
        """
        groups = []
        for j, name in enumerate(self.columns):
            top = [self.rows[i] for i in np.flatnonzero(self.member[:, j])]
            groups.append({"name": name, "blocks": self.blocks[j], "rejected": self.omnibus[j], "top": top})
        return {
            "metric": self.metric,
            "protocol": self.protocol,
            "test": self.test,
            "alpha": self.alpha,
            "methods": list(self.rows),
            "groups": groups,
            "dropped": [one.to_dict() for one in self.dropped],
        }


def clique_map(
    results: Results,
    metric: str | Sequence[str],
    *,
    protocol: str | None = None,
    test: str = "conover_t",
    alpha: float = 0.05,
    by: Sequence[str] = GROUP,
) -> CliqueMap:
    """Find the top clique of every group of blocks: which methods lead on which source, at which distance.

    Each group is a separate comparison, with Friedman's test, the pairwise ``test`` and cliques, so a method may be
    compared in one group and lack values in another. The blocks of a group are its data sets, recipes, seeds and runs.

    Parameters
    ----------
    results : Results
        Rows of one or more benchmarks.
    metric : str or sequence of str
        Name of the metric to compare by, such as ``"aurc"``. Of several, each is a block of its own, as in the paper.
    protocol : str, optional
        Needed where several protocols have the metric.
    test : {"conover_t", "rank_z", "wilcoxon"}, default="conover_t"
        Test of pairs. The paper's test is ``rank_z``.
    alpha : float, default=0.05
        Level of the tests.
    by : sequence of str, default=("benchmark", "model", "role")
        Columns whose combinations are the groups; roles are iid, near, mid, far and so on.

    Returns
    -------
    CliqueMap
        Methods by groups. A group with too few blocks for its methods (:func:`twofold.stats.required_blocks`) is not in
        the map, and ``dropped_groups`` names it.

    Raises
    ------
    TooFewBlocks
        If no group has enough methods and blocks.
    InvalidInput
        If the test or level is invalid, or the metric has no rows to compare.
    UnknownName
        If a column or the metric is unknown.

    Notes
    -----
    The paper counts AURC and AUGRC of one data set as two blocks. The two hardly differ, so p-values come out far too
    small; a map of one metric has honest ones.

    References
    ----------
    Claros Olivares & Brockmeier, A Systematic Analysis of Out-of-Distribution Detection Under Representation and
    Training Paradigm Shifts, Figure 1 and Appendix C.

    Examples
    --------
    >>> rows = [{"score": s, "shift": f"{role}{i}", "role": role, "metric": "aurc", "value": v + 0.01 * i}
    ...         for s, v in [("msp", 0.2), ("knn", 0.1)] for role in ("near", "far") for i in range(6)]
    >>> found = clique_map(Results.of(rows), "aurc")
    >>> found.columns, found.rows, found.member.tolist()
    (('near', 'far'), ('knn', 'msp'), [[True, True], [False, False]])
    """
    choice(test, "test", TESTS)
    number(alpha, "alpha", 0, 1, open_low=True, open_high=True)
    table = join_metrics(results, as_names(metric), protocol)
    comparisons: dict[str, Comparison] = {}
    dropped = list(table.dropped)
    for label, part in _split_groups(table, check_block_columns(by, "by")).items():
        try:
            comparison = compare_blocks(part, test, alpha)
        except InvalidInput as error:
            dropped.append(Dropped("group", label, str(error)))
            continue
        comparisons[label] = comparison
        dropped += [Dropped(one.kind, f"{one.name} in {label}", one.reason) for one in comparison.dropped]
    if not comparisons:
        reasons = "; ".join(map(str, _select_groups(dropped)))
        raise TooFewBlocks(f"no group has enough methods and blocks to be compared: {reasons}")
    return _draw_map(table, comparisons, dropped)


def _select_groups(dropped: Iterable[Dropped]) -> tuple[Dropped, ...]:
    return tuple(one for one in dropped if one.kind == "group")


def _split_groups(table: BlockTable, columns: Sequence[str]) -> dict[str, BlockTable]:
    """Make a table of each group of blocks, by its label, roles from the known test set to far."""
    blocks = sorted(table.rows, key=sort_key)
    groups = table.group(blocks, columns)
    hidden = constant_columns(groups, columns)
    if len(hidden) == len(columns):
        hidden = frozenset()
    parts = {}
    for group in sorted(groups, key=lambda group: _distance_key(group, columns)):
        rows = {blocks[i]: table.rows[blocks[i]] for i in groups[group]}
        parts[format_label(group, columns, hidden)] = replace(table, rows=rows, dropped=())
    return parts


def _distance_key(group: Block, columns: Sequence[str]) -> tuple[object, ...]:
    """Make a key that sorts groups by their columns, roles from the known test set to far."""
    key: list[object] = []
    for column, value in zip(columns, group, strict=True):
        if column != "role":
            key += sort_key((value,))
        elif value in ROLES_BY_DISTANCE:
            key.append((ROLES_BY_DISTANCE.index(str(value)), str(value)))
        else:
            key.append((len(ROLES_BY_DISTANCE), str(value)))
    return tuple(key)


def _draw_map(table: BlockTable, comparisons: Mapping[str, Comparison], dropped: Sequence[Dropped]) -> CliqueMap:
    """Lay out the comparisons of all groups as methods by groups."""
    found = list(comparisons.values())
    compared: set[str] = set()
    for comparison in found:
        compared.update(comparison.methods)
    methods = sorted(compared, key=lambda name: _standing(name, found))
    shape = len(methods), len(found)
    member, judged = np.zeros(shape, bool), np.zeros(shape, bool)
    for i, name in enumerate(methods):
        for j, comparison in enumerate(found):
            member[i, j] = name in comparison.top
            judged[i, j] = name in comparison.methods
    return CliqueMap(
        metric=table.metric,
        protocol=table.protocol,
        test=found[0].test,
        alpha=found[0].alpha,
        rows=tuple(methods),
        columns=tuple(comparisons),
        member=member,
        judged=judged,
        blocks=tuple(len(comparison.blocks) for comparison in found),
        omnibus=tuple(comparison.omnibus for comparison in found),
        dropped=tuple(dropped),
    )


def _standing(name: str, comparisons: Sequence[Comparison]) -> tuple[int, float, str]:
    """Make a key that sorts by most groups led, of those with significant differences, then by relative mean rank."""
    led = 0
    relative_ranks = []
    for comparison in comparisons:
        if name in comparison.methods:
            led += comparison.omnibus and name in comparison.top
            rank = float(comparison.mean_ranks[comparison.methods.index(name)])
            relative_ranks.append(rank / len(comparison.methods))
    return -led, round(float(np.mean(relative_ranks)), 12), name
