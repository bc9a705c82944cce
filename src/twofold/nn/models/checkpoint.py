"""Trained parameters from a file into a network: all of them fit, or none is changed.

Formats: ``.safetensors``, ``.npz`` with one array per parameter, and torch files read with ``weights_only=True``, so
no file can run code; and folders that training or Hugging Face wrote.
"""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
ALL_PREFIXES = (*PREFIXES, "model.", "backbone.", "network.", "net.", "encoder.")  # those of other wrappers, too
FOLDER_FILES = ("weights.safetensors", "model.safetensors", "pytorch_model.bin")  # of trainings and of Hugging Face
SHARDS = "model.safetensors.index.json"  # of Hugging Face: which file holds which parameter
COUNTER = "num_batches_tracked"  # counter of batch norm; evaluation does not use it, so it may be missing
STEMS = ("conv1.weight", "block1.0.weight")  # names of the first convolution in networks of the zoo
ENCODER_KEYS = "confidence.encoder."  # keys of a confidence branch with its own encoder
SHOWN = 3  # number of keys of each kind that an error lists


def read_parameters(path: Path | str) -> dict[str, Tensor]:
    """Read the parameters in a checkpoint by name, without nesting and without the prefixes of wrappers.

    Parameters
    ----------
    path : Path or str
        File in one of the formats of this module, chosen by its suffix; any other suffix is read as a torch file. Of a
        folder the file of weights is read: ``weights.safetensors`` of a training, or ``model.safetensors`` (whole or in
        shards) or ``pytorch_model.bin`` of Hugging Face.

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
    parameters: dict[str, Tensor] = {}
    for file in _find_files(path):
        readers = {".safetensors": _read_safetensors, ".npz": _read_npz}
        read = readers.get(file.suffix.lower(), _read_torch)
        parameters |= _check_parameters(read(file), file)
    for prefix in PREFIXES * 2:  # either may be the outer one
        if all(key.startswith(prefix) for key in parameters):
            parameters = {key.removeprefix(prefix): value for key, value in parameters.items()}
    return parameters


def _find_files(path: Path) -> list[Path]:
    """Return the files of a checkpoint: itself, the one in a folder, or the shards that an index lists."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InvalidInput(f"checkpoint {path} is missing; give one file")
    if (path / SHARDS).is_file():
        return _list_shards(path / SHARDS)
    for name in FOLDER_FILES:
        if (path / name).is_file():
            return [path / name]
    raise InvalidInput(f"checkpoint {path} is a folder without {', '.join(FOLDER_FILES)}; give one file")


def _list_shards(index: Path) -> list[Path]:
    """Return the files that an index of Hugging Face names; all must be beside it."""
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{index} is damaged or not an index of weights") from error
    files = []
    for name in sorted(map(str, names)):
        file = index.parent / name
        if Path(name).name != name or not file.is_file():
            raise InvalidInput(f"{index} names {name!r:.80}, which is not a file beside it")
        files.append(file)
    return files


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


@dataclass(frozen=True)
class LoadedWeights:
    """Say which tensors of a network came from a checkpoint.

    Parameters
    ----------
    loaded : tuple of str
        Names of the network's tensors that have the values of the checkpoint.
    skipped : tuple of str
        Names in the checkpoint that were not used.
    new : tuple of str
        Names of the network's tensors that have their initial values.
    resampled : tuple of str, default=()
        Those among ``loaded`` that were interpolated to the network's input size: position embeddings.

    Examples
    --------
    >>> print(LoadedWeights(("conv.weight",), ("fc.weight",), ("linear.weight", "linear.bias")))
    loaded 1 tensor, skipped 1 of the checkpoint (fc.weight), initialised 2 (linear.weight, linear.bias)
    """

    loaded: tuple[str, ...]
    skipped: tuple[str, ...]
    new: tuple[str, ...]
    resampled: tuple[str, ...] = ()

    def __str__(self) -> str:
        tensors = "tensor" if len(self.loaded) == 1 else "tensors"
        text = f"loaded {len(self.loaded)} {tensors}"
        if self.resampled:
            text += f" (interpolated: {_list_some(self.resampled)})"
        text += f", skipped {len(self.skipped)} of the checkpoint"
        if self.skipped:
            text += f" ({_list_some(self.skipped)})"
        text += f", initialised {len(self.new)}"
        if self.new:
            text += f" ({_list_some(self.new)})"
        return text


def load_parameters(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    *,
    source: str,
    expected: str,
    new: Collection[str] = (),
    optional: Collection[str] = (),
) -> LoadedWeights:
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
    new : collection of str, default=()
        Names of modules that keep their initial values, such as a new head. Whatever else the checkpoint holds beyond
        the network's other parameters is then skipped, not an error.
    optional : collection of str, default=()
        Names of modules that are loaded if the checkpoint has them.

    Returns
    -------
    LoadedWeights
        What was loaded, skipped and left as initialised.

    Raises
    ------
    InvalidInput
        If names or shapes differ. The message lists them, and the networks of the zoo that fit.

    Notes
    -----
    One rule finds the names: the prefixes that wrappers add (``module.``, ``model.``, ``backbone.``, ...) are removed
    from the front, one at a time, until the network has a parameter of that name. Networks of the zoo also take the
    names of torchvision's ResNets (``downsample``, ``fc``). Position embeddings of timm's transformers for another
    image size are interpolated by timm; those of other networks are an error.

    Examples
    --------
    >>> model = nn.Linear(1, 1)
    >>> found = load_parameters(
    ...     model, {"weight": torch.ones(1, 1), "bias": torch.zeros(1)}, source="w.pt", expected="a linear layer"
    ... )
    >>> model.weight.detach(), found.loaded
    (tensor([[1.]]), ('weight', 'bias'))
    """
    if "confidence" not in new:
        _adopt_encoder(model, parameters)
    own = model.state_dict()
    renamed = _match_names(parameters, own, model)
    resampled: tuple[str, ...] = ()
    if _other_shapes(renamed, own, new):
        renamed, resampled = _resample(model, renamed)
    missing, fresh = [], []
    for key in own:
        if key in renamed and not _belongs_to(key, new):
            continue
        if _belongs_to(key, new) or _belongs_to(key, optional):
            fresh.append(key)
        elif not key.endswith(COUNTER):
            missing.append(key)
    unexpected = [key for key in renamed if key not in own or _belongs_to(key, new)]
    other_shape = _other_shapes(renamed, own, new)
    misplaced = [] if new else unexpected  # with new modules, what the network does not use is skipped
    if missing or other_shape or misplaced:
        raise _misfit(parameters, missing, misplaced, other_shape, source, expected)
    fitting = {key: value for key, value in renamed.items() if key not in unexpected}
    model.load_state_dict(fitting, strict=False)
    return LoadedWeights(tuple(fitting), tuple(unexpected), tuple(fresh), resampled)


def _belongs_to(key: str, modules: Collection[str]) -> bool:
    """Check whether a parameter is inside one of the modules."""
    return any(key.startswith(f"{module}.") for module in modules)


def _match_names(parameters: Mapping[str, Tensor], own: Collection[str], model: nn.Module) -> dict[str, Tensor]:
    """Rename parameters as the network names them; of two with one name, the one with the shorter prefix counts."""
    matched: dict[str, tuple[int, Tensor]] = {}
    for key, value in parameters.items():
        name, removed = _find_name(key, own, is_zoo=isinstance(model, Network))
        if name not in matched or removed < matched[name][0]:
            matched[name] = (removed, value)
    return {name: value for name, (_, value) in matched.items()}


def _find_name(key: str, own: Collection[str], *, is_zoo: bool) -> tuple[str, int]:
    """Return the name of a parameter in the network, or its own, and how many prefixes were removed."""
    name, removed = key, 0
    while True:
        for candidate in _name_candidates(name, is_zoo=is_zoo):
            if candidate in own:
                return candidate, removed
        shorter = _remove_one_prefix(name)
        if shorter == name:
            return key, 0
        name = shorter
        removed += 1


def _remove_one_prefix(name: str) -> str:
    """Remove the prefix that a wrapper added in front, if there is one."""
    for prefix in ALL_PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _name_candidates(name: str, *, is_zoo: bool) -> list[str]:
    """Return a name and, for networks of the zoo, what torchvision calls the same parameter."""
    if not is_zoo:
        return [name]
    renamed = name.replace("downsample.", "shortcut.")
    if renamed.startswith("fc."):
        renamed = f"linear.{renamed.removeprefix('fc.')}"
    return [name, renamed]


def _other_shapes(parameters: Mapping[str, Tensor], own: Mapping[str, Tensor], new: Collection[str]) -> list[str]:
    """Describe the parameters whose shape is not that of the network's."""
    described = []
    for key in own:
        if key in parameters and not _belongs_to(key, new) and own[key].shape != parameters[key].shape:
            described.append(f"{key} {tuple(parameters[key].shape)} for {tuple(own[key].shape)}")
    return described


def _resample(model: nn.Module, parameters: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Let timm fit a checkpoint to the input size of one of its networks; others are left as they are."""
    if not hasattr(model, "pretrained_cfg"):
        return parameters, ()
    fit = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if fit is None:
        return parameters, ()
    try:
        fitted = dict(fit(dict(parameters), model))
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, AssertionError):
        return parameters, ()  # the error about shapes says what does not fit
    changed = [key for key in fitted if key in parameters and fitted[key].shape != parameters[key].shape]
    return fitted, tuple(changed)


def _misfit(
    parameters: Mapping[str, Tensor],
    missing: Sequence[str],
    unexpected: Sequence[str],
    other_shape: Sequence[str],
    source: str,
    expected: str,
) -> InvalidInput:
    """Make the error for parameters that do not fit: what differs, and what would fit."""
    problems = []
    for kind, keys in (("missing", missing), ("unexpected", unexpected), ("of another shape", other_shape)):
        if keys:
            problems.append(f"{len(keys)} {kind}: {_list_some(keys)}")
    fitting = fits(parameters)
    advice = "choose the architecture it was saved from"
    is_head_alone = not missing and not unexpected and _are_of_one_layer(other_shape)
    if fitting:
        advice = f"the file fits {' or '.join(fitting)}"
        if is_head_alone:
            advice += "; to load all but the head, pass --new-head"
    elif other_shape and not missing and _are_position_embeddings(other_shape):
        advice = "its position embeddings are for another image size; build the network for the size of the checkpoint"
    elif is_head_alone:
        advice = "to load all but the head, pass --new-head"
    return InvalidInput(f"checkpoint {source} does not fit {expected} (parameters {'; '.join(problems)}); {advice}")


def _are_position_embeddings(described: Sequence[str]) -> bool:
    """Check whether parameters of another shape, as described for a message, are all position embeddings."""
    for text in described:
        name, _, _ = text.partition(" ")
        if "pos" not in name:
            return False
    return True


def _are_of_one_layer(described: Sequence[str]) -> bool:
    """Check whether parameters of another shape, as described for a message, are the weight and bias of one layer."""
    layers = set()
    for text in described:
        name, _, _ = text.partition(" ")
        layer, _, _ = name.rpartition(".")
        layers.add(layer)
    return len(layers) == 1 and len(described) <= 2 and "" not in layers


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
    if len(keys) > SHOWN:
        listed += ", ..."
    return listed
