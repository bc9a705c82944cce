"""Where confidences lie, and whether they say the truth: densities and reliability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from twofold import _checks, metrics
from twofold.bench.text import count
from twofold.metrics.calibration import ReliabilityDiagram, Strategy
from twofold.plot.curves import SIZE, PlottedCurve
from twofold.plot.display import Display, add_legend
from twofold.plot.themes import Theme, dash_of
from twofold.typing import Array, ArrayLike, Mask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DENSITY_BINS = 60
PLACES = {"correct": 2, "wrong": 1}  # colours of kinds, as in reports; others take what is left
OTHER_PLACES = (0, 3, 4, 5, 6)


def score_densities(conf: Array, kinds: Mapping[str, Mask]) -> list[PlottedCurve]:
    """Compute a smoothed histogram of area 1 for each kind of inputs, over common bins.

    Parameters
    ----------
    conf : ndarray of shape (n_samples,)
        The confidences; infinite ones count at the ends.
    kinds : mapping of str to ndarray of bool, shape (n_samples,)
        The rows of each kind. Kinds of fewer than two rows are left out.

    Returns
    -------
    list of PlottedCurve
        Densities over the centres of 60 bins between extreme quantiles; values beyond them count at the edges.

    Examples
    --------
    >>> (curve,) = score_densities(np.arange(100.0), {"all": np.ones(100, bool)})
    >>> width = curve.x[1] - curve.x[0]
    >>> round(float(curve.y.sum() * width), 6)
    1.0
    """
    edges = _density_edges(conf)
    centres = (edges[1:] + edges[:-1]) / 2
    curves = []
    for kind, rows in kinds.items():
        if rows.sum() > 1:
            curves.append(PlottedCurve(kind, centres, _smooth_density(conf[rows], edges)))
    return curves


def _density_edges(conf: Array) -> Array:
    """Choose bins between extreme quantiles of the finite confidences."""
    finite = conf[np.isfinite(conf)]
    low, high = 0.0, 1.0
    if len(finite):
        low, high = np.quantile(finite, (0.002, 0.998))
    if high <= low:
        high = low + 1.0
    return np.linspace(low, high, DENSITY_BINS + 1)


def _smooth_density(conf: Array, edges: Array) -> Array:
    """Compute a histogram of area 1, smoothed over neighbouring bins."""
    counts = np.histogram(np.clip(conf, edges[0], edges[-1]), edges)[0]
    smooth = np.convolve(np.pad(counts, 1, "edge"), (0.25, 0.5, 0.25), "valid")
    return smooth / (len(conf) * (edges[1] - edges[0]))


@dataclass(eq=False)
class ScoreDensityDisplay(Display):
    """Draw where correct predictions, wrong predictions and OOD samples lie on a confidence.

    Parameters
    ----------
    curves : sequence of PlottedCurve
        The density of each kind.
    counts : sequence of int
        Number of samples of each kind.
    name : str, default="confidence"
        Name of the confidence.

    Examples
    --------
    >>> display = ScoreDensityDisplay.from_predictions([1, 1, 0, 0], [0.9, 0.8, 0.3, 0.1], name="msp")
    >>> display.alt_text
    'Densities of msp: correct (2 samples), wrong (2 samples). Each has area 1.'
    """

    curves: Sequence[PlottedCurve]
    counts: Sequence[int]
    name: str = "confidence"

    @classmethod
    def from_predictions(
        cls, correct: ArrayLike, conf: ArrayLike, *, is_id: ArrayLike | None = None, name: str = "confidence"
    ) -> ScoreDensityDisplay:
        """Compute the densities.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each prediction is correct; False on every OOD sample.
        conf : array-like of shape (n_samples,)
            Confidence, higher is safer to accept.
        is_id : array-like of bool, shape (n_samples,), optional
            True for ID samples. By default all samples are ID.
        name : str, default="confidence"
            Name of the confidence, on the axis.

        Returns
        -------
        ScoreDensityDisplay
            A density for each kind that has at least two samples.

        Raises
        ------
        InvalidInput
            If the arrays do not fit together.
        """
        values = _checks.confidence(conf)
        right, known = _checks.joint(correct, is_id, conf=values)
        kinds = {"correct": right, "wrong": ~right}
        if known is not None:
            kinds = {"correct": right, "wrong": known & ~right, "OOD": ~known}
        curves = score_densities(values, kinds)
        return cls(curves, [int(kinds[curve.name].sum()) for curve in curves], name)

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Kinds with their number of samples.
        """
        kinds = ", ".join(self._labels())
        return f"Densities of {self.name}: {kinds}. Each has area 1."

    def _labels(self) -> list[str]:
        return [f"{curve.name} ({count(n, 'sample')})" for curve, n in zip(self.curves, self.counts, strict=True)]

    @property
    def _size(self) -> tuple[float, float]:
        return SIZE

    def _draw(self, ax: Axes, theme: Theme) -> None:
        others = iter(OTHER_PLACES)
        for curve, label in zip(self.curves, self._labels(), strict=True):
            place = PLACES[curve.name] if curve.name in PLACES else next(others)
            colour = theme.colours[place]
            ax.fill_between(curve.x, curve.y, color=colour, alpha=0.13, linewidth=0)
            ax.plot(curve.x, curve.y, color=colour, linestyle=dash_of(place), linewidth=1.4, label=label)
        ax.set_ylim(bottom=0)
        ax.set_xlabel(f"{self.name}, higher is safer", parse_math=False)
        ax.set_ylabel("density")
        add_legend(ax, len(self.curves))


@dataclass(eq=False)
class ReliabilityDisplay(Display):
    """Draw the share of correct predictions over the stated probability. On the diagonal, probabilities are true.

    Parameters
    ----------
    diagram : ReliabilityDiagram
        What :func:`twofold.metrics.reliability_diagram` returns.
    name : str, default="probability"
        Name of the probability.

    Examples
    --------
    >>> ReliabilityDisplay.from_predictions([True, False, True], [0.6, 0.7, 1.0], bins=2).alt_text
    'Share correct in 1 bin of probability, 3 samples; expected calibration error 0.1.'
    """

    diagram: ReliabilityDiagram
    name: str = "probability"

    @classmethod
    def from_predictions(
        cls,
        correct: ArrayLike,
        prob: ArrayLike,
        *,
        bins: int = 15,
        strategy: Strategy = "width",
        name: str = "probability",
    ) -> ReliabilityDisplay:
        """Compute the diagram.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each prediction is correct.
        prob : array-like of shape (n_samples,)
            Stated probability that the prediction is correct, in [0, 1].
        bins : int, default=15
            Number of bins.
        strategy : {"width", "mass"}, default="width"
            Bins of equal width, or of equal count.
        name : str, default="probability"
            Name of the probability, on the axis.

        Returns
        -------
        ReliabilityDisplay
            The bins that hold samples.

        Raises
        ------
        InvalidInput
            If the arrays do not fit together, or a probability is outside [0, 1].
        """
        return cls(metrics.reliability_diagram(correct, prob, bins=bins, strategy=strategy), name)

    @classmethod
    def from_diagram(cls, diagram: ReliabilityDiagram, *, name: str = "probability") -> ReliabilityDisplay:
        """Draw a diagram that was computed before.

        Parameters
        ----------
        diagram : ReliabilityDiagram
            What :func:`twofold.metrics.reliability_diagram` returns.
        name : str, default="probability"
            Name of the probability, on the axis.

        Returns
        -------
        ReliabilityDisplay
            The display.
        """
        return cls(diagram, name)

    @property
    def ece(self) -> float:
        """Expected calibration error of the bins.

        Returns
        -------
        float
            Mean distance from the diagonal, by samples.
        """
        return float(np.abs(self.diagram.gap) @ self.diagram.count) / self.diagram.rows

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Number of bins and samples, and the calibration error.
        """
        bins, rows = count(len(self.diagram.count), "bin"), count(self.diagram.rows, "sample")
        return f"Share correct in {bins} of {self.name}, {rows}; expected calibration error {self.ece:.4g}."

    @property
    def _size(self) -> tuple[float, float]:
        return 3.0, 3.0

    def _draw(self, ax: Axes, theme: Theme) -> None:
        diagram = self.diagram
        ax.bar(
            diagram.lower,
            diagram.accuracy,
            width=diagram.upper - diagram.lower,
            align="edge",
            color=theme.colours[0],
            alpha=0.35,
            edgecolor=theme.ground,
            label="share correct",
        )
        ax.plot([0, 1], [0, 1], color=theme.soft, linestyle=":", linewidth=0.9, label="perfectly calibrated")
        sizes = 12 + 90 * diagram.count / diagram.count.max()
        ax.scatter(
            diagram.prob,
            diagram.accuracy,
            s=sizes,
            color=theme.colours[1],
            zorder=3,
            clip_on=False,  # dots at 1 are whole
            label="bin, by samples",
        )
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.01)
        ax.set_xlabel(f"stated {self.name}", parse_math=False)
        ax.set_ylabel("share correct")
        add_legend(ax, 3, f"ECE {self.ece:.4f}")
