"""Results: tidy rows, one per number, with what is needed to trust and repeat it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from twofold._checks import Array
from twofold._notebook import MOST_ROWS, NotebookTable, card
from twofold.bench import storage
from twofold.bench.reductions import SAME_EXPERIMENT, average_seeds, select_runs
from twofold.bench.rows import (
    REAL,
    WHOLE,
    Key,
    ResultRow,
    better_of,
    check_column,
    check_replicates,
    check_rows,
    group_rows,
    key_of,
    measured_rows,
    method,
    transpose_rows,
    valued_rows,
)
from twofold.bench.tables import ColumnNames, Pivot, pivot_rows
from twofold.bench.text import format_overview
from twofold.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import PivotDisplay
    from twofold.plot.themes import ThemeName


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

    rows: tuple[ResultRow, ...]
    replicates: Mapping[Key, Array] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self.rows)

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self._count_values().items())
        return f"Results({len(self)} rows: {counts})"

    def _count_values(self) -> dict[str, int]:
        """Count runs, methods, data sets, protocols and metrics."""
        seen: dict[str, set[object]] = {name: set() for name in ("runs", "methods", "shifts", "protocols", "metrics")}
        for row in self.rows:
            if row["metric"] is None:
                continue
            for name, value in zip(
                seen, (row["run"], method(row), row["shift"], row["protocol"], row["metric"]), strict=True
            ):
                seen[name].add(value)
        return {name: len(values) for name, values in seen.items()}

    def _repr_html_(self) -> str:
        columns = ("run", "score", "pair", "shift", "protocol", "metric", "value")
        rows = []
        for row in self.rows[:MOST_ROWS]:
            rows.append(tuple("" if row[column] is None else row[column] for column in columns))
        return card(f"Results of {len(self):,} rows", self._count_values(), NotebookTable(columns, rows, len(self)))

    @classmethod
    def of(cls, rows: Iterable[ResultRow], replicates: Mapping[Key, ArrayLike] | None = None) -> Results:
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
        checked = check_rows(rows)
        return cls(checked, MappingProxyType(check_replicates(replicates or {}, checked)))

    def filter(self, **wanted: object) -> Results:
        """Keep the rows whose columns equal the wanted values.

        Parameters
        ----------
        **wanted : object
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
        rows = list(self.rows)
        for column, value in wanted.items():
            check_column(column)
            allowed = tuple(value) if isinstance(value, tuple | list | set | frozenset) else (value,)
            rows = [row for row in rows if row[column] in allowed]
        return self._keep(rows)

    def _keep(self, rows: Iterable[ResultRow]) -> Results:
        """Make results of some rows, with the replicates that belong to them."""
        kept = tuple(rows)
        keys = set(map(key_of, kept))
        replicates = {key: array for key, array in self.replicates.items() if key in keys}
        return Results(kept, MappingProxyType(replicates))

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
        unmeasured = [row for row in self.rows if row["metric"] is None]
        means: list[ResultRow] = []
        replicates = {}
        for group in group_rows(measured_rows(self.rows), SAME_EXPERIMENT).values():
            mean = average_seeds(group)
            means.append(mean)
            arrays = [self.replicates[key_of(row)] for row in group if key_of(row) in self.replicates]
            lengths = set(map(len, arrays))
            if len(arrays) == len(group) and len(lengths) == 1:
                replicates[key_of(mean)] = np.mean(arrays, axis=0)
        return Results.of([*means, *unmeasured], replicates)

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
            check_column(column)
        best = []
        for group in group_rows(valued_rows(self.rows), (*per, "metric")).values():
            pick = max if better_of(group) == "higher" else min
            best.append(pick(group, key=lambda row: row["value"]))
        return self._keep(best)

    def select(self, metric: str | None = None) -> Results:
        """Keep, for each score, protocol and seed, the rows of the run that is best on validation data.

        Runs of one benchmark, model and seed compete, so recipes (dropout, a reward, a learning rate) are what is
        chosen. ``reason`` of the kept rows names the choice.

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
        return self._keep(select_runs(self.rows, metric))

    # --- tables -----------------------------------------------------------------------------------------------------

    def pivot(
        self, index: ColumnNames = "score", columns: ColumnNames = "shift", *, metric: str, protocol: str | None = None
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
        return pivot_rows(self.rows, self.replicates, index, columns, metric, protocol)

    def to_markdown(
        self,
        index: ColumnNames = "score",
        columns: ColumnNames = "shift",
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
        index: ColumnNames = "score",
        columns: ColumnNames = "shift",
        *,
        metric: str,
        protocol: str | None = None,
        digits: int = 2,
        intervals: bool = True,
        label: str | None = None,
        document: bool = False,
    ) -> str:
        """Format the :meth:`pivot` as a LaTeX table with booktabs: intervals, best values bold, ties with a dagger.

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
        intervals : bool, default=True
            Whether values have their intervals beside them, where there are any.
        label : str, optional
            Name for references to the table.
        document : bool, default=False
            Whether to write a whole document, which compiles as it is.

        Returns
        -------
        str
            The table as a float. Its caption names metric, protocol and convention, and what the marks mean.
        """
        pivot = self.pivot(index, columns, metric=metric, protocol=protocol)
        return pivot.to_latex(digits=digits, intervals=intervals, label=label, document=document)

    def plot(
        self,
        metric: str,
        ax: Axes | None = None,
        *,
        protocol: str | None = None,
        index: ColumnNames = "score",
        columns: ColumnNames = "shift",
        digits: int = 2,
        theme: ThemeName | None = None,
    ) -> PivotDisplay:
        """Draw the :meth:`pivot` of a metric as a heat map: strong colour is good, bold is best.

        Parameters
        ----------
        metric : str
            The metric to show.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        protocol : str, optional
            Needed where several protocols have the metric.
        index, columns : str or tuple of str, default="score", "shift"
            Columns of the results that label the rows and columns of the table.
        digits : int, default=2
            Digits after the decimal point.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        PivotDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        return self.pivot(index, columns, metric=metric, protocol=protocol).plot(ax, digits=digits, theme=theme)

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
        pandas = storage.import_package("pandas", "data frames need pandas")
        kinds = {**dict.fromkeys(REAL, "float64"), **dict.fromkeys(WHOLE, "Int64")}
        return pandas.DataFrame(transpose_rows(self.rows), dtype=object).astype(kinds)

    def to_dicts(self) -> list[dict[str, object]]:
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
        return list(map(_json_row, self.rows))

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
        return format_overview(self.rows)

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
        file = Path(path)
        storage.write_files({file: storage.encode_csv(self.rows)})
        return file

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
        file = Path(path)
        storage.write_files({file: storage.encode_parquet(self.rows)})
        return file

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
        path = Path(folder)
        storage.save_folder(self.rows, self.replicates, path)
        return path

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
        source = Path(path)
        replicates = None
        if source.is_dir():
            rows, replicates = storage.read_folder(source)
        elif not source.is_file():
            raise InvalidInput(f"there is no file or folder {source}")
        elif source.suffix == ".parquet":
            rows = storage.read_parquet(source)
        else:
            rows = storage.decode_csv(storage.read_bytes(source), source)
        try:
            return cls.of(rows, replicates)
        except InvalidInput as error:
            raise InvalidInput(f"{source} is damaged: {error}") from error


def _json_row(row: ResultRow) -> dict[str, object]:
    """Copy a row with NaN replaced by None, which JSON can hold."""
    plain = {}
    for column, value in row.items():
        is_nan = isinstance(value, float) and math.isnan(value)
        plain[column] = None if is_nan else value
    return plain
