"""Small tables for notebooks: escaped, without colours of their own, so that they suit light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

MOST_ROWS = 16
MOST_LETTERS = 120  # of a cell
_SOFT = "opacity:0.75"
_CELL = "padding:0.1em 0.8em 0.1em 0;border:0"


@dataclass(frozen=True)
class NotebookTable:
    """Hold a table of a notebook.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : sequence of sequence
        Texts and numbers; numbers are aligned to the right.
    total : int, optional
        Number of all rows, where ``rows`` are the first of many.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    total: int | None = None


def card(
    title: str,
    facts: Mapping[str, object] | None = None,
    table: NotebookTable | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Format an object for a notebook: a title, facts, a table and notes; everything is escaped.

    Parameters
    ----------
    title : str
        What the object is.
    facts : mapping of str to object, optional
        Values by name, one line each; None is left out.
    table : NotebookTable, optional
        A table, of which at most 16 rows are shown.
    notes : sequence of str, default=()
        Sentences below.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> "&lt;b&gt;" in card("<b>", {"rows": 3})
    True
    """
    parts = [f"<strong>{_escape(title)}</strong>"]
    if facts:
        parts.append(_format_facts(facts))
    if table is not None:
        parts.append(_format_table(table))
    for note in notes:
        parts.append(f'<div style="{_SOFT};max-width:60em">{_escape(note, most=1000)}</div>')
    return f'<div style="font-size:0.95em;line-height:1.4;overflow-x:auto">{"".join(parts)}</div>'


def _format_facts(facts: Mapping[str, object]) -> str:
    lines = []
    for name, value in facts.items():
        if value is not None:
            head = f'<th scope="row" style="{_CELL};text-align:left">{_escape(name)}</th>'
            lines.append(f"<tr>{head}{_cell(value, 'left')}</tr>")
    return f'<table style="border-collapse:collapse;margin:0.2em 0">{"".join(lines)}</table>'


def _format_table(table: NotebookTable) -> str:
    heads = []
    for i, name in enumerate(table.columns):
        side = "right" if _is_numeric(table, i) else "left"
        heads.append(f'<th scope="col" style="{_CELL};{_SOFT};text-align:{side}">{_escape(name)}</th>')
    lines = []
    for row in table.rows[:MOST_ROWS]:
        cells = [_cell(value, "right" if _is_number(value) else "left") for value in row]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    left_out = (table.total or len(table.rows)) - min(len(table.rows), MOST_ROWS)
    more = f'<div style="{_SOFT}">and {left_out:,} more</div>' if left_out > 0 else ""
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    body = f"<tbody>{''.join(lines)}</tbody>"
    return f'<table style="border-collapse:collapse;margin:0.2em 0">{head}{body}</table>{more}'


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_numeric(table: NotebookTable, column: int) -> bool:
    return bool(table.rows) and all(_is_number(row[column]) for row in table.rows)


def _cell(value: object, side: str) -> str:
    return f'<td style="{_CELL};text-align:{side}">{_escape(format_value(value))}</td>'


def format_value(value: object) -> str:
    """Format a value of a cell: whole numbers with separators, others with five significant digits.

    Parameters
    ----------
    value : object
        A text or a number.

    Returns
    -------
    str
        The text, not yet escaped.

    Examples
    --------
    >>> format_value(12345), format_value(0.123456), format_value("msp")
    ('12,345', '0.12346', 'msp')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.5g}"


def _escape(text: str, most: int = MOST_LETTERS) -> str:
    if len(text) > most:
        text = text[: most - 1] + "…"
    return escape(text)
