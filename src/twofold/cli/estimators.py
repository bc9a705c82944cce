"""``twofold bench estimators``: how well AURC is estimated from few samples."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twofold._files import replacing
from twofold.cli.options import SCORE
from twofold.cli.shared import JSON, REPLACE, check_target, progress

if TYPE_CHECKING:
    from twofold.bench.estimators import EstimatorCell, Loss


@click.command("estimators")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "--loss", "losses", multiple=True, type=click.Choice(["0/1", "ce"]), help="Loss; may be repeated. By default both."
)
@click.option("--score", "scores", multiple=True, type=SCORE, help="Confidence; may be repeated. By default msp.")
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.IntRange(min=2),
    help="Batch size; may be repeated. By default 8 to 1024.",
)
@click.option("--whole", is_flag=True, help="Also apply the estimators to the whole data set.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="CSV file to write, a line for each cell.")
@REPLACE
@JSON
def estimators_command(
    sources: tuple[str, ...],
    losses: tuple[Loss, ...],
    scores: tuple[str, ...],
    sizes: tuple[int, ...],
    whole: bool,
    out: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Measure the bias, spread and error of AURC estimators on random batches of saved outputs.

    SOURCE is a run (RUN or RUN?set=NAME), an npz file as `twofold evaluate` takes it, or one with other keys:
    FILE.npz?logits=KEY&labels=KEY, FILE.npz?probs=KEY&labels=KEY, or FILE.npz?conf=KEY&pred=KEY&labels=KEY.

    \b
      twofold bench estimators twofold-demo --loss 0/1 --size 32 --size 128
      twofold bench estimators outputs.npz --score msp --score entropy --out cells.csv
    """
    from twofold.bench.estimators import LOSSES, SIZES, cells_to_csv, measure_estimators
    from twofold.bench.saved import name_sources, read_saved

    if out is not None:
        check_target(out, replace=replace)
    outputs = {name: read_saved(source) for name, source in name_sources(sources).items()}
    with progress() as bar:
        task = bar.add_task("batches", total=None)
        cells = measure_estimators(
            outputs,
            losses=losses or LOSSES,
            scores=scores or ("msp",),
            sizes=sizes or SIZES,
            whole=whole,
            progress=lambda label, count, total: bar.update(task, description=label, completed=count, total=total),
        )
    if out is not None:
        with replacing(out) as file:
            file.write(cells_to_csv(cells).encode())
        click.echo(f"{len(cells)} cells are in {out}.", err=True)
    if as_json:
        click.echo(json.dumps([_cell_as_json(cell) for cell in cells], indent=2))
    elif out is None:
        _print_cells(cells)


def _cell_as_json(cell: EstimatorCell) -> dict[str, object]:
    derived = {"rmse": cell.rmse, "published_mse": cell.published_mse, "published_mae": cell.published_mae}
    return {**asdict(cell), **derived}


def _print_cells(cells: list[EstimatorCell]) -> None:
    """Print a line for each cell; areas x1000."""
    width = max(len(cell.model) for cell in cells)
    click.echo(f"{'':<{width}}  loss  score            size  estimator        AURC    bias     RMSE      MAE  (x1000)")
    for cell in cells:
        numbers = f"{1e3 * cell.population:8.2f} {1e3 * cell.bias:+8.2f} {1e3 * cell.rmse:8.2f} {1e3 * cell.mae:8.2f}"
        click.echo(
            f"{cell.model:<{width}}  {cell.loss:<4}  {cell.score:<15}{cell.size:>6}  {cell.estimator:<13}{numbers}"
        )
