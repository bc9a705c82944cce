"""Methods under evaluation: a score or a pair of scores on a run under a protocol, and its rows of results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property

import numpy as np

from twofold._checks import Array
from twofold.bench.added_metrics import compute_columns, is_added
from twofold.bench.cache import CacheEntry, digest, source_digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.confidences import Confidences
from twofold.bench.protocols import Protocol, ProtocolView, ScoredSet, Tuning
from twofold.bench.resampling import Values, average_values, values
from twofold.bench.rows import CHOICES, VALIDATION, Key, registered_direction
from twofold.bench.subjects import Subject
from twofold.metrics.evaluate import EvaluationMethod, add_published_forms
from twofold.scores.chain import scorer

MEASURING = (
    *("_math.py", "_kernels.py", "metrics", "stats/bootstrap.py"),
    *("bench/protocols.py", "bench/resampling.py", "bench/added_metrics.py"),
)
"""Source that values depend on."""

LEVEL = 0.95  # of the intervals


@dataclass(frozen=True, eq=False)
class ViewValues:
    """Hold the values of one view.

    Parameters
    ----------
    metrics : mapping of str to ndarray
        By metric: the value, then its bootstrap replicates.
    n : int
        Number of rows that entered.
    n_id : int
        Number of known rows among them.
    """

    metrics: Values
    n: int
    n_id: int


def measure_views(
    views: Sequence[ProtocolView],
    scored: Mapping[str, ScoredSet],
    is_pair: bool,
    resamples: int,
    seed: int,
    printed: Mapping[str, ScoredSet] | None = None,
) -> dict[str, ViewValues]:
    """Compute the metrics of views.

    It takes plain values, so that it runs in any process.

    Parameters
    ----------
    views : sequence of ProtocolView
        The views.
    scored : mapping of str to ScoredSet
        Scored data sets by name.
    is_pair : bool
        Whether to measure the metrics of a pair of scores, or those of a single score.
    resamples : int
        Number of bootstrap resamples.
    seed : int
        Seed of the resampling.
    printed : mapping of str to ScoredSet, optional
        The same with confidences on the scale that papers print, for published forms of metrics.

    Returns
    -------
    dict of str to ViewValues
        By shift.
    """
    found = {}
    for view in views:
        inputs = view.collect(scored)
        n = len(inputs.conf)
        if view.rule in ("proposed", "original"):
            n_id = int(inputs.correct.sum())
        elif inputs.is_id is None:
            n_id = n
        else:
            n_id = int(inputs.is_id.sum())
        names = _metrics_of(view, is_pair)
        measured = values(view, scored, names, n=resamples, seed=seed, printed=printed)
        found[view.shift] = ViewValues(measured, n, n_id)
    return found


@dataclass(frozen=True, eq=False)
class MethodEvaluation:
    """Hold one score or pair of a run under a protocol, with its confidences.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    subject : Subject
        The run.
    protocol : Protocol
        The protocol.
    score : str
        The score, or the ID score of a pair.
    pair : str or None
        The OOD score of a pair.
    first : Confidences
        Confidences of ``score``.
    second : Confidences or None
        Confidences of ``pair``.
    seed : int
        Seed of the resampling.
    method : {"exact", "published"}, default="exact"
        Whether the published forms of metrics are measured beside them.
    """

    benchmark: Benchmark
    subject: Subject
    protocol: Protocol
    score: str
    pair: str | None
    first: Confidences
    second: Confidences | None
    seed: int
    method: EvaluationMethod = "exact"

    @cached_property
    def views(self) -> tuple[ProtocolView, ...]:
        """The views of the protocol and that of the validation data; for a pair, those that have pair metrics.

        Returns
        -------
        tuple of ProtocolView
            Views of a single score also measure the metrics that the benchmark adds.
        """
        views = self.protocol.views(self.subject.roles)
        if self.method == "published":
            views = tuple(_with_published_forms(view) for view in views)
        if self.pair is not None:
            return tuple(view for view in views if view.pair_metrics)
        extended = []
        for view in views:
            metrics = dict.fromkeys([*view.metrics, *self.benchmark.metrics])
            extended.append(replace(view, metrics=tuple(metrics)))
        return (*extended, *_validation_views(self.subject, self.protocol.tuning))

    @property
    def is_pair(self) -> bool:
        """Whether this is a pair of scores."""
        return self.pair is not None

    def measures(self, metric: str) -> bool:
        """Check whether some view measures a metric.

        Parameters
        ----------
        metric : str
            Name of the metric.

        Returns
        -------
        bool
            True if it is among the metrics of a view.
        """
        return any(metric in _metrics_of(view, self.is_pair) for view in self.views)

    def scored_sets(self, views: Iterable[ProtocolView]) -> dict[str, ScoredSet]:
        """Collect the data sets of views under this score or pair.

        Parameters
        ----------
        views : iterable of ProtocolView
            The views.

        Returns
        -------
        dict of str to ScoredSet
            By name of the data set.
        """
        scored: dict[str, ScoredSet] = {}
        for view in views:
            for name in view.sets:
                if name not in scored:
                    correct, is_id = self.subject.truth(name, self.first.judges)
                    conf_ood = None
                    if self.second is not None:
                        conf_ood = self.second.conf[name]
                    columns = self._columns(name)
                    scored[name] = ScoredSet(correct, is_id, self.first.conf[name], conf_ood, columns=columns)
        return scored

    def printed_sets(self, views: Iterable[ProtocolView]) -> dict[str, ScoredSet] | None:
        """Collect the data sets of views with confidences on the scale that papers print.

        Parameters
        ----------
        views : iterable of ProtocolView
            The views.

        Returns
        -------
        dict of str to ScoredSet, or None
            By name of the data set; None where no published form is measured.
        """
        if self.method == "exact":
            return None
        first = scorer(self.score)
        second = None if self.pair is None else scorer(self.pair)
        printed = {}
        for name, one in self.scored_sets(views).items():
            conf_ood = one.conf_ood
            if second is not None and conf_ood is not None:
                conf_ood = second.to_printed_scale(conf_ood)
            printed[name] = replace(one, conf=first.to_printed_scale(one.conf), conf_ood=conf_ood)
        return printed

    def _columns(self, name: str) -> dict[str, Array]:
        """Compute what the metrics that the benchmark adds need of each row of a data set."""
        if self.is_pair or not any(is_added(metric) for metric in self.benchmark.metrics):
            return {}
        val_correct, val_conf = [], []
        for val in self.subject.names("val"):
            val_correct.append(self.subject.truth(val, self.first.judges)[0])
            val_conf.append(self.first.conf[val])
        return compute_columns(
            self.benchmark.metrics,
            self.subject.run[name],
            self.score,
            self.first.conf[name],
            np.concatenate(val_correct),
            np.concatenate(val_conf),
        )

    # --- the cache --------------------------------------------------------------------------------------------------

    @property
    def cache_name(self) -> str:
        """Name of the entry in the cache."""
        return f"value-{digest(self.subject.folder, self.protocol.name, self.score, self.pair)}"

    @cached_property
    def view_digests(self) -> dict[str, str]:
        """Digests of what the values of each view depend on.

        Returns
        -------
        dict of str to str
            By shift.
        """
        source = source_digest(*MEASURING)
        found = {}
        for view in self.views:
            confidences = [self._set_digest(name) for name in view.sets]
            found[view.shift] = digest(_as_dict(view), confidences, self.seed, self.first.judges, source)
        return found

    def _set_digest(self, name: str) -> str:
        """Combine the digests of the confidences on a data set."""
        if self.second is None:
            return self.first.digests[name]
        return digest(self.first.digests[name], self.second.digests[name])

    def read_entry(self, entry: CacheEntry, resamples: int) -> dict[str, ViewValues]:
        """Read the values that a cache entry holds and that are still valid.

        Parameters
        ----------
        entry : CacheEntry
            What the cache holds for this method.
        resamples : int
            Number of bootstrap replicates that values must have at least.

        Returns
        -------
        dict of str to ViewValues
            By shift; views that must be computed are absent.
        """
        found = {}
        for view in self.views:
            if entry.keys.get(view.shift) != self.view_digests[view.shift]:
                continue
            stored = _read_view(entry, view.shift, _metrics_of(view, self.is_pair))
            if stored is not None and all(len(array) > resamples for array in stored.metrics.values()):
                found[view.shift] = stored
        return found

    def make_entry(self, found: Mapping[str, ViewValues]) -> CacheEntry:
        """Make the cache entry of values.

        Parameters
        ----------
        found : mapping of str to ViewValues
            Values by shift.

        Returns
        -------
        CacheEntry
            What :meth:`read_entry` reads.
        """
        arrays = {}
        counts = {}
        for shift, own in found.items():
            counts[shift] = [own.n, own.n_id]
            for metric, array in own.metrics.items():
                arrays[f"{shift}|{metric}"] = array
        keys = {shift: self.view_digests[shift] for shift in found}
        return CacheEntry(arrays, keys, {"counts": counts})

    # --- rows of results --------------------------------------------------------------------------------------------

    @cached_property
    def shared_columns(self) -> dict[str, object]:
        """The columns that all rows of this method share.

        Returns
        -------
        dict
            Those of the run, and score, pair, protocol, tuned and chosen.
        """
        parts = [self.first]
        if self.second is not None:
            parts.append(self.second)
        labels = [part.tuned for part in parts if part.tuned]
        return {
            **self.subject.shared_columns(self.benchmark),
            "score": self.score,
            "pair": self.pair,
            "protocol": self.protocol.name,
            "tuned": max(labels, key=CHOICES["tuned"].index, default=None),
            "chosen": " + ".join([part.chosen for part in parts]) or None,
        }

    def make_rows(self, found: Mapping[str, ViewValues]) -> tuple[list[dict[str, object]], dict[Key, Array]]:
        """Make the rows of results of this method.

        Parameters
        ----------
        found : mapping of str to ViewValues
            Values of every view by shift.

        Returns
        -------
        tuple of (list of dict, dict)
            One row for each shift and metric, averages among them, and the replicates of each.
        """
        roles = {view.shift: view.role for view in self.views}
        measured = {shift: found[shift] for shift in roles}
        for average in self.protocol.averages(self.subject.roles):
            if found.keys() >= set(average.of):
                roles[average.shift] = average.role
                measured[average.shift] = _average_views([found[shift] for shift in average.of])
        intervals = _intervals(measured)
        rows: list[dict[str, object]] = []
        replicates: dict[Key, Array] = {}
        for shift, own in measured.items():
            for metric, array in own.metrics.items():
                row = self._make_row(shift, roles[shift], metric, float(array[0]), own)
                if (shift, metric) in intervals:
                    low, high = intervals[shift, metric]
                    row |= {"low": low, "high": high, "level": LEVEL, "resamples": len(array) - 1}
                    key = self.subject.name, self.score, self.pair, shift, self.protocol.name, metric
                    replicates[key] = array[1:]
                rows.append(row)
        return rows, replicates

    def _make_row(self, shift: str, role: str, metric: str, value: float, own: ViewValues) -> dict[str, object]:
        """Make one row, without an interval."""
        reason = None
        if math.isnan(value):
            reason = "the metric has no value here"
        return {
            **self.shared_columns,
            "shift": shift,
            "role": role,
            "metric": metric,
            "value": value,
            "n": own.n,
            "n_id": own.n_id,
            "n_ood": own.n - own.n_id,
            "reason": reason,
            "better": _direction(metric),
        }


def _metrics_of(view: ProtocolView, is_pair: bool) -> tuple[str, ...]:
    """List the metrics to measure in a view: those of a single score, or those of a pair."""
    if is_pair:
        return view.pair_metrics
    return view.metrics


def _with_published_forms(view: ProtocolView) -> ProtocolView:
    """Add the published forms of a view's metrics."""
    metrics = tuple(add_published_forms(view.metrics))
    return replace(view, metrics=metrics, pair_metrics=tuple(add_published_forms(view.pair_metrics)))


def _average_views(members: Sequence[ViewValues]) -> ViewValues:
    """Average values over views, and add up their rows."""
    n, n_id = 0, 0
    for member in members:
        n += member.n
        n_id += member.n_id
    return ViewValues(average_values([member.metrics for member in members]), n, n_id)


@cache
def _as_dict(view: ProtocolView) -> dict[str, object]:
    return asdict(view)


_direction = cache(registered_direction)


def _validation_views(subject: Subject, tuning: Tuning) -> list[ProtocolView]:
    """View the data on which settings were chosen, judged by the metric that chose them."""
    val, ood_val = subject.names("val"), subject.names("ood_val")
    if "ood_val" not in tuning.sets:
        return [ProtocolView(VALIDATION, "val", val, (), "known", (tuning.metric,))]
    if ood_val:
        return [ProtocolView(VALIDATION, "val", val, ood_val, "joint", (tuning.metric,))]
    return []


def _read_view(entry: CacheEntry, shift: str, metrics: Sequence[str]) -> ViewValues | None:
    """Read the values of a shift with its counts of rows; None where they are not all there, or malformed."""
    try:
        n, n_id = entry.facts["counts"][shift]
        arrays = {metric: entry.arrays[f"{shift}|{metric}"] for metric in metrics}
    except (LookupError, TypeError, ValueError):
        return None
    return ViewValues(arrays, n, n_id)


def _intervals(measured: Mapping[str, ViewValues]) -> dict[tuple[str, str], tuple[float, float]]:
    """Compute the interval of each value that has replicates, by shift and metric."""
    replicates = {}
    for shift, own in measured.items():
        for metric, array in own.metrics.items():
            has_value = ~np.isnan(array[1:])
            if has_value.any():
                replicates[shift, metric] = array[1:]
    if not replicates:
        return {}
    table = np.stack(list(replicates.values()))
    tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    if np.isnan(table).any():
        low, high = np.nanquantile(table, tails, axis=1)
    else:
        low, high = np.quantile(table, tails, axis=1)  # much faster
    limits = zip(low.tolist(), high.tolist(), strict=True)
    return dict(zip(replicates, limits, strict=True))
