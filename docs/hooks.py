"""MkDocs hooks: mathematics between dollar signs becomes MathML, and the pages of results/ join the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", flags=re.DOTALL)
SHOWN = re.compile(r"\$\$(.+?)\$\$", flags=re.DOTALL)
INLINE = re.compile(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])")


RESULTS = Path(__file__).resolve().parents[1] / "results"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and pictures of results."""
    from mkdocs.structure.files import File

    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".md", ".png") and path.name != "README.md":
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace mathematics outside code."""
    from latex2mathml.converter import convert

    def drawn(display: str) -> Any:
        return lambda found: convert(found[1].strip(), display=display)

    parts = CODE.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = INLINE.sub(drawn("inline"), SHOWN.sub(drawn("block"), parts[i]))
    return "".join(parts)
