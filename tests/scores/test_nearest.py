"""Trust score, CF-OOD and CombOOD against loops over all pairs, scikit-learn and SciPy."""

import numpy as np
import pytest
from score_worlds import arrays, world

from twofold.errors import InvalidInput
from twofold.scores.chain import scorer
from twofold.scores.nearest import nearest_rows, yeo_johnson

TRAIN, TEST = world(), world(25, seed=1)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_nearest_rows_against_a_loop_over_several_tiles(monkeypatch):
    monkeypatch.setattr("twofold.scores.nearest.TILE", 11)
    rng = np.random.default_rng(0)
    bank, queries, classes = rng.normal(size=(40, 3)), rng.normal(size=(9, 3)), np.arange(40) % 3
    without = np.arange(9) % 3
    got, allowed = nearest_rows(bank, queries), nearest_rows(bank, queries, classes=classes, without=without)
    for query, place, other, c in zip(queries, got, allowed, without, strict=True):
        distance = np.linalg.norm(bank - query, axis=1)
        assert place == distance.argmin()
        assert other == np.where(classes == c, np.inf, distance).argmin()
    assert (nearest_rows(bank, queries, classes=np.zeros(40, int), without=np.zeros(9, int)) == -1).all()


def test_trust_against_a_loop():
    got = scorer("trust").fit(TRAIN).score(TEST)
    h, _, labels, _ = arrays(TRAIN)
    for value, row, c in zip(got, arrays(TEST)[0], arrays(TEST)[3], strict=True):
        distance = [min(np.linalg.norm(row - other) for other in h[labels == k]) for k in range(4)]
        other = min(d for k, d in enumerate(distance) if k != c)
        assert value == pytest.approx(other / (distance[c] + 1e-12), rel=1e-9)


def test_trust_leaves_out_rows_in_sparse_regions():
    fitted = scorer("trust(alpha=0.3, k=3)").fit(TRAIN).steps[0].learnt
    h, _, labels, _ = arrays(TRAIN)
    for c in range(4):
        own = h[labels == c]
        radius = np.array([sorted(np.linalg.norm(own - row, axis=1))[2] for row in own])
        kept = own[radius <= np.percentile(radius, 70.0)]
        assert fitted.bank[fitted.classes == c] == pytest.approx(kept)
        assert len(kept) < len(own)


def test_a_class_without_rows_is_infinitely_far_away():
    some = TRAIN[np.flatnonzero(np.asarray(TRAIN.labels) != 3)]
    got = scorer("trust").fit(some).score(TEST.replace(predictions=np.full(25, 3)))
    assert (got == 0.0).all()


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_cfood_against_a_loop(share):
    got = scorer(f"cfood(share={share})").fit(TRAIN).score(TEST)
    bank, n = unit(arrays(TRAIN)[0]), 90
    grid = [*np.linspace(0.001, 0.1, 100), *np.linspace(0.105, 0.5, 81), *np.linspace(0.51, 0.99, 49)]
    radii = []
    for i in range(n):
        others = sorted(((bank[i] - bank[j]) ** 2).sum() for j in range(n) if j != i)
        radii.append([others[int(fraction * n - 1)] for fraction in grid])
    for value, query in zip(got, unit(arrays(TEST)[0]), strict=True):
        squares = ((bank - query) ** 2).sum(axis=1)
        kappa = 1.0
        for fraction, radius in zip(grid, np.transpose(radii), strict=True):
            if sum(squares <= radius) / n >= share:
                kappa = fraction
                break
        assert value == -kappa


def test_cfood_takes_a_share_or_every_row():
    whole, half = scorer("cfood(fraction=1.0)").fit(TRAIN), scorer("cfood(fraction=0.5)").fit(TRAIN)
    assert len(whole.steps[0].learnt.bank) == 90
    assert len(half.steps[0].learnt.bank) == 45
    assert (half.score(TEST) == scorer("cfood(fraction=0.5)").fit(TRAIN).score(TEST)).all()
    with pytest.raises(InvalidInput, match="compares references"):
        scorer("cfood").fit(TRAIN[:1])


def extremes(outputs, of):
    h, z, _, _ = arrays(outputs)
    if of == "penultimate":
        return unit(h)
    columns = [z.max(axis=1), -z.min(axis=1)]
    for name in ("relu1", "relu2"):
        columns += [outputs.layers[f"{name}/max"][:, 0], -outputs.layers[f"{name}/min"][:, 0]]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("of", ["layers", "penultimate"])
def test_combood_against_scikit_learn(of):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    got = scorer(f"combood(of={of!r}, k=7, ridge=0.5)").fit(TRAIN).score(TEST)
    scale = preprocessing.StandardScaler().fit(extremes(TRAIN, of))
    power = preprocessing.PowerTransformer("yeo-johnson").fit(scale.transform(extremes(TRAIN, of)))
    train, test = (power.transform(scale.transform(extremes(o, of))) for o in (TRAIN, TEST))
    precision = np.linalg.inv(np.cov(train.T) + 0.5 * np.eye(train.shape[1]))
    bank = unit(arrays(TRAIN)[0])
    for value, x, query in zip(got, test, unit(arrays(TEST)[0]), strict=True):
        square = sorted(((bank - query) ** 2).sum(axis=1))[6]
        assert value == pytest.approx(-np.sqrt(7) * np.log(square) - x @ precision @ x, rel=1e-4)


def test_combood_floors_the_distance_of_a_row_in_the_bank():
    got = scorer("combood(of='penultimate', k=1)").fit(TRAIN).score(TRAIN)
    assert np.isfinite(got).all()


def test_combood_without_extremes_says_how_to_record_them():
    bare = TRAIN.replace(layers={})
    with pytest.raises(InvalidInput, match="--extremes"):
        scorer("combood").fit(bare)
    with pytest.raises(InvalidInput, match="combood needs"):
        scorer("combood").fit(TRAIN).score(TEST.replace(layers={"relu1/max": TEST.layers["relu1/max"]}))


def test_power_transform_is_that_of_scipy():
    from scipy.stats import yeojohnson

    x = np.random.default_rng(0).normal(size=50) * 2
    for power in (-1.3, 0.0, 0.7, 2.0, 3.1):
        assert yeo_johnson(x[:, None], np.array([power]))[:, 0] == pytest.approx(yeojohnson(x, power), rel=1e-9)
