"""Keep what every metric needs of a sample, small enough for a whole epoch, and compute the metrics by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from twofold import metrics
from twofold._checks import Array, Mask
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.scores.chain import Chain, scorer
from twofold.scores.logits import probability
from twofold.scores.scoring import score_all

MAIN = ("accuracy", "aurc", "augrc", "auroc", "fpr95", "ece")


@dataclass(frozen=True, eq=False)
class Rows:
    """Hold for each sample whether it is correct and in-distribution, its confidences and its probability.

    Parameters
    ----------
    correct : ndarray of bool, shape (N,)
        Whether the prediction is correct; False on every OOD sample.
    is_id : ndarray of bool, shape (N,)
        Whether the sample is in-distribution.
    conf : ndarray of float64, shape (N,)
        Confidence of the first score.
    conf_ood : ndarray of float64, shape (N,), or None
        Confidence of the second score, if there is one.
    prob : ndarray of float64, shape (N,)
        Probability of the predicted class, for calibration metrics.
    """

    correct: Mask
    is_id: Mask
    conf: Array
    conf_ood: Array | None
    prob: Array


def chain_of(spec: str | Chain) -> Chain:
    """Build a chain that can score at once.

    Parameters
    ----------
    spec : str or Chain
        A score as text, or a chain.

    Returns
    -------
    Chain
        A chain that needs no fitting, or is fitted.

    Raises
    ------
    InvalidInput
        If the chain must be fitted first.

    Examples
    --------
    >>> chain_of("energy").spec
    'energy'
    """
    chain = scorer(spec)
    if not chain.ready:
        raise InvalidInput(f"{chain.spec} learns from a training set; pass the chain fitted: scorer(...).fit(train)")
    return chain


def rows_of(outputs: Outputs, first: Chain, second: Chain | None = None) -> Rows:
    """Compute the rows of labelled outputs.

    Parameters
    ----------
    outputs : Outputs
        Outputs with labels; -1 is OOD.
    first : Chain
        The score of failures. If it judges stochastic passes, the averaged outputs are used.
    second : Chain, optional
        The score of OOD samples.

    Returns
    -------
    Rows
        One entry for each sample.

    Examples
    --------
    >>> rows_of(Outputs([[2.0, 0.0], [0.0, 1.0]], labels=[0, -1]), scorer("msp")).correct
    array([ True, False])
    """
    seen = outputs.averaged() if first.judges == "passes" else outputs
    confs = score_all([first] if second is None else [first, second], seen)
    return Rows(seen.correct, seen.is_id, confs[0], None if second is None else confs[1], probability(seen))


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Join the rows of several batches.

    Parameters
    ----------
    parts : sequence of Rows
        At least one; all with, or all without, a second confidence.

    Returns
    -------
    Rows
        All rows in order.

    Examples
    --------
    >>> rows = rows_of(Outputs([[2.0, 0.0]], labels=[0]), scorer("msp"))
    >>> concat_rows([rows, rows]).correct
    array([ True,  True])
    """
    conf_ood = None
    if parts[0].conf_ood is not None:
        conf_ood = np.concatenate([part.conf_ood for part in parts if part.conf_ood is not None])
    return Rows(
        correct=np.concatenate([part.correct for part in parts]),
        is_id=np.concatenate([part.is_id for part in parts]),
        conf=np.concatenate([part.conf for part in parts]),
        conf_ood=conf_ood,
        prob=np.concatenate([part.prob for part in parts]),
    )


def check_names(names: Iterable[str], *, two: bool) -> tuple[str, ...]:
    """Check, before any data arrive, that rows are enough for these metrics.

    Parameters
    ----------
    names : str or iterable of str
        Names of registered metrics.
    two : bool
        Whether there are two scores.

    Returns
    -------
    tuple of str
        The names.

    Raises
    ------
    UnknownName
        If there is no such metric.
    InvalidInput
        If a metric needs more than rows hold, or a second score.

    Examples
    --------
    >>> check_names("aurc", two=False)
    ('aurc',)
    """
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for name in chosen:
        needed = metrics.info(name).evaluated_arrays
        not_kept = [array for array in ("labels", "logits", "passes") if array in needed]
        if not_kept:
            raise InvalidInput(
                f"{name} needs {' and '.join(not_kept)}, which are not kept; call twofold.metrics.{name}"
            )
        if "conf_ood" in needed and not two:
            raise InvalidInput(f"{name} is a metric of two scores; pass ood=, such as ood='energy'")
    return chosen


def values(rows: Rows, names: Iterable[str]) -> dict[str, float]:
    """Compute metrics of rows.

    Parameters
    ----------
    rows : Rows
        The samples.
    names : iterable of str
        Metrics by name, as :func:`check_names` accepts them.

    Returns
    -------
    dict of str to float
        Each metric; NaN where it is undefined on these rows.

    Notes
    -----
    Calibration metrics use in-distribution samples alone.

    Examples
    --------
    >>> rows = rows_of(Outputs([[2.0, 0.0], [0.0, 1.0], [1.0, 0.4]], labels=[0, 1, 1]), scorer("msp"))
    >>> values(rows, ["accuracy", "auroc"])
    {'accuracy': 0.6666666666666666, 'auroc': 1.0}
    """
    result = metrics.evaluate(
        rows.correct, rows.conf, is_id=rows.is_id, conf_ood=rows.conf_ood, prob=rows.prob, only=names
    )
    return dict(result)
