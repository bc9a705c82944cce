"""Figures: one line from arrays or results to a labelled drawing, light or dark (extra ``plot``).

Classes follow scikit-learn's convention: ``from_predictions`` (or ``from_results``, ``from_comparison``, ...) computes
what is drawn, ``plot(ax=None)`` draws it and returns the display with ``ax_`` and ``figure_``. ``save`` writes SVG, PNG
or PDF, the same bytes for the same values, with a sentence for those who cannot see the figure.

>>> display = RiskCoverageDisplay.from_predictions([True, False, True, True], [0.9, 0.2, 0.8, 0.7], name="msp")
>>> display.curves[0].area
0.0625

Matplotlib is imported when something is drawn.
"""

from twofold.plot.comparisons import CliqueDisplay, PivotDisplay, RankDisplay
from twofold.plot.confidences import ReliabilityDisplay, ScoreDensityDisplay
from twofold.plot.curves import PlottedCurve, PrecisionRecallDisplay, RiskCoverageDisplay, RocDisplay
from twofold.plot.display import Display
from twofold.plot.monitors import MonitorDisplay
from twofold.plot.summaries import EvaluationDisplay, MetricSeries
from twofold.plot.surfaces import F1SurfaceDisplay

__all__ = [
    "CliqueDisplay",
    "Display",
    "EvaluationDisplay",
    "F1SurfaceDisplay",
    "MetricSeries",
    "MonitorDisplay",
    "PivotDisplay",
    "PlottedCurve",
    "PrecisionRecallDisplay",
    "RankDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "RocDisplay",
    "ScoreDensityDisplay",
]
