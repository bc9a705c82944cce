"""Claims of the SURE+ paper on two scores against one, decided from the cells of ``which_score.py``."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

import numpy as np

from claims import Claim, judge
from drawn_gains import Gain, minus
from gain_claims import judge_gain
from intervals import show_gain
from network_cells import CellValue, Row
from score_cells import COMMAND, cifar_networks, is_cifar, is_near, single_scores
from score_choice import BASE, Table
from timing import RESULTS
from twofold.bench.published import Anchor, anchors

PAPER = "sure_plus"
UNIT = "F1, points"
SECOND = "react|energy"
PAIR = f"{BASE} + {SECOND}"
UPPER = 0.75  # of the scores: where a strong score begins
POINT = 1.0


def joint_claims() -> Iterator[Claim]:
    """Decide the claims on two scores."""
    table = Table.read(RESULTS)
    yield never_worse(table)
    yield far_gains_more(table)
    yield strong_softmax(table, near=True)
    yield strong_softmax(table, near=False)
    yield poor_id_scores(table)
    yield stays_ahead(table, BASE)
    yield stays_ahead(table, SECOND)


def never_worse(table: Table) -> Claim:
    """Decide whether DS-F1 of msp with each other score exceeds F1 of the better one alone."""
    gain = table.gain("ds_f1", gain_over_better)
    return decide(
        table,
        "Two scores are never worse than the better of them alone",
        gain,
        printed_at="Eq. 3, Table 1",
        printed="proven",
        ours=f"mean gain over the better score {show_gain(gain)} points; it cannot be negative with exact metrics",
    )


def far_gains_more(table: Table) -> Claim:
    """Decide whether the mean gain over msp is larger on far sets than on near ones."""
    far = table.gain("ds_f1", gain_over_msp(near=False))
    near = table.gain("ds_f1", gain_over_msp(near=True))
    printed_near = best_printed_pair("near") - printed_value("1", "f1", "near", BASE)
    printed_far = best_printed_pair("far") - printed_value("1", "f1", "far", BASE)
    return decide(
        table,
        "Far unknown sets gain more from double scoring than near ones",
        minus(far, near),
        printed_at="Table 1",
        printed=f"best gain {printed_near:+.2f} near, {printed_far:+.2f} far",
        ours=f"mean gain {show_gain(near)} near, {show_gain(far)} far",
    )


def strong_softmax(table: Table, *, near: bool) -> Claim:
    """Decide whether F1 of msp exceeds that of the score at the upper quarter of all scores."""
    distance = "near" if near else "far"
    lead = table.gain("ds_f1", lead_over_upper_quarter(near=near))
    return decide(
        table,
        f"The plain softmax is a strong single score on {distance} sets",
        lead,
        printed_at="Table 1",
        printed=f"F1 {printed_value('1', 'f1', distance, BASE):.2f}",
        ours=f"F1 less that of the upper quarter of scores: {show_gain(lead)}",
    )


def poor_id_scores(table: Table) -> Claim:
    """Decide whether DS-F1 changes by at least a point when two scores change places; with exact metrics it never does."""
    msp_first = printed_value("6", "ds_f1", "near", "msp", "vim")
    vim_first = printed_value("6", "ds_f1", "near", "vim", "msp")
    return judge(
        PAPER,
        "VIM and ReAct are poor ID scores: DS-F1 falls when two scores change places",
        printed_at="Table 6",
        printed=f"msp + vim {msp_first:.2f}, vim + msp {vim_first:.2f}",
        ours="no change: exact metrics treat the scores alike; the grid of the released code makes the difference",
        low=-POINT,
        high=-POINT,
        unit=f"{UNIT} less one",
        scale=scale(table),
        command=COMMAND,
    )


def stays_ahead(table: Table, single: str) -> Claim:
    """Decide whether the paper's pair, at thresholds of another unknown set, exceeds one of its scores."""
    lead = table.gain("f1", lead_of_pair(single))
    printed_pair = printed_value("2", "ds_f1_transferred", "mnist", BASE, SECOND)
    printed_single = printed_value("2", "f1_transferred", "mnist", single)
    return decide(
        table,
        f"Thresholds of {PAIR} stay ahead of {single} alone on another unknown set",
        lead,
        printed_at="Table 2",
        printed=f"F1 {printed_pair:.1f} against {printed_single:.1f}",
        ours=f"F1 of the pair less that of the single score: {show_gain(lead)}",
    )


def decide(table: Table, claim: str, gain: Gain, **texts: str) -> Claim:
    """Make a claim of the paper in points of F1."""
    return judge_gain(PAPER, claim, gain, unit=UNIT, scale=scale(table), command=COMMAND, **texts)


def scale(table: Table) -> str:
    """Say how many networks and unknown sets there are."""
    return f"{len(cifar_networks(table))} CIFAR networks, {len(table.sets)} unknown sets"


# --- values of a cell; None leaves a cell out -----------------------------------------------------------------------


def gain_over_better(row: Row) -> float | None:
    """Average what msp with each other score gains over the better of the two alone."""
    if not is_cifar(row):
        return None
    alone = single_scores(row)
    gains = []
    for name, value in alone.items():
        if name != BASE:
            better = max(value, alone[BASE])
            gains.append(float(row[f"{BASE} + {name}"]) - better)
    return mean(gains)


def gain_over_msp(*, near: bool) -> CellValue:
    """Return the function that averages what msp with each other score gains over msp, on near or on far sets."""

    def average_gain(row: Row) -> float | None:
        if not is_cifar(row) or is_near(row) != near:
            return None
        gains = []
        for name in single_scores(row):
            if name != BASE:
                gains.append(float(row[f"{BASE} + {name}"]) - float(row[BASE]))
        return mean(gains)

    return average_gain


def lead_over_upper_quarter(*, near: bool) -> CellValue:
    """Return the function that compares msp with the upper quarter of single scores, on near or on far sets."""

    def lead(row: Row) -> float | None:
        if not is_cifar(row) or is_near(row) != near:
            return None
        values = list(single_scores(row).values())
        return float(row[BASE]) - float(np.quantile(values, UPPER))

    return lead


def lead_of_pair(single: str) -> CellValue:
    """Return the function that compares the paper's pair with one of its scores."""

    def lead(row: Row) -> float | None:
        if not is_cifar(row):
            return None
        return float(row[PAIR]) - float(row[single])

    return lead


# --- printed numbers ------------------------------------------------------------------------------------------------


def printed_anchors(table: str) -> list[Anchor]:
    """List what a table of the paper prints for CIFAR-100."""
    return anchors(paper=PAPER, table=table, benchmark="openood-cifar100")


def printed_value(table: str, metric: str, shift: str, score: str, pair: str = "") -> float:
    """Look up one printed number."""
    wanted = (metric, shift, score, pair)
    for anchor in printed_anchors(table):
        if (anchor.metric, anchor.shift, anchor.score, anchor.pair) == wanted:
            return anchor.value
    raise LookupError(f"table {table} of the paper prints no {wanted}")


def best_printed_pair(shift: str) -> float:
    """Find the largest DS-F1 that Table 1 prints for msp with a second score."""
    values = []
    for anchor in printed_anchors("1"):
        if (anchor.metric, anchor.shift, anchor.score) == ("ds_f1", shift, BASE):
            values.append(anchor.value)
    return max(values)
