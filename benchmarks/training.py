"""A step of each recipe against as many plain steps as it has passes, and the memory of SURE+.

    python benchmarks/training.py [--save]        (a few minutes; needs torch)

A ResNet-20 for 32x32 images, batch 64, random images.
"""

from __future__ import annotations

import numpy as np
import torch

from timing import best, finish, row
from twofold.nn import build
from twofold.nn.data import Images
from twofold.nn.parts.fractals import Mixers
from twofold.nn.recipes import RECIPES
from twofold.nn.training import Settings, Step, Training

NAMES = ("basic", "regmixup", "regpixmix", "crl", "augmix", "sam", "fsam", "ema", "sure", "sure_plus")
BATCH = 64


def trainings():
    rng = np.random.default_rng(0)
    data = Images.of(rng.integers(0, 256, (256, 32, 32, 3), dtype=np.uint8), np.arange(256) % 10, name="random")
    mixers = Mixers.fractals(200)
    for name in NAMES:
        made = RECIPES[name]
        model = build("resnet20_cifar", 10, **made.options).train()
        yield name, Training(made, model, data, Settings(epochs=1, batch=BATCH), mixers=mixers)


def one(training):
    def step():
        made = Step(training, np.arange(BATCH), 0, 0)
        training._move(made)
        made.finish()
        if training.average is not None:
            training.average.update(training.model)

    return step


def held(training):
    """Most bytes of activations that one step saves for its backward passes at a time."""
    saved = most = 0

    def pack(tensor):
        nonlocal saved
        saved += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        for loss in Step(training, np.arange(BATCH), 0, 0).losses():
            loss.backward()
            most, saved = max(most, saved), 0
    return most


def main():
    contenders = dict(trainings())
    least = best({name: one(training) for name, training in contenders.items()}, 3)
    rows = []
    for name, training in contenders.items():
        ratio = least[name] / (training.recipe.passes * least["basic"])
        rows.append(row(name, f"step / {training.recipe.passes} plain steps", ratio, "x", "<= 1.15"))
    activations = {name: held(contenders[name]) for name in ("basic", "sure_plus")}
    rows.append(
        row("sure_plus", "saved activations / basic", activations["sure_plus"] / activations["basic"], "x", "<= 2.2")
    )
    finish("training", rows)


if __name__ == "__main__":
    main()
