"""Arrays of .npz files: read one at a time, in no more memory than the file can hold."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.npz import NpzArchive


def npy_bytes(array, shape=None):
    """An array as .npy bytes, with another shape in its header where one is given."""
    stream = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    header["shape"] = array.shape if shape is None else shape
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + array.tobytes()


def forge_size(file, name, size):
    """Let the archive declare another uncompressed size of a member."""
    data = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(name)
    where = data.rindex(b"PK\x01\x02", 0, data.rindex(name.encode()))
    assert data[where + 24 : where + 28] == entry.file_size.to_bytes(4, "little")
    data[where + 24 : where + 28] = size.to_bytes(4, "little")
    file.write_bytes(bytes(data))


def test_arrays_come_back_as_they_were(tmp_path):
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.asfortranarray(np.eye(3)), "c": np.array("x"), "d": np.empty(0)}
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "small.npz", **arrays)
    for file in ("plain.npz", "small.npz"):
        archive = NpzArchive.open(tmp_path / file)
        assert archive.names == ("a", "b", "c", "d")
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive.read(name), array)
            assert archive.read(name).dtype == array.dtype
    with pytest.raises(UnknownName, match="aa"):
        archive.read("aa")


@pytest.mark.parametrize("shape", [(10**12,), (1,), (10**6, 10**6), (0,)])
def test_a_header_that_declares_another_size_is_an_error_before_memory_is_taken(tmp_path, shape):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", npy_bytes(np.zeros(10, np.uint8), shape))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=r"array 'images' cannot be read: its header declares .* holds 10"):
            NpzArchive.open(tmp_path / "a.npz").read("images")
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_an_archive_cannot_declare_more_than_its_bytes_can_hold(tmp_path):
    shape = (4 * 10**9,)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", npy_bytes(np.zeros(10, np.uint8), shape))
    header = len(npy_bytes(np.zeros(0, np.uint8), shape))
    forge_size(tmp_path / "a.npz", "images.npy", header + shape[0])
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="stored bytes cannot hold"):
            NpzArchive.open(tmp_path / "a.npz").read("images")
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_other_compression_and_objects_are_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("images.npy", npy_bytes(np.zeros(10, np.uint8)))
    with pytest.raises(InvalidInput, match="another method than"):
        NpzArchive.open(tmp_path / "a.npz").read("images")
    np.savez(tmp_path / "o.npz", images=np.array([{}], dtype=object))
    with pytest.raises(InvalidInput, match="Python objects"):
        NpzArchive.open(tmp_path / "o.npz").read("images")
    (tmp_path / "t.npz").write_text("text")
    with pytest.raises(InvalidInput, match=r"t\.npz is not an \.npz file"):
        NpzArchive.open(tmp_path / "t.npz")
