"""Claims by paper, with their verdicts after Holm's correction, for the pages of benchmarks/findings.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from claims import BEYOND, INCONCLUSIVE, NOT_TESTABLE, VERDICTS, Claim, read_all
from twofold.stats import holm

ALPHA = 0.05
UNCORRECTED = "no p-value"
ORDER = ("sure_plus", "fd_shifts", "aurc_estimators", "stratified_ood", "unknown_detection", BEYOND)
NAMES = {
    "sure_plus": "SURE+",
    "fd_shifts": "FD-Shifts",
    "aurc_estimators": "AURC estimators",
    "stratified_ood": "Stratified OOD",
    "unknown_detection": "Unknown detection",
    BEYOND: "Text, and beyond the papers",
}


@dataclass(frozen=True)
class Line:
    """Hold a claim, the file that it is from, and its verdict after Holm's correction over its paper."""

    claim: Claim
    file: str
    corrected: str

    @property
    def is_testable(self) -> bool:
        """Whether the claim has an interval."""
        return self.claim.low is not None

    @property
    def stem(self) -> str:
        """The claim without the column that measures it, where a study measures one claim by several."""
        if not self.file.startswith("study_"):
            return self.claim.claim
        return self.claim.claim.rpartition(": ")[0]


@dataclass(frozen=True)
class Paper:
    """Hold the claims of a paper."""

    name: str
    lines: list[Line]

    @property
    def title(self) -> str:
        """The short name of the paper."""
        return NAMES[self.name]

    @property
    def testable(self) -> list[Line]:
        """The lines that have an interval."""
        return [line for line in self.lines if line.is_testable]

    def groups(self) -> dict[str, list[Line]]:
        """Join the lines of one claim that is measured by several columns."""
        by_stem: dict[str, list[Line]] = {}
        for line in self.lines:
            by_stem.setdefault(line.stem, []).append(line)
        return by_stem


def read_papers() -> list[Paper]:
    """Read every claim, by paper, and correct the verdicts of each paper for the number of its claims."""
    claims_of: dict[str, list[Claim]] = {name: [] for name in ORDER}
    files_of: dict[str, list[str]] = {name: [] for name in ORDER}
    for file, claims in read_all().items():
        for claim in claims:
            claims_of[claim.paper].append(claim)
            files_of[claim.paper].append(file)
    papers = []
    for name, claims in claims_of.items():
        if claims:
            lines = map(Line, claims, files_of[name], correct(claims))
            papers.append(Paper(name, list(lines)))
    return papers


def correct(claims: Sequence[Claim]) -> list[str]:
    """Return the verdicts after Holm's correction: what is no longer significant becomes inconclusive."""
    with_p = [claim for claim in claims if claim.p is not None]
    adjusted = iter(holm(np.array([claim.p for claim in with_p])) if with_p else [])
    verdicts = []
    for claim in claims:
        if claim.verdict == NOT_TESTABLE:
            verdicts.append(NOT_TESTABLE)
        elif claim.p is None:
            verdicts.append(UNCORRECTED)
        elif next(adjusted) < ALPHA:
            verdicts.append(claim.verdict)
        else:
            verdicts.append(INCONCLUSIVE)
    return verdicts


def tally(verdicts: Iterable[str]) -> str:
    """Write one verdict, or how many of each."""
    counts = Counter(verdicts)
    if len(counts) == 1:
        ((verdict, count),) = counts.items()
        return verdict if count == 1 else f"{verdict} ({count})"
    order = (*VERDICTS, UNCORRECTED)
    return ", ".join(f"{verdict} ({counts[verdict]})" for verdict in order if counts[verdict])


def verdict_words(lines: Sequence[Line]) -> str:
    """Write the verdicts of the lines of a claim, and those after the correction where they differ."""
    plain = tally(line.claim.verdict for line in lines)
    corrected = tally(line.corrected for line in lines)
    if corrected == plain:
        words = plain
    elif corrected == UNCORRECTED:
        words = f"{plain} ({UNCORRECTED})"
    else:
        words = f"{plain}; after correction {corrected}"
    return words.replace(INCONCLUSIVE, "inconclusive")
