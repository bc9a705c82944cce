"""Probabilities in place of logits: what they allow, what is refused, and what is said to be lost."""

import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import twofold
from twofold import metrics
from twofold.cli import main
from twofold.errors import InvalidInput, LostScale
from twofold.gate import Gate
from twofold.outputs import Head, Outputs
from twofold.scores.candidates import computable_scores
from twofold.scores.chain import scorer
from twofold.scores.registry import step_names
from twofold.scores.scoring import reads_scale


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(size=(200, 4)) * 3


@pytest.fixture
def labels(logits):
    rng = np.random.default_rng(1)
    return np.where(rng.random(200) < 0.7, logits.argmax(axis=1), rng.integers(-1, 4, 200))


@pytest.mark.parametrize("name", [n for n in step_names("score", needs=["logits"]) if scorer(n).ready])
def test_scores_are_those_of_the_logits_or_warn(name, logits):
    """A score that a constant added to a row does not change is the same of probabilities; the others warn."""
    chain = twofold.scorer(name)
    shift = np.random.default_rng(2).normal(size=(200, 1)) * 5
    invariant = np.allclose(chain.score(Outputs(logits)), chain.score(Outputs(logits + shift)), rtol=1e-7)
    outputs = Outputs.from_probabilities(softmax(logits))
    if invariant:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert chain.score(outputs) == pytest.approx(chain.score(Outputs(logits)), rel=1e-6, abs=1e-12)
    else:
        with pytest.warns(LostScale, match=f"^{name}: these outputs are probabilities"):
            chain.score(outputs)


def test_energy_and_mls_read_the_scale_and_msp_does_not(logits):
    outputs = Outputs(logits)
    for name, reads in {"energy": True, "mls": True, "msp": False, "entropy": False, "gen": False}.items():
        assert reads_scale(twofold.scorer(name), outputs) is reads, name


def test_zeros_become_the_smallest_normal_number():
    for kind in (np.float32, np.float64):
        outputs = Outputs.from_probabilities(np.array([[1.0, 0.0], [0.25, 0.75]], kind))
        assert outputs.logits.dtype == kind
        assert outputs.logits[0].tolist() == [0.0, np.log(np.finfo(kind).tiny)]
        assert outputs.logits[1] == pytest.approx(np.log([0.25, 0.75]))
    half = Outputs.from_probabilities(np.array([[0.999, 0.001]], np.float16))
    assert half.logits.dtype == np.float32


def test_predictions_and_other_fields_are_kept(logits):
    p = softmax(logits)
    outputs = Outputs.from_probabilities(p, np.zeros(200, int), ids=np.arange(200), class_names=list("abcd"))
    assert (outputs.predictions == p.argmax(axis=1)).all()
    assert outputs.class_names == ("a", "b", "c", "d")
    assert outputs.is_scale_lost
    assert not Outputs(logits).is_scale_lost
    assert not Outputs(np.full((3, 2), 1e4)).is_scale_lost  # no overflow


@pytest.mark.parametrize(
    ("probs", "says"),
    [
        ([[2.0, -1.0]], "in \\[0, 1\\], got values from -1 to 2"),
        ([[0.5, 0.4]], "sum to 1, got 0.9 in row 0"),
        ([[0.5, 0.5], [0.2, 0.2]], "got 0.4 in row 1"),
        ([[50.0, 50.0]], "in \\[0, 1\\]"),
        ([0.3, 0.7], r"column_stack\(\[1 - p, p\]\)"),
        ([[0.3], [0.7]], r"column_stack\(\[1 - p, p\]\)"),
        ([[np.nan, 1.0]], "finite"),
        (np.zeros((0, 3)), "empty"),
        ([["a", "b"]], "numbers"),
    ],
)
def test_what_are_no_probabilities_is_refused(probs, says):
    with pytest.raises(InvalidInput, match=says):
        Outputs.from_probabilities(probs)


def test_a_head_is_refused():
    with pytest.raises(InvalidInput, match="pass the logits"):
        Outputs.from_probabilities([[0.5, 0.5]], features=[[1.0]], head=Head([[1.0], [1.0]]))


def test_files_with_probabilities(logits, labels, tmp_path):
    p = softmax(logits)
    np.savez(tmp_path / "probs.npz", probs=p, labels=labels)
    np.savez(tmp_path / "logits.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "both.npz", logits=logits, probs=p, labels=labels)
    printed = run("evaluate", tmp_path / "probs.npz", "--ood", "entropy", "--json")
    assert printed.exit_code == 0, printed.output
    assert "have lost it" in printed.stderr
    assert "Warning" not in printed.stderr
    want = json.loads(run("evaluate", tmp_path / "logits.npz", "--ood", "entropy", "--json").stdout)["metrics"]
    assert json.loads(printed.stdout)["metrics"] == pytest.approx(want, rel=1e-9)
    energy = run("evaluate", tmp_path / "probs.npz", "--ood", "energy")
    assert energy.exit_code == 0, energy.output
    assert energy.stderr.count("Warning: energy: these outputs are probabilities") == 1
    both = run("evaluate", tmp_path / "both.npz")
    assert (both.exit_code, "both logits and probs" in both.stderr) == (3, True)


def test_gate_fit_takes_probabilities(logits, labels, tmp_path):
    np.savez(tmp_path / "probs.npz", probs=softmax(logits), labels=labels)
    done = run("gate", "fit", tmp_path / "probs.npz", "--ood", "none", "--out", tmp_path / "gate")
    assert done.exit_code == 0, done.output
    assert "have lost it" in done.stderr
    want = Gate.fit(Outputs(logits, labels), "msp", None)
    assert Gate.load(tmp_path / "gate").tau_id == pytest.approx(want.tau_id)
    warned = run("gate", "fit", tmp_path / "probs.npz", "--out", tmp_path / "other")
    assert "Warning: energy: these outputs are probabilities" in warned.stderr
    with pytest.warns(LostScale):
        Gate.fit(Outputs.from_probabilities(softmax(logits), labels))


def test_report_takes_probabilities(logits, labels, tmp_path):
    np.savez(tmp_path / "probs.npz", probs=softmax(logits), labels=labels)
    done = run("report", tmp_path / "probs.npz", "-o", tmp_path / "r.md", "--resamples", "10")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert "no longer have the scale of the logits" in page
    assert computable_scores([Outputs.from_probabilities(softmax(logits))]).count("energy") == 0
    assert "energy" in computable_scores([Outputs(logits)])
    asked = run("report", tmp_path / "probs.npz", "--ood", "energy", "-o", tmp_path / "e.md", "--resamples", "10")
    assert asked.exit_code == 0, asked.output
    assert "Warning: energy" in asked.stderr


def test_nll_and_brier_are_those_of_the_logits(logits):
    own = np.random.default_rng(3).integers(0, 4, 200)
    outputs = Outputs.from_probabilities(softmax(logits))
    assert metrics.nll(own, outputs.logits) == pytest.approx(metrics.nll(own, logits))
    assert metrics.brier(own, outputs.logits) == pytest.approx(metrics.brier(own, logits))
