"""Parse study files: rows, cells and tables; mistakes are found before any data are opened."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, get_args

from twofold import _checks, _toml
from twofold.bench import catalogue as sheets
from twofold.bench.catalogue import Benchmark, DataSet
from twofold.bench.protocols import PROTOCOLS
from twofold.errors import InvalidInput, MissingExtra, TwofoldError, UnknownName
from twofold.scores.chain import scorer

BENCHMARK = ("classes", "protocols", "scores", "pairs", "metrics", "sets", "splits")
KEYS = (
    *("name", "title", "source", "model", "normalise", "precision", "seeds", "tuning_seeds", "resamples", "settings"),
    *("outliers", "mixers", "recipes", "tables", "presets", "benchmark", *BENCHMARK),
)
ROW_KEYS = ("name", "recipe", "checkpoint", "outliers", "mixers", "dropout", "passes", "odin", "scores", "pairs")
WEIGHTS = (".safetensors", ".npz", ".pt", ".pth")  # how a checkpoint ends that is a file
LISTS = ("scores", "pairs", "augment")  # keys of a row whose value is a list by itself


@dataclass(frozen=True)
class Row:
    """Describe one row of a study.

    Parameters
    ----------
    name : str
        Name of the row.
    family : str
        Name that the file uses, the same for all values of a list.
    recipe : str
        The training recipe.
    checkpoint : str, optional
        What it starts from: another row, whose weights of the same seed are used, or a file of weights.
    outliers, mixers : str, optional
        Data sets of outliers and of mixing images, in the grammar of :mod:`twofold.nn.data`.
    dropout : float, default=0.0
        Dropout rate.
    passes : int, default=0
        Number of stochastic passes of extraction; needs dropout.
    odin : mapping of str to float, optional
        Settings of ODIN in extraction.
    scores : tuple of str, default=()
        Scores to judge by; empty means those of the benchmark.
    pairs : tuple of (str, str), default=()
        Pairs of scores to judge by; empty means those of the benchmark.
    settings : mapping, default={}
        Training settings that this row changes.
    """

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
    def start(self) -> str | None:
        """The row that it starts from, or None."""
        return None if self.weights is not None else self.checkpoint

    @property
    def weights(self) -> str | None:
        """The file of weights that it starts from, or None."""
        return self.checkpoint if self.checkpoint is not None and self.checkpoint.endswith(WEIGHTS) else None

    @property
    def text(self) -> str:
        """The recipe and what the row changes, as text."""
        changes = {**({"dropout": self.dropout} if self.dropout else {}), **self.settings}
        return self.recipe + "".join(f", {key} {value}" for key, value in changes.items())


@dataclass(frozen=True)
class Cell:
    """Describe a row of a study with a seed, on one benchmark.

    Parameters
    ----------
    name : str
        Name of the cell and of its folders.
    row : Row
        The row.
    benchmark : Benchmark
        The benchmark.
    seed : int
        The seed.
    start : str or None
        The cell whose weights it starts from.
    """

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
    """Describe a table of the report.

    Parameters
    ----------
    title : str
        Heading of the table.
    columns : tuple of tuple of str
        Metric, shift, protocol and, where it is fixed, the score or pair of each column.
    baseline : tuple of (str, str), optional
        A row and a score; one more column then shows how much better the first column is, in percent of the baseline.
    """

    title: str
    columns: tuple[tuple[str, ...], ...]
    baseline: tuple[str, str] | None = None


@dataclass(frozen=True)
class Study:
    """Hold what a study file says.

    Parameters
    ----------
    name, title, source : str
        Name, heading and origin of the study.
    model : str
        The network.
    normalise : str
        Normalisation of the images.
    precision : {"float32", "bf16"}
        Precision of the passes of training.
    base : str
        Preset of the training settings.
    settings : mapping
        Training settings that differ from the preset.
    seeds : tuple of int
        Seeds of the cells.
    tuning_seeds : tuple of int
        Seeds whose validation values choose among the rows of a family.
    rows : tuple of Row
        The rows.
    benchmarks : tuple of Benchmark
        Where the rows are trained and judged.
    tables : tuple of Layout
        Tables of the report.
    resamples : int
        Number of bootstrap resamples.
    preset : str or None
        The preset of the file that was applied.
    text : str
        The file itself.

    Examples
    --------
    >>> study = load("paradigms")
    >>> study.name, study.cells()[0].seed == study.seeds[0]
    ('paradigms', True)
    """

    name: str
    title: str
    source: str
    model: str
    normalise: str
    precision: str  # precision of the passes of training: float32 or bf16
    base: str  # preset of the settings
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]  # those whose validation values choose among the rows of a family
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
        """List the cells, seed by seed, each after the one it starts from.

        Parameters
        ----------
        only : sequence of str, optional
            Names of rows or families; what they start from is included. By default all rows.
        seeds : sequence of int, optional
            Seeds to include; by default all.

        Returns
        -------
        tuple of Cell
            The cells.

        Raises
        ------
        UnknownName
            If there is no such row.
        InvalidInput
            If a seed is not one of the study, or rows start from one another in a circle.
        """
        known = {row.name for row in self.rows} | {row.family for row in self.rows}
        for name in only or ():
            if name not in known:
                raise UnknownName.of(f"row of {self.name}", name, known)
        for seed in seeds or ():
            if seed not in self.seeds:
                raise InvalidInput(f"seed {seed} is not of {self.name}; its seeds are {listed(self.seeds)}")
        wanted = [row for row in self.rows if not only or row.name in only or row.family in only]
        needed = list(dict.fromkeys(row for one in wanted for row in self._chain(one.name)))
        chosen = [seed for seed in self.seeds if not seeds or seed in seeds]
        return tuple(self._cell(self[name], one, seed) for seed in chosen for one in self.benchmarks for name in needed)

    def _cell(self, row: Row, on: Benchmark, seed: int) -> Cell:
        first = f"{on.name}-" if len(self.benchmarks) > 1 else ""
        start = None if row.start is None else f"{first}{row.start}-s{seed}"
        return Cell(f"{first}{row.name}-s{seed}", row, on, seed, start)

    def _chain(self, name: str) -> list[str]:
        """List the rows that a row starts from, and the row itself last."""
        found = [name]
        while (start := self[found[0]].start) is not None:
            if start in found:
                raise InvalidInput(f"rows start from one another in a circle: {listed([start, *found])}")
            found.insert(0, start)
        return found

    def plan(self, cell: Cell, out: str | Path, *, root: str | Path | None = None, device: str = "cpu") -> Any:
        """Plan the training of a cell.

        Parameters
        ----------
        cell : Cell
            The cell.
        out : str or Path
            Folder of the study, which holds the weights of other cells.
        root : str or Path, optional
            The folder of data; by default that of the environment variable ``TWOFOLD_DATA``.
        device : str, default="cpu"
            Where to train.

        Returns
        -------
        twofold.nn.training.Plan
            The plan.

        Raises
        ------
        MissingExtra
            If torch is not installed.
        """
        recipes, training = torch_module("recipes"), torch_module("training")
        row = cell.row
        made = training.Plan.of(
            row.recipe,
            self.model,
            cell.train.spec(root),
            outliers=placed(row.outliers, root),
            mixers=placed(row.mixers, root),
            checkpoint=placed(row.weights, root)
            if cell.start is None
            else str(Path(out) / "training" / cell.start / training.WEIGHTS),
            normalise=self.normalise,
            preset=self.base,
            device=device,
            precision=self.precision,
            **{**self.settings, **row.settings, "seed": cell.seed},
        )
        if row.dropout:
            made = replace(made, recipe=made.recipe | recipes.Dropout(row.dropout))
        if made.members > 1:  # no two ensembles share a member
            made = replace(made, settings=replace(made.settings, seed=cell.seed * made.members))
        if made.settings.keep != "last":
            val = cell.benchmark[cell.benchmark.names("val")[0]]
            made = replace(made, val=torch_module("data").open(val.spec(root)))
        return made


# --- files ----------------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """List the studies that come with the package.

    Returns
    -------
    tuple of str
        Names that :func:`load` takes.

    Examples
    --------
    >>> names()
    ('aurc_finetune', 'paradigms', 'sure_plus', 'sure_plus_tuned', 'unknown')
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
    found = sorted(files("twofold.study").joinpath("files").iterdir(), key=lambda file: file.name)
    texts = {f.name.removesuffix(".toml"): f.read_text(encoding="utf-8") for f in found if f.name.endswith(".toml")}
    return {name: str(tomllib.loads(text)["title"]) for name, text in texts.items()}


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
    file = study.name if study.name in names() else f"{study.name}.toml"
    return f"twofold study run {file}{'' if study.preset is None else f' --preset {study.preset}'} --out DIR"


def load(name: str | Path, *, preset: str | None = None) -> Study:
    """Load a study of the package by name, or one of your own by the path of its file.

    Parameters
    ----------
    name : str or Path
        A name of :func:`names`, or a path that ends in ``.toml``.
    preset : str, optional
        A preset of the file to apply.

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
    """
    if isinstance(name, Path) or str(name).endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{name} cannot be read as a study file: {error}") from error
        return loads(text, where=str(name), preset=preset)
    if name not in titles():
        raise UnknownName.of("study", str(name), titles())
    text = files("twofold.study").joinpath("files", f"{name}.toml").read_text(encoding="utf-8")
    return loads(text, where=f"study {name}", preset=preset)


def loads(text: str, *, where: str = "study", preset: str | None = None) -> Study:
    """Parse a study from the text of its file.

    Parameters
    ----------
    text : str
        TOML.
    where : str, default="study"
        Name of the file in error messages.
    preset : str, optional
        A preset of the file to apply.

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
    """
    content = _toml.parsed(text, where)
    _toml.known(content, KEYS, where)
    if preset is not None:
        content = _with_preset(content, preset, where)
    settings = _toml.table(content, "settings", where)
    base = str(settings.pop("preset", "cifar"))
    benchmarks = _benchmarks(content, where)
    made = Study(
        name=_toml.text(content, "name", where),
        title=_toml.text(content, "title", where),
        source=_toml.text(content, "source", where),
        model=_toml.text(content, "model", where),
        normalise=str(content.get("normalise", "none")),
        precision=str(content.get("precision", "float32")),
        base=base,
        settings=_plain(settings),
        seeds=_seeds(content, where),
        tuning_seeds=_tuning_seeds(content, where),
        rows=_rows(content, where),
        benchmarks=benchmarks,
        tables=_layouts(content, where),
        resamples=_toml.whole(content, "resamples", where, 0) if "resamples" in content else 200,
        preset=preset,
        text=text,
    )
    _check(made, where)
    return made


def _with_preset(content: Mapping[str, Any], preset: str, where: str) -> dict[str, Any]:
    """Apply one of its presets to the content of a file."""
    presets = _toml.table(content, "presets", where)
    if preset not in presets:
        raise UnknownName.of(f"preset of {where}", preset, presets)
    given = _toml.table(presets, preset, f"{where}, presets")
    _toml.known(given, [key for key in KEYS if key != "presets"], f"{where}, preset {preset}")
    gone = ("classes", "sets", "splits") if "benchmark" in given else ()
    changed = {key: value for key, value in content.items() if key not in gone}
    changed |= {key: value for key, value in given.items() if key not in ("settings", "recipes")}
    changed["settings"] = {**_toml.table(content, "settings", where), **_toml.table(given, "settings", where)}
    rows = _toml.table(given, "recipes", f"{where}, preset {preset}")
    known = [str(row.get("name")) for row in content.get("recipes", ())]
    _toml.known(rows, known, f"{where}, preset {preset}, recipes")
    changed["recipes"] = [{**row, **rows.get(str(row.get("name")), {})} for row in content.get("recipes", ())]
    return changed


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def _seeds(content: Mapping[str, Any], where: str) -> tuple[int, ...]:
    given = content.get("seeds", [0])
    whole = isinstance(given, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in given)
    if not whole or not given or len(set(given)) < len(given):
        raise InvalidInput(f"{where}: seeds must be a list of different whole numbers from 0, got {given!r}")
    return tuple(given)


def _tuning_seeds(content: Mapping[str, Any], where: str) -> tuple[int, ...]:
    """Read the seeds that choose among the rows of a family: all of them unless the file names some."""
    seeds = _seeds(content, where)
    if "tuning_seeds" not in content:
        return seeds
    chosen = content["tuning_seeds"]
    if not isinstance(chosen, list) or not chosen or not set(chosen) <= set(seeds):
        raise InvalidInput(f"{where}: tuning_seeds must be a list of some of the seeds {list(seeds)}, got {chosen!r}")
    return tuple(chosen)


def _benchmarks(content: Mapping[str, Any], where: str) -> tuple[Benchmark, ...]:
    """Load the benchmarks that the rows are judged by: of the catalogue, or the one that the file itself describes."""
    if "benchmark" not in content:
        count = max(1, len(content.get("splits", ())))
        return tuple(sheets.described(content, where, split) for split in range(count))
    for key in ("classes", "splits"):
        if key in content:
            raise InvalidInput(f"{where}: {key} belongs to the benchmark; leave it out, or leave out 'benchmark'")
    given = content["benchmark"]
    found = [sheets.load(str(name)) for name in (given if isinstance(given, list) else [given])]
    kept = _toml.texts(content, "sets", where) if "sets" in content else None
    changes = sheets.changes(content, where)
    return tuple(
        replace(one, **changes, sets=one.sets if kept is None else tuple(one[name] for name in kept)) for one in found
    )


def _rows(content: Mapping[str, Any], where: str) -> tuple[Row, ...]:
    if "recipes" not in content:
        raise InvalidInput(f"{where}: key 'recipes' is missing; write a [[recipes]] table for each row")
    found: dict[str, Row] = {}
    shared = {key: content[key] for key in ("outliers", "mixers") if key in content}
    for place, table in enumerate(_toml.tables(content, "recipes", where), start=1):
        for row in _grid({**shared, **table}, f"{where}, recipe {place}"):
            if row.name in found:
                raise InvalidInput(f"{where}, recipe {place}: the name {row.name!r} is taken by another row")
            found[row.name] = row
    if not found:
        raise InvalidInput(f"{where}: recipes must name at least one row")
    return tuple(found.values())


def _grid(table: Mapping[str, Any], where: str) -> Iterator[Row]:
    """Expand one table into rows: one for each combination of the values in its lists."""
    name = _toml.text(table, "name", where)
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
    _toml.known(table, (*ROW_KEYS, *settings), where)
    odin = table.get("odin")
    if odin is not None:
        odin = odin if isinstance(odin, dict) else {"epsilon": odin}
        _toml.known(odin, ("epsilon", "temperature"), f"{where}: odin")
        odin = {key: _number(value, f"{where}: odin {key}") for key, value in odin.items()}
    return Row(
        name,
        family,
        _toml.text(table, "recipe", where),
        **{k: _toml.text(table, k, where) for k in ("checkpoint", "outliers", "mixers") if k in table},
        dropout=_number(table.get("dropout", 0.0), f"{where}: dropout", 1.0),
        passes=_toml.whole(table, "passes", where, 0) if "passes" in table else 0,
        odin=odin,
        scores=sheets.scores(table, where),
        pairs=sheets.pairs(table, where),
        settings=_plain({key: table[key] for key in table if key in settings}),
    )


def _number(value: Any, name: str, high: float = math.inf) -> float:
    return float(_checks.number(value, name, 0.0, high, open_high=True))


def _layouts(content: Mapping[str, Any], where: str) -> tuple[Layout, ...]:
    found = []
    for place, table in enumerate(_toml.tables(content, "tables", where) if "tables" in content else (), start=1):
        here = f"{where}, table {place}"
        _toml.known(table, ("title", "columns", "baseline"), here)
        columns = table.get("columns")
        if not isinstance(columns, list) or not columns or not all(_is_column(one) for one in columns):
            raise InvalidInput(
                f"{here}: columns must be lists of metric, shift, protocol and perhaps score: {columns!r}"
            )
        for one in columns:
            _known_name(one[2], PROTOCOLS, "protocol", here)
        base = _toml.texts(table, "baseline", here) if "baseline" in table else None
        if base is not None and len(base) != 2:
            raise InvalidInput(f"{here}: baseline must be a row and a score, got {list(base)}")
        against = None if base is None else (base[0], _spelled(base[1], here))
        plain = tuple((*one[:3], *(_spelled(name, here) for name in one[3:])) for one in columns)
        found.append(Layout(_toml.text(table, "title", here), plain, against))
    return tuple(found)


def _spelled(name: str, where: str) -> str:
    """Spell a score, or a pair with " + " between its scores, as results do."""
    try:
        return " + ".join(scorer(part).spec for part in name.split(" + "))
    except TwofoldError as error:
        raise InvalidInput(f"{where}: {error}") from error


def _is_column(value: Any) -> bool:
    return isinstance(value, list) and len(value) in (3, 4) and all(isinstance(word, str) for word in value)


def _check(study: Study, where: str) -> None:
    """Check everything before data are opened: names, settings, rows that others start from, tables."""
    training, models, data = torch_module("training"), torch_module("models"), torch_module("data")
    if ":" not in study.model:
        _known_name(study.model, models.names(), "network", f"{where}: model")
    _known_name(study.normalise, ["none", *data.STATISTICS], "statistics", f"{where}: normalise")
    _known_name(study.precision, get_args(training.Precision), "precision", f"{where}: precision")
    _known_name(study.base, training.PRESETS, "preset", f"{where}: settings")
    _toml.known(study.settings, _setting_names(), f"{where}: settings")
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
    recipes, training = torch_module("recipes"), torch_module("training")
    made = recipes.recipe(row.recipe)
    replace(training.PRESETS[study.base], **{**study.settings, **row.settings})
    if made.get(recipes.FineTune) is not None and row.checkpoint is None:
        raise InvalidInput(f"{row.recipe} starts from another row, or a file of weights; name it in checkpoint")
    if made.outliers_per_image and row.outliers is None:
        raise InvalidInput(f"{row.recipe} needs outliers; name a data set in outliers")
    if row.passes and not row.dropout and made.get(recipes.Dropout) is None:
        raise InvalidInput("passes need dropout; add dropout = 0.1, or leave passes out")


def _check_start(study: Study, row: Row) -> None:
    recipes = torch_module("recipes")
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
    return [name for name in torch_module("training").Settings.__dataclass_fields__ if name != "seed"]


def _measured(on: Benchmark, where: str) -> Iterator[tuple[str, str, str]]:
    """List metric, shift and protocol of all that is measured; data sets whose names would clash are an error."""
    for name in on.protocols:
        try:
            views, means = PROTOCOLS[name].views(on.roles), PROTOCOLS[name].averages(on.roles)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: {error}") from error
        found = {view.shift: (*view.metrics, *view.pair_metrics, *on.metrics) for view in views}
        found |= {mean.shift: found[mean.of[0]] for mean in means}
        yield from ((metric, shift, name) for shift, several in found.items() for metric in several)


def torch_module(module: str) -> Any:
    """Import a module of ``twofold.nn``.

    Parameters
    ----------
    module : str
        Its name, such as ``"training"``.

    Returns
    -------
    module
        The module.

    Raises
    ------
    MissingExtra
        If torch is not installed.
    """
    try:
        return import_module(f"twofold.nn.{module}")
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra('studies train networks, which needs torch: pip install "twofold[torch]"') from error


def placed(spec: str | None, root: str | Path | None) -> str | None:
    """Insert the folder of data into the spec of outliers or mixers, or into the path of a file of weights.

    Parameters
    ----------
    spec : str or None
        The spec or path, with ``{data}`` for the folder.
    root : str or Path or None
        The folder; None means that of the environment variable ``TWOFOLD_DATA``.

    Returns
    -------
    str or None
        What to open; None for None.

    Raises
    ------
    InvalidInput
        If a folder is needed and none is named.

    Examples
    --------
    >>> placed("{data}/weights.pt", "/data")
    '/data/weights.pt'
    """
    return None if spec is None else DataSet("outliers", "ood_val", spec).spec(root)


def listed(items: Sequence[Any]) -> str:
    """Join names with commas.

    Parameters
    ----------
    items : sequence
        The names.

    Returns
    -------
    str
        The names as text.

    Examples
    --------
    >>> listed([0, 1])
    '0, 1'
    """
    return ", ".join(str(item) for item in items)
