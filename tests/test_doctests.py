"""Every docstring example of the installed package runs and gives what it says."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import twofold

FOUND = pkgutil.walk_packages(twofold.__path__, "twofold.", onerror=lambda name: None)
MODULES = [m.name for m in FOUND if not m.name.endswith("__main__")]
NETWORKS = ("twofold.nn", "twofold.wrapping.networks")
TORCH = [name for name in MODULES if name.startswith(NETWORKS)]  # without torch these cannot be imported
READS_RECIPES = ("twofold.study.parse", "twofold.study.spec")  # their examples open studies, which name recipes
LIBRARY = {f"twofold.adapters.{name}": name for name in ("torchmetrics", "lightning")}  # nor these without theirs
LIBRARY["twofold.adapters.openinference"] = "mlserver"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    if name in TORCH or name in READS_RECIPES:
        pytest.importorskip("torch", reason="torch is not installed")
    if name in LIBRARY:
        pytest.importorskip(LIBRARY[name], reason=f"{LIBRARY[name]} is not installed")
    module = import_module(name)
    import numpy as np

    result = doctest.testmod(
        module, extraglobs={"np": np}, optionflags=doctest.NORMALIZE_WHITESPACE, raise_on_error=False
    )
    assert result.failed == 0


def test_examples_exist():
    finder = doctest.DocTestFinder(exclude_empty=True)
    counted = sum(
        len(t.examples) for m in MODULES if m not in TORCH and m not in LIBRARY for t in finder.find(import_module(m))
    )
    assert counted > 100
