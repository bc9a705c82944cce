"""A claim of a paper that a study tests, with the numbers that the paper prints for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from study_cells import Column, Contender
from sure_plus_cells import LABELS
from twofold.bench.published import anchors
from twofold.bench.text import scale

PrintedLookup: TypeAlias = Callable[[Contender, Column], float | None]  # the printed number, None where there is none


@dataclass(frozen=True)
class StudyClaim:
    """Hold the claim that a contender is better (or worse) than each of its rivals by a column of the study.

    Parameters
    ----------
    text : str
        The claim, without the column.
    printed : str
        The numbers that the paper prints.
    column : Column
        What the claim is measured by.
    contender : Contender
        What is better or worse.
    rivals : tuple of Contender
        What it is compared with.
    worse : bool, default=False
        Whether the contender is claimed to be worse.
    benchmark : str, optional
        The benchmark that it is about; by default all of the study.
    """

    text: str
    printed: str
    column: Column
    contender: Contender
    rivals: tuple[Contender, ...]
    worse: bool = False
    benchmark: str | None = None

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The contender and its rivals."""
        return (self.contender, *self.rivals)

    @property
    def rows(self) -> set[str]:
        """The rows of the study that the claim is about."""
        return {contender.row for contender in self.contenders}


def make_claim(
    text: str,
    column: Column,
    contender: Contender,
    rivals: Iterable[Contender],
    lookup: PrintedLookup,
    worse: bool = False,
) -> StudyClaim:
    """Make a claim with the numbers that the paper prints for it.

    Parameters
    ----------
    text, column, contender, rivals, worse
        Fields of the claim.
    lookup : callable
        Returns the printed number of a contender in a column.
    """
    rivals = tuple(rivals)
    printed = printed_numbers(column, contender, rivals, lookup, worse)
    return StudyClaim(text, printed, column, contender, rivals, worse)


def make_row_claim(
    text: str,
    column: Column,
    method_name: str,
    row: str,
    rivals: Iterable[str],
    lookup: PrintedLookup,
    worse: bool = False,
) -> StudyClaim:
    """Make a claim that compares rows, all judged by one method.

    Parameters
    ----------
    text, column, worse, lookup
        As in :func:`make_claim`.
    method_name : str
        A score, or a pair such as ``"msp + knn"``.
    row : str
        The row that is better or worse.
    rivals : iterable of str
        The rows that it is compared with.
    """
    contenders = [Contender(rival, method_name) for rival in rivals]
    return make_claim(text, column, Contender(row, method_name), contenders, lookup, worse)


def printed_numbers(
    column: Column, contender: Contender, rivals: Iterable[Contender], lookup: PrintedLookup, worse: bool
) -> str:
    """Write the printed numbers of a claim: of several rivals, that of the best in the paper."""
    number = lookup(contender, column)
    rival_numbers = {}
    for rival in rivals:
        rival_number = lookup(rival, column)
        if rival_number is not None:
            rival_numbers[rival] = rival_number
    if number is None or not rival_numbers:
        return "no number"
    best = find_best(rival_numbers, column)
    words = f"{label(contender)} {number:.5g}, {label(best)} {rival_numbers[best]:.5g}"
    gain = column.sign * (number - rival_numbers[best])
    if worse:
        gain = -gain
    if gain < 0:
        words += "; reversed in its table"
    return words


def find_best(values: dict[Contender, float], column: Column) -> Contender:
    """Find the contender with the best value of a column."""
    choose = max if column.higher_is_better else min
    return choose(values, key=values.__getitem__)


def label(contender: Contender) -> str:
    """Name a contender, without its method where that is msp."""
    row = LABELS.get(contender.row, contender.row)
    if contender.method == "msp":
        return row
    return f"{row} ({contender.method})"


def direction(worse: bool) -> str:
    """Name the direction of a difference."""
    return "worse" if worse else "better"


def printed_number(
    paper: str,
    table: str,
    benchmark: str,
    column: Column,
    recipe: str,
    score: str = "msp",
    pair: str = "",
    model: str | None = None,
) -> float | None:
    """Find a published number.

    Parameters
    ----------
    paper, table, benchmark, recipe, score, pair
        As :class:`twofold.bench.published.Anchor` names them.
    column : Column
        Metric and shift of the number.
    model : str, optional
        Network; by default the first that the table has.

    Returns
    -------
    float or None
        The number in the unit of our tables; None where nothing is printed.
    """
    wanted = (column.metric, column.shift, recipe, score, pair)
    factor, _ = scale(column.metric)
    for anchor in anchors(paper=paper, table=table, benchmark=benchmark):
        place = (anchor.metric, anchor.shift, anchor.recipe, anchor.score, anchor.pair)
        if place == wanted and model in (None, anchor.model):
            return factor * anchor.rate
    return None
