"""One self-contained page on how far a classifier can be trusted: opens from disk, needs no network and no server."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any, Literal

from twofold import _checks
from twofold._checks import ArrayLike
from twofold._files import replacing
from twofold.bench.results import Results
from twofold.bench.storage import CSV
from twofold.errors import InvalidInput, RunError
from twofold.report.document import Cell, Document, Figure, Markup, Number, Part, Section, Table, static
from twofold.report.material import Done, gather
from twofold.run import Run

Format = Literal["html", "md", "latex", "json"]
FORMATS = ("html", "md", "latex", "json")


def report(
    source: Run | Results | Document | str | Path,
    path: str | Path,
    *,
    id: str | None = None,  # noqa: A002 - the name of the design
    ood: str | None = None,
    scores: Sequence[str] | None = None,
    images: Mapping[str, Any] | str | Path | None = None,
    ood_classes: Mapping[str, ArrayLike] | None = None,
    format: Format = "html",  # noqa: A002 - what every writer calls it
    resamples: int = 200,
    seed: int = 0,
    command: str | None = None,
    done: Done = lambda _: None,
) -> Path:
    """Write the report on a run, on a file of outputs, or on benchmark results, to one file.

    The same source and seed give the same bytes.

    Parameters
    ----------
    source : Run, Results, Document, str or Path
        A run or its folder; an npz file with ``logits`` and ``labels`` (-1: unknown input), or with ``correct`` and
        ``conf`` and optionally ``is_id`` and ``conf_ood``; results or their folder; or a finished document, such as
        that of a study.
    path : str or Path
        File to write; it is replaced if it exists.
    id, ood : str, optional
        The pair of scores to judge on a run. By default the best pair of ``scores`` on the run's validation data.
    scores : sequence of str, optional
        Scores to compare on a run.
    images : mapping, str or Path, optional
        Pictures of the data sets whose cases should be shown: by name of the data set an array (N, H, W) or
        (N, H, W, 3), or what ``twofold.nn.data.open`` returns; or an npz file of such arrays.
    ood_classes : mapping of str to array-like, optional
        For sets of unknown inputs, the class of each row, or SUPERCLASS/CLASS.
    format : {"html", "md", "latex", "json"}, default="html"
        Format of the file. All but ``html`` hold tables without figures; ``md`` and ``json`` also hold the sentences.
    resamples : int, default=200
        Upper limit on the number of bootstrap resamples; large sets use fewer.
    seed : int, default=0
        Seed of the resampling.
    command : str, optional
        Command line to show on the page as the one that makes it. By default it is derived from the arguments.
    done : callable, optional
        Called with the name of each finished step.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If the format is unknown, the source or the folder of ``path`` does not exist, ``resamples`` is not a positive
        whole number, or an option for runs comes with results.
    RunError
        If the file cannot be written; it is then unchanged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/scores.npz", correct=[True, False, True, True], conf=[0.9, 0.2, 0.8, 0.7])
    ...     page = report(f"{folder}/scores.npz", f"{folder}/report.html", resamples=10)
    ...     page.read_text(encoding="utf-8").startswith("<!doctype html>")
    True
    """
    _checks.choice(format, "format", FORMATS)
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidInput(f"{target} cannot be written: there is no folder {target.parent}")
    made = document(
        source,
        id=id,
        ood=ood,
        scores=scores,
        images=images,
        ood_classes=ood_classes,
        resamples=_checks.whole(resamples, "resamples", 1),
        seed=seed,
        command=command,
        format=format,
        done=done,
    )
    forms = {"html": lambda: page(made), "md": made.to_markdown, "latex": made.to_latex, "json": made.to_json}
    text = forms[format]()
    try:
        with replacing(target) as file:
            file.write(text.encode())
    except OSError as error:
        raise RunError(f"{target} cannot be written ({error.strerror}); nothing was changed") from error
    return target


def document(
    source: Run | Results | Document | str | Path,
    *,
    id: str | None = None,  # noqa: A002
    ood: str | None = None,
    scores: Sequence[str] | None = None,
    images: Mapping[str, Any] | str | Path | None = None,
    ood_classes: Mapping[str, ArrayLike] | None = None,
    resamples: int = 200,
    seed: int = 0,
    command: str | None = None,
    format: Format = "html",  # noqa: A002
    done: Done = lambda _: None,
) -> Document:
    """Build what :func:`report` writes, before it is formatted.

    Parameters
    ----------
    source : Run, Results, Document, str or Path
        What to report on, as in :func:`report`. A document is returned as it is.
    id, ood : str, optional
        The pair of scores to judge on a run. By default the best pair of ``scores`` on the run's validation data.
    scores : sequence of str, optional
        Scores to compare on a run.
    images : mapping, str or Path, optional
        Pictures of the data sets whose cases should be shown, as in :func:`report`.
    ood_classes : mapping of str to array-like, optional
        For sets of unknown inputs, the class of each row, or SUPERCLASS/CLASS.
    resamples : int, default=200
        Upper limit on the number of bootstrap resamples; large sets use fewer.
    seed : int, default=0
        Seed of the resampling.
    command : str, optional
        Command line to show on the page. By default it is derived from the arguments.
    format : {"html", "md", "latex", "json"}, default="html"
        Format named in the derived command line; it changes nothing else.
    done : callable, optional
        Called with the name of each finished step.

    Returns
    -------
    Document
        Title, headline numbers and sections.

    Raises
    ------
    InvalidInput
        If the source does not exist, or an option for runs comes with results.
    """
    place = Path(source) if isinstance(source, str | Path) else None
    if place is not None and not place.exists():
        raise InvalidInput(f"there is no file or folder {place}; give a run, an npz file or a folder of results")
    if isinstance(source, Results | Document) or (place is not None and _holds_results(place)):
        from twofold.report import ledger

        given = {"id": id, "ood": ood, "scores": scores, "images": images, "ood_classes": ood_classes}
        odd = [name for name, value in given.items() if value is not None]
        if odd:
            raise InvalidInput(f"{odd[0]} belongs to the report on a run, and these are results; leave it out")
        if isinstance(source, Document):
            return source
        opened = source if isinstance(source, Results) else Results.open(str(place))
        return ledger.document(opened, str(place or "results"), done, command)
    from twofold.report import pictures, sections
    from twofold.report.commands import report_command

    material = gather(
        source, id=id, ood=ood, scores=scores, ood_classes=ood_classes, resamples=resamples, seed=seed, done=done
    )
    sizes, ids = ({one.name: told(one) for one in material.sets} for told in (len, lambda one: one.ids))
    seen = pictures.opened(images, sizes, ids)
    given_as_arrays = command is None and (isinstance(images, Mapping) or ood_classes is not None)
    if command is None:
        command = report_command(
            material.source,
            id=id,
            ood=ood,
            scores=scores or (),
            images=[str(images)] if isinstance(images, str | Path) else (),
            resamples=resamples,
            seed=seed,
            format=format,
        )
    gives = "this page, without what was given as arrays" if given_as_arrays else "this page"
    return sections.document(material, seen, (command, gives), resamples=resamples, seed=seed, done=done)


def _holds_results(place: Path) -> bool:
    return (place.is_dir() and (place / CSV).is_file()) or place.suffix in (".csv", ".parquet")


# --- the page -------------------------------------------------------------------------------------------------------


def page(made: Document) -> str:
    """Format a document as one HTML page.

    Every text is escaped, and a content security policy in the head lets no script run but the page's own.

    Parameters
    ----------
    made : Document
        The report.

    Returns
    -------
    str
        The page, with style, script, figures and data inside.
    """
    from twofold import __version__

    script = static("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    figures = {
        part.key: {"columns": part.columns, "rows": part.rows}
        for section in made.sections
        for part in section.parts
        if isinstance(part, Figure)
    }
    tiles = "".join(
        f"<li><b>{escape(value)}</b><span>{escape(what)}</span><small>{escape(span)}</small></li>"
        for value, what, span in made.tiles
    )
    return Template(static("page.html")).substitute(
        digest=f"sha256-{digest}",
        version=escape(__version__),
        title=escape(made.title),
        subtitle=escape(made.subtitle),
        style=static("page.css"),
        chart_style=static("chart.css"),
        contents="".join(f'<li><a href="#{s.key}">{escape(s.title)}</a></li>' for s in made.sections),
        tiles=f'<ul class="tiles">{tiles}</ul>' if tiles else "",
        body="".join(_section(section) for section in made.sections),
        summary=_summary(made),
        data=as_json({"figures": figures, "explorer": made.data or None}),
        script=script,
    )


def _summary(made: Document) -> str:
    """Embed the headline as data in an element of its own; return nothing where a document has none."""
    if not made.summary:
        return ""
    return f'<script type="application/json" id="twofold-summary">{as_json(made.summary)}</script>\n'


def as_json(value: Any) -> str:
    r"""Format a value as JSON that is safe inside a script element.

    No text in it can end the element or open a comment.

    Parameters
    ----------
    value : Any
        Mappings, lists, tuples and plain values; floats that are not finite become null.

    Returns
    -------
    str
        Compact JSON in ASCII.

    Examples
    --------
    >>> as_json(["</script><!--", float("nan")])
    '["\\u003c/script\\u003e\\u003c!--",null]'
    """
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def _section(section: Section) -> str:
    parts = []
    for is_figure, several in groupby(section.parts, key=lambda part: isinstance(part, Figure)):
        inside = "".join(_part(part) for part in several)
        parts.append(f'<div class="figures">{inside}</div>' if is_figure else inside)
    key = escape(section.key)
    head = f'<h2 id="{key}-head">{escape(section.title)}</h2>'
    return f'<section id="{key}" aria-labelledby="{key}-head">{head}{"".join(parts)}</section>'


def _part(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Markup):
        return part.html
    if isinstance(part, Figure):
        return _figure(part)
    if part.key == "cautions":
        items = "".join(f"<li>{escape(str(row[0]))}</li>" for row in part.rows)
        return f'<div class="cautions"><strong>{escape(part.caption)}</strong><ul>{items}</ul></div>'
    return _table(part)


def _figure(figure: Figure) -> str:
    wide = ' class="wide"' if figure.wide else ""
    drawing = f'<div class="scroll" tabindex="0">{figure.svg}</div>' if figure.wide else figure.svg
    return (
        f'<figure{wide} data-figure="{escape(figure.key)}"><div class="head"><h3>{escape(figure.title)}</h3></div>'
        f"{drawing}<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    numeric = [any(not isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    head = "".join(
        f'<th scope="col"{"" if numeric[i] else " class=name"}>{escape(name)}</th>'
        for i, name in enumerate(table.columns)
    )
    grouped = len({row[0] for row in table.rows}) < len(table.rows)
    body, before = [], None
    for row in table.rows:
        first = grouped and before is not None and row[0] != before
        before = row[0]
        cells = "".join(_cell(cell, i < table.heads) for i, cell in enumerate(row))
        body.append(f"<tr{' class=first' if first else ''}>{cells}</tr>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    after = f'<ul class="notes">{notes}</ul>' if notes else ""
    key, caption = escape(table.key), escape(table.caption)
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table data-table="{key}">'
        f"<caption><span>{caption}</span></caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>{after}"
    )


def _cell(cell: Cell, head: bool) -> str:
    if head:
        return f'<th scope="row">{escape(str(cell))}</th>'
    if isinstance(cell, Number):
        value = "" if math.isnan(cell.value) else f' data-value="{cell.value!r}"'
        span = f"<small>{escape(cell.span)}</small>" if cell.span else ""
        strong = " class=strong" if cell.strong else ""
        return f"<td{strong}{value}>{escape(str(cell))}{span}</td>"
    if isinstance(cell, int):
        return f'<td data-value="{cell}">{cell:,}</td>'
    return f'<td class="text">{escape(cell)}</td>'
