"""The joint metrics as the released code of SURE+ computes them, for those who must match printed numbers.

The code scales the OOD score linearly to [0, 1], leaves the ID score as it is, and tries 1001 equally spaced thresholds
on each axis. Areas are taken over 100 bins of coverage. The values depend on the scale of the scores: the maximum
softmax probability must be given as a probability, not as log-odds.
"""

from __future__ import annotations

from twofold._checks import ArrayLike
from twofold.metrics._registry import register_published_form
from twofold.metrics.joint import ds_aurc, ds_f1, f1
from twofold.metrics.selective import aurc

__all__ = ["aurc_id_published", "ds_aurc_published", "ds_f1_published", "f1_published"]


def f1_published(correct: ArrayLike, conf: ArrayLike, is_id: ArrayLike | None = None) -> float:
    """Compute the best F1 of one score over the linear grid of the released code.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept; it is scaled linearly to [0, 1].
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.

    Returns
    -------
    float
        The best F1.

    Raises
    ------
    UnfitData
        If a score is not finite in single precision, or there is no ID sample.

    Examples
    --------
    >>> round(f1_published([1, 1, 0, 0], [0.9, 0.6, 0.5, 0.7], [1, 1, 1, 0]), 6)
    0.666667
    """
    return f1(correct, conf, is_id, method="published").value


def aurc_id_published(correct: ArrayLike, conf: ArrayLike, is_id: ArrayLike | None = None) -> float:
    """Compute the AURC of one score over ID coverage as the released code does, by thresholds on a grid and bins.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept; it is scaled linearly to [0, 1].
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.

    Returns
    -------
    float
        The area.

    Raises
    ------
    UnfitData
        If a score is not finite in single precision, or there is no ID sample.

    Examples
    --------
    >>> correct = [1, 1, 1, 0, 1, 0, 0, 0, 0]
    >>> is_id = [1, 1, 1, 1, 1, 1, 0, 0, 0]
    >>> round(aurc_id_published(correct, [5, 1, 4, 3, 2, -1, 0, 2.5, -2], is_id), 6)
    0.332333
    """
    return aurc(correct, conf, is_id=is_id, coverage="id", estimator="published")


def ds_f1_published(
    correct: ArrayLike, conf_id: ArrayLike, conf_ood: ArrayLike, is_id: ArrayLike | None = None
) -> float:
    """Compute DS-F1 over the linear grid of the released code.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf_id : array-like of float, shape (n_samples,)
        Confidence against misclassification, taken as it is: a probability in [0, 1].
    conf_ood : array-like of float, shape (n_samples,)
        Confidence against OOD inputs; it is scaled linearly to [0, 1].
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.

    Returns
    -------
    float
        The best F1.

    Raises
    ------
    UnfitData
        If a score is not finite in single precision, or there is no ID sample.

    Examples
    --------
    >>> correct = [1, 1, 1, 0, 1, 0, 0, 0, 0]
    >>> is_id = [1, 1, 1, 1, 1, 1, 0, 0, 0]
    >>> conf_id = [0.95, 0.9, 0.8, 0.7, 0.6, 0.4, 0.85, 0.55, 0.3]
    >>> round(ds_f1_published(correct, conf_id, [5, 1, 4, 3, 2, -1, 0, 2.5, -2], is_id), 6)
    0.727273
    """
    return ds_f1(correct, conf_id, conf_ood, is_id, method="published").value


def ds_aurc_published(
    correct: ArrayLike, conf_id: ArrayLike, conf_ood: ArrayLike, is_id: ArrayLike | None = None
) -> float:
    """Compute DS-AURC over the linear grid and the coverage bins of the released code.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf_id : array-like of float, shape (n_samples,)
        Confidence against misclassification, taken as it is: a probability in [0, 1].
    conf_ood : array-like of float, shape (n_samples,)
        Confidence against OOD inputs; it is scaled linearly to [0, 1].
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.

    Returns
    -------
    float
        The area.

    Raises
    ------
    UnfitData
        If a score is not finite in single precision, or there is no ID sample.

    Examples
    --------
    >>> correct = [1, 1, 1, 0, 1, 0, 0, 0, 0]
    >>> is_id = [1, 1, 1, 1, 1, 1, 0, 0, 0]
    >>> conf_id = [0.95, 0.9, 0.8, 0.7, 0.6, 0.4, 0.85, 0.55, 0.3]
    >>> round(ds_aurc_published(correct, conf_id, [5, 1, 4, 3, 2, -1, 0, 2.5, -2], is_id), 6)
    0.234
    """
    return ds_aurc(correct, conf_id, conf_ood, is_id, method="published")


register_published_form("f1", f1_published, formula=r"\max_{\tau \in G} 2\,TA / (|A| + n_{ID})")
register_published_form("aurc_id", aurc_id_published, formula=r"\sum_b \min_{\tau \in G,\, u \in b} R(\tau) / 100")
register_published_form("ds_f1", ds_f1_published, formula=r"\max_{\tau \in G \times G} 2\,TA / (|A| + n_{ID})")
register_published_form("ds_aurc", ds_aurc_published, formula=r"\sum_b \min_{\tau \in G^2,\, u \in b} R(\tau) / 100")
