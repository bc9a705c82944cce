"""Keep what every metric needs of a sample, small enough for a whole epoch, and compute the metrics by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from twofold import metrics
from twofold._checks import AnyArray, Array, Mask, as_names
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.scores.chain import Chain, scorer
from twofold.scores.logits import probability
from twofold.scores.scoring import score_all

DEFAULT_METRICS = ("accuracy", "aurc", "augrc", "auroc", "fpr95", "ece")


@dataclass(frozen=True, eq=False)
class ScoredRows:
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


def ready_chain_or_none(spec: str | Chain | None) -> Chain | None:
    """Build the chain of a second score, which may be left out.

    Parameters
    ----------
    spec : str, Chain or None
        A score as text, a chain, or None.

    Returns
    -------
    Chain or None
        A chain that needs no fitting, or is fitted; None for None.

    Raises
    ------
    InvalidInput
        If the chain must be fitted first.
    """
    if spec is None:
        return None
    return ready_chain(spec)


def ready_chain(spec: str | Chain) -> Chain:
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
    >>> ready_chain("energy").spec
    'energy'
    """
    chain = scorer(spec)
    if not chain.ready:
        raise InvalidInput(f"{chain.spec} learns from a training set; pass the chain fitted: scorer(...).fit(train)")
    return chain


def score_rows(outputs: Outputs, first: Chain, second: Chain | None = None) -> ScoredRows:
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
    ScoredRows
        One entry for each sample.

    Examples
    --------
    >>> score_rows(Outputs([[2.0, 0.0], [0.0, 1.0]], labels=[0, -1]), scorer("msp")).correct
    array([ True, False])
    """
    judged = first.judged_outputs(outputs)
    if second is None:
        (conf,) = score_all([first], judged)
        conf_ood = None
    else:
        conf, conf_ood = score_all([first, second], judged)
    return ScoredRows(judged.correct, judged.is_id, conf, conf_ood, probability(judged))


def concat_rows(parts: Sequence[ScoredRows]) -> ScoredRows:
    """Join the rows of several batches.

    Parameters
    ----------
    parts : sequence of ScoredRows
        At least one; all with, or all without, a second confidence.

    Returns
    -------
    ScoredRows
        All rows in order.

    Examples
    --------
    >>> rows = score_rows(Outputs([[2.0, 0.0]], labels=[0]), scorer("msp"))
    >>> concat_rows([rows, rows]).correct
    array([ True,  True])
    """
    joined: dict[str, AnyArray | None] = {}
    for field in fields(ScoredRows):
        arrays = [getattr(part, field.name) for part in parts]
        joined[field.name] = None
        if arrays[0] is not None:
            joined[field.name] = np.concatenate(arrays)
    return ScoredRows(**joined)  # type: ignore[arg-type]  # each field as it is in the parts


def check_metrics(names: Iterable[str], *, two: bool) -> tuple[str, ...]:
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
    >>> check_metrics("aurc", two=False)
    ('aurc',)
    """
    chosen = as_names(names)
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


def evaluate_rows(rows: ScoredRows, names: Iterable[str]) -> dict[str, float]:
    """Compute metrics of rows.

    Parameters
    ----------
    rows : ScoredRows
        The samples.
    names : iterable of str
        Metrics by name, as :func:`check_metrics` accepts them.

    Returns
    -------
    dict of str to float
        Each metric; NaN where it is undefined on these rows.

    Notes
    -----
    Calibration metrics use in-distribution samples alone.

    Examples
    --------
    >>> rows = score_rows(Outputs([[2.0, 0.0], [0.0, 1.0], [1.0, 0.4]], labels=[0, 1, 1]), scorer("msp"))
    >>> evaluate_rows(rows, ["accuracy", "auroc"])
    {'accuracy': 0.6666666666666666, 'auroc': 1.0}
    """
    result = metrics.evaluate(
        rows.correct, rows.conf, is_id=rows.is_id, conf_ood=rows.conf_ood, prob=rows.prob, only=names
    )
    return dict(result)
