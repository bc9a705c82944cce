"""Networks from elsewhere with a head of twofold's: cosine head, dropout, abstention and confidence branches.

The last linear layer of a network is replaced by the identity, so that the network returns the exact input of that
layer, the feature; head and branches of the zoo then read it. This works for every network that returns what its last
linear layer computes: those of timm, torchvision, Hugging Face and one's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from twofold._checks import whole
from twofold.errors import InvalidInput
from twofold.nn.models.checkpoint import LoadedWeights
from twofold.nn.models.head import (
    HeadLayer,
    are_same,
    can_be_head,
    evaluation_mode,
    find_logits,
    find_named_head,
    head_width,
    is_one_vector_per_row,
)
from twofold.nn.models.parts import Network, Options, UnitHead

SIZES = (224, 32)  # image sizes at which a network is tried that does not say which it takes
NOT_IN_BLOCKS = ("attn_drop", "attn_dropout", "head_drop")  # dropout of attention weights, and before the head
TRANSFORMER_SCALE, SCALE = 64.0, 8.0  # of cosine heads: SURE's for transformers and for ResNet-18


class AdaptedNetwork(Network):
    """Put a head of twofold's on a network from elsewhere.

    Parameters are named as in that network, below ``backbone``; the head is ``linear``.

    Parameters
    ----------
    backbone : torch.nn.Module
        The network; its last linear layer is replaced by the identity, in place.
    layer : str
        Name of that layer.
    options : Options
        Number of classes, dropout, head and branches.
    keep : bool, default=False
        Whether to keep the old layer as the head, which must have as many outputs and be linear.

    Examples
    --------
    >>> backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    >>> network = AdaptedNetwork(backbone, "1", Options(3, head="cosine", abstain=True))
    >>> network.encode(torch.ones(2, 3, 2, 2)).shape, network(torch.ones(2, 3, 2, 2)).shape
    (torch.Size([2, 12]), torch.Size([2, 4]))
    """

    def __init__(self, backbone: nn.Module, layer: str, options: Options, *, keep: bool = False) -> None:
        super().__init__()
        old = find_named_head(backbone, layer)
        self.backbone = backbone
        self.options = options
        self.layer = layer
        self.keeps_head = keep
        self.add_head(head_width(old), options)
        _replace_module(backbone, layer, nn.Identity())
        if keep:
            self.linear = _as_linear(old)

    def rename(self, loaded: LoadedWeights) -> LoadedWeights:
        """Say what was loaded into the network before it was adapted by the names of now.

        Parameters
        ----------
        loaded : LoadedWeights
            What was loaded, by the names of the network from elsewhere.

        Returns
        -------
        LoadedWeights
            The same by the names of this network; head and branch are new unless the old head was kept.
        """
        names = []
        for name in loaded.loaded:
            if not name.startswith(f"{self.layer}."):
                names.append(f"backbone.{name}")
            elif self.keeps_head:
                names.append(f"linear.{name.removeprefix(f'{self.layer}.')}")
        new = [name for name in self.state_dict() if name not in names]
        resampled = tuple(f"backbone.{name}" for name in loaded.resampled)
        return LoadedWeights(tuple(names), loaded.skipped, tuple(new), resampled)

    def body(self, x: Tensor) -> Tensor:
        """Compute the feature: what entered the last linear layer of the network.

        Parameters
        ----------
        x : Tensor of shape (N, in_channels, H, W), float
            Batch of normalised images.

        Returns
        -------
        Tensor of shape (N, width)
            The features.

        Raises
        ------
        InvalidInput
            If the size of the images leads to a feature of another length.
        """
        features = find_logits(self.backbone(x))
        if features.shape[1] != self.width:
            raise InvalidInput(
                f"images of shape {tuple(x.shape[1:])} give a feature of length {features.shape[1]}, and the head of "
                f"this network takes {self.width}; resize the images"
            )
        return features


def adapt(
    model: nn.Module,
    options: Options,
    *,
    layer: str | None = None,
    size: int | None = None,
    keep: bool = False,
    seed: int = 0,
    dropout_at: Literal["blocks", "head"] | None = None,
    name: str = "the network",
) -> AdaptedNetwork:
    """Replace the last linear layer of a network by a head of twofold's.

    Parameters
    ----------
    model : torch.nn.Module
        A classifier; it becomes part of the result.
    options : Options
        Number of classes, dropout, head and branches.
    layer : str, optional
        Name of its last linear layer; by default it is found by running the network once.
    size : int, optional
        Height and width of the images for that run, tried first; then the network's own size, 224 and 32 are tried.
    keep : bool, default=False
        Whether to keep the weights of a linear layer that has as many outputs as the new head.
    seed : int, default=0
        Seed of the weights of head and branch. The global random state is left unchanged.
    dropout_at : {"blocks", "head"}, optional
        Where dropout is: in every dropout layer that the network has (those of attention weights and before the head
        apart), or on the feature alone. By default the former where there are such layers, else the latter.
    name : str, default="the network"
        What the network is called in messages.

    Returns
    -------
    AdaptedNetwork
        The network, in training mode.

    Raises
    ------
    InvalidInput
        If no linear layer, or several, could be the head, or what follows it changes its output; if the network cannot
        run on images of this size; or if ``dropout_at="blocks"`` is asked of a network without dropout layers.
    UnknownName
        If the network has no layer of this name.

    Examples
    --------
    >>> network = adapt(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), Options(3, dropout=0.1), size=2)
    >>> network.width, network.head_drop
    (12, Dropout(p=0.1, inplace=False))
    """
    found = find_head(model, layer, size=size, name=name)
    old = find_named_head(model, found)
    fits = options.head == "linear" and not isinstance(old, UnitHead) and len(old.weight) == options.outputs
    place = dropout_at or ("blocks" if _block_dropouts(model) else "head")
    options = replace(options, dropout_at=place)
    if options.block_dropout:
        _set_block_dropout(model, options.block_dropout, name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(whole(seed, "seed", 0))
        adapted = AdaptedNetwork(model, found, options, keep=keep and fits)
    return adapted.train()


def find_head(model: nn.Module, layer: str | None = None, *, size: int | None = None, name: str = "the network") -> str:
    """Find the last linear layer of a classifier by running it once on random images.

    Parameters
    ----------
    model : torch.nn.Module
        A classifier of images.
    layer : str, optional
        Name of the layer, to be checked only.
    size : int, optional
        Height and width of the images, tried first; then the network's own size, 224 and 32 are tried.
    name : str, default="the network"
        What the network is called in messages.

    Returns
    -------
    str
        Name of the layer.

    Raises
    ------
    InvalidInput
        If the network cannot run on such images, if no linear layer, or several, compute what it returns, or if the
        named layer does not.
    UnknownName
        If the network has no layer of this name.

    Examples
    --------
    >>> find_head(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3)), size=2)
    '3'
    """
    if isinstance(model, Network):
        return "linear"
    if layer is not None:
        find_named_head(model, layer)
    outputs, answers = _try_run(model, size, name)
    returned = []  # layers whose output is one of the tensors that the network returns
    for answer in answers:
        for candidate, output in outputs:
            if are_same(output, answer) and candidate not in returned:
                returned.append(candidate)
    if layer is not None:
        first = [candidate for candidate, output in outputs if are_same(output, answers[0])]
        if layer not in first:
            raise InvalidInput(
                f"head={layer!r} of {name} cannot be replaced: what the network returns is not the output of that layer"
            )
        return layer
    if len(returned) == 1:
        return returned[0]
    if returned:
        raise InvalidInput(
            f"{name} has {len(returned)} layers that could be its head: {', '.join(returned)}; name one with --head"
        )
    same_shape = [candidate for candidate, output in outputs if output.shape == answers[0].shape]
    listed = ", ".join(same_shape) if same_shape else "none"
    raise InvalidInput(
        f"{name} has no head that can be replaced: no linear layer computes what it returns "
        f"({tuple(answers[0].shape)[1]} outputs; linear layers with as many: {listed})"
    )


def check_input(model: nn.Module, size: tuple[int, int], *, name: str = "the network") -> None:
    """Check that a network takes images of a size, by running it once on a random one.

    Parameters
    ----------
    model : torch.nn.Module
        A classifier of images.
    size : tuple of two int
        Height and width of the images.
    name : str, default="the network"
        What the network is called in messages.

    Raises
    ------
    InvalidInput
        If the network cannot run on such images; the message begins with what it says itself.

    Examples
    --------
    >>> check_input(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), (2, 2))
    """
    height, width = size
    try:
        _run(model, height, width)
    except InvalidInput:
        raise
    except Exception as error:  # networks raise many kinds for a size that they do not take
        raise InvalidInput(
            f"{name} cannot take images of {height}x{width} pixels: {_first_line(error)}; "
            "resize the images (--crop), or build the network for this size (timm:NAME?img_size=...)"
        ) from error


def default_scale(model: nn.Module) -> float:
    """Return the scale of a cosine head that SURE has for such a network.

    Parameters
    ----------
    model : torch.nn.Module
        A network.

    Returns
    -------
    float
        64 for networks with attention layers, else 8.

    Examples
    --------
    >>> default_scale(nn.Linear(2, 2)), default_scale(nn.MultiheadAttention(4, 1))
    (8.0, 64.0)
    """
    for module in model.modules():
        if "Attention" in type(module).__name__:
            return TRANSFORMER_SCALE
    return SCALE


def _try_run(model: nn.Module, size: int | None, name: str) -> tuple[list[tuple[str, Tensor]], list[Tensor]]:
    """Run a network on images of the first size that it takes; return outputs of linear layers, and its own."""
    sizes = _list_sizes(model, size)
    problem = ""
    for side in sizes:
        try:
            return _run(model, side, side)
        except InvalidInput:
            raise
        except Exception as error:  # networks raise many kinds for a size that they do not take
            problem = problem or _first_line(error)
    tried = " or ".join(f"{side}x{side}" for side in sizes)
    raise InvalidInput(f"{name} cannot take images of {tried} pixels: {problem}")


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].strip(" .") if lines else type(error).__name__


def _run(model: nn.Module, height: int, width: int) -> tuple[list[tuple[str, Tensor]], list[Tensor]]:
    """Run a network once in evaluation mode on two random images."""
    parameter = next(model.parameters())
    images = torch.randn(
        (2, _count_channels(model), height, width), generator=torch.Generator().manual_seed(0), dtype=torch.float32
    ).to(parameter.device, parameter.dtype)
    outputs: list[tuple[str, Tensor]] = []

    def make_hook(name: str, layer: HeadLayer) -> object:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            if arguments and is_one_vector_per_row(layer, arguments[0], output):
                outputs.append((name, output.detach().flatten(1).clone()))

        return hook

    handles = []
    for name, module in model.named_modules():
        if can_be_head(module):
            handles.append(module.register_forward_hook(make_hook(name, module)))  # type: ignore[arg-type]
    try:
        with evaluation_mode(model), torch.no_grad():
            answer = model(images)
    finally:
        for handle in handles:
            handle.remove()
    answers = [find_logits(answer)]
    if isinstance(answer, list | tuple):
        for other in answer[1:]:
            if isinstance(other, Tensor) and other.ndim == 2 and other.shape[1] > 1:
                answers.append(other)
    return outputs, answers


def _list_sizes(model: nn.Module, first: int | None) -> list[int]:
    """List image sizes to try: the first, the one that the network names, then common ones."""
    sizes = [] if first is None else [first]
    patch_embedding = getattr(model, "patch_embed", None)  # timm's transformers
    declared = [
        getattr(patch_embedding, "img_size", None),
        getattr(model, "image_size", None),  # torchvision's
        getattr(getattr(model, "config", None), "image_size", None),  # Hugging Face's
    ]
    for size in declared:
        side = size[0] if isinstance(size, Sequence) and size else size
        if isinstance(side, int):
            sizes.append(side)
    return list(dict.fromkeys([*sizes, *SIZES]))


def _count_channels(model: nn.Module) -> int:
    """Return the number of image channels: those that the first convolution takes, or 3."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return module.in_channels
    return 3


def _block_dropouts(model: nn.Module) -> list[nn.Dropout]:
    """List the dropout layers of a network, without those of attention weights and before the head."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and name.rpartition(".")[2] not in NOT_IN_BLOCKS:
            found.append(module)
    return found


def _set_block_dropout(model: nn.Module, rate: float, name: str) -> None:
    layers = _block_dropouts(model)
    if not layers:
        raise InvalidInput(
            f"{name} has no dropout layers in its blocks; put dropout before the head: --dropout-at head"
        )
    for layer in layers:
        layer.p = rate


def _replace_module(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


def _as_linear(layer: HeadLayer) -> nn.Linear:
    """Return a linear layer with the weights of a head, which may be a 1x1 convolution."""
    if isinstance(layer, nn.Linear):
        return layer
    weight = layer.weight.detach().flatten(1)
    bias = getattr(layer, "bias", None)
    linear = nn.Linear(weight.shape[1], len(weight), bias=bias is not None)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear
