"""Tables of numbers on the pages of real_bench.py and real_gate.py."""

from __future__ import annotations

import math
from collections.abc import Sequence


def markdown(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Write a Markdown table, numbers to the right; the bar of a chain of scores ends no cell."""
    written = [
        "| " + " | ".join(header) + " |",
        "|---|" + "---:|" * (len(header) - 1),
    ]
    for line in lines:
        cells = [str(cell).replace("|", "\\|") for cell in line]
        written.append("| " + " | ".join(cells) + " |")
    return "\n".join(written)


def number(value: float, factor: float = 100, digits: int = 2) -> str:
    """Write a number, by default a rate in percent; a dash where there is none."""
    if math.isnan(value):
        return "–"
    return f"{factor * value:.{digits}f}"


def numbers(values: Sequence[float], factor: float = 100, digits: int = 2) -> list[str]:
    """Write several numbers."""
    return [number(value, factor, digits) for value in values]
