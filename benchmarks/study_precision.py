"""The verdicts after 40 epochs with plain training in bfloat16, and in single precision where its cells are finished."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from study_cells import FinishedCells
from study_claim_files import write_sentence
from study_claims import StudyClaim
from study_lines import decide_claim
from study_sure_plus import tuned_claims
from timing import RESULTS
from twofold.bench.results import Results

FILE = RESULTS / "precision.csv"
COLUMNS = ("claim", "bf16", "verdict_bf16", "float32", "verdict_float32")


def write_precision() -> list[Path]:
    """Write the verdicts in both precisions; nothing where either study has no cell."""
    half = FinishedCells.open("sure_plus_tuned")
    single = FinishedCells.open("sure_plus_float32")
    if half is None or single is None:
        return []
    lines = list(precision_lines(half, single))
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return [FILE]


def precision_lines(half: FinishedCells, single: FinishedCells) -> Iterator[dict[str, str]]:
    """Yield each claim whose numbers single precision can change, with both intervals and verdicts."""
    retrained = {row["recipe"] for row in single.results.rows}
    mixed = take_cells(half, single)
    for claim in tuned_claims():
        if chosen_rows(claim, half).isdisjoint(retrained) or not is_complete(claim, half):
            continue
        before = decide_claim(claim, half)
        after = decide_claim(claim, mixed)
        yield {
            "claim": write_sentence(claim.text, claim.column),
            "bf16": before.ours,
            "verdict_bf16": before.verdict,
            "float32": after.ours,
            "verdict_float32": after.verdict,
        }


def chosen_rows(claim: StudyClaim, cells: FinishedCells) -> set[str]:
    """Return the rows that a claim compares, those that trials chose in place of their families."""
    return {cells.chosen.get(contender, contender.row) for contender in claim.contenders}


def is_complete(claim: StudyClaim, cells: FinishedCells) -> bool:
    """Tell whether the contender of a claim and all its rivals have finished cells."""
    return all(cells.rows(contender, claim.column) for contender in claim.contenders)


def take_cells(cells: FinishedCells, other: FinishedCells) -> FinishedCells:
    """Replace cells by those of the same name in another folder."""
    replaced = {row["run"] for row in other.results.rows}
    remaining = [row for row in cells.results.rows if row["run"] not in replaced]
    replicates = {**cells.results.replicates, **other.results.replicates}
    return replace(cells, results=Results.of([*remaining, *other.results.rows], replicates))
