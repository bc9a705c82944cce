"""Run: what was written is read back, whatever dies meanwhile, and no damaged byte goes unseen."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold._json import encode_json
from twofold.errors import InvalidInput, RunError, UnknownName
from twofold.outputs import Head, Outputs, Passes
from twofold.run import Run
from twofold.run._folder import RunFolder

C, D, M = 3, 4, 5
HEAD = Head(np.random.default_rng(99).normal(size=(C, D)), np.arange(3.0))
ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
posix = pytest.mark.skipif(os.name != "posix", reason="signals, fork and locks of POSIX")


def content(name: str, rows: int = 20) -> Outputs:
    """Outputs that follow from the name alone, with every field."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    features = rng.normal(size=(rows, D)).astype(np.float32)
    return Outputs(
        logits=HEAD.logits(features).astype(np.float32),
        labels=rng.integers(-1, C, rows),
        features=features,
        head=HEAD,
        layers={"block1/mean": rng.normal(size=(rows, 2)).astype(np.float16)},
        passes=rng.normal(size=(M, rows, C)),
        learned={"confidnet": rng.random(rows)},
        predictions=rng.integers(0, C, rows),
        ids=[f"{name}/ü{i}" for i in range(rows)],
        class_names=["cat", "dog", "owl"],
    )


FIELDS = {
    "logits": ("float32", (C,)),
    "labels": ("int64", ()),
    "features": ("float32", (D,)),
    "layers/block1/mean": ("float16", (2,)),
    "learned/confidnet": ("float64", ()),
    "passes": ("float64", (M, C)),
    "predictions": ("int64", ()),
    "ids": ("S40", ()),
}


def block(outputs: Outputs, start: int, stop: int) -> dict:
    """Rows of outputs as a writer takes them."""
    part = outputs[start:stop]
    return part.flat() | {"ids": part.ids}


def same(a: Outputs, b: Outputs) -> bool:
    """Equal in every array, the head, the class names and the number of passes."""
    _ = a.predictions, b.predictions
    x, y = (o.flat() | {"ids": np.asarray(o.ids)} for o in (a, b))
    heads = a.head is b.head or (a.head is not None and b.head is not None and a.head.same_as(b.head))
    return (
        x.keys() == y.keys()
        and all(np.array_equal(x[key], y[key]) and x[key].dtype.kind == y[key].dtype.kind for key in x)
        and heads
        and (a.class_names, a.pass_count) == (b.class_names, b.pass_count)
    )


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.create(tmp_path / "run", model="toy", seed=0)


def python(script: str, *arguments: object) -> str:
    """Run a script in a fresh interpreter and give what it prints."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# whole data sets


def test_everything_comes_back(run):
    run.add("cifar10-test", content("a"), role="test")
    run.add("svhn", content("b", 7), role="far")
    again = Run.open(run.path)
    assert same(again["cifar10-test"], content("a"))
    assert same(again["svhn"], content("b", 7))
    assert again.names() == list(again) == ["cifar10-test", "svhn"]
    assert again.names("far") == ["svhn"]
    assert again.names("near") == []
    assert again.roles == {"cifar10-test": "test", "svhn": "far"}
    assert again.head.same_as(HEAD)
    assert again.class_names == ("cat", "dog", "owl")
    assert "svhn" in again
    assert "lsun" not in again
    assert "svhn" in repr(again)
    again.verify()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_precision_means_of_passes_and_integer_ids(run, dtype):
    passes = Passes.from_logits(np.random.default_rng(0).normal(size=(M, 6, C)))
    outputs = Outputs(np.eye(6, C, dtype=dtype), passes=passes, ids=np.arange(6) + 2**40)
    run.add("a", outputs, role="val")
    assert same(run["a"], outputs)
    assert run["a"].logits.dtype == dtype
    assert run["a"].passes.count == M
    assert run.head is None


def test_provenance(tmp_path):
    run = Run.create(tmp_path / "deep" / "run", model="resnet18", command="twofold extract", seed=3, data={"root": "x"})
    assert run.provenance["model"] == "resnet18"
    assert run.provenance["command"] == "twofold extract"
    assert run.provenance["seed"] == 3
    assert run.provenance["data"] == {"root": "x"}
    assert run.provenance["versions"]["numpy"] == np.__version__
    with pytest.raises(InvalidInput, match="loss must fit in JSON, got nan"):
        Run.create(tmp_path / "other", model="x", loss=float("nan"))
    with pytest.raises(InvalidInput, match="model must fit in JSON"):
        Run.create(tmp_path / "other", model=Path("resnet18"))


def test_same_inputs_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        Run.create(tmp_path / name, model="toy", seed=0).add("a", content("a"), role="test")
    for file in ("run.json", "a.safetensors", "head.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_safetensors_reads_our_files(run):
    from safetensors.numpy import load_file

    run.add("a", content("a"), role="test")
    tensors = load_file(run.path / "a.safetensors")
    for name, array in content("a").flat().items():
        if name != "ids":
            np.testing.assert_array_equal(tensors[name], array)
    texts = [bytes(row).rstrip(b"\0").decode() for row in tensors["ids"]]
    assert texts == content("a").ids.tolist()
    np.testing.assert_array_equal(load_file(run.path / "head.safetensors")["weight"], HEAD.weight)


def test_tensors_are_aligned_and_mapped_not_read(run):
    run.add("a", content("a", 7), role="test")
    for name, array in run["a"].flat().items():
        assert array.flags.aligned, name
        assert not array.flags.writeable
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        assert isinstance(owner, np.memmap)
    raw = (run.path / "a.safetensors").read_bytes()
    assert (8 + int.from_bytes(raw[:8], "little")) % 64 == 0


def test_stored_data_are_not_scanned_again(run, monkeypatch):
    run.add("a", content("a"), role="test")
    scans = []
    for module in ("twofold.outputs.outputs", "twofold.run.writer"):
        monkeypatch.setattr(f"{module}.check_head", lambda *a, **k: scans.append(a))
    monkeypatch.setattr("twofold.outputs._fields.finite", lambda *a: scans.append(a))
    list(run["a"].blocks(5))
    _ = run["a"][3], run.head
    assert scans == []


def test_predictions_nobody_stored_are_taken_when_asked_for(run):
    with run.writer("a", role="test", rows=4, fields={"logits": ("float32", (C,))}) as writer:
        writer.write(0, logits=np.eye(4, C))
    outputs = run["a"]
    assert "predictions" not in vars(outputs)
    changed = outputs.replace(logits=-outputs.logits)
    assert changed.predictions.tolist() == outputs.predictions.tolist() == [0, 1, 2, 0]
    assert [b.predictions.tolist() for b in run["a"].blocks(3)] == [[0, 1, 2], [0]]


# what a run refuses


def test_names_and_roles_are_checked(run):
    outputs = content("a")
    for bad in ("", ".hidden", "a/b", "..", "a b", "ä", "x~", None):
        with pytest.raises(InvalidInput, match="name must be letters, digits"):
            run.add(bad, outputs, role="test")
    with pytest.raises(InvalidInput, match="name must not be 'head'"):
        run.add("head", outputs, role="test")
    with pytest.raises(InvalidInput, match="role: no choice 'tets'; did you mean 'test'"):
        run.add("a", outputs, role="tets")
    with pytest.raises(InvalidInput, match="role: no choice 'ood'"):
        run.names("ood")
    with pytest.raises(InvalidInput, match=r"outputs must be Outputs\(logits, ...\), got ndarray"):
        run.add("a", np.eye(3), role="test")
    run.add("Test", outputs, role="test")
    with pytest.raises(RunError, match="differs from 'test' in case only"):
        run.add("test", outputs, role="test")
    with pytest.raises(UnknownName, match="no data set 'tst'; did you mean 'Test'"):
        run["tst"]
    run.verify()


def test_a_name_is_taken_once_unless_replaced(run):
    run.add("a", content("a"), role="test")
    with pytest.raises(RunError, match="already holds a data set 'a'; pass replace=True"):
        run.add("a", content("b"), role="test")
    old = run["a"]
    for version in ("b", "c", "d"):
        run.add("a", content(version), role="val", replace=True)
        assert same(run["a"], content(version))
        assert len(list(run.path.glob("a*.safetensors"))) == 1
        run.verify()
    assert run.roles == {"a": "val"}
    assert same(old, content("a"))  # a reader keeps what it has opened


def test_a_run_holds_one_model(run):
    run.add("a", content("a"), role="test")
    plain = Outputs(np.eye(C))
    run.add("plain", plain, role="near")
    assert run["plain"].head is None
    with pytest.raises(InvalidInput, match="head differs from the head of this run"):
        run.add("b", Outputs(np.eye(C), head=Head(np.ones((C, 2)))), role="near")
    with pytest.raises(InvalidInput, match="'b' has 4 classes but this run has 3"):
        run.add("b", Outputs(np.eye(4)), role="near")
    with pytest.raises(InvalidInput, match="'b' has other class_names than this run"):
        run.add("b", plain.replace(class_names=["x", "y", "z"]), role="near")
    assert run.names() == ["a", "plain"]
    run.verify()


def test_create_is_careful(tmp_path):
    run = Run.create(tmp_path / "run", model="toy", class_names=["a", "b", "c"], head=HEAD)
    assert run.head.same_as(HEAD)
    with pytest.raises(RunError, match=r"already holds a run; open it with Run\.open"):
        Run.create(tmp_path / "run", model="toy")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file; a run needs its own folder"):
        Run.create(tmp_path / "file", model="toy")
    with pytest.raises(InvalidInput, match="class_names must be a list of strings, got 'abc'"):
        Run.create(tmp_path / "other", model="toy", class_names="abc")
    with pytest.raises(InvalidInput, match=r"head.weight must be .* for 2 classes"):
        Run.create(tmp_path / "other", model="toy", class_names=["a", "b"], head=HEAD)
    with pytest.raises(InvalidInput, match="'x' has 4 classes but this run has 3"):
        run.add("x", Outputs(np.eye(4)), role="test")


def test_what_is_no_run(tmp_path, run):
    with pytest.raises(RunError, match=r"is not a run: it is missing; make one with Run.create"):
        Run.open(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"is not a run: it has no run.json"):
        Run.open(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is not a run: it is not a folder"):
        Run.open(tmp_path / "file")


def forge(run: Run, change) -> None:
    """Write a manifest with a valid checksum and changed content."""
    manifest = json.loads((run.path / "run.json").read_bytes())
    del manifest["checksum"]
    change(manifest)
    (run.path / "run.json").write_bytes(encode_json(manifest))


MANIFESTS = {
    "truncated": (lambda raw: raw[: len(raw) // 2], r"run.json is damaged: not complete JSON"),
    "empty": (lambda raw: b"", r"run.json is damaged: not complete JSON"),
    "other": (lambda raw: b'{"format": "else"}', "is not a manifest of a twofold run"),
    "list": (lambda raw: b"[]", "is not a manifest of a twofold run"),
    "edited": (lambda raw: raw.replace(b'"test"', b'"near"'), "damaged or was edited: its checksum"),
    "no checksum": (lambda raw: b'{"format": "twofold-run", "version": 1}', "has no checksum"),
    "newer": (
        lambda raw: raw.replace(b'"version": 1', b'"version": 2'),
        r"version 2, and this twofold reads version 1.*pip",
    ),
}


@pytest.mark.parametrize(("change", "message"), MANIFESTS.values(), ids=MANIFESTS.keys())
def test_damaged_manifests(run, change, message):
    run.add("a", content("a"), role="test")
    path = run.path / "run.json"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RunError, match=message):
        Run.open(run.path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/x.safetensors", "a\\b.safetensors", "x", 3])
def test_a_manifest_cannot_lead_out_of_its_folder(run, name):
    run.add("a", content("a"), role="test")
    forge(run, lambda manifest: manifest["data"]["a"]["stored"].update(file=name))
    with pytest.raises(RunError, match="was not written by Run: file of"):
        Run.open(run.path)


def test_manifests_of_a_strange_structure(run):
    run.add("a", content("a"), role="test")
    forge(run, lambda manifest: manifest["data"]["a"].update(extra=1))
    with pytest.raises(RunError, match=r"was not written by Run: .*extra"):
        Run.open(run.path)


def test_missing_short_and_swapped_files(run):
    run.add("a", content("a"), role="test")
    run.add("b", content("b", 30), role="test")
    a, b = run.path / "a.safetensors", run.path / "b.safetensors"
    raw = a.read_bytes()
    a.write_bytes(raw[:-1])
    with pytest.raises(RunError, match=rf"a.safetensors has {len(raw) - 1} bytes, expected {len(raw)}"):
        run["a"]
    a.unlink()
    b.write_bytes(b"\xff" * b.stat().st_size)
    with pytest.raises(RunError, match=r"is missing, though run\.json names it"):
        run["a"]
    with pytest.raises(RunError, match=r"a.safetensors is missing.*b.safetensors has a damaged header"):
        run.verify()
    assert same(Outputs.concat([content("a")]), content("a"))


def test_a_header_that_tells_something_else(run):
    run.add("a", content("a"), role="test")
    path = run.path / "a.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"labels"', b'"lapels"'))
    with pytest.raises(RunError, match=r"does not hold the tensors that run.json lists"):
        run["a"]


@pytest.mark.parametrize("field", ["dtype", "data_offsets"])
def test_a_header_that_is_wrong_in_one_respect_only(run, field):
    """The right names, shapes and length, and either the types or the places of two tensors exchanged."""
    layers = {"block1/mean": np.zeros((20, 2), np.float32), "block2/mean": np.ones((20, 4), np.float16)}
    run.add("a", Outputs(np.eye(20, C), layers=layers), role="test")
    path = run.path / "a.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    one, two = header["layers/block1/mean"], header["layers/block2/mean"]
    one[field], two[field] = two[field], one[field]
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
    assert len(text) == length
    path.write_bytes(raw[:8] + text + raw[8 + length :])
    with pytest.raises(RunError, match=r"does not hold the tensors that run.json lists"):
        run["a"]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("flip") / "run", model="toy", seed=1)
    run.add("a", content("a", 3), role="test")
    return run


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=st.sampled_from(["run.json", "a.safetensors", "head.safetensors"]), data=st.data())
def test_every_flipped_bit_is_found(small_run, file, data):
    path = small_run.path / file
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(flipped)
    try:
        with pytest.raises(RunError, match=file):
            Run.open(small_run.path).verify()
    finally:
        path.write_bytes(good)
    Run.open(small_run.path).verify()


# blocks


def test_blocks_in_any_order_give_the_same_file(tmp_path, run):
    outputs = content("a", 50)
    run.add("whole", outputs, role="test")
    fields = FIELDS | {"ids": (run["whole"]._ids.dtype, ())}
    with run.writer("blocks", role="test", rows=50, fields=fields) as writer:
        spans = [(start, min(start + 7, 50)) for start in range(0, 50, 7)]
        random.Random(0).shuffle(spans)
        for start, stop in spans:
            writer.write(start, **block(outputs, start, stop))
    assert same(run["blocks"], outputs)
    run.verify()
    files = [(run.path / f"{name}.safetensors").read_bytes() for name in ("whole", "blocks")]
    assert files[0] == files[1]
    assert not list(run.path.glob("*.part"))
    assert not list(run.path.glob("*.journal"))


def test_means_of_passes_in_blocks(run):
    passes = Passes.from_logits(np.random.default_rng(0).normal(size=(M, 6, C)))
    outputs = Outputs(np.eye(6, C), passes=passes)
    fields = {name: ("float64", array.shape[1:]) for name, array in outputs.flat().items() if name != "predictions"}
    with run.writer("a", role="test", rows=6, fields=fields, pass_count=M) as writer:
        for start in (3, 0):
            part = outputs[start : start + 3].flat()
            writer.write(start, **{name: part[name] for name in fields})
    assert same(run["a"], outputs)


def test_finished_and_missing_rows(run):
    writer = run.writer("a", role="test", rows=10, fields={"logits": ("float64", (C,))})
    assert writer.finished() == []
    assert writer.missing() == [(0, 10)]
    for start, stop in ((4, 6), (8, 10), (6, 7), (4, 5)):
        writer.write(start, logits=np.ones((stop - start, C)))
    assert writer.finished() == [(4, 7), (8, 10)]
    assert writer.missing() == [(0, 4), (7, 8)]
    assert run.names() == []
    with pytest.raises(RunError, match=r"'a' is not complete: rows 0:4, 7:8 of 10 are missing; write them"):
        writer.close()
    writer.write(np.int64(0), logits=np.ones((4, C)))
    writer.write(7, logits=np.ones((1, C)))
    assert writer.missing() == []
    writer.close()
    writer.close()
    assert len(run["a"]) == 10
    with pytest.raises(RunError, match="'a' is no longer open"):
        writer.write(0, logits=np.ones((4, C)))
    with pytest.raises(RunError, match="already holds a data set 'a'"):
        run.writer("a", role="test", rows=10, fields={"logits": ("float64", (C,))})


@pytest.mark.parametrize(("rows", "first", "last"), [(30, 10, 20), (1, 0, 1)])
def test_an_interrupted_writer_resumes(run, rows, first, last):
    outputs = content("a", rows)

    def interrupted():
        with run.writer("a", role="train", rows=rows, fields=FIELDS) as writer:
            writer.write(first, **block(outputs, first, last))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert Run.open(run.path).names() == []
    again = Run.open(run.path).writer("a", role="train", rows=rows, fields=FIELDS)
    assert again.finished() == [(first, last)]
    for start, stop in again.missing():
        again.write(start, **block(outputs, start, stop))
    again.close()
    assert run["a"].ids.tolist() == outputs.ids.tolist()
    run.verify()


def test_another_layout_is_no_resumption(run):
    fields = {"logits": ("float32", (C,)), "features": ("float32", (D,))}
    run.writer("a", role="train", rows=30, fields=fields)
    with pytest.raises(RunError, match=r"another layout \(rows was 30, now 31\); resume with the same.*delete"):
        run.writer("a", role="train", rows=31, fields=fields)
    with pytest.raises(RunError, match=r"\(role was train, now val; features was \['F32', \[4\]\], now None\)"):
        run.writer("a", role="val", rows=30, fields={"logits": ("float32", (C,))})
    with pytest.raises(RunError, match=r"features was \['F32', \[4\]\], now \['F16', \[4\]\]"):
        run.writer("a", role="train", rows=30, fields=fields | {"features": ("float16", (D,))})


def test_torn_journal_lines_are_passed_over(run):
    logits = np.arange(30.0).reshape(10, C)
    fields = {"logits": ("float64", (C,))}
    writer = run.writer("a", role="test", rows=10, fields=fields)
    writer.write(0, logits=logits[:5])
    journal = run.path / "a.safetensors.journal"
    whole = journal.read_bytes()
    writer.write(5, logits=logits[5:])
    torn = journal.read_bytes()[:-4]
    journal.write_bytes(torn)
    assert writer.missing() == [(5, 10)]
    writer.write(5, logits=logits[5:])
    assert writer.missing() == []
    journal.write_bytes(whole + b'00000000 {"start": 5, "stop": 10}\n')
    assert writer.missing() == [(5, 10)]
    writer.write(5, logits=logits[5:])
    writer.close()
    np.testing.assert_array_equal(run["a"].logits, logits)


def test_a_journal_without_its_file_starts_afresh(run):
    fields = {"logits": ("float64", (C,))}
    writer = run.writer("a", role="test", rows=4, fields=fields)
    writer.write(0, logits=np.ones((4, C)))
    (run.path / "a.safetensors.part").unlink()
    assert run.writer("a", role="test", rows=4, fields=fields).missing() == [(0, 4)]


def test_a_writer_replaces_when_asked(run):
    run.add("a", content("a"), role="test")
    fields = {"logits": ("float64", (C,))}
    with run.writer("a", role="val", rows=2, fields=fields, replace=True) as writer:
        writer.write(0, logits=np.ones((2, C)))
        assert same(run["a"], content("a"))
    assert len(run["a"]) == 2
    assert [p.name for p in run.path.glob("a*")] == ["a~.safetensors"]
    run.verify()


BLOCKS = {
    "undeclared": ({"extra": np.ones(2)}, "the fields features, ids, labels, logits; missing or not declared: extra"),
    "missing": ({"ids": None}, "missing or not declared: ids"),
    "rows": ({"labels": [0]}, r"labels \(block from row 4\) has 1 rows but logits has 2"),
    "label": ({"labels": [0, 3]}, r"labels \(block from row 4\) must be in \[-1, 3\).*got 3 in row 1"),
    "NaN": ({"logits": np.full((2, C), np.nan)}, r"logits \(block from row 4\) must be finite.*row 0"),
    "width": (
        {"features": np.ones((2, 9))},
        r"features \(block from row 4\) must have rows of shape \(4,\), got \(9,\)",
    ),
    "overflow": (
        {"features": np.full((2, D), 1e6)},
        r"features .*does not fit float16 in row 0; declare a wider",
    ),
    "long id": ({"ids": ["a" * 9, "b"]}, r"ids .*must be strings of at most 8 bytes, got \|S9"),
    "number id": ({"ids": [1, 2]}, r"ids .*must be strings of at most 8 bytes"),
    "boolean": ({"logits": np.ones((2, C), bool)}, r"logits .*must be floats, got booleans"),
}


@pytest.mark.parametrize(("change", "message"), BLOCKS.values(), ids=BLOCKS.keys())
def test_blocks_are_checked_when_they_enter(run, change, message):
    fields = {
        "logits": ("float32", (C,)),
        "features": ("float16", (D,)),
        "labels": ("int64", ()),
        "ids": ("S8", ()),
    }
    writer = run.writer("a", role="test", rows=10, fields=fields)
    good = {"logits": np.ones((2, C)), "features": np.ones((2, D)), "labels": [0, -1], "ids": ["a", "b"]}
    writer.write(4, **good)
    changed = {name: value for name, value in (good | change).items() if value is not None}
    with pytest.raises(InvalidInput, match=message):
        writer.write(4, **changed)
    with pytest.raises(InvalidInput, match="rows 9:11 do not fit; 'a' has 10 rows"):
        writer.write(9, **good)
    with pytest.raises(InvalidInput, match="start must be a whole number of at least 0"):
        writer.write(-1, **good)


LOGITS = {"logits": ("float32", (C,))}
MEANS = {f"passes.{n}": ("f4", (C,)) for n in ("mean_prob", "mean_logits", "prob_std")}
DECLARED = {
    "no logits": ({"labels": ("int64", ())}, {}, "fields must hold logits, got labels"),
    "unknown": (
        LOGITS | {"feature": ("f4", (D,))},
        {},
        "fields: no field 'feature'; did you mean 'features'",
    ),
    "dtype": (
        {"logits": ("int32", (C,))},
        {},
        r"fields\['logits'\] must have dtype float16 or float32 or float64",
    ),
    "labels": (LOGITS | {"labels": ("f4", ())}, {}, r"fields\['labels'\] must have dtype int64, got float32"),
    "ids": (LOGITS | {"ids": ("U8", ())}, {}, r"fields\['ids'\] must have dtype int64 or S<bytes>"),
    "shape": ({"logits": ("f4", ())}, {}, r"fields\['logits'\] must give the shape of one row, got \(\)"),
    "count": (LOGITS, {"pass_count": 3}, "pass_count goes with means of passes"),
    "no count": (LOGITS | MEANS | {"passes.mean_entropy": ("f4", ())}, {}, "means of passes need all of"),
    "few means": (LOGITS | MEANS, {"pass_count": 3}, "means of passes need all of"),
    "classes": (
        LOGITS | {"passes": ("f4", (M, 2))},
        {},
        r"fields\['passes'\] has 2 classes but logits has 3",
    ),
    "rows": (LOGITS, {"rows": 0}, "rows must be a whole number of at least 1"),
    "role": (LOGITS, {"role": "tran"}, "did you mean 'train'"),
}


@pytest.mark.parametrize(("fields", "settings_", "message"), DECLARED.values(), ids=DECLARED.keys())
def test_layouts_are_checked(run, fields, settings_, message):
    with pytest.raises(InvalidInput, match=message):
        run.writer("a", **({"role": "test", "rows": 5, "fields": fields} | settings_))


def test_integer_ids_stay_integers(run):
    writer = run.writer("a", role="test", rows=2, fields=LOGITS | {"ids": ("int64", ())})
    with pytest.raises(InvalidInput, match=r"was declared int64 but holds strings"):
        writer.write(0, logits=np.eye(2, C), ids=["a", "b"])
    writer.write(0, logits=np.eye(2, C), ids=[7, 8])
    writer.close()
    assert run["a"].ids.tolist() == [7, 8]


def test_blocks_obey_the_head_law(tmp_path):
    run = Run.create(tmp_path / "run", model="toy", head=HEAD)
    fields = {"logits": ("float64", (C,)), "features": ("float64", (D,))}
    with pytest.raises(InvalidInput, match=r"\(3, 4\) but features has 5 columns"):
        run.writer("a", role="test", rows=4, fields=fields | {"features": ("float64", (5,))})
    features = np.random.default_rng(0).normal(size=(4, D))
    with run.writer("a", role="test", rows=4, fields=fields) as writer:
        with pytest.raises(InvalidInput, match=r"features \(block from row 2\) @ head.weight.T"):
            writer.write(2, logits=np.ones((2, C)), features=features[:2])
        writer.write(0, logits=HEAD.logits(features), features=features)
    assert run["a"].head.same_as(HEAD)


def test_the_head_law_also_holds_for_a_head_that_came_later(run):
    fields = {"logits": ("float64", (C,)), "features": ("float64", (D,))}
    writer = run.writer("a", role="test", rows=4, fields=fields)
    writer.write(0, logits=np.ones((4, C)), features=np.ones((4, D)))
    run.add("b", content("b"), role="val")
    with pytest.raises(InvalidInput, match="must equal logits"):
        writer.close()
    assert run.names() == ["b"]


# whatever dies


class Crash(BaseException):
    """The process ends here."""


def crash_at(monkeypatch, step: int) -> None:
    """From the given file operation on, nothing reaches the disk any more."""
    calls = iter(range(10**9))

    def guarded(original):
        def call(*args, **kwargs):
            if next(calls) >= step:
                raise Crash
            return original(*args, **kwargs)

        return call

    for place, name in ((os, "replace"), (os, "fsync"), (os, "write"), (Path, "unlink")):
        monkeypatch.setattr(place, name, guarded(getattr(place, name)))


def crash_everywhere(run: Run, monkeypatch, action, check) -> int:
    """On copies of a run, crash an action at its first file operation, its second, ...; then try again."""
    for step in range(200):
        copy = Run(shutil.copytree(run.path, run.path.with_name(f"copy-{step}")))
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            try:
                action(Run.open(copy.path))
            except Crash:
                done = False
            else:
                done = True
        copy.verify()
        check(copy, done)
        if done:
            return step
        action(Run.open(copy.path))
        copy.verify()
        check(copy, True)
        assert not [p.name for p in copy.path.iterdir() if p.name.endswith((".tmp", ".part"))]
    raise AssertionError("never got through")


@pytest.mark.parametrize("existing", [False, True], ids=["new", "replacing"])
def test_a_crash_at_any_step_of_add_keeps_the_last_good_state(run, monkeypatch, existing):
    run.add("first", Outputs(np.eye(C)), role="test")
    if existing:
        run.add("a", content("old"), role="test")

    def action(run):
        run.add("a", content("new"), role="val", replace=True)

    def check(run, done):
        assert same(run["first"].replace(class_names=None), Outputs(np.eye(C)))
        if done or ("a" in run and run.roles["a"] == "val"):
            assert same(run["a"], content("new"))
        elif existing:
            assert same(run["a"], content("old"))

    assert crash_everywhere(run, monkeypatch, action, check) >= 6


@pytest.mark.parametrize("existing", [False, True], ids=["new", "replacing"])
def test_a_crash_at_any_step_of_a_writer_loses_no_finished_row(run, monkeypatch, existing):
    outputs = content("new", 30)
    finished: dict[Path, set[int]] = {}
    if existing:
        run.add("a", content("old"), role="test")

    def action(run):
        done = finished.setdefault(run.path, set())
        if run.names("train"):
            return  # the crash came after the data set was entered
        writer = run.writer("a", role="train", rows=30, fields=FIELDS, replace=existing)
        assert done <= {row for span in writer.finished() for row in range(*span)}
        for start in (20, 0, 10):
            if any(a <= start < b for a, b in writer.missing()):
                writer.write(start, **block(outputs, start, start + 10))
                done.update(range(start, start + 10))
        writer.close()

    def check(run, done):
        if done or run.names("train"):
            assert run["a"].ids.tolist() == outputs.ids.tolist()
            assert np.array_equal(run["a"].features, outputs.features)
        elif existing:
            assert same(run["a"], content("old"))

    assert crash_everywhere(run, monkeypatch, action, check) >= 15


def test_starting_afresh_never_pairs_an_old_journal_with_an_empty_file(run, monkeypatch):
    writer = run.writer("a", role="test", rows=4, fields=LOGITS)
    writer.write(0, logits=np.ones((4, C)))
    (run.path / "a.safetensors.part").unlink()

    def action(run):
        assert run.writer("a", role="test", rows=4, fields=LOGITS).missing() == [(0, 4)]

    for step in range(20):
        copy = Run(shutil.copytree(run.path, run.path.with_name(f"copy-{step}")))
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            with contextlib.suppress(Crash):
                action(copy)
        action(copy)


def test_a_stale_journal_does_not_touch_a_data_set_that_was_entered(run, monkeypatch):
    run.add("a", content("old"), role="test")

    def write():
        writer = run.writer("a", role="train", rows=4, fields=LOGITS, replace=True)
        assert writer.missing() == [(0, 4)]
        writer.write(0, logits=np.ones((4, C)))
        return writer

    save = RunFolder.save

    def dying(self, manifest):
        save(self, manifest)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", dying)
        writer = write()
        with pytest.raises(Crash):
            writer.close()
    write()
    run.verify()
    assert run.names("train") == ["a"]
    assert (run["a"].logits == 1).all()


def work_until_killed(path: Path, acknowledged: Path, life: int) -> None:
    """Add, replace and write blocks for ever, noting each finished deed."""
    note = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    run = Run.open(path)
    for turn in range(10**6):
        name = f"set-{life}-{turn}"
        run.add(name, content(name), role="test")
        os.write(note, f"add {name}\n".encode())
        serial = life * 10**6 + turn
        run.add("latest", content(f"latest-{serial}").replace(ids=np.full(20, serial)), role="val", replace=True)
        os.write(note, f"latest {serial}\n".encode())
        name = next(n for n in (f"blocks-{k}" for k in range(10**6)) if n not in run)
        outputs = content(name, 60)
        with run.writer(name, role="train", rows=60, fields=FIELDS) as writer:
            for start in range(0, 60, 10):
                if any(a <= start < b for a, b in writer.missing()):
                    writer.write(start, **block(outputs, start, start + 10))
                    os.write(note, f"rows {name} {start}\n".encode())
        os.write(note, f"add {name}\n".encode())


def serve_lives(path: Path, acknowledged: Path) -> None:
    """For every line on the standard input: fork a worker, kill it after that many seconds, answer."""
    for life, line in enumerate(sys.stdin):
        before = acknowledged.stat().st_size
        worker = os.fork()
        if worker == 0:
            try:
                work_until_killed(path, acknowledged, life)
            finally:
                os._exit(1)  # an error: a worker ends by the signal alone
        # on a busy machine a short life may end before its first deed; every other one is let to do some
        patience = time.monotonic() + 20
        while life % 2 and acknowledged.stat().st_size < before + 100 and time.monotonic() < patience:
            time.sleep(0.001)
        time.sleep(float(line))
        os.kill(worker, signal.SIGKILL)
        _, status = os.waitpid(worker, 0)
        os.write(1, b"killed\n" if os.WIFSIGNALED(status) else b"failed\n")


@posix
def test_killing_writers_at_random_moments_loses_nothing(run, tmp_path):
    acknowledged = tmp_path / "acknowledged"
    acknowledged.touch()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_run as t; from pathlib import Path;"
        "t.serve_lives(Path(sys.argv[2]), Path(sys.argv[3]))"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(run.path), str(acknowledged)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    rng, lives = random.Random(0), 32
    seen: set[str] = set()
    with subprocess.Popen(command, env=ENVIRONMENT, **pipes) as server:
        for _ in range(lives):
            server.stdin.write(f"{rng.uniform(0.0, 0.1)}\n")
            server.stdin.flush()
            assert server.stdout.readline() == "killed\n"
            check_survivors(run.path, acknowledged.read_text().split("\n")[:-1], seen)
        server.stdin.close()
    assert server.returncode == 0
    assert len(seen) >= lives // 2

    again = Run.open(run.path)
    name = next(n for n in (f"blocks-{k}" for k in range(10**6)) if n not in again)
    outputs = content(name, 60)
    with again.writer(name, role="train", rows=60, fields=FIELDS) as writer:
        for start, stop in writer.missing():
            writer.write(start, **block(outputs, start, stop))
    again.verify()
    for name in set(again.names()) - {"latest"}:
        assert same(again[name].replace(class_names=None), expected(name)), name
    assert not [p.name for p in run.path.iterdir() if p.name.endswith((".tmp", ".part"))]


def expected(name: str) -> Outputs:
    return content(name, 60 if name.startswith("blocks") else 20).replace(class_names=None)


def check_survivors(path: Path, deeds: list[str], seen: set[str]) -> None:
    """Every deed that was noted is there, every data set is whole, and is what its name says."""
    run = Run.open(path)
    run.verify()
    names = set(run.names())
    assert {deed.split()[1] for deed in deeds if deed.startswith("add")} <= names
    for name in names - seen - {"latest"}:
        assert same(run[name].replace(class_names=None), expected(name)), name
    seen |= names - {"latest"}
    if "latest" in names:
        serial = int(run["latest"].ids[0])
        assert serial >= max((int(d.split()[1]) for d in deeds if d.startswith("latest")), default=0)
        assert np.array_equal(run["latest"].logits, content(f"latest-{serial}").logits)
    for name in {deed.split()[1] for deed in deeds if deed.startswith("rows")} - names:
        rows = {int(deed.split()[2]) for deed in deeds if deed.startswith(f"rows {name} ")}
        writer = run.writer(name, role="train", rows=60, fields=FIELDS)
        assert rows <= {row for span in writer.finished() for row in range(*span)}


# several processes, large files

ADDER = """
import sys
import numpy as np
from twofold.outputs import Outputs
from twofold.run import Run
run = Run.open(sys.argv[1])
for i in range(15):
    run.add(f"set-{sys.argv[2]}-{i}", Outputs(np.eye(3) + i), role="test")
"""

BLOCK_WRITER = """
import pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    writer = pickle.load(file)
for start in range(int(sys.argv[2]) * 10, 400, 40):
    writer.write(start, logits=np.arange(start, start + 10)[:, None] + np.arange(3.0))
"""


def together(script: str, path: Path, count: int) -> None:
    """Run a script in several processes at once."""
    commands = [[sys.executable, "-c", script, str(path), str(k)] for k in range(count)]
    workers = [subprocess.Popen(command, env=ENVIRONMENT) for command in commands]
    assert [worker.wait() for worker in workers] == [0] * count


@posix
def test_several_processes_add_without_losing_entries(run):
    together(ADDER, run.path, 4)
    assert sorted(run.names()) == sorted(f"set-{k}-{i}" for k in range(4) for i in range(15))
    run.verify()


@posix
def test_several_processes_fill_one_file(run, tmp_path):
    writer = run.writer("a", role="train", rows=400, fields={"logits": ("float64", (C,))})
    (tmp_path / "writer").write_bytes(pickle.dumps(writer))
    together(BLOCK_WRITER, tmp_path / "writer", 4)
    assert writer.finished() == [(0, 400)]
    writer.close()
    np.testing.assert_array_equal(run["a"].logits, np.arange(400)[:, None] + np.arange(3.0))
    run.verify()


def test_an_open_run_sees_what_others_add(run):
    reader = Run.open(run.path)
    run.add("a", content("a"), role="test")
    assert reader.names() == ["a"]
    assert same(reader["a"], content("a"))


READER = """
import sys
import numpy as np
from twofold.run import Run

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

run = Run.open(sys.argv[1])
np.ones((1000, 1000)).sum()
before = peak()
outputs = run["big"]
opened = peak()
total, rows = 0.0, 0
for block in outputs.blocks(1024):
    total += float(block.features.sum()) + len(block.predictions)
    rows += len(block)
read = peak()
outputs.predictions.sum()
run.verify()
print(rows, total, opened - before, read - before, peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_large_runs_cost_no_memory(run):
    rows, width, step = 65_536, 1024, 8192  # 256 MB of features
    fields = {"logits": ("float32", (C,)), "features": ("float32", (width,))}
    with run.writer("big", role="train", rows=rows, fields=fields) as writer:
        ones, logits = np.ones((step, width), np.float32), np.zeros((step, C), np.float32)
        for start in range(0, rows, step):
            writer.write(start, logits=logits, features=ones)
    count, total, opened, read, end = map(float, python(READER, run.path).split())
    assert count == rows
    assert total == rows * (width + 1)
    assert opened < 4  # megabytes
    assert read < 40
    assert end < 60


def test_reading_a_run_needs_no_heavy_import():
    heavy = {"scipy", "numba", "torch", "pandas", "sklearn"}
    script = f"import sys, twofold.run; print({heavy} & set(sys.modules))"
    assert python(script).strip() == "set()"


@pytest.mark.parametrize("groups", [[7, 7, 8], ["p1", "p1", "patient 22"]])
def test_groups_are_stored_and_written_in_blocks(tmp_path, groups):
    run = Run.create(tmp_path / "run", model="toy")
    run.add("val", Outputs(np.eye(3), labels=[0, 1, 2], groups=groups), role="val")
    assert run["val"].groups.tolist() == groups
    kind = "int64" if isinstance(groups[0], int) else "S16"
    with run.writer("test", role="test", rows=3, fields={"logits": ("float64", (3,)), "groups": (kind, ())}) as writer:
        writer.write(1, logits=np.eye(3)[1:], groups=groups[1:])
        writer.write(0, logits=np.eye(3)[:1], groups=groups[:1])
    assert run["test"].groups.tolist() == groups
    run.verify()
