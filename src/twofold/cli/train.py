"""``twofold train``: train a network by a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from twofold.cli.options import AUGMENTATIONS, DROPS, MODEL, ON_BAD, POSITIVE_SHARE, PRESET, RATE, RECIPE, WORKERS
from twofold.cli.shared import JSON, from_torch, progress, resumable


@click.command("train")
@click.option(
    "--recipe",
    required=True,
    type=RECIPE,
    help="Recipe, as sure_plus(rho=0.1); see `twofold list recipes`.",
)
@click.option("--model", required=True, type=MODEL, help="Network of twofold.nn; see `twofold list models`.")
@click.option("--data", required=True, help="Training set, such as cifar100:PATH?split=train.")
@click.option("--val", help="Validation set, judged after every epoch.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for weights, state and history.")
@click.option(
    "--preset",
    type=PRESET,
    default="cifar",
    show_default=True,
    help="Settings of a paper; see `twofold list presets`. The options below change them one by one.",
)
@click.option("--epochs", type=click.IntRange(min=1), help="Number of epochs.")
@click.option("--steps", type=click.IntRange(min=1), help="Number of updates, instead of epochs; rounded to epochs.")
@click.option("--batch", type=click.IntRange(min=2), help="Batch size.")
@click.option("--optimiser", type=click.Choice(["sgd", "adam", "adamw"]), help="Optimiser.")
@click.option("--lr", type=float, help="Learning rate at the start of the schedule.")
@click.option("--weight-decay", type=float, help="Weight decay.")
@click.option("--momentum", type=float, help="Momentum of SGD, below 1.")
@click.option("--nesterov/--no-nesterov", default=None, help="Nesterov's momentum in SGD.")
@click.option("--schedule", type=click.Choice(["cosine", "drops", "constant"]), help="Learning rate over the run.")
@click.option("--schedule-per", type=click.Choice(["step", "epoch"]), help="How often the schedule moves.")
@click.option(
    "--drops",
    type=DROPS,
    help="When --schedule drops lowers the rate: epochs, as 30,60, or shares of the run, as 0.3,0.6.",
)
@click.option("--drop-factor", type=float, help="What the rate is multiplied by at a drop.")
@click.option("--min-lr", type=float, help="Where the cosine ends.")
@click.option("--warm-up", type=click.IntRange(min=0), help="Steps of linear warm-up.")
@click.option("--warm-up-epochs", type=float, help="Epochs of linear warm-up, instead of steps.")
@click.option("--augment", type=AUGMENTATIONS, help="Augmentations in order, as padded_crop,flip; 'none' for none.")
@click.option(
    "--keep", type=click.Choice(["last", "accuracy", "aurc", "fail_ap"]), help="Which epoch's weights to keep."
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of weights, order and augmentation.")
@click.option("--normalise", default="none", show_default=True, help="Statistics: cifar10, imagenet, ...")
@click.option(
    "--resize", type=click.IntRange(min=1), help="Shorter side before the centre crop; by default 8/7 of --crop."
)
@click.option(
    "--crop",
    type=click.IntRange(min=1),
    help="Side of the network's input, such as 224; needed for images of mixed size.",
)
@click.option(
    "--draft/--no-draft",
    default=None,
    help="Whether random crops of JPEG files are decoded at reduced size where that is enough.",
)
@WORKERS
@ON_BAD
@click.option("--outliers", help="Images of no known class, for oe and energy_finetune.")
@click.option("--mixers", type=click.Path(), help="Folder of pictures for PixMix; by default fractals are generated.")
@click.option("--checkpoint", type=click.Path(), help="Weights to start from: a file, or a folder of weights.")
@click.option("--new-head", is_flag=True, help="Load all weights but the head's, for other classes.")
@click.option("--head", help="Name of the last linear layer, if it is not found automatically.")
@click.option("--head-kind", type=click.Choice(["linear", "cosine"]), help="Last layer, instead of the recipe's.")
@click.option(
    "--head-scale", type=click.FloatRange(0, min_open=True), help="Scale of a cosine head: 8, or 64 for ViTs."
)
@click.option("--dropout", type=RATE, help="Rate of dropout, or 'paper' for that of the network's paper.")
@click.option("--dropout-at", type=click.Choice(["blocks", "head"]), help="Dropout in all blocks or before the head.")
@click.option("--freeze", help="What does not learn: none, backbone, or a number of stages from the input.")
@click.option("--layer-decay", type=POSITIVE_SHARE, help="Learning rate of a block over that of the next, as 0.75.")
@click.option("--head-lr", type=click.FloatRange(0), help="Learning rate of the head, instead of --lr.")
@click.option("--device", default="cpu", show_default=True, help="Where the network runs.")
@click.option(
    "--precision",
    type=click.Choice(["float32", "bf16"]),
    default="float32",
    show_default=True,
    help="Precision of forward and backward passes.",
)
@click.option(
    "--compile", "compiled", is_flag=True, help="Compile the passes: takes a minute at first, then steps are faster."
)
@click.option("--channels-last", is_flag=True, help="Store weights and images with the channels last in memory.")
@click.option(
    "--accumulate",
    type=click.IntRange(min=1),
    help="Cut each batch into so many micro-batches and add up their gradients, to save memory.",
)
@click.option("--clip-norm", type=float, help="Largest norm of the gradient of all parameters.")
@click.option("--ema-device", help="Device that holds the average of weights, such as cpu; by default --device.")
@click.option(
    "--gather",
    is_flag=True,
    default=None,
    help="Form pairs and ranks over the batch of all processes and micro-batches.",
)
@click.option("--sync-bn", is_flag=True, help="Take batch-norm statistics over the batch of all processes; needs CUDA.")
@click.option("--tensorboard", is_flag=True, help="Write the history for TensorBoard too, to a folder in --out.")
@click.option("--dry-run", is_flag=True, help="Say what would be done and how long it would take.")
@JSON
@resumable
def train_command(out: Path, tensorboard: bool, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Train a network by a recipe, from plain cross-entropy to SURE+.

    Weights, state and history are written to --out after every epoch. Rerun the command to resume an interrupted
    training; it ends with the same weights as one that was never interrupted. Start it with torchrun or accelerate
    launch to train in several processes, which share every batch; the first one prints the result.

    Start from trained weights with --checkpoint. With --new-head, all but the last layer are loaded, for another number
    of classes; what was loaded, skipped and initialised goes to standard error. Frozen batch norm keeps its statistics.

    \b
      twofold train --recipe sure_plus --model resnet18_32 --data cifar100:PATH?split=train --out run --dry-run
      twofold train --recipe "sure_plus(rho=0.1, mixup_weight=0.5)" --preset sure_plus_cifar_printed ...
      twofold train --recipe basic --schedule drops --drops 30,60 --epochs 90 --lr 0.1 --nesterov ...
    """
    training = from_torch("training")
    plan = training.Plan.of(options.pop("recipe"), options.pop("model"), options.pop("data"), **options)
    if dry_run:
        described = plan.describe(report=_print_loaded if training.is_first_process() else None)
        if training.is_first_process():
            _print_plan(described, as_json=as_json)
        return
    if not training.is_first_process():
        plan.run(out)
        return
    events = training.tensorboard(out / "tensorboard") if tensorboard else nullcontext(lambda values: None)
    with progress(rate=True) as bar, events as write:
        task = bar.add_task("training", total=plan.steps)

        def show(values: Mapping[str, float]) -> None:
            write(values)
            if "step" in values:
                bar.update(task, advance=1, description=f"loss {values['loss']:.4f}")

        trained = plan.run(out, show, _print_loaded)

    rows = []
    for one in trained:
        last_epoch = one.history[-1] if one.history else {}
        rows.append({"weights": str(one.path), "averaged": one.window, **last_epoch})
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo("  ".join(f"{name} {_short(value)}" for name, value in row.items()))


def _print_loaded(loaded: object) -> None:
    """Say on standard error what was loaded from a checkpoint."""
    click.echo(str(loaded), err=True)


def _print_plan(plan: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(plan, indent=2))
        return
    for key, value in plan.items():
        click.echo(f"{key}: {value}")


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
