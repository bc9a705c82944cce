"""How the commands show an interval."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.stats import Interval


def format_interval(interval: Interval, *, factor: float = 1, digits: int = 5, gap: str = " ") -> str:
    """Write an interval as ``value [low, high]``.

    Parameters
    ----------
    interval : Interval
        What the bootstrap found.
    factor : float, default=1
        What the numbers are multiplied by: 100 for percent.
    digits : int, default=5
        Digits after the point.
    gap : str, default=" "
        What stands between the value and the bracket.

    Returns
    -------
    str
        The text.

    Examples
    --------
    >>> from twofold import metrics, stats
    >>> perfect = stats.bootstrap(metrics.aurc, [True, True, True], [3.0, 2.0, 1.0])
    >>> format_interval(perfect, factor=1000, digits=1)
    '0.0 [0.0, 0.0]'
    """
    value = factor * interval.value
    low = factor * interval.low
    high = factor * interval.high
    return f"{value:.{digits}f}{gap}[{low:.{digits}f}, {high:.{digits}f}]"


def interval_as_json(interval: Interval) -> dict[str, float | int | None]:
    """Return what JSON can hold of an interval; NaN becomes null.

    Parameters
    ----------
    interval : Interval
        What the bootstrap found.

    Returns
    -------
    dict
        ``value``, ``low``, ``high``, ``level``, ``resamples`` and ``undefined``.
    """
    return {
        "value": _without_nan(interval.value),
        "low": _without_nan(interval.low),
        "high": _without_nan(interval.high),
        "level": interval.level,
        "resamples": interval.n,
        "undefined": interval.undefined,
    }


def _without_nan(number: float) -> float | None:
    return None if math.isnan(number) else number
