"""A data set of texts as rows: one frozen type, read from JSON lines, CSV or Parquet files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

from twofold._checks import Labels
from twofold.errors import InvalidInput, MissingExtra
from twofold.nn.rows import Ids, RowSelection

Target: TypeAlias = str | int | None  # name or number of a class, None for no class

LONGEST_LINE = 1 << 24  # characters; a longer line is not a row of texts


@dataclass(frozen=True, eq=False)
class Texts:
    """Hold a data set of texts as rows.

    Build one with :meth:`of` or with :func:`twofold.nn.data.open_texts`. ``texts[rows]`` is a view of some rows.

    Parameters
    ----------
    texts : tuple of str
        The texts.
    targets : tuple of str, int or None
        The class of each text by name or number; None where it has none. :meth:`number_classes` makes numbers of them.
    ids : ndarray of int64, shape (N,)
        Row numbers in the file, which views keep.
    name : str, default="texts"
        What the data set is called in messages.

    Examples
    --------
    >>> texts = Texts.of(["hello there", "see you"], ["greeting", None])
    >>> texts.number_classes({"farewell": 0, "greeting": 1})
    array([ 1, -1])
    """

    texts: tuple[str, ...]
    targets: tuple[Target, ...]
    ids: Ids
    name: str = "texts"

    @classmethod
    def of(cls, texts: Sequence[str], targets: Sequence[Target] | None = None, *, name: str = "texts") -> Texts:
        """Build a data set from lists, with checks.

        Parameters
        ----------
        texts : sequence of str
            The texts, at least one.
        targets : sequence of str, int or None, optional
            The class of each text; without them no text has a class.
        name : str, default="texts"
            What the data set is called in messages.

        Returns
        -------
        Texts
            The data set.

        Raises
        ------
        InvalidInput
            If there are no texts, one is not a string, or there is another number of targets.

        Examples
        --------
        >>> len(Texts.of(["yes", "no"]))
        2
        """
        rows = tuple(texts)
        if not rows:
            raise InvalidInput(f"{name}: there are no texts")
        for row, text in enumerate(rows):
            if not isinstance(text, str):
                raise InvalidInput(f"{name}, row {row}: a text must be a string, got {type(text).__name__}")
        classes: tuple[Target, ...] = (None,) * len(rows) if targets is None else tuple(targets)
        if len(classes) != len(rows):
            raise InvalidInput(f"{name}: {len(rows)} texts but {len(classes)} targets")
        checked = [_check_target(target, f"{name}, row {row}") for row, target in enumerate(classes)]
        return cls(rows, tuple(checked), np.arange(len(rows)), name)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, rows: RowSelection) -> Texts:
        numbers = np.arange(len(self))[rows].tolist()
        return replace(
            self,
            texts=tuple(self.texts[row] for row in numbers),
            targets=tuple(self.targets[row] for row in numbers),
            ids=self.ids[numbers],
        )

    def __repr__(self) -> str:
        return f"<Texts {self.name}: {len(self)} rows>"

    def number_classes(self, label2id: Mapping[str, int]) -> Labels:
        """Convert the classes to the numbers of a model.

        Parameters
        ----------
        label2id : mapping of str to int
            Class numbers by name, as in the configuration of a Hugging Face model.

        Returns
        -------
        ndarray of int64, shape (N,)
            Class numbers, -1 for texts without a class.

        Raises
        ------
        InvalidInput
            If a name, or a number, is none of the model's; the message names the row.

        Examples
        --------
        >>> Texts.of(["yes", "no"], [1, "NO"]).number_classes({"NO": 0, "YES": 1})
        array([1, 0])
        """
        numbers = set(label2id.values())
        labels = np.empty(len(self), dtype=np.int64)
        for row, target in enumerate(self.targets):
            if target is None:
                labels[row] = -1
            elif isinstance(target, str) and target in label2id:
                labels[row] = label2id[target]
            elif isinstance(target, str) and target.isascii() and target.isdecimal() and int(target) in numbers:
                labels[row] = int(target)
            elif isinstance(target, int) and target in numbers:
                labels[row] = target
            else:
                raise InvalidInput(
                    f"{self.name}, row {int(self.ids[row])}: the label {target!r:.60} is none of the model's "
                    f"{len(label2id)} classes ({', '.join(list(label2id)[:3])}, ...); write null for a text of no class"
                )
        return labels

    @property
    def class_counts(self) -> dict[str, int]:
        """Number of texts by class as the file names it, in alphabetical order; texts without a class are left out."""
        counts: dict[str, int] = {}
        for target in self.targets:
            if target is not None:
                counts[str(target)] = counts.get(str(target), 0) + 1
        return dict(sorted(counts.items()))


def _check_target(target: object, where: str) -> Target:
    """Check a class; an empty text is none, and a float of Parquet or pandas that is a whole number is a number."""
    if target is None or target == "":
        return None
    if isinstance(target, np.generic):
        target = target.item()
    if isinstance(target, float) and target.is_integer():
        target = int(target)
    if isinstance(target, bool) or not isinstance(target, str | int):
        raise InvalidInput(f"{where}: a label must be a name, a number or null, got {target!r:.60}")
    if isinstance(target, int) and target < 0:
        return None
    return target


@dataclass(frozen=True)
class TextReport:
    """Report what a data set of texts holds.

    Parameters
    ----------
    name : str
        What the data set is called.
    rows : int
        Number of texts.
    class_counts : dict of str to int
        Number of texts by class, as the file names it.
    unlabelled : int
        Number of texts without a class.
    repeated : int
        Number of texts that equal an earlier one word for word.
    empty : int
        Number of texts without a character other than white space.
    shortest, median, longest : int
        Number of characters.
    """

    name: str
    rows: int
    class_counts: dict[str, int]
    unlabelled: int
    repeated: int
    empty: int
    shortest: int
    median: int
    longest: int

    def as_dict(self) -> dict[str, object]:
        """Return the report as a dictionary of plain values.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)

    def __str__(self) -> str:
        classes = [f"{name} {count}" for name, count in list(self.class_counts.items())[:10]]
        listed = ", ".join(classes) or "none"
        if len(self.class_counts) > 10:
            listed += f", ... {len(self.class_counts) - 10} more"
        lines = [
            f"{self.name}: {self.rows} texts",
            f"classes: {listed}",
            f"rows without a class: {self.unlabelled}",
            f"characters: {self.shortest} to {self.longest}, median {self.median}",
            f"empty: {self.empty}  repeated word for word: {self.repeated}",
        ]
        return "\n".join(lines)


def check_texts(texts: Texts) -> TextReport:
    """Count classes, repeated texts and characters of a data set of texts.

    Parameters
    ----------
    texts : Texts
        The data set.

    Returns
    -------
    TextReport
        What was found.

    Examples
    --------
    >>> print(check_texts(Texts.of(["yes", "yes", ""], ["agree", "agree", None])))
    texts: 3 texts
    classes: agree 2
    rows without a class: 1
    characters: 0 to 3, median 3
    empty: 1  repeated word for word: 1
    """
    lengths = [len(text) for text in texts.texts]
    return TextReport(
        name=texts.name,
        rows=len(texts),
        class_counts=texts.class_counts,
        unlabelled=sum(target is None for target in texts.targets),
        repeated=len(texts) - len(set(texts.texts)),
        empty=sum(not text.strip() for text in texts.texts),
        shortest=min(lengths),
        median=int(np.median(lengths)),
        longest=max(lengths),
    )


# Files


def read_texts(path: str, text: str, label: str | None) -> Texts:
    """Read the texts of a file in its order.

    Parameters
    ----------
    path : str
        A file whose name ends in ``.jsonl``, ``.jsonl.gz``, ``.csv``, ``.csv.gz`` or ``.parquet``.
    text : str
        The column with the texts.
    label : str or None
        The column with the classes, which must exist; None for ``label``, if there is such a column.

    Returns
    -------
    Texts
        The data set.

    Raises
    ------
    InvalidInput
        If the file is missing, damaged, has another form, or lacks a column; the message names the line.
    MissingExtra
        If a Parquet file is read without pyarrow.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidInput(f"text:{path}: there is no such file")
    ending = file.name.lower().removesuffix(".gz").rpartition(".")[2]
    wanted = [text, label or "label"]
    if ending == "jsonl":
        columns = _read_json_lines(file, wanted)
    elif ending == "csv":
        columns = _read_csv(file, wanted)
    elif ending == "parquet":
        columns = _read_parquet(file, wanted)
    else:
        raise InvalidInput(f"text:{path}: the name must end in .jsonl, .jsonl.gz, .csv, .csv.gz or .parquet")
    if text not in columns:
        raise InvalidInput(f"text:{path} has no column {text!r}; name it with ?text=COLUMN")
    if label is not None and label not in columns:
        raise InvalidInput(f"text:{path} has no column {label!r}; name another with ?label=COLUMN, or leave it out")
    name = file.name.partition(".")[0]
    return Texts.of(columns[text], columns.get(label or "label"), name=name)  # type: ignore[arg-type]  # checked there


@contextmanager
def _open_text(file: Path) -> Iterator[IO[str]]:
    """Open a text file in UTF-8, unpacked if it is gzipped; what is wrong with it becomes one clear error."""
    try:
        with gzip.open(file, "rb") if file.suffix.lower() == ".gz" else file.open("rb") as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"text:{file} cannot be read as text in UTF-8 ({error})") from error


def _read_json_lines(file: Path, wanted: Sequence[str]) -> dict[str, list[object]]:
    """Read some columns of a file with a JSON object on each line; all lines have the columns of the first."""
    columns: dict[str, list[object]] = {}
    number = 0
    with _open_text(file) as lines:
        while line := lines.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise InvalidInput(f"text:{file}, line {number} has more than {LONGEST_LINE} characters")
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise InvalidInput(f"text:{file}, line {number} is not JSON ({error})") from error
            if not isinstance(row, dict):
                raise InvalidInput(f"text:{file}, line {number} must be a JSON object, got {type(row).__name__}")
            if not columns:
                columns = {name: [] for name in wanted if name in row}
            for name in wanted:
                if (name in columns) != (name in row):
                    raise InvalidInput(f"text:{file}, line {number}: {name!r} is in some lines only; write null")
            for name, values in columns.items():
                values.append(row[name])
    return columns


def _read_csv(file: Path, wanted: Sequence[str]) -> dict[str, list[object]]:
    with _open_text(file) as lines:
        rows = csv.reader(lines)
        header = next(rows, [])
        if len(set(header)) < len(header):
            raise InvalidInput(f"text:{file} names a column twice: {', '.join(header)}")
        places = {name: header.index(name) for name in wanted if name in header}
        columns: dict[str, list[object]] = {name: [] for name in places}
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise InvalidInput(f"text:{file}, line {rows.line_num}: {len(row)} cells but {len(header)} columns")
            for name, place in places.items():
                columns[name].append(row[place])
    return columns


def _read_parquet(file: Path, wanted: Sequence[str]) -> dict[str, list[object]]:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError as error:
        raise MissingExtra('a Parquet file needs pyarrow: pip install "twofold[report]"') from error
    try:
        names = [name for name in parquet.read_schema(file).names if name in wanted]
        table = parquet.read_table(file, columns=names)
    except (ArrowException, OSError) as error:
        raise InvalidInput(f"text:{file} is not a readable Parquet file ({error})") from error
    return {name: table.column(name).to_pylist() for name in names}
