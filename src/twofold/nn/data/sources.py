"""Sources of pixels: arrays, image files, tables of PIL images, generated noise, and data sets joined end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from twofold._checks import Labels
from twofold.errors import InvalidInput, UnreadableImage
from twofold.nn.data.decoding import DECODING_ERRORS, Encoded, decode_file, to_rgb
from twofold.nn.rows import ImageRows, Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

Noise: TypeAlias = Literal["gaussian", "uniform"]


class ImageTable(Protocol):
    """Define a table whose rows are dictionaries with PIL images, as those of Hugging Face are."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Mapping[str, Image]: ...


@runtime_checkable
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


@runtime_checkable
class EncodedSource(Source, Protocol):
    """Define a source of image files, which can be decoded in part or at a reduced size."""

    def encoded(self, row: int) -> Encoded:
        """Return the file of a row.

        Parameters
        ----------
        row : int
            Row number in 0..N-1.

        Returns
        -------
        Path or BytesIO
            The image file, or its bytes.
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
    def of(cls, pixels: npt.ArrayLike, name: str) -> Self:
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
        array = np.asanyarray(pixels)  # a memory map stays one
        shape = array.shape
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
            raise InvalidInput(f"{name}: images must be {want}, got shape {shape}")
        if 0 in array.shape[1:]:
            raise InvalidInput(f"{name}: images are empty, shape {shape}")
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
        are_consecutive = len(rows) > 0 and bool((np.diff(rows) == 1).all())
        block = self.pixels[rows[0] : rows[-1] + 1] if are_consecutive else self.pixels[rows]
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
        UnreadableImage
            If a file is missing or cannot be decoded, or has more than 8 bits a channel.
        """
        return [decode_file(self.paths[row]) for row in rows.tolist()]

    def encoded(self, row: int) -> Path:
        """Return the file of a row.

        Parameters
        ----------
        row : int
            Row number.

        Returns
        -------
        Path
            The file.
        """
        return self.paths[row]

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
                values = rng.normal(self.mean, self.std, size=shape)
                result[place] = np.rint(255 * np.clip(values, 0, 1))
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
    table : ImageTable
        Anything with ``len(table)`` and ``table[row][column]``.
    column : str
        The column with the images.
    name : str
        What the table is called in error messages.
    """

    table: ImageTable
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
        UnreadableImage
            If an image cannot be decoded, or has more than 8 bits a channel.
        """
        return [self._fetch(row) for row in rows.tolist()]

    def _fetch(self, row: int) -> Pixels:
        try:
            return to_rgb(self.table[row][self.column], self.where(row))
        except UnreadableImage:
            raise
        except DECODING_ERRORS as error:
            raise UnreadableImage(f"{self.where(row)} is not a readable image: {error}") from error

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
class StackedSource:
    """Join data sets of equal length and image size, one after the other.

    Parameters
    ----------
    parts : tuple of ImageRows
        Data sets of the same length, at least one.
    """

    parts: tuple[ImageRows, ...]

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
        part_numbers, inner_rows = np.divmod(rows, len(self.parts[0]))
        result = np.empty((0, 0, 0, 3), dtype=np.uint8)
        for number in np.unique(part_numbers).tolist():
            is_here = part_numbers == number
            pixels = self.parts[number].read(inner_rows[is_here])
            if len(result) == 0:
                result = np.empty((len(rows), *pixels.shape[1:]), dtype=np.uint8)
            result[is_here] = pixels
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
        number, inner_row = divmod(row, len(self.parts[0]))
        return f"{self.parts[number].name}, image {inner_row}"
