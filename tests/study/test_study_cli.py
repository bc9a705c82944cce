"""The commands of studies."""

import json
import shutil

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from click.testing import CliRunner
from tiny_study import TEXT

from twofold.cli.study import study_group
from twofold.study import finished, loads, names


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
    printed = json.loads(said("run", file, "--out", whole, "--root", root, "--only", "basic", "--json").stdout)
    assert (printed["finished"], printed["left"]) == ([], [])
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
    printed = json.loads(CliRunner().invoke(study_group, [*map(str, words), "--json"]).stdout)
    assert len(printed["cells"]) == 39
    assert "nowhere" in printed["no_estimate"]
    assert "hours" not in printed
