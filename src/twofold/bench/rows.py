"""Rows of results: which columns they have, how they are checked, and how they are grouped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from twofold import metrics
from twofold._checks import Array
from twofold.errors import InvalidInput, UnknownName
from twofold.roles import OOD_TEST
from twofold.stats.table import Better

ResultRow: TypeAlias = Mapping[str, Any]  # by column: text, a whole number, a real number or None
Key: TypeAlias = tuple[str | None, ...]  # the values of KEY in a row
CheckedTexts: TypeAlias = dict[tuple[str, str], str | float | None]  # by column and text: what the row holds

COLUMNS = (
    *("benchmark", "model", "recipe", "seed", "run", "score", "pair", "shift", "role", "protocol", "metric"),
    *("value", "low", "high", "level", "resamples", "n", "n_id", "n_ood"),
    *("tuned", "chosen", "reason", "better", "version", "command"),
)
REAL = ("value", "low", "high", "level")
WHOLE = ("seed", "resamples", "n", "n_id", "n_ood")
KEY = ("run", "score", "pair", "shift", "protocol", "metric")  # what replicates belong to
IDENTITY = ("benchmark", "model", "recipe", "seed", *KEY)  # no two rows with a metric agree in all of these
CHOICES = {"tuned": ("untuned", "ID-tuned", "OOD-tuned"), "better": ("higher", "lower")}
VALIDATION = "validation"  # shift of rows on validation data, which choose and are never compared

ROLE_GROUPS = (*OOD_TEST, "corruption")  # shifts that stand for all data sets of the role of that name
WIDE_GROUPS = ("pooled", "mean", "average")  # shifts that stand for data sets of several roles


def method(row: ResultRow) -> str:
    """Name the method of a row: its score, or both scores of a pair.

    Parameters
    ----------
    row : mapping
        A row of results.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> method({"score": "msp", "pair": "energy"})
    'msp + energy'
    """
    if row["pair"] is None:
        return str(row["score"])
    return f"{row['score']} + {row['pair']}"


def key_of(row: ResultRow) -> Key:
    """Read the values of ``KEY`` from a row, by which its replicates are stored.

    Parameters
    ----------
    row : mapping
        A row of results.

    Returns
    -------
    tuple of str or None
        Its run, score, pair, shift, protocol and metric.

    Examples
    --------
    >>> key_of({"run": "a", "score": "msp", "pair": None, "shift": "svhn", "protocol": "joint", "metric": "f1"})
    ('a', 'msp', None, 'svhn', 'joint', 'f1')
    """
    return tuple(row[column] for column in KEY)


def read_columns(row: ResultRow, columns: Sequence[str]) -> tuple[object, ...]:
    """Read the values of some columns from a row.

    Parameters
    ----------
    row : mapping
        A row of results.
    columns : sequence of str
        Names of columns.

    Returns
    -------
    tuple
        The values in the order of ``columns``.
    """
    return tuple(row[column] for column in columns)


def read_column(rows: Iterable[ResultRow], column: str) -> list[Any]:
    """Read the values of one column from rows.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results.
    column : str
        Name of the column.

    Returns
    -------
    list
        One value per row, None among them.

    Examples
    --------
    >>> read_column([{"score": "msp"}, {"score": None}], "score")
    ['msp', None]
    """
    return [row[column] for row in rows]


def transpose_rows(rows: Sequence[ResultRow]) -> dict[str, list[object]]:
    """Arrange rows as columns.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of results.

    Returns
    -------
    dict of str to list
        The values of each column, in the order of ``COLUMNS``.
    """
    return {column: read_column(rows, column) for column in COLUMNS}


def measured_rows(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Keep the rows that have a metric; others say why something is missing.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results.

    Returns
    -------
    list of mapping
        The rows kept, in order.
    """
    return [row for row in rows if row["metric"] is not None]


def valued_rows(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Keep the rows that have a metric and its value.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results.

    Returns
    -------
    list of mapping
        The rows kept, in order.
    """
    return [row for row in measured_rows(rows) if not is_missing(row["value"])]


def _tested_rows(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Keep the rows that are not of validation data."""
    return [row for row in rows if row["shift"] != VALIDATION]


def is_missing(value: float | None) -> bool:
    """Check whether a value is None or NaN.

    Parameters
    ----------
    value : float or None
        The value of a row.

    Returns
    -------
    bool
        True if there is no value.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing(0.0)
    (True, True, False)
    """
    return value is None or math.isnan(value)


# --- checks ---------------------------------------------------------------------------------------------------------


def check_column(column: str) -> None:
    """Check that results have a column.

    Parameters
    ----------
    column : str
        Name of the column.

    Raises
    ------
    UnknownName
        If there is no such column; the message lists the nearest names.
    """
    if column not in COLUMNS:
        raise UnknownName.of("column", str(column), COLUMNS)


def check_rows(rows: Iterable[ResultRow]) -> tuple[ResultRow, ...]:
    """Check rows and copy them, with None in the columns that a row lacks.

    Parameters
    ----------
    rows : iterable of mapping
        Values by column.

    Returns
    -------
    tuple of mapping
        Read-only rows with all columns.

    Raises
    ------
    InvalidInput
        If a column is unknown or holds a value of the wrong kind, a value has no metric, or two rows with a metric
        agree in all of ``IDENTITY``.
    """
    checked_texts: CheckedTexts = {}  # columns repeat few texts: each is checked once
    checked = tuple(_check_row(row, number, checked_texts) for number, row in enumerate(rows))
    _check_unique(checked, IDENTITY)
    return checked


def check_replicates(replicates: Mapping[Key, ArrayLike], rows: Iterable[ResultRow]) -> dict[Key, Array]:
    """Check bootstrap replicates and copy them.

    Parameters
    ----------
    replicates : mapping of tuple to array-like
        One-dimensional arrays by the values of ``KEY``.
    rows : iterable of mapping
        The rows that they belong to.

    Returns
    -------
    dict of tuple to ndarray
        Read-only copies.

    Raises
    ------
    InvalidInput
        If an array is not one-dimensional, belongs to no row or to two, or its key has another length than ``KEY``.
    """
    checked = {tuple(key): _check_replicate(key, array) for key, array in replicates.items()}
    if not checked:
        return checked
    owners = [row for row in rows if key_of(row) in checked]
    _check_unique(owners, KEY)
    without_row = checked.keys() - set(map(key_of, owners))
    if without_row:
        raise InvalidInput(
            f"replicates of {next(iter(without_row))} belong to no row; keys are the {', '.join(KEY)} of a row"
        )
    return checked


def _check_row(row: ResultRow, number: int, checked_texts: CheckedTexts) -> ResultRow:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"row {number} must be a mapping from columns to values, got {type(row).__name__}")
    for column in row:
        if column not in COLUMNS:
            raise InvalidInput(f"row {number}: {UnknownName.of('column', str(column), COLUMNS)}")
    checked: dict[str, Any] = {}
    for column in COLUMNS:
        value = row.get(column)
        kind = type(value)
        if value is None or (kind is float and column in REAL):
            checked[column] = value
        elif kind is str:
            if (column, value) not in checked_texts:
                checked_texts[column, value] = _check_cell(column, value, number)
            checked[column] = checked_texts[column, value]
        else:
            checked[column] = _check_cell(column, value, number)
    if checked["metric"] is None and not is_missing(checked["value"]):
        raise InvalidInput(f"row {number} has the value {checked['value']} but no metric; say what was measured")
    return MappingProxyType(checked)


def _check_cell(column: str, value: object, number: int) -> str | float | None:
    """Check one value of a row that is not None; return it as a plain Python value."""
    is_flag = isinstance(value, bool | np.bool_)
    if column in REAL:
        if isinstance(value, Real) and not is_flag:
            return float(value)
        raise InvalidInput(f"{column} of row {number} must be a number or None, got {value!r}")
    if column in WHOLE:
        if isinstance(value, Integral) and not is_flag and abs(int(value)) < 2**63:
            return int(value)
        raise InvalidInput(f"{column} of row {number} must be a whole number or None, got {value!r}")
    if not isinstance(value, str):
        raise InvalidInput(f"{column} of row {number} must be text or None, got {value!r}")
    text = value if value.isprintable() else _normalise_text(value, column, number)
    if text and column in CHOICES and text not in CHOICES[column]:
        raise InvalidInput(f"{column} of row {number}: {UnknownName.of('choice', text, CHOICES[column])}")
    return text or None


def _normalise_text(text: str, column: str, number: int) -> str:
    """Make text that every file format here can hold: no lone surrogate, no NUL, lines that end in a newline alone."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{column} of row {number} must be text that UTF-8 can hold, got {text!r}") from error
    if "\0" in text:
        raise InvalidInput(f"{column} of row {number} must not hold the character NUL, got {text!r}")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _check_replicate(key: Sequence[object], array: ArrayLike) -> Array:
    values = np.array(array, dtype=np.float64)  # a copy, so that nobody changes it from outside
    if len(key) != len(KEY) or values.ndim != 1:
        raise InvalidInput(
            f"replicates must be one-dimensional arrays by ({', '.join(KEY)}), got shape {values.shape} for {key!r}"
        )
    values.flags.writeable = False
    return values


def _check_unique(rows: Iterable[ResultRow], columns: tuple[str, ...]) -> None:
    """Raise if two rows with a metric agree in all columns."""
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        identity = read_columns(row, columns)
        if row["metric"] is not None and identity in seen:
            parts = []
            for column in columns:
                if row[column] is not None:
                    parts.append(f"{column} {row[column]!r}")
            raise InvalidInput(
                f"two rows have {', '.join(parts)}; keep one of them, or make them differ in one of these columns"
            )
        seen.add(identity)


def describe_conflict(one: ResultRow, other: ResultRow) -> str:
    """Say in which columns two rows differ and how to keep one of them, for an error message.

    Parameters
    ----------
    one, other : mapping
        Two rows where one was expected.

    Returns
    -------
    str
        The beginning of a sentence, which ends in a semicolon.
    """
    parts = []
    for column in COLUMNS[: COLUMNS.index("value")]:
        if one[column] != other[column]:
            parts.append(f"{column} ({one[column]} and {other[column]})")
    shown = ", ".join(parts) or "nothing but the value"
    advice = "filter() one of them"
    if one["seed"] != other["seed"]:
        advice += ", or take over_seeds()"
    return f"there are two rows that differ in {shown}; {advice};"


# --- groups of rows -------------------------------------------------------------------------------------------------


def group_rows(rows: Iterable[ResultRow], columns: Sequence[str]) -> dict[tuple[object, ...], list[ResultRow]]:
    """Group rows that agree in some columns.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results.
    columns : sequence of str
        Columns in which the rows of a group agree.

    Returns
    -------
    dict of tuple to list of mapping
        Rows by the values of the columns, in order of first appearance.
    """
    groups: dict[tuple[object, ...], list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(read_columns(row, columns), []).append(row)
    return groups


def rows_of_metric(rows: Sequence[ResultRow], metric: str, protocol: str | None) -> list[ResultRow]:
    """Select the rows of one metric under one protocol, without validation data where there are other rows.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of one or more benchmarks.
    metric : str
        Name of the metric.
    protocol : str or None
        Name of the protocol; None where only one has the metric.

    Returns
    -------
    list of mapping
        The rows.

    Raises
    ------
    UnknownName
        If no row has the metric.
    InvalidInput
        If several protocols have the metric and ``protocol`` is None, or ``protocol`` does not have it.
    """
    by_metric = group_rows(rows, ("metric",))
    if (metric,) not in by_metric:
        known = sorted(set(read_column(measured_rows(rows), "metric")))
        raise UnknownName.of("metric of these results", str(metric), known)
    by_protocol = group_rows(by_metric[metric,], ("protocol",))
    protocols = ", ".join(str(name) for (name,) in by_protocol)
    if protocol is None:
        if len(by_protocol) > 1:
            raise InvalidInput(f"{metric} was measured under several protocols; give protocol= one of {protocols}")
        (selected,) = by_protocol.values()
    elif (protocol,) in by_protocol:
        selected = by_protocol[protocol,]
    else:
        raise InvalidInput(f"{metric} was not measured under protocol {protocol!r}, but under {protocols}")
    return _tested_rows(selected) or selected


def better_of(rows: Iterable[ResultRow]) -> Better:
    """Find the direction in which the values of one metric get better.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of one metric. A row whose column ``better`` is None takes the direction of the registered metric.

    Returns
    -------
    str
        ``"higher"`` or ``"lower"``.

    Raises
    ------
    InvalidInput
        If rows disagree, or the metric is not registered and a row does not name the direction.

    Examples
    --------
    >>> better_of([{"metric": "aurc", "better": None}])
    'lower'
    """
    directions = set()
    metric = None
    for row in rows:
        metric = row["metric"]
        directions.add(row["better"] or registered_direction(metric))
    if len(directions) != 1:
        raise InvalidInput(f"rows of {metric} disagree on whether higher or lower is better; correct the column better")
    if "higher" in directions:
        return "higher"
    return "lower"


def registered_direction(metric: str) -> str:
    """Look up the direction in which a registered metric gets better.

    Parameters
    ----------
    metric : str
        Name of the metric, with or without the suffix ``_ood``.

    Returns
    -------
    str
        ``"higher"`` or ``"lower"``.

    Raises
    ------
    InvalidInput
        If the metric is not registered.

    Examples
    --------
    >>> registered_direction("auroc_ood")
    'higher'
    >>> registered_direction("risk_at_coverage_0.95")
    'lower'
    """
    if metric.startswith("risk_at_coverage_"):
        return "lower"
    try:
        return metrics.info(metric).better
    except UnknownName as error:
        raise InvalidInput(f"rows of {metric} must say higher or lower in the column better: {error}") from error


def finest(rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Keep rows so that no data are counted twice: no validation data, and no average or pool beside its members.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results.

    Returns
    -------
    list of mapping
        The rows kept, in order; those without a metric are left out.

    Notes
    -----
    A shift such as near or corruption, which stands for the data sets of a role, is kept where none of them is present;
    pooled and mean are kept where nothing else is.

    Examples
    --------
    >>> near = {"role": "near", "metric": "f1", "score": "msp", "pair": None, "protocol": None}
    >>> near |= {"benchmark": None, "model": None, "recipe": None, "seed": None, "run": None}
    >>> [row["shift"] for row in finest([near | {"shift": "cifar100"}, near | {"shift": "near"}])]
    ['cifar100']
    """
    same_value = ("benchmark", "model", "recipe", "seed", "run", "score", "pair", "protocol", "metric")
    tested = _tested_rows(measured_rows(rows))
    kept: set[int] = set()
    for group in group_rows(tested, same_value).values():
        kept.update(map(id, _finest_of_group(group)))
    return [row for row in tested if id(row) in kept]


def _finest_of_group(group: Sequence[ResultRow]) -> Sequence[ResultRow]:
    """Keep single data sets, and averages over roles that have none; all rows where there is neither."""
    finest_rows = [row for row in group if not _is_aggregate(row)]
    roles = set(read_column(finest_rows, "role"))
    for row in group:
        if _stands_for_role(row) and not _has_members(row, roles):
            finest_rows.append(row)
    return finest_rows or group


def _stands_for_role(row: ResultRow) -> bool:
    return row["shift"] in ROLE_GROUPS and row["role"] in (None, row["shift"])


def _is_aggregate(row: ResultRow) -> bool:
    is_wide = row["shift"] in WIDE_GROUPS and row["role"] in (None, *WIDE_GROUPS)
    return is_wide or _stands_for_role(row)


def _has_members(row: ResultRow, roles: set[str | None]) -> bool:
    """Check whether data sets that an average stands for are present, by the roles beside it."""
    if row["role"] is None:
        return bool(roles)
    return row["role"] in roles
