"""A line of the tables of a study: a claim, the numbers of the paper, ours with an interval, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

from study_cells import Column, Contender, FinishedCells
from study_claims import StudyClaim, direction, find_best, label
from study_differences import ONE_EACH, Choices, Difference, difference, shared_runs
from twofold.bench.text import scale

HEAD = ("claim", "measured by", "paper", "here", "verdict")


@dataclass(frozen=True)
class ClaimLine:
    """Hold what a study says of a claim.

    Parameters
    ----------
    text : str
        The claim, without the column.
    column : Column
        What it is measured by.
    printed : str
        The numbers of the paper.
    ours : str
        Our numbers, with the interval.
    verdict : str
        The verdict.
    difference : Difference
        How much better the method is that the claim is about.
    worse : bool
        Whether it is claimed to be worse.
    """

    text: str
    column: Column
    printed: str
    ours: str
    verdict: str
    difference: Difference
    worse: bool

    @property
    def measured_by(self) -> str:
        """Metric and shift of the column."""
        return f"{self.column.metric} {self.column.shift}"

    def table_row(self) -> list[str]:
        """Write the line as cells of a table."""
        _, unit = scale(self.column.metric)
        measured_by = self.measured_by
        if unit:
            measured_by += f" ({unit})"
        return [self.text, measured_by, self.printed, self.ours, self.verdict]


def can_decide(claim: StudyClaim, cells: FinishedCells) -> bool:
    """Tell whether the contender of a claim and at least one of its rivals have finished cells."""
    return bool(cells.rows(claim.contender, claim.column) and finished_rivals(claim, cells))


def finished_rivals(claim: StudyClaim, cells: FinishedCells) -> list[Contender]:
    """List the rivals of a claim that have finished cells."""
    return [rival for rival in claim.rivals if cells.rows(rival, claim.column)]


def decide_claim(claim: StudyClaim, cells: FinishedCells, verdict: str | None = None) -> ClaimLine:
    """Decide a claim that can be decided, against the best of its rivals here.

    Parameters
    ----------
    claim : StudyClaim
        The claim.
    cells : FinishedCells
        Cells of the study.
    verdict : str, optional
        The verdict, if it does not follow from the numbers.

    Returns
    -------
    ClaimLine
        The line.
    """
    means = {rival: cells.mean(rival, claim.column) for rival in finished_rivals(claim, cells)}
    best = find_best(means, claim.column)
    choices = Choices(rivals=len(means))
    line = compare(cells, claim.text, claim.printed, claim.column, claim.contender, best, claim.worse, choices)
    if verdict is None:
        return line
    return replace(line, verdict=verdict)


def compare(
    cells: FinishedCells,
    text: str,
    printed: str,
    column: Column,
    contender: Contender,
    rival: Contender,
    worse: bool = False,
    choices: Choices = ONE_EACH,
) -> ClaimLine:
    """Compare a contender with one rival in a line of the tables.

    Parameters
    ----------
    cells : FinishedCells
        Cells of a study.
    text, printed, column, worse
        Fields of the line.
    contender, rival : Contender
        What is compared.
    choices : Choices, optional
        Of how many each is the best here.
    """
    factor, _ = scale(column.metric)
    gain = difference(cells, contender, rival, column, choices)
    runs = shared_runs(cells, contender, rival, column)
    mean = factor * cells.mean(contender, column, runs)
    rival_mean = factor * cells.mean(rival, column, runs)
    ours = (
        f"{label(contender)} {mean:.2f}, {label(rival)} {rival_mean:.2f}; "
        f"{direction(worse=gain.mean <= 0)} by {factor * abs(gain.mean):.2f} [{factor * gain.low:.2f}, {factor * gain.high:.2f}], "
        f"{count_seeds(gain.seeds)}"
    )
    return ClaimLine(text, column, printed, ours, gain.verdict(worse), gain, worse)


def count_seeds(count: int) -> str:
    """Write a number of seeds."""
    return "1 seed" if count == 1 else f"{count} seeds"
