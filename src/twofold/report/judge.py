"""Compute once what several sections of a report need: pools, thresholds, counts and replicates."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twofold import metrics
from twofold._checks import Array, Mask
from twofold.bench.protocols import ProtocolView, ScoredSet
from twofold.bench.resampling import values
from twofold.gate.thresholds import between_neighbours
from twofold.report.document import Number
from twofold.report.explorer import Grid
from twofold.report.material import ALONE, ROWS, UNKNOWN, Material, Pair, Pool, Scored
from twofold.report.tables import JOINT

EXACT = 120_000  # ID samples up to which the area under two thresholds is exact
WORK = 4_000_000  # rows times resamples that an interval may cost
KIND = {"near": "near unknown", "mid": "mid unknown", "far": "far unknown", "unknown": "unknown"}
WORDS = {"right": "right answers", "wrong": "wrong answers", **{role: f"{kind} inputs" for role, kind in KIND.items()}}


@dataclass(frozen=True, eq=False)
class Judge:
    """Compute, once and on demand, what several sections need.

    Parameters
    ----------
    material : Material
        What the report is made from.
    resamples : int
        Upper limit on the number of bootstrap resamples.
    seed : int
        Seed of the resampling.
    done : callable
        Called with the name of each finished step.
    """

    material: Material
    resamples: int
    seed: int
    done: Callable[[str], Any]

    @cached_property
    def pool(self) -> Pool:
        """The test sets and all unknown inputs."""
        return self.material.pool(*self.material.roles)

    @property
    def pair(self) -> Pair:
        """The pair of scores that is judged."""
        return self.material.pairs[0]

    @property
    def shown(self) -> tuple[Pair, ...]:
        """The pairs of two different scores; the judged one in any case."""
        return tuple(p for i, p in enumerate(self.material.pairs) if i == 0 or p.id != p.ood)

    @cached_property
    def single(self) -> Pair:
        """One score alone: msp, or the confidence of the file."""
        return next(pair for pair in self.material.pairs if pair.id == pair.ood and pair.id in ALONE)

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Each kind of unknown inputs by itself; one empty group where there are none."""
        return [(role,) for role in self.material.roles] or [()]

    @cached_property
    def points(self) -> dict[Pair, tuple[float, float]]:
        """Thresholds of each pair: those of validation, else the best on the data shown."""
        return {pair: self._point(pair) for pair in self.material.pairs}

    def _point(self, pair: Pair) -> tuple[float, float]:
        if not math.isnan(pair.tau_id):
            return pair.tau_id, pair.tau_ood
        return self.best_shown[pair]

    @cached_property
    def best_shown(self) -> dict[Pair, tuple[float, float]]:
        """Thresholds with the best DS-F1 on the data shown, placed between confidences that occur."""
        p, found = self.pool, {}
        for pair in self.material.pairs:
            best = metrics.ds_f1(p.correct, p.conf[pair.id], p.conf[pair.ood], p.inside)
            tau_id = between_neighbours(best.tau_id, p.conf[pair.id])  # where Gate.fit places them
            tau_ood = between_neighbours(best.tau_ood, p.conf[pair.ood])
            found[pair] = tau_id, tau_ood
        return found

    @cached_property
    def grids(self) -> dict[Pair, Grid]:
        """The summaries that the explorer works on."""
        p, found = self.pool, {}
        for pair in self.shown:
            also = (self.points[pair], self.best_shown[pair])
            found[pair] = Grid.of(p.kinds, p.conf[pair.id], p.conf[pair.ood], also)
            self.done(f"counting for {pair.name}")
        return found

    def taken(self, rows: Scored | Pool, pair: Pair | None = None) -> Mask:
        """Mark the rows that the gate of a pair accepts.

        Parameters
        ----------
        rows : Scored or Pool
            The rows.
        pair : Pair, optional
            The pair of scores; by default the judged one.

        Returns
        -------
        ndarray of bool
            True where both scores reach their thresholds.
        """
        chosen = self.pair if pair is None else pair
        tau_id, tau_ood = self.points[chosen]
        return np.asarray((rows.conf[chosen.id] >= tau_id) & (rows.conf[chosen.ood] >= tau_ood))

    @cached_property
    def _measured(self) -> dict[tuple[tuple[str, ...], Pair], dict[str, Array]]:
        return {}

    def measured(self, roles: tuple[str, ...], pair: Pair) -> dict[str, Array]:
        """Compute the columns of the joint table on the test sets and the sets of some roles.

        Parameters
        ----------
        roles : tuple of str
            Roles of unknown inputs.
        pair : Pair
            The pair of scores.

        Returns
        -------
        dict of str to ndarray
            For each metric the value, then its replicates. The answer is remembered.
        """
        if (roles, pair) not in self._measured:
            self._measured[roles, pair] = self._measure(roles, pair)
            self.done(f"intervals of {pair.name}")
        return self._measured[roles, pair]

    def measure_all(self, wanted: Sequence[tuple[tuple[str, ...], Pair]]) -> None:
        """Measure many combinations at once in threads; each has random draws of its own.

        Parameters
        ----------
        wanted : sequence of (tuple of str, Pair)
            Roles and pair of each combination; :meth:`measured` then returns them at once.
        """
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            list(pool.map(lambda one: self.measured(*one), dict.fromkeys(wanted)))

    def draws(self, rows: int) -> int:
        """Choose the number of resamples for a table.

        Parameters
        ----------
        rows : int
            Number of rows of the table.

        Returns
        -------
        int
            At most ``resamples``, fewer for large tables, and 0 where intervals would be narrower than the digits.
        """
        return 0 if rows > ROWS else int(min(self.resamples, max(100, WORK // rows)))

    def _measure(self, roles: tuple[str, ...], pair: Pair) -> dict[str, Array]:
        sets = self.material.of("test", *roles)
        rows = sum(len(one) for one in sets)
        names = tuple(JOINT) if roles else ("accuracy", "aurc", "augrc")
        known = sum(len(one) for one in self.material.test)
        if known > EXACT:
            p = self.material.pool(*roles)
            return _large(p, pair, names)
        scored = {
            one.name: ScoredSet(
                one.correct,
                np.full(len(one), one.role not in UNKNOWN),
                one.conf[pair.id],
                one.conf[pair.ood] if roles else None,
            )
            for one in sets
        }
        tests = tuple(one.name for one in self.material.test)
        others = tuple(one.name for one in sets if one.name not in tests)
        view = ProtocolView("report", "near", tests, others, "joint", names)
        return values(view, scored, names, n=self.draws(rows), seed=self.seed)


def _large(p: Pool, pair: Pair, names: Sequence[str]) -> dict[str, Array]:
    """Compute values without replicates, the area under two thresholds from a grid of them."""
    second = p.conf[pair.ood] if p.inside is not None else None
    quick = [name for name in names if name != "ds_aurc"]
    found = dict(metrics.evaluate(p.correct, p.conf[pair.id], is_id=p.inside, conf_ood=second, only=quick))
    if "ds_aurc" in names:
        found["ds_aurc"] = metrics.ds_aurc(p.correct, p.conf[pair.id], p.conf[pair.ood], p.inside, method="grid")
    return {name: np.array([found[name]]) for name in names}


def number(drawn: Array, factor: float = 100.0, *, strong: bool = False) -> Number:
    """Make a number of a table from a value and its replicates, with their 95 % interval.

    Parameters
    ----------
    drawn : ndarray
        The value, then its replicates; NaN among the replicates is ignored.
    factor : float, default=100.0
        Factor of the printed number.
    strong : bool, default=False
        Whether to print the number in bold.

    Returns
    -------
    Number
        The number; without replicates it has no interval.

    Examples
    --------
    >>> str(number(np.array([0.5, 0.4, 0.6])))
    '50.0'
    """
    rest = drawn[1:][~np.isnan(drawn[1:])]
    low, high = np.quantile(rest, (0.025, 0.975)) if len(rest) else (math.nan, math.nan)
    return Number(float(drawn[0]), float(low), float(high), factor, strong=strong)


def exact(hits: int, n: int) -> Number:
    """Make a number of a table from a share, with its exact (Clopper-Pearson) 95 % interval.

    Parameters
    ----------
    hits : int
        Number of successes.
    n : int
        Number of trials.

    Returns
    -------
    Number
        The share in percent; NaN without trials.

    Examples
    --------
    >>> str(exact(9, 10)), exact(9, 10).span
    ('90.0', '[55.5, 99.7]')
    """
    from twofold.stats.bounds import clopper_pearson

    if not n:
        return Number(math.nan, factor=100.0)
    low, high = clopper_pearson(hits, n, delta=0.05, side="two")
    return Number(hits / n, low, high, 100.0)
