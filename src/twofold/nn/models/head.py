"""Any PyTorch classifier as logits, features and a head.

The head is the last linear layer; its exact input is the feature. It is found by running the model once and looking
for the linear layer whose output the model returned, so no naming convention is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.nn.dropout import find_dropouts
from twofold.nn.models.parts import ConfidenceBranch, Network, UnitHead
from twofold.outputs import FINE, Head

Batch: TypeAlias = Tensor | Sequence[object] | Mapping[str, object]  # inputs, inputs first, or keyword arguments
HeadLayer: TypeAlias = nn.Linear | nn.Conv2d | UnitHead
ForwardHook: TypeAlias = Callable[[nn.Module, tuple[object, ...], dict[str, object], object], None]
LABEL_KEYS = ("labels", "label", "label_ids")  # left out: with labels, Hugging Face models compute a loss
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Captured:
    """Hold what one run of the model on one batch produced, as tensors on its device.

    Parameters
    ----------
    logits : Tensor of shape (N, C)
        Class logits in float32 or better. With ``features`` they obey the head law.
    features : Tensor of shape (N, D)
        Exact input of the head in float32 or better; unit vectors for a head that takes such.
    learned : dict from str to Tensor of shape (N,)
        Extra outputs of the network, such as ``confidnet``, ``devries`` or ``reservation``.
    raw : Tensor of shape (N, D), optional
        The network's own features, where the head made unit vectors of them; else None.
    """

    logits: Tensor
    features: Tensor
    learned: dict[str, Tensor]
    raw: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Call:
    """Record one call of a linear layer."""

    name: str
    layer: HeadLayer
    input: Tensor
    output: Tensor


@dataclass(eq=False)
class _Trace:
    """Record what the hooks saw during one run."""

    calls: list[_Call] = field(default_factory=list)  # calls of linear layers that returned one vector per row
    last_modules: list[str] = field(default_factory=list)  # the last ones without children, for error messages
    map_names: list[str] = field(default_factory=list)  # modules that returned a map, in order of their first run


class Classifier:
    """Wrap a ``torch.nn.Module`` so that a call returns logits and features.

    Parameters
    ----------
    model : torch.nn.Module
        Model that returns logits (N, C), a tuple with them first, a dict with ``"logits"``, or an object with
        ``.logits``.
    head : str, optional
        Name of the last linear layer (``"fc"``, ``"classifier.1"``). Without a name it is the ``nn.Linear``, 1x1
        ``nn.Conv2d`` on 1x1 maps, or head of unit vectors whose output is what the model returned (the last one that
        ran, if there are several). A named head may be followed by what keeps the order of the classes, such as a
        softmax: its own output is then the logits.
    example : Tensor, sequence or mapping, optional
        One small batch on which the head is found at once. Without it the head is found on the first batch.

    Attributes
    ----------
    model : torch.nn.Module
        The wrapped model.

    Raises
    ------
    InvalidInput
        If ``model`` is not a module, ``head`` names a layer that cannot be a head, or no head is found on ``example``.
    UnknownName
        If ``model`` has no module of the name ``head``.

    Notes
    -----
    A call runs the model once, in whatever mode it is (``train`` or ``eval``) and with gradients unless they are
    switched off around it. Half-precision models get their logits from the captured features in float32, since rounded
    logits tie and break the head law. With active dropout before the head, features are those after dropout.

    Examples
    --------
    >>> classifier = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), example=torch.zeros(1, 1, 2, 2))
    >>> classifier.head_name, classifier.classes
    ('1', 3)
    >>> found = classifier(torch.ones(5, 1, 2, 2))
    >>> tuple(found.logits.shape), tuple(found.features.shape)
    ((5, 3), (5, 4))
    """

    def __init__(self, model: nn.Module, *, head: str | None = None, example: Batch | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidInput(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model = model
        self._network = _find_network(model)
        self._is_named = head is not None
        self._name = head
        self._layer: HeadLayer | None = None  # known at once if it is named, else once the model has run
        if head is not None:
            self._layer = find_named_head(model, head)
        self._map_names: list[str] | None = None  # known once the model has run
        if example is not None:
            with evaluation_mode(model), torch.no_grad():
                self(example)

    def __call__(self, batch: Batch) -> Captured:
        """Run the model once on a batch.

        Parameters
        ----------
        batch : Tensor, sequence or mapping
            A tensor of inputs, a tuple or list with the inputs first, or a mapping of keyword arguments, from which
            labels are left out.

        Returns
        -------
        Captured
            Logits, features and extra outputs, as tensors on the model's device.

        Raises
        ------
        InvalidInput
            If the batch has another form, the model returns no class logits, or no linear layer produces them.
        """
        arguments, keywords = _model_arguments(batch)
        is_first = self._map_names is None
        if is_first:
            modules = list(self.model.named_modules())
        else:
            modules = [(self.head_name, self._head_layer)]
        trace = _Trace()
        with _record_modules(modules, trace, full=is_first), self._record_images() as images:
            output = self._run_model(arguments, keywords, is_first=is_first)
        if self._is_named:
            call = _find_last_call(trace, self._head_layer)
            if is_first:
                _check_agreement(call, find_logits(output))
        else:
            call = _find_call_that_returns(find_logits(output), trace, check_law=is_first)
        if is_first:
            self._name = call.name
            self._layer = call.layer
            self._map_names = _select_map_names(self.model, trace, call.layer)
        return self._capture(call, images)

    def _run_model(self, arguments: tuple[object, ...], keywords: dict[str, object], *, is_first: bool) -> object:
        """Run the model; what it says about its first input becomes an error about that input."""
        try:
            return self.model(*arguments, **keywords)
        except (AssertionError, ValueError, RuntimeError) as error:
            if not is_first or isinstance(error, TwofoldError) or "memory" in str(error).lower():
                raise
            shapes = []
            for value in (*arguments, *keywords.values()):
                if isinstance(value, Tensor):
                    shapes.append(str(tuple(value.shape)))
            lines = str(error).splitlines() or [type(error).__name__]
            raise InvalidInput(
                f"the network cannot take inputs of shape {', '.join(shapes)}: {lines[0].strip(' .')}; "
                "resize the images (--crop), or build the network for this size"
            ) from error

    def at_head(self, given: Tensor) -> Captured:
        """Compute logits from an input of the head; the rest of the model does not run.

        Parameters
        ----------
        given : Tensor of shape (N, D), or (N, D, 1, 1) for a convolution
            Input of the head.

        Returns
        -------
        Captured
            Logits, features and extra outputs for this input.

        Raises
        ------
        InvalidInput
            If the head is not known yet.
        """
        call = _Call(self.head_name, self._head_layer, given, self._head_layer(given))
        return self._capture(call, [])

    @property
    def head(self) -> Head:
        """The head as arrays: class rows only, zeros where there is no bias, scaled as the head scales them."""
        with torch.no_grad():
            weight, bias = _effective_weights(self._head_layer)
            if bias is not None:
                bias = bias[: self.classes]
            return Head(weight[: self.classes], bias)

    @property
    def head_name(self) -> str:
        """Name of the head among the model's modules."""
        _ = self._head_layer  # raises while the head is not known
        return str(self._name)

    @property
    def classes(self) -> int:
        """Number of classes, without an abstention output."""
        outputs = len(self._head_layer.weight)
        if self._abstains:
            return outputs - 1
        return outputs

    def layers(self, names: Sequence[str] | None = None) -> dict[str, nn.Module]:
        """Return the modules whose output maps are used for layer statistics, by name in the order they ran.

        Parameters
        ----------
        names : sequence of str, optional
            Names of modules. By default the blocks of the outermost module that has two or more of them, a block being
            a module with children that returned a 4-D map (``layer1`` to ``layer4`` of a ResNet, ``features.0`` and on
            of an EfficientNet); where there are no such blocks, every convolution but the head.

        Returns
        -------
        dict from str to torch.nn.Module
            The modules; empty for a model without maps.

        Raises
        ------
        InvalidInput
            If ``names`` is None and the model has not run yet.
        UnknownName
            If the model has no module of a name.
        """
        if names is None:
            names = self._map_names
        if names is None:
            raise InvalidInput("layers are known once the model has run; pass example= or names, or run a batch")
        modules = dict(self.model.named_modules())
        for name in names:
            if name not in modules:
                raise UnknownName.of("module", name, _module_names(modules))
        return {name: modules[name] for name in names}

    def dropouts(self) -> list[_DropoutNd]:
        """Return the dropout modules with a rate above 0.

        Returns
        -------
        list of torch.nn.Module
            Dropout modules. Dropout written as a function call cannot be seen.
        """
        return find_dropouts(self.model)

    @property
    def _head_layer(self) -> HeadLayer:
        if self._layer is None:
            raise InvalidInput("the head is not known yet; pass head= or example= to Classifier, or run a batch first")
        return self._layer

    @property
    def _abstains(self) -> bool:
        return self._network is not None and self._network.abstain and self._layer is self._network.linear

    @contextmanager
    def _record_images(self) -> Iterator[list[Tensor]]:
        """Record the images that enter a network whose confidence branch has its own encoder."""
        images: list[Tensor] = []
        network = self._network
        if network is None or network.confidence is None or network.confidence.encoder is None:
            yield images
            return
        hook = network.register_forward_pre_hook(lambda module, arguments: images.append(arguments[0]))
        try:
            yield images
        finally:
            hook.remove()

    def _capture(self, call: _Call, images: list[Tensor]) -> Captured:
        """Make the result of a call of the head: logits that obey the head law, features and extra outputs."""
        raw = call.input.flatten(1)
        logits = call.output.flatten(1)
        with torch.autocast(raw.device.type, enabled=False):
            features = _head_input(call)
            if logits.dtype in HALF or raw.dtype in HALF:
                logits = functional.linear(features, *_effective_weights(call.layer))
            learned: dict[str, Tensor] = {}
            if self._network is not None and call.layer is self._network.linear:
                if self._network.confidence is not None:
                    branch = self._network.confidence
                    learned[branch.kind] = _branch_confidence(branch, raw, images)
                if self._network.abstain:
                    learned["reservation"] = logits.softmax(dim=1)[:, -1]
                    logits = logits[:, :-1]
        raw_features = None
        if isinstance(call.layer, UnitHead):
            raw_features = _to_float(raw)
        return Captured(logits, features, learned, raw_features)


def _find_network(model: nn.Module) -> Network | None:
    """Find the network of the zoo inside a model."""
    for module in model.modules():
        if isinstance(module, Network):
            return module
    return None


def _branch_confidence(branch: ConfidenceBranch, features: Tensor, images: list[Tensor]) -> Tensor:
    """Compute the confidence from the features, or from the images if the branch has its own encoder."""
    features = features.to(next(branch.parameters()).dtype)
    if images:
        return _to_float(branch.of(images[0], features))
    return _to_float(branch(features))


def _to_float(tensor: Tensor) -> Tensor:
    """Convert a tensor to float32, unless it is that or better."""
    if tensor.dtype in HALF:
        return tensor.float()
    return tensor


def _head_input(call: _Call) -> Tensor:
    """Return the features in float32 or better; some heads take unit vectors."""
    features = _to_float(call.input.flatten(1))
    if isinstance(call.layer, UnitHead):
        return _to_float(call.layer.unit(features))
    return features


def _effective_weights(layer: HeadLayer) -> tuple[Tensor, Tensor | None]:
    """Return the weight (C, D) and bias (C,) that make the logits, in float32 or better."""
    if isinstance(layer, UnitHead):
        weight, bias = layer.effective()
        return _to_float(weight), None if bias is None else _to_float(bias)
    weight = _to_float(layer.weight.flatten(1))
    if layer.bias is None:
        return weight, None
    return weight, _to_float(layer.bias)


def can_be_head(module: nn.Module) -> TypeGuard[HeadLayer]:
    """Check whether a module is a linear layer, a 1x1 convolution or a head of unit vectors.

    Parameters
    ----------
    module : torch.nn.Module
        Module of a classifier.

    Returns
    -------
    bool
        Whether it can be the head.

    Examples
    --------
    >>> can_be_head(nn.Linear(4, 3)), can_be_head(nn.Conv2d(4, 3, kernel_size=3))
    (True, False)
    """
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == (1, 1) and module.groups == 1
    return isinstance(module, nn.Linear | UnitHead)


def _module_names(modules: Iterable[str]) -> list[str]:
    """List the names of modules for an error message; the whole model has none."""
    return [name for name in modules if name]


def find_named_head(model: nn.Module, name: str) -> HeadLayer:
    """Return the head a user named.

    Parameters
    ----------
    model : torch.nn.Module
        The classifier.
    name : str
        Name of the head among the model's modules.

    Returns
    -------
    torch.nn.Module
        The head.

    Raises
    ------
    UnknownName
        If the model has no such module.
    InvalidInput
        If that module cannot be a head.

    Examples
    --------
    >>> find_named_head(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), "1")
    Linear(in_features=4, out_features=3, bias=True)
    """
    modules = dict(model.named_modules())
    if name not in modules:
        possible = [other for other, module in modules.items() if can_be_head(module)]
        raise UnknownName.of("module", name, possible or _module_names(modules))
    module = modules[name]
    if not can_be_head(module):
        kind = type(module).__name__
        raise InvalidInput(f"head={name!r} is a {kind}; the head must be an nn.Linear, 1x1 nn.Conv2d or UnitHead")
    return module


def _model_arguments(batch: Batch) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the positional and keyword arguments for the model; labels are left out."""
    inputs: object = batch
    if isinstance(batch, list | tuple):
        if not batch:
            raise InvalidInput("batch is empty; its first element must be the inputs")
        inputs = batch[0]
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), {key: value for key, value in inputs.items() if key not in LABEL_KEYS}
    raise InvalidInput(
        f"batch must be a tensor, a tuple or list with the inputs first, or a dict of keywords, "
        f"got {type(inputs).__name__}"
    )


def find_logits(output: object) -> Tensor:
    """Find the class logits among what a model returned.

    Parameters
    ----------
    output : Tensor, sequence, mapping or object
        Logits, a tuple with them first, a dict with ``"logits"``, or an object with ``.logits``.

    Returns
    -------
    Tensor of shape (N, C)
        The logits.

    Raises
    ------
    InvalidInput
        If there are no logits, or they are not one vector of at least two classes for each row.

    Examples
    --------
    >>> find_logits({"logits": torch.zeros(2, 3, 1, 1)}).shape
    torch.Size([2, 3])
    """
    answer = getattr(output, "logits", output)
    if isinstance(answer, Mapping):
        if "logits" not in answer:
            raise InvalidInput(f'the model returned a dict with keys {list(answer)}; it needs one named "logits"')
        answer = answer["logits"]
    elif isinstance(answer, list | tuple) and answer:
        answer = answer[0]
    if not isinstance(answer, Tensor):
        raise InvalidInput(
            f"the model returned {type(answer).__name__}; it must return logits (N, C), a tuple with them first, "
            'a dict with "logits", or an object with .logits'
        )
    shape = answer.shape
    if len(shape) < 2 or not shape[0] or shape[1] < 2 or shape[1:].numel() != shape[1]:
        raise InvalidInput(f"the model returned shape {tuple(shape)}; it must return (N, C), N at least 1 and C 2")
    return answer.flatten(1)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode; each module gets its own mode back on exit.

    Parameters
    ----------
    model : torch.nn.Module
        Model to switch.

    Yields
    ------
    None
        While the model is in evaluation mode.

    Examples
    --------
    >>> model = nn.Dropout()
    >>> with evaluation_mode(model):
    ...     model.training
    False
    >>> model.training
    True
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _record_modules(modules: Iterable[tuple[str, nn.Module]], trace: _Trace, *, full: bool) -> Iterator[None]:
    """Install hooks that fill the trace while the model runs, and remove them afterwards."""
    handles = []
    try:
        for name, module in modules:
            handles.append(module.register_forward_hook(_make_hook(trace, name, full=full), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _make_hook(trace: _Trace, name: str, *, full: bool) -> ForwardHook:
    """Make a forward hook for the module of this name; only a full trace records more than calls of heads."""

    def hook(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object], output: object) -> None:
        if not isinstance(output, Tensor):
            return
        if full:
            if not _has_children(module):
                described = f"{name} ({type(module).__name__}, {tuple(output.shape)})"
                trace.last_modules = [*trace.last_modules[-2:], described]
            if output.ndim == 4 and name not in trace.map_names:
                trace.map_names.append(name)
        if can_be_head(module):
            given, *_ = (*arguments, *keywords.values())
            assert isinstance(given, Tensor)
            if is_one_vector_per_row(module, given, output):
                trace.calls.append(_Call(name, module, given, output))

    return hook


def _has_children(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


def is_one_vector_per_row(layer: HeadLayer, given: Tensor, output: Tensor) -> bool:
    """Check whether input and output of a layer have one vector per row, and no further dimensions.

    Parameters
    ----------
    layer : torch.nn.Module
        Linear layer, 1x1 convolution or head of unit vectors.
    given : Tensor
        Its input.
    output : Tensor
        Its output.

    Returns
    -------
    bool
        True for shapes such as (N, C) and (N, C, 1, 1), False for a vector per token or per pixel.

    Examples
    --------
    >>> layer = nn.Linear(4, 3)
    >>> rows, tokens = torch.zeros(2, 4), torch.zeros(2, 5, 4)
    >>> is_one_vector_per_row(layer, rows, layer(rows)), is_one_vector_per_row(layer, tokens, layer(tokens))
    (True, False)
    """
    if output.ndim < 2:
        return False
    outputs, features = len(layer.weight), head_width(layer)
    return output.numel() == len(output) * outputs and given.numel() == len(given) * features


def head_width(layer: HeadLayer) -> int:
    """Return the length of the feature that a head takes.

    Parameters
    ----------
    layer : torch.nn.Module
        Linear layer, 1x1 convolution or head of unit vectors.

    Returns
    -------
    int
        The length.

    Examples
    --------
    >>> head_width(nn.Conv2d(4, 3, kernel_size=1))
    4
    """
    if isinstance(layer, UnitHead):
        return layer.width
    return layer.weight[0].numel()


def _find_last_call(trace: _Trace, layer: HeadLayer) -> _Call:
    """Return the last call of a known head."""
    for call in reversed(trace.calls):
        if call.layer is layer:
            return call
    raise InvalidInput("the head did not run with one vector a row; name another layer with head=")


def _find_call_that_returns(answer: Tensor, trace: _Trace, *, check_law: bool) -> _Call:
    """Return the last call of a linear layer whose output is what the model returned."""
    for call in reversed(trace.calls):
        if are_same(call.output.flatten(1), answer) and not (check_law and _is_changed_in_place(call)):
            return call
    last = ", ".join(trace.last_modules) or "none"
    linear = ", ".join(dict.fromkeys(call.name for call in trace.calls)) or "none"
    raise InvalidInput(
        f"no linear layer gives what the model returned, {tuple(answer.shape)}; the last modules that ran: {last}; "
        f"linear layers that ran with one vector a row: {linear}. If one of them makes the logits (before a softmax, "
        'say), name it with head="NAME"; a model that ends otherwise has no linear head'
    )


def are_same(a: Tensor, b: Tensor) -> bool:
    """Check whether two tensors have one shape, and hold the same values or share their memory.

    Parameters
    ----------
    a, b : Tensor
        Tensors to compare; half precision is compared in float32.

    Returns
    -------
    bool
        Whether they are the same.

    Examples
    --------
    >>> are_same(torch.ones(2), torch.ones(2)), are_same(torch.ones(2), torch.ones(1, 2))
    (True, False)
    """
    if a.shape != b.shape:
        return False
    if a.data_ptr() == b.data_ptr():
        return True
    return torch.equal(_to_float(a), _to_float(b))


def _is_changed_in_place(call: _Call) -> bool:
    """Check whether the output no longer equals the product of the input, because something changed it in place."""
    if call.output.dtype in HALF:
        return False
    with torch.no_grad(), torch.autocast(call.input.device.type, enabled=False):
        logits = call.output.flatten(1)
        expected = functional.linear(_head_input(call), *_effective_weights(call.layer))
        largest_error = (expected - logits).abs().max()
        return bool(largest_error > FINE * max(1.0, float(logits.abs().max())))


def _check_agreement(call: _Call, answer: Tensor) -> None:
    """Raise unless the output of a named head ranks the same class first as the model's output, in every row."""
    if _is_changed_in_place(call):
        raise InvalidInput(f"the output of head={call.name!r} is changed in place; use a layer that is not in place")
    logits = call.output.detach().flatten(1)
    answer = answer.detach()
    if logits.shape != answer.shape:
        raise InvalidInput(
            f"head={call.name!r} gives {tuple(logits.shape)} and the model returned {tuple(answer.shape)}; "
            "name the layer that makes the class logits"
        )
    answer_at_head_class = answer.gather(1, logits.argmax(dim=1, keepdim=True))[:, 0]
    differing = int((answer_at_head_class < answer.amax(dim=1)).sum())
    if differing:
        raise InvalidInput(
            f"head={call.name!r} and the model's own answer name different classes in {differing} of {len(logits)} "
            "rows; the head must make the logits the model answers with"
        )


def _select_map_names(model: nn.Module, trace: _Trace, head: HeadLayer) -> list[str]:
    """List the names of the blocks, or else of the convolutions, that returned maps."""
    modules = dict(model.named_modules())
    blocks_of: dict[str, list[str]] = {}  # by the name of their parent
    for name in trace.map_names:
        if name and _has_children(modules[name]):
            parent = name.rpartition(".")[0]
            blocks_of.setdefault(parent, []).append(name)
    parents = [parent for parent, blocks in blocks_of.items() if len(blocks) > 1]
    if parents:
        return blocks_of[min(parents, key=_module_depth)]
    convolutions = []
    for name in trace.map_names:
        module = modules[name]
        if isinstance(module, nn.Conv2d) and module is not head:
            convolutions.append(name)
    return convolutions


def _module_depth(name: str) -> int:
    """Return the number of parents of a module, 0 for the whole model."""
    if not name:
        return 0
    return name.count(".") + 1
