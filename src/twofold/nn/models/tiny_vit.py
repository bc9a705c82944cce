"""A vision transformer for 32x32 images that trains in minutes without a GPU; the feature is 64 wide.

Patches of 4x4 pixels, four blocks of attention with four heads, and the mean over patches as the feature, after a layer
norm. The layout is that of Dosovitskiy et al., ICLR 2021, arXiv:2010.11929, with layer norms before attention and
perceptron. Dropout is after attention and after both layers of the perceptron.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from twofold.errors import InvalidInput
from twofold.nn.models.parts import Network, Options, dropout

SIDE, PATCH = 32, 4
WIDTH, DEPTH, HEADS = 64, 4, 4


class AttentionBlock(nn.Module):
    """Build a block of attention and perceptron, each around a shortcut.

    Parameters
    ----------
    rate : float
        Dropout rate; 0 builds no dropout.

    Examples
    --------
    >>> AttentionBlock(0.0)(torch.zeros(2, 5, WIDTH)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.drop = dropout(rate)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.GELU(),
            dropout(rate),
            nn.Linear(2 * WIDTH, WIDTH),
            dropout(rate),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the tokens after attention and perceptron.

        Parameters
        ----------
        tokens : Tensor of shape (N, T, 64)
            Tokens of each image.

        Returns
        -------
        Tensor of shape (N, T, 64)
            The tokens after the block.
        """
        normed = self.norm1(tokens)
        attended, _ = self.attention(normed, normed, normed, need_weights=False)
        tokens = tokens + self.drop(attended)
        result: Tensor = tokens + self.perceptron(tokens)
        return result


class TinyViT(Network):
    """Build a vision transformer of four blocks on 32x32 images.

    Parameters
    ----------
    options : Options
        Number of classes, dropout, head and branches.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.patches = nn.Conv2d(options.in_channels, WIDTH, PATCH, stride=PATCH)
        self.places = nn.Parameter(0.02 * torch.randn(1, (SIDE // PATCH) ** 2, WIDTH))
        rate = options.block_dropout
        self.block1, self.block2, self.block3, self.block4 = [AttentionBlock(rate) for _ in range(DEPTH)]
        self.norm = nn.LayerNorm(WIDTH)
        self.finish(WIDTH, options)

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature: the mean over the patches of the last block, after a layer norm.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, 32, 32), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, 64)
            The features.

        Raises
        ------
        InvalidInput
            If the images are not of 32x32 pixels.
        """
        height, width = x.shape[2:]
        if (height, width) != (SIDE, SIDE):
            raise InvalidInput(f"tiny_vit_32 takes images of 32x32 pixels, got {height}x{width}; resize them")
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        tokens = self.block4(self.block3(self.block2(self.block1(tokens))))
        feature: Tensor = self.norm(tokens).mean(dim=1)
        return feature
