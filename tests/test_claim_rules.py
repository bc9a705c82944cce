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
    from imagenet_order_claims import kendall

    a, b = np.random.default_rng(2).normal(size=(2, 9))
    assert kendall(a, b) == pytest.approx(kendalltau(a, b).statistic)
    twice = [0, 1, 2, 2]
    assert kendall(a[twice], b[twice]) == pytest.approx(
        np.mean([np.sign((a[i] - a[j]) * (b[i] - b[j])) for i, j in ((0, 1), (0, 2), (0, 2), (1, 2), (1, 2))])
    )


def test_estimates_of_batches_are_those_of_one_batch():
    from imagenet_sample_claims import estimate

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
    from imagenet_sample_claims import RISK, is_broken, observed

    generator = np.random.default_rng(4)
    conf = generator.random(200)
    correct = generator.random(200) < 0.6 + 0.4 * conf
    threshold = observed(correct, conf)
    within = [one for one in conf if np.mean(~correct[conf >= one]) <= RISK]
    assert threshold == min(within)
    assert not is_broken(threshold, correct, conf)
    assert is_broken(0.0, correct, conf)
    assert not is_broken(np.inf, correct, conf)


def test_the_third_best_score_is_taken_with_its_best_projection():
    from intervals import Gain
    from stratified_study import nth_best

    by_score = {
        "a": [Gain(0.1, 0.0, 0.2, 0.5), Gain(0.3, 0.2, 0.4, 0.1)],
        "b": [Gain(0.2, -0.1, 0.5, 0.4)],
        "c": [Gain(0.25, 0.1, 0.4, 0.2)],
        "d": [Gain(-0.3, -0.4, -0.2, 0.1)],
    }
    title, gain = nth_best(by_score, 3)
    assert title == "b"
    assert (gain.value, gain.low, gain.high, gain.p) == (0.2, -0.1, 0.4, 0.4)


def make_study(values):
    """A study of two networks and three sets, from AUROC by network, set and score."""
    from stratified_cells import Cell
    from stratified_study import Study

    cells = [Cell(*where, "none", value, 1 - value, 1 - value) for where, value in values.items()]
    groups = {
        ("cifar10-real", name): group for name, group in (("test", "id"), ("a", "near"), ("b", "mid"), ("c", "far"))
    }
    return Study(cells, groups)


def test_means_are_over_scores_of_a_set_first_and_regret_is_the_worst_distance():
    generator = np.random.default_rng(5)
    values = {}
    for network in ("cifar10-x", "cifar10-y"):
        for name in ("test", "a", "b", "c"):
            for score in ("MSR", "GEN", "CTM"):
                values[network, name, score] = float(generator.random())
    study = make_study(values)
    near = np.mean([values["cifar10-x", "a", score] for score in ("MSR", "GEN")])
    assert study.auroc("cifar10-x", "near", ["MSR", "GEN"]) == pytest.approx(near)
    gaps = []
    for score in ("MSR", "GEN", "CTM"):
        behind = []
        for name in ("test", "a", "b", "c"):
            best = max(values["cifar10-x", name, other] for other in ("MSR", "GEN", "CTM"))
            behind.append(best - values["cifar10-x", name, score])
        gaps.append(max(behind))
    assert study.regrets()[0] == pytest.approx(min(gaps))


def test_a_block_sets_correct_predictions_against_failures():
    from stratified_cells import judge_block

    correct = np.array([True, True, True, False, False])
    plain = {"test": np.array([0.9, 0.8, 0.3, 0.5, 0.1]), "svhn": np.array([0.2, 0.85])}
    projected = {"test": np.array([0.9, 0.8, 0.7, 0.5, 0.1]), "svhn": np.array([0.2, 0.85])}
    conf = {("MSR", "none"): plain, ("MSR", "global"): projected}
    first, second = judge_block("cifar10-x", "test", correct, conf)
    assert (first.auroc, second.auroc) == pytest.approx((5 / 6, 1.0))
    assert first.gain is None
    assert second.gain == pytest.approx(1 / 6)
    first, second = judge_block("cifar10-x", "svhn", correct, conf)
    assert first.auroc == pytest.approx(4 / 6)
    share = 3 / 5
    assert first.augrc == pytest.approx((1 - first.auroc) * share * (1 - share) + (1 - share) ** 2 / 2)


def test_a_sentence_is_the_first_of_its_docstring():
    from text_queries import first_sentence

    assert (
        first_sentence("Return the sum\nof two numbers. Both must be real.\n\nMore.") == "Return the sum of two numbers"
    )
    assert first_sentence("Too short.") == ""


def test_the_lines_on_the_stratified_study_follow_from_its_cells():
    from claims import read_claims
    from strata import IMAGENET
    from stratified_cells import CELLS, group_sets, read_cells
    from stratified_claims import claims_on_families, claims_on_projections, claims_on_strata
    from stratified_study import Study

    study = Study(read_cells(CELLS), group_sets(IMAGENET))
    written = read_claims(ROOT / "results" / "claims" / "stratified.csv")
    for decide in (claims_on_strata, claims_on_projections, claims_on_families):
        for claim in decide(study):
            assert claim in written


def test_committed_cells_are_within_their_ranges():
    from stratified_cells import CELLS, read_cells

    cells = read_cells(CELLS)
    assert len({cell.network for cell in cells}) == 5
    for cell in cells:
        assert 0 <= cell.auroc <= 1
        assert 0 <= cell.augrc <= cell.aurc <= 1
        if cell.gain is not None:
            assert cell.low <= cell.gain <= cell.high
