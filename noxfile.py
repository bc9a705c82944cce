"""The tasks of the project: `nox -s check`, `nox -s test`, `nox -s docs`, `nox -s bench`; `nox --list` shows all.

Each task makes its own environment under .nox. With `--no-venv` it uses the current one, as CI does.
"""

from __future__ import annotations

import re
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13"]
NEEDS_TORCH = [  # the other tests run without it
    "tests/nn",
    "tests/adapters",
    "tests/study",
    "tests/wrapping",
    "tests/papers/test_paper_extraction.py",
    "tests/scores/test_activations.py",
    "tests/scores/test_gradients.py",
]
ALSO_WITH_TORCH = ["cli", "contributing", "docs", "doctests", "layers", "light", "readme"]  # tests/test_NAME.py
CLUSTERS = [  # slow tests that start clusters and servers; each skips where its package, or Java, is missing
    "tests/adapters/test_mlflow_model.py",
    "tests/adapters/test_ray.py",
    "tests/adapters/test_serving.py",
    "tests/adapters/test_spark.py",
    "tests/bench/test_engines.py",
    "tests/bench/test_runner.py",
    "tests/logs/test_logs_spark.py",
]

GITHUB_FILES = {  # patterns by the name of their schema
    "github-workflows": ".github/workflows/*.yml",
    "dependabot": ".github/dependabot.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",  # all but config.yml
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "citation-file-format": "CITATION.cff",
}

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
    """Lint, format, types, docstrings and the files under .github."""
    install(session, "all")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("numpydoc", "lint", *public_modules())
    check_github_files(session)


@nox.session
def github_files(session: nox.Session) -> None:
    """Check the files under .github alone, which takes a second."""
    install(session, "dev")
    check_github_files(session)


def check_github_files(session: nox.Session) -> None:
    """Compare the files with their schemas and audit the workflows; nothing is downloaded."""
    for schema, pattern in GITHUB_FILES.items():
        files = [str(file) for file in sorted(Path().glob(pattern))]
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)
    session.run("zizmor", "--quiet", "--offline", ".github")


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
def test_slow(session: nox.Session) -> None:
    """Test what is slow, with torch: `test` skips some of it and `test_torch` leaves it out; arguments go to pytest."""
    install(session, "all")
    session.run("pytest", "-m", "slow", *session.posargs)


@nox.session
def test_cluster(session: nox.Session) -> None:
    """Test on real clusters and servers of this machine: Dask, Ray, Spark, MLflow, MLServer; arguments go to pytest."""
    install(session, "all", "ray", "spark", "serving")
    session.run("pytest", "-m", "slow", *CLUSTERS, *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site, tutorials executed; an argument names the folder."""
    install(session, "all")
    folder = session.posargs[0] if session.posargs else "site"
    session.run("mkdocs", "build", "--strict", "--site-dir", folder, env={"NO_MKDOCS_2_WARNING": "1"})


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
