"""Take the columns of tables that are in memory as arrays, and number their groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from twofold._checks import AnyArray, Integers
from twofold.errors import InvalidInput
from twofold.logs.columns import ChosenColumns
from twofold.logs.tables import first_line


def read_arrays(columns: ChosenColumns) -> tuple[dict[str, AnyArray], list[Any]]:
    """Return the chosen columns as arrays by name, and the group columns as Arrow arrays."""
    import narwhals as nw

    try:
        frame = columns.raw().frame.lazy().collect()
    except Exception as error:  # each engine has its own
        raise InvalidInput(f"the columns cannot be computed: {first_line(error)}") from error
    arrays = {}
    for name in ("correct", "conf", "is_id", "conf_ood"):
        if name not in frame.columns:
            continue
        series = frame[name]
        if series.dtype == nw.Boolean() and name != "conf" and not series.is_null().any():
            arrays[name] = series.to_numpy().astype(bool, copy=False)
        else:
            arrays[name] = series.to_numpy()
    return arrays, [frame[name].to_arrow() for name in columns.group_names]


def number_groups(groups: list[Any]) -> tuple[list[tuple[Any, ...]], Integers]:
    """Return the distinct combinations of group values, sorted, and the number of each row's combination."""
    import pyarrow as pa
    import pyarrow.compute as pc

    code = np.zeros(len(groups[0]), np.int64)
    dictionaries = []
    for group in groups:
        array = group.combine_chunks() if isinstance(group, pa.ChunkedArray) else group
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        values = encoded.dictionary
        rank = np.empty(len(values), np.int64)
        rank[pc.array_sort_indices(values, null_placement="at_end").to_numpy()] = np.arange(len(values))
        ordered = values.take(pa.array(np.argsort(rank))).to_pylist()
        code = code * len(ordered) + rank[encoded.indices.to_numpy(zero_copy_only=False)]
        dictionaries.append(ordered)
    present, number = np.unique(code, return_inverse=True)
    keys = []
    for combined in present.tolist():
        values_of_key: list[Any] = []
        for ordered in reversed(dictionaries):
            combined, place = divmod(combined, len(ordered))
            values_of_key.insert(0, ordered[place])
        keys.append(tuple(values_of_key))
    return keys, number
