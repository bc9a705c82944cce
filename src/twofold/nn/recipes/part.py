"""What every part of a recipe is: a loss term, an option of the network, or a setting of the training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor

from twofold import _checks
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.models.parts import HeadKind

if TYPE_CHECKING:
    from twofold.nn.recipes.composition import Recipe
    from twofold.nn.training import Training, TrainingStep

# A training resumes where its recipe reads as it did when it began. Settings that were added to a part later are fields
# with this metadata: they are shown only where they differ from their defaults, so that older recipes read the same.
QUIET: Mapping[str, bool] = {"quiet": True}


def check_positive(value: object, name: str) -> None:
    """Raise unless a setting is a finite number above 0.

    Parameters
    ----------
    value : object
        The setting.
    name : str
        How the error calls it.

    Raises
    ------
    InvalidInput
        If the value is not a finite number above 0.
    """
    _checks.number(value, name, 0.0, math.inf, open_low=True, open_high=True)


def check_not_negative(value: object, name: str) -> None:
    """Raise unless a setting is a finite number of at least 0.

    Parameters
    ----------
    value : object
        The setting.
    name : str
        How the error calls it.

    Raises
    ------
    InvalidInput
        If the value is not a finite number at least 0.
    """
    _checks.number(value, name, 0.0, math.inf, open_high=True)


class NetworkOptions(TypedDict, total=False):
    """Hold the keywords of :func:`twofold.nn.build` that a recipe may ask for."""

    head: HeadKind
    scale: float
    dropout: float
    abstain: bool
    confidence: Literal["devries", "confidnet"]


class AugmentedBatch(Protocol):
    """Define what a loss term makes its own views of a batch from."""

    @property
    def pixels(self) -> npt.NDArray[np.uint8]:
        """Augmented images, of shape (B, H, W, 3)."""
        ...

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """Rows of the training set, of shape (B,); with :attr:`seed` and :attr:`epoch` they seed random draws."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the training."""
        ...

    @property
    def epoch(self) -> int:
        """Number of the epoch, from 0."""
        ...

    @property
    def mixers(self) -> Mixers:
        """Pictures for PixMix to mix in."""
        ...

    def augment_again(self) -> npt.NDArray[np.uint8]:
        """Augment the same rows by other random draws; of the shape of :attr:`pixels`."""
        ...


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

    def __repr__(self) -> str:
        shown = []
        for one in fields(self):
            value = getattr(self, one.name)
            if "quiet" not in one.metadata or value != one.default:
                shown.append(f"{one.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __or__(self, other: Part | Recipe) -> Recipe:
        from twofold.nn.recipes.composition import Recipe

        return Recipe((self,)) | other


@dataclass(frozen=True, repr=False)
class Term(Part, ABC):
    """Define a share of the loss, computed on views of the batch.

    A subclass is a frozen dataclass of settings with :meth:`loss`, and may set seven class variables. A term that looks
    at images of its own, made from those of the batch, makes them in :meth:`make_views`.

    Attributes
    ----------
    views : tuple of str
        Views of the batch that the network sees for this term; terms that name the same view share a pass.
    outliers : int
        Outliers that the term needs for each training image.
    memory : tuple of str
        Names of what the term keeps by :meth:`TrainingStep.remember`; a state without them is refused.
    uses_mixers : bool
        Whether :meth:`make_views` mixes in pictures.
    couples : bool
        Whether the term calls :meth:`TrainingStep.gather_batch`.
    needs_confidence : bool
        Whether the term reads :attr:`TrainingStep.confidence`; the branch is not run where no term does.
    needs_features : bool
        Whether the term reads :attr:`TrainingStep.features` or calls :meth:`TrainingStep.embed`; a step does not keep
        features where no term does.
    """

    views: ClassVar[tuple[str, ...]] = ("clean",)
    outliers: ClassVar[int] = 0
    memory: ClassVar[tuple[str, ...]] = ()
    couples: ClassVar[bool] = False
    needs_confidence: ClassVar[bool] = False
    needs_features: ClassVar[bool] = False
    uses_mixers: ClassVar[bool] = False

    def make_views(self, batch: AugmentedBatch) -> dict[str, npt.NDArray[np.float32]]:
        """Make the term's own views of a batch; :meth:`TrainingStep.view` returns them, made once in a step.

        The processes that read ahead call this before the step, so it depends on the batch alone.

        Parameters
        ----------
        batch : AugmentedBatch
            The augmented images.

        Returns
        -------
        dict of str to ndarray of float32, shape (B, H, W, 3)
            Pixels in [0, 1] by the name of the view; by default there are none.
        """
        return {}

    def start(self, training: Training) -> None:
        """Prepare the network before the first step of a training; by default there is nothing to do.

        A training that resumes from a saved state is not started again.

        Parameters
        ----------
        training : Training
            The training, whose network is on its device.
        """

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


@dataclass(frozen=True, repr=False)
class Option(Part, ABC):
    """Define what the network is built with."""

    @property
    @abstractmethod
    def options(self) -> NetworkOptions:
        """Keywords of :func:`twofold.nn.build`."""
