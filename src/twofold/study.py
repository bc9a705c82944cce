"""Studies: one TOML file says what is trained, extracted and judged; a runner does it cell by cell, and resumes.

A study file has the keys of a benchmark file (:mod:`twofold.bench.benchmark`), or ``benchmark`` with the name of one of
the catalogue (several names: each in turn) and ``sets`` with those of its data sets that are wanted. Beside them:

- ``model``, ``normalise``, ``seeds``, ``resamples``, and ``[settings]``: a ``preset`` of :mod:`twofold.nn.training` and
  what differs from it. The training set is the data set of role train.
- ``[[recipes]]``: ``name``, ``recipe`` and what this row changes: settings, ``dropout``, ``outliers``, ``mixers``,
  ``checkpoint`` (another row, whose weights of the same seed it starts from), ``passes`` and ``odin`` of extraction,
  ``scores`` and ``pairs`` (no pairs unless they are given). A list in place of a value makes one row for each; tables
  show the one that is best on validation data.
- ``[[tables]]``: ``title`` and ``columns``, each ``[metric, shift, protocol]`` with the score or pair as a fourth.
- ``[presets.NAME]``: other values of these keys, ``recipes`` by the names of rows; for ``load(..., preset=NAME)``.

A cell is a row with a seed. Weights are in ``training/CELL``, outputs in ``runs/CELL``, its results in ``judged/CELL``,
and the results of all finished cells, with a report page, in the folder itself.
"""

from __future__ import annotations

import json
import math
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from twofold import _checks
from twofold._files import replacing
from twofold.bench import benchmark as sheets
from twofold.bench import runner
from twofold.bench.benchmark import Benchmark, DataSet
from twofold.bench.cache import digest
from twofold.bench.protocols import PROTOCOLS, select
from twofold.bench.results import VALIDATION, Results, better_of, key_of, method, missing, scale
from twofold.errors import InvalidInput, MissingExtra, RunError, TwofoldError, UndefinedMetric, UnknownName
from twofold.steps import scorer
from twofold.store import Run

Told = Mapping[str, Any]  # a row of results, or what is known of a cell
Done = Callable[[str, int, int], Any]  # what is at work, how much of it is done, of how much

BENCHMARK = ("classes", "protocols", "scores", "pairs", "metrics", "sets", "splits")
KEYS = (
    *("name", "title", "source", "model", "normalise", "seeds", "resamples", "settings", "outliers", "mixers"),
    *("recipes", "tables", "presets", "benchmark", *BENCHMARK),
)
ROW_KEYS = ("name", "recipe", "checkpoint", "outliers", "mixers", "dropout", "passes", "odin", "scores", "pairs")
LISTS = ("scores", "pairs", "augment")  # keys of a row whose value is a list by itself
STATE, CELL, CLOCK, SETS, REPORT = "study.json", "cell.json", "clock.json", "sets.json", "report.md"
FORWARD = 2.0  # a pass of training costs about twice one of extraction
PROBE = 32  # images read to see how long a data set takes
LEVEL = 0.95


@dataclass(frozen=True)
class Row:
    """One row of a study; ``family`` is the name that the file gives, the same for all values of a list."""

    name: str
    family: str
    recipe: str
    checkpoint: str | None = None
    outliers: str | None = None
    mixers: str | None = None
    dropout: float = 0.0
    passes: int = 0
    odin: Mapping[str, float] | None = None
    scores: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The recipe and what the row changes."""
        changes = {**({"dropout": self.dropout} if self.dropout else {}), **self.settings}
        return self.recipe + "".join(f", {key} {value}" for key, value in changes.items())


@dataclass(frozen=True)
class Cell:
    """A row of a study with a seed, on one benchmark; ``start`` is the cell whose weights it begins with."""

    name: str
    row: Row
    benchmark: Benchmark
    seed: int
    start: str | None

    @property
    def train(self) -> DataSet:
        """The training set."""
        return self.benchmark[self.benchmark.names("train")[0]]


@dataclass(frozen=True)
class Layout:
    """A table of the report: columns are metric, shift, protocol and, where it is fixed, the score or pair.

    With ``baseline``, a row and a score, one more column tells how much better the first column is, in percent of it.
    """

    title: str
    columns: tuple[tuple[str, ...], ...]
    baseline: tuple[str, str] | None = None


@dataclass(frozen=True)
class Estimate:
    """Minutes of each cell, measured or guessed from a few steps, and the cells that are finished."""

    minutes: Mapping[str, float]
    finished: tuple[str, ...]

    @property
    def hours(self) -> float:
        """Of all cells."""
        return sum(self.minutes.values()) / 60

    @property
    def hours_left(self) -> float:
        """Of the cells that are not finished."""
        return sum(m for name, m in self.minutes.items() if name not in self.finished) / 60


@dataclass(frozen=True)
class Study:
    """What a study file says."""

    name: str
    title: str
    source: str
    model: str
    normalise: str
    base: str  # preset of the settings
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    benchmarks: tuple[Benchmark, ...]
    tables: tuple[Layout, ...]
    resamples: int
    preset: str | None
    text: str = field(repr=False)

    def __getitem__(self, name: str) -> Row:
        found = next((row for row in self.rows if row.name == name), None)
        if found is None:
            raise UnknownName.of(f"row of {self.name}", name, [row.name for row in self.rows])
        return found

    def cells(self, only: Sequence[str] | None = None, seeds: Sequence[int] | None = None) -> tuple[Cell, ...]:
        """All cells, seed by seed, each after the one it starts from; or those of some rows, and what they start from.

        ``only`` names rows, or families of them.
        """
        known = {row.name for row in self.rows} | {row.family for row in self.rows}
        for name in only or ():
            if name not in known:
                raise UnknownName.of(f"row of {self.name}", name, known)
        for seed in seeds or ():
            if seed not in self.seeds:
                raise InvalidInput(f"seed {seed} is not of {self.name}; its seeds are {_listed(self.seeds)}")
        wanted = [row for row in self.rows if not only or row.name in only or row.family in only]
        needed = list(dict.fromkeys(row for one in wanted for row in self._chain(one.name)))
        chosen = [seed for seed in self.seeds if not seeds or seed in seeds]
        return tuple(self._cell(self[name], one, seed) for seed in chosen for one in self.benchmarks for name in needed)

    def _cell(self, row: Row, on: Benchmark, seed: int) -> Cell:
        first = f"{on.name}-" if len(self.benchmarks) > 1 else ""
        start = None if row.checkpoint is None else f"{first}{row.checkpoint}-s{seed}"
        return Cell(f"{first}{row.name}-s{seed}", row, on, seed, start)

    def _chain(self, name: str) -> list[str]:
        """A row behind the rows that it starts from."""
        found = [name]
        while (start := self[found[0]].checkpoint) is not None:
            if start in found:
                raise InvalidInput(f"rows start from one another in a circle: {_listed([start, *found])}")
            found.insert(0, start)
        return found

    def plan(self, cell: Cell, out: str | Path, *, root: str | Path | None = None, device: str = "cpu") -> Any:
        """The training of a cell, as :class:`twofold.nn.training.Plan`."""
        recipes, training = _torch("recipes"), _torch("training")
        row = cell.row
        made = training.Plan.of(
            row.recipe,
            self.model,
            cell.train.spec(root),
            outliers=_placed(row.outliers, root),
            mixers=_placed(row.mixers, root),
            checkpoint=None if cell.start is None else str(Path(out) / "training" / cell.start / training.WEIGHTS),
            normalise=self.normalise,
            preset=self.base,
            device=device,
            **{**self.settings, **row.settings, "seed": cell.seed},
        )
        if row.dropout:
            made = replace(made, recipe=made.recipe | recipes.Dropout(row.dropout))
        if made.members > 1:  # no two ensembles share a member
            made = replace(made, settings=replace(made.settings, seed=cell.seed * made.members))
        if made.settings.keep != "last":
            val = cell.benchmark[cell.benchmark.names("val")[0]]
            made = replace(made, val=_torch("data").open(val.spec(root)))
        return made

    def estimate(
        self,
        out: str | Path,
        *,
        root: str | Path | None = None,
        device: str = "cpu",
        cells: Sequence[Cell] | None = None,
    ) -> Estimate:
        """Minutes of cells: those of a finished cell of the row, or else by a few steps and by reading a few images.

        Until a cell of the row is finished, judging is not counted.
        """
        chosen = self.cells() if cells is None else cells
        told = {cell.name: found for cell in self.cells() if (found := _finished(self, cell, Path(out))) is not None}
        seen = {(cell.row.name, cell.benchmark.name): told[cell.name] for cell in self.cells() if cell.name in told}
        guessed: dict[tuple[str, str], float] = {}
        reading: dict[str, float] = {}
        minutes = {}
        for cell in chosen:
            place = cell.row.name, cell.benchmark.name
            if cell.name in told or place in seen:
                minutes[cell.name] = float(told.get(cell.name, seen.get(place, {}))["minutes"])
                continue
            if place not in guessed:
                guessed[place] = self._guess(cell, Path(out), reading, root, device)
            minutes[cell.name] = guessed[place]
        return Estimate(minutes, tuple(name for name in minutes if name in told))

    def _guess(self, cell: Cell, out: Path, reading: dict[str, float], root: str | Path | None, device: str) -> float:
        """Minutes of training and extraction, by a few steps."""
        plan = self.plan(cell, out, root=root, device=device)
        told = replace(plan, checkpoint=None).describe(2)
        step = told["seconds_per_step"]
        forward = step / told["passes_per_step"] / plan.settings.batch / FORWARD
        seconds = plan.steps * step
        for one in cell.benchmark.sets:
            images = _torch("data").open(one.spec(root))
            if one.data not in reading:
                begin = time.perf_counter()
                some = np.linspace(0, len(images) - 1, min(PROBE, len(images))).astype(int)
                images.read(some)
                reading[one.data] = (time.perf_counter() - begin) / len(some)
            passes = 1 if one.role == "train" else 1 + max(cell.row.passes, plan.members - 1)
            passes += 4 if cell.row.odin is not None else 0  # forward, backward, forward
            seconds += len(images) * (reading[one.data] + passes * forward)
        return seconds / 60


# --- files ----------------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """The studies that come with the package.

    >>> names()
    ('aurc_finetune', 'paradigms', 'sure_plus', 'unknown')
    """
    return tuple(titles())


@cache
def titles() -> dict[str, str]:
    """The title of each study that comes with the package.

    >>> titles()["paradigms"]
    'Learned confidences against softmax across shifts'
    """
    found = sorted(files("twofold").joinpath("studies").iterdir(), key=lambda file: file.name)
    texts = {f.name.removesuffix(".toml"): f.read_text(encoding="utf-8") for f in found if f.name.endswith(".toml")}
    return {name: str(tomllib.loads(text)["title"]) for name, text in texts.items()}


def load(name: str | Path, *, preset: str | None = None) -> Study:
    """A study of the package by name, or of a person's own file by its path (ending in .toml)."""
    if isinstance(name, Path) or str(name).endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{name} cannot be read as a study file: {error}") from error
        return loads(text, where=str(name), preset=preset)
    if name not in titles():
        raise UnknownName.of("study", str(name), titles())
    text = files("twofold").joinpath("studies", f"{name}.toml").read_text(encoding="utf-8")
    return loads(text, where=f"study {name}", preset=preset)


def loads(text: str, *, where: str = "study", preset: str | None = None) -> Study:
    """A study from the text of its file; ``where`` names it in errors."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{where} is no TOML: {error}") from error
    sheets._known(content, KEYS, where)
    if preset is not None:
        content = _with_preset(content, preset, where)
    settings = _table(content, "settings", where)
    base = str(settings.pop("preset", "cifar"))
    benchmarks = _benchmarks(content, where)
    made = Study(
        name=sheets._text(content, "name", where),
        title=sheets._text(content, "title", where),
        source=sheets._text(content, "source", where),
        model=sheets._text(content, "model", where),
        normalise=str(content.get("normalise", "none")),
        base=base,
        settings=_plain(settings),
        seeds=_seeds(content, where),
        rows=_rows(content, where),
        benchmarks=benchmarks,
        tables=_layouts(content, where),
        resamples=sheets._whole(content, "resamples", where, 0) if "resamples" in content else 200,
        preset=preset,
        text=text,
    )
    _check(made, where)
    return made


def _with_preset(content: Mapping[str, Any], preset: str, where: str) -> dict[str, Any]:
    """The content of a file with the values of one of its presets in place."""
    presets = _table(content, "presets", where)
    if preset not in presets:
        raise InvalidInput(f"{where}: {UnknownName.of('preset', preset, presets)}")
    given = _table(presets, preset, f"{where}, presets")
    sheets._known(given, [key for key in KEYS if key != "presets"], f"{where}, preset {preset}")
    gone = ("classes", "sets", "splits") if "benchmark" in given else ()
    changed = {key: value for key, value in content.items() if key not in gone}
    changed |= {key: value for key, value in given.items() if key not in ("settings", "recipes")}
    changed["settings"] = {**_table(content, "settings", where), **_table(given, "settings", where)}
    rows = _table(given, "recipes", f"{where}, preset {preset}")
    known = [str(row.get("name")) for row in content.get("recipes", ())]
    sheets._known(rows, known, f"{where}, preset {preset}, recipes")
    changed["recipes"] = [{**row, **rows.get(str(row.get("name")), {})} for row in content.get("recipes", ())]
    return changed


def _table(content: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: {key} must be a table, written [{key}], got {value!r}")
    return dict(value)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def _seeds(content: Mapping[str, Any], where: str) -> tuple[int, ...]:
    given = content.get("seeds", [0])
    whole = isinstance(given, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in given)
    if not whole or not given or len(set(given)) < len(given):
        raise InvalidInput(f"{where}: seeds must be a list of different whole numbers from 0, got {given!r}")
    return tuple(given)


def _benchmarks(content: Mapping[str, Any], where: str) -> tuple[Benchmark, ...]:
    """The benchmarks that the rows are judged by: of the catalogue, or the one that the file itself describes."""
    if "benchmark" not in content:
        count = max(1, len(content.get("splits", ())))
        return tuple(_own_benchmark(content, where, split) for split in range(count))
    for key in ("classes", "splits"):
        if key in content:
            raise InvalidInput(f"{where}: {key} belongs to the benchmark; leave it out, or leave out 'benchmark'")
    given = content["benchmark"]
    found = [sheets.load(str(name)) for name in (given if isinstance(given, list) else [given])]
    kept = sheets._texts(content, "sets", where) if "sets" in content else None
    changes: dict[str, Any] = {}
    for key, read in (("protocols", sheets._protocols), ("scores", sheets._scores), ("pairs", sheets._pairs)):
        if key in content:
            changes[key] = read(content, where)
    if "metrics" in content:
        changes["metrics"] = sheets._metrics(content, where)
    return tuple(
        replace(one, **changes, sets=one.sets if kept is None else tuple(one[name] for name in kept)) for one in found
    )


def _own_benchmark(content: Mapping[str, Any], where: str, split: int) -> Benchmark:
    name = sheets._text(content, "name", where)
    return Benchmark(
        name=f"{name}-{split}" if split else name,
        title=sheets._text(content, "title", where),
        source=sheets._text(content, "source", where),
        classes=sheets._whole(content, "classes", where, 2),
        protocols=sheets._protocols(content, where),
        sets=sheets._sets(content, where, sheets._words(content, where, split)),
        scores=sheets._scores(content, where),
        pairs=sheets._pairs(content, where),
        metrics=sheets._metrics(content, where),
    )


def _rows(content: Mapping[str, Any], where: str) -> tuple[Row, ...]:
    if "recipes" not in content:
        raise InvalidInput(f"{where}: key 'recipes' is missing; write a [[recipes]] table for each row")
    found: dict[str, Row] = {}
    shared = {key: content[key] for key in ("outliers", "mixers") if key in content}
    for place, table in enumerate(sheets._tables(content, "recipes", where), start=1):
        for row in _grid({**shared, **table}, f"{where}, recipe {place}"):
            if row.name in found:
                raise InvalidInput(f"{where}, recipe {place}: the name {row.name!r} is taken by another row")
            found[row.name] = row
    if not found:
        raise InvalidInput(f"{where}: recipes must name at least one row")
    return tuple(found.values())


def _grid(table: Mapping[str, Any], where: str) -> Iterator[Row]:
    """The rows of one table: one for each combination of the values in its lists."""
    name = sheets._text(table, "name", where)
    if not all(c.isalnum() or c in "_.-" for c in name):
        raise InvalidInput(f"{where}: name must be letters, digits, '.', '_' or '-', got {name!r}")
    several = {key: value for key, value in table.items() if isinstance(value, list) and key not in LISTS}
    for key, value in several.items():
        if not value:
            raise InvalidInput(f"{where}: {key} must have at least one value, got an empty list")
    for place, values in enumerate(product(*several.values()), start=1):
        own = {**table, **dict(zip(several, values, strict=True))}
        label = name if not several else f"{name}-{place}"
        yield _row(own, label, name, f"{where} ({label})")


def _row(table: Mapping[str, Any], name: str, family: str, where: str) -> Row:
    settings = _setting_names()
    sheets._known(table, (*ROW_KEYS, *settings), where)
    odin = table.get("odin")
    if odin is not None:
        odin = odin if isinstance(odin, dict) else {"epsilon": odin}
        sheets._known(odin, ("epsilon", "temperature"), f"{where}: odin")
        odin = {key: _number(value, f"{where}: odin {key}") for key, value in odin.items()}
    return Row(
        name,
        family,
        sheets._text(table, "recipe", where),
        **{k: sheets._text(table, k, where) for k in ("checkpoint", "outliers", "mixers") if k in table},
        dropout=_number(table.get("dropout", 0.0), f"{where}: dropout", 1.0),
        passes=sheets._whole(table, "passes", where, 0) if "passes" in table else 0,
        odin=odin,
        scores=sheets._scores(table, where),
        pairs=sheets._pairs(table, where),
        settings=_plain({key: table[key] for key in table if key in settings}),
    )


def _number(value: Any, name: str, high: float = math.inf) -> float:
    return float(_checks.number(value, name, 0.0, high, open_high=True))


def _layouts(content: Mapping[str, Any], where: str) -> tuple[Layout, ...]:
    found = []
    for place, table in enumerate(sheets._tables(content, "tables", where) if "tables" in content else (), start=1):
        here = f"{where}, table {place}"
        sheets._known(table, ("title", "columns", "baseline"), here)
        columns = table.get("columns")
        if not isinstance(columns, list) or not columns or not all(_is_column(one) for one in columns):
            raise InvalidInput(
                f"{here}: columns must be lists of metric, shift, protocol and perhaps score: {columns!r}"
            )
        for one in columns:
            _known_name(one[2], PROTOCOLS, "protocol", here)
        base = sheets._texts(table, "baseline", here) if "baseline" in table else None
        if base is not None and len(base) != 2:
            raise InvalidInput(f"{here}: baseline must be a row and a score, got {list(base)}")
        against = None if base is None else (base[0], _spelled(base[1], here))
        plain = tuple((*one[:3], *(_spelled(name, here) for name in one[3:])) for one in columns)
        found.append(Layout(sheets._text(table, "title", here), plain, against))
    return tuple(found)


def _spelled(name: str, where: str) -> str:
    """A score, or a pair with " + " between its scores, as results spell it."""
    try:
        return " + ".join(scorer(part).spec for part in name.split(" + "))
    except TwofoldError as error:
        raise InvalidInput(f"{where}: {error}") from error


def _is_column(value: Any) -> bool:
    return isinstance(value, list) and len(value) in (3, 4) and all(isinstance(word, str) for word in value)


def _check(study: Study, where: str) -> None:
    """Everything that can be wrong before data are opened: names, settings, rows that others start from, tables."""
    training, models, data = _torch("training"), _torch("models"), _torch("data")
    if ":" not in study.model:
        _known_name(study.model, models.names(), "network", f"{where}: model")
    _known_name(study.normalise, ["none", *data.STATISTICS], "statistics", f"{where}: normalise")
    _known_name(study.base, training.PRESETS, "preset", f"{where}: settings")
    sheets._known(study.settings, _setting_names(), f"{where}: settings")
    for one in study.benchmarks:
        for role in ("train", "val", "test"):
            if not one.names(role):
                raise InvalidInput(f"{where}: there is no data set of role {role}; every cell needs one")
        if any(s.embedded for s in one.sets):
            raise InvalidInput(f"{where}: {one.name} comes with its classifier, so there is nothing to train")
    for check, row in [*((_check_row, row) for row in study.rows), *((_check_start, row) for row in study.rows)]:
        try:
            check(study, row)
        except TwofoldError as error:
            raise InvalidInput(f"{where}, row {row.name}: {error}") from error
    for table in study.tables:
        _check_table(study, table, f"{where}, table {table.title}")


def _check_row(study: Study, row: Row) -> None:
    recipes, training = _torch("recipes"), _torch("training")
    made = recipes.recipe(row.recipe)
    replace(training.PRESETS[study.base], **{**study.settings, **row.settings})
    if made.get(recipes.FineTune) is not None and row.checkpoint is None:
        raise InvalidInput(f"{row.recipe} starts from another row; name it in checkpoint")
    if any(hasattr(term, "outliers") for term in made.terms) and row.outliers is None:
        raise InvalidInput(f"{row.recipe} needs outliers; name a data set in outliers")
    if row.passes and not row.dropout and made.get(recipes.Dropout) is None:
        raise InvalidInput("passes need dropout; add dropout = 0.1, or leave passes out")


def _check_start(study: Study, row: Row) -> None:
    recipes = _torch("recipes")
    for start in study._chain(row.name)[:-1]:
        if recipes.recipe(study[start].recipe).get(recipes.Members) is not None:
            raise InvalidInput(f"{start} is an ensemble, and no row can start from it")


def _check_table(study: Study, table: Layout, where: str) -> None:
    measured = {place for one in study.benchmarks for place in _measured(one, where)}
    judged = {s for one in study.benchmarks for s in one.scores} | {s for row in study.rows for s in row.scores}
    pairs = {p for one in study.benchmarks for p in one.pairs} | {p for row in study.rows for p in row.pairs}
    methods = {_spelled(s, where) for s in judged} | {_spelled(" + ".join(p), where) for p in pairs}
    for metric, shift, protocol, *fixed in table.columns:
        known = [f"{m} {s}" for m, s, p in measured if p == protocol]
        _known_name(f"{metric} {shift}", known, f"column of protocol {protocol}", where)
        for name in fixed if judged else ():  # without scores in the file all are judged
            _known_name(name, methods, "score or pair of the study", where)
    if table.baseline is not None:
        _known_name(table.baseline[0], {row.family for row in study.rows}, "row", f"{where}: baseline")


def _known_name(name: str, known: Iterable[str], kind: str, where: str) -> None:
    several = list(known)
    if name not in several:
        raise InvalidInput(f"{where}: {UnknownName.of(kind, name, several)}")


def _setting_names() -> list[str]:
    return [name for name in _torch("training").Settings.__dataclass_fields__ if name != "seed"]


def _measured(on: Benchmark, where: str) -> Iterator[tuple[str, str, str]]:
    """Metric, shift and protocol of all that is measured; data sets whose names would clash are an error."""
    for name in on.protocols:
        try:
            views, means = PROTOCOLS[name].views(on.roles), PROTOCOLS[name].averages(on.roles)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}") from error
        found = {view.shift: (*view.metrics, *view.pair_metrics, *on.metrics) for view in views}
        found |= {mean.shift: found[mean.of[0]] for mean in means}
        yield from ((metric, shift, name) for shift, several in found.items() for metric in several)


def _torch(module: str) -> Any:
    """A module of twofold.nn, or one line on how to install what it needs."""
    from importlib import import_module

    try:
        return import_module(f"twofold.nn.{module}")
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra('studies train networks, which needs torch: pip install "twofold[torch]"') from error


def _placed(spec: str | None, root: str | Path | None) -> str | None:
    return None if spec is None else DataSet("outliers", "ood_val", spec).spec(root)


def _listed(items: Sequence[Any]) -> str:
    return ", ".join(str(item) for item in items)


# --- the runner -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """What a call of :func:`run` did, and what is left of what it was asked."""

    finished: tuple[str, ...]
    left: tuple[str, ...]
    minutes: float


def run(
    study: Study,
    out: str | Path,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    limit_minutes: float | None = None,
    root: str | Path | None = None,
    device: str = "cpu",
    jobs: int = 1,
    done: Done = lambda label, count, total: None,
) -> Progress:
    """Train, extract and judge the cells of a study that are not finished, one after the other.

    Results and the report page are written after every cell. Killed at any point, the same call goes on: training at
    its last epoch, extraction at its last block of rows, judging at its last value. ``limit_minutes``: no cell is begun
    that would end later by the estimate.
    """
    folder = Path(out)
    if limit_minutes is not None:
        _checks.number(limit_minutes, "limit_minutes", 0.0, math.inf, open_low=True, open_high=True)
    cells = study.cells(only, seeds)
    _claim(study, folder)
    left = [cell for cell in cells if _finished(study, cell, folder) is None]
    if left:
        _check_data(left, root)
    begin = time.monotonic()
    made: list[str] = []
    for place, cell in enumerate(left):
        if limit_minutes is not None:
            spent = (time.monotonic() - begin) / 60
            needed = study.estimate(folder, root=root, device=device, cells=[cell]).minutes[cell.name]
            if spent + needed > limit_minutes:
                if not made:
                    raise InvalidInput(
                        f"the next cell, {cell.name}, needs about {needed:.1f} minutes, more than the "
                        f"{limit_minutes:g} that are given; give more"
                    )
                left = left[place:]
                break
        _make(study, cell, folder, root, device, jobs, done)
        made.append(cell.name)
        _publish(study, folder)
    else:
        left = []
    if not made and not (folder / REPORT).exists():
        _publish(study, folder)
    return Progress(tuple(made), tuple(cell.name for cell in left), (time.monotonic() - begin) / 60)


def results(study: Study, out: str | Path) -> Results:
    """The results of all finished cells."""
    rows: list[Told] = []
    replicates: dict[tuple[str | None, ...], Any] = {}
    for cell in study.cells():
        if _finished(study, cell, Path(out)) is not None:
            some = Results.open(Path(out) / "judged" / cell.name)
            rows += some.rows
            replicates |= some.replicates
    return Results.of(rows, replicates)


def finished(study: Study, out: str | Path) -> tuple[str, ...]:
    """The cells of a study that are finished in a folder."""
    return tuple(cell.name for cell in study.cells() if _finished(study, cell, Path(out)) is not None)


def opened(out: str | Path) -> Study:
    """The study whose cells are in a folder."""
    told = _read_json(Path(out) / STATE)
    if told is None:
        raise InvalidInput(f"{out} holds no study: there is no {STATE} in it")
    return loads(told["file"], where=f"{out}/{STATE}", preset=told["preset"])


def _claim(study: Study, folder: Path) -> None:
    """Write which study a folder is of; a folder of another study is an error."""
    told = _read_json(folder / STATE)
    if told is not None and (told["name"], told["preset"]) != (study.name, study.preset):
        was = told["name"] + ("" if told["preset"] is None else f" with preset {told['preset']}")
        raise RunError(f"{folder} holds the study {was}; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / STATE, {"name": study.name, "preset": study.preset, "file": study.text})
    except OSError as error:
        raise RunError(f"{folder} cannot be written to ({error.strerror}); choose another folder") from error


def _check_data(cells: Sequence[Cell], root: str | Path | None) -> None:
    """One error that names all that is missing, before hours are spent."""
    sets = {one.data: one for cell in cells for one in cell.benchmark.sets}
    for cell in cells:
        if cell.row.outliers is not None:
            given = cell.row.outliers
            sets.setdefault(given, DataSet("outliers", "ood_val", given, get=f"what {cell.row.name} names"))
    every = Benchmark("study", "study", "study", 2, (), tuple(sets.values()))
    lost = [one for one in every.status(root, _torch("data").open) if not one.present]
    if lost:
        raise InvalidInput(f"{len(lost)} data sets cannot be opened:\n" + "\n".join(f"- {one}" for one in lost))


class _Clock:
    """Seconds spent on a cell, over all attempts; kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = float((_read_json(path) or {}).get("seconds", 0.0))
        self.begin = time.monotonic()

    def tick(self) -> float:
        """Write and return the seconds so far."""
        seconds = self.before + time.monotonic() - self.begin
        _write_json(self.path, {"seconds": seconds})
        return seconds


def _make(study: Study, cell: Cell, out: Path, root: str | Path | None, device: str, jobs: int, done: Done) -> None:
    """Train, extract and judge one cell."""
    place = out / "training" / cell.name
    place.mkdir(parents=True, exist_ok=True)
    clock = _Clock(place / CLOCK)
    plan = study.plan(cell, out, root=root, device=device)
    count = 0

    def step(values: Mapping[str, float]) -> None:
        nonlocal count
        if "step" in values:
            count += 1
            done(f"{cell.name}: training", count, plan.steps)
        else:
            clock.tick()

    trained = plan.run(place, step)
    _extract(study, cell, out, plan, [one.model for one in trained], root, clock, done)
    judged = out / "judged" / cell.name
    runner.run(
        cell.benchmark,
        [out / "runs" / cell.name],
        judged,
        scores=cell.row.scores or None,
        pairs=_pairs(cell),
        resamples=study.resamples,
        best=len(_pairs(cell)),
        jobs=jobs,
        done=done,
    )
    told = {
        **_marks(study, cell),
        "minutes": clock.tick() / 60,
        "images": len(plan.data),
        "epochs": plan.settings.epochs,
        "steps": plan.steps,
        "window": float(np.mean([one.window for one in trained])),
    }
    _write_json(judged / CELL, told)


def _pairs(cell: Cell) -> tuple[tuple[str, str], ...]:
    return cell.row.pairs or cell.benchmark.pairs


def _extract(
    study: Study,
    cell: Cell,
    out: Path,
    plan: Any,
    models: Sequence[Any],
    root: str | Path | None,
    clock: _Clock,
    done: Done,
) -> None:
    """What the networks of a cell say of every data set; the training set needs no passes and one member."""
    extraction, perturb, data = _torch("extraction"), _torch("perturb"), _torch("data")
    where = out / "runs" / cell.name
    known = _read_json(clock.path.with_name(SETS)) or {}
    learned = {} if cell.row.odin is None else {"odin": perturb.Odin(**cell.row.odin, std=plan.prepare.std)}
    told = {"model": study.model, "recipe": cell.row.name, "study": study.name, "trained": cell.row.text}
    for one in cell.benchmark.sets:
        again = known.get(one.name, one.data) != one.data
        if not again and (where / "run.json").exists() and one.name in Run.open(where):
            continue
        known[one.name] = one.data
        _write_json(clock.path.with_name(SETS), known)
        images = data.open(one.spec(root))
        rows = 0

        def some(more: int, label: str = one.name, total: int = len(images)) -> None:
            nonlocal rows
            rows += more
            done(f"{cell.name}: {label}", rows, total)

        train = one.role == "train"
        extraction.extract(
            models[0] if train or len(models) == 1 else models,
            images,
            where,
            name=one.name,
            role=one.role,
            prepare=plan.prepare,
            device=plan.device,
            passes=0 if train else cell.row.passes,
            learned=learned,
            seed=cell.seed,
            replace=again,
            done=some,
            **told,
        )
        clock.tick()


def _marks(study: Study, cell: Cell) -> dict[str, str]:
    """Digests of what a cell was trained and extracted by, and of what it was judged by."""
    row, on = cell.row, cell.benchmark
    made = {key: value for key, value in asdict(row).items() if key not in ("name", "family", "scores", "pairs")}
    trained = digest(study.model, study.normalise, study.base, dict(study.settings), made, cell.train.data, cell.seed)
    sets = [(one.name, one.role, one.data) for one in on.sets]
    judged = digest(sets, row.scores or on.scores, _pairs(cell), on.protocols, on.metrics, study.resamples)
    return {"trained": trained, "judged": judged}


def _finished(study: Study, cell: Cell, out: Path) -> dict[str, Any] | None:
    """What is told of a finished cell; None where there is more to do. One that was trained otherwise is an error."""
    told = _read_json(out / "judged" / cell.name / CELL)
    if told is None:
        return None
    marks = _marks(study, cell)
    if told["trained"] != marks["trained"]:
        raise RunError(
            f"{cell.name} in {out} was trained with other settings than the study has now; choose another folder, or "
            f"delete {cell.name} in its folders training, runs and judged"
        )
    return told if told["judged"] == marks["judged"] else None


def _publish(study: Study, out: Path) -> None:
    """Write results and page of what is finished."""
    found = results(study, out)
    if found.rows:
        found.save(out)
    with replacing(out / REPORT) as file:
        file.write(report(study, out, found).encode())


def _write_json(path: Path, value: Any) -> None:
    with replacing(path) as file:
        file.write((json.dumps(value, indent=1) + "\n").encode())


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); delete it, and the same command makes it again") from error


# --- the page -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A number of a table: mean and standard deviation over seeds, and the interval of the mean over test images."""

    benchmark: str
    table: str
    row: str
    chosen: str
    line: str  # the score or pair of the line; empty where every column has its own
    method: str
    metric: str
    shift: str
    protocol: str
    mean: float
    spread: float | None
    low: float | None
    high: float | None
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        factor, _ = scale(self.metric)
        text = f"{factor * self.mean:.2f}"
        if self.spread is not None:
            text += f" ± {factor * self.spread:.2f}"
        if self.low is not None and self.high is not None:
            text += f" [{factor * self.low:.2f}, {factor * self.high:.2f}]"
        return text


def values(study: Study, found: Results) -> list[Value]:
    """The numbers of all tables, of finished cells; of a family of rows, those of the best on validation data."""
    return [one for on in study.benchmarks for table in study.tables for one in _values(study, found, on, table)]


def _values(study: Study, found: Results, on: Benchmark, table: Layout) -> Iterator[Value]:
    groups: dict[tuple[Any, ...], list[Told]] = {}
    for row in found.rows:
        if row["benchmark"] == on.name and row["metric"] is not None and not missing(row["value"]):
            place = row["recipe"], method(row), row["protocol"], row["shift"], row["metric"]
            groups.setdefault(place, []).append(row)
    for family in dict.fromkeys(row.family for row in study.rows):
        members = [row.name for row in study.rows if row.family == family]
        for line in _lines(groups, members, table):
            chosen = _chosen(groups, members, table, line)
            for metric, shift, protocol, *fixed in table.columns:
                name = fixed[0] if fixed else line
                rows = groups.get((chosen, name, protocol, shift, metric))
                if rows is not None:
                    about = on.name, table.title, family, chosen, line, name, metric, shift, protocol
                    yield Value(*about, *_over_seeds(rows, found))


def _lines(groups: Mapping[tuple[Any, ...], Any], members: Sequence[str], table: Layout) -> list[str]:
    """The scores and pairs that make lines of a table for a family of rows; one line where every column has its own."""
    if all(len(column) == 4 for column in table.columns):
        return [""]
    free = {tuple(column[:3]) for column in table.columns if len(column) == 3}
    return list(dict.fromkeys(g[1] for g in groups if g[0] in members and (g[4], g[3], g[2]) in free))


def _chosen(groups: Mapping[tuple[Any, ...], list[Told]], members: Sequence[str], table: Layout, name: str) -> str:
    """The row of a family with the best mean on validation data, by the rule of the protocol of the first column."""
    _, _, protocol, *fixed = table.columns[0]
    score = (fixed[0] if fixed else name).split(" + ")[0]
    judged = {}
    for place, rows in groups.items():
        if place[0] in members and place[1:4] == (score, protocol, VALIDATION):
            judged[place[0]] = (float(np.mean([row["value"] for row in rows])), better_of(rows))
    if not judged:
        return members[0]
    better: Any = next(iter(judged.values()))[1]
    try:
        return select({score: {row: value for row, (value, _) in judged.items()}}, better)[score].run
    except UndefinedMetric:
        return members[0]


def _over_seeds(
    rows: Sequence[Told], found: Results
) -> tuple[float, float | None, float | None, float | None, tuple[int, ...]]:
    """Mean, standard deviation over seeds, limits of the mean over resamples of the test images, seeds."""
    numbers = [row["value"] for row in rows]
    drawn = [found.replicates[key_of(row)] for row in rows if key_of(row) in found.replicates]
    low = high = None
    if len(drawn) == len(rows) and len({len(one) for one in drawn}) == 1:
        tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
        mean = np.mean(drawn, axis=0)
        if not np.isnan(mean).all():
            low, high = (float(x) for x in np.nanquantile(mean, tails))
    spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None
    return float(np.mean(numbers)), spread, low, high, tuple(sorted(row["seed"] for row in rows))


def report(study: Study, out: str | Path, found: Results | None = None) -> str:
    """The page of a study in Markdown: the tables of what is finished, and the scale of it."""
    found = results(study, out) if found is None else found
    told = {cell.name: one for cell in study.cells() if (one := _finished(study, cell, Path(out))) is not None}
    parts = [f"# {study.title}", study.source, _scale(study, told), _sets(study, told, Path(out))]
    parts += [table(study, found), _cells(study, told)]
    parts.append(f"Made by `{command(study)}`; every number is in `results.csv`.")
    return "\n\n".join(part for part in parts if part) + "\n"


def command(study: Study) -> str:
    """The line that runs a study."""
    file = study.name if study.name in names() else f"{study.name}.toml"
    return f"twofold study run {file}{'' if study.preset is None else f' --preset {study.preset}'} --out DIR"


def _scale(study: Study, told: Mapping[str, Told]) -> str:
    cells = study.cells()
    images = sorted({one["images"] for one in told.values()})
    epochs = sorted({one["epochs"] for one in told.values()})
    parts = [f"{len(told)} of {len(cells)} cells are finished", study.model, f"seeds {_listed(study.seeds)}"]
    parts += [f"{' or '.join(f'{n:,}' for n in images)} training images"] if images else []
    parts += [f"epochs {' or '.join(map(str, epochs))}"] if epochs else []
    parts += [f"{sum(one['minutes'] for one in told.values()) / 60:.1f} hours so far"] if told else []
    return "Scale: " + "; ".join(parts) + "."


def _sets(study: Study, told: Mapping[str, Told], out: Path) -> str:
    """How many images of each data set were seen."""
    lines = []
    for on in study.benchmarks:
        first = next((cell.name for cell in study.cells() if cell.benchmark == on and cell.name in told), None)
        if first is not None and (out / "runs" / first).is_dir():
            seen = Run.open(out / "runs" / first)
            counts = [f"{name} ({role}) {len(seen[name]):,}" for name, role in seen.roles.items()]
            lines.append(f"Images of {on.name}: {', '.join(counts)}.")
    return "\n\n".join(lines)


def table(study: Study, found: Results) -> str:
    """All tables in Markdown: mean ± standard deviation over seeds [95 % interval over test images]."""
    every = values(study, found)
    parts = []
    for on in study.benchmarks:
        for layout in study.tables:
            some = [one for one in every if (one.benchmark, one.table) == (on.name, layout.title)]
            if some:
                parts.append(f"## {layout.title}" + (f" ({on.name})" if len(study.benchmarks) > 1 else ""))
                parts.append(_markdown(layout, some))
    if parts:
        parts.append(
            "Mean ± standard deviation over seeds [95 % interval of the mean over resampled test images]. Rates in "
            "percent, areas under risk curves x1000."
        )
    return "\n\n".join(parts)


def _markdown(layout: Layout, some: Sequence[Value]) -> str:
    heads = [f"{c[0]} {c[1]}" + (f", {c[3]}" if len(c) == 4 else "") for c in layout.columns]
    base = _baseline(layout, some)
    if layout.baseline is not None:
        heads.append(f"{layout.columns[0][0]} better than {', '.join(layout.baseline)} by %")
    lines = ["| recipe |" + "".join(f" {_shown(head)} |" for head in heads), "|---|" + "---:|" * len(heads)]
    notes = []
    for row, line in dict.fromkeys((one.row, one.line) for one in some):
        own = [one for one in some if (one.row, one.line) == (row, line)]
        cells = [_at(own, column) for column in layout.columns]
        texts = ["–" if one is None else str(one) for one in cells]
        if layout.baseline is not None:
            first = cells[0]
            known = first is not None and base is not None
            texts.append(f"{100 * (base - first.mean) / base * _sign(first):.2f}" if known else "–")  # type: ignore
        label = _shown(row + (f", {line}" if line else ""))
        lines.append(f"| {label} |" + "".join(f" {text} |" for text in texts))
        notes += [f"{label}: {own[0].chosen} was best on validation data"] if own[0].chosen != row else []
    most = max(len(one.seeds) for one in some)
    few = dict.fromkeys(f"{one.row} has {len(one.seeds)}" for one in some if len(one.seeds) < most)
    notes += [f"not all seeds are finished: {', '.join(few)} of {most}"] if few else []
    return "\n".join(lines) + "".join(f"\n{'' if i else chr(10)}- {note}" for i, note in enumerate(notes))


def _shown(label: str) -> str:
    """A label in a cell of Markdown, where | would end it."""
    return label.replace("|", "\\|")


def _at(own: Sequence[Value], column: Sequence[str]) -> Value | None:
    """The value of a line in a column."""
    return next(
        (
            one
            for one in own
            if (one.metric, one.shift, one.protocol) == tuple(column[:3])
            and one.method == (column[3] if len(column) == 4 else one.line)
        ),
        None,
    )


def _baseline(layout: Layout, some: Sequence[Value]) -> float | None:
    """What the first column is compared with."""
    if layout.baseline is None:
        return None
    row, name = layout.baseline
    column = (*layout.columns[0][:3], name)
    found = _at([one for one in some if one.row == row], column)
    return None if found is None or found.mean == 0 else found.mean


def _sign(one: Value) -> int:
    return -1 if better_of([{"metric": one.metric, "better": None}]) == "higher" else 1


def _cells(study: Study, told: Mapping[str, Told]) -> str:
    """What each row is and what it cost."""
    lines = [
        "| row | recipe | starts from | images | epochs | updates | weights averaged | minutes a cell | finished |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in study.rows:
        cells = [cell for cell in study.cells() if cell.row.name == row.name]
        own = [told[cell.name] for cell in cells if cell.name in told]
        facts = ["–"] * 5
        if own:
            first = own[0]
            facts = [f"{first['images']:,}", str(first["epochs"]), f"{first['steps']:,}", f"{first['window']:.0f}"]
            facts.append(f"{np.mean([one['minutes'] for one in own]):.1f}")
        words = [row.name, f"`{row.text}`", row.checkpoint or "", *facts, f"{len(own)} of {len(cells)}"]
        lines.append("| " + " | ".join(words) + " |")
    return "## Scale of each row\n\n" + "\n".join(lines)
