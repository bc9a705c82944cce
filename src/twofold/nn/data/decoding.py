"""Decode image files and PIL images as 8-bit RGB; Pillow is imported when it is needed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from twofold.errors import MissingExtra, UnreadableImage
from twofold.nn.rows import Pixels

if TYPE_CHECKING:
    from types import ModuleType

    from PIL.Image import Image

Encoded: TypeAlias = Path | BytesIO  # an image file, or its bytes
REDUCTIONS = (8, 4, 2)  # by which libjpeg shrinks both sides while it decodes

# what decoders raise on damaged bytes; a decompression bomb is a plain Exception in Pillow and is named by its class
DECODING_ERRORS = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error)


def import_pillow() -> ModuleType:
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


class Box(NamedTuple):
    """Hold a box of whole pixels in an image.

    Attributes
    ----------
    top, left : int
        Its upper left corner.
    height, width : int
        Its sides.
    """

    top: int
    left: int
    height: int
    width: int


def decode_file(encoded: Encoded, where: str | None = None) -> Pixels:
    """Decode an image file as 8-bit RGB.

    Parameters
    ----------
    encoded : Path or BytesIO
        The file, or its bytes.
    where : str, optional
        Its name for the error message; by default the path.

    Returns
    -------
    ndarray of uint8, shape (H, W, 3)
        The image.

    Raises
    ------
    UnreadableImage
        If the file is missing or damaged, or has more than 8 bits a channel.
    MissingExtra
        If Pillow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     import_pillow().new("RGB", (4, 2)).save(f"{folder}/black.png")
    ...     decode_file(Path(folder) / "black.png").shape
    (2, 4, 3)
    """
    name = str(encoded) if where is None else where
    with _open_image(encoded, name) as image:
        return to_rgb(image, name)


def crop_file(
    encoded: Encoded, where: str, draw_box: Callable[[int, int], Box], side: int, *, draft: bool = True
) -> Pixels:
    """Decode a box of an image file and resize it to a square.

    Parameters
    ----------
    encoded : Path or BytesIO
        The file, or its bytes.
    where : str
        Its name for the error message.
    draw_box : callable
        Takes height and width of the whole image and returns the :class:`Box` to cut out.
    side : int
        Side of the result in pixels.
    draft : bool, default=True
        Let a JPEG be decoded at 1/2, 1/4 or 1/8 of its size where the box then still has at least ``side`` pixels each
        way. This is faster and changes pixels slightly. Other formats are always decoded whole.

    Returns
    -------
    ndarray of uint8, shape (side, side, 3)
        The resized box: bilinear and antialiased.

    Raises
    ------
    UnreadableImage
        If the file is missing or damaged, or has more than 8 bits a channel.
    MissingExtra
        If Pillow is not installed.

    Notes
    -----
    Without ``draft`` the result is that of torchvision's ``resized_crop`` on a Pillow image.

    Examples
    --------
    >>> file = BytesIO()
    >>> import_pillow().new("RGB", (40, 20)).save(file, "JPEG")
    >>> crop_file(file, "black", lambda height, width: Box(0, 0, height, height), 8).shape
    (8, 8, 3)
    """
    with _open_image(encoded, where) as image:
        box = draw_box(image.height, image.width)
        reduction = 1
        if draft and image.format == "JPEG":
            reduction = _choose_reduction(box, side)
            image.draft(None, (image.width // reduction, image.height // reduction))
        return _resize_box(image, box, reduction, side, where)


def crop_pixels(pixels: Pixels, box: Box, side: int) -> Pixels:
    """Resize a box of a decoded image to a square, as :func:`crop_file` does.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, 3)
        The image.
    box : Box
        What to cut out.
    side : int
        Side of the result in pixels.

    Returns
    -------
    ndarray of uint8, shape (side, side, 3)
        The resized box.

    Examples
    --------
    >>> crop_pixels(np.zeros((20, 40, 3), np.uint8), Box(0, 5, 20, 30), 8).shape
    (8, 8, 3)
    """
    inside = pixels[box.top : box.top + box.height, box.left : box.left + box.width]
    picture = import_pillow().fromarray(np.ascontiguousarray(inside))
    return _resize_box(picture, Box(0, 0, box.height, box.width), 1, side, "image")


@contextmanager
def _open_image(encoded: Encoded, where: str) -> Iterator[Image]:
    """Open an image file; whatever the decoder raises becomes one error that names the file."""
    pil = import_pillow()
    if isinstance(encoded, BytesIO):
        encoded.seek(0)
    try:
        with pil.open(encoded) as image:
            yield image
    except UnreadableImage:
        raise
    except FileNotFoundError as error:
        raise UnreadableImage(f"{where}: there is no such image file") from error
    except (*DECODING_ERRORS, pil.DecompressionBombError) as error:
        raise UnreadableImage(f"{where} is not a readable image: {error}") from error


def _choose_reduction(box: Box, side: int) -> int:
    """Find the strongest reduction that leaves a box at least as large as the result."""
    for reduction in REDUCTIONS:
        if min(box.height, box.width) >= reduction * side:
            return reduction
    return 1


def _resize_box(image: Image, box: Box, reduction: int, side: int, where: str) -> Pixels:
    """Cut a box out of an image that is reduced already, and resize it to a square."""
    top, left = box.top // reduction, box.left // reduction
    bottom = -(-(box.top + box.height) // reduction)
    right = -(-(box.left + box.width) // reduction)
    picture = _to_rgb_image(image.crop((left, top, right, bottom)), where)
    exact = (
        box.left / reduction - left,
        box.top / reduction - top,
        (box.left + box.width) / reduction - left,
        (box.top + box.height) / reduction - top,
    )
    return np.asarray(picture.resize((side, side), import_pillow().Resampling.BILINEAR, box=exact))


def to_rgb(image: Image, where: str) -> Pixels:
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
    UnreadableImage
        If the image has more than 8 bits a channel.

    Examples
    --------
    >>> to_rgb(import_pillow().new("L", (4, 2)), "grey image").shape
    (2, 4, 3)
    """
    return np.asarray(_to_rgb_image(image, where))


def _to_rgb_image(image: Image, where: str) -> Image:
    if image.mode[0] in "IF":
        raise UnreadableImage(f"{where} has more than 8 bits a channel (mode {image.mode}); save it with 8 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")
