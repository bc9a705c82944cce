r"""Calibration: do stated probabilities come true? Errors, proper scores, two remedies, and lost precision.

``ece`` and ``mce`` are a few lines on :func:`reliability_diagram`, which bins sorted probabilities once.
``nll``, ``brier`` and the accuracies judge logits against labels. :class:`TemperatureScaling` and
:class:`PlattScaling` make probabilities of logits and of any confidence. :func:`round_to_one` counts the
samples whose maximum softmax a float type can no longer tell from 1.
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
from twofold.errors import InvalidInput, TwofoldWarning
from twofold.metrics._registry import register_metric

Strategy: TypeAlias = Literal["width", "mass"]
FloatType: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]

# ----------------------------------------------------------------------------------------------------------
# Reliability diagram, ECE, MCE


@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """What a reliability plot draws: one entry per bin that holds samples, in increasing probability."""

    lower: Array  # left edge of the bin
    upper: Array  # right edge of the bin
    count: Labels  # samples in the bin, never 0
    prob: Array  # mean stated probability
    accuracy: Array  # share of correct samples
    strategy: str

    @property
    def rows(self) -> int:
        """All samples together."""
        return int(self.count.sum())

    @property
    def gap(self) -> Array:
        """Accuracy minus stated probability: below zero where the model is overconfident."""
        return self.accuracy - self.prob


def reliability_diagram(
    correct: ArrayLike, prob: ArrayLike, *, bins: int = 15, strategy: Strategy = "width"
) -> ReliabilityDiagram:
    r"""Stated probability against observed accuracy, bin by bin.

    .. math:: \mathrm{acc}(B) = \frac{1}{|B|} \sum_{i \in B} c_i, \qquad
              \mathrm{conf}(B) = \frac{1}{|B|} \sum_{i \in B} p_i

    ``width``: bin b of B holds :math:`(b-1)/B < p \le b/B`, and the first one holds 0 too (Guo et al.;
    FD-Shifts closes bins on the left instead, torchmetrics too, with a bin of its own for p = 1).
    ``mass``: bins of as equal a count as can be. The sorted samples are cut at multiples of n/B, and
    samples of equal probability stay together, in the bin of their mean rank; edges lie half-way between
    neighbours. Bins without samples are left out. Neither the order of the rows nor that among ties changes
    a bit of the result.

    Guo et al., ICML 2017, arXiv:1706.04599; equal mass: Nixon et al., 2019, arXiv:1904.01685.

    >>> diagram = reliability_diagram([True, False, True], [0.6, 0.7, 1.0], bins=2)
    >>> diagram.count, diagram.accuracy.round(3), diagram.prob.round(3)
    (array([3]), array([0.667]), array([0.767]))
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
    """Bin of each sorted sample: its tie group covers ranks [first, last), and the middle of that decides."""
    first, last = np.searchsorted(p, p, side="left"), np.searchsorted(p, p, side="right")
    return np.asarray(bins * (first + last) // (2 * p.size), dtype=np.int64)


def _probability(value: ArrayLike) -> Array:
    """Probabilities of being correct, float64 in [0, 1]."""
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
    r"""Expected calibration error: mean distance of accuracy and stated probability over bins.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|

    In [0, 1]; 0 is best. Bins as in :func:`reliability_diagram`. A plug-in estimate: with few samples per
    bin it is biased upwards. All samples right with p = 0.9 gives 0.1 (FD-Shifts prints 0.9).

    Naeini et al., AAAI 2015; Guo et al., ICML 2017, arXiv:1706.04599.

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
    r"""Maximum calibration error: the worst bin's distance of accuracy and stated probability.

    .. math:: \mathrm{MCE} = \max_b \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|

    In [0, 1] and never below :func:`ece`. A bin of a single sample counts as much as any other, so
    ``strategy="mass"`` is the steadier choice. Bins as in :func:`reliability_diagram`.

    Naeini et al., AAAI 2015; Guo et al., ICML 2017, arXiv:1706.04599.

    >>> round(mce([True, True, True, False], [0.9, 0.9, 0.8, 0.8]), 6)
    0.3
    """
    return float(np.abs(reliability_diagram(correct, prob, bins=bins, strategy=strategy).gap).max())


# ----------------------------------------------------------------------------------------------------------
# Labels and logits


def _logits(value: ArrayLike) -> Array:
    """Finite logits in float64, each row shifted to maximum 0, which no metric here can see."""
    raw = checks.floats(value, "logits", ndim=2)
    checks.finite(raw, "logits")
    z = np.asarray(raw, dtype=np.float64)
    with np.errstate(over="ignore"):
        shifted = z - z.max(axis=1, keepdims=True)
    return np.asarray(np.maximum(shifted, -np.finfo(np.float64).max))


def _labels(value: ArrayLike, classes: int) -> Labels:
    """Labels in [0, classes); OOD rows are refused, as no probability vector is right for them."""
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
    r"""Negative log-likelihood of the labels under the softmax of the logits, in nats per sample.

    .. math:: \mathrm{NLL} = -\frac{1}{n} \sum_i \log \mathrm{softmax}(z_i)_{y_i}
              = \frac{1}{n} \sum_i \log(1 + e^{-m_i}), \; m_i = z_{i y_i} - \mathrm{LSE}_{k \ne y_i}(z_{ik})

    In [0, inf); computed from the log-odds m, so that neither a tiny nor a huge loss is rounded away and no
    floor is needed (FD-Shifts adds 1e-7 inside the log, and divides by the number of classes by mistake). A
    label of -1 is an error: drop OOD rows first.

    Gneiting & Raftery, Strictly proper scoring rules, JASA 2007.

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
    r"""Brier score: squared distance of the probability vector to the one-hot label.

    .. math:: \mathrm{BS} = \frac{1}{n} \sum_i \sum_c (p_{ic} - [y_i = c])^2, \; p_i = \mathrm{softmax}(z_i)

    In [0, 2], summed over classes as Brier did; with two classes it is twice the binary form of scikit-learn.
    A label of -1 is an error: drop OOD rows first.

    Brier, Monthly Weather Review 1950.

    >>> round(brier([0, 1], [[0.0, 0.0], [0.0, 50.0]]), 6)
    0.25
    """
    y, z = _labelled(labels, logits)
    p = softmax(z)
    p[np.arange(len(y)), y] -= 1.0
    return float((p * p).sum(axis=1).mean())


@register_metric(
    "accuracy",
    task="calibration",
    better="higher",
    bounds=(0.0, 1.0),
    formula=r"\frac{1}{n} \sum_i [\arg\max_c z_{ic} = y_i]",
    reference="scikit-learn accuracy_score",
)
def accuracy(labels: ArrayLike, logits: ArrayLike) -> float:
    r"""Share of samples whose largest logit is the label's.

    .. math:: \mathrm{acc} = \frac{1}{n} \sum_i [\arg\max_c z_{ic} = y_i]

    In [0, 1]. Between equal logits the first class wins, as in ``Outputs.predictions``. A label of -1 is an
    error.

    As scikit-learn's ``accuracy_score``.

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
    r"""Mean over the classes present of the share of their samples that are classified right.

    .. math:: \frac{1}{|C|} \sum_{c \in C} \frac{\sum_i [y_i = c][\arg\max z_i = c]}{\sum_i [y_i = c]},
              \qquad C = \{y_1, \dots, y_n\}

    In [0, 1]; equals :func:`accuracy` when all classes present have equally many samples. Ties as there.

    Brodersen et al., ICPR 2010; as scikit-learn's ``balanced_accuracy_score``.

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
    r"""One positive number T that divides all logits; the ranking of classes stays, the confidence changes.

    .. math:: T = \arg\min_T \mathrm{NLL}(y, z / T)

    NLL is convex in :math:`\beta = 1/T`, so the optimum is found by safeguarded Newton steps on the
    derivative :math:`\frac{1}{n} \sum_i (E_{p_i}[z_i] - z_{i y_i})` to a relative 1e-12, with no learning
    rate. Logits that are constant in every row say nothing, and T is 1. No finite positive optimum exists,
    and ``InvalidInput`` says so, when every label has the row's largest logit (NLL falls without end as T
    falls to 0) and when labels do not go with larger logits at all (NLL falls as T grows to infinity).

    Guo et al., ICML 2017, arXiv:1706.04599.

    >>> logits = [[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]
    >>> scaling = TemperatureScaling.fit([0, 0, 1, 1], logits)  # 3 of 4 right: T = 2 / ln 3
    >>> round(scaling.value, 6), scaling.apply(logits)[0].round(6)
    (1.820478, array([1.098612, 0. ]))
    """

    value: float

    def __post_init__(self) -> None:
        checks.number(self.value, "value", 0, math.inf, open_low=True, open_high=True)

    @classmethod
    def fit(cls, labels: ArrayLike, logits: ArrayLike) -> TemperatureScaling:
        """The temperature of least NLL on held-out rows of known classes."""
        y, z = _labelled(labels, logits)
        scale = float(-z.min())
        if scale == 0.0:
            return cls(1.0)
        return cls(scale / _best_inverse_temperature(y, z / scale))

    def apply(self, logits: ArrayLike) -> Array:
        """The logits divided by the temperature, as float64."""
        z = checks.floats(logits, "logits", ndim=2)
        checks.finite(z, "logits")
        return np.asarray(z, dtype=np.float64) / self.value


def _best_inverse_temperature(y: Labels, z: Array) -> float:
    """Root in beta > 0 of the derivative of NLL(beta z), for rows with maximum 0 and overall minimum -1."""
    target = float(z[np.arange(len(y)), y].mean())

    def derivatives(beta: float) -> tuple[float, float]:
        p = softmax(beta * z)
        mean = (p * z).sum(axis=1, keepdims=True)
        return float(mean.mean()) - target, float((p * (z - mean) ** 2).sum(axis=1).mean())

    if target > -1e-290:  # a margin so far below the scale of the logits is none
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
    """A point inside the bracket: twice the lower end while open, else the middle on the fitting scale."""
    if high == math.inf:
        return 2.0 * low
    return math.sqrt(low) * math.sqrt(high) if low > 0 and high > 4 * low else (low + high) / 2


# ----------------------------------------------------------------------------------------------------------
# Platt scaling


@dataclass(frozen=True)
class PlattScaling:
    r"""Turns any confidence into a probability of being correct, with two numbers.

    .. math:: P(\mathrm{correct} \mid g) = \frac{1}{1 + e^{-(a g + b)}}, \qquad a \ge 0

    Maximum likelihood with Platt's smoothed targets :math:`(N_+ + 1)/(N_+ + 2)` and :math:`1/(N_- + 2)`, so
    that separable data too have a finite answer; Newton steps with backtracking on standardised scores.
    Higher confidence is safer by convention, and that is never learned: where the best slope would be
    negative, it is 0 (the base rate for all) and a :class:`~twofold.errors.TwofoldWarning` tells. A
    constant confidence, or rows that are all correct or all wrong, give slope 0 as well. Infinite
    confidences are fitted as the largest or smallest finite one and map to 1 and 0. Rank by the confidence
    itself, not by this copy: the sigmoid saturates.

    Platt, 1999; Lin, Lin & Weng, Machine Learning 2007.

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
        """The likeliest slope (never negative) and intercept on held-out rows."""
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
        """The probability of being correct for each confidence."""
        g = checks.confidence(conf, nan=nan)
        if self.slope == 0.0:  # 0 times infinity is no number
            return sigmoid(np.full(g.shape, float(self.intercept)))
        with np.errstate(over="ignore"):
            return sigmoid(self.slope * g + self.intercept)


def _smoothed_targets(right: Mask) -> Array:
    """Platt's targets: the posterior mean of each class under a uniform prior instead of 1 and 0."""
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
        # the last term is the rounding of the mean loss: without it the final steps would be refused
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
    """How much of the maximum softmax a float type loses."""

    rate: float  # share of samples whose maximum softmax is exactly 1
    count: int
    rows: int
    dtype: str  # type that holds the probability
    threshold: float  # margin z_max - LSE(others) from which an exactly summed softmax rounds to 1
    beyond: int  # samples at or past that margin
    distinct: int  # distinct values of the maximum softmax
    compute: str  # type in which the softmax ran


def round_to_one(logits: ArrayLike, *, dtype: FloatType = "float32", compute: FloatType | None = None) -> RoundToOne:
    r"""Samples whose maximum softmax is exactly 1 in a float type, and how many distinct values are left.

    .. math:: m = z_{\max} - \mathrm{LSE}_{k \ne \max}(z_k) \ge p \ln 2 \;\Rightarrow\; \max_k p_k = 1

    for a significand of p bits: margins of 5.55 (bfloat16, p = 8), 7.62 (float16, 11), 16.64 (float32, 24)
    and 36.74 (float64, 53). ``count`` and ``distinct`` come from an actual softmax: logits are cast to
    ``compute`` (default: ``dtype``), shifted by the row's maximum, exponentiated and summed (16-bit types
    are summed in float32 and rounded, as NumPy does), and the result is cast to ``dtype``. ``beyond``
    counts by the margin; it is at most ``count`` up to rounding at the very threshold, because a sum that
    meets the 1 early loses small terms one by one. A softmax that runs in a wider type and is *stored* in
    ``dtype`` (probabilities saved in half precision) rounds to one from :math:`\ln(2^{p+1} - 1)` on: ask
    for it with ``compute="float64"``. One class alone is always 1. A logit too large for ``compute`` is an
    error. Ranking by ``_math.log_odds`` has no such loss.

    Jaeger et al., ICLR 2023, arXiv:2211.15259, on why softmax responses need float64.

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
    """1 / sum exp(z - max), each operation rounded to ``compute``."""
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
