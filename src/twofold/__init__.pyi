from . import (
    adapters,
    bench,
    demo,
    errors,
    gate,
    logs,
    metrics,
    nn,
    outputs,
    papers,
    plot,
    report,
    run,
    scores,
    stats,
    study,
    typing,
    wrapping,
)
from .gate import Gate
from .metrics import evaluate, register_metric
from .outputs import Head, Outputs, Passes
from .run import Run
from .scores.chain import Chain, load_chain, scorer
from .scores.logits import probability
from .scores.pairs import recommend
from .scores.registry import register_score, register_transform
from .scores.tuning import tune
from .wrapping import wrap

__version__: str

__all__ = [
    "Chain",
    "Gate",
    "Head",
    "Outputs",
    "Passes",
    "Run",
    "adapters",
    "bench",
    "demo",
    "errors",
    "evaluate",
    "gate",
    "load_chain",
    "logs",
    "metrics",
    "nn",
    "outputs",
    "papers",
    "plot",
    "probability",
    "recommend",
    "register_metric",
    "register_score",
    "register_transform",
    "report",
    "run",
    "scorer",
    "scores",
    "stats",
    "study",
    "tune",
    "typing",
    "wrap",
    "wrapping",
]
