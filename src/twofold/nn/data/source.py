"""Images as rows: one frozen type over arrays, files and generated noise.

Row i is the same image whenever it is read, so a pass over the data can be cut, shared and resumed anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._checks import ArrayLike, Labels, whole
from twofold._checks import labels as class_labels
from twofold.errors import InvalidInput, MissingExtra, UnknownName

Pixels: TypeAlias = npt.NDArray[np.uint8]
Ids: TypeAlias = npt.NDArray[Any]
Rows: TypeAlias = Any  # a slice, a range, or integers or booleans by row
Step: TypeAlias = tuple[Literal["pad", "shorter", "crop", "exact"], int]
Noise: TypeAlias = Literal["gaussian", "uniform"]

BLOCK_BYTES = 1 << 23  # of pixels that a pass over a set holds at a time


class Source(Protocol):
    """Where pixels come from: a length, raw images by row, and a name for error messages."""

    def __len__(self) -> int: ...

    def raw(self, rows: Labels) -> Pixels | list[Pixels]:
        """RGB images (H, W, 3) of these rows; one array where all have one size."""
        ...

    def where(self, row: int) -> str:
        """What to call this row in a message."""
        ...


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Images of an array, in memory or memory-mapped: (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)."""

    pixels: Pixels
    name: str

    @classmethod
    def of(cls, pixels: Any, name: str) -> Self:
        """Check the shape and type of an array."""
        array = pixels if isinstance(pixels, np.ndarray) else np.asarray(pixels)
        if array.dtype != np.uint8:
            raise InvalidInput(
                f"{name}: images must be uint8 in 0..255, got {array.dtype}; scale, round and save as uint8"
            )
        if array.ndim == 3:
            array = array[..., None]
        if array.ndim == 4 and array.shape[3] not in (1, 3) and array.shape[1] in (1, 3):
            array = array.transpose(0, 2, 3, 1)
        if array.ndim != 4 or array.shape[3] not in (1, 3):
            want = "(N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)"
            raise InvalidInput(f"{name}: images must be {want}, got shape {pixels.shape}")
        if 0 in array.shape[1:]:
            raise InvalidInput(f"{name}: images are empty, shape {pixels.shape}")
        return cls(array, name)

    def __len__(self) -> int:
        return len(self.pixels)

    def raw(self, rows: Labels) -> Pixels:
        """A copy of these rows, grey repeated to RGB."""
        together = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        block = self.pixels[rows[0] : rows[-1] + 1] if together else self.pixels[rows]
        if block.shape[3] == 1:
            return np.repeat(block, 3, axis=3)
        return np.array(block, order="C")

    def where(self, row: int) -> str:
        """File and row."""
        return f"{self.name}, image {row}"


@dataclass(frozen=True, eq=False)
class FileSource:
    """Image files, decoded when read."""

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def raw(self, rows: Labels) -> list[Pixels]:
        """Decode these files."""
        return [decoded(self.paths[i]) for i in rows.tolist()]

    def where(self, row: int) -> str:
        """The file."""
        return str(self.paths[row])


@dataclass(frozen=True, eq=False)
class NoiseSource:
    """Independent noise in every channel of every pixel; row i depends on the seed and i alone."""

    kind: Noise
    count: int
    size: int
    seed: int
    mean: float = 0.5
    std: float = 1.0

    def __len__(self) -> int:
        return self.count

    def raw(self, rows: Labels) -> Pixels:
        """Draw these rows."""
        shape = (self.size, self.size, 3)
        result = np.empty((len(rows), *shape), dtype=np.uint8)
        for place, row in enumerate(rows.tolist()):
            rng = np.random.default_rng([self.seed, row])
            if self.kind == "uniform":
                result[place] = rng.integers(0, 256, size=shape, dtype=np.uint8)
            else:
                result[place] = np.rint(255 * np.clip(rng.normal(self.mean, self.std, size=shape), 0, 1))
        return result

    def where(self, row: int) -> str:
        """Kind and row."""
        return f"{self.kind} noise, image {row}"


@dataclass(frozen=True, eq=False)
class TableSource:
    """Images of one column of a table that gives its rows as dictionaries of PIL images."""

    table: Any
    column: str
    name: str

    def __len__(self) -> int:
        return len(self.table)

    def raw(self, rows: Labels) -> list[Pixels]:
        """Fetch these rows one by one."""
        return [self._one(i) for i in rows.tolist()]

    def _one(self, row: int) -> Pixels:
        try:
            return rgb(self.table[row][self.column], self.where(row))
        except InvalidInput:
            raise
        except BROKEN as error:
            raise InvalidInput(f"{self.where(row)} is no readable image: {error}") from error

    def where(self, row: int) -> str:
        """Name and row."""
        return f"{self.name}, image {row}"


@dataclass(frozen=True, eq=False)
class Images:
    """A data set of images as rows.

    ``labels`` are class numbers, -1 where a row has no class; ``ids`` are stable names of the rows, which views keep.
    Build one with :meth:`of` or with :func:`twofold.nn.data.open`.

    >>> images = Images.of(np.zeros((4, 8, 8), np.uint8), [0, 1, 1, -1], class_names=("cat", "dog"))
    >>> len(images), images.shape, images.read(slice(0, 2)).shape
    (4, (8, 8), (2, 8, 8, 3))
    >>> images.subset(["dog"]).ids
    array([1, 2])
    """

    source: Source
    labels: Labels
    ids: Ids
    class_names: tuple[str, ...] | None = None
    name: str = "images"
    rows: Labels | None = None  # rows of the source, None for all in order
    steps: tuple[Step, ...] = ()  # how every image is brought to one size

    @classmethod
    def of(
        cls,
        pixels: Any,
        labels: ArrayLike = None,
        *,
        ids: Any = None,
        class_names: Sequence[str] | None = None,
        name: str = "images",
    ) -> Self:
        """Images of an array or another source, checked; no labels means -1 everywhere, no ids the row numbers."""
        source: Source = pixels if hasattr(pixels, "raw") else ArraySource.of(pixels, name)
        count = len(source)
        if count == 0:
            raise InvalidInput(f"{name}: there are no images")
        names = None if class_names is None else tuple(str(c) for c in class_names)
        return cls(
            source,
            _checked_labels(labels, count, None if names is None else len(names), name),
            _checked_ids(ids, count, name),
            names,
            name,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Rows) -> Images:
        some = self._places(rows)
        inner = some if self.rows is None else self.rows[some]
        return replace(self, labels=_frozen(self.labels[some]), ids=_frozen(self.ids[some]), rows=_frozen(inner))

    def __repr__(self) -> str:
        classes = "" if self.class_names is None else f", {len(self.class_names)} classes"
        return f"<Images {self.name}: {len(self)} rows{classes}>"

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Height and width; without a size rule, those of the first image."""
        if len(self) == 0:
            raise InvalidInput(f"{self.name}: no rows are left, so the images have no size")
        first = self.read(slice(0, 1))
        return int(first.shape[1]), int(first.shape[2])

    def read(self, rows: Rows = slice(None)) -> Pixels:
        """Decoded images (B, H, W, 3) of these rows, all of one size."""
        some = self._places(rows)
        inner = some if self.rows is None else self.rows[some]
        raw = self.source.raw(inner)
        if isinstance(raw, np.ndarray) and not self.steps:
            return raw
        ready = [fitted(image, self.steps, self._namer(row)) for image, row in zip(raw, inner.tolist(), strict=True)]
        odd = next((i for i, image in enumerate(ready) if image.shape != ready[0].shape), None)
        if odd is not None:
            (h, w), (y, x) = ready[0].shape[:2], ready[odd].shape[:2]
            raise InvalidInput(
                f"{self.name}: images differ in size: {self.source.where(int(inner[0]))} is {h}x{w}, "
                f"{self.source.where(int(inner[odd]))} is {y}x{x}; pass size= (shorter side) and crop="
            )
        return np.stack(ready) if ready else np.empty((0, *self.shape, 3), dtype=np.uint8)

    def blocks(self) -> Iterator[Pixels]:
        """All rows in order, a few megabytes at a time."""
        height, width = self.shape
        step = max(BLOCK_BYTES // (3 * height * width), 1)
        for start in range(0, len(self), step):
            yield self.read(slice(start, start + step))

    def fit(self, *, pad: int | None = None, size: int | None = None, crop: int | None = None) -> Images:
        """Every image padded with zeros, its shorter side then resized to ``size``, its centre ``crop`` then cut out.

        The resize is PIL's bilinear, which is antialiased. ``size`` alone also crops the centre square, so that all
        images come out equal. Rules already set come first.
        """
        steps: list[Step] = []
        if pad is not None:
            steps.append(("pad", whole(pad, "pad", 0)))
        if size is not None:
            steps.append(("shorter", whole(size, "size", 1)))
        if crop is not None or size is not None:
            steps.append(("crop", whole(size if crop is None else crop, "crop", 1)))
        return self.stepped(*steps)

    def stepped(self, *steps: Step) -> Images:
        """More size rules behind those already set."""
        return replace(self, steps=(*self.steps, *steps))

    def relabel(self, labels: Any, class_names: Sequence[str] | None = None) -> Images:
        """Other labels: one for all, one by row, or a mapping from old to new (what it leaves out becomes -1).

        >>> images = Images.of(np.zeros((3, 8, 8), np.uint8), [0, 1, 2])
        >>> images.relabel({0: 1, 2: 0}).labels
        array([ 1, -1,  0])
        """
        if isinstance(labels, Mapping):
            table = {int(old): int(new) for old, new in labels.items()}
            new: Any = [table.get(old, -1) for old in self.labels.tolist()]
        elif np.ndim(labels) == 0:
            new = np.full(len(self), labels)
        else:
            new = labels
        names = None if class_names is None else tuple(str(c) for c in class_names)
        checked = _checked_labels(new, len(self), None if names is None else len(names), self.name)
        return replace(self, labels=checked, class_names=names)

    def subset(self, classes: Any, *, keep_labels: bool = False) -> Images:
        """Rows of these classes, given by name or number.

        Labels become 0, 1, ... in the order given, or stay as they are with ``keep_labels``.
        """
        numbers = self.class_numbers(classes)
        kept = self[np.flatnonzero(np.isin(self.labels, numbers))]
        if len(kept) == 0:
            raise InvalidInput(f"{self.name}: no row has one of the classes {numbers[:5]}")
        if keep_labels:
            return kept
        names = None if self.class_names is None else [self.class_names[k] for k in numbers]
        return kept.relabel({old: new for new, old in enumerate(numbers)}, names)

    def class_numbers(self, classes: Any) -> list[int]:
        """Numbers of classes given by name or number."""
        given = [classes] if isinstance(classes, str | int | np.integer) else list(classes)
        numbers = [self._class_number(c) for c in given]
        if len(set(numbers)) != len(numbers):
            twice = next(c for i, c in enumerate(given) if numbers[i] in numbers[:i])
            raise InvalidInput(f"classes: {twice!r} is given twice")
        if not numbers:
            raise InvalidInput("classes is empty; name at least one")
        return numbers

    def _class_number(self, given: Any) -> int:
        names = self.class_names
        if isinstance(given, str):
            if names is not None and given in names:
                return names.index(given)
            if not given.isdigit():
                if names is None:
                    raise InvalidInput(f"{self.name} has no class names; give class numbers instead of {given!r}")
                raise UnknownName.of(f"class of {self.name}", given, names)
            given = int(given)
        number = whole(given, "class", 0)
        top = int(self.labels.max(initial=-1)) + 1 if names is None else len(names)
        if number >= top:
            raise InvalidInput(f"class {number} is not in {self.name}, whose classes are 0..{top - 1}")
        return number

    def _places(self, rows: Rows) -> Labels:
        """Row numbers in 0..N-1."""
        if isinstance(rows, slice):
            return np.arange(*rows.indices(len(self)), dtype=np.int64)
        some = np.asarray(rows)
        if some.size == 0 and some.ndim == 1:
            return np.empty(0, dtype=np.int64)
        if some.ndim != 1 or some.dtype.kind not in "iub":
            raise InvalidInput(f"rows must be a slice or a list of row numbers, got {rows!r}; for one row use [i:i+1]")
        if some.dtype.kind == "b":
            if len(some) != len(self):
                raise InvalidInput(f"rows is a mask of {len(some)} but {self.name} has {len(self)} rows")
            return np.flatnonzero(some)
        some = some.astype(np.int64)
        beyond = (some < -len(self)) | (some >= len(self))
        if beyond.any():
            raise InvalidInput(f"row {some[beyond.argmax()]} is not in {self.name}, which has {len(self)} rows")
        return np.where(some < 0, some + len(self), some)

    def _namer(self, row: int) -> Callable[[], str]:
        return lambda: self.source.where(row)


def fitted(image: Pixels, steps: tuple[Step, ...], where: Callable[[], str]) -> Pixels:
    """One image brought to size by the steps."""
    for kind, value in steps:
        height, width = image.shape[:2]
        if kind == "pad":
            image = np.pad(image, ((value, value), (value, value), (0, 0)))
        elif kind == "shorter":
            image = _resized(image, *_shorter(height, width, value))
        elif kind == "exact":
            image = _resized(image, value, value)
        else:
            if min(height, width) < value:
                raise InvalidInput(f"{where()} is {height}x{width}, smaller than crop={value}; pass size= or pad= too")
            top, left = round((height - value) / 2), round((width - value) / 2)
            image = image[top : top + value, left : left + value]
    return image


def _shorter(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width with the shorter one at ``size``, the longer cut to a whole number as torchvision does."""
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _resized(image: Pixels, height: int, width: int) -> Pixels:
    """Bilinear with PIL, which widens the kernel when it shrinks and so does not alias."""
    if image.shape[:2] == (height, width):
        return image
    pil = pillow()
    return np.asarray(pil.fromarray(np.ascontiguousarray(image)).resize((width, height), pil.Resampling.BILINEAR))


def pillow() -> Any:
    """The module ``PIL.Image``."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("images need Pillow: pip install pillow") from error
    return Image


# what decoders raise on damaged bytes; a decompression bomb is a plain Exception in Pillow and is named by its class
BROKEN = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error)


def decoded(path: Path) -> Pixels:
    """An image file as RGB."""
    pil = pillow()
    try:
        with pil.open(path) as image:
            return rgb(image, str(path))
    except InvalidInput:
        raise
    except FileNotFoundError as error:
        raise InvalidInput(f"{path}: there is no such image file") from error
    except (*BROKEN, pil.DecompressionBombError) as error:
        raise InvalidInput(f"{path} is no readable image: {error}") from error


def rgb(image: Any, where: str) -> Pixels:
    """A PIL image as 8-bit RGB; grey is repeated, transparency dropped, more than 8 bits refused."""
    if image.mode[0] in "IF":
        raise InvalidInput(f"{where} has more than 8 bits a channel (mode {image.mode}); save it with 8 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return np.asarray(image.convert("RGB"))


def _checked_labels(value: ArrayLike, count: int, classes: int | None, name: str) -> Labels:
    if value is None:
        return _frozen(np.full(count, -1, dtype=np.int64))
    result = class_labels(value, f"{name}: labels", classes=classes) if np.size(value) else np.empty(0, dtype=np.int64)
    if len(result) != count:
        raise InvalidInput(f"{name}: there are {len(result)} labels but {count} images")
    return _frozen(result)


def _checked_ids(value: Any, count: int, name: str) -> Ids:
    if value is None:
        return _frozen(np.arange(count))
    result = np.array(value)
    if result.ndim != 1 or len(result) != count or result.dtype.kind not in "iuU":
        raise InvalidInput(
            f"{name}: ids must be {count} strings or integers, got shape {result.shape} of {result.dtype}"
        )
    return _frozen(result.astype(np.int64) if result.dtype.kind == "u" else result)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
