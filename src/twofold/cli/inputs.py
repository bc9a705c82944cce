"""Reading the files that commands take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from twofold.errors import InvalidInput

if TYPE_CHECKING:
    from twofold.outputs import Outputs


def read_outputs(path: Path) -> Outputs:
    """Read an npz file of outputs, and say on stderr what is lost where it holds probabilities.

    Parameters
    ----------
    path : Path
        npz file with logits or probs, and what else scores need.

    Returns
    -------
    Outputs
        What the file holds.

    Raises
    ------
    InvalidInput
        If the file is damaged, or its classifier has one class only.
    """
    from twofold.outputs import Outputs

    outputs = Outputs.from_npz(path)
    if outputs.classes == 1:
        raise InvalidInput(
            f"{path}: logits has one column, and a classifier has at least two classes; for a model with one output z "
            "write np.column_stack([np.zeros_like(z), z])"
        )
    if outputs.is_scale_lost:
        click.echo(
            f"{path} holds probabilities: scores of the softmax (msp, entropy, gen, ...) are unchanged, those that "
            "read the scale of the logits (energy, mls, ...) have lost it.",
            err=True,
        )
    return outputs


def check_same_model(first: Path, outputs: Outputs, second: Path, others: Outputs) -> None:
    """Raise unless two files have the same classes, and the same features where both have some.

    Parameters
    ----------
    first, second : Path
        The files, for the message.
    outputs, others : Outputs
        What they hold.

    Raises
    ------
    InvalidInput
        If they cannot come from one model.
    """
    if outputs.classes != others.classes:
        raise InvalidInput(
            f"{second} has {others.classes} classes but {first} has {outputs.classes}; both must come from one model"
        )
    if outputs.features is None or others.features is None:
        return
    here, there = outputs.features.shape[1], others.features.shape[1]
    if here != there:
        raise InvalidInput(f"{second} has {there} features but {first} has {here}; both must come from one model")


def join_unknown(file: Path, unknown: Sequence[Path]) -> Outputs:
    """Read the outputs of a file, and those of others as unknown inputs; leave out fields that one of them lacks.

    Parameters
    ----------
    file : Path
        npz file with logits (or probs) and labels.
    unknown : sequence of Path
        npz files of unknown inputs; their labels are ignored.

    Returns
    -------
    Outputs
        All rows; those of ``unknown`` have the label -1.

    Raises
    ------
    InvalidInput
        If a file is damaged, has no labels, or cannot come from the same model.
    """
    from twofold.gate.inputs import keep_common_fields
    from twofold.outputs import Outputs

    known = read_outputs(file)
    if known.labels is None:
        raise InvalidInput(f"{file} has logits but no labels; add an array labels (-1: unknown)")
    others = [read_outputs(path) for path in unknown]
    for path, one in zip(unknown, others, strict=True):
        check_same_model(file, known, path, one)
    if not others:
        return known
    parts = [known]
    for one in others:
        parts.append(one.replace(labels=np.full(len(one), -1)))
    return Outputs.concat(keep_common_fields(parts))
