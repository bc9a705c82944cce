"""Conventions of other libraries, agreement of passes, and prediction sets, against loops over their definitions."""

import itertools

import numpy as np
import pytest

from twofold import metrics
from twofold.errors import InvalidInput, UndefinedMetric


def sample(n, seed):
    rng = np.random.default_rng(seed)
    return rng.random(n) < 0.7, rng.permutation(n) / n


def area_of_torch_uncertainty(correct, conf):
    order = sorted(range(len(conf)), key=lambda i: -conf[i])
    risks, wrong = [], 0
    for k, i in enumerate(order, start=1):
        wrong += not correct[i]
        risks.append(wrong / k)
    n = len(conf)
    area = sum((a + b) / 2 / n for a, b in itertools.pairwise(risks))
    return area / (1 - 1 / n)


@pytest.mark.parametrize("n", [2, 7, 60])
def test_torch_uncertainty_against_a_loop(n):
    correct, conf = sample(n, seed=n)
    got = metrics.aurc(correct, conf, estimator="torch_uncertainty")
    assert got == pytest.approx(area_of_torch_uncertainty(correct, conf), abs=1e-12)
    best = area_of_torch_uncertainty(correct, correct.astype(float) + conf * 1e-9)
    assert metrics.eaurc(correct, conf, estimator="torch_uncertainty") == pytest.approx(got - best, abs=1e-12)


def test_fd_shifts_has_its_golden_value_and_its_optimum():
    correct, conf = [True, False, True, False], [0.9, 0.8, 0.8, 0.1]
    assert 1000 * metrics.aurc(correct, conf, estimator="fd_shifts") == pytest.approx(187.5)
    best = 0.5 + 0.5 * np.log(0.5)
    assert metrics.eaurc(correct, conf, estimator="fd_shifts") == pytest.approx(0.1875 - best)
    assert np.isfinite(metrics.eaurc([False, False], [0.1, 0.2], estimator="fd_shifts"))


def test_conventions_of_others_refuse_what_they_do_not_define():
    correct, conf = sample(9, seed=0)
    with pytest.raises(InvalidInput, match="neither loss nor ood_share"):
        metrics.eaurc(correct, conf, loss=conf, estimator="fd_shifts")
    is_id = np.arange(9) < 5
    with pytest.raises(InvalidInput, match="counts every sample once"):
        metrics.aurc(correct & is_id, conf, is_id=is_id, ood_share=0.2, estimator="torch_uncertainty")
    with pytest.raises(UndefinedMetric, match="one sample"):
        metrics.aurc([True], [0.5], estimator="torch_uncertainty")


def test_aurac_is_the_printed_convention_of_numpy_quantiles():
    for seed in range(5):
        correct, conf = sample(83, seed)
        uncertainty = -conf
        area = 0.0
        for q in np.linspace(0.1, 1, 20):
            area += correct[uncertainty <= np.quantile(uncertainty, q)].mean() * (0.9 / 19)
        assert metrics.aurac(correct, conf) == pytest.approx(area, abs=1e-12)


def test_graded_answers_are_losses():
    quality, conf = np.array([1.0, 0.5, 0.25]), np.array([0.9, 0.5, 0.7])
    got = metrics.auarc([True, True, True], conf, loss=1.0 - quality)
    assert got == pytest.approx((1.0 + (1.0 + 0.25) / 2 + (1.0 + 0.25 + 0.5) / 3) / 3)


def votes(seed=0, draws=5, n=20, classes=4):
    return np.random.default_rng(seed).normal(size=(draws, n, classes))


def test_variation_ratio_and_disagreement_against_loops():
    passes = votes()
    p = np.exp(passes) / np.exp(passes).sum(axis=2, keepdims=True)
    ratio, soft, apart = [], [], []
    for i in range(20):
        chosen = p[:, i].mean(axis=0).argmax()
        each = [int(row.argmax()) for row in passes[:, i]]
        ratio.append(1 - sum(k == chosen for k in each) / 5)
        soft.append(1 - p[:, i, chosen].mean())
        pairs = list(itertools.combinations(each, 2))
        apart.append(sum(a != b for a, b in pairs) / len(pairs))
    assert metrics.variation_ratio(passes) == pytest.approx(np.mean(ratio))
    assert metrics.variation_ratio(passes, probabilistic=True) == pytest.approx(np.mean(soft))
    assert metrics.disagreement(passes) == pytest.approx(np.mean(apart))
    with pytest.raises(InvalidInput, match="at least two"):
        metrics.disagreement(passes[:1])


def test_prediction_sets():
    sets = np.random.default_rng(0).random((30, 4)) < 0.6
    labels = np.arange(30) % 4
    assert metrics.conformal_coverage(labels, sets) == sum(sets[i, labels[i]] for i in range(30)) / 30
    assert metrics.conformal_set_size(sets) == pytest.approx(np.mean([row.sum() for row in sets]))
    with pytest.raises(InvalidInput, match="sets must be a table"):
        metrics.conformal_set_size(labels)
    with pytest.raises(InvalidInput):
        metrics.conformal_coverage(labels + 1, sets)


def test_smooth_error_of_one_probability_is_its_gap():
    assert metrics.smooth_ece([True] * 3 + [False], [0.5] * 4) == pytest.approx(0.25, abs=1e-9)
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    assert metrics.smooth_ece(rng.random(20_000) < p, p) < 0.02
