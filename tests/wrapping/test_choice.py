"""The choice of scores: against a loop over all pairs, and said with the numbers that decided."""

import re

import numpy as np
import pytest

import twofold
from twofold import metrics
from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold.errors import Infeasible
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer
from twofold.wrapping import choice
from twofold.wrapping.choice import CANDIDATES, choose_scores

HEAD = Head(np.random.default_rng(0).normal(size=(4, 6)))


def draw(rows, seed, shift=0.0):
    """Features around the weights of their class; shifted ones belong to no class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, rows)
    features = rng.normal(size=(rows, 6)) + HEAD.weight[labels]
    if shift:
        features, labels = shift * rng.normal(size=(rows, 6)), np.full(rows, -1)
    return Outputs(HEAD.logits(features), labels, features, HEAD)


TRAIN, VAL, UNKNOWN = draw(300, 1), draw(200, 2), draw(80, 3, shift=2.0)


def test_with_unknown_inputs_the_best_pair_is_chosen():
    both = Outputs.concat([VAL, UNKNOWN])
    conf = {name: scorer(name).fit(TRAIN, val=VAL).score(both) for name in CANDIDATES}
    values = {}
    for first in CANDIDATES:
        for second in CANDIDATES:
            pair = frozenset((first, second))
            values[pair] = metrics.ds_f1(both.correct, conf[first], conf[second], both.is_id).value
    found = choose_scores(VAL, TRAIN, UNKNOWN)
    assert values[frozenset((found.id, found.ood))] == pytest.approx(max(values.values()))
    best, default = found.why
    assert "the best of 28 pairs by DS-F1" in best
    assert f"{max(values.values()):.5f}" in best
    assert "on 200 known and 80 unknown validation inputs" in best
    assert f"{values[frozenset((DEFAULT_ID, DEFAULT_OOD))]:.5f}" in default


def test_a_named_score_stays_and_the_other_is_chosen():
    found = choose_scores(VAL, TRAIN, UNKNOWN, id_score="margin")
    assert found.id == "margin"
    assert "the best of 7 pairs" in found.why[0]
    fitted = scorer("mds").fit(TRAIN)
    assert choose_scores(VAL, TRAIN, UNKNOWN, ood_score=fitted).ood is fitted
    assert choose_scores(VAL, TRAIN, UNKNOWN, "msp", "mls").why == ("both scores were asked for",)


def test_without_a_training_set_scores_that_learn_are_not_candidates():
    found = choose_scores(VAL, None, UNKNOWN)
    assert {found.id, found.ood} <= {"msp", "energy", "mls", "entropy", "gen"}


def test_unknown_rows_of_the_validation_set_count():
    mixed = Outputs.concat([VAL, UNKNOWN])
    assert choose_scores(mixed, TRAIN, None) == choose_scores(VAL, TRAIN, UNKNOWN)


def test_probabilities_have_no_scale():
    val = Outputs.from_probabilities(np.exp(-(VAL.logits**2)) / np.exp(-(VAL.logits**2)).sum(axis=1, keepdims=True))
    unknown = Outputs.from_probabilities(np.full((20, 4), 0.25))
    found = choose_scores(val.replace(labels=VAL.labels), None, unknown)
    assert {found.id, found.ood} <= {"msp", "entropy", "gen"}


def test_large_sets_are_sampled(monkeypatch):
    monkeypatch.setattr(choice, "JUDGED_ROWS", 50)
    monkeypatch.setattr(choice, "LEARNING_ROWS", 60)
    found = choose_scores(VAL, TRAIN, UNKNOWN)
    assert "on 50 known and 50 unknown validation inputs" in found.why[0]
    assert found == choose_scores(VAL, TRAIN, UNKNOWN)


def test_without_unknown_inputs_scores_are_compared_far_away():
    """A linear layer is surest far from everything; neighbours are not. Energy is counted by hand."""
    found = choose_scores(VAL, TRAIN, None)
    assert (found.id, found.ood) == (DEFAULT_ID, DEFAULT_OOD)  # knn sees directions only, and notices too few
    order = np.random.default_rng(0).permutation(300)
    rows = np.sort(order[:150])
    center = TRAIN.features[rows].mean(axis=0)
    moved = HEAD.logits(center + 10 * (TRAIN.features[rows] - center))
    threshold = np.sort(np.log(np.exp(TRAIN.logits[rows]).sum(axis=1)))[int(0.05 * 150)]
    accepted = np.mean([np.log(np.exp(row).sum()) >= threshold for row in moved])
    said = re.search(r"of 150 training rows .* energy accepts (\d+)% and knn (\d+)%", found.why[1])
    assert int(said[1]) == pytest.approx(100 * accepted, abs=0.5)
    assert int(said[1]) / 2 < int(said[2]) < int(said[1])
    aurc = metrics.aurc(VAL.correct, scorer("msp").score(VAL))
    assert f"{aurc:.4f}" in found.why[0]


@pytest.mark.parametrize(
    ("default", "nearest", "taken"), [(1.0, 0.0, "knn"), (1.0, 0.5, "knn"), (1.0, 0.94, "energy"), (0.0, 0.0, "energy")]
)
def test_neighbours_that_notice_little_keep_the_default(default, nearest, taken):
    ood, reason = choice.FarRows(200, default, nearest).choose()
    assert ood == taken
    assert f"energy accepts {default:.0%} and knn {nearest:.0%}" in reason


def test_a_guarantee_needs_rows_that_chose_no_score():
    wrapped = twofold.wrap(lambda x: x, train=TRAIN, val=VAL, unknown=UNKNOWN, risk=0.4, delta=0.2)
    assert sum(wrapped.gate.promise.known) + sum(wrapped.gate.promise.outside) <= 150 + 60
    assert "thresholds on the others" in str(wrapped)
    assert "on 50 known and 20 unknown validation inputs" in str(wrapped)
    named = twofold.wrap(lambda x: x, train=TRAIN, val=VAL, unknown=UNKNOWN, id="msp", ood="knn", risk=0.4, delta=0.2)
    assert "thresholds on the others" not in str(named)


@pytest.mark.slow
def test_the_guarantee_holds_although_the_scores_were_chosen():
    """The share of gates whose true risk exceeds the bound is at most delta."""
    big = Outputs.concat([draw(60_000, 100), draw(20_000, 101, shift=2.0)])
    broken = made = 0
    for seed in range(120):
        val, unknown = draw(600, 1000 + seed), draw(200, 2000 + seed, shift=2.0)
        try:
            wrapped = twofold.wrap(lambda x: x, train=TRAIN, val=val, unknown=unknown, risk=0.25, delta=0.2)
        except Infeasible:
            continue
        made += 1
        accepted = wrapped.gate.decide(big).verdict == "accept"
        broken += (~big.correct[accepted]).mean() > 0.25
    assert made > 60
    assert broken / made <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / made)
