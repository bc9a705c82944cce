"""The steps of plans: each calls one function of the library, and can say which command does the same.

A step writes to a place in the workspace that is named by its own settings, so that plans with equal steps share their
work and a finished step is not repeated.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from twofold._data_spec import DataSpec
from twofold.bench.cache import digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.saved import saved_path
from twofold.errors import InvalidInput
from twofold.metrics.evaluate import EvaluationMethod
from twofold.papers.material import Material
from twofold.papers.workspace import Workspace
from twofold.run import Run


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
        return f"{self.verb}-{digest(_without_later(asdict(self)))[:12]}"

    def check(self) -> None:
        """Check the settings without reading data.

        Raises
        ------
        InvalidInput
            If a setting is invalid.
        UnknownName
            If a name is not known.
        """
        return

    def prerequisites(self) -> tuple[Step, ...]:
        """List the steps that come before this one.

        Returns
        -------
        tuple of Step
            They write what this step reads.
        """
        return ()

    @abstractmethod
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

    @abstractmethod
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
        return []

    def run_words(self, work: Workspace) -> list[str]:
        """Spell the runs that this step writes for a command line.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        list of str
            Words for a shell, one for each run.
        """
        return [shlex.quote(str(path)) for path in self.run_paths(work)]

    @abstractmethod
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

    def use_method(self, method: EvaluationMethod) -> Step:
        """Choose whether joint metrics are also measured as the released code of SURE+ does.

        Parameters
        ----------
        method : {"exact", "published"}
            How.

        Returns
        -------
        Step
            A step with this choice; the step itself where it measures nothing.
        """
        return self

    def fits(self, source: str) -> bool:
        """Tell whether a run of the user is of the kind that this step reads.

        Parameters
        ----------
        source : str
            A source as :func:`twofold.bench.saved.read_saved` takes it.

        Returns
        -------
        bool
            False for a run over another benchmark, which a plan of several benchmarks gives to another step.
        """
        return True

    @abstractmethod
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

    @abstractmethod
    def run(self, work: Workspace) -> None:
        """Do what is missing.

        Parameters
        ----------
        work : Workspace
            Where files are, and where progress is reported.
        """

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
        return Material()


_LATER = {"odin": 0.0, "method": "exact"}  # settings that steps got later: files of steps without them stay valid


def _without_later(settings: object) -> object:
    """Leave out later settings that have their default, in the step and in those it names."""
    if isinstance(settings, dict):
        kept = {}
        for name, value in settings.items():
            if name not in _LATER or value != _LATER[name]:
                kept[name] = _without_later(value)
        return kept
    if isinstance(settings, tuple):
        return tuple(_without_later(one) for one in settings)
    return settings


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
        is_here = "{data}" not in data
        if not is_here and work.root is not None:
            path = DataSpec.parse(data).path
            is_here = Path(path.replace("{data}", str(work.root))).exists()
        needs.append(DataNeed(f"{name} of {benchmark.name}", is_here))
    return needs


def file_needs(sources: Iterable[str], work: Workspace) -> list[DataNeed]:
    """List the files of sources, each once, and whether they are here.

    Parameters
    ----------
    sources : iterable of str
        Sources as :func:`twofold.bench.saved.read_saved` takes them.
    work : Workspace
        Where files are.

    Returns
    -------
    list of DataNeed
        One for each file or run.
    """
    needs: dict[str, DataNeed] = {}
    for source in sources:
        name = source.partition("?")[0]
        is_known = Path(name).is_absolute() or work.root is not None
        needs[name] = DataNeed(name, is_known and saved_path(source, root=work.root).exists())
    return list(needs.values())


def fits_benchmark(benchmark: Benchmark, source: str) -> bool:
    """Tell whether a run has the test sets of a benchmark.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    source : str
        Folder of the run.

    Returns
    -------
    bool
        True if it has all but those of training and of validation with outliers.
    """
    path = Path(source).expanduser()
    if not path.is_dir():
        return False
    wanted = [one.name for one in benchmark.sets if one.role not in ("train", "ood_val")]
    return set(wanted) <= set(Run.open(path).names())


def check_extracts(steps: Iterable[Step]) -> None:
    """Check that earlier steps write runs.

    Parameters
    ----------
    steps : iterable of Step
        The steps that ``extracts`` names.

    Raises
    ------
    InvalidInput
        If one of them writes none.
    """
    for one in steps:
        if not one.makes_runs:
            raise InvalidInput(f"extracts must name steps of the verbs extract or study, got one of {one.verb}")


def absolute_sources(sources: Iterable[str]) -> tuple[str, ...]:
    """Resolve the paths of sources that a user named.

    Parameters
    ----------
    sources : iterable of str
        Sources as :func:`twofold.bench.saved.read_saved` takes them.

    Returns
    -------
    tuple of str
        The sources with absolute paths.
    """
    resolved = []
    for source in sources:
        name, mark, query = source.partition("?")
        resolved.append(f"{Path(name).expanduser().resolve()}{mark}{query}")
    return tuple(resolved)


def options(option: str, values: Iterable[object]) -> list[str]:
    """Spell an option of a command line once for each value.

    Parameters
    ----------
    option : str
        Such as ``"--score"``.
    values : iterable
        Its values.

    Returns
    -------
    list of str
        Words for a shell.

    Examples
    --------
    >>> options("--score", ["msp", "knn(k=5)"])
    ['--score', 'msp', '--score', "'knn(k=5)'"]
    """
    words = []
    for value in values:
        words += [option, _quote(str(value))]
    return words


def _quote(text: str) -> str:
    """Quote a word for a shell; one with apostrophes, such as a setting of a score, in double quotes."""
    if "'" in text and not set(text) & set('"$`\\!'):
        return f'"{text}"'
    return shlex.quote(text)
