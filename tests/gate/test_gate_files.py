"""Files of gates and monitors: several writers, killed writers, damage, and forged content with a valid checksum."""

import contextlib
import copy
import dataclasses
import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from twofold._json import encode_json
from twofold.errors import InvalidInput, RunError, TwofoldError
from twofold.gate import Gate, Monitor
from twofold.gate.inputs import head_fingerprint
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer
from twofold.scores.pairs import RankedPair, Recommendation


def world(n=200, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(n) < 0.2, -1, rng.integers(3, size=n))
    features = rng.normal(size=(n, 4))
    features[:, :3] += 3.0 * (labels[:, None] == np.arange(3))
    head = Head(np.eye(3, 4), np.zeros(3))
    return Outputs(head.logits(features), labels, features, head)


SAVING = """
import os, sys
import numpy as np
from twofold.gate import Gate
from twofold.outputs import Outputs
rng = np.random.default_rng(0)
outputs = Outputs(rng.normal(size=(60, 3)), rng.integers(3, size=60))
gate = Gate.fit(outputs, "msp", "klm", train=outputs[: int(sys.argv[3])])
stop = int(sys.argv[4])
calls = 0
replace = os.replace
def dying(*names):
    global calls
    calls += 1
    if calls == stop:
        os._exit(9)
    replace(*names)
os.replace = dying
for _ in range(int(sys.argv[2])):
    gate.save(sys.argv[1])
"""


def saving(folder, times, rows, stop=0):
    return subprocess.Popen([sys.executable, "-c", SAVING, str(folder), str(times), str(rows), str(stop)])


def test_two_processes_save_to_one_folder(tmp_path):
    folder = tmp_path / "gate"
    writers = [saving(folder, 40, rows) for rows in (30, 60)]
    limit = time.monotonic() + 120
    while not (folder / "gate.json").exists() and time.monotonic() < limit:
        time.sleep(0.01)
    while any(writer.poll() is None for writer in writers):
        assert Gate.load(folder).ood.spec == "klm"  # whole at every moment
    assert [writer.wait() for writer in writers] == [0, 0]
    Gate.load(folder)
    names = sorted(path.name for path in folder.iterdir())
    assert names[:2] == ["gate.json", "gate.lock"]
    assert len(names) == 3


@pytest.mark.parametrize("stop", [1, 2])
def test_a_first_save_that_was_killed_can_be_repeated(tmp_path, stop):
    folder = tmp_path / "gate"
    assert saving(folder, 1, 30, stop).wait() == 9
    assert any(folder.iterdir())
    assert not (folder / "gate.json").exists()
    with pytest.raises(RunError, match="does not exist"):
        Gate.load(folder)
    Gate.fit(world()).save(folder)
    Gate.load(folder)
    assert len(list(folder.iterdir())) == 3  # what the dead writer left is gone


def test_foreign_files_are_refused_and_stay(tmp_path):
    for name in ("letter.txt", ".gate.json.tmp", "scores-12.safetensors"):
        folder = tmp_path / name.strip(".")
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(RunError, match="holds no gate"):
            Gate.fit(world()).save(folder)
        assert [path.name for path in folder.iterdir()] == [name]
        assert (folder / name).read_text() == "mine"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "gate").mkdir()
    os.symlink(tmp_path / "victim", tmp_path / "gate" / "gate.lock")
    with pytest.raises(RunError, match="link"):
        Gate.fit(world()).save(tmp_path / "gate")
    assert (tmp_path / "victim").read_text() == "precious"


# Forged content


ODD = [None, True, False, 0, -1, 1, 2.5, -0.5, 1e300, 10**30, "", "inf", "-inf", "nan", "x", [], [1], {}, {"a": 1}]
NESTED: list = []
for _ in range(400):
    NESTED = [NESTED]


def places(content, path=()):
    """The path of every value inside a JSON value."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def mutations(content, count, seed):
    """Copies with one or two values changed, lost, added or swapped."""
    rng = np.random.default_rng(seed)
    every = [path for path in places(content) if path]
    for _ in range(count):
        made = copy.deepcopy(content)
        for _ in range(int(rng.integers(1, 3))):
            path = every[rng.integers(len(every))]
            holder = made
            try:
                for key in path[:-1]:
                    holder = holder[key]
                old = holder[path[-1]]
            except (KeyError, IndexError, TypeError):
                continue
            action = rng.integers(6)
            if action == 0:
                del holder[path[-1]]
            elif action == 1 and isinstance(holder, dict):
                holder[f"{path[-1]}2"] = old
            elif action == 2 and type(old) is int:
                holder[path[-1]] = old + int(rng.choice([-2, -1, 1, 2]))
            elif action == 2 and type(old) is float:
                holder[path[-1]] = old * float(rng.choice([-1, 0.5, 2])) + float(rng.choice([0, 1, -1]))
            elif action == 3 and isinstance(old, str):
                holder[path[-1]] = old[: len(old) // 2] + rng.choice(["", "|", "(k=1)", "\0", "((((" * 300])
            elif action == 4 and rng.random() < 0.2:
                holder[path[-1]] = NESTED
            else:
                holder[path[-1]] = ODD[rng.integers(len(ODD))]
        yield made


def invariants(gate):
    """What every gate obeys, said once more in other words."""
    p = gate.promise
    assert not math.isnan(gate.tau_id)
    assert not math.isnan(gate.tau_ood)
    assert gate.ood is not None or gate.tau_ood == -math.inf
    assert gate.id.ready
    assert gate.ood is None or gate.ood.ready
    assert gate.class_names is None or len(gate.class_names) == gate.classes
    assert p.objective in ("f1", "risk", "coverage", "cost", "given")
    assert (p.risk is not None) == (p.objective == "risk")
    assert (p.coverage is not None) == (p.objective == "coverage")
    assert (p.costs is not None) == (p.objective == "cost") == (p.seen_cost is not None)
    assert p.delta is None or (0 < p.delta < 1 and p.risk is not None)
    assert p.ood_share is None or 0 <= p.ood_share < 1
    assert min(*p.known, *p.outside) >= 0
    assert p.seen_coverage == pytest.approx(p.known[0] / sum(p.known))
    assert all(0 <= value <= 1 for value in (p.seen_risk, p.seen_f1))
    str(gate), repr(gate), gate.monitor(), gate.to_dict()


def rows_for(gate):
    """Outputs of the shape that a gate recorded, without the head."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(9, width)) for name, width in gate.widths.items()}
    layers = {name.removeprefix("layers/"): array for name, array in arrays.items() if name != "features"}
    logits = rng.normal(size=(9, gate.classes))
    return Outputs(logits, features=arrays.get("features"), layers=layers, class_names=gate.class_names)


def decides(gate, data):
    """Whether the gate decides on rows of its own shape; those with a forged head have no such rows."""
    if "head" in {*gate.id.needs, *(gate.ood.needs if gate.ood else ())}:
        forged = gate.head != head_fingerprint([gate.id, gate.ood], data.head)
        assert forged or len(gate.decide(data)) == len(data)
        return not forged
    return len(gate.decide(rows_for(gate))) == 9


GATES = {
    "two scores": {"ood": "mds"},
    "one score": {"ood": None, "objective": "risk", "risk": 0.4, "delta": 0.2},
    "costs": {"objective": "cost", "costs": (1.0, 2.0, 0.3), "ood_share": 0.3},
    "by prediction": {"id": "openmax", "ood": "she"},
    "behind a transform": {"id": "klm", "ood": "dice|energy"},
}


@pytest.mark.parametrize("name", GATES)
def test_forged_gates_are_refused_in_one_line(tmp_path, name):
    data = world()
    Gate.fit(data, train=data, **GATES[name]).save(tmp_path / "g")
    path = tmp_path / "g" / "gate.json"
    content = json.loads(path.read_bytes())
    del content["checksum"]
    messages, accepted = [], 0
    for made in mutations(content, 250, seed=len(name)):
        try:
            path.write_bytes(encode_json(made))
        except (ValueError, RecursionError):
            path.write_bytes(b"[" * 100_000)
        try:
            gate = Gate.load(tmp_path / "g")
        except RunError as error:
            messages.append(str(error))
            continue
        invariants(gate)
        accepted += decides(gate, data)
        with contextlib.suppress(TwofoldError):  # of another model, as far as it tells
            gate.decide(data)
    assert accepted
    assert len(messages) > 150
    assert not any("\n" in text or len(text) > 1000 for text in messages)


FITTED = ["mds", "rmds", "she", "nci", "knn", "relation", "lof", "vim", "residual", "pca_error(kind='class_pred')"]
FITTED += ["kpca_error", "neco", "gmm", "isolation_forest", "sirc(s2='residual')", "klm", "openmax", "fdbd"]
FITTED += ["sum(of=('msp', 'knn'))", "dice|energy", "project|msp", "project(kind='class_pred')|energy", "mc(knn)"]


@pytest.mark.parametrize("spec", FITTED)
def test_sizes_that_do_not_fit_the_learnt_arrays_are_refused(tmp_path, spec):
    data = world()
    passes = np.stack([data.logits, data.logits])
    data = data.replace(passes=passes, layers={"passes/features": data.features})
    Gate.fit(data, ood=spec, train=data).save(tmp_path / "g")
    path = tmp_path / "g" / "gate.json"
    content = json.loads(path.read_bytes())
    del content["checksum"]
    forged = [{**content, "classes": classes} for classes in (1, 2, 4, 50, 1 << 53)]
    for name, width in content["widths"].items():
        forged += [{**content, "widths": {**content["widths"], name: size}} for size in (width - 1, width + 1, 1 << 53)]
        forged.append({**content, "widths": {key: size for key, size in content["widths"].items() if key != name}})
    refused = []
    for made in forged:
        path.write_bytes(encode_json(made))
        try:
            gate = Gate.load(tmp_path / "g")
        except RunError as error:
            refused.append(str(error))
        else:
            rows = rows_for(gate).replace(passes=np.zeros((2, 9, gate.classes)))
            if "head" in gate.ood.needs:
                weight = np.zeros((gate.classes, gate.widths["features"]))
                rows = rows.derived({"head": Head(weight)})
                gate = dataclasses.replace(gate, head=None)
            gate.decide(rows)
    assert len(refused) >= 2
    assert all("was not written by Gate.save" in text and "\n" not in text for text in refused)
    path.write_bytes(encode_json(content))
    Gate.load(tmp_path / "g").decide(data)


@pytest.mark.parametrize("spec", ["mds", "rmds", "she", "relation", "fdbd", "sum(of=('msp', 'she'))"])
def test_fewer_classes_than_were_learnt_are_refused(tmp_path, spec):
    """Scores of features alone could decide, from classes that the model does not have."""
    data = world()
    Gate.fit(data, ood=spec, train=data).save(tmp_path / "g")
    path = tmp_path / "g" / "gate.json"
    content = json.loads(path.read_bytes())
    del content["checksum"]
    path.write_bytes(encode_json({**content, "classes": 2}))
    with pytest.raises(RunError, match=r"was not written by Gate.save \(.* cannot score outputs of 2 classes"):
        Gate.load(tmp_path / "g")


def test_forged_monitors_are_refused_in_one_line(tmp_path):
    gate, path = Gate.fit(world()), tmp_path / "m.json"
    monitor = gate.monitor()
    for seed in range(3):
        monitor.update(gate.decide(world(seed=seed)))
    monitor.save(path)
    content = json.loads(path.read_bytes())
    del content["checksum"]
    messages = []
    for made in mutations(content, 500, seed=0):
        try:
            path.write_bytes(encode_json(made))
        except (ValueError, RecursionError):
            path.write_bytes(b'{"a":' * 100_000)
        try:
            loaded = Monitor.load(path)
        except InvalidInput as error:
            messages.append(str(error))
            continue
        assert all(0 <= a <= b <= 1 for a, b in zip(loaded.low, loaded.high, strict=True))
        assert loaded.stride >= 1
        assert 0 < loaded.false_alarms < 1
        assert all(count >= 0 for count in loaded.counts)
        loaded.update(["accept", "unknown"])
        loaded.merge(loaded)
        loaded.save(tmp_path / "again.json")
    assert len(messages) > 350
    assert not any("\n" in text or len(text) > 1000 for text in messages)


@pytest.mark.parametrize(
    ("key", "value"),
    [("stride", 0), ("low", [0.1, "nan", 0.0]), ("high", [0.1, 0.1, 0.1]), ("counts", [1.5, 2, 3]), ("alarm", 1)],
)
def test_impossible_states_of_a_monitor_are_refused(tmp_path, key, value):
    path = tmp_path / "m.json"
    Gate.fit(world()).monitor().save(path)
    content = json.loads(path.read_bytes())
    del content["checksum"]
    path.write_bytes(encode_json({**content, key: value}))
    with pytest.raises(InvalidInput, match=r"does not hold the state of a monitor.*save the monitor again"):
        Monitor.load(path)


def test_every_flipped_bit_is_noticed(tmp_path):
    gate = Gate.fit(world(), ood="mds", train=world(seed=1))
    gate.save(tmp_path / "g")
    gate.monitor().save(tmp_path / "g" / "m.json")
    rng = np.random.default_rng(0)
    loaders = {"gate.json": Gate.load, "m.json": lambda folder: Monitor.load(folder / "m.json")}
    scores = next(path.name for path in (tmp_path / "g").glob("scores-*"))
    for name in ("gate.json", "m.json", scores):
        path = tmp_path / "g" / name
        whole = path.read_bytes()
        for _ in range(60):
            place, bit = int(rng.integers(len(whole))), int(rng.integers(8))
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            with pytest.raises((RunError, InvalidInput)):
                loaders.get(name, Gate.load)(tmp_path / "g")
        path.write_bytes(whole)


@pytest.mark.parametrize("kind", ["gate", "monitor"])
def test_files_without_a_digest_say_how_to_write_them_again(tmp_path, kind):
    gate = Gate.fit(world())
    gate.save(tmp_path)
    gate.monitor().save(tmp_path / "m.json")
    path = tmp_path / ("gate.json" if kind == "gate" else "m.json")
    load = (lambda: Gate.load(tmp_path)) if kind == "gate" else (lambda: Monitor.load(path))
    content = json.loads(path.read_bytes())
    del content["checksum"]
    path.write_text(json.dumps(content))
    with pytest.raises(TwofoldError, match=rf"has no checksum; .*{kind} again"):
        load()
    path.write_bytes(encode_json({**content, "version": 1}))
    with pytest.raises(TwofoldError, match=rf"version 1, and this twofold reads version 2; .*{kind} again"):
        load()


def test_reprs_are_short():
    data = world(2000)
    gate = Gate.fit(data, ood="mds", train=data)
    monitor = gate.monitor()
    for _ in range(50):
        monitor.update(gate.decide(data))
    pairs = tuple(RankedPair(f"score{i}", "energy", None, None, 1.0, True) for i in range(50))
    recommendation = Recommendation("ds_f1", pairs, 630, {"mds": gate.ood}, {}, ())
    for thing in (gate, data.head, gate.id, gate.ood, scorer("react|energy"), monitor, recommendation):
        assert len(repr(thing)) < 160, type(thing)
        assert "\n" not in repr(thing)
    assert repr(data.head) == "Head(3 classes, 4 features)"
    assert repr(gate.ood) == "Chain('mds', fitted on train)"
    assert repr(scorer("react|energy")) == "Chain('react|energy', not fitted)"
    assert repr(recommendation) == "Recommendation(score0 + energy by ds_f1, 49 tied, of 630 pairs)"
