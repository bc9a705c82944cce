"""Classifiers of Hugging Face from a folder or the local cache; code that a folder brings is never run."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from twofold._files import replacing
from twofold.errors import InvalidInput, MissingExtra
from twofold.nn._torchvision import find_import_problem
from twofold.nn.models.checkpoint import LoadedWeights

LOCAL_ONLY = {"local_files_only": True, "trust_remote_code": False}


def load_hugging_face(
    name: str, classes: int | None, *, weights: bool, new_head: bool = False
) -> tuple[nn.Module, LoadedWeights | None]:
    """Build a classifier of Hugging Face with its own weights, or without them when a checkpoint will follow.

    Parameters
    ----------
    name : str
        A folder, or a name in the local cache.
    classes : int or None
        Number of classes; None leaves that of the configuration.
    weights : bool
        Whether to load the weights of the folder.
    new_head : bool, default=False
        Whether the weights may be those of a classifier for other classes, or of a network without a head.

    Returns
    -------
    model : torch.nn.Module
        The classifier.
    loaded : LoadedWeights or None
        What was loaded, with ``weights``.

    Raises
    ------
    InvalidInput
        If there is no such folder, it needs its own code, is not a classifier, or its weights do not fit.
    MissingExtra
        If transformers is not installed.
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtra(f'hf:{name} needs transformers: pip install "twofold[zoo]"') from error
    config = _load_config(name, classes)
    auto_class = _find_auto_class(config)
    if auto_class is None:
        raise InvalidInput(f"hf:{name} is a {config.model_type}, which is not an image or sequence classifier")
    with _quiet(transformers):
        if not weights:
            return auto_class.from_config(config, trust_remote_code=False), None
        try:
            model, info = auto_class.from_pretrained(
                name, config=config, output_loading_info=True, ignore_mismatched_sizes=True, **LOCAL_ONLY
            )
        except Exception as error:  # transformers and safetensors raise many kinds for a missing or damaged file
            if find_import_problem() is not None and "torchvision" in _join_messages(error):
                raise
            raise InvalidInput(f"hf:{name} has no weights that can be read: {_first_line(error)}") from error
    mismatched = [key for key, *_ in info["mismatched_keys"]]
    untrained = sorted({*info["missing_keys"], *mismatched})
    if untrained and not new_head:
        listed = ", ".join(untrained[:3])
        raise InvalidInput(
            f"hf:{name} has no trained values for {listed}; is it a classifier that was trained? With a new head "
            "(--new-head), all but the head are loaded"
        )
    loaded = tuple(key for key in model.state_dict() if key not in untrained)
    skipped = tuple(sorted({*info["unexpected_keys"], *mismatched}))
    return model, LoadedWeights(loaded, skipped, tuple(untrained))


def write_config(model: nn.Module, folder: Path) -> None:
    """Write the configuration of a network of Hugging Face beside its weights, as ``config.json``.

    Parameters
    ----------
    model : torch.nn.Module
        The network, or one that twofold made of it.
    folder : Path
        The folder, which exists.
    """
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "to_json_string"):
            with replacing(folder / "config.json") as file:
                file.write(config.to_json_string(use_diff=False).encode())
            return


def _load_config(name: str, classes: int | None) -> Any:
    """Load the configuration of a Hugging Face model, which must not bring its own code."""
    import transformers

    try:
        content, _ = transformers.PretrainedConfig.get_config_dict(name, local_files_only=True)
        _check_no_own_code(name, content, known=transformers.CONFIG_MAPPING)
        config = transformers.AutoConfig.from_pretrained(name, **LOCAL_ONLY)
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"hf:{name} is not a folder with a config.json and not in the local cache, or its config is damaged; "
            f"nothing is downloaded ({_first_line(error)})"
        ) from error
    if classes is not None and config.num_labels != classes:
        config.num_labels = classes  # which renames the classes, too
    return config


def _find_auto_class(config: object) -> Any:
    """Find the class of transformers that builds a classifier of this configuration, or return None."""
    import transformers
    from transformers.models.auto import modeling_auto

    if type(config) in modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
        return transformers.AutoModelForImageClassification
    if type(config) in modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return transformers.AutoModelForSequenceClassification
    return None


def _check_no_own_code(name: str, content: Mapping[str, object], *, known: Container[object]) -> None:
    """Raise if a model can be built only by code that its folder brings, or asks for code from elsewhere."""
    origin = None
    if content.get("auto_map") and content.get("model_type") not in known:
        origin = "its folder"
    for key, value in content.items():
        is_kernel = key.strip("_").startswith("attn_implementation")
        if is_kernel and "/" in str(value):  # transformers fetches and runs such kernels
            origin = "another repository"
    if origin is not None:
        raise InvalidInput(
            f"hf:{name} needs code from {origin}, which twofold never runs; build the model in a file of your own, "
            "after reading that code, and pass file.py:function"
        )


@contextmanager
def _quiet(transformers: ModuleType) -> Iterator[None]:
    """Silence progress bars and the report of missing keys, which becomes an error here."""
    logging = transformers.utils.logging
    had_progress_bar = logging.is_progress_bar_enabled()
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_progress_bar:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _join_messages(error: BaseException | None) -> str:
    """Return the messages of an error and of all that caused it."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(texts)
