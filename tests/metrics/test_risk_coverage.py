"""The risk-coverage curve, its operating points and parts of its area."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from metric_inputs import judged, mixed
from oracles import (
    ood_weights,
    risk_at,
    thresholds,
)

from twofold import metrics
from twofold.errors import InvalidInput


def test_the_curve_is_what_each_threshold_does():
    for seed in range(10):
        correct, conf, is_id, loss = mixed(20, seed)
        weight = np.array(ood_weights(is_id, 0.25))
        for extra, share in itertools.product(({}, {"loss": loss}), (None, 0.25)):
            w = weight if share else np.ones(20)
            cost = extra.get("loss", (~correct).astype(float))
            for counts, part in (("all", np.ones(20, bool)), ("id", is_id)):
                curve = metrics.risk_coverage_curve(
                    correct, conf, is_id=is_id, ood_share=share, coverage=counts, **extra
                )
                assert curve.counts == counts
                assert curve.threshold.tolist() == thresholds(conf)
                for t, tau in enumerate(curve.threshold):
                    taken = conf >= tau
                    unit = w if counts == "all" else np.ones(20)
                    assert curve.coverage[t] == pytest.approx(unit[taken & part].sum() / unit[part].sum())
                    assert curve.risk[t] == pytest.approx((w * cost)[taken].sum() / w[taken].sum())
                    assert curve.generalised_risk[t] == pytest.approx((w * cost)[taken].sum() / w.sum())


def slow_risk_at_coverage(loss, conf, coverage):
    for tau in thresholds(conf):
        if sum(c >= tau for c in conf) / len(conf) >= coverage:
            return risk_at(loss, conf, tau)
    raise AssertionError


def slow_coverage_at_risk(loss, conf, limit):
    good = [sum(c >= t for c in conf) for t in thresholds(conf) if risk_at(loss, conf, t) <= limit]
    return max(good, default=0) / len(conf)


def test_operating_points_against_loops():
    for seed in range(20):
        correct, conf, loss = judged(20, seed, levels=8)
        for extra, cost in (({}, (~correct).astype(float).tolist()), ({"loss": loss}, loss.tolist())):
            for c in np.arange(21) / 20:
                got = metrics.risk_at_coverage(correct, conf, c, **extra)
                assert got == pytest.approx(slow_risk_at_coverage(cost, conf, c), abs=1e-12)
            for r in [0.0, 0.05, 0.1, 0.2, 1 / 3, 0.4, 0.5, 0.75, 1.0]:
                got = metrics.coverage_at_risk(correct, conf, r, **extra)
                assert got == pytest.approx(slow_coverage_at_risk(cost, conf, r), abs=1e-12)


@pytest.mark.parametrize("n", [10, 20, 50, 100, 1000])
def test_asked_coverages_are_met_exactly(n):
    """k/n as a float never asks for k + 1 samples."""
    correct, conf = np.arange(n) % 2 == 0, -np.arange(n)
    for k in range(1, n + 1):
        assert metrics.risk_at_coverage(correct, conf, k / n) == (k // 2) / k
        assert metrics.risk_at_coverage(correct, conf, 1 - (n - k) / n) == (k // 2) / k


def test_operating_points_at_the_ends():
    assert metrics.coverage_at_risk([True, True, False], [3, 2, 1], 1 / 3) == 1.0
    assert metrics.coverage_at_risk([True, True], [2, 1], 0.0) == 1.0
    assert metrics.coverage_at_risk([False, True], [2, 1], 0.0) == 0.0  # none: the risk comes down too late
    assert metrics.coverage_at_risk([False, True, True], [3, 2, 1], 0.4) == 1.0
    assert metrics.risk_at_coverage([False, True], [2, 1], 0.0) == 1.0
    assert metrics.risk_at_coverage([False, True], [2, 1], 1.0) == 0.5
    with pytest.raises(InvalidInput, match=r"coverage must be in \[0, 1\], got 1.5"):
        metrics.risk_at_coverage([True], [1.0], 1.5)
    with pytest.raises(InvalidInput, match="risk must be in"):
        metrics.coverage_at_risk([True], [1.0], math.nan)


def test_parts_of_the_area_add_up():
    for seed in range(10):
        correct, conf, is_id, loss = mixed(30, seed)
        cuts = np.concatenate(([0.0], np.sort(np.random.default_rng(seed).random(4)), [1.0]))
        for extra in ({}, {"loss": loss}, {"is_id": is_id, "ood_share": 0.3}):
            whole = metrics.aurc(correct, conf, **extra)
            parts = [metrics.partial_aurc(correct, conf, low=a, high=b, **extra) for a, b in itertools.pairwise(cuts)]
            assert sum(parts) == pytest.approx(whole, abs=1e-12)
            assert metrics.partial_aurc(correct, conf, **extra) == pytest.approx(whole, abs=1e-12)


def test_a_part_of_the_area_is_the_integral_of_the_step_curve():
    correct, conf, _ = judged(20, 0, levels=8)
    loss = (~correct).astype(float).tolist()
    middles = (np.arange(20000) + 0.5) / 20000
    step = np.array([slow_risk_at_coverage(loss, conf, u) for u in (np.arange(20) + 0.5) / 20])
    risk = step[(middles * 20).astype(int)]
    for low, high in ((0.0, 0.31), (0.12, 0.13), (0.5, 1.0)):
        want = risk[(middles > low) & (middles < high)].mean() * (high - low)
        assert metrics.partial_aurc(correct, conf, low=low, high=high) == pytest.approx(want, abs=1e-4)
    with pytest.raises(InvalidInput, match=r"low must be below high, got low=0.5 and high=0.5"):
        metrics.partial_aurc(correct, conf, low=0.5, high=0.5)
