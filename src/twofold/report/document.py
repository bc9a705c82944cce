"""What a report holds, whatever its form: sections of sentences, tables and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeAlias

from twofold.bench.text import escape_latex as latex
from twofold.bench.text import escape_markdown as markdown
from twofold.stats import Interval


@dataclass(frozen=True)
class Number:
    """Hold a number of a table: its natural value, its interval, and the factor and digits it is printed with.

    Parameters
    ----------
    value : float
        The value in natural units; NaN prints as a dash.
    low, high : float, default=NaN
        Limits of the interval, in natural units.
    factor : float, default=1.0
        Factor of the printed number, such as 100 for percent.
    digits : int, default=1
        Digits after the decimal point.
    strong : bool, default=False
        Whether to print the number in bold.
    spread : float, default=NaN
        Standard deviation, printed behind the value unless it is NaN.

    Examples
    --------
    >>> str(Number(0.912, factor=100)), str(Number(0.912, factor=100, spread=0.01))
    ('91.2', '91.2 ± 1.0')
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    factor: float = 1.0
    digits: int = 1
    strong: bool = False
    spread: float = math.nan

    @classmethod
    def of(cls, interval: Interval, factor: float = 1.0, *, strong: bool = False) -> Number:
        """Make a number from an interval of :mod:`twofold.stats`.

        Parameters
        ----------
        interval : Interval
            Value with its limits.
        factor : float, default=1.0
            Factor of the printed number, such as 100 for percent.
        strong : bool, default=False
            Whether to print the number in bold.

        Returns
        -------
        Number
            The number with one digit after the decimal point.
        """
        return cls(interval.value, interval.low, interval.high, factor, strong=strong)

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "–"
        around = "" if math.isnan(self.spread) else f" ± {self.factor * self.spread:,.{self.digits}f}"
        return f"{self.factor * self.value:,.{self.digits}f}{around}"

    @property
    def span(self) -> str:
        """The interval as text; empty where there is none.

        Examples
        --------
        >>> Number(0.912, 0.9, 0.924, factor=100).span
        '[90.0, 92.4]'
        """
        if math.isnan(self.value) or math.isnan(self.low):
            return ""
        return f"[{self.factor * self.low:,.{self.digits}f}, {self.factor * self.high:,.{self.digits}f}]"


Cell: TypeAlias = "str | int | Number"


@dataclass(frozen=True)
class Table:
    """Hold a table whose first ``heads`` columns name the row and whose other columns describe it.

    Parameters
    ----------
    key : str
        Identifier in the page and in JSON.
    caption : str
        Sentence above the table.
    columns : tuple of str
        Headings.
    rows : tuple of tuple of str, int or Number
        Cells, as many in each row as there are columns.
    heads : int, default=1
        Number of columns that name the row.
    notes : tuple of str, default=()
        Remarks below the table.
    """

    key: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    heads: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """Hold a drawing, what it shows, and the numbers it was drawn from.

    Parameters
    ----------
    key : str
        Identifier in the page.
    title : str
        Heading above the drawing.
    caption : str
        Sentences below the drawing.
    svg : str
        The drawing.
    columns : tuple of str, default=()
        Headings of the numbers.
    rows : tuple of tuple, default=()
        The numbers, which a reader can download from the page.
    wide : bool, default=False
        Whether the drawing takes the whole width of the page and scrolls.
    """

    key: str
    title: str
    caption: str
    svg: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    wide: bool = False


@dataclass(frozen=True)
class Markup:
    """Hold HTML that only the page shows, such as the explorer and pictures.

    Parameters
    ----------
    html : str
        The markup, escaped by whoever makes it.
    plain : str, default=""
        What Markdown says instead.
    """

    html: str
    plain: str = ""  # what the other forms say instead


Part: TypeAlias = "str | Table | Figure | Markup"


@dataclass(frozen=True)
class Section:
    """Hold one heading and what is below it.

    Parameters
    ----------
    key : str
        Identifier in the page and in JSON.
    title : str
        The heading.
    parts : tuple of str, Table, Figure or Markup
        Paragraphs, tables and figures in order; a string is plain text, never HTML.
    """

    key: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Document:
    """Hold a whole report, whatever its format.

    Parameters
    ----------
    title, subtitle : str
        Headings of the report.
    tiles : tuple of (str, str, str)
        The few numbers at the top: value, what it is, and its interval.
    sections : tuple of Section
        The body.
    data : dict, default={}
        Values for the page's script.
    summary : dict, default={}
        The headline as plain values, for programs that read the page.

    Examples
    --------
    >>> made = Document("Trust", "resnet18", (), (Section("verdict", "Verdict", ("Accuracy is 91 %.",)),))
    >>> print(made.to_markdown(), end="")
    # Trust
    <BLANKLINE>
    resnet18
    <BLANKLINE>
    ## Verdict
    <BLANKLINE>
    Accuracy is 91 %.
    """

    title: str
    subtitle: str
    tiles: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]
    data: dict[str, Any] = field(default_factory=dict)  # for the page's script
    summary: dict[str, Any] = field(default_factory=dict)

    def tables(self) -> list[Table]:
        """List the tables of all sections in order.

        Returns
        -------
        list of Table
            The tables.
        """
        return [part for section in self.sections for part in section.parts if isinstance(part, Table)]

    def to_markdown(self) -> str:
        """Format the sentences and tables as Markdown; figures are left out.

        Returns
        -------
        str
            The text, with special characters escaped.
        """
        lines = [f"# {markdown(self.title)}", "", markdown(self.subtitle), ""]
        for section in self.sections:
            body = [_markdown_part(part) for part in section.parts]
            if any(body):
                lines += [f"## {markdown(section.title)}", "", *(text + "\n" for text in body if text)]
        return "\n".join(lines).rstrip() + "\n"

    def to_latex(self) -> str:
        """Format the tables as LaTeX floats with captions; no package is needed.

        Returns
        -------
        str
            The tables in order; sentences and figures are left out.
        """
        return "\n".join(_latex_table(table) for table in self.tables())

    def to_json(self) -> str:
        """Format the sentences and tables as JSON, with values in natural units.

        Returns
        -------
        str
            Indented JSON; NaN becomes null.
        """
        content = {
            "title": self.title,
            "subtitle": self.subtitle,
            **({"summary": self.summary} if self.summary else {}),
            "sections": [
                {
                    "key": section.key,
                    "title": section.title,
                    "text": [part for part in section.parts if isinstance(part, str)],
                    "tables": [_json_table(part) for part in section.parts if isinstance(part, Table)],
                }
                for section in self.sections
            ],
        }
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _texts(row: Iterable[Cell]) -> list[str]:
    return [f"{cell} {cell.span}".strip() if isinstance(cell, Number) else _plain(cell) for cell in row]


def _plain(cell: str | int) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell


def _markdown_part(part: Part) -> str:
    if isinstance(part, str):
        return markdown(part)
    if isinstance(part, Markup):
        return markdown(part.plain)
    if isinstance(part, Figure):
        return ""
    head = "| " + " | ".join(markdown(c) for c in part.columns) + " |"
    rule = "|" + "---|" * part.heads + "---:|" * (len(part.columns) - part.heads)
    body = []
    for row in part.rows:
        marks = ["**" if isinstance(cell, Number) and cell.strong else "" for cell in row]
        texts = [f"{mark}{markdown(text)}{mark}" for mark, text in zip(marks, _texts(row), strict=True)]
        body.append("| " + " | ".join(texts) + " |")
    notes = [f"- {markdown(note)}" for note in part.notes]
    return "\n".join([markdown(part.caption), "", head, rule, *body, *([""] if notes else []), *notes])


def _latex_table(table: Table) -> str:
    layout = "l" * table.heads + "r" * (len(table.columns) - table.heads)
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{layout}}}", r"\hline"]
    lines += [" & ".join(latex(c) for c in table.columns) + r" \\", r"\hline"]
    for row in table.rows:
        texts = [latex(text) for text in _texts(row)]
        bold = [
            rf"\textbf{{{text}}}" if isinstance(cell, Number) and cell.strong else text
            for cell, text in zip(row, texts, strict=True)
        ]
        lines.append(" & ".join(bold) + r" \\")
    caption = " ".join(latex(text) for text in (table.caption, *table.notes))
    lines += [r"\hline", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _json_table(table: Table) -> dict[str, Any]:
    return {
        "key": table.key,
        "caption": table.caption,
        "columns": list(table.columns),
        "rows": [[_json_cell(cell) for cell in row] for row in table.rows],
        "notes": list(table.notes),
    }


def _json_cell(cell: Cell) -> Any:
    if not isinstance(cell, Number):
        return cell
    found = {"value": cell.value, "low": cell.low, "high": cell.high}
    found |= {} if math.isnan(cell.spread) else {"spread": cell.spread}
    if math.isnan(cell.low) and "spread" not in found:
        return finite(cell.value)
    return {name: finite(value) for name, value in found.items()}


def finite(value: float) -> float | None:
    """Convert a number to what JSON can hold: None where it is not finite.

    Parameters
    ----------
    value : float
        The number.

    Returns
    -------
    float or None
        The number, or None for NaN and infinities.

    Examples
    --------
    >>> finite(0.5), finite(float("nan"))
    (0.5, None)
    """
    return float(value) if math.isfinite(value) else None


def count(n: int, one: str, several: str | None = None) -> str:
    """Format a number with its noun.

    Parameters
    ----------
    n : int
        How many there are.
    one : str
        The noun for one.
    several : str, optional
        The noun for several; by default ``one`` with an s.

    Returns
    -------
    str
        Number with thousands separators, and noun.

    Examples
    --------
    >>> count(1, "mistake"), count(2000, "input")
    ('1 mistake', '2,000 inputs')
    """
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Join words into the list of a sentence, and count those beyond the first few.

    Parameters
    ----------
    words : sequence of str
        The words.
    most : int, default=4
        Number of words to write out; a single one more is written out too.

    Returns
    -------
    str
        The list.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(list("abcdefg"))
    ('a, b and c', 'a, b, c, d and 3 more')
    """
    if len(words) > most + 1:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def static(name: str) -> str:
    """Read a file of the page: style, script or markup.

    Parameters
    ----------
    name : str
        Name of the file in ``report/static``.

    Returns
    -------
    str
        Its text.
    """
    return files("twofold.report").joinpath("static", name).read_text(encoding="utf-8")
