"""The step that reads fine-tuned networks of a study as rows of Table 1 of the AURC-estimators paper."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from twofold.bench.rows import ResultRow
from twofold.errors import InvalidInput
from twofold.papers.material import Material
from twofold.papers.steps import DataNeed, Step, register_step
from twofold.papers.strata_steps import choose_runs
from twofold.papers.study_step import RunStudy
from twofold.papers.workspace import Workspace
from twofold.typing import override

_RUN = re.compile(r"(?:.*-)?(ce|empirical|log|sele|self_excluded)(?:-\d+)?-s\d+")
_DATA = {"cifar100": "aurc-cifar100", "cifar10": "aurc-cifar10"}  # the longer name first
_MODELS = {"vgg16_bn_32": "vgg16bn", "vgg19_bn_32": "vgg19bn", "wrn28_10": "wideresnet28x10"}


@register_step
@dataclass(frozen=True)
class ReadFineTuned(Step):
    """Read the fine-tuned networks of studies, the learning rate of each loss chosen on validation data.

    Parameters
    ----------
    extracts : tuple of Step
        Studies whose rows are ``ce``, ``empirical``, ``log``, ``sele`` and ``self_excluded``.
    """

    verb: ClassVar[str] = "fine_tuned"
    extracts: tuple[Step, ...]

    @override
    def check(self) -> None:
        for step in self.extracts:
            if not isinstance(step, RunStudy):
                raise InvalidInput(f"extracts must name steps of the verb study, got one of {step.verb}")

    @override
    def prerequisites(self) -> tuple[Step, ...]:
        return self.extracts

    @override
    def needs(self, work: Workspace) -> list[DataNeed]:
        return []

    @override
    def command(self, work: Workspace) -> str:
        commands = []
        for step in self.extracts:
            if isinstance(step, RunStudy):
                commands.append(f"twofold study table {shlex.quote(str(step.path(work)))}")
        return "; ".join(commands)

    @override
    def use_runs(self, runs: Sequence[str]) -> Step:
        raise InvalidInput("the table is of networks that are fine-tuned with several losses; leave --run out")

    @override
    def is_done(self, work: Workspace) -> bool:
        return all(step.is_done(work) for step in self.extracts)

    @override
    def run(self, work: Workspace) -> None:
        """Do nothing: the studies have judged the networks.

        Parameters
        ----------
        work : Workspace
            Where files are.
        """

    @override
    def read(self, work: Workspace) -> Material:
        rows: list[ResultRow] = []
        for step in self.extracts:
            tuned = [row for row in step.read(work).rows if _RUN.fullmatch(str(row["run"]))]
            rows += [_as_printed(row) for row in choose_runs(tuned, _family, "aurc")]
        return Material(rows=tuple(rows))


def _family(row: ResultRow) -> str:
    """Name the runs that differ from this one by the learning rate at most."""
    return f"{row['benchmark']} {_loss(row)} {row['seed']}"


def _loss(row: ResultRow) -> str:
    found = _RUN.fullmatch(str(row["run"]))
    assert found is not None
    return found.group(1)


def _as_printed(row: ResultRow) -> ResultRow:
    """Name benchmark, network and loss of a row as the printed numbers do."""
    name = str(row["benchmark"])
    benchmark = next((printed for part, printed in _DATA.items() if part in name), name)
    model = str(row["model"])
    recipe = "basic"
    if _loss(row) != "ce":
        recipe = f"aurc_finetune(estimator='{_loss(row)}')"
    return {
        **row,
        "benchmark": benchmark,
        "model": _MODELS.get(model, model.removesuffix("_32")),
        "recipe": recipe,
    }
