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
