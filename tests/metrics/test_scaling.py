"""Temperature and Platt scaling."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import slow_ece

from twofold._math import log_odds, softmax
from twofold.errors import InvalidInput, RejectedNaN, TwofoldWarning
from twofold.metrics import (
    PlattScaling,
    TemperatureScaling,
    accuracy,
    brier,
    ece,
    nll,
)

# -------------------------------------------------------------------------------- temperature scaling


@st.composite
def scalable(draw):
    """Noisy logits whose best temperature is finite and positive."""
    seed, c = draw(st.integers(0, 10**6)), draw(st.integers(2, 6))
    rng = np.random.default_rng(seed)
    n, scale = draw(st.integers(20, 60)), 10.0 ** draw(st.integers(-3, 3))
    labels = rng.integers(0, c, n)
    logits = (rng.normal(size=(n, c)) + 1.5 * np.eye(c)[labels]) * scale
    wrong = logits.argmax(axis=1) != labels
    assume(wrong.any())
    assume((logits.mean(axis=1) - logits[np.arange(n), labels]).mean() < -0.05 * scale)
    return labels, logits


@settings(deadline=None, max_examples=50)
@given(scalable())
def test_temperature_is_the_minimum(data):
    from scipy.optimize import minimize_scalar

    labels, logits = data
    value = TemperatureScaling.fit(labels, logits).value
    guess = math.log(np.abs(logits).max())
    best = minimize_scalar(
        lambda t: nll(labels, logits / math.exp(t)), bounds=(guess - 8, guess + 8), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert math.log(value) == pytest.approx(best.x, abs=1e-5)
    assert nll(labels, logits / value) <= best.fun + 1e-13
    p = softmax(logits / value)  # the derivative of the NLL is 0: mean logit = mean label logit
    left = (p * logits).sum(axis=1).mean()
    assert left == pytest.approx(logits[np.arange(len(labels)), labels].mean(), abs=1e-11 * np.abs(logits).max())


@settings(deadline=None, max_examples=25)
@given(scalable(), st.floats(1e-3, 1e3))
def test_temperature_scales_with_the_logits_and_ignores_shifts(data, factor):
    labels, logits = data
    value = TemperatureScaling.fit(labels, logits).value
    assert TemperatureScaling.fit(labels, factor * logits).value == pytest.approx(factor * value, rel=1e-9)
    shifted = logits + np.arange(len(labels))[:, None] * np.abs(logits).max() / 100
    assert TemperatureScaling.fit(labels, shifted).value == pytest.approx(value, rel=1e-9)
    again = TemperatureScaling.fit(labels, TemperatureScaling(value).apply(logits))
    assert again.value == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("right", [51, 75, 99])
def test_temperature_in_closed_form(right):
    labels = np.arange(100) >= right  # margin 8 everywhere, so T = 8 / logit(right / 100)
    logits = np.tile([8.0, 0.0], (100, 1))
    want = 8 / math.log(right / (100 - right))
    assert TemperatureScaling.fit(labels.astype(int), logits).value == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("margin", [1e-3, 1e-30, 1e-170, 1e-280])
def test_temperature_in_closed_form_at_any_scale(margin):
    """Rows with one small margin decide; a row with a margin of 1 that is right by far tells nothing."""
    logits = np.array([[margin, 0.0]] * 4 + [[1.0, 0.0]])
    value = TemperatureScaling.fit([0, 0, 0, 1, 0], logits).value
    assert value == pytest.approx(margin / math.log(3), rel=1e-12)


def test_temperature_of_nearly_separable_logits():
    labels = np.array([0] * 99 + [1])
    logits = np.tile([1.0, 0.0], (100, 1))
    logits[-1, 0] = 1e-9  # one mistake, by a hair
    value = TemperatureScaling.fit(labels, logits).value
    here = nll(labels, logits / value)
    assert value < 0.1
    assert here <= nll(labels, logits / (value * 1.001))
    assert here <= nll(labels, logits / (value * 0.999))


def test_temperature_without_an_optimum_says_why():
    with pytest.raises(InvalidInput, match=r"all 2 labels have the largest logit.*include mistakes"):
        TemperatureScaling.fit([0, 1], [[3.0, 1.0], [0.0, 0.5]])
    with pytest.raises(InvalidInput, match=r"labels do not go with larger logits.*row order"):
        TemperatureScaling.fit([1, 1, 0], [[3.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
    with pytest.raises(InvalidInput, match="labels do not go with larger logits"):
        TemperatureScaling.fit([0, 1], [[0.1, 0.7], [0.1, 0.7]])  # the optimum is beta = 0 exactly
    assert TemperatureScaling.fit([0, 1], [[5.0, 5.0], [0.1, 0.1]]).value == 1.0
    assert TemperatureScaling.fit([0, 0], [[5.0], [0.1]]).value == 1.0


def test_temperature_object():
    scaling = TemperatureScaling(2.0)
    np.testing.assert_array_equal(scaling.apply(np.float32([[2, 4]])), [[1.0, 2.0]])
    assert scaling.apply([[2, 4]]).dtype == np.float64
    with pytest.raises(FrozenInstanceError):
        scaling.value = 1.0
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidInput, match="value must be in"):
            TemperatureScaling(bad)
    with pytest.raises(InvalidInput, match="logits must be finite, got inf in row 0"):
        scaling.apply([[np.inf, 0.0]])


def test_temperature_on_real_logits(resnet110):
    from scipy.optimize import minimize_scalar

    labels, logits = resnet110["val_labels"], resnet110["val_logits"]
    scaling = TemperatureScaling.fit(labels, logits)

    def loss(beta):  # plain loops over classes, in float64
        z = logits.astype(np.float64) * beta
        top = z.max(axis=1)
        total = sum(np.exp(z[:, k] - top) for k in range(10))
        return float((top + np.log(total) - z[np.arange(5000), labels]).mean())

    best = minimize_scalar(loss, bounds=(0.01, 2), method="bounded", options={"xatol": 1e-12})
    assert scaling.value == pytest.approx(1 / best.x, rel=1e-6)
    y, before = resnet110["test_labels"], resnet110["test_logits"]
    after = scaling.apply(before)
    errors = []
    for z in (before, after):
        prob, correct = softmax(z).max(axis=1), z.argmax(axis=1) == y
        errors.append(slow_ece(correct, prob))
        assert ece(correct, prob) == pytest.approx(errors[-1], abs=1e-12)
    assert errors[1] < 0.3 * errors[0]
    assert nll(y, after) < 0.6 * nll(y, before)
    assert brier(y, after) < brier(y, before)
    assert accuracy(y, after) == accuracy(y, before) == 0.9356


# -------------------------------------------------------------------------------- Platt scaling


def platt_loss(parameters, correct, conf):
    """Platt's objective, written independently."""
    positive, negative = correct.sum(), (~correct).sum()
    targets = np.where(correct, (positive + 1) / (positive + 2), 1 / (negative + 2))
    f = parameters[0] * conf + parameters[1]
    return float(np.mean(np.logaddexp(0, f) - targets * f))


@st.composite
def scored(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(4, 80))
    correct = rng.random(n) < draw(st.floats(0.2, 0.95))
    assume(0 < correct.sum() < n)
    conf = rng.normal(size=n) + draw(st.floats(0.5, 6)) * correct  # up to separable
    if draw(st.booleans()):
        conf = conf.round()
    assume(np.ptp(conf) > 0)
    assume(np.cov(conf, correct)[0, 1] > 1e-3)
    return correct, conf


@settings(deadline=None, max_examples=50)
@given(scored())
@example((np.array([True, False, False, True]), np.array([4.0, 0.0, 1.0, 6.0])))
def test_platt_is_the_minimum(data):
    from scipy.optimize import minimize

    correct, conf = data
    scaling = PlattScaling.fit(correct, conf)
    best = None
    start = [1.0, 0.0]
    for _ in range(4):  # a simplex can collapse before it is there, so it is opened again where it stopped
        best = minimize(platt_loss, start, args=(correct, conf), method="Nelder-Mead",
                        options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 4000, "maxfev": 8000})  # fmt: skip
        start = best.x + 0.1
    found = platt_loss([scaling.slope, scaling.intercept], correct, conf)
    assert found <= best.fun + 1e-13
    assert [scaling.slope, scaling.intercept] == pytest.approx(best.x, abs=1e-4, rel=1e-4)
    p = scaling.apply(conf)  # both derivatives vanish
    positive, negative = correct.sum(), (~correct).sum()
    error = p - np.where(correct, (positive + 1) / (positive + 2), 1 / (negative + 2))
    assert abs(error.mean()) < 1e-12
    assert abs((error * conf).mean()) < 1e-11


@settings(deadline=None, max_examples=25)
@given(scored(), st.floats(1e-6, 1e6), st.floats(-100, 100))
def test_platt_follows_affine_maps_and_row_order(data, factor, shift):
    correct, conf = data
    p = PlattScaling.fit(correct, conf).apply(conf)
    moved = factor * (conf + shift)
    np.testing.assert_allclose(PlattScaling.fit(correct, moved).apply(moved), p, atol=1e-9)
    order = np.random.default_rng(0).permutation(len(conf))
    np.testing.assert_allclose(PlattScaling.fit(correct[order], conf[order]).apply(conf), p, atol=1e-10)
    assert (np.diff(p[np.argsort(conf, kind="stable")]) >= 0).all()  # the order is never turned


def test_platt_agrees_with_sklearn():
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    conf = rng.normal(size=2000) * 3
    correct = rng.random(2000) < 1 / (1 + np.exp(-0.8 * conf - 0.4))
    base = LogisticRegression().fit(conf[:, None], correct)
    theirs = CalibratedClassifierCV(FrozenEstimator(base), method="sigmoid").fit(conf[:, None], correct)
    scaling = PlattScaling.fit(correct, base.decision_function(conf[:, None]))
    ours = scaling.apply(base.decision_function(conf[:, None]))
    np.testing.assert_allclose(ours, theirs.predict_proba(conf[:, None])[:, 1], atol=1e-4)
    plain = PlattScaling.fit(correct, conf)  # smoothing vanishes with n: the truth is 0.8 and 0.4
    assert plain.slope == pytest.approx(0.8, abs=0.1)
    assert plain.intercept == pytest.approx(0.4, abs=0.15)


def test_platt_never_turns_the_order():
    correct, conf = np.array([1, 1, 1, 0, 0], bool), np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    with pytest.warns(TwofoldWarning, match=r"on these 5 rows higher confidence does not go with being correct"):
        scaling = PlattScaling.fit(correct, conf)
    base = (3 * 4 / 5 + 2 * 1 / 4) / 5  # mean of Platt's targets
    assert scaling.slope == 0.0
    np.testing.assert_allclose(scaling.apply([-np.inf, 0.0, np.inf]), base)
    assert platt_loss([0, scaling.intercept], correct, conf) <= min(
        platt_loss([0.001, b], correct, conf) for b in np.linspace(-3, 3, 601)
    )


def test_platt_without_information_gives_the_base_rate_silently():
    assert PlattScaling.fit([1, 1, 1, 0], [2.0] * 4).slope == 0.0
    everything = PlattScaling.fit([1] * 8, np.arange(8.0))
    assert everything.slope == 0.0
    np.testing.assert_allclose(everything.apply([0.0, 100.0]), 9 / 10)
    np.testing.assert_allclose(PlattScaling.fit([0] * 8, np.arange(8.0)).apply([0.0]), 1 / 10)
    np.testing.assert_allclose(PlattScaling.fit([1], [3.0]).apply([3.0]), 2 / 3)
    assert PlattScaling.fit([1, 0, 0, 1], [0.0, 0.0, 1.0, 1.0]).slope == 0.0


def test_platt_on_separable_and_extreme_scores_is_finite():
    correct = np.arange(100) >= 30
    for conf in (
        np.arange(100.0),
        np.where(correct, 1.0, 0.0),
        np.where(correct, 1e300, -1e300),
        1e-200 * correct,
    ):
        scaling = PlattScaling.fit(correct, conf)
        p = scaling.apply(conf)
        assert np.isfinite(p).all()
        assert p[correct].min() > 0.5 > p[~correct].max()
    two = PlattScaling.fit(correct, np.where(correct, 1.0, 0.0)).apply([1.0, 0.0])
    np.testing.assert_allclose(two, [71 / 72, 1 / 32])  # two values: each gets its target


def test_platt_and_infinite_confidences():
    correct = np.array([0, 0, 1, 0, 1, 1], bool)
    clipped = PlattScaling.fit(correct, [0.0, 0.0, 1.0, 2.0, 3.0, 3.0])
    infinite = PlattScaling.fit(correct, [-np.inf, 0.0, 1.0, 2.0, 3.0, np.inf])
    assert infinite == clipped
    np.testing.assert_array_equal(infinite.apply([-np.inf, np.inf]), [0.0, 1.0])
    with pytest.raises(InvalidInput, match="conf has no finite value"):
        PlattScaling.fit([True, False], [np.inf, -np.inf])


def test_platt_refuses_or_rejects_nan():
    correct, conf = [0, 1, 1, 0], [0.0, 2.0, 1.0, np.nan]
    with pytest.raises(InvalidInput, match="conf has NaN in row 3"):
        PlattScaling.fit(correct, conf)
    with pytest.warns(RejectedNaN):
        scaling = PlattScaling.fit(correct, conf, nan="reject")
    assert scaling == PlattScaling.fit(correct, [0.0, 2.0, 1.0, -np.inf])
    with pytest.warns(RejectedNaN):
        assert scaling.apply([np.nan], nan="reject").tolist() == [0.0]
    with pytest.raises(InvalidInput, match="conf has 3 rows but correct has 2"):
        PlattScaling.fit([1, 0], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInput, match="is empty"):
        PlattScaling.fit([], [])


def test_platt_object():
    with pytest.raises(InvalidInput, match="slope must be in"):
        PlattScaling(-1.0, 0.0)
    with pytest.raises(InvalidInput, match="intercept must be in"):
        PlattScaling(1.0, math.nan)
    with pytest.raises(FrozenInstanceError):
        PlattScaling(1.0, 0.0).slope = 2.0
    np.testing.assert_array_equal(PlattScaling(1e300, 0.0).apply([-1e300, 1e300]), [0.0, 1.0])


def test_platt_on_real_logits(resnet110):
    from scipy.optimize import minimize

    def judged_margins(split):
        z = resnet110[f"{split}_logits"]
        return z.argmax(axis=1) == resnet110[f"{split}_labels"], log_odds(z)

    correct, conf = judged_margins("val")
    scaling = PlattScaling.fit(correct, conf)
    best = minimize(platt_loss, [0.1, 0.0], args=(correct, conf), method="BFGS", options={"gtol": 1e-9})
    assert [scaling.slope, scaling.intercept] == pytest.approx(best.x, rel=1e-4)
    correct, conf = judged_margins("test")
    assert slow_ece(correct, scaling.apply(conf)) < 0.3 * slow_ece(correct, PlattScaling(1.0, 0.0).apply(conf))
