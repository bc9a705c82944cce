"""Cliques: the run shortcut against Bron-Kerbosch, the omnibus gate, ordering rules."""

from __future__ import annotations

import itertools
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold.errors import DoubtfulTable, InvalidInput, MissingExtra
from twofold.stats.cliques import cliques, list_cliques, runs
from twofold.stats.rank_tests import compare
from twofold.stats.table import rank_table

GOLDEN = np.array([[4, 6, 3, 5, 4, 5], [7, 8, 6, 7, 9, 6], [6, 9, 7, 8, 8, 9]], dtype=float).T


def quiet(*args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulTable)
        return cliques(*args, **settings)


def random_table(rng, blocks=None):
    methods = int(rng.integers(2, 14))
    blocks = blocks or int(rng.integers(2, 15))
    noise = rng.normal(size=(blocks, methods)) * rng.choice([0.2, 1, 3])
    return np.round(np.arange(methods) * rng.choice([0, 0.5, 1]) + noise, int(rng.integers(0, 3)))


def brute(alike):
    """Every subset, kept if it is a clique that no method can join."""
    k = len(alike)
    subsets = itertools.chain.from_iterable(itertools.combinations(range(k), r) for r in range(1, k + 1))
    good = {frozenset(s) for s in subsets if all(alike[i, j] for i, j in itertools.combinations(s, 2))}
    return {s for s in good if not any(s < other for other in good)}


@pytest.mark.parametrize("test", ["conover_t", "rank_z"])
def test_runs_are_bron_kerbosch(test):
    pytest.importorskip("networkx")
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(400):
        data = rank_table(random_table(rng), "higher", None)
        order = sorted(range(len(data.names)), key=lambda j: data.sums[j])
        alike = compare(test, data).p >= 0.05
        quick, full = runs(alike, order), list_cliques(alike, order)
        assert {frozenset(g) for g in quick} == {frozenset(g) for g in full}
        assert len(quick) == len(full)
        best = {j for j in range(len(order)) if alike[order[0], j]}
        assert set(quick[0]) == best
        several += len(quick) > 2
    assert several > 100  # the graphs were not trivial


def test_bron_kerbosch_is_brute_force():
    pytest.importorskip("networkx")
    rng = np.random.default_rng(1)
    for _ in range(60):
        k = int(rng.integers(2, 8))
        upper = np.triu(rng.random((k, k)) < 0.6, 1)
        alike = upper | upper.T | np.eye(k, dtype=bool)
        assert {frozenset(g) for g in list_cliques(alike, range(k))} == brute(alike)


def test_golden():
    for test in ("conover_t", "conover_holm", "rank_z"):
        result = cliques(GOLDEN, test=test, names=["A", "B", "C"])
        assert result.groups == (("C", "B"), ("A",))
        assert result.top == ("C", "B")
        assert result.omnibus
        assert result.pairwise.test == ("rank_z" if test == "rank_z" else "conover_t")
    assert cliques(GOLDEN, better="lower", names=["A", "B", "C"]).top == ("A",)
    assert result.names == ("A", "B", "C")
    assert result.friedman.f == pytest.approx(17.5)
    assert result.alpha == 0.05


@pytest.mark.parametrize("test", ["conover_t", "rank_z", "wilcoxon"])
def test_omnibus_gate_is_reported(test):
    table = np.random.default_rng(3).normal(size=(6, 5))
    result = cliques(table, test=test)
    assert result.friedman.f_p >= 0.05
    assert not result.omnibus
    assert len(result.groups) == 1
    assert set(result.top) == set("01234")


def test_perfect_agreement_separates_all():
    result = quiet(np.tile([3.0, 2.0, 2.0, 1.0], (5, 1)), names=["a", "c", "b", "d"])
    assert result.groups == (("a",), ("b", "c"), ("d",))
    assert quiet(np.ones((4, 3))).groups == (("0", "1", "2"),)


def test_wilcoxon_orders_by_the_rules():
    pytest.importorskip("networkx")
    rng = np.random.default_rng(5)
    overlapping = 0
    for _ in range(80):
        table = random_table(rng, blocks=12)
        result = quiet(table, test="wilcoxon")
        if not result.omnibus:
            continue
        rank = dict(zip(result.names, result.mean_ranks, strict=True))
        alike = result.pairwise.p >= 0.05
        expected = {frozenset(result.names[j] for j in g) for g in brute(alike)} if len(alike) < 9 else None
        assert expected is None or expected == {frozenset(g) for g in result.groups}
        keys = [(min(rank[m] for m in g), round(np.mean([rank[m] for m in g]), 9)) for g in result.groups]
        assert keys == sorted(keys)
        assert min(rank.values()) == min(rank[m] for m in result.top)
        assert result.top == result.groups[0]
        assert all([rank[m] for m in g] == sorted(rank[m] for m in g) for g in result.groups)
        overlapping += sum(len(g) for g in result.groups) > len(rank)
    assert overlapping > 5


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["conover_t", "rank_z", "wilcoxon"]))
def test_permuting_methods_and_blocks_changes_nothing(seed, test):
    pytest.importorskip("networkx")
    rng = np.random.default_rng(seed)
    table = random_table(rng)
    names = np.array([f"m{j}" for j in range(table.shape[1])])
    columns, rows = rng.permutation(table.shape[1]), rng.permutation(table.shape[0])
    moved = quiet(table[np.ix_(rows, columns)], test=test, names=list(names[columns]))
    assert moved.groups == quiet(table, test=test, names=list(names)).groups


def test_warnings_come_once_each():
    table = np.random.default_rng(0).normal(size=(8, 12))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        cliques(np.vstack([table, np.exp(table)]))
    assert [w.category for w in seen] == [DoubtfulTable]
    assert seen[0].filename == __file__


def test_errors():
    with pytest.raises(InvalidInput, match="did you mean 'wilcoxon'"):
        cliques(GOLDEN, test="wilcoxn")
    with pytest.raises(InvalidInput, match="alpha"):
        cliques(GOLDEN, alpha=0)


def test_networkx_is_asked_for_by_wilcoxon_only(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    cliques(GOLDEN)
    with pytest.raises(MissingExtra, match=r'pip install "twofold\[stats\]"'):
        cliques(GOLDEN, test="wilcoxon")
