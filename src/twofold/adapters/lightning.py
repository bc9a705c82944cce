"""Log reliability at the end of every validation and test epoch of Lightning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lightning.pytorch import Callback, LightningModule, Trainer
from torchmetrics import MetricCollection

from twofold.adapters._rows import DEFAULT_METRICS
from twofold.adapters.torchmetrics import Reliability
from twofold.errors import InvalidInput
from twofold.scores.chain import Chain


class ReliabilityCallback(Callback):
    """Collect the logits and labels of validation and test batches, of all processes, and log metrics of them.

    ``validation_step`` and ``test_step`` must return ``{"logits": (N, C)}``, with ``"labels"`` if they are not the
    second part of the batch, and ``"features"`` where a score reads them. Label -1 is OOD. All loaders of an epoch
    count as one data set, so an OOD loader makes ``ds_f1`` and the metrics that end in ``_ood`` meaningful.

    Parameters
    ----------
    metrics : iterable of str, default=("accuracy", "aurc", "augrc", "auroc", "fpr95", "ece")
        Metrics by name.
    id : str or Chain, default="msp"
        The score of failures, as text or as a fitted chain.
    ood : str or Chain, optional
        The score of OOD samples, likewise; needed by ``ds_f1`` and ``ds_aurc``.
    prefix : str, default="val_"
        What the logged names start with in ``fit`` and ``validate``.
    test_prefix : str, default="test_"
        What the logged names start with in ``test``.

    Attributes
    ----------
    names : tuple of str
        Names of the metrics.
    collection : torchmetrics.MetricCollection
        The metrics, each a :class:`~twofold.adapters.torchmetrics.Reliability`.

    Raises
    ------
    InvalidInput
        If a metric needs more than confidences, or a score must be fitted first; in an epoch, if a step returns no
        logits or there are no labels.
    UnknownName
        If there is no such metric or score.

    Examples
    --------
    >>> ReliabilityCallback(["augrc", "ds_f1"], ood="energy").names
    ('augrc', 'ds_f1')
    """

    def __init__(
        self,
        metrics: Iterable[str] = DEFAULT_METRICS,
        *,
        id: str | Chain = "msp",  # noqa: A002 - the name that Gate.fit uses
        ood: str | Chain | None = None,
        prefix: str = "val_",
        test_prefix: str = "test_",
    ) -> None:
        self.names = tuple(metrics)
        self.prefix = prefix
        self.test_prefix = test_prefix
        self.collection = MetricCollection({name: Reliability(name, id=id, ood=ood) for name in self.names})

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reset the metrics before a validation epoch; called by Lightning.

        Parameters
        ----------
        trainer : Trainer
            The trainer; not used.
        pl_module : LightningModule
            The module, on whose device rows are kept.
        """
        self._restart(pl_module)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep what the metrics need of a validation batch; called by Lightning.

        Parameters
        ----------
        trainer : Trainer
            The trainer; not used.
        pl_module : LightningModule
            The module; not used.
        outputs : mapping
            What ``validation_step`` returned: ``"logits"``, and optionally ``"labels"`` and ``"features"``.
        batch : object
            The batch; its second part is the labels if ``outputs`` has none.
        batch_idx : int
            Number of the batch; not used.
        dataloader_idx : int, default=0
            Number of the loader; not used.

        Raises
        ------
        InvalidInput
            If ``outputs`` holds no logits, or there are no labels.
        """
        self._update(outputs, batch, "validation_step")

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log each metric over the whole validation epoch; called by Lightning.

        Parameters
        ----------
        trainer : Trainer
            The trainer; not used.
        pl_module : LightningModule
            The module, which logs the values under ``prefix``.
        """
        self._log(pl_module, self.prefix)

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reset the metrics before a test epoch; called by Lightning.

        Parameters
        ----------
        trainer : Trainer
            The trainer; not used.
        pl_module : LightningModule
            The module, on whose device rows are kept.
        """
        self._restart(pl_module)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep what the metrics need of a test batch; called by Lightning.

        Parameters
        ----------
        trainer : Trainer
            The trainer; not used.
        pl_module : LightningModule
            The module; not used.
        outputs : mapping
            What ``test_step`` returned: ``"logits"``, and optionally ``"labels"`` and ``"features"``.
        batch : object
            The batch; its second part is the labels if ``outputs`` has none.
        batch_idx : int
            Number of the batch; not used.
        dataloader_idx : int, default=0
            Number of the loader; not used.

        Raises
        ------
        InvalidInput
            If ``outputs`` holds no logits, or there are no labels.
        """
        self._update(outputs, batch, "test_step")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log each metric over the whole test epoch; called by Lightning.

        Parameters
        ----------
        trainer : Trainer
            The trainer; not used.
        pl_module : LightningModule
            The module, which logs the values under ``test_prefix``.
        """
        self._log(pl_module, self.test_prefix)

    def _restart(self, pl_module: LightningModule) -> None:
        self.collection.to(pl_module.device)
        self.collection.reset()

    def _update(self, outputs: object, batch: object, step: str) -> None:
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
