"""Pictures to mix in: fractals that twofold draws itself, or a folder of images.

PixMix needs pictures with much structure and nothing to recognise. Its published set is a download; here any number
of fractals is drawn from a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.ingredients.augment import word
from twofold.nn.rows import Pixels


def fractals(n: int, size: int = 64, seed: int = 0) -> Pixels:
    """Draw coloured fractals: attractors of random affine maps, each in its own palette.

    Parameters
    ----------
    n : int
        Number of fractals.
    size : int, default=64
        Side of each in pixels.
    seed : int, default=0
        Seed of the random numbers, below 2^64.

    Returns
    -------
    numpy.ndarray of shape (n, size, size, 3), uint8
        The fractals.

    Raises
    ------
    InvalidInput
        If ``n`` or ``size`` is below 1, or ``seed`` is not a whole number from 0 to 2^64 - 1.

    Notes
    -----
    A system has N = 2 to 6 contractions. The sum of their larger plus twice their smaller singular values is drawn
    from (5 + N)/2 up, a range that gives rich pictures: 0.5 wide in Anderson and Farrell, here 1.25, for denser ones.
    It is drawn by the chaos game, and discarded if it touches less than 0.4 of the cells of a 32 x 32 grid. Picture i
    depends on the seed, the size and i alone: a longer set begins with the shorter one.

    References
    ----------
    Anderson and Farrell, WACV 2022, arXiv:2110.03091.

    Examples
    --------
    >>> fractals(2, size=16).shape
    (2, 16, 16, 3)
    """
    from twofold.nn.ingredients._fractal_kernels import draw_fractals

    count = _checks.whole(n, "n", 1)
    side = _checks.whole(size, "size", 1)
    result = np.empty((count, side, side, 3), dtype=np.uint8)
    draw_fractals(word(seed, "seed"), result)
    return result


@dataclass(frozen=True, eq=False)
class Mixers:
    """Hold a set of pictures to mix in, somewhat larger than the images they are cropped for.

    The papers take 36 pixels for images of 32, 256 for 224. All pictures are held in memory: 3 S² bytes each.

    Parameters
    ----------
    images : array-like of shape (M, S, S, 3), uint8
        The pictures, at least one. They are kept as a read-only array; a writable array is copied.
    name : str, default="pictures"
        Name of the set, shown by ``repr``.

    Raises
    ------
    InvalidInput
        If the pictures have another type or shape, or there are none.

    Examples
    --------
    >>> Mixers.fractals(10, size=36)
    <Mixers fractals: 10 of 36x36>
    """

    images: Pixels
    name: str = "pictures"

    def __post_init__(self) -> None:
        array = _checks.plain(self.images, "images")
        if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or 0 in array.shape:
            raise InvalidInput(
                f"pictures to mix in must be uint8 of shape (M, S, S, 3) and at least one, "
                f"got {array.dtype} of {array.shape}"
            )
        held = np.array(array, order="C") if array.flags.writeable else np.ascontiguousarray(array)
        held.flags.writeable = False
        object.__setattr__(self, "images", held)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"<Mixers {self.name}: {len(self)} of {self.images.shape[1]}x{self.images.shape[2]}>"

    @classmethod
    def fractals(cls, n: int = 2000, *, size: int = 36, seed: int = 0) -> Self:
        """Draw fractals from a seed.

        Parameters
        ----------
        n : int, default=2000
            Number of fractals.
        size : int, default=36
            Side of each in pixels; about 9/8 of the images' side.
        seed : int, default=0
            Seed of the random numbers.

        Returns
        -------
        Mixers
            The fractals; see :func:`fractals`.

        Raises
        ------
        InvalidInput
            If an argument is out of range.
        """
        pictures = fractals(n, size, seed)
        pictures.flags.writeable = False
        return cls(pictures, "fractals")

    @classmethod
    def folder(cls, path: str | Path, *, size: int = 36, limit: int | None = None) -> Self:
        """Read the image files of a folder and its subfolders.

        The shorter side of each picture is resized to ``size``, and the centre square is kept.

        Parameters
        ----------
        path : str or Path
            Folder of image files. Files whose name begins with a dot are skipped.
        size : int, default=36
            Side of each picture in pixels; about 9/8 of the images' side.
        limit : int, optional
            Largest number of files to read, evenly spaced in the order of their paths. Set it where all would not fit
            in memory.

        Returns
        -------
        Mixers
            The pictures, named after the folder.

        Raises
        ------
        InvalidInput
            If there is no such folder, it has no image files, or an argument is out of range.
        """
        from twofold.nn.data.image_files import IMAGE_SUFFIXES, list_image_files
        from twofold.nn.data.images import Images
        from twofold.nn.data.sources import FileSource

        root = Path(path)
        if not root.is_dir():
            raise InvalidInput(f"{root}: there is no such folder of pictures to mix in")
        files = list_image_files(root)
        if not files:
            raise InvalidInput(
                f"{root} holds no image files ({', '.join(sorted(IMAGE_SUFFIXES))}) to mix in; "
                "put some there, or use Mixers.fractals()"
            )
        if limit is not None and _checks.whole(limit, "limit", 1) < len(files):
            files = [files[i * len(files) // limit] for i in range(limit)]
        source = Images.of(FileSource(files), name=root.name).fit(size=size)
        pictures = np.empty((len(files), size, size, 3), dtype=np.uint8)
        done = 0
        for block in source.blocks():
            pictures[done : done + len(block)] = block
            done += len(block)
        pictures.flags.writeable = False
        return cls(pictures, root.name)
