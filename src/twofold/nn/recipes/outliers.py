"""Loss terms that learn from images of no known class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from twofold.nn.ingredients import losses
from twofold.nn.recipes.part import Term

if TYPE_CHECKING:
    from twofold.nn.training import TrainingStep


@dataclass(frozen=True)
class OutlierExposure(Term):
    """Learn to predict all classes equally on outliers, which share the pass of the clean batch.

    Parameters
    ----------
    weight : float, default=0.5
        Weight of the term.
    """

    weight: float = 0.5
    outliers: ClassVar[int] = 2

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy of outliers from the uniform prediction.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return self.weight * losses.outlier_exposure(step.outlier_logits)


@dataclass(frozen=True)
class EnergyMargin(Term):
    """Learn an energy below one margin on known inputs and above another on outliers.

    Parameters
    ----------
    weight : float, default=0.1
        Weight of the term.
    m_in : float, default=-27.0
        Margin of known inputs; the defaults are those of the benchmark for CIFAR.
    m_out : float, default=-3.0
        Margin of outliers.
    """

    weight: float = 0.1
    m_in: float = -27.0
    m_out: float = -3.0
    outliers: ClassVar[int] = 2

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted squared distances beyond the margins.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return self.weight * losses.energy_margin(step.logits, step.outlier_logits, self.m_in, self.m_out)
