"""Optimisers, and the sharpness-aware steps around them."""

from __future__ import annotations

import math

import torch
from torch import nn

from twofold.nn.ingredients.sharpness import FSAM, SAM
from twofold.nn.recipes import Sharpness
from twofold.nn.training.settings import Settings

RESNET18_NORM = 112.6  # norm of the parameters of resnet18_32 with 100 classes, as initialised (SURE+'s network)


def make_optimiser(settings: Settings, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Make the optimiser that the settings name.

    Parameters
    ----------
    settings : Settings
        Kind of the optimiser, weight decay and momentum.
    parameters : list of Parameter
        What it moves.
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
