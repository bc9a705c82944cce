"""Images mixed with each other (mixup, CutMix) or with augmented copies of themselves (AugMix).

Mixup and CutMix pair the samples of one batch: their draws belong to (seed, epoch, step), and the same batch at the
same step gives the same result. AugMix works on each sample alone and is seeded by its index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twofold import _checks
from twofold._checks import ArrayLike
from twofold.errors import InvalidInput
from twofold.nn.ingredients.augment import (
    OPERATIONS,
    STREAMS,
    batch,
    check_severity,
    operation_codes,
    sample_index,
    uniforms,
    word,
)

AUGMIX_OPERATIONS = OPERATIONS[:9]  # without colour, contrast, brightness, sharpness: they are test corruptions too


class Mixed(NamedTuple):
    """Hold a mixed batch.

    Its loss is share · loss(own labels) + (1 - share) · loss(partners); see
    :func:`~twofold.nn.ingredients.losses.mixed_cross_entropy`.

    Attributes
    ----------
    images : Tensor of shape (N, ...)
        Mixed images.
    partners : Tensor of shape (N, ...)
        Label of the other image of each pair.
    share : float
        Weight of the own label, from 0 to 1.
    """

    images: Tensor
    partners: Tensor
    share: float


def mixup(
    images: Tensor, labels: Tensor, alpha: float, *, seed: int = 0, epoch: int = 0, step: int = 0, draw: int = 0
) -> Mixed:
    r"""Mix each image with another of its batch, by one weight for the whole batch.

    .. math:: \tilde x = \kappa x + (1 - \kappa) x', \quad \kappa \sim B(\alpha, \alpha)

    Parameters
    ----------
    images : Tensor of shape (N, ...), float
        Images of any shape, normalised or not: the order of mixing and normalising does not matter.
    labels : Tensor of shape (N, ...)
        Label of each image.
    alpha : float
        Parameter of the Beta distribution, above 0. Mixup takes 0.2; RegMixup takes 10, beside the clean batch (its own
        code takes 20).
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.
    step : int, default=0
        Step of training, below 2^64; each step draws a new weight and new pairs.
    draw : int, default=0
        Number of the draw in the step, for a second one with other numbers.

    Returns
    -------
    Mixed
        Mixed images, labels of the partners, and the weight :math:`\kappa` of the own label.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    References
    ----------
    Zhang et al., ICLR 2018, arXiv:1710.09412 (mixup). Pinto et al., NeurIPS 2022, arXiv:2206.14502 (RegMixup).

    Examples
    --------
    >>> images, labels = torch.eye(3), torch.arange(3)
    >>> mixed = mixup(images, labels, 10.0)
    >>> torch.allclose(mixed.images, mixed.share * images + (1 - mixed.share) * images[mixed.partners])
    True
    """
    _check_batch(images, labels)
    rng = _batch_generator("mixup", seed, epoch, step, draw)
    share = _draw_share(alpha, rng)
    order = _draw_partners(images, rng)
    mixed = images.clone().lerp_(images.index_select(0, order), 1.0 - share)  # a clone keeps the memory layout
    return Mixed(mixed, labels.index_select(0, order), share)


def cutmix(
    images: Tensor, labels: Tensor, alpha: float = 1.0, *, seed: int = 0, epoch: int = 0, step: int = 0, draw: int = 0
) -> Mixed:
    r"""Replace a box of each image by that of another of its batch, one box for the whole batch.

    The box has sides :math:`\sqrt{1 - \lambda}` of the image's, :math:`\lambda \sim B(\alpha, \alpha)`, and its centre
    anywhere. The part beyond the border is lost, and ``share`` is what is left of the image after that.

    Parameters
    ----------
    images : Tensor of shape (N, C, H, W), float
        Images, normalised or not.
    labels : Tensor of shape (N, ...)
        Label of each image.
    alpha : float, default=1.0
        Parameter of the Beta distribution, above 0.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.
    step : int, default=0
        Step of training, below 2^64; each step draws a new box and new pairs.
    draw : int, default=0
        Number of the draw in the step, for a second one with other numbers.

    Returns
    -------
    Mixed
        Mixed images, labels of the partners, and the weight of the own label.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    References
    ----------
    Yun et al., ICCV 2019, arXiv:1905.04899.

    Examples
    --------
    >>> mixed = cutmix(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))
    >>> tuple(mixed.images.shape), 0 <= mixed.share <= 1
    ((2, 3, 8, 8), True)
    """
    _check_batch(images, labels)
    if images.ndim != 4:
        raise InvalidInput(f"images must have shape (N, C, H, W), got {tuple(images.shape)}")
    rng = _batch_generator("cutmix", seed, epoch, step, draw)
    kept = _draw_share(alpha, rng)
    order = _draw_partners(images, rng)
    height, width = images.shape[2:]
    rows = _draw_interval(height, kept, rng)
    columns = _draw_interval(width, kept, rng)
    mixed = images.clone()
    mixed[:, :, rows, columns] = images[:, :, rows, columns].index_select(0, order)
    covered = (rows.stop - rows.start) * (columns.stop - columns.start)
    return Mixed(mixed, labels.index_select(0, order), 1.0 - covered / (height * width))


def _draw_interval(side: int, kept: float, rng: np.random.Generator) -> slice:
    """Draw the pixels of one side that the box covers; what lies beyond the border is cut off."""
    half = int(side * np.sqrt(1.0 - kept)) // 2
    centre = int(rng.integers(side))
    return slice(max(centre - half, 0), min(centre + half, side))


def _batch_generator(name: str, seed: int, epoch: int, step: int, draw: int) -> np.random.Generator:
    key = np.array([word(seed, "seed"), word(epoch, "epoch")])
    counter = np.array([0, word(step, "step"), STREAMS[name], word(draw, "draw")], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _check_batch(images: Tensor, labels: Tensor) -> None:
    if not isinstance(images, Tensor) or not images.is_floating_point() or images.ndim < 2:
        raise InvalidInput(f"images must be a tensor of floats (N, ...), got {_describe(images)}")
    if not isinstance(labels, Tensor) or labels.ndim < 1 or len(labels) != len(images):
        raise InvalidInput(
            f"labels must be a tensor with one row for each of {len(images)} images, got {_describe(labels)}"
        )


def _describe(value: object) -> str:
    """Describe an argument for an error message."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def _draw_share(alpha: float, rng: np.random.Generator) -> float:
    """Draw the weight of the own image."""
    power = _checks.number(alpha, "alpha", 0.0, np.inf, open_low=True, open_high=True)
    return float(rng.beta(power, power))


def _draw_partners(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Draw the partner of each image, a permutation of the batch."""
    return torch.from_numpy(rng.permutation(len(images))).to(images.device)


def augmix(
    images: ArrayLike,
    index: ArrayLike,
    *,
    width: int = 3,
    depth: int = 3,
    severity: float = 3.0,
    operations: Sequence[str] = AUGMIX_OPERATIONS,
    seed: int = 0,
    epoch: int = 0,
    view: int = 0,
) -> npt.NDArray[np.float32]:
    r"""Mix each image with chains of augmented copies of itself (AugMix).

    .. math:: \tilde x = (1 - m) x + m \sum_{j=1}^{\text{width}} w_j \, c_j(x), \quad
              w \sim \mathrm{Dirichlet}(1), \; m \sim B(1, 1)

    with chains :math:`c_j` of 1 to ``depth`` operations drawn uniformly, each at its own level of U(0.1, severity).

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    width : int, default=3
        Number of chains.
    depth : int, default=3
        Largest number of operations in a chain.
    severity : float, default=3.0
        Largest level of an operation, from 0.1 to 10. 3 is for CIFAR; published ImageNet code takes 1.
    operations : sequence of str, default=AUGMIX_OPERATIONS
        Names of the operations to draw from. The default leaves out those that are test corruptions too.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.
    view : int, default=0
        Number of the copy. The Jensen-Shannon loss compares views 0 and 1, which are drawn independently.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), float32
        Mixed images in [0, 1]; labels stay the same.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.
    UnknownName
        If there is no operation of a name.

    References
    ----------
    Hendrycks et al., ICLR 2020, arXiv:1912.02781.

    Examples
    --------
    >>> mixed = augmix(np.full((1, 4, 4, 3), 128, np.uint8), [0])
    >>> mixed.shape, mixed.dtype
    ((1, 4, 4, 3), dtype('float32'))
    """
    from twofold.nn.ingredients._image_kernels import augmix_all

    x = batch(images)
    chains = _checks.whole(width, "width", 1)
    longest = _checks.whole(depth, "depth", 1)
    codes = operation_codes(operations)
    highest_level = check_severity(severity)
    count = 1 + chains + chains * (1 + 3 * longest)
    draws = uniforms(sample_index(index, len(x)), count, name="augmix", seed=seed, epoch=epoch, view=view)
    result = np.empty(x.shape, dtype=np.float32)
    augmix_all(x, codes, highest_level, chains, longest, draws, result)
    return result
