"""Subspaces: slow independent forms, scikit-learn, identities, invariances, degenerate worlds, real features."""

import numpy as np
import pytest
from sklearn.decomposition import PCA, KernelPCA
from sklearn.preprocessing import StandardScaler

import twofold.scores.subspace  # registers its scores
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores import subspace
from twofold.scores._fitting import spaces
from twofold.scores._fitting.spaces import class_spaces, global_space, outside
from twofold.scores.chain import load_chain, scorer
from twofold.scores.subspace import KernelPcaError, Neco, PcaError, Residual, Vim, residual_space

WIDTH = 6
KINDS = ["global", "class", "class_pred"]
SPECS = [
    "vim",
    "residual",
    *(f"pca_error(kind={k!r})" for k in KINDS),
    "pca_error(fused=True, components=2)",
    *(f"kpca_error(kind={k!r})" for k in KINDS),
    *(f"kpca_error(map='fourier', width=16, kind={k!r})" for k in KINDS),
    *(f"kpca_error(map='nystroem', landmarks=12, kind={k!r})" for k in KINDS),
    *(f"kpca_error(map='exact', kind={k!r})" for k in KINDS),
    "kpca_error(map='exact', normalised=True)",
    "neco",
    "neco(standardise=False)",
    "neco(scale_by_logit=False, denominator='raw')",
]


def world(n=90, seed=0, classes=3, width=WIDTH, dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    stretch = np.linspace(2.0, 0.3, width)
    features = (rng.normal(size=(n, width)) * stretch + 3 * np.eye(classes, width)[labels] + 1).astype(dtype)
    weight = np.random.default_rng(5).normal(size=(classes, width)) + 2 * np.eye(classes, width)
    head = Head(weight.astype(dtype), (np.arange(classes) / 10).astype(dtype))
    return Outputs(head.logits(features).astype(dtype), labels, features, head)


def h_of(o):
    return np.asarray(o.features, dtype=np.float64)


def unit(h):
    return np.array([x / max(np.sqrt((x * x).sum()), 1e-12) for x in h])


def leading(rows, k):
    """Projector on the k leading principal directions of rows about their mean, by a singular value decomposition."""
    away = rows - rows.mean(axis=0)
    v = np.linalg.svd(away)[2][:k]
    return v.T @ v


def fewest(rows, share):
    """The number of components that explain a share of the variance, counted one by one."""
    values = np.linalg.svd(rows - rows.mean(axis=0))[1] ** 2
    k = 1
    while values[:k].sum() < share * values.sum() - 1e-12:
        k += 1
    return k


def rest(x, rows, share, k=None):
    """Length of x outside the principal subspace of rows."""
    k = min(fewest(rows, share) if k is None else k, rows.shape[1] - 1)
    return np.linalg.norm((np.eye(rows.shape[1]) - leading(rows, k)) @ (x - rows.mean(axis=0)))


def by_kind(kind, error, rows, labels, x, predicted):
    """An error for one row by kind: error(x, rows of a class)."""
    if kind == "global":
        return error(x, rows)
    each = {int(c): error(x, rows[labels == c]) for c in np.unique(labels)}
    return min(each.values()) if kind == "class" else each[int(predicted)]


# Subspaces themselves


def test_spaces_of_classes_are_those_of_a_singular_value_decomposition():
    o = world(200)
    h, y = h_of(o), np.where(np.arange(200) % 5 == 0, -1, o.labels)
    means, bases, offsets = class_spaces(h, y, 5, 0.9)
    for c in range(3):
        mine = h[y == c]
        basis = bases[offsets[c] : offsets[c + 1]]
        assert means[c] == pytest.approx(mine.mean(axis=0))
        assert len(basis) == fewest(mine, 0.9)
        assert basis.T @ basis == pytest.approx(leading(mine, len(basis)), abs=1e-9)
    assert np.isnan(means[3:]).all()
    assert list(offsets[3:]) == [len(bases)] * 3
    mean, basis = global_space(h, 0.9)
    assert mean == pytest.approx(h.mean(axis=0))
    assert basis.T @ basis == pytest.approx(leading(h, fewest(h, 0.9)), abs=1e-9)


def test_few_rows_and_many_rows_agree(monkeypatch):
    h, y = h_of(world(5000)), np.zeros(5000, np.int64)
    wide = h @ np.random.default_rng(1).normal(size=(WIDTH, 40))  # six directions in a width of 40
    few, many = class_spaces(wide[:30], y[:30], 1, 1.0), class_spaces(wide[:4000], y[:4000], 1, 1.0)
    assert len(few.bases) == len(many.bases) == WIDTH
    assert few.bases.T @ few.bases == pytest.approx(many.bases.T @ many.bases, abs=1e-9)
    monkeypatch.setattr(spaces, "ROWS", 100)  # several blocks
    blocked = class_spaces(wide, y, 1, 0.9)
    assert blocked.bases.T @ blocked.bases == pytest.approx(leading(wide, len(blocked.bases)), abs=1e-9)
    assert blocked.means[0] == pytest.approx(wide.mean(axis=0))


def test_weak_directions_are_orthonormal_too():
    rng = np.random.default_rng(0)
    h = rng.normal(size=(12, 30)) * np.logspace(0, -5, 30)  # variances fall by ten orders of magnitude
    basis = class_spaces(h, np.zeros(12, np.int64), 1, 1.0).bases
    assert len(basis) == 11
    assert basis @ basis.T == pytest.approx(np.eye(11), abs=1e-12)


def test_classes_of_one_row_and_of_equal_rows_have_no_directions():
    h = np.array([[1.0, 2.0, 3.3], [5.1, 5.2, 5.3], [5.1, 5.2, 5.3], [5.1, 5.2, 5.3], [0.0, 0.0, 1.0]])
    means, bases, offsets = class_spaces(h, np.array([0, 2, 2, 2, -1]), 3, 0.9)
    assert bases.shape == (0, 3)
    assert list(offsets) == [0, 0, 0, 0]
    assert means[0] == pytest.approx(h[0])
    assert means[2] == pytest.approx(h[1])
    assert len(global_space(np.full((50, 4), 3.3), 0.9)[1]) == 0
    with pytest.raises(InvalidInput, match="all are -1"):
        class_spaces(h, np.full(5, -1), 3, 0.9)


def test_what_is_outside_keeps_its_digits():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(8, 8)))[0][:3]
    away = np.linalg.qr(np.vstack([basis, rng.normal(size=(1, 8))]).T)[0].T[3]
    for small in (1.0, 1e-3, 1e-6, 1e-9):
        row = 1e3 * basis[0] + 1e3 * small * away
        assert outside(row[None], basis)[0] == pytest.approx(1e3 * small, rel=1e-5)
    assert outside(1e3 * basis[:1], basis)[0] == pytest.approx(0, abs=1e-10)
    assert outside(np.ones((2, 8)), basis[:0]) == pytest.approx(np.sqrt([8.0, 8.0]))


# ViM and residual


def slow_residual(train, dim):
    h, w, b = h_of(train), np.asarray(train.head.weight), np.asarray(train.head.bias)
    u = -np.linalg.lstsq(w, b, rcond=None)[0]  # the shortest solution of W u = -b
    total = sum(np.outer(x - u, x - u) for x in h) / len(h)
    values, vectors = np.linalg.eig(total)  # the general solver, as the reference code
    keep = np.argsort(-values.real)[:dim]
    project = vectors[:, keep].real @ vectors[:, keep].real.T
    return lambda x: np.linalg.norm((x - u) - project @ (x - u))


@pytest.mark.parametrize("dim", [None, 1, 5])
def test_vim_and_residual_against_loops(dim):
    train, test = world(), world(20, seed=1)
    length = slow_residual(train, 3 if dim is None else dim)
    z = np.asarray(train.logits)
    alpha = np.mean([max(row) for row in z]) / np.mean([length(x) for x in h_of(train)])
    want = [np.log(np.exp(q).sum()) - alpha * length(x) for q, x in zip(test.logits, h_of(test), strict=True)]
    assert scorer(f"vim(dim={dim})").fit(train).score(test) == pytest.approx(want, rel=1e-9)
    got = scorer(f"residual(dim={dim})").fit(train).score(test)
    assert got == pytest.approx([-length(x) for x in h_of(test)], rel=1e-9)


def test_the_virtual_logit_matches_the_maximum_logit_on_train():
    train = world()
    virtual = scorer("energy").score(train) - scorer("vim").fit(train).score(train)
    assert virtual.mean() == pytest.approx(np.asarray(train.logits).max(axis=1).mean())
    ratio = virtual / -scorer("residual").fit(train).score(train)
    assert ratio == pytest.approx(np.full(len(train), ratio[0]))


@pytest.mark.parametrize(
    ("width", "dim"), [(2, 1), (3, 1), (64, 32), (767, 383), (768, 512), (2047, 512), (2048, 1000), (4096, 1000)]
)
def test_dimension_rule(width, dim, monkeypatch):
    fake = (np.zeros(width), np.ones(width), np.broadcast_to(0.0, (width, width)))
    monkeypatch.setattr(subspace, "_about_origin", lambda *_: fake)
    features = np.broadcast_to(0.0, (3, width))
    assert residual_space(features, np.ones((2, width)), np.ones(2))[1].shape == (width, width - dim)


@pytest.mark.parametrize("name", ["vim", "residual"])
def test_residual_settings(name):
    train = world()
    for dim in (6, 7, 256, 1000):
        with pytest.raises(InvalidInput, match=f"dim must be at most 5 for features of width 6, got {dim}"):
            scorer(f"{name}(dim={dim})").fit(train)
    for dim in ("0", "-1", "1.5", "True"):
        with pytest.raises(InvalidInput, match="dim must be a whole number of at least 1"):
            scorer(f"{name}(dim={dim})").fit(train)
    thin = Outputs(np.ones((4, 2)), None, np.ones((4, 1)), Head(np.ones((2, 1))))
    with pytest.raises(InvalidInput, match="width 2 or more"):
        scorer(name).fit(thin)


def test_vim_without_scale():
    o = world()
    with pytest.raises(InvalidInput, match=r"mean maximum logit of train, which must be positive, got -"):
        Vim().fit(h_of(o), np.asarray(o.logits) - 1e3, o.head)
    h = h_of(o)[:3]  # fewer rows than dimensions: all in three directions
    with pytest.raises(InvalidInput, match="no residual outside 3 directions, so vim has no scale; pass a smaller dim"):
        Vim(dim=4).fit(h, np.asarray(o.logits)[:3], o.head)


def test_residual_of_collapsed_features_is_the_distance_from_their_span():
    h, w = np.random.default_rng(0).normal(size=(4, 8)), np.random.default_rng(1).normal(size=(3, 8))
    span = np.linalg.qr(h.T)[0]
    test = np.random.default_rng(2).normal(size=(5, 8))
    want = [-np.linalg.norm(x - span @ (span.T @ x)) for x in test]
    for dim in (4, 5, 7):
        fitted = Residual(dim=dim).fit(h, Head(w))  # no bias: the origin is zero
        assert fitted.score(test) == pytest.approx(want)
        assert fitted.score(h) == pytest.approx(np.zeros(4), abs=1e-12)


def test_origin_of_a_head_whose_rows_sum_to_zero():
    o = world()
    w = np.asarray(o.head.weight) - np.asarray(o.head.weight).mean(axis=0)
    noisy = w + 1e-9 * np.random.default_rng(0).normal(size=w.shape)  # what float32 leaves of it
    origin = residual_space(h_of(o), noisy, np.array([0.3, -0.1, -0.2]))[0]
    assert origin == pytest.approx(-np.linalg.pinv(w, rcond=1e-6) @ [0.3, -0.1, -0.2], rel=1e-4)
    assert noisy @ origin == pytest.approx([-0.3, 0.1, 0.2], abs=1e-6)


def test_residual_directions_are_found_once(monkeypatch):
    train, calls, true = world(), [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda a: calls.append(1) or true(a))
    for spec in ("vim", "residual", "vim(dim=2)"):
        scorer(spec).fit(train)
    assert len(calls) == 1


# PCA error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", ["variance=0.9", "variance=0.5", "components=2", "variance=1.0"])
def test_pca_error_is_that_of_scikit_learn(kind, setting):
    train, test = world(), world(20, seed=1)
    h, y = h_of(train), np.asarray(train.labels)
    name, value = setting.split("=")
    value = int(value) if name == "components" else float(value)

    def error(x, rows):
        pca = PCA(n_components=min(value, 1 - 1e-12) if isinstance(value, float) else value, svd_solver="full")
        pca.fit(rows)
        if pca.n_components_ == WIDTH:  # at least one direction is left out
            pca = PCA(n_components=WIDTH - 1, svd_solver="full").fit(rows)
        return np.linalg.norm(x - pca.inverse_transform(pca.transform(x[None]))[0]) / np.linalg.norm(x)

    got = scorer(f"pca_error(kind={kind!r}, {setting})").fit(train).score(test)
    want = [-by_kind(kind, error, h, y, x, k) for x, k in zip(h_of(test), test.predictions, strict=True)]
    assert got == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_fused_error_behind_react(kind):
    train, test = world(), world(20, seed=1)
    before = scorer("react(percentile=70)|energy").fit(train)
    clip = np.percentile(h_of(train), 70)
    h, y, x = np.minimum(h_of(train), clip), np.asarray(train.labels), np.minimum(h_of(test), clip)
    share = [
        by_kind(kind, lambda a, rows: rest(a, rows, 0.9), h, y, row, k) / np.linalg.norm(row)
        for row, k in zip(x, test.predictions, strict=True)
    ]
    got = scorer(f"react(percentile=70)|pca_error(kind={kind!r}, fused=True)").fit(train).score(test)
    assert got == pytest.approx(before.score(test) * (1 - np.array(share)), rel=1e-6)


def test_pca_error_settings():
    o = world()
    for spec, message in [
        ("pca_error(kind='klass')", "kind"),
        ("pca_error(variance=0)", r"variance must be in \(0, 1\], got 0"),
        ("pca_error(variance=1.5)", r"variance must be in \(0, 1\], got 1.5"),
        ("pca_error(components=0)", "components must be a whole number of at least 1"),
        ("pca_error(components=6)", "components must be at most 5 for features of width 6, got 6"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            scorer(spec).fit(o)


@pytest.mark.parametrize("name", ["pca_error", "kpca_error", "kpca_error(map='exact')"])
def test_labels_are_needed_by_class_only(name):
    o = world()
    bare = Outputs(o.logits, None, o.features, o.head)
    assert scorer(name).fit(bare).score(o) == pytest.approx(scorer(name).fit(o).score(o))
    inside = name.replace("kpca_error(", "kpca_error(kind='class', ") if "(" in name else f"{name}(kind='class')"
    with pytest.raises(InvalidInput, match=r"error\(kind='class'\) needs labels, and the train outputs have none"):
        scorer(inside).fit(bare)


@pytest.mark.parametrize("name", ["pca_error", "neco"])
def test_raw_features_of_a_cosine_head(name):
    train, test = world(), world(20, seed=1)

    def cosine(o, layers=True):
        raw = h_of(o)
        return Outputs(o.logits, o.labels, unit(raw), layers={"penultimate/raw": raw} if layers else None)

    got = scorer(name).fit(cosine(train)).score(cosine(test))
    assert got == pytest.approx(scorer(name).fit(train).score(test))
    with pytest.raises(InvalidInput, match=rf"{name} was fitted on layers\['penultimate/raw'\], and these outputs"):
        scorer(name).fit(cosine(train)).score(cosine(test, layers=False))
    plain = scorer(name).fit(cosine(train, layers=False))  # fitted without: the features are read
    assert plain.score(cosine(test)) == pytest.approx(plain.score(cosine(test, layers=False)))


def test_a_feature_of_zeros_ranks_last():
    train = world()
    h = np.vstack([h_of(train), np.zeros((1, WIDTH))])
    test = Outputs(train.head.logits(h), None, h, train.head)
    for spec in ("pca_error", "pca_error(fused=True)", "pca_error(kind='class')"):
        conf = scorer(spec).fit(train).score(test)
        assert np.isfinite(conf).all()
        assert conf.argmin() == len(train)


# Kernel PCA error


def kernel(a, b, gamma):
    return np.array([[np.exp(-gamma * ((x - y) ** 2).sum()) for y in b] for x in a])


def exact_error(x, rows, share, gamma, normalised=False):
    """By scikit-learn: coordinates in all components, of which the leading ones are subtracted."""
    n = len(rows)
    within, across = kernel(rows, rows, gamma), kernel([x], rows, gamma)[0]
    square = 1 - 2 * across.mean() + within.mean()
    middle = np.eye(n) - 1 / n
    values = np.sort(np.linalg.eigvalsh(middle @ within @ middle))[::-1]
    k = 1
    while values[:k].sum() < share * values.sum() - 1e-12:
        k += 1
    model = KernelPCA(n_components=k, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(rows)
    left = square - (model.transform(x[None])[0] ** 2).sum()
    return left / np.sqrt(square) if normalised else np.sqrt(left)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalised", [True, False])
def test_exact_kernel_error_is_that_of_scikit_learn(kind, normalised):
    train, test = world(60), world(12, seed=1)
    rows, y = unit(h_of(train)), np.asarray(train.labels)
    for gamma, share in ((2.0, None), (0.5, 0.95)):
        spec = f"kpca_error(map='exact', kind={kind!r}, gamma={gamma}, variance={share}, normalised={normalised})"
        got = scorer(spec).fit(train).score(test)

        def error(x, mine, share=share or 0.8, gamma=gamma):
            return exact_error(x, mine, share, gamma, normalised)

        want = [-by_kind(kind, error, rows, y, x, k) for x, k in zip(unit(h_of(test)), test.predictions, strict=True)]
        assert got == pytest.approx(want, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ("", 0.85),
        ("variance=0.6", 0.6),
        ("map='fourier', width=14", 0.8),
        ("map='fourier', width=64, gamma=3, variance=0.5, seed=3", 0.5),  # more features than rows of a class
        ("map='nystroem', landmarks=10", 0.8),
        ("map='nystroem', landmarks=1000, gamma=1", 0.8),
    ],
)
def test_explicit_maps_against_loops(kind, normalised, settings, share):
    train, test = world(), world(12, seed=1)
    chain = scorer(f"kpca_error({settings}{', ' * bool(settings)}kind={kind!r}, normalised={normalised})").fit(train)
    fitted = chain.steps[0].learnt

    if "fourier" in settings:

        def phi(h):
            m = len(fitted.points)
            return np.array(
                [[np.sqrt(2 / m) * np.cos(w @ x + p) for w, p in zip(fitted.points, fitted.mixing, strict=True)]
                 for x in unit(h)]
            )  # fmt: skip

    elif "nystroem" in settings:
        z = np.asarray(train.logits)
        energy = np.log(np.exp(z).sum(axis=1))
        landmarks = unit(h_of(train)[np.sort(np.argsort(energy)[: fitted.landmarks])])
        values, vectors = np.linalg.eigh(kernel(landmarks, landmarks, fitted.gamma))
        root = vectors @ np.diag(np.maximum(values, 1e-8 * values.max()) ** -0.5) @ vectors.T

        def phi(h):
            return kernel(unit(h), landmarks, fitted.gamma) @ root

    else:
        phi = unit

    rows, y = phi(h_of(train)), np.asarray(train.labels)

    def error(x, mine):
        left = rest(x, mine, share)
        return left**2 / np.linalg.norm(x) if normalised else left

    want = [-by_kind(kind, error, rows, y, x, k) for x, k in zip(phi(h_of(test)), test.predictions, strict=True)]
    assert chain.score(test) == pytest.approx(want, rel=1e-6)


def test_random_features_have_the_gaussian_kernel():
    h = h_of(world(40))
    fitted = KernelPcaError(map="fourier", gamma=1.5, width=20_000)._draw_frequencies(WIDTH)
    phi = fitted._phi(h)
    assert phi @ phi.T == pytest.approx(kernel(unit(h), unit(h), 1.5), abs=6 / np.sqrt(20_000))
    assert fitted.points.std() == pytest.approx(np.sqrt(3.0), rel=0.02)
    assert fitted.mixing.min() >= 0
    assert fitted.mixing.max() < 2 * np.pi
    again = KernelPcaError(map="fourier", gamma=1.5, width=20_000)._draw_frequencies(WIDTH)
    assert (fitted.points == again.points).all()
    other = KernelPcaError(map="fourier", gamma=1.5, width=20_000, seed=1)._draw_frequencies(WIDTH)
    assert abs(np.corrcoef(other.points.ravel(), fitted.points.ravel())[0, 1]) < 0.02


def test_landmarks_are_the_least_certain_rows():
    train = world()
    energy = scorer("energy").score(train)
    fitted = scorer("kpca_error(map='nystroem', landmarks=7)").fit(train).steps[0].learnt
    want = unit(h_of(train)[np.sort(np.argsort(energy)[:7])])
    assert fitted.points == pytest.approx(want)


def test_approximations_approach_the_exact_form():
    train, test = world(), world(60, seed=1)
    exact = scorer("kpca_error(map='exact')").fit(train)
    every = scorer("kpca_error(map='nystroem', landmarks=90)").fit(train)  # all rows: exact within their span
    assert every.score(train) == pytest.approx(exact.score(train), rel=1e-5)
    assert (every.score(test) >= exact.score(test) - 1e-6).all()  # what lies outside it is not seen
    fourier = scorer("kpca_error(map='fourier', width=2048)").fit(train)
    assert np.corrcoef(fourier.score(test), exact.score(test))[0, 1] > 0.95


def test_kernel_error_settings():
    o = world()
    for spec, message in [
        ("kpca_error(map='rbf')", "map"),
        ("kpca_error(kind='klass')", "kind"),
        ("kpca_error(variance=-0.1)", r"variance must be in \(0, 1\], got -0.1"),
        ("kpca_error(gamma=0)", r"gamma must be in \(0, inf\), got 0"),
        ("kpca_error(map='fourier', width=1)", "width must be a whole number of at least 2"),
        ("kpca_error(map='fourier', seed=-1)", "seed must be a whole number of at least 0"),
        ("kpca_error(map='nystroem', landmarks=1.5)", "landmarks must be a whole number of at least 2"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            scorer(spec).fit(o)
    with pytest.raises(InvalidInput, match='map="exact" takes at most 5000 training rows, got 5001; use map='):
        scorer("kpca_error(map='exact')").fit(world(5001))


# NeCo


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("denominator", ["standardised", "raw"])
@pytest.mark.parametrize("dim", [None, 4])
def test_neco_is_that_of_scikit_learn(standardise, scale, denominator, dim):
    train, test = world(), world(20, seed=1)
    h, x = h_of(train), h_of(test)
    k = 2 if dim is None else dim  # one fewer than classes
    if standardise:
        scaler = StandardScaler().fit(h)
        pca = PCA(svd_solver="full").fit(scaler.transform(h))
        full, plain = pca.transform(scaler.transform(x)), scaler.transform(x)
    else:
        pca = PCA(svd_solver="full").fit(h)
        full, plain = x @ pca.components_.T, x
    below = np.linalg.norm(x if denominator == "raw" else plain, axis=1)
    want = np.linalg.norm(full[:, :k], axis=1) / below
    if scale:
        top = np.asarray(test.logits).max(axis=1)
        want = np.where(top > 0, want * top, top)
    spec = f"neco(dim={dim}, standardise={standardise}, scale_by_logit={scale}, denominator={denominator!r})"
    assert scorer(spec).fit(train).score(test) == pytest.approx(want, rel=1e-9)


def test_neco_with_logits_below_zero_keeps_the_order():
    train = world()
    h = np.repeat(h_of(train)[:1], 5, axis=0)
    z = np.array([-3.0, -1.0, 0.0, 0.5, 2.0])[:, None] + np.array([0.0, -1, -2])
    conf = Neco().fit(h_of(train), np.asarray(train.logits)).score(h, z)
    assert list(conf[:3]) == [-3.0, -1.0, 0.0]
    assert (np.diff(conf) > 0).all()


def test_neco_leaves_dead_units_out():
    train, test = world(), world(20, seed=1)

    def wider(o, dead):
        h = np.hstack([h_of(o), dead * np.ones((len(o), 2)), np.full((len(o), 1), 3.3)])
        return Outputs(o.logits, o.labels, h)

    want = scorer("neco").fit(train).score(test)
    fitted = scorer("neco").fit(wider(train, 0.0))
    assert fitted.score(wider(test, 0.0)) == pytest.approx(want)
    assert fitted.score(wider(test, 9.0)) == pytest.approx(want)  # and stay out


def test_neco_settings_and_narrow_features():
    o = world()
    with pytest.raises(InvalidInput, match="dim must be at most 5 for 6 features that vary over train, got 6"):
        scorer("neco(dim=6)").fit(o)
    with pytest.raises(InvalidInput, match="dim must be a whole number of at least 1"):
        scorer("neco(dim=0)").fit(o)
    with pytest.raises(InvalidInput, match="denominator"):
        scorer("neco(denominator='none')").fit(o)
    with pytest.raises(InvalidInput, match="at least 2 features that vary over train, got 0"):
        scorer("neco").fit(Outputs(o.logits, o.labels, np.full((len(o), 4), 3.3)))
    with pytest.raises(InvalidInput, match="at least 2 features that vary over train, got 1"):
        scorer("neco").fit(Outputs(o.logits, o.labels, h_of(o)[:, :1]))


def test_neco_at_the_mean_has_no_share():
    train = world()
    mean = h_of(train).mean(axis=0, keepdims=True)
    fitted = Neco(scale_by_logit=False).fit(h_of(train), np.asarray(train.logits))
    symmetric = np.vstack([h_of(train), 2 * mean - h_of(train)])
    assert np.isfinite(fitted.score(symmetric, np.zeros((len(symmetric), 3)))).all()
    assert fitted.score(fitted.mean[None], np.zeros((1, 3)))[0] == 0


# All of them


@pytest.fixture(scope="module", params=SPECS)
def fitted(request):
    return scorer(request.param).fit(world())


def test_rows_are_independent_and_saved_exactly(fitted, tmp_path):
    test = world(50, seed=2)
    whole = fitted.score(test)
    assert whole.dtype == np.float64
    assert np.isfinite(whole).all()
    halves = np.concatenate([fitted.score(test[:17]), fitted.score(test[17:])])
    assert halves == pytest.approx(whole, rel=1e-9, abs=1e-9)
    assert (scorer(fitted.spec).fit(world()).score(test) == whole).all()
    fitted.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(test) == whole).all()


def test_order_of_training_rows_and_names_of_classes_change_nothing(fitted):
    train, test = world(), world(50, seed=2)
    whole = fitted.score(test)
    turned = scorer(fitted.spec).fit(train[np.random.default_rng(0).permutation(len(train))])
    assert turned.score(test) == pytest.approx(whole, rel=1e-7)
    turn = np.array([2, 0, 1])

    def renamed(o):
        back = np.argsort(turn)
        head = Head(np.asarray(o.head.weight)[back], np.asarray(o.head.bias)[back])
        return Outputs(np.asarray(o.logits)[:, back], turn[np.asarray(o.labels)], o.features, head)

    assert scorer(fitted.spec).fit(renamed(train)).score(renamed(test)) == pytest.approx(whole, rel=1e-7)


def test_half_precision_gives_nearly_the_same(fitted):
    half = scorer(fitted.spec).fit(world(dtype=np.float16)).score(world(50, seed=2, dtype=np.float16))
    assert half.dtype == np.float64
    assert np.corrcoef(half, fitted.score(world(50, seed=2)))[0, 1] > 0.98


@pytest.mark.parametrize("spec", [s for s in SPECS if "fourier" not in s and "neco" not in s] + ["neco(dim=5)"])
def test_rotations_change_nothing(spec):
    if spec == "neco(dim=5)":
        spec = "neco(standardise=False, dim=5)"
    train, test = world(), world(30, seed=1)
    q = np.linalg.qr(np.random.default_rng(3).normal(size=(WIDTH, WIDTH)))[0]

    def turned(o):
        head = Head(np.asarray(o.head.weight) @ q, o.head.bias)
        return Outputs(o.logits, o.labels, h_of(o) @ q, head)

    assert scorer(spec).fit(turned(train)).score(turned(test)) == pytest.approx(
        scorer(spec).fit(train).score(test), rel=1e-6
    )


@pytest.mark.parametrize("spec", [s for s in SPECS if s.startswith("kpca")])
def test_kernel_errors_do_not_see_the_norm(spec):
    train, test = world(), world(30, seed=1)
    fitted = scorer(spec).fit(train)
    assert fitted.score(test.replace(features=7 * h_of(test), head=None)) == pytest.approx(fitted.score(test), rel=1e-6)


@pytest.mark.parametrize("spec", [s for s in SPECS if "class" in s])
def test_classes_without_rows(spec):
    o = world()
    some = Outputs(o.logits, np.where(np.asarray(o.labels) == 2, -1, o.labels), o.features, o.head)
    chain = scorer(spec).fit(some)
    judged = o.replace(predictions=np.arange(len(o)) % 2)
    assert np.isfinite(chain.score(judged)).all()
    if "nystroem" not in spec:  # whose landmarks depend on all logits
        two = Outputs(np.asarray(o.logits)[:, :2], some.labels, o.features)  # the class never existed
        assert chain.score(judged) == pytest.approx(scorer(spec).fit(two).score(judged), rel=1e-6)
    if "class_pred" in spec:
        lost = r'error\(kind="class_pred"\): class 2 is predicted, and had no training row'
        with pytest.raises(InvalidInput, match=lost):
            chain.score(o.replace(predictions=np.full(len(o), 2)))
    else:
        assert np.isfinite(chain.score(o)).all()


@pytest.mark.parametrize("spec", SPECS)
def test_degenerate_worlds_stay_finite(spec):
    o = world()
    h, z, y = h_of(o), np.asarray(o.logits), np.asarray(o.labels)
    one = Outputs(np.abs(z[:, :1]) + 1, np.zeros(len(h), int), h)
    one = one.replace(head=None)
    if spec not in ("vim", "residual"):
        assert np.isfinite(scorer(spec).fit(one).score(one)).all()  # one class
    twice = Outputs(np.vstack([z, z]), np.hstack([y, y]), np.vstack([h, h]), o.head)  # duplicated rows
    if "nystroem" in spec:
        assert np.isfinite(scorer(spec).fit(twice).score(o)).all()
    else:
        assert scorer(spec).fit(twice).score(o) == pytest.approx(scorer(spec).fit(o).score(o), rel=1e-6)
    dead = Head(np.hstack([np.asarray(o.head.weight), np.zeros((3, 2))]), o.head.bias)
    wide = Outputs(z, y, np.hstack([h, np.zeros((len(h), 2))]), dead)  # dead units
    assert np.isfinite(scorer(spec).fit(wide).score(wide)).all()
    pair = Outputs(z[:, :2], y % 2, h, Head(np.asarray(o.head.weight)[:2], np.asarray(o.head.bias)[:2]))
    assert np.isfinite(scorer(spec).fit(pair).score(pair)).all()  # two classes
    big = np.random.default_rng(0).normal(size=(12, 40))  # more features than rows
    head = Head(np.random.default_rng(1).normal(size=(3, 40)))
    few = Outputs(head.logits(big), np.arange(12) % 3, big, head)
    if spec == "vim":
        with pytest.raises(InvalidInput, match="no residual outside 12 directions"):
            scorer(spec).fit(few)
    else:
        assert np.isfinite(scorer(spec).fit(few).score(few)).all()


@pytest.mark.parametrize("spec", [s for s in SPECS if "error" in s and "fused" not in s and "normal" not in s])
def test_constant_features_are_compared_with_their_mean(spec):
    o = world()
    same = Outputs(o.logits, o.labels, np.full((len(o), WIDTH), 3.3))
    chain = scorer(spec).fit(same)
    assert chain.score(same) == pytest.approx(np.zeros(len(o)), abs=2e-7)
    other = o.replace(head=None)
    h, mean = h_of(o), np.full(WIDTH, 3.3)
    if "pca_error(kind" in spec and "kpca" not in spec:
        want = -np.linalg.norm(h - mean, axis=1) / np.linalg.norm(h, axis=1)
    elif "map" not in spec:
        want = -np.linalg.norm(unit(h) - unit(mean[None]), axis=1)
    elif "exact" in spec:
        want = -np.sqrt(2 - 2 * kernel(unit(h), unit(mean[None]), 2.0)[:, 0])
    else:
        assert np.isfinite(chain.score(other)).all()
        return
    assert chain.score(other) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("spec", [s for s in SPECS if "exact" not in s])
def test_a_memory_mapped_training_set_is_read_in_blocks(spec, tmp_path):
    from twofold.run import Run

    train = world(9000)
    run = Run.create(tmp_path / "run", model="m")
    run.add("train", train, role="train")
    mapped = scorer(spec).fit(run["train"])
    assert mapped.score(train[:50]) == pytest.approx(scorer(spec).fit(train).score(train[:50]), rel=1e-9)


@pytest.mark.parametrize("spec", ["vim", "residual", "pca_error", "kpca_error", "neco"])
def test_a_projection_may_not_stand_before(spec):
    assert scorer(spec).steps[0].info.project == ()


def test_what_tuning_tries():
    assert dict(scorer("vim").steps[0].info.grid) == {"dim": (256, 1000)}


# Real features


@pytest.fixture(scope="module")
def real(data_dir):
    path = data_dir / "features_cifar10_resnet20.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in TWOFOLD_DATA")
    with np.load(path) as d:
        head = Head(d["W"], d["b"])
        train = Outputs(d["id_train_logits"], d["id_train_labels"], d["id_train_features"], head)
        test = Outputs(d["id_test_logits"], d["id_test_labels"], d["id_test_features"], head)
        return train, test, Outputs(d["ood_svhn_logits"], None, d["ood_svhn_features"], head)


@pytest.mark.parametrize(
    "spec",
    [
        "vim",
        *(f"pca_error(kind={k!r})" for k in KINDS),
        "pca_error(fused=True)",
        *(f"kpca_error(kind={k!r})" for k in KINDS),
        "kpca_error(map='fourier', width=512)",
        "kpca_error(map='nystroem', landmarks=256)",
        "neco",
    ],
)
def test_real_features_of_another_data_set_are_told_apart(spec, real):
    from twofold.metrics import auroc

    train, test, svhn = real
    chain = scorer(spec).fit(train)
    conf = np.concatenate([chain.score(test), chain.score(svhn)])
    assert auroc(np.arange(len(conf)) < len(test), conf) > 0.75


def test_residual_of_real_features_prefers_those_of_the_training_data(real):
    from twofold.metrics import auroc

    train, test, svhn = real
    chain = scorer("residual").fit(train)
    conf = np.concatenate([chain.score(test), chain.score(svhn)])
    assert auroc(np.arange(len(conf)) < len(test), conf) > 0.55


def test_registered_classes_have_their_names():
    for name, maker in [("pca_error", PcaError), ("vim", Vim), ("residual", Residual), ("neco", Neco)]:
        assert twofold.scores.info(name).maker is maker
