"""Claims on scores: intervals against SciPy, and what is read from pages and tables against hand-made ones."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.mark.parametrize("shift", [0.2, 1.0, -2.0])
def test_the_interval_over_units_is_that_of_the_t_test(shift):
    from drawn_gains import over_units

    values = shift + np.random.default_rng(0).normal(size=6)
    gain, test = over_units(values), ttest_1samp(values, 0.0)
    expected = test.confidence_interval(0.95)
    assert (gain.value, gain.low, gain.high) == pytest.approx((values.mean(), expected.low, expected.high), abs=5e-3)
    assert gain.p == pytest.approx(test.pvalue, abs=1e-3)


def test_a_margin_moves_the_interval_and_nothing_else():
    from drawn_gains import minus, negated, over_units

    gain = over_units([1.0, 2.0, 4.0])
    moved = minus(gain, 3.0)
    assert (moved.value, moved.low, moved.high) == pytest.approx((gain.value - 3, gain.low - 3, gain.high - 3))
    turned = negated(gain)
    assert (turned.low, turned.high) == pytest.approx((-gain.high, -gain.low))


def test_the_interval_of_the_best_of_many_is_wider_than_its_own():
    from drawn_gains import Gain, together

    rng = np.random.default_rng(1)
    draws = rng.normal(size=(30, 4000))
    gains = [Gain.of(0.5, 0.5 + own) for own in draws]
    alone = together(gains[:1], 0)
    assert (alone.low, alone.high) == pytest.approx((0.5 - 1.96, 0.5 + 1.96), abs=0.1)
    both = together(gains, 0)
    reach = np.quantile(np.abs(draws).max(axis=0), 0.95)
    assert (both.low, both.high) == pytest.approx((0.5 - reach, 0.5 + reach), abs=0.1)
    assert both.p == 1.0


def test_weights_of_a_draw_count_networks_times_shifts():
    from shift_claims import cell_draws

    cells = [("one", "a"), ("one", "b"), ("two", "a")]  # two has no b
    weights = cell_draws(cells)
    assert weights.sum(axis=1) == pytest.approx(np.ones(len(weights)))
    assert (weights >= 0).all()
    assert weights.mean(axis=0)[1] == pytest.approx(weights.mean(axis=0)[2], abs=0.02)


def test_errors_of_calibration_are_compared_with_scaled_msp_without_constants():
    from calibration_claims import calibration_errors

    page = """# Page

## Calibration of every score (FD-Shifts paper, Table 10)

### a network

| score | test | corruption/1 | corruption/5 |
|---|---:|---:|---:|
| react\\|energy | 0.90 | 3.00 | 8.00 |
| collapsed | 0.20 | 6.00 | 20.05 |
| msp | 0.50 | 2.00 | 9.00 |
| a constant: the accuracy on validation data | 0.20 | 6.00 | 20.00 |
| msp, no scaling | 4.00 | 9.00 | 30.00 |

## Next
"""
    more, hardest = calibration_errors(page)
    assert more == pytest.approx([0.4])
    assert hardest == 8.0


def test_the_largest_change_of_a_rank():
    from score_choice import Table
    from shift_claims import change_of_ranks

    keys = {"network": "n", "modality": "small images", "chosen_on": "", "judged_on": "a", "command": ""}
    before = keys | {"quantity": "auroc_ood", "msp": "0.9", "energy": "0.8", "knn": "0.7", "msp + energy": "1"}
    after = keys | {"quantity": "auroc_ood of correct predictions", "msp": "0.6", "energy": "0.8", "knn": "0.7"}
    table = Table([before, after | {"msp + energy": ""}], [])
    assert change_of_ranks(table)(before) == 2.0  # msp falls from the first place to the third
