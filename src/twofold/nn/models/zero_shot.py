"""CLIP networks as classifiers: the last linear layer holds the embeddings of the class names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.nn._torchvision import explain_torchvision

PROMPT = "a photo of a {}"
OPTIONS = ("names", "prompt", "weights")


class ZeroShotClassifier(nn.Module):
    """Classify images by the cosines between their embedding and those of class names, times a factor.

    Parameters
    ----------
    encoder : nn.Module
        Turns normalised images (N, 3, H, W) into embeddings (N, D).
    texts : Tensor of shape (C, D)
        Embeddings of the class names.
    scale : float
        Factor of the cosines, 100 for CLIP.

    Examples
    --------
    >>> model = ZeroShotClassifier(nn.Flatten(), torch.eye(2, 12), 100.0)
    >>> model(torch.ones(1, 3, 2, 2)).shape
    torch.Size([1, 2])
    """

    def __init__(self, encoder: nn.Module, texts: Tensor, scale: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(texts.shape[1], len(texts), bias=False)
        with torch.no_grad():
            self.head.weight.copy_(scale * nn.functional.normalize(texts, dim=1))

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits of a batch of images.

        Parameters
        ----------
        images : Tensor of shape (N, 3, H, W)
            Normalised images.

        Returns
        -------
        Tensor of shape (N, C)
            Logits.
        """
        logits: Tensor = self.head(nn.functional.normalize(self.encoder(images), dim=1))
        return logits


class _Encoder(nn.Module):
    """Run a part of a CLIP network as a module of its own."""

    def __init__(self, network: nn.Module, encode: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.network = network
        self.encode = encode

    def forward(self, images: Tensor) -> Tensor:
        return self.encode(self.network, images)


def load_zero_shot(name: str, options: Mapping[str, object]) -> ZeroShotClassifier:
    """Build a zero-shot classifier from a CLIP network on disk and a file of class names.

    Parameters
    ----------
    name : str
        A folder of Hugging Face with a CLIP model and its tokenizer, or the name of a network in open_clip.
    options : mapping of str to object
        ``names``, a text file with one class name to a line; ``prompt``, the sentence around a name, by default ``a
        photo of a {}``; for open_clip also ``weights``, the file of its weights.

    Returns
    -------
    ZeroShotClassifier
        The classifier, in evaluation mode. Nothing is downloaded.

    Raises
    ------
    InvalidInput
        If an option is unknown, ``names`` is missing or empty, or a file or folder cannot be read.
    MissingExtra
        If transformers or open_clip is not installed.
    UnknownName
        If open_clip has no network of that name.
    """
    for key in options:
        if key not in OPTIONS:
            raise InvalidInput(f"clip:{name}: {UnknownName.of('option', key, OPTIONS)}")
    prompt = str(options.get("prompt", PROMPT))
    if "{}" not in prompt:
        raise InvalidInput(f"clip:{name}: prompt must have {{}} where the class name stands, got {prompt!r}")
    sentences = [prompt.format(one.replace("_", " ")) for one in _read_names(name, options.get("names"))]
    if Path(name).is_dir():
        return _load_hugging_face(name, sentences)
    return _load_open_clip(name, options.get("weights"), sentences)


def _read_names(name: str, file: object) -> list[str]:
    """Read class names, one to a line."""
    if not isinstance(file, str):
        raise InvalidInput(f"clip:{name} needs the names of the classes: write clip:{name}?names=FILE, one to a line")
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"clip:{name}: the names of the classes cannot be read from {file}") from error
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise InvalidInput(f"{file} holds no names of classes; write one to a line")
    return names


def _load_hugging_face(folder: str, sentences: Sequence[str]) -> ZeroShotClassifier:
    """Load a CLIP model of Hugging Face from a folder, and embed the sentences."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra('clip:FOLDER needs transformers: pip install "twofold[zoo]"') from error
    try:
        network: Any = transformers.CLIPModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InvalidInput(f"{folder} holds no CLIP model with its tokenizer: {reason}") from error
    network.eval()
    tokens = tokenizer(list(sentences), padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        pooled = network.text_model(tokens["input_ids"], tokens["attention_mask"]).pooler_output
        texts = network.text_projection(pooled)
        scale = float(network.logit_scale.exp())

    def encode(model: Any, images: Tensor) -> Tensor:
        embedding: Tensor = model.visual_projection(model.vision_model(images).pooler_output)
        return embedding

    return ZeroShotClassifier(_Encoder(network, encode), texts, scale).eval()


def _load_open_clip(name: str, weights: object, sentences: Sequence[str]) -> ZeroShotClassifier:
    """Build a CLIP network of open_clip, load its weights from a file, and embed the sentences."""
    with explain_torchvision(f"the CLIP network {name}"):
        try:
            import open_clip
        except ModuleNotFoundError as error:
            raise MissingExtra("CLIP networks need open_clip: pip install open_clip_torch") from error
    if name not in open_clip.list_models():
        raise UnknownName.of("folder or CLIP network", name, open_clip.list_models())
    if weights is None or not Path(str(weights)).is_file():
        raise InvalidInput(f"clip:{name} needs its weights on disk: write clip:{name}?weights=FILE&names=FILE")
    network, _, _ = open_clip.create_model_and_transforms(name, pretrained=str(weights))
    with torch.no_grad():
        texts = network.eval().encode_text(open_clip.get_tokenizer(name)(list(sentences)))
        scale = float(network.logit_scale.exp())

    def encode(model: Any, images: Tensor) -> Tensor:
        embedding: Tensor = model.encode_image(images)
        return embedding

    return ZeroShotClassifier(_Encoder(network, encode), texts, scale).eval()
