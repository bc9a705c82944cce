"""Counting the samples whose maximum softmax is exactly 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_inputs import classified

from twofold._math import log_odds, softmax
from twofold.errors import InvalidInput
from twofold.metrics import (
    round_to_one,
)

BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}


@pytest.mark.parametrize(("dtype", "p"), BITS.items())
def test_the_threshold_is_p_log_two(dtype, p):
    found = round_to_one([[0.0, 0.0]], dtype=dtype)
    assert found.threshold == pytest.approx(p * math.log(2))
    assert round(found.threshold, 2) == {8: 5.55, 11: 7.62, 24: 16.64, 53: 36.74}[p]
    assert (found.rate, found.count, found.rows, found.distinct, found.dtype) == (0.0, 0, 1, 1, dtype)


@pytest.mark.parametrize(("dtype", "p"), BITS.items())
def test_two_classes_round_to_one_where_the_rule_says(dtype, p):
    margin = p * math.log(2)
    margins = margin + np.array([-1, -0.1, -0.02, 0.02, 0.1, 1])
    if dtype in ("float16", "bfloat16"):  # coarse logits: put them on the grid the type has
        margins = np.array([margin // 0.25 * 0.25, margin // 0.25 * 0.25 + 0.25])
    logits = np.column_stack((np.zeros_like(margins), -margins))
    for row, m in zip(logits, margins, strict=True):
        found = round_to_one([row], dtype=dtype)
        assert found.count == found.beyond == (m > margin)


@settings(deadline=None)
@given(classified(spread=20), st.sampled_from(["float16", "float32", "float64"]))
def test_round_to_one_equals_numpy_row_by_row(data, dtype):
    _, logits = data
    tops = []
    for row in logits.astype(dtype):
        e = np.exp((row - row.max()).astype(np.float64)).astype(dtype)
        tops.append((e / e.sum(dtype=dtype)).max())
    found = round_to_one(logits, dtype=dtype)
    assert found.count == sum(t == 1 for t in tops)
    assert found.distinct == len(set(map(float, tops)))
    assert found.rate == found.count / len(logits)
    order = np.random.default_rng(0).permutation(len(logits))
    assert round_to_one(logits[order], dtype=dtype) == found


def test_stored_probabilities_round_later_than_computed_ones():
    margins = np.linspace(5, 20, 2001)
    logits = np.column_stack((margins, np.zeros_like(margins)))
    exact = 1 / (1 + np.exp(-margins))
    for dtype in ("float16", "float32"):
        found = round_to_one(logits, dtype=dtype, compute="float64")
        assert found.count == (exact.astype(dtype) == 1).sum() == found.beyond
        assert found.distinct == len(np.unique(exact.astype(dtype)))
        assert found.threshold == pytest.approx(math.log(2 ** (BITS[dtype] + 1) - 1), rel=1e-12)
    wide = round_to_one(logits, dtype="float64", compute="float16")  # a wide type cannot bring back what was lost
    assert wide.count == round_to_one(logits, dtype="float16").count


def test_bfloat16_rounds_to_eight_bits_ties_to_even():
    from twofold.metrics.saturation import _in

    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -(1 + 2**-7), 0.0, -np.inf])
    want = [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -(1 + 2**-7), 0.0, -np.inf]
    np.testing.assert_array_equal(_in("bfloat16", x), want)


def test_round_to_one_edges_and_errors():
    assert round_to_one([[3.0], [4.0]]).rate == 1.0  # one class alone
    assert round_to_one([[6e4, -6e4]], dtype="float16").count == 1  # the shift overflows, and that is fine
    with pytest.raises(InvalidInput, match="logits in row 1 are too large for float16: 70000"):
        round_to_one([[1.0, 0.0], [70000.0, 0.0]], dtype="float16")
    with pytest.raises(InvalidInput, match="too large for bfloat16"):
        round_to_one([[3.4e38, 0.0]], dtype="bfloat16")
    with pytest.raises(InvalidInput, match="dtype: no choice 'float8'"):
        round_to_one([[1.0, 0.0]], dtype="float8")
    with pytest.raises(InvalidInput, match="compute: no choice"):
        round_to_one([[1.0, 0.0]], compute="half")
    with pytest.raises(InvalidInput, match="logits must be finite"):
        round_to_one([[np.nan, 0.0]])
    with pytest.raises(InvalidInput, match="is empty"):
        round_to_one(np.zeros((0, 3)))


def test_round_to_one_on_real_logits(resnet110):
    """Distinct values counted before and elsewhere (2,913; 578; 9,996 for the remedy), found again."""
    from scipy.special import softmax as scipy_softmax

    z = resnet110["test_logits"]
    single = round_to_one(z, dtype="float32")
    assert single.distinct == len(np.unique(scipy_softmax(z, axis=1).max(axis=1))) == 2913
    # 578 is the maximum softmax of full precision stored in half; a softmax run in half leaves fewer still
    half = round_to_one(z, dtype="float16", compute="float64")
    assert half.distinct == len(np.unique(softmax(z).max(axis=1).astype(np.float16))) == 578
    assert round_to_one(z, dtype="float16").distinct < 578
    assert round_to_one(z, dtype="float64").count == 0
    assert len(np.unique(log_odds(z).astype(np.float32))) == 9996
    for dtype in BITS:
        found = round_to_one(z, dtype=dtype)
        assert found.count >= found.beyond
