"""Compute metrics in the Hugging Face ``Trainer``, through its ``compute_metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from twofold._checks import ArrayLike
from twofold.adapters._rows import (
    DEFAULT_METRICS,
    ScoredRows,
    check_metrics,
    concat_rows,
    evaluate_rows,
    ready_chain,
    ready_chain_or_none,
    score_rows,
)
from twofold.outputs import Outputs
from twofold.scores.chain import Chain


class EvalPrediction(Protocol):
    """Describe what the ``Trainer`` passes to ``compute_metrics``.

    Attributes
    ----------
    predictions : array-like of shape (n_samples, n_classes), or tuple
        Logits, or a tuple that starts with them.
    label_ids : array-like of shape (n_samples,)
        Labels.
    """

    predictions: ArrayLike | tuple[ArrayLike, ...]
    label_ids: ArrayLike


def compute_metrics(
    metrics: Iterable[str] = DEFAULT_METRICS,
    *,
    id: str | Chain = "msp",  # noqa: A002 - the name that Gate.fit uses
    ood: str | Chain | None = None,
) -> Callable[..., dict[str, float]]:
    """Make a function for ``Trainer(compute_metrics=...)`` that computes metrics by name.

    Label -1 is OOD. Where the model returns more than logits, they must come first. A metric that is undefined is NaN.
    With ``TrainingArguments(batch_eval_metrics=True)`` the function keeps a few numbers of each row, and the values
    are those of all rows.

    Parameters
    ----------
    metrics : iterable of str, default=("accuracy", "aurc", "augrc", "auroc", "fpr95", "ece")
        Metrics by name.
    id : str or Chain, default="msp"
        The score of failures, as text or as a fitted chain.
    ood : str or Chain, optional
        The score of OOD samples, likewise; needed by ``ds_f1`` and ``ds_aurc``.

    Returns
    -------
    callable
        ``compute(evaluated, compute_result=None)``: the metrics of one evaluation; with ``compute_result=False``
        nothing yet, with ``True`` those of all batches since the last result.

    Raises
    ------
    UnknownName
        If there is no such metric or score.
    InvalidInput
        If a metric needs more than confidences, or a score must be fitted first.

    Notes
    -----
    With ``batch_eval_metrics=True``, an interrupted evaluation leaves its rows behind: make a new function.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> seen = SimpleNamespace(predictions=[[2.0, 0.0], [0.0, 1.0], [1.0, 0.4]], label_ids=[0, 1, 1])
    >>> compute_metrics(["accuracy", "auroc"])(seen)
    {'accuracy': 0.6666666666666666, 'auroc': 1.0}
    """
    first = ready_chain(id)
    second = ready_chain_or_none(ood)
    names = check_metrics(metrics, two=second is not None)
    batches: list[ScoredRows] = []

    def compute(evaluated: EvalPrediction, compute_result: bool | None = None) -> dict[str, float]:
        logits = evaluated.predictions
        if isinstance(logits, tuple):
            logits = logits[0]
        rows = score_rows(Outputs(logits, evaluated.label_ids), first, second)
        if compute_result is None:  # the whole evaluation at once
            return evaluate_rows(rows, names)
        batches.append(rows)
        if not compute_result:
            return {}
        rows = concat_rows(batches)
        batches.clear()
        return evaluate_rows(rows, names)

    return compute
