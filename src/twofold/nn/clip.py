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
    prompts: Sequence[str] = (),
    device: str = "cpu",
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
        Names of classes to embed, underscores as spaces.
    prompts : sequence of str, default=()
        Texts with ``{}`` for the name of a class; the embeddings of several are averaged. By default
        ``"a photo of a {}"``.
    device : str, default="cpu"
        Where the network runs, such as ``"cuda"``.
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
        If there is no file ``weights``, or a prompt has no ``{}``.
    """
    templates = tuple(prompts) or (PROMPT,)
    for template in templates:
        if template.count("{}") != 1:
            raise InvalidInput(f"a prompt must have {{}} once, for the name of a class, got {template!r}")
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
    network.eval().to(device)
    embeddings = {}
    with torch.no_grad():
        for name, images in sets.items():
            parts = []
            for start in range(0, len(images), batch):
                pixels = images.read(slice(start, min(start + batch, len(images))))
                inputs = torch.stack([prepare(Image.fromarray(image)) for image in pixels])
                parts.append(network.encode_image(inputs.to(device)).cpu().numpy())
                done(name, len(pixels))
            embeddings[name] = np.concatenate(parts).astype(np.float64)
        if class_names:
            tokenizer = open_clip.get_tokenizer(model)
            by_template = []
            for template in templates:
                texts = [template.replace("{}", name.replace("_", " ")) for name in class_names]
                by_template.append(network.encode_text(tokenizer(texts).to(device)).cpu().numpy())
            embeddings[TEXTS] = np.mean(by_template, axis=0, dtype=np.float64)
    return embeddings
