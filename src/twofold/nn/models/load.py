"""Models from text: timm, torchvision, Hugging Face, a Python file, the zoo, trainings; nothing is downloaded."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl

import torch
from torch import Tensor, nn

from twofold._checks import whole
from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.nn._torchvision import explain_torchvision
from twofold.nn.models.adapted import AdaptedNetwork, adapt, default_scale, find_head
from twofold.nn.models.checkpoint import LoadedWeights, load_parameters, read_parameters
from twofold.nn.models.description import (
    MODEL_FILE,
    NetworkDescription,
    read_description,
    remember_description,
)
from twofold.nn.models.head import find_named_head
from twofold.nn.models.hugging_face import load_hugging_face
from twofold.nn.models.parts import HeadKind, Options
from twofold.nn.models.python_file import build_from_file
from twofold.nn.models.zero_shot import load_zero_shot
from twofold.nn.models.zoo import TRANSFORMERS, ZOO, build, is_transformer

ZOO_OPTIONS = (
    "classes",
    "dropout",
    "dropout_at",
    "head",
    "confidence",
    "abstain",
    "in_channels",
    "scale",
    "learn_scale",
    "seed",
)
DOWNLOADS = ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "weights", "weights_backbone")
FORMS = "timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, clip:FOLDER?names=FILE, file.py:function"
LIBRARIES = ("timm", "torchvision", "hf", "clip")
HEAD, BRANCH = "linear", "confidence"  # modules that a network of the zoo, or an adapted one, gets as new layers
ModelOptions: TypeAlias = dict[str, Any]  # keyword arguments of a constructor, most of them another library's
Report: TypeAlias = Callable[[LoadedWeights], object]


@dataclass(frozen=True)
class _Request:
    """What a caller asks of a network; None leaves it to the network or to the checkpoint."""

    classes: int | None = None
    head: HeadKind | None = None
    scale: float | None = None
    learn_scale: bool | None = None
    dropout: float | None = None
    dropout_at: Literal["blocks", "head"] | None = None
    abstain: bool | None = None
    confidence: Literal["devries", "confidnet"] | None = None
    head_layer: str | None = None

    def filled_from(self, described: NetworkDescription, *, skip: tuple[str, ...] = ()) -> _Request:
        """Take what was not asked for from the description of a trained network."""
        changes: dict[str, Any] = {}
        for field in fields(self):
            if getattr(self, field.name) is None and field.name not in skip:
                changes[field.name] = getattr(described, field.name)
        return replace(self, **changes)

    def options(self, classes: int, model: nn.Module) -> Options:
        """Return the options of head and branches of a network from elsewhere."""
        return Options(
            classes,
            dropout=self.dropout or 0.0,
            head=self.head or "linear",
            confidence=self.confidence,
            abstain=bool(self.abstain),
            scale=default_scale(model) if self.scale is None else self.scale,
            learn_scale=bool(self.learn_scale),
        )

    @property
    def needs_own_head(self) -> bool:
        """Whether a network from elsewhere must get a head of twofold's."""
        return self.head not in (None, "linear") or bool(self.abstain or self.confidence or self.dropout)


def load(
    spec: str,
    *,
    classes: int | None = None,
    checkpoint: str | Path | None = None,
    head: HeadKind | None = None,
    new_head: bool = False,
    scale: float | None = None,
    learn_scale: bool | None = None,
    dropout: float | None = None,
    dropout_at: Literal["blocks", "head"] | None = None,
    abstain: bool | None = None,
    confidence: Literal["devries", "confidnet"] | None = None,
    head_layer: str | None = None,
    size: int | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> nn.Module:
    """Build the model that a string names, in evaluation mode, and load a checkpoint into it.

    ============================  ====================================================================================
    ``timm:NAME``                 a timm architecture without weights; ``?`` options are its own (``?img_size=32``)
    ``torchvision:NAME``          a torchvision classifier without weights, likewise
    ``hf:NAME_OR_FOLDER``         an image or sequence classifier from a folder or the local cache, with its weights;
                                  code that a folder brings is never run
    ``clip:FOLDER?names=FILE``    a CLIP model of Hugging Face as a zero-shot classifier of the class names in the file;
                                  ``clip:ViT-B-32?weights=FILE&names=FILE`` one of open_clip
    ``file.py:function``          what the function returns when called without arguments
    ``resnet18_32?classes=10``    a network of the zoo; options are those of :func:`build`
    ``vit_base_patch16_224``      a transformer of timm by its plain name (``vit_*``, ``deit_*``)
    a folder                      what :func:`twofold.nn.train` left there, built as its ``model.json`` says
    ============================  ====================================================================================

    Parameters
    ----------
    spec : str
        Which model to build, in one of the forms above.
    classes : int, optional
        Number of classes, where the source lets one choose it. For the zoo it may be left to the checkpoint.
    checkpoint : str or Path, optional
        Trained parameters: safetensors, an npz of parameters, a torch file with a state_dict, or a folder of a training
        or of Hugging Face. They must all fit, but for the head with ``new_head``.
    head : {"linear", "cosine", "unit", "prototypes"}, optional
        Kind of the last layer.
    new_head : bool, default=False
        Load every weight but those of the last layer and of a confidence branch, for another number of classes or
        another kind of head.
    scale : float, optional
        Scale of a head that takes unit vectors; by default 8, or 64 for networks with attention layers, as in SURE.
    learn_scale : bool, optional
        Whether that scale is learnt; by default it is not.
    dropout : float, optional
        Rate of dropout; by default none is added.
    dropout_at : {"blocks", "head"}, optional
        Where dropout is: at the sites of the zoo's architecture, or in every dropout layer that another network has; or
        on the feature before the head alone. By default the former where there are such sites, else the latter.
    abstain : bool, optional
        Whether to add an abstention output; by default there is none.
    confidence : {"devries", "confidnet"}, optional
        Confidence branch; by default there is none.
    head_layer : str, optional
        Name of the last linear layer of a network that is not the zoo's; by default it is found.
    size : int, optional
        Height and width of the images by which the last layer is found; by default the network's own, 224 or 32.
    seed : int, default=0
        Seed of initial weights. The global random state is left unchanged.
    report : callable, optional
        Called with a :class:`LoadedWeights` once a checkpoint is loaded: what was loaded, skipped and initialised.

    Returns
    -------
    torch.nn.Module
        The model in evaluation mode.

    Raises
    ------
    InvalidInput
        If the spec is malformed, its options contradict the arguments, the source cannot build the model, or the
        checkpoint cannot be read or does not fit; if no layer, or several, could be the head that is to be replaced.
    UnknownName
        If there is no model, option or function of that name.
    MissingExtra
        If the library that the spec names is not installed, or the installed torchvision does not match torch.
    RunError
        If the ``model.json`` of a folder is damaged.

    Notes
    -----
    Weights are never fetched: without a checkpoint, timm, torchvision and zoo models have the values they were
    initialised with. Another kind of head, dropout, an abstention output or a confidence branch is put on networks from
    elsewhere by replacing their last linear layer; their parameters are then named as before, below ``backbone``.

    Examples
    --------
    >>> model = load("resnet8_cifar?classes=10")
    >>> type(model).__name__, model.training
    ('CifarResNet', False)
    """
    if not isinstance(spec, str) or not spec:
        raise InvalidInput(f"spec must be a string such as {FORMS}, or a network of the zoo; got {spec!r}")
    asked = _Request(classes, head, scale, learn_scale, dropout, dropout_at, abstain, confidence, head_layer)
    folder = Path(spec)
    if folder.is_dir():
        described = _describe_folder(folder)
        spec = described.model
        if not new_head:
            _check_no_contradiction(asked, described, folder)
        asked = asked.filled_from(described, skip=("classes",) if new_head else ())
        checkpoint = checkpoint or folder
    elif checkpoint is not None and not new_head and (Path(checkpoint) / MODEL_FILE).is_file():
        written = read_description(checkpoint)
        if written is not None and written.network is not None:
            asked = asked.filled_from(written.network)
    kind, colon, name = spec.partition(":")
    if not colon and is_transformer(spec):
        kind, colon, name = "timm", ":", spec
    is_file = Path(spec.rpartition(":")[0]).suffix == ".py"
    if colon and kind not in LIBRARIES and not is_file:
        raise InvalidInput(f"{spec!r}: no kind of model {kind!r}; known are {FORMS}, and the names of the zoo")
    if new_head and checkpoint is None and kind != "hf" and not is_file:
        raise InvalidInput(f"a new head needs weights for the rest of {spec}; pass them with --checkpoint")
    weights = None
    if checkpoint is not None:
        weights = _Weights(read_parameters(checkpoint), str(checkpoint), new_head)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(whole(seed, "seed", 0))
        if not colon:
            model, loaded = _load_zoo(spec, asked, weights, seed)
        else:
            source = _Source(kind, str(folder) if spec == "hf:." else name, spec)
            model, loaded = _load_elsewhere(source, asked, weights, new_head=new_head, size=size, seed=seed)
    if loaded is not None and report is not None:
        report(loaded)
    return model.eval()


@dataclass(frozen=True)
class _Weights:
    """Parameters of a checkpoint, what it is called, and whether its head is left out."""

    parameters: Mapping[str, Tensor]
    source: str
    new_head: bool

    @property
    def are_adapted(self) -> bool:
        """Whether they are of a network from elsewhere with a head of twofold's."""
        has_backbone = any(key.startswith("backbone.") for key in self.parameters)
        return has_backbone and f"{HEAD}.weight" in self.parameters


@dataclass(frozen=True)
class _Source:
    """Where a network comes from: its library or Python file, its name there, and the whole text."""

    kind: str
    name: str
    spec: str

    @property
    def is_file(self) -> bool:
        return self.kind not in LIBRARIES


def _describe_folder(folder: Path) -> NetworkDescription:
    """Return what a training folder says about its network, or raise if that is not enough to build it."""
    weights = f"--checkpoint {folder}"
    if (folder / "member-0" / MODEL_FILE).is_file():
        raise InvalidInput(f"{folder} holds the members of an ensemble; name one of them, such as {folder}/member-0")
    written = read_description(folder)
    if written is None:
        raise InvalidInput(f"{folder} has no {MODEL_FILE}, so its network is not known; name it and pass {weights}")
    if written.network is None:
        raise InvalidInput(
            f"{folder} was trained from a module of your own; write a function that builds it, and pass "
            f"file.py:function with {weights}"
        )
    if written.network.is_code:
        raise InvalidInput(
            f"{folder} was trained from {written.network.model}, which is code and not run unasked; name it and pass "
            f"{weights}"
        )
    return written.network


def _check_no_contradiction(asked: _Request, described: NetworkDescription, folder: Path) -> None:
    for field in fields(asked):
        value = getattr(asked, field.name)
        found = getattr(described, field.name)
        if value is not None and value != found:
            raise InvalidInput(f"{field.name}={value!r} is asked for, and the network in {folder} has {found!r}")


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


def _load_zoo(
    spec: str, asked: _Request, weights: _Weights | None, seed: int
) -> tuple[nn.Module, LoadedWeights | None]:
    """Build a network of the zoo; without a number of classes it is that of the parameters."""
    name, options = _parse_options(spec, spec)
    if name not in ZOO:
        raise UnknownName.of("network", name, [*ZOO, *TRANSFORMERS])
    for key in options:
        if key not in ZOO_OPTIONS:
            raise UnknownName.of(f"option of {name}", key, ZOO_OPTIONS)
    for field in fields(asked):
        if field.name != "head_layer":
            _add_option(options, field.name, getattr(asked, field.name), spec)
    options.setdefault("seed", seed)
    if "classes" not in options:
        if weights is None or weights.new_head or f"{HEAD}.weight" not in weights.parameters:
            raise InvalidInput(f"how many classes? write {name}?classes=10, or pass classes= or a checkpoint of it")
        options["classes"] = len(weights.parameters[f"{HEAD}.weight"])
        if options.get("abstain"):
            options["classes"] -= 1
    network = build(name, **options)
    if weights is None:
        return network, None
    return network, _load_weights(network, weights, spec)


def _load_weights(network: nn.Module, weights: _Weights, expected: str) -> LoadedWeights:
    """Load a checkpoint into a network with a head of twofold's; a plain classifier's has no confidence branch."""
    return load_parameters(
        network,
        weights.parameters,
        source=weights.source,
        expected=expected,
        new=(HEAD, BRANCH) if weights.new_head else (),
        optional=(f"{BRANCH}.layers",),
    )


def _load_elsewhere(
    source: _Source, asked: _Request, weights: _Weights | None, *, new_head: bool, size: int | None, seed: int
) -> tuple[nn.Module, LoadedWeights | None]:
    """Build a network from elsewhere, load what is to be loaded, and put a head of twofold's on it where asked for."""
    with explain_torchvision(source.spec):
        model, loaded = _build_elsewhere(source, asked.classes, weights=weights is None, new_head=new_head)
    is_adapted = weights is not None and weights.are_adapted and not new_head
    needs_head = asked.needs_own_head or is_adapted
    is_checked = source.is_file and asked.classes is not None  # its function chose the number of classes
    layer, outputs = asked.head_layer, _count_classes(model)
    if new_head or needs_head or is_checked:
        layer = find_head(model, layer, size=size, name=source.spec)
        outputs = len(find_named_head(model, layer).weight)
    classes = asked.classes or outputs
    if outputs is not None and outputs != classes and not is_adapted:
        if not new_head:
            raise InvalidInput(f"{source.spec} has {outputs} classes, and {classes} are asked for; pass --new-head")
        needs_head = True
    if loaded is not None and layer is not None:
        _check_only_head_is_new(loaded, layer, source.spec)
    if weights is not None and not is_adapted:
        new = (str(layer),) if new_head else ()
        loaded = load_parameters(model, weights.parameters, source=weights.source, expected=source.spec, new=new)
    if needs_head:
        assert classes is not None
        assert layer is not None
        options = asked.options(classes, model)
        adapted = adapt(
            model,
            options,
            layer=layer,
            size=size,
            keep=not new_head,
            seed=seed,
            dropout_at=asked.dropout_at,
            name=source.spec,
        )
        if weights is not None and is_adapted:
            loaded = _load_weights(adapted, weights, source.spec)
        elif loaded is not None:
            if not new_head and not adapted.keeps_head:
                raise InvalidInput(
                    f"the last layer of {source.spec} has {outputs} linear outputs, and {options.outputs} "
                    f"{options.head} ones are asked for; pass --new-head"
                )
            loaded = adapted.rename(loaded)
        model = adapted
    if classes is not None:
        remember_description(model, _describe(source, model, classes, asked.head_layer))
    return model, loaded


def _describe(source: _Source, model: nn.Module, classes: int, layer: str | None) -> NetworkDescription:
    """Describe a network from elsewhere as it was built."""
    spec = "hf:." if source.kind == "hf" else source.spec
    if isinstance(model, AdaptedNetwork):
        return NetworkDescription(spec, head_layer=layer, **asdict(model.options))
    return NetworkDescription(spec, classes, head_layer=layer)


def _count_classes(model: nn.Module) -> int | None:
    """Return the number of classes that a network of timm or Hugging Face says it has."""
    counts = (getattr(model, "num_classes", None), getattr(getattr(model, "config", None), "num_labels", None))
    for count in counts:
        if isinstance(count, int) and count > 1:
            return count
    return None


def _check_only_head_is_new(loaded: LoadedWeights, layer: str, spec: str) -> None:
    """Raise if anything but the last layer of a network of Hugging Face has no trained values."""
    untrained = [key for key in loaded.new if not key.startswith(f"{layer}.")]
    if untrained:
        raise InvalidInput(f"{spec} has no trained values for {', '.join(untrained[:3])}, which is not its head")


def _build_elsewhere(
    source: _Source, classes: int | None, *, weights: bool, new_head: bool
) -> tuple[nn.Module, LoadedWeights | None]:
    """Build a network of another library or of a Python file; those of Hugging Face may have weights of their own."""
    if source.is_file:
        return build_from_file(source.spec), None
    if source.kind == "timm":
        return _build_timm(source.name, classes), None
    if source.kind == "torchvision":
        return _build_torchvision(source.name, classes), None
    if source.kind == "clip":
        return load_zero_shot(*_parse_options(source.name, source.spec)), None
    return load_hugging_face(source.name, classes, weights=weights, new_head=new_head)


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
