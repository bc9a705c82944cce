"""CONTRIBUTING's "add a metric" works as printed: two files change in a copy of the package, and every law holds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import twofold

HERE = Path(__file__).resolve().parent
TEXT = (HERE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
SEEN = """
import twofold
from twofold import metrics
result = twofold.evaluate([True, False, True, False], [0.9, 0.8, 0.7, 0.1], only="all")
assert result.my_metric == metrics.my_metric([True, False, True, False], [0.9, 0.8, 0.7, 0.1]) == 0.5
assert "my_metric" in metrics.names("selective")
assert "my_metric" in metrics.__all__
table = metrics.intervals([True, False] * 20, list(range(40)), only=["my_metric"], n=20)
assert table["my_metric"].low <= table["my_metric"].value
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package and of the tests of metrics, changed as CONTRIBUTING says."""
    section = TEXT.split("## Add a metric")[1].split("\n## ")[0]
    function, oracle = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(twofold.__file__).parent, folder / "src" / "twofold")  # compiled kernels too
    shutil.copytree(HERE, folder / "metrics", ignore=shutil.ignore_patterns("__pycache__", "test_adding_a_metric.py"))
    module, oracles = folder / "src" / "twofold" / "metrics" / "selective.py", folder / "metrics" / "oracles.py"
    module.write_text(add_to("__all__ = [\n", '    "my_metric",\n', module) + "\n\n" + function, encoding="utf-8")
    oracles.write_text(add_to("ORACLES = {\n", oracle, oracles), encoding="utf-8")
    return folder


def add_to(opening, entry, file):
    """The text of a file with an entry added to one of its lists."""
    before, after = file.read_text(encoding="utf-8").split(opening)
    return before + opening + entry + after


def run(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_every_law_holds(copy):
    laws = run(
        copy,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"),
        *("metrics/test_every_metric.py", "metrics/test_evaluate.py"),
        *("-k", "my_metric or test_evaluate or has_an_oracle or by_task"),
    )
    assert int(re.search(r"(\d+) passed", laws)[1]) > 60


def test_it_is_exported_evaluated_and_documented(copy):
    run(copy, "-c", SEEN)
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules", "src/twofold/metrics/selective.py")
    assert "my_metric" in run(copy, "-m", "twofold.cli", "list", "metrics")
