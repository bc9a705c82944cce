"""Convert data frames: read outputs with a column per class; write outputs, decisions and evaluations as tables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from twofold._checks import AnyArray, Labels
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
        message = f"frame must be a data frame of pandas or polars, got {type(frame).__name__}"
        if hasattr(frame, "collect"):  # a lazy frame of polars
            message += "; call .collect() first"
        raise InvalidInput(message)
    columns = _find_columns(frame, logits, "logits")
    names = list(map(str, columns))
    if isinstance(logits, str):
        names = [name.removeprefix(logits) for name in names]
    truth = None
    if labels is not None:
        (label_column,) = _find_columns(frame, [labels], "labels")
        truth = _number_labels(frame[label_column], columns, names)
    feature_rows = None
    if features is not None:
        feature_rows = frame[_find_columns(frame, features, "features")].to_numpy()
    return Outputs(frame[columns].to_numpy(), truth, feature_rows, ids=_ids(frame), class_names=names)


def _find_columns(frame: DataFrame, wanted: Columns, argument: str) -> list[Hashable]:
    """Return the columns of these names, or with this prefix, as the frame names them."""
    by_text: dict[str, Hashable] = {str(column): column for column in frame.columns}
    listed = ", ".join(by_text)
    found = []
    if isinstance(wanted, str):
        for text, column in by_text.items():
            if text.startswith(wanted):
                found.append(column)
        if not found:
            raise InvalidInput(f"{argument}: no column begins with {wanted!r}; the frame has {listed}")
        return found
    for name in wanted:
        if str(name) not in by_text:
            raise InvalidInput(f"{argument}: no column {name!r}; the frame has {listed}")
        found.append(by_text[str(name)])
    return found


def _number_labels(column: Series, columns: Sequence[Hashable], names: Sequence[str]) -> Labels:
    """Return the number of each label's class, -1 where the label is missing or not a class."""
    labels = column.to_list()
    present = [label for label in labels if not _is_missing(label)]
    are_names = _are_names(present, names, column.name)
    are_columns = all(isinstance(name, int | np.integer) for name in columns)
    number_of_name = {name: number for number, name in enumerate(names)}
    number_of_column = {name: number for number, name in enumerate(columns)}
    numbers = []
    for label in labels:
        if _is_missing(label):
            numbers.append(-1)
        elif are_names:
            numbers.append(number_of_name.get(str(label), -1))
        elif are_columns:
            numbers.append(number_of_column.get(label, -1))
        else:
            numbers.append(int(label))
    return np.array(numbers, dtype=np.int64)


def _are_names(labels: Sequence[object], names: Sequence[str], column: Hashable) -> bool:
    """Return whether labels are class names, not class numbers; raise if they are neither."""
    has_fractions = False
    for label in labels:
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


def _ids(frame: DataFrame) -> AnyArray | None:
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
    names = what.class_names or tuple(map(str, range(what.classes)))
    columns: dict[str, AnyArray] = {}
    for k, name in enumerate(names):
        columns[f"logit_{name}"] = what.logits[:, k]
    if what.labels is not None:
        columns["label"] = what.labels
    columns["prediction"] = what.predictions
    if what.features is not None:
        for j in range(what.features.shape[1]):
            columns[f"feature_{j}"] = what.features[:, j]
    return pd.DataFrame(columns, index=what.ids)
