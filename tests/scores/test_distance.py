"""Distances and angles: golden values, slow independent forms, invariances, degenerate worlds."""

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores._fitting.moments import Moments, whitening
from twofold.scores.chain import scorer


def world(n=90, seed=0, classes=3, width=4):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    features = rng.normal(size=(n, width)) + 2 * np.eye(classes, width)[labels]
    head = Head(np.random.default_rng(5).normal(size=(classes, width)), np.arange(classes) / 10)
    return Outputs(head.logits(features), labels, features, head)


def rows(o):
    return np.asarray(o.features), np.asarray(o.labels), np.asarray(o.predictions), np.asarray(o.logits)


def test_moments_are_those_of_numpy_and_add_up():
    h, y, _, _ = rows(world(10_000))  # several blocks
    y = np.where(np.arange(len(y)) % 7 == 0, -1, y)
    whole = Moments.of(h, y, 5)
    kept, truth = h[y >= 0], y[y >= 0]
    assert whole.mean == pytest.approx(kept.mean(axis=0))
    assert whole.covariance == pytest.approx(np.cov(kept.T, bias=True))
    means = np.stack([kept[truth == k].mean(axis=0) for k in range(3)])
    assert whole.class_means[:3] == pytest.approx(means)
    assert whole.class_means[3] == pytest.approx(kept.mean(axis=0))
    away = kept - means[truth]
    assert whole.within == pytest.approx(away.T @ away / len(kept))
    parts = Moments.of(h[:3333], y[:3333], 5) + Moments.of(h[3333:], y[3333:], 5)
    for name in ("mean", "class_means", "covariance", "within"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name)), name


def test_moments_far_from_zero_keep_their_digits():
    h, y, _, _ = rows(world(500))
    near, far = Moments.of(h, y, 3), Moments.of(h + 1e7, y, 3)
    assert far.within == pytest.approx(near.within, rel=1e-6)


def test_whitening_inverts_the_covariance():
    a = np.random.default_rng(0).normal(size=(5, 5))
    sigma = a @ a.T
    half = whitening(sigma)
    assert half @ half.T == pytest.approx(np.linalg.inv(sigma))
    with pytest.raises(InvalidInput, match="do not vary"):
        whitening(np.zeros((2, 2)))


@pytest.mark.parametrize("covariance", ["within", "total"])
@pytest.mark.parametrize("nearest", [True, False])
def test_mds_is_the_quadratic_form(covariance, nearest):
    train, test = world(), world(20, seed=1)
    got = scorer(f"mds(covariance={covariance!r}, nearest={nearest})").fit(train).score(test)
    h, y, _, _ = rows(train)
    means = [h[y == k].mean(axis=0) for k in range(3)]
    away = h - (np.stack(means)[y] if covariance == "within" else h.mean(axis=0))
    precision = np.linalg.inv(away.T @ away / len(h))
    for value, x, k in zip(got, np.asarray(test.features), np.asarray(test.predictions), strict=True):
        each = [(x - m) @ precision @ (x - m) for m in means]
        assert value == pytest.approx(-(min(each) if nearest else each[k]), rel=1e-9)


def test_rmds_is_the_difference_of_quadratic_forms():
    train, test = world(), world(20, seed=1)
    got = scorer("rmds").fit(train).score(test)
    h, y, _, _ = rows(train)
    means = np.stack([h[y == k].mean(axis=0) for k in range(3)])
    away = h - means[y]
    within, total = np.linalg.inv(away.T @ away / len(h)), np.linalg.inv(np.cov(h.T, bias=True))
    for value, x in zip(got, np.asarray(test.features), strict=True):
        whole = (x - h.mean(axis=0)) @ total @ (x - h.mean(axis=0))
        assert value == pytest.approx(-min((x - m) @ within @ (x - m) - whole for m in means), rel=1e-8)


@pytest.mark.parametrize("spec", ["mds", "rmds"])
def test_invertible_linear_maps_change_nothing(spec):
    train, test = world(), world(20, seed=1)
    a = np.random.default_rng(3).normal(size=(4, 4)) + 3 * np.eye(4)

    def mapped(o):
        return Outputs(o.logits, o.labels, np.asarray(o.features) @ a.T + 1.0)

    again = scorer(spec).fit(mapped(train)).score(mapped(test))
    assert again == pytest.approx(scorer(spec).fit(train).score(test), rel=1e-8)


@pytest.mark.parametrize("spec", ["mds", "rmds"])
def test_degenerate_features(spec):
    train = world()
    h, y, _, z = rows(train)
    dead = np.hstack([h, np.zeros((len(h), 2)), h[:, :1]])  # dead units, a copied one
    test = np.hstack([h[:9], np.zeros((9, 2)), h[:9, :1]])
    got = scorer(spec).fit(Outputs(z, y, dead)).score(Outputs(z[:9], y[:9], test))
    assert got == pytest.approx(scorer(spec).fit(train).score(train[:9]), rel=1e-6)
    wide = np.random.default_rng(0).normal(size=(12, 30))  # more features than rows
    few = scorer(spec).fit(Outputs(z[:12], y[:12], wide))
    assert np.isfinite(few.score(Outputs(z[:12], y[:12], wide))).all()
    with pytest.raises(InvalidInput, match="do not vary"):
        scorer(spec).fit(Outputs(z, y, np.ones((len(h), 3))))


def test_classes_without_rows_are_skipped():
    o = world(classes=3)
    h, y, _, z = rows(o)
    some = Outputs(z, np.where(y == 2, 0, y), h)
    assert np.isfinite(scorer("mds").fit(some).score(some)).all()
    with pytest.raises(InvalidInput, match="class 2 is predicted, and had no training row"):
        scorer("mds(nearest=False)").fit(some).score(some.replace(predictions=np.full(len(y), 2)))


@pytest.mark.parametrize("kind", ["inner", "cosine", "euclidean"])
def test_she_against_loops(kind):
    train, test = world(), world(20, seed=1)
    got = scorer(f"she(kind={kind!r})").fit(train).score(test)
    h, y, k, _ = rows(train)
    for value, x, c in zip(got, np.asarray(test.features), np.asarray(test.predictions), strict=True):
        mine = h[(y == c) & (k == c)] if ((y == c) & (k == c)).any() else h[y == c]
        m = mine.mean(axis=0)
        want = {
            "inner": x @ m,
            "cosine": x @ m / np.linalg.norm(x) / np.linalg.norm(m),
            "euclidean": -np.linalg.norm(x - m),
        }[kind]
        assert value == pytest.approx(want, rel=1e-9)


def test_she_without_right_answers():
    o = world()
    wrong = o.replace(predictions=(np.asarray(o.labels) + 1) % 3)
    h, y, _, _ = rows(o)
    pattern = np.stack([h[y == k].mean(axis=0) for k in range(3)])
    got = scorer("she").fit(wrong).score(wrong)
    assert got == pytest.approx((h * pattern[np.asarray(wrong.predictions)]).sum(axis=1))


def test_cosines_against_loops():
    train, test = world(), world(20, seed=1)
    h, y, _, _ = rows(train)
    weights = np.asarray(train.head.weight)
    means = [h[y == k].mean(axis=0) for k in range(3)]

    def best(x, directions):
        return max(x @ d / np.linalg.norm(x) / np.linalg.norm(d) for d in directions)

    assert scorer("ctm").score(test) == pytest.approx([best(x, weights) for x in np.asarray(test.features)])
    mean_scores = scorer("ctm_mean").fit(train).score(test)
    assert mean_scores == pytest.approx([best(x, means) for x in np.asarray(test.features)])


@pytest.mark.parametrize("center", [True, False])
def test_fdbd_is_the_mean_distance_to_the_boundaries(center):
    train, test = world(), world(20, seed=1)
    got = scorer(f"fdbd(center={center})").fit(train).score(test)
    w, b = np.asarray(train.head.weight), np.asarray(train.head.bias)
    middle = np.asarray(train.features).mean(axis=0) if center else 0.0
    for value, x, c in zip(got, np.asarray(test.features), np.asarray(test.predictions), strict=True):
        apart = [abs((w[c] - w[k]) @ x + b[c] - b[k]) / np.linalg.norm(w[c] - w[k]) for k in range(3) if k != c]
        assert value == pytest.approx(np.mean(apart) / np.linalg.norm(x - middle), rel=1e-9)


@pytest.mark.parametrize("rows_of_head", [[0, 1], [0, 1, 1], [0, 0, 1, 2], [1, 1]])
def test_fdbd_averages_over_the_classes_that_have_a_boundary(rows_of_head):
    """Two classes have one boundary; classes with equal rows have none between them and are not counted."""
    o = world()
    head = Head(np.asarray(o.head.weight)[rows_of_head], np.zeros(len(rows_of_head)))
    h = np.asarray(o.features)
    twin = Outputs(head.logits(h), np.zeros(len(h), int), h, head)
    got = scorer("fdbd").fit(twin).score(twin)
    w, middle = np.asarray(head.weight), h.mean(axis=0)
    for value, x, c in zip(got, h, np.asarray(twin.predictions), strict=True):
        others = [k for k in range(len(w)) if np.linalg.norm(w[c] - w[k]) > 0]
        apart = [(w[c] - w[k]) @ x / np.linalg.norm(w[c] - w[k]) for k in others]
        want = sum(apart) / len(apart) / np.linalg.norm(x - middle) if others else 0.0
        assert value == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_gradnorm_golden_and_finite_differences():
    h, z = np.array([1.0, 2.0, 0.5, 0.0]), np.array([2.0, 1.0, 0.1])
    got = scorer("gradnorm").score(Outputs(z[None], None, h[None]))
    assert got == pytest.approx(2.27967464, abs=5e-9)

    def divergence(weight):  # of the uniform distribution from softmax(W h), W chosen to give z
        logits = weight @ h
        return -np.mean(logits - np.log(np.exp(logits).sum()))

    weight = np.outer(z, h) / (h @ h)
    step, total = 1e-6, 0.0
    for i in range(3):
        for j in range(4):
            bump = np.zeros((3, 4))
            bump[i, j] = step
            total += abs(divergence(weight + bump) - divergence(weight - bump)) / (2 * step)
    assert got == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("spec", ["mds", "rmds", "she", "cosine_mean", "fdbd"])
def test_a_memory_mapped_training_set_is_read_in_blocks(spec, tmp_path):
    from twofold.run import Run

    train = world(9000)
    run = Run.create(tmp_path / "run", model="m")
    run.add("train", train, role="train")
    mapped = scorer(spec).fit(run["train"])
    assert mapped.score(train[:50]) == pytest.approx(scorer(spec).fit(train).score(train[:50]), rel=1e-9)


@pytest.mark.parametrize("alpha", [0.0001, 0.1])
def test_nci_is_alignment_plus_length(alpha):
    train, test = world(), world(20, seed=1)
    got = scorer(f"nci(alpha={alpha})").fit(train).score(test)
    h, _, k, _ = rows(test)
    mean = rows(train)[0].mean(axis=0)
    w = np.asarray(test.head.weight)
    for value, x, c in zip(got, h, k, strict=True):
        away = x - mean
        assert value == pytest.approx(w[c] @ away / np.sqrt(away @ away) + alpha * sum(abs(x)))


@pytest.mark.parametrize("spec", ["gradnorm", "nci(alpha=1)"])
def test_lengths_of_a_cosine_head_are_those_before_it(spec):
    train = world()
    raw = np.asarray(train.features) * 5
    five = train.replace(layers={"penultimate/raw": raw})
    plain, longer = scorer(spec).fit(train).score(train), scorer(spec).fit(five).score(five)
    length = np.abs(np.asarray(train.features)).sum(axis=1)
    want = 5 * plain if spec == "gradnorm" else plain + 4 * length
    assert longer == pytest.approx(want)
