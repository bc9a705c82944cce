"""Open whatever holds logged predictions: files, DuckDB, Polars, PyArrow, pandas, Dask or Spark, as one kind of table.

Files are read by an embedded DuckDB that downloads nothing, keeps to the files it was given, and sorts out of core in a
temporary folder of its own.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from twofold.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    import narwhals as nw

Engine = Literal["duckdb", "memory", "dask", "spark"]
Stamp = tuple[str, int, int]  # of a file: its path, size and time of change

_SCRATCH = "twofold-logs-"
_READERS = {
    ".parquet": "read_parquet",
    ".pq": "read_parquet",
    ".csv": "read_csv",
    ".tsv": "read_csv",
    ".jsonl": "read_json",
    ".ndjson": "read_json",
    ".json": "read_json",
}
# Statistics in Parquet files leave NaN out; without the last setting DuckDB takes them to say that there is none.
_READ_PARQUET = "SELECT * FROM read_parquet($1, union_by_name = true, can_have_nan = true)"
# DuckDB would leave out rows before a line that looks like a head, and rows that look like comments.
_READ_CSV = "SELECT * FROM read_csv($1, union_by_name = true, skip = 0, comment = '')"
_DELIMITERS = (",", ";", "\t", "|")
_INSTALL = 'tables of logged predictions need DuckDB, narwhals and PyArrow: pip install "twofold[logs]"'


@dataclass(frozen=True, eq=False)
class LogTable:
    """Hold an opened table: a frame of narwhals, the engine that runs it, and the names of its columns.

    Parameters
    ----------
    frame : narwhals.DataFrame or narwhals.LazyFrame
        The rows.
    engine : {"duckdb", "memory", "dask", "spark"}
        What sorts and counts.
    names : mapping of str to str
        Columns of the table, and what each is called in ``frame``.
    files : sequence of (path, size, time)
        The files behind the table as they were when it was opened; empty for other tables.
    """

    frame: Any
    engine: Engine
    names: Mapping[str, str]
    files: Sequence[Stamp] = field(default=())

    def check_unchanged(self) -> None:
        """Raise if a file was replaced, extended or removed since the table was opened.

        Raises
        ------
        InvalidInput
            If a file changed.
        """
        for path, size, changed in self.files:
            if _stamp(path) != (path, size, changed):
                raise InvalidInput(f"{path} changed while it was read; run again when nothing writes to it")

    def select(self, **columns: nw.Expr) -> LogTable:
        """Return the table of these expressions alone, under names that need no quoting.

        Parameters
        ----------
        **columns : narwhals.Expr
            Expressions over ``frame`` by their new names.

        Returns
        -------
        LogTable
            The narrower table.
        """
        named = [expression.alias(name) for name, expression in columns.items()]
        return LogTable(self.frame.select(*named), self.engine, {name: name for name in columns}, self.files)


@contextlib.contextmanager
def open_table(source: Any, *, memory: str | None = None, threads: int | None = None) -> Iterator[LogTable]:
    """Open a table of logged predictions.

    Parameters
    ----------
    source : path, glob, sequence of paths, or table
        Parquet, CSV or JSON-lines files; a folder of such files; a DuckDB relation, or a pair of a DuckDB connection
        and a query; a Polars frame, lazy or not; a PyArrow table or dataset; a pandas, Dask or PySpark frame.
    memory : str, optional
        Most memory that the embedded DuckDB may use, such as ``"3GB"``; larger sorts spill to disk. By default 80 % of
        the memory of the machine. For files and PyArrow datasets.
    threads : int, optional
        Threads of the embedded DuckDB; by default one for each processor.

    Yields
    ------
    LogTable
        The table. Temporary files are removed when the block ends.

    Raises
    ------
    MissingExtra
        If DuckDB or narwhals are not installed.
    InvalidInput
        If the source is of no kind that is known, or no file matches.

    Examples
    --------
    >>> import pyarrow as pa
    >>> with open_table(pa.table({"conf": [0.9, 0.1]})) as table:
    ...     table.engine, list(table.names)
    ('memory', ['conf'])
    """
    nw = _import_narwhals()
    if isinstance(source, LogTable):
        yield source
        return
    with _interrupts():
        yield from _open(nw, source, memory, threads)


def _open(nw: Any, source: Any, memory: str | None, threads: int | None) -> Iterator[LogTable]:
    """Yield the table once; temporary files are removed afterwards."""
    if _is_query(source):
        connection, query = source
        source = _run_query(connection, query)
    files = isinstance(source, str | os.PathLike) or _is_list_of_paths(source)
    if not files and not _is_dataset(source):
        yield _wrap(nw, source)
        return
    paths = find_files(source) if files else []
    with _connect(memory, threads) as connection:
        if files:
            relation = _read_files(connection, paths)
        else:
            relation = connection.from_arrow(source)
        frame = nw.from_native(relation)
        names = {name: name for name in frame.collect_schema().names()}
        table = LogTable(frame, "duckdb", names, [_stamp(path) for path in paths])
        yield table
        table.check_unchanged()


def was_interrupted(error: BaseException) -> bool:
    """Check whether an error is what DuckDB makes of an interrupt (SIGINT), which it takes from Python.

    Parameters
    ----------
    error : BaseException
        What was raised.

    Returns
    -------
    bool
        Whether the user interrupted a query.
    """
    return type(error) is RuntimeError and str(error) == "Query interrupted"


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt where DuckDB was interrupted."""
    try:
        yield
    except RuntimeError as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        raise


def find_files(source: Any) -> list[str]:
    """List the files that a path, a folder, a glob or a sequence of them names.

    Parameters
    ----------
    source : str, path or sequence of these
        Where to look. Links are not followed.

    Returns
    -------
    list of str
        Regular files of one format, sorted.

    Raises
    ------
    InvalidInput
        If there is none, one is not a regular file, or their formats differ.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    found: list[str] = []
    for one in sources:
        found += _match(os.fspath(one))
    paths = sorted(set(found))
    if not paths:
        raise InvalidInput(f"no Parquet, CSV or JSON-lines file matches {_shown(sources)}")
    for path in paths:
        if os.path.islink(path) or not os.path.isfile(path):
            raise InvalidInput(f"{path} is not a regular file; links, devices and pipes are not read")
    readers = {_reader(path) for path in paths}
    if len(readers) > 1:
        raise InvalidInput(f"{_shown(sources)} matches files of several formats; name one, such as 'folder/*.parquet'")
    return paths


def _match(text: str) -> list[str]:
    if os.path.isdir(text):
        found = []
        for suffix in _READERS:
            found += glob.glob(os.path.join(glob.escape(text), "**", f"*{suffix}"), recursive=True)
        return found
    if os.path.lexists(text):
        return [text]
    return glob.glob(text, recursive=True)


def _shown(sources: Sequence[Any]) -> str:
    return ", ".join(str(source) for source in sources[:3]) or "an empty list"


def _reader(path: str) -> str:
    name = Path(path.lower())
    if name.suffix in (".gz", ".zst"):
        name = name.with_suffix("")
    reader = _READERS.get(name.suffix)
    if reader is None:
        raise InvalidInput(f"{path} must end in {', '.join(_READERS)}, to say what it holds")
    return reader


def has_table_name(path: str | os.PathLike[str]) -> bool:
    """Check whether the name of a file ends like that of a table.

    Parameters
    ----------
    path : str or path
        The file, which is not opened.

    Returns
    -------
    bool
        Whether :func:`open_table` has a reader for it.

    Examples
    --------
    >>> has_table_name("log.parquet"), has_table_name("log.csv.gz"), has_table_name("log.npz")
    (True, True, False)
    """
    try:
        _reader(os.fspath(path))
    except InvalidInput:
        return False
    return True


def _read_files(connection: Any, paths: list[str]) -> Any:
    import duckdb

    if not any(os.path.getsize(path) for path in paths):
        raise InvalidInput(f"{_shown(paths)} is empty; a table has at least the names of its columns")
    reader = _reader(paths[0])
    literal = [glob.escape(path) for path in paths]  # DuckDB expands patterns too
    try:
        if reader == "read_parquet":
            return connection.sql(_READ_PARQUET, params=[literal])
        if reader == "read_csv":
            relation = connection.sql(_READ_CSV, params=[literal])
        else:
            relation = connection.read_json(literal, format="newline_delimited", union_by_name=True)
    except duckdb.Error as error:
        raise InvalidInput(f"{_shown(paths)} cannot be read: {first_line(error)}") from error
    if reader == "read_csv":
        _check_split(relation.columns, paths)
    elif relation.columns == ["json"] and str(relation.types[0]).endswith(("JSON", "[]")):
        raise InvalidInput(
            f'{_shown(paths)} does not hold JSON lines: each line must be an object, such as {{"conf": 0.9}}'
        )
    return relation


def _check_split(names: Sequence[str], paths: Sequence[str]) -> None:
    """Raise if DuckDB gave up to split the lines of a CSV file, or to take quotes for quotes."""
    for name in names:
        kept_quotes = len(name) > 1 and name.startswith('"') and name.endswith('"')
        if kept_quotes or _holds_several(name, names, paths):
            raise InvalidInput(
                f"{_shown(paths)} cannot be split into columns: each line must have as many fields as the first one, "
                f"which names them, and quotes must be closed; its first line was read as {name[:100]!r}"
            )


def _holds_several(name: str, names: Sequence[str], paths: Sequence[str]) -> bool:
    """Check whether the name of a column is a line of names: it is the only one, or other files have its parts."""
    for delimiter in _DELIMITERS:
        parts = name.split(delimiter)
        if len(parts) == 1:
            continue
        if len(names) == 1:
            return True
        if len(paths) > 1 and set(parts).issubset(names):
            return True
    return False


def first_line(error: Exception) -> str:
    """Return the first line of an engine's message, which says what is wrong; the rest is about its inside.

    Parameters
    ----------
    error : Exception
        What the engine raised.

    Returns
    -------
    str
        One line.
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return path, -1, -1
    return path, found.st_size, found.st_mtime_ns


# Tables of other libraries


def _import_narwhals() -> Any:
    try:
        import duckdb  # noqa: F401 - the default engine
        import narwhals as nw
        import pyarrow  # noqa: F401 - what batches are made of
    except ImportError as error:
        raise MissingExtra(_INSTALL) from error
    return nw


def _is_query(source: Any) -> bool:
    if not isinstance(source, tuple) or len(source) != 2:
        return False
    return type(source[0]).__name__ == "DuckDBPyConnection"  # compared by name, as duckdb may not be imported


def _is_list_of_paths(source: Any) -> bool:
    if not isinstance(source, list | tuple):
        return False
    return all(isinstance(one, str | os.PathLike) for one in source)


def _is_dataset(source: Any) -> bool:
    import sys

    dataset = sys.modules.get("pyarrow.dataset")
    return dataset is not None and isinstance(source, dataset.Dataset)


def _run_query(connection: Any, query: str) -> Any:
    import duckdb

    try:
        relation = connection.sql(query)
    except duckdb.Error as error:
        raise InvalidInput(f"the query failed: {first_line(error)}") from error
    if relation is None:
        raise InvalidInput("the query returns no rows; it must be a SELECT")
    return relation


def _wrap(nw: Any, source: Any) -> LogTable:
    """Open a table of another library."""
    try:
        frame = nw.from_native(source)
    except TypeError as error:
        raise InvalidInput(
            "a table must be a path or glob of Parquet, CSV or JSON-lines files, a DuckDB relation or (connection, "
            f"query), or a Polars, PyArrow, pandas, Dask or PySpark table, got {type(source).__name__}"
        ) from error
    if isinstance(frame, nw.DataFrame):
        return LogTable(frame, "memory", {name: name for name in frame.columns})
    kind = frame.implementation
    if kind.is_polars():
        return LogTable(frame, "memory", {name: name for name in frame.collect_schema().names()})
    if kind.is_pyspark():
        return _rename_spark(nw, source)
    if kind.is_duckdb():
        relation = _keep_from_statistics(frame.to_native())
        return LogTable(nw.from_native(relation), "duckdb", {name: name for name in relation.columns})
    if kind.is_dask():
        return LogTable(frame, "dask", {name: name for name in frame.collect_schema().names()})
    raise InvalidInput(f"tables of {kind.value} are not read; write them to Parquet files and pass those")


def _keep_from_statistics(relation: Any) -> Any:
    """Wrap the columns of a DuckDB relation that may hold NaN, so that no statistics are believed about them.

    Statistics in Parquet files leave NaN out. DuckDB takes them to say that there is none, answers ``isnan(conf)``
    without reading a row, and so a gate would accept NaN. Functions without statistics of their own end that:
    ``nextafter(x, x)`` is x, NaN and signed zeros included, and ``list_first([x])`` is x of any type.
    """
    import duckdb

    wrapped = []
    seen = set()
    for name, kind in zip(relation.columns, map(str, relation.types), strict=True):
        if name in seen:
            raise InvalidInput(f"two columns of the table are called {name}; rename one of them")
        seen.add(name)
        quoted = '"' + name.replace('"', '""') + '"'
        if kind in ("FLOAT", "DOUBLE"):
            wrapped.append(f"nextafter({quoted}, {quoted}) AS {quoted}")
        elif "FLOAT" in kind or "DOUBLE" in kind:  # inside a structure or a list
            wrapped.append(f"list_first([{quoted}]) AS {quoted}")
    if not wrapped:
        return relation
    try:
        return relation.project(f"* REPLACE ({', '.join(wrapped)})")
    except duckdb.Error as error:
        raise InvalidInput(f"the table cannot be read: {first_line(error)}") from error


def _rename_spark(nw: Any, source: Any) -> LogTable:
    """Open a Spark frame under plain names; dots and quotes in column names mean something else to Spark."""
    names = {}
    for place, name in enumerate(source.columns):
        names[name] = f"c{place}"
    return LogTable(nw.from_native(source.toDF(*names.values())), "spark", names)


# The embedded DuckDB


@contextlib.contextmanager
def _connect(memory: str | None, threads: int | None) -> Iterator[Any]:
    """Start an embedded DuckDB with a temporary folder that is removed afterwards."""
    import duckdb

    _remove_leftovers()
    scratch = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")
    settings: dict[str, Any] = {
        "temp_directory": scratch,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "preserve_insertion_order": False,
    }
    if memory is not None:
        settings["memory_limit"] = memory
    if threads is not None:
        settings["threads"] = threads
    try:
        try:
            connection = duckdb.connect(":memory:", config=settings)
            connection.execute("SET enable_progress_bar = false")
        except duckdb.Error as error:
            raise InvalidInput(f"DuckDB does not start: {first_line(error)}") from error
        try:
            yield connection
        finally:
            connection.close()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove_leftovers() -> None:
    """Remove temporary folders of processes of this user that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        process = folder.name.removeprefix(_SCRATCH).partition("-")[0]
        if folder.is_symlink() or not process.isdigit() or is_running(int(process)):
            continue
        shutil.rmtree(folder, ignore_errors=True)


def is_running(process: int) -> bool:
    """Check whether a process of this machine is alive.

    Parameters
    ----------
    process : int
        Its number.

    Returns
    -------
    bool
        Whether it is, of whatever user.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
