"""Compute once what several sections of a report need: thresholds, what they accept, and metrics with replicates."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from twofold import metrics
from twofold.bench.protocols import ProtocolView, ScoredSet
from twofold.bench.resampling import values
from twofold.gate.thresholds import between_neighbours
from twofold.report.document import Number
from twofold.report.options import Done
from twofold.report.scored import Pool, ReportSet, ReportSource, ScorePair
from twofold.report.tables import JOINT
from twofold.report.threshold_grid import ThresholdGrid, Thresholds
from twofold.typing import Array, Mask

SINGLES = ("msp", "conf")  # single scores that pairs are compared with
EXACT = 120_000  # known inputs up to which the area under two thresholds is exact
MOST_ROWS = 200_000  # above, intervals are narrower than the digits that are printed
WORK = 4_000_000  # rows times resamples that an interval may cost

UNKNOWN_NAMES = {"near": "near unknown", "mid": "mid unknown", "far": "far unknown", "unknown": "unknown"}
KIND_NAMES = {"correct": "correct predictions", "wrong": "wrong predictions"}
KIND_NAMES |= {role: f"{name} inputs" for role, name in UNKNOWN_NAMES.items()}

Roles: TypeAlias = tuple[str, ...]
Replicates: TypeAlias = dict[str, Array]  # by metric: the value, then its replicates


@dataclass(frozen=True, eq=False)
class Measurements:
    """Compute, once and on demand, what several sections need.

    Parameters
    ----------
    source : ReportSource
        What the report is made from.
    resamples : int
        Upper limit on the number of bootstrap resamples.
    seed : int
        Seed of the resampling.
    done : callable
        Called with the name of each finished step.
    """

    source: ReportSource
    resamples: int
    seed: int
    done: Done
    _joint_metrics: dict[tuple[Roles, ScorePair], Replicates] = field(default_factory=dict, init=False)

    @cached_property
    def pool(self) -> Pool:
        """The test sets and all unknown inputs."""
        return self.source.pool(*self.source.unknown_roles)

    @property
    def pair(self) -> ScorePair:
        """The pair of scores that the report is on."""
        return self.source.pairs[0]

    @cached_property
    def single(self) -> ScorePair:
        """One score alone: msp, or the confidence of the file."""
        return next(pair for pair in self.source.pairs if pair.is_single and pair.id in SINGLES)

    @property
    def unknown_groups(self) -> list[Roles]:
        """Each kind of unknown inputs by itself; one empty group where there are none."""
        return [(role,) for role in self.source.unknown_roles] or [()]

    # --- thresholds -------------------------------------------------------------------------------------------------

    @cached_property
    def thresholds(self) -> dict[ScorePair, Thresholds]:
        """Thresholds of each pair: those of validation, else the best on the data shown."""
        found = {}
        for pair in self.source.pairs:
            found[pair] = pair.tau_id, pair.tau_ood
            if math.isnan(pair.tau_id):
                found[pair] = self.best_thresholds[pair]
        return found

    @cached_property
    def best_thresholds(self) -> dict[ScorePair, Thresholds]:
        """Thresholds with the best DS-F1 on the data shown, placed between confidences that occur."""
        pool = self.pool
        found = {}
        for pair in self.source.pairs:
            conf_id, conf_ood = pool.conf[pair.id], pool.conf[pair.ood]
            best = metrics.ds_f1(pool.correct, conf_id, conf_ood, pool.is_id_or_none)
            tau_id = between_neighbours(best.tau_id, conf_id)  # where Gate.fit places them
            tau_ood = between_neighbours(best.tau_ood, conf_ood)
            found[pair] = tau_id, tau_ood
        return found

    @cached_property
    def grids(self) -> dict[ScorePair, ThresholdGrid]:
        """Counts over pairs of thresholds: of each pair of two scores, and of the pair that the report is on."""
        pool = self.pool
        found = {}
        for pair in self.source.pairs:
            if pair.is_single and pair != self.pair:
                continue
            also = self.thresholds[pair], self.best_thresholds[pair]
            found[pair] = ThresholdGrid.from_samples(pool.kinds, pool.conf[pair.id], pool.conf[pair.ood], also)
            self.done(f"counting for {pair.name}")
        return found

    def accepts(self, rows: ReportSet | Pool, pair: ScorePair | None = None) -> Mask:
        """Mark the rows that the gate of a pair accepts.

        Parameters
        ----------
        rows : ReportSet or Pool
            The rows.
        pair : ScorePair, optional
            The pair of scores; by default the one that the report is on.

        Returns
        -------
        ndarray of bool
            True where both scores reach their thresholds.
        """
        if pair is None:
            pair = self.pair
        tau_id, tau_ood = self.thresholds[pair]
        return np.asarray((rows.conf[pair.id] >= tau_id) & (rows.conf[pair.ood] >= tau_ood))

    # --- metrics with replicates ------------------------------------------------------------------------------------

    def joint_metrics(self, roles: Roles, pair: ScorePair) -> Replicates:
        """Compute the columns of the joint table on the test sets and the sets of some roles.

        Parameters
        ----------
        roles : tuple of str
            Roles of unknown inputs.
        pair : ScorePair
            The pair of scores.

        Returns
        -------
        dict of str to ndarray
            For each metric the value, then its replicates. They are computed once and kept.
        """
        key = roles, pair
        if key not in self._joint_metrics:
            self._joint_metrics[key] = self._compute_joint_metrics(roles, pair)
            self.done(f"intervals of {pair.name}")
        return self._joint_metrics[key]

    def compute_in_threads(self, combinations: Sequence[tuple[Roles, ScorePair]]) -> None:
        """Compute many combinations at once in threads; each has its own random draws.

        Parameters
        ----------
        combinations : sequence of (tuple of str, ScorePair)
            Roles and pair of each combination; :meth:`joint_metrics` then returns them at once.
        """
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as executor:
            list(executor.map(lambda one: self.joint_metrics(*one), dict.fromkeys(combinations)))

    def resamples_for(self, rows: int) -> int:
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
        if rows > MOST_ROWS:
            return 0
        return min(self.resamples, max(100, WORK // rows))

    def _compute_joint_metrics(self, roles: Roles, pair: ScorePair) -> Replicates:
        names: tuple[str, ...] = ("accuracy", "aurc", "augrc")
        if roles:
            names = tuple(JOINT)
        tests = self.source.tests
        if sum(map(len, tests)) > EXACT:
            return _metrics_of_large_pool(self.source.pool(*roles), pair, names)
        unknown = self.source.sets_of(*roles)
        scored = {}
        for one in (*tests, *unknown):
            conf_ood = None
            if roles:
                conf_ood = one.conf[pair.ood]
            scored[one.name] = ScoredSet(one.correct, np.full(len(one), one.is_known), one.conf[pair.id], conf_ood)
        rows = sum(map(len, scored.values()))
        known_names = tuple(one.name for one in tests)
        unknown_names = tuple(one.name for one in unknown)
        view = ProtocolView("report", "near", known_names, unknown_names, "joint", names)
        return values(view, scored, names, n=self.resamples_for(rows), seed=self.seed)


def _metrics_of_large_pool(pool: Pool, pair: ScorePair, names: Sequence[str]) -> Replicates:
    """Compute values without replicates, the area under two thresholds from a grid of them."""
    conf_id, conf_ood = pool.conf[pair.id], pool.conf[pair.ood]
    is_id = pool.is_id_or_none
    second = None
    if is_id is not None:
        second = conf_ood
    quick = [name for name in names if name != "ds_aurc"]
    found = dict(metrics.evaluate(pool.correct, conf_id, is_id=is_id, conf_ood=second, only=quick))
    if "ds_aurc" in names:
        found["ds_aurc"] = metrics.ds_aurc(pool.correct, conf_id, conf_ood, is_id, method="grid")
    return {name: np.array([found[name]]) for name in names}


# --- numbers of tables ----------------------------------------------------------------------------------------------


def replicated_number(drawn: Array, factor: float = 100.0, *, strong: bool = False) -> Number:
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
    >>> str(replicated_number(np.array([0.5, 0.4, 0.6])))
    '50.0'
    """
    replicates = drawn[1:][~np.isnan(drawn[1:])]
    low = high = math.nan
    if len(replicates):
        low, high = np.quantile(replicates, (0.025, 0.975))
    return Number(float(drawn[0]), float(low), float(high), factor, strong=strong)


def exact_share(hits: int, n: int) -> Number:
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
    >>> str(exact_share(9, 10)), exact_share(9, 10).span
    ('90.0', '[55.5, 99.7]')
    """
    from twofold.stats.bounds import clopper_pearson

    if not n:
        return Number(math.nan, factor=100.0)
    low, high = clopper_pearson(hits, n, delta=0.05, side="two")
    return Number(hits / n, low, high, 100.0)


def count_share(hits: Mask, among: Mask | None = None) -> Number:
    """Make a number of a table from masks: the share of ``hits`` among some rows, with its exact interval.

    Parameters
    ----------
    hits : ndarray of bool
        Rows that count.
    among : ndarray of bool, optional
        Rows that the share is of; by default all.

    Returns
    -------
    Number
        The share in percent; NaN without rows.

    Examples
    --------
    >>> str(count_share(np.array([True, False, True]), np.array([True, True, False])))
    '50.0'
    """
    if among is None:
        return exact_share(int(hits.sum()), len(hits))
    return exact_share(int((hits & among).sum()), int(among.sum()))
