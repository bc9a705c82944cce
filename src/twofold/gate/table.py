"""Write decisions as a table, in the column convention that :mod:`twofold.logs` reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold import _checks
from twofold._checks import ArrayLike
from twofold.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from twofold.gate.gate import Decision


def decision_table(
    decision: Decision, *, ids: Sequence[Any] | None, time: Any, model: str | None, label: ArrayLike | None
) -> Any:
    """Make the table of :meth:`twofold.gate.gate.Decision.to_arrow`.

    Parameters
    ----------
    decision : Decision
        The decisions.
    ids : sequence or None
        Identifiers of the inputs.
    time : datetime, sequence of datetime or None
        When the decisions were made.
    model : str or None
        Name of the model.
    label : array-like of int or None
        True classes, -1 for OOD.

    Returns
    -------
    pyarrow.Table
        The table.

    Raises
    ------
    MissingExtra
        If PyArrow is not installed.
    InvalidInput
        If an argument has another number of rows.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtra('tables of decisions need PyArrow: pip install "twofold[logs]"') from error
    count = len(decision)
    columns: dict[str, Any] = {"id": list(range(count)) if ids is None else list(ids)}
    if time is not None:
        columns["time"] = [time] * count if isinstance(time, datetime) else list(time)
    if model is not None:
        columns["model"] = [model] * count
    if label is not None:
        classes = _checks.labels(label, "label")
        columns["label"] = classes
    columns["prediction"] = decision.labels
    columns["conf_id"] = decision.conf_id
    if decision.conf_ood is not None:
        columns["conf_ood"] = decision.conf_ood
    if label is not None:
        columns["is_id"] = classes != -1
    columns["verdict"] = np.asarray(decision.verdict, dtype=object)
    columns["margin_id"] = decision.margin_id
    if decision.margin_ood is not None:
        columns["margin_ood"] = decision.margin_ood
    for name, column in columns.items():
        if len(column) != count:
            raise InvalidInput(f"{name} has {len(column)} rows but there are {count} decisions")
    return pa.table({name: pa.array(column) for name, column in columns.items()})
