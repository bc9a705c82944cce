"""The page on fourteen ImageNet classifiers, and its tables, for benchmarks/imagenet_models.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import twofold
from imagenet_metrics import METRICS
from imagenet_sentences import claims, class_paragraph, ties_paragraph
from imagenet_study import ALPHA, RESAMPLES, Study, count_different
from twofold.stats import Interval

COMMAND = "python benchmarks/imagenet_models.py --save"
HEADS = {
    "accuracy": "accuracy %",
    "aurc": "AURC x1000",
    "eaurc": "E-AURC x1000",
    "augrc": "AUGRC x1000",
    "auroc_f": "AUROC_f",
    "ece": "ECE x1000",
}
UNIT = {"accuracy": 100, "aurc": 1000, "eaurc": 1000, "augrc": 1000, "auroc_f": 1, "ece": 1000}
DIGITS = {"accuracy": 2, "aurc": 2, "eaurc": 2, "augrc": 2, "auroc_f": 4, "ece": 1}


def write_page(study: Study) -> str:
    """Write the page."""
    lines = [
        "# Fourteen ImageNet classifiers: accuracy against reliability",
        "",
        "Is the more accurate classifier also the more reliable one? This page compares fourteen classifiers on 50,000 "
        "validation images, with the maximum softmax probability as the confidence. "
        f"`{COMMAND}` writes it (with `$TWOFOLD_DATA` set; twofold {twofold.__version__}).",
        "",
        f"Brackets hold 95 % percentile intervals of {RESAMPLES:,} bootstrap resamples, the same for all models and metrics. "
        "Parentheses hold the place among the fourteen. ECE has 15 bins of equal width; it is biased upwards, and so are its "
        "intervals.",
        "",
        *main_table(study),
        "",
        "## What this means for the papers' claims",
        "",
        *claims(study),
        "",
        "## Neighbours in the ranking by AUGRC",
        "",
        f"The table shows paired differences. Holm's correction is over all 91 pairs. The smallest p that {RESAMPLES:,} resamples "
        f"can show is {2 / (RESAMPLES + 1):.2g}, or {91 * 2 / (RESAMPLES + 1):.2g} after Holm's correction; the evidence for such "
        "a pair may be much stronger.",
        "",
        *difference_table(study),
        "",
        "## Statistically tied groups",
        "",
        class_paragraph(study),
        "",
        f"By AUGRC, best first ({count_different(study.drawn['augrc'])} of 91 pairs differ after Holm's correction at {ALPHA}). "
        "Groups are maximal, and a model may be in several:",
        "",
        *clique_list(study, "augrc"),
        "",
        f"By AURC ({count_different(study.drawn['aurc'])} of 91 pairs differ):",
        "",
        *clique_list(study, "aurc"),
        "",
        "## Agreement of rankings",
        "",
        "Every metric is oriented so that higher is better. The intervals, over the same resamples, are about other images and "
        "these fourteen models, not about other models. A resample adds noise to the ranks, so a value may lie at the edge of "
        "its interval.",
        "",
        *agreement_table(study),
        "",
        "## Ties",
        "",
        ties_paragraph(study),
    ]
    return "\n".join(lines) + "\n"


def main_table(study: Study) -> Iterator[str]:
    """Yield every metric with its interval and the model's place, best AUGRC first."""
    yield "| model | " + " | ".join(HEADS.values()) + " |"
    yield "|---" * (len(HEADS) + 1) + "|"
    for model in study.order("augrc"):
        cells = []
        for metric in METRICS:
            interval = write_interval(study.interval[metric][model], metric)
            cells.append(f"{interval} ({study.place(metric)[model]})")
        yield f"| `{study.names[model]}` | " + " | ".join(cells) + " |"


def write_interval(interval: Interval, metric: str) -> str:
    """Write a value and its interval in the unit of the metric."""
    unit, digits = UNIT[metric], DIGITS[metric]
    return f"{unit * interval.value:.{digits}f} [{unit * interval.low:.{digits}f}, {unit * interval.high:.{digits}f}]"


def difference_table(study: Study) -> Iterator[str]:
    """Yield the paired difference of each pair of neighbours."""
    yield "| better | next | difference of AUGRC x1000 | p | p after Holm |"
    yield "|---|---|---|---|---|"
    for pair in study.neighbours():
        difference = f"{1000 * pair.difference:.2f} [{1000 * pair.low:.2f}, {1000 * pair.high:.2f}]"
        names = f"`{study.names[pair.better]}` | `{study.names[pair.worse]}`"
        yield f"| {names} | {difference} | {pair.p:.2g} | {pair.adjusted_p:.2g} |"


def clique_list(study: Study, metric: str) -> Iterator[str]:
    """Yield each group of models no two of which differ."""
    for group in study.cliques(metric):
        yield "- " + ", ".join(f"`{study.names[model]}`" for model in group)


def agreement_table(study: Study) -> Iterator[str]:
    """Yield the rank correlations of every pair of metrics."""
    yield "| ranking by | and by | Kendall | Spearman | pairs of models ordered differently |"
    yield "|---|---|---|---|---|"
    for first, second in combinations(METRICS, 2):
        cells = []
        for correlation in study.correlate(first, second):
            cells.append(f"{correlation.value:+.2f} [{correlation.low:+.2f}, {correlation.high:+.2f}]")
        discordant = study.count_discordant(first, second)
        yield f"| {first} | {second} | {cells[0]} | {cells[1]} | {discordant} of 91 |"
