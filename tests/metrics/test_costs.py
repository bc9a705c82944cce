"""Areas with a cost per kind of failure, or with equal weight for every class."""

from __future__ import annotations

import math

import numpy as np
import pytest
from metric_inputs import judged, mixed
from oracles import (
    balanced_empirical,
    balanced_generalised,
    empirical,
    generalised_area,
    ood_weights,
)

from twofold import metrics
from twofold.errors import InvalidInput


def test_balanced_forms_against_loops():
    for seed in range(20):
        correct, conf, _ = judged(25, seed, levels=6)
        labels = np.random.default_rng(seed).choice([0, 3, 4, 9], 25, p=[0.6, 0.2, 0.1, 0.1])
        assert metrics.balanced_augrc(labels, correct, conf) == pytest.approx(
            balanced_generalised(labels, correct, conf), abs=1e-12
        )
        assert metrics.balanced_aurc(labels, correct, conf) == pytest.approx(
            balanced_empirical(labels, correct, conf), abs=1e-12
        )


def test_balanced_forms_with_classes_of_equal_size_and_with_one():
    correct, conf, _ = judged(24, 3, levels=6)
    labels = np.arange(24) % 3
    assert metrics.balanced_augrc(labels, correct, conf) == pytest.approx(metrics.augrc(correct, conf), abs=1e-12)
    one = np.full(24, 7)
    assert metrics.balanced_aurc(one, correct, conf) == pytest.approx(metrics.aurc(correct, conf), abs=1e-12)
    with pytest.raises(InvalidInput, match=r"labels must be in >= 0, got -1 in row 0"):
        metrics.balanced_aurc([-1, 0], [False, True], [0.1, 0.9])


def test_costs_of_ood_samples():
    for seed in range(10):
        correct, conf, is_id, _ = mixed(15, seed)
        for cost in (0.0, 0.5, 1.0, 3.0):
            loss = [float(not c) if k else cost for c, k in zip(correct, is_id, strict=True)]
            got = metrics.joint_aurc(correct, conf, is_id, ood_cost=cost)
            assert got == pytest.approx(empirical(loss, conf), abs=1e-12)
            got = metrics.joint_augrc(correct, conf, is_id, ood_cost=cost)
            assert got == pytest.approx(generalised_area(loss, conf), abs=1e-12)
            weight = ood_weights(is_id, 0.3)
            got = metrics.joint_aurc(correct, conf, is_id, ood_cost=cost, ood_share=0.3)
            assert got == pytest.approx(empirical(loss, conf, weight), abs=1e-12)
        assert metrics.joint_aurc(correct, conf, is_id) == pytest.approx(
            metrics.aurc(correct, conf, is_id=is_id), abs=1e-12
        )
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(InvalidInput, match="ood_cost must be in"):
            metrics.joint_aurc(correct, conf, is_id, ood_cost=bad)
