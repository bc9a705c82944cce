"""Samples of one joint evaluation: correct, wrong and OOD, with one or two confidences."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from twofold import _checks
from twofold._checks import Array, ArrayLike, Mask, NaNPolicy
from twofold.errors import InvalidInput, UnfitData
from twofold.metrics import _grid
from twofold.metrics._sweep import Weights
from twofold.metrics.operating_points import Method, check_ood_share, ood_weight, operating_point, quantile_thresholds


@dataclass(frozen=True, eq=False)
class Samples:
    """Hold the validated samples of one joint evaluation, with one or two confidences."""

    correct: Mask
    is_id: Mask
    confs: tuple[Array, ...]
    inside: int  # number of ID samples
    right: int  # number of them that are predicted correctly
    outside: int  # number of OOD samples
    share: float | None

    @classmethod
    def check(
        cls,
        correct: ArrayLike,
        is_id: ArrayLike | None,
        *,
        ood_share: float | None,
        nan: NaNPolicy,
        **confs: ArrayLike,
    ) -> Samples:
        """Validate the arrays; without ``is_id`` all samples are ID."""
        scores = {name: _checks.confidence(conf, name, nan=nan) for name, conf in confs.items()}
        right, given = _checks.joint(correct, is_id, **scores)
        known = np.ones(len(right), bool) if given is None else given
        inside = int(known.sum())
        if inside == 0:
            raise UnfitData("is_id is False everywhere; joint metrics need at least one ID sample")
        share = check_ood_share(ood_share, given)
        outside = len(known) - inside
        return cls(right, known, tuple(scores.values()), inside, int(right.sum()), outside, share)

    @property
    def weight(self) -> float:
        """Weight of one OOD sample."""
        return ood_weight(self.share, self.inside, self.outside)

    def resample(self, weights: Weights) -> Samples:
        """Return the same samples with the counts of a resample, in which row i is present ``weights[i]`` times."""
        inside = int(weights[self.is_id].sum())
        if inside == 0:
            raise UnfitData("the resample has no ID sample")
        right, total = int(weights[self.correct].sum()), int(weights.sum())
        return replace(self, inside=inside, right=right, outside=total - inside)

    def grid(self, method: str, thresholds: int) -> _grid.Accepted:
        """Count what is accepted on the quantile grid, or on the linear grid of the released code."""
        if method == "grid":
            count = _checks.whole(thresholds, "thresholds", 2)
            confs = self.confs
            axes = tuple(quantile_thresholds(conf, count) for conf in confs)
        else:
            if self.share is not None:
                raise InvalidInput("the published grid has no ood_share; leave it out, or choose another rule")
            if not all(np.isfinite(_grid.single_precision(c)).all() for c in self.confs):
                raise UnfitData("the published grid scales scores in single precision and needs finite ones")
            *first, last = self.confs
            confs = (*(_grid.single_precision(c) for c in first), _grid.min_max(last))
            axes = (_grid.linear_thresholds(),) * len(confs)
        return _grid.accepted(confs, axes, self.correct, self.is_id, self.weight)

    def point(self, right: float, known: float, outside: float) -> dict[str, float]:
        """Describe an accepted set; ``outside`` is its weighted OOD count."""
        return operating_point(right, known, outside, self.inside)

    def best_on_grid(self, method: Method, thresholds: int) -> tuple[dict[str, float], list[float]]:
        """Find the best F1 over a grid: the operating point and its thresholds."""
        table = self.grid(method, thresholds)
        if method == "published":
            f1 = _grid.published_f1(table, self.inside)
        else:
            f1 = 2.0 * table.right / (table.total + self.inside)
        if f1.max() == 0.0:
            return self.point(0.0, 0.0, 0.0), [np.inf] * len(self.confs)
        # among maximisers: fewest accepted, then largest tau_id, then largest tau_ood
        ties = np.argwhere(f1 == f1.max())
        total = table.total[tuple(ties.T)]
        best = tuple(ties[total == total.min()][-1])
        point = self.point(float(table.right[best]), float(table.known[best]), float(table.outside[best]))
        point["value"] = float(f1[best])
        return point, [float(t[i]) for t, i in zip(table.thresholds, best, strict=True)]
