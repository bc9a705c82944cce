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
        if step < self.settings.warm_up:
            return self.base * (step + 1) / self.settings.warm_up
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
        progress = step / self.steps
        if schedule == "epochs":
            progress = (step // self.steps_per_epoch) / self.settings.epochs
        if schedule == "constant":
            return self.base
        if schedule == "drops":
            drops = (progress >= 0.6) + (progress >= 0.8)
            return self.base * 0.1**drops
        return self.base * (0.5 * (1.0 + math.cos(math.pi * progress)))
