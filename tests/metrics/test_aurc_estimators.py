"""Weights, bias and error of the AURC estimators, and AURC over stochastic passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from metric_inputs import mixed
from oracles import (
    empirical,
    slow_softmax,
    trapezoid,
)
from scipy import integrate, special, stats

from twofold import metrics
from twofold.errors import InvalidInput

ESTIMATORS = ("empirical", "log", "sele", "2sele", "self_excluded", "expected", "trapezoid", "continuous")


# -------------------------------------------------------------------------------- weights, bias, error

WEIGHT = {
    "empirical": lambda r, n: sum(1 / k for k in range(n - r + 1, n + 1)),
    "expected": lambda r, n: sum(1 / k for k in range(n - r + 1, n + 1)),
    "self_excluded": lambda r, n: sum(1 / k for k in range(n - r + 1, n)),
    "log": lambda r, n: -math.log(1 - r / (n + 1)),
    "sele": lambda r, n: r / n,
    "2sele": lambda r, n: 2 * r / n,
}


@pytest.mark.parametrize("n", [1, 2, 4, 37])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_reproduce_the_estimator(estimator, n):
    weights = metrics.aurc_weights(n, estimator)
    if estimator in WEIGHT:
        assert weights == pytest.approx([WEIGHT[estimator](r, n) for r in range(1, n + 1)], abs=1e-12)
    loss = np.random.default_rng(n).random(n)  # row r has ascending rank r
    got = metrics.aurc(np.ones(n), np.arange(n), loss=loss, estimator=estimator)
    assert weights @ loss / n == pytest.approx(got, abs=1e-12)


def test_mean_weights():
    for n in (1, 2, 10, 200):
        mean = {e: metrics.aurc_weights(n, e).mean() for e in ESTIMATORS}
        assert mean["empirical"] == pytest.approx(1)
        assert mean["continuous"] == pytest.approx(1)
        assert mean["trapezoid"] == pytest.approx(1)
        assert mean["log"] == pytest.approx(math.log(n + 1) - math.lgamma(n + 1) / n)
        assert mean["log"] < 1
        assert mean["sele"] == pytest.approx((n + 1) / (2 * n))
        assert mean["2sele"] == pytest.approx((n + 1) / n)
        assert mean["self_excluded"] == pytest.approx(1 - 1 / n)
    with pytest.raises(InvalidInput, match="n must be a whole number of at least 1, got 0"):
        metrics.aurc_weights(0)
    with pytest.raises(InvalidInput, match="estimator: no choice 'grid'"):
        metrics.aurc_weights(3, "grid")


BETA = np.array([0.0, 0.01, 0.3, 0.5, 0.9, 0.99])


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("estimator", WEIGHT)
def test_bias_of_a_weight_is_the_binomial_sum(estimator, n):
    """Given beta, the rank is 1 + Binomial(n - 1, beta); the population weight is -ln(1 - beta)."""
    want = []
    for beta in BETA:
        terms = [
            math.comb(n - 1, r - 1) * beta ** (r - 1) * (1 - beta) ** (n - r) * WEIGHT[estimator](r, n)
            for r in range(1, n + 1)
        ]
        want.append(math.fsum(terms) + math.log(1 - beta))
    assert metrics.aurc_weight_bias(BETA, n, estimator) == pytest.approx(want, abs=1e-11)


def test_closed_forms_of_the_bias():
    n = 6
    tail = [sum(b**k / k for k in range(n, 5000)) for b in BETA]
    assert metrics.aurc_weight_bias(BETA, n) == pytest.approx(1 / n - np.array(tail), abs=1e-9)
    grid = (np.arange(200000) + 0.5) / 200000
    assert metrics.aurc_weight_bias(grid, n).mean() == pytest.approx(0, abs=1e-4)
    for bad in (-0.1, 1.0):
        with pytest.raises(InvalidInput, match=r"beta must be in \[0, 1\), got"):
            metrics.aurc_weight_bias([0.5, bad], n)
    with pytest.raises(InvalidInput, match="estimator: no choice 'trapezoid'"):
        metrics.aurc_weight_bias(BETA, n, "trapezoid")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_mse_of_a_weight_is_the_integral_over_beta(estimator):
    """Given the rank r, beta is Beta(r, n - r + 1)."""
    n = 6
    weights = metrics.aurc_weights(n, estimator)
    want = []
    for r in range(1, n + 1):
        density = stats.beta(r, n - r + 1).pdf

        def integrand(b, r=r, density=density):
            return (weights[r - 1] + math.log1p(-b)) ** 2 * density(b)

        want.append(integrate.quad(integrand, 0, 1, limit=200)[0])
    assert metrics.aurc_weight_mse(n, estimator) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("n", [1, 8, 1024])
def test_mse_closed_forms(n):
    r = np.arange(1, n + 1)
    mse = metrics.aurc_weight_mse(n)
    assert mse == pytest.approx(special.polygamma(1, n + 1 - r) - special.polygamma(1, n + 1), rel=1e-9)
    assert mse.mean() == pytest.approx(sum(1 / k for k in range(1, n + 1)) / n)
    gap = np.log(1 - r / (n + 1)) + np.array([WEIGHT["empirical"](k, n) for k in r])
    assert metrics.aurc_weight_mse(n, "log") == pytest.approx(mse + gap**2, rel=1e-9)
    assert (gap >= 0).all()


# -------------------------------------------------------------------------------- standard error


def weighted_area(weight, loss, conf, counted):
    """The empirical AURC as a function of sample weights."""
    return empirical(loss, conf, weight.tolist(), counted=(weight * counted).tolist())


@pytest.mark.parametrize("coverage", ["all", "id"])
@pytest.mark.parametrize("given_loss", [False, True], ids=["0/1", "loss"])
@pytest.mark.parametrize("levels", [5, 10**9], ids=["ties", "distinct"])
def test_standard_error_is_the_infinitesimal_jackknife(coverage, given_loss, levels):
    """IF_i = n times the derivative of the area in the weight of sample i; se^2 = sum IF^2 / n^2."""
    for seed in range(3):
        correct, conf, is_id, loss = mixed(16, seed, levels)
        cost = (loss if given_loss else ~correct).astype(float).tolist()
        counted = np.ones(16) if coverage == "all" else is_id.astype(float)
        slopes = []
        for i in range(16):
            step = 1e-5 * (np.arange(16) == i)
            up = weighted_area(1 + step, cost, conf, counted)
            down = weighted_area(1 - step, cost, conf, counted)
            slopes.append((up - down) / 2e-5)
        assert sum(slopes) == pytest.approx(0, abs=1e-8)  # the area does not depend on the scale of the weights
        extra = {"loss": loss} if given_loss else {}
        got = metrics.aurc_standard_error(correct, conf, is_id=is_id, coverage=coverage, **extra)
        assert got == pytest.approx(math.sqrt(sum(s**2 for s in slopes)), rel=1e-6)


def test_standard_error_and_the_sheet_and_the_jackknife():
    n = 1500
    rng = np.random.default_rng(0)
    conf = rng.random(n)
    correct = rng.random(n) > 0.4 * (1 - conf)
    got = metrics.aurc_standard_error(correct, conf)
    l = (~correct)[np.argsort(conf)].astype(float)  # ascending
    w = np.array([WEIGHT["empirical"](r, n) for r in range(1, n + 1)])
    influence = w * l - np.cumsum(l / np.arange(n, 0, -1)) + l.mean() - (w * l).mean()
    assert got == pytest.approx(math.sqrt((influence**2).sum()) / n, rel=0.01)
    leave_one_out = np.array([metrics.aurc(np.delete(correct, i), np.delete(conf, i)) for i in range(n)])
    jackknife = math.sqrt((n - 1) / n * ((leave_one_out - leave_one_out.mean()) ** 2).sum())
    assert got == pytest.approx(jackknife, rel=0.01)


@pytest.mark.slow
def test_the_standard_error_covers_as_often_as_it_says():
    """m(beta) = 0.4 (1 - beta) has the population AURC 0.4 times the integral of -u ln u, that is 0.1."""
    rng, n, worlds = np.random.default_rng(0), 1024, 1500
    covered, errors, areas = 0, [], []
    for _ in range(worlds):
        beta = rng.random(n)
        correct = rng.random(n) > 0.4 * (1 - beta)
        area, error = metrics.aurc(correct, beta), metrics.aurc_standard_error(correct, beta)
        covered += abs(area - 0.1) <= 1.96 * error
        areas.append(area)
        errors.append(error)
    assert 0.93 <= covered / worlds <= 0.97
    assert np.mean(errors) == pytest.approx(np.std(areas), rel=0.06)
    assert np.mean(areas) == pytest.approx(0.1, abs=4 * np.std(areas) / math.sqrt(worlds) + 0.2 / n)


@pytest.mark.slow
def test_bias_of_the_estimators_in_simulation():
    """E[empirical] - AURC is about (R - m(1)) / n, and leaving a sample's own vote out removes R / n."""
    rng, n, worlds = np.random.default_rng(1), 8, 8000
    sums = dict.fromkeys(("empirical", "self_excluded", "log"), 0.0)
    for _ in range(worlds):
        beta = rng.random(n)
        correct = rng.random(n) > 0.4 * (1 - beta)
        for e in sums:
            sums[e] += metrics.aurc(correct, beta, estimator=e) / worlds
    risk = 0.2
    missing = quad_of_tail(n)  # integral of m(beta) sum_{k >= n} beta^k / k
    assert sums["empirical"] - 0.1 == pytest.approx(risk / n - missing, abs=0.004)
    assert sums["self_excluded"] - 0.1 == pytest.approx(-missing, abs=0.004)
    assert sums["self_excluded"] < sums["log"] < sums["empirical"]


def quad_of_tail(n):
    def integrand(b):
        return 0.4 * (1 - b) * (-math.log1p(-b) - sum(b**k / k for k in range(1, n)))

    return integrate.quad(integrand, 0, 1)[0]


# -------------------------------------------------------------------------------- stochastic passes


def test_expected_aurc_judges_every_draw_on_its_own():
    rng = np.random.default_rng(0)
    passes, labels = rng.normal(size=(4, 30, 3)) * 3, rng.integers(-1, 3, 30)
    found = metrics.expected_aurc(labels, passes)
    want = []
    for z in passes:
        p = slow_softmax(z)
        want.append(empirical((p.argmax(1) != labels).astype(float).tolist(), p.max(1).tolist()))
    assert found.values == pytest.approx(want, abs=1e-12)
    assert found.mean == pytest.approx(np.mean(want))
    assert found.std == pytest.approx(np.std(want, ddof=1))
    p = slow_softmax(passes).mean(axis=0)
    want = empirical((p.argmax(1) != labels).astype(float).tolist(), p.max(1).tolist())
    assert found.averaged == pytest.approx(want, abs=1e-12)


def test_expected_aurc_settings_and_errors():
    rng = np.random.default_rng(0)
    passes, labels = rng.normal(size=(1, 20, 3)), rng.integers(0, 3, 20)
    found = metrics.expected_aurc(labels, passes, lambda z: z.max(axis=1), estimator="trapezoid")
    wrong = (passes[0].argmax(1) != labels).astype(float).tolist()
    assert found.mean == pytest.approx(trapezoid(wrong, passes[0].max(1).tolist()))
    assert math.isnan(found.std)
    with pytest.raises(InvalidInput, match=r"passes has 20 rows \(its second axis\) but labels has 19"):
        metrics.expected_aurc(labels[:-1], passes)
    with pytest.raises(InvalidInput, match=r"passes must be three-dimensional \(M, N, C\), got shape \(20, 3\)"):
        metrics.expected_aurc(labels, passes[0])


def test_expected_aurc_names_the_draw_whose_confidence_is_nan():
    draws = np.zeros((3, 2, 2))
    draws[1, 1, 0] = 7.0

    def score(z):
        return np.where(z.max(axis=1) > 5, np.nan, 0.0)

    with pytest.raises(InvalidInput, match=r"score of draw 1 has NaN in row 1 \(1 of 2 rows\); fix the score$"):
        metrics.expected_aurc([0, 1], draws, score)
