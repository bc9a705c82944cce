"""Curves over all thresholds: risk over coverage, ROC, precision over recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from twofold import _checks, metrics
from twofold.bench.text import count
from twofold.errors import InvalidInput
from twofold.metrics.detection import Positive
from twofold.metrics.selective import Coverage
from twofold.plot.display import Display, add_legend, by_name, thin
from twofold.plot.themes import Theme, dash_of
from twofold.typing import Array, ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 1000  # of a drawn curve
SIZE = (3.6, 2.7)  # inches
SAFE_LABEL = "share of safe samples accepted"
UNSAFE_LABEL = "share of unsafe samples accepted"


@dataclass(frozen=True, eq=False)
class PlottedCurve:
    """Hold a line of a figure.

    Parameters
    ----------
    name : str
        Name in the legend.
    x, y : ndarray of shape (n_points,)
        Coordinates.
    area : float, optional
        The metric that summarises the curve, written behind the name.
    """

    name: str
    x: Array
    y: Array
    area: float | None = None


def oracle_curve(accuracy: float) -> PlottedCurve:
    """Compute the least risk that any score can reach: every failure is rejected before any correct prediction.

    Parameters
    ----------
    accuracy : float
        Correct predictions as a share of the samples that coverage counts.

    Returns
    -------
    PlottedCurve
        Risk over coverage.

    Examples
    --------
    >>> curve = oracle_curve(0.75)
    >>> float(curve.y[0]), float(curve.y[-1])
    (0.0, 0.25)
    """
    coverage = np.linspace(0.001, 1.0, MOST_POINTS // 4)
    return PlottedCurve("oracle", coverage, np.maximum(0.0, 1.0 - accuracy / coverage))


@dataclass(eq=False)
class RiskCoverageDisplay(Display):
    """Draw selective risk over coverage, a line for each confidence. Lower is better.

    Parameters
    ----------
    curves : sequence of PlottedCurve
        Coverage and risk of each line.
    counts : {"all", "id"}, default="all"
        Whether coverage counts all samples or ID samples only.
    oracle : PlottedCurve, optional
        The least risk that any score can reach.
    metric : str, default="AURC"
        What the area of a curve is called.

    Examples
    --------
    >>> display = RiskCoverageDisplay.from_predictions([True, False, True, True], [0.9, 0.2, 0.8, 0.7], name="msp")
    >>> display.alt_text
    'Selective risk over coverage of all samples; AURC: msp 0.0625. 1 curve and the oracle.'
    """

    curves: Sequence[PlottedCurve]
    counts: Coverage = "all"
    oracle: PlottedCurve | None = None
    metric: str = "AURC"

    @classmethod
    def from_predictions(
        cls,
        correct: ArrayLike,
        conf: ArrayLike | Mapping[str, ArrayLike],
        *,
        is_id: ArrayLike | None = None,
        conf_ood: ArrayLike | None = None,
        ood_share: float | None = None,
        coverage: Coverage | None = None,
        name: str | None = None,
    ) -> RiskCoverageDisplay:
        """Compute the curves of one or several confidences.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each prediction is correct; False on every OOD sample.
        conf : array-like of shape (n_samples,), or mapping of str to such arrays
            Confidence, higher is safer to accept; or several by name.
        is_id : array-like of bool, shape (n_samples,), optional
            True for ID samples. By default all samples are ID.
        conf_ood : array-like of shape (n_samples,), optional
            A second confidence; the best pair of thresholds at each coverage is drawn too.
        ood_share : float, optional
            OOD prevalence expected in deployment.
        coverage : {"all", "id"}, optional
            Whether coverage counts all samples or ID samples only. By default ``"id"`` with ``conf_ood``, else
            ``"all"``.
        name : str, optional
            Name of a single confidence.

        Returns
        -------
        RiskCoverageDisplay
            The curves with their areas, and the oracle's.

        Raises
        ------
        InvalidInput
            If the arrays do not fit together, or ``conf_ood`` comes with several confidences or ``coverage="all"``.
        """
        several = by_name(conf, name, "conf")
        counts: Coverage = coverage or ("all" if conf_ood is None else "id")
        curves = []
        for label, values in several.items():
            curve = metrics.risk_coverage_curve(correct, values, is_id=is_id, ood_share=ood_share, coverage=counts)
            area = metrics.aurc(correct, values, is_id=is_id, ood_share=ood_share, coverage=counts)
            curves.append(_coverage_curve(label, curve.coverage, curve.risk, area))
        if conf_ood is not None:
            if len(several) > 1 or counts == "all":
                raise InvalidInput('conf_ood is the second of two: give one conf, and coverage="id" or none')
            (first,) = several.values()
            double = metrics.ds_risk_coverage_curve(correct, first, conf_ood, is_id, ood_share=ood_share)
            both = _coverage_curve("both scores (DS-AURC)", double.coverage, double.risk, float(double.risk.mean()))
            curves.append(both)
        best = None
        if ood_share is None:
            right, known = _checks.joint(correct, is_id)
            accepted = right.size if counts == "all" or known is None else int(known.sum())
            best = oracle_curve(float(right.sum()) / accepted)
        return cls(curves, counts, best)

    @classmethod
    def from_curve(
        cls, curve: metrics.RiskCoverageCurve | metrics.DoubleCurve, *, name: str | None = None
    ) -> RiskCoverageDisplay:
        """Draw a curve that was computed before.

        Parameters
        ----------
        curve : RiskCoverageCurve or DoubleCurve
            What :func:`twofold.metrics.risk_coverage_curve` or :func:`twofold.metrics.ds_risk_coverage_curve` returns.
        name : str, optional
            Name in the legend.

        Returns
        -------
        RiskCoverageDisplay
            The curve; that of two scores has its DS-AURC.
        """
        if isinstance(curve, metrics.DoubleCurve):
            line = _coverage_curve(name or "both scores", curve.coverage, curve.risk, float(curve.risk.mean()))
            return cls([line], "id", None, "DS-AURC")
        return cls([_coverage_curve(name or "conf", curve.coverage, curve.risk, None)], curve.counts)

    @classmethod
    def from_points(cls, curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> RiskCoverageDisplay:
        """Draw given points.

        Parameters
        ----------
        curves : mapping of str to (array-like, array-like)
            Coverage and risk of each named curve.

        Returns
        -------
        RiskCoverageDisplay
            The curves.

        Raises
        ------
        InvalidInput
            If there is no curve, or coverage and risk differ in length.
        """
        lines = []
        for name, (coverage, risk) in curves.items():
            x = np.asarray(_checks.floats(coverage, f"coverage of {name}"), dtype=np.float64)
            y = np.asarray(_checks.floats(risk, f"risk of {name}"), dtype=np.float64)
            if len(x) != len(y):
                raise InvalidInput(f"coverage and risk of {name} must have the same length, got {len(x)} and {len(y)}")
            lines.append(PlottedCurve(str(name), x, y))
        if not lines:
            raise InvalidInput("curves must hold at least one curve: a name with its coverage and risk")
        return cls(lines)

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Axes, areas and number of curves.
        """
        kind = "all samples" if self.counts == "all" else "ID samples"
        end = "" if self.oracle is None else " and the oracle"
        return f"Selective risk over coverage of {kind}{_list_areas(self.metric, self.curves)}{end}."

    @property
    def _size(self) -> tuple[float, float]:
        return SIZE

    def _draw(self, ax: Axes, theme: Theme) -> None:
        _draw_lines(ax, theme, self.curves)
        highest = 0.02
        for curve in self.curves:
            highest = max(highest, float(curve.y[curve.x > 0.05].max(initial=0.0)))  # erratic at small coverage
        if self.oracle is not None:
            ax.plot(self.oracle.x, self.oracle.y, color=theme.soft, linewidth=0.9, linestyle=":", label="oracle")
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.05 * highest)
        kind = "all" if self.counts == "all" else "ID"
        ax.set_xlabel(f"coverage: share of {kind} samples accepted")
        ax.set_ylabel("selective risk: failures among accepted")
        add_legend(ax, len(self.curves) + (self.oracle is not None), _area_title(self.metric, self.curves))


@dataclass(eq=False)
class RocDisplay(Display):
    """Draw the share of safe samples accepted over that of unsafe samples, a line for each confidence.

    Parameters
    ----------
    curves : sequence of PlottedCurve
        False-positive and true-positive rates of each line, with its AUROC.

    Examples
    --------
    >>> RocDisplay.from_predictions([True, False, True], [0.9, 0.5, 0.4], name="msp").alt_text
    'Safe over unsafe samples accepted (ROC); AUROC: msp 0.5. 1 curve.'
    """

    curves: Sequence[PlottedCurve]

    @classmethod
    def from_predictions(
        cls, truth: ArrayLike, conf: ArrayLike | Mapping[str, ArrayLike], *, name: str | None = None
    ) -> RocDisplay:
        """Compute the curves of one or several confidences.

        Parameters
        ----------
        truth : array-like of bool, shape (n_samples,)
            True for the safe class: correct predictions, or ID samples.
        conf : array-like of shape (n_samples,), or mapping of str to such arrays
            Confidence, higher is safer to accept; or several by name.
        name : str, optional
            Name of a single confidence.

        Returns
        -------
        RocDisplay
            The curves with their AUROC.

        Raises
        ------
        InvalidInput
            If the arrays do not fit together.
        UndefinedMetric
            If one of the two classes is missing.
        """
        curves = []
        for label, values in by_name(conf, name, "conf").items():
            curve = metrics.roc_curve(truth, values)
            curves.append(_thin_curve(label, curve.fpr, curve.tpr, metrics.auroc(truth, values)))
        return cls(curves)

    @classmethod
    def from_curve(cls, curve: metrics.RocCurve, *, name: str | None = None) -> RocDisplay:
        """Draw a curve that was computed before.

        Parameters
        ----------
        curve : RocCurve
            What :func:`twofold.metrics.roc_curve` returns.
        name : str, optional
            Name in the legend.

        Returns
        -------
        RocDisplay
            The curve with its AUROC.
        """
        area = float(np.diff(curve.fpr) @ (curve.tpr[1:] + curve.tpr[:-1])) / 2.0
        return cls([_thin_curve(name or "conf", curve.fpr, curve.tpr, area)])

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Axes, areas and number of curves.
        """
        return f"Safe over unsafe samples accepted (ROC){_list_areas('AUROC', self.curves)}."

    @property
    def _size(self) -> tuple[float, float]:
        return 3.0, 3.0

    def _draw(self, ax: Axes, theme: Theme) -> None:
        ax.plot([0, 1], [0, 1], color=theme.soft, linewidth=0.9, linestyle=":", label="chance")
        _draw_lines(ax, theme, self.curves)
        _set_unit_square(ax)
        ax.set_xlabel(UNSAFE_LABEL)
        ax.set_ylabel(SAFE_LABEL)
        add_legend(ax, len(self.curves) + 1, _area_title("AUROC", self.curves))


@dataclass(eq=False)
class PrecisionRecallDisplay(Display):
    """Draw precision over recall, a line for each confidence; steps, since points between thresholds do not exist.

    Parameters
    ----------
    curves : sequence of PlottedCurve
        Recall and precision of each line, with its average precision.
    share : float
        Share of positives: the precision of chance.
    positive : {"safe", "unsafe"}, default="safe"
        The class that is found.

    Examples
    --------
    >>> PrecisionRecallDisplay.from_predictions([True, False, True], [0.9, 0.5, 0.4], name="msp").alt_text
    'Precision over recall of safe samples; average precision: msp 0.8333. 1 curve.'
    """

    curves: Sequence[PlottedCurve]
    share: float
    positive: Positive = "safe"

    @classmethod
    def from_predictions(
        cls,
        truth: ArrayLike,
        conf: ArrayLike | Mapping[str, ArrayLike],
        *,
        positive: Positive = "safe",
        name: str | None = None,
    ) -> PrecisionRecallDisplay:
        """Compute the curves of one or several confidences.

        Parameters
        ----------
        truth : array-like of bool, shape (n_samples,)
            True for the safe class: correct predictions, or ID samples.
        conf : array-like of shape (n_samples,), or mapping of str to such arrays
            Confidence, higher is safer to accept; or several by name.
        positive : {"safe", "unsafe"}, default="safe"
            The class to find.
        name : str, optional
            Name of a single confidence.

        Returns
        -------
        PrecisionRecallDisplay
            The curves with their average precision.

        Raises
        ------
        InvalidInput
            If the arrays do not fit together.
        UndefinedMetric
            If one of the two classes is missing.
        """
        curves = []
        for label, values in by_name(conf, name, "conf").items():
            curve = metrics.precision_recall_curve(truth, values, positive=positive)
            area = metrics.average_precision(truth, values, positive=positive == "safe")
            curves.append(_thin_curve(label, curve.recall, curve.precision, area))
        safe = float(_checks.mask(truth, "truth").mean())
        return cls(curves, safe if positive == "safe" else 1.0 - safe, positive)

    @classmethod
    def from_curve(cls, curve: metrics.PrecisionRecallCurve, *, name: str | None = None) -> PrecisionRecallDisplay:
        """Draw a curve that was computed before.

        Parameters
        ----------
        curve : PrecisionRecallCurve
            What :func:`twofold.metrics.precision_recall_curve` returns.
        name : str, optional
            Name in the legend.

        Returns
        -------
        PrecisionRecallDisplay
            The curve with its average precision.
        """
        area = float(np.diff(curve.recall, prepend=0.0) @ curve.precision)
        line = _thin_curve(name or "conf", curve.recall, curve.precision, area)
        return cls([line], float(curve.precision[-1]), curve.positive)

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Axes, areas and number of curves.
        """
        areas = _list_areas("average precision", self.curves)
        return f"Precision over recall of {self.positive} samples{areas}."

    @property
    def _size(self) -> tuple[float, float]:
        return 3.0, 3.0

    def _draw(self, ax: Axes, theme: Theme) -> None:
        ax.axhline(self.share, color=theme.soft, linewidth=0.9, linestyle=":", label="chance")
        _draw_lines(ax, theme, self.curves, steps="steps-pre")
        _set_unit_square(ax)
        ax.set_xlabel(f"recall: share of {self.positive} samples found")
        ax.set_ylabel(f"precision: {self.positive} among those found")
        add_legend(ax, len(self.curves) + 1, _area_title("average precision", self.curves))


# --- parts ----------------------------------------------------------------------------------------------------------


def _coverage_curve(name: str, coverage: Array, risk: Array, area: float | None) -> PlottedCurve:
    """Keep the points that accept something."""
    covered = coverage > 0
    return _thin_curve(name, coverage[covered], risk[covered], area)


def _thin_curve(name: str, x: Array, y: Array, area: float | None) -> PlottedCurve:
    keep = thin(len(x), MOST_POINTS)
    return PlottedCurve(name, x[keep], y[keep], area)


def _list_areas(metric: str, curves: Sequence[PlottedCurve]) -> str:
    """List the areas of the curves for the text in place of a figure."""
    known = [f"{curve.name} {curve.area:.4g}" for curve in curves if curve.area is not None]
    areas = f"; {metric}: {', '.join(known)}" if known else ""
    return f"{areas}. {count(len(curves), 'curve')}"


def _draw_lines(
    ax: Axes,
    theme: Theme,
    curves: Sequence[PlottedCurve],
    steps: Literal["default", "steps-pre"] = "default",
) -> None:
    for place, curve in enumerate(curves):
        label = curve.name if curve.area is None else f"{curve.area:.3f}  {curve.name}"
        ax.plot(
            curve.x,
            curve.y,
            color=theme.colours[place % len(theme.colours)],
            linestyle=dash_of(place),
            linewidth=1.4,
            drawstyle=steps,
            label=label,
        )


def _area_title(metric: str, curves: Sequence[PlottedCurve]) -> str | None:
    """Say what the number before each name in the legend is."""
    if any(curve.area is not None for curve in curves):
        return f"{metric}, name"
    return None


def _set_unit_square(ax: Axes) -> None:
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.01)
