"""Reproduce the papers' tables on five real classifiers: extract, judge under every protocol, compare, and describe.

    TWOFOLD_DATA=... python benchmarks/real_bench.py [--work FOLDER] [--save]        (90 minutes on 2 cores, resumable)

Extraction takes about an hour and the benchmarks half an hour; both are kept in the folder of --work (by default
real-bench) and resume there. With --save the pages, tables and figures go to results/. The numbers choose every sentence
on a claim; --words rewrites those on calibration and cliques from the tables of the saved page.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from types import SimpleNamespace

from script import announce, work_folder

import numpy as np
from scipy.stats import spearmanr

from real_runs import MAIN, NETWORKS, WORK, extract
from timing import RESULTS
from twofold import metrics, probability
from twofold._math import sigmoid
from twofold.bench import runner
from twofold.bench.blocks import Dropped
from twofold.bench.catalogue import load
from twofold.bench.clique_maps import CliqueMap, clique_map
from twofold.bench.compare import check_blocks, compare
from twofold.bench.results import Results
from twofold.errors import TooFewBlocks
from twofold.plot import CliqueDisplay, RankDisplay, RiskCoverageDisplay

COMMAND = "python benchmarks/real_bench.py --save"


SHORT = ("fd_shifts", "fd_shifts_original")  # of the other networks, without intervals
CHOICE = ("msp", "react|energy", "vim", "knn")  # scores that take turns as the ID score


def main():
    if "--words" in sys.argv:
        page, table = rewrite_words((RESULTS / "real_bench.md").read_text(encoding="utf-8"))
        (RESULTS / "real_bench.md").write_text(page, encoding="utf-8")
        CliqueDisplay.from_map(table).save(RESULTS / "real_bench_cliques.png")
        return
    work = work_folder(WORK)
    runs = extract(NETWORKS, work)
    rows = []
    for network in NETWORKS:
        shorter = {} if network in MAIN else {"protocols": SHORT, "pairs": [], "resamples": 0}
        bench = load(network.benchmark)
        announce(f"{network.name}: every protocol of {network.benchmark}")
        rows += runner.run(bench, [runs[network.name]], work / network.name, jobs=2, done=show_finished, **shorter).rows
    announce("tables, figures and words")
    every = Results.of(rows)
    world = SimpleNamespace(runs=runs, work=work, every=every)
    folder = RESULTS if "--save" in sys.argv else work
    pages = [head(), table_1(world), table_6(world), table_2(world), shapes(world, folder), table_7(world)]
    pages += [shifts(world), calibration(world), ranks(world), modes(world), classifiers(world), precision(world)]
    pages += [cliques(world, folder)]
    (folder / "real_bench.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    kept = [
        {**row, "command": COMMAND}
        for row in every.rows
        if row["protocol"] is None or (row["protocol"] in KEPT and row["shift"] in GROUPS)
    ]
    Results.of(kept).to_csv(folder / "real_bench.csv")
    print(folder / "real_bench.md")


GROUPS = ("test", "near", "far", "corruption")  # what the CSV has of each network:
KEPT = ("joint", "openood", "fd_shifts")  # means over sets, under the protocols of the tables


def show_finished(label, count, total):
    if total and count == total:
        print(f"{label}: {total} tasks", file=sys.stderr)


def of(world, network):
    """Select the rows of one network."""
    return world.every.filter(run=network.name)


def scored(world, network, protocol="joint"):
    given = load(network.benchmark), world.runs[network.name], world.work / network.name, protocol
    return {spec: one for spec, one in runner.confidences(*given).items() if not one.reason}


def cell(rows, **where):
    found = rows.filter(**where).rows
    return found[0]["value"] if found else float("nan")


def markdown(header, lines):
    head = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(head + ["| " + " | ".join(str(x).replace("|", "\\|") for x in line) + " |" for line in lines])


def number(value, factor=100, digits=2):
    return "–" if np.isnan(value) else f"{factor * value:.{digits}f}"


def joined(world, network, score, shift, pair=None):
    """Join truth and confidences of the known test set and one unknown set."""
    run, conf = world.runs[network.name], scored(world, network)
    sets = ("test", shift)
    inside = np.concatenate([np.full(len(run[name]), name == "test") for name in sets])
    correct = np.concatenate([run["test"].correct, np.zeros(len(run[shift]), bool)])
    first = np.concatenate([conf[score].conf[name] for name in sets])
    second = None if pair is None else np.concatenate([conf[pair].conf[name] for name in sets])
    return correct, inside, first, second


def head():
    return f"""# The papers' tables on real classifiers

This page tests the papers' tables on five networks that others trained: ResNet-20 and ResNet-56 on CIFAR-10, and ResNet-32, -20 and -8
on CIFAR-100. `{COMMAND}` writes it (with `TWOFOLD_DATA` set).

The networks are far smaller than those of the papers, and there is one checkpoint of each. The page therefore asks whether a claim
shows here, not whether a published number is reproduced.

- **Data.** Real images; `twofold bench show cifar10-real` lists the sets. Near sets are the other CIFAR, and Tiny-ImageNet without the
  classes of the ID set. Far sets are SVHN, MNIST, Fashion-MNIST, notMNIST, textures, scenes (CIFAR-10 only) and noise.
- **Fitting.** Scores that learn see 10,000 training images. Settings are chosen on 1,000 known and 500 unknown validation images, by the
  rule of each protocol.
- **Units.** Rates are in percent, areas x1000. `real_bench.csv` has the means over sets with intervals."""


def table_1(world):
    parts = ["## Single against double scoring (SURE+ paper, Table 1)"]
    for network in MAIN:
        rows = of(world, network)
        names = [s for s in dict.fromkeys(r["score"] for r in rows.rows if r["score"]) if s in singles(rows)]
        lines, gains, best = [], {"near": [], "far": []}, {}
        for score in sorted(names, key=lambda s: -cell(rows, **joint("msp", s, "far", "ds_f1"))):
            line = [score]
            for shift in ("near", "far"):
                one = cell(rows, **joint(score, None, shift, "f1"))
                two = cell(rows, **joint("msp", score, shift, "ds_f1"))
                area = cell(rows, **joint(score, None, shift, "aurc_id"))
                both = cell(rows, **joint("msp", score, shift, "ds_aurc"))
                line += [number(one), number(two), number(area, 1000), number(both, 1000)]
                gains[shift].append(two - cell(rows, **joint("msp", None, shift, "f1")))
                best[shift, score] = one, two
            lines.append(line)
        header = ["score", *(f"{s} {m}" for s in ("near", "far") for m in ("F1", "DS-F1", "AURC", "DS-AURC"))]
        parts += [f"### {network.name}, second score with msp", markdown(header, lines)]
        above = all(two >= max(one, cell(rows, **joint("msp", None, shift, "f1"))) - 1e-12
                    for (shift, _), (one, two) in best.items())  # fmt: skip
        near, far = (100 * float(np.mean(gains[s])) for s in ("near", "far"))
        place = {s: 1 + sum(best[s, other][0] > best[s, "msp"][0] for other in names) for s in ("near", "far")}
        parts.append(
            f"Double scoring is {'never' if above else 'sometimes'} below either single score. With exact metrics it cannot be. "
            f"Its mean gain over msp alone is {near:.2f} points of F1 on near sets and {far:.2f} on far sets, so the paper's "
            f"claim that far sets gain more {'holds' if far > near else 'does not hold'} here. As a single score, msp has "
            f"place {place['near']} of {len(names)} on near sets and {place['far']} on far sets, so the claim that it is a "
            f"strong single score "
            f"{'holds' if place['near'] <= len(names) / 4 and place['far'] <= len(names) / 4 else 'holds on near sets only' if place['near'] <= len(names) / 4 else 'does not hold'}."
        )
    return "\n\n".join(parts)


def joint(score, pair, shift, metric):
    return {"score": score, "pair": pair, "shift": shift, "protocol": "joint", "metric": metric}


def singles(rows):
    return {r["score"] for r in rows.rows if r["protocol"] == "joint" and r["pair"] is None and r["shift"] == "far"}


def table_6(world):
    parts = [
        "## Which score is the ID score (SURE+ paper, Table 6)",
        "The paper finds that VIM and ReAct are poor ID scores: DS-F1 drops when the same two scores change places. With exact "
        "metrics the order cannot matter, because a sample is accepted if both scores pass. The released grid does not scale "
        "the ID score and has thresholds between 0 and 1, so a negative ID score accepts nothing. The tables show DS-F1 in "
        "both orders, exact and by the released grid.",
    ]
    for network in MAIN:
        unknown = load(network.benchmark).names("near") + load(network.benchmark).names("far")
        lines, worst = [], 0.0
        for i, a in enumerate(CHOICE):
            for b in CHOICE[i + 1 :]:
                values = {}
                for shift in unknown:
                    correct, inside, first, second = joined(world, network, a, shift, b)
                    if a == "msp":
                        first = sigmoid(first)  # the released code knows the probability
                    for how in ("exact", "published"):
                        for order, pair in enumerate([(first, second), (second, first)]):
                            value = metrics.ds_f1(correct, *pair, inside, method=how).value
                            values.setdefault((how, order), []).append(value)
                mean = {key: float(np.mean(v)) for key, v in values.items()}
                assert abs(mean["exact", 0] - mean["exact", 1]) < 1e-12
                worst = max(worst, abs(mean["published", 0] - mean["published", 1]))
                lines.append([f"{a} and {b}", *(number(mean[h, o]) for h in ("exact", "published") for o in (0, 1))])
        header = ["pair", "exact", "exact, other order", "released grid", "released grid, other order"]
        parts += [f"### {network.name}, mean over all unknown sets", markdown(header, lines)]
        parts.append(
            f"The exact values agree in both orders. The values of the released grid differ by up to {100 * worst:.2f} points. "
            "The grid, not the scores, causes the asymmetry of the published table: the claim does not hold."
        )
    return "\n\n".join(parts)


def table_2(world):
    parts = ["## Thresholds from one unknown set on another (SURE+ paper, Table 2)"]
    for network in MAIN:
        run, conf = world.runs[network.name], scored(world, network)
        a, b = "msp", "react|energy"
        sets = "val", "ood_val"
        correct = np.concatenate([run["val"].correct, np.zeros(len(run["ood_val"]), bool)])
        inside = np.concatenate([np.full(len(run[s]), s == "val") for s in sets])
        g = {s: np.concatenate([conf[s].conf[name] for name in sets]) for s in (a, b)}
        one, other = metrics.f1(correct, g[a], inside), metrics.f1(correct, g[b], inside)
        both = metrics.ds_f1(correct, g[a], g[b], inside)
        lines = [["validation", number(one.value), number(other.value), number(both.value), "", ""]]
        wins, over = [], []
        unknown = load(network.benchmark).names("near") + load(network.benchmark).names("far")
        for shift in unknown:
            correct, inside, first, second = joined(world, network, a, shift, b)

            def at(accepted, correct=correct, inside=inside):
                return 2 * (accepted & correct).sum() / (accepted.sum() + inside.sum())

            found = [at(first >= one.threshold), at(second >= other.threshold)]
            found.append(at((first >= both.tau_id) & (second >= both.tau_ood)))
            best = metrics.ds_f1(correct, first, second, inside).value
            wins.append(found[2] >= max(found[:2]))
            over.append(found[2] >= found[0])
            lines.append([shift, *map(number, found), number(best), number(best - found[2])])
        parts += [
            f"### {network.name}: chosen on validation data with Tiny-ImageNet",
            markdown(["set", "msp alone", "react alone", "both", "both, best thresholds", "lost"], lines),
            f"With thresholds from validation data, the pair is at least as good as msp alone on {sum(over)} of {len(over)} "
            f"sets, and at least as good as both single scores on {sum(wins)}. The paper's claim that it stays ahead "
            f"{'holds' if all(wins) else 'holds on most sets' if sum(wins) > len(wins) / 2 else 'does not hold'}.",
        ]
    return "\n\n".join(parts)


def shapes(world, folder):
    from matplotlib import pyplot as plt

    network, shift = MAIN[1], "cifar10"
    correct, inside, first, second = joined(world, network, "msp", shift, "vim")
    surface = metrics.f1_surface(correct, first, second, inside, grid=128)
    point = metrics.ds_f1(correct, first, second, inside)
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    drawn = axes.pcolormesh(
        np.linspace(0, 1, len(surface.tau_ood)), np.linspace(0, 1, len(surface.tau_id)), surface.f1, cmap="cividis"
    )
    place = (surface.tau_ood <= point.tau_ood).mean(), (surface.tau_id <= point.tau_id).mean()
    axes.plot(*place, marker="*", markersize=14, color="white", markeredgecolor="black")
    axes.set(xlabel="threshold of vim (quantile)", ylabel="threshold of msp (quantile)")
    figure.colorbar(drawn, label="F1")
    axes.set_title(f"F1 of {network.name} with {shift}; star: DS-F1 = {100 * point.value:.1f}", fontsize=10)
    figure.savefig(folder / "real_bench_surface.png", dpi=100, metadata={"Software": None})
    plt.close(figure)
    curve = metrics.ds_risk_coverage_curve(correct, first, second, inside)
    curves = {"msp and vim": (curve.coverage, curve.risk)}
    for name, conf in (("msp", first), ("vim", second)):
        order = np.argsort(-conf, kind="stable")
        known = np.cumsum(inside[order])
        risk = 1 - np.cumsum(correct[order]) / np.arange(1, len(order) + 1)
        keep = np.flatnonzero(inside[order])
        curves[name] = known[keep] / inside.sum(), risk[keep]
    RiskCoverageDisplay.from_points(curves).save(folder / "real_bench_risk.png")
    area = 1000 * metrics.ds_aurc(correct, first, second, inside)
    single = [1000 * metrics.aurc_id(correct, conf, inside) for conf in (first, second)]
    return f"""## Surface and curve (SURE+ paper, Figures 1b and 2)

![F1 over both thresholds](real_bench_surface.png) ![Risk against coverage](real_bench_risk.png)

{network.name} with CIFAR-10 as the unknown set: DS-F1 is {100 * point.value:.2f}. DS-AURC is {area:.2f}, while the AURC is {single[0]:.2f}
for msp alone and {single[1]:.2f} for vim alone. The best pair of thresholds lies {"inside the square" if min(place) > 0.02 else "on the edge of the square"}.
The area of the pair is {"below both single areas, as it must be" if area <= min(single) else "not below both single areas"}."""


def table_7(world):
    parts = ["## OOD detection under the OpenOOD protocol (SURE+ paper, Table 7)"]
    shown = ("auroc_ood", "fpr95_unsafe_ood", "aupr_ood", "aupr_unsafe_ood")
    for network in MAIN:
        rows = of(world, network).filter(protocol="openood")
        names = sorted(
            {r["score"] for r in rows.filter(shift="far", metric="auroc_ood").rows},
            key=lambda s: -cell(rows, score=s, shift="far", metric="auroc_ood"),
        )
        lines = [
            [s, *(number(cell(rows, score=s, shift=shift, metric=m)) for shift in ("near", "far") for m in shown)]
            for s in names
        ]
        heads = ("AUROC", "FPR@95 (unknown positive)", "AUPR-in", "AUPR-out")
        parts += [
            f"### {network.name}",
            markdown(["score", *(f"{s} {m}" for s in ("near", "far") for m in heads)], lines),
        ]
        near, far = (
            np.array([cell(rows, score=s, shift=x, metric="auroc_ood") for s in names]) for x in ("near", "far")
        )
        parts.append(
            f"Over the scores, the rank correlation of near and far AUROC is {spearmanr(near, far).statistic:+.2f}. The best "
            f"score is {names[int(near.argmax())]} on near sets and {names[int(far.argmax())]} on far sets."
        )
    return "\n\n".join(parts)


COLUMNS = ("test", *(f"corruption/{k}" for k in range(1, 6)))


def shifts(world):
    parts = ["## Failure detection under shifts (FD-Shifts paper, Tables 1, 8 and 9)"]
    for network in MAIN:
        rows = of(world, network).filter(protocol="fd_shifts")
        bench = load(network.benchmark)
        columns = (*COLUMNS, "corruption", *bench.names("near"), *bench.names("far"))
        names = sorted(
            {r["score"] for r in rows.filter(metric="aurc", shift="test").rows},
            key=lambda s: cell(rows, score=s, shift="test", metric="aurc"),
        )
        lines = [[s, *(number(cell(rows, score=s, shift=x, metric="aurc"), 1000, 1) for x in columns)] for s in names]
        accuracy = [
            "accuracy, %",
            *(number(cell(rows, score="msp", shift=x, metric="accuracy"), 100, 1) for x in columns),
        ]
        parts += [f"### {network.name}: AURC", markdown(["score", *columns], [*lines, accuracy])]
        failing = [[s, *(number(cell(rows, score=s, shift=x, metric="auroc"), 100, 1) for x in columns)] for s in names]
        parts += [
            f"### {network.name}: AUROC of correct predictions against failures",
            markdown(["score", *columns], failing),
        ]
        best = [min(names, key=lambda s: cell(rows, score=s, shift=x, metric="aurc")) for x in columns]
        wins = {s: best.count(s) for s in best}
        lead = max(wins, key=wins.get)
        msp = [1 + sum(cell(rows, score=s, shift=x, metric="aurc") < cell(rows, score="msp", shift=x, metric="aurc")
                       for s in names) for x in columns]  # fmt: skip
        parts.append(
            f"{len(wins)} scores are best in some column; {lead} is best in most ({wins[lead]} of {len(columns)}). msp has "
            f"place {msp[0]} of {len(names)} on the test set, {msp[6]} under corruption (mean over levels), and {min(msp[7:])} "
            f"to {max(msp[7:])} on unknown sets. The paper's claim that no score wins everywhere "
            f"{'holds' if len(wins) > 1 else 'does not hold'}. The claim that no score beats the softmax baseline across shifts "
            f"{'holds' if max(msp) <= 3 else 'does not hold'} for this network."
        )
    return "\n\n".join(parts)


def calibration(world):
    parts = [
        "## Calibration of every score (FD-Shifts paper, Table 10)",
        "ECE (15 bins of equal width) of the probability of a correct prediction. Each score is Platt-scaled on the validation "
        "set; the last line shows msp without scaling.",
    ]
    for network in MAIN:
        run, conf = world.runs[network.name], scored(world, network, "fd_shifts")
        lines, on_test = [], {}
        for spec, one in conf.items():
            if one.judges != "logits":
                continue
            scaling = metrics.PlattScaling.fit(run["val"].correct, one.conf["val"])
            values = [metrics.ece(run[x].correct, scaling.apply(one.conf[x])) for x in COLUMNS]
            on_test[spec] = values[0]
            lines.append([spec, *(number(v) for v in values)])
        lines.sort(key=lambda line: float(line[1]))
        base = run["val"].correct.mean()
        errors = [metrics.ece(run[x].correct, np.full(len(run[x]), base)) for x in COLUMNS]
        lines.append([CONSTANT, *(number(v) for v in errors)])
        raw = [metrics.ece(run[x].correct, probability(run[x])) for x in COLUMNS]
        lines.append([UNSCALED, *(number(v) for v in raw)])
        parts += [f"### {network.name}", markdown(["score", *COLUMNS], lines), calibration_words(lines)]
    return "\n\n".join(parts)


CONSTANT = "a constant: the accuracy on validation data"
UNSCALED = "msp, no scaling"
NEAR = 0.02  # of the error of a constant: a score this close to it everywhere has collapsed


def calibration_words(lines):
    """Say what a table of calibration errors means for the claim: scaled scores against scaled msp, without constants."""
    errors = {name: np.array([float(value) for value in values]) for name, *values in lines}
    constant, unscaled, msp = (errors.pop(name) for name in (CONSTANT, UNSCALED, "msp"))
    allowed = np.maximum(NEAR * constant, 0.1)  # percentage points; the table has two digits
    collapsed = [name for name, own in errors.items() if (np.abs(own - constant) <= allowed).all()]
    varied = {name: own for name, own in errors.items() if name not in collapsed}
    better = [name for name, own in varied.items() if own[0] < msp[0]]
    words = f"After scaling, {len(better)} of {len(varied)} other scores have a lower error on the test set than "
    words += f"scaled msp ({msp[0]:.2f} %; {unscaled[0]:.2f} % without scaling). "
    if collapsed:
        words += f"Scores that scaling turns into almost a constant are not counted: {', '.join(collapsed)}. "
    if not better:
        verdict = "does not hold"
    else:
        verdict = "holds" if len(better) == len(varied) else f"holds for these {len(better)}"
    words += f"The claim that scores other than msp can be calibrated {verdict}. "
    hardest = min([msp[-1], *(own[-1] for own in varied.values())])
    carries = hardest <= 2 * min([msp[0], *(own[0] for own in varied.values())])
    words += f"At corruption level 5 the least error is {hardest:.2f} %, so scaling fitted on clean data "
    return words + ("still works there." if carries else "no longer works there.")


def ranks(world):
    parts = [
        "## Ranks by AURC against ranks by AUROC of failures (FD-Shifts paper, Tables 11 and 12)",
        "Spearman's correlation between the two rankings of the scores, column by column; 1 means the same order. All "
        "scores here judge one classifier, so AUROC and AURC differ by ties and weighting alone. The paper's scores come "
        "with classifiers of different accuracy, where the two rankings can differ more.",
    ]
    lines = []
    for network in NETWORKS:
        rows = of(world, network).filter(protocol="fd_shifts")
        bench = load(network.benchmark)
        columns = ("test", "corruption", *bench.names("near"), *bench.names("far"))
        names = sorted({r["score"] for r in rows.filter(metric="aurc", shift="test").rows})
        by = {
            x: spearmanr(
                [cell(rows, score=s, shift=x, metric="aurc") for s in names],
                [-cell(rows, score=s, shift=x, metric="auroc") for s in names],
            ).statistic
            for x in columns
        }
        unknown = [by[x] for x in columns[2:]]
        lines.append(
            [network.name, f"{by['test']:.3f}", f"{by['corruption']:.3f}", f"{min(unknown):.3f}", f"{max(unknown):.3f}"]
        )
    parts.append(markdown(["network", "test", "corruption", "unknown sets, least", "unknown sets, most"], lines))
    least = min(float(line[3]) for line in lines)
    parts.append(
        f"The least correlation is {least:.2f}. With one classifier for all scores, the two rankings are "
        f"{'close' if least > 0.8 else 'not close'}. The paper's claim that they differ substantially "
        f"{'does not show' if least > 0.8 else 'shows'} here. It needs scores that judge different classifiers."
    )
    return "\n\n".join(parts)


def modes(world):
    parts = [
        "## Wrong predictions on known inputs: kept or removed (FD-Shifts paper, Table 13)",
        "AUROC against each unknown set, if every known input counts as correct (original) and if wrong predictions are removed "
        "(proposed). The table shows the rank correlation of the scores between the two, and the largest change of rank.",
    ]
    lines, moved = [], []
    for network in NETWORKS:
        both = of(world, network)
        bench = load(network.benchmark)
        names = sorted({r["score"] for r in both.filter(protocol="fd_shifts", metric="auroc", shift="test").rows})
        for x in (*bench.names("near"), *bench.names("far")):
            a, b = (
                np.array([cell(both, score=s, shift=x, metric="auroc", protocol=p) for s in names])
                for p in ("fd_shifts_original", "fd_shifts")
            )
            places = [np.argsort(np.argsort(-v)) for v in (a, b)]
            moved.append(int(np.abs(places[0] - places[1]).max()))
            lines.append(
                [network.name, x, f"{spearmanr(a, b).statistic:.3f}", moved[-1], number(float((b - a).mean()))]
            )
    parts.append(
        markdown(["network", "set", "rank correlation", "largest change of rank", "mean gain in AUROC, points"], lines)
    )
    parts.append(
        f"The rank of a score changes by up to {max(moved)} places. The claim that the choice changes rankings "
        f"{'holds' if max(moved) >= 3 else 'does not hold'}."
    )
    return "\n\n".join(parts)


def classifiers(world):
    lines = []
    for network in NETWORKS:
        rows = of(world, network).filter(protocol="fd_shifts", metric="aurc")
        bench = load(network.benchmark)
        line = [network.name]
        for columns in (("test",), ("corruption",), bench.names("near"), bench.names("far")):
            values = [1000 * r["value"] for r in rows.rows if r["shift"] in columns and not np.isnan(r["value"])]
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
            line.append(f"{middle:.1f} [{low:.1f}, {high:.1f}]")
        lines.append(line)
    return "\n\n".join([
        "## Classifiers side by side (FD-Shifts paper, Figure 8)",
        "AURC over all scores: median [quartiles]. The paper compares a CNN with a ViT; the table compares five CNNs.",
        markdown(["network", "test", "corruption", "near", "far"], lines),
    ])  # fmt: skip


def precision(world):
    lines, lost = [], []
    for network in NETWORKS:
        test = world.runs[network.name]["test"]
        for kind in ("float16", "float32", "float64"):
            logits = np.asarray(test.logits).astype(kind)
            shifted = logits - logits.max(axis=1, keepdims=True)
            e = np.exp(shifted)
            top = (1 / e.sum(axis=1, dtype=kind)).astype(kind).astype(np.float64)
            area, auroc = metrics.aurc(test.correct, top), metrics.auroc(test.correct, top)
            ones = metrics.round_to_one(test.logits, dtype=kind)
            lines.append([network.name, kind, number(ones.rate), number(area, 1000), number(auroc)])
            lost.append((network.name, kind, auroc, area, ones.rate))
    exact = {name: (auroc, area) for name, kind, auroc, area, _ in lost if kind == "float64"}

    def cost(kind):
        """Compute the largest share rounded to 1, loss of AUROC and rise of AURC of a type."""
        own = [
            (rate, exact[name][0] - auroc, area - exact[name][1]) for name, k, auroc, area, rate in lost if k == kind
        ]
        return [max(values) for values in zip(*own, strict=True)]

    half, single = cost("float16"), cost("float32")
    return "\n\n".join([
        "## Floating-point precision of msp (FD-Shifts paper, Table 2)",
        markdown(["network", "type", "rounded to 1, %", "AURC", "AUROC of failures"], lines),
        f"float16 rounds up to {100 * half[0]:.1f} % of the maxima to 1. Against float64 it costs up to {100 * half[1]:.2f} "
        f"points of AUROC and {1000 * half[2]:.2f} of AURC (x1000). float32 rounds up to {100 * single[0]:.1f} % to 1, which "
        f"costs at most {100 * single[1]:.4f} points of AUROC and {1000 * single[2]:.2f} of AURC. The paper's claim that the "
        f"effect of float32 is marginal for CNNs {'holds' if single[1] < 0.001 else 'does not hold'}. The claim that half "
        f"precision hurts {'holds' if half[1] > 0.002 else 'does not show here'}.",
    ])  # fmt: skip


def cliques(world, folder):
    plain = Results.of([row for row in world.every.rows if row["pair"] is None])
    table = clique_map(plain, "augrc", protocol="fd_shifts", test="rank_z", by=("benchmark", "role"))
    CliqueDisplay.from_map(table).save(folder / "real_bench_cliques.png")
    compared = compare(plain, "augrc", protocol="fd_shifts", test="conover_t")
    RankDisplay.from_comparison(compared).save(folder / "real_bench_ranks.png")
    by_blocks = compare(plain, "augrc", protocol="fd_shifts", blocks=("benchmark", "model", "recipe", "seed", "run"))
    return "\n\n".join([
        "## Top cliques (stratified-OOD paper)",
        "These scores are statistically tied with the best by AUGRC, over all networks, by source and distance (rank-z test "
        "with Holm's correction, the paper's procedure with one metric):",
        clique_list(table),
        "![Top cliques](real_bench_cliques.png)",
        "![Average ranks over all sets and networks](real_bench_ranks.png)",
        f"Over all {len(compared.blocks)} sets and networks the top clique has {len(compared.top)} of "
        f"{len(compared.methods)} scores, led by {compared.methods[0]}. These blocks share networks and test sets, but "
        f"rank tests assume independent blocks. With one block for each of the {by_blocks.models} networks, Friedman's test "
        f"{'rejects' if by_blocks.omnibus else 'does not reject'}, and the top clique has {len(by_blocks.top)} scores.",
        clique_words(table),
        "\n".join(f"- {text}" for text in compared.warnings),
    ])  # fmt: skip


def clique_list(table):
    """List the top clique of each group, and the groups that are left out, one line each."""
    listed = []
    for j, name in enumerate(table.columns):
        inside = [m for m, top in zip(table.rows, table.member[:, j], strict=True) if top]
        line = f"- {name} ({table.blocks[j]} blocks): {len(inside)} of {int(table.judged[:, j].sum())}"
        line += f": {', '.join(inside)}" if table.omnibus[j] else "; Friedman's test does not reject"
        listed.append(line)
    return "\n".join([*listed, *(f"- left out: {one}" for one in table.dropped_groups)])


def clique_words(table):
    """Say what the map means for the claim that the best scores differ between sources and distances."""
    decided = np.flatnonzero(table.omnibus)
    everywhere = [name for name, row in zip(table.rows, table.member[:, decided], strict=True) if row.all()]
    claim = "The stratified-OOD paper's claim that the best scores differ between sources and distances"
    if len(decided) < 2:
        return f"{claim} is inconclusive at this scale: Friedman's test rejects in fewer than two groups."
    if everywhere:
        return (
            f"{claim} is inconclusive at this scale: {len(everywhere)} of {len(table.rows)} scores are in the top clique of each of "
            f"the {len(decided)} groups ({', '.join(everywhere)}), so they may be the best everywhere."
        )
    return f"{claim} holds: no score is in the top clique of each of the {len(decided)} groups."


# --- the sentences alone ----------------------------------------------------------------------------------------------


def rewrite_words(page):
    """Rewrite the sentences on calibration and cliques of a saved page from its own tables and lists."""
    page = re.sub(CALIBRATION, _calibrated, page)
    listed = re.search(CLIQUES, page, re.DOTALL)
    table = read_cliques(listed["list"])
    page = page[: listed.start("list")] + clique_list(table) + "\n\n!" + page[listed.end() :]
    page = re.sub(r"The stratified-OOD paper's claim that the best scores differ[^\n]*\n", "@\n", page)
    return page.replace("\n@\n", f"\n{clique_words(table)}\n"), table


CALIBRATION = r"(?P<table>\| score \| test \| corruption/1 [^\n]*\n\|---[^\n]*\n(?:\|[^\n]*\n)+)\nAfter[^\n]*\n"
CLIQUES = r"the paper's procedure with one metric\):\n\n(?P<list>- .*?)\n+!"


def _calibrated(found):
    """Write a table of calibration errors and the sentences on it; several rows share the errors of a constant."""
    head, rule, *rows = found["table"].strip().splitlines()
    lines = [re.split(r"(?<!\\\\) \| ", row.strip("| ")) for row in rows]
    if not any(line[0] == CONSTANT for line in lines):
        shared, count = Counter(tuple(line[1:]) for line in lines).most_common(1)[0]
        if count < 2:
            raise SystemExit("no two scores have the errors of a constant; run the benchmark again")
        lines.insert(len(lines) - 1, [CONSTANT, *shared])
    table = "\n".join([head, rule, *("| " + " | ".join(line) + " |" for line in lines)])
    return f"{table}\n\n{calibration_words([[line[0].replace(chr(92), ''), *line[1:]] for line in lines])}\n"


def read_cliques(text):
    """Read the map of cliques from its list in a saved page, without groups that are too small."""
    groups, dropped = {}, []
    for line in text.strip().splitlines():
        found = re.fullmatch(
            r"- (?P<name>.+?) \((?P<blocks>\d+) blocks\): \d+ of (?P<judged>\d+)(?:: (?P<top>.+))?.*", line
        )
        if found is None:
            kind, name, reason = re.fullmatch(r"- left out: (\w+) (.+?): (.+)", line).groups()
            dropped.append(Dropped(kind, name, reason))
            continue
        groups[found["name"]] = (int(found["blocks"]), int(found["judged"]), found["top"].split(", "))
    largest = sorted((top for *_, top in groups.values()), key=len, reverse=True)  # all are in the order of the map
    rows = list(dict.fromkeys(name for top in largest for name in top))
    kept = {}
    for name, (blocks, judged, top) in groups.items():
        try:
            check_blocks(blocks, judged, "rank_z", 0.05)
            kept[name] = (blocks, top)
        except TooFewBlocks as error:
            dropped.append(Dropped("group", name, str(error)))
    member = np.array([[name in top for _, top in kept.values()] for name in rows])
    blocks = tuple(count for count, _ in kept.values())
    every = np.ones_like(member)
    rejected = (True,) * len(kept)
    return CliqueMap(
        "augrc", "fd_shifts", "rank_z", 0.05, tuple(rows), tuple(kept), member, every, blocks, rejected, tuple(dropped)
    )


if __name__ == "__main__":
    main()
