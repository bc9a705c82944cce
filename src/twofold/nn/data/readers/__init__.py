"""Readers of data sets, one function for each kind; its keyword-only parameters are the keys that the kind knows."""

from twofold.nn.data.readers import (  # noqa: F401  # they register their kinds
    arrays,
    folders,
    hugging_face,
    noise,
    shards,
    texts,
)
from twofold.nn.data.readers.registry import READERS, Reader, reader

__all__ = ["READERS", "Reader", "reader"]
