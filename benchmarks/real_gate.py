"""Test gates on real classifiers: thresholds on other unknown sets, promises under shift, two scores against one.

    TWOFOLD_DATA=... python benchmarks/real_gate.py [--work FOLDER] [--save]        (about five minutes)

The runs are those of ``benchmarks/real_bench.py``, in the folder of --work (by default real-bench). Missing runs are
extracted first, which takes half an hour more and resumes. With --save the page, its table and its figure go to results/, else to the
folder. The numbers choose every sentence on a claim.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from script import announce, work_folder

import numpy as np

import twofold
from real_bench import markdown, number
from real_runs import MAIN, WORK, extract
from real_scores import CHAINS
from timing import RESULTS
from twofold import metrics
from twofold.bench.catalogue import load
from twofold.errors import Infeasible
from twofold.gate import Gate
from twofold.nn.corruptions import NAMES as TYPES
from twofold.outputs import Outputs
from twofold.plot.themes import COLOURS, drawing_style
from twofold.run import Run
from twofold.scores import fit_all, score_all
from twofold.scores.registry import step_names

COMMAND = "python benchmarks/real_gate.py --save"
EVEN = 0.5  # OOD share of the tables of F1: as many unknown inputs as known ones, as in the paper
SHARE, SHARES = 0.25, (0.0, 0.1, 0.25, 0.5, 0.75)  # the share that is promised for, and those that are met
DELTA = 0.1
ALONE = {10: (0.01, 0.02, 0.05), 100: (0.05, 0.1, 0.15)}  # risks promised where all inputs are known, by classes
MIXED = {10: (0.02, 0.05, 0.1), 100: (0.05, 0.1, 0.2)}  # and where a quarter is unknown
SHOWN = ("react|energy", "knn")  # second scores whose whole matrices are on the page; react is the paper's
STORED = (*SHOWN, "energy", "vim", "mds")  # and in the table
SECOND = ("energy", "react|energy", "vim", "knn")  # second scores of the promises
MSP = ("msp", None)
CARRIED = (MSP, ("msp", "energy"), ("msp", "knn"))  # gates whose promises are carried to shifted data
LEVELS = range(1, 6)
SPLITS, MANY = 3, 10  # cuts into a half that chooses and a half that judges, with and without an unknown set
SEEDS = {"known inputs alone": f"0-{MANY - 1}"} | dict.fromkeys(
    ("a quarter unknown", "two against one"), f"0-{SPLITS - 1}"
)
BATCH = 50  # inputs between two looks at a monitor


@dataclass(frozen=True, eq=False)
class World:
    """Hold a network's confidences and truths by data set; a gate is the names of one or two scores."""

    name: str
    classes: int
    near: tuple[str, ...]
    far: tuple[str, ...]
    specs: tuple[str, ...]
    conf: dict  # by score and set
    right: dict  # by known set
    corrupted: np.ndarray  # rows of the test set whose corrupted copies are in corruption/1 to /5

    @property
    def unknown(self):
        return (*self.near, *self.far)

    def outputs(self, gate, parts):
        """Build outputs from sets and rows that hold both confidences, so that none is computed twice."""
        labels = [np.where(self.right[s][r], 0, 1) if s in self.right else np.full(len(r), -1) for s, r in parts]
        columns = [np.concatenate([self.conf[spec][s][r] for s, r in parts]) for spec in gate if spec]
        labels = np.concatenate(labels)
        learned = dict(zip(("confidnet", "devries"), columns, strict=False))
        return Outputs(np.tile([1.0, 0.0], (len(labels), 1)), labels, learned=learned)

    def gate(self, gate, parts, **asked):
        """Fit a gate on these rows; None where the promise cannot be made."""
        try:
            return Gate.fit(self.outputs(gate, parts), "confidnet", "devries" if gate[1] else None, **asked)
        except Infeasible:
            return None

    def rows(self, name):
        return np.arange(len(self.conf["msp"][name]))

    def halves(self, name, seed):
        """Split rows into those that choose and those that judge; the originals of corrupted images always judge."""
        rng = np.random.default_rng(seed)
        rows = self.rows(name)
        kept = self.corrupted if name == "test" else rows[:0]
        order = np.concatenate([rng.permutation(np.setdiff1d(rows, kept)), kept])
        return np.sort(order[: len(rows) // 2]), np.sort(order[len(rows) // 2 :])


def main():
    work = work_folder(WORK)
    extract(MAIN, work)
    worlds = [opened(network, work / "runs") for network in MAIN]
    folder = RESULTS if "--save" in sys.argv else work
    rows, measured = [], {}
    for world in worlds:
        announce(f"{world.name}: promises")
        measured[world.name] = {"known": known(world), "mixed": mixed(world)}
    announce("tables and figures")
    pages = [
        head(worlds),
        transfer(worlds, rows),
        promises(worlds, measured, rows, folder),
        gains(worlds, measured, rows),
    ]
    pages.append(words(worlds, measured))
    (folder / "real_gate.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")
    with open(folder / "real_gate.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], "seeds", "command", "version"], lineterminator="\n")
        writer.writeheader()
        made = {"command": COMMAND, "version": twofold.__version__}
        writer.writerows({**row, "seeds": SEEDS.get(row["table"], "0"), **made} for row in rows)
    print(folder / "real_gate.md")


def opened(network, folder):
    """Fit every score of logits, features and head on the training set, and compute it once on every set."""
    announce(f"{network.name}: fitting and computing every score")
    run, bench = Run.open(folder / network.name), load(network.benchmark)
    sets = {s: plain(run, s) for s in run.names() if s != "ood_val"}
    names = [s for s in step_names("score", needs=["logits", "features", "head"]) if s not in ("sum", "product", "mc")]
    specs = tuple(dict.fromkeys([*names, *CHAINS]))
    chains = fit_all(specs, sets["train"], val=sets["val"])
    shifted = [s for s in sets if s.startswith("corruption/")]
    few = [i for i, spec in enumerate(specs) if spec in {"msp", *SECOND}]
    conf = {spec: {} for spec in specs}
    for s in sets:
        chosen = few if s in shifted else range(len(specs)) if s != "train" else []
        for i, values in zip(chosen, score_all([chains[i] for i in chosen], sets[s]) if chosen else [], strict=True):
            conf[specs[i]][s] = values
    right = {s: sets[s].correct for s in ("val", "test", *shifted)}
    own = np.flatnonzero(np.isin(run["test"].ids, run["corruption/1"].ids))
    world = World(network.name, bench.classes, bench.names("near"), bench.names("far"), specs, conf, right, own)
    unknown = world.unknown[0]
    parts = [("val", world.rows("val")), (unknown, world.rows(unknown))]
    ours = world.gate(("msp", "energy"), parts, ood_share=EVEN)
    direct = Gate.fit(Outputs.concat([sets["val"], sets[unknown]]), "msp", "energy", ood_share=EVEN)
    assert np.allclose(ours.taus(), direct.taus(), rtol=1e-9)  # stored confidences make the gate that outputs make
    return world


def plain(run, name):
    one = run[name]
    labels = one.labels if run.roles[name] in ("train", "val", "test", "shift") else np.full(len(one), -1)
    return Outputs(one.logits, labels, one.features, run.head)


def note(rows, table, network, gate, chosen, judged, asked, quantity, value):
    named = gate if isinstance(gate, str) else called(gate)
    rows.append(dict(zip(("table", "network", "gate", "chosen_on", "judged_on", "asked", "quantity"),
                         (table, network, named, chosen, judged, asked, quantity), strict=True),
                     value=f"{value:.6g}"))  # fmt: skip


def table(header, lines):
    """Write a Markdown table in which the bar of a chain ends no cell."""

    def safe(line):
        return [str(x).replace("|", "\\|") for x in line]

    return markdown(safe(header), [safe(line) for line in lines])


def called(gate):
    return gate[0] if gate[1] is None else f"{gate[0]} + {gate[1]}"


def head(worlds):
    used = [world.name for world in worlds]
    missing = [network.name for network in MAIN if network.name not in used]
    said = f" {', '.join(missing)} had no complete run when this page was written." if missing else ""
    return f"""# What gates do on real classifiers

This page shows what gates do on two real classifiers ({", ".join(used)}): whether thresholds carry over to other unknown inputs,
what guaranteed risks become under shift, and what a second score gains.{said} `{COMMAND}` writes it (with `TWOFOLD_DATA` set).

Scores have their default settings and learn from 10,000 training images. Rates are in percent."""


# Thresholds from one unknown set on another


def transfer(worlds, rows):
    parts = [
        "## Thresholds from one unknown set on another (SURE+ paper, Table 2, all scores)",
        "Each gate takes the thresholds with the best F1 on the 1,000 validation images and the first half of one unknown "
        "set. It is judged on the 9,000 test images and the second half of every set. Both count as many unknown as known "
        f"inputs (`ood_share={EVEN}`). A cell is the F1 reached, as a share of the best F1 that the same scores can reach there "
        "with hindsight. *Own* is the set that gave the thresholds, *other* are all other sets.",
    ]
    for world in worlds:
        cells = {gate: carried(world, gate) for gate in singles_and_pairs(world)}
        for second in STORED:
            reached, best = cells["msp", second]
            lines = [[s, *(number(v / b, digits=1) for v, b in zip(line, best, strict=True))]
                     for s, line in zip(world.unknown, reached, strict=True)]  # fmt: skip
            lines.append(["*best F1 there*", *(number(b, digits=1) for b in best)])
            if second in SHOWN:
                parts += [f"### {world.name}: msp + {second}", table(["chosen on", *world.unknown], lines)]
            for i, j in np.ndindex(reached.shape):
                given = (rows, "transfer", world.name, ("msp", second), world.unknown[i], world.unknown[j], "f1")
                note(*given, "F1", reached[i, j])
                note(*given, "share of the best F1", reached[i, j] / best[j])
        parts += summary(world, cells, rows)
    return "\n\n".join(parts)


def singles_and_pairs(world):
    return [MSP] + [gate for s in world.specs if s != "msp" for gate in ((s, None), ("msp", s))]


def carried(world, gate):
    """Compute F1 on every set (column) with the thresholds of every set (row), and the best of each column."""
    test = ("test", world.rows("test"))
    targets, best = [], []
    for name in world.unknown:
        there = world.outputs(gate, [test, (name, world.halves(name, 0)[1])])
        columns = list(there.learned.values())
        point = metrics.ds_f1(there.correct, columns[0], columns[-1], there.is_id, ood_share=EVEN)
        targets.append(there)
        best.append(point.value)
    reached = np.empty((len(targets), len(targets)))
    for i, name in enumerate(world.unknown):
        made = world.gate(gate, [("val", world.rows("val")), (name, world.halves(name, 0)[0])], ood_share=EVEN)
        reached[i] = [made.report_card(there).f1 for there in targets]
    assert (reached <= np.array(best) + 1e-12).all()
    return reached, np.array(best)


def summary(world, cells, rows):
    other = ~np.eye(len(world.unknown), dtype=bool)
    lines, ahead, kept, reached_by = [], Counter(), {}, {}
    for spec in world.specs:
        if spec == "msp":
            continue
        (two, best), (one, _) = cells["msp", spec], cells[spec, None]
        msp = cells[MSP][0]
        share = two / best
        kept[spec], reached_by[spec] = float(share[other].mean()), float(two[other].mean())
        wins = (two >= np.maximum(one, msp) - 1e-12)[other]
        ahead["cells"] += wins.size
        ahead["both"] += int(wins.sum())
        ahead["msp"] += int((two >= msp - 1e-12)[other].sum())
        ahead["own"] += int((two >= np.maximum(one, msp) - 1e-12)[~other].sum())
        ahead["sets"] += len(two)
        own, least = float(share[~other].mean()), float(share[other].min())
        lines.append([spec, *(number(v, digits=1) for v in (
            own, kept[spec], least, reached_by[spec], one[other].mean(), msp[other].mean(), wins.mean()))])  # fmt: skip
        for quantity, value in (("share of the best F1, own, mean", own), ("share of the best F1, other, mean", kept[spec]),
                                ("share of the best F1, other, least", least), ("F1, other, mean", reached_by[spec])):  # fmt: skip
            note(rows, "transfer summary", world.name, ("msp", spec), "every set", "mean", "f1", quantity, value)
        note(rows, "transfer summary", world.name, (spec, None), "every set", "mean", "f1", "F1, other, mean",
             one[other].mean())  # fmt: skip
    order = sorted(range(len(lines)), key=lambda i: -float(lines[i][4]))
    top = max(reached_by, key=reached_by.get)
    firm, weak = max(kept, key=kept.get), min(kept, key=kept.get)
    msp = float(cells[MSP][0][other].mean())
    note(rows, "transfer summary", world.name, MSP, "every set", "mean", "f1", "F1, other, mean", msp)
    below = [spec for spec, value in reached_by.items() if value < msp]
    paper = "react|energy"
    alone = float(cells[paper, None][0][other].mean())
    mean_ahead = sum(v >= max(msp, float(cells[spec, None][0][other].mean())) for spec, v in reached_by.items())
    claim = (cells["msp", paper][0] >= np.maximum(cells[paper, None][0], cells[MSP][0]) - 1e-12)[other].mean()
    header = ["second score", "pair: own, share", "other, share", "other, least", "other, F1", "score alone, F1",
              "msp alone, F1", "pair ahead of both, % of cells"]  # fmt: skip
    return [
        f"### {world.name}: every second score with msp, mean over sets",
        table(header, [lines[i] for i in order]),
        f"On other sets, {top} is the best second score: F1 {number(reached_by[top])}, against {number(msp)} of msp alone. "
        f"Of what is possible, {firm} keeps most ({number(kept[firm], digits=1)} %) and {weak} least "
        f"({number(kept[weak], digits=1)} %)."
        + (f" With {len(below)} second scores the pair is on average worse there than msp alone." if below else ""),
        f"The paper's pair, msp + {paper}, reaches {number(reached_by[paper])} on other sets, against {number(alone)} of {paper} "
        f"and {number(msp)} of msp alone. The claim that it stays ahead "
        f"{'holds on average' if reached_by[paper] >= max(alone, msp) else 'does not hold on average'}; it is ahead in "
        f"{100 * claim:.0f} % of the cells.",
        f"Over all second scores, the mean of the pair is at least that of both its scores for {mean_ahead} of "
        f"{len(reached_by)}. Cell by cell, the pair is ahead of both in {100 * ahead['both'] / ahead['cells']:.0f} % on other sets "
        f"and in {100 * ahead['own'] / ahead['sets']:.0f} % on the set that gave the thresholds. It is ahead of msp in "
        f"{100 * ahead['msp'] / ahead['cells']:.0f} %.",
        moves(world, cells),
    ]


def moves(world, cells):
    """Say which share is reached, over the pairs, from and to near and far sets."""
    near = np.array([s in world.near for s in world.unknown])
    other = ~np.eye(len(near), dtype=bool)
    kinds = {}
    for (_, second), (reached, best) in cells.items():
        if second:
            for a, b in ((True, True), (True, False), (False, True), (False, False)):
                where = other & (near[:, None] == a) & (near[None, :] == b)
                kinds.setdefault((a, b), []).append((reached / best)[where].mean())
    mean = {key: float(np.mean(v)) for key, v in kinds.items()}
    label = {True: "near", False: "far"}
    best, worst = max(mean, key=mean.get), min(mean, key=mean.get)
    return (
        f"On average over the pairs, thresholds reach {number(mean[True, False], digits=1)} % of what is possible from near to "
        f"far sets, {number(mean[False, True], digits=1)} % from far to near, {number(mean[True, True], digits=1)} % between near "
        f"sets and {number(mean[False, False], digits=1)} % between far sets. They carry over best from {label[best[0]]} to "
        f"{label[best[1]]}, and worst from {label[worst[0]]} to {label[worst[1]]}."
    )


# Promises


@dataclass(frozen=True)
class Card:
    """Hold what a promise became. ``let_in``: accepted share of unknown inputs; ``wrong``: wrong labels among accepted known."""

    gate: tuple
    asked: float
    source: str
    seed: int
    kind: str  # fresh, level, set, share
    target: str
    risk: float
    coverage: float
    kept: str
    let_in: float = 0.0
    wrong: float = 0.0
    alarm: bool | None = None  # of the monitor, where it watched


def card(gate, made, outputs, *given):
    one = made.report_card(outputs)
    unknown = int((~outputs.is_id).sum())
    let_in = one.false_accept_ood / unknown if unknown else 0.0
    wrong = one.false_accept_mistakes / max(one.false_accept_mistakes + one.true_accept, 1)
    return Card(gate, made.promise.risk, *given, one.risk, one.coverage, one.kept, let_in, wrong)


def known(world):
    """Make promises for known inputs alone: fresh ones, every level, every type of corruption; when a monitor alarms."""
    found = {"cards": [], "alarms": [], "refused": 0, "made": 0}
    size = len(world.rows("corruption/1")) // len(TYPES)
    for seed in range(MANY):
        chosen, fresh = world.halves("test", seed)
        for gate in (MSP, ("msp", "energy")):
            for risk in ALONE[world.classes]:
                made = world.gate(gate, [("test", chosen)], objective="risk", risk=risk, delta=DELTA)
                found["made" if made else "refused"] += 1
                if made is None:
                    continue
                here = world.outputs(gate, [("test", fresh)])
                found["cards"].append(card(gate, made, here, "none", seed, "fresh", "fresh"))
                found["alarms"].append((0, *watched(made, here, seed)))
                for level in LEVELS:
                    name = f"corruption/{level}"
                    here = world.outputs(gate, [(name, world.rows(name))])
                    found["cards"].append(card(gate, made, here, "none", seed, "level", str(level)))
                    found["alarms"].append((level, *watched(made, here, seed)))
                    for k, kind in enumerate(TYPES):  # one type has every image once, so that intervals are right
                        rows = np.arange(k * size, (k + 1) * size)
                        one = world.outputs(gate, [(name, rows)])
                        found["cards"].append(card(gate, made, one, "none", seed, "type", f"{level} {kind}"))
    return found


def watched(made, outputs, seed, share=0.0):
    """Check whether the monitor alarms within 4,500 inputs (fewer where unknown ones run out), and after how many."""
    rng, verdict = np.random.default_rng(seed), made.decide(outputs).verdict
    inside, outside = (rng.permutation(verdict[kind]) for kind in (outputs.is_id, ~outputs.is_id))
    count = min(4500, int(0.8 * len(outside) / share)) if share else min(4500, len(inside))
    unknown = rng.random(count) < share
    stream = np.empty(count, verdict.dtype)
    stream[~unknown], stream[unknown] = inside[: (~unknown).sum()], outside[: unknown.sum()]
    monitor = made.monitor()
    for start in range(0, count, BATCH):
        if monitor.update(stream[start : start + BATCH]):
            return True, monitor.n
    return False, monitor.n


def mixed(world):
    """Make promises for a quarter of unknown inputs, from every unknown set: fresh data, and for CARRIED all the rest."""
    found = {"cards": [], "tried": [], "best": {}}
    gates = [MSP, *((s, None) for s in SECOND), *(("msp", s) for s in SECOND)]
    for seed in range(SPLITS):
        chosen, fresh = world.halves("test", seed)
        halves = {name: world.halves(name, seed) for name in world.unknown}
        for source in world.unknown:
            parts = [("test", chosen), (source, halves[source][0])]
            for gate in gates:
                if gate[1]:
                    there = world.outputs(gate, [("test", fresh), (source, halves[source][1])])
                    conf = there.learned.values()
                    curve = metrics.ds_risk_coverage_curve(there.correct, *conf, there.is_id, ood_share=SHARE)
                for risk in MIXED[world.classes]:
                    made = world.gate(gate, parts, objective="risk", risk=risk, delta=DELTA, ood_share=SHARE)
                    found["tried"].append((gate, risk, source, seed))
                    if gate[1]:
                        found["best"][gate, risk, source, seed] = curve.coverage[curve.risk <= risk].max(initial=0.0)
                    if made is not None:
                        found["cards"] += followed(world, gate, made, fresh, halves, source, seed)
    return found


def followed(world, gate, made, fresh, halves, source, seed):
    def on(known, unknown, kind, target, made=made):
        here = world.outputs(gate, [known] + ([(unknown, halves[unknown][1])] if unknown else []))
        one = card(gate, made, here, source, seed, kind, target)
        watch = gate == CARRIED[1] and kind in ("fresh", "set")
        return replace(one, alarm=watched(made, here, seed, SHARE)[0]) if watch else one

    test = "test", fresh
    cards = [on(test, source, "fresh", source)]
    if gate in CARRIED:
        cards += [on((f"corruption/{k}", world.rows(f"corruption/{k}")), source, "level", str(k)) for k in LEVELS]
        cards += [on(test, name, "set", name) for name in world.unknown if name != source]
        for share in SHARES:
            met = replace(made, promise=replace(made.promise, ood_share=share))
            cards.append(on(test, source if share else None, "share", f"{share:g}", made=met))
    return cards


def tally(cards):
    """Count cards: kept, inconclusive, broken, mean risk over the promised one, its largest, mean coverage."""
    by = Counter(c.kept for c in cards)
    ratio = np.array([c.risk / c.asked for c in cards])
    return [len(cards), by["yes"], by["inconclusive"], by["no"], f"{ratio.mean():.2f}", f"{ratio.max():.2f}",
            number(float(np.mean([c.coverage for c in cards])), digits=1)]  # fmt: skip


HEADER = ["judged on", "cards", "kept", "inconclusive", "broken", "risk / promised, mean", "largest", "ID coverage"]


def promises(worlds, measured, rows, folder):
    draw(worlds, measured, folder / "real_gate_shift.png")
    parts = [
        "## What happens to guaranteed risks",
        f"Each gate promises a risk of at most r with confidence {1 - DELTA:g}. 1,000 validation images are few for that. Here, "
        "one half of the test set (4,500 images, and one half of the unknown set) chooses the thresholds, and the other half "
        "judges them. A promise counts as kept or broken if the exact 95 % interval of the risk lies on one side of r; else it is "
        "inconclusive. Images that were corrupted never choose thresholds. Splits of one test set overlap, so the report "
        "cards are not independent.",
        f"### Known inputs alone, corruption of levels 1 to 5 (FD-Shifts paper, Figure 7), {MANY} splits",
        "The gates are msp alone and msp + energy. Each of the 15 types of corruption has a card, because the types share their "
        "600 images and one interval over all would be too narrow. *Alarms* are those of the gate's monitor (false alarms at "
        "most 1 %) within 4,500 inputs.",
        "![Risk promised and found](real_gate_shift.png)",
        "Lines are medians over splits (below: and over unknown sets), bands are the middle half, and dashed lines are what was promised.",
    ]
    for world in worlds:
        cards = measured[world.name]["known"]["cards"]
        lines = []
        for level in range(6):
            here = ([c for c in cards if c.kind == "fresh"] if level == 0
                    else [c for c in cards if c.kind == "type" and c.target.startswith(f"{level} ")])  # fmt: skip
            alarms = [a for k, a, _ in measured[world.name]["known"]["alarms"] if k == level]
            waits = [n for k, a, n in measured[world.name]["known"]["alarms"] if k == level and a]
            wait = f"{np.median(waits):.0f}" if waits else "–"
            label = f"level {level}" if level else "fresh"
            lines.append([label, *tally(here), f"{sum(alarms)} of {len(alarms)}", wait])
            counted(rows, "known inputs alone", world, "both gates", "test", label, here)
            note(rows, "known inputs alone", world.name, "both gates", "test", label, "all", "alarms, share",
                 np.mean(alarms))  # fmt: skip
        parts += [f"#### {world.name}, r = {', '.join(map(str, ALONE[world.classes]))}",
                  table([*HEADER, "alarms", "inputs to alarm, median"], lines), refusals(measured[world.name]["known"]) + types(cards)]  # fmt: skip
        for gate in (MSP, ("msp", "energy")):
            for risk in ALONE[world.classes]:
                for level in range(6):
                    here = by_level(cards, gate, risk, level)
                    if here:
                        note(rows, "known inputs alone", world.name, gate, "test", f"level {level}", risk, "risk, mean",
                             np.mean([c.risk for c in here]))  # fmt: skip
    parts += [
        f"### A quarter of the inputs unknown (`ood_share={SHARE}`), {SPLITS} splits and every unknown set",
        f"The gates are {', '.join(map(called, CARRIED))}. *Other set*: the unknown inputs come from a set that the gate never saw. "
        "*Share*: the share of unknown inputs is not the promised quarter; the sets are the same. *Level*: known inputs are "
        "corrupted, all types together, so these intervals are somewhat too narrow.",
    ]
    for world in worlds:
        parts += mixture(world, measured[world.name]["mixed"], rows)
    return "\n\n".join(parts)


def counted(rows, table, world, gate, chosen, judged, cards):
    for quantity, verdict in (("kept", "yes"), ("inconclusive", "inconclusive"), ("broken", "no")):
        share = np.mean([c.kept == verdict for c in cards])
        note(rows, table, world.name, gate, chosen, judged, "all", f"{quantity}, share of cards", share)
    note(rows, table, world.name, gate, chosen, judged, "all", "risk / promised, mean",
         np.mean([c.risk / c.asked for c in cards]))  # fmt: skip


def refusals(found):
    asked = found["made"] + found["refused"]
    return f"Of {asked} requested promises, {found['refused']} could not be made. "


def types(cards):
    """Name the corruptions that break most and fewest promises."""
    broken = {kind: np.mean([c.kept == "no" for c in cards if c.kind == "type" and c.target.endswith(f" {kind}")])
              for kind in TYPES}  # fmt: skip
    order = sorted(TYPES, key=lambda kind: -broken[kind])
    shares = [f"{kind} ({100 * broken[kind]:.0f} %)" for kind in order]
    return f"Over all levels, {', '.join(shares[:4])} break most promises; {', '.join(shares[-3:])} break fewest."


def by_level(cards, gate, risk, level):
    kind, target = ("fresh", None) if level == 0 else ("level", str(level))
    return [c for c in cards
            if c.kind == kind and c.gate == gate and c.asked == risk and target in (None, c.target)]  # fmt: skip


def mixture(world, found, rows):
    cards = [c for c in found["cards"] if c.gate in CARRIED]
    lines = []
    groups = [("fresh", [c for c in cards if c.kind == "fresh"])]
    groups += [(f"level {k}", [c for c in cards if c.kind == "level" and c.target == str(k)]) for k in LEVELS]
    for a in ("near", "far"):
        for b in ("near", "far"):
            inside = [c for c in cards if c.kind == "set" and (c.source in world.near) == (a == "near")
                      and (c.target in world.near) == (b == "near")]  # fmt: skip
            groups.append((f"other set, {a} to {b}", inside))
    groups += [(f"share {s:g}", [c for c in cards if c.kind == "share" and c.target == f"{s:g}"]) for s in SHARES]
    for label, here in groups:
        if here:
            lines.append([label, *tally(here)])
            counted(rows, "a quarter unknown", world, "three gates", "every set", label, here)
    matrix, risk = [], MIXED[world.classes][1]
    pair = CARRIED[1]
    for source in world.unknown:
        line = []
        for target in world.unknown:
            kind = "fresh" if source == target else "set"
            here = [c.risk for c in cards
                    if (c.gate, c.asked, c.source, c.kind, c.target) == (pair, risk, source, kind, target)]  # fmt: skip
            line.append(number(float(np.mean(here)), digits=1) if here else "–")
            if here:
                note(rows, "a quarter unknown", world.name, pair, source, target, risk, "risk, mean", np.mean(here))
        matrix.append([source, *line])
    tried = sum(gate in CARRIED for gate, *_ in found["tried"])
    missing = tried - sum(c.kind == "fresh" for c in cards)
    return [
        f"#### {world.name}, r = {', '.join(map(str, MIXED[world.classes]))}",
        table(HEADER, lines),
        f"Of {tried} requested promises, {missing} could not be made; `Gate.fit` then raises `Infeasible`.",
        f"The risk found where {100 * risk:g} % was promised, with {called(pair)}. Thresholds are chosen on the set of the row and "
        "judged on the set of the column.",
        table(["chosen on", *world.unknown], matrix),
    ]


def draw(worlds, measured, path):
    from matplotlib import pyplot as plt

    with drawing_style():
        figure, axes = plt.subplots(
            2, len(worlds), figsize=(3.6 * len(worlds) + 0.4, 5.4), squeeze=False, sharex=True, layout="constrained"
        )
        for column, world in enumerate(worlds):
            panels = (("known inputs alone, msp", "known", MSP, ALONE),
                      ("a quarter unknown, msp + energy", "mixed", CARRIED[1], MIXED))  # fmt: skip
            for line, (title, part, gate, asked) in enumerate(panels):
                one = axes[line, column]
                for i, risk in enumerate(asked[world.classes]):
                    groups = [by_level(measured[world.name][part]["cards"], gate, risk, k) for k in range(6)]
                    if not groups[0]:
                        continue
                    found = np.array([[100 * c.risk for c in g] for g in groups])
                    colour = COLOURS[i]
                    low, high = np.quantile(found, (0.25, 0.75), axis=1)
                    one.fill_between(range(6), low, high, color=colour, alpha=0.15, linewidth=0)
                    one.plot(
                        range(6),
                        np.median(found, axis=1),
                        color=colour,
                        marker="o",
                        markersize=3.5,
                        label=f"r = {100 * risk:g} %",
                    )
                    one.axhline(100 * risk, color=colour, linestyle=(0, (4, 2)), linewidth=0.9)
                one.set_ylim(bottom=0)
                one.set_title(f"{world.name}: {title}")
                one.legend(frameon=False, loc="upper left")
                one.set_xticks(range(6), ["clean", *map(str, LEVELS)])
            axes[1, column].set_xlabel("level of corruption")
        for line in axes:
            line[0].set_ylabel("risk found, % (dashed: promised)")
        figure.savefig(path, dpi=120, metadata={"Software": None})
        plt.close(figure)


# Two scores against one


def gains(worlds, measured, rows):
    parts = [
        "## Coverage gained by a second score at the same guarantee",
        f"ID coverage, on the halves that judge, of gates that promise the same risk with confidence {1 - DELTA:g} at an OOD share "
        f"of {SHARE}. Numbers are means over unknown sets, risks and splits, with 0 where nothing could be promised. One score "
        "is tested on the same kind of path as two (it covers more than SGR; see `gate.csv`). *Better alone* is the better of "
        "the two single gates in every cell, with hindsight.",
    ]
    for world in worlds:
        found = measured[world.name]["mixed"]
        covered = dict.fromkeys(found["tried"], 0.0)
        covered |= {(c.gate, c.asked, c.source, c.seed): c.coverage for c in found["cards"] if c.kind == "fresh"}
        lines, said = [], []
        for label, sets in (("near", world.near), ("far", world.far)):
            for second in SECOND:
                two = "msp", second
                keys = [key[1:] for key in covered if key[0] == two and key[2] in sets]
                msp, other, both = (
                    np.array([covered[gate, *key] for key in keys]) for gate in (MSP, (second, None), two)
                )
                best = np.array([found["best"][two, *key] for key in keys])
                better = np.maximum(msp, other)
                said.append((second, label, *(float((both - v).mean()) for v in (msp, other, better))))
                shown = (float(v.mean()) for v in (msp, other, both))
                refused = "/".join(f"{(v == 0).sum()}" for v in (msp, other, both))
                lines.append([f"{label}, {second}", *(number(v, digits=1) for v in shown),
                              *(f"{100 * said[-1][i]:+.1f}" for i in (2, 4)), number(both.sum() / best.sum(), digits=1),
                              f"{refused} of {len(keys)}"])  # fmt: skip
                for quantity, value in (("msp alone", msp), ("second score alone", other), ("both", both),
                                        ("better alone", better), ("best pair with hindsight", best)):  # fmt: skip
                    given = (rows, "two against one", world.name, two, label, label, "all")
                    note(*given, f"ID coverage, {quantity}", value.mean())
        header = ["sets, second score", "msp alone", "second alone", "both", "both - msp", "both - better alone",
                  "share of hindsight", "refused: msp/second/both"]  # fmt: skip
        top, low = max(said, key=lambda s: s[2]), min(said, key=lambda s: s[4])
        above, over, beat = (sum(test(s) for s in said) for test in (
            lambda s: s[2] > 0 and s[3] > 0, lambda s: s[2] > 0, lambda s: s[4] >= 0))  # fmt: skip
        parts += [
            f"### {world.name}",
            table(header, lines),
            f"The pair covers more than msp alone in {over} of {len(said)} lines, and more than each of its scores in {above}. "
            f"The largest gain over msp is that of {top[0]} on {top[1]} sets ({100 * top[2]:+.1f} points). Against the better "
            f"single score of each cell, the pair is on average ahead in {beat} of {len(said)} lines"
            + (f" and loses up to {-100 * low[4]:.1f} points ({low[0]}, {low[1]})." if low[4] < 0 else ".")
            + " " + sizes(world, found, covered),
        ]  # fmt: skip
    return "\n\n".join(parts)


def sizes(world, found, covered):
    """Say what few unknown validation images cost."""
    count = {name: len(world.halves(name, 0)[0]) for name in world.unknown}
    few = [name for name in world.unknown if count[name] < 1000]
    reached = {}
    for small in (True, False):
        keys = [key for key in found["best"] if (key[2] in few) == small]
        reached[small] = sum(covered[key] for key in keys) / sum(found["best"][key] for key in keys)
    return (
        f"Pairs chosen with fewer than 1,000 unknown images ({', '.join(few)}) reach {number(reached[True], digits=0)} % of the "
        f"coverage of the best pair with hindsight; the others reach {number(reached[False], digits=0)} %."
        + (" A guarantee over a mixture needs unknown validation images." if reached[True] < reached[False] else "")
    )


# In plain words


def words(worlds, measured):
    parts = ["## When a promise fails, and why"]
    for world in worlds:
        cards, one = measured[world.name]["mixed"]["cards"], measured[world.name]["known"]["cards"]
        said = [
            same(one, cards),
            corrupted(world, one),
            elsewhere(world, cards),
            share(cards),
            alarm(measured[world.name]["known"], cards),
        ]
        parts += [f"### {world.name}", "\n".join(f"- {text}" for text in said)]
    return "\n\n".join(parts)


def same(one, cards):
    fresh = [c for c in (*one, *cards) if c.kind == "fresh"]
    broken = sum(c.kept == "no" for c in fresh)
    over = sum(c.risk > c.asked for c in fresh)
    holds = over <= DELTA * len(fresh)
    return (
        f"**Same kind of data.** {broken} of {len(fresh)} cards are broken. The risk found exceeds the promised one on {over} "
        f"({100 * over / len(fresh):.0f} %); on average it is {np.mean([c.risk / c.asked for c in fresh]):.2f} of it. The promise "
        f"{'holds' if holds else 'holds within measurement error' if broken <= DELTA * len(fresh) else 'does not hold'} "
        "on fresh data of the same kind."
    )


def corrupted(world, one):
    risk = ALONE[world.classes][1]
    clean, worst = (by_level(one, MSP, risk, level) for level in (0, 5))
    if not clean:
        return f"**Corruption.** A risk of {100 * risk:g} % could not be promised."
    right, conf = world.right["corruption/5"], world.conf["msp"]["corruption/5"]
    could = metrics.coverage_at_risk(right, conf, risk)
    a, b = (float(np.mean([c.risk for c in g])) for g in (clean, worst))
    kept, still = (float(np.mean([c.coverage for c in g])) for g in (clean, worst))
    first = next((k for k in LEVELS if np.mean([c.risk for c in by_level(one, MSP, risk, k)]) > risk), None)
    starts = f"from level {first} on" if first else "at no level"
    return (
        f"**Corruption.** A risk of {100 * risk:g} % promised for known inputs (msp) is exceeded {starts}. It is {number(a)} % on clean "
        f"images and {number(b)} % at level 5, while accuracy falls from {number(world.right['test'].mean(), digits=1)} % to "
        f"{number(right.mean(), digits=1)} %. "
        + (f"The gate does reject more (coverage from {number(kept, digits=1)} % to {number(still, digits=1)} %), but not "
           f"enough: the network is wrong with high confidence. At level 5, a risk of {100 * risk:g} % would leave a coverage of "
           f"{number(could, digits=1)} %. No threshold chosen on clean images can foresee that."
           if still < kept and could < still else
           f"Coverage goes from {number(kept, digits=1)} % to {number(still, digits=1)} %; with hindsight {number(could, digits=1)} % "
           "would be possible at the promised risk.")
    )  # fmt: skip


def elsewhere(world, cards):
    before = {(c.gate, c.asked, c.source, c.seed): c for c in cards if c.kind == "fresh"}
    moved = [c for c in cards if c.kind == "set"]
    broken = [c for c in moved if c.kept == "no"]
    more = sum(c.let_in > before[c.gate, c.asked, c.source, c.seed].let_in for c in broken)
    rest = [c for c in moved if c.kept != "no"]
    fewer = sum(c.let_in > before[c.gate, c.asked, c.source, c.seed].let_in for c in rest)
    rate = {(a, b): np.mean([c.kept == "no" for c in moved
                             if (c.source in world.near, c.target in world.near) == (a, b)])
            for a, b in ((True, False), (False, True))}  # fmt: skip
    assert all(c.wrong == before[c.gate, c.asked, c.source, c.seed].wrong for c in moved)
    return (
        f"**Another unknown set.** {len(broken)} of {len(moved)} promises are broken on another set. In {more} of "
        f"those {len(broken)}, the gate accepts a larger share of the new set than of the old one; it does so in {fewer} of the "
        f"other {len(rest)}. Accepted labels of known inputs are as good as before. The guarantee covers the unknown inputs it "
        "saw, "
        + ("and fails where others look more like known ones. " if broken and more > 0.9 * len(broken)
           else "and others may look more like known ones. ")
        + f"From near to far sets {100 * rate[True, False]:.0f} % are broken, from far to near {100 * rate[False, True]:.0f} %"
        + (". Validate with the nearest unknown inputs that you expect." if rate[True, False] < rate[False, True] else ".")
    )  # fmt: skip


def share(cards):
    by = {s: [c for c in cards if c.kind == "share" and c.target == f"{s:g}"] for s in SHARES}
    mean = {s: float(np.mean([c.risk / c.asked for c in group])) for s, group in by.items()}
    broken = {s: float(np.mean([c.kept == "no" for c in group])) for s, group in by.items()}
    rising = all(mean[a] < mean[b] for a, b in pairwise(SHARES))
    means = ", ".join(f"{mean[s]:.2f} at {s:g}" for s in SHARES)
    low = max(broken[s] for s in SHARES if s <= SHARE)
    high = min(broken[s] for s in SHARES if s > SHARE)
    return (
        f"**Another share of unknown inputs.** The mean ratio of risk to promised risk is {means}. It "
        f"{'grows with the share, because every accepted unknown input is a failure' if rising else 'does not always grow with the share'}. "
        f"At or below the promised share, at most {100 * low:.0f} % of the cards are broken; above it, at least {100 * high:.0f} %"
        + (". Promise for the largest share that you expect." if high > low else ".")
    )


def alarm(found, cards):
    alarms = {k: [a for level, a, _ in found["alarms"] if level == k] for k in range(6)}
    rates = [float(np.mean(alarms[k])) for k in range(6)]
    silent = [k for k in LEVELS if rates[k] < 0.9]
    fresh = [c.alarm for c in cards if c.kind == "fresh" and c.alarm is not None]
    broken, rest = ([c.alarm for c in cards if c.kind == "set" and c.alarm is not None and (c.kept == "no") == bad]
                    for bad in (True, False))  # fmt: skip
    noticed = float(np.mean(broken)) if broken else float("nan")
    return (
        f"**Would anyone notice?** The monitor sees no labels. It alarms in {sum(alarms[0])} of {len(alarms[0])} streams of clean "
        f"images and in {', '.join(f'{100 * rates[k]:.0f} % at level {k}' for k in LEVELS)}"
        + (f". Up to level {max(silent)}, a broken promise can go unnoticed. " if silent else ". ")
        + f"With a quarter unknown ({called(CARRIED[1])}), it alarms in {sum(fresh)} of {len(fresh)} streams of the same kind, in "
        f"{sum(broken)} of {len(broken)} where another unknown set broke the promise, and in {sum(rest)} of {len(rest)} where "
        "another set did not. "
        + ("It shows that the data changed, not whether the promise broke." if noticed > 0.5 and np.mean(rest) > 0.25
           else "Most broken promises are noticed." if noticed > 0.5 else "Most broken promises go unnoticed.")
    )  # fmt: skip


if __name__ == "__main__":
    main()
