"""The drawings that plans may name, and how they are written: SVG and PNG without dates, the same bytes each time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from twofold._csv import escape_row
from twofold._files import replacing
from twofold.plot import display

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


@dataclass(frozen=True, eq=False)
class DrawnFigure:
    """Hold a figure and the numbers that it shows.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    columns : tuple of str
        Names of the columns of ``rows``.
    rows : tuple of tuple
        The numbers.
    notes : tuple of str, default=()
        Sentences that explain the figure.
    """

    figure: MatplotlibFigure
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    notes: tuple[str, ...] = ()


DrawingFunction: TypeAlias = Callable[..., DrawnFigure]

DRAWINGS: dict[str, DrawingFunction] = {}
"""Functions from :class:`twofold.papers.material.Material` and options to a figure, by name."""


def register_drawing(name: str) -> Callable[[DrawingFunction], DrawingFunction]:
    """Register a function that draws a figure.

    Parameters
    ----------
    name : str
        The name by which plans call it.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.
    """

    def register(function: DrawingFunction) -> DrawingFunction:
        DRAWINGS[name] = function
        return function

    return register


def write_figure(drawn: DrawnFigure, folder: Path, name: str) -> list[Path]:
    """Write a figure as SVG and PNG, and its numbers as CSV.

    Parameters
    ----------
    drawn : DrawnFigure
        The figure.
    folder : Path
        An existing folder.
    name : str
        Name of the files, without suffix.

    Returns
    -------
    list of Path
        The files.
    """
    files = []
    for kind in ("svg", "png"):
        files.append(display.write_figure(drawn.figure, folder / f"{name}.{kind}", tight=False, dpi=150))
    target = folder / f"{name}.csv"
    with replacing(target) as file:
        file.write(format_csv(drawn.columns, drawn.rows).encode())
    files.append(target)
    return files


def format_csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows as CSV whose texts no spreadsheet takes for formulas.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns.
    rows : sequence of sequence
        Texts, numbers and None.

    Returns
    -------
    str
        The text with a header line.

    Examples
    --------
    >>> print(format_csv(["name", "value"], [["=1+1", 0.5]]), end="")
    name,value
    '=1+1,0.5
    """
    with io.StringIO() as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(escape_row(row))
        return text.getvalue()
