"""Rows of a data set as the network takes them: inputs, labels and ids by position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, default_collate

from twofold._checks import Labels
from twofold.errors import InvalidInput
from twofold.nn.extraction.prepare import Prepare
from twofold.nn.rows import Ids, ImageRows, Pixels

Transform: TypeAlias = Callable[[Pixels], object]
RowNumbers: TypeAlias = range | tuple[int, ...]  # consecutive rows, or any


@dataclass(frozen=True, eq=False)
class InputBatch:
    """Hold some rows of a data set.

    Parameters
    ----------
    inputs : object
        What the model takes: a tensor, or tensors in a mapping, tuple or list.
    labels : ndarray of int64, shape (B,), optional
        Class numbers.
    ids : ndarray, shape (B,), optional
        Stable names of the rows.
    """

    inputs: object
    labels: npt.NDArray[np.int64] | None = None
    ids: Ids | None = None


@dataclass(frozen=True, eq=False)
class RowReader:
    """Read rows by their position.

    Parameters
    ----------
    rows : int
        Number of rows.
    read : callable
        Takes row numbers and returns an :class:`InputBatch`.
    class_names : tuple of str, optional
        Names of the classes, if they are known.
    ids : str, default="int64"
        Type in which ids are stored.
    lengths : ndarray of int64, shape (N,), optional
        Lengths of the rows, by which the batches of a shard are sorted; None keeps the order.
    """

    rows: int
    read: Callable[[RowNumbers], InputBatch]
    class_names: tuple[str, ...] | None = None
    ids: str = "int64"
    lengths: Labels | None = None

    @classmethod
    def of(cls, data: object, prepare: Transform | None) -> RowReader:
        """Make a reader of a data set.

        Parameters
        ----------
        data : Images, DataLoader or Dataset
            The data set.
        prepare : callable or None
            Turns uint8 images into inputs; None divides by 255. Only used with rows of :mod:`twofold.nn.data`.

        Returns
        -------
        RowReader
            The reader.

        Raises
        ------
        InvalidInput
            If the data have no rows by position, or a ``DataLoader`` shuffles them.
        """
        if isinstance(data, DataLoader):
            if isinstance(data.dataset, IterableDataset):
                raise InvalidInput("an iterable dataset has no rows to return to; pass a map-style Dataset")
            if not isinstance(data.sampler, SequentialSampler):
                raise InvalidInput("the DataLoader shuffles; build it with shuffle=False, so that row i stays row i")
            return _read_dataset(data.dataset, data.collate_fn)
        if hasattr(data, "read"):
            return _read_images(data, prepare or Prepare())  # type: ignore[arg-type]
        if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
            return _read_dataset(data, default_collate)
        raise InvalidInput(
            f"data must be rows of twofold.nn.data, a DataLoader or a Dataset with a length, got {type(data).__name__}"
        )


def _read_images(images: ImageRows, prepare: Transform) -> RowReader:
    ids = getattr(images, "ids", None)
    all_ids = None if ids is None else np.asarray(ids)
    stored_type = "int64"
    if all_ids is not None and all_ids.dtype.kind == "U":
        stored_type = f"S{np.char.encode(all_ids, 'utf-8').dtype.itemsize}"

    def read(rows: RowNumbers) -> InputBatch:
        some = slice(rows[0], rows[-1] + 1)  # images are read in order
        labels = None if images.labels is None else _as_labels(images.labels[some])
        some_ids = None if all_ids is None else all_ids[some]
        return InputBatch(prepare(images.read(some)), labels, some_ids)

    return RowReader(len(images), read, getattr(images, "class_names", None), stored_type)


def _read_dataset(dataset: Any, collate: Callable[[list[Any]], object]) -> RowReader:
    """Read a data set of PyTorch, whose items have any type."""

    def read(rows: RowNumbers) -> InputBatch:
        collated = collate([dataset[row] for row in rows])
        if isinstance(collated, Mapping):
            inputs = {name: value for name, value in collated.items() if name != "labels"}
            return InputBatch(inputs, _as_labels(collated.get("labels")))
        if isinstance(collated, tuple | list):
            labels = collated[1] if len(collated) > 1 else None
            return InputBatch(collated[0], _as_labels(labels))
        return InputBatch(collated)

    class_names = getattr(dataset, "classes", None)
    if isinstance(class_names, list | tuple):
        return RowReader(len(dataset), read, tuple(class_names))
    return RowReader(len(dataset), read)


def _as_labels(value: Any) -> npt.NDArray[np.int64] | None:
    return None if value is None else np.asarray(value, dtype=np.int64)


class BatchDataset(Dataset[InputBatch]):
    """Present whole batches as items, so that the workers of a ``DataLoader`` read ahead.

    Parameters
    ----------
    reader : RowReader
        Where rows come from.
    batches : sequence of row numbers
        Rows of each batch.
    """

    def __init__(self, reader: RowReader, batches: Sequence[RowNumbers]) -> None:
        self.reader, self.batches = reader, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> InputBatch:
        return self.reader.read(self.batches[i])
