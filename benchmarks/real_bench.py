"""Reproduce the papers' tables on five real classifiers: extract, judge under every protocol, compare, and describe.

    TWOFOLD_DATA=... python benchmarks/real_bench.py [--work FOLDER] [--save]        (90 minutes on 2 cores, resumable)
    python benchmarks/real_bench.py --words                                       (5 seconds, from the saved page)

Extraction takes about an hour and the benchmarks half an hour; both are kept in the folder of --work (by default
real-bench) and resume there. With --save the pages, tables and figures go to results/. The numbers choose every sentence
on a claim; --words rewrites those on calibration and cliques from the tables of the saved page.

The tables of the SURE+ paper are made in real_bench_pairs.py. Those of the FD-Shifts paper are made in
real_bench_failures.py and real_bench_calibration.py, and those of the stratified-OOD paper in real_bench_cliques.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from script import announce, work_folder

from real_bench_calibration import calibration
from real_bench_cliques import cliques
from real_bench_failures import classifiers, precision, ranks, shifts, wrong_predictions
from real_bench_pairs import both_orders, carried_thresholds, ood_detection, single_or_double, surface_and_curve
from real_bench_results import NetworkResults
from real_bench_words import rewrite_words
from real_runs import MAIN, NETWORKS, WORK, extract
from timing import RESULTS
from twofold.bench import runner
from twofold.bench.catalogue import load
from twofold.bench.results import Results
from twofold.plot import CliqueDisplay

COMMAND = "python benchmarks/real_bench.py --save"
SHORT = ("fd_shifts", "fd_shifts_original")  # of the other networks, without intervals
GROUPS = ("test", "near", "far", "corruption")  # what the CSV has of each network:
KEPT = ("joint", "openood", "fd_shifts")  # means over sets, under the protocols of the tables


def main() -> None:
    """Judge every network, and write the page, its figures and its rows; with --words rewrite the saved page."""
    if "--words" in sys.argv:
        rewrite_page(RESULTS / "real_bench.md")
        return
    work = work_folder(WORK)
    networks = judge(work)
    every = Results.of([row for network in networks for row in network.rows.rows])
    announce("tables, figures and words")
    folder = work
    if "--save" in sys.argv:
        folder = RESULTS
    page = write_page(networks, every, folder)
    (folder / "real_bench.md").write_text(page, encoding="utf-8")
    write_rows(every, folder / "real_bench.csv")
    print(folder / "real_bench.md")


def rewrite_page(path: Path) -> None:
    """Rewrite the sentences of a saved page, and draw its cliques again."""
    page, table = rewrite_words(path.read_text(encoding="utf-8"))
    path.write_text(page, encoding="utf-8")
    CliqueDisplay.from_map(table).save(path.with_name("real_bench_cliques.png"))


def judge(work: Path) -> list[NetworkResults]:
    """Extract every network, and judge it under every protocol; those outside MAIN under few, without intervals."""
    runs = extract(NETWORKS, work)
    judged = []
    for network in NETWORKS:
        options = {}
        if network not in MAIN:
            options = {"protocols": SHORT, "pairs": [], "resamples": 0}
        announce(f"{network.name}: every protocol of {network.benchmark}")
        run = runs[network.name]
        folder = work / network.name
        rows = runner.run(load(network.benchmark), [run], folder, jobs=2, done=show_finished, **options)
        judged.append(NetworkResults(network, run, rows, folder))
    return judged


def show_finished(label: str, count: int, total: int) -> None:
    """Print one line when all tasks of a kind are finished."""
    if total and count == total:
        print(f"{label}: {total} tasks", file=sys.stderr)


def write_page(networks: Sequence[NetworkResults], every: Results, folder: Path) -> str:
    """Write the page, and draw its figures into a folder."""
    main_networks = networks[: len(MAIN)]
    sections = [
        HEAD,
        single_or_double(main_networks),
        both_orders(main_networks),
        carried_thresholds(main_networks),
        surface_and_curve(main_networks[1], folder),
        ood_detection(main_networks),
        shifts(main_networks),
        calibration(main_networks),
        ranks(networks),
        wrong_predictions(networks),
        classifiers(networks),
        precision(networks),
        cliques(every, folder),
    ]
    return "\n\n".join(sections) + "\n"


HEAD = f"""# The papers' tables on real classifiers

This page tests the papers' tables on five networks that others trained: ResNet-20 and ResNet-56 on CIFAR-10, and ResNet-32, -20 and -8
on CIFAR-100. `{COMMAND}` writes it (with `TWOFOLD_DATA` set).

The networks are far smaller than those of the papers, and there is one checkpoint of each. The page therefore asks whether a claim
shows here, not whether a published number is reproduced.

- **Data.** Real images; `twofold bench show cifar10-real` lists the sets. Near sets are the other CIFAR, and Tiny-ImageNet without the
  classes of the ID set. Far sets are SVHN, MNIST, Fashion-MNIST, notMNIST, textures, scenes (CIFAR-10 only) and noise.
- **Fitting.** Scores that learn see 10,000 training images. Settings are chosen on 1,000 known and 500 unknown validation images, by the
  rule of each protocol.
- **Units.** Rates are in percent, areas x1000. `real_bench.csv` has the means over sets with intervals."""


def write_rows(every: Results, path: Path) -> None:
    """Write the means over sets, and the rows that belong to no protocol."""
    rows = []
    for row in every.rows:
        is_mean = row["protocol"] in KEPT and row["shift"] in GROUPS
        if row["protocol"] is None or is_mean:
            rows.append({**row, "command": COMMAND})
    Results.of(rows).to_csv(path)


if __name__ == "__main__":
    main()
