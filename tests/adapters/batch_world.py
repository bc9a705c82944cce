"""A small network, its gate and images, shared by the tests of adapters that run in batches."""

import numpy as np
import torch

from twofold import Outputs
from twofold.gate import Gate
from twofold.nn import Classifier, extract
from twofold.nn.data import Images

CHOICES = {"id": "msp", "ood": "energy"}


def network():
    """A convolution, a normalisation and a linear layer, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(24, 4),
    )
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return model.eval()


def pixels(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 8, 8, 3)).astype(np.uint8)


def extracted(folder, images, batch):
    run = extract(network(), Images.of(images), folder, name="images", role="far", batch=batch)
    return run["images"]


def fit_gate(outputs, **choices):
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(len(outputs)) < 0.6, outputs.logits.argmax(axis=1), rng.integers(-1, 4, len(outputs)))
    head = Classifier(network(), example=torch.zeros(1, 3, 8, 8)).head
    return Gate.fit(Outputs(outputs.logits, labels, outputs.features, head), **{**CHOICES, **choices})


def check_decision(columns, decision):
    assert np.array_equal(columns["prediction"], decision.labels)
    assert np.array_equal(columns["verdict"], decision.verdict)
    assert np.array_equal(columns["conf_id"], decision.conf_id)
    assert np.array_equal(columns["conf_ood"], decision.conf_ood)
