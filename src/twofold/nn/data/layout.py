"""Which files and folders a data set consists of, and whether they are there, complete and unchanged.

MD5 sums are those of the makers' pages (CIFAR), torchvision (CIFAR, SVHN) and Zenodo's archives as others list their
files (CIFAR-10-C, CIFAR-100-C). Where nothing is published, nothing is compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from os.path import expanduser
from pathlib import Path
from typing import Any

from twofold._data_spec import DataSpec
from twofold._files import open_regular
from twofold.errors import TwofoldError
from twofold.nn import corruptions
from twofold.nn.data.archives import open_npy
from twofold.nn.data.cifar import LAYOUTS, PIXEL_BYTES, CifarLayout
from twofold.nn.data.image_files import list_image_files

SELECTING = frozenset({"rows", "limit", "sample", "classes", "without", "corrupt"})  # keys that change how many rows
READ_BYTES = 1 << 20  # at once, for a checksum


@dataclass(frozen=True)
class ExpectedFile:
    """Describe a file or folder that a data set needs.

    Parameters
    ----------
    path : Path
        Where it must be.
    is_folder : bool, default=False
        Whether it is a folder.
    count : int, default=0
        How many images, labels or lines it holds; 0 where that is not known.
    unit : str, default="images"
        What is counted.
    md5 : str, default=""
        The published MD5 sum in hexadecimal digits, if there is one.
    note : str, default=""
        What else may stand in its place.
    counter : callable, optional
        Function from the path to the number it holds.

    Examples
    --------
    >>> expected_files("svhn:svhn/test_32x32.mat")[0].count
    26032
    """

    path: Path
    is_folder: bool = False
    count: int = 0
    unit: str = "images"
    md5: str = ""
    note: str = ""
    counter: Callable[[Path], int] | None = field(default=None, compare=False, repr=False)

    @property
    def present(self) -> bool:
        """Whether it is there."""
        if self.is_folder:
            return self.path.is_dir()
        return self.path.is_file()

    def __str__(self) -> str:
        text = str(self.path)
        if self.is_folder:
            text += "/"
        if self.count:
            text += f"  {self.count:,} {self.unit}"
        if self.note:
            text += f"  ({self.note})"
        return text


@dataclass(frozen=True)
class FileStatus:
    """Hold what was found of an expected file.

    Parameters
    ----------
    file : ExpectedFile
        What is expected.
    count : int or None, default=None
        How many images, labels or lines it holds; None if they were not counted.
    md5 : str, default=""
        Its MD5 sum; empty where none is published.
    reason : str, default=""
        Why it cannot be read.
    """

    file: ExpectedFile
    count: int | None = None
    md5: str = ""
    reason: str = ""

    @property
    def problem(self) -> str:
        """What is wrong, in one line; empty if nothing is.

        Examples
        --------
        >>> check_file(ExpectedFile(Path("gone/labels.npy"))).problem
        'gone/labels.npy: missing'
        """
        path = self.file.path
        if self.reason:
            return f"{path}: {self.reason}"
        if self.count is not None and self.file.count and self.count != self.file.count:
            return f"{path}: {self.count:,} {self.file.unit}, expected {self.file.count:,}"
        if self.md5 != self.file.md5:
            return f"{path}: its MD5 sum is {self.md5}, published {self.file.md5}; get the file again"
        return ""


def expected_files(spec: str, rows: int = 0) -> tuple[ExpectedFile, ...]:
    """List the files and folders that a data set needs; nothing needs to be there.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``.
    rows : int, default=0
        The published number of rows; 0 where none is known.

    Returns
    -------
    tuple of ExpectedFile
        The files; empty for kinds without any (noise), and those with files of any name (shards, hf).

    Examples
    --------
    >>> for file in expected_files("tinyimagenet:tin?split=val"):
    ...     print(file)
    tin/wnids.txt  200 lines
    tin/val/val_annotations.txt  10,000 lines
    tin/val/images/  10,000 images
    """
    parsed = DataSpec.parse(spec)
    describe = _KINDS.get(parsed.kind)
    if describe is None:
        return ()
    if SELECTING & parsed.keys.keys():
        rows = 0  # those of the selection, not of the files
    return describe(parsed, Path(expanduser(parsed.path)), rows)


def check_file(file: ExpectedFile) -> FileStatus:
    """Check that a file is there, holds as much as it must, and has the published checksum.

    Parameters
    ----------
    file : ExpectedFile
        What is expected.

    Returns
    -------
    FileStatus
        What was found; ``problem`` is what is wrong with it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = expected_files(f"folder:{folder}", rows=5)[0]
    ...     check_file(file).count
    0
    """
    if not file.present:
        return FileStatus(file, reason=_explain_absence(file))
    count, md5 = None, ""
    try:
        if file.counter is not None:
            count = file.counter(file.path)
        if file.md5:
            md5 = _measure_md5(file.path)
    except (TwofoldError, OSError, UnicodeDecodeError) as error:
        return FileStatus(file, reason=str(error).removeprefix(f"{file.path}: "))
    return FileStatus(file, count, md5)


def _explain_absence(file: ExpectedFile) -> str:
    if not file.path.exists():
        return "missing"
    if file.is_folder:
        return "not a folder"
    return "not a regular file"


def _measure_md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open_regular(path) as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


@cache
def _published() -> dict[str, Any]:
    """Read published checksums, counts and folder names."""
    text = files("twofold.nn.data").joinpath("lists", "files.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def _find_md5(kind: str, name: str) -> str:
    found: str = _published()["md5"].get(kind, {}).get(name, "")
    return found


# --- counting -------------------------------------------------------------------------------------------------------


def _count_images(folder: Path) -> int:
    return len(list_image_files(folder))


def _count_lines(file: Path) -> int:
    """Count the lines that are not empty."""
    with file.open(encoding="utf-8") as stream:
        return sum(1 for line in stream if line.strip())


def _count_records(file: Path) -> int:
    """Count the rows below the header of a CSV file without line breaks in its cells."""
    return max(_count_lines(file) - 1, 0)


def _count_rows_of_npy(file: Path) -> int:
    return len(open_npy(file))


def _count_cifar_records(file: Path, record_bytes: int) -> int:
    return file.stat().st_size // record_bytes


# --- the kinds ------------------------------------------------------------------------------------------------------


def _describe_cifar(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    if path.is_file() or path.name.endswith((".tar", ".gz", ".tgz")):
        return (ExpectedFile(path, md5=_find_md5(spec.kind, path.name)),)
    split = spec.keys.get("split", "test")
    layout, folder = _find_cifar_layout(spec.kind, path)
    expected: list[ExpectedFile] = []
    if split in ("train", "all"):
        expected += [_describe_batch(spec.kind, layout, folder / name, 50_000) for name in layout.train]
    if split in ("test", "all"):
        expected += [_describe_batch(spec.kind, layout, folder / name, 10_000) for name in layout.test]
    return tuple(expected)


def _find_cifar_layout(kind: str, path: Path) -> tuple[CifarLayout, Path]:
    """Find the layout that is there and its folder, or else the binary one."""
    for layout in LAYOUTS[kind]:
        for folder in (path, path / layout.folder):
            if any((folder / name).is_file() for name in (*layout.train, *layout.test)):
                return layout, folder
    binary = LAYOUTS[kind][0]
    return binary, path / binary.folder


def _describe_batch(kind: str, layout: CifarLayout, file: Path, split_images: int) -> ExpectedFile:
    count = split_images
    if file.name.startswith("data_batch"):
        count = split_images // len(layout.train)
    counter, note = None, ""
    if layout.binary:
        counter = partial(_count_cifar_records, record_bytes=len(layout.labels) + PIXEL_BYTES)
        note = f"or {file.stem} of {LAYOUTS[kind][1].folder}"
    return ExpectedFile(file, count=count, md5=_find_md5(kind, file.name), note=note, counter=counter)


def _describe_corruptions(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    names = [spec.keys.get("type", "all")]
    if names == ["all"]:
        names = list(corruptions.NAMES)
    expected = []
    for name in [*names, "labels"]:
        unit = "labels" if name == "labels" else "images"
        md5 = _find_md5(spec.kind, f"{name}.npy")
        expected.append(ExpectedFile(path / f"{name}.npy", False, 50_000, unit, md5, counter=_count_rows_of_npy))
    return tuple(expected)


def _describe_svhn(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    count = _published()["svhn"].get(path.name, 0)
    return (ExpectedFile(path, count=count, md5=_find_md5("svhn", path.name)),)


def _describe_folder(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    return (ExpectedFile(path, is_folder=True, count=rows, counter=_count_images if rows else None),)


def _describe_list(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    """Describe an image list and the folder that its images are in."""
    root = path.parent
    if "root" in spec.keys:
        root = Path(expanduser(spec.keys["root"]))
    expected = ExpectedFile(path, count=rows, unit="lines", counter=_count_lines if rows else None)
    return (expected, ExpectedFile(root / _find_listed_folder(path), is_folder=True, note="the images of the lists"))


def _find_listed_folder(path: Path) -> str:
    """Find the folder below the root that a list names first; that of OpenOOD's release if there is no list."""
    if not path.is_file():
        name = path.stem.partition("_")[2]  # test_cifar10 is a list of cifar10
        folder: str = _published()["openood"].get(name, "")
        return folder
    with path.open(encoding="utf-8", errors="replace") as stream:
        first, slash, _ = stream.readline().partition("/")
    return first if slash else ""


def _describe_tinyimagenet(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    expected = [ExpectedFile(path / "wnids.txt", count=200, unit="lines", counter=_count_lines)]
    if spec.keys.get("names") == "words":
        expected.append(ExpectedFile(path / "words.txt"))
    if spec.keys.get("split") == "train":
        expected.append(ExpectedFile(path / "train", is_folder=True, count=100_000, counter=_count_images))
        return tuple(expected)
    annotations = path / "val" / "val_annotations.txt"
    expected.append(ExpectedFile(annotations, count=10_000, unit="lines", counter=_count_lines))
    expected.append(ExpectedFile(path / "val" / "images", is_folder=True, count=10_000, counter=_count_images))
    return tuple(expected)


def _describe_wilds(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    """Describe the table of WILDS and the folder of images that it names."""
    name = spec.keys.get("dataset", "")
    count = _published()["wilds"].get(name, 0)
    table = ExpectedFile(path / "metadata.csv", count=count, unit="rows", counter=_count_records)
    if name == "camelyon17":
        note = "patient_PPP_node_N/patch_patient_PPP_node_N_x_X_y_Y.png"
        return (table, ExpectedFile(path / "patches", is_folder=True, note=note))
    return (table, ExpectedFile(path / "train", is_folder=True, note="the images that metadata.csv names"))


def _describe_breeds(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    """Describe ImageNet's folder of classes, and the map or hierarchy of the sub-classes."""
    part = spec.keys.get("part", "train")
    folder = path / part
    if path.is_dir() and not folder.is_dir():
        folder = path  # the class folders themselves, or nothing yet
    expected = [ExpectedFile(folder, is_folder=True, note="a folder of images for each wnid")]
    if "map" in spec.keys:
        expected.append(ExpectedFile(Path(expanduser(spec.keys["map"]))))
    if "hierarchy" in spec.keys:
        hierarchy = Path(expanduser(spec.keys["hierarchy"]))
        for name in ("dataset_class_info.json", "class_hierarchy.txt", "node_names.txt"):
            expected.append(ExpectedFile(hierarchy / name))
    return tuple(expected)


def _describe_file(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    """Describe a file of images or texts, which only its reader can count."""
    return (ExpectedFile(path, count=rows, unit="rows"),)


def _describe_file_and_labels(spec: DataSpec, path: Path, rows: int) -> tuple[ExpectedFile, ...]:
    """Describe a file of images, and its labels if they are in a file of their own."""
    expected = _describe_file(spec, path, rows)
    labels = spec.keys.get("labels")
    if labels is None:
        return expected
    beside = Path(labels)
    if not beside.exists():
        beside = path.parent / labels
    return (*expected, ExpectedFile(beside))


_KINDS: dict[str, Callable[[DataSpec, Path, int], tuple[ExpectedFile, ...]]] = {
    "breeds": _describe_breeds,
    "cifar10": _describe_cifar,
    "cifar100": _describe_cifar,
    "cifar10c": _describe_corruptions,
    "cifar100c": _describe_corruptions,
    "folder": _describe_folder,
    "idx": _describe_file_and_labels,
    "list": _describe_list,
    "npy": _describe_file_and_labels,
    "npz": _describe_file,
    "sheet": _describe_file_and_labels,
    "svhn": _describe_svhn,
    "text": _describe_file,
    "tinyimagenet": _describe_tinyimagenet,
    "wilds": _describe_wilds,
}
