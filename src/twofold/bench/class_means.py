"""What a network takes unknown inputs for: its mean probabilities by the class that an input really has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twofold._math import softmax
from twofold.errors import InvalidInput
from twofold.outputs import Outputs, Passes
from twofold.typing import Array, Labels


@dataclass(frozen=True)
class ClassMean:
    """Hold the mean probabilities of the inputs of one class.

    Parameters
    ----------
    name : str
        The class of the inputs, which may be unknown to the network.
    count : int
        Number of inputs.
    probabilities : tuple of float
        Mean probability of each known class; of several passes or members, that of their mean.
    """

    name: str
    count: int
    probabilities: tuple[float, ...]


def mean_probabilities(
    outputs: Outputs, labels: Labels, class_names: Sequence[str] | None = None
) -> tuple[ClassMean, ...]:
    """Average the probabilities of a network over the inputs of each class.

    Parameters
    ----------
    outputs : Outputs
        Outputs on a data set, of known or unknown classes.
    labels : array-like of int, shape (n_samples,)
        The class of each input, by the numbers of the data set itself; inputs with -1 are left out.
    class_names : sequence of str, optional
        Names of these classes; by default their numbers.

    Returns
    -------
    tuple of ClassMean
        One for each class that has inputs, in the order of the numbers.

    Raises
    ------
    InvalidInput
        If the labels are not one for each row, or no input has a class.

    Examples
    --------
    >>> found = mean_probabilities(Outputs(np.log([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])), np.array([7, 7, 3]))
    >>> [(one.name, one.count, round(one.probabilities[0], 2)) for one in found]
    [('3', 1, 0.2), ('7', 2, 0.7)]
    """
    if len(labels) != len(outputs):
        raise InvalidInput(f"labels has {len(labels)} rows but outputs has {len(outputs)}")
    probabilities = _probabilities(outputs)
    found = []
    for number in np.unique(labels):
        if number < 0:
            continue
        members = labels == number
        name = str(number) if class_names is None else class_names[number]
        means = probabilities[members].mean(axis=0)
        found.append(ClassMean(name, int(members.sum()), tuple(means.tolist())))
    if not found:
        raise InvalidInput("no input has a class; the data set must have labels")
    return tuple(found)


def _probabilities(outputs: Outputs) -> Array:
    """Compute the probabilities: the mean of passes or members where there are several."""
    passes = outputs.passes
    if passes is not None:
        means = passes if isinstance(passes, Passes) else Passes.from_logits(passes)
        return np.asarray(means.mean_prob, dtype=np.float64)
    return softmax(np.asarray(outputs.logits, dtype=np.float64))
