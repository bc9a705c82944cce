"""The safetensors files of a run: which tensors a data set has, where they lie in their file, writing and mapping."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._checks import whole
from twofold._files import open_regular
from twofold.errors import InvalidInput, RunError, UnknownName
from twofold.outputs import KNOWN_KEYS, NAMES, PASS_ARRAYS, AnyArray, Outputs, release, row_slices

HEADER_BYTES = 100_000_000  # limit of safetensors itself; a longer header is damaged
ALIGNMENT = 64  # of the first byte after a safetensors header: a cache line, and more than any dtype needs
AnyDtype: TypeAlias = np.dtype[Any]
DTYPES: dict[str, AnyDtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
FLOATS = (np.float16, np.float32, np.float64)


class Tensor(NamedTuple):
    """Describe a tensor of a file: its dtype as safetensors writes it, and its shape."""

    code: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> AnyDtype:
        """NumPy's dtype."""
        return DTYPES[self.code]

    @property
    def bytes(self) -> int:
        """Size of the tensor."""
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def columns(self) -> int:
        """Size of the last axis: classes of logits, columns of features."""
        return self.shape[-1]


Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class StoredFile:
    """Describe a safetensors file as the manifest knows it."""

    file: str
    bytes: int
    sha256: str
    tensors: Tensors


# Where tensors lie in a file


class Extent(NamedTuple):
    """Hold the first and last byte (exclusive) of a tensor after the header."""

    begin: int
    end: int


@dataclass(frozen=True)
class FileLayout:
    """Hold the header of a file, the first byte of each tensor in the file, and the size of the file."""

    header: bytes
    starts: dict[str, int]
    size: int


def place_tensors(tensors: Tensors) -> dict[str, Extent]:
    """Return the extent of each tensor, in the order of the file."""
    extents: dict[str, Extent] = {}
    end = 0
    # the format allows no holes, and the widest dtypes first keep every tensor aligned without any
    for name in sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name)):
        begin, end = end, end + tensors[name].bytes
        extents[name] = Extent(begin, end)
    return extents


def describe_tensors(tensors: Tensors, extents: Mapping[str, Extent]) -> dict[str, object]:
    """Return the header of a safetensors file, apart from its metadata."""
    header: dict[str, object] = {}
    for name, (begin, end) in extents.items():
        code, shape = tensors[name]
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [begin, end]}
    return header


def lay_out(tensors: Tensors, pass_count: int | None) -> FileLayout:
    """Compute the layout of a file; ``pass_count``, which no tensor shows, is kept in its metadata."""
    extents = place_tensors(tensors)
    content = describe_tensors(tensors, extents)
    if pass_count is not None:
        content = {"__metadata__": {"pass_count": str(pass_count)}, **content}
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    header = len(text).to_bytes(8, "little") + text
    starts = {name: len(header) + extent.begin for name, extent in extents.items()}
    size = len(header) + sum(tensor.bytes for tensor in tensors.values())
    return FileLayout(header, starts, size)


# Files


def write_tensors(
    file: BinaryIO, name: str, arrays: Mapping[str, AnyArray], pass_count: int | None = None
) -> StoredFile:
    """Write arrays as safetensors, a block at a time, and return the description of the file."""
    tensors = {key: Tensor(CODES[array.dtype], array.shape) for key, array in arrays.items()}
    layout = lay_out(tensors, pass_count)
    digest = hashlib.sha256(layout.header)
    file.write(layout.header)
    for key in layout.starts:  # in the order of the file
        array = arrays[key]
        for rows in row_slices(len(array), array.nbytes // len(array)):
            data = np.ascontiguousarray(array[rows]).data
            digest.update(data)
            file.write(data)
            release(array)
    return StoredFile(name, layout.size, digest.hexdigest(), tensors)


def map_tensors(folder: Path, stored: StoredFile) -> dict[str, AnyArray]:
    """Map the tensors of a file as views of one memory map; only the header is read."""
    with _open_stored(folder, stored) as file:
        start = check_header(file, folder / stored.file, stored)
        memory = np.memmap(file, dtype=np.uint8, mode="r")
    views = {}
    for name, (begin, end) in place_tensors(stored.tensors).items():
        tensor = stored.tensors[name]
        flat = np.asarray(memory[start + begin : start + end])
        views[name] = flat.view(tensor.dtype).reshape(tensor.shape)
    return views


def check_file(folder: Path, stored: StoredFile) -> None:
    """Read a file whole, and raise unless every byte is as it was written."""
    path = folder / stored.file
    with _open_stored(folder, stored) as file:
        check_header(file, path, stored)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != stored.sha256:
        raise RunError(f"{path} is damaged: its SHA-256 is not the one in run.json; restore it or write it again")


def check_header(file: BinaryIO, path: Path, stored: StoredFile) -> int:
    """Raise unless the header of a file agrees with the manifest; return where its data begin."""
    size = os.fstat(file.fileno()).st_size
    if size != stored.bytes:
        raise RunError(f"{path} has {size} bytes, expected {stored.bytes}; it is damaged, write it again")
    length = int.from_bytes(file.read(8), "little")
    text = file.read(length) if length <= min(size, HEADER_BYTES) else b""
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise RunError(f"{path} has a damaged header; write it again") from error
    expected = describe_tensors(stored.tensors, place_tensors(stored.tensors))
    data = sum(tensor.bytes for tensor in stored.tensors.values())
    if header != expected or size != 8 + length + data:
        raise RunError(f"{path} does not hold the tensors that run.json lists; it is damaged, write it again")
    return 8 + length


def _open_stored(folder: Path, stored: StoredFile) -> BufferedReader:
    path = folder / stored.file
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing, though run.json names it; restore it or write it again") from error


# Arrays of outputs as a file holds them


def encode_outputs(outputs: Outputs) -> dict[str, AnyArray]:
    """Return the arrays of outputs as a file holds them, with string ids and groups as padded UTF-8 bytes."""
    arrays = outputs.flat()
    for key in NAMES:
        if key in arrays and arrays[key].dtype.kind == "S":
            arrays[key] = _encode_strings(arrays[key])
    return arrays


def decode_strings(arrays: dict[str, AnyArray]) -> None:
    """Turn the bytes of string ids and groups, in place, into strings of NumPy."""
    for key in NAMES:
        if key in arrays and arrays[key].dtype == np.uint8:
            arrays[key] = arrays[key].view(f"S{arrays[key].shape[1]}")[:, 0]


def _encode_strings(ids: AnyArray) -> AnyArray:
    ids = np.ascontiguousarray(ids, dtype=f"S{max(1, ids.dtype.itemsize)}")
    return ids.view(np.uint8).reshape(len(ids), ids.dtype.itemsize)


def encode_rows(array: AnyArray, label: str, tensor: Tensor) -> AnyArray:
    """Convert one field of a block to the declared dtype; values that do not fit are an error."""
    if tensor.code == "U8":
        if array.dtype.kind != "S" or array.dtype.itemsize > tensor.columns:
            raise InvalidInput(f"{label} must be strings of at most {tensor.columns} bytes, got {array.dtype}")
        return _encode_strings(array.astype(f"S{tensor.columns}"))
    if array.dtype.kind == "S":
        raise InvalidInput(f"{label} was declared int64 but holds strings; declare it as S<bytes>")
    if array.shape[1:] != tensor.shape[1:]:
        raise InvalidInput(f"{label} must have rows of shape {tensor.shape[1:]}, got {array.shape[1:]}")
    if array.dtype == tensor.dtype:
        return array
    with np.errstate(over="ignore"):
        stored = array.astype(tensor.dtype)
    overflow = np.isinf(stored) & np.isfinite(array)
    if overflow.any():
        row = int(np.argwhere(overflow)[0][0])
        raise InvalidInput(f"{label} does not fit {tensor.dtype} in row {row}; declare a wider dtype")
    return stored


# Fields that a writer declares

Fields = Mapping[str, tuple[npt.DTypeLike, tuple[int, ...]]]  # name -> dtype and shape of one row


def check_fields(fields: Fields, rows: int, pass_count: int | None) -> Tensors:
    """Validate the fields of a writer, and return the tensors that hold them on disk."""
    if "logits" not in fields:
        raise InvalidInput(f"fields must hold logits, got {', '.join(fields) or 'nothing'}")
    tensors: Tensors = {}
    for name, (dtype, shape) in fields.items():
        is_known = name in KNOWN_KEYS or re.fullmatch(r"(layers|learned)/.+", name, re.DOTALL)
        if not is_known or name == "passes.count":
            raise InvalidInput(f"fields: {UnknownName.of('field', name, set(KNOWN_KEYS) - {'passes.count'})}")
        tensors[name] = _tensor_of_field(name, dtype, shape, rows)
    _check_passes(tensors, pass_count)
    return tensors


def _tensor_of_field(name: str, dtype: npt.DTypeLike, shape: tuple[int, ...], rows: int) -> Tensor:
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise InvalidInput(f"fields[{name!r}] must have a dtype of NumPy, got {dtype!r:.80}") from error
    row_shape = tuple(whole(size, f"fields[{name!r}]", 1) for size in shape)
    if name in NAMES and kind.kind == "S" and kind.itemsize:  # strings are stored as their bytes
        kind, row_shape = np.dtype(np.uint8), (kind.itemsize, *row_shape)
    if name in NAMES:
        is_allowed, allowed = kind in (np.int64, np.uint8), "int64 or S<bytes>"
    elif name in ("labels", "predictions"):
        is_allowed, allowed = kind == np.int64, "int64"
    else:
        is_allowed, allowed = kind in FLOATS, "float16 or float32 or float64"
    if not is_allowed:
        raise InvalidInput(f"fields[{name!r}] must have dtype {allowed}, got {np.dtype(dtype)}")
    if len(row_shape) != _row_dimensions(name, kind):
        raise InvalidInput(f"fields[{name!r}] must give the shape of one row, got {tuple(shape)}")
    return Tensor(CODES[kind], (rows, *row_shape))


def _row_dimensions(name: str, kind: AnyDtype) -> int:
    """Return the number of axes that one row of an array has."""
    if name in ("labels", "predictions", "passes.mean_entropy") or name.startswith("learned/"):
        return 0
    if name in NAMES:
        return int(kind == np.uint8)
    return 2 if name == "passes" else 1


def _check_passes(tensors: Tensors, pass_count: int | None) -> None:
    """Raise unless averages of passes are complete, counted, and have the classes of the logits."""
    means = {f"passes.{name}" for name in PASS_ARRAYS}
    declared = means & tensors.keys()
    if declared and (declared != means or pass_count is None or "passes" in tensors):
        raise InvalidInput(
            f"fields: means of passes need all of {', '.join(sorted(means))}, pass_count=, and no passes, "
            f"got {', '.join(sorted(declared))} and pass_count={pass_count}"
        )
    if pass_count is not None:
        whole(pass_count, "pass_count", 1)
        if not declared:
            raise InvalidInput("pass_count goes with means of passes, and fields hold none; leave it out")
    classes = tensors["logits"].columns
    for name in ("passes", "passes.mean_prob", "passes.mean_logits", "passes.prob_std"):
        if name in tensors and tensors[name].columns != classes:
            raise InvalidInput(f"fields[{name!r}] has {tensors[name].columns} classes but logits has {classes}")
