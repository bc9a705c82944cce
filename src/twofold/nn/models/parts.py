"""What the networks of the zoo share: options, dropout, cosine head, confidence branch, and how they end."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from twofold._checks import choice, number, whole
from twofold.errors import InvalidInput

HEADS = ("linear", "cosine")
BRANCHES = ("devries", "confidnet")
BRANCH_WIDTH, BRANCH_DEPTH = 400, 5  # of ConfidNet: hidden linear layers, each followed by a ReLU
TINY = 1e-12  # least norm a feature or class vector is divided by


@dataclass(frozen=True)
class Options:
    """How a network of the zoo is built, beyond its architecture.

    ``dropout`` is the rate at the architecture's main sites, where the papers have 0.2 (ResNets), 0.1 (ResNet-50) or
    0.3 (VGG-13, SVHN network); other sites keep their proportion to it. 0 builds no dropout modules.
    """

    classes: int
    dropout: float = 0.0
    head: Literal["linear", "cosine"] = "linear"
    confidence: Literal["devries", "confidnet"] | None = None
    abstain: bool = False
    in_channels: int = 3
    scale: float = 8.0
    learn_scale: bool = False

    def __post_init__(self) -> None:
        whole(self.classes, "classes", 2)
        whole(self.in_channels, "in_channels", 1)
        number(self.dropout, "dropout", 0, 1, open_high=True)
        number(self.scale, "scale", 0, math.inf, open_low=True, open_high=True)
        choice(self.head, "head", HEADS)
        if self.confidence is not None:
            choice(self.confidence, "confidence", BRANCHES)
        for name in ("abstain", "learn_scale"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.learn_scale and self.head != "cosine":
            raise InvalidInput('learn_scale is the scale of a cosine head; pass head="cosine" with it')


def dropout(rate: float) -> nn.Module:
    """Dropout at ``rate``, or nothing at all at rate 0."""
    rate = round(rate, 12)  # 0.3 * 4 / 3 is 0.4
    if rate >= 1:
        raise InvalidInput(f"dropout gives a site of this network the rate {rate:g}, which must be below 1; lower it")
    return nn.Dropout(rate) if rate else nn.Identity()


def channels_last(images: Tensor) -> Tensor:
    """Images with the channels last in memory, which the maps of a network then have too: convolutions are faster."""
    return images.contiguous(memory_format=torch.channels_last)


class CosineHead(nn.Module):
    r"""Cosine classifier, the last layer of SURE: both sides have unit length, so only the angle counts.

    .. math:: z_c = t \cos(f, w_c)

    The scale t is fixed (8 for ResNet-18, 64 for the transformers in SURE) unless ``learn_scale``. There is no bias.
    """

    def __init__(self, width: int, classes: int, *, scale: float = 8.0, learn_scale: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, width))
        nn.init.normal_(self.weight)  # directions spread evenly over the sphere
        start = torch.tensor(float(scale))
        if learn_scale:
            self.scale = nn.Parameter(start)
        else:
            self.register_buffer("scale", start)

    def unit(self, features: Tensor) -> Tensor:
        """Features of length one."""
        return functional.normalize(features, dim=1, eps=TINY)

    def effective(self) -> Tensor:
        """The weight that gives the logits from unit features."""
        return self.scale * functional.normalize(self.weight, dim=1, eps=TINY)

    def forward(self, features: Tensor) -> Tensor:
        """Logits."""
        return functional.linear(self.unit(features), self.effective())


class ConfidenceBranch(nn.Module):
    """A confidence in (0, 1) from the feature, beside the class logits.

    ``devries``: one linear layer. ``confidnet``: five linear layers of width 400 with ReLU, then one output. Once it
    has adopted an encoder (the last stage of ConfidNet), the feature is that encoder's and not the classifier's.
    """

    encoder: Network | None

    def __init__(self, kind: Literal["devries", "confidnet"], width: int) -> None:
        super().__init__()
        self.kind = kind
        layers: list[nn.Module] = []
        for _ in range(BRANCH_DEPTH if kind == "confidnet" else 0):
            layers += [nn.Linear(width, BRANCH_WIDTH), nn.ReLU()]
            width = BRANCH_WIDTH
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))
        self.encoder = None

    def adopt(self, network: Network) -> None:
        """Take a copy of a network's encoder."""
        copied = copy.deepcopy(network)
        copied.confidence = None
        copied.linear = nn.Identity()  # type: ignore[assignment]
        self.encoder = copied

    def of(self, images: Tensor, features: Tensor) -> Tensor:
        """Confidence of images whose features in the classifier are these."""
        return self(features if self.encoder is None else self.encoder.encode(images))

    def forward(self, features: Tensor) -> Tensor:
        """Confidence of each row."""
        return torch.sigmoid(self.layers(features)).squeeze(1)


class Network(nn.Module):
    """A network of the zoo: ``encode`` makes the feature, ``linear`` the logits.

    ``confidence`` (None, or a branch that reads the feature) is not run by ``forward``. With ``abstain`` the last of
    the C + 1 logits is the reservation. An architecture defines its layers and ``body`` and calls ``finish`` last.
    """

    linear: nn.Linear | CosineHead
    confidence: ConfidenceBranch | None
    abstain: bool
    width: int

    def encode(self, x: Tensor) -> Tensor:
        """The feature, input of the head."""
        return self.body(channels_last(x))

    def body(self, x: Tensor) -> Tensor:
        """All between images and feature; each architecture has its own."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        features = self.encode(x)
        if features.shape[1] != self.width:
            height, width = x.shape[2:]
            raise InvalidInput(f"this network takes images of 32x32 pixels, got {height}x{width}; resize them")
        return self.linear(features)

    def finish(self, width: int, options: Options) -> None:
        """Add head and branch for a feature of this width, and draw the weights after He et al. (2015)."""
        outputs = options.classes + options.abstain
        self.width, self.abstain = width, options.abstain
        if options.head == "cosine":
            self.linear = CosineHead(width, outputs, scale=options.scale, learn_scale=options.learn_scale)
        else:
            self.linear = nn.Linear(width, outputs)
        self.confidence = None if options.confidence is None else ConfidenceBranch(options.confidence, width)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
