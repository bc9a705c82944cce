"""Figures: ranks with cliques, maps of top cliques, heat maps, risk-coverage curves. PNG, SVG or PDF, by suffix.

The same values give the same bytes: no dates, fixed identifiers, no style of the user's own. Colours are those of Okabe
and Ito, which people with any colour vision can distinguish; dashes distinguish lines where colours run out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from twofold import _checks
from twofold._checks import Array, ArrayLike
from twofold._files import replacing
from twofold.bench.clique_maps import CliqueMap
from twofold.bench.compare import Comparison
from twofold.bench.tables import Pivot
from twofold.bench.text import coverage_of, scale
from twofold.errors import InvalidInput, MissingExtra, RunError

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2, 1, 1, 1, 2)), (0, (2, 3)))
BLUE, GREY, PALE = COLOURS[0], "#5C5C5C", "#E8E8E8"
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
LINE = 0.21  # inches of a line of text


def critical_difference(comparison: Comparison, path: str | Path) -> Path:
    """Draw mean ranks, best first, with bars that join statistically tied methods.

    This is the usual critical-difference diagram, turned so that each method has a line of its own: the dot is its mean
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
    target, style = _target(path), _style()
    with style:
        k = len(comparison.methods)
        cliques = [group for group in comparison.cliques if len(group) > 1]
        width = 3.2
        side = max(0.15 * len(cliques), 0.3)
        figure, axes = _canvas(width, LINE * k)
        place = {name: i for i, name in enumerate(comparison.methods)}
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
        _lines(axes, comparison.methods, colours)
        bars = figure.add_axes((1.0 + 0.1 / width, 0, side / width, 1), sharey=axes)
        bars.axis("off")
        for column, group in enumerate(cliques):
            rows = sorted(place[name] for name in group)
            colour = BLUE if group == comparison.top else GREY
            bars.plot([column, column], [rows[0], rows[-1]], color=colour, linewidth=1.2, zorder=2)
            bars.scatter([column] * len(rows), rows, s=9, color=colour, zorder=3)
        bars.set_xlim(-0.7, max(len(cliques), 2) - 0.3)
        axes.set_ylim(k - 0.4, -0.6)
        under = "" if comparison.protocol is None else f", {comparison.protocol}"
        rule = (
            f"{comparison.test} with Holm, {comparison.alpha:g}"
            if comparison.omnibus
            else "Friedman's test rejects nothing"
        )
        models = f"{comparison.models} model{'' if comparison.models == 1 else 's'}"
        _note(
            axes,
            f"{comparison.metric}{under}: {len(comparison.blocks)} blocks of {models}.",
            f"Bars join statistically tied methods ({rule}).",
        )
        return _saved(figure, target)


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
    target, style = _target(path), _style()
    with style:
        rows, columns = table.member.shape
        figure, axes = _canvas(max(0.32 * columns, 0.8), LINE * rows)
        told = np.array(table.omnibus)
        led = table.member[:, told].sum(axis=1)
        for i in np.flatnonzero((2 * led >= told.sum()) & (told.sum() > 1)):
            axes.axhspan(i - 0.5, i + 0.5, color="#E3EEF6", linewidth=0, zorder=0)
        for j in range(columns):
            inside, colour = np.flatnonzero(table.member[:, j]), BLUE if told[j] else "#A8A8A8"
            axes.plot([j] * len(inside), inside, color=colour, linewidth=1.4, marker="o", markersize=4.5, zorder=2)
        rings = np.argwhere(table.judged & ~table.member)
        axes.scatter(rings[:, 1], rings[:, 0], s=9, facecolor="white", edgecolor="#A8A8A8", linewidth=0.7, zorder=3)
        _lines(axes, table.rows, ["black"] * rows)
        _heads(axes, [f"{name} ({count})" for name, count in zip(table.columns, table.blocks, strict=True)])
        axes.set_xlim(-0.6, columns - 0.4)
        under = "" if table.protocol is None else f", {table.protocol}"
        notes = [f"{table.metric}{under}: top cliques", f"({table.test} with Holm, {table.alpha:g})"]
        if table.dropped_groups:
            names = ", ".join(one.name for one in table.dropped_groups)
            notes.append(f"Too few blocks to compare: {names}.")
        _note(axes, *notes)
        return _saved(figure, target)


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
    target, style = _target(path), _style()
    with style:
        factor, unit = scale(pivot.metric)
        rows, columns = pivot.values.shape
        figure, axes = _canvas(0.72 * columns, LINE * rows)
        good = _quality(pivot)
        colours = import_module("matplotlib.colors").LinearSegmentedColormap.from_list(
            "twofold", ["#F7FBFF", "#08519C"]
        )
        axes.set_facecolor("#EEEEEE")  # colour of cells without a value
        shown = np.ma.masked_invalid(good)
        drawn = axes.imshow(shown, cmap=colours, vmin=0, vmax=1.6, aspect="auto", interpolation="nearest")
        bar = figure.colorbar(drawn, ax=axes, ticks=[0, 1], fraction=0.04, pad=0.02)
        bar.ax.set_yticklabels(["worst of the column", "best"], fontsize=7)
        bar.ax.set_ylim(0, 1)  # the darker colours are not used, so that numbers can be read
        best, tied = pivot.best, pivot.tied
        for i in range(rows):
            for j in range(columns):
                value = float(pivot.values[i, j])
                text = "–" if math.isnan(value) else f"{factor * value:.{digits}f}" + ("†" if tied[i, j] else "")
                axes.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    fontweight="bold" if best[i, j] else "normal",
                )
        _lines(axes, pivot.index, ["black"] * rows)
        _heads(axes, pivot.columns)
        told = f"{pivot.metric} ({unit})" if unit else pivot.metric
        _note(axes, f"{told}, {pivot.better} is better{coverage_of(pivot.metric, pivot.protocol)}")
        return _saved(figure, target)


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
    target, style = _target(path), _style()
    drawn = {str(name): _curve(name, pair) for name, pair in curves.items()}
    if not drawn:
        raise InvalidInput("curves must hold at least one curve: a name with its coverage and risk")
    with style:
        figure, axes = _canvas(3.6, 2.7)
        for i, (name, (coverage, risk)) in enumerate(drawn.items()):
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
            ncols=math.ceil(len(drawn) / 15),
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        return _saved(figure, target)


# --- shared parts ---------------------------------------------------------------------------------------------------


def _target(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        got = repr(target.suffix) if target.suffix else "none"
        raise InvalidInput(f"a figure's file must end in {', '.join(SUFFIXES)}; {target.name} has the suffix {got}")
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


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    """Make a figure whose axes have exactly this size in inches; labels go around them and are never cut."""
    figure = import_module("matplotlib.figure").Figure(figsize=(width, height))
    return figure, figure.add_axes((0, 0, 1, 1))


def _lines(axes: Any, names: Sequence[str], colours: Sequence[str]) -> None:
    """Write a name for each line at the left, the first on top."""
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="y", length=0)
    for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
        label.set_color(colour)


def _heads(axes: Any, names: Sequence[str]) -> None:
    """Write a name for each column above, slanted so that no two of them touch."""
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(names)), names, rotation=50, ha="left", va="bottom", rotation_mode="anchor")
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="x", length=0, pad=2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _note(axes: Any, *lines: str) -> None:
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
    values = pivot.values if pivot.better == "higher" else -pivot.values
    values = np.where(np.isfinite(values), values, np.nan)
    known = ~np.isnan(values)
    low = np.where(known, values, np.inf).min(axis=0)
    high = np.where(known, values, -np.inf).max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    return np.where(known, np.where(high > low, (values - np.where(known, low, 0.0)) / spread, 0.5), np.nan)


def _curve(name: str, pair: tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    coverage = np.asarray(_checks.floats(pair[0], f"coverage of {name}"), dtype=np.float64)
    risk = np.asarray(_checks.floats(pair[1], f"risk of {name}"), dtype=np.float64)
    if len(coverage) != len(risk):
        raise InvalidInput(f"coverage and risk of {name} must have one length, got {len(coverage)} and {len(risk)}")
    return coverage, risk


def _saved(figure: Any, path: Path) -> Path:
    kind = path.suffix.lower()[1:]
    told = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
    try:
        with replacing(path) as file:
            figure.savefig(file, format=kind, dpi=200, bbox_inches="tight", pad_inches=0.08, metadata=told)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
    return path
