"""Ratios measured in one run: contenders take turns, the best of several turns counts, nothing else is compared."""

from __future__ import annotations

import csv
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import twofold
from twofold.cli.shared import progress

RESULTS = Path(__file__).resolve().parents[1] / "results"


def best(
    contenders: dict[str, Callable[[], Any]], turns: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Measure the least seconds of each contender over interleaved turns, after one call to warm up.

    Pass ``clock=time.process_time`` where every contender works in one thread: the seconds of the processor hardly depend
    on what else the machine does.
    """
    least = dict.fromkeys(contenders, float("inf"))
    with progress() as bar:
        task = bar.add_task("", total=(turns + 1) * len(contenders))
        for turn in range(turns + 1):
            for name, run in contenders.items():
                bar.update(task, advance=1, description=str(name))
                start = clock()
                run()
                seconds = clock() - start
                if turn > 0:  # the first warms up
                    least[name] = min(least[name], seconds)
    return least


def row(case: str, quantity: str, value: float, unit: str, target: str) -> dict[str, str]:
    """Build the row of one measured number."""
    return {"case": case, "quantity": quantity, "value": f"{value:.4g}", "unit": unit, "target": target}


def said(text: str, holds: bool) -> str:
    """Return a sentence of a page if the numbers bear it out."""
    if not holds:
        sys.exit(f"not true of these numbers: {text}")
    return text


def processor() -> str:
    """Return the architecture, and the model of the processor where the system names it."""
    architecture = platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        named = re.search(r"^model name\s*: (.+)$", information.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if named is not None:
            return f"{architecture} ({named[1].strip()})"
    return architecture


def finish(name: str, rows: list[dict[str, str]], *, options: str = "", script: str | None = None) -> None:
    """Print the rows and, with --save, keep them in results/NAME.csv with the command that made them.

    With options that measure a part only, the other rows of the file stay. ``script`` is the name of the script where it
    is not that of the file.
    """
    for r in rows:
        print(f"{r['case']:<34} {r['quantity']:<52} {r['value']:>9} {r['unit']:<4} (target {r['target']})")
    if "--save" in sys.argv:
        command = f"python benchmarks/{script or name}.py{options} --save"
        where = f"{platform.python_implementation()} {platform.python_version()}, {processor()}, {os.cpu_count()} cores"
        extra = {"command": command, "version": twofold.__version__, "machine": where}
        made = [{**r, **extra} for r in rows]
        if options:
            made = _replace_rows(RESULTS / f"{name}.csv", made)
        with open(RESULTS / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(made[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(made)


def _replace_rows(path: Path, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Read the rows of a file, put new ones of the same case and quantity in their places, and add the others."""
    new = {(r["case"], r["quantity"]): r for r in rows}
    merged = []
    if not path.exists():
        return rows
    with path.open(newline="", encoding="utf-8") as file:
        for old in csv.DictReader(file):
            merged.append(new.pop((old["case"], old["quantity"]), old))
    return [*merged, *new.values()]
