"""Published numbers as data: what the papers printed, cell by cell, and how results agree with it.

``published/`` holds one CSV file per printed table. A row is one printed number with its protocol's names: the metric
and score carry twofold's names where it has them, and ``note`` says how the paper calls it or why a cell is doubtful.
Papers: ``sure_plus`` (joint metrics), ``unknown_detection``, ``stratified`` (CLIP-stratified study),
``aurc_estimators``, ``fd_shifts``, and ``openood`` (the leaderboard of 2025-07-19).

>>> [first] = anchors(paper="sure_plus", table="7", benchmark="openood-cifar100", reliable=True)[:1]
>>> first.score, first.shift, first.metric, first.value, round(first.rate, 4)
('msp', 'near', 'auroc_ood', 80.82, 0.8082)
>>> tables()["sure_plus", "7"]
(18, 6)
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np

from twofold._checks import Array
from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.scores.chain import scorer
from twofold.scores.step import ChainStep

UNITS: dict[str, float] = {"percent": 100.0, "x1000": 1000.0, "1": 1.0, "count": 1.0, "rank": 1.0}
"""What a printed value is divided by to give a rate (or the plain number, for counts, ranks and unit 1)."""

MISSING: dict[tuple[str, str], str] = {
    ("fd_shifts", "12"): "ranks by AURC beside ranks by AUROC of failures; its cells were not to be had as text, and "
    "follow from Tables 1 and 9 up to rounding",
}
"""Tables of the papers that belong here and are not transcribed, with the reason."""

COUNTERPARTS: dict[str, tuple[str, ...]] = {
    "cifar10-real": ("openood-cifar10", "fd-cifar10", "stratified-cifar10"),
    "cifar100-real": ("openood-cifar100", "fd-cifar100", "stratified-cifar100"),
}
"""The published benchmarks that results of a benchmark without published numbers may be held against."""

_REAL = (
    "Other network: a small CIFAR ResNet trained by others, where the papers train ResNet-18, VGG-13 or ViT-B/16.",
    "One checkpoint, where the papers average three to five runs.",
    "Scores that learn see 10,000 of the 50,000 training images.",
    "9,000 test images: the first 1,000 of the stored test set are validation data.",
    "OOD sets are sub-sampled and resized by others, so the share of OOD samples, on which F1, DS-F1 and every AURC of "
    "mixed data depend, is not the published one.",
)
_EXACT = (
    "DS-F1, DS-AURC, F1 and AURC are exact over all thresholds; the SURE+ paper used a 1001-point linear grid on "
    "min-max scores and 100 coverage bins, which lowers its AURCs by about 5 to 7 per mille and harms heavy-tailed "
    "scores.",
)
_OPENOOD = (
    "The leaderboard chooses settings by AUROC on OOD validation data of its own; ours are chosen on the benchmark's.",
)
_FD = (
    "AURC groups equal confidences; the FD-Shifts paper's code broke ties by order and left out the last stretch to "
    "coverage 0.",
    "Scores are ranked raw; FD-Shifts ranked some after Platt scaling in limited precision, which makes ties.",
    "Its corruptions are the distributed CIFAR-C files; where they are absent, corruptions are computed here.",
)
_UNKNOWN = (
    "The class lists of the unknown-detection paper are unpublished; substitutes stand in for them, so cells are "
    "not comparable one by one.",
    "Equal confidences count half in AUROC here and nothing there; FPR takes the first threshold that reaches 95 % "
    "TPR, there the one nearest to it.",
    "The recipe of the noise images is not stated, and they are 30 % of the pool.",
)
_STRATIFIED = ("The study prints only its best score per set, chosen among all, and does not name it.",)

DIFFERENCES: dict[str, tuple[str, ...]] = {
    "cifar10-real": (
        *_REAL,
        "Near is CIFAR-100 and Tiny-ImageNet without the classes of CIFAR-10, 2,000 images before removal; far is "
        "SVHN, MNIST, Fashion-MNIST, notMNIST, ten texture classes, natural scenes and noise, where OpenOOD has MNIST, "
        "SVHN, all textures and Places365.",
        *_EXACT,
    ),
    "cifar100-real": (
        *_REAL,
        "Near is CIFAR-10 and Tiny-ImageNet without the classes of CIFAR-100; far is SVHN, MNIST, Fashion-MNIST, "
        "notMNIST, ten texture classes and noise, where OpenOOD has MNIST, SVHN, all textures and Places365.",
        *_EXACT,
    ),
    **{f"openood-{name}": _EXACT + _OPENOOD for name in ("cifar10", "cifar100", "imagenet200", "imagenet1k")},
    **{
        f"fd-{name}": _FD
        for name in ("cifar10", "cifar100", "supercifar100", "svhn", "svhn-openset", "iwildcam", "camelyon", "breeds")
    },
    **{f"unknown-{name}": _UNKNOWN for name in ("cifar", "imagenet")},
    **{f"stratified-{name}": _STRATIFIED for name in ("cifar10", "supercifar100", "cifar100", "tinyimagenet")},
}
"""How results of a benchmark differ from the published protocol, in plain sentences."""


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


@dataclass(frozen=True)
class Agreement:
    """Hold one result beside one published number, both in natural units.

    Parameters
    ----------
    anchor : Anchor
        The published number.
    ours : float
        The result.
    difference : float
        The result minus the published number.
    inside_interval : bool or None
        Whether the published value lies in our interval; None where there is none.
    same_model : bool
        Whether the network is the published one.
    """

    anchor: Anchor
    ours: float
    difference: float  # ours - published
    inside_interval: bool | None  # whether the published value lies in our interval; None where there is none
    same_model: bool


@dataclass(frozen=True)
class RankAgreement:
    """Hold Spearman's correlation between a published column and ours, over the scores that both have.

    Parameters
    ----------
    paper, table, model, recipe, metric, shift : str
        The published column.
    scores : int
        Number of scores that both have.
    spearman : float
        The correlation; NaN for fewer than three scores, or where one side is constant.
    """

    paper: str
    table: str
    model: str
    recipe: str
    metric: str
    shift: str
    scores: int
    spearman: float  # NaN for fewer than three scores, or where one side is constant


CORRUPTION = "corruption"  # the shift that is the mean over levels of corruption
LEVELS = ("1", "2", "3", "4", "5")  # those of the published means

# The protocols whose rows a paper's numbers may be held against; the known test set alone is the same in all.
_PROTOCOLS: dict[str, tuple[str, ...]] = {
    "sure_plus": ("joint", "openood"),
    "unknown_detection": ("unknown",),
    "stratified": ("stratified",),
    "aurc_estimators": (),
    "fd_shifts": ("fd_shifts", "open_set"),
    "openood": ("openood",),
}

Layout: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

# What stands in the lines and what in the columns of a printed table. Blocks that repeat the lines of the one above
# are put side by side.
_LAYOUT: dict[tuple[str, str], Layout] = {
    ("sure_plus", "1"): (("method",), ("model", "metric", "shift")),
    ("sure_plus", "2"): (("score", "pair", "shift", "moved"), ("quantity",)),
    ("sure_plus", "3"): (("recipe",), ("metric", "pair", "shift")),
    ("sure_plus", "4"): (("recipe",), ("metric", "pair", "shift")),
    ("sure_plus", "5"): (("model", "recipe"), ("metric", "shift")),
    ("sure_plus", "6"): (("pair",), ("metric", "score", "shift")),
    ("sure_plus", "7"): (("method",), ("metric", "shift")),
    ("fd_shifts", "1"): (("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "2"): (("classifier", "benchmark"), ("metric",)),
    ("fd_shifts", "5"): (("score",), ("benchmark",)),
    ("fd_shifts", "6"): (("score", "recipe"), ("benchmark",)),
    ("fd_shifts", "7"): (("benchmark", "score"), ("metric",)),
    ("fd_shifts", "8"): (("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "9"): (("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "10"): (("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "11"): (("classifier", "score", "recipe"), ("benchmark", "shift")),
    ("fd_shifts", "13"): (("classifier", "score", "recipe"), ("benchmark", "shift", "metric")),
    ("fd_shifts", "14"): (("metric",), ("model",)),
    ("fd_shifts", "15"): (("recipe", "score"), ("metric",)),
    ("fd_shifts", "16"): (("benchmark", "recipe"), ("score",)),
    ("stratified", "1"): (("benchmark",), ("role",)),
    ("stratified", "2"): (("benchmark", "shift"), ("score",)),
    ("stratified", "distances-cifar10"): (("shift",), ("metric",)),
    ("stratified", "distances-supercifar100"): (("shift",), ("metric",)),
    ("stratified", "distances-cifar100"): (("shift",), ("metric",)),
    ("stratified", "distances-tinyimagenet"): (("shift",), ("metric",)),
    ("unknown_detection", "6"): (("recipe", "score"), ("metric", "shift")),
    ("unknown_detection", "7"): (("recipe", "score"), ("metric", "shift")),
    ("unknown_detection", "readme"): (("recipe", "score"), ("metric", "shift")),
    ("aurc_estimators", "1"): (("model",), ("benchmark", "recipe")),
    ("openood", "leaderboard"): (("score",), ("benchmark", "model", "shift")),
    ("openood", "leaderboard-regnet"): (("score",), ("shift",)),
    ("openood", "leaderboard-full-spectrum"): (("score",), ("shift",)),
}


_KEYS = ("benchmark", "model", "recipe", "score", "pair", "shift", "role", "metric")


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
    rows = list(_all())
    for field, wanted in (("paper", paper), ("table", table), ("benchmark", benchmark)):
        if wanted is not None:
            known = {getattr(a, field) for a in rows}
            if wanted not in known:
                raise UnknownName.of(field, str(wanted), known)
            rows = [a for a in rows if getattr(a, field) == wanted]
    return rows if reliable is None else [a for a in rows if a.reliable is reliable]


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
    cells: dict[tuple[str, str], list[Anchor]] = {key: [] for key in _LAYOUT}
    for a in _all():
        cells[a.paper, a.table].append(a)
    return {key: _shape(cells[key], layout) for key, layout in _LAYOUT.items()}


def agreement(rows: Iterable[Mapping[str, Any]], benchmark: str) -> list[Agreement]:
    """Compare tidy results with the reliable published numbers of a benchmark.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results, such as those of :class:`~twofold.bench.results.Results`.
    benchmark : str
        Benchmark of the published numbers. A row counts if it belongs to that benchmark or to one whose
        :data:`COUNTERPARTS` name it.

    Returns
    -------
    list of Agreement
        One for each match of a row and a published number.

    Raises
    ------
    UnknownName
        If nothing was published for the benchmark.
    InvalidInput
        If a row lacks a column or holds text in place of a number.

    Notes
    -----
    A row matches an anchor that has its metric, its shift (its role on the known test set and on a pool, which are one
    table each) and its score: the same steps, with every setting that the anchor names. The two scores of a pair may
    stand in either order, since the exact double metrics are symmetric.

    A row whose recipe is the recipe of some anchor matches that recipe alone; any other row, such as one of a
    downloaded model, matches plain training where there is a choice. Where rows name their protocol, it must be that of
    the paper, except on the known test set alone. An anchor matches a model, recipe, seed and score once, and one
    without a score, such as an accuracy, whatever the score.

    Rows without a value (NaN or empty) are left out, and so is the mean over levels of corruption where the results
    show that it is not over all five, as published ones are (see :func:`incomplete_corruptions`).
    """
    rows = list(rows)
    partial = _partial_corruptions(rows)
    published = anchors(benchmark=benchmark, reliable=True)
    recipes = {a.recipe for a in _all() if a.recipe}
    by_key: dict[tuple[str, str], list[Anchor]] = defaultdict(list)
    for a in published:
        by_key[a.metric, _place(a.shift, a.role)].append(a)
    found: list[Agreement] = []
    near: dict[tuple[str, str, str, str], list[Anchor]] = {}
    seen: set[tuple[Any, ...]] = set()
    for number, row in enumerate(rows):
        text = {key: _text(row, key, number) for key in _KEYS}
        if benchmark not in (text["benchmark"], *COUNTERPARTS.get(text["benchmark"], ())):
            continue
        ours = _number(row, "value", number)
        if ours is None:
            continue
        if text["shift"] == CORRUPTION and _whose(row) in partial:
            continue
        low, high = _number(row, "low", number), _number(row, "high", number)
        protocol = _text(row, "protocol", number) if "protocol" in row else ""
        key = (text["metric"], _place(text["shift"], text["role"]), text["score"], text["pair"])
        if key not in near:
            near[key] = [a for a in by_key.get(key[:2], []) if _same_scores(a, text["score"], text["pair"])]
        fitting = [a for a in near[key] if _fits_protocol(a, protocol)]
        for a in _by_recipe(fitting, text["recipe"], recipes):
            scores = (text["score"], text["pair"]) if a.score else ()
            once = (a, text["model"], text["recipe"], str(row.get("seed", "")), *scores)
            if once not in seen:
                seen.add(once)
                inside = None if low is None or high is None else low <= a.rate <= high
                found.append(Agreement(a, ours, ours - a.rate, inside, _same_model(a.model, text["model"])))
    return found


def incomplete_corruptions(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say which means over levels of corruption are not compared with published ones, and why.

    Parameters
    ----------
    rows : iterable of mapping
        Tidy results; ``corruption`` is the mean over the shifts ``corruption/1`` to ``corruption/5`` that are there.

    Returns
    -------
    list of str
        One sentence for each run whose mean is over other than all five levels; empty where there is none.

    Examples
    --------
    >>> row = {"run": "a", "metric": "aurc", "value": 0.1}
    >>> incomplete_corruptions([row | {"shift": shift} for shift in ("corruption/1", "corruption/3", "corruption")])
    ['corruption of a is the mean over levels 1, 3, not compared: published ones are over levels 1, 2, 3, 4, 5']
    """
    found = {}
    for (run, *_), levels in _partial_corruptions(list(rows)).items():
        found[run or "the results"] = levels
    lines = []
    for run, levels in found.items():
        told = f"level{'s' if len(levels) > 1 else ''} {', '.join(levels)}"
        every = ", ".join(LEVELS)
        lines.append(
            f"corruption of {run} is the mean over {told}, not compared: published ones are over levels {every}"
        )
    return lines


def _partial_corruptions(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, ...], list[str]]:
    """Find the levels of corruption of each value that has some of them and not all."""
    levels: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        shift, _, level = str(row.get("shift", "")).partition("/")
        if shift == CORRUPTION and level in LEVELS:
            levels[_whose(row)].add(level)
    return {whose: sorted(own) for whose, own in levels.items() if own != set(LEVELS)}


def _whose(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Identify whose value a row is, apart from its shift; the run comes first."""
    columns = ("run", "benchmark", "model", "recipe", "seed", "score", "pair", "protocol", "metric")
    return tuple("" if row.get(column) is None else str(row.get(column)) for column in columns)


def counterparts(benchmark: str) -> tuple[str, ...]:
    """List the benchmarks with published numbers that results of this one may be compared with.

    Parameters
    ----------
    benchmark : str
        Name of the benchmark of the results.

    Returns
    -------
    tuple of str
        The benchmark itself, if it has published numbers, and its :data:`COUNTERPARTS`.

    Examples
    --------
    >>> counterparts("cifar10-real")
    ('openood-cifar10', 'fd-cifar10', 'stratified-cifar10')
    >>> counterparts("digits")
    ()
    """
    published = {a.benchmark for a in _all()}
    return tuple(name for name in (benchmark, *COUNTERPARTS.get(benchmark, ())) if name in published)


def rank_agreement(found: Iterable[Agreement]) -> list[RankAgreement]:
    """Compute Spearman's rank correlation for every published column, over the scores that both sides have.

    A column is one metric and shift of a table, model and recipe.

    Parameters
    ----------
    found : iterable of Agreement
        What :func:`agreement` returns.

    Returns
    -------
    list of RankAgreement
        One for each column.

    Notes
    -----
    Several results for one score (seeds, models) enter as their mean; ties take mid-ranks.
    """
    columns: dict[tuple[str, ...], dict[tuple[str, str], tuple[float, list[float]]]] = defaultdict(dict)
    for one in found:
        a = one.anchor
        if a.score:
            column = columns[a.paper, a.table, a.model, a.recipe, a.metric, a.shift]
            column.setdefault((a.score, a.pair), (a.rate, []))[1].append(one.ours)
    result = []
    for (paper, table, model, recipe, metric, shift), column in columns.items():
        theirs = np.array([rate for rate, _ in column.values()])
        ours = np.array([np.mean(values) for _, values in column.values()])
        rho = _spearman(theirs, ours)
        result.append(RankAgreement(paper, table, model, recipe, metric, shift, len(column), rho))
    return result


@lru_cache(maxsize=1)
def _all() -> tuple[Anchor, ...]:
    folder = files("twofold.bench") / "files" / "published"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".csv"))
    return tuple(a for name in names for a in _read((folder / name).read_text(encoding="utf-8"), name))


def _read(text: str, name: str) -> list[Anchor]:
    """Parse the anchors of one CSV text; a row that no paper can have printed is an error that names its line."""
    columns = [field.name for field in fields(Anchor)]
    lines = csv.reader(text.splitlines())
    if next(lines, None) != columns:
        raise InvalidInput(f"{name}: the first line must be {','.join(columns)}")
    rows = []
    for line in lines:
        where = f"{name}, line {lines.line_num}"
        if len(line) != len(columns):
            raise InvalidInput(f"{where}: has {len(line)} columns but the head has {len(columns)}")
        rows.append(_anchor(dict(zip(columns, line, strict=True)), where))
    return rows


def _anchor(row: dict[str, str], where: str) -> Anchor:
    if row["unit"] not in UNITS:
        raise InvalidInput(f"{where}: {UnknownName.of('unit', row['unit'], UNITS)}")
    if row["reliable"] not in ("yes", "no"):
        raise InvalidInput(f"{where}: reliable must be yes or no, got {row['reliable']!r}")
    if row["reliable"] == "no" and not row["note"]:
        raise InvalidInput(f"{where}: an unreliable cell needs its reason in note")
    if (row["paper"], row["table"]) not in _LAYOUT:
        raise InvalidInput(f"{where}: no table {row['table']!r} of paper {row['paper']!r} is known")
    for key in ("benchmark", "metric"):
        if not row[key]:
            raise InvalidInput(f"{where}: {key} is empty")
    try:
        value = float(row["value"])
        spread = float(row["spread"]) if row["spread"] else None
    except ValueError as error:
        raise InvalidInput(
            f"{where}: value and spread must be numbers, got {row['value']!r}, {row['spread']!r}"
        ) from error
    _check_range(value, spread, row["unit"], where)
    words = {key: row[key] for key in ("paper", "table", "benchmark", "model", "recipe", "score", "pair", "shift")}
    return Anchor(
        **words,
        role=row["role"],
        metric=row["metric"],
        value=value,
        spread=spread,
        unit=row["unit"],
        reliable=row["reliable"] == "yes",
        note=row["note"],
    )


def _check_range(value: float, spread: float | None, unit: str, where: str) -> None:
    top = {"percent": 100.0, "x1000": 1000.0}.get(unit, math.inf)
    low = {"1": -math.inf, "rank": 1.0}.get(unit, 0.0)
    whole = unit not in ("count", "rank") or value.is_integer()
    if not (math.isfinite(value) and low <= value <= top and whole):
        raise InvalidInput(f"{where}: {value:g} is no possible value of unit {unit!r}")
    if spread is not None and not (math.isfinite(spread) and spread >= 0):
        raise InvalidInput(f"{where}: spread must be a finite number of at least 0, got {spread:g}")


def _shape(cells: list[Anchor], layout: Layout) -> tuple[int, int]:
    down, across = layout
    lines = {tuple(_label(a, field) for field in down): None for a in cells}
    inside = [a for a in cells if any(_label(a, field) for field in down)]
    return len(lines), len({tuple(_label(a, field) for field in across) for a in inside})


def _label(a: Anchor, field: str) -> str:
    """Look up a field of an anchor, or what a printed table shows instead of it."""
    if field == "method":
        return a.pair or a.score
    if field == "classifier":
        return "ViT" if a.model.startswith("vit") else "CNN"
    if field == "moved":
        return "moved" if a.metric.endswith("_transferred") else ""
    if field == "quantity":
        return a.metric.removesuffix("_transferred").removeprefix("ds_")
    return str(getattr(a, field))


def _place(shift: str, role: str) -> str:
    if role in ("iid", "pooled") or not shift:
        return role
    return "tinyimagenet" if shift == "tinyimagenet_resize" else shift  # the same images by another interpolation


def _fits_protocol(a: Anchor, protocol: str) -> bool:
    return not protocol or a.role == "iid" or protocol in _PROTOCOLS[a.paper]


def _same_scores(a: Anchor, score: str, pair: str) -> bool:
    if not a.score:
        return True
    if bool(a.pair) is not bool(pair):
        return False
    if not pair:
        return _covers(a.score, score)
    straight = _covers(a.score, score) and _covers(a.pair, pair)
    return straight or (_covers(a.score, pair) and _covers(a.pair, score))


@lru_cache(maxsize=100_000)
def _covers(published: str, ours: str) -> bool:
    """Check whether ``ours`` has the steps of ``published`` and the settings that it names."""
    theirs, mine = _chain(published), _chain(ours)
    if theirs is None or mine is None:
        return published == ours
    if [step.info.name for step in theirs] != [step.info.name for step in mine]:
        return False
    pairs = zip(theirs, mine, strict=True)
    return all(value == my.setting(name) for their, my in pairs for name, value in their.settings.items())


@lru_cache(maxsize=10_000)
def _chain(spec: str) -> tuple[ChainStep, ...] | None:
    try:
        return scorer(spec).steps
    except TwofoldError:
        return None


def _by_recipe(near: list[Anchor], recipe: str, known: set[str]) -> list[Anchor]:
    if recipe in known:
        return [a for a in near if a.recipe in ("", recipe)]
    plain = {(a.paper, a.table, a.model) for a in near if a.recipe == "basic"}
    return [a for a in near if a.recipe == "basic" or (a.paper, a.table, a.model) not in plain]


def _same_model(published: str, ours: str) -> bool:
    def letters(name: str) -> str:
        return "".join(c for c in name.lower() if c.isalnum())

    return bool(published) and letters(published) == letters(ours)


def _text(row: Mapping[str, Any], key: str, number: int) -> str:
    if key not in row:
        raise InvalidInput(f"results row {number} has no {key!r}; it has {', '.join(sorted(map(str, row)))}")
    value = row[key]
    missing = value is None or (isinstance(value, float) and math.isnan(value))  # pandas writes empty cells as NaN
    return "" if missing else str(value)


def _number(row: Mapping[str, Any], key: str, number: int) -> float | None:
    text = _text(row, key, number)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInput(f"{key} of results row {number} must be a number or empty, got {text!r}") from error
    return None if math.isnan(value) else value


def _spearman(a: Array, b: Array) -> float:
    ranks_a, ranks_b = _mid_ranks(a), _mid_ranks(b)
    if len(a) < 3 or np.ptp(ranks_a) == 0 or np.ptp(ranks_b) == 0:
        return math.nan
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _mid_ranks(x: Array) -> Array:
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    middle: Array = np.cumsum(count) - (count - 1) / 2
    return middle[place]
