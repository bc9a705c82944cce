"""Many methods: mean ranks with cliques, maps of top cliques, heat maps of a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from twofold.bench.clique_maps import GROUP, CliqueMap, clique_map
from twofold.bench.compare import Comparison, compare
from twofold.bench.results import Results
from twofold.bench.tables import ColumnNames, Pivot
from twofold.bench.text import count, coverage_of, scale, title
from twofold.plot.display import Display, write_column_names, write_note, write_row_names
from twofold.plot.themes import Theme
from twofold.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW_HEIGHT = 0.21  # inches of a line of text
CLIQUE_WIDTH = 0.15  # inches of the column of a clique


@dataclass(eq=False)
class RankDisplay(Display):
    """Draw mean ranks, best first, with bars that join statistically tied methods.

    This is the usual critical-difference diagram, turned so that each method has its own line: the dot is its mean
    rank, and each column at the right is a clique. Methods of the top clique are coloured.

    Parameters
    ----------
    comparison : Comparison
        What :func:`twofold.bench.compare.compare` returns.
    """

    comparison: Comparison

    @classmethod
    def from_comparison(cls, comparison: Comparison) -> RankDisplay:
        """Draw a comparison.

        Parameters
        ----------
        comparison : Comparison
            What :func:`twofold.bench.compare.compare` returns.

        Returns
        -------
        RankDisplay
            The display.
        """
        return cls(comparison)

    @classmethod
    def from_results(
        cls,
        results: Results,
        metric: str,
        *,
        protocol: str | None = None,
        test: str = "conover_t",
        alpha: float = 0.05,
        blocks: Sequence[str] | None = None,
    ) -> RankDisplay:
        """Compare the methods of results, and draw it.

        Parameters
        ----------
        results : Results
            Rows of one or more benchmarks.
        metric : str
            Name of the metric to compare by.
        protocol : str, optional
            Needed where several protocols have the metric.
        test : {"conover_t", "rank_z", "wilcoxon"}, default="conover_t"
            Test of pairs.
        alpha : float, default=0.05
            Level of the tests.
        blocks : sequence of str, optional
            Columns that define blocks.

        Returns
        -------
        RankDisplay
            The display.

        Raises
        ------
        TooFewBlocks
            If there are so few blocks that no outcome could be significant.
        InvalidInput
            If a name is unknown, or fewer than two methods or two blocks remain without gaps.
        """
        return cls(compare(results, metric, protocol=protocol, test=test, alpha=alpha, blocks=blocks))

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            The metric, the best method and the size of the top clique.
        """
        found = self.comparison
        size = f"{count(len(found.methods), 'method')} over {count(len(found.blocks), 'block')}"
        tied = count(len(found.top), "method")
        return f"Mean ranks by {found.metric} of {size}; {found.methods[0]} is first, {tied} in the top clique."

    @property
    def _size(self) -> tuple[float, float]:
        return 3.2, ROW_HEIGHT * len(self.comparison.methods)

    def _draw(self, ax: Axes, theme: Theme) -> None:
        found = self.comparison
        k = len(found.methods)
        colours = [theme.colours[0] if name in found.top else theme.soft for name in found.methods]
        ax.hlines(range(k), 1, found.mean_ranks, color=theme.rule, linewidth=1, zorder=1)
        ax.scatter(found.mean_ranks, range(k), c=colours, s=26, zorder=3)
        ax.set_xlim(1 - 0.03 * k, k + 0.03 * k)
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xlabel("mean rank (1 is best)")
        ax.spines["top"].set_visible(True)
        ax.spines["right"].set_visible(False)
        ax.spines["bottom"].set_visible(False)
        ax.set_xticks(range(1, k + 1, max(1, math.ceil((k - 1) / 7))))
        write_row_names(ax, found.methods, colours)
        self._draw_cliques(ax, theme)
        ax.set_ylim(k - 0.4, -0.6)
        rule = "Friedman's test rejects nothing"
        if found.omnibus:
            rule = f"{found.test} with Holm, {found.alpha:g}"
        heading = _metric_title(found.metric, found.protocol)
        write_note(
            ax,
            theme,
            f"{heading}: {len(found.blocks)} blocks of {count(found.models, 'model')}.",
            f"Bars join statistically tied methods ({rule}).",
        )

    def _draw_cliques(self, ax: Axes, theme: Theme) -> None:
        """Draw a column for each clique at the right of the axes, a dot for each of its methods, joined by a bar."""
        found = self.comparison
        row_of = {name: i for i, name in enumerate(found.methods)}
        beside = ax.get_yaxis_transform()
        width = self._size[0]
        joined = [clique for clique in found.cliques if len(clique) > 1]
        for column, clique in enumerate(joined):
            rows = sorted(row_of[name] for name in clique)
            x = 1.0 + (0.2 + CLIQUE_WIDTH * column) / width
            colour = theme.colours[0] if clique == found.top else theme.soft
            ends = [rows[0], rows[-1]]
            ax.plot([x, x], ends, color=colour, linewidth=1.2, zorder=2, transform=beside, clip_on=False)
            ax.scatter([x] * len(rows), rows, s=9, color=colour, zorder=3, transform=beside, clip_on=False)


@dataclass(eq=False)
class CliqueDisplay(Display):
    """Draw the map of top cliques: a dot where a method is in the top clique of a group, joined within each group.

    A ring is a method that was compared and is not in the top clique; without a mark, it was not compared. A column is
    grey where Friedman's test does not reject, so that all methods are one clique, and the number at its head is that
    of its blocks. Lines of methods that lead in at least half of the other groups are shaded.

    Parameters
    ----------
    table : CliqueMap
        What :func:`twofold.bench.clique_maps.clique_map` returns.
    """

    table: CliqueMap

    @classmethod
    def from_map(cls, table: CliqueMap) -> CliqueDisplay:
        """Draw a map of cliques.

        Parameters
        ----------
        table : CliqueMap
            What :func:`twofold.bench.clique_maps.clique_map` returns.

        Returns
        -------
        CliqueDisplay
            The display.
        """
        return cls(table)

    @classmethod
    def from_results(
        cls,
        results: Results,
        metric: str,
        *,
        protocol: str | None = None,
        test: str = "conover_t",
        alpha: float = 0.05,
        by: Sequence[str] = GROUP,
    ) -> CliqueDisplay:
        """Find the top clique of each group of blocks, and draw them.

        Parameters
        ----------
        results : Results
            Rows of one or more benchmarks.
        metric : str
            Name of the metric to compare by.
        protocol : str, optional
            Needed where several protocols have the metric.
        test : {"conover_t", "rank_z", "wilcoxon"}, default="conover_t"
            Test of pairs.
        alpha : float, default=0.05
            Level of the tests.
        by : sequence of str, default=("benchmark", "model", "role")
            Columns whose combinations are the groups.

        Returns
        -------
        CliqueDisplay
            The display.

        Raises
        ------
        TooFewBlocks
            If no group has enough methods and blocks.
        InvalidInput
            If a name is unknown, or the metric has no rows to compare.
        """
        return cls(clique_map(results, metric, protocol=protocol, test=test, alpha=alpha, by=by))

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            The metric, the number of methods and groups, and the method that leads in most groups.
        """
        rows, columns = self.table.member.shape
        led = int(self.table.member[0].sum())
        size = f"{count(rows, 'method')} in {count(columns, 'group')}"
        return f"Top cliques by {self.table.metric} of {size}; {self.table.rows[0]} is in {led} of them."

    @property
    def _size(self) -> tuple[float, float]:
        rows, columns = self.table.member.shape
        return max(0.32 * columns, 0.8), ROW_HEIGHT * rows

    def _draw(self, ax: Axes, theme: Theme) -> None:
        table = self.table
        rows, columns = table.member.shape
        differ = np.array(table.omnibus)  # groups in which Friedman's test rejects
        groups_led = table.member[:, differ].sum(axis=1)
        if differ.sum() > 1:
            for i in np.flatnonzero(2 * groups_led >= differ.sum()):
                ax.axhspan(i - 0.5, i + 0.5, color=theme.band, linewidth=0, zorder=0)
        for j in range(columns):
            leaders = np.flatnonzero(table.member[:, j])
            colour = theme.colours[0] if differ[j] else theme.soft
            ax.plot([j] * len(leaders), leaders, color=colour, linewidth=1.4, marker="o", markersize=4.5, zorder=2)
        rings = np.argwhere(table.judged & ~table.member)
        ax.scatter(rings[:, 1], rings[:, 0], s=9, facecolor=theme.ground, edgecolor=theme.soft, linewidth=0.7, zorder=3)
        write_row_names(ax, table.rows, [theme.text] * rows)
        names_with_counts = [f"{name} ({count})" for name, count in zip(table.columns, table.blocks, strict=True)]
        write_column_names(ax, names_with_counts)
        ax.set_xlim(-0.6, columns - 0.4)
        heading = _metric_title(table.metric, table.protocol)
        notes = [f"{heading}: top cliques", f"({table.test} with Holm, {table.alpha:g})"]
        if table.dropped_groups:
            names = ", ".join([group.name for group in table.dropped_groups])
            notes.append(f"Too few blocks to compare: {names}.")
        write_note(ax, theme, *notes)


@dataclass(eq=False)
class PivotDisplay(Display):
    """Draw a table as a heat map: strong colour is good, each column on its own scale, bold is best.

    A dagger marks values that tie with the best.

    Parameters
    ----------
    pivot : Pivot
        What :meth:`twofold.bench.results.Results.pivot` returns.
    digits : int, default=2
        Digits after the decimal point of the printed values.
    """

    pivot: Pivot
    digits: int = 2

    @classmethod
    def from_pivot(cls, pivot: Pivot, *, digits: int = 2) -> PivotDisplay:
        """Draw a table.

        Parameters
        ----------
        pivot : Pivot
            What :meth:`twofold.bench.results.Results.pivot` returns.
        digits : int, default=2
            Digits after the decimal point.

        Returns
        -------
        PivotDisplay
            The display.
        """
        return cls(pivot, digits)

    @classmethod
    def from_results(
        cls,
        results: Results,
        metric: str,
        *,
        protocol: str | None = None,
        index: ColumnNames = "score",
        columns: ColumnNames = "shift",
        digits: int = 2,
    ) -> PivotDisplay:
        """Arrange a metric of results in a table, and draw it.

        Parameters
        ----------
        results : Results
            Rows of a benchmark.
        metric : str
            The metric to show.
        protocol : str, optional
            Needed where several protocols have the metric.
        index, columns : str or tuple of str, default="score", "shift"
            Columns of the results that label the rows and columns of the table.
        digits : int, default=2
            Digits after the decimal point.

        Returns
        -------
        PivotDisplay
            The display.

        Raises
        ------
        InvalidInput
            If two rows share a cell, or the protocol is missing.
        UnknownName
            If there is no such metric or column.
        """
        return cls(results.pivot(index, columns, metric=metric, protocol=protocol), digits)

    @property
    def alt_text(self) -> str:
        """What the figure shows, in words.

        Returns
        -------
        str
            Metric, direction and size of the table.
        """
        rows, columns = self.pivot.values.shape
        size = f"{count(rows, 'row')} and {count(columns, 'column')}"
        return f"Heat map of {title(self.pivot.metric)}, {self.pivot.better} is better, {size}."

    @property
    def _size(self) -> tuple[float, float]:
        rows, columns = self.pivot.values.shape
        return 0.72 * columns, ROW_HEIGHT * rows

    def _draw(self, ax: Axes, theme: Theme) -> None:
        pivot = self.pivot
        scale_of = import_module("matplotlib.colors").LinearSegmentedColormap
        colours = scale_of.from_list("twofold", list(theme.heat))
        ax.set_facecolor(theme.rule)  # colour of cells without a value
        quality = np.ma.masked_invalid(_quality(pivot))
        image = ax.imshow(quality, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        bar = ax.figure.colorbar(image, ax=ax, ticks=[0, 1], fraction=0.04, pad=0.02)
        bar.ax.set_yticklabels(["worst of the column", "best"], fontsize=7)
        self._write_values(ax)
        write_row_names(ax, pivot.index, [theme.text] * len(pivot.index))
        write_column_names(ax, pivot.columns)
        direction = f"{pivot.better} is better{coverage_of(pivot.metric, pivot.protocol)}"
        write_note(ax, theme, f"{title(pivot.metric)}, {direction}")

    def _write_values(self, ax: Axes) -> None:
        """Write the value of each cell: bold where it is best, with a dagger where it ties with the best."""
        pivot = self.pivot
        factor = scale(pivot.metric)[0]
        best, tied = pivot.best, pivot.tied
        for (i, j), value in np.ndenumerate(pivot.values):
            text = "–"
            if not math.isnan(value):
                text = f"{factor * float(value):.{self.digits}f}"
                if tied[i, j]:
                    text += "†"
            weight = "bold" if best[i, j] else "normal"
            ax.text(j, i, text, ha="center", va="center", fontsize=7.5, fontweight=weight)


def _metric_title(metric: str, protocol: str | None) -> str:
    """Name a metric and the protocol it was measured under."""
    return metric if protocol is None else f"{metric}, {protocol}"


def _quality(pivot: Pivot) -> Array:
    """Scale each column from 0, its worst value, to 1, its best; columns without spread become 0.5."""
    quality = np.full(pivot.values.shape, np.nan)
    sign = 1.0 if pivot.better == "higher" else -1.0
    for j, column in enumerate(sign * pivot.values.T):
        finite = np.isfinite(column)
        if not finite.any():
            continue
        low, high = column[finite].min(), column[finite].max()
        if high > low:
            quality[finite, j] = (column[finite] - low) / (high - low)
        else:
            quality[finite, j] = 0.5
    return quality
