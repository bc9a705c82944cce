"""Gains with the draws behind them, so that gains can be subtracted and compared draw by draw.

``intervals.py`` has gains of which only the interval is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

import intervals
from twofold.typing import Array

DRAWS, LEVEL, SEED = 4000, 0.95, 0


@dataclass(frozen=True)
class Gain(intervals.Gain):
    """Hold a signed gain with its 95 % interval, its p-value, and the draws that both come from."""

    draws: Array

    @classmethod
    def of(cls, value: float, draws: Array) -> Gain:
        """Take the interval from quantiles of the draws."""
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(draws, (tail, 1 - tail))
        return cls(value, float(low), float(high), p_value(draws), draws)

    @classmethod
    def of_few(cls, value: float, draws: Array, units: int) -> Gain:
        """Widen draws of a few units, because the mean of so few varies more than its draws do."""
        return cls.of(value, value + widening(units) * (draws - value))


def p_value(draws: Array) -> float:
    """Compute the two-sided p-value of zero: twice the share of draws on its other side, counting at least one draw."""
    below = (1 + np.sum(draws <= 0)) / (1 + len(draws))
    above = (1 + np.sum(draws >= 0)) / (1 + len(draws))
    return float(min(1.0, 2 * min(below, above)))


def widening(units: int) -> float:
    """Compute the factor by which draws of a few units are too narrow; one unit has no spread of its own."""
    if units < 2:
        return 1.0
    quantile = (1 + LEVEL) / 2
    student_over_normal = t.ppf(quantile, units - 1) / norm.ppf(quantile)
    return float(np.sqrt(units / (units - 1)) * student_over_normal)


def over_units(values: Sequence[float] | Array) -> Gain:
    """Average values of independent units, with Student's t as the distribution of the mean."""
    mean = np.mean(values)
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    levels = (np.arange(DRAWS) + 0.5) / DRAWS
    return Gain.of(float(mean), mean + error * t.ppf(levels, len(values) - 1))


def minus(gain: Gain, other: float | Gain) -> Gain:
    """Subtract a margin, or another gain draw by draw."""
    if isinstance(other, Gain):
        return Gain.of(gain.value - other.value, gain.draws - other.draws)
    return Gain.of(gain.value - other, gain.draws - other)


def negated(gain: Gain) -> Gain:
    """Reverse the sign of a gain."""
    return Gain.of(-gain.value, -gain.draws)


def together(gains: Sequence[Gain], chosen: int) -> Gain:
    """Widen the interval of one gain so that the intervals of all gains hold together."""
    largest, spread = largest_deviation(gains)
    value = gains[chosen].value
    reach = largest * spread[chosen]
    return Gain.of(value, np.concatenate([value - reach, value + reach]))


def simultaneous_low(gains: Sequence[Gain]) -> list[float]:
    """Compute lower limits that hold for all gains together."""
    largest, spread = largest_deviation(gains)
    factor = float(np.quantile(largest, LEVEL))
    limits = []
    for gain, own_spread in zip(gains, spread, strict=True):
        limits.append(float(gain.value - factor * own_spread))
    return limits


def largest_deviation(gains: Sequence[Gain]) -> tuple[Array, Array]:
    """Compute the largest studentised deviation of any gain in each draw, and the spread of each gain."""
    draws = np.array([gain.draws for gain in gains])
    values = np.array([gain.value for gain in gains])
    spread = draws.std(axis=1)
    scale = np.where(spread == 0, np.inf, spread)  # a gain without spread never deviates
    deviation = np.abs(draws - values[:, None]) / scale[:, None]
    return deviation.max(axis=0), spread
