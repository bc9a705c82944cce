"""Intervals of signed gains, for the scripts that decide claims: over networks, over resamples, over images, of rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, norm, rankdata, t, ttest_1samp

from twofold.errors import InvalidInput

TAIL = 0.025  # of a 95 % interval


@dataclass(frozen=True)
class Gain:
    """Hold a signed gain with its 95 % interval and the two-sided p-value of no gain."""

    value: float
    low: float
    high: float
    p: float


def show_gain(gain: Gain, *, factor: float = 100, digits: int = 2) -> str:
    """Write a gain with its interval, in percentage points unless `factor` says otherwise."""
    value, low, high = (factor * number for number in (gain.value, gain.low, gain.high))
    return f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def student(values: Sequence[float], *, tests: int = 1) -> Gain:
    """Compute the mean of values, for instance of networks, with Student's interval.

    With several `tests`, interval and p-value hold for all of them together (Bonferroni).
    """
    if len(values) < 2:
        raise InvalidInput(f"an interval needs at least two values, got {len(values)}")
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    width = float(t.ppf(1 - TAIL / tests, len(values) - 1)) * error
    p = 1.0 if error == mean == 0.0 else float(ttest_1samp(values, 0.0).pvalue)
    return Gain(mean, mean - width, mean + width, min(1.0, tests * p))


def normal(value: float, error: float, *, tests: int = 1) -> Gain:
    """Compute the normal interval of a value with a known standard error, for several `tests` as in :func:`student`."""
    if error == 0.0:
        return Gain(value, value, value, float(value == 0.0))
    width = float(norm.ppf(1 - TAIL / tests)) * error
    return Gain(value, value - width, value + width, min(1.0, 2 * tests * float(norm.sf(abs(value) / error))))


def of_replicates(value: float, replicates: np.ndarray) -> Gain:
    """Compute the percentile interval and the p-value of bootstrap replicates, as ``twofold.stats.bootstrap`` does."""
    low, high = np.quantile(replicates, [TAIL, 1 - TAIL])
    least = min(int((replicates <= 0).sum()), int((replicates >= 0).sum()))
    return Gain(value, float(low), float(high), min(1.0, 2 * (1 + least) / (len(replicates) + 1)))


def exact_rate(count: int, total: int) -> tuple[float, float]:
    """Compute the interval of Clopper and Pearson of a rate."""
    low = float(beta.ppf(TAIL, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - TAIL, count + 1, total - count)) if count < total else 1.0
    return low, high


@dataclass(frozen=True)
class Placements:
    """Hold the share of failures that each trusted row beats, and the share of trusted rows that beat each failure.

    The mean of either is the AUROC, and their variances give its standard error (DeLong et al., Biometrics 1988).
    Placements of several scores on the same rows may be averaged: the AUROC is then the mean of theirs.
    """

    trusted: np.ndarray
    failures: np.ndarray

    @property
    def auroc(self) -> float:
        """The AUROC, ties counted half."""
        return float(self.trusted.mean())


def place(trusted: np.ndarray, failures: np.ndarray) -> Placements:
    """Compute placements of confidences, by ranks."""
    ranks = rankdata(np.concatenate([trusted, failures]))
    first, second = len(trusted), len(failures)
    beaten = (ranks[:first] - rankdata(trusted)) / second
    beating = 1.0 - (ranks[first:] - rankdata(failures)) / first
    return Placements(beaten, beating)


def average(placements: Sequence[Placements]) -> Placements:
    """Average the placements of several scores on the same rows."""
    trusted = np.mean([one.trusted for one in placements], axis=0)
    failures = np.mean([one.failures for one in placements], axis=0)
    return Placements(trusted, failures)


def delong(one: Placements, other: Placements, *, tests: int = 1) -> Gain:
    """Compute the paired difference of two AUROCs on the same rows, for several `tests` as in :func:`student`."""
    rows = one.trusted - other.trusted
    columns = one.failures - other.failures
    error = float(np.sqrt(rows.var(ddof=1) / len(rows) + columns.var(ddof=1) / len(columns)))
    return normal(one.auroc - other.auroc, error, tests=tests)


def delong_other_failures(one: Placements, other: Placements) -> Gain:
    """Compute the difference of AUROCs of one score on two unknown sets, which share the trusted rows only."""
    rows = one.trusted - other.trusted
    apart = one.failures.var(ddof=1) / len(one.failures) + other.failures.var(ddof=1) / len(other.failures)
    error = float(np.sqrt(rows.var(ddof=1) / len(rows) + apart))
    return normal(one.auroc - other.auroc, error)
