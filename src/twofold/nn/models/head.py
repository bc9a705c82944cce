"""Any PyTorch classifier as logits, features and a head.

The head is the last linear layer; its exact input is the feature. It is found by running the model once and looking
for the linear layer whose output the model returned, so no naming convention is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.models.parts import CosineHead, Network
from twofold.outputs import FINE, Head

Batch: TypeAlias = Any  # a tensor, a sequence with the inputs first, or a mapping of keywords
Linear: TypeAlias = nn.Linear | nn.Conv2d | CosineHead
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
        Exact input of the head in float32 or better; unit vectors for a cosine head.
    learned : dict from str to Tensor of shape (N,)
        Extra outputs of the network, such as ``confidnet``, ``devries`` or ``reservation``.
    raw : Tensor of shape (N, D), optional
        Features before a cosine head gave them unit length, else None.
    """

    logits: Tensor
    features: Tensor
    learned: dict[str, Tensor]
    raw: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Call:
    """Record one call of a linear layer."""

    name: str
    layer: Linear
    given: Tensor
    gave: Tensor


@dataclass(eq=False)
class _Trace:
    """Record what the hooks saw during one run."""

    calls: list[_Call] = field(default_factory=list)  # calls of linear layers that returned one vector per row
    last: list[str] = field(default_factory=list)  # the last modules without children, for error messages
    maps: dict[str, None] = field(default_factory=dict)  # modules that returned a map, in order of their first run


class Classifier:
    """Wrap a ``torch.nn.Module`` so that a call returns logits and features.

    Parameters
    ----------
    model : torch.nn.Module
        Model that returns logits (N, C), a tuple with them first, a dict with ``"logits"``, or an object with
        ``.logits``.
    head : str, optional
        Name of the last linear layer (``"fc"``, ``"classifier.1"``). Without a name it is the ``nn.Linear``, 1x1
        ``nn.Conv2d`` on 1x1 maps, or cosine head whose output is what the model returned (the last one that ran, if
        there are several). A named head may be followed by what keeps the order of the classes, such as a softmax: its
        own output is then the logits.
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

    def __init__(self, model: nn.Module, *, head: str | None = None, example: Batch = None) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidInput(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model = model
        self._network = next((m for m in model.modules() if isinstance(m, Network)), None)
        self._name, self._is_named = head, head is not None
        self._layer = None if head is None else _named(model, head)
        self._maps: list[str] | None = None  # known once the model has run
        if example is not None:
            with _evaluating(model), torch.no_grad():
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
        arguments, keywords = _arguments(batch)
        first, trace = self._maps is None, _Trace()
        watched = list(self.model.named_modules()) if first else [(self.head_name, self._found)]
        with _watching(watched, trace, full=first), self._seeing() as seen:
            output = self.model(*arguments, **keywords)
        if not self._is_named:
            call = _answering(trace, _logits(output), law=first)
        elif first:
            call = _agreeing(trace, self._found, _logits(output))
        else:
            call = _last_call(trace, self._found)
        if first:
            self._name, self._layer, self._maps = call.name, call.layer, _map_names(self.model, trace, call.layer)
        return self._captured(call, seen)

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
        return self._captured(_Call(self.head_name, self._found, given, self._found(given)), [])

    @property
    def head(self) -> Head:
        """The head as arrays: class rows only, zeros where there is no bias, scaled unit rows of a cosine head."""
        with torch.no_grad():
            weight, bias = _weights(self._found)
            return Head(weight[: self.classes], None if bias is None else bias[: self.classes])

    @property
    def head_name(self) -> str:
        """Name of the head among the model's modules."""
        _ = self._found
        return str(self._name)

    @property
    def classes(self) -> int:
        """Number of classes, without an abstention output."""
        return len(self._found.weight) - self._abstains

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
        known = dict(self.model.named_modules())
        if names is None:
            if self._maps is None:
                raise InvalidInput("layers are known once the model has run; pass example= or names, or run a batch")
            return {name: known[name] for name in self._maps}
        for name in names:
            if name not in known:
                raise UnknownName.of("module", name, [own for own in known if own])  # the whole model has no name
        return {name: known[name] for name in names}

    def dropouts(self) -> list[_DropoutNd]:
        """Return the dropout modules with a rate above 0.

        Returns
        -------
        list of torch.nn.Module
            Dropout modules. Dropout written as a function call cannot be seen.
        """
        return [m for m in self.model.modules() if isinstance(m, _DropoutNd) and m.p > 0]

    @property
    def _found(self) -> Linear:
        if self._layer is None:
            raise InvalidInput("the head is not known yet; pass head= or example= to Classifier, or run a batch first")
        return self._layer

    @property
    def _abstains(self) -> bool:
        return self._network is not None and self._network.abstain and self._layer is self._network.linear

    @contextmanager
    def _seeing(self) -> Iterator[list[Tensor]]:
        """Record the images that enter a network whose confidence branch has an encoder of its own."""
        seen: list[Tensor] = []
        branch = None if self._network is None else self._network.confidence
        if self._network is None or branch is None or branch.encoder is None:
            yield seen
            return
        hook = self._network.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        try:
            yield seen
        finally:
            hook.remove()

    def _captured(self, call: _Call, seen: list[Tensor]) -> Captured:
        raw, logits = call.given.flatten(1), call.gave.flatten(1)
        with torch.autocast(raw.device.type, enabled=False):
            features = _float(raw)
            if isinstance(call.layer, CosineHead):
                features = call.layer.unit(features)
            if logits.dtype in HALF or raw.dtype in HALF:
                logits = functional.linear(features, *_weights(call.layer))
            learned: dict[str, Tensor] = {}
            if self._network is not None and call.layer is self._network.linear:
                branch = self._network.confidence
                if branch is not None:
                    known = raw.to(next(branch.parameters()).dtype)
                    learned[branch.kind] = _float(branch.of(seen[0], known) if seen else branch(known))
                if self._network.abstain:
                    learned["reservation"] = logits.softmax(dim=1)[:, -1]
                    logits = logits[:, :-1]
        return Captured(logits, features, learned, _float(raw) if isinstance(call.layer, CosineHead) else None)


def _float(tensor: Tensor) -> Tensor:
    """Convert a tensor to float32, unless it is that or better."""
    return tensor.float() if tensor.dtype in HALF else tensor


def _weights(layer: Linear) -> tuple[Tensor, Tensor | None]:
    """Return the weight (C, D) and bias (C,) that make the logits, in float32 or better."""
    if isinstance(layer, CosineHead):
        return _float(layer.effective()), None
    bias = layer.bias
    return _float(layer.weight.flatten(1)), None if bias is None else _float(bias)


def _is_linear(module: nn.Module) -> bool:
    """Check whether the module may be a head."""
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == (1, 1) and module.groups == 1
    return isinstance(module, nn.Linear | CosineHead)


def _named(model: nn.Module, name: str) -> Any:
    """Return the head a user named."""
    modules = dict(model.named_modules())
    if name not in modules:
        linear = [n for n, m in modules.items() if _is_linear(m)]
        raise UnknownName.of("module", name, linear or [n for n in modules if n])
    if not _is_linear(modules[name]):
        kind = type(modules[name]).__name__
        raise InvalidInput(f"head={name!r} is a {kind}; the head must be an nn.Linear, 1x1 nn.Conv2d or CosineHead")
    return modules[name]


def _arguments(batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments for the model; labels are left out."""
    if isinstance(batch, list | tuple):
        if not batch:
            raise InvalidInput("batch is empty; its first element must be the inputs")
        batch = batch[0]
    if isinstance(batch, Tensor):
        return (batch,), {}
    if isinstance(batch, Mapping):
        return (), {key: value for key, value in batch.items() if key not in LABEL_KEYS}
    raise InvalidInput(
        f"batch must be a tensor, a tuple or list with the inputs first, or a dict of keywords, "
        f"got {type(batch).__name__}"
    )


def _logits(output: Any) -> Tensor:
    """Find the class logits (N, C) among what a model returned."""
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
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode; each module gets its own mode back on exit."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def _watching(modules: Iterable[tuple[str, nn.Module]], trace: _Trace, *, full: bool) -> Iterator[None]:
    """Install hooks that fill the trace while the model runs, and remove them afterwards."""
    handles = []
    try:
        for name, module in modules:
            handles.append(module.register_forward_hook(_record(trace, name, full=full), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _record(trace: _Trace, name: str, *, full: bool) -> Any:
    """Make a forward hook for the module of this name."""

    def hook(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        if full and not any(True for _ in module.children()):
            trace.last = [*trace.last[-2:], f"{name} ({type(module).__name__}, {tuple(output.shape)})"]
        if full and output.ndim == 4:
            trace.maps.setdefault(name)
        if isinstance(module, nn.Linear | nn.Conv2d | CosineHead) and _is_linear(module):
            given = arguments[0] if arguments else next(iter(keywords.values()))
            one_a_row = output.ndim > 1 and output.numel() == len(output) * len(module.weight)
            if one_a_row and given.numel() == len(given) * module.weight[0].numel():
                trace.calls.append(_Call(name, module, given, output))

    return hook


def _last_call(trace: _Trace, layer: Linear) -> _Call:
    """Return the last call of a known head."""
    for call in reversed(trace.calls):
        if call.layer is layer:
            return call
    raise InvalidInput("the head did not run with one vector a row; name another layer with head=")


def _answering(trace: _Trace, answer: Tensor, *, law: bool) -> _Call:
    """Return the last call of a linear layer whose output is what the model returned."""
    for call in reversed(trace.calls):
        if _same(call.gave.flatten(1), answer) and not (law and _changed(call)):
            return call
    last = ", ".join(trace.last) or "none"
    linear = ", ".join(dict.fromkeys(call.name for call in trace.calls)) or "none"
    raise InvalidInput(
        f"no linear layer gives what the model returned, {tuple(answer.shape)}; the last modules that ran: {last}; "
        f"linear layers that ran with one vector a row: {linear}. If one of them makes the logits (before a softmax, "
        'say), name it with head="NAME"; a model that ends otherwise has no linear head'
    )


def _same(a: Tensor, b: Tensor) -> bool:
    """Check whether two tensors hold the same values or share their memory."""
    return a.shape == b.shape and (a.data_ptr() == b.data_ptr() or torch.equal(_float(a), _float(b)))


def _changed(call: _Call) -> bool:
    """Check whether the output no longer equals the product of the input, because something changed it in place."""
    if call.gave.dtype in HALF:
        return False
    with torch.no_grad(), torch.autocast(call.given.device.type, enabled=False):
        features, logits = _float(call.given.flatten(1)), call.gave.flatten(1)
        if isinstance(call.layer, CosineHead):
            features = call.layer.unit(features)
        away = (functional.linear(features, *_weights(call.layer)) - logits).abs().max()
        return bool(away > FINE * max(1.0, float(logits.abs().max())))


def _agreeing(trace: _Trace, layer: Linear, answer: Tensor) -> _Call:
    """Return the call of a named head, provided the model's output ranks the same class first in every row."""
    call = _last_call(trace, layer)
    if _changed(call):
        raise InvalidInput(f"the output of head={call.name!r} is changed in place; use a layer that is not in place")
    own = call.gave.detach().flatten(1)
    if own.shape != answer.shape:
        raise InvalidInput(
            f"head={call.name!r} gives {tuple(own.shape)} and the model returned {tuple(answer.shape)}; "
            "name the layer that makes the class logits"
        )
    chosen = answer.detach().gather(1, own.argmax(dim=1, keepdim=True))[:, 0]
    wrong = int((chosen < answer.detach().amax(dim=1)).sum())
    if wrong:
        raise InvalidInput(
            f"head={call.name!r} and the model's own answer name different classes in {wrong} of {len(own)} rows; "
            "the head must make the logits the model answers with"
        )
    return call


def _map_names(model: nn.Module, trace: _Trace, head: Linear) -> list[str]:
    """List the names of the blocks, or else of the convolutions, that returned maps."""
    known = dict(model.named_modules())
    groups: dict[str, list[str]] = {}
    for name in trace.maps:
        if name and any(True for _ in known[name].children()):
            groups.setdefault(name.rpartition(".")[0], []).append(name)
    several = [(parent.count(".") + bool(parent), names) for parent, names in groups.items() if len(names) > 1]
    if several:
        return min(several, key=lambda group: group[0])[1]
    return [name for name in trace.maps if isinstance(known[name], nn.Conv2d) and known[name] is not head]
