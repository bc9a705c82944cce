"""Values of a view and their bootstrap replicates, many metrics from one sort.

A resample draws each data set to its own size, by its name: every view, metric and score of a benchmark sees the same
draws of the known test set, so differences are paired, and the replicates of an average are the averages of
replicates. Rows that a protocol removes are removed after the draw, as in FD-Shifts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from twofold import metrics, stats
from twofold._checks import Array
from twofold.bench.added_metrics import added_value, is_added
from twofold.bench.protocols import MetricInputs, ProtocolView, ScoredSet
from twofold.metrics.evaluate import EvaluatedSamples, ResampledMetrics

Weights = npt.NDArray[np.uint8]
Values = dict[str, Array]  # by metric: the value, then its replicates


def values(
    view: ProtocolView,
    scored: Mapping[str, ScoredSet],
    names: Iterable[str],
    *,
    n: int,
    seed: int,
    printed: Mapping[str, ScoredSet] | None = None,
) -> Values:
    """Compute each metric on the rows of a view, then on resamples of them.

    Parameters
    ----------
    view : ProtocolView
        Which rows enter.
    scored : mapping of str to ScoredSet
        Scored data sets by name.
    names : iterable of str
        Names of the metrics.
    n : int
        Number of resamples.
    seed : int
        Seed of the resampling; the draws of a data set depend on its name, its size and the seed alone.
    printed : mapping of str to ScoredSet, optional
        The same with confidences on the scale that papers print, for published forms of metrics, which depend on it. By
        default that of ``scored``.

    Returns
    -------
    dict of str to ndarray of shape (n + 1,)
        The value of each metric, then its replicates; NaN where it has no value, and for replicates of published forms.

    Raises
    ------
    InvalidInput
        If a data set of the view is missing or contradicts its role.

    Examples
    --------
    >>> test = ScoredSet([True, True, False], [True] * 3, [0.9, 0.4, 0.3])
    >>> view = ProtocolView("test", "iid", ("test",), (), "known", ("aurc",))
    >>> values(view, {"test": test}, ["aurc", "accuracy"], n=0, seed=0)
    {'aurc': array([0.11111111]), 'accuracy': array([0.66666667])}
    """
    wanted = list(names)
    inputs = view.collect(scored)
    added = [name for name in wanted if is_added(name)]
    forms = [name for name in wanted if metrics.is_published_form(name)]  # those have no replicates
    drawn = [name for name in wanted if name not in added and name not in forms]
    point = dict(_evaluate(inputs, drawn))
    if forms:
        point |= _evaluate(view.collect(printed or scored), forms)
    found = {name: np.full(n + 1, math.nan) for name in wanted}
    for name in (*drawn, *forms):
        found[name][0] = point[name]
    for name in added:
        found[name][0] = added_value(name, inputs.correct, inputs.conf, inputs.columns)
    if not n:
        return found
    samples = EvaluatedSamples(inputs.correct, inputs.conf, inputs.is_id, inputs.conf_ood)
    resampled = ResampledMetrics(samples, drawn, point)
    kept = view.row_mask(scored)
    weights_of_sets = [_draw_weights(name, len(scored[name]), n, seed) for name in view.sets]
    for i in range(n):
        weights = np.concatenate([own[i] for own in weights_of_sets])[kept]
        for name, value in resampled.values(weights).items():
            found[name][i + 1] = value
        if added:
            rows = np.repeat(np.arange(len(weights)), weights)
            columns = {name: column[rows] for name, column in inputs.columns.items()}
            for name in added:
                found[name][i + 1] = added_value(name, inputs.correct[rows], inputs.conf[rows], columns)
    return found


def _evaluate(inputs: MetricInputs, names: Sequence[str]) -> Mapping[str, float]:
    return metrics.evaluate(inputs.correct, inputs.conf, is_id=inputs.is_id, conf_ood=inputs.conf_ood, only=names)


def average_values(members: Sequence[Values]) -> Values:
    """Average the values of views, and their replicates, without weights.

    Parameters
    ----------
    members : sequence of dict of str to ndarray
        Values and replicates of each view by metric.

    Returns
    -------
    dict of str to ndarray
        Means of the metrics that all views have.

    Examples
    --------
    >>> average_values([{"f1": np.array([0.5])}, {"f1": np.array([1.0]), "aurc": np.array([0.1])}])
    {'f1': array([0.75])}
    """
    means = {}
    for name in members[0]:
        arrays = [member[name] for member in members if name in member]
        if len(arrays) == len(members):
            means[name] = np.mean(arrays, axis=0)
    return means


@lru_cache(maxsize=64)
def _draw_weights(name: str, rows: int, n: int, seed: int) -> Weights:
    """Draw how often each row of a data set occurs in each of ``n`` resamples, seeded by the name of the set."""
    return stats.draws(rows, n, seed=(seed, zlib.crc32(name.encode())))
