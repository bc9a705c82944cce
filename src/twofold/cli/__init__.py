"""The command line: one thin function per verb. Results go to stdout, talk to stderr, ``--json`` everywhere."""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from twofold import __version__
from twofold.cli.bench import bench_group, compare_command
from twofold.cli.gate import gate_group
from twofold.cli.options import (
    FIELDS,
    METRICS,
    MODEL,
    PLUGIN,
    PRESET,
    RECIPE,
    ROLE,
    SCORE,
    SHARE,
    AliasedOption,
)
from twofold.cli.report import report_command
from twofold.cli.score import score_command
from twofold.cli.shared import (
    JSON,
    REPLACE,
    Verbs,
    check_same_model,
    check_target,
    from_torch,
    progress,
    read_outputs,
    resumable,
)
from twofold.cli.study import study_group

if TYPE_CHECKING:
    from twofold.demo import Row
    from twofold.metrics import MetricInfo
    from twofold.outputs import Outputs
    from twofold.scores.chain import StepInfo
    from twofold.stats import Interval


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
RESAMPLES = click.option(
    "--resamples",
    type=click.IntRange(min=10),
    default=1000,
    show_default=True,
    help="Bootstrap resamples per interval.",
)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="twofold")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
def main(debug: bool) -> None:
    """Tell how far a classifier can be trusted.

    A classifier fails in two ways: it mislabels what it knows, or it labels what it does not know. twofold measures
    both, exactly and with intervals.

    \b
      twofold demo
      twofold evaluate scores.npz --intervals

    Exit codes: 0 success, 1 check failed or infeasible, 2 usage error, 3 invalid input data, 130 interrupted.
    """


@main.command("demo")
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
    """Judge a small classifier of digits on what it knows and does not know.

    Trains on digits 0 to 6, writes a run, tries every pair of the usual scores on validation data, as `twofold report`
    does, and prints the joint table of the best pairs (by DS-F1) beside the plain ones, with digits 7 to 9 as near OOD
    and patches of photographs as far OOD. Takes less than a minute; nothing is downloaded.

    The run of an earlier demo is replaced, any other is left alone.

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


@main.command("evaluate")
@click.argument("file", type=FILE)
@click.option(
    "--unknown", multiple=True, type=FILE, help="npz file with outputs of unknown (OOD) inputs; may be repeated."
)
@click.option("--train", type=FILE, help="npz file of the training set, for scores that learn.")
@click.option(
    "--id",
    "id_score",
    cls=AliasedOption,
    aliases=("--score",),
    type=SCORE,
    help="Score of correct against wrong labels; see `twofold list scores`.  [default: msp]",
)
@click.option(
    "--ood",
    "ood_score",
    cls=AliasedOption,
    aliases=("--second",),
    type=SCORE,
    help="Score of known against unknown inputs: adds the joint metrics.",
)
@click.option(
    "--metric",
    "wanted",
    cls=AliasedOption,
    aliases=("--only",),
    multiple=True,
    type=METRICS,
    help="Metric to compute, or 'all'; may be repeated, or several with commas.",
)
@click.option("--ood-share", type=SHARE, help="OOD prevalence expected in deployment, in [0, 1).")
@click.option("--intervals", is_flag=True, help="Add 95 % bootstrap intervals.")
@RESAMPLES
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resamples.")
@PLUGIN
@JSON
def evaluate_command(
    file: Path,
    unknown: tuple[Path, ...],
    train: Path | None,
    id_score: str | None,
    ood_score: str | None,
    wanted: tuple[str, ...],
    ood_share: float | None,
    intervals: bool,
    resamples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Print every standard metric of the confidences in an npz file.

    FILE holds `correct` (booleans) and `conf` (higher is safer), and optionally `is_id` (booleans) and `conf_ood`, a
    second confidence for known against unknown inputs. Or it holds `logits` and `labels` (-1 = OOD), and what else a
    score needs (`features`, `head.weight`, `head.bias`); then --id is the confidence, by default the maximum softmax
    probability, ranked by its log-odds. `probs` may stand in for `logits`.

    \b
      twofold evaluate scores.npz
      twofold evaluate scores.npz --metric aurc,ds_f1 --intervals --json
      twofold evaluate test.npz --unknown svhn.npz --id msp --ood energy
    """
    from twofold.metrics import coverage_note, evaluate
    from twofold.report import intervals as with_intervals

    arrays = _arrays(file, unknown, train, id_score, ood_score)
    result = evaluate(**arrays, ood_share=ood_share, only=_metrics_wanted(wanted))
    if not intervals:
        click.echo(result.to_json() if as_json else str(result))
        return
    with progress() as bar:
        task = bar.add_task("resampling", total=len(result))
        table = with_intervals(
            **arrays,
            ood_share=ood_share,
            only=list(result),
            n=resamples,
            seed=seed,
            done=lambda: bar.update(task, advance=1),
        )
    if as_json:
        data = result.to_dict() | {"metrics": {name: _interval_as_json(i) for name, i in table.items()}}
        click.echo(json.dumps(data, indent=2))
        return
    width = max(map(len, table))
    for name, interval in table.items():
        shown = f"undefined: {result.reasons[name]}" if name in result.reasons else _shown(interval, 1, 5)
        click.echo(f"{name:<{width}}  {shown}")
    note = coverage_note(table)
    if note:
        click.echo(note)


@main.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print what makes a shell complete twofold's words.

    \b
      twofold completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(main, {}, "twofold", "_TWOFOLD_COMPLETE").source())


@main.command("verify")
@click.argument("run", type=click.Path(path_type=Path))
@JSON
def verify_command(run: Path, as_json: bool) -> None:
    """Read every byte of a run and tell whether it is as it was written.

    \b
      twofold verify twofold-demo
    """
    from twofold.run import Run

    opened = Run(run)  # verify() lists all that is damaged, and open would raise at the first
    opened.verify()
    if as_json:
        click.echo(json.dumps({"run": str(run), "intact": True, "data": opened.roles}, indent=2))
        return
    for name, role in opened.roles.items():
        click.echo(f"{name}  ({role})  {len(opened[name])} rows")
    click.echo(f"{run} is intact.", err=True)


@main.command("extract")
@click.argument("model", type=MODEL)
@click.option("--data", "specs", multiple=True, required=True, help="Data set, as sheet:test.webp; may be repeated.")
@click.option("--role", "roles", multiple=True, required=True, type=ROLE, help="Role of each data set.")
@click.option("--name", "names", multiple=True, help="Name of each in the run; by default its role.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the run, new or existing.")
@click.option("--checkpoint", "checkpoints", multiple=True, help="Weights; several are a deep ensemble.")
@click.option("--classes", type=click.IntRange(min=1), help="Classes of a model that is built by name.")
@click.option("--head", help="Name of the last linear layer, if it is not found by itself.")
@click.option("--normalise", default="none", show_default=True, help="ID statistics: cifar10, imagenet, ...")
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Images at a time.")
@click.option("--device", default="cpu", show_default=True, help="Where the network runs.")
@click.option("--workers", type=click.IntRange(min=0), default=0, show_default=True, help="Processes that read ahead.")
@click.option("--layers", help="Record layer statistics: names separated by commas, or 'all'.")
@click.option("--passes", type=click.IntRange(min=0), default=0, show_default=True, help="MC-dropout passes.")
@click.option("--keep-passes", is_flag=True, help="Keep the logits of every pass, not only their means.")
@click.option("--odin", type=float, help="Record ODIN with this step, in pixels of [0, 1].")
@click.option("--mahalanobis", type=float, help="Record mds_perturbed with this step; extract train first.")
@click.option("--rankfeat", help="Record RankFeat of these layers, separated by commas.")
@click.option("--half", is_flag=True, help="Store features in float16; logits stay in float32.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the passes; kept as that of the network.")
@click.option("--replace", is_flag=True, help="Overwrite data sets that are there already.")
@JSON
@resumable
def extract_command(
    model: str,
    specs: tuple[str, ...],
    roles: tuple[str, ...],
    names: tuple[str, ...],
    out: Path,
    checkpoints: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Run a network once over data sets and write a run.

    MODEL is timm:NAME, torchvision:NAME, hf:FOLDER, file.py:function or a network of twofold.nn (see `twofold list
    models`). Images are read where they are; nothing is downloaded. A killed extraction goes on when the same command
    is given again; data sets that are complete are passed over. Under torchrun each process takes its share.

    \b
      twofold extract resnet20_cifar --checkpoint weights.npz --classes 10 --normalise imagenet \\
        --data sheet:cifar10_test.webp?labels=image_labels.npz --role test --out run
    """
    extract_all = from_torch("extraction").extract_all
    names = names or roles
    if not len(specs) == len(roles) == len(names):
        given = f"{len(specs)} --data, {len(roles)} --role and {len(names)} --name"
        raise click.UsageError(f"give one --role for each --data, and a --name for each or for none; got {given}")
    with progress(rate=True) as bar:
        task = bar.add_task("loading", total=None)
        run = extract_all(
            model,
            list(zip(specs, roles, names, strict=True)),
            out,
            checkpoints=checkpoints,
            begin=lambda name, rows: bar.reset(task, total=rows, description=name),
            done=lambda rows: bar.advance(task, rows),
            command=" ".join(sys.argv[1:]),
            **options,
        )
    rows = [{"name": name, "role": run.roles[name], "rows": len(run[name])} for name in names]
    if as_json:
        click.echo(json.dumps({"run": str(out), "data": rows}, indent=2))
    else:
        for row in rows:
            click.echo(f"{row['name']}  ({row['role']})  {row['rows']} rows")


@main.command("train")
@click.option("--recipe", required=True, type=RECIPE, help="Name of a recipe; see `twofold list recipes`.")
@click.option("--model", required=True, type=MODEL, help="Network of twofold.nn; see `twofold list models`.")
@click.option("--data", required=True, help="Training set, such as cifar100:PATH?split=train.")
@click.option("--val", help="Validation set, judged after every epoch.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for weights, state and history.")
@click.option(
    "--preset",
    type=PRESET,
    default="cifar",
    show_default=True,
    help="Settings of a paper: cifar, fd_cifar, imagenet, ...",
)
@click.option("--epochs", type=click.IntRange(min=1), help="Other than the preset's.")
@click.option("--batch", type=click.IntRange(min=2), help="Other than the preset's.")
@click.option("--lr", type=float, help="Other than the preset's.")
@click.option("--keep", type=click.Choice(["last", "accuracy", "aurc", "fail_ap"]), help="Whose weights are kept.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of weights, order and augmentation.")
@click.option("--normalise", default="none", show_default=True, help="Statistics: cifar10, imagenet, ...")
@click.option("--outliers", help="Images of no known class, for oe and energy_finetune.")
@click.option("--mixers", type=click.Path(), help="Folder of pictures for PixMix; by default fractals are made.")
@click.option("--checkpoint", type=click.Path(), help="Weights to start from.")
@click.option("--device", default="cpu", show_default=True, help="Where the network runs.")
@click.option(
    "--precision", type=click.Choice(["float32", "bf16"]), default="float32", show_default=True, help="Of passes."
)
@click.option(
    "--compile", "compiled", is_flag=True, help="Compile the passes: a minute at first, then steps are faster."
)
@click.option("--gather", is_flag=True, default=None, help="Pairs and ranks over the batch of all processes.")
@click.option("--tensorboard", is_flag=True, help="Write the history for TensorBoard too, to a folder in --out.")
@click.option("--dry-run", is_flag=True, help="Tell what would happen and how long it would take.")
@JSON
@resumable
def train_command(out: Path, tensorboard: bool, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Train a network by a recipe, from plain cross-entropy to SURE+.

    Everything is in the folder --out after every epoch; the same command goes on where it stopped, and ends with the
    weights of a run that was never interrupted.

    \b
      twofold train --recipe sure_plus --model resnet18_32 --data cifar100:PATH?split=train --out run --dry-run
    """
    training = from_torch("training")
    plan = training.Plan.of(options.pop("recipe"), options.pop("model"), options.pop("data"), **options)
    if dry_run:
        told = plan.describe()
        lines = [f"{key}: {value}" for key, value in told.items()]
        click.echo(json.dumps(told, indent=2) if as_json else "\n".join(lines))
        return
    events = training.tensorboard(out / "tensorboard") if tensorboard else nullcontext(lambda values: None)
    with progress(rate=True) as bar, events as write:
        task = bar.add_task("training", total=plan.steps)

        def done(values: Any) -> None:
            write(values)
            if "step" in values:
                bar.update(task, advance=1, description=f"loss {values['loss']:.4f}")

        found = plan.run(out, done)
    rows = [{"weights": str(one.path), "averaged": one.window, **(one.history or ({},))[-1]} for one in found]
    click.echo(json.dumps(rows, indent=2) if as_json else "\n".join(_as_line(row) for row in rows))


def _as_line(row: dict[str, Any]) -> str:
    return "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())


@main.group("data", cls=Verbs)
def data_group() -> None:
    """Look at data sets and resize them; every subcommand takes --json.

    \b
      twofold data check cifar10:cifar-10-batches-bin?split=test
    """


@data_group.command("check")
@click.argument("spec")
@click.option("--against", help="ID data set to compare with.")
@click.option("--sheet", type=click.Path(dir_okay=False, path_type=Path), help="Write a contact sheet PNG here.")
@REPLACE
@JSON
def data_check_command(spec: str, against: str | None, sheet: Path | None, replace: bool, as_json: bool) -> None:
    """Print counts, shapes and classes of a data set, and how smooth its images are.

    Total variation well above that of the ID set tells of images resized without antialiasing.

    \b
      twofold data check folder:images?size=32 --against cifar10:cifar-10-batches-bin --sheet images.png
    """
    from twofold.nn import data

    if sheet is not None:
        check_target(sheet, replace=replace)
    images = data.open(spec)
    report = data.check(images, None if against is None else data.open(against))
    if sheet is not None:
        data.contact_sheet(images, sheet)
    click.echo(json.dumps(report.as_dict(), indent=2) if as_json else str(report))


@data_group.command("resize")
@click.argument("spec")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="npz file to write.")
@click.option("--size", type=click.IntRange(min=1), default=32, show_default=True, help="Side of the new images.")
@click.option("--rule", type=click.Choice(["fix", "shorter"]), default="fix", show_default=True, help="How to resize.")
@REPLACE
@JSON
def data_resize_command(
    spec: str, out: Path, size: int, rule: Literal["fix", "shorter"], replace: bool, as_json: bool
) -> None:
    """Resize a data set with antialiasing and write it to an npz file.

    \b
      twofold data resize folder:lsun --out lsun.npz
    """
    from twofold.nn import data

    check_target(out, replace=replace)
    images = data.open(spec)
    data.resize(images, out, size=size, rule=rule)
    if as_json:
        click.echo(json.dumps({"file": str(out), "images": len(images)}))
    else:
        click.echo(f"{out}  {len(images)} images")


@main.command("list")
@click.argument("what", type=click.Choice(["metrics", "scores", "transforms", "models", "recipes"]))
@click.option("--needs", type=FIELDS, help="Only what these fields of outputs allow, separated by commas.")
@PLUGIN
@JSON
def list_command(what: str, needs: str | None, as_json: bool) -> None:
    """List what there is: metrics, scores and transforms with their meaning, networks, training recipes.

    \b
      twofold list metrics
      twofold list scores --needs logits
    """
    from twofold import metrics
    from twofold.scores import chain as steps

    if needs is not None and what not in ("scores", "transforms"):
        raise click.UsageError(f"--needs is for scores and transforms, not for {what}")
    rows: list[dict[str, Any]]
    if what == "models":
        rows = [{"name": name, "summary": ""} for name in from_torch("models").names()]
        shown = [""] * len(rows)
    elif what == "recipes":
        recipes = from_torch("recipes").RECIPES
        rows = [{"name": name, "summary": str(made), "passes": made.passes} for name, made in recipes.items()]
        shown = [f"{row['passes']}x" for row in rows]
    elif what == "metrics":
        rows = [_metric_row(metrics.info(name)) for name in metrics.names()]
        shown = [f"{'↑' if r['better'] == 'higher' else '↓'} {r['task']:<11}" for r in rows]
    else:
        given = None if needs is None else [name.strip() for name in needs.split(",")]
        kind: Any = what.removesuffix("s")
        rows = [_step_row(steps.info(name)) for name in steps.names(kind, given)]
        shown = [f"{', '.join(r['needs']):<22}" for r in rows]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(r["name"]) for r in rows), default=0)
    for row, facts in zip(rows, shown, strict=True):
        click.echo(f"{row['name']:<{width}} {facts} {row['summary']}")


def _without_markup(text: str) -> str:
    """Write the first line of a docstring for a terminal: no roles, no double backquotes, no commands of TeX.

    >>> _without_markup(r"Excess: :math:`\\mathrm{AURC} - e^2`, with ``cost`` 1.")
    'Excess: AURC - e^2, with cost 1.'
    """
    plain = re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
    plain = re.sub(r"\\mathrm\{([^}]*)\}", r"\1", plain)
    return re.sub(r"\\(\w+)", r"\1", plain)


def _metric_row(record: MetricInfo) -> dict[str, Any]:
    return {
        "name": record.name,
        "task": record.task,
        "better": record.better,
        "bounds": [b if math.isfinite(b) else None for b in record.bounds],
        "arrays": record.arrays,
        "summary": _without_markup(record.summary),
        "formula": record.formula,
        "reference": record.reference,
    }


def _step_row(record: StepInfo) -> dict[str, Any]:
    return {
        "name": record.name,
        "kind": record.kind,
        "aliases": record.aliases,
        "needs": record.needs,
        "fit_needs": record.fit_needs,
        "settings": record.settings,
        "judges": record.judges,
        "cost": record.cost,
        "summary": _without_markup(record.summary),
        "reference": record.paper,
    }


def _metrics_wanted(options: tuple[str, ...]) -> Any:
    """Names of metrics from the values of --metric, each of which may hold several."""
    names = [name.strip() for option in options for name in option.split(",")]
    if "all" in names:
        return "all"
    return list(dict.fromkeys(names)) or None


def _arrays(
    file: Path, unknown: tuple[Path, ...], train: Path | None, id_score: str | None, ood_score: str | None
) -> dict[str, Any]:
    """The arguments of ``evaluate`` from npz files."""
    from twofold.cli.score import joined
    from twofold.errors import InvalidInput
    from twofold.outputs import load_npz
    from twofold.scores.chain import scorer

    arrays = load_npz(file)
    if "logits" in arrays or "probs" in arrays:
        outputs = joined(file, unknown)
        learn = None
        if train is not None:
            learn = read_outputs(train)
            check_same_model(file, outputs, train, learn)
        chains = [scorer(id_score or "msp")]
        if ood_score is not None:
            chains.append(scorer(ood_score))
        fitted = [chain if chain.ready else chain.fit(_given(learn, chain.spec)) for chain in chains]
        judged = outputs.averaged() if fitted[0].judges == "passes" else outputs
        found = {"correct": judged.correct, "is_id": None if outputs.is_id.all() else outputs.is_id}
        return found | dict(zip(("conf", "conf_ood"), (one.score(outputs) for one in fitted), strict=False))
    options = {"--unknown": unknown, "--train": train, "--id": id_score, "--ood": ood_score}
    idle = [name for name, value in options.items() if value]
    if idle:
        raise InvalidInput(f"{file} holds no logits, so {' and '.join(idle)} cannot be used")
    known = {"correct", "conf", "is_id", "conf_ood"}
    if not {"correct", "conf"} <= set(arrays) or set(arrays) - known:
        raise InvalidInput(
            f"{file} must hold correct and conf, optionally is_id and conf_ood, or logits (or probs) and labels; "
            f"it holds {', '.join(sorted(arrays)) or 'nothing'}"
        )
    return arrays


def _given(train: Outputs | None, spec: str) -> Outputs:
    from twofold.errors import InvalidInput

    if train is None:
        raise InvalidInput(f"{spec} learns from a training set; pass its outputs with --train")
    return train


def _print_rows(rows: list[Row]) -> None:
    """One table per OOD set: metrics down, pairs of scores across."""
    from rich.console import Console
    from rich.table import Table

    from twofold.metrics import coverage_note
    from twofold.report import JOINT

    console = Console(width=None if sys.stdout.isatty() else 120)
    gap = " " if console.width >= 105 else "\n"
    for ood_set in dict.fromkeys(row.ood_set for row in rows):
        picked = [row for row in rows if row.ood_set == ood_set]
        table = Table(title=f"{ood_set} OOD (95 % intervals)", title_justify="left")
        table.add_column("metric", no_wrap=True)
        for row in picked:
            table.add_column(f"{row.id_score} + {row.ood_score}", justify="right")
        for metric, (heading, factor, _) in JOINT.items():
            table.add_row(heading, *(_shown(row.values[metric], factor, 1, gap) for row in picked))
        console.print(table)
    notes = dict.fromkeys(what for _, _, what in JOINT.values())
    for what in notes:
        named = ", ".join(h.split()[0] for h, _, w in JOINT.values() if w == what)
        console.print(f"{named}: {what}", style="dim", highlight=False)
    console.print(f"Registered names: {', '.join(JOINT)}.", style="dim", highlight=False)
    console.print(f"Areas, {coverage_note(JOINT)}.", style="dim", highlight=False)


def _shown(interval: Interval, factor: float, digits: int, gap: str = " ") -> str:
    value, low, high = (factor * x for x in (interval.value, interval.low, interval.high))
    return f"{value:.{digits}f}{gap}[{low:.{digits}f}, {high:.{digits}f}]"


def _row_as_json(row: Row) -> dict[str, Any]:
    values = {name: _interval_as_json(i) for name, i in row.values.items()}
    return {"ood_set": row.ood_set, "id_score": row.id_score, "ood_score": row.ood_score, "metrics": values}


def _interval_as_json(interval: Interval) -> dict[str, Any]:
    def number(x: float) -> float | None:
        return None if math.isnan(x) else x

    return {
        "value": number(interval.value),
        "low": number(interval.low),
        "high": number(interval.high),
        "level": interval.level,
        "resamples": interval.n,
        "undefined": interval.undefined,
    }


main.add_command(bench_group)
main.add_command(compare_command)
main.add_command(gate_group)
main.add_command(score_command)
main.add_command(report_command)
main.add_command(study_group)
