"""The networks of the papers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Literal

import torch

from twofold._checks import whole
from twofold.errors import UnknownName
from twofold.nn.models.description import NetworkDescription, remember_description
from twofold.nn.models.parts import HeadKind, Network, Options
from twofold.nn.models.preresnet import PreResNet
from twofold.nn.models.resnet import CifarResNet, ResNet
from twofold.nn.models.small import SmallNet
from twofold.nn.models.tiny_vit import TinyViT
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
    "resnet50": partial(ResNet, blocks=(3, 4, 6, 3), bottleneck=True, stem="imagenet"),
    "resnet152": partial(ResNet, blocks=(3, 8, 36, 3), bottleneck=True, stem="imagenet", sites="unknown_detection"),
    "svhn_small": SmallNet,
    "tiny_vit_32": TinyViT,
    "wrn28_10": partial(wide, depth=28, factor=10),
}

TRANSFORMERS = (  # built by timm; every other name of timm that begins with vit_ or deit works likewise
    "vit_tiny_patch16_224",
    "vit_small_patch16_224",
    "vit_base_patch16_224",
    "vit_base_patch16_384",
    "vit_large_patch16_224",
    "vit_large_patch16_dinov3",
    "deit_tiny_patch16_224",
    "deit_small_patch16_224",
    "deit_base_patch16_224",
    "deit_base_patch16_384",
)
TRANSFORMER_PREFIXES = ("vit_", "deit_", "deit3_")

SUMMARIES: Mapping[str, str] = {
    "resnet18_32": "ResNet-18 for 32x32 images, feature 512: SURE+ on CIFAR",
    "resnet50_32": "ResNet-50 for 32x32 images, feature 2048",
    "resnet20_cifar": "ResNet of the original paper for CIFAR (padded shortcuts), feature 64; other depths likewise",
    "resnet20_cifar_b": "ResNet-20 of the unknown-detection code (1x1 shortcuts with batch norm), feature 64",
    "resnet20_cifar_kd": "ResNet as in distillation code, feature 256",
    "vgg13": "VGG-13 for 32x32 images, feature 512: FD-Shifts on CIFAR",
    "resnet50": "ResNet-50 for 224x224 images, feature 2048: FD-Shifts; checkpoints of torchvision fit",
    "resnet152": "ResNet-152 for 224x224 images, feature 2048: unknown detection; checkpoints of torchvision fit",
    "tiny_vit_32": "vision transformer of four blocks for 32x32 images, feature 64: trains in minutes without a GPU",
    "svhn_small": "the small network of FD-Shifts for SVHN, feature 512",
    "wrn28_10": "wide ResNet for 32x32 images, feature 640",
    "vit_base_patch16_384": "ViT-B/16, feature 768: FD-Shifts; built by timm",
    "vit_large_patch16_dinov3": "DINOv3 ViT-L/16, feature 1024: SURE+ on ImageNet; built by timm",
    "deit_base_patch16_224": "DeiT-B/16, feature 768: SURE and SURE+ on ImageNet; built by timm",
}

FD_SHIFTS_DROPOUT: Mapping[str, float] = {  # the rate at the main sites; other sites keep their proportion to it
    "svhn_small": 0.3,
    "vgg13": 0.3,
    "resnet50": 0.1,
    "resnet50_32": 0.1,
}
UNKNOWN_DETECTION_DROPOUT = 0.2  # of its residual networks
TRANSFORMER_DROPOUT = 0.1  # FD-Shifts' ViT-B/16


def names() -> list[str]:
    """List the networks of the zoo.

    Returns
    -------
    list of str
        Names that :func:`build` takes. :func:`load` also takes those of timm's transformers, such as
        ``vit_tiny_patch16_224``.

    Examples
    --------
    >>> names()[:3]
    ['resnet18_32', 'resnet34_32', 'resnet50_32']
    """
    return list(ZOO)


def is_transformer(name: str) -> bool:
    """Check whether a plain name is that of a vision transformer, which timm builds.

    Parameters
    ----------
    name : str
        A name without options.

    Returns
    -------
    bool
        True for names that begin with ``vit_``, ``deit_`` or ``deit3_``; timm may still not know them.

    Examples
    --------
    >>> is_transformer("vit_tiny_patch16_224"), is_transformer("vgg13")
    (True, False)
    """
    return name.startswith(TRANSFORMER_PREFIXES)


def summarise(name: str) -> str:
    """Describe a network in one line.

    Parameters
    ----------
    name : str
        Name of a network of the zoo or of a transformer.

    Returns
    -------
    str
        What it is and which paper used it, with that paper's rate of dropout.

    Examples
    --------
    >>> summarise("vgg13")
    'VGG-13 for 32x32 images, feature 512: FD-Shifts on CIFAR; dropout 0.3 in the paper'
    """
    summary = SUMMARIES.get(name, "built by timm" if is_transformer(name) else "")
    rate = paper_dropout(name)
    if rate is None or not summary:
        return summary
    return f"{summary}; dropout {rate:g} in the paper"


def paper_dropout(name: str) -> float | None:
    """Return the rate of dropout that a paper used with a network.

    Parameters
    ----------
    name : str
        Name of a network, without options.

    Returns
    -------
    float or None
        FD-Shifts has 0.3 (VGG-13 and the SVHN network) and 0.1 (ResNet-50 and ViT), the unknown-detection benchmark 0.2
        (other residual networks, at half that before the head); None where neither used the network's family.

    Examples
    --------
    >>> paper_dropout("vgg13"), paper_dropout("resnet20_cifar_b"), paper_dropout("vit_base_patch16_384")
    (0.3, 0.2, 0.1)
    """
    if name in FD_SHIFTS_DROPOUT:
        return FD_SHIFTS_DROPOUT[name]
    if is_transformer(name):
        return TRANSFORMER_DROPOUT
    if name in ZOO and name.startswith(("resnet", "preresnet")):
        return UNKNOWN_DETECTION_DROPOUT
    return None


def build(
    name: str,
    classes: int,
    *,
    dropout: float = 0.0,
    head: HeadKind = "linear",
    confidence: Literal["devries", "confidnet"] | None = None,
    abstain: bool = False,
    in_channels: int = 3,
    scale: float = 8.0,
    learn_scale: bool = False,
    dropout_at: Literal["blocks", "head"] = "blocks",
    seed: int = 0,
) -> Network:
    """Build a network of the zoo with weights drawn from a seed.

    Parameters
    ----------
    name : str
        Name of the network; see :func:`names`. Transformers are built by :func:`load`.
    classes : int
        Number of classes, at least 2.
    dropout : float, default=0.0
        Rate at the main sites of the architecture; its module states where they are and which rate the paper has.
    head : {"linear", "cosine", "unit", "prototypes"}, default="linear"
        Last layer: ``"cosine"`` is SURE's, ``"unit"`` takes features of one length (T2FNorm), ``"prototypes"`` compares
        a projection of the feature with prototypes that the recipe ``cider`` learns.
    confidence : {"devries", "confidnet"}, optional
        Branch on the feature that learns a confidence, of DeVries & Taylor or of ConfidNet.
    abstain : bool, default=False
        Whether to add one more output, the reservation of Deep Gamblers.
    in_channels : int, default=3
        Number of image channels.
    scale : float, default=8.0
        Scale of a head that takes unit vectors: the cosine head, or the reciprocal of a temperature.
    learn_scale : bool, default=False
        Whether the scale of the cosine head is learnt.
    dropout_at : {"blocks", "head"}, default="blocks"
        Where dropout is: at the sites of the architecture, or on the feature before the head alone.
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
    options = Options(classes, dropout, head, confidence, abstain, in_channels, scale, learn_scale, dropout_at)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(whole(seed, "seed", 0))
        network = ZOO[name](options)
    remember_description(network, NetworkDescription(name, **asdict(options)))
    return network
