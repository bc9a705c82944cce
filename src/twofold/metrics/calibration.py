"""Calibration: compare stated probabilities with observed accuracy.

``ece`` and ``mce`` are a few lines on :func:`reliability_diagram`, which bins sorted probabilities once.
``nll``, ``brier`` and the accuracies judge logits against labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from twofold import _checks as checks
from twofold._checks import Array, ArrayLike, Labels
from twofold._math import log_odds, softmax
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.metrics._registry import register_metric
from twofold.metrics._sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import ReliabilityDisplay
    from twofold.plot.themes import ThemeName

__all__ = [
    "accuracy",
    "balanced_accuracy",
    "brier",
    "classwise_ece",
    "ece",
    "mce",
    "nll",
    "reliability_diagram",
    "smooth_ece",
]

Strategy: TypeAlias = Literal["width", "mass"]

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

    def plot(self, ax: Axes | None = None, *, theme: ThemeName | None = None) -> ReliabilityDisplay:
        """Draw the share correct over the stated probability.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        ReliabilityDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import ReliabilityDisplay

        return ReliabilityDisplay.from_diagram(self).plot(ax, theme=theme)


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
    FD-Shifts closes bins on the left instead, torchmetrics too, with a separate bin for p = 1).
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


HARMONICS, POINTS, DISTINCT = 1024, 1024, 8192  # resolution of smooth_ece
NARROWEST = 0.002  # kernel below which smooth_ece does not look


@register_metric(
    "smooth_ece",
    task="calibration",
    better="lower",
    bounds=(0.0, 1.0),
    formula=r"\sigma : \int_0^1 \left| \frac1n \sum_i K_\sigma(t, p_i) (c_i - p_i) \right| dt = \sigma",
    reference="Błasiok & Nakkiran, ICLR 2024, arXiv:2309.12236",
)
def smooth_ece(correct: ArrayLike, prob: ArrayLike) -> float:
    r"""Compute the smooth calibration error, which has no bins: gaps are averaged by a kernel as wide as the error.

    .. math:: \mathrm{smECE} = \sigma \quad \text{with} \quad
              \int_0^1 \left| \frac1n \sum_i K_\sigma(t, p_i) (c_i - p_i) \right| dt = \sigma

    with :math:`K_\sigma` the Gaussian kernel reflected at 0 and 1.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    prob : array-like of shape (n_samples,)
        Stated probability that the prediction is correct, in [0, 1], such as the maximum softmax.

    Returns
    -------
    float
        The error, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, or ``prob`` has a value outside [0, 1] or NaN.

    Notes
    -----
    The integral is a mean over 1,024 points, the kernel a cosine series. Kernels narrower than 0.002 are not resolved:
    where the error is smaller, the integral at 0.002 is returned. More than 8,192 distinct probabilities are rounded to
    multiples of 1/8192.

    References
    ----------
    Błasiok & Nakkiran, ICLR 2024, arXiv:2309.12236.

    Examples
    --------
    >>> round(smooth_ece([True, True, True, False], [0.5, 0.5, 0.5, 0.5]), 4)
    0.25
    """
    right = checks.mask(correct, "correct")
    p = _probability(prob)
    checks.same_rows(correct=right, prob=p)
    values, place = np.unique(p, return_inverse=True)
    if len(values) > DISTINCT:
        values, place = np.unique(np.round(p * DISTINCT) / DISTINCT, return_inverse=True)
    gaps = np.bincount(place, right - p, minlength=len(values)) / len(p)
    order = np.arange(HARMONICS)
    coefficients = np.cos(np.pi * np.outer(order, values)) @ gaps
    coefficients[1:] *= 2.0
    points = (np.arange(POINTS) + 0.5) / POINTS
    waves = np.cos(np.pi * np.outer(points, order))

    def error_at(sigma: float) -> float:
        damping = np.exp(-0.5 * (np.pi * sigma * order) ** 2)
        return float(np.abs(waves @ (damping * coefficients)).mean())

    low, high = NARROWEST, 1.0
    if error_at(low) <= low:
        return error_at(low)
    for _ in range(50):  # the error falls as the kernel widens
        middle = 0.5 * (low + high)
        if error_at(middle) > middle:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


# Labels and logits


def check_logits(value: ArrayLike) -> Array:
    """Validate logits and shift each row to a maximum of 0, which changes no probability.

    Parameters
    ----------
    value : array-like of shape (n_samples, n_classes)
        Finite logits.

    Returns
    -------
    ndarray of float64, shape (n_samples, n_classes)
        The shifted logits.

    Raises
    ------
    InvalidInput
        If the logits are not two-dimensional or not finite.
    """
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


def check_labelled(labels: ArrayLike, logits: ArrayLike) -> tuple[Labels, Array]:
    """Validate labels and logits of samples of known classes.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class of each sample, in [0, n_classes).
    logits : array-like of shape (n_samples, n_classes)
        Finite logits.

    Returns
    -------
    labels : ndarray of int64, shape (n_samples,)
        The labels.
    logits : ndarray of float64, shape (n_samples, n_classes)
        The logits, shifted as :func:`check_logits` does.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, if a label is not a class (-1 included), or if a logit is not finite.
    """
    z = check_logits(logits)
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
    y, z = check_labelled(labels, logits)
    with np.errstate(over="ignore"):
        return float(np.logaddexp(0.0, -log_odds(z, y)).mean())


@register_metric(
    "classwise_ece",
    task="calibration",
    better="lower",
    bounds=(0.0, 1.0),
    formula=r"\frac1C \sum_k \sum_b \frac{n_{kb}}{n} |\mathrm{acc}_{kb} - \mathrm{conf}_{kb}|",
    reference="Kull et al., NeurIPS 2019, arXiv:1910.12656",
)
def classwise_ece(labels: ArrayLike, logits: ArrayLike, *, bins: int = 15, strategy: Strategy = "width") -> float:
    r"""Compute the classwise calibration error: the mean over classes of the ECE of each class's probability.

    .. math:: \mathrm{cwECE} = \frac1C \sum_k \sum_b \frac{n_{kb}}{n}
              \left| \mathrm{acc}(B_{kb}) - \mathrm{conf}(B_{kb}) \right|

    where acc is the share of samples of class k in a bin and conf the mean of :math:`p_k` there.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class of each sample, in [0, n_classes).
    logits : array-like of shape (n_samples, n_classes)
        Finite logits.
    bins : int, default=15
        Number of bins for each class, at least 1, as in :func:`reliability_diagram`.
    strategy : {"width", "mass"}, default="width"
        Bins of equal width or of equal count, as in :func:`reliability_diagram`.

    Returns
    -------
    float
        The error, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If the arrays do not go together, or a setting is out of range.

    Notes
    -----
    With many classes most probabilities are near 0, so the value falls with their number: compare models of the same
    classes only. Some libraries sum over classes instead.

    References
    ----------
    Kull et al., NeurIPS 2019, arXiv:1910.12656; Nixon et al., CVPR Workshops 2019, arXiv:1904.01685.

    Examples
    --------
    >>> round(classwise_ece([0, 1], [[2.0, 0.0], [2.0, 0.0]]), 4)
    0.3808
    """
    y, z = check_labelled(labels, logits)
    odds = np.exp(z)
    p = odds / odds.sum(axis=1, keepdims=True)
    errors = [ece(y == k, np.minimum(p[:, k], 1.0), bins=bins, strategy=strategy) for k in range(p.shape[1])]
    return float(np.mean(errors))


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
    y, z = check_labelled(labels, logits)
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
    y, z = check_labelled(labels, logits)
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
    y, z = check_labelled(labels, logits)
    total = np.bincount(y)
    hits = np.bincount(y[z.argmax(axis=1) == y], minlength=total.size)
    return float((hits[total > 0] / total[total > 0]).mean())
