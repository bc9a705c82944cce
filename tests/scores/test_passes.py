"""Scores from several passes: slow forms, stored means equal kept passes, and the averaged prediction counts."""

import numpy as np
import pytest
import scipy.special
import scipy.stats

from twofold.outputs import Outputs, Passes
from twofold.scores.chain import scorer
from twofold.scores.registry import step_names

SCORES = [n for n in step_names("score") if n.startswith("mc_")]


def draws(m=5, n=12, c=4, seed=0):
    return np.random.default_rng(seed).normal(size=(m, n, c)) * 2


def slow(name, z):
    """One row of one score from (M, C) logits."""
    p = scipy.special.softmax(z, axis=1)
    mean = p.mean(axis=0)
    return {
        "mc_msp": np.log(mean.max() / (1 - mean.max())),
        "mc_mls": z.mean(axis=0).max(),
        "mc_entropy": -scipy.stats.entropy(mean),
        "mc_expected_entropy": -np.mean([scipy.stats.entropy(q) for q in p]),
        "mc_mutual_information": -np.mean([scipy.stats.entropy(q, mean) for q in p]),
        "mc_std": -np.mean([p[:, k].std() for k in range(p.shape[1])]),
    }[name]


@pytest.mark.parametrize("name", SCORES)
def test_against_slow_forms_and_stored_means(name):
    z = draws()
    kept = Outputs(z.mean(axis=0), passes=z)
    stored = Outputs(z.mean(axis=0), passes=Passes.from_logits(z))
    got = scorer(name).score(kept)
    assert got == pytest.approx([slow(name, z[:, i]) for i in range(12)], rel=1e-9)
    assert scorer(name).score(stored) == pytest.approx(got, rel=1e-12)
    assert scorer(name).judges == "passes"


def test_equal_passes_do_not_disagree():
    z = np.repeat(draws(1), 4, axis=0)
    same = Outputs(z[0], passes=z)
    assert scorer("mc_mutual_information").score(same) == pytest.approx(0.0, abs=1e-12)
    assert scorer("mc_std").score(same) == pytest.approx(0.0, abs=1e-8)
    assert scorer("mc_msp").score(same) == pytest.approx(scorer("msp").score(same), rel=1e-9)
    assert scorer("mc_entropy").score(same) == pytest.approx(scorer("entropy").score(same), rel=1e-9)


def test_average_makes_any_logit_score_one_of_the_mean_probabilities():
    z = draws()
    data = Outputs(z[0], passes=z)
    mean = scipy.special.softmax(z, axis=2).mean(axis=0)
    assert scorer("average|gini").score(data) == pytest.approx((mean**2).sum(axis=1) - 1)
    assert scorer("average|entropy").score(data) == pytest.approx(scorer("mc_entropy").score(data))
    assert scorer("average|gini").judges == "passes"
    assert scorer("gini").judges == "logits"


def test_the_accuracy_gained_by_averaging_counts():
    """Members that disagree: each is right two times in three, their average always."""
    labels = np.zeros(3, int)
    z = np.zeros((3, 3, 2))
    z[:, :, 0] = 2.0
    for member in range(3):
        z[member, member] = [0.0, 2.0]
    data = Outputs(z[0], labels, passes=z)
    assert data.correct.mean() == pytest.approx(2 / 3)
    assert data.averaged().correct.all()


def test_needs_passes():
    with pytest.raises(ValueError, match="mc_msp needs passes; these outputs have logits only"):
        scorer("mc_msp").score(Outputs(np.eye(2)))
