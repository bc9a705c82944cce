"""Tar files of image files and labels, the layout of WebDataset: an index of their headers, then reads by offset.

A sample is the members whose paths agree up to the first dot of the file name: ``000001.jpg`` with ``000001.cls`` or
``000001.json``. Nothing is unpacked and nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from twofold._checks import Labels
from twofold.errors import InvalidInput, UnreadableImage
from twofold.nn.data.decoding import decode_file
from twofold.nn.data.image_files import IMAGE_SUFFIXES
from twofold.nn.rows import Pixels

MOST_IMAGE_BYTES = 256 << 20  # of one image file
MOST_LABEL_BYTES = 1 << 20  # of one label, or of the JSON that holds it
BLOCK = 512  # bytes; a tar file consists of such blocks
MOST_SHARDS = 100_000
PICKLES = frozenset({"pyd", "pickle", "pkl", "pth", "pt"})
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class _Member(NamedTuple):
    """One file in a tar file: the sample it belongs to, its kind, and where its bytes are."""

    key: str
    suffix: str
    offset: int
    size: int


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """Hold where the samples of tar files are.

    Parameters
    ----------
    paths : list of Path
        The tar files.
    shards : ndarray of int32, shape (N,)
        Number of the tar file of each sample.
    offsets, sizes : ndarray of int64, shape (N,)
        Where the image file of each sample begins in its tar file, and its bytes.
    keys : list of str
        Name of each sample.
    labels : ndarray of int64, shape (N,)
        Class numbers, -1 where a sample has no label.
    """

    paths: list[Path]
    shards: npt.NDArray[np.int32]
    offsets: Labels
    sizes: Labels
    keys: list[str]
    labels: Labels


def list_shards(pattern: str) -> list[Path]:
    """List the tar files that a text names.

    Parameters
    ----------
    pattern : str
        A tar file, a folder of tar files, a glob such as ``train-*.tar``, or a range such as
        ``train-{0000..0009}.tar``, both ends included.

    Returns
    -------
    list of Path
        The files; those of a folder or glob in the order of their names.

    Raises
    ------
    InvalidInput
        If a file does not exist, or there are none.

    Examples
    --------
    >>> list_shards("gone-{08..10}.tar")
    Traceback (most recent call last):
    ...
    twofold.errors.InvalidInput: gone-08.tar: there is no such tar file
    """
    if RANGE.search(pattern):
        paths = [Path(name) for name in _expand_ranges(pattern)]
    elif Path(pattern).is_dir():
        paths = sorted(Path(pattern).glob("*.tar"))
    elif any(sign in pattern for sign in "*?["):
        paths = sorted(Path(name) for name in glob(pattern))
    else:
        paths = [Path(pattern)]
    if not paths:
        raise InvalidInput(f"{pattern}: there are no tar files")
    for path in paths:
        if not path.is_file():
            raise InvalidInput(f"{path}: there is no such tar file")
    return paths


def _expand_ranges(pattern: str) -> Iterator[str]:
    """Write out every ``{first..last}``; the numbers keep the digits of the first."""
    found = RANGE.search(pattern)
    if found is None:
        yield pattern
        return
    first, last = int(found[1]), int(found[2])
    if last < first or last - first >= MOST_SHARDS:
        raise InvalidInput(f"{found[0]} must go upwards, over at most {MOST_SHARDS} shards")
    for number in range(first, last + 1):
        yield from _expand_ranges(pattern[: found.start()] + str(number).zfill(len(found[1])) + pattern[found.end() :])


def index_shards(paths: Sequence[Path], *, label: str = "label") -> ShardIndex:
    """Read the headers and labels of tar files.

    Parameters
    ----------
    paths : sequence of Path
        The tar files, not compressed.
    label : str, default="label"
        The key of the class number in ``.json`` members.

    Returns
    -------
    ShardIndex
        Where the samples are.

    Raises
    ------
    InvalidInput
        If a file is not a tar file or is truncated; if it holds links, devices, pickles, paths outside or members that
        are too large; if a sample has two images, or a label that is not a class number; or if there are no images.
    """
    shards: list[int] = []
    offsets: list[int] = []
    sizes: list[int] = []
    keys: list[str] = []
    labels: list[int] = []
    for number, path in enumerate(paths):
        with open(path, "rb") as file:
            for sample in _group_samples(_list_members(path), path):
                image = _find_image(sample, path)
                if image is None:
                    continue
                shards.append(number)
                offsets.append(image.offset)
                sizes.append(image.size)
                keys.append(image.key)
                labels.append(_read_label(sample, file.fileno(), path, label))
    if not keys:
        raise InvalidInput(f"{paths[0]} and {len(paths) - 1} more hold no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return ShardIndex(
        list(paths),
        np.array(shards, dtype=np.int32),
        np.array(offsets, dtype=np.int64),
        np.array(sizes, dtype=np.int64),
        keys,
        np.array(labels, dtype=np.int64),
    )


def _list_members(path: Path) -> Iterator[_Member]:
    """Read the headers of a tar file, and check that each member is a plain file inside it."""
    total = path.stat().st_size
    end = 0
    try:
        with tarfile.open(path, "r:") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep all of them
                end = member.offset_data + member.size
                if end > total:
                    raise InvalidInput(f"{path} is truncated: {member.name} ends after the file")
                if member.isdir():
                    continue
                _check_member(member, path)
                folder, name = os.path.split(member.name)
                stem, _, suffix = name.partition(".")
                yield _Member(os.path.join(folder, stem), suffix.lower(), member.offset_data, member.size)
    except tarfile.TarError as error:
        raise InvalidInput(f"{path} is not a readable tar file (compressed ones are not read): {error}") from error
    with open(path, "rb") as file:
        file.seek(-(-end // BLOCK) * BLOCK)
        if file.read(BLOCK) != bytes(BLOCK):  # a block of zeros ends every tar file
            raise InvalidInput(f"{path} is truncated or damaged behind byte {end}")


def _check_member(member: tarfile.TarInfo, path: Path) -> None:
    """Raise unless a member is a plain file below the archive's own root, small enough, and not a pickle."""
    shown = f"{path}: {member.name[:100]!r}"
    if not member.isreg() or member.issparse():
        raise InvalidInput(f"{shown} is a link, a device or another special file; shards hold plain files only")
    parts = member.name.replace("\\", "/").split("/")
    if member.name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise InvalidInput(f"{shown} is a path outside the archive")
    endings = member.name.lower().split(".")[1:]
    if PICKLES.intersection(endings):
        raise InvalidInput(f"{shown} is a pickle, which could run code; store labels as .cls or .json")
    if member.size > MOST_IMAGE_BYTES:
        raise InvalidInput(f"{shown} has {member.size} bytes; at most {MOST_IMAGE_BYTES} are read")


def _group_samples(members: Iterator[_Member], path: Path) -> Iterator[list[_Member]]:
    """Group members of the same key, which follow one another."""
    seen: set[str] = set()
    sample: list[_Member] = []
    for member in members:
        if sample and member.key != sample[0].key:
            yield sample
            sample = []
        if not sample:
            if member.key in seen:
                raise InvalidInput(f"{path}: the files of {member.key!r} do not follow one another")
            seen.add(member.key)
        sample.append(member)
    if sample:
        yield sample


def _find_image(sample: Sequence[_Member], path: Path) -> _Member | None:
    """Find the one image of a sample; a sample without one is metadata."""
    images = [member for member in sample if f".{member.suffix.rpartition('.')[2]}" in IMAGE_SUFFIXES]
    if len(images) > 1:
        raise InvalidInput(f"{path}: {images[0].key!r} has {len(images)} images; a sample has one")
    return images[0] if images else None


def _read_label(sample: Sequence[_Member], descriptor: int, path: Path, label: str) -> int:
    """Read the class number of a sample from its .cls or .json member; -1 without one."""
    for member in sample:
        if member.suffix not in ("cls", "json"):
            continue
        where = f"{path}: {member.key}.{member.suffix}"
        if member.size > MOST_LABEL_BYTES:
            raise InvalidInput(f"{where} has {member.size} bytes; a label has at most {MOST_LABEL_BYTES}")
        text = os.pread(descriptor, member.size, member.offset).decode("utf-8", "replace").strip()
        if member.suffix == "json":
            text = _find_json_label(text, label, where)
        if not re.fullmatch(r"-1|[0-9]{1,9}", text):
            raise InvalidInput(f"{where}: the label must be a class number, got {text[:40]!r}")
        return int(text)
    return -1


def _find_json_label(text: str, label: str, where: str) -> str:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where} is not JSON: {error}") from error
    if not isinstance(content, dict) or label not in content:
        raise InvalidInput(f"{where} has no key {label!r}; name the key of the class number with label=")
    return str(content[label])


@dataclass(frozen=True, eq=False)
class ShardSource:
    """Read image files out of tar files by their offset; processes may share it.

    Parameters
    ----------
    index : ShardIndex
        Where the samples are.
    """

    index: ShardIndex
    _descriptors: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.index.keys)

    def __getstate__(self) -> dict[str, object]:
        return {"index": self.index, "_descriptors": {}}  # open files belong to one process

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def raw(self, rows: Labels) -> list[Pixels]:
        """Decode the images of some rows.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Row numbers in 0..N-1.

        Returns
        -------
        list of ndarray of uint8, shape (H, W, 3)
            The images, each at its own size.

        Raises
        ------
        UnreadableImage
            If an image cannot be decoded, or has more than 8 bits a channel.
        """
        return [decode_file(self.encoded(row), self.where(row)) for row in rows.tolist()]

    def encoded(self, row: int) -> BytesIO:
        """Read the image file of a row.

        Parameters
        ----------
        row : int
            Row number.

        Returns
        -------
        BytesIO
            Its bytes.

        Raises
        ------
        UnreadableImage
            If the tar file is gone, or shorter than it was when it was indexed.
        """
        shard = int(self.index.shards[row])
        size = int(self.index.sizes[row])
        try:
            if shard not in self._descriptors:
                self._descriptors[shard] = os.open(self.index.paths[shard], os.O_RDONLY)
            content = os.pread(self._descriptors[shard], size, int(self.index.offsets[row]))
        except OSError as error:
            raise UnreadableImage(f"{self.where(row)} cannot be read: {error}") from error
        if len(content) != size:
            raise UnreadableImage(f"{self.where(row)} cannot be read: the tar file has become shorter")
        return BytesIO(content)

    def where(self, row: int) -> str:
        """Name the tar file and the sample of a row.

        Parameters
        ----------
        row : int
            Row number.

        Returns
        -------
        str
            The name for an error message.
        """
        return f"{self.index.paths[int(self.index.shards[row])]}: {self.index.keys[row]}"
