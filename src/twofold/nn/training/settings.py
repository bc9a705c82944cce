"""How a network is trained: hyper-parameters, the presets of the papers, and where the training runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from twofold import _checks
from twofold.errors import UnknownName
from twofold.nn.extraction import ImageInput, Prepare
from twofold.nn.ingredients import augment
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.rows import ImageRows

Precision: TypeAlias = Literal["float32", "bf16"]
Augmentation: TypeAlias = Callable[..., npt.NDArray[np.uint8]]

OPTIMISERS = ("sgd", "adam", "adamw")
SCHEDULES = ("cosine", "epochs", "drops", "constant")
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
        Passes over the training set.
    batch : int, default=128
        Images in a step, at least 2. With several processes, each takes an equal share of them. The rows that do not
        fill a last batch are left out of an epoch; each epoch has another order.
    lr : float, default=0.05
        Learning rate at the start of the schedule.
    weight_decay : float, default=5e-4
        Weight decay of the optimiser.
    momentum : float, default=0.9
        Momentum of SGD; Adam and AdamW do not use it.
    nesterov : bool, default=False
        Use Nesterov's momentum in SGD.
    optimiser : {"sgd", "adam", "adamw"}, default="sgd"
        Optimiser, before the recipe wraps it in a sharpness-aware one.
    schedule : {"cosine", "epochs", "drops", "constant"}, default="cosine"
        Learning rate over the run: ``"cosine"`` falls to zero along a half cosine, step by step; ``"epochs"`` is the
        same, epoch by epoch; ``"drops"`` divides by 10 after 0.6 and again after 0.8 of the run.
    warm_up : int, default=0
        Steps during which the learning rate rises linearly, before the schedule applies.
    clip : float, optional
        Largest norm of the gradient of all parameters together; by default gradients are not clipped.
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
        With several processes, form pairs and ranks over the whole batch, not within each process's share of it.
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
    schedule: Literal["cosine", "epochs", "drops", "constant"] = "cosine"
    warm_up: int = 0
    clip: float | None = None
    augment: tuple[str, ...] = ("padded_crop", "flip")
    resize: int | None = None
    crop: int | None = None
    draft: bool = True
    keep: Literal["last", "accuracy", "aurc", "fail_ap"] = "last"
    gather: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch", 2), ("warm_up", 0), ("seed", 0)):
            _checks.whole(getattr(self, name), name, low)
        for name in ("lr", "weight_decay", "momentum"):
            _checks.number(getattr(self, name), name, 0.0, math.inf, open_high=True)
        _checks.choice(self.optimiser, "optimiser", OPTIMISERS)
        _checks.choice(self.schedule, "schedule", SCHEDULES)
        _checks.choice(self.keep, "keep", KEEP)
        ImageInput(self.resize, self.crop)
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


PRESETS: Mapping[str, Settings] = {
    "cifar": Settings(),  # SURE+: learning rate 0.05, weight decay as in its code
    "as_printed": Settings(weight_decay=5e-3),  # the weight decay of its text
    "unknown_detection": Settings(lr=0.1, nesterov=True, schedule="drops"),
    "imagenet": Settings(epochs=90, batch=256, lr=0.1, weight_decay=1e-4, augment=("resized_crop", "flip")),
    "fd_cifar": Settings(epochs=250, lr=0.1, clip=1.0, augment=("padded_crop", "flip", "cutout")),
    "fd_svhn": Settings(epochs=100, lr=0.01, clip=1.0, augment=()),
    "fd_camelyon": Settings(epochs=5, batch=32, lr=0.01, weight_decay=0.01, clip=1.0, augment=()),
    "fd_iwildcam": Settings(epochs=12, batch=16, lr=1e-3, weight_decay=0.0, clip=1.0, augment=()),
    "fd_breeds": Settings(
        epochs=300, lr=0.1, weight_decay=1e-4, clip=1.0, augment=("resized_crop", "flip", "colour_jitter")
    ),
    "fd_vit": Settings(  # ViT-B/16 for 40,000 steps of 50,000 images
        epochs=102, lr=0.01, weight_decay=0.0, warm_up=500, clip=1.0, augment=("flip",)
    ),
    "deit": Settings(epochs=50, lr=0.01, weight_decay=5e-5, augment=("resized_crop", "flip")),  # SURE on DeiT-B
    "dinov3": Settings(
        epochs=20, batch=64, lr=1e-5, weight_decay=5e-6, optimiser="adamw", augment=("resized_crop", "flip")
    ),
}


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
    workers: int = 0
    on_bad: Literal["stop", "skip"] = "stop"

    def __post_init__(self) -> None:
        _checks.whole(self.workers, "workers", 0)
        _checks.choice(self.on_bad, "on_bad", ("stop", "skip"))
