"""Results of one real classifier under every protocol, for the tables of benchmarks/real_bench.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from real_runs import Network
from twofold import Run
from twofold.bench import runner
from twofold.bench.catalogue import Benchmark, load
from twofold.bench.confidences import Confidences
from twofold.bench.results import Results

DISTANCES = ("near", "far")


@dataclass(frozen=True)
class Joined:
    """Hold truth and the confidences of two scores on a known and an unknown set together."""

    correct: np.ndarray  # False on unknown inputs
    is_id: np.ndarray
    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True)
class NetworkResults:
    """Hold the run of a network and its rows of results."""

    network: Network
    run: Run
    rows: Results
    folder: Path  # of results and cache

    @property
    def name(self) -> str:
        return self.network.name

    @cached_property
    def benchmark(self) -> Benchmark:
        return load(self.network.benchmark)

    @property
    def near(self) -> tuple[str, ...]:
        return self.benchmark.names("near")

    @property
    def far(self) -> tuple[str, ...]:
        return self.benchmark.names("far")

    @property
    def unknown(self) -> tuple[str, ...]:
        return (*self.near, *self.far)

    def confidences(self, protocol: str) -> dict[str, Confidences]:
        """Read the confidences of every score that could be computed, tuned by the rule of a protocol."""
        found = {}
        for spec, confidences in runner.confidences(self.benchmark, self.run, self.folder, protocol).items():
            if not confidences.reason:
                found[spec] = confidences
        return found

    @cached_property
    def joint_confidences(self) -> dict[str, Confidences]:
        return self.confidences("joint")

    def join(self, first: str, second: str, known: str, unknown: str) -> Joined:
        """Join truth and the confidences of two scores on a known and an unknown set."""
        correct = [self.run[known].correct, np.zeros(len(self.run[unknown]), bool)]
        is_id = [np.ones(len(self.run[known]), bool), np.zeros(len(self.run[unknown]), bool)]
        confidences = []
        for score in (first, second):
            conf = self.joint_confidences[score].conf
            confidences.append(np.concatenate([conf[known], conf[unknown]]))
        return Joined(np.concatenate(correct), np.concatenate(is_id), *confidences)


def value(rows: Results, **where: object) -> float:
    """Return the value of the first row whose columns have these values; NaN where there is none."""
    found = rows.filter(**where).rows
    if not found:
        return float("nan")
    return found[0]["value"]


def values_of(rows: Results, scores: Sequence[str], shift: str, metric: str, **where: object) -> np.ndarray:
    """Collect a metric of several scores on one set."""
    return np.array([value(rows, score=score, shift=shift, metric=metric, **where) for score in scores])


def scores_of(rows: Results, **where: object) -> list[str]:
    """List the scores that have a row whose columns have these values, by name."""
    return sorted({row["score"] for row in rows.filter(**where).rows})
