r"""Principal subspaces of training rows, of all of them and of each class, and what a row has outside of them.

Covariances are accumulated in float64 over blocks of rows, so O(D^2) memory is enough; a class with no more rows than
features is taken at once, by its matrix of inner products. Directions are orthonormal rows, by falling variance, and
only those with real variance count: a class of n rows has at most n - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from twofold.errors import InvalidInput
from twofold.outputs import release
from twofold.scores._fitting.moments import ROWS, Moments, moments, rounding_variance, spectrum
from twofold.scores._fitting.shared import once
from twofold.typing import Array, Floats, Labels, Mask

UNFILTERED = "project/unfiltered"  # layer with the features before ``project`` filtered them

Map = Callable[[Array], Array]  # rows of features to rows in which the subspaces are sought


class Spaces(NamedTuple):
    """Hold one subspace per class: a mean and orthonormal directions.

    Parameters
    ----------
    means : ndarray of shape (n_classes, n_features)
        Class means; NaN where a class has no row.
    bases : ndarray of shape (n_directions, n_features)
        Directions of all classes, one class after the other.
    offsets : ndarray of shape (n_classes + 1,)
        Those of class c are ``bases[offsets[c]:offsets[c + 1]]``.
    """

    means: Array
    bases: Array
    offsets: Labels

    @property
    def known(self) -> Mask:
        """Which classes have at least one row."""
        return ~np.isnan(self.means[:, 0])

    @property
    def present(self) -> list[int]:
        """Numbers of these classes."""
        classes: list[int] = np.flatnonzero(self.known).tolist()
        return classes

    def basis(self, c: int) -> Array:
        """Return the directions of one class.

        Parameters
        ----------
        c : int
            The class.

        Returns
        -------
        ndarray of shape (n_directions, n_features)
            Orthonormal rows.
        """
        return self.bases[self.offsets[c] : self.offsets[c + 1]]

    def error(self, rows: Array, c: int) -> Array:
        """Compute the length of what each row has outside the subspace of one class.

        Parameters
        ----------
        rows : ndarray of shape (n_samples, n_features)
            Rows to measure.
        c : int
            The class.

        Returns
        -------
        ndarray of shape (n_samples,)
            Lengths.
        """
        return outside(rows - self.means[c], self.basis(c))

    def leaving_one(self) -> Spaces:
        """Leave out the last direction of every space that has all of them, so that something is outside of it.

        Returns
        -------
        Spaces
            Spaces with at most one direction fewer than features.
        """
        width = self.bases.shape[1]
        full = np.diff(self.offsets) == width
        if not full.any():
            return self
        kept = np.delete(self.bases, self.offsets[1:][full] - 1, axis=0)
        return Spaces(self.means, kept, offsets_of(np.minimum(np.diff(self.offsets), width - 1)))


def global_space(features: Floats, variance: float, components: int | None = None) -> tuple[Array, Array]:
    """Find the principal subspace of all rows.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.
    variance : float
        Share of the variance that the directions explain at least.
    components : int, optional
        Number of directions, instead of a share of the variance.

    Returns
    -------
    mean : ndarray of shape (n_features,)
        Mean of the rows.
    basis : ndarray of shape (n_directions, n_features)
        Orthonormal directions, by falling variance.

    Examples
    --------
    >>> mean, basis = global_space(np.array([[3.0, 1.0], [1.0, 1.0]]), 0.9)
    >>> mean, np.abs(basis)
    (array([2., 1.]), array([[1., 0.]]))
    """
    mean = moments(features).mean
    values, vectors = spectrum(features)
    kept = dimension(values, rounding_variance(mean), variance, components)
    return mean, np.ascontiguousarray(vectors[:, :kept].T)


@once
def class_spaces(
    features: Floats, labels: Labels, classes: int, variance: float, components: int | None = None
) -> Spaces:
    """Find the principal subspace of each class.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.
    labels : ndarray of shape (n_samples,)
        Class of each row; rows labelled -1 are left out.
    classes : int
        Number of classes.
    variance : float
        Share of the variance that the directions of a class explain at least.
    components : int, optional
        Number of directions, instead of a share of the variance.

    Returns
    -------
    Spaces
        One subspace per class.

    Raises
    ------
    InvalidInput
        If every label is -1.

    Examples
    --------
    >>> h, y = np.array([[3.0, 1.0], [1.0, 1.0], [7.0, 7.0]]), np.array([0, 0, 2])
    >>> spaces = class_spaces(h, y, 3, 0.9)
    >>> spaces.means[2], np.abs(spaces.bases), spaces.offsets
    (array([7., 7.]), array([[1., 0.]]), array([0, 1, 1, 1]))
    """
    return mapped_spaces(features, labels, classes, lambda rows: rows, variance, components)


def mapped_spaces(
    features: Floats, labels: Labels, classes: int, mapping: Map, variance: float, components: int | None = None
) -> Spaces:
    """Find the principal subspace of each class after a map of the rows; one class is in memory at a time.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.
    labels : ndarray of shape (n_samples,)
        Class of each row; rows labelled -1 are left out.
    classes : int
        Number of classes.
    mapping : callable
        Map from rows of features to the rows in which the subspaces are sought.
    variance : float
        Share of the variance that the directions of a class explain at least.
    components : int, optional
        Number of directions, instead of a share of the variance.

    Returns
    -------
    Spaces
        One subspace per class.

    Raises
    ------
    InvalidInput
        If every label is -1.
    """
    width = mapping(np.asarray(features[:1], dtype=np.float64)).shape[1]
    means, counts = np.full((classes, width), np.nan), np.zeros(classes, np.int64)
    bases = []
    for c, rows in groups(labels, classes):
        parts = map(mapping, _gather(features, rows))
        means[c], basis = _find_space(parts, len(rows), width, variance, components)
        counts[c] = len(basis)
        bases.append(basis)
    return Spaces(means, np.concatenate(bases), offsets_of(counts))


def groups(labels: Labels, classes: int) -> Iterator[tuple[int, Labels]]:
    """Iterate over the classes that have rows.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,)
        Class of each row; rows labelled -1 are left out.
    classes : int
        Number of classes.

    Yields
    ------
    c : int
        The class.
    rows : ndarray of shape (n_rows,)
        Indices of its rows, in order.

    Raises
    ------
    InvalidInput
        If every label is -1.
    """
    truth = np.asarray(labels)
    order = np.argsort(truth, kind="stable")
    bounds = np.searchsorted(truth[order], np.arange(classes + 1))
    if bounds[0] == bounds[-1]:
        raise InvalidInput("labels must name a class for at least one training row; all are -1")
    for c in np.flatnonzero(np.diff(bounds)):
        yield int(c), order[bounds[c] : bounds[c + 1]]


def dimension(values: Array, floor: float, variance: float, components: int | None = None) -> int:
    """Count the directions to keep.

    Parameters
    ----------
    values : ndarray of shape (n_features,)
        Variances, largest first.
    floor : float
        Variances at or below this, or the size of rounding errors, count as none.
    variance : float
        Share of the variance that the directions explain at least.
    components : int, optional
        Number of directions, instead of a share of the variance.

    Returns
    -------
    int
        Number of directions.

    Examples
    --------
    >>> dimension(np.array([6.0, 3.0, 1.0, 1e-20]), 0.0, 0.9)
    2
    """
    real = int((values > max(floor, 1e-12 * len(values) * values[0])).sum())
    if real == 0 or components is not None:
        return min(components or 0, real)
    explained = np.cumsum(values[:real])
    return int(np.searchsorted(explained / explained[-1], variance - 1e-12)) + 1


def outside(rows: Array, basis: Array) -> Array:
    """Compute the length of what each row has outside a span.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Rows to measure.
    basis : ndarray of shape (n_directions, n_features)
        Orthonormal rows.

    Returns
    -------
    ndarray of shape (n_samples,)
        Lengths.

    Examples
    --------
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
    """Compute the error of each row for its chosen class, or the least over the classes with training rows.

    Parameters
    ----------
    error : callable
        Function of rows and a class.
    rows : ndarray of shape (n_samples, n_features)
        Rows to measure.
    known : ndarray of shape (n_classes,)
        Which classes have training rows.
    chosen : ndarray of shape (n_samples,) or None
        Class of each row; None takes the least error.
    name : str
        Name of the score, for the error.

    Returns
    -------
    ndarray of shape (n_samples,)
        Errors.

    Raises
    ------
    InvalidInput
        If a chosen class had no training row.
    """
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


def _gather(features: Floats, rows: Labels) -> Iterator[Array]:
    """Iterate over scattered rows in float64, a block at a time."""
    for first in range(0, len(rows), ROWS):
        yield np.asarray(features[rows[first : first + ROWS]], dtype=np.float64)
        release(features)


def _find_space(
    parts: Iterable[Array], rows: int, width: int, variance: float, components: int | None
) -> tuple[Array, Array]:
    """Find mean and directions of the rows in ``parts``, by the smaller of the two matrices of products."""
    if rows > width:
        blocks = (Moments.of(part, np.zeros(len(part), np.int64), 1) for part in parts)
        total = next(blocks)
        for block in blocks:
            total = total + block
        values, vectors = np.linalg.eigh(total.covariance)
        kept = dimension(values[::-1], rounding_variance(total.mean), variance, components)
        return total.mean, vectors[:, ::-1][:, :kept].T
    x = np.concatenate(list(parts))
    mean = x.mean(axis=0)
    x -= mean
    values, vectors = np.linalg.eigh(x @ x.T / rows)
    kept = dimension(values[::-1], rounding_variance(mean), variance, components)
    # the triangular step makes weak directions orthogonal to strong ones, which the eigenvectors leave to rounding
    return mean, np.linalg.qr(x.T @ vectors[:, ::-1][:, :kept])[0].T


def check_offsets(offsets: Labels, rows: int, what: str) -> None:
    """Check that loaded offsets cut rows into one part for each class.

    Parameters
    ----------
    offsets : ndarray of shape (n_classes + 1,)
        Where each class begins, and the end.
    rows : int
        Number of rows that they cut.
    what : str
        Name of the array with these rows.

    Raises
    ------
    InvalidInput
        If the offsets do not rise from 0 to ``rows``.
    """
    steps = np.diff(offsets.astype(np.int64))
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != rows or (steps < 0).any():
        raise InvalidInput(f"offsets must rise from 0 to the {rows} rows of {what}")


def check_means(means: Array) -> None:
    """Check that loaded class means are complete.

    Parameters
    ----------
    means : ndarray of shape (n_classes, n_features)
        Class means.

    Raises
    ------
    InvalidInput
        If no class has a mean, or a mean holds both numbers and NaN.
    """
    unknown = np.isnan(means)
    if unknown.all() or (unknown.any(axis=1) != unknown.all(axis=1)).any():
        raise InvalidInput("a row of the class means must be NaN as a whole or not at all, and one must be known")


def offsets_of(counts: Labels) -> Labels:
    """Compute where each class begins, and the end.

    Parameters
    ----------
    counts : ndarray of shape (n_classes,)
        Directions or rows of each class.

    Returns
    -------
    ndarray of shape (n_classes + 1,)
        Offsets.

    Examples
    --------
    >>> offsets_of(np.array([2, 0, 1]))
    array([0, 2, 2, 3])
    """
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
