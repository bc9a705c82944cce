"""Images beside the cases: read by row, shrunk, and kept inside the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.errors import InvalidInput, MissingExtra
from twofold.outputs import load_npz
from twofold.report.document import Cell

SIDE = 96  # pixels of the longer side, at most


def opened(
    images: Mapping[str, Any] | str | Path | None, rows: Mapping[str, int], ids: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Open images by data set, and check them against the rows of each set.

    Arrays (N, H, W) or (N, H, W, 1 or 3) are matched row by row. What :func:`twofold.nn.data.open` returns is looked up
    by the ids of the rows, and decoded only where it is shown.

    Parameters
    ----------
    images : mapping, str, Path or None
        Images by name of the data set, or an npz file of arrays.
    rows : mapping of str to int
        Number of rows of each data set.
    ids : mapping of str to array-like
        Ids of the rows of each data set, None where there are none.

    Returns
    -------
    mapping of str to Any
        By data set, something that returns the image of a row when indexed.

    Raises
    ------
    InvalidInput
        If a data set is not in the report, an array has the wrong shape or length, or images cannot be found by id.
    """
    if images is None:
        return {}
    found: dict[str, Any] = dict(images if isinstance(images, Mapping) else load_npz(Path(images)))
    for name, array in found.items():
        if name not in rows:
            raise InvalidInput(f"images: there is no data set {name!r} in this report; it has {', '.join(rows)}")
        if hasattr(array, "read"):
            if ids.get(name) is None:
                raise InvalidInput(
                    f"images of {name} cannot be found by row: its outputs have no ids. Extract them again (`twofold "
                    "extract` keeps ids), add them with ids= in Outputs(...), or give the images as an array of "
                    f"{rows[name]} in the order of the rows, such as an npz file with an array {name}"
                )
            found[name] = Lookup.of(name, array, ids[name])
            continue
        shape = tuple(np.shape(array))
        if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] not in (1, 3)):
            raise InvalidInput(f"images of {name} must be (N, H, W) or (N, H, W, 1 or 3), got shape {shape}")
        if shape[0] != rows[name]:
            raise InvalidInput(f"images of {name} are {shape[0]}, but its outputs have {rows[name]} rows")
    return found


@dataclass(frozen=True, eq=False)
class Lookup:
    """Look up the images of a data set by the rows of its outputs.

    Parameters
    ----------
    images : Any
        What :func:`twofold.nn.data.open` returns.
    places : ndarray of int, shape (n_rows,)
        Position of each row's image.
    """

    images: Any
    places: npt.NDArray[np.int64]

    @classmethod
    def of(cls, name: str, images: Any, ids: Any) -> Lookup:
        """Find the image of each row by its id.

        Parameters
        ----------
        name : str
            Name of the data set, for error messages.
        images : Any
            What :func:`twofold.nn.data.open` returns.
        ids : ndarray of shape (n_rows,)
            Ids of the rows.

        Returns
        -------
        Lookup
            The images by row.

        Raises
        ------
        InvalidInput
            If a row has no image.
        """
        place = {key: i for i, key in enumerate(np.asarray(images.ids).tolist())}
        lost = [key for key in ids.tolist() if key not in place]
        if lost:
            example = next(iter(place), None)
            raise InvalidInput(
                f"images of {name} have no image with the id {lost[0]!r}, nor with {len(lost) - 1} more of the "
                f"{len(ids)} ids of its outputs; the ids of these images are like {example!r}. Open the data it was "
                "extracted from, with the same kind and options"
            )
        return cls(images, np.array([place[key] for key in ids.tolist()]))

    def __getitem__(self, row: int) -> npt.NDArray[np.uint8]:
        return np.asarray(self.images.read([int(self.places[row])])[0])


def data_uri(picture: npt.ArrayLike) -> str:
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
    >>> data_uri(np.zeros((2, 2)))[:22]
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
    array = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    image = Image.fromarray(array)
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def gallery(
    images: Mapping[str, Any], strips: Sequence[tuple[str, str, Sequence[int], Sequence[tuple[Cell, ...]]]]
) -> str:
    """Format strips of pictures, one for each data set and kind of case, each with its truth and the prediction.

    Parameters
    ----------
    images : mapping of str to Any
        Images by data set, as :func:`opened` returns them.
    strips : sequence of tuple
        Data set, kind of case, rows, and the cells of the table for each row.

    Returns
    -------
    str
        Escaped HTML.
    """
    parts = []
    for name, kind, rows, cells in strips:
        if not rows:
            continue
        parts.append(f'<h3 class="strip">{escape(name)}: most {escape(kind)}</h3><ul class="strip">')
        for row, (_, key, truth, said, prob, _) in zip(rows, cells, strict=True):
            alt = f"{name} {key}: {truth}, taken for {said}"
            picture = f'<img src="{data_uri(images[name][row])}" alt="{escape(alt)}">'
            told = f"<b>{escape(str(said))}</b> {escape(str(prob))} %<br>truth: {escape(str(truth))}"
            parts.append(f"<li>{picture}<span>{told}</span></li>")
        parts.append("</ul>")
    return "".join(parts)
