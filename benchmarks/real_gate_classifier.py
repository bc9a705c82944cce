"""A network whose scores are stored for every data set, and the gates made of them, for benchmarks/real_gate.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from script import announce

import numpy as np

from real_runs import Network
from real_scores import CHAINS
from twofold.bench.catalogue import load
from twofold.errors import Infeasible
from twofold.gate import Gate
from twofold.outputs import Outputs
from twofold.run import Run
from twofold.scores import fit_all, score_all
from twofold.scores.candidates import computable_scores

GateScores = tuple[str, str | None]  # the ID score of a gate, and its OOD score
Part = tuple[str, np.ndarray]  # a data set and rows of it

MSP: GateScores = ("msp", None)
SECOND = ("energy", "react|energy", "vim", "knn")  # second scores of the promises
LEVELS = range(1, 6)  # of corruption
EVEN = 0.5  # OOD share of the tables of F1: as many unknown inputs as known ones, as in the paper
STORED_AS = ("confidnet", "devries")  # learned scores, in whose place outputs hold stored confidences


@dataclass(frozen=True)
class Row:
    """Hold one number of the results."""

    table: str
    network: str
    gate: str
    chosen_on: str
    judged_on: str
    asked: float | str
    quantity: str
    value: float


@dataclass(frozen=True, eq=False)
class Classifier:
    """Hold the confidences of a network by data set, and whether its predictions are correct."""

    name: str
    classes: int
    near: tuple[str, ...]
    far: tuple[str, ...]
    specs: tuple[str, ...]  # of all scores
    conf: dict[str, dict[str, np.ndarray]]  # by score and set
    correct: dict[str, np.ndarray]  # by known set
    corrupted: np.ndarray  # rows of the test set whose corrupted copies are in corruption/1 to /5

    @property
    def unknown(self) -> tuple[str, ...]:
        return (*self.near, *self.far)

    def outputs(self, scores: GateScores, parts: Sequence[Part]) -> Outputs:
        """Build outputs that hold the confidences of a gate's scores, so that none is computed twice.

        The prediction is always class 0, and the label says whether it is correct (0), wrong (1) or unknown (-1).
        """
        labels = np.concatenate([self._labels(name, rows) for name, rows in parts])
        learned = {}
        for stored_as, score in zip(STORED_AS, scores, strict=True):
            if score is not None:
                learned[stored_as] = np.concatenate([self.conf[score][name][rows] for name, rows in parts])
        logits = np.tile([1.0, 0.0], (len(labels), 1))
        return Outputs(logits, labels, learned=learned)

    def _labels(self, name: str, rows: np.ndarray) -> np.ndarray:
        if name not in self.correct:
            return np.full(len(rows), -1)
        return np.where(self.correct[name][rows], 0, 1)

    def fit(self, scores: GateScores, parts: Sequence[Part], **promise: Any) -> Gate | None:
        """Fit a gate on these rows; None where the promise cannot be made."""
        id_score, ood_score = STORED_AS
        if scores[1] is None:
            ood_score = None
        try:
            return Gate.fit(self.outputs(scores, parts), id_score, ood_score, **promise)
        except Infeasible:
            return None

    def whole(self, name: str) -> Part:
        """Return a data set with all its rows."""
        return name, np.arange(len(self.conf["msp"][name]))

    def halves(self, name: str, seed: int) -> tuple[Part, Part]:
        """Split a set into a half that chooses and one that judges; the originals of corrupted images always judge."""
        generator = np.random.default_rng(seed)
        _, rows = self.whole(name)
        kept = rows[:0]
        if name == "test":
            kept = self.corrupted
        free = np.setdiff1d(rows, kept)
        order = np.concatenate([generator.permutation(free), kept])
        middle = len(rows) // 2
        return (name, np.sort(order[:middle])), (name, np.sort(order[middle:]))


def gate_name(scores: GateScores) -> str:
    """Name a gate by its scores."""
    first, second = scores
    if second is None:
        return first
    return f"{first} + {second}"


def open_classifier(network: Network, folder: Path) -> Classifier:
    """Fit every score of logits, features and head on the training set, and compute it once on every set."""
    announce(f"{network.name}: fitting and computing every score")
    run = Run.open(folder / network.name)
    bench = load(network.benchmark)
    sets = {name: load_outputs(run, name) for name in run.names() if name != "ood_val"}
    specs = tuple(dict.fromkeys([*computable_scores(list(sets.values())), *CHAINS]))
    chains = dict(zip(specs, fit_all(specs, sets["train"], val=sets["val"]), strict=True))
    conf: dict[str, dict[str, np.ndarray]] = {spec: {} for spec in specs}
    correct = {}
    for name, outputs in sets.items():
        if name == "train":
            continue
        is_corrupted = name.startswith("corruption/")
        if is_corrupted or name in ("val", "test"):
            correct[name] = outputs.correct
        wanted = [spec for spec in specs if not is_corrupted or spec in ("msp", *SECOND)]
        values = score_all([chains[spec] for spec in wanted], outputs)
        for spec, column in zip(wanted, values, strict=True):
            conf[spec][name] = column
    corrupted = np.flatnonzero(np.isin(run["test"].ids, run["corruption/1"].ids))
    classifier = Classifier(
        network.name, bench.classes, bench.names("near"), bench.names("far"), specs, conf, correct, corrupted
    )
    check_gate(classifier, sets)
    return classifier


def load_outputs(run: Run, name: str) -> Outputs:
    """Read logits, features and labels of one set; the labels of unknown inputs are -1."""
    outputs = run[name]
    labels = outputs.labels
    if run.roles[name] not in ("train", "val", "test", "shift"):
        labels = np.full(len(outputs), -1)
    return Outputs(outputs.logits, labels, outputs.features, run.head)


def check_gate(classifier: Classifier, sets: dict[str, Outputs]) -> None:
    """Check that stored confidences make the gate that outputs make."""
    unknown = classifier.unknown[0]
    parts = [classifier.whole("val"), classifier.whole(unknown)]
    stored = classifier.fit(("msp", "energy"), parts, ood_share=EVEN)
    direct = Gate.fit(Outputs.concat([sets["val"], sets[unknown]]), "msp", "energy", ood_share=EVEN)
    assert np.allclose(stored.taus(), direct.taus(), rtol=1e-9)
