"""VGG networks with batch norm for 32x32 images; the feature is 512 wide.

Simonyan & Zisserman, ICLR 2015, arXiv:1409.1556, with one linear layer on the pooled map.

VGG-13 has FD-Shifts' dropout: after the first convolution of each block (0.3 in the first, 0.4 in the others), and its
head then gains dropout (0.5), a linear layer, ReLU and dropout (0.5), so the networks with and without dropout differ
in their parameters. The option ``dropout`` is the rate of the first block; the others keep their proportion to it.
VGG-16 and VGG-19 have dropout on the pooled feature only.
"""

from __future__ import annotations

from torch import Tensor, nn

from twofold.nn.models.parts import Network, Options, dropout

WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = {13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def block(inside: int, outside: int, count: int, rate: float) -> nn.Sequential:
    """Build a block of convolutions with batch norm and ReLU, then pooling.

    Parameters
    ----------
    inside : int
        Number of input channels.
    outside : int
        Number of output channels.
    count : int
        Number of convolutions.
    rate : float
        Dropout rate after the first convolution; 0 builds no dropout.

    Returns
    -------
    torch.nn.Sequential
        The block, which halves the size of the map.

    Examples
    --------
    >>> import torch
    >>> block(3, 8, 2, 0.0)(torch.zeros(1, 3, 4, 4)).shape
    torch.Size([1, 8, 2, 2])
    """
    layers: list[nn.Module] = []
    for i in range(count):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU()]
        if rate and not i:
            layers.append(dropout(rate))
        inside = outside
    return nn.Sequential(*layers, nn.MaxPool2d(2))


class VGG(Network):
    """Build a network of five blocks of convolutions, pooled to one feature of length 512.

    Parameters
    ----------
    options : Options
        Number of classes, dropout, head and branches.
    depth : {13, 16, 19}
        Depth of the network. 13 has the dropout sites of FD-Shifts.
    """

    def __init__(self, options: Options, depth: int) -> None:
        super().__init__()
        rate = options.block_dropout
        has_fd_shifts_dropout = depth == 13
        block_rates = (rate, *[rate * 4 / 3] * 4) if has_fd_shifts_dropout else (0.0,) * 5
        blocks = []
        inside = options.in_channels
        for width, count, block_rate in zip(WIDTHS, CONVOLUTIONS[depth], block_rates, strict=True):
            blocks.append(block(inside, width, count, block_rate))
            inside = width
        self.block1, self.block2, self.block3, self.block4, self.block5 = blocks
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.top: nn.Module = dropout(rate)
        if has_fd_shifts_dropout and rate:
            top_rate = rate * 5 / 3
            self.top = nn.Sequential(dropout(top_rate), nn.Linear(512, 512), nn.ReLU(), dropout(top_rate))
        self.finish(512, options)

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature: the pooled map of the last block, after the layers between it and the head.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, 512)
            The features.
        """
        y = self.block5(self.block4(self.block3(self.block2(self.block1(x)))))
        return self.top(self.pool(y).flatten(1))
