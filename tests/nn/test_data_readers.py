"""Every kind of data set on a generated miniature, and every way to damage one."""

import csv
import gzip
import io
import json
import os
import pickle
import struct
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from twofold.errors import InvalidInput, MissingExtra, NameTaken, UnknownName
from twofold.nn import data
from twofold.nn.data.pickles import plain_pickle
from twofold.nn.data.readers import READERS, reader
from twofold.nn.data.spec import parse


def pixels(n, h=32, w=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, h, w, 3), dtype=np.uint8)


def save(file, array):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(file)


# --- the grammar ----------------------------------------------------------------------------------------------------


def test_grammar():
    assert parse("folder:a/b:c") == ("folder", "a/b:c", {})
    assert parse("npz:C:\\x.npz?images=x&labels=y") == ("npz", "C:\\x.npz", {"images": "x", "labels": "y"})
    assert parse("noise:uniform?name=a=b") == ("noise", "uniform", {"name": "a=b"})


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("cifar1:x", UnknownName, "did you mean 'cifar10'"),
        ("cifar10", InvalidInput, "no path; write cifar10:PATH"),
        ("cifar10:", InvalidInput, "no path"),
        ("some/folder", InvalidInput, "no kind; write kind:PATH"),
        ("noise:uniform?n", InvalidInput, "'n' must be key=value"),
        ("noise:uniform?n=1&n=2", InvalidInput, "n is given twice"),
        ("noise:uniform?sizes=3", UnknownName, "did you mean 'size'"),
        ("noise:pink", UnknownName, "gaussian"),
        ("noise:uniform?n=ten", InvalidInput, "n must be a whole number"),
        ("noise:uniform?n=0", InvalidInput, "n must be a whole number of at least 1"),
        ("noise:uniform?seed=-1", InvalidInput, "seed"),
        ("noise:gaussian?std=-1", InvalidInput, "std"),
        ("noise:gaussian?mean=x", InvalidInput, "mean must be a number"),
        ("noise:gaussian?mean=nan", InvalidInput, "mean"),
        ("noise:uniform?mean=0.1", InvalidInput, "belong to noise:gaussian"),
        ("noise:uniform?limit=0", InvalidInput, "limit"),
        ("noise:uniform?limit=2&sample=2", InvalidInput, "exclude one another"),
        ("noise:uniform?n=5&sample=6", InvalidInput, "more than the 5 rows"),
        ("noise:uniform?keep_labels=1", InvalidInput, "goes with classes="),
        ("cifar10:x?split=tset", UnknownName, "did you mean 'test'"),
        ("cifar10:x?seed=1", InvalidInput, "no such"),
        ("cifar10c:x", InvalidInput, "needs type="),
        ("breeds:x", InvalidInput, "needs split="),
        (3, InvalidInput, "named by a string"),
    ],
)
def test_specs_that_are_wrong(spec, error, words):
    with pytest.raises(error, match=words):
        data.open(spec)


@pytest.mark.parametrize("kind", sorted(set(READERS) - {"noise", "hf"}))
def test_what_is_missing_is_named(kind, tmp_path):
    needed = {"cifar10c": "type=fog", "cifar100c": "type=fog", "wilds": "dataset=iwildcam", "breeds": "split=source"}
    with pytest.raises(InvalidInput, match="nowhere"):
        data.open(f"{kind}:{tmp_path}/nowhere?{needed.get(kind, 'limit=1')}")


def test_a_kind_that_is_taken_is_replaced_only_on_request():
    before = READERS["noise"]

    def read(path: str) -> data.Images:
        return data.Images.of(pixels(2))

    with pytest.raises(NameTaken, match="the kind 'noise' is registered already; pass replace=True"):
        reader("noise")(read)
    assert READERS["noise"] is before
    try:
        assert reader("noise", replace=True)(read) is read
        assert len(data.open("noise:any")) == 2
    finally:
        READERS["noise"] = before


def test_every_kind_says_what_it_is():
    for entry in READERS.values():
        assert entry.summary.endswith((".", "``key``."))


def test_shared_options(tmp_path):
    x, y = pixels(20), np.arange(20) % 4
    np.savez(tmp_path / "d.npz", images=x, labels=y, class_names=np.array(["a", "b", "c", "d"]))
    spec = f"npz:{tmp_path}/d.npz"
    assert data.open(f"{spec}?limit=3").ids.tolist() == [0, 1, 2]
    assert len(data.open(f"{spec}?limit=99")) == 20
    few = data.open(f"{spec}?sample=6&seed=4")
    assert few.ids.tolist() == sorted(np.random.default_rng(4).choice(20, 6, replace=False).tolist())
    np.testing.assert_array_equal(few.read(), x[few.ids])
    part = data.open(f"{spec}?classes=c,a&limit=4")
    assert part.labels.tolist() == [1, 0, 1, 0]
    assert part.class_names == ("c", "a")
    assert data.open(f"{spec}?classes=c,a&keep_labels=true").labels[:4].tolist() == [0, 2, 0, 2]
    assert data.open(spec, classes=["b"], limit=2, size=None).ids.tolist() == [1, 5]
    assert data.open(f"{spec}?size=16").shape == (16, 16)
    assert data.open(f"{spec}?pad=2&crop=30&name=mine").name == "mine"
    with pytest.raises(InvalidInput, match="seed goes with sample"):
        data.open(f"{spec}?seed=1")
    with pytest.raises(UnknownName, match="class list"):
        data.open(f"{spec}?classes=@cifar40")


# --- CIFAR ----------------------------------------------------------------------------------------------------------


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


def test_pickles_of_objects_and_odd_arrays_are_refused():
    for value in (np.array([{}], dtype=object), np.array(["a"]), np.zeros(2, "M8[s]"), np.float64(3)):
        with pytest.raises(InvalidInput, match="pickle"):
            plain_pickle(pickle.dumps({"data": value}, protocol=2), "batch")
    codec = b"c_codecs\nencode\n(Vabc\nVrot13\ntR."
    with pytest.raises(InvalidInput, match="a codec other than latin1, which is refused"):
        plain_pickle(codec, "batch")
    assert plain_pickle(b"\x80\x02]r\xff\xff\xff\x7f.", "batch") == []  # Python's unpickler asks for 16 GiB


PLAIN = [
    {1, 2},
    frozenset(("a", 2.5)),
    {"a": [1, -2, 3 << 70, None, True, 0.5], b"b": ("x", (1, 2, 3, 4), [], {}, ())},
    [np.arange(6, dtype=">i4").reshape(2, 3), np.asfortranarray(np.eye(2)), np.zeros((0, 3), bool), bytearray(b"ab")],
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("protocol", range(6))
def test_plain_pickles_are_read_as_python_reads_them(value, protocol):
    if protocol < 5 and isinstance(value, list):
        value = value[:3]  # a bytearray is a call before
    raw = pickle.dumps(value, protocol=protocol)
    found, wanted = plain_pickle(raw, "batch"), pickle.loads(raw)
    if not isinstance(value, list):
        assert found == wanted
        return
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def nested_pairs(depth):
    """A key whose hash takes 2^depth steps: each pair holds the one before twice."""
    return b"}" + b"K\x01" + b"2\x86" * depth + b"K\x00s."  # DUP TUPLE2, then SETITEM


def deep_list(depth):
    return b"]" * depth + b"a" * (depth - 1) + b"."


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
DTYPE = b"cnumpy\ndtype\n(X\x02\x00\x00\x00u1I0\nI1\ntR"
HOSTILE = {
    "nested pairs": (nested_pairs(200), "more than 16 deep"),
    "a pair as key": (nested_pairs(5), "a key of type tuple, which is refused"),
    "a call of bytes": (b"cbuiltins\nbytes\n(J\xff\xff\xff\x7ftR.", "damaged"),
    "deep nesting": (deep_list(100_000), "more than 16 deep"),
    "state of a list": (b"]}b.", "sets the state of something other than an array or dtype"),
    "state of a global": (b"cnumpy\ndtype\n}X\x01\x00\x00\x00xK\x01sb.", "sets the state of something other"),
    "state of a module's function": (b"c_codecs\nencode\n}X\x01\x00\x00\x00xK\x01sb.", "sets the state of something"),
    "dtype with fields": (
        DTYPE + b"(K\x03X\x01\x00\x00\x00|N)}J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb.",
        "not of plain",
    ),
    "dtype with flags": (DTYPE + b"(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb.", "not of plain"),
    "dtype of objects": (DTYPE.replace(b"u1", b"O8") + b".", "something other than numbers"),
    "array of nothing": (ARRAY + b"(K\x01(K\x01tNI0\nC\x01atb.", "something other than numbers"),
    "array too large": (ARRAY + b"(K\x01(J\xff\xff\xff\x7ft" + DTYPE + b"I0\nC\x01atb.", "damaged"),
    "called container": (b"](tR.", "calls something, which is refused"),
    "many copies": (
        b"c_codecs\nencode\nq\x000(X\x00\x00\x10\x00" + b"a" * (1 << 20) + b"tq\x01" + b"0h\x00h\x01R" * 999 + b".",
        "builds",
    ),
    "persistent object": (b"Pname\n.", "uses PERSID, which is refused"),
    "object by class": (b"(ios\nsystem\n.", "uses INST, which is refused"),
    "extension": (b"\x80\x02\x82\x01.", "uses EXT1, which is refused"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_one_error(name):
    raw, words = HOSTILE[name]
    with pytest.raises(InvalidInput, match=words) as caught:
        plain_pickle(raw, "batch")
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


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


# --- CIFAR-C --------------------------------------------------------------------------------------------------------


def test_cifar_c(tmp_path):
    x, y = pixels(50), np.tile(np.arange(10), 5).astype(np.uint8)
    np.save(tmp_path / "fog.npy", x)
    np.save(tmp_path / "snow.npy", x[::-1])
    np.save(tmp_path / "labels.npy", y)
    third = data.open(f"cifar10c:{tmp_path}?type=fog&level=3")
    np.testing.assert_array_equal(third.read(), x[20:30])
    assert third.labels.tolist() == list(range(10))
    assert third.ids[4] == "fog/3/4"
    assert isinstance(third.source.pixels, np.memmap)
    assert len(data.open(f"cifar10c:{tmp_path}?type=snow")) == 50
    np.save(tmp_path / "labels.npy", y[:10])  # one block of labels for all levels
    assert data.open(f"cifar100c:{tmp_path}?type=fog&level=5").labels.tolist() == list(range(10))
    with pytest.raises(UnknownName, match="did you mean 'fog'"):
        data.open(f"cifar10c:{tmp_path}?type=frog")
    for level in (0, 6):
        with pytest.raises(InvalidInput, match=f"level must be 1 to 5, got {level}"):
            data.open(f"cifar10c:{tmp_path}?type=fog&level={level}")
    np.save(tmp_path / "labels.npy", y[:20])
    with pytest.raises(InvalidInput, match="20 labels but 50 images"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    np.save(tmp_path / "labels.npy", y + 5)
    with pytest.raises(InvalidInput, match="labels must be in"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    np.save(tmp_path / "fog.npy", x[:49])
    with pytest.raises(InvalidInput, match="five blocks"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    (tmp_path / "fog.npy").write_bytes((tmp_path / "snow.npy").read_bytes()[:-50])
    with pytest.raises(InvalidInput, match=r"fog\.npy is not a \.npy array, or is truncated"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    (tmp_path / "labels.npy").unlink()
    (tmp_path / "fog.npy").unlink()
    (tmp_path / "snow.npy").unlink()
    with pytest.raises(InvalidInput, match="holds no corruption arrays"):
        data.open(f"cifar10c:{tmp_path}?type=fog")


# --- sheets, npz, npy, svhn, idx ------------------------------------------------------------------------------------


def test_sheet(tmp_path):
    x = pixels(8, 4, 4)
    canvas = np.zeros((12, 12, 3), np.uint8)  # three rows of three tiles, the last one blank
    for i, tile in enumerate(x):
        canvas[4 * (i // 3) : 4 * (i // 3) + 4, 4 * (i % 3) : 4 * (i % 3) + 4] = tile
    Image.fromarray(canvas).save(tmp_path / "ood_pets.webp", lossless=True)
    arrays = {"ood_pets": np.arange(8) % 2, "names_pets": ["cat", "dog"], "other": [0] * 8, "few": [0]}
    np.savez(tmp_path / "l.npz", **arrays, n=list("abcdefgh"))
    spec = f"sheet:{tmp_path}/ood_pets.webp?tile=4&columns=3"
    o = data.open(f"{spec}&labels=l.npz")
    np.testing.assert_array_equal(o.read(), x)
    assert o.labels.tolist() == [0, 1] * 4
    assert o.class_names == ("cat", "dog")
    assert data.open(f"{spec}&labels={tmp_path}/l.npz&key=other&ids=n").ids.tolist() == list("abcdefgh")
    assert len(data.open(spec)) == 9
    with pytest.raises(UnknownName, match="'oter'; did you mean 'other'"):
        data.open(f"{spec}&labels=l.npz&key=oter")
    with pytest.raises(InvalidInput, match=r"9 tiles but .* has 1 labels under 'few'"):
        data.open(f"{spec}&labels=l.npz&key=few")
    with pytest.raises(InvalidInput, match="is 12x12; a sheet of 100 columns of 4"):
        data.open(f"sheet:{tmp_path}/ood_pets.webp?tile=4")
    with pytest.raises(InvalidInput, match="tile must be"):
        data.open(f"sheet:{tmp_path}/ood_pets.webp?tile=0")
    with pytest.raises(InvalidInput, match=r"gone\.npz: there is no such"):
        data.open(f"{spec}&labels=gone.npz")


def test_npz_and_npy(tmp_path):
    x, y = pixels(6, 5, 5), np.array([0, 1, 2, 0, 1, -1])
    np.savez_compressed(tmp_path / "a.npz", x=x, y=y, pick=np.array([4, 2]), text=np.array(["a"]))
    o = data.open(f"npz:{tmp_path}/a.npz?images=x&labels=y")
    np.testing.assert_array_equal(o.read(), x)
    assert o.labels.tolist() == y.tolist()
    assert data.open(f"npz:{tmp_path}/a.npz?images=x&rows=pick").ids.tolist() == [4, 2]
    assert data.open(f"npz:{tmp_path}/a.npz?images=x").labels.tolist() == [-1] * 6
    with pytest.raises(UnknownName, match=r"no array in .*a\.npz 'images'"):
        data.open(f"npz:{tmp_path}/a.npz")
    with pytest.raises(InvalidInput, match="must be uint8"):
        data.open(f"npz:{tmp_path}/a.npz?images=y")
    with pytest.raises(InvalidInput, match="labels must hold numbers"):
        data.open(f"npz:{tmp_path}/a.npz?images=x&labels=text")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    o = data.open(f"npy:{tmp_path}/x.npy?labels=y.npy&size=4")
    assert (o.shape, o.labels.tolist()) == ((4, 4), y.tolist())
    with pytest.raises(InvalidInput, match=r"y\.npy: images must be"):
        data.open(f"npy:{tmp_path}/y.npy")
    whole = (tmp_path / "a.npz").read_bytes()
    for size in (0, 30, len(whole) // 2, len(whole) - 30):
        (tmp_path / "a.npz").write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match=r"a\.npz is not an \.npz file, or is truncated"):
            data.open(f"npz:{tmp_path}/a.npz?images=x")
    middle = bytearray(whole)
    middle[200:260] = bytes(60)
    (tmp_path / "a.npz").write_bytes(bytes(middle))
    with pytest.raises(InvalidInput, match=r"a\.npz: array 'x' cannot be read"):
        data.open(f"npz:{tmp_path}/a.npz?images=x")
    np.savez(tmp_path / "o.npz", images=np.array([{}], dtype=object))
    with pytest.raises(InvalidInput, match=r"o\.npz: array 'images' cannot be read"):
        data.open(f"npz:{tmp_path}/o.npz")


def test_svhn(tmp_path):
    from scipy.io import savemat

    x, y = pixels(5), np.array([10, 1, 9, 10, 3])
    file = tmp_path / "test_32x32.mat"
    savemat(file, {"X": x.transpose(1, 2, 3, 0), "y": y[:, None]}, do_compression=True)
    o = data.open(f"svhn:{file}")
    np.testing.assert_array_equal(o.read(), x)
    assert o.labels.tolist() == [0, 1, 9, 0, 3]
    whole = file.read_bytes()
    for size in (0, 60, 200, len(whole) // 2):
        file.write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match=r"test_32x32\.mat"):
            data.open(f"svhn:{file}")
    for content, words in [
        ({"X": x.transpose(1, 2, 3, 0)}, "no array 'y'"),
        ({"X": x, "y": y}, "must be uint8 of shape"),
        ({"X": x.transpose(1, 2, 3, 0), "y": y[:4]}, "4 labels but X has 5"),
        ({"X": x.transpose(1, 2, 3, 0), "y": y + 1}, "got 11 in row 0"),
    ]:
        savemat(file, content)
        with pytest.raises(InvalidInput, match=words):
            data.open(f"svhn:{file}")


def idx_bytes(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path, packed):
    x = np.random.default_rng(0).integers(0, 256, (7, 28, 28), dtype=np.uint8)
    y = (np.arange(7) % 3).astype(np.uint8)
    end = ".gz" if packed else ""
    wrap = gzip.compress if packed else bytes
    (tmp_path / f"t10k-images-idx3-ubyte{end}").write_bytes(wrap(idx_bytes(x)))
    (tmp_path / f"t10k-labels-idx1-ubyte{end}").write_bytes(wrap(idx_bytes(y)))
    (tmp_path / "other").write_bytes(idx_bytes(y + 1))
    spec = f"idx:{tmp_path}/t10k-images-idx3-ubyte{end}"
    o = data.open(f"{spec}?pad=2")
    by_hand = np.zeros((7, 32, 32, 3), np.uint8)
    by_hand[:, 2:30, 2:30] = x[..., None]
    np.testing.assert_array_equal(o.read(), by_hand)
    assert o.labels.tolist() == y.tolist()
    assert data.open(f"{spec}?labels=other").labels.tolist() == (y + 1).tolist()
    small = np.stack([np.asarray(Image.fromarray(i).resize((32, 32), Image.Resampling.BILINEAR)) for i in x])
    np.testing.assert_array_equal(data.open(f"{spec}?size=32").read()[..., 0], small)


def test_idx_damage(tmp_path):
    x = np.zeros((3, 4, 4), np.uint8)
    file = tmp_path / "images"
    for content, words in [
        (b"", "begins with"),
        (b"\x00\x00\x08\x01" + bytes(20), "is not an IDX file of images: it begins with 00000801, not 00000803"),
        (idx_bytes(x)[:10], "truncated"),
        (idx_bytes(x)[:-1], "must hold 48 bytes after its header .* got 47"),
        (idx_bytes(x) + b"0", "got 49"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12 + b"0", "got 1"),
        (gzip.compress(idx_bytes(x))[:-9], "damaged or truncated gzip"),
    ]:
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=words) as caught:
            data.open(f"idx:{file}")
        assert str(file) in str(caught.value)
    file.write_bytes(idx_bytes(x))
    (tmp_path / "l").write_bytes(idx_bytes(np.zeros(2, np.uint8)))
    with pytest.raises(InvalidInput, match="2 labels but 3 images"):
        data.open(f"idx:{file}?labels=l")


# --- folders and lists ----------------------------------------------------------------------------------------------


def test_folder_of_classes(tmp_path):
    x = pixels(4, 9, 9)
    for i, name in enumerate(["b/2.png", "a/1.PNG", "b/deep/1.png", "b/10.png"]):
        save(tmp_path / "set" / name, x[i])
    (tmp_path / "set" / "empty").mkdir()
    (tmp_path / "set" / ".hidden").mkdir()
    (tmp_path / "set" / "b" / "Thumbs.db").write_text("")
    (tmp_path / "set" / "b" / "._2.png").write_text("")
    (tmp_path / "set" / "read.me").write_text("")
    o = data.open(f"folder:{tmp_path}/set")
    assert o.ids.tolist() == ["a/1.PNG", "b/10.png", "b/2.png", "b/deep/1.png"]
    assert o.labels.tolist() == [0, 1, 1, 1]
    assert o.class_names == ("a", "b")
    np.testing.assert_array_equal(o.read(), x[[1, 3, 0, 2]])
    save(tmp_path / "set" / "loose.png", x[0])
    with pytest.raises(InvalidInput, match="holds images and also folders"):
        data.open(f"folder:{tmp_path}/set")


def test_flat_folder(tmp_path, monkeypatch):
    x = pixels(2, 9, 9)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidInput, match="holds no image files"):
        data.open(f"folder:{tmp_path}")
    save(tmp_path / "b.png", x[0])
    save(tmp_path / "a.bmp", x[1])
    o = data.open("folder:~")
    assert (o.ids.tolist(), o.labels.tolist(), o.class_names) == (["a.bmp", "b.png"], [-1, -1], None)
    (tmp_path / "a.bmp").write_text("no image")
    with pytest.raises(InvalidInput, match=r"a\.bmp is not a readable image"):
        data.open(f"folder:{tmp_path}")
    with pytest.raises(InvalidInput, match="is a file; image folder must be a folder"):
        data.open(f"folder:{tmp_path}/b.png")


def test_list(tmp_path):
    x = pixels(3, 9, 9)
    for i, name in enumerate(["c/one.png", "c/with space.png", "d/x.png"]):
        save(tmp_path / "root" / name, x[i])
    file = tmp_path / "val.txt"
    file.write_text("d/x.png -1\n\nc/with space.png 3\nc/one.png\t0\n")
    o = data.open(f"list:{file}?root={tmp_path}/root")
    assert o.ids.tolist() == ["d/x.png", "c/with space.png", "c/one.png"]
    assert o.labels.tolist() == [-1, 3, 0]
    np.testing.assert_array_equal(o.read(), x[[2, 1, 0]])
    for text, words in [
        ("c/one.png", "line 1: must be a path, a space and a label"),
        ("c/one.png 0\nd/x.png two", "line 2"),
        ("c/one.png -2", "line 1"),
        ("", "lists no images"),
        ("c/one.png 0\nc/lost.png 1", r"1 of 2 images are missing, the first is .*c/lost\.png"),
    ]:
        file.write_text(text)
        with pytest.raises(InvalidInput, match=words):
            data.open(f"list:{file}?root={tmp_path}/root")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not a text file"):
        data.open(f"list:{file}?root={tmp_path}/root")
    with pytest.raises(InvalidInput, match="nowhere: there is no such root folder"):
        data.open(f"list:{file}?root={tmp_path}/nowhere")


def test_tinyimagenet(tmp_path):
    x = pixels(6, 64, 64)
    (tmp_path / "wnids.txt").write_text("n02\nn01\n")
    (tmp_path / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tbullfrog\nn09\tother\n")
    for i, name in enumerate(["n02/images/n02_0", "n01/images/n01_1", "n01/images/n01_0"]):
        save(tmp_path / "train" / f"{name}.png", x[i])
    for i in range(3):
        save(tmp_path / "val" / "images" / f"val_{i}.png", x[3 + i])
    notes = tmp_path / "val" / "val_annotations.txt"
    notes.write_text("val_2.png\tn01\t0\t0\t9\t9\nval_0.png\tn02\t0\t0\t9\t9\nval_1.png\tn02\t0\t0\t9\t9\n")
    val = data.open(f"tinyimagenet:{tmp_path}?names=words")
    assert val.labels.tolist() == [0, 1, 1]
    assert val.class_names == ("goldfish", "bullfrog")
    np.testing.assert_array_equal(val.read(), x[[5, 3, 4]])
    train = data.open(f"tinyimagenet:{tmp_path}?split=train&size=32")
    assert train.ids.tolist() == ["n01/images/n01_0.png", "n01/images/n01_1.png", "n02/images/n02_0.png"]
    assert (train.labels.tolist(), train.class_names, train.shape) == ([0, 0, 1], ("n01", "n02"), (32, 32))
    notes.write_text("val_2.png\tn77\n")
    with pytest.raises(InvalidInput, match="line 1: must be an image and a wnid"):
        data.open(f"tinyimagenet:{tmp_path}")
    notes.write_text("val_9.png\tn01\n")
    with pytest.raises(InvalidInput, match=r"val_9\.png"):
        data.open(f"tinyimagenet:{tmp_path}")
    (tmp_path / "wnids.txt").write_text("n02\nn01\nn03\n")
    with pytest.raises(InvalidInput, match="n03: there is no such class folder"):
        data.open(f"tinyimagenet:{tmp_path}?split=train")


def write_csv(file, header, rows):
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def test_iwildcam(tmp_path):
    x = pixels(5, 12, 12)
    splits = ["train", "id_test", "test", "id_test", "val"]
    for i in range(5):
        save(tmp_path / "train" / f"{i}.png", x[i])
    rows = [[i, s, f"{i}.png", y] for i, (s, y) in enumerate(zip(splits, [0, 2, 1, 0, 3], strict=True))]
    write_csv(tmp_path / "metadata.csv", ["", "split", "filename", "y"], rows)
    o = data.open(f"wilds:{tmp_path}?dataset=iwildcam&split=id_test")
    assert (o.labels.tolist(), o.ids.tolist(), o.class_names) == ([2, 0], ["train/1.png", "train/3.png"], None)
    np.testing.assert_array_equal(o.read(), x[[1, 3]])
    write_csv(tmp_path / "categories.csv", ["y", "name"], [[2, "ocelot"], [0, "empty"], [99999, "none"], ["", "?"]])
    assert data.open(f"wilds:{tmp_path}?dataset=iwildcam").class_names == ("empty", "1", "ocelot", "3")
    with pytest.raises(InvalidInput, match="no rows of split 'id_val'"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam&split=id_val")
    with pytest.raises(UnknownName, match="did you mean"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam&split=idtest")
    with pytest.raises(InvalidInput, match="no column 'patient'"):
        data.open(f"wilds:{tmp_path}?dataset=camelyon17")
    (tmp_path / "metadata.csv").write_text("split,filename,y\ntest,2.png,1\ntest,3.p")
    with pytest.raises(InvalidInput, match="line 3: fewer fields"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam")
    (tmp_path / "metadata.csv").write_text("split,filename,y\ntest,2.png,cow")
    with pytest.raises(InvalidInput, match="must be whole numbers"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam")


def test_camelyon17(tmp_path):
    header = ["", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"]
    rows = [
        [0, "004", 4, 3328, 21792, 1, 0, 0, 0],
        [1, "020", 1, 10, 20, 0, 1, 1, 0],  # hospital 1: val
        [2, "046", 2, 30, 40, 1, 2, 2, 0],  # hospital 2: test
        [3, "099", 3, 50, 60, 0, 3, 4, 1],  # elsewhere, marked: id_val
    ]
    write_csv(tmp_path / "metadata.csv", header, rows)
    x = pixels(4, 96, 96)
    for i, (_, p, n, a, b, *_rest) in enumerate(rows):
        name = f"patient_{p}_node_{n}/patch_patient_{p}_node_{n}_x_{a}_y_{b}.png"
        save(tmp_path / "patches" / name, x[i])
    for i, split in enumerate(["train", "val", "test", "id_val"]):
        o = data.open(f"wilds:{tmp_path}?dataset=camelyon17&split={split}")
        assert o.labels.tolist() == [rows[i][5]]
        assert o.class_names == ("normal", "tumor")
        np.testing.assert_array_equal(o.read(), x[[i]])
    with pytest.raises(UnknownName):
        data.open(f"wilds:{tmp_path}?dataset=camelyon17&split=id_test")


# --- BREEDS ---------------------------------------------------------------------------------------------------------


def write_hierarchy(folder):
    """At depth 3 two super-classes of 22 and 20 leaves (one of them by its longer path), a small and a dead branch."""
    leaves = {"n_b": [f"n1{i:03d}" for i in range(22)], "n_a": [f"n2{i:03d}" for i in range(20)], "n_c": ["n3000"]}
    edges = [("n00001740", "n_x"), ("n_x", "n_y"), ("n_y", "n_a"), ("n_y", "n_b"), ("n_y", "n_c"), ("n_y", "n_dead")]
    edges += [("n_b", "n_mid")] + [("n_mid", leaf) for leaf in leaves["n_b"]]
    edges += [("n_a", leaf) for leaf in leaves["n_a"]] + [("n_c", "n3000")]
    edges += [("n_x", "n_a")]  # a shorter way to n_a does not make it shallower
    folder.mkdir()
    every = sorted(w for group in leaves.values() for w in group)
    (folder / "dataset_class_info.json").write_text(json.dumps([[i, w, f"name {w}"] for i, w in enumerate(every)]))
    (folder / "class_hierarchy.txt").write_text("".join(f"{p} {c}\n" for p, c in edges))
    (folder / "node_names.txt").write_text("n_a\tanimal\nn_b\tboat, ship\n")
    return leaves


def test_breeds_from_a_hierarchy(tmp_path):
    leaves = write_hierarchy(tmp_path / "h")
    x = pixels(1, 10, 10)[0]
    for w in [*leaves["n_a"], *leaves["n_b"]]:
        for part in ("train", "val"):
            save(tmp_path / "imagenet" / part / w / f"{w}_{part}.png", x)
    spec = f"breeds:{tmp_path}/imagenet?task=entity13&hierarchy={tmp_path}/h"
    source, target = data.open(f"{spec}&split=source"), data.open(f"{spec}&split=target&part=val")
    rng = np.random.RandomState(2)  # as the published code draws, super-classes in the order of their wnids
    for k, node in enumerate(["n_a", "n_b"]):
        drawn = rng.choice(sorted(leaves[node]), 20, replace=False)
        for o, half, part in ((source, drawn[:10], "train"), (target, drawn[10:], "val")):
            got = sorted(i for i, y in zip(o.ids.tolist(), o.labels, strict=True) if y == k)
            assert got == sorted(f"{w}/{w}_{part}.png" for w in half)
    assert source.class_names == target.class_names == ("animal", "boat, ship")
    with pytest.raises(InvalidInput, match="needs either map="):
        data.open(f"breeds:{tmp_path}/imagenet?split=source")
    with pytest.raises(InvalidInput, match="no node at depth 5"):
        data.open(f"{spec}&split=source".replace("entity13", "living17"))
    (tmp_path / "h" / "class_hierarchy.txt").write_text("n00001740 n_x\nn_x\n")
    with pytest.raises(InvalidInput, match="cannot be read"):
        data.open(f"{spec}&split=source")
    (tmp_path / "h" / "class_hierarchy.txt").write_text("n00001740 n_x\nn_x n_y\nn_y n_x\nn_y n3000\n")
    with pytest.raises(InvalidInput, match=r"h: the hierarchy has a cycle through n_[xy] and its child"):
        data.open(f"{spec}&split=source")
    aside = "n00001740 n3000\nn_x n_y\nn_y n_x\nn_y n3000\n"  # a cycle that the root does not reach
    (tmp_path / "h" / "class_hierarchy.txt").write_text(aside)
    with pytest.raises(InvalidInput, match="the hierarchy has a cycle"):
        data.open(f"{spec}&split=source")
    info = (tmp_path / "h" / "dataset_class_info.json").read_text()
    (tmp_path / "h" / "dataset_class_info.json").write_text("[" * 100_000)
    with pytest.raises(InvalidInput, match=r"dataset_class_info\.json is nested too deeply"):
        data.open(f"{spec}&split=source")
    (tmp_path / "h" / "dataset_class_info.json").write_text(info)
    (tmp_path / "h" / "class_hierarchy.txt").write_text("n_q n3000\n")
    with pytest.raises(InvalidInput, match="no classes below its root"):
        data.open(f"{spec}&split=source")
    (tmp_path / "h" / "node_names.txt").unlink()
    with pytest.raises(InvalidInput, match=r"node_names\.txt: there is no such"):
        data.open(f"{spec}&split=source")


def test_breeds_from_a_map(tmp_path):
    table = {"source": {"dog": ["n2", "n1"], "cat": ["n3"]}, "target": {"dog": ["n4"], "cat": ["n5"]}}
    x = pixels(5, 10, 10)
    for i in range(5):
        save(tmp_path / "imagenet" / f"n{i + 1}" / "a.png", x[i])
    for content in (table, {"entity13": table}):
        (tmp_path / "m.json").write_text(json.dumps(content))
        o = data.open(f"breeds:{tmp_path}/imagenet?split=source&map={tmp_path}/m.json")
        assert (o.ids.tolist(), o.labels.tolist()) == (["n1/a.png", "n2/a.png", "n3/a.png"], [0, 0, 1])
        assert o.class_names == ("dog", "cat")
    for content, words in [
        ("{", "is not JSON"),
        ('{"source": ' + "[" * 100_000, "its JSON is nested too deeply"),
        (json.dumps({**table, "target": {"dog": [["n4"]], "cat": ["n5"]}}), "lists of wnids"),
        ("[1]", "has the keys"),
        (json.dumps({"source": {"dog": ["n1"]}}), "has the keys"),
        (json.dumps({**table, "target": {"cat": ["n5"], "dog": ["n4"]}}), "same super-classes"),
        (json.dumps({**table, "target": {"dog": ["n4"], "cat": ["n4"]}}), "in two super-classes"),
        (json.dumps({**table, "target": {"dog": "n4", "cat": []}}), "lists of wnids"),
    ]:
        (tmp_path / "m.json").write_text(content)
        with pytest.raises(InvalidInput, match=words):
            data.open(f"breeds:{tmp_path}/imagenet?split=source&map={tmp_path}/m.json")
    (tmp_path / "m.json").write_text(json.dumps({**table, "source": {"dog": ["n8"], "cat": ["n9"]}}))
    with pytest.raises(InvalidInput, match="n8: there is no such class folder"):
        data.open(f"breeds:{tmp_path}/imagenet?split=source&map={tmp_path}/m.json")


# --- Hugging Face ---------------------------------------------------------------------------------------------------


def test_hugging_face(tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="the datasets library is not installed")
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    x = pixels(4, 9, 9)
    for i, name in enumerate(["a/0", "a/1", "b/0", "b/1"]):
        save(tmp_path / "set" / "test" / f"{name}.png", x[i])
    o = data.open(f"hf:{tmp_path}/set?split=test")
    np.testing.assert_array_equal(o.read(), x)
    assert (o.labels.tolist(), o.class_names) == ([0, 0, 1, 1], ("a", "b"))
    buffers = []
    for row in x:
        buffer = io.BytesIO()
        Image.fromarray(row).save(buffer, format="PNG")
        buffers.append({"bytes": buffer.getvalue(), "path": None})
    features = datasets.Features({"n": datasets.Value("int64"), "pic": datasets.Image()})
    table = datasets.Dataset.from_dict({"n": [3, 1, 0, 2], "pic": buffers}, features=features)
    datasets.disable_progress_bars()
    table.save_to_disk(tmp_path / "disk")
    o = data.open(f"hf:{tmp_path}/disk?label=n&limit=3")
    assert (o.labels.tolist(), o.class_names) == ([3, 1, 0], None)
    np.testing.assert_array_equal(o.read(), x[:3])
    with pytest.raises(InvalidInput, match="no image column picture; its columns are"):
        data.open(f"hf:{tmp_path}/disk?image=picture")
    with pytest.raises(InvalidInput, match="no label column y"):
        data.open(f"hf:{tmp_path}/disk?label=y")
    for spec in ("hf:nobody/nothing", f"hf:{tmp_path}/set?split=train", f"hf:{tmp_path}/gone"):
        with pytest.raises(InvalidInput, match="nothing is fetched here"):
            data.open(spec)
    assert before == datasets.config.HF_HUB_OFFLINE  # set for the call only


def test_hugging_face_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match="pip install datasets"):
        data.open("hf:any")
