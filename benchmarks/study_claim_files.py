"""The claims of studies in the common format: what stands in ``results/claims/study_*.csv``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from claims import NOT_TESTABLE, Claim, judge, untestable, write_claims
from study_catalogue import KEPT, SAVE, base_study, kept_records, load_study
from study_cells import AURC, Column, Contender, FinishedCells
from study_claims import StudyClaim
from study_lines import ClaimLine, count_seeds, decide_claim
from study_sure_plus import LATER_CLAIMS
from study_testability import reason, verdict_without_numbers
from sure_plus_cells import LABELS
from twofold import study as studies
from twofold.bench.text import scale


class Source(NamedTuple):
    """Name a paper and the table or figure that prints a claim."""

    paper: str
    printed_at: str


SOURCES = {  # by study
    "sure_plus": Source("sure_plus", "Table 3"),
    "sure_plus_tuned": Source("sure_plus", "Table 3"),
    "sure_plus_converged": Source("sure_plus", "Table 3"),
    "sure_plus_finetune": Source("sure_plus", "Table 4"),
    "aurc_finetune": Source("aurc_estimators", "Table 1"),
    "unknown": Source("unknown_detection", "Table 6"),
    "paradigms": Source("fd_shifts", "Table 1"),
}
AUGRC_SOURCE = Source("stratified_ood", "Table 2")
METRICS = {
    "accuracy": "accuracy",
    "aurc": "AURC",
    "augrc": "AUGRC",
    "auroc_ood": "AUROC",
    "ds_f1": "DS-F1",
    "ds_aurc": "DS-AURC",
}
SHIFTS = {"near": "near sets", "far": "far sets", "test": "test data", "pooled": "all unknown inputs together"}


# --- one line -------------------------------------------------------------------------------------------------------


def as_claim(line: ClaimLine, cells: FinishedCells) -> Claim:
    """Turn a line of a study into a claim: the interval of the gain in the direction that the paper claims, and its p.

    Parameters
    ----------
    line : ClaimLine
        The line.
    cells : FinishedCells
        The cells that it is about.
    """
    source = source_of(line.text, line.column, cells.name)
    factor, unit = scale(line.column.metric)
    sentence = write_sentence(line.text, line.column)
    if line.verdict == NOT_TESTABLE:
        return untestable(
            source.paper,
            sentence,
            printed_at=source.printed_at,
            printed=line.printed,
            why=f"{line.ours}. {reason(cells, line.difference.seeds)}",
            scale=describe_scale(cells),
            command=SAVE,
            unit=unit,
        )
    low, high = line.difference.gain_interval(line.worse)
    return judge(
        source.paper,
        sentence,
        printed_at=source.printed_at,
        printed=line.printed,
        ours=line.ours,
        low=factor * low,
        high=factor * high,
        p=line.difference.p_value,
        unit=f"{METRICS[line.column.metric]}, {unit or 'points'}",
        scale=describe_scale(cells),
        command=SAVE,
    )


def source_of(text: str, column: Column, name: str) -> Source:
    """Say where a claim of a study is printed."""
    if column.metric == "augrc":
        return AUGRC_SOURCE
    source = SOURCES[base_study(name)]
    if text.startswith("Figure 1a: "):
        return source._replace(printed_at="Figure 1a")
    prints_single_scores = source.printed_at == "Table 3" and column == AURC
    if prints_single_scores or "(Table 5)" in text:
        return source._replace(printed_at="Table 5")
    return source


def write_sentence(text: str, column: Column) -> str:
    """Write a claim and its column as a sentence, without the place where it is printed."""
    text = text.removeprefix("Figure 1a: ").replace(" (Table 5)", "").removesuffix(",")
    return f"{text[0].upper()}{text[1:]}: {name_column(column)}"


def name_column(column: Column) -> str:
    """Name the metric of a column and the data that it is measured on."""
    return f"{METRICS[column.metric]}, {SHIFTS.get(column.shift, column.shift)}"


def describe_scale(cells: FinishedCells) -> str:
    """Say at which scale a study ran, in one line."""
    records = kept_records(cells.name)
    epochs = sorted({record["epochs"] for record in records.values()})
    images = max(record["images"] for record in records.values())
    seeds = {name.rpartition("-s")[2].split("-")[0] for name in records}
    words = [
        cells.study.model,
        f"{' or '.join(map(str, epochs))} epochs",
        f"{images:,} images",
        count_seeds(len(seeds)),
    ]
    if cells.name in LATER_CLAIMS:
        words.append(f"{len(records)} cells")
    return ", ".join(words)


# --- studies that are being filled ----------------------------------------------------------------------------------


def write_later() -> list[Path]:
    """Write the claims of the studies that are being filled, from the cells that are there."""
    paths = []
    for name, make_claims in LATER_CLAIMS.items():
        paths.append(write_claims(f"study_{name}", decide_later(name, make_claims())))
    return paths


def decide_later(name: str, study_claims: list[StudyClaim]) -> list[Claim]:
    """Decide the claims of a study that is being filled; those whose cells are missing are not testable yet."""
    cells = FinishedCells.open(name)
    if cells is None:
        return [unfinished_claim(claim, name, sorted(claim.rows)) for claim in study_claims]
    decided = []
    for claim in study_claims:
        asked = cells.on_benchmark(claim.benchmark)
        missing = missing_rows(claim, asked)
        if missing:
            decided.append(unfinished_claim(claim, name, missing))
        else:
            line = decide_claim(claim, asked, verdict_without_numbers(name, claim))
            decided.append(as_claim(line, asked))
    return decided


def missing_rows(claim: StudyClaim, cells: FinishedCells) -> list[str]:
    """List the rows of a claim that have no finished cell."""
    missing = []
    for row in sorted(claim.rows):
        contender = Contender(row, claim.contender.method)
        if not cells.rows(contender, claim.column):
            missing.append(row)
    return missing


def unfinished_claim(claim: StudyClaim, name: str, missing: list[str]) -> Claim:
    """Make a claim that waits for the cells of some rows.

    Parameters
    ----------
    claim : StudyClaim
        The claim.
    name : str
        Name of the study.
    missing : list of str
        The rows.
    """
    study = load_study(name)
    finished = len(studies.finished(study, KEPT / name))
    labels = [LABELS.get(row, row) for row in missing]
    why = f"Not testable yet: no cell of {', '.join(labels)} is finished with the setting that is compared"
    source = source_of(claim.text, claim.column, name)
    return untestable(
        source.paper,
        write_sentence(claim.text, claim.column),
        printed_at=source.printed_at,
        printed=claim.printed,
        why=why,
        scale=f"{study.model}, {finished} cells",
        command=f"{studies.command(study)}; {SAVE}",
    )
