"""Choose the columns of an evaluation, validate them by counting, and make the plain columns that engines sort.

The column convention: ``id`` (of the input), ``time``, ``model``, ``label``, ``prediction``, ``correct``, ``is_id``,
``conf_id`` and ``conf_ood``. Arguments that are left out are looked up by these names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold._checks import NaNPolicy, choice
from twofold.errors import InvalidInput, TwofoldError
from twofold.logs import _duckdb
from twofold.logs.expressions import as_expressions, parse_expression
from twofold.logs.groups import CountedGroups, sort_key
from twofold.logs.ordered import Counts
from twofold.logs.tables import LogTable, first_line, was_interrupted

if TYPE_CHECKING:
    import narwhals as nw

CORRECT = ("correct", "label = prediction")  # where correctness is looked up
LARGEST = 2**53  # integers from here on are not exact in float64


@dataclass(frozen=True, eq=False)
class ChosenColumns:
    """Hold the expressions of one evaluation over the frame of a table.

    Parameters
    ----------
    table : LogTable
        The table, filtered.
    correct, conf : narwhals.Expr
        Truth and confidence.
    is_id, conf_ood : narwhals.Expr or None
        Whether a row is in-distribution, and the second confidence.
    by : dict of str to narwhals.Expr
        Group columns by the names that the caller gave.
    nan : {"error", "reject"}
        What a missing confidence means.
    """

    table: LogTable
    correct: nw.Expr
    conf: nw.Expr
    is_id: nw.Expr | None
    conf_ood: nw.Expr | None
    by: dict[str, nw.Expr]
    nan: NaNPolicy

    @property
    def group_names(self) -> list[str]:
        """Plain names of the group columns."""
        return [f"g{place}" for place in range(len(self.by))]

    def raw(self) -> LogTable:
        """Return the chosen columns under plain names, as they are in the table."""
        columns = {"correct": self.correct, "conf": self.conf}
        if self.is_id is not None:
            columns["is_id"] = self.is_id
        if self.conf_ood is not None:
            columns["conf_ood"] = self.conf_ood
        for name, expression in zip(self.group_names, self.by.values(), strict=True):
            columns[name] = expression
        return self.table.select(**columns)


def choose_columns(
    table: LogTable,
    *,
    correct: Any = None,
    conf: Any = None,
    is_id: Any = None,
    conf_ood: Any = None,
    by: Any = (),
    where: Any = None,
    nan: NaNPolicy = "error",
) -> ChosenColumns:
    """Look up the columns of an evaluation.

    Parameters
    ----------
    table : LogTable
        The table.
    correct : str or narwhals.Expr, optional
        Whether the prediction is correct; by default the column ``correct``, or ``label = prediction``.
    conf : str or narwhals.Expr, optional
        Confidence; by default the column ``conf`` or ``conf_id``.
    is_id : str or narwhals.Expr, optional
        Whether the row is in-distribution; by default the column ``is_id``, or ``label <> -1`` where labels are whole
        numbers. ``"true"`` takes all rows as ID.
    conf_ood : str or narwhals.Expr, optional
        A second confidence.
    by : str, narwhals.Expr or sequence of these, default=()
        Columns whose values make groups.
    where : str or narwhals.Expr, optional
        Rows to keep.
    nan : {"error", "reject"}, default="error"
        Whether a missing confidence is an error or is ranked lowest.

    Returns
    -------
    ChosenColumns
        The expressions.

    Raises
    ------
    UnknownName
        If a column does not exist.
    InvalidInput
        If a column is missing, or is of the wrong type.
    """
    choice(nan, "nan", ("error", "reject"))
    table = keep_rows(table, where)
    if correct is None:
        correct = default_column(table, "correct", CORRECT)
    if conf is None:
        conf = default_column(table, "conf", ("conf", "conf_id"))
    if is_id is None:
        is_id = default_is_id(table)
    known = second = None
    if is_id is not None:
        known = as_expression(table, is_id, "is_id")
    if conf_ood is not None:
        second = as_expression(table, conf_ood, "conf_ood")
    if second is not None and known is None:
        raise InvalidInput("conf_ood needs is_id, which says which rows are ID")
    return ChosenColumns(
        table=table,
        correct=as_expression(table, correct, "correct"),
        conf=as_expression(table, conf, "conf"),
        is_id=known,
        conf_ood=second,
        by=name_groups(table, by),
        nan=nan,
    )


def keep_rows(table: LogTable, where: Any) -> LogTable:
    """Leave out rows.

    Parameters
    ----------
    table : LogTable
        The table.
    where : str, narwhals.Expr or None
        Rows to keep; None for all.

    Returns
    -------
    LogTable
        The table with these rows.

    Raises
    ------
    InvalidInput
        If ``where`` is neither true nor false, or is the same for all rows.
    """
    import narwhals as nw

    if where is None:
        return table
    expression = as_expression(table, where, "where")
    dtype = type_of(table, expression)
    if dtype not in (nw.Boolean(), nw.Object(), nw.Unknown()):  # pandas may hold booleans and None as objects
        raise InvalidInput(f'where must be true or false in each row, got {dtype}; write a comparison, such as "n > 0"')
    with engine_errors():
        try:
            kept = table.frame.filter(expression)
        except nw.exceptions.InvalidOperationError as error:
            raise InvalidInput("where must differ by row; name a column in it, or leave it out") from error
    return LogTable(kept, table.engine, table.names, table.files)


def type_of(table: LogTable, expression: nw.Expr) -> nw.dtypes.DType:
    """Look up the type of an expression over a table.

    Parameters
    ----------
    table : LogTable
        The table.
    expression : narwhals.Expr
        The expression.

    Returns
    -------
    narwhals.dtypes.DType
        Its type.

    Raises
    ------
    InvalidInput
        If the engine cannot compute it.
    """
    with engine_errors():
        dtype: nw.dtypes.DType = _schema(table.select(value=expression))["value"]
    return dtype


def check_groups(by: Iterable[str], dtypes: Iterable[nw.dtypes.DType]) -> None:
    """Raise if a group column holds lists or structures.

    Parameters
    ----------
    by : iterable of str
        Names of the group columns, as the caller gave them.
    dtypes : iterable of narwhals.dtypes.DType
        Their types.

    Raises
    ------
    InvalidInput
        If there is such a column.
    """
    for name, dtype in zip(by, dtypes, strict=True):
        if dtype.is_nested():
            raise InvalidInput(f"by must name columns of texts, numbers, dates or booleans, and {name} holds {dtype}")


def name_groups(table: LogTable, by: Any) -> dict[str, nw.Expr]:
    """Look up the columns whose values make groups.

    Parameters
    ----------
    table : LogTable
        The table.
    by : str, narwhals.Expr or sequence of these
        The columns or expressions.

    Returns
    -------
    dict of str to narwhals.Expr
        The expressions by their text; other expressions are called ``group 1``, ``group 2``, ...
    """
    groups: dict[str, nw.Expr] = {}
    for expression in as_expressions(by):
        name = expression if isinstance(expression, str) else f"group {len(groups) + 1}"
        groups[name] = as_expression(table, expression, "by")
    return groups


def as_expression(table: LogTable, value: Any, name: str) -> nw.Expr:
    """Return a column, or an expression as text, as an expression of narwhals.

    Parameters
    ----------
    table : LogTable
        The table.
    value : str or narwhals.Expr
        The column or expression.
    name : str
        What it is for, as errors say it.

    Returns
    -------
    narwhals.Expr
        The expression.

    Raises
    ------
    UnknownName
        If a column does not exist.
    InvalidInput
        If the value is something else, or not an expression.
    """
    import narwhals as nw

    if isinstance(value, nw.Expr):
        return value
    if isinstance(value, str):
        return parse_expression(value, table.names, name, floats=_float_columns(table))
    raise InvalidInput(f"{name} must be a column, an expression as text, or a narwhals expression, got {value!r}")


def _float_columns(table: LogTable) -> set[str]:
    """Return the columns of a frame that may hold NaN."""
    return {name for name, dtype in _schema(table).items() if dtype.is_float()}


def default_column(table: LogTable, name: str, candidates: Sequence[str]) -> str:
    """Return the first candidate whose columns the table has.

    Parameters
    ----------
    table : LogTable
        The table.
    name : str
        The argument that was left out.
    candidates : sequence of str
        Columns, or comparisons of two.

    Returns
    -------
    str
        The candidate.

    Raises
    ------
    InvalidInput
        If the table has none of them.
    """
    for candidate in candidates:
        if has_columns(table, [candidate]):
            return candidate
    raise InvalidInput(
        f"the table has no column {name}; pass {name}= with a column or an expression. Its columns are "
        f"{', '.join(sorted(table.names))[:500] or 'none'}"
    )


def has_columns(table: LogTable, candidates: Sequence[str]) -> bool:
    """Check whether a table has the columns of one of some candidates.

    Parameters
    ----------
    table : LogTable
        The table.
    candidates : sequence of str
        Columns, or comparisons of two.

    Returns
    -------
    bool
        Whether it has them.
    """
    names = set(table.names)
    return any(names.issuperset(candidate.split(" = ")) for candidate in candidates)


def default_is_id(table: LogTable) -> str | None:
    """Take the column ``is_id``, or the law that the label -1 means OOD.

    Parameters
    ----------
    table : LogTable
        The table.

    Returns
    -------
    str or None
        A column or expression; None if the table says nothing about it.
    """
    if "is_id" in table.names:
        return "is_id"
    if "label" not in table.names:
        return None
    dtype = _schema(table)[table.names["label"]]
    return "label <> -1" if dtype.is_integer() else None


def _schema(table: LogTable) -> Any:
    return table.frame.collect_schema()


# What is wrong with the rows, as counts


def plain_columns(columns: ChosenColumns) -> LogTable:
    """Return the columns that an engine counts and sorts: kind, conf, conf_ood, groups, and what is wrong in each row.

    Parameters
    ----------
    columns : ChosenColumns
        The chosen columns.

    Returns
    -------
    LogTable
        ``kind`` (0 correct, 1 wrong, 3 OOD), ``conf`` and ``conf_ood`` in float64, group columns ``g0``, ``g1``, ...,
        and booleans ``bad_correct``, ``bad_is_id``, ``bad_pair``, ``bad_conf`` and ``missing``.

    Raises
    ------
    InvalidInput
        If a column is of the wrong type.
    """
    import narwhals as nw

    with engine_errors():
        raw = columns.raw()
        schema = _schema(raw)
    check_groups(columns.by, [schema[name] for name in columns.group_names])
    right, bad_correct = truth(schema["correct"], "correct")
    inside, bad_is_id = nw.lit(True), nw.lit(False)
    if columns.is_id is not None:
        inside, bad_is_id = truth(schema["is_id"], "is_id")
    number = nw.Int8()
    chosen = {"kind": (3 - 2 * inside.cast(number) - right.cast(number)).cast(number)}
    missing, beyond = nw.lit(False), nw.lit(False)
    for name in ("conf", "conf_ood"):
        if name not in schema:
            continue
        value, is_missing, is_beyond = _confidence(schema[name], name)
        if columns.nan == "reject":
            value = nw.when(is_missing).then(nw.lit(-np.inf)).otherwise(value)
        chosen[name] = value
        missing, beyond = missing | is_missing, beyond | is_beyond
    for name in columns.group_names:
        chosen[name] = nw.col(name)
    chosen["bad_correct"] = bad_correct
    chosen["bad_is_id"] = bad_is_id
    chosen["bad_pair"] = right & ~inside
    chosen["bad_conf"] = beyond
    chosen["missing"] = missing
    return raw.select(**chosen)


def truth(dtype: nw.dtypes.DType, name: str) -> tuple[nw.Expr, nw.Expr]:
    """Return a column as booleans, and where it is neither true nor false.

    Parameters
    ----------
    dtype : narwhals.dtypes.DType
        Its type.
    name : str
        Its name.

    Returns
    -------
    pair of narwhals.Expr
        The booleans, and where the column is null or another number than 0 and 1.

    Raises
    ------
    InvalidInput
        If the column holds neither booleans nor numbers.
    """
    import narwhals as nw

    column = nw.col(name)
    if dtype == nw.Boolean():
        return column.fill_null(False), column.is_null()
    if not dtype.is_numeric():
        raise InvalidInput(
            f"{name} must hold booleans or 0/1, got {dtype}; pass an expression such as \"label = 'cat'\""
        )
    is_one = (column == 1).fill_null(False)
    return is_one, ~is_one & ~(column == 0).fill_null(False)


def _confidence(dtype: nw.dtypes.DType, name: str) -> tuple[nw.Expr, nw.Expr, nw.Expr]:
    """Return a column as float64, where it is missing, and where float64 cannot hold it."""
    import narwhals as nw

    column = nw.col(name)
    if not dtype.is_numeric():
        raise InvalidInput(f"{name} must hold numbers, got {dtype}; pass the scores themselves")
    value = column.cast(nw.Float64())
    if dtype.is_float():
        return value, value.is_null() | value.is_nan().fill_null(False), nw.lit(False)
    if dtype in (nw.Int64(), nw.UInt64()):
        return value, column.is_null(), (value.abs() >= float(LARGEST)).fill_null(False)
    return value, column.is_null(), nw.lit(False)


def count_groups(plain: LogTable, columns: ChosenColumns) -> CountedGroups:
    """Count the rows of each kind and group in one scan, and raise if any row is not valid.

    Parameters
    ----------
    plain : LogTable
        What :func:`plain_columns` made.
    columns : ChosenColumns
        The chosen columns.

    Returns
    -------
    CountedGroups
        Groups in ascending order, null last.

    Raises
    ------
    InvalidInput
        If the table has no row, or rows are not valid; the message says how many.
    """
    groups = columns.group_names
    rows, order = _read_counts(plain, groups)
    numbers: dict[str, Counts] = {}
    for name in _COUNTED:
        numbers[name] = np.array([int(row[name] or 0) for row in rows], np.int64)
    totals = np.stack([numbers["right"], numbers["wrong"], numbers["outside"]], axis=1)
    sums = {name: int(counts.sum()) for name, counts in numbers.items()}
    _check_counts(sums, int(totals.sum()), columns)
    keys = [tuple(row[name] for name in groups) for row in rows]
    return CountedGroups(keys, totals, numbers["missing"], order, tuple(groups))


_WRONG = ("bad_correct", "bad_is_id", "bad_pair", "bad_conf", "missing")  # ways in which a row may not be valid
_COUNTED = ("right", "wrong", "outside", *_WRONG)


def _read_counts(plain: LogTable, groups: list[str]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the counts of each group, and what the engine sorts by to bring its rows together."""
    import narwhals as nw

    flags = {"right": nw.col("kind") == 0, "wrong": nw.col("kind") == 1, "outside": nw.col("kind") == 3}
    for name in _WRONG:
        flags[name] = nw.col(name)
    numbers = []  # of 0 and 1, under names that no column has
    sums = []
    for name, flag in flags.items():
        numbers.append(flag.cast(nw.Int64()).alias(f"n_{name}"))
        sums.append(nw.col(f"n_{name}").sum().alias(name))
    frame = plain.frame.select(*groups, *numbers)
    if not groups:
        return read_rows(frame.select(*sums)), ()
    counted = frame.group_by(*groups).agg(*sums)
    if plain.engine == "duckdb":
        with engine_errors():
            return _duckdb.group_order(counted, groups)
    rows = read_rows(counted)
    rows.sort(key=lambda row: sort_key([row[name] for name in groups]))
    return rows, tuple(groups)


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """Turn what an engine raises into one line.

    Raises
    ------
    InvalidInput
        If the engine fails, with its reason.
    """
    try:
        yield
    except (TwofoldError, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # each engine has its own
        if was_interrupted(error):
            raise
        raise InvalidInput(f"the table cannot be read: {first_line(error)}") from error


def read_rows(frame: Any) -> list[dict[str, Any]]:
    """Run a small query and return its rows.

    Parameters
    ----------
    frame : narwhals.LazyFrame
        The query.

    Returns
    -------
    list of dict
        The rows.

    Raises
    ------
    InvalidInput
        If the engine fails, with its reason.
    """
    with engine_errors():
        rows: list[dict[str, Any]] = frame.lazy().collect().rows(named=True)
        return rows


def check_truths(sums: dict[str, int], n: int) -> None:
    """Raise if there is no row, or ``correct`` or ``is_id`` is not valid in some.

    Parameters
    ----------
    sums : dict of str to int
        Number of rows that are wrong in each way.
    n : int
        Number of rows.

    Raises
    ------
    InvalidInput
        If there is such a row, or none at all.
    """
    if n == 0:
        raise InvalidInput("the table has no row; at least one is needed")
    for name in ("correct", "is_id"):
        if sums[f"bad_{name}"]:
            raise InvalidInput(
                f"{name} must be booleans or 0/1, and is null or another number in {sums[f'bad_{name}']} of {n} rows; "
                "leave them out with where="
            )
    if sums["bad_pair"]:
        raise InvalidInput(
            f"correct must be False on OOD samples, and is True in {sums['bad_pair']} rows where is_id is False; "
            "no prediction is correct for an input of no known class"
        )


def _check_counts(sums: dict[str, int], n: int, columns: ChosenColumns) -> None:
    """Raise if any row is not valid, by the rules of arrays."""
    check_truths(sums, n)
    if sums["bad_conf"]:
        raise InvalidInput(
            f"a confidence holds integers of 2^53 or more in {sums['bad_conf']} rows, which float64 cannot hold "
            "exactly; rank them first"
        )
    if sums["missing"] and columns.nan != "reject":
        raise InvalidInput(
            f"a confidence is NaN or null in {sums['missing']} of {n} rows; fix the score, leave the rows out with "
            'where=, or pass nan="reject" to rank such rows lowest'
        )
