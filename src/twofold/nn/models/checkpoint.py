"""Trained parameters from a file into a network: all of them fit, or none is changed.

Formats: ``.safetensors``, ``.npz`` with one array per parameter, and torch files read with ``weights_only=True``, so
no file can run code.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twofold._files import NPZ_DAMAGE, arrays_digest
from twofold.errors import InvalidInput
from twofold.nn.models.parts import ConfidenceBranch, Options
from twofold.nn.models.zoo import ZOO

FORMAT = "twofold-training-2"  # format of the files that training writes
NESTS = ("state_dict", "model_state_dict", "model", "net")  # keys under which training code keeps the parameters
PREFIXES = ("module.", "_orig_mod.")  # added by DataParallel and by torch.compile
COUNTER = "num_batches_tracked"  # counter of batch norm; evaluation does not use it, so it may be missing
STEMS = ("conv1.weight", "block1.0.weight")  # names of the first convolution in networks of the zoo
ADOPTED = "confidence.encoder."  # keys of a confidence branch with an encoder of its own
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
    if not path.is_file():
        raise InvalidInput(f"checkpoint {path} is {'a folder' if path.is_dir() else 'missing'}; give one file")
    readers: dict[str, Callable[[Path], Mapping[str, Any]]] = {".safetensors": _safetensors, ".npz": _npz}
    found = dict(readers.get(path.suffix.lower(), _torch)(path))
    if not found or not all(isinstance(value, Tensor) for value in found.values()):
        odd = next((f"{k!r} ({type(v).__name__})" for k, v in found.items() if not isinstance(v, Tensor)), "nothing")
        raise InvalidInput(
            f"checkpoint {path} must hold parameters by name, plainly or under {', '.join(NESTS)}; it holds {odd}"
        )
    for prefix in PREFIXES * 2:  # either may be the outer one
        if all(key.startswith(prefix) for key in found):
            found = {key.removeprefix(prefix): value for key, value in found.items()}
    return found


def _safetensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise InvalidInput(f"checkpoint {path} is damaged or no safetensors file: {error}") from error
    if "twofold" in header:  # written by our training, with a digest
        try:
            opened_header(tensors, header)
        except InvalidInput as error:
            raise InvalidInput(f"checkpoint {path} {error}; restore it or train again") from error
    return tensors


def sealed_header(tensors: Mapping[str, Tensor], text: str) -> dict[str, str]:
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
    >>> opened_header(tensors, sealed_header(tensors, "{}"))
    '{}'
    """
    sealed = {"format": FORMAT, "text": text, "sha256": _tensors_digest(tensors, {"format": FORMAT, "text": text})}
    return {"twofold": json.dumps(sealed)}


def opened_header(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """Check a header that :func:`sealed_header` made and return its text.

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
        raise InvalidInput("is damaged: its header is no JSON") from error
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
    kinds = {f"{name} dtype": f"{tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items()}
    arrays = {}
    for name, tensor in tensors.items():
        arrays[name] = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return arrays_digest(arrays, {**texts, **kinds})


def _npz(path: Path) -> Mapping[str, Tensor]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {key: torch.from_numpy(np.array(arrays[key])) for key in arrays.files}
    except (*NPZ_DAMAGE, OSError) as error:
        raise InvalidInput(f"checkpoint {path} is damaged or no npz of numeric arrays: {error}") from error


def _torch(path: Path) -> Mapping[str, Any]:
    try:
        with warnings.catch_warnings(action="ignore"):  # torch warns of unusual pickles; unreadable ones raise below
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InvalidInput(
            f"checkpoint {path} is damaged, or holds objects other than tensors, which twofold never unpickles; "
            "save model.state_dict() alone, or a safetensors file"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError) as error:
        raise InvalidInput(f"checkpoint {path} is damaged or no torch file: {error}") from error
    for nest in NESTS:
        if isinstance(found, Mapping) and isinstance(found.get(nest), Mapping):
            found = found[nest]
    if not isinstance(found, Mapping):
        raise InvalidInput(f"checkpoint {path} must hold a state_dict, and holds a {type(found).__name__}")
    return found


def load_parameters(model: nn.Module, parameters: Mapping[str, Tensor], *, source: str, expected: str) -> None:
    """Copy parameters into a model whose names and shapes they must have; after an error the weights are unchanged.

    Parameters
    ----------
    model : torch.nn.Module
        Model to load into. A confidence branch first gets an encoder of its own if the parameters have one.
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
    branch = getattr(model, "confidence", None)
    if isinstance(branch, ConfidenceBranch) and branch.encoder is None and any(ADOPTED in key for key in parameters):
        branch.adopt(model)  # type: ignore[arg-type]
    own = model.state_dict()
    missing = [key for key in own if key not in parameters and not key.endswith(COUNTER)]
    unexpected = [key for key in parameters if key not in own]
    other = [key for key in own if key in parameters and own[key].shape != parameters[key].shape]
    if not (missing or unexpected or other):
        model.load_state_dict(dict(parameters), strict=False)
        return
    shapes = [f"{k} {tuple(parameters[k].shape)} for {tuple(own[k].shape)}" for k in other]
    parts = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    listed = "; ".join(f"{len(keys)} {kind}: {_some(keys)}" for kind, keys in parts.items() if keys)
    fitting = fits(parameters)
    advice = f"the file fits {' or '.join(fitting)}" if fitting else "choose the architecture it was saved from"
    raise InvalidInput(f"checkpoint {source} does not fit {expected} (parameters {listed}); {advice}")


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
    weight, stem = parameters.get("linear.weight"), next((parameters[k] for k in STEMS if k in parameters), None)
    if weight is None or stem is None or weight.ndim != 2 or stem.ndim != 4 or len(weight) < 2:
        return []
    channels = "" if stem.shape[1] == 3 else f"&in_channels={stem.shape[1]}"
    outline = _outline(parameters)
    return [f"{name}?classes={len(weight)}{channels}" for name in ZOO if _outline_of(name) == outline]


@cache
def _outline_of(name: str) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return _outline(ZOO[name](Options(2)).state_dict())


def _outline(parameters: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return shapes by name, without the numbers of classes and of image channels."""
    shapes = {key: tuple(value.shape) for key, value in parameters.items() if not key.endswith(COUNTER)}
    for key, shape in shapes.items():
        if key in STEMS:
            shapes[key] = shape[:1] + shape[2:]
        elif key.startswith("linear."):
            shapes[key] = shape[1:]
    return shapes


def _some(keys: Iterable[str]) -> str:
    keys = list(keys)
    return ", ".join(keys[:SHOWN]) + (", ..." if len(keys) > SHOWN else "")
