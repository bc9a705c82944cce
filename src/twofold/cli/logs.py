"""``twofold logs``: metrics, cards, alarms and verdicts over tables of logged predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import FILE, FOLDER, METRICS, OPEN_SHARE, PLUGIN, SHARE
from twofold.cli.shared import CHECK_FAILED, JSON, REPLACE, Failed, Verbs, check_target, progress

if TYPE_CHECKING:
    from twofold.logs import LogCard, LogCards

TABLE = click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
CORRECT = click.option(
    "--correct", help='Column or expression, such as "label = prediction".  [default: correct, or label = prediction]'
)
IS_ID = click.option(
    "--is-id",
    help="Column or expression that is true for known inputs.  [default: is_id, or label <> -1 if labels are integers]",
)
CONF_ID = click.option("--conf-id", help="Confidence in the unit of the gate's score.  [default: conf_id, or conf]")
CONF_OOD = click.option("--conf-ood", help="The second confidence.  [default: conf_ood]")
BY = click.option("--by", help="Columns or expressions that make groups, with commas: model,date(time).")
WHERE = click.option("--where", help='Rows to keep, such as "label is not null".')
MEMORY = click.option("--memory", metavar="SIZE", help="Most memory to use, such as 3GB; larger sorts spill to disk.")
THREADS = click.option("--threads", type=click.IntRange(min=1), help="Threads.  [default: one per processor]")


@click.group("logs", cls=Verbs)
def logs_group() -> None:
    """Measure, judge and watch logged predictions: Parquet, CSV or JSON lines, of any size.

    TABLE is a file, a folder or a quoted pattern such as 'predictions/*.parquet'. Columns may be expressions: names,
    numbers, 'texts', = <> < <= > >=, + - * /, and, or, not, in (...), is null, and the functions abs, date, exp, hour,
    log, lower, month and timestamp (of text). Put names with special characters in double quotes.

    \b
      twofold logs evaluate 'predictions/*.parquet' --correct "label = prediction" --conf msp --by model,day
      twofold logs card gate 'predictions/*.parquet' --by model
      twofold logs watch gate 'predictions/*.parquet' --every 1d
    """


@logs_group.command("evaluate")
@TABLE
@CORRECT
@click.option("--conf", help="Confidence, higher is safer to accept.  [default: conf, or conf_id]")
@IS_ID
@click.option("--conf-ood", help="A second confidence, for known against unknown inputs: adds DS-F1 and DS-AURC.")
@BY
@WHERE
@click.option("--metric", "wanted", multiple=True, type=METRICS, help="Metric to compute; may be repeated.")
@click.option("--ood-share", type=SHARE, help="OOD prevalence expected in deployment, in [0, 1).")
@click.option("--intervals", is_flag=True, help="Add 95 % bootstrap intervals.")
@click.option("--resamples", type=click.IntRange(min=10), default=1000, show_default=True, help="Of the intervals.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the resamples.")
@click.option("--bins", type=click.IntRange(min=2), help="Count in cells instead of sorting: faster, with bounds.")
@click.option("--reject-nan", is_flag=True, help="Rank missing confidences lowest instead of stopping.")
@MEMORY
@THREADS
@JSON
def evaluate_command(
    tables: tuple[str, ...],
    by: str | None,
    wanted: tuple[str, ...],
    intervals: bool,
    resamples: int,
    bins: int | None,
    reject_nan: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compute the standard metrics of logged predictions, exactly, however many there are.

    Every metric equals that of `twofold evaluate` on the same rows. With --by there is one line per group, from one
    pass over the table. --bins counts the rows in cells instead of sorting them; every metric then comes with the
    interval that contains its exact value.

    \b
      twofold logs evaluate 'predictions/*.parquet' --correct "label = prediction" --conf msp --by model,day --json
      twofold logs evaluate predictions.csv --conf conf_id --conf-ood conf_ood --intervals
    """
    from twofold import logs

    names = []
    for option in wanted:
        names += [name.strip() for name in option.split(",")]
    settings = dict(options)
    if intervals:
        settings["resamples"] = resamples
    if bins is not None:
        settings |= {"exact": False, "bins": bins}
    if reject_nan:
        settings["nan"] = "reject"
    result = _run(
        lambda: logs.evaluate(list(tables), by=_split(by), metrics=names or None, **settings), "reading the table"
    )
    click.echo(result.to_json() if as_json else str(result))


@logs_group.command("card")
@click.argument("gate", type=FOLDER)
@TABLE
@CORRECT
@CONF_ID
@CONF_OOD
@IS_ID
@BY
@WHERE
@MEMORY
@THREADS
@PLUGIN
@JSON
def card_command(gate: Path, tables: tuple[str, ...], by: str | None, as_json: bool, **options: Any) -> None:
    """Judge a gate on logged predictions: verdict rates, and with labels coverage, risk and its promise.

    Intervals are exact, at 95 %, for independent rows. A broken promise is exit code 1.

    \b
      twofold logs card gate 'predictions/*.parquet' --by model
    """
    from twofold import logs
    from twofold.gate import Gate

    opened = Gate.load(gate)
    result = _run(lambda: logs.card(opened, list(tables), by=_split(by), **options), "reading the table")
    if isinstance(result, logs.LogCards):
        click.echo(result.to_json() if as_json else str(result))
    else:
        click.echo(_card_json(result) if as_json else str(result))
    broken = _broken(result)
    if broken:
        raise Failed(f"the promise is not kept on {', '.join(broken)}", CHECK_FAILED)


def _card_json(card: LogCard) -> str:
    import json

    return json.dumps(card.to_dict(), indent=2)


def _broken(result: LogCard | LogCards) -> list[str]:
    """List the groups on which a promise is broken."""
    from twofold.logs import LogCards

    if not isinstance(result, LogCards):
        return ["this table"] if result.report is not None and result.report.kept == "no" else []
    broken = []
    for key, card in result.items():
        if card.report is not None and card.report.kept == "no":
            broken.append(str(key))
    return broken


@logs_group.command("watch")
@click.argument("gate", type=FOLDER)
@TABLE
@click.option("--time", help="Column of times or dates.  [default: time]")
@click.option("--every", default="1d", show_default=True, help="Length of a window: a number and s, m, h, d, mo or y.")
@click.option("--verdict", help="Column of logged verdicts; by default they are made from the confidences.")
@CONF_ID
@CONF_OOD
@WHERE
@click.option("--false-alarms", type=OPEN_SHARE, default=0.01, show_default=True, help="Share of logs with one.")
@click.option("--ood-share", type=SHARE, help="OOD prevalence expected; by default that of the gate.")
@click.option("--resume", type=FILE, help="File that --save wrote: earlier windows are not counted again.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="File to resume from later.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Picture to write (.png, .svg, .pdf).")
@REPLACE
@MEMORY
@THREADS
@PLUGIN
@JSON
def watch_command(
    gate: Path,
    tables: tuple[str, ...],
    save: Path | None,
    plot: Path | None,
    replace: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay the monitor of a gate over a log, and say whether and when verdict rates left those of validation.

    False alarms are raised in at most a share --false-alarms of all logs, however long they are. An alarm is exit
    code 1. The last window may still grow: --save writes the state before it, and --resume counts it again.

    \b
      twofold logs watch gate 'predictions/*.parquet' --every 1d --plot watch.png
      twofold logs watch gate 'predictions/*.parquet' --every 1h --resume watch.json --save watch.json --replace
    """
    from twofold import logs
    from twofold.gate import Gate
    from twofold.plot.display import check_path, write_figure

    for path in (save, plot):
        if path is not None:
            check_target(path, replace=replace)
    if plot is not None:
        check_path(plot)
    opened = Gate.load(gate)
    result = _run(lambda: logs.watch(opened, list(tables), **options), "reading the table")
    if save is not None:
        result.save(save)
    if plot is not None:
        write_figure(result.plot().get_figure(root=True), plot, tight=False, dpi=150)
    click.echo(result.to_json() if as_json else str(result))
    if result.alarm:
        raise Failed("the verdict rates have left those of validation", CHECK_FAILED)


@logs_group.command("apply")
@click.argument("gate", type=FOLDER)
@TABLE
@CONF_ID
@CONF_OOD
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="Parquet file to write.")
@REPLACE
@MEMORY
@THREADS
@PLUGIN
@JSON
def apply_command(gate: Path, tables: tuple[str, ...], out: Path, replace: bool, as_json: bool, **options: Any) -> None:
    """Add the verdicts of a gate to logged confidences, and write a Parquet file.

    The columns verdict (accept, unsure or unknown), margin_id and margin_ood are added.

    \b
      twofold logs apply gate 'predictions/*.parquet' --out verdicts.parquet
    """
    import json

    from twofold import logs
    from twofold.gate import Gate

    check_target(out, replace=replace)
    opened = Gate.load(gate)
    _run(lambda: logs.apply(opened, list(tables), to=out, **options), "writing the table")
    if as_json:
        click.echo(json.dumps({"out": str(out)}))
    click.echo(f"The table is in {out}.", err=True)


def _split(by: str | None) -> Sequence[str] | None:
    from twofold.logs.expressions import split_names

    if by is None:
        return None
    return split_names(by)


def _run(work: Callable[[], Any], label: str) -> Any:
    """Do work of unknown length while a bar moves."""
    with progress() as bar:
        bar.add_task(label, total=None)
        return work()
