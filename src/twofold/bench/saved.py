"""Outputs that somebody saved: which arrays of a file are the logits and which the labels.

``FILE.npz`` holds the keys of :meth:`twofold.Outputs.from_npz`. Files of others have other keys, which follow the name
of the file: ``FILE.npz?logits=KEY&labels=KEY``, ``probs=KEY`` where only probabilities were saved, or
``conf=KEY&pred=KEY`` where only the confidence and the prediction were. A folder is a run, of which the test set
counts, or the one named by ``?set=NAME``. Tables call a source by its key or file; ``name=WORD`` calls it otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold import _checks
from twofold._checks import AnyArray
from twofold._files import open_regular
from twofold._npz import read_npz
from twofold.errors import InvalidInput, UnknownName
from twofold.outputs import Outputs
from twofold.run import Run
from twofold.typing import Array

_FILE_KEYS = ("logits", "probs", "conf", "pred", "labels")
_RUN_KEYS = ("set",)
_NAME = "name"  # by which tables call the source
_CONTENTS = ("logits", "probs", "conf")  # of which a file must name one


@dataclass(frozen=True, eq=False)
class SavedConfidences:
    """Hold what is left of a model's outputs where only its confidence and prediction were saved.

    Parameters
    ----------
    correct : ndarray of bool, shape (n_samples,)
        Whether each prediction is correct.
    conf : ndarray of shape (n_samples,)
        Confidence of each prediction: the maximum softmax probability.
    """

    correct: AnyArray
    conf: Array

    def __len__(self) -> int:
        return len(self.conf)


def read_saved(source: str, *, root: str | Path | None = None) -> Outputs | SavedConfidences:
    """Read saved outputs from an npz file or a run.

    Parameters
    ----------
    source : str
        ``FILE.npz``, ``FILE.npz?logits=KEY&labels=KEY``, ``FILE.npz?probs=KEY&labels=KEY``,
        ``FILE.npz?conf=KEY&pred=KEY&labels=KEY``, a folder of a run, or ``RUN?set=NAME``.
    root : str or Path, optional
        Folder that relative paths start from; by default the current one.

    Returns
    -------
    Outputs or SavedConfidences
        What was saved; confidences where the source names ``conf``.

    Raises
    ------
    InvalidInput
        If a key is unknown or missing, the file is not an npz file, or a run has no set or several of role test.
    OSError
        If there is no such file.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/nets.npz", first=[[2.0, 0.0], [0.0, 1.0]], truth=[0, 0])
    ...     read_saved("nets.npz?logits=first&labels=truth", root=folder).correct
    array([ True, False])
    """
    path = saved_path(source, root=root)
    keys = _parse_keys(source)
    keys.pop(_NAME, None)
    if path.is_dir():
        return _read_set(path, keys, source)
    if not keys:
        return Outputs.from_npz(path)
    return _read_arrays(path, keys, source)


def saved_path(source: str, *, root: str | Path | None = None) -> Path:
    """Name the file or folder of a source.

    Parameters
    ----------
    source : str
        A source as :func:`read_saved` takes it.
    root : str or Path, optional
        Folder that relative paths start from; by default the current one.

    Returns
    -------
    Path
        The path without keys; it need not exist.

    Examples
    --------
    >>> saved_path("nets.npz?logits=first", root="data").as_posix()
    'data/nets.npz'
    """
    name, _, _ = source.partition("?")
    return Path(root or ".") / Path(name).expanduser()


def saved_digest(source: str, *, root: str | Path | None = None) -> str:
    """Compute a digest of what a source holds, by which a change is noticed.

    Parameters
    ----------
    source : str
        A source as :func:`read_saved` takes it.
    root : str or Path, optional
        Folder that relative paths start from; by default the current one.

    Returns
    -------
    str
        SHA-256 of the file, or of the digests that a run keeps of its data sets.

    Raises
    ------
    OSError
        If there is no such file.
    """
    path = saved_path(source, root=root)
    if path.is_dir():
        digests = sorted(Run.open(path).digests().items())
        return hashlib.sha256(repr(digests).encode()).hexdigest()
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def name_sources(sources: Iterable[str]) -> dict[str, str]:
    """Shorten sources to names for tables: the key of the logits, or the name of the file or run.

    Parameters
    ----------
    sources : iterable of str
        Sources as :func:`read_saved` takes them.

    Returns
    -------
    dict from str to str
        Source by name, in their order. Where two names would be the same, each is its source in full.

    Raises
    ------
    InvalidInput
        If a source is listed twice.

    Examples
    --------
    >>> name_sources(["nets.npz?logits=resnet110_test_logits&labels=y", "runs/resnet20"])
    {'resnet110': 'nets.npz?logits=resnet110_test_logits&labels=y', 'resnet20': 'runs/resnet20'}
    >>> list(name_sources(["a/run", "b/run"]))
    ['a/run', 'b/run']
    """
    listed = list(sources)
    short = [_short_name(source) for source in listed]
    named: dict[str, str] = {}
    for source, name in zip(listed, short, strict=True):
        if source in named.values():
            raise InvalidInput(f"{source!r} is listed twice")
        is_unique = short.count(name) == 1
        named[name if is_unique else source] = source
    return named


def _short_name(source: str) -> str:
    """Name a source by its array, set or file."""
    keys = _parse_keys(source)
    if _NAME in keys:
        return keys[_NAME]
    path = Path(source.partition("?")[0])
    if "set" in keys:
        return f"{path.name}/{keys['set']}"
    key = keys.get("logits") or keys.get("probs") or keys.get("conf")
    if key is None:
        return path.stem if path.suffix == ".npz" else path.name
    for ending in ("_logits", "_probs", "__conf", "_conf", "_test"):
        key = key.removesuffix(ending)
    return key or path.stem


def _parse_keys(source: str) -> dict[str, str]:
    """Split what follows the question mark, ``key=value&key=value``."""
    _, _, query = source.partition("?")
    keys: dict[str, str] = {}
    if not query:
        return keys
    for part in query.split("&"):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise InvalidInput(f"{source!r} must be FILE?key=value&key=value, but {part!r} is not key=value")
        known = (*_FILE_KEYS, *_RUN_KEYS, _NAME)
        if key not in known:
            raise UnknownName.of(f"key in {source!r}", key, known)
        keys[key] = value
    return keys


def _read_set(path: Path, keys: Mapping[str, str], source: str) -> Outputs:
    """Read the named set of a run, or its only test set."""
    for key in keys:
        if key not in _RUN_KEYS:
            raise InvalidInput(f"{source!r} is a run; its data sets are named by ?set=NAME, not by {key}=")
    run = Run.open(path)
    if "set" in keys:
        return run[keys["set"]]
    tests = run.names("test")
    if len(tests) != 1:
        raise InvalidInput(f"{path} has {len(tests)} sets of role test; name one of {run.names()} by {source}?set=NAME")
    return run[tests[0]]


def _read_arrays(path: Path, keys: Mapping[str, str], source: str) -> Outputs | SavedConfidences:
    """Read logits, probabilities or confidences, and labels, from the named arrays of a file."""
    if "set" in keys:
        raise InvalidInput(f"{source!r} is a file; name its arrays by logits=, probs= or conf=, and labels=")
    named = [key for key in _CONTENTS if key in keys]
    if len(named) != 1:
        raise InvalidInput(f"{source!r} must name its arrays by one of logits=, probs= and conf=")
    arrays = read_npz(path)
    for key in keys.values():
        if key not in arrays:
            raise UnknownName.of(f"array in {path.name}", key, arrays)
    if named == ["conf"]:
        return _read_confidences(arrays, keys, source)
    if "pred" in keys:
        raise InvalidInput(f"{source!r}: pred= goes with conf=; logits and probabilities say what is predicted")
    labels = arrays[keys["labels"]] if "labels" in keys else None
    if named == ["logits"]:
        return Outputs(arrays[keys["logits"]], labels)
    return Outputs.from_probabilities(arrays[keys["probs"]], labels)


def _read_confidences(arrays: Mapping[str, AnyArray], keys: Mapping[str, str], source: str) -> SavedConfidences:
    """Read confidences, and compare predictions with labels."""
    for key in ("pred", "labels"):
        if key not in keys:
            raise InvalidInput(f"{source!r} names conf= and must name pred= and labels= too")
    conf = np.asarray(_checks.floats(arrays[keys["conf"]], "conf"), dtype=np.float64)
    predicted, labels = arrays[keys["pred"]], arrays[keys["labels"]]
    if not len(conf) == len(predicted) == len(labels):
        raise InvalidInput(
            f"{source!r}: conf has {len(conf)} rows, pred {len(predicted)} and labels {len(labels)}; all must be equal"
        )
    return SavedConfidences(predicted == labels, conf)
