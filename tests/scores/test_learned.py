"""Learned outputs, gamblers and evidence: values by hand, scipy's Dirichlet, ranges, error messages."""

import inspect

import numpy as np
import pytest
from scipy import stats as scipy_stats

import twofold.scores.learned as module
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.scores.chain import scorer
from twofold.scores.registry import info

PLAIN = ["confidnet", "devries", "odin", "rankfeat", "mds_perturbed"]
NAMES = [*PLAIN, "gambler", "gambler_margin", "edl_max", "edl_vacuity"]


def world(n=40, seed=0, classes=3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    learned = {name: rng.normal(size=n).astype(dtype) for name in PLAIN}
    learned["reservation"] = rng.random(n).astype(dtype)
    return Outputs((3 * rng.normal(size=(n, classes))).astype(dtype), learned=learned)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_outputs_come_back_in_float64(name):
    o = world(dtype=np.float32)
    got = scorer(name).score(o)
    assert got.dtype == np.float64
    assert got.tolist() == [float(x) for x in o.learned[name]]
    got[0] = 5.0  # a copy: the outputs are not touched
    assert o.learned[name][0] != 5.0


def test_gamblers_against_a_softmax_over_all_outputs():
    rng = np.random.default_rng(0)
    full = 2 * rng.normal(size=(30, 5))  # four classes and the reservation
    p = np.exp(full) / np.exp(full).sum(axis=1, keepdims=True)
    o = Outputs(full[:, :4], learned={"reservation": p[:, 4]})
    assert scorer("gambler").score(o) == pytest.approx(1 - p[:, 4], rel=1e-12)
    for reward in (1, 2.2, 10):
        want = [reward * max(row[:4]) - row[4] for row in p]
        assert scorer(f"gambler_margin(reward={reward})").score(o) == pytest.approx(want, rel=1e-10, abs=1e-12)
    assert (scorer("gambler_margin").score(o) == scorer("gambler_margin(reward=2.2)").score(o)).all()


def test_the_margin_is_positive_where_the_rule_accepts():
    o = Outputs(np.zeros((3, 2)), learned={"reservation": [0.4, 0.6, 1.0]})
    # p_k = 0.3, 0.2, 0 against 0.4, 0.6, 1 at a reward of 2: 0.6 > 0.4, 0.4 < 0.6, 0 < 1
    assert scorer("gambler_margin(reward=2)").score(o) == pytest.approx([0.2, -0.2, -1.0])


def test_evidence_against_scipy():
    o = world()
    for i, z in enumerate(np.asarray(o.logits)):
        a = [1 + np.exp(min(max(x, -10), 10)) for x in z]
        assert scorer("edl_max").score(o)[i] == pytest.approx(scipy_stats.dirichlet.mean(a).max(), rel=1e-12)
        assert scorer("edl_vacuity").score(o)[i] == pytest.approx(-3 / sum(a), rel=1e-12)


def test_evidence_is_that_of_the_loss():
    """The scores read the logits as the loss of the same setting does."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    o = world()
    evidence = {"relu": torch.relu, "softplus": torch.nn.functional.softplus}
    for kind, function in evidence.items():
        a = 1 + function(torch.tensor(np.asarray(o.logits, dtype=np.float64))).numpy()
        mean = [scipy_stats.dirichlet.mean(row).max() for row in a]
        assert scorer(f"edl_max(evidence='{kind}')").score(o) == pytest.approx(mean, rel=1e-12)
        assert scorer(f"edl_vacuity(evidence='{kind}')").score(o) == pytest.approx(-3 / a.sum(axis=1), rel=1e-12)
    with pytest.raises(InvalidInput, match="evidence: "):
        scorer("edl_max(evidence='log')").score(o)


def test_evidence_at_the_ends():
    o = Outputs([[800.0, -800.0], [-1e4, -1e4], [10.0, -10.0], [0.0, 0.0]])
    high, low = np.exp(10), np.exp(-10)
    top = (high + 1) / (high + low + 2)
    assert scorer("edl_max").score(o) == pytest.approx([top, 0.5, top, 0.5], rel=1e-14)
    vacuity = scorer("edl_vacuity").score(o)
    assert vacuity == pytest.approx([-2 / (high + low + 2), -2 / (2 * low + 2), -2 / (high + low + 2), -0.5], rel=1e-14)
    sure = Outputs([[9.0, -9.0], [9.001, -9.0]])  # confident rows stay apart
    assert np.diff(scorer("edl_max").score(sure))[0] > 0


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_independent_and_inputs_untouched(name):
    o = world()
    before = {k: v.copy() for k, v in o.flat().items()}
    whole = scorer(name).score(o)
    halves = np.concatenate([scorer(name).score(o[:7]), scorer(name).score(o[7:])])
    assert halves == pytest.approx(whole, rel=1e-9)
    assert np.isfinite(scorer(name).score(world(dtype=np.float16))).all()
    assert np.isfinite(scorer(name).score(world(classes=1))).all()
    for key, array in o.flat().items():
        assert (array == before[key]).all(), key


@pytest.mark.parametrize("name", [*PLAIN, "gambler", "gambler_margin"])
def test_a_missing_output_is_named(name):
    key = "reservation" if name.startswith("gambler") else name
    o = Outputs(np.zeros((2, 2)), learned={"other": [0.1, 0.2]})
    with pytest.raises(
        InvalidInput, match=rf"{name} needs learned\['{key}'\]; these outputs have learned 'other' only"
    ):
        scorer(name).score(o)
    with pytest.raises(InvalidInput, match="needs learned"):
        scorer(name).score(Outputs(np.zeros((2, 2))))
    extra = {} if name != "gambler_margin" else {"logits": np.zeros((2, 2))}
    with pytest.raises(InvalidInput, match="these outputs have no learned outputs"):
        info(name).maker({}, **extra)


@pytest.mark.parametrize("name", ["gambler", "gambler_margin"])
@pytest.mark.parametrize("bad", [1.5, -0.25])
def test_a_reservation_is_a_probability(name, bad):
    o = Outputs(np.zeros((2, 2)), learned={"reservation": [0.5, bad]})
    with pytest.raises(InvalidInput, match=rf"probability in \[0, 1\], got {bad:g} in row 1; .*not its logit"):
        scorer(name).score(o)


@pytest.mark.parametrize("bad", [0.5, float("inf"), "2"])
def test_rewards_are_checked(bad):
    with pytest.raises(InvalidInput, match="reward must be"):
        module.gambler_margin({"reservation": np.array([0.5])}, np.zeros((1, 2)), reward=bad)


@pytest.mark.parametrize("name", NAMES)
def test_every_score_is_documented(name):
    record = info(name)
    text = inspect.getdoc(record.maker)
    assert ">>>" in text
    assert ".. math::" in text
    assert record.summary.endswith(".")
    assert record.judges == "logits"
    assert record.project == (None if name.startswith("edl") else ())
