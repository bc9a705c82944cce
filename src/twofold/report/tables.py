"""Make the joint table, which sets both kinds of failure side by side."""

from __future__ import annotations

from collections.abc import Callable

from twofold.metrics import intervals
from twofold.stats import Interval
from twofold.typing import ArrayLike

# Columns of the joint table: metric, heading, factor for print, what it judges
JOINT = {
    "accuracy": ("accuracy %", 100, "ID samples"),
    "aurc_id": ("AURC-ID x1000", 1000, "ID score alone"),
    "augrc": ("AUGRC x1000", 1000, "ID score alone"),
    "auroc_ood": ("AUROC %", 100, "OOD score, ID against OOD"),
    "fpr95_ood": ("FPR@95 %", 100, "OOD score, ID against OOD"),
    "f1": ("F1 %", 100, "ID score alone"),
    "ds_f1": ("DS-F1 %", 100, "both scores"),
    "ds_aurc": ("DS-AURC x1000", 1000, "both scores"),
}


def joint_table(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike,
    is_id: ArrayLike,
    *,
    n: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    done: Callable[[], object] | None = None,
) -> dict[str, Interval]:
    """Compute the columns of ``JOINT`` for one pair of scores: each score alone, and both together.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether the prediction is correct; False on every OOD sample.
    conf_id : array-like of shape (n_samples,)
        Confidence against misclassification.
    conf_ood : array-like of shape (n_samples,)
        Confidence against OOD inputs.
    is_id : array-like of bool, shape (n_samples,)
        Whether the sample is in-distribution.
    n : int, default=1000
        Number of resamples.
    level : float, default=0.95
        Confidence level, between 0 and 1.
    seed : int, default=0
        Seed of the resampling.
    done : callable, optional
        Called without arguments after each metric, for a progress bar.

    Returns
    -------
    dict of str to Interval
        Interval of each metric, in the order of ``JOINT``.

    Examples
    --------
    >>> table = joint_table([1, 0, 1, 0], [4, 3, 2, 1], [2, 4, 3, 1], [1, 1, 1, 0], n=50)
    >>> list(table)[-2:]
    ['ds_f1', 'ds_aurc']
    """
    return intervals(
        correct, conf_id, is_id=is_id, conf_ood=conf_ood, only=JOINT, n=n, level=level, seed=seed, done=done
    )
