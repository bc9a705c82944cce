"""The generated page is current, and every public name of metrics is documented."""

import importlib.util
import inspect
from pathlib import Path

from twofold import metrics, stats

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_metrics_page_is_current():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == module.page(), "run python docs/generate.py"


def test_public_functions_have_a_docstring_with_an_example():
    for package in (metrics, stats):
        for name in package.__all__:
            thing = getattr(package, name)
            assert inspect.getdoc(thing), name
            if inspect.isfunction(thing) and thing is not metrics.register_metric and name not in ("names", "info"):
                assert ">>>" in inspect.getdoc(thing), f"{name} has no example"
