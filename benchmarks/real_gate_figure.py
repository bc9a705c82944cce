"""The figure of risks under corruption, for benchmarks/real_gate.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from real_gate_cards import ALL_LEVELS, ALONE, MIXED, WITH_ENERGY, Card, Promises, by_level
from real_gate_classifier import LEVELS, MSP, Classifier, GateScores
from records import Records
from twofold.plot.themes import COLOURS, drawing_style


def draw_risks(classifiers: Sequence[Classifier], measured: dict[str, Promises], path: Path) -> None:
    """Draw the risk found against the level of corruption: known inputs alone above, a quarter unknown below."""
    size = (3.6 * len(classifiers) + 0.4, 5.4)
    with drawing_style():
        figure, panels = plt.subplots(
            2, len(classifiers), figsize=size, squeeze=False, sharex=True, layout="constrained"
        )
        for classifier, (above, below) in zip(classifiers, panels.T, strict=True):
            promises = measured[classifier.name]
            draw_panel(above, promises.known.cards, MSP, ALONE[classifier.classes])
            above.set_title(f"{classifier.name}: known inputs alone, msp")
            draw_panel(below, promises.mixed.cards, WITH_ENERGY, MIXED[classifier.classes])
            below.set_title(f"{classifier.name}: a quarter unknown, msp + energy")
            below.set_xlabel("level of corruption")
        for line in panels:
            line[0].set_ylabel("risk found, % (dashed: promised)")
        figure.savefig(path, dpi=120, metadata={"Software": None})
        plt.close(figure)


def draw_panel(axes: Axes, cards: Records[Card], scores: GateScores, risks: Sequence[float]) -> None:
    """Draw the median, the middle half and the promise for each risk that could be promised."""
    for colour, risk in zip(COLOURS, risks, strict=False):
        if by_level(cards, scores, risk, 0):
            found = risks_by_level(cards, scores, risk)
            low, high = np.quantile(found, (0.25, 0.75), axis=1)
            axes.fill_between(ALL_LEVELS, low, high, color=colour, alpha=0.15, linewidth=0)
            label = f"r = {100 * risk:g} %"
            middle = np.median(found, axis=1)
            axes.plot(ALL_LEVELS, middle, color=colour, marker="o", markersize=3.5, label=label)
            axes.axhline(100 * risk, color=colour, linestyle=(0, (4, 2)), linewidth=0.9)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    axes.set_xticks(ALL_LEVELS, ["clean", *map(str, LEVELS)])


def risks_by_level(cards: Records[Card], scores: GateScores, risk: float) -> np.ndarray:
    """Collect the risks found in percent, (levels, cards)."""
    found = []
    for level in ALL_LEVELS:
        found.append(100 * by_level(cards, scores, risk, level).values("risk"))
    return np.array(found)
