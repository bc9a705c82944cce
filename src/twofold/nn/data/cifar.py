"""Read CIFAR-10 and CIFAR-100 in the binary and in the python layout, from their folder or their archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from twofold._checks import Labels
from twofold.errors import InvalidInput
from twofold.nn.data.archives import ARCHIVE_DAMAGE, read_decompressed
from twofold.nn.data.image_files import check_equal_counts, check_path
from twofold.nn.data.pickles import plain_pickle
from twofold.nn.rows import Pixels

CifarKind: TypeAlias = Literal["cifar10", "cifar100"]
CifarSplit: TypeAlias = Literal["train", "test"]
CifarLabels: TypeAlias = Literal["fine", "coarse"]

PIXEL_BYTES = 3 * 32 * 32  # of an image


@dataclass(frozen=True)
class CifarLayout:
    """Describe the file names and label fields of CIFAR-10 or CIFAR-100 in one of their two layouts.

    Parameters
    ----------
    folder : str
        Folder that the published archive unpacks to.
    train : tuple of str
        File names of the training batches, in order.
    test : tuple of str
        File names of the test batches.
    labels : tuple of str
        Binary layout: a name for each label byte before an image. Python layout: the keys of the label lists.
    binary : bool
        Whether this is the binary layout; otherwise batches are pickles.

    Examples
    --------
    >>> LAYOUTS["cifar100"][0].labels
    ('coarse', 'fine')
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: tuple[str, ...]  # binary: the label bytes before each image; python: the keys of the lists
    binary: bool

    def files(self, split: CifarSplit) -> tuple[str, ...]:
        """Return the file names of a split.

        Parameters
        ----------
        split : {"train", "test"}
            Which part.

        Returns
        -------
        tuple of str
            File names of its batches, in order.
        """
        if split == "train":
            return self.train
        return self.test

    def label_field(self, labels: CifarLabels) -> str:
        """Return the name of the field with these labels.

        Parameters
        ----------
        labels : {"fine", "coarse"}
            The classes, or the super-classes of CIFAR-100.

        Returns
        -------
        str
            One of ``labels`` of the layout.
        """
        if self.labels == ("labels",):
            return "labels"
        if self.binary:
            return labels
        return f"{labels}_labels"


@dataclass(frozen=True, eq=False)
class CifarBatch:
    """Hold the content of one file of CIFAR.

    Parameters
    ----------
    name : str
        Path of the file, for error messages.
    pixels : ndarray of uint8, shape (N, 3, 32, 32)
        The images.
    labels : dict of str to ndarray of int64, shape (N,)
        Labels by field.
    """

    name: str
    pixels: Pixels
    labels: dict[str, Labels]


LAYOUTS = {
    "cifar10": (
        CifarLayout(
            "cifar-10-batches-bin",
            tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            ("test_batch.bin",),
            ("fine",),
            binary=True,
        ),
        CifarLayout(
            "cifar-10-batches-py",
            tuple(f"data_batch_{i}" for i in range(1, 6)),
            ("test_batch",),
            ("labels",),
            binary=False,
        ),
    ),
    "cifar100": (
        CifarLayout("cifar-100-binary", ("train.bin",), ("test.bin",), ("coarse", "fine"), binary=True),
        CifarLayout("cifar-100-python", ("train",), ("test",), ("coarse_labels", "fine_labels"), binary=False),
    ),
}
CLASSES = {("cifar10", "fine"): 10, ("cifar100", "fine"): 100, ("cifar100", "coarse"): 20}


def read_cifar(path: Path, kind: CifarKind, split: CifarSplit, labels: CifarLabels) -> tuple[Pixels, Labels]:
    """Read images and labels of CIFAR-10 or CIFAR-100.

    Parameters
    ----------
    path : Path
        A folder (the one with the batches, or its parent) or the published .tar.gz, in the binary or the python layout.
        Pickles of the python layout are read as plain data, without running them.
    kind : {"cifar10", "cifar100"}
        Which of the two data sets.
    split : {"train", "test"}
        Which part.
    labels : {"fine", "coarse"}
        The classes, or the 20 super-classes of CIFAR-100.

    Returns
    -------
    images : ndarray of uint8, shape (N, 3, 32, 32)
        The images, channels first, in stored order.
    labels : ndarray of int64, shape (N,)
        Their class numbers.

    Raises
    ------
    InvalidInput
        If files are missing, damaged or truncated, differ in length, or hold labels out of range.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "test_batch.bin").write_bytes(bytes([7]) + bytes(3072))  # one black image of class 7
    ...     images, labels = read_cifar(Path(folder), "cifar10", "test", "fine")
    >>> images.shape, labels
    ((1, 3, 32, 32), array([7]))
    """
    layout, files = _find_batches(check_path(path, "CIFAR folder or archive"), kind, split)
    batches = []
    for name, data in files.items():
        if layout.binary:
            batches.append(_read_binary_batch(name, data, layout))
        else:
            batches.append(_read_python_batch(name, data, layout))
    counts = {Path(batch.name).name: len(batch.pixels) for batch in batches}
    check_equal_counts(counts, f"{path}: the training batches")
    field = layout.label_field(labels)
    truth = np.concatenate([batch.labels[field] for batch in batches])
    classes = CLASSES[kind, labels]
    is_outside = (truth < 0) | (truth >= classes)
    if is_outside.any():
        row = int(is_outside.argmax())
        raise InvalidInput(
            f"{path}: {labels} labels must be in 0..{classes - 1}, got {truth[row]} in row {row} of {split}"
        )
    return np.concatenate([batch.pixels for batch in batches]), truth


def _find_batches(path: Path, kind: CifarKind, split: CifarSplit) -> tuple[CifarLayout, dict[str, bytes]]:
    """Find the layout at a path and read the bytes of its batches, by name."""
    if path.is_file():
        return _find_batches_in_archive(path, kind, split)
    for layout in LAYOUTS[kind]:
        for folder in (path, path / layout.folder):
            present, missing = [], []
            for name in layout.files(split):
                file = folder / name
                if file.is_file():
                    present.append(file)
                else:
                    missing.append(file)
            if not missing:
                return layout, {str(file): file.read_bytes() for file in present}
            if present:
                raise InvalidInput(f"{missing[0]}: this batch is missing, others are there")
    first_names = " or ".join(layout.files(split)[0] for layout in LAYOUTS[kind])
    raise InvalidInput(f"{path}: no {kind} {split} files here (looked for {first_names})")


def _find_batches_in_archive(path: Path, kind: CifarKind, split: CifarSplit) -> tuple[CifarLayout, dict[str, bytes]]:
    """Find the layout in a .tar or .tar.gz file and read the bytes of its batches, by name."""
    data = io.BytesIO(read_decompressed(path))  # gzip's own checksum covers the whole archive
    try:
        with tarfile.open(fileobj=data) as archive:
            members = {}
            for member in archive.getmembers():
                if member.isfile():
                    members[Path(member.name).name] = member
            for layout in LAYOUTS[kind]:
                if set(layout.files(split)) <= set(members):
                    return layout, _extract(archive, members, layout.files(split), path)
    except ARCHIVE_DAMAGE as error:
        raise InvalidInput(f"{path} is a damaged or truncated archive: {error}") from error
    raise InvalidInput(f"{path}: this archive has no {kind} {split} batches")


def _extract(
    archive: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], names: Iterable[str], path: Path
) -> dict[str, bytes]:
    """Read members of an archive, named for error messages by the archive and their own name."""
    files = {}
    for name in names:
        stream = archive.extractfile(members[name])
        assert stream is not None  # a regular file
        files[f"{path}/{name}"] = stream.read()
    return files


def _read_binary_batch(name: str, data: bytes, layout: CifarLayout) -> CifarBatch:
    """Read records of label bytes and 3 x 32 x 32 pixels."""
    label_bytes = len(layout.labels)
    record_bytes = label_bytes + PIXEL_BYTES
    if not data or len(data) % record_bytes:
        raise InvalidInput(
            f"{name} is truncated or not such a batch: {len(data)} bytes, not a multiple of {record_bytes}"
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, record_bytes)
    labels = {field: records[:, i].astype(np.int64) for i, field in enumerate(layout.labels)}
    return CifarBatch(name, records[:, label_bytes:].reshape(-1, 3, 32, 32), labels)


def _read_python_batch(name: str, data: bytes, layout: CifarLayout) -> CifarBatch:
    """Read a pickled dictionary of data (N, 3072) and lists of labels."""
    content = plain_pickle(data, name)
    batch: dict[object, object] = {}
    if isinstance(content, dict):
        for key, value in content.items():
            if isinstance(key, bytes):  # as Python 2 wrote it
                batch[key.decode("latin-1")] = value
            else:
                batch[key] = value
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray):
        raise InvalidInput(f"{name}: 'data' must be uint8 of shape (N, 3072), got {type(pixels).__name__}")
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXEL_BYTES:
        raise InvalidInput(f"{name}: 'data' must be uint8 of shape (N, 3072), got {pixels.dtype} of {pixels.shape}")
    labels = {field: _check_label_list(batch.get(field), len(pixels), field, name) for field in layout.labels}
    return CifarBatch(name, pixels.reshape(-1, 3, 32, 32), labels)


def _check_label_list(values: object, count: int, field: str, name: str) -> Labels:
    """Return the labels of a python batch as an array."""
    if not isinstance(values, list | np.ndarray) or len(values) != count:
        raise InvalidInput(f"{name}: {field!r} must list {count} labels")
    for value in values:
        if not isinstance(value, int | np.integer) or abs(int(value)) >= 2**63:
            raise InvalidInput(f"{name}: {field!r} must hold integers")
    return np.array(list(map(int, values)), dtype=np.int64)
