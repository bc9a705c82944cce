"""Use twofold with Hugging Face: metrics for the ``Trainer``, and pipelines with verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np

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
from twofold.errors import InvalidInput
from twofold.gate import Gate
from twofold.outputs import Outputs
from twofold.scores.chain import Chain

Pipeline: TypeAlias = Any  # of transformers, which has no types
TASKS = ("text-classification", "sentiment-analysis", "image-classification")


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


def gated(pipe: Pipeline, gate: Gate) -> Callable[..., Any]:
    """Put a gate behind a pipeline: its own output format, with a verdict in every result.

    The network runs once, inside the pipeline; what the scores read is recorded on the way.

    Parameters
    ----------
    pipe : transformers.Pipeline
        A pipeline for text or image classification.
    gate : Gate
        A gate that was fitted on the outputs of the pipeline's model, such as ``twofold.wrap(pipe, ...).gate``.

    Returns
    -------
    callable
        ``call(inputs, **options)`` takes what the pipeline takes, one input or a list, and returns what it returns;
        every dictionary has ``"verdict"`` too: accept, unsure or unknown.

    Raises
    ------
    InvalidInput
        If the pipeline has another task; when called, if the model is recognisably not that of the gate.

    Examples
    --------
    >>> from transformers import pipeline  # doctest: +SKIP
    >>> safe = gated(pipeline("text-classification", model="my-model"), gate)  # doctest: +SKIP
    >>> safe("what is my balance")  # doctest: +SKIP
    [{'label': 'balance', 'score': 0.98, 'verdict': 'accept'}]
    """
    task = getattr(pipe, "task", None)
    if task not in TASKS:
        raise InvalidInput(f"a pipeline for one of {', '.join(TASKS)} is needed, got {task or type(pipe).__name__}")
    from twofold.nn.models import Classifier

    classifier = Classifier(pipe.model)
    is_found: list[bool] = []

    def call(inputs: Any, **options: Any) -> Any:
        rows = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if not rows:
            return []
        if not is_found:
            _find_head(pipe, classifier, rows[0])
            is_found.append(True)
        with _Recording(classifier) as recording:
            answers = pipe(rows, **options)
        verdicts = gate.decide(recording.outputs()).verdict.tolist()
        if len(verdicts) != len(rows):
            raise InvalidInput(f"the pipeline ran its model on {len(verdicts)} rows for {len(rows)} inputs")
        marked = [_add_verdict(answer, verdict) for answer, verdict in zip(answers, verdicts, strict=True)]
        if isinstance(inputs, list | tuple):
            return marked
        return marked[0] if isinstance(marked[0], list) else marked

    return call


def _find_head(pipe: Pipeline, classifier: Any, first: object) -> None:
    """Run the model once on one input, so that its last linear layer is known."""
    import torch

    encoded = dict(pipe.preprocess(first))
    tensors = {}
    for name, value in encoded.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value.to(pipe.device)
    with torch.no_grad():
        classifier(tensors)


class _Recording:
    """Record what enters the last linear layer of a model while a pipeline runs it."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier
        self.features: list[Any] = []

    def __enter__(self) -> _Recording:
        head = dict(self.classifier.model.named_modules())[self.classifier.head_name]
        self.hook = head.register_forward_hook(self._record)
        return self

    def __exit__(self, *exception: object) -> None:
        self.hook.remove()

    def _record(self, module: Any, arguments: tuple[Any, ...], output: Any) -> None:
        self.features.append(arguments[0].detach())

    def outputs(self) -> Outputs:
        """Compute logits from the recorded inputs of the head; the rest of the model does not run again."""
        parts = [self.classifier.at_head(given) for given in self.features]
        logits = np.concatenate([part.logits.detach().float().cpu().numpy() for part in parts])
        features = np.concatenate([part.features.detach().cpu().numpy() for part in parts])
        return Outputs(logits, features=features, head=self.classifier.head)


def _add_verdict(answer: Any, verdict: str) -> Any:
    """Add the verdict to the dictionary of an input, or to each of its most probable classes."""
    if isinstance(answer, list):
        return [{**one, "verdict": verdict} for one in answer]
    return {**answer, "verdict": verdict}
