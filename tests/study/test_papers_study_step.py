"""Plans of papers that train: the step ``study`` runs cells of a study, shares them, and resumes."""

import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tiny_study import TEXT, changed  # noqa: E402

from twofold import papers  # noqa: E402
from twofold.errors import InvalidInput, TwofoldError  # noqa: E402
from twofold.papers.runner import all_steps  # noqa: E402

PAPER = """
name = "mini"
title = "Mini"
source = "Nobody"

[steps.trained]
verb = "study"
study = "{study}"
rows = ["basic"]
seeds = [0]

[steps.measured]
verb = "estimators"
extracts = ["trained"]
sizes = [8]

[scales.small]
data = ["colours"]
note = "Small."
steps = ["trained", "measured"]

[[plans]]
item = "figure1"
kind = "result"
title = "Estimates"
says = "Something."
state = "verified"
drawing = {{ name = "estimates" }}
here = "small"
"""


@pytest.fixture
def tiny(tmp_path):
    """Write the study and a paper whose figure needs one of its cells."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (tmp_path / "tiny.toml").write_text(TEXT)
    return papers.loads(PAPER.format(study=tmp_path / "tiny.toml"))


def test_a_plan_trains_extracts_and_judges_its_cells_once(tiny, root, tmp_path):
    work = papers.Workspace.open(tmp_path / "out", root=root)
    plan = tiny.plan("figure1")
    first = papers.run(plan, work)
    assert first.is_finished
    folder = tmp_path / "out" / "studies" / "tiny"
    assert [path.name for path in sorted((folder / "runs").iterdir())] == ["basic-s0"]
    trained = all_steps(plan.scales["here"])[0]
    found = trained.read(work)
    assert {row["run"] for row in found.rows} == {"basic-s0"}
    assert found.runs == (folder / "runs" / "basic-s0",)
    assert papers.run(plan, work).computed == ()
    assert trained.command(work).endswith(f"--row basic --seed 0 --out {folder}")


def test_runs_of_a_study_are_printed_one_by_one(tiny, tmp_path):
    """A wildcard would match other rows too, and expands to one value behind --run."""
    work = papers.Workspace.open(tmp_path / "out")
    trained, measured = all_steps(tiny.plan("figure1").scales["here"])
    assert trained.run_words(work) == [str(tmp_path / "out" / "studies" / "tiny" / "runs" / "basic-s0")]
    assert f"estimators {trained.run_words(work)[0]} --loss" in measured.command(work)


def test_a_killed_plan_ends_with_the_same_bytes(tiny, root, tmp_path, monkeypatch):
    plan = tiny.plan("figure1")
    whole = papers.run(plan, papers.Workspace.open(tmp_path / "whole", root=root))
    work = papers.Workspace.open(tmp_path / "cut", root=root)
    measured = all_steps(plan.scales["here"])[1]
    with monkeypatch.context() as patch:
        patch.setattr(type(measured), "run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            papers.run(plan, work)
    shutil.rmtree(tmp_path / "cut" / "cells", ignore_errors=True)
    resumed = papers.run(plan, work)
    assert not any(key.startswith("study") for key in resumed.computed)
    for one, other in zip(whole.files, resumed.files, strict=True):
        with open(one, "rb") as first, open(other, "rb") as second:
            assert first.read() == second.read(), one


def test_rows_and_seeds_that_the_study_does_not_have_are_named(tmp_path):
    (tmp_path / "tiny.toml").write_text(TEXT)
    text = PAPER.format(study=tmp_path / "tiny.toml")
    with pytest.raises(TwofoldError, match="nobody"):
        papers.loads(changed('rows = ["basic"]', 'rows = ["nobody"]', text))
    with pytest.raises(InvalidInput, match="seed 7"):
        papers.loads(changed("seeds = [0]", "seeds = [7]", text))
    with pytest.raises(TwofoldError, match="nowhere"):
        papers.loads(changed(str(tmp_path / "tiny.toml"), "nowhere", text))


def test_a_study_with_fewer_images(root, tmp_path):
    from twofold.study import load, loads

    small = loads(TEXT + "\n[images]\ntest = 8\nall = 20\n")
    assert small.benchmarks[0]["test"].data.endswith("sample=8")
    assert small.benchmarks[0]["train"].data.endswith("sample=20")
    with pytest.raises(InvalidInput, match="images"):
        loads(TEXT + "\n[images]\nnowhere = 8\n")
    (tmp_path / "tiny.toml").write_text(TEXT)
    assert load(tmp_path / "tiny.toml", check=False).families == ("aurc", "basic")
