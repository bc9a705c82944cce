"""Test gates on real classifiers: thresholds on other unknown sets, promises under shift, two scores against one.

    TWOFOLD_DATA=... python benchmarks/real_gate.py [--work FOLDER] [--save]        (about five minutes)

The runs are those of ``benchmarks/real_bench.py``, in the folder of --work (by default real-bench). Missing runs are
extracted first, which takes half an hour more and resumes. With --save the page, its table and its figure go to results/,
else to the folder. The numbers choose every sentence on a claim.

Every score is computed once, in real_gate_classifier.py. real_gate_transfer.py carries thresholds from one unknown set to
another, real_gate_promises.py makes promises and judges them, and real_gate_gains.py compares two scores with one.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from script import announce, work_folder

import twofold
from real_gate_classifier import Classifier, Row, open_classifier
from real_gate_figure import draw_risks
from real_gate_gains import gain_rows, gain_section
from real_gate_promises import KNOWN_SPLITS, MIXED_SPLITS, measure_promises
from real_gate_sentences import plain_words
from real_gate_tables import promise_rows, promise_section
from real_gate_transfer import measure_transfer, transfer_rows, transfer_section
from real_runs import MAIN, WORK, extract
from timing import RESULTS

COMMAND = "python benchmarks/real_gate.py --save"
SEEDS = {  # those of the other tables are 0
    "known inputs alone": f"0-{KNOWN_SPLITS - 1}",
    "a quarter unknown": f"0-{MIXED_SPLITS - 1}",
    "two against one": f"0-{MIXED_SPLITS - 1}",
}


def main() -> None:
    """Measure everything, and write the page, its figure and its rows."""
    work = work_folder(WORK)
    extract(MAIN, work)
    classifiers = [open_classifier(network, work / "runs") for network in MAIN]
    promises = {}
    transfers = {}
    for classifier in classifiers:
        announce(f"{classifier.name}: promises")
        promises[classifier.name] = measure_promises(classifier)
        announce(f"{classifier.name}: thresholds on other sets")
        transfers[classifier.name] = measure_transfer(classifier)
    announce("tables and figures")
    sections = [
        write_head(classifiers),
        transfer_section(classifiers, transfers),
        promise_section(classifiers, promises),
        gain_section(classifiers, promises),
        plain_words(classifiers, promises),
    ]
    rows = []
    for classifier in classifiers:
        rows += transfer_rows(classifier, transfers[classifier.name])
    rows += promise_rows(classifiers, promises)
    for classifier in classifiers:
        rows += gain_rows(classifier, promises[classifier.name].mixed)
    folder = work
    if "--save" in sys.argv:
        folder = RESULTS
    draw_risks(classifiers, promises, folder / "real_gate_shift.png")
    (folder / "real_gate.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    write_rows(rows, folder / "real_gate.csv")
    print(folder / "real_gate.md")


def write_head(classifiers: Sequence[Classifier]) -> str:
    """Write the title of the page, and what it is about."""
    names = ", ".join(classifier.name for classifier in classifiers)
    return f"""# What gates do on real classifiers

This page shows what gates do on two real classifiers ({names}): whether thresholds carry over to other unknown inputs,
what guaranteed risks become under shift, and what a second score gains. `{COMMAND}` writes it (with `TWOFOLD_DATA` set).

Scores have their default settings and learn from 10,000 training images. Rates are in percent."""


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write a row per number, with its seeds and the command."""
    columns = [field.name for field in fields(Row)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns, "seeds", "command", "version"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            cells = asdict(row)
            cells["value"] = f"{row.value:.6g}"
            cells["seeds"] = SEEDS.get(row.table, "0")
            cells["command"] = COMMAND
            cells["version"] = twofold.__version__
            writer.writerow(cells)


if __name__ == "__main__":
    main()
