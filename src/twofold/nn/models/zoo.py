"""The networks of the papers by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Literal

import torch

from twofold._checks import whole
from twofold.errors import UnknownName
from twofold.nn.models.description import NetworkDescription, remember_description
from twofold.nn.models.parts import Network, Options
from twofold.nn.models.preresnet import PreResNet
from twofold.nn.models.resnet import CifarResNet, ResNet
from twofold.nn.models.small import SmallNet
from twofold.nn.models.vgg import VGG
from twofold.nn.models.wide import wide

DEPTHS = (8, 20, 32, 44, 56, 110)

ZOO: dict[str, Callable[[Options], Network]] = {
    "resnet18_32": partial(ResNet, blocks=(2, 2, 2, 2)),
    "resnet34_32": partial(ResNet, blocks=(3, 4, 6, 3)),
    "resnet50_32": partial(ResNet, blocks=(3, 4, 6, 3), bottleneck=True),
    **{f"resnet{d}_cifar": partial(CifarResNet, depth=d, variant="a") for d in DEPTHS},
    **{f"resnet{d}_cifar_b": partial(CifarResNet, depth=d, variant="b") for d in DEPTHS},
    **{f"resnet{d}_cifar_kd": partial(CifarResNet, depth=d, variant="kd") for d in DEPTHS},
    "preresnet20": partial(PreResNet, blocks=3),
    "preresnet56": partial(PreResNet, blocks=9),
    "preresnet110": partial(PreResNet, blocks=18),
    "preresnet164": partial(PreResNet, blocks=18, bottleneck=True),
    "vgg13": partial(VGG, depth=13),
    "vgg16_bn_32": partial(VGG, depth=16),
    "vgg19_bn_32": partial(VGG, depth=19),
    "svhn_small": SmallNet,
    "wrn28_10": partial(wide, depth=28, factor=10),
}


def names() -> list[str]:
    """List the networks of the zoo.

    Returns
    -------
    list of str
        Names that :func:`build` takes.

    Examples
    --------
    >>> names()[:3]
    ['resnet18_32', 'resnet34_32', 'resnet50_32']
    """
    return list(ZOO)


def build(
    name: str,
    classes: int,
    *,
    dropout: float = 0.0,
    head: Literal["linear", "cosine"] = "linear",
    confidence: Literal["devries", "confidnet"] | None = None,
    abstain: bool = False,
    in_channels: int = 3,
    scale: float = 8.0,
    learn_scale: bool = False,
    seed: int = 0,
) -> Network:
    """Build a network of the zoo with weights drawn from a seed.

    Parameters
    ----------
    name : str
        Name of the network; see :func:`names`.
    classes : int
        Number of classes, at least 2.
    dropout : float, default=0.0
        Rate at the main sites of the architecture; its module states where they are and which rate the paper has.
    head : {"linear", "cosine"}, default="linear"
        Last layer.
    confidence : {"devries", "confidnet"}, optional
        Branch on the feature that learns a confidence, of DeVries & Taylor or of ConfidNet.
    abstain : bool, default=False
        Whether to add one more output, the reservation of Deep Gamblers.
    in_channels : int, default=3
        Number of image channels.
    scale : float, default=8.0
        Scale of the cosine head.
    learn_scale : bool, default=False
        Whether the scale of the cosine head is learnt.
    seed : int, default=0
        Seed of the initial weights. The global random state is left unchanged.

    Returns
    -------
    Network
        The network, in training mode.

    Raises
    ------
    UnknownName
        If there is no network of that name.
    InvalidInput
        If another argument has the wrong type or range.

    Examples
    --------
    >>> network = build("resnet8_cifar", 10)
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if name not in ZOO:
        raise UnknownName.of("network", name, ZOO)
    options = Options(classes, dropout, head, confidence, abstain, in_channels, scale, learn_scale)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(whole(seed, "seed", 0))
        network = ZOO[name](options)
    remember_description(network, NetworkDescription(name, **asdict(options)))
    return network
