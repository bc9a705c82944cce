"""What validation images say about a network after an epoch."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from twofold import metrics
from twofold._math import log_odds
from twofold.errors import UndefinedMetric
from twofold.nn.extraction import Prepare
from twofold.nn.rows import ImageRows

EVALUATION_BATCH = 512  # rows in a pass


def validate(
    model: nn.Module, val: ImageRows, prepare: Prepare, device: str | torch.device = "cpu"
) -> dict[str, float]:
    """Evaluate a network and the maximum softmax probability on labelled images.

    Parameters
    ----------
    model : torch.nn.Module
        The network, on ``device``; its mode is restored afterwards.
    val : ImageRows
        The images.
    prepare : Prepare
        Their normalisation.
    device : str or torch.device, default="cpu"
        Where the network runs.

    Returns
    -------
    dict from str to float
        ``accuracy``, ``aurc``, ``augrc`` and ``fail_ap``, the average precision of failures, which is NaN where there
        is no failure.

    Examples
    --------
    >>> from twofold.nn.data import Images
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    >>> images = Images.of(np.zeros((4, 2, 2, 3), np.uint8), [0, 0, 1, 1])
    >>> sorted(validate(model, images, Prepare()))
    ['accuracy', 'augrc', 'aurc', 'fail_ap']
    """
    was_training = model.training
    model.eval()
    batches = []
    with torch.no_grad():
        for start in range(0, len(val), EVALUATION_BATCH):
            pixels = val.read(slice(start, min(start + EVALUATION_BATCH, len(val))))
            batches.append(model(prepare(pixels).to(device)).double().cpu().numpy())
    model.train(was_training)
    labels = np.asarray(val.labels)
    logits = np.concatenate(batches)
    if getattr(model, "abstain", False):
        logits = logits[:, : int(labels.max()) + 1]
    correct = logits.argmax(axis=1) == labels
    conf = log_odds(logits)
    values = {
        "accuracy": float(correct.mean()),
        "aurc": metrics.aurc(correct, conf),
        "augrc": metrics.augrc(correct, conf),
    }
    try:
        values["fail_ap"] = metrics.average_precision(correct, conf, positive=False)
    except UndefinedMetric:
        values["fail_ap"] = math.nan  # there is no failure to find
    return values
