"""Log evaluations, report cards, benchmark results and gates to MLflow, and serve a gate as an MLflow model.

A saved model is the folder of the gate with an ``MLmodel`` file around it. MLflow loads it through this module; nothing
is pickled.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from twofold._checks import AnyArray
from twofold._files import read_regular, replacing
from twofold.bench.results import Results
from twofold.bench.rows import method
from twofold.errors import InvalidInput, MissingExtra, RunError
from twofold.gate import Gate, ReportCard
from twofold.metrics import Evaluation
from twofold.outputs import Head, Outputs

DataFrame: TypeAlias = Any  # of pandas, which is optional
FOLDER, GATE, HEAD, ONNX = "twofold", "gate", "head.safetensors", "gate.onnx"
LOADER = "twofold.adapters.mlflow"


def log(what: Evaluation | ReportCard | Results | Gate | str | os.PathLike[str], name: str = "twofold") -> None:
    """Log one object to the active MLflow run.

    Parameters
    ----------
    what : Evaluation, ReportCard, Results, Gate, str or path-like
        An evaluation or report card: every value as a metric, undefined ones left out, and all of it with the reasons
        as JSON. Benchmark results: every value as a metric named by run, shift, protocol, method and metric, and the
        table as CSV. A gate: its scores and thresholds as parameters and its folder as artifacts. A path, such as that
        of a report: the file or folder as artifacts.
    name : str, default="twofold"
        What the names of metrics, parameters and artifacts start with, followed by a slash.

    Raises
    ------
    InvalidInput
        If ``what`` is another object, or a path where nothing exists.
    MissingExtra
        If MLflow is not installed.
    """
    try:
        import mlflow
    except ImportError as error:
        raise MissingExtra('log needs mlflow: pip install "twofold[adapters]"') from error
    if isinstance(what, Evaluation):
        mlflow.log_metrics(_select_metrics(name, dict(what)))
        mlflow.log_dict(_replace_nonfinite(what.to_dict()), f"{name}/evaluation.json")
    elif isinstance(what, ReportCard):
        mlflow.log_metrics(_select_metrics(name, what.to_dict()))
        mlflow.log_dict(_replace_nonfinite(what.to_dict()), f"{name}/reportcard.json")
    elif isinstance(what, Results):
        values = {_name_row(row): row["value"] for row in what.rows}
        mlflow.log_metrics(_select_metrics(name, values))
        with tempfile.TemporaryDirectory() as folder:
            mlflow.log_artifact(str(what.to_csv(Path(folder) / "results.csv")), name)
    elif isinstance(what, Gate):
        mlflow.log_params(_gate_parameters(name, what))
        with tempfile.TemporaryDirectory() as folder:
            what.save(Path(folder) / "gate")
            mlflow.log_artifacts(str(Path(folder) / "gate"), f"{name}/gate")
    elif isinstance(what, str | os.PathLike) and Path(what).is_dir():
        mlflow.log_artifacts(str(what), name)
    elif isinstance(what, str | os.PathLike) and Path(what).exists():
        mlflow.log_artifact(str(what), name)
    else:
        raise InvalidInput(
            f"log takes an Evaluation, ReportCard, Results, Gate or the path of a file or folder, got {what!r}"
        )


def _select_metrics(prefix: str, values: Mapping[str, object]) -> dict[str, float]:
    """Keep the finite numbers, under the names that MLflow shows."""
    metrics = {}
    for name, value in values.items():
        if isinstance(value, int | float) and math.isfinite(value):
            metrics[f"{prefix}/{name}"] = value
    return metrics


def _gate_parameters(prefix: str, gate: Gate) -> dict[str, str | float]:
    parameters: dict[str, str | float] = {
        f"{prefix}/id": gate.id.spec,
        f"{prefix}/tau_id": gate.tau_id,
        f"{prefix}/objective": gate.promise.objective,
    }
    if gate.ood is not None:
        parameters[f"{prefix}/ood"] = gate.ood.spec
        parameters[f"{prefix}/tau_ood"] = gate.tau_ood
    return parameters


def _replace_nonfinite(values: Mapping[str, object]) -> dict[str, object]:
    """Copy nested dictionaries with None in place of NaN and infinities, which JSON cannot hold."""
    plain: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            plain[key] = _replace_nonfinite(value)
        elif isinstance(value, float) and not math.isfinite(value):
            plain[key] = None
        else:
            plain[key] = value
    return plain


def _name_row(row: Mapping[str, object]) -> str:
    """Name a row, using only characters that MLflow allows.

    >>> row = {"run": "r1", "shift": "far", "protocol": None, "score": "react|energy", "pair": None, "metric": "aurc"}
    >>> _name_row(row)
    'r1/far/react_energy/aurc'
    """
    parts = [row["run"], row["shift"], row["protocol"], method(row), row["metric"]]
    present = [str(part) for part in parts if part is not None]
    text = "/".join(present)
    return re.sub(r"[^\w\-./ ]", "_", text)


# Gates as MLflow models


def save_model(
    gate: Gate,
    path: str | os.PathLike[str],
    *,
    head: Head | None = None,
    model: Any = None,
    **options: Any,
) -> None:
    """Save a gate as an MLflow model with the flavour ``python_function``.

    Without ``model`` it takes outputs of a classifier: a table with a column of arrays, ``logits``, and where a score
    reads them ``features``. With ``model`` the classifier is part of it, as an ONNX file, and it takes ``images``. The
    result is a table with ``prediction``, ``verdict``, ``conf_id`` and, for a gate of two scores, ``conf_ood``.

    Parameters
    ----------
    gate : Gate
        A fitted gate.
    path : str or path-like
        Folder to write; it must not exist.
    head : Head, optional
        Last linear layer of the classifier, for scores that read it.
    model : nn.Module or Classifier, optional
        The classifier, float32 on the CPU.
    **options
        With ``model``: ``shape``, ``prepare`` and ``head_layer``, the name of the last layer, for
        :func:`twofold.nn.to_onnx`.

    Raises
    ------
    InvalidInput
        If a score reads what an MLflow model does not take, or ``head`` is missing; also what ``to_onnx`` raises.
    MissingExtra
        If MLflow or pandas is not installed.

    Examples
    --------
    ``mlflow models serve --model-uri PATH --env-manager local`` serves the saved model, and
    ``mlflow.pyfunc.spark_udf(spark, PATH, result_type=twofold.adapters.mlflow.RESULT)`` applies it to columns.
    """
    pyfunc = _import_pyfunc()
    with _write_files(gate, head, model, options) as data:
        pyfunc.save_model(path=str(path), **_describe(gate, data))


def log_model(
    gate: Gate,
    name: str = "gate",
    *,
    head: Head | None = None,
    model: Any = None,
    registered_model_name: str | None = None,
    **options: Any,
) -> Any:
    """Log a gate as a model of the active MLflow run.

    Parameters
    ----------
    gate : Gate
        A fitted gate.
    name : str, default="gate"
        Name of the model in the run.
    head : Head, optional
        Last linear layer of the classifier, for scores that read it.
    model : nn.Module or Classifier, optional
        The classifier, float32 on the CPU, if it is to be part of the model.
    registered_model_name : str, optional
        Register the model under this name as well.
    **options
        Options of ``model``, as for :func:`save_model`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        What MLflow says of the model; ``model_uri`` loads it.

    Raises
    ------
    InvalidInput
        As for :func:`save_model`.
    MissingExtra
        If MLflow or pandas is not installed.
    """
    pyfunc = _import_pyfunc()
    with _write_files(gate, head, model, options) as data:
        return pyfunc.log_model(name=name, registered_model_name=registered_model_name, **_describe(gate, data))


def load_model(model_uri: str | os.PathLike[str]) -> Gate:
    """Load the gate of an MLflow model; ``mlflow.pyfunc.load_model`` loads the function on tables instead.

    Parameters
    ----------
    model_uri : str or path-like
        A folder that :func:`save_model` wrote, or a URI of MLflow such as ``runs:/RUN/gate`` or ``models:/NAME/1``.

    Returns
    -------
    Gate
        The gate that was saved; its decisions are equal to the last bit.

    Raises
    ------
    RunError
        If this is not a model that :func:`save_model` wrote, or it is damaged.
    MissingExtra
        If MLflow is not installed.
    """
    _import_pyfunc()
    folder = Path(model_uri)
    if not folder.is_dir():
        import mlflow

        folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri)))
    return Gate.load(folder / "data" / FOLDER / GATE)


RESULT = "prediction long, verdict string, conf_id double, conf_ood double"
"""The columns of a gate of two scores, as ``mlflow.pyfunc.spark_udf`` takes them."""


def _load_pyfunc(path: str) -> GateFunction:
    """Load what MLflow serves; MLflow calls this with the folder inside a saved model."""
    folder = Path(path)
    gate = Gate.load(folder / GATE)
    session = None
    if (folder / ONNX).is_file():
        import onnxruntime

        session = onnxruntime.InferenceSession(read_regular(folder / ONNX), providers=["CPUExecutionProvider"])
    head = None
    if (folder / HEAD).is_file():
        head = _read_head(folder / HEAD)
    return GateFunction(gate, head, session)


@dataclass(frozen=True, eq=False)
class GateFunction:
    """Decide on the rows of a table: what MLflow serves.

    Parameters
    ----------
    gate : Gate
        The gate.
    head : Head or None
        Last linear layer of the classifier, where a score reads it.
    session : onnxruntime.InferenceSession or None
        Classifier and gate in one graph, if the model holds its classifier.
    """

    gate: Gate
    head: Head | None
    session: Any

    def predict(self, model_input: Any, params: Mapping[str, object] | None = None) -> DataFrame:
        """Give a verdict for every row.

        Parameters
        ----------
        model_input : pandas.DataFrame, ndarray or mapping of str to array
            Columns ``logits`` and ``features`` of arrays, or ``images``.
        params : mapping, optional
            Not used; MLflow may pass it.

        Returns
        -------
        pandas.DataFrame
            Columns ``prediction``, ``verdict``, ``conf_id`` and, for a gate of two scores, ``conf_ood``.

        Raises
        ------
        InvalidInput
            If a column is missing, or does not fit the gate.
        """
        import pandas as pd

        from twofold.adapters._batches import decision_columns, run_session

        if self.session is not None:
            return pd.DataFrame(run_session(self.session, _read_column(model_input, "images").astype(np.float32)))
        names = _input_names(self.gate)
        features = _read_column(model_input, "features") if "features" in names else None
        outputs = Outputs(_read_column(model_input, "logits"), features=features, head=self.head)
        return pd.DataFrame(decision_columns(self.gate.decide(outputs)))


def _read_column(table: Any, name: str) -> AnyArray:
    """Return a column of arrays as one array; an unnamed array is the only column."""
    if isinstance(table, np.ndarray):
        return table
    if name not in table:
        raise InvalidInput(f"the input has no column {name!r}; it has {', '.join(map(str, table))}")
    column = table[name]
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column
    return np.stack([np.asarray(row) for row in column])


def _input_names(gate: Gate) -> list[str]:
    """List the columns that a gate reads beside images: logits, and features where a score needs them."""
    needed = set(gate.id.needs)
    if gate.ood is not None:
        needed |= set(gate.ood.needs)
    not_taken = needed - {"logits", "features", "head", "predictions"}
    if not_taken:
        raise InvalidInput(
            f"an MLflow model takes logits and features, and this gate reads {', '.join(sorted(not_taken))}; "
            "decide in Python"
        )
    return ["logits", "features"] if needed & {"features", "head"} else ["logits"]


@contextmanager
def _write_files(gate: Gate, head: Head | None, model: Any, options: Mapping[str, Any]) -> Iterator[Path]:
    """Write what the model holds into a temporary folder."""
    if model is None and options:
        raise InvalidInput(
            f"{', '.join(options)} belong to model=, the classifier that becomes part of the MLflow model"
        )
    needs_head = any(chain is not None and "head" in chain.needs for chain in (gate.id, gate.ood))
    if model is None and needs_head and head is None:
        raise InvalidInput("a score of this gate reads the last layer; pass head=, such as run.head, or model=")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / FOLDER
        folder.mkdir()
        gate.save(folder / GATE)
        if model is not None:
            named = {"head" if name == "head_layer" else name: value for name, value in options.items()}
            gate.to_onnx(model, folder / ONNX, **named)
        elif head is not None and needs_head:
            _write_head(folder / HEAD, head)
        yield folder


def _describe(gate: Gate, data: Path) -> dict[str, Any]:
    """Collect what MLflow keeps of the model: how to load it, what it takes and returns, and an example."""
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import Array

    from twofold import __version__

    function = _load_pyfunc(str(data))
    requirements = [f"twofold=={__version__}"]
    example: Any
    if function.session is not None:
        requirements.append("onnxruntime")
        shape = tuple(function.session.get_inputs()[0].shape[1:])
        inputs = Schema([TensorSpec(np.dtype(np.float32), (-1, *shape), "images")])
        example = {"images": np.zeros((1, *shape), np.float32)}
    else:
        columns = {"logits": gate.classes, "features": gate.widths.get("features", 0)}
        names = _input_names(gate)
        inputs = Schema([ColSpec(Array(DataType.double), name) for name in names])
        zeros = {name: [np.zeros(columns[name])] for name in names}
        if function.head is not None:  # logits that fit the features
            zeros["logits"] = [np.asarray(function.head.bias, dtype=np.float64)]
        example = pd.DataFrame(zeros)
    results: list[ColSpec | TensorSpec] = [
        ColSpec(DataType.long, "prediction"),
        ColSpec(DataType.string, "verdict"),
        ColSpec(DataType.double, "conf_id"),
    ]
    if gate.ood is not None:
        results.append(ColSpec(DataType.double, "conf_ood"))
    return {
        "loader_module": LOADER,
        "data_path": str(data),
        "signature": ModelSignature(inputs=inputs, outputs=Schema(results)),
        "input_example": example,
        "pip_requirements": requirements,
    }


def _write_head(path: Path, head: Head) -> None:
    from safetensors.numpy import save

    with replacing(path) as file:
        file.write(save({"weight": np.asarray(head.weight), "bias": np.asarray(head.bias)}))


def _read_head(path: Path) -> Head:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(read_regular(path))
        return Head(arrays["weight"], arrays["bias"])
    except (SafetensorError, KeyError, InvalidInput) as error:
        raise RunError(f"{path} is damaged ({error!s:.200}); save the model again") from error


def _import_pyfunc() -> Any:
    try:
        import mlflow.pyfunc
        import pandas  # noqa: F401
    except ImportError as error:
        raise MissingExtra(f'an MLflow model needs {error.name}: pip install "twofold[adapters]"') from error
    return mlflow.pyfunc
