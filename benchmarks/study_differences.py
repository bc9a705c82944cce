"""The difference between two methods of a study, with an interval over test images and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm, t

from claims import NOT_TESTABLE, decide
from study_cells import Column, Contender, FinishedCells, RunKey
from twofold import metrics
from twofold.errors import InvalidInput
from twofold.typing import Array

ALPHA = 0.05
LIMITS = (ALPHA / 2, 1 - ALPHA / 2)
SMALLEST = -700.0  # logarithm of the smallest p-value; smaller ones are zero


@dataclass(frozen=True)
class Difference:
    """Hold how much better one method is than another; positive is better.

    Parameters
    ----------
    mean : float
        The mean difference over benchmarks and seeds.
    low, high : float
        Its 95 % interval, over test images and seeds.
    seeds : int
        Number of seeds.
    p_value : float
        Two-sided p-value of no difference.
    """

    mean: float
    low: float
    high: float
    seeds: int
    p_value: float

    def gain_interval(self, worse: bool = False) -> tuple[float, float]:
        """Return the interval of what a claim gains; a claim that a method is worse gains by the opposite difference."""
        if worse:
            return -self.high, -self.low
        return self.low, self.high

    def verdict(self, worse: bool = False) -> str:
        """Say whether a method is better (or worse), beyond what other images and other seeds would change."""
        if self.seeds < 2:
            return NOT_TESTABLE
        return decide(*self.gain_interval(worse))


@dataclass(frozen=True)
class SeedError:
    """Hold the standard error of a difference over seeds, and its degrees of freedom."""

    value: float
    freedom: int

    def half_width(self, alpha: float) -> float:
        """Return half the width of the interval over seeds; zero where there is no degree of freedom."""
        if self.freedom == 0:
            return 0.0
        return float(t.isf(alpha / 2, self.freedom)) * self.value


@dataclass(frozen=True)
class Spread:
    """Hold how uncertain a difference is on one side: over images, as a normal deviate, and over seeds, as Student's.

    Parameters
    ----------
    over_images : float
        Half the width of the 95 % interval over images.
    over_seeds : SeedError
        The standard error over seeds.
    """

    over_images: float
    over_seeds: SeedError

    def half_width(self, alpha: float) -> float:
        """Return half the width of the interval that misses with probability `alpha`."""
        over_images = self.over_images * norm.isf(alpha / 2) / norm.isf(ALPHA / 2)
        return float(np.hypot(over_images, self.over_seeds.half_width(alpha)))

    def level(self, half_width: float) -> float:
        """Find the `alpha` whose interval has this half-width: the two-sided p-value of so large a difference."""

        def excess(log_alpha: float) -> float:
            return self.half_width(np.exp(log_alpha)) - half_width

        if half_width <= 0:
            return 1.0
        if excess(SMALLEST) < 0:  # an interval of no width too
            return 0.0
        return float(np.exp(brentq(excess, SMALLEST, 0.0)))


class Choices(NamedTuple):
    """Count of how many contenders, and of how many rivals, the best were taken.

    The best of several looks better than it is. That a contender is better could be the luck of the best of its kind, and
    that it is worse the luck of the best rival, so each end of the interval is at the 95 % level for all of them together
    (Bonferroni).
    """

    contenders: int = 1
    rivals: int = 1


ONE_EACH = Choices()


def difference(
    cells: FinishedCells, contender: Contender, rival: Contender, column: Column, choices: Choices = ONE_EACH
) -> Difference:
    """Compute how much better a contender is than its rival, on the benchmarks and seeds that both have.

    The half-width of the interval has two independent parts: that over resampled test images, and that over seeds.

    Parameters
    ----------
    cells : FinishedCells
        Cells of a study.
    contender, rival : Contender
        What is compared.
    column : Column
        What it is compared by.
    choices : Choices, optional
        Of how many each is the best here.

    Returns
    -------
    Difference
        The difference.

    Raises
    ------
    InvalidInput
        If they share no benchmark and seed.
    """
    runs = shared_runs(cells, contender, rival, column)
    if not runs:
        raise InvalidInput(f"{contender.row} and {rival.row} of {cells.name} have no seed in common")
    rows = cells.rows(contender, column)
    rival_rows = cells.rows(rival, column)
    differences = []
    resampled = []
    for run in runs:
        differences.append(column.sign * (rows[run]["value"] - rival_rows[run]["value"]))
        resampled.append(column.sign * (cells.replicates(rows[run]) - cells.replicates(rival_rows[run])))
    mean = float(np.mean(differences))
    low, high = np.nanquantile(np.mean(resampled, axis=0), LIMITS)
    over_seeds = seed_error(cells, contender, rival, column, runs)
    below = Spread(float(mean - low), over_seeds)
    above = Spread(float(high - mean), over_seeds)
    low = mean - below.half_width(ALPHA / choices.contenders)
    high = mean + above.half_width(ALPHA / choices.rivals)
    p_value = choices.rivals * above.level(-mean)
    if mean > 0:
        p_value = choices.contenders * below.level(mean)
    seeds = {seed for _, seed in runs}
    return Difference(mean, *in_range(column.metric, low, high), len(seeds), min(1.0, p_value))


def shared_runs(cells: FinishedCells, contender: Contender, rival: Contender, column: Column) -> list[RunKey]:
    """List the benchmarks and seeds that both contenders have."""
    rival_rows = cells.rows(rival, column)
    return [run for run in cells.rows(contender, column) if run in rival_rows]


def seed_error(
    cells: FinishedCells, contender: Contender, rival: Contender, column: Column, runs: Sequence[RunKey]
) -> SeedError:
    """Compute the standard error of a difference over seeds (and splits).

    Of two networks the variance is the sum of those of both methods. The variance of a method is what is left of its values
    on all rows after a mean for each row and one for each seed: the two-way layout without replication. Of two methods on
    one network it is that of their difference around its mean, over all networks that have both.

    Parameters
    ----------
    cells, contender, rival, column
        As in :func:`difference`.
    runs : sequence of (str, int)
        The benchmarks and seeds that both have.
    """
    values = values_by_row(cells, contender.method, column, runs)
    rival_values = values_by_row(cells, rival.method, column, runs)
    if network(cells, contender.row) == network(cells, rival.row):
        deviation, freedom = within(differences_by_network(cells, values, rival_values))
        variance = deviation**2
    else:
        deviation, freedom = residual(np.array(list(values.values())))
        rival_deviation, rival_freedom = residual(np.array(list(rival_values.values())))
        variance = deviation**2 + rival_deviation**2
        freedom = min(freedom, rival_freedom)  # the rows of both methods are the same networks
    return SeedError(float(np.sqrt(variance / len(runs))), freedom)


def values_by_row(
    cells: FinishedCells, method_name: str, column: Column, runs: Sequence[RunKey]
) -> dict[str, list[float]]:
    """Return the values of a method on some benchmarks and seeds, by the rows that have all of them."""
    values = {}
    for family in cells.study.families:
        rows = cells.rows(Contender(family, method_name), column)
        if set(runs) <= set(rows):
            values[family] = [rows[run]["value"] for run in runs]
    return values


def differences_by_network(
    cells: FinishedCells, values: dict[str, list[float]], rival_values: dict[str, list[float]]
) -> Array:
    """Subtract the values of one method from those of another, a line for each network that has both.

    Parameters
    ----------
    cells : FinishedCells
        Cells of a study.
    values, rival_values : dict of str to list of float
        Values of both methods, by row.
    """
    rival_by_network = {network(cells, row): line for row, line in rival_values.items()}
    by_network = {network(cells, row): line for row, line in values.items()}
    lines = []
    for name, line in by_network.items():
        if name in rival_by_network:
            lines.append(np.subtract(line, rival_by_network[name]))
    return np.array(lines)


def network(cells: FinishedCells, name: str) -> str | None:
    """Return the row whose classifier a row judges with: ConfidNet learns on that of another and leaves it unchanged."""
    row = next(row for row in cells.study.rows if name in (row.family, row.name))
    if row.recipe.startswith("confidnet"):
        return row.checkpoint
    return name


def residual(table: Array) -> tuple[float, int]:
    """Compute the standard deviation after a mean for each row and each column, and its degrees of freedom."""
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return deviation_of(rest, freedom), freedom


def within(table: Array) -> tuple[float, int]:
    """Compute the standard deviation after a mean for each row, and its degrees of freedom."""
    freedom = table.shape[0] * (table.shape[1] - 1)
    rest = table - table.mean(axis=1, keepdims=True)
    return deviation_of(rest, freedom), freedom


def deviation_of(rest: Array, freedom: int) -> float:
    """Compute the standard deviation of what is left after means; zero without degrees of freedom."""
    if freedom == 0:
        return 0.0
    return float(np.sqrt((rest**2).sum() / freedom))


def in_range(metric: str, low: float, high: float) -> tuple[float, float]:
    """Cut the limits of a difference where no difference of two values of the metric can lie."""
    least, most = metrics.info(metric).bounds
    width = most - least
    return float(max(low, -width)), float(min(high, width))
