"""Drawings of FD-Shifts: guaranteed risk under corruption, CNN against ViT, and single runs of two configurations.

Jaeger et al., A Call to Reflect on Evaluation Practices for Failure Detection, ICLR 2023, arXiv:2211.15259.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from twofold.bench.agreement import counterparts
from twofold.bench.published import anchors, classifier_of
from twofold.bench.rows import ResultRow, is_missing
from twofold.bench.text import scale
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.papers.drawings import DrawnFigure, register_drawing
from twofold.papers.material import Material
from twofold.plot.themes import COLOURS, LIGHT
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.stats import sgr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

Method: TypeAlias = Literal["published", "binary", "fixed_sequence"]
METHODS: dict[Method, str] = {
    "published": "SGR as printed",
    "binary": "SGR, best passing look",
    "fixed_sequence": "fixed sequence, as our gates",
}
PANELS_IN_A_ROW = 4
_BOXES = {"aurc": "1", "accuracy": "8", "auroc": "9"}  # metrics of Figure 8, and the tables that print them


# --- Figure 7 -------------------------------------------------------------------------------------------------------


class GuaranteeRow(NamedTuple):
    """Hold what a threshold chosen on validation data does on one data set.

    Parameters
    ----------
    run : str
        Name of the run.
    score : str
        The score.
    method : {"published", "binary", "fixed_sequence"}
        How the threshold was chosen; see :func:`twofold.stats.sgr`.
    delta : float
        Chance that the guarantee may fail.
    threshold : float
        Confidence from which predictions are accepted.
    feasible : bool
        Whether the threshold has the guarantee on validation data.
    shift : str
        Data set: ``val``, ``test``, or a level of corruption.
    coverage : float
        Share of accepted predictions.
    risk : float
        Share of mistakes among them; NaN where nothing is accepted.
    """

    run: str
    score: str
    method: Method
    delta: float
    threshold: float
    feasible: bool
    shift: str
    coverage: float
    risk: float


def guaranteed_risks(run: Run, score: str, *, risk: float, deltas: Sequence[float]) -> list[GuaranteeRow]:
    """Choose thresholds of guaranteed risk on validation data, and measure risk and coverage on shifted data.

    Parameters
    ----------
    run : Run
        Outputs with a data set of role val, one of role test, and ``corruption/1`` and so on.
    score : str
        The score.
    risk : float
        Largest share of mistakes among accepted predictions.
    deltas : sequence of float
        Chances that the guarantee may fail.

    Returns
    -------
    list of GuaranteeRow
        By method, then delta, then data set.

    Raises
    ------
    InvalidInput
        If the run has no validation or test data.
    """
    for role in ("val", "test"):
        if len(run.names(role)) != 1:
            raise InvalidInput(f"{run.path} needs one data set of role {role}, and has {len(run.names(role))}")
    chain = scorer(score)
    if run.names("train"):
        chain = chain.fit(run[run.names("train")[0]], val=run[run.names("val")[0]])
    sets = {"val": run[run.names("val")[0]], "test": run[run.names("test")[0]]}
    for name in run.names("shift"):
        if name.startswith("corruption/"):
            sets[name] = run[name]
    confidences = {name: chain.score(outputs) for name, outputs in sets.items()}
    rows = []
    for method in METHODS:
        for delta in deltas:
            chosen = sgr(sets["val"].correct, confidences["val"], risk=risk, delta=delta, method=method)
            for name, outputs in sets.items():
                coverage, selective = _operate(outputs, confidences[name] >= chosen.threshold)
                place = (run.path.name, score, method, delta, chosen.threshold, chosen.feasible)
                rows.append(GuaranteeRow(*place, name, coverage, selective))
    return rows


def _operate(outputs: Outputs, accepted: np.ndarray) -> tuple[float, float]:
    """Compute coverage and selective risk."""
    if not accepted.any():
        return 0.0, float("nan")
    return float(accepted.mean()), float(1 - np.asarray(outputs.correct)[accepted].mean())


@register_drawing("guaranteed_risk")
def draw_guaranteed_risk(
    material: Material,
    *,
    scores: tuple[str, ...] = ("confidnet", "msp"),
    risk: float = 0.15,
    deltas: tuple[float, ...] = (0.001, 0.01, 0.05, 0.1, 0.5),
) -> DrawnFigure:
    """Draw by how much the risk exceeds its guarantee as corruptions grow.

    Parameters
    ----------
    material : Material
        Runs that have the scores, and data sets ``corruption/1`` to ``corruption/5``.
    scores : tuple of str, default=("confidnet", "msp")
        The scores, a line of panels each.
    risk : float, default=0.15
        The guaranteed risk.
    deltas : tuple of float, default=(0.001, 0.01, 0.05, 0.1, 0.5)
        Chances that the guarantee may fail.

    Returns
    -------
    DrawnFigure
        A column of panels for each way to choose the threshold.
    """
    if not material.runs:
        raise InvalidInput("there are no runs to draw guaranteed risks of")
    rows: list[GuaranteeRow] = []
    for path in material.runs:
        for score in scores:
            rows += guaranteed_risks(Run.open(path), score, risk=risk, deltas=deltas)
    size = (2.9 * len(METHODS), 2.4 * len(scores) + 0.5)
    figure = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(scores), len(METHODS), squeeze=False, sharex=True)
    notes = [f"Thresholds are chosen on validation data for a risk of at most {risk:g}."]
    for line, score in enumerate(scores):
        for axes, (method, title) in zip(grid[line], METHODS.items(), strict=True):
            own = [row for row in rows if (row.score, row.method) == (score, method)]
            _draw_excess(axes, own, risk)
            axes.set_title(f"{score}, {title}", fontsize=8)
            failed = dict.fromkeys(f"{row.delta:g}" for row in own if not row.feasible)
            if failed:
                notes.append(f"{score}, {title}: no threshold has the guarantee for δ = {', '.join(failed)}.")
        grid[line][0].set_ylabel(f"risk − {risk:g}")
    for axes in grid[-1]:
        axes.set_xlabel("val, test, level of corruption")
    _add_legend(figure, grid[0][0])
    return DrawnFigure(figure, GuaranteeRow._fields, tuple(rows), tuple(notes))


def _draw_excess(axes: Axes, rows: Sequence[GuaranteeRow], risk: float) -> None:
    """Draw a line for each chance of failing."""
    shifts = list(dict.fromkeys(row.shift for row in rows))
    deltas = list(dict.fromkeys(row.delta for row in rows))
    for delta, colour in zip(deltas, COLOURS, strict=False):
        excess = _mean_excess([row for row in rows if row.delta == delta], shifts, risk)
        axes.plot(range(len(shifts)), excess, marker="o", markersize=3, color=colour, label=f"δ = {delta:g}")
    axes.axhline(0, color=LIGHT.soft, linewidth=0.6)
    axes.set_xticks(range(len(shifts)), [shift.replace("corruption/", "") for shift in shifts])


def _mean_excess(rows: Sequence[GuaranteeRow], shifts: Sequence[str], risk: float) -> list[float]:
    """Average the excess of risk over runs, data set by data set."""
    means = []
    for shift in shifts:
        own = [row.risk - risk for row in rows if row.shift == shift]
        means.append(float(np.mean(own)))
    return means


# --- Figure 8 -------------------------------------------------------------------------------------------------------


class BoxValue(NamedTuple):
    """Hold one value of a box: a score on a study.

    Parameters
    ----------
    metric : str
        What is measured.
    data : str
        Benchmark of the paper.
    classifier : {"CNN", "ViT"}
        Kind of network.
    source : {"ours", "printed"}
        Where it comes from.
    score, recipe, shift : str
        Score, training and study.
    value : float
        In natural units.
    """

    metric: str
    data: str
    classifier: str
    source: str
    score: str
    recipe: str
    shift: str
    value: float


def box_values(rows: Sequence[ResultRow]) -> list[BoxValue]:
    """Collect AURC, accuracy and AUROC of every score and study of Table 1, ours and printed.

    Parameters
    ----------
    rows : sequence of mapping
        Tidy results.

    Returns
    -------
    list of BoxValue
        Only of the scores, trainings and studies that the paper prints; seeds count by their mean.
    """
    values = []
    studies = set()
    for metric, table in _BOXES.items():
        for anchor in anchors(paper="fd_shifts", table=table):
            classifier = classifier_of(anchor.model)
            place = (anchor.score, anchor.recipe, _plain(anchor.shift))
            studies.add((anchor.benchmark, classifier, *place))
            values.append(BoxValue(metric, anchor.benchmark, classifier, "printed", *place, anchor.rate))
    numbers: dict[tuple[str, str, str, str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["metric"] not in _BOXES or row["pair"] or row["protocol"] == "fd_shifts_original":
            continue
        for benchmark in counterparts(row["benchmark"]):
            place = (row["score"], row["recipe"], _plain(row["shift"]))
            study = (benchmark, classifier_of(row["model"]), *place)
            if study in studies and not is_missing(row["value"]):
                numbers[(row["metric"], *study)].append(row["value"])
    for (metric, benchmark, classifier, score, recipe, shift), own in numbers.items():
        values.append(BoxValue(metric, benchmark, classifier, "ours", score, recipe, shift, float(np.mean(own))))
    return values


def _plain(shift: str) -> str:
    return shift.removesuffix("_resize")


@register_drawing("classifier_boxes")
def draw_classifier_boxes(material: Material) -> DrawnFigure:
    """Draw boxes of AURC, accuracy and AUROC over all scores and studies, CNN beside ViT, ours above the printed ones.

    Parameters
    ----------
    material : Material
        Results of both kinds of networks.

    Returns
    -------
    DrawnFigure
        A panel for each metric; data sets of which there are no results have printed boxes only.
    """
    values = box_values(material.rows)
    if not any(value.source == "ours" for value in values):
        raise InvalidInput("no result is of a score and study that Table 1 of FD-Shifts prints")
    figure = import_module("matplotlib.figure").Figure(figsize=(10.0, 6.4), layout="constrained")
    grid = figure.subplots(2, len(_BOXES))
    for line, source in enumerate(("ours", "printed")):
        for axes, metric in zip(grid[line], _BOXES, strict=True):
            own = [value for value in values if (value.metric, value.source) == (metric, source)]
            _draw_boxes(axes, own, metric)
            axes.set_title(f"{metric}, {source}")
    _add_legend(figure, grid[0][0])
    note = "Median and quartiles; whiskers reach to 1.5 interquartile ranges. Axes differ between ours and printed."
    return DrawnFigure(figure, BoxValue._fields, tuple(values), (note,))


def _draw_boxes(axes: Axes, values: Sequence[BoxValue], metric: str) -> None:
    """Draw a pair of boxes for each data set."""
    factor, unit = scale(metric)
    data = sorted({value.data for value in values})
    for place, (classifier, colour) in enumerate(zip(("CNN", "ViT"), COLOURS, strict=False)):
        positions, groups = [], []
        for column, name in enumerate(data):
            own = [factor * value.value for value in values if (value.data, value.classifier) == (name, classifier)]
            if own:
                positions.append(column + 0.4 * place - 0.2)
                groups.append(own)
        if groups:
            boxes = axes.boxplot(groups, positions=positions, widths=0.32, patch_artist=True, manage_ticks=False)
            for box in boxes["boxes"]:
                box.set(facecolor=colour, alpha=0.6, linewidth=0.6)
            for line in boxes["medians"]:
                line.set(color="black")
        axes.plot([], [], color=colour, linewidth=5, alpha=0.6, label=classifier)
    axes.set_xticks(range(len(data)), [name.removeprefix("fd-") for name in data], rotation=30, ha="right", fontsize=7)
    axes.set_ylabel(unit)


# --- Figures 10 and 11 ----------------------------------------------------------------------------------------------


class RunValue(NamedTuple):
    """Hold the value of one run.

    Parameters
    ----------
    recipe : str
        Row of the study.
    seed : int
        Seed of the run.
    shift, metric : str
        Study and metric.
    value : float
        In natural units.
    """

    recipe: str
    seed: int
    shift: str
    metric: str
    value: float


@register_drawing("single_runs")
def draw_single_runs(
    material: Material, *, recipes: tuple[str, ...], labels: tuple[str, ...], metrics: tuple[str, ...]
) -> DrawnFigure:
    """Draw a dot for each run, a thin line at the mean over runs and a thick one at the median.

    Parameters
    ----------
    material : Material
        Results of several seeds.
    recipes : tuple of str
        Rows of the study that are compared.
    labels : tuple of str
        What they are called in the figure.
    metrics : tuple of str
        Metrics, of all studies that have them.

    Returns
    -------
    DrawnFigure
        A panel for each metric and study.
    """
    if len(recipes) != len(labels):
        raise InvalidInput(f"there must be a label for each of the {len(recipes)} recipes, got {len(labels)}")
    values = list(_run_values(material.rows, recipes, metrics))
    if not values:
        raise InvalidInput(f"no result is of {' or '.join(recipes)}")
    cases = list(dict.fromkeys((value.metric, value.shift) for value in values))
    figure, panels = _make_panels(len(cases))
    for axes, (metric, shift) in zip(panels, cases, strict=True):
        factor, unit = scale(metric)
        for place, recipe in enumerate(recipes):
            own = [value for value in values if (value.metric, value.shift, value.recipe) == (metric, shift, recipe)]
            numbers = [factor * value.value for value in own]
            if not numbers:
                continue
            axes.plot([place] * len(numbers), numbers, "o", markersize=4, color=COLOURS[place % len(COLOURS)])
            axes.hlines(np.mean(numbers), place - 0.25, place + 0.25, color=LIGHT.soft, linewidth=0.7)
            axes.hlines(np.median(numbers), place - 0.25, place + 0.25, color=LIGHT.text, linewidth=2.2)
        axes.set_xticks(range(len(recipes)), labels, fontsize=7)
        axes.set_xlim(-0.6, len(recipes) - 0.4)
        axes.set_title(f"{metric} ({unit}), {shift}" if unit else f"{metric}, {shift}", fontsize=7)
    note = "A dot is a run, the thin line their mean, the thick line their median."
    return DrawnFigure(figure, RunValue._fields, tuple(values), (note,))


def _run_values(rows: Sequence[ResultRow], recipes: Sequence[str], metrics: Sequence[str]) -> Iterator[RunValue]:
    """List the values of the runs to draw, each once, by metric and study."""
    seen: set[RunValue] = set()
    for metric in metrics:
        for row in rows:
            is_shown = row["recipe"] in recipes and row["metric"] == metric and row["protocol"] == "fd_shifts"
            if not is_shown or row["role"] == "val" or is_missing(row["value"]):
                continue
            value = RunValue(row["recipe"], row["seed"], row["shift"], metric, row["value"])
            if value not in seen:
                seen.add(value)
                yield value


# --- panels ---------------------------------------------------------------------------------------------------------


def _make_panels(count: int) -> tuple[MatplotlibFigure, list[Axes]]:
    """Make axes, four in a row."""
    across = min(count, PANELS_IN_A_ROW)
    down = math.ceil(count / across)
    size = (max(3.0, 2.7 * across), 3.2 * down)
    figure = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for unused in grid[count:]:
        unused.set_visible(False)
    return figure, grid[:count]


def _add_legend(figure: MatplotlibFigure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=7.5)
