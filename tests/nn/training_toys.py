"""A small training for tests: easy pictures, a small network, a few epochs."""

import numpy as np

from twofold.nn import build
from twofold.nn.data import Images
from twofold.nn.extraction import Prepare
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.recipes import recipe
from twofold.nn.training import Settings, train


def pictures(n=64, seed=0, classes=4):
    """Noise around one colour for each class: easy to learn."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    colours = np.random.default_rng(9).integers(30, 226, (classes, 1, 1, 3))
    pixels = np.clip(colours[labels] + 20 * rng.normal(size=(n, 32, 32, 3)), 0, 255).astype(np.uint8)
    return Images.of(pixels, labels, name="pictures")


MIXERS = Mixers(np.random.default_rng(0).integers(0, 256, (8, 36, 36, 3), dtype=np.uint8))
PREPARE = Prepare((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def network(name="basic"):
    return build("resnet8_cifar", 4, **recipe(name).options)


def run(name, out, model=None, epochs=2, **options):
    settings = Settings(epochs=epochs, batch=32, lr=0.02, **options)
    extra = {"outliers": pictures(40, seed=5)} if name in ("oe", "energy_finetune") else {}
    return train(
        recipe(name),
        model or network(name),
        pictures(),
        out,
        settings=settings,
        prepare=PREPARE,
        mixers=MIXERS,
        **extra,
    )
