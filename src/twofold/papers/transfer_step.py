"""The step that moves thresholds from validation to test data, as ``twofold bench transfer`` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from twofold._files import replacing
from twofold.bench import catalogue
from twofold.bench.cache import digest
from twofold.bench.rows import ResultRow
from twofold.bench.saved import saved_path
from twofold.bench.transfer import Stage, TransferredPoint, transfer_thresholds
from twofold.errors import InvalidInput
from twofold.metrics.evaluate import EvaluationMethod
from twofold.papers.material import Material
from twofold.papers.steps import DataNeed, Step, absolute_sources, check_extracts, file_needs, options, register_step
from twofold.papers.workspace import Workspace
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.typing import override

_SUFFIXES: dict[Stage, str] = {"chosen": "", "moved": "_transferred", "best": ""}  # of printed metrics


@register_step
@dataclass(frozen=True)
class TransferThresholds(Step):
    """Choose thresholds on some data of runs, and judge them on other data.

    Parameters
    ----------
    benchmark : str
        Name of the benchmark.
    ood_score : str
        Score of known against unknown inputs.
    choose, judge : tuple of str
        Known and unknown data set to choose on, and to judge on.
    extracts : tuple of Step, default=()
        Steps whose runs are judged.
    runs : tuple of str, default=()
        Further runs.
    id_score : str, default="msp"
        Score of correct against wrong labels.
    method : {"exact", "published"}, default="exact"
        Which thresholds are tried.
    """

    verb: ClassVar[str] = "transfer"
    benchmark: str
    ood_score: str
    choose: tuple[str, ...]
    judge: tuple[str, ...]
    extracts: tuple[Step, ...] = ()
    runs: tuple[str, ...] = ()
    id_score: str = "msp"
    method: EvaluationMethod = "exact"

    @override
    def check(self) -> None:
        benchmark = catalogue.load(self.benchmark)
        check_extracts(self.extracts)
        scorer(self.id_score)
        scorer(self.ood_score)
        for names in (self.choose, self.judge):
            _pair_of_sets(names)
            for name in names:
                benchmark[name]

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
        words = ["twofold", "bench", "transfer", self.benchmark]
        words += ["--run", *(self.run_words(work)[:1] or ["RUN"])]
        words += options("--id", [self.id_score]) + options("--ood", [self.ood_score])
        words += ["--choose", "+".join(self.choose), "--judge", "+".join(self.judge)]
        if self.method != "exact":
            words += ["--method", self.method]
        return " ".join(words)

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        return replace(self, extracts=(), runs=absolute_sources(runs))

    @override
    def use_method(self, method: EvaluationMethod) -> Step:
        return replace(self, method=method)

    def _path(self, work: Workspace) -> Path:
        """Name the file of the points: by settings and by what the runs hold."""
        contents = [sorted(Run.open(path).digests().items()) for path in self.run_paths(work) if path.is_dir()]
        return work.out / "cells" / f"{self.key}-{digest(contents)[:12]}.json"

    @override
    def is_done(self, work: Workspace) -> bool:
        return bool(self.extracts or self.runs) and self._path(work).exists()

    @override
    def run(self, work: Workspace) -> None:
        found: dict[str, list[dict[str, object]]] = {}
        for path in self.run_paths(work):
            points = transfer_thresholds(
                catalogue.load(self.benchmark),
                path,
                id_score=self.id_score,
                ood_score=self.ood_score,
                choose=_pair_of_sets(self.choose),
                judge=_pair_of_sets(self.judge),
                method=self.method,
            )
            found[str(path)] = [asdict(point) for point in points]
        target = self._path(work)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write(json.dumps(found, indent=2).encode())

    @override
    def read(self, work: Workspace) -> Material:
        stored = json.loads(self._path(work).read_text(encoding="utf-8"))
        rows: list[ResultRow] = []
        for path, points in stored.items():
            for point in points:
                rows += self._rows(Run.open(path), TransferredPoint(**point))
        return Material(rows=tuple(rows), runs=tuple(self.run_paths(work)))

    def _rows(self, run: Run, point: TransferredPoint) -> list[ResultRow]:
        """Make rows of results, under the names that printed numbers have."""
        score, pair = {
            "id": (self.id_score, None),
            "ood": (self.ood_score, None),
            "both": (self.id_score, self.ood_score),
        }[point.scoring]
        _, unknown = _pair_of_sets(self.judge)
        shift, role = unknown, catalogue.load(self.benchmark).roles[unknown]
        if point.stage == "chosen":
            shift, role = point.data, "val"
        shared = {
            "benchmark": self.benchmark,
            "model": run.provenance.get("model"),
            "recipe": run.provenance.get("recipe"),
            "seed": run.provenance.get("seed"),
            "run": run.path.name,
            "score": score,
            "pair": pair,
            "shift": shift,
            "role": role,
            "low": None,
            "high": None,
        }
        values = {"f1" if pair is None else "ds_f1": point.f1, "tau_id": point.tau_id}
        if self.method == "published":  # otherwise it is in the unit of the score, and not comparable
            values["tau_ood"] = point.tau_ood
        rows: list[ResultRow] = []
        for metric, value in values.items():
            if value is not None:
                rows.append({**shared, "metric": metric + _SUFFIXES[point.stage], "value": value})
        return rows


def _pair_of_sets(names: tuple[str, ...]) -> tuple[str, str]:
    """Check that there are two data sets."""
    if len(names) != 2:
        raise InvalidInput(f"choose and judge must name a known and an unknown data set, got {list(names)}")
    return names[0], names[1]
