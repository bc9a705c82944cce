"""Verbs of studies: ``twofold study ...``."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import FOLDER, METHOD, ROOT, STUDY, AliasedOption
from twofold.cli.shared import JSON, Verbs, progress, resumable

if TYPE_CHECKING:
    from twofold.metrics.evaluate import EvaluationMethod
    from twofold.study import Estimate

PRESET = click.option("--preset", help="Named settings of the study file, such as full.")
DEVICE = click.option("--device", default="cpu", show_default=True, help="Where the network runs.")


@click.group("study", cls=Verbs)
def study_group() -> None:
    """Train, extract and judge many recipes with many seeds, cell by cell.

    Every subcommand takes --json.

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
@click.option(
    "--out",
    type=FOLDER,
    default=Path("study"),
    show_default=True,
    help="Folder of the study, where finished cells are.",
)
@PRESET
@click.option("--time/--no-time", "timed", default=True, show_default=True, help="Measure a few steps of every row.")
@DEVICE
@ROOT
@JSON
def show_command(
    file: str, out: Path, preset: str | None, timed: bool, device: str, root: Path | None, as_json: bool
) -> None:
    """Show the cells of a study, what is done, and how long it takes.

    FILE is one of `twofold study list`, or a TOML file of your own. Without the data, the plan is shown and the
    reason why there is no estimate of the time.

    \b
      twofold study show sure_plus --out sure_plus
      twofold study show sure_plus --preset full --no-time
    """
    from twofold.errors import TwofoldError
    from twofold.study import estimate, finished, load

    study = load(file, preset=preset)
    done = set(finished(study, out))
    expected: Estimate | None = None
    problem = ""
    if timed:
        try:
            with progress() as bar:
                bar.add_task("measuring a few steps of every row", total=None)
                expected = estimate(study, out, root=root, device=device)
        except TwofoldError as error:  # the plan can be shown without data or device
            problem = str(error)

    minutes = {} if expected is None else dict(expected.minutes)
    rows = []
    for cell in study.cells():
        row = {
            "cell": cell.name,
            "recipe": cell.row.text,
            "seed": cell.seed,
            "starts_from": cell.start,
            "benchmark": cell.benchmark.name,
            "finished": cell.name in done,
            "minutes": minutes.get(cell.name),
        }
        rows.append(row)

    if as_json:
        plan: dict[str, object] = {"name": study.name, "title": study.title, "model": study.model, "cells": rows}
        if expected is not None:
            plan |= {"hours": expected.hours, "hours_left": expected.hours_left}
        if problem:
            plan["no_estimate"] = problem
        click.echo(json.dumps(plan, indent=2))
        return
    click.echo(f"{study.title}\n{study.source}\n")
    _print_cells(rows)
    click.echo(f"\n{len(done)} of {len(rows)} cells are finished.")
    if expected is not None:
        click.echo(f"About {expected.hours:.1f} hours in all, {expected.hours_left:.1f} left.")
    if problem:
        click.echo(f"No estimate of the time: {problem}")


def _print_cells(rows: list[dict[str, object]]) -> None:
    width = max(len(str(row["cell"])) for row in rows)
    for row in rows:
        state = "done" if row["finished"] else "    "
        duration = "" if row["minutes"] is None else f"{row['minutes']:8.1f} min"
        click.echo(f"{row['cell']:<{width}}  {state} {duration}  {row['recipe']}")


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
@click.option("--minutes", type=float, help="Start no cell that is expected to end after this many minutes.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that judge.")
@DEVICE
@click.option(
    "--compile",
    "compiled",
    is_flag=True,
    help="Compile the training passes: takes a minute at first, then steps are faster.",
)
@METHOD
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
    method: EvaluationMethod,
    as_json: bool,
    **options: Any,
) -> None:
    """Train, extract and judge the cells that are not finished.

    FILE is one of `twofold study list`, or a TOML file of your own. The command first says how long it will take, and
    updates results and report page in --out after every cell. Rerun it to resume an interrupted study. Use --minutes,
    --row or --seed to run a part. On a GPU: --preset full --device cuda --compile.

    \b
      twofold study run sure_plus --out sure_plus --minutes 60
    """
    from twofold.study import load, run

    study = replace(load(file, preset=preset), method=method)

    def expected(estimate: Estimate) -> None:
        click.echo(f"{_cells(len(estimate.minutes))} to do: about {estimate.hours_left:.1f} hours.", err=True)

    with progress() as bar:
        task = bar.add_task("measuring a few steps of every row", total=None)
        outcome = run(
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
        click.echo(json.dumps(asdict(outcome), indent=2))
        return
    click.echo(f"{_cells(len(outcome.finished))} finished in {outcome.minutes:.1f} minutes, {len(outcome.left)} left.")
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
    """Copy what the tables need of the finished cells of FOLDER to the small folder TO.

    Weights and outputs stay behind. `twofold study run ... --out TO` resumes from there, on this machine or another.

    \b
      twofold study keep sure_plus results/sure_plus
    """
    from twofold.study import keep, opened

    cells = keep(opened(folder), folder, to)
    click.echo(json.dumps({"folder": str(to), "cells": cells}, indent=2) if as_json else _cells(len(cells)))
    click.echo(f"They are in {to}.", err=True)


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
