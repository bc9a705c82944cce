"""Dropout whose masks depend on the row alone: not on the batch it is in, the process, or the layout in memory.

Each row of a data set has a key for each pass. The bits of a mask are a hash of the key, the number of the dropout
call in the pass, and the position of the entry (SplitMix64, Steele et al., OOPSLA 2014). A compiled kernel and the
operations of PyTorch compute the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

LEVELS = 65536  # 16 random bits for each entry
DRAWS_PER_WORD = 4  # a hash has 64 bits
STRIDE = 0x9E3779B97F4A7C15  # SplitMix64: odd, near 2**64 over the golden ratio
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)

Keys: TypeAlias = npt.NDArray[np.uint64]
CHANNEL_DROPOUTS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def row_keys(numbers: Sequence[int], rows: npt.NDArray[np.int64]) -> Keys:
    """Compute the key of each row for one pass.

    Parameters
    ----------
    numbers : sequence of int
        What distinguishes the pass, such as a seed and a step; each 0 or more.
    rows : ndarray of int64, shape (n_rows,)
        Rows of the data set.

    Returns
    -------
    ndarray of uint64, shape (n_rows,)
        The keys; a row has the same one in any batch.

    Examples
    --------
    >>> both = row_keys((0, 1), np.array([5, 9]))
    >>> int(row_keys((0, 1), np.array([9]))[0]) == int(both[1])
    True
    """
    start = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    with np.errstate(over="ignore"):
        return _hash(start + _hash(rows.astype(np.uint64)))


def _hash(values: Keys) -> Keys:
    """Mix the bits of numbers: one step of SplitMix64."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(STRIDE)
        z = (z ^ (z >> np.uint64(SHIFTS[0]))) * np.uint64(FACTORS[0])
        z = (z ^ (z >> np.uint64(SHIFTS[1]))) * np.uint64(FACTORS[1])
        return z ^ (z >> np.uint64(SHIFTS[2]))


def find_dropouts(model: nn.Module) -> list[_DropoutNd]:
    """Find the dropout modules of a network with a rate above 0.

    Parameters
    ----------
    model : torch.nn.Module
        The network.

    Returns
    -------
    list of torch.nn.Module
        Dropout modules. Dropout written as a function call cannot be seen.

    Examples
    --------
    >>> find_dropouts(nn.Sequential(nn.Dropout(0.1), nn.Dropout(0.0)))
    [Dropout(p=0.1, inplace=False)]
    """
    return [module for module in model.modules() if isinstance(module, _DropoutNd) and module.p > 0]


@dataclass(eq=False)
class _PassMasks:
    """Draw the masks of one pass; dropout calls are counted, so that each has masks of its own."""

    keys: Tensor  # int64, with the bits of the keys, on the device of the network
    calls: int = 0

    def __call__(self, module: _DropoutNd, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Replace the output of a dropout module."""
        self.calls += 1
        x = arguments[0]
        if len(x) % len(self.keys):
            return functional.dropout(x, module.p)  # its first axis does not hold the rows
        if isinstance(module, CHANNEL_DROPOUTS) and x.ndim > 2:
            ones = x.new_ones(x.shape[:2])
            kept = drop_entries(ones, module.p, self.keys, self.calls)
            return x * kept.reshape(*x.shape[:2], *[1] * (x.ndim - 2))
        return drop_entries(x, module.p, self.keys, self.calls)


@contextmanager
def switch_on(dropouts: Sequence[nn.Module], keys: Keys, device: torch.device) -> Iterator[None]:
    """Switch dropout modules on while open, with masks drawn row by row.

    Alpha dropout draws from PyTorch's own generator, as does dropout whose input does not have the rows first.

    Parameters
    ----------
    dropouts : sequence of torch.nn.Module
        The dropout modules of a network.
    keys : ndarray of uint64, shape (n_rows,)
        What :func:`row_keys` returned for the rows of the batch.
    device : torch.device
        Where the network runs.

    Yields
    ------
    None
        Dropout is on until the block ends; then modules have the mode that they had before.
    """
    masks = _PassMasks(torch.from_numpy(keys.view(np.int64)).to(device))
    hooks = []
    modes = []
    for dropout in dropouts:
        modes.append((dropout, dropout.training))
        draws_rows = isinstance(dropout, (nn.Dropout, *CHANNEL_DROPOUTS))
        dropout.training = not draws_rows  # PyTorch's own dropout would be drawn in vain
        if draws_rows:
            hooks.append(dropout.register_forward_hook(masks))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for dropout, mode in modes:
            dropout.training = mode


def drop_entries(x: Tensor, rate: float, keys: Tensor, call: int) -> Tensor:
    """Apply dropout by 16 random bits for each entry.

    Parameters
    ----------
    x : Tensor, shape (n_rows * k, ...)
        The input; every ``k`` of its first axis belong to a row.
    rate : float
        Share of entries to drop, rounded to 1/65536.
    keys : Tensor of int64, shape (n_rows,)
        Keys of the rows, on the device of ``x``.
    call : int
        Number of the dropout call in the pass.

    Returns
    -------
    Tensor
        A copy with dropped entries, the others scaled by 1 / (1 - rate).

    Examples
    --------
    >>> keys = torch.tensor([3, 8])
    >>> x = torch.ones(2, 3, 4, 4)
    >>> torch.equal(drop_entries(x, 0.5, keys, 1)[1:], drop_entries(x[1:], 0.5, keys[1:], 1))
    True
    """
    limit = round(rate * LEVELS)
    scale = LEVELS / (LEVELS - limit) if limit < LEVELS else 0.0
    is_compiling = torch.compiler.is_compiling()
    if x.device.type == "cpu" and x.dtype == torch.float32 and not is_compiling:
        dropped: Tensor = _KernelDropout.apply(x, keys, call, limit, scale)  # type: ignore[no-untyped-call]
        return dropped
    is_kept = _draw_levels(keys, call, x.numel() // len(keys)) >= limit
    rows_last = _channels_last_view(x)
    mask = is_kept.reshape(rows_last.shape)
    if x.ndim == 4:
        mask = mask.permute(0, 3, 1, 2)
    return torch.where(mask, x * scale, 0.0)


def _channels_last_view(x: Tensor) -> Tensor:
    """Order axes as masks do: the channels of images are last, whatever the layout in memory."""
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


class _KernelDropout(torch.autograd.Function):
    """Apply dropout by the compiled kernel; the mask is not stored but drawn again for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keys: Tensor, call: int, limit: int, scale: float) -> Tensor:
        ctx.arguments = (keys, call, limit, scale)
        return _drop_by_kernel(x, keys, call, limit, scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _drop_by_kernel(gradient, *ctx.arguments), None, None, None, None


def _drop_by_kernel(x: Tensor, keys: Tensor, call: int, limit: int, scale: float) -> Tensor:
    from twofold._kernels import drop

    source = _channels_last_view(x.detach()).contiguous()
    result = torch.empty_like(source)
    call_keys = _call_keys(keys.numpy().view(np.uint64), call)
    shape = (len(keys), source.numel() // len(keys))
    before, after = source.numpy().reshape(shape), result.numpy().reshape(shape)
    drop(before, call_keys, np.uint32(limit), np.float32(scale), after)
    return result.permute(0, 3, 1, 2) if x.ndim == 4 else result


def _call_keys(keys: Keys, call: int) -> Keys:
    """Derive the keys of one dropout call from those of the pass."""
    with np.errstate(over="ignore"):
        return _hash(keys + np.uint64(call))


def _draw_levels(keys: Tensor, call: int, entries: int) -> Tensor:
    """Draw a number in 0..65535 for each entry of each row, by PyTorch's operations: the bits of the kernel."""
    words = -(-entries // DRAWS_PER_WORD)
    numbers = torch.arange(words, device=keys.device)
    of_call = _hash_tensor(keys + call)
    bits = _hash_tensor(of_call[:, None] + numbers * _signed(STRIDE))
    draws = [(bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48)]
    return torch.stack(draws, dim=-1).flatten(1)[:, :entries]


def _hash_tensor(values: Tensor) -> Tensor:
    """Mix the bits of int64 numbers, which wrap around as unsigned ones do: :func:`_hash`."""
    z = values + _signed(STRIDE)
    z = (z ^ _shift(z, SHIFTS[0])) * _signed(FACTORS[0])
    z = (z ^ _shift(z, SHIFTS[1])) * _signed(FACTORS[1])
    return z ^ _shift(z, SHIFTS[2])


def _shift(values: Tensor, count: int) -> Tensor:
    """Shift int64 numbers to the right as if they were unsigned."""
    return (values >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned number."""
    return value - (1 << 64) if value >= 1 << 63 else value
