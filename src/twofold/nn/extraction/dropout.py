"""Stochastic passes: dropout switched on in a frozen network, with masks that depend on row and pass alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from twofold.nn.models import Captured

LEVELS = 65536  # 16 random bits for each entry


@contextmanager
def switch_on(dropouts: Sequence[nn.Module], seed: np.random.SeedSequence) -> Iterator[None]:
    """Switch dropout layers on while open, everything else stays frozen.

    Plain dropout uses :func:`drop_entries`, the other kinds PyTorch's own code.

    Parameters
    ----------
    dropouts : sequence of nn.Module
        The dropout layers of the network.
    seed : numpy.random.SeedSequence
        Seed of the masks.

    Yields
    ------
    None
        Dropout is on until the block ends.
    """
    torch.manual_seed(int(seed.generate_state(1, np.uint64)[0] >> 1))
    bits = np.random.SFC64(seed)

    def drop(module: nn.Dropout, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return drop_entries(arguments[0], module.p, bits)

    hooks = []
    others = []
    for dropout in dropouts:
        if type(dropout) is nn.Dropout:
            hooks.append(dropout.register_forward_hook(drop))
        else:
            others.append(dropout)
            dropout.train()
    try:
        yield
    finally:
        for other in others:
            other.eval()
        for hook in hooks:
            hook.remove()


def drop_entries(x: Tensor, rate: float, bits: np.random.SFC64) -> Tensor:
    """Apply dropout by 16 random bits for each entry, which on a CPU is far faster than PyTorch's.

    Parameters
    ----------
    x : Tensor
        The input. On another device than the CPU, or in another type than float32, PyTorch's dropout is used.
    rate : float
        Share of entries to drop, rounded to 1/65536.
    bits : numpy.random.SFC64
        Where the random bits come from.

    Returns
    -------
    Tensor
        A copy with dropped entries, the others scaled by 1 / (1 - rate).
    """
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return functional.dropout(x, rate)
    from twofold._kernels import drop

    result = torch.empty_like(x)  # contiguous memory with the axes in the order of x
    source = x if x.stride() == result.stride() else result.copy_(x)
    before = source.as_strided((source.numel(),), (1,)).numpy()
    after = result.as_strided((result.numel(),), (1,)).numpy()
    limit = round(rate * LEVELS)
    draws = bits.random_raw(-(-after.size // 4)).view(np.uint16)
    scale = LEVELS / (LEVELS - limit) if limit < LEVELS else 0.0
    drop(before, draws, np.uint32(limit), np.float32(scale), after)
    return result


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
