from .lightning import ReliabilityCallback
from .mlflow import log
from .pandas import outputs_of, to_frame
from .scikit_learn import SelectiveClassifier, reliability_score, reliability_scorer
from .torchmetrics import Reliability
from .transformers import compute_metrics

__all__ = [
    "Reliability",
    "ReliabilityCallback",
    "SelectiveClassifier",
    "compute_metrics",
    "log",
    "outputs_of",
    "reliability_score",
    "reliability_scorer",
    "to_frame",
]
