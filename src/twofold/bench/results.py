"""Results: tidy rows, one per number, with what is needed to trust and repeat it, and the tables made of them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from itertools import zip_longest
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from twofold import metrics
from twofold._checks import Array, Mask
from twofold._csv import escape_row, unescape_cell
from twofold._files import json_with_digest, parse_json_with_digest, replacing
from twofold.bench.protocols import Choice
from twofold.bench.protocols import select as choose
from twofold.errors import InvalidInput, MissingExtra, RunError, UndefinedMetric, UnknownName
from twofold.roles import OOD_TEST

Row: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str | None, ...]  # the values of KEY in a row
Columns: TypeAlias = str | tuple[str, ...]

COLUMNS = (
    *("benchmark", "model", "recipe", "seed", "run", "score", "pair", "shift", "role", "protocol", "metric"),
    *("value", "low", "high", "level", "resamples", "n", "n_id", "n_ood"),
    *("tuned", "chosen", "reason", "better", "version", "command"),
)
REAL = ("value", "low", "high", "level")
WHOLE = ("seed", "resamples", "n", "n_id", "n_ood")
KEY = ("run", "score", "pair", "shift", "protocol", "metric")  # what replicates belong to
IDENTITY = ("benchmark", "model", "recipe", "seed", *KEY)  # no two rows with a metric agree in all of these
WORDS = {"tuned": ("untuned", "ID-tuned", "OOD-tuned"), "better": ("higher", "lower")}
VALIDATION = "validation"  # shift of rows on validation data, which choose and are never compared

ROLE_GROUPS = (*OOD_TEST, "corruption")  # shifts that stand for all data sets of the role of that name
WIDE_GROUPS = ("pooled", "mean", "average")  # shifts that stand for data sets of several roles
MAIN = {
    "joint": ("ds_f1", "f1"),
    "joint_pooled": ("ds_f1", "f1"),
    "openood": ("auroc_ood",),
    "stratified": ("augrc", "aurc"),
}
"""What the overview of a protocol goes by, the first that was measured; AURC for protocols that are not named."""
OVERVIEW = 15  # methods that the overview lists

CSV, PARQUET, REPLICATES, DIGESTS = "results.csv", "results.parquet", "replicates.safetensors", "results.json"
FOLDER_FORMAT, FOLDER_VERSION = "twofold-results", 1  # kind and version of results.json
FORMAT = "twofold replicates 1"


def method(row: Row) -> str:
    """Name the method of a row: its score, or both scores of a pair.

    Parameters
    ----------
    row : mapping
        A row of results.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> method({"score": "msp", "pair": "energy"})
    'msp + energy'
    """
    return str(row["score"]) if row["pair"] is None else f"{row['score']} + {row['pair']}"


@dataclass(frozen=True, eq=False)
class Results:
    """Hold benchmark results as tidy rows, one for each number.

    Each row has all of ``COLUMNS``, with None where a column does not apply. ``run`` names the run, ``pair`` the second
    score of two, ``shift`` a data set or a group such as near or validation. ``value`` has the interval ``low`` to
    ``high`` of ``level`` from ``resamples``. ``n`` counts rows, ``n_id`` of them known. ``tuned`` says what settings
    were chosen on, and ``chosen`` names them. ``reason`` says why there is no value, or how the row was chosen or
    averaged.

    Make them with :meth:`of` or :meth:`open`, which check what they read; the constructor only stores.

    Parameters
    ----------
    rows : tuple of mapping
        The rows.
    replicates : mapping of tuple to ndarray, default={}
        Bootstrap values by the values of ``KEY``, paired over the scores of one run.

    Examples
    --------
    >>> rows = [{"score": s, "shift": "svhn", "metric": "aurc", "value": v} for s, v in [("msp", 0.2), ("knn", 0.1)]]
    >>> print(Results.of(rows).pivot(metric="aurc").values)
    [[0.2]
     [0.1]]
    """

    rows: tuple[Row, ...]
    replicates: Mapping[Key, Array] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @classmethod
    def of(cls, rows: Iterable[Row], replicates: Mapping[Key, Any] | None = None) -> Results:
        """Check rows and replicates, and make results of them.

        Parameters
        ----------
        rows : iterable of mapping
            Values by column. Columns that a row lacks become None, and so does empty text.
        replicates : mapping of tuple to array-like, optional
            One-dimensional bootstrap values by (run, score, pair, shift, protocol, metric) of a row.

        Returns
        -------
        Results
            Read-only copies of the rows and replicates.

        Raises
        ------
        InvalidInput
            If a column is unknown or holds a value of the wrong kind, a value has no metric, two rows with a metric
            agree in all of ``IDENTITY``, or replicates belong to no row.

        Examples
        --------
        >>> len(Results.of([{"score": "msp", "metric": "aurc", "value": 0.2}]))
        1
        """
        words: dict[tuple[str, Any], Any] = {}  # columns repeat few words: each is checked once
        entered = tuple(_entered(row, place, words) for place, row in enumerate(rows))
        _refuse_doubles(entered, IDENTITY)
        drawn = {tuple(key): _drawn(key, array) for key, array in (replicates or {}).items()}
        if drawn:
            _refuse_doubles([row for row in entered if key_of(row) in drawn], KEY)
            lost = next(iter(drawn.keys() - {key_of(row) for row in entered}), None)
            if lost is not None:
                raise InvalidInput(f"replicates of {lost} belong to no row; keys are the {', '.join(KEY)} of a row")
        return cls(entered, MappingProxyType(drawn))

    def filter(self, **wanted: Any) -> Results:
        """Keep the rows whose columns equal the wanted values.

        Parameters
        ----------
        **wanted : Any
            A value by column; a tuple, list or set allows any of its values.

        Returns
        -------
        Results
            The rows that match in every column, with their replicates.

        Raises
        ------
        UnknownName
            If there is no such column.

        Examples
        --------
        >>> rows = [{"score": s, "metric": "aurc", "value": 0.1} for s in ("msp", "knn", "mds")]
        >>> len(Results.of(rows).filter(metric="aurc", score=("msp", "knn")))
        2
        """
        for column in wanted:
            _known(column)
        allowed = {c: tuple(v) if isinstance(v, tuple | list | set | frozenset) else (v,) for c, v in wanted.items()}
        return self._only([row for row in self.rows if all(row[c] in values for c, values in allowed.items())])

    def _only(self, rows: Iterable[Row]) -> Results:
        kept = tuple(rows)
        keys = {key_of(row) for row in kept}
        return Results(kept, MappingProxyType({k: a for k, a in self.replicates.items() if k in keys}))

    # --- fewer rows -------------------------------------------------------------------------------------------------

    def over_seeds(self) -> Results:
        """Average rows over seeds.

        Rows are averaged that agree in benchmark, model, recipe, scores, shift, role, protocol and metric. ``low`` and
        ``high`` are one standard deviation (n - 1) below and above the mean, None for one seed; ``level`` and
        ``resamples`` are None; ``run`` lists the runs and ``reason`` the seeds. Replicates are averaged one by one.

        Returns
        -------
        Results
            A row for each group. Rows without a metric are kept as they are.

        Raises
        ------
        InvalidInput
            If two rows of a group have the same seed.

        Notes
        -----
        A mean with a seed that has no value is NaN.

        Examples
        --------
        >>> rows = [{"score": "msp", "seed": s, "metric": "aurc", "value": v} for s, v in [(0, 0.1), (1, 0.2)]]
        >>> mean = Results.of(rows).over_seeds().rows[0]
        >>> round(mean["value"], 4), mean["reason"]
        (0.15, 'mean and standard deviation of seeds 0, 1')
        """
        same = ("benchmark", "model", "recipe", "score", "pair", "shift", "role", "protocol", "metric", "better")
        rows, replicates = [], {}
        for group in _grouped([row for row in self.rows if row["metric"] is not None], same).values():
            row = _mean(sorted(group, key=lambda one: (one["seed"] is not None, one["seed"])))
            rows.append(row)
            drawn = [self.replicates.get(key_of(one)) for one in group]
            arrays = [array for array in drawn if array is not None]
            if len(arrays) == len(group) and len({len(array) for array in arrays}) == 1:
                replicates[key_of(row)] = np.mean(arrays, axis=0)
        rows += [dict(row) for row in self.rows if row["metric"] is None]
        return Results.of(rows, replicates)

    def best(self, per: tuple[str, ...] = ("benchmark", "model", "recipe", "seed", "shift", "protocol")) -> Results:
        """Keep the row with the best value for each metric and each combination of ``per``.

        Parameters
        ----------
        per : tuple of str, default=("benchmark", "model", "recipe", "seed", "shift", "protocol")
            Columns whose combinations are decided separately.

        Returns
        -------
        Results
            One row for each combination that has a value.

        Raises
        ------
        UnknownName
            If there is no such column.
        InvalidInput
            If rows of a metric disagree on whether higher or lower is better.

        Notes
        -----
        NaN is never best, and among equals the first row is kept. Rows on validation data take part; filter them out
        first.

        Examples
        --------
        >>> rows = [{"score": s, "metric": "aurc", "value": v} for s, v in [("msp", 0.2), ("knn", 0.1)]]
        >>> [row["score"] for row in Results.of(rows).best()]
        ['knn']
        """
        for column in per:
            _known(column)
        valued = [row for row in self.rows if row["metric"] is not None and not missing(row["value"])]
        best = []
        for group in _grouped(valued, (*per, "metric")).values():
            pick = max if better_of(group) == "higher" else min
            best.append(pick(group, key=lambda row: row["value"]))
        return self._only(best)

    def select(self, metric: str | None = None) -> Results:
        """Keep, for each score, protocol and seed, the rows of the run that is best on validation data.

        Runs of one benchmark, model and seed compete, so recipes (dropout, a reward, a learning rate) are what is
        chosen. ``reason`` of the kept rows tells the choice.

        Parameters
        ----------
        metric : str, optional
            Metric of the rows with shift "validation" that decides. It may be left out where those rows have only one.

        Returns
        -------
        Results
            The rows of the chosen runs. Where no run has a validation value, one row says so.

        Raises
        ------
        InvalidInput
            If several runs compete and none has a validation row, or validation rows have several metrics and
            ``metric`` is None.

        Notes
        -----
        A pair without validation rows follows its first score.
        """
        group = ("benchmark", "model", "seed", "protocol", "score", "pair")
        rows: list[Row] = []
        choices: dict[tuple[Any, ...], Choice | None] = {}
        grouped = _grouped([row for row in self.rows if row["score"] is not None], group)
        for place, members in grouped.items():
            choices[place] = _choice(members, grouped.get((*place[:-1], None), []), metric)
        for place, members in grouped.items():
            choice = choices[place]
            if choice is None:
                rows += members
            elif not choice.run:
                rows.append(_unchosen(members))
            else:
                rows += [_told(row, choice) for row in members if row["run"] == choice.run]
        kept = {row["run"] for row in rows}
        rows += [row for row in self.rows if row["score"] is None and row["run"] in kept]
        return self._only(rows)

    # --- tables -----------------------------------------------------------------------------------------------------

    def pivot(
        self, index: Columns = "score", columns: Columns = "shift", *, metric: str, protocol: str | None = None
    ) -> Pivot:
        """Arrange the values of one metric in a table.

        Parameters
        ----------
        index, columns : str or tuple of str, default="score", "shift"
            Columns of the results whose values label the rows and columns of the table. "score" stands for both scores
            of a pair, and a tuple for the product of its columns.
        metric : str
            The metric to show.
        protocol : str, optional
            Needed where several protocols have the metric.

        Returns
        -------
        Pivot
            Labels in the order of the rows. Cells without a value are NaN; ``notes`` say why, and name scores and data
            sets that are missing as a whole.

        Raises
        ------
        UnknownName
            If there is no such metric or column.
        InvalidInput
            If two rows share a cell (the message names the columns in which they differ), or the protocol is missing or
            was not used for the metric.

        Notes
        -----
        Validation data are left out unless there is nothing else.

        Examples
        --------
        >>> rows = [{"score": s, "shift": "svhn", "metric": "aurc", "value": 0.1} for s in ("msp", "knn")]
        >>> Results.of(rows).pivot(metric="aurc").index
        ('msp', 'knn')
        """
        rows = of_metric(self, metric, protocol)
        across, down = _names(columns), _names(index)
        cells: dict[tuple[str, str], Row] = {}
        for row in rows:
            place = _label(row, down), _label(row, across)
            if place in cells:
                raise InvalidInput(
                    f"{_differing(cells[place], row)} for {' and '.join(place)} in the pivot of {metric}"
                )
            cells[place] = row
        labels = tuple(dict.fromkeys(i for i, _ in cells))
        heads = tuple(dict.fromkeys(j for _, j in cells))
        grid = [[cells.get((i, j)) for j in heads] for i in labels]
        drawn = {
            (i, j): (str(row["run"]), self.replicates[key_of(row)])
            for i, line in enumerate(grid)
            for j, row in enumerate(line)
            if row is not None and key_of(row) in self.replicates
        }
        levels = {row["level"] for row in rows if row["low"] is not None}
        return Pivot(
            metric=metric,
            index=labels,
            columns=heads,
            values=_numbers(grid, "value"),
            lows=_numbers(grid, "low"),
            highs=_numbers(grid, "high"),
            better=better_of(rows),
            level=levels.pop() if len(levels) == 1 else None,
            notes=_notes(self.rows, grid, labels, heads, rows[0]["protocol"]),
            replicates=MappingProxyType(drawn),
            protocol=rows[0]["protocol"],
        )

    def to_markdown(
        self,
        index: Columns = "score",
        columns: Columns = "shift",
        *,
        metric: str,
        protocol: str | None = None,
        digits: int = 2,
    ) -> str:
        """Format the :meth:`pivot` as a Markdown table that marks the best and tied values.

        Parameters
        ----------
        index, columns : str or tuple of str, default="score", "shift"
            Columns of the results that label the rows and columns of the table.
        metric : str
            The metric to show.
        protocol : str, optional
            Needed where several protocols have the metric.
        digits : int, default=2
            Digits after the decimal point.

        Returns
        -------
        str
            The table with its caption and notes.
        """
        return self.pivot(index, columns, metric=metric, protocol=protocol).to_markdown(digits=digits)

    def to_latex(
        self,
        index: Columns = "score",
        columns: Columns = "shift",
        *,
        metric: str,
        protocol: str | None = None,
        digits: int = 2,
    ) -> str:
        """Format the :meth:`pivot` as a LaTeX table; no package is needed.

        Parameters
        ----------
        index, columns : str or tuple of str, default="score", "shift"
            Columns of the results that label the rows and columns of the table.
        metric : str
            The metric to show.
        protocol : str, optional
            Needed where several protocols have the metric.
        digits : int, default=2
            Digits after the decimal point.

        Returns
        -------
        str
            The table as a float with a caption.
        """
        return self.pivot(index, columns, metric=metric, protocol=protocol).to_latex(digits=digits)

    def to_pandas(self) -> Any:
        """Convert the rows to a pandas data frame.

        Returns
        -------
        pandas.DataFrame
            The columns of ``COLUMNS``. Whole numbers are nullable (``Int64``), and a real number that is None becomes
            NaN.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        pandas = _package("pandas", "data frames need pandas")
        frame = pandas.DataFrame({column: [row[column] for row in self.rows] for column in COLUMNS}, dtype=object)
        kinds = {**dict.fromkeys(REAL, "float64"), **dict.fromkeys(WHOLE, "Int64")}
        return frame.astype(kinds)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Convert the rows to plain dictionaries that JSON can hold.

        Returns
        -------
        list of dict
            The rows, with NaN replaced by None.

        Examples
        --------
        >>> Results.of([{"score": "msp", "metric": "aurc", "value": float("nan")}]).to_dicts()[0]["value"] is None
        True
        """
        return [{c: None if v is not None and v != v else v for c, v in row.items()} for row in self.rows]

    def overview(self) -> str:
        """Summarise the results in a short text.

        Per protocol, methods are listed by the mean of its main metric over data sets and runs, best first.

        Returns
        -------
        str
            A short text with at most 15 methods per protocol; ``"no values"`` if there are none.

        Notes
        -----
        Averages, pools and validation data do not count. Methods that lack some of the values come last.

        Examples
        --------
        >>> rows = [{"score": s, "shift": "a", "metric": "aurc", "value": v} for s, v in [("msp", 0.2), ("knn", 0.1)]]
        >>> print(Results.of(rows).overview())
        aurc (x1000), lower is better, coverage of all samples, mean of 1 value
          100.00  knn
          200.00  msp
        """
        protocols = dict.fromkeys(row["protocol"] for row in self.rows if row["metric"] is not None)
        parts = [_overview(name, [row for row in self.rows if row["protocol"] == name]) for name in protocols]
        return "\n\n".join(part for part in parts if part) or "no values"

    # --- files ------------------------------------------------------------------------------------------------------

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV; numbers keep all their digits, None is empty.

        A text that a spreadsheet could take for a formula, because it begins with ``=``, ``+``, ``-``, ``@`` or a tab,
        gets a leading apostrophe (one more if it has some already). :meth:`open` takes it away again; elsewhere remove
        one apostrophe where such a character follows the apostrophes.

        Parameters
        ----------
        path : path-like
            The file; an existing one is replaced.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InvalidInput
            If the folder of the file does not exist.
        RunError
            If the file cannot be written.
        """
        return _write({Path(path): self._csv()})[0]

    def to_parquet(self, path: str | Path) -> Path:
        """Write the rows as Parquet.

        Parameters
        ----------
        path : path-like
            The file; an existing one is replaced.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        MissingExtra
            If pyarrow is not installed.
        InvalidInput
            If the folder of the file does not exist.
        RunError
            If the file cannot be written.
        """
        return _write({Path(path): self._parquet()})[0]

    def save(self, folder: str | Path) -> Path:
        """Save the results to a folder, which :meth:`open` reads back.

        The folder holds ``results.csv``, ``results.parquet`` where pyarrow is installed, ``replicates.safetensors``
        where there are replicates, and ``results.json`` with the SHA-256 of each, by which :meth:`open` notices damage.

        Parameters
        ----------
        folder : path-like
            The folder; it is created if it does not exist.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        InvalidInput
            If the folder cannot be created.
        RunError
            If a file cannot be written.

        Notes
        -----
        Files are replaced once all of them are written. The Parquet file is not written again if the rows have not
        changed.
        """
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"{place} cannot be a folder of results ({error.strerror}); choose another") from error
        content = {place / CSV: self._csv()}
        same = (place / CSV).is_file() and _bytes(place / CSV) == content[place / CSV]
        if not (same and (place / PARQUET).is_file()):
            try:
                content[place / PARQUET] = self._parquet()
            except MissingExtra:
                (place / PARQUET).unlink(missing_ok=True)  # it holds other rows
        if self.replicates:
            content[place / REPLICATES] = self._packed(content[place / CSV])
        digests = {path.name: hashlib.sha256(data).hexdigest() for path, data in content.items()}
        if PARQUET not in digests and (place / PARQUET).is_file():  # the one that is kept
            digests[PARQUET] = hashlib.sha256(_bytes(place / PARQUET)).hexdigest()
        content[place / DIGESTS] = json_with_digest(digests, kind=FOLDER_FORMAT, version=FOLDER_VERSION)
        _write(content)
        if not self.replicates:
            (place / REPLICATES).unlink(missing_ok=True)
        return place

    @classmethod
    def open(cls, path: str | Path) -> Results:
        """Read a CSV or Parquet file that was written here, or a folder of :meth:`save`.

        Parameters
        ----------
        path : path-like
            A folder, whose files must be as they were written, or one file. A CSV file alone is read as it is, so that
            one may edit it.

        Returns
        -------
        Results
            The rows, and from a folder the replicates.

        Raises
        ------
        InvalidInput
            If there is nothing to read, a file is damaged or of another format, or a folder has no digests.
        """
        place = Path(path)
        if place.is_dir():
            if not (place / CSV).is_file():
                raise InvalidInput(f"{place} holds no results: there is no {CSV} in it")
            content = _bytes(place / CSV)
            listed = _check_digests(place)
            rows = _from_csv(content, place / CSV)
            replicates = _unpacked(place / REPLICATES, content) if REPLICATES in listed else None
            return _opened(rows, replicates, place)
        if not place.is_file():
            raise InvalidInput(f"there is no file or folder {place}")
        if place.suffix == ".parquet":
            return _opened(_from_parquet(place), None, place)
        return _opened(_from_csv(_bytes(place), place), None, place)

    def _csv(self) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in self.rows:
            cells = ["" if row[column] is None else row[column] for column in COLUMNS]
            writer.writerow(escape_row(cells))
        return text.getvalue().encode()

    def _parquet(self) -> bytes:
        arrow = _package("pyarrow", "Parquet files need pyarrow")
        kinds = {**dict.fromkeys(REAL, arrow.float64()), **dict.fromkeys(WHOLE, arrow.int64())}
        schema = arrow.schema([(column, kinds.get(column, arrow.string())) for column in COLUMNS])
        columns = {column: [row[column] for row in self.rows] for column in COLUMNS}
        file = io.BytesIO()
        import_module("pyarrow.parquet").write_table(
            arrow.table(columns, schema=schema), file, write_page_checksum=True
        )
        return file.getvalue()

    def _packed(self, content: bytes) -> bytes:
        """Pack replicates as one tensor per length, with their keys and the digest of the rows in the header."""
        from safetensors.numpy import save

        by_length: dict[str, list[Key]] = {}
        for key, array in self.replicates.items():
            by_length.setdefault(str(len(array)), []).append(key)
        tensors = {n: np.stack([self.replicates[key] for key in keys]) for n, keys in by_length.items()}
        told = {"format": FORMAT, "keys": json.dumps(by_length), "rows": hashlib.sha256(content).hexdigest()}
        return save(tensors, metadata=told)


# --- rows -----------------------------------------------------------------------------------------------------------


def _known(column: str) -> None:
    if column not in COLUMNS:
        raise UnknownName.of("column", str(column), COLUMNS)


def key_of(row: Row) -> Key:
    """Read the values of ``KEY`` from a row, by which its replicates are stored.

    Parameters
    ----------
    row : mapping
        A row of results.

    Returns
    -------
    tuple of str or None
        Its run, score, pair, shift, protocol and metric.
    """
    return tuple(row[column] for column in KEY)


def _entered(row: Row, place: int, words: dict[tuple[str, Any], Any]) -> Row:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"row {place} must be a mapping from columns to values, got {type(row).__name__}")
    odd = next((column for column in row if column not in COLUMNS), None)
    if odd is not None:
        raise InvalidInput(f"row {place}: {UnknownName.of('column', str(odd), COLUMNS)}")
    entered = {}
    for column, value in zip(COLUMNS, map(row.get, COLUMNS), strict=True):
        kind = type(value)
        if value is None or (kind is float and column in REAL):
            entered[column] = value
        elif kind is str:
            if (column, value) not in words:
                words[column, value] = _cell(column, value, place)
            entered[column] = words[column, value]
        else:
            entered[column] = _cell(column, value, place)
    if entered["value"] is not None and not math.isnan(entered["value"]) and entered["metric"] is None:
        raise InvalidInput(f"row {place} has the value {entered['value']} but no metric; say what was measured")
    return MappingProxyType(entered)


def _cell(column: str, value: Any, place: int) -> Any:
    if value is None:
        return None
    flag = isinstance(value, bool | np.bool_)
    if column in REAL:
        if isinstance(value, Real) and not flag:
            return float(value)
        raise InvalidInput(f"{column} of row {place} must be a number or None, got {value!r}")
    if column in WHOLE:
        if isinstance(value, Integral) and not flag and abs(int(value)) < 2**63:
            return int(value)
        raise InvalidInput(f"{column} of row {place} must be a whole number or None, got {value!r}")
    if not isinstance(value, str):
        raise InvalidInput(f"{column} of row {place} must be text or None, got {value!r}")
    if not value.isprintable():
        value = _printable(value, column, place)
    if value and column in WORDS and value not in WORDS[column]:
        raise InvalidInput(f"{column} of row {place}: {UnknownName.of('choice', value, WORDS[column])}")
    return value or None


def _printable(value: str, column: str, place: int) -> str:
    """Make text that every file format here can hold: no lone surrogate, no NUL, lines that end in a newline alone."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{column} of row {place} must be text that UTF-8 can hold, got {value!r}") from error
    if "\0" in value:
        raise InvalidInput(f"{column} of row {place} must not hold the character NUL, got {value!r}")
    return value.replace("\r\n", "\n").replace("\r", "\n")


def _drawn(key: Sequence[Any], array: Any) -> Array:
    values = np.array(array, dtype=np.float64)  # a copy, so that nobody changes it from outside
    if len(key) != len(KEY) or values.ndim != 1:
        raise InvalidInput(
            f"replicates must be one-dimensional arrays by ({', '.join(KEY)}), got shape {values.shape} for {key!r}"
        )
    values.flags.writeable = False
    return values


def _refuse_doubles(rows: Iterable[Row], columns: tuple[str, ...]) -> None:
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        place = tuple(row[column] for column in columns)
        if row["metric"] is not None and place in seen:
            what = ", ".join(f"{c} {v!r}" for c, v in zip(columns, place, strict=True) if v is not None)
            raise InvalidInput(f"two rows have {what}; keep one, or tell them apart in one of these columns")
        seen.add(place)


def _grouped(rows: Iterable[Row], columns: tuple[str, ...]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def missing(value: float | None) -> bool:
    """Check whether a value is None or NaN.

    Parameters
    ----------
    value : float or None
        The value of a row.

    Returns
    -------
    bool
        True if there is no value.

    Examples
    --------
    >>> missing(None), missing(float("nan")), missing(0.0)
    (True, True, False)
    """
    return value is None or math.isnan(value)


def better_of(rows: Iterable[Row]) -> str:
    """Find the direction in which the values of one metric get better.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of one metric. A row whose column ``better`` is None takes the direction of the registered metric.

    Returns
    -------
    str
        ``"higher"`` or ``"lower"``.

    Raises
    ------
    InvalidInput
        If rows disagree, or the metric is not registered and a row does not name the direction.

    Examples
    --------
    >>> better_of([{"metric": "aurc", "better": None}])
    'lower'
    """
    known = set()
    metric = None
    for row in rows:
        metric = row["metric"]
        known.add(row["better"] or _registered_better(metric))
    if len(known) != 1:
        raise InvalidInput(f"rows of {metric} disagree on whether higher or lower is better; mend the column better")
    return str(known.pop())


def _registered_better(metric: str) -> str:
    if metric == "accuracy":
        return "higher"
    try:
        return metrics.info(metric.removesuffix("_ood")).better
    except UnknownName as error:
        raise InvalidInput(f"rows of {metric} must say higher or lower in better: {error}") from error


def _mean(group: Sequence[Row]) -> dict[str, Any]:
    """Replace the rows of several seeds by one."""
    seeds = [row["seed"] for row in group]
    if len(set(seeds)) < len(seeds):
        twice = [row for row in group if seeds.count(row["seed"]) > 1]
        raise InvalidInput(
            f"{_differing(twice[0], twice[1])} for seed {twice[0]['seed']} of {method(twice[0])}, "
            f"{twice[0]['shift']}, {twice[0]['metric']}"
        )
    values = [math.nan if row["value"] is None else row["value"] for row in group]
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) if len(values) > 1 and not math.isnan(mean) else None
    listed = ", ".join(str(seed) for seed in seeds)
    without = [str(row["seed"]) for row in group if missing(row["value"])]
    told = f"mean and standard deviation of seeds {listed}" if len(group) > 1 else f"seed {listed} alone"
    runs = [row["run"] for row in group if row["run"] is not None]
    return {
        **{c: group[0][c] if len({row[c] for row in group}) == 1 else None for c in COLUMNS},
        "seed": None,
        "run": ", ".join(runs) or None,
        "value": mean,
        "low": None if spread is None else mean - spread,
        "high": None if spread is None else mean + spread,
        "level": None,
        "resamples": None,
        "reason": f"no value for seeds {', '.join(without)} of {listed}" if without else told,
    }


def _differing(one: Row, other: Row) -> str:
    columns = [c for c in COLUMNS[: COLUMNS.index("value")] if one[c] != other[c]]
    shown = ", ".join(f"{c} ({one[c]} and {other[c]})" for c in columns) or "nothing but the value"
    advice = "filter() one of them" + (", or take over_seeds()" if "seed" in columns else "")
    return f"there are two rows that differ in {shown}; {advice};"


def finest(rows: Iterable[Row]) -> list[Row]:
    """Keep rows so that no data are counted twice: no validation data, and no average or pool beside its members.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of results.

    Returns
    -------
    list of mapping
        The rows kept, in order; those without a metric are left out.

    Notes
    -----
    A shift such as near or corruption, which stands for the data sets of a role, is kept where none of them is present;
    pooled and mean are kept where nothing else is.

    Examples
    --------
    >>> rows = [{"shift": s, "role": "near", "metric": "f1", "score": "msp"} for s in ("cifar100", "near")]
    >>> [row["shift"] for row in finest(Results.of(rows))]
    ['cifar100']
    """
    own = ("benchmark", "model", "recipe", "seed", "run", "score", "pair", "protocol", "metric")
    kept: set[int] = set()
    valid = [row for row in rows if row["metric"] is not None and row["shift"] != VALIDATION]
    for group in _grouped(valid, own).values():
        single = [row for row in group if not _is_group(row)]
        roles = {row["role"] for row in single}
        whole = [row for row in group if _stands_for_role(row) and not _members(row, roles)]
        kept |= {id(row) for row in (single + whole or group)}
    return [row for row in valid if id(row) in kept]


def _stands_for_role(row: Row) -> bool:
    return row["shift"] in ROLE_GROUPS and row["role"] in (None, row["shift"])


def _is_group(row: Row) -> bool:
    return _stands_for_role(row) or (row["shift"] in WIDE_GROUPS and row["role"] in (None, *WIDE_GROUPS))


def _members(row: Row, roles: set[str | None]) -> bool:
    """Check whether data sets that a group row stands for are present, by the roles beside it."""
    return bool(roles) if row["role"] is None else row["role"] in roles


def _overview(protocol: str | None, rows: Sequence[Row]) -> str:
    """Format the methods under one protocol, best first; return an empty text where nothing has a value."""
    measured = dict.fromkeys(row["metric"] for row in rows if row["metric"] is not None)
    wanted = (*MAIN.get(str(protocol), ("aurc",)), *measured)
    for metric in (name for name in wanted if name in measured):
        singles = [row for row in finest(row for row in rows if row["metric"] == metric) if not missing(row["value"])]
        if singles:
            return _ranking(protocol, metric, singles)
    return ""


def _ranking(protocol: str | None, metric: str, rows: Sequence[Row]) -> str:
    better, (factor, unit) = better_of(rows), scale(metric)
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(method(row), []).append(row["value"])
    full = max(len(several) for several in values.values())
    sign = -1 if better == "higher" else 1
    means = {name: float(np.mean(several)) for name, several in values.items()}
    order = sorted(values, key=lambda name: (len(values[name]) < full, sign * means[name], name))
    under = "" if protocol is None else f"{protocol}: "
    told = f"{metric} ({unit})" if unit else metric
    numbers = [f"{factor * means[name]:.{2 if factor > 1 else 4}f}" for name in order[:OVERVIEW]]
    width = max(map(len, numbers))
    direction = f"{better} is better{coverage_of(metric, protocol)}"
    lines = [f"{under}{told}, {direction}, mean of {full} value{'s' if full > 1 else ''}"]
    for name, number in zip(order, numbers, strict=False):
        few = "" if len(values[name]) == full else f"  (of {len(values[name])} only)"
        lines.append(f"  {number:>{width}}  {name}{few}")
    if len(order) > OVERVIEW:
        lines.append(f"  and {len(order) - OVERVIEW} more")
    return "\n".join(lines)


# --- the choice among runs ------------------------------------------------------------------------------------------


def _choice(members: Sequence[Row], firsts: Sequence[Row], metric: str | None) -> Choice | None:
    """Choose the run for one score: None where there is no choice, and no run where no value could decide."""
    runs = list(dict.fromkeys(row["run"] for row in members))
    if len(runs) == 1:
        return None
    name = method(members[0])
    judged = _validated(members, metric) or _validated(firsts, metric)
    if not judged:
        if all(missing(row["value"]) for row in members):
            return None
        raise InvalidInput(
            f"{name} has {len(runs)} runs to choose from ({', '.join(map(str, runs))}) and no row with shift "
            f"{VALIDATION!r}{'' if metric is None else f' and metric {metric!r}'}; filter(run=...) picks one by hand"
        )
    seen = {row["metric"] for row in judged}
    if len(seen) > 1:
        raise InvalidInput(f"validation rows of {name} have several metrics; give metric= one of {', '.join(seen)}")
    values = {str(row["run"]): math.nan if row["value"] is None else row["value"] for row in judged}
    try:
        return choose({name: values}, better_of(judged))[name]  # type: ignore[arg-type]
    except UndefinedMetric:
        return Choice(name, "", math.nan, tuple(values.items()))


def _validated(rows: Iterable[Row], metric: str | None) -> list[Row]:
    return [r for r in rows if r["shift"] == VALIDATION and r["metric"] is not None and metric in (None, r["metric"])]


def _told(row: Row, choice: Choice) -> Row:
    if missing(row["value"]):
        return row
    others = ", ".join(f"{run} {value:.5g}" for run, value in choice.candidates)
    return MappingProxyType({**row, "reason": f"run {choice.run} chosen on validation data: {others}"})


def _unchosen(members: Sequence[Row]) -> Row:
    shared = {c: members[0][c] for c in ("benchmark", "model", "seed", "protocol", "score", "pair", "version")}
    empty = dict.fromkeys(COLUMNS)
    reason = "no run could be chosen: none has a value on validation data"
    return MappingProxyType({**empty, **shared, "value": math.nan, "reason": reason})


# --- the pivot ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pivot:
    """Hold one metric as a table: labels, values and their intervals.

    Parameters
    ----------
    metric : str
        Name of the metric.
    index, columns : tuple of str
        Labels of the rows and columns.
    values : ndarray of shape (n_index, n_columns)
        The values, NaN where there is none.
    lows, highs : ndarray of shape (n_index, n_columns)
        Limits of the intervals, NaN where there are none.
    better : {"higher", "lower"}
        Direction in which values get better.
    level : float, optional
        Confidence level; None where intervals have several levels or are a standard deviation over seeds.
    notes : tuple of str, default=()
        Why cells are empty, and what is missing as a whole.
    replicates : mapping of (int, int) to (str, ndarray), default={}
        Run and bootstrap values of cells, by row and column.
    protocol : str, optional
        The protocol the metric was measured under.
    """

    metric: str
    index: tuple[str, ...]
    columns: tuple[str, ...]
    values: Array
    lows: Array
    highs: Array
    better: str
    level: float | None = None
    notes: tuple[str, ...] = ()
    replicates: Mapping[tuple[int, int], tuple[str, Array]] = field(default_factory=dict, repr=False)
    protocol: str | None = None

    @property
    def best(self) -> Mask:
        """The best value of each column as a boolean mask; all of them where several are equal."""
        worst = -np.inf if self.better == "higher" else np.inf
        known = np.where(np.isnan(self.values), worst, self.values)
        top = known.max(axis=0) if self.better == "higher" else known.min(axis=0)
        return np.asarray((self.values == top) & ~np.isnan(self.values))

    @property
    def tied(self) -> Mask:
        """Values statistically tied with the best of their column, as a boolean mask that leaves out the best itself.

        Returns
        -------
        ndarray of bool, shape (n_index, n_columns)
            With replicates of both in one run: whether the interval of the paired difference holds zero. Otherwise:
            whether the interval of the value holds the best value.
        """
        best = self.best
        found = np.zeros_like(best)
        for j in range(len(self.columns)):
            leaders = np.flatnonzero(best[:, j])
            for i in np.flatnonzero(~best[:, j]) if len(leaders) else ():
                apart = self._apart((int(i), j), (int(leaders[0]), j))
                if apart is None:
                    found[i, j] = self.lows[i, j] <= self.values[leaders[0], j] <= self.highs[i, j]
                else:
                    found[i, j] = not apart
        return found

    def _apart(self, one: tuple[int, int], other: tuple[int, int]) -> bool | None:
        """Check whether the interval of the paired difference excludes zero; None without paired replicates."""
        (run, a), (second, b) = (self.replicates.get(place, ("", np.empty(0))) for place in (one, other))
        if not len(a) or len(a) != len(b) or run != second:
            return None
        gap = (a - b)[~np.isnan(a - b)]
        if not len(gap):
            return None
        level = 0.95 if self.level is None else self.level
        low, high = np.quantile(gap, ((1 - level) / 2, (1 + level) / 2))
        return not low <= 0.0 <= high

    @property
    def caption(self) -> str:
        """The sentence that explains the numbers and marks of the printed table."""
        factor, unit = scale(self.metric)
        heading = self.metric + (f" ({unit})" if factor != 1 else "")
        level = f"{(0.95 if self.level is None else self.level):.0%}"
        if self.replicates:
            rule = f"the {level} interval of the paired bootstrap difference to the best holds zero"
            if len(self.replicates) < int((~np.isnan(self.values)).sum()):
                rule += ", or, without paired replicates, the interval of the value holds the best value"
        elif self.level is not None:
            rule = f"the {level} interval of the value holds the best value"
        else:
            rule = "the best value lies within the interval of the value (one standard deviation after over_seeds)"
        of = coverage_of(self.metric, self.protocol)
        return f"{heading}, {self.better} is better{of}. Bold: best of the column. Dagger: tied for best, {rule}."

    def to_markdown(self, *, digits: int = 2) -> str:
        """Format the table as Markdown: best values bold, ties with a dagger.

        Parameters
        ----------
        digits : int, default=2
            Digits after the decimal point.

        Returns
        -------
        str
            The table, then the caption and what is missing.
        """
        cells = self._cells(digits, "**{}**", "{}†", "–")
        lines = ["| |" + "".join(f" {_markdown(c)} |" for c in self.columns), "|---|" + "---:|" * len(self.columns)]
        for label, line in zip(self.index, cells, strict=True):
            lines.append(f"| {_markdown(label)} |" + "".join(f" {cell} |" for cell in line))
        notes = [f"- {_markdown(note)}" for note in self.notes]
        return "\n".join([*lines, "", _markdown(self.caption), *([""] if notes else []), *notes]) + "\n"

    def to_latex(self, *, digits: int = 2) -> str:
        """Format the table as LaTeX: best values bold, ties with a dagger.

        Parameters
        ----------
        digits : int, default=2
            Digits after the decimal point.

        Returns
        -------
        str
            A float; its caption ends with what is missing.
        """
        cells = self._cells(digits, r"\textbf{{{}}}", r"{}$^{{\dagger}}$", "--")
        head = " & ".join(["", *(_latex(c) for c in self.columns)])
        lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\hline"]
        lines += [rf"{head} \\", r"\hline"]
        for label, line in zip(self.index, cells, strict=True):
            lines.append(rf"{' & '.join([_latex(label), *line])} \\")
        caption = " ".join(_latex(sentence) for sentence in (self.caption, *(f"{note}." for note in self.notes)))
        lines += [r"\hline", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}"]
        return "\n".join(lines) + "\n"

    def _cells(self, digits: int, bold: str, dagger: str, empty: str) -> list[list[str]]:
        factor, _ = scale(self.metric)
        best, tied = self.best, self.tied
        lines = []
        for i, line in enumerate(self.values):
            texts = [empty if math.isnan(v) else f"{factor * v:.{digits}f}" for v in line]
            lines.append([
                bold.format(text) if best[i, j] else dagger.format(text) if tied[i, j] else text
                for j, text in enumerate(texts)
            ])  # fmt: skip
        return lines


def scale(metric: str) -> tuple[int, str]:
    """Look up the factor and unit in which people print a metric: areas under risk x1000, other rates in percent.

    Parameters
    ----------
    metric : str
        Name of the metric, with or without the suffix ``_ood``.

    Returns
    -------
    tuple of (int, str)
        Factor and unit; ``(1, "")`` for metrics that exceed 1 or are not registered.

    Examples
    --------
    >>> scale("ds_aurc"), scale("auroc_ood"), scale("nll")
    ((1000, 'x1000'), (100, '%'), (1, ''))
    """
    try:
        top = metrics.info(metric.removesuffix("_ood")).bounds[1]
    except UnknownName:
        return 1, ""
    if top > 1:
        return 1, ""
    return (1000, "x1000") if "aurc" in metric or "augrc" in metric else (100, "%")


JUDGED = {
    "fd_shifts": "without wrong answers to known inputs beside unknown ones",
    "open_set": "without wrong answers to known inputs beside unknown ones",
    "stratified": "without wrong answers to known inputs beside unknown ones",
    "fd_shifts_original": "with every known input as a success beside unknown ones",
}
"""Protocols whose areas are of other samples than those of ``twofold evaluate``, and how these differ."""


def coverage_of(metric: str, protocol: str | None = None) -> str:
    """Say whose coverage an area is taken over, as the end of a clause.

    Parameters
    ----------
    metric : str
        Name of the metric.
    protocol : str, optional
        The protocol it was measured under, which may leave samples out.

    Returns
    -------
    str
        The clause; empty for a metric that is not an area.

    Examples
    --------
    >>> coverage_of("aurc_id"), coverage_of("auroc_ood")
    (', coverage of ID samples', '')
    >>> coverage_of("aurc", "fd_shifts")
    ', coverage of all samples (without wrong answers to known inputs beside unknown ones)'
    """
    note = metrics.coverage_note([metric])
    if not note:
        return ""
    judged = f" ({JUDGED[protocol]})" if protocol in JUDGED else ""
    return note.replace(f"{metric}: ", ", ") + judged


def of_metric(results: Results, metric: str, protocol: str | None) -> list[Row]:
    """Select the rows of one metric under one protocol, without validation data where there are other rows.

    Parameters
    ----------
    results : Results
        Rows of one or more benchmarks.
    metric : str
        Name of the metric.
    protocol : str or None
        Name of the protocol; None where only one has the metric.

    Returns
    -------
    list of mapping
        The rows.

    Raises
    ------
    UnknownName
        If no row has the metric.
    InvalidInput
        If several protocols have the metric and ``protocol`` is None, or ``protocol`` does not have it.
    """
    rows = [row for row in results.rows if row["metric"] == metric]
    if not rows:
        known = sorted({row["metric"] for row in results.rows if row["metric"] is not None})
        raise UnknownName.of("metric of these results", str(metric), known)
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    if protocol is None and len(protocols) > 1:
        raise InvalidInput(f"{metric} was measured under several protocols; give protocol= one of {_shown(protocols)}")
    if protocol is not None and protocol not in protocols:
        raise InvalidInput(f"{metric} was not measured under protocol {protocol!r}, but under {_shown(protocols)}")
    rows = [row for row in rows if protocol in (None, row["protocol"])]
    return [row for row in rows if row["shift"] != VALIDATION] or rows


def _shown(items: Iterable[Any]) -> str:
    return ", ".join(str(item) for item in items)


def _names(columns: Columns) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        _known(name)
    if not names:
        raise InvalidInput(f"give at least one column, such as 'score' or 'shift'; known: {', '.join(COLUMNS)}")
    return names


def _label(row: Row, columns: tuple[str, ...]) -> str:
    parts = [method(row) if c == "score" else "" if row[c] is None else str(row[c]) for c in columns]
    return " / ".join(parts)


def _numbers(grid: Sequence[Sequence[Row | None]], column: str) -> Array:
    filled = [[math.nan if row is None or row[column] is None else row[column] for row in line] for line in grid]
    return np.array(filled, dtype=np.float64)


def _notes(
    rows: Iterable[Row], grid: Sequence[Sequence[Row | None]], index: Sequence[str], heads: Sequence[str], protocol: str
) -> tuple[str, ...]:
    """Say why cells are empty, and what is missing as a whole."""
    notes = []
    for label, line in zip(index, grid, strict=True):
        for head, row in zip(heads, line, strict=True):
            if row is None or missing(row["value"]):
                why = "not in the results" if row is None else row["reason"] or "no value, no reason given"
                notes.append(f"{label}, {head}: {why}")
    for row in rows:
        if row["metric"] is None and row["reason"] is not None and row["protocol"] in (None, protocol):
            what = [method(row)] if row["score"] is not None else []
            what += [str(row[c]) for c in ("shift", "run") if row[c] is not None]
            notes.append(f"{', '.join(what)}: {row['reason']}")
    return tuple(dict.fromkeys(notes))


_MARKDOWN = {**{c: f"\\{c}" for c in "\\`*_{}[]()#+!|~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;"}
_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"{{{c}}}" for c in "[]*\"'`-"},  # row ends take [..] and *, and quotes and dashes form ligatures
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}


def _markdown(text: str) -> str:
    return _escaped(text, _MARKDOWN)


def _latex(text: str) -> str:
    return _escaped(text, _LATEX)


def _escaped(text: str, table: Mapping[str, str]) -> str:
    """Escape text so that it shows character by character, on one line."""
    return "".join(table.get(c, c) if c.isprintable() else " " for c in text)


# --- files ----------------------------------------------------------------------------------------------------------


def _package(name: str, need: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtra(f'{need}: pip install "twofold[report]"') from error


def _write(content: Mapping[Path, bytes]) -> list[Path]:
    """Write files; all are replaced once the last is on disk."""
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
        raise RunError(f"{_shown(content)} cannot be written ({error.strerror}); nothing was changed") from error
    return list(content)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror})") from error


def _opened(rows: list[dict[str, Any]], replicates: Mapping[Key, Any] | None, path: Path) -> Results:
    try:
        return Results.of(rows, replicates)
    except InvalidInput as error:
        raise InvalidInput(f"{path} is damaged: {error}") from error


def _check_digests(folder: Path) -> set[str]:
    """List the files in a folder of results; raise unless each is the one that was written."""
    remedy = f"write the results again with Results.save, or open {CSV} itself"
    path = folder / DIGESTS
    if not path.is_file():
        raise InvalidInput(f"{folder} has no {DIGESTS} with the digests of its files, as an older format; {remedy}")
    try:
        wanted = parse_json_with_digest(_bytes(path), path, kind=FOLDER_FORMAT, version=FOLDER_VERSION, remedy=remedy)
    except RunError as error:
        raise InvalidInput(str(error)) from error
    if not isinstance(wanted, dict) or not {CSV} <= set(wanted) <= {CSV, PARQUET, REPLICATES}:
        raise InvalidInput(f"{path} does not list the files of results; {remedy}")
    for name, digest in wanted.items():
        if hashlib.sha256(_bytes(folder / name)).hexdigest() != digest:
            raise InvalidInput(
                f"{folder / name} is damaged or was edited: its SHA-256 is not that in {DIGESTS}; {remedy}"
            )
    return set(wanted)


def _from_csv(content: bytes, path: Path) -> list[dict[str, Any]]:
    try:
        text = content.decode()
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is no CSV file of results: {error}") from error
    if not lines or tuple(lines[0]) != COLUMNS:
        raise InvalidInput(f"{path} is no file of results: its first line must be {','.join(COLUMNS)}")
    if not text.endswith("\n"):
        raise InvalidInput(f"{path} is damaged: its last line is cut off")
    return [_parsed(line, number, path) for number, line in enumerate(lines[1:])]


def _parsed(line: Sequence[str], number: int, path: Path) -> dict[str, Any]:
    if len(line) != len(COLUMNS):
        raise InvalidInput(f"{path} is damaged: row {number} has {len(line)} columns, not {len(COLUMNS)}")
    row: dict[str, Any] = {}
    for column, text in zip_longest(COLUMNS, line):
        kind = float if column in REAL else int if column in WHOLE else str
        try:
            row[column] = kind(unescape_cell(text) if kind is str else text) if text else None
        except ValueError as error:
            raise InvalidInput(f"{path} is damaged: {column} of row {number} is no number: {text!r}") from error
    return row


def _from_parquet(path: Path) -> list[dict[str, Any]]:
    arrow = _package("pyarrow", "Parquet files need pyarrow")
    try:
        table = (
            import_module("pyarrow.parquet")
            .ParquetFile(io.BytesIO(_bytes(path)), page_checksum_verification=True)
            .read()
        )
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} is no Parquet file, or damaged: {error}") from error
    if tuple(table.column_names) != COLUMNS:
        raise InvalidInput(f"{path} is no file of results: its columns must be {', '.join(COLUMNS)}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _unpacked(path: Path, content: bytes) -> dict[Key, Array] | None:
    """Read the replicates that belong to the rows in ``content``; return None where there is no such file."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            told = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        if told.get("format") != FORMAT:
            raise InvalidInput(f"{path} is no file of replicates; delete it to open the rows alone")
        if told["rows"] != hashlib.sha256(content).hexdigest():
            raise InvalidInput(f"{path} belongs to other rows than {CSV} beside it; delete it to open the rows alone")
        keys = json.loads(told["keys"])
        return {tuple(key): row for n, several in keys.items() for key, row in zip(several, tensors[n], strict=True)}
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} is damaged ({error}); delete it to open the rows alone") from error
