"""``twofold demo``: the whole way on embedded data, in less than a minute."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from twofold.cli.intervals import format_interval, interval_as_json
from twofold.cli.options import RESAMPLES
from twofold.cli.shared import JSON, progress

if TYPE_CHECKING:
    from rich.console import Console

    from twofold.demo import Row

WIDE = 105  # columns of a terminal on which a value and its interval fit on one line


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="twofold-demo",
    show_default=True,
    help="Folder for the run that is written.",
)
@RESAMPLES
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the split, the training and the resamples.",
)
@JSON
def demo_command(out: str, resamples: int, seed: int, as_json: bool) -> None:
    """Train a small classifier of digits and judge it on what it knows and does not know.

    Trains on digits 0 to 6, writes a run, tries every pair of the usual scores on validation data, as `twofold report`
    does, and prints the joint table of the best pairs (by DS-F1) beside the plain ones. Digits 7 to 9 are near OOD,
    patches of photographs far OOD. Takes less than a minute and downloads nothing.

    The run of an earlier demo is replaced; any other folder is left alone.

    \b
      twofold demo
      twofold demo --json > demo.json
    """
    from twofold import demo

    with progress() as bar:
        task = bar.add_task("training", total=demo.steps())
        rows, chosen = demo.demo(
            out,
            resamples=resamples,
            seed=seed,
            done=lambda what: bar.update(task, advance=1, description=what),
        )
    if as_json:
        click.echo(json.dumps([_row_as_json(row) for row in rows], indent=2))
        click.echo(f"The pairs are the best of {chosen.tried} by DS-F1 on validation data.", err=True)
    else:
        _print_rows(rows)
        click.echo(f"\nChosen on validation data: {chosen}")
    click.echo(f"The run is in {out}; read it with twofold.Run.open({out!r}).", err=True)


def _print_rows(rows: list[Row]) -> None:
    """Print one table per OOD set: metrics down, pairs of scores across."""
    from rich.console import Console

    from twofold.metrics import coverage_note
    from twofold.report import JOINT

    console = Console(width=None if sys.stdout.isatty() else 120)
    for ood_set in dict.fromkeys(row.ood_set for row in rows):
        _print_table(console, ood_set, [row for row in rows if row.ood_set == ood_set])

    metrics_by_note: dict[str, list[str]] = {}
    for heading, _, note in JOINT.values():
        metrics_by_note.setdefault(note, []).append(heading.split()[0])
    for note, headings in metrics_by_note.items():
        _print_note(console, f"{', '.join(headings)}: {note}")
    _print_note(console, f"Registered names: {', '.join(JOINT)}.")
    _print_note(console, f"Areas, {coverage_note(JOINT)}.")


def _print_table(console: Console, ood_set: str, rows: Iterable[Row]) -> None:
    from rich.table import Table

    from twofold.report import JOINT

    gap = " " if console.width >= WIDE else "\n"
    table = Table(title=f"{ood_set} OOD (95 % intervals)", title_justify="left")
    table.add_column("metric", no_wrap=True)
    for row in rows:
        table.add_column(f"{row.id_score} + {row.ood_score}", justify="right")
    for metric, (heading, factor, _) in JOINT.items():
        cells = [format_interval(row.values[metric], factor=factor, digits=1, gap=gap) for row in rows]
        table.add_row(heading, *cells)
    console.print(table)


def _print_note(console: Console, text: str) -> None:
    console.print(text, style="dim", highlight=False)


def _row_as_json(row: Row) -> dict[str, object]:
    values = {name: interval_as_json(interval) for name, interval in row.values.items()}
    return {"ood_set": row.ood_set, "id_score": row.id_score, "ood_score": row.ood_score, "metrics": values}
