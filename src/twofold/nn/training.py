"""The training loop: plain, seeded, and resumable to the last bit.

One file, ``state.safetensors``, is written whole after every epoch: weights, optimiser, average and what the recipe
remembers; random numbers of a step come from its number. Killed at any step, training goes on from the last epoch and
ends with the weights of a run that was never interrupted on the same device. The kept weights are
``weights.safetensors``, the history ``metrics.csv``.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from twofold import _checks, metrics
from twofold._files import replacing
from twofold.errors import InvalidInput, MissingExtra, RunError, UndefinedMetric, UnknownName
from twofold.nn.device import check_device
from twofold.nn.extraction import Prepare, extract
from twofold.nn.ingredients import augment
from twofold.nn.ingredients.averaging import EMA, SWA, rebn
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.ingredients.sharpness import FSAM, SAM
from twofold.nn.models.checkpoint import load_parameters, opened_header, read_parameters, sealed_header
from twofold.nn.models.load import load
from twofold.nn.models.parts import Network
from twofold.nn.models.zoo import ZOO, build
from twofold.nn.recipes import Averaged, Branch, FineTune, Frozen, Members, ReBN, Recipe, Sharpness, Stages

T = TypeVar("T")
Precision = Literal["float32", "bf16"]
AUGMENTATIONS: Mapping[str, Callable[..., Any]] = {
    "padded_crop": augment.padded_crop,
    "flip": augment.flip,
    "cutout": augment.cutout,
    "rotation": augment.rotation,
    "resized_crop": augment.resized_crop,
    "colour_jitter": augment.colour_jitter,
}
RESNET18_NORM = 112.6  # norm of the parameters of resnet18_32 with 100 classes, as initialised (SURE+'s network)
STATE, WEIGHTS, HISTORY = "state.safetensors", "weights.safetensors", "metrics.csv"


@dataclass(frozen=True)
class Settings:
    """How long and how fast a network learns.

    ``schedule``: ``cosine`` to zero by step, ``epochs`` the same by epoch, ``drops`` by 10 after 0.6 and 0.8 of the
    run; ``warm_up`` steps rise linearly before it. ``keep``: the weights of the last epoch, or those of the epoch with
    the best validation value. ``gather``: with several processes, pairs and ranks are formed over the whole batch and
    not within each process's share of it.
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
    keep: Literal["last", "accuracy", "aurc", "fail_ap"] = "last"
    gather: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch", 2), ("warm_up", 0), ("seed", 0)):
            _checks.whole(getattr(self, name), name, low)
        for name in ("lr", "weight_decay", "momentum"):
            _checks.number(getattr(self, name), name, 0.0, math.inf, open_high=True)
        _checks.choice(self.optimiser, "optimiser", ("sgd", "adam", "adamw"))
        _checks.choice(self.schedule, "schedule", ("cosine", "epochs", "drops", "constant"))
        _checks.choice(self.keep, "keep", ("last", "accuracy", "aurc", "fail_ap"))
        for name in self.augment:
            if name not in AUGMENTATIONS:
                raise UnknownName.of("augmentation", name, AUGMENTATIONS)


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
class Trained:
    """Where the weights are, the network that holds them, and what each epoch reached."""

    path: Path
    model: nn.Module
    history: tuple[Mapping[str, float], ...]
    window: float  # effective number of weights that were averaged


class Step:
    """One batch as the terms of a recipe see it; what is asked for twice in a pass is computed once."""

    def __init__(self, training: Training, rows: npt.NDArray[np.int64], epoch: int, number: int) -> None:
        self.training = training
        self.index = rows
        self.epoch, self.number, self.seed = epoch, number, training.settings.seed
        self.rows = len(training.data)
        self.progress = number / training.steps
        self.labels = torch.as_tensor(np.asarray(training.data.labels[rows]), device=training.device)
        self.pixels = training.data.read(rows)
        for name in training.settings.augment:
            options = {"size": min(training.data.shape)} if name == "resized_crop" else {}
            self.pixels = AUGMENTATIONS[name](self.pixels, rows, seed=self.seed, epoch=epoch, **options)
        self.images = training.prepare(self.pixels).to(training.device)
        self.first = True
        self._held: dict[str, Any] = {}  # of the whole step
        self._pass: dict[str, Any] = {}  # of one pass
        self._after: list[Callable[[], None]] = []

    def losses(self) -> Iterator[Tensor]:
        """The loss of one pass in parts that share no view, so that only one holds its activations at a time.

        Their gradients add up to that of the sum. A second pass sees the same draws. Where the perturbation comes from
        the clean view, the first pass has no other.
        """
        sharpness: Sharpness | None = self.training.recipe.get(Sharpness)
        shared = [term for term in self.training.recipe.terms if "clean" in term.views]
        others = [[term] for term in self.training.recipe.terms if "clean" not in term.views]
        if self.first and sharpness is not None and sharpness.ascent == "clean":
            others = []
        for group in [shared, *others] if shared else others:
            self._pass = {}
            yield torch.stack([term.loss(self) for term in group]).sum()
        self._pass = {}
        self.first = False

    def finish(self) -> None:
        """What was put off until the weights have moved."""
        for act in self._after:
            act()

    @property
    def mixers(self) -> Mixers:
        """Pictures to mix in."""
        return self.training.mixers

    def network(self, images: Tensor) -> Tensor:
        """Logits of a view."""
        return self.training.forward(images)

    @property
    def logits(self) -> Tensor:
        """Logits of the clean images; outliers, where a term needs them, share the pass."""
        return self._answer()[0]

    @property
    def outlier_logits(self) -> Tensor:
        """Logits of the outliers of this step."""
        return self._answer()[1]

    def _answer(self) -> tuple[Tensor, Tensor]:
        if "answer" not in self._pass:
            outside = self.training.outlier_images(self)
            both = self.images if outside is None else torch.cat([self.images, outside])
            z = self._encoded(both)
            self._pass["answer"] = z[: len(self.images)], z[len(self.images) :]
        return self._pass["answer"]

    def _encoded(self, images: Tensor) -> Tensor:
        """Logits, and the feature where a confidence branch needs it."""
        model = self.training.model
        if not isinstance(model, Network) or model.confidence is None:
            return self.network(images)
        features = model.encode(images)
        self._pass["confidence"] = model.confidence.of(images, features)
        return model.linear(features)

    @property
    def confidence(self) -> Tensor:
        """What the confidence branch says of the clean images."""
        self._answer()
        if "confidence" not in self._pass:
            raise InvalidInput("this recipe needs a network with a confidence branch, built by twofold.nn.build")
        return self._pass["confidence"][: len(self.images)]

    def prepared(self, pixels: npt.NDArray[Any]) -> Tensor:
        """Float pixels in [0, 1], normalised as the clean ones."""
        return self.training.prepare.floats(pixels).to(self.training.device)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """A value of this step, the same in both passes."""
        if name not in self._held:
            self._held[name] = make()
        return self._held[name]

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """Something that lives as long as the training, and is saved with it."""
        return self.training.remembered(name, make)

    def gathered(self, tensor: Tensor) -> Tensor:
        """The rows of all processes."""
        return self.training.gathered(tensor)

    def together(self, tensor: Tensor) -> Tensor:
        """Where pairs and ranks are formed over all processes: the rows of all, in the order of the batch.

        Gradients flow to the own rows only; :meth:`shared` makes up for the averaging of gradients.
        """
        count = self.training.processes
        if count == 1 or not self.training.settings.gather:
            return tensor
        every = self.gathered(tensor.detach().contiguous())
        every = every.reshape(count, len(tensor), *tensor.shape[1:]).transpose(0, 1).flatten(0, 1).clone()
        every[self.training.place :: count] = tensor
        return every

    def own(self, tensor: Tensor) -> Tensor:
        """The rows of this process, of what :meth:`together` gave."""
        if len(tensor) == len(self.index):
            return tensor
        return tensor[self.training.place :: self.training.processes]

    def shared(self, loss: Tensor) -> Tensor:
        """The loss of the whole batch, of which this process gives the gradient of its own rows."""
        if self.training.processes == 1 or not self.training.settings.gather:
            return loss
        return loss + (self.training.processes - 1) * (loss - loss.detach())

    def after(self, act: Callable[[], None]) -> None:
        """Do this once the weights have moved."""
        self._after.append(act)

    def coins(self) -> Tensor:
        """Heads or tails for each row, the same in both passes."""
        rng = np.random.default_rng((self.seed, self.epoch, self.number))
        drawn = rng.random(len(self.index) * self.training.processes)[self.training.place :: self.training.processes]
        return self.once("coins", lambda: torch.from_numpy(drawn < 0.5).to(self.training.device))


class Training:
    """A recipe at work on a network and a data set; made by :func:`train`."""

    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        data: Any,
        settings: Settings,
        *,
        prepare: Prepare | None = None,
        mixers: Mixers | None = None,
        outliers: Any = None,
        device: str | torch.device = "cpu",
        precision: Precision = "float32",
        compiled: bool = False,
    ) -> None:
        self.recipe, self.data, self.settings = recipe, data, settings
        device = check_device(device)
        self.fleet = _fleet(str(device), precision)
        self.prepare = prepare or Prepare()
        self.device = device if self.fleet is None else self.fleet.device
        if settings.batch % self.processes:
            raise InvalidInput(f"batch={settings.batch} cannot be shared equally by {self.processes} processes")
        self.model = model.to(self.device)
        self.forward: Callable[[Tensor], Tensor] = self.model
        if compiled:  # dropout draws what it draws otherwise
            self.forward = torch.compile(self.model, options={"fallback_random": True})
        self._mixers, self.outliers = mixers, outliers
        self.memory: dict[str, Any] = {}
        self._saved_memory: dict[str, Any] = {}
        if settings.batch > len(data):
            raise InvalidInput(f"batch={settings.batch} is larger than the training set of {len(data)} rows")
        if any(hasattr(term, "outliers") for term in recipe.terms) and outliers is None:
            raise InvalidInput("this recipe needs outliers: images of classes that the network does not know")
        self.per_epoch = len(data) // settings.batch
        self.steps = self.per_epoch * settings.epochs
        tuned: FineTune | None = recipe.get(FineTune)
        self.lr = settings.lr * (1.0 if tuned is None else tuned.lr)
        self.frozen = recipe.get(Frozen) is not None
        branch: Branch | None = recipe.get(Branch)
        learning = model.confidence if self.frozen else model
        if branch is not None and branch.encoder and isinstance(model, Network) and model.confidence is not None:
            if model.confidence.encoder is None:
                model.confidence.adopt(model)
            model.to(self.device)
        if not isinstance(learning, nn.Module):
            raise InvalidInput("this recipe trains a confidence branch alone, and the network has none")
        parameters = [p for p in learning.parameters() if p.requires_grad]
        self.optimiser = _optimiser(settings, parameters, self.lr)
        self.wrapper = _wrapped(recipe.get(Sharpness), self.optimiser, self.model)
        averaged: Averaged | None = recipe.get(Averaged)
        self.average: EMA | SWA | None = None
        if averaged is not None:
            ema = averaged.kind == "ema"
            self.average = EMA.of_run(model, self.steps, released=averaged.released) if ema else SWA(model)

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return 1 if self.fleet is None else int(self.fleet.num_processes)

    @property
    def place(self) -> int:
        """Number of this process."""
        return 0 if self.fleet is None else int(self.fleet.process_index)

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.fleet is None or bool(self.fleet.is_main_process)

    def gathered(self, tensor: Tensor) -> Tensor:
        """The rows of all processes, one process after the other."""
        return tensor if self.processes == 1 else self.fleet.gather(tensor)

    def wait(self) -> None:
        """Until all processes are here."""
        if self.processes > 1:
            self.fleet.wait_for_everyone()

    @property
    def mixers(self) -> Mixers:
        """Pictures to mix in: those given, or fractals."""
        if self._mixers is None:
            side = max(self.data.shape)
            self._mixers = Mixers.fractals(size=round(side * 9 / 8), seed=self.settings.seed)
        return self._mixers

    def remembered(self, name: str, make: Callable[[], T]) -> T:
        """What a term keeps from step to step."""
        if name not in self.memory:
            self.memory[name] = make()
            if name in self._saved_memory:
                self.memory[name].load_state_dict(self._saved_memory[name])
        return self.memory[name]

    def outlier_images(self, step: Step) -> Tensor | None:
        """Outliers of a step, drawn by its number; None if no term needs them."""
        per_image = max((getattr(term, "outliers", 0) for term in self.recipe.terms), default=0)
        if not per_image:
            return None
        rng = np.random.default_rng((self.settings.seed, 1, step.number))
        rows = rng.choice(len(self.outliers), per_image * len(step.index) * self.processes, replace=True)
        rows = rows[self.place :: self.processes]
        return step.once("outliers", lambda: self.prepare(self.outliers.read(rows)).to(self.device))

    def rate(self, number: int) -> float:
        """Learning rate of a step."""
        s = self.settings
        averaged: Averaged | None = self.recipe.get(Averaged)
        if number < s.warm_up:
            return self.lr * (number + 1) / s.warm_up
        begun = averaged is not None and averaged.kind == "swa" and number >= averaged.start * self.steps
        at = int(averaged.start * self.steps) if begun and averaged is not None else number
        done = at / self.steps if s.schedule != "epochs" else (at // self.per_epoch) / s.epochs
        shape = {
            "constant": 1.0,
            "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
            "epochs": 0.5 * (1.0 + math.cos(math.pi * done)),
            "drops": 0.1 ** ((done >= 0.6) + (done >= 0.8)),
        }
        plain = self.lr * shape[s.schedule]
        if not begun or averaged is None:
            return plain
        anneal = max(1, self.steps // 20)  # PyTorch's ten of 200 epochs, as a share of the run
        part = min(1.0, (number - at) / anneal)
        return plain + (self.lr * averaged.lr - plain) * 0.5 * (1.0 - math.cos(math.pi * part))

    def epoch(self, epoch: int, done: Callable[[Mapping[str, float]], Any]) -> dict[str, float]:
        """One pass over the training set; the mean loss and accuracy of its steps."""
        self.model.train(not self.frozen)
        order = np.random.default_rng((self.settings.seed, epoch)).permutation(len(self.data))
        averaged: Averaged | None = self.recipe.get(Averaged)
        total, right = 0.0, 0
        for i in range(self.per_epoch):
            number = epoch * self.per_epoch + i
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate(number)
            rows = order[i * self.settings.batch : (i + 1) * self.settings.batch]
            rows = rows[self.place :: self.processes]
            step = Step(self, rows, epoch, number)
            with torch.random.fork_rng(), _enough_memory(self.settings.batch), _compilable():
                torch.manual_seed(
                    _seed(self.settings.seed, number, self.place)
                )  # of dropout, so that resuming changes nothing
                loss, hits = self._move(step)
            step.finish()
            if isinstance(self.average, EMA):
                self.average.update(self.model)
            total, right = total + loss, right + hits
            done({"loss": loss, "step": number + 1})
        if isinstance(self.average, SWA) and averaged is not None and epoch + 1 > averaged.start * self.settings.epochs:
            self.average.update(self.model)
        seen = self.per_epoch * self.settings.batch // self.processes
        means = torch.tensor([[total / self.per_epoch, right / seen]], dtype=torch.float64, device=self.device)
        loss, accuracy = self.gathered(means).mean(dim=0).tolist()
        return {"loss": loss, "train_accuracy": accuracy}

    def _move(self, step: Step) -> tuple[float, int]:
        """One update of the weights; the loss and right answers of its first pass."""
        hits = 0

        def closure() -> Tensor:
            nonlocal hits
            first, total = step.first, torch.zeros((), device=self.device)
            parts = step.losses()
            while True:
                with nullcontext() if self.fleet is None else self.fleet.autocast():
                    loss = next(parts, None)
                if loss is None:
                    break
                if first and "answer" in step._pass:
                    answers = step._pass["answer"][0].detach()[:, : self.classes]
                    hits = int((answers.argmax(dim=1) == step.labels).sum())
                self._backward(loss, step.number)
                total += loss.detach()
            if self.processes > 1:
                for p in self.model.parameters():
                    if p.grad is not None:
                        p.grad = self.fleet.reduce(p.grad, "mean")
            if self.settings.clip is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
            return total

        if self.wrapper is not None:
            return float(self.wrapper.step(closure)), hits
        self.optimiser.zero_grad()
        loss = closure()
        self.optimiser.step()
        return float(loss), hits

    def _backward(self, loss: Tensor, number: int) -> None:
        if not torch.isfinite(loss):
            raise RunError(
                f"the loss is {float(loss.detach())} at step {number + 1}; the last good state is that of the epoch "
                "before. Lower the learning rate, clip gradients, or look at the data"
            )
        loss.backward()  # type: ignore[no-untyped-call]

    @property
    def classes(self) -> int:
        """Classes of the training set."""
        return int(self.data.labels.max()) + 1

    @property
    def kept_model(self) -> nn.Module:
        """The network that is kept: the average, where there is one with something in it."""
        return self.model if self.average is None or self.average.updates == 0 else self.average.model

    def renew_statistics(self) -> None:
        """Estimate batch-norm statistics of the kept network over the training images, augmented as in training."""
        rows = np.arange(len(self.data))

        def batches() -> Any:
            for a in range(0, len(rows), self.settings.batch):
                some = rows[a : a + self.settings.batch]
                if len(some) > 1:
                    yield Step(self, some, self.settings.epochs, self.steps).images

        rebn(self.kept_model, batches())

    def state(self) -> dict[str, Any]:
        """All that training goes on from."""
        return {
            "model": self.model.state_dict(),
            "optimiser": (self.wrapper or self.optimiser).state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "memory": {name: thing.state_dict() for name, thing in self.memory.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.model.load_state_dict(state["model"])
        (self.wrapper or self.optimiser).load_state_dict(state["optimiser"])
        if self.average is not None and state["average"] is not None:
            self.average.load_state_dict(state["average"])
        self._saved_memory = state["memory"]


def _fleet(device: str, precision: Precision) -> Any:
    """Hugging Face accelerate, where several processes train together or in half precision; None for one alone."""
    _checks.choice(precision, "precision", ("float32", "bf16"))
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and precision == "float32":
        return None
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    except ImportError as error:
        raise MissingExtra('several processes and bf16 need accelerate: pip install "twofold[torch]"') from error
    AcceleratorState._reset_state()  # an earlier training of this process may have had another precision
    return Accelerator(cpu=device == "cpu", mixed_precision="no" if precision == "float32" else "bf16")


@contextmanager
def _enough_memory(batch: int) -> Iterator[None]:
    """One clear line where a batch does not fit."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        raise RunError(
            f"a batch of {batch} does not fit in memory; choose a smaller one, the last epoch is kept"
        ) from error


@contextmanager
def _compilable() -> Iterator[None]:
    """One clear line where PyTorch cannot compile the network; a compiler of C++ may be missing."""
    try:
        yield
    except RuntimeError as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        raise RunError(
            f"PyTorch cannot compile this network ({str(error).strip().splitlines()[0]}); train without it"
        ) from error


def _seed(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)


def _optimiser(s: Settings, parameters: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    if s.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr, s.momentum, weight_decay=s.weight_decay, nesterov=s.nesterov)
    kind = torch.optim.Adam if s.optimiser == "adam" else torch.optim.AdamW
    return kind(parameters, lr, weight_decay=s.weight_decay)


def _wrapped(part: Sharpness | None, optimiser: torch.optim.Optimizer, model: nn.Module) -> SAM | FSAM | None:
    if part is None:
        return None
    rho = part.rho
    if part.rho_relative:
        rho *= parameter_norm(model) / RESNET18_NORM
    if part.kind == "sam":
        return SAM(optimiser, model, rho=rho)
    return FSAM(optimiser, model, rho=rho, variant=part.variant)


def parameter_norm(model: nn.Module) -> float:
    """Compute the Euclidean norm of all parameters of a network, taken together.

    Parameters
    ----------
    model : torch.nn.Module
        The network; its buffers, such as batch-norm statistics, do not count.

    Returns
    -------
    float
        The norm, summed in double precision.

    Examples
    --------
    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 4.0]]))
    >>> _ = layer.bias.data.fill_(12.0)
    >>> parameter_norm(layer)
    13.0
    """
    squares = [float(p.detach().double().square().sum()) for p in model.parameters()]
    return math.sqrt(sum(squares))


def train(
    recipe: Recipe,
    model: nn.Module,
    data: Any,
    out: str | Path,
    *,
    val: Any = None,
    settings: Settings | None = None,
    prepare: Prepare | None = None,
    mixers: Mixers | None = None,
    outliers: Any = None,
    device: str | torch.device = "cpu",
    precision: Precision = "float32",
    compiled: bool = False,
    trained: bool = False,
    done: Callable[[Mapping[str, float]], Any] = lambda values: None,
) -> Trained:
    """Train a network by a recipe and keep weights, state and history in a folder; goes on where it stopped.

    ``data`` and ``val`` are rows of :mod:`twofold.nn.data` with labels of the network's classes. ``done`` is told the
    loss of every step and the values of every epoch. ``compiled``: PyTorch compiles the network first, for about a
    minute; steps are then faster, and differ by rounding alone. A network with a confidence branch runs as it is. A
    recipe of several stages keeps each in a folder of its own; ``trained``: the network has its weights already, and
    only the stages after the first are run. Under ``accelerate launch`` or torchrun each process takes its share of
    every batch and gradients are averaged. Batch norm then uses the statistics of a process's own share (those of the
    first are kept), and losses that couple samples (mixed pairs, CRL pairs, ranks) act within a share, or over the
    whole batch with ``gather`` in the settings.
    """
    chosen = settings or Settings()
    folder = _folder(Path(out))
    labels = np.asarray(data.labels)
    if labels.min() < 0:
        raise InvalidInput("every training row needs a label; rows labelled -1 are outliers, pass them as outliers=")
    told = {"recipe": str(recipe), "settings": asdict(chosen), "rows": len(data)}
    given: dict[str, Any] = {"prepare": prepare, "mixers": mixers, "outliers": outliers, "device": device}
    given |= {"precision": precision, "compiled": compiled}
    if recipe.get(Stages) is not None:
        found = list(_stages(recipe, model, data, folder, chosen, trained, val=val, done=done, **given))
        _write_tensors(folder / WEIGHTS, model.state_dict(), told)
        return Trained(folder / WEIGHTS, model, tuple(values for one in found for values in one.history), 1.0)
    training = Training(recipe, model, data, chosen, **given)
    if recipe.get(ReBN) is not None:
        training.renew_statistics()
        _write_tensors(folder / WEIGHTS, model.state_dict(), told)
        return Trained(folder / WEIGHTS, model.eval(), (), 1.0)
    start, history, best = _resumed(folder, training, told)
    for epoch in range(start, chosen.epochs):
        values = training.epoch(epoch, done)
        last = epoch + 1 == chosen.epochs
        averaged: Averaged | None = recipe.get(Averaged)
        if averaged is not None and averaged.rebn and (last or chosen.keep != "last"):
            training.renew_statistics()
        values |= {} if val is None else validate(training.kept_model, val, training.prepare, device)
        history.append({"epoch": epoch + 1, "lr": training.rate((epoch + 1) * training.per_epoch - 1), **values})
        value = _quality(values, chosen.keep)
        better = last if chosen.keep == "last" else value > best
        best = max(best, value) if better else best
        if better and training.leads:
            _write_tensors(folder / WEIGHTS, training.kept_model.state_dict(), told)
        if training.leads:
            progress = {"epoch": epoch + 1, "history": history, "best": best}
            _write_state(folder / STATE, training.state(), {**told, **progress})
            _write_history(folder / HISTORY, history)
        training.wait()
        done(history[-1])
    average = training.average
    window = average.window(average.updates) if isinstance(average, EMA) else float(average.updates) if average else 1.0
    _load_weights(model, folder / WEIGHTS)
    return Trained(folder / WEIGHTS, model.eval(), tuple(history), window)


def _stages(
    recipe: Recipe, model: nn.Module, data: Any, folder: Path, settings: Settings, trained: bool, **given: Any
) -> Iterator[Trained]:
    """One training after the other, each from the weights that the one before left in the network."""
    stages: Stages = recipe.get(Stages)
    if not trained:
        yield train(recipe - Stages, model, data, folder / "classifier", settings=settings, **given)
    for stage in stages.then:
        epochs = max(1, round(stage.epochs * settings.epochs))
        own = replace(settings, epochs=epochs, optimiser="adam", lr=stage.lr, weight_decay=0.0, warm_up=0, keep="last")
        yield train(stage.recipe, model, data, folder / stage.name, settings=own, **given)


@dataclass(frozen=True)
class Plan:
    """A training given as text, ready to begin: what ``twofold train`` does, or tells with ``--dry-run``."""

    name: str
    model: str
    recipe: Recipe
    settings: Settings
    data: Any
    val: Any
    prepare: Prepare
    mixers: Mixers | None
    outliers: Any
    checkpoint: str | None
    device: str
    precision: Precision
    compiled: bool

    @classmethod
    def of(
        cls,
        recipe: str,
        model: str,
        data: str,
        *,
        val: str | None = None,
        outliers: str | None = None,
        mixers: str | None = None,
        checkpoint: str | None = None,
        normalise: str = "none",
        preset: str = "cifar",
        device: str = "cpu",
        precision: Precision = "float32",
        compiled: bool = False,
        **changes: Any,
    ) -> Plan:
        """Open the data and check that everything fits together; ``changes`` are settings other than the preset's."""
        from twofold.nn import data as sets
        from twofold.nn.recipes import recipe as named

        if preset not in PRESETS:
            raise UnknownName.of("preset", preset, PRESETS)
        if normalise not in ("none", *sets.STATISTICS):
            raise UnknownName.of("statistics", normalise, ["none", *sets.STATISTICS])
        chosen = named(recipe)
        if chosen.get(FineTune) is not None and checkpoint is None:
            raise InvalidInput(f"{recipe} starts from a trained network; pass its weights with --checkpoint")
        opened = sets.open(data)
        outside = None if outliers is None else sets.open(outliers)
        shared = set(opened.class_names or ()) & set((outside and outside.class_names) or ())
        if shared:
            raise InvalidInput(
                f"outliers must be of classes that the network does not know; {', '.join(sorted(shared)[:3])} are in "
                "both sets"
            )
        pictures = None if mixers is None else Mixers.folder(mixers, size=round(max(opened.shape) * 9 / 8))
        settings = replace(PRESETS[preset], **{k: v for k, v in changes.items() if v is not None})
        prepare = Prepare() if normalise == "none" else Prepare(*sets.STATISTICS[normalise])
        held = None if val is None else sets.open(val)
        parts = recipe, model, chosen, settings, opened, held, prepare, pictures, outside
        return cls(*parts, checkpoint, device, precision, compiled)

    @property
    def classes(self) -> int:
        """Classes of the training set."""
        names = self.data.class_names
        if self.data.labels.min() < 0:
            raise InvalidInput(f"{self.data.name} has no labels to learn; name them, as in ?labels=FILE")
        return len(names) if names is not None else int(self.data.labels.max()) + 1

    @property
    def members(self) -> int:
        """Networks to train: more than one for an ensemble."""
        part = self.recipe.get(Members)
        return 1 if part is None else int(part.count)

    @property
    def steps(self) -> int:
        """Updates of the weights in all, those of later stages and of all members included."""
        if self.recipe.get(ReBN) is not None:
            return 0
        per_epoch = len(self.data) // self.settings.batch
        stages: Stages | None = self.recipe.get(Stages)
        later = () if stages is None else stages.then
        epochs = sum(max(1, round(stage.epochs * self.settings.epochs)) for stage in later)
        skipped = stages is not None and self.checkpoint is not None
        return self.members * per_epoch * (epochs + (0 if skipped else self.settings.epochs))

    def network(self, member: int = 0) -> nn.Module:
        """The network with what the recipe asks of it, from the checkpoint if there is one."""
        if self.model not in ZOO:
            if self.recipe.options:
                asked = ", ".join(f"{k}={v!r}" for k, v in self.recipe.options.items())
                raise InvalidInput(f"{self.name} needs a network with {asked}, which only those of the zoo can have")
            return load(self.model, classes=self.classes, checkpoint=self.checkpoint)
        made = build(self.model, self.classes, seed=self.settings.seed + member, **self.recipe.options)
        if self.checkpoint is not None:
            known = read_parameters(self.checkpoint)
            own = made.state_dict()
            fresh = {k: v for k, v in own.items() if k.startswith("confidence.layers.") and k not in known}
            load_parameters(made, {**fresh, **known}, source=str(self.checkpoint), expected=self.model)
        return made

    def describe(self, steps: int = 3) -> dict[str, Any]:
        """What would happen: the parts, the size, the passes of a step, and hours by a few measured steps."""
        model = self.network()
        training = Training(
            self.recipe,
            model,
            self.data,
            self.settings,
            prepare=self.prepare,
            mixers=self.mixers,
            outliers=self.outliers,
            device=self.device,
            precision=self.precision,
            compiled=self.compiled,
        )
        model.train()
        times = []
        for i in range(steps):
            begin = time.perf_counter()
            with _compilable():
                training._move(Step(training, np.arange(self.settings.batch), 0, i))
            times.append(time.perf_counter() - begin)
        return {
            "recipe": self.name,
            "parts": [repr(part) for part in self.recipe.parts],
            "network": self.model,
            "parameters": sum(p.numel() for p in model.parameters()),
            "classes": self.classes,
            "rows": len(self.data),
            "steps": self.steps,
            "passes_per_step": self.recipe.passes,
            "seconds_per_step": min(times),
            "hours": self.steps * min(times) / 3600,
            "settings": asdict(self.settings),
        }

    def run(self, out: str | Path, done: Callable[[Mapping[str, float]], Any] = lambda values: None) -> list[Trained]:
        """Train; the members of an ensemble go to folders of their own.

        With validation data, what the trained network says of them is in the folder ``run``, ready to be judged.
        """
        found = []
        for member in range(self.members):
            folder = Path(out) if self.members == 1 else Path(out) / f"member-{member}"
            found.append(
                train(
                    self.recipe,
                    self.network(member),
                    self.data,
                    folder,
                    val=self.val,
                    settings=replace(self.settings, seed=self.settings.seed + member),
                    prepare=self.prepare,
                    mixers=self.mixers,
                    outliers=self.outliers,
                    device=self.device,
                    precision=self.precision,
                    compiled=self.compiled,
                    trained=self.checkpoint is not None,
                    done=done,
                )
            )
        if self.val is not None:
            networks = [one.model for one in found]
            model = networks if len(networks) > 1 else networks[0]
            where = Path(out) / "run"
            given = {"name": "val", "role": "val", "prepare": self.prepare, "device": self.device, "replace": True}
            kept = {"model": self.model, "recipe": self.name, "seed": self.settings.seed}  # provenance
            extract(model, self.val, where, **given, **kept)  # type: ignore[arg-type]
        return found


@contextmanager
def tensorboard(folder: str | Path) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """A ``done`` for :func:`train` that writes every step's loss and every epoch's values for TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra('TensorBoard is not installed: pip install "twofold[tensorboard]"') from error
    with SummaryWriter(str(folder)) as writer:

        def done(values: Mapping[str, float]) -> None:
            if "step" in values:
                writer.add_scalar("step/loss", values["loss"], int(values["step"]))
                return
            for name, value in values.items():
                if name != "epoch":
                    writer.add_scalar(f"epoch/{name}", value, int(values["epoch"]))

        yield done


def validate(model: nn.Module, val: Any, prepare: Prepare, device: str | torch.device = "cpu") -> dict[str, float]:
    """Accuracy, AURC, AUGRC and average precision of failures of the maximum softmax probability on labelled images."""
    was = model.training
    model.eval()
    parts = []
    with torch.no_grad():
        for a in range(0, len(val), 512):
            rows = slice(a, min(a + 512, len(val)))
            parts.append(model(prepare(val.read(rows)).to(device)).double().cpu().numpy())
    model.train(was)
    labels = np.asarray(val.labels)
    z = np.concatenate(parts)[:, : int(labels.max()) + 1] if getattr(model, "abstain", False) else np.concatenate(parts)
    from twofold._math import log_odds

    right, conf = z.argmax(axis=1) == labels, log_odds(z)
    values = {"accuracy": float(right.mean()), "aurc": metrics.aurc(right, conf), "augrc": metrics.augrc(right, conf)}
    try:
        values["fail_ap"] = metrics.average_precision(right, conf, positive=False)
    except UndefinedMetric:
        values["fail_ap"] = math.nan  # no failure to find
    return values


def _quality(values: Mapping[str, float], keep: str) -> float:
    """The value by which an epoch is judged, larger is better."""
    if keep == "last":
        return 0.0
    if keep not in values:
        raise InvalidInput(f"keep={keep!r} needs validation data; pass val=")
    return -values[keep] if keep == "aurc" else values[keep]


# Files


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):  # nameless, because several processes ask at once
            pass
    except OSError as error:
        raise RunError(f"{path} cannot be written to ({error.strerror}); choose another folder") from error
    return path


def _flat(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A nested state as JSON, its tensors by number."""
    if isinstance(value, Tensor):
        tensors[str(len(tensors))] = value.detach().cpu().contiguous().clone()
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Mapping):
        return {"items": [[k, _flat(v, tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_flat(v, tensors) for v in value]}
    return {"value": value}


def _nested(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if "tensor" in value:
        return tensors[str(value["tensor"])]
    if "items" in value:
        return {k: _nested(v, tensors) for k, v in value["items"]}
    return [_nested(v, tensors) for v in value["list"]] if "list" in value else value["value"]


def _write_state(path: Path, state: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    tensors: dict[str, Tensor] = {}
    skeleton = _flat(state, tensors)
    _write_tensors(path, tensors, {**told, "state": skeleton})


def _write_tensors(path: Path, tensors: Mapping[str, Tensor], told: Mapping[str, Any]) -> None:
    from safetensors.torch import save

    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    with replacing(path) as file:
        file.write(save(plain, metadata=sealed_header(plain, json.dumps(told))))


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        return tensors, json.loads(opened_header(tensors, header))
    except InvalidInput as error:
        raise RunError(f"{path} {error}; delete it to start again") from error
    except (SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged or no state of training; delete it to start again") from error


def _load_weights(model: nn.Module, path: Path) -> None:
    tensors, _ = _read_tensors(path)
    model.load_state_dict(tensors)


def _resumed(folder: Path, training: Training, told: Mapping[str, Any]) -> tuple[int, list[dict[str, float]], float]:
    """Epochs done, their history and the best value so far, from an earlier attempt in this folder."""
    path = folder / STATE
    if not path.exists():
        return 0, [], -math.inf
    tensors, saved = _read_tensors(path)
    try:
        for key in ("recipe", "settings", "rows"):
            if saved[key] != json.loads(json.dumps(told[key])):
                raise RunError(f"{folder} holds another training ({key} differs); choose another folder, or delete it")
        epoch, history, best = int(saved["epoch"]), list(saved["history"]), float(saved["best"])
        training.restore(_nested(saved["state"], tensors))
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise RunError(f"{path} does not hold the state of this training; delete it to start again") from error
    return epoch, history, best


def _write_history(path: Path, history: list[dict[str, float]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(history[-1]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    with replacing(path) as file:
        file.write(text.getvalue().encode())
