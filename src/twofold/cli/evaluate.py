"""``twofold evaluate``: the metrics of saved confidences or outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from twofold.cli.confidence_files import COLUMN, is_confidence_file, read_confidences, refuse_columns
from twofold.cli.inputs import check_same_model, join_unknown, read_outputs
from twofold.cli.intervals import format_interval, interval_as_json
from twofold.cli.options import FILE, METHOD, METRICS, PLUGIN, RESAMPLES, SCORE, SHARE, AliasedOption
from twofold.cli.shared import JSON, progress

if TYPE_CHECKING:
    from twofold.metrics.evaluate import Evaluation, EvaluationMethod
    from twofold.outputs import Outputs
    from twofold.scores.chain import Chain
    from twofold.stats import Interval

Arguments: TypeAlias = dict[str, Any]  # of metrics.evaluate, by name
CONFIDENCES = ("correct", "conf", "is_id", "conf_ood")  # arrays of a file without logits


@click.command("evaluate")
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
@COLUMN
@click.option("--ood-share", type=SHARE, help="OOD prevalence expected in deployment, in [0, 1).")
@METHOD
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
    columns: tuple[str, ...],
    ood_share: float | None,
    method: EvaluationMethod,
    intervals: bool,
    resamples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Compute the standard metrics of the confidences in an npz or CSV file.

    FILE holds `correct` (booleans) and `conf` (higher is safer), and optionally `is_id` (booleans) and `conf_ood`, a
    second confidence for known against unknown inputs. Or it holds `logits` and `labels` (-1 = OOD), and what else a
    score needs (`features`, `head.weight`, `head.bias`); then --id is the confidence, by default the maximum softmax
    probability, ranked by its log-odds. `probs` may stand in for `logits`. A CSV file has the columns `correct` and
    `conf`, and optionally `is_id` and `conf_ood`; --column names others.

    \b
      twofold evaluate scores.npz
      twofold evaluate scores.npz --metric aurc,ds_f1 --intervals --json
      twofold evaluate test.npz --unknown svhn.npz --id msp --ood energy
      twofold evaluate answers.csv --column conf=judge_score --column correct=is_right
      twofold evaluate test.npz --unknown svhn.npz --ood energy --method published
    """
    from twofold.metrics import evaluate
    from twofold.report import intervals as with_intervals

    arrays = _read_arrays(file, unknown, train, id_score, ood_score, columns)
    printed = arrays.pop("printed", arrays)
    result = evaluate(**arrays, ood_share=ood_share, only=_metric_names(wanted))
    exact = list(result)
    if method == "published":
        result = _add_published(result, printed, ood_share)
    if not intervals:
        click.echo(result.to_json() if as_json else str(result))
        return
    with progress() as bar:
        task = bar.add_task("resampling", total=len(exact))
        table = with_intervals(
            **arrays,
            ood_share=ood_share,
            only=exact,
            n=resamples,
            seed=seed,
            done=lambda: bar.update(task, advance=1),
        )
    table |= _without_intervals(result, table)
    if as_json:
        metrics = {name: interval_as_json(interval) for name, interval in table.items()}
        click.echo(json.dumps(result.to_dict() | {"metrics": metrics}, indent=2))
    else:
        _print_intervals(table, result.reasons)


def _add_published(result: Evaluation, printed: Arguments, ood_share: float | None) -> Evaluation:
    """Add the published forms of the metrics, computed of confidences on the scale that the paper uses."""
    from twofold.metrics import evaluate
    from twofold.metrics.evaluate import add_published_forms

    forms = [name for name in add_published_forms(result) if name not in result]
    added = evaluate(**printed, ood_share=ood_share, only=forms)
    return replace(
        result,
        values_={**result.values_, **added.values_},
        reasons={**result.reasons, **added.reasons},
        better={**result.better, **added.better},
    )


def _without_intervals(result: Evaluation, table: Mapping[str, Interval]) -> dict[str, Interval]:
    """List the values that have no interval: the published forms, which only reproduce printed numbers."""
    from twofold.stats import Interval

    found = {}
    for name, value in result.items():
        if name not in table:
            found[name] = Interval(value, math.nan, math.nan, 0.95, 0, "percentile", 0)
    return found


def _print_intervals(table: Mapping[str, Interval], reasons: Mapping[str, str]) -> None:
    """Print one metric per line, then which coverage the areas count."""
    from twofold.metrics import coverage_note

    width = max(map(len, table))
    for name, interval in table.items():
        if name in reasons:
            click.echo(f"{name:<{width}}  undefined: {reasons[name]}")
        elif math.isnan(interval.low):
            click.echo(f"{name:<{width}}  {interval.value:.5f} (no interval)")
        else:
            click.echo(f"{name:<{width}}  {format_interval(interval)}")
    note = coverage_note(table)
    if note:
        click.echo(note)


def _metric_names(options: Sequence[str]) -> list[str] | Literal["all"] | None:
    """Split the values of --metric, each of which may hold several names."""
    names: dict[str, None] = {}  # each once, in the order they were typed
    for option in options:
        for name in option.split(","):
            names[name.strip()] = None
    if "all" in names:
        return "all"
    return list(names) or None


def _read_arrays(
    file: Path,
    unknown: Sequence[Path],
    train: Path | None,
    id_score: str | None,
    ood_score: str | None,
    columns: Sequence[str],
) -> Arguments:
    """Read the arguments of ``evaluate`` from npz files or a CSV file; ``printed`` has them on the scale of papers."""
    from twofold.errors import InvalidInput
    from twofold.outputs import load_npz

    needs_logits = {"--unknown": unknown, "--train": train, "--id": id_score, "--ood": ood_score}
    unusable = [option for option, value in needs_logits.items() if value]
    if is_confidence_file(file):
        if unusable:
            raise InvalidInput(f"{file} holds no logits, so {' and '.join(unusable)} cannot be used")
        table = read_confidences(file, columns, labelled=True)
        return {"correct": table.correct, "conf": table.conf, "is_id": table.is_id, "conf_ood": table.conf_ood}
    refuse_columns(columns)
    arrays = load_npz(file)
    if "logits" in arrays or "probs" in arrays:
        outputs = join_unknown(file, unknown)
        learn = None
        if train is not None:
            learn = read_outputs(train)
            check_same_model(file, outputs, train, learn)
        return _score_outputs(outputs, learn, id_score or "msp", ood_score)

    if unusable:
        raise InvalidInput(f"{file} holds no logits, so {' and '.join(unusable)} cannot be used")
    if not {"correct", "conf"} <= set(arrays) or set(arrays) - set(CONFIDENCES):
        raise InvalidInput(
            f"{file} must hold correct and conf, optionally is_id and conf_ood, or logits (or probs) and labels; "
            f"it holds {', '.join(sorted(arrays)) or 'nothing'}"
        )
    return arrays


def _score_outputs(outputs: Outputs, train: Outputs | None, id_score: str, ood_score: str | None) -> Arguments:
    """Turn outputs into the arguments of ``evaluate``."""
    id_chain = _fitted(id_score, train)
    judged = id_chain.judged_outputs(outputs)
    arrays: Arguments = {
        "correct": judged.correct,
        "conf": id_chain.score(outputs),
        "is_id": None if outputs.is_id.all() else outputs.is_id,
    }
    printed = arrays | {"conf": id_chain.to_printed_scale(arrays["conf"])}
    if ood_score is not None:
        ood_chain = _fitted(ood_score, train)
        arrays["conf_ood"] = ood_chain.score(outputs)
        printed["conf_ood"] = ood_chain.to_printed_scale(arrays["conf_ood"])
    return arrays | {"printed": printed}


def _fitted(spec: str, train: Outputs | None) -> Chain:
    """Make a chain, and fit it where it learns."""
    from twofold.errors import InvalidInput
    from twofold.scores.chain import scorer

    chain = scorer(spec)
    if chain.ready:
        return chain
    if train is None:
        raise InvalidInput(f"{spec} learns from a training set; pass its outputs with --train")
    return chain.fit(train)
