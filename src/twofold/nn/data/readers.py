"""Open every data set by one string: ``kind:PATH?key=value&key=value``.

Each kind is one function here; its keyword-only parameters are the keys it knows. Keys that all kinds share, in the
order in which they act: ``pad``, ``size``, ``crop`` (see :meth:`~twofold.nn.data.source.Images.fit`); ``classes``
(names or numbers with commas, or ``@LIST`` for a list of :mod:`twofold.nn.data.classes`) or ``without`` (the same,
classes to remove), with ``keep_labels``; ``shuffle`` (a seed, the draw of :func:`~twofold.nn.data.views.shuffled`);
``rows`` (``A:B``, a slice); ``limit`` (the first rows), or ``sample`` with ``seed`` (a draw without replacement, in the
order so far); ``corrupt`` with ``level`` and ``seed`` (a corruption of :mod:`twofold.nn.corruptions`, or ``all`` for
the 15 one after the other, computed when read). All files are local; nothing is downloaded.
"""

from __future__ import annotations

import csv
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import expanduser, isfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from twofold._checks import Labels, number, whole
from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.nn import corruptions
from twofold.nn.data import archives, hierarchy
from twofold.nn.data.archives import existing, member
from twofold.nn.data.classes import class_list, superclasses
from twofold.nn.data.source import ArraySource, FileSource, Images, NoiseSource, Pixels, TableSource, decoded

Read = Callable[..., Images]
Split = Literal["train", "test"]
SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".ppm", ".pgm", ".pbm", ".pnm", ".tif", ".tiff"}
)
COMMON: dict[str, Any] = {
    "pad": int,
    "size": int,
    "crop": int,
    "classes": str,
    "without": str,
    "keep_labels": bool,
    "shuffle": int,
    "rows": str,
    "limit": int,
    "sample": int,
    "corrupt": str,
    "level": int,
    "seed": int,
    "name": str,
}


@dataclass(frozen=True)
class Reader:
    """Hold a registered kind of data set: its function and the types of its keys.

    Parameters
    ----------
    kind : str
        What a specification starts with, such as ``"cifar10"``.
    read : callable
        Takes the path and the keys of the kind as keyword-only arguments, and returns :class:`Images`.

    Examples
    --------
    >>> READERS["idx"].keys
    {'labels': str | None}
    """

    kind: str
    read: Read

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.read) or "").partition("\n")[0]

    @cached_property
    def keys(self) -> dict[str, Any]:
        """Types of the kind's own keys, by name."""
        hints = typing.get_type_hints(self.read)
        given = inspect.signature(self.read).parameters.values()
        return {p.name: hints[p.name] for p in given if p.kind is p.KEYWORD_ONLY}

    @cached_property
    def required(self) -> list[str]:
        """Names of the keys without a default."""
        given = inspect.signature(self.read).parameters.values()
        return [p.name for p in given if p.kind is p.KEYWORD_ONLY and p.default is p.empty]


READERS: dict[str, Reader] = {}


def reader(kind: str) -> Callable[[Read], Read]:
    """Register a function as the reader of a kind.

    Parameters
    ----------
    kind : str
        What a specification starts with. A kind that is already registered is replaced.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.

    Examples
    --------
    >>> @reader("blank")
    ... def blank(path: str, *, n: int = 1) -> Images:
    ...     return Images.of(np.zeros((n, 8, 8), np.uint8))
    >>> len(open("blank:any?n=3"))
    3
    >>> _ = READERS.pop("blank")
    """

    def register(read: Read) -> Read:
        READERS[kind] = Reader(kind, read)
        return read

    return register


def open(spec: str, **options: Any) -> Images:  # noqa: A001  # the name of the contract; builtin open is not used here
    """Open a data set named by a string.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``; the kinds are the keys of ``twofold.nn.data.READERS``, and the keys that all
        kinds share are ``pad``, ``size``, ``crop``, ``classes``, ``without``, ``keep_labels``, ``shuffle``, ``rows``,
        ``limit``, ``sample``, ``corrupt``, ``level``, ``seed`` and ``name``. A leading ``~`` is the home folder.
    **options
        More keys, which override those of ``spec``. None counts as not set.

    Returns
    -------
    Images
        The data set. One image is decoded at once, so that unreadable data are noticed early.

    Raises
    ------
    UnknownName
        If the kind, a key, or a value with a fixed choice does not exist.
    InvalidInput
        If ``spec`` is malformed, a key is missing or does not fit another, or files are missing or damaged.
    MissingExtra
        If a library that the kind needs (Pillow, datasets) is not installed.

    Examples
    --------
    >>> images = open("noise:uniform?n=10&size=8&seed=3", limit=4)
    >>> len(images), images.shape
    (4, (8, 8))
    """
    kind, path, text = parse(spec)
    chosen = READERS[kind]
    known = {**COMMON, **chosen.keys}
    values = {k: _home(v) for k, v in {**text, **options}.items() if v is not None}
    for key in values:
        if key not in known:
            raise UnknownName.of(f"option of {kind}:", key, known)
    for key in chosen.required:
        if key not in values:
            raise InvalidInput(f"{kind}: needs {key}=; write {kind}:PATH?{key}=VALUE")
    given = {key: _converted(value, known[key], key) for key, value in values.items()}
    if "corrupt" in given and "level" in chosen.keys:
        raise InvalidInput(f"{kind}: holds corrupted images already; corrupt= is for clean ones")
    sliced = ":" in str(given.get("rows", ""))  # npz has rows=ARRAY too
    images = chosen.read(
        _home(path), **{k: v for k, v in given.items() if k in chosen.keys and not (k == "rows" and sliced)}
    )
    shared = {"rows"} if sliced else set()
    shared |= {"seed"} if "sample" in given or "corrupt" in given else set()  # noise has seed= of its own
    common = {k: v for k, v in given.items() if k not in chosen.keys or k in shared}
    result = _narrowed(images, common)
    _ = result.shape  # decodes one image, so that unreadable data raise now
    return result


def parse(spec: str) -> tuple[str, str, dict[str, str]]:
    """Split a specification into kind, path and keys.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``.

    Returns
    -------
    kind : str
        A registered kind.
    path : str
        What stands between the colon and the question mark.
    keys : dict of str to str
        The values as text; neither keys nor values are checked yet.

    Raises
    ------
    InvalidInput
        If the text has another form, or a key is repeated.
    UnknownName
        If the kind is not registered.

    Examples
    --------
    >>> parse("cifar100:data/c100?split=test&labels=coarse")
    ('cifar100', 'data/c100', {'split': 'test', 'labels': 'coarse'})
    """
    if not isinstance(spec, str):
        raise InvalidInput(f"a data set is named by a string kind:PATH?key=value, got {type(spec).__name__}")
    kind, colon, rest = spec.partition(":")
    if not colon:
        if kind in READERS:
            raise InvalidInput(f"{spec!r} has no path; write {kind}:PATH?key=value")
        raise InvalidInput(f"{spec!r} has no kind; write kind:PATH?key=value, kinds: {', '.join(sorted(READERS))}")
    if kind not in READERS:
        raise UnknownName.of("kind of data", kind, READERS)
    path, _, query = rest.partition("?")
    if not path:
        raise InvalidInput(f"{spec!r} has no path; write {kind}:PATH?key=value")
    keys: dict[str, str] = {}
    for piece in query.split("&") if query else ():
        key, equals, value = piece.partition("=")
        if not equals or not key:
            raise InvalidInput(f"{spec!r}: {piece!r} must be key=value")
        if key in keys:
            raise InvalidInput(f"{spec!r}: {key} is given twice")
        keys[key] = value
    return kind, path, keys


def _converted(value: Any, kind: Any, key: str) -> Any:
    """Convert a value to the type that its key has; ``X | None`` counts as X."""
    wanted = [k for k in typing.get_args(kind) if k is not type(None)] if type(None) in typing.get_args(kind) else []
    kind = wanted[0] if wanted else kind
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            raise UnknownName.of(f"value of {key}=", str(value), [str(v) for v in typing.get_args(kind)])
        return value
    if kind is bool:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if isinstance(value, bool):
            return value
        if str(value).lower() not in words:
            raise InvalidInput(f"{key} must be true or false, got {value!r}")
        return words[str(value).lower()]
    if kind is int:
        text = str(value).removeprefix("-")
        return whole(int(value) if isinstance(value, str) and text.isdecimal() else value, key, 0)
    if kind is float:
        try:
            return number(float(value), key, -np.inf, np.inf, open_low=True, open_high=True)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{key} must be a number, got {value!r}") from error
    return value


def _home(value: Any) -> Any:
    """Replace a leading ~ by the user's folder: the shell leaves it alone behind a colon."""
    return expanduser(value) if isinstance(value, str) and value.startswith("~") else value


def _narrowed(images: Images, given: Mapping[str, Any]) -> Images:
    """Apply the keys that all kinds share."""
    if any(key in given for key in ("pad", "size", "crop")):
        images = images.fit(pad=given.get("pad"), size=given.get("size"), crop=given.get("crop"))
    keep = given.get("keep_labels", False)
    if "classes" in given and "without" in given:
        raise InvalidInput("classes and without exclude one another; give one of them")
    if "classes" in given:
        images = images.subset(_class_words(given["classes"]), keep_labels=keep)
    elif "without" in given:
        images = _without(images, _class_words(given["without"]), keep_labels=keep)
    elif "keep_labels" in given:
        raise InvalidInput("keep_labels goes with classes= or without=; else labels are kept anyway")
    if "shuffle" in given:
        images = images[np.random.default_rng(given["shuffle"]).permutation(len(images))]
    if "rows" in given:
        images = images[_slice(given["rows"], len(images))]
    if "limit" in given and "sample" in given:
        raise InvalidInput("limit and sample exclude one another; give one of them")
    if "limit" in given:
        images = images[: whole(given["limit"], "limit", 1)]
    if "sample" in given:
        images = images[drawn(len(images), given["sample"], seed=given.get("seed", 0))]
    elif "seed" in given and "corrupt" not in given:
        raise InvalidInput("seed goes with sample= or corrupt=")
    if "corrupt" in given:
        images = _corrupt(images, given["corrupt"], given.get("level"), seed=given.get("seed", 0))
    elif "level" in given:
        raise InvalidInput("level goes with corrupt=NAME or corrupt=all")
    return replace(images, name=given["name"]) if "name" in given else images


def drawn(count: int, n: int, *, seed: int) -> Any:
    """Draw row numbers without replacement.

    Parameters
    ----------
    count : int
        Number of rows there are.
    n : int
        Number of rows to draw, at most ``count``.
    seed : int
        Seed of the draw.

    Returns
    -------
    ndarray of int64, shape (n,)
        Row numbers, sorted.

    Raises
    ------
    InvalidInput
        If ``n`` is below 1 or above ``count``.

    Examples
    --------
    >>> drawn(3, 3, seed=0)
    array([0, 1, 2])
    """
    if whole(n, "sample", 1) > count:
        raise InvalidInput(f"sample={n} is more than the {count} rows there are")
    return np.sort(np.random.default_rng(seed).choice(count, n, replace=False))


def _without(images: Images, classes: Any, *, keep_labels: bool) -> Images:
    """Select the rows of all other classes and those without a class; labels become 0, 1, ... or stay as they are."""
    out = images.class_numbers(classes)
    kept = images[np.flatnonzero(~np.isin(images.labels, out))]
    if len(kept) == 0:
        raise InvalidInput(f"{images.name}: without= leaves no rows")
    if keep_labels:
        return kept
    top = int(images.labels.max(initial=-1)) + 1 if images.class_names is None else len(images.class_names)
    left = [k for k in range(top) if k not in set(out)]
    names = None if images.class_names is None else [images.class_names[k] for k in left]
    return kept.relabel({old: new for new, old in enumerate(left)}, names)


def _slice(text: str, count: int) -> slice:
    """Parse the rows A:B of ``count``; an end that is left out is the first or last row."""
    first, colon, last = str(text).partition(":")
    if not colon or not all(end == "" or (end.isascii() and end.isdecimal()) for end in (first, last)):
        raise InvalidInput(f"rows must be A:B, A: or :B with whole numbers, got {text!r}")
    start, stop = int(first or 0), int(last or count)
    if stop > count:
        raise InvalidInput(f"rows={text} goes beyond the {count} rows there are")
    if start >= stop:
        raise InvalidInput(f"rows={text} holds no row of the {count} there are")
    return slice(start, stop)


@dataclass(frozen=True, eq=False)
class StackedSource:
    """Join views of equal length and image size, one after the other.

    Parameters
    ----------
    parts : tuple
        Views, each with ``read(rows)``, ``name`` and the same length.
    """

    parts: tuple[Any, ...]  # each with read(rows), a name and the same length

    def __len__(self) -> int:
        return len(self.parts) * len(self.parts[0])

    def raw(self, rows: Labels) -> Pixels:
        """Read the images of some rows, part by part.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Row numbers, counted through all parts.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The images in the order of ``rows``.
        """
        which, inner = np.divmod(rows, len(self.parts[0]))
        result = np.empty((0, 0, 0, 3), dtype=np.uint8)
        for part in np.unique(which).tolist():
            here = which == part
            pixels = self.parts[part].read(inner[here])
            if len(result) == 0:
                result = np.empty((len(rows), *pixels.shape[1:]), dtype=np.uint8)
            result[here] = pixels
        return result

    def where(self, row: int) -> str:
        """Name the part and its row.

        Parameters
        ----------
        row : int
            Row number, counted through all parts.

        Returns
        -------
        str
            The name for an error message.
        """
        part, inner = divmod(row, len(self.parts[0]))
        return f"{self.parts[part].name}, image {inner}"


def _corrupt(images: Images, name: str, level: int | None, *, seed: int) -> Images:
    """Corrupt images as they are read; labels and ids repeat from corruption to corruption."""
    if name != "all" and name not in corruptions.NAMES:
        raise UnknownName.of("corruption", name, ("all", *corruptions.NAMES))
    if level not in corruptions.LEVELS:
        raise InvalidInput(f"corrupt={name} needs level=1, 2, 3, 4 or 5, got {'none' if level is None else level}")
    names = corruptions.NAMES if name == "all" else (name,)
    return Images.of(
        StackedSource(tuple(corruptions.corrupted(images, n, level, seed=seed) for n in names)),
        np.tile(images.labels, len(names)),
        ids=np.tile(images.ids, len(names)),
        class_names=images.class_names,
        name=f"{images.name}-{name}-{level}",
    )


def _class_words(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("@"):
        return class_list(value[1:])
    return [word.strip() for word in value.split(",") if word.strip()]


# --- arrays in files ------------------------------------------------------------------------------------------------


@reader("cifar10")
def _cifar10(path: str, *, split: Split = "test") -> Images:
    """CIFAR-10, binary or python layout, from its folder or its .tar.gz."""
    pixels, labels = archives.cifar(Path(path), "cifar10", split, "fine")
    return Images.of(pixels, labels, class_names=class_list("cifar10"), name=f"cifar10-{split}")


@reader("cifar100")
def _cifar100(
    path: str,
    *,
    split: Literal["train", "test", "all"] = "test",
    labels: Literal["fine", "coarse"] = "fine",
    part: Literal["source", "shifted"] | None = None,
) -> Images:
    """CIFAR-100 with its fine or coarse labels, binary or python layout, from its folder or its .tar.gz.

    ``part`` is one side of the sub-class shift of FD-Shifts, labelled by 19 super-classes; ``all`` is train, then test.
    """
    if part is not None and labels == "coarse":
        raise InvalidInput("cifar100: part= makes super-classes of the fine labels; leave labels= out")
    splits: tuple[Split, ...] = ("train", "test") if split == "all" else (split,)
    pairs = [archives.cifar(Path(path), "cifar100", one, labels) for one in splits]
    pixels = np.concatenate([p for p, _ in pairs]) if len(pairs) > 1 else pairs[0][0]
    names = class_list("cifar100") if labels == "fine" else tuple(superclasses())
    truth = np.concatenate([y for _, y in pairs])
    images = Images.of(pixels, truth, class_names=names, name=f"cifar100-{split}")
    if part is None:
        return images
    from twofold.nn.data.views import super_cifar100  # imported here because views import readers

    source, shifted = super_cifar100(images)
    return replace(source if part == "source" else shifted, name=f"cifar100-{split}-{part}")


@reader("cifar10c")
def _cifar10c(path: str, *, type: str, level: int | None = None) -> Images:  # noqa: A002  # the key of the grammar
    """CIFAR-10-C: TYPE.npy with five blocks by level, and labels.npy; without a level all five; type=all: the 15."""
    return _corrupted(Path(path), type, level, "cifar10")


@reader("cifar100c")
def _cifar100c(path: str, *, type: str, level: int | None = None) -> Images:  # noqa: A002
    """CIFAR-100-C: as cifar10c, with the class names of CIFAR-100."""
    return _corrupted(Path(path), type, level, "cifar100")


def _corrupted(folder: Path, kind: str, level: int | None, names: str) -> Images:
    existing(folder, "folder of corruption arrays", folder=True)
    found = sorted(f.stem for f in folder.glob("*.npy") if f.stem != "labels")
    if not found:
        raise InvalidInput(f"{folder} holds no corruption arrays such as fog.npy")
    kinds = corruptions.NAMES if kind == "all" else (kind,)
    for one in kinds:
        if one not in found:
            raise UnknownName.of(f"corruption in {folder}", one, found)
    if level is not None and not 1 <= level <= 5:
        raise InvalidInput(f"level must be 1 to 5, got {level}")
    parts = [_one_corruption(folder, one, level, names) for one in kinds]
    if len(parts) == 1:
        return parts[0]
    if len({len(p) for p in parts}) > 1:
        counts = ", ".join(f"{one}: {len(p)}" for one, p in zip(kinds, parts, strict=True))
        raise InvalidInput(f"{folder}: the corruption arrays must have equally many images, got {counts}")
    return Images.of(
        StackedSource(tuple(parts)),
        np.concatenate([p.labels for p in parts]),
        ids=np.concatenate([p.ids for p in parts]),
        class_names=class_list(names),
        name=f"{names}c-all" if level is None else f"{names}c-all-{level}",
    )


def _one_corruption(folder: Path, kind: str, level: int | None, names: str) -> Images:
    file = folder / f"{kind}.npy"
    source = ArraySource.of(archives.npy(file), str(file))
    labels = np.array(archives.npy(folder / "labels.npy"))
    block, rest = divmod(len(source), 5)
    if rest:
        raise InvalidInput(f"{file} must hold five blocks of equal size, got {len(source)} images")
    if labels.ndim == 1 and len(labels) == block:
        labels = np.tile(labels, 5)
    rows = [f"{kind}/{1 + i // block}/{i % block}" for i in range(len(source))]
    images = Images.of(source, labels, ids=rows, class_names=class_list(names), name=f"{names}c-{kind}")
    if level is None:
        return images
    return replace(images[(level - 1) * block : level * block], name=f"{names}c-{kind}-{level}")


@reader("sheet")
def _sheet(
    path: str,
    *,
    labels: str | None = None,
    key: str | None = None,
    names: str | None = None,
    ids: str | None = None,
    tile: int = 32,
    columns: int = 100,
    part: Literal["source", "shifted"] | None = None,
) -> Images:
    """One large image of square tiles, row by row; labels in an .npz beside it under the file's name or ``key``.

    Class names are the array ``names``, or else the array names_X or wnids_X where X is a word of the key. ``part``: as
    of cifar100.
    """
    file = Path(path)
    whole(tile, "tile", 1)
    whole(columns, "columns", 1)
    sheet = decoded(existing(file, "sheet", folder=False))
    height, width = sheet.shape[:2]
    if width != columns * tile or height % tile:
        raise InvalidInput(
            f"{file} is {height}x{width}; a sheet of {columns} columns of {tile} is {columns * tile} wide"
        )
    tiles = sheet.reshape(-1, tile, columns, tile, 3).transpose(0, 2, 1, 3, 4).reshape(-1, tile, tile, 3)
    if labels is None:
        if part is not None:
            raise InvalidInput("sheet: part= needs labels=")
        return Images.of(tiles, name=file.stem)
    where = beside(labels, file)
    arrays = archives.npz(where)
    key = key or file.stem
    truth = member(arrays, key, where)
    if not len(tiles) - columns < len(truth) <= len(tiles):
        raise InvalidInput(f"{file} has {len(tiles)} tiles but {where} has {len(truth)} labels under {key!r}")
    guess = next((n for w in key.split("_") for n in (f"names_{w}", f"wnids_{w}") if n in arrays), None)
    found = names or guess
    images = Images.of(
        tiles[: len(truth)],
        truth,
        ids=None if ids is None else member(arrays, ids, where),
        class_names=None if found is None else member(arrays, found, where).tolist(),
        name=file.stem,
    )
    if part is None:
        return images
    from twofold.nn.data.views import super_cifar100  # imported here because views import readers

    source, shifted = super_cifar100(images)
    return replace(source if part == "source" else shifted, name=f"{file.stem}-{part}")


@reader("svhn")
def _svhn(path: str) -> Images:
    """SVHN, cropped digits: a .mat file; its label 10 is the digit 0."""
    pixels, labels = archives.svhn(Path(path))
    return Images.of(pixels, labels, class_names=[str(d) for d in range(10)], name=Path(path).stem)


@reader("idx")
def _idx(path: str, *, labels: str | None = None) -> Images:
    """IDX files as of MNIST, Fashion-MNIST and KMNIST, gzipped or not; grey becomes RGB.

    Without ``labels`` the file named alike (images-idx3 to labels-idx1) is taken where it exists.
    """
    file = Path(path)
    pixels = archives.idx(file, ndim=3)
    twin = file.with_name(file.name.replace("images", "labels").replace("idx3", "idx1"))
    where = beside(labels, file) if labels else twin if twin != file and twin.is_file() else None
    truth = None if where is None else archives.idx(where, ndim=1)
    return Images.of(pixels, truth, name=file.name.partition(".")[0])


@reader("npz")
def _npz(
    path: str,
    *,
    images: str = "images",
    labels: str | None = None,
    ids: str | None = None,
    names: str | None = None,
    rows: str | None = None,
) -> Images:
    """Arrays of an .npz file; ``images``, ``labels``, ``ids``, ``names`` and ``rows`` (a selection) name them.

    Arrays called labels, ids and class_names are taken without being named.
    """
    file = Path(path)
    arrays = archives.npz(file)

    def optional(given: str | None, usual: str) -> Any:
        if given is None and usual not in arrays:
            return None
        return member(arrays, given or usual, file)

    class_names = optional(names, "class_names")
    result = Images.of(
        member(arrays, images, file),
        optional(labels, "labels"),
        ids=optional(ids, "ids"),
        class_names=None if class_names is None else class_names.tolist(),
        name=file.stem,
    )
    return result if rows is None else result[member(arrays, rows, file)]


@reader("npy")
def _npy(path: str, *, labels: str | None = None) -> Images:
    """A memory-mapped .npy array of images, labels in another."""
    file = Path(path)
    source = ArraySource.of(archives.npy(file), str(file))
    return Images.of(source, None if labels is None else archives.npy(beside(labels, file)), name=file.stem)


# --- image files ----------------------------------------------------------------------------------------------------


@reader("folder")
def _folder(path: str) -> Images:
    """Image files in a folder: one sub-folder for each class, or all together without labels."""
    root = existing(Path(path), "image folder", folder=True)
    loose = [p for p in _visible(root) if p.is_file() and p.suffix.lower() in SUFFIXES]
    folders = {p.name: _image_files(p) for p in _visible(root) if p.is_dir()}
    folders = {name: files for name, files in folders.items() if files}
    if loose and folders:
        raise InvalidInput(
            f"{root} holds images and also folders of images ({next(iter(folders))}); "
            "give a folder of class folders or a flat one"
        )
    if folders:
        return _by_class(root, folders, root.name)
    if not loose:
        raise InvalidInput(f"{root} holds no image files ({', '.join(sorted(SUFFIXES))})")
    return Images.of(FileSource(loose), ids=[p.name for p in loose], name=root.name)


def _visible(folder: Path) -> list[Path]:
    return sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.name)


def _image_files(folder: Path) -> list[Path]:
    """List the image files below a folder, in the order of their paths."""
    found = [p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file() and p.name[0] != "."]
    return sorted(found, key=lambda p: p.relative_to(folder).as_posix())


def _by_class(root: Path, folders: Mapping[str, Sequence[Path]], name: str) -> Images:
    paths = [p for files in folders.values() for p in files]
    labels = [k for k, files in enumerate(folders.values()) for _ in files]
    return Images.of(
        FileSource(paths),
        labels,
        ids=[p.relative_to(root).as_posix() for p in paths],
        class_names=tuple(folders),
        name=name,
    )


@reader("list")
def _list(path: str, *, root: str | None = None) -> Images:
    """An image list of OpenOOD: relative path, space, label on each line; paths begin at ``root``."""
    file = existing(Path(path), "image list", folder=False)
    base = existing(file.parent if root is None else Path(root), "root folder of the image list", folder=True)
    names, labels = read_list(file)
    paths = [base / name for name in names]
    _all_there(paths, f"{file}")
    return Images.of(FileSource(paths), labels, ids=names, name=file.stem)


def read_list(file: Path) -> tuple[list[str], list[int]]:
    """Read the paths and labels of an OpenOOD image list.

    Parameters
    ----------
    file : Path
        A text file with a relative path, a space or tab, and a label of at least -1 on each line; empty lines are
        skipped.

    Returns
    -------
    names : list of str
        The paths as written.
    labels : list of int
        Their labels.

    Raises
    ------
    InvalidInput
        If the file is not text, a line has another form, or the list is empty.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "val.txt"
    ...     _ = file.write_text("birds/a.png 3" + chr(10) + "cats/b.png -1")
    ...     read_list(file)
    (['birds/a.png', 'cats/b.png'], [3, -1])
    """
    names, labels = [], []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is no text file: {error}") from error
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().replace("\t", " ").rpartition(" ")
        if not name or not label.removeprefix("-").isdecimal() or int(label) < -1:
            raise InvalidInput(
                f"{file}, line {place}: must be a path, a space and a label of at least -1, got {line!r}"
            )
        names.append(name.strip())
        labels.append(int(label))
    if not names:
        raise InvalidInput(f"{file} lists no images")
    return names, labels


def _all_there(paths: Sequence[Path], where: str) -> None:
    missing = [p for p in paths if not isfile(p)]
    if missing:
        raise InvalidInput(f"{where}: {len(missing)} of {len(paths)} images are missing, the first is {missing[0]}")


@reader("tinyimagenet")
def _tinyimagenet(
    path: str, *, split: Literal["train", "val"] = "val", names: Literal["wnids", "words"] = "wnids"
) -> Images:
    """Tiny-ImageNet in its own layout; classes are numbered by sorted wnid, and named by wnid or by word."""
    root = existing(Path(path), "Tiny-ImageNet folder", folder=True)
    wnids = sorted(existing(root / "wnids.txt", "class list", folder=False).read_text(encoding="utf-8").split())
    number = {w: k for k, w in enumerate(wnids)}
    class_names = [_words(root / "words.txt").get(w, w) for w in wnids] if names == "words" else wnids
    if split == "train":
        folders = {w: _image_files(existing(root / "train" / w, "class folder", folder=True)) for w in wnids}
        images = _by_class(root / "train", folders, "tinyimagenet-train")
        return replace(images, class_names=tuple(class_names))
    file = existing(root / "val" / "val_annotations.txt", "annotation file", folder=False)
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    for place, row in enumerate(rows, start=1):
        if len(row) < 2 or row[1] not in number:
            raise InvalidInput(f"{file}, line {place}: must be an image and a wnid of wnids.txt, got {row[:2]}")
    paths = [root / "val" / "images" / row[0] for row in rows]
    _all_there(paths, str(file))
    labels = [number[row[1]] for row in rows]
    return Images.of(
        FileSource(paths), labels, ids=[r[0] for r in rows], class_names=class_names, name="tinyimagenet-val"
    )


def _words(file: Path) -> dict[str, str]:
    """Read the first word of each wnid."""
    lines = existing(file, "word list", folder=False).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t", 1) for line in lines if "\t" in line)
    return {wnid: words.split(",")[0].strip() for wnid, words in pairs}


WILDS_SPLITS = ("train", "val", "test", "id_val", "id_test")


@reader("wilds")
def _wilds(path: str, *, dataset: Literal["iwildcam", "camelyon17"], split: str = "test") -> Images:
    """iWildCam or Camelyon17 of WILDS from metadata.csv; val and test are other places, id_val and id_test the same.

    Camelyon17 has no id_test; its hospital 1 is val and hospital 2 is test.
    """
    root = existing(Path(path), "WILDS folder", folder=True)
    known = WILDS_SPLITS if dataset == "iwildcam" else WILDS_SPLITS[:4]
    if split not in known:
        raise UnknownName.of(f"split of {dataset}", split, known)
    file = root / "metadata.csv"
    wanted = {
        "iwildcam": ("split", "filename", "y"),
        "camelyon17": ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split"),
    }[dataset]
    rows = _table(file, wanted)
    try:
        if dataset == "iwildcam":
            kept = [(f"train/{r['filename']}", int(r["y"])) for r in rows if r["split"] == split]
            classes = 1 + max(int(r["y"]) for r in rows)
        else:
            kept = [(_patch(r), int(r["tumor"])) for r in rows if _hospital_split(r) == split]
            classes = 2
    except ValueError as error:
        raise InvalidInput(f"{file}: labels, splits and places must be whole numbers: {error}") from error
    if not kept:
        raise InvalidInput(f"{file} has no rows of split {split!r}")
    paths = [root / name for name, _ in kept]
    _all_there(paths, str(file))
    names = ("normal", "tumor") if dataset == "camelyon17" else _categories(root / "categories.csv", classes)
    return Images.of(
        FileSource(paths),
        [y for _, y in kept],
        ids=[name for name, _ in kept],
        class_names=names,
        name=f"{dataset}-{split}",
    )


def _table(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Read the rows of a CSV file that must have these columns."""
    existing(file, "metadata file", folder=False)
    with file.open(newline="", encoding="utf-8") as stream:
        table = csv.DictReader(stream)
        for column in columns:
            if column not in (table.fieldnames or ()):
                raise InvalidInput(f"{file} has no column {column!r}; its columns are {table.fieldnames}")
        rows = list(table)
    short = next((i for i, r in enumerate(rows, start=2) if any(r[c] is None for c in columns)), None)
    if short is not None:
        raise InvalidInput(f"{file}, line {short}: fewer fields than columns; the file is truncated")
    if not rows:
        raise InvalidInput(f"{file} has no rows")
    return rows


def _patch(row: Mapping[str, str]) -> str:
    """Build the path of a Camelyon17 patch; the patient's number is written with three digits."""
    place = f"patient_{int(row['patient']):03d}_node_{int(row['node'])}"
    return f"patches/{place}/patch_{place}_x_{int(row['x_coord'])}_y_{int(row['y_coord'])}.png"


def _hospital_split(row: Mapping[str, str]) -> str:
    """Return the split of a row: hospitals 1 and 2 are held out; the file marks part of the others as id_val."""
    held = {1: "val", 2: "test"}.get(int(row["center"]))
    return held or ("train", "id_val")[int(row["split"])]


def _categories(file: Path, classes: int) -> list[str] | None:
    """Read names by label from categories.csv (columns y, name), if it exists."""
    if not file.is_file():
        return None
    named = {int(r["y"]): r["name"] for r in _table(file, ("y", "name")) if r["y"].isdecimal()}
    return [named.get(k, str(k)) for k in range(classes)]


@reader("breeds")
def _breeds(
    path: str,
    *,
    task: Literal["entity13", "entity30", "living17", "nonliving26"] = "entity13",
    split: hierarchy.Domain,
    part: Literal["train", "val"] = "train",
    map: str | None = None,  # noqa: A002  # the key of the grammar
    hierarchy: str | None = None,
) -> Images:
    """BREEDS on an ImageNet folder of wnids (or with train/ and val/), labelled by super-class.

    The sub-classes of both domains come from ``map``, a JSON file, or are drawn from a ``hierarchy`` folder.
    """
    root = existing(Path(path), "ImageNet folder", folder=True)
    root = root / part if (root / part).is_dir() else root
    groups = _breeds_groups(map, hierarchy, task)[split]
    wnids = {w: k for k, group in enumerate(groups.values()) for w in group}
    files = {w: _image_files(existing(root / w, "class folder", folder=True)) for w in sorted(wnids)}
    empty = next((w for w, found in files.items() if not found), None)
    if empty is not None:
        raise InvalidInput(f"{root / empty} holds no image files")
    by_wnid = _by_class(root, files, f"{task}-{split}")
    table = {k: wnids[w] for k, w in enumerate(sorted(wnids))}
    return by_wnid.relabel(table, tuple(groups))


def _breeds_groups(given: str | None, folder: str | None, task: str) -> dict[hierarchy.Domain, hierarchy.Groups]:
    if (given is None) == (folder is None):
        raise InvalidInput("breeds: needs either map=FILE.json (sub-classes as data) or hierarchy=FOLDER")
    if given is not None:
        return hierarchy.read_map(Path(given), task)
    assert folder is not None
    return hierarchy.breeds_map(Path(folder), task)


def beside(name: str, file: Path) -> Path:
    """Find a second file: by its own path, or else in the folder of the first.

    Parameters
    ----------
    name : str
        Path or file name of the second file.
    file : Path
        The first file.

    Returns
    -------
    Path
        ``name`` if something is there, otherwise that name in the folder of ``file``, which may not exist.

    Examples
    --------
    >>> beside("labels.npz", Path("data/sheet.png")).as_posix()
    'data/labels.npz'
    """
    return Path(name) if Path(name).exists() else file.parent / name


# --- other libraries and noise --------------------------------------------------------------------------------------


@reader("hf")
def _hf(path: str, *, split: str = "test", image: str | None = None, label: str | None = None) -> Images:
    """A data set of the Hugging Face datasets library, from a local folder or its cache; the network is not used."""
    table = _hf_table(path, split)
    from datasets import ClassLabel, Image  # imported here, after a missing library has raised MissingExtra

    features = table.features
    pictures = [k for k, f in features.items() if isinstance(f, Image)]
    column = image or (pictures[0] if pictures else None)
    if column is None or column not in features:
        raise InvalidInput(f"hf:{path} has no image column {image or ''}; its columns are {list(features)}")
    classes = [k for k, f in features.items() if isinstance(f, ClassLabel)]
    truth = label or (classes[0] if classes else None)
    if truth is not None and truth not in features:
        raise InvalidInput(f"hf:{path} has no label column {truth}; its columns are {list(features)}")
    names = features[truth].names if truth in classes else None
    source = TableSource(table, column, f"hf:{path}")
    return Images.of(
        source, None if truth is None else table[truth][:], class_names=names, name=f"{Path(path).name}-{split}"
    )


def _hf_table(path: str, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("hf: needs the datasets library: pip install datasets") from error
    try:
        with _hf_offline():
            if (Path(path) / "state.json").is_file():
                return datasets.load_from_disk(path)
            if (Path(path) / "dataset_dict.json").is_file():
                return datasets.load_from_disk(path)[split]
            return datasets.load_dataset(path, split=split)
    except KeyError as error:
        raise InvalidInput(f"hf:{path} has no split {split!r}") from error
    except Exception as error:  # the library raises its own and those of its back ends
        raise InvalidInput(
            f"hf:{path}?split={split} is neither a local data set nor in the local cache, or cannot be read "
            f"({type(error).__name__}: {error}); download it first, nothing is fetched here"
        ) from error


@contextmanager
def _hf_offline() -> Iterator[None]:
    """Do for one call what HF_DATASETS_OFFLINE=1 and HF_HUB_OFFLINE=1 do."""
    import datasets.config
    import datasets.utils.logging as log
    import huggingface_hub.constants as hub

    flags: list[tuple[Any, str]] = [
        (datasets.config, "HF_DATASETS_OFFLINE"),
        (datasets.config, "HF_HUB_OFFLINE"),
        (hub, "HF_HUB_OFFLINE"),
    ]
    before = [(place, name, getattr(place, name)) for place, name in flags if hasattr(place, name)]
    bars = log.is_progress_bar_enabled()
    try:
        for place, name, _ in before:
            setattr(place, name, True)
        log.disable_progress_bar()
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
        if bars:
            log.enable_progress_bar()


@reader("noise")
def _noise(path: str, *, n: int = 1000, size: int = 32, seed: int = 0, mean: float = 0.5, std: float = 1.0) -> Images:
    """Noise images: gaussian (mean and std of values in [0, 1], clipped) or uniform, without labels.

    The defaults of gaussian are those of Liang, Li, Srikant, ICLR 2018 (ODIN); the unknown-detection paper states none.
    """
    if path not in ("gaussian", "uniform"):
        raise UnknownName.of("noise", path, ("gaussian", "uniform"))
    if path == "uniform" and (mean, std) != (0.5, 1.0):
        raise InvalidInput("noise:uniform has no mean and std; they belong to noise:gaussian")
    number(std, "std", 0, np.inf, open_high=True)
    kind: Literal["gaussian", "uniform"] = "gaussian" if path == "gaussian" else "uniform"
    source = NoiseSource(kind, whole(n, "n", 1), whole(size, "size", 1), seed, mean, std)
    return Images.of(source, name=f"noise-{path}")
