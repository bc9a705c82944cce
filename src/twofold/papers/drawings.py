"""The drawings that plans may name, and how they are written: SVG and PNG without dates, the same bytes each time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from twofold._csv import escape_row
from twofold._files import replacing
from twofold.errors import MissingExtra
from twofold.report.figures import STYLE

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


def figure_style() -> AbstractContextManager[None]:
    """Combine matplotlib's own defaults with those of reports, whatever the user has set.

    Returns
    -------
    context manager
        Within which figures are made and written.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    try:
        style = import_module("matplotlib.style")
    except ImportError as error:
        raise MissingExtra('figures need matplotlib: pip install "twofold[report]"') from error
    context: AbstractContextManager[None] = style.context(["default", STYLE])
    return context


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
    for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        target = folder / f"{name}.{kind}"
        with replacing(target) as file:
            drawn.figure.savefig(file, format=kind, dpi=150, metadata=metadata)
        files.append(target)
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
