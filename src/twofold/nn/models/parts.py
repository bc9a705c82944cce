"""What the networks of the zoo share: options, dropout, heads, confidence branch, and how they end."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from twofold._checks import choice, number, whole
from twofold._math import TINY
from twofold.errors import InvalidInput

HeadKind: TypeAlias = Literal["linear", "cosine", "unit", "prototypes"]

HEADS = ("linear", "cosine", "unit", "prototypes")
BRANCHES = ("devries", "confidnet")
PLACES = ("blocks", "head")  # where dropout may be
PROJECTION_WIDTH = 128  # of CIDER
BRANCH_WIDTH, BRANCH_DEPTH = 400, 5  # hidden linear layers of ConfidNet, each followed by a ReLU


@dataclass(frozen=True)
class Options:
    """Hold how a network of the zoo is built, beyond its architecture.

    Parameters
    ----------
    classes : int
        Number of classes, at least 2.
    dropout : float, default=0.0
        Rate at the architecture's main sites, from 0 to below 1. The papers have 0.2 (ResNets), 0.1 (ResNet-50) or 0.3
        (VGG-13, SVHN network); other sites keep their proportion to it. 0 builds no dropout modules.
    dropout_at : {"blocks", "head"}, default="blocks"
        Where dropout is: at the sites of the architecture, or on the feature before the head alone.
    head : {"linear", "cosine", "unit", "prototypes"}, default="linear"
        Last layer: linear, :class:`CosineHead`, :class:`FeatureNormHead` or :class:`PrototypeHead`.
    confidence : {"devries", "confidnet"}, optional
        Branch that learns a confidence from the feature.
    abstain : bool, default=False
        Whether to add one more output, the reservation of Deep Gamblers.
    in_channels : int, default=3
        Number of image channels.
    scale : float, default=8.0
        Scale of a head that takes unit vectors (every kind but the linear one), above 0.
    learn_scale : bool, default=False
        Whether the scale of a cosine head is learnt.

    Raises
    ------
    InvalidInput
        If a setting has the wrong type or range, ``learn_scale`` is set without a cosine head, or ``abstain`` with
        prototypes, of which the reservation would have none.

    Examples
    --------
    >>> Options(10, dropout=0.2).head
    'linear'
    """

    classes: int
    dropout: float = 0.0
    head: HeadKind = "linear"
    confidence: Literal["devries", "confidnet"] | None = None
    abstain: bool = False
    in_channels: int = 3
    scale: float = 8.0
    learn_scale: bool = False
    dropout_at: Literal["blocks", "head"] = "blocks"

    def __post_init__(self) -> None:
        whole(self.classes, "classes", 2)
        whole(self.in_channels, "in_channels", 1)
        number(self.dropout, "dropout", 0, 1, open_high=True)
        number(self.scale, "scale", 0, math.inf, open_low=True, open_high=True)
        choice(self.head, "head", HEADS)
        choice(self.dropout_at, "dropout_at", PLACES)
        if self.confidence is not None:
            choice(self.confidence, "confidence", BRANCHES)
        for name in ("abstain", "learn_scale"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidInput(f"{name} must be True or False, got {value!r}")
        if self.learn_scale and self.head != "cosine":
            raise InvalidInput('learn_scale is the scale of a cosine head; pass head="cosine" with it')
        if self.abstain and self.head == "prototypes":
            raise InvalidInput('abstain adds an output that has no prototype; use another head than "prototypes"')

    @property
    def block_dropout(self) -> float:
        """Rate of dropout at the sites of the architecture.

        Examples
        --------
        >>> Options(10, dropout=0.2).block_dropout, Options(10, dropout=0.2, dropout_at="head").block_dropout
        (0.2, 0.0)
        """
        return self.dropout if self.dropout_at == "blocks" else 0.0

    @property
    def outputs(self) -> int:
        """Number of outputs of the head: the classes, and one more with ``abstain``.

        Examples
        --------
        >>> Options(10, abstain=True).outputs
        11
        """
        return self.classes + int(self.abstain)


def dropout(rate: float) -> nn.Module:
    """Build dropout at a rate, or the identity at rate 0.

    Parameters
    ----------
    rate : float
        Dropout rate, from 0 to below 1, rounded to 12 decimals.

    Returns
    -------
    torch.nn.Module
        ``nn.Dropout``, or ``nn.Identity`` at rate 0.

    Raises
    ------
    InvalidInput
        If the rate is 1 or more.

    Examples
    --------
    >>> dropout(0.2), dropout(0)
    (Dropout(p=0.2, inplace=False), Identity())
    """
    rate = round(rate, 12)  # so that 0.3 * 4 / 3 is exactly 0.4
    if rate >= 1:
        raise InvalidInput(f"dropout gives a site of this network the rate {rate:g}, which must be below 1; lower it")
    return nn.Dropout(rate) if rate else nn.Identity()


def channels_last(images: Tensor) -> Tensor:
    """Store images with the channels last in memory, which makes convolutions faster.

    The maps of a network then have that layout too.

    Parameters
    ----------
    images : Tensor of shape (N, C, H, W)
        Batch of images. Anything else is returned as it is.

    Returns
    -------
    Tensor of shape (N, C, H, W)
        The same values in another memory layout, copied only if needed.

    Examples
    --------
    >>> channels_last(torch.zeros(1, 3, 2, 2)).stride()
    (12, 1, 6, 3)
    """
    if images.ndim != 4:
        return images
    return images.contiguous(memory_format=torch.channels_last)


class UnitHead(nn.Module, ABC):
    """Define a head whose last linear product takes unit vectors, which it makes from the feature.

    Attributes
    ----------
    width : int
        Length of the feature that the head takes.
    outputs : int
        Number of logits.
    weight : Tensor of shape (outputs, K)
        Class vectors, a parameter or a buffer.
    scale : Tensor of shape ()
        What they are multiplied by, or the unit vectors.
    """

    width: int
    outputs: int
    weight: Tensor
    scale: Tensor

    def unit(self, features: Tensor) -> Tensor:
        """Compute the input of the last linear product: the features, scaled to length one.

        Parameters
        ----------
        features : Tensor of shape (N, width)
            Features of any length; a norm counts as at least 1e-12.

        Returns
        -------
        Tensor of shape (N, K)
            Unit vectors.
        """
        return functional.normalize(features, dim=1, eps=TINY)

    @abstractmethod
    def effective(self) -> tuple[Tensor, Tensor | None]:
        """Compute weight and bias that give the logits from unit vectors.

        Returns
        -------
        weight : Tensor of shape (outputs, K)
            Class vectors, scaled.
        bias : Tensor of shape (outputs,) or None
            None where the head has no bias.
        """

    def classify(self, units: Tensor) -> Tensor:
        """Compute the logits of unit vectors.

        Parameters
        ----------
        units : Tensor of shape (N, K)
            What :meth:`unit` returned.

        Returns
        -------
        Tensor of shape (N, outputs)
            Logits.
        """
        return functional.linear(units, *self.effective())

    def forward(self, features: Tensor) -> Tensor:
        """Compute the logits.

        Parameters
        ----------
        features : Tensor of shape (N, width)
            Features of any length.

        Returns
        -------
        Tensor of shape (N, outputs)
            Logits.
        """
        return self.classify(self.unit(features))


class CosineHead(UnitHead):
    r"""Classify by the cosine between feature and class vector, as the last layer of SURE does.

    .. math:: z_c = t \cos(f, w_c)

    Both sides have unit length, so only the angle counts. There is no bias.

    Parameters
    ----------
    width : int
        Length of the feature.
    classes : int
        Number of outputs.
    scale : float, default=8.0
        Scale t. SURE has 8 for ResNet-18 and 64 for transformers.
    learn_scale : bool, default=False
        Whether t is learnt; otherwise it is a buffer.

    Examples
    --------
    >>> head = CosineHead(4, 3)
    >>> features = torch.ones(1, 4)
    >>> torch.allclose(head(features), head(10 * features))
    True
    """

    def __init__(self, width: int, classes: int, *, scale: float = 8.0, learn_scale: bool = False) -> None:
        super().__init__()
        self.width, self.outputs = width, classes
        self.weight = nn.Parameter(torch.empty(classes, width))
        nn.init.normal_(self.weight)  # directions spread evenly over the sphere
        start = torch.tensor(float(scale))
        if learn_scale:
            self.scale = nn.Parameter(start)
        else:
            self.register_buffer("scale", start)

    def effective(self) -> tuple[Tensor, None]:
        """Compute the weight that gives the logits from unit features.

        Returns
        -------
        weight : Tensor of shape (C, D)
            Class vectors of length t.
        bias : None
            There is none.
        """
        return self.scale * functional.normalize(self.weight, dim=1, eps=TINY), None


class FeatureNormHead(UnitHead):
    r"""Classify by a linear layer on the feature scaled to one length, as T2FNorm trains.

    .. math:: z = t W \frac{h}{\lVert h \rVert} + b

    Parameters
    ----------
    width : int
        Length of the feature.
    classes : int
        Number of outputs.
    scale : float, default=10.0
        Length t of the scaled feature, the reciprocal of T2FNorm's temperature of 0.1.

    Notes
    -----
    Parameters have the names and shapes of a linear layer's, so that a network with a linear head can be continued.

    References
    ----------
    Regmi et al., CVPR Workshops 2024, arXiv:2305.17797.

    Examples
    --------
    >>> head = FeatureNormHead(4, 3)
    >>> features = torch.ones(1, 4)
    >>> torch.allclose(head(features), head(10 * features))
    True
    """

    def __init__(self, width: int, classes: int, *, scale: float = 10.0) -> None:
        super().__init__()
        self.width, self.outputs = width, classes
        self.weight = nn.Parameter(torch.empty(classes, width))
        self.bias = nn.Parameter(torch.zeros(classes))
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")  # as the linear heads of the zoo
        self.register_buffer("scale", torch.tensor(float(scale)))

    def effective(self) -> tuple[Tensor, Tensor]:
        """Compute weight and bias that give the logits from unit features.

        Returns
        -------
        weight : Tensor of shape (C, D)
            The weight times t.
        bias : Tensor of shape (C,)
            The bias.
        """
        return self.scale * self.weight, self.bias


class PrototypeHead(UnitHead):
    r"""Classify by the cosine between a projection of the feature and a prototype of each class, as CIDER does.

    .. math:: u = \frac{g(h)}{\lVert g(h) \rVert}, \qquad z_c = t \, u \cdot m_c

    The projection g has two linear layers, :math:`D \to D \to 128`, with a ReLU between them. Prototypes are no
    parameters: training moves them after the projections of each batch, and they are saved with the weights.

    Parameters
    ----------
    width : int
        Length D of the feature.
    classes : int
        Number of outputs.
    scale : float, default=10.0
        Scale t, the reciprocal of CIDER's temperature of 0.1.

    Attributes
    ----------
    weight : Tensor of shape (C, 128)
        The prototypes, of length one once training has started, and zeros before.

    References
    ----------
    Ming et al., ICLR 2023, arXiv:2203.04450.

    Examples
    --------
    >>> head = PrototypeHead(4, 3)
    >>> head.unit(torch.ones(2, 4)).shape, head(torch.ones(2, 4)).shape
    (torch.Size([2, 128]), torch.Size([2, 3]))
    """

    def __init__(self, width: int, classes: int, *, scale: float = 10.0) -> None:
        super().__init__()
        self.width, self.outputs = width, classes
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION_WIDTH))
        self.register_buffer("weight", torch.zeros(classes, PROJECTION_WIDTH))
        self.register_buffer("scale", torch.tensor(float(scale)))

    def unit(self, features: Tensor) -> Tensor:
        """Project features and scale the projections to length one.

        Parameters
        ----------
        features : Tensor of shape (N, D)
            Features; the norm of a projection counts as at least 1e-12.

        Returns
        -------
        Tensor of shape (N, 128)
            Unit projections.
        """
        return super().unit(self.projection(features.to(self.weight.dtype)))

    def effective(self) -> tuple[Tensor, None]:
        """Compute the weight that gives the logits from unit projections.

        Returns
        -------
        weight : Tensor of shape (C, 128)
            The prototypes times t.
        bias : None
            There is none.
        """
        return self.scale * self.weight, None


class ConfidenceBranch(nn.Module):
    """Compute a confidence in (0, 1) from the feature, beside the class logits.

    Parameters
    ----------
    kind : {"devries", "confidnet"}
        ``devries`` is one linear layer; ``confidnet`` is five linear layers of width 400 with ReLU, then one output.
    width : int
        Length of the feature.

    Attributes
    ----------
    encoder : Network or None
        Encoder of the branch's own. Once it has adopted one (the last stage of ConfidNet), the feature is that
        encoder's and not the classifier's.

    Examples
    --------
    >>> ConfidenceBranch("devries", 4)(torch.zeros(2, 4)).shape
    torch.Size([2])
    """

    encoder: Network | None

    def __init__(self, kind: Literal["devries", "confidnet"], width: int) -> None:
        super().__init__()
        self.kind = kind
        layers: list[nn.Module] = []
        if kind == "confidnet":
            for _ in range(BRANCH_DEPTH):
                layers += [nn.Linear(width, BRANCH_WIDTH), nn.ReLU()]
                width = BRANCH_WIDTH
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))
        self.encoder = None

    def adopt(self, network: Network) -> None:
        """Take a copy of a network's encoder as the branch's own.

        Parameters
        ----------
        network : Network
            Network to copy, without its head and branch.
        """
        copied = copy.deepcopy(network)
        copied.confidence = None
        copied.linear = nn.Identity()  # type: ignore[assignment]
        self.encoder = copied

    def of(self, images: Tensor, features: Tensor) -> Tensor:
        """Compute the confidence of images whose features in the classifier are known.

        Parameters
        ----------
        images : Tensor of shape (N, C, H, W)
            Normalised images; used only if the branch has its own encoder.
        features : Tensor of shape (N, D)
            Features of the images in the classifier; used otherwise.

        Returns
        -------
        Tensor of shape (N,)
            Confidence in (0, 1).
        """
        if self.encoder is not None:
            features = self.encoder.encode(images)
        return self(features)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the confidence of each row.

        Parameters
        ----------
        features : Tensor of shape (N, D)
            Features.

        Returns
        -------
        Tensor of shape (N,)
            Confidence in (0, 1).
        """
        return torch.sigmoid(self.layers(features)).squeeze(1)


class Network(nn.Module):
    """Define what the networks of the zoo share: ``encode`` computes the feature, ``linear`` the logits.

    An architecture defines its layers and ``body`` and calls ``finish`` last.

    Attributes
    ----------
    linear : torch.nn.Linear or UnitHead
        The head.
    confidence : ConfidenceBranch or None
        Branch that reads the feature; ``forward`` does not run it.
    abstain : bool
        Whether the last of the C + 1 logits is the reservation.
    width : int
        Length of the feature.
    head_drop : torch.nn.Module
        Dropout on the feature, with ``dropout_at="head"``.
    """

    linear: nn.Linear | UnitHead
    head_drop: nn.Module
    confidence: ConfidenceBranch | None
    abstain: bool
    width: int

    def encode(self, x: Tensor) -> Tensor:
        """Compute the feature, the input of the head.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, width)
            The features.
        """
        return self.head_drop(self.body(channels_last(x)))

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature from images; each architecture has its own.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, width)
            The features.

        Raises
        ------
        NotImplementedError
            Always, in this base class.
        """
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, outputs)
            Logits of the classes and, with ``abstain``, of the reservation.

        Raises
        ------
        InvalidInput
            If the size of the images leads to a feature of another length than the head takes.
        """
        features = self.encode(x)
        if features.shape[1] != self.width:
            height, width = x.shape[2:]
            raise InvalidInput(f"this network takes images of 32x32 pixels, got {height}x{width}; resize them")
        return self.linear(features)

    def finish(self, width: int, options: Options) -> None:
        """Add head and branch, and draw the weights after He et al. (2015).

        Parameters
        ----------
        width : int
            Length of the feature.
        options : Options
            Number of classes, dropout, head and branches.
        """
        self.add_head(width, options)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def add_head(self, width: int, options: Options) -> None:
        """Add head, branch and the dropout before them, with PyTorch's own initial weights.

        Parameters
        ----------
        width : int
            Length of the feature.
        options : Options
            Number of classes, dropout, head and branches.
        """
        self.width = width
        self.abstain = options.abstain
        self.head_drop = dropout(options.dropout if options.dropout_at == "head" else 0.0)
        self.linear = _make_head(width, options)
        self.confidence = None
        if options.confidence is not None:
            self.confidence = ConfidenceBranch(options.confidence, width)


def _make_head(width: int, options: Options) -> nn.Linear | UnitHead:
    """Build the last layer for features of a length."""
    if options.head == "cosine":
        return CosineHead(width, options.outputs, scale=options.scale, learn_scale=options.learn_scale)
    if options.head == "unit":
        return FeatureNormHead(width, options.outputs, scale=options.scale)
    if options.head == "prototypes":
        return PrototypeHead(width, options.outputs, scale=options.scale)
    return nn.Linear(width, options.outputs)
