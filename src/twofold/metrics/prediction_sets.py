"""Agreement of several predictions, and coverage and size of conformal prediction sets."""

from __future__ import annotations

import numpy as np

from twofold import _checks
from twofold._checks import AnyArray, Array, ArrayLike, Labels, Mask
from twofold._math import softmax
from twofold.errors import InvalidInput

__all__ = ["conformal_coverage", "conformal_set_size", "disagreement", "variation_ratio"]


def _votes(passes: ArrayLike) -> tuple[AnyArray, Labels]:
    """Validate the logits of several passes, and return them with the class that each pass predicts."""
    logits = _checks.floats(passes, "passes", ndim=3)
    _checks.finite(logits, "passes")
    return logits, logits.argmax(axis=2)


def variation_ratio(passes: ArrayLike, *, probabilistic: bool = False) -> float:
    r"""Compute how seldom passes or members predict the class of the averaged prediction, on average over samples.

    .. math:: 1 - \frac{1}{n M} \sum_i \sum_m [\hat y_{mi} = \hat y_i], \qquad \hat y_i = \arg\max_k \bar p_{ik}

    Parameters
    ----------
    passes : array-like of shape (n_draws, n_samples, n_classes)
        Logits of the dropout passes or ensemble members.
    probabilistic : bool, default=False
        Average the probability of that class instead of counting votes, as torch-uncertainty does by default:
        :math:`1 - \bar p_{i \hat y_i}`.

    Returns
    -------
    float
        The ratio, from 0 (all agree) to below 1.

    Raises
    ------
    InvalidInput
        If ``passes`` is not three-dimensional or not finite.

    References
    ----------
    Freeman, Elementary Applied Statistics, 1965.

    Examples
    --------
    >>> variation_ratio([[[2.0, 0.0]], [[3.0, 0.0]], [[0.0, 1.0]]]).__round__(4)
    0.3333
    """
    logits, votes = _votes(passes)
    mean = softmax(logits).mean(axis=0)
    if probabilistic:
        return float(1.0 - mean.max(axis=1).mean())
    return float(1.0 - (votes == mean.argmax(axis=1)).mean())


def disagreement(passes: ArrayLike) -> float:
    r"""Compute the share of pairs of passes or members that predict different classes, on average over samples.

    .. math:: \frac{2}{n M (M - 1)} \sum_i \sum_{m < m'} [\hat y_{mi} \ne \hat y_{m'i}]

    Parameters
    ----------
    passes : array-like of shape (n_draws, n_samples, n_classes)
        Logits of at least two dropout passes or ensemble members.

    Returns
    -------
    float
        The share, in [0, 1].

    Raises
    ------
    InvalidInput
        If ``passes`` is not three-dimensional, not finite, or holds a single pass.

    References
    ----------
    Lakshminarayanan et al., NeurIPS 2017, arXiv:1612.01474.

    Examples
    --------
    >>> disagreement([[[2.0, 0.0]], [[3.0, 0.0]], [[0.0, 1.0]]]).__round__(4)
    0.6667
    """
    logits, votes = _votes(passes)
    draws, _, classes = logits.shape
    if draws < 2:
        raise InvalidInput(f"disagreement compares passes, and there is {draws}; give at least two")
    counts = (votes[:, :, None] == np.arange(classes)).sum(axis=0)
    agreeing = (counts * (counts - 1)).sum(axis=1) / (draws * (draws - 1))
    return float(1.0 - agreeing.mean())


def _check_sets(sets: ArrayLike) -> Mask:
    """Validate prediction sets: whether each class is in the set of each sample."""
    table = _checks.plain(sets, "sets")
    if table.ndim != 2 or not table.size:
        raise InvalidInput(f"sets must be a table (n_samples, n_classes) of booleans, got shape {table.shape}")
    return _checks.mask(table.ravel(), "sets").reshape(table.shape)


def conformal_coverage(labels: ArrayLike, sets: ArrayLike) -> float:
    """Compute the share of samples whose prediction set holds their class.

    Parameters
    ----------
    labels : array-like of shape (n_samples,)
        Class numbers.
    sets : array-like of bool, shape (n_samples, n_classes)
        Whether each class is in the prediction set of each sample.

    Returns
    -------
    float
        The coverage, in [0, 1]; compare it with the level that was asked for.

    Raises
    ------
    InvalidInput
        If the arrays do not go together, or a label is not a class.

    References
    ----------
    Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World, 2005.

    Examples
    --------
    >>> conformal_coverage([0, 1], [[True, False], [True, False]])
    0.5
    """
    table = _check_sets(sets)
    truth = _checks.labels(labels, classes=table.shape[1], ood=False)
    _checks.same_rows(labels=truth, sets=table)
    return float(table[np.arange(len(truth)), truth].mean())


def conformal_set_size(sets: ArrayLike) -> float:
    """Compute the mean number of classes in a prediction set.

    Parameters
    ----------
    sets : array-like of bool, shape (n_samples, n_classes)
        Whether each class is in the prediction set of each sample.

    Returns
    -------
    float
        The mean size; smaller sets say more at the same coverage.

    Raises
    ------
    InvalidInput
        If ``sets`` is not a table of booleans.

    References
    ----------
    Angelopoulos et al., ICLR 2021, arXiv:2009.14193.

    Examples
    --------
    >>> conformal_set_size([[True, False], [True, True]])
    1.5
    """
    sizes: Array = _check_sets(sets).sum(axis=1).astype(np.float64)
    return float(sizes.mean())
