"""Wide residual networks: pre-activated blocks, ten times as wide.

Zagoruyko & Komodakis, BMVC 2016, arXiv:1605.07146. Dropout sits between the two convolutions of a block only, as there.
"""

from __future__ import annotations

from twofold.nn.models.parts import Options
from twofold.nn.models.preresnet import PreResNet


def wide(options: Options, *, depth: int, factor: int) -> PreResNet:
    """WideResNet of this depth and widening factor; the feature is 64 times the factor wide."""
    return PreResNet(options, (depth - 4) // 6, widths=(16 * factor, 32 * factor, 64 * factor), between_only=True)
