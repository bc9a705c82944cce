"""The reader of texts for sequence classifiers."""

from __future__ import annotations

from twofold.nn.data.readers.registry import reader
from twofold.nn.data.texts import Texts, read_texts


@reader("text")
def _read_text_file(path: str, *, text: str = "text", label: str | None = None) -> Texts:
    """Read texts from a JSON-lines (.jsonl, .jsonl.gz), CSV (.csv, .csv.gz) or Parquet file, in the order of the file.

    ``text`` and ``label`` name the columns; without a column ``label`` no text has a class. A label is a name, which
    the model's own ``label2id`` numbers, or a number; null (in CSV an empty cell) is no class. Of the shared keys,
    ``shuffle``, ``rows``, ``limit``, ``sample``, ``seed`` and ``name`` apply.
    """
    return read_texts(path, text, label)
