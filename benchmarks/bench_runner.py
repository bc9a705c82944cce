"""The benchmark runner on a real CIFAR-10 network: whole, again, with a new score, with two workers.

    TWOFOLD_DATA=... python benchmarks/bench_runner.py [--work FOLDER] [--save]        (half an hour on an idle machine)

The run of the network is kept in FOLDER/runs (by default real-bench), as that of benchmarks/real_bench.py; where it is
missing it is extracted first, which takes some 20 minutes more and resumes. Results go to a folder that is deleted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from script import announce, work_folder

import numpy as np

from real_runs import MAIN, WORK, extract
from timing import finish, row
from twofold import Outputs, Run, metrics, scorer, stats
from twofold.metrics._grid import DoubleHistogram

FEW = ("msp", "energy", "entropy", "gini", "mls", "margin", "fdbd", "vim")

WATCHED = """
import resource, runpy, sys
sys.argv = ["twofold", *sys.argv[1:]]
try:
    runpy.run_module("twofold.cli", run_name="__main__", alter_sys=False)
except SystemExit as end:
    assert not end.code, end.code
most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(most / 2**20, file=sys.stderr)
"""


def command(run, out, *extra):
    """Measure seconds and gigabytes (of the largest process) of one `twofold bench run`."""
    given = ["bench", "run", "cifar10-real", "--run", str(run), "--out", str(out), "--json", *extra]
    announce(f"bench run {' '.join(extra)}")
    begin = time.perf_counter()
    env = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", WATCHED, *given], check=True, capture_output=True, text=True, env=env)
    return time.perf_counter() - begin, float(ran.stderr.split()[-1]), json.loads(ran.stdout)


def replicates(run):
    """Measure how far replicates by the histogram are from exact ones, in standard deviations of the replicates."""
    both = Outputs.concat([run["test"], run["svhn"]])
    a, b = scorer("msp").score(both), scorer("energy").score(both)
    exact = {"ds_f1": metrics.ds_f1(both.correct, a, b, both.is_id).value}
    exact["ds_aurc"] = metrics.ds_aurc(both.correct, a, b, both.is_id)
    histogram = DoubleHistogram(both.correct, a, b, both.is_id)
    weighted = {name: metrics.info(name).function.weighted(both.correct, a, b, both.is_id) for name in exact}
    drawn = stats.draws(len(both), 200, seed=0)
    near = [histogram.centred(weights, exact) for weights in drawn]
    for name in exact:
        true = np.array([weighted[name](weights) for weights in drawn])
        found = np.array([one[name] for one in near])
        yield name, float(np.abs(found - true).mean() / true.std()), float(found.std() / true.std())


def main():
    network = MAIN[0]
    extract([network], work_folder(WORK))
    run = work_folder(WORK) / "runs" / network.name
    rows = []
    announce("replicates by the histogram and exactly")
    for name, apart, ratio in replicates(Run.open(run)):
        rows.append(row(f"replicates of {name}", "histogram, distance from exact / their deviation", apart, "x", "-"))
        rows.append(row(f"replicates of {name}", "deviation by histogram / exact", ratio, "x", "-"))
    scores = [word for name in FEW for word in ("--score", name)]
    with tempfile.TemporaryDirectory() as folder:
        one, _, _ = command(run, Path(folder) / "one", "--jobs", "1", *scores)
        again, _, before = command(run, Path(folder) / "one", "--jobs", "1", *scores)
        more, _, after = command(run, Path(folder) / "one", "--jobs", "1", *scores, "--score", "renyi")
        rows.append(row("eight scores and pairs", "again, nothing changed", again, "s", "-"))
        rows.append(row("eight scores and pairs", "one more score / all from nothing", more / one, "x", "-"))
        rows.append(row("eight scores and pairs", "rows of one more score", len(after) - len(before), "", "-"))
        whole, memory, found = command(run, Path(folder) / "all", "--jobs", "2")
        rows.append(row("everything", "from the extracted run, 2 workers", whole / 60, "min", "<= 20"))
        rows.append(row("everything", "memory of the largest process", memory, "GB", "< 4"))
        rows.append(row("everything", "rows", len(found), "", "-"))
        alone, _, _ = command(run, Path(folder) / "alone", "--jobs", "1")
        rows.append(row("everything", "1 worker / 2 workers", alone / whole, "x", ">= 1.6"))
        again, _, _ = command(run, Path(folder) / "all", "--jobs", "2")
        rows.append(row("everything", "again, nothing changed", again, "s", "<= 3"))
    finish("bench_runner", rows)


if __name__ == "__main__":
    main()
