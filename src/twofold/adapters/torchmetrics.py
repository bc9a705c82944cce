"""A torchmetrics ``Metric`` for any metric of twofold by its name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from twofold import metrics
from twofold.adapters._rows import Rows, chain_of, check_names, rows_of, values
from twofold.outputs import Outputs
from twofold.steps import Chain

KEPT = ("correct", "is_id", "conf", "conf_ood", "prob")  # of every row


class Reliability(Metric):
    """One metric, by name, over batches and processes: AURC, AUGRC, AUROC of failures, ECE, DS-F1, DS-AURC, ...

    ``id`` and ``ood`` are scores as text, or fitted chains. ``update`` takes logits (N, C), labels (N,), -1 for OOD,
    and features where a score reads them; what is kept is a few numbers a row. ``compute`` is exact, not a mean over
    batches or processes; NaN where the metric has no value. Several in a ``MetricCollection`` share their rows.

    >>> metric = Reliability("augrc")
    >>> metric.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> metric.update(torch.tensor([[1.0, 0.4]]), torch.tensor([1]))
    >>> round(float(metric.compute()), 6)
    0.055556
    """

    is_differentiable = False
    full_state_update = False

    def __init__(
        self,
        metric: str = "augrc",
        *,
        id: str | Chain = "msp",  # noqa: A002 - the name that Gate.fit uses
        ood: str | Chain | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        (self.metric,) = check_names(metric, two=ood is not None)
        self.first, self.second = chain_of(id), None if ood is None else chain_of(ood)
        for name in KEPT:
            self.add_state(name, default=[], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]  # it depends on the metric
        """Whether a larger value is better, as the table of metrics says."""
        return self.metric == "accuracy" or metrics.info(self.metric.removesuffix("_ood")).better == "higher"

    def update(self, logits: Tensor, labels: Tensor, features: Tensor | None = None) -> None:
        """Keep what the metric needs of one batch."""
        rows = rows_of(Outputs(logits, labels, features), self.first, self.second)
        for name in KEPT:
            value = getattr(rows, name)
            if value is not None:
                getattr(self, name).append(torch.tensor(value, device=self.device))

    def compute(self) -> Tensor:
        """The value over all rows so far."""
        held: dict[str, Any] = dict.fromkeys(KEPT)
        for name in KEPT:
            if name != "conf_ood" or self.second is not None:
                held[name] = dim_zero_cat(getattr(self, name)).cpu().numpy()
        found = values(Rows(**held), [self.metric])
        return torch.tensor(found[self.metric], dtype=torch.float64, device=self.device)
