"""Pairs of scores: the best is found, ties are said, and so is what the numbers do not promise."""

import numpy as np
import pytest

import twofold
from twofold import metrics
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer
from twofold.scores.pairs import rank_pairs, recommend

W = np.random.default_rng(5).normal(size=(3, 8))


def world(n=150, seed=0, shift=0.0):
    """A classifier that is right most of the time; shifted inputs belong to no class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    features = np.abs(rng.normal(size=(n, 8)) + 1.5 * np.maximum(W[labels], 0) + shift * rng.normal(size=(n, 8)))
    head = Head(W)
    truth = np.full(n, -1) if shift else labels
    return Outputs(head.logits(features), truth, features, head)


TRAIN, VAL, OOD = world(300), world(seed=1), world(seed=2, shift=2.0)


@pytest.fixture
def run(tmp_path):
    made = twofold.Run.create(tmp_path / "run", model="a test")
    made.add("train", TRAIN, role="train")
    made.add("val", VAL, role="val")
    made.add("other", OOD, role="ood_val")
    made.add("far", world(60, seed=3, shift=3.0), role="far")
    return made


@pytest.mark.parametrize("metric", ["ds_f1", "ds_aurc"])
def test_recommend_finds_the_best_pair(run, metric):
    names = ["msp", "energy", "knn", "fdbd"]
    messages = []
    got = recommend(run, metric=metric, id_scores=names, ood_scores=names, n=100, done=messages.append)
    both = Outputs.concat([VAL, OOD])
    conf = {name: scorer(name).fit(TRAIN, val=VAL).score(both) for name in names}
    record = metrics.info(metric)
    values = {
        (a, b): record.value(both.correct, conf[a], conf[b], is_id=both.is_id)
        for i, a in enumerate(names)
        for b in names[i:]
    }
    choose = max if record.better == "higher" else min
    assert got.best.value.value == pytest.approx(choose(values.values()))
    order = [pair.value.value for pair in got.pairs]
    assert order == sorted(values.values(), reverse=record.better == "higher")[:10]
    assert got.tried == 10
    doubt = {name: metrics.aurc(VAL.correct, conf[name][: len(VAL)]) for name in names}
    assert all(doubt[pair.id_score] <= doubt[pair.ood_score] for pair in got.pairs)
    assert len(got.pairs) == 10
    assert got.best.top
    assert all(pair.value.low <= pair.value.value <= pair.value.high for pair in got.pairs)
    for pair in got.pairs[1:]:
        gap = got.best.value.value - pair.value.value
        assert pair.behind.value == pytest.approx(gap)
        assert pair.top == (pair.p >= 0.05)
    assert {c.label for c in got.chains.values()} == {"OOD-tuned"}
    assert any("fitting knn" in text for text in messages)
    assert f"{got.best.id_score} + {got.best.ood_score}" in str(got)


def test_recommend_keeps_the_roles_it_is_given(run):
    got = recommend(run, id_scores=["msp"], ood_scores=["energy", "knn", "msp"], n=20)
    assert {(p.id_score, p.ood_score) for p in got.pairs} == {("msp", "energy"), ("msp", "knn"), ("msp", "msp")}


def test_scores_of_different_kinds_may_rank_alike():
    val, others = Outputs([[4.0, 0.0], [0.0, 3.0], [1.0, 0.5]], labels=[0, 1, 1]), Outputs([[0.2, 0.1], [0.1, 0.3]])
    found = rank_pairs(None, val, others, id_scores=["msp"], ood_scores=["energy"], n=20)
    assert (found.best.id_score, found.best.ood_score) == ("msp", "energy")


def test_a_baseline_is_shown_whatever_its_rank():
    names = ["msp", "energy", "knn", "fdbd"]
    every = rank_pairs(TRAIN, VAL, OOD, id_scores=names, ood_scores=names, n=20)
    last = every.pairs[-1]
    found = rank_pairs(
        TRAIN, VAL, OOD, id_scores=names, ood_scores=names, show=1, baseline=(last.ood_score, last.id_score), n=20
    )
    assert [str(pair.value) for pair in found.pairs] == [str(every.best.value), str(last.value)]
    assert str(found.pairs[1].behind) == str(last.behind)


def test_recommend_tries_all_that_the_outputs_allow(run):
    got = recommend(run, n=20, show=3)
    assert "mc_msp needs" not in str(got.skipped)
    assert got.tried > 400
    assert any("ranks the validation samples as" in why for why in got.skipped.values())  # gini and collision


def test_recommend_says_what_it_does_not_promise(run):
    few = {"id_scores": ["msp"], "ood_scores": ["energy"], "n": 20}
    assert recommend(run, **few).cautions == (
        "chosen on OOD inputs of one kind (OOD-tuned): on other kinds another pair may be better.",
    )
    first = recommend(run, ood="far", **few).cautions[0]
    assert "chosen on far, which is a test set of this run" in first
    run.add("leak", Outputs.concat([OOD[:7], world(5, seed=9, shift=1.0)]), role="near")
    assert "7 of 12 samples of the test set leak are among" in recommend(run, **few).cautions[0]


def test_recommend_errors(run, tmp_path):
    with pytest.raises(InvalidInput, match="chooses by a metric of two scores"):
        recommend(run, metric="aurc")
    with pytest.raises(InvalidInput, match=r"no pair of scores could be tried \(mc_msp: "):
        recommend(run, id_scores=["mc_msp"], ood_scores=["mc_msp"])
    bare = twofold.Run.create(tmp_path / "bare", model="a test")
    bare.add("train", TRAIN, role="train")
    bare.add("val", VAL, role="val")
    with pytest.raises(InvalidInput, match=r"needs outputs with role ood_val, .*or name one with ood="):
        recommend(bare)
