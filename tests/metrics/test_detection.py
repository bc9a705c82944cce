"""Detection metrics against scikit-learn, slow loops, numeric integration and real networks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import aupr, autc, average_precision, detection_error, fpr_at_tpr
from scipy import special
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from twofold import metrics
from twofold.errors import InvalidInput, UndefinedMetric

BOTH = ("safe", "unsafe")
RATES = [0.05, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0]


def two_classes(n, seed, levels):
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < rng.uniform(0.1, 0.9)
    truth[:2] = True, False
    return truth, (rng.integers(0, levels, n) + truth * rng.integers(0, levels // 2 + 1, n)).astype(float)


SETS = [(n, seed, levels) for n in (2, 11, 200) for seed in range(4) for levels in (1, 3, 20, 10**6)]


@pytest.mark.parametrize(("n", "seed", "levels"), SETS)
def test_agrees_with_scikit_learn(n, seed, levels):
    truth, conf = two_classes(n, seed, levels)
    assert metrics.auroc(truth, conf) == pytest.approx(roc_auc_score(truth, conf), abs=1e-12)
    for positive, label, score in (("safe", truth, conf), ("unsafe", ~truth, -conf)):
        want = average_precision_score(label, score)
        got = metrics.average_precision(truth, conf, positive=positive == "safe")
        assert got == pytest.approx(want, abs=1e-12)
        precision, recall, _ = precision_recall_curve(label, score)
        assert metrics.aupr(truth, conf, positive=positive) == pytest.approx(auc(recall, precision), abs=1e-12)
        fpr, tpr, _ = roc_curve(label, score, drop_intermediate=False)
        for rate in RATES:
            want = fpr[np.flatnonzero(tpr >= rate)[0]]
            assert metrics.fpr_at_tpr(truth, conf, rate, positive=positive) == pytest.approx(want, abs=1e-12)
    fpr, tpr, _ = roc_curve(truth, conf, drop_intermediate=False)
    assert metrics.detection_error(truth, conf) == pytest.approx(((fpr + 1 - tpr) / 2).min(), abs=1e-12)
    assert metrics.average_precision_unsafe(truth, conf) == metrics.average_precision(truth, conf, positive=False)
    assert metrics.fpr95(truth, conf) == metrics.fpr_at_tpr(truth, conf)
    assert metrics.fpr95_unsafe(truth, conf) == metrics.fpr_at_tpr(truth, conf, positive="unsafe")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=1, max_size=14),
    st.sampled_from(RATES),
    st.sampled_from(BOTH),
)
def test_agrees_with_loops_on_any_input(samples, rate, positive):
    samples += [(True, 0), (False, 0)]
    truth, conf = zip(*samples, strict=True)
    assert metrics.fpr_at_tpr(truth, conf, rate, positive=positive) == fpr_at_tpr(truth, conf, rate, positive)
    assert metrics.detection_error(truth, conf) == pytest.approx(detection_error(truth, conf), abs=1e-12)
    want = average_precision(truth, conf, positive)
    assert metrics.average_precision(truth, conf, positive=positive == "safe") == pytest.approx(want, abs=1e-12)
    assert metrics.aupr(truth, conf, positive=positive) == pytest.approx(aupr(truth, conf, positive), abs=1e-12)


@pytest.mark.parametrize("positives", [10, 20, 40, 100, 1000, 10000])
def test_the_rate_is_met_exactly(positives):
    """k of P positives are a rate of k/P however it is written: no sample more, no sample less."""
    safe, unsafe = np.arange(positives) * 2.0, np.arange(positives) * 2.0 + 1
    truth = np.repeat([True, False], positives)
    conf = np.concatenate((safe, unsafe))
    for k in {1, positives // 10, positives // 2, 7 * positives // 10, 19 * positives // 20, positives}:
        accepted = (unsafe >= np.sort(safe)[-k]).sum()
        flagged = (safe <= np.sort(unsafe)[k - 1]).sum()
        for rate in (k / positives, float(np.round(k / positives, 6))):
            assert metrics.fpr_at_tpr(truth, conf, rate) == accepted / positives
            assert metrics.fpr_at_tpr(truth, conf, rate, positive="unsafe") == flagged / positives


def test_ninety_five_percent_of_twenty_samples_is_nineteen():
    truth = np.array([True] * 20 + [False] * 4)
    conf = np.array([*range(20, 0, -1), 1.5, 2.5, 2.5, 0.5])
    # nineteen safe samples have conf >= 2; of the unsafe ones the two at 2.5 are above that
    assert metrics.fpr95(truth, conf) == 2 / 4
    assert metrics.fpr_at_tpr(truth, conf, np.nextafter(0.95, 1)) == 3 / 4
    # all four unsafe ones must be caught for 95 %: conf <= 2.5 flags the safe ones at 1 and 2
    assert metrics.fpr95_unsafe(truth, conf) == 2 / 20
    assert metrics.fpr_at_tpr(truth, conf, 0.5, positive="unsafe") == 1 / 20


def test_collinear_points_are_not_skipped():
    """A ROC routine that drops points on a line, as scikit-learn's does by default, skips the exact one."""
    conf = np.repeat([3.0, 2.0, 1.0], [36, 2, 2])
    truth = np.tile([True, False], 20)
    assert metrics.fpr95(truth, conf) == 19 / 20
    fpr, tpr, _ = roc_curve(truth, conf, drop_intermediate=True)
    assert fpr[np.flatnonzero(tpr >= 0.95)[0]] == 1.0


def test_tied_scores_are_accepted_together():
    truth, conf = [True, True, False, False], [0.5, 0.5, 0.5, 0.5]
    for positive in BOTH:
        assert metrics.fpr_at_tpr(truth, conf, 0.01, positive=positive) == 1.0


@pytest.mark.parametrize("bad", [0.0, -0.5, 1.01, math.nan, "high", None])
def test_the_rate_must_be_a_rate(bad):
    with pytest.raises(InvalidInput, match="tpr must be"):
        metrics.fpr_at_tpr([True, False], [1.0, 0.0], bad)


def test_the_positive_class_must_be_named():
    arrays = [True, False], [1.0, 0.0]
    for metric in (metrics.fpr_at_tpr, metrics.aupr):
        with pytest.raises(InvalidInput, match="positive: no choice 'ood'"):
            metric(*arrays, positive="ood")
    with pytest.raises(InvalidInput, match="positive must"):
        metrics.average_precision(*arrays, positive="unsafe")


@pytest.mark.parametrize("name", metrics.names("detection"))
def test_one_class_is_undefined_and_says_which_is_missing(name):
    metric = metrics.info(name).function
    for truth, missing in (([True, True], "unsafe"), ([False, False], "safe")):
        with pytest.raises(UndefinedMetric) as caught:
            metric(truth, [0.1, 0.2])
        assert isinstance(caught.value, ValueError)
        assert missing in str(caught.value) or name == "autc"


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_autc_needs_finite_scores(bad):
    with pytest.raises(InvalidInput, match=f"autc needs finite confidences, got {bad}"):
        metrics.autc([True, False, True], [0.1, 0.5, bad])


def test_autc_is_the_integral_over_thresholds():
    for seed in range(10):
        truth, conf = two_classes(40, seed, 12)
        conf = conf**2 - 7
        got = metrics.autc(truth, conf)
        assert got == pytest.approx(autc(truth, conf), abs=1e-12)
        scaled = (conf - conf.min()) / (conf.max() - conf.min())
        tau = (np.arange(40000) + 0.5) / 40000
        curve = [((scaled[~truth] >= t).mean() + (scaled[truth] < t).mean()) / 2 for t in tau[::20] - tau[0] + tau[10]]
        assert got == pytest.approx(np.mean(curve), abs=2e-3)


def test_autc_survives_a_huge_range():
    """max - min overflows, the scores themselves do not."""
    assert metrics.autc([True, True, False], [1e308, 0.0, -1e308]) == pytest.approx(0.125)


# -------------------------------------------------------------------------------- real networks


@pytest.fixture(scope="module")
def resnet20(data_dir):
    with np.load(data_dir / "features_cifar10_resnet20.npz", allow_pickle=False) as data:
        return {k.removesuffix("_logits"): data[k].astype(np.float64) for k in data.files if k.endswith("_logits")}


SCORES = {
    "msp": lambda z: special.softmax(z, axis=1).max(axis=1),
    "energy": lambda z: special.logsumexp(z, axis=1),
}


@pytest.mark.parametrize(
    ("score", "outside", "want"),
    [
        ("msp", "ood_svhn", 0.8915),
        ("msp", "ood_textures", 0.8699),
        ("msp", "ood_tin", 0.8558),
        ("energy", "ood_svhn", 0.8792),
        ("energy", "ood_textures", 0.8929),
        ("energy", "ood_tin", 0.8907),
    ],
)
def test_reference_table_of_a_real_network(resnet20, score, outside, want):
    parts = [SCORES[score](resnet20[k]) for k in ("id_test", outside)]
    truth = np.repeat([True, False], [len(p) for p in parts])
    conf = np.concatenate(parts)
    assert metrics.auroc(truth, conf) == pytest.approx(want, abs=5.1e-5)
    assert metrics.auroc(truth, conf) == pytest.approx(roc_auc_score(truth, conf), abs=1e-12)
    # OpenOOD's FPR@95 by its own words: the smallest level that catches 95 % of the OOD samples
    inside, strange = parts
    level = np.sort(strange)[math.ceil(0.95 * len(strange)) - 1]
    assert metrics.fpr95_unsafe(truth, conf) == pytest.approx((inside <= level).mean(), abs=1e-12)
    level = np.sort(inside)[::-1][math.ceil(0.95 * len(inside)) - 1]
    assert metrics.fpr95(truth, conf) == pytest.approx((strange >= level).mean(), abs=1e-12)


def test_the_positive_class_of_average_precision_is_a_truth_value():
    with pytest.raises(InvalidInput, match=r"positive must be True .* or False .*, got 'unsafe'"):
        metrics.average_precision([True, False], [0.9, 0.1], positive="unsafe")
    for flag in (0, False, np.False_):
        assert metrics.average_precision([True, False], [0.9, 0.1], positive=flag) == 1.0


def test_an_error_advises_only_arguments_that_the_function_has():
    with pytest.raises(InvalidInput, match=r"conf has NaN in row 1 \(1 of 2 rows\); fix the score$"):
        metrics.autc([True, False], [0.9, np.nan])
    with pytest.raises(InvalidInput, match='or pass nan="reject"'):
        metrics.auroc([True, False], [0.9, np.nan])


def test_the_roc_curve_is_that_of_scikit_learn():
    from sklearn.metrics import roc_curve

    rng = np.random.default_rng(0)
    for n in (5, 40, 300):
        truth = rng.random(n) < 0.6
        truth[:2] = True, False
        conf = rng.integers(0, 20, n) / 7  # with ties
        fpr, tpr, threshold = roc_curve(truth, conf, drop_intermediate=False)
        ours = metrics.roc_curve(truth, conf)
        np.testing.assert_allclose(ours.fpr, fpr, atol=1e-15)
        np.testing.assert_allclose(ours.tpr, tpr, atol=1e-15)
        np.testing.assert_array_equal(ours.threshold, threshold)
        area = np.sum(np.diff(ours.fpr) * (ours.tpr[1:] + ours.tpr[:-1]) / 2)
        assert metrics.auroc(truth, conf) == pytest.approx(area, abs=1e-12)
    with pytest.raises(UndefinedMetric, match="roc_curve compares two classes"):
        metrics.roc_curve([True, True], [0.1, 0.2])
