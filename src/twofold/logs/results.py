"""What an evaluation of a table returns: metrics with bounds and intervals, of one group or of many."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from twofold._json import nan_to_none
from twofold._notebook import MOST_ROWS, NotebookTable, card
from twofold.errors import MissingExtra, UnknownName
from twofold.metrics import Bounded, Evaluation
from twofold.stats import Interval

Key = Any  # a value of the group column, or a tuple of the values of several

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
            content["bounds"] = {name: [bound.low, bound.high] for name, bound in self.bounds.items()}
        if self.intervals:
            content["intervals"] = {name: [part.low, part.high] for name, part in self.intervals.items()}
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
            if name in self.bounds and not self.bounds[name].exact:
                bound = self.bounds[name]
                lines[place] += f"  exact value in [{bound.low:.6f}, {bound.high:.6f}]"
            if name in self.intervals:
                part = self.intervals[name]
                lines[place] += f"  [{part.low:.5f}, {part.high:.5f}]"
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
            bound = self.bounds.get(name)
            cells.append("" if bound is None else f"[{bound.low:.6f}, {bound.high:.6f}]")
        if "interval" in columns:
            interval = self.intervals.get(name)
            cells.append("" if interval is None else f"[{interval.low:.5f}, {interval.high:.5f}]")
        return cells


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
            raise UnknownName.of("group", str(key), [str(one) for one in list(self.groups)[:1000]]) from None

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
        rows = []
        for key, result in self.groups.items():
            row: dict[str, Any] = dict(zip(self.by, key_values(key, self.by), strict=True))
            row |= {"n": result.n, "n_id": result.n_id, "n_ood": result.n_ood, "nan_rejected": result.nan_rejected}
            row |= result.values_
            for name, bound in result.bounds.items():
                row |= {f"{name}_low": bound.low, f"{name}_high": bound.high}
            for name, interval in result.intervals.items():
                row |= {f"{name}_ci_low": interval.low, f"{name}_ci_high": interval.high}
            rows.append(row)
        return rows

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
            cells = [one_line(value) for value in key_values(key, self.by)]
            cells.append(str(result.n))
            for value in result.values():
                cells.append("undefined" if math.isnan(value) else f"{value:.5f}")
            table.append(cells)
        return format_table(table, len(self.by))

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
        for key, result in list(self.groups.items())[:MOST_ROWS]:
            cells: list[object] = [one_line(value) for value in key_values(key, self.by)]
            cells.append(result.n)
            for value in result.values():
                cells.append("undefined" if math.isnan(value) else value)
            rows.append(cells)
        head = self._head() if self.groups else list(self.by)
        total = sum(result.n for result in self.groups.values())
        title = f"Evaluation of {total:,} rows in {len(self.groups):,} groups"
        return card(title, table=NotebookTable(head, rows, total=len(self.groups)))


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
    return "".join(sign if sign.isprintable() else " " for sign in str(value))


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
        return nan_to_none(value) if math.isfinite(value) or math.isnan(value) else str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
