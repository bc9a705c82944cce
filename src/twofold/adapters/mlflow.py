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
