"""Reduce parts of an ordered table, as workers of a cluster do: sorted rows to counts, then to sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold._checks import AnyArray, Array
from twofold.errors import InvalidInput
from twofold.logs.ordered import CHANGED, Counts, Kinds, OrderedSums

Codes = npt.NDArray[np.int64]  # the group of each row


@dataclass(frozen=True, eq=False)
class PartCounts:
    """Hold the groups of one part, in order, and their correct, wrong and OOD rows in it."""

    codes: Codes
    counts: Counts


def count_part(batches: Iterable[tuple[Codes, AnyArray]]) -> PartCounts:
    """Count the rows of a part by group and kind; rows of a group come together."""
    codes: list[int] = []
    counts: list[AnyArray] = []
    for code, kind in batches:
        if len(code) == 0:
            continue
        starts = np.flatnonzero(np.append(True, code[1:] != code[:-1]))
        ends = np.append(starts[1:], len(code))
        for start, end in zip(starts, ends, strict=True):
            own = np.bincount(np.minimum(kind[start:end], 2), minlength=3)
            if codes and codes[-1] == code[start]:
                counts[-1] = counts[-1] + own
            else:
                codes.append(int(code[start]))
                counts.append(own)
    return PartCounts(np.array(codes, np.int64), np.array(counts, np.int64).reshape(-1, 3))


@dataclass(frozen=True, eq=False)
class PartPlan:
    """Hold what a part needs to know of the others: for each of its groups, the rows before it and in all."""

    own: PartCounts
    before: Counts
    totals: Counts
    share: float | None
    cells: int

    def reduce(self, batches: Iterable[tuple[Array, Kinds]]) -> OrderedSums:
        """Reduce the sorted rows of the part."""
        rows = self.own.counts.sum(axis=1)
        sums = OrderedSums(self.totals, self.share, rows=rows, before=self.before, cells=self.cells)
        for conf, kind in batches:
            sums.update(conf, kind)
        sums.finish()
        if not np.array_equal(sums.seen, self.before + self.own.counts):
            raise InvalidInput(CHANGED)
        return sums


def plan_parts(parts: list[PartCounts], totals: Counts, share: float | None, cells: int) -> list[PartPlan]:
    """Give every part the counts of the parts before it."""
    seen = np.zeros_like(totals)
    plans = []
    for part in parts:
        plans.append(PartPlan(part, seen[part.codes].copy(), totals[part.codes], share, cells))
        seen[part.codes] += part.counts
    if not np.array_equal(seen, totals):
        raise InvalidInput(CHANGED)
    return plans
