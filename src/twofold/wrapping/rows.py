"""Read what a caller passes as data: pairs of inputs and labels, loaders, tables, and data of twofold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from twofold._checks import Labels
from twofold.errors import InvalidInput

Inputs: TypeAlias = Any  # whatever the classifier takes
TEXT_COLUMNS = ("text", "sentence", "utterance", "query", "question")
IMAGE_COLUMNS = ("image", "img", "pixel_values")
LABEL_COLUMNS = ("label", "labels", "intent", "fine_label", "class")


@dataclass(frozen=True, eq=False)
class LabelledInputs:
    """Hold inputs with their labels as the caller wrote them.

    Parameters
    ----------
    inputs : object
        Inputs of the classifier.
    labels : sequence or None
        Labels by name or number; None without labels.
    """

    inputs: Inputs
    labels: Sequence[object] | None


def is_pair(data: object) -> TypeGuard[tuple[Inputs, Any]]:
    """Tell whether data are a pair of inputs and labels.

    Parameters
    ----------
    data : object
        What the caller passed.

    Returns
    -------
    bool
        True for a tuple of two things, the second with one entry for each row of the first.

    Examples
    --------
    >>> is_pair(([[1.0], [2.0]], [0, 1])), is_pair([[1.0, 2.0], [3.0, 4.0]])
    (True, False)
    """
    if not isinstance(data, tuple) or len(data) != 2 or isinstance(data[0], str):
        return False
    labels = np.asarray(data[1], dtype=object) if isinstance(data[1], list | tuple) else data[1]
    return getattr(labels, "ndim", None) == 1 and len(labels) == count_rows(data[0])


def count_rows(inputs: Inputs) -> int:
    """Count the rows of inputs.

    Parameters
    ----------
    inputs : object
        An array, a list, a sparse matrix, or a mapping of arrays.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    InvalidInput
        If they have no length.

    Examples
    --------
    >>> count_rows({"input_ids": np.zeros((3, 5))})
    3
    """
    if isinstance(inputs, Mapping):
        inputs = next(iter(inputs.values()))
    if hasattr(inputs, "shape"):
        return int(inputs.shape[0])
    if not hasattr(inputs, "__len__"):
        raise InvalidInput(f"inputs must have a length, got {type(inputs).__name__}")
    return len(inputs)


def is_table(data: object) -> bool:
    """Tell whether data are a data set of the Hugging Face library, by what it offers.

    Parameters
    ----------
    data : object
        What the caller passed.

    Returns
    -------
    bool
        Whether it has columns with features.
    """
    return hasattr(data, "column_names") and hasattr(data, "features") and hasattr(data, "__getitem__")


def read_table(table: Any) -> LabelledInputs:
    """Read the inputs and labels of a data set of the Hugging Face library, by the usual names of its columns.

    Parameters
    ----------
    table : datasets.Dataset
        A data set with a column of texts or images, and perhaps one of labels.

    Returns
    -------
    LabelledInputs
        A list of texts or images; labels are names where the table knows them.

    Raises
    ------
    InvalidInput
        If no column has one of the usual names.
    """
    names = list(table.column_names)
    column = _first_of((*TEXT_COLUMNS, *IMAGE_COLUMNS), names)
    if column is None:
        raise InvalidInput(
            f"the data set has the columns {', '.join(names)}, and none is called {', '.join(TEXT_COLUMNS[:2])} or "
            f"{IMAGE_COLUMNS[0]}; rename one, or pass a pair (inputs, labels)"
        )
    label = _first_of(LABEL_COLUMNS, names)
    labels = None
    if label is not None:
        labels = list(table[label])
        known = getattr(table.features[label], "names", None)
        if known is not None:
            labels = [known[number] if 0 <= number < len(known) else -1 for number in labels]
    return LabelledInputs(list(table[column]), labels)


def _first_of(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    for name in wanted:
        if name in names:
            return name
    return None


def is_loader(data: object) -> bool:
    """Tell whether data come in batches, as those of a PyTorch ``DataLoader`` do.

    Parameters
    ----------
    data : object
        What the caller passed.

    Returns
    -------
    bool
        Whether it has a data set and can be iterated.
    """
    return hasattr(data, "dataset") and hasattr(data, "__iter__")


def read_loader(loader: Any) -> LabelledInputs:
    """Collect the batches of a loader in memory.

    Parameters
    ----------
    loader : DataLoader
        Yields ``(inputs, labels)`` or inputs alone.

    Returns
    -------
    LabelledInputs
        Arrays of all rows.

    Raises
    ------
    InvalidInput
        If it yields nothing.
    """
    inputs, labels = [], []
    for batch in loader:
        if isinstance(batch, tuple | list):
            inputs.append(np.asarray(batch[0]))
            if len(batch) > 1:
                labels.append(np.asarray(batch[1]))
        else:
            inputs.append(np.asarray(batch))
    if not inputs:
        raise InvalidInput("the loader yields no batch")
    joined = np.concatenate(labels).tolist() if labels else None
    return LabelledInputs(np.concatenate(inputs), joined)


def read_labelled(data: object) -> LabelledInputs:
    """Read inputs and labels in memory from whatever the caller passed.

    Parameters
    ----------
    data : object
        A pair, a loader, a Hugging Face data set, or inputs alone.

    Returns
    -------
    LabelledInputs
        Inputs, and labels where there are some.

    Examples
    --------
    >>> read_labelled(([[1.0], [2.0]], ["cat", "dog"])).labels
    ['cat', 'dog']
    """
    if is_pair(data):
        inputs, labels = data
        return LabelledInputs(inputs, np.asarray(labels).tolist())
    if is_table(data):
        return read_table(data)
    if is_loader(data):
        return read_loader(data)
    return LabelledInputs(data, None)


def number_labels(labels: Sequence[object], classes: Sequence[object], name: str) -> Labels:
    """Convert labels to their place among the classes.

    Parameters
    ----------
    labels : sequence
        Labels as the caller wrote them; -1 and None are inputs of no class.
    classes : sequence
        What the classifier calls its classes, in the order of its outputs.
    name : str
        The data set, for the message.

    Returns
    -------
    ndarray of int64, shape (N,)
        Class numbers, -1 for inputs of no class.

    Raises
    ------
    InvalidInput
        If a label is neither a class nor a class number.

    Examples
    --------
    >>> number_labels(["dog", "cat", None], ("cat", "dog"), "val")
    array([ 1,  0, -1])
    """
    places = {label: place for place, label in enumerate(classes)}
    numbers = np.empty(len(labels), dtype=np.int64)
    for row, label in enumerate(labels):
        if label is None:
            numbers[row] = -1
        elif label in places:
            numbers[row] = places[label]
        elif isinstance(label, int) and not isinstance(label, bool) and -1 <= label < len(classes):
            numbers[row] = label
        else:
            listed = ", ".join(repr(one) for one in list(classes)[:3])
            raise InvalidInput(
                f"{name}, row {row}: the label {label!r:.60} is none of the {len(classes)} classes of the classifier "
                f"({listed}, ...); pass inputs of no class as unknown="
            )
    return numbers
