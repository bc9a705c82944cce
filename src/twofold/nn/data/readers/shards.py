"""The reader of tar shards in the layout of WebDataset."""

from __future__ import annotations

from pathlib import Path

from twofold.errors import InvalidInput
from twofold.nn.data.image_files import check_path
from twofold.nn.data.images import Images
from twofold.nn.data.readers.registry import reader
from twofold.nn.data.shards import RANGE, ShardSource, index_shards, list_shards


@reader("shards")
def _read_shards(path: str, *, label: str = "label", names: str | None = None) -> Images:
    """Read tar files in the layout of WebDataset: ``000001.jpg`` beside ``000001.cls`` or ``000001.json``.

    PATH is a tar file, a folder of them, a glob, or a range such as ``train-{0000..0009}.tar``. ``label`` is the key in
    .json members; ``names`` is a text file with a class name on each line. Headers are read once; images are then read
    by their offset, without unpacking. Links, paths outside, pickles and oversized members are rejected.
    """
    index = index_shards(list_shards(path), label=label)
    class_names = None
    if names is not None:
        lines = check_path(Path(names), "file of class names", folder=False).read_text(encoding="utf-8").splitlines()
        class_names = [line.strip() for line in lines if line.strip()]
    if len(set(index.keys)) < len(index.keys):
        ids = [f"{shard}/{key}" for shard, key in zip(index.shards.tolist(), index.keys, strict=True)]
    else:
        ids = index.keys
    if (index.labels < 0).any() and (index.labels >= 0).any():
        row = int((index.labels < 0).argmax())
        raise InvalidInput(f"{ShardSource(index).where(row)} has no label, but others have; add .cls or .json to each")
    name = RANGE.sub("", Path(path).stem).strip("-_*.") or Path(path).parent.name
    return Images.of(ShardSource(index), index.labels, ids=ids, class_names=class_names, name=name)
