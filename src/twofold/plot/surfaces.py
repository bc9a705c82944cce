"""F1, risk or coverage over pairs of thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from twofold import _checks, metrics
from twofold.errors import InvalidInput
from twofold.plot.display import Display, thin, write_note
from twofold.plot.themes import Theme
from twofold.typing import Array, ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Quantity: TypeAlias = Literal["f1", "risk", "coverage"]
TICKS = 5
LABELS = {"f1": "F1", "risk": "selective risk", "coverage": "ID coverage"}


@dataclass(eq=False)
class F1SurfaceDisplay(Display):
    """Draw F1 (or risk, or coverage) over both thresholds as colours with contour lines, and mark the best F1.

    Parameters
    ----------
    surface : Surface
        What :func:`twofold.metrics.f1_surface` returns.
    quantity : {"f1", "risk", "coverage"}, default="f1"
        What the colours show. The mark is always at the best F1.

    Examples
    --------
    >>> conf_id, conf_ood, is_id = [0.9, 0.8, 0.5, 0.7], [3.0, 2.5, 2.0, 1.0], [1, 1, 0, 0]
    >>> F1SurfaceDisplay.from_predictions([1, 1, 0, 0], conf_id, conf_ood, is_id, grid=4).alt_text
    'F1 over thresholds on two confidences; the best F1 is 1 at 0.5 on conf_id and 2.5 on conf_ood.'
    """

    surface: metrics.Surface
    quantity: Quantity = "f1"

    @classmethod
    def from_predictions(
        cls,
        correct: ArrayLike,
        conf_id: ArrayLike,
        conf_ood: ArrayLike,
        is_id: ArrayLike | None = None,
        *,
        quantity: Quantity = "f1",
        grid: int = 128,
        ood_share: float | None = None,
    ) -> F1SurfaceDisplay:
        """Compute the surface.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each prediction is correct; False on every OOD sample.
        conf_id, conf_ood : array-like of shape (n_samples,)
            Confidence against misclassification and against OOD inputs.
        is_id : array-like of bool, shape (n_samples,), optional
            True for ID samples. By default all samples are ID.
        quantity : {"f1", "risk", "coverage"}, default="f1"
            What the colours show.
        grid : int, default=128
            Number of quantile thresholds per axis.
        ood_share : float, optional
            OOD prevalence expected in deployment.

        Returns
        -------
        F1SurfaceDisplay
            The surface.

        Raises
        ------
        InvalidInput
            If the arrays do not fit together, or fewer than two finite thresholds remain on an axis.
        """
        surface = metrics.f1_surface(correct, conf_id, conf_ood, is_id, grid=grid, ood_share=ood_share)
        return cls.from_surface(surface, quantity=quantity)

    @classmethod
    def from_surface(cls, surface: metrics.Surface, *, quantity: Quantity = "f1") -> F1SurfaceDisplay:
        """Draw a surface that was computed before.

        Parameters
        ----------
        surface : Surface
            What :func:`twofold.metrics.f1_surface` returns. Infinite thresholds are left out.
        quantity : {"f1", "risk", "coverage"}, default="f1"
            What the colours show.

        Returns
        -------
        F1SurfaceDisplay
            The surface.

        Raises
        ------
        InvalidInput
            If fewer than two finite thresholds remain on an axis, or the quantity is unknown.
        """
        _checks.choice(quantity, "quantity", tuple(LABELS))
        rows, columns = np.isfinite(surface.tau_id), np.isfinite(surface.tau_ood)
        if rows.sum() < 2 or columns.sum() < 2:
            raise InvalidInput("a surface needs at least two finite thresholds on each axis; the confidences are equal")
        kept = metrics.Surface(
            surface.tau_id[rows],
            surface.tau_ood[columns],
            surface.f1[rows][:, columns],
            surface.risk[rows][:, columns],
            surface.coverage[rows][:, columns],
        )
        return cls(kept, quantity)

    @property
    def best(self) -> tuple[float, float, float]:
        """The best F1 on the grid and its thresholds.

        Returns
        -------
        tuple of (float, float, float)
            F1, threshold on ``conf_id``, threshold on ``conf_ood``.
        """
        i, j = self._best_cell
        surface = self.surface
        return float(surface.f1[i, j]), float(surface.tau_id[i]), float(surface.tau_ood[j])

    @property
    def _best_cell(self) -> tuple[int, int]:
        row, column = np.unravel_index(int(np.argmax(self.surface.f1)), self.surface.f1.shape)
        return int(row), int(column)

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Quantity, axes and the best pair of thresholds.
        """
        value, tau_id, tau_ood = self.best
        place = f"{tau_id:.4g} on conf_id and {tau_ood:.4g} on conf_ood"
        return f"{LABELS[self.quantity]} over thresholds on two confidences; the best F1 is {value:.4g} at {place}."

    @property
    def _size(self) -> tuple[float, float]:
        return 3.6, 3.0

    def _draw(self, ax: Axes, theme: Theme) -> None:
        """Draw thresholds at even distances: they are quantiles, and the tails of scores are long."""
        values: Array = getattr(self.surface, self.quantity)
        mesh = ax.pcolormesh(values, cmap="cividis", rasterized=True)
        rows, columns = values.shape
        if values.max() > values.min():
            centres = np.arange(columns) + 0.5, np.arange(rows) + 0.5
            lines = ax.contour(*centres, values, levels=6, colors="white", linewidths=0.6)
            ax.clabel(lines, fontsize=6.5, fmt="%g")
        bar = ax.figure.colorbar(mesh, ax=ax, fraction=0.05, pad=0.03)
        bar.set_label(LABELS[self.quantity])
        i, j = self._best_cell
        ax.scatter([j + 0.5], [i + 0.5], marker="*", s=170, color="white", edgecolor="black", zorder=3)
        ax.set_xticks(*_threshold_ticks(self.surface.tau_ood))
        ax.set_yticks(*_threshold_ticks(self.surface.tau_id))
        ax.set_xlabel("threshold on conf_ood (even steps of its quantiles)")
        ax.set_ylabel("threshold on conf_id")
        value, tau_id, tau_ood = self.best
        write_note(ax, theme, f"Star: best F1 of the grid, {value:.4f}, at {tau_id:.4g} and {tau_ood:.4g}.", gap=36)


def _threshold_ticks(thresholds: Array) -> tuple[list[float], list[str]]:
    """Choose some thresholds to write along an axis, and where they are."""
    places = thin(len(thresholds), TICKS)
    return [float(place) + 0.5 for place in places], [f"{thresholds[place]:.3g}" for place in places]
