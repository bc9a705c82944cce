"""Runs of strangers: they are refused with one clear error, and nothing outside their folder is touched."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from twofold._json import encode_json
from twofold.errors import Damaged, InvalidInput, RunError, TwofoldError
from twofold.outputs import Head, Outputs, Passes
from twofold.run import Run
from twofold.run._folder import RunFolder

posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes and locks of POSIX")
C, D, ROWS = 3, 4, 6
HEAD = Head(np.random.default_rng(1).normal(size=(C, D)), np.arange(3.0))
LOGITS = {"logits": ("float64", (C,))}


def outputs(seed: int = 0, rows: int = ROWS) -> Outputs:
    """Small outputs with every kind of field."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, D))
    return Outputs(
        HEAD.logits(features),
        labels=rng.integers(-1, C, rows),
        features=features,
        head=HEAD,
        layers={"block/mean": rng.normal(size=(rows, 2)).astype(np.float32)},
        passes=Passes.from_logits(rng.normal(size=(5, rows, C))),
        learned={"confidnet": rng.random(rows)},
        ids=[f"image {i}" for i in range(rows)],
        class_names=["cat", "dog", "owl"],
    )


@pytest.fixture
def run(tmp_path) -> Run:
    made = Run.create(tmp_path / "run", model="toy", seed=0)
    made.add("a", outputs(), role="test")
    return made


def forge(run: Run, change) -> None:
    """Change the manifest and give it a checksum that fits."""
    manifest = json.loads((run.path / "run.json").read_bytes())
    del manifest["checksum"]
    change(manifest)
    (run.path / "run.json").write_bytes(encode_json(manifest))


def forge_file(run: Run, name: str, change) -> None:
    """Change the bytes of a data set's file, and let the manifest vouch for them."""
    path = run.path / f"{name}.safetensors"
    raw = bytearray(path.read_bytes())
    change(raw)
    path.write_bytes(raw)
    digest = hashlib.sha256(raw).hexdigest()
    forge(run, lambda manifest: manifest["data"][name]["stored"].update(sha256=digest))


def header_of(raw: bytes) -> dict:
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


def journal_line(content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"\n%08x %s\n" % (zlib.crc32(body), body)


def everything(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder, by its path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path)] = path.read_bytes() if path.is_file() else b"folder"
    return found


# links and names that lead outside


TARGETS = ["../victim/precious.txt", "/ABSOLUTE", "head.safetensors", "run.json", "b.safetensors", "a.safetensors", 5]


@posix
@pytest.mark.parametrize("target", TARGETS)
def test_a_forged_journal_moves_no_other_file(run, tmp_path, target):
    victim = tmp_path / "victim" / "precious.txt"
    victim.parent.mkdir()
    victim.write_bytes(b"precious")
    run.add("b", outputs(1), role="val")
    writer = run.writer("c", role="far", rows=4, fields=LOGITS)
    if target == "/ABSOLUTE":
        target = str(victim)
    with open(run.path / "c.safetensors.journal", "ab") as journal:
        journal.write(journal_line({"start": 0, "stop": 4}))
        journal.write(journal_line({"target": target}))
    (run.path / "c.safetensors.part").unlink()
    before = everything(tmp_path)
    with pytest.raises(RunError, match=r"target must be c.safetensors or c~.safetensors"):
        run.writer("c", role="far", rows=4, fields=LOGITS)
    for act in (writer.close, writer.finished, writer.missing):
        with pytest.raises(RunError, match="was not written by Run"):
            act()
    assert everything(tmp_path) == before


LINES = [
    {"start": -1, "stop": 4},
    {"start": 0, "stop": 5},
    {"start": 2, "stop": 2},
    {"start": 0, "stop": 4.0},
    {"start": False, "stop": True},
    {"start": 0},
    {"stop": 4},
    {"start": 0, "stop": 4, "more": 1},
    {},
    [],
    7,
    None,
    "start",
]


@pytest.mark.parametrize("line", LINES, ids=str)
def test_forged_lines_of_a_journal(run, line):
    writer = run.writer("c", role="far", rows=4, fields=LOGITS)
    with open(run.path / "c.safetensors.journal", "ab") as journal:
        journal.write(journal_line(line))
    with pytest.raises(RunError, match=r"delete c.safetensors.part and c.safetensors.journal to start afresh"):
        writer.missing()


def test_a_journal_that_is_nested_deeply(run):
    writer = run.writer("c", role="far", rows=4, fields=LOGITS)
    body = b"[" * 100_000
    (run.path / "c.safetensors.journal").write_bytes(b"\n%08x %s\n" % (zlib.crc32(body), body))
    with pytest.raises(RunError, match="was not written by Run"):
        writer.missing()


PLANS = [
    {"rows": "4"},
    {"rows": 0},
    {"tensors": []},
    {"tensors": {"logits": ["F64"]}},
    {"tensors": {"logits": ["F99", [3]]}},
    {"role": None},
    {"pass_count": -1},
    {"more": 1},
]


@pytest.mark.parametrize("change", PLANS, ids=str)
def test_forged_plans_of_a_journal(run, change):
    plan = {"role": "far", "rows": 4, "pass_count": None, "tensors": {"logits": ["F64", [C]]}}
    journal = run.path / "c.safetensors.journal"
    run.writer("c", role="far", rows=4, fields=LOGITS)
    journal.write_bytes(journal_line(plan))
    run.writer("c", role="far", rows=4, fields=LOGITS)
    journal.write_bytes(journal_line(plan | change))
    with pytest.raises(RunError, match="was not written by Run"):
        run.writer("c", role="far", rows=4, fields=LOGITS)


def plant(kind: str, place: Path, victim: Path) -> None:
    """Put a link of some kind, or a pipe, where a file is expected."""
    place.unlink(missing_ok=True)
    if kind == "symbolic link":
        place.symlink_to(victim)
    elif kind == "dangling link":
        place.symlink_to(victim.with_name("new.txt"))
    elif kind == "hard link":
        os.link(victim, place)
    else:
        os.mkfifo(place)


KINDS = ["symbolic link", "dangling link", "hard link", "pipe"]
PLACES = [
    "c.safetensors.part",
    "c.safetensors.journal",
    "c.safetensors",
    "c~.safetensors",
    "run.lock",
    "run.json",
    ".run.json.1.tmp",
    ".c.safetensors.1.0123456789abcdef.tmp",
]


@posix
@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_written_through_a_link(run, tmp_path, place, kind, begun):
    outside = tmp_path / "victim"
    outside.mkdir()
    victim = outside / "precious.txt"
    # as long as the file that a writer makes, and as good as its header, so that only the link tells
    probe = Run.create(tmp_path / "probe", model="toy")
    probe.writer("c", role="far", rows=4, fields=LOGITS)
    victim.write_bytes((probe.path / "c.safetensors.part").read_bytes())
    if place == "run.json" and kind != "dangling link":
        victim.write_bytes((run.path / "run.json").read_bytes())
    before = everything(outside)
    if begun:
        run.writer("c", role="far", rows=4, fields=LOGITS)
    plant(kind, run.path / place, victim)

    def write_blocks():
        writer = run.writer("c", role="far", rows=4, fields=LOGITS)
        writer.write(0, logits=np.ones((4, C)))
        writer.close()

    messages: list[str] = []
    for act in (write_blocks, lambda: run.add("c", outputs(2), role="far", replace=True), write_blocks):
        try:
            act()
        except RunError as error:
            messages.append(str(error))
        assert everything(outside) == before
        assert os.listdir(outside) == ["precious.txt"]
    assert not any("\n" in text for text in messages)


@posix
def test_a_first_head_replaces_a_link(tmp_path):
    victim = tmp_path / "precious.txt"
    victim.write_bytes(b"precious")
    made = Run.create(tmp_path / "run", model="toy")
    (made.path / "head.safetensors").symlink_to(victim)
    made.add("a", outputs(), role="test")
    assert victim.read_bytes() == b"precious"
    assert made.head.same_as(HEAD)


@posix
@pytest.mark.parametrize("name", ["run.json", "a.safetensors", "head.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_cannot_be_read_to_its_end_is_refused(run, name, kind):
    path = run.path / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(RunError, match="not a regular file"):
        Run.open(run.path).verify()


# forged files


def test_labels_outside_the_classes_are_refused_when_a_run_is_opened(run):
    for field, value in (("labels", C), ("labels", -2), ("predictions", C), ("predictions", -1), ("labels", 2**62)):
        copied = Run(shutil.copytree(run.path, run.path.with_name(f"{field}{value}")))

        def change(raw: bytearray, field: str = field, value: int = value) -> None:
            header = header_of(raw)
            start = 8 + int.from_bytes(raw[:8], "little") + header[field]["data_offsets"][0]
            raw[start + 16 : start + 24] = value.to_bytes(8, "little", signed=True)

        forge_file(copied, "a", change)
        message = f"a.safetensors has {field} outside the 3 classes of the run: {value} in row 2"
        for act in (lambda: Run.open(copied.path), lambda: Run(copied.path)["a"]):  # noqa: B023
            with pytest.raises(RunError, match=message):
                act()
        with pytest.raises(Damaged, match=message):
            Run(copied.path).verify()


def forge_header(run: Run, change) -> None:
    """Change the header of the file of ``a``; its length stays the same."""

    def rewrite(raw: bytearray) -> None:
        length = int.from_bytes(raw[:8], "little")
        header = header_of(raw)
        change(header)
        text = json.dumps(header, separators=(",", ":")).encode()
        assert len(text) <= length
        raw[8 : 8 + length] = text.ljust(length)

    forge_file(run, "a", rewrite)


def swap_places(header: dict) -> None:
    """Labels and predictions: same dtype, same shape, and now each in the place of the other."""
    first, second = header["labels"], header["predictions"]
    first["data_offsets"], second["data_offsets"] = second["data_offsets"], first["data_offsets"]


HEADERS = {
    "other places, same tensors": swap_places,
    "other dtype, same places": lambda header: header["labels"].update(dtype="F64"),
    "other shape, same places": lambda header: header["features"].update(shape=[D, ROWS]),
    "other end": lambda header: header["labels"]["data_offsets"].__setitem__(1, 8),
    "negative": lambda header: header["labels"].update(data_offsets=[-8, 40]),
    "no offsets": lambda header: header["labels"].pop("data_offsets"),
    "a number": lambda header: header.update(labels=5),
    "one less": lambda header: header.pop("labels"),
    "one more": lambda header: header.update(x=header["labels"], ids=header.pop("ids")["dtype"]),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS.keys())
def test_a_forged_header(run, change):
    forge_header(run, change)
    opened = Run.open(run.path)
    for act in (lambda: opened["a"], opened.verify):
        with pytest.raises(RunError, match=r"a.safetensors does not hold the tensors that run.json lists"):
            act()


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[]", b"3", b'"x"', b"null", b"\xff\xfe", b"9" * 5000])
def test_a_header_that_is_no_header(run, text):
    def rewrite(raw: bytearray) -> None:
        end = 8 + int.from_bytes(raw[:8], "little")
        raw[:end] = len(text).to_bytes(8, "little") + text
        raw.extend(b"\0" * 100)

    forge_file(run, "a", rewrite)
    path = run.path / "a.safetensors"
    path.write_bytes(
        path.read_bytes()[: json.loads((run.path / "run.json").read_bytes())["data"]["a"]["stored"]["bytes"]]
    )
    with pytest.raises(RunError, match=r"a\.safetensors"):
        Run.open(run.path)["a"]


def test_a_header_of_exabytes_is_not_read(run):
    forge_file(run, "a", lambda raw: raw.__setitem__(slice(0, 8), (2**62).to_bytes(8, "little")))
    with pytest.raises(RunError, match="damaged header"):
        Run.open(run.path)["a"]


def test_ids_that_are_no_text(run):
    def change(raw: bytearray) -> None:
        start = 8 + int.from_bytes(raw[:8], "little") + header_of(raw)["ids"]["data_offsets"][0]
        raw[start] = 0xFF

    forge_file(run, "a", change)
    with pytest.raises(InvalidInput, match="ids must be UTF-8"):
        _ = Run.open(run.path)["a"].ids


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"format": "twofold-run", "x": ' + "[" * 100_000])
def test_deep_manifests(run, text):
    (run.path / "run.json").write_text(text)
    with pytest.raises(RunError, match="not complete JSON"):
        Run.open(run.path)


@pytest.mark.parametrize("depth", [40, 300, 900])
def test_deep_provenance(run, depth):
    nested: list = []
    for _ in range(depth):
        nested = [nested]
    forge(run, lambda manifest: manifest["provenance"].update(more=nested))
    with pytest.raises(RunError, match=r"run.json was not written by Run|checksum"):
        Run.open(run.path)
    with pytest.raises(InvalidInput, match="more must fit in JSON"):
        Run.create(run.path.with_name("other"), model="toy", more=nested)


def test_what_create_and_add_take_can_be_opened_again(tmp_path):
    nested: dict = {"leaf": 1}
    for _ in range(30):
        nested = {"x": nested}
    made = Run.create(tmp_path / "run", model="", seed=-5, class_names=["", "ü", "\n"], more=nested, recipe=None)
    layers = {"x\ny": np.ones((2, 1)), "/": np.ones((2, 3)), "ü": np.ones((2, 1))}
    made.add("a/3", Outputs(np.eye(2, 3), layers=layers, ids=["", ""]), role="shift")
    opened = Run.open(tmp_path / "run")
    opened.verify()
    assert opened["a/3"].layers.keys() == layers.keys()
    assert opened["a/3"].ids.tolist() == ["", ""]
    assert opened.provenance["more"] == nested


def test_what_create_refuses(tmp_path):
    for bad, message in (
        ({"model": 5}, "model must be text"),
        ({"model": "m", "seed": 2**70}, "seed must be a whole number"),
        ({"model": "m", "seed": True}, "seed must be a whole number"),
        ({"model": "m", "recipe": {"a": 1}}, "recipe must be text"),
        ({"model": "m", "command": ["a"]}, "command must be text"),
        ({"model": "\ud800"}, "model must fit in JSON"),
        ({"model": "m", "class_names": []}, "class_names must be a list of strings"),
        ({"model": "m", "class_names": ["\ud800"]}, "class_names must be a list of strings"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Run.create(tmp_path / "run", **bad)
    assert not (tmp_path / "run").exists()


def test_a_head_of_another_width_that_came_later(run, tmp_path):
    made = Run.create(tmp_path / "other", model="toy")
    fields = LOGITS | {"features": ("float64", (D + 1,))}
    writer = made.writer("a", role="test", rows=2, fields=fields)
    writer.write(0, logits=np.ones((2, C)), features=np.ones((2, D + 1)))
    made.add("b", outputs(), role="val")
    with pytest.raises(InvalidInput, match="features has 5 columns"):
        writer.close()


# forged manifests, at random


WEIRD = [
    *(None, True, False, 0, 1, -1, 2, 3, 4, 5, 6, 7, 3.0, 1.5, 1e308, 2**31, 2**63, 10**40, -(10**40)),
    *("", "a", "b", "test", "train", "ood", "head", "F32", "F64", "I64", "U8", "S", "\0", "\n", "\ud800"),
    *("a.safetensors", "a~.safetensors", "head.safetensors", "run.json", "../a.safetensors", "/etc/passwd", "../x"),
    *("0" * 64, "x" * 300, [], {}, [[]], [None], [1, 2], [6, 3], {"a": 1}, {"": {}}),
    *(["F64", [6, 3]], ["F64", []], ["F64", [0, 3]], ["F64", [6, -3]], ["U8", [6, 10**15]]),
]
NAMES = [
    *("logits", "labels", "ids", "passes", "passes.count", "layers/", "layers/x", "learned/y", "features", "HEAD"),
    *("A", "b", "a/3", "a/9", "../a", ".a", "x y", "weight", "bias", "role", "model", "versions", "\ud800"),
]


def places_in(content: object, path: tuple = ()) -> list[tuple]:
    """The paths of everything inside a JSON value."""
    found = []
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        found.append((*path, key))
        found.extend(places_in(value, (*path, key)))
    return found


def mutate(content: dict, rng: random.Random) -> None:
    """Change one thing, somewhere, in a manifest."""
    path = rng.choice(places_in(content))
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    key = path[-1]
    value = parent[key]
    kind = rng.randrange(8)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[rng.choice(NAMES)] = parent.pop(key)
    elif kind == 2 and isinstance(parent, dict):
        parent[rng.choice(NAMES)] = copy.deepcopy(value)
    elif kind == 3 and isinstance(value, int) and not isinstance(value, bool):
        parent[key] = value + rng.choice([-1, 1, 8, -8, 64])
    elif kind == 4 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(rng.choice(WEIRD)))
    elif kind == 5:
        other = rng.choice(places_in(content))
        source = content
        for step in other:
            source = source[step]
        parent[key] = copy.deepcopy(source)
    else:
        parent[key] = copy.deepcopy(rng.choice(WEIRD))


ROLES = {"train", "val", "test", "shift", "near", "mid", "far", "ood_val"}


def check_invariants(run: Run) -> None:
    """What holds of every run that Run itself writes, looked at from outside."""
    raw = json.loads((run.path / "run.json").read_bytes())
    inside = {path.name for path in run.path.iterdir()}
    classes = raw["classes"]
    assert isinstance(run.provenance["model"], str)
    assert isinstance(run.provenance["versions"], dict)
    assert run.provenance.get("seed") is None or type(run.provenance["seed"]) is int
    if run.class_names is not None:
        assert len(run.class_names) == classes
        "".join(run.class_names).encode()
    if run.head is not None:
        weight, bias = run.head.weight, run.head.bias
        assert weight.ndim == 2
        assert bias.shape == weight.shape[:1] == (classes,)
        assert weight.dtype.kind == bias.dtype.kind == "f"
    assert len({name.lower() for name in run}) == len(run.names())
    for name in run:
        stored = raw["data"][name]["stored"]
        assert stored["file"] in inside
        assert Path(stored["file"]).name == stored["file"]
        assert (run.path / stored["file"]).stat().st_size == stored["bytes"]
        assert run.roles[name] in ROLES
        found = run[name]
        assert len(found) == raw["data"][name]["rows"] > 0
        for key, array in found.flat().items():
            assert len(array) == len(found), key
            assert array.ndim == {"logits": 2, "features": 2}.get(key, array.ndim)
        assert found.classes == classes
        if found.labels is not None:
            assert found.labels.dtype == np.int64
            assert found.labels.min() >= -1
            assert found.labels.max() < classes
        assert found.predictions.min() >= 0
        assert found.predictions.max() < classes
        if found.head is not None:
            assert found.head.weight.shape[0] == classes
            if found.features is not None:
                assert found.head.weight.shape[1] == found.features.shape[1]
        if isinstance(found.passes, Passes):
            assert found.passes.mean_prob.shape == found.logits.shape
            assert found.passes.mean_entropy.shape == (len(found),)
            assert found.passes.count >= 1
        elif found.passes is not None:
            assert found.passes.shape[1:] == found.logits.shape
        for array in found.layers.values():
            assert array.ndim == 2
        for array in found.learned.values():
            assert array.ndim == 1
        assert found.ids is None or found.ids.ndim == 1


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory) -> Run:
    made = Run.create(tmp_path_factory.mktemp("fuzz") / "run", model="toy", seed=0, recipe="basic")
    made.add("a", outputs(), role="test")
    made.add("b/3", Outputs(np.eye(ROWS, C), passes=np.ones((2, ROWS, C)), ids=range(ROWS)), role="shift")
    made.add("c", Outputs(np.eye(ROWS, C, dtype=np.float32), labels=np.full(ROWS, -1)), role="far")
    return made


MUTATIONS = 1500


def test_forged_manifests_are_refused_or_harmless(fuzzed):
    path = fuzzed.path / "run.json"
    good = path.read_bytes()
    rng = random.Random(0)
    plain = json.loads(good)
    del plain["checksum"]
    messages: list[str] = []
    accepted = 0
    for _ in range(MUTATIONS):
        content = copy.deepcopy(plain)
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            mutate(content, rng)
        path.write_bytes(encode_json(content))
        try:
            run = Run.open(fuzzed.path)
            for name in run:
                _ = run[name]
            _ = run.head
        except TwofoldError as error:
            messages.append(str(error))
            continue
        check_invariants(run)
        accepted += 1
    path.write_bytes(good)
    assert not any("\n" in text for text in messages)
    assert len(messages) > MUTATIONS / 2  # the mutations do reach the checks
    assert accepted > 20  # and some change nothing that matters


def test_damaged_files_at_random_are_refused_or_harmless(fuzzed):
    rng = random.Random(1)
    for file in ("a.safetensors", "head.safetensors", "b@3.safetensors"):
        path = fuzzed.path / file
        good = path.read_bytes()
        end = 8 + int.from_bytes(good[:8], "little")
        for _ in range(200):
            raw = bytearray(good)
            for _ in range(rng.choice([1, 2, 8])):
                raw[rng.randrange(end)] = rng.randrange(256)
            path.write_bytes(raw)
            try:
                run = Run.open(fuzzed.path)
                _ = [run[name] for name in run], run.head
            except RunError:
                continue
            check_invariants(run)
        path.write_bytes(good)


# readers beside writers


REPLACE = """
import sys
import numpy as np
from twofold.outputs import Outputs
from twofold.run import Run
run = Run.open(sys.argv[1])
for turn in range(1, 80):
    rows = 1 + turn % 3
    run.add("latest", Outputs(np.full((rows, 3), float(turn)), labels=[turn % 3] * rows), role="val", replace=True)
"""


@posix
@pytest.mark.parametrize("look", ["read", "verify"])
def test_readers_never_fail_while_a_data_set_is_replaced(run, look):
    run.add("latest", Outputs(np.full((1, 3), 0.0), labels=[0]), role="val")
    writers = [subprocess.Popen([sys.executable, "-c", REPLACE, run.path]) for _ in range(2)]
    looks, seen = 0, set()
    while any(writer.poll() is None for writer in writers):
        opened = Run.open(run.path)
        if look == "verify":
            opened.verify()
        found = opened["latest"]
        turn = found.logits[0, 0]
        assert (found.logits == turn).all()
        assert len(found) == 1 + turn % 3 or turn == 0
        seen.add(float(turn))
        looks += 1
    assert [writer.returncode for writer in writers] == [0, 0]
    assert looks >= 20
    assert len(seen) >= 5
    run.verify()


def test_a_data_set_that_is_replaced_for_ever_is_reported_in_the_end(run, monkeypatch):
    opened = Run.open(run.path)
    original, reads = RunFolder.manifest, []

    def restless(self):
        """The manifest as if another process had just replaced ``a``, by a file of another size."""
        manifest = original(self)
        reads.append(1)
        stored = dataclasses.replace(manifest.data["a"].stored, sha256=f"{len(reads):064x}", bytes=1)
        entry = dataclasses.replace(manifest.data["a"], stored=stored)
        return dataclasses.replace(manifest, data={"a": entry})

    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(seconds), time_ns=time.time_ns)
    monkeypatch.setattr("twofold.run._folder.time", clock)
    monkeypatch.setattr(RunFolder, "manifest", restless)
    with pytest.raises(RunError, match="expected 1; it is damaged"):
        _ = opened["a"]
    assert len(reads) == 2 * 7  # at seconds 0 to 6: at 5 the time is not yet up


def test_damage_is_reported_at_once(run, monkeypatch):
    (run.path / "a.safetensors").unlink()
    looks = []
    original = RunFolder.manifest
    opened = Run.open(run.path)
    monkeypatch.setattr(RunFolder, "manifest", lambda self: looks.append(1) or original(self))
    with pytest.raises(RunError, match="is missing, though"):
        _ = opened["a"]
    assert len(looks) == 2


def test_a_reader_sees_what_another_process_wrote_however_fast(run):
    reader = Run.open(run.path)
    for turn in range(30):
        path = run.path / "run.json"
        before = path.stat()
        role = ("val", "far")[turn % 2]  # as long as each other
        run.add("b", Outputs(np.eye(C)), role=role, replace=True)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # a clock that stands still
        assert reader.roles["b"] == role


@posix
def test_one_of_many_creators_wins(tmp_path):
    def create(index: int) -> str:
        try:
            Run.create(tmp_path / "run", model=f"model {index}")
        except RunError as error:
            return str(error)
        return "made"

    with ThreadPoolExecutor(8) as pool:
        messages = list(pool.map(create, range(8)))
    assert messages.count("made") == 1
    assert sum("already holds a run" in text for text in messages) == 7


def test_threads_add_to_one_run(tmp_path):
    made = Run.create(tmp_path / "run", model="toy")

    def add(index: int) -> None:
        made.add(f"set-{index}", outputs(index), role="test")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert sorted(made.names()) == sorted(f"set-{i}" for i in range(16))
    made.verify()
