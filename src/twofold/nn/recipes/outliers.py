"""Loss terms that learn from images of no known class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.ingredients import losses
from twofold.nn.recipes.part import Term, check_not_negative

if TYPE_CHECKING:
    from twofold.nn.training import TrainingStep


@dataclass(frozen=True)
class OutlierExposure(Term):
    """Learn to predict all classes equally on outliers, which share the pass of the clean batch.

    Parameters
    ----------
    weight : float, default=0.5
        Weight of the term; 0.5 in Outlier Exposure and the unknown-detection benchmark, CIFAR and ImageNet alike.
    """

    weight: float = 0.5
    outliers: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")

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
        Weight of the term; 0.1 in the code of the method. The benchmark does not state its own.
    m_in : float, default=-27.0
        Margin of known inputs. Table 5 of the unknown-detection benchmark: -27 on CIFAR, -15 on ImageNet; the method
        has -23 on CIFAR-10.
    m_out : float, default=-3.0
        Margin of outliers, above ``m_in``. Table 5: -3 on CIFAR, -7 on ImageNet; the method has -5.
    """

    weight: float = 0.1
    m_in: float = -27.0
    m_out: float = -3.0
    outliers: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_not_negative(self.weight, "weight")
        low = _checks.number(self.m_in, "m_in", -math.inf, math.inf, open_low=True, open_high=True)
        high = _checks.number(self.m_out, "m_out", -math.inf, math.inf, open_low=True, open_high=True)
        if low >= high:
            raise InvalidInput(f"m_in must lie below m_out, got m_in={low:g} and m_out={high:g}")

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
