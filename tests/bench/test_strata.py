"""Proximity strata: published groupings, slow forms of every distance, brute-force partitions, invariances."""

import json
import sys
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg

from twofold.bench.strata import Distances, centroid, clip, distances, frechet, mmd, strata, text
from twofold.errors import InvalidInput, MissingExtra, UnknownName

# mmd, frechet, text, centroid, group: as printed, without the rows of the source itself
PUBLISHED = {
    "CIFAR-10": {
        "CIFAR-100": (0.0002, 0.1592, 0.7885, 0.8085, "near"),
        "TinyImagenet": (0.0009, 0.3233, 0.8060, 0.9256, "near"),
        "iSUN": (0.0015, 0.4890, 0.7943, 0.8393, "mid"),
        "LSUN resize": (0.0016, 0.5248, 0.8045, 0.8634, "mid"),
        "LSUN cropped": (0.0015, 0.5129, 0.7797, 0.8168, "mid"),
        "SVHN": (0.0020, 0.7009, 0.7744, 0.8607, "mid"),
        "Places 365": (0.0021, 0.6379, 0.8337, 1.1471, "far"),
        "Textures": (0.0020, 0.6698, 0.8231, 1.0647, "far"),
    },
    "SuperCIFAR-100": {
        "CIFAR-10": (0.0002, 0.1705, 0.7701, 0.7511, "near"),
        "TinyImagenet": (0.0008, 0.2307, 0.7840, 0.8738, "near"),
        "iSUN": (0.0012, 0.3856, 0.7607, 0.7425, "mid"),
        "LSUN resize": (0.0013, 0.4244, 0.7625, 0.7720, "mid"),
        "LSUN cropped": (0.0011, 0.3999, 0.7696, 0.7351, "mid"),
        "SVHN": (0.0017, 0.6208, 0.7566, 0.8012, "mid"),
        "Places 365": (0.0020, 0.5562, 0.7939, 1.0964, "far"),
        "Textures": (0.0016, 0.5246, 0.7980, 1.0003, "far"),
    },
    "CIFAR-100": {
        "CIFAR-10": (0.0002, 0.1590, 0.7494, 0.7268, "near"),
        "TinyImagenet": (0.0008, 0.2235, 0.7512, 0.8436, "near"),
        "iSUN": (0.0012, 0.3829, 0.7484, 0.7128, "mid"),
        "LSUN resize": (0.0013, 0.4204, 0.7562, 0.7388, "mid"),
        "LSUN cropped": (0.0011, 0.3999, 0.7364, 0.7120, "mid"),
        "SVHN": (0.0017, 0.6222, 0.7511, 0.7789, "mid"),
        "Places 365": (0.0019, 0.5456, 0.7752, 1.0568, "far"),
        "Textures": (0.0016, 0.5232, 0.7613, 0.9780, "far"),
    },
    "TinyImagenet": {
        "CIFAR-100": (0.0008, 0.2224, 0.7279, 0.7956, "near"),
        "CIFAR-10": (0.0009, 0.3220, 0.7288, 0.7979, "near"),
        "iSUN": (0.0012, 0.3808, 0.7468, 0.7063, "near"),
        "LSUN resize": (0.0013, 0.4039, 0.7500, 0.7186, "near"),
        "LSUN cropped": (0.0016, 0.4989, 0.7406, 0.7503, "near"),
        "Places 365": (0.0014, 0.3887, 0.7645, 0.9846, "mid"),
        "Textures": (0.0014, 0.4697, 0.7528, 0.9317, "mid"),
        "SVHN": (0.0025, 0.7948, 0.7409, 0.8726, "far"),
    },
}
MEASURES = ("mmd", "frechet", "text", "centroid")


def published(source):
    return Distances.of({s: dict(zip(MEASURES, row[:4], strict=True)) for s, row in PUBLISHED[source].items()})


def cloud(n=60, width=5, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)) @ rng.normal(size=(width, width)) + shift


@pytest.mark.parametrize("source", PUBLISHED)
def test_the_published_groupings_follow_from_the_published_distances(source):
    got = strata(published(source))
    want = {name: row[4] for name, row in PUBLISHED[source].items()}
    assert {name: got.of(name) for name in want} == want
    assert got.centres["near"] < got.centres["mid"] < got.centres["far"]
    assert 0 < got.within < got.runner_up < got.total


@pytest.mark.parametrize("source", PUBLISHED)
def test_no_start_of_k_means_finds_a_better_partition(source):
    from sklearn.cluster import KMeans

    values = published(source).values
    z = (values - values.mean(axis=0)) / values.std(axis=0)
    best = min(KMeans(3, n_init=20, random_state=s).fit(z).inertia_ for s in range(5))
    assert strata(published(source)).within == pytest.approx(best)
    assert strata(published(source)).total == pytest.approx(z.size)


def brute(z, groups):
    """Least sum of squares inside groups over all labelings, and the labelings that reach it, as sets of sets."""
    found = {}
    for labels in product(range(groups), repeat=len(z)):
        if len(set(labels)) < groups:
            continue
        cells = frozenset(frozenset(np.flatnonzero(np.array(labels) == g).tolist()) for g in range(groups))
        if cells not in found:
            found[cells] = sum(((z[list(c)] - z[list(c)].mean(axis=0)) ** 2).sum() for c in cells)
    return found


@pytest.mark.parametrize(
    ("count", "groups", "partitions"), [(3, 3, 1), (4, 2, 7), (6, 3, 90), (8, 3, 966), (8, 2, 127)]
)
def test_the_partition_is_the_best_of_all(count, groups, partitions):
    values = np.random.default_rng(count).gamma(2.0, size=(count, 4))
    names = [f"set {i}" for i in range(count)]
    z = (values - values.mean(axis=0)) / values.std(axis=0)
    found = brute(z, groups)
    assert len(found) == partitions  # Stirling numbers of the second kind
    got = strata(Distances(tuple(names), MEASURES, values), groups=groups)
    best, *others = sorted(found.values())
    assert got.within == pytest.approx(best)
    assert got.runner_up == (pytest.approx(others[0]) if others else float("inf"))
    cells = frozenset(frozenset(names.index(n) for n in members) for members in got.groups.values())
    assert cells == min(found, key=found.get)
    assert list(got.centres.values()) == sorted(got.centres.values())
    for group, members in got.groups.items():
        assert got.centres[group] == pytest.approx(z[[names.index(n) for n in members]].mean())


def test_order_of_sets_units_and_measures_change_nothing():
    table = published("TinyImagenet")
    want = strata(table).groups
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows, columns = rng.permutation(8), rng.permutation(4)
        values = table.values[rows][:, columns] * rng.uniform(0.01, 100, 4) + rng.normal(size=4)
        shuffled = Distances(tuple(table.sets[i] for i in rows), tuple(table.measures[j] for j in columns), values)
        assert strata(shuffled).groups == want


def test_equal_partitions_are_decided_by_name():
    for order in (("a", "b", "c", "d"), ("d", "b", "a", "c")):
        table = Distances.of({name: {"one": {"a": 0, "b": 1, "c": 2, "d": 3}[name] * 0.1} for name in order})
        # {a,b},{c},{d} and {a},{b,c},{d} and {a},{b},{c,d} are equally good
        assert strata(table).groups == {"near": ("a", "b"), "mid": ("c",), "far": ("d",)}
        assert strata(table).runner_up == pytest.approx(strata(table).within)


def test_groups_with_equal_centres_are_ordered_by_name():
    table = {"b": {"x": 0.0, "y": 4.0}, "a": {"x": 4.0, "y": 0.0}}
    assert strata(Distances.of(table), groups=2).groups == {"near": ("a",), "far": ("b",)}


def test_a_measure_that_is_equal_everywhere_counts_nothing():
    table = published("CIFAR-10").to_dict()
    flat = {name: row | {"flat": 0.3} for name, row in table.items()}
    assert strata(Distances.of(flat)) == strata(Distances.of(table))


def test_fourteen_sets_are_the_most():
    values = np.sort(np.random.default_rng(1).normal(size=15))
    row = {f"s{i:02d}": {"d": float(v)} for i, v in enumerate(values)}
    fourteen = dict(list(row.items())[:14])
    got = strata(Distances.of(fourteen))
    x = values[:14]
    cuts = [(i, j) for i in range(1, 13) for j in range(i + 1, 14)]  # on a line the best groups are intervals
    i, j = min(cuts, key=lambda c: sum(((p - p.mean()) ** 2).sum() for p in np.split(x, c)))
    assert [len(m) for m in got.groups.values()] == [i, j - i, 14 - j]
    with pytest.raises(InvalidInput, match=r"3 to 14 OOD sets .* got 15"):
        strata(Distances.of(row))


def test_impossible_requests_say_why():
    two = Distances.of({"a": {"d": 0.0}, "b": {"d": 1.0}})
    with pytest.raises(InvalidInput, match=r"3 groups need 3 to 14 OOD sets .* got 2"):
        strata(two)
    with pytest.raises(InvalidInput, match="groups must be 2"):
        strata(two, groups=4)
    with pytest.raises(InvalidInput, match="same distances"):
        strata(Distances.of({n: {"d": 1.0} for n in "abc"}))
    with pytest.raises(InvalidInput, match="'b' has the measures e, other sets d"):
        Distances.of({"a": {"d": 0.0}, "b": {"e": 1.0}})
    with pytest.raises(InvalidInput, match="must be finite, got nan in row 1"):
        Distances.of({"a": {"d": 0.0}, "b": {"d": float("nan")}})
    with pytest.raises(InvalidInput, match="empty"):
        Distances.of({})
    with pytest.raises(UnknownName, match="did you mean 'SVHN'"):
        strata(published("CIFAR-10")).of("SVNH")


def test_frechet_is_the_formula_with_scipys_matrix_root():
    a, b = cloud(seed=1), cloud(seed=2, n=45, shift=0.5)
    one, two = np.cov(a.T), np.cov(b.T)
    root = scipy.linalg.sqrtm(one)
    inner = scipy.linalg.sqrtm(root @ two @ root)
    want = ((a.mean(axis=0) - b.mean(axis=0)) ** 2).sum() + np.trace(one + two - 2 * inner).real
    assert frechet(a, b) == pytest.approx(want, rel=1e-10)
    assert frechet(b, a) == pytest.approx(want, rel=1e-10)


def test_frechet_of_diagonal_gaussians_has_a_closed_form():
    base = np.vstack([np.eye(3), -np.eye(3)]) * np.sqrt(5 / 2)  # mean 0, covariance exactly the identity
    s, t, shift = np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0, 7.0]), np.array([1.0, -2.0, 0.0])
    assert frechet(base * s, base * t + shift) == pytest.approx(((s - t) ** 2).sum() + (shift**2).sum())


def test_frechet_without_full_rank_is_right_and_finite():
    narrow = cloud(7, 3, seed=3)
    wide = np.zeros((7, 40))
    wide[:, :3] = narrow
    other = np.zeros((9, 40))
    other[:, :3] = cloud(9, 3, seed=4, shift=1.0)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 40)))[0]
    assert frechet(wide @ turn, other @ turn) == pytest.approx(frechet(narrow, other[:, :3]), rel=1e-8)
    assert frechet(wide, wide) == pytest.approx(0.0, abs=1e-12)
    still = np.ones((3, 4))
    assert frechet(still, still + 2) == pytest.approx(16.0)
    assert frechet(still, cloud(9, 4, shift=1)) > 0


def test_frechet_keeps_its_digits_far_from_zero_and_over_several_blocks():
    a, b = cloud(5000, 4, seed=5), cloud(4500, 4, seed=6, shift=0.3)
    assert frechet(a + 1e6, b + 1e6) == pytest.approx(frechet(a, b), rel=1e-6)
    want = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(np.cov(a.T) + np.cov(b.T))
    want -= 2 * np.trace(scipy.linalg.sqrtm(np.cov(a.T) @ np.cov(b.T)).real)
    assert frechet(a, b) == pytest.approx(want, rel=1e-9)


def slow_mmd(a, b, degree, coef0, scale):
    def k(u, v):
        return (scale * sum(x * y for x, y in zip(u, v, strict=True)) + coef0) ** degree

    n, m = len(a), len(b)
    within_a = sum(k(a[i], a[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_b = sum(k(b[i], b[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return within_a + within_b - 2 * sum(k(u, v) for u in a for v in b) / (n * m)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [({}, 1 / 5), ({"degree": 2, "coef0": 0.5}, 1 / 5), ({"degree": 1, "coef0": 0, "scale": 2.5}, 2.5)],
)
def test_mmd_is_the_double_loop(settings, scale):
    a, b = cloud(13, seed=1), cloud(9, seed=2, shift=0.4)
    want = slow_mmd(a.tolist(), b.tolist(), settings.get("degree", 3), settings.get("coef0", 1), scale)
    assert mmd(a, b, **settings) == pytest.approx(want, rel=1e-9)
    assert mmd(b, a, **settings) == pytest.approx(want, rel=1e-9)


def test_mmd_in_blocks_is_mmd_at_once(monkeypatch):
    a, b = cloud(50, seed=1), cloud(37, seed=2, shift=0.4)
    whole = mmd(a, b)
    for block in (1, 7, 37, 50):
        monkeypatch.setattr("twofold.bench.strata.BLOCK", block)
        assert mmd(a, b) == pytest.approx(whole, rel=1e-10)


def test_mmd_of_equal_distributions_is_zero_in_the_mean():
    rng = np.random.default_rng(0)
    draws = [mmd(rng.normal(size=(20, 3)), rng.normal(size=(30, 3))) for _ in range(2000)]
    assert abs(np.mean(draws)) < 4 * np.std(draws) / np.sqrt(len(draws))
    assert min(draws) < 0 < max(draws)
    assert mmd(rng.normal(size=(200, 3)), rng.normal(size=(200, 3)) + 2) > 1


def test_linear_mmd_estimates_the_gap_of_the_means():
    a, b = cloud(400, seed=1), cloud(300, seed=1, shift=1.0)
    gap = ((a.mean(0) - b.mean(0)) ** 2).sum()
    bias = np.trace(np.cov(a.T)) / 400 + np.trace(np.cov(b.T)) / 300
    assert mmd(a, b, degree=1, coef0=0, scale=1.0) == pytest.approx(gap - bias, rel=1e-9)


def test_centroid_and_text_are_slow_loops():
    known, labels, rows = cloud(30, seed=1), np.arange(30) % 3 * 4, cloud(11, seed=2)
    unit = [u / np.linalg.norm(u) for u in known]
    centres = [np.mean([u for u, y in zip(unit, labels, strict=True) if y == c], axis=0) for c in (0, 4, 8)]

    def cosine(u, v):
        return u @ v / np.linalg.norm(u) / np.linalg.norm(v)

    best = [max(cosine(row, c) for c in centres) for row in rows]
    assert centroid(rows, known, labels) == pytest.approx(np.mean([np.arccos(c) for c in best]))
    assert centroid(rows, known, labels, kind="cosine") == pytest.approx(np.mean([1 - c for c in best]))
    prompts = cloud(4, seed=3)
    assert text(rows, prompts) == pytest.approx(np.mean([1 - max(cosine(r, p) for p in prompts) for r in rows]))
    assert text(7 * rows, prompts / 3) == pytest.approx(text(rows, prompts))


def test_centroid_of_the_class_directions_is_zero():
    assert centroid(np.eye(3), np.eye(3) * 5, [2, 0, 1]) == pytest.approx(0.0, abs=1e-7)
    assert centroid(-np.eye(2)[:1], np.eye(2)[:1], [0]) == pytest.approx(np.pi)


def test_distances_is_every_measure_on_unit_rows():
    rng = np.random.default_rng(0)
    known, labels = rng.normal(size=(40, 6)) + 1, np.arange(40) % 4
    sets = {"near": rng.normal(size=(25, 6)) + 1, "far": rng.normal(size=(30, 6)).astype(np.float32) - 1}
    texts = rng.normal(size=(4, 6))
    table = distances(known, labels, sets, text=texts)
    assert (table.sets, table.measures) == (("near", "far"), ("frechet", "mmd", "centroid", "text"))
    own = known / np.linalg.norm(known, axis=1, keepdims=True)
    for name, rows in sets.items():
        unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        want = (frechet(own, unit), mmd(own, unit), centroid(rows, known, labels), text(rows, texts))
        assert tuple(table.to_dict()[name].values()) == pytest.approx(want, rel=1e-9)
    assert distances(known, labels, sets).measures == ("frechet", "mmd", "centroid")
    other = distances(known * 3, labels, sets, kind="cosine").to_dict()
    assert other["far"]["frechet"] == pytest.approx(table.to_dict()["far"]["frechet"])
    assert other["far"]["centroid"] == pytest.approx(centroid(sets["far"], known, labels, kind="cosine"))


def test_worlds_at_three_distances_are_told_apart():
    rng = np.random.default_rng(1)
    centres = np.eye(8)[:4] * 6
    known, labels = np.repeat(centres, 50, axis=0) + rng.normal(size=(200, 8)), np.repeat(np.arange(4), 50)
    sets = {}
    for name, angle in {"n1": 0.3, "n2": 0.35, "m1": 0.8, "m2": 0.85, "f1": 1.4, "f2": 1.5}.items():
        turned = np.cos(angle) * centres + np.sin(angle) * np.eye(8)[4:] * 6
        sets[name] = np.repeat(turned, 30, axis=0) + rng.normal(size=(120, 8))
    got = strata(distances(known, labels, sets))
    assert got.groups == {"near": ("n1", "n2"), "mid": ("m1", "m2"), "far": ("f1", "f2")}


def test_bad_embeddings_are_named():
    good, labels = cloud(6), np.arange(6) % 2
    holed = good.copy()
    holed[3] = 0
    cases = [
        (lambda: frechet(good, cloud(4, 3)), "a has 5 columns and b 3"),
        (lambda: frechet(good[:1], good), "a must have at least 2 rows, got 1"),
        (lambda: mmd(good, good[:1]), "b must have at least 2 rows, got 1"),
        (lambda: mmd(good, good, degree=0), "degree must be a whole number of at least 1"),
        (lambda: mmd(good, good, scale="rows"), "scale"),
        (lambda: mmd(good, good, scale=0), r"scale must be in \(0"),
        (lambda: mmd(good, np.where(good > 1, np.nan, good)), "b must be finite"),
        (lambda: frechet(good[0], good), "two-dimensional"),
        (lambda: centroid(good, good, labels[:-1]), "id_embeddings has 6 rows but id_labels has 5"),
        (lambda: centroid(good, good, labels - 1), "id_labels must be"),
        (lambda: centroid(holed, good, labels), r"row of zeros \(row 3\)"),
        (lambda: centroid(good, good, labels, kind="euclid"), "kind"),
        (lambda: centroid(good, [[1.0] * 5, [-1.0] * 5], [0, 0]), "cancel out"),
        (lambda: text(good, np.zeros((1, 5))), "class_texts has a row of zeros"),
        (lambda: distances(good, labels, {}), "sets must map .* at least one, got dict"),
        (lambda: distances(good, labels, [good]), "sets must map .* got list"),
        (lambda: distances(good, labels, {"x": cloud(4, 3)}), r"sets\['x'\] has 3 columns, the ID embeddings 5"),
        (lambda: distances(good, labels, {"x": good}, text=np.ones((2, 4))), "text has 4 columns"),
    ]
    for call, message in cases:
        with pytest.raises(InvalidInput, match=message):
            call()


def test_clip_without_open_clip_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(MissingExtra, match="pip install open_clip_torch"):
        clip(tmp_path)


def test_clip_takes_whole_local_models_only(monkeypatch, tmp_path):
    def refuse(name):
        raise RuntimeError("weights are cut short")

    monkeypatch.setitem(sys.modules, "open_clip", SimpleNamespace(create_model_and_transforms=refuse))
    with pytest.raises(InvalidInput, match=r"holds no open_clip_config\.json"):
        clip(tmp_path)
    (tmp_path / "open_clip_config.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"holds no open_clip_model\.safetensors"):
        clip(tmp_path)
    (tmp_path / "open_clip_model.safetensors").write_bytes(b"")
    with pytest.raises(InvalidInput, match="cannot be loaded by open_clip: JSONDecodeError"):
        clip(tmp_path)
    config = {"model_cfg": {"text_cfg": {"hf_model_name": "someone/model"}}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match="would download"):
        clip(tmp_path)
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": {"text_cfg": {}}}))
    with pytest.raises(InvalidInput, match="weights are cut short"):
        clip(tmp_path)
