"""CARef, CADRef, NAC and WeiPer against loops over their definitions, and against automatic differentiation."""

import numpy as np
import pytest
from score_worlds import arrays, softmax, world

from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.scores.activations import coverage_edges
from twofold.scores.chain import scorer

TRAIN, TEST = world(), world(25, seed=1)


def mean_of_class(c):
    h, _, _, predicted = arrays(TRAIN)
    return np.mean([row for row, k in zip(h, predicted, strict=True) if k == c], axis=0)


def test_caref_against_a_loop():
    got = scorer("caref").fit(TRAIN).score(TEST)
    h, _, _, predicted = arrays(TEST)
    for value, row, c in zip(got, h, predicted, strict=True):
        error = sum(abs(a - b) for a, b in zip(row, mean_of_class(c), strict=True))
        assert value == pytest.approx(-error / sum(abs(a) for a in row), rel=1e-12)


def base_score(base, z):
    p = softmax(z)
    return {
        "energy": np.log(np.exp(z).sum()),
        "msp": p.max(),
        "mls": z.max(),
        "gen": 1.0 / sum((q * (1.0 - q)) ** 0.1 for q in p),
    }[base]


@pytest.mark.parametrize("base", ["energy", "msp", "mls", "gen"])
def test_cadref_against_a_loop(base):
    got = scorer(f"cadref(base={base!r})").fit(TRAIN).score(TEST)
    levels = np.array([base_score(base, z) for z in arrays(TRAIN)[1]])
    shift = 0.0
    if levels.min() <= 0:
        shift = 0.01 * levels.std() - levels.min()
    level = levels.mean() + shift
    h, logits, _, predicted = arrays(TEST)
    for value, row, z, c in zip(got, h, logits, predicted, strict=True):
        up = down = 0.0
        for x, mean, weight in zip(row, mean_of_class(c), np.asarray(TEST.head.weight)[c], strict=True):
            part = np.sign(weight) * (x - mean)
            up, down = up + max(part, 0.0), down + max(-part, 0.0)
        size = abs(row).sum()
        own = max(base_score(base, z) + shift, 1e-3 * level)
        assert value == pytest.approx(-(up / size / own + down / size / level), rel=1e-10)


def test_cadref_of_a_base_that_is_negative_keeps_its_sign():
    low = TRAIN.head.__class__(TRAIN.head.weight, np.asarray(TRAIN.head.bias) - 60.0)
    train = Outputs(low.logits(TRAIN.features), TRAIN.labels, TRAIN.features, low)
    chain = scorer("cadref").fit(train)
    assert float(chain.steps[0].learnt.shift) > 0
    assert (chain.score(train) < 0).all()


def test_a_class_that_is_never_predicted_has_the_mean_of_its_labelled_rows():
    h, _, labels, _ = arrays(TRAIN)
    never = TRAIN.replace(predictions=np.where(np.asarray(TRAIN.predictions) == 2, 0, TRAIN.predictions))
    fitted = scorer("caref").fit(never).steps[0].learnt
    assert fitted.means[2] == pytest.approx(h[labels == 2].mean(axis=0))
    unlabelled = scorer("caref").fit(never.replace(labels=None)).steps[0].learnt
    assert unlabelled.means[2] == pytest.approx(h.mean(axis=0))


def neuron_states(outputs, alpha):
    """States by the definition, the gradient by central differences of the mean log probability."""
    states = []
    for h in arrays(outputs)[0]:
        gradient = np.empty_like(h)
        for j in range(len(h)):
            step = np.zeros_like(h)
            step[j] = 1e-6
            ahead, behind = (outputs.head.logits((h + sign * step)[None])[0] for sign in (1, -1))
            gradient[j] = -(np.log(softmax(ahead)).mean() - np.log(softmax(behind)).mean()) / 2e-6
        states.append(1.0 / (1.0 + np.exp(-alpha * h * gradient)))
    return np.array(states)


def test_nac_against_numeric_gradients_and_a_loop():
    got = scorer("nac(alpha=2.0, bins=12, full=7)").fit(TRAIN).score(TEST)
    edges = coverage_edges(12)
    train, test = neuron_states(TRAIN, 2.0), neuron_states(TEST, 2.0)
    safe = 0
    for value, row in zip(got, test, strict=True):
        total = 0.0
        for j, state in enumerate(row):
            if np.asarray(abs(state - edges) < 1e-7).any() and state != 0.5:
                break
            low = max(edge for edge in edges if edge <= state)
            high = min(edge for edge in edges if edge > state)
            total += min(sum(low <= s < high for s in train[:, j]) / 7, 1.0)
        else:
            assert value == pytest.approx(total / len(row), abs=1e-12)
            safe += 1
    assert safe > 20


@pytest.mark.parametrize("count", [4, 50, 500])
def test_edges_of_coverage_are_those_of_the_authors(count):
    half = count // 2
    points = [np.log(u) / np.log(1000.0) for u in np.linspace(1.0, 1000.0**0.5, half)]
    want = points[:-1] + [1.0 - x for x in reversed(points)]
    want[-1] += 0.01
    assert coverage_edges(count) == pytest.approx([*want, 1.2])
    assert (np.diff(coverage_edges(count)) > 0).all()


def test_nac_is_finite_where_states_saturate_and_refuses_odd_bins():
    assert np.isfinite(scorer("nac(alpha=1e6)").fit(TRAIN).score(TEST)).all()
    with pytest.raises(InvalidInput, match="must be even"):
        scorer("nac(bins=5)").fit(TRAIN)


def perturbed_logits(noise, h, delta):
    weight, bias = np.asarray(TRAIN.head.weight), np.asarray(TRAIN.head.bias)
    z = np.empty(noise.shape[:2])
    for r in range(len(noise)):
        for k in range(len(weight)):
            z[r, k] = (weight[k] + delta * np.linalg.norm(weight[k]) * noise[r, k]) @ h + bias[k]
    return z


def unit_noise(repeats, seed=3):
    noise = np.random.default_rng(seed).normal(size=(repeats, 4, 7))
    return noise / np.linalg.norm(noise, axis=2, keepdims=True)


def test_weiper_msp_against_a_loop():
    noise = unit_noise(5)
    got = scorer("weiper", noise=noise, delta=1.5).fit(TRAIN).score(TEST)
    for value, h in zip(got, arrays(TEST)[0], strict=True):
        assert value == pytest.approx(np.mean([softmax(z).max() for z in perturbed_logits(noise, h, 1.5)]), rel=1e-12)


def histogram(values, low, high, bins):
    counts = [0.0] * bins
    for v in np.ravel(values):
        if low <= v < high:
            counts[min(int((v - low) / (high - low) * bins), bins - 1)] += 1
    return np.array(counts) / np.size(values)


def smoothed(values, length):
    left = (length - 1) // 2
    return [
        np.mean([values[min(max(i - left + s, 0), len(values) - 1)] for s in range(length)]) for i in range(len(values))
    ]


def divergence(p, q, epsilon):
    p, q = np.asarray(p) + epsilon, np.asarray(q) + epsilon
    p, q = p / p.sum(), q / q.sum()
    return sum(a * np.log(a / b) + b * np.log(b / a) for a, b in zip(p, q, strict=True))


def test_weiper_kld_against_a_loop():
    noise = unit_noise(4)
    got = scorer("weiper(kind='kld', bins=9, smooth=4, smooth_perturbed=3)", noise=noise).fit(TRAIN).score(TEST)
    train, test = arrays(TRAIN)[0], arrays(TEST)[0]
    spread = [perturbed_logits(noise, h, 1.8) for h in train]
    limits = [(train.min(), train.max() + 1e-8), (np.min(spread), np.max(spread) + 1e-8)]
    typical = np.mean([histogram(h, *limits[0], 9) for h in train], axis=0)
    typical_logits = np.mean([histogram(z, *limits[1], 9) for z in spread], axis=0)
    for value, h in zip(got, test, strict=True):
        z = perturbed_logits(noise, h, 1.8)
        own = divergence(typical, smoothed(histogram(h, *limits[0], 9), 4), 0.01)
        other = divergence(typical_logits, smoothed(histogram(z, *limits[1], 9), 3), 0.025)
        assert value == pytest.approx(-(own + 2.5 * other - 0.1 * np.mean([softmax(row).max() for row in z])), rel=1e-9)


def test_weiper_draws_once_and_by_seed():
    one, two = scorer("weiper(repeats=6)").fit(TRAIN), scorer("weiper(repeats=6, seed=1)").fit(TRAIN)
    assert (one.score(TEST) == one.score(TEST)).all()
    assert not np.allclose(one.score(TEST), two.score(TEST))
    with pytest.raises(InvalidInput, match="noise has shape"):
        scorer("weiper", noise=np.ones((2, 3, 3))).fit(TRAIN)


def test_closed_form_of_nac_is_that_of_autograd():
    torch = pytest.importorskip("torch")
    h = torch.tensor(arrays(TEST)[0], requires_grad=True)
    weight, bias = (torch.tensor(np.asarray(part)) for part in (TEST.head.weight, TEST.head.bias))
    loss = -torch.log_softmax(h @ weight.T + bias, dim=1).mean(dim=1).sum()
    (gradient,) = torch.autograd.grad(loss, h)
    p = np.array([softmax(z) for z in arrays(TEST)[1]])
    assert (p - 1 / 4) @ np.asarray(TEST.head.weight) == pytest.approx(gradient.numpy(), rel=1e-10, abs=1e-14)
