"""The stages and blocks of a network in order from its input: what can be frozen, and how deep a layer is.

A stage is the stem (all before the first numbered part), then each numbered part of the outermost level that has
several: ``layer1`` to ``layer4`` of a ResNet, ``block1`` to ``block5`` of a VGG network of the zoo, ``features.0`` and
on of torchvision's, ``encoder.layer.0`` and on of a transformer of Hugging Face. What comes after a part and has no
number, such as a last norm, belongs to the stage before. Networks of timm say themselves what their stages are
(``group_matcher``). Blocks are the numbered parts one level further in, where there are such: ``layer1.0`` and on.
The head, and a confidence branch, are no stage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from twofold.errors import InvalidInput
from twofold.nn.models.adapted import AdaptedNetwork
from twofold.nn.models.parts import Network

NUMBERED = re.compile(r".*\d[a-z]?")  # layer1, 0, encoder_layer_3, inception3a
HEAD_MODULES = ("linear", "confidence")  # of the zoo and of adapted networks


@dataclass(frozen=True)
class ParameterGroup:
    """Name the parameters of one stage or block.

    Parameters
    ----------
    name : str
        Name of the stage or block, ``"stem"`` for what comes before the first.
    parameters : tuple of str
        Names of its parameters.
    """

    name: str
    parameters: tuple[str, ...]


def stages(model: nn.Module, *, head: Sequence[str] = (), blocks: bool = False) -> list[ParameterGroup]:
    """List the stages of a network from its input, or its blocks.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    head : sequence of str, default=()
        Names of the modules that are its head. Networks of the zoo and adapted ones know theirs.
    blocks : bool, default=False
        Whether to list blocks, which are finer.

    Returns
    -------
    list of ParameterGroup
        The groups in order. Each parameter but those of the head is in a stage; of the blocks, timm leaves out what it
        counts to the head, such as a norm after pooling.

    Examples
    --------
    >>> from twofold.nn import build
    >>> [stage.name for stage in stages(build("resnet8_cifar", 10))]
    ['stem', 'layer1', 'layer2', 'layer3']
    """
    head_modules = head_names(model, head)
    names = [name for name, _ in model.named_parameters() if not _is_in(name, head_modules)]
    timm_network, prefix = _find_timm(model)
    if timm_network is not None:
        return _group_by_timm(timm_network, prefix, names, coarse=not blocks)
    keys = [_group_key(model, name, _common_prefix(names), level=2 if blocks else 1) for name in names]
    if not any(keys):  # no numbered part: every layer is a stage
        keys = [name.rpartition(".")[0] for name in names]
    groups: dict[str, list[str]] = {}
    current = ""
    for name, key in zip(names, keys, strict=True):
        current = key or current
        groups.setdefault(current or "stem", []).append(name)
    return [ParameterGroup(key, tuple(members)) for key, members in groups.items()]


def head_names(model: nn.Module, head: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the modules that are the head of a network, its confidence branch included.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    head : sequence of str, default=()
        Its head, where the network is neither the zoo's nor an adapted one.

    Returns
    -------
    tuple of str
        The names.

    Examples
    --------
    >>> head_names(nn.Sequential(nn.Linear(2, 2)), ["0"])
    ('0',)
    """
    return HEAD_MODULES if isinstance(model, Network) else tuple(head)


def freeze(model: nn.Module, what: str | int, *, head: Sequence[str] = ()) -> list[str]:
    """Freeze the first stages of a network: their parameters get no gradient.

    Batch norm in a frozen stage stays in evaluation mode in training, and its statistics are never updated or estimated
    again (:func:`frozen_batch_norms`). Dropout in a frozen stage acts as in the others.

    Parameters
    ----------
    model : torch.nn.Module
        The network; it is changed.
    what : {"none", "backbone"} or int
        Nothing, everything but the head, or this many stages from the input (see :func:`stages`).
    head : sequence of str, default=()
        Names of the modules that are its head, where the network is neither the zoo's nor an adapted one.

    Returns
    -------
    list of str
        Names of the frozen parameters.

    Raises
    ------
    InvalidInput
        If ``what`` is something else, or the network has fewer stages.

    Examples
    --------
    >>> from twofold.nn import build
    >>> freeze(build("resnet8_cifar", 10), 1)
    ['conv1.weight', 'bn1.weight', 'bn1.bias']
    """
    count = parse_freeze(what)
    if count == 0:
        return []
    found = stages(model, head=head)
    if count is None:
        count = len(found)
    if count > len(found):
        listed = ", ".join(stage.name for stage in found)
        raise InvalidInput(f"freeze={what} asks for {count} stages, and the network has {len(found)}: {listed}")
    frozen = [name for stage in found[:count] for name in stage.parameters]
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    return frozen


def parse_freeze(what: str | int) -> int | None:
    """Return how many stages a setting freezes.

    Parameters
    ----------
    what : {"none", "backbone"} or int
        The setting; digits in text are a number, too.

    Returns
    -------
    int or None
        The number of stages; None for all.

    Raises
    ------
    InvalidInput
        If it is something else.

    Examples
    --------
    >>> parse_freeze("none"), parse_freeze("2"), parse_freeze("backbone")
    (0, 2, None)
    """
    if what == "none":
        return 0
    if what == "backbone":
        return None
    if isinstance(what, str) and what.isascii() and what.isdigit():
        return int(what)
    if isinstance(what, int) and not isinstance(what, bool) and what >= 0:
        return what
    raise InvalidInput(f"freeze must be none, backbone or a number of stages from the input, got {what!r}")


def frozen_batch_norms(model: nn.Module) -> list[str]:
    """List the batch norms of a network that are frozen.

    Parameters
    ----------
    model : torch.nn.Module
        The network.

    Returns
    -------
    list of str
        Names of batch norms whose parameters get no gradient. One without parameters counts as the smallest module
        around it that has some.

    Examples
    --------
    >>> layer = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False)
    >>> frozen_batch_norms(layer)
    ['1']
    """
    modules = dict(model.named_modules())
    frozen = []
    for name, module in modules.items():
        if isinstance(module, _BatchNorm) and not _learns(name, modules):
            frozen.append(name)
    return frozen


def keep_frozen_statistics(model: nn.Module) -> None:
    """Set frozen batch norms to evaluation mode, in a network that is in training mode.

    Parameters
    ----------
    model : torch.nn.Module
        The network; it is changed.

    Examples
    --------
    >>> network = nn.Sequential(nn.BatchNorm1d(2).requires_grad_(False), nn.BatchNorm1d(2)).train()
    >>> keep_frozen_statistics(network)
    >>> [layer.training for layer in network]
    [False, True]
    """
    for name in frozen_batch_norms(model):
        model.get_submodule(name).eval()


def _learns(name: str, modules: dict[str, nn.Module]) -> bool:
    """Check whether a module, or the smallest one around it that has parameters, has one with a gradient."""
    while True:
        parameters = list(modules[name].parameters())
        if parameters or not name:
            return any(parameter.requires_grad for parameter in parameters) or not parameters
        name = name.rpartition(".")[0]


def _is_in(name: str, modules: Collection[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _common_prefix(names: Sequence[str]) -> int:
    """Return the number of leading parts that the names of all parameters share."""
    shared = 0
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    return shared


def _group_key(model: nn.Module, name: str, skipped: int, *, level: int) -> str:
    """Return the name of the numbered part that a parameter is in, at most ``level`` deep; "" if there is none."""
    parts = name.split(".")
    found, key = 0, ""
    for end in range(skipped + 1, len(parts)):
        prefix = ".".join(parts[:end])
        has_children = next(model.get_submodule(prefix).children(), None) is not None
        if NUMBERED.fullmatch(parts[end - 1]) and has_children:
            found, key = found + 1, prefix
        if found == level:
            break
    return key


def _find_timm(model: nn.Module) -> tuple[nn.Module | None, str]:
    """Return the network of timm in a model, and what its parameters' names begin with."""
    prefix = ""
    if isinstance(model, AdaptedNetwork):
        model, prefix = model.backbone, "backbone."
    return (model, prefix) if hasattr(model, "group_matcher") else (None, "")


def _group_by_timm(model: nn.Module, prefix: str, names: Sequence[str], *, coarse: bool) -> list[ParameterGroup]:
    """Group parameters as timm does for layer-wise learning rates."""
    from timm.models import group_parameters

    matcher = model.group_matcher(coarse=coarse)  # type: ignore[operator]
    beside_head = "?"  # matched by nothing, as the head and what timm counts to it, such as a norm after pooling
    named_parameters = [*model.named_parameters(), (beside_head, None)]
    network: Any = SimpleNamespace(named_parameters=lambda: named_parameters)
    numbers = group_parameters(network, matcher, reverse=True)
    groups: dict[int, list[str]] = {}
    unmatched = []
    for name in names:
        number = numbers[name.removeprefix(prefix)]
        if number == numbers[beside_head]:
            unmatched.append(name)
        else:
            groups.setdefault(number, []).append(name)
    named = []
    for number in sorted(groups):
        first = groups[number][0].removeprefix(prefix).split(".")
        title = "stem" if number == 0 else ".".join(first[:2])
        members = groups[number]
        if coarse and number == max(groups):
            members = [*members, *unmatched]
        named.append(ParameterGroup(title, tuple(members)))
    return named
