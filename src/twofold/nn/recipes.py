r"""Training recipes: each is one expression that puts small parts together.

A recipe is loss terms (what the network learns from which view of a batch), an optimiser wrapper, an average of the
weights, options of the network, and stages that follow. ``a | b`` puts parts together, ``recipe - Kind`` leaves a part
out, so that the ablations of a paper are one expression each. Equations stand with the parts in
:mod:`twofold.nn.ingredients`.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.ingredients import losses
from twofold.nn.ingredients.mixing import Mixed, augmix, cutmix, mixup
from twofold.nn.ingredients.pixmix import pixmix

if TYPE_CHECKING:
    from twofold.nn.training import TrainingStep

P = TypeVar("P", bound="Part")


class NetworkOptions(TypedDict, total=False):
    """Keywords of :func:`twofold.nn.build` that a recipe may ask for."""

    head: Literal["linear", "cosine"]
    scale: float
    dropout: float
    abstain: bool
    confidence: Literal["devries", "confidnet"]


class Remembered(Protocol):
    """Define what a loss term may keep from step to step: it can be saved and restored with the training."""

    def state_dict(self) -> dict[str, Any]:
        """Return what is saved: plain values and tensors by name."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Restore what :meth:`state_dict` returned.

        Parameters
        ----------
        state : mapping
            What was saved.
        """
        ...


@dataclass(frozen=True)
class Part:
    """Define one piece of a recipe; ``part | part`` makes a recipe."""

    def __or__(self, other: Part | Recipe) -> Recipe:
        return Recipe((self,)) | other


@dataclass(frozen=True)
class Recipe:
    """Put parts together; a later part replaces an earlier one of the same kind.

    Parameters
    ----------
    parts : tuple of Part
        The parts, in order.

    Examples
    --------
    >>> own = Clean() | MixUp(10.0) | Sharpness("sam")
    >>> own.passes
    4
    >>> print(own - Sharpness)
    Clean(weight=1.0, smoothing=0.0) | MixUp(alpha=10.0, weight=1.0)
    """

    parts: tuple[Part, ...]

    def __or__(self, other: Part | Recipe) -> Recipe:
        added = other.parts if isinstance(other, Recipe) else (other,)
        replaced = {type(part) for part in added}
        kept = [part for part in self.parts if type(part) not in replaced]
        return Recipe((*kept, *added))

    def __sub__(self, kind: type[Part]) -> Recipe:
        if self.get(kind) is None:
            raise InvalidInput(f"this recipe has no {kind.__name__} to leave out")
        return Recipe(tuple(part for part in self.parts if not isinstance(part, kind)))

    def get(self, kind: type[P]) -> P | None:
        """Find the part of a kind.

        Parameters
        ----------
        kind : type
            A class of this module, such as ``Sharpness``.

        Returns
        -------
        Part or None
            The part; None if the recipe has none of this kind.

        Examples
        --------
        >>> recipe("regmixup").get(MixUp)
        MixUp(alpha=10.0, weight=1.0)
        """
        for part in self.parts:
            if isinstance(part, kind):
                return part
        return None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The parts that make the loss.

        Examples
        --------
        >>> recipe("fmfp").terms
        (Clean(weight=1.0, smoothing=0.0),)
        """
        return tuple(part for part in self.parts if isinstance(part, Term))

    @property
    def passes(self) -> int:
        """Forward and backward passes of one step.

        Examples
        --------
        >>> recipe("basic").passes, recipe("sure_plus").passes, recipe("sure_plus_fast").passes
        (1, 6, 4)
        """
        views = {view for term in self.terms for view in term.views}
        sharpness = self.get(Sharpness)
        if sharpness is None:
            return len(views)
        if sharpness.ascent == "clean":
            return len(views) + 1
        return 2 * len(views)

    @property
    def outliers_per_image(self) -> int:
        """Outliers that a step needs for each training image; 0 where no term learns from outliers.

        Examples
        --------
        >>> recipe("oe").outliers_per_image, recipe("basic").outliers_per_image
        (2, 0)
        """
        return max((term.outliers for term in self.terms), default=0)

    @property
    def memory(self) -> tuple[str, ...]:
        """Names of what the terms remember from step to step.

        Examples
        --------
        >>> recipe("crl").memory
        ('correctness',)
        """
        return tuple(name for term in self.terms for name in term.memory)

    @property
    def later_stages(self) -> tuple[Stage, ...]:
        """Trainings that follow the first; none in most recipes.

        Examples
        --------
        >>> [stage.name for stage in recipe("confidnet").later_stages]
        ['branch', 'encoder']
        """
        stages = self.get(Stages)
        return () if stages is None else stages.then

    @property
    def options(self) -> NetworkOptions:
        """Keywords of :func:`twofold.nn.build` that the network must be built with.

        Examples
        --------
        >>> recipe("sure").options
        {'head': 'cosine', 'scale': 8.0}
        """
        options: NetworkOptions = {}
        for part in self.parts:
            if isinstance(part, Option):
                options.update(part.options)
        return options

    def __str__(self) -> str:
        return " | ".join(map(repr, self.parts))


# Loss terms


@dataclass(frozen=True)
class Term(Part, ABC):
    """Define a share of the loss, computed on views of the batch.

    A subclass is a frozen dataclass of settings with :meth:`loss`, and may set three class variables.

    Attributes
    ----------
    views : tuple of str
        Views of the batch that the network sees for this term; terms that name the same view share a pass.
    outliers : int
        Outliers that the term needs for each training image.
    memory : tuple of str
        Names of what the term keeps by :meth:`TrainingStep.remember`; a state without them is refused.
    """

    views: ClassVar[tuple[str, ...]] = ("clean",)
    outliers: ClassVar[int] = 0
    memory: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted loss of a step.

        Parameters
        ----------
        step : TrainingStep
            The batch: its labels, views and logits.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """


@dataclass(frozen=True)
class Clean(Term):
    """Learn by cross-entropy on the clean batch, with label smoothing.

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the term.
    smoothing : float, default=0.0
        Share of the label that is spread over all classes.
    """

    weight: float = 1.0
    smoothing: float = 0.0

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return self.weight * losses.cross_entropy(step.logits, step.labels, self.smoothing)


@dataclass(frozen=True)
class MixUp(Term):
    """Learn by cross-entropy on images mixed in pairs; beside :class:`Clean` with alpha 10 it is RegMixup.

    Parameters
    ----------
    alpha : float, default=10.0
        Both parameters of the Beta distribution of the share; large values mix half and half.
    weight : float, default=1.0
        Weight of the term.
    """

    alpha: float = 10.0
    weight: float = 1.0
    views: ClassVar[tuple[str, ...]] = ("mixup",)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy on mixed images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        images, labels = step.gather_batch(step.images), step.gather_batch(step.labels)
        mixed = mixup(images, labels, self.alpha, seed=step.seed, epoch=step.epoch, step=step.number)
        return self.weight * _mixed_cross_entropy(step, mixed)


@dataclass(frozen=True)
class CutMix(Term):
    """Learn by cross-entropy on images that hold a box of another.

    Parameters
    ----------
    alpha : float, default=1.0
        Both parameters of the Beta distribution of the share that is left of an image.
    weight : float, default=1.0
        Weight of the term.
    """

    alpha: float = 1.0
    weight: float = 1.0
    views: ClassVar[tuple[str, ...]] = ("cutmix",)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy on mixed images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        images, labels = step.gather_batch(step.images), step.gather_batch(step.labels)
        mixed = cutmix(images, labels, self.alpha, seed=step.seed, epoch=step.epoch, step=step.number)
        return self.weight * _mixed_cross_entropy(step, mixed)


def _mixed_cross_entropy(step: TrainingStep, mixed: Mixed) -> Tensor:
    """Compute the cross-entropy of a batch mixed in pairs, on the rows of this process."""
    images, partners = step.own_rows(mixed.images), step.own_rows(mixed.partners)
    return losses.mixed_cross_entropy(step.network(images), step.labels, partners, mixed.share)


@dataclass(frozen=True)
class PixMix(Term):
    """Learn by cross-entropy on images mixed with fractals; beside :class:`Clean` it is RegPixMix.

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the term.
    compat : {"paper", "published"}, default="paper"
        Whether to mix as the paper describes or as its code does.
    """

    weight: float = 1.0
    compat: Literal["paper", "published"] = "paper"
    views: ClassVar[tuple[str, ...]] = ("pixmix",)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy on mixed images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """

        def mix() -> npt.NDArray[np.float32]:
            return pixmix(step.pixels, step.mixers, step.index, compat=self.compat, seed=step.seed, epoch=step.epoch)

        mixed = step.normalise(step.once("pixmix", mix))
        return self.weight * losses.cross_entropy(step.network(mixed), step.labels)


@dataclass(frozen=True)
class AugMix(Term):
    """Learn to predict the same for the clean image and two augmented ones.

    Parameters
    ----------
    weight : float, default=12.0
        Weight of the Jensen-Shannon divergence.
    """

    weight: float = 12.0
    views: ClassVar[tuple[str, ...]] = ("clean", "augmix 0", "augmix 1")

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted Jensen-Shannon divergence of the three predictions.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        clean = step.logits
        first, second = _augmix_logits(step, view=0), _augmix_logits(step, view=1)
        return self.weight * losses.jsd(clean, first, second)


@dataclass(frozen=True)
class AugMixed(Term):
    """Learn by cross-entropy on an augmented image, without the agreement of :class:`AugMix`."""

    views: ClassVar[tuple[str, ...]] = ("augmix 0",)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the cross-entropy on augmented images.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return losses.cross_entropy(_augmix_logits(step, view=0), step.labels)


def _augmix_logits(step: TrainingStep, view: int) -> Tensor:
    """Compute the logits of one view that AugMix makes."""

    def make() -> npt.NDArray[np.float32]:
        return augmix(step.pixels, step.index, seed=step.seed, epoch=step.epoch, view=view)

    return step.network(step.normalise(step.once(f"augmix {view}", make)))


@dataclass(frozen=True)
class CRL(Term):
    """Rank confidences by how often each training image was predicted correctly so far (correctness ranking loss).

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the term.
    equal : {"ignore", "pull"}, default="ignore"
        What to do with pairs that were correct equally often: leave them out, or pull their confidences together.
    """

    weight: float = 1.0
    equal: Literal["ignore", "pull"] = "ignore"
    memory: ClassVar[tuple[str, ...]] = ("correctness",)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted ranking loss; correct predictions are counted once the weights have moved.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        record = step.remember("correctness", lambda: losses.Correctness(step.rows))
        confidence = step.logits.softmax(dim=1).max(dim=1).values
        index = torch.as_tensor(step.index)
        if step.is_first_pass:
            correct = step.logits.detach().argmax(dim=1) == step.labels
            step.after_update(lambda: record.update(step.gather(index.to(correct.device)), step.gather(correct)))
        target = record.targets(index, step.epoch + 1).to(confidence.device)
        ranking = losses.crl(step.gather_batch(confidence), step.gather_batch(target), self.equal)
        return self.weight * step.batch_loss(ranking)


@dataclass(frozen=True)
class LogitNorm(Term):
    """Learn by cross-entropy of logits that are scaled to one norm.

    Parameters
    ----------
    temperature : float, default=0.04
        What the normalised logits are divided by.
    """

    temperature: float = 0.04

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the cross-entropy of the normalised logits.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return losses.logit_norm(step.logits, step.labels, self.temperature)


@dataclass(frozen=True)
class Evidential(Term):
    """Learn by the evidential loss.

    Parameters
    ----------
    weight : float, default=0.01
        Weight of the divergence from the prior. The benchmark that used this loss does not state it; 0.01 is our
        choice.
    """

    weight: float = 0.01

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the evidential loss.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return losses.edl(step.logits, step.labels, weight=self.weight)


@dataclass(frozen=True)
class OutlierExposure(Term):
    """Learn to predict all classes equally on outliers, which share the pass of the clean batch.

    Parameters
    ----------
    weight : float, default=0.5
        Weight of the term.
    """

    weight: float = 0.5
    outliers: ClassVar[int] = 2

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted cross-entropy of outliers from the uniform prediction.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return self.weight * losses.outlier_exposure(step.outlier_logits)


@dataclass(frozen=True)
class EnergyMargin(Term):
    """Learn an energy below one margin on known inputs and above another on outliers.

    Parameters
    ----------
    weight : float, default=0.1
        Weight of the term.
    m_in : float, default=-27.0
        Margin of known inputs; the defaults are those of the benchmark for CIFAR.
    m_out : float, default=-3.0
        Margin of outliers.
    """

    weight: float = 0.1
    m_in: float = -27.0
    m_out: float = -3.0
    outliers: ClassVar[int] = 2

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the weighted squared distances beyond the margins.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return self.weight * losses.energy_margin(step.logits, step.outlier_logits, self.m_in, self.m_out)


@dataclass(frozen=True)
class Gambler(Term):
    """Learn when to abstain (Deep Gamblers): plain cross-entropy at first, then a reservation at a price.

    Parameters
    ----------
    reward : float, default=2.2
        What a correct prediction pays; the larger, the less the network abstains.
    warm_up : float, default=1/3
        Share of the run with plain cross-entropy.
    """

    reward: float = 2.2
    warm_up: float = 1 / 3

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute cross-entropy during the warm-up, the loss of Deep Gamblers after it.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        if step.progress < self.warm_up:
            return losses.cross_entropy(step.logits[:, :-1], step.labels)
        return losses.gambler(step.logits, step.labels, self.reward)


@dataclass(frozen=True)
class Hints(Term):
    """Learn a confidence by which the network may ask for hints, at a price that keeps to a budget (DeVries, Taylor).

    Parameters
    ----------
    budget : float, default=0.3
        Cost of hints that the price is adapted to.
    """

    budget: float = 0.3
    memory: ClassVar[tuple[str, ...]] = ("budget",)

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the loss with hints; the price is adapted once the weights have moved.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        price = step.remember("budget", lambda: losses.Budget(self.budget))
        confidence = step.confidence
        gets_hint = step.flip_coins()
        if step.is_first_pass:
            reached = confidence.detach()
            step.after_update(lambda: price.update(step.gather(reached)))
        return losses.devries(step.logits, confidence, step.labels, gets_hint, price.weight)


@dataclass(frozen=True)
class TrueClass(Term):
    """Teach the confidence branch the probability of the true class (ConfidNet); the classifier stays as it is."""

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the squared distance between the confidence and the true-class probability.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        return losses.confidnet(step.confidence, step.logits, step.labels)


@dataclass(frozen=True)
class Ranked(Term):
    """Learn by the AURC of the batch.

    Parameters
    ----------
    estimator : {"empirical", "log", "sele", "self_excluded"}, default="empirical"
        Estimator of the AURC.
    """

    estimator: Literal["empirical", "log", "sele", "self_excluded"] = "empirical"

    def loss(self, step: TrainingStep) -> Tensor:
        """Compute the AURC of the cross-entropy, ranked by the log-odds of the top class.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        logits = step.logits
        each = torch.nn.functional.cross_entropy(logits, step.labels, reduction="none")
        top, prediction = logits.max(dim=1)
        others = logits.scatter(1, prediction[:, None], float("-inf"))
        log_odds = step.gather_batch(top - others.logsumexp(dim=1))
        return step.batch_loss(losses.aurc(step.gather_batch(each), log_odds, self.estimator))


# Optimiser wrapper, averages, network


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
        Estimate batch-norm statistics anew over the training set, once.
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
class Option(Part, ABC):
    """Define what the network is built with."""

    @property
    @abstractmethod
    def options(self) -> NetworkOptions:
        """Keywords of :func:`twofold.nn.build`."""


@dataclass(frozen=True)
class CosineClassifier(Option):
    """Build the network with a cosine head (CSC).

    Parameters
    ----------
    scale : float, default=8.0
        What the cosines are multiplied by.
    """

    scale: float = 8.0

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
        Rate of dropout.
    """

    rate: float = 0.2

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

    @property
    def options(self) -> NetworkOptions:
        """A confidence branch of this kind.

        Examples
        --------
        >>> Branch("confidnet").options
        {'confidence': 'confidnet'}
        """
        return {"confidence": self.kind}


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
    """Estimate the batch-norm statistics of a checkpoint anew over the training set, and nothing else."""


@dataclass(frozen=True)
class Members(Part):
    """Train several networks that differ in their seed alone: a deep ensemble.

    Parameters
    ----------
    count : int, default=5
        Number of networks.
    """

    count: int = 5


@dataclass(frozen=True)
class Stage:
    """Describe a training that follows another.

    Parameters
    ----------
    name : str
        Name of its folder.
    recipe : Recipe
        Its recipe.
    epochs : float
        Its epochs as a share of those of the first training.
    lr : float
        Its learning rate, of Adam.
    """

    name: str
    recipe: Recipe
    epochs: float
    lr: float

    def count_epochs(self, first: int) -> int:
        """Count the epochs of this stage.

        Parameters
        ----------
        first : int
            Epochs of the first training.

        Returns
        -------
        int
            At least 1.
        """
        return max(1, round(self.epochs * first))


@dataclass(frozen=True)
class Stages(Part):
    """Train in stages: those listed follow the training of the recipe; a run from a checkpoint starts with them.

    Parameters
    ----------
    then : tuple of Stage
        The trainings that follow.
    """

    then: tuple[Stage, ...]


def _confidnet() -> Recipe:
    """Compose ConfidNet: the classifier, then the branch alone, then the branch with an encoder of its own.

    250, 200 and 20 epochs on CIFAR, by Adam at 1e-4 and 1e-6 after the first (FD-Shifts).
    """
    branch = TrueClass() | Branch("confidnet") | Frozen()
    encoder = branch | Branch("confidnet", encoder=True)
    stages = Stages((Stage("branch", branch, 0.8, 1e-4), Stage("encoder", encoder, 0.08, 1e-6)))
    return Clean() | Branch("confidnet") | stages


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
    """Return a recipe by name, with settings of its parts where they are given.

    Parameters
    ----------
    name : str
        A name in ``RECIPES``, or ``name(setting=value, ...)`` where exactly one part of the recipe has each setting.

    Returns
    -------
    Recipe
        The recipe.

    Raises
    ------
    UnknownName
        If there is no such recipe or setting.
    InvalidInput
        If the text is not a name or a call, or several parts have a setting of this name.

    Examples
    --------
    >>> print(recipe("aurc_finetune(estimator='sele')"))
    FineTune(lr=0.02) | Ranked(estimator='sele')
    """
    plain, bracket, _ = name.partition("(")
    if plain not in RECIPES:
        raise UnknownName.of("recipe", plain, RECIPES)
    if not bracket:
        return RECIPES[plain]
    changed = RECIPES[plain]
    for setting, value in _parse_settings(name).items():
        part = _find_part_with(changed, setting, plain)
        changed |= replace(part, **{setting: value})
    return changed


def _parse_settings(text: str) -> dict[str, object]:
    """Read the keywords of a call whose values are literals."""
    settings: dict[str, object] = {}
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("not a call with keywords alone")
        for keyword in call.keywords:
            settings[str(keyword.arg)] = ast.literal_eval(keyword.value)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"recipe {text!r} must be a name, or name(setting=value, ...)") from error
    return settings


def _find_part_with(composed: Recipe, setting: str, name: str) -> Part:
    """Find the one part of a recipe that has a setting."""
    known: set[str] = set()
    holders = []
    for part in composed.parts:
        names = {field.name for field in fields(part)}
        known |= names
        if setting in names:
            holders.append(part)
    if not holders:
        raise UnknownName.of(f"setting of {name}", setting, sorted(known))
    if len(holders) > 1:
        kinds = " and ".join(type(part).__name__ for part in holders)
        raise InvalidInput(f"{setting} is a setting of {kinds} of this recipe; compose it in Python instead")
    return holders[0]
