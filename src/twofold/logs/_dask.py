"""Order and reduce the rows of a Dask frame: partition by ranges, count each, then reduce each on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from twofold._checks import AnyArray, Array
from twofold.logs._parts import Codes, PartCounts, PartPlan, count_part, plan_parts
from twofold.logs.columns import engine_errors
from twofold.logs.groups import CountedGroups
from twofold.logs.ordered import OrderedSums
from twofold.logs.tables import LogTable

RANGES = 256  # most parts
SAMPLE = 4096  # rows of each partition, by which the ranges are cut

Rows = tuple[Codes, Array, AnyArray]  # group, confidence and kind
Batch = dict[str, AnyArray]
Fold = Callable[[Iterator[Batch]], Any]
Cut = tuple[int, float]  # the first group and confidence of a range


def reduce_ordered(plain: LogTable, counted: CountedGroups, conf: str, share: float | None, cells: int) -> OrderedSums:
    """Reduce all rows, ordered by group and falling confidence, to the sums of each group."""
    dask = _import_dask()

    partitions = plain.frame.select(conf, "kind", *counted.names).to_native().to_delayed()
    with engine_errors():
        ranges = _partition_by_ranges(partitions, conf, counted)
        count = dask.delayed(_count)
        reduce = dask.delayed(_reduce)
        counts = dask.compute(*[count(rows) for rows in ranges])
        plans = plan_parts(list(counts), counted.totals, share, cells)
        tasks = [reduce(rows, plan) for rows, plan in zip(ranges, plans, strict=True)]
        reduced = dask.compute(*tasks)
    sums = OrderedSums(counted.totals, share, cells=cells)
    for plan, (group_sums, group_cells) in zip(plans, reduced, strict=True):
        for place, code in enumerate(plan.own.codes):
            sums.add_part(int(code), group_sums[place], group_cells[place])
    return sums


def _partition_by_ranges(partitions: Sequence[Any], conf: str, counted: CountedGroups) -> tuple[Any, ...]:
    """Sort each partition, and gather the rows of each range of group and confidence in one delayed part."""
    dask = _import_dask()

    sort = dask.delayed(_sort_partition)
    sample = dask.delayed(_sample)
    split = dask.delayed(_split_rows)
    join = dask.delayed(_join_rows)
    sorted_rows = dask.persist(*[sort(partition, conf, counted) for partition in partitions])
    samples = dask.compute(*[sample(rows) for rows in sorted_rows])
    cuts = _choose_cuts(samples, min(len(partitions), RANGES))
    pieces_by_partition = [split(rows, cuts) for rows in sorted_rows]
    ranges = []
    for place in range(len(cuts) + 1):
        own_pieces = [pieces[place] for pieces in pieces_by_partition]
        ranges.append(join(own_pieces))
    persisted: tuple[Any, ...] = dask.persist(*ranges)
    return persisted


def _import_dask() -> Any:
    """Import Dask, whose functions have no types."""
    import dask

    return dask


def _sort_partition(partition: Any, conf: str, counted: CountedGroups) -> Rows:
    """Number the groups of a partition and sort its rows."""
    values = partition[conf].to_numpy().astype(np.float64)
    kind = partition["kind"].to_numpy().astype(np.int8)
    code = np.zeros(len(values), np.int64)
    if counted.names:
        code = _code_rows(partition, counted)
    order = np.lexsort((-values, code))
    return code[order], values[order], kind[order]


def _code_rows(partition: Any, counted: CountedGroups) -> Codes:
    """Find the group of each row of a partition."""
    import pyarrow as pa

    columns = [pa.Array.from_pandas(partition[name]) for name in counted.names]
    return counted.code_rows(columns)


def _sample(rows: Rows) -> list[Cut]:
    """Take evenly spaced rows of a sorted partition."""
    code, conf, _ = rows
    step = max(len(code) // SAMPLE, 1)
    groups = code[::step].tolist()
    values = conf[::step].tolist()
    return list(zip(groups, values, strict=True))


def _choose_cuts(samples: Sequence[list[Cut]], ranges: int) -> list[Cut]:
    """Cut the sampled rows of all partitions into ranges of equal size."""
    rows: list[Cut] = []
    for sample in samples:
        rows += sample
    if not rows:
        return []
    rows.sort(key=lambda row: (row[0], -row[1]))
    cuts: dict[Cut, None] = {}  # in order, each once
    for place in range(1, ranges):
        cut = rows[len(rows) * place // ranges]
        cuts[cut] = None
    return list(cuts)


def _split_rows(rows: Rows, cuts: Sequence[Cut]) -> list[Rows]:
    """Split sorted rows at the cuts; equal rows stay together."""
    code, conf, kind = rows
    places = [0]
    for group, value in cuts:
        start, end = np.searchsorted(code, [group, group + 1])
        more_confident = np.searchsorted(-conf[start:end], -value)
        places.append(int(start + more_confident))
    places.append(len(code))
    pieces = []
    for start, end in pairwise(places):
        pieces.append((code[start:end], conf[start:end], kind[start:end]))
    return pieces


def _join_rows(pieces: Sequence[Rows]) -> Rows:
    """Join and sort the rows of one range."""
    codes, confs, kinds = zip(*pieces, strict=True)
    code = np.concatenate(codes)
    conf = np.concatenate(confs)
    kind = np.concatenate(kinds)
    order = np.lexsort((-conf, code))
    return code[order], conf[order], kind[order]


def _count(rows: Rows) -> PartCounts:
    code, _, kind = rows
    return count_part([(code, kind)])


def _reduce(rows: Rows, plan: PartPlan) -> tuple[Array, AnyArray]:
    _, conf, kind = rows
    sums = plan.reduce([(conf, kind)])
    return sums.sums, sums.cells


def fold(plain: LogTable, columns: Sequence[str], function: Fold, groups: CountedGroups | None) -> list[Any]:
    """Apply a function to each partition and return the results; with groups, batches also have ``code``."""
    dask = _import_dask()

    def apply(partition: Any) -> Any:
        batch = _read_partition(partition, columns, groups)
        return function(iter([batch]))

    names = () if groups is None else groups.names
    partitions = plain.frame.select(*columns, *names).to_native().to_delayed()
    with engine_errors():
        tasks = [dask.delayed(apply)(partition) for partition in partitions]
        return list(dask.compute(*tasks))


def fold_groups(plain: LogTable, columns: Sequence[str], function: Fold, groups: CountedGroups) -> list[Any]:
    """Bring the rows of each group together, and apply a function to parts that each hold some whole groups."""
    dask = _import_dask()

    partitions = plain.frame.select(*columns, *groups.names).to_native().to_delayed()
    parts = min(len(groups.keys), RANGES, max(len(partitions), 1))

    def split(partition: Any) -> list[Batch]:
        rows = _read_partition(partition, columns, groups)
        pieces = []
        for part in range(parts):
            own = rows["code"] % parts == part
            piece = {name: array[own] for name, array in rows.items()}
            pieces.append(piece)
        return pieces

    def apply(pieces: list[Batch]) -> Any:
        return function(iter(pieces))

    with engine_errors():
        delayed_split = dask.delayed(split, nout=parts)
        pieces_by_partition = [delayed_split(partition) for partition in partitions]
        tasks = []
        for part in range(parts):
            own_pieces = [pieces[part] for pieces in pieces_by_partition]
            tasks.append(dask.delayed(apply)(own_pieces))
        return list(dask.compute(*tasks))


def _read_partition(partition: Any, columns: Sequence[str], groups: CountedGroups | None) -> Batch:
    """Return columns of a partition as arrays; with groups also ``code``."""
    arrays = {name: partition[name].to_numpy() for name in columns}
    if groups is not None:
        arrays["code"] = _code_rows(partition, groups)
    return arrays
