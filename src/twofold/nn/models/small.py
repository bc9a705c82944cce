"""The small network FD-Shifts trains on SVHN.

Three blocks of two 3x3 convolutions (reflected borders), each with ReLU and then batch norm, and pooling; one linear
layer with ReLU makes the feature, 512 wide. Dropout (0.3 there) after each pooling and after the linear layer.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from twofold.errors import InvalidInput
from twofold.nn.models.parts import Network, Options, dropout


def block(inside: int, outside: int, rate: float) -> nn.Sequential:
    """Build a block of two convolutions, pooling and dropout.

    Parameters
    ----------
    inside : int
        Number of input channels.
    outside : int
        Number of output channels.
    rate : float
        Dropout rate after the pooling.

    Returns
    -------
    torch.nn.Sequential
        The block, which halves the size of the map.

    Examples
    --------
    >>> import torch
    >>> block(3, 8, 0.0)(torch.zeros(1, 3, 4, 4)).shape
    torch.Size([1, 8, 2, 2])
    """
    layers: list[nn.Module] = []
    for width in (inside, outside):
        layers += [
            nn.Conv2d(width, outside, 3, padding=1, padding_mode="reflect"),
            nn.ReLU(),
            nn.BatchNorm2d(outside),
        ]
    return nn.Sequential(*layers, nn.MaxPool2d(2), dropout(rate))


class SmallNet(Network):
    """Build a network of three blocks of 32, 64 and 128 channels on 32x32 images, then a linear layer from 2048 to 512.

    Parameters
    ----------
    options : Options
        Number of classes, dropout, head and branches.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        rate = options.block_dropout
        self.block1 = block(options.in_channels, 32, rate)
        self.block2 = block(32, 64, rate)
        self.block3 = block(64, 128, rate)
        self.fc = nn.Linear(2048, 512)
        self.drop = dropout(rate)
        self.finish(512, options)

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature: the activated output of the first linear layer.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, 512)
            The features.

        Raises
        ------
        InvalidInput
            If the images are not of 32x32 pixels.
        """
        y = self.block3(self.block2(self.block1(x))).flatten(1)
        if y.shape[1] != self.fc.in_features:
            height, width = x.shape[2:]
            raise InvalidInput(f"svhn_small takes images of 32x32 pixels, got {height}x{width}; resize them")
        return self.drop(functional.relu(self.fc(y)))
