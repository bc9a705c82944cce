"""The sorting core: one pass over a confidence, from which every single-score metric is derived.

Only "accept where conf >= threshold" rules exist, so equal confidences are accepted together, and a data set is
fully described by what has been accepted at each distinct confidence. That is a :class:`Sweep`. No metric looks
at the order of samples, or of samples inside a tie.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Mask, NaNPolicy
from twofold.errors import UnfitData
from twofold.metrics.operating_points import check_ood_share, ood_weight

Weights = npt.NDArray[np.uint8]  # how often each row is present in a resample
Weighted = Callable[[npt.NDArray[np.uint8]], float]  # the weighted form of a metric: its value on a resample


@dataclass(frozen=True, eq=False)
class Sweep:
    """What is accepted at each distinct confidence, most confident first; all but ``level`` are cumulative.

    With 0/1 losses ``accepted - loss`` is the number of right answers. ``known`` counts ID samples, and equals
    ``accepted`` where there is no OOD sample.
    """

    level: Array  # (G,) distinct confidences, decreasing; empty unless asked for
    accepted: Array  # (G,) weight of the samples with conf >= level
    loss: Array  # (G,) of that, the loss
    known: Array  # (G,) of that, the ID samples
    weight: float = 1.0  # of one OOD sample
    counted: Array | None = None  # (G,) right answers among the accepted, where OOD weights would blur the difference
    atoms: tuple[Array, Array, Weights] | None = None  # with given losses, of each row: loss, weight, count

    @property
    def total(self) -> float:
        """Weight of all samples."""
        return float(self.accepted[-1])

    def mean(self, over: Array) -> float:
        """Mean selective risk, where ``over`` (cumulative) says how much each level counts."""
        from twofold._kernels import ratio_sum

        if over[-1] == 0:
            raise UnfitData("there is no ID sample to average the risk over")
        return float(ratio_sum(over, self.loss, self.accepted)) / float(over[-1])

    @cached_property
    def mean_risk(self) -> float:
        """Mean selective risk over all samples, each at its own level."""
        return self.mean(over=self.accepted)

    @cached_property
    def mass(self) -> Array:
        """Weight of each tie group."""
        return np.diff(self.accepted, prepend=0.0)

    @cached_property
    def risk(self) -> Array:
        """Selective risk at each level."""
        return self.loss / self.accepted

    @cached_property
    def right(self) -> Array:
        """Right answers accepted at each level (0/1 losses)."""
        return self.accepted - self.loss if self.counted is None else self.counted

    @property
    def mean_loss(self) -> float:
        """Risk at full coverage."""
        return float(self.loss[-1] / self.accepted[-1])


def sweep(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
    levels: bool = False,
) -> Sweep:
    """Sort once: tie groups of ``conf`` with what they hold. ``levels`` asks for the thresholds too.

    >>> s = sweep([True, False, True], [0.9, 0.5, 0.5], levels=True)
    >>> s.level, s.accepted, s.loss
    (array([0.9, 0.5]), array([1., 3.]), array([0., 1.]))
    """
    conf = _checks.confidence(conf, nan=nan)
    right, inside = _checks.joint(correct, is_id, conf=conf)
    share = check_ood_share(ood_share, inside)
    if loss is not None:
        return _LossRows(_given_losses(loss, conf), conf, inside, share).sweep(np.ones(len(conf), np.uint8))
    return _merge(right, conf, inside, share, levels)


def truth_sweep(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> Sweep:
    """Tie groups for a detection task: ``truth`` is True for the safe class, and the others count as loss."""
    conf = _checks.confidence(conf, nan=nan)
    safe = _checks.mask(truth, "truth")
    _checks.same_rows(truth=safe, conf=conf)
    return _merge(safe, conf, None, None, levels=False)


def _given_losses(loss: ArrayLike, conf: Array) -> Array:
    given = _checks.losses(loss)
    _checks.same_rows(loss=given, conf=conf)
    return given


def _merge(right: Mask, conf: Array, inside: Mask | None, share: float | None, levels: bool) -> Sweep:
    """0/1 losses: sort right, wrong and OOD confidences apart (np.sort is several times np.argsort), then merge."""
    from twofold import _kernels

    n = len(conf)
    given = inside is not None
    # NumPy's own large arrays come on huge pages; allocating inside the kernels costs more than the work
    parts = np.empty(n), np.empty(n), np.empty(n if given else 0)
    sizes = _kernels.split(conf, right, inside if given else right[:0], *parts)
    sorted_parts = [part[:size] for part, size in zip(parts, sizes, strict=True)]
    for part in sorted_parts:
        part.sort()
    weight = ood_weight(share, sizes[0] + sizes[1], sizes[2])
    extra = n if sizes[2] else 0
    out = np.empty(n if levels else 0), np.empty(n), np.empty(n), np.empty(extra), np.empty(extra)
    groups = _kernels.merge_levels(*sorted_parts, weight, *out)
    level, accepted, loss, known, counted = (a[:groups] for a in out)
    return Sweep(level, accepted, loss, known, weight, counted) if extra else Sweep(level, accepted, loss, accepted)


class _LossRows:
    """Rows with given losses, sorted once; in ``sweep(counts)`` row i of that order comes counts[i] times."""

    def __init__(self, loss: Array, conf: Array, inside: Mask | None, share: float | None):
        # losses inside a tie are sorted too, so that sums never depend on the order of rows
        self.order = np.lexsort((loss, conf))[::-1]
        self.loss, self.conf, self.share = loss[self.order], conf[self.order], share
        self.inside = np.ones(len(loss), bool) if inside is None else inside[self.order]
        self.ends = np.flatnonzero(np.append(self.conf[1:] != self.conf[:-1], True))

    def sweep(self, counts: Weights) -> Sweep:
        known = np.where(self.inside, counts, 0)
        weight = ood_weight(self.share, known.sum(), counts.sum() - known.sum())
        unit = np.where(self.inside, 1.0, weight)
        present = unit * counts.astype(np.float64)
        mass = np.cumsum(present)[self.ends]
        keep = np.diff(mass, prepend=0.0) > 0
        ends = self.ends[keep]
        return Sweep(
            level=self.conf[ends],
            accepted=mass[keep],
            loss=np.cumsum(present * self.loss)[ends],
            known=np.cumsum(known)[ends].astype(np.float64),
            weight=weight,
            atoms=(self.loss, unit, counts),
        )


def sweep_weighted(metric: Callable[..., float], **allowed: tuple[str, ...]) -> Callable[..., Weighted | None]:
    """The weighted form of a metric of (correct, conf) that is a function of the sweep.

    ``metric(sweep, **settings)`` is the metric. There is no weighted form (None) for settings the metric does not
    take, or whose values are not ``allowed``.
    """
    taken = set(list(inspect.signature(metric).parameters)[1:])

    def weighted(
        correct: ArrayLike,
        conf: ArrayLike,
        is_id: ArrayLike | None = None,
        *,
        loss: ArrayLike | None = None,
        ood_share: float | None = None,
        nan: NaNPolicy = "error",
        **settings: Any,
    ) -> Weighted | None:
        if set(settings) - taken or any(settings.get(k, v[0]) not in v for k, v in allowed.items()):
            return None
        conf = _checks.confidence(conf, nan=nan)
        right, inside = _checks.joint(correct, is_id, conf=conf)
        share = check_ood_share(ood_share, inside)
        if loss is not None:
            rows = _LossRows(_given_losses(loss, conf), conf, inside, share)
            return lambda weights: metric(rows.sweep(weights[rows.order]), **settings)
        counted = CountedRows(right, conf, inside, share)
        return lambda weights: metric(counted.sweep(weights), **settings)

    return weighted


def truth_weighted(metric: Callable[..., float]) -> Callable[..., Weighted]:
    """The weighted form of a metric of (truth, conf)."""

    def weighted(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error", **settings: Any) -> Weighted:
        conf = _checks.confidence(conf, nan=nan)
        safe = _checks.mask(truth, "truth")
        _checks.same_rows(truth=safe, conf=conf)
        rows = CountedRows(safe, conf, None, None)
        return lambda weights: metric(rows.sweep(weights), **settings)

    return weighted


class CountedRows:
    """Rows with 0/1 losses, sorted once; resamples of them need no further sorting."""

    def __init__(self, right: Mask, conf: Array, inside: Mask | None, share: float | None):
        from twofold._kernels import LAST, OUTSIDE, RIGHT, WRONG

        order = np.argsort(conf)[::-1]
        ranked = conf[order]
        failure = WRONG if inside is None else np.where(inside, WRONG, OUTSIDE)
        kind = np.where(right, RIGHT, failure)
        last = np.append(ranked[1:] != ranked[:-1], True)
        self.order = order.astype(np.uint32)
        self.tags = (kind[order] + LAST * last).astype(np.uint8)
        self.groups = int(last.sum())
        self.outside = None if inside is None or inside.all() else ~inside
        self.share = share
        self.inverse = 1.0 / np.maximum(np.arange(len(conf) + 1), 1)

    def weight(self, weights: Weights) -> float:
        """Weight of one OOD sample in this resample."""
        if self.share is None or self.outside is None:
            return 1.0
        outside = int(weights[self.outside].sum())
        return ood_weight(self.share, int(weights.sum()) - outside, outside)

    def sweep(self, weights: Weights) -> Sweep:
        """The sweep when row i is present ``weights[i]`` times; it has no levels, on which no value depends."""
        from twofold._kernels import cumulate

        extra = 0 if self.outside is None else self.groups
        out = np.empty(self.groups), np.empty(self.groups), np.empty(extra), np.empty(extra)
        weight = self.weight(weights)
        groups = cumulate(weights, self.order, self.tags, weight, *out)
        accepted, loss, known, counted = (a[:groups] for a in out)
        level = accepted[:0]
        return Sweep(level, accepted, loss, known, weight, counted) if extra else Sweep(level, accepted, loss, accepted)


@dataclass(frozen=True, eq=False)
class MeanRisk:
    """Weighted form of the empirical AURC over all or over ID samples of unit weight: ``sweep(w).mean(...)``."""

    rows: CountedRows
    only_id: bool

    def __call__(self, weights: Weights) -> float:
        """The value on one resample."""
        s = self.rows.sweep(weights)
        return s.mean(over=s.known if self.only_id else s.accepted)

    def replicates(self, keys: npt.NDArray[np.uint64], draw: tuple[Any, ...], room: Weights) -> Array:
        """The values on the resamples of many keys, in one compiled loop; ``bootstrap`` looks for this method."""
        from twofold._kernels import mean_risks

        rows, out = self.rows, np.empty(len(keys))
        mean_risks(keys, *draw, rows.order, rows.tags, rows.inverse, self.only_id, room, out)
        return out
