"""Log evaluations, report cards, benchmark results and gates to the active MLflow run."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

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
        mlflow.log_metrics({f"{name}/{key}": value for key, value in numbers.items() if _is_number(value)})
        mlflow.log_dict(_plain(what.to_dict()), f"{name}/{type(what).__name__.lower()}.json")
    elif isinstance(what, Results):
        mlflow.log_metrics({f"{name}/{_place(row)}": row["value"] for row in what.rows if _is_number(row["value"])})
        with tempfile.TemporaryDirectory() as folder:
            mlflow.log_artifact(str(what.to_csv(Path(folder) / "results.csv")), name)
    elif isinstance(what, Gate):
        said = {"id": what.id.spec, "tau_id": what.tau_id, "objective": what.promise.objective}
        second = {} if what.ood is None else {"ood": what.ood.spec, "tau_ood": what.tau_ood}
        mlflow.log_params({f"{name}/{key}": value for key, value in (said | second).items()})
        with tempfile.TemporaryDirectory() as folder:
            what.save(Path(folder) / "gate")
            mlflow.log_artifacts(str(Path(folder) / "gate"), f"{name}/gate")
    elif isinstance(what, str | os.PathLike) and Path(what).exists():
        mlflow.log_artifacts(str(what), name) if Path(what).is_dir() else mlflow.log_artifact(str(what), name)
    else:
        raise InvalidInput(
            f"log takes an Evaluation, ReportCard, Results, Gate or the path of a file or folder, got {what!r}"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _plain(value: Any) -> Any:
    """Replace what is not a finite number by None, for strict JSON."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _place(row: Any) -> str:
    """Name a row, using only characters that MLflow allows.

    >>> _place({"run": "r1", "shift": "far", "protocol": None, "score": "react|energy", "pair": None, "metric": "aurc"})
    'r1/far/react_energy/aurc'
    """
    parts = [row["run"], row["shift"], row["protocol"], method(row), row["metric"]]
    text = "/".join(str(part) for part in parts if part is not None)
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in text)
