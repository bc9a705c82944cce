"""Residual networks for 32x32 images, activation before each convolution.

He et al., ECCV 2016, arXiv:1603.05027. The first block of a stage shares its first activation with its 1x1 shortcut.

Dropout: after every ReLU between two convolutions of a block and at its end before the sum, and at half the rate after
global pooling; these are the unknown-detection benchmark's sites (0.2 and 0.1) carried over to this order of layers.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from twofold.nn.models.parts import Network, Options, dropout
from twofold.nn.models.resnet import conv, strides


class PreBlock(nn.Module):
    """Build a pre-activated residual block: batch norm, ReLU and convolution, repeated beside a shortcut.

    Parameters
    ----------
    inside : int
        Number of input channels.
    width : int
        Number of channels inside the block; a bottleneck returns four times as many.
    stride : int
        Stride of the first 3x3 convolution and of the shortcut.
    bottleneck : bool
        Whether the block has three convolutions (1x1, 3x3, 1x1) instead of two (3x3, 3x3).
    between : float
        Dropout rate after every ReLU between two convolutions.
    at_end : float
        Dropout rate at the end, before the sum.
    """

    def __init__(
        self, inside: int, width: int, stride: int, *, bottleneck: bool, between: float, at_end: float
    ) -> None:
        super().__init__()
        if bottleneck:
            outside = 4 * width
            convs = [conv(inside, width, 1), conv(width, width, 3, stride), conv(width, outside, 1)]
        else:
            outside = width
            convs = [conv(inside, width, 3, stride), conv(width, outside, 3)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(layer.in_channels) for layer in convs)
        self.convs = nn.ModuleList(convs)
        self.drops = nn.ModuleList(dropout(between) for _ in convs[1:])
        self.drop = dropout(at_end)
        self.shortcut: nn.Module | None = None
        if stride > 1 or inside != outside:
            self.shortcut = conv(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of the block.

        Parameters
        ----------
        x : Tensor of shape (N, C, H, W), float
            Batch of feature maps.

        Returns
        -------
        Tensor of shape (N, C', H', W')
            Output maps of the block.
        """
        active = functional.relu(self.norms[0](x))
        y = self.convs[0](active)
        for norm, drop, convolve in zip(self.norms[1:], self.drops, self.convs[1:], strict=True):
            y = convolve(drop(functional.relu(norm(y))))
        skipped = x if self.shortcut is None else self.shortcut(active)
        return self.drop(y) + skipped


class PreResNet(Network):
    """Build a pre-activated residual network of three stages on a stem of 16 channels.

    Parameters
    ----------
    options : Options
        Number of classes, dropout, head and branches.
    blocks : int
        Number of blocks in each stage.
    widths : tuple of three int, default=(16, 32, 64)
        Width of the blocks in each stage.
    bottleneck : bool, default=False
        Whether blocks are bottlenecks; the feature is then four times as long as the last width.
    between_only : bool, default=False
        Whether dropout sits only between the convolutions of a block, as in wide residual networks.
    """

    def __init__(
        self,
        options: Options,
        blocks: int,
        *,
        widths: tuple[int, int, int] = (16, 32, 64),
        bottleneck: bool = False,
        between_only: bool = False,
    ) -> None:
        super().__init__()
        rate = options.block_dropout
        rate_at_end = 0.0 if between_only else rate
        self.conv1 = conv(options.in_channels, 16)
        stages = []
        inside = 16
        for number, width in enumerate(widths):
            stage = []
            for stride in strides(blocks, number):
                stage.append(PreBlock(inside, width, stride, bottleneck=bottleneck, between=rate, at_end=rate_at_end))
                inside = 4 * width if bottleneck else width
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3 = stages
        self.bn = nn.BatchNorm2d(inside)
        self.drop = dropout(rate_at_end / 2)
        self.finish(inside, options)

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature: the activated map of the last stage, averaged over pixels.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, D)
            The features.
        """
        y = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.drop(functional.relu(self.bn(y)).mean((2, 3)))
