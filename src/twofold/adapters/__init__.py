"""Use twofold inside other libraries: scikit-learn, torchmetrics, Lightning, transformers, pandas, MLflow.

Names resolve on first access, so importing this package needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from twofold.errors import MissingExtra

_HOME = {
    "Reliability": "torchmetrics",
    "ReliabilityCallback": "lightning",
    "SelectiveClassifier": "scikit_learn",
    "compute_metrics": "transformers",
    "log": "mlflow",
    "outputs_of": "pandas",
    "reliability_score": "scikit_learn",
    "reliability_scorer": "scikit_learn",
    "to_frame": "pandas",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'twofold.adapters' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"twofold.adapters.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("twofold"):
            raise
        raise MissingExtra(f'twofold.adapters.{name} needs {error.name}: pip install "twofold[adapters]"') from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
