"""Reading CSV files of confidences that somebody else computed: one row per answer."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from twofold._csv import unescape_cell
from twofold.errors import InvalidInput

if TYPE_CHECKING:
    from twofold.typing import Array

FIELDS = ("correct", "conf", "conf_ood", "is_id", "group", "id")
"""What a file may hold; each is read from the column of its name, or from that which ``--column`` names."""

BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "1.0": True, "0.0": False}

COLUMN = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="Column of a CSV file, such as conf=score; may be repeated. "
    "By default each of correct, conf, conf_ood, is_id, group and id is the column of its name.",
)


@dataclass(frozen=True, eq=False)
class ConfidenceTable:
    """Hold the columns of a file of confidences.

    Parameters
    ----------
    conf : ndarray of shape (N,)
        Confidence that the answer is correct.
    conf_ood : ndarray of shape (N,) or None
        Confidence that the input is in-distribution.
    correct : ndarray of bool, shape (N,), or None
        Whether each answer is correct.
    is_id : ndarray of bool, shape (N,), or None
        True for ID rows.
    groups : list of str or None
        The same for rows that depend on each other.
    ids : list of str or None
        What the rows are called.
    """

    conf: Array
    conf_ood: Array | None
    correct: Any
    is_id: Any
    groups: list[str] | None
    ids: list[str] | None


def is_confidence_file(path: Path) -> bool:
    """Tell whether a file is a table of confidences, by its name.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool
        Whether the name ends in ``.csv``.
    """
    return path.suffix.lower() == ".csv"


def refuse_columns(columns: Sequence[str]) -> None:
    """Raise a usage error if columns are named although no CSV file is read.

    Parameters
    ----------
    columns : sequence of str
        Values of ``--column``.

    Raises
    ------
    UsageError
        If there is one.
    """
    if columns:
        raise click.UsageError("--column names columns of a CSV file, and none is read")


def read_confidences(path: Path, columns: Sequence[str], *, labelled: bool) -> ConfidenceTable:
    """Read a CSV file of confidences.

    Parameters
    ----------
    path : Path
        The file, in UTF-8, with a line of column names first.
    columns : sequence of str
        Values of ``--column``: ``FIELD=COLUMN``.
    labelled : bool
        Whether the column ``correct`` is needed.

    Returns
    -------
    ConfidenceTable
        The columns.

    Raises
    ------
    InvalidInput
        If a column is missing, or a cell is not what its field takes; the message names the line.
    """
    named = _parse_columns(columns)
    cells = _read_cells(path, named)
    needed = ["correct", "conf"] if labelled else ["conf"]
    for field in needed:
        if field not in cells:
            raise InvalidInput(
                f"{path} has no column {named[field]!r}; name the one that holds {field!r} with --column {field}=COLUMN"
            )
    if not cells["conf"]:
        raise InvalidInput(f"{path} has no rows")
    conf_ood = correct = is_id = None
    if "conf_ood" in cells:
        conf_ood = _to_numbers(cells["conf_ood"], path, named["conf_ood"])
    if "correct" in cells and labelled:
        correct = _to_booleans(cells["correct"], path, named["correct"])
    if "is_id" in cells and labelled:
        is_id = _to_booleans(cells["is_id"], path, named["is_id"])
    return ConfidenceTable(
        conf=_to_numbers(cells["conf"], path, named["conf"]),
        conf_ood=conf_ood,
        correct=correct,
        is_id=is_id,
        groups=cells.get("group"),
        ids=cells.get("id"),
    )


def _parse_columns(columns: Sequence[str]) -> dict[str, str]:
    """Return the column of every field."""
    named = {field: field for field in FIELDS}
    for text in columns:
        field, equals, column = text.partition("=")
        if not equals or field not in FIELDS:
            raise click.UsageError(f"--column takes FIELD=COLUMN with a field of {', '.join(FIELDS)}; got {text!r}")
        named[field] = column
    return named


def _read_cells(path: Path, named: Mapping[str, str]) -> dict[str, list[str]]:
    """Read the cells of the columns that are there, as text."""
    asked = {column for field, column in named.items() if column != field}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            header = [unescape_cell(cell.strip()) for cell in next(rows, [])]
            if len(set(header)) < len(header):
                raise InvalidInput(f"{path} names a column twice: {', '.join(header)}")
            for column in sorted(asked - set(header)):
                raise InvalidInput(f"{path} has no column {column!r}; its columns are {', '.join(header) or 'none'}")
            places = {field: header.index(column) for field, column in named.items() if column in header}
            cells: dict[str, list[str]] = {field: [] for field in places}
            for row in rows:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InvalidInput(f"{path}, line {rows.line_num}: {len(row)} cells but {len(header)} columns")
                for field, place in places.items():
                    cells[field].append(row[place].strip())
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is not a CSV file in UTF-8 ({error})") from error
    return cells


def _to_numbers(cells: Sequence[str], path: Path, column: str) -> Array:
    values = np.empty(len(cells))
    for row, cell in enumerate(cells):
        try:
            values[row] = float(cell)
        except ValueError as error:
            raise InvalidInput(f"{path}, row {row} of {column!r} must be a number, got {cell!r:.40}") from error
    return values


def _to_booleans(cells: Sequence[str], path: Path, column: str) -> Any:
    values = np.empty(len(cells), dtype=bool)
    for row, cell in enumerate(cells):
        if cell.lower() not in BOOLEANS:
            raise InvalidInput(
                f"{path}, row {row} of {column!r} must be true or false (or 1, 0, yes, no), got {cell!r:.40}"
            )
        values[row] = BOOLEANS[cell.lower()]
    return values
