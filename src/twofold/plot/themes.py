"""Colours, dashes and fonts of figures: the same as on the pages of reports, on white and on a dark ground.

Colours are close to those of Okabe and Ito, which people with any colour vision can distinguish, and have a contrast of
at least 3 to the ground. Lines differ in dashes too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, TypeAlias

from twofold.errors import MissingExtra

ThemeName: TypeAlias = Literal["light", "dark"]
Dash: TypeAlias = str | tuple[int, tuple[float, ...]]

DASHES: tuple[Dash, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1.2)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (8, 2, 1, 1, 1, 2)),
    (0, (2, 3)),
)
NEEDED = 'figures need matplotlib: pip install "twofold[plot]"'


@dataclass(frozen=True)
class Theme:
    """Hold the colours of a figure.

    Parameters
    ----------
    ground : str
        Background of the figure.
    text : str
        Text and axes.
    soft : str
        Notes, and marks that stand back.
    rule : str
        Thin lines and empty cells.
    band : str
        Shaded rows.
    colours : tuple of str
        Colours of series.
    heat : tuple of (str, str)
        Ends of the colour scale of a heat map, worst first.
    """

    ground: str
    text: str
    soft: str
    rule: str
    band: str
    colours: tuple[str, ...]
    heat: tuple[str, str]


LIGHT = Theme(
    ground="#ffffff",
    text="#1b1f24",
    soft="#5b6470",
    rule="#e4e7eb",
    band="#e3eef6",
    colours=("#0072b2", "#d55e00", "#00845f", "#b8548d", "#b37a00", "#3d8fc6", "#1b1f24"),
    heat=("#f7fbff", "#7fb2dd"),
)
DARK = Theme(
    ground="#14171b",
    text="#e8eaed",
    soft="#a3abb6",
    rule="#2b3038",
    band="#1f2d38",
    colours=("#56b4e9", "#ff8a3d", "#2fd0a0", "#e79cc8", "#f0b92e", "#8fd0ff", "#e8eaed"),
    heat=("#1a1f26", "#1f5f93"),
)
THEMES: dict[ThemeName, Theme] = {"light": LIGHT, "dark": DARK}

COLOURS = LIGHT.colours
STYLE: dict[str, Any] = {
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


def drawing_style(theme: Theme = LIGHT) -> AbstractContextManager[None]:
    """Combine matplotlib's own defaults with those of a theme, whatever the user has set.

    Parameters
    ----------
    theme : Theme, default=LIGHT
        The colours.

    Returns
    -------
    context manager
        Within which figures are made and written.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    try:
        style = import_module("matplotlib.style")
    except ImportError as error:
        raise MissingExtra(NEEDED) from error
    colours = {
        "figure.facecolor": theme.ground,
        "axes.facecolor": theme.ground,
        "text.color": theme.text,
        "axes.edgecolor": theme.text,
        "axes.labelcolor": theme.text,
        "xtick.color": theme.text,
        "ytick.color": theme.text,
    }
    context: AbstractContextManager[None] = style.context(["default", STYLE | colours])
    return context


def dash_of(place: int) -> Dash:
    """Choose the dashes of a series, so that series differ without colours too.

    Parameters
    ----------
    place : int
        Number of the series, from 0.

    Returns
    -------
    str or tuple
        A line style of matplotlib. Series seven places apart, which share a colour, have other dashes.

    Examples
    --------
    >>> dash_of(0), dash_of(7) == dash_of(0)
    ('-', False)
    """
    return DASHES[place % len(DASHES)]
