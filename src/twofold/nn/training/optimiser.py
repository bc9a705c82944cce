"""Optimisers, and the sharpness-aware steps around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from twofold.nn.ingredients.sharpness import FSAM, SAM
from twofold.nn.models.adapted import AdaptedNetwork
from twofold.nn.models.stages import head_names, stages
from twofold.nn.recipes import Sharpness
from twofold.nn.training.settings import Settings

RESNET18_NORM = 112.6  # norm of the parameters of resnet18_32 with 100 classes, as initialised (SURE+'s network)


def make_optimiser(
    settings: Settings, parameters: list[nn.Parameter] | list[dict[str, Any]], lr: float
) -> torch.optim.Optimizer:
    """Make the optimiser that the settings name.

    Parameters
    ----------
    settings : Settings
        Kind of the optimiser, weight decay and momentum.
    parameters : list of Parameter, or list of dict
        What it moves, or groups of it as :func:`group_parameters` makes them.
    lr : float
        Learning rate of the first step.

    Returns
    -------
    torch.optim.Optimizer
        SGD, Adam or AdamW.

    Examples
    --------
    >>> type(make_optimiser(Settings(optimiser="adamw"), list(nn.Linear(2, 1).parameters()), 0.1)).__name__
    'AdamW'
    """
    decay = settings.weight_decay
    if settings.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr, settings.momentum, weight_decay=decay, nesterov=settings.nesterov)
    if settings.optimiser == "adam":
        return torch.optim.Adam(parameters, lr, weight_decay=decay)
    return torch.optim.AdamW(parameters, lr, weight_decay=decay)


def group_parameters(
    settings: Settings, model: nn.Module, lr: float, *, head: Sequence[str] = ()
) -> list[nn.Parameter] | list[dict[str, Any]]:
    r"""Group the parameters that learn by their learning rate and weight decay.

    With ``settings.layer_decay``, block :math:`i` of :math:`n`, the stem being block 0, learns at

    .. math:: \eta_i = \eta \, d^{\,n - i}

    and the head at :math:`\eta`, as in BEiT; biases, norms and what a network of timm exempts have no weight decay, as
    in timm's ``param_groups_layer_decay``. With ``settings.head_lr`` the head and a confidence branch learn at that
    rate. The schedule multiplies all rates alike.

    Parameters
    ----------
    settings : Settings
        ``layer_decay``, ``head_lr`` and ``weight_decay``.
    model : torch.nn.Module
        The network.
    lr : float
        Learning rate at the start of the schedule.
    head : sequence of str, default=()
        Names of the modules that are its head, where the network is neither the zoo's nor an adapted one.

    Returns
    -------
    list of Parameter, or list of dict
        The parameters alone if all learn alike; else groups for the optimiser, each with its ``lr_scale``.

    References
    ----------
    Bao et al., BEiT, ICLR 2022, arXiv:2106.08254.

    Examples
    --------
    >>> from twofold.nn import build
    >>> network = build("resnet8_cifar", 10)
    >>> groups = group_parameters(Settings(layer_decay=0.5), network, 0.1)
    >>> sorted({group["lr_scale"] for group in groups})
    [0.0625, 0.125, 0.25, 0.5, 1.0]
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if settings.layer_decay is None and settings.head_lr is None:
        return list(learning.values())
    scales = _layer_scales(settings, model, lr, head)
    exempt = _exempt_from_decay(model) if settings.layer_decay is not None else frozenset()
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in learning.items():
        decay = settings.weight_decay
        if settings.layer_decay is not None and (parameter.ndim <= 1 or name in exempt):
            decay = 0.0
        groups.setdefault((scales[name], decay), []).append(parameter)
    made = []
    for (scale, decay), members in groups.items():
        made.append({"params": members, "lr": lr * scale, "lr_scale": scale, "weight_decay": decay})
    return made


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of a step, times the scale of each group.

    Parameters
    ----------
    optimiser : torch.optim.Optimizer
        The optimiser; it is changed.
    lr : float
        The learning rate that the schedule gives.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> optimiser = torch.optim.SGD([{"params": [layer.weight], "lr_scale": 0.5}, {"params": [layer.bias]}], 1.0)
    >>> set_learning_rate(optimiser, 0.1)
    >>> [group["lr"] for group in optimiser.param_groups]
    [0.05, 0.1]
    """
    for group in optimiser.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)


def _layer_scales(settings: Settings, model: nn.Module, lr: float, head: Sequence[str]) -> dict[str, float]:
    """Return by how much the learning rate of every parameter is multiplied."""
    scales = dict.fromkeys((name for name, _ in model.named_parameters()), 1.0)
    if settings.layer_decay is not None:
        blocks = stages(model, head=head, blocks=True)
        for depth, block in enumerate(blocks):
            for name in block.parameters:
                scales[name] = settings.layer_decay ** (len(blocks) - depth)
    if settings.head_lr is not None:
        for module in head_names(model, head):
            for name in scales:
                if name.startswith(f"{module}."):
                    scales[name] = settings.head_lr / lr
    return scales


def _exempt_from_decay(model: nn.Module) -> frozenset[str]:
    """Return the parameters that a network of timm exempts from weight decay, such as position embeddings."""
    prefix = ""
    if isinstance(model, AdaptedNetwork):
        model, prefix = model.backbone, "backbone."
    exempt = getattr(model, "no_weight_decay", None)
    if not callable(exempt):
        return frozenset()
    return frozenset(prefix + name for name in exempt())


def wrap_optimiser(part: Sharpness, optimiser: torch.optim.Optimizer, model: nn.Module) -> SAM | FSAM:
    """Wrap an optimiser in the sharpness-aware one that a recipe asks for.

    Parameters
    ----------
    part : Sharpness
        The part of the recipe.
    optimiser : torch.optim.Optimizer
        The optimiser to wrap.
    model : torch.nn.Module
        The network that it trains; its norm sets the radius where ``part.rho_relative`` is set.

    Returns
    -------
    SAM or FSAM
        The wrapper.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> wrap_optimiser(Sharpness("sam", rho=0.1), torch.optim.SGD(layer.parameters(), 0.1), layer).rho
    0.1
    """
    rho = part.rho
    if part.rho_relative:
        rho *= parameter_norm(model) / RESNET18_NORM
    if part.kind == "sam":
        return SAM(optimiser, model, rho=rho, repeat=not part.redraw)
    return FSAM(
        optimiser,
        model,
        rho=rho,
        sigma=part.sigma,
        momentum=part.lam,
        variant=part.variant,
        gamma=part.gamma,
        repeat=not part.redraw,
    )


def parameter_norm(model: nn.Module) -> float:
    """Compute the Euclidean norm of all parameters of a network, taken together.

    Parameters
    ----------
    model : torch.nn.Module
        The network; its buffers, such as batch-norm statistics, do not count.

    Returns
    -------
    float
        The norm, summed in double precision.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 4.0]]))
    >>> _ = layer.bias.data.fill_(12.0)
    >>> parameter_norm(layer)
    13.0
    """
    squares = [float(p.detach().double().square().sum()) for p in model.parameters()]
    return math.sqrt(sum(squares))
