"""Agreement of results with published numbers: which may be compared, how far apart they are, and why they may differ.

>>> row = {"benchmark": "openood-cifar10", "model": "resnet18", "recipe": "basic", "score": "msp", "pair": None}
>>> row |= {"shift": "near", "role": "near", "metric": "auroc_ood", "value": 0.88, "low": 0.87, "high": 0.89}
>>> [(one.anchor.paper, one.anchor.value, round(one.difference, 4)) for one in agreement([row], "openood-cifar10")]
[('openood', 88.03, -0.0003)]
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from twofold._checks import Array
from twofold._json import nan_to_none
from twofold.bench.published import Anchor, anchors
from twofold.bench.rows import ResultRow
from twofold.errors import InvalidInput, TwofoldError
from twofold.scores.chain import scorer
from twofold.scores.step import ChainStep

COUNTERPARTS: dict[str, tuple[str, ...]] = {
    "cifar10-real": ("openood-cifar10", "fd-cifar10", "stratified-cifar10"),
    "cifar100-real": ("openood-cifar100", "fd-cifar100", "stratified-cifar100"),
    "sure_plus_imagenet": ("openood-imagenet1k",),
    "unknown_detection": ("unknown-cifar",),
    "unknown_detection_imagenet": ("unknown-imagenet",),
    "unknown-cifar-1": ("unknown-cifar",),
    "unknown-cifar-2": ("unknown-cifar",),
    "unknown-cifar-3": ("unknown-cifar",),
    "unknown-cifar-4": ("unknown-cifar",),
    "stratified-cifar10-real": ("stratified-cifar10",),
    "stratified-supercifar100-real": ("stratified-supercifar100",),
    "stratified-cifar100-real": ("stratified-cifar100",),
    "stratified-tinyimagenet-real": ("stratified-tinyimagenet",),
    "fd-cifar10-real": ("fd-cifar10",),
    "fd-cifar100-real": ("fd-cifar100",),
    "fd-supercifar100-real": ("fd-supercifar100",),
    "fd-svhn-real": ("fd-svhn",),
    "fd-svhn-openset-real": ("fd-svhn-openset",),
}
"""The published benchmarks that results of a benchmark without published numbers may be compared with: of real images
that are here, of studies at small scale, and of further splits."""

_REAL_NETWORK = (
    "Other network: a small CIFAR ResNet trained by others, where the papers train ResNet-18, VGG-13 or ViT-B/16.",
    "One checkpoint, where the papers average three to five runs.",
    "Scores that learn see 10,000 of the 50,000 training images.",
    "9,000 test images: the first 1,000 of the stored test set are validation data.",
    "OOD sets are sub-sampled and resized by others, so the share of OOD samples, on which F1, DS-F1 and every AURC of "
    "mixed data depend, is not the published one.",
)
_EXACT_METRICS = (
    "DS-F1, DS-AURC, F1 and AURC are exact over all thresholds; the SURE+ paper used a 1001-point linear grid on "
    "min-max scores and 100 coverage bins, which lowers its AURCs by about 5 to 7 per mille and harms heavy-tailed "
    "scores.",
)
_OPENOOD = (
    "The leaderboard chooses settings by AUROC on its own OOD validation data; ours are chosen on the benchmark's.",
)
_FD_SHIFTS = (
    "AURC groups equal confidences; the FD-Shifts paper's code broke ties by order and left out the last stretch to "
    "coverage 0.",
    "Scores are ranked raw; FD-Shifts ranked some after Platt scaling in limited precision, which makes ties.",
    "Its corruptions are the distributed CIFAR-C files; where they are absent, corruptions are computed here.",
)
_FD_REAL = (
    "Images are those of the data folder: a fifth of the training set, unknown sets sub-sampled and resized by others.",
    "Small networks, trained for a few epochs, where the paper trains VGG-13, a small CNN or ViT-B/16 to the end.",
    *_FD_SHIFTS,
)
_UNKNOWN_DETECTION = (
    "The class lists of the unknown-detection paper are unpublished; substitutes stand in for them, so cells are "
    "not comparable one by one.",
    "Equal confidences count half in AUROC here and nothing there; FPR takes the first threshold that reaches 95 % "
    "TPR, there the one nearest to it.",
    "The recipe of the noise images is not stated, and they are 30 % of the pool.",
)
_OTHER_SPLIT = (
    *_UNKNOWN_DETECTION,
    "Another substitute split of the classes of CIFAR-100 than the first.",
    "Results of several splits are averaged, where the paper has one.",
)
_SMALL_STUDY = (
    "Other network: a small CIFAR ResNet, where the papers have ResNet-18, ResNet-152 or DINOv3.",
    "Few training images and a few epochs, where the papers train for 20 to 200 epochs.",
    "One seed, where the papers average three to five.",
    "A few hundred images of each data set, so the share of OOD samples is not the published one.",
)
_STRATIFIED = ("The study prints only its best score per set, chosen among all, and does not name it.",)
_STRATIFIED_REAL = (
    *_STRATIFIED,
    "Natural scenes, Fashion-MNIST and notMNIST stand in for iSUN, LSUN and Places365, which are not here.",
)

DIFFERENCES: dict[str, tuple[str, ...]] = {
    "clinc150": (
        "The published network is a BERT-base with 12 layers; the one beside the data is a MiniLM with 6.",
        "The published area is a sum over 200 fixed thresholds of the probability; ours is exact.",
    ),
    "cifar10-real": (
        *_REAL_NETWORK,
        "Near is CIFAR-100 and Tiny-ImageNet without the classes of CIFAR-10, 2,000 images before removal; far is "
        "SVHN, MNIST, Fashion-MNIST, notMNIST, ten texture classes, natural scenes and noise, where OpenOOD has MNIST, "
        "SVHN, all textures and Places365.",
        *_EXACT_METRICS,
    ),
    "cifar100-real": (
        *_REAL_NETWORK,
        "Near is CIFAR-10 and Tiny-ImageNet without the classes of CIFAR-100; far is SVHN, MNIST, Fashion-MNIST, "
        "notMNIST, ten texture classes and noise, where OpenOOD has MNIST, SVHN, all textures and Places365.",
        *_EXACT_METRICS,
    ),
    "sure_plus_imagenet": (
        *_SMALL_STUDY,
        "CIFAR-10 stands in for ImageNet: near is CIFAR-100, far is SVHN and ten texture classes.",
        *_EXACT_METRICS,
    ),
    "unknown_detection": (*_SMALL_STUDY, *_UNKNOWN_DETECTION),
    "unknown_detection_imagenet": (
        *_SMALL_STUDY,
        "A split of CIFAR-100 stands in for ImageNet-200.",
        *_UNKNOWN_DETECTION,
    ),
    "unknown-cifar-1": _OTHER_SPLIT,
    "unknown-cifar-2": _OTHER_SPLIT,
    "unknown-cifar-3": _OTHER_SPLIT,
    "unknown-cifar-4": _OTHER_SPLIT,
    "openood-cifar10": _EXACT_METRICS + _OPENOOD,
    "openood-cifar100": _EXACT_METRICS + _OPENOOD,
    "openood-imagenet200": _EXACT_METRICS + _OPENOOD,
    "openood-imagenet1k": _EXACT_METRICS + _OPENOOD,
    "fd-cifar10-real": _FD_REAL,
    "fd-cifar100-real": _FD_REAL,
    "fd-supercifar100-real": _FD_REAL,
    "fd-svhn-real": _FD_REAL,
    "fd-svhn-openset-real": _FD_REAL,
    "fd-cifar10": _FD_SHIFTS,
    "fd-cifar100": _FD_SHIFTS,
    "fd-supercifar100": _FD_SHIFTS,
    "fd-svhn": _FD_SHIFTS,
    "fd-svhn-openset": _FD_SHIFTS,
    "fd-iwildcam": _FD_SHIFTS,
    "fd-iwildcam-openset": _FD_SHIFTS,
    "fd-camelyon": _FD_SHIFTS,
    "fd-breeds": _FD_SHIFTS,
    "unknown-cifar": _UNKNOWN_DETECTION,
    "unknown-imagenet": _UNKNOWN_DETECTION,
    "stratified-cifar10": _STRATIFIED,
    "stratified-supercifar100": _STRATIFIED,
    "stratified-cifar100": _STRATIFIED,
    "stratified-tinyimagenet": _STRATIFIED,
    "stratified-cifar10-real": _STRATIFIED_REAL,
    "stratified-supercifar100-real": _STRATIFIED_REAL,
    "stratified-cifar100-real": _STRATIFIED_REAL,
    "stratified-tinyimagenet-real": _STRATIFIED_REAL,
}
"""How results of a benchmark differ from the published protocol, in plain sentences."""


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
    difference: float
    inside_interval: bool | None
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
    spearman: float


CORRUPTION = "corruption"  # the shift that is the mean over levels of corruption
LEVELS = ("1", "2", "3", "4", "5")  # those of the published means

_PROTOCOLS: dict[str, tuple[str, ...]] = {
    "sure_plus": ("joint", "openood"),
    "unknown_detection": ("unknown",),
    "stratified": ("stratified",),
    "aurc_estimators": (),
    "fd_shifts": ("fd_shifts", "open_set"),
    "openood": ("openood",),
}
"""Protocols whose rows a paper's numbers may be compared with; the known test set alone is the same in all."""

# columns that identify whose value a row is, apart from its shift; the run comes first
_IDENTITY = ("run", "benchmark", "model", "recipe", "seed", "score", "pair", "protocol", "metric")


@dataclass(frozen=True)
class _ResultTexts:
    """Hold the texts of a row of results, empty where a column has no value."""

    benchmark: str
    model: str
    recipe: str
    score: str
    pair: str
    shift: str
    role: str
    metric: str
    protocol: str
    seed: str


def agreement(rows: Iterable[ResultRow], benchmark: str, *, doubtful: bool = False) -> list[Agreement]:
    """Compare tidy results with the published numbers of a benchmark.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results, such as those of :class:`~twofold.bench.results.Results`.
    benchmark : str
        Benchmark of the published numbers. A row counts if it belongs to that benchmark or to one whose
        :data:`COUNTERPARTS` name it.
    doubtful : bool, default=False
        Whether numbers that are not free of doubt are compared too.

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
    results = list(rows)
    incomplete = _incomplete_levels(results)
    index = _AnchorIndex.of(benchmark, doubtful=doubtful)
    found: list[Agreement] = []
    seen: set[tuple[object, ...]] = set()
    for number, row in enumerate(results):
        texts = _read_texts(row, number)
        if benchmark not in (texts.benchmark, *COUNTERPARTS.get(texts.benchmark, ())):
            continue
        ours = _read_number(row, "value", number)
        if ours is None or (texts.shift == CORRUPTION and _identity(row) in incomplete):
            continue
        low, high = _read_number(row, "low", number), _read_number(row, "high", number)
        for anchor in index.find(texts):
            match: tuple[object, ...] = (anchor, texts.model, texts.recipe, texts.seed)
            if anchor.score:
                match += (texts.score, texts.pair)
            if match in seen:
                continue
            seen.add(match)
            inside = None
            if low is not None and high is not None:
                inside = low <= anchor.rate <= high
            same_model = _is_same_model(anchor.model, texts.model)
            found.append(Agreement(anchor, ours, ours - anchor.rate, inside, same_model))
    return found


def incomplete_corruptions(rows: Iterable[ResultRow]) -> list[str]:
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
    levels_by_run = {}
    for identity, levels in _incomplete_levels(rows).items():
        run = identity[0] or "the results"
        levels_by_run[run] = levels
    sentences = []
    for run, levels in levels_by_run.items():
        covered = f"levels {', '.join(levels)}"
        if len(levels) == 1:
            covered = f"level {levels[0]}"
        sentences.append(
            f"corruption of {run} is the mean over {covered}, not compared: published ones are over "
            f"levels {', '.join(LEVELS)}"
        )
    return sentences


def _incomplete_levels(rows: Iterable[ResultRow]) -> dict[tuple[str, ...], list[str]]:
    """Find the levels of corruption of each value that has some of them and not all."""
    levels: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        shift, _, level = str(row.get("shift", "")).partition("/")
        if shift == CORRUPTION and level in LEVELS:
            levels[_identity(row)].add(level)
    incomplete = {}
    for identity, own in levels.items():
        if len(own) < len(LEVELS):
            incomplete[identity] = sorted(own)
    return incomplete


def _identity(row: ResultRow) -> tuple[str, ...]:
    return tuple([_as_text(row.get(column)) for column in _IDENTITY])


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
    published = {anchor.benchmark for anchor in anchors()}
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
    columns: dict[tuple[str, ...], dict[tuple[str, str], list[Agreement]]] = defaultdict(dict)
    for one in found:
        anchor = one.anchor
        if anchor.score:
            column = columns[anchor.paper, anchor.table, anchor.model, anchor.recipe, anchor.metric, anchor.shift]
            column.setdefault((anchor.score, anchor.pair), []).append(one)
    ranks = []
    for (paper, table, model, recipe, metric, shift), by_score in columns.items():
        theirs, ours = [], []
        for several in by_score.values():
            theirs.append(several[0].anchor.rate)
            ours.append(np.mean([one.ours for one in several]))
        correlation = spearman(np.array(theirs), np.array(ours))
        ranks.append(RankAgreement(paper, table, model, recipe, metric, shift, len(by_score), correlation))
    return ranks


def spearman(theirs: Array, ours: Array) -> float:
    """Compute Spearman's rank correlation; ties take mid-ranks.

    Parameters
    ----------
    theirs, ours : ndarray of shape (n,)
        Values to compare.

    Returns
    -------
    float
        The correlation; NaN for fewer than three values, or where one side is constant.

    Examples
    --------
    >>> round(spearman(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.3, 0.2])), 3)
    0.5
    """
    their_ranks, our_ranks = _mid_ranks(theirs), _mid_ranks(ours)
    if len(theirs) < 3 or np.ptp(their_ranks) == 0 or np.ptp(our_ranks) == 0:
        return math.nan
    return float(np.corrcoef(their_ranks, our_ranks)[0, 1])


def _mid_ranks(values: Array) -> Array:
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle: Array = np.cumsum(counts) - (counts - 1) / 2
    return middle[group]


# --- which anchor a row may be compared with ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _AnchorIndex:
    """Find the reliable published numbers of a benchmark that a row of results may be compared with."""

    by_column: Mapping[tuple[str, str], Sequence[Anchor]]
    recipes: frozenset[str]  # those that some paper has
    by_scores: dict[tuple[str, ...], list[Anchor]] = field(default_factory=dict)  # rows repeat their scores

    @classmethod
    def of(cls, benchmark: str, *, doubtful: bool) -> _AnchorIndex:
        by_column: dict[tuple[str, str], list[Anchor]] = defaultdict(list)
        for anchor in anchors(benchmark=benchmark, reliable=None if doubtful else True):
            by_column[anchor.metric, _column_of(anchor.shift, anchor.role)].append(anchor)
        recipes = frozenset(anchor.recipe for anchor in anchors() if anchor.recipe)
        return cls(by_column, recipes)

    def find(self, texts: _ResultTexts) -> list[Anchor]:
        column = texts.metric, _column_of(texts.shift, texts.role)
        scores = texts.score, texts.pair
        if (*column, *scores) not in self.by_scores:
            candidates = self.by_column.get(column, ())
            self.by_scores[*column, *scores] = [anchor for anchor in candidates if _has_scores(anchor, *scores)]
        matching = self.by_scores[*column, *scores]
        fitting = [anchor for anchor in matching if _fits_protocol(anchor, texts.protocol)]
        return _match_recipe(fitting, texts.recipe, self.recipes)


def _column_of(shift: str, role: str) -> str:
    """Name the data of a number: its role on the known test set and on a pool, its shift elsewhere."""
    if role in ("iid", "pooled") or not shift:
        return role
    if shift == "tinyimagenet_resize":
        return "tinyimagenet"  # the same images by another interpolation
    return shift


def _fits_protocol(anchor: Anchor, protocol: str) -> bool:
    return not protocol or anchor.role == "iid" or protocol in _PROTOCOLS[anchor.paper]


def _has_scores(anchor: Anchor, score: str, pair: str) -> bool:
    """Check whether an anchor is of a score or pair, in either order; one without a score is of any."""
    if not anchor.score:
        return True
    if bool(anchor.pair) is not bool(pair):
        return False
    if not pair:
        return _covers(anchor.score, score)
    in_order = _covers(anchor.score, score) and _covers(anchor.pair, pair)
    swapped = _covers(anchor.score, pair) and _covers(anchor.pair, score)
    return in_order or swapped


@lru_cache(maxsize=100_000)
def _covers(published: str, ours: str) -> bool:
    """Check whether ``ours`` has the steps of ``published`` and the settings that it names."""
    their_steps, our_steps = _parse_steps(published), _parse_steps(ours)
    if their_steps is None or our_steps is None:
        return published == ours
    if len(their_steps) != len(our_steps):
        return False
    for theirs, mine in zip(their_steps, our_steps, strict=True):
        if theirs.info.name != mine.info.name:
            return False
        if any(value != mine.setting(name) for name, value in theirs.settings.items()):
            return False
    return True


@lru_cache(maxsize=10_000)
def _parse_steps(spec: str) -> tuple[ChainStep, ...] | None:
    """Parse a score; None where it is not one of twofold."""
    try:
        return scorer(spec).steps
    except TwofoldError:
        return None


def _match_recipe(fitting: Sequence[Anchor], recipe: str, recipes: frozenset[str]) -> list[Anchor]:
    """Keep the anchors of a recipe; for a recipe that no paper has, those of plain training where there is a choice."""
    if recipe in recipes:
        return [anchor for anchor in fitting if anchor.recipe in ("", recipe)]
    plain = set()
    for anchor in fitting:
        if anchor.recipe == "basic":
            plain.add((anchor.paper, anchor.table, anchor.model))
    kept = []
    for anchor in fitting:
        has_plain = (anchor.paper, anchor.table, anchor.model) in plain
        if anchor.recipe == "basic" or not has_plain:
            kept.append(anchor)
    return kept


def _is_same_model(published: str, ours: str) -> bool:
    return bool(published) and _letters(published) == _letters(ours)


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


# --- rows of results ------------------------------------------------------------------------------------------------


def _read_texts(row: ResultRow, number: int) -> _ResultTexts:
    protocol = ""
    if "protocol" in row:
        protocol = _read_text(row, "protocol", number)
    return _ResultTexts(
        benchmark=_read_text(row, "benchmark", number),
        model=_read_text(row, "model", number),
        recipe=_read_text(row, "recipe", number),
        score=_read_text(row, "score", number),
        pair=_read_text(row, "pair", number),
        shift=_read_text(row, "shift", number),
        role=_read_text(row, "role", number),
        metric=_read_text(row, "metric", number),
        protocol=protocol,
        seed=str(row.get("seed", "")),
    )


def _read_text(row: ResultRow, column: str, number: int) -> str:
    if column not in row:
        raise InvalidInput(f"results row {number} has no {column!r}; it has {', '.join(sorted(map(str, row)))}")
    value = row[column]
    is_nan = isinstance(value, float) and math.isnan(value)  # pandas writes empty cells as NaN
    if is_nan:
        return ""
    return _as_text(value)


def _as_text(value: object) -> str:
    """Write a value as text, empty for None."""
    if value is None:
        return ""
    return str(value)


def _read_number(row: ResultRow, column: str, number: int) -> float | None:
    text = _read_text(row, column, number)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInput(f"{column} of results row {number} must be a number or empty, got {text!r}") from error
    return nan_to_none(value)
