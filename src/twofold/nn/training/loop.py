"""The training loop: plain, seeded, and resumable to the last bit.

One file, ``state.safetensors``, is written whole after every epoch: weights, optimiser, average and what the recipe
remembers. The random numbers of a step come from its number. A training that was killed at any step resumes from the
last epoch, and ends with the weights of a run that was never interrupted on the same device. The kept weights are
``weights.safetensors``, the history ``metrics.csv``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from twofold import metrics
from twofold._math import log_odds
from twofold.errors import InvalidInput, RunError, UndefinedMetric
from twofold.nn.data import Images
from twofold.nn.device import check_device
from twofold.nn.extraction import Prepare
from twofold.nn.ingredients.averaging import EMA, SWA, rebn
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.ingredients.sharpness import FSAM, SAM
from twofold.nn.models.parts import Network
from twofold.nn.recipes import (
    Averaged,
    Branch,
    FineTune,
    Frozen,
    ReBN,
    Recipe,
    Remembered,
    Sharpness,
    Stage,
    Stages,
)
from twofold.nn.rows import ImageRows
from twofold.nn.training.optimiser import make_optimiser, wrap_optimiser
from twofold.nn.training.processes import ProcessGroup
from twofold.nn.training.progress import Done, ignore_progress
from twofold.nn.training.schedule import LearningRate
from twofold.nn.training.settings import Precision, Settings, TrainingSetup
from twofold.nn.training.state import (
    HISTORY,
    STATE,
    WEIGHTS,
    EpochValues,
    Progress,
    SavedState,
    StateDict,
    TrainingIdentity,
    check_finite,
    check_optimiser_state,
    check_same_tensors,
    load_weights,
    make_folder,
    read_state,
    write_history,
    write_state,
    write_weights,
)
from twofold.nn.training.step import TrainingStep

R = TypeVar("R", bound=Remembered)

EVALUATION_BATCH = 512  # rows in a pass over validation data


@dataclass(frozen=True)
class Trained:
    """Hold the result of a training.

    Parameters
    ----------
    path : Path
        File of the kept weights.
    model : torch.nn.Module
        The network that holds them.
    history : tuple of mapping from str to float
        The values of each epoch.
    window : float
        Effective number of weights that were averaged; 1 without an average.
    """

    path: Path
    model: nn.Module
    history: tuple[EpochValues, ...]
    window: float


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
        Computes logits of images: the network, or its compiled form.
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
    forward: Callable[[Tensor], Tensor]
    learning_rate: LearningRate
    optimiser: torch.optim.Optimizer
    sharpness: SAM | FSAM | None
    average: EMA | SWA | None
    _memory: dict[str, Remembered] = field(default_factory=dict, init=False)
    _saved: SavedState | None = field(default=None, init=False)
    _fractals: Mixers | None = field(default=None, init=False)

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self.processes.device

    @property
    def steps_per_epoch(self) -> int:
        """Updates of the weights in an epoch."""
        return self.learning_rate.steps_per_epoch

    @property
    def steps(self) -> int:
        """Updates of the weights in the whole run."""
        return self.learning_rate.steps

    @property
    def classes(self) -> int:
        """Number of classes in the training set."""
        return int(self.data.labels.max()) + 1

    @property
    def kept_model(self) -> nn.Module:
        """The network that is kept: the average, where it holds something, else the trained one."""
        if self.average is None or self.average.updates == 0:
            return self.model
        return self.average.model

    @property
    def mixers(self) -> Mixers:
        """Pictures for PixMix: those of the setup, or fractals, which are drawn when they are first needed."""
        if self.setup.mixers is not None:
            return self.setup.mixers
        if self._fractals is None:
            side = max(self.data.shape)
            self._fractals = Mixers.fractals(size=round(side * 9 / 8), seed=self.settings.seed)
        return self._fractals

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
        outliers = self.setup.outliers
        per_image = self.recipe.outliers_per_image
        if not per_image or outliers is None:
            return None
        rng = np.random.default_rng((self.settings.seed, 1, step.number))
        count = per_image * len(step.index) * self.processes.world_size
        rows = self.processes.own_share(rng.choice(len(outliers), count, replace=True))
        return step.once("outliers", lambda: self.setup.prepare(outliers.read(rows)).to(self.device))

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
        self.model.train(self.recipe.get(Frozen) is None)
        batch = self.settings.batch
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.data))
        total_loss, total_correct = 0.0, 0
        for i in range(self.steps_per_epoch):
            number = epoch * self.steps_per_epoch + i
            rows = self.processes.own_share(order[i * batch : (i + 1) * batch])
            step = TrainingStep(self, rows, epoch, number)
            result = self._run_step(step)
            total_loss += result.loss
            total_correct += result.correct
            done({"loss": result.loss, "step": number + 1})
        self._update_swa(epoch)
        seen = self.steps_per_epoch * batch // self.processes.world_size
        means = [[total_loss / self.steps_per_epoch, total_correct / seen]]
        gathered = self.processes.gather(torch.tensor(means, dtype=torch.float64, device=self.device))
        loss, accuracy = gathered.mean(dim=0).tolist()
        return {"loss": loss, "train_accuracy": accuracy}

    def _run_step(self, step: TrainingStep) -> StepResult:
        """Take one step at its learning rate, with random numbers of its own, and update what depends on it."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.learning_rate.at(step.number)
        with torch.random.fork_rng(), _explain_memory_errors(self.settings.batch):
            torch.manual_seed(_derive_seed(self.settings.seed, step.number, self.processes.rank))  # of dropout
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
        correct = 0

        def compute_gradients() -> Tensor:
            nonlocal correct
            is_first_pass = step.is_first_pass
            total = torch.zeros((), device=self.device)
            parts = step.losses()
            while True:
                with self.processes.autocast():
                    loss = next(parts, None)
                if loss is None:
                    break
                if is_first_pass and step.computed_logits is not None:
                    correct = self._count_correct(step.computed_logits, step.labels)
                _check_loss(loss, step.number)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
            self._average_gradients()
            if self.settings.clip is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
            return total

        with _explain_compile_errors():
            if self.sharpness is not None:
                loss = self.sharpness.step(compute_gradients)
            else:
                self.optimiser.zero_grad()
                loss = compute_gradients()
                self.optimiser.step()
        return StepResult(float(loss), correct)

    def _count_correct(self, logits: Tensor, labels: Tensor) -> int:
        predictions = logits.detach()[:, : self.classes].argmax(dim=1)
        return int((predictions == labels).sum())

    def _average_gradients(self) -> None:
        """Replace the gradients of this process by their means over all processes."""
        if self.processes.world_size == 1:
            return
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad = self.processes.average(parameter.grad)

    def renew_statistics(self) -> None:
        """Estimate batch-norm statistics of the kept network over the training images, augmented as in training."""

        def batches() -> Iterator[Tensor]:
            rows = np.arange(len(self.data))
            for start in range(0, len(rows), self.settings.batch):
                some = rows[start : start + self.settings.batch]
                if len(some) > 1:
                    yield TrainingStep(self, some, self.settings.epochs, self.steps).images

        rebn(self.kept_model, batches())

    def state(self) -> StateDict:
        """Collect all that training resumes from.

        Returns
        -------
        dict
            ``model``, ``optimiser``, ``average`` and ``memory``, what loss terms remember.
        """
        optimiser = self.optimiser if self.sharpness is None else self.sharpness
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
        optimiser = state["optimiser"] if self.sharpness is None else state["optimiser"]["optimizer"]
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
    processes = ProcessGroup.start(check_device(setup.device), setup.precision)
    _check_batch(settings.batch, len(data), processes.world_size)
    if recipe.outliers_per_image and setup.outliers is None:
        raise InvalidInput("this recipe needs outliers: images of classes that the network does not know")
    model.to(processes.device)
    forward: Callable[[Tensor], Tensor] = model
    if setup.compiled:
        forward = torch.compile(model, options={"fallback_random": True})  # dropout draws what it draws otherwise
    learner = _learning_module(recipe, model)
    model.to(processes.device)  # a confidence branch may have got an encoder of its own
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    fine_tune = recipe.get(FineTune)
    lr = settings.lr if fine_tune is None else settings.lr * fine_tune.lr
    learning_rate = LearningRate(settings, lr, len(data) // settings.batch, recipe.get(Averaged))
    optimiser = make_optimiser(settings, parameters, lr)
    sharpness = recipe.get(Sharpness)
    return Training(
        recipe=recipe,
        model=model,
        data=data,
        settings=settings,
        setup=setup,
        processes=processes,
        forward=forward,
        learning_rate=learning_rate,
        optimiser=optimiser,
        sharpness=None if sharpness is None else wrap_optimiser(sharpness, optimiser, model),
        average=_make_average(recipe.get(Averaged), model, learning_rate.steps),
    )


def _check_batch(batch: int, rows: int, world_size: int) -> None:
    if batch % world_size:
        raise InvalidInput(f"batch={batch} cannot be shared equally by {world_size} processes")
    if batch > rows:
        raise InvalidInput(f"batch={batch} is larger than the training set of {rows} rows")


def _learning_module(recipe: Recipe, model: nn.Module) -> nn.Module:
    """Return the module whose parameters learn: the network, or its confidence branch alone."""
    branch = recipe.get(Branch)
    if branch is not None and branch.encoder and isinstance(model, Network):
        _give_branch_an_encoder(model)
    learner = model if recipe.get(Frozen) is None else getattr(model, "confidence", None)
    if not isinstance(learner, nn.Module):
        raise InvalidInput("this recipe trains a confidence branch alone, and the network has none")
    return learner


def _give_branch_an_encoder(model: Network) -> None:
    """Copy the encoder for the confidence branch, unless it was loaded with a checkpoint."""
    if model.confidence is not None and model.confidence.encoder is None:
        model.confidence.adopt(model)


def _make_average(part: Averaged | None, model: nn.Module, steps: int) -> EMA | SWA | None:
    if part is None:
        return None
    if part.kind == "ema":
        return EMA.of_run(model, steps, released=part.released)
    return SWA(model)


def _derive_seed(*numbers: int) -> int:
    """Mix numbers into a seed that torch takes."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def _check_loss(loss: Tensor, step: int) -> None:
    if not torch.isfinite(loss):
        raise RunError(
            f"the loss is {float(loss.detach())} at step {step + 1}; the last good state is that of the epoch "
            "before. Lower the learning rate, clip gradients, or look at the data"
        )


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


def train(
    recipe: Recipe,
    model: nn.Module,
    data: Images,
    out: str | Path,
    *,
    val: ImageRows | None = None,
    settings: Settings | None = None,
    prepare: Prepare | None = None,
    mixers: Mixers | None = None,
    outliers: ImageRows | None = None,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    compiled: bool = False,
    trained: bool = False,
    done: Done = ignore_progress,
) -> Trained:
    """Train a network by a recipe and keep weights, state and history in a folder.

    Call it again with the same arguments to resume an interrupted training: it ends with the same weights, to the bit,
    on the same device.

    Parameters
    ----------
    recipe : Recipe
        What to train for, such as ``recipe("sure_plus")``.
    model : torch.nn.Module
        The network; it is changed. Build it with ``recipe.options``.
    data : Images
        Training images with labels of the network's classes, as :func:`twofold.nn.data.open` returns them.
    out : str or Path
        Folder of ``weights.safetensors``, ``state.safetensors`` and ``metrics.csv``.
    val : ImageRows, optional
        Validation images, evaluated after every epoch. Needed where ``settings.keep`` is not ``"last"``.
    settings : Settings, optional
        How long and how fast the network learns; by default ``Settings()``, those of SURE+ on CIFAR.
    prepare : Prepare, optional
        Normalisation of the images; by default they are only divided by 255.
    mixers : Mixers, optional
        Pictures for PixMix; by default fractals are drawn.
    outliers : ImageRows, optional
        Images of no known class, for recipes that learn from them.
    device : str or torch.device, default="cpu"
        Where the network runs.
    precision : {"float32", "bf16"}, default="float32"
        Precision of forward passes; weights stay in float32.
    compiled : bool, default=False
        Compile the network first, which takes about a minute. Steps are then faster and differ by rounding alone. A
        network with a confidence branch runs as it is.
    trained : bool, default=False
        Whether the network has its weights already, so that only the later stages of a recipe are run.
    done : callable, optional
        Called with the loss and number of every step, and with the values of every epoch.

    Returns
    -------
    Trained
        The network in evaluation mode with the kept weights, their file and the history.

    Raises
    ------
    InvalidInput
        If a training row has no label, or the recipe, settings, data and network do not fit together.
    RunError
        If the folder holds another training, cannot be written to or is damaged; if the loss is not finite; or if a
        batch does not fit in memory.

    Notes
    -----
    A recipe of several stages keeps each in a folder of its own. Under ``accelerate launch`` or ``torchrun`` each
    process takes its share of every batch and gradients are averaged. Batch norm then uses the statistics of a
    process's own share (those of the first process are kept). Losses that couple samples (mixed pairs, CRL pairs,
    ranks) act within a share, or over the whole batch with ``Settings(gather=True)``.
    """
    settings = settings or Settings()
    setup = TrainingSetup(device, precision, compiled, prepare or Prepare(), mixers, outliers)
    folder = Path(out)
    make_folder(folder)
    if np.asarray(data.labels).min() < 0:
        raise InvalidInput("every training row needs a label; rows labelled -1 are outliers, pass them as outliers=")
    identity = TrainingIdentity(str(recipe), asdict(settings), len(data))
    if recipe.get(Stages) is not None:
        results = list(_train_stages(recipe, model, data, folder, val, settings, setup, trained, done))
        write_weights(folder / WEIGHTS, model, identity)
        history = [values for result in results for values in result.history]
        return Trained(folder / WEIGHTS, model, tuple(history), 1.0)
    training = prepare_training(recipe, model, data, settings, setup)
    if recipe.get(ReBN) is not None:
        training.renew_statistics()
        write_weights(folder / WEIGHTS, model, identity)
        return Trained(folder / WEIGHTS, model.eval(), (), 1.0)
    progress = _run_epochs(training, folder, identity, val, done)
    load_weights(model, folder / WEIGHTS)
    return Trained(folder / WEIGHTS, model.eval(), progress.history, _averaging_window(training.average))


def _train_stages(
    recipe: Recipe,
    model: nn.Module,
    data: Images,
    folder: Path,
    val: ImageRows | None,
    settings: Settings,
    setup: TrainingSetup,
    trained: bool,
    done: Done,
) -> Iterator[Trained]:
    """Train in stages, each from the weights that the one before left in the network."""
    stages: list[tuple[str, Recipe, Settings]] = []
    if not trained:
        stages.append(("classifier", recipe - Stages, settings))
    for stage in recipe.later_stages:
        stages.append((stage.name, stage.recipe, _stage_settings(stage, settings)))
    for name, stage_recipe, stage_settings in stages:
        yield train(
            stage_recipe,
            model,
            data,
            folder / name,
            val=val,
            settings=stage_settings,
            prepare=setup.prepare,
            mixers=setup.mixers,
            outliers=setup.outliers,
            device=setup.device,
            precision=setup.precision,
            compiled=setup.compiled,
            done=done,
        )


def _stage_settings(stage: Stage, settings: Settings) -> Settings:
    """Derive the settings of a later stage: Adam at its own rate, for its share of the epochs."""
    return replace(
        settings,
        epochs=stage.count_epochs(settings.epochs),
        optimiser="adam",
        lr=stage.lr,
        weight_decay=0.0,
        warm_up=0,
        keep="last",
    )


def _run_epochs(
    training: Training, folder: Path, identity: TrainingIdentity, val: ImageRows | None, done: Done
) -> Progress:
    """Run the epochs that are missing, and write the files after each."""
    settings = training.settings
    progress = Progress()
    saved = read_state(folder / STATE, identity)
    if saved is not None:
        training.restore(saved)
        progress = saved.progress
    average = training.recipe.get(Averaged)
    for epoch in range(progress.epoch, settings.epochs):
        is_last = epoch + 1 == settings.epochs
        values = training.run_epoch(epoch, done)
        if average is not None and average.rebn and (is_last or settings.keep != "last"):
            training.renew_statistics()
        if val is not None:
            values |= validate(training.kept_model, val, training.setup.prepare, training.device)
        quality = _epoch_quality(values, settings.keep)
        is_kept = is_last if settings.keep == "last" else quality > progress.best
        last_rate = training.learning_rate.at((epoch + 1) * training.steps_per_epoch - 1)
        row: EpochValues = {"epoch": epoch + 1, "lr": last_rate, **values}
        best = max(progress.best, quality) if is_kept else progress.best
        progress = Progress(epoch + 1, (*progress.history, row), best)
        if training.processes.is_main_process:
            if is_kept:
                write_weights(folder / WEIGHTS, training.kept_model, identity)
            write_state(folder / STATE, training.state(), identity, progress)
            write_history(folder / HISTORY, progress.history)
        training.processes.wait()
        done(row)
    return progress


def _averaging_window(average: EMA | SWA | None) -> float:
    """Compute the effective number of weights in an average."""
    if average is None:
        return 1.0
    if isinstance(average, EMA):
        return average.window(average.updates)
    return float(average.updates)


def validate(
    model: nn.Module, val: ImageRows, prepare: Prepare, device: str | torch.device = "cpu"
) -> dict[str, float]:
    """Evaluate a network and the maximum softmax probability on labelled images.

    Parameters
    ----------
    model : torch.nn.Module
        The network, on ``device``; its mode is restored afterwards.
    val : ImageRows
        The images.
    prepare : Prepare
        Their normalisation.
    device : str or torch.device, default="cpu"
        Where the network runs.

    Returns
    -------
    dict from str to float
        ``accuracy``, ``aurc``, ``augrc`` and ``fail_ap``, the average precision of failures, which is NaN where there
        is no failure.

    Examples
    --------
    >>> from twofold.nn.data import Images
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> images = Images.of(np.zeros((4, 2, 2, 3), np.uint8), [0, 0, 1, 1])
    >>> sorted(validate(model, images, Prepare()))
    ['accuracy', 'augrc', 'aurc', 'fail_ap']
    """
    was_training = model.training
    model.eval()
    batches = []
    with torch.no_grad():
        for start in range(0, len(val), EVALUATION_BATCH):
            pixels = val.read(slice(start, min(start + EVALUATION_BATCH, len(val))))
            batches.append(model(prepare(pixels).to(device)).double().cpu().numpy())
    model.train(was_training)
    labels = np.asarray(val.labels)
    logits = np.concatenate(batches)
    if getattr(model, "abstain", False):
        logits = logits[:, : int(labels.max()) + 1]
    correct = logits.argmax(axis=1) == labels
    conf = log_odds(logits)
    values = {
        "accuracy": float(correct.mean()),
        "aurc": metrics.aurc(correct, conf),
        "augrc": metrics.augrc(correct, conf),
    }
    try:
        values["fail_ap"] = metrics.average_precision(correct, conf, positive=False)
    except UndefinedMetric:
        values["fail_ap"] = math.nan  # there is no failure to find
    return values


def _epoch_quality(values: EpochValues, keep: str) -> float:
    """Return the value by which weights are kept; larger is better."""
    if keep == "last":
        return 0.0
    if keep not in values:
        raise InvalidInput(f"keep={keep!r} needs validation data; pass val=")
    return -values[keep] if keep == "aurc" else values[keep]
