"""Transforms: golden values of the sheet and slow independent forms."""

import math

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.metrics import TemperatureScaling
from twofold.outputs import Head, Outputs
from twofold.scores import transforms
from twofold.scores.chain import scorer

H = np.array([[1.0, 2.0, 0.5, 0.0]])


def world(n=50, seed=0):
    rng = np.random.default_rng(seed)
    head = Head(rng.normal(size=(3, 8)), rng.normal(size=3))
    features = np.abs(rng.normal(size=(n, 8)))
    return Outputs(head.logits(features), rng.integers(0, 3, n), features, head)


def energy(z):
    return np.log(np.exp(z).sum(axis=-1))


def test_golden_ratio_and_fill():
    changed = transforms.scale(H, np.zeros((1, 4)), Head(np.eye(4)), percentile=50)
    assert np.log(changed["features"][0, 1] / 2.0) == pytest.approx(1.16666667, abs=5e-9)
    assert transforms.ash(H, Head(np.eye(4)), kind="b", percentile=50)["features"].max() == 1.75


@pytest.mark.parametrize("kind", ["p", "b", "s"])
@pytest.mark.parametrize("percentile", [0, 30, 65, 87])
def test_ash_against_loops(kind, percentile):
    data = world()
    got = scorer(f"ash(kind={kind!r}, percentile={percentile})|energy").score(data)
    for row, h in enumerate(np.asarray(data.features)):
        k = 8 - round(8 * percentile / 100)
        top = sorted(range(8), key=lambda j, h=h: -h[j])[:k]
        kept = [h[j] if j in top else 0.0 for j in range(8)]
        if kind == "b":
            kept = [sum(h) / k if j in top else 0.0 for j in range(8)]
        if kind == "s":
            kept = [v * math.exp(sum(h) / sum(kept)) for v in kept]
        z = np.asarray(data.head.weight) @ kept + data.head.bias
        assert got[row] == pytest.approx(energy(z), rel=1e-9)


def test_ash_p_at_zero_is_plain_energy():
    data = world()
    assert scorer("ash(kind='p', percentile=0)|energy").score(data) == pytest.approx(scorer("energy").score(data))


def test_scale_equals_scaling_the_features():
    data = world()
    got = scorer("scale(percentile=65)|energy").score(data)
    h = np.asarray(data.features)
    kept = np.sort(h, axis=1)[:, ::-1][:, : 8 - round(8 * 0.65)].sum(axis=1)
    scaled = h * np.exp(h.sum(axis=1) / kept)[:, None]
    assert got == pytest.approx(energy(scaled @ np.asarray(data.head.weight).T + data.head.bias), rel=1e-9)


def test_react_clips_at_the_pooled_percentile():
    train, test = world(), world(seed=1)
    got = scorer("react(percentile=70)|energy").fit(train).score(test)
    limit = np.percentile(np.asarray(train.features).ravel(), 70)
    clipped = np.where(np.asarray(test.features) > limit, limit, test.features)
    assert got == pytest.approx(energy(clipped @ np.asarray(test.head.weight).T + test.head.bias))
    everything = scorer("react(percentile=100)|energy").fit(test).score(test)
    assert everything == pytest.approx(scorer("energy").score(test))


def test_dice_masks_the_head():
    train, test = world(), world(seed=1)
    got = scorer("dice(percentile=60)|energy").fit(train).score(test)
    mean = np.asarray(train.features).mean(axis=0)
    weight = np.asarray(train.head.weight)
    contribution = [[weight[k, j] * mean[j] for j in range(8)] for k in range(3)]
    limit = np.percentile(np.array(contribution), 60)
    masked = np.array(
        [[w if v > limit else 0.0 for w, v in zip(*r, strict=True)] for r in zip(weight, contribution, strict=True)]
    )
    assert got == pytest.approx(energy(np.asarray(test.features) @ masked.T + test.head.bias))


def test_temperature_is_fitted_on_validation():
    train, val = world(), world(400, seed=1)
    labels = np.where(np.random.default_rng(0).random(400) < 0.7, np.asarray(val.logits).argmax(axis=1), val.labels)
    labels[:10] = -1
    val = val.replace(labels=labels)
    chain = scorer("temperature|energy").fit(train, val=val)
    best = TemperatureScaling.fit(labels[10:], np.asarray(val.logits)[10:]).value
    assert float(chain.steps[0].learnt.fitted) == best
    assert chain.score(train) == pytest.approx(energy(np.asarray(train.logits) / best))
    assert chain.fitted_on == "val"


def test_settings_are_checked():
    data = world()
    for spec, message in (
        ("react(percentile=101)|energy", "percentile must be in"),
        ("ash(percentile=100)|energy", "percentile must be in"),
        ("ash(kind='x')|energy", "kind"),
        ("temperature(value=0)|energy", "value must be in"),
    ):
        with pytest.raises(InvalidInput, match=message):
            scorer(spec).fit(data).score(data)


def test_rows_without_positive_mass_are_left_alone():
    head = Head(np.eye(4))
    h = -np.ones((1, 4))
    assert (transforms.scale(h, h, head, percentile=50)["features"] == h).all()
    assert np.isfinite(transforms.ash(h, head, percentile=50)["logits"]).all()


def test_lts_multiplies_logits_by_the_squared_ratio():
    data = world()
    h, z = np.asarray(data.features), np.asarray(data.logits)
    got = scorer("lts(percentile=50)|mls").score(data)
    for value, row, logits in zip(got, h, z, strict=True):
        mass = np.maximum(row, 0)
        ratio = mass.sum() / np.sort(mass)[-(len(row) - round(len(row) / 2)) :].sum()
        assert value == pytest.approx(ratio**2 * logits.max())
    dead = data.replace(features=np.zeros_like(h), head=None)
    assert scorer("lts|mls").score(dead) == pytest.approx(z.max(axis=1))


@pytest.mark.parametrize("gain", [0.0, 0.3])
def test_vra_cuts_below_and_clips_above(gain):
    data = world()
    h = np.asarray(data.features)
    low, high = np.percentile(h, 40), np.percentile(h, 80)
    shaped = h.copy()
    for i, j in np.ndindex(h.shape):
        shaped[i, j] = 0.0 if h[i, j] < low else high if h[i, j] > high else h[i, j] + gain
    got = scorer(f"vra(low=40, high=80, gain={gain})|mls").fit(data).score(data)
    assert got == pytest.approx(data.head.logits(shaped).max(axis=1))
    with pytest.raises(InvalidInput, match=r"high must be in \[95, 100\]"):
        scorer("vra(low=95, high=90)|mls").fit(data)


@pytest.mark.parametrize("share", [0.0, 12.5, 50.0, 90.0, 99.9, 100.0])
@pytest.mark.parametrize("kind", ["normal", "spike", "constant", "ties", "wide"])
def test_percentile_of_a_stream_is_that_of_numpy(share, kind, monkeypatch):
    """Entries that do not fit in memory: histograms narrow the range, whatever the distribution."""
    from twofold.scores._fitting import moments as _moments

    monkeypatch.setattr(_moments, "ENTRIES", 50)
    rng = np.random.default_rng(0)
    x = {
        "normal": rng.normal(size=(9000, 3)),
        "spike": np.maximum(rng.normal(size=(9000, 3)), 0.0),
        "constant": np.full((9000, 3), 2.5),
        "ties": rng.integers(0, 4, (9000, 3)).astype(float),
        "wide": np.exp(20 * rng.normal(size=(9000, 3))),
    }[kind]
    assert _moments.percentile(x, share) == pytest.approx(np.percentile(x, share), rel=1e-12)


@pytest.mark.parametrize("variance", [0.0, -0.1, 1.1, math.nan])
def test_project_refuses_a_share_of_the_variance_that_is_none(variance):
    with pytest.raises(InvalidInput, match="variance must be"):
        transforms.Project(variance=variance).fit(np.eye(4), Head(np.eye(2, 4), np.zeros(2)))
    assert transforms.Project(variance=1.0).fit(np.eye(4), Head(np.eye(2, 4), np.zeros(2))).weight is not None
