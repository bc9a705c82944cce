"""Claims of the FD-Shifts paper on number formats, calibration and guarantees, decided from the tables of real classifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from claims import Claim
from drawn_gains import Gain, minus, negated, over_units
from gain_claims import judge_gain
from intervals import show_gain
from network_cells import read_csv
from score_cells import COMMAND
from timing import RESULTS

POINT, TENTH = 1.0, 0.1
PRECISION_ROW = re.compile(r"^\| (\S+) \| (float\d\d) \| \S+ \| \S+ \| (\S+) \|$", re.MULTILINE)
ERROR_ROW = re.compile(r"^\| (.+?) \| (\d\S*) \|(?:.*\|)? (\d\S*) \|$", re.MULTILINE)


def calibration_claims() -> Iterator[Claim]:
    """Decide the claims on number formats, calibration and guarantees."""
    page = (RESULTS / "real_bench.md").read_text(encoding="utf-8")
    areas = areas_by_precision(page)
    yield half_precision_hurts(areas)
    yield single_precision_hardly_hurts(areas)
    yield others_can_be_calibrated(page)
    risks = read_excess_risks()
    yield guarantee_holds(risks)
    yield guarantee_fails(risks, "level 1")
    yield guarantee_fails(risks, "level 5")


def decide(claim: str, gain: Gain, **options: str | float) -> Claim:
    """Make a claim of the paper."""
    return judge_gain("fd_shifts", claim, gain, command=COMMAND, **options)


# --- number formats -------------------------------------------------------------------------------------------------


def areas_by_precision(page: str) -> dict[str, dict[str, float]]:
    """Read the AUROC of msp of each network, in points, by floating-point type."""
    areas: dict[str, dict[str, float]] = {}
    for network, precision, area in PRECISION_ROW.findall(page):
        areas.setdefault(network, {})[precision] = float(area)
    return areas


def lost_area(areas: dict[str, dict[str, float]], precision: str) -> Gain:
    """Average over networks the AUROC that a floating-point type loses against float64."""
    losses = []
    for by_precision in areas.values():
        losses.append(by_precision["float64"] - by_precision[precision])
    return over_units(losses)


def half_precision_hurts(areas: dict[str, dict[str, float]]) -> Claim:
    """Decide whether float16 loses AUROC."""
    lost = lost_area(areas, "float16")
    return decide(
        "Half precision hurts the softmax",
        lost,
        factor=1,
        printed_at="Table 2",
        printed="marginal for CNNs in single precision, large in half",
        ours=f"AUROC lost {show_gain(lost, factor=1)}",
        unit="AUROC, points",
        scale=f"{len(areas)} CIFAR networks",
    )


def single_precision_hardly_hurts(areas: dict[str, dict[str, float]]) -> Claim:
    """Decide whether float32 loses less AUROC than the margin."""
    lost = lost_area(areas, "float32")
    return decide(
        "Single precision hardly hurts the softmax of a CNN",
        minus(negated(lost), -TENTH),
        factor=1,
        printed_at="Table 2",
        printed="marginal",
        ours=f"AUROC lost {show_gain(lost, factor=1)}",
        unit="AUROC, 0.1 points less what is lost",
        scale=f"{len(areas)} CIFAR networks",
    )


# --- calibration ----------------------------------------------------------------------------------------------------


def others_can_be_calibrated(page: str) -> Claim:
    """Decide whether the ECE of other scaled scores exceeds that of scaled msp by less than a point."""
    excesses, hardest = calibration_errors(page)
    gain = over_units(POINT - np.array(excesses))
    excess = show_gain(over_units(excesses), factor=1)
    return decide(
        "Scores other than the softmax can be calibrated",
        gain,
        factor=1,
        printed_at="Table 10",
        printed="they can",
        ours=f"after the same scaling ECE is higher than that of msp by {excess} points; under the hardest corruption no score "
        f"is below {hardest:.1f} %",
        unit="ECE, one point less the excess",
        scale=f"{len(excesses)} scores of two CIFAR networks; the interval is over scores",
    )


def calibration_errors(page: str) -> tuple[list[float], float]:
    """Collect by how much each scaled score exceeds scaled msp, and the least error under the hardest corruption."""
    part = page.split("## Calibration of every score")[1].split("\n## ")[0]
    excesses, hardest = [], []
    for section in part.split("\n### ")[1:]:
        msp, others = scaled_errors(section)
        for clean, _ in others:
            excesses.append(clean - msp[0])
        for _, corrupted in (msp, *others):
            hardest.append(corrupted)
    return excesses, min(hardest)


def scaled_errors(section: str) -> tuple[tuple[float, float], list[tuple[float, float]]]:
    """Read two errors of scaled msp and of each other scaled score: on test data, and under the hardest corruption.

    Scores whose scaling collapsed to a constant are left out. Their error under corruption is that of the constant.
    """
    errors = {}
    for name, clean, corrupted in ERROR_ROW.findall(section):
        errors[name] = (float(clean), float(corrupted))
    constant = next(pair for name, pair in errors.items() if name.startswith("a constant"))
    margin = max(0.02 * constant[1], 0.1)
    others = []
    for name, pair in errors.items():
        is_other = name != "msp" and not name.startswith(("a constant", "msp, no"))
        if is_other and abs(pair[1] - constant[1]) > margin:
            others.append(pair)
    return errors["msp"], others


# --- guarantees -----------------------------------------------------------------------------------------------------


def read_excess_risks() -> dict[str, list[float]]:
    """Read the found less the promised risk of msp, for each network and promise, by level of corruption."""
    wanted = ("known inputs alone", "msp", "risk, mean")
    risks: dict[str, list[float]] = {}
    for row in read_csv(RESULTS / "real_gate.csv"):
        if (row["table"], row["gate"], row["quantity"]) == wanted:
            excess = float(row["value"]) - float(row["asked"])
            risks.setdefault(row["judged_on"], []).append(excess)
    return risks


def guarantee_holds(risks: dict[str, list[float]]) -> Claim:
    """Decide whether the risk on fresh data is below the promised one."""
    below = negated(over_units(risks["level 0"]))
    return decide(
        "A guarantee holds on fresh data",
        below,
        printed_at="Figure 7",
        printed="it holds",
        ours=f"risk below what was promised by {show_gain(below)} points",
        unit="risk, points",
        scale=promise_scale(risks),
    )


def guarantee_fails(risks: dict[str, list[float]], level: str) -> Claim:
    """Decide whether the risk under a level of corruption is above the promised one."""
    above = over_units(risks[level])
    return decide(
        f"A guarantee on clean data fails under corruption of {level}",
        above,
        printed_at="Figure 7",
        printed="it fails",
        ours=f"risk above what was promised by {show_gain(above)} points",
        unit="risk, points",
        scale=promise_scale(risks),
    )


def promise_scale(risks: dict[str, list[float]]) -> str:
    """Say how many networks, promises and splits there are, and what the interval is over."""
    count = len(risks["level 0"])
    return f"2 CIFAR networks, {count} promises, 10 splits; the interval is over promises, and speaks for these networks only"
