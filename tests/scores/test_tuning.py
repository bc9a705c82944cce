"""Choosing settings and pairs: found by hand, labelled by what they saw, honest about what they cannot say."""

import numpy as np
import pytest

from twofold import metrics
from twofold.errors import InvalidInput, UnknownName
from twofold.outputs import Head, Outputs
from twofold.scores.chain import load_chain, scorer
from twofold.scores.tuning import tune

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


def by_hand(spec, metric, ood):
    chain = scorer(spec).fit(TRAIN, val=VAL)
    if not ood:
        return metrics.info(metric).value(VAL.correct, chain.score(VAL))
    both = Outputs.concat([VAL, OOD])
    if metric == "auroc":
        return metrics.auroc(both.is_id, chain.score(both))
    return metrics.info(metric).value(both.correct, chain.score(both), is_id=both.is_id)


@pytest.mark.parametrize("ood", [False, True])
@pytest.mark.parametrize(
    ("spec", "metric", "grid"),
    [
        ("gen", "augrc", [f"gen(gamma={g}, top={m})" for g in (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0) for m in (10, 50)]),
        ("knn", "auroc", [f"knn(k={k})" for k in (50, 100, 200)]),
        ("react|energy", "aurc", [f"react(percentile={q})|energy" for q in (85.0, 90.0, 95.0, 99.0)]),
    ],
)
def test_the_best_of_the_grid_is_found(spec, metric, grid, ood):
    found = tune(spec, TRAIN, VAL, OOD if ood else None, metric)
    values = {one: by_hand(one, metric, ood) for one in [spec, *grid]}
    choose = max if metrics.info(metric).better == "higher" else min
    assert found.value == pytest.approx(choose(values.values()))
    assert by_hand(found.chain.spec, metric, ood) == pytest.approx(found.value)
    tried = {trial.spec: trial.value for trial in found.trials}
    for one, value in values.items():
        assert tried[one] == pytest.approx(value), one
    assert found.label == ("OOD-tuned" if ood else "ID-tuned")


def test_settings_that_are_stated_stay():
    found = tune("react(percentile=85)|gen(gamma=0.1)", TRAIN, VAL)
    assert {trial.spec.split("|")[0] for trial in found.trials} == {"react(percentile=85)"}
    assert all("gamma=0.1" in trial.spec for trial in found.trials)
    assert len(found.trials) == 1 + 6


def test_a_grid_of_ones_own():
    found = tune("react|knn", TRAIN, VAL, grid={"react.percentile": (50, 60), "knn.k": [3, 5]})
    assert len(found.trials) == 1 + 4
    for grid, message in (
        ({"ash.percentile": (1,)}, r"names no step of react\|knn; write react.SETTING, knn.SETTING"),
        ({"react.percentage": (1,)}, "did you mean 'percentile'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            tune("react|knn", TRAIN, VAL, grid=grid)


def test_what_does_not_fit_is_listed_and_passed_over():
    found = tune("vim", TRAIN, VAL)
    assert found.chain.spec == "vim"
    problems = [trial for trial in found.trials if trial.problem]
    assert [trial.spec for trial in problems] == ["vim(dim=256)", "vim(dim=1000)"]
    assert all(np.isnan(trial.value) for trial in problems)
    with pytest.raises(InvalidInput, match="none of the settings of vim fit"):
        tune("vim", Outputs(TRAIN.logits, TRAIN.labels), VAL)


def test_equals_keep_the_defaults():
    found = tune("gen", TRAIN, VAL, grid={"gen.top": (3, 100, 1000)})  # three classes: all are the same score
    assert found.chain.spec == "gen"


def test_the_label_travels(tmp_path):
    assert scorer("gen").fit(TRAIN).label == "untuned"
    assert scorer("klm").fit(TRAIN, val=VAL).label == "untuned"
    found = tune("gen", TRAIN, VAL, OOD)
    found.chain.save(tmp_path / "c")
    assert load_chain(tmp_path / "c").label == "OOD-tuned"
    assert found.chain.fit(TRAIN).label == "OOD-tuned"


def test_tune_errors():
    with pytest.raises(InvalidInput, match="msp declares nothing to tune"):
        tune("msp", TRAIN, VAL)
    with pytest.raises(UnknownName, match="augrc"):
        tune("gen", TRAIN, VAL, metric="augcr")
    with pytest.raises(InvalidInput, match="auroc_ood cannot choose settings here: it needs ood_val"):
        tune("gen", TRAIN, VAL, metric="auroc_ood")
    with pytest.raises(InvalidInput, match="ds_f1 cannot choose settings here: it needs ood_val"):
        tune("gen", TRAIN, VAL, metric="ds_f1")
    with pytest.raises(InvalidInput, match="nll cannot choose settings here: it needs"):
        tune("gen", TRAIN, VAL, metric="nll")
