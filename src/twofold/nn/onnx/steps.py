"""What scores and transforms read and return in an ONNX graph, and the tables of those it can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType, SimpleNamespace
from typing import Any, TypeAlias, TypeVar

from torch import Tensor

from twofold.errors import InvalidInput
from twofold.scores.chain import Chain
from twofold.scores.step import ChainStep

FittedStep: TypeAlias = Any  # settings and learnt arrays of a score or transform, as attributes


@dataclass(frozen=True, eq=False)
class TensorOutputs:
    """Hold the outputs of the network on a batch in float64: the fields of outputs that scores read.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
        Logits, which transforms may change.
    features : Tensor, shape (N, D)
        Features, which transforms may change.
    predictions : Tensor of int64, shape (N,)
        Predicted classes of the untouched logits.
    raw : Tensor, shape (N, D)
        Features before a cosine head made them unit vectors.
    weight : Tensor, shape (C, D), or None
        Weight of the head; None behind a transform after which no head fits.
    bias : Tensor, shape (C,), or None
        Bias of the head.
    learned : mapping of str to Tensor, shape (N,)
        Further outputs of the network by name, such as a learnt confidence.
    """

    logits: Tensor
    features: Tensor
    predictions: Tensor
    raw: Tensor
    weight: Tensor | None
    bias: Tensor | None
    learned: Mapping[str, Tensor]

    def with_features(self, features: Tensor) -> TensorOutputs:
        """Replace the features, and the logits by those that the head computes from them.

        Parameters
        ----------
        features : Tensor, shape (N, D)
            The new features.

        Returns
        -------
        TensorOutputs
            A copy with the new features and logits; predictions stay those of the untouched outputs.

        Raises
        ------
        InvalidInput
            If an earlier transform left no head.

        Examples
        --------
        >>> import torch
        >>> h = torch.tensor([[3.0, -1.0]])
        >>> outputs = TensorOutputs(h, h, torch.tensor([0]), h, torch.eye(2), None, {})
        >>> outputs.with_features(h.clamp(max=1.0)).logits
        tensor([[ 1., -1.]])
        """
        if self.weight is None:
            raise InvalidInput("a transform before this one left no head; put transforms of features first")
        logits = features @ self.weight.T
        if self.bias is not None:
            logits = logits + self.bias
        return replace(self, features=features, logits=logits)


ScoreFunction: TypeAlias = Callable[[FittedStep, TensorOutputs], Tensor]
TransformFunction: TypeAlias = Callable[[FittedStep, TensorOutputs], TensorOutputs]
F = TypeVar("F", ScoreFunction, TransformFunction)

SCORES: dict[str, ScoreFunction] = {}
TRANSFORMS: dict[str, TransformFunction] = {}


def register(table: dict[str, F], name: str) -> Callable[[F], F]:
    """Enter a function into a table under the name of a score or transform.

    Parameters
    ----------
    table : dict
        ``SCORES`` or ``TRANSFORMS``.
    name : str
        Name of the score or transform in :mod:`twofold.scores`.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.
    """

    def enter(function: F) -> F:
        table[name] = function
        return function

    return enter


def read_step(step: ChainStep) -> FittedStep:
    """Return an object with the settings and learnt arrays of a step as attributes.

    Parameters
    ----------
    step : ChainStep
        A fitted step of a chain.

    Returns
    -------
    object
        The attributes.
    """
    if isinstance(step.info.maker, FunctionType):
        return SimpleNamespace(**{**step.info.settings, **step.settings})
    return step.instance


def run_chain(chain: Chain, outputs: TensorOutputs) -> Tensor:
    """Compute the confidence of a chain in tensors.

    Parameters
    ----------
    chain : Chain
        A fitted chain whose steps are all in the tables.
    outputs : TensorOutputs
        Outputs of the network on a batch.

    Returns
    -------
    Tensor of float64, shape (N,)
        Confidence of each row.
    """
    *transforms, score = chain.steps
    for step in transforms:
        outputs = TRANSFORMS[step.info.name](read_step(step), outputs)
    return SCORES[score.info.name](read_step(score), outputs)
