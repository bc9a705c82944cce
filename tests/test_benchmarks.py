"""Every script of benchmarks/ says how it is run and how long it takes, runs alone, or ends with one clear line."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from twofold.errors import InvalidInput, MissingExtra

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if "if __name__ ==" in path.read_text(encoding="utf-8")]


def first_command(script):
    """The first command of the docstring, with the time it takes."""
    docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    return docstring.split("\n\n")[1]


WITHOUT_DATA_TOO = {"gate.py"}  # it then leaves out some rows
ON_DATA = [path for path in SCRIPTS if first_command(path).strip().startswith("TWOFOLD_DATA=")]
NEED_DATA = [path for path in ON_DATA if path.name not in WITHOUT_DATA_TOO]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_says_how_it_is_run_and_how_long_it_takes(script):
    command = first_command(script)
    assert f"python benchmarks/{script.name}" in command
    assert re.search(r"\(.*(second|minute|hour|\d+ s )", command), "how long does it take?"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_is_the_docstring_and_starts_nothing(script, tmp_path):
    done = run_script(script, tmp_path, "--help")
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stderr) == (0, "")
    assert first_command(script).strip().splitlines()[0] in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_unknown_option_is_a_usage_error(script, tmp_path):
    done = run_script(script, tmp_path, "--sav3")
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (2, "")
    assert "--sav3" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_the_expected_time_is_that_of_the_command(shared):
    text = (
        "Train.\n\n    python benchmarks/a.py [--save]    (an hour)\n    python benchmarks/a.py --page    (a second)\n"
    )
    assert shared.expected_time(text, ["--save"]) == "an hour"
    assert shared.expected_time(text, ["--page"]) == "a second"
    assert shared.expected_time("Train.\n\n    python benchmarks/a.py    (needs torch)\n", []) is None


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_needs_no_other_script_to_have_run(script, tmp_path):
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import {script.stem}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", done.stderr)
    if missing and missing[1] != "twofold":
        pytest.skip(f"{missing[1]} is not installed")
    assert done.returncode == 0, done.stderr


def run_script(script, folder, *arguments, **environment):
    """Run a script in an empty folder; without TWOFOLD_DATA unless it is given."""
    environment = {**os.environ, "TWOFOLD_DATA": "", **environment}
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", NEED_DATA, ids=lambda path: path.stem)
def test_without_data_the_script_ends_with_one_line(script, tmp_path):
    done = run_script(script, tmp_path)
    if "pip install" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"expected time: .*\n(.* \.\.\.\n)*set TWOFOLD_DATA to the folder with .*\n", done.stderr), (
        done.stderr
    )


def test_data_that_lack_a_file_are_named_with_the_file(tmp_path):
    done = run_script(FOLDER / "real_logits.py", tmp_path, TWOFOLD_DATA=str(tmp_path))
    assert done.stderr == f"expected time: seconds\nTWOFOLD_DATA is {tmp_path}, which has no cifar10_real_logits.npz\n"


def test_an_interrupted_script_ends_with_one_line(tmp_path):
    command = [sys.executable, str(FOLDER / "double_score.py")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        time = running.stderr.readline()
        begun = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        printed, last = running.communicate(timeout=60)
    assert time == "expected time: about two minutes\n"
    assert begun == "ds_f1 of 50,000 samples ...\n"
    assert (printed, last) == ("", "double_score.py: interrupted; nothing was written\n")
    assert running.returncode == -signal.SIGINT


@pytest.mark.parametrize(("name", "package"), [("extraction", "torch"), ("onnx_gate", "onnxruntime")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(name, package, tmp_path):
    code = (
        "import runpy, sys; sys.modules[sys.argv[2]] = None; sys.path.insert(0, sys.argv[1].rpartition('/')[0]); "
        "sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, (FOLDER / f"{name}.py").as_posix(), package]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    line = f'{name}.py: {package} is not installed: pip install -e ".[all]" -c constraints.txt'
    assert (done.returncode, done.stderr.splitlines()[1:]) == (1, [line])


@pytest.fixture
def shared(monkeypatch):
    """The module that scripts share, imported as by a test: it changes nothing of the interpreter."""
    monkeypatch.syspath_prepend(FOLDER)
    hook = sys.excepthook
    import script

    assert sys.excepthook is hook
    return script


def test_a_script_that_resumes_says_so_when_interrupted(shared, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "Train.\n\n    python train.py    (a day, resumable)\n")
    assert shared.last_line(KeyboardInterrupt()).endswith("run the same command again to resume")


def test_errors_of_twofold_are_one_line_and_bugs_keep_their_traceback(shared):
    assert shared.last_line(InvalidInput("logits has no rows")) == "logits has no rows"
    assert shared.last_line(MissingExtra("torch is not installed")) == "torch is not installed"
    assert shared.last_line(FileNotFoundError(2, "No such file", "a.npz")) == "a.npz does not exist"
    assert shared.last_line(ModuleNotFoundError("no", name="twofold.nothing")) is None
    assert shared.last_line(ZeroDivisionError()) is None


def test_the_folder_of_work_is_named_after_its_option(shared, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["real_runs.py", "--work", "here"])
    assert shared.work_folder("usual") == Path("here")
    monkeypatch.setattr(sys, "argv", ["real_runs.py"])
    assert shared.work_folder("usual") == Path("usual")
    monkeypatch.setattr(sys, "argv", ["real_runs.py", "--work"])
    with pytest.raises(SystemExit, match="--work needs a folder"):
        shared.work_folder("usual")
