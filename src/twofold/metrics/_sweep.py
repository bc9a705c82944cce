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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Mask, NaNPolicy
from twofold.errors import UnfitData
from twofold.metrics.operating_points import check_ood_share, ood_weight

Weights = npt.NDArray[np.uint8]  # how often each row is present in a resample
Weighted = Callable[[npt.NDArray[np.uint8]], float]  # the weighted form of a metric: its value on a resample


class Atoms(NamedTuple):
    """Hold the single rows of a sweep with given losses."""

    loss: Array
    weight: Array
    times: Weights  # how often the row is present


@dataclass(frozen=True, eq=False)
class Sweep:
    """Hold what is accepted at each distinct confidence, most confident first; all but ``level`` are cumulative.

    With 0/1 losses ``accepted - loss`` is the number of correct predictions. ``known`` counts ID samples, and equals
    ``accepted`` where there is no OOD sample.
    """

    level: Array  # (G,) distinct confidences, decreasing; empty unless asked for
    accepted: Array  # (G,) weight of the samples with conf >= level
    loss: Array  # (G,) of that, the loss
    known: Array  # (G,) of that, the ID samples
    weight: float = 1.0  # of one OOD sample
    counted: Array | None = None  # (G,) correct predictions accepted, where OOD weights would blur the difference
    atoms: Atoms | None = None  # only with given losses

    @property
    def total(self) -> float:
        """Weight of all samples."""
        return float(self.accepted[-1])

    def mean(self, over: Array) -> float:
        """Compute the mean selective risk, where ``over`` (cumulative) says how much each level counts."""
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
        """Correct predictions accepted at each level (0/1 losses)."""
        if self.counted is None:
            return self.accepted - self.loss
        return self.counted

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
    """Sort once and count what each tie group of ``conf`` holds; ``levels`` asks for the thresholds too.

    >>> s = sweep([True, False, True], [0.9, 0.5, 0.5], levels=True)
    >>> s.level, s.accepted, s.loss
    (array([0.9, 0.5]), array([1., 3.]), array([0., 1.]))
    """
    conf = _checks.confidence(conf, nan=nan)
    right, inside = _checks.joint(correct, is_id, conf=conf)
    share = check_ood_share(ood_share, inside)
    if loss is not None:
        once = np.ones(len(conf), np.uint8)
        return _SortedLosses(_check_losses(loss, conf), conf, inside, share).sweep(once)
    return _merge_kinds(right, conf, inside, share, levels)


def truth_sweep(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> Sweep:
    """Count the tie groups of a detection task: ``truth`` is True for the safe class, and the others are the loss."""
    conf = _checks.confidence(conf, nan=nan)
    safe = _checks.mask(truth, "truth")
    _checks.same_rows(truth=safe, conf=conf)
    return _merge_kinds(safe, conf, None, None, levels=False)


def _check_losses(loss: ArrayLike, conf: Array) -> Array:
    losses = _checks.losses(loss)
    _checks.same_rows(loss=losses, conf=conf)
    return losses


def _merge_kinds(right: Mask, conf: Array, inside: Mask | None, share: float | None, levels: bool) -> Sweep:
    """Count 0/1 losses: sort correct, wrong and OOD confidences separately, then merge; faster than one argsort."""
    from twofold import _kernels

    n = len(conf)
    # NumPy's own large arrays come on huge pages; allocating inside the kernels costs more than the work
    conf_right, conf_wrong = np.empty(n), np.empty(n)
    if inside is None:
        inside, conf_ood = right[:0], np.empty(0)
    else:
        conf_ood = np.empty(n)
    n_right, n_wrong, n_ood = _kernels.split(conf, right, inside, conf_right, conf_wrong, conf_ood)
    kinds = conf_right[:n_right], conf_wrong[:n_wrong], conf_ood[:n_ood]
    for kind in kinds:
        kind.sort()
    weight = ood_weight(share, n_right + n_wrong, n_ood)
    level = np.empty(n if levels else 0)
    accepted, loss = np.empty(n), np.empty(n)
    known, counted = np.empty(n if n_ood else 0), np.empty(n if n_ood else 0)
    groups = _kernels.merge_levels(*kinds, weight, level, accepted, loss, known, counted)
    return _filled_sweep(groups, level, accepted, loss, known, counted, weight)


def _filled_sweep(
    groups: int, level: Array, accepted: Array, loss: Array, known: Array, counted: Array, weight: float
) -> Sweep:
    """Make a sweep of the first ``groups`` entries of what a kernel filled; ``known`` is empty without OOD samples."""
    if len(known) == 0:
        return Sweep(level[:groups], accepted[:groups], loss[:groups], accepted[:groups])
    return Sweep(level[:groups], accepted[:groups], loss[:groups], known[:groups], weight, counted[:groups])


class _SortedLosses:
    """Hold rows with given losses, sorted once; in ``sweep(counts)`` row i of that order comes counts[i] times."""

    def __init__(self, loss: Array, conf: Array, inside: Mask | None, share: float | None):
        # losses inside a tie are sorted too, so that sums never depend on the order of rows
        self.order = np.lexsort((loss, conf))[::-1]
        self.loss, self.conf, self.share = loss[self.order], conf[self.order], share
        self.inside = np.ones(len(loss), bool) if inside is None else inside[self.order]
        self.ends = np.flatnonzero(np.append(self.conf[1:] != self.conf[:-1], True))

    def sweep(self, counts: Weights) -> Sweep:
        """Count the tie groups of a resample."""
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
            atoms=Atoms(self.loss, unit, counts),
        )


def sweep_weighted(metric: Callable[..., float], **allowed: tuple[str, ...]) -> Callable[..., Weighted | None]:
    """Make the weighted form of a metric of (correct, conf) from its form on a sweep.

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
        if set(settings) - taken:
            return None
        for name, values in allowed.items():
            if settings.get(name, values[0]) not in values:
                return None
        conf = _checks.confidence(conf, nan=nan)
        right, inside = _checks.joint(correct, is_id, conf=conf)
        share = check_ood_share(ood_share, inside)
        if loss is not None:
            losses = _SortedLosses(_check_losses(loss, conf), conf, inside, share)
            return lambda weights: metric(losses.sweep(weights[losses.order]), **settings)
        rows = SortedRows(right, conf, inside, share)
        return lambda weights: metric(rows.sweep(weights), **settings)

    return weighted


def truth_weighted(metric: Callable[..., float]) -> Callable[..., Weighted]:
    """Make the weighted form of a metric of (truth, conf) from its form on a sweep."""

    def weighted(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error", **settings: Any) -> Weighted:
        conf = _checks.confidence(conf, nan=nan)
        safe = _checks.mask(truth, "truth")
        _checks.same_rows(truth=safe, conf=conf)
        rows = SortedRows(safe, conf, None, None)
        return lambda weights: metric(rows.sweep(weights), **settings)

    return weighted


class SortedRows:
    """Hold rows with 0/1 losses, sorted once; resamples of them need no further sorting."""

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
        """Compute the weight of one OOD sample in this resample."""
        if self.share is None or self.outside is None:
            return 1.0
        outside = int(weights[self.outside].sum())
        return ood_weight(self.share, int(weights.sum()) - outside, outside)

    def sweep(self, weights: Weights) -> Sweep:
        """Count the tie groups when row i is present ``weights[i]`` times; no value depends on the levels."""
        from twofold._kernels import cumulate

        weight = self.weight(weights)
        n_known = 0 if self.outside is None else self.groups
        level = np.empty(0)
        accepted, loss = np.empty(self.groups), np.empty(self.groups)
        known, counted = np.empty(n_known), np.empty(n_known)
        groups = cumulate(weights, self.order, self.tags, weight, accepted, loss, known, counted)
        return _filled_sweep(groups, level, accepted, loss, known, counted, weight)


@dataclass(frozen=True, eq=False)
class MeanRisk:
    """Compute the weighted empirical AURC over all or over ID samples of unit weight: ``sweep(w).mean(...)``."""

    rows: SortedRows
    only_id: bool

    def __call__(self, weights: Weights) -> float:
        """Compute the value on one resample."""
        s = self.rows.sweep(weights)
        return s.mean(over=s.known if self.only_id else s.accepted)

    def replicates(self, keys: npt.NDArray[np.uint64], draw: tuple[Any, ...], room: Weights) -> Array:
        """Compute the values on the resamples of many keys in one compiled loop; ``bootstrap`` looks for this."""
        from twofold._kernels import mean_risks

        rows, out = self.rows, np.empty(len(keys))
        mean_risks(keys, *draw, rows.order, rows.tags, rows.inverse, self.only_id, room, out)
        return out
