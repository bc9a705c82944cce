"""Drawings of unknown detection: improvement over MCP, densities of MCP, and what unknown inputs are taken for.

Kim, Koo and Hwang, A Unified Benchmark for the Unknown Detection Capability of Deep Neural Networks, arXiv:2112.00337.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from twofold import metrics
from twofold.bench.published import anchors
from twofold.bench.rows import ResultRow
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.papers.class_step import MEAN_PROBABILITY
from twofold.papers.drawings import DrawnFigure, register_drawing
from twofold.papers.material import Material
from twofold.plot.themes import COLOURS, DASHES, LIGHT
from twofold.roles import OOD_TEST
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Method(NamedTuple):
    """Name one method of the paper.

    Parameters
    ----------
    title : str
        As it is printed.
    recipe, score : str
        Training and confidence.
    """

    title: str
    recipe: str
    score: str


MCP = Method("MCP", "basic", "msp")
METHODS = (
    MCP,
    Method("CRL", "crl", "msp"),
    Method("EDL", "edl", "msp"),
    Method("MC-dropout", "mc_dropout", "mc_msp"),
    Method("Deep Ensemble", "deep_ensemble", "mc_msp"),
    Method("AugMix", "augmix", "msp"),
    Method("ODIN", "basic", "odin"),
    Method("OpenMax", "basic", "openmax"),
    Method("ReAct", "basic", "react|energy"),
    Method("OE", "oe", "msp"),
    Method("Energy", "energy_finetune", "energy"),
)
_CURVES = ("MCP", "CRL", "Deep Ensemble", "AugMix", "OE")  # whose risk is drawn against coverage
_BY_BENCHMARK = {"unknown-cifar": "6", "unknown-imagenet": "7"}  # tables of printed numbers
_HEAT_MODELS = (("MCP", "basic"), ("Deep Ensemble", "deep_ensemble"), ("Outlier Exposure", "oe"))


@register_drawing("improvement_over_mcp")
def draw_improvement(material: Material, *, printed: tuple[str, ...] = ("unknown-cifar",)) -> DrawnFigure:
    """Draw how much less AURC each method has than MCP on all unknown inputs together, and risks against coverage.

    Parameters
    ----------
    material : Material
        Results and runs, of one benchmark or of several.
    printed : tuple of str, default=("unknown-cifar",)
        Benchmarks of the printed numbers beside them, in the order of the benchmarks of the results, which may be
        fewer.

    Returns
    -------
    DrawnFigure
        A row of panels for each benchmark: bars, and curves of risk.
    """
    groups = _rows_by_benchmark(material.rows)
    if len(groups) > len(printed):
        raise InvalidInput(f"the results have {len(groups)} benchmarks, but printed names {len(printed)}")
    figure = import_module("matplotlib.figure").Figure(figsize=(7.6, 2.9 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), 2, squeeze=False)
    rows: list[tuple[object, ...]] = []
    folders = _runs_by_folder(material.runs)
    for place, (benchmark, own) in enumerate(groups.items()):
        bars, curves = panels[place]
        rows += _draw_improvement_bars(bars, benchmark, own, printed[place])
        paths = folders[place] if len(groups) == len(folders) else list(material.runs)
        _draw_pooled_curves(curves, paths, benchmark)
    note = (
        "Left: (AURC of MCP - AURC of the method) / AURC of MCP, in percent, on the pool of known test data and all "
        "unknown sets; above 0 is better than MCP. Right: risk of the pool against the share of it that is accepted; "
        "wrong predictions and unknown inputs are errors."
    )
    columns = ("benchmark", "method", "aurc", "improvement", "printed_improvement")
    return DrawnFigure(figure, columns, tuple(rows), (note,))


def _rows_by_benchmark(rows: Sequence[ResultRow]) -> dict[str, list[ResultRow]]:
    """Group the values of pooled AURC by benchmark; splits of one benchmark belong together."""
    groups: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row["metric"] == "aurc" and row["shift"] == "pooled":
            name = str(row["benchmark"])
            base, _, split = name.rpartition("-")
            groups[base if split.isdigit() else name].append(row)
    if not groups:
        raise InvalidInput("there is no AURC of a pool; judge the runs by the protocol unknown")
    return dict(groups)


def _runs_by_folder(runs: Sequence[Path]) -> list[list[Path]]:
    """Group runs by the folder that holds them, which is one for each study."""
    groups: dict[Path, list[Path]] = defaultdict(list)
    for path in runs:
        groups[path.parent].append(path)
    return list(groups.values())


def _draw_improvement_bars(
    axes: Axes, benchmark: str, own: Sequence[ResultRow], printed: str
) -> list[tuple[object, ...]]:
    """Draw our improvement and the printed one of every method; return their numbers."""
    ours = _mean_values(own)
    theirs = _printed_values(printed)
    rows: list[tuple[object, ...]] = []
    shown = [method for method in METHODS if method != MCP and (method.recipe, method.score) in ours]
    for place, method in enumerate(shown):
        key = method.recipe, method.score
        improvement = _improvement(ours, method)
        their_improvement = _improvement(theirs, method)
        axes.barh(place - 0.2, improvement, height=0.4, color=COLOURS[0], label="ours" if place == 0 else None)
        axes.barh(place + 0.2, their_improvement, height=0.4, color=LIGHT.soft, label="printed" if place == 0 else None)
        rows.append((benchmark, method.title, ours[key], improvement, their_improvement))
    axes.axvline(0, color=COLOURS[2], linestyle="--", linewidth=1)
    axes.set_yticks(range(len(shown)), [method.title for method in shown], fontsize=7.5)
    axes.invert_yaxis()
    axes.set_xlabel("improvement over MCP (%)")
    axes.set_title(f"{benchmark}, printed: {printed}", fontsize=8, parse_math=False)
    axes.legend(frameon=False, fontsize=7)
    return rows


def _mean_values(own: Sequence[ResultRow]) -> dict[tuple[str, str], float]:
    """Average AURC over seeds and splits, by recipe and score."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in own:
        found[str(row["recipe"]), str(row["score"])].append(float(row["value"]))
    return {key: float(np.mean(values)) for key, values in found.items()}


def _printed_values(benchmark: str) -> dict[tuple[str, str], float]:
    """Look up the printed AURC of each method."""
    found = {}
    for anchor in anchors(paper="unknown_detection", table=_BY_BENCHMARK[benchmark]):
        if anchor.metric == "aurc" and anchor.role == "pooled":
            found[anchor.recipe, anchor.score] = anchor.rate
    return found


def _improvement(values: Mapping[tuple[str, str], float], method: Method) -> float:
    baseline = values[MCP.recipe, MCP.score]
    return 100 * (baseline - values[method.recipe, method.score]) / baseline


def _draw_pooled_curves(axes: Axes, paths: Sequence[Path], benchmark: str) -> None:
    """Draw the risk of a pool against its coverage, for some methods."""
    place = 0
    for method in METHODS:
        path = _first_run(paths, method.recipe)
        if method.title not in _CURVES or path is None:
            continue
        pool = _read_pool(path)
        chain = scorer(method.score)
        judged = chain.judged_outputs(pool)
        curve = metrics.risk_coverage_curve(judged.correct, chain.score(pool), is_id=pool.is_id)
        axes.plot(
            curve.coverage, curve.risk, label=method.title, color=COLOURS[place], linestyle=DASHES[place], linewidth=1.3
        )
        place += 1
    axes.set_xlabel("accepted share of the pool")
    axes.set_ylabel("selective risk")
    axes.set_ylim(0, 1)
    axes.set_title(benchmark, fontsize=8, parse_math=False)
    axes.legend(frameon=False, fontsize=7, loc="lower right")


def _first_run(paths: Sequence[Path], recipe: str) -> Path | None:
    """Find the first run of a recipe."""
    for path in paths:
        if Run.open(path).provenance.get("recipe") == recipe:
            return path
    return None


def _read_pool(path: Path) -> Outputs:
    """Read the known test data and all unknown test data of a run."""
    run = Run.open(path)
    names = [name for name, role in run.roles.items() if role == "test" or role in OOD_TEST]
    return Outputs.concat([run[name] for name in names])


@register_drawing("mcp_density")
def draw_density(material: Material, *, recipes: tuple[str, ...] = ("basic", "deep_ensemble")) -> DrawnFigure:
    """Draw the density of the maximum class probability of correct, wrong, near and far inputs.

    Parameters
    ----------
    material : Material
        Runs.
    recipes : tuple of str, default=("basic", "deep_ensemble")
        Trainings, a panel each.

    Returns
    -------
    DrawnFigure
        The densities, as histograms of equal width.
    """
    figure = import_module("matplotlib.figure").Figure(figsize=(3.6 * len(recipes), 2.9), layout="constrained")
    panels = figure.subplots(1, len(recipes), squeeze=False, sharey=True)[0]
    edges = np.linspace(0, 1, 41)
    rows: list[tuple[object, ...]] = []
    for axes, recipe in zip(panels, recipes, strict=True):
        path = _first_run(material.runs, recipe)
        if path is None:
            raise InvalidInput(f"no run has the recipe {recipe}")
        for place, (name, values) in enumerate(_maximum_probabilities(path).items()):
            density, _ = np.histogram(values, bins=edges, density=True)
            axes.stairs(density, edges, color=COLOURS[place], linestyle=DASHES[place], label=name, linewidth=1.4)
            for low, value in zip(edges, density, strict=False):
                rows.append((recipe, name, float(low), float(value)))
        axes.set_title(recipe, parse_math=False)
        axes.set_xlabel("maximum class probability")
    panels[0].set_ylabel("density")
    panels[-1].legend(frameon=False, fontsize=7.5)
    return DrawnFigure(figure, ("recipe", "inputs", "probability", "density"), tuple(rows))


def _maximum_probabilities(path: Path) -> dict[str, Array]:
    """Compute the maximum class probability of each kind of input; of an ensemble, that of the mean."""
    run = Run.open(path)
    kinds: dict[str, list[Array]] = {"correct": [], "wrong": [], "near": [], "far": []}
    for name, role in run.roles.items():
        outputs = run[name]
        chain = scorer("msp" if outputs.passes is None else "mc_msp")
        if role == "test":
            values = chain.to_printed_scale(chain.score(outputs))
            correct = chain.judged_outputs(outputs).correct
            kinds["correct"].append(values[correct])
            kinds["wrong"].append(values[~correct])
        elif role in kinds:
            kinds[role].append(chain.to_printed_scale(chain.score(outputs)))
    found = {}
    for kind, parts in kinds.items():
        if parts:
            found[kind] = np.concatenate(parts)
    return found


@register_drawing("taken_for")
def draw_taken_for(material: Material, *, sets: tuple[str, ...] = ("cifar60", "svhn", "textures")) -> DrawnFigure:
    """Draw heat maps of the mean probabilities of known classes, by the class of unknown inputs.

    Parameters
    ----------
    material : Material
        Rows of the step ``classes``.
    sets : tuple of str, default=("cifar60", "svhn", "textures")
        Unknown data sets, a row of maps each.

    Returns
    -------
    DrawnFigure
        A column of maps for each of MCP, Deep Ensemble and Outlier Exposure. Known classes are one of each super-class
        of CIFAR-100, and so are those of near inputs.
    """
    figure = import_module("matplotlib.figure").Figure(figsize=(8.4, 2.7 * len(sets)), layout="constrained")
    panels = figure.subplots(len(sets), len(_HEAT_MODELS), squeeze=False)
    rows: list[tuple[object, ...]] = []
    image = None
    shown = [float(row["value"]) for row in material.rows if row["metric"] == MEAN_PROBABILITY and row["shift"] in sets]
    highest = max(shown, default=1.0)
    for line, name in zip(panels, sets, strict=True):
        for axes, (title, recipe) in zip(line, _HEAT_MODELS, strict=True):
            table = _table_of_means(material.rows, recipe, name)
            known = _one_of_each_superclass(sorted({key[1] for key in table}))
            unknown = _one_of_each_superclass(sorted({key[0] for key in table}))
            values = np.array([[table[row, column] for column in known] for row in unknown])
            image = axes.imshow(values, cmap="magma", vmin=0, vmax=highest, aspect="auto")
            axes.set_xticks(range(len(known)), known, rotation=90, fontsize=4.5)
            axes.set_yticks(range(len(unknown)), unknown, fontsize=4.5)
            axes.set_title(f"{title}, {name}", fontsize=8, parse_math=False)
            for row, numbers in zip(unknown, values, strict=True):
                for column, value in zip(known, numbers, strict=True):
                    rows.append((title, name, row, column, float(value)))
    if image is not None:
        figure.colorbar(image, ax=panels.ravel().tolist(), label="mean probability", shrink=0.5)
    note = "Mean softmax probability of each known class over the inputs of an unknown class."
    return DrawnFigure(figure, ("model", "set", "unknown", "known", "probability"), tuple(rows), (note,))


def _table_of_means(rows: Sequence[ResultRow], recipe: str, name: str) -> dict[tuple[str, str], float]:
    """Average the mean probabilities of a recipe on a data set over seeds, by unknown and known class."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if (row["metric"], row["recipe"], row["shift"]) == (MEAN_PROBABILITY, recipe, name):
            found[str(row["score"]), str(row["pair"])].append(float(row["value"]))
    if not found:
        raise InvalidInput(f"there are no mean probabilities of {recipe} on {name}")
    return {key: float(np.mean(values)) for key, values in found.items()}


def _one_of_each_superclass(names: Sequence[str]) -> list[str]:
    """Keep the first class of each super-class of CIFAR-100, in their order; all names where they are not of it."""
    from twofold.nn.data import superclasses

    chosen = []
    for members in superclasses().values():
        own = [name for name in names if name in members]
        chosen += own[:1]
    return chosen or list(names)
