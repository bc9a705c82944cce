"""``twofold bench build``, ``embed`` and ``strata``: choose unknown data sets and group them by distance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from twofold._files import replacing
from twofold.cli.options import BENCHMARK, FILE, FOLDER, ROOT, RUN, AliasedOption
from twofold.cli.shared import JSON, REPLACE, check_target, from_torch, progress
from twofold.roles import OOD_TEST

if TYPE_CHECKING:
    from twofold.bench.wordnet import Built
    from twofold.outputs import AnyArray
    from twofold.run import Run


@click.command("build")
@click.argument("wordnet", type=FOLDER)
@click.option(
    "--known", required=True, type=click.Path(path_type=Path), help="File of the model's wnids, one per line."
)
@click.option("--pool", type=click.Path(path_type=Path), help="File of wnids to take near and external classes from.")
@click.option("--far", "far", multiple=True, help="NAME=FILE of class names of a far set; may be repeated.")
@click.option(
    "--near-count",
    type=click.IntRange(min=0),
    help="Number of near classes to draw; by default the rule for CIFAR applies.",
)
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
    """Choose near, external and far classes by WordNet rules.

    The rules are those of the unknown-detection benchmark.

    WORDNET is a folder with data.noun and index.noun. Prints a line for each class: its set, its name and, if it is
    removed, the reason, separated by tabs.

    \b
      twofold bench build wordnet --known id.txt --pool imagenet.txt --near-count 200
    """
    from twofold.bench.wordnet import build

    sets = {}
    for word in far:
        label, equals, file = word.partition("=")
        if not equals:
            raise click.UsageError(f"--far must be NAME=FILE, got {word!r}")
        sets[label] = _read_lines(Path(file))
    candidates: Sequence[str] = ()
    if pool is not None:
        candidates = _read_lines(pool)
    built = build(
        wordnet,
        id=_read_lines(known),
        pool=candidates,
        far=sets or None,
        near_count=near_count,
        seed=seed,
    )
    if as_json:
        click.echo(built.to_json(), nl=False)
        return
    _print_classes(built)


def _print_classes(built: Built) -> None:
    """Print the classes that are kept, then those that are removed with the reason."""
    kept = {"near": built.near, "external": built.external, **built.far}
    for label, members in kept.items():
        for member in members:
            click.echo(f"{label}\t{member}")
    removed = {"removed": built.removed}
    for name, reasons in built.far_removed.items():
        removed[f"removed from {name}"] = reasons
    for label, reasons in removed.items():
        for member, reason in reasons.items():
            click.echo(f"{label}\t{member}\t{reason}")


@click.command("embed")
@click.argument("name", type=BENCHMARK)
@click.option("--clip", "model", required=True, help="Network of open_clip, such as ViT-B-32.")
@click.option("--weights", required=True, type=click.Path(path_type=Path), help="File of its weights.")
@click.option(
    "--name",
    "chosen",
    cls=AliasedOption,
    aliases=("--only",),
    multiple=True,
    help="Data set to embed; by default the training set and the unknown ones. May be repeated.",
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
    """Embed the data sets of a benchmark with a CLIP network.

    NAME is one of `twofold bench list`. The npz file has an array for each data set, and one for the class names.

    \b
      twofold bench embed cifar10-real --clip ViT-B-32 --weights clip.pt --out clip.npz
    """
    from twofold.bench.catalogue import load
    from twofold.errors import InvalidInput
    from twofold.nn import data

    check_target(out, replace=replace)
    found = load(name)
    wanted = chosen or [one.name for one in found.sets if one.role in ("train", *OOD_TEST)]
    opened = {}
    class_names: Sequence[str] = ()
    for word in wanted:
        if found[word].embedded:
            raise InvalidInput(f"the data of {name} come with its classifier and are not images; choose another one")
        opened[word] = data.open(found[word].spec(root))
        if found.roles[word] == "train" and not class_names:
            class_names = opened[word].class_names or ()
    with progress(rate=True) as bar:
        task = bar.add_task("loading", total=sum(map(len, opened.values())))
        arrays = from_torch("clip").embed(
            opened,
            model,
            weights,
            class_names=class_names,
            done=lambda label, rows: bar.update(task, advance=rows, description=label),
        )
    with replacing(out) as file:
        np.savez_compressed(file, **arrays)
    shapes = {label: list(array.shape) for label, array in arrays.items()}
    if as_json:
        click.echo(json.dumps(shapes))
        return
    for label, (rows, width) in shapes.items():
        click.echo(f"{label}  {rows} x {width}")


@click.command("strata")
@click.argument("run", type=RUN)
@click.option("--embeddings", type=FILE, help="npz with an array for each data set of the run.")
@JSON
def strata_command(run: Path, embeddings: Path | None, as_json: bool) -> None:
    """Group unknown sets into near, mid and far by their distance from training data.

    RUN is a run with a training set and at least three unknown sets. Distances are measured between the model's own
    features, or between other embeddings of the same rows, such as those of `twofold bench embed`.

    \b
      twofold bench strata run
      twofold bench strata run --embeddings clip.npz
    """
    from twofold.bench.strata import distances, strata
    from twofold.errors import InvalidInput
    from twofold.outputs import load_npz
    from twofold.run import Run

    opened = Run.open(run)
    unknown = opened.names(OOD_TEST)
    train = opened.names("train") or opened.names("test")
    if not train or len(unknown) < 3:
        raise InvalidInput(f"{run} must hold a train or test set and three unknown sets; it holds {opened.roles}")
    names = [train[0], *unknown]
    if embeddings is None:
        source = "the model's own features"
        arrays = _select_features(opened, names)
    else:
        source = str(embeddings)
        arrays = load_npz(embeddings)
        for name in names:
            if name not in arrays:
                raise InvalidInput(f"{embeddings} has no array {name}; it holds {', '.join(arrays)}")
    labels = opened[train[0]].labels
    if labels is None:
        raise InvalidInput(f"{train[0]} has no labels in {run}, but distances to its classes need them")
    unknown_sets = {name: arrays[name] for name in unknown}
    table = distances(arrays[train[0]], labels, unknown_sets, text=arrays.get("class_texts"))
    found = strata(table)
    if as_json:
        report = {"embeddings": source, "distances": table.to_dict(), "groups": dict(found.groups)}
        click.echo(json.dumps(report, indent=2, default=list))
        return
    click.echo(f"by {source}:")
    for group, members in found.groups.items():
        click.echo(f"{group}: {', '.join(members)}")


def _select_features(run: Run, names: Sequence[str]) -> dict[str, AnyArray]:
    """Select the features of data sets of a run."""
    from twofold.errors import InvalidInput

    found = {}
    for name in names:
        features = run[name].features
        if features is None:
            raise InvalidInput(f"{name} has no features in {run.path}; give --embeddings")
        found[name] = features
    return found


def _read_lines(path: Path) -> list[str]:
    """Read the lines of a file that are not empty."""
    from twofold.errors import InvalidInput

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    return list(filter(None, map(str.strip, lines)))
