"""Rows of results for the tests of benchmarks."""

import math

import numpy as np

from twofold.bench.results import Results
from twofold.bench.rows import KEY

NAN = float("nan")


def row(score="msp", value=0.1, **more):
    return {"score": score, "shift": "svhn", "metric": "aurc", "value": value, "protocol": "fd_shifts"} | more


def replicates_of(rows, arrays):
    """Replicates of rows, by their keys."""
    return {tuple(one.get(c) for c in KEY): a for one, a in zip(rows, arrays, strict=True)}


def several():
    """Rows of all kinds: numbers with many digits, NaN, text that needs quotes, a data set that is missing."""
    rows = [
        row(
            run="a", seed=1, low=1 / 3, high=0.1 + 0.2, level=0.95, resamples=4, n=10, n_id=6, n_ood=4, tuned="untuned"
        ),
        row(
            "react(percentile=90)|energy",
            1e-300,
            run="a",
            chosen='sum(of=("a","b"))',
            command="x, 'y'\nz",
            better="lower",
        ),
        row("knn", NAN, run="a", reason='Grüße: 1 < 2 & "3"', pair="msp"),
        row("mds", math.inf, run="b", version="1.0"),
        {"shift": "lsun", "run": "a", "value": NAN, "reason": "the run does not hold this data set"},
    ]
    return Results.of(rows, replicates_of(rows[:2], [[0.1, 0.2, NAN, 1 / 7], [1.0, 2.0]]))


def same(one, other):
    assert one.to_dicts() == other.to_dicts()
    assert [math.isnan(r["value"]) for r in one] == [math.isnan(r["value"]) for r in other]
    assert one.replicates.keys() == other.replicates.keys()
    for key, array in one.replicates.items():
        np.testing.assert_array_equal(array, other.replicates[key])


def recipes(validated=(0.3, 0.2), tested=(0.1, 0.9)):
    """Two recipes; the one that is better in validation is worse in the test."""
    return [
        row(shift=shift, run=run, recipe=run, value=value)
        for shift, values in (("validation", validated), ("svhn", tested))
        for run, value in zip(("plain", "dropout"), values, strict=True)
    ]
