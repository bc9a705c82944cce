"""The step that trains, extracts and judges cells of a study, as ``twofold study run`` does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from twofold import study as studies
from twofold.bench import catalogue
from twofold.bench.catalogue import Benchmark
from twofold.bench.rows import ResultRow
from twofold.errors import InvalidInput, UnknownName
from twofold.metrics.evaluate import EvaluationMethod
from twofold.papers.judge_step import JudgeRuns
from twofold.papers.material import Material
from twofold.papers.model_selection import choose_trainings
from twofold.papers.steps import DataNeed, Step, fits_benchmark, options, register_step, set_needs
from twofold.papers.workspace import Workspace
from twofold.study import Study, StudyCell
from twofold.typing import override


@register_step
@dataclass(frozen=True)
class RunStudy(Step):
    """Train, extract and judge cells of a study.

    The folder is that of the study and its preset, so that plans which need other rows or seeds of it share the cells
    that are finished.

    Parameters
    ----------
    study : str
        Name of the study, or the path of its file.
    preset : str, default=""
        A preset of the study, such as one with less epochs and images; empty for none.
    rows : tuple of str, default=()
        Rows of the study by the name that its file gives them; empty for all.
    seeds : tuple of int, default=()
        Seeds of the study; empty for all.
    method : {"exact", "published"}, default="exact"
        Whether joint metrics are also measured as the released code of SURE+ does.
    chosen : bool, default=False
        Whether the rows of one recipe count by the one that is best on validation data, score by score.
    """

    verb: ClassVar[str] = "study"
    makes_runs: ClassVar[bool] = True
    study: str
    preset: str = ""
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    method: EvaluationMethod = "exact"
    chosen: bool = False

    def path(self, work: Workspace) -> Path:
        """Name the folder of the study.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        Path
            The folder; it need not exist.
        """
        name = Path(self.study).name.removesuffix(".toml")
        if self.preset:
            name += f"-{self.preset}"
        return work.out / "studies" / name

    def _study(self) -> Study:
        """Read the study; what is trained is checked when it runs, so that torch is not needed before."""
        study = studies.load(self.study, preset=self.preset or None, check=False)
        return replace(study, method=self.method)

    def benchmark(self) -> Benchmark:
        """Return the benchmark that the cells are judged by; the first, where there are several splits.

        Returns
        -------
        Benchmark
            Its data sets, as small as the preset makes them.
        """
        return self._study().benchmarks[0]

    def first_run_paths(self, work: Workspace) -> list[Path]:
        """Name the runs of the cells that :meth:`benchmark` judges.

        Parameters
        ----------
        work : Workspace
            Where files are.

        Returns
        -------
        list of Path
            Folders; they need not exist.
        """
        study = self._study()
        paths = []
        for cell in self._cells(study):
            if cell.benchmark.name == study.benchmarks[0].name:
                paths.append(self.path(work) / "runs" / cell.name)
        return paths

    def _cells(self, study: Study) -> tuple[StudyCell, ...]:
        """List the cells of the step."""
        return study.cells(self.rows or None, self.seeds or None)

    @override
    def check(self) -> None:
        study = self._study()
        for row in self.rows:
            if row not in study.families:
                raise UnknownName.of(f"row of {study.name}", row, study.families)
        for seed in self.seeds:
            if seed not in study.seeds:
                raise InvalidInput(f"seed {seed} is not a seed of {study.name}; its seeds are {study.seeds}")

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        needs: dict[DataNeed, None] = {}
        for benchmark in self._study().benchmarks:
            needs |= dict.fromkeys(set_needs(benchmark, benchmark.names(), work))
        return list(needs)

    @override
    def command(self, work: Workspace) -> str:
        words = ["twofold", "study", "run", shlex.quote(self.study)]
        if self.preset:
            words += ["--preset", self.preset]
        words += options("--row", self.rows) + options("--seed", self.seeds)
        if self.method != "exact":
            words += ["--method", self.method]
        return " ".join([*words, "--out", shlex.quote(str(self.path(work)))])

    @override
    def run_paths(self, work: Workspace) -> list[Path]:
        cells = self._cells(self._study())
        return [self.path(work) / "runs" / cell.name for cell in cells]

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        study = self._study()
        if len(study.benchmarks) > 1 or study.benchmarks[0].name not in catalogue.names():
            raise InvalidInput(
                f"the study {study.name} is not judged by one benchmark of the catalogue; leave --run out"
            )
        benchmark = study.benchmarks[0]
        scores = dict.fromkeys(benchmark.scores)
        if scores:  # without any, all that the runs allow are judged
            for row in study.rows:
                scores |= dict.fromkeys(row.scores)
        step = JudgeRuns(
            benchmark.name,
            scores=tuple(scores),
            pairs=tuple(f"{first} + {second}" for first, second in benchmark.pairs),
            protocols=benchmark.protocols,
            method=self.method,
            metrics=benchmark.metrics,
        )
        return step.use_runs(runs)

    @override
    def use_method(self, method: EvaluationMethod) -> Step:
        return replace(self, method=method)

    @override
    def fits(self, source: str) -> bool:
        study = self._study()
        return any(fits_benchmark(benchmark, source) for benchmark in study.benchmarks)

    @override
    def is_done(self, work: Workspace) -> bool:
        if not self.path(work).is_dir():
            return False
        study = self._study()
        wanted = {cell.name for cell in self._cells(study)}
        return wanted <= set(studies.finished(study, self.path(work)))

    @override
    def run(self, work: Workspace) -> None:
        study = replace(studies.load(self.study, preset=self.preset or None), method=self.method)
        finished = set(studies.finished(study, self.path(work)))
        for cell in self._cells(study):
            if cell.name in finished:
                continue
            if work.is_late:
                return
            progress = studies.run(
                study,
                self.path(work),
                only=[cell.row.name],
                seeds=[cell.seed],
                root=work.root,
                device=work.device,
                jobs=work.jobs,
                done=work.progress,
            )
            finished.update(progress.finished)

    @override
    def read(self, work: Workspace) -> Material:
        study = self._study()
        cells = {cell.name for cell in self._cells(study)}
        found = studies.results(study, self.path(work))
        rows: list[ResultRow] = [row for row in found.to_dicts() if row["run"] in cells]
        if self.chosen:
            recipes = {row.name: row.recipe.partition("(")[0] for row in study.rows}
            rows = choose_trainings(rows, recipes)
        return Material(rows=tuple(rows), runs=tuple(self.run_paths(work)))
