"""Published numbers as data: what the papers printed, cell by cell.

``published/`` holds one CSV file per printed table. A row is one printed number with its protocol's names: the metric
and score carry twofold's names where it has them, and ``note`` says how the paper calls it or why a cell is doubtful.
Papers: ``sure_plus`` (joint metrics), ``unknown_detection``, ``stratified`` (CLIP-stratified study),
``aurc_estimators``, ``fd_shifts``, ``openood`` (the leaderboard of 2025-07-19), and ``uncertainty_baselines`` (Google's
table of BERT on CLINC150).

>>> [first] = anchors(paper="sure_plus", table="7", benchmark="openood-cifar100", reliable=True)[:1]
>>> first.score, first.shift, first.metric, first.value, round(first.rate, 4)
('msp', 'near', 'auroc_ood', 80.82, 0.8082)
>>> tables()["sure_plus", "7"]
(18, 6)
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from twofold.errors import InvalidInput, UnknownName

UNITS: dict[str, float] = {"percent": 100.0, "x1000": 1000.0, "1": 1.0, "count": 1.0, "rank": 1.0}
"""What a printed value is divided by to give a rate (or the plain number, for counts, ranks and unit 1)."""

MISSING: dict[tuple[str, str], str] = {
    ("fd_shifts", "12"): "ranks by AURC beside ranks by AUROC of failures; its cells were not to be had as text, and "
    "follow from Tables 1 and 9 up to rounding",
}
"""Tables of the papers that belong here and are not transcribed, with the reason."""


@dataclass(frozen=True)
class Anchor:
    """Hold one printed number.

    Parameters
    ----------
    paper, table : str
        Where it was printed.
    benchmark : str
        Benchmark it belongs to.
    model, recipe : str
        Network and training.
    score, pair : str
        The score; in a pair, ``score`` is the ID score and ``pair`` the OOD score.
    shift, role : str
        Data set or group, and its role.
    metric : str
        Name of the metric in twofold, where it has one.
    value : float
        The number as printed.
    spread : float or None
        The printed spread.
    unit : str
        A key of ``UNITS``.
    reliable : bool
        Whether the cell is free of doubt.
    note : str
        How the paper calls it, or why the cell is doubtful.
    """

    paper: str
    table: str
    benchmark: str
    model: str
    recipe: str
    score: str
    pair: str
    shift: str
    role: str
    metric: str
    value: float
    spread: float | None
    unit: str
    reliable: bool
    note: str

    @property
    def rate(self) -> float:
        """The value in natural units: percent over 100, x1000 over 1000, others as printed."""
        return self.value / UNITS[self.unit]


class PrintedLayout(NamedTuple):
    """Hold what stands in the lines and what in the columns of a printed table.

    Parameters
    ----------
    lines, columns : tuple of str
        Fields of an anchor, or what a table prints in place of them.
    """

    lines: tuple[str, ...]
    columns: tuple[str, ...]


# Blocks of a printed table that repeat the lines of the one above are put side by side.
_LAYOUTS: dict[tuple[str, str], PrintedLayout] = {
    ("sure_plus", "1"): PrintedLayout(("method",), ("model", "metric", "shift")),
    ("sure_plus", "2"): PrintedLayout(("score", "pair", "shift", "moved"), ("quantity",)),
    ("sure_plus", "3"): PrintedLayout(("recipe",), ("metric", "pair", "shift")),
    ("sure_plus", "4"): PrintedLayout(("recipe",), ("metric", "pair", "shift")),
    ("sure_plus", "5"): PrintedLayout(("model", "recipe"), ("metric", "shift")),
    ("sure_plus", "6"): PrintedLayout(("pair",), ("metric", "score", "shift")),
    ("sure_plus", "7"): PrintedLayout(("method",), ("metric", "shift")),
    ("fd_shifts", "1"): PrintedLayout(("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "2"): PrintedLayout(("classifier", "benchmark"), ("metric",)),
    ("fd_shifts", "5"): PrintedLayout(("score",), ("benchmark",)),
    ("fd_shifts", "6"): PrintedLayout(("score", "recipe"), ("benchmark",)),
    ("fd_shifts", "7"): PrintedLayout(("benchmark", "score"), ("metric",)),
    ("fd_shifts", "8"): PrintedLayout(("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "9"): PrintedLayout(("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "10"): PrintedLayout(("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "11"): PrintedLayout(("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "13"): PrintedLayout(("classifier", "score", "recipe"), ("benchmark", "shift", "metric")),
    ("fd_shifts", "14"): PrintedLayout(("metric",), ("model",)),
    ("fd_shifts", "15"): PrintedLayout(("recipe", "score"), ("metric",)),
    ("fd_shifts", "16"): PrintedLayout(("benchmark", "recipe"), ("score",)),
    ("stratified", "1"): PrintedLayout(("benchmark",), ("role",)),
    ("stratified", "2"): PrintedLayout(("benchmark", "shift"), ("score",)),
    ("stratified", "distances-cifar10"): PrintedLayout(("shift",), ("metric",)),
    ("stratified", "distances-supercifar100"): PrintedLayout(("shift",), ("metric",)),
    ("stratified", "distances-cifar100"): PrintedLayout(("shift",), ("metric",)),
    ("stratified", "distances-tinyimagenet"): PrintedLayout(("shift",), ("metric",)),
    ("unknown_detection", "6"): PrintedLayout(("recipe", "score"), ("metric", "shift")),
    ("unknown_detection", "7"): PrintedLayout(("recipe", "score"), ("metric", "shift")),
    ("unknown_detection", "readme"): PrintedLayout(("recipe", "score"), ("metric", "shift")),
    ("aurc_estimators", "1"): PrintedLayout(("model",), ("benchmark", "recipe")),
    ("openood", "leaderboard"): PrintedLayout(("score",), ("benchmark", "model", "shift")),
    ("openood", "leaderboard-regnet"): PrintedLayout(("score",), ("shift",)),
    ("openood", "leaderboard-full-spectrum"): PrintedLayout(("score",), ("shift",)),
    ("uncertainty_baselines", "clinc-intent"): PrintedLayout(("recipe",), ("metric",)),
}


def anchors(
    paper: str | None = None, table: str | None = None, benchmark: str | None = None, reliable: bool | None = None
) -> list[Anchor]:
    """List the published numbers, optionally filtered.

    Parameters
    ----------
    paper, table, benchmark : str, optional
        Keep the numbers of this paper, table or benchmark.
    reliable : bool, optional
        Keep the numbers that are, or are not, free of doubt.

    Returns
    -------
    list of Anchor
        The numbers.

    Raises
    ------
    UnknownName
        If no number has that paper, table or benchmark; the message lists the nearest names.

    Examples
    --------
    >>> len(anchors(paper="fd_shifts", table="1"))
    483
    """
    selected = list(_read_all())
    for field, wanted in (("paper", paper), ("table", table), ("benchmark", benchmark)):
        if wanted is None:
            continue
        known = {getattr(anchor, field) for anchor in selected}
        if wanted not in known:
            raise UnknownName.of(field, str(wanted), known)
        selected = [anchor for anchor in selected if getattr(anchor, field) == wanted]
    if reliable is not None:
        selected = [anchor for anchor in selected if anchor.reliable is reliable]
    return selected


def printed_layout(paper: str, table: str) -> PrintedLayout:
    """Look up what stands in the lines and columns of a printed table.

    Parameters
    ----------
    paper, table : str
        The table, as anchors name it.

    Returns
    -------
    PrintedLayout
        Fields for :func:`printed_label`.

    Raises
    ------
    UnknownName
        If no such table is transcribed.

    Examples
    --------
    >>> printed_layout("sure_plus", "7")
    PrintedLayout(lines=('method',), columns=('metric', 'shift'))
    """
    if (paper, table) not in _LAYOUTS:
        known = [name for owner, name in _LAYOUTS if owner == paper]
        raise UnknownName.of(f"transcribed table of {paper}", table, known)
    return _LAYOUTS[paper, table]


def tables() -> dict[tuple[str, str], tuple[int, int]]:
    """Count the printed rows and columns of every table from its cells.

    Returns
    -------
    dict of (str, str) to (int, int)
        Rows and columns by paper and table.

    Notes
    -----
    A line across the foot of a table that belongs to no score, such as the ID accuracy, is a row without columns of its
    own.
    """
    cells: dict[tuple[str, str], list[Anchor]] = {key: [] for key in _LAYOUTS}
    for anchor in _read_all():
        cells[anchor.paper, anchor.table].append(anchor)
    return {key: _table_shape(cells[key], layout) for key, layout in _LAYOUTS.items()}


def _table_shape(cells: Sequence[Anchor], layout: PrintedLayout) -> tuple[int, int]:
    """Count the lines of a table, and the columns that lines with a label have."""
    lines = set()
    columns = set()
    for anchor in cells:
        line = _printed_labels(anchor, layout.lines)
        lines.add(line)
        if any(line):
            columns.add(_printed_labels(anchor, layout.columns))
    return len(lines), len(columns)


def _printed_labels(anchor: Anchor, fields: Iterable[str]) -> tuple[str, ...]:
    return tuple([printed_label(anchor, field) for field in fields])


def printed_label(anchor: Anchor, field: str) -> str:
    """Look up a field of an anchor, or what a printed table shows instead of it.

    Parameters
    ----------
    anchor : Anchor
        A printed number.
    field : str
        A name in a :class:`PrintedLayout`.

    Returns
    -------
    str
        The label; empty where the number has none.
    """
    if field == "method":
        return anchor.pair or anchor.score
    if field == "classifier":
        return classifier_of(anchor.model)
    if field == "moved" and anchor.metric.endswith("_transferred"):
        return "moved"
    if field == "moved":
        return ""
    if field == "quantity":
        return anchor.metric.removesuffix("_transferred").removeprefix("ds_")
    return str(getattr(anchor, field))


def classifier_of(model: str) -> str:
    """Tell the two kinds of networks apart that FD-Shifts prints in separate lines.

    Parameters
    ----------
    model : str
        Name of a network.

    Returns
    -------
    str
        ``"ViT"`` for vision transformers, else ``"CNN"``.

    Examples
    --------
    >>> classifier_of("timm:vit_tiny_patch16_224?img_size=32"), classifier_of("vgg13")
    ('ViT', 'CNN')
    """
    if any(word in model for word in ("vit", "deit", "dino")):
        return "ViT"
    return "CNN"


# --- files ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _read_all() -> tuple[Anchor, ...]:
    """Read the anchors of all papers."""
    folder = files("twofold.bench") / "files" / "published"
    tables = [item for item in folder.iterdir() if item.name.endswith(".csv")]
    found: list[Anchor] = []
    for item in sorted(tables, key=lambda item: item.name):
        found += _parse_table(item.read_text(encoding="utf-8"), item.name)
    return tuple(found)


def _parse_table(text: str, name: str) -> list[Anchor]:
    """Parse the anchors of one CSV text; a row that no paper can have printed is an error that names its line."""
    columns = [field.name for field in fields(Anchor)]
    lines = csv.reader(text.splitlines())
    if next(lines, None) != columns:
        raise InvalidInput(f"{name}: the first line must be {','.join(columns)}")
    parsed = []
    for line in lines:
        where = f"{name}, line {lines.line_num}"
        if len(line) != len(columns):
            raise InvalidInput(f"{where}: has {len(line)} columns but the head has {len(columns)}")
        parsed.append(_parse_anchor(dict(zip(columns, line, strict=True)), where))
    return parsed


def _parse_anchor(row: dict[str, str], where: str) -> Anchor:
    _check_texts(row, where)
    try:
        value, spread = float(row["value"]), None
        if row["spread"]:
            spread = float(row["spread"])
    except ValueError as error:
        raise InvalidInput(
            f"{where}: value and spread must be numbers, got {row['value']!r}, {row['spread']!r}"
        ) from error
    _check_range(value, spread, row["unit"], where)
    return Anchor(
        paper=row["paper"],
        table=row["table"],
        benchmark=row["benchmark"],
        model=row["model"],
        recipe=row["recipe"],
        score=row["score"],
        pair=row["pair"],
        shift=row["shift"],
        role=row["role"],
        metric=row["metric"],
        value=value,
        spread=spread,
        unit=row["unit"],
        reliable=row["reliable"] == "yes",
        note=row["note"],
    )


def _check_texts(row: dict[str, str], where: str) -> None:
    if row["unit"] not in UNITS:
        raise InvalidInput(f"{where}: {UnknownName.of('unit', row['unit'], UNITS)}")
    if row["reliable"] not in ("yes", "no"):
        raise InvalidInput(f"{where}: reliable must be yes or no, got {row['reliable']!r}")
    if row["reliable"] == "no" and not row["note"]:
        raise InvalidInput(f"{where}: an unreliable cell needs its reason in note")
    if (row["paper"], row["table"]) not in _LAYOUTS:
        raise InvalidInput(f"{where}: no table {row['table']!r} of paper {row['paper']!r} is known")
    for column in ("benchmark", "metric"):
        if not row[column]:
            raise InvalidInput(f"{where}: {column} is empty")


def _check_range(value: float, spread: float | None, unit: str, where: str) -> None:
    largest = {"percent": 100.0, "x1000": 1000.0}.get(unit, math.inf)
    smallest = {"1": -math.inf, "rank": 1.0}.get(unit, 0.0)
    must_be_whole = unit in ("count", "rank")
    is_possible = math.isfinite(value) and smallest <= value <= largest
    if not is_possible or (must_be_whole and not value.is_integer()):
        raise InvalidInput(f"{where}: {value:g} is not a possible value of unit {unit!r}")
    if spread is not None and not (math.isfinite(spread) and spread >= 0):
        raise InvalidInput(f"{where}: spread must be a finite number of at least 0, got {spread:g}")
