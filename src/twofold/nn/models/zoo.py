"""The networks of the papers by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch

from twofold._checks import whole
from twofold.errors import UnknownName
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
    """The networks of the zoo."""
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
    """Build a network of the zoo with weights drawn from ``seed``.

    ``dropout`` is the rate at the main sites of the architecture; its module says where they are and which rate the
    paper has. ``head="cosine"`` has the scale ``scale``, learnt with ``learn_scale``. ``confidence`` adds a branch of
    DeVries & Taylor or of ConfidNet on the feature, ``abstain`` one more output. The global random state is left alone.
    """
    if name not in ZOO:
        raise UnknownName.of("network", name, ZOO)
    options = Options(classes, dropout, head, confidence, abstain, in_channels, scale, learn_scale)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(whole(seed, "seed", 0))
        return ZOO[name](options)
