"""One run of the network in training: logits and, where a term needs them, features and the learnt confidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from twofold.errors import InvalidInput
from twofold.nn.models.parts import Network, UnitHead


class ForwardOutputs(NamedTuple):
    """Hold what the network computed for some images.

    Attributes
    ----------
    logits : Tensor, shape (N, C)
        The logits, in float32 where the network computed in half precision.
    confidence : Tensor, shape (N,), or None
        Output of the confidence branch, where it was asked for and the network has one.
    features : Tensor, shape (N, D), or None
        Input of the last linear product, likewise in float32, where it was asked for.
    """

    logits: Tensor
    confidence: Tensor | None = None
    features: Tensor | None = None


class ForwardPass(nn.Module):
    """Compute logits, confidence and features in one call, so that wrappers and compilers see all that a step runs.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    with_confidence : bool, default=False
        Run its confidence branch too, if it has one.
    with_features : bool, default=False
        Return the input of the last linear product too; the network must be of the zoo or adapted.
    channels_last : bool, default=False
        Store images with the channels last in memory.

    Examples
    --------
    >>> outputs = ForwardPass(nn.Linear(2, 3))(torch.ones(4, 2))
    >>> outputs.logits.shape, outputs.confidence
    (torch.Size([4, 3]), None)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        with_confidence: bool = False,
        with_features: bool = False,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        if with_features and not isinstance(model, Network):
            raise InvalidInput("this recipe needs the features of a network that twofold.nn.build or load made")
        self.model = model
        self.with_confidence = with_confidence
        self.with_features = with_features
        self.channels_last = channels_last

    def forward(self, images: Tensor) -> ForwardOutputs:
        """Run the network on a batch.

        Parameters
        ----------
        images : Tensor, shape (B, 3, H, W)
            Normalised images.

        Returns
        -------
        ForwardOutputs
            Logits, and what else was asked for.
        """
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        if not isinstance(self.model, Network) or not (self.with_confidence or self.with_features):
            return ForwardOutputs(_widen(self.model(images)))
        encoded = self.model.encode(images)
        confidence = None
        if self.with_confidence and self.model.confidence is not None:
            confidence = _widen(self.model.confidence.of(images, encoded))
        if not self.with_features:
            return ForwardOutputs(_widen(self.model.linear(encoded)), confidence)
        head = self.model.linear
        if isinstance(head, UnitHead):
            features = head.unit(encoded)
            logits = head.classify(features)
        else:
            features = encoded
            logits = head(features)
        return ForwardOutputs(_widen(logits), confidence, _widen(features))


def _widen(values: Tensor) -> Tensor:
    """Turn half precision into float32."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def find_idle_parameters(module: ForwardPass, images: Tensor, learnt: Iterable[nn.Parameter]) -> list[str]:
    """Name the parameters that get no gradient in training: those not learnt, and those that no output depends on.

    Processes that reduce gradients together must know them, because they would wait for them.

    Parameters
    ----------
    module : ForwardPass
        What runs the network.
    images : Tensor, shape (B, 3, H, W)
        A few images. They run in evaluation mode, so that nothing in the network changes.
    learnt : iterable of Parameter
        What the optimiser moves.

    Returns
    -------
    list of str
        Names of parameters in ``module``.

    Examples
    --------
    >>> network = nn.Linear(2, 3)
    >>> find_idle_parameters(ForwardPass(network), torch.ones(1, 2), [network.weight])
    ['model.bias']
    """
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with torch.enable_grad():
            computed = module(images)
    finally:
        for child, mode in modes:
            child.training = mode
    reached = _find_leaves([output for output in computed if output is not None])
    learnt_ids = {id(parameter) for parameter in learnt}
    idle = []
    for name, parameter in module.named_parameters():
        if id(parameter) not in learnt_ids or id(parameter) not in reached:
            idle.append(name)
    return idle


def _find_leaves(outputs: Iterable[Tensor]) -> set[int]:
    """Follow the graph of gradients to its ends, and return the ids of the tensors that are there."""
    waiting = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(waiting)
    leaves = set()
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.add(id(variable))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return leaves
