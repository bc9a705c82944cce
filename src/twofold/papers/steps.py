"""The steps of plans: each calls one function of the library, and can say which command does the same.

A step writes to a place in the workspace that is named by its own settings, so that plans with equal steps share their
work and a finished step is not repeated.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from twofold import _checks
from twofold._files import replacing
from twofold.bench import catalogue
from twofold.bench.cache import digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.estimators import LOSSES, SIZES, Loss, cells_from_csv, cells_to_csv, measure_estimators
from twofold.bench.protocols import PROTOCOLS
from twofold.bench.results import Results
from twofold.bench.sampling import EVERY, sample_images
from twofold.bench.saved import name_sources, read_saved, saved_digest, saved_path
from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.papers.material import Material
from twofold.papers.workspace import Workspace
from twofold.run import Run
from twofold.scores.chain import scorer


class DataNeed(NamedTuple):
    """Name a piece of data that a step reads.

    Parameters
    ----------
    name : str
        What it is.
    is_here : bool
        Whether it was found.
    """

    name: str
    is_here: bool


@dataclass(frozen=True)
class Step(ABC):
    """Define one step of a plan: settings, a command that does the same, and the work itself."""

    verb: ClassVar[str]
    makes_runs: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """A name for the files of this step, the same for equal settings.

        Returns
        -------
        str
            Verb and the first 12 digits of a digest of the settings.
        """
        return f"{self.verb}-{digest(asdict(self))[:12]}"

    def check(self) -> None:
        """Check the settings without reading data.

        Raises
        ------
        InvalidInput
            If a setting is invalid.
        UnknownName
            If a name is not known.
        """
        self._check()

    def prerequisites(self) -> tuple[Step, ...]:
        """List the steps that come before this one.

        Returns
        -------
        tuple of Step
            They write what this step reads.
        """
        return self._prerequisites()

    def needs(self, work: Workspace) -> list[DataNeed]:
        """List the data that this step reads, and what of it is here.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        list of DataNeed
            Files, runs and data sets.
        """
        return self._needs(work)

    def command(self, work: Workspace) -> str:
        """Spell the command that does the same.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        str
            A command line.
        """
        return " ".join(self._words(work))

    def run_paths(self, work: Workspace) -> list[Path]:
        """Name the runs that this step writes, which other steps take by ``extracts``.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        list of Path
            Folders; they need not exist. Empty for a step that writes none.
        """
        return self._run_paths(work)

    def run_words(self, work: Workspace) -> list[str]:
        """Spell the runs that this step writes for a command line.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        list of str
            Words for a shell, which may have wildcards.
        """
        return self._run_words(work)

    def use_runs(self, runs: Sequence[str]) -> Step:
        """Take the user's own runs in place of those of the plan.

        Parameters
        ----------
        runs : sequence of str
            Sources as :func:`twofold.bench.saved.read_saved` takes them.

        Returns
        -------
        Step
            A step that reads these runs.

        Raises
        ------
        InvalidInput
            If the step cannot start from runs.
        """
        return self._use_runs(tuple(_absolute(run) for run in runs))

    def is_done(self, work: Workspace) -> bool:
        """Tell whether the step is finished.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        bool
            True if nothing is left to do.
        """
        return self._is_done(work)

    def run(self, work: Workspace) -> None:
        """Do what is missing.

        Parameters
        ----------
        work : Workspace
            Where files are, and where progress is reported.
        """
        self._run(work)

    def read(self, work: Workspace) -> Material:
        """Read what the finished step left for tables and drawings.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        Material
            What was computed.
        """
        return self._read(work)

    def _check(self) -> None:
        return

    def _prerequisites(self) -> tuple[Step, ...]:
        return ()

    def _read(self, work: Workspace) -> Material:
        return Material()

    def _run_paths(self, work: Workspace) -> list[Path]:
        return []

    def _run_words(self, work: Workspace) -> list[str]:
        return [shlex.quote(str(path)) for path in self.run_paths(work)]

    @abstractmethod
    def _needs(self, work: Workspace) -> list[DataNeed]: ...

    @abstractmethod
    def _words(self, work: Workspace) -> list[str]: ...

    @abstractmethod
    def _use_runs(self, runs: tuple[str, ...]) -> Step: ...

    @abstractmethod
    def _is_done(self, work: Workspace) -> bool: ...

    @abstractmethod
    def _run(self, work: Workspace) -> None: ...


STEPS: dict[str, type[Step]] = {}
"""The steps by the verb that names them in files."""

Kind = TypeVar("Kind", bound=type[Step])


def register_step(kind: Kind) -> Kind:
    """Register a kind of step under its verb.

    Parameters
    ----------
    kind : type
        A final class that derives from :class:`Step`.

    Returns
    -------
    type
        The class, unchanged.
    """
    STEPS[kind.verb] = kind
    return kind


@register_step
@dataclass(frozen=True)
class MeasureEstimators(Step):
    """Measure estimators of AURC on saved outputs.

    Parameters
    ----------
    outputs : tuple of str, default=()
        Sources as :func:`twofold.bench.saved.read_saved` takes them, relative to the folder of data. Empty where the
        user must give runs, or ``extracts`` makes them.
    extracts : tuple of Step, default=()
        Steps whose runs are measured too, on their test sets.
    losses : tuple of {"0/1", "ce"}, default=("0/1", "ce")
        Losses.
    scores : tuple of str, default=("msp",)
        Confidences.
    sizes : tuple of int, default=(8, 16, 32, 64, 128, 256, 512, 1024)
        Batch sizes.
    whole : bool, default=False
        Whether the estimators are also applied to the whole data set.
    """

    verb: ClassVar[str] = "estimators"
    outputs: tuple[str, ...] = ()
    extracts: tuple[Step, ...] = ()
    losses: tuple[Loss, ...] = LOSSES
    scores: tuple[str, ...] = ("msp",)
    sizes: tuple[int, ...] = SIZES
    whole: bool = False

    def _check(self) -> None:
        name_sources(self.outputs)
        _check_extracts(self.extracts)
        for loss in self.losses:
            _checks.choice(loss, "losses", LOSSES)
        for score in self.scores:
            scorer(score)
        for size in self.sizes:
            _checks.whole(size, "sizes", 2)

    def _prerequisites(self) -> tuple[Step, ...]:
        return self.extracts

    def _needs(self, work: Workspace) -> list[DataNeed]:
        if not self.outputs and not self.extracts:
            return [DataNeed("runs of your networks, by --run", False)]
        return _file_needs(self.outputs, work)

    def _sources(self, work: Workspace) -> tuple[str, ...]:
        """List all sources: those of the data, and the runs of earlier steps."""
        sources = list(self.outputs)
        for step in self.extracts:
            sources += [str(path.absolute()) for path in step.run_paths(work)]
        return tuple(sources)

    def _words(self, work: Workspace) -> list[str]:
        sources = [work.data_word(source) for source in self.outputs]
        for step in self.extracts:
            sources += step.run_words(work)
        sources = sources or ["RUN"]
        words = ["twofold", "bench", "estimators", *sources]
        words += _options("--loss", self.losses) + _options("--score", self.scores) + _options("--size", self.sizes)
        if self.whole:
            words.append("--whole")
        return [*words, "--out", shlex.quote(str(self._path(work)))]

    def _use_runs(self, runs: tuple[str, ...]) -> Step:
        return replace(self, outputs=runs, extracts=())

    def _path(self, work: Workspace) -> Path:
        """Name the file of the cells: by settings and by what the sources hold."""
        contents = []
        for source in self._sources(work):
            is_here = saved_path(source, root=work.root).exists()
            contents.append(saved_digest(source, root=work.root) if is_here else "missing")
        return work.out / "cells" / f"{self.verb}-{digest(asdict(self), contents)[:12]}.csv"

    def _is_done(self, work: Workspace) -> bool:
        return bool(self.outputs or self.extracts) and self._path(work).exists()

    def _run(self, work: Workspace) -> None:
        outputs = {}
        for name, source in name_sources(self._sources(work)).items():
            if not Path(source).is_absolute():
                work.need_root()
            outputs[name] = read_saved(source, root=work.root)
        cells = measure_estimators(
            outputs,
            losses=self.losses,
            scores=self.scores,
            sizes=self.sizes,
            whole=self.whole,
            progress=work.progress,
        )
        target = self._path(work)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(cells_to_csv(cells).encode())

    def _read(self, work: Workspace) -> Material:
        text = self._path(work).read_text(encoding="utf-8")
        return Material(cells=tuple(cells_from_csv(text)))


@register_step
@dataclass(frozen=True)
class ExtractOutputs(Step):
    """Run a network over data sets of a benchmark.

    Parameters
    ----------
    benchmark : str
        Name of the benchmark.
    model : str
        Name of the network.
    sets : tuple of str
        Data sets of the benchmark.
    checkpoints : tuple of str, default=()
        Weights, relative to the folder of data.
    normalise : str, default="none"
        Channel statistics.
    recipe : str, default="published"
        How the network was trained.
    layers : str, default=""
        Layers whose statistics are recorded; empty for none.
    images : int, default=0
        Largest number of images of each data set, drawn by a seed; 0 for all.
    """

    verb: ClassVar[str] = "extract"
    makes_runs: ClassVar[bool] = True
    benchmark: str
    model: str
    sets: tuple[str, ...]
    checkpoints: tuple[str, ...] = ()
    normalise: str = "none"
    recipe: str = "published"
    layers: str = ""
    images: int = 0

    def path(self, work: Workspace) -> Path:
        """Name the folder of the run.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        Path
            The folder; it need not exist.
        """
        return work.out / "runs" / self.key

    def _benchmark(self) -> Benchmark:
        """Load the benchmark, with as many images as the step asks for."""
        benchmark = catalogue.load(self.benchmark)
        if not self.images:
            return benchmark
        return sample_images(benchmark, {EVERY: self.images})

    def _check(self) -> None:
        _checks.whole(self.images, "images", 0)
        benchmark = self._benchmark()
        for name in self.sets:
            benchmark[name]

    def _run_paths(self, work: Workspace) -> list[Path]:
        return [self.path(work)]

    def _needs(self, work: Workspace) -> list[DataNeed]:
        benchmark = catalogue.load(self.benchmark)
        return _file_needs(self.checkpoints, work) + set_needs(benchmark, self.sets, work)

    def _words(self, work: Workspace) -> list[str]:
        words = ["twofold", "bench", "extract", self.benchmark, self.model]
        for path in self.checkpoints:
            words += ["--checkpoint", work.data_word(path)]
        words += ["--normalise", self.normalise, "--recipe", self.recipe]
        if self.layers:
            words += ["--layers", shlex.quote(self.layers)]
        if self.images:
            words += ["--sample", str(self.images)]
        return [*words, *_options("--name", self.sets), "--out", shlex.quote(str(self.path(work)))]

    def _use_runs(self, runs: tuple[str, ...]) -> Step:
        raise InvalidInput("a plan that only extracts takes no runs; leave --run out")

    def _is_done(self, work: Workspace) -> bool:
        path = self.path(work)
        if not path.is_dir():
            return False
        return set(self.sets) <= set(Run.open(path).names())

    def _run(self, work: Workspace) -> None:
        try:
            from twofold.nn.extraction import extract_all
        except ImportError as error:
            raise MissingExtra('running networks needs torch: pip install "twofold[torch]"') from error
        benchmark = self._benchmark()
        root = work.need_root()
        sets = []
        for name in self.sets:
            one = benchmark[name]
            sets.append((one.spec(root), one.role, one.name))
        self.path(work).parent.mkdir(parents=True, exist_ok=True)
        progress = _RowProgress(work)
        extract_all(
            self.model,
            sets,
            self.path(work),
            checkpoints=[str(root / path) for path in self.checkpoints],
            classes=benchmark.classes,
            normalise=self.normalise,
            recipe=self.recipe,
            layers=self.layers or None,
            device=work.device,
            command=f"twofold bench extract {self.benchmark} {self.model}",
            begin=progress.begin,
            done=progress.add,
        )

    def _read(self, work: Workspace) -> Material:
        return Material(runs=(self.path(work),))


class _RowProgress:
    """Add up the rows of a data set as they are extracted."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self.label, self.rows, self.total = "", 0, 0

    def begin(self, label: str, rows: int) -> None:
        self.label, self.rows, self.total = label, 0, rows

    def add(self, rows: int) -> None:
        self.rows += rows
        self.work.progress(f"extracting {self.label}", self.rows, self.total)


@register_step
@dataclass(frozen=True)
class JudgeRuns(Step):
    """Judge runs by a benchmark.

    Parameters
    ----------
    benchmark : str
        Name of the benchmark.
    extracts : tuple of Step, default=()
        Steps whose runs are judged: extractions and studies.
    runs : tuple of str, default=()
        Further runs.
    scores : tuple of str, default=()
        Scores; empty for all that the runs allow.
    pairs : tuple of str, default=()
        Pairs, each ``ID score + OOD score``.
    protocols : tuple of str, default=()
        Protocols; empty for all of the benchmark.
    resamples : int, default=0
        Bootstrap resamples of each interval.
    """

    verb: ClassVar[str] = "bench"
    benchmark: str
    extracts: tuple[Step, ...] = ()
    runs: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    resamples: int = 0

    def _check(self) -> None:
        catalogue.load(self.benchmark)
        _check_extracts(self.extracts)
        for score in self.scores:
            scorer(score)
        for pair in self.pairs:
            for score in _split_pair(pair):
                scorer(score)
        for name in self.protocols:
            if name not in PROTOCOLS:
                raise UnknownName.of("protocol", name, PROTOCOLS)

    def _prerequisites(self) -> tuple[Step, ...]:
        return self.extracts

    def _needs(self, work: Workspace) -> list[DataNeed]:
        if not self.extracts and not self.runs:
            return [DataNeed(f"runs over {self.benchmark}, by --run", False)]
        return _file_needs(self.runs, work)

    def _run_paths(self, work: Workspace) -> list[Path]:
        paths = [saved_path(run, root=work.root) for run in self.runs]
        for one in self.extracts:
            paths += one.run_paths(work)
        return paths

    def _run_words(self, work: Workspace) -> list[str]:
        words = [shlex.quote(str(saved_path(run, root=work.root))) for run in self.runs]
        for one in self.extracts:
            words += one.run_words(work)
        return words

    def _words(self, work: Workspace) -> list[str]:
        words = ["twofold", "bench", "run", self.benchmark]
        for run in self.run_words(work) or ["RUN"]:
            words += ["--run", run]
        words += _options("--score", self.scores) + _options("--pair", self.pairs)
        words += [*_options("--protocol", self.protocols), "--resamples", str(self.resamples)]
        return [*words, "--out", shlex.quote(str(self._folder(work)))]

    def _use_runs(self, runs: tuple[str, ...]) -> Step:
        for run in runs:
            if "?" in run:
                raise InvalidInput(f"{run!r}: a benchmark judges whole runs; leave out what follows the question mark")
        return replace(self, extracts=(), runs=runs)

    def _folder(self, work: Workspace) -> Path:
        return work.out / "results" / self.key

    def _contents(self, work: Workspace) -> str:
        """Compute a digest of the runs, by which a change of them is noticed."""
        return digest([sorted(Run.open(path).digests().items()) for path in self._run_paths(work)])

    def _is_done(self, work: Workspace) -> bool:
        marker = self._folder(work) / "finished"
        if not marker.exists() or not (self.extracts or self.runs):
            return False
        return marker.read_text(encoding="utf-8") == self._contents(work)

    def _run(self, work: Workspace) -> None:
        from twofold.bench import runner

        folder = self._folder(work)
        folder.mkdir(parents=True, exist_ok=True)
        runner.run(
            catalogue.load(self.benchmark),
            self._run_paths(work),
            folder,
            scores=self.scores or None,
            pairs=[_split_pair(pair) for pair in self.pairs],
            protocols=self.protocols or None,
            resamples=self.resamples,
            jobs=work.jobs,
            done=work.progress,
        )
        with replacing(folder / "finished") as file:
            file.write(self._contents(work).encode())

    def _read(self, work: Workspace) -> Material:
        rows = tuple(Results.open(self._folder(work)).to_dicts())
        return Material(rows=rows, runs=tuple(self.run_paths(work)))


def set_needs(benchmark: Benchmark, names: Iterable[str], work: Workspace) -> list[DataNeed]:
    """List data sets of a benchmark, and whether their files are here.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    names : iterable of str
        Names of its data sets.
    work : Workspace
        Where files are.

    Returns
    -------
    list of DataNeed
        One for each data set; the files are not opened.
    """
    needs = []
    for name in names:
        data = benchmark[name].data
        _, _, path = data.partition(":")
        is_here = "{data}" not in data
        if not is_here and work.root is not None:
            is_here = Path(path.partition("?")[0].replace("{data}", str(work.root))).exists()
        needs.append(DataNeed(f"{name} of {benchmark.name}", is_here))
    return needs


def _check_extracts(steps: Iterable[Step]) -> None:
    """Check that earlier steps write runs."""
    for one in steps:
        if not one.makes_runs:
            raise InvalidInput(f"extracts must name steps of the verbs extract or study, got one of {one.verb}")


def _absolute(source: str) -> str:
    """Resolve the path of a source that a user named."""
    name, mark, query = source.partition("?")
    return f"{Path(name).expanduser().resolve()}{mark}{query}"


def _file_needs(sources: Iterable[str], work: Workspace) -> list[DataNeed]:
    """List the files of sources, each once."""
    needs: dict[str, DataNeed] = {}
    for source in sources:
        name = source.partition("?")[0]
        is_known = Path(name).is_absolute() or work.root is not None
        needs[name] = DataNeed(name, is_known and saved_path(source, root=work.root).exists())
    return list(needs.values())


def _options(option: str, values: Iterable[object]) -> list[str]:
    """Spell an option once for each value."""
    words = []
    for value in values:
        words += [option, _quote(str(value))]
    return words


def _quote(text: str) -> str:
    """Quote a word for a shell; one with apostrophes, such as a setting of a score, in double quotes."""
    if "'" in text and not set(text) & set('"$`\\!'):
        return f'"{text}"'
    return shlex.quote(text)


def _split_pair(text: str) -> tuple[str, str]:
    """Split ``ID score + OOD score``."""
    parts = [part.strip() for part in text.split(" + ")]
    if len(parts) != 2:
        raise InvalidInput(f"pairs must be two scores with ' + ' between them, got {text!r}")
    return parts[0], parts[1]
