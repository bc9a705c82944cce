"""``twofold bench transfer``: thresholds of validation data on test data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twofold.cli.options import BENCHMARK, METHOD_OF_THRESHOLDS, RUN, SCORE
from twofold.cli.shared import JSON

if TYPE_CHECKING:
    from twofold.bench.transfer import TransferredPoint
    from twofold.metrics.evaluate import EvaluationMethod


@click.command("transfer")
@click.argument("name", type=BENCHMARK)
@click.option("--run", required=True, type=RUN, help="Folder of a run.")
@click.option("--id", "id_score", type=SCORE, default="msp", show_default=True, help="Score of correct against wrong.")
@click.option("--ood", "ood_score", type=SCORE, required=True, help="Score of known against unknown inputs.")
@click.option("--choose", default="val+ood_val", show_default=True, help="Known and unknown data to choose on.")
@click.option("--judge", required=True, help="Known and unknown data to judge on, such as test+mnist.")
@METHOD_OF_THRESHOLDS
@JSON
def transfer_command(
    name: str,
    run: Path,
    id_score: str,
    ood_score: str,
    choose: str,
    judge: str,
    method: EvaluationMethod,
    as_json: bool,
) -> None:
    """Choose thresholds on validation data, and judge them on test data.

    For the ID score alone, the OOD score alone, and both together, the thresholds of best F1 on --choose are kept for
    --judge, beside the best thresholds that --judge itself would have. Thresholds of msp are probabilities.

    \b
      twofold bench transfer digits --run twofold-demo --ood energy --choose val+ood_val --judge test+noise
    """
    from twofold.bench.catalogue import load
    from twofold.bench.transfer import transfer_thresholds

    points = transfer_thresholds(
        load(name),
        run,
        id_score=id_score,
        ood_score=ood_score,
        choose=_split(choose, "--choose"),
        judge=_split(judge, "--judge"),
        method=method,
    )
    if as_json:
        click.echo(json.dumps([asdict(point) for point in points], indent=2))
        return
    _print_points(points)


def _split(text: str, option: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split("+")]
    if len(parts) != 2:
        raise click.UsageError(f"{option} must be a known and an unknown data set, such as val+cifar10, got {text!r}")
    return parts[0], parts[1]


def _print_points(points: Sequence[TransferredPoint]) -> None:
    """Print one line for each point."""
    titles = {"chosen": "where chosen", "moved": "moved", "best": "best there"}
    width = max(len(point.data) for point in points)
    click.echo(f"{'thresholds':<12}  {'scores':<6}  {'data':<{width}}  {'tau_id':>8}  {'tau_ood':>9}     F1 %")
    for point in points:
        tau_id = "" if point.tau_id is None else f"{point.tau_id:.3f}"
        tau_ood = "" if point.tau_ood is None else f"{point.tau_ood:.3f}"
        head = f"{titles[point.stage]:<12}  {point.scoring:<6}  {point.data:<{width}}"
        click.echo(f"{head}  {tau_id:>8}  {tau_ood:>9}  {100 * point.f1:7.2f}")
