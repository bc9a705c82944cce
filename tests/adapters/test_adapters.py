"""The package resolves its names lazily and says what to install."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from twofold import Outputs, adapters
from twofold.errors import MissingExtra

LIBRARIES = {"SelectiveClassifier": "sklearn", "Reliability": "torchmetrics", "ReliabilityCallback": "lightning"}


def test_importing_the_package_loads_no_library():
    code = (
        "import sys, twofold.adapters; print([m for m in ('sklearn', 'torch', 'pandas', 'mlflow') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", adapters.__all__)
def test_every_name_resolves(name):
    library = LIBRARIES.get(name)
    if library and find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    assert getattr(adapters, name).__name__.rpartition(".")[2] == name
    assert name in dir(adapters)


def test_no_other_name_does():
    with pytest.raises(AttributeError, match=r"attribute.*nonsense"):
        adapters.nonsense  # noqa: B018


@pytest.mark.parametrize(("name", "library"), [("Reliability", "torchmetrics"), ("ReliabilityCallback", "lightning")])
def test_a_missing_library_is_named_with_the_install_line(monkeypatch, name, library):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.delitem(vars(adapters), name, raising=False)
    for module in [m for m in sys.modules if m.split(".")[0] == library or m.startswith("twofold.adapters.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    if library == "lightning":
        pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    with pytest.raises(MissingExtra, match=rf'needs {library}.*pip install "twofold\[adapters\]"'):
        getattr(adapters, name)


def test_functions_say_it_when_they_are_called(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r'mlflow: pip install "twofold\[adapters\]"'):
        adapters.log("report.html")
    with pytest.raises(MissingExtra, match=r'pandas: pip install "twofold\[report\]"'):
        adapters.to_frame(Outputs([[1.0, 0.0]]))
