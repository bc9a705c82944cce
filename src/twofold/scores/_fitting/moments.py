r"""Class means and covariances of features, accumulated in float64 over blocks of rows and mergeable.

A memory-mapped training set is read once, a block at a time: O(D^2 + C D) memory, whatever the number of rows. Sums are
taken about a fixed shift (the mean of the first block), which keeps the digits that plain sums of squares would lose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twofold.errors import InvalidInput
from twofold.outputs import release
from twofold.scores._fitting.shared import once
from twofold.scores._fitting.summary import RowsNeeded, Summary
from twofold.typing import Array, Floats, Labels, Mask

ROWS = 4096  # of a block
ENTRIES = 10_000_000  # sorted at once
BINS = 4096  # of a histogram that narrows a percentile


def blocks(*arrays: Floats, rows: int = ROWS) -> Iterator[tuple[Array, ...]]:
    """Iterate over the same rows of each array in float64; pages of memory-mapped arrays are released.

    Parameters
    ----------
    *arrays : ndarray of shape (n_samples, ...)
        Arrays of equal length.
    rows : int, default=4096
        Rows of a block.

    Yields
    ------
    tuple of ndarray
        The rows of each array.

    Examples
    --------
    >>> [block.shape for (block,) in blocks(np.zeros((5, 2)), rows=3)]
    [(3, 2), (2, 2)]
    """
    for first in range(0, len(arrays[0]), rows):
        yield tuple(np.asarray(array[first : first + rows], dtype=np.float64) for array in arrays)
        for array in arrays:
            release(array)


def mean_feature(features: Floats) -> Array:
    """Compute the mean of all rows as one plain sum, a block at a time.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.

    Returns
    -------
    ndarray of shape (n_features,)
        The mean.

    Examples
    --------
    >>> mean_feature(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([2., 3.])
    """
    if isinstance(features, Summary):
        return moments(features).mean
    total = np.zeros(features.shape[1])
    for (h,) in blocks(features):
        total += h.sum(axis=0)
    return total / len(features)


@dataclass(frozen=True, eq=False)
class Moments:
    """Hold counts, sums and second moments of features about ``shift``, by class.

    Parameters
    ----------
    shift : ndarray of shape (n_features,)
        Point about which sums are taken.
    count : ndarray of shape (n_classes,)
        Rows of each class.
    total : ndarray of shape (n_classes, n_features)
        Sums of ``h - shift``.
    square : ndarray of shape (n_features, n_features)
        Sum of ``(h - shift)(h - shift)^T`` over all rows.
    """

    shift: Array
    count: Array
    total: Array
    square: Array

    @classmethod
    def of(cls, features: Floats, labels: Labels, classes: int) -> Moments:
        """Compute the moments of the rows with a label of at least 0, a block at a time.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Class of each row; rows labelled -1 are left out.
        classes : int
            Number of classes.

        Returns
        -------
        Moments
            The moments.

        Raises
        ------
        InvalidInput
            If every label is -1.
        """
        shift = np.asarray(features[:ROWS], dtype=np.float64).mean(axis=0)
        count, total = np.zeros(classes), np.zeros((classes, len(shift)))
        square = np.zeros((len(shift), len(shift)))
        for first in range(0, len(features), ROWS):
            truth = np.asarray(labels[first : first + ROWS])
            known = truth >= 0
            h = np.asarray(features[first : first + ROWS], dtype=np.float64)[known] - shift
            truth = truth[known]
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
        gap = other.shift - self.shift  # move the other's sums to our shift
        moved = other.total + other.count[:, None] * gap
        across = np.outer(other.total.sum(axis=0), gap)
        square = other.square + across + across.T + other.count.sum() * np.outer(gap, gap)
        return Moments(self.shift, self.count + other.count, self.total + moved, self.square + square)

    @property
    def present(self) -> Mask:
        """Which classes have at least one row."""
        return self.count > 0

    @property
    def mean(self) -> Array:
        """Mean (D,) of all rows."""
        return self.shift + self.total.sum(axis=0) / self.count.sum()

    @property
    def floor(self) -> float:
        """Variance that rounding alone may give to rows of this size."""
        return rounding_variance(self.mean)

    @property
    def class_means(self) -> Array:
        """Class means (C, D); the overall mean for a class without rows."""
        own = self.shift + self.total / np.maximum(self.count, 1)[:, None]
        return np.where(self.present[:, None], own, self.mean)

    @property
    def covariance(self) -> Array:
        """Covariance (D, D) of all rows about their mean, 1/N."""
        n, away = self.count.sum(), self.mean - self.shift
        return _symmetric(self.square / n - np.outer(away, away))

    @property
    def within(self) -> Array:
        """Covariance (D, D) of the rows about their class means, 1/N."""
        scaled = self.total / np.sqrt(np.maximum(self.count, 1))[:, None]
        return _symmetric((self.square - scaled.T @ scaled) / self.count.sum())


@once
def moments(features: Floats, labels: Labels | None = None, classes: int = 1) -> Moments:
    """Compute the moments of a training set, once for all scores.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.
    labels : ndarray of shape (n_samples,), optional
        Class of each row; by default all rows are one class.
    classes : int, default=1
        Number of classes.

    Returns
    -------
    Moments
        The moments.

    Raises
    ------
    InvalidInput
        If every label is -1.
    """
    if isinstance(features, Summary):
        return _merged_moments(features, labels)
    if labels is None:
        labels = np.zeros(len(features), np.int64)
    return Moments.of(features, labels, classes)


def _merged_moments(features: Summary, labels: object) -> Moments:
    """Return the moments that partitions added up, by class or, without labels, of all rows together."""
    merged: Moments = features.moments
    if labels is not None:
        if labels is not features.labels:
            raise RowsNeeded("moments are known by label, and not by anything else")
        return merged
    return Moments(merged.shift, merged.count.sum()[None], merged.total.sum(axis=0)[None], merged.square)


@once
def percentile(features: Floats, share: float) -> float:
    """Compute a percentile of all entries, rows and columns together, as NumPy does, from a stream of blocks.

    Histograms narrow the range that holds it until what is left fits in memory.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.
    share : float
        The percentile, in [0, 100].

    Returns
    -------
    float
        The percentile, interpolated between the two nearest entries.

    Examples
    --------
    >>> percentile(np.array([[0.0, 1.0], [2.0, 3.0]]), 50.0)
    1.5
    """
    place = share / 100.0 * (features.size - 1)
    rank = int(place)
    low, high, below, held = _narrow(features, rank)
    if low == high:
        few = np.array([low])
    else:
        few = np.sort(np.concatenate(list(_within(features, low, high))))
    first = float(few[min(rank - below, len(few) - 1)])
    if rank + 1 - below < held:
        second = float(few[min(rank + 1 - below, len(few) - 1)])
    else:
        second = _least_above(features, high, default=first)
    return first + (second - first) * (place - rank)


def _narrow(features: Floats, rank: int) -> tuple[float, float, int, int]:
    """Find a range that holds the entry of this rank, how many entries are below it, and how many are in it."""
    low, high, below, held = -np.inf, np.inf, 0, features.size
    while held > ENTRIES:
        low, high = _bounds(features, low, high)
        if low == high:
            break
        edges = np.linspace(low, high, BINS + 1)
        counts = np.zeros(BINS, np.int64)
        for entries in _within(features, low, high):
            counts += np.histogram(entries, edges)[0]
        bin_ = int(np.searchsorted(below + np.cumsum(counts), rank, side="right"))
        below, held = below + int(counts[:bin_].sum()), int(counts[bin_])
        low = edges[bin_]
        if bin_ < BINS - 1:  # the last bin holds its upper edge, the others do not
            high = max(low, np.nextafter(edges[bin_ + 1], -np.inf))
    return low, high, below, held


def _bounds(features: Floats, low: float, high: float) -> tuple[float, float]:
    """Return the least and the largest entry in a closed range."""
    least, largest = np.inf, -np.inf
    for entries in _within(features, low, high):
        least, largest = min(least, entries.min()), max(largest, entries.max())
    return least, largest


def _least_above(features: Floats, limit: float, default: float) -> float:
    """Return the least entry above a limit, or the default if there is none."""
    least = np.inf
    for entries in _within(features, np.nextafter(limit, np.inf), np.inf):
        least = min(least, float(entries.min()))
    return least if np.isfinite(least) else default


def _within(features: Floats, low: float, high: float) -> Iterator[Array]:
    """Iterate over the entries in a closed range, a block at a time; blocks without any are left out."""
    for (h,) in blocks(features):
        inside = h[(h >= low) & (h <= high)]
        if inside.size:
            yield inside


@once
def spectrum(features: Floats) -> tuple[Array, Array]:
    """Compute the principal components of all rows about their mean.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.

    Returns
    -------
    values : ndarray of shape (n_features,)
        Variances along the directions, largest first.
    vectors : ndarray of shape (n_features, n_features)
        Directions, in columns.
    """
    values, vectors = np.linalg.eigh(moments(features).covariance)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def rounding_variance(mean: Array) -> float:
    """Compute the variance that rounding alone may give to rows of this size.

    Parameters
    ----------
    mean : ndarray of shape (n_features,)
        Mean of the rows.

    Returns
    -------
    float
        The variance.
    """
    return float(1e-24 * (mean @ mean))


def _symmetric(matrix: Array) -> Array:
    """Remove the asymmetry of rounding."""
    return (matrix + matrix.T) / 2.0


def whitening(covariance: Array, floor: float = 0.0) -> Array:
    r"""Compute a lower triangular matrix L with :math:`L L^T = \Sigma^+`.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
        The matrix :math:`\Sigma`.
    floor : float, default=0.0
        Variance that counts as none.

    Returns
    -------
    ndarray of shape (n_features, n_directions)
        The matrix L; directions without variance are left out.

    Raises
    ------
    InvalidInput
        If no direction has variance.

    Notes
    -----
    Eigenvalues below 1e-10 of the largest times D, or at most ``floor``, count as zero: collapsed features and dead
    units are normal.

    Examples
    --------
    >>> np.abs(whitening(np.diag([4.0, 0.0])))
    array([[0.5],
           [0. ]])
    """
    values, vectors = np.linalg.eigh(covariance)
    keep = values > max(1e-10 * max(values[-1], 0.0) * len(values), floor)
    if not keep.any():
        raise InvalidInput("the training features do not vary; a covariance of zeros has no inverse")
    scaled = vectors[:, keep] / np.sqrt(values[keep])
    triangular = np.linalg.qr(scaled.T)[1]
    return np.ascontiguousarray(triangular.T)


def whiten_rows(rows: Array, lower: Array, parts: int = 4) -> Array:
    """Compute ``rows @ lower`` for a lower triangular matrix, without most of the products with its zeros.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Rows to whiten.
    lower : ndarray of shape (n_features, n_directions)
        What :func:`whitening` returns.
    parts : int, default=4
        Number of blocks of columns.

    Returns
    -------
    ndarray of shape (n_samples, n_directions)
        The product.

    Examples
    --------
    >>> whiten_rows(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [4.0, 5.0]]))
    array([[11., 10.]])
    """
    result = np.empty((len(rows), lower.shape[1]))
    step = -(-lower.shape[1] // parts)
    for first in range(0, lower.shape[1], step):
        columns = slice(first, first + step)
        np.matmul(rows[:, first:], lower[first:, columns], out=result[:, columns])
    return result
