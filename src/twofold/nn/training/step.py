"""One batch as the loss terms of a recipe see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twofold.errors import InvalidInput
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.models.parts import Network
from twofold.nn.recipes import Remembered, Sharpness, Term
from twofold.nn.training.input import PreparedBatch

if TYPE_CHECKING:
    from twofold.nn.training.epochs import Training

T = TypeVar("T")
R = TypeVar("R", bound=Remembered)


@dataclass(frozen=True)
class PassOutputs:
    """Hold what the network computes for the clean images and the outliers in one pass.

    Parameters
    ----------
    logits : Tensor, shape (B, C)
        Logits of the clean images.
    outlier_logits : Tensor, shape (K, C)
        Logits of the outliers; no rows where no term asks for outliers.
    confidence : Tensor, shape (B,), optional
        Output of the confidence branch for the clean images, where the network has one.
    """

    logits: Tensor
    outlier_logits: Tensor
    confidence: Tensor | None


@dataclass(eq=False)
class TrainingStep:
    """Show one batch to the loss terms of a recipe; what two terms need in one pass is computed once.

    A sharpness-aware optimiser asks twice for the loss of a step: two passes, which see the same random draws.

    Parameters
    ----------
    training : Training
        The training to which the step belongs.
    index : ndarray of int64, shape (B,)
        Rows of the training set in the batch; with several processes, those of this process.
    epoch : int
        Number of the epoch, from 0.
    number : int
        Number of the step in the whole run, from 0.
    prepared : PreparedBatch, optional
        The batch, where it was prepared ahead; by default its parts are made when they are asked for.
    """

    training: Training
    index: npt.NDArray[np.int64]
    epoch: int
    number: int
    prepared: PreparedBatch | None = None
    is_first_pass: bool = field(default=True, init=False)
    _outputs: PassOutputs | None = field(default=None, init=False)  # of the clean images in the current pass
    _views: dict[str, Tensor] = field(default_factory=dict, init=False)  # made by terms, normalised
    _cache: dict[str, Any] = field(default_factory=dict, init=False)  # values of the whole step, of any type
    _after_update: list[Callable[[], None]] = field(default_factory=list, init=False)

    @property
    def seed(self) -> int:
        """Seed of the training.

        Random draws of a term depend on it and on the number of the epoch or step, never on what was drawn before.
        """
        return self.training.settings.seed

    @property
    def rows(self) -> int:
        """Number of rows in the training set.

        Entries of :attr:`index` are below it.
        """
        return len(self.training.data)

    @property
    def progress(self) -> float:
        """Share of the run that is over, in [0, 1).

        It grows by one over the number of steps with every step.
        """
        return self.number / self.training.steps

    @property
    def epochs(self) -> int:
        """Number of epochs of the training.

        The entry :attr:`epoch` is below it.
        """
        return self.training.settings.epochs

    @property
    def draw(self) -> int:
        """Number of the draw of mixed pairs in this step: 0, or 1 in a second pass that mixes anew.

        Both passes see the same pairs unless the recipe has ``Sharpness(redraw=True)``.
        """
        sharpness = self.training.recipe.get(Sharpness)
        draws_anew = sharpness is not None and sharpness.redraw
        return int(draws_anew and not self.is_first_pass)

    @property
    def mixers(self) -> Mixers:
        """Pictures for PixMix to mix in.

        Fractals are drawn at the first use where the setup has no pictures.
        """
        return self.training.mixers

    @cached_property
    def labels(self) -> Tensor:
        """Labels of the batch.

        Returns
        -------
        Tensor of int64, shape (B,)
            Class numbers, on the device.
        """
        return torch.as_tensor(np.asarray(self.training.data.labels[self.index]), device=self.training.device)

    @cached_property
    def pixels(self) -> npt.NDArray[np.uint8]:
        """Augmented images of the batch.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The images, channels last.
        """
        if self.prepared is not None:
            return self.prepared.pixels.numpy()
        return self.training.batch_maker.pixels(self.index, self.epoch)

    @cached_property
    def images(self) -> Tensor:
        """The augmented images as the network takes them.

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            Normalised images, on the device.
        """
        if self.prepared is not None:
            return self.prepared.images.to(self.training.device)
        return self.training.setup.prepare(self.pixels).to(self.training.device)

    def view(self, name: str, term: Term) -> Tensor:
        """Return a view of the batch that a term makes, the same in both passes.

        Parameters
        ----------
        name : str
            Name of the view.
        term : Term
            The term, whose :meth:`~twofold.nn.recipes.Term.make_views` makes it, unless it was prepared ahead.

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            Normalised images, on the device.
        """
        if name not in self._views:
            if self.prepared is not None and name in self.prepared.views:
                self._views[name] = self.prepared.views[name].to(self.training.device)
            else:
                for made, pixels in term.make_views(self).items():
                    self._views[made] = self.normalise(pixels)
        return self._views[name]

    @property
    def logits(self) -> Tensor:
        """Logits of the clean images; outliers, where a term needs them, share the pass.

        Returns
        -------
        Tensor, shape (B, C)
            Computed once in each pass.
        """
        return self._clean_pass().logits

    @property
    def outlier_logits(self) -> Tensor:
        """Logits of the outliers of this step.

        Returns
        -------
        Tensor, shape (K, C)
            Computed together with :attr:`logits`.
        """
        return self._clean_pass().outlier_logits

    @property
    def confidence(self) -> Tensor:
        """Output of the confidence branch for the clean images, shape (B,).

        Raises
        ------
        InvalidInput
            If the network has no confidence branch.
        """
        confidence = self._clean_pass().confidence
        if confidence is None:
            raise InvalidInput("this recipe needs a network with a confidence branch, built by twofold.nn.build")
        return confidence

    @property
    def computed_logits(self) -> Tensor | None:
        """Logits of the clean images, if a term of the current part has asked for them.

        Returns
        -------
        Tensor, shape (B, C), or None
            Nothing is computed.
        """
        if self._outputs is None:
            return None
        return self._outputs.logits

    def losses(self) -> Iterator[Tensor]:
        """Compute the loss of one pass in parts that share no view.

        The gradients of the parts add up to that of the whole loss, and only one part holds its activations at a time.
        Where the perturbation comes from the clean view alone, the first pass has no other.

        Yields
        ------
        Tensor
            The loss of a part, a scalar.
        """
        for terms in self._parts():
            self._outputs = None
            yield torch.stack([term.loss(self) for term in terms]).sum()
        self._outputs = None
        self.is_first_pass = False

    def _parts(self) -> list[list[Term]]:
        """Group the terms of this pass: those that share the clean view, then each of the others alone."""
        recipe = self.training.recipe
        clean = [term for term in recipe.terms if "clean" in term.views]
        others = [[term] for term in recipe.terms if "clean" not in term.views]
        sharpness = recipe.get(Sharpness)
        if self.is_first_pass and sharpness is not None and sharpness.ascent == "clean":
            others = []
        return [clean, *others] if clean else others

    def finish(self) -> None:
        """Do what was put off until the weights have moved.

        The loop calls this once, after the update.
        """
        for act in self._after_update:
            act()

    def network(self, images: Tensor) -> Tensor:
        """Run the network on a view of the batch.

        Parameters
        ----------
        images : Tensor, shape (B, 3, H, W)
            Normalised images.

        Returns
        -------
        Tensor, shape (B, C)
            Their logits.
        """
        return self.training.forward(images)

    def _clean_pass(self) -> PassOutputs:
        """Run the network on the clean images and the outliers, unless this pass has done so."""
        if self._outputs is None:
            images = self.images
            outliers = self.training.outlier_images(self)
            if outliers is not None:
                images = torch.cat([images, outliers])
            logits, confidence = self._encode(images)
            count = len(self.images)
            if confidence is not None:
                confidence = confidence[:count]
            self._outputs = PassOutputs(logits[:count], logits[count:], confidence)
        return self._outputs

    def _encode(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute logits and, where the network has a confidence branch, its output."""
        model = self.training.model
        if not isinstance(model, Network) or model.confidence is None:
            return self.network(images), None
        features = model.encode(images)
        confidence = model.confidence.of(images, features)
        return model.linear(features), confidence

    def normalise(self, pixels: npt.NDArray[np.float32]) -> Tensor:
        """Normalise a view of the batch in the same way as the clean images.

        Parameters
        ----------
        pixels : ndarray of float32, shape (B, H, W, 3)
            Pixels in [0, 1].

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            What :meth:`network` takes.
        """
        return self.training.setup.prepare.floats(pixels).to(self.training.device)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Make a value once in this step, so that both passes see the same.

        Parameters
        ----------
        name : str
            Name of the value in this step.
        make : callable
            Makes the value; called in the first pass only.

        Returns
        -------
        object
            The value.
        """
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def remember(self, name: str, make: Callable[[], R]) -> R:
        """Keep an object as long as the training lasts, and save it with the state.

        Parameters
        ----------
        name : str
            Name of the object in the training; a term lists it in ``memory``.
        make : callable
            Makes the object, which has ``state_dict`` and ``load_state_dict``; called once in a training.

        Returns
        -------
        object
            The object.
        """
        return self.training.remember(name, make)

    def after_update(self, act: Callable[[], None]) -> None:
        """Put something off until the weights have moved.

        Parameters
        ----------
        act : callable
            Called without arguments after the update.
        """
        self._after_update.append(act)

    def gather(self, tensor: Tensor) -> Tensor:
        """Concatenate the rows of all processes, one process after the other, without gradients.

        Parameters
        ----------
        tensor : Tensor, shape (B, ...)
            The rows of this process.

        Returns
        -------
        Tensor
            The rows of all.
        """
        return self.training.processes.gather(tensor)

    @property
    def _couples_processes(self) -> bool:
        """Whether pairs and ranks are formed over the batches of several processes."""
        return self.training.processes.world_size > 1 and self.training.settings.gather

    def gather_batch(self, tensor: Tensor) -> Tensor:
        """Gather the rows of the whole batch in their order, where pairs and ranks are formed over all processes.

        Gradients flow to the rows of this process only; :meth:`batch_loss` makes up for the averaging of gradients.

        Parameters
        ----------
        tensor : Tensor, shape (B, ...)
            The rows of this process.

        Returns
        -------
        Tensor
            The rows of all processes with ``Settings(gather=True)``, else ``tensor`` itself.
        """
        if not self._couples_processes:
            return tensor
        count = self.training.processes.world_size
        by_process = self.gather(tensor.detach().contiguous()).reshape(count, len(tensor), *tensor.shape[1:])
        in_order = by_process.transpose(0, 1).flatten(0, 1).clone()
        in_order[self.training.processes.rank :: count] = tensor
        return in_order

    def own_rows(self, tensor: Tensor) -> Tensor:
        """Select the rows of this process from what :meth:`gather_batch` returned.

        Parameters
        ----------
        tensor : Tensor
            The rows of the whole batch, or of this process.

        Returns
        -------
        Tensor, shape (B, ...)
            The rows of this process.
        """
        if len(tensor) == len(self.index):
            return tensor
        return self.training.processes.own_share(tensor)

    def batch_loss(self, loss: Tensor) -> Tensor:
        """Scale the gradient of a loss over the whole batch, of which each process computes the part of its own rows.

        Parameters
        ----------
        loss : Tensor
            A loss of rows that :meth:`gather_batch` returned.

        Returns
        -------
        Tensor
            The same value; its gradient is right once gradients are averaged over the processes.
        """
        if not self._couples_processes:
            return loss
        others = self.training.processes.world_size - 1
        return loss + others * (loss - loss.detach())

    def flip_coins(self) -> Tensor:
        """Draw True or False for each row with equal chances, the same in both passes.

        Returns
        -------
        Tensor of bool, shape (B,)
            One draw for each row.
        """

        def make() -> Tensor:
            rng = np.random.default_rng((self.seed, self.epoch, self.number))
            draws = rng.random(len(self.index) * self.training.processes.world_size)
            own = self.training.processes.own_share(draws)
            return torch.from_numpy(own < 0.5).to(self.training.device)

        return self.once("coins", make)
