"""The step that runs a network over data sets, as ``twofold bench extract`` does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from twofold import _checks
from twofold.bench import catalogue
from twofold.bench.catalogue import Benchmark
from twofold.bench.sampling import EVERY, sample_images
from twofold.errors import InvalidInput, MissingExtra
from twofold.papers.material import Material
from twofold.papers.steps import DataNeed, Step, file_needs, options, register_step, set_needs
from twofold.papers.workspace import Workspace
from twofold.run import Run
from twofold.typing import override


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
    odin : float, default=0.0
        Step of ODIN in pixels of [0, 1], which is recorded; 0 for none.
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
    odin: float = 0.0

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

    @override
    def check(self) -> None:
        _checks.whole(self.images, "images", 0)
        benchmark = self._benchmark()
        for name in self.sets:
            benchmark[name]

    @override
    def run_paths(self, work: Workspace) -> list[Path]:
        return [self.path(work)]

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        benchmark = catalogue.load(self.benchmark)
        return file_needs(self.checkpoints, work) + set_needs(benchmark, self.sets, work)

    @override
    def command(self, work: Workspace) -> str:
        words = ["twofold", "bench", "extract", self.benchmark, self.model]
        for path in self.checkpoints:
            words += ["--checkpoint", work.data_word(path)]
        words += ["--normalise", self.normalise, "--recipe", self.recipe]
        if self.layers:
            words += ["--layers", shlex.quote(self.layers)]
        if self.images:
            words += ["--sample", str(self.images)]
        if self.odin:
            words += ["--odin", str(self.odin)]
        words += [*options("--name", self.sets), "--out", shlex.quote(str(self.path(work)))]
        return " ".join(words)

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        raise InvalidInput("a plan that only extracts takes no runs; leave --run out")

    @override
    def is_done(self, work: Workspace) -> bool:
        path = self.path(work)
        if not path.is_dir():
            return False
        return set(self.sets) <= set(Run.open(path).names())

    @override
    def run(self, work: Workspace) -> None:
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
            odin=self.odin or None,
            device=work.device,
            command=f"twofold bench extract {self.benchmark} {self.model}",
            begin=progress.begin,
            done=progress.add,
        )

    @override
    def read(self, work: Workspace) -> Material:
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
