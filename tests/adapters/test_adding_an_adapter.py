"""CONTRIBUTING's "add an adapter" works as printed: two files of a copy of the package, and every law holds."""

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
USED = """
import numpy as np
import twofold
from twofold.adapters import my_report
rng = np.random.default_rng(0)
logits, labels = rng.normal(size=(60, 3)), rng.integers(-1, 3, 60)
outputs = twofold.Outputs(logits, labels)
conf = twofold.scorer("energy").score(outputs)
names = ["accuracy", "aurc", "auroc_ood"]
want = twofold.evaluate(outputs.correct, conf, is_id=outputs.is_id, only=names)
assert my_report(logits, labels, metrics=names, id="energy") == dict(want)
assert set(my_report(logits, labels)) == {"accuracy", "aurc", "augrc", "auroc", "fpr95", "ece"}
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package with the adapter that CONTRIBUTING prints, and the laws of adapters."""
    section = TEXT.split("## Add an adapter")[1].split("\n## ")[0]
    module, line = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    folder = tmp_path_factory.mktemp("copy")
    adapters = folder / "src" / "twofold" / "adapters"
    shutil.copytree(Path(twofold.__file__).parent, adapters.parent)  # compiled kernels too
    (adapters / "my_library.py").write_text(module, encoding="utf-8")
    stub = adapters / "__init__.pyi"
    listed = stub.read_text(encoding="utf-8").replace("__all__ = [\n", '__all__ = [\n    "my_report",\n')
    stub.write_text(line + listed, encoding="utf-8")
    shutil.copy(HERE / "test_adapters.py", folder / "test_adapters.py")
    return folder


def run(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_every_law_holds(copy):
    run(
        copy,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "test_adapters.py",
        "-k",
        "my_report or loads",
    )


def test_it_gives_the_numbers_of_evaluate(copy):
    run(copy, "-c", USED)
    run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules", "src/twofold/adapters/my_library.py")
