"""Open-set recognition: classify ID samples correctly while few OOD samples are accepted."""

from __future__ import annotations

import numpy as np

from twofold import _checks
from twofold._checks import Array, ArrayLike, NaNPolicy
from twofold.errors import UndefinedMetric
from twofold.metrics._registry import register_metric
from twofold.metrics._sweep import Sweep, sweep, sweep_weighted

__all__ = [
    "ccr_at_fpr",
    "oscr",
]

_OSCR = "Dhamija, Günther, Boult, NeurIPS 2018, arXiv:1811.04110"


def _outside(s: Sweep) -> Array:
    outside = s.accepted - s.known
    if s.known[-1] == 0 or outside[-1] == 0:
        raise UndefinedMetric("open-set metrics need at least one ID and one OOD sample")
    return outside


def _oscr(s: Sweep) -> float:
    from twofold._kernels import trapezoid

    outside = _outside(s)
    return float(trapezoid(outside, s.right) / (outside[-1] * s.known[-1]))


@register_metric(
    "oscr",
    task="joint",
    better="higher",
    bounds=(0, 1),
    formula=r"\int \mathrm{CCR}\, d\,\mathrm{FPR}",
    reference=_OSCR,
    sweep=_oscr,
    weighted=sweep_weighted(_oscr),
)
def oscr(correct: ArrayLike, conf: ArrayLike, is_id: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    r"""Compute the area under the open-set classification rate curve (OSCR).

    .. math:: \int_0^1 \mathrm{CCR}\, d\,\mathrm{FPR}, \qquad
              \mathrm{CCR} = \frac{TA}{n_{ID}},\ \mathrm{FPR} = \frac{|A \cap OOD|}{n_{OOD}}

    The curve plots the share of ID samples that are accepted and predicted correctly against the share of OOD samples
    that are accepted, over all thresholds.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,)
        True for ID samples; both kinds are needed.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    float
        The area, in [0, 1]; higher is better.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, or ``correct`` is True on an OOD sample.
    UndefinedMetric
        If there is no ID sample or no OOD sample.

    Notes
    -----
    Ties are joined by straight lines. The area equals the ID accuracy times the AUROC of correct ID samples against OOD
    samples, so a perfect OOD detector reaches the ID accuracy and no detector exceeds it.

    References
    ----------
    Dhamija, Günther, Boult, NeurIPS 2018, arXiv:1811.04110.

    Examples
    --------
    >>> oscr([True, False, False], [0.9, 0.5, 0.6], [True, True, False])
    0.5
    """
    return _oscr(sweep(correct, conf, is_id=is_id, nan=nan))


def ccr_at_fpr(
    correct: ArrayLike, conf: ArrayLike, is_id: ArrayLike, fpr: float = 0.1, *, nan: NaNPolicy = "error"
) -> float:
    """Compute the correct classification rate at a false-positive rate of OOD samples.

    It is the share of ID samples that are accepted and predicted correctly, at the lowest threshold that accepts at
    most ``fpr`` of the OOD samples: one point of the curve of :func:`oscr`.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,)
        True for ID samples; both kinds are needed.
    fpr : float, default=0.1
        Largest share of OOD samples that may be accepted, in [0, 1].
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest, with a ``RejectedNaN`` warning.

    Returns
    -------
    float
        The rate, in [0, 1]; 0 if no threshold is allowed.

    Raises
    ------
    InvalidInput
        If ``fpr`` is outside [0, 1], or the arrays differ in length, hold NaN or impossible values, or ``correct`` is
        True on an OOD sample.
    UndefinedMetric
        If there is no ID sample or no OOD sample.

    Notes
    -----
    Only attained points count: tied samples are accepted together, and nothing is interpolated.

    References
    ----------
    Dhamija, Günther, Boult, NeurIPS 2018, arXiv:1811.04110.

    Examples
    --------
    >>> ccr_at_fpr([True, True, False], [0.9, 0.5, 0.6], [True, True, False], 0.0)
    0.5
    """
    rate = _checks.number(fpr, "fpr", 0.0, 1.0)
    s = sweep(correct, conf, is_id=is_id, nan=nan)
    outside = _outside(s)
    allowed = np.flatnonzero(outside / outside[-1] <= rate)
    return float(s.right[allowed[-1]] / s.known[-1]) if len(allowed) else 0.0
