"""Thresholds of validation data on test data: a plain search agrees, and wrong data are named."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from twofold import Outputs, Run, probability, scorer
from twofold.bench.catalogue import loads
from twofold.bench.class_means import mean_probabilities
from twofold.bench.transfer import transfer_thresholds
from twofold.cli import main
from twofold.errors import InvalidInput, UnknownName
from twofold.outputs import Head

SETS = {"train": "train", "val": "val", "test": "test", "close": "near", "noise": "far", "fog": "shift"}
BENCHMARK = loads(
    'name = "tiny"\ntitle = "Tiny"\nsource = "made here"\nclasses = 3\nprotocols = ["joint"]\n'
    + "".join(f'[[sets]]\nname = "{n}"\nrole = "{r}"\ndata = "npz:{n}.npz"\n' for n, r in SETS.items())
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = Run.create(tmp_path_factory.mktemp("transfer") / "toy", model="toy", recipe="basic", seed=0)
    head = Head(np.random.default_rng(0).normal(size=(3, 5)), np.zeros(3))
    for seed, (name, role) in enumerate(SETS.items()):
        rng = np.random.default_rng(seed)
        known = role in ("train", "val", "test", "shift")
        labels = rng.integers(0, 3, 60)
        features = rng.normal(size=(60, 5)) + (head.weight[labels] if known else 0.5)
        made.add(name, Outputs(head.logits(features), labels if known else np.full(60, -1), features, head), role=role)
    return made


def best(outputs, conf_id, conf_ood):
    """The pair of thresholds of best F1, one pair after the other."""
    found = (-1.0, 0.0, 0.0)
    for tau_id in conf_id:
        for tau_ood in conf_ood:
            found = max(found, (f1_at(outputs, conf_id, conf_ood, tau_id, tau_ood), tau_id, tau_ood))
    return found


def f1_at(outputs, conf_id, conf_ood, tau_id, tau_ood):
    accepted = (conf_id >= tau_id) & (conf_ood >= tau_ood)
    return 2 * (accepted & outputs.correct).sum() / (accepted.sum() + outputs.is_id.sum())


def pool(run, *names):
    outputs = Outputs.concat([run[name] for name in names])
    return outputs, probability(outputs), scorer("energy").score(outputs)


def test_thresholds_are_chosen_here_and_judged_there(run):
    points = transfer_thresholds(BENCHMARK, run, ood_score="energy", choose=("val", "close"), judge=("test", "noise"))
    assert [(point.stage, point.scoring) for point in points] == [
        (stage, scoring) for stage in ("chosen", "moved", "best") for scoring in ("id", "ood", "both")
    ]
    by_name = {(point.stage, point.scoring): point for point in points}
    here, there = pool(run, "val", "close"), pool(run, "test", "noise")
    chosen, moved = by_name["chosen", "both"], by_name["moved", "both"]
    assert chosen.data == "val+close"
    assert chosen.f1 == pytest.approx(best(*here)[0])
    assert by_name["best", "both"].f1 == pytest.approx(best(*there)[0])
    assert (moved.tau_id, moved.tau_ood) == (chosen.tau_id, chosen.tau_ood)
    assert moved.f1 == pytest.approx(f1_at(*there, chosen.tau_id - 1e-9, chosen.tau_ood))
    alone = by_name["moved", "id"]
    assert alone.tau_ood is None
    assert 0 < alone.tau_id < 1  # a probability, not log-odds
    assert alone.f1 == pytest.approx(f1_at(*there, alone.tau_id - 1e-9, -np.inf))


def test_thresholds_of_the_released_code_are_thousandths_of_scaled_scores(run):
    points = transfer_thresholds(
        BENCHMARK, run, ood_score="energy", choose=("val", "close"), judge=("test", "noise"), method="published"
    )
    outputs, msp, energy = pool(run, "test", "noise")
    scaled = (energy - energy.min()) / (energy.max() - energy.min() + 1e-12)
    for point in points:
        for tau in (point.tau_id, point.tau_ood):
            assert tau is None or 1000 * tau == pytest.approx(round(1000 * tau), abs=1e-3)
        if point.scoring == "both" and point.stage == "moved":
            assert point.f1 == pytest.approx(f1_at(outputs, msp, scaled, point.tau_id, point.tau_ood))


@pytest.mark.parametrize(
    ("choose", "error", "words"),
    [
        (("val", "fog"), InvalidInput, "unknown inputs, got fog"),
        (("close", "noise"), InvalidInput, "known classes, got close"),
        (("val", "clse"), UnknownName, "did you mean 'close'"),
    ],
)
def test_wrong_data_are_named(run, choose, error, words):
    with pytest.raises(error, match=words):
        transfer_thresholds(BENCHMARK, run, ood_score="energy", choose=choose, judge=("test", "noise"))


def test_the_command_prints_the_points(run, tmp_path):
    file = tmp_path / "tiny.toml"
    text = 'name = "tiny"\ntitle = "Tiny"\nsource = "made here"\nclasses = 3\nprotocols = ["joint"]\n'
    text += "".join(f'[[sets]]\nname = "{n}"\nrole = "{r}"\ndata = "npz:{n}.npz"\n' for n, r in SETS.items())
    file.write_text(text, encoding="utf-8")
    words = ["bench", "transfer", str(file), "--run", str(run.path), "--ood", "energy", "--choose", "val+close"]
    result = CliRunner().invoke(main, [*words, "--judge", "test+noise", "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)) == 9
    result = CliRunner().invoke(main, [*words, "--judge", "test"])
    assert result.exit_code == 2
    assert "such as val+cifar10" in result.stderr


def test_class_means_are_of_the_rows_of_each_class(run):
    outputs = run["close"]
    labels = np.arange(60) % 4 - 1
    found = mean_probabilities(outputs, labels, ("a", "b", "c"))
    p = np.exp(outputs.logits) / np.exp(outputs.logits).sum(axis=1, keepdims=True)
    assert [(one.name, one.count) for one in found] == [("a", 15), ("b", 15), ("c", 15)]
    np.testing.assert_allclose(found[1].probabilities, p[labels == 1].mean(axis=0))
    with pytest.raises(InvalidInput, match="no input has a class"):
        mean_probabilities(outputs, np.full(60, -1))
    with pytest.raises(InvalidInput, match="labels has 3 rows"):
        mean_probabilities(outputs, np.zeros(3, int))
