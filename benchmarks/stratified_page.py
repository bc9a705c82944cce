"""The page of the stratified study on real classifiers: claims first, then groups, projections, families and cliques."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from claims import Claim
from intervals import show_gain, student
from strata import read_distances
from stratified_cells import printed_specs
from stratified_claims import COMMAND
from stratified_study import GROUPS, PROJECTED, Study, plain_titles, projected_pairs, scores_with
from tables import markdown
from twofold.bench.clique_maps import CliqueMap
from twofold.stats import holm

CELLS_COMMAND = "python benchmarks/stratified.py --save"
ALPHA = 0.05
LISTED = 8  # members of a clique that are named


def write_page(study: Study, claims: Sequence[Claim]) -> str:
    """Write the page."""
    parts = [
        "# The stratified study on real classifiers",
        f"`{CELLS_COMMAND}` computes the cells of `stratified.csv` and writes this page; `{COMMAND}` writes it from "
        "the committed cells. The docstring of the script has the rules, which were written before the numbers. Numbers are "
        "points of AUROC with 95 % intervals of Student's t over the five networks, unless another unit is named.",
        "## Claims",
        claim_table(claims),
        "## Which sets are near, mid and far",
        strata_section(),
        "## What the projections do to each score",
        projection_section(study),
        "## Families of scores by distance",
        family_section(study),
        "## Top cliques",
        clique_section(study),
    ]
    return "\n\n".join(parts) + "\n"


def claim_table(claims: Sequence[Claim]) -> str:
    """Write a row for each claim."""
    rows = []
    for claim in claims:
        rows.append([claim.claim, claim.printed_at, claim.ours, claim.verdict])
    return markdown(["claim", "printed", "here", "verdict"], rows)


def strata_section() -> str:
    """Write the distances and the group of each set, by both embeddings."""
    rows = []
    for distance in read_distances():
        rows.append(
            [
                distance.benchmark.removesuffix("-real"),
                distance.embedding,
                distance.set,
                distance.group,
                f"{distance.frechet:.3f}",
                f"{distance.mmd:.5f}",
                f"{distance.centroid:.3f}",
            ]
        )
    table = markdown(["source", "embedding", "set", "group", "Fréchet", "MMD", "centroid"], rows)
    return f"`strata.csv`, by `python benchmarks/strata.py --save`. Claims use the ImageNet network.\n\n{table}"


def projection_section(study: Study) -> str:
    """Write the gain of each projection for each score, and in how many blocks it helps or harms."""
    pairs = projected_pairs()
    gains = {}
    for score, projection in pairs:
        gains[score, projection] = student(study.gains([score], projection))
    adjusted = dict(zip(pairs, holm([gain.p for gain in gains.values()]), strict=True))
    scores = list(dict.fromkeys(score for score, _ in pairs))
    rows = []
    for score in scores:
        row = [score]
        for projection in PROJECTED:
            pair = (score, projection)
            if pair not in gains:
                row.append("–")
                continue
            mark = " *" if adjusted[pair] < ALPHA else ""
            row.append(f"{show_gain(gains[pair])}{mark}")
        rows.append(row)
    table = markdown(["score", *PROJECTED], rows)
    return (
        "Gain over the same score without projection, after the same temperature, on unknown sets. A star marks p below 0.05 "
        f"after Holm's correction over all {len(pairs)} cells.\n\n{table}\n\n{block_counts(study)}"
    )


def block_counts(study: Study) -> str:
    """Count the blocks in which a projection helps or harms, by their intervals over images."""
    rows = []
    for projection in PROJECTED:
        row = [projection]
        for group in GROUPS:
            row.append(count_blocks(study, projection, group))
        rows.append(row)
    table = markdown(["projection", *GROUPS], rows)
    return (
        f"Blocks of score, network and set whose own interval over images (DeLong) lies on one side of zero:\n\n{table}"
    )


def count_blocks(study: Study, projection: str, group: str) -> str:
    """Count the blocks of a group in which a projection helps or harms the scores that have it."""
    scores = scores_with(projection)
    better = worse = total = 0
    for cell in study.cells:
        is_wanted = cell.projection == projection and cell.score in scores and study.group(cell) == group
        if not is_wanted or cell.low is None or cell.high is None:
            continue
        total += 1
        better += cell.low > 0
        worse += cell.high < 0
    return f"{better} better, {worse} worse of {total}"


def family_section(study: Study) -> str:
    """Write the mean AUROC of each plain score by distance."""
    rows = []
    for score in plain_titles():
        row = [score]
        for group in GROUPS:
            row.append(f"{100 * study.mean_auroc(group, [score]):.2f}")
        rows.append(row)
    return "Mean AUROC of the plain scores over networks:\n\n" + markdown(["score", *GROUPS], rows)


def clique_section(study: Study) -> str:
    """Write the top clique of each group, as printed and ours."""
    printed, ours = study.cliques()
    rows = clique_rows("as printed", printed) + clique_rows("ours", ours)
    table = markdown(["form", "group", "blocks", "size", "top clique"], rows)
    return (
        "As printed, AURC and AUGRC of one set count as two blocks and the test is normal; ours takes AUGRC once and Conover's "
        "own variance. Blocks share networks and test images, which rank tests do not allow for.\n\n"
        f"{table}\n\n![Top cliques as printed and ours](stratified_cliques.png)"
    )


def clique_rows(form: str, cliques: CliqueMap) -> list[list[str]]:
    """Write a row for each group of a map."""
    titles = {}
    for (score, projection), spec in printed_specs().items():
        titles[spec] = f"{score} {projection}".removesuffix(" none")
    rows = []
    for column, group in enumerate(cliques.columns):
        members = [titles[cliques.rows[row]] for row in np.flatnonzero(cliques.member[:, column])]
        listed = ", ".join(members[:LISTED])
        if len(members) > LISTED:
            listed += f" and {len(members) - LISTED} more"
        if not cliques.omnibus[column]:
            listed = "Friedman's test does not reject"
        rows.append([form, group.replace("-real", ""), str(cliques.blocks[column]), str(len(members)), listed])
    return rows
