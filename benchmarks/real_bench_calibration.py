"""Calibration of every score on real classifiers, for benchmarks/real_bench.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from real_bench_failures import KNOWN_SETS
from real_bench_results import NetworkResults
from real_tables import markdown, numbers
from twofold import metrics, probability

CONSTANT = "a constant: the accuracy on validation data"
UNSCALED = "msp, no scaling"
NEAR = 0.02  # of the error of a constant: a score this close to it everywhere has collapsed


def calibration(networks: Sequence[NetworkResults]) -> str:
    """Write the section on calibration."""
    parts = [
        "## Calibration of every score (FD-Shifts paper, Table 10)",
        "ECE (15 bins of equal width) of the probability of a correct prediction. Each score is Platt-scaled on the validation "
        "set; the last line shows msp without scaling.",
    ]
    for network in networks:
        lines = calibration_lines(network)
        parts += [f"### {network.name}", markdown(["score", *KNOWN_SETS], lines), calibration_words(lines)]
    return "\n\n".join(parts)


def calibration_lines(network: NetworkResults) -> list[list[str]]:
    """Write the calibration error of every scaled score, best first, of a constant, and of msp without scaling."""
    run = network.run
    lines = []
    for spec, confidences in network.confidences("fd_shifts").items():
        if confidences.judges == "logits":
            conf = confidences.conf
            scaling = metrics.PlattScaling.fit(run["val"].correct, conf["val"])
            errors = [metrics.ece(run[name].correct, scaling.apply(conf[name])) for name in KNOWN_SETS]
            lines.append([spec, *numbers(errors)])
    lines.sort(key=lambda line: float(line[1]))
    accuracy = run["val"].correct.mean()
    constant_errors = []
    unscaled_errors = []
    for name in KNOWN_SETS:
        outputs = run[name]
        constant_errors.append(metrics.ece(outputs.correct, np.full(len(outputs), accuracy)))
        unscaled_errors.append(metrics.ece(outputs.correct, probability(outputs)))
    lines.append([CONSTANT, *numbers(constant_errors)])
    lines.append([UNSCALED, *numbers(unscaled_errors)])
    return lines


def calibration_words(lines: Sequence[Sequence[str]]) -> str:
    """Say what a table of calibration errors means for the claim: scaled scores against scaled msp, without constants."""
    errors = {}
    for name, *values in lines:
        errors[name] = np.array([float(value) for value in values])
    constant = errors.pop(CONSTANT)
    unscaled = errors.pop(UNSCALED)
    msp = errors.pop("msp")
    allowed = np.maximum(NEAR * constant, 0.1)  # percentage points; the table has two digits
    collapsed = []
    better = []
    least_clean = msp[0]
    hardest = msp[-1]
    for name, score_errors in errors.items():
        if (np.abs(score_errors - constant) <= allowed).all():
            collapsed.append(name)
            continue
        if score_errors[0] < msp[0]:
            better.append(name)
        least_clean = min(least_clean, score_errors[0])
        hardest = min(hardest, score_errors[-1])
    varied = len(errors) - len(collapsed)
    text = (
        f"After scaling, {len(better)} of {varied} other scores have a lower error on the test set than "
        f"scaled msp ({msp[0]:.2f} %; {unscaled[0]:.2f} % without scaling). "
    )
    if collapsed:
        text += f"Scores that scaling turns into almost a constant are not counted: {', '.join(collapsed)}. "
    if not better:
        verdict = "does not hold"
    elif len(better) == varied:
        verdict = "holds"
    else:
        verdict = f"holds for these {len(better)}"
    text += f"The claim that scores other than msp can be calibrated {verdict}. "
    carries = "no longer works there."
    if hardest <= 2 * least_clean:
        carries = "still works there."
    return text + f"At corruption level 5 the least error is {hardest:.2f} %, so scaling fitted on clean data {carries}"
