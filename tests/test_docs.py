"""The generated pages are current, and every public name is documented."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from twofold import metrics, stats, steps

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("page", ["metrics.md", "scores.md", "benchmarks.md"])
def test_the_page_is_current(page):
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / page).read_text(encoding="utf-8") == module.PAGES[page](), "run python docs/generate.py"


def test_python_blocks_of_the_benchmark_page_run(tmp_path):
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "**" in done.stdout


def test_every_step_is_on_the_page():
    text = (DOCS / "scores.md").read_text(encoding="utf-8")
    for name in steps.names():
        assert f"### `{name}(" in text, name


def test_public_functions_have_a_docstring_with_an_example():
    for package in (metrics, stats):
        for name in package.__all__:
            thing = getattr(package, name)
            assert inspect.getdoc(thing), name
            if inspect.isfunction(thing) and thing is not metrics.register_metric and name not in ("names", "info"):
                assert ">>>" in inspect.getdoc(thing), f"{name} has no example"
