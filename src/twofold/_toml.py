"""Read TOML files that people write: every mistake is one error that says where it is and what should be there."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from twofold.errors import InvalidInput, UnknownName

MOST_LEVELS = 100  # of nesting; the parser's work grows with the square of the parts of a dotted key
_KEY_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{MOST_LEVELS},}}")


def parse(text: str, where: str) -> dict[str, object]:
    """Parse the text of a file; ``where`` names it in errors."""
    if _DEEP_KEY.search(text):
        raise InvalidInput(f"{where} is nested too deeply: a key has more than {MOST_LEVELS} dotted parts")
    try:
        content: dict[str, object] = tomllib.loads(text)
    except ValueError as error:  # also numbers of more digits than Python reads
        raise InvalidInput(f"{where} is not TOML: {error}") from error
    except RecursionError as error:
        raise InvalidInput(f"{where} is nested too deeply: it has more than {MOST_LEVELS} levels") from error
    _check_depth(content, where)
    return content


def _check_depth(content: Mapping[str, object], where: str) -> None:
    """Refuse content that is nested too deeply for the errors below to show it."""
    level: list[object] = [content]
    for _ in range(MOST_LEVELS + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise InvalidInput(f"{where} is nested too deeply: it has more than {MOST_LEVELS} levels")


def check_keys(content: Mapping[str, object], keys: Sequence[str], where: str) -> None:
    """Raise an error that names the first unknown key, and the known one nearest to it."""
    for key in content:
        if key not in keys:
            raise InvalidInput(f"{where}: {UnknownName.of('key', key, keys)}")


def get_value(content: Mapping[str, object], key: str, where: str) -> object:
    """Get the value of a required key."""
    if key not in content:
        raise InvalidInput(f"{where}: key {key!r} is missing")
    return content[key]


def get_text(content: Mapping[str, object], key: str, where: str, *, default: str | None = None) -> str:
    """Get a string that is not blank; without a default the key is required."""
    if key not in content and default is not None:
        return default
    value = get_value(content, key, where)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{where}: {key} must be a string that is not blank, got {value!r}")
    return value


def get_whole(content: Mapping[str, object], key: str, where: str, *, low: int, default: int | None = None) -> int:
    """Get a whole number of at least ``low``; without a default the key is required."""
    if key not in content and default is not None:
        return default
    value = get_value(content, key, where)
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise InvalidInput(f"{where}: {key} must be a whole number of at least {low}, got {value!r}")
    return value


def get_texts(content: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    """Get a required list of distinct strings."""
    values = get_value(content, key, where)
    if not is_list_of_texts(values):
        raise InvalidInput(f"{where}: {key} must be a list of strings, got {values!r}")
    for place, value in enumerate(values):
        if value in values[:place]:
            raise InvalidInput(f"{where}: {key} names {value!r} twice")
    return tuple(values)


def is_list_of_texts(value: object) -> TypeGuard[list[str]]:
    """Check whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def get_tables(content: Mapping[str, object], key: str, where: str) -> list[dict[str, object]]:
    """Get the tables written ``[[key]]``; an empty list where there are none."""
    value = content.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidInput(f"{where}: {key} must be tables, written [[{key}]], got {value!r}")
    return value


def get_table(content: Mapping[str, object], key: str, where: str) -> dict[str, object]:
    """Get a copy of the table written ``[key]``; an empty one where there is none."""
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: {key} must be a table, written [{key}], got {value!r}")
    return dict(value)


def format_value(value: object) -> str:
    """Format a string, a whole number or a tuple of them as TOML."""
    if isinstance(value, tuple):
        return f"[{', '.join(format_value(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON strings are TOML strings but for DEL
