"""Logits of a real network, where the test data are there."""

import os
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="module")
def resnet110():
    """ResNet-110 on CIFAR-10: 5,000 validation and 10,000 test rows."""
    folder = os.environ.get("TWOFOLD_DATA")
    if not folder:
        pytest.skip("TWOFOLD_DATA is not set; it names the folder with logits_cifar10_resnet110.npz")
    path = Path(folder) / "logits_cifar10_resnet110.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in TWOFOLD_DATA")
    with np.load(path, allow_pickle=False) as data:
        return {key: data[key] for key in data.files}
