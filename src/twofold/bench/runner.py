"""Run a benchmark on extracted runs: every score and pair, every shift, every protocol, with intervals.

Three rounds of independent tasks: confidences of scores on data sets, values of scores and of pairs, and the resamples
of the best pairs. Each result goes into the cache as it comes, from this process alone, with a digest of what it was
computed from. A second run computes what is new and nothing else; an interrupted run resumes with the same call.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from twofold import _checks, metrics
from twofold._checks import Array, Mask
from twofold.bench.cache import Cache, Entry, code, code_of, digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.protocols import Protocol, ProtocolView, ScoredSet, Tuning, protocol
from twofold.bench.resampling import Values, averaged, values
from twofold.bench.results import Results
from twofold.errors import InvalidInput, MissingExtra, TwofoldError
from twofold.outputs import Outputs
from twofold.roles import FITTING
from twofold.run import Run
from twofold.scores import chain as steps
from twofold.scores.chain import Chain, scorer
from twofold.scores.tuning import computable, held, tune

Engine = Literal["local", "dask", "ray"]
Pair = tuple[str, str]
Done = Callable[[str, int, int], Any]  # what was finished, how many tasks are done, of how many
Row = dict[str, Any]
Replicates = dict[tuple[Any, ...], Array]
Found = dict[str, tuple[Values, int, int]]  # by shift: values, rows, known rows
Task = tuple[Callable[..., Any], tuple[Any, ...]]

SCORING = (
    *("_math.py", "_kernels.py", "outputs.py"),
    *("scores/chain.py", "scores/tuning.py", "scores/transforms.py", "scores/_fitting"),
)
MEASURING = ("_math.py", "_kernels.py", "metrics", "stats/bootstrap.py", "bench/protocols.py", "bench/resampling.py")
SHAPED = tuple(f"{name}|energy" for name in ("react", "dice", "ash", "scale", "vra", "lts"))
"""Transforms are no scores by themselves; these are the chains that their papers judge."""

LABELS = ("untuned", "ID-tuned", "OOD-tuned")
LEVEL = 0.95
FIT = "fit"
VALIDATION = "validation"  # shift of the rows on which settings were chosen
CHUNK = 4  # scores of one task, so that they share what they learn of the training set


@dataclass(frozen=True)
class Subject:
    """Hold a run as a benchmark sees it: the data sets of the benchmark that it holds, under their roles.

    Parameters
    ----------
    run : Run
        The run.
    roles : mapping of str to str
        Role by name of the data set.
    """

    run: Run
    roles: Mapping[str, str]

    @classmethod
    def of(cls, run: Run | str | Path, benchmark: Benchmark) -> Subject:
        """Open a run and check that it fits a benchmark.

        Parameters
        ----------
        run : Run, str or Path
            The run or its folder.
        benchmark : Benchmark
            The benchmark.

        Returns
        -------
        Subject
            The run with the data sets that the benchmark names.

        Raises
        ------
        InvalidInput
            If the run has no data set of role train, val or test of the benchmark, or another number of classes.
        """
        opened = run if isinstance(run, Run) else Run.open(run)
        roles = {name: role for name, role in benchmark.roles.items() if name in opened}
        for role in ("train", "val", "test"):
            if role not in roles.values():
                raise InvalidInput(
                    f"{opened.path} holds no data set of role {role} of {benchmark.name}: "
                    f"{', '.join(benchmark.names(role))}; extract it with `twofold bench extract`"
                )
        classes = opened[next(iter(roles))].classes
        if classes != benchmark.classes:
            raise InvalidInput(f"{opened.path} has {classes} classes, but {benchmark.name} has {benchmark.classes}")
        return cls(opened, roles)

    @property
    def name(self) -> str:
        """The name of the run in the rows of results."""
        return self.run.path.name

    @property
    def place(self) -> str:
        """The resolved folder of the run."""
        return str(self.run.path.resolve())

    @property
    def scored(self) -> list[str]:
        """The data sets to score: all but those of role train."""
        return [name for name, role in self.roles.items() if role != "train"]

    def about(self, benchmark: Benchmark) -> Row:
        """Collect the columns that all rows of this run share.

        Parameters
        ----------
        benchmark : Benchmark
            The benchmark.

        Returns
        -------
        dict
            Benchmark, model, recipe, seed, run, version and command.
        """
        from twofold import __version__

        told = self.run.provenance
        by = Path(sys.argv[0]).name == "twofold"
        return {
            "benchmark": benchmark.name,
            **{key: told.get(key) for key in ("model", "recipe", "seed")},
            "run": self.name,
            "version": __version__,
            "command": " ".join(["twofold", *sys.argv[1:]]) if by else None,
        }

    def names(self, role: str) -> list[str]:
        """List the data sets of a role.

        Parameters
        ----------
        role : str
            The role.

        Returns
        -------
        list of str
            Their names.
        """
        return [name for name, own in self.roles.items() if own == role]

    def outputs(self, role: str) -> Outputs | None:
        """Concatenate the outputs of all data sets of a role.

        Parameters
        ----------
        role : str
            The role.

        Returns
        -------
        Outputs or None
            None where no data set has the role.
        """
        found = [self.run[name] for name in self.names(role)]
        return None if not found else found[0] if len(found) == 1 else Outputs.concat(found)

    @cached_property
    def marks(self) -> dict[str, str]:
        """Digest of each data set as it is stored, and of the head."""
        return self.run.digests()

    def truth(self, name: str, judges: str) -> tuple[Mask, Mask]:
        """Compute which rows of a data set are predicted correctly and which are known, and remember the answer.

        Parameters
        ----------
        name : str
            The data set.
        judges : {"logits", "passes"}
            The prediction that a score judges: that of the logits, or of the mean over passes.

        Returns
        -------
        tuple of (ndarray of bool, ndarray of bool)
            Correct predictions, and known rows.
        """
        if (name, judges) not in self._truth:
            found = self.run[name]
            judged = found.averaged() if judges == "passes" else found
            self._truth[name, judges] = np.asarray(judged.correct), np.asarray(judged.is_id)
        return self._truth[name, judges]

    @cached_property
    def _truth(self) -> dict[tuple[str, str], tuple[Mask, Mask]]:
        return {}

    @cached_property
    def scores(self) -> list[str]:
        """All scores that the fields of these data sets allow."""
        sets = [self.run[name] for name in self.roles]
        plain = computable(sets)
        return plain + [spec for spec in SHAPED if set(scorer(spec).needs) <= held(sets)]


@dataclass(frozen=True, eq=False)
class Confidences:
    """Hold the confidences of a score on the data sets of a run, as tuned by a rule; or why there are none.

    Parameters
    ----------
    chosen : str, default=""
        The score with its chosen settings.
    tuned : str, default=""
        What its settings were chosen on: ``"untuned"``, ``"ID-tuned"`` or ``"OOD-tuned"``.
    judges : {"logits", "passes"}, default="logits"
        The prediction that the score judges.
    conf : mapping of str to ndarray, default={}
        Confidences by data set.
    reason : str, default=""
        Why there are none.
    """

    chosen: str = ""
    tuned: str = ""
    judges: str = "logits"
    conf: Mapping[str, Array] = field(default_factory=dict)
    reason: str = ""


# Tasks: plain functions of plain values, so that they run anywhere


def _confidences(
    path: str, roles: Mapping[str, str], missing: Mapping[str, Sequence[str]], tuning: Tuning
) -> dict[str, Confidences]:
    """Fit or tune scores on the validation roles of a run, and score the data sets that each lacks."""
    subject = Subject(Run.open(path), roles)
    train, val, ood_val = (subject.outputs(role) for role in FITTING)
    found: dict[str, Confidences] = {}
    chains: dict[str, Chain] = {}
    for spec in missing:
        try:
            assert train is not None
            assert val is not None
            chains[spec] = _fitted(spec, train, val, ood_val, tuning)
        except TwofoldError as error:
            found[spec] = Confidences(reason=str(error))
    arrays: dict[str, dict[str, Array]] = {spec: {} for spec in chains}
    for name in roles:
        wanted = [spec for spec in chains if name in missing[spec] and spec not in found]
        outputs = subject.run[name]
        try:
            scored = dict(zip(wanted, steps.score_all([chains[s] for s in wanted], outputs), strict=True))
        except TwofoldError:  # one of them cannot score this set: each by itself
            scored = {}
            for spec in wanted:
                try:
                    scored[spec] = chains[spec].score(outputs)
                except TwofoldError as error:
                    found[spec] = Confidences(reason=f"{name}: {error}")
        for spec, conf in scored.items():
            arrays[spec][name] = conf
    for spec, chain in chains.items():
        found.setdefault(spec, Confidences(chain.spec, chain.label, chain.judges, arrays[spec]))
    return found


def _planned_chain(spec: str, tuning: Tuning) -> Chain:
    """Read a score as a protocol judges it: behind a fitted temperature, where the rule asks for one."""
    chain = scorer(spec)
    has_temperature = any(step.info.name == "temperature" for step in chain.steps)
    if tuning.temperature and not has_temperature and _reads_logits(chain):
        return scorer(f"temperature|{chain.spec}")
    return chain


def _reads_logits(chain: Chain) -> bool:
    """Tell whether a score changes when logits and head are scaled: it reads one of them, or learns from the head.

    Logits that are read in fitting alone only count the classes. Scores of several passes read neither.
    """
    if chain.judges == "passes":
        return False
    for step in chain.steps:
        reads_outputs = not {"logits", "head"}.isdisjoint(step.needs)
        if reads_outputs or "head" in step.info.fit_needs or any(_reads_logits(inner) for inner in step.inner):
            return True
    return False


def _fitted(spec: str, train: Outputs, val: Outputs, ood_val: Outputs | None, tuning: Tuning) -> Chain:
    """Fit a score by the rule of a protocol: settings left open are chosen on the roles that the rule allows."""
    chain = _planned_chain(spec, tuning)
    seen = ood_val if "ood_val" in tuning.sets else None
    if not any(step.info.grid for step in chain.steps):
        return chain.fit(steps.known(train), val=steps.known(val), ood_val=ood_val)
    return tune(chain, train, val, seen, metric=tuning.metric.removesuffix("_ood")).chain


def _values(views: Sequence[ProtocolView], scored: Mapping[str, ScoredSet], pair: bool, n: int, seed: int) -> Found:
    """Compute values of views by shift, with the numbers of rows and of known rows."""
    found = {}
    for view in views:
        wanted = view.pair_metrics if pair else view.metrics
        table = view.collect(scored)
        known = len(table.conf) if table.is_id is None else int(table.is_id.sum())
        if view.rule in ("proposed", "original"):
            known = int(table.correct.sum())
        found[view.shift] = (values(view, scored, wanted, n=n, seed=seed), len(table.conf), known)
    return found


def _call(task: Task) -> Any:
    function, given = task
    return function(*given)


def execute(tasks: Sequence[Task], *, jobs: int, engine: Engine, address: str | None) -> Iterator[tuple[int, Any]]:
    """Run tasks in this process, in several processes of this machine, or on a cluster.

    Parameters
    ----------
    tasks : sequence of (callable, tuple)
        Functions with their arguments.
    jobs : int
        Number of processes; Ray and a running Dask cluster bring their own workers.
    engine : {"local", "dask", "ray"}
        What runs the tasks.
    address : str or None
        Address of a running cluster; None starts one on this machine.

    Yields
    ------
    tuple of (int, Any)
        Index and result of each task, in the order in which they finish.

    Raises
    ------
    MissingExtra
        If the engine is not installed.
    InvalidInput
        If no Dask scheduler answers at the address.
    """
    if engine == "local" and (jobs == 1 or len(tasks) < 2):
        for place, task in enumerate(tasks):
            yield place, _call(task)
        return
    import joblib

    with _cluster(engine, address, jobs):
        several = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        yield from several(joblib.delayed(_placed)(place, task, steps.plugins()) for place, task in enumerate(tasks))


def _placed(place: int, task: Task, plugins: Sequence[str]) -> tuple[int, Any]:
    for module in plugins:
        steps.load_plugin(module)
    return place, _call(task)


@contextmanager
def _cluster(engine: Engine, address: str | None, jobs: int) -> Iterator[None]:
    """Let joblib work through an engine while the context is open."""
    import joblib

    if engine == "local":
        with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
            yield
        return
    try:
        if engine == "dask":
            from distributed import Client

            started = {"address": address} if address else {"n_workers": jobs, "threads_per_worker": 1}
            try:
                client = Client(**started)  # type: ignore[no-untyped-call]
            except (OSError, ValueError) as error:
                raise InvalidInput(f"no Dask scheduler answers at {address}: {error}") from error
            with client, joblib.parallel_config("dask", wait_for_workers_timeout=60):
                yield
            return
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise MissingExtra(f'engine {engine} is not installed: pip install "twofold[cluster]"') from error
    ray.init(address=address, ignore_reinit_error=True)
    register_ray()
    with joblib.parallel_config("ray"):
        yield


# The benchmark


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
    resamples : int
        Number of bootstrap resamples.
    seed : int
        Seed of the resampling.
    jobs : int
        Number of processes.
    engine : {"local", "dask", "ray"}
        What runs the tasks.
    address : str or None
        Address of a cluster.
    done : callable
        Called with label, count and total as tasks finish.
    """

    benchmark: Benchmark
    protocols: Sequence[Protocol]
    cache: Cache
    resamples: int
    seed: int
    jobs: int
    engine: Engine
    address: str | None
    done: Done

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
        known: dict[str, Confidences] = {}
        missing: dict[str, list[str]] = {}
        for spec in specs:
            keys = self.score_keys(subject, spec, tuning)
            entry = self.cache.read(self._score_file(subject, spec, tuning))
            if entry.facts.get("fit") == keys[FIT]:
                known[spec] = Confidences(**entry.facts["told"], conf=entry.current(keys))
            absent = [name for name in subject.scored if spec not in known or name not in known[spec].conf]
            if absent and not (spec in known and known[spec].reason):
                missing[spec] = absent
        names = list(missing)
        tasks = [
            (
                _confidences,
                (str(subject.run.path), dict(subject.roles), {s: missing[s] for s in names[i : i + CHUNK]}, tuning),
            )
            for i in range(0, len(names), CHUNK)
        ]
        for _, found in self._each(f"{subject.name}: scores", tasks):
            for spec, new in found.items():
                if spec in known and not new.reason:
                    new = replace(new, conf={**known[spec].conf, **new.conf})
                known[spec] = new
                keys = self.score_keys(subject, spec, tuning)
                told = {"chosen": new.chosen, "tuned": new.tuned, "judges": new.judges, "reason": new.reason}
                facts = {"fit": keys[FIT], "told": told}
                entry = Entry(new.conf, {name: keys[name] for name in new.conf}, facts)
                self.cache.write(self._score_file(subject, spec, tuning), entry)
        return {spec: known[spec] for spec in specs}

    def score_keys(self, subject: Subject, spec: str, tuning: Tuning) -> dict[str, str]:
        """Compute digests of what the confidences of a score depend on.

        Parameters
        ----------
        subject : Subject
            The run.
        spec : str
            The score.
        tuning : Tuning
            How its settings are chosen.

        Returns
        -------
        dict of str to str
            A digest for the fit alone, and one for each data set.
        """
        chain = _planned_chain(spec, tuning)
        marks = subject.marks
        seen = [marks[name] for name, role in subject.roles.items() if role in FITTING]
        makers = code_of(*(step.info.maker for step in chain.steps))
        fit = digest(seen, marks.get("head"), chain.spec, asdict(tuning), makers, code(*SCORING))
        return {FIT: fit, **{name: digest(fit, marks[name]) for name in subject.scored}}

    def _score_file(self, subject: Subject, spec: str, tuning: Tuning) -> str:
        return f"score-{digest(subject.place, spec, asdict(tuning))}"

    def values(self, cells: Sequence[Cell], *, n: int, label: str) -> dict[Cell, Found]:
        """Compute the values of cells by shift.

        Parameters
        ----------
        cells : sequence of Cell
            Scores and pairs.
        n : int
            Number of bootstrap replicates.
        label : str
            Name of this round for the progress callback.

        Returns
        -------
        dict of Cell to dict
            By shift: values and replicates of each metric, number of rows, and number of known rows.
        """
        found: dict[Cell, Found] = {}
        tasks, waiting = [], []
        for cell in cells:
            keys, entry = cell.keys, self.cache.read(cell.file)
            found[cell] = {}
            for view in cell.views:
                known = _unpacked(entry, view.shift, keys[view.shift], cell.wanted(view))
                if known is not None and all(len(array) > n for array in known[0].values()):
                    found[cell][view.shift] = known
            left = [view for view in cell.views if view.shift not in found[cell]]
            if left:
                tasks.append((_values, (left, cell.scored(left), cell.pair is not None, n, self.seed)))
                waiting.append(cell)
        for place, new in self._each(label, tasks):
            cell = waiting[place]
            found[cell] |= new
            keys = cell.keys
            arrays = {f"{shift}|{name}": a for shift, (own, _, _) in found[cell].items() for name, a in own.items()}
            counts = {shift: [rows, known] for shift, (_, rows, known) in found[cell].items()}
            self.cache.write(cell.file, Entry(arrays, {shift: keys[shift] for shift in counts}, {"counts": counts}))
        return found

    def _each(self, label: str, tasks: Sequence[Task]) -> Iterator[tuple[int, Any]]:
        """Yield results of tasks with their indices, as they finish."""
        self.done(label, 0, len(tasks))
        running = execute(tasks, jobs=self.jobs, engine=self.engine, address=self.address)
        for count, (place, result) in enumerate(running, start=1):
            yield place, result
            self.done(label, count, len(tasks))


def _unpacked(entry: Entry, shift: str, key: str, wanted: Sequence[str]) -> tuple[Values, int, int] | None:
    """Return the values of a shift with its counts of rows; None where they are not all there, or of something else."""
    if entry.keys.get(shift) != key:
        return None
    try:
        rows, known = entry.facts["counts"][shift]
        return {name: entry.arrays[f"{shift}|{name}"] for name in wanted}, rows, known
    except (LookupError, TypeError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class Cell:
    """Hold one score or pair of a run under a protocol, with its confidences.

    Parameters
    ----------
    bench : Bench
        The benchmark at work.
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
    marks : mapping of str to str
        Digest of what the confidences on each data set were computed from.
    """

    bench: Bench
    subject: Subject
    protocol: Protocol
    score: str
    pair: str | None
    first: Confidences
    second: Confidences | None
    marks: Mapping[str, str]  # what the confidences on each data set were computed from

    @cached_property
    def views(self) -> tuple[ProtocolView, ...]:
        """The views of the protocol and that of the validation data; for a pair, those that have pair metrics."""
        views = self.protocol.views(self.subject.roles)
        if self.pair is not None:
            return tuple(view for view in views if view.pair_metrics)
        extra = self.bench.benchmark.metrics
        views = tuple(replace(view, metrics=tuple(dict.fromkeys([*view.metrics, *extra]))) for view in views)
        return (*views, *_validation(self.subject, self.protocol.tuning))

    @property
    def metrics(self) -> set[str]:
        """The metrics that are measured in some view."""
        return {name for view in self.views for name in self.wanted(view)}

    def wanted(self, view: ProtocolView) -> tuple[str, ...]:
        """List the metrics to measure in a view.

        Parameters
        ----------
        view : ProtocolView
            A view of this cell.

        Returns
        -------
        tuple of str
            Metrics of a single score, or of a pair.
        """
        return view.metrics if self.pair is None else view.pair_metrics

    @property
    def file(self) -> str:
        """Name of the entry in the cache."""
        return f"value-{digest(self.subject.place, self.protocol.name, self.score, self.pair)}"

    @cached_property
    def keys(self) -> dict[str, str]:
        """Digests of what the values of each view depend on."""
        shared = self.bench.seed, self.first.judges, code(*MEASURING)
        return {v.shift: digest(_plain(v), [self.marks[name] for name in v.sets], *shared) for v in self.views}

    def scored(self, views: Iterable[ProtocolView]) -> dict[str, ScoredSet]:
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
        found = {}
        for name in dict.fromkeys(name for view in views for name in view.sets):
            correct, is_id = self.subject.truth(name, self.first.judges)
            second = None if self.second is None else self.second.conf[name]
            found[name] = ScoredSet(correct, is_id, self.first.conf[name], second)
        return found

    @cached_property
    def about(self) -> Row:
        """The columns that all rows of this cell share."""
        parts = [self.first, *([] if self.second is None else [self.second])]
        labels = [one.tuned for one in parts if one.tuned]
        return {
            **self.subject.about(self.bench.benchmark),
            "score": self.score,
            "pair": self.pair,
            "protocol": self.protocol.name,
            "tuned": max(labels, key=LABELS.index) if labels else None,
            "chosen": " + ".join(one.chosen for one in parts) or None,
        }

    def judged(self, found: Found) -> tuple[list[Row], Replicates]:
        """Build the rows of results of this cell.

        Parameters
        ----------
        found : mapping of str to tuple
            By shift: values and replicates, number of rows, and number of known rows, as :meth:`Bench.values` returns
            them.

        Returns
        -------
        tuple of (list of dict, dict)
            One row for each shift and metric, averages among them, and the resampled values of each.
        """
        everything = {view.shift: (view.role, *found[view.shift]) for view in self.views}
        plain = {shift: own for shift, (own, _, _) in found.items()}
        for average in self.protocol.averages(self.subject.roles):
            if all(shift in plain for shift in average.of):
                rows, known = np.sum([found[shift][1:] for shift in average.of], axis=0).tolist()
                everything[average.shift] = (average.role, averaged(average, plain), rows, known)
        rows, replicates = [], {}
        limits = _limits({(shift, m): a for shift, (_, own, _, _) in everything.items() for m, a in own.items()})
        for shift, (role, own, count, known) in everything.items():
            for metric, array in own.items():
                low, high = limits.get((shift, metric), (None, None))
                row = {"shift": shift, "role": role, "metric": metric, "value": float(array[0]), "low": low}
                row |= {"high": high, "level": None if low is None else LEVEL, "n": count, "n_id": known}
                row |= {"resamples": None if low is None else len(array) - 1, "n_ood": count - known}
                row |= {"reason": "the metric has no value here" if math.isnan(array[0]) else None}
                rows.append({**self.about, **row, "better": _better(metric)})
                if low is not None:
                    where = self.subject.name, self.score, self.pair, shift, self.protocol.name, metric
                    replicates[where] = array[1:]
        return rows, replicates


@cache
def _plain(view: ProtocolView) -> dict[str, Any]:
    return asdict(view)


@cache
def _better(metric: str) -> str:
    return "higher" if metric == "accuracy" else metrics.info(metric.removesuffix("_ood")).better


def _limits(values: Mapping[tuple[str, str], Array]) -> dict[tuple[str, str], tuple[float, float]]:
    """Compute the interval of each value that has replicates."""
    drawn = {place: array[1:] for place, array in values.items() if len(array) > 1 and not np.isnan(array[1:]).all()}
    if not drawn:
        return {}
    table = np.stack(list(drawn.values()))
    tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    low, high = (np.nanquantile if np.isnan(table).any() else np.quantile)(table, tails, axis=1)
    return {place: (float(a), float(b)) for place, a, b in zip(drawn, low, high, strict=True)}


def _validation(subject: Subject, tuning: Tuning) -> list[ProtocolView]:
    """View the data on which settings were chosen, judged by the metric that chose them."""
    val, outside = tuple(subject.names("val")), tuple(subject.names("ood_val"))
    if "ood_val" in tuning.sets:
        return [ProtocolView(VALIDATION, "val", val, outside, "joint", (tuning.metric,))] if outside else []
    return [ProtocolView(VALIDATION, "val", val, (), "known", (tuning.metric,))]


def run(
    benchmark: Benchmark,
    runs: Sequence[Run | str | Path],
    out: str | Path,
    *,
    scores: Sequence[str] | None = None,
    pairs: Sequence[Pair] | None = None,
    protocols: Sequence[str] | None = None,
    resamples: int = 200,
    best: int = 10,
    seed: int = 0,
    jobs: int = 1,
    engine: Engine = "local",
    address: str | None = None,
    done: Done = lambda label, count, total: None,
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
    _checks.choice(engine, "engine", ("local", "dask", "ray"))
    subjects = [Subject.of(one, benchmark) for one in runs]
    if not subjects:
        raise InvalidInput("give at least one run; `twofold bench extract` makes them")
    places = [subject.run.path.resolve() for subject in subjects]
    if len(set(places)) < len(places):
        raise InvalidInput("a run is given twice")
    chosen = [protocol(name) for name in protocols or benchmark.protocols]
    folder = Path(out)
    bench = Bench(benchmark, chosen, Cache(folder / "cells"), resamples, seed, jobs, engine, address, done)
    rows: list[Row] = []
    replicates: Replicates = {}
    for subject in subjects:
        singles = [scorer(s).spec for s in scores or benchmark.scores or subject.scores]
        given = pairs if pairs is not None else benchmark.pairs or [("msp", spec) for spec in singles]
        doubles = [(scorer(a).spec, scorer(b).spec) for a, b in given]
        some, drawn = _judged(bench, subject, singles, doubles, best)
        rows += some + _absent(bench, subject)
        replicates |= drawn
    results = Results.of(rows, replicates or None)
    results.save(folder)
    return results


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
    chosen = protocol(protocol_name)
    bench = Bench(benchmark, [chosen], Cache(Path(out) / "cells"), 0, 0, 1, "local", None, lambda *told: None)
    specs = [scorer(one).spec for one in scores or benchmark.scores or subject.scores]
    return bench.confidences(subject, specs, chosen.tuning)


def _judged(
    bench: Bench, subject: Subject, singles: Sequence[str], doubles: Sequence[Pair], best: int
) -> tuple[list[Row], Replicates]:
    """Compute rows and replicates of everything that is asked of a run."""
    specs = list(dict.fromkeys([*singles, *(spec for pair in doubles for spec in pair)]))
    known: dict[Tuning, dict[str, Confidences]] = {}
    for one in bench.protocols:
        if one.tuning not in known:
            known[one.tuning] = bench.confidences(subject, specs, one.tuning)
    rows: list[Row] = []
    cells, two = [], []
    for one in bench.protocols:
        conf = known[one.tuning]
        marks = {spec: bench.score_keys(subject, spec, one.tuning) for spec in specs}
        for spec in singles:
            cell = Cell(bench, subject, one, spec, None, conf[spec], None, marks[spec])
            if conf[spec].reason:
                rows.append({**cell.about, "value": math.nan, "reason": conf[spec].reason})
            else:
                cells.append(cell)
        for first, second in doubles:
            if not conf[first].reason and not conf[second].reason:
                both = {name: digest(marks[first][name], marks[second][name]) for name in marks[first]}
                cell = Cell(bench, subject, one, first, second, conf[first], conf[second], both)
                two += [cell] if cell.views else []
    found = bench.values(cells, n=bench.resamples, label=f"{subject.name}: values")
    found |= bench.values(two, n=0, label=f"{subject.name}: pairs")
    if bench.resamples:
        leading = _leading([cell for cell in two if "ds_f1" in cell.metrics], found, best)
        found |= bench.values(leading, n=bench.resamples, label=f"{subject.name}: intervals of the best pairs")
    replicates: Replicates = {}
    for cell, own in found.items():
        some, drawn = cell.judged(own)
        rows += some
        replicates |= drawn
    return rows, replicates


def _leading(cells: Sequence[Cell], found: Mapping[Cell, Found], best: int) -> list[Cell]:
    """Select the best pairs of each protocol, by the mean of DS-F1 over its views."""
    means = {cell: float(np.mean([own["ds_f1"][0] for own, _, _ in found[cell].values()])) for cell in cells}
    by_protocol: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: -means[cell]):
        by_protocol.setdefault(cell.protocol.name, []).append(cell)
    return [cell for several in by_protocol.values() for cell in several[:best]]


def _absent(bench: Bench, subject: Subject) -> list[Row]:
    """Write a row for each data set of the benchmark that the run lacks."""
    missing = [one for one in bench.benchmark.sets if one.name not in subject.roles]
    told = {"value": math.nan, "reason": "the run does not hold this data set"}
    return [{**subject.about(bench.benchmark), "shift": one.name, "role": one.role, **told} for one in missing]
