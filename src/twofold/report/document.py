"""What a report holds, whatever its form: sections of sentences, tables and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeAlias

from twofold.bench.results import _latex as latex
from twofold.bench.results import _markdown as markdown
from twofold.stats import Interval


@dataclass(frozen=True)
class Number:
    """A number of a table: its natural value, its interval, and the factor and digits it is printed with.

    ``spread`` is a standard deviation, printed behind the value where there is one.
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
        """An interval of the statistics."""
        return cls(interval.value, interval.low, interval.high, factor, strong=strong)

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "–"
        around = "" if math.isnan(self.spread) else f" ± {self.factor * self.spread:,.{self.digits}f}"
        return f"{self.factor * self.value:,.{self.digits}f}{around}"

    @property
    def span(self) -> str:
        """The interval as text; empty where there is none.

        >>> Number(0.912, 0.9, 0.924, factor=100).span
        '[90.0, 92.4]'
        """
        if math.isnan(self.value) or math.isnan(self.low):
            return ""
        return f"[{self.factor * self.low:,.{self.digits}f}, {self.factor * self.high:,.{self.digits}f}]"


Cell: TypeAlias = "str | int | Number"


@dataclass(frozen=True)
class Table:
    """A table: the first ``heads`` columns name the row, the others hold what is told about it."""

    key: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    heads: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A drawing (SVG), what it shows, and the numbers it was drawn from."""

    key: str
    title: str
    caption: str
    svg: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    wide: bool = False


@dataclass(frozen=True)
class Markup:
    """HTML that only the page has: the explorer, pictures."""

    html: str
    plain: str = ""  # what the other forms say instead


Part: TypeAlias = "str | Table | Figure | Markup"


@dataclass(frozen=True)
class Section:
    """One heading and what is below it; text is plain, never HTML."""

    key: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Document:
    """A whole report. ``tiles`` are the few numbers that stand at the top: value, what it is, and its interval.

    ``summary`` is the headline as plain values, for programs that read the page.
    """

    title: str
    subtitle: str
    tiles: tuple[tuple[str, str, str], ...]
    sections: tuple[Section, ...]
    data: dict[str, Any] = field(default_factory=dict)  # for the page's script
    summary: dict[str, Any] = field(default_factory=dict)

    def tables(self) -> list[Table]:
        """All tables, in order."""
        return [part for section in self.sections for part in section.parts if isinstance(part, Table)]

    def to_markdown(self) -> str:
        """Sentences and tables; figures are named, and live on the page."""
        lines = [f"# {markdown(self.title)}", "", markdown(self.subtitle), ""]
        for section in self.sections:
            body = [_markdown_part(part) for part in section.parts]
            if any(body):
                lines += [f"## {markdown(section.title)}", "", *(text + "\n" for text in body if text)]
        return "\n".join(lines).rstrip() + "\n"

    def to_latex(self) -> str:
        """The tables, each a float with a caption; no package is needed."""
        return "\n".join(_latex_table(table) for table in self.tables())

    def to_json(self) -> str:
        """Sentences and tables with natural values; NaN becomes null."""
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
    """A number as JSON holds it: None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def count(n: int, one: str, several: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "mistake"), count(2000, "input")
    ('1 mistake', '2,000 inputs')
    """
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Words in a sentence.

    >>> listed(["a", "b", "c"]), listed(list("abcdefg"))
    ('a, b and c', 'a, b, c, d and 3 more')
    """
    if len(words) > most + 1:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def static(name: str) -> str:
    """A file of the page: style, script or markup."""
    return files("twofold.report").joinpath("static", name).read_text(encoding="utf-8")
