"""Figures of results: ranks with cliques, maps of top cliques, heat maps, risk-coverage curves; PNG, SVG or PDF.

The same values give the same bytes: no dates, fixed identifiers, no style of the user's own. Colours are those of Okabe
and Ito, which people with any colour vision can distinguish; dashes distinguish lines where colours run out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twofold import _checks
from twofold._files import replacing
from twofold.bench.clique_maps import CliqueMap
from twofold.bench.compare import Comparison
from twofold.bench.tables import Pivot
from twofold.bench.text import coverage_of, scale
from twofold.errors import InvalidInput, MissingExtra, RunError
from twofold.report.document import format_count
from twofold.typing import Array, ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2, 1, 1, 1, 2)), (0, (2, 3)))
BLUE, GREY, LIGHT_GREY, PALE = COLOURS[0], "#5C5C5C", "#A8A8A8", "#E8E8E8"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "twofold",
}
ROW_HEIGHT = 0.21  # inches of a line of text


def critical_difference(comparison: Comparison, path: str | Path) -> Path:
    """Draw mean ranks, best first, with bars that join statistically tied methods.

    This is the usual critical-difference diagram, turned so that each method has its own line: the dot is its mean
    rank, and each column at the right is a clique. Methods of the top clique are blue.

    Parameters
    ----------
    comparison : Comparison
        What :func:`twofold.bench.compare.compare` returns.
    path : str or Path
        File to write; its suffix (``.png``, ``.svg`` or ``.pdf``) decides the format.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If the suffix is none of the three, or the folder does not exist.
    MissingExtra
        If matplotlib is not installed.
    RunError
        If the file cannot be written.
    """
    target, style = _check_path(path), _style()
    with style:
        k = len(comparison.methods)
        width = 3.2
        figure, axes = _make_axes(width, ROW_HEIGHT * k)
        colours = [BLUE if name in comparison.top else GREY for name in comparison.methods]
        axes.hlines(range(k), 1, comparison.mean_ranks, color=PALE, linewidth=1, zorder=1)
        axes.scatter(comparison.mean_ranks, range(k), c=colours, s=26, zorder=3)
        axes.set_xlim(1 - 0.03 * k, k + 0.03 * k)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("mean rank (1 is best)")
        axes.spines["top"].set_visible(True)
        axes.spines["bottom"].set_visible(False)
        axes.set_xticks(range(1, k + 1, math.ceil((k - 1) / 7)))
        _write_row_names(axes, comparison.methods, colours)
        _draw_cliques(figure, axes, comparison, width)
        axes.set_ylim(k - 0.4, -0.6)
        rule = "Friedman's test rejects nothing"
        if comparison.omnibus:
            rule = f"{comparison.test} with Holm, {comparison.alpha:g}"
        title = _metric_title(comparison.metric, comparison.protocol)
        models = format_count(comparison.models, "model")
        _write_note(
            axes,
            f"{title}: {len(comparison.blocks)} blocks of {models}.",
            f"Bars join statistically tied methods ({rule}).",
        )
        return _save(figure, target)


def _draw_cliques(figure: MatplotlibFigure, axes: Axes, comparison: Comparison, width: float) -> None:
    """Draw a column for each clique at the right of the axes, a dot for each of its methods, joined by a bar."""
    cliques = [clique for clique in comparison.cliques if len(clique) > 1]
    row_of = {name: i for i, name in enumerate(comparison.methods)}
    columns_width = max(0.15 * len(cliques), 0.3)
    bars = figure.add_axes((1.0 + 0.1 / width, 0, columns_width / width, 1), sharey=axes)
    bars.axis("off")
    for column, clique in enumerate(cliques):
        rows = sorted(row_of[name] for name in clique)
        colour = BLUE if clique == comparison.top else GREY
        bars.plot([column, column], [rows[0], rows[-1]], color=colour, linewidth=1.2, zorder=2)
        bars.scatter([column] * len(rows), rows, s=9, color=colour, zorder=3)
    bars.set_xlim(-0.7, max(len(cliques), 2) - 0.3)


def clique_map(table: CliqueMap, path: str | Path) -> Path:
    """Draw the map of top cliques: a dot where a method is in the top clique of a group, joined within each group.

    A ring is a method that was compared and is not in the top clique; without a mark, it was not compared. A column is
    grey where Friedman's test does not reject, so that all methods are one clique, and the number at its head is that
    of its blocks. Lines of methods that lead in at least half of the other groups are shaded.

    Parameters
    ----------
    table : CliqueMap
        What :func:`twofold.bench.clique_maps.clique_map` returns.
    path : str or Path
        File to write; its suffix (``.png``, ``.svg`` or ``.pdf``) decides the format.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If the suffix is none of the three, or the folder does not exist.
    MissingExtra
        If matplotlib is not installed.
    RunError
        If the file cannot be written.
    """
    target, style = _check_path(path), _style()
    with style:
        rows, columns = table.member.shape
        figure, axes = _make_axes(max(0.32 * columns, 0.8), ROW_HEIGHT * rows)
        differ = np.array(table.omnibus)  # groups in which Friedman's test rejects
        groups_led = table.member[:, differ].sum(axis=1)
        if differ.sum() > 1:
            for i in np.flatnonzero(2 * groups_led >= differ.sum()):
                axes.axhspan(i - 0.5, i + 0.5, color="#E3EEF6", linewidth=0, zorder=0)
        for j in range(columns):
            leaders = np.flatnonzero(table.member[:, j])
            colour = BLUE if differ[j] else LIGHT_GREY
            axes.plot([j] * len(leaders), leaders, color=colour, linewidth=1.4, marker="o", markersize=4.5, zorder=2)
        rings = np.argwhere(table.judged & ~table.member)
        axes.scatter(rings[:, 1], rings[:, 0], s=9, facecolor="white", edgecolor=LIGHT_GREY, linewidth=0.7, zorder=3)
        _write_row_names(axes, table.rows, ["black"] * rows)
        names_with_counts = [f"{name} ({count})" for name, count in zip(table.columns, table.blocks, strict=True)]
        _write_column_names(axes, names_with_counts)
        axes.set_xlim(-0.6, columns - 0.4)
        title = _metric_title(table.metric, table.protocol)
        notes = [f"{title}: top cliques", f"({table.test} with Holm, {table.alpha:g})"]
        if table.dropped_groups:
            names = ", ".join([group.name for group in table.dropped_groups])
            notes.append(f"Too few blocks to compare: {names}.")
        _write_note(axes, *notes)
        return _save(figure, target)


def heat(pivot: Pivot, path: str | Path, *, digits: int = 2) -> Path:
    """Draw a pivot table as a heat map: dark is good, each column on its own scale, bold is best.

    A dagger marks values that tie with the best. The figure is on white, whatever the theme of the page that shows it.

    Parameters
    ----------
    pivot : Pivot
        What :meth:`twofold.bench.results.Results.pivot` returns.
    path : str or Path
        File to write; its suffix (``.png``, ``.svg`` or ``.pdf``) decides the format.
    digits : int, default=2
        Digits after the decimal point of the printed values.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If the suffix is none of the three, or the folder does not exist.
    MissingExtra
        If matplotlib is not installed.
    RunError
        If the file cannot be written.
    """
    target, style = _check_path(path), _style()
    with style:
        rows, columns = pivot.values.shape
        figure, axes = _make_axes(0.72 * columns, ROW_HEIGHT * rows)
        colours = import_module("matplotlib.colors").LinearSegmentedColormap.from_list(
            "twofold", ["#F7FBFF", "#08519C"]
        )
        axes.set_facecolor("#EEEEEE")  # colour of cells without a value
        quality = np.ma.masked_invalid(_quality(pivot))
        image = axes.imshow(quality, cmap=colours, vmin=0, vmax=1.6, aspect="auto", interpolation="nearest")
        bar = figure.colorbar(image, ax=axes, ticks=[0, 1], fraction=0.04, pad=0.02)
        bar.ax.set_yticklabels(["worst of the column", "best"], fontsize=7)
        bar.ax.set_ylim(0, 1)  # the darker colours are not used, so that numbers can be read
        _write_values(axes, pivot, digits)
        _write_row_names(axes, pivot.index, ["black"] * rows)
        _write_column_names(axes, pivot.columns)
        unit = scale(pivot.metric)[1]
        title = pivot.metric
        if unit:
            title = f"{pivot.metric} ({unit})"
        _write_note(axes, f"{title}, {pivot.better} is better{coverage_of(pivot.metric, pivot.protocol)}")
        return _save(figure, target)


def _write_values(axes: Axes, pivot: Pivot, digits: int) -> None:
    """Write the value of each cell: bold where it is best, with a dagger where it ties with the best."""
    factor = scale(pivot.metric)[0]
    best, tied = pivot.best, pivot.tied
    for (i, j), value in np.ndenumerate(pivot.values):
        text = "–"
        if not math.isnan(value):
            text = f"{factor * float(value):.{digits}f}"
            if tied[i, j]:
                text += "†"
        weight = "bold" if best[i, j] else "normal"
        axes.text(j, i, text, ha="center", va="center", fontsize=7.5, fontweight=weight)


def risk_coverage(curves: Mapping[str, tuple[ArrayLike, ArrayLike]], path: str | Path) -> Path:
    """Draw selective risk over coverage, a line for each name.

    Parameters
    ----------
    curves : mapping of str to (array-like, array-like)
        Coverage and risk of each named curve, as :func:`twofold.metrics.risk_coverage_curve` computes them.
    path : str or Path
        File to write; its suffix (``.png``, ``.svg`` or ``.pdf``) decides the format.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If there is no curve, coverage and risk differ in length, the suffix is none of the three, or the folder does
        not exist.
    MissingExtra
        If matplotlib is not installed.
    RunError
        If the file cannot be written.

    Examples
    --------
    >>> risk_coverage({"msp": ([0.5, 1.0], [0.0, 0.2])}, "curve.gif")
    Traceback (most recent call last):
    twofold.errors.InvalidInput: a figure's file must end in .png, .svg, .pdf; curve.gif has the suffix '.gif'
    """
    target, style = _check_path(path), _style()
    checked = {str(name): _check_curve(name, *pair) for name, pair in curves.items()}
    if not checked:
        raise InvalidInput("curves must hold at least one curve: a name with its coverage and risk")
    with style:
        figure, axes = _make_axes(3.6, 2.7)
        for i, (name, (coverage, risk)) in enumerate(checked.items()):
            dash = DASHES[i // len(COLOURS) % len(DASHES)]
            axes.plot(coverage, risk, color=COLOURS[i % len(COLOURS)], linestyle=dash, linewidth=1.2, label=name)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("coverage")
        axes.set_ylabel("selective risk")
        legend = axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.02, 1.02),
            frameon=False,
            fontsize=8,
            handlelength=3.2,
            borderaxespad=0,
            labelspacing=0.3,
            ncols=math.ceil(len(checked) / 15),
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        return _save(figure, target)


# --- shared parts ---------------------------------------------------------------------------------------------------


def _check_path(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        suffix = repr(target.suffix) if target.suffix else "none"
        raise InvalidInput(f"a figure's file must end in {', '.join(SUFFIXES)}; {target.name} has the suffix {suffix}")
    if not target.parent.is_dir():
        raise InvalidInput(f"{target} cannot be written: there is no folder {target.parent}")
    return target


def _style() -> AbstractContextManager[None]:
    """Combine matplotlib's own defaults with ours, whatever the user has set."""
    try:
        style = import_module("matplotlib.style")
    except ImportError as error:
        raise MissingExtra('figures need matplotlib: pip install "twofold[report]"') from error
    context: AbstractContextManager[None] = style.context(["default", STYLE])
    return context


def _make_axes(width: float, height: float) -> tuple[MatplotlibFigure, Axes]:
    """Make a figure whose axes have exactly this size in inches; labels go around them and are never cut."""
    figure = import_module("matplotlib.figure").Figure(figsize=(width, height))
    return figure, figure.add_axes((0, 0, 1, 1))


def _write_row_names(axes: Axes, names: Sequence[str], colours: Sequence[str]) -> None:
    """Write a name for each line at the left, the first on top."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="y", length=0)
    for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
        label.set_color(colour)


def _write_column_names(axes: Axes, names: Sequence[str]) -> None:
    """Write a name for each column above, slanted so that no two of them touch."""
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(names)), names, rotation=50, ha="left", va="bottom", rotation_mode="anchor")
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="x", length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _metric_title(metric: str, protocol: str | None) -> str:
    """Name a metric and the protocol it was measured under."""
    return metric if protocol is None else f"{metric}, {protocol}"


def _write_note(axes: Axes, *lines: str) -> None:
    """Write what is shown below the axes."""
    axes.annotate(
        "\n".join(lines),
        (0, 0),
        (0, -8),
        xycoords="axes fraction",
        textcoords="offset points",
        va="top",
        fontsize=7.5,
        color=GREY,
        parse_math=False,
    )


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


def _check_curve(name: str, coverage: ArrayLike, risk: ArrayLike) -> tuple[Array, Array]:
    """Check that a curve has a risk for each coverage."""
    x = np.asarray(_checks.floats(coverage, f"coverage of {name}"), dtype=np.float64)
    y = np.asarray(_checks.floats(risk, f"risk of {name}"), dtype=np.float64)
    if len(x) != len(y):
        raise InvalidInput(f"coverage and risk of {name} must have the same length, got {len(x)} and {len(y)}")
    return x, y


def _save(figure: MatplotlibFigure, path: Path) -> Path:
    """Write the figure without dates and versions, so that the same values give the same bytes."""
    kind = path.suffix.lower()[1:]
    metadata = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
    try:
        with replacing(path) as file:
            figure.savefig(file, format=kind, dpi=200, bbox_inches="tight", pad_inches=0.08, metadata=metadata)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
    return path
