"""Bootstrap: the draws are exact multinomials, weighted forms equal plain ones, intervals cover."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats

from twofold import metrics
from twofold.errors import InvalidInput, RejectedNaN, TwofoldWarning, UndefinedMetric
from twofold.stats import bootstrap
from twofold.stats.bootstrap import _corrected_tails, _poisson, _strata
from twofold.stats.bootstrap import draws as public_draws


def world(n=300, seed=0, levels=None):
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.7
    correct = is_id & (rng.random(n) < 0.75)
    conf = rng.normal(size=n) + correct
    conf_ood = rng.normal(size=n) + is_id
    if levels:
        conf, conf_ood = np.round(conf * levels) / levels, np.round(conf_ood * levels) / levels
    return correct, conf, conf_ood, is_id


def draws(n, count, seed=0, stratify=None):
    """Row weights of ``count`` resamples, straight from the kernel."""
    from twofold._kernels import resample

    members, starts = _strata(stratify, n)
    poisson = _poisson()
    room = np.empty(n + -n % 4, np.uint8)
    rows = []
    for key in np.random.SeedSequence(seed).generate_state(count, np.uint64):
        resample(key, members, starts, *poisson, room)
        rows.append(room[:n].copy())
    return np.array(rows)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 101, 5000])
def test_every_resample_has_the_right_size(n):
    assert (draws(n, 50).sum(axis=1) == n).all()


@pytest.mark.parametrize("n", range(1, 10))
def test_public_draws_are_those_of_the_kernel(n):
    assert np.array_equal(public_draws(n, 40, seed=5), draws(n, 40, seed=5))


def test_random_bits_are_those_of_splitmix64():
    """The first numbers for seed 1234567, as in the reference implementation and Rosetta Code's task."""
    from twofold._kernels import mix

    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    step = 0x9E3779B97F4A7C15
    for i, want in enumerate([*published, 16408922859458223821], start=1):
        assert int(mix(np.uint64((1234567 + i * step) % 2**64))) == want


def test_counts_are_multinomial():
    n, count = 7, 60_000
    rows = draws(n, count)
    for row in range(n):  # each count is Binomial(n, 1/n)
        seen = np.bincount(rows[:, row], minlength=n + 1)[: n + 1]
        expected = scipy.stats.binom.pmf(np.arange(n + 1), n, 1 / n) * count
        pool = expected < 5
        seen = np.append(seen[~pool], seen[pool].sum())
        expected = np.append(expected[~pool], expected[pool].sum())
        assert scipy.stats.chisquare(seen, expected).pvalue > 1e-4
    covariance = np.cov(rows[:, 0], rows[:, 1])[0, 1]
    assert covariance == pytest.approx(-1 / n, abs=0.01)
    pairs = np.bincount(rows[:, 0].astype(int) * (n + 1) + rows[:, 1], minlength=(n + 1) ** 2)
    exact = [
        scipy.stats.multinomial.pmf([a, b, n - a - b], n, [1 / n, 1 / n, 1 - 2 / n]) if a + b <= n else 0.0
        for a in range(n + 1)
        for b in range(n + 1)
    ]
    assert np.abs(pairs / count - exact).max() < 0.006


def test_strata_keep_their_size():
    group = np.array([0, 1, 1, 2, 2, 2, 2, 0, 1])
    rows = draws(len(group), 200, stratify=group)
    for g in range(3):
        assert (rows[:, group == g].sum(axis=1) == (group == g).sum()).all()
    assert len({tuple(r) for r in rows}) > 100


def test_draws_depend_on_the_seed_alone():
    assert (draws(1000, 3, seed=5) == draws(1000, 3, seed=5)).all()
    assert (draws(1000, 3, seed=5) != draws(1000, 3, seed=6)).any()


CASES = [
    (metrics.aurc, "selective", {}),
    (metrics.aurc, "selective", {"is_id": True}),
    (metrics.aurc, "selective", {"is_id": True, "coverage": "id"}),
    (metrics.aurc, "selective", {"is_id": True, "ood_share": 0.3}),
    (metrics.aurc, "selective", {"is_id": True, "ood_share": 0.3, "coverage": "id"}),
    (metrics.aurc, "selective", {"loss": True}),
    (metrics.aurc, "selective", {"loss": True, "is_id": True, "ood_share": 0.2}),
    *((metrics.aurc, "selective", {"estimator": e}) for e in ("log", "sele", "expected", "trapezoid", "continuous")),
    (metrics.aurc, "selective", {"is_id": True, "coverage": "id", "estimator": "grid"}),
    (metrics.eaurc, "selective", {"is_id": True}),
    (metrics.eaurc, "selective", {"loss": True}),
    (metrics.naurc, "selective", {}),
    (metrics.augrc, "selective", {"is_id": True, "ood_share": 0.4}),
    (metrics.achievable_aurc, "selective", {}),
    (metrics.auroc, "truth", {}),
    (metrics.average_precision, "truth", {"positive": False}),
    (metrics.aupr, "truth", {"positive": "unsafe"}),
    (metrics.fpr_at_tpr, "truth", {"tpr": 0.8, "positive": "unsafe"}),
    (metrics.detection_error, "truth", {}),
    (metrics.f1, "joint", {"ood_share": 0.5}),
    (metrics.f1, "joint", {"method": "grid"}),
    (metrics.aurc_id, "joint", {}),
    (metrics.oscr, "joint", {}),
    (metrics.ds_f1, "pair", {}),
    (metrics.ds_f1, "pair", {"ood_share": 0.2}),
    (metrics.ds_f1, "pair", {"method": "published"}),
    (metrics.ds_aurc, "pair", {}),
    (metrics.ds_aurc, "pair", {"monotone": True, "ood_share": 0.6}),
    (metrics.joint_aurc, "joint", {"ood_cost": 2.0}),
]


@pytest.mark.parametrize("levels", [None, 3])
@pytest.mark.parametrize(("metric", "form", "settings"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_replicates_equal_the_metric_of_the_drawn_rows(metric, form, settings, levels):
    correct, conf, conf_ood, is_id = world(levels=levels)
    arrays = {
        "selective": (correct, conf),
        "truth": (is_id, conf_ood),
        "joint": (correct, conf, is_id),
        "pair": (correct, conf, conf_ood, is_id),
    }[form]
    named = dict(settings)
    if named.pop("is_id", False):
        named["is_id"] = is_id
    if named.pop("loss", False):
        named["loss"] = np.random.default_rng(3).random(len(correct)).round(1)
    interval = bootstrap(metric, *arrays, n=12, seed=4, stratify=is_id, **named)
    for weights, replicate in zip(draws(len(correct), 12, seed=4, stratify=is_id), interval.replicates, strict=True):
        drawn = np.repeat(np.arange(len(correct)), weights)
        picked = {k: v[drawn] if isinstance(v, np.ndarray) else v for k, v in named.items()}
        result = metric(*(a[drawn] for a in arrays), **picked)
        assert replicate == pytest.approx(getattr(result, "value", result), rel=1e-9, abs=1e-12)


def test_any_function_of_arrays_works():
    x = np.random.default_rng(0).normal(size=200)
    interval = bootstrap(lambda a, power: float((a**power).mean()), x, power=2, n=500)
    assert interval.low < 1.0 < interval.high
    assert interval.value == pytest.approx((x**2).mean())


def test_agrees_with_scipy():
    x = np.random.default_rng(1).exponential(size=400)
    for ours, theirs in (("percentile", "percentile"), ("bca", "BCa")):
        mine = bootstrap(np.mean, x, n=8000, kind=ours, level=0.9)
        reference = scipy.stats.bootstrap(
            (x,), np.mean, n_resamples=8000, confidence_level=0.9, method=theirs, rng=np.random.default_rng(2)
        ).confidence_interval
        assert mine.low == pytest.approx(reference.low, abs=0.008)
        assert mine.high == pytest.approx(reference.high, abs=0.008)


@pytest.mark.parametrize("seed", range(4))
def test_bca_levels_are_those_of_efron(seed):
    """Levels Phi(b + (b + z) / (1 - a (b + z))) with bias b and acceleration a, by loops (Efron 1987, Eq. 2.3, 6.6)."""
    rng = np.random.default_rng(seed)
    replicates = np.round(rng.exponential(size=101), 1)  # skewed, some equal to the value
    value, jackknife = float(replicates[0]), list(rng.exponential(size=30))
    share = sum(1.0 if r < value else 0.5 if r == value else 0.0 for r in replicates) / len(replicates)
    bias = scipy.stats.norm.ppf(share)
    mean = sum(jackknife) / len(jackknife)
    cubes = sum((mean - x) ** 3 for x in jackknife)
    acceleration = cubes / (6 * sum((mean - x) ** 2 for x in jackknife) ** 1.5)
    got = _corrected_tails(np.array([0.025, 0.975]), value, replicates, np.array(jackknife))
    for level, tail in zip(got, (0.025, 0.975), strict=True):
        z = bias + scipy.stats.norm.ppf(tail)
        assert level == pytest.approx(scipy.stats.norm.cdf(bias + z / (1 - acceleration * z)))


def test_same_seed_same_bytes_on_any_number_of_threads(monkeypatch):
    correct, conf, _, _ = world()
    first = bootstrap(metrics.aurc, correct, conf, n=100).replicates
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert (bootstrap(metrics.aurc, correct, conf, n=100).replicates == first).all()
    assert (bootstrap(metrics.aurc, correct, conf, n=100, seed=1).replicates != first).any()
    generator = np.random.default_rng(3)
    assert bootstrap(metrics.aurc, correct, conf, n=20, seed=generator).low > 0


def test_versus_is_paired():
    correct, conf, _, is_id = world(1000)
    same = bootstrap(metrics.aurc, correct, conf, versus=(correct, conf * 3 - 1), is_id=is_id, n=50)
    assert (same.replicates == 0).all()
    assert same.p == 1.0
    noisy = conf + np.random.default_rng(0).normal(size=1000) * 2
    worse = bootstrap(metrics.auroc, correct, conf, versus=(correct, noisy), n=999)
    assert worse.value == pytest.approx(metrics.auroc(correct, conf) - metrics.auroc(correct, noisy))
    assert worse.p == pytest.approx(2 / 1000)
    assert worse.low > 0
    alone = bootstrap(metrics.auroc, correct, conf, n=999).replicates
    other = bootstrap(metrics.auroc, correct, noisy, n=999).replicates
    assert worse.replicates == pytest.approx(alone - other)


def test_undefined_resamples_are_counted_and_said():
    correct = np.array([True] * 9 + [False])
    conf = np.arange(10.0)
    with pytest.warns(TwofoldWarning, match="undefined on .* of 200 resamples"):
        interval = bootstrap(metrics.auroc, correct, conf, n=200)
    assert 40 < interval.undefined < 110  # P(no failure drawn) = 0.9^10 = 0.35
    assert math.isfinite(interval.low)
    kept = bootstrap(metrics.auroc, correct, conf, n=50, stratify=correct)
    assert kept.undefined == 0
    with pytest.raises(UndefinedMetric):
        bootstrap(metrics.auroc, np.ones(10, bool), conf, n=50)


@pytest.mark.parametrize("metric", [metrics.aurc_id, metrics.f1])
@pytest.mark.parametrize("share", [None, 0.5])
def test_resamples_without_an_id_sample_are_undefined(metric, share):
    correct, conf, is_id = np.array([True, False, False]), np.arange(3.0), np.array([True, False, False])
    with pytest.warns(TwofoldWarning, match="undefined"):
        interval = bootstrap(metric, correct, conf, is_id, n=200, ood_share=share)
    lost = (draws(3, 200)[:, 0] == 0).sum()
    if share is None:  # otherwise resamples without an OOD sample have no share either
        assert interval.undefined == lost
    assert interval.undefined >= lost > 30


def test_nan_is_said_once():
    correct, conf, _, _ = world(50)
    conf[3] = np.nan
    with pytest.raises(InvalidInput, match="row 3"):
        bootstrap(metrics.aurc, correct, conf, n=20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bootstrap(metrics.aurc, correct, conf, n=20, nan="reject")
    assert [w.category for w in caught] == [RejectedNaN]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 5}, "n must be a whole number of at least 10"),
        ({"level": 1.0}, "level must be in"),
        ({"kind": "basic"}, "kind"),
        ({"stratify": [1, 2]}, "stratify has shape"),
        ({"is_id": [True, False]}, "is_id has 2 rows but the first array has 300"),
        ({"versus": ([True], [0.5])}, "versus array has 1 rows"),
    ],
)
def test_bad_arguments(change, message):
    correct, conf, _, _ = world()
    with pytest.raises(InvalidInput, match=message):
        bootstrap(metrics.aurc, correct, conf, **change)


def test_no_array_is_an_error():
    with pytest.raises(InvalidInput, match="at least one array"):
        bootstrap(metrics.aurc)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["percentile", "bca"])
def test_intervals_cover(kind):
    """Worlds of 400 samples: 95 % intervals of AUROC hold the truth about as often as they say."""
    truth = scipy.stats.norm.cdf(1 / math.sqrt(2))  # P(N(1,1) > N(0,1))
    rng = np.random.default_rng(0)
    held = 0
    for seed in range(300):
        safe = rng.random(400) < 0.5
        conf = rng.normal(size=400) + safe
        interval = bootstrap(metrics.auroc, safe, conf, n=300, kind=kind, seed=seed)
        held += interval.low <= truth <= interval.high
    assert 0.90 < held / 300 < 0.99  # four standard deviations of the count below
