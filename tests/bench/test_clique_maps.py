"""Maps of leading methods: one comparison per group of blocks, and groups that are left out."""

import itertools
import json

import numpy as np
import pytest
from example_blocks import SETS, world

from twofold.bench.clique_maps import clique_map
from twofold.bench.compare import compare
from twofold.bench.results import Results
from twofold.errors import TooFewBlocks


def test_the_map_is_one_comparison_a_group():
    results = world(runs=6)
    table = clique_map(results, "augrc")
    roles = ("iid", "near", "mid", "far")
    assert table.columns == tuple(f"{model} / {role}" for model in ("net0", "net1") for role in roles)
    assert table.blocks == (3, 6, 6, 6) * 2
    for j, (model, role) in enumerate(itertools.product(("net0", "net1"), roles)):
        sets = [shift for shift, own in SETS.items() if own == role]
        alone = compare(results.filter(model=model, shift=sets), "augrc")
        assert {name for name, inside in zip(table.rows, table.member[:, j], strict=True) if inside} == set(alone.top)
        assert table.omnibus[j] == alone.omnibus
    assert table.judged.all()
    counts = (table.member & np.array(table.omnibus)).sum(axis=1)
    assert list(counts) == sorted(counts, reverse=True)
    assert json.loads(json.dumps(table.to_dict()))["groups"][0]["blocks"] == 3


def test_the_map_names_groups_of_few_blocks_and_methods_without_values():
    rows = [dict(row) for row in world(runs=2)]
    for row in rows:
        if row["score"] == "vim" and row["shift"] in ("svhn", "dtd"):
            row["value"] = float("nan")
    table = clique_map(Results.of(rows), "augrc", by=("benchmark", "role"))
    assert table.columns == ("near", "mid", "far")
    assert table.judged[table.rows.index("vim")].tolist() == [True, True, False]
    assert not table.member[table.rows.index("vim"), 2]
    reasons = {(one.kind, one.name): one.reason for one in table.dropped}
    assert "4 methods cannot be compared over 2 blocks" in reasons["group", "iid"]
    assert "no value for 4 of 4 blocks" in reasons["method", "vim in far"]
    assert [one.name for one in table.dropped_groups] == ["iid"]
    with pytest.raises(TooFewBlocks, match="no group has enough methods and blocks"):
        clique_map(Results.of(rows).filter(shift="test"), "augrc")
    assert clique_map(Results.of(rows), "augrc", by=("benchmark",)).columns == ("cifar10",)
