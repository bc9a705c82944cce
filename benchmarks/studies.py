"""Test the papers' training claims on real images: four studies, and a verdict on every claim.

    python benchmarks/studies.py --work DIR [--minutes 120] # train what is missing; rerun to resume (days in all)
    python benchmarks/studies.py --save                     # write pages and claims from results/studies (two minutes)

Rule of the verdicts, the same for every study: the 95 % interval of a difference decides, as in ``claims.py``. It has two
independent parts, over resampled test images and over seeds; the p-value is that of a normal deviate with the same
interval. A claim is not testable, whatever its numbers are, where training lacks what it is about (a perturbation of the
printed length on a network with smaller weights, fine-tuning of a network that was not trained), with fewer than two
seeds, or where its cells are not finished.

All four studies are trained with one seed before the next seed starts, so that every table is complete early and then
gains seeds. Two of them are then repeated with a preset: AURC as a loss from a converged network, and SURE+ for longer.
What the tables need of a finished cell is kept in results/studies, from which any machine can resume. Training needs
$TWOFOLD_DATA. Run one study alone with ``twofold study run NAME --out DIR``.
"""

import argparse
import csv
import itertools
import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from pathlib import Path

from script import announce, data_folder, refresh

import numpy as np
from scipy.stats import norm, spearmanr, t

import claims as evidence
import sure_plus_pages
from timing import RESULTS
from twofold import metrics, study
from twofold._math import sigmoid
from twofold.bench import runner
from twofold.bench.published import anchors
from twofold.bench.rows import better_of, key_of, method
from twofold.bench.text import scale
from twofold.errors import InvalidInput
from twofold.run import Run
from twofold.study.folder import read_json

NAMES = ("sure_plus", "aurc_finetune", "unknown", "paradigms")
KEPT = RESULTS / "studies"
SAVE = "python benchmarks/studies.py --save"
PUBLISHED = "published.csv"  # DS metrics of the first table, exact and by the released grid
VARIANTS = {  # studies with a preset: study, preset, rows, seeds, and what is added to the text of its claims
    "aurc_converged": ("aurc_finetune", "converged", None, None, "from a converged network"),
    "sure_plus_long": ("sure_plus", "long", ["basic", "sure_plus"], [0], "after 40 epochs"),
}
LATER_PRESETS = {  # studies that no table of the short ones repeats, trained one by one with `twofold study run`
    "sure_plus_trials": ("sure_plus_tuned", "trials"),
    "sure_plus_converged": ("sure_plus_tuned", "converged"),
    "sure_plus_float32": ("sure_plus_tuned", "float32"),
}
CHOSEN_BY_TRIALS = ("sure_plus_tuned", "sure_plus_converged")  # their rows were chosen by the study sure_plus_trials
FIELDS = ("cell", "recipe", "seed", "pair", "shift", "metric", "exact", "published")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--work", type=Path, help="train, with weights and outputs in this folder")
    arguments.add_argument("--minutes", type=float, default=float("inf"), help="start no cell that would end later")
    arguments.add_argument("--compile", action="store_true", help="compile the training passes")
    arguments.add_argument("--save", action="store_true", help="write the pages")
    asked = arguments.parse_args()
    if asked.work is None and not asked.save:
        arguments.error("give --work to train, --save to write the pages, or both")
    if asked.work is not None:
        train(asked.work, asked.minutes, asked.compile)
    if asked.save:
        pages()


# --- the sweep ------------------------------------------------------------------------------------------------------


def loaded(name):
    given = VARIANTS.get(name, (name, None))
    of, preset = LATER_PRESETS.get(name, given[:2])
    return study.load(of, preset=preset)


def planned():
    """Yield the names of studies and their cells, in the order in which they are trained."""
    studies = {name: loaded(name) for name in NAMES}
    for seed in sorted({seed for one in studies.values() for seed in one.seeds}):
        for name in NAMES:
            yield from ((name, cell) for cell in studies[name].cells() if cell.seed == seed)
    for name, (_, _, rows, seeds, _) in VARIANTS.items():
        yield from ((name, cell) for cell in loaded(name).cells(rows, seeds))


def train(work, minutes, compiled):
    """Train every cell that is not finished, within the minutes."""
    data_folder("image_labels.npz")
    begin = time.monotonic()
    for name in (*NAMES, *VARIANTS):
        if (KEPT / name / "cells.json").exists():
            announce(f"{name}: copying finished cells")
            study.keep(loaded(name), KEPT / name, work / name)  # what other machines finished
    for name, cell in planned():
        one, left = loaded(name), minutes - (time.monotonic() - begin) / 60
        if cell.name in study.finished(one, work / name):
            continue
        announce(f"{name}: {cell.name}")
        given = {"compiled": compiled, "done": show_progress}
        given |= {} if left == float("inf") else {"limit_minutes": max(left, 0.01)}
        try:
            study.run(one, work / name, only=[cell.row.name], seeds=[cell.seed], **given)
        except InvalidInput as error:
            if "more than the" not in str(error):
                raise
            return sys.stderr.write(f"\n{error}\n")
        keep(name, work / name)
    return None


def show_progress(label, count, total):
    refresh(f"{label} {count} of {total}")


def keep(name, work):
    """Add the finished cells of a folder to those in results/studies."""
    study.keep(loaded(name), work, KEPT / name)
    if name == "sure_plus":
        published(loaded(name), work, KEPT / name)


# --- exact and released metrics of the first table ------------------------------------------------------------------


def published(one, work, target):
    """Add DS-F1 and DS-AURC of every cell whose outputs are here, exact and by the grid of the released code."""
    file = target / PUBLISHED
    rows = list(csv.DictReader(file.open(encoding="utf-8", newline=""))) if file.exists() else []
    known = {row["cell"] for row in rows}
    for cell in one.cells():
        run = work / "runs" / cell.name
        if cell.name not in known and run.is_dir() and cell.name in study.finished(one, work):
            rows += measured(cell, Run.open(run), work / "judged" / cell.name)
    order = {cell.name: place for place, cell in enumerate(one.cells())}
    rows.sort(key=lambda row: order[row["cell"]])
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def measured(cell, run, judged):
    found = runner.confidences(cell.benchmark, run, judged, "joint")
    test = run["test"]
    for second in ("msp", "klm", "knn", "energy"):
        for shift in cell.benchmark.names("near") + cell.benchmark.names("far"):
            inside = np.concatenate([np.ones(len(test), bool), np.zeros(len(run[shift]), bool)])
            correct = np.concatenate([test.correct, np.zeros(len(run[shift]), bool)])
            pair = [np.concatenate([found[s].conf[name] for name in ("test", shift)]) for s in ("msp", second)]
            pair = [sigmoid(conf) if s == "msp" else conf for s, conf in zip(("msp", second), pair, strict=True)]
            for metric, function in (("ds_f1", metrics.ds_f1), ("ds_aurc", metrics.ds_aurc)):
                exact, grid = (function(correct, *pair, inside, method=how) for how in ("exact", "published"))
                if metric == "ds_f1":
                    exact, grid = exact.value, grid.value
                about = cell.name, cell.row.name, cell.seed, f"msp + {second}", shift, metric
                yield dict(zip(FIELDS, (*about, repr(float(exact)), repr(float(grid))), strict=True))


# --- differences and verdicts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Hold a study, its kept results, and the row of each family that validation data chose."""

    study: object
    found: object
    chosen: dict

    @classmethod
    def open(cls, name):
        folder = KEPT / name
        if not (folder / "cells.json").exists():
            return None
        one = loaded(name)
        found = study.results(one, folder)
        chosen = {(v.row, v.method): v.chosen for v in study.values(one, found)}
        if name in CHOSEN_BY_TRIALS:
            trials = sure_plus_pages.opened_trials(RESULTS.parent)
            families = {row.family for row in one.rows}
            by_trials = {family: sure_plus_pages.chosen_by_trials(trials, family) for family in families}
            chosen = {(family, name): by_trials[family] or "" for family, name in chosen}
        return cls(one, found, chosen)

    def rows(self, row, name, column):
        """Return the row of results of each benchmark and seed, for a row and method of the study."""
        metric, shift, protocol = column
        own = self.found.filter(recipe=self.chosen.get((row, name), row), metric=metric, shift=shift, protocol=protocol)
        return {(r["benchmark"], r["seed"]): r for r in own.rows if method(r) == name and not np.isnan(r["value"])}

    def mean(self, row, name, column):
        own = self.rows(row, name, column)
        return float(np.mean([r["value"] for r in own.values()])) if own else float("nan")


@dataclass(frozen=True)
class Difference:
    """Hold how much better one method is than another, positive is better; with an interval over images and seeds."""

    mean: float
    low: float
    high: float
    seeds: int

    def verdict(self, worse=False):
        """Say whether one is better (or worse), beyond what other images and other seeds would change."""
        sign = -1 if worse else 1
        low, high = sorted((sign * self.low, sign * self.high))
        return UNTESTABLE if self.seeds < 2 else evidence.decide(low, high)

    @property
    def p(self):
        """The two-sided p-value of no difference: that of a normal deviate whose interval reaches as far to zero."""
        width = abs(self.mean - (self.low if self.mean > 0 else self.high))
        deviate = norm.ppf(0.975) * abs(self.mean) / width if width else np.inf
        return float(2 * norm.sf(deviate))


INCONCLUSIVE = evidence.INCONCLUSIVE
UNTESTABLE = evidence.NOT_TESTABLE


def difference(world, one, other, column):
    """Compare one (row, method) with another, on the benchmarks and seeds that both have.

    The half-width of the interval has two independent parts: that over resampled test images, and Student's t times
    the standard error over seeds (and splits). Of two networks its variance is what is left of the values of all rows
    by the same two methods after a mean for each row and one for each seed: the two-way layout without replication. Of
    two methods on one network it is that of their difference around its mean, over all networks that have both.
    """
    a, b = world.rows(*one, column), world.rows(*other, column)
    shared = [place for place in a if place in b]
    if not shared:
        return None
    sign = 1.0 if better_of([next(iter(a.values()))]) == "higher" else -1.0
    mean = float(np.mean([sign * (a[place]["value"] - b[place]["value"]) for place in shared]))
    drawn = [sign * (reps(world, a[place]) - reps(world, b[place])) for place in shared]
    low, high = np.nanquantile(np.mean(drawn, axis=0), (0.025, 0.975))
    families = dict.fromkeys(row.family for row in world.study.rows)

    def found(name):
        every = {row: world.rows(row, name, column) for row in families}
        return {row: [own[p]["value"] for p in shared] for row, own in every.items() if set(shared) <= set(own)}

    if network(world, one[0]) == network(world, other[0]):
        first, second = ({network(world, row): own for row, own in found(name).items()} for _, name in (one, other))
        both = [row for row in first if row in second]
        noise, free = within(np.array([np.subtract(first[row], second[row]) for row in both]))
        share = 1 / len(shared)
    else:
        noise, free = residual(np.array([own for name in {one[1], other[1]} for own in found(name).values()]))
        share = 2 / len(shared)
    width = t.ppf(0.975, free) * noise * np.sqrt(share) if free else 0.0
    below, above = np.hypot(mean - low, width), np.hypot(high - mean, width)
    limits = in_range(column[0], mean - below, mean + above)
    return Difference(mean, *limits, len({seed for _, seed in shared}))


def in_range(metric, low, high):
    """Cut the limits of a difference where no difference of two values of the metric can lie."""
    least, most = metrics.info(metric).bounds
    width = most - least
    return float(max(low, -width)), float(min(high, width))


def network(world, row):
    """Return the row whose classifier a row judges with: ConfidNet learns on that of another and leaves it unchanged."""
    given = next(one for one in world.study.rows if one.family == row)
    return given.checkpoint if given.recipe.startswith("confidnet") else row


def residual(table):
    """Compute the standard deviation after a mean for each row and each column, and its degrees of freedom."""
    free = (table.shape[0] - 1) * (table.shape[1] - 1)
    rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return (float(np.sqrt((rest**2).sum() / free)) if free else 0.0), free


def within(table):
    """Compute the standard deviation after a mean for each row, and its degrees of freedom."""
    free = table.shape[0] * (table.shape[1] - 1)
    rest = table - table.mean(axis=1, keepdims=True)
    return (float(np.sqrt((rest**2).sum() / free)) if free else 0.0), free


def reps(world, row):
    return np.asarray(world.found.replicates[key_of(row)])


@dataclass(frozen=True)
class Claim:
    """Hold a sentence of a paper: ``one`` is better (or worse) than each of ``others`` by a column of the study."""

    study: str
    text: str
    printed: str
    column: tuple
    one: tuple
    others: tuple
    worse: bool = False

    @property
    def rows(self):
        """The rows of the study that the claim is about."""
        return {row for row, _ in (self.one, *self.others)}

    def line(self, world, verdict=None):
        """Write the claim, both numbers and the verdict (or the given one); None where nothing is finished."""
        if world is None or not world.rows(*self.one, self.column):
            return None
        rivals = [other for other in self.others if world.rows(*other, self.column)]
        if not rivals:
            return None
        lower = better_of([next(iter(world.rows(*self.one, self.column).values()))]) == "lower"
        best = max(rivals, key=lambda other: (-1 if lower else 1) * world.mean(*other, self.column))
        line = compared(world, self.text, self.printed, self.column, self.one, best, self.worse)
        return line if verdict is None else replace(line, verdict=verdict)


@dataclass(frozen=True)
class Line:
    """Hold a line of the tables: the claim, the column, the paper's numbers, ours with the interval, the verdict."""

    text: str
    column: tuple
    printed: str
    ours: str
    verdict: str
    found: Difference
    worse: bool

    def cells(self):
        """Write the line as cells of a table."""
        metric, shift, _ = self.column
        unit = scale(metric)[1]
        return [self.text, f"{metric} {shift}" + (f" ({unit})" if unit else ""), self.printed, self.ours, self.verdict]


def compared(world, text, printed, column, one, other, worse=False):
    """Compare two methods in a line of the tables."""
    factor, _ = scale(column[0])
    d = difference(world, one, other, column)
    ours = (
        f"{named(one)} {factor * world.mean(*one, column):.2f}, {named(other)} {factor * world.mean(*other, column):.2f}; "
        f"{'better' if d.mean > 0 else 'worse'} by {factor * abs(d.mean):.2f} "
        f"[{factor * min(d.low, d.high):.2f}, {factor * max(d.low, d.high):.2f}], "
        f"{d.seeds} seed{'s' if d.seeds > 1 else ''}"
    )
    return Line(text, column, printed, ours, d.verdict(worse), d, worse)


def named(place):
    row, name = place
    return row if name == "msp" else f"{row} ({name})"


# --- what the papers say --------------------------------------------------------------------------------------------


def said(paper, table, benchmark, column, recipe, score="msp", pair="", model=None):
    """Find a published number, in the unit of our tables; None where there is none."""
    metric, shift, _ = column
    for a in anchors(paper=paper, table=table, benchmark=benchmark):
        same = (a.metric, a.shift, a.recipe, a.score, a.pair) == (metric, shift, recipe, score, pair)
        if same and model in (None, a.model):
            return scale(metric)[0] * a.rate
    return None


def claim(name, text, column, one, others, lookup, worse=False):
    """Build a claim with the numbers that the paper prints for it: of several rivals, the best in the paper."""
    numbers = {place: lookup(place, column) for place in (one, *others)}
    rivals = [place for place in others if numbers[place] is not None]
    printed = "no number"
    if numbers[one] is not None and rivals:
        lower = column[0] not in ("accuracy", "ds_f1", "auroc_ood")
        best = min(rivals, key=lambda place: numbers[place] if lower else -numbers[place])
        printed = f"{named(one)} {numbers[one]:.5g}, {named(best)} {numbers[best]:.5g}"
        gain = (numbers[best] - numbers[one]) if lower else (numbers[one] - numbers[best])
        printed += "; reversed in its table" if (gain > 0 if worse else gain < 0) else ""
    return Claim(name, text, printed, column, one, tuple(others), worse)


STEPS = ("sure", "sure_no_csc", "sure_no_csc_crl", "sure_ema", "sure_ema_rebn", "sure_fsam", "sure_plus")
PARTS = ("without CSC", "without CRL", "EMA for SWA", "BN statistics re-estimated", "F-SAM for SAM", "with RegPixMix")
PLAIN = ("basic", "mixup", "regmixup", "cutmix", "augmix", "pixmix")
DOUBLE = "msp + knn"  # KNN has the paper's best DS-AURC
ACCURACY, AURC = ("accuracy", "test", "fd_shifts"), ("aurc", "test", "fd_shifts")


def sure_plus_claims():
    def lookup(place, column):
        row, name = place
        score, _, pair = name.partition(" + ")
        if column == ACCURACY:
            score = ""
        table = "3" if pair or column == ACCURACY else "5"
        return said("sure_plus", table, "openood-cifar100", column, row, score, pair)

    def against(text, column, name, one, others, worse=False):
        return claim("sure_plus", text, column, (one, name), [(row, name) for row in others], lookup, worse)

    rest = (*PLAIN, *STEPS[:-1])
    joint = {(m, s): (m, s, "joint") for m in ("ds_f1", "ds_aurc") for s in ("near", "far")}
    columns = [(ACCURACY, "msp"), (AURC, "msp"), *((column, DOUBLE) for column in joint.values())]
    found = [against("SURE+ is the best of all recipes", *column, "sure_plus", rest) for column in columns]
    found += [against("SURE+ is better than plain training", *column, "sure_plus", ["basic"]) for column in columns]
    for shift in ("near", "far"):
        single = ("auroc_ood", shift, "openood")
        found.append(against("SURE+ is also the best at each task alone (Table 5)", single, "msp", "sure_plus", rest))
    found.append(against("SURE ranks its own mistakes better than plain training", AURC, "msp", "sure", ["basic"]))
    found.append(
        against("SURE is worse than plain training on far sets", joint["ds_f1", "far"], DOUBLE, "sure", ["basic"], True)
    )
    for (before, after), part in zip(itertools.pairwise(STEPS), PARTS, strict=True):
        for shift in ("near", "far"):
            found.append(against(f"every part helps: {part}", joint["ds_f1", shift], DOUBLE, after, [before]))
    for row, worse in (("mixup", False), ("regmixup", False), ("augmix", True), ("pixmix", True), ("cutmix", True)):
        text = f"{row} is {'worse' if worse else 'better'} than plain training"
        found.append(against(text, joint["ds_f1", "near"], DOUBLE, row, ["basic"], worse))
    figure = (
        ("CutMix raises accuracy", ACCURACY, "msp", False),
        ("CutMix raises the AUROC of KLM against MNIST", ("auroc_ood", "mnist", "openood"), "klm", False),
        ("CutMix harms the AURC on known inputs", AURC, "msp", True),
        ("DS-F1 prefers plain training to CutMix", ("ds_f1", "mnist", "joint"), "msp + klm", True),
        ("DS-AURC prefers plain training to CutMix", ("ds_aurc", "mnist", "joint"), "msp + klm", True),
    )
    return found + [against(f"Figure 1a: {text}", c, name, "cutmix", ["basic"], w) for text, c, name, w in figure]


def aurc_claims():
    def lookup(place, column):
        row = place[0]
        recipe = "basic" if row == "ce" else f"aurc_finetune(estimator='{row}')"
        return said("aurc_estimators", "1", "aurc-cifar100", column, recipe, model="resnet18")

    losses = ("empirical", "log", "sele", "self_excluded")
    pairs = [(row, "ce", f"AURC ({row}) as the loss beats cross-entropy") for row in losses]
    pairs += [(row, "sele", f"the plug-in ({row}) is a better loss than SELE") for row in losses[:2]]
    return [claim("aurc_finetune", text, AURC, (a, "msp"), [(b, "msp")], lookup) for a, b, text in pairs]


UNKNOWN = {  # what the paper calls the rows of its table
    ("ensemble", "mc_msp"): "the ensemble",
    ("oe", "msp"): "OE",
    ("augmix", "msp"): "AugMix",
    ("energy", "energy"): "energy fine-tuning",
    ("edl", "msp"): "EDL",
    ("basic", "openmax"): "OpenMax",
    ("crl", "msp"): "CRL",
    ("mc_dropout", "mc_msp"): "MC dropout",
    ("basic", "react|energy"): "ReAct",
    ("basic", "odin"): "ODIN",
}


def unknown_claims():
    recipes = {"ensemble": "deep_ensemble", "energy": "energy_finetune"}

    def lookup(place, column):
        row, score = place
        return said("unknown_detection", "6", "unknown-cifar", column, recipes.get(row, row), score)

    def against(text, one, others, column, worse=False):
        return claim("unknown", text, column, one, others, lookup, worse)

    base, best = ("basic", "msp"), ("ensemble", "mc_msp")
    pooled, wrong = ("aurc", "pooled", "unknown"), ("aurc", "test", "unknown")
    rivals = [base, *(place for place in UNKNOWN if place != best)]
    found = [against("the ensemble is the best at unknown detection", best, rivals, pooled)]
    for column, what in ((pooled, "unknown detection"), (wrong, "misclassification")):
        for place, name in UNKNOWN.items():
            mine, theirs = lookup(place, column), lookup(base, column)
            worse = mine > theirs
            text = f"{name} is {'worse' if worse else 'better'} than MCP at {what}"
            found.append(against(text, place, [base], column, worse))
    accuracy = ("accuracy", "test", "unknown")
    found.append(against("the ensemble has the best accuracy", best, rivals, accuracy))
    for place in (("oe", "msp"), ("energy", "energy")):
        found.append(against(f"{UNKNOWN[place]} loses accuracy", place, [base], accuracy, True))
    for place, shifts, worse in (
        (best, ("cifar60",), False),
        (("oe", "msp"), ("svhn", "textures"), False),
        (("crl", "msp"), UNSEEN, False),
        (("edl", "msp"), UNSEEN, False),
        (("mc_dropout", "mc_msp"), UNSEEN, True),
    ):
        for shift in shifts:
            text = f"{UNKNOWN[place]} is {'worse' if worse else 'better'} than MCP against an unknown set"
            found.append(against(text, place, [base], ("auroc_ood", shift, "unknown"), worse))
    return found


UNSEEN = ("cifar60", "svhn", "textures", "gaussian")
SHIFTS = ("test", "corruption", "subclass", "cifar10", "svhn", "textures")
LEARNED = {"confidnet": "confidnet", "devries": "devries", "gamblers": "gambler"}


def paradigm_claims():
    def lookup(place, column):
        row, score = place
        benchmark = "fd-supercifar100" if column[1] == "subclass" else "fd-cifar100"
        recipe = row.removesuffix("_dropout")
        return said("fd_shifts", "1", benchmark, column, "basic" if recipe == "ce" else recipe, score, model="vgg13")

    def against(text, shift, one, other, worse=False):
        return claim("paradigms", text, ("aurc", shift, "fd_shifts"), one, [other], lookup, worse)

    found = []
    for row, score in LEARNED.items():
        found += [against(f"{row} does not beat the softmax", s, (row, score), ("ce", "msp"), True) for s in SHIFTS]
    softmax, expected, mutual, logit, entropy = (
        ("ce_dropout", f"mc_{name}") for name in ("msp", "expected_entropy", "mutual_information", "mls", "entropy")
    )
    shifted = SHIFTS[1:]
    found.append(
        against("the softmax with dropout beats ConfidNet on test data", "test", softmax, ("confidnet", "confidnet"))
    )
    gamblers = ("gamblers_dropout", "mc_msp")
    found.append(against("training with Deep Gamblers helps the softmax on test data", "test", gamblers, softmax))
    found += [
        against(
            f"max logit is {'better' if far else 'worse'} than the softmax, fifty passes", s, logit, softmax, not far
        )
        for s, far in (("test", False), ("corruption", False), ("subclass", False), ("svhn", True), ("textures", True))
    ]
    found += [against("entropy is no better than the softmax, fifty passes", s, entropy, softmax, True) for s in SHIFTS]
    found.append(against("expected entropy is better than mutual information on test data", "test", expected, mutual))
    found += [
        against("mutual information is not better under shift either", s, mutual, expected, True) for s in shifted
    ]
    return found


def rival_claims(name, text, rivals, lookup, one="sure_plus"):
    """Build the claims that SURE+ is better than plain training and than the best of its rivals, by six columns."""
    joint = [(m, s, "joint") for m in ("ds_f1", "ds_aurc") for s in ("near", "far")]
    columns = [(ACCURACY, "msp"), (AURC, "msp"), *((column, DOUBLE) for column in joint)]
    for others, what in ((rivals, "the best of its rivals"), (("basic",), "plain training")):
        for column, method_name in columns:
            places = [(row, method_name) for row in others]
            yield claim(name, f"{text} is better than {what}", column, (one, method_name), places, lookup)


def in_table(table):
    """Look a number up in a table of the SURE+ paper: CIFAR-100 from scratch (3), or ImageNet fine-tuned (4)."""
    benchmark = {"3": "openood-cifar100", "4": "openood-imagenet1k"}[table]

    def lookup(place, column):
        row, name = place
        score, _, pair = name.partition(" + ")
        recipe = "sure_plus" if row == sure_plus_pages.PRINTED else row
        return said("sure_plus", table, benchmark, column, recipe, "" if column == ACCURACY else score, pair)

    return lookup


def tuned_claims():
    rivals = ("basic", "mixup", "regmixup", "cutmix", "sure")
    text = "SURE+, its radius chosen on validation images,"
    found = list(rival_claims("sure_plus_tuned", text, rivals, in_table("3")))
    text = "SURE+ with the printed radius, after 40 epochs,"
    return found + list(rival_claims("sure_plus_tuned", text, rivals, in_table("3"), sure_plus_pages.PRINTED))


def converged_claims():
    return list(rival_claims("sure_plus_converged", "SURE+ after 100 epochs", ("basic", "regmixup"), in_table("3")))


def finetune_claims():
    rivals = ("basic", "regmixup", "sure")
    found = list(rival_claims("sure_plus_finetune", "SURE+ in fine-tuning", rivals, in_table("4")))
    text = "SURE+ in fine-tuning, its radius relative to the weights,"
    return found + list(rival_claims("sure_plus_finetune", text, rivals, in_table("4"), "sure_plus_relative"))


LATER = {
    "sure_plus_tuned": (tuned_claims, "Table 3"),
    "sure_plus_converged": (converged_claims, "Table 3"),
    "sure_plus_finetune": (finetune_claims, "Table 4"),
}
CLAIMS = {
    "sure_plus": sure_plus_claims,
    "aurc_finetune": aurc_claims,
    "unknown": unknown_claims,
    "paradigms": paradigm_claims,
}


# --- what is not testable here -------------------------------------------------------------------------------------

PAPER_NETWORK = {  # by study: the network of the paper's code
    "sure_plus": "resnet18_32",
    "sure_plus_tuned": "resnet18_32",
    "aurc_finetune": "resnet18_32",
    "unknown": "resnet20_cifar",  # printed as ResNet-18, built as a ResNet-20 by the released code
    "paradigms": "vgg13",
}
PAPER_CLASSES = 100  # of the data on which the paper trains SURE+
TOO_LARGE = 2.0  # how many times larger than in the paper a perturbation may be, relative to the weights
DECISIVE = {"aurc_finetune": "aurc_converged"}  # the variant that has what a claim is about: a trained network


def verdict_without_numbers(name, claim):
    """Return the verdict on a claim that a study cannot test, whatever its numbers are; None where it can."""
    of = VARIANTS.get(name, (name,))[0]
    if name in DECISIVE:
        return UNTESTABLE
    sharp = not claim.rows.isdisjoint(STEPS)  # SURE and all that follows from it perturb the weights by a fixed length
    return UNTESTABLE if of == "sure_plus" and sharp and perturbation_ratio(loaded(name)) > TOO_LARGE else None


def perturbation_ratio(one):
    """Compute how many times larger than in the paper a perturbation of one length is, relative to the weights."""
    paper = weight_norm(PAPER_NETWORK["sure_plus"], PAPER_CLASSES)
    return paper / weight_norm(one.model, one.benchmarks[0].classes)


@cache
def weight_norm(model, classes):
    """Compute the Euclidean norm of the parameters of a network at the start of training."""
    import torch

    from twofold.nn.models import build

    torch.manual_seed(0)
    squares = [float(p.detach().double().pow(2).sum()) for p in build(model, classes=classes).parameters()]
    return float(np.sqrt(sum(squares)))


def untestable_words(name, world, others):
    """Say why some claims of a study are not testable; nothing where all are."""
    if name == "sure_plus":
        paper, own = PAPER_NETWORK[name], world.study.model
        ratio = perturbation_ratio(world.study)
        if ratio <= TOO_LARGE:
            return []
        return [
            f"SURE, SURE+ and the steps between them perturb the weights by a fixed length (rho = 0.2) before each update, "
            f"whatever the norm of the weights. At the start of training this norm is "
            f"{weight_norm(own, world.study.benchmarks[0].classes):.1f} for {own} and {weight_norm(paper, PAPER_CLASSES):.1f} "
            f"for the paper's {paper}. Relative to the weights, rho is therefore {ratio:.1f} times larger here than in the "
            f"paper. Training is also much shorter. For both reasons every claim about these recipes is {UNTESTABLE}, after "
            "40 epochs too: the table shows the numbers, but no verdict follows from them."
        ]
    if name in DECISIVE and DECISIVE[name] in others:
        start = world.mean("basic", "msp", ACCURACY)
        return [
            f"The claim is about fine-tuning a trained network. The short study starts from a network with "
            f"{100 * start:.1f} % accuracy, so its lines are {UNTESTABLE}. The study {VARIANTS[DECISIVE[name]][-1]} "
            "decides instead."
        ]
    return []


def full_scale():
    """Say for which studies the preset ``full`` has the scale of the paper, and what differs for the others."""
    same, other = [], []
    for name in NAMES:
        model, paper = study.load(name, preset="full", check=False).model, PAPER_NETWORK[name]
        if model == paper:
            same.append(f"`{name}`")
        else:
            other.append(f"`{name}` trains a {model}, while the paper's code has a {paper}")
    return (
        f"On a GPU, `twofold study run NAME --preset full --device cuda --out DIR` runs {' and '.join(same)} with the networks and data of their "
        f"papers. For the others `full` differs from the paper: {'; '.join(other)}."
    )


# --- claims in the common format -------------------------------------------------------------------------------------

PAPERS = {
    "sure_plus": ("sure_plus", "Table 3"),
    "aurc_finetune": ("aurc_estimators", "Table 1"),
    "unknown": ("unknown_detection", "Table 6"),
    "paradigms": ("fd_shifts", "Table 1"),
}
METRICS = {
    "accuracy": "accuracy",
    "aurc": "AURC",
    "augrc": "AUGRC",
    "auroc_ood": "AUROC",
    "ds_f1": "DS-F1",
    "ds_aurc": "DS-AURC",
}
PLACES = {"near": "near sets", "far": "far sets", "test": "test data", "pooled": "all unknown inputs together"}


def sentence(text, column):
    """Write a claim and its column as a sentence."""
    metric, shift, _ = column
    where = PLACES.get(shift, shift)
    return f"{text[0].upper()}{text[1:].removesuffix(',')}: {METRICS[metric]}, {where}"


def as_claim(line, name, world, key, printed_at=None):
    """Turn a line of a study into a claim: the interval of the gain in the direction that the paper claims, and its p."""
    paper, table = PAPERS.get(name, ("sure_plus", printed_at))
    text = line.text
    if text.startswith("Figure 1a: "):
        text, table = text.removeprefix("Figure 1a: "), "Figure 1a"
    if "(Table 5)" in text:
        text, table = text.replace(" (Table 5)", ""), "Table 5"
    if line.column[0] == "augrc":
        paper, table = "stratified_ood", "Table 2"
    factor, unit = scale(line.column[0])
    common = {"printed_at": table, "printed": line.printed, "scale": extent(world, key), "command": SAVE}
    words = sentence(text, line.column)
    if line.verdict == UNTESTABLE:
        return evidence.untestable(paper, words, why=f"{line.ours}. {reason(key, line, world)}", unit=unit, **common)
    sign = -1 if line.worse else 1
    low, high = sorted((sign * factor * line.found.low, sign * factor * line.found.high))
    measured_in = f"{METRICS[line.column[0]]}, {unit or 'points'}"
    return evidence.judge(paper, words, ours=line.ours, low=low, high=high, p=line.found.p, unit=measured_in, **common)


def reason(key, line, world):
    """Say why a line is not testable, and what would test it."""
    if key in DECISIVE:
        start = 100 * world.mean("basic", "msp", ACCURACY)
        return f"Not testable: fine-tuning starts from a network with {start:.1f} % accuracy; a trained one tests it"
    if key in LATER:
        return "Not testable yet: one seed; the other seeds of the study test it"
    ratio = perturbation_ratio(world.study)
    return (
        f"Not testable: relative to the weights, the printed rho is {ratio:.1f} times larger than in the paper; a chosen "
        "radius and longer training (study sure_plus_tuned) test it"
    )


def extent(world, key):
    """Say at which scale a study ran, in one line."""
    records = read_json(KEPT / key / "cells.json")
    epochs = sorted({one["epochs"] for one in records.values()})
    seeds = sorted({name.rpartition("-s")[2].split("-")[0] for name in records})
    images = max(one["images"] for one in records.values())
    spent = " or ".join(map(str, epochs))
    words = f"{world.study.model}, {spent} epochs, {images:,} images, {len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    return f"{words}, {len(records)} cells" if key in LATER else words


def later_claims(name, claims, printed_at):
    """Judge the claims of a study that is being filled; those whose cells are missing are not testable yet."""
    world = World.open(name)
    one = loaded(name)
    found = []
    for claim in claims:
        rows = {row for row, _ in (claim.one, *claim.others)}
        missing = sorted(rows)
        if world is not None:
            missing = sorted(row for row in rows if not finished_rows(world, row, claim))
        if not missing:
            found.append(as_claim(claim.line(world), name, world, name, printed_at))
            continue
        done = 0 if world is None else len(study.finished(one, KEPT / name))
        why = (
            f"Not testable yet: of {', '.join(missing)} no cell with the printed or chosen setting is finished ({done} cells "
            "of the study are)"
        )
        found.append(
            evidence.untestable(
                "sure_plus",
                sentence(claim.text, claim.column),
                printed_at=printed_at,
                printed=claim.printed,
                why=why,
                scale=f"{one.model}, {done} cells",
                command=f"{study.command(one)}; {SAVE}",
            )
        )
    return found


def finished_rows(world, row, claim):
    """Return what is finished of a row in the column of a claim."""
    name = claim.one[1]
    return world.rows(row, name, claim.column)


# --- pages ----------------------------------------------------------------------------------------------------------


def pages():
    """Write a page and a file of claims for each study."""
    for name in NAMES:
        world = World.open(name)
        if world is None:
            sys.stderr.write(f"{name}: no cell is kept yet\n")
            continue
        others = {key: found for key, given in VARIANTS.items() if given[0] == name and (found := World.open(key))}
        why = untestable_words(name, world, others)
        lines, found = [], []
        for claim in CLAIMS[name]():
            line = claim.line(world, verdict_without_numbers(name, claim))
            if line is not None:
                lines.append(line)
                found.append(as_claim(line, name, world, name))
        for key, other in others.items():
            for line in again(name, key, other):
                lines.append(line)
                found.append(as_claim(line, name, other, key))
        if name == "paradigms":
            for line in best_lines(world):
                lines.append(line)
                found.append(as_claim(line, name, world, name))
        file = RESULTS / f"study_{name}.md"
        shown = [line.cells() for line in lines]
        file.write_text(study_page(name, world, others, shown, why), encoding="utf-8")
        sys.stdout.write(f"{file}\n{evidence.write_claims(f'study_{name}', found)}\n")
    for path in write_later():
        sys.stdout.write(f"{path}\n")


def write_later():
    """Write the claims of the studies that are being filled, from the cells that are there."""
    found = []
    for name, (claims, printed_at) in LATER.items():
        found.append(evidence.write_claims(f"study_{name}", later_claims(name, claims(), printed_at)))
    return found


def study_page(name, world, others, lines, why):
    """Write the page of a study: the claims by verdict, each claim with its numbers, then the tables."""
    scale, _, tables = study.report(world.study, KEPT / name).rstrip().partition("\n\n## ")
    parts = [scale, "## What the paper claims, and what happens here", *LEGEND, *why, by_verdict(lines)]
    parts += ["## Every claim with its numbers", markdown(HEAD, lines), f"## {tables}"]
    extra = {"sure_plus": sure_plus_extra, "unknown": unknown_extra, "paradigms": paradigms_extra}.get(name)
    parts += [] if extra is None else extra(world)
    for key, found in others.items():
        tables = study.table(found.study, found.found).replace("## ", "### ")
        parts += [f"## The same {VARIANTS[key][-1]}", summary(found, key), tables.rstrip()]
    return "\n\n".join(parts) + "\n"


def again(name, variant, world):
    """Yield the claims whose rows a variant of a study has, all of them."""
    label = VARIANTS[variant][-1]
    for one in CLAIMS[name]():
        if all(world.rows(*place, one.column) for place in (one.one, *one.others)):
            verdict = verdict_without_numbers(variant, one)
            yield replace(one, text=f"{one.text}, {label}").line(world, verdict)


HEAD = ("claim", "measured by", "paper", "here", "verdict")
LEGEND = (
    "**Verdicts.** A claim *holds* or *does not hold* if the 95 % interval of the difference lies on one side of zero. "
    f"Otherwise it is *{INCONCLUSIVE}*. It is *{UNTESTABLE}* if the training here lacks what the claim is about, whatever "
    "the numbers are, or has one seed.",
    "**Differences.** A difference compares means over seeds on the same test images. If a claim names several rivals, the "
    "best of them here is taken. The interval is that of the gain, so negative means worse.",
    "**Intervals.** They account for resampled images, and for seeds and splits. The spread over seeds is estimated from all "
    "rows of the study; for two scores on one network, from their differences. Limits are cut at the largest difference "
    "that the metric allows. Each line is at 95 % by itself, without a correction for the number of lines.",
)


def summary(world, name):
    """Say at which scale a study was run, and by which command."""
    cells = world.study.cells()
    done = study.finished(world.study, KEPT / name)
    records = read_json(KEPT / name / "cells.json")
    seeds = sorted({cell.seed for cell in cells if cell.name in done})
    epochs = sorted({one["epochs"] for one in records.values()})
    known = [v.mean for v in study.values(world.study, world.found) if (v.metric, v.shift) == ("accuracy", "test")]
    return (
        f"{world.study.model}, {' or '.join(map(str, epochs))} epochs, seed{'s' if len(seeds) > 1 else ''} "
        f"{', '.join(map(str, seeds))}; {len(done)} of {len(cells)} cells are finished. Test accuracy is between "
        f"{100 * min(known):.1f} and {100 * max(known):.1f} %. Command: `{study.command(world.study)}`."
    )


def by_verdict(lines):
    """List the claims by verdict, each with the columns that say so."""
    groups = {}
    for text, where, _, _, verdict in lines:
        groups.setdefault(verdict, {}).setdefault(text, []).append(where.split(" (")[0])
    parts = []
    for verdict, claims in sorted(groups.items(), key=lambda group: evidence.VERDICTS.index(group[0])):
        count = sum(map(len, claims.values()))
        parts.append(f"**{verdict[0].upper()}{verdict[1:]}** ({count} of {len(lines)} lines):\n")
        parts += [f"- {text} ({', '.join(columns)})" for text, columns in claims.items()]
        parts.append("")
    return "\n".join(parts).strip()


def markdown(header, lines):
    head = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(head + ["| " + " | ".join(str(x).replace("|", "\\|") for x in line) + " |" for line in lines])


def sure_plus_extra(world):
    """Write how much is averaged, the order of recipes in the paper and here, and exact against released metrics."""
    parts = [*averaged(), "## Are the recipes in the same order as in the paper?"]
    lines = []
    for metric in ("ds_f1", "ds_aurc"):
        for shift in ("near", "far"):
            for second in ("knn", "klm", "vim", "sirc", "mds", "openmax"):
                table = {
                    a.recipe: a.value
                    for a in anchors(paper="sure_plus", table="3", benchmark="openood-cifar100")
                    if (a.metric, a.shift, a.score, a.pair) == (metric, shift, "msp", second)
                }
                ours = {row: world.mean(row, f"msp + {second}", (metric, shift, "joint")) for row in table}
                both = [row for row in table if not np.isnan(ours[row])]
                if len(both) >= 5:
                    rho = spearmanr([table[r] for r in both], [ours[r] for r in both]).statistic
                    lines.append([f"{metric} {shift}, msp + {second}", f"{rho:.2f}", len(both)])
    parts += [
        "Spearman's correlation over recipes between the paper's Table 3 (CIFAR-100, ResNet-18, 200 epochs) and our table.",
        markdown(("column", "correlation", "recipes"), lines),
    ]
    parts += alone_and_together(world)
    file = KEPT / "sure_plus" / PUBLISHED
    if file.exists():
        parts += exact_and_released(list(csv.DictReader(file.open(encoding="utf-8", newline=""))))
    return parts


def alone_and_together(world):
    """Compare the order of recipes by the metrics of one task with the order by the joint metrics."""
    recipes = [row.name for row in world.study.rows]
    alone = [(ACCURACY, "msp"), (AURC, "msp"), *((("auroc_ood", s, "openood"), "msp") for s in ("near", "far"))]
    alone.append((("auroc_ood", "mnist", "openood"), "klm"))
    second = {"near": DOUBLE, "far": DOUBLE, "mnist": "msp + klm"}
    joint = [((m, s, "joint"), name) for m in ("ds_f1", "ds_aurc") for s, name in second.items()]

    def order(column, name):
        sign = -1 if column[0] in ("aurc", "ds_aurc") else 1
        return [sign * world.mean(row, name, column) for row in recipes]

    def title(column, name):
        return f"{column[0]} {column[1]}, {name}"

    lines = [
        [title(*one)] + [f"{spearmanr(order(*one), order(*other)).statistic:.2f}" for other in joint] for one in alone
    ]
    return [
        "## Do single-task metrics rank the recipes like the joint metrics?",
        f"Spearman's correlation over the {len(recipes)} recipes; 1 means the same order. Figure 1a is about two of them, plain "
        "training and CutMix: see its lines above.",
        markdown(("single task", *(title(*other) for other in joint)), lines),
    ]


def averaged():
    """Say over how many updates weights are averaged in so short a training."""
    cells = read_json(KEPT / "sure_plus" / "cells.json")
    ema = [one for name, one in cells.items() if name.startswith(("sure_ema", "sure_fsam", "sure_plus"))]
    if not ema:
        return []
    window, steps = float(np.mean([one["window"] for one in ema])), ema[0]["steps"]
    return [
        f"At the end of these trainings, the moving average of the weights of SURE+ spans about {window:.0f} of the {steps} "
        "updates. With the paper's settings it would span about 5,000 of 78,000."
    ]


def exact_and_released(rows):
    shifts = {"near": ("cifar100",), "far": ("svhn", "textures", "mnist"), "mnist": ("mnist",)}
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    parts = [
        "## The DS metrics, exact and as released",
        "The released code searches thresholds on a fixed grid, after scaling the second score by the extremes of the test "
        "data, and takes the least risk in each of 100 bins of coverage. The tables show means over sets and seeds: DS-F1 "
        "in percent, DS-AURC x1000.",
    ]
    sizes = []
    for pair, group in (
        ("msp + msp", "near"),
        ("msp + msp", "far"),
        ("msp + knn", "near"),
        ("msp + knn", "far"),
        ("msp + klm", "mnist"),
    ):
        lines, columns = [], {}
        for recipe in recipes:
            line = [recipe]
            for metric, factor in (("ds_f1", 100), ("ds_aurc", 1000)):
                for how in ("exact", "published"):
                    own = [
                        float(r[how])
                        for r in rows
                        if (r["recipe"], r["pair"], r["metric"]) == (recipe, pair, metric)
                        and r["shift"] in shifts[group]
                    ]
                    columns.setdefault((metric, how), []).append(factor * np.mean(own))
                    line.append(f"{factor * np.mean(own):.2f}")
            lines.append(line)
        parts += [
            f"### {pair}, {group}",
            markdown(("recipe", "DS-F1 exact", "released", "DS-AURC exact", "released"), lines),
        ]
        for metric in ("ds_f1", "ds_aurc"):
            a, b = (np.array(columns[metric, how]) for how in ("exact", "published"))
            top = (
                recipes[int(a.argmax() if metric == "ds_f1" else a.argmin())],
                recipes[int(b.argmax() if metric == "ds_f1" else b.argmin())],
            )
            rho = spearmanr(a, b).statistic if len(recipes) > 2 else float("nan")
            sizes.append([f"{metric}, {pair}, {group}", f"{np.abs(a - b).max():.2f}", f"{rho:.2f}", *top])
    head = ("column", "largest difference", "correlation of ranks", "best, exact", "best, released")
    return [*parts, "### Do both rank the recipes in the same order?", markdown(head, sizes)]


def unknown_extra(world):
    """Compare these networks with those of the paper by what the plain softmax does on each unknown set."""
    lines, below = [], []
    for shift in UNSEEN:
        column = ("auroc_ood", shift, "unknown")
        printed, ours = (
            said("unknown_detection", "6", "unknown-cifar", column, "basic"),
            world.mean("basic", "msp", column),
        )
        lines.append([shift, f"{printed:.5g}", f"{100 * ours:.2f}"])
        below += [shift] if ours < 0.5 else []
    below_half = "It is above 50 % on all of them."
    if below:
        below_half = (
            f"On {', '.join(below)} it is below 50 %: these networks are more confident on such inputs than on known ones, "
            "which raises the pooled AURC of every method."
        )
    return [
        "## Plain softmax on each unknown set",
        f"The AUROC of MCP, known against unknown inputs. {below_half}",
        markdown(("set", "paper, %", "here, %"), lines),
    ]


def best_cells(world):
    """Yield the best cell of one kind and of another on every set, all chosen with hindsight, as in the papers."""
    scores = {(row.family, name) for row in world.study.rows for name in row.scores or world.study.benchmarks[0].scores}
    for metric, shift in itertools.product(("aurc", "augrc"), SHIFTS):
        column = (metric, shift, "fd_shifts")
        means = {place: world.mean(*place, column) for place in scores}
        several, one = (
            {place: m for place, m in means.items() if m == m and place[1].startswith("mc") == many}
            for many in (True, False)
        )
        in_print = best_in_print(metric, shift)
        yield PASSES, column, several, one, in_print
        if metric == "augrc":  # Claros Olivares and Brockmeier's Table 2 names the paradigm of its best cell
            for text, kind, own, best_printed in (
                (CONFIDNET, several, ("ce", "confidnet"), in_print[:1]),
                (GAMBLERS, one, ("gamblers",), in_print[1:]),
            ):
                mine = {p: m for p, m in kind.items() if p[0].removesuffix("_dropout") in own}
                yield text, column, mine, {p: m for p, m in kind.items() if p not in mine}, best_printed


PASSES = "the best score with fifty passes beats the best with one"
CONFIDNET = "with passes ConfidNet is the best paradigm"  # its classifier is that of ce
GAMBLERS = "with one pass Deep Gamblers is the best paradigm"


def best_lines(world):
    """Write the best cells as lines of the table of claims."""
    lines = []
    for text, column, mine, others, in_print in best_cells(world):
        if mine and others:
            one, other = (min(kind, key=kind.get) for kind in (mine, others))
            best = " against ".join(f"{a.recipe} {a.value:.5g}" for a in in_print if a is not None)
            printed = f"best: {best}" if best else "no number"
            lines.append(compared(world, text, printed, column, one, other))
    return sorted(lines, key=lambda line: (PASSES, CONFIDNET, GAMBLERS).index(line.text))


def best_in_print(metric, shift):
    """Find the best published number with several passes, and that with one."""
    if metric == "augrc":
        found = anchors(paper="stratified", table="2", benchmark="stratified-supercifar100")
        several = {"best_mc": True, "best": False}
    else:
        benchmark = "fd-supercifar100" if shift == "subclass" else "fd-cifar100"
        found = [a for a in anchors(paper="fd_shifts", table="1", benchmark=benchmark) if a.model == "vgg13"]
        several = {a.score: a.score.startswith("mc") for a in found}
    own = [a for a in found if (a.metric, a.shift) == (metric, shift)]
    value = attrgetter("value")
    return [min((a for a in own if several[a.score] == many), key=value, default=None) for many in (True, False)]


def paradigms_extra(world):
    """Say how several passes compare with one."""
    found = [(c, several, one, pair) for text, c, several, one, pair in best_cells(world) if text == PASSES]
    ahead = {c: min(several.values()) < min(one.values()) for c, several, one, _ in found}
    said_so = {c: pair[0].value < pair[1].value for c, _, _, pair in found if None not in pair}
    dropped = [
        min(several.values()) < min(mean for (row, _), mean in one.items() if row.endswith("_dropout"))
        for _, several, one, _ in found
    ]
    same = sum(ahead[c] == said_so[c] for c in said_so)
    return [
        "## Fifty passes of dropout against one",
        "The best cell of each kind is chosen on the test data themselves, with hindsight, in the papers and here. The "
        "published AURC is from FD-Shifts, Table 1 (VGG-13; CIFAR-100, and super-CIFAR-100 for the sub-class shift). The "
        "published AUGRC is from Claros Olivares and Brockmeier, Table 2 (super-CIFAR-100); their ConfidNet shares its "
        "classifier with plain training.",
        f"Fifty passes are ahead in {sum(said_so.values())} of {len(said_so)} columns in the papers, and in "
        f"{sum(ahead.values())} of {len(ahead)} here. In {same} of the {len(said_so)} columns that both have, the same kind "
        f"is ahead. Against one pass of the same networks with dropout, fifty passes are ahead in {sum(dropped)} of "
        f"{len(dropped)}.",
    ]


if __name__ == "__main__":
    main()
