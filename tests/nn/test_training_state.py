"""The files of a training: no damaged, forged or foreign state is resumed from, and each says why in one line."""

import csv
import json
import math
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from safetensors import safe_open  # noqa: E402
from safetensors.torch import save, save_file  # noqa: E402
from training_toys import network, run  # noqa: E402

from twofold.errors import InvalidInput, RunError  # noqa: E402
from twofold.nn import build  # noqa: E402
from twofold.nn.models.checkpoint import read_parameters, seal_header  # noqa: E402
from twofold.nn.training.state import load_weights, read_tensors, write_history, write_tensors  # noqa: E402


@pytest.mark.parametrize("name", ["state.safetensors", "weights.safetensors"])
def test_no_flipped_bit_of_what_training_wrote_is_read(tmp_path, name):
    run("basic", tmp_path / "run")
    path = tmp_path / "run" / name
    raw = path.read_bytes()
    refused = 0
    for place in np.random.default_rng(0).choice(8 * len(raw), 100, replace=False).tolist():
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="delete it to start again"):
            read_tensors(path)
        try:  # as a checkpoint, too
            read_parameters(path)
        except InvalidInput:
            refused += 1
    assert refused == 100
    path.write_bytes(raw)
    tensors, _ = read_tensors(path)
    save_file(tensors, path, metadata={"twofold": "{}"})
    with pytest.raises(RunError, match="has no digest, as an older format had none; delete it to start again"):
        read_tensors(path)


# Forged states: the digest fits, the content does not. EMA, F-SAM and CRL have counters and tensors of their own.

RECIPES = {"basic": "basic", "sure_plus": "sure_plus", "crl": "crl", "devries": "devries"}


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The state of two epochs of each recipe."""
    folder = tmp_path_factory.mktemp("states")
    for name in RECIPES:
        run(name, folder / name)
    return {name: read_tensors(folder / name / "state.safetensors") for name in RECIPES}


def entry(skeleton, *keys):
    """The pair [key, value] of a nested state."""
    for key in keys[:-1]:
        skeleton = next(value for name, value in skeleton["items"] if name == key)
    return next(pair for pair in skeleton["items"] if pair[0] == keys[-1])


def forge(change):
    """A forgery that edits the skeleton of the nested state."""

    def edit(tensors, metadata):
        change(metadata["state"], tensors)

    return edit


def drop(*keys):
    def change(skeleton, tensors):
        for key in keys[:-1]:
            skeleton = next(value for name, value in skeleton["items"] if name == key)
        skeleton["items"] = [pair for pair in skeleton["items"] if pair[0] != keys[-1]]

    return forge(change)


def put(value, *keys):
    def change(skeleton, tensors):
        entry(skeleton, *keys)[1] = {"value": value}

    return forge(change)


def reshape(*keys, dtype=None):
    """Another shape, or type, of a tensor."""

    def change(skeleton, tensors):
        number = str(entry(skeleton, *keys)[1]["tensor"])
        tensors[number] = torch.zeros(3, 1, 4) if dtype is None else tensors[number].to(dtype)

    return forge(change)


def spoil(*keys):
    """A tensor of NaN."""

    def change(skeleton, tensors):
        number = str(entry(skeleton, *keys)[1]["tensor"])
        tensors[number] = torch.full_like(tensors[number], math.nan)

    return forge(change)


def meta(**values):
    return lambda tensors, metadata: metadata.update(values)


def without(key):
    return lambda tensors, metadata: metadata.pop(key)


def row(**values):
    return lambda tensors, metadata: metadata["history"][1].update(values)


WEIGHT, MOMENTUM = "linear.weight", ("state", 0, "momentum_buffer")
FORGERIES = {
    "no state": ("basic", without("state")),
    "no epoch": ("basic", without("epoch")),
    "no history": ("basic", without("history")),
    "no best value": ("basic", without("best")),
    "no rows": ("basic", without("rows")),
    "epoch zero": ("basic", meta(epoch=0)),
    "epoch beyond the end": ("basic", meta(epoch=3)),
    "epoch not a number": ("basic", meta(epoch=math.nan)),
    "epoch true": ("basic", meta(epoch=True)),
    "epoch a text": ("basic", meta(epoch="2")),
    "best not a number": ("basic", meta(best=math.nan)),
    "best out of reach": ("basic", meta(best=math.inf)),
    "history too short": ("basic", meta(history=[])),
    "history a text": ("basic", meta(history="ab")),
    "history of another epoch": ("basic", row(epoch=7)),
    "loss not a number": ("basic", row(loss=math.nan)),
    "loss a text": ("basic", row(loss="0.5")),
    "state a list": ("basic", meta(state={"list": []})),
    "state a number": ("basic", meta(state=7)),
    "state of unknown kind": ("basic", meta(state={"pickle": "os.system"})),
    "tensor that is not there": ("basic", meta(state={"items": [["model", {"tensor": 99999}]]})),
    "no model": ("basic", drop("model")),
    "no optimiser": ("basic", drop("optimiser")),
    "no memory": ("crl", drop("memory")),
    "a weight missing": ("basic", drop("model", WEIGHT)),
    "a weight of another shape": ("basic", reshape("model", WEIGHT)),
    "a weight of another type": ("basic", reshape("model", WEIGHT, dtype=torch.float64)),
    "a weight that is a number": ("basic", put(0.0, "model", WEIGHT)),
    "momentum of another shape": ("basic", reshape("optimiser", *MOMENTUM)),
    "momentum not a number": ("basic", spoil("optimiser", *MOMENTUM)),
    "no groups of parameters": ("basic", drop("optimiser", "param_groups")),
    "groups that are a number": ("basic", put(3, "optimiser", "param_groups")),
    "no average": ("sure_plus", put(None, "average")),
    "updates of the average not a number": ("sure_plus", put(math.nan, "average", "updates")),
    "updates below zero": ("sure_plus", put(-1, "average", "updates")),
    "updates beyond the end": ("sure_plus", put(10**9, "average", "updates")),
    "average of another shape": ("sure_plus", reshape("average", "model", WEIGHT)),
    "no optimiser in the wrapper": ("sure_plus", drop("optimiser", "optimizer")),
    "no means of gradients": ("sure_plus", drop("optimiser", "means")),
    "a mean of another shape": ("sure_plus", reshape("optimiser", "means", 0)),
    "a mean not a number": ("sure_plus", spoil("optimiser", "means", 0)),
    "no record of correctness": ("crl", drop("memory", "correctness")),
    "record of another length": ("crl", reshape("memory", "correctness", "counts")),
    "record of another type": ("crl", reshape("memory", "correctness", "counts", dtype=torch.float32)),
    "record a number": ("crl", put(1, "memory", "correctness")),
    "price not a number": ("devries", put(math.nan, "memory", "budget", "weight")),
    "price a text": ("devries", put("1", "memory", "budget", "weight")),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_state_is_refused_in_one_line(states, tmp_path, forgery):
    name, edit = FORGERIES[forgery]
    tensors, metadata = states[name]
    tensors, metadata = dict(tensors), json.loads(json.dumps(metadata))
    edit(tensors, metadata)
    folder = tmp_path / "run"
    folder.mkdir()
    # one epoch of two, so that something is left to resume
    if metadata.get("epoch") == 2 and len(metadata.get("history", ())) == 2 and forgery.startswith(("record", "price")):
        metadata["epoch"], metadata["history"] = 1, metadata["history"][:1]
    write_tensors(folder / "state.safetensors", tensors, metadata)
    with pytest.raises(
        RunError, match=r"does not hold the state of this training.*; delete it to start again"
    ) as caught:
        run(name, folder)
    assert "\n" not in str(caught.value)
    assert str(folder / "state.safetensors") in str(caught.value)


def test_other_hyper_parameters_of_the_optimiser_are_refused(states, tmp_path):
    tensors, metadata = states["basic"]
    metadata = json.loads(json.dumps(metadata))
    groups = entry(metadata["state"], "optimiser", "param_groups")[1]["list"]
    entry(groups[0], "weight_decay")[1] = {"value": 100.0}
    (tmp_path / "run").mkdir()
    write_tensors(tmp_path / "run" / "state.safetensors", tensors, metadata)
    with pytest.raises(RunError, match="the optimiser has another weight_decay"):
        run("basic", tmp_path / "run")


def test_deep_json_is_refused(states, tmp_path):
    tensors, metadata = states["basic"]
    path = tmp_path / "run" / "state.safetensors"
    path.parent.mkdir()
    texts = ["[" * 100_000 + "]" * 100_000]
    for depth in (100, 300, 450, 5000):  # what JSON can hold, and what recursion through a state cannot
        nested = '{"list": [' * depth + '{"value": 0}' + "]}" * depth
        texts.append(json.dumps({**metadata, "state": "NESTED"}).replace('"NESTED"', nested))
    for text in texts:
        path.write_bytes(save(tensors, metadata=seal_header(tensors, text)))
        with pytest.raises(RunError, match="delete it to start again") as caught:
            run("basic", path.parent)
        assert "\n" not in str(caught.value)


def test_a_foreign_digest_is_refused(states, tmp_path):
    for name in ("basic", "crl"):
        (tmp_path / name).mkdir()
        write_tensors(tmp_path / name / "state.safetensors", *states[name])
    with safe_open(tmp_path / "crl" / "state.safetensors", framework="pt") as file:
        foreign = file.metadata()
    path = tmp_path / "basic" / "state.safetensors"
    path.write_bytes(save(states["basic"][0], metadata=foreign))
    with pytest.raises(RunError, match="its SHA-256 is not the one in its header; delete it to start again"):
        run("basic", path.parent)


def test_a_state_of_another_training_says_what_differs(states, tmp_path):
    (tmp_path / "run").mkdir()
    write_tensors(tmp_path / "run" / "state.safetensors", *states["basic"])
    with pytest.raises(RunError, match=r"holds another training \(recipe differs\)"):
        run("mixup", tmp_path / "run")
    with pytest.raises(RunError, match=r"holds another training \(settings differs\)"):
        run("basic", tmp_path / "run", epochs=3)
    with pytest.raises(RunError, match=r"linear.weight is not a tensor of shape \(5, 64\)"):
        run("basic", tmp_path / "run", build("resnet8_cifar", 5))


def test_weights_that_are_missing_or_of_another_network(tmp_path):
    run("basic", tmp_path / "run")
    weights = tmp_path / "run" / "weights.safetensors"
    with pytest.raises(RunError, match="holds the weights of another network"):
        load_weights(build("resnet8_cifar", 5), weights)
    weights.unlink()
    with pytest.raises(RunError, match=r"weights\.safetensors is missing; delete its folder to train again"):
        run("basic", tmp_path / "run")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("make", [os.mkdir, getattr(os, "mkfifo", None)], ids=["folder", "pipe"])
def test_a_state_that_is_not_a_file_is_refused(tmp_path, make):
    make(tmp_path / "state.safetensors")
    with pytest.raises(RunError, match="is not a regular file"):
        run("basic", tmp_path)


def test_a_history_whose_columns_changed_is_written(tmp_path):
    """Validation data may be given to a part of the epochs only."""
    write_history(tmp_path / "metrics.csv", [{"epoch": 1, "loss": 0.5, "accuracy": 1.0}, {"epoch": 2, "loss": 0.25}])
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[1] == {"epoch": "2", "loss": "0.25", "accuracy": ""}


def test_a_whole_state_resumes(states, tmp_path):
    (tmp_path / "run").mkdir()
    tensors, metadata = states["crl"]
    shorter = {**metadata, "epoch": 1, "history": metadata["history"][:1]}
    write_tensors(tmp_path / "run" / "state.safetensors", tensors, shorter)
    assert len(run("crl", tmp_path / "run", network("crl")).history) == 2
