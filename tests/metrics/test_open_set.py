"""OSCR and the correct classification rate at a false-positive rate."""

from __future__ import annotations

import numpy as np
import pytest
from metric_inputs import pair
from oracles import (
    ccr_at_fpr,
    oscr,
)

from twofold import metrics
from twofold.errors import InvalidInput, UndefinedMetric


def test_oscr_and_ccr_against_loops():
    for seed in range(40):
        correct, conf, _, is_id = pair(20, seed, 3 + seed % 9)
        if is_id.all():
            continue
        assert metrics.oscr(correct, conf, is_id) == pytest.approx(oscr(correct, conf, is_id), abs=1e-12)
        for rate in (0.0, 0.1, 0.2, 0.25, 0.5, 0.75, 1.0):
            got = metrics.ccr_at_fpr(correct, conf, is_id, rate)
            assert got == pytest.approx(ccr_at_fpr(correct, conf, is_id, rate), abs=1e-12)


def test_oscr_is_the_accuracy_for_a_perfect_detector():
    correct, is_id = np.array([True, True, False, False]), np.array([True, True, True, False])
    assert metrics.oscr(correct, [3.0, 2.0, 1.0, 0.0], is_id) == 2 / 3
    assert metrics.ccr_at_fpr(correct, [3.0, 2.0, 1.0, 0.0], is_id, 0.0) == 2 / 3
    assert metrics.ccr_at_fpr(correct, [3.0, 2.0, 1.0, 4.0], is_id, 0.5) == 0.0
    assert metrics.ccr_at_fpr(correct, [3.0, 2.0, 1.0, 4.0], is_id, 1.0) == 2 / 3
    for metric in (metrics.oscr, metrics.ccr_at_fpr):
        for everyone in (True, False):
            with pytest.raises(UndefinedMetric, match="at least one ID and one OOD"):
                metric([False, False], [1.0, 0.0], [everyone, everyone])
    with pytest.raises(InvalidInput, match=r"fpr must be in \[0, 1\], got 2"):
        metrics.ccr_at_fpr(correct, [3.0, 2.0, 1.0, 0.0], is_id, 2)


def test_whole_numbers_of_ood_samples_meet_the_rate_exactly():
    is_id = np.array([True] * 10 + [False] * 10)
    conf = np.concatenate((np.arange(10) * 2.0, np.arange(10) * 2.0 + 1))
    falling = np.append(np.sort(conf[10:])[::-1], -np.inf)
    for k in range(11):  # k OOD samples may pass, the next one not
        assert metrics.ccr_at_fpr(is_id, conf, is_id, k / 10) == (conf[:10] > falling[k]).mean()
