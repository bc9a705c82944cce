"""What all displays share: drawing on given or new axes, and files that are the same byte by byte."""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from twofold import _checks
from twofold._files import replacing
from twofold.errors import InvalidInput, RunError
from twofold.plot.themes import DARK, LIGHT, THEMES, Theme, ThemeName, drawing_style
from twofold.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

SUFFIXES = (".png", ".svg", ".pdf")
PADDING = 0.08  # inches around a drawing
LETTERS_PER_INCH = 15  # of a note
NOTE_SIZE = 7.5  # points


class Display(ABC):
    """Draw data that were computed before, by scikit-learn's convention.

    Classes hold what they draw. Make one with a constructor such as ``from_predictions``, then call :meth:`plot` or
    :meth:`save`.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        What :meth:`plot` drew on.
    figure_ : matplotlib.figure.Figure
        The figure of these axes.
    """

    ax_: Axes
    figure_: Figure | SubFigure

    @property
    @abstractmethod
    def alt_text(self) -> str:
        """Say in words what the figure shows, for those who cannot see it."""

    @property
    @abstractmethod
    def _size(self) -> tuple[float, float]:
        """Width and height of the axes in inches."""

    @abstractmethod
    def _draw(self, ax: Axes, theme: Theme) -> None:
        """Draw everything on empty axes."""

    def plot(self, ax: Axes | None = None, *, theme: ThemeName | None = None) -> Self:
        """Draw on given axes, or on those of a new figure of pyplot.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made, which notebooks show by themselves.
        theme : {"light", "dark"}, optional
            The colours. By default those that suit the ground of the given axes; ``"light"`` for a new figure.

        Returns
        -------
        Display
            The display itself, with ``ax_`` and ``figure_``.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        if ax is not None:
            self._draw(ax, _theme_for(ax, theme))
            self.ax_, self.figure_ = ax, ax.figure
            return self
        chosen = _check_theme(theme or "light")
        with drawing_style(chosen):
            figure = import_module("matplotlib.pyplot").figure(figsize=self._size)
            self.figure_, self.ax_ = figure, figure.add_axes((0, 0, 1, 1))
            self._draw(self.ax_, chosen)
            _enlarge_to_labels(figure)
        return self

    def save(self, path: str | Path, *, theme: ThemeName = "light") -> Path:
        """Draw on a figure of its own and write it; the same values give the same bytes.

        Parameters
        ----------
        path : str or Path
            File to write; its suffix (``.png``, ``.svg`` or ``.pdf``) decides the format.
        theme : {"light", "dark"}, default="light"
            The colours.

        Returns
        -------
        Path
            The file; it holds :attr:`alt_text` as its title or description.

        Raises
        ------
        InvalidInput
            If the suffix is none of the three, the folder does not exist, or the theme is unknown.
        MissingExtra
            If matplotlib is not installed.
        RunError
            If the file cannot be written.
        """
        target = check_path(path)
        chosen = _check_theme(theme)
        with drawing_style(chosen):
            figure = import_module("matplotlib.figure").Figure(figsize=self._size)
            self._draw(figure.add_axes((0, 0, 1, 1)), chosen)  # labels go around the axes and are never cut
            return write_figure(figure, target, self.alt_text)


def _enlarge_to_labels(figure: Figure) -> None:
    """Enlarge a figure whose axes fill it until it holds the labels around them too; axes keep their size."""
    canvas = import_module("matplotlib.backends.backend_agg").FigureCanvasAgg
    shown_on = figure.canvas
    box = figure.get_tightbbox(canvas(figure).get_renderer())
    figure.set_canvas(shown_on)
    old_width, old_height = figure.get_size_inches()
    width, height = box.width + 2 * PADDING, box.height + 2 * PADDING
    for axes in figure.axes:
        place = axes.get_position(original=True)
        left = (place.x0 * old_width - box.x0 + PADDING) / width
        bottom = (place.y0 * old_height - box.y0 + PADDING) / height
        axes.set_position((left, bottom, place.width * old_width / width, place.height * old_height / height))
    figure.set_size_inches(width, height)


def _check_theme(theme: str) -> Theme:
    _checks.choice(theme, "theme", tuple(THEMES))
    return THEMES["dark" if theme == "dark" else "light"]


def _theme_for(ax: Axes, theme: ThemeName | None) -> Theme:
    """Choose a theme by the ground of given axes, where none is named."""
    if theme is not None:
        return _check_theme(theme)
    red, green, blue, alpha = import_module("matplotlib.colors").to_rgba(ax.get_facecolor())
    is_dark = alpha > 0.5 and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.4
    return DARK if is_dark else LIGHT


def check_path(path: str | Path) -> Path:
    """Check that a figure can be written to a file.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If it does not end in ``.png``, ``.svg`` or ``.pdf``, or its folder does not exist.

    Examples
    --------
    >>> check_path("curve.gif")
    Traceback (most recent call last):
    twofold.errors.InvalidInput: a figure's file must end in .png, .svg, .pdf; curve.gif has the suffix '.gif'
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        suffix = repr(target.suffix) if target.suffix else "none"
        raise InvalidInput(f"a figure's file must end in {', '.join(SUFFIXES)}; {target.name} has the suffix {suffix}")
    if not target.parent.is_dir():
        raise InvalidInput(f"{target} cannot be written: there is no folder {target.parent}")
    return target


def write_figure(
    figure: Figure, path: Path, alt_text: str | None = None, *, tight: bool = True, dpi: int = 200
) -> Path:
    """Write a figure without dates and versions, so that the same values give the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    path : Path
        File to write, ending in ``.png``, ``.svg`` or ``.pdf``.
    alt_text : str, optional
        What the figure shows, stored in the file.
    tight : bool, default=True
        Whether the file ends where the drawing ends.
    dpi : int, default=200
        Dots per inch of a PNG file.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    RunError
        If the file cannot be written; it is then unchanged.
    """
    kind = path.suffix.lower()[1:]
    metadata: dict[str, Any] = {
        "svg": {"Date": None, "Creator": None, "Title": alt_text},
        "pdf": {"CreationDate": None, "Title": alt_text},
        "png": {"Software": None, "Description": alt_text},
    }[kind]
    if alt_text is None:
        metadata = {key: value for key, value in metadata.items() if key not in ("Title", "Description")}
    frame: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": PADDING} if tight else {}
    try:
        with replacing(path) as file:
            figure.savefig(file, format=kind, dpi=dpi, metadata=metadata, **frame)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}); nothing was changed") from error
    return path


# --- parts of several displays --------------------------------------------------------------------------------------


def by_name(conf: ArrayLike | Mapping[str, ArrayLike], name: str | None, default: str) -> dict[str, ArrayLike]:
    """Make one mapping of one confidence or of several by name.

    Parameters
    ----------
    conf : array-like or mapping of str to array-like
        Confidences.
    name : str or None
        Name of a single confidence.
    default : str
        Name where none is given.

    Returns
    -------
    dict of str to array-like
        At least one confidence.

    Raises
    ------
    InvalidInput
        If a mapping is empty, or has a ``name`` beside it.
    """
    if not isinstance(conf, Mapping):
        return {name or default: conf}
    if name is not None:
        raise InvalidInput("name is for a single confidence; those of a mapping have names")
    if not conf:
        raise InvalidInput("conf must hold at least one confidence: a name with its values")
    return {str(key): value for key, value in conf.items()}


def thin(count: int, most: int = 240) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
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
    >>> thin(5, 3).tolist(), thin(2).tolist()
    ([0, 2, 4], [0, 1])
    """
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))


def add_legend(ax: Axes, entries: int, title: str | None = None) -> None:
    """Write the legend beside the axes, names in full.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes.
    entries : int
        Number of names; more than fifteen are in several columns.
    title : str, optional
        What stands above the names.
    """
    legend = ax.legend(
        loc="upper left",
        bbox_to_anchor=(1.02, 1.02),
        frameon=False,
        fontsize=8,
        handlelength=3.2,
        borderaxespad=0,
        labelspacing=0.3,
        ncols=math.ceil(entries / 15),
        title=title,
        title_fontsize=8,
        alignment="left",
    )
    legend.get_title().set_parse_math(False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def write_row_names(ax: Axes, names: Sequence[str], colours: Sequence[str]) -> None:
    """Write a name for each line at the left, the first on top.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes, with a unit of height for each line.
    names, colours : sequence of str
        Name and colour of each line.
    """
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.tick_params(axis="y", length=0)
    for label, colour in zip(ax.get_yticklabels(), colours, strict=True):
        label.set_color(colour)


def write_column_names(ax: Axes, names: Sequence[str]) -> None:
    """Write a name for each column above, slanted so that no two of them touch.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes, with a unit of width for each column.
    names : sequence of str
        The names.
    """
    ax.xaxis.tick_top()
    ax.set_xticks(range(len(names)), names, rotation=50, ha="left", va="bottom", rotation_mode="anchor")
    for label in ax.get_xticklabels():
        label.set_parse_math(False)
    ax.tick_params(axis="x", length=0, pad=2)
    for spine in ax.spines.values():
        spine.set_visible(False)


def write_note(ax: Axes, theme: Theme, *lines: str, gap: float = 8.0) -> None:
    """Write what is shown below the axes.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        The axes.
    theme : Theme
        The colours.
    *lines : str
        Lines of the note; long ones are broken.
    gap : float, default=8.0
        Distance from the axes in points; more where numbers and a label stand between.
    """
    width = ax.get_window_extent().width / ax.figure.get_dpi()
    letters = max(60, int(LETTERS_PER_INCH * width))
    broken = ["\n".join(textwrap.wrap(line, letters, break_long_words=False)) for line in lines]
    ax.annotate(
        "\n".join(broken),
        (0, 0),
        (0, -gap),
        xycoords="axes fraction",
        textcoords="offset points",
        va="top",
        fontsize=NOTE_SIZE,
        color=theme.soft,
        parse_math=False,
    )
