"""Exact DS-F1 and DS-AURC: seconds, growth with n, and how many cells of the plane of pairs are searched.

    python benchmarks/double_score.py [--save]        (about two minutes)

The synthetic world has two scores that each see one kind of failure and share some noise, accuracy 77 %.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from script import announce

import numpy as np

from timing import best, finish, row
from twofold import metrics
from twofold.metrics import _envelope_kernels, joint


def world(inside, outside, seed=0):
    rng = np.random.default_rng(seed)
    n = inside + outside
    is_id = np.arange(n) < inside
    correct = is_id & (rng.random(n) < 0.77)
    shared = rng.normal(size=n)
    conf_id = shared + 1.5 * correct + 0.7 * rng.normal(size=n)
    conf_ood = 1.3 * is_id + 0.4 * shared + 0.3 * correct + rng.normal(size=n)
    order = rng.permutation(n)
    return correct[order], conf_id[order], conf_ood[order], is_id[order]


def seconds(function, samples, turns):
    announce(f"{function.__name__} of {len(samples[0]):,} samples")
    return best({"ours": lambda: function(*samples)}, turns)["ours"]


def searched(samples, known=None):
    """Add up the sides of the cells of each size that exact DS-AURC looks at, and return the best ratios it finds.

    With ``known`` the best ratio of every level is there from the start. What is looked at then has to be looked at in
    any order of search: its bounds exceed even the final ratios.
    """
    refine, seed, find = _envelope_kernels.refine_envelope, _envelope_kernels.seed_envelope, joint._envelope
    sides = Counter()
    found = []

    def count(*arguments):
        cells, size = arguments[5:7]
        sides[size] += size * len(cells)
        return refine(*arguments)

    def start(*arguments):
        seed(*arguments)
        if known is not None:
            best = arguments[-2]
            np.maximum(best[1:], known, out=best[1:])

    def keep(*arguments):
        found[:] = find(*arguments)
        return found

    _envelope_kernels.refine_envelope, _envelope_kernels.seed_envelope, joint._envelope = count, start, keep
    try:
        metrics.ds_aurc(*samples)
    finally:
        _envelope_kernels.refine_envelope, _envelope_kernels.seed_envelope, joint._envelope = refine, seed, find
    return sides, found[0]


def main():
    rows = []
    small, large = world(10_000, 40_000), world(50_000, 50_000)
    rows.append(row("10k ID + 40k OOD", "DS-F1 exact", seconds(metrics.ds_f1, small, 7), "s", "<= 0.1"))
    rows.append(row("10k ID + 40k OOD", "DS-AURC exact", seconds(metrics.ds_aurc, small, 7), "s", "<= 0.3"))
    rows.append(row("50k ID + 50k OOD", "DS-AURC exact", seconds(metrics.ds_aurc, large, 3), "s", "<= 6"))
    times = {n: seconds(metrics.ds_f1, world(n // 2, n // 2), 3) for n in (10_000, 100_000, 1_000_000)}
    for a, b in ((10_000, 100_000), (100_000, 1_000_000)):
        ratio = times[b] / times[a] / (b * np.log(b) / (a * np.log(a)))
        rows.append(row(f"n = {a:,} to {b:,}", "DS-F1 growth / n log n growth", ratio, "x", "near 1"))
    rows.append(row("n = 1,000,000", "DS-F1 exact", times[1_000_000], "s", "-"))
    sizes = 62_500, 125_000, 250_000, 500_000, 1_000_000
    worlds = {n: world(n, n) for n in sizes}
    announce("ds_aurc of 125,000 to 2,000,000 samples, in turns")
    areas = best({n: lambda n=n: metrics.ds_aurc(*worlds[n]) for n in sizes}, 9)
    necessary = {}
    for n in sizes:
        announce(f"cells searched for {2 * n:,} samples")
        case = f"{n:,} ID + {n:,} OOD"
        sides, ratios = searched(worlds[n])
        least, _ = searched(worlds[n], ratios)
        necessary[n] = sum(least.values())
        rows.append(row(case, "DS-AURC exact", areas[n], "s", "-"))
        rows.append(row(case, "sides of all cells searched / n", sum(sides.values()) / n, "-", "-"))
        rows.append(row(case, "sides of all cells to search in any order / n", necessary[n] / n, "-", "-"))
    for a, b in pairwise(sizes):
        case = f"{a:,} to {b:,} ID"
        rows.append(row(case, "DS-AURC growth when n doubles", areas[b] / areas[a], "x", "<= 2.3"))
        rows.append(row(case, "growth of what any order has to search", necessary[b] / necessary[a], "x", "-"))
    doublings = len(sizes) - 1
    mean = (areas[sizes[-1]] / areas[sizes[0]]) ** (1 / doublings)
    rows.append(row(f"{sizes[0]:,} to {sizes[-1]:,} ID", "DS-AURC growth a doubling, mean", mean, "x", "-"))
    finish("double_score", rows)


if __name__ == "__main__":
    main()
