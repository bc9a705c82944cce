"""Counts of correct, wrong and unknown inputs over a grid of threshold pairs, which the explorer works on.

A page works on these counts alone, so it is as fast for a million samples as for a hundred. Each cell counts the
samples whose highest passed thresholds are its own; the samples accepted at a pair are those of all cells at or above
it on both axes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from twofold.gate.thresholds import gap_middles
from twofold.metrics.operating_points import ood_weight, operating_point, quantile_thresholds
from twofold.typing import Array, Mask

SIDE = 200  # quantile thresholds on each axis

Thresholds = tuple[float, float]  # of the ID score and of the OOD score


class GridRates(NamedTuple):
    """Hold what every pair of thresholds on a grid does.

    Parameters
    ----------
    risk, coverage, f1 : ndarray of shape (n_tau_id, n_tau_ood)
        Risk of what is accepted, coverage of known inputs, and F1.
    """

    risk: Array
    coverage: Array
    f1: Array


class PackedGrid(TypedDict):
    """Hold a grid as text for the page's script: arrays in base64, little-endian.

    Parameters
    ----------
    tau_id, tau_ood : str
        Thresholds as float64.
    kinds : list of str
        Kinds of inputs.
    bytes : int
        Size of an integer of ``counts``.
    counts : str
        Counts as unsigned integers.
    """

    tau_id: str
    tau_ood: str
    kinds: list[str]
    bytes: int
    counts: str


@dataclass(frozen=True, eq=False)
class ThresholdGrid:
    """Count samples over a grid of threshold pairs.

    Parameters
    ----------
    tau_id, tau_ood : ndarray
        Thresholds of the ID score and of the OOD score, ascending.
    kinds : tuple of str
        ``"correct"``, ``"wrong"``, then kinds of unknown inputs.
    counts : ndarray of int, shape (n_kinds, n_tau_id, n_tau_ood)
        Number of samples of a kind whose highest passed thresholds are those of the cell.
    """

    tau_id: Array
    tau_ood: Array
    kinds: tuple[str, ...]
    counts: npt.NDArray[np.unsignedinteger]

    @classmethod
    def from_samples(
        cls,
        kinds: Mapping[str, Mask],
        conf_id: Array,
        conf_ood: Array,
        also: Sequence[Thresholds] = (),
        side: int = SIDE,
    ) -> ThresholdGrid:
        """Count samples of each kind over quantile thresholds of both scores.

        Parameters
        ----------
        kinds : mapping of str to ndarray of bool
            Disjoint masks by name: correct, wrong, then kinds of unknown inputs.
        conf_id, conf_ood : ndarray of shape (n_samples,)
            Confidences of both scores.
        also : sequence of (float, float), default=()
            Pairs of thresholds that must be on the grid.
        side : int, optional
            Number of quantile thresholds on each axis.

        Returns
        -------
        ThresholdGrid
            The counts.

        Notes
        -----
        Thresholds other than ``also`` lie between confidences that occur, so that a gate which computes them in another
        order, and rounds another way, accepts the same samples.

        Examples
        --------
        >>> correct = np.array([True, False, True])
        >>> kinds = {"correct": correct, "wrong": ~correct}
        >>> grid = ThresholdGrid.from_samples(kinds, np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0]))
        >>> grid.accepted(1, 0)
        {'correct': 1, 'wrong': 1}
        """
        tau_id = _axis(conf_id, [tau for tau, _ in also], side)
        tau_ood = _axis(conf_ood, [tau for _, tau in also], side)
        rows = np.searchsorted(tau_id, conf_id, side="right") - 1
        columns = np.searchsorted(tau_ood, conf_ood, side="right") - 1
        shape = len(tau_id), len(tau_ood)
        cell = rows * shape[1] + columns
        counts = np.empty((len(kinds), *shape), np.int64)
        for k, mask in enumerate(kinds.values()):
            counts[k] = np.bincount(cell[mask], minlength=shape[0] * shape[1]).reshape(shape)
        smallest = np.min_scalar_type(int(counts.max()))
        return cls(tau_id, tau_ood, tuple(kinds), counts.astype(smallest))

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

    def locate(self, thresholds: Thresholds) -> tuple[int, int]:
        """Find the lowest thresholds on the grid that are at least these, so that nothing more is accepted than asked.

        Parameters
        ----------
        thresholds : tuple of (float, float)
            Thresholds of the ID score and of the OOD score.

        Returns
        -------
        tuple of (int, int)
            Indices of the thresholds on the grid.
        """
        i = int(np.searchsorted(self.tau_id, thresholds[0]))
        j = int(np.searchsorted(self.tau_ood, thresholds[1]))
        return min(i, len(self.tau_id) - 1), min(j, len(self.tau_ood) - 1)

    def rates(self, ood_share: float | None = None) -> GridRates:
        """Compute risk, ID coverage and F1 at every pair of thresholds.

        Parameters
        ----------
        ood_share : float, optional
            OOD prevalence expected in deployment; by default that of the data.

        Returns
        -------
        GridRates
            Risk, coverage and F1. An empty accepted set has risk 0.
        """
        upside_down = np.flip(self.counts.astype(np.int64), (1, 2))
        accepted = np.flip(upside_down.cumsum(1).cumsum(2), (1, 2))
        correct, known, unknown = accepted[0], accepted[0] + accepted[1], accepted[2:].sum(axis=0)
        n_known, n_unknown = int(known[0, 0]), int(unknown[0, 0])
        total = known + ood_weight(ood_share, n_known, n_unknown) * unknown
        risk = np.where(total > 0, 1.0 - correct / np.maximum(total, 1e-300), 0.0)
        return GridRates(risk, known / n_known, 2.0 * correct / (total + n_known))

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
        accepted, totals = list(self.accepted(i, j).values()), list(self.totals.values())
        n_known, n_unknown = totals[0] + totals[1], sum(totals[2:])
        unknown = ood_weight(ood_share, n_known, n_unknown) * sum(accepted[2:])
        return operating_point(accepted[0], accepted[0] + accepted[1], unknown, n_known)

    def pack(self) -> PackedGrid:
        """Encode the grid as text for the page's script.

        Returns
        -------
        PackedGrid
            Thresholds as float64 and counts in the smallest integer type that fits, both in base64.
        """
        return {
            "tau_id": _base64(self.tau_id.astype("<f8")),
            "tau_ood": _base64(self.tau_ood.astype("<f8")),
            "kinds": list(self.kinds),
            "bytes": self.counts.dtype.itemsize,
            "counts": _base64(self.counts.astype(self.counts.dtype.newbyteorder("<"))),
        }


def _axis(conf: Array, also: Sequence[float], side: int) -> Array:
    """Choose the thresholds of one axis: quantiles placed between samples, and those that were asked for."""
    quantiles = lower_thresholds(quantile_thresholds(conf, side), conf)
    asked = [tau for tau in also if tau > -np.inf]  # the lowest threshold lets everything pass anyway
    return np.unique(np.concatenate([quantiles, asked]))


def lower_thresholds(thresholds: Array, conf: Array) -> Array:
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
    >>> lower_thresholds(np.array([1.0, 3.0]), np.array([3.0, 1.0, 2.0])).tolist()
    [0.5, 2.5]
    """
    levels = np.unique(conf[np.isfinite(conf)])
    if not len(levels):
        return thresholds
    places = np.searchsorted(levels, thresholds)
    movable = np.isfinite(thresholds) & (places < len(levels))
    middles = gap_middles(levels)[np.minimum(places, len(levels) - 1)]
    return np.where(movable, np.minimum(thresholds, middles), thresholds)


def _base64(array: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
