"""A training described by text, as ``twofold train`` and studies take it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
from torch import nn

from twofold.errors import InvalidInput
from twofold.nn import data as images
from twofold.nn.device import check_device
from twofold.nn.extraction import Prepare, extract
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.models.adapted import check_input
from twofold.nn.models.load import Report, load
from twofold.nn.models.zoo import ZOO, paper_dropout
from twofold.nn.recipes import FineTune, Members, ReBN, Recipe, Stages
from twofold.nn.recipes import recipe as find_recipe
from twofold.nn.rows import ImageRows
from twofold.nn.training.epochs import check_sync_bn, prepare_training
from twofold.nn.training.loop import Trained, train
from twofold.nn.training.presets import find_preset
from twofold.nn.training.progress import Done, ignore_progress
from twofold.nn.training.settings import Precision, Settings, TrainingSetup
from twofold.nn.training.step import TrainingStep


class Description(TypedDict):
    """Say what a plan would do: its parts, its size, and how long it would take."""

    recipe: str
    parts: list[str]
    network: str
    parameters: int
    classes: int
    rows: int
    steps: int
    passes_per_step: int
    seconds_per_step: float
    hours: float
    settings: dict[str, object]


@dataclass(frozen=True)
class Plan:
    """Hold a training that was described by text, ready to start.

    Build one with :meth:`of`, which opens the data and checks that everything fits together.

    Parameters
    ----------
    name : str
        The recipe as text.
    model : str
        The network as text.
    recipe : Recipe
        The recipe.
    settings : Settings
        How long and how fast the network learns.
    data : Images
        The training set.
    val : ImageRows or None
        The validation set.
    prepare : Prepare
        Normalisation of the images.
    mixers : Mixers or None
        Pictures for PixMix.
    outliers : ImageRows or None
        Images of no known class.
    checkpoint : str or None
        File of weights to start from.
    device : str
        Where the network runs.
    precision : {"float32", "bf16"}
        Precision of forward passes.
    compiled : bool
        Whether to compile the network.
    workers : int, default=0
        Processes that read ahead.
    on_bad : {"stop", "skip"}, default="stop"
        What an unreadable image does.
    channels_last : bool, default=False
        Whether to store weights and images with the channels last in memory.
    sync_bn : bool, default=False
        Whether to take batch-norm statistics over the batch of all processes.
    ema_device : str, optional
        Where the average of weights is held.
    new_head : bool, default=False
        Whether the head of the checkpoint is left out.
    overrides : mapping from str to object
        Keywords of :func:`twofold.nn.load` that come before those of the recipe.
    """

    name: str
    model: str
    recipe: Recipe
    settings: Settings
    data: images.Images
    val: ImageRows | None
    prepare: Prepare
    mixers: Mixers | None
    outliers: ImageRows | None
    checkpoint: str | None
    device: str
    precision: Precision
    compiled: bool
    workers: int = 0
    on_bad: Literal["stop", "skip"] = "stop"
    channels_last: bool = False
    sync_bn: bool = False
    ema_device: str | None = None
    new_head: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)

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
        workers: int = 0,
        on_bad: Literal["stop", "skip"] = "stop",
        channels_last: bool = False,
        sync_bn: bool = False,
        ema_device: str | None = None,
        new_head: bool = False,
        head: str | None = None,
        head_kind: Literal["linear", "cosine"] | None = None,
        head_scale: float | None = None,
        dropout: float | Literal["paper"] | None = None,
        dropout_at: Literal["blocks", "head"] | None = None,
        **changes: object,
    ) -> Plan:
        """Open the data of a training and check that everything fits together.

        Parameters
        ----------
        recipe : str
            A recipe as :func:`twofold.nn.recipe` takes it.
        model : str
            A network of the zoo, or one as :func:`twofold.nn.load` takes it.
        data : str
            The training set as :func:`twofold.nn.data.open` takes it.
        val : str, optional
            The validation set, likewise.
        outliers : str, optional
            Images of no known class, likewise.
        mixers : str, optional
            Folder of pictures for PixMix; by default fractals are drawn.
        checkpoint : str, optional
            File of weights to start from.
        normalise : str, default="none"
            Name of the channel statistics, one of ``twofold.nn.data.STATISTICS``, or ``"none"``.
        preset : str, default="cifar"
            Name of the settings of a paper, one of ``PRESETS``; what it changes for this recipe is included.
        device : str, default="cpu"
            Where the network runs.
        precision : {"float32", "bf16"}, default="float32"
            Precision of forward passes.
        compiled : bool, default=False
            Compile the network first.
        workers : int, default=0
            Processes that read, decode and augment ahead; any number gives the same weights.
        on_bad : {"stop", "skip"}, default="stop"
            What an image that cannot be read does: end the training with its name, or be skipped and counted.
        channels_last : bool, default=False
            Store weights and images with the channels last in memory.
        sync_bn : bool, default=False
            With several processes, take batch-norm statistics over the whole batch; needs CUDA.
        ema_device : str, optional
            Where the average of weights is held; by default beside the network.
        new_head : bool, default=False
            Load every weight of the checkpoint but the head's, for other classes or another kind of head.
        head : str, optional
            Name of the last linear layer of a network that is not the zoo's; by default it is found.
        head_kind : {"linear", "cosine"}, optional
            Kind of the last layer; by default the recipe's.
        head_scale : float, optional
            Scale of a cosine head; by default the recipe's, or that of SURE for such a network.
        dropout : float or "paper", optional
            Rate of dropout, or the one of the paper that used the network
            (:func:`twofold.nn.models.paper_dropout`). By default the recipe's; recipes that have dropout take that of
            the preset, where it has one, as those of FD-Shifts do.
        dropout_at : {"blocks", "head"}, optional
            Where dropout is; see :func:`twofold.nn.load`.
        **changes
            Fields of :class:`Settings` that differ from the preset's; None leaves the preset's value.

        Returns
        -------
        Plan
            The plan.

        Raises
        ------
        UnknownName
            If there is no such recipe, preset or statistics.
        InvalidInput
            If a device cannot be used, a data set cannot be opened, the preset is not for this recipe or network, the
            recipe needs a checkpoint, or the outliers share a class with the training set.
        """
        found = find_preset(preset)
        place = check_device(device)
        if ema_device is not None:
            check_device(ema_device)
        if sync_bn:
            check_sync_bn(place)
        prepare = Prepare.named(normalise)
        composed = find_recipe(recipe, **found.parts_for(recipe))
        found.check_fits(preset, recipe, model)
        if composed.get(FineTune) is not None and checkpoint is None:
            raise InvalidInput(f"{recipe} starts from a trained network; pass its weights with --checkpoint")
        open_set = images.open if on_bad == "stop" else images.open_unread
        training_set = open_set(data)
        unknown = None if outliers is None else open_set(outliers)
        if unknown is not None and on_bad == "skip":
            unknown = images.drop_unreadable(unknown, workers=workers)
        if unknown is not None:
            _check_unknown(training_set.class_names, unknown.class_names)
        changed = {name: value for name, value in changes.items() if value is not None}
        settings = found.settings_for(recipe, changed).for_rows(len(training_set))
        pictures = None
        if mixers is not None:
            side = settings.input_side or max(training_set.shape)
            pictures = Mixers.folder(mixers, size=round(side * 9 / 8))
        return cls(
            name=recipe,
            model=model,
            recipe=composed,
            settings=settings,
            data=training_set,
            val=None if val is None else open_set(val),
            prepare=prepare,
            mixers=pictures,
            outliers=unknown,
            checkpoint=checkpoint,
            device=device,
            precision=precision,
            compiled=compiled,
            workers=workers,
            on_bad=on_bad,
            channels_last=channels_last,
            sync_bn=sync_bn,
            ema_device=ema_device,
            new_head=new_head,
            overrides=_network_overrides(
                composed,
                recipe,
                model,
                found.dropout,
                head_layer=head,
                head=head_kind,
                scale=head_scale,
                dropout=dropout,
                dropout_at=dropout_at,
            ),
        )

    @property
    def setup(self) -> TrainingSetup:
        """Where and on what the network is trained.

        Returns
        -------
        TrainingSetup
            Device, precision, normalisation, pictures and outliers of the plan.
        """
        return TrainingSetup(
            device=self.device,
            precision=self.precision,
            compiled=self.compiled,
            prepare=self.prepare,
            mixers=self.mixers,
            outliers=self.outliers,
            workers=self.workers,
            on_bad=self.on_bad,
            channels_last=self.channels_last,
            sync_bn=self.sync_bn,
            ema_device=self.ema_device,
        )

    @property
    def classes(self) -> int:
        """Number of classes in the training set.

        Raises
        ------
        InvalidInput
            If a row has no label.
        """
        if self.data.labels.min() < 0:
            raise InvalidInput(f"{self.data.name} has no labels to learn; name them, as in ?labels=FILE")
        if self.data.class_names is not None:
            return len(self.data.class_names)
        return int(self.data.labels.max()) + 1

    @property
    def members(self) -> int:
        """Number of networks to train: more than one for an ensemble.

        Member ``i`` is trained with the seed of the settings plus ``i``.
        """
        members = self.recipe.get(Members)
        return 1 if members is None else int(members.count)

    @property
    def steps(self) -> int:
        """Updates of the weights in all, with those of later stages and of all members.

        It is 0 where only batch-norm statistics are estimated.
        """
        if self.recipe.get(ReBN) is not None:
            return 0
        epochs = self.settings.epochs
        if self.recipe.get(Stages) is not None and self.is_trained:
            epochs = 0  # the first stage is trained already
        for stage in self.recipe.later_stages:
            epochs += stage.count_epochs(self.settings.epochs)
        return self.members * (len(self.data) // self.settings.batch) * epochs

    @property
    def is_trained(self) -> bool:
        """Whether the network starts with the weights of a classifier for the same classes.

        Recipes of several stages then begin with the second.
        """
        return self.checkpoint is not None and not self.new_head

    @property
    def input_shape(self) -> tuple[int, int]:
        """Height and width of the images that the network gets.

        They are those of the crop, or else of the training set.
        """
        side = self.settings.input_side
        if side is not None:
            return side, side
        height, width = self.data.shape
        return height, width

    def network(self, member: int = 0, report: Report | None = None) -> nn.Module:
        """Build the network with what the recipe asks of it, from the checkpoint if there is one.

        Parameters
        ----------
        member : int, default=0
            Number of the network in an ensemble, which is added to the seed.
        report : callable, optional
            Called with what was loaded, skipped and initialised, where there is a checkpoint.

        Returns
        -------
        torch.nn.Module
            The network.

        Raises
        ------
        InvalidInput
            If the network cannot have what the recipe asks for, takes images of another size, or the checkpoint does
            not fit.
        """
        options = {**self.recipe.options, **self.overrides}
        network = load(
            self.model,
            classes=self.classes,
            checkpoint=self.checkpoint,
            new_head=self.new_head,
            size=min(self.input_shape),
            seed=self.settings.seed + member,
            report=report,
            **options,
        )
        if self.model not in ZOO:
            check_input(network, self.input_shape, name=self.model)
        return network.train()

    def describe(self, steps: int = 3, report: Report | None = None) -> Description:
        """Measure a few steps and say what the training would do and how long it would take.

        Parameters
        ----------
        steps : int, default=3
            Number of steps to take; the fastest counts.
        report : callable, optional
            Called with what was loaded, where there is a checkpoint.

        Returns
        -------
        dict
            ``recipe``, its ``parts``, ``network``, number of its ``parameters``, ``classes``, ``rows``, ``steps``,
            ``passes_per_step``, ``seconds_per_step``, ``hours`` and ``settings``.
        """
        model = self.network(report=report)
        training = prepare_training(self.recipe, model, self.data, self.settings, self.setup)
        training.set_training_mode()
        rows = training.processes.own_share(np.arange(self.settings.batch))
        seconds = []
        for number in range(steps):
            start = time.perf_counter()
            training.update(TrainingStep(training, rows, 0, number))
            seconds.append(time.perf_counter() - start)
        fastest = min(seconds)
        return {
            "recipe": self.name,
            "parts": [repr(part) for part in self.recipe.parts],
            "network": self.model,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "classes": self.classes,
            "rows": len(self.data),
            "steps": self.steps,
            "passes_per_step": self.recipe.passes,
            "seconds_per_step": fastest,
            "hours": self.steps * fastest / 3600,
            "settings": asdict(self.settings),
        }

    def run(self, out: str | Path, done: Done = ignore_progress, report: Report | None = None) -> list[Trained]:
        """Train all networks of the plan; run it again to resume.

        With validation data, the outputs of the trained network on them are in the folder ``run``, ready to be
        evaluated.

        Parameters
        ----------
        out : str or Path
            Folder of the files; the members of an ensemble go to folders of their own in it.
        done : callable, optional
            Called with the values of every step and every epoch.
        report : callable, optional
            Called with what was loaded into each network, where there is a checkpoint.

        Returns
        -------
        list of Trained
            One entry for each network.

        Raises
        ------
        InvalidInput, RunError
            What :func:`~twofold.nn.training.train` raises.
        """
        results = []
        for member in range(self.members):
            folder = Path(out) if self.members == 1 else Path(out) / f"member-{member}"
            results.append(self._train_member(member, folder, done, report))
        if self.val is not None:
            networks = [result.model for result in results]
            extract(
                networks if len(networks) > 1 else networks[0],
                self.val,
                Path(out) / "run",
                name="val",
                role="val",
                prepare=self.prepare,
                device=self.device,
                workers=self.workers,
                on_bad=self.on_bad,
                seed=self.settings.seed,
                replace=True,
                model=self.model,
                recipe=self.name,
            )
        return results

    def _train_member(self, member: int, folder: Path, done: Done, report: Report | None) -> Trained:
        return train(
            self.recipe,
            self.network(member, report),
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
            workers=self.workers,
            on_bad=self.on_bad,
            channels_last=self.channels_last,
            sync_bn=self.sync_bn,
            ema_device=self.ema_device,
            trained=self.is_trained,
            done=done,
        )


def _network_overrides(
    recipe: Recipe, text: str, model: str, preset_rate: float | None, **asked: object
) -> dict[str, object]:
    """Return the keywords of the network that were asked for, with the paper's rate where that is meant."""
    overrides = {name: value for name, value in asked.items() if value is not None}
    name = model.partition(":")[2] if model.startswith("timm:") else model
    rate = paper_dropout(name.partition("?")[0]) if preset_rate is None else preset_rate
    if asked["dropout"] == "paper":
        if rate is None:
            raise InvalidInput(f"no paper of the presets used dropout with {model}; give a rate")
        overrides["dropout"] = rate
    is_open = "dropout" in recipe.options and "rate=" not in text and asked["dropout"] is None
    if is_open and preset_rate is not None:
        overrides["dropout"] = preset_rate
    if overrides.get("head") == "linear":
        overrides["scale"] = None  # that of the recipe's cosine head
    return overrides


def _check_unknown(known: tuple[str, ...] | None, outliers: tuple[str, ...] | None) -> None:
    """Raise an error if outliers are of a class that the network is to learn."""
    shared = sorted(set(known or ()) & set(outliers or ()))
    if shared:
        raise InvalidInput(
            f"outliers must be of classes that the network does not know; {', '.join(shared[:3])} are in both sets"
        )
