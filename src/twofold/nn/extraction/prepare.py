"""Images as a network takes them: brought to its size, divided by 255 and normalised by channel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from twofold import _checks
from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.nn.data.images import Images
from twofold.nn.data.views import STATISTICS, normalise
from twofold.nn.rows import ImageRows

Rows = TypeVar("Rows", bound=ImageRows)

RESIZE_PER_CROP = 256 / 224  # of both papers on ImageNet, and of torchvision


@dataclass(frozen=True)
class Prepare:
    """Turn uint8 images (B, H, W, 3) into normalised float32 (B, 3, H, W): (x / 255 - mean) / std by channel.

    Parameters
    ----------
    mean : tuple of 3 floats, default=(0.0, 0.0, 0.0)
        Mean of each channel, of values in [0, 1]. Use what the network was trained with, such as
        ``twofold.nn.data.STATISTICS["cifar10"].mean``.
    std : tuple of 3 floats, default=(1.0, 1.0, 1.0)
        Standard deviation of each channel, likewise. The defaults only divide by 255.

    Examples
    --------
    >>> prepare = Prepare(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> prepare(np.full((2, 4, 4, 3), 255, dtype=np.uint8)).shape
    torch.Size([2, 3, 4, 4])
    """

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    @classmethod
    def named(cls, statistics: str) -> Prepare:
        """Normalise by the channel statistics of a data set.

        Parameters
        ----------
        statistics : str
            One of ``twofold.nn.data.STATISTICS``, or ``"none"`` to only divide by 255.

        Returns
        -------
        Prepare
            The normalisation.

        Raises
        ------
        UnknownName
            If there are no statistics of this name.

        Examples
        --------
        >>> Prepare.named("none") == Prepare()
        True
        """
        if statistics == "none":
            return cls()
        if statistics not in STATISTICS:
            raise UnknownName.of("statistics", statistics, ["none", *STATISTICS])
        return cls(*STATISTICS[statistics])

    def __call__(self, images: npt.NDArray[np.uint8]) -> Tensor:
        """Normalise a batch of 8-bit images.

        Parameters
        ----------
        images : ndarray of uint8, shape (B, H, W, 3)
            The images, channels last.

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            The normalised images, channels first.

        Raises
        ------
        InvalidInput
            If the images have another type or shape, or ``std`` is not above 0.
        """
        prepared = _new_images(images.shape)
        normalise(images, self.mean, self.std, out=prepared.numpy())
        return prepared

    def floats(self, pixels: npt.NDArray[np.float32]) -> Tensor:
        """Normalise a batch of pixels that are already in [0, 1].

        Parameters
        ----------
        pixels : ndarray of float32, shape (B, H, W, 3)
            The images, channels last.

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            ``(pixels - mean) / std`` by channel, channels first.

        Examples
        --------
        >>> Prepare().floats(np.ones((1, 2, 2, 3), dtype=np.float32)).shape
        torch.Size([1, 3, 2, 2])
        """
        mean = torch.tensor(self.mean).view(1, 3, 1, 1)
        std = torch.tensor(self.std).view(1, 3, 1, 1)
        prepared = _new_images(pixels.shape)
        torch.sub(torch.from_numpy(pixels).permute(0, 3, 1, 2), mean, out=prepared)
        return prepared.div_(std)


def _new_images(shape: Sequence[int]) -> Tensor:
    """Reserve memory for a batch of B x H x W images, channels first.

    In a reading process it is memory that the training sees too, so that batches are not copied on their way.
    """
    size = (shape[0], 3, *shape[1:3])
    if get_worker_info() is None:
        return torch.empty(size)
    count = math.prod(size)
    storage = torch.UntypedStorage._new_shared(4 * count)  # type: ignore[no-untyped-call]  # as PyTorch's collate
    return torch.empty(0).set_(storage, 0, (count,), (1,)).view(size)


@dataclass(frozen=True)
class ImageInput:
    """Say how images of any size become the input of a network.

    Parameters
    ----------
    resize : int, optional
        Length of the shorter side after resizing. By default 8/7 of ``crop``: 256 for 224, as on ImageNet.
    crop : int, optional
        Side of the square that is cut from the centre; by default ``resize``. With neither, images keep their size.
    prepare : Prepare, default=Prepare()
        Normalisation.

    Raises
    ------
    InvalidInput
        If a value is not a whole number above 0, or ``crop`` is larger than ``resize``.

    Examples
    --------
    >>> ImageInput(crop=224).resize_side
    256
    """

    resize: int | None = None
    crop: int | None = None
    prepare: Prepare = field(default_factory=Prepare)

    def __post_init__(self) -> None:
        if self.resize is not None:
            _checks.whole(self.resize, "resize", 1)
        if self.crop is not None:
            _checks.whole(self.crop, "crop", 1)
        if self.side is not None and self.resize_side is not None and self.side > self.resize_side:
            raise InvalidInput(
                f"crop={self.crop} is larger than resize={self.resize}; the crop is cut from the resized image"
            )

    @property
    def side(self) -> int | None:
        """Side of the network's input in pixels; None if images keep their size.

        Examples
        --------
        >>> ImageInput(resize=32).side
        32
        """
        return self.resize if self.crop is None else self.crop

    @property
    def resize_side(self) -> int | None:
        """Length of the shorter side before the crop; None if images keep their size.

        Examples
        --------
        >>> ImageInput(resize=248, crop=224).resize_side
        248
        """
        if self.resize is None and self.crop is not None:
            return round(self.crop * RESIZE_PER_CROP)
        return self.resize

    def fit(self, images: Rows) -> Rows:
        """Bring the images of a data set to the size of the network: resize the shorter side, crop the centre.

        Parameters
        ----------
        images : ImageRows
            The data set. One with size rules of its own (``size=`` or ``crop=`` in its specification) keeps them.

        Returns
        -------
        ImageRows
            A view of it.

        Raises
        ------
        InvalidInput
            If a data set with size rules of its own comes out at another size.

        Examples
        --------
        >>> ImageInput(resize=8, crop=6).fit(Images.of(np.zeros((2, 20, 30), np.uint8))).shape
        (6, 6)
        """
        if self.side is None or not isinstance(images, Images):
            return images
        if not images.size_rules:
            return images.fit(size=self.resize_side, crop=self.side)  # type: ignore[return-value]  # Images again
        if images.shape != (self.side, self.side):
            height, width = images.shape
            raise InvalidInput(
                f"{images.name} comes out at {height}x{width} but the network takes {self.side}x{self.side}; "
                "leave size, crop and pad out of the data set"
            )
        return images


@contextmanager
def explain_size_errors(size: Callable[[], Sequence[int]]) -> Iterator[None]:
    """Turn what a network raises on images of the wrong size into one clear line.

    Parameters
    ----------
    size : callable
        Returns height and width of the images; called on an error only.

    Yields
    ------
    None
        The network may run.

    Raises
    ------
    InvalidInput
        If the network does not take images of this size.
    """
    try:
        yield
    except TwofoldError:
        raise
    except (AssertionError, ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        words = reason.lower()
        is_about_size = isinstance(error, AssertionError) or any(word in words for word in SIZE_WORDS)
        if not is_about_size:
            raise
        height, width = size()
        raise InvalidInput(
            f"this network does not take images of {height}x{width} pixels ({reason}); set the size with resize= and "
            "crop=, such as 256 and 224"
        ) from error


# what networks say: timm and torchvision assert, transformers raises ValueError, layers raise RuntimeError
SIZE_WORDS = ("image size", "input size", "output size", "shapes cannot be multiplied", "kernel size can't be greater")
