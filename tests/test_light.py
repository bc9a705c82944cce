"""Importing is light: heavy packages load where they are used, nothing compiles at import."""

import subprocess
import sys

import pytest

HEAVY = ("numba", "scipy", "sklearn", "pandas", "torch", "rich", "networkx", "matplotlib")


def loaded_after(code: str) -> set[str]:
    report = f"{code}\nimport sys\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.parametrize(
    "code",
    [
        "import twofold",
        "import twofold; twofold.Outputs; twofold.Run; twofold.metrics; twofold.stats",
        "import twofold; twofold.nn; twofold.bench; twofold.adapters; twofold.report; twofold.study; twofold.gate",
        "from click.testing import CliRunner; from twofold.cli import main; CliRunner().invoke(main, ['--help'])",
    ],
    ids=["import", "public names", "modules", "help"],
)
def test_nothing_heavy_is_loaded(code):
    assert loaded_after(code) == set()


def test_kernels_load_on_first_use():
    assert "numba" in loaded_after("import twofold; twofold.metrics.auroc([True, False], [1.0, 0.0])")


def test_public_names_resolve():
    import twofold

    for name in twofold.__all__:
        assert getattr(twofold, name) is not None
    with pytest.raises(AttributeError, match="No twofold attribute nonsense"):
        twofold.nonsense  # noqa: B018


def run_fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


WALK = """
import types, twofold
for name in (
    "adapters", "bench", "errors", "gate", "logs", "metrics", "nn", "papers", "report", "scores", "stats", "study",
):
    module = getattr(twofold, name)
    assert isinstance(module, types.ModuleType), name
    assert module.__name__ == f"twofold.{name}", module
    assert name in dir(twofold) and name in twofold.__all__
assert callable(twofold.report.report)
assert callable(twofold.study.load)
assert callable(twofold.papers.load)
assert callable(twofold.adapters.reliability_score)
assert twofold.bench.PROTOCOLS
assert twofold.gate.Gate is twofold.Gate
"""


def test_every_module_is_reachable_after_one_import():
    run_fresh(WALK)


def test_networks_are_reachable_after_one_import():
    pytest.importorskip("torch", reason="torch is not installed")
    shown = run_fresh("import twofold; print(twofold.nn.load.__name__, twofold.nn.data.open.__name__)")
    assert shown.split() == ["load", "open"]
    run_fresh(
        "import twofold\n"
        "for name in twofold.nn.__all__:\n"
        "    assert getattr(twofold.nn, name).__name__ in (name, 'twofold.nn.' + name)"
    )


@pytest.mark.parametrize("name", ["load", "train", "training"])
def test_without_torch_a_network_gives_the_install_line(name):
    code = f"""
import sys
sys.modules["torch"] = None
import twofold
try:
    twofold.nn.{name}
except twofold.errors.MissingExtra as error:
    print(error)
"""
    assert run_fresh(code) == f'twofold.nn.{name} needs torch: pip install "twofold[torch]"\n'
