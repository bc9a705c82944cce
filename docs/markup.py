"""Docstrings as Markdown.

Docstrings are written for `help()`, with the marks that numpydoc readers know. The site and the generated pages are
Markdown, so roles, formulas and tables are rewritten here, for both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

ROLE = re.compile(r":(?:func|class|mod|meth|attr):`~?([^`]*)`")
FORMULA = re.compile(r":math:`([^`]*)`")
MATH_BLOCK = re.compile(r"^( *)\.\. math::\s*(.*?)(?=\n\s*\n|\Z)", flags=re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^\w[\w ]*\n-{3,}$", flags=re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", flags=re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", flags=re.DOTALL)
DISPLAYED = re.compile(r"\$\$(.+?)\$\$", flags=re.DOTALL)
INLINE = re.compile(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])")
TABLE = re.compile(r"^( *)(=+(?: +=+)+)\n(.*?)\n\1\2$(?:\n(.*?)\n\1\2$)?", flags=re.DOTALL | re.MULTILINE)


def markdown(text: str, link: Callable[[str], str] | None = None) -> str:
    """Rewrite the marks of a docstring as Markdown.

    Parameters
    ----------
    text : str
        A docstring without its indentation.
    link : callable, optional
        What a reference such as ``Chain.fit`` becomes. By default it is shown as code.

    Returns
    -------
    str
        The text with formulas between dollar signs, tables with bars and names in single backticks.
    """
    show = link or _as_code
    text = TABLE.sub(_table, text)
    text = MATH_BLOCK.sub(_displayed, text)
    text = FORMULA.sub(r"$\1$", text)
    text = ROLE.sub(lambda role: show(role[1]), text)
    return text.replace("``", "`")


def fence_examples(text: str) -> str:
    """Put examples outside sections between fences; those of a section Examples are found by its title.

    Parameters
    ----------
    text : str
        A docstring without its indentation.

    Returns
    -------
    str
        The docstring, in which examples before the first section are blocks of code.
    """
    section = SECTION.search(text)
    end = section.start() if section else len(text)
    return EXAMPLE.sub(r"```pycon\n\g<0>\n```", text[:end]) + text[end:]


def draw_formulas(text: str) -> str:
    """Replace the formulas of a Markdown text by MathML, outside code."""
    from latex2mathml.converter import convert

    def draw_block(found: re.Match[str]) -> str:
        return str(convert(found[1].strip(), display="block"))

    def draw_inline(found: re.Match[str]) -> str:
        drawn = convert(found[1].strip(), display="inline")
        return f"<span>{drawn}</span>"  # a bare <math> at the start of a line would begin a paragraph

    parts = CODE.split(text)
    for i in range(0, len(parts), 2):  # every other part is code
        shown = DISPLAYED.sub(draw_block, parts[i])
        parts[i] = INLINE.sub(draw_inline, shown)
    return "".join(parts)


def _as_code(name: str) -> str:
    return f"`{name}`"


def _displayed(found: re.Match[str]) -> str:
    """Put a displayed formula on its own line."""
    formula = " ".join(found[2].split())
    return f"{found[1]}$${formula}$$"


def _table(found: re.Match[str]) -> str:
    """Rewrite a table whose columns are ruled with equals signs."""
    indent, ruler, first, second = found.groups()
    starts = [column.start() for column in re.finditer("=+", ruler)]
    if second is None:  # two rulers: the table has no header
        header, body = [""] * len(starts), first
    else:
        header, body = next(_rows(first, indent, starts)), second
    lines = [header, ["---"] * len(starts), *_rows(body, indent, starts)]
    return "\n".join(f"{indent}| {' | '.join(cells)} |" for cells in lines)


def _rows(text: str, indent: str, starts: list[int]) -> Iterator[list[str]]:
    """Yield the cells of each row; a line without a first cell continues the row above it."""
    ends = [*starts[1:], None]
    row: list[str] = []
    for line in text.splitlines():
        line = line.removeprefix(indent)
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        if cells[0] or not row:
            if row:
                yield row
            row = cells
        else:
            row = [f"{above} {below}".strip() for above, below in zip(row, cells, strict=True)]
    yield row
