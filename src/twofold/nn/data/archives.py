"""Read the files that image data sets are published in; every kind of damage is one error that names the file."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twofold._files import NPZ_DAMAGE
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.pickles import plain_pickle
from twofold.nn.data.source import Pixels

AnyArray = npt.NDArray[Any]
DAMAGED = (EOFError, OSError, zlib.error, tarfile.TarError, gzip.BadGzipFile)


def existing(path: Path, what: str, *, folder: bool | None = None) -> Path:
    """Return a path, or raise an error that says what is missing there.

    Parameters
    ----------
    path : Path
        The path to look at.
    what : str
        What should be there, for the error message, such as ``"image list"``.
    folder : bool, optional
        True if it must be a folder, False if it must be a file; by default either is accepted.

    Returns
    -------
    Path
        ``path`` itself.

    Raises
    ------
    InvalidInput
        If nothing is there, or a file where a folder must be, or a folder where a file must be.

    Examples
    --------
    >>> existing(Path("."), "folder", folder=True) == Path(".")
    True
    """
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such {what}")
    if folder is True and not path.is_dir():
        raise InvalidInput(f"{path} is a file; {what} must be a folder")
    if folder is False and path.is_dir():
        raise InvalidInput(f"{path} is a folder; {what} must be a file")
    return path


def unpacked(path: Path) -> bytes:
    """Read all bytes of a file, decompressed if it is a gzip file.

    Parameters
    ----------
    path : Path
        The file. Its first two bytes decide whether it is gzipped, not its name.

    Returns
    -------
    bytes
        The (decompressed) content.

    Raises
    ------
    InvalidInput
        If there is no such file, it is a folder, or the gzip stream is damaged or truncated.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "digits.gz"
    ...     _ = file.write_bytes(gzip.compress(b"0123"))
    ...     unpacked(file)
    b'0123'
    """
    data = existing(path, "file", folder=False).read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except DAMAGED as error:
        raise InvalidInput(f"{path} is a damaged or truncated gzip file: {error}") from error


# --- arrays ---------------------------------------------------------------------------------------------------------


def npz(path: Path) -> dict[str, Callable[[], AnyArray]]:
    """List the arrays of an .npz file, each as a function that reads it.

    Parameters
    ----------
    path : Path
        The .npz file. Arrays of Python objects are not read.

    Returns
    -------
    dict of str to callable
        The name of each array, and a function without arguments that reads and returns it.

    Raises
    ------
    InvalidInput
        If there is no such file or it is not an .npz file; when a function is called, if its array cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "set.npz"
    ...     np.savez(file, labels=[1, 2])
    ...     npz(file)["labels"]()
    array([1, 2])
    """
    existing(path, ".npz file", folder=False)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
    except (zipfile.BadZipFile, OSError) as error:
        raise InvalidInput(f"{path} is no .npz file, or a truncated one: {error}") from error

    def reader(name: str) -> Callable[[], AnyArray]:
        def read() -> AnyArray:
            try:
                with np.load(path, allow_pickle=False) as file:
                    return np.asarray(file[name])
            except (*NPZ_DAMAGE, OSError) as error:
                raise InvalidInput(f"{path}: array {name!r} cannot be read: {error}") from error

        return read

    return {name: reader(name) for name in names}


def member(arrays: Mapping[str, Callable[[], AnyArray]], name: str, path: Path) -> AnyArray:
    """Read one array of an .npz file.

    Parameters
    ----------
    arrays : mapping of str to callable
        What :func:`npz` returned.
    name : str
        Name of the array.
    path : Path
        The file, for the error message.

    Returns
    -------
    ndarray
        The array.

    Raises
    ------
    UnknownName
        If the file holds no such array; the message suggests the nearest names.
    InvalidInput
        If the array cannot be read.

    Examples
    --------
    >>> member({"labels": lambda: np.array([1, 2])}, "labels", Path("set.npz"))
    array([1, 2])
    """
    if name not in arrays:
        raise UnknownName.of(f"array in {path}", name, arrays)
    return arrays[name]()


def npy(path: Path) -> AnyArray:
    """Open a .npy file as a memory map, read-only.

    Parameters
    ----------
    path : Path
        The .npy file. Arrays of Python objects are not read.

    Returns
    -------
    numpy.memmap
        The array; pages are read from disk when they are used.

    Raises
    ------
    InvalidInput
        If there is no such file, it is not a .npy array, or it is truncated.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/labels.npy", [1, 2])
    ...     npy(Path(folder) / "labels.npy").tolist()
    [1, 2]
    """
    existing(path, ".npy file", folder=False)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidInput(f"{path} is no .npy array, or a truncated one: {error}") from error


# --- IDX, the format of MNIST ---------------------------------------------------------------------------------------


def idx(path: Path, *, ndim: int) -> Pixels:
    """Read the unsigned bytes of an IDX file, the format of MNIST, gzipped or not.

    Parameters
    ----------
    path : Path
        The file.
    ndim : int
        Number of dimensions: 3 for images, 1 for labels.

    Returns
    -------
    ndarray of uint8, shape (N, H, W) or (N,)
        The images or the labels.

    Raises
    ------
    InvalidInput
        If the file is missing, damaged, or not an IDX file of bytes with ``ndim`` dimensions.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "labels-idx1-ubyte"
    ...     _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))  # the header counts 2 labels
    ...     idx(file, ndim=1)
    array([7, 9], dtype=uint8)
    """
    data = unpacked(path)
    head = 4 + 4 * ndim
    want = bytes((0, 0, 8, ndim))
    if data[:4] != want:
        what = {3: "images", 1: "labels"}[ndim]
        raise InvalidInput(f"{path} is no IDX file of {what}: it begins with {data[:4].hex()}, not {want.hex()}")
    if len(data) < head:
        raise InvalidInput(f"{path} is truncated: {len(data)} bytes, the header alone has {head}")
    shape = struct.unpack(f">{ndim}I", data[4:head])
    size = int(np.prod([int(s) for s in shape], dtype=object))
    if len(data) - head != size:
        raise InvalidInput(f"{path} must hold {size} bytes after its header (shape {shape}), got {len(data) - head}")
    return np.frombuffer(data, dtype=np.uint8, offset=head).reshape(shape)


# --- SVHN -----------------------------------------------------------------------------------------------------------


def svhn(path: Path) -> tuple[Pixels, AnyArray]:
    """Read images and labels of an SVHN .mat file.

    Parameters
    ----------
    path : Path
        The .mat file (version 5) of the cropped digits, with the arrays ``X`` and ``y``.

    Returns
    -------
    images : ndarray of uint8, shape (N, 32, 32, 3)
        The images.
    labels : ndarray, shape (N,)
        The digits 0 to 9. The file writes the digit 0 as 10.

    Raises
    ------
    InvalidInput
        If the file is missing or damaged, lacks an array, or holds arrays of another shape or labels beyond 10.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    existing(path, ".mat file", folder=False)
    try:
        content = loadmat(path, variable_names=["X", "y"])
    except (ValueError, TypeError, KeyError, IndexError, NotImplementedError, MatReadError, *DAMAGED) as error:
        raise InvalidInput(f"{path} is no readable .mat file (version 5), or a truncated one: {error}") from error
    for name in ("X", "y"):
        if name not in content:
            raise InvalidInput(f"{path} has no array {name!r}; an SVHN file has X and y")
    x, y = np.asarray(content["X"]), np.asarray(content["y"]).ravel()
    if x.ndim != 4 or x.shape[2] != 3 or x.dtype != np.uint8:
        raise InvalidInput(f"{path}: X must be uint8 of shape (H, W, 3, N), got {x.dtype} of {x.shape}")
    if len(y) != x.shape[3]:
        raise InvalidInput(f"{path}: y has {len(y)} labels but X has {x.shape[3]} images")
    odd = ~np.isin(y, np.arange(11))
    if odd.any():
        row = int(odd.argmax())
        raise InvalidInput(f"{path}: labels must be 1 to 10 (10 is the digit 0), got {y[row]} in row {row}")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), np.where(y == 10, 0, y)


# --- CIFAR ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CifarLayout:
    """Describe the file names and label fields of CIFAR-10 or CIFAR-100 in one of their two layouts.

    Parameters
    ----------
    folder : str
        Folder that the published archive unpacks to.
    train : tuple of str
        File names of the training batches, in order.
    test : tuple of str
        File names of the test batches.
    labels : tuple of str
        Binary layout: a name for each label byte before an image. Python layout: the keys of the label lists.
    binary : bool
        Whether this is the binary layout; otherwise batches are pickles.

    Examples
    --------
    >>> LAYOUTS["cifar100"][0].labels
    ('coarse', 'fine')
    """

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: tuple[str, ...]  # binary: the label bytes before each image; python: the keys of the lists
    binary: bool


LAYOUTS = {
    "cifar10": (
        CifarLayout(
            "cifar-10-batches-bin",
            tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            ("test_batch.bin",),
            ("fine",),
            binary=True,
        ),
        CifarLayout(
            "cifar-10-batches-py",
            tuple(f"data_batch_{i}" for i in range(1, 6)),
            ("test_batch",),
            ("labels",),
            binary=False,
        ),
    ),
    "cifar100": (
        CifarLayout("cifar-100-binary", ("train.bin",), ("test.bin",), ("coarse", "fine"), binary=True),
        CifarLayout("cifar-100-python", ("train",), ("test",), ("coarse_labels", "fine_labels"), binary=False),
    ),
}
CLASSES = {("cifar10", "fine"): 10, ("cifar100", "fine"): 100, ("cifar100", "coarse"): 20}


def cifar(
    path: Path, kind: Literal["cifar10", "cifar100"], split: Literal["train", "test"], labels: Literal["fine", "coarse"]
) -> tuple[Pixels, AnyArray]:
    """Read images and labels of CIFAR-10 or CIFAR-100.

    Parameters
    ----------
    path : Path
        A folder (the one with the batches, or its parent) or the published .tar.gz, in the binary or the python layout.
        Pickles of the python layout are read as plain data, without running them.
    kind : {"cifar10", "cifar100"}
        Which of the two data sets.
    split : {"train", "test"}
        Which part.
    labels : {"fine", "coarse"}
        The classes, or the 20 super-classes of CIFAR-100.

    Returns
    -------
    images : ndarray of uint8, shape (N, 3, 32, 32)
        The images, channels first, in stored order.
    labels : ndarray of int64, shape (N,)
        Their class numbers.

    Raises
    ------
    InvalidInput
        If files are missing, damaged or truncated, differ in length, or hold labels out of range.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "test_batch.bin").write_bytes(bytes([7]) + bytes(3072))  # one black image of class 7
    ...     images, labels = cifar(Path(folder), "cifar10", "test", "fine")
    >>> images.shape, labels
    ((1, 3, 32, 32), array([7]))
    """
    layout, files = _cifar_files(existing(path, "CIFAR folder or archive"), kind, split)
    parts = []
    for name, data in files.items():
        part = _binary_batch(name, data, layout) if layout.binary else _python_batch(name, data, layout)
        parts.append(part)
    sizes = {len(pixels) for pixels, _ in parts}
    if len(sizes) > 1:
        counts = ", ".join(f"{Path(n).name}: {len(p)}" for n, (p, _) in zip(files, parts, strict=True))
        raise InvalidInput(f"{path}: the training batches must have equally many images, got {counts}")
    key = next(k for k in layout.labels if k in (labels, "labels", f"{labels}_labels"))
    truth = np.concatenate([fields[key] for _, fields in parts])
    top = CLASSES[kind, labels]
    bad = (truth < 0) | (truth >= top)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(f"{path}: {labels} labels must be in 0..{top - 1}, got {truth[row]} in row {row} of {split}")
    return np.concatenate([pixels for pixels, _ in parts]), truth


def _cifar_files(path: Path, kind: str, split: str) -> tuple[CifarLayout, dict[str, bytes]]:
    """Find the layout at a path and read the bytes of its batches, by name."""
    if path.is_file():
        return _cifar_members(path, kind, split)
    for layout in LAYOUTS[kind]:
        wanted = layout.train if split == "train" else layout.test
        for folder in (path, path / layout.folder):
            there = [folder / name for name in wanted]
            found = [file.is_file() for file in there]
            if all(found):
                return layout, {str(file): file.read_bytes() for file in there}
            if any(found):
                raise InvalidInput(f"{there[found.index(False)]}: this batch is missing, others are there")
    either = " or ".join(" ".join((x.train if split == "train" else x.test)[:1]) for x in LAYOUTS[kind])
    raise InvalidInput(f"{path}: no {kind} {split} files here (looked for {either})")


def _cifar_members(path: Path, kind: str, split: str) -> tuple[CifarLayout, dict[str, bytes]]:
    data = io.BytesIO(unpacked(path))  # gzip's own checksum covers the whole archive
    try:
        with tarfile.open(fileobj=data) as archive:
            members = {Path(m.name).name: m for m in archive.getmembers() if m.isfile()}
            for layout in LAYOUTS[kind]:
                wanted = layout.train if split == "train" else layout.test
                if all(name in members for name in wanted):
                    files = {}
                    for name in wanted:
                        stream = archive.extractfile(members[name])
                        assert stream is not None  # a regular file
                        files[f"{path}/{name}"] = stream.read()
                    return layout, files
    except DAMAGED as error:
        raise InvalidInput(f"{path} is a damaged or truncated archive: {error}") from error
    raise InvalidInput(f"{path}: this archive has no {kind} {split} batches")


def _binary_batch(name: str, data: bytes, layout: CifarLayout) -> tuple[Pixels, dict[str, AnyArray]]:
    """Read records of label bytes and 3 x 32 x 32 pixels."""
    extra = len(layout.labels)
    if not data or len(data) % (extra + 3072):
        raise InvalidInput(f"{name} is truncated or no such batch: {len(data)} bytes, not a multiple of {extra + 3072}")
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, extra + 3072)
    fields = {key: rows[:, i].astype(np.int64) for i, key in enumerate(layout.labels)}
    return rows[:, extra:].reshape(-1, 3, 32, 32), fields


def _python_batch(name: str, data: bytes, layout: CifarLayout) -> tuple[Pixels, dict[str, AnyArray]]:
    """Read a pickled dictionary of data (N, 3072) and lists of labels."""
    content = plain_pickle(data, name)
    batch = {_text(k): v for k, v in content.items()} if isinstance(content, dict) else {}
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != 3072:
        came = f"{pixels.dtype} of {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise InvalidInput(f"{name}: 'data' must be uint8 of shape (N, 3072), got {came}")
    fields = {}
    for key in layout.labels:
        values = batch.get(key)
        if not isinstance(values, list | np.ndarray) or len(values) != len(pixels):
            raise InvalidInput(f"{name}: {key!r} must list {len(pixels)} labels")
        if not all(isinstance(v, int | np.integer) and abs(int(v)) < 2**63 for v in values):
            raise InvalidInput(f"{name}: {key!r} must hold integers")
        fields[key] = np.array([int(v) for v in values], dtype=np.int64)
    return pixels.reshape(-1, 3, 32, 32), fields


def _text(key: Any) -> Any:
    return key.decode("latin-1") if isinstance(key, bytes) else key
