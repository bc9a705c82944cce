"""What a training folder says about its network, so that it can be built again unasked: the file ``model.json``.

The file is plain JSON with a checksum. It holds no code and no path: a network that comes from a Python file is named,
and has to be passed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from torch import nn

from twofold._checks import choice, number, whole
from twofold._files import read_regular, replacing
from twofold._json import check_flag, check_list, check_table, check_text, decode_json, encode_json
from twofold.errors import InvalidInput, RunError
from twofold.nn.models.parts import BRANCHES, HEADS, PLACES, HeadKind

MODEL_FILE = "model.json"
FORMAT, VERSION = "twofold-model", 1
AGAIN = "delete it, name the network yourself and pass the weights with --checkpoint"
LARGEST = 16 * 1024 * 1024  # bytes; a hundred thousand class names fit
ATTRIBUTE = "network_description"  # where a network carries its description


@dataclass(frozen=True)
class NetworkDescription:
    """Describe a network well enough to build it again.

    Parameters
    ----------
    model : str
        The architecture as :func:`twofold.nn.load` takes it. ``"hf:."`` is a Hugging Face network whose ``config.json``
        is in the same folder.
    classes : int
        Number of classes, without an abstention output.
    head : {"linear", "cosine", "unit", "prototypes"}, default="linear"
        Kind of the last layer.
    scale : float, default=8.0
        Scale of a head that takes unit vectors.
    learn_scale : bool, default=False
        Whether that scale is learnt.
    dropout : float, default=0.0
        Rate of dropout.
    dropout_at : {"blocks", "head"}, default="blocks"
        Where dropout is: at the sites of the architecture, or before the last layer alone.
    abstain : bool, default=False
        Whether there is an abstention output.
    confidence : {"devries", "confidnet"}, optional
        Confidence branch.
    in_channels : int, default=3
        Number of image channels.
    head_layer : str, optional
        Name of the architecture's own last linear layer, where it was named.

    Raises
    ------
    InvalidInput
        If a value has the wrong type or range.

    Examples
    --------
    >>> NetworkDescription("resnet20_cifar", 10, head="cosine").scale
    8.0
    """

    model: str
    classes: int
    head: HeadKind = "linear"
    scale: float = 8.0
    learn_scale: bool = False
    dropout: float = 0.0
    dropout_at: Literal["blocks", "head"] = "blocks"
    abstain: bool = False
    confidence: Literal["devries", "confidnet"] | None = None
    in_channels: int = 3
    head_layer: str | None = None

    def __post_init__(self) -> None:
        whole(self.classes, "classes", 2)
        whole(self.in_channels, "in_channels", 1)
        number(self.dropout, "dropout", 0, 1, open_high=True)
        number(self.scale, "scale", 0, 1e9, open_low=True)
        choice(self.head, "head", HEADS)
        choice(self.dropout_at, "dropout_at", PLACES)
        if self.confidence is not None:
            choice(self.confidence, "confidence", BRANCHES)
        try:
            check_text(self.model, "model")
            if self.head_layer is not None:
                check_text(self.head_layer, "head_layer")
            for name in ("learn_scale", "abstain"):
                check_flag(getattr(self, name), name)
        except ValueError as error:
            raise InvalidInput(str(error)) from error

    @property
    def is_code(self) -> bool:
        """Whether the network comes from a Python file, which is never run unasked.

        Examples
        --------
        >>> NetworkDescription("net.py:make", 10).is_code
        True
        """
        return Path(self.model.rpartition(":")[0]).suffix == ".py"


@dataclass(frozen=True)
class ModelDescription:
    """Hold the content of ``model.json``.

    Parameters
    ----------
    network : NetworkDescription or None
        The network; None where training got a module of the caller's own.
    class_names : tuple of str, optional
        Names of the classes, in the order of the outputs.
    freeze : str, default="none"
        What stayed frozen in training, as ``Settings.freeze`` has it.
    input : mapping from str to object, optional
        How images become inputs of the network.

    Examples
    --------
    >>> ModelDescription(NetworkDescription("resnet20_cifar", 2), ("cat", "dog")).class_names
    ('cat', 'dog')
    """

    network: NetworkDescription | None
    class_names: tuple[str, ...] | None = None
    freeze: str = "none"
    input: Mapping[str, object] | None = None


def list_members(model: str) -> list[str]:
    """List the networks that a text names: the members in the folder of an ensemble, else the text itself.

    Parameters
    ----------
    model : str
        A model as :func:`twofold.nn.load` takes it, or the folder of a trained ensemble.

    Returns
    -------
    list of str
        What :func:`twofold.nn.load` takes.

    Examples
    --------
    >>> list_members("resnet20_cifar")
    ['resnet20_cifar']
    """
    folders: list[str] = []
    while (Path(model) / f"member-{len(folders)}" / MODEL_FILE).is_file():
        folders.append(str(Path(model) / f"member-{len(folders)}"))
    return folders or [model]


def describe_network(model: nn.Module) -> NetworkDescription | None:
    """Return the description that a network carries.

    Parameters
    ----------
    model : torch.nn.Module
        A network.

    Returns
    -------
    NetworkDescription or None
        The description; None for a module that twofold did not build.

    Examples
    --------
    >>> describe_network(nn.Linear(2, 2)) is None
    True
    """
    found = getattr(model, ATTRIBUTE, None)
    return found if isinstance(found, NetworkDescription) else None


def remember_description(model: nn.Module, description: NetworkDescription) -> None:
    """Let a network carry its description; copies of it carry it too.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    description : NetworkDescription
        How it was built.
    """
    setattr(model, ATTRIBUTE, description)


def write_description(folder: Path, description: ModelDescription) -> None:
    """Write ``model.json`` into a training folder.

    Parameters
    ----------
    folder : Path
        The folder, which exists.
    description : ModelDescription
        What to write.
    """
    content: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "network": None if description.network is None else asdict(description.network),
        "class_names": None if description.class_names is None else list(description.class_names),
        "freeze": description.freeze,
        "input": None if description.input is None else dict(description.input),
    }
    with replacing(folder / MODEL_FILE) as file:
        file.write(encode_json(content))


def read_description(folder: str | Path) -> ModelDescription | None:
    """Read ``model.json`` of a training folder, and check every value in it.

    Parameters
    ----------
    folder : str or Path
        The folder.

    Returns
    -------
    ModelDescription or None
        The content; None if there is no such file, as in folders of earlier versions.

    Raises
    ------
    RunError
        If the file is damaged, was edited, or holds something that it must not hold.
    """
    path = Path(folder) / MODEL_FILE
    if not path.exists():
        return None
    raw = read_regular(path)
    if len(raw) > LARGEST:
        raise RunError(f"{path} has {len(raw)} bytes, and at most {LARGEST} are read; {AGAIN}")
    content = decode_json(raw, path, kind="the description of a network", form=FORMAT, version=VERSION, again=AGAIN)
    try:
        check_table(content, "model.json", ("network", "class_names", "freeze", "input"))
        return ModelDescription(
            network=_check_network(content["network"]),
            class_names=_check_class_names(content["class_names"]),
            freeze=check_text(content["freeze"], "freeze"),
            input=None if content["input"] is None else check_table(content["input"], "input"),
        )
    except (ValueError, TypeError) as error:  # InvalidInput is a ValueError
        raise RunError(f"{path} does not describe a network: {error}; {AGAIN}") from error


def _check_network(content: object) -> NetworkDescription | None:
    """Check the network part of the file: its keys, their types, and that it names nothing outside the folder."""
    if content is None:
        return None
    names = [field.name for field in fields(NetworkDescription)]
    table: dict[str, Any] = dict(check_table(content, "network", names))
    description = NetworkDescription(**table)
    kind, colon, name = description.model.partition(":")
    if colon and kind == "hf" and name != ".":
        raise ValueError(f"a Hugging Face network must be 'hf:.', got {description.model!r:.80}")
    return description


def _check_class_names(content: object) -> tuple[str, ...] | None:
    if content is None:
        return None
    names = check_list(content, "class_names")
    return tuple(check_text(name, "class_names") for name in names)
