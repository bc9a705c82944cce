"""Benchmarks as data: which sets play which role under which protocols, and where a person gets them.

A benchmark is a TOML file with the keys of :class:`Benchmark`, and one ``[[sets]]`` table for each :class:`DataSet`.
``load("cifar10-real")`` gives one of the catalogue, ``load("mine.toml")`` a person's own.

A file may have ``[[splits]]``, tables of words that stand in braces in ``data``: the first is the benchmark itself,
the others are NAME-1, NAME-2 and so on.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.store import ROLES

DATA = "TWOFOLD_DATA"  # the environment variable that names the folder of data
EMBEDDED = "demo:"  # sets of twofold.demo, which need no files
LEVELS = ("1", "2", "3", "4", "5")


class Sized(Protocol):
    """What an opener gives: anything with a length."""

    def __len__(self) -> int: ...


Opener = Callable[[str], Sized]


@dataclass(frozen=True)
class DataSet:
    """One data set of a benchmark.

    ``data`` names it in the grammar of :mod:`twofold.nn.data`, with ``{data}`` for the folder of data; ``rows`` is the
    published count, 0 where none is known; ``removed`` counts rows left out because their class is one of the model's.
    A name that ends in /1 to /5 is a level of corruption.
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
        """Whether it comes with the package."""
        return self.data.startswith(EMBEDDED)

    def spec(self, root: str | Path | None = None) -> str:
        """``data`` with the folder in place; without ``root`` that is $TWOFOLD_DATA."""
        if "{data}" not in self.data:
            return self.data
        folder = str(root if root is not None else os.environ.get(DATA, ""))
        if not folder:
            raise InvalidInput(f"{self.name}: no folder of data is named; pass --root FOLDER or set ${DATA}")
        if set(folder) & set("?&"):
            raise InvalidInput(f"the folder of data must not have ? or & in its path, got {folder!r}")
        return self.data.replace("{data}", folder)


@dataclass(frozen=True)
class Status:
    """What is here of one data set: its rows, or None with the reason why it cannot be opened."""

    set: DataSet
    rows: int | None
    reason: str = ""

    @property
    def present(self) -> bool:
        """Whether it can be opened."""
        return self.rows is not None

    @property
    def published(self) -> bool | None:
        """Whether it has the published number of rows; None where that is unknown or the set is missing."""
        return None if self.rows is None or not self.set.rows else self.rows == self.set.rows

    def __str__(self) -> str:
        if self.rows is None:
            return f"{self.set.name}: missing ({self.reason}); get it from {self.set.get}"
        odd = "" if self.published is not False else f", published {self.set.rows:,}"
        return f"{self.set.name}: {self.rows:,} rows{odd}"


@dataclass(frozen=True)
class Benchmark:
    """A named set of data sets with roles, judged under protocols.

    ``classes`` counts those of the model. Empty ``scores`` means all that a run allows, empty ``pairs`` each of them
    with msp; ``metrics`` are added to those of the protocols.

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

    def __getitem__(self, name: str) -> DataSet:
        found = next((s for s in self.sets if s.name == name), None)
        if found is None:
            raise UnknownName.of(f"data set of {self.name}", name, [s.name for s in self.sets])
        return found

    @property
    def roles(self) -> dict[str, str]:
        """The role of each data set."""
        return {s.name: s.role for s in self.sets}

    def names(self, role: str | None = None) -> tuple[str, ...]:
        """Names of the data sets, or of those with one role."""
        return tuple(s.name for s in self.sets if role in (None, s.role))

    def specs(self, root: str | Path | None = None) -> dict[str, str]:
        """What to open for each data set."""
        return {s.name: s.spec(root) for s in self.sets}

    def status(self, root: str | Path | None, opener: Opener) -> tuple[Status, ...]:
        """What is here of each data set, and why not; a set that cannot be opened is never an error.

        ``opener`` turns a spec into something with a length, as :func:`twofold.nn.data.open` does.
        """
        return tuple(_status(s, root, opener) for s in self.sets)

    def to_toml(self) -> str:
        """The benchmark as the text of a file that loads as the same benchmark."""
        lines = [f"{key} = {_toml(getattr(self, key))}" for key in REQUIRED]
        lines += [f"{key} = {_toml(getattr(self, key))}" for key in OPTIONAL if getattr(self, key)]
        for one in self.sets:
            lines += ["", "[[sets]]"]
            lines += [f"{key} = {_toml(getattr(one, key))}" for key in ("name", "role", "data")]
            lines += [f"{key} = {_toml(getattr(one, key))}" for key in ("rows", "get", "note") if getattr(one, key)]
            lines += [] if one.removed is None else [f"removed = {one.removed}"]
        return "\n".join(lines) + "\n"


REQUIRED = ("name", "title", "source", "classes", "protocols")
OPTIONAL = ("scores", "pairs", "metrics")
SET_KEYS = ("name", "role", "data", "rows", "get", "note", "removed")


def _status(one: DataSet, root: str | Path | None, opener: Opener) -> Status:
    if one.embedded:
        return Status(one, one.rows)
    try:
        return Status(one, len(opener(one.spec(root))))
    except (TwofoldError, OSError) as error:
        return Status(one, None, str(error))


def _toml(value: Any) -> str:
    """A string, whole number or tuple of them as TOML."""
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(v) for v in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON strings are TOML strings but for DEL


# --- the catalogue --------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """Names of the catalogue.

    >>> [name for name in names() if name.startswith("openood")]
    ['openood-cifar10', 'openood-cifar100', 'openood-imagenet1k', 'openood-imagenet200']
    """
    return tuple(_catalogue())


@cache
def _catalogue() -> dict[str, tuple[str, int]]:
    """File and split of each name."""
    found = {}
    for file in sorted(files("twofold.bench").joinpath("catalogue").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            stem = file.name.removesuffix(".toml")
            found[stem] = (stem, 0)
            count = len(tomllib.loads(file.read_text(encoding="utf-8")).get("splits", ()))
            found.update({f"{stem}-{k}": (stem, k) for k in range(1, count)})
    return found


def load(name: str | Path, *, split: int | None = None) -> Benchmark:
    """A benchmark of the catalogue by name, or of a person's own file by its path (ending in .toml).

    ``split`` picks one of the file's ``[[splits]]``; ``load("unknown-cifar-2")`` does the same.
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
    stem, own = _catalogue()[str(name)]
    if own and split is not None:
        raise InvalidInput(f"{name} is a split already; write load({stem!r}, split={split})")
    text = files("twofold.bench").joinpath("catalogue", f"{stem}.toml").read_text(encoding="utf-8")
    return loads(text, where=f"benchmark {name}", split=own if split is None else split)


def loads(text: str, *, where: str = "benchmark", split: int = 0) -> Benchmark:
    """A benchmark from the text of its file; ``where`` names it in errors."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{where} is no TOML: {error}") from error
    _known(content, (*REQUIRED, *OPTIONAL, "sets", "splits"), where)
    words = _words(content, where, split)
    name = _text(content, "name", where)
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise InvalidInput(f"{where}: name must be letters, digits, '.', '_' or '-', got {name!r}")
    return Benchmark(
        name=f"{name}-{split}" if split else name,
        title=_text(content, "title", where),
        source=_text(content, "source", where),
        classes=_whole(content, "classes", where, 2),
        protocols=_protocols(content, where),
        sets=_sets(content, where, words),
        scores=_scores(content, where),
        pairs=_pairs(content, where),
        metrics=_metrics(content, where),
    )


def _words(content: Mapping[str, Any], where: str, split: int) -> dict[str, str]:
    """What stands for the words in braces in one split."""
    splits = _tables(content, "splits", where) if "splits" in content else []
    if split and not 0 <= split < len(splits):
        top = f"0..{len(splits) - 1}" if splits else "none, since it has no [[splits]]"
        raise InvalidInput(f"{where}: there is no split {split}; splits are {top}")
    for table in splits:
        if list(table) != list(splits[0]) or not all(isinstance(v, str) for v in table.values()) or "data" in table:
            raise InvalidInput(
                f"{where}: every table of splits must have the same keys, other than 'data', with strings, got {table}"
            )
    return splits[split] if splits else {}


def _sets(content: Mapping[str, Any], where: str, words: Mapping[str, str]) -> tuple[DataSet, ...]:
    if "sets" not in content:
        raise InvalidInput(f"{where}: key 'sets' is missing; write a [[sets]] table for each data set")
    tables = _tables(content, "sets", where)
    if not tables:
        raise InvalidInput(f"{where}: sets must name at least one data set")
    found: dict[str, DataSet] = {}
    for place, table in enumerate(tables, start=1):
        one = _set(table, f"{where}, set {place}", words)
        twin = next((n for n in found if n.lower() == one.name.lower()), None)
        if twin is not None:
            raise InvalidInput(f"{where}, set {place}: the name {one.name!r} is taken by another set ({twin!r})")
        found[one.name] = one
    return tuple(found.values())


def _set(table: Mapping[str, Any], where: str, words: Mapping[str, str]) -> DataSet:
    _known(table, SET_KEYS, where)
    name = _text(table, "name", where)
    stem, slash, level = name.partition("/")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", stem) or (slash and level not in LEVELS):
        raise InvalidInput(
            f"{where}: name must be letters, digits, '.', '_' or '-', with /1 to /5 behind for a level of corruption, "
            f"got {name!r}"
        )
    where = f"{where} ({name})"
    role = _text(table, "role", where)
    if role not in ROLES:
        raise InvalidInput(f"{where}: role: {UnknownName.of('role', role, ROLES)}")
    if slash and role != "shift":
        raise InvalidInput(f"{where}: a level of corruption must have the role 'shift', got {role!r}")
    one = DataSet(
        name,
        role,
        _filled(_text(table, "data", where), words, where),
        _whole(table, "rows", where, 0) if "rows" in table else 0,
        _text(table, "get", where) if "get" in table else "",
        _text(table, "note", where) if "note" in table else "",
        _whole(table, "removed", where, 0) if "removed" in table else None,
    )
    if "{data}" in one.data and not one.get:
        raise InvalidInput(f"{where}: key 'get' is missing; say in a few words where a person gets the data")
    if one.embedded and not one.rows:
        raise InvalidInput(f"{where}: key 'rows' is missing; an embedded set ({EMBEDDED}NAME) says how many it has")
    return one


def _filled(data: str, words: Mapping[str, str], where: str) -> str:
    """A spec with the words of the split in place; only ``{data}`` stays."""
    if not re.match(r"[a-z][a-z0-9_]*:.", data):
        raise InvalidInput(f"{where}: data must be kind:PATH?key=value, got {data!r}")
    for word in re.findall(r"\{(.*?)\}", data):
        if word not in words and word != "data":
            raise InvalidInput(f"{where}: data has {{{word}}}; known in braces: {', '.join(['data', *words])}")
    for word, value in words.items():
        data = data.replace(f"{{{word}}}", value)
    return data


def _protocols(content: Mapping[str, Any], where: str) -> tuple[str, ...]:
    from twofold.bench.protocols import PROTOCOLS

    given = _texts(content, "protocols", where)
    if not given:
        raise InvalidInput(f"{where}: protocols must name at least one of {', '.join(PROTOCOLS)}")
    for name in given:
        if name not in PROTOCOLS:
            raise InvalidInput(f"{where}: protocols: {UnknownName.of('protocol', name, PROTOCOLS)}")
    return given


def _scores(content: Mapping[str, Any], where: str) -> tuple[str, ...]:
    given = _texts(content, "scores", where) if "scores" in content else ()
    for spec in given:
        _check_score(spec, f"{where}: scores")
    return given


def _pairs(content: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    given = content.get("pairs", [])
    if not isinstance(given, list) or not all(
        isinstance(p, list) and len(p) == 2 and all(isinstance(s, str) for s in p) for p in given
    ):
        raise InvalidInput(f"{where}: pairs must be a list of [ID score, OOD score], got {given!r}")
    for pair in given:
        for spec in pair:
            _check_score(spec, f"{where}: pairs")
    return tuple((first, second) for first, second in given)


def _check_score(spec: str, where: str) -> None:
    from twofold.steps import scorer

    try:
        scorer(spec)
    except TwofoldError as error:
        raise InvalidInput(f"{where}: {error}") from error


def _metrics(content: Mapping[str, Any], where: str) -> tuple[str, ...]:
    from twofold import metrics

    given = _texts(content, "metrics", where) if "metrics" in content else ()
    for name in given:
        if name not in metrics.names():
            raise InvalidInput(f"{where}: metrics: {UnknownName.of('metric', name, metrics.names())}")
    return given


# --- the schema -----------------------------------------------------------------------------------------------------


def _known(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise InvalidInput(f"{where}: {UnknownName.of('key', key, keys)}")


def _value(table: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in table:
        raise InvalidInput(f"{where}: key {key!r} is missing")
    return table[key]


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = _value(table, key, where)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"{where}: {key} must be a string with something in it, got {value!r}")
    return value


def _whole(table: Mapping[str, Any], key: str, where: str, low: int) -> int:
    value = _value(table, key, where)
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise InvalidInput(f"{where}: {key} must be a whole number of at least {low}, got {value!r}")
    return value


def _texts(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = _value(table, key, where)
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise InvalidInput(f"{where}: {key} must be a list of strings, got {value!r}")
    twice = next((v for i, v in enumerate(value) if v in value[:i]), None)
    if twice is not None:
        raise InvalidInput(f"{where}: {key} names {twice!r} twice")
    return tuple(value)


def _tables(table: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    value = table[key]
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise InvalidInput(f"{where}: {key} must be tables, written [[{key}]], got {value!r}")
    return value
