"""Compute the exact metrics of ordered streams in constant memory: the sorting core without its arrays.

Rows come most confident first. What was accepted before a row, and the open tie group, are all that a single-score
metric needs of the past, so that a stream of any length is reduced to thirteen numbers: seven sums over the distinct
confidences, four largest and two least values. Parts of a stream that know the counts before them reduce to such
numbers too, which merge; that is how a cluster computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold._checks import Array
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.metrics import info
from twofold.metrics._sweep import Sweep
from twofold.metrics.operating_points import ood_weight

Counts = npt.NDArray[np.int64]  # (G, 3): correct, wrong and OOD samples
Kinds = npt.NDArray[np.int8]

TPR = 0.95  # of fpr95


class OrderedSums:
    """Reduce an ordered stream of segments to the sums that every metric is made of.

    Parameters
    ----------
    totals : ndarray of int, shape (n_segments, 3)
        Correct, wrong and OOD samples of the whole group that each segment belongs to.
    share : float or None
        Share of OOD samples expected in deployment.
    rows : ndarray of int, shape (n_segments,), optional
        Rows of each segment in this stream; by default its whole group.
    before : ndarray of int, shape (n_segments, 3), optional
        Samples of the group that came before this stream; by default none.
    cells : int, default=0
        Number of cells of equal mass in which samples are counted along the way, for intervals.

    Examples
    --------
    >>> sums = OrderedSums(np.array([[2, 1, 0]]), None)
    >>> sums.update(np.array([0.9, 0.8, 0.3]), np.array([0, 0, 1], np.int8))
    >>> sums.finish()
    >>> metric_value("aurc", sums.totals[0], None, sums.sums[0]).__round__(4)
    0.1111
    """

    def __init__(
        self,
        totals: Counts,
        share: float | None,
        *,
        rows: Counts | None = None,
        before: Counts | None = None,
        cells: int = 0,
    ) -> None:
        from twofold.logs._kernels import SUMS, clear

        count = len(totals)
        self.totals = np.ascontiguousarray(totals, dtype=np.int64)
        self.rows = self.totals.sum(axis=1) if rows is None else np.asarray(rows, np.int64)
        self.weights = np.array([weigh_ood(share, total) for total in self.totals])
        self.seen = np.zeros((count, 3), np.int64)
        if before is not None:
            self.seen[:] = before
        self.sums = np.empty((count, SUMS))
        for row in self.sums:
            clear(row)
        self.cells = np.zeros((count, cells, 3), np.int64)
        self._held: tuple[Array, Kinds] | None = None  # the last batch, until it is known what follows it
        self._place = np.array([-1, 0])
        self._level = np.array([np.inf])
        self._tie = np.zeros(3, np.int64)
        self._whole = rows is None

    def update(self, conf: Array, kind: Kinds) -> None:
        """Add the next rows.

        Parameters
        ----------
        conf : ndarray of float64, shape (n_rows,)
            Confidences, falling inside each segment.
        kind : ndarray of int8, shape (n_rows,)
            0 for correct, 1 for wrong and 3 for OOD samples.

        Raises
        ------
        InvalidInput
            If a confidence rises inside a segment, or there are more rows than were counted.
        """
        if len(conf) == 0:
            return
        if self._held is not None:
            self._reduce(*self._held, following=float(conf[0]))
        self._held = conf, kind

    def finish(self) -> None:
        """Check that every counted row came.

        Raises
        ------
        InvalidInput
            If rows of a kind are missing.
        """
        if self._held is not None:
            self._reduce(*self._held, following=math.nan)
            self._held = None
        segment, left = self._place
        started = int(segment) + 1
        complete = left == 0 and not self.rows[started:].any()
        if not complete or (self._whole and (self.seen != self.totals).any()):
            raise InvalidInput(CHANGED)

    def add_part(self, segment: int, sums: Array, cells: Counts) -> None:
        """Add the sums of a part of one segment that was reduced elsewhere.

        Parameters
        ----------
        segment : int
            The segment.
        sums : ndarray of shape (13,)
            Its sums over that part.
        cells : ndarray of int, shape (n_cells, 3)
            Its counts in cells over that part.
        """
        from twofold.logs._kernels import merge

        merge(sums, self.sums[segment])
        self.cells[segment] += cells

    def is_untied(self, segment: int) -> bool:
        """Check whether no two ID samples of a segment share a confidence.

        Parameters
        ----------
        segment : int
            The segment.

        Returns
        -------
        bool
            Whether all differ.
        """
        from twofold.logs._kernels import ID_TIED

        return bool(self.sums[segment, ID_TIED] <= 1.0)

    def _reduce(self, conf: Array, kind: Kinds, *, following: float) -> None:
        """Add a batch, given the confidence after its last row."""
        from twofold.logs._kernels import IN_ORDER, TOO_MANY, sweep_rows

        start = float(self._level[0])
        result = sweep_rows(
            conf,
            kind,
            following,
            self.rows,
            self.totals,
            self.weights,
            TPR,
            self._place,
            self._level,
            self._tie,
            self.seen,
            self.sums,
            self.cells,
        )
        if result == TOO_MANY:
            raise InvalidInput(CHANGED)
        if result != IN_ORDER and math.isnan(conf[result]):
            raise InvalidInput(HIDDEN_NAN)
        if result != IN_ORDER:
            before = conf[result - 1] if result else start
            raise InvalidInput(
                f"the engine returned rows out of order: confidence {conf[result]} after {before}; "
                "if nothing writes to the table, please report this"
            )


HIDDEN_NAN = (
    "a confidence is NaN, and DuckDB did not find it when it was asked: statistics of Parquet files leave NaN out; "
    "pass the files themselves, or read them with read_parquet(..., can_have_nan = true)"
)
CHANGED = "the table changed while it was read: its rows no longer match their counts; run again when nothing writes"


def weigh_ood(share: float | None, total: Counts) -> float:
    """Compute the weight of one OOD sample of a group; 1 where the group lacks ID or OOD samples.

    Parameters
    ----------
    share : float or None
        Share of OOD samples expected in deployment.
    total : ndarray of int, shape (3,)
        Correct, wrong and OOD samples.

    Returns
    -------
    float
        The weight.

    Examples
    --------
    >>> weigh_ood(0.5, np.array([6, 2, 4]))
    2.0
    """
    right, wrong, outside = (int(count) for count in total)
    if share is None or not outside or not right + wrong:
        return 1.0
    return ood_weight(share, right + wrong, outside)


@dataclass(frozen=True, eq=False)
class _Group:
    """Hold the counts and sums of one group as plain numbers."""

    right: float
    known: float
    loss: float
    accepted: float
    outside: float
    sums: Array


def _fpr(least: float, total: float) -> float:
    return float(least / total)


def _fpr_unsafe(most: float, total: float) -> float:
    if most < 0:
        return 1.0
    return float((total - most) / total)


def _formulas() -> dict[str, Callable[[_Group], float]]:
    """Compute each metric from the sums; those that depend on counts alone are not here."""
    from twofold.logs import _kernels as k

    return {
        "aurc": lambda g: float(g.sums[k.RISK] / g.accepted),
        "aurc_id": lambda g: float(g.sums[k.RISK_ID] / g.known),
        "augrc": lambda g: float(g.loss - g.sums[k.GENERALISED] / 2.0 / g.accepted) / g.accepted,
        "auroc": lambda g: float(g.sums[k.PAIRS] / 2.0) / (g.right * g.loss),
        "average_precision": lambda g: float(g.sums[k.PRECISION] / g.right),
        "average_precision_unsafe": lambda g: float(g.sums[k.PRECISION_UNSAFE] / g.loss),
        "fpr95": lambda g: _fpr(g.sums[k.LOSS_TAKEN], g.loss),
        "fpr95_unsafe": lambda g: _fpr_unsafe(g.sums[k.RIGHT_KEPT], g.right),
        "f1": lambda g: float(max(g.sums[k.F1], 0.0)),
        "auroc_ood": lambda g: float(g.sums[k.PAIRS_OOD] / 2.0) / (g.known * g.outside),
        "fpr95_ood": lambda g: _fpr(g.sums[k.OOD_TAKEN], g.outside),
        "fpr95_unsafe_ood": lambda g: _fpr_unsafe(g.sums[k.ID_KEPT], g.known),
    }


EXACT = (
    "accuracy",
    "aurc",
    "eaurc",
    "naurc",
    "augrc",
    "eaugrc",
    "auroc",
    "average_precision",
    "average_precision_unsafe",
    "fpr95",
    "fpr95_unsafe",
    "aurc_id",
    "f1",
    "auroc_ood",
    "fpr95_ood",
    "fpr95_unsafe_ood",
)
"""Metrics that an ordered stream gives exactly."""


def metric_value(name: str, total: Counts, share: float | None, sums: Array) -> float:
    """Compute one metric from the sums of a stream.

    Parameters
    ----------
    name : str
        One of ``EXACT``.
    total : ndarray of int, shape (3,)
        Correct, wrong and OOD samples.
    share : float or None
        Share of OOD samples expected in deployment.
    sums : ndarray of shape (12,)
        What :class:`OrderedSums` gives.

    Returns
    -------
    float
        The metric of :mod:`twofold.metrics` on the same rows.

    Raises
    ------
    UndefinedMetric
        If the metric has no value on these rows, for the reason that :func:`twofold.metrics.evaluate` gives.
    """
    counts = _counts_alone(name, total, share)
    reference = info(name).sweep
    if reference is None:
        raise UndefinedMetric(f"{name} has no form on a stream")
    if share is not None and info(name).task in ("selective", "detection", "joint"):
        ood_weight(share, int(total[0] + total[1]), int(total[2]))  # raises where there is nothing to weigh
    from_counts = reference(counts)  # raises where the metric has no value, whatever the order
    formulas = _formulas()
    group = _Group(
        right=float(counts.right[-1]),
        known=float(total[0] + total[1]),
        loss=float(counts.loss[-1]),
        accepted=counts.total,
        outside=float(total[2]),
        sums=sums,
    )
    if name in formulas:
        return formulas[name](group)
    if name == "accuracy":
        return from_counts
    base = "augrc" if name == "eaugrc" else "aurc"
    area = formulas[base](group)
    optimum = info(base).sweep(counts) - info(f"e{base}").sweep(counts)  # type: ignore[misc]  # both have that form
    if name == "naurc":
        return (area - optimum) / (counts.mean_loss - optimum)
    return area - optimum


def _counts_alone(name: str, total: Counts, share: float | None) -> Sweep:
    """Make the sweep in which all samples are tied: it has the counts, and every metric is defined or not alike."""
    right, wrong, outside = (float(count) for count in total)
    known = right + wrong
    if info(name).task == "ood":
        accepted = np.array([known + outside])
        return Sweep(np.empty(0), accepted, np.array([outside]), accepted)
    weight = weigh_ood(share, total)
    accepted = np.array([known + weight * outside])
    loss = np.array([wrong + weight * outside])
    return Sweep(np.empty(0), accepted, loss, np.array([known]), weight, np.array([right]))
