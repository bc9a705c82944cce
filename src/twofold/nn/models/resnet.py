"""Residual networks for 32x32 images, activation after the sum.

He et al., CVPR 2016, arXiv:1512.03385. Parameters are named as in the common public checkpoints (``conv1``, ``bn1``,
``layer1.0.conv1``, ``shortcut.0``, ``linear``).

Dropout of basic blocks: after the first ReLU and after the second batch norm before the sum, and at half the rate after
global pooling (the unknown-detection benchmark: 0.2 and 0.1). ResNet-50 has FD-Shifts' sites instead: after the stem,
after the first two ReLUs of every bottleneck but those of the first stage, and after global pooling, all at one rate.
ResNet-152 has those of the unknown-detection benchmark: after both ReLUs of a bottleneck, after its last batch norm
before the sum, and at half the rate after global pooling.

``ResNet(..., stem="imagenet")`` has the stem of the paper for images of 224 pixels, and bottlenecks whose 3x3
convolution has the stride (version 1.5), as torchvision's networks, whose checkpoints fit.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from twofold.nn.models.parts import Network, Options, dropout

Variant = Literal["a", "b", "kd"]
Stem = Literal["small", "imagenet"]
Sites = Literal["fd_shifts", "unknown_detection"]


def conv(inside: int, outside: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """Build a convolution without bias that keeps the size of the map but for its stride.

    Parameters
    ----------
    inside : int
        Number of input channels.
    outside : int
        Number of output channels.
    size : int, default=3
        Side of the kernel, an odd number.
    stride : int, default=1
        Stride.

    Returns
    -------
    torch.nn.Conv2d
        The convolution.

    Examples
    --------
    >>> conv(3, 8).padding
    (1, 1)
    """
    return nn.Conv2d(inside, outside, size, stride=stride, padding=size // 2, bias=False)


def projection(inside: int, outside: int, stride: int) -> nn.Sequential:
    """Build shortcut B: a 1x1 convolution and batch norm.

    Parameters
    ----------
    inside : int
        Number of input channels.
    outside : int
        Number of output channels.
    stride : int
        Stride of the convolution.

    Returns
    -------
    torch.nn.Sequential
        The shortcut.

    Examples
    --------
    >>> len(projection(16, 32, 2))
    2
    """
    return nn.Sequential(conv(inside, outside, 1, stride), nn.BatchNorm2d(outside))


def shortcut_b(inside: int, outside: int, stride: int) -> nn.Sequential:
    """Build the shortcut of a block: the identity where input and output have one shape, else :func:`projection`.

    Parameters
    ----------
    inside : int
        Number of input channels.
    outside : int
        Number of output channels.
    stride : int
        Stride of the block.

    Returns
    -------
    torch.nn.Sequential
        The shortcut; an empty one is the identity.

    Examples
    --------
    >>> len(shortcut_b(16, 16, 1)), len(shortcut_b(16, 16, 2))
    (0, 2)
    """
    if stride == 1 and inside == outside:
        return nn.Sequential()
    return projection(inside, outside, stride)


def strides(blocks: int, stage: int) -> list[int]:
    """Return the strides of the blocks of a stage: the first block of each stage but the first halves the map.

    Parameters
    ----------
    blocks : int
        Number of blocks of the stage.
    stage : int
        Number of the stage, from 0.

    Returns
    -------
    list of int
        Stride of each block, 1 or 2.

    Examples
    --------
    >>> strides(3, 0), strides(3, 1)
    ([1, 1, 1], [2, 1, 1])
    """
    first = 1 if stage == 0 else 2
    return [first] + [1] * (blocks - 1)


class PadShortcut(nn.Module):
    """Apply shortcut A: take every second pixel, and add zeros as new channels, equally many on both sides.

    Parameters
    ----------
    inside : int
        Number of input channels.
    outside : int
        Number of output channels.
    """

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.each = (outside - inside) // 2

    def forward(self, x: Tensor) -> Tensor:
        """Subsample the map and pad its channels.

        Parameters
        ----------
        x : Tensor of shape (N, inside, H, W)
            Batch of feature maps.

        Returns
        -------
        Tensor of shape (N, outside, ceil(H / 2), ceil(W / 2))
            The smaller maps.
        """
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.each, self.each))


class BasicBlock(nn.Module):
    """Build a residual block of two 3x3 convolutions beside a shortcut.

    Parameters
    ----------
    inside : int
        Number of input channels.
    outside : int
        Number of output channels.
    stride : int
        Stride of the first convolution.
    shortcut : torch.nn.Module
        Module that brings the input to the shape of the output; an empty ``nn.Sequential`` is the identity.
    rate : float
        Dropout rate after the first ReLU and before the sum.
    last_relu : bool, default=True
        Whether a ReLU follows the sum.
    """

    def __init__(
        self, inside: int, outside: int, stride: int, *, shortcut: nn.Module, rate: float, last_relu: bool = True
    ) -> None:
        super().__init__()
        self.conv1 = conv(inside, outside, stride=stride)
        self.bn1 = nn.BatchNorm2d(outside)
        self.drop1 = dropout(rate)
        self.conv2 = conv(outside, outside)
        self.bn2 = nn.BatchNorm2d(outside)
        self.drop2 = dropout(rate)
        self.shortcut = shortcut
        self.last_relu = last_relu

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
        y = self.drop1(functional.relu(self.bn1(self.conv1(x))))
        y = self.drop2(self.bn2(self.conv2(y))) + self.shortcut(x)
        return functional.relu(y) if self.last_relu else y


class Bottleneck(nn.Module):
    """Build a residual block of a 1x1, a 3x3 and a 1x1 convolution beside a shortcut.

    Parameters
    ----------
    inside : int
        Number of input channels.
    middle : int
        Number of channels of the first two convolutions; the block returns four times as many.
    stride : int
        Stride of the 3x3 convolution.
    rate : float
        Dropout rate after the first two ReLUs.
    at_end : float, default=0.0
        Dropout rate after the last batch norm, before the sum.
    """

    def __init__(self, inside: int, middle: int, stride: int, *, rate: float, at_end: float = 0.0) -> None:
        super().__init__()
        outside = 4 * middle
        self.conv1 = conv(inside, middle, 1)
        self.bn1 = nn.BatchNorm2d(middle)
        self.drop1 = dropout(rate)
        self.conv2 = conv(middle, middle, stride=stride)
        self.bn2 = nn.BatchNorm2d(middle)
        self.drop2 = dropout(rate)
        self.conv3 = conv(middle, outside, 1)
        self.bn3 = nn.BatchNorm2d(outside)
        self.drop3 = dropout(at_end)
        self.shortcut = shortcut_b(inside, outside, stride)

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
        y = self.drop1(functional.relu(self.bn1(self.conv1(x))))
        y = self.drop2(functional.relu(self.bn2(self.conv2(y))))
        return functional.relu(self.drop3(self.bn3(self.conv3(y))) + self.shortcut(x))


class ResNet(Network):
    """Build a residual network of four stages of widths 64 to 512.

    The feature is 512 long, with bottlenecks 2048.

    Parameters
    ----------
    options : Options
        Number of classes, dropout, head and branches.
    blocks : tuple of four int
        Number of blocks in each stage.
    bottleneck : bool, default=False
        Whether blocks are bottlenecks, as in ResNet-50.
    stem : {"small", "imagenet"}, default="small"
        A 3x3 convolution without pooling, for images of 32 pixels; or a 7x7 convolution of stride 2 and 3x3 pooling of
        stride 2, for images of 224 pixels.
    sites : {"fd_shifts", "unknown_detection"}, default="fd_shifts"
        Sites of dropout in a network of bottlenecks.
    """

    def __init__(
        self,
        options: Options,
        blocks: tuple[int, int, int, int],
        *,
        bottleneck: bool = False,
        stem: Stem = "small",
        sites: Sites = "fd_shifts",
    ) -> None:
        super().__init__()
        rate = options.block_dropout
        has_fd_shifts_sites = bottleneck and sites == "fd_shifts"
        self.conv1 = conv(options.in_channels, 64)
        self.pool: nn.Module = nn.Identity()
        if stem == "imagenet":
            self.conv1 = conv(options.in_channels, 64, 7, 2)
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(64)
        self.drop1 = dropout(rate if has_fd_shifts_sites else 0)
        stages = []
        inside = 64
        for number, count in enumerate(blocks):
            width = 64 * 2**number
            stage: list[nn.Module] = []
            for stride in strides(count, number):
                if not bottleneck:
                    shortcut = shortcut_b(inside, width, stride)
                    stage.append(BasicBlock(inside, width, stride, shortcut=shortcut, rate=rate))
                    inside = width
                    continue
                if has_fd_shifts_sites:
                    block_rate = 0.0 if number == 0 else rate
                    stage.append(Bottleneck(inside, width, stride, rate=block_rate))
                else:
                    stage.append(Bottleneck(inside, width, stride, rate=rate, at_end=rate))
                inside = 4 * width
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.drop2 = dropout(rate if has_fd_shifts_sites else rate / 2)
        self.finish(inside, options)

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature: the map of the last stage, averaged over pixels.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, D)
            The features.
        """
        y = self.drop1(self.pool(functional.relu(self.bn1(self.conv1(x)))))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.drop2(y.mean((2, 3)))


class CifarResNet(Network):
    """Build a residual network of three stages of widths 16, 32 and 64, of (depth - 2) / 6 basic blocks each.

    Parameters
    ----------
    options : Options
        Number of classes, dropout, head and branches.
    depth : int
        Depth of the network: 8, 20, 32, 44, 56 or 110 in the zoo.
    variant : {"a", "b", "kd"}
        ``a``: shortcut A, as in the paper; the feature is 64 long. ``b``: 1x1 convolutions as shortcuts of the strided
        blocks; the feature is 64 long. ``kd``: the form common in distillation code, with a stem of 64 channels, a 1x1
        convolution as shortcut of each stage's first block, no ReLU after the sums but one after each stage, and 4x4
        pooling, so the feature is 256 long.
    """

    def __init__(self, options: Options, depth: int, *, variant: Variant) -> None:
        super().__init__()
        self.is_kd = variant == "kd"
        rate = options.block_dropout
        stem = 64 if self.is_kd else 16
        self.conv1 = conv(options.in_channels, stem)
        self.bn1 = nn.BatchNorm2d(stem)
        stages = []
        inside = stem
        for number, width in enumerate((16, 32, 64)):
            stage: list[nn.Module] = []
            for stride in strides((depth - 2) // 6, number):
                shortcut: nn.Module = nn.Sequential()
                if inside != width:
                    shortcut = PadShortcut(inside, width) if variant == "a" else projection(inside, width, stride)
                stage.append(BasicBlock(inside, width, stride, shortcut=shortcut, rate=rate, last_relu=not self.is_kd))
                inside = width
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3 = stages
        self.drop1 = dropout(rate / 2)
        self.finish(256 if self.is_kd else 64, options)

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature: the pooled map of the last stage.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, D)
            The features.
        """
        y = functional.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3):
            y = stage(y)
            if self.is_kd:
                y = functional.relu(y)
        if self.is_kd:
            return self.drop1(functional.avg_pool2d(y, 4).flatten(1))
        return self.drop1(y.mean((2, 3)))
