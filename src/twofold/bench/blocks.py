"""Blocks of a comparison: the rows of one metric by block and method, without gaps and without data counted twice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from twofold._checks import Array, as_names
from twofold.bench.results import Results
from twofold.bench.rows import (
    VALIDATION,
    Key,
    ResultRow,
    better_of,
    finest,
    is_missing,
    key_of,
    method,
    read_column,
    read_columns,
    rows_of_metric,
)
from twofold.errors import InvalidInput, UnknownName
from twofold.stats.table import Better

MODEL = ("benchmark", "model", "recipe", "seed", "run")  # columns by which trained networks differ
BLOCK = (*MODEL, "shift")
BLOCK_COLUMNS = (*BLOCK, "role")  # columns that may define blocks and groups of blocks

Block: TypeAlias = tuple[object, ...]  # the values of BLOCK, or of the columns that define a group


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

    def to_dict(self) -> dict[str, str]:
        """Convert to plain values for JSON.

        Returns
        -------
        dict of str to str
            Kind, name and reason.
        """
        return {"kind": self.kind, "name": self.name, "reason": self.reason}


@dataclass(frozen=True, eq=False)
class BlockTable:
    """Hold the rows of one metric by block and method, and what was left out.

    Parameters
    ----------
    metric : str
        Name of the metric.
    protocol : str or None
        The protocol it was measured under.
    better : {"higher", "lower"}
        Direction in which values get better.
    rows : mapping of tuple to mapping of str to mapping
        By the values of ``BLOCK``, then by method.
    replicates : mapping of tuple to ndarray
        Bootstrap values by the key of a row.
    dropped : tuple of Dropped, default=()
        What was left out.
    hidden : frozenset of str, default=frozenset()
        Columns that labels of blocks leave out, since all blocks agree in them.
    """

    metric: str
    protocol: str | None
    better: Better
    rows: Mapping[Block, Mapping[str, ResultRow]]
    replicates: Mapping[Key, Array]
    dropped: tuple[Dropped, ...] = ()
    hidden: frozenset[str] = frozenset()

    def label(self, block: Block) -> str:
        """Label a block by the columns in which blocks differ, at least by its shift.

        Parameters
        ----------
        block : tuple
            A block of this table.

        Returns
        -------
        str
            The label.
        """
        return format_label(block, BLOCK, self.hidden)

    def has_value(self, block: Block, name: str) -> bool:
        """Check whether a method has a finite value in a block.

        Parameters
        ----------
        block : tuple
            A block of this table.
        name : str
            A method.

        Returns
        -------
        bool
            False where the row is absent, or its value is None, NaN or infinite.
        """
        row = self.rows[block].get(name)
        return row is not None and not is_missing(row["value"]) and math.isfinite(row["value"])

    def values(self, blocks: Sequence[Block], methods: Sequence[str]) -> Array:
        """Read the values of methods in blocks.

        Parameters
        ----------
        blocks : sequence of tuple
            Blocks of this table.
        methods : sequence of str
            Methods that have a value in each of them.

        Returns
        -------
        ndarray of shape (n_blocks, n_methods)
            The values.
        """
        values = np.empty((len(blocks), len(methods)))
        for i, block in enumerate(blocks):
            for j, name in enumerate(methods):
                values[i, j] = self.rows[block][name]["value"]
        return values

    def replicates_of(self, block: Block, name: str) -> Array | None:
        """Look up the bootstrap values of a method in a block.

        Parameters
        ----------
        block : tuple
            A block of this table.
        name : str
            A method that has a row there.

        Returns
        -------
        ndarray or None
            None where there are none.
        """
        return self.replicates.get(key_of(self.rows[block][name]))

    def columns_of(self, block: Block, columns: Sequence[str]) -> Block:
        """Read the values of some columns; they are the same for all methods of a block.

        Parameters
        ----------
        block : tuple
            A block of this table.
        columns : sequence of str
            Some of ``BLOCK_COLUMNS``.

        Returns
        -------
        tuple
            The values.
        """
        row = next(iter(self.rows[block].values()))
        return read_columns(row, columns)

    def group(self, blocks: Sequence[Block], columns: Sequence[str]) -> dict[Block, list[int]]:
        """Group blocks that agree in some columns.

        Parameters
        ----------
        blocks : sequence of tuple
            Blocks of this table.
        columns : sequence of str
            Some of ``BLOCK_COLUMNS``.

        Returns
        -------
        dict of tuple to list of int
            Indices of the blocks by the values of the columns, sorted by these.
        """
        groups: dict[Block, list[int]] = {}
        for i, block in enumerate(blocks):
            groups.setdefault(self.columns_of(block, columns), []).append(i)
        return {values: groups[values] for values in sorted(groups, key=sort_key)}


def sort_key(block: Block) -> tuple[tuple[bool, bool, object], ...]:
    """Make a key that sorts None before numbers before text.

    Parameters
    ----------
    block : tuple
        Values of columns.

    Returns
    -------
    tuple
        The key.

    Examples
    --------
    >>> sorted([("a",), (2,), (None,), (1,)], key=sort_key)
    [(None,), (1,), (2,), ('a',)]
    """
    key = []
    for value in block:
        comparable = 0 if value is None else value
        key.append((value is not None, isinstance(value, str), comparable))
    return tuple(key)


def format_label(block: Block, columns: Sequence[str], hidden: frozenset[str]) -> str:
    """Label a block or a group of blocks by the values of its columns.

    Parameters
    ----------
    block : tuple
        Values of the columns.
    columns : sequence of str
        Names of the columns.
    hidden : frozenset of str
        Columns to leave out.

    Returns
    -------
    str
        The values that are not None, separated by slashes; ``"all"`` if there are none.

    Examples
    --------
    >>> format_label(("vgg", None, "svhn"), ("model", "seed", "shift"), frozenset())
    'vgg / svhn'
    """
    shown = []
    for column, value in zip(columns, block, strict=True):
        if value is not None and column not in hidden:
            shown.append(str(value))
    return " / ".join(shown) or "all"


def constant_columns(blocks: Iterable[Block], columns: Sequence[str]) -> frozenset[str]:
    """Find the columns in which all blocks agree.

    Parameters
    ----------
    blocks : iterable of tuple
        Values of the columns.
    columns : sequence of str
        Names of the columns.

    Returns
    -------
    frozenset of str
        The columns with one value.

    Examples
    --------
    >>> sorted(constant_columns([("vgg", 0), ("vgg", 1)], ("model", "seed")))
    ['model']
    """
    constant = set()
    for column, values in zip(columns, zip(*blocks, strict=True), strict=True):
        if len(set(values)) == 1:
            constant.add(column)
    return frozenset(constant)


def check_block_columns(columns: Sequence[str] | None, argument: str) -> tuple[str, ...]:
    """Check the columns that define blocks or groups of blocks.

    Parameters
    ----------
    columns : sequence of str or None
        Names of columns; None means ``BLOCK``.
    argument : str
        Name of the argument, for messages.

    Returns
    -------
    tuple of str
        The columns.

    Raises
    ------
    UnknownName
        If a column cannot define blocks.
    InvalidInput
        If there is no column.
    """
    if columns is None:
        return BLOCK
    names = as_names(columns)
    for name in names:
        if name not in BLOCK_COLUMNS:
            raise UnknownName.of("column of blocks", str(name), BLOCK_COLUMNS)
    if not names:
        raise InvalidInput(f"{argument} must be at least one of {', '.join(BLOCK_COLUMNS)}")
    return names


# --- from results to a table ----------------------------------------------------------------------------------------


def join_metrics(results: Results, metrics: Sequence[str], protocol: str | None) -> BlockTable:
    """Arrange the rows of several metrics by block and method, with a block for each metric of a data set.

    Parameters
    ----------
    results : Results
        Rows of one or more benchmarks.
    metrics : sequence of str
        Names of metrics that get better in the same direction.
    protocol : str or None
        Name of the protocol; None where only one has the metrics.

    Returns
    -------
    BlockTable
        The table of one metric, or of all with the metric in the name of the shift. The latter has no replicates, as
        differences between values of several metrics mean nothing.

    Raises
    ------
    UnknownName
        If no row has a metric.
    InvalidInput
        If there is no metric, one is named twice, or they get better in different directions.
    """
    if not metrics or len(set(metrics)) < len(metrics):
        raise InvalidInput(f"metrics must be at least one, each named once, got {list(metrics)}")
    tables = [tabulate_blocks(results, metric, protocol) for metric in metrics]
    first = tables[0]
    if len(tables) == 1:
        return first
    if {table.better for table in tables} != {first.better}:
        raise InvalidInput(f"{' and '.join(metrics)} get better in different directions; compare each by itself")
    rows: dict[Block, Mapping[str, ResultRow]] = {}
    dropped: dict[Dropped, None] = {}
    for table in tables:
        dropped |= dict.fromkeys(table.dropped)
        for block, by_method in table.rows.items():
            shift = f"{block[-1]} ({table.metric})"
            rows[*block[:-1], shift] = {name: {**row, "shift": shift} for name, row in by_method.items()}
    return replace(
        first,
        metric=" and ".join(metrics),
        rows=rows,
        replicates={},
        dropped=tuple(dropped),
        hidden=constant_columns(rows, BLOCK) - {"shift"},
    )


def tabulate_blocks(results: Results, metric: str, protocol: str | None) -> BlockTable:
    """Arrange the rows of one metric by block and method.

    Parameters
    ----------
    results : Results
        Rows of one or more benchmarks.
    metric : str
        Name of the metric.
    protocol : str or None
        Name of the protocol; None where only one has the metric.

    Returns
    -------
    BlockTable
        The table, which may have gaps.

    Raises
    ------
    UnknownName
        If no row has the metric.
    InvalidInput
        If no row can be compared, the protocol is not clear, or two methods have one name.
    """
    rows = [row for row in rows_of_metric(results.rows, metric, protocol) if row["score"] is not None]
    if not rows:
        raise InvalidInput(f"no row of {metric} has a score; methods are what the column score names")
    if set(read_column(rows, "shift")) == {VALIDATION}:
        raise InvalidInput(f"{metric} was measured on validation data only, which cannot be compared")
    by_block = _arrange(finest(rows))
    measured_protocol = rows[0]["protocol"]
    return BlockTable(
        metric=metric,
        protocol=measured_protocol,
        better=better_of(rows),
        rows=by_block,
        replicates=results.replicates,
        dropped=(*_drop_aggregates(rows, by_block), *_drop_failures(results, measured_protocol, by_block)),
        hidden=constant_columns(by_block, BLOCK) - {"shift"},
    )


def _arrange(rows: Iterable[ResultRow]) -> dict[Block, dict[str, ResultRow]]:
    by_block: dict[Block, dict[str, ResultRow]] = {}
    for row in rows:
        methods = by_block.setdefault(read_columns(row, BLOCK), {})
        name = method(row)
        if name in methods:
            raise InvalidInput(f"two methods are called {name!r}; rename one of them")
        methods[name] = row
    return by_block


def _drop_aggregates(rows: Iterable[ResultRow], by_block: Iterable[Block]) -> list[Dropped]:
    """Name the averages and pools whose members are blocks."""
    kept = {block[-1] for block in by_block}
    aggregates = set(read_column(rows, "shift")) - kept - {VALIDATION}
    reason = "an average or pool of blocks that are there, which would count their data twice"
    return [Dropped("shift", name, reason) for name in sorted(map(str, aggregates))]


def _drop_failures(
    results: Results, protocol: str | None, by_block: Mapping[Block, Mapping[str, ResultRow]]
) -> list[Dropped]:
    """Name the methods that have no row with a metric, with the reason."""
    seen: set[str] = set().union(*by_block.values())
    failures = set()
    for row in results.rows:
        is_failure = row["metric"] is None and row["score"] is not None and row["reason"]
        if is_failure and row["protocol"] in (None, protocol) and method(row) not in seen:
            failures.add((method(row), row["reason"]))
    return [Dropped("method", name, reason) for name, reason in sorted(failures)]


# --- gaps -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompleteBlocks:
    """Hold the blocks and methods of a table that has no gaps.

    Parameters
    ----------
    blocks : tuple of tuple
        The blocks.
    methods : tuple of str
        Methods that have a value in each of them.
    dropped : tuple of Dropped
        Blocks and methods that were left out.
    """

    blocks: tuple[Block, ...]
    methods: tuple[str, ...]
    dropped: tuple[Dropped, ...]


def drop_incomplete(table: BlockTable) -> CompleteBlocks:
    """Leave out methods and blocks until no value is missing, each time the one that lacks the largest share.

    Parameters
    ----------
    table : BlockTable
        A table with gaps.

    Returns
    -------
    CompleteBlocks
        What is left, and what was left out with the reason.
    """
    blocks = sorted(table.rows, key=sort_key)
    methods = sorted(set().union(*table.rows.values()))
    present = np.zeros((len(blocks), len(methods)), dtype=bool)
    for i, block in enumerate(blocks):
        for j, name in enumerate(methods):
            present[i, j] = table.has_value(block, name)
    keep_block, keep_method = np.ones(len(blocks), bool), np.ones(len(methods), bool)
    dropped = []
    while keep_block.any() and keep_method.any() and not present[np.ix_(keep_block, keep_method)].all():
        gaps_of_block = np.where(keep_block, 1 - present[:, keep_method].mean(axis=1), -1.0)
        gaps_of_method = np.where(keep_method, 1 - present[keep_block].mean(axis=0), -1.0)
        if gaps_of_method.max() >= gaps_of_block.max():
            j = int(gaps_of_method.argmax())
            lacking = [blocks[i] for i in np.flatnonzero(keep_block & ~present[:, j])]
            dropped.append(_drop_method(table, methods[j], lacking, int(keep_block.sum())))
            keep_method[j] = False
        else:
            i = int(gaps_of_block.argmax())
            absent = [methods[j] for j in np.flatnonzero(keep_method & ~present[i])]
            dropped.append(_drop_block(table, blocks[i], absent, int(keep_method.sum())))
            keep_block[i] = False
    return CompleteBlocks(
        blocks=tuple(blocks[i] for i in np.flatnonzero(keep_block)),
        methods=tuple(methods[j] for j in np.flatnonzero(keep_method)),
        dropped=tuple(dropped),
    )


def _drop_method(table: BlockTable, name: str, blocks: Sequence[Block], total: int) -> Dropped:
    first = f"{table.label(blocks[0])} ({_explain_gap(table, blocks[0], name)})"
    return Dropped("method", name, f"no value for {len(blocks)} of {total} blocks, the first {first}")


def _drop_block(table: BlockTable, block: Block, methods: Sequence[str], total: int) -> Dropped:
    first = f"{methods[0]} ({_explain_gap(table, block, methods[0])})"
    return Dropped("block", table.label(block), f"no value for {len(methods)} of {total} methods, the first {first}")


def _explain_gap(table: BlockTable, block: Block, name: str) -> str:
    row = table.rows[block].get(name)
    if row is None:
        return "not in the results"
    return row["reason"] or "no finite value"
