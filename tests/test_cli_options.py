"""Options: one meaning for each name, mistyped names are usage errors, messages name options, shells complete names."""

import json
import os
import re
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner

from twofold import metrics
from twofold.bench.catalogue import names as benchmark_names
from twofold.cli import main
from twofold.cli.messages import in_terms_of_options
from twofold.outputs import Outputs
from twofold.run import Run
from twofold.scores.registry import step_names


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def walk(group, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(walk(main))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A run, and outputs of known and unknown inputs as npz files."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    known = Outputs(rng.normal(size=(120, 3)) + 2 * np.eye(3)[labels], labels)
    other = Outputs(rng.normal(size=(60, 3)), np.full(60, -1))
    known.to_npz(folder / "test.npz")
    other.to_npz(folder / "other.npz")
    made = Run.create(folder / "run", model="m")
    made.add("val", known, role="val")
    made.add("ood_val", other, role="ood_val")
    made.add("test", known, role="test")
    return folder


def test_id_and_ood_are_scores_in_every_command():
    for path, command in COMMANDS.items():
        for param in command.params:
            if {"--id", "--ood"} & set(param.opts):
                assert param.type.name == "score", path


def test_an_option_has_one_kind_of_value_in_all_commands():
    kinds = {}
    for path, command in COMMANDS.items():
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                kinds.setdefault(param.opts[0], {}).setdefault(param.type.name, []).append(" ".join(path))
    several = {option: found for option, found in kinds.items() if len(found) > 1}
    allowed = {
        "--out",  # a file or a folder, whichever the command writes
        "--preset",  # of training, or of a study's own file
        "--recipe",  # to train by, or a note that is kept with a run
        "--seed",  # of several networks, where it has no default
        "--checkpoint",
        "--pool",  # a list of scores by name, or a file of classes to draw from
        "--time",  # the column of a log, or whether a training is timed
    }
    assert set(several) <= allowed, several


def test_evaluate_takes_files_of_unknown_inputs_and_two_scores(files):
    test, other = files / "test.npz", files / "other.npz"
    new = run("evaluate", test, "--unknown", other, "--id", "entropy", "--ood", "energy", "--json")
    assert new.exit_code == 0, new.output
    old = run("evaluate", test, "--unknown", other, "--score", "entropy", "--second", "energy", "--json")
    assert new.stdout == old.stdout
    assert json.loads(new.stdout)["n_ood"] == 60
    lost = run("evaluate", test, "--ood", other)
    assert (lost.exit_code, "--unknown" in lost.stderr) == (2, True)
    assert "--second" not in run("evaluate", "--help").output


MISTYPED = [
    (["list", "scores", "--needs", "zzz"], "no field of outputs 'zzz'"),
    (["list", "scores", "--needs", "logit"], "did you mean 'logits'"),
    (["list", "transforms", "--needs", "zzz"], "no field of outputs 'zzz'"),
    (["list", "metrics", "--needs", "logits"], "--needs is for scores and transforms"),
    (["evaluate", "NPZ", "--id", "mps"], "'msp'"),
    (["evaluate", "NPZ", "--id", "react(percent=9)|energy"], "no setting 'percent'"),
    (["evaluate", "NPZ", "--id", "energy|"], "must be a name"),
    (["evaluate", "NPZ", "--ood", "enrgy"], "did you mean 'energy'"),
    (["evaluate", "NPZ", "--metric", "aurc,aucr"], "'aurc'"),
    (["score", "NPZ", "--score", "enrgy"], "did you mean 'energy'"),
    (["score", "RUN", "--score", "msp", "--name", "tset"], "did you mean 'test'"),
    (["gate", "fit", "RUN", "--id", "mps", "--out", "X"], "'msp'"),
    (["gate", "fit", "RUN", "--ood", "non", "--out", "X"], "no score or transform 'non'"),
    (["report", "NPZ", "--id", "mps", "--out", "X"], "'msp'"),
    (["report", "NPZ", "--score", "mps", "--out", "X"], "'msp'"),
    (["bench", "show", "cifar10-rael"], "did you mean 'cifar10-real'"),
    (["bench", "run", "digit", "--run", "RUN", "--out", "X"], "did you mean 'digits'"),
    (["bench", "run", "digits", "--run", "RUN", "--score", "mps", "--out", "X"], "'msp'"),
    (["bench", "run", "digits", "--run", "RUN", "--pair", "msp + enrgy", "--out", "X"], "did you mean 'energy'"),
    (["bench", "run", "digits", "--run", "RUN", "--protocol", "fd_shift", "--out", "X"], "did you mean 'fd_shifts'"),
    (["bench", "extract", "digit", "m", "--out", "X"], "did you mean 'digits'"),
    (["compare", "X", "--metric", "aurc", "--protocol", "fd_shift"], "did you mean 'fd_shifts'"),
    (["study", "show", "sure_pls"], "did you mean 'sure_plus'"),
    (["study", "show", "sure_plus", "--preset", "ful", "--no-time"], "did you mean 'full'"),
]


@pytest.mark.parametrize(
    ("args", "says"), MISTYPED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistyped_name_is_a_usage_error(files, tmp_path, args, says):
    places = {"NPZ": files / "test.npz", "RUN": files / "run", "X": tmp_path / "x"}
    done = run(*(places.get(arg, arg) for arg in args))
    assert (done.exit_code, says in done.stderr) == (2, True), done.output
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--recipe", "sure_pls", "--model", "resnet8_cifar", "--data", "x"], "did you mean 'sure_plus'"),
        (["--recipe", "basic", "--model", "resnet8_cifar", "--data", "x", "--preset", "cfar"], "did you mean 'cifar'"),
        (["--recipe", "basic", "--model", "resnet8_cifr", "--data", "noise:uniform?n=20&size=8"], "resnet8_cifar"),
        (["--recipe", "basic", "--model", "resnet8_cifar", "--data", "noize:uniform"], "did you mean 'noise'"),
    ],
)
def test_a_mistyped_name_of_training_is_a_usage_error(tmp_path, args, says):
    pytest.importorskip("torch", reason="training needs torch")
    done = run("train", *args, "--out", tmp_path / "x", "--dry-run")
    assert (done.exit_code, says in done.stderr) == (2, True), done.output


def test_messages_name_options_and_not_python_arguments(files, tmp_path):
    no_labels = tmp_path / "live.npz"
    np.savez(no_labels, logits=np.eye(3))
    said = [
        run("evaluate", files / "test.npz", "--id", "knn"),
        run("evaluate", no_labels),
        run("gate", "fit", no_labels, "--out", tmp_path / "g"),
        run("gate", "fit", files / "test.npz", "--id", "mds", "--out", tmp_path / "g"),
        run("gate", "fit", files / "test.npz", "--objective", "risk", "--out", tmp_path / "g"),
        run("gate", "show", files / "run"),
        run("gate", "card", tmp_path, files / "run"),
        run("verify", tmp_path),
        run("score", files / "test.npz", "--score", "mds"),
        run("report", tmp_path, "-o", tmp_path / "r.html"),
        run("bench", "run", "digits", "--run", tmp_path, "--out", tmp_path / "x"),
    ]
    for done in said:
        assert done.exit_code in (2, 3), done.output
        python = re.search(r"\w+=(?![\w>])|\w+\(\.\.\.\)|\.fit\(|Outputs\(|Run\.\w+", done.stderr)
        assert python is None, done.stderr


def test_in_terms_of_options_leaves_other_words_alone():
    command = COMMANDS["gate", "fit"]
    untouched = "knn(k=5) needs features, and coverage of 0.5 with labels=FILE"
    assert in_terms_of_options(untouched, command) == untouched
    assert in_terms_of_options("delta must be in (0, 1)", command) == "--delta must be in (0, 1)"
    assert in_terms_of_options("pass replace=True", COMMANDS["extract",]) == "pass --replace"


def complete(line, word=""):
    """What a shell is offered after the words of a line, by click's own protocol."""
    words = ["twofold", *line.split(), word]
    env = os.environ | {
        "_TWOFOLD_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    code = "import sys; sys.argv = ['twofold']; from twofold.cli import main; main(prog_name='twofold')"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_completion_in_a_shell():
    assert "energy" in complete("evaluate test.npz --ood", "ene")


def offered(line, word=""):
    from click.shell_completion import ShellComplete

    found = ShellComplete(main, {}, "twofold", "_TWOFOLD_COMPLETE").get_completions(line.split(), word)
    return {item.value for item in found}


def test_completion_offers_names():
    scores = set(step_names("score"))
    for line in ("evaluate x --id", "score x --score", "gate fit x --ood", "report x --id", "bench run digits --score"):
        assert scores <= offered(line), line
    assert offered("score x --score", "react|ener") == {"react|energy"}
    assert "react|" in offered("score x --score", "rea")
    assert "none" in offered("gate fit x --ood", "no")
    assert set(metrics.names()) <= offered("evaluate x --metric")
    assert offered("evaluate x --metric", "aurc,ds_f") == {"aurc,ds_f1"}
    assert {"aurc", "auroc_ood"} <= offered("compare x --metric", "au")
    for line in ("bench run", "bench show", "bench extract", "bench embed"):
        assert offered(line) == set(benchmark_names()), line
    assert "fd_shifts" in offered("bench run digits --protocol")
    assert "sure_plus" in offered("study run")
    assert offered("list scores --needs", "logits,fea") == {"logits,features"}


def test_completion_offers_recipes_and_models():
    pytest.importorskip("torch", reason="recipes need torch")
    assert {"sure_plus", "basic"} <= offered("train --recipe")
    assert "cifar" in offered("train --preset")
    assert "resnet18_32" in offered("train --model", "resnet18")
    assert "resnet18_32" in offered("extract", "resnet18")


WRITES = {"--out", "--sheet", "--figure", "--map"}
RESUMES = {
    ("train",): "Rerun the command to resume",
    ("bench", "extract"): "rerun the command to resume",
    ("bench", "run"): "rerun the command to resume",
    ("study", "run"): "Rerun it to resume",
    ("papers", "run"): "Rerun the command to resume",
    ("demo",): "The run of an earlier demo is replaced; any other folder is left alone",
}


@pytest.mark.parametrize(
    "path",
    [path for path, command in COMMANDS.items() if path[1:] != ("show",)],
    ids=" ".join,
)
def test_no_command_overwrites_without_being_told(path):
    command = COMMANDS[path]
    options = {name for param in command.params for name in param.opts}
    if not options & WRITES:
        return
    text = " ".join(run(*path, "--help").output.split())
    if path in RESUMES:
        assert RESUMES[path] in text
    else:
        assert "--replace" in options


def test_files_are_replaced_only_if_told(files, tmp_path):
    out = tmp_path / "conf.npz"
    assert run("score", files / "test.npz", "--score", "msp", "--out", out).exit_code == 0
    before = out.read_bytes()
    again = run("score", files / "test.npz", "--score", "energy", "--out", out)
    assert (again.exit_code, "--replace" in again.stderr) == (2, True)
    assert out.read_bytes() == before
    assert run("score", files / "test.npz", "--score", "energy", "--out", out, "--replace").exit_code == 0
    assert np.load(out).files == ["test/energy"]


def test_figures_are_replaced_only_if_told(tmp_path):
    figure = tmp_path / "ranks.svg"
    figure.write_text("mine")
    done = run("compare", tmp_path, "--metric", "aurc", "--figure", figure)
    assert (done.exit_code, "--replace" in done.stderr, figure.read_text()) == (2, True, "mine")


def test_data_files_are_replaced_only_if_told(tmp_path):
    pytest.importorskip("torch", reason="reading images needs the extra torch")
    out = tmp_path / "noise.npz"
    command = ("data", "resize", "noise:uniform?n=3&size=8", "--size", "8", "--rule", "shorter", "--out", out)
    assert run(*command).exit_code == 0
    assert run(*command).exit_code == 2
    assert run(*command, "--replace").exit_code == 0
    sheet = tmp_path / "sheet.png"
    sheet.write_text("mine")
    assert run("data", "check", "noise:uniform?n=3&size=8", "--sheet", sheet).exit_code == 2
    assert sheet.read_text() == "mine"
