"""Images beside the cases: read by row, shrunk, and kept inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from twofold.errors import InvalidInput, MissingExtra
from twofold.outputs import load_npz
from twofold.report.options import Images
from twofold.report.scored import ReportSet
from twofold.typing import ArrayLike

SIDE = 96  # pixels of the longer side, at most


@runtime_checkable
class ImageReader(Protocol):
    """Read images by position, as what :func:`twofold.nn.data.open` returns does."""

    @property
    def ids(self) -> ArrayLike:
        """Id of each image."""

    def read(self, rows: Sequence[int]) -> ArrayLike:
        """Read some images.

        Parameters
        ----------
        rows : sequence of int
            Their positions.

        Returns
        -------
        array-like of shape (n_rows, H, W, 3)
            The images.
        """


class ImagesByRow(Protocol):
    """Return the image of a row of a data set when indexed."""

    def __getitem__(self, row: int, /) -> npt.NDArray[np.generic]:
        """Return the image of a row."""


def open_images(images: Images | None, sets: Sequence[ReportSet]) -> dict[str, ImagesByRow]:
    """Open images by data set, and check them against the rows of each set.

    Arrays (N, H, W) or (N, H, W, 1 or 3) are matched row by row. What :func:`twofold.nn.data.open` returns is looked up
    by the ids of the rows, and decoded only where it is shown.

    Parameters
    ----------
    images : mapping, str, Path or None
        Images by name of the data set, or an npz file of arrays.
    sets : sequence of ReportSet
        The data sets of the report.

    Returns
    -------
    dict of str to ImagesByRow
        By data set, the image of each row.

    Raises
    ------
    InvalidInput
        If a data set is not in the report, an array has the wrong shape or length, or images cannot be found by id.
    """
    if images is None:
        return {}
    by_name = {one.name: one for one in sets}
    by_set = images
    if not isinstance(by_set, Mapping):
        by_set = load_npz(Path(by_set))
    found: dict[str, ImagesByRow] = {}
    for name, some in by_set.items():
        if name not in by_name:
            raise InvalidInput(f"images: there is no data set {name!r} in this report; it has {', '.join(by_name)}")
        if isinstance(some, ImageReader):
            found[name] = ImageLookup.by_id(some, by_name[name])
        else:
            found[name] = _check_array(some, by_name[name])
    return found


def _check_array(images: ArrayLike, one: ReportSet) -> npt.NDArray[np.generic]:
    """Check that an array holds an image for each row of a data set."""
    array = np.asarray(images)
    shape = array.shape
    is_grey = len(shape) == 3
    has_channels = len(shape) == 4 and shape[3] in (1, 3)
    if not is_grey and not has_channels:
        raise InvalidInput(f"images of {one.name} must be (N, H, W) or (N, H, W, 1 or 3), got shape {shape}")
    if shape[0] != len(one):
        raise InvalidInput(f"images of {one.name} has {shape[0]} images, but its outputs have {len(one)} rows")
    return array


@dataclass(frozen=True, eq=False)
class ImageLookup:
    """Look up the images of a data set by the rows of its outputs.

    Parameters
    ----------
    images : ImageReader
        What :func:`twofold.nn.data.open` returns.
    places : ndarray of int, shape (n_rows,)
        Position of each row's image.
    """

    images: ImageReader
    places: npt.NDArray[np.int64]

    @classmethod
    def by_id(cls, images: ImageReader, one: ReportSet) -> ImageLookup:
        """Find the image of each row by its id.

        Parameters
        ----------
        images : ImageReader
            What :func:`twofold.nn.data.open` returns.
        one : ReportSet
            The data set.

        Returns
        -------
        ImageLookup
            The images by row.

        Raises
        ------
        InvalidInput
            If the outputs have no ids, or a row has no image.
        """
        if one.ids is None:
            raise InvalidInput(
                f"images of {one.name} cannot be found by row: its outputs have no ids. Extract them again (`twofold "
                "extract` keeps ids), add them with ids= in Outputs(...), or give the images as an array of "
                f"{len(one)} in the order of the rows, such as an npz file with an array {one.name}"
            )
        place = {key: i for i, key in enumerate(np.asarray(images.ids).tolist())}
        ids = one.ids.tolist()
        lost = [key for key in ids if key not in place]
        if lost:
            example = next(iter(place), None)
            raise InvalidInput(
                f"images of {one.name} have no image with the id {lost[0]!r}, nor with {len(lost) - 1} more of the "
                f"{len(ids)} ids of its outputs; the ids of these images are like {example!r}. Open the data it was "
                "extracted from, with the same kind and options"
            )
        return cls(images, np.array([place[key] for key in ids]))

    def __getitem__(self, row: int, /) -> npt.NDArray[np.generic]:
        return np.asarray(np.asarray(self.images.read([int(self.places[row])]))[0])


def png_uri(picture: npt.ArrayLike) -> str:
    """Encode one image as the data URI of a small PNG.

    Parameters
    ----------
    picture : array-like of shape (H, W) or (H, W, 1 or 3)
        Integers are levels up to 255, floats lie in [0, 1].

    Returns
    -------
    str
        The URI.

    Raises
    ------
    MissingExtra
        If pillow is not installed.

    Examples
    --------
    >>> png_uri(np.zeros((2, 2)))[:22]
    'data:image/png;base64,'
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("images need pillow: pip install pillow") from error
    array = np.asarray(picture)
    if array.dtype.kind == "f":
        array = np.clip(array, 0.0, 1.0) * 255.0
    array = np.clip(array, 0, 255).round().astype(np.uint8)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    image = Image.fromarray(array)
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
