"""Readers of data sets that are stored as arrays: CIFAR, its corruptions, SVHN, IDX, sheets, .npz and .npy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from twofold._checks import whole
from twofold.errors import InvalidInput, UnknownName
from twofold.nn import corruptions
from twofold.nn.data.archives import open_npy, read_idx, read_svhn
from twofold.nn.data.cifar import CifarLabels, CifarSplit, read_cifar
from twofold.nn.data.classes import class_list, superclasses
from twofold.nn.data.decoding import decode_file
from twofold.nn.data.image_files import check_equal_counts, check_path
from twofold.nn.data.images import Images
from twofold.nn.data.readers.registry import reader
from twofold.nn.data.sources import ArraySource, StackedSource
from twofold.nn.data.views import super_cifar100
from twofold.nn.npz import AnyArray, NpzArchive
from twofold.nn.rows import Pixels

ShiftPart: TypeAlias = Literal["source", "shifted"]


def _select_shift_part(images: Images, part: ShiftPart | None) -> Images:
    """Select one side of the sub-class shift of FD-Shifts, if one is asked for."""
    if part is None:
        return images
    source, shifted = super_cifar100(images)
    selected = shifted
    if part == "source":
        selected = source
    return replace(selected, name=f"{images.name}-{part}")


def _open_npz(path: Path) -> NpzArchive:
    return NpzArchive.open(check_path(path, ".npz file", folder=False))


def _find_beside(name: str, file: Path) -> Path:
    """Find a second file: by its own path, or else in the folder of the first, where it may not exist."""
    if Path(name).exists():
        return Path(name)
    return file.parent / name


# --- CIFAR ----------------------------------------------------------------------------------------------------------


@reader("cifar10")
def _read_cifar10(path: str, *, split: CifarSplit = "test") -> Images:
    """Read CIFAR-10, binary or python layout, from its folder or its .tar.gz."""
    pixels, labels = read_cifar(Path(path), "cifar10", split, "fine")
    return Images.of(pixels, labels, class_names=class_list("cifar10"), name=f"cifar10-{split}")


@reader("cifar100")
def _read_cifar100(
    path: str,
    *,
    split: Literal["train", "test", "all"] = "test",
    labels: CifarLabels = "fine",
    part: ShiftPart | None = None,
) -> Images:
    """Read CIFAR-100 with its fine or coarse labels, binary or python layout, from its folder or its .tar.gz.

    ``part`` is one side of the sub-class shift of FD-Shifts, labelled by 19 super-classes; ``all`` is train, then test.
    """
    if part is not None and labels == "coarse":
        raise InvalidInput("cifar100: part= makes super-classes of the fine labels; leave labels= out")
    if split == "all":
        train_pixels, train_labels = read_cifar(Path(path), "cifar100", "train", labels)
        test_pixels, test_labels = read_cifar(Path(path), "cifar100", "test", labels)
        pixels = np.concatenate([train_pixels, test_pixels])
        truth = np.concatenate([train_labels, test_labels])
    else:
        pixels, truth = read_cifar(Path(path), "cifar100", split, labels)
    names = class_list("cifar100")
    if labels == "coarse":
        names = tuple(superclasses())
    images = Images.of(pixels, truth, class_names=names, name=f"cifar100-{split}")
    return _select_shift_part(images, part)


@reader("cifar10c")
def _read_cifar10c(path: str, *, type: str, level: int | None = None) -> Images:  # noqa: A002  # the key of the grammar
    """Read CIFAR-10-C: TYPE.npy with five blocks by level, and labels.npy.

    Without a level all five are read; ``type=all`` reads the 15 corruptions.
    """
    return _read_corruptions(Path(path), type, level, "cifar10")


@reader("cifar100c")
def _read_cifar100c(path: str, *, type: str, level: int | None = None) -> Images:  # noqa: A002
    """Read CIFAR-100-C: as cifar10c, with the class names of CIFAR-100."""
    return _read_corruptions(Path(path), type, level, "cifar100")


def _read_corruptions(folder: Path, name: str, level: int | None, clean_set: str) -> Images:
    """Read one corruption, or with the name ``all`` all of them one after the other."""
    check_path(folder, "folder of corruption arrays", folder=True)
    stored = sorted(file.stem for file in folder.glob("*.npy") if file.stem != "labels")
    if not stored:
        raise InvalidInput(f"{folder} holds no corruption arrays such as fog.npy")
    names: Sequence[str] = [name]
    if name == "all":
        names = corruptions.NAMES
    for one in names:
        if one not in stored:
            raise UnknownName.of(f"corruption in {folder}", one, stored)
    if level is not None and not 1 <= level <= 5:
        raise InvalidInput(f"level must be 1 to 5, got {level}")
    parts = tuple(_read_corruption(folder, one, level, clean_set) for one in names)
    if len(parts) == 1:
        return parts[0]
    counts = dict(zip(names, map(len, parts), strict=True))
    check_equal_counts(counts, f"{folder}: the corruption arrays")
    return Images.of(
        StackedSource(parts),
        np.concatenate([part.labels for part in parts]),
        ids=np.concatenate([part.ids for part in parts]),
        class_names=class_list(clean_set),
        name=_name_corruption(clean_set, "all", level),
    )


def _read_corruption(folder: Path, name: str, level: int | None, clean_set: str) -> Images:
    file = folder / f"{name}.npy"
    source = ArraySource.of(open_npy(file), str(file))
    labels = np.array(open_npy(folder / "labels.npy"))
    block_rows, rest = divmod(len(source), 5)
    if rest:
        raise InvalidInput(f"{file} must hold five blocks of equal size, got {len(source)} images")
    if labels.ndim == 1 and len(labels) == block_rows:
        labels = np.tile(labels, 5)
    ids = [f"{name}/{1 + row // block_rows}/{row % block_rows}" for row in range(len(source))]
    images = Images.of(
        source, labels, ids=ids, class_names=class_list(clean_set), name=_name_corruption(clean_set, name, level)
    )
    if level is not None:
        images = images[(level - 1) * block_rows : level * block_rows]
    return images


def _name_corruption(clean_set: str, name: str, level: int | None) -> str:
    if level is None:
        return f"{clean_set}c-{name}"
    return f"{clean_set}c-{name}-{level}"


# --- sheets ---------------------------------------------------------------------------------------------------------


@reader("sheet")
def _read_sheet(
    path: str,
    *,
    labels: str | None = None,
    key: str | None = None,
    names: str | None = None,
    ids: str | None = None,
    tile: int = 32,
    columns: int = 100,
    part: ShiftPart | None = None,
) -> Images:
    """Read one large image of square tiles, row by row; labels in an .npz beside it under the file's name or ``key``.

    Class names are the array ``names``, or else the array names_X or wnids_X where X is a word of the key. ``part``: as
    of cifar100.
    """
    file = Path(path)
    tiles = _cut_tiles(file, whole(tile, "tile", 1), whole(columns, "columns", 1))
    if labels is None:
        if part is not None:
            raise InvalidInput("sheet: part= needs labels=")
        return Images.of(tiles, name=file.stem)
    archive = _open_npz(_find_beside(labels, file))
    key = key or file.stem
    truth = archive.read(key)
    if not len(tiles) - columns < len(truth) <= len(tiles):
        raise InvalidInput(f"{file} has {len(tiles)} tiles but {archive.path} has {len(truth)} labels under {key!r}")
    names = names or _find_class_names(archive, key)
    row_ids = class_names = None
    if ids is not None:
        row_ids = archive.read(ids)
    if names is not None:
        class_names = archive.read(names).tolist()
    images = Images.of(tiles[: len(truth)], truth, ids=row_ids, class_names=class_names, name=file.stem)
    return _select_shift_part(images, part)


def _cut_tiles(file: Path, side: int, columns: int) -> Pixels:
    """Cut a sheet into its square tiles, row by row."""
    sheet = decode_file(check_path(file, "sheet", folder=False))
    height, width = sheet.shape[:2]
    if width != columns * side or height % side:
        raise InvalidInput(
            f"{file} is {height}x{width}; a sheet of {columns} columns of {side} is {columns * side} wide"
        )
    grid = sheet.reshape(height // side, side, columns, side, 3)
    return grid.transpose(0, 2, 1, 3, 4).reshape(-1, side, side, 3)


def _find_class_names(archive: NpzArchive, key: str) -> str | None:
    """Find the array of class names that belongs to the labels of a key."""
    for word in key.split("_"):
        for name in (f"names_{word}", f"wnids_{word}"):
            if name in archive.names:
                return name
    return None


# --- other arrays ---------------------------------------------------------------------------------------------------


@reader("svhn")
def _read_svhn(path: str) -> Images:
    """Read SVHN, cropped digits: a .mat file; its label 10 is the digit 0."""
    pixels, labels = read_svhn(Path(path))
    return Images.of(pixels, labels, class_names=list("0123456789"), name=Path(path).stem)


@reader("idx")
def _read_idx(path: str, *, labels: str | None = None) -> Images:
    """Read IDX files as of MNIST, Fashion-MNIST and KMNIST, gzipped or not; grey becomes RGB.

    Without ``labels`` the file named alike (images-idx3 to labels-idx1) is taken where it exists.
    """
    file = Path(path)
    pixels = read_idx(file, ndim=3)
    label_file = None
    if labels:
        label_file = _find_beside(labels, file)
    else:
        twin = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
        if twin != file and twin.is_file():
            label_file = twin
    truth = None
    if label_file is not None:
        truth = read_idx(label_file, ndim=1)
    return Images.of(pixels, truth, name=file.name.partition(".")[0])


@reader("npz")
def _read_npz(
    path: str,
    *,
    images: str = "images",
    labels: str | None = None,
    ids: str | None = None,
    names: str | None = None,
    rows: str | None = None,
) -> Images:
    """Read arrays of an .npz file; ``images``, ``labels``, ``ids``, ``names`` and ``rows`` (a selection) name them.

    Arrays called labels, ids and class_names are taken without being named.
    """
    archive = _open_npz(Path(path))
    stored_names = _read_optional(archive, names, "class_names")
    class_names = None
    if stored_names is not None:
        class_names = stored_names.tolist()
    result = Images.of(
        archive.read(images),
        _read_optional(archive, labels, "labels"),
        ids=_read_optional(archive, ids, "ids"),
        class_names=class_names,
        name=Path(path).stem,
    )
    if rows is not None:
        result = result[archive.read(rows).tolist()]
    return result


def _read_optional(archive: NpzArchive, name: str | None, usual_name: str) -> AnyArray | None:
    """Read an array by its name or, where none is named, by its usual name if the archive has it."""
    if name is None and usual_name not in archive.names:
        return None
    return archive.read(name or usual_name)


@reader("npy")
def _read_npy(path: str, *, labels: str | None = None) -> Images:
    """Read a memory-mapped .npy array of images, labels in another."""
    file = Path(path)
    source = ArraySource.of(open_npy(file), str(file))
    truth = None
    if labels is not None:
        truth = open_npy(_find_beside(labels, file))
    return Images.of(source, truth, name=file.stem)
