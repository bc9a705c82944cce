"""How a network is trained: hyper-parameters, and where the training runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from twofold import _checks
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.extraction import ImageInput, Prepare
from twofold.nn.ingredients import augment
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.models.stages import parse_freeze
from twofold.nn.rows import ImageRows

Precision: TypeAlias = Literal["float32", "bf16"]
Augmentation: TypeAlias = Callable[..., npt.NDArray[np.uint8]]

OPTIMISERS = ("sgd", "adam", "adamw")
SCHEDULES = ("cosine", "drops", "constant")
SCHEDULE_UNITS = ("step", "epoch")
KEEP = ("last", "accuracy", "aurc", "fail_ap")
AUGMENTATIONS: Mapping[str, Augmentation] = {
    "padded_crop": augment.padded_crop,
    "flip": augment.flip,
    "cutout": augment.cutout,
    "rotation": augment.rotation,
    "resized_crop": augment.resized_crop,
    "colour_jitter": augment.colour_jitter,
}


@dataclass(frozen=True)
class Settings:
    """Set how long and how fast a network learns.

    Parameters
    ----------
    epochs : int, default=200
        Passes over the training set. 200 is SURE+'s number on CIFAR.
    steps : int, optional
        Updates of the weights, instead of ``epochs``: the run has as many whole epochs as come nearest to them, and at
        least one. Papers that fine-tune count steps.
    batch : int, default=128
        Images in a step, at least 2. With several processes, each takes an equal share of them. The rows that do not
        fill a last batch are left out of an epoch; each epoch has another order. 128 is SURE+'s on CIFAR.
    lr : float, default=0.05
        Learning rate at the start of the schedule. 0.05 is SURE+'s on CIFAR.
    weight_decay : float, default=5e-4
        Weight decay of the optimiser. 5e-4 is that of SURE+'s code on CIFAR; its text has 5e-3.
    momentum : float, default=0.9
        Momentum of SGD, below 1; Adam and AdamW do not use it. All papers have 0.9.
    nesterov : bool, default=False
        Use Nesterov's momentum in SGD. SURE+ does not; the code of the unknown-detection benchmark does on CIFAR.
    optimiser : {"sgd", "adam", "adamw"}, default="sgd"
        Optimiser, before the recipe wraps it in a sharpness-aware one.
    schedule : {"cosine", "drops", "constant"}, default="cosine"
        Learning rate over the run: ``"cosine"`` falls to ``min_lr`` along a half cosine (SURE+, FD-Shifts); ``"drops"``
        multiplies by ``drop_factor`` at each of ``drops`` (unknown detection).
    schedule_per : {"step", "epoch"}, default="step"
        Whether the schedule moves with every step, as in SURE+, or with every epoch, as in SURE.
    drops : tuple of int or float, default=(0.6, 0.8)
        When the learning rate drops with ``schedule="drops"``: whole numbers are epochs, as ``(30, 60)``; numbers below
        1 are shares of the run, as ``(0.3, 0.6)``. The default is 120 and 160 of the 200 epochs of the
        unknown-detection benchmark on CIFAR.
    drop_factor : float, default=0.1
        What the learning rate is multiplied by at a drop.
    min_lr : float, default=0.0
        Where the cosine ends. SURE+ and FD-Shifts end at 0, OpenOOD's trainers and energy fine-tuning at 1e-6.
    warm_up : int, default=0
        Steps during which the learning rate rises linearly, before the schedule applies. FD-Shifts' ViTs have 500.
    warm_up_epochs : float, default=0.0
        The same, counted in epochs; set one of the two.
    clip_norm : float, optional
        Largest norm of the gradient of all parameters together; by default gradients are not clipped.
    layer_decay : float, optional
        Factor by which the learning rate shrinks from each block to the one before it, above 0 and at most 1, as in
        fine-tuning of transformers (0.65 to 0.9); see :func:`twofold.nn.training.optimiser.group_parameters`. By
        default all blocks learn at one rate.
    head_lr : float, optional
        Learning rate of the head and of a confidence branch at the start of the schedule; by default ``lr``.
    freeze : str or int, default="none"
        What does not learn: ``"none"``, ``"backbone"`` (all but the head), or a number of stages from the input; see
        :func:`twofold.nn.models.stages`. Frozen batch norm keeps its statistics.
    augment : tuple of str, default=("padded_crop", "flip")
        Names in ``AUGMENTATIONS``, applied to every training image in this order.
    resize : int, optional
        Length of the shorter side of images before the centre crop, in validation; by default 8/7 of ``crop``, such as
        256 for 224. By default, with ``crop`` unset too, images keep the size that the data set gives them.
    crop : int, optional
        Side of the images that the network sees. In training the augmentation ``"resized_crop"`` cuts a random box of
        the whole picture and brings it to this size; without it, and in validation, the centre is cut out of the
        resized picture.
    draft : bool, default=True
        Let random crops of JPEG files be decoded at 1/2, 1/4 or 1/8 of their size where the crop keeps at least its
        final size: faster, with slightly different pixels. Validation decodes whole files.
    keep : {"last", "accuracy", "aurc", "fail_ap"}, default="last"
        Which weights are kept: those of the last epoch, or those of the epoch with the best validation accuracy, AURC,
        or average precision of failures.
    gather : bool, default=False
        With several processes or micro-batches, form pairs and ranks over the whole batch, not within each share of it.
    accumulate : int, default=1
        Micro-batches into which each process cuts its share of a batch; their gradients are added up before an update.
        It saves memory and changes a network without batch norm by rounding alone, except for losses that couple rows,
        which act within a micro-batch unless ``gather`` is set.
    seed : int, default=0
        Seed of the order of the images, augmentations, mixing and dropout.

    Raises
    ------
    InvalidInput
        If a value is out of range.
    UnknownName
        If an augmentation has no such name.

    Examples
    --------
    >>> Settings(epochs=20, optimiser="adamw", lr=1e-3).batch
    128
    """

    epochs: int = 200
    batch: int = 128
    lr: float = 0.05
    weight_decay: float = 5e-4
    momentum: float = 0.9
    nesterov: bool = False
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    schedule: Literal["cosine", "drops", "constant"] = "cosine"
    warm_up: int = 0
    clip_norm: float | None = None
    layer_decay: float | None = None
    head_lr: float | None = None
    freeze: str | int = "none"
    augment: tuple[str, ...] = ("padded_crop", "flip")
    resize: int | None = None
    crop: int | None = None
    draft: bool = True
    keep: Literal["last", "accuracy", "aurc", "fail_ap"] = "last"
    gather: bool = False
    accumulate: int = 1
    seed: int = 0
    steps: int | None = None
    schedule_per: Literal["step", "epoch"] = "step"
    drops: tuple[int | float, ...] = (0.6, 0.8)
    drop_factor: float = 0.1
    min_lr: float = 0.0
    warm_up_epochs: float = 0.0

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch", 2), ("warm_up", 0), ("accumulate", 1), ("seed", 0)):
            _checks.whole(getattr(self, name), name, low)
        if self.steps is not None:
            _checks.whole(self.steps, "steps", 1)
        for name in ("lr", "weight_decay", "min_lr", "warm_up_epochs"):
            _checks.number(getattr(self, name), name, 0.0, math.inf, open_high=True)
        _checks.number(self.momentum, "momentum", 0.0, 1.0, open_high=True)
        _checks.number(self.drop_factor, "drop_factor", 0.0, 1.0, open_low=True)
        if self.clip_norm is not None:
            _checks.number(self.clip_norm, "clip_norm", 0.0, math.inf, open_low=True, open_high=True)
        if self.layer_decay is not None:
            _checks.number(self.layer_decay, "layer_decay", 0.0, 1.0, open_low=True)
        if self.head_lr is not None:
            _checks.number(self.head_lr, "head_lr", 0.0, math.inf, open_high=True)
        parse_freeze(self.freeze)
        _checks.choice(self.optimiser, "optimiser", OPTIMISERS)
        _checks.choice(self.schedule, "schedule", SCHEDULES)
        _checks.choice(self.schedule_per, "schedule_per", SCHEDULE_UNITS)
        _checks.choice(self.keep, "keep", KEEP)
        ImageInput(self.resize, self.crop)
        if self.nesterov and (self.optimiser != "sgd" or self.momentum == 0):
            raise InvalidInput("nesterov needs optimiser='sgd' with a momentum above 0")
        if self.warm_up and self.warm_up_epochs:
            raise InvalidInput("set warm_up, in steps, or warm_up_epochs, not both")
        _check_drops(self.drops)
        if self.schedule == "drops" and self.steps is None and self.drops[-1] >= self.epochs:
            raise InvalidInput(
                f"drops must lie before the end of the run of {self.epochs} epochs, got epoch {self.drops[-1]}; "
                "shares of the run, such as 0.3,0.6, fit any number of epochs"
            )
        augment: object = self.augment  # a file may hold anything
        if isinstance(augment, str):
            raise InvalidInput(f"augment must be a sequence of names, got the text {self.augment!r}")
        for name in self.augment:
            if name not in AUGMENTATIONS:
                raise UnknownName.of("augmentation", name, AUGMENTATIONS)

    @property
    def input_side(self) -> int | None:
        """Side of the images that the network sees; None if they keep the size that the data set gives them.

        Examples
        --------
        >>> Settings(crop=224).input_side
        224
        """
        return ImageInput(self.resize, self.crop).side

    def for_rows(self, rows: int) -> Settings:
        """Turn a number of steps into epochs over a training set.

        Parameters
        ----------
        rows : int
            Number of rows in the training set.

        Returns
        -------
        Settings
            The same settings, with ``steps=None`` and the number of epochs that comes nearest to the steps.

        Examples
        --------
        >>> Settings(steps=40_000).for_rows(50_000).epochs
        103
        """
        if self.steps is None:
            return self
        steps_per_epoch = max(1, rows // self.batch)
        return replace(self, steps=None, epochs=max(1, round(self.steps / steps_per_epoch)))


def _check_drops(drops: object) -> None:
    """Check that drops are epochs or shares of the run, one kind of them, in rising order."""
    if isinstance(drops, str) or not isinstance(drops, Sequence) or not drops:
        raise InvalidInput(f"drops must be a sequence of epochs or of shares of the run, got {drops!r:.40}")
    counts_epochs = [isinstance(drop, int) for drop in drops]
    if all(counts_epochs):
        for drop in drops:
            _checks.whole(drop, "an epoch of drops", 1)
    elif any(counts_epochs):
        raise InvalidInput(f"drops must be whole epochs or shares of the run, not both, got {drops!r:.60}")
    else:
        for drop in drops:
            _checks.number(drop, "a share of drops", 0.0, 1.0, open_low=True, open_high=True)
    if any(later <= earlier for earlier, later in pairwise(drops)):
        raise InvalidInput(f"drops must rise, got {drops!r:.60}")


@dataclass(frozen=True)
class TrainingSetup:
    """Describe where and on what a network is trained, apart from the recipe and its settings.

    Parameters
    ----------
    device : str or torch.device, default="cpu"
        Where the network runs.
    precision : {"float32", "bf16"}, default="float32"
        Precision of forward passes; weights stay in float32. ``"bf16"`` needs accelerate.
    compiled : bool, default=False
        Compile the network first.
    prepare : Prepare, default=Prepare()
        Normalisation of the images.
    mixers : Mixers, optional
        Pictures for PixMix; by default fractals are drawn when a term asks for them.
    outliers : ImageRows, optional
        Images of no known class, for recipes that learn from them.
    workers : int, default=0
        Processes that read, decode and augment ahead of the training; 0 does so in this process. Any number gives the
        same batches.
    on_bad : {"stop", "skip"}, default="stop"
        What an image that cannot be read does: end the training with its name, or be replaced by the next readable row
        of the training set, with a warning that counts them.
    channels_last : bool, default=False
        Store weights and images with the channels last in memory.
    sync_bn : bool, default=False
        With several processes, take batch-norm statistics over the whole batch; needs CUDA.
    ema_device : str or torch.device, optional
        Where the average of weights is held; by default beside the network.

    Examples
    --------
    >>> TrainingSetup(device="cpu").precision
    'float32'
    """

    device: str | torch.device = "cpu"
    precision: Precision = "float32"
    compiled: bool = False
    prepare: Prepare = field(default_factory=Prepare)
    mixers: Mixers | None = None
    outliers: ImageRows | None = None
    channels_last: bool = False
    sync_bn: bool = False
    ema_device: str | torch.device | None = None
    workers: int = 0
    on_bad: Literal["stop", "skip"] = "stop"

    def __post_init__(self) -> None:
        _checks.whole(self.workers, "workers", 0)
        _checks.choice(self.on_bad, "on_bad", ("stop", "skip"))
