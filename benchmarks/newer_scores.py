"""Judge the newer scores beside msp, energy, knn and vim on four real classifiers, and write the page of results.

    TWOFOLD_DATA=... python benchmarks/newer_scores.py [--work FOLDER] [--save]        (about ten minutes, resumable)

Fitted on 2,000 training images, with default settings (untuned); 1,000 images of each other set. AUROC of right against
wrong test answers, and of the test set against unknown sets. Scores that need a perturbed input or the inputs of ReLUs
are judged on the first network only. The costs are those of results/scores.csv. With --save the page goes to
results/newer_scores.md.
"""

from __future__ import annotations

import csv
import sys

from script import announce, data_folder, work_folder

import numpy as np

from real_runs import NETWORKS, Network
from timing import RESULTS
from twofold import metrics
from twofold.nn.extraction import extract_all
from twofold.run import Run
from twofold.scores import fit_all, score_all

COMMAND = "python benchmarks/newer_scores.py --save"
KNOWN = ("msp", "energy", "knn", "vim")
NEWER = (
    *("caref", "cadref", "nac", "nac(alpha=1.0)", "weiper", "weiper(kind='kld')", "grood", "cfood", "trust"),
    *("combood(of='penultimate')", "gradorth", "graduncertainty", "joint_energy", "mcm", "optfs|energy"),
)
RECORDED = ("combood", "adascale|energy", "adascale(kind='l')|energy", "iodin", "pro")
UNKNOWN = ("near", "svhn", "textures")
JUDGED = ("misclassified", *UNKNOWN)
SHOWN = [NETWORKS[0], NETWORKS[2], NETWORKS[3], NETWORKS[1]]
EXTRAS = {"iodin": 0.0014, "pro": "msp", "adascale": True, "extremes": True}


def sets_of(network: Network) -> list[tuple[str, str, str]]:
    """List the data sets of a network: specification, role and name."""
    data = data_folder("image_labels.npz", f"weights_{network.weights}.npz")
    own, other = ("cifar10", "cifar100") if network.benchmark == "cifar10-real" else ("cifar100", "cifar10")
    files = [
        (f"{own}_train_10k.webp?labels=image_labels.npz&sample=2000", "train", "train"),
        (f"{own}_test.webp?labels=image_labels.npz&shuffle=12345&rows=0:500", "val", "val"),
        (f"{own}_test.webp?labels=image_labels.npz&shuffle=12345&rows=1000:2000", "test", "test"),
        (f"{other}_test.webp?labels=image_labels.npz&shuffle=12345&rows=0:1000", "near", "near"),
        ("ood_svhn.webp?labels=image_labels.npz&rows=0:1000", "far", "svhn"),
        ("ood_textures.webp?labels=image_labels.npz&rows=0:1000", "far", "textures"),
    ]
    return [(f"sheet:{data}/{file}", role, name) for file, role, name in files]


def extract(network: Network) -> Run:
    """Extract the run of a network where it is missing."""
    data = data_folder(f"weights_{network.weights}.npz")
    extras = EXTRAS if network is SHOWN[0] else {}
    return extract_all(
        network.model,
        sets_of(network),
        work_folder("newer-scores") / network.name,
        checkpoints=[f"{data}/weights_{network.weights}.npz"],
        normalise=network.statistics,
        classes=10 if network.benchmark == "cifar10-real" else 100,
        **extras,
    )


def judge(run: Run, specs: list[str]) -> dict[str, list[float]]:
    """Compute the AUROC of each score: right against wrong, then the test set against each unknown set."""
    chains = fit_all(specs, run["train"], val=run["val"])
    test = run["test"]
    known = score_all(chains, test)
    areas = {spec: [metrics.auroc(test.correct, known[i])] for i, spec in enumerate(specs)}
    for name in UNKNOWN:
        others = score_all(chains, run[name])
        for i, spec in enumerate(specs):
            conf = np.concatenate([known[i], others[i]])
            areas[spec].append(metrics.auroc(np.arange(len(conf)) < len(test), conf))
    return areas


def table(network: Network, areas: dict[str, list[float]]) -> str:
    """Write the table of one network, the best of each column in bold."""
    best = np.max(list(areas.values()), axis=0)
    lines = [f"## {network.name}", "", f"| score | {' | '.join(JUDGED)} |", f"|---|{'---:|' * len(JUDGED)}"]
    for spec, values in areas.items():
        cells = [f"**{100 * v:.1f}**" if v == top else f"{100 * v:.1f}" for v, top in zip(values, best, strict=True)]
        shown = f"`{spec}`".replace("|", "\\|")
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def words(every: dict[str, dict[str, list[float]]]) -> str:
    """Say from the numbers which scores lead, and where the newer ones stand against the known ones."""
    lines = []
    for j, column in enumerate(JUDGED):
        means = {}
        for spec in (*KNOWN, *NEWER):
            means[spec] = float(np.mean([areas[spec][j] for areas in every.values()]))
        old = max(KNOWN, key=means.__getitem__)
        new = max(NEWER, key=means.__getitem__)
        above = sum(means[spec] > means[old] for spec in NEWER)
        lines.append(
            f"- **{column}**: the best newer score is `{new}` ({100 * means[new]:.1f}), the best known one `{old}` "
            f"({100 * means[old]:.1f}); {above} of {len(NEWER)} newer scores are above it, on average over the networks."
        )
    return "\n".join([*lines, ""])


def costs() -> str:
    """Write what each newer score costs, from the last measurement of ``benchmarks/scores.py``."""
    with (RESULTS / "scores.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["quantity"] == "scoring / knn"]
    lines = [
        "## Cost",
        "",
        "Time to score 1,000 rows of width 512 with 100 classes, fitted on 50,000 rows, relative to `knn(k=50)` on the same",
        "rows, which is one search of them (`python benchmarks/scores.py --save`). What extraction records is not counted.",
        "Scores of one call share: `knn`, `nnguide` and `combood` cost one product together.",
        "",
        "| score | time / knn |",
        "|---|---:|",
    ]
    for row in rows:
        spec = row["case"].removesuffix(", 1k rows").replace("|", "\\|")
        lines.append(f"| `{spec}` | {float(row['value']):.3g} |")
    return "\n".join([*lines, ""])


def main():
    every, pages = {}, []
    for network in SHOWN:
        announce(f"outputs of {network.name}, extracted where they are missing")
        run = extract(network)
        specs = [*KNOWN, *NEWER, *(RECORDED if network is SHOWN[0] else ())]
        announce(f"{network.name}: {len(specs)} scores")
        every[network.name] = judge(run, specs)
        pages.append(table(network, every[network.name]))
    start = (
        "# Newer scores on real classifiers\n\n"
        f"Written by `{COMMAND}`. AUROC in percent, on classifiers trained by others: right against wrong test answers\n"
        "(misclassified), and the test set against unknown images: the other CIFAR (near), SVHN and textures. Scores are\n"
        "fitted on 2,000 training images with their default settings and are not tuned; each other set has 1,000 images,\n"
        "so differences below about two points are noise.\n"
    )
    page = "\n".join([start, words(every), *pages, costs()])
    print(page)
    if "--save" in sys.argv:
        (RESULTS / "newer_scores.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
