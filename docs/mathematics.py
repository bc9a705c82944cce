"""MkDocs hook: mathematics between dollar signs becomes MathML, which browsers draw without any script."""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", flags=re.DOTALL)
SHOWN = re.compile(r"\$\$(.+?)\$\$", flags=re.DOTALL)
INLINE = re.compile(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace mathematics outside code."""
    from latex2mathml.converter import convert

    def drawn(display: str) -> Any:
        return lambda found: convert(found[1].strip(), display=display)

    parts = CODE.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = INLINE.sub(drawn("inline"), SHOWN.sub(drawn("block"), parts[i]))
    return "".join(parts)
