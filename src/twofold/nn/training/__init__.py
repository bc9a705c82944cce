"""Train a network by a recipe: plain, seeded, and resumable to the last bit.

:func:`train` takes objects, :class:`Plan` takes text, as the command line does. ``settings`` holds hyper-parameters,
``presets`` those of the papers; ``loop`` the training from its first epoch to its last; ``epochs`` what happens in an
epoch; ``step`` one batch as loss terms see it; ``state`` the files; ``schedule`` the learning rate; ``processes``
several processes; ``plan`` a training described by text.
"""

from twofold.nn.training.epochs import StepResult, Training, prepare_training
from twofold.nn.training.loop import Trained, train
from twofold.nn.training.optimiser import RESNET18_NORM, parameter_norm
from twofold.nn.training.plan import Plan
from twofold.nn.training.presets import PRESETS, Preset, Variation, find_preset
from twofold.nn.training.processes import is_first_process
from twofold.nn.training.progress import tensorboard
from twofold.nn.training.settings import AUGMENTATIONS, Precision, Settings, TrainingSetup
from twofold.nn.training.state import HISTORY, STATE, WEIGHTS
from twofold.nn.training.step import TrainingStep
from twofold.nn.training.validation import validate

__all__ = [
    "AUGMENTATIONS",
    "HISTORY",
    "PRESETS",
    "RESNET18_NORM",
    "STATE",
    "WEIGHTS",
    "Plan",
    "Precision",
    "Preset",
    "Settings",
    "StepResult",
    "Trained",
    "Training",
    "TrainingSetup",
    "TrainingStep",
    "Variation",
    "find_preset",
    "is_first_process",
    "parameter_norm",
    "prepare_training",
    "tensorboard",
    "train",
    "validate",
]
