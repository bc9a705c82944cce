"""Parts that say how the weights move and which are kept: sharpness, averages, fine-tuning, ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twofold.nn.recipes.part import Part


@dataclass(frozen=True)
class Sharpness(Part):
    """Take sharpness-aware steps: SAM, or F-SAM in one of its forms.

    Parameters
    ----------
    kind : {"sam", "fsam"}, default="sam"
        The method.
    rho : float, default=0.2
        Length of the perturbation over all parameters. The printed 0.2 is an absolute length for a ResNet-18, so it is
        a larger share of a smaller network: 4.5 times larger for a ResNet-8, whose weights have 0.22 of the norm.
    rho_relative : bool, default=False
        Multiply ``rho`` by the norm of the network's parameters when training begins, over that of a ResNet-18 as
        initialised (:data:`twofold.nn.training.RESNET18_NORM`).
    variant : {"released", "original", "printed"}, default="released"
        Form of F-SAM: of the released code of SURE+, of the original method, or as printed in SURE+.
    ascent : {"all", "clean"}, default="all"
        Take the perturbation from the gradient of all views, or from that of the clean view alone, which saves the
        first pass over the others.
    """

    kind: Literal["sam", "fsam"] = "sam"
    rho: float = 0.2
    rho_relative: bool = False
    variant: Literal["released", "original", "printed"] = "released"
    ascent: Literal["all", "clean"] = "all"


@dataclass(frozen=True)
class Averaged(Part):
    """Keep an average of the weights at the end: moving (``ema``) or plain (``swa``).

    Parameters
    ----------
    kind : {"ema", "swa"}, default="ema"
        The average.
    rebn : bool, default=True
        Re-estimate batch-norm statistics over the training set, once.
    start : float, default=0.6
        Share of the run after which SWA starts.
    lr : float, default=1.0
        Constant rate of SWA, as a share of the first one.
    released : bool, default=False
        Let EMA blend batch-norm statistics, as the released code of SURE+ does.
    """

    kind: Literal["ema", "swa"] = "ema"
    rebn: bool = True
    start: float = 0.6
    lr: float = 1.0
    released: bool = False


@dataclass(frozen=True)
class FineTune(Part):
    """Start from a trained checkpoint, at a fraction of the learning rate.

    Parameters
    ----------
    lr : float, default=0.01
        The fraction.
    """

    lr: float = 0.01


@dataclass(frozen=True)
class Frozen(Part):
    """Train the confidence branch alone: the classifier stays as it is, dropout off, batch norm on its statistics."""


@dataclass(frozen=True)
class ReBN(Part):
    """Re-estimate the batch-norm statistics of a checkpoint over the training set, and change nothing else."""


@dataclass(frozen=True)
class Members(Part):
    """Train several networks that differ in their seed alone: a deep ensemble.

    Parameters
    ----------
    count : int, default=5
        Number of networks.
    """

    count: int = 5
