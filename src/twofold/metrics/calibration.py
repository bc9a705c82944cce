"""Calibration: compare stated probabilities with observed accuracy, recalibrate them, and count lost precision.

``ece`` and ``mce`` are a few lines on :func:`reliability_diagram`, which bins sorted probabilities once.
``nll``, ``brier`` and the accuracies judge logits against labels. :class:`TemperatureScaling` and
:class:`PlattScaling` turn logits and any confidence into calibrated probabilities. :func:`round_to_one` counts the
samples whose maximum softmax a float type can no longer distinguish from 1.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold import _checks as checks
from twofold._checks import Array, ArrayLike, Labels, Mask, NaNPolicy
from twofold._math import log_odds, sigmoid, softmax
from twofold.errors import InvalidInput, TwofoldWarning, UndefinedMetric
from twofold.metrics._registry import register_metric
from twofold.metrics._sweep import Sweep

Strategy: TypeAlias = Literal["width", "mass"]
FloatType: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]

# ----------------------------------------------------------------------------------------------------------
# Reliability diagram, ECE, MCE


@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """Hold what a reliability plot draws: one entry per bin that holds samples, in increasing probability.

    Attributes
    ----------
    lower : ndarray of shape (n_bins,)
        Left edge of each bin.
    upper : ndarray of shape (n_bins,)
        Right edge of each bin.
    count : ndarray of shape (n_bins,)
        Number of samples in each bin, never 0.
    prob : ndarray of shape (n_bins,)
        Mean stated probability in each bin.
    accuracy : ndarray of shape (n_bins,)
        Share of correct samples in each bin.
    strategy : str
        How the bins were made: ``"width"`` or ``"mass"``.
    """

    lower: Array
    upper: Array
    count: Labels
    prob: Array
    accuracy: Array
    strategy: str

    @property
    def rows(self) -> int:
        """Number of samples in all bins."""
        return int(self.count.sum())

    @property
    def gap(self) -> Array:
        """Accuracy minus stated probability: below zero where the model is overconfident."""
        return self.accuracy - self.prob


def reliability_diagram(
    correct: ArrayLike, prob: ArrayLike, *, bins: int = 15, strategy: Strategy = "width"
) -> ReliabilityDiagram:
    r"""Compare stated probability with observed accuracy, bin by bin.

    .. math:: \mathrm{acc}(B) = \frac{1}{|B|} \sum_{i \in B} c_i, \qquad
              \mathrm{conf}(B) = \frac{1}{|B|} \sum_{i \in B} p_i

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    prob : array-like of shape (n_samples,)
        Stated probability that the prediction is correct, in [0, 1], such as the maximum softmax.
    bins : int, default=15
        Number of bins, at least 1. Use fewer when bins would hold only a few samples.
    strategy : {"width", "mass"}, default="width"
        Bins of equal width, or of equal count (see Notes). ``"mass"`` is steadier where most probabilities are near 1.

    Returns
    -------
    ReliabilityDiagram
        Edges, count, mean probability and accuracy of every bin that holds samples.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, ``prob`` has a value outside [0, 1] or NaN, ``correct`` is not boolean, ``bins``
        is not a whole number of at least 1, or ``strategy`` is unknown.

    Notes
    -----
    ``width``: bin b of B holds :math:`(b-1)/B < p \le b/B`, and the first one holds 0 too (Guo et al.;
    FD-Shifts closes bins on the left instead, torchmetrics too, with a bin of its own for p = 1).
    ``mass``: bins of counts as equal as possible. The sorted samples are cut at multiples of n/B, and
    samples of equal probability stay together, in the bin of their mean rank; edges lie half-way between
    neighbours. Bins without samples are left out. Neither the order of the rows nor that among ties changes
    a bit of the result.

    References
    ----------
    Guo et al., ICML 2017, arXiv:1706.04599; equal mass: Nixon et al., 2019, arXiv:1904.01685.

    Examples
    --------
    >>> diagram = reliability_diagram([True, False, True], [0.6, 0.7, 1.0], bins=2)
    >>> diagram.count, diagram.accuracy.round(3), diagram.prob.round(3)
    (array([3]), array([0.667]), array([0.767]))
    >>> diagram.gap.round(3)
    array([-0.1])
    """
    right, p = checks.mask(correct, "correct"), _probability(prob)
    rows = checks.same_rows(correct=right, prob=p)
    bins = checks.whole(bins, "bins", 1)
    checks.choice(strategy, "strategy", ("width", "mass"))
    order = np.argsort(p)
    p, right = p[order], right[order]
    edges = np.arange(bins + 1) / bins  # divided, not accumulated: p = 0.3 is on the edge 3/10
    index = np.maximum(np.searchsorted(edges, p) - 1, 0) if strategy == "width" else _equal_mass(p, bins)
    start = np.flatnonzero(np.diff(index, prepend=-1))
    count = np.diff(start, append=rows).astype(np.int64)
    if strategy == "width":
        lower, upper = edges[index[start]], edges[index[start] + 1]
    else:
        cuts = (p[start[1:] - 1] + p[start[1:]]) / 2
        lower, upper = np.concatenate(([0.0], cuts)), np.concatenate((cuts, [1.0]))
    return ReliabilityDiagram(
        lower=lower,
        upper=upper,
        count=count,
        prob=np.add.reduceat(p, start) / count,
        accuracy=np.add.reduceat(right.astype(np.float64), start) / count,
        strategy=strategy,
    )


def _equal_mass(p: Array, bins: int) -> Labels:
    """Return the bin of each sorted sample: the middle of the ranks [first, last) of its tie group decides."""
    first, last = np.searchsorted(p, p, side="left"), np.searchsorted(p, p, side="right")
    return np.asarray(bins * (first + last) // (2 * p.size), dtype=np.int64)


def _probability(value: ArrayLike) -> Array:
    """Validate probabilities of being correct and return them as float64."""
    p = np.ascontiguousarray(checks.floats(value, "prob"), dtype=np.float64)
    bad = ~((p >= 0) & (p <= 1))
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(
            f"prob must be in [0, 1], got {p[row]} in row {row} ({int(bad.sum())} of {p.size} rows); "
            "pass the maximum softmax, or turn a confidence into a probability with PlattScaling"
        )
    return p


@register_metric(
    "ece",
    task="calibration",
    better="lower",
    bounds=(0.0, 1.0),
    formula=r"\sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|",
    reference="Guo et al., ICML 2017, arXiv:1706.04599",
)
def ece(correct: ArrayLike, prob: ArrayLike, *, bins: int = 15, strategy: Strategy = "width") -> float:
    r"""Compute the expected calibration error: the mean distance between accuracy and stated probability over bins.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    prob : array-like of shape (n_samples,)
        Stated probability that the prediction is correct, in [0, 1], such as the maximum softmax.
    bins : int, default=15
        Number of bins, at least 1, as in :func:`reliability_diagram`.
    strategy : {"width", "mass"}, default="width"
        Bins of equal width or of equal count, as in :func:`reliability_diagram`.

    Returns
    -------
    float
        The error, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If the arguments are invalid as in :func:`reliability_diagram`.

    Notes
    -----
    Bins as in :func:`reliability_diagram`. A plug-in estimate: with few samples per bin it is biased upwards. If all
    predictions are correct with p = 0.9 the result is 0.1 (FD-Shifts prints 0.9).

    References
    ----------
    Naeini et al., AAAI 2015; Guo et al., ICML 2017, arXiv:1706.04599.

    Examples
    --------
    >>> round(ece([True, True, True, False], [0.9, 0.9, 0.6, 0.6]), 6)
    0.1
    """
    diagram = reliability_diagram(correct, prob, bins=bins, strategy=strategy)
    return float((diagram.count * np.abs(diagram.gap)).sum() / diagram.rows)


@register_metric(
    "mce",
    task="calibration",
    better="lower",
    bounds=(0.0, 1.0),
    formula=r"\max_b |\mathrm{acc}_b - \mathrm{conf}_b|",
    reference="Guo et al., ICML 2017, arXiv:1706.04599",
)
def mce(correct: ArrayLike, prob: ArrayLike, *, bins: int = 15, strategy: Strategy = "width") -> float:
    r"""Compute the maximum calibration error: the distance between accuracy and stated probability in the worst bin.

    .. math:: \mathrm{MCE} = \max_b \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    prob : array-like of shape (n_samples,)
        Stated probability that the prediction is correct, in [0, 1], such as the maximum softmax.
    bins : int, default=15
        Number of bins, at least 1, as in :func:`reliability_diagram`.
    strategy : {"width", "mass"}, default="width"
        Bins of equal width or of equal count, as in :func:`reliability_diagram`.

    Returns
    -------
    float
        The error, in [0, 1] and never below :func:`ece`; lower is better.

    Raises
    ------
    InvalidInput
        If the arguments are invalid as in :func:`reliability_diagram`.

    Notes
    -----
    A bin of a single sample counts as much as any other, so ``strategy="mass"`` is the steadier choice. Bins as in
    :func:`reliability_diagram`.

    References
    ----------
    Naeini et al., AAAI 2015; Guo et al., ICML 2017, arXiv:1706.04599.

    Examples
    --------
    >>> round(mce([True, True, True, False], [0.9, 0.9, 0.8, 0.8]), 6)
    0.3
    """
    return float(np.abs(reliability_diagram(correct, prob, bins=bins, strategy=strategy).gap).max())


# ----------------------------------------------------------------------------------------------------------
# Labels and logits


def _logits(value: ArrayLike) -> Array:
    """Return finite logits in float64, each row shifted to maximum 0, which changes no metric here."""
    raw = checks.floats(value, "logits", ndim=2)
    checks.finite(raw, "logits")
    z = np.asarray(raw, dtype=np.float64)
    with np.errstate(over="ignore"):
        shifted = z - z.max(axis=1, keepdims=True)
    return np.asarray(np.maximum(shifted, -np.finfo(np.float64).max))


def _labels(value: ArrayLike, classes: int) -> Labels:
    """Return labels in [0, classes); reject OOD rows, as no probability vector is correct for them."""
    y = checks.labels(value, classes=classes)
    outside = y < 0
    if outside.any():
        row, count = int(outside.argmax()), int(outside.sum())
        raise InvalidInput(
            f"labels has -1 (no class of this model) in row {row} ({count} of {y.size} rows); "
            "class probabilities are judged on known classes only: drop the OOD rows first (labels >= 0)"
        )
    return y


def _labelled(labels: ArrayLike, logits: ArrayLike) -> tuple[Labels, Array]:
    z = _logits(logits)
    y = _labels(labels, z.shape[1])
    checks.same_rows(labels=y, logits=z)
    return y, z


@register_metric(
    "nll",
    task="calibration",
    better="lower",
    bounds=(0.0, math.inf),
    formula=r"-\frac{1}{n} \sum_i \log p_{i, y_i}",
    reference="Gneiting & Raftery, JASA 2007",
)
def nll(labels: ArrayLike, logits: ArrayLike) -> float:
    r"""Compute the negative log-likelihood of the labels under the softmax of the logits, in nats per sample.

    .. math:: \mathrm{NLL} = -\frac{1}{n} \sum_i \log \mathrm{softmax}(z_i)_{y_i}
              = \frac{1}{n} \sum_i \log(1 + e^{-m_i}), \; m_i = z_{i y_i} - \mathrm{LSE}_{k \ne y_i}(z_{ik})

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class of each sample, in [0, n_classes).
    logits : array-like of shape (n_samples, n_classes)
        Finite logits; their softmax is the predicted distribution.

    Returns
    -------
    float
        The mean over samples, in [0, inf); lower is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, if a label is not a class (-1 included), or if a logit is not finite.

    Notes
    -----
    Computed from the log-odds m, so that neither a tiny nor a huge loss is rounded away and no floor is needed
    (FD-Shifts adds 1e-7 inside the log, and divides by the number of classes by mistake). A label of -1 is an error:
    drop OOD rows first.

    References
    ----------
    Gneiting & Raftery, Strictly proper scoring rules, JASA 2007.

    Examples
    --------
    >>> round(nll([0, 1], [[2.0, 0.0], [2.0, 0.0]]), 6)
    1.126928
    """
    y, z = _labelled(labels, logits)
    with np.errstate(over="ignore"):
        return float(np.logaddexp(0.0, -log_odds(z, y)).mean())


@register_metric(
    "brier",
    task="calibration",
    better="lower",
    bounds=(0.0, 2.0),
    formula=r"\frac{1}{n} \sum_i \sum_c (p_{ic} - [y_i = c])^2",
    reference="Brier, Monthly Weather Review 1950",
)
def brier(labels: ArrayLike, logits: ArrayLike) -> float:
    r"""Compute the Brier score: the squared distance of the probability vector to the one-hot label.

    .. math:: \mathrm{BS} = \frac{1}{n} \sum_i \sum_c (p_{ic} - [y_i = c])^2, \; p_i = \mathrm{softmax}(z_i)

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class of each sample, in [0, n_classes).
    logits : array-like of shape (n_samples, n_classes)
        Finite logits; their softmax is the predicted distribution.

    Returns
    -------
    float
        The mean over samples, in [0, 2]; lower is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, if a label is not a class (-1 included), or if a logit is not finite.

    Notes
    -----
    Summed over classes as Brier did; with two classes it is twice the binary form of scikit-learn. A label of -1 is an
    error: drop OOD rows first.

    References
    ----------
    Brier, Monthly Weather Review 1950.

    Examples
    --------
    >>> round(brier([0, 1], [[0.0, 0.0], [0.0, 50.0]]), 6)
    0.25
    """
    y, z = _labelled(labels, logits)
    p = softmax(z)
    p[np.arange(len(y)), y] -= 1.0
    return float((p * p).sum(axis=1).mean())


def _accuracy_of_sweep(s: Sweep) -> float:
    if s.known[-1] == 0:
        raise UndefinedMetric("accuracy needs at least one ID sample")
    return float(s.right[-1] / s.known[-1])


def _accuracy_of_correct(correct: ArrayLike, *, is_id: ArrayLike | None = None) -> float:
    """Compute the share of ID samples whose prediction is correct."""
    right, known = checks.joint(correct, is_id)
    n_id = len(right) if known is None else int(known.sum())
    if n_id == 0:
        raise UndefinedMetric("accuracy needs at least one ID sample")
    return float(right.sum() / n_id)


@register_metric(
    "accuracy",
    task="calibration",
    better="higher",
    bounds=(0.0, 1.0),
    formula=r"\frac{1}{n} \sum_i [\arg\max_c z_{ic} = y_i]",
    reference="scikit-learn accuracy_score",
    sweep=_accuracy_of_sweep,
    from_correct=_accuracy_of_correct,
)
def accuracy(labels: ArrayLike, logits: ArrayLike) -> float:
    r"""Compute the share of samples whose largest logit is that of the label.

    .. math:: \mathrm{acc} = \frac{1}{n} \sum_i [\arg\max_c z_{ic} = y_i]

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class of each sample, in [0, n_classes).
    logits : array-like of shape (n_samples, n_classes)
        Finite logits; the largest one of a row is the prediction.

    Returns
    -------
    float
        The accuracy, in [0, 1]; higher is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, if a label is not a class (-1 included), or if a logit is not finite.

    Notes
    -----
    Between equal logits the first class wins, as in ``Outputs.predictions``. A label of -1 is an error: drop OOD rows
    first. As scikit-learn's ``accuracy_score``.

    Examples
    --------
    >>> accuracy([0, 1, 1], [[1.0, 1.0], [1.0, 1.0], [0.0, 2.0]]) == 2 / 3
    True
    """
    y, z = _labelled(labels, logits)
    return float((z.argmax(axis=1) == y).mean())


@register_metric(
    "balanced_accuracy",
    task="calibration",
    better="higher",
    bounds=(0.0, 1.0),
    formula=r"\frac{1}{|C|} \sum_{c \in C} \mathrm{recall}_c, C = classes present",
    reference="Brodersen et al., ICPR 2010",
)
def balanced_accuracy(labels: ArrayLike, logits: ArrayLike) -> float:
    r"""Compute the mean, over the classes present, of the share of their samples that are classified correctly.

    .. math:: \frac{1}{|C|} \sum_{c \in C} \frac{\sum_i [y_i = c][\arg\max z_i = c]}{\sum_i [y_i = c]},
              \qquad C = \{y_1, \dots, y_n\}

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class of each sample, in [0, n_classes).
    logits : array-like of shape (n_samples, n_classes)
        Finite logits; the largest one of a row is the prediction.

    Returns
    -------
    float
        The balanced accuracy, in [0, 1]; higher is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, if a label is not a class (-1 included), or if a logit is not finite.

    Notes
    -----
    Equals :func:`accuracy` when all classes present have equally many samples. Ties as there. As scikit-learn's
    ``balanced_accuracy_score``.

    References
    ----------
    Brodersen et al., ICPR 2010.

    Examples
    --------
    >>> balanced_accuracy([0, 0, 0, 1], [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    0.5
    """
    y, z = _labelled(labels, logits)
    total = np.bincount(y)
    hits = np.bincount(y[z.argmax(axis=1) == y], minlength=total.size)
    return float((hits[total > 0] / total[total > 0]).mean())


# ----------------------------------------------------------------------------------------------------------
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
        y, z = _labelled(labels, logits)
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
        low, high = (beta, high) if slope < 0 else (low, beta)
        step = -slope / curvature if curvature > 0 else math.inf
        if slope == 0 or abs(step) <= 1e-12 * beta or high - low <= 1e-15 * beta:
            return beta + step if low < beta + step < high else beta
        inside = low < beta + step < high and (high < math.inf or step <= beta)
        beta = beta + step if inside else _between(low, high)
    return beta  # pragma: no cover


def _between(low: float, high: float) -> float:
    """Return a point inside the bracket: twice the lower end while it is open, else the middle on the fitting scale."""
    if high == math.inf:
        return 2.0 * low
    return math.sqrt(low) * math.sqrt(high) if low > 0 and high > 4 * low else (low + high) / 2


# ----------------------------------------------------------------------------------------------------------
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


# ----------------------------------------------------------------------------------------------------------
# Round-to-one

_SIGNIFICAND = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # bits, the implicit one included


@dataclass(frozen=True)
class RoundToOne:
    r"""Hold how much of the maximum softmax a float type loses.

    Attributes
    ----------
    rate : float
        Share of samples whose maximum softmax is exactly 1.
    count : int
        Number of samples whose maximum softmax is exactly 1.
    rows : int
        Number of samples.
    dtype : str
        Type that holds the probability.
    threshold : float
        Margin :math:`z_{\max} - \mathrm{LSE}(\mathrm{others})` from which an exactly summed softmax rounds to 1.
    beyond : int
        Number of samples at or past that margin.
    distinct : int
        Number of distinct values of the maximum softmax.
    compute : str
        Type in which the softmax was computed.
    """

    rate: float
    count: int
    rows: int
    dtype: str
    threshold: float
    beyond: int
    distinct: int
    compute: str


def round_to_one(logits: ArrayLike, *, dtype: FloatType = "float32", compute: FloatType | None = None) -> RoundToOne:
    r"""Count the samples whose maximum softmax is exactly 1 in a float type, and the distinct values that are left.

    .. math:: m = z_{\max} - \mathrm{LSE}_{k \ne \max}(z_k) \ge p \ln 2 \;\Rightarrow\; \max_k p_k = 1

    for a significand of p bits: margins of 5.55 (bfloat16, p = 8), 7.62 (float16, 11), 16.64 (float32, 24)
    and 36.74 (float64, 53).

    Parameters
    ----------
    logits : array-like of shape (n_samples, n_classes)
        Finite logits.
    dtype : {"float16", "bfloat16", "float32", "float64"}, default="float32"
        Type in which the probability is stored.
    compute : {"float16", "bfloat16", "float32", "float64"}, default=None
        Type in which the softmax is computed, by default ``dtype``. Set it to a wider type for probabilities that are
        computed precisely and saved in half precision.

    Returns
    -------
    RoundToOne
        Rate and count of ones, the margin threshold, and the number of distinct values.

    Raises
    ------
    InvalidInput
        If ``dtype`` or ``compute`` is unknown, or if ``logits`` is not two-dimensional, not finite, or too large for
        ``compute``.

    Notes
    -----
    ``count`` and ``distinct`` come from an actual softmax: logits are cast to ``compute`` (default: ``dtype``), shifted
    by the row's maximum, exponentiated and summed (16-bit types are summed in float32 and rounded, as NumPy does), and
    the result is cast to ``dtype``. ``beyond`` counts by the margin; it is at most ``count`` up to rounding at the very
    threshold, because a sum that meets the 1 early loses small terms one by one. A softmax that runs in a wider type
    and is *stored* in ``dtype`` (probabilities saved in half precision) rounds to one from
    :math:`\ln(2^{p+1} - 1)` on: request it with ``compute="float64"``. With one class the maximum is always 1.
    Ranking by the log-odds, as ``scorer("msp")`` does, has no such loss.

    References
    ----------
    Jaeger et al., ICLR 2023, arXiv:2211.15259, on why softmax responses need float64.

    Examples
    --------
    >>> lost = round_to_one([[20.0, 0.0], [10.0, 0.0], [1.0, 0.0]])
    >>> lost.count, lost.rows, lost.distinct, round(lost.threshold, 2)
    (1, 3, 3, 16.64)
    >>> round_to_one([[20.0, 0.0], [10.0, 0.0], [1.0, 0.0]], dtype="float16").count
    2
    """
    compute = dtype if compute is None else compute
    checks.choice(dtype, "dtype", _SIGNIFICAND)
    checks.choice(compute, "compute", _SIGNIFICAND)
    raw = checks.floats(logits, "logits", ndim=2)
    checks.finite(raw, "logits")
    z = _in(compute, raw)
    if not np.isfinite(z).all():
        row = int((~np.isfinite(z)).any(axis=1).argmax())
        raise InvalidInput(f"logits in row {row} are too large for {compute}: {np.abs(raw[row]).max():g}")
    top = _in(dtype, _maximum_softmax(z, compute))
    ones = int((top == 1).sum())
    kept = math.log1p(-(2.0 ** -(_SIGNIFICAND[dtype] + 1))) + (_SIGNIFICAND[dtype] + 1) * math.log(2.0)
    threshold = min(_SIGNIFICAND[compute] * math.log(2.0), kept)
    return RoundToOne(
        rate=ones / len(top),
        count=ones,
        rows=len(top),
        dtype=dtype,
        threshold=threshold,
        beyond=int((log_odds(_logits(z)) >= threshold).sum()),
        distinct=int(np.unique(top).size),
        compute=compute,
    )


def _maximum_softmax(z: npt.NDArray[Any], compute: str) -> npt.NDArray[Any]:
    """Compute 1 / sum exp(z - max), with each operation rounded to ``compute``."""
    # exp is rounded from float64: NumPy's float32 exp differs between processors in the last bit
    with np.errstate(over="ignore"):
        shifted = _in(compute, z - z.max(axis=1, keepdims=True))
    terms = _in(compute, np.exp(shifted.astype(np.float64)))
    wide = np.float64 if compute == "float64" else np.float32
    total = _in(compute, np.ascontiguousarray(terms).sum(axis=1, dtype=wide))
    return _in(compute, np.ones_like(total) / total)


def _in(dtype: str, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Round to a float type; NumPy lacks bfloat16, which is the upper half of a float32."""
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return x.astype(dtype)
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # to nearest, ties to even
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)
