"""Accuracy of the real checkpoints in twofold's own networks, on all 10,000 real test images.

    TWOFOLD_DATA=... python benchmarks/real_weights.py [--save]        (a few minutes)

The targets are what the provenance of the weights states or measured.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from script import announce, data_folder

from timing import finish, row
from twofold.nn import data as sets
from twofold.nn import extract, load
from twofold.nn.extraction import Prepare

IMAGENET, CIFAR100 = sets.STATISTICS["imagenet"], sets.STATISTICS["unknown_detection_cifar"]
CHECKPOINTS = {  # file: network, test set, statistics, accuracy in percent
    "cifar10_resnet20": ("resnet20_cifar", "cifar10_test", IMAGENET, 91.73),
    "cifar10_resnet56": ("resnet56_cifar", "cifar10_test", IMAGENET, 93.39),
    "cifar100_kd_resnet8": ("resnet8_cifar_kd", "cifar100_test", CIFAR100, 64.11),
    "cifar100_kd_resnet20": ("resnet20_cifar_kd", "cifar100_test", CIFAR100, 69.69),
    "cifar100_kd_resnet32": ("resnet32_cifar_kd", "cifar100_test", CIFAR100, 71.70),
}


def main():
    weights = [f"weights_{file}.npz" for file in CHECKPOINTS]
    data = data_folder("image_labels.npz", "cifar10_test.webp", "cifar100_test.webp", *weights)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for file, (network, test, statistics, stated) in CHECKPOINTS.items():
            announce(f"{file}: 10,000 images")
            model = load(network, checkpoint=f"{data}/weights_{file}.npz")
            images = sets.open(f"sheet:{data}/{test}.webp?labels={data}/image_labels.npz")
            prepare = Prepare(statistics.mean, statistics.std)
            run = extract(model, images, Path(folder) / file, name="test", role="test", prepare=prepare)
            rows.append(row(file, "accuracy, 10,000 images", 100 * run["test"].correct.mean(), "%", f"{stated:.2f}"))
    finish("real_weights", rows)


if __name__ == "__main__":
    main()
