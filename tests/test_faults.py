"""Full disks and forged files: every command says so in one line, and what was there stays."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from twofold.bench import catalogue as benchmarks
from twofold.bench.cache import Cache, CacheEntry
from twofold.bench.results import Results
from twofold.cli import main
from twofold.errors import InvalidInput, RunError, TwofoldError
from twofold.gate import Gate
from twofold.metrics import ScoreSummary
from twofold.outputs import Head, Outputs
from twofold.run import Run
from twofold.scores.chain import scorer
from twofold.study import opened as opened_study

resource = pytest.importorskip("resource", reason="limits of POSIX")
DEEP = "[" * 100_000


@contextmanager
def full_disk() -> Iterator[None]:
    """While open, no file of this process can grow: every write fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = bytecode


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but the empty ones: locks."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size:
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def outputs(seed: int, rows: int = 60, *, known: bool = True) -> Outputs:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows) if known else np.full(rows, -1)
    features = rng.normal(size=(rows, 4)) + 2 * np.eye(4)[labels % 4] * known
    head = Head(2 * np.eye(3, 4), np.zeros(3))
    return Outputs(head.logits(features), labels=labels, features=features, head=head)


def small_run(folder: Path) -> Run:
    made = Run.create(folder, model="toy", seed=0)
    for seed, role in enumerate(("train", "val", "test")):
        made.add(role, outputs(seed), role=role)
    made.add("far", outputs(9, known=False), role="far")
    return made


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with a run, an npz file and a gate, which is the working directory."""
    small_run(tmp_path / "run")
    outputs(5).to_npz(tmp_path / "test.npz")
    monkeypatch.chdir(tmp_path)
    assert run("gate", "fit", "run", "--out", "gate").exit_code == 0
    return tmp_path


COMMANDS = {
    "score": "score run --score msp --out scores.npz --replace",
    "gate fit": "gate fit run --out new-gate --replace",
    "report": "report run --out page.html --replace",
    "report md": "report run --format md --out page.md --replace",
    "bench run": "bench run digits --run twofold-demo --score msp --score energy --out results --resamples 0",
}


DATA_RESIZE = "data resize noise:uniform?n=3 --out small.npz --size 8"
DATA_CHECK = "data check noise:uniform?n=3 --sheet sheet.png"

# older NumPy leaves the archive that it failed to write to be closed later, into a file that is closed
UNCLOSED_ZIP = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@UNCLOSED_ZIP
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_full_disk_is_one_line_and_changes_nothing(place, words):
    if "twofold-demo" in words:
        pytest.importorskip("sklearn")
        assert run("demo", "--resamples", 10).exit_code == 0
    whole = run(*words.split())
    assert whole.exit_code == 0, whole.output
    if "bench" in words:  # what is known already is not written again
        words = words.replace("--score energy", "--score mls")
    before = content(place)
    with full_disk():
        result = run(*words.split())
    assert result.exit_code == 3, (result.output, result.exception)
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "ile too large" in result.stderr
    assert content(place) == before
    assert run(*words.split()).exit_code == 0


@UNCLOSED_ZIP
@pytest.mark.parametrize("words", [DATA_RESIZE, DATA_RESIZE.replace("--size 8", "--size 256"), DATA_CHECK])
def test_a_full_disk_while_writing_images(tmp_path, monkeypatch, words):
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    assert run(*words.split()).exit_code == 0
    before = content(tmp_path)
    with full_disk():
        result = run(*words.replace("n=3", "n=4").split(), "--replace")
    assert result.exit_code == 3, (result.output, result.exception)
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "ile too large" in result.stderr
    assert content(tmp_path) == before
    assert list(tmp_path.iterdir()) == [tmp_path / words.split()[4]]


def test_a_full_disk_in_the_demo(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    with full_disk():
        result = run("demo", "--resamples", 10)
    assert result.exit_code == 3
    assert result.stderr.strip().endswith("files that were complete are unchanged")
    assert "run.json" in result.stderr or "safetensors" in result.stderr


WRITERS = {
    "run": lambda folder: Run.open(folder / "run").add("test", outputs(7), role="test", replace=True),
    "new run": lambda folder: small_run(folder / "other"),
    "gate": lambda folder: Gate.fit(Run.open(folder / "run")).save(folder / "gate"),
    "chain": lambda folder: scorer("mds").fit(outputs(0)).save(folder / "chain.npz"),
    "outputs": lambda folder: outputs(8).to_npz(folder / "test.npz"),
    "results": lambda folder: Results.of([]).save(folder / "results"),
    "cache": lambda folder: Cache.open(folder / "cache").write("a", CacheEntry({"x": np.ones(3)}, {"x": "key"})),
    "summary": lambda folder: ScoreSummary(cells=64).to_npz(folder / "summary.npz"),
}


@UNCLOSED_ZIP
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_a_full_disk_in_the_library_keeps_what_was_there(place, write):
    write(place)
    shutil.rmtree(place / "other", ignore_errors=True)
    before = content(place)
    with full_disk(), pytest.raises(OSError, match="ile too large"):
        write(place)
    assert content(place) == before
    Run.open(place / "run").verify()
    Gate.load(place / "gate")


def test_a_full_disk_while_blocks_are_written(place):
    opened = Run.open(place / "run")
    writer = opened.writer("blocks", role="shift", rows=4, fields={"logits": ("float64", (3,))})
    writer.write(0, logits=np.ones((2, 3)))
    with full_disk(), pytest.raises(OSError, match=r"blocks\.safetensors"):
        writer.write(2, logits=np.ones((2, 3)))
    assert writer.missing() == [(2, 4)]
    writer.write(2, logits=np.ones((2, 3)))
    writer.close()
    opened.verify()


def test_a_full_disk_while_training(tmp_path):
    pytest.importorskip("torch", reason="training needs torch")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", images=rng.integers(0, 256, (32, 32, 32, 3), np.uint8), labels=np.arange(32) % 4)
    data = f"npz:{tmp_path}/data.npz"
    words = ["train", "--recipe", "basic", "--model", "resnet8_cifar", "--data", data, "--out", tmp_path / "training"]
    words += ["--epochs", 1, "--batch", 16]
    with full_disk():
        result = run(*words)
    assert result.exit_code == 3, (result.output, result.exception)
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert content(tmp_path / "training") == {}
    assert run(*words).exit_code == 0
    before = content(tmp_path / "training")
    with full_disk():
        assert run(*words[:-4], "--epochs", 1, "--batch", 16).exit_code in (0, 3)
    assert content(tmp_path / "training") == before


def test_a_full_disk_while_a_gate_is_exported(place):
    torch = pytest.importorskip("torch", reason="export needs torch")
    pytest.importorskip("onnx", reason="export needs onnx")
    gate = Gate.load(place / "gate")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4), torch.nn.Linear(4, 3))
    gate.to_onnx(model, place / "gate.onnx", shape=(3, 2, 2))
    before = content(place)
    with full_disk(), pytest.raises(OSError, match="ile too large"):
        gate.to_onnx(model, place / "gate.onnx", shape=(3, 2, 2))
    assert content(place) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", ["gate apply gate run", "gate apply gate run --json", "gate apply gate test.npz"])
@pytest.mark.parametrize("buffering", ["", "1"])
def test_verdicts_into_a_full_file(place, words, buffering):
    """Also at exit, when Python writes what it still holds."""
    before = content(place)
    command = [sys.executable, "-m", "twofold.cli", *words.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": buffering}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 3, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "no space left on device" in done.stderr
    assert content(place) == before


STUDY = """
name = "tiny"
title = "A tiny study"
source = "made here"
model = "resnet8_cifar"
seeds = [0]
resamples = 10
classes = 4
protocols = ["joint", "fd_shifts"]
scores = ["msp", "energy"]
pairs = [["msp", "energy"]]
[settings]
preset = "cifar"
epochs = 1
batch = 16
[[recipes]]
name = "basic"
recipe = "basic"
[[recipes]]
name = "again"
recipe = "basic"
"""
NETWORK = {  # commands that run a network, or read what one left; those before the last prepare it
    "extract": ["extract resnet8_cifar --classes 4 --data npz:images.npz --role test --out run-out"],
    "extract more": [
        "extract resnet8_cifar --classes 4 --data npz:images.npz --role test --out out",
        "extract resnet8_cifar --classes 4 --data npz:images.npz --role far --out out",
    ],
    "study run": ["study run tiny.toml --out out --root ."],
    "study run more": [
        "study run tiny.toml --out out --root . --row basic",
        "study run tiny.toml --out out --root .",
    ],
    "study keep": ["study run tiny.toml --out out --root . --row basic", "study keep out kept"],
    "study keep more": [
        "study run tiny.toml --out out --root . --row basic",
        "study keep out kept",
        "study run tiny.toml --out out --root .",
        "study keep out kept",
    ],
}


@pytest.fixture
def images(tmp_path, monkeypatch) -> Path:
    """A folder with images and a study, which is the working directory."""
    pytest.importorskip("torch", reason="networks need torch")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (32, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "images.npz", images=pixels, labels=np.arange(32) % 4)
    sets = ""
    for role in ("train", "val", "test", "far"):
        sets += f'[[sets]]\nname = "my-{role}"\nrole = "{role}"\ndata = "npz:{{data}}/images.npz"\nget = "here"\n'
    (tmp_path / "tiny.toml").write_text(STUDY + sets, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complete(folder: Path) -> dict[str, bytes]:
    """What a user would miss: every file but those of work in progress, and the record of what was tried."""
    found = {}
    for name, raw in content(folder).items():
        if not name.endswith((".part", ".journal", "study.json")):
            found[name] = raw
    return found


@pytest.mark.parametrize("lines", NETWORK.values(), ids=NETWORK.keys())
def test_a_full_disk_while_a_network_runs(images, lines):
    *first, last = lines
    for line in first:
        assert run(*line.split()).exit_code == 0
    before = complete(images)
    with full_disk():
        result = run(*last.split())
    assert result.exit_code == 3, (result.output, result.exception)
    assert result.stderr.strip().splitlines()[-1].startswith("Error: "), result.stderr
    assert "ile too large" in result.stderr
    assert "Traceback" not in result.output
    after = complete(images)
    assert {name: after.get(name) for name in before} == before
    assert run(*last.split()).exit_code == 0


PLACES = {
    "a file as a folder": ["report", "run", "--out", "test.npz/page.html"],
    "a missing folder": ["report", "run", "--out", "nowhere/page.html"],
    "score into a missing folder": ["score", "run", "--score", "msp", "--out", "nowhere/scores.npz"],
    "gate in a file": ["gate", "fit", "run", "--out", "test.npz/gate"],
    "gate in the place of a run": ["gate", "fit", "run", "--out", "run"],
    "a gate in a vanished folder": ["gate", "apply", "nowhere/gate", "run"],
    "a gate in a file": ["gate", "apply", "test.npz", "run"],
    "a gate without its scores": ["gate", "apply", "half-gate", "run"],
    "verdicts on a vanished run": ["gate", "apply", "gate", "nowhere/run"],
    "verdicts on a run without its outputs": ["gate", "apply", "gate", "half-run"],
    "a run in a file": ["verify", "test.npz"],
    "a run in a vanished folder": ["verify", "nowhere/run"],
    "results in a file": ["bench", "run", "digits", "--run", "run", "--out", "test.npz/results"],
    "a folder as a file": ["evaluate", "run"],
}


@pytest.mark.parametrize("words", PLACES.values(), ids=PLACES.keys())
def test_places_that_cannot_be_written_or_read(place, words):
    for whole, half, lost in (("gate", "half-gate", "scores-*"), ("run", "half-run", "test.safetensors")):
        shutil.copytree(place / whole, place / half)
        for path in (place / half).glob(lost):
            path.unlink()
    before = content(place)
    result = run(*words)
    assert result.exit_code in (2, 3), (result.output, result.exception)
    assert result.stderr.strip()
    assert "Traceback" not in result.output
    assert content(place) == before


@contextmanager
def forbidden() -> Iterator[None]:
    """While open, no file of this process may be written: permission is denied, even to root."""
    really_open, really_make = os.open, os.mkdir

    def open_to_read(path: object, flags: int, *args: object, **more: object) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, flags, *args, **more)

    def make_nothing(path: object, *args: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    os.open, os.mkdir = open_to_read, make_nothing
    try:
        yield
    finally:
        os.open, os.mkdir = really_open, really_make


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_files_that_may_not_be_written(place, words):
    if "twofold-demo" in words:
        pytest.importorskip("sklearn")
        assert run("demo", "--resamples", 10).exit_code == 0
    before = content(place)
    with forbidden():
        result = run(*words.split())
    assert result.exit_code == 3, (result.output, result.exception)
    assert "permission denied" in result.stderr.lower()
    assert len(result.stderr.strip().splitlines()) == 1
    assert content(place) == before


@pytest.mark.parametrize("lines", NETWORK.values(), ids=NETWORK.keys())
def test_files_that_a_network_may_not_write(images, lines):
    *first, last = lines
    for line in first:
        assert run(*line.split()).exit_code == 0
    before = complete(images)
    with forbidden():
        result = run(*last.split())
    assert result.exit_code == 3, (result.output, result.exception)
    assert "permission denied" in result.stderr.lower()
    assert "Traceback" not in result.output
    after = complete(images)
    assert {name: after.get(name) for name in before} == before


VANISHING = {
    "gate fit": "gate fit {place}/run --out gate",
    "report": "report {place}/run --out page.html",
    "score": "score {place}/run --score msp --out scores.npz",
    "gate apply": "gate apply gate {place}/run",
}


@pytest.mark.parametrize("words", VANISHING.values(), ids=VANISHING.keys())
def test_a_working_directory_that_vanished(place, monkeypatch, words):
    gone = place / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    before = content(place)
    result = run(*words.format(place=place).split())
    assert result.exit_code in (2, 3), (result.output, result.exception)
    assert "Traceback" not in result.output
    assert result.stderr.strip().splitlines()[-1].startswith("Error: ")
    monkeypatch.chdir(place)
    assert content(place) == before


def test_a_folder_that_vanishes_while_a_gate_is_saved(place, monkeypatch):
    replace = os.replace

    def vanish(source: str, target: str) -> None:
        shutil.rmtree(place / "new-gate", ignore_errors=True)
        replace(source, target)

    before = content(place)
    monkeypatch.setattr(os, "replace", vanish)
    result = run("gate", "fit", "run", "--out", "new-gate")
    assert result.exit_code == 3, (result.output, result.exception)
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "no such file" in result.stderr.lower()
    assert content(place) == before


TAKE_NPZ = [
    "score test.npz --score msp",
    "evaluate test.npz",
    "gate fit test.npz --id msp --ood none --out npz-gate",
    "gate apply gate test.npz",
    "gate card gate test.npz",
    "report test.npz --out npz.html",
]
NEED_A_RUN = ["verify test.npz", "bench run digits --run test.npz --out r", "bench strata test.npz"]


@pytest.mark.parametrize("words", TAKE_NPZ)
def test_commands_that_take_an_npz_file_in_place_of_a_run(place, words):
    result = run(*words.split())
    assert result.exit_code == 0, (result.output, result.exception)


@pytest.mark.parametrize("words", NEED_A_RUN)
def test_commands_that_need_a_run_say_how_to_make_one_of_an_npz_file(place, words):
    result = run(*words.split())
    assert result.exit_code == 3
    assert "test.npz is not a run: it is an npz file; put it into one" in result.stderr


# deep and damaged files


@pytest.mark.parametrize(
    "text", ["x = " + DEEP, "x = " + "{a = " * 50_000, "x = " + "9" * 5000, "[" + "a." * 2_000 + "b]", "x = \x00"]
)
def test_toml_that_cannot_be_read(text, tmp_path):
    with pytest.raises(InvalidInput):
        benchmarks.loads(text)
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    for words in (["bench", "show", file], ["study", "show", file, "--no-time"]):
        result = run(*words)
        assert result.exit_code in (2, 3), (result.output, result.exception)
        assert len(result.stderr.strip().splitlines()) <= 3
        assert "Traceback" not in result.output


STATES = [DEEP, "[]", "{}", "5", '{"name": 1, "preset": null, "file": ""}', '{"name": "a", "file": "b"}', "\xff", "{"]


@pytest.mark.parametrize("text", STATES, ids=lambda text: text[:20])
def test_forged_states_of_a_study(text, tmp_path):
    (tmp_path / "study.json").write_text(text, encoding="latin-1")
    with pytest.raises(RunError, match=r"study\.json"):
        opened_study(tmp_path)


@pytest.mark.parametrize("about", [DEEP, "[]", "{}", '{"keys": [1], "facts": {}}'])
def test_forged_entries_of_a_cache_are_empty(about, tmp_path):
    found = forged_entry(about, tmp_path)
    assert (found.arrays, found.keys, found.facts) == ({}, {}, {})


def test_a_key_without_its_array_is_not_current(tmp_path):
    found = forged_entry('{"keys": {"x": "a", "y": "b"}, "facts": {}}', tmp_path)
    assert list(found.current({"x": "a", "y": "b"})) == ["x"]
    assert found.current({"x": "other"}) == {}


def forged_entry(about, folder):
    """Read a file of a cache that holds one array and this text, with a digest that fits."""
    from safetensors.numpy import save

    from twofold._files import arrays_digest
    from twofold.bench.cache import FORMAT

    arrays = {"x": np.ones(3)}
    metadata = {"format": FORMAT, "about": about}
    metadata["sha256"] = arrays_digest(arrays, metadata)
    (folder / "a.safetensors").write_bytes(save(arrays, metadata=metadata))
    return Cache(folder).read("a")


def test_damaged_npz_files_are_one_clear_error(tmp_path):
    rng = random.Random(0)
    path = tmp_path / "test.npz"
    outputs(0, 5).to_npz(path)
    plain = path.read_bytes()
    np.savez_compressed(path, logits=np.eye(5, 3), labels=np.arange(5) % 3)
    refused = 0
    for good in (plain, path.read_bytes()):
        for _ in range(400):
            raw = bytearray(good)
            for _ in range(rng.choice([1, 1, 3, 10])):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            if rng.random() < 0.2:
                del raw[rng.randrange(len(raw)) :]
            path.write_bytes(raw)
            try:
                Outputs.from_npz(path)
            except TwofoldError:
                refused += 1
    assert refused > 200


def test_npz_files_with_something_else_in_them(tmp_path):
    import zipfile

    path = tmp_path / "test.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits", b"text")
    with pytest.raises(InvalidInput, match="which is not an array"):
        Outputs.from_npz(path)
    os.remove(path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(path)
        with pytest.raises(RunError, match="not a regular file"):
            Outputs.from_npz(path)
        with pytest.raises(RunError, match="not a regular file"):
            ScoreSummary.from_npz(path)


def test_forged_replicates_of_results(tmp_path):
    import hashlib

    from safetensors.numpy import save

    from twofold.bench.storage import CSV, REPLICATES, REPLICATES_FORMAT, read_replicates

    Results.of([]).save(tmp_path)
    rows = (tmp_path / CSV).read_bytes()
    digest = hashlib.sha256(rows).hexdigest()
    for keys in (DEEP, "[]", '{"a": 5}', '{"a": [[[]]]}', json.dumps({"b": [["x"]]})):
        metadata = {"format": REPLICATES_FORMAT, "rows": digest, "keys": keys}
        (tmp_path / REPLICATES).write_bytes(save({"a": np.ones((1, 2))}, metadata=metadata))
        with pytest.raises(InvalidInput, match=r"delete it to open the rows alone|is damaged"):
            read_replicates(tmp_path / REPLICATES, rows)
