r"""Class means and covariances of features, accumulated in float64 over blocks of rows and mergeable.

A memory-mapped training set is read once, a block at a time: O(D^2 + C D) memory, whatever the number of rows. Sums are
taken about a fixed shift (the mean of the first block), which keeps the digits that plain sums of squares would lose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twofold._checks import Array, Labels, Mask
from twofold._math import Floats
from twofold.errors import InvalidInput
from twofold.outputs import release
from twofold.scores._fitting.shared import once

ROWS = 4096  # of a block
ENTRIES = 10_000_000  # sorted at once


def blocks(*arrays: Floats, rows: int = ROWS) -> Iterator[tuple[Array, ...]]:
    """The same rows of each array in float64, a block at a time; pages of memory-mapped arrays are given back."""
    for first in range(0, len(arrays[0]), rows):
        yield tuple(np.asarray(a[first : first + rows], dtype=np.float64) for a in arrays)
        for array in arrays:
            release(array)


@dataclass(frozen=True, eq=False)
class Moments:
    """Counts, sums and second moments of features about ``shift``, by class."""

    shift: Array  # (D,)
    count: Array  # (C,) rows of each class
    total: Array  # (C, D) sums of h - shift
    square: Array  # (D, D) sum of (h - shift)(h - shift)^T over all rows

    @classmethod
    def of(cls, features: Floats, labels: Labels, classes: int) -> Moments:
        """Moments of the rows with a label of at least 0, a block at a time."""
        shift = np.asarray(features[:ROWS], dtype=np.float64).mean(axis=0)
        count, total = np.zeros(classes), np.zeros((classes, len(shift)))
        square = np.zeros((len(shift), len(shift)))
        for first in range(0, len(features), ROWS):
            truth = np.asarray(labels[first : first + ROWS])
            h = np.asarray(features[first : first + ROWS], dtype=np.float64)[truth >= 0] - shift
            truth = truth[truth >= 0]
            count += np.bincount(truth, minlength=classes)
            order = np.argsort(truth, kind="stable")
            present, starts = np.unique(truth[order], return_index=True)
            if len(present):
                total[present] += np.add.reduceat(h[order], starts, axis=0)
            square += h.T @ h
            release(features)
        if not count.any():
            raise InvalidInput("labels must name a class for at least one training row; all are -1")
        return cls(shift, count, total, square)

    def __add__(self, other: Moments) -> Moments:
        """The moments of both sets of rows."""
        gap = other.shift - self.shift  # move the other's sums to our shift
        moved = other.total + other.count[:, None] * gap
        across = np.outer(other.total.sum(axis=0), gap)
        square = other.square + across + across.T + other.count.sum() * np.outer(gap, gap)
        return Moments(self.shift, self.count + other.count, self.total + moved, self.square + square)

    @property
    def present(self) -> Mask:
        """Classes with at least one row."""
        return self.count > 0

    @property
    def mean(self) -> Array:
        """(D,) mean of all rows."""
        return self.shift + self.total.sum(axis=0) / self.count.sum()

    @property
    def floor(self) -> float:
        """Variance that rounding alone may give to rows of this size."""
        return rounding(self.mean)

    @property
    def class_means(self) -> Array:
        """(C, D) class means; the overall mean for a class without rows."""
        own = self.shift + self.total / np.maximum(self.count, 1)[:, None]
        return np.where(self.present[:, None], own, self.mean)

    @property
    def covariance(self) -> Array:
        """(D, D) covariance of all rows about their mean, 1/N."""
        n, away = self.count.sum(), self.mean - self.shift
        return _symmetric(self.square / n - np.outer(away, away))

    @property
    def within(self) -> Array:
        """(D, D) covariance of the rows about their class means, 1/N."""
        scaled = self.total / np.sqrt(np.maximum(self.count, 1))[:, None]
        return _symmetric((self.square - scaled.T @ scaled) / self.count.sum())


@once
def moments(features: Floats, labels: Labels | None = None, classes: int = 1) -> Moments:
    """The moments of a training set, computed once for all scores; without labels all rows are one class."""
    return Moments.of(features, np.zeros(len(features), np.int64) if labels is None else labels, classes)


@once
def percentile(features: Floats, share: float) -> float:
    """The percentile of all entries, rows and columns together, as NumPy's, from a stream of blocks.

    Histograms narrow the range that holds it until what is left fits in memory.

    >>> percentile(np.array([[0.0, 1.0], [2.0, 3.0]]), 50.0)
    1.5
    """
    place = share / 100.0 * (features.size - 1)
    rank, low, high, below, held = int(place), -np.inf, np.inf, 0, features.size
    while held > ENTRIES:
        low, high = (
            min(h.min() for h in _within(features, low, high)),
            max(h.max() for h in _within(features, low, high)),
        )
        if low == high:
            break
        edges = np.linspace(low, high, 4097)
        counts = np.sum([np.histogram(h, edges)[0] for h in _within(features, low, high)], axis=0)
        bin_ = int(np.searchsorted(below + np.cumsum(counts), rank, side="right"))
        below, held = below + int(counts[:bin_].sum()), int(counts[bin_])
        low = edges[bin_]
        high = high if bin_ == len(counts) - 1 else max(low, np.nextafter(edges[bin_ + 1], -np.inf))
    few = np.array([low]) if low == high else np.sort(np.concatenate([*_within(features, low, high)]))
    first = float(few[min(rank - below, len(few) - 1)])
    if rank + 1 - below < held:
        second = float(few[min(rank + 1 - below, len(few) - 1)])
    else:
        second = min((float(h.min()) for h in _within(features, np.nextafter(high, np.inf), np.inf)), default=first)
    return first + (second - first) * (place - rank)


def _within(features: Floats, low: float, high: float) -> Iterator[Array]:
    """The entries in a closed range, a block at a time; blocks without any are passed over."""
    for (h,) in blocks(features):
        inside = h[(h >= low) & (h <= high)]
        if inside.size:
            yield inside


@once
def spectrum(features: Floats) -> tuple[Array, Array]:
    """Eigenvalues, largest first, and eigenvectors (columns) of the covariance of all rows about their mean."""
    values, vectors = np.linalg.eigh(moments(features).covariance)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def rounding(mean: Array) -> float:
    """Variance that rounding alone may give to rows of this size."""
    return float(1e-24 * (mean @ mean))


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2.0


def whitening(covariance: Array, floor: float = 0.0) -> Array:
    r"""(D, R) lower triangular matrix L with :math:`L L^T = \Sigma^+`; directions without variance are left out.

    Eigenvalues below 1e-10 of the largest times D, or at most ``floor``, count as zero: collapsed features and dead
    units are normal.

    >>> np.abs(whitening(np.diag([4.0, 0.0])))
    array([[0.5], [0. ]])
    """
    values, vectors = np.linalg.eigh(covariance)
    keep = values > max(1e-10 * max(values[-1], 0.0) * len(values), floor)
    if not keep.any():
        raise InvalidInput("the training features do not vary; a covariance of zeros has no inverse")
    return np.ascontiguousarray(np.linalg.qr((vectors[:, keep] / np.sqrt(values[keep])).T)[1].T)


def whitened(rows: Array, lower: Array, parts: int = 4) -> Array:
    """``rows @ lower`` for a lower triangular matrix, without most of the products with its zeros.

    >>> whitened(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [4.0, 5.0]]))
    array([[11., 10.]])
    """
    result = np.empty((len(rows), lower.shape[1]))
    step = -(-lower.shape[1] // parts)
    for first in range(0, lower.shape[1], step):
        np.matmul(rows[:, first:], lower[first:, first : first + step], out=result[:, first : first + step])
    return result
