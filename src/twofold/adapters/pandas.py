"""Data frames in and out: outputs with a column per class, decisions and evaluations as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from twofold._checks import Labels
from twofold.errors import InvalidInput, MissingExtra
from twofold.gate import Decision, ReportCard
from twofold.metrics import Evaluation
from twofold.outputs import Outputs

Columns = str | Sequence[str]


def outputs_of(
    frame: Any, *, logits: Columns = "logit_", labels: str | None = None, features: Columns | None = None
) -> Outputs:
    """Outputs from a data frame with a row per sample.

    ``logits`` and ``features`` are lists of columns, or what their names begin with, in the order of the frame; what
    follows that beginning are the class names. ``labels`` is a column of class numbers or of class names; -1, and
    missing or other names, are OOD. The index becomes the ids if it is unique text or whole numbers.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"logit_cat": [2.0, 0.0], "logit_dog": [0.0, 1.0], "truth": ["cat", "bird"]})
    >>> outputs_of(frame, labels="truth").labels
    array([ 0, -1])
    """
    columns = _columns(frame, logits, "logits")
    names = [c.removeprefix(logits) for c in columns] if isinstance(logits, str) else columns
    truth = None if labels is None else _truth(frame[_columns(frame, [labels], "labels")[0]], names)
    index = frame.index
    text = index.inferred_type == "string"
    ids = np.asarray(index.tolist()) if index.is_unique and (text or index.inferred_type == "integer") else None
    held = None if features is None else frame[_columns(frame, features, "features")].to_numpy()
    return Outputs(frame[columns].to_numpy(), truth, held, ids=ids, class_names=names)


def _columns(frame: Any, wanted: Columns, what: str) -> list[str]:
    given = [str(c) for c in frame.columns]
    if isinstance(wanted, str):
        found = [c for c in given if c.startswith(wanted)]
        if not found:
            raise InvalidInput(f"{what}: no column begins with {wanted!r}; the frame has {', '.join(given)}")
        return found
    for name in wanted:
        if name not in given:
            raise InvalidInput(f"{what}: no column {name!r}; the frame has {', '.join(given)}")
    return list(wanted)


def _truth(column: Any, names: Sequence[str]) -> Labels:
    if column.dtype.kind in "iu":
        return np.asarray(column.to_numpy(), dtype=np.int64)
    if column.dtype.kind == "f":
        raise InvalidInput(f"labels: column {column.name!r} has fractions or gaps; give class numbers or names")
    place = {name: i for i, name in enumerate(names)}
    return np.array([place.get(str(value), -1) for value in column], dtype=np.int64)


def to_frame(what: Outputs | Decision | Evaluation | ReportCard) -> Any:
    """A data frame: a row per sample of outputs or of a decision, or a single row of an evaluation or report card.

    Columns of outputs are those that :func:`outputs_of` reads, ``logit_NAME`` (or its number) and ``label``, with
    ``prediction`` and ``feature_NUMBER``.

    >>> to_frame(Outputs([[2.0, 0.5]], labels=[1])).to_dict("list")
    {'logit_0': [2.0], 'logit_1': [0.5], 'label': [1], 'prediction': [0]}
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtra('to_frame needs pandas: pip install "twofold[report]"') from error
    if isinstance(what, Evaluation):
        return pd.DataFrame([dict(what)])
    if isinstance(what, ReportCard):
        return pd.DataFrame([what.to_dict()])
    if isinstance(what, Decision):
        given = {
            name: getattr(what, name)
            for name in ("labels", "verdict", "conf_id", "conf_ood", "margin_id", "margin_ood")
        }
        return pd.DataFrame({name: value for name, value in given.items() if value is not None})
    if not isinstance(what, Outputs):
        raise InvalidInput(
            f"to_frame takes Outputs, a Decision, an Evaluation or a ReportCard, got {type(what).__name__}"
        )
    names = what.class_names or tuple(str(k) for k in range(what.classes))
    columns: dict[str, Any] = {f"logit_{name}": what.logits[:, k] for k, name in enumerate(names)}
    if what.labels is not None:
        columns["label"] = what.labels
    columns["prediction"] = what.predictions
    if what.features is not None:
        columns |= {f"feature_{j}": what.features[:, j] for j in range(what.features.shape[1])}
    return pd.DataFrame(columns, index=what.ids)
