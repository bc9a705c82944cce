"""Each module imports only from lower levels, and heavy packages only inside functions."""

import ast
import re
from pathlib import Path

import pytest

import twofold

ROOT = Path(twofold.__file__).parent
LEVELS = {
    "errors": 0,
    "typing": 0,
    "roles": 0,
    "_defaults": 0,
    "_checks": 0,
    "_csv": 0,
    "_data_spec": 0,
    "_math": 0,
    "_kernels": 0,
    "_files": 0,
    "_npz": 0,
    "_notebook": 0,
    "_json": 0,
    "_toml": 0,
    "outputs": 1,
    "metrics": 2,
    "stats": 1,
    "run": 2,
    "scores": 3,
    "gate": 4,
    "logs": 5,
    "bench": 5,
    "plot": 6,
    "report": 6.5,
    "nn": 7,
    "adapters": 8,
    "demo": 8,
    "wrapping": 8,
    "study": 8,
    "papers": 9,
    "cli": 10,
}
HEAVY = {"scipy", "sklearn", "pandas", "torch", "networkx", "rich", "numba", "matplotlib"}
FILES = sorted(p for p in ROOT.rglob("*.py"))


def part(path: Path) -> str:
    """The module or package right below twofold."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(tree: ast.AST, *, top_only: bool = False):
    nodes = tree.body if top_only and isinstance(tree, ast.Module) else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path):
    own = part(path)
    if own == "__init__":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name in imports(tree):
        pieces = name.split(".")
        if pieces[0] != "twofold" or len(pieces) < 2 or pieces[1] not in LEVELS:
            continue
        other = pieces[1]
        if other == own:
            continue
        if other == "plot" and own in ("metrics", "gate", "bench") and name not in set(imports(tree, top_only=True)):
            continue  # the method plot of results
        if (own, name) == ("gate", "twofold.nn.to_onnx") or (own, name) == ("gate", "twofold.nn"):
            continue  # inside Gate.to_onnx
        if (own, name) in (("gate", "twofold.adapters.export_gate"), ("gate", "twofold.adapters")):
            continue  # inside Gate.export
        same_floor = LEVELS[own] == 0 and LEVELS[other] == 0
        assert LEVELS[other] < LEVELS[own] or same_floor, f"{own} imports {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_packages_are_imported_where_used(path):
    if path.stem.endswith("_kernels"):  # themselves imported inside functions only
        return
    if part(path) == "adapters":  # each is a page on one library, imported by name
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tops = {name.split(".")[0] for name in imports(tree, top_only=True)}
    may_import_torch = part(path) == "nn" or path.parts[-2:] == ("wrapping", "networks.py")  # imported where used
    assert not tops & (HEAVY - {"torch"} if may_import_torch else HEAVY)
    assert not any(name.endswith("_kernels") for name in imports(tree, top_only=True))


def test_every_module_has_a_level():
    assert {part(p) for p in FILES} - {"__init__"} == set(LEVELS)


def test_torch_stays_in_nn_and_adapters():
    for path in (p for p in FILES if part(p) not in ("nn", "adapters") and p.parts[-2:] != ("wrapping", "networks.py")):
        names = {name.split(".")[0] for name in imports(ast.parse(path.read_text(encoding="utf-8")))}
        assert "torch" not in names, path


def test_no_two_modules_define_a_public_class_of_the_same_name():
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def read_map():
    """The entry of each package in CONTRIBUTING's map: its line, and those below it that name no other."""
    text = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"## The map\n\n```\nsrc/twofold/\n(.*?)```", text, flags=re.DOTALL)
    entries: dict[str, str] = {"": ""}  # what is no package has no name
    package = ""
    for line in lines.splitlines():
        start = re.match(r"  (?:  )?(\w+)(/|\.py) ", line)
        if start is not None:
            inside = "nn/" if line.startswith("    ") else ""
            package = f"{inside}{start[1]}" if start[2] == "/" else ""
        entries[package] = f"{entries.get(package, '')} {line}"
    return entries


@pytest.mark.parametrize("package", sorted({path.parent for path in FILES} - {ROOT}), ids=lambda path: path.name)
def test_the_map_for_contributors_names_every_module(package):
    """Adapters and commands are left to their folders; a package inside a package is part of its entry."""
    entries = read_map()
    name = str(package.relative_to(ROOT).as_posix())
    while name not in entries:
        name = name.rpartition("/")[0]
    words = set(re.findall(r"\w+", entries[name]))
    assert package.name in words | set(re.findall(r"\w+", " ".join(entries.values())))
    if name not in ("adapters", "cli") and package.name != "_fitting":
        assert sorted({path.stem for path in package.glob("*.py")} - words - {"__init__"}) == []


def test_the_map_for_contributors_names_nothing_else():
    named = set(re.findall(r"(\w+)(?:\.py|/)", " ".join(read_map().values())))
    packages = {path.parent.name for path in FILES}
    folders = {path.name for path in ROOT.rglob("files")}
    assert sorted(named - packages - folders - {path.stem for path in FILES}) == []
    tops = {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    assert sorted(tops - named) == []
