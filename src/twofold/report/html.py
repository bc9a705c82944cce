"""Format a document as one self-contained HTML page: it opens from disk and needs no network and no server."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template

from twofold.report.document import Document, Figure, Markup, Number, Part, ReportTable, Section, TableCell, Tile

# in the order in which the page runs them: what a script uses when it is read stands in one before it
SCRIPTS = ("threshold_grid.js", "surface.js", "explorer.js", "downloads.js", "sorting.js", "page.js")


def format_html(document: Document) -> str:
    """Format a document as one HTML page.

    Every text is escaped, and a content security policy in the head lets no script run but the page's own.

    Parameters
    ----------
    document : Document
        The report.

    Returns
    -------
    str
        The page, with style, script, figures and data inside.
    """
    from twofold import __version__

    script = "".join(map(read_static, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    contents = [f'<li><a href="#{section.key}">{escape(section.title)}</a></li>' for section in document.sections]
    return Template(read_static("page.html")).substitute(
        digest=f"sha256-{digest}",
        version=escape(__version__),
        title=escape(document.title),
        subtitle=escape(document.subtitle),
        style=read_static("page.css"),
        chart_style=read_static("chart.css"),
        contents="".join(contents),
        tiles=_format_tiles(document.tiles),
        body="".join(map(_format_section, document.sections)),
        summary=_format_summary(document),
        data=script_json({"figures": _figure_data(document), "explorer": document.data or None}),
        script=script,
    )


def read_static(name: str) -> str:
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


# --- data for the page's script -------------------------------------------------------------------------------------


def _figure_data(document: Document) -> dict[str, object]:
    """Collect the numbers behind each figure, which a reader can download."""
    data: dict[str, object] = {}
    for section in document.sections:
        for part in section.parts:
            if isinstance(part, Figure):
                data[part.key] = {"columns": part.columns, "rows": part.rows}
    return data


def _format_summary(document: Document) -> str:
    """Embed the headline as data in a separate element; return nothing where a document has none."""
    if not document.summary:
        return ""
    return f'<script type="application/json" id="twofold-summary">{script_json(document.summary)}</script>\n'


def script_json(value: object) -> str:
    r"""Format a value as JSON that is safe inside a script element.

    No text in it can end the element or open a comment.

    Parameters
    ----------
    value : object
        Mappings, lists, tuples and plain values; floats that are not finite become null.

    Returns
    -------
    str
        Compact JSON in ASCII.

    Examples
    --------
    >>> script_json(["</script><!--", float("nan")])
    '["\\u003c/script\\u003e\\u003c!--",null]'
    """
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: object) -> object:
    """Copy nested values with None for every float that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


# --- markup ---------------------------------------------------------------------------------------------------------


def _format_tiles(tiles: tuple[Tile, ...]) -> str:
    if not tiles:
        return ""
    items = []
    for tile in tiles:
        items.append(
            f"<li><b>{escape(tile.value)}</b><span>{escape(tile.meaning)}</span><small>{escape(tile.detail)}</small></li>"
        )
    return f'<ul class="tiles">{"".join(items)}</ul>'


def _format_section(section: Section) -> str:
    """Format a section; figures that follow one another stand side by side."""
    parts = []
    for are_figures, several in groupby(section.parts, key=lambda part: isinstance(part, Figure)):
        inside = "".join(map(_format_part, several))
        if are_figures:
            inside = f'<div class="figures">{inside}</div>'
        parts.append(inside)
    key = escape(section.key)
    head = f'<h2 id="{key}-head">{escape(section.title)}</h2>'
    return f'<section id="{key}" aria-labelledby="{key}-head">{head}{"".join(parts)}</section>'


def _format_part(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Markup):
        return part.html
    if isinstance(part, Figure):
        return _format_figure(part)
    if part.key == "cautions":
        return _format_cautions(part)
    return _format_table(part)


def _format_figure(figure: Figure) -> str:
    drawing, attribute = figure.svg, ""
    if figure.wide:
        drawing, attribute = f'<div class="scroll" tabindex="0">{figure.svg}</div>', ' class="wide"'
    return (
        f'<figure{attribute} data-figure="{escape(figure.key)}"><div class="head"><h3>{escape(figure.title)}</h3></div>'
        f"{drawing}<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _format_cautions(table: ReportTable) -> str:
    """Format a table of one column as a box with a list."""
    items = _format_items([str(row[0]) for row in table.rows])
    return f'<div class="cautions"><strong>{escape(table.caption)}</strong><ul>{items}</ul></div>'


def _format_items(texts: Sequence[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _format_table(table: ReportTable) -> str:
    below = ""
    if table.notes:
        below = f'<ul class="notes">{_format_items(table.notes)}</ul>'
    key, caption = escape(table.key), escape(table.caption)
    return (
        f'<div class="scroll" role="region" aria-labelledby="caption-{key}" tabindex="0"><table data-table="{key}">'
        f'<caption id="caption-{key}"><span>{caption}</span></caption><thead><tr>{_format_heads(table)}</tr></thead>'
        f"<tbody>{_format_rows(table)}</tbody></table></div>{below}"
    )


def _format_heads(table: ReportTable) -> str:
    """Format the headings; those of columns of text are marked, since text is aligned to the left."""
    heads = []
    for i, name in enumerate(table.columns):
        is_numeric = any(not isinstance(row[i], str) for row in table.rows)
        attribute = " class=name"
        if is_numeric:
            attribute = ""
        heads.append(f'<th scope="col"{attribute}>{escape(name)}</th>')
    return "".join(heads)


def _format_rows(table: ReportTable) -> str:
    """Format the rows; where several rows share their first cell, the first row of each such group is marked."""
    firsts = {row[0] for row in table.rows}
    is_grouped = len(firsts) < len(table.rows)
    lines = []
    previous = None
    for row in table.rows:
        starts_group = is_grouped and previous is not None and row[0] != previous
        previous = row[0]
        heads = "".join(map(_format_row_head, row[: table.heads]))
        cells = "".join(map(_format_cell, row[table.heads :]))
        attribute = ""
        if starts_group:
            attribute = " class=first"
        lines.append(f"<tr{attribute}>{heads}{cells}</tr>")
    return "".join(lines)


def _format_row_head(cell: TableCell) -> str:
    return f'<th scope="row">{escape(str(cell))}</th>'


def _format_cell(cell: TableCell) -> str:
    if isinstance(cell, Number):
        return _format_number(cell)
    if isinstance(cell, int):
        return f'<td data-value="{cell}">{cell:,}</td>'
    return f'<td class="text">{escape(cell)}</td>'


def _format_number(number: Number) -> str:
    attributes, text = "", escape(str(number))
    if number.strong:
        attributes += " class=strong"
    if not math.isnan(number.value):
        attributes += f' data-value="{number.value!r}"'
    if number.span:
        text += f"<small>{escape(number.span)}</small>"
    return f"<td{attributes}>{text}</td>"
