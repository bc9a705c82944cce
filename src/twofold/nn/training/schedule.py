"""The learning rate of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from twofold.nn.recipes import Averaged
from twofold.nn.training.settings import Settings

ANNEAL = 20  # SWA anneals to its constant rate within 1/20 of the run: PyTorch's 10 of 200 epochs


@dataclass(frozen=True)
class LearningRate:
    """Compute the learning rate of a step: warm-up, then the schedule, then the constant rate of SWA.

    Parameters
    ----------
    settings : Settings
        Schedule, warm-up and number of epochs.
    base : float
        Learning rate at the start of the schedule; fine-tuning takes a fraction of ``settings.lr``.
    steps_per_epoch : int
        Updates of the weights in an epoch.
    average : Averaged, optional
        The average of weights; with ``kind="swa"`` the rate is constant once averaging starts.

    Examples
    --------
    >>> rate = LearningRate(Settings(epochs=10), base=1.0, steps_per_epoch=2)
    >>> rate.at(0), round(rate.at(10), 6)
    (1.0, 0.5)
    """

    settings: Settings
    base: float
    steps_per_epoch: int
    average: Averaged | None = None

    @property
    def steps(self) -> int:
        """Updates of the weights in the whole run.

        Examples
        --------
        >>> LearningRate(Settings(epochs=10), base=1.0, steps_per_epoch=2).steps
        20
        """
        return self.steps_per_epoch * self.settings.epochs

    @property
    def warm_up(self) -> int:
        """Steps during which the learning rate rises, set by their number or by that of epochs.

        Examples
        --------
        >>> LearningRate(Settings(epochs=10, warm_up_epochs=1.5), base=1.0, steps_per_epoch=4).warm_up
        6
        """
        return self.settings.warm_up or round(self.settings.warm_up_epochs * self.steps_per_epoch)

    def at(self, step: int) -> float:
        """Compute the learning rate of a step.

        Parameters
        ----------
        step : int
            Number of the step, from 0.

        Returns
        -------
        float
            The learning rate.
        """
        warm_up = self.warm_up
        if step < warm_up:
            return self.base * (step + 1) / warm_up
        swa = self.average
        if swa is None or swa.kind != "swa" or step < swa.start * self.steps:
            return self._scheduled(step)
        start = int(swa.start * self.steps)
        reached = self._scheduled(start)
        annealed = min(1.0, (step - start) / max(1, self.steps // ANNEAL))
        return reached + (self.base * swa.lr - reached) * 0.5 * (1.0 - math.cos(math.pi * annealed))

    def _scheduled(self, step: int) -> float:
        """Compute the learning rate by the schedule alone."""
        schedule = self.settings.schedule
        if self.settings.schedule_per == "epoch":
            step -= step % self.steps_per_epoch
        if schedule == "constant":
            return self.base
        if schedule == "drops":
            return self.base * self.settings.drop_factor ** self._count_drops(step)
        end = min(self.settings.min_lr, self.base)
        return end + (self.base - end) * (0.5 * (1.0 + math.cos(math.pi * step / self.steps)))

    def _count_drops(self, step: int) -> int:
        """Count the drops that a step comes after; whole numbers are epochs, others shares of the run."""
        passed = 0
        for drop in self.settings.drops:
            if isinstance(drop, int):
                passed += step // self.steps_per_epoch >= drop
            else:
                passed += step / self.steps >= drop
        return passed
