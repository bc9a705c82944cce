"""``twofold score``: any scores of saved outputs, as a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from twofold._csv import escape_row
from twofold._files import replacing
from twofold.cli.inputs import check_same_model, read_outputs
from twofold.cli.options import FILE, PLUGIN, SCORE
from twofold.cli.shared import JSON, REPLACE, check_target
from twofold.roles import FITTING

if TYPE_CHECKING:
    from twofold.outputs import Outputs

Confidences = dict[str, dict[str, npt.NDArray[np.float64]]]
"""Confidences by data set, then by score."""


@click.command("score")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--score", "specs", multiple=True, required=True, type=SCORE, help="A score or chain; may be repeated.")
@click.option("--name", "names", multiple=True, help="Data set of a run; by default all but the training set.")
@click.option("--train", type=FILE, help="npz file of the training set; a run has its own.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write an npz file instead of CSV.")
@REPLACE
@PLUGIN
@JSON
def score_command(
    source: Path,
    specs: tuple[str, ...],
    names: tuple[str, ...],
    train: Path | None,
    out: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Score every input of a run or file and print the confidences as CSV.

    Higher confidence is safer to accept. SOURCE is a run, or an npz file with `logits` (or `probs`)
    and whatever else the scores need. Scores that learn are fitted on the run's training set, and on its validation
    sets if they use them.

    A name that a spreadsheet could take for a formula (it begins with =, +, -, @ or a tab) gets a leading apostrophe;
    remove it to get the name back.

    \b
      twofold score twofold-demo --score msp --score knn --name test
    """
    from twofold.scores import fit_all, score_all
    from twofold.scores.chain import scorer

    if out is not None:
        check_target(out, replace=replace)
    inputs = _read_inputs(source, names, train)
    chains = [scorer(spec) for spec in specs]
    if inputs.train is not None:
        chains = fit_all(chains, inputs.train, val=inputs.val, ood_val=inputs.ood_val)
    confidences: Confidences = {}
    for name, outputs in inputs.scored.items():
        confidences[name] = dict(zip(specs, score_all(chains, outputs), strict=True))

    if out is not None:
        _write_npz(confidences, out)
    elif as_json:
        click.echo(_as_json(confidences))
    else:
        click.echo(_as_csv(inputs.scored, specs, confidences), nl=False)


def _write_npz(confidences: Confidences, out: Path) -> None:
    """Write an array SET/SCORE for each data set and score."""
    arrays: dict[str, Any] = {}  # savez's own keywords have other types
    for name, by_score in confidences.items():
        for spec, conf in by_score.items():
            arrays[f"{name}/{spec}"] = conf
    with replacing(out) as file:
        np.savez_compressed(file, **arrays)
    click.echo(f"{len(arrays)} arrays are in {out}.", err=True)


def _as_json(confidences: Confidences) -> str:
    lists = {}
    for name, by_score in confidences.items():
        lists[name] = {spec: conf.tolist() for spec, conf in by_score.items()}
    return json.dumps(lists)


def _as_csv(scored: Mapping[str, Outputs], specs: Sequence[str], confidences: Confidences) -> str:
    """Write a line for each input of each data set."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(escape_row(["set", "row", "label", "prediction", *specs]))
    for name, outputs in scored.items():
        rows = range(len(outputs))
        labels = [""] * len(outputs) if outputs.labels is None else outputs.labels.tolist()
        predictions = outputs.predictions.tolist()
        for values in zip(rows, labels, predictions, *confidences[name].values(), strict=True):
            writer.writerow(escape_row([name, *values]))
    return text.getvalue()


@dataclass(frozen=True)
class ScoreInputs:
    """Hold the data sets to score by name, and those that scores learn from."""

    scored: dict[str, Outputs]
    train: Outputs | None = None
    val: Outputs | None = None
    ood_val: Outputs | None = None


def _read_inputs(source: Path, names: Sequence[str], train: Path | None) -> ScoreInputs:
    if source.is_dir():
        if train is not None:
            raise click.UsageError("a run has its own training set; --train is for npz files")
        return _read_run(source, names)
    if names:
        raise click.UsageError("--name is for runs; an npz file is one data set")
    outputs = read_outputs(source)
    if train is None:
        return ScoreInputs({source.stem: outputs})
    learn = read_outputs(train)
    check_same_model(source, outputs, train, learn)
    return ScoreInputs({source.stem: outputs}, learn)


def _read_run(source: Path, names: Sequence[str]) -> ScoreInputs:
    from twofold.outputs import Outputs
    from twofold.run import Run

    run = Run.open(source)
    fitting: dict[str, Outputs | None] = {}
    for role in FITTING:
        parts = [run[name] for name in run.names(role)]
        fitting[role] = Outputs.concat(parts) if parts else None
    chosen = names or [name for name, role in run.roles.items() if role != "train"]
    return ScoreInputs({name: run[name] for name in chosen}, **fitting)
