"""Files are written whole or not at all, by any number of writers, and never through a link."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import twofold
from twofold._files import (
    arrays_digest,
    is_temporary,
    json_with_digest,
    locked,
    open_plain,
    open_regular,
    parse_json_with_digest,
    remove_leftovers,
    replacing,
    sort_header,
)
from twofold.errors import RunError

posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes, locks and signals of POSIX")


def write_slowly(path: Path, letter: bytes) -> None:
    """Write 64 times the same letter, in pieces, so that others come between."""
    with replacing(path) as file:
        for _ in range(64):
            file.write(letter)
            file.flush()


def test_threads_that_write_one_file_do_not_mix(tmp_path):
    target = tmp_path / "page.html"
    for _ in range(50):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda letter: write_slowly(target, letter), [b"a", b"b", b"c", b"d"]))
        content = target.read_bytes()
        assert len(content) == 64
        assert len(set(content)) == 1
    assert os.listdir(tmp_path) == ["page.html"]


WRITE_OFTEN = """
import sys
from pathlib import Path
from twofold._files import json_with_digest, parse_json_with_digest, replacing
for _ in range(150):
    with replacing(Path(sys.argv[1])) as file:
        for _ in range(16):
            file.write(sys.argv[2].encode() * 4)
            file.flush()
"""


def test_processes_that_write_one_file_do_not_mix(tmp_path):
    target = tmp_path / "page.html"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE_OFTEN, target, letter]) for letter in "abc"]
    looks = 0
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            content = target.read_bytes()
            assert len(content) == 64
            assert len(set(content)) == 1
            looks += 1
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert looks > 0
    assert os.listdir(tmp_path) == ["page.html"]


def test_an_error_keeps_what_was_there(tmp_path):
    target = tmp_path / "page.html"
    target.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(target) as file:
        file.writelines([b"new", 5])
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["page.html"]


@posix
def test_links_are_replaced_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    target = tmp_path / "page.html"
    target.symlink_to(victim)
    with replacing(target) as file:
        file.write(b"new")
    assert victim.read_bytes() == b"precious"
    assert not target.is_symlink()
    assert target.read_bytes() == b"new"


@posix
def test_a_temporary_name_that_is_taken_is_left_alone(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    names = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr("twofold._files.secrets.token_hex", lambda size: next(names))
    (tmp_path / f".page.{os.getpid()}.{'0' * 16}.tmp").symlink_to(victim)
    with replacing(tmp_path / "page") as file:
        file.write(b"new")
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "page").read_bytes() == b"new"


KILLED = """
import sys, time
from pathlib import Path
from twofold._files import json_with_digest, parse_json_with_digest, replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("open", flush=True)
    time.sleep(60)
"""


@posix
def test_leftovers_of_killed_writers_go_and_those_in_use_stay(tmp_path):
    target = tmp_path / "page.html"
    foreign = tmp_path / ".page.html.notes.tmp"
    foreign.write_bytes(b"mine")
    (tmp_path / ".page.html.4711.tmp").write_bytes(b"of an older version")
    writer = subprocess.Popen([sys.executable, "-c", KILLED, target], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    remove_leftovers(target)
    in_use = [name for name in os.listdir(tmp_path) if is_temporary(name, "page.html")]
    assert len(in_use) == 1
    assert f".{writer.pid}." in in_use[0]
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    remove_leftovers(target)
    assert os.listdir(tmp_path) == [foreign.name]
    assert foreign.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        (".a.json.12.0123456789abcdef.tmp", "a.json", True),
        (".a.json.12.tmp", "a.json", True),
        (".a.json.12.0123456789abcdef.tmp", None, True),
        (".b.json.12.0123456789abcdef.tmp", "a.json", False),
        (".aXjson.12.tmp", "a.json", False),
        (".a.json.12.0123456789abcde.tmp", "a.json", False),
        (".a.json.tmp", "a.json", False),
        ("a.json.12.tmp", "a.json", False),
        (".a.json.12.tmp.gz", "a.json", False),
    ],
)
def test_names_of_temporary_files(name, target, expected):
    assert is_temporary(name, target) is expected


@posix
def test_nothing_is_opened_for_writing_through_a_link_or_another_name(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    os.link(victim, tmp_path / "hard")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "dangling", "hard", "pipe", "folder"):
        with pytest.raises(RunError):
            open_plain(tmp_path / name, os.O_WRONLY | os.O_CREAT)
        with pytest.raises(RunError), locked(tmp_path / name):
            pass
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "new").exists()


@posix
def test_pipes_and_folders_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(RunError, match="regular"):
            open_regular(path)


@posix
def test_a_lock_excludes_threads_too(tmp_path):
    inside, most = 0, 0

    def enter(_: int) -> None:
        nonlocal inside, most
        with locked(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enter, range(40)))
    assert most == 1


def test_json_with_a_digest_comes_back_and_no_flipped_bit_is_read():
    content = {"cells": [1, 2.5, None, "ä"], "deep": {"a": {"b": []}}}
    raw = json_with_digest(content, kind="example", version=3)

    def parse(given):
        return parse_json_with_digest(given, Path("x.json"), kind="example", version=3, remedy="write it again")

    assert parse(raw) == content
    for place in range(8 * len(raw)):
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(RunError, match=r"^x\.json .*; write it again$"):
            parse(bytes(damaged))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"cells": []}', "has no digest, as an older format had none"),
        (b"[" * 100_000, "not complete JSON"),
        (json_with_digest(1, kind="other", version=3), "has another format than example"),
        (json_with_digest(1, kind="example", version=4), "another format version than 3"),
    ],
)
def test_other_json_is_refused(raw, says):
    with pytest.raises(RunError, match=says):
        parse_json_with_digest(raw, Path("x.json"), kind="example", version=3, remedy="write it again")


def test_the_digest_of_arrays_is_that_of_lengths_and_bytes():
    """Written down once more, since files that exist must stay readable."""
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([1, 2], np.int16)}
    texts = {"version": "1", "format": "example"}
    want = hashlib.sha256()
    parts = [b"format", b"example", b"version", b"1", b"arrays"]
    for name in ("a", "b"):
        array = arrays[name]
        parts += [name.encode(), f"{array.dtype.str} {array.shape}".encode(), array.tobytes()]
    for part in parts:
        want.update(struct.pack("<Q", len(part)) + part)
    assert arrays_digest(arrays, texts) == want.hexdigest()
    assert arrays_digest(dict(reversed(arrays.items())), texts) == want.hexdigest()


@posix
def test_what_appears_between_the_look_and_the_opening_is_refused_and_closed(tmp_path, monkeypatch):
    (tmp_path / "theirs").write_bytes(b"x")
    os.link(tmp_path / "theirs", tmp_path / "ours")
    opened, closed = [], []
    real_open, real_close = os.open, os.close

    def note_open(*arguments, **settings):
        opened.append(real_open(*arguments, **settings))
        return opened[-1]

    def note_close(handle):
        closed.append(handle)
        real_close(handle)

    def nothing_there(path):
        raise FileNotFoundError(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", note_open)
        patch.setattr(os, "close", note_close)
        patch.setattr(os, "lstat", nothing_there)  # as if the name came to be right after
        with pytest.raises(RunError, match="names of the same file"):
            open_plain(tmp_path / "ours", os.O_WRONLY)
    assert opened == closed != []
    assert (tmp_path / "theirs").read_bytes() == b"x"


def test_equal_contents_are_equal_safetensors_files():
    """The library orders metadata by a hash that differs from call to call."""
    from safetensors.numpy import load, save

    arrays = {"a": np.arange(3.0), "b": np.zeros((2, 2), np.float32)}
    metadata = {f"key {i}": f"ö {i}" for i in range(12)}
    written = [save(arrays, metadata=metadata) for _ in range(20)]
    assert len(set(written)) > 1
    (ordered,) = {sort_header(one) for one in written}
    assert {name: array.tolist() for name, array in load(ordered).items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    length = int.from_bytes(ordered[:8], "little")
    assert length % 8 == 0
    assert json.loads(ordered[8 : 8 + length])["__metadata__"] == metadata


def test_a_saved_chain_is_the_same_bytes_each_time(tmp_path):
    chain = twofold.scorer("react(percentile=90)|energy").fit(_few_outputs())
    written = set()
    for i in range(10):
        chain.save(tmp_path / f"{i}.safetensors")
        written.add((tmp_path / f"{i}.safetensors").read_bytes())
    assert len(written) == 1


def _few_outputs():
    rng = np.random.default_rng(0)
    head = twofold.Head(rng.normal(size=(3, 4)), np.zeros(3))
    features = np.abs(rng.normal(size=(20, 4)))
    return twofold.Outputs(head.logits(features), rng.integers(0, 3, 20), features, head)
