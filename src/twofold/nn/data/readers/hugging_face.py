"""The reader of data sets of the Hugging Face ``datasets`` library; the network is not used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from twofold.errors import InvalidInput, MissingExtra
from twofold.nn.data.images import Images
from twofold.nn.data.readers.registry import reader
from twofold.nn.data.sources import TableSource


@reader("hf")
def _read_hugging_face(path: str, *, split: str = "test", image: str | None = None, label: str | None = None) -> Images:
    """Read a data set of the Hugging Face datasets library from a local folder or its cache, without the network."""
    table = _load_table(path, split)
    from datasets import ClassLabel, Image  # imported here, after a missing library has raised MissingExtra

    columns = table.features
    image = image or _first_column_of_type(columns, Image)
    if image is None:
        raise InvalidInput(f"hf:{path} has no column of images; its columns are {list(columns)}")
    if image not in columns:
        raise InvalidInput(f"hf:{path} has no image column {image}; its columns are {list(columns)}")
    label = label or _first_column_of_type(columns, ClassLabel)
    if label is not None and label not in columns:
        raise InvalidInput(f"hf:{path} has no label column {label}; its columns are {list(columns)}")
    has_class_names = label is not None and isinstance(columns[label], ClassLabel)
    return Images.of(
        TableSource(table, image, f"hf:{path}"),
        None if label is None else table[label][:],
        class_names=columns[label].names if has_class_names else None,
        name=f"{Path(path).name}-{split}",
    )


def _first_column_of_type(columns: Mapping[str, object], kind: type) -> str | None:
    for name, column in columns.items():
        if isinstance(column, kind):
            return name
    return None


def _load_table(path: str, split: str) -> Any:
    """Load a ``datasets.Dataset`` from disk or from the local cache."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("hf: needs the datasets library: pip install datasets") from error
    try:
        with _offline():
            if (Path(path) / "state.json").is_file():
                return datasets.load_from_disk(path)
            if (Path(path) / "dataset_dict.json").is_file():
                return datasets.load_from_disk(path)[split]
            return datasets.load_dataset(path, split=split)
    except KeyError as error:
        raise InvalidInput(f"hf:{path} has no split {split!r}") from error
    except Exception as error:  # the library raises its own and those of its back ends
        raise InvalidInput(
            f"hf:{path}?split={split} is neither a local data set nor in the local cache, or cannot be read "
            f"({type(error).__name__}: {error}); download it first, nothing is fetched here"
        ) from error


@contextmanager
def _offline() -> Iterator[None]:
    """Do for one call what HF_DATASETS_OFFLINE=1 and HF_HUB_OFFLINE=1 do."""
    import datasets.config
    import datasets.utils.logging as log
    import huggingface_hub.constants as hub

    flags: list[tuple[ModuleType, str]] = [
        (datasets.config, "HF_DATASETS_OFFLINE"),
        (datasets.config, "HF_HUB_OFFLINE"),
        (hub, "HF_HUB_OFFLINE"),
    ]
    before = [(module, name, getattr(module, name)) for module, name in flags if hasattr(module, name)]
    had_progress_bar = log.is_progress_bar_enabled()
    try:
        for module, name, _ in before:
            setattr(module, name, True)
        log.disable_progress_bar()
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        if had_progress_bar:
            log.enable_progress_bar()
