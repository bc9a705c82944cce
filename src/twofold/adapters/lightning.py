"""A Lightning callback that logs reliability at the end of every validation and test epoch."""

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
    """Collect the logits and labels of validation and test batches, of all processes, and log metrics of them.

    ``validation_step`` and ``test_step`` return ``{"logits": (N, C)}``, with ``"labels"`` if they are not the second
    part of the batch, and ``"features"`` where a score reads them. Label -1 is OOD. All loaders of an epoch count as
    one data set, so an OOD loader makes ``ds_f1`` and the metrics that end in ``_ood`` meaningful.

    Parameters
    ----------
    metrics : iterable of str
        Metrics by name, by default accuracy, aurc, augrc, auroc, fpr95 and ece.
    id, ood : str or Chain, default="msp" and None
        Scores as text, or fitted chains.
    prefix, test_prefix : str, default="val_" and "test_"
        What the logged names begin with in ``fit`` and ``validate``, and in ``test``.

    Examples
    --------
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
        test_prefix: str = "test_",
    ) -> None:
        self.names, self.prefix, self.test_prefix = tuple(metrics), prefix, test_prefix
        self.collection = MetricCollection({name: Reliability(name, id=id, ood=ood) for name in self.names})

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the epoch before."""
        self._restart(pl_module)

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
        self._update(outputs, batch, "validation_step")

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log each metric over the whole epoch."""
        self._log(pl_module, self.prefix)

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the epoch before."""
        self._restart(pl_module)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep what the metrics need of a batch."""
        self._update(outputs, batch, "test_step")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log each metric over the whole epoch."""
        self._log(pl_module, self.test_prefix)

    def _restart(self, pl_module: LightningModule) -> None:
        self.collection.to(pl_module.device)
        self.collection.reset()

    def _update(self, outputs: Any, batch: Any, step: str) -> None:
        if not isinstance(outputs, Mapping) or "logits" not in outputs:
            raise InvalidInput(f'{step} must return a dict with "logits" (N, C) for ReliabilityCallback')
        labels = outputs.get("labels")
        if labels is None:
            if not isinstance(batch, list | tuple) or len(batch) < 2:
                raise InvalidInput(f'a batch is not (inputs, labels, ...); let {step} return "labels" too')
            labels = batch[1]
        self.collection.update(outputs["logits"].detach(), labels, outputs.get("features"))

    def _log(self, pl_module: LightningModule, prefix: str) -> None:
        for name, value in self.collection.compute().items():
            pl_module.log(f"{prefix}{name}", value.float())
