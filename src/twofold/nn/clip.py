"""Embeddings of images and class names by a CLIP network, for distances between data sets.

The networks are those of open_clip, with weights from a file: nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from twofold._checks import Array
from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.nn._torchvision import explain_torchvision

TEXTS = "class_texts"  # name of the array with one row for each class
PROMPT = "a photo of a {}"


def embed(
    sets: Mapping[str, Any],
    model: str,
    weights: str | Path | None,
    *,
    class_names: Sequence[str] = (),
    batch: int = 64,
    done: Callable[[str, int], Any] = lambda name, rows: None,
) -> dict[str, Array]:
    """One array of rows for each data set of :mod:`twofold.nn.data`, and ``class_texts`` where classes have names.

    ``model`` is a name of open_clip, ``weights`` its file; None leaves the network as it is initialised.
    """
    with explain_torchvision(f"the CLIP network {model}"):
        try:
            import open_clip
        except ModuleNotFoundError as error:
            raise MissingExtra("CLIP networks need open_clip: pip install open_clip_torch") from error
    if model not in open_clip.list_models():
        raise UnknownName.of("CLIP network", model, open_clip.list_models())
    if weights is not None and not Path(weights).is_file():
        raise InvalidInput(f"there is no file {weights}; give the weights of {model} on disk, nothing is downloaded")
    pretrained = None if weights is None else str(weights)
    network, _, prepare = open_clip.create_model_and_transforms(model, pretrained=pretrained)
    network.eval()
    found = {}
    with torch.no_grad():
        for name, images in sets.items():
            parts = []
            for start in range(0, len(images), batch):
                rows = images.read(slice(start, min(start + batch, len(images))))
                parts.append(network.encode_image(torch.stack([prepare(_picture(row)) for row in rows])).numpy())
                done(name, len(rows))
            found[name] = np.concatenate(parts).astype(np.float64)
        if class_names:
            words = open_clip.get_tokenizer(model)([PROMPT.format(one.replace("_", " ")) for one in class_names])
            found[TEXTS] = network.encode_text(words).numpy().astype(np.float64)
    return found


def _picture(row: Any) -> Any:
    from PIL import Image

    return Image.fromarray(row)
