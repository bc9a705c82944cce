"""Ctrl-C: the command ends with 130 and one line, what it wrote opens, and the same command resumes."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from training_toys import pictures  # noqa: E402

from twofold import Run  # noqa: E402
from twofold.nn.training.state import read_tensors  # noqa: E402

pytestmark = [
    pytest.mark.slow,  # each command starts three times, in processes of its own
    pytest.mark.skipif(os.name != "posix", reason="SIGINT is sent to a process"),
]
BENCHMARK = """
name = "interrupted"
title = "Noise"
source = "made here"
classes = 4
protocols = ["joint"]

[[sets]]
name = "test"
role = "test"
data = "noise:uniform?n=9000&size=32"

[[sets]]
name = "far"
role = "far"
data = "noise:gaussian?n=9000&size=32"
"""


def start(words):
    command = [sys.executable, "-m", "twofold.cli", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(words):
    process = start(words)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def interrupt(words, has_begun):
    """Start a command, press Ctrl-C once it has written something, and return what it printed to stderr."""
    process = start(words)
    deadline = time.monotonic() + 240
    while not has_begun():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert (
        errors.strip()
        .splitlines()[-1]
        .endswith("interrupted; what was finished is kept, run the same command again to resume")
    )
    return errors


def count_lines(path):
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def leftovers(folder):
    return [path.name for path in folder.rglob("*") if path.name.endswith(".tmp")]


def test_training(tmp_path):
    sheet = pictures(64)
    np.savez(tmp_path / "p.npz", images=sheet.read(), labels=sheet.labels)
    words = ["train", "--recipe", "crl", "--model", "resnet8_cifar", "--data", f"npz:{tmp_path / 'p.npz'}"]
    words += ["--epochs", 30, "--batch", 16, "--out"]
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    interrupt([*words, cut], lambda: count_lines(cut / "metrics.csv") >= 3)
    assert leftovers(cut) == []
    _, saved = read_tensors(cut / "state.safetensors")
    assert 2 <= saved["epoch"] < 30
    finish([*words, cut])
    finish([*words, whole])
    assert (cut / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()
    assert (cut / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


def test_extraction_of_a_benchmark(tmp_path):
    (tmp_path / "own.toml").write_text(BENCHMARK)
    torch.save(build_weights(), tmp_path / "weights.pt")
    words = ["bench", "extract", tmp_path / "own.toml", "resnet8_cifar", "--checkpoint", tmp_path / "weights.pt"]
    words += ["--batch", 64, "--out"]
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    interrupt([*words, cut], lambda: count_lines(cut / "test.safetensors.journal") >= 2)  # its plan and one shard
    assert leftovers(cut) == []
    half = Run.open(cut)
    half.verify()
    assert half.names() == []
    finish([*words, cut])
    finish([*words, whole])
    done = Run.open(cut)
    done.verify()
    assert done.names() == ["test", "far"]
    for name in ("test", "far"):
        file = f"{name}.safetensors"
        assert (cut / file).read_bytes() == (whole / file).read_bytes()


def build_weights():
    from twofold.nn import build

    return build("resnet8_cifar", 4).state_dict()
