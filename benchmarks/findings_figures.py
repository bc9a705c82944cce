"""The figure of a paper on the pages of benchmarks/findings.py: the interval of every claim that can be tested."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from claims import FAILS, HOLDS, INCONCLUSIVE
from findings_claims import UNCORRECTED, Line, Paper
from twofold.plot import themes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE_GAP, CLAIM_GAP = 0.55, 0.45  # between intervals of one claim, and what is added between claims
LABEL_GAP = 0.3  # what a second line of a label adds
LABEL_WIDTH = 70  # characters
COLOURS = {HOLDS: themes.COLOURS[2], FAILS: themes.COLOURS[1], INCONCLUSIVE: themes.LIGHT.soft}


def draw_intervals(paper: Paper, path: Path) -> Path:
    """Draw the interval of every testable line, in the colour of its verdict; the lines of a claim stand together."""
    from matplotlib import pyplot as plt

    lines: list[tuple[float, Line]] = []
    labels: dict[float, str] = {}
    height = 0.0
    for stem, group in paper.groups().items():
        testable = [line for line in group if line.is_testable]
        if not testable:
            continue
        first = height
        for line in testable:
            lines.append((height, line))
            height -= LINE_GAP
        label = textwrap.fill(stem, LABEL_WIDTH)
        labels[(first + height + LINE_GAP) / 2] = label
        height -= CLAIM_GAP + LABEL_GAP * label.count("\n")
    figure, axes = plt.subplots(figsize=(8, 0.9 - 0.23 * height), layout="constrained")
    for place, line in lines:
        draw_interval(axes, place, line)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(list(labels), list(labels.values()), fontsize=7.5)
    axes.set_ylim(height + CLAIM_GAP - 0.5, 1)
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("gain in the direction of the claim (scaled)", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    for verdict, colour in COLOURS.items():
        axes.plot([], [], color=colour, linewidth=3, label=verdict)
    figure.legend(fontsize=8, loc="outside lower center", ncols=len(COLOURS))
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def draw_interval(axes: Axes, place: float, line: Line) -> None:
    """Draw one interval, divided by its largest end, with a hollow dot where the correction changes the verdict."""
    low, high = float(line.claim.low or 0), float(line.claim.high or 0)
    width = max(abs(low), abs(high)) or 1.0
    colour = COLOURS[line.claim.verdict]
    inside = colour if line.corrected in (line.claim.verdict, UNCORRECTED) else "white"
    axes.plot([low / width, high / width], [place, place], color=colour, linewidth=3)
    axes.plot((low + high) / 2 / width, place, "o", color=colour, markersize=5, markerfacecolor=inside)
