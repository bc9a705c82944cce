"""Parts that say what the network is built with: its head, dropout, a reservation, a confidence branch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twofold import _checks
from twofold.nn.recipes.part import NetworkOptions, Option, check_positive


@dataclass(frozen=True)
class CosineClassifier(Option):
    """Build the network with a cosine head (CSC).

    Parameters
    ----------
    scale : float, default=8.0
        What the cosines are multiplied by: 8 for a ResNet-18, 64 for DINOv3 and DeiT (SURE, SURE+).
    """

    scale: float = 8.0

    def __post_init__(self) -> None:
        check_positive(self.scale, "scale")

    @property
    def options(self) -> NetworkOptions:
        """A cosine head of this scale.

        Examples
        --------
        >>> CosineClassifier(16.0).options
        {'head': 'cosine', 'scale': 16.0}
        """
        return {"head": "cosine", "scale": self.scale}


@dataclass(frozen=True)
class FeatureNorm(Option):
    r"""Build the network with a head that takes features of one length (T2FNorm).

    .. math:: z = W \frac{h}{\tau \lVert h \rVert} + b

    The network is trained and classifies by these logits. Extraction keeps h as ``layers["penultimate/raw"]``, and
    T2FNorm scores inputs by :math:`W h / \tau + b`, which is ``raw|msp``.

    Parameters
    ----------
    temperature : float, default=0.1
        Temperature :math:`\tau` of the features; 0.1 in T2FNorm.

    References
    ----------
    Regmi et al., CVPR Workshops 2024, arXiv:2305.17797.
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature")

    @property
    def options(self) -> NetworkOptions:
        """A head of unit features, scaled by the reciprocal of the temperature.

        Examples
        --------
        >>> FeatureNorm(0.5).options
        {'head': 'unit', 'scale': 2.0}
        """
        return {"head": "unit", "scale": 1.0 / self.temperature}


@dataclass(frozen=True)
class PrototypeClassifier(Option):
    """Build the network with a projection and a prototype of each class, which :class:`Cider` learns.

    The network classifies by the prototype that is nearest to the projection. Extraction keeps the feature before the
    projection as ``layers["penultimate/raw"]``, and CIDER scores inputs by it: ``raw|knn(k=50)``.

    Parameters
    ----------
    temperature : float, default=0.1
        Temperature of the cosines, in the losses and in the logits; 0.1 in CIDER.
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature")

    @property
    def options(self) -> NetworkOptions:
        """A head with prototypes, scaled by the reciprocal of the temperature.

        Examples
        --------
        >>> PrototypeClassifier().options
        {'head': 'prototypes', 'scale': 10.0}
        """
        return {"head": "prototypes", "scale": 1.0 / self.temperature}


@dataclass(frozen=True)
class Dropout(Option):
    """Build the network with dropout, for MC dropout.

    Parameters
    ----------
    rate : float, default=0.2
        Rate of dropout; 0.2 in the blocks of a ResNet-20 in the unknown-detection benchmark.
    """

    rate: float = 0.2

    def __post_init__(self) -> None:
        _checks.number(self.rate, "rate", 0.0, 1.0, open_high=True)

    @property
    def options(self) -> NetworkOptions:
        """Dropout of this rate.

        Examples
        --------
        >>> Dropout(0.1).options
        {'dropout': 0.1}
        """
        return {"dropout": self.rate}


@dataclass(frozen=True)
class Abstention(Option):
    """Build the network with one more output: the reservation."""

    @property
    def options(self) -> NetworkOptions:
        """C + 1 outputs.

        Examples
        --------
        >>> Abstention().options
        {'abstain': True}
        """
        return {"abstain": True}


@dataclass(frozen=True)
class Branch(Option):
    """Build the network with a confidence branch.

    Parameters
    ----------
    kind : {"devries", "confidnet"}, default="devries"
        The branch.
    encoder : bool, default=False
        Let the branch learn a copy of the encoder too, and leave the classifier its own.
    """

    kind: Literal["devries", "confidnet"] = "devries"
    encoder: bool = False

    def __post_init__(self) -> None:
        _checks.choice(self.kind, "kind", ("devries", "confidnet"))

    @property
    def options(self) -> NetworkOptions:
        """A confidence branch of this kind.

        Examples
        --------
        >>> Branch("confidnet").options
        {'confidence': 'confidnet'}
        """
        return {"confidence": self.kind}
