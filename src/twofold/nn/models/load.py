"""Models from one string: timm, torchvision, Hugging Face, a Python file, or the zoo. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from ast import literal_eval
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from torch import Tensor, nn

from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.nn._torchvision import explain_torchvision, find_import_problem
from twofold.nn.models.checkpoint import load_parameters, read_parameters
from twofold.nn.models.zoo import ZOO, build

ZOO_OPTIONS = (
    "classes",
    "dropout",
    "head",
    "confidence",
    "abstain",
    "in_channels",
    "scale",
    "learn_scale",
    "seed",
)
DOWNLOADS = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "weights", "weights_backbone")
FORMS = "timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, file.py:function"
LIBRARIES = ("timm", "torchvision", "hf")
LOCAL_ONLY = {"local_files_only": True, "trust_remote_code": False}
ModelOptions: TypeAlias = dict[str, Any]  # keyword arguments of a constructor, most of them another library's


def load(
    spec: str, *, classes: int | None = None, checkpoint: str | Path | None = None, head: str | None = None
) -> nn.Module:
    """Build the model that a string names, in evaluation mode, and load a checkpoint into it.

    ============================  ====================================================================================
    ``timm:NAME``                 a timm architecture without weights; ``?`` options are its own (``?img_size=32``)
    ``torchvision:NAME``          a torchvision classifier without weights, likewise
    ``hf:NAME_OR_FOLDER``         an image or sequence classifier from a folder or the local cache, with its weights;
                                  code that a folder brings is never run
    ``file.py:function``          what the function returns when called without arguments
    ``resnet18_32?classes=10``    a network of the zoo; options are those of :func:`build`
    ============================  ====================================================================================

    Parameters
    ----------
    spec : str
        Which model to build, in one of the forms above.
    classes : int, optional
        Number of classes, where the source lets one choose it. For the zoo it may be left to the checkpoint.
    checkpoint : str or Path, optional
        File of trained parameters: safetensors, an npz of parameters, or a torch file with a state_dict. Its parameters
        must all fit.
    head : {"linear", "cosine"}, optional
        Last layer, for networks of the zoo only.

    Returns
    -------
    torch.nn.Module
        The model in evaluation mode.

    Raises
    ------
    InvalidInput
        If the spec is malformed, its options contradict the arguments, the source cannot build the model, or the
        checkpoint cannot be read or does not fit.
    UnknownName
        If there is no model, option or function of that name.
    MissingExtra
        If the library that the spec names is not installed, or the installed torchvision does not match torch.

    Notes
    -----
    Weights are never fetched: without a checkpoint, timm, torchvision and zoo models have the values they were
    initialised with.

    Examples
    --------
    >>> model = load("resnet8_cifar?classes=10")
    >>> type(model).__name__, model.training
    ('CifarResNet', False)
    """
    if not isinstance(spec, str) or not spec:
        raise InvalidInput(f"spec must be a string such as {FORMS}, or a network of the zoo; got {spec!r}")
    kind, colon, name = spec.partition(":")
    is_file = Path(spec.rpartition(":")[0]).suffix == ".py"
    if colon and kind not in LIBRARIES and not is_file:
        raise InvalidInput(f"{spec!r}: no kind of model {kind!r}; known are {FORMS}, and the names of the zoo")
    if colon and head is not None:
        raise InvalidInput(f"head={head!r} chooses the last layer of a network of the zoo; {spec} has its own")
    parameters = None if checkpoint is None else read_parameters(checkpoint)
    if not colon:
        model: nn.Module = _build_zoo(spec, classes, head, parameters)
    elif kind in LIBRARIES:
        with explain_torchvision(spec):
            if kind == "timm":
                model = _build_timm(name, classes)
            elif kind == "torchvision":
                model = _build_torchvision(name, classes)
            else:
                model = _load_hugging_face(name, classes, weights=parameters is None)
    else:
        model = _build_from_file(spec, classes)
    if parameters is not None:
        load_parameters(model, parameters, source=str(checkpoint), expected=spec)
    return model.eval()


def _parse_options(text: str, spec: str) -> tuple[str, ModelOptions]:
    """Split ``NAME?a=1&b=x`` into the name and its options; values are Python literals, or else text."""
    name, _, query = text.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise InvalidInput(f"{spec!r}: options are written name=value, joined by &, got {query!r}") from error
    options: ModelOptions = {}
    for key, value in pairs:
        if key in options:
            raise InvalidInput(f"{spec!r} gives an option twice")
        options[key] = _parse_literal(value)
    return name, options


def _parse_literal(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _add_option(options: ModelOptions, name: str, value: object, spec: str) -> None:
    """Add an argument to the options of a spec, which must not contradict it."""
    if value is None:
        return
    if options.setdefault(name, value) != value:
        raise InvalidInput(f"{spec!r} has {name}={options[name]!r} and the argument {name} is {value!r}; give one")


def _build_zoo(spec: str, classes: int | None, head: str | None, parameters: Mapping[str, Tensor] | None) -> nn.Module:
    """Build a network of the zoo; without a number of classes it is that of the parameters."""
    name, options = _parse_options(spec, spec)
    if name not in ZOO:
        raise UnknownName.of("network", name, ZOO)
    for key in options:
        if key not in ZOO_OPTIONS:
            raise UnknownName.of(f"option of {name}", key, ZOO_OPTIONS)
    _add_option(options, "classes", classes, spec)
    _add_option(options, "head", head, spec)
    if "classes" not in options:
        if parameters is None or "linear.weight" not in parameters:
            raise InvalidInput(f"how many classes? write {name}?classes=10, or pass classes= or a checkpoint of it")
        options["classes"] = len(parameters["linear.weight"])
        if options.get("abstain"):
            options["classes"] -= 1
    return build(name, **options)


def _parse_library_options(text: str, library: str, classes: int | None) -> tuple[str, ModelOptions]:
    """Return name and options of a timm or torchvision model; options that would fetch weights are rejected."""
    spec = f"{library}:{text}"
    name, options = _parse_options(text, spec)
    for key in options:
        if key in DOWNLOADS:
            raise InvalidInput(f"{spec}: {key} would fetch or unpickle weights; pass checkpoint= with a file")
    if "classes" in options:
        options["num_classes"] = options.pop("classes")
    _add_option(options, "num_classes", classes, spec)
    return name, options


def _construct(make: Callable[..., nn.Module], library: str, name: str, options: ModelOptions) -> nn.Module:
    """Call a library's constructor and turn what it rejects into an error about the caller's options."""
    try:
        return make(name, **options)
    except (TypeError, ValueError, KeyError, AssertionError, RuntimeError) as error:
        raise InvalidInput(f"{library} cannot build {name} with {options}: {error}") from error


def _build_timm(text: str, classes: int | None) -> nn.Module:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise MissingExtra(f'timm:{text} needs {error.name or "timm"}: pip install "twofold[zoo]"') from error
    name, options = _parse_library_options(text, "timm", classes)
    if not timm.is_model(name):
        raise UnknownName.of("timm model", name, timm.list_models())
    return _construct(timm.create_model, "timm", name, {"pretrained": False, **options})


def _build_torchvision(text: str, classes: int | None) -> nn.Module:
    try:
        from torchvision import models
    except ModuleNotFoundError as error:
        raise MissingExtra(f'torchvision:{text} needs torchvision: pip install "twofold[zoo]"') from error
    name, options = _parse_library_options(text, "torchvision", classes)
    known = models.list_models(module=models)
    if name not in known:
        raise UnknownName.of("torchvision classifier", name, known)
    return _construct(models.get_model, "torchvision", name, {"weights": None, **options})


# --- Hugging Face ---------------------------------------------------------------------------------------------------


def _load_hugging_face(name: str, classes: int | None, *, weights: bool) -> nn.Module:
    """Build a Hugging Face classifier with all its own weights, or without them when a checkpoint will follow."""
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
            return auto_class.from_config(config, trust_remote_code=False)
        try:
            model, info = auto_class.from_pretrained(name, config=config, output_loading_info=True, **LOCAL_ONLY)
        except Exception as error:  # transformers and safetensors raise many kinds for a missing or damaged file
            if find_import_problem() is not None and "torchvision" in _join_messages(error):
                raise
            raise InvalidInput(f"hf:{name} has no weights that can be read: {_first_line(error)}") from error
    untrained = [*info["missing_keys"]]
    for key, *_ in info["mismatched_keys"]:
        untrained.append(key)
    if untrained:
        listed = ", ".join(sorted(untrained)[:3])
        raise InvalidInput(f"hf:{name} has no trained values for {listed}; is it a classifier that was trained?")
    return model


def _load_config(name: str, classes: int | None) -> Any:
    """Load the configuration of a Hugging Face model, which must not bring its own code."""
    import transformers

    options = {} if classes is None else {"num_labels": classes}
    try:
        content, _ = transformers.PretrainedConfig.get_config_dict(name, local_files_only=True)
        _check_no_own_code(name, content, known=transformers.CONFIG_MAPPING)
        return transformers.AutoConfig.from_pretrained(name, **LOCAL_ONLY, **options)
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"hf:{name} is not a folder with a config.json and not in the local cache, or its config is damaged; "
            f"nothing is downloaded ({_first_line(error)})"
        ) from error


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


# --- Python files ---------------------------------------------------------------------------------------------------


def _build_from_file(spec: str, classes: int | None) -> nn.Module:
    """Return the model that a function in a Python file returns."""
    file, _, function = spec.rpartition(":")
    if classes is not None:
        raise InvalidInput(f"classes={classes} cannot be passed on to {spec}; the function takes no arguments")
    path = Path(file).resolve()
    if not path.is_file():
        raise InvalidInput(f"{spec}: there is no file {file}")
    with _import_path(path.parent):
        module = _import_file(path)
        make = getattr(module, function, None)
        if not callable(make):
            raise UnknownName.of(f"function in {file}", function, _list_functions(module))
        try:
            model = make()
        except TypeError as error:
            raise InvalidInput(f"{spec} could not be called without arguments: {error}") from error
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"{spec} must return a torch.nn.Module, got {type(model).__name__}")
    return model


def _list_functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


@contextmanager
def _import_path(folder: Path) -> Iterator[None]:
    """Put the folder first on the import path, so that a file finds its neighbours."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _import_file(path: Path) -> ModuleType:
    """Import a Python file as a module with its own name, executed again each time."""
    name = f"_twofold_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidInput(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
    return module
