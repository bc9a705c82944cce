"""Bootstrap intervals and paired comparisons for any metric.

A registered metric carries a weighted form: it sorts once, and a resample is then only a weight per row. Any other
function of arrays is called again on each resample. Draws depend on the seed and the replicate alone, so every metric
and every method sees the same resamples, on any number of threads.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike
from twofold.errors import InvalidInput, RejectedNaN, TwofoldWarning, UndefinedMetric

Weights = npt.NDArray[np.uint8]  # how often each row is drawn
Value = Callable[[Weights], float]

_GROUPS = 200  # of rows, left out in turn by the jackknife of BCa


@dataclass(frozen=True, eq=False)
class Interval:
    """A value with its bootstrap interval; ``p`` is the two-sided p-value of a difference from zero."""

    value: float
    low: float
    high: float
    level: float
    n: int
    kind: str
    seed: int
    p: float | None = None
    undefined: int = 0  # resamples on which the metric has no value, left out
    replicates: Array = field(default_factory=lambda: np.empty(0), repr=False)

    def __str__(self) -> str:
        p = "" if self.p is None else f", p = {self.p:.3g}"
        return f"{self.value:.5g} [{self.low:.5g}, {self.high:.5g}]{p}"


def bootstrap(
    metric: Callable[..., Any],
    *arrays: ArrayLike,
    n: int = 1000,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
    kind: Literal["percentile", "bca"] = "percentile",
    stratify: ArrayLike | None = None,
    versus: Sequence[ArrayLike] | None = None,
    **named: Any,
) -> Interval:
    r"""Bootstrap interval of a metric, or of the difference of a metric between two methods.

    ``arrays``, and named arrays of the same length, are resampled together, row by row; other named values are
    settings of the metric. ``versus`` holds the arrays of a second method: the interval is then that of
    ``metric(*arrays) - metric(*versus)`` on the same resamples, with

    .. math:: p = 2 \min\left(\frac{1 + \#\{d^* \le 0\}}{n + 1}, \frac{1 + \#\{d^* \ge 0\}}{n + 1}\right)

    capped at 1. ``stratify`` (an array of groups, such as ``is_id``) keeps the size of each group. ``percentile``
    intervals are the quantiles of the replicates; ``bca`` corrects them for bias and skewness, with the acceleration
    from a jackknife over at most 200 groups of rows. Resamples on which the metric is undefined are left out and
    counted, with a warning. Functions that return an operating point are judged by its ``value``.

    References: Efron & Tibshirani, An Introduction to the Bootstrap, 1993; Efron, JASA 1987 (BCa).

    >>> from twofold.metrics import aurc
    >>> correct, conf = [True, True, False, True] * 50, np.linspace(1, 0, 200)
    >>> interval = bootstrap(aurc, correct, conf, n=200)
    >>> bool(interval.low < interval.value < interval.high)
    True
    """
    n = _checks.whole(n, "n", 10)
    level = _checks.number(level, "level", 0.0, 1.0, open_low=True, open_high=True)
    _checks.choice(kind, "kind", ("percentile", "bca"))
    if not arrays:
        raise InvalidInput("bootstrap needs at least one array after the metric, such as correct and conf")
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**63))
    methods = [_entered(arrays, "positional"), *([] if versus is None else [_entered(versus, "versus")])]
    rows = len(methods[0][0])
    columns, settings = _named(named, rows)
    for number, group in enumerate(methods):
        for array in group:
            if len(array) != rows:
                where = "versus" if number else "positional"
                raise InvalidInput(f"a {where} array has {len(array)} rows but the first array has {rows}")
    strata = _strata(stratify, rows)
    value = _point(metric, methods, columns, settings)
    values = [_value(metric, group, columns, settings) for group in methods]

    def statistic(weights: Weights) -> float:
        try:
            first, *second = (of(weights) for of in values)
        except UndefinedMetric:
            return math.nan
        return first - second[0] if second else first

    parts = [_replicates(of, *strata, n, seed) for of in values]
    replicates = parts[0] - parts[1] if versus is not None else parts[0]
    undefined = int(np.isnan(replicates).sum())
    if undefined:
        warnings.warn(
            f"the metric is undefined on {undefined} of {n} resamples, which are left out; "
            "stratify by the class that went missing",
            TwofoldWarning,
            stacklevel=2,
        )
    defined = replicates[~np.isnan(replicates)]
    if not len(defined):
        raise UndefinedMetric(f"the metric is undefined on all {n} resamples")
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    if kind == "bca":
        tails = _corrected(tails, value, defined, _jackknife(statistic, rows, seed))
    low, high = np.quantile(defined, tails)
    p = None if versus is None else _p_value(defined)
    return Interval(value, float(low), float(high), level, n, kind, int(seed), p, undefined, replicates)


def _entered(arrays: Sequence[ArrayLike], name: str) -> list[npt.NDArray[Any]]:
    return [_checks.plain(a, f"{name} array {i}") for i, a in enumerate(arrays)]


def _named(named: dict[str, Any], rows: int) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Split named values into arrays that are resampled and settings that are not."""
    columns, settings = {}, {}
    for name, given in named.items():
        if given is None or isinstance(given, str | bytes | bool | int | float) or callable(given):
            settings[name] = given
            continue
        array = _checks.plain(given, name)
        if array.ndim and len(array) == rows:
            columns[name] = array
        elif array.ndim and name in ("is_id", "loss", "conf_ood", "conf_id", "labels"):
            raise InvalidInput(f"{name} has {len(array)} rows but the first array has {rows}")
        else:
            settings[name] = given
    return columns, settings


def _strata(stratify: ArrayLike | None, rows: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Rows in stratum order, and where each stratum starts."""
    if stratify is None:
        return np.arange(rows, dtype=np.int32), np.array([0, rows])
    group = np.unique(_checks.plain(stratify, "stratify"), return_inverse=True)[1]
    if group.shape != (rows,):
        raise InvalidInput(f"stratify has shape {group.shape} but the arrays have {rows} rows")
    members = np.argsort(group, kind="stable").astype(np.int32)
    return members, np.concatenate(([0], np.cumsum(np.bincount(group))))


def _number(result: Any) -> float:
    return float(getattr(result, "value", result))


def _point(
    metric: Callable[..., Any],
    methods: list[list[npt.NDArray[Any]]],
    columns: dict[str, npt.NDArray[Any]],
    settings: dict[str, Any],
) -> float:
    first, *second = (_number(metric(*group, **columns, **settings)) for group in methods)
    return first - second[0] if second else first


def _value(
    metric: Callable[..., Any],
    arrays: list[npt.NDArray[Any]],
    columns: dict[str, npt.NDArray[Any]],
    settings: dict[str, Any],
) -> Value:
    """The metric as a function of row weights: its weighted form, or by calling it on the drawn rows."""
    weighted = getattr(metric, "weighted", None)
    if weighted is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RejectedNaN)  # said once, with the point estimate
            value: Value | None = weighted(*arrays, **columns, **settings)
        if value is not None:
            return value

    def on_drawn_rows(weights: Weights) -> float:
        drawn = np.repeat(np.arange(len(weights)), weights)
        picked = {name: array[drawn] for name, array in columns.items()}
        return _number(metric(*(array[drawn] for array in arrays), **picked, **settings))

    return on_drawn_rows


def _replicates(
    value: Value, members: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], n: int, seed: int
) -> Array:
    """The value on n resamples, NaN where it is undefined; a metric may bring a compiled loop over resamples."""
    from twofold._kernels import resample

    keys = np.random.SeedSequence(seed).generate_state(n, np.uint64)
    draw = members, starts, *_poisson()
    rows = len(members)

    def some(part: npt.NDArray[np.uint64]) -> Array:
        room = np.empty(rows + -rows % 4, np.uint8)  # the kernel writes four rows at a time
        compiled = getattr(value, "replicates", None)
        if compiled is not None:
            return np.asarray(compiled(part, draw, room))
        values = np.full(len(part), math.nan)
        for i, key in enumerate(part):
            resample(key, *draw, room)
            with suppress(UndefinedMetric):
                values[i] = value(room[:rows])
        return values

    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", RejectedNaN)
        return np.concatenate(list(pool.map(some, np.array_split(keys, min(n, 4 * workers)))))


def draws(rows: int, n: int, *, seed: int | tuple[int, ...] = 0) -> Weights:
    """How often each of ``rows`` comes in each of ``n`` resamples of that size: what :func:`bootstrap` draws.

    >>> draws(5, 2).sum(axis=1)
    array([5, 5], dtype=uint64)
    """
    from twofold._kernels import resample

    rows, n = _checks.whole(rows, "rows", 1), _checks.whole(n, "n", 1)
    keys = np.random.SeedSequence(seed).generate_state(n, np.uint64)
    draw = *_strata(None, rows), *_poisson()
    result = np.empty((n, rows + -rows % 4), np.uint8)
    for i, key in enumerate(keys):
        resample(key, *draw, result[i])
    return result[:, :rows]


def _poisson() -> tuple[npt.NDArray[np.uint64], Weights]:
    """Distribution function of Poisson(1) times 2^32, and the count by the 12 leading bits where they decide it."""
    from twofold._kernels import UNCLEAR

    exact = np.cumsum([math.exp(-1.0) / math.factorial(k) for k in range(20)]) * 2.0**32
    steps = exact[exact < 2.0**32 - 1].astype(np.uint64)
    lowest = np.arange(4096, dtype=np.uint64) << np.uint64(20)
    low = np.searchsorted(steps, lowest, side="right")
    high = np.searchsorted(steps, lowest + np.uint64(2**20 - 1), side="right")
    return steps, np.where(low == high, low, UNCLEAR).astype(np.uint8)


def _jackknife(statistic: Value, rows: int, seed: int) -> Array:
    """The statistic without each of at most ``_GROUPS`` random groups of rows."""
    groups = min(rows, _GROUPS)
    group = np.random.default_rng(seed).permutation(rows) % groups
    values = np.array([statistic((group != g).astype(np.uint8)) for g in range(groups)])
    return values[~np.isnan(values)]


def _corrected(tails: Array, value: float, replicates: Array, jackknife: Array) -> Array:
    """Quantile levels of the BCa interval."""
    from scipy.special import ndtr, ndtri

    below = (np.sum(replicates < value) + 0.5 * np.sum(replicates == value)) / len(replicates)
    below = np.clip(below, 0.5 / len(replicates), 1.0 - 0.5 / len(replicates))
    bias = ndtri(below)
    pull = jackknife.mean() - jackknife if len(jackknife) else np.zeros(1)
    spread = float((pull**2).sum())
    acceleration = float((pull**3).sum()) / (6.0 * spread**1.5) if spread > 0 else 0.0
    z = bias + ndtri(tails)
    return np.asarray(ndtr(bias + z / (1.0 - acceleration * z)))


def _p_value(differences: Array) -> float:
    least = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2.0 * (1 + least) / (len(differences) + 1))
