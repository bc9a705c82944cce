"""Try the scores of a loaded gate on made-up rows, so that learnt arrays of the wrong size are found at loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from twofold._checks import Array
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.chain import Chain
from twofold.scores.tensors import count_learnt_classes

ROWS = 2  # one row of the first class, one of the last
LARGEST_HEAD = 1 << 28  # weights of the largest last layer that is made up; 2 GiB


class AnyLearned(Mapping[str, Array]):
    """Map every name to one value per row: gates do not record which learned confidences their scores read."""

    def __getitem__(self, name: str) -> Array:
        return np.full(ROWS, 0.5)

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(["any"])

    def __len__(self) -> int:
        return 1


def check_scores(chains: Sequence[Chain], classes: int, widths: Mapping[str, int]) -> None:
    """Raise unless every score can read outputs with this number of classes and these widths.

    Parameters
    ----------
    chains : sequence of Chain
        The scores of the gate, ID score first; all are ready.
    classes : int
        Number of classes of the model.
    widths : mapping of str to int
        Columns of ``features`` and of ``layers/NAME``.

    Raises
    ------
    InvalidInput
        If a score needs a field that has no width, or learnt arrays do not fit the classes or widths.

    Notes
    -----
    The scores run on two rows, whose predictions are the first and the last class. A score that reads a last layer of
    more than 2**28 weights is not tried.

    Examples
    --------
    >>> from twofold.scores.chain import scorer
    >>> klm = scorer("klm").fit(Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1]))
    >>> check_scores([klm], classes=2, widths={})
    >>> check_scores([klm], classes=3, widths={})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    twofold.errors.InvalidInput: klm cannot score outputs of 3 classes: ...
    """
    for chain in chains:
        _check_learnt_classes(chain, classes)
    needed = {name for chain in chains for name in chain.needs}
    columns = widths.get("features", 1)
    if "head" in needed and classes * columns > LARGEST_HEAD:
        return
    rows = make_rows(classes, widths, with_head="head" in needed)
    rows = chains[0].judged_outputs(rows)
    for chain in chains:
        try:
            with np.errstate(all="ignore"):
                conf = chain.run(rows)
        except (ValueError, TypeError, LookupError) as error:  # InvalidInput too, and what NumPy raises
            described = ", ".join([f"{classes} classes", *(f"{width} {name}" for name, width in widths.items())])
            raise InvalidInput(f"{chain.spec} cannot score outputs of {described}: {error}") from error
        if conf.shape != (ROWS,):
            raise InvalidInput(f"{chain.spec} gives shape {conf.shape} for {ROWS} rows")


def _check_learnt_classes(chain: Chain, classes: int) -> None:
    """Raise if a step learnt more classes than there are, though its score could still be computed."""
    for step in chain.steps:
        if step.learnt is None:
            continue
        learnt = count_learnt_classes(step.learnt)
        if learnt > classes:
            raise InvalidInput(f"{step.info.name} cannot score outputs of {classes} classes: it learnt {learnt}")


def make_rows(classes: int, widths: Mapping[str, int], *, with_head: bool) -> Outputs:
    """Make up two rows of outputs with every field that a score may read.

    Parameters
    ----------
    classes : int
        Number of classes of the model.
    widths : mapping of str to int
        Columns of ``features`` and of ``layers/NAME``; absent ones are left out.
    with_head : bool
        Whether to make a last layer.

    Returns
    -------
    Outputs
        Ordinary values: logits, features and layers between 0.5 and 1. Features and head do not reproduce the logits.

    Examples
    --------
    >>> make_rows(3, {"features": 2}, with_head=False).predictions
    array([0, 2])
    """
    logits = _slopes(classes)[::-1]
    fields: dict[str, object] = {"passes": np.stack([logits, logits]), "learned": AnyLearned()}
    layers = {}
    for name, width in widths.items():
        if name == "features":
            fields["features"] = _slopes(width)
        else:
            layers[name.removeprefix("layers/")] = _slopes(width)
    fields["layers"] = layers
    if with_head:
        columns = widths.get("features", 1)
        weight = np.zeros((classes, columns))
        weight[np.arange(classes), np.arange(classes) % columns] = 1.0
        fields["head"] = Head(weight)
    return Outputs(logits).derived(fields)


def _slopes(columns: int) -> Array:
    """Make one row that rises from 0.5 to 1, and one that falls."""
    rising = np.linspace(0.5, 1.0, columns)
    return np.stack([rising, rising[::-1]])
