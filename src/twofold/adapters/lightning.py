"""A Lightning callback that logs reliability at the end of every validation epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torchmetrics import MetricCollection

from twofold.adapters._rows import MAIN
from twofold.adapters.torchmetrics import Reliability
from twofold.errors import InvalidInput
from twofold.steps import Chain


class ReliabilityCallback(Callback):
    """Collects logits and labels of validation batches, of all processes, and logs metrics as ``PREFIX`` + name.

    ``validation_step`` returns ``{"logits": (N, C)}``, with ``"labels"`` if they are not the second part of the batch,
    and ``"features"`` where a score reads them. Label -1 is OOD; all validation loaders count as one data set, so an
    OOD loader makes ``ds_f1`` and the metrics that end in ``_ood`` meaningful. ``id`` and ``ood`` are scores.

    >>> ReliabilityCallback(["augrc", "ds_f1"], ood="energy").names
    ('augrc', 'ds_f1')
    """

    def __init__(
        self,
        metrics: Iterable[str] = MAIN,
        *,
        id: str | Chain = "msp",  # noqa: A002 - the name that Gate.fit uses
        ood: str | Chain | None = None,
        prefix: str = "val_",
    ) -> None:
        self.names, self.prefix = tuple(metrics), prefix
        self.collection = MetricCollection({name: Reliability(name, id=id, ood=ood) for name in self.names})

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the epoch before."""
        self.collection.to(pl_module.device)
        self.collection.reset()

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep what the metrics need of a batch."""
        if not isinstance(outputs, Mapping) or "logits" not in outputs:
            raise InvalidInput('validation_step must return a dict with "logits" (N, C) for ReliabilityCallback')
        labels = outputs.get("labels")
        if labels is None:
            if not isinstance(batch, list | tuple) or len(batch) < 2:
                raise InvalidInput('a batch is not (inputs, labels, ...); let validation_step return "labels" too')
            labels = batch[1]
        self.collection.update(outputs["logits"].detach(), labels, outputs.get("features"))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log each metric over the whole epoch."""
        for name, value in self.collection.compute().items():
            pl_module.log(f"{self.prefix}{name}", value.float())
