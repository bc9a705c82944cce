"""Rank tests against golden values, SciPy, scikit-posthocs, laws and simulation."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from twofold.errors import DoubtfulTable, InvalidInput
from twofold.stats.rank_tests import conover_holm, conover_t, friedman, holm, rank_z, wilcoxon
from twofold.stats.table import rank_table
from twofold.stats.table_checks import find_doubts

GOLDEN = np.array([[4, 6, 3, 5, 4, 5], [7, 8, 6, 7, 9, 6], [6, 9, 7, 8, 8, 9]], dtype=float).T
PAIRWISE = [conover_t, rank_z, wilcoxon]


def quiet(function, *args, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulTable)
        return function(*args, **settings)


def tables(low=0, high=4, blocks=(2, 7), methods=(2, 6)):
    """Small whole numbers, so that ties are common."""
    shape = st.tuples(st.integers(*blocks), st.integers(*methods))
    return shape.flatmap(lambda s: arrays(np.float64, s, elements=st.integers(low, high).map(float)))


# golden values and other libraries


def test_golden_friedman():
    result = friedman(GOLDEN)
    assert result.statistic == pytest.approx(9.33333333, abs=1e-8)
    assert result.f == pytest.approx(17.5, abs=1e-9)
    assert result.df == (2, 10)
    assert result.blocks == 6
    assert result.names == ("0", "1", "2")
    np.testing.assert_allclose(result.mean_ranks * 6, [18, 10, 8])


def test_golden_pairs_are_raw_p_values():
    t = conover_t(GOLDEN)
    np.testing.assert_allclose(t.statistic[[0, 0, 1], [1, 2, 2]], [4.472, 5.590, 1.118], atol=5e-4)
    np.testing.assert_allclose(t.raw[[0, 0, 1], [1, 2, 2]], [0.001193, 0.000231, 0.2897], atol=5e-5)
    np.testing.assert_allclose(t.p[[0, 0, 1], [1, 2, 2]], [2 * 0.001193, 3 * 0.000231, 0.2897], atol=5e-5)
    z = rank_z(GOLDEN)
    np.testing.assert_allclose(z.raw[[0, 0, 1], [1, 2, 2]], [0.0209, 0.0039, 0.5637], atol=5e-5)
    assert conover_holm is conover_t
    assert (t.test, z.test) == ("conover_t", "rank_z")


@settings(max_examples=60, deadline=None)
@given(tables(methods=(3, 6)))
def test_friedman_agrees_with_scipy(table):
    from scipy.stats import friedmanchisquare

    result = quiet(friedman, table)
    if all(len(set(row)) == 1 for row in table):
        assert (result.statistic, result.p, result.f, result.f_p) == (0, 1, 0, 1)
    else:
        theirs = friedmanchisquare(*table.T)
        assert result.statistic == pytest.approx(theirs.statistic, abs=1e-9)
        assert result.p == pytest.approx(max(theirs.pvalue, result.least_p), abs=1e-9)


def test_conover_and_nemenyi_of_scikit_posthocs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posthocs = pytest.importorskip("scikit_posthocs")
    from scipy.stats import studentized_range

    rng = np.random.default_rng(1)
    for _ in range(20):
        table = rng.integers(0, 12, size=(8, 5)).astype(float) + np.arange(5)
        theirs = posthocs.posthoc_conover_friedman(table, p_adjust=None).to_numpy()
        np.testing.assert_allclose(quiet(conover_t, table).raw, theirs, atol=1e-9)
        adjusted = posthocs.posthoc_conover_friedman(table, p_adjust="holm").to_numpy()
        np.testing.assert_allclose(quiet(conover_t, table).p, adjusted, atol=1e-9)
        # Nemenyi refers the same statistic, times sqrt(2), to the studentised range
        z = quiet(rank_z, table).statistic
        nemenyi = posthocs.posthoc_nemenyi_friedman(table).to_numpy()
        ours = studentized_range.sf(z * np.sqrt(2), 5, np.inf)
        np.testing.assert_allclose(ours[~np.eye(5, dtype=bool)], nemenyi[~np.eye(5, dtype=bool)], atol=1e-6)


@pytest.mark.parametrize("blocks", [2, 5, 17, 50])
def test_wilcoxon_is_scipys_exact_test_without_ties(blocks):
    from scipy.stats import wilcoxon as theirs

    table = np.random.default_rng(blocks).normal(size=(blocks, 3)) + np.arange(3) / 2
    result = quiet(wilcoxon, table)
    for i, j in itertools.combinations(range(3), 2):
        reference = theirs(table[:, i], table[:, j], method="exact")
        assert result.statistic[i, j] == pytest.approx(reference.statistic)
        assert result.raw[i, j] == pytest.approx(reference.pvalue, rel=1e-9)


def test_wilcoxon_beyond_fifty_is_the_normal_curve():
    from scipy.stats import wilcoxon as theirs

    rng = np.random.default_rng(0)
    table = np.rint(10 * rng.normal(size=(120, 2)) + np.array([0, 1]))
    reference = theirs(table[:, 0], table[:, 1], method="asymptotic", zero_method="wilcox", correction=False)
    assert quiet(wilcoxon, table).raw[0, 1] == pytest.approx(reference.pvalue, rel=1e-9)
    assert quiet(wilcoxon, table / 10).raw[0, 1] == quiet(wilcoxon, table).raw[0, 1]  # tenths tie as units do


@settings(max_examples=60, deadline=None)
@given(tables(methods=(2, 2), high=3))
def test_wilcoxon_with_ties_counts_every_sign_pattern(table):
    from scipy.stats import rankdata

    gaps = table[:, 0] - table[:, 1]
    gaps = gaps[gaps != 0]
    p = 1.0
    if gaps.size:
        ranks = rankdata(np.abs(gaps))
        seen = min(ranks[gaps > 0].sum(), ranks[gaps < 0].sum())
        sums = [np.dot(ranks, signs) for signs in itertools.product([0, 1], repeat=gaps.size)]
        p = min(1.0, 2 * np.mean(np.array(sums) <= seen + 1e-9))
    assert quiet(wilcoxon, table).raw[0, 1] == pytest.approx(p)


def test_wilcoxon_ties_survive_rounding_errors():
    table = np.array([[0.3, 0.2], [0.2, 0.1], [0.5, 0.4], [0.7, 0.8]])
    assert wilcoxon(table).statistic[0, 1] == 2.5
    assert wilcoxon(np.zeros((3, 2))).raw[0, 1] == 1.0
    nearly = np.array([[1.0, 0.5], [0.5 + 3e-13, 1.0], [0.9, 0.2]])  # equal up to 1e-12 of the largest value
    assert wilcoxon(nearly).statistic[0, 1] == 1.5
    assert wilcoxon(nearly + np.array([[0, 0], [2e-11, 0], [0, 0]])).statistic[0, 1] == 1.0


@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
def test_holm_by_its_formula(p):
    order = np.argsort(p, kind="stable")
    expected = np.empty_like(p)
    for i in range(len(p)):
        expected[order[i]] = max(min(1.0, (len(p) - j) * p[order[j]]) for j in range(i + 1))
    np.testing.assert_array_equal(holm(p), expected)


# edges


def test_perfect_agreement_and_all_tied():
    same = np.tile([3.0, 2.0, 2.0, 1.0], (4, 1))
    result = friedman(same)
    assert result.f == np.inf
    assert result.f_p == pytest.approx(12 / 12**4)  # a block has 12 orders, and all blocks agree in 12 tables
    assert result.exact_p == pytest.approx(12 / 12**4)
    pairs = conover_t(same)
    assert pairs.raw[0, 1] == pytest.approx(10 / 12**4)  # in 2 of the 12 the pair is tied
    assert pairs.statistic[0, 1] == np.inf
    assert pairs.raw[1, 2] == 1
    assert pairs.statistic[1, 2] == 0
    flat = np.ones((3, 4))
    assert friedman(flat).p == friedman(flat).f_p == 1
    for test in PAIRWISE:
        np.testing.assert_array_equal(test(flat).p, np.ones((4, 4)))


def test_two_methods():
    table = np.array([[1.0, 2.0], [1.0, 3.0], [2.0, 1.0]])
    result = friedman(table)
    assert result.statistic == pytest.approx(1 / 3)
    assert result.df == (1, 2)
    assert conover_t(table).statistic[0, 1] ** 2 == pytest.approx(result.f)


def test_better_lower_is_higher_of_the_negative():
    for test in [friedman, *PAIRWISE]:
        np.testing.assert_array_equal(test(GOLDEN, better="lower").mean_ranks, test(-GOLDEN).mean_ranks)
    np.testing.assert_array_equal(friedman(GOLDEN, better="lower").mean_ranks * 6, [6, 14, 16])


def test_names_from_data_frames_and_arguments():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(GOLDEN, columns=["a", "b", "c"])
    assert friedman(frame).names == ("a", "b", "c")
    assert friedman(frame, names=["x", "y", "z"]).names == ("x", "y", "z")
    assert conover_t(frame).names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ([[1.0, 2.0], [np.nan, 3.0]], {}, "row 1, column '0'"),
        ([[1.0, np.inf], [2.0, 3.0]], {"names": ["msp", "knn"]}, "inf in row 0, column 'knn'"),
        ([[1.0, 2.0]], {}, "at least 2 blocks"),
        ([[1.0], [2.0]], {}, "2 methods"),
        ([1.0, 2.0], {}, "two-dimensional"),
        ([[1.0, 2.0], [2.0, 3.0]], {"names": ["a"]}, "2 different names"),
        ([[1.0, 2.0], [2.0, 3.0]], {"names": ["a", "a"]}, "2 different names"),
        ([[1.0, 2.0], [2.0, 3.0]], {"better": "highest"}, "better"),
    ],
)
def test_errors_say_what_came(table, settings, message):
    for test in [friedman, *PAIRWISE]:
        with pytest.raises(InvalidInput, match=message):
            test(table, **settings)


def test_holm_refuses_what_is_no_p_value():
    for bad in ([0.1, np.nan], [1.5], [-0.1]):
        with pytest.raises(InvalidInput, match="p-values"):
            holm(bad)


# laws


@settings(max_examples=60, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_permuting_methods_permutes_and_blocks_do_not_matter(table, random):
    columns, rows = list(range(table.shape[1])), list(range(table.shape[0]))
    random.shuffle(columns)
    random.shuffle(rows)
    moved = table[np.ix_(rows, columns)]
    before, after = quiet(friedman, table), quiet(friedman, moved)
    assert (before.statistic, before.f, before.p) == pytest.approx((after.statistic, after.f, after.p))
    for test in PAIRWISE:
        before, after = quiet(test, table), quiet(test, moved)
        np.testing.assert_allclose(after.p, before.p[np.ix_(columns, columns)], atol=1e-12)
        np.testing.assert_array_equal(after.p, after.p.T)
        np.testing.assert_array_equal(np.diag(after.p), 1)
        assert (after.p >= after.raw).all()


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(0, 1000))
def test_increasing_maps_of_each_block_change_no_rank_test(table, seed):
    rng = np.random.default_rng(seed)
    shape = (len(table), 1)
    mapped = np.exp(rng.uniform(0.1, 2, shape) * table) * rng.uniform(0.5, 2, shape) + rng.normal(size=shape)
    for test in (conover_t, rank_z):
        np.testing.assert_array_equal(quiet(test, table).p, quiet(test, mapped).p)
    assert quiet(friedman, table).p == quiet(friedman, mapped).p


def test_inputs_stay_untouched():
    table = GOLDEN.copy()
    table.flags.writeable = False
    for test in [friedman, *PAIRWISE]:
        test(table)
    np.testing.assert_array_equal(table, GOLDEN)


# doubts


def replicas(rng, sets, each, methods, rho, strength=0.0):
    shared = np.repeat(rng.normal(size=(sets, methods)), each, axis=0)
    own = rng.normal(size=(sets * each, methods))
    return strength * rng.normal(size=methods) + np.sqrt(rho) * shared + np.sqrt(1 - rho) * own


def ordered_tail(rng, blocks, good, weak):
    return rng.normal(size=(blocks, good + weak)) - 10 * np.r_[np.zeros(good), np.arange(1, weak + 1)]


def test_a_metric_counted_twice_is_seen():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(8, 12))
    for test in [friedman, *PAIRWISE]:
        test(table)
        with pytest.warns(DoubtfulTable, match=r"rows 0 and 8, 1 and 9, 2 and 10 and 5 more.*counted twice"):
            test(np.vstack([table, np.exp(table) + 0.0]))
    with pytest.warns(DoubtfulTable, match="rows 2 and 5"):  # equal numbers need no simulation
        conover_t(np.vstack([table[:5, :5], table[2, :5]]))


def test_twins_alone_are_not_also_called_groups():
    table = np.random.default_rng(0).normal(size=(8, 20))
    assert len(find_doubts(rank_table(np.vstack([table, table]), "higher", None))) == 1


def test_replicas_of_one_data_set_are_seen():
    table = replicas(np.random.default_rng(0), 2, 8, 20, 0.8)
    for test in [friedman, *PAIRWISE]:
        with pytest.warns(DoubtfulTable, match="blocks are correlated"):
            test(table)


def test_weak_methods_are_named_for_the_common_standard_error_only():
    table = ordered_tail(np.random.default_rng(0), 8, 10, 6)
    with pytest.warns(DoubtfulTable, match=r"6 of 16 methods are weak \(10, 11, 12 and 3 more\)"):
        conover_t(table)
    rank_z(table)
    wilcoxon(table)


def test_strong_differences_alone_raise_no_doubt():
    rng = np.random.default_rng(0)
    steps = np.arange(6) * 5.0 + rng.normal(size=(10, 6))
    assert find_doubts(rank_table(steps, "higher", None), weak=True) == []
    swaps = np.tile(np.arange(5.0), (10, 1))
    swaps[8:, :2] = [1, 0]
    assert find_doubts(rank_table(swaps, "higher", None), weak=True) == []


def alarms(make, repeats):
    found = [find_doubts(rank_table(make(), "higher", None), weak=True) for _ in range(repeats)]
    kinds = ("counted twice", "correlated", "weak")
    return np.array([[any(kind in text for text in texts) for kind in kinds] for texts in found]).mean(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [0, 1, 4])
def test_doubts_stay_silent_on_independent_blocks(strength):
    rng = np.random.default_rng(7)
    rates = [
        alarms(lambda n=n, k=k: strength * rng.normal(size=k) + rng.normal(size=(n, k)), 80)
        for n in (3, 4, 8, 16)
        for k in (3, 5, 10, 20)
    ]
    twice, correlated, weak = np.mean(rates, axis=0)
    assert twice + correlated < 0.015
    assert np.max(np.array(rates)[:, :2]) <= 0.05  # 4 of 80 in a single setting
    if strength == 0:  # methods that truly differ by several standard deviations do leave a weak tail
        assert weak < 0.002


@pytest.mark.slow
@pytest.mark.parametrize(("families", "rho"), [(2, 0.5), (4, 0.5), (4, 0.9), (10, 0.9)])
def test_families_of_methods_are_not_taken_for_correlated_blocks(families, rho):
    rng = np.random.default_rng(8)
    rate = alarms(lambda: replicas(rng, families, 20 // families, 16, rho).T, 80)
    assert rate[1] <= 0.1


@pytest.mark.slow
def test_doubts_are_voiced_when_they_should_be():
    rng = np.random.default_rng(9)
    for strength in (0, 1):
        assert alarms(lambda s=strength: replicas(rng, 2, 8, 20, 0.8, s), 60)[1] > 0.9
        assert alarms(lambda s=strength: replicas(rng, 4, 4, 20, 0.8, s), 60)[1] > 0.9

        def twice(noise, s=strength):
            table = s * rng.normal(size=20) + rng.normal(size=(8, 20))
            return np.vstack([table, np.exp(table + noise * rng.normal(size=table.shape))])

        assert alarms(lambda: twice(0.0), 60)[0] == 1
        assert alarms(lambda: twice(0.1), 60)[0] > 0.9
    assert alarms(lambda: ordered_tail(rng, 8, 10, 10), 60)[2] == 1
    assert alarms(lambda: ordered_tail(rng, 8, 15, 5), 150)[2] > 0.9


# levels, as in the table of the FD-Shifts sheet (k = 20, nominal 0.05)


def family_wise(test, make, equal=20, repeats=400):
    return np.mean([(quiet(test, make()).p[:equal, :equal] < 0.05).any() for _ in range(repeats)])


@pytest.mark.slow
def test_family_wise_error():
    rng = np.random.default_rng(11)

    def null(blocks=8):
        return rng.normal(size=(blocks, 20))

    def doubled():
        return np.repeat(np.exp(null()), 2, axis=0)

    def two_sets():
        return replicas(rng, 2, 8, 20, 0.9)

    for test, level, inflated in ((conover_t, 0.028, 0.54), (rank_z, 0.023, 0.51)):
        assert abs(family_wise(test, null) - level) < 0.03
        assert abs(family_wise(test, doubled) - inflated) < 0.09
        assert family_wise(test, two_sets, repeats=60) > 0.95
    assert family_wise(wilcoxon, lambda: null(12), repeats=60) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    # the sheet's "clearly worse" methods are those with a fixed order; equally weak ones do no harm
    assert 0.25 < family_wise(conover_t, lambda: ordered_tail(rng, 8, 10, 10), equal=10) < 0.46
    assert family_wise(rank_z, lambda: ordered_tail(rng, 8, 10, 10), equal=10) < 0.02
    shift = np.r_[np.zeros(10), np.full(10, -10.0)]
    assert family_wise(conover_t, lambda: null() + shift, equal=10) < 0.07


def test_the_first_value_that_is_not_finite_is_named():
    table = np.arange(12.0).reshape(4, 3)
    table[1, 2], table[3, 0] = np.nan, np.inf
    with pytest.raises(InvalidInput, match=r"got nan in row 1, column 'c' \(2 such values\)"):
        friedman(table, better="higher", names=["a", "b", "c"])


@pytest.mark.parametrize("seed", range(4))
def test_iman_and_davenport_from_scipys_friedman(seed):
    """F = (N - 1) chi2 / (N (k - 1) - chi2) with k - 1 and (k - 1)(N - 1) degrees of freedom."""
    blocks, methods = 15 + seed, 3 + seed
    table = np.random.default_rng(seed).normal(size=(blocks, methods)) + 0.3 * np.arange(methods)
    chi2, p = scipy.stats.friedmanchisquare(*table.T)
    f = (blocks - 1) * chi2 / (blocks * (methods - 1) - chi2)
    got = friedman(table)
    assert (got.statistic, got.p) == pytest.approx((chi2, p))
    assert (got.f, got.f_p) == pytest.approx((f, scipy.stats.f.sf(f, methods - 1, (methods - 1) * (blocks - 1))))
