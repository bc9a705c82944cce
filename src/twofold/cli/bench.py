"""``twofold bench``: judge classifiers by the protocols of the papers."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.class_means import classes_command
from twofold.cli.estimators import estimators_command
from twofold.cli.extract import print_data_sets, summarise
from twofold.cli.needed_files import list_needed_files, print_needed_files
from twofold.cli.options import (
    BENCHMARK,
    FILE,
    FOLDER,
    METHOD,
    MODEL,
    PLUGIN,
    PROTOCOL,
    ROOT,
    RUN,
    SCORE,
    AliasedOption,
)
from twofold.cli.shared import JSON, Verbs, from_torch, progress, resumable
from twofold.cli.transfer import transfer_command
from twofold.cli.unknown_sets import build_command, embed_command, strata_command

if TYPE_CHECKING:
    from twofold.bench.agreement import Agreement, RankAgreement
    from twofold.bench.catalogue import Status
    from twofold.nn.data import Images, Texts


@click.group("bench", cls=Verbs)
def bench_group() -> None:
    """Judge classifiers by the protocols of the papers, with intervals and tests.

    \b
      twofold bench list
      twofold bench show cifar10-real
    """


bench_group.add_command(estimators_command)


@bench_group.command("list")
@JSON
def list_command(as_json: bool) -> None:
    """List the benchmarks of the catalogue with their titles.

    \b
      twofold bench list
    """
    from twofold.bench.catalogue import load, names

    benchmarks = [load(name) for name in names()]
    if as_json:
        rows = []
        for one in benchmarks:
            rows.append({"name": one.name, "title": one.title, "classes": one.classes, "protocols": one.protocols})
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(one.name) for one in benchmarks)
    for one in benchmarks:
        click.echo(f"{one.name:<{width}}  {one.title}")


@bench_group.command("show")
@click.argument("name", type=BENCHMARK)
@ROOT
@JSON
def show_command(name: str, root: Path | None, as_json: bool) -> None:
    """Show which data sets a benchmark needs, which are here, and where to get the others.

    NAME is one of `twofold bench list`, or a TOML file of your own. After the data sets, their files and folders are
    listed with what they must hold; `twofold data check --benchmark NAME` verifies them.

    \b
      twofold bench show cifar10-real
    """
    from twofold.bench.catalogue import load
    from twofold.nn import data

    found = load(name)
    with progress() as bar:
        task = bar.add_task("opening", total=len(found.sets))

        def opened(spec: str) -> Images | Texts:
            bar.advance(task)
            return data.open_any(spec)

        status = found.status(root, opened)
    needed = list_needed_files(found, root)
    if as_json:
        description = {
            "name": found.name,
            "title": found.title,
            "source": found.source,
            "classes": found.classes,
            "protocols": found.protocols,
            "sets": list(map(_status_as_json, status)),
            "files": [one.as_dict() for one in needed],
        }
        click.echo(json.dumps(description, indent=2))
        return
    click.echo(f"{found.name}: {found.title}\n{found.source}\nprotocols: {', '.join(found.protocols)}\n")
    width = max(len(one.set.name) for one in status)
    for one in status:
        _print_status(one, width)
    print_needed_files(needed)


def _status_as_json(status: Status) -> dict[str, object]:
    return {
        "name": status.set.name,
        "role": status.set.role,
        "data": status.set.data,
        "published_rows": status.set.rows,
        "rows": status.rows,
        "missing": status.reason,
        "get": status.set.get,
        "note": status.set.note,
        "removed": status.set.removed,
    }


def _print_status(status: Status, width: int) -> None:
    """Print one data set of a benchmark, and where to get it if it is missing."""
    line = f"{status.set.name:<{width}}  {status.set.role:<7}  "
    if status.present:
        line += f"{status.rows:>7,} rows"
    else:
        line += "missing     "
    if status.published is False:
        line += f" (published {status.set.rows:,})"
    if status.set.removed:
        line += f" ({status.set.removed:,} rows of known classes removed)"
    click.echo(line)
    if not status.present:
        indent = " " * width
        click.echo(f"{indent}  {status.reason}\n{indent}  get it from: {status.set.get}")


@bench_group.command("extract")
@click.argument("name", type=BENCHMARK)
@click.argument("model", type=MODEL)
@click.option("--out", required=True, type=FOLDER, help="Folder of the run, new or existing.")
@click.option("--checkpoint", "checkpoints", multiple=True, help="Weights; several are a deep ensemble.")
@click.option("--normalise", default="none", show_default=True, help="ID statistics: cifar10, imagenet, ...")
@click.option("--recipe", help="Recipe that the network was trained with; stored in the run.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the training; stored in the run.")
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Images per batch.")
@click.option("--device", default="cpu", show_default=True, help="Where the network runs.")
@click.option("--layers", help="Record layer statistics: names separated by commas, or 'all'.")
@click.option("--passes", type=click.IntRange(min=0), default=0, show_default=True, help="MC-dropout passes.")
@click.option("--odin", type=float, help="Record ODIN with this step, in pixels of [0, 1].")
@click.option(
    "--name",
    "chosen",
    cls=AliasedOption,
    aliases=("--only",),
    multiple=True,
    help="Data set to extract; by default all that are here. May be repeated.",
)
@click.option("--sample", type=click.IntRange(min=1), help="Images of each data set, drawn by a seed; by default all.")
@ROOT
@JSON
@resumable
def extract_command(
    name: str,
    model: str,
    out: Path,
    checkpoints: tuple[str, ...],
    chosen: tuple[str, ...],
    sample: int | None,
    root: Path | None,
    as_json: bool,
    **options: object,
) -> None:
    """Run a network over the data sets of a benchmark and write a run.

    `bench run` then judges the run. Data sets that are not here are skipped and named on stderr. Those that the run
    holds already are kept: rerun the command to resume an interrupted extraction.

    \b
      twofold bench extract cifar10-real resnet20_cifar --checkpoint weights.npz --normalise imagenet --out run
    """
    from twofold.bench.catalogue import load
    from twofold.bench.sampling import EVERY, sample_images
    from twofold.errors import InvalidInput
    from twofold.nn import data

    found = load(name)
    if sample is not None:
        found = sample_images(found, {EVERY: sample})
    for word in chosen:
        found[word]  # an unknown name is an error
    sets = []
    for one in found.status(root, data.open_any):
        if chosen and one.set.name not in chosen:
            continue
        if one.set.embedded:
            raise InvalidInput(f"{name} comes with its classifier: `twofold demo --out {out}` writes the run")
        if one.present:
            sets.append((one.set.spec(root), one.set.role, one.set.name))
        else:
            click.echo(str(one), err=True)
    with progress(rate=True) as bar:
        task = bar.add_task("loading", total=None)
        run = from_torch("extraction").extract_all(
            model,
            sets,
            out,
            checkpoints=checkpoints,
            classes=found.classes,
            begin=lambda label, rows: bar.reset(task, total=rows, description=label),
            done=lambda rows: bar.advance(task, rows),
            command=" ".join(["twofold", *sys.argv[1:]]),
            **options,
        )
    print_data_sets(out, [summarise(run, label) for label in run.roles], as_json=as_json)


@bench_group.command("run")
@click.argument("name", type=BENCHMARK)
@click.option("--run", "runs", multiple=True, required=True, type=RUN, help="Folder of a run; may be repeated.")
@click.option(
    "--score",
    "scores",
    multiple=True,
    type=SCORE,
    help="Score to judge; by default all that the runs allow. May be repeated.",
)
@click.option("--pool", help="List of scores to judge by its name, such as projections_printed; --score adds to it.")
@click.option(
    "--pair",
    "pairs",
    multiple=True,
    help="ID score and OOD score, such as 'msp + energy'; by default msp with every score.",
)
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    type=PROTOCOL,
    help="Protocol to judge by; by default all of the benchmark.",
)
@click.option("--strata", type=FILE, help="File of `bench strata`, whose groups become the roles of unknown sets.")
@click.option(
    "--metrics",
    metavar="NAMES",
    help="Further metrics of single scores, with commas between them: ece, nll, brier, eaurc, "
    "average_precision_unsafe, risk_at_coverage_0.95, ...",
)
@click.option("--out", default="results", show_default=True, type=FOLDER, help="Folder to write results to.")
@click.option(
    "--resamples",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="Bootstrap resamples per interval; 0 for no intervals.",
)
@click.option(
    "--best", type=click.IntRange(min=0), default=10, show_default=True, help="Number of best pairs that get intervals."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resamples.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Number of processes.")
@click.option(
    "--engine",
    type=click.Choice(["local", "dask", "ray"]),
    default="local",
    show_default=True,
    help="Where the processes run.",
)
@click.option("--address", help="Address of a Dask or Ray cluster whose workers can read the runs.")
@METHOD
@PLUGIN
@JSON
@resumable
def run_command(
    name: str,
    runs: tuple[Path, ...],
    scores: tuple[str, ...],
    pool: str | None,
    pairs: tuple[str, ...],
    strata: Path | None,
    metrics: str | None,
    out: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Judge runs by a benchmark: every score and pair on every shift, with intervals.

    Results are written to --out as results.csv (and Parquet). Values that are there already are not computed again:
    rerun the command to resume an interrupted benchmark, or to add a score.

    \b
      twofold bench run digits --run twofold-demo --score msp --score energy --out results
    """
    from twofold.bench import pools, runner
    from twofold.bench.catalogue import load
    from twofold.bench.grouping import Grouping

    benchmark = load(name)
    if strata is not None:
        benchmark = Grouping.load(strata).regroup(benchmark)
    chosen = list(map(_parse_pair, pairs))
    if metrics is not None:
        benchmark = benchmark.measuring([metric.strip() for metric in metrics.split(",")])
    if pool is not None:
        scores = (*pools.pool(pool), *scores)
    options["protocols"] = options["protocols"] or None
    with progress() as bar:
        task = bar.add_task("scores", total=None)

        def done(label: str, count: int, total: int) -> None:
            bar.update(task, description=label, completed=count, total=total)

        results = runner.run(benchmark, runs, out, scores=scores or None, pairs=chosen or None, done=done, **options)
    if as_json:
        click.echo(json.dumps(results.to_dicts(), indent=2))
        return
    click.echo(results.overview())
    missing = [row for row in results.rows if row["reason"]]
    if missing:
        click.echo(f"{len(missing)} rows have no value; the column reason of {out}/results.csv says why.", err=True)


def _parse_pair(text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split(" + ")]
    if len(parts) != 2:
        raise click.UsageError(f"--pair must be two scores with ' + ' between them, got {text!r}")
    id_score, ood_score = parts
    return SCORE.convert(id_score, None, None), SCORE.convert(ood_score, None, None)


@bench_group.command("check")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--benchmark", type=BENCHMARK, help="Benchmark of the published numbers; by default that of the results.")
@JSON
def check_command(results: Path, benchmark: str | None, as_json: bool) -> None:
    """Compare results with published numbers, and list how the set-ups differ.

    RESULTS is a folder that `bench run` wrote. Published means over corruptions cover five levels; means over fewer are
    not compared with them.

    \b
      twofold bench check results
    """
    from dataclasses import asdict

    from twofold.bench.agreement import DIFFERENCES, agreement, counterparts, incomplete_corruptions, rank_agreement
    from twofold.bench.results import Results
    from twofold.errors import InvalidInput

    rows = Results.open(results).to_dicts()
    ours: dict[str, None] = {}  # each name once, in the order of first appearance
    for row in rows:
        if row["benchmark"]:
            ours[str(row["benchmark"])] = None
    published = []
    if benchmark is not None:
        published.append(benchmark)
    else:
        for name in ours:
            published += counterparts(name)
    compared: list[Agreement] = []
    for name in dict.fromkeys(published):
        compared += agreement(rows, name)
    not_compared = incomplete_corruptions(rows)
    if not compared:
        reasons = "; ".join([f"nothing in {results} has a published counterpart", *not_compared])
        raise InvalidInput(reasons)
    ranks = rank_agreement(compared)
    differences: list[str] = []
    for name in ours:
        differences += DIFFERENCES.get(name, ())
    if as_json:
        report = {
            "cells": list(map(asdict, compared)),
            "ranks": list(map(asdict, ranks)),
            "differences": differences,
            "not_compared": not_compared,
        }
        click.echo(json.dumps(report, indent=2))
        return
    same = sum(one.same_model for one in compared)
    click.echo(f"{len(compared)} values have a published counterpart, {same} of them of the same network.\n")
    _print_ranks(ranks)
    _print_list("Not compared:", not_compared)
    _print_list("What differs from the published set-up:", differences)


def _print_ranks(ranks: Sequence[RankAgreement]) -> None:
    """Print how well the ranks of scores agree with each published table."""
    click.echo("rank correlation   scores   published")
    for one in ranks:
        correlation = f"{one.spearman:+.2f}"
        if math.isnan(one.spearman):
            correlation = "-"
        where = " ".join(filter(None, [one.paper, "table", one.table, one.model, one.recipe]))
        click.echo(f"{correlation:>16}   {one.scores:>6}   {one.metric} on {one.shift}: {where}")


def _print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        click.echo(f"\n{title}")
    for line in lines:
        click.echo(f"- {line}")


bench_group.add_command(build_command)
bench_group.add_command(classes_command)
bench_group.add_command(embed_command)
bench_group.add_command(strata_command)
bench_group.add_command(transfer_command)
