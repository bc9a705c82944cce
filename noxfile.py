"""The tasks of the project: `nox -s check`, `nox -s test`, `nox -s docs`, `nox -s bench`; `nox --list` shows all.

Each task makes an environment of its own under .nox. With `--no-venv` it uses the current one, as CI does.
"""

from __future__ import annotations

import re
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13"]
NEEDS_TORCH = ["tests/nn", "tests/adapters", "tests/study"]  # the other tests run without it
ALSO_WITH_TORCH = ["cli", "contributing", "docs", "doctests", "layers", "light", "readme"]  # tests/test_NAME.py

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["check", "test"]


def install(session: nox.Session, *extras: str) -> None:
    """Install the project with extras under the constraints, unless the current environment is used."""
    if isinstance(session.virtualenv, nox.virtualenv.PassthroughEnv):
        return
    if "all" in extras:
        constraints = Path("constraints.txt").read_text(encoding="utf-8")
        torch = re.search(r"^torch==[0-9.]+", constraints, flags=re.MULTILINE)
        session.install(torch[0])  # before other packages ask for a range
    session.install("-c", "constraints.txt", f".[{','.join(extras)}]")


@nox.session
def check(session: nox.Session) -> None:
    """Lint, format, types and docstrings."""
    install(session, "all")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("numpydoc", "lint", *public_modules())


@nox.session(python=PYTHONS)
def test(session: nox.Session) -> None:
    """Test without torch; arguments go to pytest."""
    install(session, "test")
    session.run("pytest", *session.posargs)


@nox.session
def test_torch(session: nox.Session) -> None:
    """Test what needs torch, and what differs with it; arguments go to pytest."""
    install(session, "all")
    files = [f"tests/test_{name}.py" for name in ALSO_WITH_TORCH]
    session.run("pytest", "-m", "not slow", *NEEDS_TORCH, *files, *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site, tutorials executed; an argument names the folder."""
    install(session, "all")
    folder = session.posargs[0] if session.posargs else "site"
    session.run("mkdocs", "build", "--quiet", "--strict", "--site-dir", folder, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def build(session: nox.Session) -> None:
    """Build the wheel and look into it; an argument names the folder."""
    install(session, "dev")
    folder = session.posargs[0] if session.posargs else "dist"
    session.run("python", "-m", "build", "--wheel", "--outdir", folder, ".", silent=True)
    session.run("python", "-m", "zipfile", "--test", str(*Path(folder).glob("*.whl")))


@nox.session
def bench(session: nox.Session) -> None:
    """Run benchmarks by name, `nox -s bench -- single_score gate`; by default those that take a minute or two."""
    install(session, "all")
    for name in session.posargs or ["single_score", "double_score", "resampling", "start_up"]:
        session.run("python", f"benchmarks/{name}.py")


def public_modules() -> list[str]:
    """List the modules whose docstrings are the API reference; the command line documents itself with `--help`."""
    files = sorted(Path("src/twofold").rglob("*.py"))
    return [str(file) for file in files if "cli" not in file.parts and not re.search(r"/_(?!_init)", file.as_posix())]
