"""The step that averages probabilities by the class of unknown inputs, as ``twofold bench classes`` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from twofold._files import replacing
from twofold.bench.cache import digest
from twofold.bench.catalogue import Benchmark
from twofold.bench.class_means import ClassMean, mean_probabilities
from twofold.bench.rows import ResultRow
from twofold.errors import InvalidInput
from twofold.papers.material import Material
from twofold.papers.steps import DataNeed, Step, check_extracts, register_step, set_needs
from twofold.papers.study_step import RunStudy
from twofold.papers.workspace import Workspace
from twofold.run import Run
from twofold.typing import override

MEAN_PROBABILITY = "mean_probability"  # metric of the rows: score is the class of the inputs, pair a known class


@register_step
@dataclass(frozen=True)
class AverageClasses(Step):
    """Average the probabilities of networks over the inputs of each class of data sets.

    Parameters
    ----------
    extracts : tuple of Step
        One step of a study, whose runs are read.
    sets : tuple of str
        Data sets of the study, usually unknown ones.
    """

    verb: ClassVar[str] = "classes"
    extracts: tuple[Step, ...]
    sets: tuple[str, ...]

    def _study(self) -> RunStudy:
        check_extracts(self.extracts)
        if len(self.extracts) != 1 or not isinstance(self.extracts[0], RunStudy):
            raise InvalidInput("extracts of classes must name one step of the verb study")
        return self.extracts[0]

    def _benchmark(self) -> Benchmark:
        return self._study().benchmark()

    @override
    def check(self) -> None:
        benchmark = self._benchmark()
        for name in self.sets:
            benchmark[name]

    @override
    def prerequisites(self) -> tuple[Step, ...]:
        return self.extracts

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        return set_needs(self._benchmark(), self.sets, work)

    @override
    def run_paths(self, work: Workspace) -> list[Path]:
        return self._study().first_run_paths(work)

    @override
    def command(self, work: Workspace) -> str:
        path = self.run_words(work)[0]
        name = self.sets[0]
        data = self._benchmark()[name].data.replace("{data}", "$TWOFOLD_DATA")
        return f'twofold bench classes {path} --name {name} --data "{data}" --json'

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        raise InvalidInput("classes of unknown inputs are read from the data of the study; leave --run out")

    def _path(self, work: Workspace) -> Path:
        contents = [sorted(Run.open(path).digests().items()) for path in self.run_paths(work) if path.is_dir()]
        return work.out / "cells" / f"{self.key}-{digest(contents)[:12]}.json"

    @override
    def is_done(self, work: Workspace) -> bool:
        return self._path(work).exists()

    @override
    def run(self, work: Workspace) -> None:
        from twofold.nn import data

        benchmark = self._benchmark()
        rows = []
        for path in self.run_paths(work):
            run = Run.open(path)
            for name in self.sets:
                images = data.open(benchmark[name].spec(work.need_root()))
                rows += _rows(run, name, benchmark, mean_probabilities(run[name], images.labels, images.class_names))
        target = self._path(work)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(json.dumps(rows).encode())

    @override
    def read(self, work: Workspace) -> Material:
        rows: list[ResultRow] = json.loads(self._path(work).read_text(encoding="utf-8"))
        return Material(rows=tuple(rows), runs=tuple(self.run_paths(work)))


def _rows(run: Run, name: str, benchmark: Benchmark, means: Sequence[ClassMean]) -> list[dict[str, object]]:
    """Make a row for each class of the inputs and each known class."""
    known = run[name].class_names or tuple(str(place) for place in range(benchmark.classes))
    rows = []
    for one in means:
        for place, value in enumerate(one.probabilities):
            rows.append(
                {
                    "benchmark": benchmark.name,
                    "model": run.provenance.get("model"),
                    "recipe": run.provenance.get("recipe"),
                    "seed": run.provenance.get("seed"),
                    "run": run.path.name,
                    "score": one.name,
                    "pair": known[place],
                    "shift": name,
                    "role": benchmark.roles[name],
                    "metric": MEAN_PROBABILITY,
                    "value": value,
                }
            )
    return rows
