"""The folder of a saved gate: gate.json, a safetensors file with the learnt arrays, and a lock."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from twofold._checks import Array
from twofold._files import locked, read_regular, replacing
from twofold._json import decode_json, encode_json
from twofold.errors import RunError, TwofoldError
from twofold.gate.schema import GateRecord, parse_gate
from twofold.gate.trial import check_scores
from twofold.scores.chain import Chain
from twofold.scores.tensors import remove_prefix

FORMAT, VERSION = "twofold-gate", 2
MANIFEST, LOCK = "gate.json", "gate.lock"
PATIENCE = 5.0  # seconds for which reading a gate is retried while it is being replaced
AGAIN = "fit the gate again and save it with Gate.save"


@dataclass(frozen=True)
class StoredGate:
    """Hold what the folder of a gate contains.

    Parameters
    ----------
    record : GateRecord
        The content of gate.json.
    id : Chain
        The ID score, with its learnt arrays.
    ood : Chain or None
        The OOD score.
    """

    record: GateRecord
    id: Chain
    ood: Chain | None


def write_gate(folder: Path, content: Mapping[str, object], tensors: Mapping[str, Array]) -> None:
    """Write a gate into a folder; a gate that is there already is replaced atomically.

    Parameters
    ----------
    folder : Path
        A new or empty folder, or one that holds a gate.
    content : mapping
        Plain values for gate.json with its format and version, but without those on the tensors.
    tensors : mapping of str to ndarray
        Learnt arrays by ``id.`` or ``ood.`` and their name in the score.

    Raises
    ------
    RunError
        If ``folder`` is a file, or holds something other than a gate.
    """
    from safetensors.numpy import save

    raw = save(dict(tensors))
    digest = hashlib.sha256(raw).hexdigest()
    name = f"scores-{digest[:16]}.safetensors"
    encoded = encode_json({**content, "tensors": {"file": name, "sha256": digest}})
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK):
        _check_folder(folder)
        with replacing(folder / name) as file:
            file.write(raw)
        with replacing(folder / MANIFEST) as file:  # from here on the folder holds this gate
            file.write(encoded)
        for other in list(folder.iterdir()):  # left by the previous gate, or by a writer that was killed
            if _is_own(other.name) and other.name not in (name, MANIFEST, LOCK):
                with suppress(OSError):
                    other.unlink()


def read_gate(folder: Path) -> StoredGate:
    """Read a folder that :func:`write_gate` wrote, and again while another process replaces the gate.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    StoredGate
        Its content, checked.

    Raises
    ------
    RunError
        If the gate is missing, damaged, of another version, or holds anything that Gate.save does not write.
    """
    path = folder / MANIFEST
    deadline = time.monotonic() + PATIENCE
    while True:
        raw = _read(path)
        try:
            return _decode_gate(raw, path)
        except RunError:
            if _read(path) == raw or time.monotonic() > deadline:
                raise


def _decode_gate(raw: bytes, path: Path) -> StoredGate:
    """Build the gate from the bytes of gate.json and the file beside it."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = decode_json(raw, path, kind="a saved gate", form=FORMAT, version=VERSION, again=AGAIN)
    try:
        record = parse_gate(content)
        tensors = load(_read_tensors(path.parent / record.tensors_file, record.tensors_sha256))
        for key in tensors:
            side, _, _ = key.partition(".")
            if side != "id" and (side != "ood" or record.ood is None):
                raise ValueError(f"an array {key!r:.80} belongs to no score")
        id_score = Chain.from_header(record.id, remove_prefix(tensors, "id"))
        ood_score = None
        if record.ood is not None:
            ood_score = Chain.from_header(record.ood, remove_prefix(tensors, "ood"))
        chains = [id_score] if ood_score is None else [id_score, ood_score]
        check_scores(chains, record.classes, record.widths)
    except RunError:
        raise
    except (SafetensorError, TwofoldError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise RunError(f"{path} was not written by Gate.save ({error!s:.200}); {AGAIN}") from error
    except (RecursionError, MemoryError, ArithmeticError) as error:
        raise RunError(f"{path} was not written by Gate.save; {AGAIN}") from error
    return StoredGate(record, id_score, ood_score)


def _read_tensors(path: Path, sha256: str) -> bytes:
    raw = _read(path)
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise RunError(f"{path} is damaged; restore it, or {AGAIN}")
    return raw


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{path} does not exist; {path.parent} is not a saved gate, or a part was lost") from error
    except RunError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})") from error


def _check_folder(folder: Path) -> None:
    """Raise unless a gate may be written here: a missing or empty folder, or one that holds a gate."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; choose a folder for the gate")
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    if not all(_is_own(entry.name) for entry in folder.iterdir()):
        raise RunError(f"{folder} is not empty and holds no gate; choose an empty or new folder")


def _is_own(name: str) -> bool:
    """Check whether a file of a folder is one that Gate.save writes, or leaves behind when it is killed."""
    own = r"gate\.json|scores-[0-9a-f]{16}\.safetensors"
    temporary = rf"\.(?:{own})\.[0-9]+(?:\.[0-9a-f]{{16}})?\.tmp"
    return name == LOCK or re.fullmatch(rf"(?:{own})|{temporary}", name) is not None
