"""Claims on scores of text: the softmax, near against far, families, projections, and passes of dropout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from script import announce

import numpy as np

from claims import Claim
from gain_claims import judge_gain
from intervals import Gain, Placements, delong, delong_other_failures, of_replicates, show_gain
from stratified_cells import PLAIN
from stratified_claims import GEOMETRY, SOFTMAX, SOFTMAX_ID, SOFTMAX_NEAR
from stratified_study import PROJECTED, plain_titles, scores_with
from text_queries import PASS_ROWS, PASSES
from text_scores import COMMAND, GROUPS, TextScores, decide_on_text
from twofold import metrics
from twofold._math import softmax
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.stats import bootstrap
from twofold.typing import Array

decide = partial(decide_on_text, unit="AUROC, points")
RESAMPLES = 1000


# --- softmax and distance -------------------------------------------------------------------------------------------


def claims_on_softmax(scores: TextScores) -> Iterable[Claim]:
    """Decide in each group whether the best rival of msp leads it, with intervals that hold for all rivals together."""
    rivals = [title for title in plain_titles() if title != "MSR"]
    for group, title in GROUPS.items():
        msp = scores.placements["MSR", PLAIN, group]
        leads = {}
        for rival in rivals:
            leads[rival] = delong(scores.placements[rival, PLAIN, group], msp, tests=len(rivals))
        best = max(leads, key=lambda rival: leads[rival].value)
        lead = leads[best].value
        highest = max(gain.high for gain in leads.values())
        lowest = max(gain.low for gain in leads.values())
        yield decide(
            "fd_shifts",
            f"On text no score beats the softmax on {title}",
            Gain(-lead, -highest, -lowest, leads[best].p),
            numbers=f"best rival of {len(rivals)}: {best}, AUROC {100 * (msp.auroc + lead):.2f}, msp {100 * msp.auroc:.2f}",
            printed_at="Table 1",
            printed="none of the scores outperforms the softmax across shifts",
        )


def claims_on_distance(scores: TextScores) -> Iterable[Claim]:
    """Decide whether far queries are easier than near ones, and which family of scores leads where."""
    near = scores.mean("near", plain_titles())
    far = scores.mean("far", plain_titles())
    yield decide(
        "stratified_ood",
        "On text far queries are easier to detect than near ones",
        delong_other_failures(far, near),
        numbers=f"mean AUROC far {100 * far.auroc:.2f}, near {100 * near.auroc:.2f}",
        printed_at="Table 1, Section 3.3",
        printed="no numbers on difficulty",
    )
    families = (
        ("id", SOFTMAX_ID, GEOMETRY, "On text MSR and GEN lead NNGuide, fDBD and CTM on wrong labels"),
        ("near", SOFTMAX_NEAR, GEOMETRY, "On text Energy, MLS and MSR lead NNGuide, fDBD and CTM on near queries"),
        ("far", GEOMETRY, SOFTMAX, "On text NNGuide, fDBD and CTM lead MSR, GEN, Energy and MLS on far queries"),
    )
    for group, ahead, behind, claim in families:
        yield decide(
            "stratified_ood",
            claim,
            delong(scores.mean(group, ahead), scores.mean(group, behind)),
            printed_at="Section 4.6 (1), Figure 1",
            printed="for CNNs: GEN and MSR on ID, Energy, MLS and MSR near, NNGuide, fDBD and CTM mid and far",
        )


# --- projections ----------------------------------------------------------------------------------------------------


def claims_on_projections(scores: TextScores) -> Iterable[Claim]:
    """Decide whether each projection helps the scores that have it, and whether class_pred helps GradNorm."""
    for projection in PROJECTED:
        titles = scores_with(projection)
        on_id = delong(scores.mean("id", titles, projection), scores.mean("id", titles))
        yield decide(
            "stratified_ood",
            f"On text the projection {projection} helps the scores that have it on unknown queries",
            gain_on_unknown(scores, titles, projection),
            numbers=f"{len(titles)} scores; on wrong labels {show_gain(on_id)}",
            printed_at="Section 3.2, Table 3",
            printed="a simple PCA projection improves several detectors",
        )
    yield decide(
        "stratified_ood",
        "On a fine-tuned transformer the projection class_pred boosts GradNorm",
        gain_on_unknown(scores, ["GradNorm"], "class_pred"),
        printed_at="Section 4.3, Figure 2",
        printed="for a ViT: boosts KPCA RecError, but specially GradNorm",
    )


def gain_on_unknown(scores: TextScores, titles: list[str], projection: str) -> Gain:
    """Compute what a projection gains on near and far queries, averaged over scores and over both sets."""
    projected = average_sets(scores.mean("near", titles, projection), scores.mean("far", titles, projection))
    plain = average_sets(scores.mean("near", titles), scores.mean("far", titles))
    return delong(projected, plain)


def average_sets(near: Placements, far: Placements) -> Placements:
    """Average two unknown sets: trusted rows by their mean placement, failures of both sets weighted alike."""
    total = len(near.failures) + len(far.failures)
    near_failures = near.failures * total / (2 * len(near.failures))
    far_failures = far.failures * total / (2 * len(far.failures))
    return Placements((near.trusted + far.trusted) / 2, np.concatenate([near_failures, far_failures]))


# --- passes of dropout ----------------------------------------------------------------------------------------------


class Passes(NamedTuple):
    """Hold what msp of one pass and of the mean of several passes says of the same queries."""

    correct_once: Array
    conf_once: Array
    correct_mean: Array
    conf_mean: Array


def claims_on_passes(run: Mapping[str, Outputs]) -> Iterable[Claim]:
    """Decide whether the mean of several passes has less AUGRC than one pass."""
    announce("resamples of passes")
    test = compare_passes(run["test"], np.asarray(run["test"].labels))
    near = compare_passes(run["near"], np.full(len(run["near"]), -1))
    both = Passes(*(np.concatenate(arrays) for arrays in zip(test, near, strict=True)))
    accuracy_once = test.correct_once.mean()
    accuracy_mean = test.correct_mean.mean()
    for title, passes in (("wrong labels", test), ("wrong labels and near queries together", both)):
        resampled = bootstrap(augrc_gain, *passes, n=RESAMPLES, seed=0)
        gain = of_replicates(resampled.value, resampled.replicates)
        yield judge_gain(
            "stratified_ood",
            f"With 150 intents {PASSES} passes of dropout beat one on {title}",
            gain,
            factor=1000,
            printed_at="Table 2, Section 4.4",
            printed="best AUGRC on TinyImageNet test 97.05 with one pass, 91.37 with 50",
            ours=f"{show_gain(gain, factor=1000)}; accuracy {accuracy_once:.2%} with one pass, {accuracy_mean:.2%} with {PASSES}",
            unit="AUGRC x1000",
            scale=f"MiniLM on CLINC150 with its dropout of 0.1: {PASS_ROWS:,} test and 1,000 near queries, {PASSES} passes",
            command=COMMAND,
        )


def compare_passes(outputs: Outputs, labels: Array) -> Passes:
    """Predict by one pass and by the mean probabilities of all passes."""
    if outputs.passes is None:
        raise InvalidInput("the run has no passes; extract it again with an empty folder of --work")
    once = softmax(np.asarray(outputs.logits, dtype=np.float64))
    several = np.asarray(outputs.passes.mean_prob, dtype=np.float64)
    return Passes(
        once.argmax(axis=1) == labels,
        once.max(axis=1),
        several.argmax(axis=1) == labels,
        several.max(axis=1),
    )


def augrc_gain(correct_once: Array, conf_once: Array, correct_mean: Array, conf_mean: Array) -> float:
    """Compute AUGRC of one pass less that of the mean of passes, each with its own correctness."""
    return metrics.augrc(correct_once, conf_once) - metrics.augrc(correct_mean, conf_mean)
