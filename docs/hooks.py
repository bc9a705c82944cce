"""MkDocs hooks.

Mathematics between dollar signs becomes MathML; the pages of results/ join the site; tutorials are executed, show what
their code prints, and have the pages and figures that it makes beside them.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))  # mkdocs loads this file by its path

import reference  # noqa: E402
from markup import draw_formulas  # noqa: E402

RESULTS = DOCS.parent / "results"
ROOT_PAGES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "citation.md": "CITATION.cff",
    "security.md": "SECURITY.md",
}
EXECUTED = ("index.md", "tutorials/engineer.md", "tutorials/researcher.md", "tutorials/auditor.md", "gallery.md")
MADE = (".html", ".svg", ".png")  # what a tutorial makes and the site shows

_work = tempfile.TemporaryDirectory()  # until the process ends: `mkdocs serve` builds again and again
work = Path(_work.name)


def on_config(config: Any) -> Any:
    """Put a page for every public module into the navigation."""
    config["nav"].append({"API reference": reference.navigation()})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the API reference, the pages and pictures of results, and the pages at the root of the project."""
    from mkdocs.structure.files import File

    for module in reference.modules():
        uri = f"reference/{module}.md"
        files.append(File.generated(config, uri, content=reference.page(module)))
    for uri, name in ROOT_PAGES.items():
        content = (DOCS.parent / name).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=_as_page(name, content)))
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".md", ".png") and path.name != "README.md":
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def _as_page(name: str, content: str) -> str:
    """Turn a file at the root of the project into a page: links lead into the site, the citation is shown as it is."""
    if name == "CITATION.cff":
        lead = "# Citation\n\nCite twofold, and the papers whose metrics, protocols or recipes you use.\n\n"
        return f"{lead}```yaml\n{content}```\n"
    return content.replace("](docs/", "](")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace mathematics outside code, and show what code prints."""
    if page.file.src_uri in EXECUTED:
        markdown = _executed(page.file.src_uri, markdown)
    return draw_formulas(_as_site_links(markdown))


def _as_site_links(markdown: str) -> str:
    """Lead links between docs/ and results/, which are neighbours in the repository, to their places on the site."""
    markdown = re.sub(r"\]\(\.\./((?:\.\./)*results/)", r"](\1", markdown)
    return markdown.replace("](../docs/", "](../")


def on_post_build(config: Any) -> None:
    """Check that the reference is complete, and put what the tutorials made beside them."""
    _check_reference(Path(config["site_dir"]) / "objects.inv")
    for uri in EXECUTED:
        made = (work / Path(uri).stem).iterdir() if (work / Path(uri).stem).exists() else ()
        for path in made:
            if path.suffix in MADE:
                shutil.copy(path, Path(config["site_dir"]) / Path(uri).parent / path.name)


def _check_reference(inventory: Path) -> None:
    """Stop the build when a public definition is not in the inventory of the site."""
    *_, entries = inventory.read_bytes().split(b"\n", 4)  # four lines of text, then compressed entries
    described = {line.split()[0] for line in zlib.decompress(entries).decode().splitlines()}
    missing = []
    for definitions in reference.definitions().values():
        missing += [one.path for one in definitions if one.path not in described]
    if missing:
        raise RuntimeError(f"the API reference lacks {', '.join(missing)}; does each have a docstring?")


def _executed(uri: str, markdown: str) -> str:
    spec = importlib.util.spec_from_file_location("executed", DOCS / "executed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = work / Path(uri).stem
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier build
    shutil.copytree(_demo(), folder / "twofold-demo")
    command = [sys.executable, DOCS / "executed.py", DOCS / uri]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{uri} does not run:\n{done.stderr}")
    return str(module.with_outputs(markdown, json.loads(done.stdout)))


@cache
def _demo() -> Path:
    """Make the run that the pages begin with."""
    out = work / "demo"
    command = [sys.executable, "-m", "twofold.cli", "demo", "--out", out, "--resamples", "10"]
    subprocess.run(command, check=True, capture_output=True)
    return out
