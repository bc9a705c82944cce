"""AURC and its relatives against slow loops, the sheets' golden vectors, closed forms and real networks."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_inputs import judged, mixed
from oracles import (
    LOG,
    SELE,
    achievable,
    auroc,
    continuous,
    empirical,
    generalised_area,
    listing_one,
    mean_risk,
    ood_weights,
    over_random_tie_orders,
    over_tie_orders,
    running_risks,
    slow_softmax,
    trapezoid,
)
from scipy import integrate, special, stats

from twofold import metrics
from twofold.errors import InvalidInput, UndefinedMetric, UnfitData

ESTIMATORS = ("empirical", "log", "sele", "2sele", "self_excluded", "expected", "trapezoid", "continuous")
SLOW = {
    "empirical": empirical,
    "log": lambda loss, conf: over_tie_orders(LOG, loss, conf),
    "sele": lambda loss, conf: over_tie_orders(SELE, loss, conf),
    "2sele": lambda loss, conf: 2 * over_tie_orders(SELE, loss, conf),
    "self_excluded": lambda loss, conf: empirical(loss, conf) - sum(loss) / len(loss) ** 2,
    "expected": lambda loss, conf: over_tie_orders(mean_risk, loss, conf),
    "trapezoid": trapezoid,
    "continuous": continuous,
}


# -------------------------------------------------------------------------------- the eight estimators


@pytest.mark.parametrize("given_loss", [False, True], ids=["0/1", "loss"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_against_a_loop(estimator, given_loss):
    """Seven samples on three levels: every tie order is enumerated."""
    for seed in range(25):
        correct, conf, loss = judged(7, seed, levels=3)
        extra = {"loss": loss} if given_loss else {}
        want = SLOW[estimator]([*map(float, loss)] if given_loss else [*map(float, ~correct)], conf.tolist())
        assert metrics.aurc(correct, conf, estimator=estimator, **extra) == pytest.approx(want, abs=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.floats(0, 5)), min_size=1, max_size=6))
def test_every_estimator_on_any_input(samples):
    correct, conf, loss = zip(*samples, strict=True)
    for name, slow in SLOW.items():
        assert metrics.aurc(correct, conf, estimator=name) == pytest.approx(
            slow([float(not c) for c in correct], conf), abs=1e-11
        )
        assert metrics.aurc(correct, conf, loss=loss, estimator=name) == pytest.approx(slow(loss, conf), abs=1e-11)


@pytest.mark.parametrize(("estimator", "value"), [("expected", mean_risk), ("log", LOG), ("sele", SELE)])
def test_tied_samples_are_averaged_over_random_orders(estimator, value):
    correct, conf, _ = judged(60, 3, levels=5)
    mean, error = over_random_tie_orders(value, (~correct).astype(float), conf, np.random.default_rng(0))
    assert abs(metrics.aurc(correct, conf, estimator=estimator) - mean) < 4.5 * error
    assert error < 0.002  # the bound above can fail


def test_empirical_is_the_default_and_not_the_mean_over_orders():
    correct, conf = [True, False, True, False], [0.9, 0.8, 0.8, 0.1]
    assert metrics.aurc(correct, conf) == pytest.approx((0 + 1 / 3 + 1 / 3 + 1 / 2) / 4)
    assert metrics.aurc(correct, conf, estimator="expected") == pytest.approx(0.2708333, abs=5e-8)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_sums_of_given_losses_do_not_depend_on_the_order_of_rows(estimator):
    """Not even in the last digit: losses inside a tie are added in one fixed order."""
    correct, conf, loss = judged(500, 0, levels=4)
    found = set()
    for seed in range(8):
        order = np.random.default_rng(seed).permutation(500)
        found.add(metrics.aurc(correct[order], conf[order], loss=loss[order], estimator=estimator))
    assert len(found) == 1


@pytest.mark.parametrize("n", [1, 2, 50, 1000])
def test_identities_without_ties(n):
    """Section 8 of the estimator sheet: mean against trapezoid, and estimators that agree without ties."""
    correct, _, loss = judged(n, n, levels=2)
    conf = np.random.default_rng(n).permutation(n)
    value = {e: metrics.aurc(correct, conf, loss=loss, estimator=e) for e in ESTIMATORS}
    risks = running_risks(loss[np.argsort(-conf)])
    mean, first, last = math.fsum(risks) / n, risks[0], risks[-1]
    assert value["empirical"] == pytest.approx(mean, abs=1e-12)
    assert value["expected"] == pytest.approx(mean, abs=1e-12)
    assert value["trapezoid"] == pytest.approx(mean + (first - last) / (2 * n), abs=1e-12)
    # on [1/n, 1] only, as others integrate it
    inner = integrate.trapezoid(risks, np.arange(1, n + 1) / n)
    assert inner == pytest.approx(mean - (first + last) / (2 * n), abs=1e-12)
    assert value["trapezoid"] == pytest.approx(inner + first / n, abs=1e-12)
    assert value["self_excluded"] == pytest.approx(mean - loss.mean() / n, abs=1e-12)
    assert value["2sele"] == pytest.approx(2 * value["sele"], abs=1e-15)
    assert value["log"] <= value["empirical"] + 1e-15  # always below, says the sheet
    assert value["sele"] <= value["empirical"] + 1e-15


def test_twice_sele_is_no_upper_bound_from_four_samples_on():
    first = {n: [True] * 0 + [False] + [True] * (n - 1) for n in (3, 4)}
    for n, correct in first.items():  # one failure, the most confident sample
        conf = np.arange(n)[::-1]
        assert (metrics.aurc(correct, conf, estimator="2sele") < metrics.aurc(correct, conf)) == (n == 4)


def test_golden_vectors_of_the_fd_shifts_sheet():
    conf, loss = [0.9, 0.8, 0.8, 0.1], [0.0, 1.0, 0.0, 1.0]
    correct = [l == 0 for l in loss]
    assert 1000 * metrics.aurc(correct, conf, estimator="trapezoid") == pytest.approx(187.5)
    assert 1000 * metrics.aurc(correct, conf, estimator="expected") == pytest.approx(270.8333, abs=5e-5)
    assert 1000 * metrics.augrc(correct, conf) == pytest.approx(156.25)
    assert metrics.auroc(correct, conf) == 0.875

    correct, conf = np.tile([True, False], 50), np.tile([1.0, 0.0], 50)
    assert 1000 * metrics.aurc(correct, conf, estimator="trapezoid") == pytest.approx(125.0)
    assert 1000 * metrics.aurc(correct, conf, estimator="expected") == pytest.approx(155.9139, abs=5e-5)
    assert 1000 * listing_one((~correct).astype(float).tolist(), conf.tolist()) == pytest.approx(128.7121, abs=5e-5)


def test_the_trapezoid_rewards_ties():
    n, wrong = 10000, 1277
    correct = np.arange(n) < n - wrong
    two_levels, strict = correct.astype(float), -np.arange(n)
    assert 1000 * metrics.aurc(correct, two_levels, estimator="trapezoid") == pytest.approx(8.154, abs=5e-4)
    assert 1000 * metrics.aurc(correct, strict, estimator="trapezoid") == pytest.approx(8.5247, abs=5e-5)
    analytic = wrong / n + (1 - wrong / n) * math.log(1 - wrong / n)
    assert 1000 * analytic == pytest.approx(8.5247, abs=5e-5)
    assert metrics.eaurc(correct, two_levels, estimator="trapezoid") < -3e-4
    # the exact finite optimum, which makes a perfect ranking exactly 0
    assert 1000 * metrics.aurc(correct, strict) == pytest.approx(8.5311, abs=5e-5)
    assert metrics.eaurc(correct, strict) == pytest.approx(0.0, abs=1e-14)
    assert metrics.eaurc(correct, two_levels, estimator="expected") == pytest.approx(0.0, abs=1e-14)
    assert metrics.aurc(correct, strict, estimator="continuous") < metrics.aurc(correct, strict)


# -------------------------------------------------------------------------------- Listing 1 of FD-Shifts


def test_listing_one_goldens():
    assert 1000 * listing_one([1.0] * 100, [float(i) for i in range(100)]) == pytest.approx(990)
    assert 1000 * metrics.aurc([False] * 100, np.arange(100), estimator="trapezoid") == pytest.approx(1000)
    half = [1.0] * 50 + [0.0] * 50  # equal scores: a failure is the first to be removed
    assert 1000 * listing_one(half, [0.5] * 100) == pytest.approx(490.025, abs=5e-4)
    assert 1000 * metrics.aurc([l == 0 for l in half], [0.5] * 100, estimator="trapezoid") == pytest.approx(500)


@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
@pytest.mark.parametrize("n", [1, 2, 3, 30])
def test_the_estimator_listing_is_the_printed_code(n, levels):
    rng = np.random.default_rng(n + levels)
    for _ in range(20):
        conf, loss = rng.integers(levels, size=n).astype(float), rng.integers(2, size=n).astype(float)
        assert metrics.aurc(loss == 0, conf, estimator="listing") == pytest.approx(listing_one(loss, conf), abs=1e-12)
        losses = rng.random(n)
        found = metrics.aurc(np.ones(n), conf, loss=losses, estimator="listing")
        assert found == pytest.approx(listing_one(losses, conf), abs=1e-12)


def test_listing_has_no_weights_no_optimum_and_no_share():
    correct, conf, is_id = [True, False], [0.9, 0.1], [True, False]
    with pytest.raises(InvalidInput, match="leave ood_share out"):
        metrics.aurc(correct, conf, is_id=is_id, ood_share=0.2, estimator="listing")
    with pytest.raises(InvalidInput, match="no exact optimum"):
        metrics.eaurc(correct, conf, estimator="listing")
    with pytest.raises(InvalidInput, match='coverage="id"'):
        metrics.aurc(correct, conf, is_id=is_id, coverage="id", estimator="listing")


def test_listing_one_drops_the_most_confident_sample():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        loss, conf = rng.random(20), rng.permutation(20).astype(float)
        ours = metrics.aurc(np.ones(20), conf, loss=loss, estimator="trapezoid")
        listed = listing_one(loss.tolist(), conf.tolist())
        assert ours - listed == pytest.approx(loss[conf.argmax()] / 20, abs=1e-12)


def test_only_listing_one_depends_on_the_order_of_ties():
    correct, conf, _ = judged(40, 1, levels=4)
    listed, ours = set(), set()
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(40)
        listed.add(listing_one((~correct[order]).astype(float).tolist(), conf[order].tolist()))
        ours |= {metrics.aurc(correct[order], conf[order], estimator=e) for e in ESTIMATORS}
    assert len(listed) > 1
    assert len(ours) == len(ESTIMATORS)


# -------------------------------------------------------------------------------- ID and OOD


@pytest.mark.parametrize("share", [None, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("given_loss", [False, True], ids=["0/1", "loss"])
def test_both_coverage_conventions_against_loops(share, given_loss):
    for seed in range(20):
        correct, conf, is_id, loss = mixed(15, seed)
        extra = {"loss": loss} if given_loss else {}
        cost = (loss if given_loss else ~correct).astype(float).tolist()
        weight = ood_weights(is_id, share)
        want = empirical(cost, conf, weight)
        assert metrics.aurc(correct, conf, is_id=is_id, ood_share=share, **extra) == pytest.approx(want, abs=1e-12)
        want = empirical(cost, conf, weight, counted=is_id.astype(float).tolist())
        got = metrics.aurc(correct, conf, is_id=is_id, ood_share=share, coverage="id", **extra)
        assert got == pytest.approx(want, abs=1e-12)
        if not given_loss:
            assert metrics.aurc_id(correct, conf, is_id, ood_share=share) == got
        want = generalised_area(cost, conf, weight)
        assert metrics.augrc(correct, conf, is_id=is_id, ood_share=share, **extra) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ood_share_equals_copies_for_every_estimator(estimator):
    for seed, copies in itertools.product(range(10), (1, 3)):
        correct, conf, is_id, loss = mixed(20, seed)
        inside, outside = is_id.sum(), (~is_id).sum()
        share = copies * outside / (inside + copies * outside)
        times = np.where(is_id, 1, copies)
        for extra in ({}, {"loss": loss}):
            repeated = {k: np.repeat(v, times) for k, v in extra.items()}
            got = metrics.aurc(correct, conf, is_id=is_id, ood_share=share, estimator=estimator, **extra)
            want = metrics.aurc(np.repeat(correct, times), np.repeat(conf, times), estimator=estimator, **repeated)
            assert got == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ood_share_zero_for_every_estimator(estimator):
    correct, conf, is_id = [True, False, False, True], [0.9, 0.7, 0.95, 0.3], [True, True, False, True]
    got = metrics.aurc(correct, conf, is_id=is_id, ood_share=0.0, estimator=estimator)
    want = metrics.aurc([True, False, True], [0.9, 0.7, 0.3], estimator=estimator)
    assert got == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("metric", [metrics.aurc, metrics.eaurc, metrics.naurc, metrics.augrc])
def test_ood_share_zero_with_losses(metric):
    """The OOD sample has the least loss, so it leads the perfect ranking; it weighs nothing there either."""
    loss, conf, is_id = np.array([0.3, 0.9, 0.1, 0.6]), np.array([3, 4, 9, 1]), np.array([1, 1, 0, 1], bool)
    got = metric(is_id, conf, is_id=is_id, loss=loss, ood_share=0.0)
    assert got == pytest.approx(metric([1, 1, 1], conf[is_id], loss=loss[is_id]), abs=1e-12)


def test_losses_are_used_as_they_are_on_ood_rows_too():
    loss = [0.0, 0.25, 2.0]
    got = metrics.aurc([True, True, False], [3, 2, 1], is_id=[True, True, False], loss=loss)
    assert got == pytest.approx((0 + 0.125 + 0.75) / 3)
    assert metrics.aurc([True] * 3, [3, 2, 1], loss=[-1.0, -2.0, -3.0]) == pytest.approx(-1.5)


def test_id_coverage_is_refused_where_it_has_no_meaning():
    arrays = [True, False], [1.0, 0.0]
    for estimator in set(ESTIMATORS) - {"empirical"}:
        with pytest.raises(InvalidInput, match='coverage="id" is defined for empirical, grid and published'):
            metrics.aurc(*arrays, coverage="id", estimator=estimator)
    for estimator in ("grid", "published"):
        with pytest.raises(InvalidInput, match='pass coverage="id"'):
            metrics.aurc(*arrays, estimator=estimator)
        with pytest.raises(InvalidInput, match="leave loss out"):
            metrics.aurc(*arrays, coverage="id", estimator=estimator, loss=[0.0, 1.0])
        for metric in (metrics.eaurc, metrics.naurc):
            with pytest.raises(InvalidInput, match="no exact optimum"):
                metric(*arrays, coverage="id", estimator=estimator)
    for metric in (metrics.eaurc, metrics.naurc):
        with pytest.raises(InvalidInput, match="correct and wrong predictions only"):
            metric(*arrays, coverage="id", loss=[0.0, 1.0])
    with pytest.raises(InvalidInput, match="estimator: no choice 'empircal'; did you mean 'empirical'"):
        metrics.aurc(*arrays, estimator="empircal")
    with pytest.raises(InvalidInput, match="coverage: no choice 'ood'"):
        metrics.aurc(*arrays, coverage="ood")
    with pytest.raises(InvalidInput, match="at least one ID sample"):
        metrics.aurc([False, False], [1.0, 0.0], is_id=[False, False], coverage="id")


# -------------------------------------------------------------------------------- excess and normalised


def least_over_rankings(area, n):
    """The least value over every strict ranking of n samples."""
    return min(area(np.array(p, dtype=float)) for p in itertools.permutations(range(n)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_optimum_is_the_least_over_all_rankings(estimator):
    for seed in range(3):
        correct, conf, loss = judged(5, seed, levels=4)
        for extra in ({}, {"loss": loss}):

            def area(g, correct=correct, extra=extra):
                return metrics.aurc(correct, g, estimator=estimator, **extra)

            best = least_over_rankings(area, 5)
            got = metrics.eaurc(correct, conf, estimator=estimator, **extra)
            assert got == pytest.approx(area(conf) - best, abs=1e-12)


@pytest.mark.parametrize("share", [None, 0.2, 0.7])
@pytest.mark.parametrize(
    ("coverage", "estimator"), [("id", "empirical"), *(("all", e) for e in ESTIMATORS if e != "trapezoid")]
)
def test_the_optimum_with_ood_is_the_least_over_all_rankings(coverage, estimator, share):
    """Weights below and above 1; the trapezoid rewards coarse steps, so heavy samples, and is left out."""
    correct = np.array([True, True, False, False, False, False])
    is_id = np.array([True, True, True, True, False, False])
    conf = np.array([2.0, 0.0, 1.0, 1.0, 2.0, 0.5])
    extra = {"is_id": is_id, "ood_share": share, "coverage": coverage, "estimator": estimator}

    def area(g):
        return metrics.aurc(correct, g, **extra)

    best = least_over_rankings(area, 6)
    assert metrics.eaurc(correct, conf, **extra) == pytest.approx(area(conf) - best, abs=1e-12)


@pytest.mark.parametrize("share", [None, 0.2, 0.7])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_zero_one_losses_given_or_not_have_the_same_excess(share, estimator):
    for seed in range(5):
        correct, conf, is_id, _ = mixed(14, seed)
        plain = {"is_id": is_id, "ood_share": share, "estimator": estimator}
        got = metrics.eaurc(correct, conf, loss=(~correct).astype(float), **plain)
        assert got == pytest.approx(metrics.eaurc(correct, conf, **plain), abs=1e-12)


def test_naurc_is_zero_for_perfect_and_one_for_random():
    correct, conf, loss = judged(400, 0, levels=10**9)
    perfect = correct - np.arange(400) / 1000
    assert metrics.naurc(correct, perfect) == pytest.approx(0, abs=1e-12)
    assert metrics.naurc(correct, -loss, loss=loss) == pytest.approx(0, abs=1e-12)
    assert metrics.naurc(correct, np.zeros(400)) == pytest.approx(1, abs=1e-12)
    mean = np.mean([metrics.naurc(correct, np.random.default_rng(i).random(400)) for i in range(300)])
    assert mean == pytest.approx(1, abs=0.05)
    span = np.mean(~correct) - metrics.aurc(correct, perfect)
    assert metrics.naurc(correct, conf) == pytest.approx(metrics.eaurc(correct, conf) / span, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1.0, 1e9])
def test_naurc_does_not_depend_on_the_unit_of_the_loss(scale):
    correct, conf, loss = judged(30, 1, levels=8)
    want = metrics.naurc(correct, conf, loss=loss)
    assert metrics.naurc(correct, conf, loss=loss * scale) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_naurc_is_undefined_when_all_losses_are_equal(estimator):
    conf = np.random.default_rng(0).random(1000)
    for correct in (np.zeros(1000, bool), np.ones(1000, bool)):
        with pytest.raises(UndefinedMetric, match="all losses are equal"):
            metrics.naurc(correct, conf, estimator=estimator)
    with pytest.raises(UndefinedMetric, match="all losses are equal"):
        metrics.naurc(np.ones(1000), conf, loss=np.full(1000, 0.1), estimator=estimator)


# -------------------------------------------------------------------------------- AUGRC


def test_augrc_identities():
    for seed in range(30):
        correct, conf, loss = judged(25, seed, levels=6)
        a, e, n = correct.mean(), 1 - correct.mean(), 25
        value = metrics.augrc(correct, conf)
        if 0 < e < 1:
            area = auroc(correct, conf)
            assert value == pytest.approx((1 - area) * a * e + e**2 / 2, abs=1e-12)
            assert metrics.eaugrc(correct, conf) == pytest.approx((1 - area) * a * e, abs=1e-12)
        rank = stats.rankdata(-conf)  # mid-ranks, 1 = most confident
        for l, extra in (((~correct).astype(float), {}), (loss, {"loss": loss})):
            want = np.mean(l * (1 - (rank - 0.5) / n))
            assert metrics.augrc(correct, conf, **extra) == pytest.approx(want, abs=1e-12)


def test_augrc_equals_the_mean_over_tie_orders():
    correct, conf, _ = judged(7, 2, levels=3)

    def strict(ordered):
        return generalised_area(list(ordered), [-float(i) for i in range(len(ordered))])

    want = over_tie_orders(strict, (~correct).astype(float).tolist(), conf.tolist())
    assert metrics.augrc(correct, conf) == pytest.approx(want, abs=1e-12)


def test_the_achievable_area_is_that_of_the_hull():
    for seed in range(30):
        correct, conf, loss = judged(15, seed, levels=9)
        got = metrics.achievable_aurc(correct, conf)
        assert got == pytest.approx(achievable((~correct).astype(float).tolist(), conf), abs=1e-11)
        assert got <= metrics.aurc(correct, conf, estimator="continuous") + 1e-12
        got = metrics.achievable_aurc(correct, conf, loss=loss)
        assert got == pytest.approx(achievable(loss.tolist(), conf), abs=1e-11)
    perfect = np.arange(15)[::-1]
    rising = np.sort(loss)
    assert metrics.achievable_aurc(correct, perfect, loss=rising) == pytest.approx(
        metrics.aurc(correct, perfect, loss=rising, estimator="continuous"), abs=1e-12
    )


# -------------------------------------------------------------------------------- real networks


@pytest.fixture(scope="module")
def cifar10(data_dir):
    """Test logits and labels of seven CIFAR-10 networks, and what was measured on them elsewhere."""
    with np.load(data_dir / "cifar10_real_logits.npz", allow_pickle=False) as data:
        arrays = {k: data[k] for k in data.files}
    models = json.loads((data_dir / "cifar10_real_logits.json").read_text())["models"]
    return {m["key"]: (arrays[f"{m['key']}_test_logits"], arrays[f"{m['key']}_test_labels"], m) for m in models}


def test_aurc_of_seven_real_networks(cifar10):
    assert len(cifar10) == 7
    for logits, labels, known in cifar10.values():
        p = slow_softmax(logits)
        correct, conf = p.argmax(axis=1) == labels, p.max(axis=1)
        assert correct.mean() == pytest.approx(known["accuracy"])
        assert 1000 * metrics.aurc(correct, conf) == pytest.approx(known["aurc01_x1e3"], abs=5.1e-4)
        ce = -np.log(np.clip(p[np.arange(len(p)), labels], 1e-7, 1 - 1e-7))
        area = 1000 * metrics.aurc(correct, conf, loss=ce)
        assert area == pytest.approx(known["aurcCE_x1e3"], abs=5.1e-4)


# Section 4 of the estimator sheet: network, type of the MSP, distinct values, Eq. 10, mean over orders, range
TIES = [
    ("resnet110", "float32", 2913, "8.439", "8.412", "8.067", "10.472"),
    ("resnet110", "float16", 578, "15.276", "15.198", "6.07", "55.9"),
    ("resnet50_ce", "float16", 860, "18.020", "17.733", "15.2", "29.9"),
]


@pytest.mark.parametrize(("key", "dtype", "distinct", "grouped", "mean", "best", "worst"), TIES)
def test_rounded_confidences_of_real_networks(cifar10, key, dtype, distinct, grouped, mean, best, worst):
    logits, labels, _ = cifar10[key]
    if dtype == "float32":
        conf = special.softmax(logits, axis=1).max(axis=1)
    else:
        conf = slow_softmax(logits).max(axis=1).astype(dtype)
    correct = logits.argmax(axis=1) == labels
    assert conf.dtype == dtype
    assert len(np.unique(conf)) == distinct

    def after(order):
        rank = np.empty(len(order))
        rank[order] = np.arange(len(order))
        return metrics.aurc(correct, rank)

    found = {
        grouped: metrics.aurc(correct, conf),
        mean: metrics.aurc(correct, conf, estimator="expected"),
        best: after(np.lexsort((correct, conf))),
        worst: after(np.lexsort((~correct, conf))),
    }
    for printed, got in found.items():
        digits = len(printed.split(".")[1])
        assert 1000 * got == pytest.approx(float(printed), abs=0.51 * 10**-digits)


def test_log_odds_rank_like_the_softmax_and_do_not_saturate(cifar10):
    logits, labels, known = cifar10["resnet110"]
    z = np.sort(logits.astype(np.float64), axis=1)
    odds = (z[:, -1] - special.logsumexp(z[:, :-1], axis=1)).astype(np.float32)
    assert len(np.unique(odds)) == 9996
    correct = logits.argmax(axis=1) == labels
    assert 1000 * metrics.aurc(correct, odds) == pytest.approx(8.2687, abs=5.1e-5)
    assert 1000 * metrics.aurc(correct, odds) == pytest.approx(known["aurc01_x1e3"], abs=5.1e-4)


def stable_mean_risk(correct, conf):
    """Mean over coverages 1/n..1 of the error rate, score descending, ties in file order."""
    order = np.argsort(-np.asarray(conf, dtype=np.float64), kind="stable")
    return float(np.mean(np.cumsum(~correct[order]) / np.arange(1, len(order) + 1)))


def check_reference(correct, conf, area, aurc):
    """AUROC to four digits; AURC x 1000 to two, where Eq. 10 differs from file order by what ties allow."""
    assert metrics.auroc(correct, conf) == pytest.approx(area, abs=5.1e-5)
    assert 1000 * stable_mean_risk(correct, conf) == pytest.approx(aurc, abs=5.1e-3)
    n = len(correct)
    worst_last, best_first = (
        stable_mean_risk(correct[o], np.asarray(conf)[o]) for o in (np.argsort(correct), np.argsort(~correct))
    )
    assert best_first - 1e-12 <= metrics.aurc(correct, conf, estimator="expected") <= worst_last + 1e-12
    assert metrics.aurc(correct, -np.argsort(np.argsort(-conf, kind="stable"))) == pytest.approx(
        stable_mean_risk(correct, conf), abs=1e-9 / n
    )


@pytest.mark.parametrize(
    ("key", "area", "aurc"),
    [("densenet_bc_100", 0.8630, 70.88), ("wideresnet_16_4", 0.8620, 72.23)],
)
def test_reference_table_cifar100(data_dir, key, area, aurc):
    with np.load(data_dir / "probs_cifar100_test.npz", allow_pickle=False) as data:
        prob, labels = data[key], data["labels"]
    check_reference(prob.argmax(axis=1) == labels, prob.max(axis=1), area, aurc)


@pytest.mark.parametrize(
    ("key", "area", "aurc"), [("akamaster_resnet20", 0.9223, 10.57), ("akamaster_resnet56", 0.9262, 7.73)]
)
def test_reference_table_cifar10(data_dir, key, area, aurc):
    with np.load(data_dir / "logits_cifar10_test_ensemble.npz", allow_pickle=False) as data:
        logits, labels = data[key], data["labels"]
    check_reference(logits.argmax(axis=1) == labels, slow_softmax(logits).max(axis=1), area, aurc)


def test_reference_table_imagenet(data_dir):
    """Two of the fourteen networks have printed values; all must agree with a plain cumulative sum."""
    with np.load(data_dir / "imagenet_val_confidence_14models.npz", allow_pickle=False) as data:
        arrays = {k: data[k] for k in data.files}
    keys = sorted(k.removesuffix("__conf") for k in arrays if k.endswith("__conf"))
    assert len(keys) == 14
    for key in keys:
        correct, conf = arrays[f"{key}__pred"] == arrays["labels"], arrays[f"{key}__conf"]
        # a tie group is one threshold: its end on the plain cumulative sum
        order = np.argsort(-conf, kind="stable")
        risk = np.cumsum(~correct[order]) / np.arange(1, len(order) + 1)
        ends = np.searchsorted(-conf[order], -conf, side="right") - 1
        assert metrics.aurc(correct, conf) == pytest.approx(risk[ends].mean(), abs=1e-12)
    for key, area, aurc in (("tv_resnet101", 0.8676, 63.96), ("timm_efficientnet_b3a", 0.8320, 62.47)):
        check_reference(arrays[f"{key}__pred"] == arrays["labels"], arrays[f"{key}__conf"], area, aurc)


def test_a_set_without_id_samples_is_unfit_for_id_coverage():
    arrays = [False, False], [0.9, 0.1]
    for compute in (metrics.aurc_id, lambda *a: metrics.aurc(*a[:2], is_id=a[2], coverage="id")):
        with pytest.raises(UnfitData, match="at least one ID sample"):
            compute(*arrays, [False, False])


def test_the_published_grid_names_what_aurc_offers():
    arrays = {"correct": [True, False], "conf": [0.9, 0.1], "is_id": [True, False]}
    with pytest.raises(InvalidInput, match="published grid has no ood_share; leave it out") as caught:
        metrics.aurc(**arrays, coverage="id", estimator="published", ood_share=0.5)
    assert "exact" not in str(caught.value)
