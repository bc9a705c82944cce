"""The OOD score that wrap takes without unknown data, against the other one, on real unknown sets.

    TWOFOLD_DATA=... python benchmarks/wrap_choice.py [--work FOLDER] [--save]        (15 minutes on 2 cores, resumable)

Without unknown inputs ``twofold.wrap`` chooses between energy and knn by training rows that are moved far away. Here the
choice is made for seven real classifiers, and both scores are judged on unknown sets that had no part in it: five CIFAR
networks (outputs are extracted into the folder of --work, by default wrap-choice), a MiniLM on CLINC150, and
EfficientNet-Lite0 on ImageNet samples, whose training images are not here: 500 of the 1,000 samples stand in for them.

F1 is that of the gate with ``keep=0.95``, as wrap fits it from known inputs alone, on as many unknown inputs as known
ones. DS-F1 takes the best thresholds of the set itself, and AUROC has none. All are points from 0 to 100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from script import announce, data_folder, work_folder

import numpy as np

import twofold
from real_runs import NETWORKS, Network
from timing import finish, row
from twofold import Head, Outputs, metrics
from twofold.bench.catalogue import load
from twofold.nn.extraction import extract_all
from twofold.wrapping.choice import accept_far_rows

SCORES = ("energy", "knn")
ROWS = {"train": 5000, "val": 1000, "test": 2000}  # of a CIFAR network
UNKNOWN_ROWS = 1000  # of each of its unknown sets
EVEN = 0.5  # share of unknown inputs


@dataclass(frozen=True, eq=False)
class Classifier:
    """Hold the outputs of a real classifier on known sets and on unknown ones."""

    name: str
    inputs: str
    train: Outputs
    val: Outputs
    test: Outputs
    unknown: Mapping[str, Outputs]


def classifiers(work: Path) -> Iterator[Classifier]:
    """Read every classifier."""
    for network in NETWORKS:
        yield of_network(network, work)
    yield of_imagenet()
    yield of_text()


def of_network(network: Network, work: Path) -> Classifier:
    """Run a CIFAR network over a sample of each set, where its outputs are missing."""
    announce(f"outputs of {network.name}, extracted where they are missing")
    data = data_folder("image_labels.npz", f"weights_{network.weights}.npz")
    benchmark = load(network.benchmark)
    unknown = (*benchmark.names("near"), *benchmark.names("far"))
    sets = []
    for one in benchmark.sets:
        if one.name not in ROWS and one.name not in unknown:
            continue
        spec = one.spec(data)
        rows = ROWS.get(one.name, UNKNOWN_ROWS)
        if one.rows > rows:
            spec += f"&sample={rows}&seed=0"
        sets.append((spec, one.role, one.name))
    run = extract_all(
        network.model,
        sets,
        work / network.name,
        checkpoints=[f"{data}/weights_{network.weights}.npz"],
        normalise=network.statistics,
        classes=benchmark.classes,
    )
    known = {name: run[name].replace(head=run.head) for name in ROWS}
    others = {name: run[name].replace(head=run.head) for name in unknown}
    return Classifier(network.name, "small images", **known, unknown=others)


def of_imagenet() -> Classifier:
    """Read EfficientNet-Lite0 on a sample of ImageNet and on textures."""
    file = "features_imagenet_efficientnet_lite0.npz"
    held = np.load(data_folder(file) / file)
    head = Head(held["W"].astype(np.float32), held["b"].astype(np.float32))
    sample = outputs(held, "id_sample", head, held["id_sample_labels"])
    order = np.random.default_rng(0).permutation(len(sample))
    train, val, test = sample[order[:500]], sample[order[500:750]], sample[order[750:]]
    textures = outputs(held, "ood_textures", head, None)
    return Classifier("imagenet-efficientnet_lite0", "large images", train, val, test, {"textures": textures})


def of_text() -> Classifier:
    """Read a MiniLM on the queries of CLINC150."""
    file = "text/features_clinc150_minilm.npz"
    held = np.load(data_folder(file) / file)
    head = Head(held["W"], held["b"])
    known = {name: outputs(held, name, head, held[f"{name}_labels"]) for name in ROWS}
    others = {"oos_test": outputs(held, "oos_test", head, None)}
    return Classifier("clinc150-minilm", "texts", **known, unknown=others)


def outputs(held: Mapping[str, np.ndarray], name: str, head: Head, labels: np.ndarray | None) -> Outputs:
    """Make outputs of stored features, with the logits that the head gives them."""
    features = held[f"{name}_features"].astype(np.float32)
    return Outputs(head.logits(features), None if labels is None else labels.astype(np.int64), features, head)


def judge(one: Classifier) -> list[dict[str, str]]:
    """Measure both scores on every unknown set, and note which of them wrap takes."""
    head = one.val.head
    assert head is not None
    far = accept_far_rows(one.train, head)
    rows = [
        row(one.name, "moved rows that energy accepts", 100 * far.default, "%", "-"),
        row(one.name, "moved rows that knn accepts", 100 * far.nearest, "%", "-"),
        row(one.name, "wrap takes knn (1) or energy (0)", far.choose()[0] == "knn", "", "-"),
    ]
    found: dict[str, list[list[float]]] = {}
    for name in SCORES:
        gate = twofold.wrap(lambda x: x, train=one.train, val=one.val, id="msp", ood=name, keep=0.95).gate
        for place, unknown in one.unknown.items():
            for quantity, value in measure(gate, one.test, unknown).items():
                rows.append(row(f"{one.name}, {place}", f"{quantity}, msp + {name}", 100 * value, "points", "-"))
                found.setdefault(quantity, [[], []])[SCORES.index(name)].append(100 * value)
    for quantity, (energy, knn) in found.items():
        gains = np.array(knn) - np.array(energy)
        rows.append(row(one.name, f"{quantity}, mean gain of knn over energy", gains.mean(), "points", "-"))
        rows.append(row(one.name, f"{quantity}, unknown sets on which knn is ahead", (gains > 0).sum(), "sets", "-"))
        rows.append(row(one.name, f"{quantity}, unknown sets", len(gains), "sets", "-"))
    return rows


def measure(gate: twofold.Gate, test: Outputs, unknown: Outputs) -> dict[str, float]:
    """Measure a gate on known and unknown inputs of equal weight."""
    known, others = gate.decide(test), gate.decide(unknown)
    is_id = np.arange(len(test) + len(unknown)) < len(test)
    correct = np.concatenate([test.correct, np.zeros(len(unknown), dtype=bool)])
    conf_id = np.concatenate([known.conf_id, others.conf_id])
    conf_ood = np.concatenate([known.conf_ood, others.conf_ood])
    accepted, taken = known.verdict == "accept", others.verdict == "accept"
    right = float((accepted & test.correct).mean())
    return {
        "F1": 2 * right / (accepted.mean() + taken.mean() + 1),
        "DS-F1": metrics.ds_f1(correct, conf_id, conf_ood, is_id, ood_share=EVEN).value,
        "AUROC": metrics.auroc(is_id, conf_ood),
    }


def main() -> None:
    """Judge every classifier."""
    rows = []
    for one in classifiers(work_folder("wrap-choice")):
        rows += judge(one)
    finish("wrap_choice", rows)


if __name__ == "__main__":
    main()
