"""A paper's table with its own rows and columns: our numbers beside the printed ones, and how far apart they are."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from twofold.bench.agreement import agreement, spearman
from twofold.bench.published import UNITS, Anchor, anchors, classifier_of, printed_label, printed_layout
from twofold.bench.rows import ResultRow
from twofold.bench.text import title as metric_title
from twofold.metrics import is_published_form, published_form
from twofold.metrics.evaluate import EvaluationMethod
from twofold.papers.drawings import format_csv
from twofold.papers.plan import PrintedTable
from twofold.report.document import ReportTable

Label: TypeAlias = tuple[str, ...]
MISSING = "–"
_UNIT_NAMES = {"percent": "%", "x1000": "x1000", "1": "", "count": "", "rank": ""}


@dataclass(frozen=True)
class PaperCell:
    """Hold one cell of a paper's table.

    Parameters
    ----------
    line, column : tuple of str
        Labels of the row and column.
    anchor : Anchor
        The printed number.
    ours : float or None
        Our number in the unit of print, the mean over runs and seeds; None where there is none.
    """

    line: Label
    column: Label
    anchor: Anchor
    ours: float | None

    @property
    def difference(self) -> float | None:
        """Our number minus the printed one.

        Returns
        -------
        float or None
            In the unit of print; None where there is no number of ours.
        """
        if self.ours is None:
            return None
        return self.ours - self.anchor.value


@dataclass(frozen=True)
class ColumnAgreement:
    """Hold how one printed column agrees with ours.

    Parameters
    ----------
    column : tuple of str
        Labels of the column.
    unit : str
        Unit of the differences.
    cells : int
        Number of cells that both have.
    mean_difference, mean_absolute : float
        Mean of ours minus print, and of its size.
    spearman : float
        Rank correlation over the rows; NaN for fewer than three, or where one side is constant.
    """

    column: Label
    unit: str
    cells: int
    mean_difference: float
    mean_absolute: float
    spearman: float


@dataclass(frozen=True)
class PaperTable:
    """Hold a table of a paper.

    Parameters
    ----------
    printed : PrintedTable
        Which table.
    line_names, column_names : tuple of str
        What the labels of rows and columns are.
    cells : tuple of PaperCell
        The cells in the order of print.
    """

    printed: PrintedTable
    line_names: tuple[str, ...]
    column_names: tuple[str, ...]
    cells: tuple[PaperCell, ...]

    @classmethod
    def of(
        cls, printed: PrintedTable, rows: Sequence[ResultRow] = (), *, method: EvaluationMethod = "exact"
    ) -> PaperTable:
        """Lay out the printed numbers, and put results beside them.

        Parameters
        ----------
        printed : PrintedTable
            Which table.
        rows : sequence of mapping, default=()
            Tidy results.
        method : {"exact", "published"}, default="exact"
            Whether metrics with a published form are compared as they are, or by that form.

        Returns
        -------
        PaperTable
            The table; cells without a result have only the printed number.

        Examples
        --------
        >>> table = PaperTable.of(PrintedTable("sure_plus", "7"))
        >>> table.cells[0].line, table.cells[0].column, table.cells[0].anchor.value
        (('msp',), ('auroc_ood', 'near'), 80.82)
        """
        layout = printed_layout(*printed)
        own = anchors(paper=printed.paper, table=printed.table)
        if method == "published":
            rows = _use_published_forms(rows)
        ours = _match(own, rows, by_classifier="classifier" in layout.lines)
        cells = []
        for anchor in own:
            line = tuple(printed_label(anchor, name) for name in layout.lines)
            column = tuple(printed_label(anchor, name) for name in layout.columns)
            mean = None
            if anchor in ours:
                mean = float(np.mean(ours[anchor])) * UNITS[anchor.unit]
            cells.append(PaperCell(line, column, anchor, mean))
        return cls(printed, layout.lines, layout.columns, tuple(cells))

    @property
    def lines(self) -> tuple[Label, ...]:
        """The labels of the rows.

        Returns
        -------
        tuple of tuple of str
            In the order of print.
        """
        return tuple(dict.fromkeys(cell.line for cell in self.cells))

    @property
    def columns(self) -> tuple[Label, ...]:
        """The labels of the columns.

        Returns
        -------
        tuple of tuple of str
            In the order of print.
        """
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    def agreements(self) -> list[ColumnAgreement]:
        """Compare each column with print.

        Returns
        -------
        list of ColumnAgreement
            One for each column of which we have a cell.
        """
        by_column: dict[Label, list[PaperCell]] = defaultdict(list)
        for cell in self.cells:
            if cell.ours is not None:
                by_column[cell.column].append(cell)
        found = []
        for column, cells in by_column.items():
            ours = np.array([cell.ours for cell in cells])
            theirs = np.array([cell.anchor.value for cell in cells])
            difference = ours - theirs
            found.append(
                ColumnAgreement(
                    column=column,
                    unit=cells[0].anchor.unit,
                    cells=len(cells),
                    mean_difference=float(difference.mean()),
                    mean_absolute=float(np.abs(difference).mean()),
                    spearman=spearman(theirs, ours),
                )
            )
        return found

    def summary(self) -> str:
        """Say in one sentence how the table agrees with print.

        Returns
        -------
        str
            Cells compared, mean difference by unit, and mean rank correlation.
        """
        compared = [cell for cell in self.cells if cell.ours is not None]
        if not compared:
            return f"None of the {len(self.cells)} printed numbers has a counterpart here."
        parts = [f"{len(compared)} of {len(self.cells)} printed numbers have a counterpart here"]
        by_unit: dict[str, list[float]] = defaultdict(list)
        for cell in compared:
            if cell.difference is not None:
                by_unit[cell.anchor.unit].append(cell.difference)
        for unit, differences in by_unit.items():
            parts.append(f"mean difference {np.mean(differences):+.2f} {_UNIT_NAMES[unit]}".rstrip())
        correlations = [one.spearman for one in self.agreements() if not math.isnan(one.spearman)]
        if correlations:
            parts.append(f"mean rank correlation {np.mean(correlations):+.2f} over {len(correlations)} columns")
        return "; ".join(parts) + "."

    def to_report(self) -> list[ReportTable]:
        """Format the table, and the agreement of its columns, for a page.

        Returns
        -------
        list of ReportTable
            The table, and where there are numbers of ours, how each column agrees.
        """
        digits = max(_decimals(cell.anchor.value) for cell in self.cells)
        grid = {(cell.line, cell.column): cell for cell in self.cells}
        rows = []
        for line in self.lines:
            texts = [_format_cell(grid.get((line, column)), digits) for column in self.columns]
            rows.append((*line, *texts))
        headings = [_heading(self.column_names, column) for column in self.columns]
        caption = "Ours, and the printed number in brackets; a star marks a printed number that is in doubt."
        table = ReportTable(
            "table",
            caption,
            (*self.line_names, *headings),
            tuple(rows),
            heads=len(self.line_names),
            notes=self._notes(),
        )
        agreements = self.agreements()
        if not agreements:
            return [table]
        return [table, self._agreement_table(agreements)]

    def _agreement_table(self, agreements: Sequence[ColumnAgreement]) -> ReportTable:
        rows = []
        for one in agreements:
            heading = _heading(self.column_names, one.column)
            unit = _UNIT_NAMES[one.unit]
            difference = f"{one.mean_difference:+.2f} {unit}".rstrip()
            size = f"{one.mean_absolute:.2f} {unit}".rstrip()
            correlation = f"{one.spearman:+.2f}"
            if math.isnan(one.spearman):
                correlation = MISSING
            rows.append((heading, one.cells, difference, size, correlation))
        columns = ("column", "cells", "mean difference", "mean absolute difference", "rank correlation")
        return ReportTable(
            "agreement", "Agreement of each column with print, ours minus printed.", columns, tuple(rows)
        )

    def _notes(self) -> tuple[str, ...]:
        """List why printed numbers are in doubt, each reason once."""
        reasons = [cell.anchor.note for cell in self.cells if not cell.anchor.reliable]
        return tuple(f"* {reason}" for reason in dict.fromkeys(reasons))

    def to_csv(self) -> str:
        """Format the cells as CSV, one line each.

        Returns
        -------
        str
            Labels, our number, the printed one and its spread, their difference, the unit and remarks.
        """
        names = (*self.line_names, *self.column_names)
        columns = (*names, "ours", "printed", "printed_spread", "difference", "unit", "reliable", "note")
        rows = []
        for cell in self.cells:
            anchor = cell.anchor
            numbers = (cell.ours, anchor.value, anchor.spread, cell.difference)
            rows.append((*cell.line, *cell.column, *numbers, anchor.unit, anchor.reliable, anchor.note))
        return format_csv(columns, rows)


def _use_published_forms(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Put the values of published forms in the place of the exact ones."""
    chosen: list[ResultRow] = []
    for row in rows:
        metric = row["metric"]
        if metric is None or published_form(metric) is not None:
            continue
        if is_published_form(metric):
            row = {**row, "metric": metric.removesuffix("_published")}
        chosen.append(row)
    return chosen


def _match(own: Sequence[Anchor], rows: Sequence[ResultRow], *, by_classifier: bool) -> dict[Anchor, list[float]]:
    """Find the results of each printed number, in natural units; those of its kind of network where lines name it."""
    found: dict[Anchor, list[float]] = defaultdict(list)
    if not rows:
        return found
    for classifier in ("CNN", "ViT") if by_classifier else ("",):
        wanted = {anchor for anchor in own if not classifier or classifier_of(anchor.model) == classifier}
        fitting = [row for row in rows if not classifier or classifier_of(row["model"]) == classifier]
        for benchmark in dict.fromkeys(anchor.benchmark for anchor in own):
            matches = [one for one in agreement(fitting, benchmark, doubtful=True) if one.anchor in wanted]
            has_same = any(one.same_model for one in matches)
            for one in matches:
                if one.same_model or not has_same:  # a network of the paper is compared with its own line alone
                    found[one.anchor].append(one.ours)
    return found


def _decimals(value: float) -> int:
    """Count the decimals that a printed number has, at most four."""
    _, _, decimals = f"{value:.4f}".rstrip("0").partition(".")
    return len(decimals)


def _format_cell(cell: PaperCell | None, digits: int) -> str:
    if cell is None:
        return ""
    if cell.anchor.unit in ("count", "rank"):
        digits = 0
    ours = MISSING
    if cell.ours is not None:
        ours = f"{cell.ours:.{digits}f}"
    printed = f"{cell.anchor.value:.{digits}f}"
    if not cell.anchor.reliable:
        printed += "*"
    return f"{ours} ({printed})"


def _heading(names: Sequence[str], column: Label) -> str:
    """Join the labels of a column; metrics by their titles."""
    words = []
    for name, label in zip(names, column, strict=True):
        if not label:
            continue
        words.append(metric_title(label) if name == "metric" else label)
    return ", ".join(words)
