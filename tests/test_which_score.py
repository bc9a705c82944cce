"""Which score to use: gains, regret and rules of choice against slow loops, and the cells against gates."""

from pathlib import Path

import numpy as np
import pytest

from twofold import Outputs, Run, recommend, scorer

ROOT = Path(__file__).resolve().parents[1]
KEYS = ("network", "modality", "quantity", "chosen_on", "judged_on")


@pytest.fixture
def score_choice(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import score_choice

    return score_choice


def toy_rows():
    """Two networks with three sets each, one with a single set and without the second pair."""
    rng = np.random.default_rng(0)
    rows = []
    for network in ("one", "two"):
        for chosen in ("a", "b", "c"):
            for judged in ("a", "b", "c"):
                if chosen != judged:
                    rows.append([network, "small images", "f1", chosen, judged, *rng.uniform(size=3)])
            rows.append([network, "small images", "ds_f1", "", chosen, *rng.uniform(size=3)])
    rows.append(["imagenet-toy", "large images", "f1", "t", "t", *rng.uniform(size=2), ""])
    rows.append(["imagenet-toy", "large images", "ds_f1", "", "t", *rng.uniform(size=2), ""])
    columns = (*KEYS, "msp", "msp + energy", "msp + knn")
    return [dict(zip(columns, map(str, row), strict=True)) for row in rows]


def differences(rows, network, pair):
    """The gains of a pair over msp on the unknown sets of a network."""
    own = [row for row in rows if row["network"] == network and row["quantity"] == "f1"]
    return [float(row[pair]) - float(row["msp"]) for row in own]


def test_a_mean_is_over_cells_and_then_over_networks(score_choice):
    rows = toy_rows()
    table = score_choice.Table(rows, [])
    for pair, networks in (("msp + energy", ("one", "two", "imagenet-toy")), ("msp + knn", ("one", "two"))):
        means = [sum(gains) / len(gains) for gains in (differences(rows, name, pair) for name in networks)]
        assert table.over("f1", pair, "msp").value == pytest.approx(sum(means) / len(means))


def test_draws_take_networks_and_sets_with_replacement(score_choice):
    rows = toy_rows()
    table = score_choice.Table(rows, [])
    gain = table.over("f1", "msp + energy", "msp")
    networks, sets = table.drawn
    for draw in range(5):
        total, count = 0.0, 0.0
        for i, network in enumerate(("one", "two", "imagenet-toy")):
            weights, sums = 0.0, 0.0
            for r in rows:
                if r["network"] != network or r["quantity"] != "f1":
                    continue
                weight = 1.0
                if network != "imagenet-toy":
                    weight = 1.0
                    for name in (r["chosen_on"], r["judged_on"]):
                        weight *= sets[draw][table.sets.index(name)]
                weights += weight
                sums += weight * (float(r["msp + energy"]) - float(r["msp"]))
            if weights:
                total += networks[draw][i] * sums / weights
                count += networks[draw][i]
        mean = total / count if count else gain.value
        widened = np.sqrt(3 / 2) * 4.302652730 / 1.959963985  # three networks: Student's t with two degrees of freedom
        assert gain.draws[draw] == pytest.approx(gain.value + widened * (mean - gain.value))


def test_intervals_of_few_networks_cover(score_choice):
    """The mean of five normal numbers: percentiles of its draws miss it too often, the widened ones do not."""
    rng = np.random.default_rng(5)
    plain, widened = 0, 0
    for _ in range(400):
        own = rng.normal(size=5)
        draws = own[rng.integers(0, 5, (400, 5))].mean(axis=1)
        narrow = score_choice.Gain.of(own.mean(), draws)
        wide = score_choice.Gain.of_few(own.mean(), draws, 5)
        plain += narrow.low <= 0 <= narrow.high
        widened += wide.low <= 0 <= wide.high
    assert plain < 0.9 * 400
    assert widened > 0.93 * 400


def test_regret_counts_what_is_lost_to_msp(score_choice):
    rows = toy_rows()
    table = score_choice.Table(rows, [])
    found = table.regret("msp + energy", "small images")
    shares, losses, worst = [], [], 0.0
    for network in ("one", "two"):
        lost = [
            float(r["msp"]) - float(r["msp + energy"])
            for r in rows
            if r["network"] == network and r["quantity"] == "f1"
        ]
        shares.append(sum(one > 0 for one in lost) / len(lost))
        losses.append(sum(max(one, 0) for one in lost) / len(lost))
        worst = max(worst, *lost)
    assert (found.share, found.mean, found.worst) == pytest.approx((np.mean(shares), np.mean(losses), worst))
    assert table.regret("msp + knn", "large images") is None


def test_the_best_choice_elsewhere_never_sees_its_own_network(score_choice):
    rows = []
    for network, best in (("one", "msp + knn"), ("two", "msp + energy"), ("imagenet-toy", "msp + energy")):
        values = {"msp": 0.5, "msp + energy": 0.6, "msp + knn": 0.6} | {best: 0.9}
        rows.append(
            dict(zip(KEYS, (network, "small images", "f1", "a", "b"), strict=True))
            | {k: str(v) for k, v in values.items()}
        )
    table = score_choice.Table(rows, [])
    assert table.best_elsewhere["one"] == "msp + energy"


def test_limits_for_all_candidates_together_are_wider_than_for_one(score_choice):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(20, 4000))
    gains = [score_choice.Gain.of(1.0, 1.0 + own) for own in draws]
    lowest = score_choice.simultaneous_low(gains)
    assert all(low < gain.low for low, gain in zip(lowest, gains, strict=True))
    worst = np.quantile(np.abs(draws).max(axis=0), 0.95)  # the deviates have one deviation
    assert lowest == pytest.approx([1 - worst] * 20, abs=0.1)


def world(which_score):
    """A classifier of toy outputs, with two unknown sets, and the run that it is from."""
    rng = np.random.default_rng(3)

    def outputs(n, shift, labelled=True):
        labels = rng.integers(0, 3, n)
        logits = rng.normal(size=(n, 3)) + shift * 2.5 * np.eye(3)[labels]
        return Outputs(logits, labels if labelled else np.full(n, -1))

    sets = {"test": outputs(200, 1.0), "a": outputs(200, 0.2, False), "b": outputs(60, 0.5, False)}
    conf = {}
    for spec in ("msp", "energy", "mls"):
        conf[spec] = {name: scorer(spec).score(one) for name, one in sets.items()}
    correct = sets["test"].correct
    return sets, which_score.World("toy", "small images", ("a", "b"), conf, correct, ("msp", "energy", "mls"))


@pytest.fixture
def which_score(monkeypatch):
    pytest.importorskip("torch", reason="the runs that it judges are extracted with torch")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import which_score

    return which_score


def test_f1_at_thresholds_is_that_of_a_gate(which_score):
    from twofold.gate import Gate

    sets, toy = world(which_score)
    rows = {name: which_score.halves(len(own), 0) for name, own in sets.items()}
    chosen = Outputs.concat([sets["test"][rows["test"][0]], sets["a"][rows["a"][0]]])
    gate = Gate.fit(chosen, "msp", "energy", ood_share=0.5)
    target = Outputs.concat([sets["test"][rows["test"][1]], sets["b"][rows["b"][1]]])
    found = which_score.Mixed.of(toy, "b", 1, 0).f1(("msp", "energy"), *gate.taus())
    assert found == pytest.approx(gate.report_card(target).f1)


def test_thresholds_are_the_best_of_the_choosing_half(which_score):
    _, toy = world(which_score)
    judged = which_score.Judged.of(toy, 0)
    source, target = which_score.Mixed.of(toy, "a", 0, 0), which_score.Mixed.of(toy, "b", 1, 0)
    pair = ("msp", "energy")
    best, reached = max(
        (source.f1(pair, first, second), target.f1(pair, first, second))
        for first in source.conf["msp"]
        for second in source.conf["energy"]
    )
    k = judged.pairs.index(pair)
    assert judged.chosen[0, k] == pytest.approx(best)
    assert judged.reached[0, 1, k] == pytest.approx(reached, abs=0.02)  # several thresholds may be the best


def test_the_rule_takes_what_recommend_takes(which_score, tmp_path):
    sets, toy = world(which_score)
    judged = which_score.Judged.of(toy, 0)
    rows = {name: which_score.halves(len(sets[name]), 0)[0] for name in ("test", "a")}
    run = Run.create(tmp_path / "run", model="toy")
    run.add("train", sets["test"][rows["test"]], role="train")
    run.add("val", sets["test"][rows["test"]], role="val")
    run.add("ood_val", sets["a"][rows["a"]], role="ood_val")
    names = ["msp", "energy", "mls"]
    first = recommend(run, id_scores=names, ood_scores=names, n=10).pairs[0]
    taken = [
        row for row in which_score.choices(judged) if row["chosen_on"] == "a" and row["rule"] == which_score.RULES[0]
    ]
    assert first.value.value == pytest.approx(judged.chosen[0].max())  # as many unknown rows as known ones
    assert set(taken[0]["pair"].split(" + ")) == {first.id_score, first.ood_score}
