r"""Class means and covariances of features, accumulated in float64 over blocks of rows and mergeable.

A memory-mapped training set is read once, a block at a time: O(D^2 + C D) memory, whatever the number of rows. Sums are
taken about a fixed shift (the mean of the first block), which keeps the digits that plain sums of squares would lose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twofold._checks import Array, Labels, Mask
from twofold._math import Floats
from twofold.errors import InvalidInput

ROWS = 4096  # of a block


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
            np.add.at(total, truth, h)
            square += h.T @ h
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


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2.0


def whitening(covariance: Array) -> Array:
    r"""(D, R) matrix L with :math:`L L^T = \Sigma^+`; directions without variance are left out.

    Eigenvalues below 1e-10 of the largest times D count as zero: collapsed features and dead units are normal.

    >>> whitening(np.diag([4.0, 0.0])).round(6).tolist() in ([[0.5], [0.0]], [[-0.5], [0.0]], [[0.5], [-0.0]])
    True
    """
    values, vectors = np.linalg.eigh(covariance)
    keep = values > 1e-10 * max(values[-1], 0.0) * len(values)
    if not keep.any():
        raise InvalidInput("the training features do not vary; a covariance of zeros has no inverse")
    return vectors[:, keep] / np.sqrt(values[keep])
