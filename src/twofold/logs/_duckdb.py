"""Stream rows of a DuckDB relation in order, or as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from twofold._checks import AnyArray
from twofold.errors import InvalidInput
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
    named = [f"{key} AS h{place}" for place, key in enumerate(keys)]
    order = [f"h{place} ASC NULLS LAST" for place in range(len(keys))]
    relation = table.frame.to_native().project(", ".join([*named, *columns]))
    yield from _read(relation.order(", ".join([*order, f"{conf} DESC"])), columns)


def batches(table: LogTable, columns: Sequence[str]) -> Iterator[Batch]:
    """Yield columns in any order."""
    yield from _read(table.frame.select(*columns).to_native(), columns)


def _read(relation: Any, columns: Sequence[str]) -> Iterator[Batch]:
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
            yield {name: batch.column(name).to_numpy(zero_copy_only=False) for name in columns}
    finally:
        reader.close()
