"""Judge a gate on logged predictions: verdict rates, coverage and risk with exact intervals, per group."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twofold._notebook import NotebookTable
from twofold._notebook import card as notebook_card
from twofold.errors import UnfitData, UnknownName
from twofold.gate import Gate, ReportCard
from twofold.gate.card import LEVEL, AcceptCounts, Bounds, card_of_counts, exact_interval
from twofold.gate.schema import VERDICTS
from twofold.logs.columns import (
    CORRECT,
    as_expression,
    check_groups,
    check_truths,
    default_column,
    default_is_id,
    engine_errors,
    has_columns,
    keep_rows,
    name_groups,
    read_rows,
    truth,
)
from twofold.logs.groups import sort_key
from twofold.logs.results import Key, format_table, key_values, one_line, plain_value
from twofold.logs.tables import LogTable, open_table
from twofold.logs.verdicts import verdict_expressions

if TYPE_CHECKING:
    import narwhals as nw


@dataclass(frozen=True, repr=False)
class LogCard:
    """Report what a gate says and does on logged predictions.

    Parameters
    ----------
    verdicts : dict of str to int
        Number of rows by verdict.
    intervals : dict of str to pair of floats
        95 % interval of the rate of each verdict, exact (Clopper-Pearson) for independent rows.
    report : ReportCard or None
        Coverage, risk and whether the promise was kept; None where rows have no labels, or all are OOD.
    """

    verdicts: dict[str, int]
    intervals: dict[str, Bounds]
    report: ReportCard | None

    @property
    def rates(self) -> dict[str, float]:
        """Share of each verdict."""
        total = sum(self.verdicts.values())
        return {name: count / total for name, count in self.verdicts.items()}

    def to_dict(self) -> dict[str, object]:
        """Convert the card to plain values.

        Returns
        -------
        dict
            ``verdicts``, ``rates``, ``intervals`` and ``report``, ready for JSON.
        """
        report = None if self.report is None else self.report.to_dict()
        return {"verdicts": self.verdicts, "rates": self.rates, "intervals": self.intervals, "report": report}

    def __str__(self) -> str:
        lines = []
        for name, rate in self.rates.items():
            interval = _shown_interval(self.intervals[name])
            lines.append(f"{name:<8} {self.verdicts[name]:>12}  {rate:.4f}  {interval}")
        if self.report is not None:
            lines.append(str(self.report))
        return "\n".join(lines)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {rate:.4f}" for name, rate in self.rates.items())
        if self.report is not None:
            shown += f", risk {self.report.risk:.4f}"
        return f"LogCard({sum(self.verdicts.values())} rows: {shown})"

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = []
        for name, rate in self.rates.items():
            interval = _shown_interval(self.intervals[name])
            rows.append((name, self.verdicts[name], rate, interval))
        facts: dict[str, object] = {}
        report = self.report
        if report is not None:
            facts["coverage"] = f"{report.coverage:.4f} {_shown_interval(report.coverage_interval)}"
            facts["risk"] = f"{report.risk:.4f} {_shown_interval(report.risk_interval)}"
            facts["promise kept"] = report.kept
        table = NotebookTable(("verdict", "rows", "rate", "95 % interval"), rows)
        total = sum(self.verdicts.values())
        return notebook_card(f"A gate on {total:,} logged predictions", facts, table)


def _shown_interval(interval: Bounds) -> str:
    low, high = interval
    return f"[{low:.4f}, {high:.4f}]"


@dataclass(frozen=True, eq=False, repr=False)
class LogCards(Mapping[Key, LogCard]):
    """Map each group of a log to its card; printing and conversion make one table of all.

    Parameters
    ----------
    by : tuple of str
        Names of the group columns.
    cards : dict
        Cards by group: the value of the column, or a tuple of values for several columns.
    """

    by: tuple[str, ...]
    cards: dict[Key, LogCard]

    def __getitem__(self, key: Key) -> LogCard:
        if key not in self.cards:
            raise UnknownName.of("group", str(key), [str(one) for one in list(self.cards)[:1000]])
        return self.cards[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self.cards)

    def __len__(self) -> int:
        return len(self.cards)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per group: the group columns, counts and rates of verdicts, coverage, risk and intervals.

        Returns
        -------
        list of dict
            The rows.
        """
        rows = []
        for key, card in self.cards.items():
            group_values = key_values(key, self.by)
            row: dict[str, Any] = dict(zip(self.by, group_values, strict=True))
            row["n"] = sum(card.verdicts.values())
            row |= card.rates
            if card.report is not None:
                row["coverage"] = card.report.coverage
                row["coverage_low"], row["coverage_high"] = card.report.coverage_interval
                row["risk"] = card.report.risk
                row["risk_low"], row["risk_high"] = card.report.risk_interval
                row["kept"] = card.report.kept
            rows.append(row)
        return rows

    def to_json(self, *, indent: int | None = 2) -> str:
        """Convert everything to strict JSON.

        Parameters
        ----------
        indent : int or None, default=2
            Spaces of indentation per level; None writes one line.

        Returns
        -------
        str
            ``by`` and a list of ``groups`` with what :meth:`LogCard.to_dict` gives.
        """
        listed = []
        for key, card in self.cards.items():
            content: dict[str, object] = {"group": list(key_values(key, self.by))}
            content |= card.to_dict()
            listed.append(content)
        return json.dumps(plain_value({"by": list(self.by), "groups": listed}), indent=indent)

    def __str__(self) -> str:
        head, rows = self._table()
        table = [head]
        for row in rows:
            table.append([_shown_cell(value) for value in row])
        return format_table(table, len(self.by))

    def _table(self) -> tuple[list[str], list[list[object]]]:
        """Return the names of all columns that some group has, and the cells of each group, empty where it has none."""
        rows = self.rows()
        head: dict[str, None] = {}  # in order, each once
        for row in rows:
            head |= dict.fromkeys(row)
        cells = []
        for row in rows:
            cells.append([row.get(name, "") for name in head])
        return list(head), cells

    def __repr__(self) -> str:
        rows = 0
        for card in self.cards.values():
            rows += sum(card.verdicts.values())
        return f"LogCards({rows} rows in {len(self.cards)} groups by {', '.join(self.by)})"

    def _repr_html_(self) -> str:
        head, rows = self._table()
        table = NotebookTable(head, rows)
        return notebook_card(f"A gate on {len(self.cards):,} groups of logged predictions", table=table)


def _shown_cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return one_line(plain_value(value))


def card(
    gate: Gate,
    table: Any,
    *,
    correct: Any = None,
    conf_id: Any = None,
    conf_ood: Any = None,
    is_id: Any = None,
    by: Any = None,
    where: Any = None,
    memory: str | None = None,
    threads: int | None = None,
) -> LogCard | LogCards:
    """Judge a gate on logged predictions, in one scan that counts.

    Parameters
    ----------
    gate : Gate
        The gate.
    table : path, glob, sequence of paths, or table
        As for :func:`twofold.logs.evaluate`.
    correct : str or narwhals.Expr, optional
        Whether the prediction is correct; by default the column ``correct``, or ``label = prediction``. Where the table
        has neither, the card has verdict rates alone.
    conf_id, conf_ood : str or narwhals.Expr, optional
        The confidences, in the units of the scores of the gate; by default the columns ``conf_id`` (or ``conf``) and
        ``conf_ood``.
    is_id : str or narwhals.Expr, optional
        Whether the row is in-distribution, as for :func:`twofold.logs.evaluate`.
    by : str, narwhals.Expr or sequence of these, optional
        Columns or expressions whose values make groups.
    where : str or narwhals.Expr, optional
        Rows to keep.
    memory : str, optional
        Most memory of the embedded DuckDB; for files.
    threads : int, optional
        Threads of the embedded DuckDB; for files.

    Returns
    -------
    LogCard or LogCards
        The card; with ``by`` a mapping from group to card.

    Raises
    ------
    InvalidInput
        If the table cannot be read, or rows are not valid.

    Examples
    --------
    >>> import pyarrow as pa
    >>> gate = Gate.fit_confidences([1, 1, 0], [0.9, 0.8, 0.3])
    >>> result = card(gate, pa.table({"correct": [True, False, True], "conf_id": [0.95, 0.9, 0.1]}))
    >>> result.verdicts, result.report.risk
    ({'accept': 2, 'unsure': 1, 'unknown': 0}, 0.5)
    """
    with open_table(table, memory=memory, threads=threads) as opened:
        opened = keep_rows(opened, where)
        groups = name_groups(opened, by or ())
        verdict = verdict_expressions(gate, opened, conf_id, conf_ood)["verdict"]
        truths = _choose_truths(opened, correct, is_id)
        rows = _count_rows(opened, verdict, truths, groups)
    labelled = "correct" in truths
    cards: dict[Key, LogCard] = {}
    for row in rows:
        cards[row.key] = _card_of_counts(gate, row.counts, labelled)
    if not groups:
        return cards[()]
    if len(groups) == 1:
        by_value: dict[Key, LogCard] = {}
        for key, one in cards.items():
            (value,) = key
            by_value[value] = one
        cards = by_value
    return LogCards(tuple(groups), cards)


def _choose_truths(table: LogTable, correct: Any, is_id: Any) -> dict[str, Any]:
    """Return the expressions of ``correct`` and ``is_id``; nothing where the table has no labels."""
    if correct is None and not has_columns(table, CORRECT):
        return {}
    if correct is None:
        correct = default_column(table, "correct", CORRECT)
    if is_id is None:
        is_id = default_is_id(table)
    truths = {"correct": as_expression(table, correct, "correct")}
    if is_id is not None:
        truths["is_id"] = as_expression(table, is_id, "is_id")
    return truths


@dataclass(frozen=True)
class _CountedRow:
    """Hold a group and its counts."""

    key: tuple[Any, ...]
    counts: dict[str, int]


def _count_rows(
    table: LogTable, verdict: nw.Expr, truths: dict[str, nw.Expr], groups: dict[str, nw.Expr]
) -> list[_CountedRow]:
    """Count verdicts by truth and group in one scan, and raise if any row is not valid."""
    import narwhals as nw

    names = [f"g{place}" for place in range(len(groups))]
    named = dict(zip(names, groups.values(), strict=True))
    with engine_errors():
        raw = table.select(verdict=verdict, **truths, **named)
        schema = raw.frame.collect_schema()
        check_groups(groups, [schema[name] for name in names])
        flags = _flags(schema)
        numbers = []  # of 0 and 1
        sums = []
        for name, flag in flags.items():
            numbers.append(flag.cast(nw.Int64()).alias(f"n_{name}"))
            sums.append(nw.col(f"n_{name}").sum().alias(f"s_{name}"))
        frame = raw.frame.select(*names, nw.col("verdict"), *numbers)
        if names:
            counted = frame.group_by(*names).agg(*sums)
        else:
            counted = frame.select(*sums)
    rows = []
    totals = dict.fromkeys(flags, 0)
    for row in read_rows(counted):
        counts = {}
        for name in flags:
            counts[name] = int(row[f"s_{name}"] or 0)
            totals[name] += counts[name]
        key = tuple(row[name] for name in names)
        rows.append(_CountedRow(key, counts))
    check_truths(totals, totals["n"])
    rows.sort(key=lambda row: sort_key(row.key))
    return rows


def _flags(schema: Any) -> dict[str, nw.Expr]:
    """Return what is counted: rows, verdicts, accepted rows by truth, and rows that are not valid."""
    import narwhals as nw

    right, bad_correct = nw.lit(False), nw.lit(False)
    inside, bad_is_id = nw.lit(True), nw.lit(False)
    if "correct" in schema:
        right, bad_correct = truth(schema["correct"], "correct")
    if "is_id" in schema:
        inside, bad_is_id = truth(schema["is_id"], "is_id")
    verdict = nw.col("verdict")
    accepted = verdict == "accept"
    return {
        "n": nw.lit(True),
        "unsure": verdict == "unsure",
        "unknown": verdict == "unknown",
        "ids": inside,
        "known": accepted & inside,
        "outside": accepted & ~inside,
        "right": accepted & right,
        "rejected": right & ~accepted,
        "bad_correct": bad_correct,
        "bad_is_id": bad_is_id,
        "bad_pair": right & ~inside,
    }


def _card_of_counts(gate: Gate, counts: dict[str, int], labelled: bool) -> LogCard:
    n = counts["n"]
    unsure, unknown = counts["unsure"], counts["unknown"]
    verdicts = {"accept": n - unsure - unknown, "unsure": unsure, "unknown": unknown}
    intervals = {}
    for name in VERDICTS:
        intervals[name] = exact_interval(verdicts[name], n, 1.0 - LEVEL)
    report = None
    if labelled:
        report = _report(gate, counts)
    return LogCard(verdicts, intervals, report)


def _report(gate: Gate, counts: dict[str, int]) -> ReportCard | None:
    """Judge the promise; None where all rows are OOD."""
    accepted = AcceptCounts(
        ids=counts["ids"],
        oods=counts["n"] - counts["ids"],
        known=counts["known"],
        outside=counts["outside"],
        right=counts["right"],
    )
    try:
        return card_of_counts(gate.promise, accepted, counts["rejected"])
    except UnfitData:
        return None
