"""The averages of several stochastic forward passes, or of the members of an ensemble."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from twofold._checks import ArrayLike, same_rows, whole
from twofold._math import Floats, log_softmax
from twofold.errors import InvalidInput
from twofold.outputs._fields import FINE, check_rows


@dataclass(frozen=True, eq=False, init=False)
class Passes:
    """Hold the averages of several stochastic forward passes, or of the members of an ensemble.

    Parameters
    ----------
    mean_prob : array-like of shape (N, C)
        Mean softmax probabilities, in [0, 1].
    mean_logits : array-like of shape (N, C)
        Mean logits.
    mean_entropy : array-like of shape (N,)
        Mean over passes of the entropy of the softmax, in nats.
    prob_std : array-like of shape (N, C)
        Standard deviation of the probabilities over passes, in the population form (divided by ``count``).
    count : int
        Number of passes, at least 1.

    Raises
    ------
    InvalidInput
        If shapes do not fit together, a value is not finite, ``mean_prob`` lies outside [0, 1], or ``count`` is below
        1.

    Examples
    --------
    >>> means = Passes.from_logits(np.log([[[0.9, 0.1]], [[0.5, 0.5]]]))
    >>> means.mean_prob.round(3), means.prob_std.round(3), means.count
    (array([[0.7, 0.3]]), array([[0.2, 0.2]]), 2)
    """

    mean_prob: Floats
    mean_logits: Floats
    mean_entropy: Floats
    prob_std: Floats
    count: int

    def __init__(
        self,
        mean_prob: ArrayLike,
        mean_logits: ArrayLike,
        mean_entropy: ArrayLike,
        prob_std: ArrayLike,
        count: int,
    ) -> None:
        arrays = {
            "mean_prob": check_rows("passes.mean_prob", mean_prob),
            "mean_logits": check_rows("passes.mean_logits", mean_logits),
            "mean_entropy": check_rows("passes.mean_entropy", mean_entropy),
            "prob_std": check_rows("passes.prob_std", prob_std),
        }
        same_rows(**{f"passes.{name}": array for name, array in arrays.items()})
        expected = arrays["mean_prob"].shape
        for name in ("mean_logits", "prob_std"):
            shape = arrays[name].shape
            if shape != expected:
                raise InvalidInput(f"passes.{name} has shape {shape} but passes.mean_prob has {expected}")
        low, high = arrays["mean_prob"].min(), arrays["mean_prob"].max()
        if low < 0 or high > 1 + FINE:
            raise InvalidInput(
                f"passes.mean_prob must be probabilities in [0, 1], got values from {low:g} to {high:g}; "
                "for logits of single passes use Passes.from_logits"
            )
        vars(self).update(arrays, count=whole(count, "passes.count", 1))

    @classmethod
    def from_logits(cls, passes: Iterable[ArrayLike]) -> Self:
        """Average the logits of several passes, holding one pass in memory at a time.

        Parameters
        ----------
        passes : array-like of shape (M, N, C), or iterable of array-likes of shape (N, C)
            Logits of each pass. A generator keeps memory small: each pass is dropped once it has been added.

        Returns
        -------
        Passes
            Means over passes, and the standard deviation of the probabilities by Welford's update.

        Raises
        ------
        InvalidInput
            If there is no pass, passes differ in shape, or a value is not finite.

        Examples
        --------
        >>> Passes.from_logits(np.zeros((1, 2)) for _ in range(3)).mean_entropy.round(4)
        array([0.6931])
        """
        count = 0
        for one_pass in passes:
            logits = check_rows("logits", one_pass, label=f"passes[{count}]")
            log_prob = log_softmax(logits)
            prob = np.exp(log_prob)
            entropy = -(prob * log_prob).sum(axis=1)
            if count == 0:
                mean_prob, mean_logits = np.zeros_like(prob), np.zeros_like(prob)
                mean_entropy, spread = np.zeros_like(entropy), np.zeros_like(prob)
            elif prob.shape != mean_prob.shape:
                raise InvalidInput(f"passes[{count}] has shape {prob.shape} but passes[0] has {mean_prob.shape}")
            count += 1
            # Welford's update: one pass over the data without the cancellation of E[p^2] - E[p]^2
            step = prob - mean_prob
            mean_prob += step / count
            spread += step * (prob - mean_prob)
            mean_logits += (logits - mean_logits) / count
            mean_entropy += (entropy - mean_entropy) / count
        if count == 0:
            raise InvalidInput("passes is empty; at least one pass is needed")
        return cls(mean_prob, mean_logits, mean_entropy, np.sqrt(spread / count), count)
