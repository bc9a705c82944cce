"""Order and reduce the rows of a Spark frame: partition by ranges, count each, then reduce each on its own.

Two jobs run over the same persisted partitions: Spark counts, and Python reduces. One small row for each group of a
partition comes back. Workers need twofold installed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from twofold._checks import AnyArray
from twofold.logs._parts import PartCounts, PartPlan, plan_parts
from twofold.logs.columns import engine_errors
from twofold.logs.groups import CountedGroups
from twofold.logs.ordered import OrderedSums
from twofold.logs.tables import LogTable

FEWEST_PARTS = 16
ROWS_OF_PART = 4_000_000

_SUMS = "code long, sums binary, cells binary"
_RESULT = "result binary"

Fold = Callable[[Iterator[dict[str, AnyArray]]], Any]


def reduce_ordered(plain: LogTable, counted: CountedGroups, conf: str, share: float | None, cells: int) -> OrderedSums:
    """Reduce all rows, ordered by group and falling confidence, to the sums of each group."""
    from pyspark import StorageLevel

    ranged = order_rows(plain, counted, conf).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with engine_errors():
            counts = _count_parts(ranged)
            places = sorted(counts)
            plans = plan_parts([counts[place] for place in places], counted.totals, share, cells)
            by_part = dict(zip(places, plans, strict=True))
            rows = ranged.mapInArrow(_reducer(by_part, conf), _SUMS).collect()
    finally:
        ranged.unpersist()
    sums = OrderedSums(counted.totals, share, cells=cells)
    for row in rows:
        own = np.frombuffer(row["sums"])
        own_cells = np.frombuffer(row["cells"], np.int64).reshape(cells, 3)
        sums.add_part(int(row["code"]), own, own_cells)
    return sums


def order_rows(plain: LogTable, counted: CountedGroups, conf: str) -> Any:
    """Return the frame of the confidence and the kind, partitioned by ranges and sorted in each partition."""
    from pyspark.sql import functions as f

    frame = _with_codes(plain, counted, (conf, "kind"))
    parts = max(FEWEST_PARTS, int(counted.totals.sum()) // ROWS_OF_PART)
    order = [f.col(conf).desc()]
    if counted.names:
        order.insert(0, f.col("code"))
    return frame.repartitionByRange(parts, *order).sortWithinPartitions(*order)


def _with_codes(plain: LogTable, counted: CountedGroups, columns: Sequence[str]) -> Any:
    """Return the columns and, with groups, the number of each row's group as ``code``."""
    frame = plain.frame.select(*columns, *counted.names).to_native()
    if not counted.names:
        return frame
    from pyspark.sql import functions as f

    rows = [(*key, place) for place, key in enumerate(counted.keys)]
    types = [field for field in frame.schema.fields if field.name in counted.names]
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in types) + ", code long"
    listed = frame.sparkSession.createDataFrame(rows, schema).alias("listed")
    same = None
    for name in counted.names:
        equal = frame[name].eqNullSafe(f.col(f"listed.{name}"))
        same = equal if same is None else same & equal
    joined = frame.join(f.broadcast(listed), same, "inner")
    return joined.select(f.col("code"), *[frame[name] for name in columns])


def _count_parts(ranged: Any) -> dict[int, PartCounts]:
    """Count the rows of each partition by group and kind, which Spark does without Python."""
    from pyspark.sql import functions as f

    code = f.col("code") if "code" in ranged.columns else f.lit(0)
    keys = f.spark_partition_id().alias("part"), code.alias("group"), f.col("kind")
    found: dict[int, dict[int, AnyArray]] = {}
    for part, group, kind, rows in ranged.groupBy(*keys).count().collect():
        groups = found.setdefault(part, {})
        counts = groups.setdefault(group, np.zeros(3, np.int64))
        counts[min(kind, 2)] += rows
    parts = {}
    for part, groups in found.items():
        codes = sorted(groups)
        parts[part] = PartCounts(np.array(codes, np.int64), np.array([groups[code] for code in codes]))
    return parts


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return -1 if context is None else int(context.partitionId())


def _reducer(plans: dict[int, PartPlan], conf: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Make the function for mapInArrow that reduces one partition."""

    def reduce(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        plan = plans.get(_partition())
        if plan is None:
            return
        sums = plan.reduce((batch.column(conf).to_numpy(), batch.column("kind").to_numpy()) for batch in batches)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(plan.own.codes),
                pa.array([row.tobytes() for row in sums.sums], pa.binary()),
                pa.array([row.tobytes() for row in sums.cells], pa.binary()),
            ],
            ["code", "sums", "cells"],
        )

    return reduce


def fold(plain: LogTable, columns: Sequence[str], function: Fold, groups: CountedGroups | None) -> list[Any]:
    """Apply a function, which returns a tuple of arrays, to each partition and return the results.

    With groups, batches also have ``code``.
    """
    if groups is None:
        return _apply(plain.frame.select(*columns).to_native(), columns, function)
    return _apply(_with_codes(plain, groups, columns), (*columns, "code"), function)


def fold_groups(plain: LogTable, columns: Sequence[str], function: Fold, groups: CountedGroups) -> list[Any]:
    """Bring the rows of each group together, and apply a function to partitions that each hold some whole groups."""
    parts = max(FEWEST_PARTS, int(groups.totals.sum()) // ROWS_OF_PART)
    frame = _with_codes(plain, groups, columns).repartition(min(parts, len(groups.keys)), "code")
    return _apply(frame, (*columns, "code"), function)


def _apply(frame: Any, columns: Sequence[str], function: Fold) -> list[Any]:
    """Apply a function to the batches of each partition, and bring back the arrays that it returns."""

    def apply(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        arrays = function({name: batch.column(name).to_numpy() for name in columns} for batch in batches)
        file = io.BytesIO()
        np.savez(file, *arrays, allow_pickle=False)
        yield pa.RecordBatch.from_arrays([pa.array([file.getvalue()], pa.binary())], ["result"])

    with engine_errors():
        rows = frame.mapInArrow(apply, _RESULT).collect()
    results = []
    for row in rows:
        with np.load(io.BytesIO(row["result"]), allow_pickle=False) as file:
            results.append(tuple(file[name] for name in file.files))
    return results
