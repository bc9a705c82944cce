"""Which scores should a gate use: gains over msp alone, regret on other unknown sets, and what recommend reaches.

    TWOFOLD_DATA=... python benchmarks/which_score.py [--work FOLDER] [--save]        (half an hour on 2 cores, resumable)

Seven real classifiers are judged: five of CIFAR (the runs of ``benchmarks/real_runs.py`` in the folder of --work, by
default real-bench, extracted first where they are missing), EfficientNet-Lite0 on ImageNet samples and a MiniLM on
CLINC150. Their training may have seen every training image, so that all choices are made on a fixed half of the test
rows and of each unknown set, and judged on the other half (where there is one unknown set only, ten such splits are
averaged). Scores have their default settings and learn from training rows. Known and unknown inputs weigh the same.
With --save the cells go to results/which_score*.csv, from which ``python benchmarks/findings.py`` writes the pages;
without it they stay in the folder of --work.

Rule of the default pair, written before the numbers. A pair replaces msp + energy as the default for what it needs
(logits alone; or features and training rows too) if all of these hold:

1. its mean F1 on unknown sets that did not choose its thresholds is higher than that of msp + energy, and the interval
   of the gain, simultaneous over all candidates (95 %, bootstrap over networks and sets), is above zero;
2. the interval of its gain over msp alone is above zero as well;
3. in no modality (small images, large images, text) is its mean regret against msp alone larger than that of
   msp + energy by more than 0.1 points of F1.

Of several such pairs the one with the largest mean gain is taken. Candidates are msp with any second score: a score of
wrong labels that is known to work stays in the pair.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from script import announce, data_folder, work_folder

import numpy as np

from real_runs import NETWORKS, WORK, Network, extract
from score_choice import CELLS, CHOICES, KEYS, RULES
from timing import RESULTS
from twofold import Run, metrics, scorer
from twofold.bench.catalogue import load
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.candidates import USUAL, computable_scores
from twofold.typing import Array, Mask

COMMAND = "python benchmarks/which_score.py --save"
CHAINS = ("react|energy", "dice|energy", "ash|energy", "scale|energy", "vra|energy", "lts|energy")
EVEN = 0.5  # share of unknown inputs, where a metric is told one
MOST = 4000  # rows of an unknown set that are used
SPLITS = 10  # into a half that chooses and a half that judges, of classifiers with one unknown set
Pair = tuple[str, str]


def main() -> None:
    """Judge every network that has no cells yet, then join the cells."""
    work = work_folder(WORK)
    parts = work / "which_score"
    parts.mkdir(parents=True, exist_ok=True)
    runs = extract(NETWORKS, work)
    for network in (*NETWORKS, "imagenet-efficientnet_lite0", "clinc150-minilm"):
        name = network if isinstance(network, str) else network.name
        if (parts / f"{name}.choices.csv").exists():
            continue
        announce(f"{name}: fitting and computing every score")
        judge(of_run(network, runs[name]) if isinstance(network, Network) else READERS[name](), parts)
    folder = RESULTS if "--save" in sys.argv else parts
    join([parts / f"{name}.cells.csv" for name in names()], folder / CELLS)
    join([parts / f"{name}.choices.csv" for name in names()], folder / CHOICES)
    print(folder / CELLS)


def judge(world: World, parts: Path) -> None:
    """Write the cells of one classifier."""
    announce(f"{world.name}: every pair of {len(world.conf)} scores on {len(world.unknown)} unknown sets")
    splits = range(SPLITS) if len(world.unknown) == 1 else [0]
    judged = [Judged.of(world, split) for split in splits]
    write_rows(parts / f"{world.name}.cells.csv", average([cells(one) for one in judged]))
    write_rows(parts / f"{world.name}.choices.csv", [row for one in judged for row in choices(one)])


def names() -> list[str]:
    """List the classifiers in the order of the tables."""
    return [*(network.name for network in NETWORKS), *READERS]


# --- the classifiers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class World:
    """Hold a classifier's confidences by score and set, and which test rows it has right."""

    name: str
    modality: str
    unknown: tuple[str, ...]
    conf: Mapping[str, Mapping[str, Array]]
    correct: Mask
    usual: tuple[str, ...]


def of_run(network: Network, run: Run) -> World:
    """Score a run of a CIFAR network."""
    bench = load(network.benchmark)
    unknown = (*bench.names("near"), *bench.names("far"))
    sets = {}
    for name in ("train", "val", "test", *unknown):
        held = run[name]
        labels = held.labels if name in ("train", "val", "test") else None
        rows = slice(None) if name in ("train", "val", "test") else slice(MOST)
        sets[name] = Outputs(held.logits[rows], labels, held.features[rows], run.head)
    return score(network.name, "small images", sets, unknown)


def of_imagenet() -> World:
    """Score EfficientNet-Lite0 on a sample of ImageNet and on textures; there are no training rows."""
    file = "features_imagenet_efficientnet_lite0.npz"
    held = np.load(data_folder(file) / file)
    test = Outputs(held["id_sample_logits"].astype(np.float32), held["id_sample_labels"].astype(np.int64))
    unknown = Outputs(held["ood_textures_logits"].astype(np.float32))
    return score("imagenet-efficientnet_lite0", "large images", {"test": test, "textures": unknown}, ("textures",))


def of_text() -> World:
    """Score a MiniLM on the queries of CLINC150."""
    file = "text/features_clinc150_minilm.npz"
    held = np.load(data_folder(file) / file)
    head = Head(held["W"], held["b"])
    sets = {}
    for name in ("train", "val", "test", "oos_test"):
        features = held[f"{name}_features"].astype(np.float32)
        labels = None if name == "oos_test" else held[f"{name}_labels"].astype(np.int64)
        sets[name] = Outputs(head.logits(features), labels, features, head)
    return score("clinc150-minilm", "text", sets, ("oos_test",))


READERS = {"imagenet-efficientnet_lite0": of_imagenet, "clinc150-minilm": of_text}


def score(name: str, modality: str, sets: Mapping[str, Outputs], unknown: tuple[str, ...]) -> World:
    """Compute every score that the outputs allow on the test set and the unknown sets."""
    judged = [sets["test"], *(sets[one] for one in unknown)]
    specs = computable_scores(judged)
    if "train" in sets:
        specs += CHAINS
    conf = {}
    for spec in specs:
        chain = scorer(spec)
        if not chain.ready and "train" not in sets:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = chain if chain.ready else chain.fit(sets["train"], val=sets["val"])
                conf[spec] = {one: fitted.score(sets[one]) for one in ("test", *unknown)}
        except InvalidInput as error:
            announce(f"{name}: no {spec}: {error}")
    usual = tuple(spec for spec in USUAL if spec in conf)
    return World(name, modality, unknown, conf, sets["test"].correct, usual)


# --- choosing on one half, judging on the other ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mixed:
    """Hold test rows and rows of one unknown set: which are correct, which known, and every confidence."""

    correct: Mask
    known: Mask
    conf: Mapping[str, Array]

    @classmethod
    def of(cls, world: World, unknown: str, half: int, split: int) -> Mixed:
        """Take one half of the test rows and of an unknown set."""
        test_rows = halves(len(world.correct), split)[half]
        unknown_rows = halves(len(world.conf["msp"][unknown]), split)[half]
        correct = np.concatenate([world.correct[test_rows], np.zeros(len(unknown_rows), dtype=bool)])
        known = np.arange(len(correct)) < len(test_rows)
        conf = {}
        for spec, own in world.conf.items():
            conf[spec] = np.concatenate([own["test"][test_rows], own[unknown][unknown_rows]])
        return cls(correct, known, conf)

    def best(self, pair: Pair) -> metrics.DoublePoint:
        """Find the thresholds of a pair with the best F1."""
        first, second = pair
        return metrics.ds_f1(self.correct, self.conf[first], self.conf[second], self.known, ood_share=EVEN)

    def area(self, pair: Pair) -> float:
        """Compute the DS-AURC of a pair."""
        first, second = pair
        return metrics.ds_aurc(self.correct, self.conf[first], self.conf[second], self.known, ood_share=EVEN)

    def f1(self, pair: Pair, tau_id: float, tau_ood: float) -> float:
        """Compute the F1 of a pair at given thresholds, with as many unknown inputs as known ones."""
        first, second = pair
        accepted = (self.conf[first] >= tau_id) & (self.conf[second] >= tau_ood)
        n_known = int(self.known.sum())
        weight = n_known / int((~self.known).sum())
        right = int((accepted & self.correct).sum())
        inside = int((accepted & self.known).sum())
        outside = weight * int((accepted & ~self.known).sum())
        return 2 * right / (inside + outside + n_known)


def halves(count: int, split: int) -> tuple[Array, Array]:
    """Split rows into a half that chooses and a half that judges, the same for every score."""
    order = np.random.default_rng(split).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])


@dataclass(frozen=True, eq=False)
class Judged:
    """Hold what every pair reaches: by choosing set its best F1 there, and its F1 on every judging set."""

    world: World
    split: int
    pairs: list[Pair]
    chosen: Array  # choosing set, pair: best F1 where the thresholds are chosen
    reached: Array  # choosing set, judging set, pair: F1 with those thresholds
    targets: list[Mixed]

    @classmethod
    def of(cls, world: World, split: int) -> Judged:
        """Try every score and every pair of scores, one way round."""
        specs = list(world.conf)
        pairs = [(spec, spec) for spec in specs] + list(combinations(specs, 2))
        targets = [Mixed.of(world, name, 1, split) for name in world.unknown]
        chosen = np.empty((len(targets), len(pairs)))
        reached = np.empty((len(targets), len(targets), len(pairs)))
        for i, name in enumerate(world.unknown):
            source = Mixed.of(world, name, 0, split)
            for k, pair in enumerate(pairs):
                point = source.best(pair)
                chosen[i, k] = point.value
                for j, target in enumerate(targets):
                    reached[i, j, k] = target.f1(pair, point.tau_id, point.tau_ood)
        return cls(world, split, pairs, chosen, reached, targets)

    def moves(self) -> Iterator[tuple[int, int]]:
        """Yield the sets that choose and judge: different ones, or the two halves of the only one."""
        count = len(self.targets)
        for i in range(count):
            for j in range(count):
                if i != j or count == 1:
                    yield i, j

    def kept(self) -> list[int]:
        """List the pairs in the table of cells: single scores, msp with each, and all pairs of the usual scores."""
        found = []
        for k, (first, second) in enumerate(self.pairs):
            both_usual = first in self.world.usual and second in self.world.usual
            if first == second or "msp" in (first, second) or both_usual:
                found.append(k)
        return found


def label(pair: Pair) -> str:
    """Name a pair, msp first; a score with itself by its name."""
    first, second = pair
    if first == second:
        return first
    if second == "msp":
        first, second = second, first
    return f"{first} + {second}"


def cells(judged: Judged) -> list[dict[str, str]]:
    """Write what each kept pair reaches: F1 at thresholds of another set, and both metrics with the best thresholds."""
    world = judged.world
    kept = judged.kept()
    rows = []
    for i, j in judged.moves():
        about = (world.name, world.modality, "f1", world.unknown[i], world.unknown[j])
        values = {label(judged.pairs[k]): f"{judged.reached[i, j, k]:.5f}" for k in kept}
        rows.append(dict(zip(KEYS, about, strict=True)) | values)
    for j, target in enumerate(judged.targets):
        for quantity in ("ds_f1", "ds_aurc"):
            values = {}
            for k in kept:
                pair = judged.pairs[k]
                value = target.best(pair).value if quantity == "ds_f1" else target.area(pair)
                values[label(pair)] = f"{value:.5f}"
            about = (world.name, world.modality, quantity, "", world.unknown[j])
            rows.append(dict(zip(KEYS, about, strict=True)) | values)
        rows += single_cells(world, world.unknown[j], target)
    known = targets_without_unknown(judged)
    values = {spec: f"{metrics.aurc(known.correct, conf):.5f}" for spec, conf in known.conf.items()}
    rows.append(dict(zip(KEYS, (world.name, world.modality, "aurc", "", "test"), strict=True)) | values)
    return rows


def single_cells(world: World, name: str, target: Mixed) -> Iterator[dict[str, str]]:
    """Write how each score alone ranks failures among test rows and unknown ones, and known above unknown rows."""
    right_or_unknown = target.correct | ~target.known
    found: dict[str, dict[str, str]] = {"aurc": {}, "auroc_ood": {}, "auroc_ood of correct predictions": {}}
    for spec, conf in target.conf.items():
        right = metrics.auroc(target.known[right_or_unknown], conf[right_or_unknown])
        found["aurc"][spec] = f"{metrics.aurc(target.correct, conf):.5f}"
        found["auroc_ood"][spec] = f"{metrics.auroc(target.known, conf):.5f}"
        found["auroc_ood of correct predictions"][spec] = f"{right:.5f}"
    for quantity, values in found.items():
        yield dict(zip(KEYS, (world.name, world.modality, quantity, "", name), strict=True)) | values


def targets_without_unknown(judged: Judged) -> Mixed:
    """Take the test rows that judge."""
    target = judged.targets[0]
    conf = {spec: values[target.known] for spec, values in target.conf.items()}
    return Mixed(target.correct[target.known], target.known[target.known], conf)


def average(tables: list[list[dict[str, str]]]) -> list[dict[str, str]]:
    """Average tables of the same cells."""
    rows = []
    for same in zip(*tables, strict=True):
        row = {key: same[0][key] for key in KEYS}
        for column in same[0]:
            if column not in KEYS and same[0][column]:
                row[column] = f"{np.mean([float(one[column]) for one in same]):.5f}"
        rows.append(row)
    return rows


def choices(judged: Judged) -> list[dict[str, str]]:
    """Write which pair each rule takes on a choosing set, and what it reaches on the others."""
    world = judged.world
    usual = [k for k, pair in enumerate(judged.pairs) if set(pair) <= set(world.usual)]
    everything = list(range(len(judged.pairs)))
    rows = []
    for i, j in judged.moves():
        taken = {
            RULES[0]: max(usual, key=lambda k: judged.chosen[i, k]),
            RULES[1]: max(everything, key=lambda k: judged.chosen[i, k]),
            RULES[2]: max(everything, key=lambda k: judged.reached[i, j, k]),
        }
        for rule, k in taken.items():
            target = judged.targets[j]
            rows.append(
                {
                    "network": world.name,
                    "modality": world.modality,
                    "split": str(judged.split),
                    "chosen_on": world.unknown[i],
                    "judged_on": world.unknown[j],
                    "rule": rule,
                    "pair": label(judged.pairs[k]),
                    "f1": f"{judged.reached[i, j, k]:.5f}",
                    "ds_f1": f"{target.best(judged.pairs[k]).value:.5f}",
                    "ds_aurc": f"{target.area(judged.pairs[k]):.5f}",
                }
            )
    return rows


# --- files ----------------------------------------------------------------------------------------------------------


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Write a table with every column that a row has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def join(parts: list[Path], path: Path) -> None:
    """Join the tables of the networks, and add the command."""
    rows = []
    for part in parts:
        with part.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                rows.append({**row, "command": COMMAND})
    write_rows(path, rows)


if __name__ == "__main__":
    main()
