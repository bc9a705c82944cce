"""Residual networks for 32x32 images, activation after the sum.

He et al., CVPR 2016, arXiv:1512.03385. Parameters are named as in the common public checkpoints (``conv1``, ``bn1``,
``layer1.0.conv1``, ``shortcut.0``, ``linear``).

Dropout of basic blocks: after the first ReLU and after the second batch norm before the sum, and at half the rate after
global pooling (the unknown-detection benchmark: 0.2 and 0.1). ResNet-50 has FD-Shifts' sites instead: after the stem,
after the first two ReLUs of every bottleneck but those of the first stage, and after global pooling, all at one rate.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from twofold.nn.models.parts import Network, Options, dropout

Variant = Literal["a", "b", "kd"]


def conv(inside: int, outside: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size of the map but for its stride, without bias."""
    return nn.Conv2d(inside, outside, size, stride=stride, padding=size // 2, bias=False)


def projection(inside: int, outside: int, stride: int) -> nn.Sequential:
    """Shortcut B: a 1x1 convolution and batch norm."""
    return nn.Sequential(conv(inside, outside, 1, stride), nn.BatchNorm2d(outside))


class PadShortcut(nn.Module):
    """Shortcut A: every second pixel, and zeros as the new channels, equally many on both sides."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.each = (outside - inside) // 2

    def forward(self, x: Tensor) -> Tensor:
        """The smaller map."""
        return functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.each, self.each))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut; ``last_relu`` is the one after the sum."""

    def __init__(
        self, inside: int, outside: int, stride: int, *, shortcut: nn.Module, rate: float, last_relu: bool = True
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(inside, outside, stride=stride), nn.BatchNorm2d(outside)
        self.drop1 = dropout(rate)
        self.conv2, self.bn2 = conv(outside, outside), nn.BatchNorm2d(outside)
        self.drop2 = dropout(rate)
        self.shortcut = shortcut
        self.last_relu = last_relu

    def forward(self, x: Tensor) -> Tensor:
        """The block's map."""
        y = self.drop1(functional.relu(self.bn1(self.conv1(x))))
        y = self.drop2(self.bn2(self.conv2(y))) + self.shortcut(x)
        return functional.relu(y) if self.last_relu else y


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 (which has the stride) and a 1x1 convolution beside a shortcut."""

    def __init__(self, inside: int, middle: int, stride: int, *, rate: float) -> None:
        super().__init__()
        outside = 4 * middle
        self.conv1, self.bn1 = conv(inside, middle, 1), nn.BatchNorm2d(middle)
        self.drop1 = dropout(rate)
        self.conv2, self.bn2 = conv(middle, middle, stride=stride), nn.BatchNorm2d(middle)
        self.drop2 = dropout(rate)
        self.conv3, self.bn3 = conv(middle, outside, 1), nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.shortcut = nn.Sequential() if same else projection(inside, outside, stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's map."""
        y = self.drop1(functional.relu(self.bn1(self.conv1(x))))
        y = self.drop2(functional.relu(self.bn2(self.conv2(y))))
        return functional.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet(Network):
    """Four stages of widths 64 to 512 on a 3x3 stem without pooling; the feature is 512 wide, with bottlenecks 2048."""

    def __init__(self, options: Options, blocks: tuple[int, int, int, int], *, bottleneck: bool = False) -> None:
        super().__init__()
        rate = options.dropout
        self.conv1, self.bn1 = conv(options.in_channels, 64), nn.BatchNorm2d(64)
        self.drop1 = dropout(rate if bottleneck else 0)
        stages, inside = [], 64
        for k, count in enumerate(blocks):
            stage: list[nn.Module] = []
            for i in range(count):
                width, stride = 64 * 2**k, 2 if k and not i else 1
                if bottleneck:
                    stage.append(Bottleneck(inside, width, stride, rate=rate if k else 0))
                    inside = 4 * width
                else:
                    same = stride == 1 and inside == width
                    shortcut = nn.Sequential() if same else projection(inside, width, stride)
                    stage.append(BasicBlock(inside, width, stride, shortcut=shortcut, rate=rate))
                    inside = width
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.drop2 = dropout(rate if bottleneck else rate / 2)
        self.finish(inside, options)

    def body(self, x: Tensor) -> Tensor:
        """The pooled map of the last stage."""
        y = self.drop1(functional.relu(self.bn1(self.conv1(x))))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.drop2(y.mean((2, 3)))


class CifarResNet(Network):
    """Three stages of widths 16, 32, 64, of (depth - 2) / 6 basic blocks each.

    ``a``: shortcut A, as in the paper; feature 64. ``b``: 1x1 convolutions as shortcuts of the strided blocks; feature
    64. ``kd``: the form common in distillation code: a stem of 64 channels, a 1x1 convolution as shortcut of each
    stage's first block, no ReLU after the sums but one after each stage, and 4x4 pooling, so the feature is 256.
    """

    def __init__(self, options: Options, depth: int, *, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        stem = 64 if variant == "kd" else 16
        self.conv1, self.bn1 = conv(options.in_channels, stem), nn.BatchNorm2d(stem)
        stages, inside = [], stem
        for k, width in enumerate((16, 32, 64)):
            stage: list[nn.Module] = []
            for i in range((depth - 2) // 6):
                stride = 2 if k and not i else 1
                shortcut: nn.Module = nn.Sequential()
                if inside != width:
                    padded = variant == "a"
                    shortcut = PadShortcut(inside, width) if padded else projection(inside, width, stride)
                block = BasicBlock(
                    inside, width, stride, shortcut=shortcut, rate=options.dropout, last_relu=variant != "kd"
                )
                stage.append(block)
                inside = width
            stages.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3 = stages
        self.drop1 = dropout(options.dropout / 2)
        self.finish(256 if variant == "kd" else 64, options)

    def body(self, x: Tensor) -> Tensor:
        """The pooled map of the last stage."""
        y = functional.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3):
            y = functional.relu(stage(y)) if self.variant == "kd" else stage(y)
        pooled = functional.avg_pool2d(y, 4).flatten(1) if self.variant == "kd" else y.mean((2, 3))
        return self.drop1(pooled)
