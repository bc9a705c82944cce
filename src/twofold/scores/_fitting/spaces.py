r"""Principal subspaces of training rows, of all of them and of each class, and what a row has outside of them.

Covariances are accumulated in float64 over blocks of rows, so O(D^2) memory is enough; a class with no more rows than
features is taken at once, by its matrix of inner products. Directions are orthonormal rows, by falling variance, and
only those with real variance count: a class of n rows has at most n - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from twofold._checks import Array, Labels, Mask
from twofold._math import Floats
from twofold.errors import InvalidInput
from twofold.outputs import release
from twofold.scores._fitting.moments import ROWS, Moments, moments, rounding, spectrum
from twofold.scores._fitting.shared import once

Map = Callable[[Array], Array]  # rows of features to rows in which the subspaces are sought


class Spaces(NamedTuple):
    """One subspace per class: a mean and orthonormal directions."""

    means: Array  # (C, D); NaN where a class has no row
    bases: Array  # (K, D) directions of all classes, one class after the other
    offsets: Labels  # (C + 1,) those of class c are bases[offsets[c]:offsets[c + 1]]

    @property
    def known(self) -> Mask:
        """Classes with at least one row."""
        return ~np.isnan(self.means[:, 0])

    @property
    def present(self) -> list[int]:
        """Numbers of these classes."""
        return [int(c) for c in np.flatnonzero(self.known)]

    def basis(self, c: int) -> Array:
        """The directions of one class."""
        return self.bases[self.offsets[c] : self.offsets[c + 1]]

    def leaving_one(self) -> Spaces:
        """The same without the last direction of a space that has all of them: something must be left outside."""
        width = self.bases.shape[1]
        full = np.diff(self.offsets) == width
        if not full.any():
            return self
        kept = np.delete(self.bases, self.offsets[1:][full] - 1, axis=0)
        return Spaces(self.means, kept, offsets_of(np.minimum(np.diff(self.offsets), width - 1)))


def global_space(features: Floats, variance: float, components: int | None = None) -> tuple[Array, Array]:
    """Mean (D,) and directions (k, D) of all rows: the fewest that explain a share of the variance, or a fixed number.

    >>> mean, basis = global_space(np.array([[3.0, 1.0], [1.0, 1.0]]), 0.9)
    >>> mean, np.abs(basis)
    (array([2., 1.]), array([[1., 0.]]))
    """
    mean = moments(features).mean
    values, vectors = spectrum(features)
    return mean, np.ascontiguousarray(vectors[:, : dimension(values, rounding(mean), variance, components)].T)


@once
def class_spaces(
    features: Floats, labels: Labels, classes: int, variance: float, components: int | None = None
) -> Spaces:
    """Means (C, D), directions (K, D) and offsets (C + 1,) of the classes; rows labelled -1 are left out.

    >>> h, y = np.array([[3.0, 1.0], [1.0, 1.0], [7.0, 7.0]]), np.array([0, 0, 2])
    >>> means, bases, offsets = class_spaces(h, y, 3, 0.9)
    >>> means, np.abs(bases), offsets
    (array([[ 2.,  1.], [nan, nan], [ 7.,  7.]]), array([[1., 0.]]), array([0, 1, 1, 1]))
    """
    return mapped_spaces(features, labels, classes, lambda rows: rows, variance, components)


def mapped_spaces(
    features: Floats, labels: Labels, classes: int, mapping: Map, variance: float, components: int | None = None
) -> Spaces:
    """The subspaces of the classes after a map of the rows; one class is in memory at a time."""
    width = mapping(np.asarray(features[:1], dtype=np.float64)).shape[1]
    means, counts, bases = np.full((classes, width), np.nan), np.zeros(classes, np.int64), []
    for c, rows in groups(labels, classes):
        parts = (mapping(part) for part in _gathered(features, rows))
        means[c], basis = _space(parts, len(rows), width, variance, components)
        counts[c] = len(basis)
        bases.append(basis)
    return Spaces(means, np.concatenate(bases), offsets_of(counts))


def groups(labels: Labels, classes: int) -> Iterator[tuple[int, Labels]]:
    """Each class with rows, and the indices of its rows in order."""
    truth = np.asarray(labels)
    order = np.argsort(truth, kind="stable")
    bounds = np.searchsorted(truth[order], np.arange(classes + 1))
    if bounds[0] == bounds[-1]:
        raise InvalidInput("labels must name a class for at least one training row; all are -1")
    for c in np.flatnonzero(np.diff(bounds)):
        yield int(c), order[bounds[c] : bounds[c + 1]]


def dimension(values: Array, floor: float, variance: float, components: int | None = None) -> int:
    """How many of the variances, largest first, to keep; those at or below ``floor``, or rounding, are none at all.

    >>> dimension(np.array([6.0, 3.0, 1.0, 1e-20]), 0.0, 0.9)
    2
    """
    real = int((values > max(floor, 1e-12 * len(values) * values[0])).sum())
    if real == 0 or components is not None:
        return min(components or 0, real)
    share = np.cumsum(values[:real])
    return int(np.searchsorted(share / share[-1], variance - 1e-12)) + 1


def outside(rows: Array, basis: Array) -> Array:
    """Length of what each row has outside the span of the orthonormal rows of ``basis``.

    >>> outside(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]))
    array([4.])
    """
    inside = rows @ basis.T
    square = np.einsum("nd,nd->n", rows, rows)
    left = square - np.einsum("nk,nk->n", inside, inside)
    thin = left < 1e-4 * square  # the difference has lost digits
    if thin.any():
        rest = rows[thin] - inside[thin] @ basis
        left[thin] = np.einsum("nd,nd->n", rest, rest)
    return np.sqrt(left)


def over_classes(
    error: Callable[[Array, int], Array], rows: Array, known: Mask, chosen: Labels | None, name: str
) -> Array:
    """The error of each row for its chosen class; without a choice the least over the classes with training rows."""
    result = np.full(len(rows), np.inf)
    if chosen is None:
        for c in np.flatnonzero(known):
            np.minimum(result, error(rows, int(c)), out=result)
        return result
    lost = ~known[chosen]
    if lost.any():
        raise InvalidInput(f"{name}: class {chosen[lost][0]} is predicted, and had no training row")
    for c in np.unique(chosen):
        mine = chosen == c
        result[mine] = error(rows[mine], int(c))
    return result


def _gathered(features: Floats, rows: Labels) -> Iterator[Array]:
    for first in range(0, len(rows), ROWS):
        yield np.asarray(features[rows[first : first + ROWS]], dtype=np.float64)
        release(features)


def _space(
    parts: Iterable[Array], rows: int, width: int, variance: float, components: int | None
) -> tuple[Array, Array]:
    """Mean and directions of the rows in ``parts``, by the smaller of the two matrices of products."""
    if rows > width:
        whole = reduce(add, (Moments.of(part, np.zeros(len(part), np.int64), 1) for part in parts))
        values, vectors = np.linalg.eigh(whole.covariance)
        kept = dimension(values[::-1], rounding(whole.mean), variance, components)
        return whole.mean, vectors[:, ::-1][:, :kept].T
    x = np.concatenate(list(parts))
    mean = x.mean(axis=0)
    x -= mean
    values, vectors = np.linalg.eigh(x @ x.T / rows)
    kept = dimension(values[::-1], rounding(mean), variance, components)
    # the triangular step makes weak directions orthogonal to strong ones, which the eigenvectors leave to rounding
    return mean, np.linalg.qr(x.T @ vectors[:, ::-1][:, :kept])[0].T


def check_offsets(offsets: Labels, rows: int, what: str) -> None:
    """Raise unless the offsets cut this many rows into one part for each class."""
    steps = np.diff(offsets.astype(np.int64))
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != rows or (steps < 0).any():
        raise InvalidInput(f"offsets must rise from 0 to the {rows} rows of {what}")


def check_means(means: Array) -> None:
    """Raise unless at least one class has a mean, and each mean is either whole or NaN all over."""
    unknown = np.isnan(means)
    if unknown.all() or (unknown.any(axis=1) != unknown.all(axis=1)).any():
        raise InvalidInput("a row of the class means must be NaN as a whole or not at all, and one must be known")


def offsets_of(counts: Labels) -> Labels:
    """Where each class begins, and the end."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
