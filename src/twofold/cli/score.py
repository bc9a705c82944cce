"""``twofold score``: any scores of saved outputs, as a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from twofold._csv import escape_row
from twofold.cli.options import PLUGIN, SCORE
from twofold.cli.shared import JSON, REPLACE, check_same_model, check_target, read_outputs
from twofold.roles import FITTING

if TYPE_CHECKING:
    from twofold.outputs import Outputs


@click.command("score")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--score", "specs", multiple=True, required=True, type=SCORE, help="A score or chain; may be repeated.")
@click.option("--name", "names", multiple=True, help="Data set of a run; by default all but the training set.")
@click.option(
    "--train",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="npz file of the training set; a run has its own.",
)
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
    """Print the confidences of scores, one line an input (higher is safer).

    SOURCE is a run or an npz file with `logits` (or `probs`) and what else the scores need. Scores that learn are
    fitted on the run's training set, with its validation sets where they ask for them.
    Names that a spreadsheet could take for a formula (they begin with =, +, -, @ or a tab) get a leading
    apostrophe; remove one to have them back.

    \b
      twofold score twofold-demo --score msp --score knn --name test
    """
    from twofold.scores import fit_all, score_all
    from twofold.scores.chain import scorer

    if out is not None:
        check_target(out, replace=replace)
    sets, learn, val, ood_val = _sets(source, names, train)
    chains = [scorer(spec) for spec in specs]
    if learn is not None:
        chains = fit_all(chains, learn, val=val, ood_val=ood_val)
    found = {name: dict(zip(specs, score_all(chains, outputs), strict=True)) for name, outputs in sets.items()}
    if out is not None:
        from twofold._files import replacing

        arrays: dict[str, Any] = {f"{name}/{spec}": conf for name, of in found.items() for spec, conf in of.items()}
        with replacing(out) as file:
            np.savez_compressed(file, **arrays)
        click.echo(f"{len(arrays)} arrays are in {out}.", err=True)
        return
    if as_json:
        plain = {name: {spec: conf.tolist() for spec, conf in of.items()} for name, of in found.items()}
        click.echo(json.dumps(plain))
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(escape_row(["set", "row", "label", "prediction", *specs]))
    for name, outputs in sets.items():
        labels: Any = [""] * len(outputs) if outputs.labels is None else outputs.labels.tolist()
        told = zip(range(len(outputs)), labels, outputs.predictions.tolist(), *found[name].values(), strict=True)
        writer.writerows(escape_row([name, *values]) for values in told)
    click.echo(text.getvalue(), nl=False)


def _sets(
    source: Path, names: Sequence[str], train: Path | None
) -> tuple[dict[str, Outputs], Outputs | None, Outputs | None, Outputs | None]:
    """What is scored, and what scores learn from: train, val and ood_val."""
    from twofold.outputs import Outputs
    from twofold.run import Run

    if source.is_dir():
        run = Run.open(source)
        if train is not None:
            raise click.UsageError("a run has its own training set; --train is for npz files")
        roles = {role: [run[name] for name in run.names(role)] for role in FITTING}
        parts = {role: Outputs.concat(found) if found else None for role, found in roles.items()}
        chosen = names or [name for name, role in run.roles.items() if role != "train"]
        return {name: run[name] for name in chosen}, parts["train"], parts["val"], parts["ood_val"]
    if names:
        raise click.UsageError("--name is for runs; an npz file is one data set")
    outputs = read_outputs(source)
    if train is None:
        return {source.stem: outputs}, None, None, None
    learn = read_outputs(train)
    check_same_model(source, outputs, train, learn)
    return {source.stem: outputs}, learn, None, None


def joined(file: Path, unknown: Sequence[Path]) -> Outputs:
    """Outputs of a file, with those of others as unknown inputs; fields that one of them lacks are left out."""
    from twofold.errors import InvalidInput
    from twofold.gate.inputs import alike
    from twofold.outputs import Outputs

    known = read_outputs(file)
    if known.labels is None:
        raise InvalidInput(f"{file} has logits but no labels; add an array labels (-1: unknown)")
    others = [read_outputs(path) for path in unknown]
    for path, one in zip(unknown, others, strict=True):
        check_same_model(file, known, path, one)
    parts = [known, *(one.replace(labels=np.full(len(one), -1)) for one in others)]
    return Outputs.concat(alike(parts)) if others else known
