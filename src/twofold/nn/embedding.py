"""Embeddings of images by the features of a classifier, for distances between data sets where there is no CLIP network.

The classes of the network need not be those of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from twofold._checks import Array
from twofold.nn.extraction.prepare import Prepare
from twofold.nn.models.head import Classifier
from twofold.nn.models.load import load
from twofold.nn.rows import ImageRows


def embed_features(
    sets: Mapping[str, ImageRows],
    model: str,
    checkpoint: str | Path | None = None,
    *,
    normalise: str = "none",
    device: str = "cpu",
    batch: int = 64,
    done: Callable[[str, int], object] = lambda name, rows: None,
) -> dict[str, Array]:
    """Compute the penultimate features of the images of data sets.

    Parameters
    ----------
    sets : mapping from str to data set
        Data sets of :mod:`twofold.nn.data` by name.
    model : str
        A network, as :func:`twofold.nn.load` takes it.
    checkpoint : str or Path, optional
        Its weights.
    normalise : str, default="none"
        Channel statistics by name, such as ``"cifar10"``.
    device : str, default="cpu"
        Where the network runs.
    batch : int, default=64
        Number of images in one pass.
    done : callable, optional
        Called as ``done(name, rows)`` after each batch, to show progress.

    Returns
    -------
    dict from str to numpy.ndarray of shape (N, D), float64
        The features of each data set.

    Raises
    ------
    InvalidInput
        If the network or its weights cannot be loaded.
    """
    network = load(model, checkpoint=checkpoint).eval().to(device)
    classifier = Classifier(network)
    prepare = Prepare.named(normalise)
    embeddings = {}
    with torch.no_grad():
        for name, images in sets.items():
            parts = []
            for start in range(0, len(images), batch):
                pixels = images.read(slice(start, min(start + batch, len(images))))
                captured = classifier(prepare(pixels).to(device))
                parts.append(captured.features.cpu().numpy())
                done(name, len(pixels))
            embeddings[name] = np.concatenate(parts).astype(np.float64)
    return embeddings
