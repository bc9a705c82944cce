"""VGG networks with batch norm for 32x32 images; the feature is 512 wide.

Simonyan & Zisserman, ICLR 2015, arXiv:1409.1556, with one linear layer on the pooled map.

VGG-13 has FD-Shifts' dropout: after the first convolution of each block (0.3 in the first, 0.4 in the others), and its
head then gains dropout (0.5), a linear layer, ReLU and dropout (0.5), so the networks with and without dropout differ
in their parameters. The rate given is that of the first block; the others keep their proportion to it. VGG-16 and
VGG-19 have dropout on the pooled feature only.
"""

from __future__ import annotations

from torch import Tensor, nn

from twofold.nn.models.parts import Network, Options, dropout

WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = {13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def block(inside: int, outside: int, count: int, rate: float) -> nn.Sequential:
    """So many convolutions with batch norm and ReLU, dropout after the first, then pooling."""
    layers: list[nn.Module] = []
    for i in range(count):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU()]
        if rate and not i:
            layers.append(dropout(rate))
        inside = outside
    return nn.Sequential(*layers, nn.MaxPool2d(2))


class VGG(Network):
    """Five blocks of convolutions, pooled to one feature."""

    def __init__(self, options: Options, depth: int) -> None:
        super().__init__()
        rate, inside, blocks = options.dropout, options.in_channels, []
        fd_shifts = depth == 13
        for k, (width, count) in enumerate(zip(WIDTHS, CONVOLUTIONS[depth], strict=True)):
            blocks.append(block(inside, width, count, (rate * 4 / 3 if k else rate) if fd_shifts else 0))
            inside = width
        self.block1, self.block2, self.block3, self.block4, self.block5 = blocks
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.top: nn.Module = dropout(rate)
        if fd_shifts and rate:
            late = rate * 5 / 3
            self.top = nn.Sequential(dropout(late), nn.Linear(512, 512), nn.ReLU(), dropout(late))
        self.finish(512, options)

    def body(self, x: Tensor) -> Tensor:
        """The pooled map of the last block, and what stands between it and the head."""
        y = self.block5(self.block4(self.block3(self.block2(self.block1(x)))))
        return self.top(self.pool(y).flatten(1))
