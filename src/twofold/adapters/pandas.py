"""Convert data frames: read outputs with a column per class; write outputs, decisions and evaluations as tables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._checks import Labels
from twofold.errors import InvalidInput, MissingExtra
from twofold.gate import Decision, ReportCard
from twofold.metrics import Evaluation
from twofold.outputs import Outputs

Columns = str | Sequence[Hashable]
DataFrame: TypeAlias = Any  # of pandas or polars, which are optional
Series: TypeAlias = Any  # a column of it


def outputs_of(
    frame: DataFrame, *, logits: Columns = "logit_", labels: Hashable | None = None, features: Columns | None = None
) -> Outputs:
    """Read outputs from a data frame of pandas or polars with a row per sample.

    Parameters
    ----------
    frame : pandas.DataFrame or polars.DataFrame
        The table. A pandas index becomes the ids if it is unique text or whole numbers.
    logits : str or sequence of column names, default="logit_"
        The columns of logits, or the prefix of their names, in the order of the frame. The names without the prefix are
        the class names. Columns may be named by integers, as those of ``DataFrame(array)`` are.
    labels : column name, optional
        A column of class numbers or of class names, nullable or not. -1, a missing value, and a name that is not a
        class name mean OOD. Numbers count classes from 0 in the order of the columns; where the columns of logits are
        named by integers, they are those names.
    features : str or sequence of column names, optional
        The columns of features, or the prefix of their names.

    Returns
    -------
    Outputs
        One row per row of the frame.

    Raises
    ------
    InvalidInput
        If ``frame`` is not a data frame, a column is missing, a logit is not a finite number, or labels are fractions,
        truth values or numbers of no class.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"logit_cat": [2.0, 0.0], "logit_dog": [0.0, 1.0], "truth": ["cat", "bird"]})
    >>> outputs_of(frame, labels="truth").labels
    array([ 0, -1])
    >>> outputs_of(pd.DataFrame([[2.0, 0.5]]), logits=[0, 1]).class_names
    ('0', '1')
    """
    if not hasattr(frame, "to_numpy") or not hasattr(frame, "columns"):
        hint = "; call .collect() first" if hasattr(frame, "collect") else ""
        raise InvalidInput(f"frame must be a data frame of pandas or polars, got {type(frame).__name__}{hint}")
    columns = _columns(frame, logits, "logits")
    names = [str(column) for column in columns]
    if isinstance(logits, str):
        names = [name.removeprefix(logits) for name in names]
    truth = None
    if labels is not None:
        (label_column,) = _columns(frame, [labels], "labels")
        truth = _class_numbers(frame[label_column], columns, names)
    feature_rows = None
    if features is not None:
        feature_rows = frame[_columns(frame, features, "features")].to_numpy()
    return Outputs(frame[columns].to_numpy(), truth, feature_rows, ids=_ids(frame), class_names=names)


def _columns(frame: DataFrame, wanted: Columns, argument: str) -> list[Hashable]:
    """Return the columns of these names, or with this prefix, as the frame names them."""
    by_text: dict[str, Hashable] = {str(column): column for column in frame.columns}
    listed = ", ".join(by_text)
    if isinstance(wanted, str):
        found = [column for text, column in by_text.items() if text.startswith(wanted)]
        if not found:
            raise InvalidInput(f"{argument}: no column begins with {wanted!r}; the frame has {listed}")
        return found
    for name in wanted:
        if str(name) not in by_text:
            raise InvalidInput(f"{argument}: no column {name!r}; the frame has {listed}")
    return [by_text[str(name)] for name in wanted]


def _class_numbers(column: Series, columns: Sequence[Hashable], names: Sequence[str]) -> Labels:
    """Return the number of each label's class, -1 where the label is missing or not a class."""
    labels = [None if _is_missing(value) else value for value in column.to_list()]
    number_of: Mapping[Hashable, int]
    if _are_names(labels, names, column.name):
        number_of = {name: number for number, name in enumerate(names)}
        labels = [None if label is None else str(label) for label in labels]
    elif all(isinstance(name, int | np.integer) for name in columns):
        number_of = {name: number for number, name in enumerate(columns)}
    else:
        return np.array([-1 if label is None else int(label) for label in labels], dtype=np.int64)
    return np.array([number_of.get(label, -1) for label in labels], dtype=np.int64)


def _are_names(labels: Sequence[object], names: Sequence[str], column: Hashable) -> bool:
    """Return whether labels are class names, not class numbers; raise if they are neither."""
    has_fractions = False
    for label in labels:
        if label is None:
            continue
        if isinstance(label, bool | np.bool_):
            if "True" in names or "False" in names:
                return True
            raise InvalidInput(f"labels: column {column!r} has truth values; give class numbers or names")
        if not isinstance(label, Real):
            return True
        has_fractions |= not float(label).is_integer()
    if has_fractions:
        raise InvalidInput(f"labels: column {column!r} has fractions; give class numbers or names")
    return False


def _is_missing(value: object) -> bool:
    """Return whether a cell is None, NaN or what pandas writes for a missing value."""
    is_nan = isinstance(value, float | np.floating) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _ids(frame: DataFrame) -> npt.NDArray[Any] | None:
    """Return a pandas index of unique text or whole numbers, or None if there is no such index."""
    index = getattr(frame, "index", None)  # polars has none
    if index is None or not index.is_unique or index.inferred_type not in ("string", "integer"):
        return None
    return np.asarray(index.tolist())


def to_frame(what: Outputs | Decision | Evaluation | ReportCard) -> DataFrame:
    """Convert outputs, a decision, an evaluation or a report card to a pandas data frame.

    Parameters
    ----------
    what : Outputs, Decision, Evaluation or ReportCard
        What to convert.

    Returns
    -------
    pandas.DataFrame
        A row per sample of outputs or of a decision; a single row of an evaluation or report card. Columns of outputs
        are those that :func:`outputs_of` reads, ``logit_NAME`` (or its number) and ``label``, with ``prediction`` and
        ``feature_NUMBER``; their ids are the index. Columns of a decision are ``labels``, ``verdict`` and the
        confidences and margins that it has.

    Raises
    ------
    InvalidInput
        If ``what`` is another object.
    MissingExtra
        If pandas is not installed.

    Examples
    --------
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
        decision = {}
        for name in ("labels", "verdict", "conf_id", "conf_ood", "margin_id", "margin_ood"):
            value = getattr(what, name)
            if value is not None:
                decision[name] = value
        return pd.DataFrame(decision)
    if not isinstance(what, Outputs):
        raise InvalidInput(
            f"to_frame takes Outputs, a Decision, an Evaluation or a ReportCard, got {type(what).__name__}"
        )
    names = what.class_names or tuple(str(k) for k in range(what.classes))
    columns: dict[str, npt.NDArray[Any]] = {}
    for k, name in enumerate(names):
        columns[f"logit_{name}"] = what.logits[:, k]
    if what.labels is not None:
        columns["label"] = what.labels
    columns["prediction"] = what.predictions
    if what.features is not None:
        for j in range(what.features.shape[1]):
            columns[f"feature_{j}"] = what.features[:, j]
    return pd.DataFrame(columns, index=what.ids)
