"""Parts that say how the weights move and which are kept: sharpness, averages, fine-tuning, ensembles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.recipes.part import QUIET, Part, check_not_negative, check_positive


@dataclass(frozen=True, repr=False)
class Sharpness(Part):
    """Take sharpness-aware steps: SAM, or F-SAM in one of its forms.

    Parameters
    ----------
    kind : {"sam", "fsam"}, default="sam"
        The method.
    rho : float, default=0.2
        Length of the perturbation over all parameters, 0 or more: 0.2 in SURE+, 0.05 in SAM, FMFP and SURE. The printed
        0.2 is an absolute length for a ResNet-18, so it is a larger share of a smaller network: 4.5 times larger for a
        ResNet-8, whose weights have 0.22 of the norm.
    rho_relative : bool, default=False
        Multiply ``rho`` by the norm of the network's parameters when training begins, over that of a ResNet-18 as
        initialised (:data:`twofold.nn.training.RESNET18_NORM`).
    variant : {"released", "original", "printed"}, default="released"
        Form of F-SAM: of the released code of SURE+, of the original method, or as printed in SURE+.
    ascent : {"all", "clean"}, default="all"
        Take the perturbation from the gradient of all views, or from that of the clean view alone, which saves the
        first pass over the others.
    sigma : float, default=1.0
        Share of the running mean of gradients that F-SAM removes from the gradient; 1 in SURE+ and F-SAM.
    lam : float, default=0.8
        Decay of that mean, from 0 to below 1: 0.8 in SURE+, 0.9 in the code of F-SAM.
    gamma : float, default=0.5
        Share of the gradient at the weights themselves with ``variant="printed"``. SURE+ prints the letter and no
        value; 0.5 is our choice.
    redraw : bool, default=False
        Let the second pass draw its mixing and dropout again, as the released code of SURE+ does; images mixed with
        fractals stay the same there too. By default both passes see the same batch.
    """

    kind: Literal["sam", "fsam"] = "sam"
    rho: float = 0.2
    rho_relative: bool = False
    variant: Literal["released", "original", "printed"] = "released"
    ascent: Literal["all", "clean"] = "all"
    sigma: float = field(default=1.0, metadata=QUIET)
    lam: float = field(default=0.8, metadata=QUIET)
    gamma: float = field(default=0.5, metadata=QUIET)
    redraw: bool = field(default=False, metadata=QUIET)

    def __post_init__(self) -> None:
        _checks.choice(self.kind, "kind", ("sam", "fsam"))
        _checks.choice(self.variant, "variant", ("released", "original", "printed"))
        _checks.choice(self.ascent, "ascent", ("all", "clean"))
        check_not_negative(self.rho, "rho")
        check_not_negative(self.sigma, "sigma")
        _checks.number(self.lam, "lam", 0.0, 1.0, open_high=True)
        _checks.number(self.gamma, "gamma", 0.0, 1.0)


@dataclass(frozen=True, repr=False)
class Averaged(Part):
    """Keep an average of the weights at the end: moving (``ema``) or plain (``swa``).

    Parameters
    ----------
    kind : {"ema", "swa"}, default="ema"
        The average.
    rebn : bool, default=True
        Re-estimate batch-norm statistics over the training set, once.
    start : float, default=0.6
        Share of the run after which SWA starts; 120 of 200 epochs in SURE.
    lr : float, default=1.0
        Constant rate of SWA, as a share of the first one; SURE+ has 0.05 for both.
    released : bool, default=False
        Let EMA blend batch-norm statistics, as the released code of SURE+ does.
    decay : float, optional
        Decay of EMA, from 0 to below 1; 0.9998 in the code of SURE+, whose text has none. By default that of its run of
        78,000 steps, scaled to the length of this one: 1 / (1 - decay) is 5,000 / 78,000 of the steps.
    ramp : float, optional
        Updates over which that decay rises; 2,000 in the code of SURE+. By default 2,000 / 78,000 of the steps.
    """

    kind: Literal["ema", "swa"] = "ema"
    rebn: bool = True
    start: float = 0.6
    lr: float = 1.0
    released: bool = False
    decay: float | None = field(default=None, metadata=QUIET)
    ramp: float | None = field(default=None, metadata=QUIET)

    def __post_init__(self) -> None:
        _checks.choice(self.kind, "kind", ("ema", "swa"))
        _checks.number(self.start, "start", 0.0, 1.0, open_high=True)
        check_not_negative(self.lr, "lr")
        if self.decay is not None:
            _checks.number(self.decay, "decay", 0.0, 1.0, open_high=True)
        if self.ramp is not None:
            check_not_negative(self.ramp, "ramp")
        if self.kind == "swa" and (self.decay, self.ramp) != (None, None):
            raise InvalidInput("decay and ramp are settings of EMA; this average is SWA")


@dataclass(frozen=True)
class FineTune(Part):
    """Start from a trained checkpoint, at a fraction of the learning rate.

    Parameters
    ----------
    lr : float, default=0.01
        The fraction.
    """

    lr: float = 0.01

    def __post_init__(self) -> None:
        check_positive(self.lr, "lr")


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

    def __post_init__(self) -> None:
        _checks.whole(self.count, "count", 1)
