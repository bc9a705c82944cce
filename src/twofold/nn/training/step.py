"""One batch as the loss terms of a recipe see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twofold.errors import InvalidInput
from twofold.nn.dropout import row_keys, switch_on
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.recipes import Remembered, Sharpness, Term
from twofold.nn.training.forward import ForwardOutputs
from twofold.nn.training.input import BatchRequest, PreparedBatch
from twofold.nn.training.processes import Sliceable

if TYPE_CHECKING:
    from twofold.nn.training.epochs import Training

T = TypeVar("T")
R = TypeVar("R", bound=Remembered)

DROPOUT_STREAM = 2  # keeps the seeds of dropout apart from those of other draws of a step


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
    features : Tensor, shape (B, D), optional
        Features of the clean images, where a term needs features.
    """

    logits: Tensor
    outlier_logits: Tensor
    confidence: Tensor | None
    features: Tensor | None


@dataclass(eq=False)
class TrainingStep:
    """Show one batch to the loss terms of a recipe; what two terms need in one pass is computed once.

    A sharpness-aware optimiser asks twice for the loss of a step: two passes, which see the same random draws.

    Parameters
    ----------
    training : Training
        The training to which the step belongs.
    index : ndarray of int64, shape (B,)
        Rows of the training set in the batch; with several processes or micro-batches, those of this one.
    epoch : int
        Number of the epoch, from 0.
    number : int
        Number of the step in the whole run, from 0.
    prepared : PreparedBatch, optional
        The batch, where it was prepared ahead; by default its parts are made when they are asked for.
    part : int, default=0
        Number of this micro-batch in the batch of the process, from 0.
    parts : int, default=1
        Number of micro-batches; each has every ``parts``-th row of the process.
    """

    training: Training
    index: npt.NDArray[np.int64]
    epoch: int
    number: int
    prepared: PreparedBatch | None = None
    part: int = 0
    parts: int = 1
    is_first_pass: bool = field(default=True, init=False)
    _outputs: PassOutputs | None = field(default=None, init=False)  # of the clean images in the current pass
    _runs: int = field(default=0, init=False)  # of the network in the current pass
    _views: dict[str, Tensor] = field(default_factory=dict, init=False)  # made by terms, normalised
    _cache: dict[str, Any] = field(default_factory=dict, init=False)  # values of the whole step, of any type
    _after_update: list[tuple[Callable[..., object], tuple[Tensor, ...]]] = field(default_factory=list, init=False)
    _siblings: list[TrainingStep] = field(default_factory=list, init=False)  # all micro-batches, this one too
    _is_preview: bool = field(default=False, init=False)
    _previewed: list[Tensor] = field(default_factory=list, init=False)  # what terms gathered in the preview
    _gathered: int = field(default=0, init=False)  # calls of gather_batch in the current pass

    def split(self) -> list[TrainingStep]:
        """Cut the rows of this process into the micro-batches whose gradients add up to those of the step.

        Returns
        -------
        list of TrainingStep
            As many as ``Settings(accumulate=...)`` says; for 1, the step itself.
        """
        parts = self.training.settings.accumulate
        steps = [self]
        if parts > 1:
            whole = self.prepared
            if whole is None:
                whole = self.training.batch_maker.make(BatchRequest(self.index, self.epoch, self.number))
            steps = []
            for part in range(parts):
                own = whole.part(part, parts)
                steps.append(TrainingStep(self.training, own.rows, self.epoch, self.number, own, part, parts))
        self._siblings = steps
        for step in steps:
            step._siblings = steps
        return steps

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
        """Number of the draw of mixed pairs in this step: 0, or 1 in a second pass that draws its mixing again.

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

    def augment_again(self) -> npt.NDArray[np.uint8]:
        """Augment the same rows by other random draws, for a second view of them.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The images, channels last.
        """
        return self.training.batch_maker.augment_again(self.index, self.epoch)

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
    def features(self) -> Tensor:
        """Features of the clean images: the input of the last linear product, as extraction records it.

        Returns
        -------
        Tensor, shape (B, D)
            Computed together with :attr:`logits`; unit vectors where the head takes such.

        Raises
        ------
        InvalidInput
            If no term of the recipe sets ``needs_features``.
        """
        return _check_features(self._clean_pass().features)

    def embed(self, images: Tensor) -> Tensor:
        """Run the network on a view of the batch and return its features.

        Parameters
        ----------
        images : Tensor, shape (B, 3, H, W)
            Normalised images.

        Returns
        -------
        Tensor, shape (B, D)
            Their features, as :attr:`features` has those of the clean images.

        Raises
        ------
        InvalidInput
            If no term of the recipe sets ``needs_features``.
        """
        return _check_features(self._run_network(images, self.index).features)

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

    def term_groups(self) -> list[list[Term]]:
        """Group the terms of this pass: those that share the clean view, then each of the others alone.

        The gradients of the groups add up to that of the whole loss, and only one group holds its activations at a
        time. Where the perturbation comes from the clean view alone, the first pass has no other.

        Returns
        -------
        list of list of Term
            The groups, in order.
        """
        recipe = self.training.recipe
        clean = [term for term in recipe.terms if "clean" in term.views]
        others = [[term] for term in recipe.terms if "clean" not in term.views]
        sharpness = recipe.get(Sharpness)
        if self.is_first_pass and sharpness is not None and sharpness.ascent == "clean":
            others = []
        return [clean, *others] if clean else others

    def loss(self, terms: Sequence[Term]) -> Tensor:
        """Compute the loss of one group of terms.

        Parameters
        ----------
        terms : sequence of Term
            An entry of what :meth:`term_groups` returned.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """
        self._outputs = None
        return torch.stack([term.loss(self) for term in terms]).sum()

    def end_pass(self) -> None:
        """Forget the outputs of a pass; the next pass sees the same random draws.

        The loop calls this after the last group of every pass.
        """
        self._outputs = None
        self._runs = 0
        self._gathered = 0
        self.is_first_pass = False

    def preview(self, terms: Sequence[Term]) -> None:
        """Compute what terms gather over the batch, without gradients, for the other micro-batches to use.

        Parameters
        ----------
        terms : sequence of Term
            The terms that couple rows.
        """
        is_first_pass = self.is_first_pass
        self._is_preview = True
        self._previewed.clear()
        with torch.no_grad():
            self.loss(terms)
        self.end_pass()
        self._is_preview = False
        self.is_first_pass = is_first_pass

    def finish(self) -> None:
        """Do what was put off until the weights have moved, once for the whole batch.

        The loop calls this once, after the update.
        """
        steps = self._siblings or [self]
        for number, (act, tensors) in enumerate(steps[0]._after_update):
            rows = []
            for position in range(len(tensors)):
                rows.append(self._assemble([step._after_update[number][1][position] for step in steps]))
            act(*rows)

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
        return self._run_network(images, self.index).logits

    def _run_network(self, images: Tensor, rows: npt.NDArray[np.int64]) -> ForwardOutputs:
        """Run the network, with dropout masks of the rows in this view of this step."""
        training = self.training
        self._runs += 1
        masks: AbstractContextManager[None] = nullcontext()
        if training.dropouts and training.model.training and len(rows) == len(images):
            keys = row_keys((self.seed, DROPOUT_STREAM, self.number, self._runs), rows)
            masks = switch_on(training.dropouts, keys, training.device)
        with masks:
            return training.forward(images)

    def _clean_pass(self) -> PassOutputs:
        """Run the network on the clean images and the outliers, unless this pass has done so."""
        if self._outputs is None:
            images, rows = self.images, self.index
            outliers = self.training.outlier_images(self)
            if outliers is not None:
                places = np.arange(len(outliers) * self._shares)  # in the draw of the whole batch
                images = torch.cat([images, outliers])
                rows = np.concatenate([rows, self.rows + self.own_share(places)])
            computed = self._run_network(images, rows)
            count = len(self.images)
            self._outputs = PassOutputs(
                logits=computed.logits[:count],
                outlier_logits=computed.logits[count:],
                confidence=None if computed.confidence is None else computed.confidence[:count],
                features=None if computed.features is None else computed.features[:count],
            )
        return self._outputs

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

    def after_update(self, act: Callable[..., object], *tensors: Tensor) -> None:
        """Put something off until the weights have moved; it is done once for the rows of the whole batch.

        Parameters
        ----------
        act : callable
            Called after the update with the rows of all processes and micro-batches of each tensor.
        *tensors : Tensor, shape (B, ...)
            The rows of this micro-batch, without gradients.
        """
        if not self._is_preview:
            self._after_update.append((act, tensors))

    def _assemble(self, pieces: Sequence[Tensor]) -> Tensor:
        """Put the rows of all micro-batches and processes in the order of the batch."""
        own = _interleave(pieces)
        world_size = self.training.processes.world_size
        if world_size == 1:
            return own
        everyone = self.training.processes.gather(own.contiguous())
        return _interleave(everyone.chunk(world_size))

    @property
    def _couples(self) -> bool:
        """Whether pairs and ranks are formed over several processes or micro-batches."""
        return self.training.settings.gather and self._shares > 1

    @property
    def _shares(self) -> int:
        """Number of micro-batches of all processes together."""
        return self.training.processes.world_size * self.parts

    def own_share(self, rows: Sliceable) -> Sliceable:
        """Select the rows of this micro-batch from those of the whole batch.

        Parameters
        ----------
        rows : ndarray or Tensor
            One entry for each row of the batch.

        Returns
        -------
        ndarray or Tensor
            The entries of this process and micro-batch.
        """
        processes = self.training.processes
        return rows[processes.rank + processes.world_size * self.part :: self._shares]

    @property
    def batch_images(self) -> Tensor:
        """The images among which pairs are formed.

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            Those of the whole batch with ``Settings(gather=True)``, else :attr:`images`.
        """
        if not self._couples:
            return self.images
        first = self._siblings[0]
        return first.once("batch images", lambda: self._assemble([step.images for step in self._siblings]))

    @property
    def batch_labels(self) -> Tensor:
        """The labels of :attr:`batch_images`.

        Returns
        -------
        Tensor of int64, shape (B,)
            Class numbers, on the device.
        """
        if not self._couples:
            return self.labels
        return self._assemble([step.labels for step in self._siblings])

    def gather_batch(self, tensor: Tensor) -> Tensor:
        """Gather the rows of the whole batch in their order, where ranks are formed over all of them.

        Gradients flow to the rows of this micro-batch only; :meth:`batch_loss` makes up for that. A term that calls
        this sets ``couples``.

        Parameters
        ----------
        tensor : Tensor, shape (B, ...)
            The rows of this micro-batch.

        Returns
        -------
        Tensor
            The rows of all processes and micro-batches with ``Settings(gather=True)``, else ``tensor`` itself.

        Raises
        ------
        InvalidInput
            If there are several micro-batches, and the term does not set ``couples``.
        """
        if self._is_preview:
            self._previewed.append(tensor.detach())
            return tensor
        if not self._couples:
            return tensor
        call = self._gathered
        self._gathered += 1
        pieces = []
        for step in self._siblings:
            if step is self:
                pieces.append(tensor.detach())
            elif call < len(step._previewed):
                pieces.append(step._previewed[call])
            else:
                raise InvalidInput("a loss term that calls gather_batch must set couples = True")
        in_order = self._assemble(pieces).clone()
        processes = self.training.processes
        in_order[processes.rank + processes.world_size * self.part :: self._shares] = tensor
        return in_order

    def own_rows(self, tensor: Tensor) -> Tensor:
        """Select the rows of this micro-batch from what was gathered.

        Parameters
        ----------
        tensor : Tensor
            The rows of the whole batch, or of this micro-batch.

        Returns
        -------
        Tensor, shape (B, ...)
            The rows of this micro-batch.
        """
        if len(tensor) == len(self.index):
            return tensor
        return self.own_share(tensor)

    def batch_loss(self, loss: Tensor) -> Tensor:
        """Scale the gradient of a loss over the whole batch, of which each process computes the part of its own rows.

        Parameters
        ----------
        loss : Tensor
            A loss of rows that :meth:`gather_batch` returned.

        Returns
        -------
        Tensor
            The same value; its gradient is right once gradients are averaged over processes and micro-batches.
        """
        if not self._couples:
            return loss
        others = self._shares - 1
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
            draws = rng.random(len(self.index) * self._shares)
            own = self.own_share(draws)
            return torch.from_numpy(own < 0.5).to(self.training.device)

        return self.once("coins", make)


def _check_features(features: Tensor | None) -> Tensor:
    """Return the features of a pass, or raise an error that names what the term forgot."""
    if features is None:
        raise InvalidInput("a loss term that reads features must set needs_features = True")
    return features


def _interleave(pieces: Sequence[Tensor]) -> Tensor:
    """Merge tensors of the same number of rows by taking a row of each in turn."""
    if len(pieces) == 1:
        return pieces[0]
    return torch.stack(list(pieces), dim=1).flatten(0, 1)
