"""The primitives against SciPy, exact rational sums and arithmetic of many digits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from twofold import _math

LOGITS = np.random.default_rng(0).normal(size=(50, 7)) * 10


def exact_log_odds(row, chosen):
    """z_c - log(sum of exp of the others), with sixty digits."""
    with localcontext() as context:
        context.prec = 60
        z = [Decimal(float(v)) for v in row]
        rest = sum((v.exp() for k, v in enumerate(z) if k != chosen), Decimal(0))
        return float(z[chosen] - rest.ln())


def test_logsumexp_against_scipy():
    for axis in (0, 1, -1):
        want = special.logsumexp(LOGITS, axis=axis)
        np.testing.assert_allclose(_math.logsumexp(LOGITS, axis=axis), want, rtol=1e-14)
    cube = LOGITS.reshape(5, 10, 7)
    np.testing.assert_allclose(_math.logsumexp(cube, axis=0), special.logsumexp(cube, axis=0), rtol=1e-14)


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ([1000.0, 1000.0], 1000 + math.log(2)),
        ([-1000.0, -1000.0], -1000 + math.log(2)),
        ([-np.inf, 3.0], 3.0),
        ([-np.inf, -np.inf], -np.inf),
        ([np.inf, 0.0], np.inf),
        ([5.0], 5.0),
        ([1e308, 1e308], 1e308),
    ],
)
def test_logsumexp_at_the_ends(row, want):
    with np.errstate(over="ignore"):
        assert _math.logsumexp(np.array(row)) == pytest.approx(want)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_are_float64_and_the_input_stays(dtype):
    z = LOGITS.astype(dtype)
    before = z.copy()
    for function in (_math.logsumexp, _math.log_softmax, _math.softmax, _math.log_odds):
        assert function(z).dtype == np.float64
        np.testing.assert_array_equal(z, before)
    np.testing.assert_allclose(_math.log_odds(z), _math.log_odds(z.astype(np.float64)), rtol=0)


def test_softmax_against_scipy():
    np.testing.assert_allclose(_math.log_softmax(LOGITS), special.log_softmax(LOGITS, axis=1), rtol=1e-13)
    np.testing.assert_allclose(_math.softmax(LOGITS), special.softmax(LOGITS, axis=1), rtol=1e-13)
    np.testing.assert_allclose(_math.softmax(LOGITS).sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(_math.softmax(np.array([[-np.inf, 0.0]])), [[0.0, 1.0]])


def test_a_common_shift_changes_nothing_even_a_huge_one():
    z = np.round(LOGITS * 4) / 4  # exact in float64 after the shift
    for shift in (-1e6, 1e6, 2.0**40):
        np.testing.assert_array_equal(_math.log_softmax(z + shift), _math.log_softmax(z))
        np.testing.assert_array_equal(_math.log_odds(z + shift), _math.log_odds(z))


def test_log_odds_to_the_last_digits():
    rows = [*LOGITS, [40.0, 0.0, -3.0], [800.0, 0.0, 0.0], [0.0, 0.0, 0.0], [-5.0, -5.0, -400.0]]
    for row in rows:
        z = np.array([row])
        chosen = int(z.argmax())
        assert _math.log_odds(z)[0] == pytest.approx(exact_log_odds(row, chosen), rel=1e-14)
        for other in range(z.shape[1]):
            got = _math.log_odds(z, np.array([other]))[0]
            assert got == pytest.approx(exact_log_odds(row, other), rel=1e-13, abs=1e-13)


def test_log_odds_rank_like_the_maximum_softmax_where_that_still_can():
    odds, top = _math.log_odds(LOGITS), special.softmax(LOGITS, axis=1).max(axis=1)
    np.testing.assert_allclose(special.expit(odds), top, rtol=1e-13)
    margins = np.linspace(0, 300, 601)
    saturated = np.column_stack((margins, np.zeros((601, 2))))
    assert len(np.unique(_math.softmax(saturated)[:, 0])) < 100
    assert (np.diff(_math.log_odds(saturated)) > 0).all()


def test_log_odds_of_one_class_alone():
    assert _math.log_odds(np.array([[3.0], [-2.0]])).tolist() == [np.inf, np.inf]


def test_sigmoid():
    x = np.array([-1e308, -1000.0, -30.0, -1.0, -0.0, 0.0, 1.0, 30.0, 1000.0, 1e308, -np.inf, np.inf])
    np.testing.assert_allclose(_math.sigmoid(x), special.expit(x), rtol=1e-15)


def test_harmonic_numbers_are_exact_sums():
    total, exact = Fraction(0), [0.0]
    for k in range(1, 2001):
        total += Fraction(1, k)
        exact.append(float(total))
    np.testing.assert_allclose(_math.harmonic(np.arange(2001)), exact, rtol=4e-16, atol=1e-15)


def test_harmonic_numbers_of_real_and_large_arguments():
    x = np.concatenate((np.linspace(0, 70, 1401), [1e3, 1e6, 1e9, 1e15]))
    np.testing.assert_allclose(_math.harmonic(x), special.digamma(x + 1) + np.euler_gamma, rtol=1e-14, atol=1e-14)
    assert _math.harmonic(4).shape == ()
    assert float(_math.harmonic(4)) == pytest.approx(25 / 12, rel=1e-15)
    assert _math.harmonic(np.arange(6).reshape(2, 3)).shape == (2, 3)


def test_log_factorial():
    n = np.arange(0, 170)
    want = [math.log(math.factorial(int(k))) for k in n]
    np.testing.assert_allclose(_math.log_factorial(n), want, rtol=1e-14, atol=1e-14)
    assert float(_math.log_factorial(0.5)) == pytest.approx(math.log(math.sqrt(math.pi) / 2))


def test_unit_rows_and_squared_distances_against_loops():
    rng = np.random.default_rng(3)
    rows = np.vstack([rng.normal(size=(20, 4)) * 10.0 ** rng.integers(-3, 4, size=(20, 1)), np.zeros((1, 4))])
    for row, got in zip(rows, _math.unit(rows), strict=True):
        length = math.sqrt(sum(x * x for x in row))
        np.testing.assert_allclose(got, [x / length if length else 0.0 for x in row], rtol=1e-14)
    points, centres = rng.normal(size=(30, 4)) / 5, rng.normal(size=(6, 4)) / 5
    points[:6] = centres  # the distance to itself is 0, and never below
    got = _math.squared_distances(points, centres)
    want = [[math.fsum((x - c) ** 2 for x, c in zip(p, q, strict=True)) for q in centres] for p in points]
    np.testing.assert_allclose(got, want, atol=1e-14)
    assert (got >= 0.0).all()
