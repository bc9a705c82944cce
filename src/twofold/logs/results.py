"""What an evaluation of a table returns: metrics with bounds and intervals, of one group or of many."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import islice
from typing import Any

from twofold._json import nan_to_none
from twofold._notebook import MOST_ROWS, NotebookTable, card
from twofold.errors import MissingExtra, UnknownName
from twofold.metrics import Bounded, Evaluation
from twofold.stats import Interval

Key = Any  # a value of the group column, or a tuple of the values of several

UNDEFINED = "undefined"
MOST_CANDIDATES = 1000  # groups among which a message looks for a similar name
_ARROWS = {"higher": "↑", "lower": "↓"}


@dataclass(frozen=True, eq=False, repr=False)
class TableEvaluation(Evaluation):
    """Hold the metrics of a table: an :class:`~twofold.metrics.Evaluation` with bounds and intervals.

    Parameters
    ----------
    values_ : dict of str to float
        The values, NaN where a metric is undefined.
    reasons : dict of str to str
        Why a metric is undefined, for each that is.
    n : int
        Number of rows.
    n_id : int
        Number of ID rows.
    n_ood : int
        Number of OOD rows.
    nan_rejected : int, default=0
        Number of rows without a confidence, which were ranked lowest.
    ood_share : float, optional
        The OOD prevalence to which OOD rows were reweighted.
    better : dict of str to {"higher", "lower"}, optional
        Which direction is better, by metric.
    bounds : dict of str to Bounded, optional
        Of each metric that was computed from counts in cells, the interval that contains its exact value.
    intervals : dict of str to Interval, optional
        Bootstrap intervals by metric, where they were asked for.
    """

    bounds: dict[str, Bounded] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Convert everything to plain Python values.

        Returns
        -------
        dict
            What :meth:`twofold.metrics.Evaluation.to_dict` gives, and ``bounds`` and ``intervals`` (lowest and highest
            value by metric) where there are any.
        """
        content = super().to_dict()
        if self.bounds:
            content["bounds"] = _list_ends(self.bounds)
        if self.intervals:
            content["intervals"] = _list_ends(self.intervals)
        return content

    def to_json(self, *, indent: int | None = 2) -> str:
        """Convert everything to strict JSON, with null for undefined metrics.

        Parameters
        ----------
        indent : int or None, default=2
            Spaces of indentation per level; None writes one line.

        Returns
        -------
        str
            The content of :meth:`to_dict`.
        """
        return json.dumps(plain_value(self.to_dict()), indent=indent)

    def __str__(self) -> str:
        lines = super().__str__().splitlines()
        width = max(map(len, self.values_), default=0)
        for place, line in enumerate(lines):
            name = line[:width].strip()
            if name in self.reasons:
                continue
            bound = self.bounds.get(name)
            if bound is not None and not bound.exact:
                lines[place] += f"  exact value in {_format_bound(bound)}"
            if name in self.intervals:
                lines[place] += f"  {_format_interval(self.intervals.get(name))}"
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Table{super().__repr__()}"

    def _repr_html_(self) -> str:
        columns = ["metric", "better", "value"]
        if self.bounds:
            columns.append("exact value in")
        if self.intervals:
            columns.append("interval")
        rows = [self._html_row(name, columns) for name in self.values_]
        facts = {"OOD share": self.ood_share, "NaN confidences": self.nan_rejected or None}
        title = f"Evaluation of {self.n:,} rows ({self.n_id:,} ID, {self.n_ood:,} OOD)"
        return card(title, facts, NotebookTable(columns, rows))

    def _html_row(self, name: str, columns: Sequence[str]) -> list[object]:
        """Return the cells of one metric."""
        value: object = self.values_[name]
        if name in self.reasons:
            value = f"undefined: {self.reasons[name]}"
        cells: list[object] = [name, _ARROWS.get(self.better.get(name, ""), ""), value]
        if "exact value in" in columns:
            cells.append(_format_bound(self.bounds.get(name)))
        if "interval" in columns:
            cells.append(_format_interval(self.intervals.get(name)))
        return cells


def _list_ends(ranges: Mapping[str, Bounded] | Mapping[str, Interval]) -> dict[str, list[float]]:
    """List the lowest and highest value of each metric."""
    ends = {}
    for name, one in ranges.items():
        ends[name] = [one.low, one.high]
    return ends


def _format_bound(bound: Bounded | None) -> str:
    """Format the range that contains an exact value; nothing where there is none."""
    if bound is None:
        return ""
    return f"[{bound.low:.6f}, {bound.high:.6f}]"


def _format_interval(interval: Interval | None) -> str:
    """Format a bootstrap interval; nothing where there is none."""
    if interval is None:
        return ""
    return f"[{interval.low:.5f}, {interval.high:.5f}]"


@dataclass(frozen=True, eq=False, repr=False)
class GroupedEvaluation(Mapping[Key, TableEvaluation]):
    """Map each group of a table to its metrics; printing and conversion make one table of all.

    Parameters
    ----------
    by : tuple of str
        Names of the group columns.
    groups : dict
        Evaluations by group: the value of the column, or a tuple of values for several columns.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from twofold import logs
    >>> table = pa.table({"model": ["a", "a", "b", "b"], "correct": [1, 0, 1, 1], "conf": [0.9, 0.2, 0.4, 0.3]})
    >>> result = logs.evaluate(table, by="model", metrics=["accuracy", "aurc"])
    >>> result["b"].accuracy, list(result)
    (1.0, ['a', 'b'])
    >>> print(result)
    model  n  accuracy ↑  aurc ↓
    a      2     0.50000 0.25000
    b      2     1.00000 0.00000
    """

    by: tuple[str, ...]
    groups: dict[Key, TableEvaluation]

    def __getitem__(self, key: Key) -> TableEvaluation:
        try:
            return self.groups[key]
        except (KeyError, TypeError):
            candidates = [str(group) for group in islice(self.groups, MOST_CANDIDATES)]
            raise UnknownName.of("group", str(key), candidates) from None

    def __iter__(self) -> Iterator[Key]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per group: the group columns, the counts and the metrics.

        Returns
        -------
        list of dict
            The rows; undefined metrics are NaN, and bounds and intervals have columns of their own.
        """
        return [self._row(key, result) for key, result in self.groups.items()]

    def _row(self, key: Key, result: TableEvaluation) -> dict[str, Any]:
        """Return the row of one group."""
        row: dict[str, Any] = dict(zip(self.by, key_values(key, self.by), strict=True))
        row["n"] = result.n
        row["n_id"] = result.n_id
        row["n_ood"] = result.n_ood
        row["nan_rejected"] = result.nan_rejected
        row |= result.values_
        for name, bound in result.bounds.items():
            row[f"{name}_low"] = bound.low
            row[f"{name}_high"] = bound.high
        for name, interval in result.intervals.items():
            row[f"{name}_ci_low"] = interval.low
            row[f"{name}_ci_high"] = interval.high
        return row

    def to_dict(self) -> dict[str, object]:
        """Convert everything to plain Python values.

        Returns
        -------
        dict
            ``by``, the names of the group columns, and ``groups``, a list with ``group`` (its values) and what
            :meth:`TableEvaluation.to_dict` gives for each.
        """
        listed = []
        for key, result in self.groups.items():
            listed.append({"group": list(key_values(key, self.by))} | result.to_dict())
        return {"by": list(self.by), "groups": listed}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Convert everything to strict JSON; dates are text, undefined metrics null.

        Parameters
        ----------
        indent : int or None, default=2
            Spaces of indentation per level; None writes one line.

        Returns
        -------
        str
            The content of :meth:`to_dict`.
        """
        return json.dumps(plain_value(self.to_dict()), indent=indent)

    def to_pandas(self) -> Any:
        """Convert to a pandas frame with a row for each group.

        Returns
        -------
        pandas.DataFrame
            The rows of :meth:`rows`, indexed by the group columns.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtra('to_pandas needs pandas: pip install "twofold[report]"') from error
        return pd.DataFrame(self.rows()).set_index(list(self.by))

    def to_arrow(self) -> Any:
        """Convert to a PyArrow table with a row for each group.

        Returns
        -------
        pyarrow.Table
            The rows of :meth:`rows`.
        """
        import pyarrow as pa

        return pa.Table.from_pylist(self.rows())

    def __str__(self) -> str:
        if not self.groups:
            return "no groups"
        table = [self._head()]
        for key, result in self.groups.items():
            cells = self._name_cells(key)
            cells.append(str(result.n))
            for value in result.values():
                cells.append(_format_value(value))
            table.append(cells)
        return format_table(table, len(self.by))

    def _name_cells(self, key: Key) -> list[str]:
        """Return the values of a group as text, one for each group column."""
        return [one_line(value) for value in key_values(key, self.by)]

    def _head(self) -> list[str]:
        """Return the names of the group columns, of the count and of the metrics, with arrows to the better side."""
        first = next(iter(self.groups.values()))
        head = [*self.by, "n"]
        for name in first:
            arrow = _ARROWS.get(first.better.get(name, ""), "")
            head.append(f"{name} {arrow}".rstrip())
        return head

    def __repr__(self) -> str:
        names = ", ".join(self.by)
        rows = sum(result.n for result in self.groups.values())
        return f"GroupedEvaluation({rows} rows in {len(self.groups)} groups by {names})"

    def _repr_html_(self) -> str:
        rows: list[list[object]] = []
        for key, result in islice(self.groups.items(), MOST_ROWS):
            cells: list[object] = [*self._name_cells(key), result.n]
            for value in result.values():
                if math.isnan(value):
                    cells.append(UNDEFINED)
                else:
                    cells.append(value)
            rows.append(cells)
        head = list(self.by)
        if self.groups:
            head = self._head()
        total = sum(result.n for result in self.groups.values())
        title = f"Evaluation of {total:,} rows in {len(self.groups):,} groups"
        return card(title, table=NotebookTable(head, rows, total=len(self.groups)))


def _format_value(value: float) -> str:
    """Format a metric of a printed table."""
    if math.isnan(value):
        return UNDEFINED
    return f"{value:.5f}"


def key_values(key: Key, by: Sequence[str]) -> tuple[Any, ...]:
    """Return the values of a group, one for each group column.

    Parameters
    ----------
    key : object
        The value of the group column, or a tuple of the values of several.
    by : sequence of str
        Names of the group columns.

    Returns
    -------
    tuple
        The values.

    Examples
    --------
    >>> key_values("a", ["model"]), key_values(("a", 1), ["model", "day"])
    (('a',), ('a', 1))
    """
    if len(by) == 1:
        return (key,)
    return tuple(key)


def format_table(table: Sequence[Sequence[str]], left: int) -> str:
    """Write rows of cells in columns.

    Parameters
    ----------
    table : sequence of sequences of str
        The cells, row by row; the first row is the head.
    left : int
        Number of columns that are aligned to the left.

    Returns
    -------
    str
        One line for each row.

    Examples
    --------
    >>> print(format_table([["name", "n"], ["a", "10"]], 1))
    name   n
    a     10
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            if place < left:
                cells.append(cell.ljust(width + 1))
            else:
                cells.append(cell.rjust(width))
        lines.append(" ".join(cells).rstrip())
    return "\n".join(lines)


def one_line(value: Any) -> str:
    """Write a group value on one line, without codes of a terminal.

    Parameters
    ----------
    value : object
        The value.

    Returns
    -------
    str
        Printable text; ``null`` for None.

    Examples
    --------
    >>> one_line("two\\nlines"), one_line(None)
    ('two lines', 'null')
    """
    if value is None:
        return "null"
    letters = []
    for letter in str(value):
        if letter.isprintable():
            letters.append(letter)
        else:
            letters.append(" ")
    return "".join(letters)


def plain_value(value: Any) -> Any:
    """Replace what JSON cannot hold: NaN, dates and other values of group columns.

    Parameters
    ----------
    value : object
        A value, or a list or dictionary of values.

    Returns
    -------
    object
        The same with None for NaN, and text for what JSON has no type for.

    Examples
    --------
    >>> plain_value({"day": date(2026, 1, 2), "aurc": float("nan")})
    {'day': '2026-01-02', 'aurc': None}
    """
    if isinstance(value, dict):
        return {str(name): plain_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(part) for part in value]
    if isinstance(value, float):
        if math.isinf(value):
            return str(value)
        return nan_to_none(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
