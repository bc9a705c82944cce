"""Readers of data sets that are stored as image files: folders, lists, Tiny-ImageNet, WILDS and BREEDS."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.hierarchy import Domain, Groups, breeds_map, read_map
from twofold.nn.data.image_files import (
    IMAGE_SUFFIXES,
    check_files_exist,
    check_path,
    is_image_file,
    list_image_files,
    read_image_list,
)
from twofold.nn.data.images import Images
from twofold.nn.data.readers.registry import reader
from twofold.nn.data.sources import FileSource

CsvRow: TypeAlias = Mapping[str, str]


@reader("folder")
def _read_folder(path: str) -> Images:
    """Read the image files in a folder: one sub-folder for each class, or all together without labels."""
    root = check_path(Path(path), "image folder", folder=True)
    loose: list[Path] = []
    classes: dict[str, list[Path]] = {}
    for entry in sorted(root.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if is_image_file(entry):
            loose.append(entry)
        elif entry.is_dir():
            files = list_image_files(entry)
            if files:
                classes[entry.name] = files
    if loose and classes:
        raise InvalidInput(
            f"{root} holds images and also folders of images ({next(iter(classes))}); "
            "give a folder of class folders or a flat one"
        )
    if classes:
        return _label_by_class(root, classes, root.name)
    if not loose:
        raise InvalidInput(f"{root} holds no image files ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return Images.of(FileSource(loose), ids=[file.name for file in loose], name=root.name)


def _label_by_class(root: Path, classes: Mapping[str, Sequence[Path]], name: str) -> Images:
    """Make a data set of the files of each class; ids are paths below ``root``."""
    paths: list[Path] = []
    labels: list[int] = []
    for label, files in enumerate(classes.values()):
        paths.extend(files)
        labels.extend([label] * len(files))
    ids = [path.relative_to(root).as_posix() for path in paths]
    return Images.of(FileSource(paths), labels, ids=ids, class_names=tuple(classes), name=name)


@reader("list")
def _read_list(path: str, *, root: str | None = None) -> Images:
    """Read an image list of OpenOOD: relative path, space, label on each line; paths begin at ``root``."""
    file = check_path(Path(path), "image list", folder=False)
    folder = file.parent
    if root is not None:
        folder = Path(root)
    check_path(folder, "root folder of the image list", folder=True)
    names, labels = read_image_list(file)
    paths = [folder / name for name in names]
    check_files_exist(paths, str(file))
    return Images.of(FileSource(paths), labels, ids=names, name=file.stem)


# --- Tiny-ImageNet --------------------------------------------------------------------------------------------------


@reader("tinyimagenet")
def _read_tinyimagenet(
    path: str, *, split: Literal["train", "val"] = "val", names: Literal["wnids", "words"] = "wnids"
) -> Images:
    """Read Tiny-ImageNet in its own layout; classes are numbered by sorted wnid, and named by wnid or by word."""
    root = check_path(Path(path), "Tiny-ImageNet folder", folder=True)
    wnid_file = check_path(root / "wnids.txt", "class list", folder=False)
    wnids = sorted(wnid_file.read_text(encoding="utf-8").split())
    class_names = wnids
    if names == "words":
        words = _read_words(root / "words.txt")
        class_names = [words.get(wnid, wnid) for wnid in wnids]
    if split == "train":
        images = _label_by_class(root / "train", _list_class_folders(root / "train", wnids), "tinyimagenet-train")
        return replace(images, class_names=tuple(class_names))
    return _read_tinyimagenet_val(root / "val", wnids, class_names)


def _list_class_folders(root: Path, wnids: Sequence[str]) -> dict[str, list[Path]]:
    """List the image files of each class folder."""
    files = {}
    for wnid in wnids:
        folder = check_path(root / wnid, "class folder", folder=True)
        files[wnid] = list_image_files(folder)
    return files


def _read_tinyimagenet_val(folder: Path, wnids: Sequence[str], class_names: Sequence[str]) -> Images:
    """Read the validation images, whose classes are in an annotation file."""
    file = check_path(folder / "val_annotations.txt", "annotation file", folder=False)
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    names, labels = [], []
    for line_number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in numbers:
            raise InvalidInput(
                f"{file}, line {line_number}: must be an image and a wnid of wnids.txt, got {fields[:2]}"
            )
        names.append(fields[0])
        labels.append(numbers[fields[1]])
    paths = [folder / "images" / name for name in names]
    check_files_exist(paths, str(file))
    return Images.of(FileSource(paths), labels, ids=names, class_names=class_names, name="tinyimagenet-val")


def _read_words(file: Path) -> dict[str, str]:
    """Read the first word of each wnid."""
    check_path(file, "word list", folder=False)
    words = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        wnid, tab, synonyms = line.partition("\t")
        if tab:
            words[wnid] = synonyms.split(",")[0].strip()
    return words


# --- WILDS ----------------------------------------------------------------------------------------------------------

WILDS_SPLITS = {
    "iwildcam": ("train", "val", "test", "id_val", "id_test"),
    "camelyon17": ("train", "val", "test", "id_val"),
}
WILDS_COLUMNS = {
    "iwildcam": ("split", "filename", "y"),
    "camelyon17": ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split"),
}


@reader("wilds")
def _read_wilds(path: str, *, dataset: Literal["iwildcam", "camelyon17"], split: str = "test") -> Images:
    """Read iWildCam or Camelyon17 of WILDS by metadata.csv; val and test are other places, id_val and id_test the same.

    Camelyon17 has no id_test; its hospital 1 is val and hospital 2 is test.
    """
    root = check_path(Path(path), "WILDS folder", folder=True)
    if split not in WILDS_SPLITS[dataset]:
        raise UnknownName.of(f"split of {dataset}", split, WILDS_SPLITS[dataset])
    file = root / "metadata.csv"
    rows = _read_csv(file, WILDS_COLUMNS[dataset])
    classes = 2
    try:
        if dataset == "iwildcam":
            names, labels = _select_iwildcam(rows, split)
            classes = 1 + max(int(row["y"]) for row in rows)
        else:
            names, labels = _select_camelyon17(rows, split)
    except ValueError as error:
        raise InvalidInput(f"{file}: labels, splits and places must be whole numbers: {error}") from error
    if not names:
        raise InvalidInput(f"{file} has no rows of split {split!r}")
    paths = [root / name for name in names]
    check_files_exist(paths, str(file))
    class_names: list[str] | None = ["normal", "tumor"]
    if dataset == "iwildcam":
        class_names = _read_categories(root / "categories.csv", classes)
    return Images.of(FileSource(paths), labels, ids=names, class_names=class_names, name=f"{dataset}-{split}")


def _select_iwildcam(rows: Sequence[CsvRow], split: str) -> tuple[list[str], list[int]]:
    """Return paths and labels of a split of iWildCam."""
    names, labels = [], []
    for row in rows:
        if row["split"] == split:
            names.append(f"train/{row['filename']}")
            labels.append(int(row["y"]))
    return names, labels


def _select_camelyon17(rows: Sequence[CsvRow], split: str) -> tuple[list[str], list[int]]:
    """Return paths and labels of a split of Camelyon17."""
    names, labels = [], []
    for row in rows:
        if _camelyon17_split(row) == split:
            names.append(_camelyon17_patch(row))
            labels.append(int(row["tumor"]))
    return names, labels


def _read_csv(file: Path, columns: Sequence[str]) -> list[CsvRow]:
    """Read the rows of a CSV file that must have these columns."""
    check_path(file, "metadata file", folder=False)
    with file.open(newline="", encoding="utf-8") as stream:
        table = csv.DictReader(stream)
        for column in columns:
            if column not in (table.fieldnames or ()):
                raise InvalidInput(f"{file} has no column {column!r}; its columns are {table.fieldnames}")
        rows: list[CsvRow] = list(table)
    if not rows:
        raise InvalidInput(f"{file} has no rows")
    for line_number, row in enumerate(rows, start=2):
        if None in [row[column] for column in columns]:
            raise InvalidInput(f"{file}, line {line_number}: fewer fields than columns; the file is truncated")
    return rows


def _camelyon17_patch(row: CsvRow) -> str:
    """Build the path of a Camelyon17 patch; the patient's number is written with three digits."""
    node = f"patient_{int(row['patient']):03d}_node_{int(row['node'])}"
    return f"patches/{node}/patch_{node}_x_{int(row['x_coord'])}_y_{int(row['y_coord'])}.png"


def _camelyon17_split(row: CsvRow) -> str:
    """Return the split of a row: hospitals 1 and 2 are held out; the file marks part of the others as id_val."""
    held_out = {1: "val", 2: "test"}
    hospital = int(row["center"])
    if hospital in held_out:
        return held_out[hospital]
    return ("train", "id_val")[int(row["split"])]


def _read_categories(file: Path, classes: int) -> list[str] | None:
    """Read names by label from categories.csv (columns y, name), if it exists."""
    if not file.is_file():
        return None
    names = list(map(str, range(classes)))
    for row in _read_csv(file, ("y", "name")):
        if row["y"].isdecimal() and int(row["y"]) < classes:
            names[int(row["y"])] = row["name"]
    return names


# --- BREEDS ---------------------------------------------------------------------------------------------------------


@reader("breeds")
def _read_breeds(
    path: str,
    *,
    task: Literal["entity13", "entity30", "living17", "nonliving26"] = "entity13",
    split: Domain,
    part: Literal["train", "val"] = "train",
    map: str | None = None,  # noqa: A002  # the key of the grammar
    hierarchy: str | None = None,
) -> Images:
    """Read BREEDS on an ImageNet folder of wnids (or with train/ and val/), labelled by super-class.

    The sub-classes of both domains come from ``map``, a JSON file, or are drawn from a ``hierarchy`` folder.
    """
    root = check_path(Path(path), "ImageNet folder", folder=True)
    if (root / part).is_dir():
        root = root / part
    groups = _load_breeds_groups(map, hierarchy, task)[split]
    superclass_of = {}
    for number, group in enumerate(groups.values()):
        superclass_of.update(dict.fromkeys(group, number))
    wnids = sorted(superclass_of)
    files = _list_class_folders(root, wnids)
    for wnid, found in files.items():
        if not found:
            raise InvalidInput(f"{root / wnid} holds no image files")
    images = _label_by_class(root, files, f"{task}-{split}")
    superclass_of_label = {label: superclass_of[wnid] for label, wnid in enumerate(wnids)}
    return images.relabel(superclass_of_label, tuple(groups))


def _load_breeds_groups(map_file: str | None, hierarchy_folder: str | None, task: str) -> dict[Domain, Groups]:
    if map_file is not None and hierarchy_folder is None:
        return read_map(Path(map_file), task)
    if hierarchy_folder is not None and map_file is None:
        return breeds_map(Path(hierarchy_folder), task)
    raise InvalidInput("breeds: needs either map=FILE.json (sub-classes as data) or hierarchy=FOLDER")
