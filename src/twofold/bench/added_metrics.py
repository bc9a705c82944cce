"""Metrics that a benchmark adds on request, beyond rankings: calibration, likelihood, risk at a coverage.

They are asked for by ``metrics`` in the file of a benchmark or study, or by ``bench run --metrics``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from twofold import metrics
from twofold._checks import Array, Mask
from twofold._math import log_odds, softmax
from twofold.errors import InvalidInput, UndefinedMetric, UnknownName
from twofold.metrics import PlattScaling
from twofold.outputs import Outputs
from twofold.scores.chain import scorer

RISK = "risk_at_coverage_"  # followed by the coverage
CALIBRATION = ("ece", "mce")
LIKELIHOOD = ("nll", "brier")
LOG_ODDS = ("msp", "mc_msp")  # scores that are the log-odds of a probability
PROBABILITIES = ("confidnet", "devries", "gambler")  # and those that are a probability


def check_metric(name: str) -> None:
    """Check that a benchmark can measure a metric.

    Parameters
    ----------
    name : str
        A registered metric, or ``risk_at_coverage_`` and a coverage.

    Raises
    ------
    UnknownName
        If there is no such metric.
    InvalidInput
        If the coverage is not a number in (0, 1].

    Examples
    --------
    >>> check_metric("risk_at_coverage_0.95")
    >>> check_metric("risk_at_coverage_95")
    Traceback (most recent call last):
    ...
    twofold.errors.InvalidInput: risk_at_coverage_95: the coverage must be a number above 0 and at most 1
    """
    if name.startswith(RISK):
        _coverage(name)
    elif name not in metrics.names():
        raise UnknownName.of("metric", name, [*metrics.names(), f"{RISK}0.95"])


def _coverage(name: str) -> float:
    """Read the coverage behind the name."""
    try:
        coverage = float(name.removeprefix(RISK))
    except ValueError:
        coverage = math.nan
    if not 0 < coverage <= 1:
        raise InvalidInput(f"{name}: the coverage must be a number above 0 and at most 1")
    return coverage


def is_added(name: str) -> bool:
    """Tell whether a metric is computed here rather than from a ranking.

    Parameters
    ----------
    name : str
        Name of a metric.

    Returns
    -------
    bool
        True for calibration, likelihood and risk at a coverage.
    """
    return name.startswith(RISK) or name in CALIBRATION or name in LIKELIHOOD


def compute_columns(
    wanted: Iterable[str], outputs: Outputs, score: str, conf: Array, val_correct: Mask, val_conf: Array
) -> dict[str, Array]:
    """Compute what the wanted metrics need of each row.

    Parameters
    ----------
    wanted : iterable of str
        Names of metrics; those that need nothing more are ignored.
    outputs : Outputs
        Outputs of the data set.
    score : str
        The score.
    conf : ndarray of shape (n_samples,)
        Its confidences.
    val_correct : ndarray of bool
        Whether each prediction on the validation data is correct.
    val_conf : ndarray
        Confidences on the validation data.

    Returns
    -------
    dict of str to ndarray of shape (n_samples,)
        ``prob``: probability of being correct, the score itself where it is one, else scaled on validation data as
        Platt does. ``nll`` and ``brier``: the losses of each row under the softmax of the logits, NaN on rows of no
        known class.
    """
    names = set(wanted)
    columns = {}
    if names & set(CALIBRATION):
        columns["prob"] = _probability(score, conf, val_correct, val_conf)
    if names & set(LIKELIHOOD):
        columns |= _class_losses(outputs)
    return columns


def _probability(score: str, conf: Array, val_correct: Mask, val_conf: Array) -> Array:
    steps = scorer(score).steps
    name = steps[-1].info.name
    is_plain = len(steps) == 1
    if is_plain and name in LOG_ODDS:
        with np.errstate(over="ignore"):
            plain: Array = 1.0 / (1.0 + np.exp(-conf))
        return plain
    if is_plain and name in PROBABILITIES:
        return np.clip(conf, 0.0, 1.0)
    return PlattScaling.fit(val_correct, val_conf).apply(conf)


def _class_losses(outputs: Outputs) -> dict[str, Array]:
    """Compute the negative log-likelihood and the Brier score of each row."""
    is_id = np.asarray(outputs.is_id)
    likelihood = np.full(len(outputs), np.nan)
    brier = np.full(len(outputs), np.nan)
    if is_id.any():
        logits = np.asarray(outputs.logits, dtype=np.float64)[is_id]
        labels = np.asarray(outputs.labels)[is_id]
        likelihood[is_id] = np.logaddexp(0.0, -log_odds(logits, labels))
        distance = softmax(logits)
        distance[np.arange(len(labels)), labels] -= 1.0
        brier[is_id] = (distance * distance).sum(axis=1)
    return {"nll": likelihood, "brier": brier}


def added_value(name: str, correct: Mask, conf: Array, columns: Mapping[str, Array]) -> float:
    """Compute a metric that :func:`is_added` names.

    Parameters
    ----------
    name : str
        The metric.
    correct : ndarray of bool, shape (n_samples,)
        Whether each prediction is correct.
    conf : ndarray of shape (n_samples,)
        Confidence of each row.
    columns : mapping of str to ndarray
        What :func:`compute_columns` computed, for the same rows.

    Returns
    -------
    float
        The value; NaN where it has none, such as a likelihood of rows of no known class.

    Examples
    --------
    >>> added_value("risk_at_coverage_0.5", np.array([True, True, False]), np.array([0.9, 0.4, 0.3]), {})
    0.0
    """
    if name.startswith(RISK):
        return metrics.risk_at_coverage(correct, conf, _coverage(name))
    if name in LIKELIHOOD:
        return float(columns[name].mean())
    try:
        return metrics.info(name).value(correct, columns["prob"])
    except UndefinedMetric:
        return math.nan
