"""Cells are made once, alike after a kill and in slices, each after what it starts from; missing data are named."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tiny_study import HEAD, SETS, SETTINGS, TEXT, changed, numbers  # noqa: E402

from twofold import Run, metrics, scorer  # noqa: E402
from twofold.bench.results import Results  # noqa: E402
from twofold.errors import InvalidInput, RunError  # noqa: E402
from twofold.nn import build  # noqa: E402
from twofold.nn.data import open as open_data  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402
from twofold.nn.models import load as load_model  # noqa: E402
from twofold.nn.recipes import RECIPES as RECIPES_BY_NAME  # noqa: E402
from twofold.nn.training import Settings, train  # noqa: E402
from twofold.study import estimate, finished, loads, opened, report, results, run, values  # noqa: E402
from twofold.study.folder import read_json  # noqa: E402


def test_results_are_those_of_the_outputs(whole):
    found = Results.open(whole)
    assert {row["run"] for row in found} == {"basic-s0", "basic-s1", "aurc-s0", "aurc-s1"}
    for name in ("basic-s0", "aurc-s1"):
        test = Run.open(whole / "runs" / name)["test"]
        (row,) = found.filter(run=name, metric="aurc", shift="test", score="msp", protocol="fd_shifts")
        assert row["value"] == pytest.approx(metrics.aurc(test.correct, scorer("msp").score(test)))
        assert (row["recipe"], row["seed"]) == (name[:-3], int(name[-1]))


def test_a_second_run_does_nothing(whole, study, root):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    assert run(study, whole, root=root).finished == ()
    after = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    changed = {path.name for path in after if before.get(path) != after[path]}
    assert changed <= {"study.json"}


def test_fine_tuning_starts_from_the_same_seed(whole, root, tmp_path):
    """The weights are those of a training by hand from the checkpoint of basic with that seed."""
    from safetensors.torch import load_file

    model = build("resnet8_cifar", 4)
    model.load_state_dict(load_file(whole / "training" / "basic-s1" / "weights.safetensors"))
    settings = Settings(epochs=2, batch=32, lr=0.02, seed=1)
    by_hand = train(
        RECIPES_BY_NAME["aurc_finetune"], model, open_data(f"npz:{root}/train.npz"), tmp_path, settings=settings
    )
    kept = load_file(whole / "training" / "aurc-s1" / "weights.safetensors")
    for key, value in by_hand.model.state_dict().items():
        assert torch.equal(value, kept[key]), key


def test_a_row_may_start_from_a_file_of_weights(whole, root, tmp_path):
    """A file that holds what another row learned gives what starting from that row gives."""
    shutil.copytree(root, tmp_path / "data")
    text = changed('checkpoint = "basic"', 'checkpoint = "{data}/start.npz"').replace("seeds = [0, 1]", "seeds = [1]")
    file = loads(text)
    assert [cell.name for cell in file.cells(["aurc"])] == ["aurc-s1"]  # no row is trained before it
    with pytest.raises(
        InvalidInput, match=r"1 input of the study cannot be opened:\n- .*start.npz, weights that aurc starts from"
    ):
        run(file, tmp_path / "out", only=["aurc"], root=tmp_path / "data")
    from safetensors.numpy import load_file

    np.savez(tmp_path / "data" / "start.npz", **load_file(whole / "training" / "basic-s1" / "weights.safetensors"))
    assert run(file, tmp_path / "out", only=["aurc"], root=tmp_path / "data").finished == ("aurc-s1",)
    kept, again = (load_file(x / "training" / "aurc-s1" / "weights.safetensors") for x in (whole, tmp_path / "out"))
    assert all(np.array_equal(kept[key], again[key]) for key in kept)
    assert "`{data}/start.npz`" in report(file, tmp_path / "out")


def test_a_row_that_only_looks_has_no_updates(root, tmp_path):
    """Batch-norm statistics of a file of weights re-estimated: its time is that of extraction."""
    text = changed('recipe = "basic"', 'recipe = "rebn"\ncheckpoint = "{data}/start.npz"')
    assert estimate(loads(text), tmp_path, root=root).minutes["basic-s0"] > 0
    assert loads(text).plan(loads(text).cells()[0], tmp_path, root=root).steps == 0


def test_the_time_of_a_row_with_a_new_head_is_estimated(root, tmp_path):
    """A few steps of a new network take as long, so the weights need not be there."""
    text = changed('recipe = "basic"', 'recipe = "basic"\ncheckpoint = "{data}/start.npz"\nnew_head = true')
    assert estimate(loads(text), tmp_path, root=root).minutes["basic-s0"] > 0


def test_other_settings_are_not_mixed_with_what_is_there(whole, root):
    before = (whole / "study.json").read_bytes()
    with pytest.raises(RunError, match=r"basic-s0 .* was trained with other settings"):
        run(loads(changed("lr = 0.02", "lr = 0.03")), whole, root=root)
    assert (whole / "study.json").read_bytes() == before, "a refused run leaves the folder to its study"


def test_a_new_score_costs_only_itself(whole, root, tmp_path):
    """Scores are no part of what a cell was trained by: the weights stay, the table grows."""
    copy = shutil.copytree(whole, tmp_path / "copy")
    weights = {path: path.stat().st_mtime_ns for path in copy.rglob("weights.safetensors")}
    more = loads(changed('scores = ["msp", "energy"]', 'scores = ["msp", "energy", "mls"]'))
    assert finished(more, copy) == ()
    assert len(run(more, copy, root=root).finished) == 4
    assert weights == {path: path.stat().st_mtime_ns for path in copy.rglob("weights.safetensors")}
    assert {row["score"] for row in Results.open(copy)} == {"msp", "energy", "mls"}
    (row,) = Results.open(copy).filter(run="basic-s1", metric="aurc", shift="test", score="mls", protocol="fd_shifts")
    test = Run.open(copy / "runs" / "basic-s1")["test"]
    assert row["value"] == pytest.approx(metrics.aurc(test.correct, np.asarray(test.logits).max(axis=1)))


def test_the_estimate_counts_what_is_left(whole, study, root, tmp_path):
    estimated = estimate(study, whole, root=root)
    spent = [read_json(whole / "judged" / c.name / "cell.json")["minutes"] for c in study.cells()]
    assert estimated.hours == pytest.approx(sum(spent) / 60)
    assert estimated.hours_left == 0
    fresh = estimate(study, tmp_path, root=root)
    assert fresh.finished == ()
    assert fresh.hours == fresh.hours_left > 0
    assert fresh.minutes["basic-s0"] == fresh.minutes["basic-s1"]  # a row is measured once


def test_a_slice_begins_no_cell_that_would_not_fit(study, root, tmp_path, monkeypatch):
    """By an estimate of six minutes a cell, seven minutes are enough for one."""
    monkeypatch.setattr("twofold.study.runner._measure_minutes", lambda *given: 6.0)
    made = []
    monkeypatch.setattr("twofold.study.runner._finish_cell", lambda study, cell, *given: made.append(cell.name))
    monkeypatch.setattr("twofold.study.runner.publish", lambda study, out: None)
    clock = iter(range(0, 3000, 120))  # two minutes from look to look
    monkeypatch.setattr("twofold.study.runner.time.monotonic", lambda: float(next(clock)))
    outcome = run(study, tmp_path, limit_minutes=9, root=root)
    assert outcome.finished == tuple(made) == ("basic-s0",)  # the second would start after 4 minutes
    assert outcome.left == ("aurc-s0", "basic-s1", "aurc-s1")
    with pytest.raises(InvalidInput, match=r"next cell, basic-s0, needs about 6\.0 minutes, more than the limit of 5"):
        run(study, tmp_path, limit_minutes=5, root=root)
    with pytest.raises(InvalidInput, match="limit_minutes"):
        run(study, tmp_path, limit_minutes=0, root=root)


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from twofold import study
place, calls = sys.argv[3], 0
def done(label, count, total):
    global calls
    calls += place in label
    if calls == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
study.run(study.load(sys.argv[1]), sys.argv[2], root=sys.argv[5], done=done)
"""


@pytest.mark.parametrize(
    ("place", "call"),
    [
        ("aurc-s0: training", 3),  # in the second epoch
        pytest.param("basic-s1: test", 1, marks=pytest.mark.slow),  # in extraction
        pytest.param("basic-s1: values", 2, marks=pytest.mark.slow),  # while judging
    ],
)
def test_killed_and_resumed_gives_the_same_results(whole, study, root, tmp_path, place, call):
    file = tmp_path / "tiny.toml"
    file.write_text(TEXT, encoding="utf-8")
    out = tmp_path / "out"
    shutil.copytree(whole / "training" / "basic-s0", out / "training" / "basic-s0")  # to save time
    command = [sys.executable, "-c", KILLED, str(file), str(out), place, str(call), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "basic-s0" in finished(study, out)
    assert len(finished(study, out)) < 4
    assert len(Results.open(out)) > 0  # what was finished is there
    run(study, out, root=root)
    assert numbers(out) == numbers(whole)
    kept, drawn = Results.open(whole).replicates, Results.open(out).replicates
    assert kept.keys() == drawn.keys()
    assert all(np.array_equal(kept[key], drawn[key], equal_nan=True) for key in kept)


ALL_KINDS = """
[[recipes]]
name = "basic"
recipe = "basic"
odin = 0.0014
scores = ["msp", "odin", "react|energy"]

[[recipes]]
name = "dropout"
recipe = "basic"
dropout = 0.2
passes = 3
scores = ["msp", "mc_msp"]

[[recipes]]
name = "ensemble"
recipe = "deep_ensemble(count=2)"
scores = ["mc_msp"]

[[recipes]]
name = "confidnet"
recipe = "confidnet"
checkpoint = "dropout"
dropout = 0.2
passes = 2
scores = ["confidnet", "mc('confidnet')"]

[[recipes]]
name = "gamblers"
recipe = ["gamblers(reward=2.2)", "gamblers(reward=3.0)"]
scores = ["gambler"]

[[recipes]]
name = "energy"
recipe = "energy_finetune"
checkpoint = "basic"
outliers = "npz:{data}/noise.npz"

[[tables]]
title = "All"
columns = [["aurc", "test", "fd_shifts"], ["accuracy", "test", "fd_shifts"]]
baseline = ["basic", "msp"]
"""


@pytest.mark.slow
def test_every_kind_of_row(root, tmp_path):
    """Dropout with passes, an ensemble, ODIN, a second stage, a choice on validation data, outliers."""
    study = loads(changed("seeds = [0, 1]", "seeds = [1]", HEAD) + SETS + SETTINGS + ALL_KINDS)
    outcome = run(study, tmp_path, root=root)
    assert outcome.finished[0] == "basic-s1"
    assert len(outcome.finished) == len(study.rows) == 7
    found = Results.open(tmp_path)
    assert not [row["reason"] for row in found if row["reason"]]
    both = Run.open(tmp_path / "runs" / "ensemble-s1")["test"]
    members = [tmp_path / "training" / "ensemble-s1" / f"member-{k}" / "weights.safetensors" for k in (0, 1)]
    test = open_data(f"npz:{root}/test.npz")
    probabilities = []
    for path in members:
        model = load_model("resnet8_cifar", classes=4, checkpoint=path)
        with torch.no_grad():
            probabilities.append(model(Prepare()(test.read(np.arange(len(test))))).softmax(dim=1).numpy())
    assert np.asarray(both.passes.mean_prob) == pytest.approx(np.mean(probabilities, axis=0), abs=1e-5)
    (chosen,) = {one.chosen for one in values(study, found) if one.row == "gamblers"}
    judged = found.filter(shift="validation", score="gambler", protocol="fd_shifts")
    assert chosen == min(judged, key=lambda row: row["value"])["recipe"]
    base = found.filter(recipe="basic", score="msp", metric="aurc", shift="test", protocol="fd_shifts").rows[0]["value"]
    own = found.filter(recipe="dropout", score="mc_msp", metric="aurc", shift="test", protocol="fd_shifts").rows[0]
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| dropout, mc_msp |"))
    assert r"| basic, react\|energy |" in page  # a bare | would end the cell
    assert line.endswith(f" {100 * (base - own['value']) / base:.2f} |")


def test_missing_data_are_said_before_anything_is_trained(study, root, tmp_path):
    poor = tmp_path / "poor"
    shutil.copytree(root, poor)
    (poor / "close.npz").unlink()
    (poor / "val.npz").unlink()
    with pytest.raises(
        InvalidInput, match=r"2 inputs of the study cannot be opened:\n- val: missing .* get it from here\n- close"
    ):
        run(study, tmp_path / "out", root=poor)
    assert not (tmp_path / "out" / "training").exists()


def test_missing_pictures_to_mix_in_are_said_too(root, tmp_path):
    """They are a folder of image files, not a data set."""
    text = changed('recipe = "basic"', 'recipe = "pixmix"\nmixers = "{data}/pictures"')
    shutil.copytree(root, tmp_path / "data")
    for words in ("no such folder", "it holds no image files"):
        with pytest.raises(InvalidInput, match=rf"1 input .* opened:\n- .*pictures that basic mixes in: {words}"):
            run(loads(text), tmp_path / "out", only=["basic"], root=tmp_path / "data")
        (tmp_path / "data" / "pictures").mkdir(exist_ok=True)
    assert not (tmp_path / "out" / "training").exists()


def test_published_forms_are_judged_without_training_again(whole, study, root, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    weights = {path: path.stat().st_mtime_ns for path in (folder / "training").rglob("*.safetensors")}
    run(replace(study, method="published"), folder, only=["basic"], seeds=[0], root=root)
    again = opened(folder)
    assert again.method == "published"
    assert finished(again, folder) == ("basic-s0",)
    rows = results(again, folder).rows
    assert {"ds_f1", "ds_f1_published", "aurc_id_published"} <= {row["metric"] for row in rows}
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
