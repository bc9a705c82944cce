"""The tiny study that the tests of studies run: five sets of noise around colours, two rows, two seeds."""

import csv

ROWS = {"train": 64, "val": 24, "test": 40, "close": 24, "noise": 24}
ROLES = {"close": "near", "noise": "far"}
HEAD = """
name = "tiny"
title = "A tiny study"
source = "made here"
model = "resnet8_cifar"
seeds = [0, 1]
resamples = 20
classes = 4
protocols = ["joint", "fd_shifts"]
scores = ["msp", "energy"]
pairs = [["msp", "energy"]]
"""
SETS = "".join(
    f'[[sets]]\nname = "{name}"\nrole = "{ROLES.get(name, name)}"\ndata = "npz:{{data}}/{name}.npz"\nget = "here"\n'
    for name in ROWS
)
SETTINGS = """
[settings]
preset = "cifar"
epochs = 1
batch = 32
lr = 0.02
"""
RECIPES = """
[[recipes]]
name = "aurc"
recipe = "aurc_finetune"
checkpoint = "basic"
epochs = 2

[[recipes]]
name = "basic"
recipe = "basic"
"""
TABLES = """
[[tables]]
title = "Main"
columns = [["accuracy", "test", "fd_shifts", "msp"], ["aurc", "test", "fd_shifts", "msp"],
  ["ds_f1", "near", "joint", "msp + energy"]]
"""
TEXT = HEAD + SETS + SETTINGS + RECIPES + TABLES


def changed(old, new, text=TEXT):
    assert old in text
    return text.replace(old, new)


def numbers(folder):
    """The rows of results but for the command that made them."""
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return [{k: v for k, v in row.items() if k != "command"} for row in csv.DictReader(file)]
