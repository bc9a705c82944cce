"""``twofold bench build``, ``embed`` and ``strata``: choose unknown data sets and group them by distance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np

from twofold._files import replacing
from twofold.cli.options import BENCHMARK, FILE, FOLDER, MODEL, ROOT, RUN, AliasedOption
from twofold.cli.shared import JSON, REPLACE, check_target, from_torch, progress
from twofold.roles import OOD_TEST

if TYPE_CHECKING:
    from twofold.bench.catalogue import Benchmark
    from twofold.bench.grouping import Grouping
    from twofold.bench.wordnet import Built
    from twofold.outputs import AnyArray
    from twofold.run import Run

LABELS = "labels"  # array of embeddings with the labels of the training set


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
@click.option("--clip", help="Network of open_clip, such as ViT-B-32.")
@click.option("--model", type=MODEL, help="Classifier whose features are taken, in place of a CLIP network.")
@click.option("--weights", type=click.Path(path_type=Path), help="File of the network's weights.")
@click.option("--normalise", default="none", show_default=True, help="Channel statistics for --model: cifar10, ...")
@click.option(
    "--name",
    "chosen",
    cls=AliasedOption,
    aliases=("--only",),
    multiple=True,
    help="Data set to embed; by default the training set, the test set and the unknown ones. May be repeated.",
)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    help="Text of a class with {} for its name; several are averaged. By default 'a photo of a {}'.",
)
@click.option("--sample", type=click.IntRange(min=1), help="Images of each data set, drawn by a seed; by default all.")
@click.option("--device", default="cpu", show_default=True, help="Where the network runs.")
@click.option("--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Images per batch.")
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="npz file to write.")
@REPLACE
@ROOT
@JSON
def embed_command(
    name: str,
    clip: str | None,
    model: str | None,
    weights: Path | None,
    normalise: str,
    chosen: tuple[str, ...],
    prompts: tuple[str, ...],
    sample: int | None,
    device: str,
    batch: int,
    out: Path,
    replace: bool,
    root: Path | None,
    as_json: bool,
) -> None:
    """Embed the data sets of a benchmark with a CLIP network.

    NAME is one of `twofold bench list`. The npz file has an array for each data set, the labels of the training set,
    and with CLIP an array for the class names. `twofold bench strata` reads it. Without CLIP's weights, --model takes
    the features of any classifier; its classes need not be those of the data.

    \b
      twofold bench embed cifar10-real --clip ViT-B-32 --weights clip.pt --out clip.npz
    """
    from twofold.bench.catalogue import load
    from twofold.bench.sampling import EVERY, sample_images
    from twofold.errors import InvalidInput
    from twofold.nn import data

    if (clip is None) == (model is None):
        raise click.UsageError("give --clip, or --model for the features of a classifier; one of the two")
    if clip is not None and weights is None:
        raise click.UsageError("--clip needs --weights, the file of its weights; nothing is downloaded")
    check_target(out, replace=replace)
    found = load(name)
    if sample is not None:
        found = sample_images(found, {EVERY: sample})
    wanted = chosen or [one.name for one in found.sets if one.role in ("train", "test", *OOD_TEST)]
    opened = {}
    class_names: Sequence[str] = ()
    labels = None
    for word in wanted:
        if found[word].embedded:
            raise InvalidInput(f"the data of {name} come with its classifier and are not images; choose another one")
        opened[word] = data.open(found[word].spec(root))
        if found.roles[word] == "train" and labels is None:
            class_names = opened[word].class_names or ()
            labels = opened[word].labels
    with progress(rate=True) as bar:
        task = bar.add_task("loading", total=sum(map(len, opened.values())))

        def done(label: str, rows: int) -> None:
            bar.update(task, advance=rows, description=label)

        if clip is not None:
            arrays = from_torch("clip").embed(
                opened,
                clip,
                weights,
                class_names=class_names,
                prompts=prompts,
                device=device,
                batch=batch,
                done=done,
            )
        else:
            arrays = from_torch("embedding").embed_features(
                opened, model, weights, normalise=normalise, device=device, batch=batch, done=done
            )
    if labels is not None:
        arrays[LABELS] = np.asarray(labels)
    with replacing(out) as file:
        np.savez_compressed(file, **arrays)
    shapes = {label: list(array.shape) for label, array in arrays.items()}
    if as_json:
        click.echo(json.dumps(shapes))
        return
    for label, shape in shapes.items():
        click.echo(f"{label}  {' x '.join(map(str, shape))}")


@click.command("strata")
@click.argument("run", type=RUN, required=False)
@click.option("--benchmark", type=BENCHMARK, help="Benchmark whose data sets were embedded, in place of a run.")
@click.option("--embeddings", type=FILE, help="npz with an array for each data set of the run or the benchmark.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write the groups to.")
@REPLACE
@ROOT
@JSON
def strata_command(
    run: Path | None,
    benchmark: str | None,
    embeddings: Path | None,
    out: Path | None,
    replace: bool,
    root: Path | None,
    as_json: bool,
) -> None:
    """Group unknown sets into near, mid and far by their distance from training data.

    RUN is a run with a training set and at least three unknown sets. Distances are measured between the model's own
    features, or between other embeddings of the same rows, such as those of `twofold bench embed`.

    Without a run, --benchmark names the data sets of --embeddings. The labels of the training set are then its array
    `labels`, or those of the data themselves. Prints the distances of every set, first those of the known test set.
    `twofold bench run --strata` takes the file of the groups.

    \b
      twofold bench strata run
      twofold bench strata --benchmark cifar10-real --embeddings clip.npz --out groups.json
    """
    from twofold.bench.grouping import Grouping

    if (run is None) == (benchmark is None):
        raise click.UsageError("give a run, or --benchmark with --embeddings; one of the two")
    if out is not None:
        check_target(out, replace=replace)
    if run is not None:
        source = _read_run(run, embeddings)
    else:
        source = _read_benchmark(str(benchmark), embeddings, root)
    test = None
    if source.test is not None:
        test = source.test, source.arrays[source.test]
    found = Grouping.measure(
        source.embeddings,
        (source.train, source.arrays[source.train], source.labels),
        {name: source.arrays[name] for name in source.unknown},
        test=test,
        text=source.arrays.get("class_texts"),
    )
    if out is not None:
        found.save(out)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
        return
    _print_groups(found)


def _print_groups(found: Grouping) -> None:
    """Print the distances of every data set, and its group."""
    click.echo(f"by {found.embeddings}:")
    lines = found.lines()
    width = max(len(name) for name, _, _ in lines)
    measures = found.unknown.measures
    click.echo(" ".join([" " * width, *(f"{measure:>9}" for measure in measures), " group"]))
    for name, group, row in lines:
        values = [f"{row[measure]:9.4f}" for measure in measures]
        click.echo(" ".join([f"{name:<{width}}", *values, f" {group}"]))


class _EmbeddedSets(NamedTuple):
    """Arrays of data sets, which of them is what, and what the arrays are."""

    embeddings: str
    train: str
    test: str | None
    unknown: tuple[str, ...]
    arrays: Mapping[str, AnyArray]
    labels: AnyArray


def _read_run(path: Path, embeddings: Path | None) -> _EmbeddedSets:
    """Read the features of a run, or other embeddings of its data sets."""
    from twofold.errors import InvalidInput
    from twofold.run import Run

    run = Run.open(path)
    unknown = run.names(OOD_TEST)
    tests = run.names("test")
    train = [*run.names("train"), *tests]
    if not train or len(unknown) < 3:
        raise InvalidInput(f"{path} must hold a train or test set and three unknown sets; it holds {run.roles}")
    labels = run[train[0]].labels
    if labels is None:
        raise InvalidInput(f"{train[0]} has no labels in {path}, but distances to its classes need them")
    test = tests[0] if tests and tests[0] != train[0] else None
    names = [train[0], *unknown]
    if test is not None:
        names.append(test)
    if embeddings is None:
        return _EmbeddedSets(
            "the model's own features", train[0], test, tuple(unknown), _select_features(run, names), labels
        )
    arrays = _read_arrays(embeddings)
    if test is not None and test not in arrays:
        test = None
    for name in [train[0], *unknown]:
        if name not in arrays:
            raise InvalidInput(f"{embeddings} has no array {name}; it holds {', '.join(arrays)}")
    return _EmbeddedSets(str(embeddings), train[0], test, tuple(unknown), arrays, labels)


def _read_benchmark(name: str, embeddings: Path | None, root: Path | None) -> _EmbeddedSets:
    """Read embeddings of the data sets of a benchmark; labels are those of the file, or of the data."""
    from twofold.bench.catalogue import load
    from twofold.errors import InvalidInput

    if embeddings is None:
        raise click.UsageError("--benchmark needs --embeddings, a file with an array for each of its data sets")
    benchmark = load(name)
    arrays = _read_arrays(embeddings)
    train = next((one for one in benchmark.names("train") if one in arrays), None)
    if train is None:
        raise InvalidInput(f"{embeddings} has no array of the training set of {name}: {benchmark.names('train')[0]}")
    unknown = tuple(one.name for one in benchmark.sets if one.role in OOD_TEST and one.name in arrays)
    if len(unknown) < 3:
        raise InvalidInput(f"{embeddings} has {len(unknown)} unknown sets of {name}, but groups need at least three")
    labels = arrays.get(LABELS)
    if labels is None:
        labels = _read_labels(benchmark, train, root)
    test = next((one for one in benchmark.names("test") if one in arrays), None)
    return _EmbeddedSets(str(embeddings), train, test, unknown, arrays, labels)


def _read_labels(benchmark: Benchmark, name: str, root: Path | None) -> AnyArray:
    """Read the labels of a data set of a benchmark."""
    from twofold.nn import data

    return np.asarray(data.open(benchmark[name].spec(root)).labels)


def _read_arrays(path: Path) -> dict[str, AnyArray]:
    from twofold.outputs import load_npz

    return load_npz(path)


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
