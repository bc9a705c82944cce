"""What a report holds, whatever its format: sections of sentences, tables and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

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
        text = self._format(self.value)
        if not math.isnan(self.spread):
            text += f" ± {self._format(self.spread)}"
        return text

    def _format(self, value: float) -> str:
        return f"{self.factor * value:,.{self.digits}f}"

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
        return f"[{self._format(self.low)}, {self._format(self.high)}]"


TableCell: TypeAlias = "str | int | Number"


@dataclass(frozen=True)
class ReportTable:
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
    rows: tuple[tuple[TableCell, ...], ...]
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
    rows: tuple[tuple[str | float, ...], ...] = ()
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
    plain: str = ""


Part: TypeAlias = "str | ReportTable | Figure | Markup"


@dataclass(frozen=True)
class Section:
    """Hold one heading and what is below it.

    Parameters
    ----------
    key : str
        Identifier in the page and in JSON.
    title : str
        The heading.
    parts : tuple of str, ReportTable, Figure or Markup
        Paragraphs, tables and figures in order; a string is plain text, never HTML.
    """

    key: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Tile:
    """Hold one of the few numbers at the top of a report.

    Parameters
    ----------
    value : str
        The number, with its unit.
    meaning : str
        What it is the number of, as the end of a sentence that starts with ``value``.
    detail : str
        Its interval, or another remark in small print.
    """

    value: str
    meaning: str
    detail: str


@dataclass(frozen=True)
class Document:
    """Hold a whole report, whatever its format.

    Parameters
    ----------
    title, subtitle : str
        Headings of the report.
    tiles : tuple of Tile
        The few numbers at the top.
    sections : tuple of Section
        The body.
    data : mapping of str to object, default={}
        Values for the page's script.
    summary : mapping of str to object, default={}
        The headline as plain values, for programs that read the page.

    Examples
    --------
    >>> section = Section("verdict", "Verdict", ("Accuracy is 91 %.",))
    >>> print(Document("Trust", "resnet18", (), (section,)).to_markdown(), end="")
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
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    data: Mapping[str, object] = field(default_factory=dict)
    summary: Mapping[str, object] = field(default_factory=dict)

    def tables(self) -> list[ReportTable]:
        """List the tables of all sections in order.

        Returns
        -------
        list of ReportTable
            The tables.
        """
        tables = []
        for section in self.sections:
            tables += [part for part in section.parts if isinstance(part, ReportTable)]
        return tables

    def to_markdown(self) -> str:
        """Format the sentences and tables as Markdown; figures are left out.

        Returns
        -------
        str
            The text, with special characters escaped.
        """
        lines = [f"# {markdown(self.title)}", "", markdown(self.subtitle), ""]
        for section in self.sections:
            shown = list(filter(None, map(_markdown_part, section.parts)))
            if shown:
                lines += [f"## {markdown(section.title)}", ""]
            for text in shown:
                lines += [text, ""]
        return "\n".join(lines).rstrip() + "\n"

    def to_latex(self) -> str:
        """Format the tables as LaTeX floats with captions; no package is needed.

        Returns
        -------
        str
            The tables in order; sentences and figures are left out.
        """
        return "\n".join(map(_latex_table, self.tables()))

    def to_json(self) -> str:
        """Format the sentences and tables as JSON, with values in natural units.

        Returns
        -------
        str
            Indented JSON; NaN becomes null.
        """
        content: dict[str, object] = {"title": self.title, "subtitle": self.subtitle}
        if self.summary:
            content["summary"] = self.summary
        content["sections"] = list(map(_json_section, self.sections))
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


# --- formats --------------------------------------------------------------------------------------------------------


def _cell_texts(row: Iterable[TableCell]) -> list[str]:
    """Format the cells of a row as plain text, intervals included."""
    texts = []
    for cell in row:
        if isinstance(cell, Number):
            texts.append(f"{cell} {cell.span}".strip())
        elif isinstance(cell, int):
            texts.append(f"{cell:,}")
        else:
            texts.append(cell)
    return texts


def _is_strong(cell: TableCell) -> bool:
    return isinstance(cell, Number) and cell.strong


def _markdown_part(part: Part) -> str:
    if isinstance(part, str):
        return markdown(part)
    if isinstance(part, Markup):
        return markdown(part.plain)
    if isinstance(part, Figure):
        return ""
    return _markdown_table(part)


def _markdown_table(table: ReportTable) -> str:
    head = _markdown_row(list(map(markdown, table.columns)))
    rule = "|" + "---|" * table.heads + "---:|" * (len(table.columns) - table.heads)
    lines = [markdown(table.caption), "", head, rule]
    for row in table.rows:
        texts = list(map(markdown, _cell_texts(row)))
        for i, cell in enumerate(row):
            if _is_strong(cell):
                texts[i] = f"**{texts[i]}**"
        lines.append(_markdown_row(texts))
    if table.notes:
        lines.append("")
    lines += [f"- {markdown(note)}" for note in table.notes]
    return "\n".join(lines)


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _latex_table(table: ReportTable) -> str:
    layout = "l" * table.heads + "r" * (len(table.columns) - table.heads)
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{layout}}}", r"\hline"]
    lines += [_latex_row(list(map(latex, table.columns))), r"\hline"]
    for row in table.rows:
        texts = list(map(latex, _cell_texts(row)))
        for i, cell in enumerate(row):
            if _is_strong(cell):
                texts[i] = rf"\textbf{{{texts[i]}}}"
        lines.append(_latex_row(texts))
    caption = " ".join(map(latex, (table.caption, *table.notes)))
    lines += [r"\hline", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_row(texts: Sequence[str]) -> str:
    return rf"{' & '.join(texts)} \\"


def _json_section(section: Section) -> dict[str, object]:
    texts, tables = [], []
    for part in section.parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, ReportTable):
            tables.append(_json_table(part))
    return {"key": section.key, "title": section.title, "text": texts, "tables": tables}


def _json_table(table: ReportTable) -> dict[str, object]:
    return {
        "key": table.key,
        "caption": table.caption,
        "columns": list(table.columns),
        "rows": [list(map(_json_cell, row)) for row in table.rows],
        "notes": list(table.notes),
    }


def _json_cell(cell: TableCell) -> object:
    """Convert a cell to what JSON can hold; a number with an interval or a spread becomes a mapping."""
    if not isinstance(cell, Number):
        return cell
    has_spread = not math.isnan(cell.spread)
    if math.isnan(cell.low) and not has_spread:
        return finite(cell.value)
    content = {"value": finite(cell.value), "low": finite(cell.low), "high": finite(cell.high)}
    if has_spread:
        content["spread"] = finite(cell.spread)
    return content


# --- words and numbers ----------------------------------------------------------------------------------------------


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


def format_count(n: int, one: str, several: str | None = None) -> str:
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
    >>> format_count(1, "mistake"), format_count(2000, "input")
    ('1 mistake', '2,000 inputs')
    """
    if n == 1:
        return f"1 {one}"
    return f"{n:,} {several or one + 's'}"


def join_words(words: Sequence[str], most: int = 4) -> str:
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
    >>> join_words(["a", "b", "c"]), join_words(list("abcdefg"))
    ('a, b and c', 'a, b, c, d and 3 more')
    """
    if len(words) > most + 1:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
