"""The keys that all kinds of data sets share: size, classes, rows and corruption."""

from __future__ import annotations

import typing
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from twofold._checks import whole
from twofold.errors import InvalidInput, UnknownName
from twofold.nn import corruptions
from twofold.nn.data.classes import class_list
from twofold.nn.data.images import ClassSelection, Images
from twofold.nn.data.sources import StackedSource
from twofold.nn.data.texts import Texts
from twofold.nn.rows import draw_rows

Rows = TypeVar("Rows", Images, Texts)


@dataclass(frozen=True)
class SharedKeys:
    """Hold the keys of a specification that all kinds share, in the order in which they act; None is not set.

    Parameters
    ----------
    pad, size, crop : int, optional
        How every image is brought to one size; see :meth:`Images.fit`.
    classes : str, int, or sequence of str or int, optional
        Classes to select; text is names or numbers with commas, or ``@LIST`` for a list of
        :mod:`twofold.nn.data.classes`.
    without : str, int, or sequence of str or int, optional
        Classes to remove, in the same form.
    keep_labels : bool, optional
        Whether the remaining classes keep their numbers.
    shuffle : int, optional
        Seed of a random order, the draw of :func:`~twofold.nn.data.views.shuffled`.
    rows : str, optional
        A slice ``A:B``.
    limit : int, optional
        Number of first rows to keep.
    sample : int, optional
        Number of rows to draw without replacement; they stay in the order so far.
    corrupt : str, optional
        A corruption of :mod:`twofold.nn.corruptions`, or ``all`` for the 15 one after the other, computed when read.
    level : int, optional
        Severity of the corruption, 1 to 5.
    seed : int, optional
        Seed of ``sample`` and ``corrupt``, by default 0.
    name : str, optional
        What the data set is called.

    Examples
    --------
    >>> images = Images.of(np.zeros((4, 8, 8), np.uint8))
    >>> SharedKeys(rows="1:", limit=2).apply(images).ids
    array([1, 2])
    """

    pad: int | None = None
    size: int | None = None
    crop: int | None = None
    classes: ClassSelection | None = None
    without: ClassSelection | None = None
    keep_labels: bool | None = None
    shuffle: int | None = None
    rows: str | None = None
    limit: int | None = None
    sample: int | None = None
    corrupt: str | None = None
    level: int | None = None
    seed: int | None = None
    name: str | None = None

    def apply(self, images: Images) -> Images:
        """Apply the keys to a data set.

        Parameters
        ----------
        images : Images
            The data set.

        Returns
        -------
        Images
            A view of it.

        Raises
        ------
        InvalidInput
            If a key does not go with another, or does not fit the data set.
        UnknownName
            If a class, class list or corruption does not exist.
        """
        self._check_combinations()
        if self.pad is not None or self.size is not None or self.crop is not None:
            images = images.fit(pad=self.pad, size=self.size, crop=self.crop)
        if self.classes is not None:
            images = images.subset(_parse_classes(self.classes), keep_labels=bool(self.keep_labels))
        if self.without is not None:
            images = _remove_classes(images, _parse_classes(self.without), keep_labels=bool(self.keep_labels))
        images = self._select_rows(images)
        if self.corrupt is not None:
            images = _corrupt(images, self.corrupt, self.level, seed=self.seed or 0)
        return images if self.name is None else replace(images, name=self.name)

    def apply_to_texts(self, texts: Texts) -> Texts:
        """Apply the keys that choose and order rows to a data set of texts.

        Parameters
        ----------
        texts : Texts
            The data set.

        Returns
        -------
        Texts
            A view of it.

        Raises
        ------
        InvalidInput
            If a key is one of images, does not go with another, or does not fit the data set.

        Examples
        --------
        >>> SharedKeys(limit=1).apply_to_texts(Texts.of(["yes", "no"])).texts
        ('yes',)
        """
        for key in OF_IMAGES:
            if getattr(self, key) is not None:
                raise InvalidInput(f"{key}= is for images; texts take shuffle, rows, limit, sample, seed and name")
        self._check_combinations()
        texts = self._select_rows(texts)
        return texts if self.name is None else replace(texts, name=self.name)

    def _select_rows(self, data: Rows) -> Rows:
        """Order, cut and draw rows."""
        if self.shuffle is not None:
            data = data[np.random.default_rng(self.shuffle).permutation(len(data))]  # as views.shuffled does
        if self.rows is not None:
            data = data[_parse_slice(self.rows, len(data))]
        if self.limit is not None:
            data = data[: whole(self.limit, "limit", 1)]
        if self.sample is not None:
            data = data[draw_rows(len(data), self.sample, seed=self.seed or 0)]
        return data

    def _check_combinations(self) -> None:
        """Raise if a key excludes another, or is of no use without another."""
        if self.classes is not None and self.without is not None:
            raise InvalidInput("classes and without exclude one another; give one of them")
        if self.keep_labels is not None and self.classes is None and self.without is None:
            raise InvalidInput("keep_labels goes with classes= or without=; else labels are kept anyway")
        if self.limit is not None and self.sample is not None:
            raise InvalidInput("limit and sample exclude one another; give one of them")
        if self.seed is not None and self.sample is None and self.corrupt is None:
            raise InvalidInput("seed goes with sample= or corrupt=")
        if self.level is not None and self.corrupt is None:
            raise InvalidInput("level goes with corrupt=NAME or corrupt=all")


OF_IMAGES = ("pad", "size", "crop", "classes", "without", "keep_labels", "corrupt", "level")  # no keys of texts
SHARED_KEYS: dict[str, object] = typing.get_type_hints(SharedKeys)  # types by name


def _parse_classes(selected: ClassSelection) -> ClassSelection:
    """Return the classes that a text names: a class list, or names and numbers with commas."""
    if not isinstance(selected, str):
        return selected
    if selected.startswith("@"):
        return class_list(selected[1:])
    words = [word.strip() for word in selected.split(",")]
    return [word for word in words if word]


def _remove_classes(images: Images, classes: ClassSelection, *, keep_labels: bool) -> Images:
    """Select the rows of all other classes and those without a class; labels become 0, 1, ... or stay as they are."""
    removed = images.class_numbers(classes)
    kept = images[np.flatnonzero(~np.isin(images.labels, removed))]
    if len(kept) == 0:
        raise InvalidInput(f"{images.name}: without= leaves no rows")
    if keep_labels:
        return kept
    return kept.renumber([number for number in range(images.class_count) if number not in removed])


def _parse_slice(text: str, count: int) -> slice:
    """Parse the rows A:B of ``count``; an end that is left out is the first or last row."""
    first, colon, last = text.partition(":")
    if not colon or not _is_row_number(first or "0") or not _is_row_number(last or "0"):
        raise InvalidInput(f"rows must be A:B, A: or :B with whole numbers, got {text!r}")
    start = int(first or 0)
    stop = int(last or count)
    if stop > count:
        raise InvalidInput(f"rows={text} goes beyond the {count} rows there are")
    if start >= stop:
        raise InvalidInput(f"rows={text} holds no row of the {count} there are")
    return slice(start, stop)


def _is_row_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _corrupt(images: Images, name: str, level: int | None, *, seed: int) -> Images:
    """Corrupt images as they are read; labels and ids repeat from corruption to corruption."""
    if name != "all" and name not in corruptions.NAMES:
        raise UnknownName.of("corruption", name, ("all", *corruptions.NAMES))
    if level not in corruptions.LEVELS:
        raise InvalidInput(f"corrupt={name} needs level=1, 2, 3, 4 or 5, got {'none' if level is None else level}")
    names = corruptions.NAMES if name == "all" else (name,)
    views = [corruptions.corrupted(images, one, level, seed=seed) for one in names]
    return Images.of(
        StackedSource(tuple(views)),
        np.tile(images.labels, len(names)),
        ids=np.tile(images.ids, len(names)),
        class_names=images.class_names,
        name=f"{images.name}-{name}-{level}",
    )
