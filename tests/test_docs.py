"""The generated pages are current, and every public name is documented."""

import importlib.util
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from twofold import metrics, stats, steps
from twofold.cli import main

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("page", ["metrics.md", "scores.md", "benchmarks.md", "recipes.md", "commands.md"])
def test_the_page_is_current(page):
    if page == "recipes.md":
        pytest.importorskip("torch", reason="torch is not installed")
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / page).read_text(encoding="utf-8") == module.PAGES[page](), "run python docs/generate.py"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The run that the pages begin with."""
    out = tmp_path_factory.mktemp("demo") / "twofold-demo"
    assert CliRunner().invoke(main, ["demo", "--out", str(out), "--resamples", "10"]).exit_code == 0
    return out


PAGES = [
    "index.md",
    "gate.md",
    "howto.md",
    "benchmarks.md",
    *(f"tutorials/{p.name}" for p in DOCS.glob("tutorials/*.md")),
]
ELSEWHERE = ("twofold demo", "twofold extract", "twofold train", "twofold bench extract")  # tested by themselves


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_works(page, demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(demo, "twofold-demo")
    rng = np.random.default_rng(0)
    np.savez("scores.npz", correct=rng.random(200) < 0.8, conf=rng.normal(size=200))
    blocks = re.findall(r"```(\w+)\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    code = "\n".join(text for language, text in blocks if language == "python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shell = "\n".join(text for language, text in blocks if language == "sh").replace("\\\n", " ")
    lines = [line for line in shell.splitlines() if line.startswith("twofold ") and not line.startswith(ELSEWHERE)]
    for line in [] if page == "benchmarks.md" else lines:
        result = CliRunner().invoke(main, shlex.split(line.partition(" > ")[0])[1:])
        assert result.exit_code == 0, (line, result.output)


@pytest.mark.parametrize("page", [p.relative_to(DOCS).as_posix() for p in sorted(DOCS.rglob("*.md"))])
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        beside, results = (DOCS / page).parent / target, DOCS.parent / target  # the site has a copy of results/
        assert beside.exists() or (target.startswith("results/") and results.exists()), target


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
