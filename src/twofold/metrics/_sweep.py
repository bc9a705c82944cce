"""The sorting core: one pass over a confidence, from which every single-score metric is derived.

Only "accept where conf >= threshold" rules exist, so equal confidences are accepted together, and a data set is
fully described by what has been accepted at each distinct confidence. That is a :class:`Sweep`. No metric looks
at the order of samples, or of samples inside a tie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Mask, NaNPolicy
from twofold.errors import InvalidInput

Counts = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Sweep:
    """What is accepted at each distinct confidence, most confident first; all but ``level`` are cumulative.

    With 0/1 losses ``accepted - loss`` is the number of right answers. ``known`` counts ID samples, and equals
    ``accepted`` where there is no OOD sample.
    """

    level: Array  # (G,) distinct confidences, decreasing
    accepted: Array  # (G,) weight of the samples with conf >= level
    loss: Array  # (G,) of that, the loss
    known: Array  # (G,) of that, the ID samples
    weight: float = 1.0  # of one OOD sample
    atoms: tuple[Array, Array, Counts] | None = None  # given losses, ascending: value, weight, count

    @property
    def total(self) -> float:
        """Weight of all samples."""
        return float(self.accepted[-1])

    def mean(self, over: Array) -> float:
        """Mean selective risk, where ``over`` (cumulative) says how much each level counts."""
        from twofold._kernels import ratio_sum

        return float(ratio_sum(over, self.loss, self.accepted)) / float(over[-1])

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
        return self.accepted - self.loss

    @property
    def mean_loss(self) -> float:
        """Risk at full coverage."""
        return float(self.loss[-1] / self.accepted[-1])


@dataclass(frozen=True, eq=False)
class Cells:
    """A metric that depends on the samples only through how many fall into each cell.

    ``index[i]`` is the cell of sample i, and ``value(counts)`` the metric when the cells hold ``counts`` samples.
    Resampling then needs no sorting: draw samples, count cells, evaluate.
    """

    index: npt.NDArray[np.int32]
    size: int
    value: Callable[[Counts], float]


def ood_weight(share: float | None, inside: float, outside: float) -> float:
    r"""Weight of one OOD sample so that OOD makes up ``share`` of all weight: share/(1-share) n_ID/n_OOD.

    >>> ood_weight(0.5, 100, 50)
    2.0
    """
    if share is None:
        return 1.0
    return share / (1.0 - share) * inside / outside if outside else 0.0


def check_share(share: float | None, is_id: Mask | None) -> float | None:
    """The OOD prevalence, validated: it needs ``is_id``, an ID and an OOD sample."""
    if share is None:
        return None
    value = _checks.number(share, "ood_share", 0.0, 1.0, open_high=True)
    if is_id is None or is_id.all() or not is_id.any():
        raise InvalidInput("ood_share re-weighs OOD against ID samples; pass is_id with at least one of each")
    return value


def sweep(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    loss: ArrayLike | None = None,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> Sweep:
    """Sort once: tie groups of ``conf`` with what they hold.

    >>> s = sweep([True, False, True], [0.9, 0.5, 0.5])
    >>> s.level, s.accepted, s.loss
    (array([0.9, 0.5]), array([1., 3.]), array([0., 1.]))
    """
    conf = _checks.confidence(conf, nan=nan)
    right, inside = _checks.joint(correct, is_id, conf=conf)
    share = check_share(ood_share, inside)
    if loss is not None:
        return _with_losses(_given_losses(loss, conf), conf, inside, share)
    return _merge(right, conf, inside, share)


def truth_sweep(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> Sweep:
    """Tie groups for a detection task: ``truth`` is True for the safe class, and the others count as loss."""
    conf = _checks.confidence(conf, nan=nan)
    safe = _checks.mask(truth, "truth")
    _checks.same_rows(truth=safe, conf=conf)
    return _merge(safe, conf, None, None)


def _given_losses(loss: ArrayLike, conf: Array) -> Array:
    given = _checks.losses(loss)
    _checks.same_rows(loss=given, conf=conf)
    return given


def _merge(right: Mask, conf: Array, inside: Mask | None, share: float | None) -> Sweep:
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
    out = np.empty(n), np.empty(n), np.empty(n), np.empty(n if sizes[2] else 0)
    groups = _kernels.merge_levels(*sorted_parts, weight, *out)
    level, accepted, loss, known = (a[:groups] for a in out)
    return Sweep(level, accepted, loss, known if sizes[2] else accepted, weight)


def _with_losses(loss: Array, conf: Array, inside: Mask | None, share: float | None) -> Sweep:
    rows = _LossRows(loss, conf, inside, share)
    return rows.sweep(np.ones(len(loss), np.int32))


class _LossRows:
    """Rows with given losses, sorted once; ``sweep(counts)`` is the sweep when row i of that order comes counts[i] times."""

    def __init__(self, loss: Array, conf: Array, inside: Mask | None, share: float | None):
        # losses inside a tie are sorted too, so that sums never depend on the order of rows
        self.order = np.lexsort((loss, conf))[::-1]
        self.loss, self.conf, self.share = loss[self.order], conf[self.order], share
        self.inside = np.ones(len(loss), bool) if inside is None else inside[self.order]
        self.ends = np.flatnonzero(np.append(self.conf[1:] != self.conf[:-1], True))
        self.by_loss = np.lexsort((~self.inside, self.loss))

    def sweep(self, counts: Counts) -> Sweep:
        known = np.where(self.inside, counts, 0)
        weight = ood_weight(self.share, known.sum(), counts.sum() - known.sum())
        unit = np.where(self.inside, 1.0, weight)
        mass = np.cumsum(unit * counts)[self.ends]
        keep = np.diff(mass, prepend=0.0) > 0
        ends, rising = self.ends[keep], self.by_loss
        return Sweep(
            level=self.conf[ends],
            accepted=mass[keep],
            loss=np.cumsum(unit * counts * self.loss)[ends],
            known=np.cumsum(known)[ends].astype(np.float64),
            weight=weight,
            atoms=(self.loss[rising], unit[rising], counts[rising]),
        )


def sweep_cells(metric: Callable[..., float]) -> Callable[..., Cells]:
    """The weighted form of a metric of (correct, conf) that is a function of the sweep.

    ``metric(sweep, **settings)`` is the metric; settings other than those below go through to it.
    """

    def weighted(
        correct: ArrayLike,
        conf: ArrayLike,
        is_id: ArrayLike | None = None,
        *,
        loss: ArrayLike | None = None,
        ood_share: float | None = None,
        nan: NaNPolicy = "error",
        **settings: Any,
    ) -> Cells:
        conf = _checks.confidence(conf, nan=nan)
        right, inside = _checks.joint(correct, is_id, conf=conf)
        share = check_share(ood_share, inside)
        if loss is None:
            return _count_cells(right, conf, inside, share, lambda s: metric(s, **settings))
        return _loss_cells(_given_losses(loss, conf), conf, inside, share, lambda s: metric(s, **settings))

    return weighted


def truth_cells(metric: Callable[..., float]) -> Callable[..., Cells]:
    """The weighted form of a metric of (truth, conf)."""

    def weighted(truth: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error", **settings: Any) -> Cells:
        conf = _checks.confidence(conf, nan=nan)
        safe = _checks.mask(truth, "truth")
        _checks.same_rows(truth=safe, conf=conf)
        return _count_cells(safe, conf, None, None, lambda s: metric(s, **settings))

    return weighted


def _count_cells(
    right: Mask, conf: Array, inside: Mask | None, share: float | None, metric: Callable[[Sweep], float]
) -> Cells:
    from twofold import _kernels

    level, group = np.unique(conf, return_inverse=True)
    levels = len(level)
    outside = inside is not None and not inside.all()
    kinds = 3 if outside else 2
    kind = np.where(right, 0, np.where(inside, 1, 2)) if outside else np.where(right, 0, 1)
    index = (levels - 1 - group) * kinds + kind

    def value(counts: Counts) -> float:
        table = counts.reshape(-1, kinds)
        weight = 1.0
        if share is not None:
            known = int(table[:, :2].sum())
            weight = ood_weight(share, known, int(table.sum()) - known)
        out = np.empty(levels), np.empty(levels), np.empty(levels if outside else 0)
        groups = _kernels.cumulate(table, weight, *out)
        accepted, loss, inner = (a[:groups] for a in out)
        # no value depends on the levels themselves
        return metric(Sweep(accepted[:0], accepted, loss, inner if outside else accepted, weight))

    return Cells(index.astype(np.int32), kinds * levels, value)


def _loss_cells(
    loss: Array, conf: Array, inside: Mask | None, share: float | None, metric: Callable[[Sweep], float]
) -> Cells:
    rows = _LossRows(loss, conf, inside, share)
    place = np.empty(len(loss), np.int64)
    place[rows.order] = np.arange(len(loss))
    return Cells(place.astype(np.int32), len(loss), lambda counts: metric(rows.sweep(counts)))
