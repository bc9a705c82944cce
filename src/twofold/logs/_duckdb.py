"""Stream rows of a DuckDB relation in order, or as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from twofold._checks import AnyArray
from twofold.errors import InvalidInput
from twofold.logs.groups import CountedGroups
from twofold.logs.ordered import CHANGED
from twofold.logs.tables import LogTable, first_line

BATCH = 1 << 17  # rows of a batch

Batch = dict[str, AnyArray]


def group_order(counted: Any, groups: Sequence[str]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return counted groups in the order in which their rows are streamed, and the keys of that order.

    Sorting by a hash of the group is several times faster than by texts. Where two groups share a hash, a longer one is
    taken, and at last the columns themselves.
    """
    listed = ", ".join(groups)
    relation = counted.to_native()
    for key in (f"(hash({listed}) >> 32)::UINTEGER", f"hash({listed})"):
        rows = relation.project(f"*, {key} AS h").order("h").to_arrow_table()
        if len(rows["h"].unique()) == len(rows):
            return rows.to_pylist(), (key,)
    order = ", ".join(f"{group} ASC NULLS LAST" for group in groups)
    return relation.order(order).to_arrow_table().to_pylist(), tuple(groups)


def ordered_batches(table: LogTable, keys: Sequence[str], conf: str, columns: Sequence[str]) -> Iterator[Batch]:
    """Yield columns ordered by the keys of groups, then by falling confidence; DuckDB sorts, out of core if need be."""
    yield from _read(order_rows(table, keys, conf, columns), columns)


def order_rows(table: LogTable, keys: Sequence[str], conf: str, columns: Sequence[str]) -> Any:
    """Return the relation of columns ordered by the keys of groups, then by falling confidence."""
    named = [f"{key} AS h{place}" for place, key in enumerate(keys)]
    order = [f"h{place} ASC NULLS LAST" for place in range(len(keys))]
    relation = table.frame.to_native().project(", ".join([*named, *columns]))
    return relation.order(", ".join([*order, f"{conf} DESC"]))


def fold_groups(
    table: LogTable, columns: Sequence[str], function: Callable[[Iterator[Batch]], Any], groups: CountedGroups
) -> list[Any]:
    """Apply a function to the rows of each group, which come together; the rows of one group are held at a time."""
    stream = ordered_batches(table, groups.order, columns[0], columns)
    held: dict[str, list[AnyArray]] = {name: [] for name in columns}
    rows_held = 0
    results = []
    for place, rows in enumerate(groups.rows.tolist()):
        while rows_held < rows:
            batch = next(stream, None)
            if batch is None:
                raise InvalidInput(CHANGED)
            rows_held += len(batch[columns[0]])
            for name in columns:
                held[name].append(batch[name])
        own = {"code": np.full(rows, place)}
        for name in columns:
            joined = np.concatenate(held[name])
            own[name] = joined[:rows]
            held[name] = [joined[rows:]]
        rows_held -= rows
        results.append(function(iter([own])))
    if rows_held or next(stream, None) is not None:
        raise InvalidInput(CHANGED)
    return results


def fold(
    table: LogTable,
    columns: Sequence[str],
    function: Callable[[Iterator[Batch]], Any],
    groups: CountedGroups | None,
    workers: int,
) -> list[Any]:
    """Apply a function in each of some threads that share the batches, and return the results."""
    shared = _SharedBatches(_batches(table, columns, groups))
    if workers == 1:
        return [function(shared)]
    with ThreadPoolExecutor(workers) as pool:
        try:
            return list(pool.map(lambda _: function(shared), range(workers)))
        finally:
            shared.stopped = True  # threads end soon after an error or an interrupt


class _SharedBatches:
    """Hand out batches to several threads, each batch to one."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.batches = batches
        self.lock = threading.Lock()
        self.stopped = False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        with self.lock:
            if self.stopped:
                raise StopIteration
            return next(self.batches)


def _batches(table: LogTable, columns: Sequence[str], groups: CountedGroups | None) -> Iterator[Batch]:
    """Yield columns in any order; with groups also ``code``."""
    if groups is None:
        yield from _read(table.frame.select(*columns).to_native(), columns)
        return
    relation = table.frame.select(*columns, *groups.names).to_native()
    for batch in _read_arrow(relation):
        arrays = _as_arrays(batch, columns)
        arrays["code"] = groups.code_rows([batch.column(name) for name in groups.names])
        yield arrays


def _read(relation: Any, columns: Sequence[str]) -> Iterator[Batch]:
    for batch in _read_arrow(relation):
        yield _as_arrays(batch, columns)


def _as_arrays(batch: Any, columns: Sequence[str]) -> Batch:
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in columns}


def _read_arrow(relation: Any) -> Iterator[Any]:
    import duckdb

    try:
        reader = relation.to_arrow_reader(BATCH)  # a DB-API result may come out of order
    except duckdb.Error as error:
        raise InvalidInput(f"the table cannot be read: {first_line(error)}") from error
    try:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (duckdb.Error, OSError, ValueError) as error:
                raise InvalidInput(f"the table cannot be read: {first_line(error)}") from error
            yield batch
    finally:
        reader.close()
