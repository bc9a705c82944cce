"""Texts of people in CSV files: a spreadsheet must show them, never run them as formulas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

STARTS = ("=", "+", "-", "@", "\t", "\r")  # with which a spreadsheet takes a cell for a formula
MARK = "'"  # with which it takes a cell for text


def escape_cell(text: str) -> str:
    """Write a text so that no spreadsheet runs it: a leading apostrophe where it could begin a formula.

    A text that already has apostrophes before such a character gets one more, so that :func:`unescape_cell` gives back
    every text as it was.

    Parameters
    ----------
    text : str
        A name, an identifier, the path of a file. Numbers are not escaped.

    Returns
    -------
    str
        The cell.

    Examples
    --------
    >>> escape_cell("=1+1"), escape_cell("cat"), escape_cell("'@here")
    ("'=1+1", 'cat', "''@here")
    """
    return MARK + text if text.lstrip(MARK).startswith(STARTS) else text


def unescape_cell(cell: str) -> str:
    """Read what :func:`escape_cell` wrote: one leading apostrophe less where a formula could follow.

    Parameters
    ----------
    cell : str
        The cell of a CSV file.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> unescape_cell("'=1+1"), unescape_cell("'tis"), unescape_cell("''@here")
    ('=1+1', "'tis", "'@here")
    """
    return cell[1:] if cell.startswith(MARK) and cell.lstrip(MARK).startswith(STARTS) else cell


def escape_row(values: Iterable[Any]) -> list[Any]:
    """Escape the texts of a row; numbers stay as they are.

    Parameters
    ----------
    values : iterable
        Texts, numbers and None.

    Returns
    -------
    list
        The cells.

    Examples
    --------
    >>> escape_row(["-cat", -1, -0.5, None])
    ["'-cat", -1, -0.5, None]
    """
    return [escape_cell(value) if isinstance(value, str) else value for value in values]
