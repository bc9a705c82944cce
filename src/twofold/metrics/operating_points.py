"""Describe what thresholds accept: operating points of one score and of two, and the weight of OOD samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from twofold import _checks
from twofold._checks import Array, Mask
from twofold.errors import InvalidInput, UnfitData

__all__ = [
    "DoublePoint",
    "OperatingPoint",
]

Method = Literal["exact", "grid", "published"]


def operating_point(right: float, known: float, outside: float, inside: float) -> dict[str, float]:
    """Describe an accepted set by its rates.

    Parameters
    ----------
    right : float
        Number of accepted correct predictions.
    known : float
        Number of accepted ID samples.
    outside : float
        Weight of the accepted OOD samples.
    inside : float
        Number of all ID samples.

    Returns
    -------
    dict of str to float
        The fields that :class:`OperatingPoint` and :class:`DoublePoint` share: ``value`` (F1), ``precision``,
        ``recall``, ``risk``, ``coverage``, ``accepted``, ``true_accept``, ``accepted_id`` and ``accepted_ood``.

    Examples
    --------
    >>> operating_point(4, 4, 1, 6)["value"].__round__(6)
    0.727273
    """
    accepted = known + outside
    precision = right / accepted if accepted else 0.0
    return {
        "value": 2.0 * right / (accepted + inside),
        "precision": precision,
        "recall": right / inside,
        "risk": 1.0 - right / accepted if accepted else 0.0,
        "coverage": known / inside,
        "accepted": float(accepted),
        "true_accept": float(right),
        "accepted_id": float(known),
        "accepted_ood": float(outside),
    }


def ood_weight(share: float | None, inside: float, outside: float) -> float:
    r"""Compute the weight of one OOD sample that makes OOD samples a given share of all weight.

    .. math:: w = \frac{share}{1 - share} \frac{n_{ID}}{n_{OOD}}

    Parameters
    ----------
    share : float or None
        Share of OOD samples expected in deployment, in [0, 1); None weighs every sample alike.
    inside : float
        Number of ID samples.
    outside : float
        Number of OOD samples.

    Returns
    -------
    float
        The weight; 1 without a share.

    Raises
    ------
    UnfitData
        If there is a share, but no ID or no OOD sample.

    Examples
    --------
    >>> ood_weight(0.5, 100, 50)
    2.0
    """
    if share is None:
        return 1.0
    if not inside or not outside:
        raise UnfitData("ood_share reweights OOD against ID samples and needs at least one of each")
    return share / (1.0 - share) * inside / outside


def check_ood_share(share: float | None, is_id: Mask | None) -> float | None:
    """Validate the share of OOD samples expected in deployment.

    Parameters
    ----------
    share : float or None
        The share; None means that every sample weighs the same.
    is_id : ndarray of bool, shape (n_samples,), or None
        True for ID samples.

    Returns
    -------
    float or None
        The share.

    Raises
    ------
    InvalidInput
        If the share is outside [0, 1), or comes without ``is_id``.
    UnfitData
        If there is a share, but no ID or no OOD sample.

    Examples
    --------
    >>> check_ood_share(0.5, np.array([True, False]))
    0.5
    """
    if share is None:
        return None
    value = _checks.number(share, "ood_share", 0.0, 1.0, open_high=True)
    if is_id is None:
        raise InvalidInput("ood_share reweights OOD against ID samples; pass is_id with at least one of each")
    inside = int(is_id.sum())
    ood_weight(value, inside, len(is_id) - inside)
    return value


def quantile_thresholds(conf: Array, count: int) -> Array:
    """Choose thresholds at quantiles of a confidence.

    Each is the confidence of a sample, so that increasing maps of the confidence change nothing.

    Parameters
    ----------
    conf : ndarray of float64, shape (n_samples,)
        Confidences.
    count : int
        Number of quantiles, at least 2.

    Returns
    -------
    ndarray of float64
        At most ``count`` thresholds, rising; fewer where confidences tie.

    Examples
    --------
    >>> quantile_thresholds(np.array([0.5, 0.1, 0.9, 0.7]), 2)
    array([0.1, 0.9])
    """
    place = np.arange(count) * (len(conf) - 1) // (count - 1)
    return np.unique(np.sort(conf)[place])


@dataclass(frozen=True)
class OperatingPoint:
    r"""Describe one threshold and what it accepts: the samples with ``conf >= threshold``.

    Parameters
    ----------
    value : float
        F1 at this threshold, :math:`2\,TA / (|A| + n_{ID})`.
    threshold : float
        The lowest confidence that is accepted; ``inf`` accepts nothing.
    precision : float
        Share of the accepted weight that is predicted correctly; 0 if nothing is accepted.
    recall : float
        Accepted correct predictions as a share of all ID samples.
    risk : float
        Share of the accepted weight that fails (wrong or OOD); 0 if nothing is accepted.
    coverage : float
        Share of the ID samples that is accepted.
    accepted : float
        Weight of all accepted samples, ID and OOD.
    true_accept : float
        Number of accepted correct predictions.
    accepted_id : float
        Number of accepted ID samples.
    accepted_ood : float
        Weight of the accepted OOD samples; their number unless ``ood_share`` was set.
    method : {"exact", "grid", "published"}
        How the threshold was found.

    Examples
    --------
    >>> from twofold.metrics import f1
    >>> point = f1([True, True, False], [0.9, 0.6, 0.5])
    >>> point.threshold, point.precision, point.accepted
    (0.6, 1.0, 2.0)
    """

    value: float
    threshold: float
    precision: float
    recall: float
    risk: float
    coverage: float  # of ID samples
    accepted: float  # weight of all accepted samples
    true_accept: float
    accepted_id: float
    accepted_ood: float
    method: Method


@dataclass(frozen=True)
class DoublePoint:
    r"""Describe two thresholds and what they accept: samples with ``conf_id >= tau_id`` and ``conf_ood >= tau_ood``.

    Parameters
    ----------
    value : float
        F1 at this pair of thresholds, :math:`2\,TA / (|A| + n_{ID})`.
    tau_id : float
        Threshold on ``conf_id``; ``inf`` accepts nothing.
    tau_ood : float
        Threshold on ``conf_ood``; ``inf`` accepts nothing.
    precision : float
        Share of the accepted weight that is predicted correctly; 0 if nothing is accepted.
    recall : float
        Accepted correct predictions as a share of all ID samples.
    risk : float
        Share of the accepted weight that fails (wrong or OOD); 0 if nothing is accepted.
    coverage : float
        Share of the ID samples that is accepted.
    accepted : float
        Weight of all accepted samples, ID and OOD.
    true_accept : float
        Number of accepted correct predictions.
    accepted_id : float
        Number of accepted ID samples.
    accepted_ood : float
        Weight of the accepted OOD samples; their number unless ``ood_share`` was set.
    method : {"exact", "grid", "published"}
        How the thresholds were found.

    Examples
    --------
    >>> from twofold.metrics import ds_f1
    >>> point = ds_f1([1, 1, 0], [0.9, 0.6, 0.7], [3.0, 2.0, 1.0], [1, 1, 0])
    >>> point.tau_id, point.tau_ood, point.value
    (0.6, 2.0, 1.0)
    """

    value: float
    tau_id: float
    tau_ood: float
    precision: float
    recall: float
    risk: float
    coverage: float  # of ID samples
    accepted: float  # weight of all accepted samples
    true_accept: float
    accepted_id: float
    accepted_ood: float
    method: Method
