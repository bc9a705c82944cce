"""Corrupted images, and data sets whose images are corrupted when they are read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Labels
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.corruptions._apply import Constants, corrupt_rows
from twofold.nn.corruptions._pixels import Bytes
from twofold.nn.corruptions.severities import LEAST, LEVELS, NAMES
from twofold.nn.rows import Ids, ImageRows, RowSelection


def corrupt(
    images: npt.ArrayLike, name: str, level: int, *, seed: int = 0, first: int = 0, constants: Constants = "size"
) -> Bytes:
    """Corrupt a batch of images.

    Parameters
    ----------
    images : array-like of uint8, shape (N, H, W, 3)
        Clean images with sides of at least 8 pixels. Give grey images three equal channels.
    name : str
        One of the 15 corruptions in ``NAMES``, such as ``"fog"``.
    level : int
        Severity, 1 to 5.
    seed : int, default=0
        Seed of the random numbers.
    first : int, default=0
        Global row of the first image. Set it when a data set is corrupted in blocks, so that each image gets the same
        random numbers as in one piece.
    constants : {"size", "cifar", "imagenet"}, default="size"
        Which constants to use: by the size of the images, or always those of CIFAR-10-C or ImageNet-C.

    Returns
    -------
    ndarray of uint8, shape (N, H, W, 3)
        The corrupted images.

    Raises
    ------
    UnknownName
        If there is no such corruption.
    InvalidInput
        If the images have another type or shape, or ``level``, ``seed``, ``first`` or ``constants`` is not valid.

    References
    ----------
    Hendrycks, Dietterich, ICLR 2019, arXiv:1903.12261. The module's docstring lists the differences from their code.

    Examples
    --------
    >>> grey = np.full((2, 32, 32, 3), 100, dtype=np.uint8)
    >>> int(corrupt(grey, "brightness", 5).max())
    176
    >>> whole = corrupt(grey, "snow", 2, seed=7)
    >>> bool((corrupt(grey[1:], "snow", 2, seed=7, first=1) == whole[1:]).all())
    True
    """
    start = _checks.whole(first, "first", 0)
    pixels = _check_images(images)
    return corrupt_rows(
        pixels, np.arange(start, start + len(pixels)), _check_name(name), _check_level(level), seed, constants
    )


@dataclass(frozen=True, eq=False)
class Corrupted:
    """View a data set through one corruption: images are corrupted when they are read, labels and ids stay the same.

    Build one with :func:`corrupted`, which checks its arguments.

    Parameters
    ----------
    images : object
        The clean data set: anything with ``read(rows)``, ``labels``, ``ids`` and a length.
    corruption : str
        One of ``NAMES``.
    level : int
        Severity, 1 to 5.
    seed : int, default=0
        Seed of the random numbers.

    Examples
    --------
    >>> from twofold.nn.data import open
    >>> view = corrupted(open("noise:uniform?n=4&size=32"), "gaussian_noise", 1)
    >>> bool((view.read(slice(2, 4))[0] == view.read([2])[0]).all())
    True
    """

    images: ImageRows
    corruption: str
    level: int
    seed: int = 0

    def __len__(self) -> int:
        return len(self.images)

    @property
    def name(self) -> str:
        """Name of the data set, corruption and level, joined by hyphens.

        Examples
        --------
        >>> from twofold.nn.data import open
        >>> corrupted(open("noise:uniform?n=4&size=32"), "fog", 3).name
        'noise-uniform-fog-3'
        """
        return f"{getattr(self.images, 'name', 'images')}-{self.corruption}-{self.level}"

    @property
    def labels(self) -> Labels:
        """Labels of the clean images.

        Examples
        --------
        >>> from twofold.nn.data import open
        >>> corrupted(open("noise:uniform?n=3&size=32"), "fog", 3).labels
        array([-1, -1, -1])
        """
        return self.images.labels

    @property
    def ids(self) -> Ids:
        """Ids of the clean images.

        Examples
        --------
        >>> from twofold.nn.data import open
        >>> corrupted(open("noise:uniform?n=3&size=32"), "fog", 3).ids
        array([0, 1, 2])
        """
        return self.images.ids

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names of the clean images, if they have any."""
        return getattr(self.images, "class_names", None)

    def read(self, rows: RowSelection) -> Bytes:
        """Read the corrupted images of some rows; a row is the same image, no matter which rows are read with it.

        Parameters
        ----------
        rows : slice, range or array-like of int
            Which rows.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The corrupted images.

        Raises
        ------
        InvalidInput
            If the clean images are not uint8 (B, H, W, 3) with sides of at least 8 pixels.
        """
        selection = rows if isinstance(rows, slice) else np.asarray(rows)
        index = np.arange(len(self))[selection]
        pixels = _check_images(self.images.read(rows))
        _checks.same_rows(rows=index, images=pixels)
        return corrupt_rows(pixels, index, self.corruption, self.level, self.seed, "size")


def corrupted(images: ImageRows, name: str, level: int, *, seed: int = 0) -> Corrupted:
    """Make a lazily corrupted view of a data set.

    Parameters
    ----------
    images : object
        The clean data set: anything with ``read(rows)``, ``labels``, ``ids`` and a length, such as
        :class:`twofold.nn.data.Images`. For a plain array use :func:`corrupt`.
    name : str
        One of the 15 corruptions in ``NAMES``.
    level : int
        Severity, 1 to 5.
    seed : int, default=0
        Seed of the random numbers.

    Returns
    -------
    Corrupted
        The view; images are corrupted when they are read.

    Raises
    ------
    UnknownName
        If there is no such corruption.
    InvalidInput
        If ``images`` lacks one of these attributes, or ``level`` or ``seed`` is not valid.

    Examples
    --------
    >>> from twofold.nn.data import open
    >>> view = corrupted(open("noise:uniform?n=4&size=32"), "fog", 3)
    >>> view.name, view.read([0, 2]).shape
    ('noise-uniform-fog-3', (2, 32, 32, 3))
    """
    missing = [attribute for attribute in ("read", "labels", "ids", "__len__") if not hasattr(images, attribute)]
    if missing:
        raise InvalidInput(
            f"images must have read(rows), labels, ids and len(), got {type(images).__name__} without "
            f"{', '.join(missing)}; for a plain array use corrupt(images, {name!r}, {level!r})"
        )
    return Corrupted(images, _check_name(name), _check_level(level), _checks.whole(seed, "seed", 0))


def study(
    images: ImageRows, *, names: Iterable[str] = NAMES, levels: Iterable[int] = LEVELS, seed: int = 0
) -> Iterator[Corrupted]:
    """Make the views of a corruption study: every corruption at every level of one data set.

    Parameters
    ----------
    images : object
        The clean data set, as in :func:`corrupted`.
    names : iterable of str, default=NAMES
        Corruptions, by default all 15.
    levels : iterable of int, default=(1, 2, 3, 4, 5)
        Severities.
    seed : int, default=0
        Seed of the random numbers.

    Returns
    -------
    iterator of Corrupted
        The views, corruption by corruption and within each level by level.

    Raises
    ------
    UnknownName
        If there is no such corruption.
    InvalidInput
        If a level is not valid; while iterating, what :func:`corrupted` raises.

    Examples
    --------
    >>> from twofold.nn.data import open
    >>> views = study(open("noise:uniform?n=4&size=32"), names=["fog", "snow"], levels=[1, 5])
    >>> [(view.corruption, view.level) for view in views]
    [('fog', 1), ('fog', 5), ('snow', 1), ('snow', 5)]
    """
    pairs = itertools.product([_check_name(name) for name in names], [_check_level(level) for level in levels])
    return (corrupted(images, name, level, seed=seed) for name, level in pairs)


def _check_name(name: str) -> str:
    if name not in NAMES:
        raise UnknownName.of("corruption", str(name), NAMES)
    return name


def _check_level(level: int) -> int:
    number = _checks.whole(level, "level", 1)
    if number > LEVELS[-1]:
        raise InvalidInput(f"level must be 1, 2, 3, 4 or 5, got {level!r}")
    return number


def _check_images(images: npt.ArrayLike) -> Bytes:
    pixels = _checks.plain(images, "images")
    if pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[3] == 1):
        raise InvalidInput(
            f"images must be uint8 (N, H, W, 3), got shape {pixels.shape}; give grey images three equal channels, "
            "and a single image a first axis"
        )
    if pixels.ndim != 4 or pixels.shape[3] != 3:
        raise InvalidInput(f"images must be uint8 (N, H, W, 3), channels last, got shape {pixels.shape}")
    if pixels.dtype != np.uint8:
        raise InvalidInput(f"images must be uint8 in 0..255, got {pixels.dtype}; corrupt before normalising")
    if min(pixels.shape[1:3]) < LEAST:
        raise InvalidInput(f"images must have sides of at least {LEAST} pixels, got shape {pixels.shape}")
    return np.ascontiguousarray(pixels)
