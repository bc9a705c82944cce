"""Evaluate tables of logged predictions: exact metrics of any number of rows, per group, in one ordered pass."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold import _checks
from twofold._checks import AnyArray, Array, NaNPolicy
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.logs import _duckdb, _memory
from twofold.logs.columns import ChosenColumns, CountedGroups, choose_columns, count_groups, plain_columns, sort_key
from twofold.logs.intervals import CELLS, CELLS_OF_GROUP, cell_intervals
from twofold.logs.ordered import EXACT, Counts, OrderedSums, metric_value
from twofold.logs.pairs import PAIR_METRICS, pair_values
from twofold.logs.results import GroupedEvaluation, Key, TableEvaluation
from twofold.logs.tables import LogTable, open_table
from twofold.metrics import Bounded, info
from twofold.metrics.evaluate import STANDARD, STANDARD_WITH_ID
from twofold.metrics.operating_points import check_ood_share
from twofold.stats import Interval

ROWS_IN_MEMORY = 5_000_000  # of a group with two confidences; larger groups are evaluated by reading them again


def evaluate(
    table: Any,
    *,
    correct: Any = None,
    conf: Any = None,
    is_id: Any = None,
    conf_ood: Any = None,
    by: Any = None,
    where: Any = None,
    ood_share: float | None = None,
    metrics: Iterable[str] | None = None,
    exact: bool = True,
    bins: int = 65_536,
    resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
    nan: NaNPolicy = "error",
    memory: str | None = None,
    threads: int | None = None,
) -> TableEvaluation | GroupedEvaluation:
    """Compute the standard metrics of a table of logged predictions, of any size and on any engine.

    The engine sorts, and the ordered rows pass once through the sorting core, which keeps counts alone. Every metric
    equals that of :func:`twofold.metrics.evaluate` on the same rows, ties included.

    Parameters
    ----------
    table : path, glob, sequence of paths, or table
        Parquet, CSV or JSON-lines files; a DuckDB relation, or a pair of a DuckDB connection and a query; a Polars,
        PyArrow, pandas, Dask or PySpark table.
    correct : str or narwhals.Expr, optional
        Column or expression that says whether the prediction is correct, such as ``"label = prediction"``. By default
        the column ``correct``, or ``label = prediction``.
    conf : str or narwhals.Expr, optional
        Confidence, higher is safer to accept; by default the column ``conf`` or ``conf_id``.
    is_id : str or narwhals.Expr, optional
        Whether the row is in-distribution. Where ``correct`` is left out too, it is the column ``is_id``, or
        ``label <> -1``; otherwise all rows are ID by default.
    conf_ood : str or narwhals.Expr, optional
        A second confidence, against OOD inputs; adds ``ds_f1``, which is exact, and bounds of ``ds_aurc_monotone``.
    by : str, narwhals.Expr or sequence of these, optional
        Columns or expressions whose values make groups, which are evaluated in one pass.
    where : str or narwhals.Expr, optional
        Rows to keep, such as ``"label is not null"``.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1).
    metrics : iterable of str or str, optional
        Metrics to compute instead of the standard set.
    exact : bool, default=True
        Sort all rows. False counts them in ``bins`` cells instead, which is faster; every metric then comes with the
        interval that contains its exact value.
    bins : int, default=65536
        Number of cells with ``exact=False``.
    resamples : int, default=0
        Number of bootstrap resamples for intervals, 0 for none. Counts in cells of equal mass are resampled, within ID
        and within OOD rows.
    level : float, default=0.95
        Level of the intervals, between 0 and 1.
    seed : int, default=0
        Seed of the resamples.
    nan : {"error", "reject"}, default="error"
        Whether a null or NaN confidence is an error or is ranked lowest; the result counts such rows.
    memory : str, optional
        Most memory that the embedded DuckDB may use, such as ``"3GB"``; for files.
    threads : int, optional
        Threads of the embedded DuckDB; for files.

    Returns
    -------
    TableEvaluation or GroupedEvaluation
        The metrics; with ``by`` a mapping from group to metrics, which prints and converts as one table.

    Raises
    ------
    InvalidInput
        If the table cannot be read, columns are of the wrong type, rows are not valid, or the table changed.
    UnknownName
        If a column or metric does not exist.
    MissingExtra
        If DuckDB, narwhals or PyArrow are not installed.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"label": [0, 1, 1], "prediction": [0, 1, 0], "msp": [0.9, 0.8, 0.3]})
    >>> result = evaluate(table, correct="label = prediction", conf="msp")
    >>> round(result.aurc, 4), result.auroc, result.n
    (0.1111, 1.0, 3)
    """
    _checks.whole(resamples, "resamples", 0)
    _checks.whole(bins, "bins", 2)
    with open_table(table, memory=memory, threads=threads) as opened:
        columns = choose_columns(
            opened, correct=correct, conf=conf, is_id=is_id, conf_ood=conf_ood, by=by or (), where=where, nan=nan
        )
        request = _Request(
            names=_choose_metrics(metrics, columns, exact),
            share=ood_share,
            cells=_choose_cells(resamples, columns),
            resamples=resamples,
            level=level,
            seed=seed,
        )
        if not exact:
            return _evaluate_cells(columns, request, bins)
        if opened.engine == "memory":
            groups = _evaluate_memory(columns, request)
        else:
            groups = _evaluate_stream(columns, request)
    if by is None or columns.by == {}:
        return groups[()]
    return _as_mapping(tuple(columns.by), groups)


@dataclass(frozen=True)
class _Request:
    """Hold what is asked for, apart from the columns."""

    names: tuple[str, ...]
    share: float | None
    cells: int
    resamples: int
    level: float
    seed: int


def _as_mapping(by: tuple[str, ...], groups: dict[tuple[Any, ...], TableEvaluation]) -> GroupedEvaluation:
    named: dict[Key, TableEvaluation] = {}
    for key in sorted(groups, key=sort_key):
        result = groups[key]
        named[key if len(by) > 1 else key[0]] = result
    return GroupedEvaluation(by, named)


def _choose_cells(resamples: int, columns: ChosenColumns) -> int:
    if not resamples:
        return 0
    return CELLS_OF_GROUP if columns.by else CELLS


def _choose_metrics(metrics: Iterable[str] | None, columns: ChosenColumns, exact: bool) -> tuple[str, ...]:
    """List the metrics to compute: the standard ones, or those asked for by name."""
    from twofold.logs.cells import BOUNDED

    single = EXACT if exact else BOUNDED
    if metrics is None:
        chosen = list(STANDARD)
        if columns.is_id is not None:
            chosen += STANDARD_WITH_ID
        if columns.conf_ood is not None:
            chosen += PAIR_METRICS
        return tuple(name for name in chosen if name in single or name in PAIR_METRICS)
    chosen = list(dict.fromkeys(_checks.as_names(metrics)))
    for name in chosen:
        if name in PAIR_METRICS:
            if columns.conf_ood is None:
                raise InvalidInput(f"{name} needs conf_ood, which evaluate was not given")
            continue
        record = info(name)  # an unknown name is an error with the nearest ones
        if name not in single:
            form = "an ordered stream" if exact else "counts in cells"
            raise InvalidInput(f"{name} has no form on {form}; choose from {', '.join((*single, *PAIR_METRICS))}")
        if "is_id" in record.required_arrays and columns.is_id is None:
            raise InvalidInput(f"{name} needs is_id, which evaluate was not given")
    return tuple(chosen)


# Tables in memory


def _evaluate_memory(columns: ChosenColumns, request: _Request) -> dict[tuple[Any, ...], TableEvaluation]:
    arrays, groups = _memory.read_arrays(columns)
    if not groups:
        return {(): _evaluate_arrays(arrays, columns, request)}
    rows = _CheckedRows.of(arrays, columns)
    keys, number = _memory.number_groups(groups)
    if columns.conf_ood is not None:
        return _evaluate_slices(rows, keys, number, request)
    totals = np.zeros((len(keys), 3), np.int64)
    np.add.at(totals, (number, rows.slot), 1)
    missing = np.bincount(number[rows.missing], minlength=len(keys))
    order = np.argsort(rows.conf)[::-1]
    small = np.uint16 if len(keys) <= 2**16 else np.int64  # NumPy sorts short integers by radix
    order = order[np.argsort(number[order].astype(small), kind="stable")]
    sums = OrderedSums(totals, request.share, cells=request.cells)
    sums.update(rows.conf[order], rows.kind[order])
    sums.finish()
    return _assemble(CountedGroups(keys, totals, missing), sums, None, request)


@dataclass(frozen=True, eq=False)
class _CheckedRows:
    """Hold validated rows of a table in memory."""

    conf: Array
    conf_ood: Array | None
    kind: AnyArray
    missing: AnyArray

    @classmethod
    def of(cls, arrays: dict[str, AnyArray], columns: ChosenColumns) -> _CheckedRows:
        """Validate the arrays by the rules of metrics."""
        import warnings

        from twofold.errors import RejectedNaN

        missing = np.zeros(len(arrays["correct"]), bool)
        confs = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RejectedNaN)  # the result carries their number
            for name in ("conf", "conf_ood"):
                if name in arrays:
                    confs.append(_checks.confidence(arrays[name], name, nan=columns.nan))
                    missing |= np.isnan(_checks.floats(arrays[name], name))
        right, inside = _checks.joint(arrays["correct"], arrays.get("is_id"), conf=confs[0])
        known = np.ones(len(right), np.int8) if inside is None else inside.astype(np.int8)
        kind = (3 - 2 * known - right).astype(np.int8)
        return cls(confs[0], confs[1] if len(confs) > 1 else None, kind, missing)

    @property
    def slot(self) -> AnyArray:
        """Column of each row in a table of correct, wrong and OOD counts."""
        return np.minimum(self.kind, 2)

    @property
    def totals(self) -> Counts:
        """Correct, wrong and OOD rows."""
        return np.bincount(self.slot, minlength=3)


def _evaluate_arrays(arrays: dict[str, AnyArray], columns: ChosenColumns, request: _Request) -> TableEvaluation:
    """Evaluate the rows of one table in memory, as :func:`twofold.metrics.evaluate` does."""
    from twofold import metrics

    if request.cells or columns.conf_ood is not None:
        rows = _CheckedRows.of(arrays, columns)
        if request.share is not None:
            _check_share(request.share, rows.totals, columns)
        return _evaluate_rows(rows.kind, rows.conf, rows.conf_ood, int(rows.missing.sum()), request)
    result = metrics.evaluate(
        arrays["correct"],
        arrays["conf"],
        is_id=arrays.get("is_id"),
        ood_share=request.share,
        only=request.names,
        nan=columns.nan,
    )
    return TableEvaluation(
        values_=result.values_,
        reasons=result.reasons,
        n=result.n,
        n_id=result.n_id,
        n_ood=result.n_ood,
        nan_rejected=result.nan_rejected,
        ood_share=request.share,
        better=result.better,
    )


def _evaluate_slices(
    rows: _CheckedRows, keys: list[tuple[Any, ...]], number: AnyArray, request: _Request
) -> dict[tuple[Any, ...], TableEvaluation]:
    """Evaluate groups with two confidences, each on its own rows."""
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(keys)))
    results = {}
    start = 0
    for key, end in zip(keys, ends, strict=True):
        own = order[start:end]
        second = None if rows.conf_ood is None else rows.conf_ood[own]
        missing = int(rows.missing[own].sum())
        results[key] = _evaluate_rows(rows.kind[own], rows.conf[own], second, missing, request)
        start = end
    return results


def _evaluate_rows(
    kind: AnyArray, conf: Array, conf_ood: Array | None, missing: int, request: _Request
) -> TableEvaluation:
    """Evaluate the validated rows of one group in memory."""
    totals = np.bincount(np.minimum(kind, 2), minlength=3)[None]
    counted = CountedGroups([()], totals, np.array([missing]))
    order = np.argsort(conf)[::-1]
    sums = OrderedSums(totals, request.share, cells=request.cells)
    sums.update(conf[order], kind[order])
    sums.finish()
    if conf_ood is None:
        return _assemble(counted, sums, None, request)[()]
    order = np.argsort(conf_ood)[::-1]
    second = OrderedSums(totals, None, cells=request.cells)
    second.update(conf_ood[order], kind[order])
    second.finish()
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    bounds: dict[str, Bounded] = {}
    pair_values(kind, conf, conf_ood, request.names, request.share, values, reasons, bounds)
    return _assemble(counted, sums, second, request, [_PairPart(values, reasons, bounds)])[()]


# Tables of engines


def _evaluate_stream(columns: ChosenColumns, request: _Request) -> dict[tuple[Any, ...], TableEvaluation]:
    """Count the groups, then let the engine sort, and reduce the ordered rows."""
    plain = plain_columns(columns)
    counted = count_groups(plain, columns)
    if request.share is not None and not columns.by:
        _check_share(request.share, counted.totals[0], columns)
    if columns.conf_ood is not None and columns.by:
        return _evaluate_pairs_by_group(columns, plain, counted, request)
    sums = reduce_ordered(plain, counted, "conf", request.share, request.cells)
    if columns.conf_ood is None:
        return _assemble(counted, sums, None, request)
    from twofold.logs.pairs import refine_pairs

    second = reduce_ordered(plain, counted, "conf_ood", None, request.cells)
    part = refine_pairs(plain, counted.totals[0], request.names, request.share)
    return _assemble(counted, sums, second, request, [_PairPart(*part)])


def _check_share(share: float, total: Counts, columns: ChosenColumns) -> None:
    inside = None
    if columns.is_id is not None:
        inside = np.repeat([True, False], [total[0] + total[1] > 0, total[2] > 0])
    check_ood_share(share, inside)


def reduce_ordered(plain: LogTable, counted: CountedGroups, conf: str, share: float | None, cells: int) -> OrderedSums:
    """Reduce the rows of a table, ordered by its engine, to the sums of each group.

    Parameters
    ----------
    plain : LogTable
        Columns ``kind``, confidences and groups.
    counted : CountedGroups
        The groups and their counts, in the order of the engine.
    conf : str
        The confidence to order by.
    share : float or None
        Share of OOD samples expected in deployment.
    cells : int
        Number of cells of equal mass to count in.

    Returns
    -------
    OrderedSums
        The sums, complete.
    """
    if plain.engine == "duckdb":
        sums = OrderedSums(counted.totals, share, cells=cells)
        for batch in _duckdb.ordered_batches(plain, counted.order, conf, (conf, "kind")):
            sums.update(batch[conf], batch["kind"])
        sums.finish()
        return sums
    if plain.engine == "dask":
        from twofold.logs import _dask

        return _dask.reduce_ordered(plain, counted, conf, share, cells)
    from twofold.logs import _spark

    return _spark.reduce_ordered(plain, counted, conf, share, cells)


def _evaluate_pairs_by_group(
    columns: ChosenColumns, plain: LogTable, counted: CountedGroups, request: _Request
) -> dict[tuple[Any, ...], TableEvaluation]:
    """Evaluate groups with two confidences: the rows of each come together, and are held while it is evaluated."""
    largest = int(counted.totals.sum(axis=1).max())
    if largest > ROWS_IN_MEMORY:
        raise InvalidInput(
            f"the largest group has {largest} rows; with conf_ood and by, groups of up to {ROWS_IN_MEMORY} rows are "
            "evaluated together; evaluate larger ones alone with where="
        )
    if plain.engine != "duckdb":
        raise InvalidInput("by with conf_ood works on DuckDB and in memory; write the table to Parquet and pass that")
    wanted = ("conf", "conf_ood", "kind")
    stream = _duckdb.ordered_batches(plain, counted.order, "conf", wanted)
    results = {}
    held: dict[str, list[AnyArray]] = {name: [] for name in wanted}
    rows_held = 0
    for place, key in enumerate(counted.keys):
        rows = int(counted.totals[place].sum())
        while rows_held < rows:
            batch = next(stream, None)
            if batch is None:
                from twofold.logs.ordered import CHANGED

                raise InvalidInput(CHANGED)
            rows_held += len(batch["kind"])
            for name in wanted:
                held[name].append(batch[name])
        joined = {name: np.concatenate(held[name]) for name in wanted}
        own = {name: array[:rows] for name, array in joined.items()}
        held = {name: [array[rows:]] for name, array in joined.items()}
        rows_held -= rows
        _check_kinds(own["kind"], counted.totals[place])
        missing = int(counted.missing[place])
        results[key] = _evaluate_rows(own["kind"], own["conf"], own["conf_ood"], missing, request)
    return results


def _check_kinds(kind: AnyArray, total: Counts) -> None:
    from twofold.logs.ordered import CHANGED

    if not np.array_equal(np.bincount(np.minimum(kind, 2), minlength=3), total):
        raise InvalidInput(CHANGED)


@dataclass(frozen=True)
class _PairPart:
    """Hold what two confidences add to an evaluation."""

    values: dict[str, float]
    reasons: dict[str, str]
    bounds: dict[str, Bounded]


def _assemble(
    counted: CountedGroups,
    sums: OrderedSums,
    second: OrderedSums | None,
    request: _Request,
    pairs: list[_PairPart] | None = None,
) -> dict[tuple[Any, ...], TableEvaluation]:
    """Turn counts and sums into evaluations by group."""
    results = {}
    for place, key in enumerate(counted.keys):
        total = counted.totals[place]
        values: dict[str, float] = {}
        reasons: dict[str, str] = {}
        bounds: dict[str, Bounded] = {}
        if pairs is not None:
            values |= pairs[place].values
            reasons |= pairs[place].reasons
            bounds |= pairs[place].bounds
        for name in request.names:
            if name in PAIR_METRICS:
                continue
            source = sums
            if second is not None and _is_ood(name):
                source = second
            try:
                values[name] = metric_value(name, total, request.share, source.sums[place])
            except UndefinedMetric as error:
                values[name], reasons[name] = math.nan, str(error)
        intervals = {}
        if request.cells:
            second_cells = None if second is None else second.cells[place]
            intervals = _intervals(sums.cells[place], second_cells, values, request)
        results[key] = TableEvaluation(
            values_={name: values[name] for name in request.names},
            reasons=reasons,
            n=int(total.sum()),
            n_id=int(total[0] + total[1]),
            n_ood=int(total[2]),
            nan_rejected=int(counted.missing[place]),
            ood_share=request.share,
            better=_better(request.names),
            bounds=bounds,
            intervals=intervals,
        )
    return results


def _intervals(
    cells: Counts, second: Counts | None, values: dict[str, float], request: _Request
) -> dict[str, Interval]:
    """Resample counts in cells of the confidence, and in those of the second one for metrics of ID against OOD rows."""
    own = {name: values[name] for name in request.names if second is None or not _is_ood(name)}
    intervals = cell_intervals(
        cells, own, share=request.share, n=request.resamples, level=request.level, seed=request.seed
    )
    if second is not None:
        others = {name: values[name] for name in request.names if _is_ood(name)}
        intervals |= cell_intervals(
            second, others, share=None, n=request.resamples, level=request.level, seed=request.seed
        )
    return intervals


def _is_ood(name: str) -> bool:
    return name not in PAIR_METRICS and info(name).task == "ood"


def _better(names: Iterable[str]) -> dict[str, str]:
    better: dict[str, str] = {}
    for name in names:
        better[name] = "lower" if name == "ds_aurc_monotone" else info(name).better
    return better


# Counts in cells


def _evaluate_cells(columns: ChosenColumns, request: _Request, bins: int) -> TableEvaluation:
    """Count the rows in cells, and bound every metric."""
    from twofold.logs.cells import count_cells, summary_values

    if columns.by:
        raise InvalidInput("exact=False evaluates one group; leave out by, or exact=False: groups need one sort in all")
    if columns.conf_ood is not None:
        raise InvalidInput("exact=False evaluates one confidence; leave out conf_ood, or exact=False")
    if request.resamples:
        raise InvalidInput("exact=False has no intervals; leave out resamples, or exact=False")
    plain = plain_columns(columns) if columns.table.engine != "memory" else None
    counted = count_cells(columns, plain, bins)
    values, reasons, bounds = summary_values(counted, request.names, request.share)
    right, wrong, outside = counted.kinds
    return TableEvaluation(
        values_=values,
        reasons=reasons,
        n=right + wrong + outside,
        n_id=right + wrong,
        n_ood=outside,
        nan_rejected=counted.missing,
        ood_share=request.share,
        better=_better(request.names),
        bounds=bounds,
    )
