"""TOML files that people write: values come as they should be, and every mistake is one clear error at once."""

import time
import tomllib

import pytest

from twofold import _toml
from twofold.errors import InvalidInput

CONTENT = _toml.parse(
    """
name = "mine"
blank = " "
count = 3
flag = true
words = ["a", "b"]
twice = ["a", "b", "a"]
mixed = ["a", 1]

[one]
x = 1

[[several]]
y = 1

[[several]]
y = 2
""",
    "mine.toml",
)


def test_values_of_each_kind():
    assert _toml.get_value(CONTENT, "flag", "mine.toml") is True
    assert _toml.get_text(CONTENT, "name", "mine.toml") == "mine"
    assert _toml.get_text(CONTENT, "absent", "mine.toml", default="") == ""
    assert _toml.get_whole(CONTENT, "count", "mine.toml", low=3) == 3
    assert _toml.get_whole(CONTENT, "absent", "mine.toml", low=3, default=0) == 0
    assert _toml.get_texts(CONTENT, "words", "mine.toml") == ("a", "b")
    assert _toml.get_table(CONTENT, "one", "mine.toml") == {"x": 1}
    assert _toml.get_table(CONTENT, "absent", "mine.toml") == {}
    assert _toml.get_tables(CONTENT, "several", "mine.toml") == [{"y": 1}, {"y": 2}]
    assert _toml.get_tables(CONTENT, "absent", "mine.toml") == []


@pytest.mark.parametrize(
    ("read", "key", "message"),
    [
        (_toml.get_value, "absent", "key 'absent' is missing"),
        (_toml.get_text, "absent", "key 'absent' is missing"),
        (_toml.get_text, "count", "count must be a string that is not blank, got 3"),
        (_toml.get_text, "blank", "blank must be a string that is not blank"),
        (_toml.get_texts, "name", "name must be a list of strings, got 'mine'"),
        (_toml.get_texts, "mixed", "mixed must be a list of strings"),
        (_toml.get_texts, "twice", "twice names 'a' twice"),
        (_toml.get_table, "name", r"name must be a table, written \[name\], got 'mine'"),
        (_toml.get_tables, "one", r"one must be tables, written \[\[one\]\], got"),
        (_toml.get_tables, "words", "words must be tables"),
    ],
)
def test_values_of_another_kind(read, key, message):
    with pytest.raises(InvalidInput, match=f"^mine.toml: {message}"):
        read(CONTENT, key, "mine.toml")


@pytest.mark.parametrize("key", ["name", "flag", "count"])
def test_numbers_that_are_not_whole_or_too_low(key):
    with pytest.raises(InvalidInput, match=f"mine.toml: {key} must be a whole number of at least 4, got"):
        _toml.get_whole(CONTENT, key, "mine.toml", low=4)


def test_unknown_keys_name_the_nearest():
    with pytest.raises(InvalidInput, match=r"mine\.toml: no key 'nam'; did you mean 'name'"):
        _toml.check_keys({"nam": 1}, ["name", "title"], "mine.toml")


def test_text_that_is_not_toml():
    with pytest.raises(InvalidInput, match=r"mine\.toml is not TOML: "):
        _toml.parse("x = ", "mine.toml")


@pytest.mark.parametrize(
    "value", ["plain", 'quoted "\\ \n\t\x7f\x00', "ü €", 5, ("a", "b"), (("a", "b"), ("c", "d")), ()]
)
def test_what_is_formatted_reads_the_same(value):
    def lists(value):
        return [lists(item) for item in value] if isinstance(value, tuple) else value

    assert tomllib.loads(f"x = {_toml.format_value(value)}")["x"] == lists(value)


def dotted(parts):
    return ".".join(["a"] * parts)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 100_000,
        dotted(50_000) + " = 1",
        f"[{dotted(50_000)}]",
        f"[[{dotted(50_000)}]]",
        f"x = {{{dotted(50_000)} = 1}}",
        "'' . " * 50_000 + '"" = 1',
        f"x = {{{dotted(90)} = {{{dotted(90)} = 1}}}}",
        f"[{dotted(90)}]\n{dotted(90)} = 1",
    ],
    ids=["array", "key", "table", "tables", "inline", "quoted", "nested", "below"],
)
def test_deep_toml_says_so_at_once(text):
    """The work of the parser grows with the square of the parts of a key: 50,000 would take minutes."""
    begin = time.monotonic()
    with pytest.raises(InvalidInput, match=r"mine.toml is nested too deeply: .* more than 100"):
        _toml.parse(text, "mine.toml")
    assert time.monotonic() - begin < 5


def test_toml_that_is_not_too_deep():
    found = _toml.parse(f"{dotted(100)} = 1\nx = '{'a.b ' * 1000}'", "mine.toml")
    for _ in range(100):
        found = found["a"]
    assert found == 1
