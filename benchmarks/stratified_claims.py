"""Claims of the stratified study, decided by the rules in the docstring of ``stratified.py``."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from claims import Claim, untestable
from gain_claims import judge_gain
from intervals import Gain, show_gain, student
from stratified_cells import group_sets
from stratified_study import PROJECTED, Study, clique_sizes, nth_best, projected_pairs, scores_with

PAPER = "stratified_ood"
COMMAND = "python benchmarks/stratified.py --page"
SCALE = "5 CIFAR ResNets (2 of CIFAR-10, 3 of CIFAR-100), 9,000 test images, 7 or 8 unknown sets"
SOFTMAX_ID = ("MSR", "GEN")
SOFTMAX_NEAR = ("Energy", "MLS", "MSR")
SOFTMAX = ("MSR", "GEN", "Energy", "MLS")
GEOMETRY = ("NNGuide", "fDBD", "CTM")
MARGIN = 0.01  # of AUROC, within which a score counts as good as the best
SEVERAL = 3  # detectors


def decide_claims(study: Study) -> list[Claim]:
    """Decide every claim."""
    return [
        *claims_on_strata(study),
        *claims_on_projections(study),
        *claims_on_families(study),
        *claims_on_training(),
        *claims_on_cliques(study),
    ]


def decide(claim: str, gain: Gain, *, ours: str, printed_at: str, printed: str) -> Claim:
    """Make a claim of the paper in points of AUROC."""
    return judge_gain(
        PAPER,
        claim,
        gain,
        printed_at=printed_at,
        printed=printed,
        ours=ours,
        unit="AUROC, points",
        scale=SCALE,
        command=COMMAND,
    )


def leave_open(claim: str, *, printed_at: str, printed: str, why: str) -> Claim:
    """Make a claim of the paper that cannot be tested here."""
    return untestable(PAPER, claim, printed_at=printed_at, printed=printed, why=why, scale=SCALE, command=COMMAND)


def regroup(study: Study) -> Study:
    """Group the sets by a CIFAR network instead of the ImageNet network."""
    return Study(study.cells, group_sets(None))


# --- difficulty -----------------------------------------------------------------------------------------------------


def claims_on_strata(study: Study) -> Iterable[Claim]:
    """Decide whether farther sets are easier."""
    regrouped = regroup(study)
    for nearer, farther in (("near", "mid"), ("mid", "far")):
        gain = study.step(nearer, farther)
        mean_nearer = 100 * study.mean_auroc(nearer)
        mean_farther = 100 * study.mean_auroc(farther)
        yield decide(
            f"Unknown sets that the embedding calls {farther} are easier to detect than {nearer} ones",
            gain,
            ours=f"{show_gain(gain)}: {farther} {mean_farther:.1f}, {nearer} {mean_nearer:.1f}. Grouped by a CIFAR network: "
            f"{show_gain(regrouped.step(nearer, farther))}",
            printed_at="Table 1, Section 3.3",
            printed="near, mid and far by CLIP distances; no numbers on difficulty",
        )


# --- projections ----------------------------------------------------------------------------------------------------


def claims_on_projections(study: Study) -> Iterable[Claim]:
    """Decide whether projections help several scores, all scores that have them, and the scores the study names."""
    yield several_improve(study)
    for projection in PROJECTED:
        yield projection_helps(study, projection)
    gain = student(study.gains(["NNGuide"], "global"))
    yield decide(
        "NNGuide is better with the global projection",
        gain,
        ours=show_gain(gain),
        printed_at="Section 4.3, Figure 1",
        printed="NNGuide, especially the global variant, is among the most frequently retained",
    )
    gain = student(study.gains(["GradNorm"], "class_pred"))
    yield leave_open(
        "On a ViT the projection class_pred boosts GradNorm",
        printed_at="Section 4.3, Figure 2",
        printed="boosts KPCA RecError, but specially GradNorm",
        why=f"a ViT fine-tuned on CIFAR would test it; on these CNNs the gain is {show_gain(gain)} points",
    )


def several_improve(study: Study) -> Claim:
    """Decide whether the third best score, each taken with its best projection, gains."""
    pairs = projected_pairs()
    by_score: dict[str, list[Gain]] = {}
    for score, projection in pairs:
        gain = student(study.gains([score], projection), tests=len(pairs))
        by_score.setdefault(score, []).append(gain)
    third, gain = nth_best(by_score, SEVERAL)
    helped = 0
    for gains in by_score.values():
        helped += any(one.value > 0 for one in gains)
    return decide(
        "A PCA projection improves several detectors",
        gain,
        ours=f"third best of {len(by_score)} scores with their best projection: {third}, {show_gain(gain)} (Bonferroni over "
        f"{len(pairs)} pairs); {helped} scores have a projection with a gain above zero",
        printed_at="Abstract, Section 4.6 (4)",
        printed="a simple PCA projection improves several detectors",
    )


def projection_helps(study: Study, projection: str) -> Claim:
    """Decide whether a projection helps the scores that have it, on average."""
    scores = scores_with(projection)
    gain = student(study.gains(scores, projection))
    on_id = student(study.gains(scores, projection, on_id=True))
    return decide(
        f"The projection {projection} helps the scores that have it on unknown sets",
        gain,
        ours=f"{show_gain(gain)} over {len(scores)} scores; on ID {show_gain(on_id)}",
        printed_at="Section 3.2, Table 3",
        printed="one of four projections; no numbers by projection",
    )


# --- families -------------------------------------------------------------------------------------------------------


def claims_on_families(study: Study) -> Iterable[Claim]:
    """Decide which family of scores leads at each distance, and whether the lead passes from one to the other."""
    printed_at = "Section 4.6 (1), Figure 1"
    printed = "GEN and MSR on ID, Energy, MLS and MSR near, NNGuide, fDBD and CTM mid and far"
    families = (
        ("id", SOFTMAX_ID, GEOMETRY, "On ID mistakes the softmax scores MSR and GEN lead NNGuide, fDBD and CTM"),
        ("near", SOFTMAX_NEAR, GEOMETRY, "On near sets Energy, MLS and MSR lead NNGuide, fDBD and CTM"),
        ("mid", GEOMETRY, SOFTMAX, "On mid sets NNGuide, fDBD and CTM lead MSR, GEN, Energy and MLS"),
        ("far", GEOMETRY, SOFTMAX, "On far sets NNGuide, fDBD and CTM lead MSR, GEN, Energy and MLS"),
    )
    regrouped = regroup(study)
    for group, ahead, behind, claim in families:
        gain = student(study.lead(group, ahead, behind))
        ours = show_gain(gain)
        if group != "id":
            other_gain = student(regrouped.lead(group, ahead, behind))
            ours += f". Grouped by a CIFAR network: {show_gain(other_gain)}"
        yield decide(claim, gain, ours=ours, printed_at=printed_at, printed=printed)
    lead_far = np.array(study.lead("far", GEOMETRY, SOFTMAX))
    lead_id = np.array(study.lead("id", GEOMETRY, SOFTMAX))
    gain = student((lead_far - lead_id).tolist())
    yield decide(
        "From ID to far sets the lead passes from the softmax to geometry",
        gain,
        ours=f"{show_gain(gain)}; lead of geometry on ID {100 * lead_id.mean():+.2f}, on far sets {100 * lead_far.mean():+.2f}",
        printed_at=printed_at,
        printed=printed,
    )


# --- training -------------------------------------------------------------------------------------------------------


def claims_on_training() -> Iterable[Claim]:
    """List the claims on networks that are trained otherwise than these."""
    yield leave_open(
        "With ten classes one pass is better than several passes of dropout",
        printed_at="Table 2, Section 4.4",
        printed="best AUGRC on CIFAR-10 test 3.91 with one pass, 4.54 with 50",
        why="these networks were trained without dropout; a CIFAR-10 network trained with dropout to full accuracy would test it",
    )
    yield leave_open(
        "Deep Gamblers is the best training for one pass, ConfidNet for several",
        printed_at="Table 2",
        printed="Deep Gamblers in 22 of 36 rows with one pass, ConfidNet in 23 of 36 with several",
        why="these networks were trained by cross-entropy alone; networks of each paradigm at full accuracy would test it",
    )
    yield leave_open(
        "On a ViT GradNorm and KPCA reconstruction error stay competitive at every distance",
        printed_at="Figure 2, Section 4.6 (2)",
        printed="persistent top groups centred on GradNorm and KPCA RecError",
        why="no vision transformer is at hand; a ViT fine-tuned on the four sources would test it",
    )


# --- cliques --------------------------------------------------------------------------------------------------------


def claims_on_cliques(study: Study) -> Iterable[Claim]:
    """Decide how the form of the test changes top cliques, and whether one score is good at every distance."""
    printed, ours = study.cliques()
    printed_sizes = clique_sizes(printed)
    our_sizes = clique_sizes(ours)
    before, after = [], []
    for group, size in printed_sizes.items():
        if group in our_sizes:
            before.append(float(size))
            after.append(float(our_sizes[group]))
    gain = student(np.subtract(after, before).tolist())
    yield judge_gain(
        "beyond",
        "Counting AURC and AUGRC as separate blocks makes top cliques smaller",
        gain,
        factor=1,
        printed_at="Appendix C",
        printed="blocks are set, paradigm, source and metric",
        ours=f"{show_gain(gain, factor=1, digits=1)} scores of {len(printed.rows)}; mean size {np.mean(before):.1f} as printed, "
        f"{np.mean(after):.1f} ours",
        unit="scores in the top clique",
        scale=f"{SCALE}; {len(before)} groups of source and distance",
        command=COMMAND,
    )
    regrets = study.regrets()
    gain = student(np.subtract(regrets, MARGIN).tolist())
    yield decide(
        "No score is within one point of the best at every distance",
        gain,
        ours=f"{show_gain(gain)} beyond the margin; the most even score is {100 * np.mean(regrets):.2f} points behind at its worst",
        printed_at="Figure 1",
        printed="leaders differ between ID, near, mid and far",
    )
    listed = ", ".join(f"{group.replace('-real', '')} {size}" for group, size in printed_sizes.items())
    yield leave_open(
        "Top cliques shrink from ID to far sets and with the number of classes",
        printed_at="Section 4.3",
        printed="clique sizes tend to contract as class count rises and from test to far",
        why=f"groups have different numbers of blocks, which alone change the size; as many blocks in each would test it. Sizes: {listed}",
    )
