"""Newer scores on features of a real ResNet-20: AUROC in percent that an independent computation gave."""

import os
from pathlib import Path

import numpy as np
import pytest

from twofold.metrics import auroc
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer

FILE = Path(os.environ.get("TWOFOLD_DATA", ".")) / "features_cifar10_resnet20.npz"
UNKNOWN = ("cifar100", "tin", "svhn", "textures")
EXPECTED = {  # right against wrong, then the test set against each unknown set
    "caref": (83.4, 83.3, 86.6, 96.4, 94.4),
    "cadref": (87.7, 86.5, 88.8, 96.4, 95.2),
    "nac": (55.3, 54.0, 59.0, 85.4, 80.6),
    "nac(alpha=1.0)": (87.7, 85.3, 84.4, 90.4, 89.4),
    "weiper": (85.0, 85.8, 87.5, 88.7, 88.9),
    "weiper(kind='kld')": (55.4, 55.4, 57.3, 64.4, 69.5),
    "grood": (86.7, 87.2, 88.2, 84.1, 87.4),
    "cfood": (77.7, 82.0, 84.4, 94.8, 93.5),
    "combood(of='penultimate')": (70.9, 79.0, 82.7, 98.1, 94.4),
    "optfs|energy": (87.7, 86.3, 88.7, 94.2, 93.8),
    "trust": (89.8, 84.9, 84.3, 88.5, 87.5),
    "graduncertainty": (87.5, 83.9, 86.3, 91.4, 87.0),
    "gradorth": (87.6, 84.2, 86.6, 92.3, 88.4),
    "joint_energy": (71.3, 77.2, 82.5, 74.4, 80.0),
    "mcm": (89.8, 87.5, 87.2, 83.9, 86.3),
}


@pytest.fixture(scope="module")
def sets():
    if not FILE.is_file():
        pytest.skip("needs features_cifar10_resnet20.npz in $TWOFOLD_DATA")
    held = np.load(FILE)
    head = Head(held["W"], held["b"])

    def outputs(name, rows, labels=None):
        features = held[f"{name}_features"][rows].astype(np.float64)
        return Outputs(head.logits(features), labels, features, head)

    fifth, first = slice(None, None, 5), slice(2000)
    train = outputs("id_train", fifth, held["id_train_labels"][fifth].astype(int))
    test = outputs("id_test", first, held["id_test_labels"][first].astype(int))
    return train, test, {name: outputs(f"ood_{name}", first) for name in UNKNOWN}


@pytest.mark.slow
@pytest.mark.parametrize("spec", EXPECTED)
def test_area_under_the_curve(sets, spec):
    train, test, unknown = sets
    chain = scorer(spec).fit(train)
    known = chain.score(test)
    areas = [auroc(test.correct, known)]
    for outputs in unknown.values():
        conf = np.concatenate([known, chain.score(outputs)])
        areas.append(auroc(np.arange(len(conf)) < len(known), conf))
    assert 100 * np.array(areas) == pytest.approx(EXPECTED[spec], abs=0.0501)
