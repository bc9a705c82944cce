"""Extract the runs of five real classifiers once, for all benchmarks that judge them.

TWOFOLD_DATA=... python benchmarks/real_runs.py [--work FOLDER]        (about an hour on 2 cores, resumable)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from script import announce, data_folder, work_folder

from twofold import Run
from twofold.bench.catalogue import load
from twofold.cli.shared import progress
from twofold.nn.extraction import extract_all

WORK = "real-bench"
TRAINED_WITH = "unknown_detection_cifar"  # the statistics with which the CIFAR-100 networks were trained


@dataclass(frozen=True)
class Network:
    """Hold a classifier trained by others, and the benchmark whose data sets it runs over."""

    benchmark: str
    name: str
    weights: str
    model: str
    statistics: str
    recorded: Mapping[str, object] = field(default_factory=dict)  # beyond logits and features


NETWORKS = (
    Network(
        "cifar10-real",
        "cifar10-resnet20",
        "cifar10_resnet20",
        "resnet20_cifar",
        "imagenet",
        {"layers": "all", "odin": 0.0014},
    ),
    Network(
        "cifar100-real",
        "cifar100-resnet32",
        "cifar100_kd_resnet32",
        "resnet32_cifar_kd",
        TRAINED_WITH,
        {"layers": "all"},
    ),
    Network("cifar10-real", "cifar10-resnet56", "cifar10_resnet56", "resnet56_cifar", "imagenet"),
    Network("cifar100-real", "cifar100-resnet20", "cifar100_kd_resnet20", "resnet20_cifar_kd", TRAINED_WITH),
    Network("cifar100-real", "cifar100-resnet8", "cifar100_kd_resnet8", "resnet8_cifar_kd", TRAINED_WITH),
)
MAIN = NETWORKS[:2]  # those of the tables; all are in the maps


def extract(networks: Sequence[Network], work: Path) -> dict[str, Run]:
    """Open the runs of networks by name, and extract first what they lack."""
    data = data_folder("image_labels.npz", *(f"weights_{network.weights}.npz" for network in networks))
    runs = {}
    for network in networks:
        announce(f"outputs of {network.name}, extracted where they are missing")
        benchmark = load(network.benchmark)
        sets = [(one.spec(data), one.role, one.name) for one in benchmark.sets]
        with progress(rate=True) as bar:
            task = bar.add_task(network.name, total=None)
            runs[network.name] = extract_all(
                network.model,
                sets,
                work / "runs" / network.name,
                checkpoints=[f"{data}/weights_{network.weights}.npz"],
                normalise=network.statistics,
                classes=benchmark.classes,
                recipe="published",
                command=f"twofold bench extract {network.benchmark} {network.model}",
                begin=lambda label, rows: bar.reset(task, total=rows, description=f"{network.name}: {label}"),  # noqa: B023
                done=lambda rows: bar.advance(task, rows),  # noqa: B023
                **network.recorded,
            )
    return runs


def main() -> None:
    """Extract every run that is missing, and list them."""
    for name, run in extract(NETWORKS, work_folder(WORK)).items():
        print(f"{name}: {', '.join(run.names())}")


if __name__ == "__main__":
    main()
