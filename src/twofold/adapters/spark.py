"""Extract outputs and gate inputs on Spark, through ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from twofold._checks import AnyArray
from twofold.adapters._batches import BatchPredictor
from twofold.errors import InvalidInput

DataFrame: TypeAlias = Any  # of pyspark.sql, which is optional
RecordBatch: TypeAlias = Any  # of pyarrow
COLUMNS = {
    "logits": "array<float>",
    "features": "array<float>",
    "prediction": "bigint",
    "verdict": "string",
    "conf_id": "double",
    "conf_ood": "double",
}


def predict(frame: DataFrame, model: Any, **options: Any) -> DataFrame:
    """Run a network and a gate, or an ONNX gate, over a Spark DataFrame.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        The inputs; each column but the images is kept.
    model : str, nn.Module or Classifier
        As :class:`~twofold.adapters.BatchPredictor` takes it. A path must be readable on every executor.
    **options
        Its other parameters, such as ``gate``, ``images``, ``shape`` or ``outputs``.

    Returns
    -------
    pyspark.sql.DataFrame
        The other columns, and the outputs: ``logits`` and ``features`` as arrays; ``prediction``, ``verdict``,
        ``conf_id`` and ``conf_ood`` of a gate. It is computed when it is read.

    Raises
    ------
    InvalidInput
        If a column is missing, or an output has the name of a column.
    """
    udf = ArrowPredictor(model, **options)
    return frame.mapInArrow(udf, udf.schema(frame))


class ArrowPredictor:
    """Run a network and a gate on the record batches of a partition: a function for ``mapInArrow``.

    The network is loaded in the Python worker of an executor and kept for its next partition.

    Parameters
    ----------
    model : str, nn.Module or Classifier
        As :class:`~twofold.adapters.BatchPredictor` takes it.
    **options
        Its other parameters.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        for name in ("outputs", "shape"):
            if options.get(name) is not None:
                options[name] = tuple(options[name])
        self.model = model
        self.options = options

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Compute the outputs of a partition.

        Parameters
        ----------
        batches : iterable of pyarrow.RecordBatch
            Rows of the partition.

        Yields
        ------
        pyarrow.RecordBatch
            The same rows, with the outputs in place of the images.
        """
        import pyarrow as pa

        predictor = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if predictor is None:
                predictor = _load_predictor(self.model, tuple(sorted(self.options.items())))
            kept = {}
            for name in batch.schema.names:
                if name != predictor.images:
                    kept[name] = batch.column(name)
            inputs = {name: np.empty(0) for name in kept}  # names alone, to find collisions
            if predictor.images in batch.schema.names:
                inputs[predictor.images] = _to_numpy(batch.column(predictor.images))
            found = predictor(inputs)
            for name in COLUMNS:
                if name in found and name not in kept:
                    kept[name] = _to_arrow(found[name])
            yield pa.RecordBatch.from_pydict(kept)

    def schema(self, frame: DataFrame) -> str:
        """Describe the columns of the result for ``mapInArrow``.

        Parameters
        ----------
        frame : pyspark.sql.DataFrame
            The inputs.

        Returns
        -------
        str
            The schema, as Spark reads it.

        Raises
        ------
        InvalidInput
            If the column of images is missing, or an output has the name of a column.
        """
        images = self.options.get("images", "images")
        if images not in frame.columns:
            raise InvalidInput(f"images={images!r} is no column; the table has {', '.join(frame.columns)}")
        parts = []
        for field in frame.schema.fields:
            if field.name != images:
                quoted = field.name.replace("`", "``")
                parts.append(f"`{quoted}` {field.dataType.simpleString()}")
        for name in self._names():
            if name in frame.columns and name != images:
                raise InvalidInput(f"the table has a column {name!r} already; rename it before the network runs")
            parts.append(f"{name} {COLUMNS[name]}")
        return ", ".join(parts)

    def _names(self) -> list[str]:
        """List the outputs, by what the model and the gate give."""
        from twofold.gate import Gate

        if str(self.model).endswith(".onnx"):
            import onnxruntime

            session = onnxruntime.InferenceSession(str(self.model), providers=["CPUExecutionProvider"])
            has_second = "conf_ood" in [output.name for output in session.get_outputs()]
            return ["prediction", "verdict", "conf_id"] + ["conf_ood"] * has_second
        names = list(self.options.get("outputs", ("logits", "features")))
        gate = self.options.get("gate")
        if gate is None:
            return names
        opened = gate if isinstance(gate, Gate) else Gate.load(gate)
        names += ["prediction", "verdict", "conf_id"]
        if opened.ood is not None:
            names.append("conf_ood")
        return names


@lru_cache(maxsize=1)
def _load_predictor(model: Any, options: tuple[tuple[str, Any], ...]) -> BatchPredictor:
    """Load the network once in a worker, as long as the same one is asked for."""
    return BatchPredictor(model, **dict(options))


def _to_numpy(column: Any) -> AnyArray:
    """Convert an Arrow column of bytes or of lists of numbers."""
    import pyarrow as pa

    if column.null_count:
        raise InvalidInput("the column of images holds nulls; filter them out first")
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_pylist()
        return values
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if (lengths != lengths[0]).any():
        raise InvalidInput("the column of images holds lists of different lengths; give all the same shape")
    flat = column.flatten().to_numpy(zero_copy_only=False)
    if flat.dtype == np.float64:
        flat = flat.astype(np.float32)
    return np.asarray(flat.reshape(len(column), -1))


def _to_arrow(values: AnyArray) -> Any:
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(values).reshape(-1)))
