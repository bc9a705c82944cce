"""Areas under the risk-coverage curve with a cost per kind of failure, or with equal weight for every class."""

from __future__ import annotations

import numpy as np

from twofold import _checks
from twofold._checks import Array, ArrayLike, NaNPolicy
from twofold.metrics._registry import register_metric
from twofold.metrics.selective import TRAUB, augrc, aurc

__all__ = [
    "balanced_augrc",
    "balanced_aurc",
    "joint_augrc",
    "joint_aurc",
]

# One score judged on both kinds of failure, with costs


def _costs(correct: ArrayLike, is_id: ArrayLike, ood_cost: float) -> Array:
    right, known = _checks.mask(correct, "correct"), _checks.mask(is_id, "is_id")
    _checks.same_rows(correct=right, is_id=known)
    cost = _checks.number(ood_cost, "ood_cost", 0.0, np.inf, open_high=True)
    return np.where(known, (~right).astype(np.float64), cost)


@register_metric(
    "joint_aurc",
    task="joint",
    coverage="all",
    better="lower",
    bounds=(0, np.inf),
    formula=r"\mathrm{AURC\ with\ loss\ } [\mathrm{wrong}] + c\,[\mathrm{OOD}]",
    reference="Xia & Bouganis, ACCV 2022, arXiv:2207.07506",
)
def joint_aurc(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike,
    *,
    ood_cost: float = 1.0,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    """Compute the AURC of one score on ID and OOD samples together, with a cost for accepted OOD samples.

    :func:`aurc` with loss 1 for a mistake and ``ood_cost`` for an OOD sample; coverage counts all samples.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    is_id : array-like of shape (n_samples,)
        True for in-distribution samples; the others are OOD.
    ood_cost : float, default=1.0
        Cost of an accepted OOD sample, in mistakes; finite and not negative. Raise it when accepting an OOD input
        is worse than a misclassification.
    ood_share : float, default=None
        OOD prevalence expected in deployment, in [0, 1): OOD samples are reweighted to this share of all samples. Needs
        ``is_id``. By default every sample has weight 1. Set it when the test set has more or fewer OOD samples than
        deployment will have.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area; lower is better. It can exceed 1 where ``ood_cost`` does.

    Raises
    ------
    InvalidInput
        If ``ood_cost`` is negative or infinite, or if the arrays or ``ood_share`` are invalid as in :func:`augrc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    References
    ----------
    Xia & Bouganis, ACCV 2022, arXiv:2207.07506.

    Examples
    --------
    >>> round(joint_aurc([True, False, False], [0.9, 0.5, 0.1], [True, True, False], ood_cost=2.0), 4)
    0.5
    """
    cost = _costs(correct, is_id, ood_cost)
    return aurc(correct, conf, is_id=is_id, loss=cost, ood_share=ood_share, nan=nan)


@register_metric(
    "joint_augrc",
    task="joint",
    coverage="all",
    better="lower",
    bounds=(0, np.inf),
    formula=r"\mathrm{AUGRC\ with\ loss\ } [\mathrm{wrong}] + c\,[\mathrm{OOD}]",
    reference=f"Xia & Bouganis, ACCV 2022, arXiv:2207.07506; {TRAUB}",
)
def joint_augrc(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike,
    *,
    ood_cost: float = 1.0,
    ood_share: float | None = None,
    nan: NaNPolicy = "error",
) -> float:
    """Compute the AUGRC of one score on ID and OOD samples together, with a cost for accepted OOD samples.

    :func:`augrc` with loss 1 for a mistake and ``ood_cost`` for an OOD sample; coverage counts all samples.

    Parameters
    ----------
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    is_id : array-like of shape (n_samples,)
        True for in-distribution samples; the others are OOD.
    ood_cost : float, default=1.0
        Cost of an accepted OOD sample, in mistakes; finite and not negative. Raise it when accepting an OOD input
        is worse than a misclassification.
    ood_share : float, default=None
        OOD prevalence expected in deployment, in [0, 1): OOD samples are reweighted to this share of all samples. Needs
        ``is_id``. By default every sample has weight 1. Set it when the test set has more or fewer OOD samples than
        deployment will have.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area; lower is better.

    Raises
    ------
    InvalidInput
        If ``ood_cost`` is negative or infinite, or if the arrays or ``ood_share`` are invalid as in :func:`augrc`.
    UnfitData
        If ``ood_share`` is set but there is no ID or no OOD sample.

    References
    ----------
    Xia & Bouganis, ACCV 2022, arXiv:2207.07506; Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> round(joint_augrc([True, False, False], [0.9, 0.5, 0.1], [True, True, False], ood_cost=2.0), 4)
    0.2778
    """
    cost = _costs(correct, is_id, ood_cost)
    return augrc(correct, conf, is_id=is_id, loss=cost, ood_share=ood_share, nan=nan)


# Equal weight for every class


def _by_class(labels: ArrayLike, correct: ArrayLike, conf: ArrayLike, nan: NaNPolicy) -> tuple[Array, Array, Array]:
    conf = _checks.confidence(conf, nan=nan)
    wrong = (~_checks.mask(correct, "correct")).astype(np.float64)
    group = _checks.labels(labels, ood=False)
    _checks.same_rows(labels=group, correct=wrong, conf=conf)
    return np.unique(group, return_inverse=True)[1].astype(np.int64), wrong, conf


@register_metric(
    "balanced_augrc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 1),
    formula=r"\mathrm{AUGRC\ with\ losses\ } l_i\, n / (K n_{y_i})",
    reference=TRAUB,
)
def balanced_augrc(labels: ArrayLike, correct: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    """Compute the AUGRC with equal weight for every class.

    The loss of a sample of class y is weighted by :math:`n / (K n_y)` for the K classes present.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        True class of each sample, an integer of at least 0.
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, such as a label of -1 (OOD).

    Notes
    -----
    Equals :func:`augrc` when all classes have equally many samples.

    References
    ----------
    Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> round(balanced_augrc([0, 0, 1], [True, False, False], [0.9, 0.5, 0.1]), 6)
    0.208333
    """
    group, wrong, conf = _by_class(labels, correct, conf, nan)
    size = np.bincount(group)
    return augrc(wrong == 0, conf, loss=wrong * len(group) / (len(size) * size[group]))


@register_metric(
    "balanced_aurc",
    task="selective",
    coverage="all",
    better="lower",
    bounds=(0, 1),
    formula=r"\frac{1}{n}\sum_i \frac{1}{K}\sum_c R_c(g_i)",
    reference=TRAUB,
)
def balanced_aurc(labels: ArrayLike, correct: ArrayLike, conf: ArrayLike, *, nan: NaNPolicy = "error") -> float:
    r"""Compute the AURC with equal weight for every class: the selective risk is the mean of the class-wise ones.

    .. math:: \frac{1}{n} \sum_i \frac{1}{K} \sum_c R_c(g_i)

    over the K classes present.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        True class of each sample, an integer of at least 0.
    correct : array-like of shape (n_samples,)
        Whether each prediction is correct, as booleans or 0/1.
    conf : array-like of shape (n_samples,)
        Confidence of each prediction; higher is safer to accept. Infinite values are allowed.
    nan : {"error", "reject"}, default="error"
        What to do with NaN in ``conf``: raise an error, or rank those samples lowest with a
        :class:`~twofold.errors.RejectedNaN` warning.

    Returns
    -------
    float
        The area, in [0, 1]; lower is better.

    Raises
    ------
    InvalidInput
        If arrays differ in length or hold values that are not allowed, such as a label of -1 (OOD).

    Notes
    -----
    A class with nothing accepted has risk 0. Ties as in :func:`aurc`.

    References
    ----------
    Traub et al., NeurIPS 2024, arXiv:2407.01032.

    Examples
    --------
    >>> balanced_aurc([0, 1], [True, False], [0.9, 0.1])
    0.25
    """
    group, wrong, conf = _by_class(labels, correct, conf, nan)
    # the risk of class c changes at its own levels only: sum it times the samples that fall before its next level
    level, place = np.unique(-conf, return_inverse=True)
    reached = np.concatenate(([0], np.cumsum(np.bincount(place, minlength=len(level)))))  # samples before level t
    order = np.lexsort((place, group))
    group, place, wrong = group[order], place[order], wrong[order]
    last = np.append((group[1:] != group[:-1]) | (place[1:] != place[:-1]), True)  # last row of its class and level
    first_row = np.concatenate(([0], np.cumsum(np.bincount(group))))[:-1]
    running = np.cumsum(wrong)
    before = running[first_row] - wrong[first_row]
    risk = (running - before[group]) / (np.arange(len(group)) - first_row[group] + 1)
    group, place, risk = group[last], place[last], risk[last]
    next_level = np.append(np.where(group[1:] == group[:-1], place[1:], len(level)), len(level))
    return float(risk @ (reached[next_level] - reached[place])) / (len(order) * len(first_row))
