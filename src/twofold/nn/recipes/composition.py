"""Recipes: parts put together, and trainings that follow one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn.recipes.confidence import TrueClass
from twofold.nn.recipes.network import Branch
from twofold.nn.recipes.optimisation import Frozen, Sharpness
from twofold.nn.recipes.part import NetworkOptions, Option, Part, Term, check_positive

P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Recipe:
    """Put parts together; a later part replaces an earlier one of the same kind.

    Parameters
    ----------
    parts : tuple of Part
        The parts, in order.

    Examples
    --------
    >>> from twofold.nn.recipes import Clean, MixUp
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
        >>> from twofold.nn.recipes import MixUp, recipe
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
        >>> from twofold.nn.recipes import recipe
        >>> recipe("fmfp").terms
        (Clean(weight=1.0, smoothing=0.0),)
        """
        return tuple(part for part in self.parts if isinstance(part, Term))

    @property
    def passes(self) -> int:
        """Forward and backward passes of one step.

        Examples
        --------
        >>> from twofold.nn.recipes import recipe
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
        >>> from twofold.nn.recipes import recipe
        >>> recipe("oe").outliers_per_image, recipe("basic").outliers_per_image
        (2, 0)
        """
        return max((term.outliers for term in self.terms), default=0)

    @property
    def memory(self) -> tuple[str, ...]:
        """Names of what the terms remember from step to step.

        Examples
        --------
        >>> from twofold.nn.recipes import recipe
        >>> recipe("crl").memory
        ('correctness',)
        """
        return tuple(name for term in self.terms for name in term.memory)

    @property
    def later_stages(self) -> tuple[Stage, ...]:
        """Trainings that follow the first; none in most recipes.

        Examples
        --------
        >>> from twofold.nn.recipes import recipe
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
        >>> from twofold.nn.recipes import recipe
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


@dataclass(frozen=True)
class Stage:
    """Describe a training that follows another.

    Parameters
    ----------
    name : str
        Name of its folder.
    recipe : Recipe
        Its recipe.
    epochs : int or float
        Its epochs: a whole number of them, or a share of those of the first training.
    lr : float
        Its learning rate, of Adam.
    schedule : {"cosine", "constant"}, default="cosine"
        Its learning rate over the stage.
    """

    name: str
    recipe: Recipe
    epochs: int | float
    lr: float
    schedule: Literal["cosine", "constant"] = "cosine"

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
        if isinstance(self.epochs, int):
            return self.epochs
        return max(1, round(self.epochs * first))


@dataclass(frozen=True)
class Stages(Part):
    """Train in stages that follow the training of the recipe; a run from a checkpoint starts with them."""

    @property
    def then(self) -> tuple[Stage, ...]:
        """The trainings that follow, in order; a subclass lists them."""
        raise NotImplementedError


@dataclass(frozen=True)
class ConfidNetStages(Stages):
    """Train ConfidNet's branch alone, then the branch with an encoder of its own; the classifier stays as it is.

    FD-Shifts trains 250 + 200 + 20 epochs on CIFAR, 100 + 200 + 20 on SVHN, 300 + 200 + 20 on BREEDS, 12 + 5 + 3 on
    iWildCam and 5 + 3 + 1 on Camelyon17; the presets ``fd_...`` have these numbers.

    Parameters
    ----------
    branch_epochs : int or float, default=0.8
        Epochs of the branch: a whole number of them, or a share of those of the classifier.
    branch_lr : float, default=1e-4
        Learning rate of the branch, of Adam; 1e-4 in FD-Shifts.
    encoder_epochs : int or float, default=0.08
        Epochs of the branch with its encoder, likewise.
    encoder_lr : float, default=1e-6
        Learning rate of these; 1e-6 in FD-Shifts.
    stage_schedule : {"cosine", "constant"}, default="cosine"
        Learning rate over each of the two stages: cosine in the present code of FD-Shifts, constant in the code of its
        publication (v0.1.0).
    """

    branch_epochs: int | float = 0.8
    branch_lr: float = 1e-4
    encoder_epochs: int | float = 0.08
    encoder_lr: float = 1e-6
    stage_schedule: Literal["cosine", "constant"] = "cosine"

    def __post_init__(self) -> None:
        for name in ("branch_epochs", "branch_lr", "encoder_epochs", "encoder_lr"):
            check_positive(getattr(self, name), name)
        _checks.choice(self.stage_schedule, "stage_schedule", ("cosine", "constant"))

    @property
    def then(self) -> tuple[Stage, ...]:
        """The branch alone, then the branch with an encoder of its own.

        Examples
        --------
        >>> [stage.count_epochs(250) for stage in ConfidNetStages().then]
        [200, 20]
        """
        branch = TrueClass() | Branch("confidnet") | Frozen()
        encoder = branch | Branch("confidnet", encoder=True)
        return (
            Stage("branch", branch, self.branch_epochs, self.branch_lr, self.stage_schedule),
            Stage("encoder", encoder, self.encoder_epochs, self.encoder_lr, self.stage_schedule),
        )
