"""Calibration metrics against slow loops, scikit-learn, SciPy, closed forms and real CIFAR-10 logits."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from twofold._math import log_odds, softmax
from twofold.errors import InvalidInput, RejectedNaN, TwofoldWarning
from twofold.metrics import _registry
from twofold.metrics.calibration import (
    PlattScaling,
    TemperatureScaling,
    accuracy,
    balanced_accuracy,
    brier,
    ece,
    mce,
    nll,
    reliability_diagram,
    round_to_one,
)

STRATEGIES = ("width", "mass")
ON_LOGITS = (nll, brier, accuracy, balanced_accuracy)


@pytest.fixture(scope="module")
def resnet110():
    """ResNet-110 on CIFAR-10: 5,000 validation and 10,000 test rows."""
    folder = os.environ.get("TWOFOLD_DATA")
    if not folder:
        pytest.skip("TWOFOLD_DATA is not set; it names the folder with logits_cifar10_resnet110.npz")
    path = Path(folder) / "logits_cifar10_resnet110.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in TWOFOLD_DATA")
    with np.load(path, allow_pickle=False) as data:
        return {key: data[key] for key in data.files}


# -------------------------------------------------------------------------------- slow oracles


def slow_bins(prob, bins, strategy):
    """Bin of every sample, by exact rational arithmetic on one sample at a time."""
    prob = [float(p) for p in prob]
    result = []
    for p in prob:
        if strategy == "width":
            b = 0
            while b < bins - 1 and p > (b + 1) / bins:
                b += 1
        else:
            below, equal = sum(q < p for q in prob), sum(q == p for q in prob)
            b = math.floor((below + Fraction(equal, 2)) / len(prob) * bins)
        result.append(b)
    return result


def slow_gaps(correct, prob, bins, strategy):
    """(count, |accuracy - mean probability|) of each bin that holds samples."""
    where = slow_bins(prob, bins, strategy)
    gaps = []
    for b in range(bins):
        members = [i for i, w in enumerate(where) if w == b]
        if members:
            acc = sum(bool(correct[i]) for i in members) / len(members)
            conf = math.fsum(float(prob[i]) for i in members) / len(members)
            gaps.append((len(members), abs(acc - conf)))
    return gaps


def slow_ece(correct, prob, bins=15, strategy="width"):
    return math.fsum(n * gap for n, gap in slow_gaps(correct, prob, bins, strategy)) / len(prob)


def slow_softmax(row):
    top = max(float(v) for v in row)
    terms = [math.exp(float(v) - top) for v in row]
    return [t / math.fsum(terms) for t in terms]


@st.composite
def judged(draw, least=1):
    """A few correct flags with probabilities, many of them tied or on a bin edge."""
    n = draw(st.integers(least, 30))
    grid = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1 / 3, 0.5, 0.6, 0.7, 0.75, 0.9, 1.0])
    prob = draw(st.lists(st.one_of(grid, st.floats(0, 1)), min_size=n, max_size=n))
    return np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))), np.array(prob)


@st.composite
def classified(draw, spread=30):
    """A few labels with logits; whole logits make ties."""
    n, c = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    value = st.one_of(st.integers(-3, 3).map(float), st.floats(-spread, spread, allow_subnormal=False))
    logits = draw(st.lists(st.lists(value, min_size=c, max_size=c), min_size=n, max_size=n))
    return np.array(draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n))), np.array(logits)


# -------------------------------------------------------------------------------- ece, mce, diagram


@settings(deadline=None)
@given(judged(), st.integers(1, 20), st.sampled_from(STRATEGIES))
def test_ece_and_mce_equal_a_slow_loop(data, bins, strategy):
    correct, prob = data
    gaps = slow_gaps(correct, prob, bins, strategy)
    assert ece(correct, prob, bins=bins, strategy=strategy) == pytest.approx(
        slow_ece(correct, prob, bins, strategy), abs=1e-12
    )
    assert mce(correct, prob, bins=bins, strategy=strategy) == pytest.approx(max(g for _, g in gaps), abs=1e-12)
    assert reliability_diagram(correct, prob, bins=bins, strategy=strategy).count.tolist() == [n for n, _ in gaps]


@settings(deadline=None)
@given(judged(), st.integers(1, 20), st.sampled_from(STRATEGIES), st.randoms(use_true_random=False))
def test_row_order_and_tie_order_change_no_bit(data, bins, strategy, random):
    correct, prob = data
    order = list(range(len(prob)))
    random.shuffle(order)
    for metric in (ece, mce):
        value = metric(correct, prob, bins=bins, strategy=strategy)
        assert metric(correct[order], prob[order], bins=bins, strategy=strategy) == value


@settings(deadline=None)
@given(judged(), st.integers(1, 20), st.sampled_from(STRATEGIES))
def test_diagram_holds_every_sample_between_its_edges(data, bins, strategy):
    correct, prob = data
    d = reliability_diagram(correct, prob, bins=bins, strategy=strategy)
    assert d.rows == len(prob) == d.count.sum()
    assert (d.count > 0).all()
    assert len(d.count) == len(d.prob) == len(d.accuracy) == len(d.lower) == len(d.upper) <= bins
    assert (d.lower <= d.prob + 1e-12).all()
    assert (d.prob <= d.upper + 1e-12).all()
    assert (d.upper[:-1] <= d.lower[1:]).all()
    assert (d.count * d.prob).sum() == pytest.approx(prob.sum())
    assert (d.count * d.accuracy).sum() == pytest.approx(correct.sum())
    assert 0 <= ece(correct, prob, bins=bins) <= mce(correct, prob, bins=bins) + 1e-15 <= 1 + 1e-15


@settings(deadline=None)
@given(judged())
def test_one_bin_is_the_distance_of_the_means(data):
    correct, prob = data
    for strategy in STRATEGIES:
        assert ece(correct, prob, bins=1, strategy=strategy) == pytest.approx(
            abs(correct.mean() - prob.mean()), abs=1e-12
        )


def test_width_bins_are_closed_on_the_right_and_hold_zero_and_one():
    prob = np.arange(11) / 10
    d = reliability_diagram(np.ones(11, bool), prob, bins=10)
    assert d.count.tolist() == [2] + [1] * 9  # 0 and 0.1 share the first bin, 1 closes the last
    np.testing.assert_array_equal(d.upper, prob[1:])
    np.testing.assert_array_equal(d.lower, prob[:-1])
    above = np.nextafter(prob[1:-1], 1)
    np.testing.assert_allclose(reliability_diagram(np.ones(9, bool), above, bins=10).lower, prob[1:-1])


def test_empty_bins_are_dropped():
    d = reliability_diagram([1, 0], [0.05, 0.95], bins=10)
    assert d.count.tolist() == [1, 1]
    np.testing.assert_allclose(d.lower, [0.0, 0.9])
    np.testing.assert_allclose(d.gap, [0.95, -0.95])


@pytest.mark.parametrize("n", [1, 2, 7, 15, 16, 29, 100, 101])
@pytest.mark.parametrize("bins", [1, 2, 3, 7, 15])
def test_mass_bins_without_ties_differ_by_one_at_most(n, bins):
    prob = np.random.default_rng(n).permutation(n) / n
    count = reliability_diagram(np.ones(n, bool), prob, bins=bins, strategy="mass").count
    assert len(count) == min(n, bins)
    assert count.max() - count.min() <= 1


def test_mass_bins_never_split_ties():
    prob = np.repeat([0.2, 0.5, 0.9], [3, 10, 3])
    correct = np.arange(16) % 2 == 0
    d = reliability_diagram(correct, prob, bins=4, strategy="mass")
    assert d.count.tolist() == [3, 10, 3]
    np.testing.assert_allclose(d.prob, [0.2, 0.5, 0.9])
    np.testing.assert_allclose(d.lower, [0, 0.35, 0.7])
    np.testing.assert_allclose(d.upper, [0.35, 0.7, 1])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_correct_and_all_wrong(strategy):
    prob = np.full(50, 0.9)
    assert ece(np.ones(50, bool), prob, strategy=strategy) == pytest.approx(0.1)  # fd-shifts prints 0.9
    assert mce(np.ones(50, bool), prob, strategy=strategy) == pytest.approx(0.1)
    assert ece(np.zeros(50, bool), prob, strategy=strategy) == pytest.approx(0.9)
    assert ece([True, False], [1.0, 0.0], strategy=strategy) == 0.0
    assert ece([False, True], [1.0, 0.0], strategy=strategy) == 1.0


@pytest.mark.parametrize("metric", [ece, mce])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_row(metric, strategy):
    assert metric([True], [0.25], strategy=strategy) == 0.75


def test_ece_agrees_with_sklearn_calibration_curve():
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(0)
    prob = rng.random(2000)  # continuous, so that no sample is on an edge, where the two conventions part
    correct = rng.random(2000) < prob**1.5
    for strategy, other in (("width", "uniform"), ("mass", "quantile")):
        acc, conf = calibration_curve(correct, prob, n_bins=10, strategy=other)
        d = reliability_diagram(correct, prob, bins=10, strategy=strategy)
        np.testing.assert_allclose(d.accuracy, acc)
        np.testing.assert_allclose(d.prob, conf)


@pytest.mark.parametrize("function", [ece, mce, reliability_diagram])
def test_bad_probabilities_are_named(function):
    with pytest.raises(InvalidInput, match=r"prob must be in \[0, 1\], got 1\.5 in row 2 \(1 of 3 rows\)"):
        function([1, 0, 1], [0.5, 0.2, 1.5])
    with pytest.raises(InvalidInput, match=r"got -0\.1 in row 0 \(2 of 3"):
        function([1, 0, 1], [-0.1, 0.2, np.inf])
    with pytest.raises(InvalidInput, match="got nan in row 1"):
        function([1, 0, 1], [0.5, np.nan, 0.5])
    with pytest.raises(InvalidInput, match="prob has 2 rows but correct has 3"):
        function([1, 0, 1], [0.5, 0.5])
    with pytest.raises(InvalidInput, match=r"correct must be booleans or 0/1, got 7"):
        function([1, 7, 1], [0.5, 0.5, 0.5])
    with pytest.raises(InvalidInput, match="correct is empty"):
        function([], [])
    with pytest.raises(InvalidInput, match="prob must be one-dimensional"):
        function([1], [[0.5]])
    with pytest.raises(InvalidInput, match="bins must be a whole number of at least 1, got 0"):
        function([1], [0.5], bins=0)
    with pytest.raises(InvalidInput, match="did you mean 'mass'"):
        function([1], [0.5], strategy="mas")


def test_inputs_are_not_written_to():
    correct, prob = np.array([True, False, True]), np.array([0.9, 0.1, 0.5])
    labels, logits = np.array([0, 1]), np.array([[3.0, 1.0], [1.0, 0.0]])
    for array in (correct, prob, labels, logits):
        array.flags.writeable = False
    for strategy in STRATEGIES:
        ece(correct, prob, strategy=strategy)
    for metric in ON_LOGITS:
        metric(labels, logits)
    TemperatureScaling.fit(labels, logits).apply(logits)
    PlattScaling.fit(correct, prob).apply(prob)
    round_to_one(logits)


# -------------------------------------------------------------------------------- nll, brier, accuracy


@settings(deadline=None)
@given(classified())
def test_proper_scores_equal_a_slow_loop(data):
    labels, logits = data
    probs = [slow_softmax(row) for row in logits]
    want = math.fsum(-math.log(p[y]) for p, y in zip(probs, labels, strict=True)) / len(labels)
    assert nll(labels, logits) == pytest.approx(want, rel=1e-9, abs=1e-12)
    want = math.fsum((v - (k == y)) ** 2 for p, y in zip(probs, labels, strict=True) for k, v in enumerate(p))
    assert brier(labels, logits) == pytest.approx(want / len(labels), abs=1e-12)
    assert 0 <= brier(labels, logits) <= 2 + 1e-12


@settings(deadline=None)
@given(classified())
def test_accuracies_equal_a_slow_loop(data):
    labels, logits = data
    hit = [next(k for k, v in enumerate(row) if v == max(row)) == y for row, y in zip(logits, labels, strict=True)]
    assert accuracy(labels, logits) == pytest.approx(sum(hit) / len(hit))
    recall = [np.mean([h for h, y in zip(hit, labels, strict=True) if y == c]) for c in sorted(set(labels.tolist()))]
    assert balanced_accuracy(labels, logits) == pytest.approx(np.mean(recall))


@settings(deadline=None)
@given(classified(), st.randoms(use_true_random=False))
def test_row_order_and_class_names_change_nothing(data, random):
    labels, logits = data
    order = list(range(len(labels)))
    random.shuffle(order)
    for metric in ON_LOGITS:
        assert metric(labels[order], logits[order]) == pytest.approx(metric(labels, logits), rel=1e-12, abs=1e-15)
    names = np.array(random.sample(range(logits.shape[1]), logits.shape[1]))
    for metric in (nll, brier):
        renamed = metric(names[labels], logits[:, np.argsort(names)])
        assert renamed == pytest.approx(metric(labels, logits), rel=1e-12, abs=1e-15)


def test_against_sklearn():
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss

    rng = np.random.default_rng(1)
    labels, logits = rng.integers(0, 4, 300), rng.normal(size=(300, 5)) * 2  # class 4 has no samples
    probs, predictions = softmax(logits), logits.argmax(axis=1)
    assert nll(labels, logits) == pytest.approx(log_loss(labels, probs, labels=range(5)))
    assert accuracy(labels, logits) == accuracy_score(labels, predictions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # predictions of a class without samples
        assert balanced_accuracy(labels, logits) == pytest.approx(balanced_accuracy_score(labels, predictions))


def test_nll_has_no_floor_and_no_ceiling():
    assert nll([0], [[0.0, 1000.0]]) == 1000.0  # log(softmax) would be infinite
    assert nll([1], [[0.0, 100.0]]) == pytest.approx(math.exp(-100), rel=1e-12, abs=0)  # log_softmax gives 0
    assert nll([0], [[1e16, 1e16]]) == pytest.approx(math.log(2))
    assert nll([0], [[-1e308, 1e308]]) > 1e308
    assert nll([0, 0], [[7.0], [9.0]]) == 0.0


def test_brier_reaches_its_bounds():
    assert brier([0], [[1000.0, 0.0]]) == 0.0
    assert brier([1], [[1000.0, 0.0]]) == 2.0
    assert brier([0], [[1e16, 1e16]]) == pytest.approx(0.5)
    assert brier([2], [[0.0] * 4]) == pytest.approx(0.75)


def test_ties_go_to_the_first_class():
    assert accuracy([0, 1], [[5.0, 5.0], [5.0, 5.0]]) == 0.5
    assert accuracy([0], [[5.0, 5.0]]) == balanced_accuracy([0], [[5.0, 5.0]]) == 1.0


@pytest.mark.parametrize("function", [*ON_LOGITS, TemperatureScaling.fit])
def test_bad_labels_and_logits_are_named(function):
    z = np.array([[1.0, 2.0], [3.0, 0.0], [1.0, 0.0]])
    with pytest.raises(
        InvalidInput, match=r"-1 \(no class of this model\) in row 1 \(1 of 3 rows\).*drop the OOD rows"
    ):
        function([0, -1, 1], z)
    with pytest.raises(InvalidInput, match=r"got 2 in row 2"):
        function([0, 1, 2], z)
    with pytest.raises(InvalidInput, match="integer class labels, got booleans"):
        function([True, False, True], z)
    with pytest.raises(InvalidInput, match="logits has 3 rows but labels has 2"):
        function([0, 1], z)
    with pytest.raises(InvalidInput, match="logits must be finite, got nan in row 1"):
        function([0, 1, 1], [[0.0, 1.0], [np.nan, 0.0], [1.0, 0.0]])
    with pytest.raises(InvalidInput, match="logits must be two-dimensional"):
        function([0, 1], [0.5, 0.5])
    with pytest.raises(InvalidInput, match="is empty"):
        function([], np.zeros((0, 3)))


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
    """Platt's objective, written anew."""
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
def test_platt_is_the_minimum(data):
    from scipy.optimize import minimize

    correct, conf = data
    scaling = PlattScaling.fit(correct, conf)
    best = minimize(platt_loss, [1.0, 0.0], args=(correct, conf), method="Nelder-Mead",
                    options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 4000, "maxfev": 8000})  # fmt: skip
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


# -------------------------------------------------------------------------------- round to one

BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}


@pytest.mark.parametrize(("dtype", "p"), BITS.items())
def test_the_threshold_is_p_log_two(dtype, p):
    found = round_to_one([[0.0, 0.0]], dtype=dtype)
    assert found.threshold == pytest.approx(p * math.log(2))
    assert round(found.threshold, 2) == {8: 5.55, 11: 7.62, 24: 16.64, 53: 36.74}[p]
    assert (found.rate, found.count, found.rows, found.distinct, found.dtype) == (0.0, 0, 1, 1, dtype)


@pytest.mark.parametrize(("dtype", "p"), BITS.items())
def test_two_classes_round_to_one_where_the_rule_says(dtype, p):
    margin = p * math.log(2)
    margins = margin + np.array([-1, -0.1, -0.02, 0.02, 0.1, 1])
    if dtype in ("float16", "bfloat16"):  # coarse logits: put them on the grid the type has
        margins = np.array([margin // 0.25 * 0.25, margin // 0.25 * 0.25 + 0.25])
    logits = np.column_stack((np.zeros_like(margins), -margins))
    for row, m in zip(logits, margins, strict=True):
        found = round_to_one([row], dtype=dtype)
        assert found.count == found.beyond == (m > margin)


@settings(deadline=None)
@given(classified(spread=20), st.sampled_from(["float16", "float32", "float64"]))
def test_round_to_one_equals_numpy_row_by_row(data, dtype):
    _, logits = data
    tops = []
    for row in logits.astype(dtype):
        e = np.exp((row - row.max()).astype(np.float64)).astype(dtype)
        tops.append((e / e.sum(dtype=dtype)).max())
    found = round_to_one(logits, dtype=dtype)
    assert found.count == sum(t == 1 for t in tops)
    assert found.distinct == len(set(map(float, tops)))
    assert found.rate == found.count / len(logits)
    order = np.random.default_rng(0).permutation(len(logits))
    assert round_to_one(logits[order], dtype=dtype) == found


def test_stored_probabilities_round_later_than_computed_ones():
    margins = np.linspace(5, 20, 2001)
    logits = np.column_stack((margins, np.zeros_like(margins)))
    exact = 1 / (1 + np.exp(-margins))
    for dtype in ("float16", "float32"):
        found = round_to_one(logits, dtype=dtype, compute="float64")
        assert found.count == (exact.astype(dtype) == 1).sum() == found.beyond
        assert found.distinct == len(np.unique(exact.astype(dtype)))
        assert found.threshold == pytest.approx(math.log(2 ** (BITS[dtype] + 1) - 1), rel=1e-12)
    wide = round_to_one(logits, dtype="float64", compute="float16")  # a wide type cannot bring back what was lost
    assert wide.count == round_to_one(logits, dtype="float16").count


def test_bfloat16_rounds_to_eight_bits_ties_to_even():
    from twofold.metrics.calibration import _in

    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -(1 + 2**-7), 0.0, -np.inf])
    want = [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -(1 + 2**-7), 0.0, -np.inf]
    np.testing.assert_array_equal(_in("bfloat16", x), want)


def test_round_to_one_edges_and_errors():
    assert round_to_one([[3.0], [4.0]]).rate == 1.0  # one class alone
    assert round_to_one([[6e4, -6e4]], dtype="float16").count == 1  # the shift overflows, and that is fine
    with pytest.raises(InvalidInput, match="logits in row 1 are too large for float16: 70000"):
        round_to_one([[1.0, 0.0], [70000.0, 0.0]], dtype="float16")
    with pytest.raises(InvalidInput, match="too large for bfloat16"):
        round_to_one([[3.4e38, 0.0]], dtype="bfloat16")
    with pytest.raises(InvalidInput, match="dtype: no choice 'float8'"):
        round_to_one([[1.0, 0.0]], dtype="float8")
    with pytest.raises(InvalidInput, match="compute: no choice"):
        round_to_one([[1.0, 0.0]], compute="half")
    with pytest.raises(InvalidInput, match="logits must be finite"):
        round_to_one([[np.nan, 0.0]])
    with pytest.raises(InvalidInput, match="is empty"):
        round_to_one(np.zeros((0, 3)))


def test_round_to_one_on_real_logits(resnet110):
    """Distinct values counted before and elsewhere (2,913; 578; 9,996 for the remedy), found again."""
    from scipy.special import softmax as scipy_softmax

    z = resnet110["test_logits"]
    single = round_to_one(z, dtype="float32")
    assert single.distinct == len(np.unique(scipy_softmax(z, axis=1).max(axis=1))) == 2913
    # 578 is the maximum softmax of full precision stored in half; a softmax run in half leaves fewer still
    half = round_to_one(z, dtype="float16", compute="float64")
    assert half.distinct == len(np.unique(softmax(z).max(axis=1).astype(np.float16))) == 578
    assert round_to_one(z, dtype="float16").distinct < 578
    assert round_to_one(z, dtype="float64").count == 0
    assert len(np.unique(log_odds(z).astype(np.float32))) == 9996
    for dtype in BITS:
        found = round_to_one(z, dtype=dtype)
        assert found.count >= found.beyond


# -------------------------------------------------------------------------------- the table


@pytest.mark.parametrize("name", ["ece", "mce", "nll", "brier", "accuracy", "balanced_accuracy"])
def test_registered(name):
    info = _registry.info(name)
    assert info.task == "calibration"
    assert info.arrays in (("correct", "prob"), ("labels", "logits"))
    assert info.better == ("higher" if "accuracy" in name else "lower")
    assert "\n" not in info.formula
    if info.arrays == ("labels", "logits"):
        good, bad = (
            info.value([0, 1], [[99.0, 0.0], [0.0, 99.0]]),
            info.value([1, 0], [[99.0, 0.0], [0.0, 99.0]]),
        )
    else:
        good, bad = info.value([True, False], [1.0, 0.0]), info.value([True, False], [0.0, 1.0])
    low, high = info.bounds
    best, worst = (high, low) if info.better == "higher" else (low, high)
    assert good == pytest.approx(best, abs=1e-12)
    assert bad == (pytest.approx(worst) if math.isfinite(worst) else 99.0)
