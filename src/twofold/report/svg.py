"""SVG drawings: sharp at every size, a few kilobytes each, coloured by the page's style sheet.

Colours and dashes are classes (``k0`` to ``k6``), so that light, dark and print differ in the style sheet alone.
Text is always escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple, TypeAlias

import numpy as np

from twofold.typing import Array

WIDTH, HEIGHT = 480, 286
LEGEND_LINE = 17  # height of a line of the legend
LEGEND_MARK = 27  # width of the mark before a name, with its gap
# widths of letters in pixels, those of DejaVu Sans at 12 px: the widest of the fonts that the style sheet names
NARROW_LETTERS = frozenset("fijlrtI()[]{}|.,:;'`! /\\-")
NARROW, MIDDLE, CAPITAL, WIDE = 5.0, 7.7, 9.5, 12.0
STEPS = (1, 2, 2.5, 5, 10, 20)  # times a power of ten, between the marks of an axis

Values: TypeAlias = Sequence[float] | Array


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Choose round numbers inside [low, high] for the marks of an axis.

    Steps are 1, 2, 2.5 or 5 times a power of ten.

    Parameters
    ----------
    low, high : float
        Ends of the axis.
    most : int, default=6
        Upper limit on the number of steps between marks.

    Returns
    -------
    list of float
        The marks, ascending; ``[low]`` if the span is not positive and finite.

    Examples
    --------
    >>> ticks(0.0, 1.0), ticks(-3.2, 17.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0, 15.0])
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    for multiple in STEPS:
        step = multiple * power
        if span / step <= most:
            break
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]  # + 0.0 turns -0.0 into 0.0


def format_tick(value: float) -> str:
    """Format a tick with at most four significant digits.

    Parameters
    ----------
    value : float
        The position of the tick.

    Returns
    -------
    str
        The text beside the tick.

    Examples
    --------
    >>> format_tick(0.2), format_tick(1e6), format_tick(0.0)
    ('0.2', '1e+06', '0')
    """
    return f"{value:.4g}"


def clip_text(text: str, most: int) -> str:
    """Shorten a text to at most ``most`` letters, the last of them an ellipsis.

    Parameters
    ----------
    text : str
        The text to shorten.
    most : int
        Number of letters to keep, the ellipsis included.

    Returns
    -------
    str
        The text itself if it is short enough.

    Examples
    --------
    >>> clip_text("confidence", 5), clip_text("msp", 5)
    ('conf…', 'msp')
    """
    if len(text) <= most:
        return text
    return text[: most - 1] + "…"


def text_width(text: str) -> float:
    """Estimate the width of a label from above, so that a margin of this width holds it.

    Parameters
    ----------
    text : str
        The text of the label.

    Returns
    -------
    float
        The width in the units of a drawing.

    Examples
    --------
    >>> text_width("ill"), text_width("msp")
    (15.0, 27.4)
    """
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    if letter in NARROW_LETTERS:
        return NARROW
    if letter in "mwMW" or not letter.isascii():
        return WIDE
    if letter.islower() or letter.isdigit() or letter == "_":
        return MIDDLE
    if letter.isupper():
        return CAPITAL
    return WIDE


def count_fitting_letters(text: str, width: float) -> int:
    """Count the letters of a text that a width holds, the ellipsis of a shortened text included.

    Parameters
    ----------
    text : str
        The text of the label.
    width : float
        Available width in the units of a drawing.

    Returns
    -------
    int
        Number of letters for :func:`label`, at least 1.

    Examples
    --------
    >>> count_fitting_letters("msp", 30.0), count_fitting_letters("confidence", 30.0)
    (3, 3)
    """
    most = len(text)
    while most > 1 and text_width(clip_text(text, most)) > width:
        most -= 1
    return max(most, 1)


def label(x: float, y: float, text: str, style: str = "t", most: int = 60, extra: str = "") -> str:
    """Format an SVG text element; a shortened text shows in full as a tooltip.

    Parameters
    ----------
    x, y : float
        Position of the text in the drawing.
    text : str
        What to write; it is escaped here.
    style : str, default="t"
        Classes of the style sheet, such as ``"t m"`` for centred text and ``"t e"`` for text that ends at ``x``.
    most : int, default=60
        Number of letters after which the text is cut.
    extra : str, default=""
        Further attributes of the element, as markup with a leading space.

    Returns
    -------
    str
        The element.

    Examples
    --------
    >>> label(0, 12, "a < b")
    '<text class="t" x="0.0" y="12.0">a &lt; b</text>'
    """
    tooltip = ""
    if len(text) > most:
        tooltip = f"<title>{escape(text)}</title>"
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{extra}>{tooltip}{escape(clip_text(text, most))}</text>'


class LegendEntry(NamedTuple):
    """Hold a series of the legend.

    Parameters
    ----------
    style : str
        Classes of the style sheet; the first distinguishes lines, points and bars.
    name : str
        Name of the series.
    """

    style: str
    name: str


@dataclass
class Plot:
    """Draw lines, areas, points and bars on a pair of axes with a legend above.

    Add series with :meth:`line`, :meth:`area`, :meth:`dots` and :meth:`bars`, then call :meth:`svg`.

    Parameters
    ----------
    x, y : tuple of float
        Limits of the axes; an empty range is widened by 0.5 on both sides.
    x_label, y_label : str
        Labels of the axes.
    about : str
        Sentence that says what the drawing shows, for screen readers.
    width, height : int, default=480, 286
        Size of the drawing in pixels, without the legend above, which takes the lines that its names need.
    left : int, default=58
        Width of the margin that holds the numbers of the vertical axis.
    body : list of str
        Elements added so far.
    legend : list of LegendEntry
        Series in the legend.

    Examples
    --------
    >>> plot = Plot((0, 1), (0, 1), "coverage", "risk", "Risk over coverage.")
    >>> plot.line([0.5, 1.0], [0.0, 0.2], "k0", "msp")
    >>> plot.svg().startswith("<svg")
    True
    """

    x: tuple[float, float]
    y: tuple[float, float]
    x_label: str
    y_label: str
    about: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = 58
    body: list[str] = field(default_factory=list)
    legend: list[LegendEntry] = field(default_factory=list)

    @property
    def _top(self) -> int:
        """Upper end of the vertical axis in pixels."""
        return 16

    @property
    def _bottom(self) -> int:
        """Position of the horizontal axis in pixels."""
        return self.height - 44

    @property
    def _right(self) -> int:
        """Right end of the horizontal axis in pixels."""
        return self.width - 12

    def _x_pixels(self, values: Values) -> Array:
        low, high = widen(self.x)
        share = (np.asarray(values, dtype=np.float64) - low) / (high - low)
        return np.asarray(self.left + share * (self._right - self.left))

    def _y_pixels(self, values: Values) -> Array:
        low, high = widen(self.y)
        share = (np.asarray(values, dtype=np.float64) - low) / (high - low)
        return np.asarray(self._bottom - share * (self._bottom - self._top))

    def line(self, xs: Values, ys: Values, style: str, name: str = "") -> None:
        """Add a line through points.

        Parameters
        ----------
        xs, ys : array-like of shape (n_points,)
            Coordinates in the units of the axes.
        style : str
            Class of the style sheet that sets colour and dashes, ``"k0"`` to ``"k6"``.
        name : str, default=""
            Name in the legend; an empty name leaves the line out of it.
        """
        path = _line_path(self._x_pixels(xs), self._y_pixels(ys))
        self.body.append(f'<path class="l {style}" d="{path}"/>')
        self._add_to_legend(style, name)

    def area(self, xs: Values, ys: Values, style: str, name: str = "") -> None:
        """Add a line and tint the area between it and the horizontal axis.

        Parameters
        ----------
        xs, ys : array-like of shape (n_points,)
            Coordinates in the units of the axes.
        style : str
            Class of the style sheet that sets the colour.
        name : str, default=""
            Name in the legend; an empty name leaves the line out of it.
        """
        px, py = self._x_pixels(xs), self._y_pixels(ys)
        if len(px):
            closed = f"{_line_path(px, py)}L{px[-1]:.1f} {self._bottom}L{px[0]:.1f} {self._bottom}Z"
            self.body.append(f'<path class="f {style}" d="{closed}"/>')
        self.line(xs, ys, style, name)

    def band(self, low: float, high: float, style: str) -> None:
        """Tint the range between two heights.

        Parameters
        ----------
        low, high : float
            Ends of the range, in the units of the vertical axis.
        style : str
            Class of the style sheet that sets the colour.
        """
        bottom, top = self._y_pixels([low, high])
        self.body.append(
            f'<path class="f {style}" d="M{self.left} {bottom:.1f}H{self._right}V{top:.1f}H{self.left}Z"/>'
        )

    def dots(self, xs: Values, ys: Values, style: str, name: str = "", size: str = "d") -> None:
        """Add points; all of them share one path element, which keeps the file small.

        Parameters
        ----------
        xs, ys : array-like of shape (n_points,)
            Coordinates in the units of the axes.
        style : str
            Class of the style sheet that sets the colour.
        name : str, default=""
            Name in the legend; an empty name leaves the points out of it.
        size : {"d", "dd"}, default="d"
            Class of the style sheet for small or large points.
        """
        points = zip(self._x_pixels(xs), self._y_pixels(ys), strict=True)
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
        self.body.append(f'<path class="{size} {style}" d="{path}"/>')
        self._add_to_legend(f"{size} {style}", name)

    def bars(self, lows: Array, highs: Array, heights: Array, style: str, name: str = "") -> None:
        """Add bars that rise from the horizontal axis.

        Parameters
        ----------
        lows, highs : ndarray of shape (n_bars,)
            Left and right ends of the bars, in the units of the horizontal axis.
        heights : ndarray of shape (n_bars,)
            Upper ends of the bars, in the units of the vertical axis.
        style : str
            Class of the style sheet that sets the colour.
        name : str, default=""
            Name in the legend; an empty name leaves the bars out of it.
        """
        for left, right, y in zip(self._x_pixels(lows), self._x_pixels(highs), self._y_pixels(heights), strict=True):
            size = f'width="{max(right - left - 1, 0.5):.1f}" height="{max(self._bottom - y, 0):.1f}"'
            self.body.append(f'<rect class="b {style}" x="{left + 0.5:.1f}" y="{y:.1f}" {size}/>')
        self._add_to_legend(f"b {style}", name)

    def svg(self) -> str:
        """Draw the axes, the series and the legend.

        Returns
        -------
        str
            The SVG element.
        """
        legend = self._legend_lines()
        above = LEGEND_LINE * len(legend)
        drawing = "".join([f'<g class="g">{self._grid()}</g>', *self.body, self._axes()])
        body = f'{self._draw_legend(legend)}<g transform="translate(0 {above})">{drawing}</g>'
        return svg_element(self.width, self.height + above, self.about, body)

    def _add_to_legend(self, style: str, name: str) -> None:
        if name:
            self.legend.append(LegendEntry(style, name))

    def _grid(self) -> str:
        across = "".join(f"M{x:.1f} {self._top}V{self._bottom}" for x in self._x_pixels(self._x_ticks()))
        up = "".join(f"M{self.left} {y:.1f}H{self._right}" for y in self._y_pixels(self._y_ticks()))
        return f'<path d="{across}{up}"/>'

    def _x_ticks(self) -> list[float]:
        return ticks(*widen(self.x))

    def _y_ticks(self) -> list[float]:
        return ticks(*widen(self.y))

    def _axes(self) -> str:
        parts = [f'<path class="a" d="M{self.left} {self._top}V{self._bottom}H{self._right}"/>']
        for tick, x in zip(self._x_ticks(), self._x_pixels(self._x_ticks()), strict=True):
            parts.append(label(float(x), self._bottom + 16, format_tick(tick), "t m"))
        for tick, y in zip(self._y_ticks(), self._y_pixels(self._y_ticks()), strict=True):
            parts.append(label(self.left - 6, float(y) + 4, format_tick(tick), "t e"))
        middle = (self.left + self._right) / 2
        parts.append(label(middle, self.height - 8, self.x_label, "t m"))
        centre = (self._top + self._bottom) / 2
        parts.append(label(11, centre, self.y_label, "t m", extra=f' transform="rotate(-90 11 {centre:.1f})"'))
        return "".join(parts)

    def _legend_lines(self) -> list[list[tuple[LegendEntry, float]]]:
        """Lay out the legend: entries side by side where they fit; a name too long for a line is broken, never cut."""
        lines: list[list[tuple[LegendEntry, float]]] = []
        x = float(self.left)
        for entry in self.legend:
            style = entry.style
            for piece in break_text(entry.name, self.width - self.left - LEGEND_MARK):
                width = LEGEND_MARK + text_width(piece) + 15
                if not lines or not style or x + width - 15 > self.width:
                    lines.append([])
                    x = float(self.left)
                lines[-1].append((LegendEntry(style, piece), x))
                x += width
                style = ""  # the rest of a broken name has no mark
        return lines

    def _draw_legend(self, lines: Sequence[Sequence[tuple[LegendEntry, float]]]) -> str:
        parts = []
        for i, line in enumerate(lines):
            y = 4 + LEGEND_LINE * (i + 1) - 5
            for entry, x in line:
                if entry.style:
                    parts.append(_legend_mark(entry.style, x, y))
                parts.append(label(x + LEGEND_MARK, y, entry.name, "t", len(entry.name)))
        return "".join(parts)


def break_text(text: str, width: float) -> list[str]:
    """Break a text into pieces that a width holds, at spaces where there are some.

    Parameters
    ----------
    text : str
        The text to break.
    width : float
        Available width in the units of a drawing.

    Returns
    -------
    list of str
        The pieces, from top to bottom; the text itself if it is short enough.

    Examples
    --------
    >>> break_text("known against unknown", 110.0)
    ['known against', 'unknown']
    """
    pieces = []
    while text_width(text) > width and len(text) > 1:
        letters = len(text)
        while letters > 1 and text_width(text[:letters]) > width:
            letters -= 1
        space = text.rfind(" ", letters // 3, letters)
        if space > 0:
            letters = space + 1
        pieces.append(text[:letters].rstrip())
        text = text[letters:]
    return [*pieces, text]


def _legend_mark(style: str, x: float, y: int) -> str:
    """Draw the sample of a series in the legend: a bar, a point or a piece of a line."""
    if style.startswith("b "):
        return f'<rect class="{style}" x="{x + 6:.1f}" y="{y - 9}" width="12" height="10"/>'
    if style.startswith(("d ", "dd ")):
        return f'<path class="dd {style.split()[1]}" d="M{x + 12:.1f} {y - 4}h0"/>'
    return f'<path class="l {style}" d="M{x:.1f} {y - 4}h22"/>'


def _line_path(px: Array, py: Array) -> str:
    """Format the path through points."""
    points = [f"{x:.1f} {y:.1f}" for x, y in zip(px, py, strict=True)]
    return "M" + "L".join(points) if points else ""


def svg_element(width: float, height: float, about: str, body: str, extra: str = "") -> str:
    """Wrap drawn elements into an SVG element that scales with the page.

    Parameters
    ----------
    width, height : float
        Size of the drawing in pixels.
    about : str
        Sentence that says what the drawing shows, for screen readers; it is escaped here.
    body : str
        The elements, as markup.
    extra : str, default=""
        Further attributes of the SVG element, as markup with a leading space.

    Returns
    -------
    str
        The SVG element.
    """
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(about)}"{extra}>{body}</svg>'
    )


def fixed_svg_element(width: float, height: float, about: str, body: str) -> str:
    """Wrap drawn elements into an SVG element that keeps its size, however wide the page is.

    Parameters
    ----------
    width, height : float
        Size of the drawing in pixels, rounded up.
    about : str
        Sentence that says what the drawing shows, for screen readers.
    body : str
        The elements, as markup.

    Returns
    -------
    str
        The SVG element.
    """
    return svg_element(math.ceil(width), math.ceil(height), about, body, f' style="width:{math.ceil(width)}px"')


def widen(span: tuple[float, float]) -> tuple[float, float]:
    """Widen an empty range by 0.5 on both sides.

    Parameters
    ----------
    span : tuple of (float, float)
        Lower and upper end.

    Returns
    -------
    tuple of (float, float)
        The range itself if it is not empty.

    Examples
    --------
    >>> widen((1.0, 1.0)), widen((0.0, 1.0))
    ((0.5, 1.5), (0.0, 1.0))
    """
    low, high = span
    if high > low:
        return low, high
    return low - 0.5, high + 0.5


def round_values(values: Array) -> list[float]:
    """Round values to six significant digits: more than a drawing shows, and less to store.

    Parameters
    ----------
    values : ndarray
        The values.

    Returns
    -------
    list of float
        The rounded values.

    Examples
    --------
    >>> round_values(np.array([1 / 3]))
    [0.333333]
    """
    return [float(f"{value:.6g}") for value in values.tolist()]
