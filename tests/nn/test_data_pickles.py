"""Pickles as plain data: what is read, and what is refused."""

import pickle

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.nn.data.pickles import plain_pickle


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
