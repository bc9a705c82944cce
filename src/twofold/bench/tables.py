"""Tables of results: one metric by two sets of labels, with the best values and those statistically tied with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from twofold._checks import Array, Mask, as_names
from twofold.bench.rows import (
    COLUMNS,
    Key,
    ResultRow,
    better_of,
    check_column,
    describe_conflict,
    is_missing,
    key_of,
    method,
    rows_of_metric,
)
from twofold.bench.text import coverage_of, latex_document, latex_table, markdown_table, scale, title
from twofold.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import PivotDisplay
    from twofold.plot.themes import ThemeName

ColumnNames: TypeAlias = str | tuple[str, ...]
Grid: TypeAlias = Sequence[Sequence[ResultRow | None]]  # the row of each cell, None where there is none

DEFAULT_LEVEL = 0.95  # of paired differences, where intervals name no level


@dataclass(frozen=True, eq=False)
class Pivot:
    """Hold one metric as a table: labels, values and their intervals.

    Parameters
    ----------
    metric : str
        Name of the metric.
    index, columns : tuple of str
        Labels of the rows and columns.
    values : ndarray of shape (n_index, n_columns)
        The values, NaN where there is none.
    lows, highs : ndarray of shape (n_index, n_columns)
        Limits of the intervals, NaN where there are none.
    better : {"higher", "lower"}
        Direction in which values get better.
    level : float, optional
        Confidence level; None where intervals have several levels or are a standard deviation over seeds.
    notes : tuple of str, default=()
        Why cells are empty, and what is missing as a whole.
    replicates : mapping of (int, int) to (str, ndarray), default={}
        Run and bootstrap values of cells, by row and column.
    protocol : str, optional
        The protocol the metric was measured under.
    """

    metric: str
    index: tuple[str, ...]
    columns: tuple[str, ...]
    values: Array
    lows: Array
    highs: Array
    better: str
    level: float | None = None
    notes: tuple[str, ...] = ()
    replicates: Mapping[tuple[int, int], tuple[str, Array]] = field(default_factory=dict, repr=False)
    protocol: str | None = None

    @property
    def best(self) -> Mask:
        """The best value of each column as a boolean mask; all of them where several are equal.

        Returns
        -------
        ndarray of bool, shape (n_index, n_columns)
            False in columns without a value.
        """
        is_known = ~np.isnan(self.values)
        if self.better == "higher":
            top = np.where(is_known, self.values, -np.inf).max(axis=0)
        else:
            top = np.where(is_known, self.values, np.inf).min(axis=0)
        return np.asarray((self.values == top) & is_known)

    @property
    def tied(self) -> Mask:
        """Values statistically tied with the best of their column, as a boolean mask that leaves out the best itself.

        Returns
        -------
        ndarray of bool, shape (n_index, n_columns)
            With replicates of both in one run: whether the interval of the paired difference holds zero. Otherwise:
            whether the interval of the value holds the best value.
        """
        best = self.best
        tied = np.zeros_like(best)
        for j in range(len(self.columns)):
            leaders = np.flatnonzero(best[:, j])
            if not len(leaders):
                continue
            for i in np.flatnonzero(~best[:, j]):
                tied[i, j] = self._is_tied(int(i), int(leaders[0]), j)
        return tied

    @property
    def _paired_level(self) -> float:
        """Level of the intervals of paired differences."""
        return DEFAULT_LEVEL if self.level is None else self.level

    def _is_tied(self, row: int, leader: int, column: int) -> bool:
        gaps = self._paired_gaps(row, leader, column)
        if len(gaps):
            low, high = np.quantile(gaps, ((1 - self._paired_level) / 2, (1 + self._paired_level) / 2))
            return bool(low <= 0.0 <= high)
        return bool(self.lows[row, column] <= self.values[leader, column] <= self.highs[row, column])

    def _paired_gaps(self, row: int, leader: int, column: int) -> Array:
        """Compute the differences of paired replicates that have a value; empty where none are paired."""
        no_replicates = ("", np.empty(0))
        own_run, own = self.replicates.get((row, column), no_replicates)
        leader_run, best = self.replicates.get((leader, column), no_replicates)
        if own_run != leader_run or len(own) != len(best):
            return np.empty(0)
        gaps = own - best
        return np.asarray(gaps[~np.isnan(gaps)])

    @property
    def caption(self) -> str:
        """The sentences that explain the numbers and marks of the printed table.

        Returns
        -------
        str
            Metric, unit, direction, coverage, and what bold and the dagger mean.
        """
        heading = f"{title(self.metric)}, {self.better} is better{coverage_of(self.metric, self.protocol)}"
        return f"{heading}. Bold: best of the column. Dagger: tied for best, {self._tie_rule()}."

    def _tie_rule(self) -> str:
        if self.replicates:
            rule = f"the {self._paired_level:.0%} interval of the paired bootstrap difference to the best holds zero"
            n_values = np.count_nonzero(~np.isnan(self.values))
            if len(self.replicates) < n_values:
                rule += ", or, without paired replicates, the interval of the value holds the best value"
            return rule
        if self.level is not None:
            return f"the {self.level:.0%} interval of the value holds the best value"
        return "the best value lies within the interval of the value (one standard deviation after over_seeds)"

    def plot(self, ax: Axes | None = None, *, digits: int = 2, theme: ThemeName | None = None) -> PivotDisplay:
        """Draw the table as a heat map: strong colour is good, bold is best.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        digits : int, default=2
            Digits after the decimal point.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        PivotDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import PivotDisplay

        return PivotDisplay.from_pivot(self, digits=digits).plot(ax, theme=theme)

    def to_markdown(self, *, digits: int = 2) -> str:
        """Format the table as Markdown: best values bold, ties with a dagger.

        Parameters
        ----------
        digits : int, default=2
            Digits after the decimal point.

        Returns
        -------
        str
            The table, then the caption and what is missing.
        """
        cells = self._format_cells(digits, bold="**{}**", dagger="{}†", empty="–")
        return markdown_table(self.index, self.columns, cells, self.caption, self.notes)

    def to_latex(
        self, *, digits: int = 2, intervals: bool = True, label: str | None = None, document: bool = False
    ) -> str:
        """Format the table as LaTeX with booktabs: intervals, best values bold, ties with a dagger.

        Parameters
        ----------
        digits : int, default=2
            Digits after the decimal point.
        intervals : bool, default=True
            Whether values have their intervals beside them, where there are any.
        label : str, optional
            Name for references to the table.
        document : bool, default=False
            Whether to write a whole document, which compiles as it is.

        Returns
        -------
        str
            A float; its caption names metric, protocol and convention, and ends with what is missing.

        Raises
        ------
        InvalidInput
            If the label has other characters than letters, digits and ``:.-``.

        Examples
        --------
        >>> from twofold.bench.results import Results
        >>> values = {"msp": 0.2, "knn": 0.1}
        >>> rows = [{"score": s, "shift": "svhn", "metric": "aurc", "value": v} for s, v in values.items()]
        >>> print(Results.of(rows).pivot(metric="aurc").to_latex(label="tab:aurc"), end="")  # doctest: +ELLIPSIS
        \\begin{table}
        \\centering
        \\begin{tabular}{lr}
        \\toprule
         & svhn \\\\
        \\midrule
        msp & 200.00 \\\\
        knn & \\textbf{100.00} \\\\
        \\bottomrule
        \\end{tabular}
        \\caption{aurc (x1000), lower is better, coverage of all samples. Bold: best...}
        \\label{tab:aurc}
        \\end{table}
        """
        cells = self._format_cells(digits, bold=r"\textbf{{{}}}", dagger=r"{}$^{{\dagger}}$", empty="--")
        has_intervals = intervals and not np.isnan(self.lows).all()
        if has_intervals:
            self._append_intervals(cells, digits)
        table = latex_table(
            self.index, self.columns, cells, self._latex_caption(has_intervals), self.notes, label=label
        )
        return latex_document(table) if document else table

    def _append_intervals(self, cells: list[list[str]], digits: int) -> None:
        """Write the interval of each value beside it, in small letters."""
        factor, _ = scale(self.metric)
        for (i, j), low in np.ndenumerate(self.lows):
            if not math.isnan(low):
                limits = f"{factor * low:.{digits}f}, {factor * self.highs[i, j]:.{digits}f}"
                cells[i][j] += rf" {{\scriptsize [{limits}]}}"

    def _latex_caption(self, has_intervals: bool) -> str:
        """Name protocol and intervals too: a table in a paper stands alone."""
        caption = self.caption
        if self.protocol is not None:
            caption = caption.replace(title(self.metric), f"{title(self.metric)} under the protocol {self.protocol}", 1)
        if not has_intervals:
            return caption
        if self.level is None:
            return f"{caption} Brackets: the interval of the value (one standard deviation after over_seeds)."
        return f"{caption} Brackets: {self.level:.0%} bootstrap intervals."

    def _format_cells(self, digits: int, *, bold: str, dagger: str, empty: str) -> list[list[str]]:
        """Write the values with their marks; ``bold`` and ``dagger`` are format strings."""
        factor, _ = scale(self.metric)
        best, tied = self.best, self.tied
        lines = []
        for i, values in enumerate(self.values):
            line = []
            for j, value in enumerate(values):
                text = empty if math.isnan(value) else f"{factor * value:.{digits}f}"
                if best[i, j]:
                    text = bold.format(text)
                elif tied[i, j]:
                    text = dagger.format(text)
                line.append(text)
            lines.append(line)
        return lines


def pivot_rows(
    rows: Sequence[ResultRow],
    replicates: Mapping[Key, Array],
    index: ColumnNames,
    columns: ColumnNames,
    metric: str,
    protocol: str | None,
) -> Pivot:
    """Arrange the values of one metric in a table.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of results, those of other metrics among them.
    replicates : mapping of tuple to ndarray
        Bootstrap values by the key of a row.
    index, columns : str or tuple of str
        Columns of the results whose values label the rows and columns of the table.
    metric : str
        The metric to show.
    protocol : str or None
        The protocol; None where only one has the metric.

    Returns
    -------
    Pivot
        The table, with labels in the order of the rows.

    Raises
    ------
    UnknownName
        If there is no such metric or column.
    InvalidInput
        If two rows share a cell, or the protocol is missing or was not used for the metric.
    """
    measured = rows_of_metric(rows, metric, protocol)
    cells = _arrange(measured, _column_names(index), _column_names(columns))
    labels = tuple(dict.fromkeys(label for label, _ in cells))
    headings = tuple(dict.fromkeys(heading for _, heading in cells))
    grid = []
    for label in labels:
        grid.append([cells.get((label, heading)) for heading in headings])
    levels = {row["level"] for row in measured if row["low"] is not None}
    measured_protocol = measured[0]["protocol"]
    notes = [*_explain_empty_cells(grid, labels, headings), *_explain_absent(rows, measured_protocol)]
    return Pivot(
        metric=metric,
        index=labels,
        columns=headings,
        values=_read_numbers(grid, "value"),
        lows=_read_numbers(grid, "low"),
        highs=_read_numbers(grid, "high"),
        better=better_of(measured),
        level=levels.pop() if len(levels) == 1 else None,
        notes=tuple(dict.fromkeys(notes)),
        replicates=MappingProxyType(_grid_replicates(grid, replicates)),
        protocol=measured_protocol,
    )


def _arrange(
    rows: Iterable[ResultRow], index: Sequence[str], columns: Sequence[str]
) -> dict[tuple[str, str], ResultRow]:
    """Find the row of each cell by its two labels."""
    cells: dict[tuple[str, str], ResultRow] = {}
    for row in rows:
        labels = _label(row, index), _label(row, columns)
        if labels in cells:
            conflict = describe_conflict(cells[labels], row)
            raise InvalidInput(f"{conflict} for {' and '.join(labels)} in the pivot of {row['metric']}")
        cells[labels] = row
    return cells


def _column_names(columns: ColumnNames) -> tuple[str, ...]:
    names = as_names(columns)
    for name in names:
        check_column(name)
    if not names:
        raise InvalidInput(f"give at least one column, such as 'score' or 'shift'; known: {', '.join(COLUMNS)}")
    return names


def _label(row: ResultRow, columns: Sequence[str]) -> str:
    parts = []
    for column in columns:
        if column == "score":
            parts.append(method(row))
        elif row[column] is None:
            parts.append("")
        else:
            parts.append(str(row[column]))
    return " / ".join(parts)


def _read_numbers(grid: Grid, column: str) -> Array:
    """Read one column of the results from all cells; NaN where there is no number."""
    numbers = np.full((len(grid), len(grid[0])), math.nan)
    for i, line in enumerate(grid):
        for j, row in enumerate(line):
            if row is not None and row[column] is not None:
                numbers[i, j] = row[column]
    return numbers


def _grid_replicates(grid: Grid, replicates: Mapping[Key, Array]) -> dict[tuple[int, int], tuple[str, Array]]:
    """Find the run and the replicates of each cell that has them."""
    found = {}
    for i, line in enumerate(grid):
        for j, row in enumerate(line):
            if row is not None and key_of(row) in replicates:
                found[i, j] = str(row["run"]), replicates[key_of(row)]
    return found


def _explain_empty_cells(grid: Grid, labels: Sequence[str], headings: Sequence[str]) -> list[str]:
    notes = []
    for label, line in zip(labels, grid, strict=True):
        for heading, row in zip(headings, line, strict=True):
            if row is None:
                notes.append(f"{label}, {heading}: not in the results")
            elif is_missing(row["value"]):
                notes.append(f"{label}, {heading}: {row['reason'] or 'no value, no reason given'}")
    return notes


def _explain_absent(rows: Iterable[ResultRow], protocol: str | None) -> list[str]:
    """Name the scores and data sets that are missing as a whole, with the reason."""
    notes = []
    for row in rows:
        if row["metric"] is not None or row["reason"] is None or row["protocol"] not in (None, protocol):
            continue
        subjects = []
        if row["score"] is not None:
            subjects.append(method(row))
        for column in ("shift", "run"):
            if row[column] is not None:
                subjects.append(str(row[column]))
        notes.append(f"{', '.join(subjects)}: {row['reason']}")
    return notes
