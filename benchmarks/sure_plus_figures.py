"""Figures of the page of SURE+: the radius, and the recipes side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sure_plus_cells import (
    AURC,
    CHOICE,
    COMPARISONS,
    FAR,
    MEASURES,
    NEAR,
    SWEPT,
    Cells,
    Comparison,
    Measure,
    compared_rows,
    label_of,
    open_comparison,
    opened_trials,
    setting,
)
from twofold.plot.themes import COLOURS
from twofold.study import StudyRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RELATIVE = "relative"  # to the weights; the other radii are lengths
RADIUS_TITLES = {CHOICE: "AURC, validation (x1000)", NEAR: "DS-F1 near (%)", FAR: "DS-F1 far (%)"}


def sweep_figure(root: Path) -> list[Path]:
    """Draw DS-F1 and the AURC of validation images against the radius, as far as trials are finished."""
    cells = opened_trials(root)
    if not any(cells.chosen(family) for family in SWEPT):
        return []
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(RADIUS_TITLES), figsize=(9, 3), layout="constrained")
    for axes, (measure, title) in zip(panels, RADIUS_TITLES.items(), strict=True):
        draw_sweep(axes, cells, measure)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("radius rho", fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
    panels[0].legend(fontsize=7)
    return [saved(figure, root, "sure_plus_radius.png")]


def draw_sweep(axes: Axes, cells: Cells, measure: Measure) -> None:
    """Draw a measure against the radius, and that of plain training as a line."""
    for colour, (family, label) in zip(COLOURS, SWEPT.items(), strict=False):
        radii, values = sweep_values(cells, family, measure)
        axes.plot(radii, values, "o", color=colour, label=label)
        lengths = [radius for radius in radii if radius != RELATIVE]
        axes.plot(lengths, values[: len(lengths)], "-", color=colour)
    best = cells.chosen("basic")
    if best is not None:
        height = cells.mean(best, measure) or 0.0
        axes.axhline(height, color="black", linewidth=0.8, linestyle="--", label="plain training")


def sweep_values(cells: Cells, family: str, measure: Measure) -> tuple[list[str], list[float]]:
    """Return the radii of the finished trials of a family and a measure of each; the relative radius is last."""
    radii: list[str] = []
    values: list[float] = []
    for row in cells.study.rows:
        value = cells.mean(row.name, measure)
        if row.family == family and value is not None:
            radius = setting(row).removeprefix("rho = ")
            radii.append(RELATIVE if radius.startswith("rho relative") else radius)
            values.append(value)
    return radii, values


def comparison_figures(root: Path) -> list[Path]:
    """Draw the recipes of every comparison side by side, as far as their cells are finished."""
    trials = opened_trials(root)
    found = []
    for comparison in COMPARISONS:
        cells = open_comparison(root, comparison)
        if has_figure(cells, trials, comparison):
            found.append(comparison_figure(root, cells, trials, comparison))
    return found


def has_figure(cells: Cells, trials: Cells, comparison: Comparison) -> bool:
    """Tell whether two or more rows of a comparison have finished cells."""
    return sum(bool(cells.cells_of(row)) for row in compared_rows(cells, trials, comparison)) > 1


def figure_name(comparison: Comparison) -> str:
    """Name the file of the figure of a comparison."""
    return f"{comparison.folder}.png"


def comparison_figure(root: Path, cells: Cells, trials: Cells, comparison: Comparison) -> Path:
    """Draw one panel for each measure and benchmark: a dot for each seed, a bar at their mean."""
    from matplotlib import pyplot as plt

    wanted = compared_rows(cells, trials, comparison)
    rows = [row for row in cells.study.rows if row.name in wanted and cells.cells_of(row.name)]
    rows.reverse()  # the first at the top
    benchmarks = [benchmark.name for benchmark in cells.study.benchmarks]
    size = (9, 0.9 + (0.5 + 0.24 * len(rows)) * len(benchmarks))
    figure, panels = plt.subplots(
        len(benchmarks), len(MEASURES), figsize=size, layout="constrained", sharey=True, squeeze=False
    )
    for line, benchmark in zip(panels, benchmarks, strict=True):
        for axes, measure in zip(line, MEASURES, strict=True):
            draw_rows(axes, cells, rows, measure, benchmark)
            unit = "x1000, lower is better" if measure == AURC else "%"
            axes.set_title(f"{measure.title} ({unit})", fontsize=8)
            axes.tick_params(axis="x", labelsize=7)
        if len(benchmarks) > 1:
            line[0].set_ylabel(benchmark, fontsize=8)
    return saved(figure, root, figure_name(comparison))


def draw_rows(axes: Axes, cells: Cells, rows: Sequence[StudyRow], measure: Measure, benchmark: str) -> None:
    """Draw a measure of every row of a study: a dot for each seed, a bar at their mean."""
    for height, row in enumerate(rows):
        values = list(cells.values(row.name, measure, benchmark).values())
        colour = COLOURS[1] if row.recipe.startswith("sure_plus") else COLOURS[0]
        axes.plot(values, [height] * len(values), "o", color=colour, markersize=4, alpha=0.6)
        if values:
            mean = sum(values) / len(values)
            axes.plot([mean, mean], [height - 0.3, height + 0.3], color=colour, linewidth=2)
    axes.set_yticks(range(len(rows)), [label_of(row) for row in rows], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)


def saved(figure: Figure, root: Path, name: str) -> Path:
    """Save a figure of the findings, and close it."""
    from matplotlib import pyplot as plt

    path = root / "docs" / "findings" / name
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path
