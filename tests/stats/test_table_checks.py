"""What raises doubts about a rank table: each quantity as a plain loop over its definition."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import kurtosis, rankdata

from twofold.stats import table_checks
from twofold.stats.table import rank_table


def ranks_of(rng, blocks, methods):
    return np.asarray(rankdata(rng.normal(size=(blocks, methods)), axis=1))


def cosine(a, b):
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms > 1e-9 else 0.0


@pytest.mark.parametrize("seed", range(5))
def test_the_statistics_are_those_of_loops(seed):
    ranks = ranks_of(np.random.default_rng(seed), 5 + seed, 4 + seed)
    mean = [sum(column) / len(ranks) for column in ranks.T]
    rows = [[x - m for x, m in zip(row, mean, strict=True)] for row in ranks]
    pairs = [cosine(a, b) for a, b in itertools.combinations(rows, 2)]
    assert table_checks._cubes(np.array(rows)) == pytest.approx(sum(c**3 for c in pairs))
    assert table_checks._copies(ranks) == sum(c >= 0.95 for c in pairs)
    inner = [[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows] for a in rows]
    apart = sum(inner[i][j] ** 2 for i in range(len(rows)) for j in range(len(rows)) if i != j)
    spread = sum(inner[i][i] for i in range(len(rows)))
    assert table_checks._shared_spread(ranks) == pytest.approx(apart / spread**2)
    x = np.random.default_rng(seed).exponential(size=20)
    assert table_checks._kurtosis(x) == pytest.approx(kurtosis(x, fisher=False))


def test_blocks_that_all_agree_share_nothing():
    same = np.tile([1.0, 2.0, 3.0, 4.0], (6, 1))
    assert table_checks._shared_spread(same) == 0.0
    assert not table_checks._likeness(same - same.mean(axis=0)).any()
    assert not table_checks.correlated_blocks(same)


def test_shuffled_tables_hold_the_ranks_of_each_method_without_ties():
    """Each simulated table is a table of ranks: 1 to k in every row, whatever the columns of the true one repeat."""
    rng = np.random.default_rng(0)
    ranks = ranks_of(rng, 12, 6)
    ranks[:6] = ranks[0]  # columns repeat themselves
    seen = []

    def statistic(table):
        seen.append(np.array(table))
        return 1.0 if len(seen) == 1 else 0.0

    assert table_checks._beyond_shuffles(ranks, statistic, seed=3)
    assert len(seen) == 1 + 199
    for table in seen[1:]:
        assert (np.sort(table, axis=1) == np.arange(1, 7)).all()
    assert len({table.tobytes() for table in seen}) > 190


def test_a_table_as_extreme_as_one_of_the_simulated_is_no_reason_for_doubt():
    ranks, values = ranks_of(np.random.default_rng(1), 8, 5), iter([1.0] + [0.5] * 150 + [1.0] * 100)
    assert not table_checks._beyond_shuffles(ranks, lambda table: next(values), seed=0)
    assert not table_checks._beyond_shuffles(ranks, lambda table: 0.0, seed=0)


def weak_by_definition(ranks):
    """Methods that lose to all of the better half in 95 % of blocks, if that half varies 1.2 times the mean."""
    blocks, methods = ranks.shape
    if blocks < 4 or methods < 6:
        return []
    order = sorted(range(methods), key=lambda j: ranks[:, j].mean())
    top, rest = order[: methods // 2], order[methods // 2 :]
    weak = [j for j in rest if all(sum(ranks[:, i] < ranks[:, j]) >= 0.95 * blocks for i in top)]
    variance = [np.var(ranks[:, j]) for j in range(methods)]
    shrinks = np.mean([variance[j] for j in top]) > 1.2 * np.mean(variance)
    return weak if len(weak) >= 2 and shrinks else []


@pytest.mark.parametrize("methods", [5, 6, 7, 9])
@pytest.mark.parametrize("blocks", [3, 4, 20])
def test_weak_methods_by_definition(blocks, methods):
    found = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        weak = seed % 4  # so many methods are far behind, in a fixed order or not
        table = rng.normal(size=(blocks, methods))
        behind = np.arange(1, weak + 1) * (10.0 if seed % 3 else 0.1)
        table[:, methods - weak :] -= 20.0 + behind
        data = rank_table(table, "higher", [str(j) for j in range(methods)])
        want = weak_by_definition(np.asarray(data.ranks))
        assert sorted(table_checks.weak_methods(data)) == sorted(str(j) for j in want)
        found += bool(want)
    assert bool(found) == (blocks >= 4 and methods >= 6)
