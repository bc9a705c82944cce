"""``twofold extract``: run a network once over data sets."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from twofold.cli.options import MODEL, ON_BAD, ROLE, WORKERS
from twofold.cli.shared import JSON, from_torch, progress, resumable

if TYPE_CHECKING:
    from twofold.run import Run


@click.command("extract")
@click.argument("model", type=MODEL)
@click.option(
    "--data",
    "specs",
    multiple=True,
    required=True,
    help="Data set, such as sheet:test.webp or text:test.csv; may be repeated.",
)
@click.option("--role", "roles", multiple=True, required=True, type=ROLE, help="Role of each data set.")
@click.option("--name", "names", multiple=True, help="Name of each data set in the run; by default its role.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the run, new or existing.")
@click.option("--checkpoint", "checkpoints", multiple=True, help="Weights; several are a deep ensemble.")
@click.option("--classes", type=click.IntRange(min=1), help="Classes of a model that is built by name.")
@click.option("--head", help="Name of the last linear layer, if it is not found automatically.")
@click.option(
    "--normalise", help="ID statistics: cifar10, imagenet, ...; by default those of the training folder, or none."
)
@click.option(
    "--resize", type=click.IntRange(min=1), help="Shorter side before the centre crop; by default 8/7 of --crop."
)
@click.option(
    "--crop", type=click.IntRange(min=1), help="Side of the centre crop; by default that of the training folder."
)
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Images or texts per batch.")
@click.option("--device", default="cpu", show_default=True, help="Where the network runs.")
@WORKERS
@ON_BAD
@click.option("--layers", help="Record layer statistics: names separated by commas, or 'all'.")
@click.option("--passes", type=click.IntRange(min=0), default=0, show_default=True, help="MC-dropout passes.")
@click.option("--keep-passes", is_flag=True, help="Keep the logits of every pass, not only their means.")
@click.option("--odin", type=float, help="Record ODIN with this step, in pixels of [0, 1].")
@click.option(
    "--odin-grid",
    help="Record ODIN at all temperatures and steps, as 1,10:0,0.002; read by odin(temperature=10, epsilon=0.002).",
)
@click.option("--mahalanobis", type=float, help="Record mds_perturbed with this step; extract train first.")
@click.option("--rankfeat", help="Record RankFeat of these layers, separated by commas.")
@click.option("--iodin", type=float, help="Record iODIN with this step, in pixels of [0, 1].")
@click.option("--pro", help="Record PRO of these scores, separated by commas: msp, entropy, gen.")
@click.option("--adascale", is_flag=True, help="Record the features of perturbed images that adascale reads.")
@click.option("--extremes", is_flag=True, help="Record the extreme inputs of all ReLUs, which combood reads.")
@click.option("--half", is_flag=True, help="Store features in float16; logits stay in float32.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the passes; recorded as the network's seed.")
@click.option("--replace", is_flag=True, help="Overwrite data sets that the run already has.")
@JSON
@resumable
def extract_command(
    model: str,
    specs: tuple[str, ...],
    roles: tuple[str, ...],
    names: tuple[str, ...],
    out: Path,
    checkpoints: tuple[str, ...],
    as_json: bool,
    **options: object,
) -> None:
    """Run a network once over data sets and write a run.

    MODEL is timm:NAME, torchvision:NAME, hf:FOLDER, clip:FOLDER?names=FILE (a zero-shot classifier, class names one to
    a line), file.py:function, a network of twofold.nn (see `twofold list models`) or a folder of `twofold train`. All
    data are read where they are; nothing is downloaded. The run holds logits, labels, features and the last layer
    of each data set; every other command reads it. Texts go through the model's own tokenizer, and names of classes
    through its label2id.

    Rerun the command to resume an interrupted extraction; complete data sets are skipped. Launch it with torchrun to
    split the work across processes.

    \b
      twofold extract resnet20_cifar --checkpoint weights.npz --classes 10 --normalise imagenet \\
        --data sheet:cifar10_test.webp?labels=image_labels.npz --role test --out run
      twofold extract hf:my-bert --data "text:queries.csv?text=query&label=intent" --role test --out run
    """
    extract_all = from_torch("extraction").extract_all
    names = names or roles
    if not len(specs) == len(roles) == len(names):
        counts = f"{len(specs)} --data, {len(roles)} --role and {len(names)} --name"
        raise click.UsageError(f"give one --role for each --data, and a --name for each or for none; got {counts}")
    with progress(rate=True) as bar:
        task = bar.add_task("loading", total=None)
        run = extract_all(
            model,
            list(zip(specs, roles, names, strict=True)),
            out,
            checkpoints=checkpoints,
            begin=lambda name, rows: bar.reset(task, total=rows, description=name),
            done=lambda rows: bar.advance(task, rows),
            command=" ".join(sys.argv[1:]),
            **options,
        )
    print_data_sets(out, [summarise(run, name) for name in names], as_json=as_json)


class SetSummary(TypedDict):
    """Hold what is printed about a data set of a run."""

    name: str
    role: str
    rows: int


def summarise(run: Run, name: str) -> SetSummary:
    """Return what is printed of a data set of a run.

    Parameters
    ----------
    run : Run
        The run.
    name : str
        Name of the data set.

    Returns
    -------
    SetSummary
        Its name, role and number of rows.
    """
    return {"name": name, "role": run.roles[name], "rows": len(run[name])}


def print_data_sets(run: Path, rows: Sequence[SetSummary], *, as_json: bool) -> None:
    """Print the data sets of a run.

    Parameters
    ----------
    run : Path
        Folder of the run.
    rows : sequence of SetSummary
        What is printed of each data set.
    as_json : bool
        Whether to print JSON.
    """
    if as_json:
        click.echo(json.dumps({"run": str(run), "data": rows}, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']}  ({row['role']})  {row['rows']} rows")
