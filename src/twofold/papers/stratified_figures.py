"""Drawings and settings of the stratified study: distances, top cliques, best scores by passes, projected scores.

Claros Olivares and Brockmeier, A Systematic Analysis of Out-of-Distribution Detection Under Representation and Training
Paradigm Shifts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from twofold.bench.clique_maps import CliqueMap, clique_map
from twofold.bench.pools import LEARNED, TABLE_3, UNPROJECTED, projections
from twofold.bench.published import anchors
from twofold.bench.results import Results
from twofold.bench.rows import ResultRow
from twofold.errors import InvalidInput
from twofold.papers.drawings import DrawnFigure, register_drawing
from twofold.papers.material import Material
from twofold.papers.settings_tables import SettingsRow, register_settings
from twofold.papers.strata_steps import BEST, BEST_PASSES, CONFIDENCE, PROTOCOL, paradigm_of
from twofold.plot.themes import COLOURS
from twofold.scores.chain import scorer
from twofold.scores.registry import info

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {"none": "", "global": "global", "class": "class", "class_pred": "class pred", "class_avg": "class avg"}
BLUE, GREY, LIGHT_GREY = COLOURS[0], "#5C5C5C", "#A8A8A8"
ROW_HEIGHT = 0.21  # inches of a line of text
_MARKERS = ("o", "s")  # of one pass, and of several
BestBySet: TypeAlias = dict[tuple[str, str], dict[str, ResultRow]]  # by source and set, then by BEST or BEST_PASSES
_GROUPS = ("iid", "near", "mid", "far")
_PARADIGMS = {"confidnet": "ConfidNet", "devries": "DeVries", "gamblers": "Deep Gamblers"}


# --- distances ------------------------------------------------------------------------------------------------------


@register_drawing("distances")
def draw_distances(material: Material) -> DrawnFigure:
    """Draw the distances of data sets from the source, and the groups that follow from them.

    Parameters
    ----------
    material : Material
        Rows of distances of one source.

    Returns
    -------
    DrawnFigure
        A panel for each measure and a line for each data set, coloured by group; the notes compare groups with print.
    """
    rows = [row for row in material.rows if str(row["metric"]).endswith("_distance")]
    if not rows:
        raise InvalidInput("there are no distances; measure them with a step of the verb strata")
    measures = _distinct(rows, "metric")
    sets = _distinct(rows, "shift")
    size = (1.4 + 2.0 * len(measures), 0.3 * len(sets) + 1.0)
    figure = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure in zip(panels, measures, strict=True):
        own = [row for row in rows if row["metric"] == measure]
        _draw_measure(axes, own, sets)
        axes.set_title(measure.replace("_", " "), fontsize=8)
        axes.tick_params(labelsize=7)

    groups = {}
    numbers = []
    for row in rows:
        groups[str(row["shift"])] = str(row["role"])
        numbers.append((row["shift"], row["role"], row["metric"], row["value"]))
    labels = [f"{name} ({_group_title(groups[name])})" for name in sets]
    panels[0].set_yticks(range(len(sets)), labels, fontsize=7)
    panels[0].set_ylim(len(sets) - 0.5, -0.5)
    notes = _group_notes(str(rows[0]["benchmark"]), groups)
    return DrawnFigure(figure, ("set", "group", "measure", "distance"), tuple(numbers), notes)


def _distinct(rows: Sequence[ResultRow], column: str) -> list[str]:
    """List the different values of a column, in order of appearance."""
    values: dict[str, None] = {}
    for row in rows:
        values[str(row[column])] = None
    return list(values)


def _draw_measure(axes: Axes, rows: Sequence[ResultRow], sets: Sequence[str]) -> None:
    """Draw a dot for the distance of each set, in the colour of its group."""
    distances = []
    places = []
    colours = []
    for row in rows:
        distances.append(row["value"])
        places.append(sets.index(str(row["shift"])))
        colours.append(COLOURS[_GROUPS.index(str(row["role"]))])
    axes.scatter(distances, places, c=colours, s=26)


def _group_title(role: str) -> str:
    """Name a group as the paper does."""
    if role == "iid":
        return "ID"
    return role


def _group_notes(benchmark: str, groups: dict[str, str]) -> tuple[str, ...]:
    """List the groups, and compare them with the printed ones."""
    listed = []
    for group in _GROUPS[1:]:
        members = [name for name, role in groups.items() if role == group]
        listed.append(f"{group}: {', '.join(members) or 'none'}")

    printed = {}
    for anchor in anchors(paper="stratified", table="1", benchmark=benchmark.removesuffix("-real")):
        printed[anchor.shift] = anchor.role
    shared = 0
    differing = []
    for name, role in groups.items():
        if name not in printed:
            continue
        shared += 1
        if role != printed[name]:
            differing.append(f"{name} ({printed[name]} in print)")
    sentence = f"Of {shared} sets that the paper has too, {shared - len(differing)} are in its group"
    if differing:
        sentence += f"; not {', '.join(differing)}"
    return f"Groups: {'; '.join(listed)}.", f"{sentence}."


# --- top cliques ----------------------------------------------------------------------------------------------------


@register_drawing("top_cliques")
def draw_top_cliques(material: Material, *, alpha: float = 0.05) -> DrawnFigure:
    """Draw the scores of the top clique of every source and distance, as the paper computes them and as we do.

    Parameters
    ----------
    material : Material
        Rows of stratified results of one kind of network.
    alpha : float, default=0.05
        Level of the tests.

    Returns
    -------
    DrawnFigure
        Two panels with the same lines: AURC and AUGRC as blocks of one comparison with ``rank_z``, and AUGRC alone with
        Conover's test. Scores that lead nowhere are in the numbers only.
    """
    rows = _compared_rows(material)
    if not rows:
        raise InvalidInput("there are no results of the protocol stratified to compare")
    results = Results.of(rows)
    by = ("benchmark", "role")
    printed = clique_map(results, ("aurc", "augrc"), protocol=PROTOCOL, test="rank_z", alpha=alpha, by=by)
    ours = clique_map(results, "augrc", protocol=PROTOCOL, test="conover_t", alpha=alpha, by=by)
    leaders = _leading(printed, ours)
    panel_width = 1.1 + 0.34 * len(printed.columns)
    size = (2 * panel_width + 1.6, ROW_HEIGHT * len(leaders) + 2.2)
    figure = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_map(left, printed, leaders, "as printed: AURC and AUGRC, rank z")
    _draw_map(right, ours, leaders, "ours: AUGRC, Conover's test")
    labels = [_label(name) for name in leaders]
    left.set_yticks(range(len(leaders)), labels, fontsize=7)
    left.set_ylim(len(leaders) - 0.4, -0.6)
    numbers = [*_numbers(printed, "printed"), *_numbers(ours, "ours")]
    return DrawnFigure(figure, ("form", "group", "blocks", "rejected", "score", "leads"), tuple(numbers), _notes(ours))


def _compared_rows(material: Material) -> list[ResultRow]:
    """Select the values of one pass of a score; where a study judged it too, the value with groups as roles counts."""
    chosen: dict[tuple[object, ...], ResultRow] = {}
    for row in material.rows:
        score = str(row["score"])
        is_value = row["protocol"] == PROTOCOL and row["metric"] in ("aurc", "augrc")
        if is_value and not score.startswith(("mc(", BEST)):
            key = (row["benchmark"], row["run"], score, row["shift"], row["metric"])
            chosen[key] = row  # that of the study comes first
    return list(chosen.values())


def _leading(*maps: CliqueMap) -> list[str]:
    """List the scores that are in the top clique of a group whose test rejects, in the order of the first map."""
    led: set[str] = set()
    for table in maps:
        rejected = np.array(table.omnibus)
        for i, name in enumerate(table.rows):
            if table.member[i][rejected].any():
                led.add(name)
    if not led:
        return list(maps[0].rows)
    return [name for name in maps[0].rows if name in led]


def _draw_map(axes: Axes, table: CliqueMap, leaders: Sequence[str], title: str) -> None:
    """Draw a column of joined dots for each group."""
    places = {name: place for place, name in enumerate(leaders)}
    for column in range(len(table.columns)):
        heights = []
        for member in np.flatnonzero(table.member[:, column]):
            name = table.rows[member]
            if name in places:
                heights.append(places[name])
        heights.sort()
        colour = LIGHT_GREY
        if table.omnibus[column]:
            colour = BLUE
        axes.plot([column] * len(heights), heights, color=colour, linewidth=1.2, marker="o", markersize=3.5)
    for place in range(len(leaders)):
        axes.axhline(place, color=LIGHT_GREY, linewidth=0.3, zorder=0)
    labels = []
    for name, count in zip(table.columns, table.blocks, strict=True):
        labels.append(f"{_group_label(name)} ({count})")
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_title(title, fontsize=8)


def _group_label(name: str) -> str:
    """Shorten the name of a source and group for an axis."""
    return name.replace("stratified-", "").replace("-real", "").replace("iid", "test")


def _label(spec: str) -> str:
    """Name a score as the paper does, with its projection."""
    return _printed_names().get(spec, spec)


@cache
def _printed_names() -> dict[str, str]:
    """Map each score of the table, as results spell it, to the name of its cell; ours is marked where it differs."""
    names = {CONFIDENCE: "Confidence"}
    for row in TABLE_3:
        for column in row.columns:
            title = f"{row.title} {_TITLES[column]}".strip()
            for form in ("quick", "printed", "ours"):
                spec = scorer(row.spec(column, form)).spec
                if form == "ours" and column in row.differs:
                    names.setdefault(spec, f"{title} (ours)")
                else:
                    names.setdefault(spec, title)
    return names


def _numbers(table: CliqueMap, form: str) -> Iterable[tuple[object, ...]]:
    """List which scores lead which group."""
    for j, group in enumerate(table.columns):
        for i, name in enumerate(table.rows):
            if table.judged[i, j]:
                yield form, group, table.blocks[j], table.omnibus[j], name, bool(table.member[i, j])


def _notes(table: CliqueMap) -> tuple[str, ...]:
    """Explain the drawing, and name the groups with too few blocks."""
    notes = [
        "Dots joined in a column are scores that are statistically tied with the best (Holm-adjusted, 0.05); the "
        "number in brackets is that of blocks. A grey column is one whose Friedman test does not reject: all tie.",
        "As printed, AURC and AUGRC of one data set count as two blocks although they hardly differ, and the standard "
        "error is that of a z test; ours counts each data set once and uses Conover's own variance.",
    ]
    if table.dropped_groups:
        dropped = [_group_label(group.name) for group in table.dropped_groups]
        notes.append(f"Too few blocks: {', '.join(dropped)}.")
    return tuple(notes)


# --- best scores, with one pass and with several --------------------------------------------------------------------


@register_drawing("best_by_passes")
def draw_best_by_passes(material: Material) -> DrawnFigure:
    """Draw the best AUGRC of each data set with one pass and with several, and say which paradigm has it.

    Parameters
    ----------
    material : Material
        Rows of stratified results, with those of the best score.

    Returns
    -------
    DrawnFigure
        A line for each source and data set, with a dot for one pass and one for several.
    """
    best = _best_by_set(material)
    if not best:
        raise InvalidInput("there are no results of the protocol stratified to choose the best of")
    figure = import_module("matplotlib.figure").Figure(figsize=(6.4, 0.24 * len(best) + 1.2), layout="constrained")
    axes = figure.subplots()
    rows = []
    labels = []
    for place, ((source, shift), pair) in enumerate(best.items()):
        labels.append(f"{_group_label(source)}: {shift}")
        _draw_pair(axes, pair, place)
        for name, row in sorted(pair.items()):
            rows.append((source, shift, name, row["value"], *_winner(row)))
    axes.set_yticks(range(len(best)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("best AUGRC (x1000)")
    for number, title in enumerate(("one pass", "several passes of dropout")):
        axes.plot([], [], _MARKERS[number], color=COLOURS[number], label=title)
    axes.legend(frameon=False, fontsize=7, loc="best")
    axes.tick_params(colors=GREY, labelcolor="black")
    columns = ("source", "set", "passes", "augrc", "paradigm", "score")
    return DrawnFigure(figure, columns, tuple(rows), _best_notes(best))


def _best_by_set(material: Material) -> BestBySet:
    """Collect the best values of each source and data set, by the number of passes."""
    best: BestBySet = {}
    for row in material.rows:
        score = str(row["score"])
        if score in (BEST, BEST_PASSES):
            key = str(row["benchmark"]), str(row["shift"])
            best.setdefault(key, {})[score] = row
    return best


def _draw_pair(axes: Axes, pair: dict[str, ResultRow], place: int) -> None:
    """Draw the best value of one pass and of several, joined by a line where there are both."""
    values = []
    for number, (_, row) in enumerate(sorted(pair.items())):
        value = 1000 * row["value"]
        values.append(value)
        axes.plot([value], [place], _MARKERS[number], color=COLOURS[number], markersize=5)
    if len(values) == 2:
        axes.plot(values, [place, place], color=LIGHT_GREY, linewidth=1, zorder=0)


def _winner(row: ResultRow) -> tuple[str, str]:
    """Read whose value the best one is: paradigm and score."""
    recipe, _, score = str(row["chosen"]).partition(": ")
    paradigm = paradigm_of(recipe)
    return _PARADIGMS.get(paradigm, paradigm), score


def _best_notes(best: BestBySet) -> tuple[str, ...]:
    """Say on how many sets one pass is better, and which paradigms have the best values."""
    compared = [pair for pair in best.values() if len(pair) == 2]
    one_pass_is_better = 0
    for pair in compared:
        if pair[BEST]["value"] < pair[BEST_PASSES]["value"]:
            one_pass_is_better += 1
    notes = [f"One pass is better than several on {one_pass_is_better} of {len(compared)} sets."]
    for name, title in ((BEST, "one pass"), (BEST_PASSES, "several passes")):
        winners = Counter(_winner(pair[name])[0] for pair in best.values() if name in pair)
        listed = _list_counts(sorted(winners.items()))
        notes.append(f"Paradigm of the best score with {title}: {listed or 'none'}. {_printed_winners(name)}")
    return tuple(notes)


def _list_counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{paradigm} {count}" for paradigm, count in counts)


def _printed_winners(name: str) -> str:
    """Count the paradigms of the printed table."""
    counts = dict.fromkeys(_PARADIGMS.values(), 0)
    for anchor in anchors(paper="stratified", table="2"):
        if anchor.score == name:
            counts[_PARADIGMS[anchor.recipe]] += 1
    return f"In print: {_list_counts(counts.items())}."


# --- Table 3 --------------------------------------------------------------------------------------------------------

_ALL = "none, global, class, class_pred, class_avg"
_NO_CLASS = "none, global, class_pred, class_avg"
_ERRORS = "global, class, class_pred"
# row of the table, its printed cells, what its print says that ours does not
_PRINTED = (
    ("CTM", _ALL, ""),
    ("CTM(mean)", _ALL, "printed with the means of unfiltered features: cosine_mean(unfiltered=True)"),
    ("Energy", _ALL, "printed as an uncertainty, with a minus"),
    ("MSR", _ALL, "printed as the largest projected probability: msp(of='largest')"),
    ("MLS", _ALL, ""),
    ("PE", _ALL, ""),
    ("GEN", _ALL, "the table has p^g (1 - p^g), the text p^g (1 - p)^g, which is ours"),
    ("REN", _ALL, ""),
    ("GE", _ALL, "projected cells are printed without the sorting"),
    ("PCE", _ALL, ""),
    ("Maha", _NO_CLASS, "printed without a sign, and with one covariance: mds(covariance='total', nearest=True)"),
    ("NNGuide", _NO_CLASS, ""),
    ("fDBD", _NO_CLASS, "printed with absolute gaps: fdbd(absolute=True)"),
    ("pNML", _NO_CLASS, "printed with ordinary probabilities: pnml(unit=False)"),
    ("GradNorm", _NO_CLASS, ""),
    ("PCA Error", _ERRORS, "the table divides by the norm of the reconstruction, the text by that of the feature"),
    ("KPCA Error", _ERRORS, "with the map of Nystroem, as the text says"),
    ("VIM", "none", "printed as an uncertainty"),
    ("NeCo", "none", "printed without standardising: neco(standardise=False, scale_by_logit=False)"),
    ("Residual", "none", "printed as an uncertainty"),
    ("Confidence", "none", "the learned confidence of the paradigm: " + ", ".join(LEARNED)),
)


@register_settings("projected_scores")
def projected_scores() -> tuple[SettingsRow, ...]:
    """Compare the cells of Table 3 with the projections that our scores take.

    Returns
    -------
    tuple of SettingsRow
        A row for each score of the table; the remark names the printed form where it is not ours.

    Examples
    --------
    >>> rows = projected_scores()
    >>> len(rows), all(row.agrees for row in rows)
    (21, True)
    """
    pool = {row.title: row for row in TABLE_3}
    listed = set(projections("ours"))
    rows = []
    for title, printed, remark in _PRINTED:
        columns: list[str] = []
        name = "confidnet"
        if title == "Confidence":
            columns.append(UNPROJECTED)
        else:
            own = pool[title]
            name = own.score.partition("(")[0]
            allowed = own.columns if own.by_kind else (UNPROJECTED, *info(name).projections)
            for column in allowed:
                if own.spec(column) in listed:
                    columns.append(column)
        ours = f"{name}: {', '.join(columns)}"
        rows.append(SettingsRow(title, printed, ours, ", ".join(columns) == printed, remark))
    return tuple(rows)
