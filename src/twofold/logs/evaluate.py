"""Evaluate tables of logged predictions: exact metrics of any number of rows, per group, in one ordered pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold import _checks
from twofold._checks import AnyArray, Array, Integers, NaNPolicy
from twofold.errors import InvalidInput
from twofold.logs import _duckdb, _memory
from twofold.logs.assemble import EvaluationRequest, assemble, evaluate_groups, evaluate_rows, evaluate_summary
from twofold.logs.cells import BOUNDED, count_cells, count_cells_by_group, count_rows_by_group
from twofold.logs.columns import ChosenColumns, choose_columns, count_groups, plain_columns
from twofold.logs.groups import CountedGroups, number_groups, sort_key
from twofold.logs.intervals import CELLS, CELLS_OF_GROUP
from twofold.logs.ordered import EXACT, Counts, OrderedSums
from twofold.logs.pairs import PAIR_METRICS, refine_pairs
from twofold.logs.results import GroupedEvaluation, Key, TableEvaluation
from twofold.logs.tables import LogTable, open_table
from twofold.metrics import info
from twofold.metrics.evaluate import STANDARD, STANDARD_WITH_ID
from twofold.metrics.operating_points import check_ood_share

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
        Whether the row is in-distribution; by default the column ``is_id``, or ``label <> -1`` where labels are whole
        numbers, or else all rows. ``"true"`` takes all rows as ID.
    conf_ood : str or narwhals.Expr, optional
        A second confidence, against OOD inputs; adds ``ds_f1``, which is exact, and ``ds_aurc`` and
        ``ds_aurc_monotone``, which are exact for up to 200,000 rows and have bounds beyond.
    by : str, narwhals.Expr or sequence of these, optional
        Columns or expressions whose values make groups, which are evaluated in one pass.
    where : str or narwhals.Expr, optional
        Rows to keep, such as ``"label is not null"``.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1).
    metrics : iterable of str or str, optional
        Metrics to compute instead of the standard set.
    exact : bool, default=True
        Sort all rows. False counts them in cells instead, which is faster; every metric then comes with the interval
        that contains its exact value.
    bins : int, default=65536
        Largest number of cells with ``exact=False``; all groups together have about four million.
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
        request = EvaluationRequest(
            names=_choose_metrics(metrics, columns, exact),
            share=ood_share,
            cells=_choose_cells(resamples, columns),
            resamples=resamples,
            level=level,
            seed=seed,
        )
        if not exact:
            groups = _evaluate_cells(columns, request, bins)
        elif opened.engine == "memory":
            groups = _evaluate_memory(columns, request)
        else:
            groups = _evaluate_stream(columns, request)
    if by is None or columns.by == {}:
        return groups[()]
    return _as_mapping(tuple(columns.by), groups)


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


def _evaluate_memory(columns: ChosenColumns, request: EvaluationRequest) -> dict[tuple[Any, ...], TableEvaluation]:
    arrays, groups = _memory.read_arrays(columns)
    if not groups:
        return {(): _evaluate_arrays(arrays, columns, request)}
    rows = _CheckedRows.of(arrays, columns)
    counted, number = _count_rows(rows, groups)
    if columns.conf_ood is not None:
        return _evaluate_slices(rows, counted.keys, number, request)
    order = np.argsort(rows.conf)[::-1]
    small = np.uint16 if len(counted.keys) <= 2**16 else np.int64  # NumPy sorts short integers by radix
    order = order[np.argsort(number[order].astype(small), kind="stable")]
    sums = OrderedSums(counted.totals, request.share, cells=request.cells)
    sums.update(rows.conf[order], rows.kind[order])
    sums.finish()
    return assemble(counted, sums, None, request)


def _count_rows(rows: _CheckedRows, groups: list[Any]) -> tuple[CountedGroups, Integers]:
    """Count the groups of rows in memory; also return the place of each row's group."""
    keys, number = number_groups(groups)
    totals = np.zeros((len(keys), 3), np.int64)
    np.add.at(totals, (number, rows.slot), 1)
    missing = np.bincount(number[rows.missing], minlength=len(keys))
    return CountedGroups(keys, totals, missing), number


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


def _evaluate_arrays(
    arrays: dict[str, AnyArray], columns: ChosenColumns, request: EvaluationRequest
) -> TableEvaluation:
    """Evaluate the rows of one table in memory, as :func:`twofold.metrics.evaluate` does."""
    from twofold import metrics

    if request.cells or columns.conf_ood is not None:
        rows = _CheckedRows.of(arrays, columns)
        if request.share is not None:
            _check_share(request.share, rows.totals, columns)
        return evaluate_rows(rows.kind, rows.conf, rows.conf_ood, int(rows.missing.sum()), request)
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
    rows: _CheckedRows, keys: list[tuple[Any, ...]], number: AnyArray, request: EvaluationRequest
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
        results[key] = evaluate_rows(rows.kind[own], rows.conf[own], second, missing, request)
        start = end
    return results


# Tables of engines


def _evaluate_stream(columns: ChosenColumns, request: EvaluationRequest) -> dict[tuple[Any, ...], TableEvaluation]:
    """Count the groups, then let the engine sort, and reduce the ordered rows."""
    plain = plain_columns(columns)
    counted = count_groups(plain, columns)
    if request.share is not None and not columns.by:
        _check_share(request.share, counted.totals[0], columns)
    if columns.conf_ood is not None and columns.by:
        _check_group_sizes(counted)
        return evaluate_groups(plain, counted, request)
    sums = reduce_ordered(plain, counted, "conf", request.share, request.cells)
    if columns.conf_ood is None:
        return assemble(counted, sums, None, request)
    second = reduce_ordered(plain, counted, "conf_ood", None, request.cells)
    untied = sums.is_untied(0) or second.is_untied(0)
    part = refine_pairs(plain, counted.totals[0], request.names, request.share, untied)
    return assemble(counted, sums, second, request, [part])


def _check_group_sizes(counted: CountedGroups) -> None:
    largest = int(counted.rows.max())
    if largest > ROWS_IN_MEMORY:
        raise InvalidInput(
            f"the largest group has {largest} rows; with conf_ood and by, groups of up to {ROWS_IN_MEMORY} rows are "
            "evaluated together; evaluate larger ones alone with where="
        )


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


# Counts in cells


def _evaluate_cells(
    columns: ChosenColumns, request: EvaluationRequest, bins: int
) -> dict[tuple[Any, ...], TableEvaluation]:
    """Count the rows of each group in cells, and bound every metric."""
    if columns.conf_ood is not None:
        raise InvalidInput("exact=False evaluates one confidence; leave out conf_ood, or exact=False")
    if request.resamples:
        raise InvalidInput("exact=False has no intervals; leave out resamples, or exact=False")
    in_memory = columns.table.engine == "memory"
    if columns.by and in_memory:
        arrays, groups = _memory.read_arrays(columns)
        rows = _CheckedRows.of(arrays, columns)
        counted, number = _count_rows(rows, groups)
        summaries = count_rows_by_group(rows.conf, rows.kind, number, len(counted.keys), bins)
    elif columns.by:
        counted, summaries = count_cells_by_group(columns, bins)
    else:
        plain = None if in_memory else plain_columns(columns)
        whole = count_cells(columns, plain, bins)
        counted = CountedGroups([()], np.array([whole.kinds]), np.array([whole.missing]))
        summaries = [whole.summary]
    results = {}
    for place, (key, summary) in enumerate(zip(counted.keys, summaries, strict=True)):
        results[key] = evaluate_summary(counted, place, summary, request)
    return results
