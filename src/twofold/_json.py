"""JSON files that are loaded again: each ends with its own SHA-256; what is damaged or odd is one clear error."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from twofold.errors import RunError, TwofoldError


def encode_json(content: Mapping[str, object]) -> bytes:
    """Encode a mapping as JSON with its own SHA-256 under the last key, ``checksum``.

    Parameters
    ----------
    content : mapping
        Plain values without NaN and infinities, among them ``format`` (text) and ``version`` (int); no ``checksum``.

    Returns
    -------
    bytes
        What :func:`decode_json` reads.
    """
    checksum = hashlib.sha256(json.dumps(content, allow_nan=False).encode()).hexdigest()
    return json.dumps({**content, "checksum": checksum}, allow_nan=False, indent=1).encode() + b"\n"


def decode_json(
    raw: bytes,
    path: Path,
    *,
    kind: str,
    form: str,
    version: int,
    again: str,
    error: type[TwofoldError] = RunError,
) -> dict[str, Any]:
    """Decode what :func:`encode_json` made, and refuse everything else.

    The checksum finds damage, not forgery: whoever writes a file can write its checksum. Check the content, too.

    Parameters
    ----------
    raw : bytes
        The content of the file.
    path : Path
        Where it came from, for messages.
    kind : str
        What it should be, such as ``"a saved gate"``.
    form, version : str, int
        Its ``format`` and ``version``.
    again : str
        How to write it again, such as ``"save the gate again with Gate.save"``.
    error : type, default=RunError
        The exception to raise.

    Returns
    -------
    dict
        The content without ``format``, ``version`` and ``checksum``.

    Raises
    ------
    TwofoldError
        ``error``, if the JSON is incomplete, nested too deeply, of another format or version, or if its checksum is
        missing or does not fit.

    Examples
    --------
    >>> raw = encode_json({"format": "note", "version": 1, "text": "kept"})
    >>> expected = {"kind": "a note", "form": "note", "version": 1, "again": "write it again"}
    >>> decode_json(raw, Path("note.json"), **expected)
    {'text': 'kept'}
    >>> decode_json(raw.replace(b"kept", b"lost"), Path("note.json"), **expected)
    Traceback (most recent call last):
        ...
    twofold.errors.RunError: note.json is damaged or was edited: its checksum does not fit; write it again
    """
    try:
        content = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is damaged: not complete JSON ({_short(problem)}); {again}") from problem
    if not isinstance(content, dict) or content.get("format") != form:
        raise error(f"{path} is not {kind}; {again}")
    if type(content.get("version")) is not int or content["version"] != version:
        raise error(
            f"{path} has format version {_short(content.get('version'))}, and this twofold reads version {version}; "
            f"{again}, or update if a newer twofold wrote it: pip install -U twofold"
        )
    checksum = content.pop("checksum", None)
    if checksum is None:
        raise error(f"{path} has no checksum; {again}")
    try:
        intact = raw == encode_json(content)
    except (ValueError, RecursionError):  # infinities, lone surrogates, deep nesting
        intact = False
    if not intact:
        raise error(f"{path} is damaged or was edited: its checksum does not fit; {again}")
    del content["format"], content["version"]
    return content


# Checks of decoded content: each returns the value with its type, or raises ValueError with one sentence


def check_table(content: object, where: str, keys: Collection[str] | None = None) -> dict[str, object]:
    """Check that the content is a JSON object with exactly these keys (by default any), and return it."""
    if not isinstance(content, dict):
        raise ValueError(f"{where} must be a table, got {content!r:.80}")
    if keys is not None and content.keys() != set(keys):
        odd = min(content.keys() ^ set(keys))
        raise ValueError(f"{where} must have the keys {', '.join(keys)}; {odd!r:.80} is missing or too much")
    return content


def check_list(content: object, where: str, length: int | None = None) -> list[object]:
    """Check that the content is a JSON array, of this length if one is given, and return it."""
    if not isinstance(content, list):
        raise ValueError(f"{where} must be a list, got {content!r:.80}")
    if length is not None and len(content) != length:
        raise ValueError(f"{where} must be a list of {length}, got {len(content)}")
    return content


def check_text(content: object, where: str) -> str:
    """Check that the content is text, and return it."""
    if not isinstance(content, str):
        raise ValueError(f"{where} must be text, got {content!r:.80}")
    return content


def check_flag(content: object, where: str) -> bool:
    """Check that the content is true or false, and return it."""
    if not isinstance(content, bool):
        raise ValueError(f"{where} must be true or false, got {content!r:.80}")
    return content


def check_count(content: object, where: str, low: int) -> int:
    """Check that the content is a whole number of at least ``low``, and return it."""
    if type(content) is not int or content < low:  # a boolean is not a number here
        raise ValueError(f"{where} must be a whole number of at least {low}, got {content!r:.80}")
    return content


def check_sha256(content: object, where: str) -> str:
    """Check that the content is a SHA-256 in hexadecimal digits, and return it."""
    digest = check_text(content, where)
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"{where} must be a SHA-256 of 64 hexadecimal digits, got {digest!r:.80}")
    return digest


def nan_to_none(value: float) -> float | None:
    """Replace NaN, which JSON does not have, by None, which it writes as null."""
    return None if math.isnan(value) else value


def finite_or_none(value: float) -> float | None:
    """Replace NaN and the infinities, which JSON does not have, by None, which it writes as null."""
    return float(value) if math.isfinite(value) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _short(value: object) -> str:
    """Format an untrusted value for a message: at most 80 characters of one line."""
    text = type(value).__name__
    if value is None or isinstance(value, (str, int, float, BaseException)):
        text = str(value)
    return " ".join(text.split())[:80]
