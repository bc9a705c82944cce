"""Combinations: golden values, slow forms, published variants, chains inside chains, several passes."""

import numpy as np
import pytest

from twofold import metrics
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs, Passes
from twofold.scores.chain import load_chain, scorer
from twofold.scores.combine import Sirc


def world(n=90, seed=0, classes=3, width=6, passes=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    features = np.abs(rng.normal(size=(n, width)) + 2 * np.eye(classes, width)[labels])
    head = Head(np.random.default_rng(5).normal(size=(classes, width)), np.arange(classes) / 10)
    logits = head.logits(features)
    given = {"passes": logits + rng.normal(size=(passes, n, classes))} if passes else {}
    return Outputs(logits, labels, features, head, **given)


def arrays(o):
    z = np.asarray(o.logits)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(o.features), p / p.sum(axis=1, keepdims=True), np.asarray(o.predictions)


def residual(train, h):
    """ViM's residual by explicit projection."""
    x, w, b = np.asarray(train.features), np.asarray(train.head.weight), np.asarray(train.head.bias)
    u = -np.linalg.pinv(w) @ b
    values, vectors = np.linalg.eigh((x - u).T @ (x - u) / len(x))
    rest = vectors[:, np.argsort(values)[: x.shape[1] - x.shape[1] // 2]]
    return np.array([np.linalg.norm(rest.T @ (row - u)) for row in h])


@pytest.mark.parametrize(("s1", "value"), [("msp", 0.94894813), ("entropy", 0.03943574)])
def test_sirc_golden_values(s1, value):
    """The fact sheet's: z = (2, 1, .1), h = (1, 2, .5, 0), norms of mean 4 and standard deviation .5."""
    fitted = Sirc(s1=s1).fit(np.array([[3.5], [4.5]]), np.zeros((2, 3)))
    got = fitted.score(np.array([[2.0, 1.0, 0.1]]), np.array([[1.0, 2.0, 0.5, 0.0]]), np.array([0]))
    assert got == pytest.approx([value], abs=5e-9)


@pytest.mark.parametrize("s1", ["msp", "entropy"])
@pytest.mark.parametrize("s2", ["norm", "residual", ("norm", "residual")])
def test_sirc_is_the_published_product(s1, s2):
    train, test = world(), world(25, seed=1)
    got = scorer(f"sirc(s1={s1!r}, s2={s2!r})").fit(train).score(test)
    h, p, chosen = arrays(test)
    first = p[np.arange(len(p)), chosen] if s1 == "msp" else (p * np.log(p)).sum(axis=1)
    best = 1.0 if s1 == "msp" else 0.0
    x = np.asarray(train.features)
    second = {
        "norm": (np.abs(x).sum(axis=1), np.abs(h).sum(axis=1)),
        "residual": (-residual(train, x), -residual(train, h)),
    }
    product = best - first
    for name in (s2,) if isinstance(s2, str) else s2:
        on_train, on_test = second[name]
        a, b = on_train.mean() - 3 * on_train.std(), 1 / on_train.std()
        product = product * (1 + np.exp(-b * (on_test - a)))
    assert got == pytest.approx(-np.log(product), rel=1e-9)


def test_sirc_as_the_joint_paper_computed_it():
    val, test = world(), world(25, seed=1)
    got = scorer("sirc(s2='residual', compat='published')").fit(val).score(test)
    h, p, chosen = arrays(test)
    x = np.asarray(val.features)
    norm = np.abs(x).sum(axis=1)
    a, b = norm.mean() - 3 * norm.std(), 1 / norm.std()
    second = np.abs(h - x.mean(axis=0)).sum(axis=1)
    want = -np.log(1 - p[np.arange(len(p)), chosen]) - np.log(1 + np.exp(-b * (second - a)))
    assert got == pytest.approx(want, rel=1e-9)


def test_sirc_reads_raw_features_and_survives_certainty():
    train = world()
    raw = np.asarray(train.features) * 7
    seven = train.replace(layers={"penultimate/raw": raw})
    assert scorer("sirc").fit(seven).score(seven) == pytest.approx(scorer("sirc").fit(train).score(train), rel=1e-9)
    sure = Outputs([[2000.0, 0.0, 0.0]], features=np.ones((1, 6)))
    for s1 in ("msp", "entropy"):
        assert np.isfinite(scorer(f"sirc(s1={s1!r})").fit(train).score(sure)).all()
    constant = train.replace(features=np.ones((90, 6)), head=None)
    assert np.isfinite(scorer("sirc").fit(constant).score(constant)).all()


def test_sirc_errors():
    train = world()
    with pytest.raises(InvalidInput, match="s2: no choice 'energy'"):
        scorer("sirc(s2='energy')").fit(train)
    with pytest.raises(InvalidInput, match="s2 must name a second score"):
        scorer("sirc(s2=())").fit(train)
    with pytest.raises(InvalidInput, match="sirc with the residual needs the head"):
        scorer("sirc(s2='residual')").fit(train.replace(head=None))


@pytest.mark.parametrize("ratio", ["norm", "residual"])
@pytest.mark.parametrize("compat", ["paper", "published"])
@pytest.mark.parametrize("c_fn", [0.75, 0.4])
def test_plugin_bb_is_probability_less_price(ratio, compat, c_fn):
    train, test = world(), world(25, seed=1)
    got = scorer(f"plugin_bb(ratio={ratio!r}, c_fn={c_fn}, compat={compat!r})").fit(train).score(test)
    h, p, chosen = arrays(test)
    x = np.asarray(train.features)
    rho, own = (
        (np.abs(x).sum(axis=1), np.abs(h).sum(axis=1))
        if ratio == "norm"
        else (
            1 / residual(train, x),
            1 / residual(train, h),
        )
    )
    if compat == "paper":
        own = own / rho.mean()
    assert got == pytest.approx(p[np.arange(len(p)), chosen] - c_fn / (1 - c_fn) / own, rel=1e-8, abs=1e-9)


def test_plugin_bb_ranks_as_its_sweep():
    """The critical multiplier of each sample, found by bisection on the printed rule."""
    train, test = world(), world(25, seed=1)
    share, c = 0.6, 0.75
    got = scorer(f"plugin_bb(id_share={share})").fit(train).score(test)
    h, p, chosen = arrays(test)
    rho = np.abs(h).sum(axis=1) / np.abs(np.asarray(train.features)).sum(axis=1).mean()
    for value, prob, r in zip(got, p[np.arange(len(p)), chosen], rho, strict=True):
        low, high = -10.0, 10.0
        for _ in range(80):
            middle = (low + high) / 2
            rejected = (1 - c) * (1 - prob) + (c - middle * (1 - share)) / r > middle * share
            low, high = (middle, high) if rejected else (low, middle)
        assert -value == pytest.approx(high, abs=1e-9)


def test_plugin_bb_curve_is_the_rule_at_each_multiplier():
    rng = np.random.default_rng(0)
    n = 60
    is_id = rng.random(n) < 0.6
    correct = is_id & (rng.random(n) < 0.7)
    prob, ratio = rng.random(n).round(1), (rng.random(n) * 3 + 0.1).round(1)
    for share in (None, 0.3):
        curve = metrics.plugin_bb_curve(correct, prob, ratio, is_id, c_fn=0.6, id_share=share)
        pi = is_id.mean() if share is None else share
        for lam, coverage, mixed, risk in zip(
            curve.multiplier, curve.coverage, curve.mixed_risk, curve.risk, strict=True
        ):
            reject = 0.4 * (1 - prob) + (0.6 - lam * (1 - pi)) / ratio > lam * pi + 1e-12
            keep = ~reject
            inside, outside = (keep & is_id).sum() / is_id.sum(), (keep & ~is_id).sum() / (~is_id).sum()
            wrong = (keep & is_id & ~correct).sum() / is_id.sum()
            assert coverage == pytest.approx(pi * inside + (1 - pi) * outside)
            assert mixed == pytest.approx(0.4 * wrong + 0.6 * outside)
            assert risk == pytest.approx((pi * wrong + (1 - pi) * outside) / coverage)
        assert curve.coverage[-1] == pytest.approx(1.0)
        assert (np.diff(curve.multiplier) > 0).all()
    with pytest.raises(InvalidInput, match="needs ID and OOD samples"):
        metrics.plugin_bb_curve(correct, prob, ratio, np.ones(n, bool) | correct)
    with pytest.raises(InvalidInput, match=r"ratio must be above 0, got 0\.0 in row 0"):
        metrics.plugin_bb_curve(correct, prob, 0 * ratio, is_id)
    for impossible in (-0.25, 1.25):
        with pytest.raises(InvalidInput, match=rf"prob must be in \[0, 1\], got {impossible} in row 0"):
            metrics.plugin_bb_curve(correct, np.full(n, impossible), ratio, is_id)


def test_sum_and_product_of_chains(tmp_path):
    train, test = world(), world(25, seed=1)
    parts = ("msp", "react(percentile=90)|energy", "knn(k=3)")
    z = []
    for spec in parts:
        chain = scorer(spec).fit(train)
        on_train = chain.score(train)
        z.append((chain.score(test) - on_train.mean()) / on_train.std())
    text = repr(parts)
    total = scorer(f"sum(of={text})").fit(train)
    assert total.score(test) == pytest.approx(sum(z), rel=1e-9, abs=1e-9)
    weighted = scorer(f"sum(of={text}, weights=(1, 0, -2))").fit(train)
    assert weighted.score(test) == pytest.approx(z[0] - 2 * z[2], rel=1e-9, abs=1e-9)
    product = scorer(f"product(of={text})").fit(train)
    assert product.score(test) == pytest.approx(np.log(np.prod(1 / (1 + np.exp(-np.array(z))), axis=0)), rel=1e-9)
    assert total.needs == ("logits", "features", "head")
    assert total.fitted_on == "train"
    total.save(tmp_path / "c")
    back = load_chain(tmp_path / "c")
    assert (back.spec, back.fitted_on) == (total.spec, total.fitted_on)
    assert (back.score(test) == total.score(test)).all()


def test_sum_errors_and_nesting():
    train = world()
    nested = scorer("product(of=('sum(of=(\"msp\", \"mls\"))', 'energy'))").fit(train)
    assert np.isfinite(nested.score(train)).all()
    with pytest.raises(InvalidInput, match="of must be a tuple of two or more chains"):
        scorer("sum(of='msp')").fit(train)
    with pytest.raises(InvalidInput, match="weights must be 2 numbers"):
        scorer("sum(of=('msp', 'mls'), weights=(1,))").fit(train).score(train)
    logits_only = Outputs(np.asarray(train.logits), train.labels)
    with pytest.raises(InvalidInput, match="fitting knn needs features"):
        scorer("sum(of=('msp', 'knn'))").fit(logits_only)


@pytest.mark.parametrize(
    ("of", "same"), [("msp", "mc_msp"), ("mls", "mc_mls"), ("entropy", "mc_entropy"), ("gini", "average|gini")]
)
def test_mc_of_a_score_is_its_own_form(of, same):
    test = world(passes=4)
    assert scorer(f"mc({of})").fit(test).score(test) == pytest.approx(scorer(same).score(test), rel=1e-9, abs=1e-12)
    assert scorer(f"mc({of})").judges == "passes"


def test_mc_reads_mean_logits_and_mean_features(tmp_path):
    train, test = world(), world(30, seed=1, passes=4)
    mean = np.asarray(test.passes).mean(axis=0)
    want = np.log(np.exp(mean).sum(axis=1))
    assert scorer("mc(energy)").fit(train).score(test) == pytest.approx(want)
    with pytest.raises(InvalidInput, match=r'mc of knn needs layers\["passes/features"\]'):
        scorer("mc(knn)").fit(train).score(test)
    rng = np.random.default_rng(0)
    drops = np.asarray(test.features) * (rng.random((4, 30, 6)) > 0.2)
    passes = np.stack([test.head.logits(h) for h in drops])
    full = Outputs(
        test.logits, test.labels, test.features, test.head, {"passes/features": drops.mean(axis=0)}, passes=passes
    )
    plain = Outputs(passes.mean(axis=0), None, drops.mean(axis=0), test.head)
    for spec in ("knn", "mds", "fdbd", "react|energy"):
        chain = scorer(f"mc(of={spec!r})").fit(train)
        again = scorer(spec).fit(train)
        plain = plain.replace(predictions=full.averaged().predictions)
        assert chain.score(full) == pytest.approx(again.score(plain), rel=1e-9), spec
    chain.save(tmp_path / "c")
    assert (load_chain(tmp_path / "c").score(full) == chain.score(full)).all()


def test_mc_from_running_means():
    test = world(passes=4)
    held = test.replace(passes=Passes.from_logits(np.asarray(test.passes)))
    for of in ("energy", "margin"):
        chain = scorer(f"mc({of})").fit(test)
        assert chain.score(held) == pytest.approx(chain.score(test), rel=1e-9)


def test_mc_errors():
    test = world(passes=2)
    with pytest.raises(InvalidInput, match="mc_msp reads the passes itself"):
        scorer("mc(mc_msp)").fit(test)
    with pytest.raises(InvalidInput, match="mc needs passes"):
        scorer("mc(msp)").fit(world()).score(world())


def test_an_ensemble_is_judged_by_its_averaged_answer():
    """Three members, each wrong on another third: together they are right everywhere, and that counts."""
    n = 90
    truth = np.arange(n) % 3
    members = np.zeros((3, n, 3))
    for m in range(3):
        answer = np.where(np.arange(n) % 9 // 3 == m, (truth + 1) % 3, truth)
        members[m, np.arange(n), answer] = 3.0
    test = Outputs(members[0], truth, passes=members)
    assert test.correct.mean() == pytest.approx(2 / 3)
    chain = scorer("mc(msp)").fit(test)
    assert chain.judges == scorer("mc_msp").judges == "passes"
    assert test.averaged().correct.mean() == 1.0
    assert metrics.aurc(test.averaged().correct, chain.score(test)) == 0.0
    assert metrics.aurc(test.correct, scorer("msp").score(test)) > 0.1
