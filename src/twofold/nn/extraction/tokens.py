"""Texts as a sequence classifier takes them: split into tokens by its own tokenizer, in batches of similar length."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import nn

from twofold._checks import Labels
from twofold.errors import InvalidInput, MissingExtra, TruncatedTexts
from twofold.nn.data.texts import Texts
from twofold.nn.extraction.reading import InputBatch, RowReader
from twofold.nn.models.hugging_face import LOCAL_ONLY

Tokenizer: TypeAlias = Any  # of transformers, which has no types
BLOCK = 1024  # texts that are split at a time
UNLIMITED = 1_000_000  # a tokenizer without a limit of its own has a huge number
ROBERTA_START = 2  # RoBERTa and its relatives number positions from 2, so two fewer tokens fit


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Hold the tokens of many texts without padding.

    Parameters
    ----------
    arrays : dict of str to ndarray of int32, shape (tokens,)
        Inputs of the model by name (``input_ids``, ...), those of all texts one after the other.
    starts : ndarray of int64, shape (N + 1,)
        Where each text begins; the last number is the end of all.
    tokenizer : object
        The tokenizer, which pads batches.

    Examples
    --------
    >>> TokenRows({"input_ids": np.array([5, 6, 7], dtype=np.int32)}, np.array([0, 1, 3]), None).lengths
    array([1, 2])
    """

    arrays: dict[str, npt.NDArray[np.int32]]
    starts: npt.NDArray[np.int64]
    tokenizer: Tokenizer

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of tokens of each text.

        Batches are sorted by it.
        """
        return np.diff(self.starts)

    def batch(self, rows: Sequence[int]) -> dict[str, Any]:
        """Pad some texts to the longest of them.

        Parameters
        ----------
        rows : sequence of int
            Row numbers.

        Returns
        -------
        dict of str to Tensor, shape (B, T)
            Keyword arguments of the model.
        """
        encoded: dict[str, list[list[int]]] = {}
        for name, values in self.arrays.items():
            encoded[name] = [values[self.starts[row] : self.starts[row + 1]].tolist() for row in rows]
        return dict(self.tokenizer.pad(encoded, padding=True, return_tensors="pt"))


def load_tokenizer(model: nn.Module) -> Tokenizer:
    """Load the tokenizer that lies beside the weights of a Hugging Face model; nothing is downloaded.

    Parameters
    ----------
    model : torch.nn.Module
        A model of transformers.

    Returns
    -------
    object
        Its tokenizer.

    Raises
    ------
    InvalidInput
        If the model does not say where it was loaded from, or there is no tokenizer.
    MissingExtra
        If transformers is not installed.
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra('texts need transformers: pip install "twofold[zoo]"') from error
    folder = getattr(model, "name_or_path", "")
    if not folder:
        raise InvalidInput(
            f"{type(model).__name__} does not say where its tokenizer is; load the model from a folder, or pass the "
            "tokenizer as prepare="
        )
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, **LOCAL_ONLY)
    except Exception as error:  # transformers raises many kinds for a missing or damaged file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidInput(f"{folder} has no tokenizer that can be read; nothing is downloaded ({reason})") from error


def tokenize(texts: Sequence[str], tokenizer: Tokenizer, model: nn.Module, *, name: str = "texts") -> TokenRows:
    """Split texts into tokens; those that are too long for the model are cut off, with a warning that counts them.

    Parameters
    ----------
    texts : sequence of str
        The texts.
    tokenizer : object
        Tokenizer of the model.
    model : torch.nn.Module
        The model, which says how many tokens it takes.
    name : str, default="texts"
        What the data set is called in messages.

    Returns
    -------
    TokenRows
        The tokens.

    Raises
    ------
    InvalidInput
        If the tokenizer has no token for padding.

    Warns
    -----
    TruncatedTexts
        If texts were cut off.
    """
    if tokenizer.pad_token is None:
        raise InvalidInput("the tokenizer has no padding token; set tokenizer.pad_token, as the model was trained with")
    limit = find_token_limit(tokenizer, model)
    parts: dict[str, list[list[int]]] = {}
    truncated = 0
    for start in range(0, len(texts), BLOCK):
        block = list(texts[start : start + BLOCK])
        encoded = _encode(tokenizer, block, limit=None)
        for row, ids in enumerate(encoded["input_ids"]):
            if limit is not None and len(ids) > limit:
                truncated += 1
                shorter = _encode(tokenizer, [block[row]], limit=limit)
                for key, rows in encoded.items():
                    rows[row] = shorter[key][0]
        for key, rows in encoded.items():
            parts.setdefault(key, []).extend(rows)
    if truncated:
        warnings.warn(
            f"{name}: {truncated} of {len(texts)} texts have more than the {limit} tokens that the model takes, and "
            "were cut off",
            TruncatedTexts,
            stacklevel=2,
        )
    lengths = [len(ids) for ids in parts["input_ids"]]
    arrays = {}
    for key, rows in parts.items():
        arrays[key] = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows])
    return TokenRows(arrays, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), tokenizer)


def _encode(tokenizer: Tokenizer, texts: list[str], *, limit: int | None) -> dict[str, list[list[int]]]:
    """Split texts without padding; the attention mask is left out, because padding makes it."""
    cut = {"truncation": True, "max_length": limit} if limit is not None else {"truncation": False}
    encoded = tokenizer(texts, padding=False, return_attention_mask=False, verbose=False, **cut)
    return {key: list(rows) for key, rows in encoded.items()}


def find_token_limit(tokenizer: Tokenizer, model: nn.Module) -> int | None:
    """Find how many tokens a model takes: as many as its tokenizer says, else as many as it has positions for.

    Parameters
    ----------
    tokenizer : object
        Tokenizer of the model.
    model : torch.nn.Module
        The model.

    Returns
    -------
    int or None
        The limit; None if neither says one.
    """
    if tokenizer.model_max_length < UNLIMITED:
        return int(tokenizer.model_max_length)
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if isinstance(positions, int) and positions > ROBERTA_START:
        return positions - ROBERTA_START
    return None


def read_tokens(texts: Texts, tokenizer: Tokenizer | None, model: nn.Module, *, labelled: bool) -> RowReader:
    """Make a reader of texts, whose batches are sorted by length.

    Parameters
    ----------
    texts : Texts
        The data set.
    tokenizer : object or None
        The tokenizer; by default the model's own.
    model : torch.nn.Module
        A sequence classifier of transformers.
    labelled : bool
        Whether the classes are those of the model; otherwise they are ignored.

    Returns
    -------
    RowReader
        The reader; its class names are those of the model's configuration.

    Raises
    ------
    InvalidInput
        If the tokenizer is missing or cannot pad, or a label is none of the model's.
    """
    if tokenizer is None:
        tokenizer = load_tokenizer(model)
    labels: Labels | None = None
    if labelled:
        labels = texts.number_classes(label_numbers(model))
    tokens = tokenize(texts.texts, tokenizer, model, name=texts.name)

    def read(rows: Sequence[int]) -> InputBatch:
        numbers = np.asarray(rows)
        return InputBatch(tokens.batch(rows), None if labels is None else labels[numbers], texts.ids[numbers])

    return RowReader(len(texts), read, class_names_of(model), lengths=tokens.lengths)


def label_numbers(model: nn.Module) -> Mapping[str, int]:
    """Return the class numbers of a Hugging Face model by name.

    Parameters
    ----------
    model : torch.nn.Module
        The model.

    Returns
    -------
    dict of str to int
        ``label2id`` of its configuration.

    Raises
    ------
    InvalidInput
        If it has none.
    """
    found = getattr(getattr(model, "config", None), "label2id", None)
    if not found:
        raise InvalidInput(f"{type(model).__name__} has no config.label2id, so labels by name cannot be numbered")
    return {str(name): int(number) for name, number in found.items()}


def class_names_of(model: nn.Module) -> tuple[str, ...] | None:
    """Return the class names of a Hugging Face model in the order of its outputs.

    Parameters
    ----------
    model : torch.nn.Module
        The model.

    Returns
    -------
    tuple of str or None
        The names of ``id2label``; None if there are none, or they are the placeholders ``LABEL_0``, ``LABEL_1``, ...

    Examples
    --------
    >>> class_names_of(nn.Linear(2, 2)) is None
    True
    """
    found = getattr(getattr(model, "config", None), "id2label", None)
    if not found:
        return None
    names = [str(found[number]) for number in sorted(found, key=int)]
    placeholders = [f"LABEL_{number}" for number in range(len(names))]
    if names == placeholders or len(set(names)) < len(names):
        return None
    return tuple(names)
