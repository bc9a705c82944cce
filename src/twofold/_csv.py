"""Escape texts of CSV files, so that a spreadsheet shows them and never runs them as formulas."""

from __future__ import annotations

from collections.abc import Iterable

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
    if _may_start_formula(text):
        return MARK + text
    return text


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
    if cell.startswith(MARK) and _may_start_formula(cell):
        return cell[1:]
    return cell


def _may_start_formula(text: str) -> bool:
    """Check whether a text could begin a formula, ignoring leading apostrophes."""
    return text.lstrip(MARK).startswith(STARTS)


def escape_row(values: Iterable[object]) -> list[object]:
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
