"""The pages of the studies: the claims by verdict, each claim with its numbers, and the tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from claims import INCONCLUSIVE, NOT_TESTABLE, VERDICTS, write_claims
from study_aurc import aurc_claims
from study_catalogue import KEPT, STUDIES, VARIANTS, base_study, kept_records
from study_cells import ACCURACY, FinishedCells
from study_claim_files import as_claim, write_later
from study_lines import HEAD, ClaimLine, can_decide, decide_claim
from study_paradigms import best_lines, paradigm_claims, passes_section
from study_precision import is_complete, write_precision
from study_sure_plus import sure_plus_claims
from study_sure_plus_sections import sure_plus_study_sections
from study_testability import untestable_words, verdict_without_numbers
from study_unknown import softmax_section, unknown_claims
from tables import markdown
from timing import RESULTS
from twofold import study as studies

CLAIMS = {
    "sure_plus": sure_plus_claims,
    "aurc_finetune": aurc_claims,
    "unknown": unknown_claims,
    "paradigms": paradigm_claims,
}
SECTIONS = {  # what the page of a study has beyond its claims and tables
    "sure_plus": sure_plus_study_sections,
    "unknown": softmax_section,
    "paradigms": passes_section,
}
LEGEND = (
    "**Verdicts.** A claim *holds* or *does not hold* if the 95 % interval of the difference lies on one side of zero. "
    f"Otherwise it is *{INCONCLUSIVE}*. It is *{NOT_TESTABLE}* if the training here lacks what the claim is about, whatever "
    "the numbers are, or has one seed.",
    "**Differences.** A difference compares means over seeds on the same test images. If a claim names several rivals, the "
    "best of them here is taken. The interval is that of the gain, so negative means worse. Where one of two methods is the "
    "best of several, its lead could be luck; the end of the interval that it moves holds for all of them together.",
    "**Intervals.** They account for resampled images, and for seeds and splits. The spread over seeds is estimated from all "
    "rows of the study; for two scores on one network, from their differences. Limits are cut at the largest difference "
    "that the metric allows. Each line is at 95 % by itself, without a correction for the number of lines.",
)


# --- files ----------------------------------------------------------------------------------------------------------


def write_pages() -> list[Path]:
    """Write a page and a file of claims for each study, and the verdicts in both precisions."""
    paths = []
    for name in STUDIES:
        cells = FinishedCells.open(name)
        if cells is None:
            print(f"{name}: no cell is kept yet", file=sys.stderr)
        else:
            paths += write_study(cells)
    return [*paths, *write_later(), *write_precision()]


def write_study(cells: FinishedCells) -> list[Path]:
    """Write the page and the claims of a study and its variants."""
    variants = open_variants(cells.name)
    lines = []
    claims = []
    for line, line_cells in lines_with_cells(cells, variants):
        lines.append(line)
        claims.append(as_claim(line, line_cells))
    page = RESULTS / f"study_{cells.name}.md"
    page.write_text(study_page(cells, variants, lines), encoding="utf-8")
    return [page, write_claims(f"study_{cells.name}", claims)]


def open_variants(name: str) -> dict[str, FinishedCells]:
    """Open the variants of a study that have finished cells, by their names."""
    variants = {}
    for key, variant in VARIANTS.items():
        if variant.study != name:
            continue
        cells = FinishedCells.open(key)
        if cells is not None:
            variants[key] = cells
    return variants


def lines_with_cells(
    cells: FinishedCells, variants: dict[str, FinishedCells]
) -> Iterator[tuple[ClaimLine, FinishedCells]]:
    """Yield every line of a study and its variants, with the cells that it is about."""
    for line in study_lines(cells):
        yield line, cells
    for variant in variants.values():
        for line in variant_lines(variant):
            yield line, variant
    if cells.name == "paradigms":
        for line in best_lines(cells):
            yield line, cells


def study_lines(cells: FinishedCells) -> Iterator[ClaimLine]:
    """Yield a line for every claim of a study that has finished cells."""
    for claim in CLAIMS[cells.name]():
        if can_decide(claim, cells):
            yield decide_claim(claim, cells, verdict_without_numbers(cells.name, claim))


def variant_lines(cells: FinishedCells) -> Iterator[ClaimLine]:
    """Yield a line for every claim whose rows a variant has, all of them."""
    label = VARIANTS[cells.name].label
    for claim in CLAIMS[base_study(cells.name)]():
        if is_complete(claim, cells):
            labelled = replace(claim, text=f"{claim.text}, {label}")
            yield decide_claim(labelled, cells, verdict_without_numbers(cells.name, claim))


# --- text -----------------------------------------------------------------------------------------------------------


def study_page(cells: FinishedCells, variants: dict[str, FinishedCells], lines: Sequence[ClaimLine]) -> str:
    """Write the page of a study.

    Parameters
    ----------
    cells : FinishedCells
        Cells of the study.
    variants : dict of str to FinishedCells
        Cells of its variants, by name.
    lines : sequence of ClaimLine
        What the study and its variants say of the claims.
    """
    introduction, _, tables = studies.report(cells.study, KEPT / cells.name).rstrip().partition("\n\n## ")
    parts = [
        introduction,
        "## What the paper claims, and what happens here",
        *LEGEND,
        *untestable_words(cells, variants),
        list_by_verdict(lines),
        "## Every claim with its numbers",
        markdown(HEAD, [line.table_row() for line in lines]),
        f"## {tables}",
    ]
    if cells.name in SECTIONS:
        parts += SECTIONS[cells.name](cells)
    for variant in variants.values():
        tables = studies.table(variant.study, variant.results).replace("## ", "### ").rstrip()
        parts += [f"## The same {VARIANTS[variant.name].label}", summary(variant), tables]
    return "\n\n".join(parts) + "\n"


def summary(cells: FinishedCells) -> str:
    """Say at which scale a study was run, and by which command."""
    planned = cells.study.cells()
    finished = studies.finished(cells.study, KEPT / cells.name)
    seeds = sorted({cell.seed for cell in planned if cell.name in finished})
    epochs = sorted({record["epochs"] for record in kept_records(cells.name).values()})
    accuracies = []
    for value in studies.values(cells.study, cells.results):
        if (value.metric, value.shift) == (ACCURACY.metric, ACCURACY.shift):
            accuracies.append(100 * value.mean)
    title = "seeds"
    if len(seeds) == 1:
        title = "seed"
    return (
        f"{cells.study.model}, {' or '.join(map(str, epochs))} epochs, {title} {', '.join(map(str, seeds))}; "
        f"{len(finished)} of {len(planned)} cells are finished. Test accuracy is between {min(accuracies):.1f} and "
        f"{max(accuracies):.1f} %. Command: `{studies.command(cells.study)}`."
    )


def list_by_verdict(lines: Sequence[ClaimLine]) -> str:
    """List the claims by verdict, each with the columns that say so."""
    parts = []
    for verdict in VERDICTS:
        columns_by_claim: dict[str, list[str]] = {}
        count = 0
        for line in lines:
            if line.verdict == verdict:
                columns_by_claim.setdefault(line.text, []).append(line.measured_by)
                count += 1
        if count == 0:
            continue
        bullets = [f"- {text} ({', '.join(columns)})" for text, columns in columns_by_claim.items()]
        parts.append(f"**{verdict[0].upper()}{verdict[1:]}** ({count} of {len(lines)} lines):")
        parts.append("\n".join(bullets))
    return "\n\n".join(parts)
