"""Smallest attainable p-values and Friedman's exact test, against a loop over every table and printed values."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import rankdata

from twofold.errors import InvalidInput
from twofold.stats import cliques, conover_t, friedman, rank_z, required_blocks, wilcoxon
from twofold.stats.exact import (
    LARGEST_EXACT,
    exact_friedman_p,
    least_conover_p,
    least_friedman_p,
    least_rank_z_p,
    least_wilcoxon_p,
)
from twofold.stats.rank_tests import omnibus
from twofold.stats.table import rank_table

UNTIED = [np.tile(np.arange(1.0, k + 1), (n, 1)) for k, n in [(2, 2), (2, 5), (3, 2), (3, 4), (4, 2), (4, 3), (5, 2)]]
TIED = [
    rankdata(values, axis=1)
    for values in (
        [[1, 1, 2], [1, 2, 2], [1, 2, 3]],
        [[1, 1, 2], [1, 1, 2], [1, 1, 2]],
        [[1, 1, 1], [1, 2, 3], [1, 2, 3]],
        [[1, 1], [1, 2], [1, 2], [2, 1]],
        [[1, 2, 2, 3], [1, 2, 2, 3]],
        [[1, 1, 1, 2], [1, 2, 2, 3], [1, 2, 3, 4]],
        [[1, 1], [1, 1]],
    )
]


def every_table(ranks):
    """All arrangements of the ranks inside each block, each as an array (n_blocks, n_methods)."""
    orders = [sorted(set(itertools.permutations(row))) for row in ranks.tolist()]
    return [np.array(table) for table in itertools.product(*orders)]


def sum_of_squares(table):
    return float((table.sum(axis=0) ** 2).sum())


def conover_statistic(table, i=0, j=1):
    blocks, methods = table.shape
    sums = table.sum(axis=0)
    gap = abs(sums[i] - sums[j])
    left = blocks * (table**2).sum() - (sums**2).sum()
    if gap == 0:
        return 0.0
    return np.inf if abs(left) < 1e-9 else gap / np.sqrt(2 * left / ((blocks - 1) * (methods - 1)))


def smallest_p(values):
    """The share of the largest value."""
    values = np.array(values)
    return np.mean(values >= values.max() - 1e-9) if np.isfinite(values.max()) else np.mean(np.isinf(values))


@pytest.mark.parametrize("ranks", UNTIED + TIED)
def test_the_exact_p_is_a_count_over_every_table(ranks):
    tables = every_table(ranks)
    statistic = np.array([sum_of_squares(table) for table in tables])
    for table in tables[:: max(1, len(tables) // 40)]:
        expected = np.mean(statistic >= sum_of_squares(table) - 1e-9)
        assert exact_friedman_p(table) == pytest.approx(expected, rel=1e-12)
        assert friedman(-table).exact_p == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("ranks", UNTIED + TIED)
def test_smallest_p_values_are_those_of_the_strongest_tables(ranks):
    tables = every_table(ranks)
    assert least_friedman_p(ranks) == pytest.approx(smallest_p([sum_of_squares(t) for t in tables]), rel=1e-12)
    gaps = [abs(t[:, 0].sum() - t[:, 1].sum()) for t in tables]
    assert least_rank_z_p(ranks) == pytest.approx(smallest_p(gaps), rel=1e-12)
    strongest = smallest_p([conover_statistic(t) for t in tables])
    if len({tuple(sorted(row)) for row in ranks.tolist()}) == 1 and len(set(ranks[0])) > 1:
        assert least_conover_p(ranks) == pytest.approx(strongest, rel=1e-12)
    else:
        assert 0 < least_conover_p(ranks) <= strongest + 1e-12


@pytest.mark.parametrize("ranks", UNTIED + TIED)
def test_no_test_reports_less_than_the_smallest_attainable(ranks):
    for table in every_table(ranks)[:: max(1, len(every_table(ranks)) // 20)]:
        result = friedman(-table)
        assert min(result.p, result.f_p, result.exact_p) >= result.least_p * (1 - 1e-12)
        assert result.least_p == least_friedman_p(ranks)
        assert result.decisive_p == result.exact_p
        for test in (conover_t, rank_z, wilcoxon):
            assert (test(-table).raw > 0).all()
            assert (test(-table).p <= 1).all()
        assert (conover_t(-table).raw >= least_conover_p(ranks)).all()
        assert (rank_z(-table).raw >= least_rank_z_p(ranks)).all()


# Critical values of Friedman's statistic at 5 % and 1 % by number of methods and blocks, as printed in textbooks
CRITICAL = {
    3: {2: (None, None), 3: (6.0, None), 4: (6.5, 8.0), 5: (6.4, 8.4), 6: (7.0, 9.0), 7: (7.143, 8.857),
        8: (6.25, 9.0), 9: (6.222, 9.556), 10: (6.2, 9.6), 12: (6.5, 9.5), 15: (6.4, 8.933)},
    4: {2: (6.0, None), 3: (7.4, 9.0), 4: (7.8, 9.6), 5: (7.8, 9.96), 6: (7.6, 10.2), 7: (7.8, 10.54), 8: (7.65, 10.5)},
    5: {2: (7.6, 8.0), 3: (8.533, 10.13), 4: (8.8, 11.2), 5: (8.96, 11.68)},
}  # fmt: skip


@pytest.mark.parametrize(("methods", "blocks"), [(k, n) for k, column in CRITICAL.items() for n in column])
def test_exact_p_values_agree_with_printed_critical_values(methods, blocks):
    """The printed value is the smallest statistic whose p is at most the level; none is printed where none exists."""
    rng = np.random.default_rng(0)
    tables = [np.tile(np.arange(1.0, methods + 1), (blocks, 1))]
    tables += [np.array([rng.permutation(methods) + 1.0 for _ in range(blocks)]) for _ in range(300)]
    ordered = np.arange(1.0, methods + 1)
    for _ in range(300):  # tables that nearly agree have large statistics
        tables.append(np.array([rankdata(ordered + rng.normal(0, 1.5, methods)) for _ in range(blocks)]))
    found = [omnibus(rank_table(table, "lower", None)) for table in tables]
    for level, critical in zip((0.05, 0.01), CRITICAL[methods][blocks], strict=True):
        for result in found:
            if critical is None:
                assert result.exact_p > level
            elif abs(result.statistic - critical) > 0.006:  # printed with four digits
                assert (result.exact_p <= level) == (result.statistic > critical)


def test_large_tables_have_no_exact_p_and_are_decided_by_f():
    for methods, blocks in LARGEST_EXACT.items():
        table = np.random.default_rng(0).random((blocks + 1, methods))
        assert friedman(table).exact_p is None
        assert friedman(table).decisive_p == friedman(table).f_p
    assert exact_friedman_p(np.tile(np.arange(1.0, 8), (2, 1))) is None


def test_p_values_stay_positive_beyond_floating_point():
    table = np.tile([3.0, 2.0, 1.0], (3000, 1)) + 1e-6 * np.random.default_rng(0).random((3000, 3))
    result = friedman(table)
    assert 0 < result.f_p < 1e-300
    assert 0 < result.p < 1e-300
    for test in (conover_t, rank_z, wilcoxon):
        raw = test(table).raw[0, 1]
        assert 0 < raw < 1e-100


@pytest.mark.parametrize("test", ["conover_t", "rank_z", "wilcoxon"])
@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
def test_required_blocks_by_fractions(test, alpha):
    level = Fraction(alpha)
    for methods in (2, 3, 4, 5, 8, 20):
        pairs = methods * (methods - 1) // 2
        orders = np.prod([Fraction(i) for i in range(1, methods + 1)])
        for blocks in range(1, 40):
            omnibus = orders ** (1 - blocks)
            pair = {
                "conover_t": orders ** (1 - blocks),
                "rank_z": 2 * Fraction(1, methods * (methods - 1)) ** blocks,
                "wilcoxon": Fraction(1, 2) ** (blocks - 1),
            }[test]
            if blocks >= 3 and omnibus < level and pairs * pair < level:
                break
        assert required_blocks(methods, test=test, alpha=alpha) == blocks


def test_the_smallest_wilcoxon_p():
    for blocks in (3, 6, 10):
        steps = np.column_stack([np.arange(1.0, blocks + 1), np.zeros(blocks)])
        assert wilcoxon(steps).raw[0, 1] == least_wilcoxon_p(blocks) == 2.0 ** (1 - blocks)


def test_two_blocks_of_two_methods_tell_nothing():
    """F of two agreeing blocks is infinite, and half of all tables agree."""
    result = friedman([[0.9, 0.8], [0.7, 0.6]])
    assert result.f == np.inf
    assert (result.f_p, result.exact_p, result.p) == (0.5, 0.5, 0.5)
    assert not cliques([[0.9, 0.8], [0.7, 0.6]]).omnibus


@pytest.mark.parametrize(("methods", "blocks"), [(2, 6), (2, 8), (3, 3), (3, 4), (4, 3), (5, 3)])
def test_equal_methods_are_called_different_in_at_most_alpha_of_all_tables(methods, blocks):
    """Pairs are asked only where this test rejects, so the level holds for them too."""
    rng = np.random.default_rng(3)
    ordered = [np.array([rng.permutation(methods) for _ in range(blocks)]) for _ in range(400)]
    found = [omnibus(rank_table(table.astype(float), "lower", None)) for table in ordered]
    broken = np.mean([one.decisive_p < 0.05 for one in found])
    assert broken <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize(
    ("methods", "settings", "message"),
    [
        (1, {}, "methods must be"),
        (3, {"test": "conover"}, "conover"),
        (3, {"alpha": 0.0}, "alpha must be"),
        (3, {"alpha": float("nan")}, "alpha must be"),
    ],
)
def test_required_blocks_of_what_cannot_be(methods, settings, message):
    with pytest.raises(InvalidInput, match=message):
        required_blocks(methods, **{"test": "conover_t", "alpha": 0.05, **settings})
    assert required_blocks(3, test="conover_holm", alpha=0.05) == required_blocks(3, test="conover_t", alpha=0.05)
