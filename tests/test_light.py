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
        "from click.testing import CliRunner; from twofold.cli import main; CliRunner().invoke(main, ['--help'])",
    ],
    ids=["import", "public names", "help"],
)
def test_nothing_heavy_is_loaded(code):
    assert loaded_after(code) == set()


def test_kernels_load_on_first_use():
    assert "numba" in loaded_after("import twofold; twofold.metrics.auroc([True, False], [1.0, 0.0])")


def test_public_names_resolve():
    import twofold

    for name in twofold.__all__:
        assert getattr(twofold, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        twofold.nonsense  # noqa: B018
