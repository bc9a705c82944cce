"""Test the papers' training claims on real images: four studies, and a verdict on every claim.

    python benchmarks/studies.py --work DIR [--minutes 120] # train what is missing; rerun to resume (days in all)
    python benchmarks/studies.py --save                     # write pages and claims from results/studies (ten seconds)

Rule of the verdicts, the same for every study: the 95 % interval of a difference decides, as in ``claims.py``. It has two
independent parts, over resampled test images and over seeds; the p-value is the level at which it ends at zero. Where the best of several is compared, the end of the interval that its luck
could move is Bonferroni's. A claim is not testable, whatever its numbers are, where training lacks what it is about (a perturbation of the
printed length on a network with smaller weights, fine-tuning of a network that was not trained), with fewer than two
seeds, or where its cells are not finished.

All four studies are trained with one seed before the next seed starts, so that every table is complete early and then
gains seeds. Two of them are then repeated with a preset: AURC as a loss from a converged network, and SURE+ for longer.
What the tables need of a finished cell is kept in results/studies, from which any machine can resume. Training needs
$TWOFOLD_DATA. Run one study alone with ``twofold study run NAME --out DIR``.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from script import data_folder

from study_pages import write_pages
from study_sweep import train


def main() -> None:
    """Train, write the pages, or both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="train, with weights and outputs in this folder")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no cell that would end later")
    parser.add_argument("--compile", action="store_true", help="compile the training passes")
    parser.add_argument("--save", action="store_true", help="write the pages")
    options = parser.parse_args()
    if options.work is None and not options.save:
        parser.error("give --work to train, --save to write the pages, or both")
    if options.work is not None:
        data_folder("image_labels.npz")
        train(options.work, options.minutes, options.compile)
    if options.save:
        for path in write_pages():
            print(path)


if __name__ == "__main__":
    main()
