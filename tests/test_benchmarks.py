"""Every script of benchmarks/ says how it is run and how long it takes, and can be imported alone."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_says_how_it_is_run_and_how_long_it_takes(script):
    docstring = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    first_command = docstring.split("\n\n")[1]
    assert f"python benchmarks/{script.name}" in first_command
    assert re.search(r"\(.*(second|minute|hour|\d+ s )", first_command), "how long does it take?"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_needs_no_other_script_to_have_run(script, tmp_path):
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import {script.stem}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", done.stderr)
    if missing and missing[1] != "twofold":
        pytest.skip(f"{missing[1]} is not installed")
    assert done.returncode == 0, done.stderr
