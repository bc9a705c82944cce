r"""Training recipes: each is one expression that puts small parts together.

A recipe is loss terms (what is asked of the network on which view of a batch), an optimiser wrapper, an average of the
weights, options of the network, and stages that follow. ``a | b`` puts parts together, ``recipe - Kind`` leaves a part
out, so that the ablations of a paper are one expression each. Equations stand with the parts in
:mod:`twofold.nn.ingredients`.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.ingredients import losses
from twofold.nn.ingredients.mixing import Mixed, augmix, cutmix, mixup
from twofold.nn.ingredients.pixmix import pixmix

if TYPE_CHECKING:
    from twofold.nn.training import Step


@dataclass(frozen=True)
class Part:
    """One piece of a recipe."""

    def __or__(self, other: Part | Recipe) -> Recipe:
        return Recipe((self,)) | other


@dataclass(frozen=True)
class Recipe:
    """Parts put together; a later part of one kind takes the place of an earlier one."""

    parts: tuple[Part, ...]

    def __or__(self, other: Part | Recipe) -> Recipe:
        added = other.parts if isinstance(other, Recipe) else (other,)
        kept = tuple(p for p in self.parts if not any(type(p) is type(a) for a in added))
        return Recipe((*kept, *added))

    def __sub__(self, kind: type[Part]) -> Recipe:
        if self.get(kind) is None:
            raise InvalidInput(f"this recipe has no {kind.__name__} to leave out")
        return Recipe(tuple(p for p in self.parts if not isinstance(p, kind)))

    def get(self, kind: type[Any]) -> Any:
        """The part of a kind, or None."""
        return next((p for p in self.parts if isinstance(p, kind)), None)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The parts that make the loss."""
        return tuple(p for p in self.parts if isinstance(p, Term))

    @property
    def passes(self) -> int:
        """Forward and backward passes of one step."""
        views = {view for term in self.terms for view in term.views}
        sharpness: Sharpness | None = self.get(Sharpness)
        if sharpness is None:
            return len(views)
        return len(views) + (1 if sharpness.ascent == "clean" else len(views))

    @property
    def options(self) -> dict[str, Any]:
        """What the network must be built with."""
        return {k: v for p in self.parts if isinstance(p, Option) for k, v in p.options.items()}

    def __str__(self) -> str:
        return " | ".join(map(repr, self.parts))


# Loss terms


@dataclass(frozen=True)
class Term(Part, ABC):
    """A share of the loss, on views of the batch."""

    views: ClassVar[tuple[str, ...]] = ("clean",)

    @abstractmethod
    def loss(self, step: Step) -> Tensor:
        """The loss of a step, weighted."""


@dataclass(frozen=True)
class Clean(Term):
    """Cross-entropy on the clean batch, with label smoothing."""

    weight: float = 1.0
    smoothing: float = 0.0

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        return self.weight * losses.cross_entropy(step.logits, step.labels, self.smoothing)


@dataclass(frozen=True)
class MixUp(Term):
    """Cross-entropy on images mixed in pairs; beside :class:`Clean` with alpha 10 it is RegMixup."""

    alpha: float = 10.0
    weight: float = 1.0
    views: ClassVar[tuple[str, ...]] = ("mixup",)

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        return self.weight * _of_pairs(mixup, self.alpha, step)


@dataclass(frozen=True)
class CutMix(Term):
    """Cross-entropy on images that hold a box of another."""

    alpha: float = 1.0
    weight: float = 1.0
    views: ClassVar[tuple[str, ...]] = ("cutmix",)

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        return self.weight * _of_pairs(cutmix, self.alpha, step)


def _of_pairs(mix: Callable[..., Mixed], alpha: float, step: Step) -> Tensor:
    """Cross-entropy on a batch mixed in pairs."""
    images, labels = step.together(step.images), step.together(step.labels)
    mixed = mix(images, labels, alpha, seed=step.seed, epoch=step.epoch, step=step.number)
    images, partners = step.own(mixed.images), step.own(mixed.partners)
    return losses.mixed_cross_entropy(step.network(images), step.labels, partners, mixed.share)


@dataclass(frozen=True)
class PixMix(Term):
    """Cross-entropy on images mixed with fractals; beside :class:`Clean` it is RegPixMix."""

    weight: float = 1.0
    compat: Literal["paper", "published"] = "paper"
    views: ClassVar[tuple[str, ...]] = ("pixmix",)

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        pixels = step.once(
            "pixmix",
            lambda: pixmix(step.pixels, step.mixers, step.index, compat=self.compat, seed=step.seed, epoch=step.epoch),
        )
        return self.weight * losses.cross_entropy(step.network(step.prepared(pixels)), step.labels)


@dataclass(frozen=True)
class AugMix(Term):
    """Agreement of the clean image and two augmented ones."""

    weight: float = 12.0
    views: ClassVar[tuple[str, ...]] = ("clean", "augmix 0", "augmix 1")

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        return self.weight * losses.jsd(step.logits, _augmented(step, 0), _augmented(step, 1))


@dataclass(frozen=True)
class AugMixed(Term):
    """Cross-entropy on an augmented image, without the agreement of :class:`AugMix`."""

    views: ClassVar[tuple[str, ...]] = ("augmix 0",)

    def loss(self, step: Step) -> Tensor:
        """The loss."""
        return losses.cross_entropy(_augmented(step, 0), step.labels)


def _augmented(step: Step, view: int) -> Tensor:
    """Logits of one augmented view."""

    def make() -> Any:
        return augmix(step.pixels, step.index, seed=step.seed, epoch=step.epoch, view=view)

    return step.network(step.prepared(step.once(f"augmix {view}", make)))


@dataclass(frozen=True)
class CRL(Term):
    """Correctness ranking: what was often answered rightly should be the more confident."""

    weight: float = 1.0
    equal: Literal["ignore", "pull"] = "ignore"

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        record = step.kept("correctness", lambda: losses.Correctness(step.rows))
        confidence = step.logits.softmax(dim=1).max(dim=1).values
        index = torch.as_tensor(step.index)
        if step.first:
            right = step.logits.detach().argmax(dim=1) == step.labels
            step.after(lambda: record.update(step.gathered(index.to(right.device)), step.gathered(right)))
        target = record.targets(index, step.epoch + 1).to(confidence.device)
        return self.weight * step.shared(losses.crl(step.together(confidence), step.together(target), self.equal))


@dataclass(frozen=True)
class LogitNorm(Term):
    """Cross-entropy of logits of one length."""

    temperature: float = 0.04

    def loss(self, step: Step) -> Tensor:
        """The loss."""
        return losses.logit_norm(step.logits, step.labels, self.temperature)


@dataclass(frozen=True)
class Evidential(Term):
    """The evidential loss; its weight of the prior is not told by the benchmark that used it, 0.01 is our choice."""

    weight: float = 0.01

    def loss(self, step: Step) -> Tensor:
        """The loss."""
        return losses.edl(step.logits, step.labels, weight=self.weight)


@dataclass(frozen=True)
class OutlierExposure(Term):
    """Uniform answers on outliers, which share the pass of the clean batch."""

    weight: float = 0.5
    outliers: ClassVar[int] = 2  # for each training image

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        return self.weight * losses.outlier_exposure(step.outlier_logits)


@dataclass(frozen=True)
class EnergyMargin(Term):
    """Energy of known inputs below one margin, of outliers above another; margins of the benchmark for CIFAR."""

    weight: float = 0.1
    m_in: float = -27.0
    m_out: float = -3.0
    outliers: ClassVar[int] = 2

    def loss(self, step: Step) -> Tensor:
        """Weighted."""
        return self.weight * losses.energy_margin(step.logits, step.outlier_logits, self.m_in, self.m_out)


@dataclass(frozen=True)
class Gambler(Term):
    """Deep Gamblers: plain cross-entropy for a share of the run, then a reservation that pays ``reward``."""

    reward: float = 2.2
    warm_up: float = 1 / 3

    def loss(self, step: Step) -> Tensor:
        """The loss."""
        if step.progress < self.warm_up:
            return losses.cross_entropy(step.logits[:, :-1], step.labels)
        return losses.gambler(step.logits, step.labels, self.reward)


@dataclass(frozen=True)
class Hints(Term):
    """DeVries and Taylor: the network may ask for hints, at a price that keeps to a budget."""

    budget: float = 0.3

    def loss(self, step: Step) -> Tensor:
        """The loss."""
        price = step.kept("budget", lambda: losses.Budget(self.budget))
        confidence = step.confidence
        hint = step.coins()
        if step.first:
            held = confidence.detach()
            step.after(lambda: price.update(step.gathered(held)))
        return losses.devries(step.logits, confidence, step.labels, hint, price.weight)


@dataclass(frozen=True)
class TrueClass(Term):
    """ConfidNet: the branch learns the probability of the true class; the classifier stays as it is."""

    def loss(self, step: Step) -> Tensor:
        """The loss."""
        return losses.confidnet(step.confidence, step.logits, step.labels)


@dataclass(frozen=True)
class Ranked(Term):
    """AURC of the batch as the loss."""

    estimator: Literal["empirical", "log", "sele", "self_excluded"] = "empirical"

    def loss(self, step: Step) -> Tensor:
        """The loss."""
        z = step.logits
        each = torch.nn.functional.cross_entropy(z, step.labels, reduction="none")
        top, chosen = z.max(dim=1)
        others = z.scatter(1, chosen[:, None], float("-inf"))
        sure = step.together(top - others.logsumexp(dim=1))
        return step.shared(losses.aurc(step.together(each), sure, self.estimator))


# Optimiser wrapper, averages, network


@dataclass(frozen=True)
class Sharpness(Part):
    """Sharpness-aware steps: SAM, or F-SAM in one of its forms.

    ``rho`` is the length of the perturbation over all parameters. The printed 0.2 is an absolute length for a
    ResNet-18, so it is a larger share of a smaller network: 4.5 times larger for a ResNet-8, whose weights have 0.22
    of the norm. ``rho_relative`` multiplies ``rho`` by the norm of the network's parameters when training begins, over
    that of a ResNet-18 as initialised (:data:`twofold.nn.training.RESNET18_NORM`).
    ``ascent``: the perturbation comes from the gradient of all views, or from that of the clean view alone, which
    saves the first pass over the others.
    """

    kind: Literal["sam", "fsam"] = "sam"
    rho: float = 0.2
    rho_relative: bool = False
    variant: Literal["released", "original", "printed"] = "released"
    ascent: Literal["all", "clean"] = "all"


@dataclass(frozen=True)
class Averaged(Part):
    """The weights that are kept at the end: their moving average (``ema``) or plain average (``swa``).

    ``start``: SWA begins after this share of the run, at the constant rate ``lr`` (a share of the first one).
    ``rebn``: batch-norm statistics are estimated anew over the training set, once. ``released``: EMA blends
    batch-norm statistics, as the released code of SURE+ does.
    """

    kind: Literal["ema", "swa"] = "ema"
    rebn: bool = True
    start: float = 0.6
    lr: float = 1.0
    released: bool = False


@dataclass(frozen=True)
class Option(Part, ABC):
    """What the network is built with."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Keywords of :func:`twofold.nn.build`."""


@dataclass(frozen=True)
class CosineClassifier(Option):
    """A cosine head (CSC)."""

    scale: float = 8.0

    @property
    def options(self) -> dict[str, Any]:
        """A cosine head of this scale."""
        return {"head": "cosine", "scale": self.scale}


@dataclass(frozen=True)
class Dropout(Option):
    """Dropout at the sites of the network, for MC dropout."""

    rate: float = 0.2

    @property
    def options(self) -> dict[str, Any]:
        """The rate."""
        return {"dropout": self.rate}


@dataclass(frozen=True)
class Abstention(Option):
    """One more output: the reservation."""

    @property
    def options(self) -> dict[str, Any]:
        """C + 1 outputs."""
        return {"abstain": True}


@dataclass(frozen=True)
class Branch(Option):
    """A confidence branch; ``encoder``: it learns a copy of the encoder too, and leaves the classifier its own."""

    kind: Literal["devries", "confidnet"] = "devries"
    encoder: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The branch."""
        return {"confidence": self.kind}


@dataclass(frozen=True)
class FineTune(Part):
    """Start from a trained checkpoint, at a fraction of the learning rate."""

    lr: float = 0.01


@dataclass(frozen=True)
class Frozen(Part):
    """The classifier stays as it is, dropout off and batch norm on its running statistics; only the branch learns."""


@dataclass(frozen=True)
class ReBN(Part):
    """Batch-norm statistics of a checkpoint estimated anew over the training set, and nothing else."""


@dataclass(frozen=True)
class Members(Part):
    """Several networks that differ in their seed alone: a deep ensemble."""

    count: int = 5


@dataclass(frozen=True)
class Stage:
    """A training that follows another: its recipe, its epochs as a share of the first one's, its Adam rate."""

    name: str
    recipe: Recipe
    epochs: float
    lr: float


@dataclass(frozen=True)
class Stages(Part):
    """Trainings that follow the one of the recipe; a run that starts from a checkpoint begins with them."""

    then: tuple[Stage, ...]


def _confidnet() -> Recipe:
    r"""The classifier, then the branch alone, then the branch with an encoder of its own.

    250, 200 and 20 epochs on CIFAR, by Adam at 1e-4 and 1e-6 after the first (FD-Shifts).
    """
    learn = TrueClass() | Branch("confidnet") | Frozen()
    own = learn | Branch("confidnet", encoder=True)
    return (
        Clean() | Branch("confidnet") | Stages((Stage("branch", learn, 0.8, 1e-4), Stage("encoder", own, 0.08, 1e-6)))
    )


SURE = Clean() | MixUp(10.0) | CRL() | CosineClassifier() | Sharpness("sam") | Averaged("swa")
SURE_PLUS = Clean() | MixUp(10.0) | PixMix() | Sharpness("fsam") | Averaged("ema")

RECIPES: Mapping[str, Recipe] = {
    "basic": Recipe((Clean(),)),
    "mixup": Recipe((MixUp(0.2),)),
    "regmixup": Clean() | MixUp(10.0),
    "cutmix": Recipe((CutMix(),)),
    "augmix": Clean() | AugMix(),
    "augmix_no_jsd": Recipe((AugMixed(),)),
    "pixmix": Recipe((PixMix(),)),
    "regpixmix": Clean() | PixMix(),
    "label_smoothing": Recipe((Clean(smoothing=0.1),)),
    "logitnorm": Recipe((LogitNorm(),)),
    "crl": Clean() | CRL(),
    "sam": Clean() | Sharpness("sam", rho=0.05),
    "fsam": Clean() | Sharpness("fsam"),
    "swa": Clean() | Averaged("swa"),
    "ema": Clean() | Averaged("ema"),
    "fmfp": Clean() | Sharpness("sam", rho=0.05) | Averaged("swa"),
    "sure": SURE,
    "sure_no_csc": SURE - CosineClassifier,
    "sure_no_csc_crl": SURE - CosineClassifier - CRL,
    "sure_ema": SURE - CosineClassifier - CRL | Averaged("ema", rebn=False),
    "sure_ema_rebn": SURE - CosineClassifier - CRL | Averaged("ema"),
    "sure_fsam": SURE - CosineClassifier - CRL | Sharpness("fsam") | Averaged("ema"),
    "sure_plus": SURE_PLUS,
    "sure_plus_released": SURE_PLUS | PixMix(compat="published") | Averaged("ema", rebn=False, released=True),
    "sure_plus_printed": SURE_PLUS | Sharpness("fsam", variant="printed"),
    "sure_plus_fast": SURE_PLUS | Sharpness("fsam", ascent="clean"),
    "rebn": FineTune() | ReBN(),
    "edl": Recipe((Evidential(),)),
    "oe": Clean() | OutlierExposure(),
    "energy_finetune": Clean() | EnergyMargin() | FineTune(0.02),
    "mc_dropout": Clean() | Dropout(),
    "deep_ensemble": Clean() | Members(),
    "confidnet": _confidnet(),
    "devries": Hints() | Branch("devries"),
    "gamblers": Gambler() | Abstention(),
    "aurc_finetune": Ranked() | FineTune(0.02),
}


def recipe(name: str) -> Recipe:
    """A recipe by name, with settings of its parts where given: ``aurc_finetune(estimator='sele')``."""
    head, bracket, _ = name.partition("(")
    if head not in RECIPES:
        raise UnknownName.of("recipe", head, RECIPES)
    return _with_settings(RECIPES[head], name) if bracket else RECIPES[head]


def _with_settings(plain: Recipe, text: str) -> Recipe:
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("not a call")
        given = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"recipe {text!r} must be a name, or name(setting=value, ...)") from error
    for key, value in given.items():
        holders = [part for part in plain.parts if key in {field.name for field in fields(part)}]
        if len(holders) != 1:
            known = sorted({field.name for part in plain.parts for field in fields(part)})
            if holders:
                kinds = " and ".join(type(part).__name__ for part in holders)
                raise InvalidInput(f"{key} is a setting of {kinds} of this recipe; compose it in Python instead")
            raise UnknownName.of(f"setting of {text.partition('(')[0]}", key, known)
        plain |= replace(holders[0], **{key: value})
    return plain
