"""Single numbers: metrics of one or several evaluations, and what a gate does on labelled data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twofold.bench.text import count
from twofold.errors import InvalidInput
from twofold.gate.card import ReportCard
from twofold.metrics import Evaluation
from twofold.plot.comparisons import ROW_HEIGHT
from twofold.plot.display import Display, add_legend, write_note, write_row_names
from twofold.plot.themes import Theme
from twofold.stats import Interval
from twofold.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = ("o", "s", "D", "^", "v", "P", "X")
ARROWS = {"higher": " ↑", "lower": " ↓"}


@dataclass(frozen=True, eq=False)
class MetricSeries:
    """Hold one value for each metric, with limits where they are known.

    Parameters
    ----------
    name : str
        Name in the legend.
    values : ndarray of shape (n_metrics,)
        The values, NaN where a metric is undefined.
    lows, highs : ndarray of shape (n_metrics,)
        Limits of the intervals, NaN where there are none.
    """

    name: str
    values: Array
    lows: Array
    highs: Array


@dataclass(eq=False)
class EvaluationDisplay(Display):
    """Draw metrics as dots, with intervals where they are known, on a common axis.

    Parameters
    ----------
    metrics : sequence of str
        Names of the metrics, from top to bottom.
    series : sequence of MetricSeries
        The values of each evaluation.
    better : mapping of str to {"higher", "lower"}
        Direction in which each metric gets better, drawn as an arrow.
    note : str, default=""
        What the values are of.

    Examples
    --------
    >>> from twofold import evaluate
    >>> EvaluationDisplay.from_evaluation(evaluate([True, True, False], [0.9, 0.8, 0.3], only=["auroc"])).alt_text
    'auroc of evaluation: 1. 3 samples (3 ID, 0 OOD).'
    """

    metrics: Sequence[str]
    series: Sequence[MetricSeries]
    better: Mapping[str, str]
    note: str = ""

    @classmethod
    def from_evaluation(cls, evaluation: Evaluation | Mapping[str, Evaluation]) -> EvaluationDisplay:
        """Draw one or several evaluations.

        Parameters
        ----------
        evaluation : Evaluation, or mapping of str to Evaluation
            What :func:`twofold.evaluate` returns, or several by name. Metrics that any of them lacks are left out.

        Returns
        -------
        EvaluationDisplay
            The display.

        Raises
        ------
        InvalidInput
            If there is no evaluation, or no metric that all of them have.
        """
        several = {"evaluation": evaluation} if isinstance(evaluation, Evaluation) else dict(evaluation)
        if not several:
            raise InvalidInput("there is no evaluation to draw; give at least one by name")
        first = next(iter(several.values()))
        shared = [name for name in first if all(name in other for other in several.values())]
        if not shared:
            raise InvalidInput("the evaluations have no metric in common; compute the same ones with only=")
        series = []
        for name, one in several.items():
            nothing = np.full(len(shared), math.nan)
            series.append(MetricSeries(str(name), np.array([one[metric] for metric in shared]), nothing, nothing))
        note = f"{count(first.n, 'sample')} ({first.n_id:,} ID, {first.n_ood:,} OOD)."
        return cls(shared, series, first.better, note if len(several) == 1 else "")

    @classmethod
    def from_intervals(cls, intervals: Mapping[str, Interval], *, name: str = "evaluation") -> EvaluationDisplay:
        """Draw metrics with intervals.

        Parameters
        ----------
        intervals : mapping of str to Interval
            What :func:`twofold.metrics.intervals` returns.
        name : str, default="evaluation"
            Name in the legend.

        Returns
        -------
        EvaluationDisplay
            The display.

        Raises
        ------
        InvalidInput
            If there is no interval.
        """
        if not intervals:
            raise InvalidInput("there is no interval to draw; give at least one by name")
        found = list(intervals.values())
        values = MetricSeries(
            name,
            np.array([one.value for one in found]),
            np.array([one.low for one in found]),
            np.array([one.high for one in found]),
        )
        note = f"Lines: {found[0].level:.0%} bootstrap intervals of {found[0].n:,} resamples."
        return cls(list(intervals), [values], _directions(intervals), note)

    @classmethod
    def from_card(cls, card: ReportCard) -> EvaluationDisplay:
        """Draw what a gate does on labelled data.

        Parameters
        ----------
        card : ReportCard
            What :meth:`twofold.Gate.report_card` returns.

        Returns
        -------
        EvaluationDisplay
            ID coverage and risk with their intervals, and DS-F1.
        """
        values = MetricSeries(
            "gate",
            np.array([card.coverage, card.risk, card.f1]),
            np.array([card.coverage_interval[0], card.risk_interval[0], math.nan]),
            np.array([card.coverage_interval[1], card.risk_interval[1], math.nan]),
        )
        better = {"ID coverage": "higher", "risk": "lower", "DS-F1": "higher"}
        note = f"{count(card.samples, 'sample')}; lines: exact 95 % intervals; promise kept: {card.kept}."
        return cls(list(better), [values], better, note)

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            The values of each series.
        """
        names = ", ".join(self.metrics)
        parts = []
        for one in self.series:
            values = ", ".join(f"{value:.4g}" for value in one.values)
            parts.append(f"{one.name}: {values}")
        return f"{names} of {'; '.join(parts)}. {self.note}".strip()

    @property
    def _size(self) -> tuple[float, float]:
        return 3.4, 1.25 * ROW_HEIGHT * max(len(self.metrics), 2)

    def _draw(self, ax: Axes, theme: Theme) -> None:
        rows = np.arange(len(self.metrics), dtype=np.float64)
        offsets = np.linspace(-0.22, 0.22, len(self.series)) if len(self.series) > 1 else np.zeros(1)
        for place, (one, offset) in enumerate(zip(self.series, offsets, strict=True)):
            colour = theme.colours[place % len(theme.colours)]
            ax.hlines(rows + offset, one.lows, one.highs, color=colour, linewidth=1.6)
            mark = MARKS[place % len(MARKS)]
            ax.scatter(one.values, rows + offset, color=colour, marker=mark, s=25, zorder=3, label=one.name)
        ax.hlines(rows, 0, 1, color=theme.rule, linewidth=0.8, zorder=0, transform=ax.get_yaxis_transform())
        names = [f"{name}{ARROWS.get(self.better.get(name, ''), '')}" for name in self.metrics]
        write_row_names(ax, names, [theme.text] * len(names))
        self._set_limits(ax)
        ax.set_xlabel("value (arrows point to better)")
        if len(self.series) > 1:
            add_legend(ax, len(self.series))
        else:
            self._write_values(ax, theme)
        if self.note:
            write_note(ax, theme, self.note, gap=34)

    def _set_limits(self, ax: Axes) -> None:
        """Show 0 to 1 where all values are rates."""
        ends = np.concatenate([np.concatenate([one.values, one.lows, one.highs]) for one in self.series])
        known = ends[np.isfinite(ends)]
        if not len(known) or (known.min() >= 0 and known.max() <= 1):
            ax.set_xlim(-0.02, 1.02)

    def _write_values(self, ax: Axes, theme: Theme) -> None:
        """Write the numbers of a single series at the right."""
        for row, value in enumerate(self.series[0].values):
            text = "undefined" if math.isnan(value) else f"{value:.4f}"
            ax.annotate(
                text,
                (1.0, row),
                (6, 0),
                xycoords=ax.get_yaxis_transform(),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=theme.text,
            )


def _directions(names: Mapping[str, object]) -> dict[str, str]:
    """Look up in which direction metrics get better; those that are not registered have no arrow."""
    from twofold import metrics
    from twofold.errors import UnknownName

    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = metrics.info(name).better
        except UnknownName:
            continue
    return found
