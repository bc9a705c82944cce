"""Run a benchmark on extracted runs: every score and pair, every shift, every protocol, with intervals.

Three rounds of independent tasks: confidences of scores on data sets, values of scores and of pairs, and the resamples
of the best pairs. Each result goes into the cache as it comes, from this process alone, with a digest of what it was
computed from. A second run computes what is new and nothing else; an interrupted run resumes with the same call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np

from twofold import _checks
from twofold._checks import Array
from twofold.bench.cache import Cache, CacheEntry, digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.confidences import Confidences, ScoreDigests, compute_confidences, score_digests
from twofold.bench.engines import ENGINES, Engine, Workers, execute
from twofold.bench.evaluations import MethodEvaluation, ViewValues, measure_views
from twofold.bench.protocols import Protocol, Tuning, protocol
from twofold.bench.results import Results
from twofold.bench.rows import Key
from twofold.bench.subjects import Subject
from twofold.errors import InvalidInput
from twofold.metrics.evaluate import EvaluationMethod
from twofold.run import Run
from twofold.scores.chain import scorer

ScorePair = tuple[str, str]  # ID score and OOD score
Progress = Callable[[str, int, int], object]  # called with a label, how many tasks are done, and how many there are
Rows = list[dict[str, object]]
Replicates = dict[Key, Array]
Result = TypeVar("Result")

SCORES_PER_TASK = 4  # scores of one task share what they learn of the training set


def _ignore_progress(label: str, count: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Bench:
    """Evaluate a benchmark: read what the cache holds, and compute and store the rest.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    protocols : sequence of Protocol
        The protocols to judge under.
    cache : Cache
        Where results are stored.
    resamples : int, default=0
        Number of bootstrap resamples.
    seed : int, default=0
        Seed of the resampling.
    workers : Workers, default=Workers()
        Where tasks run.
    progress : callable, optional
        Called with label, count and total as tasks finish.
    method : {"exact", "published"}, default="exact"
        Whether the published forms of metrics are measured beside them.
    """

    benchmark: Benchmark
    protocols: Sequence[Protocol]
    cache: Cache
    resamples: int = 0
    seed: int = 0
    workers: Workers = field(default_factory=Workers)
    progress: Progress = _ignore_progress
    method: EvaluationMethod = "exact"

    def confidences(self, subject: Subject, specs: Sequence[str], tuning: Tuning) -> dict[str, Confidences]:
        """Compute the confidences of scores on all data sets of a run.

        Parameters
        ----------
        subject : Subject
            The run.
        specs : sequence of str
            Scores.
        tuning : Tuning
            How settings that a score leaves open are chosen.

        Returns
        -------
        dict of str to Confidences
            By score, in the order of ``specs``.
        """
        digests = {spec: score_digests(subject, spec, tuning) for spec in specs}
        known: dict[str, Confidences] = {}
        missing: dict[str, list[str]] = {}
        for spec in specs:
            entry = self.cache.read(_confidences_name(subject, spec, tuning))
            known[spec] = _read_confidences(entry, digests[spec])
            absent = [name for name in subject.scored_sets if name not in known[spec].conf]
            if absent and not known[spec].reason:
                missing[spec] = absent
        tasks = _confidence_tasks(subject, missing, tuning)
        for _, computed in self._run_tasks(f"{subject.name}: scores", tasks):
            for spec, new in computed.items():
                conf = {}
                if not new.reason:
                    conf = {**known[spec].conf, **new.conf}
                known[spec] = replace(new, conf=conf, digests=digests[spec].sets)
                entry = _confidences_entry(known[spec], digests[spec])
                self.cache.write(_confidences_name(subject, spec, tuning), entry)
        return known

    def measure(
        self, methods: Sequence[MethodEvaluation], *, resamples: int, label: str
    ) -> dict[MethodEvaluation, dict[str, ViewValues]]:
        """Compute the values of methods.

        Parameters
        ----------
        methods : sequence of MethodEvaluation
            Scores and pairs.
        resamples : int
            Number of bootstrap resamples.
        label : str
            Name of this round for the progress callback.

        Returns
        -------
        dict of MethodEvaluation to dict of str to ViewValues
            Values of each method by shift.
        """
        found: dict[MethodEvaluation, dict[str, ViewValues]] = {}
        tasks, waiting = [], []
        for method in methods:
            found[method] = method.read_entry(self.cache.read(method.cache_name), resamples)
            views = [view for view in method.views if view.shift not in found[method]]
            if views:
                scored = method.scored_sets(views)
                printed = method.printed_sets(views)
                tasks.append(partial(measure_views, views, scored, method.is_pair, resamples, self.seed, printed))
                waiting.append(method)
        for index, computed in self._run_tasks(label, tasks):
            method = waiting[index]
            found[method] |= computed
            self.cache.write(method.cache_name, method.make_entry(found[method]))
        return found

    def judge(
        self, subject: Subject, scores: Sequence[str], pairs: Sequence[ScorePair], best: int
    ) -> tuple[Rows, Replicates]:
        """Judge scores and pairs on a run under every protocol.

        Parameters
        ----------
        subject : Subject
            The run.
        scores : sequence of str
            Single scores.
        pairs : sequence of (str, str)
            Pairs of an ID score and an OOD score.
        best : int
            Number of pairs per protocol that get intervals.

        Returns
        -------
        tuple of (list of dict, dict)
            Rows of results, and the replicates of those with intervals.
        """
        specs = list(dict.fromkeys([*scores, *chain.from_iterable(pairs)]))
        confidences: dict[Tuning, dict[str, Confidences]] = {}
        for judged_by in self.protocols:
            if judged_by.tuning not in confidences:
                confidences[judged_by.tuning] = self.confidences(subject, specs, judged_by.tuning)
        rows: Rows = []
        singles: list[MethodEvaluation] = []
        doubles: list[MethodEvaluation] = []
        for judged_by in self.protocols:
            conf = confidences[judged_by.tuning]
            for score in scores:
                method = self._method(subject, judged_by, conf, score)
                if conf[score].reason:
                    rows.append({**method.shared_columns, "value": math.nan, "reason": conf[score].reason})
                else:
                    singles.append(method)
            for score, pair in pairs:
                method = self._method(subject, judged_by, conf, score, pair)
                has_confidences = not (conf[score].reason or conf[pair].reason)
                if has_confidences and method.views:
                    doubles.append(method)
        found = self.measure(singles, resamples=self.resamples, label=f"{subject.name}: values")
        found |= self.measure(doubles, resamples=0, label=f"{subject.name}: pairs")
        if self.resamples:
            leading = _best_pairs(found, doubles, best)
            label = f"{subject.name}: intervals of the best pairs"
            found |= self.measure(leading, resamples=self.resamples, label=label)
        replicates: Replicates = {}
        for method, values in found.items():
            own_rows, own_replicates = method.make_rows(values)
            rows += own_rows
            replicates |= own_replicates
        return rows, replicates

    def _method(
        self,
        subject: Subject,
        judged_by: Protocol,
        conf: Mapping[str, Confidences],
        score: str,
        pair: str | None = None,
    ) -> MethodEvaluation:
        """Put a score or a pair under a protocol."""
        return MethodEvaluation(
            benchmark=self.benchmark,
            subject=subject,
            protocol=judged_by,
            score=score,
            pair=pair,
            first=conf[score],
            second=None if pair is None else conf[pair],
            seed=self.seed,
            method=self.method,
        )

    def absent_sets(self, subject: Subject) -> Rows:
        """Make a row for each data set of the benchmark that the run lacks.

        Parameters
        ----------
        subject : Subject
            The run.

        Returns
        -------
        list of dict
            Rows without a metric, with the reason.
        """
        shared = subject.shared_columns(self.benchmark)
        shared |= {"value": math.nan, "reason": "the run does not hold this data set"}
        rows = []
        for one in self.benchmark.sets:
            if one.name not in subject.roles:
                rows.append({**shared, "shift": one.name, "role": one.role})
        return rows

    def _run_tasks(self, label: str, tasks: Sequence[Callable[[], Result]]) -> Iterator[tuple[int, Result]]:
        """Yield results of tasks with their indices, as they finish, and report progress."""
        self.progress(label, 0, len(tasks))
        for count, (index, result) in enumerate(execute(tasks, self.workers), start=1):
            yield index, result
            self.progress(label, count, len(tasks))


def _confidences_name(subject: Subject, spec: str, tuning: Tuning) -> str:
    """Name the cache entry of the confidences of a score."""
    return f"score-{digest(subject.folder, spec, tuning.to_dict())}"


def _read_confidences(entry: CacheEntry, digests: ScoreDigests) -> Confidences:
    """Read the confidences in a cache entry that are still valid; none where the entry is of another fit."""
    if entry.facts.get("fit") != digests.fit:
        return Confidences()
    return Confidences(**entry.facts["told"], conf=entry.current(digests.sets), digests=digests.sets)


def _confidences_entry(found: Confidences, digests: ScoreDigests) -> CacheEntry:
    """Make the cache entry of confidences."""
    keys = {name: digests.sets[name] for name in found.conf}
    about = {"chosen": found.chosen, "tuned": found.tuned, "judges": found.judges, "reason": found.reason}
    return CacheEntry(found.conf, keys, {"fit": digests.fit, "told": about})


def _confidence_tasks(
    subject: Subject, missing: Mapping[str, Sequence[str]], tuning: Tuning
) -> list[Callable[[], dict[str, Confidences]]]:
    """Share out the scores that lack data sets."""
    specs = list(missing)
    tasks: list[Callable[[], dict[str, Confidences]]] = []
    for start in range(0, len(specs), SCORES_PER_TASK):
        part = {spec: missing[spec] for spec in specs[start : start + SCORES_PER_TASK]}
        tasks.append(partial(compute_confidences, str(subject.run.path), dict(subject.roles), part, tuning))
    return tasks


def _best_pairs(
    found: Mapping[MethodEvaluation, Mapping[str, ViewValues]], pairs: Sequence[MethodEvaluation], best: int
) -> list[MethodEvaluation]:
    """Select the best pairs of each protocol, by the mean of DS-F1 over its views."""
    means: dict[MethodEvaluation, float] = {}
    for method in pairs:
        if method.measures("ds_f1"):
            means[method] = float(np.mean([own.metrics["ds_f1"][0] for own in found[method].values()]))
    by_protocol: dict[str, list[MethodEvaluation]] = {}
    for method in sorted(means, key=lambda method: -means[method]):
        by_protocol.setdefault(method.protocol.name, []).append(method)
    selected = []
    for ranked in by_protocol.values():
        selected += ranked[:best]
    return selected


def run(
    benchmark: Benchmark,
    runs: Sequence[Run | str | Path],
    out: str | Path,
    *,
    scores: Sequence[str] | None = None,
    pairs: Sequence[ScorePair] | None = None,
    protocols: Sequence[str] | None = None,
    resamples: int = 200,
    best: int = 10,
    seed: int = 0,
    jobs: int = 1,
    engine: Engine = "local",
    address: str | None = None,
    method: EvaluationMethod = "exact",
    done: Progress = _ignore_progress,
) -> Results:
    """Judge runs by a benchmark, and write the results with what they were made of to a folder.

    Settings that a score leaves open are chosen by the rule of each protocol. What is missing (a data set, a field that
    a score needs) is in the results with its reason.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    runs : sequence of Run, str or Path
        Extracted runs or their folders.
    out : str or Path
        Folder for the results and the cache. A further call with the same folder computes only what is new.
    scores : sequence of str, optional
        By default those of the benchmark, or else all that the runs allow.
    pairs : sequence of (str, str), optional
        By default those of the benchmark, or else msp with each score; an empty list means none.
    protocols : sequence of str, optional
        By default those of the benchmark.
    resamples : int, default=200
        Number of bootstrap resamples: of every value of a single score, and of the values of the ``best`` pairs. 0
        means no intervals.
    best : int, default=10
        Number of pairs per protocol that get intervals, by mean DS-F1 over the unknown sets.
    seed : int, default=0
        Seed of the resampling.
    jobs : int, default=1
        Number of processes that share the work; Ray and a running Dask cluster bring their own workers.
    engine : {"local", "dask", "ray"}, default="local"
        What runs the tasks; workers of a cluster must be able to read the runs.
    address : str, optional
        Address of a running Dask or Ray cluster.
    method : {"exact", "published"}, default="exact"
        ``"published"`` also measures f1, aurc_id, ds_f1 and ds_aurc as the released code of SURE+ does, in rows of the
        metrics ``NAME_published`` beside the exact ones and without intervals.
    done : callable, optional
        Called with label, count and total as tasks finish.

    Returns
    -------
    Results
        The results, as they are saved in the folder.

    Raises
    ------
    InvalidInput
        If there is no run, a run is listed twice or does not fit the benchmark, or a setting is invalid.
    UnknownName
        If a protocol or score is unknown.
    MissingExtra
        If the engine is not installed.
    RunError
        If the folder cannot be written to.
    """
    _checks.whole(resamples, "resamples", 0)
    _checks.whole(jobs, "jobs", 1)
    _checks.choice(engine, "engine", ENGINES)
    _checks.choice(method, "method", ("exact", "published"))
    subjects = [Subject.of(one, benchmark) for one in runs]
    if not subjects:
        raise InvalidInput("give at least one run; `twofold bench extract` makes them")
    folders = {subject.folder for subject in subjects}
    if len(folders) < len(subjects):
        raise InvalidInput("runs must name each run once, but one is given twice; leave out the copy")
    folder = Path(out)
    bench = Bench(
        benchmark,
        [protocol(name) for name in protocols or benchmark.protocols],
        Cache.open(folder / "cells"),
        resamples,
        seed,
        Workers(jobs, engine, address),
        done,
        method,
    )
    rows: Rows = []
    replicates: Replicates = {}
    for subject in subjects:
        singles = _plan_scores(benchmark, subject, scores)
        doubles = _plan_pairs(benchmark, singles, pairs)
        own_rows, own_replicates = bench.judge(subject, singles, doubles, best)
        rows += [*own_rows, *bench.absent_sets(subject)]
        replicates |= own_replicates
    results = Results.of(rows, replicates)
    results.save(folder)
    return results


def _plan_scores(benchmark: Benchmark, subject: Subject, scores: Sequence[str] | None) -> list[str]:
    """List the scores to judge: those asked for, else those of the benchmark, else all that the run allows."""
    return [scorer(spec).spec for spec in scores or benchmark.scores or subject.scores]


def _plan_pairs(benchmark: Benchmark, singles: Sequence[str], pairs: Sequence[ScorePair] | None) -> list[ScorePair]:
    """List the pairs to judge: those asked for, else those of the benchmark, else msp with each score."""
    if pairs is None:
        pairs = benchmark.pairs or [("msp", spec) for spec in singles]
    return [(scorer(first).spec, scorer(second).spec) for first, second in pairs]


def confidences(
    benchmark: Benchmark,
    run: Run | str | Path,
    out: str | Path,
    protocol_name: str,
    scores: Sequence[str] | None = None,
) -> dict[str, Confidences]:
    """Score a run on every data set of a benchmark, tuned by the rule of a protocol.

    What :func:`run` has computed in the folder ``out`` is read; the rest is computed and stored there.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    run : Run, str or Path
        The run or its folder.
    out : str or Path
        Folder of the results and the cache.
    protocol_name : str
        Name of the protocol.
    scores : sequence of str, optional
        By default those of the benchmark, or else all that the run allows.

    Returns
    -------
    dict of str to Confidences
        By score.

    Raises
    ------
    InvalidInput
        If the run does not fit the benchmark.
    UnknownName
        If the protocol or a score is unknown.
    """
    subject = Subject.of(run, benchmark)
    judged_by = protocol(protocol_name)
    bench = Bench(benchmark, [judged_by], Cache.open(Path(out) / "cells"))
    return bench.confidences(subject, _plan_scores(benchmark, subject, scores), judged_by.tuning)
