"""Densities: scikit-learn's own values, slow sums and walks, degenerate worlds, error messages."""

import inspect

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.ensemble import IsolationForest
from sklearn.mixture import GaussianMixture

import twofold.scores.density as module
from twofold.errors import InvalidInput
from twofold.metrics import auroc
from twofold.outputs import Outputs
from twofold.scores.chain import load_chain, scorer
from twofold.scores.registry import info

SPECS = ["gmm", "gmm(components=3)", "gmm(covariance='full')", "gmm(covariance='full', components=2)"]
SPECS += ["isolation_forest", "isolation_forest(trees=7, rows=16, seed=3)"]


def world(n=90, seed=0, classes=3, width=4, dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    features = (rng.normal(size=(n, width)) + 3 * np.eye(classes, width)[labels]).astype(dtype)
    return Outputs(np.eye(classes)[labels], labels, features)


def of_features(h, y):
    return Outputs(np.zeros((len(h), max(2, int(np.max(y)) + 1))), y, h)


# gmm


@pytest.mark.parametrize("covariance", ["diag", "full"])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("reg", [1e-6, 0.5])
def test_gmm_is_the_combination_of_scikit_learn(covariance, components, reg):
    train, test = world(200), world(50, seed=1)
    spec = f"gmm(components={components}, covariance={covariance!r}, reg={reg}, seed=4)"
    got = scorer(spec).fit(train).score(test)
    h, y = np.asarray(train.features), np.asarray(train.labels)
    density = np.zeros(len(test))
    for c in range(3):
        model = GaussianMixture(components, covariance_type=covariance, reg_covar=reg, random_state=4).fit(h[y == c])
        density += (y == c).mean() * np.exp(model.score_samples(np.asarray(test.features)))
    assert got == pytest.approx(np.log(density), rel=1e-8)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_gmm_with_one_component_is_a_sum_of_normal_densities(covariance):
    train, test = world(120), world(20, seed=1)
    h, y = np.asarray(train.features), np.asarray(train.labels)
    y = np.where((y == 2) & (np.arange(120) > 60), -1, y)  # unequal classes, rows of no class
    got = scorer(f"gmm(covariance={covariance!r}, reg=0.01)").fit(of_features(h, y)).score(test)
    for value, x in zip(got, np.asarray(test.features), strict=True):
        total = 0.0
        for c in range(3):
            own = h[y == c]
            sigma = np.cov(own.T, bias=True) + 0.01 * np.eye(4)
            if covariance == "diag":
                sigma = np.diag(np.diag(sigma))
            total += len(own) / (y >= 0).sum() * multivariate_normal(own.mean(axis=0), sigma).pdf(x)
        assert value == pytest.approx(np.log(total), rel=1e-9)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_gmm_far_from_zero_keeps_its_digits(covariance):
    train, test = world(), world(20, seed=1)
    far = [of_features(np.asarray(o.features) + 1e6, np.asarray(o.labels)) for o in (train, test)]
    spec = f"gmm(covariance={covariance!r}, components=2)"
    assert scorer(spec).fit(far[0]).score(far[1]) == pytest.approx(scorer(spec).fit(train).score(test), rel=1e-6)


def test_gmm_uses_no_more_components_than_distinct_rows():
    h = np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [7.0, 7.0]])
    fitted = scorer("gmm(components=5, reg=0.5)").fit(of_features(h, [0, 0, 1, 1, 1, 2]))
    # class 0: two rows of half the weight each; class 1: one point thrice; class 2: one row
    assert len(fitted.steps[0].instance.means) == 2 + 1 + 1
    shares = [(1 / 6, h[0]), (1 / 6, h[1]), (3 / 6, h[2]), (1 / 6, h[5])]
    x = np.array([[0.5, 0.2], [6.0, 7.0]])
    want = [np.log(sum(w * multivariate_normal(m, 0.5 * np.eye(2)).pdf(row) for w, m in shares)) for row in x]
    assert fitted.score(of_features(x, [0, 0])) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("covariance", ["diag", "full"])
@pytest.mark.parametrize("components", [1, 2])
def test_gmm_in_degenerate_worlds(covariance, components):
    spec = f"gmm(covariance={covariance!r}, components={components})"
    rng = np.random.default_rng(0)
    wide, y = rng.normal(size=(12, 30)), np.arange(12) % 2  # more features than rows
    dead = np.hstack([wide[:, :3], np.zeros((12, 2)), np.full((12, 1), 0.1)])  # dead and constant units
    twice = np.repeat(wide[:6, :3], 2, axis=0)
    for h, labels in (
        (wide, y),
        (dead, y),
        (np.full((12, 3), 0.1), y),  # nothing varies
        (twice, np.repeat(y[:6], 2)),
        (wide[:, :3], np.zeros(12, int)),  # one class
        (wide[:, :3], 2 * y),  # a class without rows
        (wide[:, :3], np.arange(12)),  # classes of one row
        (wide.astype(np.float16), y),
    ):
        o = of_features(h, labels)
        assert np.isfinite(scorer(spec).fit(o).score(o)).all()


def test_a_class_without_rows_has_no_part():
    o = world()
    h, y = np.asarray(o.features), np.asarray(o.labels)
    renamed = of_features(h, np.where(y == 2, 7, y))
    assert scorer("gmm").fit(renamed).score(renamed) == pytest.approx(scorer("gmm").fit(o).score(o), rel=1e-12)


def test_singular_mixtures_are_an_error_that_says_what_to_do():
    h = np.hstack([np.random.default_rng(0).normal(size=(20, 2)), np.ones((20, 1))])
    for covariance in ("diag", "full"):
        with pytest.raises(InvalidInput, match=r"gmm: a component of class 0 \(10 rows\) has no variance .* raise reg"):
            scorer(f"gmm(reg=0, covariance={covariance!r})").fit(of_features(h, np.arange(20) % 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("components=0", "components must be a whole number of at least 1"),
        ("components=1.5", "components must be a whole number"),
        ("covariance='tied'", "covariance"),
        ("reg=-1", "reg must be in"),
        ("seed=-1", "seed must be a whole number"),
    ],
)
def test_settings_of_gmm(settings, message):
    with pytest.raises(InvalidInput, match=message):
        scorer(f"gmm({settings})").fit(world())


def test_gmm_needs_labels():
    o = world()
    with pytest.raises(InvalidInput, match="all are -1"):
        scorer("gmm").fit(of_features(np.asarray(o.features), np.full(90, -1)))
    with pytest.raises(InvalidInput, match="needs labels"):
        scorer("gmm").fit(o.replace(labels=None))


# isolation forest


@pytest.mark.parametrize(("trees", "rows", "seed"), [(100, 256, 0), (7, 16, 3), (1, 2, 0), (5, 1, 0), (20, 10_000, 1)])
def test_isolation_forest_is_that_of_scikit_learn(trees, rows, seed):
    train, test = world(600, dtype=np.float32), world(300, seed=1, dtype=np.float32)
    got = scorer(f"isolation_forest(trees={trees}, rows={rows}, seed={seed})").fit(train).score(test)
    model = IsolationForest(n_estimators=trees, max_samples=min(rows, 600), random_state=seed)
    model.fit(np.asarray(train.features))
    assert got == pytest.approx(model.score_samples(np.asarray(test.features)), rel=1e-12)


def test_isolation_forest_against_a_walk_through_each_tree():
    train, test = world(100, dtype=np.float32), world(10, seed=1, dtype=np.float32)
    model = IsolationForest(n_estimators=5, max_samples=64, random_state=0).fit(np.asarray(train.features))

    def usual(n):  # mean depth of an unsuccessful search, by the formula of the paper
        return 0.0 if n < 2 else 1.0 if n == 2 else 2 * (np.log(n - 1) + 0.5772156649015329) - 2 * (n - 1) / n

    got = scorer("isolation_forest(trees=5, rows=64)").fit(train).score(test)
    for value, x in zip(got, np.asarray(test.features), strict=True):
        lengths = []
        for tree in (e.tree_ for e in model.estimators_):
            node, depth = 0, 0
            while tree.children_left[node] != -1:
                left = x[tree.feature[node]] <= tree.threshold[node]
                node, depth = (tree.children_left if left else tree.children_right)[node], depth + 1
            lengths.append(depth + usual(tree.n_node_samples[node]))
        assert value == pytest.approx(-(2 ** -(np.mean(lengths) / usual(64))), rel=1e-12)


def test_doubles_are_compared_in_single_precision():
    train, test = world(300), world(100, seed=1)
    small = [of_features(np.asarray(o.features, np.float32), np.asarray(o.labels)) for o in (train, test)]
    got = scorer("isolation_forest").fit(train).score(test)
    assert (got == scorer("isolation_forest").fit(small[0]).score(small[1])).all()


def test_large_sets_are_thinned(monkeypatch):
    rng = np.random.default_rng(0)
    h = rng.normal(size=(500, 3))
    monkeypatch.setattr(module, "KEPT", 200)
    got = scorer("isolation_forest(trees=10, seed=2)").fit(of_features(h, np.zeros(500, int)))
    some = h[np.sort(np.random.default_rng(2).choice(500, 200, replace=False))]
    want = IsolationForest(n_estimators=10, max_samples=200, random_state=2).fit(some.astype(np.float32))
    x = np.float32(h[:50])
    assert got.score(of_features(x, np.zeros(50, int))) == pytest.approx(want.score_samples(x), rel=1e-12)


def test_isolation_forest_in_degenerate_worlds():
    test = world(20, seed=1)
    for h in (np.full((30, 4), 0.1), np.zeros((30, 4)), np.ones((1, 4))):  # nothing to cut
        fitted = scorer("isolation_forest").fit(of_features(h, np.zeros(len(h), int)))
        assert fitted.score(test) == pytest.approx(-0.5, rel=1e-15)
    rng = np.random.default_rng(0)
    for h in (np.repeat(rng.normal(size=(3, 4)), 9, axis=0), rng.normal(size=(2, 4)), rng.normal(size=(9, 40))):
        o = of_features(h.astype(np.float16), np.zeros(len(h), int))
        got = scorer("isolation_forest").fit(o).score(o)
        assert ((got >= -1) & (got < 0)).all()
    far = of_features(np.full((1, 4), 1e300), [0])  # beyond single precision: to the right of every cut
    end = of_features(np.full((1, 4), 1e30), [0])
    fitted = scorer("isolation_forest").fit(world())
    assert fitted.score(far) == fitted.score(end)
    with pytest.raises(InvalidInput, match="beyond the range of float32; scale them down"):
        scorer("isolation_forest").fit(of_features(np.full((3, 4), 1e300), [0, 0, 0]))


@pytest.mark.parametrize("settings", ["trees=0", "rows=0", "rows=2.5", "seed=-1", "trees=True"])
def test_settings_of_isolation_forest(settings):
    with pytest.raises(InvalidInput, match=f"{settings.split('=')[0]} must be a whole number"):
        scorer(f"isolation_forest({settings})").fit(world())


# both


@pytest.mark.parametrize("spec", SPECS)
def test_rows_are_independent_and_fits_repeat(spec, tmp_path):
    train, test = world(200), world(60, seed=1)
    fitted = scorer(spec).fit(train)
    whole = fitted.score(test)
    assert whole.dtype == np.float64
    order = np.random.default_rng(0).permutation(60)
    assert fitted.score(test[order]) == pytest.approx(whole[order], rel=1e-9)
    assert np.concatenate([fitted.score(test[:23]), fitted.score(test[23:])]) == pytest.approx(whole, rel=1e-9)
    assert (scorer(spec).fit(train).score(test) == whole).all()
    turned = train.replace(labels=(np.asarray(train.labels) + 1) % 3)  # other names of the classes
    assert scorer(spec).fit(turned).score(test) == pytest.approx(whole, rel=1e-9)
    fitted.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == whole).all()


@pytest.mark.parametrize("spec", SPECS)
def test_odd_features_have_lower_confidence(spec):
    train, test = world(300), world(300, seed=1)
    odd = of_features(np.random.default_rng(2).normal(size=(300, 4)) - 4, np.zeros(300, int))
    fitted = scorer(spec).fit(train)
    truth = np.arange(600) < 300
    assert auroc(truth, np.concatenate([fitted.score(test), fitted.score(odd)])) > 0.9


@pytest.mark.parametrize("spec", ["gmm", "isolation_forest"])
def test_memory_mapped_training_sets(spec, tmp_path):
    from twofold.run import Run

    train = world(5000, dtype=np.float32)
    run = Run.create(tmp_path / "run", model="m")
    run.add("train", train, role="train")
    assert (scorer(spec).fit(run["train"]).score(train[:50]) == scorer(spec).fit(train).score(train[:50])).all()


@pytest.mark.parametrize("name", ["gmm", "isolation_forest"])
def test_both_are_documented(name):
    record = info(name)
    text = inspect.getdoc(record.maker)
    assert ">>>" in text
    assert ".. math::" in text
    assert record.summary.endswith(".")
    assert record.needs == ("features",)
    assert info("iforest").name == "isolation_forest"


def test_gmm_counts_distinct_rows_and_not_distinct_columns():
    h = np.array([[0.0, 0.0, 0.0], [4.0, 4.0, 4.0], [8.0, 8.0, 8.0]])  # three rows, one column thrice
    fitted = scorer("gmm(components=3, reg=0.5)").fit(of_features(h, [0, 0, 0]))
    x = np.array([[0.5, 0.2, 0.1], [6.0, 7.0, 5.0]])
    want = [np.log(sum(multivariate_normal(m, 0.5 * np.eye(3)).pdf(row) / 3 for m in h)) for row in x]
    assert fitted.score(of_features(x, [0, 0])) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("reg", [np.inf, np.nan, -1.0])
def test_gmm_refuses_a_regularisation_that_is_no_variance(reg):
    with pytest.raises(InvalidInput, match="reg must be"):
        module.GaussianMixtures(reg=reg).fit(np.eye(4), np.zeros(4, int))
