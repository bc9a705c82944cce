"""Rules that decide claims, against slow loops and other libraries; committed lines against committed cells."""

import numpy as np
import pytest
from scipy.stats import binomtest, kendalltau, ttest_1samp

from test_claims import ROOT
from twofold import metrics
from twofold.errors import InvalidInput
from twofold.stats import bootstrap


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def confidences():
    """Confidences with ties: of trusted rows and of failures, by two scores."""
    generator = np.random.default_rng(0)
    return [generator.integers(0, 12, size=size) + shift for size, shift in ((40, 3), (25, 0), (40, 2), (25, 0))]


def test_placements_are_shares_of_pairs(confidences):
    from intervals import place

    trusted, failures = confidences[:2]
    found = place(trusted, failures)
    for row, value in zip(trusted, found.trusted, strict=True):
        assert value == pytest.approx(np.mean([(row > other) + 0.5 * (row == other) for other in failures]))
    for column, value in zip(failures, found.failures, strict=True):
        assert value == pytest.approx(np.mean([(other > column) + 0.5 * (other == column) for other in trusted]))
    truth = np.arange(65) < 40
    assert found.auroc == pytest.approx(metrics.auroc(truth, np.concatenate([trusted, failures])))


def test_the_error_of_a_difference_of_auroc_is_that_of_the_bootstrap():
    from intervals import delong, place

    generator = np.random.default_rng(1)
    trusted = generator.normal(1.0, 1.0, size=(400, 1)) + generator.normal(size=(400, 2))
    failures = generator.normal(size=(300, 1)) + generator.normal(size=(300, 2))
    gain = delong(*(place(trusted[:, i], failures[:, i]) for i in (0, 1)))
    truth = np.arange(700) < 400
    both = np.concatenate([trusted, failures])
    drawn = bootstrap(metrics.auroc, truth, both[:, 0], versus=(truth, both[:, 1]), stratify=truth, n=1000)
    assert gain.value == pytest.approx(drawn.value)
    assert (gain.high - gain.low) / (drawn.high - drawn.low) == pytest.approx(1, abs=0.1)


def test_two_unknown_sets_share_the_trusted_rows_only(confidences):
    from intervals import delong_other_failures, place

    trusted, near = confidences[:2]
    far = near - 4
    gain = delong_other_failures(place(trusted, far), place(trusted, near))
    assert gain.value > 0
    same = place(trusted, near)
    variance = 2 * same.failures.var(ddof=1) / len(near)  # trusted rows cancel out
    assert delong_other_failures(same, same).high == pytest.approx(1.959964 * np.sqrt(variance))


def test_intervals_over_networks_are_those_of_scipy():
    from intervals import student

    values = [0.3, -0.1, 0.4, 0.2, 0.25]
    gain, found = student(values), ttest_1samp(values, 0.0)
    assert (gain.low, gain.high) == pytest.approx(tuple(found.confidence_interval(0.95)))
    assert gain.p == pytest.approx(found.pvalue)
    wide = student(values, tests=10)
    assert (wide.low, wide.high) == pytest.approx(tuple(found.confidence_interval(0.995)))
    assert wide.p == pytest.approx(10 * found.pvalue)
    assert student([0.0, 0.0]).p == 1.0
    with pytest.raises(InvalidInput, match="at least two"):
        student([1.0])


@pytest.mark.parametrize(("count", "total"), [(0, 20), (3, 20), (20, 20)])
def test_the_interval_of_a_rate_is_exact(count, total):
    from intervals import exact_rate

    assert exact_rate(count, total) == pytest.approx(tuple(binomtest(count, total).proportion_ci(0.95, "exact")))


def test_replicates_give_the_interval_of_the_library(confidences):
    from intervals import of_replicates

    truth = np.arange(65) < 40
    arrays = [np.concatenate(pair) for pair in (confidences[:2], confidences[2:])]
    drawn = bootstrap(metrics.auroc, truth, arrays[0], versus=(truth, arrays[1]), n=200, stratify=truth)
    gain = of_replicates(drawn.value, drawn.replicates)
    assert (gain.low, gain.high, gain.p) == pytest.approx((drawn.low, drawn.high, drawn.p))


def test_orders_of_classifiers_agree_with_scipy_and_ignore_a_classifier_drawn_twice():
    from imagenet_claims import kendall

    a, b = np.random.default_rng(2).normal(size=(2, 9))
    assert kendall(a, b) == pytest.approx(kendalltau(a, b).statistic)
    twice = [0, 1, 2, 2]
    assert kendall(a[twice], b[twice]) == pytest.approx(
        np.mean([np.sign((a[i] - a[j]) * (b[i] - b[j])) for i, j in ((0, 1), (0, 2), (0, 2), (1, 2), (1, 2))])
    )


def test_estimates_of_batches_are_those_of_one_batch():
    from imagenet_claims import estimate

    generator = np.random.default_rng(3)
    conf, correct = generator.random(50), generator.random(50) < 0.7
    batches = np.array([generator.permutation(50)[:16] for _ in range(3)])
    found = estimate(correct, conf, batches)
    for row, value in zip(batches, found["empirical"], strict=True):
        assert value == pytest.approx(metrics.aurc(correct[row], conf[row]))
    for row, value in zip(batches, found["sele"], strict=True):
        ranks = [1 + sum(conf[other] < conf[one] for other in row) for one in row]
        assert value == pytest.approx(
            sum(rank * (not correct[one]) for rank, one in zip(ranks, row, strict=True)) / 16**2
        )


def test_an_observed_risk_within_the_limit_is_the_largest_coverage():
    from imagenet_claims import RISK, is_broken, observed

    generator = np.random.default_rng(4)
    conf = generator.random(200)
    correct = generator.random(200) < 0.6 + 0.4 * conf
    threshold = observed(correct, conf)
    within = [one for one in conf if np.mean(~correct[conf >= one]) <= RISK]
    assert threshold == min(within)
    assert not is_broken(threshold, correct, conf)
    assert is_broken(0.0, correct, conf)
    assert not is_broken(np.inf, correct, conf)
