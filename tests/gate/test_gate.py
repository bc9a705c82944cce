"""The gate: thresholds against brute force over all pairs, verdicts, report cards, folders, refusals."""

import dataclasses
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from twofold.errors import Infeasible, InvalidInput, RunError, TwofoldError
from twofold.gate import Gate, thresholds
from twofold.outputs import Head, Outputs
from twofold.run import Run
from twofold.scores.chain import scorer


def small(seed, n=24, levels=None, ood=True):
    """Scored samples, with ties where ``levels`` is small, and infinite scores now and then."""
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) > (0.3 if ood else -1)
    is_id[0], is_id[1] = True, not ood
    right = is_id & (rng.random(n) < 0.7)
    one, two = rng.normal(size=n) + right, rng.normal(size=n) + is_id
    if levels:
        one, two = np.round(one * levels) / levels, np.round(two * levels) / levels
    if seed % 3 == 0:
        one[rng.integers(n)], two[rng.integers(n)] = np.inf, -np.inf
    return right, is_id, one, two


def every_pair(right, is_id, one, two, weight):
    """(accepted ID share, risk, wrong, OOD weight, accepted ID) of every pair of thresholds, the slow way."""
    for a, b in itertools.product([*set(one), np.inf], [*set(two), np.inf]):
        known = right_in = outside = 0
        for i in range(len(one)):
            if one[i] >= a and two[i] >= b:
                known += is_id[i]
                right_in += right[i]
                outside += not is_id[i]
        total = known + weight * outside
        risk = 1 - right_in / total if total > 0 else 0.0
        yield known, risk, known - right_in, weight * outside, right_in


def of_pair(data, pair):
    taken = (data.conf_id >= pair.tau_id) & (data.conf_ood >= pair.tau_ood)
    known, true = (taken & data.is_id).sum(), (taken & data.correct).sum()
    outside = data.weight * (taken & ~data.is_id).sum() if (~data.is_id).any() else 0.0
    return known, (1 - true / (known + outside) if known + outside else 0.0), known - true, outside, true


WORLDS = [(s, levels, share) for s in range(9) for levels, share in ((None, None), (2, None), (1, 0.6), (None, 0.1))]


@pytest.mark.parametrize(("seed", "levels", "share"), WORLDS)
def test_every_objective_is_the_best_of_all_pairs(seed, levels, share):
    data = thresholds.ScoredSamples(*small(seed, levels=levels), share)
    ids = int(data.is_id.sum())
    slow = list(every_pair(data.correct, data.is_id, data.conf_id, data.conf_ood, data.weight))
    some = [row for row in slow if row[0] > 0]
    for risk in (0.1, 0.3, 0.5):
        feasible = [row[0] for row in some if row[1] <= risk + 1e-12]
        if feasible:
            got = of_pair(data, thresholds.most_coverage(data, risk))
            assert got[0] == max(feasible)
            assert got[1] <= risk + 1e-12
        else:
            with pytest.raises(Infeasible) as caught:
                thresholds.most_coverage(data, risk)
            assert caught.value.best["risk"] == pytest.approx(min(row[1] for row in some))
    for coverage in (0.2, 0.5, 1.0):
        got = of_pair(data, thresholds.least_risk(data, coverage))
        assert got[0] >= coverage * ids - 1e-9
        assert got[1] == pytest.approx(min(row[1] for row in some if row[0] >= coverage * ids - 1e-9))
    for costs in ((1.0, 1.0, 0.3), (2.0, 0.5, 0.2), (1.0, 5.0, 0.0), (0.1, 0.2, 1.0)):
        made = thresholds.Costs(*costs)

        def paid(row, made=made):
            rejected = ids - row[0] + data.weight * (~data.is_id).sum() - row[3]
            return made.wrong * row[2] + made.ood * row[3] + made.reject * rejected

        got = of_pair(data, thresholds.least_cost(data, made))
        assert paid(got) == pytest.approx(min(map(paid, slow)))
    got = of_pair(data, thresholds.best_f1(data))
    assert 2 * got[4] / (got[0] + got[3] + ids) == pytest.approx(max(2 * x[4] / (x[0] + x[3] + ids) for x in slow))


def logits_world(n=400, seed=0, ood=0.25, classes=4, features=False):
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(n) < ood, -1, rng.integers(classes, size=n))
    h = rng.normal(size=(n, 6))
    h[:, :classes] += 3.0 * (labels[:, None] == np.arange(classes))
    head = Head(np.eye(classes, 6), np.zeros(classes))
    if features:
        return Outputs(head.logits(h), labels, h, head)
    return Outputs(head.logits(h), labels)


OBJECTIVES = {
    "f1": {},
    "risk": {"risk": 0.1},
    "coverage": {"coverage": 0.7},
    "cost": {"costs": {"wrong": 1.0, "ood": 2.0, "reject": 0.2}},
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("ood", ["energy", None])
@pytest.mark.parametrize("share", [None, 0.4])
def test_the_gate_does_on_its_data_what_the_promise_says(objective, ood, share):
    data = logits_world()
    gate = Gate.fit(data, ood=ood, objective=objective, ood_share=share, **OBJECTIVES[objective])
    decision, card = gate.decide(data), gate.report_card(data)
    accepted = decision.verdict == "accept"
    assert gate.tau_id not in decision.conf_id  # a sample on its threshold would flip by rounding
    assert ood is None or gate.tau_ood not in decision.conf_ood
    assert card.true_accept == (accepted & data.correct).sum()
    assert card.false_accept_ood == (accepted & ~data.is_id).sum()
    assert card.false_accept_mistakes == (accepted & data.is_id & ~data.correct).sum()
    assert card.false_reject == (~accepted & data.correct).sum()
    assert card.risk == pytest.approx(gate.promise.seen_risk)
    assert card.coverage == pytest.approx((accepted & data.is_id).sum() / data.is_id.sum())
    assert card.risk_interval[0] <= card.risk <= card.risk_interval[1]
    assert json.loads(json.dumps(card.to_dict()))["kept"] == card.kept
    assert "promise kept" in str(card)
    assert "accept from" in str(gate)
    assert (card.kept == "no promise") == (objective in ("f1", "cost"))
    if objective == "risk":
        assert card.risk <= 0.1
    if objective == "coverage":
        assert card.coverage >= 0.7


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("delta", [None, 0.2])
def test_rounding_flips_no_verdict_on_validation(objective, delta):
    """The two runtimes of a gate differ in the last digits of a confidence."""
    data = logits_world()
    settings = OBJECTIVES[objective]
    if objective == "risk":
        settings = {"risk": 0.3, "delta": delta}
    elif delta is not None:
        pytest.skip("only a risk is guaranteed")
    gate = Gate.fit(data, objective=objective, **settings)
    decision = gate.decide(data)
    for sign in (-1.0, 1.0):
        conf_id, conf_ood = (conf * (1.0 + sign * 1e-9) for conf in (decision.conf_id, decision.conf_ood))
        assert ((conf_id >= gate.tau_id) == (decision.conf_id >= gate.tau_id)).all()
        assert ((conf_ood >= gate.tau_ood) == (decision.conf_ood >= gate.tau_ood)).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_threshold_between_neighbours_accepts_the_same_samples(seed):
    _, _, conf, _ = small(seed, levels=(None, 2)[seed % 2])
    for tau in [*conf, -np.inf, np.inf]:
        moved = thresholds.between_neighbours(float(tau), conf)
        assert [c >= moved for c in conf] == [c >= tau for c in conf]
        lower = [c for c in conf if np.isfinite(c) and c < tau]
        if np.isfinite(tau) and lower:
            assert moved == pytest.approx((max(lower) + tau) / 2)
        elif np.isfinite(tau):
            above = min(c for c in conf if c > tau)
            assert moved == pytest.approx(tau - (above - tau) / 2)
        else:
            assert moved == tau


def test_a_gap_that_holds_no_number_keeps_the_threshold():
    above = np.nextafter(1.0, 2.0)
    assert thresholds.between_neighbours(above, np.array([1.0, above])) == above
    assert thresholds.between_neighbours(2.0, np.array([2.0, 2.0])) == 2.0
    huge = np.finfo(float).max
    assert thresholds.between_neighbours(huge, np.array([-huge, huge])) == 0.0
    assert thresholds.between_neighbours(-huge, np.array([-huge, huge])) == -huge
    assert thresholds.between_neighbours(5.0, np.array([1.0, 2.0])) == 5.0  # accepts nothing, and goes on to


@pytest.mark.parametrize(("ood", "own"), [("energy", (0.7, 3.5)), (None, 0.7), ("energy", (-np.inf, np.inf))])
def test_given_thresholds_are_kept_and_measured(tmp_path, ood, own):
    data = logits_world()
    gate = Gate.fit(data, ood=ood, objective="given", thresholds=own)
    assert gate.taus() == (own if ood else (own, -np.inf))
    decision, card = gate.decide(data), gate.report_card(data)
    taken = decision.conf_id >= gate.tau_id
    if ood:
        taken &= decision.conf_ood >= gate.tau_ood
    assert ((decision.verdict == "accept") == taken).all()
    assert gate.promise.seen_coverage == pytest.approx((taken & data.is_id).sum() / data.is_id.sum())
    assert card.kept == "no promise"
    assert any("no promise" in text for text in gate.promise.cautions)
    gate.save(tmp_path / "g")
    assert Gate.load(tmp_path / "g").to_dict() == gate.to_dict()


def test_verdicts_and_margins():
    gate = dataclasses.replace(Gate.fit(logits_world()), tau_id=1.0, tau_ood=2.0)
    data = logits_world(50, seed=1)
    got = gate.decide(data)
    for i in range(len(got)):
        want = "unknown" if got.conf_ood[i] < 2.0 else "unsure" if got.conf_id[i] < 1.0 else "accept"
        assert got.verdict[i] == want
    assert got.margin_id == pytest.approx(got.conf_id - 1.0)
    assert got.margin_ood == pytest.approx(got.conf_ood - 2.0)
    assert set(got.verdict) == {"accept", "unsure", "unknown"}
    alone = Gate.fit(logits_world(), ood=None).decide(data)
    assert alone.conf_ood is None
    assert "unknown" not in alone.verdict


def test_both_scores_of_one_pass_are_the_scores():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 7)) * 10.0 ** rng.integers(-1, 4, size=(300, 1))
    for kind in (np.float64, np.float32):
        outputs = Outputs(logits.astype(kind), rng.integers(7, size=300), predictions=rng.integers(7, size=300))
        got = Gate.fit(outputs).decide(outputs)
        assert got.conf_id == pytest.approx(scorer("msp").score(outputs), rel=1e-9, abs=1e-9)
        assert got.conf_ood == pytest.approx(scorer("energy").score(outputs), rel=1e-9, abs=1e-9)
    two_halves = [Gate.fit(outputs).decide(outputs[rows]).conf_id for rows in (slice(0, 77), slice(77, 300))]
    assert (np.concatenate(two_halves) == got.conf_id).all()


@pytest.mark.parametrize("ood", ["mds", "energy", None])
def test_saved_and_loaded_gates_decide_alike_to_the_last_bit(tmp_path, ood):
    train, val, live = (logits_world(seed=s, features=True) for s in range(3))
    gate = Gate.fit(val, ood=ood, train=train, objective="risk", risk=0.3, delta=0.2, ood_share=0.2)
    gate.save(tmp_path / "g")
    again = Gate.load(tmp_path / "g")
    assert again.promise == gate.promise
    assert again.taus() == gate.taus()
    assert again.data == gate.data
    one, two = gate.decide(live), again.decide(live)
    assert (one.verdict == two.verdict).all()
    assert (one.conf_id == two.conf_id).all()
    assert ood is None or (one.conf_ood == two.conf_ood).all()
    Gate.fit(val, objective="cost", costs=(1e9, 1e9, 0.0)).save(tmp_path / "g")  # replaced, accepts nothing
    assert Gate.load(tmp_path / "g").taus() == (np.inf, np.inf)
    assert len(list((tmp_path / "g").iterdir())) == 3  # gate.json, the scores, the lock


def test_damaged_and_foreign_folders_are_one_clear_error(tmp_path):
    Gate.fit(logits_world()).save(tmp_path / "g")
    path = tmp_path / "g" / "gate.json"
    whole = path.read_bytes()
    for raw in (b"", whole[:100], b"[]", b'{"format": "other"}', whole.replace(b'"classes": 4', b'"classes": 5')):
        path.write_bytes(raw)
        with pytest.raises(RunError):
            Gate.load(tmp_path / "g")
    path.write_bytes(whole)
    tensors = next((tmp_path / "g").glob("*.safetensors"))
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(RunError, match="damaged"):
        Gate.load(tmp_path / "g")
    tensors.unlink()
    with pytest.raises(RunError, match="does not exist"):
        Gate.load(tmp_path / "g")
    with pytest.raises(RunError, match="does not exist"):
        Gate.load(tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match="holds no gate"):
        Gate.fit(logits_world()).save(tmp_path / "mine")
    with pytest.raises(RunError, match="is a file"):
        Gate.fit(logits_world()).save(tmp_path / "mine" / "letter.txt")


def test_misfits_are_refused():
    train, val = logits_world(features=True), logits_world(seed=1, features=True)
    gate = Gate.fit(val, ood="mds", train=train)
    with pytest.raises(InvalidInput, match="for 4 classes"):
        gate.decide(logits_world(classes=3))
    with pytest.raises(InvalidInput, match="features"):
        gate.decide(logits_world())
    with pytest.raises(InvalidInput, match="another head"):
        gate.decide(val.replace(features=None, head=Head(np.ones((4, 6)), np.zeros(4))))
    wide = Outputs(np.zeros((5, 4)), features=np.zeros((5, 9)))
    with pytest.raises(InvalidInput, match="9 columns"):
        gate.decide(wide)
    with pytest.raises(InvalidInput, match="Outputs"):
        gate.decide([[1.0, 2.0, 3.0, 4.0]])
    with pytest.raises(InvalidInput, match="labels"):
        gate.report_card(val.replace(labels=None))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"objective": "f2"}, "objective"),
        ({"objective": "given"}, "needs thresholds"),
        ({"thresholds": (1, 2)}, "belongs to objective='given'"),
        ({"objective": "given", "thresholds": 1.0}, "one for each score"),
        ({"objective": "given", "thresholds": (1.0, 2.0), "ood": None}, "one number"),
        ({"objective": "given", "thresholds": (1.0, "high")}, "thresholds must be a number"),
        ({"objective": "given", "thresholds": (1.0, float("nan"))}, "thresholds must be in"),
        ({"objective": "risk"}, "needs risk"),
        ({"risk": 0.1}, "belongs to objective='risk'"),
        ({"objective": "risk", "risk": 1.5}, "risk must be"),
        ({"objective": "risk", "risk": 0.1, "delta": 0.0}, "delta must be"),
        ({"objective": "coverage", "coverage": 0.0}, "coverage must be"),
        ({"objective": "cost", "costs": (1, 2)}, "costs must be"),
        ({"objective": "cost", "costs": {"wrong": 1}}, "costs must be"),
        ({"objective": "cost", "costs": (1, -2, 3)}, "costs.ood"),
        ({"ood_share": 1.0}, "ood_share"),
        ({"ood": "mds"}, "pass train="),
        ({"id": "mpp"}, "did you mean"),
    ],
)
def test_wrong_requests_are_clear_errors(settings, match):
    with pytest.raises(TwofoldError, match=match):
        Gate.fit(logits_world(), **settings)


def test_wrong_data_are_clear_errors():
    data = logits_world()
    with pytest.raises(InvalidInput, match="needs labels"):
        Gate.fit(data.replace(labels=None))
    with pytest.raises(InvalidInput, match="at least one ID"):
        Gate.fit(data.replace(labels=np.full(len(data), -1)))
    with pytest.raises(InvalidInput, match="Outputs or a Run"):
        Gate.fit(np.zeros((3, 2)))
    with pytest.raises(InvalidInput, match="at least one of each"):
        Gate.fit(data[data.is_id], ood_share=0.2)


def test_without_ood_samples_it_says_what_it_cannot_promise():
    data = logits_world()
    gate = Gate.fit(data[data.is_id], objective="risk", risk=0.1, delta=0.1)
    assert any("no OOD samples" in caution for caution in gate.promise.cautions)
    assert gate.promise.guaranteed
    with pytest.raises(InvalidInput, match="ood_share"):
        gate.monitor(ood_share=0.2)


def test_a_chain_that_was_fitted_on_validation_data_is_a_caution():
    rng = np.random.default_rng(0)
    val = Outputs(rng.normal(size=(60, 3)), rng.integers(-1, 3, size=60))
    known = val[val.is_id]
    for chain, named in ((scorer("klm").fit(known, val=known), True), (scorer("openmax").fit(known), False)):
        cautions = Gate.fit(val, chain, "energy").promise.cautions
        assert any("came fitted on val; if those are these validation data" in text for text in cautions) == named


def test_a_run_gives_its_roles(tmp_path):
    train, val = logits_world(features=True, ood=0.0), logits_world(seed=1, features=True, ood=0.0)
    far = logits_world(seed=2, features=True, ood=1.0)
    run = Run.create(tmp_path / "run", model="toy")
    run.add("train", train, role="train")
    run.add("val", val, role="val")
    run.add("far", far.replace(labels=None), role="ood_val")
    one = Gate.fit(run, ood="mds")
    two = Gate.fit(Outputs.concat([val, far]), ood="mds", train=train)
    assert one.taus() == two.taus()
    assert sum(one.promise.outside) == len(far)


def test_scores_that_judge_passes_judge_the_averaged_prediction():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    passes = rng.normal(size=(5, 200, 3)) + 2.0 * np.eye(3)[labels]
    data = Outputs(passes[0], labels, passes=passes)
    gate = Gate.fit(data, id="mc_msp", ood=None)
    assert (gate.decide(data).labels == data.averaged().predictions).all()


def test_a_promise_that_new_data_break_is_told():
    gate = Gate.fit(logits_world(4000), objective="risk", risk=0.1, delta=0.05)
    easy = logits_world(4000, seed=5, ood=0.02)  # fewer OOD inputs than in validation
    assert gate.report_card(easy).kept == "yes"
    assert gate.report_card(easy[:20]).kept == "inconclusive"
    rng = np.random.default_rng(0)
    wrong = logits_world(4000, seed=6)
    wrong = wrong.replace(labels=np.where(wrong.is_id, rng.integers(4, size=4000), -1))
    assert gate.report_card(wrong).kept == "no"


def test_the_page_shows_only_what_works(capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "gate.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)
    assert "promise kept             yes" in capsys.readouterr().out
