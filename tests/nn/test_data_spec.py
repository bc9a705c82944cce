"""The grammar of data sets, the table of readers, and the keys that all kinds share."""

import numpy as np
import pytest
from data_toys import pixels

from twofold.errors import InvalidInput, NameTaken, UnknownName
from twofold.nn import data
from twofold.nn.data.readers import READERS, reader
from twofold.nn.data.spec import parse


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
