"""Verbs of papers: ``twofold papers ...``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from twofold.cli.options import FOLDER, ROOT
from twofold.cli.shared import CHECK_FAILED, JSON, Verbs, progress, resumable

if TYPE_CHECKING:
    from twofold.papers import Paper, PaperPlan, Workspace
    from twofold.papers.plan import Scale
    from twofold.papers.tables import PaperTable

SCALE = click.option(
    "--scale",
    type=click.Choice(["paper", "here"]),
    default="here",
    show_default=True,
    help="The paper's data and networks, or a small scale on the data that are here.",
)


@click.group("papers", cls=Verbs)
def papers_group() -> None:
    """Reproduce the tables and figures of the papers; every subcommand takes --json.

    \b
      twofold papers list
      twofold papers show aurc_estimators/figure3
    """


@papers_group.command("list")
@JSON
def list_command(as_json: bool) -> None:
    """List every numbered table and figure, and how far each is reproduced.

    \b
      twofold papers list
    """
    from twofold import papers
    from twofold.papers.plan import STATES

    found = [papers.load(name) for name in papers.names()]
    if as_json:
        rows = []
        for paper in found:
            rows += [_plan_facts(plan) for plan in paper.plans.values()]
        click.echo(json.dumps(rows, indent=2))
        return
    for paper in found:
        click.echo(f"{paper.name}: {paper.title}. {paper.source}")
        for plan in paper.plans.values():
            click.echo(f"  {plan.id:<32}  {plan.kind:<12}  {plan.state:<12}  {plan.title}")
        click.echo("")
    for state, meaning in STATES.items():
        click.echo(f"{state:<12}  {meaning}")


@papers_group.command("show")
@click.argument("name")
@click.option("--out", type=FOLDER, default=Path("papers"), show_default=True, help="Folder that `papers run` writes.")
@ROOT
@JSON
def show_command(name: str, out: Path, root: Path | None, as_json: bool) -> None:
    """Show what a table or figure says, the data it needs, its steps as commands, and the printed numbers.

    NAME is a paper, or PAPER/ITEM; in place of the name of a paper, a TOML file of your own works too.

    \b
      twofold papers show sure_plus
      twofold papers show sure_plus/table1
    """
    from twofold import papers

    work = papers.Workspace.open(out, root=root)
    if name in papers.names() or name.endswith(".toml"):
        _show_paper(papers.load(name), as_json=as_json)
        return
    if "/" not in name:
        papers.load(name)  # an unknown name is an error with the nearest ones
    _show_plan(papers.find(name), work, as_json=as_json)


def _plan_facts(plan: PaperPlan) -> dict[str, str]:
    return {"id": plan.id, "kind": plan.kind, "title": plan.title, "state": plan.state}


def _show_paper(paper: Paper, *, as_json: bool) -> None:
    if as_json:
        plans = [_plan_facts(plan) for plan in paper.plans.values()]
        description = {"name": paper.name, "title": paper.title, "source": paper.source, "plans": plans}
        click.echo(json.dumps(description, indent=2))
        return
    click.echo(f"{paper.name}: {paper.title}\n{paper.source}\n")
    width = max(len(item) for item in paper.plans)
    for plan in paper.plans.values():
        click.echo(f"{plan.item:<{width}}  {plan.kind:<12}  {plan.state:<12}  {plan.title}")


class _ScaleFacts(TypedDict):
    """What a scale needs and does."""

    data: tuple[str, ...]
    minutes: float | None
    note: str
    needs: dict[str, bool]
    commands: list[str]


def _show_plan(plan: PaperPlan, work: Workspace, *, as_json: bool) -> None:
    from twofold.papers.plan import STATES
    from twofold.papers.tables import PaperTable

    scales = {name: _describe_scale(scale, work) for name, scale in plan.scales.items()}
    table = None if plan.printed is None else PaperTable.of(plan.printed)
    if as_json:
        description = {
            "id": plan.id,
            "kind": plan.kind,
            "title": plan.title,
            "says": plan.says,
            "state": plan.state,
            "reason": plan.reason,
            "scales": scales,
            "printed": [] if table is None else _printed_as_json(table),
        }
        click.echo(json.dumps(description, indent=2))
        return
    click.echo(f"{plan.id}: {plan.title}\n\n{plan.says}\n")
    click.echo(f"{plan.kind}; {STATES[plan.state]}")
    if plan.reason:
        click.echo(plan.reason)
    for name, facts in scales.items():
        _print_scale(plan, name, facts)
    if plan.kind == "settings" and plan.settings is not None:
        click.echo(f"\n$ twofold papers run {plan.id} --out DIR")
    if table is not None:
        _print_printed(table)


def _printed_as_json(table: PaperTable) -> list[dict[str, object]]:
    rows = []
    for cell in table.cells:
        anchor = cell.anchor
        row: dict[str, object] = {}
        row |= zip(table.line_names, cell.line, strict=True)
        row |= zip(table.column_names, cell.column, strict=True)
        row |= {"value": anchor.value, "spread": anchor.spread, "unit": anchor.unit}
        row |= {"reliable": anchor.reliable, "note": anchor.note}
        rows.append(row)
    return rows


def _describe_scale(scale: Scale, work: Workspace) -> _ScaleFacts:
    """Collect what a scale needs and does."""
    from twofold.papers.runner import all_steps

    needs: dict[str, bool] = {}
    commands = []
    for step in all_steps(scale):
        commands.append(step.command(work))
        for need in step.needs(work):
            needs[need.name] = need.is_here
    return {"data": scale.data, "minutes": scale.minutes, "note": scale.note, "needs": needs, "commands": commands}


def _print_scale(plan: PaperPlan, name: str, facts: _ScaleFacts) -> None:
    duration = "time not measured"
    if facts["minutes"] is not None:
        duration = f"about {facts['minutes']:g} min on two cores"
    click.echo(f"\nscale {name}: {duration}\n  {facts['note']}")
    for text in facts["data"]:
        click.echo(f"  data: {text}")
    for need, is_here in facts["needs"].items():
        click.echo(f"  {'here' if is_here else 'missing'}: {need}")
    for command in facts["commands"]:
        click.echo(f"  $ {command}")
    click.echo(f"  $ twofold papers run {plan.id} --scale {name} --out DIR")


def _print_printed(table: PaperTable) -> None:
    report, *_ = table.to_report()
    click.echo("\nPrinted numbers, in brackets; a star marks those in doubt:")
    click.echo("  " + " | ".join(report.columns))
    for row in report.rows:
        click.echo("  " + " | ".join(str(cell) for cell in row))


@papers_group.command("run")
@click.argument("names", nargs=-1, required=True, metavar="PAPER/ITEM...")
@SCALE
@click.option("--out", required=True, type=FOLDER, help="Folder to write, new or existing.")
@click.option(
    "--run",
    "runs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A run of your own, or an npz file as `bench estimators` takes it; may be repeated.",
)
@click.option(
    "--method",
    type=click.Choice(["exact", "published"]),
    default="exact",
    show_default=True,
    help="published: compare f1, aurc_id, ds_f1 and ds_aurc with print as the code of SURE+ computes them.",
)
@click.option("--minutes", type=float, help="Start no further step after this many minutes.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that judge.")
@click.option("--device", default="cpu", show_default=True, help="Where networks run.")
@ROOT
@JSON
@resumable
def run_command(
    names: tuple[str, ...],
    scale: str,
    out: Path,
    runs: tuple[Path, ...],
    method: str,
    minutes: float | None,
    jobs: int,
    device: str,
    root: Path | None,
    as_json: bool,
) -> None:
    """Do what a table or figure still lacks, and write it to --out/PAPER/ITEM.

    Tables are written as Markdown, LaTeX, CSV and HTML, ours beside the printed numbers; figures as SVG, PNG and CSV.
    Rerun the command to resume an interrupted run; what is finished is not computed again. With --run nothing is
    trained or extracted, and torch is not needed.

    \b
      twofold papers run aurc_estimators/figure3 --out papers
      twofold papers run aurc_estimators/figure3 --run my-run --out papers
    """
    from typing import cast

    from twofold import papers
    from twofold.metrics.evaluate import EvaluationMethod
    from twofold.papers.plan import ScaleName

    plans = [papers.find(name) for name in names]
    outcomes = []
    with progress() as bar:
        task = bar.add_task("starting", total=None)

        def done(label: str, count: int, total: int) -> None:
            bar.update(task, description=label, completed=count, total=total)

        work = papers.Workspace.open(out, root=root, minutes=minutes, progress=done, jobs=jobs, device=device)
        for plan in plans:
            bar.update(task, description=plan.id)
            outcomes.append(
                papers.run(
                    plan,
                    work,
                    scale=cast("ScaleName", scale),
                    runs=[str(run) for run in runs],
                    method=cast("EvaluationMethod", method),
                )
            )
    if as_json:
        click.echo(json.dumps([asdict(one) for one in outcomes], indent=2))
    else:
        for one in outcomes:
            _print_outcome(one.id, one.files, one.left, one.summary, computed=bool(one.computed))
    if not all(one.is_finished for one in outcomes):
        raise click.exceptions.Exit(CHECK_FAILED)


def _print_outcome(name: str, files: tuple[str, ...], left: tuple[str, ...], summary: str, *, computed: bool) -> None:
    if left:
        click.echo(f"{name}: the time is over, {len(left)} steps are left; run the same command again to resume")
        return
    click.echo(f"{name}: {'written' if computed else 'nothing to do'}")
    if summary:
        click.echo(f"  {summary}")
    for file in files:
        click.echo(f"  {file}")
