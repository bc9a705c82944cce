"""Every docstring example of the installed package runs and gives what it says."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import twofold

MODULES = [m.name for m in pkgutil.walk_packages(twofold.__path__, "twofold.")]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = import_module(name)
    import numpy as np

    result = doctest.testmod(
        module, extraglobs={"np": np}, optionflags=doctest.NORMALIZE_WHITESPACE, raise_on_error=False
    )
    assert result.failed == 0


def test_examples_exist():
    finder = doctest.DocTestFinder(exclude_empty=True)
    counted = sum(len(t.examples) for m in MODULES for t in finder.find(import_module(m)))
    assert counted > 100
