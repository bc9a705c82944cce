"""A step of each recipe against as many plain steps as it has passes; memory layout, compilation; memory of SURE+.

    python benchmarks/training.py [--save]        (ten to fifteen minutes on two idle cores, most of it to compile)
    python benchmarks/training.py --layouts       (only memory layout, bf16 and compilation, ten minutes; nothing is saved)

A ResNet-20 for 32x32 images, batch 64, random images. The memory of a whole process is that of a ResNet-18 with
batch 128, as in the paper; each recipe has its own process, which this file starts with --memory NAME.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from unittest import mock

from script import announce

import numpy as np
import torch

from timing import best, finish, row
from twofold.nn import build
from twofold.nn.data import Images
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.models import parts
from twofold.nn.recipes import RECIPES
from twofold.nn.training import Settings, TrainingSetup, TrainingStep, prepare_training

NAMES = ("basic", "regmixup", "regpixmix", "crl", "augmix", "sam", "fsam", "ema", "sure", "sure_plus", "sure_plus_fast")
BATCH = 64
ZOO = ("resnet8_cifar", "resnet20_cifar", "vgg13", "resnet18_32")
FORMS = {
    "channels last in maps": {},
    "channels last in maps and weights": {"channels_last": True},
    "bf16": {"precision": "bf16"},
    "compiled": {"compiled": True},
    "bf16, compiled": {"precision": "bf16", "compiled": True},
}


def prepared(name, network="resnet20_cifar", batch=BATCH, **options):
    rng = np.random.default_rng(0)
    data = Images.of(rng.integers(0, 256, (256, 32, 32, 3), dtype=np.uint8), np.arange(256) % 10, name="random")
    made = RECIPES[name]
    model = build(network, 10, **made.options).train()
    setup = TrainingSetup(mixers=Mixers.fractals(200), **options)
    return prepare_training(made, model, data, Settings(epochs=1, batch=batch), setup)


def one(training):
    def step():
        made = TrainingStep(training, np.arange(training.settings.batch), 0, 0)
        training.update(made)
        made.finish()
        if training.average is not None:
            training.average.update(training.model)

    return step


def held(training):
    """Measure the most bytes of activations that one step saves for its backward passes at a time."""
    saved = most = 0

    def pack(tensor):
        nonlocal saved
        saved += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        step = TrainingStep(training, np.arange(BATCH), 0, 0)
        for terms in step.term_groups():
            step.loss(terms).backward()
            most, saved = max(most, saved), 0
    return most


def views(training, joined):
    """Compute loss and gradients of two views of a batch: one forward over both together, or one after the other."""
    batch = training.settings.batch
    x = torch.randn(2, batch, 3, 32, 32)
    y = torch.arange(batch) % 10

    def step():
        training.model.zero_grad()
        if joined:
            torch.nn.functional.cross_entropy(training.model(x.flatten(0, 1)), y.repeat(2)).backward()
        else:
            for view in x:
                torch.nn.functional.cross_entropy(training.model(view), y).backward()

    return step


def peak(name):
    """Measure the most megabytes in use by a process that takes two steps of a recipe."""
    ran = subprocess.run([sys.executable, __file__, "--memory", name], check=True, capture_output=True, text=True)
    return float(ran.stdout)


def use(name):
    step = one(prepared(name, "resnet18_32", 128))
    step()
    step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def layouts():
    """Steps of plain cross-entropy in several forms, each over one with channels first in memory; batch 128."""
    rows = []
    for network in ZOO:
        announce(f"forms of a step of {network}")
        torch.compiler.reset()  # its limit of compiled forms of one function counts all networks together
        plain = one(prepared("basic", network, 128))
        contenders = {"planes": with_planes(plain)}
        for form, options in FORMS.items():
            contenders[form] = one(prepared("basic", network, 128, **options))
        least = best(contenders, 5)
        for form in FORMS:
            ratio = least[form] / least["planes"]
            rows.append(row(network, f"step with {form} / with channels first", ratio, "x", "-"))
    return rows


def with_planes(step):
    """Take a step with the channels first in memory."""

    def run():
        with mock.patch.object(parts, "channels_last", lambda images: images):
            step()

    return run


def main():
    if "--layouts" in sys.argv:
        for r in layouts():
            print(f"{r['case']:<20} {r['quantity']:<64} {r['value']:>9} {r['unit']}")
        return None
    if "--memory" in sys.argv:
        return use(sys.argv[-1])
    announce("a step of each recipe")
    contenders = {name: prepared(name) for name in NAMES}
    least = best({name: one(training) for name, training in contenders.items()}, 9)
    rows = []
    for name, training in contenders.items():
        ratio = least[name] / (training.recipe.passes * least["basic"])
        rows.append(row(name, f"step / {training.recipe.passes} plain steps", ratio, "x", "<= 1.15"))
    ours = one(contenders["basic"])
    announce("memory layout")
    both = best({"ours": ours, "planes": with_planes(ours)}, 5)
    ratio = both["ours"] / both["planes"]
    rows.append(row("basic", "step / the same with channels first in memory", ratio, "x", "<= 1.0"))
    announce("compilation")
    faster = best({"compiled": one(prepared("basic", compiled=True)), "plain": ours}, 5)
    ratio = faster["compiled"] / faster["plain"]
    rows.append(row("basic", "step of the compiled network / plain step", ratio, "x", "<= 1.0"))
    announce("saved activations")
    activations = {name: held(contenders[name]) for name in ("basic", "sure_plus")}
    rows.append(
        row("sure_plus", "saved activations / basic", activations["sure_plus"] / activations["basic"], "x", "<= 2.2")
    )
    for training, label in (
        (contenders["basic"], "ResNet-20, 64"),
        (prepared("basic", "resnet18_32", 128), "ResNet-18, 128"),
    ):
        announce(f"two views, {label}")
        together = best({joined: views(training, joined) for joined in (True, False)}, 3)
        ratio = together[True] / together[False]
        rows.append(row("two views", f"one forward over both / one each, {label}", ratio, "x", "-"))
    announce("memory of a process")
    rows.append(
        row("sure_plus", "peak memory of the process / basic", peak("sure_plus") / peak("basic"), "x", "<= 2.2")
    )
    announce("layout, precision and compilation in the zoo")
    rows += layouts()
    return finish("training", rows)


if __name__ == "__main__":
    main()
