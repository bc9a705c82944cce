"""Wide residual networks: pre-activated blocks, ten times as wide.

Zagoruyko & Komodakis, BMVC 2016, arXiv:1605.07146. Dropout sits between the two convolutions of a block only, as there.
"""

from __future__ import annotations

from twofold.nn.models.parts import Options
from twofold.nn.models.preresnet import PreResNet


def wide(options: Options, *, depth: int, factor: int) -> PreResNet:
    """Build a wide residual network; its feature is 64 times the factor long.

    Parameters
    ----------
    options : Options
        Number of classes, dropout, head and branches.
    depth : int
        Depth of the network; each stage has (depth - 4) / 6 blocks.
    factor : int
        How many times wider than a residual network of widths 16, 32 and 64.

    Returns
    -------
    PreResNet
        The network.

    Examples
    --------
    >>> wide(Options(10), depth=10, factor=1).width
    64
    """
    return PreResNet(options, (depth - 4) // 6, widths=(16 * factor, 32 * factor, 64 * factor), between_only=True)
