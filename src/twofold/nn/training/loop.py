"""The training loop: plain, seeded, and resumable to the last bit.

One file, ``state.safetensors``, is written whole after every epoch: weights, optimiser, average and what the recipe
remembers. The random numbers of a step come from its number. A training that was killed at any step resumes from the
last epoch, and ends with the weights of a run that was never interrupted on the same device. The kept weights are
``weights.safetensors``, the history ``metrics.csv``.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from twofold.errors import InvalidInput
from twofold.nn.data import Images, drop_unreadable
from twofold.nn.extraction import ImageInput, Prepare
from twofold.nn.extraction.stored import TrainedInput, recall_input, remember_input
from twofold.nn.ingredients.averaging import EMA, SWA
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.models.description import ModelDescription, describe_network, write_description
from twofold.nn.models.hugging_face import write_config
from twofold.nn.recipes import Averaged, ReBN, Recipe, Stage, Stages
from twofold.nn.rows import ImageRows
from twofold.nn.training.epochs import Training, prepare_training
from twofold.nn.training.processes import is_first_process
from twofold.nn.training.progress import Done, ignore_progress
from twofold.nn.training.settings import Precision, Settings, TrainingSetup
from twofold.nn.training.state import (
    HISTORY,
    STATE,
    WEIGHTS,
    EpochValues,
    Progress,
    TrainingIdentity,
    hold_folder,
    load_weights,
    make_folder,
    read_state,
    write_history,
    write_state,
    write_weights,
)
from twofold.nn.training.validation import validate


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
    workers: int = 0,
    on_bad: Literal["stop", "skip"] = "stop",
    channels_last: bool = False,
    sync_bn: bool = False,
    ema_device: str | torch.device | None = None,
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
        Compile the network first, which takes about a minute. Steps are then faster and differ by rounding alone.
    workers : int, default=0
        Processes that read, decode and augment ahead of the training; 0 does so in this process. Any number gives the
        same weights.
    on_bad : {"stop", "skip"}, default="stop"
        What an image that cannot be read does: end the training with its name, or be replaced by the next readable row
        of the training set (and left out of ``val``), with a warning that counts them.
    channels_last : bool, default=False
        Store weights and images with the channels last in memory. Networks of the zoo keep their maps so in any case.
    sync_bn : bool, default=False
        With several processes, take batch-norm statistics over the whole batch; needs CUDA.
    ema_device : str or torch.device, optional
        Where the average of weights (EMA or SWA) is held, such as ``"cpu"`` to save memory on a GPU; by default beside
        the network. It moves to ``device`` to be evaluated.
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
    A recipe of several stages keeps each in its own folder. Under ``accelerate launch`` or ``torchrun`` each
    process takes its share of every batch, and accelerate's wrapper averages the gradients. Batch norm then uses the
    statistics of a process's own share (those of the first process are kept), unless ``sync_bn`` is set. Losses that
    couple samples (mixed pairs, CRL pairs, ranks) act within a share, or over the whole batch with
    ``Settings(gather=True)``. A network without batch norm then ends with the weights of one process, up to rounding;
    dropout written as a function call, which draws its masks process by process, is the exception.
    """
    setup = TrainingSetup(
        device=device,
        precision=precision,
        compiled=compiled,
        prepare=prepare or Prepare(),
        mixers=mixers,
        outliers=outliers,
        workers=workers,
        on_bad=on_bad,
        channels_last=channels_last,
        sync_bn=sync_bn,
        ema_device=ema_device,
    )
    settings = (settings or Settings()).for_rows(len(data))
    folder = Path(out)
    make_folder(folder)
    with hold_folder(folder) if is_first_process() else nullcontext():
        return _train(recipe, model, data, folder, val, settings, setup, trained=trained, done=done)


def _train(
    recipe: Recipe,
    model: nn.Module,
    data: Images,
    folder: Path,
    val: ImageRows | None,
    settings: Settings,
    setup: TrainingSetup,
    *,
    trained: bool,
    done: Done,
) -> Trained:
    """Train in one stage or several, or estimate batch-norm statistics alone."""
    make_folder(folder)
    if np.asarray(data.labels).min() < 0:
        raise InvalidInput("every training row needs a label; rows labelled -1 are outliers, pass them as outliers=")
    image_input = ImageInput(settings.resize, settings.crop, setup.prepare)
    if val is not None:
        val = image_input.fit(drop_unreadable(val, workers=setup.workers) if setup.on_bad == "skip" else val)
    remember_input(model, TrainedInput(image_input, _input_size(data, settings, setup), data.class_names))
    identity = TrainingIdentity(str(recipe), asdict(settings), len(data))
    weights = folder / WEIGHTS
    if recipe.get(Stages) is not None:
        history: list[EpochValues] = []
        for stage in _list_stages(recipe, settings, trained):
            result = _train(
                stage.recipe, model, data, folder / stage.name, val, stage.settings, setup, trained=False, done=done
            )
            history += result.history
        write_weights(weights, model, identity)
        _write_model(folder, model, settings.freeze)
        return Trained(weights, model, tuple(history), 1.0)
    training = prepare_training(recipe, model, data, settings, setup)
    if training.processes.is_main_process:
        _write_model(folder, model, settings.freeze)
    if recipe.get(ReBN) is not None:
        training.renew_statistics()
        write_weights(weights, model, identity)
        return Trained(weights, model.eval(), (), 1.0)
    try:
        progress = _run_epochs(training, folder, identity, val, done)
    finally:
        training.feed.close()  # reading processes that are left to the end of Python may be reported as killed
    load_weights(model, weights)
    return Trained(weights, model.eval(), progress.history, _averaging_window(training.average))


def _input_size(data: Images, settings: Settings, setup: TrainingSetup) -> tuple[int, int] | None:
    """Return height and width of what the network sees, if no image has to be decoded that may be unreadable."""
    if settings.input_side is not None:
        return settings.input_side, settings.input_side
    return None if setup.on_bad == "skip" else data.shape


def _write_model(folder: Path, model: nn.Module, freeze: str | int) -> None:
    """Write what :func:`twofold.nn.load` needs to build the network of a training folder again."""
    trained = recall_input(model)
    assert trained is not None
    network = describe_network(model)
    described = ModelDescription(network, trained.class_names, str(freeze), trained.to_mapping())
    write_description(folder, described)
    if network is not None and network.model == "hf:.":
        write_config(model, folder)


@dataclass(frozen=True)
class _StageRun:
    """Hold one stage of a training: its folder, recipe and settings."""

    name: str
    recipe: Recipe
    settings: Settings


def _list_stages(recipe: Recipe, settings: Settings, trained: bool) -> list[_StageRun]:
    """List the stages to run, each from the weights that the one before left in the network."""
    stages = []
    if not trained:
        stages.append(_StageRun("classifier", recipe - Stages, settings))
    for stage in recipe.later_stages:
        stages.append(_StageRun(stage.name, stage.recipe, _stage_settings(stage, settings)))
    return stages


def _stage_settings(stage: Stage, settings: Settings) -> Settings:
    """Derive the settings of a later stage: Adam at its own rate, for its share of the epochs."""
    return replace(
        settings,
        epochs=stage.count_epochs(settings.epochs),
        steps=None,
        optimiser="adam",
        nesterov=False,
        lr=stage.lr,
        min_lr=0.0,
        schedule=stage.schedule,
        weight_decay=0.0,
        layer_decay=None,
        head_lr=None,
        warm_up=0,
        warm_up_epochs=0.0,
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
            with training.kept_on_device() as kept:
                values |= validate(kept, val, training.setup.prepare, training.device)
        quality = _epoch_quality(values, settings.keep)
        is_kept = is_last if settings.keep == "last" else quality > progress.best
        best = quality if is_kept else progress.best
        last_rate = training.learning_rate.at((epoch + 1) * training.steps_per_epoch - 1)
        row: EpochValues = {"epoch": epoch + 1, "lr": last_rate, **values}
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


def _epoch_quality(values: EpochValues, keep: str) -> float:
    """Return the value by which weights are kept; larger is better."""
    if keep == "last":
        return 0.0
    if keep not in values:
        raise InvalidInput(f"keep={keep!r} needs validation data; pass val=")
    if keep == "aurc":
        return -values[keep]
    return values[keep]
