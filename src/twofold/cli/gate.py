"""``twofold gate``: fit, apply, judge and show gates."""

from __future__ import annotations

import csv
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from twofold._csv import escape_row
from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold.cli.confidence_files import (
    COLUMN,
    ConfidenceTable,
    is_confidence_file,
    read_confidences,
    refuse_columns,
)
from twofold.cli.inputs import check_same_model, read_outputs
from twofold.cli.options import (
    COST,
    FILE,
    FOLDER,
    MODEL,
    OPEN_SHARE,
    PLUGIN,
    POSITIVE_SHARE,
    SCORE,
    SCORE_OR_NONE,
    SHARE,
)
from twofold.cli.shared import (
    CHECK_FAILED,
    JSON,
    REPLACE,
    Failed,
    Verbs,
    check_target,
    from_torch,
    progress,
    refuse_to_overwrite,
)
from twofold.roles import OOD_TEST

if TYPE_CHECKING:
    from twofold.gate import Decision, Gate, ReportCard
    from twofold.outputs import Outputs

SOURCE = click.Path(exists=True, path_type=Path)
COLUMNS = ("set", "input", "label", "verdict", "conf_id", "conf_ood", "margin_id", "margin_ood")


@click.group("gate", cls=Verbs)
def gate_group() -> None:
    """Turn two scores into a gate: accept, unsure or unknown, with a promise.

    \b
      twofold gate fit twofold-demo --objective risk --risk 0.1 --delta 0.1 --out gate
      twofold gate apply gate twofold-demo --name test
    """


@gate_group.command("fit")
@click.argument("source", type=SOURCE)
@click.option(
    "--id", "id_score", type=SCORE, default=DEFAULT_ID, show_default=True, help="Score of correct against wrong labels."
)
@click.option(
    "--ood",
    "ood_score",
    type=SCORE_OR_NONE,
    default=DEFAULT_OOD,
    show_default=True,
    help="Score of known against unknown inputs, or none.",
)
@click.option(
    "--objective",
    type=click.Choice(["f1", "risk", "coverage", "cost", "given"]),
    default="f1",
    show_default=True,
    help="Best DS-F1; most coverage at a risk; least risk at a coverage; least cost; given thresholds.",
)
@click.option("--risk", type=SHARE, help="Largest share of failures among accepted inputs (objective risk).")
@click.option("--delta", type=OPEN_SHARE, help="Guarantee the risk with confidence 1 - DELTA.")
@click.option("--coverage", type=POSITIVE_SHARE, help="Least share of ID inputs to accept (objective coverage).")
@click.option("--cost-wrong", type=COST, help="Cost of a wrong label accepted (objective cost).")
@click.option("--cost-ood", type=COST, help="Cost of an OOD input accepted.")
@click.option("--cost-reject", type=COST, help="Cost of an input rejected.")
@click.option("--tau-id", type=float, help="Threshold on the score of --id (objective given).")
@click.option("--tau-ood", type=float, help="Threshold on the score of --ood.")
@click.option("--ood-share", type=SHARE, help="OOD prevalence expected in use, in [0, 1); by default validation's.")
@click.option("--train", type=FILE, help="npz file of the training set.")
@click.option(
    "--groups",
    type=FILE,
    help="Text file, one line per validation row: its scene, patient or user. By default the `groups` of SOURCE.",
)
@COLUMN
@click.option("--out", required=True, type=FOLDER, help="Folder of the gate.")
@REPLACE
@PLUGIN
@JSON
def fit_command(
    source: Path,
    id_score: str,
    ood_score: str,
    train: Path | None,
    groups: Path | None,
    columns: tuple[str, ...],
    out: Path,
    replace: bool,
    as_json: bool,
    cost_wrong: float | None,
    cost_ood: float | None,
    cost_reject: float | None,
    tau_id: float | None,
    tau_ood: float | None,
    **request: Any,
) -> None:
    """Choose two thresholds on validation data and write the gate.

    SOURCE is a run with the roles val and ood_val (and train, for scores that learn), or an npz file with `logits` (or
    `probs`) and `labels` (-1: OOD). It may also be a CSV file of confidences that twofold did not compute, with the
    columns `correct` and `conf`, and optionally `conf_ood`, `is_id` and `group`. Infeasible requests are rejected, and
    the error says what is feasible. An existing gate is overwritten only with --replace.

    --delta guarantees the risk for independent rows. Rows of one scene, patient or user are not independent: name their
    groups with --groups (rows of val first, then of ood_val), and the risk is guaranteed for the rows of new groups.

    \b
      twofold gate fit twofold-demo --id msp --ood energy --objective risk --risk 0.1 --delta 0.1 --out gate
      twofold gate fit twofold-demo --objective cost --cost-wrong 1 --cost-ood 5 --cost-reject 0.2 --out gate-cost
      twofold gate fit twofold-demo --objective given --tau-id 2.2 --tau-ood 5 --out gate-given
      twofold gate fit answers.csv --column conf=judge_score --objective risk --risk 0.1 --delta 0.1 --out gate-judge
    """
    from twofold.gate import Gate
    from twofold.run import Run

    refuse_to_overwrite(out / "gate.json", replace=replace)
    options = {
        "--risk": request["risk"],
        "--delta": request["delta"],
        "--coverage": request["coverage"],
        "--cost-wrong": cost_wrong,
        "--cost-ood": cost_ood,
        "--cost-reject": cost_reject,
        "--tau-id": tau_id,
        "--tau-ood": tau_ood,
    }
    table = _read_own_confidences(source, columns)
    if table is not None and table.conf_ood is None:
        ood_score = "none"
    _check_objective(request["objective"], options, ood_score)
    costs = _without_none({"wrong": cost_wrong, "ood": cost_ood, "reject": cost_reject})
    thresholds = tuple(_without_none({"id": tau_id, "ood": tau_ood}).values())
    row_groups = None
    if groups is not None:
        row_groups = _read_groups(groups)
    request |= {"costs": costs or None, "thresholds": thresholds or None}
    if table is not None:
        gate = Gate.fit_confidences(
            table.correct, table.conf, table.conf_ood, is_id=table.is_id, groups=row_groups or table.groups, **request
        )
    else:
        validation: Run | Outputs
        if source.is_dir():
            validation = Run.open(source)
        else:
            validation = read_outputs(source)
        training_outputs = None
        if train is not None:
            training_outputs = read_outputs(train)
            if not isinstance(validation, Run):
                check_same_model(source, validation, train, training_outputs)
        second = None if ood_score == "none" else ood_score
        gate = Gate.fit(validation, id_score, second, train=training_outputs, groups=row_groups, **request)
    gate.save(out)
    if as_json:
        click.echo(_as_json(gate))
    else:
        click.echo(gate)
    click.echo(f"The gate is in {out}.", err=True)


def _read_own_confidences(source: Path, columns: tuple[str, ...]) -> ConfidenceTable | None:
    """Read a CSV file of confidences; None where the source is something else."""
    if source.is_dir() or not is_confidence_file(source):
        refuse_columns(columns)
        return None
    context = click.get_current_context()
    for name, option in (("id_score", "--id"), ("ood_score", "--ood"), ("train", "--train")):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{source} holds confidences, which {option} would compute; leave {option} out")
    return read_confidences(source, columns, labelled=True)


def _without_none(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _read_groups(path: Path) -> list[str]:
    """Read the group of each row, one per line."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--groups {path} must be a text file in UTF-8, one group per line") from error


OBJECTIVES: dict[str, tuple[str, ...]] = {
    "f1": (),
    "risk": ("--risk", "--delta"),
    "coverage": ("--coverage",),
    "cost": ("--cost-wrong", "--cost-ood", "--cost-reject"),
    "given": ("--tau-id", "--tau-ood"),
}
"""The options of each objective of ``gate fit``; all but --delta, and --tau-ood without an OOD score, are needed."""


def _check_objective(objective: str, options: Mapping[str, float | None], ood_score: str) -> None:
    """Raise a usage error unless the options are those of the objective."""
    for option, value in options.items():
        if value is not None and option not in OBJECTIVES[objective]:
            owners = [name for name, own in OBJECTIVES.items() if option in own]
            raise click.UsageError(f"{option} belongs to --objective {owners[0]}, and --objective is {objective}")
    if ood_score == "none" and options["--tau-ood"] is not None:
        raise click.UsageError("--tau-ood is the threshold of an OOD score, and --ood is none")
    optional = {"--delta"}
    if ood_score == "none":
        optional.add("--tau-ood")
    missing = []
    for name in OBJECTIVES[objective]:
        if options[name] is None and name not in optional:
            missing.append(name)
    if missing:
        raise click.UsageError(f"--objective {objective} needs {' and '.join(missing)}")


@gate_group.command("apply")
@click.argument("gate", type=FOLDER)
@click.argument("source", type=SOURCE, required=False)
@click.option("--run", type=SOURCE, hidden=True)
@click.option("--outputs", type=SOURCE, hidden=True)
@click.option("--name", "names", multiple=True, help="Data set of the run; may be repeated.")
@click.option("--data", help="Images, such as sheet:test.webp; the network of --model runs over them.")
@click.option("--model", type=MODEL, help="As for `twofold extract`.")
@click.option("--checkpoint", "checkpoints", multiple=True, help="Weights; several are a deep ensemble.")
@click.option("--classes", type=click.IntRange(min=1), help="Classes of a model that is built by name.")
@click.option("--head", help="Name of the last linear layer, if it is not found automatically.")
@click.option("--normalise", default="none", show_default=True, help="ID statistics: cifar10, imagenet, ...")
@click.option("--batch", type=click.IntRange(min=1), default=256, show_default=True, help="Images per batch.")
@click.option("--device", default="cpu", show_default=True, help="Where the network runs.")
@COLUMN
@click.option(
    "--parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a Parquet file that `twofold logs` reads instead of printing; labels are kept where there are any.",
)
@REPLACE
@PLUGIN
@JSON
def apply_command(
    gate: Path,
    source: Path | None,
    run: Path | None,
    outputs: Path | None,
    names: tuple[str, ...],
    data: str | None,
    model: str | None,
    columns: tuple[str, ...],
    parquet: Path | None,
    replace: bool,
    as_json: bool,
    **options: object,
) -> None:
    """Print a verdict for every input: accept, unsure or unknown.

    Unsure means a doubtful label, unknown an out-of-distribution input. SOURCE is a run, an npz file, or a CSV file of
    confidences with the columns `conf`, `conf_ood` (for a gate of two scores) and optionally `id`; or give images
    with --data and a network with --model. Prints CSV: the input, its label, the
    verdict, both confidences and how far they are above their thresholds.

    A name that a spreadsheet could take for a formula (it begins with =, +, -, @ or a tab) gets a leading apostrophe;
    remove it to get the name back.

    \b
      twofold gate apply gate twofold-demo --name test
      twofold gate apply gate live.npz
      twofold gate apply gate twofold-demo --name test --parquet verdicts.parquet
      twofold gate apply gate-judge answers.csv --column conf=judge_score
      twofold gate apply gate --data sheet:new.webp --model resnet20_cifar --checkpoint weights.npz --json
    """
    from twofold.gate import Gate
    from twofold.run import Run

    sources = [one for one in (source, run, outputs) if one is not None]
    if len(sources) + (data is not None) != 1:
        raise click.UsageError("give either SOURCE, a run or an npz file, or --data with --model")
    if (data is None) != (model is None):
        raise click.UsageError("--data and --model go together: the network runs over the images")
    if names and not (sources and sources[0].is_dir()):
        raise click.UsageError("--name picks data sets of a run, and SOURCE is not a run")
    if parquet is not None:
        check_target(parquet, replace=replace)
    opened = Gate.load(gate)
    if sources and not sources[0].is_dir() and is_confidence_file(sources[0]):
        if parquet is not None:
            raise click.UsageError("--parquet is for runs and npz files; `twofold logs apply` takes a CSV file")
        table = read_confidences(sources[0], columns, labelled=False)
        verdicts = _verdicts_of_confidences(opened, sources[0].stem, table)
        _print_verdicts(verdicts, as_json=as_json)
        return
    refuse_columns(columns)
    if not sources:
        sets = {str(data): _run_network(str(model), str(data), options)}
    elif sources[0].is_dir():
        found = Run.open(sources[0])
        sets = {name: found[name] for name in names or found.names()}
    else:
        sets = {sources[0].stem: read_outputs(sources[0])}
    if parquet is not None:
        _write_parquet(opened, sets, parquet, as_json=as_json)
        return
    verdicts = chain.from_iterable(_verdicts(opened, name, one) for name, one in sets.items())
    _print_verdicts(verdicts, as_json=as_json)


def _write_parquet(gate: Gate, sets: Mapping[str, Outputs], path: Path, *, as_json: bool) -> None:
    """Write the decisions on all data sets to one Parquet file, with a column ``set``."""
    from twofold._files import replacing
    from twofold.errors import MissingExtra

    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra('--parquet needs PyArrow: pip install "twofold[logs]"') from error
    tables = []
    for name, outputs in sets.items():
        ids = None if outputs.ids is None else outputs.ids.tolist()
        table = gate.decide(outputs).to_arrow(ids=ids, label=outputs.labels)
        tables.append(table.append_column("set", pa.array([name] * len(table))))
    joined = pa.concat_tables(tables, promote_options="permissive")
    with replacing(path) as file:
        pq.write_table(joined, file)
    if as_json:
        click.echo(json.dumps({"parquet": str(path), "rows": len(joined)}))
    click.echo(f"The verdicts are in {path}.", err=True)


def _print_verdicts(verdicts: Iterator[tuple[object, ...]], *, as_json: bool) -> None:
    """Print the values of ``COLUMNS`` for each input, as CSV or JSON."""
    if as_json:
        records = []
        for row in verdicts:
            records.append(dict(zip(COLUMNS, map(_json_value, row), strict=True)))
        click.echo(json.dumps(records, indent=1))
        return
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in verdicts:
        table.writerow(escape_row(row))


@gate_group.command("card")
@click.argument("gate", type=FOLDER)
@click.argument("source", type=SOURCE)
@click.option("--name", "names", multiple=True, help="Data sets of the run that are judged together.")
@COLUMN
@PLUGIN
@JSON
def card_command(gate: Path, source: Path, names: tuple[str, ...], columns: tuple[str, ...], as_json: bool) -> None:
    """Judge a gate on labelled data against its promise.

    SOURCE is a run, an npz file, or a CSV file with the columns `correct`, `conf` and optionally `conf_ood`, `is_id`
    and `group`. Of a run, the test sets are judged alone, with each OOD set, and with all OOD sets
    pooled, and every shifted set alone; or with --name the named sets together. Coverage is that of ID samples; risk is
    the share of failures, wrong or OOD, among accepted samples. A broken promise is exit code 1.

    \b
      twofold gate card gate twofold-demo
      twofold gate card gate twofold-demo --name test --name photographs
      twofold gate card gate-judge answers.csv --column conf=judge_score
    """
    from twofold.gate import Gate

    opened = Gate.load(gate)
    contents, texts, broken = {}, [], []
    for name, card in _cards(opened, source, names, columns):
        contents[name] = card.to_dict()
        texts.append(f"{name}\n{card}")
        if card.kept == "no":
            broken.append(name)
    if as_json:
        click.echo(json.dumps(contents, indent=2))
    else:
        click.echo(f"{opened.promise}\n")
        click.echo("\n\n".join(texts))
    if broken:
        raise Failed(f"the promise is not kept on {', '.join(broken)}", CHECK_FAILED)


@gate_group.command("export")
@click.argument("gate", type=FOLDER)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--model", required=True, type=MODEL, help="The classifier, as for `twofold extract`.")
@click.option(
    "--target",
    type=click.Choice(["triton", "openinference", "mlflow"]),
    default="openinference",
    show_default=True,
    help="The server: Triton, MLServer (Open Inference Protocol), or MLflow.",
)
@click.option("--checkpoint", help="Weights of the classifier.")
@click.option("--classes", type=click.IntRange(min=1), help="Classes of a model that is built by name.")
@click.option("--head", help="Name of the last linear layer, if it is not found automatically.")
@click.option("--shape", help="Shape of one input, such as 3,32,32; by default that of the training.")
@click.option(
    "--normalise", help="ID statistics to put inside the file: cifar10, imagenet, ...; inputs are then pixels."
)
@PLUGIN
@JSON
def export_command(
    gate: Path,
    out: Path,
    model: str,
    target: str,
    checkpoint: str | None,
    classes: int | None,
    head: str | None,
    shape: str | None,
    normalise: str | None,
    as_json: bool,
) -> None:
    """Write a gate and its classifier as a folder OUT that an inference server serves.

    The classifier and both scores become one ONNX file. A network from a training folder brings the size and the
    normalisation of its input; name them for other networks. Requests then hold pixels in [0, 1], channels first.

    \b
      twofold gate export gate served/resnet18 --model runs/resnet18 --target openinference
      mlserver start served/resnet18
    """
    from twofold.gate import Gate

    opened = Gate.load(gate)
    extraction = from_torch("extraction")
    network = from_torch("models").load(model, classes=classes, checkpoint=checkpoint)
    stored = from_torch("extraction.stored")
    stored.remember_input(network, stored.find_input([checkpoint, model]))
    prepare = None if normalise is None else extraction.Prepare.named(normalise)
    opened.export(out, network, target=target, shape=_read_shape(shape), prepare=prepare, head=head)  # type: ignore[arg-type]
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    if as_json:
        click.echo(json.dumps({"folder": str(out), "target": target, "files": files}, indent=2))
        return
    for name in files:
        click.echo(name)
    click.echo(f"The folder {out} is ready to be served.", err=True)


def _read_shape(text: str | None) -> tuple[int, ...] | None:
    """Read the shape of one input from text such as 3,32,32."""
    if text is None:
        return None
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.UsageError(
            f"--shape must be whole numbers separated by commas, such as 3,32,32; got {text}"
        ) from error
    if min(sizes) < 1:
        raise click.UsageError(f"--shape must be numbers above 0, such as 3,32,32; got {text}")
    return sizes


@gate_group.command("show")
@click.argument("gate", type=FOLDER)
@PLUGIN
@JSON
def show_command(gate: Path, as_json: bool) -> None:
    """Show the scores, thresholds and promise of a gate, and its provenance.

    The provenance is the digests of the data that the gate was fitted on, and the package versions that made it.

    \b
      twofold gate show gate
    """
    from twofold.gate import Gate

    opened = Gate.load(gate)
    if as_json:
        click.echo(_as_json(opened))
        return
    click.echo(opened)
    for name, digest in opened.data.items():
        click.echo(f"{name} data  sha256 {digest}")
    versions = [f"{name} {version}" for name, version in opened.versions.items()]
    click.echo(f"made with  {', '.join(versions)}")


def _run_network(model: str, spec: str, options: Mapping[str, object]) -> Outputs:
    """Run a network over images, by way of a temporary run."""
    with tempfile.TemporaryDirectory() as folder, progress(rate=True) as bar:
        task = bar.add_task("loading", total=None)
        run = from_torch("extraction").extract_all(
            model,
            [(spec, "far", "live")],  # a role whose labels are not looked at
            Path(folder) / "run",
            begin=lambda label, rows: bar.reset(task, total=rows, description=label),
            done=lambda rows: bar.advance(task, rows),
            **options,
        )
        live: Outputs = run["live"]
        return live[list(range(len(live)))]  # a copy, because the files are deleted


def _cards(
    gate: Gate, source: Path, names: tuple[str, ...], columns: tuple[str, ...]
) -> Iterator[tuple[str, ReportCard]]:
    """Yield the card of each collection of data sets, or of a file of confidences."""
    if not source.is_dir() and is_confidence_file(source):
        if names:
            raise click.UsageError("--name picks data sets of a run, and SOURCE is a file")
        table = read_confidences(source, columns, labelled=True)
        yield (
            source.stem,
            gate.card_confidences(table.correct, table.conf, table.conf_ood, is_id=table.is_id, groups=table.groups),
        )
        return
    refuse_columns(columns)
    for name, outputs in _labelled(source, names):
        yield name, gate.report_card(outputs)


def _labelled(source: Path, names: tuple[str, ...]) -> Iterator[tuple[str, Outputs]]:
    """Yield what a card judges: the test sets, alone and with OOD sets, then shifted sets; or the named sets."""
    from twofold.gate.inputs import join_sets
    from twofold.run import Run

    if not source.is_dir():
        if names:
            raise click.UsageError("--name picks data sets of a run, and SOURCE is a file")
        yield source.stem, read_outputs(source)
        return
    run = Run.open(source)
    if names:
        yield " + ".join(names), join_sets(run, names)
        return
    tests = run.names("test")
    if not tests:
        raise click.UsageError(f"{source} has no data set with the role test; name some with --name")
    unknown = run.names(OOD_TEST)
    yield " + ".join(tests), join_sets(run, tests)
    for name in unknown:
        yield " + ".join([*tests, name]), join_sets(run, [*tests, name])
    if len(unknown) > 1:
        yield " + ".join([*tests, *unknown]), join_sets(run, [*tests, *unknown])
    for name in run.names("shift"):
        yield name, run[name]


def _verdicts(gate: Gate, name: str, outputs: Outputs) -> Iterator[tuple[object, ...]]:
    """Yield the values of ``COLUMNS`` for each input of a data set."""
    decision = gate.decide(outputs)
    ids = None
    if outputs.ids is not None:
        ids = outputs.ids.tolist()
    yield from _rows_of_decision(name, decision, ids, decision.labels.tolist())


def _verdicts_of_confidences(gate: Gate, name: str, table: ConfidenceTable) -> Iterator[tuple[object, ...]]:
    """Yield the values of ``COLUMNS`` for each row of a file of confidences, which has no labels."""
    decision = gate.decide_confidences(table.conf, table.conf_ood)
    yield from _rows_of_decision(name, decision, table.ids, [None] * len(decision))


def _rows_of_decision(
    name: str, decision: Decision, ids: Sequence[object] | None, labels: Sequence[object]
) -> Iterator[tuple[object, ...]]:
    count = len(decision)
    if ids is None:
        ids = range(count)
    conf_ood = margin_ood = [None] * count
    if decision.conf_ood is not None and decision.margin_ood is not None:
        conf_ood = decision.conf_ood.tolist()
        margin_ood = decision.margin_ood.tolist()
    yield from zip(
        [name] * count,
        ids,
        labels,
        decision.verdict.tolist(),
        decision.conf_id.tolist(),
        conf_ood,
        decision.margin_id.tolist(),
        margin_ood,
        strict=True,
    )


def _json_value(value: object) -> object:
    """Write infinities as text, since JSON has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _as_json(gate: Gate) -> str:
    return json.dumps(gate.to_dict(), indent=2, allow_nan=False)
