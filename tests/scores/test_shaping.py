"""OptFS and AdaSCALE against loops over their definitions."""

import numpy as np
import pytest
from score_worlds import arrays, world

from twofold.errors import InvalidInput
from twofold.scores.chain import scorer
from twofold.scores.shaping import AdaScale, OptFS

TRAIN, VAL, TEST = world(), world(40, seed=2), world(25, seed=1)


def test_optfs_against_a_loop():
    h, _, _, predicted = arrays(TRAIN)
    fitted = OptFS(bins=8).fit(TRAIN.features, TRAIN.predictions, TRAIN.head)
    low, high = np.quantile(h, 0.001), np.quantile(h, 0.999)
    width = (high - low) / 8
    importance = np.zeros(8)
    for row, c in zip(h, predicted, strict=True):
        for m in range(8):
            for x, weight in zip(row, np.asarray(TRAIN.head.weight)[c], strict=True):
                if low + m * width <= x < low + (m + 1) * width:
                    importance[m] += weight * x / len(h)
    theta = 1000.0 * importance / np.linalg.norm(importance)
    changed = fitted.apply(TEST.features, TEST.head)
    for row, got in zip(arrays(TEST)[0], changed["features"], strict=True):
        for x, value in zip(row, got, strict=True):
            m = int(np.floor((x - low) / width))
            want = theta[m] * x if 0 <= m < 8 else 0.0
            assert value == pytest.approx(want, rel=1e-9, abs=1e-9)
    assert changed["logits"] == pytest.approx(TEST.head.logits(changed["features"]))


def movement(h, moved, *, shift=30.0, perturbed=45.0, weight=10.0):
    order = sorted(range(len(h)), key=lambda j: (-h[j], j))
    changed, added = max(1, int(len(h) * shift / 100)), max(1, int(len(h) * perturbed / 100))
    return weight * sum(abs(h[j] - moved[j]) for j in order[:changed]) + sum(max(moved[j], 0) for j in order[:added])


@pytest.mark.parametrize("kind", ["a", "l"])
def test_adascale_against_a_loop(kind):
    settings = f"kind={kind!r}, low=30, high=70, shift=30, perturbed=45"
    got = scorer(f"adascale({settings})|mls").fit(TRAIN, val=VAL).score(TEST)
    moved = VAL.layers["penultimate/perturbed"]
    typical = [movement(h, after) for h, after in zip(arrays(VAL)[0], moved, strict=True)]
    bias = np.asarray(TEST.head.bias)
    after = TEST.layers["penultimate/perturbed"]
    for value, h, z, other in zip(got, arrays(TEST)[0], arrays(TEST)[1], after, strict=True):
        below = np.mean([q <= movement(h, other) for q in typical])
        percentile = 30.0 + (1.0 - below) * 40.0
        positive = sorted((max(x, 0.0) for x in h), reverse=True)
        count = len(h) - round(len(h) * percentile / 100.0)
        r = sum(positive) / sum(positive[:count])
        want = np.exp(r) * (z - bias) + bias if kind == "a" else r**2 * z
        assert value == pytest.approx(want.max(), rel=1e-9)


@pytest.mark.parametrize(("kind", "other"), [("a", "scale"), ("l", "lts")])
def test_adascale_with_one_percentile_is_scale_or_lts(kind, other):
    got = scorer(f"adascale(kind={kind!r}, low=57, high=57)|energy").fit(TRAIN, val=VAL).score(TEST)
    assert got == pytest.approx(scorer(f"{other}(percentile=57)|energy").score(TEST), rel=1e-12)


def test_adascale_says_what_is_missing_or_wrong():
    with pytest.raises(InvalidInput, match="extract --adascale"):
        scorer("adascale|energy").fit(TRAIN, val=VAL.replace(layers={"x": np.zeros((40, 1))}))
    with pytest.raises(InvalidInput, match="high"):
        scorer("adascale(low=90, high=80)|energy").fit(TRAIN, val=VAL)
    with pytest.raises(InvalidInput, match="has shape"):
        AdaScale().fit(VAL.features, {"penultimate/perturbed": np.zeros((40, 2))})
