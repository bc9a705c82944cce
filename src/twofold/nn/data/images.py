"""A data set of images as rows: one frozen type over arrays, files, tables and generated noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from twofold._checks import Labels, whole
from twofold._checks import labels as class_labels
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.decoding import Box, crop_file, crop_pixels
from twofold.nn.data.sizing import SizeRule, apply_size_rules
from twofold.nn.data.sources import ArraySource, EncodedSource, Source
from twofold.nn.rows import Ids, Pixels, RowSelection

ClassSelection: TypeAlias = str | int | Sequence[str | int]
Element = TypeVar("Element", bound=np.generic)

BLOCK_BYTES = 1 << 23  # of pixels that a pass over a set holds in memory at a time


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
    size_rules : tuple of (str, int), default=()
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
    size_rules: tuple[SizeRule, ...] = ()  # how every image is brought to one size

    @classmethod
    def of(
        cls,
        pixels: npt.ArrayLike | Source,
        labels: npt.ArrayLike | None = None,
        *,
        ids: npt.ArrayLike | None = None,
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
        source: Source = pixels if isinstance(pixels, Source) else ArraySource.of(pixels, name)
        count = len(source)
        if count == 0:
            raise InvalidInput(f"{name}: there are no images")
        names = _to_names(class_names)
        return cls(
            source,
            labels=_check_labels(labels, count, names, name),
            ids=_check_ids(ids, count, name),
            class_names=names,
            name=name,
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: RowSelection) -> Images:
        numbers = self._row_numbers(rows)
        return replace(
            self,
            labels=_freeze(self.labels[numbers]),
            ids=_freeze(self.ids[numbers]),
            rows=_freeze(self._source_rows(numbers)),
        )

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

    def read(self, rows: RowSelection = slice(None)) -> Pixels:
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
        source_rows = self._source_rows(self._row_numbers(rows))
        raw = self.source.raw(source_rows)
        if isinstance(raw, np.ndarray) and not self.size_rules:
            return raw
        images = []
        for image, row in zip(raw, source_rows.tolist(), strict=True):
            images.append(apply_size_rules(image, self.size_rules, partial(self.source.where, row)))
        if not images:
            return np.empty((0, *self.shape, 3), dtype=np.uint8)
        self._check_one_size(images, source_rows)
        return np.stack(images)

    def read_crops(
        self,
        rows: RowSelection,
        draw_box: Callable[[int, int, int], Box],
        side: int,
        *,
        draft: bool = True,
    ) -> Pixels:
        """Read a box of each image, drawn once the image's size is known, and resize it to a square.

        Parameters
        ----------
        rows : slice, sequence of int, or mask of shape (N,)
            Which rows; the images may differ in size.
        draw_box : callable
            Takes the row number and the height and width of the whole image, after the size rules if there are any, and
            returns the :class:`~twofold.nn.data.decoding.Box` to cut out.
        side : int
            Side of the results in pixels.
        draft : bool, default=True
            Let JPEG files be decoded at a reduced size where the box keeps at least ``side`` pixels each way; see
            :func:`~twofold.nn.data.decoding.crop_file`.

        Returns
        -------
        ndarray of uint8, shape (B, side, side, 3)
            The resized boxes.

        Raises
        ------
        InvalidInput
            If a row does not exist.
        UnreadableImage
            If a file cannot be decoded.

        Examples
        --------
        >>> images = Images.of(np.zeros((2, 8, 12), np.uint8))
        >>> images.read_crops([1], lambda row, height, width: Box(0, 0, height, height), 4).shape
        (1, 4, 4, 3)
        """
        numbers = self._row_numbers(rows)
        result = np.empty((len(numbers), side, side, 3), dtype=np.uint8)
        for place, (number, row) in enumerate(zip(numbers.tolist(), self._source_rows(numbers).tolist(), strict=True)):
            if isinstance(self.source, EncodedSource) and not self.size_rules:
                where = self.source.where(row)
                result[place] = crop_file(self.source.encoded(row), where, partial(draw_box, number), side, draft=draft)
            else:
                whole_image = self.read(slice(number, number + 1))[0]
                box = draw_box(number, *whole_image.shape[:2])
                result[place] = crop_pixels(whole_image, box, side)
        return result

    def _check_one_size(self, images: Sequence[Pixels], source_rows: Labels) -> None:
        """Raise unless all images have the size of the first."""
        for image, row in zip(images, source_rows.tolist(), strict=True):
            if image.shape != images[0].shape:
                first_height, first_width = images[0].shape[:2]
                height, width = image.shape[:2]
                raise InvalidInput(
                    f"{self.name}: images differ in size: "
                    f"{self.source.where(int(source_rows[0]))} is {first_height}x{first_width}, "
                    f"{self.source.where(row)} is {height}x{width}; "
                    "open the data set with ?size= (shorter side), or train and extract with resize= and crop="
                )

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
        block_rows = max(BLOCK_BYTES // (3 * height * width), 1)
        for start in range(0, len(self), block_rows):
            yield self.read(slice(start, start + block_rows))

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
        rules: list[SizeRule] = []
        if pad is not None:
            rules.append(("pad", whole(pad, "pad", 0)))
        if size is not None:
            rules.append(("shorter", whole(size, "size", 1)))
            crop = size if crop is None else crop
        if crop is not None:
            rules.append(("crop", whole(crop, "crop", 1)))
        return self.with_size_rules(*rules)

    def with_size_rules(self, *rules: SizeRule) -> Images:
        """Append size rules to those already set.

        Parameters
        ----------
        *rules : (str, int)
            Rules in order: ``("pad", pixels)``, ``("shorter", side)``, ``("crop", side)`` or ``("exact", side)``; the
            last resizes both sides and may change the aspect ratio.

        Returns
        -------
        Images
            A view; the rules act when rows are read.

        Examples
        --------
        >>> Images.of(np.zeros((2, 8, 12), np.uint8)).with_size_rules(("exact", 6)).shape
        (6, 6)
        """
        return replace(self, size_rules=(*self.size_rules, *rules))

    def relabel(self, labels: npt.ArrayLike | Mapping[int, int], class_names: Sequence[str] | None = None) -> Images:
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
            by_old_label = {int(old): int(new) for old, new in labels.items()}
            labels = [by_old_label.get(old, -1) for old in self.labels.tolist()]
        elif np.ndim(labels) == 0:
            labels = np.full(len(self), labels)
        names = _to_names(class_names)
        return replace(self, labels=_check_labels(labels, len(self), names, self.name), class_names=names)

    def subset(self, classes: ClassSelection, *, keep_labels: bool = False) -> Images:
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
        return kept.renumber(numbers)

    def renumber(self, numbers: Sequence[int]) -> Images:
        """Renumber some classes as 0, 1, ... in the order given; rows of other classes get the label -1.

        Parameters
        ----------
        numbers : sequence of int
            Class numbers.

        Returns
        -------
        Images
            A view with the new labels and the names of these classes.

        Examples
        --------
        >>> Images.of(np.zeros((3, 8, 8), np.uint8), [0, 1, 2]).renumber([2, 1]).labels
        array([-1,  1,  0])
        """
        names = None if self.class_names is None else [self.class_names[number] for number in numbers]
        return self.relabel({old: new for new, old in enumerate(numbers)}, names)

    @property
    def class_count(self) -> int:
        """Number of classes: of the class names or, without names, one more than the largest label."""
        if self.class_names is not None:
            return len(self.class_names)
        return int(self.labels.max(initial=-1)) + 1

    def class_numbers(self, classes: ClassSelection) -> list[int]:
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
        selected = [classes] if isinstance(classes, str | int | np.integer) else list(classes)
        if not selected:
            raise InvalidInput("classes is empty; name at least one")
        numbers: list[int] = []
        for one in selected:
            number = self._class_number(one)
            if number in numbers:
                raise InvalidInput(f"classes: {one!r} is given twice")
            numbers.append(number)
        return numbers

    def _class_number(self, selected: str | int) -> int:
        """Look up one class; text that is not a class name may be a number."""
        if isinstance(selected, str):
            names = self.class_names
            if names is not None and selected in names:
                return names.index(selected)
            if not selected.isdigit():
                if names is None:
                    raise InvalidInput(f"{self.name} has no class names; give class numbers instead of {selected!r}")
                raise UnknownName.of(f"class of {self.name}", selected, names)
            selected = int(selected)
        number = whole(selected, "class", 0)
        if number >= self.class_count:
            raise InvalidInput(f"class {number} is not in {self.name}, whose classes are 0..{self.class_count - 1}")
        return number

    def _source_rows(self, numbers: Labels) -> Labels:
        """Translate row numbers of this view into those of the source."""
        return numbers if self.rows is None else self.rows[numbers]

    def _row_numbers(self, rows: RowSelection) -> Labels:
        """Turn a selection into row numbers in 0..N-1."""
        if isinstance(rows, slice):
            return np.arange(*rows.indices(len(self)), dtype=np.int64)
        selected = np.asarray(rows)
        if selected.size == 0 and selected.ndim == 1:
            return np.empty(0, dtype=np.int64)
        if selected.ndim != 1 or selected.dtype.kind not in "iub":
            raise InvalidInput(f"rows must be a slice or a list of row numbers, got {rows!r}; for one row use [i:i+1]")
        if selected.dtype.kind == "b":
            if len(selected) != len(self):
                raise InvalidInput(f"rows is a mask of {len(selected)} but {self.name} has {len(self)} rows")
            return np.flatnonzero(selected)
        numbers = selected.astype(np.int64)
        is_beyond = (numbers < -len(self)) | (numbers >= len(self))
        if is_beyond.any():
            raise InvalidInput(f"row {numbers[is_beyond.argmax()]} is not in {self.name}, which has {len(self)} rows")
        return np.where(numbers < 0, numbers + len(self), numbers)


def _to_names(class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    if class_names is None:
        return None
    return tuple(str(name) for name in class_names)


def _check_labels(labels: npt.ArrayLike | None, count: int, class_names: tuple[str, ...] | None, name: str) -> Labels:
    """Return one label for each of ``count`` images, all -1 without labels."""
    if labels is None:
        return _freeze(np.full(count, -1, dtype=np.int64))
    result = np.empty(0, dtype=np.int64)
    if np.size(labels):
        classes = None if class_names is None else len(class_names)
        result = class_labels(labels, f"{name}: labels", classes=classes)
    if len(result) != count:
        raise InvalidInput(f"{name}: there are {len(result)} labels but {count} images")
    return _freeze(result)


def _check_ids(ids: npt.ArrayLike | None, count: int, name: str) -> Ids:
    """Return one id for each of ``count`` images, the row numbers without ids."""
    if ids is None:
        return _freeze(np.arange(count))
    result = np.array(ids)
    if result.ndim != 1 or len(result) != count or result.dtype.kind not in "iuU":
        raise InvalidInput(
            f"{name}: ids must be {count} strings or integers, got shape {result.shape} of {result.dtype}"
        )
    if result.dtype.kind == "u":
        result = result.astype(np.int64)
    return _freeze(result)


def _freeze(array: npt.NDArray[Element]) -> npt.NDArray[Element]:
    array.flags.writeable = False
    return array
