"""Scores from logits: golden values of the sheet, identities, and slow independent forms."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.spatial
import scipy.special
import scipy.stats

import twofold
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores import logits as L
from twofold.scores.chain import scorer

Z = np.array([[2.0, 1.0, 0.1]])
GOLDEN = {
    "msp": 0.65884613,
    "maxlogit_pnorm(p=1)": 0.5,
    "maxlogit_pnorm": 0.71918021,
    "maxlogit_pnorm(p=5)": 0.88527901,
    "margin": 0.41656817,
    "entropy": -0.84673818,
    "gini": -0.49722852,
    "collision": -0.68761952,
    "energy": 2.41703002,
    "energy(temperature=2)": 3.37955470,
    "gen(gamma=0.1, top=3)": -2.49042660,
    "gen(gamma=0.1, top=2)": -1.70543310,
    "renyi(alpha=0.5)": -0.96252469,
    "guessing": -1.43956475,
}


@pytest.mark.parametrize(("spec", "value"), GOLDEN.items())
def test_golden(spec, value):
    assert scorer(spec).score(Outputs(Z)) == pytest.approx(value, abs=5e-9)


def test_temperature_before_msp():
    conf = scorer("temperature(value=2.0)|msp").fit(Outputs(Z, [0])).score(Outputs(Z))
    assert scipy.special.expit(conf) == pytest.approx(0.50168776, abs=5e-9)


def random_logits(n=50, c=7, scale=3.0, seed=0):
    return np.random.default_rng(seed).normal(size=(n, c)) * scale


def slow(z):
    p = [math.exp(v - max(z)) for v in z]
    total = sum(p)
    return sorted((v / total for v in p), reverse=True)


def test_against_slow_loops():
    z = random_logits()
    for row, values in enumerate(zip(L.entropy(z), L.gini(z), L.margin(z), L.guessing(z), L.collision(z), strict=True)):
        p = slow(z[row])
        expected = (
            sum(v * math.log(v) for v in p),
            sum(v * v for v in p) - 1,
            p[0] - p[1],
            -sum((k + 1) * v for k, v in enumerate(p)),
            math.log(sum(v * v for v in p)),
        )
        assert values == pytest.approx(expected, rel=1e-9)
        for gamma, top in ((0.1, 3), (0.5, 100), (2.0, 1)):
            want = -sum((v * (1 - v)) ** gamma for v in p[:top])
            assert L.gen(z[row : row + 1], gamma=gamma, top=top) == pytest.approx(want, rel=1e-9)
        for alpha, top in ((0.5, None), (3.0, 2)):
            want = -math.log(sum(v**alpha for v in p[:top])) / (1 - alpha)
            assert L.renyi(z[row : row + 1], alpha=alpha, top=top) == pytest.approx(want, rel=1e-9)


def test_identities():
    z = random_logits()
    assert L.renyi(z, alpha=2.0) == pytest.approx(L.collision(z), rel=1e-9)
    assert L.renyi(z, alpha=1.0) == pytest.approx(L.entropy(z), rel=1e-9)
    assert L.gen(z, gamma=1.0, top=7) == pytest.approx(L.gini(z), rel=1e-9)
    assert L.maxlogit_pnorm(3 * z + 5, p=3) == pytest.approx(L.maxlogit_pnorm(z, p=3), rel=1e-9)
    assert L.energy(z + 2) == pytest.approx(L.energy(z) + 2)
    assert (L.mls(z) <= L.energy(z)).all()
    assert (L.energy(z) <= L.mls(z) + np.log(7)).all()
    assert L.energy(z, temperature=1e-3) == pytest.approx(L.mls(z), abs=1e-2)
    hot = L.msp(z / 1e6, z.argmax(axis=1))
    assert scipy.stats.spearmanr(hot, z.max(axis=1) - z.mean(axis=1)).statistic == pytest.approx(1.0)


def test_two_classes_rank_alike():
    z = random_logits(c=2)
    order = np.argsort(L.msp(z, z.argmax(axis=1)))
    for score in (L.margin, L.entropy, L.gini, L.gen, L.renyi, L.guessing, L.collision):
        assert (np.diff(score(z)[order]) >= -1e-12).all(), score.__name__


def test_confident_samples_stay_apart():
    """Where float64 probabilities are exactly 1, the scores still tell samples apart."""
    z = np.zeros((3, 4))
    z[:, 0] = [50.0, 60.0, 70.0]
    for conf in (L.msp(z, np.zeros(3, int)), L.entropy(z), L.gini(z), L.gen(z), L.collision(z)):
        assert (np.diff(conf) > 0).all()


def test_equal_logits():
    z = np.full((1, 5), 3.0)
    assert L.maxlogit_pnorm(z) == 0.0
    assert L.margin(z) == 0.0
    assert L.entropy(z) == pytest.approx(-math.log(5))
    assert L.guessing(z) == pytest.approx(-3.0)


def test_klm_is_pairwise_divergence():
    train, test = random_logits(200, 4, seed=1), random_logits(30, 4, seed=2)
    chain = scorer("klm").fit(Outputs(train, np.zeros(200, int)))
    p = scipy.special.softmax(train, axis=1)
    typical = [p[train.argmax(axis=1) == k].mean(axis=0) for k in range(4)]
    want = [-min(scipy.stats.entropy(q, d) for d in typical) for q in scipy.special.softmax(test, axis=1)]
    assert chain.score(Outputs(test)) == pytest.approx(want, rel=1e-8)


def test_klm_skips_classes_never_predicted():
    train = random_logits(50, 4, seed=1)
    train[:, 3] = -50.0
    chain = scorer("klm").fit(Outputs(train, np.zeros(50, int)))
    assert chain.steps[0].learnt.log_typical.shape == (3, 4)
    assert np.isfinite(chain.score(Outputs(random_logits(10, 4)))).all()


def test_weibull_fit_is_the_maximum_likelihood_one():
    x = np.random.default_rng(0).weibull(2.5, size=20) * 3 + 0.1
    k, scale = L._weibull(x)
    shape, _, theirs = scipy.stats.weibull_min.fit(x, floc=0)
    assert (k, scale) == pytest.approx((shape, theirs), rel=1e-3)
    ours = scipy.stats.weibull_min.logpdf(x, k, scale=scale).sum()
    assert ours >= scipy.stats.weibull_min.logpdf(x, shape, scale=theirs).sum() - 1e-6


def likeliest_weibull(x):
    """Shape and scale where the derivatives of the likelihood are zero; scipy's own fit stops early at steep shapes."""

    def slope(k):
        powers = (x / x.max()) ** k
        return (powers * np.log(x)).sum() / powers.sum() - 1 / k - np.log(x).mean()

    shape = scipy.optimize.brentq(slope, 1e-3, 1e5, xtol=1e-12, rtol=1e-14)
    return shape, x.max() * np.mean((x / x.max()) ** shape) ** (1 / shape)


@pytest.mark.parametrize(
    "settings",
    ["", ", distance='cosine'", ", distance='both'", ", distance='both', distance_weight=0.5", ", omega=0.5"],
)
def test_openmax_against_a_slow_form(settings):
    def distance(z, mean):
        euclidean, cosine = np.linalg.norm(z - mean), scipy.spatial.distance.cosine(z, mean)
        weight = 0.5 if "weight" in settings else 0.005
        return cosine if "cosine" in settings else weight * euclidean + cosine if "both" in settings else euclidean

    rng = np.random.default_rng(0)
    labels = np.arange(120) % 4
    train = 3 * np.eye(4)[labels] + rng.normal(size=(120, 4))
    test = rng.normal(size=(15, 4)) * 2
    right = train.argmax(axis=1) == labels
    chain = scorer(f"openmax(tail=8{settings})").fit(Outputs(train, labels))
    got = chain.score(Outputs(test))
    for row, z in enumerate(test):
        revised, lost = z.copy(), 0.0
        for i, c in enumerate(np.argsort(-z)[:3]):
            mine = train[right & (labels == c)]
            mean = mine.mean(axis=0)
            far = np.sort([distance(one, mean) for one in mine])[-8:]
            shape, scale = likeliest_weibull(far - far[0] + 1)
            x = max(distance(z, mean) - far[0] + 1, 0)
            share = 0.5 if "omega" in settings else (3 - i) / 3
            part = z[c] * share * scipy.stats.weibull_min.cdf(x, shape, scale=scale)
            revised[c] -= part
            lost += part
        unknown = scipy.special.softmax(np.append(revised, lost))[-1]
        assert got[row] == pytest.approx(-unknown, abs=1e-6)
        loses = lost - revised.max()
        if abs(loses) > 0.05:
            assert chain.steps[-1].learnt.is_unknown(z[None]) == [loses > 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("distance='manhattan'", "distance: "),
        ("distance_weight=-1", "distance_weight must be in"),
        ("omega=2", r"omega must be in \[0, 1\]"),
    ],
)
def test_settings_of_openmax_out_of_range(settings, message):
    with pytest.raises(InvalidInput, match=message):
        scorer(f"openmax({settings})").fit(Outputs(np.eye(2)[[0, 1, 0, 1]], [0, 1, 0, 1]))


def test_react_by_a_constant():
    features = np.abs(np.random.default_rng(0).normal(size=(6, 3))) * 4
    head = Head(np.ones((2, 3)))
    o = Outputs(head.logits(features), [0, 1] * 3, features=features, head=head)
    expected = np.log(2) + np.minimum(features, 2.0).sum(axis=1)
    assert scorer("react(constant=2.0)|energy").fit(o).score(o) == pytest.approx(expected)
    with pytest.raises(InvalidInput, match="constant must be in"):
        scorer("react(constant=1e999)|energy").fit(o)


def test_openmax_is_that_of_the_paper_and_not_that_of_another_library(data_dir):
    """Right answers and a shift of 1 give our ranking; all samples and a shift of 10,000 that of pytorch-ood."""
    with np.load(data_dir / "features_cifar10_resnet20.npz") as file:
        train, labels = file["id_train_logits"].astype(float), file["id_train_labels"]
        test = np.concatenate([file["id_test_logits"][:400], file["ood_svhn_logits"][:400]]).astype(float)

    def slow(rows, shift):
        unknown = np.empty(len(test))
        tails = {}
        for c in range(10):
            mine = train[rows & (labels == c)]
            mean = mine.mean(axis=0)
            far = np.sort(np.linalg.norm(mine - mean, axis=1))[-20:]
            shape, _, scale = scipy.stats.weibull_min.fit(far - far[0] + shift, floc=0)
            tails[c] = mean, far[0], shape, scale
        for row, z in enumerate(test):
            revised, lost = z.copy(), 0.0
            for i, c in enumerate(np.argsort(-z)[:3]):
                mean, least, shape, scale = tails[c]
                away = max(np.linalg.norm(z - mean) - least + shift, 0.0)
                part = z[c] * (3 - i) / 3 * -np.expm1(-((away / scale) ** shape))
                revised[c] -= part
                lost += part
            unknown[row] = scipy.special.softmax(np.append(revised, lost))[-1]
        return -unknown

    ours = scorer("openmax(alpha=3, tail=20)").fit(Outputs(train, labels)).score(Outputs(test))
    right = train.argmax(axis=1) == labels
    assert scipy.stats.spearmanr(ours, slow(right, 1.0)).statistic > 0.99999
    assert scipy.stats.spearmanr(ours, slow(np.ones(len(labels), bool), 1e4)).statistic < 0.995


def test_openmax_with_few_samples():
    z = np.array([[3.0, 0.0, 0.0], [2.5, 0.2, 0.1], [0.0, 3.0, 0.0], [2.0, 1.0, 0.0]])
    chain = scorer("openmax").fit(Outputs(z, [0, 0, 1, 1]))  # class 1: one right answer; class 2: none at all
    shapes = chain.steps[0].learnt.weibulls[:, 0]
    assert shapes[0] > 0
    assert shapes[1] > 0
    assert shapes[2] == 0
    assert np.isfinite(chain.score(Outputs(z))).all()
    with pytest.raises(ValueError, match="at least two labelled"):
        scorer("openmax").fit(Outputs(z[:1], [0]))


def test_probability_is_the_softmax_of_the_prediction():
    z = random_logits(20, 5)
    assert twofold.probability(Outputs(z)) == pytest.approx(scipy.special.softmax(z, axis=1).max(axis=1))
    other = Outputs(z, predictions=np.zeros(20, int))
    assert twofold.probability(other) == pytest.approx(scipy.special.softmax(z, axis=1)[:, 0])


def test_energy_with_class_weights():
    z = np.array([[2.0, 1.0, 0.1], [800.0, 0.0, -800.0]])
    got = scorer("energy(weights=(0.5, 0, 2), temperature=2)").score(Outputs(z))
    assert got[0] == pytest.approx(2 * np.log(0.5 * np.exp(1.0) + 2 * np.exp(0.05)))
    assert got[1] == pytest.approx(800 + 2 * np.log(0.5))
    for weights in ("(1, 2)", "(1, -1, 1)", "(0, 0, 0)"):
        with pytest.raises(InvalidInput, match="weights must be 3 numbers"):
            scorer(f"energy(weights={weights})").score(Outputs(z))


def test_openmax_leaves_the_logits_of_a_skipped_class_alone():
    """A class without a Weibull loses nothing to the unknown: the same as a distribution function of 0."""
    z = np.array([[3.0, 0.0, 0.0], [2.5, 0.2, 0.1], [0.0, 3.0, 0.0], [2.0, 1.0, 0.0]])
    chain = scorer("openmax(alpha=1)").fit(Outputs(z, [0, 0, 1, 1]))  # class 2 has no row
    for third in (0.5, 2.0, 9.0):  # the only logit that alpha = 1 looks at
        row = np.array([0.1, 0.2, third])
        want = -1.0 / (1.0 + np.exp(row).sum())  # the unknown class keeps the logit 0
        assert chain.score(Outputs(row[None]))[0] == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_the_weibull_is_the_likeliest_for_any_tail(seed):
    """Both derivatives of the log-likelihood vanish, also far from where Newton starts."""
    rng = np.random.default_rng(seed)
    x = 1.0 + np.sort(rng.pareto(0.3 + seed / 20, size=int(rng.integers(2, 30)))) * 10.0 ** rng.integers(-3, 4)
    k, scale = L._weibull(x)
    logs, powers = np.log(x / scale), (x / scale) ** k
    assert powers.mean() == pytest.approx(1.0, rel=1e-9)
    assert 1.0 / k + logs.mean() - (powers * logs).mean() == pytest.approx(0.0, abs=1e-8 * max(1.0, 1.0 / k))
