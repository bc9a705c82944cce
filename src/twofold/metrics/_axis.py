"""The cells of one confidence: where they are cut, and how those of several summaries are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Mask
from twofold.errors import InvalidInput

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Axis:
    """Hold the cells of one confidence, ascending; an empty cell has low > high."""

    limit: int  # most cells it may have
    edges: Array | None  # cuts, ascending; None while each distinct value has a cell
    low: Array  # (K,) smallest confidence of each cell
    high: Array  # (K,) largest

    @classmethod
    def start(cls, limit: int, edges: ArrayLike | None, name: str) -> Axis:
        """Make an axis without samples, with these cuts or with none yet."""
        if edges is None:
            return cls(_checks.whole(limit, "cells", 2), None, np.empty(0), np.empty(0))
        cuts = _checks.confidence(edges, name) + 0.0
        falls = cuts[1:] <= cuts[:-1]
        if falls.any():
            row = int(falls.argmax()) + 1
            raise InvalidInput(f"{name} must increase strictly, got {cuts[row]} after {cuts[row - 1]} in row {row}")
        return cls.cut(cuts, len(cuts) + 1)

    @classmethod
    def cut(cls, edges: Array, limit: int) -> Axis:
        """Make an axis without samples whose cells lie between these cuts."""
        count = len(edges) + 1
        return cls(limit, edges, np.full(count, np.inf), np.full(count, -np.inf))

    def __len__(self) -> int:
        return len(self.low)

    @property
    def arrays(self) -> list[Array]:
        """All arrays of the axis."""
        if self.edges is None:
            return [self.low, self.high]
        return [self.low, self.high, self.edges]

    @property
    def mixed(self) -> Mask:
        """Whether each cell holds several values."""
        return self.low < self.high

    def check(self) -> None:
        """Raise unless the arrays, which come from a file, describe ascending cells."""
        for array in self.arrays:
            if array.ndim != 1 or array.dtype != np.float64 or np.isnan(array).any():
                raise ValueError("edges and ends of cells must be float64 without NaN")
        if len(self.low) != len(self.high) or self.limit < 2:
            raise ValueError("every cell needs both ends")
        if self.edges is not None and (len(self) != len(self.edges) + 1 or (np.diff(self.edges) <= 0).any()):
            raise ValueError("edges must ascend and lie between the cells")
        filled = self.low <= self.high
        ends = np.stack([self.low[filled], self.high[filled]], axis=1).ravel()
        if (ends[1:] < ends[:-1]).any():
            raise ValueError("cells must ascend")

    def empty(self) -> Axis:
        """Return the same cuts without samples."""
        if self.edges is None:
            return Axis(self.limit, None, np.empty(0), np.empty(0))
        return Axis.cut(self.edges, self.limit)


def choose_cuts(values: Array, mass: Integers, limit: int) -> Array:
    """Return cut points for at most ``limit`` cells; ``values`` ascend and are distinct.

    Where all values fit, each keeps a cell, and the heaviest are closed above too while cuts last. Otherwise
    cells have about equal mass, and a value with more than the mass of two cells is cut out on both sides:
    it takes two cuts and frees as much mass, so the other cells stay as fine as they were.
    """
    if len(values) <= limit:
        below = values if len(values) < limit else values[1:]
        closed = values[np.argsort(-mass, kind="stable")[: limit - 1 - len(below)]]
    else:
        heavy = mass * limit > 2 * mass.sum()  # fewer than limit / 2 of them
        closed, light, load = values[heavy], values[~heavy], mass[~heavy]
        left = limit - 1 - 2 * len(closed)
        wanted = np.arange(1, left + 1) * (float(load.sum()) / (left + 1))
        place = np.searchsorted(np.cumsum(load) - load, wanted)
        below = np.concatenate((closed, light[place[place < len(light)]]))
    with np.errstate(over="ignore", under="ignore"):  # beside the largest float and beside 0
        above = np.nextafter(closed, np.inf)
    cuts = np.unique(np.concatenate((below, above)))
    return cuts[cuts > -np.inf]  # nothing lies below -inf


def join_axes(axes: Sequence[Axis], masses: Sequence[Integers], name: str) -> tuple[Axis, list[Integers]]:
    """Merge axes, and map each of their cells to a cell of the result; axes without cuts may repeat values."""
    edges = _common_edges(axes, name)
    if edges is None:
        limit = _common_limit(axes)
        lows = [axis.low for axis in axes]
        values, where = np.unique(np.concatenate(lows), return_inverse=True)
        if len(values) <= limit:
            ends = np.cumsum([len(axis) for axis in axes])[:-1]
            return Axis(limit, None, values, values), list(np.split(where, ends))
        mass = np.bincount(where, np.concatenate(masses)).astype(np.int64)
        edges = choose_cuts(values, mass, limit)
    else:
        limit = next(axis.limit for axis in axes if axis.edges is not None)
    result = Axis.cut(edges, limit)
    places = []
    for axis in axes:
        if axis.edges is None:
            place = np.searchsorted(edges, axis.low, side="right")
        else:
            place = np.arange(len(axis))
        np.minimum.at(result.low, place, axis.low)
        np.maximum.at(result.high, place, axis.high)
        places.append(place)
    return result, places


def _common_edges(axes: Sequence[Axis], name: str) -> Array | None:
    """Return the cuts that all axes with cuts share; None if none has any."""
    edges = None
    for axis in axes:
        if axis.edges is None:
            continue
        if edges is None:
            edges = axis.edges
        elif not np.array_equal(axis.edges, edges):
            raise InvalidInput(
                f"the summaries have different cuts of {name}, so their counts do not add up; "
                "start all of them from one summary.freeze().empty(), or give all the same edges"
            )
    return edges


def _common_limit(axes: Sequence[Axis]) -> int:
    limits = sorted({axis.limit for axis in axes})
    if len(limits) > 1:
        raise InvalidInput(f"the summaries have different numbers of cells: {', '.join(map(str, limits))}")
    return limits[0]


def move_counts(counts: Integers, places: Sequence[Integers], shape: tuple[int, ...]) -> Integers:
    """Move each cell of a table of counts to its place in a table of another shape."""
    stays = counts.shape == shape and all(np.array_equal(place, np.arange(len(place))) for place in places)
    if stays:
        return counts.copy()
    moved = np.zeros(shape, np.int64)
    np.add.at(moved, np.ix_(*places), counts)
    return moved
