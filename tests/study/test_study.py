"""Studies: every cell once, the same after a kill, in slices, with dependencies; one clear error for a bad file."""

import csv
import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from click.testing import CliRunner  # noqa: E402

from twofold import Run, metrics, scorer  # noqa: E402
from twofold.bench.results import Results  # noqa: E402
from twofold.cli.study import study_group  # noqa: E402
from twofold.errors import InvalidInput, RunError, UnknownName  # noqa: E402
from twofold.nn import build  # noqa: E402
from twofold.nn.data import open as open_data  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402
from twofold.nn.models import load as load_model  # noqa: E402
from twofold.nn.recipes import RECIPES as RECIPES_BY_NAME  # noqa: E402
from twofold.nn.training import Settings, train  # noqa: E402
from twofold.study import (  # noqa: E402
    document,
    estimate,
    finished,
    keep,
    load,
    loads,
    names,
    opened,
    report,
    results,
    run,
    table,
    values,
)
from twofold.study.folder import cell_digests, read_json  # noqa: E402

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


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Noise around one colour for each class, in npz files."""
    folder = tmp_path_factory.mktemp("data")
    colours = np.random.default_rng(9).integers(30, 226, (6, 1, 1, 3))
    for seed, (name, rows) in enumerate(ROWS.items()):
        kinds = np.arange(rows) % 4 if name not in ROLES else np.full(rows, 4 + (name == "noise"))
        noise = 40 * np.random.default_rng(seed).normal(size=(rows, 32, 32, 3))
        pixels = np.clip(colours[kinds] + noise, 0, 255).astype(np.uint8)
        np.savez(folder / f"{name}.npz", images=pixels, labels=kinds % 4)
    return folder


@pytest.fixture(scope="module")
def study():
    return loads(TEXT)


@pytest.fixture(scope="module")
def whole(root, study, tmp_path_factory):
    """The tiny study, run to its end in two slices."""
    out = tmp_path_factory.mktemp("whole")
    first = run(study, out, only=["basic"], seeds=[0], root=root)
    assert first.finished == ("basic-s0",)
    assert len(Results.open(out)) > 0
    rest = run(study, out, root=root)
    assert rest.finished == ("aurc-s0", "basic-s1", "aurc-s1")
    assert rest.left == ()
    return out


def numbers(folder):
    """The rows of results but for the command that made them."""
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return [{k: v for k, v in row.items() if k != "command"} for row in csv.DictReader(file)]


# --- the runner -----------------------------------------------------------------------------------------------------


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
        InvalidInput, match=r"1 data sets cannot be opened:\n- .*start.npz, weights that aurc starts from"
    ):
        run(file, tmp_path / "out", only=["aurc"], root=tmp_path / "data")
    from safetensors.numpy import load_file

    np.savez(tmp_path / "data" / "start.npz", **load_file(whole / "training" / "basic-s1" / "weights.safetensors"))
    assert run(file, tmp_path / "out", only=["aurc"], root=tmp_path / "data").finished == ("aurc-s1",)
    kept, again = (load_file(x / "training" / "aurc-s1" / "weights.safetensors") for x in (whole, tmp_path / "out"))
    assert all(np.array_equal(kept[key], again[key]) for key in kept)
    assert "`{data}/start.npz`" in report(file, tmp_path / "out")


def test_a_row_that_only_looks_has_no_updates(root, tmp_path):
    """Batch-norm statistics of a file of weights taken anew: its time is that of extraction."""
    text = changed('recipe = "basic"', 'recipe = "rebn"\ncheckpoint = "{data}/start.npz"')
    assert estimate(loads(text), tmp_path, root=root).minutes["basic-s0"] > 0
    assert loads(text).plan(loads(text).cells()[0], tmp_path, root=root).steps == 0


def test_a_table_has_mean_and_deviation_over_seeds(whole, study):
    found = Results.open(whole)
    (one,) = [v for v in values(study, found) if v.row == "basic" and v.metric == "accuracy"]
    own = found.filter(recipe="basic", metric="accuracy", shift="test", protocol="fd_shifts", score="msp")
    each = [row["value"] for row in own]
    assert one.mean == pytest.approx(sum(each) / 2)
    assert one.spread == pytest.approx(abs(each[0] - each[1]) / 2**0.5)
    assert one.seeds == (0, 1)
    assert one.low <= one.mean <= one.high
    page = (whole / "report.md").read_text(encoding="utf-8")
    assert page == report(study, whole)
    assert f"{100 * one.mean:.2f} ± {100 * one.spread:.2f} [" in page
    for words in (
        "64 training images",
        "4 of 4 cells",
        "seeds 0, 1",
        "weights averaged",
        "minutes a cell",
        "test (test) 40",
    ):
        assert words in page


def test_the_page_has_the_numbers_of_the_table(whole, study):
    """Also in the other forms of a report, which the command finds by the folder."""
    from twofold.cli.report import report_command

    page = (whole / "report.html").read_text(encoding="utf-8")
    for one in values(study, Results.open(whole)):
        factor = 1000 if "aurc" in one.metric else 100
        assert f"{factor * one.mean:,.2f} ± {factor * one.spread:,.2f}<small>[{factor * one.low:,.2f}, " in page
    assert page.count("<figure") == 3
    again = CliRunner().invoke(report_command, [str(whole), "-o", str(whole / "again.html")])
    assert again.exit_code == 0, again.output
    assert (whole / "again.html").read_text(encoding="utf-8") == page
    (whole / "again.html").unlink()
    (accuracy,) = [v for v in values(study, Results.open(whole)) if v.row == "aurc" and v.metric == "accuracy"]
    told = json.loads(document(study, whole).to_json())["sections"][0]["tables"][0]
    (row,) = [row for row in told["rows"] if row[0] == "aurc"]
    assert row[1] == {"value": accuracy.mean, "low": accuracy.low, "high": accuracy.high, "spread": accuracy.spread}
    assert rf"{100 * accuracy.mean:,.2f} $\pm$ {100 * accuracy.spread:,.2f} " in document(study, whole).to_latex()
    refused = CliRunner().invoke(report_command, [str(whole), "--id", "msp", "-o", str(whole / "again.html")])
    assert refused.exit_code != 0
    assert "belongs to the report on a run" in str(refused.exception)


def test_the_folder_knows_its_study(whole, study):
    assert opened(whole) == study
    assert finished(study, whole) == tuple(cell.name for cell in study.cells())
    assert numbers(whole) == [
        {k: "" if v is None else str(v) for k, v in row.items() if k != "command"} for row in results(study, whole)
    ]
    with pytest.raises(RunError, match="holds the study tiny; choose another"):
        run(loads(changed('name = "tiny"', 'name = "other"')), whole)
    with pytest.raises(InvalidInput, match="holds no study"):
        opened(whole / "runs")


def test_other_settings_are_not_mixed_with_what_is_there(whole, root):
    with pytest.raises(RunError, match=r"basic-s0 .* was trained with other settings"):
        run(loads(changed("lr = 0.02", "lr = 0.03")), whole, root=root)


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


def test_what_is_kept_has_the_tables_and_nothing_else(whole, study, root, tmp_path):
    small = tmp_path / "small"
    assert keep(study, whole, small) == finished(study, whole) == finished(study, small)
    assert {path.name for path in small.iterdir()} <= {
        *("study.json", "cells.json", "results.csv", "results.json", "results.parquet", "replicates.safetensors"),
    }
    assert table(study, results(study, small)) == table(study, results(study, whole))
    assert report(study, small) == report(study, whole)
    assert {row["metric"] for row in results(study, small)} == {"accuracy", "aurc", "ds_f1"}
    assert {row["command"] for row in results(study, small)} == {"twofold study run tiny.toml --out DIR"}
    assert run(study, small, root=root).finished == ()
    assert keep(study, small, tmp_path / "again") == finished(study, whole)
    assert numbers(tmp_path / "again") == numbers(small)


def test_a_study_goes_on_from_what_was_kept(whole, study, root, tmp_path):
    """Without any weights: the cell that the next one starts from is trained again, and only trained."""
    part = shutil.copytree(whole, tmp_path / "part")
    shutil.rmtree(part / "judged" / "aurc-s1")
    small = tmp_path / "small"
    rest = shutil.copytree(part, tmp_path / "rest")
    shutil.rmtree(rest / "judged" / "aurc-s0")
    shutil.rmtree(part / "judged" / "basic-s1")
    keep(study, rest, small)  # what is kept adds up
    assert keep(study, part, small) == ("basic-s0", "aurc-s0", "basic-s1")
    assert run(study, small, root=root).finished == ("aurc-s1",)
    assert not (small / "runs" / "basic-s1").exists()
    assert table(study, results(study, small)) == table(study, results(study, whole))
    with pytest.raises(InvalidInput, match="nothing to keep"):
        keep(study, tmp_path / "empty", tmp_path / "to")


def test_the_estimate_counts_what_is_left(whole, study, root, tmp_path):
    told = estimate(study, whole, root=root)
    spent = [read_json(whole / "judged" / c.name / "cell.json")["minutes"] for c in study.cells()]
    assert told.hours == pytest.approx(sum(spent) / 60)
    assert told.hours_left == 0
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
    told = run(study, tmp_path, limit_minutes=9, root=root)
    assert told.finished == tuple(made) == ("basic-s0",)  # the second would be begun after 4 minutes
    assert told.left == ("aurc-s0", "basic-s1", "aurc-s1")
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
    told = run(study, tmp_path, root=root)
    assert told.finished[0] == "basic-s1"
    assert len(told.finished) == len(study.rows) == 7
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


# --- the file -------------------------------------------------------------------------------------------------------


def test_cells_come_after_what_they_start_from(study):
    assert [c.name for c in study.cells()] == ["basic-s0", "aurc-s0", "basic-s1", "aurc-s1"]
    assert [c.name for c in study.cells(["aurc"], [1])] == ["basic-s1", "aurc-s1"]
    assert [c.name for c in study.cells(["basic"])] == ["basic-s0", "basic-s1"]
    with pytest.raises(UnknownName, match="no row of tiny 'aurk'; did you mean 'aurc'"):
        study.cells(["aurk"])
    with pytest.raises(InvalidInput, match="seed 5 is not a seed of tiny"):
        study.cells(seeds=[5])


def test_a_list_makes_a_row_for_each_value():
    text = changed("epochs = 2\n", "epochs = 2\nlr = [0.1, 0.2]\nweight_decay = [0.0, 0.001]\n")
    made = [row for row in loads(text).rows if row.family == "aurc"]
    assert [row.name for row in made] == ["aurc-1", "aurc-2", "aurc-3", "aurc-4"]
    assert [(row.settings["lr"], row.settings["weight_decay"]) for row in made] == [
        (0.1, 0.0), (0.1, 0.001), (0.2, 0.0), (0.2, 0.001),
    ]  # fmt: skip


def test_only_tuning_seeds_choose_among_the_rows_of_a_family():
    """Row 1 is best on validation data with seed 0, row 2 over both seeds; the test values are 1 and 2."""
    text = changed(
        'recipe = "basic"\n',
        'recipe = "basic"\nlr = [0.1, 0.2]\n',
        changed('checkpoint = "basic"', 'checkpoint = "basic-1"'),
    )
    aurc = {("basic-1", 0): 0.1, ("basic-1", 1): 0.9, ("basic-2", 0): 0.2, ("basic-2", 1): 0.2}
    rows = []
    for (recipe, seed), value in aurc.items():
        about = {"benchmark": "tiny", "run": f"{recipe}-s{seed}", "recipe": recipe, "seed": seed, "score": "msp"}
        about |= {"protocol": "fd_shifts", "metric": "aurc"}
        rows += [
            {**about, "shift": "validation", "value": value},
            {**about, "shift": "test", "value": float(recipe[-1])},
        ]
    for tuning_seeds, chosen in (("", 2.0), ("tuning_seeds = [0]\n", 1.0)):
        made = loads(text.replace("resamples", f"{tuning_seeds}resamples"))
        found = [one.mean for one in values(made, Results.of(rows)) if (one.row, one.metric) == ("basic", "aurc")]
        assert found == [chosen]


def test_precision_reaches_the_training_and_marks_its_cells(study, root, tmp_path):
    half = loads(changed("resamples", 'precision = "bf16"\nresamples'))
    cell = half.cells()[0]
    assert half.plan(cell, tmp_path, root=root).precision == "bf16"
    assert study.plan(cell, tmp_path, root=root).precision == "float32"
    assert cell_digests(half, cell)["trained"] != cell_digests(study, cell)["trained"]
    assert cell_digests(half, cell)["judged"] == cell_digests(study, cell)["judged"]


def test_a_preset_takes_the_place_of_values():
    text = TEXT + '[presets.large]\nmodel = "resnet20_cifar"\nseeds = [7]\nsettings = { epochs = 9 }\n'
    made = loads(text + "recipes = { aurc = { epochs = 5 } }\n", preset="large")
    assert (made.model, made.seeds, made.settings["epochs"], made.settings["lr"]) == ("resnet20_cifar", (7,), 9, 0.02)
    assert made["aurc"].settings["epochs"] == 5
    other = loads(TEXT + '[presets.real]\nbenchmark = "cifar10-real"\n', preset="real")
    assert other.benchmarks[0].classes == 10
    assert other.benchmarks[0].protocols == ("joint", "fd_shifts")
    with pytest.raises(UnknownName, match=r"no preset of .* 'big'"):
        loads(text, preset="big")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('recipe = "basic"', 'recipe = "bassic"', "row basic: no recipe 'bassic'; did you mean 'basic'"),
        ("batch = 32", "bach = 32", "settings: no key 'bach'; did you mean 'batch'"),
        ("epochs = 2\n", "epoch = 2\n", "recipe 1 .aurc.: no key 'epoch'; did you mean"),
        ("epochs = 1\n", "epochs = 0\n", "row basic: epochs must be"),
        ("resamples = 20", "resample = 20", "no key 'resample'; did you mean 'resamples'"),
        ('model = "resnet8_cifar"', 'model = "resnet8"', "no network 'resnet8'; did you mean"),
        ('preset = "cifar"', 'preset = "cifr"', "no preset 'cifr'; did you mean 'cifar'"),
        ('checkpoint = "basic"', 'checkpoint = "base"', "row aurc: no row of tiny 'base'; did you mean 'basic'"),
        ('checkpoint = "basic"\n', "", "aurc_finetune starts from another row, or a file of weights; name it in"),
        ('recipe = "basic"', 'recipe = "oe"', "oe needs outliers; name a data set in outliers"),
        ('recipe = "basic"', 'recipe = "basic"\npasses = 5', "passes need dropout"),
        ('recipe = "basic"', 'recipe = "basic"\ncheckpoint = "aurc"', "in a circle"),
        ('recipe = "basic"', 'recipe = "deep_ensemble"', "basic is an ensemble, and no row can start from it"),
        ('recipe = "basic"', 'recipe = "basic"\ndropout = 1.5', "dropout"),
        ('name = "basic"', 'name = "aurc"', "the name 'aurc' is taken"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "seeds must be a list of different whole numbers"),
        ("seeds = [0, 1]", "seeds = [0, 1]\ntuning_seeds = [2]", "tuning_seeds must be a list of some of the seeds"),
        ("resamples = 20", 'resamples = 20\nprecision = "fp8"', "no precision 'fp8'"),
        ('role = "val"', 'role = "far"', "there is no data set of role val"),
        ('name = "close"', 'name = "near"', "two rows of the results would be called 'near'"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurk", "test", "fd_shifts", "msp"]', "no column of protocol"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurc", "test", "fd_shift", "msp"]', "no protocol 'fd_shift'"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurc", "test", "fd_shifts", "knn"]', "no score or pair of the"),
        ('["aurc", "test", "fd_shifts", "msp"]', '["aurc", "test"]', "columns must be lists of metric, shift"),
        ("classes = 4", "classes = 4\nbenchmark = 'cifar10-real'", "classes belongs to the benchmark"),
        ("[settings]", "[settings", "is not TOML"),
    ],
)
def test_a_bad_file_is_one_clear_error(old, new, message):
    with pytest.raises(InvalidInput, match=message):
        loads(changed(old, new), where="file")


def test_missing_data_are_said_before_anything_is_trained(study, root, tmp_path):
    poor = tmp_path / "poor"
    shutil.copytree(root, poor)
    (poor / "close.npz").unlink()
    (poor / "val.npz").unlink()
    with pytest.raises(
        InvalidInput, match=r"2 data sets cannot be opened:\n- val: missing .* get it from here\n- close"
    ):
        run(study, tmp_path / "out", root=poor)
    assert not (tmp_path / "out" / "training").exists()


def test_missing_pictures_to_mix_in_are_said_too(root, tmp_path):
    """They are a folder of image files, not a data set."""
    text = changed('recipe = "basic"', 'recipe = "pixmix"\nmixers = "{data}/pictures"')
    shutil.copytree(root, tmp_path / "data")
    for words in ("no such folder", "it holds no image files"):
        with pytest.raises(
            InvalidInput, match=rf"1 data sets cannot be opened:\n- .*pictures, pictures that basic mixes in: {words}"
        ):
            run(loads(text), tmp_path / "out", only=["basic"], root=tmp_path / "data")
        (tmp_path / "data" / "pictures").mkdir(exist_ok=True)
    assert not (tmp_path / "out" / "training").exists()


def test_unknown_names_and_files():
    with pytest.raises(UnknownName, match="no study 'sure'; did you mean 'sure_plus'"):
        load("sure")
    with pytest.raises(InvalidInput, match=r"nowhere.toml cannot be read as a study file"):
        load("nowhere.toml")


# --- the studies of the package -------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", [None, "full"])
@pytest.mark.parametrize("name", names())
def test_shipped_studies_load(name, preset):
    study = load(name, preset=preset)
    assert study.name == name
    assert study.tables
    assert len(study.cells()) == len(study.rows) * len(study.seeds) * len(study.benchmarks)
    if preset == "full":
        assert (study.model, study.settings["epochs"]) == ("resnet18_32", 200)
    else:
        assert study.model == "resnet8_cifar"


def test_shipped_studies_have_the_rows_of_the_papers():
    rows = {name: {row.family for row in load(name).rows} for name in names()}
    assert rows["sure_plus"] >= {"basic", "mixup", "regmixup", "cutmix", "augmix", "pixmix", "sure", "sure_plus"}
    assert rows["aurc_finetune"] == {"basic", "ce", "empirical", "log", "sele", "self_excluded"}
    assert rows["unknown"] == {"basic", "crl", "edl", "mc_dropout", "ensemble", "augmix", "oe", "energy"}
    for kind in ("ce", "confidnet", "devries", "gamblers"):
        assert {kind, f"{kind}_dropout"} <= rows["paradigms"]
    grid = [[row.settings["lr"] for row in load("aurc_finetune").rows if row.family == f] for f in ("ce", "sele")]
    assert grid[0] == grid[1]  # nobody is tuned more than the control


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_shipped_studies_open_their_data(name, data_dir):
    study = load(name)
    specs = {row.outliers for row in study.rows if row.outliers} if name == "unknown" else set()
    for on in study.benchmarks:
        status = on.status(data_dir, open_data)
        assert [(one.set.name, one.reason) for one in status if not one.present] == []
        assert [(one.set.name, one.rows, one.set.rows) for one in status if one.published is False] == []
        train = open_data(on[on.names("train")[0]].spec(data_dir))
        assert int(train.labels.max()) + 1 == on.classes
    for spec in specs:
        outliers = open_data(spec.replace("{data}", str(data_dir)))
        held = open_data(study.benchmarks[0]["ood_val"].spec(data_dir))
        assert not set(outliers.ids.tolist()) & set(held.ids.tolist())


# --- the command ----------------------------------------------------------------------------------------------------


def said(*words):
    return CliRunner().invoke(study_group, list(map(str, words)))


def test_commands(whole, root, tmp_path):
    file = tmp_path / "tiny.toml"
    file.write_text(TEXT, encoding="utf-8")
    assert [row["name"] for row in json.loads(said("list", "--json").stdout)] == list(names())
    assert "sure_plus" in said("list").stdout
    shown = json.loads(said("show", file, "--out", whole, "--root", root, "--json").stdout)
    assert [row["finished"] for row in shown["cells"]] == [True] * 4
    assert shown["hours_left"] == 0 < shown["hours"]
    text = said("show", file, "--out", whole, "--no-time").stdout
    assert "4 of 4 cells are finished" in text
    told = json.loads(said("run", file, "--out", whole, "--root", root, "--only", "basic", "--json").stdout)
    assert (told["finished"], told["left"]) == ([], [])
    part = shutil.copytree(whole, tmp_path / "part")
    shutil.rmtree(part / "judged" / "aurc-s1")
    again = said("run", file, "--out", part, "--root", root)
    assert "1 cell to do: about 0.0 hours" in again.stderr  # as long as the aurc cell that is finished
    assert "1 cell finished" in again.stdout
    assert said("keep", whole, tmp_path / "small").stdout == "4 cells\n"
    kept = json.loads(said("keep", whole, tmp_path / "small", "--json").stdout)
    assert kept["cells"] == list(finished(loads(TEXT), whole))
    table = json.loads(said("table", whole, "--json").stdout)
    assert {(row["row"], row["metric"]) for row in table} >= {("aurc", "ds_f1"), ("basic", "accuracy")}
    assert said("table", whole).stdout.strip() in (whole / "report.md").read_text(encoding="utf-8")
    bad = said("table", tmp_path)
    assert bad.exit_code == 3
    assert "holds no study" in bad.output


def test_show_prints_the_plan_without_the_data(tmp_path, monkeypatch):
    """A plan needs no data; only the estimate of its time does."""
    monkeypatch.setenv("TWOFOLD_DATA", str(tmp_path / "nowhere"))
    words = ["show", "sure_plus", "--preset", "full", "--out", tmp_path / "out"]
    shown = CliRunner().invoke(study_group, list(map(str, words)), catch_exceptions=False)
    assert shown.exit_code == 0
    assert "sure_plus-s2" in shown.output
    assert "No estimate of the time: " in shown.output.splitlines()[-1]
    assert "nowhere" in shown.output.splitlines()[-1]
    told = json.loads(CliRunner().invoke(study_group, [*map(str, words), "--json"]).stdout)
    assert len(told["cells"]) == 39
    assert "nowhere" in told["no_estimate"]
    assert "hours" not in told
