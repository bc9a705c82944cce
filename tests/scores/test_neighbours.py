"""Neighbour scores against brute force in float64, scikit-learn and faiss; crowded and degenerate banks."""

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.chain import load_chain, scorer
from twofold.scores.neighbours import TILE, Search, draw_stratified, largest, search_together, unit
from twofold.scores.scoring import score_all


def world(n=120, seed=0, classes=3, width=5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    features = (rng.normal(size=(n, width)) + 2 * np.eye(classes, width)[labels]).astype(dtype)
    head = Head(np.random.default_rng(5).normal(size=(classes, width)).astype(dtype))
    return Outputs(head.logits(features).astype(dtype), labels, features, head)


def cosines(test, train):
    q, b = np.asarray(test.features, np.float64), np.asarray(train.features, np.float64)
    return np.array([[x @ y / np.sqrt((x @ x) * (y @ y)) for y in b] for x in q])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("k", [1, 7, 120])
def test_knn_is_the_distance_to_the_kth_row(dtype, k):
    train, test = world(dtype=dtype), world(25, seed=1, dtype=dtype)
    got = scorer(f"knn(k={k})").fit(train).score(test)
    for value, row in zip(got, cosines(test, train), strict=True):
        assert value == pytest.approx(2 * sorted(row)[-k] - 2, abs=1e-12 if dtype == np.float64 else 3e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_search_is_exact_where_float32_is_not(dtype):
    """Thousands of rows closer to one another than float32 resolves, as collapsed features are."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(3, 32))
    bank = unit((base[rng.integers(0, 3, 9000)] + 1e-7 * rng.normal(size=(9000, 32))).astype(dtype))
    queries = unit(base[[0, 1, 2]] + 1e-7 * rng.normal(size=(3, 32)))
    whole = -np.sort(-(queries @ bank.astype(np.float64).T), axis=1)
    for k in (1, 5, 50):
        every, places = largest(bank, queries, k)
        assert every == pytest.approx(whole[:, :k], abs=1e-15)
        assert np.take_along_axis(queries @ bank.astype(np.float64).T, places, axis=1) == pytest.approx(
            every, abs=1e-15
        )
        some, _ = largest(bank, queries, k, only=[k])
        assert some[:, -1] == pytest.approx(whole[:, k - 1], abs=1e-15)


def test_search_over_several_tiles():
    rng = np.random.default_rng(0)
    bank, queries = unit(rng.normal(size=(TILE[1] + 77, 6))), unit(rng.normal(size=(TILE[0] + 5, 6)))
    got, _ = largest(bank, queries, 9, scale=rng.random(len(bank)) + 0.5)
    rng = np.random.default_rng(0)
    rng.normal(size=(TILE[1] + 77, 6)), rng.normal(size=(TILE[0] + 5, 6))
    whole = -np.sort(-(queries @ bank.T) * (rng.random(len(bank)) + 0.5), axis=1)[:, :9]
    assert got == pytest.approx(whole, abs=1e-13)


def test_halves_equal_the_whole_in_single_precision():
    train, test = world(3000, width=40, dtype=np.float32), world(1500, seed=1, width=40, dtype=np.float32)
    for name in ("knn", "nnguide", "lof"):
        chain = scorer(name).fit(train)
        halves = np.concatenate([chain.score(test[:333]), chain.score(test[333:])])
        assert halves == pytest.approx(chain.score(test), rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_product_serves_every_search_of_a_bank(monkeypatch, dtype):
    train, test = world(dtype=dtype), world(30, seed=1, dtype=dtype)
    specs = [
        "knn(k=3)",
        "nnguide",
        "knn(k=50)",
        "combood(of='penultimate', k=7)",
        "knn(k=10)",
        "nnguide(k=2)",
        "knn(k=3)",
    ]
    chains = [scorer(spec).fit(train) for spec in specs]
    other_bank = scorer("knn(k=5, fraction=0.5)").fit(train)
    alone = [chain.score(test) for chain in (*chains, other_bank)]
    from twofold.scores import neighbours

    banks = []
    product = neighbours._candidates

    def counted(bank, queries, searches):
        banks.append(len(bank))
        return product(bank, queries, searches)

    monkeypatch.setattr(neighbours, "_candidates", counted)
    together = score_all([*chains, other_bank, scorer("mls")], test)
    assert sorted(banks) == [60, 120]
    for one, other in zip(alone, together, strict=False):
        assert np.array_equal(one, other)


def test_several_searches_equal_each_alone():
    rng = np.random.default_rng(3)
    bank, queries = unit(rng.normal(size=(5000, 6))), unit(rng.normal(size=(1100, 6)))
    searches = [
        Search(3),
        Search(40, only=(7, 40)),
        Search(9, scale=rng.random(5000) + 0.5),
        Search(5, scale=np.full(5000, 2.0), shift=-np.ones(5000)),
    ]
    found = search_together(bank, queries, searches)
    for search, (values, places) in zip(searches, found, strict=True):
        scale = 1.0 if search.scale is None else search.scale
        shift = 0.0 if search.shift is None else search.shift
        plain = -np.sort(-(queries @ bank.T * scale + shift), axis=1)[:, : search.k]
        ranks = [rank - 1 for rank in search.only] or list(range(search.k))
        assert values[:, ranks] == pytest.approx(plain[:, ranks], abs=1e-13)
        assert places.shape == plain.shape
    with pytest.raises(InvalidInput, match="k=9 neighbours were asked for, and the bank has 4 rows"):
        search_together(bank[:4], queries, [Search(2), Search(9)])


def test_knn_defaults_and_limits():
    few = world(20)
    assert scorer("knn").fit(few).steps[0].instance.rank == 20
    assert scorer("knn").fit(world(90)).steps[0].instance.rank == 50
    with pytest.raises(InvalidInput, match=r"knn\(k=21\): the bank has 20 rows; choose a smaller k"):
        scorer("knn(k=21)").fit(few)
    with pytest.raises(InvalidInput, match="index: no choice 'hnsw'"):
        scorer("knn(index='hnsw')").fit(few)
    assert len(scorer("knn(fraction=0.5)").fit(few).steps[0].instance.bank) == 10
    zeros = few.replace(features=np.zeros((20, 5)), head=None)
    assert (scorer("knn").fit(few).score(zeros) == -2.0).all()


class Slow:
    """A user's index: brute force, distances instead of products."""

    def __init__(self, width):
        self.rows = np.empty((0, width), np.float32)

    def add(self, rows):
        self.rows = np.concatenate([self.rows, rows])

    def search(self, rows, k):
        far = np.linalg.norm(rows[:, None] - self.rows[None], axis=2)
        order = np.argsort(far, axis=1)[:, :k]
        return np.take_along_axis(far, order, axis=1), order


def test_knn_takes_an_index_of_ones_own(tmp_path):
    train, test = world(), world(30, seed=1)
    own = scorer("knn(k=4)", index=Slow).fit(train)
    assert own.score(test) == pytest.approx(scorer("knn(k=4)").fit(train).score(test), abs=1e-12)
    with pytest.raises(InvalidInput, match="holds an object of yours, which is not saved"):
        own.save(tmp_path / "c")


def test_knn_takes_faiss(tmp_path):
    pytest.importorskip("faiss", reason="faiss is not installed")
    train, test = world(), world(30, seed=1)
    chain = scorer("knn(k=4, index='faiss')").fit(train)
    assert chain.score(test) == pytest.approx(scorer("knn(k=4)").fit(train).score(test), abs=1e-12)
    chain.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == chain.score(test)).all()


@pytest.mark.parametrize("base", ["energy", "mls", "msp", "entropy", "klm"])
def test_nnguide_is_score_times_guidance(base):
    train, test = world(), world(25, seed=1)
    chain = scorer(f"nnguide(k=4, base={base!r})").fit(train)
    inner = scorer(base).fit(train)
    on_train, on_test = inner.score(train), inner.score(test)
    shift = float(chain.steps[0].instance.shift)
    assert (on_train + shift).min() > 0
    assert shift == 0 or on_train.min() <= 0
    for value, s, row in zip(chain.score(test), on_test, cosines(test, train), strict=True):
        guidance = np.mean(sorted((on_train + shift) * row)[-4:])
        assert value == pytest.approx((s + shift) * guidance, rel=1e-9)


def test_nnguide_bank_holds_every_class():
    labels = np.sort(np.arange(1000) % 10)  # a list sorted by class
    kept = draw_stratified(labels, 50, seed=3)
    assert np.bincount(labels[kept]).tolist() == [5] * 10
    assert (np.diff(kept) > 0).all()
    assert (draw_stratified(labels, 50, seed=3) == kept).all()
    assert (draw_stratified(labels, 50, seed=4) != kept).any()
    assert (draw_stratified(labels, 1000, seed=0) == np.arange(1000)).all()
    train = world(900)
    fitted = scorer("nnguide(fraction=0.1)").fit(train).steps[0].instance
    assert fitted.bank.shape == (90, 5)
    rows = {tuple(row) for row in np.round(unit(np.asarray(train.features)), 12)}
    assert all(tuple(row) in rows for row in np.round(fitted.bank, 12))


def test_nnguide_errors():
    with pytest.raises(InvalidInput, match="the base must need logits alone, not features"):
        scorer("nnguide(base='knn')").fit(world())
    with pytest.raises(InvalidInput, match="the bank has 2 rows"):
        scorer("nnguide(fraction=0.02)").fit(world())
    with pytest.raises(InvalidInput, match=r"fraction must be in \(0, 1\]"):
        scorer("nnguide(fraction=0)").fit(world())


@pytest.mark.parametrize("power", [1, 4])
def test_relation_is_the_sum_over_pairs(power):
    train, test = world(), world(25, seed=1)
    got = scorer(f"relation(power={power})").fit(train).score(test)

    def probabilities(o):
        e = np.exp(np.asarray(o.logits))
        return e / e.sum(axis=1, keepdims=True)

    p, q = probabilities(train), probabilities(test)
    for value, row, answer in zip(got, cosines(test, train), q, strict=True):
        total = 0.0
        for c, other in zip(row, p, strict=True):
            r = max(c, 0.0) * float(answer @ other)
            total += r**power if r > 0.03 else 0.0
        assert value == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_lof_is_that_of_scikit_learn(k):
    from sklearn.neighbors import LocalOutlierFactor

    train, test = world(), world(40, seed=1)
    theirs = LocalOutlierFactor(n_neighbors=k, novelty=True, algorithm="brute").fit(np.asarray(train.features))
    got = scorer(f"lof(k={k})").fit(train).score(test)
    assert got == pytest.approx(theirs.score_samples(np.asarray(test.features)), rel=1e-9)


def test_lof_of_duplicates_and_limits():
    train = world(60)
    twice = Outputs.concat([train, train, train])
    assert np.isfinite(scorer("lof(k=2)").fit(twice).score(train)).all()
    assert scorer("lof(rows=30, k=5)").fit(train).steps[0].instance.bank.shape == (30, 5)
    with pytest.raises(InvalidInput, match=r"lof\(k=20\): each of 20 training rows has 19 others"):
        scorer("lof").fit(world(20))


@pytest.mark.parametrize("spec", ["knn", "nnguide", "relation"])
def test_bank_is_shared_between_scores(spec):
    train = world()
    first, second = scorer(spec).fit(train), scorer("knn(k=2)").fit(train)
    assert first.steps[0].instance.bank is second.steps[0].instance.bank


@pytest.mark.parametrize("length", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("factor", [None, 2.0])
@pytest.mark.parametrize("noise", [1.0, 1e-7])
def test_search_by_distance_is_that_of_all_products(noise, factor, length):
    """With the shift that turns products into distances; also where the rows are equal in float32."""
    rng = np.random.default_rng(1)
    bank = length * unit(rng.normal(size=(1, 16)) + noise * rng.normal(size=(3000, 16)))
    queries = length * unit(rng.normal(size=(4, 16)))
    shift = -(factor or 1.0) / 2.0 * (bank**2).sum(axis=1)
    scale = None if factor is None else np.full(len(bank), factor)
    whole = (factor or 1.0) * queries @ bank.T + shift
    got, places = largest(bank, queries, 7, scale=scale, shift=shift)
    assert got == pytest.approx(-np.sort(-whole, axis=1)[:, :7], rel=1e-13, abs=1e-15 * length**2)
    assert np.take_along_axis(whole, places, axis=1) == pytest.approx(got, rel=1e-13, abs=1e-15 * length**2)


@pytest.mark.parametrize("spec", ["knn(k=1)", "lof(k=1)"])
def test_one_neighbour_is_enough_for_a_saved_score(spec, tmp_path):
    train, test = world(), world(20, seed=1)
    fitted = scorer(spec).fit(train)
    fitted.save(tmp_path / "chain")
    assert np.array_equal(load_chain(tmp_path / "chain").score(test), fitted.score(test))
