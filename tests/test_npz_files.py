"""Files of arrays: read in no more memory than they can hold and the machine has."""

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from twofold import _npz
from twofold._npz import read_npz
from twofold.errors import InvalidInput
from twofold.metrics.streams import ScoreSummary
from twofold.outputs import Outputs


def test_an_npz_file_with_an_unknown_compression_is_one_line(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):  # of the entry, and of the directory
        at = raw.index(mark) + place
        raw[at : at + 2] = (99).to_bytes(2, "little")
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(InvalidInput, match="is damaged or not an npz file"):
        read_npz(tmp_path / "a.npz")


def test_a_small_file_that_unpacks_to_more_than_the_memory_is_an_error_before_memory_is_taken(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", logits=np.zeros((5_000_000, 2)))
    assert (tmp_path / "a.npz").stat().st_size < 10**6
    monkeypatch.setattr(_npz, "find_memory", lambda: 50_000_000)
    tracemalloc.start()
    try:
        for read in (read_npz, Outputs.from_npz, ScoreSummary.from_npz):
            with pytest.raises(InvalidInput, match="unpacks to 80,000,128 bytes, and this machine has 50,000,000"):
                read(tmp_path / "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 5 * 10**6
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(_npz, "find_memory", lambda: None)  # a system that does not say
    assert read_npz(tmp_path / "a.npz")["logits"].shape == (5_000_000, 2)


def test_a_header_that_declares_more_than_the_file_holds_is_an_error_before_memory_is_taken(tmp_path):
    header = np.lib.format.header_data_from_array_1_0(np.zeros(10)) | {"shape": (10**9,)}
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("logits.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        stream.write(bytes(80))
    with pytest.raises(InvalidInput, match="array 'logits' cannot be read: its header declares 8,000,000,000 bytes"):
        read_npz(tmp_path / "a.npz")


def test_the_memory_of_this_machine_is_known_on_linux():
    file = Path("/proc/meminfo")
    if not file.exists():
        pytest.skip("only Linux lists its memory there")
    lines = file.read_text(encoding="ascii").splitlines()
    assert _npz.find_memory() == pytest.approx(1024 * int(lines[0].split()[1]), rel=0.01)
