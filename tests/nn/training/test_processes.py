"""Two processes train as one does: every recipe, micro-batches, resuming, and what is left when a process dies."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from safetensors.torch import load_file  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

import sessions  # noqa: E402

from twofold.nn.recipes import RECIPES, recipe  # noqa: E402

pytestmark = pytest.mark.slow  # two processes start twice, and train by every recipe


def launch(what, out):
    """Start two processes of this machine."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, sessions.__file__, what, str(out)], check=False, timeout=900, env=environment, capture_output=True
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Folders of all trainings of one session of two processes, of which the second dies at the end."""
    out = tmp_path_factory.mktemp("pair")
    ended = launch("everything", out)
    assert ended.returncode != 0
    assert (out / "killed" / "state.safetensors").exists(), ended.stderr.decode()[-4000:]
    return out


def weights(folder):
    return load_file(folder / "weights.safetensors")


def distance(one, other):
    assert one.keys() == other.keys()
    return max(float((one[key] - other[key]).abs().max()) for key in one)


@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_equal_one(name, pair, tmp_path):
    """Gradients of ascent steps, dropout masks, coins, outliers, pairs and ranks are those of the whole batch."""
    alone = sessions.run(name, tmp_path / name)
    assert distance(alone.model.state_dict(), weights(pair / name)) < 1e-5
    if name != "rebn":
        moved = sessions.tiny(recipe(name)).state_dict()
        kept = {key: value for key, value in alone.model.state_dict().items() if key in moved}
        assert distance(kept, moved) > 1e-4
        rows = (pair / name / "metrics.csv") if name != "confidnet" else pair / name / "classifier" / "metrics.csv"
        text = rows.read_text().splitlines()
        last = dict(zip(text[0].split(","), map(float, text[-1].split(",")), strict=True))
        history = alone.history[:2]
        assert last["loss"] == pytest.approx(history[-1]["loss"], abs=1e-5)
        assert last["train_accuracy"] == pytest.approx(history[-1]["train_accuracy"])


@pytest.mark.parametrize("name", sessions.ACCUMULATED)
def test_two_processes_with_micro_batches_equal_one(name, pair, tmp_path):
    alone = sessions.run(name, tmp_path / name)
    assert distance(alone.model.state_dict(), weights(pair / f"{name}-accumulated")) < 1e-5


def test_clipped_gradients_are_those_of_the_whole_batch(pair, tmp_path):
    alone = sessions.run("sure_plus", tmp_path / "clipped", clip_norm=0.05).model.state_dict()
    assert distance(alone, weights(pair / "clipped")) < 1e-5
    assert distance(alone, weights(pair / "sure_plus")) > 1e-4  # something was clipped


def test_pairs_within_shares_differ_from_those_over_the_batch(pair):
    assert distance(weights(pair / "apart"), weights(pair / "regmixup")) > 1e-4


def test_resumed_training_ends_with_the_same_weights(pair):
    assert distance(weights(pair / "stopped"), weights(pair / sessions.CUT)) <= 1e-6


def test_a_training_whose_process_was_killed_resumes_in_two_or_one(pair, tmp_path):
    assert not (pair / "killed" / "weights.safetensors").exists()  # they are written after the last epoch
    shutil.copytree(pair / "killed", tmp_path / "killed")
    alone = sessions.run(sessions.CUT, tmp_path / "killed")
    assert distance(alone.model.state_dict(), weights(pair / sessions.CUT)) < 1e-5
    ended = launch("killed", pair)
    assert ended.returncode == 0, ended.stderr.decode()[-4000:]
    assert distance(weights(pair / "killed"), weights(pair / sessions.CUT)) <= 1e-6
