"""Files of results: CSV and Parquet of the rows, safetensors of the replicates, and folders of all of them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

from twofold._checks import Array
from twofold._csv import escape_row, unescape_cell
from twofold._files import json_with_digest, open_regular, parse_json_with_digest, replacing, sort_header
from twofold.bench.rows import COLUMNS, REAL, WHOLE, Key, ResultRow, transpose_rows
from twofold.errors import InvalidInput, MissingExtra, RunError

CSV, PARQUET, REPLICATES, DIGESTS = "results.csv", "results.parquet", "replicates.safetensors", "results.json"
FOLDER_FORMAT, FOLDER_VERSION = "twofold-results", 1  # kind and version of results.json
REPLICATES_FORMAT = "twofold replicates 1"
LONGEST_HEADER = 1 << 16  # bytes of the first line of a CSV file


def import_package(name: str, purpose: str) -> ModuleType:
    """Import a package of the extra ``report``.

    Parameters
    ----------
    name : str
        Name of the package.
    purpose : str
        What it is needed for, as the beginning of the error message.

    Returns
    -------
    module
        The package.

    Raises
    ------
    MissingExtra
        If it is not installed; the message has the line that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra(f'{purpose}: pip install "twofold[report]"') from error


# --- folders --------------------------------------------------------------------------------------------------------


def save_folder(rows: Sequence[ResultRow], replicates: Mapping[Key, Array], folder: Path) -> None:
    """Save rows and replicates to a folder that :func:`read_folder` reads back.

    Parameters
    ----------
    rows : sequence of mapping
        Checked rows.
    replicates : mapping of tuple to ndarray
        Bootstrap values by the key of a row.
    folder : Path
        The folder; it is created if it does not exist.

    Raises
    ------
    InvalidInput
        If the folder cannot be created.
    RunError
        If a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be a folder of results ({error.strerror}); choose another") from error
    csv_path, parquet_path, replicates_path = folder / CSV, folder / PARQUET, folder / REPLICATES
    csv_content = encode_csv(rows)
    content = {csv_path: csv_content}
    same_rows = csv_path.is_file() and read_bytes(csv_path) == csv_content
    keeps_parquet = same_rows and parquet_path.is_file()
    if not keeps_parquet:
        try:
            content[parquet_path] = encode_parquet(rows)
        except MissingExtra:
            parquet_path.unlink(missing_ok=True)  # it holds other rows
    if replicates:
        content[replicates_path] = encode_replicates(replicates, csv_content)
    digests = {path.name: _sha256(data) for path, data in content.items()}
    if keeps_parquet:
        digests[PARQUET] = _sha256(read_bytes(parquet_path))
    in_order = {name: digests[name] for name in (CSV, PARQUET, REPLICATES) if name in digests}
    content[folder / DIGESTS] = json_with_digest(in_order, kind=FOLDER_FORMAT, version=FOLDER_VERSION)
    write_files(content)
    if not replicates:
        replicates_path.unlink(missing_ok=True)


def read_folder(folder: Path) -> tuple[list[dict[str, object]], dict[Key, Array] | None]:
    """Read the rows and replicates of a folder that :func:`save_folder` wrote.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    tuple of (list of dict, dict or None)
        Rows as they were written, and replicates by key; None where there are none.

    Raises
    ------
    InvalidInput
        If the folder holds no results, has no digests, or a file is not as it was written.
    """
    csv_path = folder / CSV
    if not csv_path.is_file():
        raise InvalidInput(f"{folder} holds no results: there is no {CSV} in it")
    csv_content = read_bytes(csv_path)
    names = _check_digests(folder)
    rows = decode_csv(csv_content, csv_path)
    replicates = None
    if REPLICATES in names:
        replicates = read_replicates(folder / REPLICATES, csv_content)
    return rows, replicates


def _check_digests(folder: Path) -> set[str]:
    """List the files in a folder of results; raise unless each is the one that was written."""
    remedy = f"write the results again with Results.save, or open {CSV} itself"
    path = folder / DIGESTS
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {DIGESTS} with the digests of its files, as in an older format; {remedy}")
    try:
        content = read_bytes(path)
        digests = parse_json_with_digest(content, path, kind=FOLDER_FORMAT, version=FOLDER_VERSION, remedy=remedy)
    except RunError as error:
        raise InvalidInput(str(error)) from error
    if not isinstance(digests, dict) or not {CSV} <= set(digests) <= {CSV, PARQUET, REPLICATES}:
        raise InvalidInput(f"{path} does not list the files of results; {remedy}")
    for name, digest in digests.items():
        if _sha256(read_bytes(folder / name)) != digest:
            raise InvalidInput(
                f"{folder / name} is damaged or was edited: its SHA-256 is not that in {DIGESTS}; {remedy}"
            )
    return set(digests)


def write_files(content: Mapping[Path, bytes]) -> None:
    """Write files; all are replaced once the last is on disk.

    Parameters
    ----------
    content : mapping of Path to bytes
        Content by file.

    Raises
    ------
    InvalidInput
        If the folder of a file does not exist.
    RunError
        If a file cannot be written.
    """
    for path in content:
        if not path.parent.is_dir():
            raise InvalidInput(f"{path} cannot be written: there is no folder {path.parent}")
    try:
        with ExitStack() as stack:
            for path, data in content.items():
                file = stack.enter_context(replacing(path))
                file.write(data)
                file.flush()
    except OSError as error:
        paths = ", ".join(map(str, content))
        raise RunError(f"{paths} cannot be written ({error.strerror}); nothing was changed") from error


def read_bytes(path: Path) -> bytes:
    """Read a file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bytes
        Its content.

    Raises
    ------
    InvalidInput
        If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror})") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- CSV ------------------------------------------------------------------------------------------------------------


def encode_csv(rows: Sequence[ResultRow]) -> bytes:
    """Write rows as CSV; numbers keep all their digits, None is empty.

    Parameters
    ----------
    rows : sequence of mapping
        Checked rows.

    Returns
    -------
    bytes
        The text in UTF-8; texts that a spreadsheet could take for a formula have a leading apostrophe.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells = escape_row(row[column] for column in COLUMNS)
        writer.writerow(cells)  # None becomes an empty cell
    return text.getvalue().encode()


def decode_csv(content: bytes, path: Path) -> list[dict[str, object]]:
    """Read rows that :func:`encode_csv` wrote.

    Parameters
    ----------
    content : bytes
        The content of the file.
    path : Path
        The file, for messages.

    Returns
    -------
    list of dict
        The rows, not yet checked.

    Raises
    ------
    InvalidInput
        If the content is not CSV, has other columns, is cut off, or has text in place of a number.
    """
    try:
        text = content.decode()
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is not a CSV file of results: {error}") from error
    if not lines or tuple(lines[0]) != COLUMNS:
        raise InvalidInput(f"{path} is not a file of results: its first line must be {','.join(COLUMNS)}")
    if not text.endswith("\n"):
        raise InvalidInput(f"{path} is damaged: its last line is cut off")
    return [_parse_line(line, number, path) for number, line in enumerate(lines[1:])]


def _parse_line(line: Sequence[str], number: int, path: Path) -> dict[str, object]:
    if len(line) != len(COLUMNS):
        raise InvalidInput(f"{path} is damaged: row {number} has {len(line)} columns, not {len(COLUMNS)}")
    row: dict[str, object] = {}
    for column, text in zip(COLUMNS, line, strict=True):
        try:
            row[column] = _parse_cell(column, text)
        except ValueError as error:
            raise InvalidInput(f"{path} is damaged: {column} of row {number} is not a number: {text!r}") from error
    return row


def _parse_cell(column: str, text: str) -> str | float | None:
    if not text:
        return None
    if column in REAL:
        return float(text)
    if column in WHOLE:
        return int(text)
    return unescape_cell(text)


# --- Parquet --------------------------------------------------------------------------------------------------------


def encode_parquet(rows: Sequence[ResultRow]) -> bytes:
    """Write rows as Parquet with a checksum per page.

    Parameters
    ----------
    rows : sequence of mapping
        Checked rows.

    Returns
    -------
    bytes
        The content of the file.

    Raises
    ------
    MissingExtra
        If pyarrow is not installed.
    """
    arrow = import_package("pyarrow", "Parquet files need pyarrow")
    parquet = import_module("pyarrow.parquet")
    types = {**dict.fromkeys(REAL, arrow.float64()), **dict.fromkeys(WHOLE, arrow.int64())}
    schema = arrow.schema([(column, types.get(column, arrow.string())) for column in COLUMNS])
    file = io.BytesIO()
    parquet.write_table(arrow.table(transpose_rows(rows), schema=schema), file, write_page_checksum=True)
    return file.getvalue()


def read_columns(path: Path) -> list[str]:
    """Read the names of the columns of a CSV or Parquet file, whatever it holds.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    list of str
        The names; empty where they cannot be read.

    Raises
    ------
    MissingExtra
        If the file is Parquet and pyarrow is not installed.
    """
    if path.suffix == ".parquet":
        arrow = import_package("pyarrow", "Parquet files need pyarrow")
        parquet = import_module("pyarrow.parquet")
        try:
            return list(parquet.read_schema(path).names)
        except (arrow.ArrowException, OSError):
            return []
    try:
        with open_regular(path) as file:
            line = file.readline(LONGEST_HEADER).decode("utf-8-sig", errors="replace")
        return next(csv.reader([line]), [])
    except (OSError, RunError, csv.Error):
        return []


def read_parquet(path: Path) -> list[dict[str, object]]:
    """Read rows that :func:`encode_parquet` wrote.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    list of dict
        The rows, not yet checked.

    Raises
    ------
    MissingExtra
        If pyarrow is not installed.
    InvalidInput
        If the file is not Parquet, is damaged or has other columns.
    """
    arrow = import_package("pyarrow", "Parquet files need pyarrow")
    parquet = import_module("pyarrow.parquet")
    content = io.BytesIO(read_bytes(path))
    try:
        table = parquet.ParquetFile(content, page_checksum_verification=True).read()
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} is not a Parquet file, or damaged: {error}") from error
    if tuple(table.column_names) != COLUMNS:
        raise InvalidInput(f"{path} is not a file of results: its columns must be {', '.join(COLUMNS)}")
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


# --- replicates -----------------------------------------------------------------------------------------------------


def encode_replicates(replicates: Mapping[Key, Array], csv_content: bytes) -> bytes:
    """Write replicates as safetensors: one tensor per length, with their keys and the digest of the rows as metadata.

    Parameters
    ----------
    replicates : mapping of tuple to ndarray
        Bootstrap values by the key of a row.
    csv_content : bytes
        The CSV file that they belong to.

    Returns
    -------
    bytes
        The content of the file.
    """
    from safetensors.numpy import save

    keys_by_length: dict[str, list[Key]] = {}
    for key, array in replicates.items():
        keys_by_length.setdefault(str(len(array)), []).append(key)
    tensors = {}
    for length, keys in keys_by_length.items():
        tensors[length] = np.stack([replicates[key] for key in keys])
    metadata = {"format": REPLICATES_FORMAT, "keys": json.dumps(keys_by_length), "rows": _sha256(csv_content)}
    return sort_header(save(tensors, metadata=metadata))


def read_replicates(path: Path, csv_content: bytes) -> dict[Key, Array] | None:
    """Read replicates that :func:`encode_replicates` wrote.

    Parameters
    ----------
    path : Path
        The file.
    csv_content : bytes
        The CSV file beside it.

    Returns
    -------
    dict of tuple to ndarray, or None
        Bootstrap values by the key of a row; None where there is no such file.

    Raises
    ------
    InvalidInput
        If the file is damaged, or belongs to other rows.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        if metadata.get("format") != REPLICATES_FORMAT:
            raise InvalidInput(f"{path} is not a file of replicates; delete it to open the rows alone")
        if metadata["rows"] != _sha256(csv_content):
            raise InvalidInput(f"{path} belongs to other rows than {CSV} beside it; delete it to open the rows alone")
        return _match_keys(json.loads(metadata["keys"]), tensors)
    except InvalidInput:
        raise
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} is damaged ({error}); delete it to open the rows alone") from error


def _match_keys(keys_by_length: Mapping[str, Sequence[Key]], tensors: Mapping[str, Array]) -> dict[Key, Array]:
    """Give each row of the tensors its key."""
    replicates: dict[Key, Array] = {}
    for length, keys in keys_by_length.items():
        for key, array in zip(keys, tensors[length], strict=True):
            replicates[tuple(key)] = array
    return replicates
