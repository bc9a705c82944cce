"""Loss terms by cross-entropy on views of the batch: clean, mixed and augmented images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from twofold import _checks
from twofold.nn.ingredients import losses
from twofold.nn.ingredients.augment import check_severity
from twofold.nn.ingredients.mixing import Mixed, augmix, cutmix, mixup
from twofold.nn.ingredients.pixmix import Rounds, check_rounds, pixmix
from twofold.nn.recipes.part import QUIET, AugmentedBatch, Term, check_not_negative, check_positive

if TYPE_CHECKING:
    from twofold.nn.training import TrainingStep


@dataclass(frozen=True)
class Clean(Term):
    """Learn by cross-entropy on the clean batch, with label smoothing.

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the term.
    smoothing : float, default=0.0
        Share of the label that is spread over all classes.
    """

    weight: float = 1.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")
        _checks.number(self.smoothing, "smoothing", 0.0, 1.0)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return self.weight * losses.cross_entropy(step.logits, step.labels, self.smoothing)


@dataclass(frozen=True)
class MixUp(Term):
    """Learn by cross-entropy on images mixed in pairs; beside :class:`Clean` with alpha 10 it is RegMixup.

    Parameters
    ----------
    alpha : float, default=10.0
        Both parameters of the Beta distribution of the share; large values mix half and half. 10 is SURE's and SURE+'s,
        20 that of RegMixup's code and of OpenOOD, 0.2 plain mixup's.
    weight : float, default=1.0
        Weight of the term; 1 in SURE and SURE+, 0.2 in SURE on DeiT.
    """

    alpha: float = 10.0
    weight: float = 1.0
    views: ClassVar[tuple[str, ...]] = ("mixup",)

    def __post_init__(self) -> None:
        check_positive(self.alpha, "alpha")
        check_not_negative(self.weight, "weight")

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy on mixed images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        images, labels = step.batch_images, step.batch_labels
        mixed = mixup(images, labels, self.alpha, seed=step.seed, epoch=step.epoch, step=step.number, draw=step.draw)
        return self.weight * _mixed_cross_entropy(step, mixed)


@dataclass(frozen=True)
class CutMix(Term):
    """Learn by cross-entropy on images that hold a box of another.

    Parameters
    ----------
    alpha : float, default=1.0
        Both parameters of the Beta distribution of the share that is left of an image.
    weight : float, default=1.0
        Weight of the term.
    """

    alpha: float = 1.0
    weight: float = 1.0
    views: ClassVar[tuple[str, ...]] = ("cutmix",)

    def __post_init__(self) -> None:
        check_positive(self.alpha, "alpha")
        check_not_negative(self.weight, "weight")

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy on mixed images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        images, labels = step.batch_images, step.batch_labels
        mixed = cutmix(images, labels, self.alpha, seed=step.seed, epoch=step.epoch, step=step.number, draw=step.draw)
        return self.weight * _mixed_cross_entropy(step, mixed)


def _mixed_cross_entropy(step: TrainingStep, mixed: Mixed) -> Tensor:
    """Compute the cross-entropy of a batch mixed in pairs, on the rows of this micro-batch."""
    images, partners = step.own_rows(mixed.images), step.own_rows(mixed.partners)
    return losses.mixed_cross_entropy(step.network(images), step.labels, partners, mixed.share)


@dataclass(frozen=True, repr=False)
class PixMix(Term):
    """Learn by cross-entropy on images mixed with fractals; beside :class:`Clean` it is RegPixMix.

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the term.
    compat : {"paper", "published"}, default="paper"
        Whether to mix as PixMix describes or as the released code of SURE+ does, which draws 1 to 4 partners and mixes
        in the last one alone.
    rounds : int or tuple of two int, default=(0, 4)
        Number of mixing rounds, or the least and the largest: ``(0, 4)`` in the original PixMix, ``(1, 4)`` as printed
        in SURE+, 1 in effect in its released code.
    beta : float, default=3.0
        Parameter of the Beta distributions of the mixing weights; 3 in PixMix and SURE+.
    severity : float, default=3.0
        Largest level of an augmentation, from 0.1 to 10; 3 in PixMix and SURE+.
    """

    weight: float = 1.0
    compat: Literal["paper", "published"] = "paper"
    rounds: Rounds = field(default=(0, 4), metadata=QUIET)
    beta: float = field(default=3.0, metadata=QUIET)
    severity: float = field(default=3.0, metadata=QUIET)
    views: ClassVar[tuple[str, ...]] = ("pixmix",)
    uses_mixers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")
        _checks.choice(self.compat, "compat", ("paper", "published"))
        check_rounds(self.rounds)
        check_positive(self.beta, "beta")
        check_severity(self.severity)

    def make_views(self, batch: AugmentedBatch) -> dict[str, npt.NDArray[np.float32]]:
        """Make the mixed images.

        Parameters
        ----------
        batch : AugmentedBatch
            The augmented images.

        Returns
        -------
        dict of str to ndarray of float32, shape (B, H, W, 3)
            The view ``pixmix``.
        """
        mixed = pixmix(
            batch.pixels,
            batch.mixers,
            batch.index,
            rounds=self.rounds,
            beta=self.beta,
            severity=self.severity,
            compat=self.compat,
            seed=batch.seed,
            epoch=batch.epoch,
        )
        return {"pixmix": mixed}

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy on mixed images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        logits = step.network(step.view("pixmix", self))
        return self.weight * losses.cross_entropy(logits, step.labels)


@dataclass(frozen=True)
class AugMix(Term):
    """Learn to predict the same for the clean image and two augmented ones.

    Parameters
    ----------
    weight : float, default=12.0
        Weight of the Jensen-Shannon divergence; 12 in AugMix, and in the code of the unknown-detection benchmark, whose
        text has none (the recipe ``augmix_no_jsd``).
    """

    weight: float = 12.0
    views: ClassVar[tuple[str, ...]] = ("clean", "augmix 0", "augmix 1")

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")

    def make_views(self, batch: AugmentedBatch) -> dict[str, npt.NDArray[np.float32]]:
        """Make two augmented images of each.

        Parameters
        ----------
        batch : AugmentedBatch
            The augmented images.

        Returns
        -------
        dict of str to ndarray of float32, shape (B, H, W, 3)
            The views ``augmix 0`` and ``augmix 1``.
        """
        return {"augmix 0": _make_augmix(batch, view=0), "augmix 1": _make_augmix(batch, view=1)}

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted Jensen-Shannon divergence of the three predictions.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        clean = step.logits
        first = step.network(step.view("augmix 0", self))
        second = step.network(step.view("augmix 1", self))
        return self.weight * losses.jsd(clean, first, second)


@dataclass(frozen=True)
class AugMixed(Term):
    """Learn by cross-entropy on an augmented image, without the agreement of :class:`AugMix`."""

    views: ClassVar[tuple[str, ...]] = ("augmix 0",)

    def make_views(self, batch: AugmentedBatch) -> dict[str, npt.NDArray[np.float32]]:
        """Make an augmented image of each.

        Parameters
        ----------
        batch : AugmentedBatch
            The augmented images.

        Returns
        -------
        dict of str to ndarray of float32, shape (B, H, W, 3)
            The view ``augmix 0``.
        """
        return {"augmix 0": _make_augmix(batch, view=0)}

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the cross-entropy on augmented images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return losses.cross_entropy(step.network(step.view("augmix 0", self)), step.labels)


def _make_augmix(batch: AugmentedBatch, view: int) -> npt.NDArray[np.float32]:
    """Make one view of AugMix; each view draws its own random numbers."""
    return augmix(batch.pixels, batch.index, seed=batch.seed, epoch=batch.epoch, view=view)
