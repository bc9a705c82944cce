"""The step that judges runs by a benchmark, as ``twofold bench run`` does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from twofold._files import replacing
from twofold.bench import catalogue
from twofold.bench.cache import digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.protocols import PROTOCOLS
from twofold.bench.results import Results
from twofold.bench.saved import saved_path
from twofold.errors import InvalidInput, UnknownName
from twofold.metrics.evaluate import EvaluationMethod
from twofold.papers.material import Material
from twofold.papers.steps import (
    DataNeed,
    Step,
    absolute_sources,
    check_extracts,
    file_needs,
    fits_benchmark,
    options,
    register_step,
)
from twofold.papers.workspace import Workspace
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.typing import override


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
    method : {"exact", "published"}, default="exact"
        Whether joint metrics are also measured as the released code of SURE+ does.
    metrics : tuple of str, default=()
        Further metrics of single scores.
    """

    verb: ClassVar[str] = "bench"
    benchmark: str
    extracts: tuple[Step, ...] = ()
    runs: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    resamples: int = 0
    method: EvaluationMethod = "exact"
    metrics: tuple[str, ...] = ()

    @override
    def check(self) -> None:
        self._benchmark()
        check_extracts(self.extracts)
        for score in self.scores:
            scorer(score)
        for pair in self.pairs:
            for score in split_pair(pair):
                scorer(score)
        for name in self.protocols:
            if name not in PROTOCOLS:
                raise UnknownName.of("protocol", name, PROTOCOLS)

    def _benchmark(self) -> Benchmark:
        """Load the benchmark, with the metrics that the step adds."""
        return catalogue.load(self.benchmark).measuring(self.metrics)

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
        paths = [saved_path(run, root=work.root) for run in self.runs]
        for one in self.extracts:
            paths += one.run_paths(work)
        return paths

    @override
    def command(self, work: Workspace) -> str:
        words = ["twofold", "bench", "run", self.benchmark]
        for run in self.run_words(work) or ["RUN"]:
            words += ["--run", run]
        words += options("--score", self.scores) + options("--pair", self.pairs)
        words += [*options("--protocol", self.protocols), "--resamples", str(self.resamples)]
        if self.method != "exact":
            words += ["--method", self.method]
        if self.metrics:
            words += ["--metrics", ",".join(self.metrics)]
        return " ".join([*words, "--out", shlex.quote(str(self._folder(work)))])

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        for run in runs:
            if "?" in run:
                raise InvalidInput(f"{run!r}: a benchmark judges whole runs; leave out what follows the question mark")
        return replace(self, extracts=(), runs=absolute_sources(runs))

    @override
    def use_method(self, method: EvaluationMethod) -> Step:
        return replace(self, method=method)

    @override
    def fits(self, source: str) -> bool:
        return fits_benchmark(catalogue.load(self.benchmark), source)

    def _folder(self, work: Workspace) -> Path:
        return work.out / "results" / self.key

    def _contents(self, work: Workspace) -> str:
        """Compute a digest of the runs, by which a change of them is noticed."""
        return digest([sorted(Run.open(path).digests().items()) for path in self.run_paths(work)])

    @override
    def is_done(self, work: Workspace) -> bool:
        marker = self._folder(work) / "finished"
        if not marker.exists() or not (self.extracts or self.runs):
            return False
        return marker.read_text(encoding="utf-8") == self._contents(work)

    @override
    def run(self, work: Workspace) -> None:
        from twofold.bench import runner

        folder = self._folder(work)
        folder.mkdir(parents=True, exist_ok=True)
        runner.run(
            self._benchmark(),
            self.run_paths(work),
            folder,
            scores=self.scores or None,
            pairs=[split_pair(pair) for pair in self.pairs],
            protocols=self.protocols or None,
            resamples=self.resamples,
            method=self.method,
            jobs=work.jobs,
            done=work.progress,
        )
        with replacing(folder / "finished") as file:
            file.write(self._contents(work).encode())

    @override
    def read(self, work: Workspace) -> Material:
        rows = tuple(Results.open(self._folder(work)).to_dicts())
        return Material(rows=rows, runs=tuple(self.run_paths(work)))


def split_pair(text: str) -> tuple[str, str]:
    """Split a pair of scores.

    Parameters
    ----------
    text : str
        ``ID score + OOD score``.

    Returns
    -------
    tuple of (str, str)
        The two scores.

    Raises
    ------
    InvalidInput
        If there are not two.
    """
    parts = [part.strip() for part in text.split(" + ")]
    if len(parts) != 2:
        raise InvalidInput(f"pairs must be two scores with ' + ' between them, got {text!r}")
    return parts[0], parts[1]
