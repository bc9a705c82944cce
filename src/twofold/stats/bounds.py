"""Compute confidence bounds for risks, and select a threshold whose risk is guaranteed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._checks import Array, ArrayLike, choice, confidence, mask, number, plain, same_rows
from twofold.errors import InvalidInput


@dataclass(frozen=True)
class Selection:
    """Hold the threshold that :func:`sgr` selected: accept ``conf >= threshold``. Check ``feasible`` first.

    Parameters
    ----------
    threshold : float
        The lowest confidence to accept.
    coverage : float
        Share of the calibration samples that is accepted.
    risk : float
        Error rate among the accepted calibration samples.
    bound : float
        Upper confidence bound of the true risk.
    feasible : bool
        Whether a threshold with the requested guarantee was found.
    accepted : int
        Number of accepted calibration samples.
    errors : int
        Number of errors among them.
    looks : int
        Number of parts that ``delta`` was divided into, so that
        ``bound == clopper_pearson(errors, accepted, delta=delta / looks)``.

    Notes
    -----
    If nothing is feasible, the threshold is ``inf``, coverage is 0, risk is NaN, and ``bound`` is the lowest bound
    seen.

    Examples
    --------
    >>> sgr([True, False], [0.9, 0.8], risk=0.1, delta=0.05).feasible
    False
    """

    threshold: float
    coverage: float
    risk: float
    bound: float
    feasible: bool
    accepted: int
    errors: int
    looks: int


Bound: TypeAlias = Any  # a float for plain numbers, else an array


def clopper_pearson(
    errors: ArrayLike, n: ArrayLike, *, delta: float, side: Literal["upper", "lower", "two"] = "upper"
) -> Bound:
    r"""Compute exact bounds of an error rate from the number of errors (binomial tail inversion).

    .. math:: b_\text{upper} = B^{-1}(1 - \delta;\, e + 1,\, n - e), \quad
              b_\text{lower} = B^{-1}(\delta;\, e,\, n - e + 1)

    with :math:`B^{-1}` the Beta quantile: the upper bound solves :math:`P(\mathrm{Bin}(n, b) \le e) = \delta`.

    Parameters
    ----------
    errors : int or array-like of int
        Number of errors, from 0 to ``n``.
    n : int or array-like of int
        Number of independent samples; broadcast against ``errors``.
    delta : float
        Chance that the bound is allowed to fail, between 0 and 1 (both excluded).
    side : {"upper", "lower", "two"}, default="upper"
        Which bound to compute; ``"two"`` gives both, each at ``delta / 2``.

    Returns
    -------
    float or array, or a tuple of two
        The bound; with ``side="two"`` the lower and the upper one. Plain numbers give floats.

    Raises
    ------
    InvalidInput
        If counts are not whole numbers of at least 0, ``errors`` exceeds ``n``, shapes do not broadcast, or a setting
        is out of range.

    Notes
    -----
    The upper bound is 1 if e = n (also for n = 0), and the lower bound is 0 if e = 0.

    References
    ----------
    Clopper & Pearson, Biometrika 26, 1934.

    Examples
    --------
    >>> round(clopper_pearson(0, 59, delta=0.05), 4), round(clopper_pearson(3, 100, delta=0.05), 4)
    (0.0495, 0.0757)
    >>> [round(b, 4) for b in clopper_pearson(3, 100, delta=0.05, side="two")]
    [0.0062, 0.0852]
    """
    choice(side, "side", ("upper", "lower", "two"))
    delta = number(delta, "delta", 0, 1, open_low=True, open_high=True)
    e, m = _broadcast(errors=_counts(errors, "errors"), n=_counts(n, "n"))
    if (e > m).any():
        raise InvalidInput(f"errors must be at most n, got {e[e > m][0]:g} errors among {m[e > m][0]:g}")
    if side == "two":
        return _as_bound(_lower(e, m, delta / 2)), _as_bound(_upper(e, m, delta / 2))
    if side == "upper":
        return _as_bound(_upper(e, m, delta))
    return _as_bound(_lower(e, m, delta))


def hoeffding_bentkus(mean_loss: ArrayLike, n: ArrayLike, *, delta: float) -> Bound:
    r"""Compute an upper bound of the mean of losses in [0, 1] from the mean of ``n`` independent ones.

    .. math:: b = \sup\{r : p_\mathrm{HB}(r) > \delta\}

    with the p-value of :func:`hoeffding_bentkus_p`.

    Parameters
    ----------
    mean_loss : float or array-like of float
        Observed mean loss, in [0, 1].
    n : int or array-like of int
        Number of independent losses, at least 1; broadcast against ``mean_loss``.
    delta : float
        Chance that the bound is allowed to fail, between 0 and 1 (both excluded).

    Returns
    -------
    float or array
        The bound, in [0, 1]. Plain numbers give a float.

    Raises
    ------
    InvalidInput
        If a mean loss is outside [0, 1], ``n`` is not a whole number of at least 1, shapes do not broadcast, or
        ``delta`` is out of range.

    Notes
    -----
    Both parts of the p-value fall with r, so b is the smaller of the root of :math:`n\, h_1(\hat R, r) = \ln(1/\delta)`
    (found by bisection) and the Beta quantile at :math:`1 - \delta/e`. It is 1 if the mean is 1. For 0/1 losses
    :func:`clopper_pearson` is exact and tighter.

    References
    ----------
    Bates et al., J. ACM 68, 2021, arXiv:2101.02703.

    Examples
    --------
    >>> round(hoeffding_bentkus(0.05, 1000, delta=0.1), 4)
    0.064
    """
    delta = number(delta, "delta", 0, 1, open_low=True, open_high=True)
    loss, m = _mean_losses(mean_loss, n)
    low, high = loss.copy(), np.ones_like(loss)
    for _ in range(64):
        middle = (low + high) / 2
        above = m * _relative_entropy(loss, middle) >= -math.log(delta)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    bentkus = _upper(_ceil(loss * m), m, delta / math.e)
    return _as_bound(np.where(loss == 1.0, 1.0, np.minimum(high, bentkus)))


def hoeffding_bentkus_p(mean_loss: ArrayLike, n: ArrayLike, *, risk: float) -> Bound:
    r"""Compute the p-value of the hypothesis that the mean loss exceeds ``risk``, for losses in [0, 1].

    .. math:: p(r) = \min\big(e^{-n h_1(\min(\hat R, r), r)},\;
              e\, P(\mathrm{Bin}(n, r) \le \lceil n \hat R \rceil)\big),
              \quad h_1(a, b) = a \ln\tfrac{a}{b} + (1 - a) \ln\tfrac{1 - a}{1 - b}

    Parameters
    ----------
    mean_loss : float or array-like of float
        Observed mean loss, in [0, 1].
    n : int or array-like of int
        Number of independent losses, at least 1; broadcast against ``mean_loss``.
    risk : float
        The risk r to be tested, between 0 and 1 (both excluded).

    Returns
    -------
    float or array
        The p-value, in [0, 1]; small where the risk is below ``risk``. Plain numbers give a float.

    Raises
    ------
    InvalidInput
        If a mean loss is outside [0, 1], ``n`` is not a whole number of at least 1, shapes do not broadcast, or
        ``risk`` is out of range.

    Notes
    -----
    A product :math:`n \hat R` within 1e-12 (relative) of a whole number counts as that number, because the division
    that gave the mean rounds.

    References
    ----------
    Angelopoulos et al., Learn then Test, arXiv:2110.01052.

    Examples
    --------
    >>> round(hoeffding_bentkus_p(0.05, 1000, risk=0.07), 4)
    0.0161
    """
    from scipy.special import betaincc

    risk = number(risk, "risk", 0, 1, open_low=True, open_high=True)
    loss, m = _mean_losses(mean_loss, n)
    level = np.full_like(loss, risk)
    hoeffding = np.exp(-m * _relative_entropy(np.minimum(loss, level), level))
    count = _ceil(loss * m)
    tail = np.where(count >= m, 1.0, betaincc(count + 1, np.maximum(m - count, 1.0), level))
    return _as_bound(np.minimum(hoeffding, np.minimum(1.0, math.e * tail)))


def sgr(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    risk: float,
    delta: float,
    method: Literal["binary", "fixed_sequence", "published"] = "binary",
) -> Selection:
    r"""Select a threshold that accepts as much as possible while the true risk stays below ``risk`` (SGR).

    With probability at least 1 - ``delta`` over the draw of the samples, the guarantee holds. The condition

    .. math:: b(e, n) = B^{-1}(1 - \delta';\, e + 1,\, n - e) < r^*

    is tested on sets {conf >= threshold} with n accepted samples and e errors; candidates are whole tie groups.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept. Infinities are allowed, NaN is not.
    risk : float
        Largest error rate among accepted samples, :math:`r^*`, between 0 and 1 (both excluded).
    delta : float
        Chance that the guarantee is allowed to fail, between 0 and 1 (both excluded).
    method : {"binary", "fixed_sequence", "published"}, default="binary"
        How to search. ``fixed_sequence`` gains coverage where the most confident samples are almost never wrong, and
        fails where they are wrong now and then. ``published`` is the paper's algorithm to the letter, for comparison.

    Returns
    -------
    Selection
        The threshold with its coverage and bound; ``feasible=False`` if no threshold passes.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, or a setting is out of range.

    Notes
    -----
    ``binary`` is the paper's search: at most :math:`k = \lceil \log_2 m \rceil` looks for m samples, each at
    :math:`\delta' = \delta / k`, and the best feasible look is returned. The paper, and ``published``, returns the
    last look, feasible or not, and never looks at full coverage; there ``feasible`` says whether that look passed.
    ``fixed_sequence`` tests every group in the order of growing coverage at :math:`\delta' = \delta` and stops at the
    first failure (learn then test). It starts where zero errors would pass, :math:`n_0 > \ln \delta / \ln(1 - r^*)`:
    one error among the first :math:`n_0` ends it.

    What is proven: the order and the sets depend on confidences alone, and conditional on its threshold the samples
    above it are independent draws. So ``fixed_sequence`` holds at ``delta`` for continuous confidences whose true
    selective risk crosses ``risk`` once as coverage grows, if samples at the threshold are no safer than those above
    it, as with any sensible score; without the last condition the one sample that sets the threshold can cost a factor
    of at most 1 / (1 - risk). In ``binary`` the errors also choose where to look next, which the paper's union bound
    over k looks does not cover; its violations stay well below ``delta`` in simulation (see the slow tests, which also
    count ties). Both require independent samples from the distribution on which the threshold will be used. Selecting
    nothing (``feasible=False``) violates nothing.

    References
    ----------
    Geifman & El-Yaniv, NeurIPS 2017, arXiv:1705.08500; Angelopoulos et al., Learn then Test, arXiv:2110.01052.

    Examples
    --------
    >>> conf = np.arange(1000) / 1000
    >>> chosen = sgr(conf > 0.2, conf, risk=0.1, delta=0.05)
    >>> chosen.feasible, chosen.threshold, chosen.coverage, round(chosen.bound, 4)
    (True, 0.138, 0.862, 0.0989)
    """
    right = mask(correct, "correct")
    scores = confidence(conf)
    total = same_rows(correct=right, conf=scores)
    risk = number(risk, "risk", 0, 1, open_low=True, open_high=True)
    delta = number(delta, "delta", 0, 1, open_low=True, open_high=True)
    choice(method, "method", ("binary", "fixed_sequence", "published"))
    if method == "published":
        return _last_look(right, scores, risk, delta)
    thresholds, accepted, errors = _groups(right, scores)
    if method == "binary":
        looks = max(1, math.ceil(math.log2(total)))
        best, lowest = _bisect(accepted, errors, risk, delta / looks, looks)
    else:
        looks = 1
        best, lowest = _walk(accepted, errors, risk, delta)
    if best < 0:
        return Selection(math.inf, 0.0, math.nan, lowest, False, 0, 0, looks)
    n, e = int(accepted[best]), int(errors[best])
    bound = clopper_pearson(e, n, delta=delta / looks)
    return Selection(float(thresholds[best]), n / total, e / n, bound, True, n, e, looks)


def _last_look(right: npt.NDArray[np.bool_], scores: Array, risk: float, delta: float) -> Selection:
    """Search as the paper prints it, over samples in increasing confidence, and return the last look."""
    ascending = np.sort(scores)
    total = len(scores)
    looks = max(1, math.ceil(math.log2(total)))
    first, last = 1, total
    for _ in range(looks):
        middle = math.ceil((first + last) / 2)
        threshold = float(ascending[middle - 1])
        is_accepted = scores >= threshold
        n, e = int(is_accepted.sum()), int((is_accepted & ~right).sum())
        bound = float(clopper_pearson(e, n, delta=delta / looks))
        if bound < risk:
            last = middle
        else:
            first = middle
    return Selection(threshold, n / total, e / n, bound, bound < risk, n, e, looks)


def _groups(right: npt.NDArray[np.bool_], scores: Array) -> tuple[Array, Array, Array]:
    """Return thresholds from the most confident down, one per tie group, with accepted and errors at each."""
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]
    ends = np.flatnonzero(np.append(descending[1:] != descending[:-1], True))
    errors = np.cumsum(~right[order])[ends]
    return descending[ends], (ends + 1).astype(np.float64), errors.astype(np.float64)


def _bisect(accepted: Array, errors: Array, risk: float, level: float, looks: int) -> tuple[int, float]:
    """Find the index of the largest feasible group seen (-1 if none) and the lowest bound seen."""
    passed, failed, lowest = -1, len(accepted), 1.0
    for _ in range(looks):
        if failed - passed <= 1:
            break
        middle = (passed + failed) // 2
        bound = float(_upper(errors[middle], accepted[middle], level))
        lowest = min(lowest, bound)
        if bound < risk:
            passed = middle
        else:
            failed = middle
    return passed, lowest


def _walk(accepted: Array, errors: Array, risk: float, level: float) -> tuple[int, float]:
    """Find the same by fixed-sequence testing; bounds are computed in blocks because the walk may end early."""
    start = int(np.searchsorted(accepted, math.log(level) / math.log1p(-risk), side="right"))
    lowest = 1.0
    for left in range(start, len(accepted), 1024):
        block = slice(left, left + 1024)
        bounds = _upper(errors[block], accepted[block], level)
        failing = bounds >= risk
        if failing.any():
            stop = int(failing.argmax())
            lowest = min(lowest, float(bounds[: stop + 1].min()))
            first_failure = left + stop
            return (first_failure - 1 if first_failure > start else -1), lowest
        lowest = min(lowest, float(bounds.min()))
    return (len(accepted) - 1 if start < len(accepted) else -1), lowest


def _upper(errors: Array, n: Array, delta: float) -> Array:
    from scipy.special import betainccinv

    return np.where(errors >= n, 1.0, betainccinv(errors + 1, np.maximum(n - errors, 1.0), delta))


def _lower(errors: Array, n: Array, delta: float) -> Array:
    from scipy.special import betaincinv

    return np.where(errors <= 0, 0.0, betaincinv(np.maximum(errors, 1.0), n - errors + 1, delta))


def _relative_entropy(a: Array, b: Array) -> Array:
    from scipy.special import rel_entr

    return np.asarray(rel_entr(a, b) + rel_entr(1 - a, 1 - b))


def _ceil(x: Array) -> Array:
    near = np.rint(x)
    return np.where(np.abs(x - near) <= 1e-12 * np.maximum(1.0, x), near, np.ceil(x))


def _counts(value: ArrayLike, name: str) -> Array:
    array = np.asarray(plain(value, name), dtype=np.float64)
    bad = ~((array >= 0) & (array == np.floor(array)) & np.isfinite(array))
    if bad.any():
        raise InvalidInput(f"{name} must be whole numbers of at least 0, got {array[bad][0]:g}")
    return array


def _mean_losses(mean_loss: ArrayLike, n: ArrayLike) -> tuple[Array, Array]:
    loss = np.asarray(plain(mean_loss, "mean_loss"), dtype=np.float64)
    count = _counts(n, "n")
    bad = ~((loss >= 0) & (loss <= 1))
    if bad.any():
        raise InvalidInput(f"mean_loss must be in [0, 1], got {loss[bad][0]:g}; scale the losses first")
    if (count < 1).any():
        raise InvalidInput("n must be at least 1, got 0")
    loss, count = _broadcast(mean_loss=loss, n=count)
    return loss, count


def _broadcast(**arrays: Array) -> tuple[Array, ...]:
    """Broadcast the arrays to their common shape, and raise if there is none."""
    try:
        return tuple(np.broadcast_arrays(*arrays.values()))
    except ValueError as error:
        shapes = " and ".join(f"{name} of shape {array.shape}" for name, array in arrays.items())
        raise InvalidInput(f"{shapes} do not fit together; give equal lengths, or a single number for one") from error


def _as_bound(array: Array) -> Bound:
    return float(array) if np.ndim(array) == 0 else array
