"""Take the columns of tables that are in memory as arrays."""

from __future__ import annotations

from typing import Any

from twofold._checks import AnyArray
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
