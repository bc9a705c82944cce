"""Extraction against a bare forward loop, MC dropout at the head and inside, and forty scores from one pass.

    python benchmarks/extraction.py [--save]        (a few minutes; needs torch)

A ResNet-20 for 32x32 images with random weights; 4,096 random images unless said otherwise.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from script import announce

import numpy as np
import torch
from torch.utils.data import TensorDataset

from scores import FORTY
from timing import best, finish, row
from twofold.nn.extraction import extract
from twofold.nn.models import build
from twofold.scores import fit_all, score_all

ROWS, BATCH = 4096, 256


def images(rows, seed=0):
    g = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.rand((rows, 3, 32, 32), generator=g), torch.arange(rows) % 10)


def loop(model, data):
    """Run what one would write by hand: the same batches, logits kept."""
    x = data.tensors[0]
    with torch.no_grad():
        return torch.cat([model(x[i : i + BATCH]) for i in range(0, len(x), BATCH)])


def overhead(folder):
    announce("extraction against a bare loop")
    model, data = build("resnet20_cifar", 10).eval(), images(ROWS)

    def ours():
        shutil.rmtree(folder / "run", ignore_errors=True)
        extract(model, data, folder / "run", name="test", role="test", batch=BATCH)

    least = best({"ours": ours, "loop": lambda: loop(model, data)}, 5)
    return row(
        "ResNet-20, 4,096 images", "extraction / bare forward loop", least["ours"] / least["loop"], "x", "<= 1.10"
    )


def passes(folder):
    announce("dropout at the head")
    data = images(1024)

    class Dropped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = build("resnet20_cifar", 10)
            self.drop, self.last = torch.nn.Dropout(0.5), torch.nn.Linear(64, 10)
            self.body.linear = torch.nn.Identity()

        def forward(self, x):
            return self.last(self.drop(self.body(x)))

    model = Dropped().eval()

    def run(count):
        shutil.rmtree(folder / "mc", ignore_errors=True)
        extract(model, data, folder / "mc", name="test", role="test", batch=BATCH, passes=count)

    least = best({"50 passes": lambda: run(50), "one": lambda: run(0)}, 3)
    return row("dropout at the head", "50 passes / one pass", least["50 passes"] / least["one"], "x", "<= 1.5")


def inside(folder):
    """Time ten passes of a network with dropout in its blocks, against a loop that switches PyTorch's dropout on."""
    announce("dropout in every block")
    data = images(1024)
    model = build("resnet8_cifar", 10, dropout=0.1).eval()

    def ours():
        shutil.rmtree(folder / "inside", ignore_errors=True)
        extract(model, data, folder / "inside", name="test", role="test", batch=BATCH, passes=10)

    def switched():
        loop(model, data)
        for module in model.modules():
            module.train(isinstance(module, torch.nn.Dropout))
        for _ in range(10):
            loop(model, data)
        model.eval()

    least = best({"ours": ours, "loop": switched}, 3)
    return row(
        "dropout in every block", "10 passes / the same by a bare loop", least["ours"] / least["loop"], "x", "<= 0.8"
    )


def forty(folder):
    """Time five sets once each and forty scores from arrays, against one pass over the five sets for every score."""
    model = build("resnet20_cifar", 10).eval()
    announce("forty scores on five sets")
    sets = {"train": 2048, "test": 1024, "near": 1024, "far": 1024, "noise": 1024}
    begin = time.perf_counter()
    for i, (name, rows) in enumerate(sets.items()):
        role = "far" if name == "noise" else name
        run = extract(model, images(rows, i), folder / "forty", name=name, role=role, batch=BATCH)
    extracted = time.perf_counter() - begin
    truth = np.asarray(run["train"].predictions).copy()
    truth[::7] = (truth[::7] + 1) % 10
    train = run["train"].replace(labels=truth)
    begin = time.perf_counter()
    chains = fit_all([s for s in FORTY if "class_avg" not in s], train)
    for name in sets:
        score_all(chains, run[name])
    scored = time.perf_counter() - begin
    ratio = len(FORTY) * extracted / (extracted + scored)
    return row("40 scores, five sets", "one pass per score / one pass in all", ratio, "x", ">= 10")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        finish("extraction", [overhead(folder), passes(folder), inside(folder), forty(folder)])


if __name__ == "__main__":
    main()
