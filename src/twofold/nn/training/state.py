"""The files of a training: weights, the state to resume from, and the history of its epochs.

Each file is written whole or not at all, and carries a digest by which damage is noticed. A digest does not stop a
forger, so everything that is read is checked against the training it must belong to.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from twofold._files import replacing, sort_header
from twofold.errors import InvalidInput, RunError
from twofold.nn.models.checkpoint import seal_header, unseal_header
from twofold.nn.training.settings import Settings

if sys.platform != "win32":
    import fcntl

StateDict: TypeAlias = Mapping[str, Any]  # nested mappings, lists, tensors and plain values, as PyTorch makes them
EpochValues: TypeAlias = Mapping[str, float]

STATE, WEIGHTS, HISTORY = "state.safetensors", "weights.safetensors", "metrics.csv"
PATIENCE = 10.0  # seconds to wait for another training to leave a folder


@dataclass(frozen=True)
class TrainingIdentity:
    """Say which training a file belongs to.

    Parameters
    ----------
    recipe : str
        The recipe as text.
    settings : mapping from str to object
        The settings by name.
    rows : int
        Number of rows in the training set.
    """

    recipe: str
    settings: Mapping[str, object]
    rows: int


@dataclass(frozen=True)
class Progress:
    """Say how far a training has come.

    Parameters
    ----------
    epoch : int, default=0
        Epochs that are done.
    history : tuple of mapping from str to float, default=()
        The values of each of them.
    best : float, default=-inf
        Best validation value so far, by which weights are kept; larger is better.
    """

    epoch: int = 0
    history: tuple[EpochValues, ...] = ()
    best: float = -math.inf


@dataclass(frozen=True)
class SavedState:
    """Hold the content of a state file that belongs to this training.

    Parameters
    ----------
    path : Path
        The file.
    progress : Progress
        How far the training had come.
    state : mapping
        What :meth:`twofold.nn.training.Training.state` returned then.
    """

    path: Path
    progress: Progress
    state: StateDict

    def refuse(self, reason: str = "") -> RunError:
        """Make the error for a state that does not fit the training.

        Parameters
        ----------
        reason : str, default=""
            What does not fit.

        Returns
        -------
        RunError
            The error to raise.
        """
        return _foreign(self.path, reason)


def make_folder(path: Path) -> None:
    """Create the folder of a training, and check that it can be written to.

    Parameters
    ----------
    path : Path
        The folder; it may exist.

    Raises
    ------
    RunError
        If it cannot be created or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):  # nameless, because several processes try at once
            pass
    except OSError as error:
        raise RunError(f"{path} cannot be written to ({error.strerror}); choose another folder") from error


@contextmanager
def hold_folder(path: Path) -> Iterator[None]:
    """Keep other trainings out of a folder while open; a process that dies lets go of it.

    On Windows, and on file systems without locks, nothing is locked.

    Parameters
    ----------
    path : Path
        The folder, which exists.

    Yields
    ------
    None
        The folder is held until the block ends.

    Raises
    ------
    RunError
        If another training holds it. Reading processes of one that was killed may do so for a few seconds, so that this
        waits a little before it gives up.
    """
    if sys.platform == "win32":
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    deadline = time.monotonic() + PATIENCE
    try:
        while not _lock_at_once(handle):
            if time.monotonic() > deadline:
                raise RunError(f"another training is at work in {path}; wait until it ends, or choose another folder")
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)


def _lock_at_once(handle: int) -> bool:
    """Lock an open folder without waiting, and return False if another holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def write_weights(path: Path, model: nn.Module, identity: TrainingIdentity) -> None:
    """Write the weights of a network.

    Parameters
    ----------
    path : Path
        The file.
    model : torch.nn.Module
        The network.
    identity : TrainingIdentity
        The training that made them.
    """
    write_tensors(path, model.state_dict(), asdict(identity))


def load_weights(model: nn.Module, path: Path) -> None:
    """Load weights that :func:`write_weights` wrote into a network of the same shape.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    path : Path
        The file.

    Raises
    ------
    RunError
        If the file is missing, damaged, or holds the weights of another network.
    """
    tensors, _ = read_tensors(path)
    try:
        check_same_tensors(tensors, model.state_dict())
    except InvalidInput as error:
        raise RunError(
            f"{path} holds the weights of another network ({error}); delete the folder to train again"
        ) from error
    model.load_state_dict(tensors)


def write_state(path: Path, state: StateDict, identity: TrainingIdentity, progress: Progress) -> None:
    """Write the state from which a training resumes.

    Parameters
    ----------
    path : Path
        The file.
    state : mapping
        Nested mappings, lists, tensors and plain values.
    identity : TrainingIdentity
        The training it belongs to.
    progress : Progress
        How far that training has come.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _flatten(state, tensors)
    write_tensors(path, tensors, {**asdict(identity), **asdict(progress), "state": skeleton})


def read_state(path: Path, identity: TrainingIdentity) -> SavedState | None:
    """Read the state from which a training resumes.

    Parameters
    ----------
    path : Path
        The file.
    identity : TrainingIdentity
        The training that is to resume.

    Returns
    -------
    SavedState or None
        The state; None if there is no file.

    Raises
    ------
    RunError
        If the file is damaged, forged, or that of another training.
    """
    if not path.exists():
        return None
    tensors, metadata = read_tensors(path)
    try:
        _check_identity(metadata, identity, path.parent)
        progress = _read_progress(metadata, epochs=metadata["settings"]["epochs"])
        state = _nest(metadata["state"], tensors)
        if not isinstance(state, dict):
            raise InvalidInput("its state is not a mapping")
    except InvalidInput as error:
        raise _foreign(path, str(error)) from error
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise _foreign(path) from error
    return SavedState(path, progress, state)


def _check_identity(metadata: Mapping[str, Any], identity: TrainingIdentity, folder: Path) -> None:
    as_written = json.loads(json.dumps(asdict(identity)))  # tuples become lists, as in the file
    defaults = json.loads(json.dumps(asdict(Settings())))
    saved = {**metadata, "settings": {**defaults, **metadata["settings"]}}  # settings added since had these values
    for key, value in as_written.items():
        if saved[key] != value:
            raise RunError(f"{folder} holds another training ({key} differs); choose another folder, or delete it")


def _read_progress(metadata: Mapping[str, Any], epochs: int) -> Progress:
    """Check the counters of a state file: whole epochs of this training, one row of numbers for each."""
    epoch, history, best = metadata["epoch"], metadata["history"], metadata["best"]
    if type(epoch) is not int or not 1 <= epoch <= epochs:
        raise InvalidInput(f"epoch must be in 1..{epochs}, got {epoch!r:.40}")
    if not isinstance(history, list) or len(history) != epoch:
        raise InvalidInput(f"history must have a row for each of {epoch} epochs")
    for number, row in enumerate(history, start=1):
        if not _is_history_row(row, number):
            raise InvalidInput(f"row {number} of its history does not hold the values of that epoch")
    if not isinstance(best, float) or math.isnan(best) or best == math.inf:
        raise InvalidInput(f"best must be a number below infinity, got {best!r:.40}")
    return Progress(epoch, tuple(history), best)


def _is_history_row(row: object, epoch: int) -> bool:
    if not isinstance(row, dict) or row.get("epoch") != epoch:
        return False
    for value in row.values():
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
    return math.isfinite(row.get("loss", math.nan)) and math.isfinite(row.get("lr", math.nan))


def _foreign(path: Path, reason: str = "") -> RunError:
    shown = f" ({reason})" if reason else ""
    return RunError(f"{path} does not hold the state of this training{shown}; delete it to start again")


def check_same_tensors(saved: object, own: Mapping[str, object]) -> None:
    """Check that saved tensors have the names, shapes and types of those they will replace.

    Parameters
    ----------
    saved : object
        What was read; it must be a mapping from names to tensors.
    own : mapping from str to Tensor
        The tensors to be replaced.

    Raises
    ------
    InvalidInput
        If a tensor is missing, unexpected, or of another shape or type; the message names the first.

    Examples
    --------
    >>> check_same_tensors({"weight": torch.ones(2)}, {"weight": torch.zeros(2)})
    """
    if not isinstance(saved, Mapping):
        raise InvalidInput("its tensors have no names")
    different = sorted(map(str, own.keys() ^ saved.keys()))
    if different:
        raise InvalidInput(f"{different[0]} is missing or unexpected")
    for name, tensor in own.items():
        found = saved[name]
        if not isinstance(tensor, Tensor):
            continue
        if not isinstance(found, Tensor) or found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise InvalidInput(f"{name} is not a tensor of shape {tuple(tensor.shape)} and type {tensor.dtype}")


def check_optimiser_state(saved: StateDict, optimiser: torch.optim.Optimizer) -> None:
    """Check that a saved state fits an optimiser: PyTorch itself would fail at the next step, or silently use it.

    Parameters
    ----------
    saved : mapping
        A ``state_dict`` of the optimiser.
    optimiser : torch.optim.Optimizer
        The optimiser that will load it.

    Raises
    ------
    InvalidInput
        If a tensor has another shape than its parameter, or hyper-parameters differ.
    LookupError, TypeError, ValueError, AttributeError
        If the state has another structure.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for position, values in saved["state"].items():
        if position not in range(len(parameters)):
            raise InvalidInput(f"the optimiser has no parameter {position!r:.40}")
        for name, value in values.items():
            if isinstance(value, Tensor) and value.ndim > 0 and value.shape != parameters[position].shape:
                raise InvalidInput(f"{name} of parameter {position} has shape {tuple(value.shape)}")
    for found, own in zip(saved["param_groups"], optimiser.state_dict()["param_groups"], strict=True):
        if found["params"] != own["params"]:
            raise InvalidInput("the optimiser has other parameters")
        for name in own.keys() & found.keys() - {"lr"}:  # the rate of the next step is set by the schedule
            if _as_json(found[name]) != _as_json(own[name]):
                raise InvalidInput(f"the optimiser has another {name}")


def _as_json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def write_history(path: Path, history: Sequence[EpochValues]) -> None:
    """Write the values of all epochs as CSV, a row for each.

    Parameters
    ----------
    path : Path
        The file.
    history : sequence of mapping from str to float
        The values of each epoch.
    """
    columns: dict[str, None] = {}  # in order of appearance
    for values in history:
        columns.update(dict.fromkeys(values))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    with replacing(path) as file:
        file.write(text.getvalue().encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, object]) -> None:
    """Write tensors and metadata to a safetensors file with a digest of both.

    Parameters
    ----------
    path : Path
        The file.
    tensors : mapping from str to Tensor
        Tensors by name.
    metadata : mapping from str to object
        What JSON can hold.
    """
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with replacing(path) as file:
        content = save(plain, metadata=seal_header(plain, json.dumps(metadata)))
        file.write(sort_header(content))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tensors : dict from str to Tensor
        Tensors by name, on the CPU.
    metadata : dict from str to object
        The metadata.

    Raises
    ------
    RunError
        If the file is missing, damaged, or of another format.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise RunError(f"{path} is missing; delete its folder to train again")
    if not path.is_file():
        raise RunError(f"{path} is not a regular file; a pipe, device or folder holds no training")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        metadata = json.loads(unseal_header(tensors, header))
    except InvalidInput as error:
        raise RunError(f"{path} {error}; delete it to start again") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error}); check its permissions") from error
    except (SafetensorError, KeyError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged or not a file of training; delete it to start again") from error
    if not isinstance(metadata, dict):
        raise RunError(f"{path} is not a file of training; delete it to start again")
    return tensors, metadata


def _flatten(value: object, tensors: dict[str, Tensor]) -> dict[str, object]:
    """Turn a nested state into JSON, with tensors moved to a mapping by number."""
    if isinstance(value, Tensor):
        number = len(tensors)
        tensors[str(number)] = value.detach().cpu().contiguous().clone()
        return {"tensor": number}
    if isinstance(value, Mapping):
        return {"items": [[key, _flatten(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_flatten(item, tensors) for item in value]}
    return {"value": value}


def _nest(skeleton: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> object:
    """Put the tensors back: the inverse of :func:`_flatten`."""
    if "tensor" in skeleton:
        return tensors[str(skeleton["tensor"])]
    if "items" in skeleton:
        return {key: _nest(item, tensors) for key, item in skeleton["items"]}
    if "list" in skeleton:
        return [_nest(item, tensors) for item in skeleton["list"]]
    return skeleton["value"]


def check_finite(state: object, name: str) -> None:
    """Check that the tensors in a nested state are finite.

    Parameters
    ----------
    state : object
        Nested mappings and lists, tensors and plain values.
    name : str
        What the state is called in the message.

    Raises
    ------
    InvalidInput
        If a tensor holds NaN or infinity.

    Examples
    --------
    >>> check_finite({"means": [torch.ones(2)]}, "average")
    """
    for tensor in _find_tensors(state):
        if not torch.isfinite(tensor).all():
            raise InvalidInput(f"the {name} holds numbers that are not finite")


def _find_tensors(value: object) -> Iterator[Tensor]:
    """Find the tensors in a nested state."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _find_tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _find_tensors(item)
