"""Stochastic passes: what a network with dropout at its head need not compute again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from twofold.nn.models import Captured


@contextmanager
def collect_inputs(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Collect the inputs of modules while open.

    Parameters
    ----------
    modules : sequence of nn.Module
        The modules.

    Yields
    ------
    list of Tensor
        First argument of each call, in order.
    """
    inputs: list[Tensor] = []

    def collect(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        inputs.append(arguments[0])

    hooks = [module.register_forward_pre_hook(collect) for module in modules]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()


def find_dropout_at_head(captured: Captured, inputs: Sequence[Tensor]) -> Tensor | None:
    """Return the input of the only dropout layer if its output goes straight to the head.

    In evaluation mode dropout returns its input, so the head saw the same memory. One pass through the rest of the
    network is then enough for all stochastic passes.

    Parameters
    ----------
    captured : Captured
        What the network returned in evaluation mode.
    inputs : sequence of Tensor
        Inputs of the dropout layers in that pass.

    Returns
    -------
    Tensor or None
        The input; None where there are several, or something stands between dropout and head.
    """
    features = captured.features if captured.raw is None else captured.raw
    if len(inputs) != 1:
        return None
    if inputs[0].shape != features.shape or inputs[0].data_ptr() != features.data_ptr():
        return None
    return inputs[0]
