"""The gate: deciding against a softmax, fitting a guarantee, and how much the guarantee covers.

    TWOFOLD_DATA=... python benchmarks/gate.py [--save]        (about two minutes; without the data, no CIFAR-10 rows)

Coverage is the true ID coverage, 0 where nothing could be promised; risk at most 0.05 with confidence 0.9, 10,000
validation samples, 20 samples of each of four simulated worlds. "share reached" is the mean coverage divided by that
of the best pair known with hindsight. Ways to promise: ``path`` is what Gate.fit does (a part of the sample chooses a
path of pairs, the rest tests it in order); ``diagonal`` tests pairs of equal quantiles in order; ``Holm`` and
``Bonferroni`` test a 12 x 12 grid of quantiles; ``SGR`` is one score with the paper's search; ``path, ... alone`` is
Gate.fit with ``ood=None``. On CIFAR-10, a half of the test set and of an unknown set is validation and the other
halves tell, 20 times; the best pair with hindsight is that of the other halves, and the target is for their mean risk.
"""

from __future__ import annotations

import os
import time

from script import announce, data_folder

import numpy as np

from timing import best, finish, row
from twofold.gate import Gate, guarantee
from twofold.gate.thresholds import ScoredSamples, Thresholds, most_coverage
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer
from twofold.stats import sgr

RISK, DELTA, N, SAMPLES = 0.05, 0.1, 10_000, 20
LEARN, GRID = 0.1, 12  # of diagonal, Bonferroni and Holm: rows that give quantiles, and quantiles of each score
FAR = -np.inf


def deciding():
    rng = np.random.default_rng(0)
    logits = rng.normal(0.0, 3.0, size=(100_000, 1000)).astype(np.float32)
    labels = rng.integers(-1, 1000, size=len(logits))
    outputs = Outputs(logits, labels)
    gate = Gate.fit(outputs[:5000])

    def softmax():
        p = logits - logits.max(axis=1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=1, keepdims=True)

    least = best({"ours": lambda: gate.decide(outputs), "softmax": softmax}, 5)
    case = "decide, 1e5 x 1000 float32"
    return [row(case, "msp + energy / softmax alone", least["ours"] / least["softmax"], "x", "<= 1.5")]


# Worlds: rows of (right, ID, both scores)


def world(name, rng, n):
    share, good, apart, far = {"rare OOD": (0.02, 0.92, 2.2, 2.0)}.get(name, (0.2, 0.9, 1.8, 2.0))
    is_id = rng.random(n) >= share
    right = is_id & (rng.random(n) < good)
    noise = rng.normal(size=(2, n))
    if name == "correlated":
        noise[1] = 0.7 * noise[0] + np.sqrt(1 - 0.49) * noise[1]
    one, two = noise[0] + apart * right, noise[1] + far * is_id
    if name == "correlated":  # each score also feels a little of the other failure
        one, two = one + 0.5 * is_id, two + 0.5 * right
    if name == "tied":
        one, two = np.round(one * 4) / 4, np.round(two * 4) / 4
    return ScoredSamples(right, is_id, one, two)


def of_pair(data, pair):
    """Compute coverage and risk."""
    taken = (data.conf_id >= pair.tau_id) & (data.conf_ood >= pair.tau_ood)
    known, right = (taken & data.is_id).sum(), (taken & data.correct).sum()
    return known / data.is_id.sum(), 1 - right / max(taken.sum(), 1)


def hindsight(data):
    """Find the most coverage at the risk over a fine grid of pairs, from cumulated two-dimensional counts."""
    edges = [np.unique(np.quantile(c, np.linspace(0, 1, 400))) for c in (data.conf_id, data.conf_ood)]
    cells = [np.append(e, np.inf) for e in edges]

    def above(rows):
        counts = np.histogram2d(data.conf_id[rows], data.conf_ood[rows], bins=cells)[0]
        return counts[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)

    known, right, taken = above(data.is_id), above(data.correct), above(np.ones(len(data.correct), bool))
    return known[taken - right <= RISK * taken].max(initial=0) / data.is_id.sum()


# Ways to promise: each gives a pair or None


def path(data):
    learn, test = guarantee.split(data.is_id, data.share)
    return guarantee.walk(data[learn], data[test], data[learn].curve(), RISK, DELTA)


def quantiles(data, levels):
    """Build pairs of quantiles from a tenth of the rows, and counts of the others at each pair."""
    cut = int(LEARN * len(data.correct))
    learn, test = data[np.arange(cut)], data[np.arange(cut, len(data.correct))]
    pairs = [
        Thresholds(*(float(np.quantile(c, q)) if q else FAR for c, q in ((learn.conf_id, a), (learn.conf_ood, b))))
        for a, b in levels
    ]
    taken = [(test.conf_id >= a) & (test.conf_ood >= b) for a, b in pairs]
    total = np.array([t.sum() for t in taken], float)
    errors = total - [(t & test.correct).sum() for t in taken]
    known = np.array([(t & test.is_id).sum() for t in taken])
    return pairs, known, guarantee.binomial_tail(errors, total, RISK), total


def diagonal(data):
    pairs, _, p, total = quantiles(data, [(q, q) for q in np.linspace(0.9, 0.0, 181)])
    start = int(np.argmax(total >= 5 * np.log(DELTA) / np.log(1 - RISK)))  # enough accepted for a few failures
    failed = np.flatnonzero(p[start:] > DELTA)
    stop = start + (int(failed[0]) if len(failed) else len(p) - start)
    return pairs[stop - 1] if stop > start else None


def grid(data, holm):
    levels = np.linspace(0.0, 0.9, GRID)
    pairs, known, p, _ = quantiles(data, [(a, b) for a in levels for b in levels])
    order = np.argsort(p)
    hurdle = DELTA / (len(p) - np.arange(len(p))) if holm else np.full(len(p), DELTA / len(p))
    failed = np.flatnonzero(p[order] > hurdle)
    good = order[: failed[0] if len(failed) else len(p)]
    return pairs[good[np.argmax(known[good])]] if len(good) else None


def single(side, way):
    def found(data):
        conf = (data.conf_id, data.conf_ood)[side]
        if way == "path":
            pair = path(ScoredSamples(data.correct, data.is_id, conf, np.zeros(len(conf))))
            tau = None if pair is None else pair.tau_id
        else:
            made = sgr(data.correct, conf, risk=RISK, delta=DELTA)
            tau = made.threshold if made.feasible else None
        return None if tau is None else Thresholds(tau, FAR) if side == 0 else Thresholds(FAR, tau)

    return found


WAYS = {
    "path": path,
    "diagonal": diagonal,
    "Holm": lambda data: grid(data, True),
    "Bonferroni": lambda data: grid(data, False),
    "SGR, ID score": single(0, "sgr"),
    "SGR, OOD score": single(1, "sgr"),
    "path, ID score alone": single(0, "path"),
    "path, OOD score alone": single(1, "path"),
}


def power():
    rows = []
    for name in ("independent", "correlated", "tied", "rare OOD"):
        announce(f"world of {name} scores: {SAMPLES} samples, {len(WAYS)} ways to promise")
        truth = world(name, np.random.default_rng(99), 1_000_000)
        most = hindsight(truth)
        covered = {way: [] for way in WAYS}
        for seed in range(SAMPLES):
            data = world(name, np.random.default_rng(seed), N)
            for way, choose in WAYS.items():
                pair = choose(data)
                covered[way].append(0.0 if pair is None else of_pair(truth, pair)[0])
        rows.append(row(name, "coverage of the best pair with hindsight", most, "", "-"))
        for way, values in covered.items():
            reached = np.mean(values) / most
            rows.append(row(name, f"share reached, {way}", reached, "", ">= 0.9" if way == "path" else "-"))
    return rows


def fitting():
    data = world("independent", np.random.default_rng(0), N)
    labels = np.where(data.is_id, np.where(data.correct, 0, 1), -1)
    outputs = Outputs(
        np.tile([1.0, 0.0], (N, 1)), labels, learned={"confidnet": data.conf_id, "devries": data.conf_ood}
    )
    rows = []
    for share in (None, 0.2, 0.05):
        took = []
        for _ in range(3):
            start = time.perf_counter()
            Gate.fit(outputs, "confidnet", "devries", objective="risk", risk=RISK, delta=DELTA, ood_share=share)
            took.append(time.perf_counter() - start)
        case = "guarantee, 10k samples, " + ("no share" if share is None else f"share {share}")
        rows.append(row(case, "time to fit", min(took), "s", "<= 2"))
    return rows


def real(folder):
    """Measure coverage where half of each set chooses and the other half judges."""
    held = np.load(folder / "features_cifar10_resnet20.npz")
    head = Head(held["W"], held["b"])

    def outputs(name, labels):
        features = held[f"{name}_features"].astype(np.float32)
        return Outputs(head.logits(features), labels, features, head)

    train, known = (outputs(f"id_{part}", held[f"id_{part}_labels"].astype(int)) for part in ("train", "test"))
    chains = [scorer(spec).fit(train) for spec in ("msp", "energy", "knn")]
    rows = []
    for unknown in ("svhn", "textures", "cifar100"):
        announce(f"CIFAR-10 against {unknown}: {SAMPLES} halves")
        other = outputs(f"ood_{unknown}", np.full(len(held[f"ood_{unknown}_logits"]), -1))
        msp, energy, knn = (np.concatenate([c.score(known), c.score(other)]) for c in chains)
        correct, is_id = (np.concatenate([getattr(o, a) for o in (known, other)]) for a in ("correct", "is_id"))
        for label, second in (("msp + energy", energy), ("msp + knn", knn)):
            data, case = ScoredSamples(correct, is_id, msp, second), f"CIFAR-10, {unknown}, {label}"
            found = {way: [] for way in ("path", "SGR, ID score", "SGR, OOD score")}
            for seed in range(SAMPLES):
                chosen, judged = halves(data, seed)
                most = of_pair(judged, most_coverage(judged, RISK))[0]
                for way, values in found.items():
                    pair = WAYS[way](chosen)
                    covered, risk = (0.0, 0.0) if pair is None else of_pair(judged, pair)
                    values.append((covered / most, risk))
            for way, values in found.items():
                share, risk = np.mean(values, axis=0)
                rows.append(row(case, f"share reached, {way}", share, "", "-"))
                rows.append(row(case, f"mean risk on the other halves, {way}", risk, "", f"<= {RISK}"))
    return rows


def halves(data, seed):
    """Return half of the known and half of the unknown rows, and the other halves."""
    rng, first = np.random.default_rng(seed), []
    for rows in (np.flatnonzero(data.is_id), np.flatnonzero(~data.is_id)):
        first.append(rng.permutation(rows)[: len(rows) // 2])
    chosen = np.isin(np.arange(len(data.is_id)), np.concatenate(first))
    return data[np.flatnonzero(chosen)], data[np.flatnonzero(~chosen)]


def main():
    rows = [*deciding(), *fitting(), *power()]
    if "TWOFOLD_DATA" in os.environ:
        rows += real(data_folder("features_cifar10_resnet20.npz"))
    finish("gate", rows)


if __name__ == "__main__":
    main()
