"""The threshold explorer's summary: counts of right, wrong and unknown inputs over a grid of threshold pairs.

A page works on these counts alone, so it is as quick for a million samples as for a hundred. Each cell counts the
samples whose highest passed thresholds are its own; accepted at a pair are all cells at or above it on both axes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold._checks import Array, Mask
from twofold.gate.thresholds import gap_middles
from twofold.metrics._grid import quantile_thresholds
from twofold.metrics.operating_points import ood_weight, operating_point

SIDE = 200  # quantile thresholds on each axis

Counts = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Grid:
    """Count samples over a grid of threshold pairs.

    Parameters
    ----------
    tau_id, tau_ood : ndarray
        Thresholds of the ID score and of the OOD score, ascending.
    kinds : tuple of str
        ``"right"``, ``"wrong"``, then kinds of unknown inputs.
    counts : ndarray of int, shape (n_kinds, n_tau_id, n_tau_ood)
        Number of samples of a kind whose highest passed thresholds are those of the cell.
    """

    tau_id: Array
    tau_ood: Array
    kinds: tuple[str, ...]  # "right", "wrong", then kinds of unknown inputs
    counts: Counts

    @classmethod
    def of(
        cls,
        kind: Mapping[str, Mask],
        conf_id: Array,
        conf_ood: Array,
        also: tuple[tuple[float, float], ...] = (),
        side: int = SIDE,
    ) -> Grid:
        """Count samples of each kind over quantile thresholds of both scores.

        Parameters
        ----------
        kind : mapping of str to ndarray of bool
            Disjoint masks by name: right, wrong, then kinds of unknown inputs.
        conf_id, conf_ood : ndarray of shape (n_samples,)
            Confidences of both scores.
        also : tuple of (float, float), default=()
            Pairs of thresholds that must be on the grid.
        side : int, optional
            Number of quantile thresholds on each axis.

        Returns
        -------
        Grid
            The counts.

        Notes
        -----
        Thresholds other than ``also`` lie between confidences that occur, so that a gate which computes them in another
        order, and rounds another way, accepts the same samples.

        Examples
        --------
        >>> right = np.array([True, False, True])
        >>> grid = Grid.of({"right": right, "wrong": ~right}, np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0]))
        >>> grid.accepted(1, 0)
        {'right': 1, 'wrong': 1}
        """
        axes = []
        for conf, more in ((conf_id, [a for a, _ in also]), (conf_ood, [b for _, b in also])):
            asked = [tau for tau in more if tau > -np.inf]  # what lets all pass is the lowest threshold anyway
            axes.append(np.unique(np.concatenate([lowered(quantile_thresholds(conf, side), conf), asked])))
        rows, columns = (
            np.searchsorted(axis, conf, side="right") - 1 for axis, conf in zip(axes, (conf_id, conf_ood), strict=True)
        )
        shape = len(axes[0]), len(axes[1])
        place = rows * shape[1] + columns
        tables = [np.bincount(place[mask], minlength=shape[0] * shape[1]).reshape(shape) for mask in kind.values()]
        counts = np.stack(tables)
        return cls(axes[0], axes[1], tuple(kind), counts.astype(np.min_scalar_type(int(counts.max()))))

    def accepted(self, i: int, j: int) -> dict[str, int]:
        """Count the samples of each kind that pass a pair of thresholds.

        Parameters
        ----------
        i, j : int
            Indices of the ID threshold and of the OOD threshold.

        Returns
        -------
        dict of str to int
            Number of accepted samples by kind.
        """
        return {kind: int(table[i:, j:].sum()) for kind, table in zip(self.kinds, self.counts, strict=True)}

    @property
    def totals(self) -> dict[str, int]:
        """Number of samples of each kind."""
        return self.accepted(0, 0)

    def place(self, tau_id: float, tau_ood: float) -> tuple[int, int]:
        """Find the lowest thresholds on the grid that are at least these, so that nothing more is accepted than asked.

        Parameters
        ----------
        tau_id, tau_ood : float
            Thresholds of the ID score and of the OOD score.

        Returns
        -------
        tuple of (int, int)
            Indices of the thresholds on the grid.
        """
        found = [
            min(int(np.searchsorted(axis, tau)), len(axis) - 1)
            for axis, tau in ((self.tau_id, tau_id), (self.tau_ood, tau_ood))
        ]
        return found[0], found[1]

    def risks(self, ood_share: float | None = None) -> tuple[Array, Array, Array]:
        """Compute risk, ID coverage and F1 at every pair of thresholds.

        Parameters
        ----------
        ood_share : float, optional
            OOD prevalence expected in deployment; by default that of the data.

        Returns
        -------
        tuple of (ndarray, ndarray, ndarray)
            Risk, coverage and F1, each of shape (n_tau_id, n_tau_ood). An empty accepted set has risk 0.
        """
        passed = np.flip(np.flip(self.counts.astype(np.int64), (1, 2)).cumsum(1).cumsum(2), (1, 2))
        right, known, outside = passed[0], passed[0] + passed[1], passed[2:].sum(axis=0)
        ids, oods = int(known[0, 0]), int(outside[0, 0])
        total = known + ood_weight(ood_share, ids, oods) * outside
        risk = np.where(total > 0, 1.0 - right / np.maximum(total, 1e-300), 0.0)
        return risk, known / ids, 2.0 * right / (total + ids)

    def point(self, i: int, j: int, ood_share: float | None = None) -> dict[str, float]:
        """Describe what a pair of thresholds does, in the words of :func:`twofold.metrics.ds_f1`.

        Parameters
        ----------
        i, j : int
            Indices of the ID threshold and of the OOD threshold.
        ood_share : float, optional
            OOD prevalence expected in deployment; by default that of the data.

        Returns
        -------
        dict of str to float
            Coverage, risk, precision, recall and so on.
        """
        passed, totals = list(self.accepted(i, j).values()), list(self.totals.values())
        ids, oods = totals[0] + totals[1], sum(totals[2:])
        outside = ood_weight(ood_share, ids, oods) * sum(passed[2:])
        return operating_point(passed[0], passed[0] + passed[1], outside, ids)

    def packed(self) -> dict[str, Any]:
        """Encode the grid as text for the page's script.

        Returns
        -------
        dict
            Thresholds as float64 and counts in the smallest integer type that fits, both in base64.
        """
        return {
            "tau_id": _base64(self.tau_id.astype("<f8")),
            "tau_ood": _base64(self.tau_ood.astype("<f8")),
            "kinds": list(self.kinds),
            "bytes": self.counts.dtype.itemsize,
            "counts": _base64(self.counts.astype(self.counts.dtype.newbyteorder("<"))),
        }


def lowered(thresholds: Array, conf: Array) -> Array:
    """Move thresholds to the middle of the gaps below, as :func:`~twofold.gate.thresholds.between_neighbours` does one.

    Parameters
    ----------
    thresholds : ndarray
        Thresholds on ``conf``.
    conf : ndarray of shape (n_samples,)
        The confidences that occur.

    Returns
    -------
    ndarray
        One threshold for each, which accepts the same samples; infinite ones stay.

    Examples
    --------
    >>> lowered(np.array([1.0, 3.0]), np.array([3.0, 1.0, 2.0])).tolist()
    [0.5, 2.5]
    """
    levels = np.unique(conf[np.isfinite(conf)])
    if not len(levels):
        return thresholds
    places = np.searchsorted(levels, thresholds)
    movable = np.isfinite(thresholds) & (places < len(levels))
    middles = gap_middles(levels)[np.minimum(places, len(levels) - 1)]
    return np.where(movable, np.minimum(thresholds, middles), thresholds)


def _base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
