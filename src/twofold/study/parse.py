"""Parse study files: rows, benchmarks and tables; mistakes are found before any data are opened."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import TypeGuard, cast

from twofold import _checks, _toml
from twofold.bench import catalogue
from twofold.bench.catalogue import Benchmark, Content
from twofold.bench.protocols import PROTOCOLS
from twofold.bench.sampling import sample_images
from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.study.checks import check_name, check_study, spell_method
from twofold.study.spec import ROW_KEYS, Study, StudyRow, StudyTable, TableBaseline, TableColumn

BENCHMARK_KEYS = ("classes", "protocols", "scores", "pairs", "metrics", "sets", "splits")
KEYS = (
    *("name", "title", "source", "model", "normalise", "precision", "seeds", "tuning_seeds", "resamples", "settings"),
    *("outliers", "mixers", "layers", "recipes", "tables", "presets", "benchmark", "images", *BENCHMARK_KEYS),
)
LISTS = ("scores", "pairs", "augment", "drops")  # keys of a row whose value is a list by itself


def names() -> tuple[str, ...]:
    """List the studies that come with the package.

    Returns
    -------
    tuple of str
        Names that :func:`load` takes.

    Examples
    --------
    >>> names()[:3]
    ('aurc_finetune', 'fd_shifts', 'paradigms')
    """
    return tuple(titles())


@cache
def titles() -> dict[str, str]:
    """Read the title of each study that comes with the package.

    Returns
    -------
    dict of str to str
        Title by name.

    Examples
    --------
    >>> titles()["paradigms"]
    'Learned confidences against softmax across shifts'
    """
    found = {}
    for file in sorted(files("twofold.study").joinpath("files").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            content = tomllib.loads(file.read_text(encoding="utf-8"))
            found[file.name.removesuffix(".toml")] = str(content["title"])
    return found


def command(study: Study) -> str:
    """Build the command line that runs a study.

    Parameters
    ----------
    study : Study
        The study.

    Returns
    -------
    str
        One line for a shell, with ``DIR`` for the folder.

    Examples
    --------
    >>> command(load("paradigms"))
    'twofold study run paradigms --out DIR'
    """
    words = ["twofold study run", study.name if study.name in names() else f"{study.name}.toml"]
    if study.preset is not None:
        words.append(f"--preset {study.preset}")
    words.append("--out DIR")
    return " ".join(words)


def load(name: str | Path, *, preset: str | None = None, check: bool = True) -> Study:
    """Load a study of the package by name, or one of your own by the path of its file.

    Parameters
    ----------
    name : str or Path
        A name of :func:`names`, or a path that ends in ``.toml``.
    preset : str, optional
        A preset of the file to apply.
    check : bool, default=True
        Whether networks, recipes and training settings are checked, which needs torch.

    Returns
    -------
    Study
        The study.

    Raises
    ------
    UnknownName
        If there is no such study or preset.
    InvalidInput
        If the file cannot be read or is invalid.
    MissingExtra
        If it is checked and torch is not installed.

    Examples
    --------
    >>> load("sure_plus", check=False).families[0]
    'basic'
    """
    text, where = _read_text(name)
    return loads(text, where=where, preset=preset, check=check)


def _read_text(name: str | Path) -> tuple[str, str]:
    """Read the file of a study, and say how errors name it."""
    if isinstance(name, Path) or str(name).endswith(".toml"):
        try:
            return Path(name).read_text(encoding="utf-8"), str(name)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{name} cannot be read as a study file: {error}") from error
    if name not in titles():
        raise UnknownName.of("study", str(name), titles())
    text = files("twofold.study").joinpath("files", f"{name}.toml").read_text(encoding="utf-8")
    return text, f"study {name}"


def loads(text: str, *, where: str = "study", preset: str | None = None, check: bool = True) -> Study:
    """Parse a study from the text of its file.

    Parameters
    ----------
    text : str
        TOML.
    where : str, default="study"
        Name of the file in error messages.
    preset : str, optional
        A preset of the file to apply.
    check : bool, default=True
        Whether networks, recipes and training settings are checked, which needs torch.

    Returns
    -------
    Study
        The study.

    Raises
    ------
    UnknownName
        If there is no such preset.
    InvalidInput
        If the text is not TOML, has unknown keys, lacks required ones, or a value is invalid.
    MissingExtra
        If it is checked and torch is not installed.
    """
    content = _toml.parse(text, where)
    _toml.check_keys(content, KEYS, where)
    if preset is not None:
        content = _apply_preset(content, preset, where)
    settings = _toml.get_table(content, "settings", where)
    base = str(settings.pop("preset", "cifar"))
    benchmarks = _read_benchmarks(content, where)
    seeds = _read_seeds(content, where)
    study = Study(
        name=_toml.get_text(content, "name", where),
        title=_toml.get_text(content, "title", where),
        source=_toml.get_text(content, "source", where),
        model=_toml.get_text(content, "model", where),
        normalise=str(content.get("normalise", "none")),
        precision=str(content.get("precision", "float32")),
        base=base,
        settings=_lists_to_tuples(settings),
        seeds=seeds,
        tuning_seeds=_read_tuning_seeds(content, seeds, where),
        rows=_read_rows(content, where),
        benchmarks=benchmarks,
        tables=_read_layouts(content, where),
        resamples=_toml.get_whole(content, "resamples", where, low=0, default=200),
        preset=preset,
        text=text,
    )
    if check:
        check_study(study, where)
    return study


def _apply_preset(content: Content, preset: str, where: str) -> dict[str, object]:
    """Replace values of a file by those of one of its presets."""
    presets = _toml.get_table(content, "presets", where)
    if preset not in presets:
        raise UnknownName.of(f"preset of {where}", preset, presets)
    values = _toml.get_table(presets, preset, f"{where}, presets")
    where_preset = f"{where}, preset {preset}"
    _toml.check_keys(values, [key for key in KEYS if key != "presets"], where_preset)
    result = dict(content)
    if "benchmark" in values:  # which has its own classes, sets and splits
        for key in ("classes", "sets", "splits"):
            result.pop(key, None)
    for key, value in values.items():
        if key not in ("settings", "recipes"):
            result[key] = value
    result["settings"] = {**_toml.get_table(content, "settings", where), **_toml.get_table(values, "settings", where)}
    result["recipes"] = _apply_preset_to_rows(content, _toml.get_table(values, "recipes", where_preset), where_preset)
    return result


def _apply_preset_to_rows(content: Content, changes: Content, where: str) -> list[dict[str, object]]:
    """Replace values of the rows that a preset names."""
    rows = _toml.get_tables(content, "recipes", where)
    _toml.check_keys(changes, [str(row.get("name")) for row in rows], f"{where}, recipes")
    changed = []
    for row in rows:
        own = _toml.get_table(changes, str(row.get("name")), f"{where}, recipes")
        changed.append({**row, **own})
    return changed


def _lists_to_tuples(settings: Content) -> dict[str, object]:
    result = dict(settings)
    for key, value in settings.items():
        if isinstance(value, list):
            result[key] = tuple(value)
    return result


def _read_seeds(content: Content, where: str) -> tuple[int, ...]:
    seeds = content.get("seeds", [0])
    if not _are_seeds(seeds):
        raise InvalidInput(f"{where}: seeds must be a list of different whole numbers from 0, got {seeds!r}")
    return tuple(seeds)


def _are_seeds(values: object) -> TypeGuard[list[int]]:
    """Check whether a value is a non-empty list of distinct whole numbers from 0."""
    if not isinstance(values, list) or not values:
        return False
    for place, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0 or value in values[:place]:
            return False
    return True


def _read_tuning_seeds(content: Content, seeds: tuple[int, ...], where: str) -> tuple[int, ...]:
    """Read the seeds that choose among the rows of a family: all of them unless the file names some."""
    if "tuning_seeds" not in content:
        return seeds
    chosen = content["tuning_seeds"]
    if not isinstance(chosen, list) or not chosen or not all(seed in seeds for seed in chosen):
        raise InvalidInput(f"{where}: tuning_seeds must be a list of some of the seeds {list(seeds)}, got {chosen!r}")
    return tuple(chosen)


def _read_benchmarks(content: Content, where: str) -> tuple[Benchmark, ...]:
    """Load the benchmarks that the rows are judged by, with the number of images that the file asks for."""
    benchmarks = _find_benchmarks(content, where)
    images = _toml.get_table(content, "images", where)
    if not images:
        return benchmarks
    all_sets = {name for one in benchmarks for name in one.names()}
    sampled = []
    for one in benchmarks:
        elsewhere = all_sets - set(one.names())
        own = {key: count for key, count in images.items() if key not in elsewhere}
        try:
            sampled.append(sample_images(one, cast(dict[str, int], own)))
        except TwofoldError as error:
            raise InvalidInput(f"{where}, images: {error}") from error
    return tuple(sampled)


def _find_benchmarks(content: Content, where: str) -> tuple[Benchmark, ...]:
    """Load the benchmarks of the catalogue that the file names, or the one that it describes itself."""
    if "benchmark" not in content:
        splits = _toml.get_tables(content, "splits", where)
        return tuple(catalogue.from_content(content, where, split) for split in range(max(1, len(splits))))
    for key in ("classes", "splits"):
        if key in content:
            raise InvalidInput(f"{where}: {key} belongs to the benchmark; leave it out, or leave out 'benchmark'")
    names_in_file = content["benchmark"]
    if not isinstance(names_in_file, list):
        names_in_file = [names_in_file]
    changes = catalogue.read_changes(content, where)
    benchmarks = []
    for name in names_in_file:
        benchmark = replace(catalogue.load(str(name)), **changes)
        if "sets" in content:
            kept = tuple(benchmark[set_name] for set_name in _toml.get_texts(content, "sets", where))
            benchmark = replace(benchmark, sets=kept)
        benchmarks.append(benchmark)
    return tuple(benchmarks)


def _read_rows(content: Content, where: str) -> tuple[StudyRow, ...]:
    if "recipes" not in content:
        raise InvalidInput(f"{where}: key 'recipes' is missing; write a [[recipes]] table for each row")
    shared = {key: content[key] for key in ("outliers", "mixers", "layers") if key in content}
    rows: dict[str, StudyRow] = {}
    for place, table in enumerate(_toml.get_tables(content, "recipes", where), start=1):
        for row in _expand_lists({**shared, **table}, f"{where}, recipe {place}"):
            if row.name in rows:
                raise InvalidInput(f"{where}, recipe {place}: the name {row.name!r} is taken by another row")
            rows[row.name] = row
    if not rows:
        raise InvalidInput(f"{where}: recipes must name at least one row")
    return tuple(rows.values())


def _expand_lists(table: Content, where: str) -> Iterator[StudyRow]:
    """Expand one table into rows: one for each combination of the values in its lists."""
    family = _toml.get_text(table, "name", where)
    if not all(letter.isalnum() or letter in "_.-" for letter in family):
        raise InvalidInput(f"{where}: name must be letters, digits, '.', '_' or '-', got {family!r}")
    lists: dict[str, list[object]] = {}
    for key, value in table.items():
        if isinstance(value, list) and key not in LISTS:
            if not value:
                raise InvalidInput(f"{where}: {key} must have at least one value, got an empty list")
            lists[key] = value
    for place, values in enumerate(product(*lists.values()), start=1):
        single = {**table, **dict(zip(lists, values, strict=True))}
        name = f"{family}-{place}" if lists else family
        yield _read_row(single, name, family, f"{where} ({name})")


def _read_row(table: Content, name: str, family: str, where: str) -> StudyRow:
    return StudyRow(
        name,
        family,
        _toml.get_text(table, "recipe", where),
        checkpoint=_optional_text(table, "checkpoint", where),
        new_head=_read_flag(table, "new_head", where),
        outliers=_optional_text(table, "outliers", where),
        mixers=_optional_text(table, "mixers", where),
        dropout=_check_number(table.get("dropout", 0.0), f"{where}: dropout", high=1.0),
        passes=_toml.get_whole(table, "passes", where, low=0, default=0),
        odin=_read_odin(table, where),
        layers=_read_flag(table, "layers", where),
        scores=catalogue.read_scores(table, where),
        pairs=catalogue.read_pairs(table, where),
        settings=_lists_to_tuples({key: value for key, value in table.items() if key not in ROW_KEYS}),
    )


def _optional_text(table: Content, key: str, where: str) -> str | None:
    if key not in table:
        return None
    return _toml.get_text(table, key, where)


def _read_flag(table: Content, key: str, where: str) -> bool:
    """Read a truth value, by default false."""
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise InvalidInput(f"{where}: {key} must be true or false, got {value!r}")
    return value


def _read_odin(table: Content, where: str) -> dict[str, float] | None:
    """Read the settings of ODIN; a number alone is epsilon."""
    odin = table.get("odin")
    if odin is None:
        return None
    if not isinstance(odin, dict):
        odin = {"epsilon": odin}
    _toml.check_keys(odin, ("epsilon", "temperature"), f"{where}: odin")
    return {key: _check_number(value, f"{where}: odin {key}") for key, value in odin.items()}


def _check_number(value: object, name: str, high: float = math.inf) -> float:
    return float(_checks.number(value, name, 0.0, high, open_high=True))


def _read_layouts(content: Content, where: str) -> tuple[StudyTable, ...]:
    layouts = []
    for place, table in enumerate(_toml.get_tables(content, "tables", where), start=1):
        where_table = f"{where}, table {place}"
        _toml.check_keys(table, ("title", "columns", "baseline"), where_table)
        columns = _read_columns(table.get("columns"), where_table)
        baseline = _read_baseline(table, where_table)
        layouts.append(StudyTable(_toml.get_text(table, "title", where_table), columns, baseline))
    return tuple(layouts)


def _read_columns(value: object, where: str) -> tuple[TableColumn, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidInput(_columns_error(value, where))
    columns = []
    for words in value:
        if not _toml.is_list_of_texts(words) or len(words) not in (3, 4):
            raise InvalidInput(_columns_error(value, where))
        metric, shift, protocol, *method = words
        check_name(protocol, PROTOCOLS, "protocol", where)
        spelled = spell_method(method[0], where) if method else None
        columns.append(TableColumn(metric, shift, protocol, spelled))
    return tuple(columns)


def _columns_error(value: object, where: str) -> str:
    return f"{where}: columns must be lists of metric, shift, protocol and perhaps score, got {value!r}"


def _read_baseline(table: Content, where: str) -> TableBaseline | None:
    if "baseline" not in table:
        return None
    words = _toml.get_texts(table, "baseline", where)
    if len(words) != 2:
        raise InvalidInput(f"{where}: baseline must be a row and a score, got {list(words)}")
    row, method = words
    return TableBaseline(row, spell_method(method, where))
