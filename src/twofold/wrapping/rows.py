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
    if not _may_be_pair(data):
        return False
    inputs, labels = data
    return count_dimensions(labels) == 1 and len(labels) == count_rows(inputs)


def _may_be_pair(data: object) -> TypeGuard[tuple[Inputs, Any]]:
    """Tell whether data are a tuple of two things that are neither texts nor pictures."""
    if not isinstance(data, tuple) or len(data) != 2:
        return False
    first = data[0]
    return not isinstance(first, str) and not hasattr(first, "getbands")


def count_dimensions(values: Any) -> int | None:
    """Count the dimensions of an array, a tensor or nested lists.

    Parameters
    ----------
    values : object
        What the caller passed.

    Returns
    -------
    int or None
        The number; None for anything else, such as a mapping.

    Examples
    --------
    >>> count_dimensions([0, 1]), count_dimensions([[0.0, 1.0]]), count_dimensions({})
    (1, 2, None)
    """
    if isinstance(values, list | tuple):
        if not values or isinstance(values[0], str):
            return 1
        inner = count_dimensions(values[0])
        return 1 if inner is None else 1 + inner
    found = getattr(values, "ndim", None)
    if found is None and np.isscalar(values):
        return 0
    return found


def check_pair(data: object, name: str) -> None:
    """Reject a tuple that is almost a pair of inputs and labels, and say what is wrong with it.

    Parameters
    ----------
    data : object
        What the caller passed, which is no pair.
    name : str
        The data set, for messages.

    Raises
    ------
    InvalidInput
        If the labels have another length than the inputs, or a column for each class.
    """
    if not _may_be_pair(data):
        return
    inputs, labels = data
    dimensions, input_dimensions = count_dimensions(labels), count_dimensions(inputs)
    if dimensions == 1 and input_dimensions != 1:
        raise InvalidInput(
            f"{name} has {count_rows(inputs)} inputs and {len(labels)} labels; pass a tuple (inputs, labels) with one "
            "label for each input"
        )
    if dimensions == 2 and input_dimensions != 1 and len(labels) == count_rows(inputs):
        raise InvalidInput(
            f"{name} has labels of two dimensions, {describe_inputs(labels)}; pass one class for each input, such as "
            "labels.argmax(axis=1) of one-hot rows"
        )


def describe_inputs(inputs: Any) -> str:
    """Say in words what was passed.

    Parameters
    ----------
    inputs : object
        Anything.

    Returns
    -------
    str
        Its type, with shape and dtype or length where it has them.

    Examples
    --------
    >>> describe_inputs(np.zeros((2, 3))), describe_inputs([1, 2]), describe_inputs(None)
    ('a ndarray of shape (2, 3) and dtype float64', 'a list of 2', 'None')
    """
    if inputs is None:
        return "None"
    kind = f"a {type(inputs).__name__}"
    if isinstance(inputs, Mapping):
        return f"{kind} with the keys {', '.join(map(repr, list(inputs)[:5]))}"
    if hasattr(inputs, "shape") and hasattr(inputs, "dtype"):
        return f"{kind} of shape {tuple(inputs.shape)} and dtype {inputs.dtype}"
    if hasattr(inputs, "__len__"):
        return f"{kind} of {len(inputs)}"
    return kind


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
        inputs = next(iter(inputs.values()), ())
    if hasattr(inputs, "shape") and len(inputs.shape) > 0:
        return int(inputs.shape[0])
    if hasattr(inputs, "shape") or not hasattr(inputs, "__len__"):
        raise InvalidInput(f"inputs must have one row for each input, got {describe_inputs(inputs)}")
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


def read_loader(loader: Any, name: str = "the loader") -> LabelledInputs:
    """Collect the batches of a loader in memory.

    Parameters
    ----------
    loader : DataLoader
        Yields ``(inputs, labels)`` or inputs alone.
    name : str, default="the loader"
        The data set, for messages.

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
        raise InvalidInput(f"{name} yields no batch; a loader that was used up must be made again")
    joined = np.concatenate(labels).tolist() if labels else None
    return LabelledInputs(np.concatenate(inputs), joined)


def read_labelled(data: object, name: str = "data") -> LabelledInputs:
    """Read inputs and labels in memory from whatever the caller passed.

    Parameters
    ----------
    data : object
        A pair, a loader, a Hugging Face data set, or inputs alone. The labels of a pair may be None.
    name : str, default="data"
        The data set, for messages.

    Returns
    -------
    LabelledInputs
        Inputs, and labels where there are some.

    Raises
    ------
    InvalidInput
        If labels do not fit the inputs, or a loader yields nothing.

    Examples
    --------
    >>> read_labelled(([[1.0], [2.0]], ["cat", "dog"])).labels
    ['cat', 'dog']
    """
    if is_pair(data):
        inputs, labels = data
        return LabelledInputs(inputs, _list_labels(labels))
    if is_table(data):
        return read_table(data)
    if is_loader(data):
        return read_loader(data, name)
    if _may_be_pair(data) and data[1] is None:
        return LabelledInputs(data[0], None)
    check_pair(data, name)
    return LabelledInputs(data, None)


def _list_labels(labels: Any) -> list[object]:
    """Make a list of labels, numbers of NumPy and of tensors as those of Python."""
    if not isinstance(labels, list | tuple):
        return list(np.asarray(labels).tolist())
    return [label.item() if hasattr(label, "item") else label for label in labels]


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
    are_names = all(isinstance(label, str) for label in places)  # numbers that are classes are no places
    numbers = np.empty(len(labels), dtype=np.int64)
    for row, label in enumerate(labels):
        if label is None:
            numbers[row] = -1
        elif label in places:
            numbers[row] = places[label]
        elif isinstance(label, int | float) and label == -1:
            numbers[row] = -1
        elif are_names and isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(classes):
            numbers[row] = label
        else:
            listed = ", ".join(repr(one) for one in list(classes)[:3])
            more = ", ..." if len(classes) > 3 else ""
            raise InvalidInput(
                f"{name}, row {row}: the label {label!r:.60} is none of the {len(classes)} classes of the classifier "
                f"({listed}{more}); {_advise_on_label(label, classes)}"
            )
    return numbers


def _advise_on_label(label: object, classes: Sequence[object]) -> str:
    """Say what to do about a label that is no class."""
    if str(label) in [str(one) for one in classes]:
        return "write labels as the classes are written, both as text or both as numbers"
    if isinstance(label, str) and not isinstance(classes[0], str):
        return "pass the names of the classes as class_names=, in the order of the outputs, or labels as numbers"
    return "pass inputs of no class as unknown="
