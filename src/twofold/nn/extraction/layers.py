"""Statistics of feature maps, recorded while the network runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from twofold.errors import InvalidInput
from twofold.nn.models import Classifier

POWERS = (1, 2, 3, 4, 5)  # of the Gram rows that are recorded


@contextmanager
def collect_layer_statistics(classifier: Classifier, layers: Sequence[str] | bool) -> Iterator[dict[str, Tensor]]:
    """Collect channel statistics of the feature maps of some modules while open.

    Parameters
    ----------
    classifier : Classifier
        The network.
    layers : sequence of str or bool
        Names of modules, True for all blocks; empty or False collects nothing.

    Yields
    ------
    dict from str to Tensor of shape (N, channels)
        ``LAYER/mean``, ``LAYER/var`` and ``LAYER/gram1`` to ``LAYER/gram5``, filled by each pass.

    Raises
    ------
    UnknownName
        If the network has no module of a name.
    InvalidInput
        In a pass, if a module does not return maps (N, channels, H, W).
    """
    statistics: dict[str, Tensor] = {}
    modules: dict[str, nn.Module] = {}
    if layers:
        modules = classifier.layers(None if layers is True else list(layers))
    hooks = [module.register_forward_hook(_record_into(statistics, name)) for name, module in modules.items()]
    try:
        yield statistics
    finally:
        for hook in hooks:
            hook.remove()


def _record_into(statistics: dict[str, Tensor], name: str) -> Callable[[nn.Module, object, object], None]:
    """Make a forward hook that records the statistics of one module."""

    def hook(module: nn.Module, arguments: object, output: object) -> None:
        maps = output[0] if isinstance(output, tuple) else output
        if not isinstance(maps, Tensor) or maps.ndim != 4:
            shape = f"shape {tuple(maps.shape)}" if isinstance(maps, Tensor) else type(maps).__name__
            raise InvalidInput(f"layer {name} returns {shape}; statistics need feature maps (N, channels, H, W)")
        flat = maps.detach().flatten(2).float()
        statistics[f"{name}/mean"] = flat.mean(dim=2)
        statistics[f"{name}/var"] = flat.var(dim=2, unbiased=False)
        for power in POWERS:
            statistics[f"{name}/gram{power}"] = gram_rows(flat, power)

    return hook


def gram_rows(maps: Tensor, power: int) -> Tensor:
    r"""Compute signed roots of the row sums of the channels' Gram matrix, for a power of the maps.

    .. math:: r_c = \sum_{j} \sum_{q} F_{cq}^p F_{jq}^p, \qquad g_c = \mathrm{sign}(r_c) \, |r_c|^{1/p}

    with maps :math:`F` of one image, channels :math:`c, j`, positions :math:`q` and power :math:`p`.

    Parameters
    ----------
    maps : Tensor, shape (N, channels, positions)
        Feature maps with flattened positions.
    power : int
        The power :math:`p`, at least 1.

    Returns
    -------
    Tensor, shape (N, channels)
        One value for each channel.

    Notes
    -----
    Each image is divided by its largest absolute value first, and the result scaled back, so that no power overflows.

    Examples
    --------
    >>> gram_rows(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 1)
    tensor([[16., 36.]])
    """
    scale = maps.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)
    powers = (maps / scale) ** power
    row_sums = torch.einsum("ncp,np->nc", powers, powers.sum(dim=1))
    return row_sums.sign() * row_sums.abs() ** (1.0 / power) * scale[:, 0] ** 2
