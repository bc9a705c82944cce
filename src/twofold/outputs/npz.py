"""Outputs in npz files: the flat keys of a file, and the fields that they stand for."""

from __future__ import annotations

from pathlib import Path

from twofold._checks import AnyArray
from twofold._npz import read_npz
from twofold.errors import InvalidInput
from twofold.outputs._fields import ARRAYS, KNOWN_KEYS, PASS_ARRAYS, FieldValues
from twofold.outputs.head import Head
from twofold.outputs.passes import Passes

NPZ_KEYS = (*KNOWN_KEYS, "probs", "head.weight", "head.bias", "class_names")


def load_npz(path: Path) -> dict[str, AnyArray]:
    """Read the arrays of an npz file by key.

    Parameters
    ----------
    path : Path
        The file to read.

    Returns
    -------
    dict of str to ndarray
        Arrays by key.

    Raises
    ------
    InvalidInput
        If the file is damaged, not an npz file, holds Python objects, or unpacks to more than the machine's memory.
    OSError
        If the file is missing or cannot be opened.
    """
    return read_npz(path)


def parse_npz(arrays: dict[str, AnyArray], path: Path) -> FieldValues:
    """Convert the flat keys of an npz file into arguments of :class:`Outputs`, or of ``Outputs.from_probabilities``.

    Parameters
    ----------
    arrays : dict of str to ndarray
        Arrays by key.
    path : Path
        Where they come from, for messages.

    Returns
    -------
    dict of str to object
        Fields by name, with ``probs`` instead of ``logits`` if the file holds them.

    Raises
    ------
    InvalidInput
        If a key is missing or unknown, or the means of passes are not complete.
    """
    arrays = dict(arrays)
    if "logits" not in arrays and "probs" not in arrays:
        raise InvalidInput(f"{path} must hold the key logits, or probs, got {', '.join(arrays) or 'no keys'}")
    if "logits" in arrays and "probs" in arrays:
        raise InvalidInput(f"{path} holds both logits and probs; leave out probs, which say less")
    fields: FieldValues = {"layers": {}, "learned": {}}
    for key in list(arrays):
        group, slash, name = key.partition("/")
        if key in (*ARRAYS, "probs", "class_names"):
            fields[key] = arrays.pop(key)
        elif group in ("layers", "learned") and slash:
            fields[group][name] = arrays.pop(key)
    if "head.weight" in arrays:
        bias = arrays.pop("head.bias") if "head.bias" in arrays else None
        fields["head"] = Head(arrays.pop("head.weight"), bias)
    means = _take_means(arrays, path)
    if means is not None:
        if "passes" in fields:
            raise InvalidInput(
                f"{path} holds means of passes but also holds passes; give all of the means, or passes alone"
            )
        fields["passes"] = means
    if arrays:
        raise InvalidInput(f"{path} holds unknown keys {', '.join(arrays)}; known are {', '.join(NPZ_KEYS)}")
    return fields


def _take_means(arrays: dict[str, AnyArray], path: Path) -> Passes | None:
    """Remove the means of passes from the arrays, and return them; None if there are none."""
    names = (*PASS_ARRAYS, "count")
    missing = [f"passes.{name}" for name in names if f"passes.{name}" not in arrays]
    if len(missing) == len(names):
        return None
    if missing:
        raise InvalidInput(
            f"{path} holds means of passes but lacks {', '.join(missing)}; give all of the means, or passes alone"
        )
    count = int(arrays.pop("passes.count"))
    mean_prob, mean_logits, mean_entropy, prob_std = (arrays.pop(f"passes.{name}") for name in PASS_ARRAYS)
    return Passes(mean_prob, mean_logits, mean_entropy, prob_std, count)
