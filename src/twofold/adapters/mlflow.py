"""Log evaluations, report cards, benchmark results and gates to the active MLflow run."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from twofold.bench.results import Results
from twofold.bench.rows import method
from twofold.errors import InvalidInput, MissingExtra
from twofold.gate import Gate, ReportCard
from twofold.metrics import Evaluation


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
    if isinstance(what, Evaluation | ReportCard):
        numbers = dict(what) if isinstance(what, Evaluation) else what.to_dict()
        mlflow.log_metrics(_metrics(name, numbers))
        mlflow.log_dict(_replace_nonfinite(what.to_dict()), f"{name}/{type(what).__name__.lower()}.json")
    elif isinstance(what, Results):
        mlflow.log_metrics(_metrics(name, {_place(row): row["value"] for row in what.rows}))
        with tempfile.TemporaryDirectory() as folder:
            mlflow.log_artifact(str(what.to_csv(Path(folder) / "results.csv")), name)
    elif isinstance(what, Gate):
        mlflow.log_params({f"{name}/{key}": value for key, value in _gate_parameters(what).items()})
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


def _metrics(prefix: str, values: Mapping[str, object]) -> dict[str, float]:
    """Keep the finite numbers, under the names that MLflow shows."""
    metrics = {}
    for name, value in values.items():
        if isinstance(value, int | float) and math.isfinite(value):
            metrics[f"{prefix}/{name}"] = value
    return metrics


def _gate_parameters(gate: Gate) -> dict[str, str | float]:
    parameters: dict[str, str | float] = {
        "id": gate.id.spec,
        "tau_id": gate.tau_id,
        "objective": gate.promise.objective,
    }
    if gate.ood is not None:
        parameters["ood"] = gate.ood.spec
        parameters["tau_ood"] = gate.tau_ood
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


def _place(row: Mapping[str, object]) -> str:
    """Name a row, using only characters that MLflow allows.

    >>> _place({"run": "r1", "shift": "far", "protocol": None, "score": "react|energy", "pair": None, "metric": "aurc"})
    'r1/far/react_energy/aurc'
    """
    parts = [row["run"], row["shift"], row["protocol"], method(row), row["metric"]]
    text = "/".join(str(part) for part in parts if part is not None)
    return re.sub(r"[^\w\-./ ]", "_", text)
