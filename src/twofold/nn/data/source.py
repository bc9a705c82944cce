"""Represent images as rows: one frozen type over arrays, files and generated noise.

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

BLOCK_BYTES = 1 << 23  # of pixels that a pass over a set holds in memory at a time


class Source(Protocol):
    """Define where pixels come from: a length, raw images by row, and a name of each row for error messages."""

    def __len__(self) -> int: ...

    def raw(self, rows: Labels) -> Pixels | list[Pixels]:
        """Read the images of some rows at their own size.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Row numbers in 0..N-1.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3), or list of ndarray of uint8, shape (H, W, 3)
            RGB images; one array where all have the same size.
        """
        ...

    def where(self, row: int) -> str:
        """Name a row for an error message.

        Parameters
        ----------
        row : int
            Row number in 0..N-1.

        Returns
        -------
        str
            Such as the path of a file.
        """
        ...


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Read images from an array, in memory or memory-mapped.

    Build one with :meth:`of`, which checks the array.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (N, H, W, 1 or 3)
        The images.
    name : str
        What the array is called in error messages.

    Examples
    --------
    >>> source = ArraySource.of(np.zeros((2, 1, 8, 8), np.uint8), "digits")
    >>> source.raw(np.array([0, 1])).shape, source.where(1)
    ((2, 8, 8, 3), 'digits, image 1')
    """

    pixels: Pixels
    name: str

    @classmethod
    def of(cls, pixels: Any, name: str) -> Self:
        """Check the shape and type of an array and move its channels last.

        Parameters
        ----------
        pixels : array-like of uint8, shape (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)
            The images.
        name : str
            What the array is called in error messages.

        Returns
        -------
        ArraySource
            The source; the pixels are not copied.

        Raises
        ------
        InvalidInput
            If the array is not uint8, has another shape, or holds images without pixels.
        """
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
        """Copy the images of some rows; grey is repeated to RGB.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Row numbers in 0..N-1.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The images.
        """
        together = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        block = self.pixels[rows[0] : rows[-1] + 1] if together else self.pixels[rows]
        if block.shape[3] == 1:
            return np.repeat(block, 3, axis=3)
        return np.array(block, order="C")

    def where(self, row: int) -> str:
        """Name the array and the row.

        Parameters
        ----------
        row : int
            Row number.

        Returns
        -------
        str
            The name for an error message.
        """
        return f"{self.name}, image {row}"


@dataclass(frozen=True, eq=False)
class FileSource:
    """Read image files, each decoded when it is needed.

    Parameters
    ----------
    paths : sequence of Path
        The files, one for each row.
    """

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def raw(self, rows: Labels) -> list[Pixels]:
        """Decode the files of some rows.

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
        InvalidInput
            If a file is missing or cannot be decoded, or has more than 8 bits a channel.
        """
        return [decoded(self.paths[i]) for i in rows.tolist()]

    def where(self, row: int) -> str:
        """Name the file of a row.

        Parameters
        ----------
        row : int
            Row number.

        Returns
        -------
        str
            The path.
        """
        return str(self.paths[row])


@dataclass(frozen=True, eq=False)
class NoiseSource:
    """Generate independent noise in every channel of every pixel; row i depends on the seed and i alone.

    Parameters
    ----------
    kind : {"gaussian", "uniform"}
        Normal noise clipped to [0, 1], or bytes of equal probability.
    count : int
        Number of images.
    size : int
        Height and width in pixels.
    seed : int
        Seed of the noise.
    mean, std : float, default=0.5 and 1.0
        Of gaussian noise, for values in [0, 1] before clipping; uniform noise ignores them.

    Examples
    --------
    >>> source = NoiseSource("uniform", count=10, size=4, seed=0)
    >>> bool((source.raw(np.array([3, 7]))[1] == source.raw(np.array([7]))[0]).all())
    True
    """

    kind: Noise
    count: int
    size: int
    seed: int
    mean: float = 0.5
    std: float = 1.0

    def __len__(self) -> int:
        return self.count

    def raw(self, rows: Labels) -> Pixels:
        """Draw the images of some rows.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Row numbers.

        Returns
        -------
        ndarray of uint8, shape (B, size, size, 3)
            The images.
        """
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
        """Name the kind of noise and the row.

        Parameters
        ----------
        row : int
            Row number.

        Returns
        -------
        str
            The name for an error message.
        """
        return f"{self.kind} noise, image {row}"


@dataclass(frozen=True, eq=False)
class TableSource:
    """Read images from one column of a table whose rows are dictionaries with PIL images, as those of Hugging Face are.

    Parameters
    ----------
    table : object
        Anything with ``len(table)`` and ``table[row][column]``.
    column : str
        The column with the images.
    name : str
        What the table is called in error messages.
    """

    table: Any
    column: str
    name: str

    def __len__(self) -> int:
        return len(self.table)

    def raw(self, rows: Labels) -> list[Pixels]:
        """Fetch the images of some rows, one by one.

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
        InvalidInput
            If an image cannot be decoded, or has more than 8 bits a channel.
        """
        return [self._one(i) for i in rows.tolist()]

    def _one(self, row: int) -> Pixels:
        try:
            return rgb(self.table[row][self.column], self.where(row))
        except InvalidInput:
            raise
        except BROKEN as error:
            raise InvalidInput(f"{self.where(row)} is no readable image: {error}") from error

    def where(self, row: int) -> str:
        """Name the table and the row.

        Parameters
        ----------
        row : int
            Row number.

        Returns
        -------
        str
            The name for an error message.
        """
        return f"{self.name}, image {row}"


@dataclass(frozen=True, eq=False)
class Images:
    """Hold a data set of images as rows, read when they are needed.

    Build one with :meth:`of` or with :func:`twofold.nn.data.open`. ``images[rows]`` is a view of some rows (a slice,
    row numbers or a mask); no pixels are read until :meth:`read`.

    Parameters
    ----------
    source : Source
        Where the pixels come from.
    labels : ndarray of int64, shape (N,)
        Class numbers, -1 where a row has no class.
    ids : ndarray, shape (N,)
        Stable names of the rows (strings or integers), which views keep.
    class_names : tuple of str, optional
        Names of the classes by number.
    name : str, default="images"
        What the data set is called in messages and reports.
    rows : ndarray of int64, optional
        Rows of the source, by default all in order.
    steps : tuple of (str, int), default=()
        Rules that bring every image to one size, in order; set them with :meth:`fit`.

    Examples
    --------
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
        """Build a data set from an array or another source, with checks.

        Parameters
        ----------
        pixels : array-like of uint8, or Source
            Images (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W), or an object with ``raw``, ``where`` and a length.
        labels : array-like of int, shape (N,), optional
            Class numbers; -1 for no class. Without labels all are -1.
        ids : array-like of str or int, shape (N,), optional
            Stable names of the rows; by default the row numbers.
        class_names : sequence of str, optional
            Names of the classes by number.
        name : str, default="images"
            What the data set is called in messages.

        Returns
        -------
        Images
            The data set.

        Raises
        ------
        InvalidInput
            If there are no images, the array is not uint8 or has another shape, or labels or ids do not fit.

        Examples
        --------
        >>> Images.of(np.zeros((3, 8, 8), np.uint8)).labels
        array([-1, -1, -1])
        """
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
        """Height and width in pixels; without a size rule, those of the first image.

        Raises
        ------
        InvalidInput
            If there are no rows.
        """
        if len(self) == 0:
            raise InvalidInput(f"{self.name}: no rows are left, so the images have no size")
        first = self.read(slice(0, 1))
        return int(first.shape[1]), int(first.shape[2])

    def read(self, rows: Rows = slice(None)) -> Pixels:
        """Read and decode the images of some rows, all of one size.

        Parameters
        ----------
        rows : slice, sequence of int, or mask of shape (N,), default=slice(None)
            Which rows; negative numbers count from the end. By default all.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The images.

        Raises
        ------
        InvalidInput
            If a row does not exist, a file cannot be decoded, or the images differ in size (use :meth:`fit`).

        Examples
        --------
        >>> Images.of(np.zeros((4, 8, 8), np.uint8)).read([0, -1]).shape
        (2, 8, 8, 3)
        """
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
        """Read all rows in order, a few megabytes at a time.

        Yields
        ------
        ndarray of uint8, shape (B, H, W, 3)
            The next images.

        Examples
        --------
        >>> sum(len(block) for block in Images.of(np.zeros((4, 8, 8), np.uint8)).blocks())
        4
        """
        height, width = self.shape
        step = max(BLOCK_BYTES // (3 * height * width), 1)
        for start in range(0, len(self), step):
            yield self.read(slice(start, start + step))

    def fit(self, *, pad: int | None = None, size: int | None = None, crop: int | None = None) -> Images:
        """Bring every image to one size: pad with zeros, then resize the shorter side, then crop the centre.

        Parameters
        ----------
        pad : int, optional
            Pixels of zeros added on each side.
        size : int, optional
            Length of the shorter side after resizing. ``size`` alone also crops the centre square, so that all images
            come out equal.
        crop : int, optional
            Side of the square that is cut from the centre; by default ``size``.

        Returns
        -------
        Images
            A view; the rules act when rows are read, behind those already set.

        Raises
        ------
        InvalidInput
            If a value is not a whole number that is large enough; on reading, if an image is smaller than ``crop``.

        Notes
        -----
        The resize is PIL's bilinear filter, which is antialiased.

        Examples
        --------
        >>> Images.of(np.zeros((2, 8, 12), np.uint8)).fit(size=4).shape
        (4, 4)
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
        """Append size rules to those already set.

        Parameters
        ----------
        *steps : (str, int)
            Rules in order: ``("pad", pixels)``, ``("shorter", side)``, ``("crop", side)`` or ``("exact", side)``; the
            last resizes both sides and may change the aspect ratio.

        Returns
        -------
        Images
            A view; the rules act when rows are read.

        Examples
        --------
        >>> Images.of(np.zeros((2, 8, 12), np.uint8)).stepped(("exact", 6)).shape
        (6, 6)
        """
        return replace(self, steps=(*self.steps, *steps))

    def relabel(self, labels: Any, class_names: Sequence[str] | None = None) -> Images:
        """Replace the labels and the class names.

        Parameters
        ----------
        labels : int, array-like of int of shape (N,), or mapping of int to int
            One label for all rows, one for each row, or new labels by old label; what a mapping leaves out becomes -1.
        class_names : sequence of str, optional
            Names of the new classes; by default there are none.

        Returns
        -------
        Images
            A view with the new labels.

        Raises
        ------
        InvalidInput
            If the labels do not fit the rows or the class names.

        Examples
        --------
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
        """Select the rows of some classes.

        Parameters
        ----------
        classes : str, int, or sequence of str or int
            Classes by name or number.
        keep_labels : bool, default=False
            Keep the labels as they are. By default they become 0, 1, ... in the order of ``classes``.

        Returns
        -------
        Images
            A view of these rows.

        Raises
        ------
        InvalidInput
            If no row has one of the classes, a class is repeated, or a number is out of range.
        UnknownName
            If a class name does not exist.

        Examples
        --------
        >>> images = Images.of(np.zeros((3, 8, 8), np.uint8), [0, 1, 2])
        >>> images.subset([2, 0]).labels
        array([1, 0])
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
        """Look up the numbers of classes.

        Parameters
        ----------
        classes : str, int, or sequence of str or int
            Classes by name or number.

        Returns
        -------
        list of int
            Their numbers, in the same order.

        Raises
        ------
        InvalidInput
            If ``classes`` is empty, repeats a class, or holds a number out of range.
        UnknownName
            If a class name does not exist.

        Examples
        --------
        >>> Images.of(np.zeros((2, 8, 8), np.uint8), [0, 1], class_names=("cat", "dog")).class_numbers("dog")
        [1]
        """
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
        """Turn a selection into row numbers in 0..N-1."""
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
    """Bring one image to size by rules in order.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        The image.
    steps : tuple of (str, int)
        Rules, as in :meth:`Images.stepped`.
    where : callable
        Returns the name of the image for an error message.

    Returns
    -------
    ndarray of uint8, shape (H', W', 3)
        The image at its new size.

    Raises
    ------
    InvalidInput
        If the image is smaller than a crop.

    Examples
    --------
    >>> fitted(np.zeros((8, 12, 3), np.uint8), (("pad", 2), ("crop", 10)), lambda: "image").shape
    (10, 10, 3)
    """
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
    """Compute height and width with the shorter one at ``size``, the longer truncated as torchvision does."""
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _resized(image: Pixels, height: int, width: int) -> Pixels:
    """Resize by PIL's bilinear filter, which widens the kernel when it shrinks and so does not alias."""
    if image.shape[:2] == (height, width):
        return image
    pil = pillow()
    return np.asarray(pil.fromarray(np.ascontiguousarray(image)).resize((width, height), pil.Resampling.BILINEAR))


def pillow() -> Any:
    """Import and return the module ``PIL.Image``.

    Returns
    -------
    module
        ``PIL.Image``.

    Raises
    ------
    MissingExtra
        If Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("images need Pillow: pip install pillow") from error
    return Image


# what decoders raise on damaged bytes; a decompression bomb is a plain Exception in Pillow and is named by its class
BROKEN = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error)


def decoded(path: Path) -> Pixels:
    """Decode an image file as 8-bit RGB.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    ndarray of uint8, shape (H, W, 3)
        The image.

    Raises
    ------
    InvalidInput
        If the file is missing or damaged, or has more than 8 bits a channel.
    MissingExtra
        If Pillow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pillow().new("RGB", (4, 2)).save(f"{folder}/black.png")
    ...     decoded(Path(folder) / "black.png").shape
    (2, 4, 3)
    """
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
    """Convert a PIL image to 8-bit RGB; grey is repeated, transparency dropped.

    Parameters
    ----------
    image : PIL.Image.Image
        The image.
    where : str
        Its name for the error message.

    Returns
    -------
    ndarray of uint8, shape (H, W, 3)
        The image.

    Raises
    ------
    InvalidInput
        If the image has more than 8 bits a channel.

    Examples
    --------
    >>> rgb(pillow().new("L", (4, 2)), "grey image").shape
    (2, 4, 3)
    """
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
