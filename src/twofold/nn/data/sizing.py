"""Bring images to one size by rules in order: pad, resize and crop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np

from twofold.errors import InvalidInput
from twofold.nn.data.decoding import import_pillow
from twofold.nn.rows import Pixels

SizeRule: TypeAlias = tuple[Literal["pad", "shorter", "crop", "exact"], int]


def apply_size_rules(image: Pixels, rules: Sequence[SizeRule], where: Callable[[], str]) -> Pixels:
    """Bring one image to size by rules in order.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        The image.
    rules : sequence of (str, int)
        Rules, as in :meth:`twofold.nn.data.Images.with_size_rules`.
    where : callable
        Returns the name of the image for an error message.

    Returns
    -------
    ndarray of uint8, shape (H', W', 3)
        The image at its new size.

    Raises
    ------
    InvalidInput
        If the image is smaller than a crop.

    Examples
    --------
    >>> apply_size_rules(np.zeros((8, 12, 3), np.uint8), (("pad", 2), ("crop", 10)), lambda: "image").shape
    (10, 10, 3)
    """
    for kind, value in rules:
        height, width = image.shape[:2]
        if kind == "pad":
            image = np.pad(image, ((value, value), (value, value), (0, 0)))
        elif kind == "shorter":
            image = _resize(image, *_size_with_shorter_side(height, width, value))
        elif kind == "exact":
            image = _resize(image, value, value)
        else:
            if min(height, width) < value:
                raise InvalidInput(f"{where()} is {height}x{width}, smaller than crop={value}; pass size= or pad= too")
            top = round((height - value) / 2)
            left = round((width - value) / 2)
            image = image[top : top + value, left : left + value]
    return image


def _size_with_shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """Compute height and width with the shorter one at ``side``, the longer truncated as torchvision does."""
    if height <= width:
        return side, int(side * width / height)
    return int(side * height / width), side


def _resize(image: Pixels, height: int, width: int) -> Pixels:
    """Resize by PIL's bilinear filter, which widens the kernel when it shrinks and so does not alias."""
    if image.shape[:2] == (height, width):
        return image
    pil = import_pillow()
    picture = pil.fromarray(np.ascontiguousarray(image))
    return np.asarray(picture.resize((width, height), pil.Resampling.BILINEAR))
