"""Turn logits, or any confidence, into calibrated probabilities: temperature and Platt scaling."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from twofold import _checks as checks
from twofold._checks import Array, ArrayLike, Labels, Mask, NaNPolicy
from twofold._math import sigmoid, softmax
from twofold.errors import InvalidInput, TwofoldWarning
from twofold.metrics.calibration import check_labelled

__all__ = [
    "PlattScaling",
    "TemperatureScaling",
]

# Temperature scaling


@dataclass(frozen=True)
class TemperatureScaling:
    r"""Divide all logits by one positive number T, which keeps the ranking of classes and changes the confidence.

    .. math:: T = \arg\min_T \mathrm{NLL}(y, z / T)

    Create one with :meth:`fit`, or directly from a known temperature.

    Parameters
    ----------
    value : float
        The temperature T, positive and finite; above 1 it lowers the confidence.

    Raises
    ------
    InvalidInput
        If ``value`` is not positive and finite.

    Notes
    -----
    NLL is convex in :math:`\beta = 1/T`, so the optimum is found by safeguarded Newton steps on the
    derivative :math:`\frac{1}{n} \sum_i (E_{p_i}[z_i] - z_{i y_i})` to a relative 1e-12, with no learning
    rate. If the logits are constant in every row they carry no information, and T is 1. No finite positive optimum
    exists when every label has the row's largest logit (NLL falls without end as T falls to 0), nor when
    labels do not go with larger logits at all (NLL falls as T grows to infinity); both raise ``InvalidInput``.

    References
    ----------
    Guo et al., ICML 2017, arXiv:1706.04599.

    Examples
    --------
    >>> logits = [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]
    >>> scaling = TemperatureScaling.fit([0, 0, 1, 1], logits)  # 3 of 4 are correct: T = 2 / ln 3
    >>> round(scaling.value, 6), scaling.apply(logits)[0].round(6)
    (1.820478, array([1.098612, 0.      ]))
    """

    value: float

    def __post_init__(self) -> None:
        checks.number(self.value, "value", 0, math.inf, open_low=True, open_high=True)

    @classmethod
    def fit(cls, labels: ArrayLike, logits: ArrayLike) -> TemperatureScaling:
        """Find the temperature of least NLL on held-out rows of known classes.

        Parameters
        ----------
        labels : array-like of shape (n_samples,)
            Class of each sample, in [0, n_classes).
        logits : array-like of shape (n_samples, n_classes)
            Finite logits of samples that were not used for training.

        Returns
        -------
        TemperatureScaling
            The fitted temperature.

        Raises
        ------
        InvalidInput
            If the arrays differ in length, if a label is not a class (-1 included), if a logit is not finite, or if
            the NLL has no minimum at a finite positive temperature (see the notes of the class).

        Examples
        --------
        >>> TemperatureScaling.fit([0, 1], [[1.0, 1.0], [3.0, 3.0]])  # constant rows carry no information
        TemperatureScaling(value=1.0)
        """
        y, z = check_labelled(labels, logits)
        scale = float(-z.min())
        if scale == 0.0:
            return cls(1.0)
        return cls(scale / _best_inverse_temperature(y, z / scale))

    def apply(self, logits: ArrayLike) -> Array:
        """Divide logits by the temperature.

        Parameters
        ----------
        logits : array-like of shape (n_samples, n_classes)
            Finite logits.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The scaled logits, as float64.

        Raises
        ------
        InvalidInput
            If ``logits`` is not two-dimensional or not finite.

        Examples
        --------
        >>> TemperatureScaling(2.0).apply([[2.0, 0.0]])
        array([[1., 0.]])
        """
        z = checks.floats(logits, "logits", ndim=2)
        checks.finite(z, "logits")
        return np.asarray(z, dtype=np.float64) / self.value


def _best_inverse_temperature(y: Labels, z: Array) -> float:
    """Find the root beta > 0 of the derivative of NLL(beta z), for rows with maximum 0 and overall minimum -1."""
    target = float(z[np.arange(len(y)), y].mean())

    def derivatives(beta: float) -> tuple[float, float]:
        p = softmax(beta * z)
        mean = (p * z).sum(axis=1, keepdims=True)
        return float(mean.mean()) - target, float((p * (z - mean) ** 2).sum(axis=1).mean())

    if target > -1e-290:  # margins this far below the scale of the logits count as zero
        raise InvalidInput(
            f"no temperature fits: all {len(y)} labels have the largest logit of their row, "
            "so the NLL falls without end as T falls to 0; fit on rows that include mistakes"
        )
    if float(z.mean()) - target >= -1e-14:  # derivative at beta = 0, up to rounding
        raise InvalidInput(
            "no temperature fits: the labels do not go with larger logits, so the NLL falls without end "
            "as T grows; check that labels and logits have the same row order and class order"
        )
    low, high, beta = 0.0, math.inf, 1.0
    for _ in range(2200):  # two passes over all powers of two; real data need about ten steps
        slope, curvature = derivatives(beta)
        if slope < 0:
            low = beta
        else:
            high = beta
        step = -slope / curvature if curvature > 0 else math.inf
        newton = beta + step
        if slope == 0 or abs(step) <= 1e-12 * beta or high - low <= 1e-15 * beta:
            return newton if low < newton < high else beta
        if low < newton < high and (high < math.inf or step <= beta):
            beta = newton
        else:
            beta = _between(low, high)
    return beta  # pragma: no cover


def _between(low: float, high: float) -> float:
    """Return a point inside the bracket: twice the lower end while it is open, else the middle on the fitting scale."""
    if high == math.inf:
        return 2.0 * low
    if low > 0 and high > 4 * low:
        return math.sqrt(low) * math.sqrt(high)
    return (low + high) / 2


# Platt scaling


@dataclass(frozen=True)
class PlattScaling:
    r"""Turn any confidence into a probability of being correct, with two numbers.

    .. math:: P(\mathrm{correct} \mid g) = \frac{1}{1 + e^{-(a g + b)}}, \qquad a \ge 0

    Create one with :meth:`fit`, or directly from known numbers.

    Parameters
    ----------
    slope : float
        The slope a, finite and not negative.
    intercept : float
        The intercept b, finite.

    Raises
    ------
    InvalidInput
        If ``slope`` is negative or either number is not finite.

    Notes
    -----
    Maximum likelihood with Platt's smoothed targets :math:`(N_+ + 1)/(N_+ + 2)` and :math:`1/(N_- + 2)`, so
    that separable data too have a finite solution; Newton steps with backtracking on standardised scores.
    Higher confidence is safer by convention, and the sign is never learnt: where the best slope would be
    negative, it is 0 (the base rate for all) and a :class:`~twofold.errors.TwofoldWarning` is issued. A
    constant confidence, or rows that are all correct or all wrong, give slope 0 as well. Infinite
    confidences are fitted as the largest or smallest finite one and map to 1 and 0. Rank by the confidence
    itself, not by this probability: the sigmoid saturates.

    References
    ----------
    Platt, 1999; Lin, Lin & Weng, Machine Learning 2007.

    Examples
    --------
    >>> scaling = PlattScaling.fit([False, False, True, False, True, True], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    >>> scaling.apply([0.0, 2.5, 5.0, float("inf")]).round(3)
    array([0.208, 0.5  , 0.792, 1.   ])
    """

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        checks.number(self.slope, "slope", 0, math.inf, open_high=True)
        checks.number(self.intercept, "intercept", -math.inf, math.inf, open_low=True, open_high=True)

    @classmethod
    def fit(cls, correct: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> PlattScaling:
        """Find the slope (never negative) and intercept of maximum likelihood on held-out rows.

        Parameters
        ----------
        correct : array-like of shape (n_samples,)
            Whether each prediction is correct, as booleans or 0/1.
        conf : array-like of shape (n_samples,)
            Confidence of each prediction; higher is safer to accept. At least one value must be finite.
        nan : {"error", "reject"}, default="error"
            What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
            :class:`~twofold.errors.RejectedNaN` warning.

        Returns
        -------
        PlattScaling
            The fitted slope and intercept.

        Raises
        ------
        InvalidInput
            If the arrays differ in length, if ``correct`` is not boolean, if ``conf`` holds NaN and ``nan="error"``, or
            if ``conf`` has no finite value.

        Warns
        -----
        TwofoldWarning
            If higher confidence does not go with being correct, so that the slope is held at 0.

        Examples
        --------
        >>> PlattScaling.fit([True, False], [0.5, 0.5])  # a constant confidence
        PlattScaling(slope=0.0, intercept=0.0)
        """
        right, g = checks.mask(correct, "correct"), checks.confidence(conf, nan=nan)
        checks.same_rows(correct=right, conf=g)
        usable = g[np.isfinite(g)]
        if usable.size == 0:
            raise InvalidInput("conf has no finite value, so no slope can be fitted; at least one is needed")
        g = np.clip(g, usable.min(), usable.max())
        targets = _smoothed_targets(right)
        base = float(targets.mean())
        flat = cls(0.0, math.log(base / (1.0 - base)))
        if g.min() == g.max() or right.all() or not right.any():
            return flat
        unit = float(np.abs(g).max())
        g = g / unit
        centre, spread = float(g.mean()), float(g.std())
        g = (g - centre) / spread
        trend = float((g * targets).mean())  # convex, so the sign of the best slope is known at slope 0
        if trend < 1e-15:
            if trend < -1e-15:
                _warn_reversed(right.size)
            return flat
        a, b = _platt_newton(g, targets, flat.intercept)
        return cls(a / spread / unit, b - a * centre / spread)

    def apply(self, conf: ArrayLike, *, nan: NaNPolicy = "error") -> Array:
        """Compute the probability of being correct for each confidence.

        Parameters
        ----------
        conf : array-like of shape (n_samples,)
            Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
        nan : {"error", "reject"}, default="error"
            What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
            :class:`~twofold.errors.RejectedNaN` warning.

        Returns
        -------
        ndarray of shape (n_samples,)
            Probabilities in [0, 1].

        Raises
        ------
        InvalidInput
            If ``conf`` is not one-dimensional, or holds NaN and ``nan="error"``.

        Examples
        --------
        >>> PlattScaling(slope=1.0, intercept=0.0).apply([0.0, 2.0]).round(4)
        array([0.5   , 0.8808])
        """
        g = checks.confidence(conf, nan=nan)
        if self.slope == 0.0:  # 0 times infinity is NaN
            return sigmoid(np.full(g.shape, float(self.intercept)))
        with np.errstate(over="ignore"):
            return sigmoid(self.slope * g + self.intercept)


def _smoothed_targets(right: Mask) -> Array:
    """Return Platt's targets: the posterior mean of each class under a uniform prior, instead of 1 and 0."""
    positive = int(right.sum())
    return np.where(right, (positive + 1.0) / (positive + 2.0), 1.0 / (right.size - positive + 2.0))


def _warn_reversed(rows: int) -> None:
    warnings.warn(
        f"PlattScaling: on these {rows} rows higher confidence does not go with being correct; "
        "the slope is held at 0, so every row gets the base rate "
        "(check the sign of the score: higher must mean safer)",
        TwofoldWarning,
        stacklevel=3,
    )


def _platt_newton(g: Array, targets: Array, intercept: float) -> tuple[float, float]:
    """Minimise the mean cross-entropy of sigmoid(a g + b) to the targets; g is standardised."""

    def loss(a: float, b: float) -> float:
        f = a * g + b
        return float((np.logaddexp(0.0, f) - targets * f).mean())

    a, b, value = 0.0, intercept, loss(0.0, intercept)
    for _ in range(100):
        p = sigmoid(a * g + b)
        error, weight = p - targets, p * (1.0 - p)
        grad_a, grad_b = float((error * g).mean()), float(error.mean())
        ridge = 1e-12  # Lin et al.: keeps the Hessian positive where all weights vanish
        h_aa, h_ab, h_bb = (
            float((weight * g * g).mean()) + ridge,
            float((weight * g).mean()),
            float(weight.mean()) + ridge,
        )
        det = h_aa * h_bb - h_ab * h_ab
        step_a, step_b = (h_ab * grad_b - h_bb * grad_a) / det, (h_ab * grad_a - h_aa * grad_b) / det
        if max(abs(step_a), abs(step_b)) <= 1e-13 * max(1.0, abs(a), abs(b)):
            break
        descent, size = grad_a * step_a + grad_b * step_b, 1.0
        # the last term is the rounding of the mean loss: without it the final steps would be rejected
        while loss(a + size * step_a, b + size * step_b) > value + 1e-4 * size * descent + 1e-14 and size > 1e-10:
            size /= 2.0
        a, b = a + size * step_a, b + size * step_b
        value = loss(a, b)
    return a, b
