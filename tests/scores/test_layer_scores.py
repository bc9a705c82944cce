"""Scores of several layers: the explicit Gram matrix, slow loops, scikit-learn's regression, degenerate worlds."""

import dataclasses
import inspect

import numpy as np
import pytest
from scipy.optimize import minimize

from twofold.errors import InvalidInput
from twofold.metrics import auroc
from twofold.outputs import Outputs
from twofold.scores.chain import load_chain, scorer
from twofold.scores.layers import Gram, MahalanobisLayers, gram_rows
from twofold.scores.registry import info

POWERS = (1, 2, 3, 4, 5)


def world(n=120, seed=0, classes=3, dtype=np.float64, shift=0.0):
    """Maps of two layers whose channels depend on the class, and what extraction records of them."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    layers = {}
    for name, channels in (("block1", 4), ("block2/conv", 3)):
        strength = np.random.default_rng(channels).normal(size=(classes, channels))[labels]
        maps = (strength + shift)[:, :, None] + 0.3 * rng.normal(size=(n, channels, 6))
        layers[f"{name}/mean"], layers[f"{name}/var"] = maps.mean(axis=2), maps.var(axis=2)
        layers |= {f"{name}/gram{q}": gram_rows(maps, q) for q in POWERS}
    logits = 2 * np.eye(classes)[labels] + rng.normal(size=(n, classes))
    return Outputs(logits.astype(dtype), labels, layers={k: v.astype(dtype) for k, v in layers.items()})


def only(o, *ends):
    """The outputs with those layers whose key ends so."""
    return o.replace(layers={k: v for k, v in o.layers.items() if k.endswith(ends)})


def fitted_weights(train, odd, val=None, **settings):
    val = train if val is None else val
    made = MahalanobisLayers(**settings)
    return made.fit(train.layers, train.labels, train.logits, val.layers, odd.layers)


# gram_rows


@pytest.mark.parametrize("power", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize("signed", [True, False])
def test_row_sums_of_the_explicit_matrix(power, signed):
    maps = np.random.default_rng(0).normal(size=(5, 4, 7))
    maps = maps if signed else np.abs(maps)
    got = gram_rows(maps, power)
    assert got.shape == (5, 4)
    for row, f in zip(got, maps, strict=True):
        matrix = f**power @ (f**power).T
        for value, total in zip(row, matrix.sum(axis=1), strict=True):
            assert value == pytest.approx(np.sign(total) * abs(total) ** (1 / power), rel=1e-9)


def test_row_sums_scale_with_the_square_and_never_overflow():
    maps = np.random.default_rng(0).normal(size=(3, 4, 7))
    for factor in (1e-60, 1e60):
        assert gram_rows(factor * maps, 5) == pytest.approx(factor**2 * gram_rows(maps, 5), rel=1e-12)
    dead = maps.copy()
    dead[0] = 0.0
    assert (gram_rows(dead, 3)[0] == 0).all()
    assert np.isfinite(gram_rows((100 * maps).astype(np.float16), 5)).all()
    with pytest.raises(InvalidInput, match=r"maps must be three-dimensional \(N, channels, positions\), got shape"):
        gram_rows(maps[0], 1)
    with pytest.raises(InvalidInput, match="power must be a whole number"):
        gram_rows(maps, 0)


# gram


def slow_gram(train, test, powers, aside):
    """The definition, one number at a time; aside: the training rows kept out of the ranges."""
    names = sorted({k.rpartition("/")[0] for k in train.layers if "/gram" in k})
    y = np.array(train.labels)
    y[aside] = -1
    ranges = {}
    for c in range(train.logits.shape[1]):
        keep = y == c if (y == c).any() else y >= 0  # a class without rows: the range of all
        for key in train.layers:
            own = np.asarray(train.layers[key], float)[keep]
            ranges[c, key] = [(min(column), max(column)) for column in own.T]

    def deviation(o, row, name):
        total, c = 0.0, int(o.predictions[row])
        for q in powers:
            key = f"{name}/gram{q}"
            for g, (low, high) in zip(o.layers[key][row].astype(float), ranges[c, key], strict=True):
                if g < low:
                    total += (low - g) / (abs(low) + 1e-6)
                if g > high:
                    total += (g - high) / (abs(high) + 1e-6)
        return total

    scores = np.zeros(len(test))
    for name in names:
        typical = np.mean([deviation(train, i, name) for i in aside]) if len(aside) else 0.0
        for row in range(len(test)):
            scores[row] += deviation(test, row, name) / (typical if typical > 0 else 1.0)
    z = np.asarray(test.logits, float)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return -scores / p[np.arange(len(z)), np.asarray(test.predictions)]


def drawn(labels, split, seed):
    """The rows kept out: of each class those with the smallest draws, one for every row with a class."""
    labels = np.asarray(labels)
    known = np.flatnonzero(labels >= 0)
    draw = dict(zip(known.tolist(), np.random.default_rng(seed).random(len(known)), strict=True))
    aside = []
    for c in set(labels[known].tolist()):
        own = sorted((i for i in known.tolist() if labels[i] == c), key=draw.get)
        aside += own[: int(split * len(own))]
    return aside


@pytest.mark.parametrize(
    ("powers", "split", "seed"), [(POWERS, 0.1, 0), ((1, 3), 0.25, 7), ((2,), 0.5, 0), (POWERS, 0, 0)]
)
def test_gram_against_loops(powers, split, seed):
    train, test = world(), world(30, seed=1, shift=0.2)
    got = scorer(f"gram(powers={powers}, split={split}, seed={seed})").fit(train).score(test)
    want = slow_gram(train, test, powers, drawn(train.labels, split, seed))
    assert (want < 0).any()
    assert got == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_gram_reads_blocks_and_skips_rows_without_a_class():
    train, test = world(9000), world(200, seed=1, shift=0.2)
    labels = np.where(np.arange(9000) % 7 == 0, -1, np.asarray(train.labels))
    labels[5000:] = np.where(labels[5000:] == 2, 1, labels[5000:])  # a class that some blocks lack
    train = train.replace(labels=labels)
    fitted = Gram(split=0.6).fit(train.layers, train.labels, train.predictions, train.logits)
    aside = drawn(labels, 0.6, 0)
    assert len(aside) > 4096
    keep = np.setdiff1d(np.flatnonzero(labels >= 0), aside)
    for state, end in ((fitted.low, np.min), (fitted.high, np.max)):
        whole = np.hstack([train.layers[k] for k in sorted(train.layers) if "/gram" in k])
        for c in range(3):
            assert (state[c] == end(whole[keep[labels[keep] == c]], axis=0)).all()
    assert fitted.score(test.layers, test.logits, test.predictions)[:9] == pytest.approx(
        slow_gram(train, test[:9], POWERS, aside), rel=1e-9
    )


def test_gram_keeps_ranges_in_the_precision_of_the_layers():
    for dtype in (np.float16, np.float32):
        train, test = world(dtype=dtype), world(20, seed=1, shift=0.2, dtype=dtype)
        fitted = Gram().fit(train.layers, train.labels, train.predictions, train.logits)
        assert fitted.low.dtype == dtype
        want = slow_gram(train, test, POWERS, drawn(train.labels, 0.1, 0))
        assert fitted.score(test.layers, test.logits, test.predictions) == pytest.approx(want, rel=1e-9)


def test_gram_of_a_class_without_rows_uses_the_range_of_all():
    train, test = world(), world(30, seed=1, shift=0.5)
    some = train.replace(labels=np.where(np.asarray(train.labels) == 2, -1, np.asarray(train.labels)))
    got = scorer("gram").fit(some).score(test)
    assert got == pytest.approx(slow_gram(some, test, POWERS, drawn(some.labels, 0.1, 0)), rel=1e-9)


def test_gram_inside_all_ranges_is_zero():
    train = world()
    assert (scorer("gram(split=0)").fit(train).score(train)[np.asarray(train.correct)] == 0).all()


def test_gram_in_degenerate_worlds():
    train, test = world(), world(20, seed=1)
    constant = {k: np.full_like(v, 0.1) for k, v in train.layers.items()}
    dead = {k: np.zeros_like(v) if k.startswith("block1") else v for k, v in train.layers.items()}
    for layers in (constant, dead):
        o = train.replace(layers=layers)
        assert np.isfinite(scorer("gram").fit(o).score(o)).all()
        assert np.isfinite(scorer("gram").fit(o).score(test)).all()
    for few in (train[:3], train[[0] * 12 + [1] * 12], world(30, classes=1), world(30, classes=2)):
        assert np.isfinite(scorer("gram").fit(few).score(few)).all()
    improbable = Outputs(np.array([[900.0, 0.0, 0.0]]), layers=test[:1].layers, predictions=[1])
    assert np.isfinite(scorer("gram").fit(train).score(improbable)).all()
    with pytest.raises(InvalidInput, match="all are -1"):
        scorer("gram").fit(train.replace(labels=np.full(len(train), -1)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("powers=()", "powers must be a tuple of whole numbers"),
        ("powers=3", "powers must be a tuple of whole numbers"),
        ("powers=(0, 1)", "powers must be a whole number of at least 1"),
        ("split=1", r"split must be in \[0, 1\)"),
        ("split=-0.1", "split must be in"),
        ("seed=-1", "seed must be a whole number"),
    ],
)
def test_settings_of_gram(settings, message):
    with pytest.raises(InvalidInput, match=message):
        scorer(f"gram({settings})").fit(world())


def test_gram_names_what_is_missing():
    train, test = world(), world(10, seed=1)
    with pytest.raises(InvalidInput, match=r"gram needs layers\['NAME/gram1'\].* have layers 'block1/mean', 'block2"):
        scorer("gram").fit(only(train, "mean"))
    with pytest.raises(InvalidInput, match="these outputs have no layers"):
        scorer("gram").fit(train.replace(layers=None))
    with pytest.raises(InvalidInput, match=r"needs layers\['block1/gram7'\]; of this layer there are block1/gram1, b"):
        scorer("gram(powers=(1, 7))").fit(train)
    fitted = scorer("gram").fit(train)
    lacking = test.replace(layers={k: v for k, v in test.layers.items() if k != "block1/gram2"})
    with pytest.raises(InvalidInput, match=r"gram was fitted on layers\['block1/gram2'\]; these outputs have layers"):
        fitted.score(lacking)
    narrow = test.replace(layers={k: v[:, :2] if k == "block1/gram2" else v for k, v in test.layers.items()})
    with pytest.raises(InvalidInput, match=r"gram was fitted on 4 columns of layers\['block1/gram2'\]; .* have 2"):
        fitted.score(narrow)
    odd = train.replace(layers={"a\nb/gram1": np.ones((len(train), 1))})
    with pytest.raises(InvalidInput, match="no line breaks"):
        scorer("gram(powers=(1,))").fit(odd)


# mds_layers


def slow_layers(train, test, statistics):
    """Scores (N, L) of the single layers by quadratic forms."""
    y = np.asarray(train.labels)
    columns = []
    for name in ("block1", "block2/conv"):
        keys = [f"{name}/{s}" for s in statistics if f"{name}/{s}" in train.layers]
        h = np.hstack([np.asarray(train.layers[k], float) for k in keys])[y >= 0]
        own = y[y >= 0]
        means = {c: h[own == c].mean(axis=0) for c in set(own.tolist())}
        away = np.stack([x - means[c] for x, c in zip(h, own.tolist(), strict=True)])
        precision = np.linalg.pinv(away.T @ away / len(h), hermitian=True)
        rows = np.hstack([np.asarray(test.layers[k], float) for k in keys])
        columns.append([-0.5 * min((x - m) @ precision @ (x - m) for m in means.values()) for x in rows])
    return np.array(columns).T


@pytest.mark.parametrize("statistics", [("mean",), ("mean", "var")])
def test_equal_weights_against_loops(statistics):
    train, test = world(), world(30, seed=1, shift=0.2)
    got = scorer(f"mds_layers(statistics={statistics}, weights='equal')").fit(train).score(test)
    spread = slow_layers(train, train, statistics).std(axis=0)
    assert got == pytest.approx((slow_layers(train, test, statistics) / spread).sum(axis=1), rel=1e-8)


def slow_regression(safe, odd):
    """Balanced logistic regression with an L2 penalty of one half on standardised columns, by a general minimiser."""
    x = np.concatenate([safe, odd])
    y = np.where(np.arange(len(x)) < len(safe), 1.0, -1.0)
    weight = np.where(y > 0, len(x) / (2 * len(safe)), len(x) / (2 * len(odd)))
    std = (x - x.mean(axis=0)) / x.std(axis=0)

    def loss(w):
        return (weight * np.logaddexp(0, -y * (std @ w[:-1] + w[-1]))).sum() + 0.5 * (w[:-1] ** 2).sum()

    best = minimize(loss, np.zeros(x.shape[1] + 1), method="BFGS", options={"gtol": 1e-6})
    return best.x[:-1] / x.std(axis=0)


@pytest.mark.parametrize("statistics", [("mean",), ("mean", "var")])
def test_fitted_weights_against_a_general_minimiser(statistics):
    train, val, odd = world(), world(60, seed=2), world(45, seed=3, shift=0.3)
    test = world(30, seed=1, shift=0.2)
    made = fitted_weights(train, odd, val, statistics=statistics)
    want = slow_regression(slow_layers(train, val, statistics), slow_layers(train, odd, statistics))
    assert made.slopes == pytest.approx(want, rel=1e-4)
    assert made.score(test.layers) == pytest.approx(slow_layers(train, test, statistics) @ want, rel=1e-3, abs=1e-3)


def test_fitted_weights_through_a_chain(tmp_path):
    train, val, odd, test = world(), world(60, seed=2), world(45, seed=3, shift=0.3), world(30, seed=1)
    chain = scorer("mds_layers").fit(train, val=val, ood_val=odd)
    assert chain.fitted_on == "ood_val"
    assert (chain.score(test) == fitted_weights(train, odd, val).score(test.layers)).all()
    without = scorer("mds_layers").fit(train, ood_val=odd)  # training rows stand in for validation
    assert (without.score(test) == fitted_weights(train, odd, train).score(test.layers)).all()
    chain.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == chain.score(test)).all()


def test_fitted_weights_without_validation_are_those_of_training_rows():
    train, ood = world(), world(seed=3)
    arrays = (train.layers, train.labels, train.logits)
    alone = MahalanobisLayers().fit(*arrays, ood_val_layers=ood.layers)
    stated = MahalanobisLayers().fit(*arrays, val_layers=train.layers, ood_val_layers=ood.layers)
    equal = MahalanobisLayers(weights="equal").fit(*arrays)
    assert (alone.slopes == stated.slopes).all()
    assert not np.allclose(alone.slopes, equal.slopes)
    assert (scorer("mds_layers").fit(train, ood_val=ood).score(train) == alone.score(train.layers)).all()


def test_the_variance_is_used_where_it_is_there():
    train, test = world(), world(20, seed=1)
    half = [o.replace(layers={k: v for k, v in o.layers.items() if k != "block1/var"}) for o in (train, test)]
    got = scorer("mds_layers(statistics=('mean', 'var'), weights='equal')").fit(half[0]).score(half[1])
    spread = slow_layers(half[0], half[0], ("mean", "var")).std(axis=0)
    assert got == pytest.approx((slow_layers(*half, ("mean", "var")) / spread).sum(axis=1), rel=1e-8)


def test_other_keys_change_nothing():
    train, test = world(), world(20, seed=1)
    spec = "mds_layers(weights='equal')"
    more = [o.replace(layers={**o.layers, "block1/perturbed": np.ones((len(o), 2))}) for o in (train, test)]
    assert (scorer(spec).fit(more[0]).score(more[1]) == scorer(spec).fit(train).score(test)).all()
    assert (
        scorer(spec).fit(only(train, "mean")).score(only(test, "mean")) == scorer(spec).fit(train).score(test)
    ).all()


def test_mds_layers_reads_blocks_and_skips_rows_without_a_class():
    train, test = world(9000), world(9, seed=1)
    labels = np.where(np.arange(9000) % 7 == 0, -1, np.asarray(train.labels))
    labels[4096:8192] = -1  # a block without labelled rows
    train = train.replace(labels=labels)
    made = fitted_weights(train, world(20, seed=2, shift=1))
    single = slow_layers(train, test, ("mean",))
    assert made.score(test.layers) == pytest.approx(single @ made.slopes, rel=1e-8)


def test_one_layer_ranks_like_mds():
    train, test = world(), world(30, seed=1)
    one = [
        o.replace(layers={"a/mean": o.layers["block1/mean"]}, features=o.layers["block1/mean"]) for o in (train, test)
    ]
    got = scorer("mds_layers(weights='equal')").fit(one[0]).score(one[1])
    assert (np.argsort(got) == np.argsort(scorer("mds").fit(one[0]).score(one[1]))).all()


def test_mds_layers_far_from_zero_keeps_its_digits():
    train, test = world(), world(30, seed=1)
    far = [o.replace(layers={k: v + 1e5 for k, v in o.layers.items()}) for o in (train, test)]
    spec = "mds_layers(weights='equal')"
    assert scorer(spec).fit(far[0]).score(far[1]) == pytest.approx(scorer(spec).fit(train).score(test), rel=1e-4)


def test_mds_layers_in_degenerate_worlds():
    train, test = world(), world(20, seed=1)
    spec = "mds_layers(weights='equal')"
    plain = scorer(spec).fit(only(train, "mean")).score(only(test, "mean"))
    y = np.asarray(train.labels)
    for extra in (np.full((120, 3), 0.1), np.zeros((120, 3)), 0.1 + np.eye(3)[y]):  # varies not, or not within classes
        more = [
            only(train, "mean").replace(layers={**only(train, "mean").layers, "c/mean": extra}),
            only(test, "mean").replace(layers={**only(test, "mean").layers, "c/mean": np.ones((20, 3))}),
        ]
        assert scorer(spec).fit(more[0]).score(more[1]) == pytest.approx(plain, rel=1e-12)
        with pytest.raises(InvalidInput, match="no layer varies within the classes"):
            scorer(spec).fit(train.replace(layers={"c/mean": extra}))
    wide = {"a/mean": np.random.default_rng(0).normal(size=(120, 200))}  # more columns than rows
    copied = {"a/mean": np.hstack([train.layers["block1/mean"]] * 2 + [np.zeros((120, 2))])}
    for o in (
        train.replace(layers=wide),
        train.replace(layers=copied),
        train[[0, 1, 2, 3, 4, 5] * 5],  # copied rows
        train.replace(labels=np.where(y == 2, -1, y)),  # a class without rows
        world(30, classes=1),
        world(30, classes=2),
        world(dtype=np.float16),
    ):
        assert np.isfinite(scorer(spec).fit(o).score(o)).all()
        made = fitted_weights(o, o.replace(layers={k: v + 1 for k, v in o.layers.items()}))
        assert np.isfinite(made.score(o.layers)).all()
    assert np.isfinite(fitted_weights(train, train).score(test.layers)).all()  # nothing to tell apart
    with pytest.raises(InvalidInput, match="all are -1"):
        scorer(spec).fit(train.replace(labels=np.full(120, -1)))


def test_settings_of_mds_layers():
    train = world()
    for bad in ("()", "('var',)", "('mean', 'max')"):
        with pytest.raises(InvalidInput, match=r'statistics must be \("mean",\) or \("mean", "var"\), got'):
            scorer(f"mds_layers(statistics={bad}, weights='equal')").fit(train)
    with pytest.raises(InvalidInput, match="weights"):
        scorer("mds_layers(weights='best')").fit(train)
    with pytest.raises(InvalidInput, match='is fitted on layers of ood_val; pass ood_val= to fit, or weights="equal"'):
        scorer("mds_layers").fit(train)


def test_mds_layers_names_what_is_missing():
    train, test = world(), world(10, seed=1)
    with pytest.raises(InvalidInput, match=r"mds_layers needs layers\['NAME/mean'\].* have layers 'block1/var', "):
        scorer("mds_layers(weights='equal')").fit(only(train, "var"))
    with pytest.raises(
        InvalidInput, match=r"fitted on layers\['block1/mean'\]; the ood_val outputs have layers 'block1/v"
    ):
        fitted_weights(train, only(test, "var"))
    with pytest.raises(
        InvalidInput, match=r"fitted on layers\['block1/mean'\]; the val outputs have layers 'block1/var'"
    ):
        fitted_weights(train, test, only(test, "var"))
    fitted = scorer("mds_layers(weights='equal')").fit(train)
    with pytest.raises(
        InvalidInput, match=r"fitted on layers\['block1/mean'\]; these outputs have layers 'block1/var', "
    ):
        fitted.score(only(test, "var"))
    narrow = test.replace(layers={k: v[:, :2] for k, v in test.layers.items()})
    with pytest.raises(InvalidInput, match=r"fitted on 4 columns of layers\['block1/mean'\]; these outputs have 2"):
        fitted.score(narrow)


# both

SPECS = ["gram", "mds_layers(weights='equal')", "mds_layers(weights='equal', statistics=('mean', 'var'))"]


@pytest.mark.parametrize("spec", SPECS)
def test_rows_are_independent_and_fits_repeat(spec, tmp_path):
    train, test = world(), world(60, seed=1, shift=0.2)
    before = {k: v.copy() for k, v in test.flat().items()}
    fitted = scorer(spec).fit(train)
    whole = fitted.score(test)
    assert whole.dtype == np.float64
    order = np.random.default_rng(0).permutation(60)
    assert fitted.score(test[order]) == pytest.approx(whole[order], rel=1e-9)
    assert np.concatenate([fitted.score(test[:23]), fitted.score(test[23:])]) == pytest.approx(whole, rel=1e-9)
    assert (scorer(spec).fit(train).score(test) == whole).all()
    fitted.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == whole).all()
    for key, array in test.flat().items():
        assert (array == before[key]).all(), key


@pytest.mark.parametrize("spec", SPECS)
def test_names_of_classes_change_nothing(spec):
    turn = np.array([2, 0, 1])

    def renamed(o):
        return Outputs(np.asarray(o.logits)[:, np.argsort(turn)], turn[np.asarray(o.labels)], layers=o.layers)

    train, test = world(), world(30, seed=1, shift=0.2)
    again = scorer(spec).fit(renamed(train)).score(renamed(test))
    assert again == pytest.approx(scorer(spec).fit(train).score(test), rel=1e-9, abs=1e-12)


def test_fitted_weights_repeat():
    train, odd, test = world(), world(45, seed=3, shift=0.3), world(30, seed=1)
    first, second = fitted_weights(train, odd), fitted_weights(train, odd)
    assert (first.score(test.layers) == second.score(test.layers)).all()


@pytest.mark.parametrize("spec", SPECS)
def test_odd_layers_have_lower_confidence(spec):
    train, test, odd = world(600), world(300, seed=1), world(300, seed=2, shift=2.0)
    fitted = scorer(spec).fit(train)
    assert auroc(np.arange(600) < 300, np.concatenate([fitted.score(test), fitted.score(odd)])) > 0.9
    if spec != "gram":
        made = fitted_weights(train, world(200, seed=4, shift=2.0))
        scores = np.concatenate([made.score(test.layers), made.score(odd.layers)])
        assert auroc(np.arange(600) < 300, scores) > 0.9


@pytest.mark.parametrize("spec", SPECS)
def test_memory_mapped_training_sets(spec, tmp_path):
    from twofold.run import Run

    train = world(5000, dtype=np.float32)
    run = Run.create(tmp_path / "run", model="m")
    run.add("train", train, role="train")
    mapped = scorer(spec).fit(run["train"])
    assert mapped.score(train[:50]) == pytest.approx(scorer(spec).fit(train).score(train[:50]), rel=1e-12)


@pytest.mark.parametrize("name", ["gram", "mds_layers"])
def test_both_are_documented(name):
    record = info(name)
    text = inspect.getdoc(record.maker)
    assert ">>>" in text
    assert ".. math::" in text
    assert record.summary.endswith(".")
    assert record.project == ()
    assert "layers" in record.needs


def test_ranges_of_gram_must_fit_the_keys_when_they_are_loaded():
    fitted = scorer("gram").fit(world()).steps[0].instance
    fitted.check_state()
    for other in (fitted.low[:, :-1], fitted.low[:0]):  # a column less, no class at all
        with pytest.raises(InvalidInput, match="low has shape"):
            dataclasses.replace(fitted, low=other).check_state()
