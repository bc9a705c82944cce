"""Scores of other packages reach the library and the command line: --plugin, and entry points of installed packages."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from twofold.errors import InvalidInput, UnknownName
from twofold.outputs import Outputs
from twofold.scores.registry import load_plugin

MODULE = """
import numpy as np
import twofold

@twofold.register_score({name!r}, paper="a test")
def score(logits, *, power=1.0):
    \"\"\"Lead of the largest logit over the mean.\"\"\"
    z = np.asarray(logits, dtype=np.float64)
    return (z.max(axis=1) - z.mean(axis=1)) ** power
"""


def twofold(*args, path=(), cwd=None):
    """Run the command in a process of its own, with folders in front of the module path."""
    paths = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": paths, "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-m", "twofold.cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cwd)


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 3, 60)
    outputs = Outputs(rng.normal(size=(60, 3)), labels)
    outputs.to_npz(tmp_path / "data.npz")
    z = outputs.logits
    return tmp_path / "data.npz", z.max(axis=1) - z.mean(axis=1)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "plugins"
    place.mkdir()
    (place / "lead_score.py").write_text(MODULE.format(name="lead"))
    return place


def test_a_module_on_the_path_is_a_plugin(data, folder, tmp_path):
    path, want = data
    done = twofold("score", path, "--plugin", "lead_score", "--score", "lead", "--json", path=[folder])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["lead"] == pytest.approx(want)
    again = twofold("score", path, "--score", "lead(power=2.0)", "--plugin", "lead_score", "--json", cwd=folder)
    assert json.loads(again.stdout)["data"]["lead(power=2.0)"] == pytest.approx(want**2), again.stderr
    without = twofold("score", path, "--score", "lead", path=[folder])
    assert (without.returncode, "no score or transform 'lead'" in without.stderr) == (2, True)

    gate = tmp_path / "gate"
    fitted = twofold("gate", "fit", path, "--id", "lead", "--out", gate, "--plugin", "lead_score", path=[folder])
    assert fitted.returncode == 0, fitted.stderr
    shown = twofold("gate", "apply", gate, path, "--plugin", "lead_score", path=[folder])
    assert len(shown.stdout.splitlines()) == 61, shown.stderr


@pytest.mark.parametrize("command", ["evaluate", "score", "gate fit", "gate apply", "gate card", "gate show", "report"])
def test_commands_with_scores_take_plugins(command):
    from click.testing import CliRunner

    from twofold.cli import main

    assert "--plugin MODULE" in CliRunner().invoke(main, [*command.split(), "--help"]).output


def test_processes_that_share_a_benchmark_know_the_plugin(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    (folder / "shared_score.py").write_text(MODULE.format(name="lead_shared"))
    code = """
from twofold.scores.registry import info, load_plugin
from functools import partial
from twofold.bench.engines import Workers, execute
load_plugin("shared_score")
tasks = [partial(info, "lead_shared"), partial(info, "msp")]
found = {index: record.name for index, record in execute(tasks, Workers(jobs=2))}
assert found == {0: "lead_shared", 1: "msp"}, found
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, env=os.environ
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_plugin_is_one_line(data, folder):
    path, _ = data
    (folder / "taken.py").write_text(MODULE.format(name="msp"))
    (folder / "broken.py").write_text("import no_such_module_at_all")
    for module, says in [
        ("lead_scores", "no module 'lead_scores'"),
        ("lead_score.py", "without .py"),
        ("taken", "'msp' is registered already"),
        ("broken", "cannot be imported: ModuleNotFoundError"),
    ]:
        done = twofold("score", path, "--plugin", module, "--score", "msp", path=[folder])
        assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    with pytest.raises(UnknownName):
        load_plugin("nowhere.at.all")
    with pytest.raises(InvalidInput):
        load_plugin("")


def installed(folder, module, name="plugin"):
    """What pip leaves of a package that has an entry point."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[twofold.scores]\n{name} = {module}\n")


def test_an_entry_point_is_found_by_itself(data, folder):
    path, want = data
    installed(folder, "lead_score")
    done = twofold("score", path, "--score", "lead", "--json", path=[folder])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["lead"] == pytest.approx(want)
    assert "lead " in twofold("list", "scores", path=[folder]).stdout
    code = "import twofold; print('lead_score' in __import__('sys').modules); twofold.scorer('lead')"
    env = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    lazy = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (lazy.returncode, lazy.stdout.strip()) == (0, "False"), lazy.stderr


def test_a_broken_entry_point_is_a_warning_and_costs_only_its_scores(data, folder):
    path, _ = data
    installed(folder, "no_such_module_at_all", "halfgone")
    done = twofold("score", path, "--score", "msp", path=[folder])
    assert done.returncode == 0, done.stderr
    warning = [line for line in done.stderr.splitlines() if "halfgone" in line]
    assert len(warning) == 1
    assert warning[0].startswith("Warning: the scores no_such_module_at_all of halfgone cannot be loaded")
