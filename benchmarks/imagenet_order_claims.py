"""Claims on the order of ImageNet classifiers by different metrics."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from claims import Claim
from gain_claims import judge_gain
from imagenet_confidences import COMMAND, SCALE
from imagenet_metrics import FEWER
from imagenet_study import ALPHA, Study, p_values
from intervals import Gain, normal, of_replicates, show_gain
from twofold.typing import Array

AGREE = 0.5  # Kendall's correlation below which two orders count as different


# --- orders ---------------------------------------------------------------------------------------------------------


def claims_on_orders(study: Study) -> Iterable[Claim]:
    """Decide whether Kendall's correlation of the orders by two metrics is below the limit."""
    pairs = (
        ("aurc", "auroc_f", "AURC and the AUROC of failures rank classifiers differently", "Table 12"),
        ("accuracy", "aurc", "Accuracy does not give the order of classifiers by AURC", "Section 2, requirement 1"),
        ("accuracy", "augrc", "Accuracy does not give the order of classifiers by AUGRC", "Section 2, requirement 1"),
        ("ece", "aurc", "Calibration and AURC rank classifiers differently", "Figure 6"),
        ("eaurc", "accuracy", "E-AURC takes accuracy out of AURC: their orders differ", "below Eq. 32"),
        ("eaurc", "auroc_f", "E-AURC does not rank classifiers as the AUROC of failures does", "below Eq. 32"),
    )
    for first, second, claim, printed_at in pairs:
        correlation, gain = disagreement(study, first, second)
        yield judge_gain(
            "fd_shifts",
            claim,
            gain,
            factor=1,
            printed_at=printed_at,
            printed="stated, for confidence functions or in general; no number for classifiers",
            ours=f"Kendall {correlation:+.2f}; {AGREE} less that: {show_gain(gain, factor=1)}",
            unit="Kendall's correlation below 0.5",
            scale=SCALE,
            command=COMMAND,
        )


def disagreement(study: Study, first: str, second: str) -> tuple[float, Gain]:
    """Compute the correlation of the orders by two metrics, and how far it lies below the limit.

    The interval resamples images and classifiers.
    """
    first_values, first_drawn = higher_is_better(study, first)
    second_values, second_drawn = higher_is_better(study, second)
    correlation = kendall(first_values, second_values)
    generator = np.random.default_rng(0)
    count, replicates = first_drawn.shape
    gains = []
    for replicate in range(replicates):
        members = generator.integers(count, size=count)
        gains.append(AGREE - kendall(first_drawn[members, replicate], second_drawn[members, replicate]))
    return correlation, of_replicates(AGREE - correlation, np.array(gains))


def higher_is_better(study: Study, metric: str) -> tuple[Array, Array]:
    """Return the values of a metric and its replicates, negated where lower is better."""
    sign = -1.0 if metric in FEWER else 1.0
    return sign * study.value[metric], sign * study.drawn[metric]


def kendall(first: Array, second: Array) -> float:
    """Compute Kendall's correlation; pairs that are tied, such as two draws of one classifier, are left out."""
    rows, columns = np.triu_indices(len(first), 1)
    signs = np.sign(first[rows] - first[columns]) * np.sign(second[rows] - second[columns])
    return float(signs.sum() / np.count_nonzero(signs))


# --- accuracy -------------------------------------------------------------------------------------------------------


def claims_on_accuracy(study: Study) -> Iterable[Claim]:
    """Decide whether some significantly more accurate classifier has more AURC; intervals hold for all pairs together."""
    excesses = excesses_of_accurate(study)
    largest = max(excesses, key=lambda pair: excesses[pair].value)
    low = max(gain.low for gain in excesses.values())
    high = max(gain.high for gain in excesses.values())
    gain = Gain(excesses[largest].value, low, high, excesses[largest].p)
    better, worse = largest
    yield judge_gain(
        "fd_shifts",
        "A significantly more accurate classifier can be significantly worse by AURC",
        gain,
        factor=1000,
        printed_at="Section 2, requirement 1",
        printed="stated; no number for classifiers",
        ours=f"{better} against {worse}: {show_gain(gain, factor=1000)} (Bonferroni over {len(pairs_of(study))} pairs)",
        unit="AURC x1000",
        scale=SCALE,
        command=COMMAND,
    )


def pairs_of(study: Study) -> list[tuple[int, int]]:
    """List all pairs of classifiers by their indices."""
    return list(combinations(range(len(study.names)), 2))


def excesses_of_accurate(study: Study) -> dict[tuple[str, str], Gain]:
    """Compute the excess of AURC of the more accurate classifier, for each pair whose accuracies differ significantly."""
    pairs = pairs_of(study)
    accuracy = study.value["accuracy"]
    areas = study.value["aurc"]
    drawn = study.drawn["aurc"]
    _, adjusted = p_values(study.drawn["accuracy"])
    excesses = {}
    for pair in pairs:
        if adjusted[pair] >= ALPHA:
            continue
        worse, better = sorted(pair, key=lambda classifier: accuracy[classifier])
        error = (drawn[better] - drawn[worse]).std(ddof=1)
        excess = normal(float(areas[better] - areas[worse]), float(error), tests=len(pairs))
        excesses[study.names[better], study.names[worse]] = excess
    return excesses
