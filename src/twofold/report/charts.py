"""Whole charts as SVG: heat maps, bars, intervals, box plots, mean ranks and maps of top cliques."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from twofold.report.svg import (
    WIDTH,
    break_text,
    clip_text,
    count_fitting_letters,
    fixed_svg_element,
    format_tick,
    label,
    svg_element,
    text_width,
    ticks,
    widen,
)
from twofold.typing import Array, Mask

SCALE_WIDTH = 160.0  # width of the colour scale below a heat map
ROWS_TOP = 10.0  # space above the rows of a chart
LABEL_GAP = 6.0  # between the name of a row and the axis
WIDEST_LABEL = 190.0  # of a row; longer names are shortened, so that the bars keep more than half of the drawing
# a bar longer than this many times the upper quartile of lengths does not set the scale
LONGEST_SHARE = 5.0
HEADROOM = 1.25  # how far the axis reaches beyond the longest bar that sets the scale, where a longer one is cut
ARROW_WIDTH = 9.0  # of the arrow at the end of a bar that is cut


def heat_map(values: Array, rows: Sequence[str], columns: Sequence[str], about: str, groups: Sequence[str] = ()) -> str:
    """Draw a matrix of shares as squares, darker for larger values, with the colour scale below.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Shares, zero or larger; colours range from 0 to the largest.
    rows, columns : sequence of str
        Names of the rows and columns.
    about : str
        Sentence that says what the drawing shows, for screen readers.
    groups : sequence of str, default=()
        Name of the block each row belongs to; a line and the name separate the blocks.

    Returns
    -------
    str
        The SVG element.
    """
    cell_width = max(14.0, min(34.0, 620.0 / len(columns)))
    cell_height = 18.0
    if len(rows) > 60:
        cell_height = 13.0
    group_width = 0.0
    if any(groups):
        group_width = 12 + _text_width(groups, 22)
    left = 16 + _text_width(rows, 24) + group_width
    top = 16 + 0.72 * _text_width(columns, 18)
    bottom = top + cell_height * len(rows)
    width = max(left + cell_width * len(columns) + 46, left + SCALE_WIDTH + 60)
    largest = float(values.max()) or 1.0
    parts = []
    for j, name in enumerate(columns):
        parts.append(_slanted_label(left + cell_width * (j + 0.65), top - 5, name, 18))
    for i, name in enumerate(rows):
        y = top + cell_height * i
        baseline = y + cell_height * 0.72
        parts.append(label(left - 5, baseline, name, "t e", 24))
        if any(groups) and (i == 0 or groups[i] != groups[i - 1]):
            parts.append(label(4, baseline, groups[i], "t q", 22))
            parts.append(f'<path class="a" d="M4 {y:.1f}H{width - 46:.1f}"/>')
        for j, column in enumerate(columns):
            share = float(values[i, j])
            tip = f"<title>{escape(name)} → {escape(column)}: {share:.3f}</title>"
            size = f'width="{cell_width - 1:.1f}" height="{cell_height - 1:.1f}"'
            place = f'x="{left + cell_width * j:.1f}" y="{y:.1f}"'
            parts.append(f'<rect class="h" {place} {size} style="fill-opacity:{share / largest:.3f}">{tip}</rect>')
    parts.append(_colour_scale(left, bottom + 14, largest))
    return fixed_svg_element(width, bottom + 38, about, "".join(parts))


def _text_width(texts: Sequence[str], most: int) -> float:
    """Estimate the width of the widest text, of which at most some letters are shown."""
    widest = 0.0
    for text in texts:
        widest = max(widest, text_width(clip_text(text, most)))
    return widest


def _slanted_label(x: float, y: float, text: str, most: int) -> str:
    """Write the name of a column, slanted so that no two of them touch."""
    return label(x, y, text, "t", most, f' transform="rotate(-46 {x:.1f} {y:.1f})"')


def _colour_scale(left: float, top: float, largest: float) -> str:
    """Draw the colours of a heat map from 0 to its largest value, with the numbers at both ends."""
    steps = 20
    step = SCALE_WIDTH / steps
    parts = [label(left - 5, top + 10, "0", "t e")]
    for i in range(steps):
        place = f'x="{left + step * i:.1f}" y="{top:.1f}"'
        size = f'width="{step:.1f}" height="12" shape-rendering="crispEdges"'
        parts.append(f'<rect class="h scale" {place} {size} style="fill-opacity:{i / (steps - 1):.3f}"/>')
    parts.append(label(left + SCALE_WIDTH + 5, top + 10, f"{largest:.3f}", "t"))
    return "".join(parts)


@dataclass(frozen=True)
class _RowAxis:
    """Hold the horizontal axis of a chart that has a row for each name."""

    left: float
    right: float
    low: float
    high: float
    bottom: float  # position of the axis, below the rows

    @classmethod
    def beside(cls, names: Sequence[str], right: float, ends: tuple[float, float], row: float) -> _RowAxis:
        """Leave room for the names of the rows on the left; drawings of short names have their axes in line."""
        widest = min(_text_width(names, max(map(len, names))), WIDEST_LABEL)
        left = max(150.0, math.ceil(widest) + 2 * LABEL_GAP)
        return cls(left, right, *ends, bottom=ROWS_TOP + row * len(names) + 4)

    def row_label(self, baseline: float, name: str) -> str:
        """Write the name of a row, shortened if it does not fit beside the axis."""
        most = count_fitting_letters(name, self.left - 2 * LABEL_GAP)
        return label(self.left - LABEL_GAP, baseline, name, "t e", most)

    def row_label_in_two_lines(self, middle: float, name: str) -> str:
        """Write the name of a high row around its middle, on two lines if it does not fit on one."""
        pieces = break_text(name, self.left - 2 * LABEL_GAP)
        if len(pieces) != 2:
            return self.row_label(middle + 4, name)
        upper, lower = pieces
        return self.row_label(middle - 3, upper) + self.row_label(middle + 11, lower)

    def pixel(self, value: float) -> float:
        """Convert a value to its position; values beyond an end of the axis are drawn at that end."""
        inside = min(max(value, self.low), self.high)
        return self.left + (inside - self.low) / (self.high - self.low) * (self.right - self.left)

    def draw(self, body: Sequence[str], x_label: str, about: str, note: str = "") -> str:
        """Draw the chart: vertical lines, the rows, and the numbers, the label and a note below."""
        lines, numbers = [], []
        for mark in ticks(self.low, self.high, 5):
            x = self.pixel(mark)
            lines.append(f"M{x:.1f} {ROWS_TOP}V{self.bottom}")
            numbers.append(label(x, self.bottom + 15, format_tick(mark), "t m"))
        parts = [f'<g class="g"><path d="{"".join(lines)}"/></g>', *body, *numbers]
        middle = (self.left + self.right) / 2
        height = self.bottom + 42
        parts.append(label(middle, self.bottom + 36, x_label, "t m"))
        if note:
            parts.append(label(middle, self.bottom + 54, note, "q m"))
            height += 18
        return svg_element(WIDTH, math.ceil(height), about, "".join(parts))


def bar_rows(values: Mapping[str, float], x_label: str, about: str, unit: str = "%") -> str:
    """Draw a horizontal bar for each name, from zero to the left or right.

    One very long bar would squash all the others. Where a bar is more than five times as long as the upper quartile,
    the axis ends soon after the longest of the others, and the bar ends in an arrow; its number is written in full.

    Parameters
    ----------
    values : mapping of str to float
        Name and length of each bar, from top to bottom. A value that is not finite leaves its row empty.
    x_label : str
        Label of the horizontal axis.
    about : str
        Sentence that says what the drawing shows, for screen readers.
    unit : str, default="%"
        Unit behind the number of each bar.

    Returns
    -------
    str
        The SVG element.
    """
    row = 22.0
    finite = [value for value in values.values() if math.isfinite(value)]
    reach = _bar_reach(finite)
    low = max(min([0.0, *finite]), -reach)
    high = min(max([0.0, *finite]), reach)
    numbers = {name: f"{value:+,.1f}{unit}" for name, value in values.items()}
    widest_number = max([text_width(number) for number in numbers.values()], default=0.0)
    right = WIDTH - max(66.0, math.ceil(widest_number) + 4.0)
    axis = _RowAxis.beside(list(values), right, widen((low, high)), row)
    zero = axis.pixel(0)
    parts = [f'<path class="a" d="M{zero:.1f} {ROWS_TOP}V{axis.bottom}"/>']
    note = ""
    for i, (name, value) in enumerate(values.items()):
        y = ROWS_TOP + row * i
        parts.append(axis.row_label(y + 15, name))
        if not math.isfinite(value):
            continue
        if abs(value) > reach:
            parts.append(_cut_bar(zero, axis.pixel(value), y + 4, row - 8, f"{name}: {numbers[name]}"))
            note = "Bars with an arrow are longer than the axis."
        else:
            parts.append(_whole_bar(zero, axis.pixel(value), y + 4, row - 8))
        parts.append(label(axis.right + 4, y + 15, numbers[name], "t"))
    return axis.draw(parts, x_label, about, note)


def _bar_reach(lengths: Sequence[float]) -> float:
    """Choose the length at which bars are cut: infinite, unless some are far longer than most of the others."""
    sizes = sorted(abs(length) for length in lengths)
    if not sizes:
        return math.inf
    upper_quartile = sizes[int(0.75 * (len(sizes) - 1))]
    limit = LONGEST_SHARE * upper_quartile
    if limit == 0 or sizes[-1] <= limit:
        return math.inf
    longest_kept = max(size for size in sizes if size <= limit)
    return HEADROOM * longest_kept


def _whole_bar(zero: float, end: float, top: float, height: float) -> str:
    """Draw a bar from zero to where its value is."""
    left = min(zero, end)
    width = max(abs(end - zero), 0.5)
    style = "k0" if end >= zero else "k1"
    return f'<rect class="b {style}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}"/>'


def _cut_bar(zero: float, end: float, top: float, height: float, tooltip: str) -> str:
    """Draw a bar that is longer than the axis: it ends in an arrow that is wider than the bar."""
    style = "k0" if end >= zero else "k1"
    neck = end - math.copysign(ARROW_WIDTH, end - zero)
    bottom = top + height
    middle = top + height / 2
    outline = f"M{zero:.1f} {top}H{neck:.1f}v-4L{end:.1f} {middle}L{neck:.1f} {bottom + 4}v-4H{zero:.1f}Z"
    return f'<path class="b cut {style}" d="{outline}"><title>{escape(tooltip)}</title></path>'


def interval_rows(names: Sequence[str], values: Array, lows: Array, highs: Array, x_label: str, about: str) -> str:
    """Draw a dot with its interval for each name.

    Parameters
    ----------
    names : sequence of str
        Names of the rows, from top to bottom.
    values : ndarray of shape (n_names,)
        Positions of the dots.
    lows, highs : ndarray of shape (n_names,)
        Limits of the intervals; where the lower limit is NaN, only the dot is drawn.
    x_label : str
        Label of the horizontal axis.
    about : str
        Sentence that says what the drawing shows, for screen readers.

    Returns
    -------
    str
        The SVG element.
    """
    row = 20.0
    ends = np.concatenate([values, lows, highs])
    limits = widen((float(np.nanmin(ends)), float(np.nanmax(ends))))
    axis = _RowAxis.beside(names, WIDTH - 14.0, limits, row)
    parts = []
    for i, name in enumerate(names):
        y = ROWS_TOP + row * i + row / 2
        parts.append(axis.row_label(y + 4, name))
        if not math.isnan(lows[i]):
            start, end = axis.pixel(float(lows[i])), axis.pixel(float(highs[i]))
            parts.append(f'<path class="w" d="M{start:.1f} {y}H{end:.1f}"/>')
        parts.append(f'<path class="dd k0" d="M{axis.pixel(float(values[i])):.1f} {y}h0"/>')
    return axis.draw(parts, x_label, about)


def box_rows(groups: Sequence[tuple[str, Array]], x_label: str, about: str) -> str:
    """Draw a box plot for each group: quartiles, median, whiskers to the extremes, and the values as dots.

    Parameters
    ----------
    groups : sequence of (str, ndarray)
        Name and values of each group; no group may be empty. At most the first 200 values of a group are drawn as dots.
    x_label : str
        Label of the horizontal axis.
    about : str
        Sentence that says what the drawing shows, for screen readers.

    Returns
    -------
    str
        The SVG element.
    """
    row = 30.0
    pooled = np.concatenate([values for _, values in groups])
    names = [f"{name} ({len(values)})" for name, values in groups]
    axis = _RowAxis.beside(names, WIDTH - 14.0, widen((float(pooled.min()), float(pooled.max()))), row)
    parts = []
    for i, (_, values) in enumerate(groups):
        y = ROWS_TOP + row * i + row / 2
        quantiles = np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()
        least, lower, median, upper, most = map(axis.pixel, quantiles)
        parts.append(axis.row_label_in_two_lines(y, names[i]))
        parts.append(f'<path class="w" d="M{least:.1f} {y}H{most:.1f}"/>')
        size = f'width="{max(upper - lower, 1):.1f}" height="16"'
        parts.append(f'<rect class="x k0" x="{lower:.1f}" y="{y - 8}" {size}/>')
        parts.append(f'<path class="w" d="M{median:.1f} {y - 8}v16"/>')
        dots = "".join(f"M{axis.pixel(float(value)):.1f} {y}h0" for value in values[:200])
        parts.append(f'<path class="d k1" d="{dots}"/>')
    return axis.draw(parts, x_label, about)


def rank_rows(
    names: Sequence[str], ranks: Array, cliques: Sequence[Sequence[str]], top_names: Sequence[str], about: str
) -> str:
    """Draw the mean rank of each method, with bars that join statistically tied methods.

    Parameters
    ----------
    names : sequence of str
        Methods, best first.
    ranks : ndarray of shape (n_methods,)
        Mean rank of each method, 1 for the best.
    cliques : sequence of sequence of str
        Groups of methods that do not differ significantly; a group of one has no bar.
    top_names : sequence of str
        The clique of the best method, which is coloured.
    about : str
        Sentence that says what the drawing shows, for screen readers.

    Returns
    -------
    str
        The SVG element.
    """
    joined = [group for group in cliques if len(group) > 1]
    row, top = 20.0, 34.0
    left = 24 + _text_width(names, 27)
    right = left + 270.0
    height = top + row * len(names) + 14

    def pixel(rank: float) -> float:
        return left + (rank - 1) / max(len(names) - 1, 1) * (right - left)

    y_of = {name: top + row * i + row / 2 for i, name in enumerate(names)}
    lines, numbers = [], []
    for mark in ticks(1, len(names), 7):  # [1] for one method
        lines.append(f"M{pixel(mark):.1f} {top}V{height - 12:.1f}")
        numbers.append(label(pixel(mark), top - 6, format_tick(mark), "t m"))
    title = label((left + right) / 2, 12, "mean rank (1 is best)", "t m")
    parts = [f'<g class="g"><path d="{"".join(lines)}"/></g>', title, *numbers]
    for name, rank in zip(names, ranks, strict=True):
        x, y = pixel(float(rank)), y_of[name]
        style = "k0" if name in top_names else "k6"
        parts.append(label(left - 10, y + 4, name, "t e", 27))
        parts.append(f'<path class="w" d="M{pixel(1):.1f} {y}H{x:.1f}"/>')
        parts.append(f'<path class="dd {style}" d="M{x:.1f} {y}h0"/>')
    for column, group in enumerate(joined):
        x = right + 22 + 12 * column
        ys = sorted(y_of[name] for name in group)
        line_style, dot_style = "w", "d k6"
        if list(group) == list(top_names):
            line_style, dot_style = "l k0", "d k0"
        dots = "".join(f"M{x:.1f} {y}h0" for y in ys)
        parts.append(f'<path class="{line_style}" d="M{x:.1f} {ys[0]}V{ys[-1]}"/>')
        parts.append(f'<path class="{dot_style}" d="{dots}"/>')
    return fixed_svg_element(right + 24 + 12 * len(joined), height, about, "".join(parts))


def member_map(rows: Sequence[str], columns: Sequence[str], member: Mask, judged: Mask, about: str) -> str:
    """Draw a dot where a method is in the top clique of a group, and a ring where it was compared and is not.

    Parameters
    ----------
    rows : sequence of str
        Methods.
    columns : sequence of str
        Groups of blocks.
    member : ndarray of bool, shape (n_methods, n_groups)
        Whether the method is in the group's top clique.
    judged : ndarray of bool, shape (n_methods, n_groups)
        Whether the method was compared in the group.
    about : str
        Sentence that says what the drawing shows, for screen readers.

    Returns
    -------
    str
        The SVG element.
    """
    row, column = 20.0, 30.0
    left = 24 + _text_width(rows, 27)
    top = 18 + 0.75 * _text_width(columns, 26)
    parts = []
    for j, name in enumerate(columns):
        x = left + column * (j + 0.5)
        parts.append(_slanted_label(x, top - 6, name, 26))
        members = np.flatnonzero(member[:, j]).tolist()
        if len(members) > 1:
            first, last = top + row * (members[0] + 0.5), top + row * (members[-1] + 0.5)
            parts.append(f'<path class="l k0" d="M{x:.1f} {first:.1f}V{last:.1f}"/>')
    for i, name in enumerate(rows):
        y = top + row * (i + 0.5)
        parts.append(label(left - 10, y + 4, name, "t e", 27))
        for j in range(len(columns)):
            x = left + column * (j + 0.5)
            if member[i, j]:
                parts.append(f'<path class="dd k0" d="M{x:.1f} {y:.1f}h0"/>')
            elif judged[i, j]:
                parts.append(f'<circle class="o" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
    width, height = left + column * len(columns) + 110, top + row * len(rows) + 8
    return fixed_svg_element(width, height, about, "".join(parts))
