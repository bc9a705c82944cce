"""Trained parameters from a file into a network: all of them fit, or none is changed.

Formats: ``.safetensors``, ``.npz`` with one array per parameter, and torch files read with ``weights_only=True``, so
no file can run code.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from twofold._files import arrays_digest
from twofold.errors import InvalidInput
from twofold.nn.models.parts import Network, Options
from twofold.nn.models.zoo import ZOO
from twofold.nn.npz import NpzArchive

FORMAT = "twofold-training-2"  # format of the files that training writes
NESTS = ("state_dict", "model_state_dict", "model", "net")  # keys under which training code keeps the parameters
PREFIXES = ("module.", "_orig_mod.")  # added by DataParallel and by torch.compile
COUNTER = "num_batches_tracked"  # counter of batch norm; evaluation does not use it, so it may be missing
STEMS = ("conv1.weight", "block1.0.weight")  # names of the first convolution in networks of the zoo
ENCODER_KEYS = "confidence.encoder."  # keys of a confidence branch with its own encoder
SHOWN = 3  # number of keys of each kind that an error lists


def read_parameters(path: Path | str) -> dict[str, Tensor]:
    """Read the parameters in a checkpoint by name, without nesting and without the prefixes of wrappers.

    Parameters
    ----------
    path : Path or str
        File in one of the formats of this module, chosen by its suffix; any other suffix is read as a torch file.

    Returns
    -------
    dict from str to Tensor
        Parameters by name, on the CPU.

    Raises
    ------
    InvalidInput
        If the file is missing, damaged, of another format, or does not hold tensors by name.

    Notes
    -----
    Parameters may be nested under ``state_dict``, ``model_state_dict``, ``model`` or ``net`` in a torch file. The
    prefixes ``module.`` (DataParallel) and ``_orig_mod.`` (torch.compile) are removed where all names have them.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"state_dict": {"module.weight": torch.ones(2)}}, f"{folder}/model.pt")
    ...     read_parameters(f"{folder}/model.pt")
    {'weight': tensor([1., 1.])}
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidInput(f"checkpoint {path} is a folder; give one file")
    if not path.is_file():
        raise InvalidInput(f"checkpoint {path} is missing; give one file")
    readers = {".safetensors": _read_safetensors, ".npz": _read_npz}
    read = readers.get(path.suffix.lower(), _read_torch)
    parameters = _check_parameters(read(path), path)
    for prefix in PREFIXES * 2:  # either may be the outer one
        if all(key.startswith(prefix) for key in parameters):
            parameters = {key.removeprefix(prefix): value for key, value in parameters.items()}
    return parameters


def _check_parameters(content: Mapping[str, object], path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name, or raise if it holds anything else, or nothing."""
    parameters: dict[str, Tensor] = {}
    problem = "" if content else "nothing"
    for key, value in content.items():
        if not isinstance(value, Tensor):
            problem = f"{key!r} ({type(value).__name__})"
            break
        parameters[key] = value
    if problem:
        raise InvalidInput(
            f"checkpoint {path} must hold parameters by name, plainly or under {', '.join(NESTS)}; it holds {problem}"
        )
    return parameters


def _read_safetensors(path: Path) -> Mapping[str, object]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise InvalidInput(f"checkpoint {path} is damaged or not a safetensors file: {error}") from error
    if "twofold" in header:  # written by our training, with a digest
        try:
            unseal_header(tensors, header)
        except InvalidInput as error:
            raise InvalidInput(f"checkpoint {path} {error}; restore it or train again") from error
    return tensors


def seal_header(tensors: Mapping[str, Tensor], text: str) -> dict[str, str]:
    """Make the header of a safetensors file that training writes: a text, and the digest of it and of the tensors.

    Parameters
    ----------
    tensors : mapping from str to Tensor
        Tensors on the CPU.
    text : str
        Metadata of the file, as JSON.

    Returns
    -------
    dict
        One key, ``"twofold"``, since safetensors writes several in any order, and equal training must give equal bytes.

    Examples
    --------
    >>> tensors = {"weight": torch.ones(2)}
    >>> unseal_header(tensors, seal_header(tensors, "{}"))
    '{}'
    """
    texts = {"format": FORMAT, "text": text}
    return {"twofold": json.dumps({**texts, "sha256": _tensors_digest(tensors, texts)})}


def unseal_header(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Check a header that :func:`seal_header` made and return its text.

    Parameters
    ----------
    tensors : mapping from str to Tensor
        The tensors of the file.
    header : mapping from str to str
        The metadata of the file.

    Returns
    -------
    str
        The text.

    Raises
    ------
    InvalidInput
        If there is no digest, or it does not match; the message is the end of a sentence.
    """
    try:
        sealed = json.loads(header["twofold"])
    except (ValueError, RecursionError) as error:
        raise InvalidInput("is damaged: its header is not JSON") from error
    if not isinstance(sealed, dict) or "sha256" not in sealed:
        raise InvalidInput("has no digest, as an older format had none")
    digest = sealed.pop("sha256")
    if set(sealed) != {"format", "text"} or sealed["format"] != FORMAT or not isinstance(sealed["text"], str):
        raise InvalidInput("is damaged, or of another format")
    if digest != _tensors_digest(tensors, sealed):
        raise InvalidInput("is damaged: its SHA-256 is not the one in its header")
    return sealed["text"]


def _tensors_digest(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """Compute the SHA-256 of named tensors and texts from their bytes, which works for every dtype."""
    arrays = {}
    all_texts = dict(texts)
    for name, tensor in tensors.items():
        arrays[name] = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        all_texts[f"{name} dtype"] = f"{tensor.dtype} {tuple(tensor.shape)}"
    return arrays_digest(arrays, all_texts)


def _read_npz(path: Path) -> Mapping[str, object]:
    try:
        archive = NpzArchive.open(path)
        return {name: torch.from_numpy(archive.read(name)) for name in archive.names}
    except (ValueError, TypeError) as error:  # torch has no tensors of strings
        raise InvalidInput(f"checkpoint {path} is damaged or not an npz of numeric arrays: {error}") from error


def _read_torch(path: Path) -> Mapping[str, object]:
    try:
        with warnings.catch_warnings(action="ignore"):  # torch warns of unusual pickles; unreadable ones raise below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidInput(
            f"checkpoint {path} is damaged, or holds objects other than tensors, which twofold never unpickles; "
            "save model.state_dict() alone, or a safetensors file"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError) as error:
        raise InvalidInput(f"checkpoint {path} is damaged or not a torch file: {error}") from error
    for nest in NESTS:
        if isinstance(content, Mapping) and isinstance(content.get(nest), Mapping):
            content = content[nest]
    if not isinstance(content, Mapping):
        raise InvalidInput(f"checkpoint {path} must hold a state_dict, and holds a {type(content).__name__}")
    return content


def load_parameters(model: nn.Module, parameters: Mapping[str, Tensor], *, source: str, expected: str) -> None:
    """Copy parameters into a model whose names and shapes they must have; after an error the weights are unchanged.

    Parameters
    ----------
    model : torch.nn.Module
        Model to load into. A confidence branch first gets its own encoder if the parameters have one.
    parameters : mapping from str to Tensor
        Parameters by name, as :func:`read_parameters` returns them. Counters of batch norm may be missing.
    source : str
        Name of the checkpoint in error messages.
    expected : str
        Name of the model in error messages.

    Raises
    ------
    InvalidInput
        If names or shapes differ. The message lists them, and the networks of the zoo that fit.

    Examples
    --------
    >>> model = nn.Linear(1, 1)
    >>> load_parameters(
    ...     model, {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}, source="w.pt", expected="a linear layer"
    ... )
    >>> model.weight.detach()
    tensor([[1.]])
    """
    _adopt_encoder(model, parameters)
    own = model.state_dict()
    missing = [key for key in own if key not in parameters and not key.endswith(COUNTER)]
    unexpected = [key for key in parameters if key not in own]
    other_shape = []
    for key in own:
        if key in parameters and own[key].shape != parameters[key].shape:
            other_shape.append(f"{key} {tuple(parameters[key].shape)} for {tuple(own[key].shape)}")
    if not (missing or unexpected or other_shape):
        model.load_state_dict(dict(parameters), strict=False)
        return
    problems = []
    for kind, keys in (("missing", missing), ("unexpected", unexpected), ("of another shape", other_shape)):
        if keys:
            problems.append(f"{len(keys)} {kind}: {_list_some(keys)}")
    fitting = fits(parameters)
    advice = f"the file fits {' or '.join(fitting)}" if fitting else "choose the architecture it was saved from"
    raise InvalidInput(f"checkpoint {source} does not fit {expected} (parameters {'; '.join(problems)}); {advice}")


def _adopt_encoder(model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    """Give the confidence branch of a network its own encoder if the parameters have one."""
    if not isinstance(model, Network) or model.confidence is None or model.confidence.encoder is not None:
        return
    if any(ENCODER_KEYS in key for key in parameters):
        model.confidence.adopt(model)


def fits(parameters: Mapping[str, Tensor]) -> list[str]:
    """List the networks of the zoo whose parameters have exactly these names and shapes.

    Parameters
    ----------
    parameters : mapping from str to Tensor
        Parameters by name.

    Returns
    -------
    list of str
        A spec for each network, with its number of classes, as :func:`twofold.nn.models.load` takes it.

    Examples
    --------
    >>> fits({"weight": torch.ones(1)})
    []
    """
    weight = parameters.get("linear.weight")
    stems = [parameters[key] for key in STEMS if key in parameters]
    if weight is None or weight.ndim != 2 or len(weight) < 2 or not stems or stems[0].ndim != 4:
        return []
    options = f"classes={len(weight)}"
    in_channels = stems[0].shape[1]
    if in_channels != 3:
        options += f"&in_channels={in_channels}"
    outline = _outline(parameters)
    return [f"{name}?{options}" for name in ZOO if _zoo_outline(name) == outline]


@cache
def _zoo_outline(name: str) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return _outline(ZOO[name](Options(2)).state_dict())


def _outline(parameters: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return shapes by name, without the numbers of classes and of image channels."""
    shapes = {}
    for key, value in parameters.items():
        shape = tuple(value.shape)
        if key in STEMS:
            shape = shape[:1] + shape[2:]
        elif key.startswith("linear."):
            shape = shape[1:]
        if not key.endswith(COUNTER):
            shapes[key] = shape
    return shapes


def _list_some(keys: Sequence[str]) -> str:
    listed = ", ".join(keys[:SHOWN])
    return f"{listed}, ..." if len(keys) > SHOWN else listed
