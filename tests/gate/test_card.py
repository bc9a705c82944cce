"""The report card's intervals and its verdict on the promise, from SciPy's quantiles."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binomtest

from twofold.gate import Gate
from twofold.gate.card import AcceptCounts, _judge_promise, risk_interval
from twofold.outputs import Outputs


def exact(count, n, miss):
    found = binomtest(count, n).proportion_ci(1 - miss, method="exact")
    return found.low, found.high


@pytest.mark.parametrize("seed", range(6))
def test_the_interval_of_the_risk_is_that_of_exact_binomials(seed):
    """At a share, three intervals that each miss with a third of 5 % are joined at their worst corners."""
    rng = np.random.default_rng(seed)
    ids, oods = (int(n) for n in rng.integers(30, 400, size=2))
    known, outside = int(rng.integers(10, ids)), int(rng.integers(0, oods))
    wrong = int(rng.integers(0, known))
    counts = AcceptCounts(ids, oods, known, outside, right=known - wrong)
    plain = risk_interval(counts, None)
    assert plain == pytest.approx(exact(wrong + outside, known + outside, 0.05))
    s = rng.uniform(0.05, 0.6)
    rho, alpha, q = exact(wrong, known, 0.05 / 3), exact(known, ids, 0.05 / 3), exact(outside, oods, 0.05 / 3)

    def risk(rho, alpha, q):
        return ((1 - s) * alpha * rho + s * q) / ((1 - s) * alpha + s * q)

    want = risk(rho[0], alpha[1], q[0]), risk(rho[1], alpha[0], q[1])
    assert risk_interval(counts, s) == pytest.approx(want)


def test_without_an_accepted_sample_nothing_is_known_of_the_risk():
    nothing = AcceptCounts(ids=50, oods=50, known=0, outside=0, right=0)
    assert risk_interval(nothing, None) == (0.0, 1.0)
    low, high = risk_interval(nothing, 0.3)
    assert low == 0.0
    assert high == 1.0


@pytest.fixture(scope="module")
def gate():
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.9
    learned = {"confidnet": rng.normal(size=400) + 2.0 * right}
    outputs = Outputs(np.tile([1.0, 0.0], (400, 1)), np.where(right, 0, 1), learned=learned)
    return Gate.fit(outputs, "confidnet", None, objective="risk", risk=0.1)


@pytest.mark.parametrize(
    ("objective", "interval", "accepted", "want"),
    [
        ("risk", (0.02, 0.1), 9, "yes"),  # the ends of intervals belong to them
        ("risk", (0.02, 0.11), 9, "inconclusive"),
        ("risk", (0.1, 0.3), 9, "inconclusive"),
        ("risk", (0.11, 0.3), 9, "no"),
        ("risk", (0.0, 0.05), 0, "inconclusive"),
        ("coverage", (0.1, 0.3), 9, "yes"),
        ("coverage", (0.05, 0.1), 9, "inconclusive"),
        ("coverage", (0.09, 0.3), 9, "inconclusive"),
        ("coverage", (0.02, 0.09), 9, "no"),
        ("f1", (0.0, 1.0), 9, "no promise"),
        ("cost", (0.0, 1.0), 9, "no promise"),
    ],
)
def test_a_promise_is_kept_broken_or_open(gate, objective, interval, accepted, want):
    promise = dataclasses.replace(gate.promise, objective=objective, risk=0.1, coverage=0.1)
    other = (0.4, 0.6)  # of what was not promised
    covered, risky = (interval, other) if objective == "coverage" else (other, interval)
    assert _judge_promise(promise, covered, risky, accepted) == want
