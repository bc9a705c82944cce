"""Metrics, cards and monitoring over tables of logged predictions, on DuckDB, Polars, PyArrow, pandas, Dask or Spark.

>>> import pyarrow as pa
>>> from twofold import logs
>>> table = pa.table({"label": [0, 1, 1], "prediction": [0, 1, 0], "conf": [0.9, 0.8, 0.3]})
>>> print(logs.evaluate(table, metrics=["accuracy", "auroc"]))
3 samples (3 ID, 0 OOD)
accuracy ↑ 0.66667
auroc    ↑ 1.00000
"""

from __future__ import annotations

from twofold.logs.card import LogCard, LogCards, card
from twofold.logs.evaluate import evaluate
from twofold.logs.results import GroupedEvaluation, TableEvaluation
from twofold.logs.verdicts import apply
from twofold.logs.watch import Watch, Window, watch

__all__ = [
    "GroupedEvaluation",
    "LogCard",
    "LogCards",
    "TableEvaluation",
    "Watch",
    "Window",
    "apply",
    "card",
    "evaluate",
    "watch",
]
