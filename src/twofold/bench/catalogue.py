"""Benchmarks as data: which sets play which role under which protocols, and where to get them.

A benchmark is a TOML file with the keys of :class:`Benchmark`, and one ``[[sets]]`` table for each :class:`DataSet`.
``load("cifar10-real")`` loads one of the catalogue, ``load("mine.toml")`` one of your own.

A file may have ``[[splits]]``, tables of texts that replace the words in braces in ``data``: the first is the benchmark
itself, the others are NAME-1, NAME-2 and so on.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypedDict

from twofold import _toml
from twofold._notebook import NotebookTable, card
from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.roles import ROLES

DATA = "TWOFOLD_DATA"  # the environment variable that names the folder of data
EMBEDDED = "demo:"  # sets of twofold.demo, which need no files
LEVELS = ("1", "2", "3", "4", "5")
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
REQUIRED = ("name", "title", "source", "classes", "protocols")
OPTIONAL = ("scores", "pairs", "metrics")
SET_KEYS = ("name", "role", "data", "rows", "get", "note", "removed")

Content = Mapping[str, object]  # a parsed table of a TOML file
Opener = Callable[[str], Sized]  # from a spec to anything with a length


class BenchmarkChanges(TypedDict, total=False):
    """List the fields of a benchmark that another file may set."""

    protocols: tuple[str, ...]
    scores: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class DataSet:
    """Describe one data set of a benchmark.

    Parameters
    ----------
    name : str
        Its name; a name that ends in /1 to /5 is a level of corruption.
    role : str
        Its role: train, val, test, shift, near, mid, far or ood_val.
    data : str
        Where it is, in the grammar of :mod:`twofold.nn.data`, with ``{data}`` for the folder of data.
    rows : int, default=0
        The published number of rows; 0 where none is known.
    get : str, default=""
        Where to get the data.
    note : str, default=""
        A remark.
    removed : int, optional
        Number of rows left out because their class is one of the model's.
    """

    name: str
    role: str
    data: str
    rows: int = 0
    get: str = ""
    note: str = ""
    removed: int | None = None

    @property
    def embedded(self) -> bool:
        """Whether the data set comes with the package.

        Examples
        --------
        >>> load("digits")["photographs"].embedded
        True
        """
        return self.data.startswith(EMBEDDED)

    def spec(self, root: str | Path | None = None) -> str:
        """Insert the folder of data into ``data``.

        Parameters
        ----------
        root : str or Path, optional
            The folder; by default that of the environment variable ``TWOFOLD_DATA``.

        Returns
        -------
        str
            What to open.

        Raises
        ------
        InvalidInput
            If a folder is needed and none is named, or its path has ``?`` or ``&``.

        Examples
        --------
        >>> DataSet("svhn", "far", "arrays:{data}/svhn.npz").spec("/data")
        'arrays:/data/svhn.npz'
        """
        if "{data}" not in self.data:
            return self.data
        folder = os.environ.get(DATA, "")
        if root is not None:
            folder = str(root)
        if not folder:
            raise InvalidInput(f"{self.name}: no folder of data is named; pass --root FOLDER or set ${DATA}")
        if set(folder) & set("?&"):
            raise InvalidInput(f"the folder of data must not have ? or & in its path, got {folder!r}")
        return self.data.replace("{data}", folder)


@dataclass(frozen=True)
class Status:
    """Hold what is available of one data set.

    Parameters
    ----------
    set : DataSet
        The data set.
    rows : int or None
        Its number of rows; None if it cannot be opened.
    reason : str, default=""
        Why it cannot be opened.
    """

    set: DataSet
    rows: int | None
    reason: str = ""

    @property
    def present(self) -> bool:
        """Whether the data set can be opened."""
        return self.rows is not None

    @property
    def published(self) -> bool | None:
        """Whether it has the published number of rows; None where that is unknown or the set is missing."""
        if self.rows is None or not self.set.rows:
            return None
        return self.rows == self.set.rows

    def __str__(self) -> str:
        if self.rows is None:
            return f"{self.set.name}: missing ({self.reason}); get it from {self.set.get}"
        text = f"{self.set.name}: {self.rows:,} rows"
        if self.published is False:
            text += f", published {self.set.rows:,}"
        return text


@dataclass(frozen=True)
class Benchmark:
    """Define a named collection of data sets with roles, and the protocols they are judged under.

    Parameters
    ----------
    name : str
        Letters, digits, ``.``, ``_`` and ``-``.
    title : str
        One line for people.
    source : str
        The paper or project it comes from.
    classes : int
        Number of classes of the model.
    protocols : tuple of str
        Names of protocols.
    sets : tuple of DataSet
        The data sets.
    scores : tuple of str, default=()
        Scores to compare; empty means all that a run allows.
    pairs : tuple of (str, str), default=()
        Pairs of ID score and OOD score; empty means each of the scores with msp.
    metrics : tuple of str, default=()
        Metrics in addition to those of the protocols.

    Examples
    --------
    >>> bench = load("digits")
    >>> bench.roles["photographs"], bench.names("near")
    ('far', ('other_digits',))
    """

    name: str
    title: str
    source: str
    classes: int
    protocols: tuple[str, ...]
    sets: tuple[DataSet, ...]
    scores: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    metrics: tuple[str, ...] = ()

    def __repr__(self) -> str:
        size = f"{self.classes} classes, {len(self.sets)} data sets"
        return f"Benchmark({self.name!r}: {size}; {', '.join(self.protocols)})"

    def _repr_html_(self) -> str:
        rows = [(one.name, one.role, one.rows or "", one.data) for one in self.sets]
        facts = {"title": self.title, "source": self.source, "classes": self.classes}
        facts["protocols"] = ", ".join(self.protocols)
        return card(f"Benchmark {self.name}", facts, NotebookTable(("data set", "role", "rows", "data"), rows))

    def __getitem__(self, name: str) -> DataSet:
        for one in self.sets:
            if one.name == name:
                return one
        raise UnknownName.of(f"data set of {self.name}", name, self.names())

    @property
    def roles(self) -> dict[str, str]:
        """The role of each data set, by name.

        Examples
        --------
        >>> load("digits").roles["other_digits"]
        'near'
        """
        return {one.name: one.role for one in self.sets}

    def names(self, role: str | None = None) -> tuple[str, ...]:
        """List the names of the data sets, or of those with one role.

        Parameters
        ----------
        role : str, optional
            The role; by default all.

        Returns
        -------
        tuple of str
            The names in the order of the file.
        """
        return tuple(one.name for one in self.sets if role in (None, one.role))

    def measuring(self, metrics: Iterable[str]) -> Benchmark:
        """Add metrics of single scores.

        Parameters
        ----------
        metrics : iterable of str
            Names of registered metrics, or ``risk_at_coverage_`` and a coverage.

        Returns
        -------
        Benchmark
            The benchmark, which measures them beside its own.

        Raises
        ------
        UnknownName
            If there is no such metric.
        InvalidInput
            If a coverage is invalid.

        Examples
        --------
        >>> load("digits").measuring(["ece", "risk_at_coverage_0.95"]).metrics
        ('ece', 'risk_at_coverage_0.95')
        """
        from twofold.bench.added_metrics import check_metric

        wanted = tuple(metrics)
        for name in wanted:
            check_metric(name)
        return replace(self, metrics=tuple(dict.fromkeys([*self.metrics, *wanted])))

    def specs(self, root: str | Path | None = None) -> dict[str, str]:
        """List what to open for each data set.

        Parameters
        ----------
        root : str or Path, optional
            The folder of data; by default that of the environment variable ``TWOFOLD_DATA``.

        Returns
        -------
        dict of str to str
            Spec by name, in the grammar of :mod:`twofold.nn.data`.

        Raises
        ------
        InvalidInput
            If a folder is needed and none is named.
        """
        return {one.name: one.spec(root) for one in self.sets}

    def status(self, root: str | Path | None, opener: Opener) -> tuple[Status, ...]:
        """Check which data sets are available, and why others are not.

        Parameters
        ----------
        root : str or Path or None
            The folder of data; None means that of the environment variable ``TWOFOLD_DATA``.
        opener : callable
            Function from a spec to something with a length, such as :func:`twofold.nn.data.open`.

        Returns
        -------
        tuple of Status
            One for each data set. A set that cannot be opened is never an error.
        """
        return tuple(_status(one, root, opener) for one in self.sets)

    def to_toml(self) -> str:
        """Format the benchmark as the text of a file that loads as the same benchmark.

        Returns
        -------
        str
            TOML.

        Examples
        --------
        >>> bench = load("digits")
        >>> loads(bench.to_toml()) == bench
        True
        """
        from twofold.bench.pools import find_name

        lines = _toml_lines(self, REQUIRED)
        for key in _nonempty(self, OPTIONAL):
            pool = find_name(self.scores) if key == "scores" else None
            lines += _toml_lines(self, [key]) if pool is None else [f'scores = "{pool}"']
        for one in self.sets:
            lines += ["", "[[sets]]"]
            lines += _toml_lines(one, ("name", "role", "data", *_nonempty(one, ("rows", "get", "note"))))
            if one.removed is not None:
                lines.append(f"removed = {one.removed}")
        return "\n".join(lines) + "\n"


def _nonempty(record: Benchmark | DataSet, keys: Iterable[str]) -> list[str]:
    """List the keys whose value is neither 0 nor empty."""
    return [key for key in keys if getattr(record, key)]


def _toml_lines(record: Benchmark | DataSet, keys: Iterable[str]) -> list[str]:
    """Format fields as lines of TOML."""
    return [f"{key} = {_toml.format_value(getattr(record, key))}" for key in keys]


def _status(one: DataSet, root: str | Path | None, opener: Opener) -> Status:
    if one.embedded:
        return Status(one, one.rows)
    try:
        return Status(one, len(opener(one.spec(root))))
    except (TwofoldError, OSError) as error:
        return Status(one, None, str(error))


# --- the catalogue --------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """List the benchmarks of the catalogue.

    Returns
    -------
    tuple of str
        Names that :func:`load` takes; NAME-1, NAME-2 and so on are further splits of NAME.

    Examples
    --------
    >>> [name for name in names() if name.startswith("openood")]
    ['openood-cifar10', 'openood-cifar100', 'openood-imagenet1k', 'openood-imagenet200']
    """
    return tuple(_catalogue())


@cache
def _catalogue() -> dict[str, tuple[str, int]]:
    """Find the file and split of each name."""
    found = {}
    folder = files("twofold.bench").joinpath("files", "catalogue")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".toml"):
            continue
        stem = file.name.removesuffix(".toml")
        splits = tomllib.loads(file.read_text(encoding="utf-8")).get("splits", ())
        found[stem] = (stem, 0)
        for split in range(1, len(splits)):
            found[f"{stem}-{split}"] = (stem, split)
    return found


def load(name: str | Path, *, split: int | None = None) -> Benchmark:
    """Load a benchmark of the catalogue by name, or one of your own by the path of its file.

    Parameters
    ----------
    name : str or Path
        A name of :func:`names`, or a path that ends in ``.toml``.
    split : int, optional
        Which of the file's ``[[splits]]`` to take; ``load("unknown-cifar-2")`` does the same.

    Returns
    -------
    Benchmark
        The benchmark.

    Raises
    ------
    UnknownName
        If the catalogue has no such name.
    InvalidInput
        If the file cannot be read or is invalid, or there is no such split.

    Examples
    --------
    >>> load("digits").classes
    7
    """
    if isinstance(name, Path) or str(name).endswith(".toml"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} cannot be read as a benchmark file: {error}") from error
        return loads(text, where=str(path), split=split or 0)
    if name not in _catalogue():
        raise UnknownName.of("benchmark", str(name), _catalogue())
    stem, own_split = _catalogue()[str(name)]
    if split is None:
        split = own_split
    elif own_split:
        raise InvalidInput(f"{name} is a split already; write load({stem!r}, split={split})")
    text = files("twofold.bench").joinpath("files", "catalogue", f"{stem}.toml").read_text(encoding="utf-8")
    return loads(text, where=f"benchmark {name}", split=split)


def loads(text: str, *, where: str = "benchmark", split: int = 0) -> Benchmark:
    """Parse a benchmark from the text of its file.

    Parameters
    ----------
    text : str
        TOML.
    where : str, default="benchmark"
        Name of the file in error messages.
    split : int, default=0
        Which of the file's ``[[splits]]`` to take.

    Returns
    -------
    Benchmark
        The benchmark.

    Raises
    ------
    InvalidInput
        If the text is not TOML, has unknown keys, lacks required ones, or a value is invalid.
    """
    content = _toml.parse(text, where)
    _toml.check_keys(content, (*REQUIRED, *OPTIONAL, "sets", "splits"), where)
    return from_content(content, where, split)


def from_content(content: Content, where: str, split: int = 0) -> Benchmark:
    """Build a benchmark from the content of a file, which may also have other keys.

    Parameters
    ----------
    content : mapping
        The parsed file.
    where : str
        Name of the file in error messages.
    split : int, default=0
        Which of the file's ``[[splits]]`` to take.

    Returns
    -------
    Benchmark
        The benchmark.

    Raises
    ------
    InvalidInput
        If a required key is missing or a value is invalid.
    """
    words = _split_words(content, where, split)
    name = _toml.get_text(content, "name", where)
    if not NAME.fullmatch(name):
        raise InvalidInput(f"{where}: name must be letters, digits, '.', '_' or '-', got {name!r}")
    return Benchmark(
        name=f"{name}-{split}" if split else name,
        title=_toml.get_text(content, "title", where),
        source=_toml.get_text(content, "source", where),
        classes=_toml.get_whole(content, "classes", where, low=2),
        protocols=_read_protocols(content, where),
        sets=_read_sets(content, where, words),
        scores=read_scores(content, where),
        pairs=read_pairs(content, where),
        metrics=_read_metrics(content, where),
    )


def _split_words(content: Content, where: str, split: int) -> dict[str, str]:
    """Look up the texts that replace the words in braces in one split."""
    splits = _toml.get_tables(content, "splits", where)
    if split and not 0 <= split < len(splits):
        known = "none, since it has no [[splits]]"
        if splits:
            known = f"0..{len(splits) - 1}"
        raise InvalidInput(f"{where}: there is no split {split}; splits are {known}")
    every = [_check_split(table, list(splits[0]), where) for table in splits]
    return every[split] if every else {}


def _check_split(table: Content, keys: list[str], where: str) -> dict[str, str]:
    """Check that a split has the keys of the first one, and strings as values."""
    words: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, str) and key != "data":
            words[key] = value
    if list(words) != keys or len(words) != len(table):
        raise InvalidInput(
            f"{where}: every table of splits must have the same keys, other than 'data', with strings, got {table}"
        )
    return words


def _read_sets(content: Content, where: str, words: Mapping[str, str]) -> tuple[DataSet, ...]:
    if "sets" not in content:
        raise InvalidInput(f"{where}: key 'sets' is missing; write a [[sets]] table for each data set")
    tables = _toml.get_tables(content, "sets", where)
    if not tables:
        raise InvalidInput(f"{where}: sets must name at least one data set")
    sets: list[DataSet] = []
    names: dict[str, str] = {}  # by lower-case name, since folders of runs may ignore case
    for place, table in enumerate(tables, start=1):
        one = _read_set(table, f"{where}, set {place}", words)
        twin = names.get(one.name.lower())
        if twin is not None:
            raise InvalidInput(f"{where}, set {place}: the name {one.name!r} is taken by another set ({twin!r})")
        names[one.name.lower()] = one.name
        sets.append(one)
    return tuple(sets)


def _read_set(table: Content, where: str, words: Mapping[str, str]) -> DataSet:
    _toml.check_keys(table, SET_KEYS, where)
    name = _toml.get_text(table, "name", where)
    stem, slash, level = name.partition("/")
    if not NAME.fullmatch(stem) or (slash and level not in LEVELS):
        raise InvalidInput(
            f"{where}: name must be letters, digits, '.', '_' or '-', followed by /1 to /5 for a level of corruption, "
            f"got {name!r}"
        )
    where = f"{where} ({name})"
    role = _toml.get_text(table, "role", where)
    if role not in ROLES:
        raise InvalidInput(f"{where}: role: {UnknownName.of('role', role, ROLES)}")
    if slash and role != "shift":
        raise InvalidInput(f"{where}: a level of corruption must have the role 'shift', got {role!r}")
    one = DataSet(
        name=name,
        role=role,
        data=_insert_words(_toml.get_text(table, "data", where), words, where),
        rows=_toml.get_whole(table, "rows", where, low=0, default=0),
        get=_toml.get_text(table, "get", where, default=""),
        note=_toml.get_text(table, "note", where, default=""),
        removed=_toml.get_whole(table, "removed", where, low=0) if "removed" in table else None,
    )
    if "{data}" in one.data and not one.get:
        raise InvalidInput(f"{where}: key 'get' is missing; say in a few words where to get the data")
    if one.embedded and not one.rows:
        raise InvalidInput(f"{where}: key 'rows' is missing; an embedded set ({EMBEDDED}NAME) says how many it has")
    return one


def _insert_words(data: str, words: Mapping[str, str], where: str) -> str:
    """Insert the texts of the split into a spec; only ``{data}`` stays."""
    if not re.match(r"[a-z][a-z0-9_]*:.", data):
        raise InvalidInput(f"{where}: data must be kind:PATH?key=value, got {data!r}")
    for word in re.findall(r"\{(.*?)\}", data):
        if word not in words and word != "data":
            raise InvalidInput(f"{where}: data has {{{word}}}; known in braces: {', '.join(['data', *words])}")
    for word, value in words.items():
        data = data.replace(f"{{{word}}}", value)
    return data


def read_changes(content: Content, where: str) -> BenchmarkChanges:
    """Read the protocols, scores, pairs and metrics that a file sets, for ``dataclasses.replace`` of a benchmark.

    Parameters
    ----------
    content : mapping
        The parsed file.
    where : str
        Name of the file in error messages.

    Returns
    -------
    dict
        Values by key; keys that the file does not set are absent.

    Raises
    ------
    InvalidInput
        If a value is invalid.
    """
    changes: BenchmarkChanges = {}
    if "protocols" in content:
        changes["protocols"] = _read_protocols(content, where)
    if "scores" in content:
        changes["scores"] = read_scores(content, where)
    if "pairs" in content:
        changes["pairs"] = read_pairs(content, where)
    if "metrics" in content:
        changes["metrics"] = _read_metrics(content, where)
    return changes


def _read_protocols(content: Content, where: str) -> tuple[str, ...]:
    from twofold.bench.protocols import PROTOCOLS

    protocols = _toml.get_texts(content, "protocols", where)
    if not protocols:
        raise InvalidInput(f"{where}: protocols must name at least one of {', '.join(PROTOCOLS)}")
    for name in protocols:
        if name not in PROTOCOLS:
            raise InvalidInput(f"{where}: protocols: {UnknownName.of('protocol', name, PROTOCOLS)}")
    return protocols


def read_scores(content: Content, where: str) -> tuple[str, ...]:
    """Read and check the scores that a table of a file names.

    Parameters
    ----------
    content : mapping
        The parsed table; ``scores`` is a list, or the name of one in :data:`twofold.bench.pools.POOLS`.
    where : str
        Name of the table in error messages.

    Returns
    -------
    tuple of str
        The scores; empty where the table names none.

    Raises
    ------
    InvalidInput
        If a score cannot be parsed, or there is no list of that name.

    Examples
    --------
    >>> read_scores({"scores": ["msp", "react(percentile=90)|energy"]}, "mine.toml")
    ('msp', 'react(percentile=90)|energy')
    """
    from twofold.bench.pools import pool

    if "scores" not in content:
        return ()
    if isinstance(content["scores"], str):
        try:
            return pool(content["scores"])
        except UnknownName as error:
            raise InvalidInput(f"{where}: scores: {error}") from error
    scores = _toml.get_texts(content, "scores", where)
    for spec in scores:
        _check_score(spec, f"{where}: scores")
    return scores


def read_pairs(content: Content, where: str) -> tuple[tuple[str, str], ...]:
    """Read and check the pairs of scores that a table of a file names.

    Parameters
    ----------
    content : mapping
        The parsed table.
    where : str
        Name of the table in error messages.

    Returns
    -------
    tuple of (str, str)
        Pairs of ID score and OOD score; empty where the table names none.

    Raises
    ------
    InvalidInput
        If a pair is not a list of two strings, or a score cannot be parsed.
    """
    value = content.get("pairs", [])
    if not isinstance(value, list):
        raise InvalidInput(f"{where}: pairs must be a list of [ID score, OOD score], got {value!r}")
    pairs = []
    for pair in value:
        if not _toml.is_list_of_texts(pair) or len(pair) != 2:
            raise InvalidInput(f"{where}: pairs must be a list of [ID score, OOD score], got {value!r}")
        for spec in pair:
            _check_score(spec, f"{where}: pairs")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _check_score(spec: str, where: str) -> None:
    from twofold.scores.chain import scorer

    try:
        scorer(spec)
    except TwofoldError as error:
        raise InvalidInput(f"{where}: {error}") from error


def _read_metrics(content: Content, where: str) -> tuple[str, ...]:
    from twofold.bench.added_metrics import check_metric

    if "metrics" not in content:
        return ()
    chosen = _toml.get_texts(content, "metrics", where)
    for name in chosen:
        try:
            check_metric(name)
        except TwofoldError as error:
            raise InvalidInput(f"{where}: metrics: {error}") from error
    return chosen
