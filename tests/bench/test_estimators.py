"""Estimators of AURC on random batches, against every subset of a tiny population."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from twofold import metrics
from twofold.bench.estimators import ESTIMATORS, cells_from_csv, cells_to_csv, measure_estimators
from twofold.bench.saved import SavedConfidences, name_sources, read_saved
from twofold.errors import InvalidInput, UnknownName
from twofold.outputs import Outputs

ROWS, SIZE = 9, 4


def tiny(seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=ROWS)
    return Outputs(rng.normal(size=(ROWS, 3)) + np.eye(3)[labels], labels)


def losses_of(outputs, loss):
    if loss == "0/1":
        return (outputs.logits.argmax(axis=1) != outputs.labels).astype(float)
    shifted = np.exp(outputs.logits)
    return -np.log(shifted[np.arange(ROWS), outputs.labels] / shifted.sum(axis=1))


def msp(outputs):
    shifted = np.exp(outputs.logits)
    return (shifted / shifted.sum(axis=1, keepdims=True)).max(axis=1)


@pytest.mark.parametrize("loss", ["0/1", "ce"])
def test_bias_is_that_of_all_subsets(loss):
    """The oracle averages metrics.aurc over every subset of the population."""
    outputs = tiny()
    conf, values = msp(outputs), losses_of(outputs, loss)
    population = metrics.aurc(np.ones(ROWS, bool), conf, loss=values)
    cells = measure_estimators({"tiny": outputs}, losses=[loss], sizes=[SIZE], permutations=4000)
    for cell in cells:
        estimates = []
        for chosen in combinations(range(ROWS), SIZE):
            rows = list(chosen)
            estimates.append(metrics.aurc(np.ones(SIZE, bool), conf[rows], loss=values[rows], estimator=cell.estimator))
        estimates = np.array(estimates)
        assert cell.population == pytest.approx(population, rel=1e-12)
        assert cell.bias == pytest.approx(estimates.mean() - population, abs=1e-12)
        assert cell.mean == pytest.approx(estimates.mean(), abs=1e-12)
        # spread and errors are over drawn batches
        assert cell.std == pytest.approx(estimates.std(), rel=0.05)
        assert cell.mse == pytest.approx(((estimates - population) ** 2).mean(), rel=0.05)
        assert cell.mae == pytest.approx(np.abs(estimates - population).mean(), rel=0.05)
        assert cell.rmse**2 == pytest.approx(cell.mse)
        assert cell.published_mse == pytest.approx(cell.bias**2)
        assert cell.published_mae == pytest.approx(abs(cell.bias))


def test_ties_are_broken_at_random_and_counted():
    conf = np.array([0.5, 0.5, 0.5, 0.9, 0.1])
    correct = np.array([True, False, True, False, True])
    [cell] = measure_estimators(
        {"tied": SavedConfidences(correct, conf)}, losses=["0/1"], sizes=[2], estimators=["empirical"], permutations=50
    )
    assert cell.tied == pytest.approx(3 / 5)
    possible = set()
    for order in permutations(range(3)):  # of the three tied samples
        ranked = [4, *order, 3]
        possible.add(round(metrics.aurc(correct[ranked], np.arange(5.0)), 12))
    assert round(cell.population, 12) in possible


def test_the_whole_set_is_one_batch():
    outputs = tiny()
    conf, values = msp(outputs), losses_of(outputs, "ce")
    cells = measure_estimators({"tiny": outputs}, losses=["ce"], sizes=[SIZE], permutations=5, whole=True)
    whole = {cell.estimator: cell for cell in cells if cell.size == ROWS}
    assert set(whole) == set(ESTIMATORS)
    for name, cell in whole.items():
        expected = metrics.aurc(np.ones(ROWS, bool), conf, loss=values, estimator=name)
        assert cell.mean == pytest.approx(expected, rel=1e-12)
        assert (cell.batches, cell.std) == (1, 0.0)


def test_cells_survive_csv():
    cells = measure_estimators({"=net, 'a'": tiny()}, sizes=[SIZE], permutations=5)
    text = cells_to_csv(cells)
    assert cells_from_csv(text) == cells
    assert "\n=net" not in text
    with pytest.raises(InvalidInput, match="line 2"):
        cells_from_csv("model,loss\nnet,0/1\n")


def test_batches_do_not_depend_on_the_models_beside():
    alone = measure_estimators({"a": tiny(0)}, sizes=[SIZE], permutations=20)
    beside = measure_estimators({"b": tiny(1), "a": tiny(0)}, sizes=[SIZE], permutations=20)
    assert alone == [cell for cell in beside if cell.model == "a"]


@pytest.mark.parametrize(
    ("outputs", "options", "message"),
    [
        ({}, {}, "at least one set"),
        ({"a": Outputs(np.eye(3))}, {}, "have no labels"),
        ({"a": Outputs(np.eye(3), [0, 1, -1])}, {}, "OOD samples"),
        ({"a": tiny()}, {"losses": ["hinge"]}, "no choice 'hinge'"),
        ({"a": tiny()}, {"sizes": [64]}, "at most 9"),
        ({"a": tiny()}, {"sizes": [1]}, "at least 2"),
        ({"a": SavedConfidences(np.ones(4, bool), np.arange(4.0))}, {}, "only confidences were saved"),
    ],
)
def test_mistakes_are_clear(outputs, options, message):
    with pytest.raises(InvalidInput, match=message):
        measure_estimators(outputs, permutations=2, **{"sizes": [2], **options})


# --- sources --------------------------------------------------------------------------------------------------------


@pytest.fixture
def nets(tmp_path):
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    probs = np.array([[0.9, 0.1], [0.2, 0.8]])
    np.savez(tmp_path / "nets.npz", one=logits, p=probs, y=[0, 0], c=[0.9, 0.8], guess=[0, 1], short=[0])
    return tmp_path


def test_arrays_are_named_by_keys(nets):
    assert read_saved("nets.npz?logits=one&labels=y", root=nets).correct.tolist() == [True, False]
    assert read_saved("nets.npz?probs=p&labels=y", root=nets).correct.tolist() == [True, False]
    saved = read_saved("nets.npz?conf=c&pred=guess&labels=y", root=nets)
    assert (saved.correct.tolist(), saved.conf.tolist()) == ([True, False], [0.9, 0.8])


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("nets.npz?logits", InvalidInput, "is not key=value"),
        ("nets.npz?logit=one", UnknownName, "did you mean 'logits'"),
        ("nets.npz?logits=won", UnknownName, "did you mean 'one'"),
        ("nets.npz?labels=y", InvalidInput, "one of logits=, probs= and conf="),
        ("nets.npz?logits=one&probs=p", InvalidInput, "one of logits=, probs= and conf="),
        ("nets.npz?logits=one&pred=guess", InvalidInput, "pred= goes with conf="),
        ("nets.npz?conf=c&labels=y", InvalidInput, "pred= and labels= too"),
        ("nets.npz?conf=c&pred=short&labels=y", InvalidInput, "all must be equal"),
        ("nets.npz?set=test", InvalidInput, "is a file"),
        ("none.npz?logits=one", OSError, "none.npz"),
    ],
)
def test_mistaken_sources_are_clear(nets, source, error, message):
    with pytest.raises(error, match=message):
        read_saved(source, root=nets)


def test_sources_have_distinct_names():
    assert list(name_sources(["a.npz?logits=net_test_logits", "b.npz", "run?set=val", "c.npz?logits=x&name=C"])) == [
        "net",
        "b",
        "run/val",
        "C",
    ]
    assert list(name_sources(["a/run", "b/run", "c"])) == ["a/run", "b/run", "c"]
    with pytest.raises(InvalidInput, match="listed twice"):
        name_sources(["a", "a"])
