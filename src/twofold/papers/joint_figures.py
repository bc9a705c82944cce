"""Drawings of SURE+: two trainings judged by each task alone and by both, and the risks of pairs of thresholds.

Li et al., From Misclassifications to Outliers: Joint Reliability Assessment in Classification, arXiv:2603.03903.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twofold import metrics
from twofold.bench.rows import ResultRow
from twofold.bench.text import scale, title
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.papers.drawings import DrawnFigure, register_drawing
from twofold.papers.material import Material
from twofold.plot.themes import COLOURS, DASHES, LIGHT
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

# metric, shift and whether it is of the ID score, the OOD score or the pair
_BARS = (
    ("accuracy", "test", "id"),
    ("aurc", "test", "id"),
    ("auroc_ood", "unknown", "ood"),
    ("ds_f1", "unknown", "pair"),
    ("ds_aurc", "unknown", "pair"),
)
_SURFACE = 48  # thresholds on each axis of a surface
_POINTS = 90  # and of the cloud of pairs


@register_drawing("joint_dilemma")
def draw_joint_dilemma(
    material: Material,
    *,
    id_score: str = "msp",
    ood_score: str = "klm",
    unknown: str = "mnist",
    recipes: tuple[str, ...] = ("basic", "cutmix"),
) -> DrawnFigure:
    """Draw what each task alone and both together say of two trainings, and their F1 over pairs of thresholds.

    Parameters
    ----------
    material : Material
        Results and runs of the trainings.
    id_score, ood_score : str, default="msp", "klm"
        The pair of scores.
    unknown : str, default="mnist"
        The unknown data set.
    recipes : tuple of str, default=("basic", "cutmix")
        The trainings.

    Returns
    -------
    DrawnFigure
        Bars above, surfaces below.
    """
    runs = _runs_by_recipe(material, recipes)
    figure = import_module("matplotlib.figure").Figure(figsize=(7.2, 5.0), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(0.85, 1.15))
    rows = _draw_bars(top, material.rows, list(runs), unknown, id_score, ood_score)
    panels = bottom.subplots(1, len(runs), squeeze=False, sharey=False)[0]
    surfaces = {}
    for recipe, path in runs.items():
        pool = _read_pool(path, unknown)
        conf_id, conf_ood = _confidences(path, pool, id_score), _confidences(path, pool, ood_score)
        surfaces[recipe] = metrics.f1_surface(pool.correct, conf_id, conf_ood, pool.is_id, grid=_SURFACE)
    highest = max(float(surface.f1.max()) for surface in surfaces.values())
    image = None
    for axes, (recipe, surface) in zip(panels, surfaces.items(), strict=True):
        image = axes.imshow(surface.f1.T, origin="lower", cmap="cividis", vmin=0, vmax=highest, aspect="auto")
        place = np.unravel_index(int(surface.f1.argmax()), surface.f1.shape)
        axes.plot(place[0], place[1], marker="*", color="white", markersize=9, markeredgecolor="black")
        axes.set_title(f"{recipe}: best F1 {100 * surface.f1.max():.1f} %", parse_math=False)
        axes.set_xlabel(f"threshold of {id_score} (quantile)")
        axes.set_ylabel(f"threshold of {ood_score} (quantile)")
        ticks = np.linspace(0, _SURFACE - 1, 3)
        axes.set_xticks(ticks, ("0", "0.5", "1"))
        axes.set_yticks(ticks, ("0", "0.5", "1"))
        rows.append((recipe, "best f1 of the surface", unknown, f"{id_score} + {ood_score}", float(surface.f1.max())))
    if image is not None:
        bottom.colorbar(image, ax=list(panels), label="F1", shrink=0.9)
    note = (
        f"Above: known test data by {id_score}, test data against {unknown} by {ood_score}, and both by the pair; an "
        "arrow shows which direction is better. Below: F1 of accepting where both scores reach their thresholds; a "
        "star marks the best pair."
    )
    return DrawnFigure(figure, ("recipe", "metric", "shift", "scores", "value"), tuple(rows), (note,))


def _draw_bars(
    figure: MatplotlibFigure,
    results: Sequence[ResultRow],
    recipes: Sequence[str],
    unknown: str,
    id_score: str,
    ood_score: str,
) -> list[tuple[object, ...]]:
    """Draw a panel of bars for each metric; return their numbers."""
    panels = figure.subplots(1, len(_BARS))
    rows: list[tuple[object, ...]] = []
    for axes, (metric, shift, whose) in zip(panels, _BARS, strict=True):
        score, pair = {"id": (id_score, None), "ood": (ood_score, None), "pair": (id_score, ood_score)}[whose]
        name = unknown if shift == "unknown" else shift
        factor, _ = scale(metric)
        values = []
        for recipe in recipes:
            value = _find_value(results, recipe=recipe, metric=metric, shift=name, score=score, pair=pair)
            values.append(factor * value)
            rows.append((recipe, metric, name, score if pair is None else f"{score} + {pair}", value))
        bars = axes.bar(range(len(values)), values, color=COLOURS[: len(values)], width=0.7)
        axes.bar_label(bars, [f"{value:.1f}" for value in values], fontsize=7)
        arrow = "↑" if metrics.info(metric).better == "higher" else "↓"
        axes.set_title(f"{title(metric)} {arrow}", fontsize=8)
        axes.set_xticks(range(len(values)), recipes, fontsize=7)
        axes.set_ylim(0, 1.2 * max(values))
    return rows


def _find_value(results: Sequence[ResultRow], **wanted: object) -> float:
    """Average a value over the seeds that have it."""
    found = []
    for row in results:
        if all(row[column] == value for column, value in wanted.items()):
            found.append(float(row["value"]))
    if not found:
        listed = ", ".join(f"{column} {value}" for column, value in wanted.items() if value is not None)
        raise InvalidInput(f"there is no result with {listed}; judge these runs by the joint and openood protocols")
    return float(np.mean(found))


def _runs_by_recipe(material: Material, recipes: Sequence[str]) -> dict[str, Path]:
    """Find the first run of each recipe."""
    found: dict[str, Path] = {}
    for path in material.runs:
        recipe = str(Run.open(path).provenance.get("recipe"))
        found.setdefault(recipe, path)
    missing = [recipe for recipe in recipes if recipe not in found]
    if missing:
        raise InvalidInput(f"no run has the recipe {missing[0]}; the runs have {', '.join(found)}")
    return {recipe: found[recipe] for recipe in recipes}


def _read_pool(path: Path, unknown: str) -> Outputs:
    """Read the test set of a run together with an unknown set."""
    run = Run.open(path)
    if unknown not in run:
        raise InvalidInput(f"{path} does not hold {unknown}; extract it with `twofold bench extract`")
    tests = [name for name, role in run.roles.items() if role == "test"]
    return Outputs.concat([run[tests[0]], run[unknown]])


def _confidences(path: Path, pool: Outputs, spec: str) -> Array:
    """Score a pool, after learning from the training and validation data of its run where the score learns."""
    run = Run.open(path)
    by_role = {role: run[name] for name, role in reversed(list(run.roles.items()))}
    chain = scorer(spec)
    if not chain.ready:
        chain = chain.fit(by_role["train"], val=by_role.get("val"), ood_val=by_role.get("ood_val"))
    return chain.score(pool)


@register_drawing("double_risk")
def draw_double_risk(
    material: Material, *, id_score: str = "msp", ood_score: str = "vim", unknown: str = "cifar10"
) -> DrawnFigure:
    """Draw risk against coverage of pairs of thresholds, the least risk at each coverage, and each score alone.

    Parameters
    ----------
    material : Material
        Runs; the first that holds the unknown set is drawn.
    id_score, ood_score : str, default="msp", "vim"
        The pair of scores.
    unknown : str, default="cifar10"
        The unknown data set.

    Returns
    -------
    DrawnFigure
        One panel.
    """
    holding = [path for path in material.runs if unknown in Run.open(path)]
    if not holding:
        raise InvalidInput(f"no run holds {unknown}; extract it with `twofold bench extract`")
    pool = _read_pool(holding[0], unknown)
    conf_id = _confidences(holding[0], pool, id_score)
    conf_ood = _confidences(holding[0], pool, ood_score)
    curve = metrics.ds_risk_coverage_curve(pool.correct, conf_id, conf_ood, pool.is_id)
    surface = metrics.f1_surface(pool.correct, conf_id, conf_ood, pool.is_id, grid=_POINTS)
    figure = import_module("matplotlib.figure").Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.subplots()
    used = surface.coverage > 0
    axes.scatter(
        surface.coverage[used],
        surface.risk[used],
        s=1.2,
        color=COLOURS[2],
        alpha=0.4,
        rasterized=True,
        label="pairs of thresholds",
    )
    area = metrics.ds_aurc(pool.correct, conf_id, conf_ood, pool.is_id)
    label = f"best pair at each coverage, DS-AURC {1000 * area:.1f}"
    axes.plot(curve.coverage, curve.risk, color=COLOURS[1], linewidth=1.8, label=label)
    rows: list[tuple[object, ...]] = []
    _add_curve(rows, f"{id_score} + {ood_score}", curve.coverage, curve.risk)
    for place, (name, conf) in enumerate(((id_score, conf_id), (ood_score, conf_ood))):
        _draw_single(axes, rows, name, pool, conf, place)
    axes.set_xlabel("coverage of known test data")
    axes.set_ylabel("selective risk")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=7.5, loc="upper left")
    note = (
        f"Test data and {unknown}. Each dot is a pair of thresholds; wrong predictions and accepted unknown inputs are "
        "errors. The lower curve is what DS-AURC integrates, exactly and without bins."
    )
    return DrawnFigure(figure, ("scores", "coverage", "risk"), tuple(rows), (note,))


def _draw_single(axes: Axes, rows: list[tuple[object, ...]], name: str, pool: Outputs, conf: Array, place: int) -> None:
    """Draw the risk of one score alone over the coverage of known data."""
    order = np.argsort(-conf, kind="stable")
    known = np.cumsum(pool.is_id[order])
    right = np.cumsum(pool.correct[order])
    accepted = np.arange(1, len(order) + 1)
    ends = np.append(conf[order][1:] != conf[order][:-1], True)  # tied samples are accepted together
    used = ends & (known > 0)
    coverage, risk = known[used] / known[-1], 1 - right[used] / accepted[used]
    area = metrics.aurc_id(pool.correct, conf, pool.is_id)
    label = f"{name} alone, AURC {1000 * area:.1f}"
    axes.plot(
        coverage, risk, color=(LIGHT.soft, COLOURS[0])[place], linestyle=DASHES[place + 1], linewidth=1.3, label=label
    )
    _add_curve(rows, name, coverage, risk)


def _add_curve(rows: list[tuple[object, ...]], name: str, coverage: Array, risk: Array) -> None:
    """Add a hundred points of a curve."""
    for place in np.unique(np.linspace(0, len(coverage) - 1, 100).astype(int)):
        rows.append((name, float(coverage[place]), float(risk[place])))
