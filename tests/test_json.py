"""JSON files with a checksum: the bytes are those that were agreed on, and nothing else is read."""

import hashlib
import json
from pathlib import Path

import pytest

from twofold._json import decode_json, encode_json
from twofold.errors import RunError

CONTENT = {"format": "note", "version": 1, "text": "ü", "numbers": [1, 2.5, None]}
HOW = {"kind": "a note", "form": "note", "version": 1, "again": "write it again"}


def test_the_bytes_are_indented_by_one_and_end_with_the_checksum():
    """Files that exist must stay readable, so the encoding never changes."""
    checksum = hashlib.sha256(json.dumps(CONTENT).encode()).hexdigest()
    lines = ["{", ' "format": "note",', ' "version": 1,', ' "text": "\\u00fc",', ' "numbers": [', "  1,", "  2.5,"]
    lines += ["  null", " ],", f' "checksum": "{checksum}"', "}", ""]
    assert encode_json(CONTENT) == "\n".join(lines).encode()
    assert decode_json(encode_json(CONTENT), Path("x"), **HOW) == {"text": "ü", "numbers": [1, 2.5, None]}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "2.50"])
def test_numbers_that_nobody_wrote_are_refused(number):
    """Infinities by overflow cannot be encoded again, and other spellings give other bytes."""
    raw = encode_json(CONTENT).replace(b"2.5", number.encode())
    with pytest.raises(RunError, match="damaged or was edited: its checksum does not fit"):
        decode_json(raw, Path("x"), **HOW)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_json_is_not_written(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_json({**CONTENT, "text": value})


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not complete JSON"),
        (b"[]", "is not a note"),
        (b'{"format": "other"}', "is not a note"),
        (b'{"format": "note", "version": true}', "has format version True"),
        (b'{"format": "note", "version": 2}', "has format version 2"),
        (b'{"format": "note", "version": 1}', "has no checksum"),
        (b'{"format": "note", "version": 1, "checksum": 3}', "does not fit"),
        (b'{"format": "note", "version": NaN}', "NaN is not JSON"),
    ],
)
def test_everything_else_is_one_line(raw, says):
    with pytest.raises(RunError, match=says) as caught:
        decode_json(raw, Path("x"), **HOW)
    assert "\n" not in str(caught.value)
