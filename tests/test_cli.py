"""Every command has help with an example, speaks JSON, and answers bad input with one line."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import twofold
from twofold import metrics
from twofold._math import log_odds
from twofold.cli import main
from twofold.outputs import Outputs
from twofold.run import Run

COMMANDS = sorted(name for name, command in main.commands.items() if not hasattr(command, "commands"))
COMMANDS += [f"{name} {sub}" for name, group in main.commands.items() for sub in getattr(group, "commands", ())]


def run(*args: str):
    return CliRunner().invoke(main, list(args))


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    is_id = rng.random(300) < 0.7
    correct = is_id & (rng.random(300) < 0.8)
    arrays = {
        "correct": correct,
        "conf": rng.normal(size=300) + correct,
        "is_id": is_id,
        "conf_ood": rng.normal(size=300) + is_id,
    }
    path = tmp_path / "scores.npz"
    np.savez(path, **arrays)
    return path, arrays


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_line_to_paste(name):
    result = run(*name.split(), "--help")
    assert result.exit_code == 0
    assert f"twofold {name}" in result.output
    assert "--json" in result.output or name == "completion"


def test_evaluate_prints_what_the_library_returns(scores):
    path, arrays = scores
    result = run("evaluate", str(path), "--json")
    assert result.exit_code == 0, result.output
    expected = metrics.evaluate(**arrays)
    assert json.loads(result.stdout)["metrics"] == pytest.approx(dict(expected))
    text = run("evaluate", str(path))
    assert "ds_aurc" in text.stdout


def test_evaluate_with_intervals(scores):
    path, _ = scores
    result = run("evaluate", str(path), "--intervals", "--resamples", "50", "--metric", "aurc,ds_f1", "--json")
    values = json.loads(result.stdout)["metrics"]
    assert set(values) == {"aurc", "ds_f1"}
    for value in values.values():
        assert value["low"] <= value["value"] <= value["high"]
    text = run("evaluate", str(path), "--intervals", "--resamples", "50", "--metric", "aurc")
    assert text.stdout.startswith("aurc")
    assert "[" in text.stdout


def test_evaluate_all_metrics(scores):
    path, _ = scores
    values = json.loads(run("evaluate", str(path), "--metric", "all", "--json").stdout)["metrics"]
    assert {"oscr", "autc", "joint_aurc", "detection_error_ood"} <= set(values)


def test_evaluate_logits_uses_log_odds(tmp_path):
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(100, 4)), rng.integers(-1, 4, 100)
    outputs = Outputs(logits, labels)
    outputs.to_npz(tmp_path / "o.npz")
    got = json.loads(run("evaluate", str(tmp_path / "o.npz"), "--json").stdout)["metrics"]["aurc"]
    assert got == pytest.approx(metrics.aurc(outputs.correct, log_odds(logits), is_id=outputs.is_id))


def test_undefined_metrics_are_null_with_a_reason(tmp_path):
    np.savez(tmp_path / "s.npz", correct=np.ones(5, bool), conf=np.arange(5.0))
    data = json.loads(run("evaluate", str(tmp_path / "s.npz"), "--json").stdout)
    assert data["metrics"]["auroc"] is None
    assert "unsafe" in data["reasons"]["auroc"]
    text = run("evaluate", str(tmp_path / "s.npz"), "--intervals", "--resamples", "20")
    assert "undefined" in text.stdout


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"conf": np.zeros(3)}, "must hold correct and conf"),
        ({"correct": np.ones(3, bool), "conf": np.array([0.1, np.nan, 0.2])}, "NaN in row 1"),
        ({"correct": np.ones(2, bool), "conf": np.zeros(3)}, "has 3 rows|has 2 rows"),
        ({"correct": np.array([2, 0]), "conf": np.zeros(2)}, "booleans or 0/1"),
    ],
)
def test_bad_arrays_give_one_line(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    result = run("evaluate", str(tmp_path / "bad.npz"))
    assert result.exit_code == 3
    assert re.search(message, result.stderr)
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_bad_files(tmp_path):
    assert run("evaluate", str(tmp_path / "missing.npz")).exit_code == 2
    (tmp_path / "text.npz").write_text("hello")
    result = run("evaluate", str(tmp_path / "text.npz"))
    assert result.exit_code == 3
    assert "npz" in result.stderr


def test_unknown_metric_is_suggested(scores):
    result = run("evaluate", str(scores[0]), "--metric", "aucr")
    assert result.exit_code == 2
    assert "'aurc'" in result.stderr


def test_verify(tmp_path):
    made = Run.create(tmp_path / "run", model="m")
    made.add("t", Outputs(np.eye(3), [0, 1, 2]), role="test")
    result = run("verify", str(tmp_path / "run"), "--json")
    assert json.loads(result.stdout) == {"run": str(tmp_path / "run"), "intact": True, "data": {"t": "test"}}
    assert "3 rows" in run("verify", str(tmp_path / "run")).stdout
    file = tmp_path / "run" / "t.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    broken = run("verify", str(tmp_path / "run"))
    assert broken.exit_code == 1
    assert "t.safetensors" in broken.stderr
    assert run("verify", str(tmp_path / "nowhere")).exit_code == 3


def test_list_metrics():
    data = json.loads(run("list", "metrics", "--json").stdout)
    assert [row["name"] for row in data] == metrics.names()
    assert all(row["formula"] and row["reference"] and row["summary"] for row in data)
    text = run("list", "metrics").stdout
    assert len(text.strip().splitlines()) == len(data)


def test_list_scores_and_transforms():
    from twofold.scores.registry import step_names

    rows = json.loads(run("list", "scores", "--json").stdout)
    assert [row["name"] for row in rows] == step_names("score")
    assert all(row["summary"] and row["reference"] for row in rows)
    few = run("list", "scores", "--needs", "logits").stdout
    assert "energy" in few
    assert "react" in run("list", "transforms").stdout


@pytest.fixture
def files(tmp_path):
    """Outputs of a small model on a training set, a test set and unknown inputs, as npz files."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 4))

    def write(name, rows, known):
        labels = rng.integers(0, 3, rows)
        features = rng.normal(size=(rows, 4)) + (2 * weight[labels] if known else 0)
        extra = {"labels": labels} if known else {}
        np.savez(tmp_path / name, logits=features @ weight.T, features=features, **extra)
        return tmp_path / name

    return write("train.npz", 200, True), write("test.npz", 100, True), write("other.npz", 60, False)


def test_evaluate_of_logits_with_unknown_files(files):
    train, test, other = files
    given = ["evaluate", str(test), "--unknown", str(other), "--ood", "mds", "--train", str(train), "--json"]
    printed = json.loads(run(*given).stdout)["metrics"]
    known, unknown = Outputs.from_npz(test), Outputs.from_npz(other)
    both = Outputs.concat([known, unknown.replace(labels=np.full(60, -1))])
    mds = twofold.scorer("mds").fit(Outputs.from_npz(train))
    conf = twofold.scorer("msp").score(both)
    assert printed["ds_f1"] == metrics.ds_f1(both.correct, conf, mds.score(both), both.is_id).value
    assert printed["auroc_ood"] == pytest.approx(metrics.auroc(both.is_id, mds.score(both)))
    learns = run("evaluate", str(test), "--id", "mds")
    assert (learns.exit_code, "--train" in learns.stderr) == (3, True)
    plain = run("evaluate", str(other), "--json")
    assert (plain.exit_code, "no labels" in plain.stderr) == (3, True)


def test_evaluate_of_confidences_refuses_scores(scores, files):
    result = run("evaluate", str(scores[0]), "--ood", "energy")
    assert (result.exit_code, "holds no logits" in result.stderr) == (3, True)


def test_score_prints_confidences(files, tmp_path):
    train, test, _ = files
    lines = run("score", str(test), "--score", "energy", "--score", "mds", "--train", str(train)).stdout.splitlines()
    assert lines[0] == "set,row,label,prediction,energy,mds"
    outputs = Outputs.from_npz(test)
    assert float(lines[1].split(",")[4]) == twofold.scorer("energy").score(outputs)[0]
    assert len(lines) == 101
    printed = json.loads(run("score", str(test), "--score", "energy", "--json").stdout)
    assert printed["test"]["energy"] == pytest.approx(twofold.scorer("energy").score(outputs))
    assert run("score", str(test), "--score", "energy", "--out", str(tmp_path / "s.npz")).exit_code == 0
    assert np.load(tmp_path / "s.npz")["test/energy"] == pytest.approx(printed["test"]["energy"])
    made = Run.create(tmp_path / "run", model="m")
    made.add("t", outputs, role="test")
    assert run("score", str(tmp_path / "run"), "--score", "msp", "--name", "t").stdout.startswith("set,row")
    assert run("score", str(tmp_path / "run"), "--score", "mds").exit_code == 3
    assert "did you mean" in run("score", str(test), "--score", "enrgy").stderr


def test_exit_codes_and_suggestions(tmp_path, monkeypatch):
    wrong = run("evalute", "x.npz")
    assert (wrong.exit_code, "did you mean 'evaluate'" in wrong.stderr) == (2, True)
    assert "did you mean" in run("bench", "lst").stderr
    assert run("evaluate").exit_code == 2
    with pytest.raises(twofold.errors.TwofoldError):
        CliRunner().invoke(main, ["--debug", "verify", str(tmp_path / "nowhere")], catch_exceptions=False)


INTERRUPTED = {
    "verify": ("twofold.run.Run.verify", ["verify", "x"], False),
    "evaluate": ("twofold.outputs.load_npz", ["evaluate", __file__], False),
    "demo": ("twofold.demo.demo", ["demo", "--out", "x"], False),
    "bench list": ("twofold.bench.catalogue.load", ["bench", "show", "digits"], False),
    "extract": (
        "twofold.nn.extraction.extract_all",
        ["extract", "resnet18_32", "--data", "noise:uniform?n=4", "--role", "test", "--out", "x"],
        True,
    ),
    "bench run": ("twofold.bench.runner.run", ["bench", "run", "digits", "--run", "x"], True),
    "papers run": ("twofold.papers.run", ["papers", "run", "aurc_estimators/figure1", "--out", "x"], True),
    "study run": ("twofold.study.run", ["study", "run", "sure_plus", "--out", "x"], True),
}


@pytest.mark.parametrize(("place", "words", "resumes"), INTERRUPTED.values(), ids=INTERRUPTED.keys())
def test_an_interruption_promises_resumption_only_where_there_is_some(place, words, resumes, tmp_path, monkeypatch):
    def stopped(*args, **settings):
        raise KeyboardInterrupt

    if words[0] in ("extract", "study"):
        pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, stopped)
    result = run(*words)
    assert (result.exit_code, "again to resume" in result.stderr) == (130, resumes)
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp437"])
@pytest.mark.parametrize(
    "words", ["list metrics", "list scores --json", "bench list", "study list", "papers list", "--help"]
)
def test_output_on_consoles_that_lack_signs(encoding, words):
    result = CliRunner(charset=encoding).invoke(main, words.split())
    assert result.exit_code == 0, result.exception
    plain = CliRunner().invoke(main, words.split())
    if "--json" in words:
        assert json.loads(result.stdout) == json.loads(plain.stdout)
    else:
        assert len(result.stdout.splitlines()) == len(plain.stdout.splitlines())


def test_signs_that_a_console_lacks_are_written_as_ascii():
    from twofold.cli import shared

    text = "↓ better, ≥ 5, Łódź café \udcff 日"
    printed = text.encode("ascii", shared.REPLACE_UNPRINTABLE).decode()
    assert printed == "v better, >= 5, \\u0141odz cafe \\udcff \\u65e5"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_standard_output_is_one_line():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "twofold.cli", "list", "metrics"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "no space left on device" in done.stderr


def test_control_codes_of_a_stranger_do_not_reach_the_terminal(tmp_path):
    result = run("verify", str(tmp_path / "a\x1b[31m\nb"))
    assert result.exit_code == 3
    assert "\x1b" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert "_TWOFOLD_COMPLETE" in run("completion", shell).stdout


def test_the_module_runs_too():
    done = subprocess.run(
        [sys.executable, "-m", "twofold.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("twofold, version")
