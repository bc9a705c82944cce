"""TOML files of people: every mistake is one error that says where it is and what should be there."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from twofold.errors import InvalidInput, UnknownName


def parsed(text: str, where: str) -> dict[str, Any]:
    """The content of a file; ``where`` names it in errors."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also numbers of more digits than Python reads
        raise InvalidInput(f"{where} is no TOML: {error}") from error
    except RecursionError as error:
        raise InvalidInput(f"{where} is no TOML that can be read: it is nested too deeply") from error


def known(content: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    """An error names a key that is not known, and the nearest one that is."""
    for key in content:
        if key not in keys:
            raise InvalidInput(f"{where}: {UnknownName.of('key', key, keys)}")


def value(content: Mapping[str, Any], key: str, where: str) -> Any:
    """The value of a key that must be there."""
    if key not in content:
        raise InvalidInput(f"{where}: key {key!r} is missing")
    return content[key]


def text(content: Mapping[str, Any], key: str, where: str) -> str:
    """A string with something in it."""
    found = value(content, key, where)
    if not isinstance(found, str) or not found.strip():
        raise InvalidInput(f"{where}: {key} must be a string with something in it, got {found!r}")
    return found


def whole(content: Mapping[str, Any], key: str, where: str, low: int) -> int:
    """A whole number of at least ``low``."""
    found = value(content, key, where)
    if not isinstance(found, int) or isinstance(found, bool) or found < low:
        raise InvalidInput(f"{where}: {key} must be a whole number of at least {low}, got {found!r}")
    return found


def texts(content: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """A list of different strings."""
    found = value(content, key, where)
    if not isinstance(found, list) or not all(isinstance(v, str) for v in found):
        raise InvalidInput(f"{where}: {key} must be a list of strings, got {found!r}")
    twice = next((v for i, v in enumerate(found) if v in found[:i]), None)
    if twice is not None:
        raise InvalidInput(f"{where}: {key} names {twice!r} twice")
    return tuple(found)


def tables(content: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Tables written [[key]]."""
    value = content[key]
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise InvalidInput(f"{where}: {key} must be tables, written [[{key}]], got {value!r}")
    return value


def table(content: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """A table written [key]; empty where there is none."""
    found = content.get(key, {})
    if not isinstance(found, dict):
        raise InvalidInput(f"{where}: {key} must be a table, written [{key}], got {found!r}")
    return dict(found)


def written(value: Any) -> str:
    """A string, whole number or tuple of them as TOML."""
    if isinstance(value, tuple):
        return f"[{', '.join(written(v) for v in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON strings are TOML strings but for DEL
