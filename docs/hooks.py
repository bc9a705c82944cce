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
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", flags=re.DOTALL)
SHOWN = re.compile(r"\$\$(.+?)\$\$", flags=re.DOTALL)
INLINE = re.compile(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])")
EXECUTED = ("index.md", "tutorials/engineer.md", "tutorials/researcher.md", "tutorials/auditor.md")
MADE = (".html", ".svg", ".png")  # what a tutorial makes and the site shows

_work = tempfile.TemporaryDirectory()  # until the process ends: `mkdocs serve` builds again and again
work = Path(_work.name)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and pictures of results."""
    from mkdocs.structure.files import File

    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".md", ".png") and path.name != "README.md":
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace mathematics outside code, and show what code prints."""
    from latex2mathml.converter import convert

    if page.file.src_uri in EXECUTED:
        markdown = _executed(page.file.src_uri, markdown)

    def drawn(display: str) -> Any:
        return lambda found: convert(found[1].strip(), display=display)

    parts = CODE.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = INLINE.sub(drawn("inline"), SHOWN.sub(drawn("block"), parts[i]))
    return "".join(parts)


def on_post_build(config: Any) -> None:
    """Put what the tutorials made beside them."""
    for uri in EXECUTED:
        made = (work / Path(uri).stem).iterdir() if (work / Path(uri).stem).exists() else ()
        for path in made:
            if path.suffix in MADE:
                shutil.copy(path, Path(config["site_dir"]) / Path(uri).parent / path.name)


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
    """The run that the pages begin with."""
    out = work / "demo"
    command = [sys.executable, "-m", "twofold.cli", "demo", "--out", out, "--resamples", "10"]
    subprocess.run(command, check=True, capture_output=True)
    return out
