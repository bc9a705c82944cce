"""Comparison of methods over many results: ranks, rank tests, cliques and paired differences, with their caveats.

A method is a score or a pair of scores, a block is one data set under one model. Only complete tables are compared;
what is left out is named. Rank tests take blocks to be independent, which the shifts of one model are not: the
comparison says how many models there are, and ``blocks`` averages what belongs together.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from twofold._checks import Array, choice, number
from twofold._json import finite_or_none
from twofold._notebook import NotebookTable, card
from twofold.bench.blocks import (
    MODEL,
    BlockTable,
    CompleteBlocks,
    Dropped,
    check_block_columns,
    constant_columns,
    drop_incomplete,
    format_label,
    tabulate_blocks,
)
from twofold.bench.differences import Difference, block_weights, paired_differences
from twofold.bench.results import Results
from twofold.bench.text import count, coverage_of, decimals, scale, title
from twofold.errors import DoubtfulTable, InvalidInput, TooFewBlocks
from twofold.stats.cliques import Cliques, cliques
from twofold.stats.exact import LEAST_BLOCKS, least_friedman_p, required_blocks
from twofold.stats.rank_tests import Friedman
from twofold.stats.table import Better, rank_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import RankDisplay
    from twofold.plot.themes import ThemeName

TESTS = ("conover_t", "rank_z", "wilcoxon")
FEW = 10  # blocks up to which the reference distributions of rank tests are rough (Demšar 2006, section 3.2.2)
DROPPED_SHOWN = 10  # lines about what was left out in the text of a comparison


@dataclass(frozen=True, eq=False)
class Comparison:
    """Hold what :func:`compare` found.

    Methods are in order of ``mean_ranks``, and so are the columns of all arrays.

    Parameters
    ----------
    metric : str
        The metric compared by.
    protocol : str or None
        The protocol it was measured under.
    better : {"higher", "lower"}
        Direction in which values get better.
    test : str
        Test of pairs.
    alpha : float
        Level of the tests; intervals of ``differences`` have level 1 - ``alpha``.
    methods : tuple of str
        The k methods, best first.
    blocks : tuple of str
        Labels of the N blocks.
    values : ndarray of shape (N, k)
        The table that was ranked.
    mean_ranks : ndarray of shape (k,)
        Mean rank over the blocks, 1 for the best.
    friedman : Friedman
        Friedman's test.
    omnibus : bool
        Whether Friedman's test rejects.
    p : ndarray of shape (k, k)
        Holm-adjusted p-values of pairs.
    cliques : tuple of tuple of str
        Maximal groups of methods no two of which differ, best first; one of all methods where Friedman's test does not
        reject.
    differences : mapping of str to Difference
        Differences from the best method, by method, where there are paired replicates.
    models : int
        Number of trained networks the blocks come from.
    dropped : tuple of Dropped, default=()
        What was left out.
    warnings : tuple of str, default=()
        Reasons to doubt the p-values.
    """

    metric: str
    protocol: str | None
    better: Better
    test: str
    alpha: float
    methods: tuple[str, ...]
    blocks: tuple[str, ...]
    values: Array
    mean_ranks: Array
    friedman: Friedman
    omnibus: bool
    p: Array
    cliques: tuple[tuple[str, ...], ...]
    differences: Mapping[str, Difference]
    models: int
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def top(self) -> tuple[str, ...]:
        """The first clique: the best method and those statistically tied with it."""
        return self.cliques[0]

    @property
    def means(self) -> Array:
        """Mean value of each method over the blocks.

        Returns
        -------
        ndarray of shape (k,)
            In the order of ``methods``.
        """
        return np.asarray(self.values.mean(axis=0))

    def plot(self, ax: Axes | None = None, *, theme: ThemeName | None = None) -> RankDisplay:
        """Draw mean ranks, with bars that join statistically tied methods.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        RankDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import RankDisplay

        return RankDisplay.from_comparison(self).plot(ax, theme=theme)

    def to_dict(self) -> dict[str, object]:
        """Convert the comparison to plain values for JSON.

        Returns
        -------
        dict
            All fields; an infinite F statistic (all blocks agree) becomes None.
        """
        return {
            "metric": self.metric,
            "protocol": self.protocol,
            "better": self.better,
            "test": self.test,
            "alpha": self.alpha,
            "blocks": list(self.blocks),
            "models": self.models,
            "friedman": self._friedman_dict(),
            "methods": list(map(self._method_dict, range(len(self.methods)))),
            "p": self.p.tolist(),
            "cliques": list(map(list, self.cliques)),
            "top": list(self.top),
            "dropped": [one.to_dict() for one in self.dropped],
            "warnings": list(self.warnings),
        }

    def _friedman_dict(self) -> dict[str, object]:
        test = self.friedman
        return {
            "statistic": test.statistic,
            "p": test.p,
            "f": finite_or_none(test.f),
            "f_p": test.f_p,
            "exact_p": test.exact_p,
            "least_p": test.least_p,
            "df": list(test.df),
            "rejected": self.omnibus,
        }

    def _method_dict(self, j: int) -> dict[str, object]:
        name = self.methods[j]
        difference = self.differences.get(name)
        return {
            "name": name,
            "mean_rank": float(self.mean_ranks[j]),
            "mean": float(self.means[j]),
            "p_to_best": float(self.p[0, j]),
            "top": name in self.top,
            "difference": None if difference is None else difference.to_dict(),
        }

    def __repr__(self) -> str:
        size = f"{len(self.methods)} methods, {count(len(self.blocks), 'block')}"
        return f"Comparison({self.metric}: {size}; {self.methods[0]!r} first, {len(self.top)} in the top clique)"

    def _repr_html_(self) -> str:
        heading, *lines = self._format_methods()
        notes = [_format_friedman(self.friedman), self._describe_pairwise_test()]
        notes += [f"warning: {warning}" for warning in self.warnings]
        if self.dropped:
            notes.append(f"left out: {len(self.dropped)}; print the comparison for the reasons")
        return card(self._heading(), None, NotebookTable(heading, lines), notes)

    def __str__(self) -> str:
        lines = [self._heading(), _format_friedman(self.friedman), self._describe_pairwise_test(), ""]
        lines += _align_columns(self._format_methods())
        if self.warnings:
            lines.append("")
        for warning in self.warnings:
            lines.append(f"warning: {warning}")
        if self.dropped:
            lines.append("")
        for dropped in self.dropped[:DROPPED_SHOWN]:
            lines.append(f"left out: {dropped}")
        if len(self.dropped) > DROPPED_SHOWN:
            lines.append(f"left out: {len(self.dropped) - DROPPED_SHOWN} more")
        return "\n".join(lines)

    def _heading(self) -> str:
        heading = title(self.metric)
        if self.protocol is not None:
            heading += f" under {self.protocol}"
        direction = f"{self.better} is better{coverage_of(self.metric, self.protocol)}"
        size = f"{len(self.methods)} methods, {count(len(self.blocks), 'block')}, {count(self.models, 'model')}"
        return f"{heading}, {direction}: {size}"

    def _describe_pairwise_test(self) -> str:
        if self.omnibus:
            outcome = f"{count(len(self.top), 'method')} in the top clique (*)"
        else:
            outcome = "not run, since Friedman's test does not reject; all methods are one clique (*)"
        return f"{self.test} with Holm's correction at {self.alpha:g}: {outcome}"

    def _format_methods(self) -> list[list[str]]:
        """Build the table, heading first, with one line per method."""
        factor, _ = scale(self.metric)
        digits = decimals(self.metric)
        lines = [["rank", "", "method", "mean", "p to best"]]
        for j, name in enumerate(self.methods):
            star = ""
            if name in self.top:
                star = "*"
            mean = f"{factor * self.means[j]:.{digits}f}"
            p = _format_p(float(self.p[0, j]))
            lines.append([f"{self.mean_ranks[j]:.2f}", star, name, mean, p])
        lines[1][-1] = ""  # the best is not compared with itself
        if self.differences:
            lines[0].append(f"difference from the best, {1 - self.alpha:.0%} interval")
            for line, name in zip(lines[1:], self.methods, strict=True):
                line.append(_format_difference(self.differences.get(name), factor, digits))
        return lines


def _format_p(p: float) -> str:
    if p < 1e-4:
        return "<0.0001"
    return f"{p:.4f}"


def _format_difference(difference: Difference | None, factor: int, digits: int) -> str:
    if difference is None:
        return ""
    value = f"{factor * difference.value:+.{digits}f}"
    low = f"{factor * difference.low:+.{digits}f}"
    high = f"{factor * difference.high:+.{digits}f}"
    text = f"{value} [{low}, {high}]"
    if difference.blocks < difference.of:
        text += f", {difference.blocks} of {difference.of} blocks"
    return text


def _format_friedman(test: Friedman) -> str:
    """Format Friedman's test; a p-value that cannot be smaller is marked as such."""
    parts = [
        f"chi2({test.df[0]}) = {test.statistic:.4g}, p = {test.p:.2g}",
        f"F{test.df} = {test.f:.4g}, p = {test.f_p:.2g}",
    ]
    if test.exact_p is not None:
        parts.append(f"exact p = {test.exact_p:.2g}")
    line = "Friedman: " + "; ".join(parts)
    if test.decisive_p <= test.least_p * (1 + 1e-9):
        line += f" (the smallest attainable with {count(test.blocks, 'block')})"
    return line


def _align_columns(lines: Sequence[Sequence[str]]) -> list[str]:
    """Pad columns to one width; text to the left, numbers to the right."""
    text_columns = (1, 2, 5)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = []
    for line in lines:
        cells = []
        for i, (cell, width) in enumerate(zip(line, widths, strict=True)):
            if i in text_columns:
                cells.append(cell.ljust(width))
            else:
                cells.append(cell.rjust(width))
        aligned.append("  ".join(cells).rstrip())
    return aligned


def compare(
    results: Results,
    metric: str,
    *,
    protocol: str | None = None,
    test: str = "conover_t",
    alpha: float = 0.05,
    blocks: Sequence[str] | None = None,
) -> Comparison:
    r"""Rank methods over blocks, ask whether they differ at all, and which are statistically tied with the best.

    Friedman's test over the blocks, then the Holm-adjusted pairwise ``test`` (:func:`~twofold.stats.conover_t`,
    :func:`~twofold.stats.rank_z` or :func:`~twofold.stats.wilcoxon`), then maximal cliques of methods that do not
    differ (:func:`~twofold.stats.cliques`). Beside the ranks, where paired bootstrap replicates are in the results, the
    difference from the best method b over the blocks i, with the quantiles of its replicates r (other test samples, the
    same models):

    .. math:: d_{j} = \frac{1}{N} \sum_i (v_{ij} - v_{ib}), \quad
              d_{j}^{(r)} = \frac{1}{N} \sum_i (v_{ij}^{(r)} - v_{ib}^{(r)})

    A block is a combination of benchmark, model, recipe, seed, run and shift; with ``blocks``, of the columns that are
    given, and values that share a block are averaged: ``blocks=("benchmark", "model", "recipe", "seed", "run")`` makes
    one block of each trained network, ``blocks=("benchmark", "shift")`` one of each data set. Validation data are no
    blocks, nor are averages and pools beside their members (see :func:`~twofold.bench.results.finest`). While a value
    is missing, the method or block with the largest share of missing values is left out, and named in ``dropped``.

    Parameters
    ----------
    results : Results
        Rows of one or more benchmarks.
    metric : str
        Name of the metric to compare by, such as ``"aurc"``.
    protocol : str, optional
        Needed where several protocols have the metric.
    test : {"conover_t", "rank_z", "wilcoxon"}, default="conover_t"
        Test of pairs.
    alpha : float, default=0.05
        Level of the tests.
    blocks : sequence of str, optional
        Columns that define blocks; values that share a block are averaged.

    Returns
    -------
    Comparison
        Ranks, tests, cliques, differences from the best, and what was left out.

    Raises
    ------
    TooFewBlocks
        If there are so few blocks that no outcome could be significant: fewer than
        :func:`twofold.stats.required_blocks` says. Those are 6 for two methods, 4 for three and 3 for more at the
        usual level, and for ``wilcoxon`` more.
    InvalidInput
        If fewer than two methods or two blocks remain without gaps, or a name is unknown.

    Examples
    --------
    >>> rows = [{"score": s, "shift": d, "metric": "aurc", "value": v + 0.01 * i}
    ...         for s, v in [("msp", 0.2), ("knn", 0.1), ("mds", 0.3)] for i, d in enumerate("abcd")]
    >>> found = compare(Results.of(rows), "aurc")
    >>> found.methods, found.mean_ranks.tolist(), found.top
    (('knn', 'msp', 'mds'), [1.0, 2.0, 3.0], ('knn',))
    """
    return compare_blocks(tabulate_blocks(results, metric, protocol), test, alpha, blocks)


def compare_blocks(table: BlockTable, test: str, alpha: float, columns: Sequence[str] | None = None) -> Comparison:
    """Compare the methods of a table.

    Parameters
    ----------
    table : BlockTable
        Rows of one metric by block and method.
    test : {"conover_t", "rank_z", "wilcoxon"}
        Test of pairs.
    alpha : float
        Level of the tests.
    columns : sequence of str, optional
        Columns that define blocks; values that share a block are averaged.

    Returns
    -------
    Comparison
        Ranks, tests, cliques, differences from the best, and what was left out.

    Raises
    ------
    TooFewBlocks
        If there are so few blocks that no outcome could be significant.
    InvalidInput
        If fewer than two methods or two blocks remain without gaps, or a setting is invalid.
    """
    choice(test, "test", TESTS)
    alpha = number(alpha, "alpha", 0, 1, open_low=True, open_high=True)
    block_columns = check_block_columns(columns, "blocks")
    complete = drop_incomplete(table)
    groups = table.group(complete.blocks, block_columns)
    _check_size(table, complete, len(groups))
    check_blocks(len(groups), len(complete.methods), test, alpha)
    fine_values = table.values(complete.blocks, complete.methods)
    values = np.stack([fine_values[members].mean(axis=0) for members in groups.values()])  # equal columns stay equal
    mean_ranks = rank_table(values, table.better, complete.methods).mean_ranks
    order = np.argsort(mean_ranks, kind="stable")
    methods = tuple(complete.methods[j] for j in order)
    values = np.ascontiguousarray(values[:, order])
    found, doubts = _find_cliques(values, methods, test, alpha, table.better)
    weights = block_weights(groups, len(complete.blocks))
    differences = paired_differences(table, complete.blocks, methods, weights, alpha)
    models = len({block[: len(MODEL)] for block in complete.blocks})
    hidden = constant_columns(groups, block_columns) - {"shift"}
    return Comparison(
        metric=table.metric,
        protocol=table.protocol,
        better=table.better,
        test=test,
        alpha=alpha,
        methods=methods,
        blocks=tuple(format_label(group, block_columns, hidden) for group in groups),
        values=values,
        mean_ranks=found.mean_ranks,
        friedman=found.friedman,
        omnibus=found.omnibus,
        p=found.pairwise.p,
        cliques=found.groups,
        differences=MappingProxyType(differences),
        models=models,
        dropped=(*table.dropped, *complete.dropped),
        warnings=(*_list_doubts(values, methods, models), *doubts, *_list_unpaired(methods, differences)),
    )


def _check_size(table: BlockTable, complete: CompleteBlocks, n_blocks: int) -> None:
    n_methods = len(complete.methods)
    if n_methods >= 2 and n_blocks >= 2:
        return
    lost = ""
    if complete.dropped:
        lost = f" ({'; '.join(map(str, complete.dropped[:3]))})"
    raise InvalidInput(
        f"a comparison needs at least 2 methods and 2 blocks; {table.metric} has {count(n_methods, 'method')} "
        f"and {count(n_blocks, 'block')} without gaps{lost}; pivot() shows what there is"
    )


def _find_cliques(
    values: Array, methods: Sequence[str], test: str, alpha: float, better: Better
) -> tuple[Cliques, list[str]]:
    """Find cliques, and the reasons to doubt the table that would otherwise be warnings of Python."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = cliques(values, test=test, alpha=alpha, better=better, names=methods)
    return found, [str(one.message) for one in caught if issubclass(one.category, DoubtfulTable)]


def check_blocks(blocks: int, methods: int, test: str, alpha: float) -> None:
    """Reject a comparison of so few blocks that a significant outcome is impossible or means nothing.

    Parameters
    ----------
    blocks, methods : int
        Size of the table.
    test : str
        Test of pairs: ``conover_t``, ``rank_z`` or ``wilcoxon``.
    alpha : float
        Level of the tests.

    Raises
    ------
    TooFewBlocks
        If there are fewer blocks than :func:`twofold.stats.required_blocks` says.
    """
    needed = required_blocks(methods, test=test, alpha=alpha)
    if blocks >= needed:
        return
    agreeing = np.tile(np.arange(1.0, methods + 1), (blocks, 1))
    least_p = least_friedman_p(agreeing)
    if least_p >= alpha:
        reason = f"the smallest p-value of Friedman's test on {blocks} blocks is {least_p:.2g}"
    elif blocks < LEAST_BLOCKS:
        reason = f"{blocks} blocks only show how alike they rank the methods"
    else:
        reason = f"the smallest adjusted p-value of a pair in {blocks} blocks is {alpha:g} or more"
    raise TooFewBlocks(
        f"{methods} methods cannot be compared over {blocks} blocks: {test} at {alpha:g} needs at least {needed}, "
        f"since {reason}; add data sets or runs"
    )


# --- caveats --------------------------------------------------------------------------------------------------------


def _list_unpaired(methods: Sequence[str], differences: Mapping[str, Difference]) -> list[str]:
    """Write a sentence where only some methods have paired differences."""
    unpaired = [name for name in methods[1:] if name not in differences]
    if not differences or not unpaired:
        return []
    return [f"no paired replicates for {_list_names(unpaired)}: their differences from {methods[0]} have no interval"]


def _list_doubts(values: Array, methods: Sequence[str], models: int) -> list[str]:
    """List the reasons to doubt the p-values."""
    n_blocks, n_methods = values.shape
    doubts = []
    if models < n_blocks:
        doubts.append(
            f"{n_blocks} blocks come from {count(models, 'model')}: shifts that share a known test set and a model are "
            'not independent, so p-values are too small; blocks=("benchmark", "model", "recipe", "seed", "run") makes '
            "one block a model"
        )
    if n_blocks <= FEW:
        doubts.append(
            f"only {count(n_blocks, 'block')}: p-values of pairs are rough up to {FEW} (Demšar 2006), and differences "
            "are easily missed"
        )
    tied_blocks = sum(len(np.unique(row)) < n_methods for row in values)
    if tied_blocks:
        doubt = f"{tied_blocks} of {count(n_blocks, 'block')} have ties, which share the mid-rank"
        twins = _find_twins(values, methods)
        if twins:
            doubt += f"; equal in all blocks: {'; '.join(twins[:3])}"
        if len(twins) > 3:
            doubt += " and more"
        doubts.append(doubt)
    return doubts


def _find_twins(values: Array, methods: Sequence[str]) -> list[str]:
    """Find groups of methods with equal values in every block."""
    columns = (values + 0.0).T  # turns -0.0 into 0.0
    groups: dict[bytes, list[str]] = {}
    for name, column in zip(methods, columns, strict=True):
        groups.setdefault(column.tobytes(), []).append(name)
    return [_list_names(twins) for twins in groups.values() if len(twins) > 1]


def _list_names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:5])
    if len(names) > 5:
        listed += f" and {len(names) - 5} more"
    return listed
