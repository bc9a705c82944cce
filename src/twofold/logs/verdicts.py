"""Turn logged confidences into verdicts of a gate, as an expression that the engine runs; no Python per row."""

from __future__ import annotations

import glob
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twofold.errors import InvalidInput
from twofold.gate import Gate
from twofold.logs.columns import as_expression, default_column, engine_errors, type_of
from twofold.logs.tables import LogTable, is_running, open_table

if TYPE_CHECKING:
    import narwhals as nw


def verdict_expressions(gate: Gate, table: LogTable, conf_id: Any = None, conf_ood: Any = None) -> dict[str, nw.Expr]:
    """Return the verdict of a gate, and the margins of its confidences, as expressions over a table.

    Parameters
    ----------
    gate : Gate
        The gate; its thresholds are in the units of its scores, as ``Decision.conf_id`` has them.
    table : LogTable
        The table.
    conf_id, conf_ood : str or narwhals.Expr, optional
        The confidences; by default the columns ``conf_id`` (or ``conf``) and ``conf_ood``.

    Returns
    -------
    dict of str to narwhals.Expr
        ``verdict``, ``margin_id`` and, for a gate of two scores, ``margin_ood``. A confidence that is null or NaN is
        below every threshold.

    Raises
    ------
    InvalidInput
        If a confidence is missing or does not hold numbers, or the gate has one score and two are given.
    """
    import narwhals as nw

    if not isinstance(gate, Gate):
        raise InvalidInput(f"gate must be a Gate, got {type(gate).__name__}; read one with Gate.load(folder)")
    if conf_id is None:
        conf_id = default_column(table, "conf_id", ("conf_id", "conf"))
    first = _read_confidence(table, conf_id, "conf_id")
    accepted = nw.when(_reaches(first, gate.tau_id)).then(nw.lit("accept")).otherwise(nw.lit("unsure"))
    if gate.ood is None:
        if conf_ood is not None:
            raise InvalidInput("this gate has one score; leave out conf_ood")
        return {"verdict": accepted, "margin_id": _margin(first, gate.tau_id)}
    if conf_ood is None:
        conf_ood = default_column(table, "conf_ood", ("conf_ood",))
    second = _read_confidence(table, conf_ood, "conf_ood")
    verdict = nw.when(_reaches(second, gate.tau_ood)).then(accepted).otherwise(nw.lit("unknown"))
    return {
        "verdict": verdict,
        "margin_id": _margin(first, gate.tau_id),
        "margin_ood": _margin(second, gate.tau_ood),
    }


def _read_confidence(table: LogTable, conf: Any, name: str) -> nw.Expr:
    """Return a confidence as float64; a column without a type, all of whose values are null, stays null."""
    import narwhals as nw

    expression = as_expression(table, conf, name)
    dtype = type_of(table, expression)
    if not dtype.is_numeric() and dtype != nw.Unknown():
        raise InvalidInput(f"{name} must hold numbers, got {dtype}; pass the scores themselves")
    return expression.cast(nw.Float64())


def _reaches(conf: nw.Expr, tau: float) -> nw.Expr:
    """Compare with a threshold; engines rank NaN highest, and a gate accepts no NaN."""
    if tau == -math.inf:
        return ~(conf.is_null() | conf.is_nan().fill_null(False))
    return ((conf >= tau) & ~conf.is_nan()).fill_null(False)


def _margin(conf: nw.Expr, tau: float) -> nw.Expr:
    import narwhals as nw

    if math.isfinite(tau):
        return conf - tau
    return nw.when(conf == tau).then(nw.lit(0.0)).otherwise(conf - tau)


def apply(
    gate: Gate,
    table: Any,
    *,
    conf_id: Any = None,
    conf_ood: Any = None,
    to: str | os.PathLike[str] | None = None,
    memory: str | None = None,
    threads: int | None = None,
) -> Any:
    """Add the verdicts of a gate to a table in which both confidences are columns.

    Parameters
    ----------
    gate : Gate
        The gate.
    table : path, glob, sequence of paths, or table
        As for :func:`twofold.logs.evaluate`.
    conf_id, conf_ood : str or narwhals.Expr, optional
        The confidences, in the units of the scores of the gate; by default the columns ``conf_id`` (or ``conf``) and
        ``conf_ood``.
    to : path, optional
        A Parquet file to write the table to, instead of returning it. An existing file is replaced when the new one is
        complete.
    memory : str, optional
        Most memory of the embedded DuckDB; for files.
    threads : int, optional
        Threads of the embedded DuckDB; for files.

    Returns
    -------
    table or None
        A table of the same kind, lazy if the given one was, with the columns ``verdict`` (accept, unsure or unknown),
        ``margin_id`` and ``margin_ood``; a PyArrow table for files; None with ``to``.

    Raises
    ------
    InvalidInput
        If the table cannot be read, a confidence is missing, it has a column of one of these names, or ``to`` is one of
        its files.

    Examples
    --------
    >>> import pyarrow as pa
    >>> gate = Gate.fit_confidences([1, 1, 0], [0.9, 0.8, 0.3])
    >>> apply(gate, pa.table({"conf_id": [0.95, 0.1, None]}))["verdict"].to_pylist()
    ['accept', 'unsure', 'unsure']
    """
    with open_table(table, memory=memory, threads=threads) as opened:
        added = verdict_expressions(gate, opened, conf_id, conf_ood)
        taken = [name for name in added if name in opened.names]
        if taken:
            raise InvalidInput(f"the table has a column {taken[0]} already; rename it first")
        if to is not None:
            _check_target(opened, Path(to))
        with engine_errors():
            columns = [expression.alias(name) for name, expression in added.items()]
            frame = opened.frame.with_columns(*columns)
            if opened.engine == "spark":
                original = {plain: name for name, plain in opened.names.items()}
                native = frame.to_native()
                frame_native = native.toDF(*[original.get(name, name) for name in native.columns])
                return _write(frame_native, to) if to is not None else frame_native
            if to is not None:
                return _write_parquet(frame, Path(to), opened)
            if opened.files:
                return frame.to_native().to_arrow_table()
            return frame.to_native()


def _write(native: Any, to: str | os.PathLike[str]) -> None:
    native.write.parquet(os.fspath(to))


def _check_target(table: LogTable, path: Path) -> None:
    """Raise if a file that is read would be replaced."""
    for source, _, _ in table.files:
        if path.exists() and os.path.samefile(source, path):
            raise InvalidInput(f"{path} is one of the files that are read; write the table to another file")


def _write_parquet(frame: Any, path: Path, table: LogTable) -> None:
    """Write a frame to a Parquet file that appears when it is complete, if the files it was read from are unchanged."""
    _remove_partial(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        frame.lazy().sink_parquet(partial)
        table.check_unchanged()
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _remove_partial(path: Path) -> None:
    """Remove what killed processes left of a file beside it."""
    for found in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = found.name.removeprefix(f".{path.name}.").removesuffix(".part")
        if process.isdigit() and not is_running(int(process)):
            found.unlink(missing_ok=True)
