"""Fit scores on training features that lie in partitions: in files, on a Dask or on a Spark cluster.

Each partition is read once, where it lies, and leaves counts, sums and second moments by class; these add up. A score
whose fit needs nothing else is fitted from the sums. The others need the rows themselves, and the error says so.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np

from twofold._checks import AnyArray
from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores._fitting.moments import Moments
from twofold.scores._fitting.summary import RowsNeeded, Summary
from twofold.scores.chain import Chain, scorer

Partition: TypeAlias = Outputs | Callable[[], Outputs]

FIELDS = ("shift", "count", "total", "square")


@dataclass(frozen=True, eq=False)
class _Statistics:
    """Hold what one partition, or several together, contribute."""

    moments: Moments
    rows: int
    classes: int
    has_labels: bool

    def __add__(self, other: _Statistics) -> _Statistics:
        if self.moments.square.shape != other.moments.square.shape or self.classes != other.classes:
            raise InvalidInput(
                f"partitions must be of one model: {self.classes} classes and features of width "
                f"{len(self.moments.shift)}, then {other.classes} and {len(other.moments.shift)}"
            )
        if self.has_labels != other.has_labels:
            raise InvalidInput("either all partitions have labels, or none has")
        return _Statistics(self.moments + other.moments, self.rows + other.rows, self.classes, self.has_labels)


@dataclass(frozen=True, eq=False)
class _TrainingSet:
    """Stand for the training outputs: a step takes fields from it by name."""

    features: Summary
    logits: Summary
    labels: Summary | None
    predictions: Summary
    head: Head | None
    layers: None = None
    learned: None = None
    passes: None = None
    groups: None = None


def fit_partitioned(
    chain: str | Chain,
    partitions: Iterable[Partition] | Any,
    *,
    head: Head | None = None,
    features: str = "features",
    logits: str = "logits",
    labels: str = "labels",
) -> Chain:
    """Fit a score on a training set that lies in partitions, without bringing its rows together.

    Each partition is read once. Counts, sums and second moments by class add up, so ``mds``, ``rmds``, ``residual``,
    ``neco``, ``pca_error``, ``cosine_mean``, ``fdbd``, ``nci``, ``weiper``, ``gradorth`` and the transform ``dice``
    learn the same as on all rows at once, up to the rounding of sums.

    Parameters
    ----------
    chain : str or Chain
        The score. A step that learns must come first, or after steps that do not change what it learns from.
    partitions : iterable of Outputs, of callables or of Dask delayed objects, or a Spark DataFrame
        The training set. A callable returns the Outputs of one partition and is called when it is needed. Dask computes
        delayed Outputs where they lie. Of a Spark DataFrame, the columns below are read; features and logits are arrays
        of numbers.
    head : Head, optional
        Last linear layer, for scores that read it; by default that of the first partition.
    features, logits, labels : str
        Names of the columns of a Spark DataFrame; a missing column of labels means that there are none.

    Returns
    -------
    Chain
        The fitted chain.

    Raises
    ------
    InvalidInput
        If a score learns from the rows themselves, such as ``knn``, from a validation set or from layers; if partitions
        are of different models; or if there are none.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> parts = []
    >>> for _ in range(3):
    ...     parts.append(Outputs(rng.normal(size=(50, 2)), rng.integers(0, 2, 50), rng.normal(size=(50, 4))))
    >>> whole = scorer("mds").fit(Outputs.concat(parts))
    >>> merged = fit_partitioned("mds", parts)
    >>> bool(np.allclose(merged.score(parts[0]), whole.score(parts[0]), rtol=1e-9))
    True
    """
    blank = scorer(chain)
    statistics, found_head = _summarise(partitions, (features, logits, labels))
    if not statistics.moments.count.any():
        raise InvalidInput("labels must name a class for at least one training row; all are -1")
    rows, width = int(statistics.moments.count.sum()), len(statistics.moments.shift)
    truth = Summary((rows,)) if statistics.has_labels else None
    train = _TrainingSet(
        features=Summary((rows, width), statistics.moments, truth),
        logits=Summary((rows, statistics.classes)),
        labels=truth,
        predictions=Summary((rows,)),
        head=head or found_head,
    )
    return _fit_steps(blank, train)


def _fit_steps(blank: Chain, train: _TrainingSet) -> Chain:
    """Fit every step on the same statistics; a step after a transform would need the rows."""
    fitted = []
    for i, step in enumerate(blank.steps):
        if i > 0 and step.info.learns:
            raise _cannot_merge(blank.spec, step.info.name, "it learns from rows that a transform changed")
        try:
            fitted.append(step.fit({"train": train, "val": None, "ood_val": None}))  # type: ignore[dict-item]
        except RowsNeeded as error:
            raise _cannot_merge(blank.spec, step.info.name, "it learns from the rows themselves") from error
    uses_training = any(step.sets_used for step in fitted)
    return Chain(tuple(fitted), fitted_on="train" if uses_training else "", tuned_on=blank.tuned_on)


def _cannot_merge(spec: str, name: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{spec} cannot be fitted on partitions: {name} is not made from sums, {reason}; "
        f"fit it on one machine with scorer({spec!r}).fit(train), which reads a Run in blocks"
    )


def _summarise(partitions: Any, columns: tuple[str, str, str]) -> tuple[_Statistics, Head | None]:
    """Add up the statistics of all partitions, wherever they lie."""
    if hasattr(partitions, "mapInArrow"):
        return _summarise_spark(partitions, columns), None
    found = list(partitions)
    if not found:
        raise InvalidInput("partitions must hold at least one partition, got none")
    if all(hasattr(part, "__dask_graph__") for part in found):
        from dask.base import compute
        from dask.delayed import delayed

        pairs = compute(*[delayed(_summarise_one)(part) for part in found])  # type: ignore[no-untyped-call]
    else:
        pairs = tuple(_summarise_one(part) for part in found)
    return reduce(add, [statistics for statistics, _ in pairs]), pairs[0][1]


def _summarise_one(partition: Partition) -> tuple[_Statistics, Head | None]:
    """Compute the statistics of one partition, and return them with its head."""
    outputs = partition() if callable(partition) else partition
    if not isinstance(outputs, Outputs):
        raise InvalidInput(
            f"a partition must be Outputs, or a function that returns them, got {type(outputs).__name__}"
        )
    if outputs.features is None:
        raise InvalidInput("a partition must have features, whose statistics are added up; these outputs have none")
    return _statistics(outputs.features, outputs.labels, outputs.classes), outputs.head


def _statistics(features: AnyArray, labels: AnyArray | None, classes: int) -> _Statistics:
    if labels is None:
        moments = Moments.of(features, np.zeros(len(features), np.int64), 1)
    elif (labels >= 0).any():
        moments = Moments.of(features, labels, classes)
    else:
        width = features.shape[1]
        moments = Moments(np.zeros(width), np.zeros(classes), np.zeros((classes, width)), np.zeros((width, width)))
    return _Statistics(moments, len(features), classes, labels is not None)


# Spark


def _summarise_spark(frame: Any, columns: tuple[str, str, str]) -> _Statistics:
    """Compute the statistics of each partition on its executor, and add up one small row of each."""
    for name in columns[:2]:
        if name not in frame.columns:
            raise InvalidInput(f"the DataFrame has no column {name!r}; it has {', '.join(frame.columns)}")
    present = [name for name in columns if name in frame.columns]

    def summarise(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        total = None
        for batch in batches:
            if batch.num_rows:
                part = _statistics_of_batch(batch, columns)
                total = part if total is None else total + part
        if total is not None:
            yield pa.RecordBatch.from_pydict({"statistics": [_pack(total)]})

    collected = frame.select(*present).mapInArrow(summarise, "statistics binary").collect()
    if not collected:
        raise InvalidInput("the DataFrame has no rows")
    return reduce(add, [_unpack(bytes(row["statistics"])) for row in collected])


def _statistics_of_batch(batch: Any, columns: tuple[str, str, str]) -> _Statistics:
    features = _matrix(batch.column(columns[0]), columns[0])
    logits = _matrix(batch.column(columns[1]), columns[1])
    truth = None
    if columns[2] in batch.schema.names:
        truth = np.asarray(batch.column(columns[2]).to_numpy(zero_copy_only=False), dtype=np.int64)
    return _statistics(features, truth, logits.shape[1])


def _matrix(column: Any, name: str) -> AnyArray:
    """Convert an Arrow column of arrays of one length to a matrix."""
    values = column.flatten().to_numpy(zero_copy_only=False)
    if column.null_count or len(column) == 0 or len(values) % len(column):
        raise InvalidInput(f"column {name!r} must hold arrays of one length, without nulls")
    matrix = np.asarray(values, dtype=np.float64).reshape(len(column), -1)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if not (lengths == matrix.shape[1]).all() or not np.isfinite(matrix).all():
        raise InvalidInput(f"column {name!r} must hold finite numbers in arrays of one length")
    return matrix


def _pack(statistics: _Statistics) -> bytes:
    """Write statistics as bytes that can be read without running code."""
    buffer = io.BytesIO()
    arrays = {name: getattr(statistics.moments, name) for name in FIELDS}
    facts = np.array([statistics.rows, statistics.classes, statistics.has_labels], dtype=np.int64)
    np.savez(buffer, facts=facts, **arrays)
    return buffer.getvalue()


def _unpack(raw: bytes) -> _Statistics:
    with np.load(io.BytesIO(raw), allow_pickle=False) as arrays:
        rows, classes, has_labels = arrays["facts"].tolist()
        moments = Moments(*(arrays[name] for name in FIELDS))
    return _Statistics(moments, rows, classes, bool(has_labels))
