"""Tables of the pages that scripts write."""

from __future__ import annotations

from collections.abc import Sequence


def markdown(header: Sequence[object], lines: Sequence[Sequence[object]]) -> str:
    """Write a Markdown table; the bar of a chain of scores ends no cell."""
    rows = [_row(header), "|" + "---|" * len(header)]
    for line in lines:
        rows.append(_row(line))
    return "\n".join(rows)


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
