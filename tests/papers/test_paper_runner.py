"""Running plans: resumable at every step with the same bytes, and a second run computes nothing."""

from __future__ import annotations

import csv
import json
import math
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from twofold import papers
from twofold.cli import main
from twofold.errors import InvalidInput
from twofold.papers import estimator_step

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

PAPER = """
name = "mini"
title = "Mini"
source = "Nobody"

[steps.first]
verb = "estimators"
outputs = ["outputs.npz"]
sizes = [8, 32]
whole = true

[steps.second]
verb = "estimators"
outputs = ["outputs.npz?logits=logits&labels=labels&name=again"]
scores = ["msp", "entropy"]
sizes = [16]

[steps.own]
verb = "estimators"
sizes = [8]

[scales.small]
data = ["outputs"]
minutes = 1
note = "Small."
steps = ["first", "second"]

[scales.own]
data = ["your runs"]
note = "Give runs."
steps = ["own"]
"""
DRAWINGS = {
    "weight_bias": "sizes = [8, 16]",
    "weight_mse": "sizes = [8, 16]",
    "estimates": "",
    "bias": 'quantity = "bias"',
    "mae": 'quantity = "mae"',
    "mse": 'quantity = "mse", losses = ["ce"]',
    "pooled": 'quantity = "mae", pooled = true',
    "confidences": "size = 16",
    "forms": "",
}


def plan_text(item, drawing, options):
    extra = f", {options}" if options else ""
    return f"""
[[plans]]
item = "{item}"
kind = "result"
title = "A figure"
says = "Something."
state = "verified"
drawing = {{ name = "{drawing}"{extra} }}
here = "small"
paper = "own"
"""


@pytest.fixture
def paper():
    text = PAPER
    for item, options in DRAWINGS.items():
        drawing = "errors" if "quantity" in options else item
        text += plan_text(item, drawing, options)
    return papers.loads(text)


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    np.savez(tmp_path / "outputs.npz", logits=rng.normal(size=(300, 3)) + 2 * np.eye(3)[labels], labels=labels)
    return tmp_path


def files_of(outcome):
    contents = {}
    for name in outcome.files:
        with open(name, "rb") as file:
            contents[name.rpartition("/")[2]] = file.read()
    return contents


@pytest.mark.parametrize("item", DRAWINGS)
def test_every_drawing_is_written(paper, data, item):
    outcome = papers.run(paper.plan(item), papers.Workspace.open(data / "out", root=data))
    contents = files_of(outcome)
    assert set(contents) == {f"{item}.{kind}" for kind in ("svg", "png", "csv", "md")}
    assert b"<svg" in contents[f"{item}.svg"]
    assert contents[f"{item}.png"].startswith(b"\x89PNG")
    rows = list(csv.DictReader(contents[f"{item}.csv"].decode().splitlines()))
    assert rows
    assert all(value != "nan" for row in rows for value in row.values())


def test_a_second_run_computes_nothing(paper, data, monkeypatch):
    work = papers.Workspace.open(data / "out", root=data)
    first = papers.run(paper.plan("mse"), work)
    assert len(first.computed) == 3
    monkeypatch.setattr(estimator_step, "measure_estimators", None)
    again = papers.run(paper.plan("mse"), work)
    assert again.computed == ()
    assert files_of(again) == files_of(first)


def test_plans_share_their_cells(paper, data):
    work = papers.Workspace.open(data / "out", root=data)
    papers.run(paper.plan("mse"), work)
    assert papers.run(paper.plan("mae"), work).computed == ("page",)


@pytest.mark.parametrize("stop_at", range(7))
def test_a_killed_run_is_finished_with_the_same_bytes(paper, data, monkeypatch, stop_at):
    """The run dies while it writes its first, second, ... file, and is repeated."""
    whole = papers.run(paper.plan("mse"), papers.Workspace.open(data / "whole", root=data))
    written = 0

    def replacing(path):
        nonlocal written
        written += 1
        if written > stop_at:
            raise KeyboardInterrupt
        return true_replacing(path)

    from twofold._files import replacing as true_replacing

    work = papers.Workspace.open(data / "killed", root=data)
    with monkeypatch.context() as patch:
        for module in ("papers.estimator_step", "papers.drawings", "papers.runner", "plot.display"):
            patch.setattr(f"twofold.{module}.replacing", replacing)
        with pytest.raises(KeyboardInterrupt):
            papers.run(paper.plan("mse"), work)
    finished = papers.run(paper.plan("mse"), work)
    assert finished.computed
    assert files_of(finished) == files_of(whole)


KILLED = """
import os, signal, sys
from contextlib import contextmanager
import twofold._files as files

written = 0
true_replacing = files.replacing

@contextmanager
def replacing(path):
    global written
    with true_replacing(path) as file:
        yield file
        file.flush()
        written += 1
        if written > int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)

files.replacing = replacing
from twofold import papers

plan = papers.load(sys.argv[1]).plan("mse")
papers.run(plan, papers.Workspace.open(sys.argv[2], root=sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_process_that_is_killed_is_finished_with_the_same_bytes(data, tmp_path_factory):
    """The process dies at a random file, and so do the two that resume it."""
    text = PAPER + plan_text("mse", "errors", DRAWINGS["mse"])
    file = tmp_path_factory.mktemp("paper") / "mini.toml"
    file.write_text(text)
    plan = papers.load(file).plan("mse")
    whole = papers.run(plan, papers.Workspace.open(data / "whole", root=data))
    out = data / "killed"
    for killed_at in random.Random(0).choices(range(3), k=3):  # of seven files
        command = [sys.executable, "-c", KILLED, str(file), str(out), str(data), str(killed_at)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    finished = papers.run(plan, papers.Workspace.open(out, root=data))
    assert finished.computed
    again = papers.run(plan, papers.Workspace.open(out, root=data))
    assert again.computed == ()
    assert files_of(again) == files_of(whole)


def test_a_changed_file_or_source_is_noticed(paper, data):
    work = papers.Workspace.open(data / "out", root=data)
    outcome = papers.run(paper.plan("mse"), work)
    with open(outcome.files[0], "ab") as file:
        file.write(b" ")
    assert papers.run(paper.plan("mse"), work).computed == ("page",)
    labels = np.zeros(300, dtype=int)
    np.savez(data / "outputs.npz", logits=np.random.default_rng(1).normal(size=(300, 3)), labels=labels)
    assert len(papers.run(paper.plan("mse"), work).computed) == 3


def test_the_time_limit_stops_before_the_next_step(paper, data):
    stopped = papers.run(paper.plan("mse"), papers.Workspace.open(data / "out", root=data, minutes=0))
    assert (stopped.is_finished, len(stopped.left), stopped.computed) == (False, 2, ())
    assert stopped.left[0].startswith("twofold bench estimators")
    assert papers.run(paper.plan("mse"), papers.Workspace.open(data / "out", root=data)).is_finished


def test_runs_of_the_user_take_the_place_of_the_plans(paper, data):
    work = papers.Workspace.open(data / "out")
    with pytest.raises(InvalidInput, match="by --run"):
        papers.run(paper.plan("mse"), work, scale="paper")
    outcome = papers.run(paper.plan("mse"), work, scale="paper", runs=[str(data / "outputs.npz")])
    rows = list(csv.DictReader(files_of(outcome)["mse.csv"].decode().splitlines()))
    assert {row["model"] for row in rows} == {"outputs"}
    assert {row["loss"] for row in rows} == {"ce"}
    for row in rows:
        assert float(row["published_mse"]) == pytest.approx(float(row["bias"]) ** 2)
        assert math.sqrt(float(row["mse"])) == pytest.approx(float(row["rmse"]))


def test_missing_data_are_named_before_any_work(paper, tmp_path):
    with pytest.raises(InvalidInput, match=r"outputs.npz; set \$TWOFOLD_DATA"):
        papers.run(paper.plan("mse"), papers.Workspace.open(tmp_path / "out", root=tmp_path))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("fd_shifts/figure1", "is not run: a drawing of the idea"),
        ("fd_shifts/table12", "does not print it"),
    ],
)
def test_what_is_not_run_says_why(plan, message, tmp_path):
    result = CliRunner().invoke(main, ["papers", "run", plan, "--out", str(tmp_path / "out")])
    assert result.exit_code == 3
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_table_of_settings_is_written_in_every_format(tmp_path):
    command = ["papers", "run", "aurc_estimators/tableS2", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    [outcome] = json.loads(result.stdout)
    assert outcome["summary"] == "4 of 6 printed settings are the same here."
    assert {name.rpartition(".")[2] for name in outcome["files"]} == {"csv", "md", "tex", "html"}
    refused = CliRunner().invoke(main, [*command, "--run", "x"])
    assert (refused.exit_code, "reads no runs" in refused.stderr) == (3, True)


def test_shown_commands_do_what_the_step_does(paper, data, monkeypatch):
    """The command of a step, typed, writes the file that the step would write."""
    import shlex

    work = papers.Workspace.open(data / "out", root=data)
    step = paper.plan("mse").scales["here"].steps[0]
    (data / "out" / "cells").mkdir(parents=True)
    words = shlex.split(step.command(work).replace("$TWOFOLD_DATA", str(data)))
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, result.output
    assert step.is_done(work)
    typed = step.read(work)
    other = papers.Workspace.open(data / "other", root=data)
    step.run(other)
    assert step.read(other) == typed


def test_the_verb_prints_cells(data):
    command = ["bench", "estimators", str(data / "outputs.npz"), "--size", "8", "--loss", "0/1"]
    assert "self_excluded" in CliRunner().invoke(main, command).stdout
    cells = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert {cell["estimator"] for cell in cells} >= {"empirical", "log", "sele", "2sele"}
    wrong = CliRunner().invoke(main, ["bench", "estimators", str(data / "none.npz")])
    assert (wrong.exit_code, len(wrong.stderr.strip().splitlines())) == (3, 1)


SAME = {
    "fd_shifts/table3": "27 of 28",
    "unknown_detection/table2": "16 of 17",
    "unknown_detection/table3": "20 of 20",
    "stratified_ood/table1": "32 of 32",
}


@pytest.mark.parametrize(("plan", "count"), SAME.items(), ids=SAME.keys())
def test_tables_of_data_sets_are_compared_with_print(plan, count, tmp_path):
    result = CliRunner().invoke(main, ["papers", "run", plan, "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    [outcome] = json.loads(result.stdout)
    assert outcome["summary"] == f"{count} printed settings are the same here."
