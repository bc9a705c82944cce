"""CIFAR in every layout on a generated miniature, and every way to damage it."""

import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from data_toys import pixels

from twofold.errors import InvalidInput
from twofold.nn import data


def cifar_records(n, seed, classes, coarse=False):
    x = pixels(n, seed=seed)
    y = np.random.default_rng(seed).integers(0, classes, n)
    return x, y, (y // 5 if coarse else None)


def binary(x, y, coarse=None):
    heads = [y] if coarse is None else [coarse, y]
    return b"".join(bytes([int(h[i]) for h in heads]) + x[i].transpose(2, 0, 1).tobytes() for i in range(len(x)))


def batch(x, y, coarse=None):
    flat = x.transpose(0, 3, 1, 2).reshape(len(x), 3072)
    if coarse is None:
        return {"data": flat, "labels": [int(v) for v in y], "filenames": ["f"] * len(y)}
    return {"data": flat, "fine_labels": [int(v) for v in y], "coarse_labels": [int(v) for v in coarse]}


def python2(x, y):
    """A batch as Python 2 wrote the published ones: protocol 2, byte strings everywhere."""
    flat = np.ascontiguousarray(x.transpose(0, 3, 1, 2).reshape(len(x), 3072))

    def text(s):
        return b"U" + bytes([len(s)]) + s

    def number(i):
        return b"J" + struct.pack("<i", i)

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR(K\x01("
        + number(len(x)) + number(3072) + b"tcnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|")
        + b"NNN" + number(-1) + number(-1) + b"K\x00tb\x89T" + struct.pack("<i", flat.nbytes) + flat.tobytes() + b"tb"
    )  # fmt: skip
    labels = b"](" + b"".join(number(int(v)) for v in y) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def write_cifar10(folder, layout, per=4):
    folder.mkdir(parents=True)
    parts = [cifar_records(per, k, 10) for k in range(6)]
    for k, (x, y, _) in enumerate(parts):
        name = f"data_batch_{k + 1}" if k < 5 else "test_batch"
        if layout == "binary":
            (folder / f"{name}.bin").write_bytes(binary(x, y))
        elif layout == "python2":
            (folder / name).write_bytes(python2(x, y))
        else:
            (folder / name).write_bytes(pickle.dumps(batch(x, y), protocol=int(layout[-1])))
    return parts


LAYOUTS = ["binary", "python2", "protocol2", "protocol4", "protocol5"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10(tmp_path, layout, packed):
    inner = "cifar-10-batches-bin" if layout == "binary" else "cifar-10-batches-py"
    parts = write_cifar10(tmp_path / inner, layout)
    path = tmp_path / inner
    if packed:
        path = tmp_path / "c.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(tmp_path / inner, arcname=inner)
    for where in [path] if packed else [path, tmp_path]:
        train, test = data.open(f"cifar10:{where}?split=train"), data.open(f"cifar10:{where}")
        np.testing.assert_array_equal(train.read(), np.concatenate([p[0] for p in parts[:5]]))
        np.testing.assert_array_equal(train.labels, np.concatenate([p[1] for p in parts[:5]]))
        np.testing.assert_array_equal(test.read(), parts[5][0])
        assert train.ids.tolist() == list(range(20))
        assert test.class_names[3] == "cat"


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_cifar100(tmp_path, layout):
    x, y, z = cifar_records(12, 3, 100, coarse=True)
    for split in ("train", "test"):
        if layout == "binary":
            (tmp_path / f"{split}.bin").write_bytes(binary(x, y, z))
        else:
            (tmp_path / split).write_bytes(pickle.dumps(batch(x, y, z), protocol=2))
    fine, coarse = data.open(f"cifar100:{tmp_path}"), data.open(f"cifar100:{tmp_path}?split=train&labels=coarse")
    np.testing.assert_array_equal(fine.labels, y)
    np.testing.assert_array_equal(coarse.labels, z)
    np.testing.assert_array_equal(fine.read(), x)
    assert (fine.class_names[0], fine.class_names[99]) == ("apple", "worm")
    assert (len(coarse.class_names), coarse.class_names[18]) == (20, "vehicles 1")


def test_cifar_damage(tmp_path):
    folder = tmp_path / "c"
    write_cifar10(folder, "binary")
    good = (folder / "data_batch_3.bin").read_bytes()
    (folder / "data_batch_3.bin").write_bytes(good[:-100])
    with pytest.raises(InvalidInput, match=r"data_batch_3\.bin is truncated"):
        data.open(f"cifar10:{folder}?split=train")
    (folder / "data_batch_3.bin").write_bytes(good[:-3073])
    with pytest.raises(InvalidInput, match=r"equally many images.*data_batch_3\.bin: 3"):
        data.open(f"cifar10:{folder}?split=train")
    (folder / "data_batch_3.bin").write_bytes(bytes([10]) + good[1:])
    with pytest.raises(InvalidInput, match=r"labels must be in 0\.\.9, got 10 in row 8 of train"):
        data.open(f"cifar10:{folder}?split=train")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(InvalidInput, match=r"data_batch_3\.bin: this batch is missing"):
        data.open(f"cifar10:{folder}?split=train")
    with pytest.raises(InvalidInput, match="no cifar100 test files here"):
        data.open(f"cifar100:{folder}")


def test_truncated_archives(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-bin", "binary")
    path = tmp_path / "c.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "cifar-10-batches-bin", arcname="cifar-10-batches-bin")
    whole = path.read_bytes()
    for size in (0, 10, 1000, len(whole) // 2, len(whole) - 12):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match=r"c\.tar\.gz"):
            data.open(f"cifar10:{path}?split=train")
    path.write_bytes(b"no archive at all")
    with pytest.raises(InvalidInput, match=r"c\.tar\.gz is a damaged or truncated archive"):
        data.open(f"cifar10:{path}")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, arcname="readme.txt")
    with pytest.raises(InvalidInput, match="has no cifar10 test batches"):
        data.open(f"cifar10:{path}")


class Evil:
    def __init__(self, call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ((os.system, ("true",)), "system"),
        ((eval, ("1+1",)), "eval"),
        ((getattr, ("x", "join")), "getattr"),
        ((np.load, ("x",)), "load"),
        ((bytearray, (10,)), "bytearray"),
        ((np.ndarray, ((3,),)), "ndarray"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickles_that_run_code_are_refused(tmp_path, call, name, protocol):
    (tmp_path / "test_batch").write_bytes(pickle.dumps({"data": Evil(call)}, protocol=protocol))
    with pytest.raises(InvalidInput, match=rf"{name}.*refused"):
        data.open(f"cifar10:{tmp_path}")


def test_damaged_pickles(tmp_path):
    x, y, _ = cifar_records(2, 0, 10)
    file = tmp_path / "test_batch"
    whole = pickle.dumps(batch(x, y), protocol=2)
    for size in (0, 1, 5, 40, 200, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match="test_batch is a damaged or truncated pickle"):
            data.open(f"cifar10:{tmp_path}")
    rng, refused = np.random.default_rng(0), 0
    for _ in range(60):  # whatever the bytes, it is data or one error
        wrong = bytearray(whole)
        for place in rng.integers(0, 300, 3):
            wrong[place] = rng.integers(0, 256)
        file.write_bytes(bytes(wrong))
        try:
            data.open(f"cifar10:{tmp_path}")
        except InvalidInput:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": np.zeros((2, 3072))}, "'data' must be uint8"),
        ({"data": np.zeros((2, 100), np.uint8)}, "'data' must be uint8 of shape"),
        ({"data": [1]}, "got list"),
        ({"labels": [1]}, "'labels' must list 2 labels"),
        ({"labels": ["a", "b"]}, "must hold integers"),
        ({"labels": [0, 11]}, r"0\.\.9, got 11 in row 1"),
    ],
)
def test_pickled_batches_of_the_wrong_kind(tmp_path, change, words):
    x, y, _ = cifar_records(2, 0, 10)
    (tmp_path / "test_batch").write_bytes(pickle.dumps({**batch(x, y), **change}))
    with pytest.raises(InvalidInput, match=words):
        data.open(f"cifar10:{tmp_path}")
    (tmp_path / "test_batch").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(InvalidInput, match="'data' must be"):
        data.open(f"cifar10:{tmp_path}")
