"""Sentences on the papers' claims about classifiers, for benchmarks/imagenet_models.py.

Each sentence has the condition under which it is true. A sentence that the numbers do not bear out stops the script.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from imagenet_study import ALPHA, Study, count_different
from timing import said


def claims(study: Study) -> Iterator[str]:
    """Yield the list of claims that hold, and of those that do not."""
    yield "Confirmed:"
    yield ""
    yield accuracy_is_not_reliability(study)
    yield ranking_alone_misleads(study)
    yield calibration_is_not_ranking(study)
    yield areas_are_not_interchangeable(study)
    yield ranks_hide_differences(study)
    yield rounding_matters_little(study)
    yield ""
    yield "Only in part, or not:"
    yield ""
    yield excess_is_not_ranking(study)
    yield accuracy_orders_in_part(study)
    yield (
        "- **Not tested**: claims about other confidence functions, shifts or transformers. The file holds one confidence "
        "(maximum softmax) of convolutional networks on in-distribution images."
    )


def accuracy_is_not_reliability(study: Study) -> str:
    most_accurate = study.best("accuracy")
    best = study.best("aurc")
    place = study.place_of(most_accurate, "aurc")
    return said(
        "- **The more accurate model does not always fail less after rejection** (FD-Shifts, requirement 1). "
        f"The most accurate, `{most_accurate}`, has place {place} by AURC and differs significantly from the best, "
        f"`{best}`.",
        place > 1 and study.is_different(most_accurate, best, "aurc"),
    )


def ranking_alone_misleads(study: Study) -> str:
    with_accuracy = study.kendall("accuracy", "auroc_f")
    with_aurc = study.kendall("aurc", "auroc_f")
    place = study.place_of(study.best("accuracy"), "auroc_f")
    return said(
        "- **A ranking metric alone misleads when classifiers differ** (FD-Shifts, Table 12, for confidence functions; "
        f"unknown detection, after Ashukha et al.). AUROC_f orders the models against accuracy (Kendall "
        f"{with_accuracy.value:+.2f}, interval below 0). Its order is unrelated to that by AURC ({with_aurc.value:+.2f}, "
        "interval across 0), and it puts the most accurate model last.",
        with_accuracy.high < 0 and with_aurc.is_undecided and place == len(study.names),
    )


def calibration_is_not_ranking(study: Study) -> str:
    with_aurc = study.kendall("aurc", "ece")
    with_augrc = study.kendall("augrc", "ece")
    with_auroc = study.kendall("auroc_f", "ece")
    calibrated = study.best("ece")
    place = study.place_of(calibrated, "aurc")
    all_undecided = with_aurc.is_undecided and with_augrc.is_undecided and with_auroc.is_undecided
    return said(
        "- **Calibration and ranking are different things** (FD-Shifts, Figure 6). The order by ECE is unrelated to those "
        f"by AURC ({with_aurc.value:+.2f}), AUGRC ({with_augrc.value:+.2f}) and AUROC_f ({with_auroc.value:+.2f}; intervals "
        f"across 0). `{calibrated}` is the best calibrated and has place {place} by AURC.",
        all_undecided and place > len(study.names) / 2,
    )


def areas_are_not_interchangeable(study: Study) -> str:
    by_aurc = study.best("aurc")
    by_augrc = study.best("augrc")
    differs_by_aurc = study.is_different(by_aurc, by_augrc, "aurc")
    differs_by_augrc = study.is_different(by_aurc, by_augrc, "augrc")
    return said(
        f"- **AURC and AUGRC are not interchangeable** (Traub et al. 2024). They order {study.count_discordant('aurc', 'augrc')} of 91 pairs "
        f"differently. Of `{by_aurc}` and `{by_augrc}`, each is significantly better by one of the two metrics.",
        by_aurc != by_augrc and differs_by_aurc and differs_by_augrc,
    )


def ranks_hide_differences(study: Study) -> str:
    is_tied = [pair.adjusted_p >= ALPHA for pair in study.neighbours()]
    return said(
        "- **Ranks hide which differences are real** (FD-Shifts, Table 11; stratified OOD). Of the 13 neighbouring pairs by "
        f"AUGRC, {sum(is_tied)} are statistically tied with 50,000 images, the best two among them.",
        sum(is_tied) > len(is_tied) / 2 and is_tied[0],
    )


def rounding_matters_little(study: Study) -> str:
    ranges = [ties.worst - ties.best for ties in study.ties]
    largest = max(np.array(ranges) / study.value["aurc"])
    return said(
        "- **Rounding to single precision matters little for convolutional networks** (FD-Shifts, Table 2; all fourteen are "
        f"convolutional). Ties leave at most {100 * largest:.1f} % of AURC open.",
        largest < 0.03,
    )


def excess_is_not_ranking(study: Study) -> str:
    with_accuracy = study.kendall("accuracy", "eaurc")
    with_auroc = study.kendall("eaurc", "auroc_f")
    return said(
        "- **E-AURC takes accuracy out of AURC, and so becomes a pure ranking metric** (FD-Shifts, below Eq. 32). "
        f"Its order is indeed unrelated to that by accuracy ({with_accuracy.value:+.2f}, interval across 0). But it is not the order "
        f"by AUROC_f either ({with_auroc.value:+.2f}; {study.count_discordant('eaurc', 'auroc_f')} of 91 pairs differ): it still "
        "gives most weight to failures among the most confident images.",
        with_accuracy.is_undecided and 0.3 < with_auroc.value < 0.7,
    )


def accuracy_orders_in_part(study: Study) -> str:
    with_aurc = study.kendall("accuracy", "aurc")
    with_augrc = study.kendall("accuracy", "augrc")
    most_accurate = study.best("accuracy")
    top_group = study.cliques("augrc")[0]
    is_in_top_group = study.names.index(most_accurate) in top_group
    error = 1 - study.value["accuracy"]
    identity = (1 - study.value["auroc_f"]) * (1 - error) * error + error**2 / 2
    return said(
        "- **Accuracy does not give the order of reliability.** This holds for AURC "
        f"({with_aurc.value:+.2f}) more than for AUGRC ({with_augrc.value:+.2f}; {study.count_discordant('accuracy', 'augrc')}"
        f" of 91 pairs differ), where `{most_accurate}` is in the top group. AUGRC equals $(1 - \\mathrm{{AUROC}}_f)\\, a e + e^2/2$ "
        "with accuracy $a$ and error rate $e$. The values of AUROC_f are so similar that the error rate decides.",
        with_augrc.low > with_aurc.high and is_in_top_group and np.allclose(study.value["augrc"], identity, atol=1e-9),
    )


# --- paragraphs -----------------------------------------------------------------------------------------------------


def ties_paragraph(study: Study) -> str:
    """Say how much ties among the confidences leave open."""
    distinct = np.array([ties.distinct for ties in study.ties])
    ones = np.array([ties.ones for ties in study.ties])
    best = 1000 * np.array([ties.best for ties in study.ties])
    worst = 1000 * np.array([ties.worst for ties in study.ties])
    width = worst - best
    fewest = int(np.argmin(distinct))
    others = np.delete(width, fewest).max()
    text = said("Ties matter only where confidences saturate.", width[fewest] > 3 * others and ones.argmax() == fewest)
    return (
        f"The confidences are in single precision, without further rounding: {distinct.min():,} to {distinct.max():,} "
        f"distinct values among 50,000, and at most {ones.max():,} of them exactly 1. {text} The AURC (x1000) of "
        f"`{study.names[fewest]}` would be {best[fewest]:.2f} with the best order among ties and "
        f"{worst[fewest]:.2f} with the worst, a range of {width[fewest]:.2f}. For the others the range is at most "
        f"{others:.2f}. Tied images share one risk, so the order of the file does not matter. The order that double precision "
        "would give cannot be recovered without logits."
    )


def class_paragraph(study: Study) -> str:
    """Say how much wider the intervals are if whole classes are resampled."""
    images = study.drawn["augrc"]
    classes = study.by_class
    single = classes.std(axis=1) / images.std(axis=1)
    paired = []
    for i, j in combinations(range(len(images)), 2):
        paired.append((classes[i] - classes[j]).std() / (images[i] - images[j]).std())
    text = said("wider for single models, and less so for differences", min(single) > max(paired) and min(paired) > 1)
    return (
        f"There is one data set, so tests over blocks do not apply: parts of it are not independent benchmarks. Groups come "
        f"from paired differences instead. Images are resampled as if they were independent. If whole classes are resampled, "
        f"as a sample of other classes, the intervals of AUGRC become {text}: {single.min():.1f} to {single.max():.1f} times as wide "
        f"for single models, and {min(paired):.2f} to {max(paired):.2f} times for differences. Then {count_different(classes)} of 91 pairs "
        f"differ significantly, instead of {count_different(images)}."
    )
