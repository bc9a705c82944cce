"""Trace the plug-in black-box rule of selective classification with OOD inputs over all its multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twofold import _checks
from twofold._checks import Array, ArrayLike
from twofold.errors import InvalidInput

__all__ = [
    "PluginCurve",
    "plugin_bb_curve",
]


@dataclass(frozen=True, eq=False)
class PluginCurve:
    """Hold what the plug-in rule accepts at every multiplier that changes it, from least to full coverage.

    Parameters
    ----------
    multiplier : array of shape (n_points,)
        Multipliers, rising; a sample is accepted from its own multiplier on.
    coverage : array of shape (n_points,)
        Share of the mixture of ID and OOD samples that is accepted.
    mixed_risk : array of shape (n_points,)
        Cost-weighted risk, (1 - c_fn) P(error, accepted | ID) + c_fn P(accepted | OOD).
    risk : array of shape (n_points,)
        Share of failures (wrong or OOD) in the accepted part of the mixture.

    Examples
    --------
    >>> curve = plugin_bb_curve([True, False, False], [0.9, 0.6, 0.5], [2.0, 2.0, 0.5], [True, True, False])
    >>> curve.risk.round(3)
    array([0.   , 0.5  , 0.667])
    """

    multiplier: Array  # a sample is accepted from its own multiplier on
    coverage: Array  # of the mixture
    mixed_risk: Array  # (1 - c_fn) P(error, accepted | ID) + c_fn P(accepted | OOD)
    risk: Array  # failures among the accepted of the mixture


def plugin_bb_curve(
    correct: ArrayLike,
    prob: ArrayLike,
    ratio: ArrayLike,
    is_id: ArrayLike,
    *,
    c_fn: float = 0.75,
    id_share: float | None = None,
) -> PluginCurve:
    r"""Compute the risks of the plug-in black-box rule over all its multipliers.

    With ``prob`` the probability of the predicted class and ``ratio`` :math:`\rho` an estimate of the density ratio of
    ID and OOD inputs, the rule rejects a sample at multiplier :math:`\lambda` where

    .. math:: (1 - c_{fn})(1 - p) + \frac{c_{fn} - \lambda (1 - \pi)}{\rho} > \lambda \pi

    with :math:`\pi` the share of ID samples, ``id_share``.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    prob : array-like of float, shape (n_samples,)
        Probability of the predicted class, in [0, 1].
    ratio : array-like of float, shape (n_samples,)
        Density ratio of ID to OOD inputs, above 0.
    is_id : array-like of bool, shape (n_samples,)
        True for ID samples; both kinds are needed.
    c_fn : float, default=0.75
        Cost of accepting an OOD sample, in [0, 1]; accepting an ID error costs 1 - ``c_fn``.
    id_share : float, optional
        Share of ID samples expected in deployment, in (0, 1]. By default that of the samples.

    Returns
    -------
    PluginCurve
        Coverage and risks at every distinct multiplier.

    Raises
    ------
    InvalidInput
        If the arrays differ in length or are not finite, ``correct`` is True on an OOD sample, ``is_id`` does not hold
        both True and False, a probability is outside [0, 1], a ratio is not positive, or a setting is out of range.

    Notes
    -----
    Both sides of the inequality are linear in :math:`\lambda`, so each sample is accepted from one multiplier on and
    the whole curve is one sort; no grid of multipliers is needed. The rule never uses ``correct`` or ``is_id``; the
    risks do.

    References
    ----------
    Narasimhan et al., ICLR 2024, arXiv:2301.12386.

    Examples
    --------
    >>> curve = plugin_bb_curve([True, False, False], [0.9, 0.6, 0.5], [2.0, 2.0, 0.5], [True, True, False])
    >>> curve.coverage.round(3), curve.mixed_risk
    (array([0.333, 0.667, 1.   ]), array([0.   , 0.125, 0.875]))
    """
    p, rho = _checks.losses(prob, "prob"), _checks.losses(ratio, "ratio")
    right, inside = _checks.joint(correct, is_id, prob=p, ratio=rho)
    if inside is None or inside.all() or not inside.any():
        raise InvalidInput("plugin_bb_curve needs ID and OOD samples; is_id must hold both True and False")
    impossible = (p < 0.0) | (p > 1.0)
    if impossible.any():
        row = int(impossible.argmax())
        raise InvalidInput(f"prob must be in [0, 1], got {p[row]} in row {row}; pass probabilities")
    if (rho <= 0.0).any():
        row = int((rho <= 0.0).argmax())
        raise InvalidInput(f"ratio must be above 0, got {rho[row]} in row {row}; pass ratios of densities")
    cost = _checks.number(c_fn, "c_fn", 0.0, 1.0)
    share = float(inside.mean()) if id_share is None else _checks.number(id_share, "id_share", 0.0, 1.0, open_low=True)
    own = ((1.0 - cost) * (1.0 - p) + cost / rho) / (share + (1.0 - share) / rho)
    order = np.argsort(own, kind="stable")
    last = np.append(np.flatnonzero(np.diff(own[order])), len(own) - 1)  # of each group of equal multipliers
    known, wrong = inside[order], (inside & ~right)[order]
    accepted_id = np.cumsum(known)[last] / inside.sum()
    error = np.cumsum(wrong)[last] / inside.sum()
    accepted_ood = np.cumsum(~known)[last] / (~inside).sum()
    coverage = share * accepted_id + (1.0 - share) * accepted_ood
    failed = share * error + (1.0 - share) * accepted_ood
    risk = np.divide(failed, coverage, out=np.zeros_like(failed), where=coverage > 0)  # id_share 1: OOD weighs nothing
    return PluginCurve(own[order][last], coverage, (1.0 - cost) * error + cost * accepted_ood, risk)
