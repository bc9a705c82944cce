"""Measure how well AURC is estimated from few samples: bias, true MSE and MAE of every estimator on nineteen classifiers.

    TWOFOLD_DATA=... python benchmarks/aurc_study.py [--save]        (20 s of processor time)

The estimator study of Zhou et al. (ICML 2025, arXiv:2410.15361) on saved outputs. ``--save`` writes results/aurc_study.csv,
.md and figures. The page is made of the computed numbers, and a sentence that they do not bear out stops the script.
The errors are measured in aurc_cells.py, the sentences are in aurc_sentences.py.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import script  # noqa: F401  ends with one line instead of a traceback

import twofold
from aurc_cells import Study, compute_study
from aurc_page import COMMAND, write_page
from timing import RESULTS

COLUMNS = ("model", "loss", "confidence", "n", "estimator", "population", "bias", "std", "rmse", "mae", "batches")


def main() -> None:
    """Print the page, and with --save write it with its figures and cells."""
    study = compute_study()
    page = write_page(study)
    print(page)
    if "--save" in sys.argv:
        from aurc_figures import draw_figures

        draw_figures(study)
        write_cells(study, RESULTS / "aurc_study.csv")
        (RESULTS / "aurc_study.md").write_text(page, encoding="utf-8")


def write_cells(study: Study, path: Path) -> None:
    """Write a row per cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMNS, "version", "command"))
        for cell in study.cells.values():
            key = (cell.model, cell.loss, cell.function, cell.n, cell.estimator)
            errors = [f"{value:.5g}" for value in (cell.population, cell.bias, cell.std, cell.rmse, cell.mae)]
            writer.writerow((*key, *errors, cell.batches, twofold.__version__, COMMAND))


if __name__ == "__main__":
    main()
