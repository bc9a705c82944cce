"""Results with many blocks for the tests of comparisons."""

import itertools

import numpy as np

from twofold.bench.results import Results

SETS = {"test": "iid", "cifar100": "near", "tin": "near", "isun": "mid", "lsun": "mid", "svhn": "far", "dtd": "far"}


def rows_of(table, *, metric="aurc", names=None, **more):
    """A table (blocks, methods) as rows: block i is data set i of one run."""
    names = names or [f"m{j}" for j in range(table.shape[1])]
    about = {"benchmark": "cifar10", "model": "vgg", "run": "a", "protocol": "fd_shifts", "better": "lower"} | more
    return [
        {**about, "score": name, "shift": f"set{i:02d}", "role": "far", "metric": metric, "value": float(table[i, j])}
        for i in range(len(table))
        for j, name in enumerate(names)
    ]


def world(runs=3, scores=("msp", "knn", "mds", "vim"), seed=0):
    """Several runs on the sets of SETS, with averages, validation rows and paired replicates."""
    rng = np.random.default_rng(seed)
    rows, replicates = [], {}
    for run, (j, score) in itertools.product(range(runs), enumerate(scores)):
        about = {"benchmark": "cifar10", "model": f"net{run % 2}", "seed": run, "run": f"run{run}", "score": score}
        about |= {"protocol": "stratified", "metric": "augrc", "better": "lower"}
        values = {}
        for shift, role in SETS.items():
            value = float(0.2 + 0.03 * j + 0.02 * rng.normal())
            values.setdefault(role, []).append(value)
            rows.append({**about, "shift": shift, "role": role, "value": value})
            replicates[f"run{run}", score, None, shift, "stratified", "augrc"] = value + 0.01 * rng.normal(size=50)
        means = [(role, float(np.mean(values[role]))) for role in ("near", "mid", "far")]
        rows += [{**about, "shift": role, "role": role, "value": mean} for role, mean in means]
        rows.append({**about, "shift": "validation", "role": "val", "value": 0.0})
    return Results.of(rows, replicates)
