"""The steps of the stratified study: embed data sets, group them by distance, and judge runs by the groups.

They do what ``twofold bench embed``, ``bench strata`` and ``bench run --strata`` do.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from twofold._files import replacing
from twofold.bench import catalogue
from twofold.bench.cache import digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.grouping import Grouping
from twofold.bench.pools import LEARNED, pool
from twofold.bench.protocols import select
from twofold.bench.results import Results
from twofold.bench.rows import VALIDATION, ResultRow
from twofold.bench.sampling import EVERY, sample_images
from twofold.bench.saved import saved_path
from twofold.errors import InvalidInput, MissingExtra
from twofold.outputs import load_npz
from twofold.papers.material import Material
from twofold.papers.steps import DataNeed, Step, absolute_sources, file_needs, options, register_step, set_needs
from twofold.papers.workspace import Workspace
from twofold.roles import OOD_TEST
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.typing import override

CONFIDENCE = "confidence"  # the learned confidence, whichever the paradigm of the run is
BEST, BEST_PASSES = "best", "best_mc"  # rows of the best score, with one pass and with several
PROTOCOL = "stratified"


@register_step
@dataclass(frozen=True)
class EmbedSets(Step):
    """Embed the data sets of a benchmark by a CLIP network, or by the features of a classifier.

    Parameters
    ----------
    benchmark : str
        Name of the benchmark.
    weights : str
        Weights of the network, relative to the folder of data.
    clip : str, default=""
        Network of open_clip; empty for a classifier.
    model : str, default=""
        The classifier.
    normalise : str, default="none"
        Channel statistics for the classifier.
    prompts : tuple of str, default=()
        Texts of a class for CLIP, which are averaged.
    images : int, default=0
        Largest number of images of each data set, drawn by a seed; 0 for all.
    """

    verb: ClassVar[str] = "embed"
    benchmark: str
    weights: str
    clip: str = ""
    model: str = ""
    normalise: str = "none"
    prompts: tuple[str, ...] = ()
    images: int = 0

    @override
    def check(self) -> None:
        catalogue.load(self.benchmark)
        if bool(self.clip) == bool(self.model):
            raise InvalidInput("embed needs clip or model, one of the two")

    def path(self, work: Workspace) -> Path:
        """Name the file of embeddings.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        Path
            An npz file; it need not exist.
        """
        return work.out / "embeddings" / f"{self.key}.npz"

    def load_benchmark(self) -> Benchmark:
        """Load the benchmark, with as many images as the step asks for.

        Returns
        -------
        Benchmark
            The benchmark.
        """
        benchmark = catalogue.load(self.benchmark)
        if not self.images:
            return benchmark
        return sample_images(benchmark, {EVERY: self.images})

    def _names(self) -> list[str]:
        """List the data sets: training, test and unknown ones."""
        return [one.name for one in catalogue.load(self.benchmark).sets if one.role in ("train", "test", *OOD_TEST)]

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        return [*set_needs(self.load_benchmark(), self._names(), work), *file_needs([self.weights], work)]

    @override
    def command(self, work: Workspace) -> str:
        words = ["twofold", "bench", "embed", self.benchmark]
        words += ["--clip", self.clip] if self.clip else ["--model", self.model, "--normalise", self.normalise]
        words += ["--weights", work.data_word(self.weights), *options("--prompt", self.prompts)]
        if self.images:
            words += ["--sample", str(self.images)]
        return " ".join([*words, "--out", shlex.quote(str(self.path(work)))])

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        raise InvalidInput("a plan that only embeds takes no runs; leave --run out")

    @override
    def is_done(self, work: Workspace) -> bool:
        return self.path(work).exists()

    @override
    def run(self, work: Workspace) -> None:
        try:
            from twofold.nn import clip, data, embedding
        except ImportError as error:
            raise MissingExtra('running networks needs torch: pip install "twofold[torch]"') from error
        benchmark = self.load_benchmark()
        root = work.need_root()
        opened = {name: data.open(benchmark[name].spec(root)) for name in self._names()}
        train = opened[benchmark.names("train")[0]]
        weights = saved_path(self.weights, root=work.root)
        progress = _SetProgress(work, {name: len(images) for name, images in opened.items()})
        if self.clip:
            arrays = clip.embed(
                opened,
                self.clip,
                weights,
                class_names=train.class_names or (),
                prompts=self.prompts,
                device=work.device,
                done=progress.add,
            )
        else:
            arrays = embedding.embed_features(
                opened, self.model, weights, normalise=self.normalise, device=work.device, done=progress.add
            )
        self.path(work).parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path(work)) as file:
            np.savez(file, allow_pickle=False, **{**arrays, "labels": np.asarray(train.labels)})


class _SetProgress:
    """Add up the rows of data sets as they are embedded."""

    def __init__(self, work: Workspace, rows: Mapping[str, int]) -> None:
        self.work = work
        self.rows = rows
        self.seen = dict.fromkeys(rows, 0)

    def add(self, name: str, rows: int) -> None:
        self.seen[name] += rows
        self.work.progress(f"embedding {name}", self.seen[name], self.rows[name])


@register_step
@dataclass(frozen=True)
class GroupSets(Step):
    """Measure the distances of the data sets of a benchmark, and group the unknown ones.

    Parameters
    ----------
    benchmark : str
        Name of the benchmark.
    title : str
        What the embeddings are, in words.
    extracts : tuple of Step, default=()
        The step that embeds the data sets.
    runs : tuple of str, default=()
        A run whose features are taken instead.
    """

    verb: ClassVar[str] = "strata"
    benchmark: str
    title: str
    extracts: tuple[Step, ...] = ()
    runs: tuple[str, ...] = ()

    @override
    def check(self) -> None:
        catalogue.load(self.benchmark)
        if len(self.extracts) > 1 or not all(isinstance(one, EmbedSets) for one in self.extracts):
            raise InvalidInput("extracts must name one step of the verb embed")

    @override
    def prerequisites(self) -> tuple[Step, ...]:
        return self.extracts

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        if not self.extracts and not self.runs:
            return [DataNeed(f"a run over {self.benchmark}, by --run", False)]
        return file_needs(self.runs, work)

    def path(self, work: Workspace) -> Path:
        """Name the file of the groups.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        Path
            A JSON file; it need not exist.
        """
        return work.out / "groups" / f"{self.key}.json"

    @override
    def command(self, work: Workspace) -> str:
        words = ["twofold", "bench", "strata"]
        for step in self.extracts:
            if isinstance(step, EmbedSets):
                words += ["--benchmark", self.benchmark, "--embeddings", shlex.quote(str(step.path(work)))]
        words += [shlex.quote(run) for run in self.runs] or ([] if self.extracts else ["RUN"])
        return " ".join([*words, "--out", shlex.quote(str(self.path(work)))])

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        if len(runs) != 1:
            raise InvalidInput(f"distances are measured on the features of one run, got {len(runs)}; pass --run once")
        return replace(self, extracts=(), runs=absolute_sources(runs), title="the features of your run")

    @override
    def is_done(self, work: Workspace) -> bool:
        return self.path(work).exists()

    @override
    def run(self, work: Workspace) -> None:
        benchmark = catalogue.load(self.benchmark)
        train, test = benchmark.names("train")[0], benchmark.names("test")[0]
        if self.runs:
            arrays = _run_features(Run.open(self.runs[0]), [train, test, *_unknown_names(benchmark)])
        else:
            (step,) = self.extracts
            assert isinstance(step, EmbedSets)
            arrays = load_npz(step.path(work))
        unknown = {name: arrays[name] for name in _unknown_names(benchmark) if name in arrays}
        found = Grouping.measure(
            self.title,
            (train, arrays[train], arrays["labels"]),
            unknown,
            test=(test, arrays[test]),
            text=arrays.get("class_texts"),
        )
        self.path(work).parent.mkdir(parents=True, exist_ok=True)
        found.save(self.path(work))

    @override
    def read(self, work: Workspace) -> Material:
        return Material(rows=tuple(Grouping.load(self.path(work)).to_rows(self.benchmark)))


def _unknown_names(benchmark: Benchmark) -> list[str]:
    return [one.name for one in benchmark.sets if one.role in OOD_TEST]


def _run_features(run: Run, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Read the features of data sets of a run, and the labels of the first one."""
    arrays = {}
    for name in names:
        if name not in run:
            continue
        features = run[name].features
        if features is None:
            raise InvalidInput(f"{name} has no features in {run.path}; extract it with features")
        arrays[name] = np.asarray(features)
    for name in names[:2]:
        if name not in arrays:
            raise InvalidInput(f"{run.path} holds no data set {name}, which distances are measured from")
    arrays["labels"] = np.asarray(run[names[0]].labels)
    return arrays


@register_step
@dataclass(frozen=True)
class JudgeStratified(Step):
    """Judge the runs of one source by the pool of Table 3, with groups by distance as roles.

    Parameters
    ----------
    benchmark : str
        Name of the benchmark.
    extracts : tuple of Step, default=()
        Studies whose runs are judged, and the step that groups the unknown sets; without one, the roles are those of
        the benchmark.
    runs : tuple of str, default=()
        The user's runs; those with another number of classes are left out.
    pool : str, default="projections"
        Scores, by the name of a list in :data:`twofold.bench.pools.POOLS`.
    passes : tuple of str, default=()
        Scores that are also judged on the mean of several passes, for runs with dropout.
    recipes : tuple of str, default=()
        Recipes, by the name before their settings, whose runs of studies are judged; empty for all.
    """

    verb: ClassVar[str] = "stratified"
    benchmark: str
    extracts: tuple[Step, ...] = ()
    runs: tuple[str, ...] = ()
    pool: str = "projections"
    passes: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()

    @override
    def check(self) -> None:
        catalogue.load(self.benchmark)
        pool(self.pool)
        for spec in self._mean_scores():
            scorer(spec)
        for step in self.extracts:
            if not (step.makes_runs or isinstance(step, GroupSets)):
                raise InvalidInput(f"extracts must name steps of the verbs study or strata, got one of {step.verb}")

    @override
    def prerequisites(self) -> tuple[Step, ...]:
        return self.extracts

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        if not self.extracts and not self.runs:
            return [DataNeed(f"runs over {self.benchmark}, by --run", False)]
        return file_needs(self.runs, work)

    @override
    def run_paths(self, work: Workspace) -> list[Path]:
        paths = []
        for run in self.runs:
            path = saved_path(run, root=work.root)
            if path.exists() and _has_classes(path, catalogue.load(self.benchmark).classes):
                paths.append(path)
        for step in self.extracts:
            paths += [path for path in step.run_paths(work) if self._is_judged(path)]
        return paths

    def _is_judged(self, path: Path) -> bool:
        """Tell by its name whether a run of a study is of this source and of one of the recipes."""
        row = path.name.removeprefix(f"{self.benchmark}-")
        if row == path.name and path.name.startswith("stratified-"):
            return False
        return not self.recipes or row.startswith(self.recipes)

    def _grouping(self, work: Workspace) -> Path | None:
        """Find the file of the groups; None where the roles are those of the benchmark."""
        for step in self.extracts:
            if isinstance(step, GroupSets):
                return step.path(work)
        return None

    def _mean_scores(self) -> tuple[str, ...]:
        """List the scores of several passes."""
        return tuple(f"mc(of={spec!r})" for spec in self.passes)

    @override
    def command(self, work: Workspace) -> str:
        words = ["twofold", "bench", "run", self.benchmark]
        words += options("--run", [str(path) for path in self.run_paths(work)]) or ["--run", "RUN"]
        groups = self._grouping(work)
        if groups is not None:
            words += ["--strata", shlex.quote(str(groups))]
        words += ["--pool", self.pool, *options("--score", self._mean_scores())]
        words += ["--protocol", PROTOCOL, "--resamples", "0"]
        return " ".join([*words, "--out", shlex.quote(str(self._folder(work)))])

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        for run in runs:
            if "?" in run:
                raise InvalidInput(f"{run!r}: a benchmark judges whole runs; leave out what follows the question mark")
        return replace(self, extracts=(), runs=absolute_sources(runs))

    def _folder(self, work: Workspace) -> Path:
        return work.out / "results" / self.key

    def _contents(self, work: Workspace) -> str:
        """Compute a digest of the runs and the groups, by which a change of them is noticed."""
        groups = self._grouping(work)
        text = "" if groups is None else groups.read_text(encoding="utf-8")
        return digest([sorted(Run.open(path).digests().items()) for path in self.run_paths(work)], text)

    @override
    def is_done(self, work: Workspace) -> bool:
        marker = self._folder(work) / "finished"
        if not marker.exists():
            return False
        return marker.read_text(encoding="utf-8") == self._contents(work)

    @override
    def run(self, work: Workspace) -> None:
        from twofold.bench import runner

        benchmark = catalogue.load(self.benchmark)
        groups = self._grouping(work)
        if groups is not None:
            benchmark = Grouping.load(groups).regroup(benchmark)
        folder = self._folder(work)
        folder.mkdir(parents=True, exist_ok=True)
        paths = self.run_paths(work)
        if paths:
            runner.run(
                benchmark,
                paths,
                folder,
                scores=(*pool(self.pool), *self._mean_scores()),
                pairs=[],
                protocols=[PROTOCOL],
                resamples=0,
                jobs=work.jobs,
                done=work.progress,
            )
        with replacing(folder / "finished") as file:
            file.write(self._contents(work).encode())

    @override
    def read(self, work: Workspace) -> Material:
        paths = self.run_paths(work)
        if not paths:
            return Material()
        rows = [_rename_learned(row) for row in Results.open(self._folder(work)).to_dicts()]
        rows = choose_rewards(rows)
        return Material(rows=(*rows, *best_rows(rows)), runs=tuple(paths))


def _has_classes(path: Path, classes: int) -> bool:
    run = Run.open(path)
    return run[next(iter(run.roles))].classes == classes


def _rename_learned(row: ResultRow) -> ResultRow:
    """Call the learned confidence of every paradigm by one name, so that they are one method."""
    score = str(row["score"])
    for name in LEARNED:
        if score == name:
            return {**row, "score": CONFIDENCE}
        if score == scorer(f"mc({name})").spec:
            return {**row, "score": f"mc({CONFIDENCE})"}
    return row


def choose_rewards(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Keep of runs that differ by the reward of Deep Gamblers the best on validation data, score by score.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of results of one benchmark, with those of validation data.

    Returns
    -------
    list of mapping
        The rows of the chosen runs, and those of all other runs.

    Examples
    --------
    >>> made = [{"run": f"gamblers-{n}-s0", "recipe": f"gamblers(reward={n}.0)", "score": "msp", "metric": "augrc",
    ...          "shift": shift, "seed": 0, "value": 0.1 * n} for n in (2, 3) for shift in ("validation", "test")]
    >>> [(row["run"], row["shift"]) for row in choose_rewards(made)]
    [('gamblers-2-s0', 'validation'), ('gamblers-2-s0', 'test')]
    """
    return choose_runs(rows, _family, "augrc")


def choose_runs(rows: Sequence[ResultRow], family: Callable[[ResultRow], str], metric: str) -> list[ResultRow]:
    """Keep of runs that compete the one that is best on validation data, score by score.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of results, with those of validation data.
    family : callable
        Names what runs compete for, from a row.
    metric : str
        The metric that decides; lower is better.

    Returns
    -------
    list of mapping
        The rows of the chosen runs, and those of runs without a value on validation data.
    """
    validation: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        if row["shift"] == VALIDATION and row["metric"] == metric and _is_number(row["value"]):
            by_score = validation.setdefault(family(row), {})
            by_score.setdefault(str(row["score"]), {})[str(row["run"])] = float(row["value"])
    chosen: dict[tuple[str, str], str] = {}
    for name, by_score in validation.items():
        for score, choice in select(by_score, "lower").items():
            chosen[name, score] = choice.run
    kept = []
    for row in rows:
        if chosen.get((family(row), str(row["score"])), row["run"]) == row["run"]:
            kept.append(row)
    return kept


def _family(row: ResultRow) -> str:
    """Name the runs that differ from this one by a reward at most."""
    dropout = "dropout" in str(row["run"])
    return f"{paradigm_of(str(row['recipe']))} {dropout} {row['seed']}"


def paradigm_of(recipe: str) -> str:
    """Read the paradigm of training from the recipe of a run, or from the row of a study that it is of.

    Parameters
    ----------
    recipe : str
        A recipe with its settings, or the name of a row.

    Returns
    -------
    str
        Such as ``"gamblers"``.

    Examples
    --------
    >>> paradigm_of("gamblers(reward=6.0)"), paradigm_of("gamblers_dropout-3"), paradigm_of("devries_dropout")
    ('gamblers', 'gamblers', 'devries')
    """
    plain = recipe.partition("(")[0].partition("-")[0]
    return plain.removesuffix("_dropout")


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def best_rows(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Find the best score and paradigm of each data set, with one pass and with several.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of results.

    Returns
    -------
    list of mapping
        A row for each benchmark, network, data set and kind of pass; ``score`` is ``"best"`` or ``"best_mc"``,
        ``run`` and ``chosen`` say whose value it is.
    """
    best: dict[tuple[str, ...], ResultRow] = {}
    for row in rows:
        is_judged = row["metric"] == "augrc" and row["shift"] not in (VALIDATION, *OOD_TEST)
        if not is_judged or row["pair"] or not _is_number(row["value"]):
            continue
        name = BEST_PASSES if str(row["score"]).startswith("mc(") else BEST
        key = (str(row["benchmark"]), str(row["model"]), str(row["shift"]), name)
        if key not in best or row["value"] < best[key]["value"]:
            best[key] = row
    found: list[ResultRow] = []
    for (_, _, _, name), row in best.items():
        found.append({**row, "score": name, "recipe": None, "chosen": f"{row['recipe']}: {row['score']}"})
    return found
