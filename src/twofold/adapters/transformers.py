"""``compute_metrics`` for the Hugging Face ``Trainer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twofold.adapters._rows import MAIN, chain_of, check_names, rows_of, values
from twofold.outputs import Outputs
from twofold.steps import Chain


def compute_metrics(
    metrics: Iterable[str] = MAIN,
    *,
    id: str | Chain = "msp",  # noqa: A002 - the name that Gate.fit uses
    ood: str | Chain | None = None,
) -> Callable[[Any], dict[str, float]]:
    """A function for ``Trainer(compute_metrics=...)``: metrics by name from the logits and labels of an evaluation.

    Label -1 is OOD. Where the model returns more than logits, they are the first. NaN where a metric has no value.

    >>> from types import SimpleNamespace
    >>> seen = SimpleNamespace(predictions=[[2.0, 0.0], [0.0, 1.0], [1.0, 0.4]], label_ids=[0, 1, 1])
    >>> compute_metrics(["accuracy", "auroc"])(seen)
    {'accuracy': 0.6666666666666666, 'auroc': 1.0}
    """
    first, second = chain_of(id), None if ood is None else chain_of(ood)
    names = check_names(metrics, two=ood is not None)

    def compute(evaluated: Any) -> dict[str, float]:
        logits = evaluated.predictions
        if isinstance(logits, tuple):
            logits = logits[0]
        return values(rows_of(Outputs(logits, evaluated.label_ids), first, second), names)

    return compute
