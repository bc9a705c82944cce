"""Trainings of a tiny smooth network without batch norm, in one process or several; run as a script under torchrun."""

import os
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # training_toys, in processes of their own

from training_toys import MIXERS, PREPARE, pictures

from twofold.nn.models.parts import Network, Options, dropout
from twofold.nn.recipes import RECIPES, Recipe, recipe
from twofold.nn.training import Settings, train

CUT = "sure_plus"  # the recipe of the training that is cut short
ACCUMULATED = ("regmixup", "crl", "aurc_finetune", "devries", "oe", "mc_dropout", "sure", "sure_plus", "cider")


class Tiny(Network):
    """One convolution and one hidden layer, smooth, without batch norm."""

    def __init__(self, options):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 5, stride=4)
        self.hidden = nn.Linear(4 * 49, 8)
        self.drop = dropout(options.dropout)
        self.finish(8, options)

    def body(self, x):
        """Compute the feature."""
        maps = torch.tanh(self.conv(x))
        return self.drop(torch.tanh(self.hidden(self.drop(maps).flatten(1))))


def tiny(made: Recipe) -> Tiny:
    torch.manual_seed(0)
    options = dict(made.options)
    return Tiny(Options(4, **options))


def run(name, out, *, done=None, setup=None, **changes):
    """Train the tiny network for four steps by a recipe."""
    made = recipe(name)
    settings = Settings(**{"epochs": 2, "batch": 16, "lr": 0.05, "gather": True, **changes})
    extra = {"outliers": pictures(40, seed=5)} if made.outliers_per_image else {}
    if done is not None:
        extra["done"] = done
    return train(
        made,
        tiny(made),
        pictures(32),
        out,
        settings=settings,
        prepare=PREPARE,
        mixers=MIXERS,
        **extra,
        **(setup or {}),
    )


class Stop(Exception):
    """End a training in the middle."""


def stop_at(step):
    def done(values):
        if values.get("step") == step:
            raise Stop

    return done


def die_at(step):
    """Kill the second process, as the system does when memory runs out."""

    def done(values):
        if values.get("step") == step and os.environ.get("RANK") == "1":
            os.kill(os.getpid(), 9)

    return done


def everything(out):
    """Train by every recipe; accumulate; stop in the third step and resume; last, die in the third step."""
    for name in RECIPES:
        run(name, out / name)
    for name in ACCUMULATED:
        run(name, out / f"{name}-accumulated", accumulate=2)
    run("regmixup", out / "apart", gather=False)
    run("sure_plus", out / "clipped", clip_norm=0.05)
    try:
        run(CUT, out / "stopped", done=stop_at(3))
    except Stop:
        run(CUT, out / "stopped")
    run(CUT, out / "killed", done=die_at(3))


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    if sys.argv[1] == "everything":
        everything(folder)
    else:
        run(CUT, folder / "killed")
