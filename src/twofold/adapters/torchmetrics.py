"""Compute any metric of twofold, by its name, as a torchmetrics ``Metric``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from twofold import metrics
from twofold._checks import AnyArray
from twofold._json import finite_or_none
from twofold.adapters._rows import (
    ScoredRows,
    check_metrics,
    evaluate_rows,
    ready_chain,
    ready_chain_or_none,
    score_rows,
)
from twofold.outputs import Outputs
from twofold.scores.chain import Chain

KEPT = {  # what is kept of every row, and its type
    "correct": torch.bool,
    "is_id": torch.bool,
    "conf": torch.float64,
    "conf_ood": torch.float64,
    "prob": torch.float64,
}


class Reliability(Metric):
    """Compute one metric, by name, over batches and processes: AURC, AUGRC, AUROC of failures, ECE, DS-F1, DS-AURC, ...

    ``compute`` is exact, not a mean over batches or processes. It is NaN where the metric is undefined, such as before
    the first row. Empty batches, and processes without any row, do not change the value. Several in a
    ``MetricCollection`` share their rows.

    Parameters
    ----------
    metric : str, default="augrc"
        A metric of :func:`twofold.metrics.names` that needs confidences alone.
    id : str or Chain, default="msp"
        The score of failures, as text or as a fitted chain.
    ood : str or Chain, optional
        The score of OOD samples, likewise; needed by DS-F1 and DS-AURC.
    **kwargs
        Those of ``torchmetrics.Metric``.

    Raises
    ------
    UnknownName
        If there is no such metric or score.
    InvalidInput
        If the metric needs more than confidences, or a score must be fitted first.

    Examples
    --------
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
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        (self.metric,) = check_metrics(metric, two=ood is not None)
        self.first = ready_chain(id)
        self.second = ready_chain_or_none(ood)
        for name in KEPT:
            self.add_state(name, default=[], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]  # it depends on the metric
        """Whether a larger value is better, as the registry of metrics says."""
        return metrics.info(self.metric).better == "higher"

    @property
    def plot_lower_bound(self) -> float | None:  # type: ignore[override]  # it depends on the metric
        """Least possible value, or None if there is none."""
        return self._bound(0)

    @property
    def plot_upper_bound(self) -> float | None:  # type: ignore[override]
        """Greatest possible value, or None if there is none."""
        return self._bound(1)

    def _bound(self, side: int) -> float | None:
        return finite_or_none(metrics.info(self.metric).bounds[side])

    def update(self, logits: Tensor, labels: Tensor, features: Tensor | None = None) -> None:
        """Keep what the metric needs of one batch, a few numbers per row.

        Parameters
        ----------
        logits : Tensor of shape (n_samples, n_classes)
            The batch's logits; a batch may be empty.
        labels : Tensor of shape (n_samples,)
            Class numbers, -1 for OOD.
        features : Tensor of shape (n_samples, n_features), optional
            The batch's features, where a score reads them.
        """
        if len(logits) == 0 and len(labels) == 0:
            return
        rows = score_rows(Outputs(logits, labels, features), self.first, self.second)
        for name in KEPT:
            value = getattr(rows, name)
            if value is not None:
                getattr(self, name).append(torch.tensor(value, device=self.device))

    def sync(self, *args: Any, **kwargs: Any) -> None:  # as the base class
        """Share the rows between processes, also with one that has none.

        Parameters
        ----------
        *args, **kwargs
            Those of ``torchmetrics.Metric.sync``.
        """
        for name, dtype in KEPT.items():
            held = getattr(self, name)
            if isinstance(held, list) and not held:  # gathering needs a tensor of the same type from every process
                held.append(torch.empty(0, dtype=dtype, device=self.device))
        super().sync(*args, **kwargs)

    def compute(self) -> Tensor:
        """Compute the metric over all rows so far.

        Returns
        -------
        Tensor of float64, shape ()
            The value, NaN if it is undefined.
        """
        conf_ood = None
        if self.second is not None:
            conf_ood = self._joined("conf_ood")
        rows = ScoredRows(
            correct=self._joined("correct"),
            is_id=self._joined("is_id"),
            conf=self._joined("conf"),
            conf_ood=conf_ood,
            prob=self._joined("prob"),
        )
        value = math.nan
        if len(rows.conf):
            value = evaluate_rows(rows, [self.metric])[self.metric]
        return torch.tensor(value, dtype=torch.float64, device=self.device)

    def _joined(self, name: str) -> AnyArray:
        """Return a state as one array; torchmetrics holds it as a list of batches, or as a tensor after syncing."""
        batches = getattr(self, name)
        if not len(batches):
            return np.empty(0)
        return dim_zero_cat(batches).cpu().numpy()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw one value, or several as a line.

        Parameters
        ----------
        val : Tensor or sequence of Tensor, optional
            What ``compute`` or ``forward`` returned; by default ``compute`` is called.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        tuple of Figure and Axes
            As every metric of torchmetrics does.
        """
        axes: Any  # torchmetrics returns one, though its types also allow an array
        figure, axes = self._plot(val, ax)
        axes.set_ylabel(self.metric)
        return figure, axes
