"""Comparison of methods over many results: ranks, rank tests, cliques and paired differences, with their caveats.

A method is a score or a pair of scores, a block is one data set under one model. Only complete tables are compared;
what is left out is named. Rank tests take blocks to be independent, which the shifts of one model are not: the
comparison says how many models there are, and ``blocks`` averages what belongs together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from twofold._checks import Array, Mask, choice, number
from twofold.bench.results import Results
from twofold.bench.rows import VALIDATION, ResultRow, better_of, finest, is_missing, key_of, method, rows_of_metric
from twofold.bench.text import coverage_of, scale
from twofold.errors import DoubtfulTable, InvalidInput, TooFewBlocks, UnknownName
from twofold.roles import RESULT_ROLES
from twofold.stats.cliques import cliques
from twofold.stats.exact import LEAST_BLOCKS, least_friedman_p, required_blocks
from twofold.stats.rank_tests import Friedman
from twofold.stats.table import ranked

MODEL = ("benchmark", "model", "recipe", "seed", "run")  # what tells one trained network from another
BLOCK = (*MODEL, "shift")
GROUP = ("benchmark", "model", "role")  # a column of the map: source, backbone, distance
TESTS = ("conover_t", "rank_z", "wilcoxon")
FEW = 10  # blocks up to which the reference distributions of rank tests are rough (Demšar 2006, section 3.2.2)

Cell = tuple[Any, ...]  # the values of BLOCK


@dataclass(frozen=True)
class Dropped:
    """Name a method, block, shift or group that is left out of a comparison, and why.

    Parameters
    ----------
    kind : {"method", "block", "shift", "group"}
        What was left out.
    name : str
        Its name.
    reason : str
        Why it was left out.

    Examples
    --------
    >>> print(Dropped("method", "knn", "no features"))
    method knn: no features
    """

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.reason}"


@dataclass(frozen=True)
class Difference:
    """Hold the mean difference of a method from the best, with its paired bootstrap interval.

    Parameters
    ----------
    value : float
        Mean over blocks of the method's value minus that of the best method.
    low, high : float
        Limits of the interval.
    blocks : int
        Number of blocks, before averaging, in which both have paired replicates.
    of : int
        Number of all blocks, before averaging.
    resamples : int
        Number of bootstrap replicates with a value.
    """

    value: float
    low: float
    high: float
    blocks: int
    of: int
    resamples: int

    @property
    def apart(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0.0 <= self.high


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
    better: str
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
        """Mean value of each method over the blocks."""
        return np.asarray(self.values.mean(axis=0))

    def to_dict(self) -> dict[str, Any]:
        """Convert the comparison to plain values for JSON.

        Returns
        -------
        dict
            All fields; an infinite F statistic (all blocks agree) becomes None.
        """
        test = self.friedman
        return {
            "metric": self.metric,
            "protocol": self.protocol,
            "better": self.better,
            "test": self.test,
            "alpha": self.alpha,
            "blocks": list(self.blocks),
            "models": self.models,
            "friedman": {
                "statistic": test.statistic,
                "p": test.p,
                "f": test.f if math.isfinite(test.f) else None,
                "f_p": test.f_p,
                "exact_p": test.exact_p,
                "least_p": test.least_p,
                "df": list(test.df),
                "rejected": self.omnibus,
            },
            "methods": [
                {
                    "name": name,
                    "mean_rank": float(self.mean_ranks[j]),
                    "mean": float(self.means[j]),
                    "p_to_best": float(self.p[0, j]),
                    "top": name in self.top,
                    "difference": vars(self.differences[name]).copy() if name in self.differences else None,
                }
                for j, name in enumerate(self.methods)
            ],
            "p": self.p.tolist(),
            "cliques": [list(group) for group in self.cliques],
            "top": list(self.top),
            "dropped": [vars(one).copy() for one in self.dropped],
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        factor, unit = scale(self.metric)
        under = "" if self.protocol is None else f" under {self.protocol}"
        told = f" ({unit})" if unit else ""
        direction = f"{self.better} is better{coverage_of(self.metric, self.protocol)}"
        test = self.friedman
        lines = [
            f"{self.metric}{told}{under}, {direction}: {len(self.methods)} methods, "
            f"{_count(len(self.blocks), 'block')}, {_count(self.models, 'model')}",
            _friedman_line(test),
            f"{self.test} with Holm's correction at {self.alpha:g}: "
            + (
                f"{_count(len(self.top), 'method')} in the top clique (*)"
                if self.omnibus
                else "not asked, since Friedman's test does not reject; all methods are one clique (*)"
            ),
            "",
            *_aligned(self._lines(factor)),
        ]
        if self.warnings:
            lines += ["", *(f"warning: {text}" for text in self.warnings)]
        if self.dropped:
            lines += ["", *(f"left out: {one}" for one in self.dropped[:10])]
            lines += [f"left out: {len(self.dropped) - 10} more"] if len(self.dropped) > 10 else []
        return "\n".join(lines)

    def _lines(self, factor: int) -> list[list[str]]:
        """Build the table, heading first, with one line per method."""
        digits = 2 if factor > 1 else 4
        lines = [
            ["rank", "", "method", "mean", "p to best", f"difference from the best, {1 - self.alpha:.0%} interval"]
        ]
        for j, name in enumerate(self.methods):
            p = "" if j == 0 else "<0.0001" if self.p[0, j] < 1e-4 else f"{self.p[0, j]:.4f}"
            told = ""
            if name in self.differences:
                gap = self.differences[name]
                value, low, high = (f"{factor * x:+.{digits}f}" for x in (gap.value, gap.low, gap.high))
                told = f"{value} [{low}, {high}]" + (
                    f", {gap.blocks} of {gap.of} blocks" if gap.blocks < gap.of else ""
                )
            star = "*" if name in self.top else ""
            lines.append([f"{self.mean_ranks[j]:.2f}", star, name, f"{factor * self.means[j]:.{digits}f}", p, told])
        if not self.differences:
            return [line[:-1] for line in lines]
        return lines


def _friedman_line(test: Friedman) -> str:
    """Format Friedman's test; a p-value that cannot be smaller is marked as such."""
    parts = [
        f"chi2({test.df[0]}) = {test.statistic:.4g}, p = {test.p:.2g}",
        f"F{test.df} = {test.f:.4g}, p = {test.f_p:.2g}",
    ]
    if test.exact_p is not None:
        parts.append(f"exact p = {test.exact_p:.2g}")
    line = "Friedman: " + "; ".join(parts)
    if test.decisive_p <= test.least_p * (1 + 1e-9):
        line += f" (the smallest attainable with {_count(test.blocks, 'block')})"
    return line


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
        Columns that tell blocks apart; values that share a block are averaged.

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
    return _compared(_table(results, metric, protocol), test, alpha, blocks)


# --- the table ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Table:
    """Hold rows of one metric by cell and method, and what was left out."""

    metric: str
    protocol: str | None
    better: str
    cells: Mapping[Cell, Mapping[str, ResultRow]]
    replicates: Mapping[tuple[Any, ...], Array]
    dropped: tuple[Dropped, ...] = ()
    constant: tuple[str, ...] = field(default=(), repr=False)  # columns of BLOCK in which all cells agree

    def label(self, cell: Cell) -> str:
        """Label a cell by the columns in which cells differ, at least by its shift."""
        vary = [(c, value) for c, value in zip(BLOCK, cell, strict=True) if c == "shift" or c not in self.constant]
        told = [str(value) for _, value in vary if value is not None]
        return " / ".join(told) or "all"


def _table(results: Results, metric: str, protocol: str | None) -> _Table:
    rows = [row for row in rows_of_metric(results.rows, metric, protocol) if row["score"] is not None]
    if not rows:
        raise InvalidInput(f"no row of {metric} has a score; methods are what the column score names")
    if all(row["shift"] == VALIDATION for row in rows):
        raise InvalidInput(f"{metric} was measured on validation data only, which are no blocks of a comparison")
    single = finest(rows)
    known = {row["shift"] for row in single}
    groups = sorted({str(row["shift"]) for row in rows if row["shift"] not in known and row["shift"] != VALIDATION})
    cells: dict[Cell, dict[str, ResultRow]] = {}
    for row in single:
        cell = cells.setdefault(tuple(row[column] for column in BLOCK), {})
        if method(row) in cell:
            raise InvalidInput(f"two methods are called {method(row)!r}; rename one of them")
        cell[method(row)] = row
    constant = tuple(c for i, c in enumerate(BLOCK) if len({cell[i] for cell in cells}) == 1)
    reason = "an average or pool of blocks that are there, which would count their data twice"
    dropped = [Dropped("shift", name, reason) for name in groups]
    told = [row for row in results.rows if row["metric"] is None and row["score"] is not None and row["reason"]]
    failed = {(method(row), row["reason"]) for row in told if row["protocol"] in (None, rows[0]["protocol"])}
    seen = {name for cell in cells.values() for name in cell}
    dropped += [Dropped("method", name, why) for name, why in sorted(failed) if name not in seen]
    return _Table(metric, rows[0]["protocol"], better_of(rows), cells, results.replicates, tuple(dropped), constant)


def _complete(table: _Table) -> tuple[list[Cell], list[str], list[Dropped]]:
    """List cells and methods of a full table; while a value is missing, leave out the emptiest line."""
    cells = sorted(table.cells, key=_sortable)
    names = sorted({name for cell in table.cells.values() for name in cell})
    have = np.array([[not _gone(table.cells[cell].get(name)) for name in names] for cell in cells], dtype=bool)
    rows, columns = np.ones(len(cells), bool), np.ones(len(names), bool)
    dropped = []
    while rows.any() and columns.any() and not have[np.ix_(rows, columns)].all():
        share_rows = np.where(rows, 1 - have[:, columns].mean(axis=1), -1.0)
        share_columns = np.where(columns, 1 - have[rows].mean(axis=0), -1.0)
        if share_columns.max() >= share_rows.max():
            j = int(share_columns.argmax())
            lost = [i for i in np.flatnonzero(rows) if not have[i, j]]
            dropped.append(_lacking("method", names[j], table, [(cells[i], names[j]) for i in lost], int(rows.sum())))
            columns[j] = False
        else:
            i = int(share_rows.argmax())
            absent = [names[j] for j in np.flatnonzero(columns) if not have[i, j]]
            label = table.label(cells[i])
            dropped.append(_lacking("block", label, table, [(cells[i], name) for name in absent], int(columns.sum())))
            rows[i] = False
    kept = [cell for cell, stays in zip(cells, rows, strict=True) if stays]
    return kept, [name for name, stays in zip(names, columns, strict=True) if stays], dropped


def _lacking(kind: str, name: str, table: _Table, holes: Sequence[tuple[Cell, str]], of: int) -> Dropped:
    """Say why a line was dropped: what it lacks, and the first reason in the results."""
    other = "blocks" if kind == "method" else "methods"
    first_cell, first_name = holes[0]
    first = table.label(first_cell) if kind == "method" else first_name
    row = table.cells[first_cell].get(first_name)
    why = "not in the results" if row is None else row["reason"] or "no finite value"
    return Dropped(kind, name, f"no value for {len(holes)} of {of} {other}, the first {first} ({why})")


def _gone(row: ResultRow | None) -> bool:
    return row is None or is_missing(row["value"]) or math.isinf(row["value"])


def _sortable(cell: Cell) -> tuple[Any, ...]:
    """Build a key that sorts None before numbers before text."""
    return tuple((value is not None, isinstance(value, str), value if value is not None else 0) for value in cell)


# --- the comparison -------------------------------------------------------------------------------------------------


def _compared(table: _Table, test: str, alpha: float, blocks: Sequence[str] | None) -> Comparison:
    choice(test, "test", TESTS)
    alpha = number(alpha, "alpha", 0, 1, open_low=True, open_high=True)
    columns = _columns(blocks, "blocks")
    cells, names, incomplete = _complete(table)
    members = _blocks(table, cells, columns)
    if len(names) < 2 or len(members) < 2:
        lost = f" ({'; '.join(str(one) for one in incomplete[:3])})" if incomplete else ""
        raise InvalidInput(
            f"a comparison needs at least 2 methods and 2 blocks; {table.metric} has {_count(len(names), 'method')} "
            f"and {_count(len(members), 'block')} without gaps{lost}; pivot() shows what there is"
        )
    check_blocks(len(members), len(names), test, alpha)
    labels = _labels(table, members, columns)
    fine = np.array([[table.cells[cell][name]["value"] for name in names] for cell in cells])
    values = np.stack([fine[inside].mean(axis=0) for inside in members.values()])  # equal columns stay equal
    order = np.lexsort((np.arange(len(names)), ranked(values, table.better, names).mean_ranks))  # type: ignore[arg-type]
    names, values = [names[j] for j in order], np.ascontiguousarray(values[:, order])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = cliques(values, test=test, alpha=alpha, better=table.better, names=names)  # type: ignore[arg-type]
    doubts = [str(one.message) for one in caught if issubclass(one.category, DoubtfulTable)]
    differences = _differences(table, cells, names, _weights(members, len(cells)), alpha)
    models = len({cell[: len(MODEL)] for cell in cells})
    told = [*_warnings(values, names, models), *doubts]
    told += _lacking_differences(names, differences)
    return Comparison(
        metric=table.metric,
        protocol=table.protocol,
        better=table.better,
        test=test,
        alpha=alpha,
        methods=tuple(names),
        blocks=labels,
        values=values,
        mean_ranks=found.mean_ranks,
        friedman=found.friedman,
        omnibus=found.omnibus,
        p=found.pairwise.p,
        cliques=found.groups,
        differences=MappingProxyType(differences),
        models=models,
        dropped=(*table.dropped, *incomplete),
        warnings=tuple(told),
    )


def check_blocks(blocks: int, methods: int, test: str, alpha: float) -> None:
    """Refuse a comparison of so few blocks that a significant outcome is impossible or means nothing.

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
    least = least_friedman_p(agreeing)
    reason = f"the smallest p-value of Friedman's test on {blocks} blocks is {least:.2g}"
    if least < alpha:
        reason = f"the smallest adjusted p-value of a pair in {blocks} blocks is {alpha:g} or more"
    if blocks < LEAST_BLOCKS and least < alpha:
        reason = f"{blocks} blocks only show how alike they rank the methods"
    raise TooFewBlocks(
        f"{methods} methods cannot be compared over {blocks} blocks: {test} at {alpha:g} needs at least {needed}, "
        f"since {reason}; add data sets or runs"
    )


def _columns(given: Sequence[str] | None, name: str) -> tuple[str, ...]:
    if given is None:
        return BLOCK
    columns = (given,) if isinstance(given, str) else tuple(given)
    allowed = (*BLOCK, "role")
    for column in columns:
        if column not in allowed:
            raise UnknownName.of("column of blocks", str(column), allowed)
    if not columns:
        raise InvalidInput(f"{name} must be at least one of {', '.join(allowed)}")
    return columns


def _place(table: _Table, cell: Cell, columns: Sequence[str]) -> Cell:
    """Read the values of some columns; a cell has one role, whatever the method."""
    row = next(iter(table.cells[cell].values()))
    return tuple(row[column] for column in columns)


def _blocks(table: _Table, cells: Sequence[Cell], columns: tuple[str, ...]) -> dict[Cell, list[int]]:
    """Group cells by block."""
    members: dict[Cell, list[int]] = {}
    for i, cell in enumerate(cells):
        members.setdefault(_place(table, cell, columns), []).append(i)
    return {place: members[place] for place in sorted(members, key=_sortable)}


def _labels(table: _Table, members: Mapping[Cell, Sequence[int]], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Label blocks by the columns in which they differ."""
    vary = [i for i, c in enumerate(columns) if c == "shift" or len({place[i] for place in members}) > 1]
    return tuple(" / ".join(str(place[i]) for i in vary if place[i] is not None) or "all" for place in members)


def _weights(members: Mapping[Cell, Sequence[int]], count: int) -> Array:
    """Compute the weight of each cell in the mean over blocks of the means inside them."""
    weights = np.zeros(count)
    for inside in members.values():
        weights[list(inside)] = 1 / (len(inside) * len(members))
    return weights


def _differences(
    table: _Table, cells: Sequence[Cell], names: Sequence[str], weights: Array, alpha: float
) -> dict[str, Difference]:
    """Compute paired differences from the first method, over the cells in which both have replicates of one length."""
    found = {}
    best = [table.replicates.get(key_of(table.cells[cell][names[0]])) for cell in cells]
    for name in names[1:]:
        own = [table.replicates.get(key_of(table.cells[cell][name])) for cell in cells]
        sizes = [
            len(a) if a is not None and b is not None and len(a) == len(b) else 0
            for a, b in zip(own, best, strict=True)
        ]
        size = max(set(sizes) - {0}, key=lambda n: (sizes.count(n), n), default=0)
        used = [i for i, n in enumerate(sizes) if n == size and size > 0]
        if not used:
            continue
        share = weights[used] / weights[used].sum()
        gaps = share @ np.stack([np.asarray(own[i]) - np.asarray(best[i]) for i in used])
        gaps = gaps[~np.isnan(gaps)]
        if not len(gaps):
            continue
        rows = [(table.cells[cells[i]][name]["value"], table.cells[cells[i]][names[0]]["value"]) for i in used]
        value = float(share @ np.array([a - b for a, b in rows]))
        low, high = np.quantile(gaps, (alpha / 2, 1 - alpha / 2))
        found[name] = Difference(value, float(low), float(high), len(used), len(cells), len(gaps))
    return found


def _lacking_differences(names: Sequence[str], differences: Mapping[str, Difference]) -> list[str]:
    """Write a sentence where only some methods have paired differences."""
    lost = [name for name in names[1:] if name not in differences]
    if not differences or not lost:
        return []
    return [f"no paired replicates for {_shown(lost)}: their differences from {names[0]} have no interval"]


def _warnings(values: Array, names: Sequence[str], models: int) -> list[str]:
    """List the reasons to doubt the p-values."""
    blocks, methods = values.shape
    found = []
    if models < blocks:
        source = "one model" if models == 1 else f"{models} models"
        found.append(
            f"{blocks} blocks come from {source}: shifts that share a known test set and a model are not independent, "
            'so p-values are too small; blocks=("benchmark", "model", "recipe", "seed", "run") makes one block a model'
        )
    if blocks <= FEW:
        found.append(
            f"only {_count(blocks, 'block')}: p-values of pairs are rough up to {FEW} (Demšar 2006), and differences "
            "are easily missed"
        )
    tied = sum(len(np.unique(row)) < methods for row in values)
    if tied:
        twins = _twins(values, names)
        same = f"; equal in all blocks: {'; '.join(twins[:3])}{' and more' if len(twins) > 3 else ''}" if twins else ""
        found.append(f"{tied} of {_count(blocks, 'block')} have ties, which share the mid-rank{same}")
    return found


def _twins(values: Array, names: Sequence[str]) -> list[str]:
    """Find groups of methods with equal values in every block."""
    groups: dict[bytes, list[str]] = {}
    for name, column in zip(names, (values + 0.0).T, strict=True):
        groups.setdefault(column.tobytes(), []).append(name)
    return [_shown(several) for several in groups.values() if len(several) > 1]


def _shown(items: Sequence[str]) -> str:
    return ", ".join(items[:5]) + (f" and {len(items) - 5} more" if len(items) > 5 else "")


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Pad columns to one width; text to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    left = {1, 2, 5}
    return [
        "  ".join(
            f"{cell:<{width}}" if i in left else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


# --- the map of top cliques -----------------------------------------------------------------------------------------


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
        """The groups that could not be compared, with the reason."""
        return tuple(one for one in self.dropped if one.kind == "group")

    def to_dict(self) -> dict[str, Any]:
        """Convert the map to plain values for JSON.

        Returns
        -------
        dict
            Settings, methods, and the top clique of each group.
        """
        return {
            "metric": self.metric,
            "protocol": self.protocol,
            "test": self.test,
            "alpha": self.alpha,
            "methods": list(self.rows),
            "groups": [
                {
                    "name": name,
                    "blocks": self.blocks[j],
                    "rejected": self.omnibus[j],
                    "top": [m for m, inside in zip(self.rows, self.member[:, j], strict=True) if inside],
                }
                for j, name in enumerate(self.columns)
            ],
            "dropped": [vars(one).copy() for one in self.dropped],
        }


def clique_map(
    results: Results,
    metric: str,
    *,
    protocol: str | None = None,
    test: str = "conover_t",
    alpha: float = 0.05,
    by: Sequence[str] = GROUP,
) -> CliqueMap:
    """Find the top clique of every group of blocks: which methods lead on which source, at which distance.

    Each group is a comparison of its own, with Friedman's test, the pairwise ``test`` and cliques, so a method may be
    compared in one group and lack values in another. The blocks of a group are its data sets, recipes, seeds and runs.

    Parameters
    ----------
    results : Results
        Rows of one or more benchmarks.
    metric : str
        Name of the metric to compare by, such as ``"aurc"``.
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
    The paper counts AURC and AUGRC of one data set as two blocks, which makes p-values far too small; here a map has
    one metric.

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
    whole = _table(results, metric, protocol)
    columns = _columns(by, "by")
    groups: dict[Cell, dict[Cell, Mapping[str, ResultRow]]] = {}
    for cell in sorted(whole.cells, key=_sortable):
        groups.setdefault(_place(whole, cell, columns), {})[cell] = whole.cells[cell]
    vary = [i for i in range(len(columns)) if len({place[i] for place in groups}) > 1] or range(len(columns))
    found: dict[str, Comparison] = {}
    dropped = list(whole.dropped)
    for place in sorted(groups, key=lambda place: _by_distance(place, columns)):
        label = " / ".join(str(place[i]) for i in vary if place[i] is not None) or "all"
        part = _Table(metric, whole.protocol, whole.better, groups[place], whole.replicates, (), whole.constant)
        try:
            found[label] = _compared(part, test, alpha, None)
        except InvalidInput as error:
            if test not in TESTS or not 0 < alpha < 1:
                raise
            dropped.append(Dropped("group", label, str(error)))
            continue
        dropped += [Dropped(one.kind, f"{one.name} in {label}", one.reason) for one in found[label].dropped]
    if not found:
        reasons = "; ".join(str(one) for one in dropped if one.kind == "group")
        raise TooFewBlocks(f"no group has enough methods and blocks to be compared: {reasons}")
    names = sorted({name for one in found.values() for name in one.methods}, key=lambda name: _standing(name, found))
    member = np.array([[name in one.top for one in found.values()] for name in names], dtype=bool)
    judged = np.array([[name in one.methods for one in found.values()] for name in names], dtype=bool)
    return CliqueMap(
        metric=metric,
        protocol=whole.protocol,
        test=test,
        alpha=alpha,
        rows=tuple(names),
        columns=tuple(found),
        member=member,
        judged=judged,
        blocks=tuple(len(one.blocks) for one in found.values()),
        omnibus=tuple(one.omnibus for one in found.values()),
        dropped=tuple(dropped),
    )


def _by_distance(place: Cell, columns: Sequence[str]) -> tuple[Any, ...]:
    """Build a key that sorts groups by their columns, roles from the known test set to far."""
    return tuple(
        (RESULT_ROLES.index(value) if value in RESULT_ROLES else len(RESULT_ROLES), str(value))
        if column == "role"
        else _sortable((value,))[0]
        for column, value in zip(columns, place, strict=True)
    )


def _standing(name: str, found: Mapping[str, Comparison]) -> tuple[float, float, str]:
    """Sort by most groups led, of those with significant differences, then by relative mean rank."""
    inside = [one for one in found.values() if name in one.methods]
    shares = [float(one.mean_ranks[one.methods.index(name)]) / len(one.methods) for one in inside]
    return -sum(one.omnibus and name in one.top for one in inside), round(float(np.mean(shares)), 12), name
