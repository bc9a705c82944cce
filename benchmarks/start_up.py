"""Import, help and first calls: seconds beyond the interpreter's own start, and compilation with an empty cache.

python benchmarks/start_up.py [--save]        (about a minute)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from script import announce

import numpy as np

from timing import best, finish, row

# every kernel once, with and without OOD samples, plain and weighted
FIRST_CALLS = """
import time
from twofold import metrics, stats
import numba
rng_correct, conf = [True, False, True, False] * 5, list(range(20))
is_id = [True, True, True, False] * 5
start = time.perf_counter()
metrics.evaluate(rng_correct, conf, is_id=is_id, conf_ood=conf[::-1], only="all")
metrics.evaluate(rng_correct, conf)
for metric in (metrics.aurc, metrics.augrc, metrics.f1):
    stats.bootstrap(metric, rng_correct, conf, is_id=is_id, n=20)
stats.bootstrap(metrics.ds_f1, rng_correct, conf, conf, is_id, n=20)
stats.bootstrap(metrics.ds_aurc, rng_correct, conf, conf, is_id, n=20)
print(time.perf_counter() - start)
"""


def run(*command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout


def first_calls(cache):
    return float(run(sys.executable, "-W", "ignore", "-c", FIRST_CALLS, NUMBA_CACHE_DIR=cache))


def evaluated(folder, rows=10**6):
    """Time a call of `twofold evaluate` on a million rows, start of the interpreter included."""
    rng = np.random.default_rng(0)
    is_id = rng.random(rows) < 0.8
    correct = is_id & (rng.random(rows) < 0.9)
    file = os.path.join(folder, "scores.npz")
    np.savez(file, correct=correct, conf=rng.normal(size=rows) + correct, is_id=is_id)
    return best({"evaluate": lambda: run(sys.executable, "-m", "twofold.cli", "evaluate", file)}, 3)["evaluate"]


def main():
    announce("import and help")
    times = best(
        {
            "python": lambda: run(sys.executable, "-c", "pass"),
            "import": lambda: run(sys.executable, "-c", "import twofold"),
            "help": lambda: run(sys.executable, "-m", "twofold.cli", "--help"),
        }
    )
    rows = [
        row(
            "import twofold",
            "seconds beyond the interpreter",
            times["import"] - times["python"],
            "s",
            "<= 0.25",
        ),
        row("twofold --help", "seconds beyond the interpreter", times["help"] - times["python"], "s", "<= 0.5"),
    ]
    announce("first calls, and evaluation of a million rows")
    with tempfile.TemporaryDirectory() as cache:
        rows.append(row("first calls, empty cache", "all kernels compiled", first_calls(cache), "s", "<= 6"))
        rows.append(row("first calls, filled cache", "all kernels loaded", first_calls(cache), "s", "-"))
        rows.append(row("twofold evaluate, 1e6 rows", "seconds in all", evaluated(cache), "s", "<= 3"))
    finish("start_up", rows)


if __name__ == "__main__":
    main()
