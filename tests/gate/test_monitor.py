"""The monitor: e-values against slow forms, false alarms counted, drift found, merging, files."""

import itertools
import json
import math

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.gate import Gate, Monitor
from twofold.gate.monitor import _log_best, _log_mixture
from twofold.gate.schema import VERDICTS
from twofold.outputs import Outputs


def gate_of(rng, n, share=None, **settings):
    settings = settings or {"objective": "f1"}
    return Gate.fit(outputs(rng, n), "confidnet", "devries", ood_share=share, **settings)


def outputs(rng, n, ood=0.2):
    is_id = rng.random(n) > ood
    is_id[0], is_id[1] = True, False
    right = is_id & (rng.random(n) < 0.9)
    learned = {"confidnet": rng.normal(size=n) + 1.8 * right, "devries": rng.normal(size=n) + 2.0 * is_id}
    return Outputs(np.tile([1.0, 0.0], (n, 1)), np.where(is_id, np.where(right, 0, 1), -1), learned=learned)


def test_the_mixture_is_the_integral():
    counts = (3, 1, 2)
    rng = np.random.default_rng(0)
    p = rng.dirichlet([0.5] * 3, size=400_000)
    assert math.exp(_log_mixture(counts)) == pytest.approx(np.prod(p ** np.array(counts), axis=1).mean(), rel=0.03)


def test_the_mixture_of_all_sequences_sums_to_one():
    total = sum(
        math.exp(_log_mixture(tuple(s.count(k) for k in range(3)))) for s in itertools.product(range(3), repeat=6)
    )
    assert total == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_rates_in_the_box_are_those_of_a_search(seed):
    rng = np.random.default_rng(seed)
    centre = rng.dirichlet([2.0] * 3)
    low, high = np.maximum(centre - 0.08, 0), np.minimum(centre + 0.08, 1)
    counts = tuple(int(c) for c in rng.integers(0, 40, size=3))
    best = -np.inf
    for a, b in itertools.product(np.linspace(low[0], high[0], 400), np.linspace(low[1], high[1], 400)):
        c = 1 - a - b
        if low[2] - 1e-12 <= c <= high[2] + 1e-12:
            terms = [n * math.log(p) for n, p in zip(counts, (a, b, c), strict=True) if n]
            best = max(best, sum(terms))
    got = _log_best(counts, tuple(low), tuple(high))
    assert got >= best - 1e-9
    assert got == pytest.approx(best, abs=0.05)


def test_an_impossible_verdict_raises_an_alarm():
    gate = Gate.fit(outputs(np.random.default_rng(0), 400), "confidnet", None)
    monitor = gate.monitor()
    assert monitor.high[2] == 0.0
    assert monitor.update(["unknown"])


def test_the_same_world_is_quiet_and_a_drifted_one_is_not():
    rng = np.random.default_rng(0)
    gate = gate_of(rng, 3000)
    monitor = gate.monitor(false_alarms=0.01)
    assert math.isnan(monitor.rates["accept"])
    for _ in range(50):
        assert not monitor.update(gate.decide(outputs(rng, 200)))
    assert sum(monitor.rates.values()) == pytest.approx(1.0)
    batches = 0
    while not monitor.update(gate.decide(outputs(rng, 200, ood=0.5))):
        batches += 1
        assert batches < 100
    fresh = gate.monitor(false_alarms=0.01)
    assert any(fresh.update(gate.decide(outputs(rng, 200, ood=0.5))) for _ in range(5))
    assert monitor.log[-1]["alarm"]


def test_the_expected_share_moves_the_expected_rates():
    rng = np.random.default_rng(1)
    gate = gate_of(rng, 4000, share=0.5)
    assert gate.monitor().low == gate.monitor(ood_share=0.5).low
    for _ in range(20):
        live = outputs(rng, 500, ood=0.5)
        assert not gate.monitor(ood_share=0.5).update(gate.decide(live))
    assert gate.monitor(ood_share=0.05).update(gate.decide(outputs(rng, 2000, ood=0.5)))


def test_merging_in_any_order_gives_the_same():
    rng = np.random.default_rng(2)
    gate = gate_of(rng, 1000)
    monitors = [gate.monitor() for _ in range(3)]
    for i, monitor in enumerate(monitors):
        for _ in range(3 + i):
            monitor.update(gate.decide(outputs(rng, 50)))
    a, b, c = monitors
    merged = [a.merge(b).merge(c), c.merge(b.merge(a)), b.merge(c).merge(a)]
    assert len({m.counts for m in merged}) == 1
    assert len({m.alarm for m in merged}) == 1
    assert len({round(m.log_e, 9) for m in merged}) == 1
    assert merged[0].counts == tuple(sum(m.counts[i] for m in monitors) for i in range(3))
    assert a.merge(b).log == b.merge(a).log
    with pytest.raises(InvalidInput, match="cannot be merged"):
        a.merge(gate.monitor(false_alarms=0.1))
    with pytest.raises(InvalidInput, match="takes a Monitor"):
        a.merge(3)


def test_an_alarm_of_either_stays_when_monitors_are_merged():
    box = (0.85, 0.0, 0.0), (0.95, 0.1, 0.1)
    loud, quiet = Monitor(*box, 0.01), Monitor(*box, 0.01)
    assert loud.update(["unknown"] * 60)
    assert not quiet.update(["accept"] * 9000 + ["unsure"] * 500 + ["unknown"] * 500)
    for both in (loud.merge(quiet), quiet.merge(loud)):
        assert both.log_e < 0.0  # the streams together would raise none
        assert both.alarm
    assert not quiet.merge(quiet).alarm


@pytest.mark.parametrize("false_alarms", [0.01, 0.1, 0.5])
def test_the_alarm_comes_at_the_first_e_value_of_two_over_the_rate(false_alarms):
    """With known rates the e-value of a stream is a product of conditional chances: (n_i + 1/2) / (n + 3/2) / p_i."""
    p, rng = (0.79, 0.11, 0.1), np.random.default_rng(0)
    between = 0
    for _ in range(20):
        monitor, counts, e = Monitor(p, p, false_alarms), [0, 0, 0], 1.0
        while e < 2.0 / false_alarms:
            assert not monitor.alarm
            i = int(rng.choice(3, p=[0.5, 0.3, 0.2]))
            e *= (counts[i] + 0.5) / (sum(counts) + 1.5) / p[i]
            counts[i] += 1
            monitor.update([VERDICTS[i]])
            assert monitor.log_e == pytest.approx(math.log(e), abs=1e-9)
        assert monitor.alarm
        between += e < 3.0 / false_alarms
    assert between  # the last step is small enough to tell 2 from 3


def test_the_log_stays_small_and_the_file_keeps_everything(tmp_path):
    monitor = Monitor((0.8, 0.0, 0.0), (0.95, 0.2, 0.2), 0.01)
    for _ in range(3000):
        monitor.update(["accept"] * 9 + ["unsure"])
    assert 100 < len(monitor.log) <= 512
    assert [line["n"] for line in monitor.log] == sorted(line["n"] for line in monitor.log)
    monitor.save(tmp_path / "m.json")
    again = Monitor.load(tmp_path / "m.json")
    assert vars(again) == vars(monitor)
    whole = (tmp_path / "m.json").read_text()
    other = json.dumps({**json.loads(whole), "counts": [1.5, 2, 3]})
    for raw in ("", whole[:50], "{}", "[]", "3", other, whole.replace("twofold-monitor", "twofold-minotor")):
        (tmp_path / "m.json").write_text(raw)
        with pytest.raises(InvalidInput, match="save the monitor again"):
            Monitor.load(tmp_path / "m.json")
    with pytest.raises(InvalidInput, match="does not exist"):
        Monitor.load(tmp_path / "none.json")


def test_wrong_input_is_refused_and_changes_nothing():
    monitor = Monitor((0.8, 0.0, 0.0), (0.95, 0.2, 0.2), 0.01)
    with pytest.raises(InvalidInput, match="maybe"):
        monitor.update(["accept", "maybe"])
    assert not monitor.update([])
    assert monitor.counts == (0, 0, 0)
    with pytest.raises(InvalidInput, match="false_alarms"):
        gate_of(np.random.default_rng(0), 300).monitor(false_alarms=0)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False], ids=["rates known", "rates from validation that chose the thresholds"])
def test_false_alarms_are_at_most_as_promised(exact):
    """Streams of up to 10,000 verdicts, looked at 40 times."""
    rng, worlds, level, alarms = np.random.default_rng(4), 1000, 0.1, 0
    looks = np.unique(np.geomspace(10, 10_000, 40).astype(int))
    for i in range(worlds):
        if exact:
            p = rng.dirichlet([5.0, 1.0, 1.0])
            monitor = Monitor(tuple(p), tuple(p), 2 * level)  # the box costs nothing here
        else:
            settings = {"objective": "risk", "risk": 0.1} if i % 2 else {}
            gate = gate_of(rng, 300, **settings)
            monitor = gate.monitor(false_alarms=level)
            verdict = gate.decide(outputs(rng, 20_000)).verdict
            p = np.array([(verdict == name).mean() for name in VERDICTS])
        for n in np.diff(looks, prepend=0):
            counts = rng.multinomial(n, p)
            if monitor.update(np.repeat(VERDICTS, counts)):
                alarms += 1
                break
    print(exact, alarms / worlds)
    assert alarms / worlds <= level + 3 * math.sqrt(level * (1 - level) / worlds)


def test_a_monitor_with_an_impossible_verdict_can_be_saved(tmp_path):
    monitor = Monitor((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), 0.01)
    assert monitor.update(["unsure"])
    monitor.save(tmp_path / "m.json")
    assert Monitor.load(tmp_path / "m.json").alarm


@pytest.mark.parametrize("counts", [[-1, 2, 3], [4, 0, -1], [1, 2], [True, 2, 3], [1, 2, "3"]])
def test_counts_that_cannot_be_are_refused(counts, tmp_path):
    monitor = Monitor((0.8, 0.0, 0.0), (0.95, 0.2, 0.2), 0.01, counts=tuple(counts))
    monitor.save(tmp_path / "m.json")
    with pytest.raises(InvalidInput, match="does not hold the state of a monitor"):
        Monitor.load(tmp_path / "m.json")


def test_a_quiet_monitor_comes_back_quiet(tmp_path):
    monitor = Monitor((0.8, 0.0, 0.0), (0.95, 0.2, 0.2), 0.01)
    monitor.update(["accept"] * 4 + ["unsure"] * 2)
    assert -2.0 < monitor.log_e < math.log(2 / 0.01)
    monitor.save(tmp_path / "m.json")
    assert Monitor.load(tmp_path / "m.json").counts == (4, 2, 0)
