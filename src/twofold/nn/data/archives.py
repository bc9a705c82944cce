"""Read the files that image data sets are published in; every kind of damage is one error that names the file."""

from __future__ import annotations

import gzip
import math
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np

from twofold.errors import InvalidInput
from twofold.nn.data.image_files import check_path
from twofold.nn.npz import AnyArray
from twofold.nn.rows import Pixels

ARCHIVE_DAMAGE = (EOFError, OSError, zlib.error, tarfile.TarError, gzip.BadGzipFile)


def read_decompressed(path: Path) -> bytes:
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
    ...     read_decompressed(file)
    b'0123'
    """
    data = check_path(path, "file", folder=False).read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except ARCHIVE_DAMAGE as error:
        raise InvalidInput(f"{path} is a damaged or truncated gzip file: {error}") from error


def open_npy(path: Path) -> AnyArray:
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
    ...     open_npy(Path(folder) / "labels.npy").tolist()
    [1, 2]
    """
    check_path(path, ".npy file", folder=False)
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidInput(f"{path} is not a .npy array, or is truncated: {error}") from error


def read_idx(path: Path, *, ndim: int) -> Pixels:
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
    ...     read_idx(file, ndim=1)
    array([7, 9], dtype=uint8)
    """
    data = read_decompressed(path)
    header_size = 4 + 4 * ndim
    magic = bytes((0, 0, 8, ndim))
    if data[:4] != magic:
        what = {3: "images", 1: "labels"}[ndim]
        raise InvalidInput(f"{path} is not an IDX file of {what}: it begins with {data[:4].hex()}, not {magic.hex()}")
    if len(data) < header_size:
        raise InvalidInput(f"{path} is truncated: {len(data)} bytes, the header alone has {header_size}")
    shape = struct.unpack(f">{ndim}I", data[4:header_size])
    expected = math.prod(shape)
    available = len(data) - header_size
    if available != expected:
        raise InvalidInput(f"{path} must hold {expected} bytes after its header (shape {shape}), got {available}")
    return np.frombuffer(data, dtype=np.uint8, offset=header_size).reshape(shape)


def read_svhn(path: Path) -> tuple[Pixels, AnyArray]:
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

    check_path(path, ".mat file", folder=False)
    try:
        content = loadmat(path, variable_names=["X", "y"])
    except (ValueError, TypeError, KeyError, IndexError, NotImplementedError, MatReadError, *ARCHIVE_DAMAGE) as error:
        raise InvalidInput(f"{path} is not a readable .mat file (version 5), or is truncated: {error}") from error
    for name in ("X", "y"):
        if name not in content:
            raise InvalidInput(f"{path} has no array {name!r}; an SVHN file has X and y")
    images = np.asarray(content["X"])
    labels = np.asarray(content["y"]).ravel()
    if images.ndim != 4 or images.shape[2] != 3 or images.dtype != np.uint8:
        raise InvalidInput(f"{path}: X must be uint8 of shape (H, W, 3, N), got {images.dtype} of {images.shape}")
    if len(labels) != images.shape[3]:
        raise InvalidInput(f"{path}: y has {len(labels)} labels but X has {images.shape[3]} images")
    is_wrong = ~np.isin(labels, np.arange(11))
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise InvalidInput(f"{path}: labels must be 1 to 10 (10 is the digit 0), got {labels[row]} in row {row}")
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), np.where(labels == 10, 0, labels)
