"""The manifest of a run: what run.json holds, and the check that ``Run`` itself could have written it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold._checks import choice
from twofold._json import (
    check_count,
    check_flag,
    check_list,
    check_sha256,
    check_table,
    check_text,
    decode_json,
    encode_json,
)
from twofold.errors import InvalidInput, RunError
from twofold.outputs import NAMES
from twofold.roles import ROLES
from twofold.run._tensors import DTYPES, StoredFile, Tensor, Tensors, check_fields, lay_out

FORMAT, VERSION = "twofold-run", 1
HEAD = "head.safetensors"
DEPTH = 32  # maximum nesting of lists and dictionaries in provenance


@dataclass(frozen=True)
class StoredSet:
    """Describe one data set of a run."""

    role: str
    rows: int
    uses_head: bool
    pass_count: int | None
    stored: StoredFile


@dataclass(frozen=True)
class Manifest:
    """Hold the content of run.json, without its format marks and checksum."""

    provenance: dict[str, Any]
    classes: int | None
    class_names: tuple[str, ...] | None
    head: StoredFile | None
    data: dict[str, StoredSet]


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode a manifest as the bytes of run.json."""
    return encode_json({"format": FORMAT, "version": VERSION, **dataclasses.asdict(manifest)})


def decode_manifest(raw: bytes, path: Path) -> Manifest:
    """Decode the bytes of run.json; raise unless :class:`Run` could have written them."""
    content = decode_json(
        raw, path, kind="a manifest of a twofold run", form=FORMAT, version=VERSION, again="restore it from a copy"
    )
    try:
        json.dumps(content, ensure_ascii=False).encode()  # no half of a surrogate pair in any text
        return _parse_manifest(content)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} was not written by Run: {error}; restore it from a copy") from error


def _parse_manifest(content: object) -> Manifest:
    """Check the content of run.json against everything that ``Run`` would write; ValueError names what is wrong."""
    table = check_table(content, "run.json", ("provenance", "classes", "class_names", "head", "data"))
    provenance = check_table(table["provenance"], "provenance")
    for key, value in provenance.items():
        check_depth(value, f"{key!r:.80} of provenance")
    check_provenance(provenance)
    classes = None
    if table["classes"] is not None:
        classes = check_count(table["classes"], "classes", 1)
    class_names = None
    if table["class_names"] is not None:
        class_names = _parse_class_names(table["class_names"], classes)
    head = None
    if table["head"] is not None:
        head = _parse_head(table["head"], classes)
    data = {}
    for name, entry in check_table(table["data"], "data").items():
        check_set_name(name)
        data[name] = _parse_data_set(entry, name, classes, head)
    if len({name.lower() for name in data}) < len(data):
        raise ValueError("data has names that differ in case only")
    return Manifest(provenance, classes, class_names, head, data)


def check_provenance(provenance: Mapping[str, object]) -> None:
    """Raise ValueError unless the entries that other code relies on have the right type."""
    check_text(provenance.get("model"), "model")
    for key in ("command", "recipe"):
        if provenance.get(key) is not None:
            check_text(provenance[key], key)
    seed = provenance.get("seed")
    if seed is not None and (type(seed) is not int or abs(seed) >= 2**63):
        raise ValueError(f"seed must be a whole number of 64 bits, got {seed!r:.80}")
    for key, value in check_table(provenance.get("versions"), "versions").items():
        check_text(value, f"versions[{key!r}]")


def check_depth(content: object, where: str) -> None:
    """Raise ValueError if lists and tables are nested so deeply that printing them could fail."""
    level = [content]
    for _ in range(DEPTH):
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper.extend(value.values())
            elif isinstance(value, list | tuple):
                deeper.extend(value)
        level = deeper
    if level:
        raise ValueError(f"{where} must be nested at most {DEPTH} deep")


def _parse_class_names(content: object, classes: int | None) -> tuple[str, ...]:
    names = check_list(content, "class_names")
    if not is_text_list(names):
        raise ValueError(f"class_names must be a list of texts, got {content!r:.80}")
    if len(names) != classes:
        raise ValueError(f"class_names has {len(names)} names for {classes} classes")
    return tuple(str(name) for name in names)


def is_text_list(values: Sequence[object]) -> bool:
    """Check whether the sequence is not empty, and holds only text that a file can store."""
    for value in values:
        if not isinstance(value, str):
            return False
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return False
    return len(values) > 0


def _parse_head(content: object, classes: int | None) -> StoredFile:
    stored = _parse_file(content, "head", (HEAD,))
    shapes = {name: tensor.shape for name, tensor in stored.tensors.items()}
    weight = shapes.get("weight", ())
    has_shapes = shapes.keys() == {"weight", "bias"} and len(weight) == 2 and shapes["bias"] == weight[:1]
    if not has_shapes or any(tensor.dtype.kind != "f" for tensor in stored.tensors.values()):
        raise ValueError(f"head must hold weight (C, D) and bias (C,), floats, got {stored.tensors!r:.80}")
    if weight[0] != classes:
        raise ValueError(f"head has {weight[0]} rows for {classes} classes")
    _check_size(stored, None, "head")
    return stored


def _parse_data_set(content: object, name: str, classes: int | None, head: StoredFile | None) -> StoredSet:
    entry = check_table(content, f"data[{name!r}]", ("role", "rows", "uses_head", "pass_count", "stored"))
    role = check_text(entry["role"], f"role of {name}")
    choice(role, f"role of {name}", ROLES)
    rows = check_count(entry["rows"], f"rows of {name}", 1)
    pass_count = None
    if entry["pass_count"] is not None:
        pass_count = check_count(entry["pass_count"], f"pass_count of {name}", 1)
    stored = _parse_file(entry["stored"], f"data[{name!r}]", file_names(name))
    _check_tensors(stored.tensors, rows, pass_count, name)
    _check_size(stored, pass_count, name)
    columns = stored.tensors["logits"].columns
    if columns != classes:
        raise ValueError(f"logits of {name} have {columns} columns for {classes} classes")
    uses_head = check_flag(entry["uses_head"], f"uses_head of {name}")
    if uses_head:
        _check_features(stored.tensors, head, name)
    return StoredSet(role, rows, uses_head, pass_count, stored)


def _check_features(tensors: Tensors, head: StoredFile | None, name: str) -> None:
    """Raise ValueError unless there is a head, and it takes the features of a data set that uses it."""
    if head is None:
        raise ValueError(f"uses_head of {name} must be false, because the run has no head")
    if "features" in tensors:
        columns, expected = tensors["features"].columns, head.tensors["weight"].columns
        if columns != expected:
            raise ValueError(f"features of {name} have {columns} columns, and the head takes {expected}")


def _parse_file(content: object, where: str, names: Sequence[str]) -> StoredFile:
    # a manifest from elsewhere must not lead outside its own folder, nor to the file of something else in it
    entry = check_table(content, where, ("file", "bytes", "sha256", "tensors"))
    file = check_text(entry["file"], f"file of {where}")
    if file not in names:
        raise ValueError(f"file of {where} must be {' or '.join(names)}, got {file!r:.80}")
    digest = check_sha256(entry["sha256"], f"sha256 of {where}")
    tensors = {}
    for name, described in check_table(entry["tensors"], f"tensors of {where}").items():
        tensors[name] = parse_tensor(described, f"{name!r:.80} of {where}")
    return StoredFile(file, check_count(entry["bytes"], f"bytes of {where}", 8), digest, tensors)


def parse_tensor(content: object, where: str) -> Tensor:
    """Parse the dtype and shape of a tensor, such as ["F32", [100, 10]]."""
    problem = f"{where} must be a dtype and a shape, got {content!r:.80}"
    if not isinstance(content, list) or len(content) != 2:
        raise ValueError(problem)
    code, sizes = content
    if not isinstance(code, str) or code not in DTYPES or not isinstance(sizes, list):
        raise ValueError(problem)
    return Tensor(code, tuple(check_count(size, f"the shape of {where}", 1) for size in sizes))


def _check_tensors(tensors: Tensors, rows: int, pass_count: int | None, name: str) -> None:
    """Raise unless a writer could have been created with these tensors."""
    fields: dict[str, tuple[str, tuple[int, ...]]] = {}
    for key, tensor in tensors.items():
        shape = tensor.shape
        if len(shape) == 0 or shape[0] != rows:
            raise ValueError(f"{key!r:.80} of {name} has shape {shape} for {rows} rows")
        if key in NAMES and tensor.code == "U8" and len(shape) == 2:
            fields[key] = f"S{shape[1]}", ()
        else:
            fields[key] = tensor.dtype.str, shape[1:]
    if check_fields(fields, rows, pass_count) != tensors:
        raise ValueError(f"tensors of {name} are not as Run stores them")


def _check_size(stored: StoredFile, pass_count: int | None, where: str) -> None:
    size = lay_out(stored.tensors, pass_count).size
    if stored.bytes != size:
        raise ValueError(f"the tensors of {where} make a file of {size} bytes, not of {stored.bytes}")


# Names of data sets and of their files


def check_set_name(name: object) -> None:
    """Raise unless this is a valid name of a data set."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[1-5])?", name):
        raise InvalidInput(
            f"name must be letters, digits, '.', '_' or '-' and not begin with a dot, got {name!r:.80}; "
            "it becomes a file name. A level of corruption, /1 to /5, may follow"
        )
    if name.lower() == "head":
        raise InvalidInput("name must not be 'head'; that file holds the last linear layer")


def file_stem(name: str) -> str:
    """Return the file name of a data set without its extension; ``corruption/3`` gets no separate folder."""
    return name.replace("/", "@")


def file_names(name: str) -> tuple[str, str]:
    """Return the two files that a data set may be in: each new version of it takes the one that is free."""
    return f"{file_stem(name)}.safetensors", f"{file_stem(name)}~.safetensors"
