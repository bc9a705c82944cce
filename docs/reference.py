"""The API reference: a page for every public module, made from its docstrings by mkdocstrings.

A module is public when no part of its name begins with an underscore. The command line has its own page.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
sys.path.insert(0, str(HERE))  # mkdocs loads this file by its path

from markup import draw_formulas, fence_examples, markdown  # noqa: E402

ELSEWHERE = ("twofold.cli",)  # described on the page of commands


@dataclass(frozen=True)
class Definition:
    """Hold a public class, function or method: where it is defined, and its first sentence."""

    path: str
    summary: str


@cache
def modules() -> tuple[str, ...]:
    """List the public modules, packages before what is in them."""
    found = []
    for file in sorted((SOURCE / "twofold").rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        is_private = any(part.startswith("_") for part in name.split("."))
        if not is_private and not name.startswith(ELSEWHERE):
            found.append(name)
    return tuple(sorted(found))


@cache
def definitions() -> dict[str, tuple[Definition, ...]]:
    """Find the public classes, functions and methods of every public module."""
    return {module: tuple(_defined_in(module)) for module in modules()}


def page(module: str) -> str:
    """Write the page of a module: its docstring and definitions, or what a package offers.

    Parameters
    ----------
    module : str
        Name of a public module.

    Returns
    -------
    str
        Markdown for mkdocstrings.
    """
    lines = [f"# `{module}` {{ #{module} }}", "", f"::: {module}"]  # the anchor that references to a module lead to
    exported = _exported(module)
    if exported:
        lines += ["", f"## Names that `{module}` offers", "", "| name | what it does |", "|---|---|"]
        for name, path in exported.items():
            lines.append(f"| [`{name}`][{path}] | {markdown(_summaries()[path])} |")
    inside = [name for name in modules() if name.rpartition(".")[0] == module]
    if inside:
        lines += ["", "## Modules", ""]
        lines += [f"- [`{name}`]({name}.md)" for name in inside]
    return "\n".join(lines) + "\n"


def navigation() -> list[dict[str, object]]:
    """Group the pages of the modules by package, as mkdocs' `nav` wants them."""
    groups: dict[str, list[dict[str, str]]] = {}
    for module in modules():
        package = ".".join(module.split(".")[:2])
        groups.setdefault(package, []).append({module: f"reference/{module}.md"})
    nav: list[dict[str, object]] = []
    for package, pages in groups.items():
        nav.append({package: pages} if len(pages) > 1 else dict(pages[0]))
    return nav


def link(name: str) -> str:
    """Link a name to the definition it can only mean; leave it as code where there is none or several."""
    short = name.removeprefix("twofold.")
    targets = {one.path for found in definitions().values() for one in found if one.path.endswith(f".{short}")}
    targets |= {module for module in modules() if module.endswith(f".{short}")}
    if len(targets) == 1:
        return f"[`{name}`][{targets.pop()}]"
    return f"`{name}`"


class Docstrings(griffe.Extension):
    """Rewrite docstrings as Markdown before mkdocstrings renders them."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            text = fence_examples(markdown(obj.docstring.value, link))
            obj.docstring.value = draw_formulas(text)  # the hook for pages does not see docstrings


@cache
def _summaries() -> dict[str, str]:
    """Map the path of every public definition to its first sentence."""
    return {one.path: one.summary for found in definitions().values() for one in found}


def _tree(module: str) -> ast.Module:
    stem = SOURCE.joinpath(*module.split("."))
    file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _defined_in(module: str) -> list[Definition]:
    """Find the public definitions of one module."""
    found: list[Definition] = []

    def visit(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            is_definition = isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            if not is_definition or node.name.startswith("_") or _is_override(node):
                continue
            path = f"{owner}.{node.name}"
            summary = (ast.get_docstring(node) or "").split("\n\n")[0]
            found.append(Definition(path, " ".join(summary.split())))
            if isinstance(node, ast.ClassDef):
                visit(node.body, path)

    visit(_tree(module).body, module)
    return found


def _is_override(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a method replaces one of its base class, which documents it."""
    return any(isinstance(one, ast.Name) and one.id == "override" for one in node.decorator_list)


def _exported(package: str) -> dict[str, str]:
    """Map the names that a package offers to the paths of their definitions, from its imports."""
    folder = SOURCE.joinpath(*package.split("."))
    if not folder.is_dir():
        return {}
    stub = folder / "__init__.pyi"  # of a package whose names resolve on first access
    file = stub if stub.exists() else folder / "__init__.py"
    found: dict[str, str] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            home = f"{package}.{node.module}" if node.level else node.module
            if not home.startswith(f"{package}."):
                continue
            for name in _imported(home, node):
                path = _definition(home, name)
                if path is not None:
                    found[name] = path
    return dict(sorted(found.items()))


def _imported(home: str, node: ast.ImportFrom) -> list[str]:
    """List the names that a line imports from a module; those in its ``__all__`` where it imports everything."""
    names = [one.name for one in node.names]
    if names != ["*"]:
        return names
    for statement in _tree(home).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    return []


def _definition(module: str, name: str) -> str | None:
    """Find where a name that a module offers is defined, if that is in a public module."""
    path = f"{module}.{name}"
    if path in _summaries():
        return path
    if SOURCE.joinpath(*module.split(".")).is_dir():
        return _exported(module).get(name)
    return None
