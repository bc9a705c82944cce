"""README shows only what works."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from twofold.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)


def test_the_blocks_run_in_order(tmp_path, monkeypatch):
    """As a new user would: the Python blocks, then the commands, which read the files that these write."""
    code = "\n".join(text for language, text in BLOCKS if language == "python")
    assert code
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ds_aurc" in done.stdout
    assert "p = " in done.stdout
    run_commands(tmp_path, monkeypatch)


def test_the_two_commands_are_one_line_each():
    shell = [text.strip() for language, text in BLOCKS if language == "sh"]
    assert shell[0] == "pip install . && twofold demo"
    assert shell[1] == 'pip install ".[test]" && pytest'


def run_commands(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(main, ["demo", "--resamples", "10"]).exit_code == 0  # what the first command runs
    shell = "\n".join(text for language, text in BLOCKS if language == "sh").replace("\\\n", " ")
    commands = [line for line in shell.splitlines() if line.startswith("twofold ")]
    assert len(commands) >= 2
    for line in commands:
        if line.startswith(("twofold extract", "twofold train")) and not prepared_photos():
            continue  # torch is not installed
        result = CliRunner().invoke(main, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)


def prepared_photos():
    """Pictures and weights of the names that README uses."""
    if importlib.util.find_spec("torch") is None:
        return False
    from PIL import Image

    from twofold.nn import build

    np.savez("weights.npz", **{k: v.numpy() for k, v in build("resnet20_cifar", 10).state_dict().items()})
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for digit in range(10):
            folder = Path("photos") / split / str(digit)
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(13):
                Image.fromarray(rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return True


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()
