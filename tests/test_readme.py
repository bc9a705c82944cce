"""README shows only what works, and fits on two screens before the links."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from twofold.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)


def test_the_blocks_run_in_order(tmp_path, monkeypatch):
    """As a new user would: the demo, the Python blocks, then the commands, which read the files that these write."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["demo", "--resamples", "10"]).exit_code == 0  # what the first command runs

    code = "\n".join(text for language, text in BLOCKS if language == "python")
    assert code
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ds_aurc" in done.stdout
    assert "p = " in done.stdout

    shell = "\n".join(text for language, text in BLOCKS if language == "sh")
    commands = [line for line in shell.splitlines() if line.startswith("twofold ")]
    assert len(commands) >= 5
    for line in commands:
        result = CliRunner().invoke(main, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)


def test_the_two_commands_are_one_line_each():
    shell = [text.strip() for language, text in BLOCKS if language == "sh"]
    assert shell[0] == "pip install . && twofold demo"
    assert shell[1] == 'pip install ".[test]" && pytest'


def test_it_fits_on_two_screens_before_the_links():
    before, _, _ = README.partition("## Where to go next")
    assert len(before.splitlines()) <= 120


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()
