"""A recipe at work: epochs, steps and updates of one network on one data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from twofold.errors import InvalidInput, RunError
from twofold.nn.data import Images
from twofold.nn.device import check_device
from twofold.nn.dropout import find_dropouts
from twofold.nn.extraction import ImageInput
from twofold.nn.extraction.prepare import explain_size_errors
from twofold.nn.ingredients.averaging import EMA, SWA, rebn
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.ingredients.sharpness import FSAM, SAM, restore_buffers
from twofold.nn.models.adapted import find_head
from twofold.nn.models.head import evaluation_mode
from twofold.nn.models.parts import Network
from twofold.nn.models.stages import freeze, frozen_batch_norms, keep_frozen_statistics
from twofold.nn.recipes import Averaged, Branch, FineTune, Frozen, Recipe, Remembered, Sharpness
from twofold.nn.training.forward import ForwardOutputs, ForwardPass, find_idle_parameters
from twofold.nn.training.input import BatchFeed, BatchMaker, BatchRequest
from twofold.nn.training.optimiser import group_parameters, make_optimiser, set_learning_rate, wrap_optimiser
from twofold.nn.training.processes import ProcessGroup
from twofold.nn.training.progress import Done, ignore_progress
from twofold.nn.training.schedule import LearningRate
from twofold.nn.training.settings import Settings, TrainingSetup
from twofold.nn.training.state import (
    SavedState,
    StateDict,
    check_finite,
    check_optimiser_state,
    check_same_tensors,
)
from twofold.nn.training.step import TrainingStep

R = TypeVar("R", bound=Remembered)


@dataclass(frozen=True)
class StepResult:
    """Hold the result of one update of the weights.

    Parameters
    ----------
    loss : float
        Loss of the first pass.
    correct : int
        Correct predictions on the clean images of the first pass; 0 where the recipe has no clean view.
    """

    loss: float
    correct: int


@dataclass(eq=False)
class Training:
    """Hold a recipe at work on a network and a data set; :func:`prepare_training` makes one.

    Parameters
    ----------
    recipe : Recipe
        What is trained for.
    model : torch.nn.Module
        The network, on its device.
    data : Images
        The training set.
    settings : Settings
        How long and how fast the network learns.
    setup : TrainingSetup
        Where and on what.
    processes : ProcessGroup
        The processes that train together.
    forward : callable
        Computes logits, confidence and features of images: the network as :class:`ForwardPass` runs it, wrapped for
        several processes and compiled where that was asked for.
    wrapped : torch.nn.Module
        The same before it was compiled.
    learning_rate : LearningRate
        The learning rate of every step.
    optimiser : torch.optim.Optimizer
        What moves the weights.
    sharpness : SAM, FSAM or None
        The sharpness-aware optimiser around it, if the recipe has one.
    average : EMA, SWA or None
        The average of weights, if the recipe has one.
    """

    recipe: Recipe
    model: nn.Module
    data: Images
    settings: Settings
    setup: TrainingSetup
    processes: ProcessGroup
    forward: Callable[[Tensor], ForwardOutputs]
    wrapped: nn.Module
    learning_rate: LearningRate
    optimiser: torch.optim.Optimizer
    sharpness: SAM | FSAM | None
    average: EMA | SWA | None
    dropouts: list[nn.Module] = field(default_factory=list, init=False)
    _memory: dict[str, Remembered] = field(default_factory=dict, init=False)
    _saved: SavedState | None = field(default=None, init=False)
    _fractals: Mixers | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.dropouts.extend(find_dropouts(self.model))

    @property
    def device(self) -> torch.device:
        """Where this process computes.

        Under ``torchrun`` each process of a machine has its own device.
        """
        return self.processes.device

    @property
    def steps_per_epoch(self) -> int:
        """Updates of the weights in an epoch.

        Rows that do not fill a last batch are left out.
        """
        return self.learning_rate.steps_per_epoch

    @property
    def steps(self) -> int:
        """Updates of the weights in the whole run.

        Those of later stages are not counted: they are trainings of their own.
        """
        return self.learning_rate.steps

    @property
    def classes(self) -> int:
        """Number of classes in the training set.

        A network may have one more output, the reservation.
        """
        return int(self.data.labels.max()) + 1

    @property
    def kept_model(self) -> nn.Module:
        """The network that is kept.

        It is the average of weights once that holds something, and the trained network before and without one.
        """
        if self.average is None or self.average.updates == 0:
            return self.model
        return self.average.model

    @property
    def mixers(self) -> Mixers:
        """Pictures for PixMix.

        They are those of the setup, or fractals, which are drawn when they are first needed.
        """
        if self.setup.mixers is not None:
            return self.setup.mixers
        if self._fractals is None:
            side = self.settings.input_side or max(self.data.shape)
            self._fractals = Mixers.fractals(size=round(side * 9 / 8), seed=self.settings.seed)
        return self._fractals

    @cached_property
    def batch_maker(self) -> BatchMaker:
        """What reads, augments and mixes the images of a batch.

        Pictures for PixMix are drawn first where a term mixes them in.
        """
        uses_mixers = any(term.uses_mixers for term in self.recipe.terms)
        return BatchMaker(
            data=self.data,
            settings=self.settings,
            prepare=self.setup.prepare,
            terms=self.recipe.terms,
            mixers=self.mixers if uses_mixers else None,
            outliers=self.setup.outliers,
            outliers_per_image=self.recipe.outliers_per_image,
            rank=self.processes.rank,
            world_size=self.processes.world_size,
            on_bad=self.setup.on_bad,
        )

    @cached_property
    def feed(self) -> BatchFeed:
        """What hands out prepared batches.

        Its processes, if there are any, start with the first batch and end with the training.
        """
        return BatchFeed(self.batch_maker, self.setup.workers)

    def _steps(self, requests: Sequence[BatchRequest]) -> Iterator[TrainingStep]:
        """Make the steps of some batches, prepared ahead where that is asked for."""
        if self.setup.workers == 0 and self.setup.on_bad == "stop":
            for request in requests:
                yield TrainingStep(self, request.rows, request.epoch, request.number)
            return
        batches = self.feed.batches(requests)
        for request, batch in zip(requests, batches, strict=True):
            yield TrainingStep(self, batch.rows, request.epoch, request.number, batch)

    def remember(self, name: str, make: Callable[[], R]) -> R:
        """Return what a loss term keeps from step to step; it is made, or restored, at its first use.

        Parameters
        ----------
        name : str
            Name of the object in this training.
        make : callable
            Makes the object.

        Returns
        -------
        object
            The object.

        Raises
        ------
        RunError
            If the saved state does not fit it.
        """
        if name not in self._memory:
            made = make()
            if self._saved is not None and name in self._saved.state["memory"]:
                try:
                    made.load_state_dict(self._saved.state["memory"][name])
                except (InvalidInput, LookupError, TypeError, AttributeError, RuntimeError) as error:
                    raise self._saved.refuse(f"{name}: {error}") from error
            self._memory[name] = made
        return self._memory[name]  # type: ignore[return-value]

    def outlier_images(self, step: TrainingStep) -> Tensor | None:
        """Draw the outliers of a step by its number.

        Parameters
        ----------
        step : TrainingStep
            The step.

        Returns
        -------
        Tensor, shape (K, 3, H, W), or None
            Normalised outliers; None if no term needs them.
        """
        if not self.recipe.outliers_per_image:
            return None

        def make() -> Tensor | None:
            if step.prepared is not None:
                images = step.prepared.outliers
            else:
                images = self.batch_maker.outlier_images(len(step.index), step.number)
            return None if images is None else images.to(self.device)

        return step.once("outliers", make)

    def run_epoch(self, epoch: int, done: Done = ignore_progress) -> dict[str, float]:
        """Train for one pass over the training set.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        done : callable, optional
            Called with ``loss`` and ``step`` after every step.

        Returns
        -------
        dict
            ``loss`` and ``train_accuracy``, means over the steps and processes.

        Raises
        ------
        RunError
            If the loss is not finite, the batch does not fit in memory, or the network cannot be compiled.
        """
        if epoch == 0:
            for term in self.recipe.terms:
                term.start(self)
        self.set_training_mode()
        batch = self.settings.batch
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.data))
        requests = []
        for i in range(self.steps_per_epoch):
            rows = self.processes.own_share(order[i * batch : (i + 1) * batch])
            requests.append(BatchRequest(rows, epoch, number=epoch * self.steps_per_epoch + i))
        total_loss, total_correct = 0.0, 0
        for step in self._steps(requests):
            result = self._run_step(step)
            total_loss += result.loss
            total_correct += result.correct
            done({"loss": result.loss, "step": step.number + 1})
        self._update_swa(epoch)
        seen = self.steps_per_epoch * batch // self.processes.world_size
        means = [[total_loss / self.steps_per_epoch, total_correct / seen]]
        gathered = self.processes.gather(torch.tensor(means, dtype=torch.float64, device=self.device))
        loss, accuracy = gathered.mean(dim=0).tolist()
        return {"loss": loss, "train_accuracy": accuracy}

    def set_training_mode(self) -> None:
        """Set the network to training mode, but for frozen batch norms.

        A recipe that trains a confidence branch alone leaves the network in evaluation mode.
        """
        self.model.train(self.recipe.get(Frozen) is None)
        keep_frozen_statistics(self.model)

    def _run_step(self, step: TrainingStep) -> StepResult:
        """Take one step at its learning rate, with its own random numbers, and update what depends on it."""
        set_learning_rate(self.optimiser, self.learning_rate.at(step.number))
        explained = _explain_memory_errors(self.settings.batch)
        with torch.random.fork_rng(), explained, explain_size_errors(lambda: step.pixels.shape[1:3]):
            torch.manual_seed(_derive_seed(self.settings.seed, step.number, self.processes.rank))  # of networks' draws
            result = self.update(step)
        step.finish()
        if isinstance(self.average, EMA):
            self.average.update(self.model)
        return result

    def _update_swa(self, epoch: int) -> None:
        """Add the weights at the end of an epoch to the plain average, once it has started."""
        part = self.recipe.get(Averaged)
        if isinstance(self.average, SWA) and part is not None and epoch + 1 > part.start * self.settings.epochs:
            self.average.update(self.model)

    def update(self, step: TrainingStep) -> StepResult:
        """Move the weights by the gradient of one batch, at the present learning rate.

        Parameters
        ----------
        step : TrainingStep
            The batch.

        Returns
        -------
        StepResult
            Loss and correct predictions of the first pass.

        Raises
        ------
        RunError
            If the loss is not finite, or the network cannot be compiled.
        """
        micro_batches = step.split()
        correct = 0

        def compute_gradients() -> Tensor:
            nonlocal correct
            self._preview(micro_batches)
            total = torch.zeros((), device=self.device)
            for one in micro_batches:
                is_last = one is micro_batches[-1]
                is_first_pass = one.is_first_pass
                result = self._run_micro_batch(one, is_last)
                total += result.loss / len(micro_batches)
                if is_first_pass:
                    correct += result.correct
            if self.settings.clip_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
            return total

        with _explain_compile_errors():
            if self.sharpness is not None:
                loss = self.sharpness.step(compute_gradients)
            else:
                self.optimiser.zero_grad()
                loss = compute_gradients()
                self.optimiser.step()
        return StepResult(float(loss), correct)

    def _preview(self, micro_batches: Sequence[TrainingStep]) -> None:
        """Compute what terms gather over the batch, where it is cut into micro-batches."""
        terms = [term for term in self.recipe.terms if term.couples]
        if not terms or not self.settings.gather or len(micro_batches) == 1:
            return
        with restore_buffers(self.model), self.processes.autocast():
            for one in micro_batches:
                one.preview(terms)

    def _run_micro_batch(self, step: TrainingStep, is_last: bool) -> StepResult:
        """Add the gradients of a micro-batch; those of the last are reduced over the processes, with all before."""
        loss = 0.0
        correct = 0
        groups = step.term_groups()
        for terms in groups:
            reduces = is_last and terms is groups[-1]
            with nullcontext() if reduces else self.processes.hold_gradients(self.wrapped):
                with self.processes.autocast():
                    part = step.loss(terms)
                if step.computed_logits is not None:
                    correct = self._count_correct(step.computed_logits, step.labels)
                value = _check_loss(part, step.number)
                (part / step.parts).backward()  # type: ignore[no-untyped-call]
            loss += value
        step.end_pass()
        return StepResult(loss, correct)

    def _count_correct(self, logits: Tensor, labels: Tensor) -> int:
        predictions = logits.detach()[:, : self.classes].argmax(dim=1)
        return int((predictions == labels).sum())

    @contextmanager
    def kept_on_device(self) -> Iterator[nn.Module]:
        """Move the network that is kept to the device of the training while open.

        Yields
        ------
        torch.nn.Module
            :attr:`kept_model`; an average with a device of its own returns to it afterwards.
        """
        kept = self.kept_model
        kept.to(self.device)
        try:
            yield kept
        finally:
            if kept is not self.model and self.setup.ema_device is not None:
                kept.to(self.setup.ema_device)

    def renew_statistics(self) -> None:
        """Re-estimate the batch-norm statistics of the kept network.

        They are the exact moments over all training images, augmented as in training.
        """
        images = (step.images for step in self._whole_set())
        with self.kept_on_device() as kept:
            rebn(kept, images, skip=frozen_batch_norms(self.model))

    def class_means(self, embed: Callable[[Tensor], Tensor], classes: int) -> Tensor:
        """Compute the mean of what a network in evaluation mode returns for the training images of each class.

        Parameters
        ----------
        embed : callable
            Computes a vector for each of a batch of normalised images, of shape (N, D).
        classes : int
            Number of classes.

        Returns
        -------
        Tensor, shape (classes, D)
            The means; zeros for a class without images. Images are augmented as in training.
        """
        counts = torch.zeros(classes, device=self.device)
        sums: Tensor | None = None
        with evaluation_mode(self.model), torch.no_grad():
            for step in self._whole_set():
                vectors = embed(step.images).float()
                if sums is None:
                    sums = torch.zeros(classes, vectors.shape[1], device=self.device)
                sums.index_add_(0, step.labels, vectors)
                counts.index_add_(0, step.labels, torch.ones_like(step.labels, dtype=counts.dtype))
        assert sums is not None  # a training set has at least one batch
        return sums / counts.clamp(min=1)[:, None]

    def _whole_set(self) -> Iterator[TrainingStep]:
        """Go once over the training set; a last batch of a single row, which batch norm cannot take, is left out."""
        rows = np.arange(len(self.data))
        requests = []
        for start in range(0, len(rows), self.settings.batch):
            some = rows[start : start + self.settings.batch]
            if len(some) > 1:
                requests.append(BatchRequest(some, self.settings.epochs, self.steps, is_clean=True))
        yield from self._steps(requests)

    def state(self) -> StateDict:
        """Collect all that training resumes from.

        Returns
        -------
        dict
            ``model``, ``optimiser``, ``average`` and ``memory``, what loss terms remember.
        """
        optimiser = self.sharpness or self.optimiser
        return {
            "model": self.model.state_dict(),
            "optimiser": optimiser.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "memory": {name: remembered.state_dict() for name, remembered in self._memory.items()},
        }

    def restore(self, saved: SavedState) -> None:
        """Resume from a saved state.

        Parameters
        ----------
        saved : SavedState
            What :func:`~twofold.nn.training.state.read_state` returned.

        Raises
        ------
        RunError
            If it does not fit this training: other names, shapes or types of tensors, another optimiser, counters out
            of range, or something missing.
        """
        try:
            self._check_state(saved.state)
            self.model.load_state_dict(saved.state["model"])
            if self.sharpness is None:
                self.optimiser.load_state_dict(saved.state["optimiser"])
            else:
                self.sharpness.load_state_dict(saved.state["optimiser"])
            if self.average is not None:
                self.average.load_state_dict(saved.state["average"])
        except InvalidInput as error:
            raise saved.refuse(str(error)) from error
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise saved.refuse() from error
        self._saved = saved

    def _check_state(self, state: StateDict) -> None:
        """Raise InvalidInput, or what PyTorch raises, if a state does not fit this training."""
        check_same_tensors(state["model"], self.model.state_dict())
        optimiser = state["optimiser"]
        if self.sharpness is not None:
            optimiser = optimiser["optimizer"]
        check_optimiser_state(optimiser, self.optimiser)
        check_finite(state["optimiser"], "optimiser")
        if self.average is not None:
            check_same_tensors(state["average"]["model"], self.average.model.state_dict())
            updates = state["average"]["updates"]
            if type(updates) is not int or not 0 <= updates <= self.steps:
                raise InvalidInput(f"the average must have 0..{self.steps} updates, got {updates!r:.40}")
        for name in self.recipe.memory:
            if not isinstance(state["memory"][name], Mapping):
                raise InvalidInput(f"{name} must be a mapping")


def prepare_training(
    recipe: Recipe, model: nn.Module, data: Images, settings: Settings, setup: TrainingSetup | None = None
) -> Training:
    """Check that everything fits together, move the network to its device and make the optimiser.

    Parameters
    ----------
    recipe : Recipe
        What is trained for.
    model : torch.nn.Module
        The network; it is changed.
    data : Images
        The training set.
    settings : Settings
        How long and how fast the network learns.
    setup : TrainingSetup, optional
        Where and on what; by default one CPU process in float32.

    Returns
    -------
    Training
        Ready for its first epoch.

    Raises
    ------
    InvalidInput
        If the batch is larger than the training set or cannot be shared equally by the processes, or the recipe needs
        outliers or a confidence branch that are not there.
    MissingExtra
        If accelerate is needed and not installed.
    """
    setup = setup or TrainingSetup()
    image_input = ImageInput(settings.resize, settings.crop, setup.prepare)
    if "resized_crop" not in settings.augment:
        data = image_input.fit(data)
    if setup.outliers is not None:
        setup = replace(setup, outliers=image_input.fit(setup.outliers))
    settings = settings.for_rows(len(data))
    processes = ProcessGroup.start(check_device(setup.device), setup.precision)
    _check_batch(settings, len(data), processes.world_size)
    if recipe.outliers_per_image and setup.outliers is None:
        raise InvalidInput("this recipe needs outliers: images of classes that the network does not know")
    if setup.sync_bn:
        check_sync_bn(processes.device)
        if processes.world_size > 1:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]  # in place
    learner = _learning_module(recipe, model)  # a confidence branch may get an encoder of its own
    model.to(processes.device)
    if setup.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    lr = settings.lr
    fine_tune = recipe.get(FineTune)
    if fine_tune is not None:
        lr *= fine_tune.lr
    learning_rate = LearningRate(settings, lr, len(data) // settings.batch, recipe.get(Averaged))
    head = _find_head(model, data, settings)
    freeze(model, settings.freeze, head=head)
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    if learner is model:
        optimiser = make_optimiser(settings, group_parameters(settings, model, lr, head=head), lr)
    else:
        optimiser = make_optimiser(settings, parameters, lr)
    sharpness = None
    part = recipe.get(Sharpness)
    if part is not None:
        sharpness = wrap_optimiser(part, optimiser, model)
    average = _make_average(recipe.get(Averaged), model, learning_rate.steps)
    if average is not None and setup.ema_device is not None:
        average.model.to(check_device(setup.ema_device))
    forward = ForwardPass(
        model,
        with_confidence=any(term.needs_confidence for term in recipe.terms),
        with_features=any(term.needs_features for term in recipe.terms),
        channels_last=setup.channels_last,
    )
    training = Training(
        recipe=recipe,
        model=model,
        data=data,
        settings=settings,
        setup=setup,
        processes=processes,
        forward=forward,
        wrapped=forward,
        learning_rate=learning_rate,
        optimiser=optimiser,
        sharpness=sharpness,
        average=average,
    )
    if processes.world_size > 1:
        few = TrainingStep(training, np.arange(min(2, len(data))), 0, 0)
        idle = find_idle_parameters(forward, few.images, parameters)
        training.wrapped = training.forward = processes.wrap(forward, idle)
    if setup.compiled:  # dropout written as a function call draws what it draws otherwise
        training.forward = torch.compile(training.wrapped, options={"fallback_random": True})
    return training


def check_sync_bn(device: torch.device) -> None:
    """Check that batch norm can be synchronised over processes on a device.

    Parameters
    ----------
    device : torch.device
        Where the network runs.

    Raises
    ------
    InvalidInput
        If it is not a CUDA device.
    """
    if device.type != "cuda":
        raise InvalidInput(f"--sync-bn needs CUDA, and the device is {device}; leave it out, or train on GPUs")


def _check_batch(settings: Settings, rows: int, world_size: int) -> None:
    """Raise InvalidInput if a batch cannot be cut into equal micro-batches, or is larger than the training set."""
    batch = settings.batch
    if batch % world_size:
        raise InvalidInput(f"batch={batch} cannot be shared equally by {world_size} processes")
    if batch % (world_size * settings.accumulate):
        raise InvalidInput(
            f"batch={batch} cannot be cut into accumulate={settings.accumulate} equal micro-batches for each of "
            f"{world_size} processes"
        )
    if batch > rows:
        raise InvalidInput(f"batch={batch} is larger than the training set of {rows} rows")


def _find_head(model: nn.Module, data: Images, settings: Settings) -> tuple[str, ...]:
    """Find the head of a network, where a setting asks for it and the network does not know its own."""
    is_needed = settings.layer_decay is not None or settings.head_lr is not None or settings.freeze != "none"
    if not is_needed or isinstance(model, Network):
        return ()
    return (find_head(model, size=settings.input_side or min(data.shape)),)


def _learning_module(recipe: Recipe, model: nn.Module) -> nn.Module:
    """Return the module whose parameters learn: the network, or its confidence branch alone."""
    branch = recipe.get(Branch)
    if branch is not None and branch.encoder and isinstance(model, Network):
        _give_branch_an_encoder(model)
    if recipe.get(Frozen) is None:
        return model
    confidence = getattr(model, "confidence", None)
    if not isinstance(confidence, nn.Module):
        raise InvalidInput("this recipe trains a confidence branch alone, and the network has none")
    return confidence


def _give_branch_an_encoder(model: Network) -> None:
    """Copy the encoder for the confidence branch, unless it was loaded with a checkpoint."""
    if model.confidence is not None and model.confidence.encoder is None:
        model.confidence.adopt(model)


def _make_average(part: Averaged | None, model: nn.Module, steps: int) -> EMA | SWA | None:
    if part is None:
        return None
    if part.kind == "ema":
        return EMA.of_run(model, steps, decay=part.decay, ramp=part.ramp, released=part.released)
    return SWA(model)


def _derive_seed(*numbers: int) -> int:
    """Mix numbers into a seed that torch takes."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _check_loss(loss: Tensor, step: int) -> float:
    """Return the value of a loss, or raise an error if it is not finite."""
    value = float(loss.detach())
    if not math.isfinite(value):
        raise RunError(
            f"the loss is {value} at step {step + 1}; the last good state is that of the epoch before. Lower the "
            "learning rate, clip gradients, or look at the data"
        )
    return value


@contextmanager
def _explain_memory_errors(batch: int) -> Iterator[None]:
    """Turn the many errors of a batch that does not fit in memory into one clear line."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        raise RunError(
            f"a batch of {batch} does not fit in memory; choose a smaller one, the last epoch is kept"
        ) from error


@contextmanager
def _explain_compile_errors() -> Iterator[None]:
    """Turn the errors of PyTorch's compiler, such as a missing C++ compiler, into one clear line."""
    try:
        yield
    except RuntimeError as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        reason = str(error).strip().splitlines()[0]
        raise RunError(f"PyTorch cannot compile this network ({reason}); train without it") from error
