"""The regret of pNML: golden value, closed forms, a slow form with inverses, degenerate worlds, real features."""

from decimal import Decimal, getcontext

import numpy as np
import pytest

from twofold._math import log_softmax
from twofold.outputs import Head, Outputs
from twofold.scores.chain import load_chain, scorer
from twofold.scores.regret import regret


def world(n=60, seed=0, classes=3, width=5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    features = (rng.normal(size=(n, width)) + 2 * np.eye(classes, width)[labels]).astype(dtype)
    weight = np.random.default_rng(5).normal(size=(classes, width)) + 2 * np.eye(classes, width)
    head = Head(weight.astype(dtype), (np.arange(classes) / 10).astype(dtype))
    return Outputs(head.logits(features).astype(dtype), labels, features, head)


def slow(train, test, unit=True):
    """Row by row, with a pseudo-inverse and probabilities as they are printed."""
    a = np.array([[1.0, *(x / np.linalg.norm(x))] for x in np.asarray(train.features, dtype=np.float64)])
    moment = sum(np.outer(row, row) for row in a)
    inverse = np.linalg.pinv(moment, rcond=1e-10, hermitian=True)
    w, b, result = np.asarray(test.head.weight), np.asarray(test.head.bias), []
    for x, z in zip(np.asarray(test.features, dtype=np.float64), np.asarray(test.logits), strict=True):
        row = np.array([1.0, *(x / np.linalg.norm(x))])
        known = row @ inverse @ row
        new = row @ (np.eye(len(row)) - inverse @ moment) @ row
        t = min(max(new, known / (1 + known)), 1.0)
        logits = w @ row[1:] + b if unit else z
        p = np.exp(logits) / np.exp(logits).sum()
        result.append(-np.log((p / (p + p**t * (1 - p))).sum()) / np.log(len(p)))
    return np.array(result)


def test_golden():
    z = np.array([[2.0, 1.0, 0.1]])
    assert -regret(log_softmax(z), np.array([0.3])) == pytest.approx(-0.16209465, abs=5e-9)


def test_closed_forms():
    log_p = log_softmax(np.random.default_rng(0).normal(size=(50, 4)) * 3)
    p = np.exp(log_p)
    assert (regret(log_p, np.zeros(50)) == 0).all()  # nothing to learn
    assert regret(log_p, np.ones(50)) == pytest.approx(np.log((1 / (2 - p)).sum(axis=1)) / np.log(4))
    even = regret(np.log(np.full((1, 4), 0.25)), np.array([1.0]))
    assert even == pytest.approx(np.log(4 / 1.75) / np.log(4))
    steps = np.stack([regret(log_p, np.full(50, t)) for t in np.linspace(0, 1, 11)])
    assert (np.diff(steps, axis=0) > 0).all()


@pytest.mark.parametrize("lead", [5.0, 40.0, 200.0])
def test_confident_answers_keep_their_digits(lead):
    getcontext().prec = 200
    z = [Decimal(0), Decimal(-lead), Decimal(-lead - 1)]
    total = sum(x.exp() for x in z)
    p = [x.exp() / total for x in z]
    t = Decimal("0.25")
    want = sum(q / (q + q**t * (1 - q)) for q in p).ln() / Decimal(3).ln()
    got = regret(log_softmax(np.array([[0.0, -lead, -lead - 1]])), np.array([0.25]))[0]
    assert got == pytest.approx(float(want), rel=1e-9)


@pytest.mark.parametrize("unit", [True, False])
def test_pnml_against_the_slow_form(unit):
    train, test = world(), world(25, seed=1)
    assert scorer(f"pnml(unit={unit})").fit(train).score(test) == pytest.approx(slow(train, test, unit), rel=1e-9)


@pytest.mark.parametrize("unit", [True, False])
def test_directions_that_training_has_not_seen(unit):
    train, test = world(4, width=12), world(25, seed=1, width=12)
    got = scorer(f"pnml(unit={unit})").fit(train)
    assert got.score(test) == pytest.approx(slow(train, test, unit), rel=1e-8)
    assert got.score(train) == pytest.approx(slow(train, train, unit), rel=1e-8)
    assert got.score(train).mean() > got.score(test).mean()


def test_the_norm_of_the_feature_is_not_seen():
    train, test = world(), world(25, seed=1)
    longer = Outputs(test.head.logits(7 * np.asarray(test.features)), None, 7 * np.asarray(test.features), test.head)
    fitted = scorer("pnml").fit(train)
    assert fitted.score(longer) == pytest.approx(fitted.score(test), rel=1e-9)


def test_rotations_change_nothing():
    train, test = world(), world(25, seed=1)
    q = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 5)))[0]

    def turned(o):
        return Outputs(o.logits, o.labels, np.asarray(o.features) @ q, Head(np.asarray(o.head.weight) @ q, o.head.bias))

    got = scorer("pnml").fit(turned(train)).score(turned(test))
    assert got == pytest.approx(scorer("pnml").fit(train).score(test), rel=1e-9)


def test_more_training_rows_lower_the_regret():
    few, test = world(30), world(25, seed=1)
    many = Outputs.concat([few] * 20)
    assert (scorer("pnml").fit(many).score(test) > scorer("pnml").fit(few).score(test)).all()


@pytest.mark.parametrize("unit", [True, False])
def test_degenerate_worlds(unit):
    spec = f"pnml(unit={unit})"
    o = world()
    h = np.asarray(o.features)
    alone = Head(np.asarray(o.head.weight)[:1])
    one = Outputs(alone.logits(h), np.zeros(len(h), int), h, alone)
    assert (scorer(spec).fit(one).score(one) == 0).all()  # one class has no regret
    pair = world(classes=2)
    assert scorer(spec).fit(pair).score(pair) == pytest.approx(slow(pair, pair, unit), rel=1e-9)
    dead = Head(np.hstack([np.asarray(o.head.weight), np.zeros((3, 2))]), o.head.bias)
    wide = Outputs(o.logits, o.labels, np.hstack([h, np.zeros((len(h), 2))]), dead)
    assert scorer(spec).fit(wide).score(wide) == pytest.approx(scorer(spec).fit(o).score(o), rel=1e-9)
    same = np.full((9, 5), 2.0)  # constant features
    flat = Outputs(o.head.logits(same), np.arange(9) % 3, same, o.head)
    assert scorer(spec).fit(flat).score(o) == pytest.approx(slow(flat, o, unit), rel=1e-8)
    zeros = Outputs(o.head.logits(0 * h), o.labels, 0 * h, o.head)  # features of zeros
    assert np.isfinite(scorer(spec).fit(o).score(zeros)).all()
    assert np.isfinite(scorer(spec).fit(zeros).score(o)).all()


@pytest.mark.parametrize("spec", ["pnml", "pnml(unit=False)"])
def test_rows_types_and_files(spec, tmp_path):
    train, test = world(), world(25, seed=1)
    fitted = scorer(spec).fit(train)
    whole = fitted.score(test)
    assert whole.dtype == np.float64
    assert (whole <= 0).all()
    halves = np.concatenate([fitted.score(test[:9]), fitted.score(test[9:])])
    assert halves == pytest.approx(whole, rel=1e-9)
    fitted.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == whole).all()
    half = scorer(spec).fit(world(dtype=np.float16)).score(world(25, seed=1, dtype=np.float16))
    assert np.corrcoef(half, whole)[0, 1] > 0.98


def test_a_memory_mapped_training_set_is_read_in_blocks(tmp_path):
    from twofold.run import Run

    train = world(9000)
    run = Run.create(tmp_path / "run", model="m")
    run.add("train", train, role="train")
    mapped = scorer("pnml").fit(run["train"])
    assert mapped.score(train[:50]) == pytest.approx(slow(train, train[:50]), rel=1e-9)


@pytest.mark.parametrize("spec", ["pnml", "pnml(unit=False)"])
def test_real_features_of_another_data_set_are_told_apart(spec, data_dir):
    from twofold.metrics import auroc

    path = data_dir / "features_cifar10_resnet20.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in TWOFOLD_DATA")
    with np.load(path) as d:
        head = Head(d["W"], d["b"])
        train, test, svhn = (
            Outputs(d[f"{name}_logits"], None, d[f"{name}_features"], head)
            for name in ("id_train", "id_test", "ood_svhn")
        )
    chain = scorer(spec).fit(train)
    conf = np.concatenate([chain.score(test), chain.score(svhn)])
    assert auroc(np.arange(len(conf)) < len(test), conf) > 0.75


def test_directions_are_seen_by_their_share_of_the_largest():
    """Below 1e-10 of the largest eigenvalue a direction is new, above it is known, whatever the number of rows."""
    rng = np.random.default_rng(0)
    test = world(20, seed=1)
    for thin in (1e-7, 1e-3):  # 2000 rows: eigenvalues of about 1e-11 and 1e-3, the largest of about 3000
        h = np.hstack([rng.normal(size=(2000, 4)), thin * rng.normal(size=(2000, 1))])
        train = Outputs(test.head.logits(h), np.arange(2000) % 3, h, test.head)
        assert scorer("pnml").fit(train).score(test) == pytest.approx(slow(train, test), rel=1e-6)
