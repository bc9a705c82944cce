"""Values of a view and their bootstrap replicates, many metrics from one sort.

A resample draws each data set to its own size, by its name: every view, metric and score of a benchmark sees the same
draws of the known test set, so differences are paired, and the replicates of an average are the averages of
replicates. Rows that a protocol removes are removed after the draw, as in FD-Shifts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from twofold import metrics, stats
from twofold._checks import Array
from twofold.bench.protocols import Average, ProtocolView, ScoredSet
from twofold.metrics.evaluate import EvaluatedSamples, ResampledMetrics

Weights = npt.NDArray[np.uint8]
Values = dict[str, Array]  # by metric: the value, then its replicates


def values(view: ProtocolView, scored: Mapping[str, ScoredSet], names: Iterable[str], *, n: int, seed: int) -> Values:
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

    Returns
    -------
    dict of str to ndarray of shape (n + 1,)
        The value of each metric, then its replicates; NaN where it has no value.

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
    table = view.collect(scored)
    point = metrics.evaluate(table.correct, table.conf, is_id=table.is_id, conf_ood=table.conf_ood, only=wanted)
    found = {name: np.full(n + 1, math.nan) for name in wanted}
    for name in wanted:
        found[name][0] = point[name]
    if not n:
        return found
    kept = view.row_mask(scored)
    draws = [_draws(name, len(scored[name]), n, seed) for name in view.sets]
    samples = EvaluatedSamples(table.correct, table.conf, table.is_id, table.conf_ood)
    resampled = ResampledMetrics(samples, wanted, point)
    for i in range(n):
        weights = np.concatenate([drawn[i] for drawn in draws])[kept]
        for name, value in resampled.values(weights).items():
            found[name][i + 1] = value
    return found


def averaged(average: Average, found: Mapping[str, Values]) -> Values:
    """Average the values of views, and their replicates, without weights.

    Parameters
    ----------
    average : Average
        Which views to average.
    found : mapping of str to dict of str to ndarray
        Values and replicates by view.

    Returns
    -------
    dict of str to ndarray
        Means of the metrics that all views have.
    """
    members = [found[shift] for shift in average.of]
    shared = [name for name in members[0] if all(name in one for one in members)]
    return {name: np.mean([one[name] for one in members], axis=0) for name in shared}


@lru_cache(maxsize=64)
def _draws(name: str, rows: int, n: int, seed: int) -> Weights:
    """Draw how often each row of a data set occurs in each of ``n`` resamples, seeded by the name of the set."""
    return stats.draws(rows, n, seed=(seed, zlib.crc32(name.encode())))
