"""Images as a network takes them: divided by 255 and normalised by channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twofold.errors import UnknownName
from twofold.nn.data.views import STATISTICS, normalise


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
        return torch.from_numpy(normalise(images, self.mean, self.std))

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
        channels_first = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        return ((channels_first - mean) / std).contiguous()
