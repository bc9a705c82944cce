"""twofold tells how far a classifier can be trusted, and turns that into a gate one can deploy.

Nothing heavy is imported before it is used: submodules and names resolve on first access.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold import adapters as adapters
    from twofold import bench as bench
    from twofold import errors as errors
    from twofold import gate as gate
    from twofold import metrics as metrics
    from twofold import nn as nn
    from twofold import report as report
    from twofold import scores as scores
    from twofold import stats as stats
    from twofold import study as study
    from twofold.gate import Gate as Gate
    from twofold.metrics import register_metric as register_metric
    from twofold.metrics.evaluate import evaluate as evaluate
    from twofold.outputs import Head as Head
    from twofold.outputs import Outputs as Outputs
    from twofold.outputs import Passes as Passes
    from twofold.run import Run as Run
    from twofold.scores.chain import Chain as Chain
    from twofold.scores.chain import load_chain as load_chain
    from twofold.scores.chain import register_score as register_score
    from twofold.scores.chain import register_transform as register_transform
    from twofold.scores.chain import scorer as scorer
    from twofold.scores.logits import probability as probability
    from twofold.scores.tuning import recommend as recommend
    from twofold.scores.tuning import tune as tune

__version__ = "0.1.0"

_HOME = {
    "Chain": "scores.chain",
    "Gate": "gate",
    "Head": "outputs",
    "Outputs": "outputs",
    "Passes": "outputs",
    "Run": "run",
    "evaluate": "metrics",
    "load_chain": "scores.chain",
    "probability": "scores.logits",
    "recommend": "scores.tuning",
    "register_metric": "metrics",
    "register_score": "scores.chain",
    "register_transform": "scores.chain",
    "scorer": "scores.chain",
    "tune": "scores.tuning",
}
_MODULES = ("adapters", "bench", "errors", "gate", "metrics", "nn", "report", "scores", "stats", "study")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"twofold.{name}")
    if name in _HOME:
        value = getattr(import_module(f"twofold.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'twofold' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
