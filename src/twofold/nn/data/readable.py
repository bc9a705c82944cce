"""Leave out the images of a data set that cannot be read."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from twofold._checks import whole
from twofold.errors import SkippedImages, UnreadableImage
from twofold.nn.data.images import Images
from twofold.nn.data.sources import EncodedSource, TableSource
from twofold.nn.rows import ImageRows

Rows = TypeVar("Rows", bound=ImageRows)


def find_unreadable(images: Images, *, workers: int = 0) -> dict[int, str]:
    """Decode every image file of a data set and say which cannot be read.

    Parameters
    ----------
    images : Images
        The data set. Arrays and generated images are always readable.
    workers : int, default=0
        Number of threads that decode; 0 decodes in this one.

    Returns
    -------
    dict of int to str
        What is wrong, by row number.

    Examples
    --------
    >>> find_unreadable(Images.of(np.zeros((2, 8, 8), np.uint8)))
    {}
    """
    if not isinstance(images.source, EncodedSource | TableSource):
        return {}

    def find_problem(row: int) -> str | None:
        try:
            images.read(slice(row, row + 1))
        except UnreadableImage as error:
            return str(error)
        return None

    with ThreadPoolExecutor(max(whole(workers, "workers", 0), 1)) as threads:
        problems = list(threads.map(find_problem, range(len(images))))
    return {row: problem for row, problem in enumerate(problems) if problem is not None}


def drop_unreadable(images: Rows, *, workers: int = 0) -> Rows:
    """Leave out the images that cannot be read, with a warning that counts them.

    Parameters
    ----------
    images : ImageRows
        The data set; every image file is decoded once.
    workers : int, default=0
        Number of threads that decode; 0 decodes in this one.

    Returns
    -------
    ImageRows
        The data set itself if all can be read, else a view without those that cannot.

    Raises
    ------
    UnreadableImage
        If no image can be read.

    Warns
    -----
    SkippedImages
        If images are left out; the message names the first.

    Examples
    --------
    >>> len(drop_unreadable(Images.of(np.zeros((2, 8, 8), np.uint8))))
    2
    """
    if not isinstance(images, Images):
        return images
    problems = find_unreadable(images, workers=workers)
    if not problems:
        return images
    first = next(iter(problems.values()))
    if len(problems) == len(images):
        raise UnreadableImage(f"{images.name}: none of {len(images)} images can be read; the first: {first}")
    warnings.warn(
        f"{len(problems)} of {len(images)} images of {images.name} cannot be read and are left out; the first: {first}",
        SkippedImages,
        stacklevel=2,
    )
    is_readable = np.ones(len(images), dtype=bool)
    is_readable[list(problems)] = False
    return images[is_readable]  # type: ignore[return-value]  # Images again
