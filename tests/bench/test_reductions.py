"""Fewer rows: means over seeds, and the runs that validation data choose."""

import math

import numpy as np
import pytest
from example_rows import NAN, recipes, replicates_of, row

from twofold.bench.results import Results
from twofold.bench.rows import KEY
from twofold.errors import InvalidInput


def test_over_seeds_is_numpys_mean_and_deviation():
    rng = np.random.default_rng(0)
    values, arrays = rng.normal(size=(2, 3)), rng.normal(size=(2, 3, 5))
    rows = [
        row(s, values[i, k], seed=k, run=f"r{k}", model="net") for i, s in enumerate(("msp", "knn")) for k in range(3)
    ]
    mean = Results.of(rows, replicates_of(rows, arrays.reshape(6, 5))).over_seeds()
    assert len(mean) == 2
    for i, one in enumerate(mean):
        assert one["value"] == pytest.approx(values[i].mean())
        assert one["high"] - one["value"] == pytest.approx(values[i].std(ddof=1))
        assert one["value"] - one["low"] == pytest.approx(values[i].std(ddof=1))
        assert one["run"] == "r0, r1, r2"
        assert one["seed"] is None
        key = tuple(one[c] for c in KEY)
        assert mean.replicates[key] == pytest.approx(arrays[i].mean(axis=0))


def test_over_seeds_with_one_seed_a_gap_and_doubles():
    alone = Results.of([row(seed=3)]).over_seeds().rows[0]
    assert (alone["value"], alone["low"], alone["reason"]) == (0.1, None, "seed 3 alone")
    gap = Results.of([row(seed=0), row(seed=1, value=NAN)]).over_seeds().rows[0]
    assert math.isnan(gap["value"])
    assert gap["reason"] == "no value for seeds 1 of 0, 1"
    with pytest.raises(InvalidInput, match=r"differ in run \(a and b\).* for seed 0 of msp"):
        Results.of([row(seed=0, run="a"), row(seed=0, run="b")]).over_seeds()


def test_selection_looks_at_validation_data_only():
    chosen = Results.of(recipes()).select()
    assert {r["run"] for r in chosen} == {"dropout"}
    assert {r["reason"] for r in chosen} == {"run dropout chosen on validation data: plain 0.3, dropout 0.2"}
    for tested in ((0.0, 1.0), (1.0, 0.0), (NAN, 0.5)):
        assert {r["run"] for r in Results.of(recipes(tested=tested)).select()} == {"dropout"}
    assert {r["run"] for r in Results.of(recipes(validated=(0.1, NAN))).select()} == {"plain"}
    (empty,) = Results.of(recipes(validated=(NAN, NAN))).select()
    assert "none has a value on validation data" in empty["reason"]
    with pytest.raises(InvalidInput, match="2 runs to choose from"):
        Results.of(recipes()).filter(shift="svhn").select()


def test_a_pair_follows_its_first_score():
    pairs = [one | {"pair": "energy", "metric": "ds_aurc"} for one in recipes()[2:]]
    chosen = Results.of(recipes() + pairs).select()
    assert {r["run"] for r in chosen if r["pair"] == "energy"} == {"dropout"}
