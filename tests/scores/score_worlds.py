"""A small classifier with every field of its outputs, for tests against slow independent forms."""

import numpy as np

from twofold.outputs import Head, Outputs

CLASSES, WIDTH = 4, 7


def world(n=90, seed=0, classes=CLASSES, width=WIDTH):
    """Separable enough to be a classifier, with wrong answers; features are not negative."""
    rng = np.random.default_rng(seed)
    weight = np.random.default_rng(5).normal(size=(classes, width))
    labels = np.arange(n) % classes
    features = np.maximum(rng.normal(size=(n, width)) + 1.2 * weight[labels], 0.0)
    features[:, 0] += 0.1  # no row of zeros
    head = Head(weight, np.linspace(-0.3, 0.4, classes))
    moved = np.maximum(features + 0.2 * rng.normal(size=features.shape), -0.1)
    layers = {"penultimate/perturbed": moved}
    for name in ("relu1", "relu2"):
        values = rng.gamma(2.0, size=(n, 1)) + features[:, :1]
        layers |= {f"{name}/max": values, f"{name}/min": -values - rng.random((n, 1))}
    return Outputs(head.logits(features), labels, features, head, layers)


def arrays(outputs):
    """Features, logits, labels and predictions as plain arrays."""
    fields = (outputs.features, outputs.logits, outputs.labels, outputs.predictions)
    return [np.asarray(field) for field in fields]


def softmax(z):
    """The textbook form, row by row."""
    e = np.exp(z - z.max())
    return e / e.sum()
