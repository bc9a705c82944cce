"""Check a study before any data are opened: names, settings, what rows start from, and the columns of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from twofold import _toml
from twofold.bench.catalogue import Benchmark
from twofold.bench.protocols import PROTOCOLS
from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.scores.chain import scorer
from twofold.study.spec import ROW_KEYS, Study, StudyRow, StudyTable, torch_module


def check_study(study: Study, where: str) -> None:
    """Check everything that can be wrong in a study without opening its data.

    Parameters
    ----------
    study : Study
        The study.
    where : str
        Name of its file in error messages.

    Raises
    ------
    InvalidInput
        If a name is unknown, a setting invalid, a role missing, or a table asks for what is not measured.
    MissingExtra
        If torch is not installed.
    """
    _check_training(study, where)
    for benchmark in study.benchmarks:
        _check_benchmark(benchmark, where)
    for check in (_check_row, _check_starts):
        for row in study.rows:
            try:
                check(study, row)
            except TwofoldError as error:
                raise InvalidInput(f"{where}, row {row.name}: {error}") from error
    for table in study.tables:
        _check_table(study, table, f"{where}, table {table.title}")


def check_name(name: str, known: Iterable[str], kind: str, where: str) -> None:
    """Raise an error that names the nearest known names where a name is unknown.

    Parameters
    ----------
    name : str
        The name to check.
    known : iterable of str
        All known names.
    kind : str
        What is named, such as ``"protocol"``.
    where : str
        Place in the file, for the message.

    Raises
    ------
    InvalidInput
        If the name is not known.
    """
    names = list(known)
    if name not in names:
        raise InvalidInput(f"{where}: {UnknownName.of(kind, name, names)}")


def spell_method(name: str, where: str) -> str:
    """Spell a score, or a pair with " + " between its scores, as results do.

    Parameters
    ----------
    name : str
        A score or pair.
    where : str
        Place in the file, for the message.

    Returns
    -------
    str
        The spelling of results.

    Raises
    ------
    InvalidInput
        If a score cannot be parsed.

    Examples
    --------
    >>> spell_method("msp + react( percentile=90 )|energy", "mine.toml")
    'msp + react(percentile=90)|energy'
    """
    try:
        return " + ".join(scorer(score).spec for score in name.split(" + "))
    except TwofoldError as error:
        raise InvalidInput(f"{where}: {error}") from error


def setting_names() -> list[str]:
    """List the training settings that a study file may change.

    Returns
    -------
    list of str
        All settings but the seed, which is that of the cell.
    """
    return [name for name in torch_module("training").Settings.__dataclass_fields__ if name != "seed"]


def _check_training(study: Study, where: str) -> None:
    """Check the names of network, normalisation, precision, preset and settings."""
    training, models, data = torch_module("training"), torch_module("models"), torch_module("data")
    if ":" not in study.model and not models.is_transformer(study.model):
        check_name(study.model, models.names(), "network", f"{where}: model")
    check_name(study.normalise, ["none", *data.STATISTICS], "statistics", f"{where}: normalise")
    check_name(study.precision, get_args(training.Precision), "precision", f"{where}: precision")
    check_name(study.base, training.PRESETS, "preset", f"{where}: settings")
    _toml.check_keys(study.settings, setting_names(), f"{where}: settings")


def _check_benchmark(benchmark: Benchmark, where: str) -> None:
    """Check that there is something to train on, and a set of every role that a cell needs."""
    for role in ("train", "val", "test"):
        if not benchmark.names(role):
            raise InvalidInput(f"{where}: there is no data set of role {role}; every cell needs one")
    for one in benchmark.sets:
        if one.embedded:
            raise InvalidInput(f"{where}: {benchmark.name} comes with its classifier, so there is nothing to train")


def _check_row(study: Study, row: StudyRow) -> None:
    """Check the recipe and settings of a row, and that it has what its recipe needs."""
    recipes, training = torch_module("recipes"), torch_module("training")
    _check_row_keys(row)
    preset = training.find_preset(study.base)
    recipe = recipes.recipe(row.recipe, **preset.parts_for(row.recipe))
    preset.settings_for(row.recipe, {**study.settings, **row.settings})  # settings check themselves
    preset.check_fits(study.base, row.recipe, study.model)
    if recipe.get(recipes.FineTune) is not None and row.checkpoint is None:
        raise InvalidInput(f"{row.recipe} starts from another row, or a file of weights; name it in checkpoint")
    if recipe.outliers_per_image and row.outliers is None:
        raise InvalidInput(f"{row.recipe} needs outliers; name a data set in outliers")
    if row.passes and not row.dropout and recipe.get(recipes.Dropout) is None:
        raise InvalidInput("passes need dropout; add dropout = 0.1, or leave passes out")


def _check_row_keys(row: StudyRow) -> None:
    """Check that what is no key of a row is a training setting."""
    settings = setting_names()
    for key in row.settings:
        if key not in settings:
            raise UnknownName.of("key", key, (*ROW_KEYS, *settings))


def _check_starts(study: Study, row: StudyRow) -> None:
    """Check that a row starts from single networks only."""
    recipes = torch_module("recipes")
    for start in study.starts(row.name):
        if recipes.recipe(start.recipe).get(recipes.Members) is not None:
            raise InvalidInput(f"{start.name} is an ensemble, and no row can start from it")


def _check_table(study: Study, table: StudyTable, where: str) -> None:
    """Check that every column of a table is measured, by a score or pair that is judged."""
    measured: dict[str, set[str]] = {}  # metric and shift by protocol
    for benchmark in study.benchmarks:
        for protocol in benchmark.protocols:
            measured.setdefault(protocol, set()).update(_measured_columns(benchmark, protocol, where))
    scores, pairs = _judged_methods(study)
    methods = {spell_method(name, where) for name in (*scores, *map(" + ".join, pairs))}
    for column in table.columns:
        known = measured.get(column.protocol, set())
        check_name(f"{column.metric} {column.shift}", known, f"column of protocol {column.protocol}", where)
        if column.method is not None and scores:  # without scores in the file all are judged
            check_name(column.method, methods, "score or pair of the study", where)
    if table.baseline is not None:
        check_name(table.baseline.row, study.families, "row", f"{where}: baseline")


def _judged_methods(study: Study) -> tuple[set[str], set[tuple[str, str]]]:
    """Collect the scores and the pairs that benchmarks and rows name."""
    scores: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for benchmark in study.benchmarks:
        scores.update(benchmark.scores)
        pairs.update(benchmark.pairs)
    for row in study.rows:
        scores.update(row.scores)
        pairs.update(row.pairs)
    return scores, pairs


def _measured_columns(benchmark: Benchmark, protocol: str, where: str) -> Iterator[str]:
    """List metric and shift of all that a protocol measures; data sets whose names would clash are an error."""
    try:
        views = PROTOCOLS[protocol].views(benchmark.roles)
        averages = PROTOCOLS[protocol].averages(benchmark.roles)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from error
    metrics: dict[str, tuple[str, ...]] = {}
    for view in views:
        metrics[view.shift] = (*view.metrics, *view.pair_metrics, *benchmark.metrics)
    for average in averages:
        metrics[average.shift] = metrics[average.of[0]]
    for shift, several in metrics.items():
        for metric in several:
            yield f"{metric} {shift}"
