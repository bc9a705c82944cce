"""Metrics with intervals, and the joint table that sets both kinds of failure side by side."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from twofold._checks import Array, ArrayLike
from twofold.errors import TwofoldWarning, UndefinedMetric
from twofold.metrics import evaluate, info
from twofold.stats import Interval, bootstrap

# Columns of the joint table: metric, heading, factor for print, what it judges
JOINT = {
    "accuracy": ("accuracy %", 100, "ID samples"),
    "aurc_id": ("AURC-ID x1000", 1000, "ID score alone"),
    "augrc": ("AUGRC x1000", 1000, "ID score alone"),
    "auroc_ood": ("AUROC %", 100, "OOD score, ID against OOD"),
    "fpr95_ood": ("FPR@95 %", 100, "OOD score, ID against OOD"),
    "f1": ("F1 %", 100, "ID score alone"),
    "ds_f1": ("DS-F1 %", 100, "both scores"),
    "ds_aurc": ("DS-AURC x1000", 1000, "both scores"),
}


def intervals(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    conf_ood: ArrayLike | None = None,
    ood_share: float | None = None,
    only: Iterable[str] | None = None,
    n: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    done: Callable[[], Any] | None = None,
) -> dict[str, Interval]:
    """Compute the metrics of :func:`~twofold.metrics.evaluate` with bootstrap intervals.

    Rows are resampled within ID and within OOD, so that both counts stay as they are.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether the prediction is correct; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence; higher is safer to accept.
    is_id : array-like of bool, shape (n_samples,), optional
        Whether the sample is in-distribution; without it all samples are.
    conf_ood : array-like of shape (n_samples,), optional
        Second confidence, for OOD detection and the joint metrics.
    ood_share : float, optional
        OOD prevalence expected in deployment, for the selective and joint metrics.
    only : iterable of str, optional
        Names of the metrics; by default the standard set of ``evaluate``.
    n : int, default=1000
        Number of resamples.
    level : float, default=0.95
        Confidence level, between 0 and 1.
    seed : int, default=0
        Seed of the resampling.
    done : callable, optional
        Called without arguments after each metric, for a progress bar.

    Returns
    -------
    dict of str to Interval
        Percentile interval of each metric. A metric without a value has NaN for value and limits.

    Examples
    --------
    >>> table = intervals([True, False, True, True], [0.9, 0.2, 0.8, 0.3], only=["aurc"], n=100)
    >>> table["aurc"].low <= table["aurc"].value <= table["aurc"].high
    True
    """
    values = evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood, ood_share=ood_share, only=only)
    arrays = {"correct": np.asarray(correct), "truth": np.asarray(correct), "conf": np.asarray(conf)}
    arrays |= {"conf_id": arrays["conf"]}
    if is_id is not None:
        arrays["is_id"] = np.asarray(is_id)
    if conf_ood is not None:
        arrays["conf_ood"] = np.asarray(conf_ood)
    table = {}
    for name, value in values.items():
        if math.isnan(value):
            table[name] = Interval(value, math.nan, math.nan, level, 0, "percentile", seed)
        else:
            table[name] = _interval(name, arrays, ood_share, n=n, level=level, seed=seed)
        if done is not None:
            done()
    return table


def _interval(name: str, arrays: Mapping[str, Any], ood_share: float | None, **options: Any) -> Interval:
    stratify = arrays.get("is_id")
    if name == "accuracy":
        known = np.ones(len(arrays["correct"]), bool) if stratify is None else stratify
        return _quiet_bootstrap(_accuracy, arrays["correct"], known, stratify=stratify, **options)
    record = info(name.removesuffix("_ood"))
    if name.endswith("_ood"):
        arrays = {"truth": arrays["is_id"], "conf": arrays.get("conf_ood", arrays["conf"])}
    given = {a: arrays[a] for a in record.arrays if a in arrays}
    if ood_share is not None and record.task in ("selective", "joint"):
        options["ood_share"] = ood_share
    positional = [given.pop(a) for a in ("truth", "correct", "conf", "conf_id", "conf_ood") if a in given]
    return _quiet_bootstrap(record.function, *positional, stratify=stratify, **options, **given)


def _quiet_bootstrap(metric: Callable[..., Any], *arrays: Any, **options: Any) -> Interval:
    """Run the bootstrap without warnings; the interval itself counts the resamples that had no value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TwofoldWarning)
        return bootstrap(metric, *arrays, **options)


def _accuracy(correct: Array, is_id: Array) -> float:
    if not is_id.any():
        raise UndefinedMetric("accuracy needs at least one ID sample")
    return float(correct[is_id.astype(bool)].mean())


def joint_table(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike,
    *,
    n: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    done: Callable[[], Any] | None = None,
) -> dict[str, Interval]:
    """Compute the columns of ``JOINT`` for one pair of scores: each score alone, and both together.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether the prediction is correct; False on every OOD sample.
    conf_id : array-like of shape (n_samples,)
        Confidence against misclassification.
    conf_ood : array-like of shape (n_samples,)
        Confidence against OOD inputs.
    is_id : array-like of bool, shape (n_samples,)
        Whether the sample is in-distribution.
    n : int, default=1000
        Number of resamples.
    level : float, default=0.95
        Confidence level, between 0 and 1.
    seed : int, default=0
        Seed of the resampling.
    done : callable, optional
        Called without arguments after each metric, for a progress bar.

    Returns
    -------
    dict of str to Interval
        Interval of each metric, in the order of ``JOINT``.

    Examples
    --------
    >>> table = joint_table([1, 0, 1, 0], [4, 3, 2, 1], [2, 4, 3, 1], [1, 1, 1, 0], n=50)
    >>> list(table)[-2:]
    ['ds_f1', 'ds_aurc']
    """
    return intervals(
        correct, conf_id, is_id=is_id, conf_ood=conf_ood, only=JOINT, n=n, level=level, seed=seed, done=done
    )
