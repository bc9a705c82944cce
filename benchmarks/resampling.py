"""1,000 bootstrap replicates of AURC, n = 1e5, against drawing rows and sorting them again for every replicate.

    python benchmarks/resampling.py [--save]        (about a minute)

"plain NumPy" is argsort, cumsum and a mean (order-dependent under ties, and so the cheapest way to re-sort);
"our own aurc" is this library's metric called on each resample. Both run a hundredth of the replicates, scaled up.
"""

from __future__ import annotations

from script import announce

import numpy as np

from timing import best, finish, row
from twofold import metrics, stats

N, REPLICATES = 100_000, 1000


def plain(correct, conf):
    wrong = ~correct[np.argsort(-conf)]
    return (np.cumsum(wrong) / np.arange(1, len(wrong) + 1)).mean()


def main():
    rng = np.random.default_rng(0)
    conf = rng.normal(size=N)
    correct = rng.random(N) < 1 / (1 + np.exp(-2 * conf - 1))

    def again(metric):
        for _ in range(REPLICATES // 100):
            drawn = rng.integers(0, N, N)
            metric(correct[drawn], conf[drawn])

    rows = []
    for case, x in {"no ties": conf, "3 decimals": conf.round(3)}.items():
        conf = x
        announce(f"{REPLICATES:,} replicates, {case}")
        times = best(
            {
                "ours": lambda x=x: stats.bootstrap(metrics.aurc, correct, x, n=REPLICATES),
                "plain NumPy": lambda: again(plain),
                "our own aurc": lambda: again(metrics.aurc),
            },
            5,
        )
        for name, target in (("plain NumPy", ">= 30"), ("our own aurc", "-")):
            ratio = 100 * times[name] / times["ours"]
            rows.append(row(case, f"re-sorting, {name} / bootstrap", ratio, "x", target))
    finish("resampling", rows)


if __name__ == "__main__":
    main()
