"""``twofold bench classes``: which known classes unknown inputs are taken for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from twofold.cli.options import RUN
from twofold.cli.shared import JSON, from_torch


@click.command("classes")
@click.argument("run", type=RUN)
@click.option("--name", required=True, help="Data set of the run.")
@click.option("--data", required=True, help="The images that it was extracted from, in the words of `twofold extract`.")
@click.option("--top", type=click.IntRange(min=1), default=3, show_default=True, help="Known classes to print of each.")
@JSON
def classes_command(run: Path, name: str, data: str, top: int, as_json: bool) -> None:
    """Show which known classes the classes of a data set are taken for, by mean probability.

    RUN holds the outputs of a network on the data set; its classes come from the images themselves, so that they may be
    unknown to the network.

    \b
      twofold bench classes my-run --name svhn --data svhn:data/svhn/test_32x32.mat
    """
    from twofold.bench.class_means import mean_probabilities
    from twofold.errors import InvalidInput
    from twofold.run import Run

    outputs = Run.open(run)[name]
    images = from_torch("data").open(data)
    if len(images) != len(outputs):
        raise InvalidInput(f"{name} of {run} has {len(outputs)} rows, but {data} has {len(images)}")
    found = mean_probabilities(outputs, images.labels, images.class_names)
    known = outputs.class_names or tuple(map(str, range(outputs.classes)))
    if as_json:
        click.echo(json.dumps({"known": list(known), "classes": [asdict(one) for one in found]}, indent=2))
        return
    for one in found:
        best = np.argsort(one.probabilities)[::-1][:top]
        listed = ", ".join(f"{known[place]} {100 * one.probabilities[place]:.1f} %" for place in best)
        click.echo(f"{one.name:<20} {one.count:>6}  {listed}")
