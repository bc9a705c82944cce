"""Bounds against their definitions, and selections against brute force and against their promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from twofold.errors import InvalidInput
from twofold.stats.bounds import clopper_pearson, hoeffding_bentkus, hoeffding_bentkus_p, sgr

METHODS = ["binary", "fixed_sequence"]


# Clopper-Pearson


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.001, 0.5))
def test_clopper_pearson_inverts_the_binomial_tail(errors, others, delta):
    from scipy.stats import binom

    n = errors + others
    upper, lower = (clopper_pearson(errors, n, delta=delta, side=side) for side in ("upper", "lower"))
    if others:
        assert binom.cdf(errors, n, upper) == pytest.approx(delta, rel=1e-6)
    else:
        assert upper == 1.0
    if errors:
        assert binom.sf(errors - 1, n, lower) == pytest.approx(delta, rel=1e-6)
    else:
        assert lower == 0.0


def test_clopper_pearson_against_scipy_and_shapes():
    from scipy.stats import binomtest

    for errors, n in [(0, 10), (3, 100), (10, 10), (500, 1000)]:
        reference = binomtest(errors, n).proportion_ci(0.9, method="exact")
        assert clopper_pearson(errors, n, delta=0.1, side="two") == pytest.approx(tuple(reference), abs=1e-10)
    both = clopper_pearson([0, 1, 2], 20, delta=0.05)
    assert both.shape == (3,)
    assert isinstance(clopper_pearson(1, 20, delta=0.05), float)
    assert both[1] == clopper_pearson(1, 20, delta=0.05)
    assert clopper_pearson(0, 0, delta=0.05, side="two") == (0.0, 1.0)
    assert clopper_pearson(0, 59, delta=0.05) == pytest.approx(1 - 0.05 ** (1 / 59))


def test_clopper_pearson_covers():
    from scipy.stats import binom

    errors = np.arange(41)
    for rate in (0.01, 0.1, 0.5, 0.9):
        weights = binom.pmf(errors, 40, rate)
        assert weights[clopper_pearson(errors, 40, delta=0.1) < rate].sum() <= 0.1
        assert weights[clopper_pearson(errors, 40, delta=0.1, side="lower") > rate].sum() <= 0.1


def test_bound_errors():
    for args, message in [((3, 2), "at most n"), ((-1, 2), "at least 0"), ((0.5, 2), "whole numbers")]:
        with pytest.raises(InvalidInput, match=message):
            clopper_pearson(*args, delta=0.1)
    with pytest.raises(InvalidInput, match="delta"):
        clopper_pearson(1, 2, delta=0)
    with pytest.raises(InvalidInput, match="side"):
        clopper_pearson(1, 2, delta=0.1, side="both")
    with pytest.raises(InvalidInput, match="mean_loss"):
        hoeffding_bentkus(1.2, 10, delta=0.1)
    with pytest.raises(InvalidInput, match="at least 1"):
        hoeffding_bentkus(0.2, 0, delta=0.1)


# Hoeffding-Bentkus


def slow_p(mean, n, risk):
    from scipy.stats import binom

    a = min(mean, risk)
    first = a * math.log(a / risk) if a > 0 else 0.0
    second = (1 - a) * math.log((1 - a) / (1 - risk)) if a < 1 else 0.0
    tail = binom.cdf(math.ceil(round(n * mean, 9)), n, risk)
    return min(1.0, math.exp(-n * (first + second)), math.e * tail)


@given(st.floats(0, 1), st.integers(1, 500), st.floats(0.01, 0.99))
def test_hoeffding_bentkus_p_by_definition(mean, n, risk):
    mean = round(mean, 4)
    assert hoeffding_bentkus_p(mean, n, risk=risk) == pytest.approx(slow_p(mean, n, risk), rel=1e-9, abs=1e-300)


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(1, 500), st.floats(0.001, 0.5))
def test_hoeffding_bentkus_inverts_its_p(mean, n, delta):
    mean = round(mean, 4)
    bound = hoeffding_bentkus(mean, n, delta=delta)
    assert mean <= bound <= 1
    if bound < 1 - 1e-6:
        assert slow_p(mean, n, bound + 1e-7) <= delta * (1 + 1e-9)
    if bound - 1e-7 > mean:
        assert slow_p(mean, n, bound - 1e-7) >= delta * (1 - 1e-9)


def test_hoeffding_bentkus_edges():
    assert hoeffding_bentkus(0.0, 30, delta=0.1) == pytest.approx(1 - 0.1 ** (1 / 30))
    assert hoeffding_bentkus(1.0, 30, delta=0.1) == 1.0
    # 0.07 * 100 is 7.000000000000001 in floating point, and still seven errors
    assert hoeffding_bentkus_p(0.07, 100, risk=0.2) == hoeffding_bentkus_p(7 / 100, 100, risk=0.2)
    assert hoeffding_bentkus([0.1, 0.2], [50, 500], delta=0.1).shape == (2,)
    errors = np.arange(0, 101)
    wide = hoeffding_bentkus(errors / 100, 100, delta=0.05)
    assert (wide >= clopper_pearson(errors, 100, delta=0.05) - 1e-12).all()


@pytest.mark.slow
def test_hoeffding_bentkus_covers():
    rng = np.random.default_rng(0)
    for shape in [(0.5, 4.5), (2, 18), (0.1, 0.1)]:
        losses = rng.beta(*shape, size=(4000, 80))
        missed = hoeffding_bentkus(losses.mean(axis=1), 80, delta=0.1) < shape[0] / sum(shape)
        assert missed.mean() <= 0.1 + 3 * math.sqrt(0.09 / 4000)


# selection with guaranteed risk


def literal(correct, conf, risk, delta):
    """The paper's search as the sheet writes it, on samples in ascending order; the best feasible look."""
    from scipy.stats import beta

    m = len(conf)
    ascending = np.sort(conf)
    looks = max(1, math.ceil(math.log2(m)))
    low, high, best = 1, m, None
    for _ in range(looks):
        z = math.ceil((low + high) / 2)
        accepted = conf >= ascending[z - 1]
        n, e = accepted.sum(), (accepted & ~correct).sum()
        bound = 1.0 if e == n else beta.ppf(1 - delta / looks, e + 1, n - e)
        if bound < risk:
            high = z
            best = (n, bound) if best is None or n > best[0] else best
        else:
            low = z
    return best


@settings(deadline=None)
@given(st.integers(2, 400), st.floats(0.05, 0.6), st.integers(0, 10_000))
def test_binary_is_the_papers_search(m, risk, seed):
    rng = np.random.default_rng(seed)
    conf = rng.permutation(m) / m
    correct = rng.random(m) > 0.5 * (1 - conf)
    errors = np.cumsum(~correct[np.argsort(-conf)])
    counts = np.arange(1, m + 1)
    looks = max(1, math.ceil(math.log2(m)))
    feasible = counts[clopper_pearson(errors, counts, delta=0.1 / looks) < risk]
    chosen, theirs = sgr(correct, conf, risk=risk, delta=0.1), literal(correct, conf, risk, 0.1)
    assert not chosen.feasible or chosen.accepted in feasible
    assume(m & (m - 1) and len(feasible) == np.ptp(feasible) + 1 if len(feasible) else True)
    # the feasible counts are one interval: a search that hits it ends at its upper end, wherever it looked
    if chosen.feasible:
        assert chosen.accepted == feasible.max()
    if theirs is not None:
        assert theirs[0] == min(feasible.max(), m - 1)  # the printed midpoints leave out full coverage


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 10_000), st.sampled_from(METHODS))
def test_selection_says_what_it_accepts(m, levels, seed, method):
    rng = np.random.default_rng(seed)
    conf = rng.integers(0, levels, size=m) / levels
    correct = rng.random(m) > 0.4 * (1 - conf)
    chosen = sgr(correct, conf, risk=0.2, delta=0.1, method=method)
    assert chosen.looks == (max(1, math.ceil(math.log2(m))) if method == "binary" else 1)
    if not chosen.feasible:
        assert (chosen.threshold, chosen.coverage, chosen.accepted, chosen.errors) == (math.inf, 0, 0, 0)
        assert math.isnan(chosen.risk)
        assert chosen.bound >= 0.2
        return
    accepted = conf >= chosen.threshold
    assert chosen.threshold in conf
    assert chosen.accepted == accepted.sum()
    assert chosen.errors == (accepted & ~correct).sum()
    assert chosen.coverage == accepted.mean()
    assert chosen.risk == chosen.errors / chosen.accepted
    assert chosen.bound < 0.2
    assert chosen.bound == clopper_pearson(chosen.errors, chosen.accepted, delta=0.1 / chosen.looks)
    order = rng.permutation(m)
    assert sgr(correct[order], np.exp(3 * conf[order]), risk=0.2, delta=0.1, method=method).errors == chosen.errors


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 10_000))
def test_fixed_sequence_by_a_plain_loop(m, seed):
    rng = np.random.default_rng(seed)
    conf = rng.integers(0, 5000, size=m) / 5000
    correct = rng.random(m) > 0.2 * (1 - conf)
    best = 0
    for threshold in np.unique(conf)[::-1]:
        accepted = conf >= threshold
        n, e = int(accepted.sum()), int((accepted & ~correct).sum())
        if 1 - 0.1 ** (1 / n) >= 0.1:
            continue
        if clopper_pearson(e, n, delta=0.1) >= 0.1:
            break
        best = n
    chosen = sgr(correct, conf, risk=0.1, delta=0.1, method="fixed_sequence")
    assert chosen.accepted == best


@pytest.mark.parametrize("method", METHODS)
def test_selection_extremes(method):
    conf = np.linspace(0, 1, 200)
    everything = sgr(np.ones(200, bool), conf, risk=0.1, delta=0.1, method=method)
    assert (everything.coverage, everything.threshold) == (1.0, 0.0)
    nothing = sgr(np.zeros(200, bool), conf, risk=0.1, delta=0.1, method=method)
    assert not nothing.feasible
    assert nothing.bound == 1.0
    assert not sgr([True], [0.3], risk=0.5, delta=0.1, method=method).feasible
    tied = sgr(np.arange(200) >= 5, np.zeros(200), risk=0.1, delta=0.1, method=method)
    assert (tied.accepted, tied.errors, tied.threshold) == (200, 5, 0.0)
    ends = sgr(np.ones(200, bool), np.r_[np.full(100, np.inf), np.full(100, -np.inf)], risk=0.1, delta=0.1)
    assert ends.threshold == -math.inf


def test_selection_errors():
    for settings_, message in [
        ({"risk": 0.0, "delta": 0.1}, "risk"),
        ({"risk": 0.1, "delta": 1.0}, "delta"),
        ({"risk": 0.1, "delta": 0.1, "method": "sgr"}, "method"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            sgr([True, False], [0.2, 0.1], **settings_)
    with pytest.raises(InvalidInput, match="NaN in row 1"):
        sgr([True, False], [0.2, np.nan], risk=0.1, delta=0.1)
    with pytest.raises(InvalidInput, match="conf has 3 rows"):
        sgr([True, False], [0.2, 0.1, 0.3], risk=0.1, delta=0.1)


def linear_error(conf):
    return 0.5 * (1 - conf)


def floor_error(conf):
    return 0.02 + 0.5 * (1 - conf) ** 2


def step_error(conf):
    return np.where(conf > 0.5, 0.0, 0.5)


def flat_error(conf):
    return np.full_like(conf, 0.1001)


def inverted_error(conf):
    """A score worse than useless: the most confident are wrong most often."""
    return 0.101 + 0.2 * conf


def simulate(error, method, *, samples, levels, repeats, seed=0, risk=0.1, delta=0.1):
    """Share of violated promises and mean coverage; the true risk comes from a fine grid."""
    rng = np.random.default_rng(seed)
    population = (np.arange(levels or 200_000) + 0.5) / (levels or 200_000)
    true_risk = np.cumsum(error(population)[::-1]) / np.arange(1, len(population) + 1)
    violated, coverage = 0, 0.0
    for _ in range(repeats):
        conf = rng.random(samples)
        conf = population[(conf * levels).astype(int)] if levels else conf
        chosen = sgr(rng.random(samples) >= error(conf), conf, risk=risk, delta=delta, method=method)
        coverage += chosen.coverage / repeats
        if chosen.feasible:
            above = np.searchsorted(population, chosen.threshold)
            violated += true_risk[len(population) - 1 - min(above, len(population) - 1)] > risk
    return violated / repeats, coverage


@pytest.mark.slow
@pytest.mark.parametrize("levels", [0, 20])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", [linear_error, floor_error, step_error, flat_error, inverted_error])
def test_the_promise_is_kept(error, method, levels):
    for samples in (300, 1500):
        violated, _ = simulate(error, method, samples=samples, levels=levels, repeats=1000)
        assert violated <= 0.1 + 3 * math.sqrt(0.09 / 1000)


@pytest.mark.slow
def test_which_method_accepts_more():
    def coverage(error, samples):
        return [simulate(error, method, samples=samples, levels=0, repeats=300)[1] for method in METHODS]

    binary, sequence = coverage(linear_error, 300)  # few samples, a clean top: no division of delta wins
    assert sequence > 2 * binary
    binary, sequence = coverage(step_error, 1500)
    assert sequence > binary
    binary, sequence = coverage(floor_error, 1500)  # now and then an error at the very top: the walk stops there
    assert binary > 1.5 * sequence


def test_unequal_lengths_are_one_error():
    for bound, names in (
        (lambda a, b: clopper_pearson(a, b, delta=0.1), "errors"),
        (lambda a, b: hoeffding_bentkus(a, b, delta=0.1), "mean_loss"),
        (lambda a, b: hoeffding_bentkus_p(a, b, risk=0.1), "mean_loss"),
    ):
        with pytest.raises(InvalidInput, match=rf"{names} of shape \(2,\) and n of shape \(3,\) do not fit together"):
            bound([0, 1], [5, 6, 7])
        assert np.shape(bound([0, 1], 7)) == (2,)
        with pytest.raises(InvalidInput, match="n must be whole numbers"):
            bound(0, np.inf)
