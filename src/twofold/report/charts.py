"""Small SVG charts, drawn by hand: sharp at every size, a few kilobytes each, coloured by the page's style sheet.

Colours and dashes are classes (``k0`` to ``k6``), so that light, dark and print differ in the style alone. Text is
always escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from twofold._checks import Array, Mask

WIDTH, HEIGHT = 480, 320
LETTER = 7.0  # mean width of a letter at the size of labels
SCALE_WIDTH = 160.0  # width of the colour scale below a heat map


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
    step = next(s * power for s in (1, 2, 2.5, 5, 10, 20) if span / (s * power) <= most)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def shown(value: float) -> str:
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
    >>> shown(0.2), shown(1e6), shown(0.0)
    ('0.2', '1e+06', '0')
    """
    return f"{value:.4g}"


def clipped(text: str, most: int) -> str:
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
    >>> clipped("confidence", 5), clipped("msp", 5)
    ('conf…', 'msp')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def label(x: float, y: float, text: str, cls: str = "t", most: int = 60, extra: str = "") -> str:
    """Format an SVG text element; a shortened text shows in full as a tooltip.

    Parameters
    ----------
    x, y : float
        Position of the text in the drawing.
    text : str
        What to write; it is escaped here.
    cls : str, default="t"
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
    told = f"<title>{escape(text)}</title>" if len(text) > most else ""
    return f'<text class="{cls}" x="{x:.1f}" y="{y:.1f}"{extra}>{told}{escape(clipped(text, most))}</text>'


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
    width, height : int, default=480, 320
        Size of the drawing in pixels.
    left : int, default=58
        Width of the margin that holds the numbers of the vertical axis.
    lines : int, default=2
        Number of lines reserved for the legend. With as many lines as names, longer names are shown in full.
    body : list of str
        Elements added so far.
    legend : list of tuple
        Class and name of each series in the legend.

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
    about: str  # for those who do not see it
    width: int = WIDTH
    height: int = HEIGHT
    left: int = 58
    lines: int = 2  # lines of the legend
    body: list[str] = field(default_factory=list)
    legend: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.top, self.bottom, self.right = 16 + 17 * self.lines, self.height - 44, self.width - 12
        self.x, self.y = _spread(self.x), _spread(self.y)

    def _px(self, values: Sequence[float] | Array) -> Array:
        low, high = self.x
        share = (np.asarray(values, dtype=np.float64) - low) / (high - low)
        return np.asarray(self.left + share * (self.right - self.left))

    def _py(self, values: Sequence[float] | Array) -> Array:
        low, high = self.y
        share = (np.asarray(values, dtype=np.float64) - low) / (high - low)
        return np.asarray(self.bottom - share * (self.bottom - self.top))

    def line(self, xs: Sequence[float] | Array, ys: Sequence[float] | Array, cls: str, name: str = "") -> None:
        """Add a line through points.

        Parameters
        ----------
        xs, ys : array-like of shape (n_points,)
            Coordinates in the units of the axes.
        cls : str
            Class of the style sheet that sets colour and dashes, ``"k0"`` to ``"k6"``.
        name : str, default=""
            Name in the legend; an empty name leaves the line out of it.
        """
        self.body.append(f'<path class="l {cls}" d="{_path(self._px(xs), self._py(ys))}"/>')
        if name:
            self.legend.append((cls, name))

    def area(self, xs: Sequence[float] | Array, ys: Sequence[float] | Array, cls: str, name: str = "") -> None:
        """Add a line and tint the area between it and the horizontal axis.

        Parameters
        ----------
        xs, ys : array-like of shape (n_points,)
            Coordinates in the units of the axes.
        cls : str
            Class of the style sheet that sets the colour.
        name : str, default=""
            Name in the legend; an empty name leaves the line out of it.
        """
        px, py = self._px(xs), self._py(ys)
        if len(px):
            closed = f"{_path(px, py)}L{px[-1]:.1f} {self.bottom}L{px[0]:.1f} {self.bottom}Z"
            self.body.append(f'<path class="f {cls}" d="{closed}"/>')
        self.line(xs, ys, cls, name)

    def dots(
        self, xs: Sequence[float] | Array, ys: Sequence[float] | Array, cls: str, name: str = "", size: str = "d"
    ) -> None:
        """Add points; all of them share one path element, which keeps the file small.

        Parameters
        ----------
        xs, ys : array-like of shape (n_points,)
            Coordinates in the units of the axes.
        cls : str
            Class of the style sheet that sets the colour.
        name : str, default=""
            Name in the legend; an empty name leaves the points out of it.
        size : {"d", "dd"}, default="d"
            Class of the style sheet for small or large points.
        """
        px, py = self._px(xs), self._py(ys)
        path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(px, py, strict=True))
        self.body.append(f'<path class="{size} {cls}" d="{path}"/>')
        if name:
            self.legend.append((f"{size} {cls}", name))

    def bars(self, lows: Array, highs: Array, heights: Array, cls: str, name: str = "") -> None:
        """Add bars that rise from the horizontal axis.

        Parameters
        ----------
        lows, highs : ndarray of shape (n_bars,)
            Left and right ends of the bars, in the units of the horizontal axis.
        heights : ndarray of shape (n_bars,)
            Upper ends of the bars, in the units of the vertical axis.
        cls : str
            Class of the style sheet that sets the colour.
        name : str, default=""
            Name in the legend; an empty name leaves the bars out of it.
        """
        a, b, top = self._px(lows), self._px(highs), self._py(heights)
        for left, right, y in zip(a, b, top, strict=True):
            size = f'width="{max(right - left - 1, 0.5):.1f}" height="{max(self.bottom - y, 0):.1f}"'
            self.body.append(f'<rect class="b {cls}" x="{left + 0.5:.1f}" y="{y:.1f}" {size}/>')
        if name:
            self.legend.append((f"b {cls}", name))

    def svg(self) -> str:
        """Draw the axes, the series and the legend.

        Returns
        -------
        str
            The SVG element.
        """
        parts = [f'<g class="g">{self._grid()}</g>', *self.body, self._axes(), self._legend()]
        return wrap(self.width, self.height, self.about, "".join(parts))

    def _grid(self) -> str:
        across = "".join(f"M{p:.1f} {self.top}V{self.bottom}" for p in self._px(ticks(*self.x)))
        up = "".join(f"M{self.left} {p:.1f}H{self.right}" for p in self._py(ticks(*self.y)))
        return f'<path d="{across}{up}"/>'

    def _axes(self) -> str:
        parts = [f'<path class="a" d="M{self.left} {self.top}V{self.bottom}H{self.right}"/>']
        for value, p in zip(ticks(*self.x), self._px(ticks(*self.x)), strict=True):
            parts.append(label(float(p), self.bottom + 16, shown(value), "t m"))
        for value, p in zip(ticks(*self.y), self._py(ticks(*self.y)), strict=True):
            parts.append(label(self.left - 6, float(p) + 4, shown(value), "t e"))
        middle = (self.left + self.right) / 2
        parts.append(label(middle, self.height - 8, self.x_label, "t m"))
        up = (self.top + self.bottom) / 2
        parts.append(label(11, up, self.y_label, "t m", extra=f' transform="rotate(-90 11 {up:.1f})"'))
        return "".join(parts)

    def _legend_lines(self) -> list[list[tuple[str, str, float]]]:
        lines: list[list[tuple[str, str, float]]] = [[]]
        x = float(self.left)
        for cls, name in self.legend:
            wide = 42 + LETTER * min(len(name), self._most)
            if lines[-1] and x + wide > self.width:
                lines.append([])
                x = float(self.left)
            lines[-1].append((cls, name, x))
            x += wide
        return lines

    def _legend(self) -> str:
        parts = []
        lines = self._legend_lines()
        for i, line in enumerate(lines):
            y = self.top - 12 - 17 * (len(lines) - 1 - i)
            for cls, name, x in line:
                if cls.startswith("b "):
                    parts.append(f'<rect class="{cls}" x="{x + 6:.1f}" y="{y - 9}" width="12" height="10"/>')
                elif cls.startswith(("d ", "dd ")):
                    parts.append(f'<path class="dd {cls.split()[1]}" d="M{x + 12:.1f} {y - 4}h0"/>')
                else:
                    parts.append(f'<path class="l {cls}" d="M{x:.1f} {y - 4}h22"/>')
                parts.append(label(x + 27, y, name, "t", self._most))
        return "".join(parts)

    @property
    def _most(self) -> int:
        """Number of letters of a name in the legend; more where each has a line of its own."""
        return 56 if self.lines >= len(self.legend) else 34


def wrap(width: float, height: float, about: str, body: str, extra: str = "") -> str:
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


def natural(width: float, height: float, about: str, body: str) -> str:
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
    return wrap(math.ceil(width), math.ceil(height), about, body, f' style="width:{math.ceil(width)}px"')


def _spread(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _path(px: Array, py: Array) -> str:
    return "".join(f"{'L' if i else 'M'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(zip(px, py, strict=True)))


def thinned(count: int, most: int = 240) -> Array:
    """Choose evenly spaced points of a long curve, both ends included.

    Parameters
    ----------
    count : int
        Number of points of the curve.
    most : int, default=240
        Number of points to keep.

    Returns
    -------
    ndarray of int
        Indices of the points to keep, ascending.

    Examples
    --------
    >>> thinned(5, 3).tolist(), thinned(2).tolist()
    ([0, 2, 4], [0, 1])
    """
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))


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
    cell_w, cell_h = max(14.0, min(34.0, 620.0 / len(columns))), 18.0 if len(rows) <= 60 else 13.0
    side = 12 + LETTER * min(max(map(len, groups)), 22) if any(groups) else 0.0
    left = 16 + LETTER * min(max((len(r) for r in rows), default=1), 24) + side
    top = 16 + 0.72 * LETTER * min(max((len(c) for c in columns), default=1), 18)
    below = top + cell_h * len(rows)
    width, height = max(left + cell_w * len(columns) + 46, left + SCALE_WIDTH + 60), below + 38
    biggest = float(values.max()) or 1.0
    parts = []
    for j, name in enumerate(columns):
        x = left + cell_w * (j + 0.65)
        parts.append(label(x, top - 5, name, "t", 18, f' transform="rotate(-46 {x:.1f} {top - 5:.1f})"'))
    for i, name in enumerate(rows):
        y = top + cell_h * i
        parts.append(label(left - 5, y + cell_h * 0.72, name, "t e", 24))
        if any(groups) and (i == 0 or groups[i] != groups[i - 1]):
            parts.append(label(4, y + cell_h * 0.72, groups[i], "t q", 22))
            parts.append(f'<path class="a" d="M4 {y:.1f}H{width - 46:.1f}"/>')
        for j, name_j in enumerate(columns):
            share = float(values[i, j])
            tip = f"<title>{escape(name)} → {escape(name_j)}: {share:.3f}</title>"
            size = f'width="{cell_w - 1:.1f}" height="{cell_h - 1:.1f}"'
            place = f'x="{left + cell_w * j:.1f}" y="{y:.1f}"'
            parts.append(f'<rect class="h" {place} {size} style="fill-opacity:{share / biggest:.3f}">{tip}</rect>')
    parts.append(_colour_scale(left, below + 14, biggest))
    return natural(width, height, about, "".join(parts))


def _colour_scale(left: float, top: float, biggest: float) -> str:
    """Draw the colours of a heat map from 0 to its largest value, with the numbers at both ends."""
    steps = 20
    step = SCALE_WIDTH / steps
    parts = [label(left - 5, top + 10, "0", "t e")]
    for i in range(steps):
        place = f'x="{left + step * i:.1f}" y="{top:.1f}"'
        size = f'width="{step:.1f}" height="12" shape-rendering="crispEdges"'
        parts.append(f'<rect class="h scale" {place} {size} style="fill-opacity:{i / (steps - 1):.3f}"/>')
    parts.append(label(left + SCALE_WIDTH + 5, top + 10, f"{biggest:.3f}", "t"))
    return "".join(parts)


def bar_rows(names: Sequence[str], values: Array, x_label: str, about: str, unit: str = "%") -> str:
    """Draw a horizontal bar for each name, from zero to the left or right.

    Parameters
    ----------
    names : sequence of str
        Names of the bars, from top to bottom.
    values : ndarray of shape (n_names,)
        Lengths of the bars. A value that is not finite leaves its row empty.
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

    Notes
    -----
    Bars are cut at -100 and 100; the number beside a bar is never cut.
    """
    left, right, row, top = 150.0, WIDTH - 66.0, 22.0, 10.0
    ends = np.concatenate([[0.0], values])
    ends = np.clip(ends[np.isfinite(ends)], -100.0, 100.0)
    low, high = _spread((float(ends.min()), float(ends.max())))
    height = top + row * len(names) + 46

    def at(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * (right - left)

    base = top + row * len(names) + 4
    grid = "".join(f"M{at(t):.1f} {top}V{base}" for t in ticks(low, high, 5))
    parts = [f'<g class="g"><path d="{grid}"/></g>', f'<path class="a" d="M{at(0):.1f} {top}V{base}"/>']
    for i, name in enumerate(names):
        y, value = top + row * i, float(values[i])
        parts.append(label(left - 6, y + 15, name, "t e", 22))
        if not math.isfinite(value):
            continue
        a, b = sorted((at(0), at(value)))
        cls = "k0" if value >= 0 else "k1"
        size = f'width="{max(b - a, 0.5):.1f}" height="{row - 8}"'
        parts.append(f'<rect class="b {cls}" x="{a:.1f}" y="{y + 4:.1f}" {size}/>')
        parts.append(label(right + 4, y + 15, f"{value:+.1f}{unit}", "t"))
    for t in ticks(low, high, 5):
        parts.append(label(at(t), base + 15, shown(t), "t m"))
    parts.append(label((left + right) / 2, height - 6, x_label, "t m"))
    return wrap(WIDTH, math.ceil(height), about, "".join(parts))


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
    left, right, row, top = 190.0, WIDTH - 14.0, 20.0, 10.0
    ends = np.concatenate([values, lows, highs])
    low, high = _spread((float(np.nanmin(ends)), float(np.nanmax(ends))))
    base = top + row * len(names) + 4

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    grid = "".join(f"M{at(t):.1f} {top}V{base}" for t in ticks(low, high, 5))
    parts = [f'<g class="g"><path d="{grid}"/></g>']
    for i, name in enumerate(names):
        y = top + row * i + row / 2
        parts.append(label(left - 6, y + 4, name, "t e", 26))
        if not math.isnan(lows[i]):
            parts.append(f'<path class="w" d="M{at(float(lows[i])):.1f} {y}H{at(float(highs[i])):.1f}"/>')
        parts.append(f'<path class="dd k0" d="M{at(float(values[i])):.1f} {y}h0"/>')
    parts += [label(at(t), base + 15, shown(t), "t m") for t in ticks(low, high, 5)]
    parts.append(label((left + right) / 2, base + 36, x_label, "t m"))
    return wrap(WIDTH, math.ceil(base + 42), about, "".join(parts))


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
    left, right, row, top = 150.0, WIDTH - 14.0, 30.0, 10.0
    pooled = np.concatenate([values for _, values in groups])
    low, high = _spread((float(pooled.min()), float(pooled.max())))
    height = top + row * len(groups) + 46

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    base = top + row * len(groups) + 4
    grid = "".join(f"M{at(t):.1f} {top}V{base}" for t in ticks(low, high, 5))
    parts = [f'<g class="g"><path d="{grid}"/></g>']
    for i, (name, values) in enumerate(groups):
        y = top + row * i + row / 2
        least, q1, q2, q3, most = (at(float(q)) for q in np.quantile(values, (0, 0.25, 0.5, 0.75, 1)))
        parts.append(label(left - 6, y + 4, f"{name} ({len(values)})", "t e", 20))
        parts.append(f'<path class="w" d="M{least:.1f} {y}H{most:.1f}"/>')
        size = f'width="{max(q3 - q1, 1):.1f}" height="16"'
        parts.append(f'<rect class="x k0" x="{q1:.1f}" y="{y - 8}" {size}/>')
        parts.append(f'<path class="w" d="M{q2:.1f} {y - 8}v16"/>')
        path = "".join(f"M{at(float(v)):.1f} {y}h0" for v in values[:200])
        parts.append(f'<path class="d k1" d="{path}"/>')
    for t in ticks(low, high, 5):
        parts.append(label(at(t), base + 15, shown(t), "t m"))
    parts.append(label((left + right) / 2, height - 6, x_label, "t m"))
    return wrap(WIDTH, math.ceil(height), about, "".join(parts))


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
    several = [group for group in cliques if len(group) > 1]
    left, row, top = 24 + LETTER * min(max(map(len, names)), 27), 20.0, 34.0
    right = left + 270.0
    width = right + 24 + 12 * len(several)
    k = len(names)
    height = top + row * k + 14

    def at(rank: float) -> float:
        return left + (rank - 1) / max(k - 1, 1) * (right - left)

    place = {name: top + row * i + row / 2 for i, name in enumerate(names)}
    marks = ticks(1, k, 7) if k > 1 else [1.0]
    grid = "".join(f"M{at(t):.1f} {top}V{height - 12:.1f}" for t in marks)
    parts = [f'<g class="g"><path d="{grid}"/></g>', label((left + right) / 2, 12, "mean rank (1 is best)", "t m")]
    parts += [label(at(t), top - 6, shown(t), "t m") for t in marks]
    for name, rank in zip(names, ranks, strict=True):
        y, cls = place[name], "k0" if name in top_names else "k6"
        parts.append(label(left - 10, y + 4, name, "t e", 27))
        parts.append(f'<path class="w" d="M{at(1):.1f} {y}H{at(float(rank)):.1f}"/>')
        parts.append(f'<path class="dd {cls}" d="M{at(float(rank)):.1f} {y}h0"/>')
    for column, group in enumerate(several):
        x = right + 22 + 12 * column
        rows = sorted(place[name] for name in group)
        cls = "k0" if list(group) == list(top_names) else "k6"
        parts.append(f'<path class="{"l k0" if cls == "k0" else "w"}" d="M{x:.1f} {rows[0]}V{rows[-1]}"/>')
        parts.append(f'<path class="d {cls}" d="{"".join(f"M{x:.1f} {y}h0" for y in rows)}"/>')
    return natural(width, height, about, "".join(parts))


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
    left, row, column = 24 + LETTER * min(max(map(len, rows)), 27), 20.0, 30.0
    top = 18 + 0.75 * LETTER * min(max(len(c) for c in columns), 26)
    width, height = left + column * len(columns) + 110, top + row * len(rows) + 8
    parts = []
    for j, name in enumerate(columns):
        x = left + column * (j + 0.5)
        parts.append(label(x, top - 6, name, "t", 26, f' transform="rotate(-46 {x:.1f} {top - 6:.1f})"'))
        inside = [top + row * (i + 0.5) for i in range(len(rows)) if member[i, j]]
        if len(inside) > 1:
            parts.append(f'<path class="l k0" d="M{x:.1f} {inside[0]:.1f}V{inside[-1]:.1f}"/>')
    for i, name in enumerate(rows):
        y = top + row * (i + 0.5)
        parts.append(label(left - 10, y + 4, name, "t e", 27))
        for j in range(len(columns)):
            x = left + column * (j + 0.5)
            if member[i, j]:
                parts.append(f'<path class="dd k0" d="M{x:.1f} {y:.1f}h0"/>')
            elif judged[i, j]:
                parts.append(f'<circle class="o" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
    return natural(width, height, about, "".join(parts))
