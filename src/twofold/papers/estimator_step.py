"""The step that measures estimators of AURC, as ``twofold bench estimators`` does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from twofold import _checks
from twofold._files import replacing
from twofold.bench.cache import digest
from twofold.bench.estimators import LOSSES, SIZES, Loss, cells_from_csv, cells_to_csv, measure_estimators
from twofold.bench.saved import name_sources, read_saved, saved_digest, saved_path
from twofold.papers.material import Material
from twofold.papers.steps import DataNeed, Step, absolute_sources, check_extracts, file_needs, options, register_step
from twofold.papers.workspace import Workspace
from twofold.scores.chain import scorer
from twofold.typing import override


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

    @override
    def check(self) -> None:
        name_sources(self.outputs)
        check_extracts(self.extracts)
        for loss in self.losses:
            _checks.choice(loss, "losses", LOSSES)
        for score in self.scores:
            scorer(score)
        for size in self.sizes:
            _checks.whole(size, "sizes", 2)

    @override
    def prerequisites(self) -> tuple[Step, ...]:
        return self.extracts

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        if not self.outputs and not self.extracts:
            return [DataNeed("runs of your networks, by --run", False)]
        return file_needs(self.outputs, work)

    def _sources(self, work: Workspace) -> tuple[str, ...]:
        """List all sources: those of the data, and the runs of earlier steps."""
        sources = list(self.outputs)
        for step in self.extracts:
            sources += [str(path.absolute()) for path in step.run_paths(work)]
        return tuple(sources)

    @override
    def command(self, work: Workspace) -> str:
        sources = [work.data_word(source) for source in self.outputs]
        for step in self.extracts:
            sources += step.run_words(work)
        sources = sources or ["RUN"]
        words = ["twofold", "bench", "estimators", *sources]
        words += options("--loss", self.losses) + options("--score", self.scores) + options("--size", self.sizes)
        if self.whole:
            words.append("--whole")
        return " ".join([*words, "--out", shlex.quote(str(self._path(work)))])

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        return replace(self, outputs=absolute_sources(runs), extracts=())

    def _path(self, work: Workspace) -> Path:
        """Name the file of the cells: by settings and by what the sources hold."""
        contents = []
        for source in self._sources(work):
            is_here = saved_path(source, root=work.root).exists()
            contents.append(saved_digest(source, root=work.root) if is_here else "missing")
        return work.out / "cells" / f"{self.verb}-{digest(asdict(self), contents)[:12]}.csv"

    @override
    def is_done(self, work: Workspace) -> bool:
        return bool(self.outputs or self.extracts) and self._path(work).exists()

    @override
    def run(self, work: Workspace) -> None:
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

    @override
    def read(self, work: Workspace) -> Material:
        text = self._path(work).read_text(encoding="utf-8")
        return Material(cells=tuple(cells_from_csv(text)))
