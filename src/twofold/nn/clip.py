"""Embeddings of images and class names by a CLIP network, for distances between data sets.

The networks are those of open_clip, with weights from a file: nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from twofold._checks import Array
from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.nn._torchvision import explain_torchvision
from twofold.nn.models.zero_shot import PROMPT
from twofold.nn.rows import ImageRows

TEXTS = "class_texts"  # name of the array with one row for each class


def embed(
    sets: Mapping[str, ImageRows],
    model: str,
    weights: str | Path | None,
    *,
    class_names: Sequence[str] = (),
    batch: int = 64,
    done: Callable[[str, int], object] = lambda name, rows: None,
) -> dict[str, Array]:
    """Embed the images of data sets, and class names, by a CLIP network of open_clip.

    Parameters
    ----------
    sets : mapping from str to data set
        Data sets of :mod:`twofold.nn.data` by name.
    model : str
        Name of the network in open_clip.
    weights : str, Path or None
        File of its weights; None leaves the network as it is initialised. Nothing is downloaded.
    class_names : sequence of str, default=()
        Names of classes to embed as ``"a photo of a NAME"``, underscores as spaces.
    batch : int, default=64
        Number of images in one pass.
    done : callable, optional
        Called as ``done(name, rows)`` after each batch, to show progress.

    Returns
    -------
    dict from str to numpy.ndarray of shape (N, D), float64
        One array for each data set and, with ``class_names``, the array ``class_texts`` with one row for each class.
        Rows are not normalised.

    Raises
    ------
    MissingExtra
        If open_clip is not installed, or the installed torchvision does not match torch.
    UnknownName
        If open_clip has no network of that name.
    InvalidInput
        If there is no file ``weights``.
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
    from PIL import Image

    pretrained = None if weights is None else str(weights)
    network, _, prepare = open_clip.create_model_and_transforms(model, pretrained=pretrained)
    network.eval()
    embeddings = {}
    with torch.no_grad():
        for name, images in sets.items():
            parts = []
            for start in range(0, len(images), batch):
                pixels = images.read(slice(start, min(start + batch, len(images))))
                inputs = torch.stack([prepare(Image.fromarray(image)) for image in pixels])
                parts.append(network.encode_image(inputs).numpy())
                done(name, len(pixels))
            embeddings[name] = np.concatenate(parts).astype(np.float64)
        if class_names:
            prompts = [PROMPT.format(name.replace("_", " ")) for name in class_names]
            tokens = open_clip.get_tokenizer(model)(prompts)
            embeddings[TEXTS] = network.encode_text(tokens).numpy().astype(np.float64)
    return embeddings
