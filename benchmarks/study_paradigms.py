"""The claims on training with learned confidences, and the best of all scores and trainings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from study_cells import Column, Contender, FinishedCells
from study_claims import StudyClaim, direction, find_best, make_claim, printed_number
from study_differences import Choices
from study_lines import ClaimLine, compare
from twofold.bench.published import Anchor, anchors

LEARNED = {"confidnet": "confidnet", "devries": "devries", "gamblers": "gambler"}  # score that each training learns
PRINTED_NAMES = {"confidnet": "ConfidNet", "devries": "DeVries", "gamblers": "Deep Gamblers"}
SHIFTS = ("test", "corruption", "subclass", "cifar10", "svhn", "textures")
FAR = ("svhn", "textures")

# Fifty passes of the same networks with dropout
SOFTMAX_PASSES = Contender("ce_dropout", "mc_msp")
LOGIT_PASSES = Contender("ce_dropout", "mc_mls")
ENTROPY_PASSES = Contender("ce_dropout", "mc_entropy")
EXPECTED_ENTROPY = Contender("ce_dropout", "mc_expected_entropy")
MUTUAL_INFORMATION = Contender("ce_dropout", "mc_mutual_information")


# --- claims ---------------------------------------------------------------------------------------------------------


def paradigm_claims() -> list[StudyClaim]:
    """Make the claims on learned confidences, and on scores of fifty passes."""
    claims = []
    for row, score in LEARNED.items():
        text = f"{PRINTED_NAMES[row]} does not beat the softmax"
        for shift in SHIFTS:
            claims.append(aurc_claim(text, shift, Contender(row, score), Contender("ce", "msp"), worse=True))
    text = "the softmax with dropout beats ConfidNet on test data"
    claims.append(aurc_claim(text, "test", SOFTMAX_PASSES, Contender("confidnet", "confidnet")))
    text = "training with Deep Gamblers helps the softmax on test data"
    claims.append(aurc_claim(text, "test", Contender("gamblers_dropout", "mc_msp"), SOFTMAX_PASSES))
    for shift in ("test", "corruption", "subclass", *FAR):
        worse = shift not in FAR
        text = f"max logit is {direction(worse)} than the softmax, fifty passes"
        claims.append(aurc_claim(text, shift, LOGIT_PASSES, SOFTMAX_PASSES, worse))
    for shift in SHIFTS:
        text = "entropy is no better than the softmax, fifty passes"
        claims.append(aurc_claim(text, shift, ENTROPY_PASSES, SOFTMAX_PASSES, worse=True))
    text = "expected entropy is better than mutual information on test data"
    claims.append(aurc_claim(text, "test", EXPECTED_ENTROPY, MUTUAL_INFORMATION))
    for shift in SHIFTS[1:]:
        text = "mutual information is not better under shift either"
        claims.append(aurc_claim(text, shift, MUTUAL_INFORMATION, EXPECTED_ENTROPY, worse=True))
    return claims


def aurc_claim(text: str, shift: str, contender: Contender, rival: Contender, worse: bool = False) -> StudyClaim:
    """Make a claim on the AURC under a shift."""
    return make_claim(text, Column("aurc", shift, "fd_shifts"), contender, [rival], printed, worse)


def printed(contender: Contender, column: Column) -> float | None:
    """Look up a number in Table 1 of FD-Shifts."""
    recipe = without_dropout(contender)
    if recipe == "ce":
        recipe = "basic"
    benchmark = benchmark_of(column.shift)
    return printed_number("fd_shifts", "1", benchmark, column, recipe, contender.method, model="vgg13")


def without_dropout(contender: Contender) -> str:
    """Return the row of a contender that is trained without dropout."""
    return contender.row.removesuffix("_dropout")


def benchmark_of(shift: str) -> str:
    """Return the benchmark of the paper that has a shift."""
    return "fd-supercifar100" if shift == "subclass" else "fd-cifar100"


# --- the best of all scores and trainings ---------------------------------------------------------------------------


@dataclass(frozen=True)
class BestOf:
    """Compare the best of some contenders with the best of others, all chosen with hindsight, as in the papers.

    Parameters
    ----------
    text : str
        The claim that the first are ahead.
    column : Column
        What it is measured by.
    means : dict of Contender to float
        Means of the contenders.
    other_means : dict of Contender to float
        Means of the others.
    printed : list of Anchor
        The best numbers in print that bear on the claim.
    """

    text: str
    column: Column
    means: dict[Contender, float]
    other_means: dict[Contender, float]
    printed: list[Anchor]

    @property
    def is_ahead(self) -> bool:
        """Whether the first are ahead here."""
        return min(self.means.values()) < min(self.other_means.values())

    def line(self, cells: FinishedCells) -> ClaimLine:
        """Write the comparison as a line of the table of claims."""
        numbers = " against ".join(f"{anchor.recipe} {anchor.value:.5g}" for anchor in self.printed)
        words = "no number"
        if numbers:
            words = f"best: {numbers}"
        best = find_best(self.means, self.column)
        rival = find_best(self.other_means, self.column)
        choices = Choices(len(self.means), len(self.other_means))
        return compare(cells, self.text, words, self.column, best, rival, choices=choices)


def best_lines(cells: FinishedCells) -> list[ClaimLine]:
    """Write the best scores and trainings as lines of the table of claims."""
    comparisons = compare_passes(cells)
    comparisons += compare_paradigms(comparisons)
    lines = []
    for comparison in comparisons:
        if comparison.means and comparison.other_means:
            lines.append(comparison.line(cells))
    return lines


def compare_passes(cells: FinishedCells) -> list[BestOf]:
    """Compare the best score with fifty passes with the best with one, by AURC and AUGRC under every shift."""
    text = "the best score with fifty passes beats the best with one"
    comparisons = []
    for metric in ("aurc", "augrc"):
        for shift in SHIFTS:
            column = Column(metric, shift, "fd_shifts")
            with_passes: dict[Contender, float] = {}
            with_one: dict[Contender, float] = {}
            for contender, mean in contender_means(cells, column).items():
                if contender.method.startswith("mc"):
                    with_passes[contender] = mean
                else:
                    with_one[contender] = mean
            in_print = best_in_print(column, passes=True) + best_in_print(column, passes=False)
            comparisons.append(BestOf(text, column, with_passes, with_one, in_print))
    return comparisons


def contender_means(cells: FinishedCells, column: Column) -> dict[Contender, float]:
    """Average a column for every family of rows with every score that judges it."""
    means = {}
    for row in cells.study.rows:
        for score in row.scores or cells.study.benchmarks[0].scores:
            contender = Contender(row.family, score)
            mean = cells.mean(contender, column)
            if not np.isnan(mean):
                means[contender] = mean
    return means


def compare_paradigms(comparisons: list[BestOf]) -> list[BestOf]:
    """Compare the paradigm that wins in Claros Olivares and Brockmeier's Table 2, which has AUGRC, with the others."""
    by_augrc = [comparison for comparison in comparisons if comparison.column.metric == "augrc"]
    paradigms = []
    for comparison in by_augrc:
        text = "with passes ConfidNet is the best paradigm"
        rows = ("ce", "confidnet")  # which share the classifier
        paradigms.append(split_paradigms(text, comparison.column, comparison.means, rows, passes=True))
    for comparison in by_augrc:
        text = "with one pass Deep Gamblers is the best paradigm"
        paradigms.append(split_paradigms(text, comparison.column, comparison.other_means, ("gamblers",), passes=False))
    return paradigms


def split_paradigms(
    text: str, column: Column, means: dict[Contender, float], rows: tuple[str, ...], passes: bool
) -> BestOf:
    """Compare the contenders of some rows, with or without dropout, with all others.

    Parameters
    ----------
    text, column
        Fields of the comparison.
    means : dict of Contender to float
        Means of all contenders.
    rows : tuple of str
        Rows of the first, named without dropout.
    passes : bool
        Whether several passes judge all contenders, or one.
    """
    first = {}
    others = {}
    for contender, mean in means.items():
        if without_dropout(contender) in rows:
            first[contender] = mean
        else:
            others[contender] = mean
    return BestOf(text, column, first, others, best_in_print(column, passes))


def best_in_print(column: Column, passes: bool) -> list[Anchor]:
    """Find the best published number with several passes, or that with one; an empty list where there is none."""
    candidates = []
    for anchor in printed_scores(column):
        has_passes = anchor.score.startswith("mc") or anchor.score == "best_mc"
        is_of_column = (anchor.metric, anchor.shift) == (column.metric, column.shift)
        if is_of_column and has_passes == passes:
            candidates.append(anchor)
    if not candidates:
        return []
    return [min(candidates, key=lambda anchor: anchor.value)]


def printed_scores(column: Column) -> list[Anchor]:
    """List the published numbers: AUGRC of Claros Olivares and Brockmeier's Table 2, AURC of Table 1 of FD-Shifts."""
    if column.metric == "augrc":
        return anchors(paper="stratified", table="2", benchmark="stratified-supercifar100")
    published = anchors(paper="fd_shifts", table="1", benchmark=benchmark_of(column.shift))
    return [anchor for anchor in published if anchor.model == "vgg13"]


# --- page -----------------------------------------------------------------------------------------------------------


def passes_section(cells: FinishedCells) -> list[str]:
    """Say how several passes compare with one, in the papers and here."""
    comparisons = compare_passes(cells)
    ahead = 0
    ahead_of_dropout = 0
    published = 0
    ahead_in_print = 0
    same = 0
    for comparison in comparisons:
        ahead += comparison.is_ahead
        ahead_of_dropout += is_ahead_of_dropout(comparison)
        if len(comparison.printed) == 2:
            with_passes, with_one = comparison.printed
            is_ahead_in_print = with_passes.value < with_one.value
            published += 1
            ahead_in_print += is_ahead_in_print
            same += is_ahead_in_print == comparison.is_ahead
    return [
        "## Fifty passes of dropout against one",
        "The best cell of each kind is chosen on the test data themselves, with hindsight, in the papers and here. The "
        "published AURC is from FD-Shifts, Table 1 (VGG-13; CIFAR-100, and super-CIFAR-100 for the sub-class shift). The "
        "published AUGRC is from Claros Olivares and Brockmeier, Table 2 (super-CIFAR-100); their ConfidNet shares its "
        "classifier with plain training.",
        f"Fifty passes are ahead in {ahead_in_print} of {published} columns in the papers, and in {ahead} of "
        f"{len(comparisons)} here. In {same} of the {published} columns that both have, the same kind is ahead. Against "
        f"one pass of the same networks with dropout, fifty passes are ahead in {ahead_of_dropout} of {len(comparisons)}.",
    ]


def is_ahead_of_dropout(comparison: BestOf) -> bool:
    """Tell whether the best with fifty passes is ahead of the best with one pass of networks with dropout."""
    one_pass = []
    for contender, mean in comparison.other_means.items():
        if contender.row.endswith("_dropout"):
            one_pass.append(mean)
    return min(comparison.means.values()) < min(one_pass)
