"""Compute bootstrap intervals and paired comparisons for any metric.

A registered metric carries a weighted form: it sorts once, and a resample is then only a weight per row. Any other
function of arrays is called again on each resample. Draws depend on the seed and the replicate alone, so every metric
and every method sees the same resamples, on any number of threads.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import AnyArray, Array, ArrayLike
from twofold._notebook import card
from twofold.errors import InvalidInput, RejectedNaN, TwofoldWarning, UndefinedMetric

Weights = npt.NDArray[np.uint8]  # how often each row is drawn
Value = Callable[[Weights], float]
FloatOrArray = TypeVar("FloatOrArray", float, Array)

_GROUPS = 200  # of rows, left out in turn by the jackknife of BCa


@dataclass(frozen=True, eq=False)
class Interval:
    """Hold a value with its bootstrap interval; printing it shows ``value [low, high]``.

    Parameters
    ----------
    value : float
        The metric on the whole sample, or its difference between two methods.
    low : float
        Lower end of the interval.
    high : float
        Upper end of the interval.
    level : float
        Confidence level.
    n : int
        Number of resamples.
    kind : {"percentile", "bca"}
        How the interval was computed.
    seed : int
        The seed that repeats the resamples.
    p : float, optional
        Two-sided p-value of a difference from zero; None unless two methods were compared.
    undefined : int, default=0
        Number of resamples on which the metric has no value, which were left out.
    replicates : array of shape (n,)
        The metric on every resample, NaN where it is undefined.

    Examples
    --------
    >>> print(Interval(0.25, 0.2, 0.3, level=0.95, n=1000, kind="percentile", seed=0))
    0.25 [0.2, 0.3]
    """

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
        text = f"{self.value:.5g} [{self.low:.5g}, {self.high:.5g}]"
        if self.p is not None:
            text += f", p = {self.p:.3g}"
        return text

    def _repr_html_(self) -> str:
        how = f"{self.level:.0%} {self.kind} interval of {self.n:,} resamples"
        if self.undefined:
            how += f", {self.undefined:,} of them undefined"
        return card(str(self), {"": how})


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
    r"""Estimate a confidence interval of a metric, or of its difference between two methods, by resampling rows.

    Rows are drawn with replacement, all arrays together. For a registered metric they are sorted once and a resample is
    only a weight per row, so that 1,000 resamples are cheap.

    Parameters
    ----------
    metric : callable
        A registered metric such as :func:`twofold.metrics.aurc`, or any function of the arrays that returns a float or
        an object with a ``value``, such as an operating point.
    *arrays : array-like of shape (n_samples, ...)
        What the metric takes, truth first; all are resampled together, row by row.
    n : int, default=1000
        Number of resamples, at least 10. Use more for p-values: the smallest possible one is 2 / (n + 1).
    level : float, default=0.95
        Confidence level, between 0 and 1 (both excluded).
    seed : int or numpy.random.Generator, default=0
        Seed of the resamples. The same seed gives the same resamples for every metric and method.
    kind : {"percentile", "bca"}, default="percentile"
        ``percentile`` takes quantiles of the replicates. ``bca`` corrects them for bias and skewness.
    stratify : array-like of shape (n_samples,), optional
        Groups, such as ``is_id``, whose sizes every resample keeps.
    versus : sequence of array-like, optional
        The arrays of a second method. The interval is then that of ``metric(*arrays) - metric(*versus)`` on the same
        resamples, with a p-value.
    **named
        Further arguments of the metric by name. Arrays with ``n_samples`` rows are resampled too; other values are
        settings.

    Returns
    -------
    Interval
        ``value`` on the whole sample, ``low`` and ``high``; with ``versus`` also ``p``.

    Raises
    ------
    InvalidInput
        If there is no array, arrays differ in length, or a setting is out of range; also whatever the metric itself
        rejects.
    UndefinedMetric
        If the metric is undefined on the whole sample, or on all resamples.

    Notes
    -----
    The p-value of a difference d, from its replicates :math:`d^*`, is

    .. math:: p = 2 \min\left(\frac{1 + \#\{d^* \le 0\}}{n + 1}, \frac{1 + \#\{d^* \ge 0\}}{n + 1}\right)

    capped at 1. The acceleration of ``bca`` comes from a jackknife over at most 200 groups of rows. Resamples on which
    the metric is undefined are left out and counted in ``undefined``, with a warning; n in the formula is then the
    number that remain.

    References
    ----------
    Efron & Tibshirani, An Introduction to the Bootstrap, 1993; Efron, JASA 1987 (BCa).

    Examples
    --------
    >>> from twofold.metrics import aurc
    >>> correct, conf = [True, True, False, True] * 50, np.linspace(1, 0, 200)
    >>> interval = bootstrap(aurc, correct, conf, n=200)
    >>> bool(interval.low < interval.value < interval.high)
    True
    >>> bootstrap(aurc, correct, conf, versus=(correct, conf), n=200).p
    1.0
    """
    n = _checks.whole(n, "n", 10)
    level = _checks.number(level, "level", 0.0, 1.0, open_low=True, open_high=True)
    _checks.choice(kind, "kind", ("percentile", "bca"))
    if not arrays:
        raise InvalidInput("bootstrap needs at least one array after the metric, such as correct and conf")
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(2**63))
    first = _check_arrays(arrays, "positional")
    rows = len(first[0])
    columns, settings = _split_named(named, rows)
    call = _MetricCall(metric, columns, settings)
    methods = [first]
    if versus is not None:
        methods.append(_check_arrays(versus, "versus", rows))
    strata = _strata(stratify, rows)
    value = _difference([call.value(method) for method in methods])
    weighted = [call.weighted(method) for method in methods]
    replicates = _difference([_replicates(of, *strata, n, seed) for of in weighted])
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
        tails = _corrected_tails(tails, value, defined, _jackknife(weighted, rows, seed))
    low, high = np.quantile(defined, tails)
    p = None if versus is None else _p_value(defined)
    return Interval(value, float(low), float(high), level, n, kind, int(seed), p, undefined, replicates)


def _difference(values: Sequence[FloatOrArray]) -> FloatOrArray:
    """Return the only value, or the first minus the second."""
    if len(values) == 1:
        return values[0]
    return values[0] - values[1]


def _check_arrays(arrays: Sequence[ArrayLike], name: str, rows: int | None = None) -> list[AnyArray]:
    """Validate the arrays of one method: all must have as many rows as the first one."""
    checked: list[AnyArray] = []
    for place, array in enumerate(arrays):
        checked.append(_checks.plain(array, f"{name} array {place}"))
        if rows is None:
            rows = len(checked[0])
        if len(checked[-1]) != rows:
            raise InvalidInput(f"a {name} array has {len(checked[-1])} rows but the first array has {rows}")
    return checked


def _split_named(named: Mapping[str, Any], rows: int) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Split named values into arrays that are resampled and settings that are not."""
    columns, settings = {}, {}
    for name, value in named.items():
        if value is None or isinstance(value, str | bytes | bool | int | float) or callable(value):
            settings[name] = value
            continue
        array = _checks.plain(value, name)
        if array.ndim and len(array) == rows:
            columns[name] = array
        elif array.ndim and name in ("is_id", "loss", "conf_ood", "conf_id", "labels"):
            raise InvalidInput(f"{name} has {len(array)} rows but the first array has {rows}")
        else:
            settings[name] = value
    return columns, settings


@dataclass(frozen=True, eq=False)
class _MetricCall:
    """Compute a metric with its named arrays and settings on the positional arrays of a method."""

    metric: Callable[..., Any]
    columns: dict[str, AnyArray]
    settings: dict[str, Any]

    def value(self, arrays: Sequence[AnyArray]) -> float:
        """Compute the metric on all rows."""
        return _as_float(self.metric(*arrays, **self.columns, **self.settings))

    def weighted(self, arrays: Sequence[AnyArray]) -> Value:
        """Express the metric as a function of row weights: its weighted form, or by calling it on the drawn rows."""
        weighted = getattr(self.metric, "weighted", None)
        if weighted is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RejectedNaN)  # said once, with the point estimate
                value: Value | None = weighted(*arrays, **self.columns, **self.settings)
            if value is not None:
                return value

        def on_drawn_rows(weights: Weights) -> float:
            rows = np.repeat(np.arange(len(weights)), weights)
            picked = [array[rows] for array in arrays]
            named = {name: array[rows] for name, array in self.columns.items()}
            return _as_float(self.metric(*picked, **named, **self.settings))

        return on_drawn_rows


def _as_float(result: Any) -> float:
    return float(getattr(result, "value", result))


def _strata(stratify: ArrayLike | None, rows: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return the rows in stratum order, and where each stratum starts."""
    if stratify is None:
        return np.arange(rows, dtype=np.int32), np.array([0, rows])
    group = np.unique(_checks.plain(stratify, "stratify"), return_inverse=True)[1]
    if group.shape != (rows,):
        raise InvalidInput(f"stratify has shape {group.shape} but the arrays have {rows} rows")
    members = np.argsort(group, kind="stable").astype(np.int32)
    return members, np.concatenate(([0], np.cumsum(np.bincount(group))))


def _replicates(
    value: Value, members: npt.NDArray[np.int32], starts: npt.NDArray[np.int64], n: int, seed: int
) -> Array:
    """Compute the value on n resamples, NaN where it is undefined; a metric may bring a compiled loop over them."""
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
    """Draw how often each row occurs in each of ``n`` resamples: the resamples that :func:`bootstrap` uses.

    Parameters
    ----------
    rows : int
        Number of rows, which is also the size of each resample.
    n : int
        Number of resamples.
    seed : int or tuple of int, default=0
        Seed of the resamples.

    Returns
    -------
    array of uint8, shape (n, rows)
        Counts; every row of the result sums to ``rows``.

    Raises
    ------
    InvalidInput
        If ``rows`` or ``n`` is not a whole number of at least 1.

    Examples
    --------
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
    """Tabulate the distribution function of Poisson(1) times 2^32, and the count where 12 leading bits decide it."""
    from twofold._kernels import UNCLEAR

    exact = np.cumsum([math.exp(-1.0) / math.factorial(k) for k in range(20)]) * 2.0**32
    steps = exact[exact < 2.0**32 - 1].astype(np.uint64)
    lowest = np.arange(4096, dtype=np.uint64) << np.uint64(20)
    low = np.searchsorted(steps, lowest, side="right")
    high = np.searchsorted(steps, lowest + np.uint64(2**20 - 1), side="right")
    return steps, np.where(low == high, low, UNCLEAR).astype(np.uint8)


def _jackknife(methods: Sequence[Value], rows: int, seed: int) -> Array:
    """Compute the value, or difference, without each of at most ``_GROUPS`` random groups of rows."""
    groups = min(rows, _GROUPS)
    group = np.random.default_rng(seed).permutation(rows) % groups
    values = []
    for left_out in range(groups):
        weights = (group != left_out).astype(np.uint8)
        with suppress(UndefinedMetric):
            values.append(_difference([method(weights) for method in methods]))
    return np.array(values)


def _corrected_tails(tails: Array, value: float, replicates: Array, jackknife: Array) -> Array:
    """Compute the quantile levels of the BCa interval."""
    from scipy.special import ndtr, ndtri

    below = (np.sum(replicates < value) + 0.5 * np.sum(replicates == value)) / len(replicates)
    below = np.clip(below, 0.5 / len(replicates), 1.0 - 0.5 / len(replicates))
    bias = ndtri(below)
    pull = np.zeros(1)
    if len(jackknife):
        pull = jackknife.mean() - jackknife
    spread = float((pull**2).sum())
    acceleration = float((pull**3).sum()) / (6.0 * spread**1.5) if spread > 0 else 0.0
    z = bias + ndtri(tails)
    return np.asarray(ndtr(bias + z / (1.0 - acceleration * z)))


def _p_value(differences: Array) -> float:
    least = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2.0 * (1 + least) / (len(differences) + 1))
