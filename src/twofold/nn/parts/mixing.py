"""Images mixed with each other (mixup, CutMix) or with augmented copies of themselves (AugMix).

Mixup and CutMix pair the samples of one batch: their draws belong to (seed, epoch, step), and the same batch at the
same step gives the same result. AugMix works on each sample alone and is seeded by its index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twofold import _checks
from twofold._checks import ArrayLike
from twofold.errors import InvalidInput
from twofold.nn.parts.augment import (
    OPERATIONS,
    STREAMS,
    batch,
    operation_codes,
    sample_index,
    severity_of,
    uniforms,
    word,
)

AUGMIX_OPERATIONS = OPERATIONS[:9]  # without colour, contrast, brightness, sharpness: they are test corruptions too


class Mixed(NamedTuple):
    """A mixed batch; its loss is share · loss(own labels) + (1 - share) · loss(partners)."""

    images: Tensor
    partners: Tensor  # label of the other image of each pair
    share: float  # weight of the own label


def mixup(images: Tensor, labels: Tensor, alpha: float, *, seed: int = 0, epoch: int = 0, step: int = 0) -> Mixed:
    r"""Each image mixed with another of its batch, by one weight for the whole batch.

    .. math:: \tilde x = \kappa x + (1 - \kappa) x', \quad \kappa \sim B(\alpha, \alpha)

    Mixup takes alpha = 0.2 (Zhang et al., ICLR 2018, arXiv:1710.09412), RegMixup 10, beside the clean batch (Pinto et
    al., NeurIPS 2022, arXiv:2206.14502; its own code takes 20). Images are floats of any shape (N, ...), normalised or
    not: the order of mixing and normalising does not matter.
    """
    rng = _batch_generator("mixup", seed, epoch, step)
    share, order = _pairing(images, labels, alpha, rng)
    mixed = images.clone().lerp_(images.index_select(0, order), 1.0 - share)  # a clone keeps the memory layout
    return Mixed(mixed, labels.index_select(0, order), share)


def cutmix(
    images: Tensor, labels: Tensor, alpha: float = 1.0, *, seed: int = 0, epoch: int = 0, step: int = 0
) -> Mixed:
    r"""A box of each image (N, C, H, W) replaced by that of another of its batch, one box for the whole batch.

    The box has sides :math:`\sqrt{1 - \lambda}` of the image's, :math:`\lambda \sim B(\alpha, \alpha)`, and its centre
    anywhere; it is cut at the border, and ``share`` is what is left of the image after that.

    Yun et al., ICCV 2019, arXiv:1905.04899.
    """
    rng = _batch_generator("cutmix", seed, epoch, step)
    drawn, order = _pairing(images, labels, alpha, rng)
    if images.ndim != 4:
        raise InvalidInput(f"images must have shape (N, C, H, W), got {tuple(images.shape)}")
    box = []
    for side in images.shape[2:]:
        half, centre = int(side * np.sqrt(1.0 - drawn)) // 2, int(rng.integers(side))
        box.append(slice(max(centre - half, 0), min(centre + half, side)))
    rows, columns = box
    mixed = images.clone()
    mixed[:, :, rows, columns] = images[:, :, rows, columns].index_select(0, order)
    covered = (rows.stop - rows.start) * (columns.stop - columns.start)
    return Mixed(mixed, labels.index_select(0, order), 1.0 - covered / (images.shape[2] * images.shape[3]))


def _batch_generator(name: str, seed: int, epoch: int, step: int) -> np.random.Generator:
    key = np.array([word(seed, "seed"), word(epoch, "epoch")])
    counter = np.array([0, word(step, "step"), STREAMS[name], 0], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _pairing(images: Any, labels: Any, alpha: float, rng: np.random.Generator) -> tuple[float, Tensor]:
    """Weight of the own image, and who is paired with whom."""
    if not isinstance(images, Tensor) or not images.is_floating_point() or images.ndim < 2:
        came = f"{images.dtype} of {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise InvalidInput(f"images must be a tensor of floats (N, ...), got {came}")
    if not isinstance(labels, Tensor) or labels.ndim < 1 or len(labels) != len(images):
        came = f"shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise InvalidInput(f"labels must be a tensor with one row for each of {len(images)} images, got {came}")
    power = _checks.number(alpha, "alpha", 0.0, np.inf, open_low=True, open_high=True)
    share = float(rng.beta(power, power))
    return share, torch.from_numpy(rng.permutation(len(images))).to(images.device)


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
    r"""Images (N, H, W, 3) of the same labels, float32 in [0, 1], from uint8 ones.

    .. math:: \tilde x = (1 - m) x + m \sum_{j=1}^{\text{width}} w_j \, c_j(x), \quad
              w \sim \mathrm{Dirichlet}(1), \; m \sim B(1, 1)

    with chains :math:`c_j` of 1 to ``depth`` operations drawn uniformly, each at its own level of U(0.1, severity).
    ``view`` tells apart the copies that the Jensen-Shannon loss compares: 0 and 1 are drawn independently.

    Hendrycks et al., ICLR 2020, arXiv:1912.02781. Severity 3 on CIFAR; published ImageNet code takes 1.
    """
    from twofold.nn.parts._image_kernels import augmix_all

    x = batch(images)
    wide, deep = _checks.whole(width, "width", 1), _checks.whole(depth, "depth", 1)
    codes, strength = operation_codes(operations), severity_of(severity)
    count = 1 + wide + wide * (1 + 3 * deep)
    draws = uniforms(sample_index(index, len(x)), count, name="augmix", seed=seed, epoch=epoch, view=view)
    result = np.empty(x.shape, dtype=np.float32)
    augmix_all(x, codes, strength, wide, deep, draws, result)
    return result
