"""Turn the counts and sums of groups into evaluations, and evaluate the rows of a group that are in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold._checks import AnyArray, Array
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.logs.cells import Batches, summary_values
from twofold.logs.groups import CountedGroups, Key
from twofold.logs.intervals import cell_intervals
from twofold.logs.ordered import CHANGED, Counts, OrderedSums, metric_value
from twofold.logs.pairs import PAIR_METRICS, PairPart, pair_values
from twofold.logs.results import TableEvaluation
from twofold.logs.tables import LogTable
from twofold.metrics import Bounded, ScoreSummary, info
from twofold.stats import Interval

PAIR_COLUMNS = ("conf", "conf_ood", "kind")


@dataclass(frozen=True)
class EvaluationRequest:
    """Hold what is asked of an evaluation, apart from the columns.

    Parameters
    ----------
    names : tuple of str
        The metrics.
    share : float or None
        Share of OOD samples expected in deployment.
    cells : int
        Number of cells of equal mass that are counted for intervals.
    resamples : int
        Number of resamples of intervals; 0 for none.
    level : float
        Level of the intervals.
    seed : int
        Seed of the resamples.
    """

    names: tuple[str, ...]
    share: float | None
    cells: int
    resamples: int
    level: float
    seed: int


def assemble(
    counted: CountedGroups,
    sums: OrderedSums,
    second: OrderedSums | None,
    request: EvaluationRequest,
    pairs: Sequence[PairPart] | None = None,
) -> dict[Key, TableEvaluation]:
    """Turn counts and sums into evaluations by group.

    Parameters
    ----------
    counted : CountedGroups
        The groups.
    sums : OrderedSums
        Their sums in the order of the confidence.
    second : OrderedSums or None
        Their sums in the order of the second confidence.
    request : EvaluationRequest
        What is asked for.
    pairs : sequence of PairPart, optional
        What the two confidences together add, for each group.

    Returns
    -------
    dict
        Evaluations by group.
    """
    results = {}
    for place, key in enumerate(counted.keys):
        part = PairPart() if pairs is None else pairs[place]
        for name in request.names:
            if name in PAIR_METRICS:
                continue
            source = second if second is not None and _is_ood(name) else sums
            try:
                part.values[name] = metric_value(name, counted.totals[place], request.share, source.sums[place])
            except UndefinedMetric as error:
                part.values[name], part.reasons[name] = math.nan, str(error)
        intervals = {}
        if request.cells:
            second_cells = None if second is None else second.cells[place]
            intervals = _intervals(sums.cells[place], second_cells, part.values, request)
        results[key] = make_evaluation(counted, place, request, part, intervals)
    return results


def make_evaluation(
    counted: CountedGroups,
    place: int,
    request: EvaluationRequest,
    part: PairPart,
    intervals: dict[str, Interval] | None = None,
) -> TableEvaluation:
    """Make the evaluation of one group.

    Parameters
    ----------
    counted : CountedGroups
        The groups.
    place : int
        The place of the group.
    request : EvaluationRequest
        What is asked for.
    part : PairPart
        Values, reasons and bounds of all metrics.
    intervals : dict of str to Interval, optional
        Intervals by metric.

    Returns
    -------
    TableEvaluation
        The evaluation.
    """
    right, wrong, outside = (int(count) for count in counted.totals[place])
    return TableEvaluation(
        values_={name: part.values[name] for name in request.names},
        reasons=part.reasons,
        n=right + wrong + outside,
        n_id=right + wrong,
        n_ood=outside,
        nan_rejected=int(counted.missing[place]),
        ood_share=request.share,
        better=_better(request.names),
        bounds=part.bounds,
        intervals=intervals or {},
    )


def evaluate_summary(
    counted: CountedGroups, place: int, summary: ScoreSummary, request: EvaluationRequest
) -> TableEvaluation:
    """Make the evaluation of one group from its counts in cells.

    Parameters
    ----------
    counted : CountedGroups
        The groups.
    place : int
        The place of the group.
    summary : ScoreSummary
        Its counts.
    request : EvaluationRequest
        What is asked for.

    Returns
    -------
    TableEvaluation
        The evaluation, with the interval that contains each exact value.
    """
    values, reasons, bounds = summary_values(summary, request.names, request.share)
    return make_evaluation(counted, place, request, PairPart(values, reasons, bounds))


def _intervals(
    cells: Counts, second: Counts | None, values: dict[str, float], request: EvaluationRequest
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


# Rows of a group in memory


def evaluate_rows(
    kind: AnyArray, conf: Array, conf_ood: Array | None, missing: int, request: EvaluationRequest
) -> TableEvaluation:
    """Evaluate the validated rows of one group in memory.

    Parameters
    ----------
    kind : ndarray of int8, shape (n,)
        0 for correct, 1 for wrong and 3 for OOD rows.
    conf : ndarray of float64, shape (n,)
        The confidence.
    conf_ood : ndarray of float64, shape (n,), or None
        The second confidence.
    missing : int
        Rows with a missing confidence.
    request : EvaluationRequest
        What is asked for.

    Returns
    -------
    TableEvaluation
        The evaluation.
    """
    totals = np.bincount(np.minimum(kind, 2), minlength=3)[None]
    counted = CountedGroups([()], totals, np.array([missing]))
    sums = _sort_and_reduce(kind, conf, totals, request.share, request.cells)
    if conf_ood is None:
        return assemble(counted, sums, None, request)[()]
    second = _sort_and_reduce(kind, conf_ood, totals, None, request.cells)
    part = pair_values(kind, conf, conf_ood, request.names, request.share)
    return assemble(counted, sums, second, request, [part])[()]


def _sort_and_reduce(kind: AnyArray, conf: Array, totals: Counts, share: float | None, cells: int) -> OrderedSums:
    order = np.argsort(conf)[::-1]
    sums = OrderedSums(totals, share, cells=cells)
    sums.update(conf[order], kind[order])
    sums.finish()
    return sums


# Rows of groups where the engine has them


def evaluate_groups(plain: LogTable, counted: CountedGroups, request: EvaluationRequest) -> dict[Key, TableEvaluation]:
    """Evaluate groups with two confidences: the engine brings the rows of each group together, and they are held.

    Parameters
    ----------
    plain : LogTable
        Columns ``kind``, ``conf``, ``conf_ood`` and the groups.
    counted : CountedGroups
        The groups.
    request : EvaluationRequest
        What is asked for.

    Returns
    -------
    dict
        Evaluations by group.

    Raises
    ------
    InvalidInput
        If the table changed while it was read.
    """
    results: dict[Key, TableEvaluation] = {}
    for packed in _fold_groups(plain, counted, _GroupEvaluator(request)):
        for one in _unpack(packed, request):
            if not np.array_equal(one.totals, counted.totals[one.code]):
                raise InvalidInput(CHANGED)
            key = counted.keys[one.code]
            results[key] = make_evaluation(counted, one.code, request, one.part, one.intervals)
    if len(results) != len(counted.keys):
        raise InvalidInput(CHANGED)
    return results


def _fold_groups(plain: LogTable, counted: CountedGroups, function: _GroupEvaluator) -> list[tuple[AnyArray, ...]]:
    if plain.engine == "duckdb":
        from twofold.logs import _duckdb

        return _duckdb.fold_groups(plain, PAIR_COLUMNS, function, counted)
    if plain.engine == "dask":
        from twofold.logs import _dask

        return _dask.fold_groups(plain, PAIR_COLUMNS, function, counted)
    from twofold.logs import _spark

    return _spark.fold_groups(plain, PAIR_COLUMNS, function, counted)


@dataclass(frozen=True)
class _GroupEvaluator:
    """Evaluate whole groups, and return arrays, which every engine can send.

    They are the codes of the groups (G,), correct, wrong and OOD rows (G, 3), and for M metrics: values, bounds and
    intervals (G, M, 5), NaN where there is none, and reasons (G, M), empty where there is none.
    """

    request: EvaluationRequest

    def __call__(self, batches: Batches) -> tuple[AnyArray, ...]:
        rows = _join(batches)
        order = np.argsort(rows["code"], kind="stable")
        codes, starts = np.unique(rows["code"][order], return_index=True)
        names = self.request.names
        totals = np.zeros((len(codes), 3), np.int64)
        numbers = np.full((len(codes), len(names), 5), np.nan)
        reasons = []
        for place, own in enumerate(np.split(order, starts[1:]) if len(codes) else []):
            kind = rows["kind"][own]
            found = evaluate_rows(kind, rows["conf"][own], rows["conf_ood"][own], 0, self.request)
            totals[place] = np.bincount(np.minimum(kind, 2), minlength=3)
            numbers[place] = _numbers(found)
            reasons.append([found.reasons.get(name, "") for name in names])
        texts = np.array(reasons, dtype=np.str_).reshape(len(codes), len(names))
        return codes, totals, numbers, texts


def _join(batches: Batches) -> dict[str, AnyArray]:
    """Join batches; there may be none."""
    held: dict[str, list[AnyArray]] = {
        "code": [np.empty(0, np.int64)],
        "conf": [np.empty(0)],
        "conf_ood": [np.empty(0)],
        "kind": [np.empty(0, np.int8)],
    }
    for batch in batches:
        for name, parts in held.items():
            parts.append(batch[name])
    return {name: np.concatenate(parts) for name, parts in held.items()}


def _numbers(found: TableEvaluation) -> AnyArray:
    """Return value, low and high of the bounds, and low and high of the interval of each metric."""
    rows = []
    for name, value in found.values_.items():
        row = [value, math.nan, math.nan, math.nan, math.nan]
        if name in found.bounds:
            row[1:3] = found.bounds[name].low, found.bounds[name].high
        if name in found.intervals:
            row[3:5] = found.intervals[name].low, found.intervals[name].high
        rows.append(row)
    return np.array(rows)


@dataclass(frozen=True)
class _SentGroup:
    """Hold what came back of one group."""

    code: int
    totals: Counts
    part: PairPart
    intervals: dict[str, Interval]


def _unpack(packed: tuple[Any, ...], request: EvaluationRequest) -> list[_SentGroup]:
    """Read the arrays that :class:`_GroupEvaluator` returns."""
    groups = []
    for code, totals, numbers, reasons in zip(*packed, strict=True):
        part = PairPart()
        intervals: dict[str, Interval] = {}
        for name, row, reason in zip(request.names, numbers.tolist(), reasons.tolist(), strict=True):
            value, low, high, interval_low, interval_high = row
            part.values[name] = value
            if reason:
                part.reasons[name] = reason
            if not math.isnan(low):
                part.bounds[name] = Bounded(value, low, high)
            if not math.isnan(interval_low):
                intervals[name] = Interval(
                    value, interval_low, interval_high, request.level, request.resamples, "percentile", request.seed
                )
        groups.append(_SentGroup(int(code), totals, part, intervals))
    return groups
