"""Verbs of benchmarks: ``twofold bench ...`` and ``twofold compare``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from twofold.cli.options import (
    BENCHMARK,
    METRIC,
    MODEL,
    PLUGIN,
    PROTOCOL,
    SCORE,
    AliasedOption,
)
from twofold.cli.shared import JSON, REPLACE, Verbs, check_target, from_torch, progress, resumable
from twofold.roles import OOD_TEST

ROOT = click.option("--root", type=click.Path(path_type=Path), help="Folder of data; by default $TWOFOLD_DATA.")
FOLDER = click.Path(path_type=Path, file_okay=False)
RUN = click.Path(path_type=Path)  # Run.open says what to do where it is none


@click.group("bench", cls=Verbs)
def bench_group() -> None:
    """Judge classifiers by the protocols of the papers, with intervals and tests.

    \b
      twofold bench list
      twofold bench show cifar10-real
    """


@bench_group.command("list")
@JSON
def list_command(as_json: bool) -> None:
    """List the benchmarks.

    \b
      twofold bench list
    """
    from twofold.bench.catalogue import load, names

    found = [load(name) for name in names()]
    rows = [{"name": b.name, "title": b.title, "classes": b.classes, "protocols": b.protocols} for b in found]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(b.name) for b in found)
    for one in found:
        click.echo(f"{one.name:<{width}}  {one.title}")


@bench_group.command("show")
@click.argument("name", type=BENCHMARK)
@ROOT
@JSON
def show_command(name: str, root: Path | None, as_json: bool) -> None:
    """Show what a benchmark needs, what of it is here, and where a person gets the rest.

    NAME is one of `twofold bench list`, or a TOML file of one's own.

    \b
      twofold bench show cifar10-real
    """
    from twofold.bench.catalogue import load
    from twofold.nn import data

    found = load(name)
    with progress() as bar:
        task = bar.add_task("opening", total=len(found.sets))

        def opened(spec: str) -> Any:
            bar.advance(task)
            return data.open(spec)

        status = found.status(root, opened)
    if as_json:
        sets = [
            {"name": s.set.name, "role": s.set.role, "data": s.set.data, "published_rows": s.set.rows, "rows": s.rows}
            | {"missing": s.reason, "get": s.set.get, "note": s.set.note, "removed": s.set.removed}
            for s in status
        ]
        about = {"name": found.name, "title": found.title, "source": found.source, "classes": found.classes}
        click.echo(json.dumps(about | {"protocols": found.protocols, "sets": sets}, indent=2))
        return
    click.echo(f"{found.name}: {found.title}\n{found.source}\nprotocols: {', '.join(found.protocols)}\n")
    width = max(len(s.set.name) for s in status)
    for one in status:
        state = f"{one.rows:>7,} rows" if one.present else "missing     "
        odd = f" (published {one.set.rows:,})" if one.published is False else ""
        gone = f" ({one.set.removed:,} rows of known classes removed)" if one.set.removed else ""
        click.echo(f"{one.set.name:<{width}}  {one.set.role:<7}  {state}{odd}{gone}")
        if not one.present:
            click.echo(f"{'':<{width}}  {one.reason}\n{'':<{width}}  get it from: {one.set.get}")


@bench_group.command("extract")
@click.argument("name", type=BENCHMARK)
@click.argument("model", type=MODEL)
@click.option("--out", required=True, type=FOLDER, help="Folder of the run, new or existing.")
@click.option("--checkpoint", "checkpoints", multiple=True, help="Weights; several are a deep ensemble.")
@click.option("--normalise", default="none", show_default=True, help="ID statistics: cifar10, imagenet, ...")
@click.option("--recipe", help="How the network was trained; kept with the run.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of its training; kept with the run.")
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Images at a time.")
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
    help="Data set of the benchmark; by default all that are here.",
)
@ROOT
@JSON
@resumable
def extract_command(
    name: str,
    model: str,
    out: Path,
    checkpoints: tuple[str, ...],
    chosen: tuple[str, ...],
    root: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a network over the data sets of a benchmark, and write a run that `bench run` takes.

    Data sets that are not here are skipped and named on stderr. Those that the run holds already are kept: rerun the
    command to resume an interrupted extraction.

    \b
      twofold bench extract cifar10-real resnet20_cifar --checkpoint weights.npz --normalise imagenet --out run
    """
    from twofold.bench.catalogue import load
    from twofold.errors import InvalidInput
    from twofold.nn import data

    found = load(name)
    status = [s for s in found.status(root, data.open) if not chosen or s.set.name in chosen]
    for word in chosen:
        found[word]  # an unknown name is an error
    if any(s.set.embedded for s in status):
        raise InvalidInput(f"{name} comes with its classifier: `twofold demo --out {out}` writes the run")
    for one in status:
        if not one.present:
            click.echo(str(one), err=True)
    sets = [(s.set.spec(root), s.set.role, s.set.name) for s in status if s.present]
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
    rows = [{"name": label, "role": role, "rows": len(run[label])} for label, role in run.roles.items()]
    if as_json:
        click.echo(json.dumps({"run": str(out), "data": rows}, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']}  ({row['role']})  {row['rows']} rows")


@bench_group.command("run")
@click.argument("name", type=BENCHMARK)
@click.option("--run", "runs", multiple=True, required=True, type=RUN, help="A run; may be repeated.")
@click.option("--score", "scores", multiple=True, type=SCORE, help="A score; by default all that the runs allow.")
@click.option(
    "--pair", "pairs", multiple=True, help="ID score and OOD score, as 'msp + energy'; by default msp + each."
)
@click.option("--protocol", "protocols", multiple=True, type=PROTOCOL, help="By default all of the benchmark.")
@click.option("--out", default="results", show_default=True, type=FOLDER, help="Folder of results.")
@click.option("--resamples", type=click.IntRange(min=0), default=200, show_default=True, help="Per interval; 0: none.")
@click.option("--best", type=click.IntRange(min=0), default=10, show_default=True, help="Pairs that get intervals.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resamples.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that share the work.")
@click.option(
    "--engine", type=click.Choice(["local", "dask", "ray"]), default="local", show_default=True, help="Where they are."
)
@click.option("--address", help="Of a Dask or Ray cluster whose workers can read the runs.")
@PLUGIN
@JSON
@resumable
def run_command(
    name: str, runs: tuple[Path, ...], pairs: tuple[str, ...], out: Path, as_json: bool, **options: Any
) -> None:
    """Judge runs by a benchmark: all scores and pairs, all shifts, with intervals.

    Results go to --out as results.csv (and Parquet); what is known already is not computed again, so that the same
    command continues after a kill, and a new score costs only itself.

    \b
      twofold bench run digits --run twofold-demo --score msp --score energy --out results
    """
    from twofold.bench import runner
    from twofold.bench.catalogue import load

    chosen = []
    for pair in pairs:
        parts = [part.strip() for part in pair.split(" + ")]
        if len(parts) != 2:
            raise click.UsageError(f"--pair must be two scores with ' + ' between them, got {pair!r}")
        chosen.append((SCORE.convert(parts[0], None, None), SCORE.convert(parts[1], None, None)))
    options |= {key: options[key] or None for key in ("scores", "protocols")}
    with progress() as bar:
        task = bar.add_task("scores", total=None)

        def done(label: str, count: int, total: int) -> None:
            bar.update(task, description=label, completed=count, total=total)

        results = runner.run(load(name), runs, out, pairs=chosen or None, done=done, **options)
    if as_json:
        click.echo(json.dumps(results.to_dicts(), indent=2))
        return
    click.echo(results.overview())
    missing = [row for row in results.rows if row["reason"]]
    if missing:
        click.echo(f"{len(missing)} rows have no value; the column reason of {out}/results.csv says why.", err=True)


@bench_group.command("check")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--benchmark", type=BENCHMARK, help="Of the published numbers; by default that of the results.")
@JSON
def check_command(results: Path, benchmark: str | None, as_json: bool) -> None:
    """Compare results with the published numbers, and name what differs between the two.

    Means over some levels of corruption are not compared with published ones, which are over all five.

    \b
      twofold bench check results
    """
    from dataclasses import asdict

    from twofold.bench.published import DIFFERENCES, agreement, counterparts, incomplete_corruptions, rank_agreement
    from twofold.bench.results import Results
    from twofold.errors import InvalidInput

    opened = Results.open(results)
    ours = list(dict.fromkeys(row["benchmark"] for row in opened.rows if row["benchmark"]))
    names = [benchmark] if benchmark else list(dict.fromkeys(one for name in ours for one in counterparts(name)))
    rows = opened.to_dicts()
    found = [one for name in names for one in agreement(rows, name)]
    refused = incomplete_corruptions(rows)
    if not found:
        reasons = "".join(f"; {line}" for line in refused)
        raise InvalidInput(f"nothing in {results} has a published counterpart{reasons}")
    ranks = rank_agreement(found)
    differences = [line for name in ours for line in DIFFERENCES.get(name, ())]
    if as_json:
        told = {"cells": [asdict(one) for one in found], "ranks": [asdict(one) for one in ranks]}
        click.echo(json.dumps(told | {"differences": differences, "not_compared": refused}, indent=2))
        return
    same = sum(one.same_model for one in found)
    click.echo(f"{len(found)} values have a published counterpart, {same} of them of the same network.\n")
    click.echo("rank correlation   scores   published")
    for one in ranks:
        where = " ".join(part for part in (one.paper, "table", one.table, one.model, one.recipe) if part)
        shown = "-" if one.spearman != one.spearman else f"{one.spearman:+.2f}"
        click.echo(f"{shown:>16}   {one.scores:>6}   {one.metric} on {one.shift}: {where}")
    if refused:
        click.echo("\nNot compared:")
    for line in refused:
        click.echo(f"- {line}")
    if differences:
        click.echo("\nWhat differs from the published set-up:")
    for line in differences:
        click.echo(f"- {line}")


@bench_group.command("build")
@click.argument("wordnet", type=FOLDER)
@click.option("--known", required=True, type=click.Path(path_type=Path), help="File of the model's wnids, one a line.")
@click.option("--pool", type=click.Path(path_type=Path), help="File of wnids to take near and external classes from.")
@click.option("--far", "far", multiple=True, help="NAME=FILE of class names of a far set; may be repeated.")
@click.option("--near-count", type=click.IntRange(min=0), help="Near classes drawn; without it the rule of CIFAR.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draw.")
@JSON
def build_command(
    wordnet: Path,
    known: Path,
    pool: Path | None,
    far: tuple[str, ...],
    near_count: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Apply the WordNet rules of the unknown-detection benchmark: a line for each class.

    WORDNET is a folder with data.noun and index.noun. A line has the set, the class and, where it is removed, the
    reason, with tabs between them.

    \b
      twofold bench build wordnet --known id.txt --pool imagenet.txt --near-count 200
    """
    from twofold.bench.wordnet import build

    sets = {}
    for word in far:
        label, equals, file = word.partition("=")
        if not equals:
            raise click.UsageError(f"--far must be NAME=FILE, got {word!r}")
        sets[label] = _lines(Path(file))
    built = build(
        wordnet,
        id=_lines(known),
        pool=_lines(pool) if pool else (),
        far=sets or None,
        near_count=near_count,
        seed=seed,
    )
    if as_json:
        click.echo(built.to_json(), nl=False)
        return
    kept = {"near": built.near, "external": built.external, **built.far}
    removed = {"removed": built.removed} | {f"removed from {name}": why for name, why in built.far_removed.items()}
    for label, members in kept.items():
        click.echo("".join(f"{label}\t{one}\n" for one in members), nl=False)
    for label, reasons in removed.items():
        click.echo("".join(f"{label}\t{one}\t{why}\n" for one, why in reasons.items()), nl=False)


@bench_group.command("embed")
@click.argument("name", type=BENCHMARK)
@click.option("--clip", "model", required=True, help="Network of open_clip, such as ViT-B-32.")
@click.option("--weights", required=True, type=click.Path(path_type=Path), help="File of its weights.")
@click.option(
    "--name",
    "chosen",
    cls=AliasedOption,
    aliases=("--only",),
    multiple=True,
    help="Data set of the benchmark; by default train and the unknown ones.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="npz file to write.")
@REPLACE
@ROOT
@JSON
def embed_command(
    name: str,
    model: str,
    weights: Path,
    chosen: tuple[str, ...],
    out: Path,
    replace: bool,
    root: Path | None,
    as_json: bool,
) -> None:
    """Embed the data sets of a benchmark by a CLIP network, for `bench strata --embeddings`.

    \b
      twofold bench embed cifar10-real --clip ViT-B-32 --weights clip.pt --out clip.npz
    """
    import numpy as np

    from twofold._files import replacing
    from twofold.bench.catalogue import load
    from twofold.errors import InvalidInput
    from twofold.nn import data

    check_target(out, replace=replace)
    found = load(name)
    wanted = chosen or [s.name for s in found.sets if s.role in ("train", *OOD_TEST)]
    if any(found[word].embedded for word in wanted):
        raise InvalidInput(f"the data of {name} come with its classifier and are not images; choose another benchmark")
    opened = {word: data.open(found[word].spec(root)) for word in wanted}
    names = next((one.class_names for word, one in opened.items() if found.roles[word] == "train"), None)
    with progress(rate=True) as bar:
        task = bar.add_task("loading", total=sum(map(len, opened.values())))
        arrays = from_torch("clip").embed(
            opened,
            model,
            weights,
            class_names=names or (),
            done=lambda label, rows: bar.update(task, advance=rows, description=label),
        )
    with replacing(out) as file:
        np.savez_compressed(file, **arrays)
    shapes = {label: list(array.shape) for label, array in arrays.items()}
    click.echo(json.dumps(shapes) if as_json else "\n".join(f"{label}  {a} x {b}" for label, (a, b) in shapes.items()))


@bench_group.command("strata")
@click.argument("run", type=RUN)
@click.option(
    "--embeddings",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="npz with an array for each data set of the run.",
)
@JSON
def strata_command(run: Path, embeddings: Path | None, as_json: bool) -> None:
    """Group the unknown sets of a run into near, mid and far by their distance from the training set.

    Distances are those of the model's own features unless other embeddings of the same rows are given, such as those of
    `twofold bench embed`.

    \b
      twofold bench strata run
      twofold bench strata run --embeddings clip.npz
    """
    from twofold.bench.strata import distances, strata
    from twofold.errors import InvalidInput
    from twofold.outputs import load_npz
    from twofold.run import Run

    opened = Run.open(run)
    unknown = [name for role in OOD_TEST for name in opened.names(role)]
    train = opened.names("train") or opened.names("test")
    if not train or len(unknown) < 3:
        raise InvalidInput(f"{run} must hold a train or test set and three unknown sets; it holds {opened.roles}")
    given = None if embeddings is None else load_npz(embeddings)

    def rows(name: str) -> Any:
        if given is None:
            found = opened[name].features
            if found is None:
                raise InvalidInput(f"{name} has no features in {run}; give --embeddings")
            return found
        if name not in given:
            raise InvalidInput(f"{embeddings} has no array {name}; it holds {', '.join(given)}")
        return given[name]

    texts = None if given is None else given.get("class_texts")
    table = distances(rows(train[0]), opened[train[0]].labels, {name: rows(name) for name in unknown}, text=texts)
    found = strata(table)
    source = "the model's own features" if given is None else str(embeddings)
    if as_json:
        told = {"embeddings": source, "distances": table.to_dict(), "groups": dict(found.groups)}
        click.echo(json.dumps(told, indent=2, default=list))
        return
    click.echo(f"by {source}:")
    for group, members in found.groups.items():
        click.echo(f"{group}: {', '.join(members)}")


def _lines(path: Path) -> list[str]:
    from twofold.errors import InvalidInput

    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


@click.command("compare")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--metric", required=True, type=METRIC, help="Such as aurc, ds_f1 or auroc_ood.")
@click.option("--protocol", type=PROTOCOL, help="Needed where several have the metric.")
@click.option(
    "--test",
    type=click.Choice(["conover_t", "rank_z", "wilcoxon"]),
    default="conover_t",
    show_default=True,
    help="Of pairs, with Holm's correction.",
)
@click.option("--alpha", default=0.05, show_default=True, help="Level of the test.")
@click.option(
    "--block",
    "blocks",
    multiple=True,
    help="Column that tells blocks apart, such as run; the rest is averaged. Repeat it.",
)
@click.option("--figure", type=click.Path(path_type=Path), help="Write a critical-difference diagram here.")
@click.option("--map", "clique_map", type=click.Path(path_type=Path), help="Write the map of leading cliques here.")
@REPLACE
@JSON
def compare_command(
    results: Path,
    metric: str,
    protocol: str | None,
    test: str,
    alpha: float,
    blocks: tuple[str, ...],
    figure: Path | None,
    clique_map: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Rank scores over data sets and models: Friedman, post-hoc tests, cliques, paired differences.

    A block is one data set under one model. Two methods need at least 6 blocks, three need 4 and more need 3 (wilcoxon
    needs more): with fewer, no outcome is significant at 0.05, and the command ends with exit code 1. Groups of the
    map with too few blocks are left out and named.

    \b
      twofold compare results --metric augrc --protocol fd_shifts --figure ranks.svg
    """
    from twofold.bench import compare as comparing
    from twofold.bench.results import Results

    for target in (figure, clique_map):
        if target is not None:
            check_target(target, replace=replace)
    opened = Results.open(results)
    found = comparing.compare(opened, metric=metric, protocol=protocol, test=test, alpha=alpha, blocks=blocks or None)
    table = None
    if clique_map is not None:
        table = comparing.clique_map(opened, metric=metric, protocol=protocol, test=test, alpha=alpha)
    if figure is not None:
        from twofold.report import figures

        figures.critical_difference(found, figure)
    if clique_map is not None and table is not None:
        from twofold.report import figures

        figures.clique_map(table, clique_map)
    if as_json:
        told = found.to_dict()
        if table is not None:
            told["map"] = table.to_dict()
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(str(found))
    for one in table.dropped_groups if table is not None else ():
        click.echo(f"left out of the map: {one}")
