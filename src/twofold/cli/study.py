"""Verbs of studies: ``twofold study ...``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import STUDY, AliasedOption
from twofold.cli.shared import JSON, Verbs, progress, resumable

if TYPE_CHECKING:
    from twofold.study import Estimate

FOLDER = click.Path(path_type=Path, file_okay=False)
ROOT = click.option("--root", type=click.Path(path_type=Path), help="Folder of data; by default $TWOFOLD_DATA.")
PRESET = click.option("--preset", help="Other values that the file has under this name, such as full.")
DEVICE = click.option("--device", default="cpu", show_default=True, help="Where the network runs.")


@click.group("study", cls=Verbs)
def study_group() -> None:
    """Train, extract and judge many recipes with many seeds, cell by cell; every subcommand takes --json.

    \b
      twofold study list
      twofold study run sure_plus --out sure_plus --minutes 60
    """


@study_group.command("list")
@JSON
def list_command(as_json: bool) -> None:
    """List the studies that come with the package.

    \b
      twofold study list
    """
    from twofold.study import titles

    found = titles()
    if as_json:
        click.echo(json.dumps([{"name": name, "title": title} for name, title in found.items()], indent=2))
        return
    width = max(map(len, found))
    for name, title in found.items():
        click.echo(f"{name:<{width}}  {title}")


@study_group.command("show")
@click.argument("file", type=STUDY)
@click.option("--out", type=FOLDER, default=Path("study"), show_default=True, help="Folder of what is done already.")
@PRESET
@click.option("--time/--no-time", "timed", default=True, show_default=True, help="Measure a few steps of every row.")
@DEVICE
@ROOT
@JSON
def show_command(
    file: str, out: Path, preset: str | None, timed: bool, device: str, root: Path | None, as_json: bool
) -> None:
    """Show the cells of a study, what is done, and how long it takes.

    FILE is one of `twofold study list`, or a TOML file of one's own. Without the data the plan is shown, and why there
    is no estimate of the time.

    \b
      twofold study show sure_plus --out sure_plus
      twofold study show sure_plus --preset full --no-time
    """
    from twofold.errors import TwofoldError
    from twofold.study import estimate as estimated
    from twofold.study import finished, load

    study = load(file, preset=preset)
    cells = study.cells()
    done = set(finished(study, out))
    minutes: dict[str, float] = {}
    estimate = None
    problem = ""
    if timed:
        try:
            with progress() as bar:
                bar.add_task("measuring a few steps of every row", total=None)
                estimate = estimated(study, out, root=root, device=device)
            minutes = dict(estimate.minutes)
        except TwofoldError as error:  # the plan is there without data or device
            problem = str(error)
    rows = [
        {"cell": c.name, "recipe": c.row.text, "seed": c.seed, "starts_from": c.start, "benchmark": c.benchmark.name}
        | {"finished": c.name in done, "minutes": minutes.get(c.name)}
        for c in cells
    ]
    if as_json:
        told: dict[str, Any] = {"name": study.name, "title": study.title, "model": study.model, "cells": rows}
        if estimate is not None:
            told |= {"hours": estimate.hours, "hours_left": estimate.hours_left}
        if problem:
            told["no_estimate"] = problem
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{study.title}\n{study.source}\n")
    width = max(len(c.name) for c in cells)
    for row in rows:
        state = "done" if row["finished"] else "    "
        needs = "" if row["minutes"] is None else f"{row['minutes']:8.1f} min"
        click.echo(f"{row['cell']:<{width}}  {state} {needs}  {row['recipe']}")
    click.echo(f"\n{len(done)} of {len(cells)} cells are finished.")
    if estimate is not None:
        click.echo(f"About {estimate.hours:.1f} hours in all, {estimate.hours_left:.1f} left.")
    if problem:
        click.echo(f"No estimate of the time: {problem}")


@study_group.command("run")
@click.argument("file", type=STUDY)
@click.option("--out", required=True, type=FOLDER, help="Folder of the study, new or existing.")
@PRESET
@click.option(
    "--row",
    "only",
    cls=AliasedOption,
    aliases=("--only",),
    multiple=True,
    help="A row, and what it starts from; may be repeated.",
)
@click.option("--seed", "seeds", multiple=True, type=click.IntRange(min=0), help="A seed; may be repeated.")
@click.option("--minutes", type=float, help="Begin no cell that would end later than this, by the estimate.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that judge.")
@DEVICE
@click.option(
    "--compile", "compiled", is_flag=True, help="Compile the passes of training: a minute at first, then faster."
)
@ROOT
@JSON
@resumable
def run_command(
    file: str,
    out: Path,
    preset: str | None,
    only: tuple[str, ...],
    seeds: tuple[int, ...],
    minutes: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train, extract and judge what is not finished; results and a report page are in --out after every cell.

    How long it will take is said first. Stopped or killed, the same command goes on. Give --minutes, --row or --seed
    to run a slice. On a GPU: --preset full --device cuda --compile.

    \b
      twofold study run sure_plus --out sure_plus --minutes 60
    """
    from twofold.study import load, run

    study = load(file, preset=preset)

    def expected(estimate: Estimate) -> None:
        click.echo(f"{_cells(len(estimate.minutes))} to do: about {estimate.hours_left:.1f} hours.", err=True)

    with progress() as bar:
        task = bar.add_task("measuring a few steps of every row", total=None)
        told = run(
            study,
            out,
            only=only or None,
            seeds=seeds or None,
            limit_minutes=minutes,
            expected=expected,
            done=lambda label, count, total: bar.update(task, description=label, completed=count, total=total),
            **options,
        )
    if as_json:
        click.echo(json.dumps(asdict(told), indent=2))
        return
    click.echo(f"{_cells(len(told.finished))} finished in {told.minutes:.1f} minutes, {len(told.left)} left.")
    click.echo(f"The tables are in {out}/report.md, with drawings in {out}/report.html.", err=True)


@study_group.command("table")
@click.argument("folder", type=FOLDER)
@JSON
def table_command(folder: Path, as_json: bool) -> None:
    """Print the tables of what is finished in the folder of a study.

    \b
      twofold study table sure_plus
    """
    from twofold.errors import InvalidInput
    from twofold.study import opened, results, table, values

    study = opened(folder)
    found = results(study, folder)
    if not found.rows:
        raise InvalidInput(f"no cell of {folder} is finished yet")
    if as_json:
        click.echo(json.dumps([asdict(one) for one in values(study, found)], indent=2))
        return
    click.echo(table(study, found))


@study_group.command("keep")
@click.argument("folder", type=FOLDER)
@click.argument("to", type=FOLDER)
@JSON
def keep_command(folder: Path, to: Path, as_json: bool) -> None:
    """Write what the tables show of the finished cells of FOLDER into the small folder TO.

    Weights and outputs stay behind. `twofold study run ... --out TO` goes on from there, on this machine or another.

    \b
      twofold study keep sure_plus results/sure_plus
    """
    from twofold.study import keep, opened

    cells = keep(opened(folder), folder, to)
    click.echo(json.dumps({"folder": str(to), "cells": cells}, indent=2) if as_json else _cells(len(cells)))
    click.echo(f"They are in {to}.", err=True)


def _cells(n: int) -> str:
    return f"{n} cell{'' if n == 1 else 's'}"
