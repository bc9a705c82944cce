"""Laws that every registered score obeys, alone and behind every transform."""

import inspect

import numpy as np
import pytest

from twofold import steps
from twofold.outputs import Head, Outputs
from twofold.steps import load_chain, scorer

CLASSES, WIDTH = 4, 6
SCORES = steps.names("score")
CHAINS = [*SCORES, *(f"{t}|{s}" for t in steps.names("transform") for s in ("msp", "energy", "entropy"))]
PASSES = 3

ODD = [
    "klm",
    "openmax",
    "mds",
    "rmds",
    "cosine_mean",
    "mc_mutual_information",
    "mc_std",
]  # look for inputs unlike the training set, not for doubt


def outputs(n=60, seed=0, dtype=np.float64):
    """Separable enough to be a classifier; features non-negative, all classes present."""
    rng = np.random.default_rng(seed)
    weight = np.random.default_rng(99).normal(size=(CLASSES, WIDTH))
    labels = np.arange(n) % CLASSES
    features = np.abs(rng.normal(size=(n, WIDTH)) + 1.5 * np.maximum(weight[labels], 0)).astype(dtype)
    head = Head(weight.astype(dtype), np.linspace(-0.5, 0.5, CLASSES).astype(dtype))
    logits = head.logits(features).astype(dtype)
    noise = rng.normal(size=(PASSES, n, CLASSES)).astype(dtype)
    return Outputs(logits, labels, features, head, passes=logits + noise)


@pytest.fixture(scope="module", params=CHAINS)
def fitted(request):
    return scorer(request.param).fit(outputs(), val=outputs(seed=1))


def test_shape_type_and_finite(fitted):
    conf = fitted.score(outputs(seed=2))
    assert conf.shape == (60,)
    assert conf.dtype == np.float64
    assert np.isfinite(conf).all()


def test_rows_are_independent(fitted):
    test = outputs(seed=2)
    whole = fitted.score(test)
    order = np.random.default_rng(0).permutation(len(test))
    assert fitted.score(test[order]) == pytest.approx(whole[order], rel=1e-9, abs=1e-12)
    halves = np.concatenate([fitted.score(test[:23]), fitted.score(test[23:])])
    assert halves == pytest.approx(whole, rel=1e-9, abs=1e-12)
    one = np.concatenate([fitted.score(test[i]) for i in range(5)])
    assert one == pytest.approx(whole[:5], rel=1e-9, abs=1e-12)


def test_relabelling_classes_changes_nothing(fitted):
    turn = np.array([2, 0, 3, 1])  # new name of each old class

    def renamed(o):
        back = np.argsort(turn)
        head = Head(np.asarray(o.head.weight)[back], np.asarray(o.head.bias)[back])
        passes = np.asarray(o.passes)[:, :, back]
        return Outputs(np.asarray(o.logits)[:, back], turn[np.asarray(o.labels)], o.features, head, passes=passes)

    again = scorer(fitted.spec).fit(renamed(outputs()), val=renamed(outputs(seed=1)))
    assert again.score(renamed(outputs(seed=2))) == pytest.approx(fitted.score(outputs(seed=2)), rel=1e-9, abs=1e-9)


def test_inputs_are_untouched(fitted):
    test = outputs(seed=2)
    before = {k: v.copy() for k, v in test.flat().items()}
    fitted.score(test)
    for name, array in test.flat().items():
        assert (array == before[name]).all(), name


def test_fit_is_deterministic_and_saved_exactly(fitted, tmp_path):
    test = outputs(seed=2)
    again = scorer(fitted.spec).fit(outputs(), val=outputs(seed=1))
    assert (again.score(test) == fitted.score(test)).all()
    fitted.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == fitted.score(test)).all()


def test_half_precision_inputs_work(fitted):
    conf = scorer(fitted.spec).fit(outputs(dtype=np.float16), val=outputs(seed=1, dtype=np.float16))
    got = conf.score(outputs(seed=2, dtype=np.float16))
    assert np.isfinite(got).all()
    reference = fitted.score(outputs(seed=2))
    if np.ptp(reference) < 1e-9:  # the energy of averaged probabilities is 0
        assert np.ptp(got) < 1e-9
    else:
        assert np.corrcoef(got, reference)[0, 1] > 0.95


@pytest.mark.parametrize("spec", [*(s for s in SCORES if s not in ODD), "temperature|msp"])
def test_confidence_is_higher_for_right_answers(spec):
    """Orientation: on a working classifier scores of doubt prefer right answers (others look for the odd)."""
    from twofold.metrics import auroc

    test = outputs(n=2000, seed=3)
    chain = scorer(spec).fit(outputs())
    judged = test.averaged() if chain.judges == "passes" else test
    assert auroc(judged.correct, chain.score(test)) > 0.55


@pytest.mark.parametrize("spec", ODD[:2])
def test_odd_answers_have_lower_confidence(spec):
    """Orientation: logits like no training sample's are trusted less than those of class means."""
    train = outputs(400)
    z = np.asarray(train.logits)
    typical = np.stack([z[np.asarray(train.labels) == k].mean(axis=0) for k in range(CLASSES)])
    odd = np.full((1, CLASSES), 30.0)
    chain = scorer(spec).fit(train)
    assert chain.score(Outputs(typical)).min() > chain.score(Outputs(odd))[0]


@pytest.mark.parametrize("name", [*SCORES, *steps.names("transform")])
def test_every_step_is_documented(name):
    record = steps.info(name)
    text = inspect.getdoc(record.maker)
    assert ">>>" in text
    assert ".. math::" in text or ":math:" in text or name == "mls"
    assert record.paper
    assert record.summary.endswith(".")


@pytest.mark.parametrize("name", steps.names("score", needs=["logits"]))
def test_two_classes_and_extreme_logits(name):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(30, 2)) * 3
    train = Outputs(z, np.where(rng.random(30) < 0.8, z.argmax(axis=1), 1 - z.argmax(axis=1)))
    chain = scorer(name).fit(train)
    assert np.isfinite(chain.score(train)).all()
    extreme = Outputs([[800.0, -800.0], [0.0, 0.0], [-1e4, 1e4]], [0, 1, 1])
    assert not np.isnan(chain.score(extreme)).any()


@pytest.mark.parametrize("spec", ["mds", "rmds", "cosine_mean"])
def test_odd_features_have_lower_confidence(spec):
    """Orientation: features like no class are trusted less than class means."""
    train = outputs(400)
    h = np.asarray(train.features)
    means = np.stack([h[np.asarray(train.labels) == k].mean(axis=0) for k in range(CLASSES)])
    odd = np.array([[9.0, -9, 9, -9, 9, -9]])
    chain = scorer(spec).fit(train)
    trusted = chain.score(Outputs(train.head.logits(means), None, means, train.head))
    assert trusted.min() > chain.score(Outputs(train.head.logits(odd), None, odd, train.head))[0]
