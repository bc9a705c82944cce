"""Decode image files and PIL images as 8-bit RGB; Pillow is imported when it is needed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twofold.errors import InvalidInput, MissingExtra
from twofold.nn.rows import Pixels

if TYPE_CHECKING:
    from types import ModuleType

    from PIL.Image import Image

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


def decode_file(path: Path) -> Pixels:
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
    ...     import_pillow().new("RGB", (4, 2)).save(f"{folder}/black.png")
    ...     decode_file(Path(folder) / "black.png").shape
    (2, 4, 3)
    """
    pil = import_pillow()
    try:
        with pil.open(path) as image:
            return to_rgb(image, str(path))
    except InvalidInput:
        raise
    except FileNotFoundError as error:
        raise InvalidInput(f"{path}: there is no such image file") from error
    except (*DECODING_ERRORS, pil.DecompressionBombError) as error:
        raise InvalidInput(f"{path} is not a readable image: {error}") from error


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
    InvalidInput
        If the image has more than 8 bits a channel.

    Examples
    --------
    >>> to_rgb(import_pillow().new("L", (4, 2)), "grey image").shape
    (2, 4, 3)
    """
    if image.mode[0] in "IF":
        raise InvalidInput(f"{where} has more than 8 bits a channel (mode {image.mode}); save it with 8 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return np.asarray(image.convert("RGB"))
