"""The runs that a benchmark judges, with the data sets of the benchmark that they hold."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from twofold._checks import Mask
from twofold.bench.catalogue import Benchmark
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.run import Run
from twofold.scores.candidates import common_fields, computable_scores
from twofold.scores.chain import scorer

SHAPED_ENERGIES = ("react|energy", "dice|energy", "ash|energy", "scale|energy", "vra|energy", "lts|energy")
"""A transform is not a score by itself; these are the chains that the papers of the transforms judge."""


@dataclass(frozen=True)
class Subject:
    """Hold a run as a benchmark sees it: the data sets of the benchmark that it holds, under their roles.

    Parameters
    ----------
    run : Run
        The run.
    roles : mapping of str to str
        Role by name of the data set.
    """

    run: Run
    roles: Mapping[str, str]

    @classmethod
    def of(cls, run: Run | str | Path, benchmark: Benchmark) -> Subject:
        """Open a run and check that it fits a benchmark.

        Parameters
        ----------
        run : Run, str or Path
            The run or its folder.
        benchmark : Benchmark
            The benchmark.

        Returns
        -------
        Subject
            The run with the data sets that the benchmark names.

        Raises
        ------
        InvalidInput
            If the run has no data set of role train, val or test of the benchmark, or another number of classes.
        """
        opened = run if isinstance(run, Run) else Run.open(run)
        roles = {name: role for name, role in benchmark.roles.items() if name in opened}
        for role in ("train", "val", "test"):
            if role not in roles.values():
                raise InvalidInput(
                    f"{opened.path} holds no data set of role {role} of {benchmark.name}: "
                    f"{', '.join(benchmark.names(role))}; extract it with `twofold bench extract`"
                )
        classes = opened[next(iter(roles))].classes
        if classes != benchmark.classes:
            raise InvalidInput(f"{opened.path} has {classes} classes, but {benchmark.name} has {benchmark.classes}")
        return cls(opened, roles)

    @property
    def name(self) -> str:
        """The name of the run in the rows of results."""
        return self.run.path.name

    @property
    def folder(self) -> str:
        """The resolved folder of the run."""
        return str(self.run.path.resolve())

    @property
    def scored_sets(self) -> list[str]:
        """The data sets to score: all but those of role train.

        Returns
        -------
        list of str
            Their names, in the order of the benchmark.
        """
        return [name for name, role in self.roles.items() if role != "train"]

    def shared_columns(self, benchmark: Benchmark) -> dict[str, object]:
        """Collect the columns of results that all rows of this run share.

        Parameters
        ----------
        benchmark : Benchmark
            The benchmark.

        Returns
        -------
        dict
            Benchmark, model, recipe, seed, run, version and command.
        """
        from twofold import __version__

        provenance = self.run.provenance
        is_command = Path(sys.argv[0]).name == "twofold"
        return {
            "benchmark": benchmark.name,
            "model": provenance.get("model"),
            "recipe": provenance.get("recipe"),
            "seed": provenance.get("seed"),
            "run": self.name,
            "version": __version__,
            "command": " ".join(["twofold", *sys.argv[1:]]) if is_command else None,
        }

    def names(self, role: str) -> tuple[str, ...]:
        """List the data sets of a role.

        Parameters
        ----------
        role : str
            The role.

        Returns
        -------
        tuple of str
            Their names.
        """
        return tuple(name for name, own in self.roles.items() if own == role)

    def outputs(self, role: str) -> Outputs | None:
        """Concatenate the outputs of all data sets of a role.

        Parameters
        ----------
        role : str
            The role.

        Returns
        -------
        Outputs or None
            None where no data set has the role.
        """
        parts = [self.run[name] for name in self.names(role)]
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        return Outputs.concat(parts)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digest of each data set as it is stored, and of the head.

        Returns
        -------
        dict of str to str
            By name of the data set; that of the head is ``"head"``.
        """
        return self.run.digests()

    def truth(self, name: str, judges: str) -> tuple[Mask, Mask]:
        """Compute which rows of a data set are predicted correctly and which are known, and remember the answer.

        Parameters
        ----------
        name : str
            The data set.
        judges : {"logits", "passes"}
            The prediction that a score judges: that of the logits, or of the mean over passes.

        Returns
        -------
        tuple of (ndarray of bool, ndarray of bool)
            Correct predictions, and known rows.
        """
        if (name, judges) not in self._truth:
            outputs = self.run[name]
            judged = outputs.averaged() if judges == "passes" else outputs
            self._truth[name, judges] = np.asarray(judged.correct), np.asarray(judged.is_id)
        return self._truth[name, judges]

    @cached_property
    def _truth(self) -> dict[tuple[str, str], tuple[Mask, Mask]]:
        return {}

    @cached_property
    def scores(self) -> list[str]:
        """All scores that the fields of these data sets allow.

        Returns
        -------
        list of str
            Registered scores, then the energy after each transform that shapes features.
        """
        sets = [self.run[name] for name in self.roles]
        fields = common_fields(sets)
        shaped = [spec for spec in SHAPED_ENERGIES if fields >= set(scorer(spec).needs)]
        return [*computable_scores(sets), *shaped]
