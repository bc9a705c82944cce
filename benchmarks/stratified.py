"""Test the claims of the stratified study on five real classifiers: strata, projections, families of scores, cliques.

    TWOFOLD_DATA=... python benchmarks/stratified.py [--work FOLDER] [--save]    (10 minutes on 2 cores, resumable)
    python benchmarks/stratified.py --page                                       (5 seconds, from the committed cells)

The runs are those of benchmarks/real_runs.py. They are extracted where they are missing, and confidences are kept in the
folder of --work (by default real-bench). With --save the cells go to results/stratified.csv. From the cells, as with --page,
the page and the figure go to results/ and the claims to results/claims/stratified.csv. Groups are those of results/strata.csv.

Material: ResNet-20 and -56 on CIFAR-10, ResNet-32, -20 and -8 on CIFAR-100, seven or eight unknown sets each, near, mid or
far by the features of an ImageNet network. Scores are the 20 rows of Table 3 in their printed forms, with each projection
the table has. A plain score has the form of its projected ones, so that they differ by the projection alone. As in the
study, one temperature is fitted on validation images and stands before every score that reads logits, projected or not.
Open settings, the share of variance among them, are chosen by AUGRC on 1,000 validation images. Correct predictions stand
against one unknown set, and on ID against wrong predictions.

Unit: points of AUROC. The study has AUGRC. Within one block it is (1 - AUROC) a e + e^2 / 2, with share a of correct
predictions and e of failures, so AUROC has the same order and sign without the size of the set in it. Cells have both.

The rules were written before the numbers. A gain is a mean over the sets of a network, then over the five networks. Its
interval is Student's over the five (four degrees of freedom). It speaks for networks of this kind on these sets, not for
other sets. The verdict follows from the interval: holds if it is above zero, does not hold if below, inconclusive otherwise.

1. Strata order difficulty: mean AUROC of the unprojected scores, mid less near, and far less mid.
2. Projections: AUROC of the projected less that of the plain score, over unknown sets. For each of the four projections the
   gain is the mean over all scores that have it. "Several detectors improve": each score is taken with its best projection,
   and the third best score decides. Its Bonferroni interval is over all pairs of score and projection. NNGuide with the
   global projection is named by the study and has its own line.
3. Families, by the scores that the study names: MSR and GEN on ID; Energy, MLS and MSR on near sets; NNGuide, fDBD and CTM on
   mid and on far sets. Each stands against the named scores of the other side. That the lead passes from the softmax to
   geometry: the lead of geometry on far sets less that on ID.
4. Dropout: these networks have none, so several passes are not testable here. The network of benchmarks/text_claims.py has dropout.
5. Cliques by source and distance, as printed (AURC and AUGRC as separate blocks, normal test) and ours (AUGRC, Conover's test).
   That two metrics as blocks make cliques smaller: their size in ours less that in print, with an interval over the groups of
   source and distance. That no score leads everywhere: each score has a largest distance to the best score over the four
   groups; the least of these, less a margin of one point.
"""

from __future__ import annotations

import sys
from pathlib import Path

from script import work_folder

from claims import write_claims
from strata import IMAGENET
from stratified_cells import CELLS, compute_cells, group_sets, read_cells, write_cells
from stratified_claims import decide_claims
from stratified_page import write_page
from stratified_study import Study
from timing import RESULTS
from twofold.papers.material import Material
from twofold.papers.stratified_figures import draw_top_cliques

PAGE = RESULTS / "stratified.md"
FIGURE = RESULTS / "stratified_cliques.png"


def main() -> None:
    """Compute the cells unless only the page is wanted, then write what follows from them."""
    if "--page" not in sys.argv:
        work = work_folder("real-bench")
        cells = compute_cells(work)
        if "--save" not in sys.argv:
            print(f"{len(cells):,} cells; --save writes them to {CELLS}")
            return
        write_cells(cells, CELLS)
    for path in write_pages():
        print(path)


def write_pages() -> list[Path]:
    """Write the claims, the page and the figure from the committed cells."""
    study = Study(read_cells(CELLS), group_sets(IMAGENET))
    claims = decide_claims(study)
    PAGE.write_text(write_page(study, claims), encoding="utf-8")
    cliques = draw_top_cliques(Material(rows=study.result_rows()))
    cliques.figure.savefig(FIGURE, dpi=120)
    return [write_claims("stratified", claims), PAGE, FIGURE]


if __name__ == "__main__":
    main()
