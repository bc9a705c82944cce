from . import mlflow, ray, spark
from .lightning import ReliabilityCallback
from .mlflow import log
from .pandas import outputs_of, to_frame
from .ray import BatchPredictor
from .scikit_learn import SelectiveClassifier, reliability_score, reliability_scorer
from .serving import export_gate
from .torchmetrics import Reliability
from .transformers import compute_metrics, gated

__all__ = [
    "BatchPredictor",
    "Reliability",
    "ReliabilityCallback",
    "SelectiveClassifier",
    "compute_metrics",
    "export_gate",
    "gated",
    "log",
    "mlflow",
    "outputs_of",
    "ray",
    "reliability_score",
    "reliability_scorer",
    "spark",
    "to_frame",
]
