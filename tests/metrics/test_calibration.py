"""Calibration metrics against slow loops, scikit-learn, SciPy, closed forms and real CIFAR-10 logits."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_inputs import classified
from oracles import slow_ece, slow_gaps

from twofold._math import softmax
from twofold.errors import InvalidInput
from twofold.metrics import (
    PlattScaling,
    TemperatureScaling,
    _registry,
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


# -------------------------------------------------------------------------------- slow oracles


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
