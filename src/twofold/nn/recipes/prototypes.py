"""Loss terms on the features of the network, around a prototype of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.ingredients.prototypes import compactness, dispersion, move_prototypes
from twofold.nn.models.parts import Network, PrototypeHead
from twofold.nn.recipes.part import AugmentedBatch, Term, check_not_negative

if TYPE_CHECKING:
    from twofold.nn.training import Training, TrainingStep


@dataclass(frozen=True)
class Cider(Term):
    r"""Learn compact classes whose prototypes lie far apart (CIDER); needs :class:`PrototypeClassifier`.

    .. math:: L = w L_{\text{comp}} + L_{\text{dis}}

    Prototypes start at the class means of the projections, and follow those of two augmented views of each batch, row
    by row. The dispersion sees the moved prototypes, with gradients through the projections of the batch; the
    compactness sees them as constants, as in the released code. The losses are
    :func:`~twofold.nn.ingredients.prototypes.compactness` and :func:`~twofold.nn.ingredients.prototypes.dispersion`.

    Parameters
    ----------
    weight : float, default=2.0
        Weight w of the compactness; 2 in CIDER.
    momentum : float, default=0.95
        Share of a prototype that each row leaves; 0.95 in CIDER, 0.5 on CIFAR-100.

    Notes
    -----
    Both views are drawn by the augmentations of the training. The network sees them in two passes, so that batch norm
    has the statistics of each; the released code puts them in one batch.

    References
    ----------
    Ming et al., ICLR 2023, arXiv:2203.04450.
    """

    weight: float = 2.0
    momentum: float = 0.95
    views: ClassVar[tuple[str, ...]] = ("clean", "second view")
    couples: ClassVar[bool] = True
    needs_features: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")
        _checks.number(self.momentum, "momentum", 0.0, 1.0)

    def make_views(self, batch: AugmentedBatch) -> dict[str, npt.NDArray[np.float32]]:
        """Augment the images of a batch a second time.

        Parameters
        ----------
        batch : AugmentedBatch
            The augmented images.

        Returns
        -------
        dict of str to ndarray of float32, shape (B, H, W, 3)
            The view ``second view``.
        """
        return {"second view": batch.augment_again().astype(np.float32) / np.float32(255.0)}

    def start(self, training: Training) -> None:
        """Set the prototypes to the class means of the projections of the training images, scaled to length one.

        Parameters
        ----------
        training : Training
            The training.
        """
        network, head = _find_prototypes(training)

        def project(images: Tensor) -> Tensor:
            return head.unit(network.encode(images))

        means = training.class_means(project, head.outputs)
        head.weight.copy_(functional.normalize(means, dim=1))

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted compactness plus the dispersion; prototypes move once the weights have moved.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        _, head = _find_prototypes(step.training)
        temperature = 1.0 / float(head.scale)
        first = step.features
        second = step.embed(step.view("second view", self))

        def move(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
            return move_prototypes(head.weight, torch.cat([first, second]), labels.repeat(2), self.momentum)

        def keep(first: Tensor, second: Tensor, labels: Tensor) -> None:
            head.weight.copy_(move(first, second, labels))

        moved = move(step.gather_batch(first), step.gather_batch(second), step.gather_batch(step.labels))
        if step.is_first_pass:
            step.after_update(keep, first.detach(), second.detach(), step.labels)
        compact = compactness(torch.cat([first, second]), moved.detach(), step.labels.repeat(2), temperature)
        return self.weight * compact + step.batch_loss(dispersion(moved, temperature))


def _find_prototypes(training: Training) -> tuple[Network, PrototypeHead]:
    """Return the network of a training and its head, which must have prototypes."""
    network = training.model
    if not isinstance(network, Network) or not isinstance(network.linear, PrototypeHead):
        raise InvalidInput("this recipe needs a network with prototypes; build it with **recipe('cider').options")
    return network, network.linear
