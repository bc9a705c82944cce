"""Judge a gate on logged predictions: verdict rates, coverage and risk with exact intervals, per group."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twofold.errors import UnfitData, UnknownName
from twofold.gate import Gate, ReportCard
from twofold.gate.card import LEVEL, AcceptCounts, Bounds, card_of_counts, exact_interval
from twofold.gate.schema import VERDICTS
from twofold.logs.columns import (
    CORRECT,
    as_expression,
    check_truths,
    default_column,
    default_is_id,
    engine_errors,
    read_rows,
    sort_key,
    truth,
)
from twofold.logs.expressions import as_expressions
from twofold.logs.results import Key, plain_value
from twofold.logs.tables import LogTable, open_table
from twofold.logs.verdicts import verdict_expressions


@dataclass(frozen=True)
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
            low, high = self.intervals[name]
            lines.append(f"{name:<8} {self.verdicts[name]:>12}  {rate:.4f}  [{low:.4f}, {high:.4f}]")
        if self.report is not None:
            lines.append(str(self.report))
        return "\n".join(lines)


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
            values = key if len(self.by) > 1 else (key,)
            row: dict[str, Any] = dict(zip(self.by, values, strict=True))
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
            listed.append({"group": list(key) if len(self.by) > 1 else [key]} | card.to_dict())
        return json.dumps(plain_value({"by": list(self.by), "groups": listed}), indent=indent)

    def __str__(self) -> str:
        from twofold.logs.results import format_table

        rows = self.rows()
        head = list(dict.fromkeys(name for row in rows for name in row))
        table = [head]
        for row in rows:
            cells = []
            for name in head:
                value = row.get(name, "")
                cells.append(f"{value:.4f}" if isinstance(value, float) else str(plain_value(value)))
            table.append(cells)
        return format_table(table, len(self.by))

    __repr__ = __str__


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
        if where is not None:
            kept = opened.frame.filter(as_expression(opened, where, "where"))
            opened = LogTable(kept, opened.engine, opened.names, opened.files)
        groups: dict[str, Any] = {}
        for expression in as_expressions(by or ()):
            name = expression if isinstance(expression, str) else f"group {len(groups) + 1}"
            groups[name] = as_expression(opened, expression, "by")
        rows, labelled = _count(gate, opened, correct, conf_id, conf_ood, is_id, list(groups.values()))
    cards: dict[Key, LogCard] = {}
    for row in rows:
        values = tuple(row[f"g{place}"] for place in range(len(groups)))
        cards[values if len(groups) != 1 else values[0]] = _card_of_row(gate, row, labelled)
    if not groups:
        return cards[()]
    return LogCards(tuple(groups), cards)


def _count(
    gate: Gate, table: LogTable, correct: Any, conf_id: Any, conf_ood: Any, is_id: Any, groups: list[Any]
) -> tuple[list[dict[str, Any]], bool]:
    """Count verdicts by truth and group; also say whether the rows have labels."""
    import narwhals as nw

    has_labels = correct is not None or any(
        all(part in table.names for part in candidate.split(" = ")) for candidate in CORRECT
    )
    chosen = {"verdict": verdict_expressions(gate, table, conf_id, conf_ood)["verdict"]}
    if has_labels:
        if is_id is None and correct is None:
            is_id = default_is_id(table)
        correct = default_column(table, "correct", CORRECT) if correct is None else correct
        chosen["correct"] = as_expression(table, correct, "correct")
        if is_id is not None:
            chosen["is_id"] = as_expression(table, is_id, "is_id")
    for place, group in enumerate(groups):
        chosen[f"g{place}"] = group
    with engine_errors():
        raw = table.select(**chosen)
        schema = raw.frame.collect_schema()
    right, bad_correct, inside, bad_is_id = nw.lit(False), nw.lit(False), nw.lit(True), nw.lit(False)
    if has_labels:
        right, bad_correct = truth(schema["correct"], "correct")
    if "is_id" in schema:
        inside, bad_is_id = truth(schema["is_id"], "is_id")
    accepted = nw.col("verdict") == "accept"
    flags = {
        "unsure": nw.col("verdict") == "unsure",
        "unknown": nw.col("verdict") == "unknown",
        "n": nw.lit(True),
        "ids": inside,
        "known": accepted & inside,
        "outside": accepted & ~inside,
        "right": accepted & right,
        "rejected": right & ~accepted,
        "bad_correct": bad_correct,
        "bad_is_id": bad_is_id,
        "bad_pair": right & ~inside,
    }
    names = [f"g{place}" for place in range(len(groups))]
    numbers = raw.frame.select(
        *names, nw.col("verdict"), *[flag.cast(nw.Int64()).alias(f"n_{name}") for name, flag in flags.items()]
    )
    sums = [nw.col(f"n_{name}").sum().alias(f"s_{name}") for name in flags]
    counted = numbers.group_by(*names).agg(*sums) if names else numbers.select(*sums)
    rows = []
    for row in read_rows(counted):
        plain = {name: int(row[f"s_{name}"] or 0) for name in flags}
        rows.append(plain | {name: row[name] for name in names})
    rows.sort(key=lambda row: sort_key([row[name] for name in names]))
    totals = {name: sum(row[name] for row in rows) for name in flags}
    check_truths(totals, totals["n"])
    return rows, has_labels


def _card_of_row(gate: Gate, row: dict[str, Any], labelled: bool) -> LogCard:
    n = row["n"]
    verdicts = {"accept": n - row["unsure"] - row["unknown"], "unsure": row["unsure"], "unknown": row["unknown"]}
    intervals = {name: exact_interval(verdicts[name], n, 1.0 - LEVEL) for name in VERDICTS}
    report = None
    if labelled:
        counts = AcceptCounts(
            ids=row["ids"], oods=n - row["ids"], known=row["known"], outside=row["outside"], right=row["right"]
        )
        try:
            report = card_of_counts(gate.promise, counts, row["rejected"])
        except UnfitData:
            report = None
    return LogCard(verdicts, intervals, report)
