"""The report card of a gate: what it does on labelled data, with intervals, compared with its promise."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from twofold._checks import Mask
from twofold._notebook import NotebookTable
from twofold._notebook import card as notebook_card
from twofold.errors import UnfitData
from twofold.gate.grouped import Codes, count_groups, group_codes, group_sums, ratio_interval
from twofold.gate.promise import Promise
from twofold.metrics.operating_points import ood_weight, operating_point
from twofold.outputs import Outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import EvaluationDisplay
    from twofold.plot.themes import ThemeName

Kept = Literal["yes", "no", "inconclusive", "no promise"]
Bounds = tuple[float, float]
LEVEL = 0.95  # confidence level of the intervals


@dataclass(frozen=True)
class ReportCard:
    """Report what a gate does on labelled data, compared with its promise.

    Parameters
    ----------
    samples : int
        Number of samples.
    coverage : float
        Share of the ID samples that are accepted.
    coverage_interval : tuple of two floats
        95 % interval of ``coverage``.
    risk : float
        Share of failures (wrong labels and OOD inputs) among accepted samples.
    risk_interval : tuple of two floats
        95 % interval of ``risk``.
    true_accept : int
        Accepted samples with a correct label.
    false_accept_ood : int
        Accepted OOD samples.
    false_accept_mistakes : int
        Accepted ID samples with a wrong label.
    false_reject : int
        Rejected samples with a correct label.
    f1 : float
        DS-F1 at the thresholds of the gate.
    kept : {"yes", "no", "inconclusive", "no promise"}
        ``yes`` or ``no`` where the interval lies on one side of the promised value, ``inconclusive`` where it contains
        that value, and ``no promise`` for a gate that promises nothing (the objectives f1, cost and given).
    groups : int, optional
        Number of groups of dependent samples; None where samples are taken as independent.

    Notes
    -----
    The intervals are exact (Clopper-Pearson) and assume independent samples. With an ``ood_share`` in the promise, and
    OOD samples in the data, risk and DS-F1 are those at that share, and the interval of the risk joins three such
    intervals (Bonferroni). Where the outputs have ``groups`` of several samples, the intervals are for independent
    groups of the sizes seen (:func:`twofold.gate.grouped.ratio_interval`).

    Examples
    --------
    >>> from twofold.gate import Gate
    >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
    >>> card = gate.report_card(Outputs([[5.0, 0.0], [6.0, 0.0], [0.0, 0.1]], labels=[0, 1, -1]))
    >>> card.coverage, card.risk, card.false_accept_mistakes, card.kept
    (1.0, 0.5, 1, 'no promise')
    """

    samples: int
    coverage: float
    coverage_interval: Bounds
    risk: float
    risk_interval: Bounds
    true_accept: int
    false_accept_ood: int
    false_accept_mistakes: int
    false_reject: int
    f1: float
    kept: Kept
    groups: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Convert the report card to plain values by name.

        Returns
        -------
        dict
            One entry per field, ready for JSON.
        """
        return dataclasses.asdict(self)

    def plot(self, ax: Axes | None = None, *, theme: ThemeName | None = None) -> EvaluationDisplay:
        """Draw coverage, risk and DS-F1 with their intervals.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        EvaluationDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import EvaluationDisplay

        return EvaluationDisplay.from_card(self).plot(ax, theme=theme)

    def __str__(self) -> str:
        units = "samples"
        if self.groups is not None:
            units = f"groups ({self.groups} independent groups of samples)"
        lines = [
            f"samples                  {self.samples}",
            f"ID coverage              {self.coverage:.4f}  {_format_interval(self.coverage_interval)}",
            f"risk                     {self.risk:.4f}  {_format_interval(self.risk_interval)}",
            f"true accepts             {self.true_accept}",
            f"false accepts, OOD       {self.false_accept_ood}",
            f"false accepts, mistakes  {self.false_accept_mistakes}",
            f"false rejects            {self.false_reject}",
            f"DS-F1                    {self.f1:.4f}",
            f"promise kept             {self.kept}",
            f"[...]: 95 % intervals for independent {units}",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (
            ("coverage", f"{self.coverage:.4f}", _format_interval(self.coverage_interval)),
            ("risk", f"{self.risk:.4f}", _format_interval(self.risk_interval)),
            ("DS-F1", f"{self.f1:.4f}", ""),
        )
        facts: dict[str, object] = {
            "true accepts": self.true_accept,
            "false accepts, OOD": self.false_accept_ood,
            "false accepts, mistakes": self.false_accept_mistakes,
            "false rejects": self.false_reject,
            "independent groups": self.groups,
            "promise kept": self.kept,
        }
        table = NotebookTable(("", "value", "95 % interval"), rows)
        return notebook_card(f"Report card of a gate on {self.samples:,} samples", facts, table)


def _format_interval(interval: Bounds) -> str:
    low, high = interval
    return f"[{low:.4f}, {high:.4f}]"


@dataclass(frozen=True)
class AcceptCounts:
    """Count what a gate accepts on labelled samples.

    Parameters
    ----------
    ids, oods : int
        ID and OOD samples.
    known, outside : int
        Accepted ID and OOD samples.
    right : int
        Accepted samples with a correct label.
    """

    ids: int
    oods: int
    known: int
    outside: int
    right: int


def make_card(promise: Promise, outputs: Outputs, accepted: Mask) -> ReportCard:
    """Count and judge what a gate accepts of labelled outputs.

    Parameters
    ----------
    promise : Promise
        What the gate was fitted for.
    outputs : Outputs
        Labelled outputs, with the predictions that the gate judges.
    accepted : ndarray of shape (N,)
        True for accepted rows.

    Returns
    -------
    ReportCard
        Counts, rates, intervals, and whether the promise was kept.

    Raises
    ------
    UnfitData
        If there is no ID sample.
    InvalidInput
        If the outputs have no labels.
    """
    is_id, correct = outputs.is_id, outputs.correct
    if not is_id.any():
        raise UnfitData("labels are -1 everywhere; a report card needs at least one ID sample")
    counts = AcceptCounts(
        ids=int(is_id.sum()),
        oods=int((~is_id).sum()),
        known=int((accepted & is_id).sum()),
        outside=int((accepted & ~is_id).sum()),
        right=int((accepted & correct).sum()),
    )
    rejected = int((correct & ~accepted).sum())
    codes = None
    if outputs.groups is not None:
        codes = group_codes(outputs.groups)
    groups = count_groups(codes)
    if codes is None or groups == len(outputs):
        return card_of_counts(promise, counts, rejected, groups=groups)
    weight = _ood_weight(promise, counts)
    bounds = _grouped_intervals(codes, is_id, correct, accepted, weight)
    return card_of_counts(promise, counts, rejected, groups=groups, intervals=bounds)


def _ood_share(promise: Promise, counts: AcceptCounts) -> float | None:
    """Return the share that OOD samples are weighed to; None where there are none, or none is promised."""
    if not counts.oods:
        return None
    return promise.ood_share


def _ood_weight(promise: Promise, counts: AcceptCounts) -> float:
    return ood_weight(_ood_share(promise, counts), counts.ids, counts.oods)


def card_of_counts(
    promise: Promise,
    counts: AcceptCounts,
    rejected: int,
    *,
    groups: int | None = None,
    intervals: tuple[Bounds, Bounds] | None = None,
) -> ReportCard:
    """Judge what a gate accepts, from counts alone.

    Parameters
    ----------
    promise : Promise
        What the gate was fitted for.
    counts : AcceptCounts
        What it accepts.
    rejected : int
        Rejected samples with a correct label.
    groups : int, optional
        Number of groups of dependent samples.
    intervals : pair of pairs of floats, optional
        Intervals of coverage and risk; by default those of independent samples.

    Returns
    -------
    ReportCard
        Counts, rates, intervals, and whether the promise was kept.

    Raises
    ------
    UnfitData
        If there is no ID sample.

    Examples
    --------
    >>> from twofold.gate import Gate
    >>> promise = Gate.fit_confidences([True, False], [0.9, 0.4]).promise
    >>> card_of_counts(promise, AcceptCounts(ids=8, oods=0, known=4, outside=0, right=3), 2).risk
    0.25
    """
    if not counts.ids:
        raise UnfitData("a report card needs at least one ID sample, and all samples are OOD")
    share = _ood_share(promise, counts)
    weight = _ood_weight(promise, counts)
    point = operating_point(counts.right, counts.known, weight * counts.outside, counts.ids)
    if intervals is None:
        intervals = exact_interval(counts.known, counts.ids, 1.0 - LEVEL), risk_interval(counts, share)
    covered, risky = intervals
    return ReportCard(
        samples=counts.ids + counts.oods,
        coverage=point["coverage"],
        coverage_interval=covered,
        risk=point["risk"],
        risk_interval=risky,
        true_accept=counts.right,
        false_accept_ood=counts.outside,
        false_accept_mistakes=counts.known - counts.right,
        false_reject=rejected,
        f1=point["value"],
        kept=_judge_promise(promise, covered, risky, counts.known + counts.outside),
        groups=groups,
    )


def _grouped_intervals(
    codes: Codes, is_id: Mask, correct: Mask, accepted: Mask, weight_of_ood: float
) -> tuple[Bounds, Bounds]:
    """Compute the intervals of coverage and risk for independent groups."""
    weight = np.where(is_id, 1.0, weight_of_ood)
    ids = group_sums(codes, is_id)
    covered = ratio_interval(group_sums(codes, accepted & is_id), ids, ids, 1.0 - LEVEL)
    failed = group_sums(codes, weight * (accepted & ~correct))
    taken = group_sums(codes, weight * accepted)
    return covered, ratio_interval(failed, taken, group_sums(codes, weight), 1.0 - LEVEL)


def _judge_promise(promise: Promise, covered: Bounds, risky: Bounds, accepted: int) -> Kept:
    """Say on which side of the promised value an interval lies."""
    if promise.objective == "risk" and promise.risk is not None:
        if accepted and risky[1] <= promise.risk:
            return "yes"
        if accepted and risky[0] > promise.risk:
            return "no"
        return "inconclusive"
    if promise.objective == "coverage" and promise.coverage is not None:
        if covered[0] >= promise.coverage:
            return "yes"
        if covered[1] < promise.coverage:
            return "no"
        return "inconclusive"
    return "no promise"


def exact_interval(count: int, n: int, level: float) -> Bounds:
    """Compute a two-sided Clopper-Pearson interval that misses with a probability of at most ``level``.

    Parameters
    ----------
    count : int
        Number of successes.
    n : int
        Number of trials; without any the interval is [0, 1].
    level : float
        Largest probability that the interval misses the rate.

    Returns
    -------
    tuple of two floats
        Lower and upper bound.

    Examples
    --------
    >>> exact_interval(0, 0, 0.05)
    (0.0, 1.0)
    """
    from twofold.stats.bounds import clopper_pearson

    return clopper_pearson(count, n, delta=level, side="two") if n else (0.0, 1.0)


def risk_interval(counts: AcceptCounts, share: float | None) -> Bounds:
    """Compute the interval of the risk; at an expected OOD share it joins three exact ones (Bonferroni).

    Parameters
    ----------
    counts : AcceptCounts
        What the gate accepts.
    share : float or None
        OOD share expected in deployment; None for that of the samples.

    Returns
    -------
    tuple of two floats
        Lower and upper bound, at the level 0.95.
    """
    level = 1.0 - LEVEL
    wrong = counts.known - counts.right
    if share is None:
        return exact_interval(wrong + counts.outside, counts.known + counts.outside, level)
    mistakes = exact_interval(wrong, counts.known, level / 3)
    covered = exact_interval(counts.known, counts.ids, level / 3)
    let_in = exact_interval(counts.outside, counts.oods, level / 3)

    def risk(mistake_rate: float, id_rate: float, ood_rate: float, empty: float) -> float:
        total = (1.0 - share) * id_rate + share * ood_rate
        if total <= 0.0:
            return empty
        return ((1.0 - share) * id_rate * mistake_rate + share * ood_rate) / total

    # the risk grows with mistakes and with accepted OOD inputs, and falls with accepted ID inputs
    low = risk(mistakes[0], covered[1], let_in[0], 0.0)
    high = risk(mistakes[1], covered[0], let_in[1], 1.0)
    return low, high
